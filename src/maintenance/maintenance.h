/*
 * maintenance.h
 *	  The short-lived process that makes and drops partitions.
 */
#ifndef JOBQ_MAINTENANCE_H
#define JOBQ_MAINTENANCE_H

#include "shared/shmem.h"

/*
 * Starts the process.  Returns false if one runs already, or if there is no
 * worker slot; try again later.  A success increments
 * MaintenanceProcess.done, a failure MaintenanceProcess.failed; both wake the
 * dispatcher.
 */
extern bool maintenance_start(JobqDb *db);

#endif
