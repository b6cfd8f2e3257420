/*
 * backoff.h
 *	  The time of the next attempt.
 */
#ifndef JOBQ_BACKOFF_H
#define JOBQ_BACKOFF_H

#include "registry/job_types.h"

/*
 * Returns the backoff of a job: its own keys over its type's; own NULL: the
 * type's alone.
 */
extern void backoff_merge(const Backoff *of_type, Jsonb *own, Backoff *out);

/*
 * True if the shortest delay before some attempt is shorter than the other's.
 */
extern bool backoff_is_faster(const Backoff *b, const Backoff *than);

/*
 * Returns the microseconds until the next attempt after `attempts` of them
 * have failed; jittered.
 */
extern int64 backoff_delay(const Backoff *b, int attempts);

#endif
