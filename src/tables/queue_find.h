/*
 * queue_find.h
 *	  Live jobs by id, and the lock a management call takes: it may wait for another transaction, never
 *	  for a handler.  A Job given as result is also filled when the answer is LOCK_BUSY.
 */
#ifndef JOBQ_QUEUE_FIND_H
#define JOBQ_QUEUE_FIND_H

#include "tables/queue_table.h"

/* By a direct scan of the index on id; the row is copied, not locked. */
extern bool queue_find_by_id(Table *queue, const pg_uuid_t *id, Snapshot snapshot, Job *job);
/* LOCK_OK: locked for this transaction; LOCK_BUSY: its handler runs; LOCK_GONE: not a live job. */
extern LockResult queue_lock_by_id(Table *queue, const pg_uuid_t *id, Job *job);
/* The same without waiting: *held: another transaction has the row, and the answer is LOCK_GONE. */
extern LockResult queue_lock_unless_held(Table *queue, const pg_uuid_t *id, Job *job, bool *held);
/* One attempt at the version seen.  LOCK_GONE: it has changed, or we waited for somebody: look again. */
extern LockResult queue_lock_or_wait(Table *queue, Job *seen, Job *job);

/* Has an executor begun this job? */
extern bool job_has_begun(Job *job);
extern bool job_is_running(Job *job);
/* Does another transaction that is not over lock or change the row in this slot? */
extern bool slot_is_locked(TupleTableSlot *slot);
/* The index of t on exactly these columns. */
extern Relation table_index(Table *t, const AttrNumber *columns, int ncolumns);

#endif
