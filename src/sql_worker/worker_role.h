/*
 * worker_role.h
 *	  Is this SQL worker still connected as the role that a job type's handlers run as?
 */
#ifndef JOBQ_WORKER_ROLE_H
#define JOBQ_WORKER_ROLE_H

#include "registry/job_types.h"

/* In a transaction.  false: leave, and put its jobs back; a worker that can't connect says why they wait. */
extern bool worker_role_fits(JobType *type);

#endif
