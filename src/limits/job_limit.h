/*
 * job_limit.h
 *	  A limit: how many jobs run at once, how many start in a window (rate_window.h).  Each job type has one of its own; those of jobq.limits are shared
 *	  by every type that names them in options.limits.
 *
 * What counts is executors: a SQL worker once, whatever it was handed, and each tool.
 */
#ifndef JOBQ_JOB_LIMIT_H
#define JOBQ_JOB_LIMIT_H

#include "lanes/wait_queues.h"
#include "limits/rate_window.h"

typedef struct JobLimit
{
	int			max_concurrent; /* 0: no limit */
	int			running;
	uint16		cells[JOBQ_MAX_SLOTS];	/* that each executor has of it */
	Door		door;			/* where groups of lanes wait for it */
	Rate		rate;
} JobLimit;

extern void limit_init(JobLimit *limit);
/* Before what runs is counted anew. */
extern void limit_restart(JobLimit *limit);
extern void limit_up(JobLimit *limit, int executor, bool exec);
extern void limit_down(JobLimit *limit, int executor, bool exec);

/* When its door opens because of the time; DT_NOEND: it does not. */
extern TimestampTz limit_next_timer(JobLimit *limit);
extern void limit_timer(JobLimit *limit, TimestampTz now);

static inline bool
limit_has_room(const JobLimit *limit, int executor, bool exec)
{
	return limit->max_concurrent == 0 || limit->running < limit->max_concurrent ||
		(!exec && limit->cells[executor] > 0);
}

/* ---- those that types share ---- */
extern void limits_init(MemoryContext context);
/* True if there is a shared limit of that name, with a rate. */
extern bool limit_has_rate(const char *name);
/* Loads limits again that lack a window for their rate. */
extern void limits_retry_windows(void);
/* Reads jobq.limits again, whose lock is held; what runs is to be counted anew. */
extern void limits_load(void);
/* Before what runs is counted anew. */
extern void limits_restart(void);
/* Those that options.limits names; how many. */
/* ERROR when the row of one makes no sense. */
extern int	limits_of_type(Jsonb *options, JobLimit **found);
/* When the next one lets one more job start; DT_NOEND: none is waited for. */
extern TimestampTz limits_next_timer(void);
extern void limits_timers(TimestampTz now);
extern void limits_clock_was_set(TimestampTz now);
/* Nobody waits for any of them. */
extern void limits_init_doors(void);

/* The checked columns of jobq.limits: see row_map.h. */
extern const struct Shape limits_shape;

#endif
