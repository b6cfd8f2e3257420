/*
 * maintenance.h
 *	  The short-lived process for work that the dispatcher must not wait for.
 */
#ifndef JOBQ_MAINTENANCE_H
#define JOBQ_MAINTENANCE_H

#include "shared/shmem.h"

/*
 * Starts the process; false if one runs, which takes what is asked meanwhile,
 * or if none can be started now.
 */
extern bool maintenance_start(JobqDb *db);

/* Returns for how many seconds the process has been at one task; 0: none runs. */
extern int64 maintenance_task_seconds(JobqDb *db);

/* In the process: true if a long task is to let others go first, or to end. */
extern bool maintenance_is_awaited(JobqDb *db);

#endif
