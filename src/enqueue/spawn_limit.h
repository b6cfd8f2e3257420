/*
 * spawn_limit.h
 *	  How many jobs the handlers of a type have enqueued lately: options.max_children_per_minute.
 */
#ifndef JOBQ_SPAWN_LIMIT_H
#define JOBQ_SPAWN_LIMIT_H

#include "registry/job_types.h"

/* A handler of the type enqueues one more job.  ERROR 54000 when it is one too many. */
extern void children_admit(const JobType *parent);

#endif
