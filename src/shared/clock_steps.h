/*
 * clock_steps.h
 *	  Steps of the wall clock, as the dispatchers of a database have seen them.
 *
 * Rows have times of the wall clock.  The steps say what the monotonic clock
 * showed then, so that a step since then makes no interval shorter or longer.
 * They are in shared memory: a new dispatcher knows the steps of the former
 * one, and sees a step between the two.
 */
#ifndef JOBQ_CLOCK_STEPS_H
#define JOBQ_CLOCK_STEPS_H

#include "shared/shmem.h"

/*
 * True if the wall clock was set, forward or back, since the last call.  The
 * dispatcher calls it in each turn.
 */
extern bool clock_was_set(JobqDb *db, TimestampTz now, MonoTime mono);

/*
 * Returns the time of the monotonic clock when the wall clock showed that
 * time, now at the latest.  If it showed the time twice: the later one.
 */
extern MonoTime clock_mono_of(const JobqDb *db, TimestampTz wall);

/* Returns the latest time that the wall clock has shown. */
extern TimestampTz clock_latest(const JobqDb *db);

#endif
