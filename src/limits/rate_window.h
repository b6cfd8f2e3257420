/*
 * rate_window.h
 *	  How many jobs start in a window of time: rate_limit per rate_window, of a type or a shared limit.
 *
 * A start is the moment that the row tells (started_at).  Between hand-out and that moment a job may start at
 * any time, so it counts as if it did now (`pending`).  Then no window of that length, wherever it
 * begins, has more than rate_limit starts.
 */
#ifndef JOBQ_RATE_WINDOW_H
#define JOBQ_RATE_WINDOW_H

#include "shared/shmem.h"

#define JOBQ_MAX_RATE	10000	/* starts that are remembered; larger limits take options.burst */

typedef struct Rate
{
	int			limit;			/* 0: none */
	int64		window_us;
	int			burst;			/* > 0: a token bucket of that size, filled with limit per window */
	struct RateWindow *window;	/* in shared memory: outlives the dispatcher */
	const char *no_window;		/* why there is none, so that nothing may start; NULL: there is one */
	int			missed;			/* have started nevertheless, handed out before the limit was set */
	TimestampTz last_missed;
	int			pending;		/* handed out, start not known */
	TimestampTz next_free;		/* nothing may start before then */
} Rate;

extern void rate_init(JobqDb *db);
/* What the limit of a type, or the shared one of that name (type_id 0), says now. */
extern void rate_load(Rate *rate, int32 type_id, const char *name, int limit, int64 window_us, int burst);
/* Frees windows of limits that are not there any more. */
typedef bool (*RateIsUsed) (int32 type_id, const char *name);
extern void rates_drop_unused(RateIsUsed is_used);
/* True if starts that are not noted yet (`pending`) may decide whether the rate is closed: note them first. */
extern bool rate_needs_starts(Rate *rate, TimestampTz now);
/* True if none may start now; next_free is the time to ask again. */
extern bool rate_is_closed(Rate *rate, TimestampTz now);
/* One is handed out. */
extern void rate_take(Rate *rate);
/* It has started then. */
extern void rate_note(Rate *rate, TimestampTz started);
/* It came back without having started. */
extern void rate_refund(Rate *rate);
/* The wall clock was set: forgets what it has not shown yet. */
extern void rate_clock_was_set(Rate *rate, TimestampTz now);

#endif
