/*
 * xact_changes.h
 *	  Notes what a transaction changes, for the dispatcher: publish_jobs.h
 *	  publishes it at the end.
 *
 * Enqueue and every other write of the queue call note_position() with the lane
 * and position of the row (plain SQL by the trigger in queue_triggers.c).  These
 * calls reserve all memory that the end of the transaction needs.
 */
#ifndef JOBQ_XACT_CHANGES_H
#define JOBQ_XACT_CHANGES_H

#include "shared/shmem.h"

struct BreakerNote;

/* Notes a written row of a lane. */
extern void note_position(int32 type_id, int16 priority, int16 sublane, TimestampTz position);

/*
 * Notes a row, published before, that can't start until another transaction has
 * ended: it is read again then.
 */
extern void note_successor(TransactionId xid, const LaneKeys *keys);

/*
 * Notes that a row of the concurrency key, created at that time, was written
 * or removed.
 */
extern void note_concurrency_key(uint64 hash, TimestampTz since, bool removed);

/*
 * Notes a change of the registry, for the caches of all backends and the
 * dispatcher at commit.
 */
extern void note_types_changed(void);
/* Stops hand-out from now on until this transaction ends. */
extern void note_drain(void);

/*
 * Notes a change of signals or pressure rules; the dispatcher reads them
 * again.
 */
extern void note_signals_changed(void);

/*
 * Requests to cancel the running attempt of job id, at commit.  Raises ERROR
 * 53400 if too many such requests are open.
 */
extern void note_cancel(const pg_uuid_t *id, const char *reason);
/*
 * Notes a job whose lease has begun, ended or changed: the dispatcher reads
 * its row again.
 */
extern void note_lease(const pg_uuid_t *id);
/*
 * The same for an attempt that its client has ended: the breaker and sessions
 * in wait_for learn of it.
 */
extern void note_attempt_end(const pg_uuid_t *id, int status, const struct BreakerNote *note, bool failed);
/* The same for a claim, whose lease ends then. */
extern void note_claim(const pg_uuid_t *id, MonoTime until);
/* Takes that back: the claim did not get the job. */
extern void note_no_claim(const pg_uuid_t *id);
/* Allocates the memory for so many more of them. */
extern void reserve_lease_notes(int n);
/* True if this transaction has written the job: then wait_for refuses. */
extern bool has_written_job(const pg_uuid_t *id);
/* Notes a job that this transaction has written. */
extern void note_written_job(const pg_uuid_t *id);

/* Frees the array of leases if a huge transaction has grown it. */
extern void shrink_lease_notes(void);
/* Returns when the first lease of its claims ends; 0: it has none. */
extern MonoTime noted_claims_until(void);

#endif
