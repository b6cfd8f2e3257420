/*
 * spawn_limit.h
 *	  Bounds the jobs that handlers of a type enqueue: options.max_children_per_minute.
 */
#ifndef JOBQ_SPAWN_LIMIT_H
#define JOBQ_SPAWN_LIMIT_H

#include "registry/job_types.h"

/* Admits one more job that a handler of the type enqueues; 54000 when it is one too many. */
extern void children_admit(const JobType *parent);

#endif
