/*
 * queue_find.h
 *	  Live jobs by id, and the lock of a management call, which may wait for
 *	  another transaction, never for a handler.  A Job given as result is also
 *	  filled when the answer is LOCK_BUSY.
 */
#ifndef JOBQ_QUEUE_FIND_H
#define JOBQ_QUEUE_FIND_H

#include "tables/queue_table.h"

/*
 * Finds a job by a direct scan of the index on id; the row is copied, not
 * locked.
 */
extern bool queue_find_by_id(Table *queue, const pg_uuid_t *id, Snapshot snapshot, Job *job);

/*
 * Locks a job.  LOCK_OK: locked for this transaction; LOCK_BUSY: its handler
 * runs; LOCK_GONE: not a live job.
 */
extern LockResult queue_lock_by_id(Table *queue, const pg_uuid_t *id, Job *job);

/*
 * The same without waiting: *held: another transaction has the row, and the
 * answer is LOCK_GONE.
 */
extern LockResult queue_lock_unless_held(Table *queue, const pg_uuid_t *id, Job *job, bool *held);

/* Locks the very version seen; false: it has changed, or its lock is not free. */
extern bool queue_lock_seen(Table *queue, const Job *seen);

/*
 * Locks a job that a client has; false: this version is no longer the latest.
 * With held it does not wait: *held is true when another transaction has it.
 */
extern bool queue_lock_leased(Table *queue, Job *seen, Job *job, bool *held);

/*
 * Tries the version seen once.  LOCK_GONE: it has changed, or the call has
 * waited: look again.
 */
extern LockResult queue_lock_or_wait(Table *queue, Job *seen, Job *job);

/* True if an executor has begun this job. */
extern bool job_has_begun(Job *job);
extern bool job_is_running(Job *job);
/* True if another open transaction locks or changes the row in this slot. */
extern bool slot_is_locked(TupleTableSlot *slot);
/*
 * Returns the transaction that has changed the row in this slot, by its
 * top-level xid while it is in progress; Invalid: none, or it is rolled back.
 */
extern TransactionId slot_changer(TupleTableSlot *slot);
/* Returns the index of t on exactly these columns. */
extern Relation table_index(Table *t, const AttrNumber *columns, int ncolumns);

#endif
