/*
 * rate_window.h
 *	  How many jobs start in a window of time: rate_limit per rate_window, of a
 *	  type or a shared limit.
 *
 * A start is the moment that the row holds (started_at).  Between hand-out and
 * that moment a job may start at any time, so it counts as if it started now
 * (`pending`).  Then no window of that length, wherever it begins, has more
 * than rate_limit starts.
 */
#ifndef JOBQ_RATE_WINDOW_H
#define JOBQ_RATE_WINDOW_H

#include "shared/shmem.h"

#define JOBQ_MAX_RATE	10000	/* starts that are kept; larger limits use options.burst */

typedef struct Rate
{
	int			limit;			/* 0: none */
	int64		window_us;
	int			burst;			/* > 0: a token bucket of that size, filled with limit per window */
	struct RateWindow *window;	/* in shared memory: outlives the dispatcher */
	const char *no_window;		/* why there is none, so that nothing may start; NULL: there is one */
	int			missed;			/* starts although closed: handed out before the limit was set */
	TimestampTz last_missed;
	int			pending;		/* handed out, start not known */
	TimestampTz next_free;		/* nothing may start before then */
} Rate;

extern void rate_init(JobqDb *db);

/* In place of a type's id: shared limits, of jobs and of runs of workflows. */
#define RATE_OF_JOBS	0
#define RATE_OF_RUNS	(-1)

/*
 * Loads the settings of the type's limit, or of the shared one of that name.
 */
extern void rate_load(Rate *rate, int32 type_id, const char *name, int limit, int64 window_us, int burst);
/* Frees windows of limits that exist no more. */
typedef bool (*RateIsUsed) (int32 type_id, const char *name);
extern void rates_drop_unused(RateIsUsed is_used);

/*
 * True if starts that are not noted yet (`pending`) may decide whether the
 * rate is closed: note them first.
 */
extern bool rate_needs_starts(Rate *rate, TimestampTz now);
/* True if no job may start now; next_free is the time to check again. */
extern bool rate_is_closed(Rate *rate, TimestampTz now);
/* Returns how many starts count now: of `limit`, or of `burst` if it is set. */
extern int	rate_used(Rate *rate, TimestampTz now);
/* Counts a job that is handed out. */
extern void rate_take(Rate *rate);
/* Notes its start. */
extern void rate_note(Rate *rate, TimestampTz started);
/* Takes back a job that returned without having started. */
extern void rate_refund(Rate *rate);
/* Forgets starts that are in the future now: the wall clock was set. */
extern void rate_clock_was_set(Rate *rate, TimestampTz now);

#endif
