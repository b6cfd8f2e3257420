/*
 * clock_steps.c
 *	  Steps of the wall clock: see clock_steps.h.
 *
 * Wall clock and monotonic clock run at one speed, so their difference changes
 * by steps only.  A step of less than a second delays nothing.  A step was
 * between two calls of clock_was_set, so the spans of the difference before
 * and of the one after it overlap.
 */
#include "jobq.h"

#include <math.h>

#include "utils/timestamp.h"

#include "shared/clock_steps.h"

#define CLOCK_STEP_US		USECS_PER_SEC

static void
add_span(ClockSteps *steps, int64 difference, MonoTime from)
{
	if (steps->nspans == JOBQ_CLOCK_SPANS)
	{
		steps->nspans--;
		memmove(&steps->spans[0], &steps->spans[1], sizeof(ClockSpan) * steps->nspans);
		steps->spans[0].from = 0;
	}
	steps->spans[steps->nspans++] = (ClockSpan) {difference, from, DT_NOEND};
}

bool
clock_was_set(JobqDb *db, TimestampTz now, MonoTime mono)
{
	ClockSteps *steps = &db->clock_steps;
	ClockSpan  *last = steps->nspans == 0 ? NULL : &steps->spans[steps->nspans - 1];
	int64		step = last == NULL ? 0 : now - mono - last->difference;
	MonoTime	seen = steps->seen;

	steps->seen = mono;
	if (last == NULL)
		add_span(steps, now - mono, 0);
	if (step < CLOCK_STEP_US && step > -CLOCK_STEP_US)
		return false;
	last->until = mono;
	add_span(steps, now - mono, seen);
	ereport(LOG,
			(errcode(ERRCODE_WARNING),
			 errmsg("jobq: the wall clock was set %s by %.3f s: jobs run when it shows their time",
					step < 0 ? "back" : "forward", fabs(step / 1e6))));
	return true;
}

TimestampTz
clock_latest(const JobqDb *db)
{
	MonoTime	now = mono_now();
	TimestampTz latest = GetCurrentTimestamp();

	for (int i = 0; i < db->clock_steps.nspans; i++)
	{
		const ClockSpan *span = &db->clock_steps.spans[i];

		latest = Max(latest, Min(span->until, now) + span->difference);
	}
	return latest;
}

MonoTime
clock_mono_of(const JobqDb *db, TimestampTz wall)
{
	MonoTime	now = mono_now();
	MonoTime	latest = 0;
	bool		found = false;

	for (int i = 0; i < db->clock_steps.nspans; i++)
	{
		const ClockSpan *span = &db->clock_steps.spans[i];
		MonoTime	at = wall - span->difference;

		if (at < span->from - CLOCK_STEP_US || at > Min(span->until, now) + CLOCK_STEP_US)
			continue;			/* the clock did not show it then */
		latest = found ? Max(latest, at) : at;
		found = true;
	}
	return found ? Min(latest, now) : now;
}
