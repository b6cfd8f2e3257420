/*
 * maintenance.h
 *	  The short-lived process that makes and drops partitions.
 */
#ifndef JOBQ_MAINTENANCE_H
#define JOBQ_MAINTENANCE_H

#include "shared/shmem.h"

/*
 * Starts the process.  need is the expires_at of a row that found no
 * partition, or 0.  Returns false if one runs already, or if there is no
 * worker slot; try again later.  A success
 * increments MaintenanceProcess.done, a failure MaintenanceProcess.failed;
 * both wake the dispatcher.
 */
extern bool maintenance_start(JobqDb *db, TimestampTz need);

/*
 * Starts a process that only makes partitions (partition.h: partitions_ensure)
 * and waits for its end; the caller checks whether the partitions exist.
 * Returns false if there is no worker slot.
 */
extern bool maintenance_make_partitions(TimestampTz need);

#endif
