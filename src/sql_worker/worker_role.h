/*
 * worker_role.h
 *	  True while this SQL worker is connected as the role that a job type's handlers run as.
 */
#ifndef JOBQ_WORKER_ROLE_H
#define JOBQ_WORKER_ROLE_H

#include "registry/job_types.h"

/*
 * Call it in a transaction.  False: the worker ends and its jobs are handed
 * out again; a worker that may not connect reports why they wait.
 */
extern bool worker_role_fits(JobType *type);

#endif
