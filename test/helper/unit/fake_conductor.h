/*
 * fake_conductor.h
 *	  The conductor around decisions of a schedule's turn: a schedule that ticks
 *	  at multiples of an interval; jobs, skips and cancels are a trace.
 */
#ifndef UNIT_FAKE_CONDUCTOR_H
#define UNIT_FAKE_CONDUCTOR_H

#include "server.h"

#include "schedule/schedule_turn_internal.h"

#define MAX_TRACE	1000

typedef struct Traced
{
	const char *what;			/* "job", or the reason of a skip */
	TimestampTz tick;
	int64		n;				/* ticks that were skipped */
} Traced;

extern Traced trace[MAX_TRACE];
extern int	ntrace;
extern int64 interval;
extern bool is_every;			/* its ticks need not be counted one by one */
extern bool is_after;
extern bool last_job_lives;
extern bool last_job_is_own;
extern bool has_unique_job;		/* another job has the unique key */

#endif
