/*
 * maintenance.h
 *	  The short-lived process that makes and drops partitions.
 */
#ifndef JOBQ_MAINTENANCE_H
#define JOBQ_MAINTENANCE_H

#include "shared/shmem.h"

/*
 * Starts it, also to compact the queue; need is the expires_at of a row that found no partition, or 0.  false: one runs already,
 * or there is no worker slot; ask again later.  MaintenanceProcess.done rises when one has succeeded and
 * MaintenanceProcess.failed when one has not; both wake the dispatcher.
 */
extern bool maintenance_start(JobqDb *db, TimestampTz need, bool compacts);

/*
 * Starts a process that only makes partitions (partition.h: partitions_ensure) and waits until it has ended; whether
 * it could is for the caller to see.  false: there is no worker slot for it.
 */
extern bool maintenance_make_partitions(TimestampTz need);

/*
 * In that process: a transaction of its own.  false, and nothing done, when `what` says so or a lock could not be had
 * in time.
 */
extern bool maintenance_transaction(bool (*what) (void *), void *arg);

#endif
