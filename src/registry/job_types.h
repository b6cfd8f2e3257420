/*
 * job_types.h
 *	  The registry as each process sees it: a cache of jobq.job_types, dropped
 *	  by relcache invalidation (a statement trigger on the table sends one, so
 *	  every change counts, also a plain UPDATE).
 */
#ifndef JOBQ_JOB_TYPES_H
#define JOBQ_JOB_TYPES_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

typedef enum OutputKind
{
	OUTPUT_JSON,
	OUTPUT_TEXT,
	OUTPUT_NONE
} OutputKind;

/* options.events: what is written to jobq.events */
typedef enum EventsLevel
{
	EVENTS_NONE,				/* only events of handlers, tools and clients */
	EVENTS_FAILURES,			/* and failures, and the actions that they caused */
	EVENTS_ALL					/* every transition */
} EventsLevel;

typedef struct Backoff
{
	bool		exponential;	/* else fixed */
	int64		base_us;
	int64		max_us;
	double		jitter;			/* 0..1: the delay varies by that share, both ways */
} Backoff;

typedef struct JobType
{
	int32		id;				/* hash key */
	char		name[64];
	char		owner[64];
	char		run_as[64];
	bool		workflow;		/* its jobs are runs; neither handler nor command */
	char	   *handler;		/* NULL: no SQL type */
	int			ncommand;
	char	  **command;		/* NULL: no exec type */
	int			max_attempts;
	Backoff		backoff;
	int64		timeout_us;		/* 0: none */
	int			base_priority;
	int			max_concurrent;
	int			cpu_weight;
	int			rate_limit;		/* 0: none */
	int64		rate_window_us;
	int			burst;
	Interval	keep_completed;
	bool		keeps_nothing;	/* keep_completed is 0 */
	bool		keep_dead_forever;
	Interval	keep_dead;
	bool		buries_nothing; /* keep_dead is 0 */
	bool		critical;
	bool		paused;			/* now; paused_until says how long */
	TimestampTz paused_until;	/* DT_NOEND: until resumed */
	TimestampTz resumed_at;		/* last time; DT_NOBEGIN: never */
	TimestampTz paused_at;		/* DT_NOBEGIN: not known */
	bool		dropped;
	Jsonb	   *options;		/* without env */
	Jsonb	   *env;			/* options.env; NULL: none */
	/* from options */
	bool		batch;			/* may share a commit (default true) */
	bool		require_tenant;
	int64		aging_per_us;	/* aging; 0: none */
	int			aging_max;
	bool		fair;			/* fair_by = tenant */
	int			fair_depth;		/* so many elements of its path */
	int			max_crashes;	/* 2 */
	int			breaker_failures;	/* 0: no breaker */
	int64		breaker_pause_us;
	OutputKind	output;
	bool		allow_dash;
	int			max_output;		/* 0: jobq.max_output */
	int64		kill_grace_us;
	bool		refuse_on_disk_emergency;
	int64		max_lease_us;	/* pull */
	int64		stall_us;		/* exec, pull; 0: none */
	int			min_batch_jobs; /* pull; 0: none */
	int64		min_batch_wait_us;
	bool		lease_follows_connection;	/* pull */
	int			keep_completed_count;	/* -1: by age only */
	EventsLevel events;
	char	   *on_complete;	/* job types that follow; NULL: none */
	char	   *on_failure;
	char	   *on_dead;
	bool		has_hooks;		/* any of them */
	bool		alert;			/* a dead letter raises one (default true) */
	/* of owner and run_as: see job_type_owner, job_type_run_as */
	Oid			owner_oid;
	Oid			run_as_oid;
} JobType;

/* True if clients claim the type's jobs: no handler, no command, no steps. */
static inline bool
job_type_is_pull(const JobType *type)
{
	return type->handler == NULL && type->command == NULL && !type->workflow;
}

/* True if the type's level includes events of that level. */
#define EVENTS_WANTED(jobtype, lowest)	((jobtype) != NULL && (jobtype)->events >= (lowest))

/*
 * NULL when there is none (name: not dropped).  Valid until the next call that
 * may accept invalidations.
 */
extern JobType *job_type_by_name(const char *name);
extern JobType *job_type_by_id(int32 id);

/* Returns the ids of all pull types, in their order.  No lock stays behind. */
extern List *job_type_pull_ids(void);

/* True if there is no such type, or no more. */
extern bool job_type_is_dropped(int32 id);
/*
 * The same as all others see it: a type that an open transaction, ours or
 * another, creates or drops has not left.
 */
extern bool job_type_has_left(int32 id);

/* True if jobs of the type are runs of workflows. */
extern bool job_type_is_workflow(int32 id);

/*
 * Returns the role, also when it was renamed; InvalidOid when it is gone.  The
 * names in JobType may be former ones; they are for messages only.
 */
extern Oid	job_type_owner(const JobType *type);
extern Oid	job_type_run_as(const JobType *type);

/*
 * Raises 42501 unless the owner exists and may (still) become the role that
 * the type's jobs run as.
 */
extern void job_type_check_owner(const JobType *type, Oid run_as);
/* True if a role has got another name since it was stored. */
extern bool job_type_names_stale(const JobType *type);
/* Returns a counter that rises when the cache was dropped. */
extern uint64 job_types_generation(void);

/*
 * Drops the cache now, in a process that learns of a commit (publish_jobs.h)
 * before its invalidation messages.
 */
extern void job_types_forget(void);

/*
 * Returns a hash of all that decides whether the type's tool can be started
 * here; 0: it has none.
 */
extern uint32 job_type_tool_hash(const JobType *type);

/* The checked columns of jobq.job_types, jobq.job_type_env: see table_shape.h. */
extern const struct Shape job_types_shape;
extern const struct Shape job_type_env_shape;

#endif
