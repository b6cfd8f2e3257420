/*
 * stall.c
 *	  Stops tools that are silent for START.stall_us: no byte on stdout, stderr
 *	  or descriptor 3.
 *
 * A job of a stopped or frozen helper must not look silent, since its tool was
 * mostly stopped too.  So the time of a job is divided into STALL_LOOKS looks
 * at the clock.  A look that is late by more than one interval shows a
 * standstill, and the job gets all of its time again.
 */
#include "helper.h"

#define STALL_LOOKS 8
#define STALL_LATE_US UINT64_C(100000)	/* load on the machine is no
										 * standstill */

static bool
is_watched(const Job *job)
{
	return job->stall > 0 && job->stop == 0 && job->number != NO_JOB;
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Begins the time of a job, when its tool has it. */
void
stall_begin(Job *job, uint64_t now)
{
	job->last_byte = now;
	job->look_at = after_us(now, job->stall / STALL_LOOKS);
}

/* Returns when stall_turn() must be called next. */
uint64_t
stall_next_time(const Job *job)
{
	uint64_t	end = after_us(job->last_byte, job->stall);

	if (!is_watched(job))
		return NEVER;
	return end < job->look_at ? end : job->look_at;
}

void
stall_turn(Helper *h, Job *job, uint64_t now)
{
	uint64_t	look = job->stall / STALL_LOOKS;

	if (!is_watched(job))
		return;
	if (now >= job->look_at)
	{
		if (now - job->look_at > larger(look, STALL_LATE_US))
			job->last_byte = now;
		job->look_at = after_us(now, look);
	}
	if (now < after_us(job->last_byte, job->stall))
		return;
	if (job_holds_notes(h, job))
		job->last_byte = now;
	else
		job_stop(h, job, FRAME_STOP_STALL, job->kill_grace);
}
