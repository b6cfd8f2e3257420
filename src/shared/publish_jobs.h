/*
 * publish_jobs.h
 *	  Publishes the changes of a transaction to the dispatcher at its end.
 *
 * Enqueue and every other write of the queue note the lane and position of the
 * row (xact_changes.h), which reserves all memory.  The callback at COMMIT
 * (after ProcArrayEndTransaction: the rows are visible) copies the publications
 * to the database's ring under a spinlock and sets the dispatcher's latch.  It
 * cannot fail.  At ABORT the same positions are published: a row that was
 * locked may have been passed over.  At PREPARE they are kept with the xid,
 * and the dispatcher checks for the end of the prepared transaction.
 */
#ifndef JOBQ_PUBLISH_JOBS_H
#define JOBQ_PUBLISH_JOBS_H

#include "access/xact.h"
#include "shared/shmem.h"

/* Returns the entry about a job's lease; news: LeaseNews (claims.h). */
extern LaneKeys lease_entry(const pg_uuid_t *id, int news);
/* Adds it to the ring, with JobqDb.mutex held; cannot fail. */
extern void publish_entry(JobqDb *db, LaneKeys entry);
/* Callbacks to register once per process. */
extern void publish_xact_callback(XactEvent event, void *arg);
extern void publish_subxact_callback(SubXactEvent event, SubTransactionId subid,
									 SubTransactionId parent, void *arg);

#endif
