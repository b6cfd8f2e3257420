/*
 * backoff.h
 *	  When the next attempt is due.
 */
#ifndef JOBQ_BACKOFF_H
#define JOBQ_BACKOFF_H

#include "job_types.h"
#include "queue.h"

/* The backoff of a job: its own keys over its type's. */
extern void job_backoff(Job *job, JobType *type, Backoff *out);
/* Microseconds until the next attempt after `attempts` of them have failed; jittered. */
extern int64 backoff_delay(const Backoff *b, int attempts);

#endif
