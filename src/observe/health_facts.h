/*
 * health_facts.h
 *	  Facts about jobq's health, read from its tables and the server's views.
 */
#ifndef JOBQ_HEALTH_FACTS_H
#define JOBQ_HEALTH_FACTS_H

#include "shared/shmem.h"

typedef struct HealthFacts
{
	int64		types;
	int64		exec_types;
	int64		paused_types;
	int64		dead_letters;
	int64		recent_dead_letters;	/* of jobq.health_dead_age, up to RECENT_DEAD_LIMIT or the setting */
	TimestampTz dead_since;		/* the first of these */
	bool		waiting;		/* a job that may run has not begun */
	char	   *oldest_id;
	double		oldest_s;
	char	   *paused_names;	/* of paused types, a JSON array; NULL: none, or not for this caller */
	char	   *paused_waiting; /* those for which a due job waits, quoted; NULL: none */
	TimestampTz paused_since;	/* the first of these; 0: unknown */
	char	   *unstartable;	/* types whose tool cannot be started here, with the reasons; NULL: none */
	int			nunstartable;
	char	   *unclaimed;		/* pull types with due jobs and no claim for a minute, quoted; NULL: none */
	char	   *holding;		/* JSON array of dead letters that hold jobs for over an hour, or NULL */
	char	   *blocked_keys;	/* JSON array of keys that jobs wait for longer than an hour; NULL: none */
	int64		background_workers;
	double		notify_usage;
	int64		queue_bytes;	/* jobq.queue with TOAST and indexes */
	int64		dead_rows;		/* of it, by the statistics */
	int64		live_rows;
	char	   *signals;		/* active ones, a JSON array; NULL: there are none at all */
	char	   *signal_problem; /* NULL: every condition has an answer */
	char	   *holder;			/* NULL: nothing holds the horizon back */
	char	   *holder_lever;	/* what it keeps and how it ends, for a slot or a standby; else NULL */
	bool		holder_since;	/* known for how long */
	double		holder_s;
	int64		holder_xids;
	bool		sees_all;		/* the caller may read every job; else the facts are of its own jobs */
	int64		stuck_drops;	/* ranges that stay: their job of jobq.before_drop_type has failed */
	char	   *drop_problem;	/* why one could not be enqueued; NULL: none */
	int64		default_rows;	/* of the default partitions, up to 10,000 of each */
	char	   *unmade;			/* tables whose rows of now have no other partition; NULL: none */
	bool		too_large;		/* ... because the default one is too large for another beside it */
	int64		active_schedules;
	int64		paused_schedules;	/* by jobq, not by a call */
	double		schedules_late_s;	/* since the earliest tick that is due; 0: none is */
	char	   *strays;			/* roles with privileges that jobq did not grant; NULL: none */
} HealthFacts;

/*
 * Reads the facts; strings are palloc'd in the current context.  Returns
 * false, with nothing read, if a lock is in the way.
 */
extern bool health_facts(HealthFacts *f);

#endif
