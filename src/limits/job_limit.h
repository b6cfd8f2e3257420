/*
 * job_limit.h
 *	  A limit: how many jobs run at once, how many start in a window
 *	  (rate_window.h).  Each job type has one of its own; those of jobq.limits
 *	  are shared by every type that names them in options.limits.  Runs of
 *	  workflows share them among themselves, jobs among themselves.
 *
 * Executors are counted: a SQL worker once, however many jobs it was handed,
 * and each tool.
 */
#ifndef JOBQ_JOB_LIMIT_H
#define JOBQ_JOB_LIMIT_H

#include "lanes/wait_queues.h"
#include "limits/rate_window.h"

#define PULL_EXECUTOR	JOBQ_MAX_SLOTS	/* number of the clients, which count as one with tools */

typedef struct JobLimit
{
	int			max_concurrent; /* 0: no limit */
	int			running;
	uint16		cells[JOBQ_MAX_SLOTS + 1];	/* the share of each executor */
	WaitQueue	wait_queue;		/* groups that the limit blocks */
	Rate		rate;
} JobLimit;

/* Sets the counts to zero: running jobs are about to be counted again. */
extern void limit_restart(JobLimit *limit);

/* Returns when its wait queue opens by time; DT_NOEND: never. */
extern TimestampTz limit_next_timer(JobLimit *limit);
extern void limit_timer(JobLimit *limit, TimestampTz now);

static inline void
limit_init(JobLimit *limit)
{
	memset(limit, 0, sizeof(JobLimit));
	wait_queue_init(&limit->wait_queue);
}

static inline void
limit_up(JobLimit *limit, int executor, bool exec)
{
	if (limit->cells[executor]++ == 0 || exec)
		limit->running++;
}

static inline void
limit_down(JobLimit *limit, int executor, bool exec)
{
	if (--limit->cells[executor] == 0 || exec)
		limit->running--;
}

static inline bool
limit_has_room(const JobLimit *limit, int executor, bool exec)
{
	return limit->max_concurrent == 0 || limit->running < limit->max_concurrent ||
		(!exec && limit->cells[executor] > 0);
}

/* ---- shared limits ---- */
extern void limits_init(MemoryContext context);
/* Returns the name of a shared limit. */
extern const char *shared_limit_name(const JobLimit *limit);
/* True if there is a shared limit of that name, with a rate. */
extern bool limit_has_rate(const char *name);
/* Loads limits again that lack a window for their rate. */
extern void limits_retry_windows(void);

/*
 * Reads jobq.limits again, with its lock held; running jobs must be counted
 * again afterwards.
 */
extern void limits_load(void);
/* Calls visit for each limit of jobq.limits, that of jobs and that of runs. */
extern void limits_visit(void (*visit) (const char *name, JobLimit *limit, bool of_runs));
/* Sets all counts to zero: running jobs are about to be counted again. */
extern void limits_restart(void);

/*
 * Returns the number of limits that options.limits names, and fills them in;
 * raises an error when the row of one is invalid.
 */
extern int	limits_of_type(Jsonb *options, bool of_runs, JobLimit **found);

/*
 * Returns when the next limit lets one more job start; DT_NOEND: no group
 * waits for one.
 */
extern TimestampTz limits_next_timer(void);
extern void limits_timers(TimestampTz now);
extern void limits_clock_was_set(TimestampTz now);
/* Empties the wait queues of all limits. */
extern void limits_init_wait_queues(void);

/* The checked columns of jobq.limits: see table_shape.h. */
extern const struct Shape limits_shape;

#endif
