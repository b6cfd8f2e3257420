/*
 * publish_jobs.h
 *	  What a transaction did to the queue, told to the dispatcher when it has committed.
 *
 * Enqueue and every other write of the queue call publish_key with the lane and position of the row
 * they wrote (plain SQL by the trigger in queue_triggers.c).  Everything is
 * reserved then; the callback at COMMIT (after ProcArrayEndTransaction: the rows are visible) copies
 * it to the database's ring under a spinlock and sets the dispatcher's latch.  It cannot fail.
 * At ABORT the same keys are published: a row that was locked may have been passed over.
 * At PREPARE they are kept beside the xid; the dispatcher asks what became of it.
 */
#ifndef JOBQ_PUBLISH_JOBS_H
#define JOBQ_PUBLISH_JOBS_H

#include "access/xact.h"
#include "shared/shmem.h"

#define JOBQ_EXACT_KEYS 8		/* per transaction and lane; beyond: one interval */

extern void publish_key(int32 type_id, int16 priority, int16 sublane, TimestampTz position);
/* A row of the concurrency key that was created then was written, or removed. */
extern void publish_concurrency_key(uint64 hash, TimestampTz created_at, bool removed);
/* Registry changed: every backend's cache and the dispatcher's, at commit. */
extern void publish_types_changed(void);
/* From now on nothing is handed out, until this transaction ends. */
extern void publish_drain(void);
/* Signals or pressure rules changed: the dispatcher reads them again. */
extern void publish_signals_changed(void);
/* At commit: cancel the running attempt of job id.  ERROR 53400 when too many are under way. */
extern void publish_cancel(const pg_uuid_t *id, const char *reason);
/* True when this transaction has published something (an enqueue of our own: wait_for refuses). */
extern bool publish_wrote_job(const pg_uuid_t *id);
extern void publish_note_job(const pg_uuid_t *id);
/* For RegisterXactCallback and RegisterSubXactCallback, once per process. */
extern void publish_xact_callback(XactEvent event, void *arg);
extern void publish_subxact_callback(SubXactEvent event, SubTransactionId subid,
									 SubTransactionId parent, void *arg);

#endif
