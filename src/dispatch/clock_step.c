/*
 * clock_step.c
 *	  Steps of the wall clock.
 *
 * Wall clock and monotonic clock run at one speed, so their difference changes
 * by steps only.  A step of less than a second delays nothing.
 */
#include "jobq.h"

#include <math.h>

#include "utils/timestamp.h"

#include "dispatch/clock_step.h"

#define CLOCK_STEP_US		USECS_PER_SEC

bool
clock_was_set(TimestampTz now, MonoTime mono)
{
	static int64 difference = 0;
	int64		step = now - mono - difference;
	bool		known = difference != 0;

	if (known && step < CLOCK_STEP_US && step > -CLOCK_STEP_US)
		return false;
	difference = now - mono;
	if (known)
		ereport(LOG,
				(errcode(ERRCODE_WARNING),
				 errmsg("jobq: the wall clock was set %s by %.3f s: jobs run when it shows their time",
						step < 0 ? "back" : "forward", fabs(step / 1e6))));
	return known;
}
