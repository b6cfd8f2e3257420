/*
 * clock.h
 *	  The monotonic clock, for intervals.
 *
 * The wall clock says when a job is due, and fills rows and views.  It may be
 * set back or forth at any moment.  So intervals of a process or in shared
 * memory are measured by CLOCK_MONOTONIC, which all processes share and which
 * lives longer than shared memory.
 */
#ifndef JOBQ_CLOCK_H
#define JOBQ_CLOCK_H

#include <time.h>

#include "datatype/timestamp.h"
#include "utils/timestamp.h"

/* Microseconds; no date.  0 is long ago, DT_NOEND never comes. */
typedef int64 MonoTime;

static inline MonoTime
mono_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return USECS_PER_DAY + (MonoTime) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/*
 * Returns when the wall clock will show that time, unless it is set before; 0:
 * it has been that late already.  The time was stored at `since`: a clock that
 * shows less than that was set back after it.
 */
static inline MonoTime
mono_at_since(TimestampTz wall, TimestampTz since)
{
	TimestampTz now = Max(GetCurrentTimestamp(), since);

	if (wall == DT_NOEND)
		return DT_NOEND;
	return wall > now ? mono_now() + (wall - now) : 0;
}

/* The same, when it is not known when the time was stored. */
static inline MonoTime
mono_at(TimestampTz wall)
{
	return mono_at_since(wall, DT_NOBEGIN);
}

/* True if so many milliseconds have passed between the two. */
static inline bool
mono_exceeds(MonoTime since, MonoTime now, int ms)
{
	return now - since >= (MonoTime) ms * 1000;
}

/*
 * Returns the milliseconds left until then, rounded up, 0 when it has passed.
 */
static inline long
mono_ms_left(MonoTime now, MonoTime until)
{
	return until <= now ? 0 : (long) Min((until - now + 999) / 1000, PG_INT32_MAX);
}

#endif
