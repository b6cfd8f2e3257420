/*
 * schedule_ticks.h
 *	  The ticks of a row of jobq.schedules: its expression in its time zone, from
 *	  starts_at to ends_at.
 */
#ifndef JOBQ_SCHEDULE_TICKS_H
#define JOBQ_SCHEDULE_TICKS_H

#include "schedule/schedule_row.h"

/* Parses expression and zone; 22023, 54000. */
extern void schedule_parse(Schedule *s);
/*
 * Returns the reason why a stored expression or zone cannot be parsed any
 * more; NULL: it can.
 */
extern const char *schedule_trouble(Schedule *s);
/* True for "after 90s": the interval since the end of the last job. */
extern bool schedule_is_after(Schedule *s);
extern int64 schedule_interval_us(Schedule *s);
/*
 * Returns the first tick after a time, from starts_at to ends_at; DT_NOEND:
 * none.  Not for "after".
 */
extern TimestampTz schedule_next(Schedule *s, TimestampTz after);
/* Returns the last tick after one time and up to another; DT_NOEND: none. */
extern TimestampTz schedule_last(Schedule *s, TimestampTz after, TimestampTz until);
/* Returns the number of such ticks, at most max. */
extern int64 schedule_count(Schedule *s, TimestampTz after, TimestampTz until, int64 max);
/* Returns the first tick after the ones that are decided; DT_NOEND: none. */
extern TimestampTz schedule_first_tick(Schedule *s);
/* Returns the job's delay after a tick: always the same. */
extern int64 schedule_jitter_us(Schedule *s, TimestampTz tick);
/*
 * True if it cannot go on before the last job ends: "after" without a next
 * tick, a tick that waits.
 */
extern bool schedule_waits(Schedule *s);
/* True unless it has had max_runs jobs. */
extern bool schedule_may_run(Schedule *s);
/*
 * True if the ends of its jobs matter: for "after", overlap = queue, a tick
 * that waits, pause_after_failures.
 */
extern bool schedule_hears(Schedule *s);

#endif
