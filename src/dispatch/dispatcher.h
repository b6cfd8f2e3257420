/*
 * dispatcher.h
 *	  What the dispatcher's files share: job types as it sees them, roles, executors.
 *
 *	 dispatcher.c	the process and its loop
 *	 inbox.c		publications, commands, jobs that come back
 *	 unknown_prepared.c		prepared transactions of which nothing was published
 *	 maintenance_schedule.c		when maintenance and chores are started
 *	 lanes.c ready_queue.c	what waits; the timers; which ready lane is first
 *	 wait_queues.c		who waits for a worker or a limit, and comes back first
 *	 queue_scan.c lane_reader.c	reading the queue's lanes; handing out in order
 *	 type_state.c role_state.c	job types and roles
 *	 type_breaker.c	breakers of types
 *	 admission.c	may this job start now
 *	 job_limit.c weight.c	how many run at once, of a type, of several, of what weight
 *	 concurrency_keys.c concurrency_key_scan.c	and of one concurrency key
 *	 tenant_limit.c	and of one tenant
 *	 pressure_rules.c		signals and what they do to types; builtin_signals.c signal_condition_worker.c: who sets them
 *	 executor_pool.c	handing over
 *	 executor_results.c		hearing how it ended
 *	 worker_pool.c		starting SQL and exec workers
 *
 * All of it is the memory of one process.
 */
#ifndef JOBQ_DISPATCHER_H
#define JOBQ_DISPATCHER_H

#include "lanes/lanes.h"
#include "lanes/queue_scan.h"
#include "lanes/ready_queue.h"
#include "limits/job_limit.h"

/* Who runs a job: the workers of one role, or the exec worker (EXEC_ROLE). */
#define EXEC_ROLE InvalidOid

typedef struct RoleState
{
	Oid			roleid;			/* hash key; EXEC_ROLE: exec types */
	int			nworkers;		/* slots of ours, attached or on their way */
	dlist_node	all;			/* in all_roles */
	Door		door;			/* where groups of lanes wait for a worker of this role */
	int			cancels;		/* jobs to be settled as cancelled that wait for one */
	MonoTime	waiting_since;	/* 0: no job waits */
	MonoTime	next_start;		/* not before then, after a failure to connect */
	int			failures;
	char		name[NAMEDATALEN];	/* known once it has failed */
} RoleState;

/* The breaker of a type (breaker.h), as last read from shared memory. */
typedef struct TypeBreaker
{
	int			limit;			/* failures; 0: the type has none */
	int64		pause_us;
	TimestampTz resumed_at;
	BreakerState state;
	MonoTime	until;			/* OPEN: half-open from then on */
	MonoTime	look_at;		/* groups that wait for the type look again then; 0: no timer */
	pg_uuid_t	probe;
} TypeBreaker;

typedef struct TypeState
{
	int32		id;				/* hash key */
	bool		known;			/* is in the registry */
	bool		gone;			/* isn't, or was dropped */
	bool		exec;
	bool		paused;
	TimestampTz paused_until;	/* DT_NOEND: until resumed */
	MonoTime	pause_ends;		/* the same, whatever is done to the wall clock */
	bool		refused;		/* jobq.job_type_filter, or its role is missing */
	char		trouble[512];	/* why none of its jobs can start, until the registry is read again; '': they can */
	bool		blocked;		/* an active signal says so (pressure_rules.c) */
	bool		may_batch;
	int			weight;			/* cpu_weight */
	int			max_skip;		/* options.max_skip */
	RoleState  *role;
	dlist_head	parked;			/* groups of lanes that wait for the type itself: it is paused, say */
	JobLimit	own;			/* what the type itself allows */
	int			nlimits;
	JobLimit   *limits[JOBQ_TYPE_LIMITS];	/* those it shares with others */
	bool		rated;			/* one of them has a rate */
	JobLimit   *closed;			/* had no room when one of its jobs was to be handed out */
	int			per_key;		/* options.concurrency_per_key */
	bool		keeps_order;	/* options.key_order is fifo */

	/* the order of its jobs (ready_queue.c) */
	int			pressure;		/* added to their priority */
	int64		aging_per;		/* us; 0: they don't age */
	int			aging_max;
	bool		fair;			/* its lanes are served in turn */

	/* batching: a type starts alone, is batched while its runs stay short and clean */
	int			clean_runs;
	double		avg_us;
	MonoTime	alone_until;
	MonoTime	held_until;		/* its tool can't be started here: not before then */
	int			start_failures; /* in a row; held_until follows from them */
	bool		probing;		/* held while one job tries whether the tool starts again */
	uint32		tool_hash;		/* of the definition that they are of */
	TypeBreaker breaker;
} TypeState;

/* ---- type_state.c ---- */
extern HTAB *all_types;			/* of those seen so far */
extern bool types_order_changed;	/* ready lanes must be ranked anew */
extern bool types_keep_order;	/* some type has had key_order = fifo */
extern void types_init(MemoryContext context);
extern TypeState *type_state(int32 id);
/* The same outside a transaction: NULL when nothing of the type has been seen. */
extern TypeState *type_remembered(int32 id);
/* Who will run the jobs of a SQL type; NULL: nobody now, as far as we remember. */
extern RoleState *role_of_type(int32 id);
/* Reads again what the registry says, what signals say; true: the latter is something else than before. */
extern void type_load(TypeState *t);
extern bool type_load_pressure(TypeState *t);
/* Since last asked: has any type's key_order changed, so that those who wait for their key must be read again? */
extern bool types_key_order_changed(void);
/* Some type can't start jobs because the server's memory for rates is used up: try again in a while. */
extern bool types_lack_windows(void);
/* All that is known has been loaded: frees windows that nothing uses, and loads those again that lack one. */
extern void types_retry_windows(void);
/* Has so much piled up that lanes should be forgotten?  Then types that were dropped are, too. */
extern bool types_have_leftovers(void);
extern void types_forget(void);
extern bool type_is_short(TypeState *t);
/* Its tool could not be started; one of its jobs is on the way to try again; that one has started. */
extern void type_hold(TypeState *t, MonoTime now);
extern void type_probe(TypeState *t, MonoTime now);
extern void type_release(TypeState *t, MonoTime now);
extern void type_note_run(TypeState *t, Verdict verdict, int32 run_us, MonoTime now);

/* ---- type_breaker.c ---- */
/* Reads what the registry says. */
struct JobType;
extern void type_breaker_load(TypeState *t, const struct JobType *jt);
/* True if the breaker lets no job start. */
extern bool type_breaker_blocks(const TypeState *t);
/* The job is about to be handed out: while the breaker is half-open, it is the probe. */
extern void type_breaker_start(TypeState *t, const pg_uuid_t *id);
/* The job has left its executor; `ended`: its attempt is over, and settled if that was due. */
extern void type_breaker_back(TypeState *t, const pg_uuid_t *id, bool ended);
extern void type_breaker_timer(TypeState *t, MonoTime now);

/* ---- role_state.c ---- */
extern dlist_head all_roles;
extern void roles_init(MemoryContext context);
extern RoleState *role_state(Oid roleid);
/* Since last asked: has any role changed, so that the registry must be read again? */
extern bool roles_changed(void);
/* Why no worker of a role comes, for health(); writes nothing when all do. */
extern void roles_trouble(char *buf, int size);

/* ---- admission.c ---- */
extern void admission_init(MemoryContext context, JobqDb *db);
/* Lanes are about to be forgotten: so is what they wait for. */
extern void admission_forget_lanes(void);
/* Reads the registry again for all types seen so far; unparks what may run now. */
extern void admission_reload(TimestampTz now);
/* Signals or rules have changed: what they say counts from now on. */
extern void admission_press(TimestampTz now);
/* The wall clock was set: whatever waits for a rate is tried again. */
extern void admission_clock_was_set(TimestampTz now);
/* The smallest time at which something changes by itself (pause ends); DT_NOEND: never. */
extern MonoTime admission_next_timer(void);
extern void admission_timers(TimestampTz now);
/* A job of the type has left its executor: there may be room under its limits. */
extern void type_open(TypeState *t);
/* May one more job of the type start? */
extern bool type_may_start(TypeState *t, TimestampTz now);
/* Can no job of the type be handed out before something else happens that wakes the dispatcher? */
extern bool type_is_quiet(TypeState *t);
/* Why jobs of known types do not run, for health(); '' when all may. */
extern void admission_trouble(char *buf, int size);

/* ---- job_limit.c ---- */
/* True if there is a shared limit of that name, with a rate. */
extern bool limit_has_rate(const char *name);
/* Loads those again that lack a window for their rate. */
extern void limits_retry_windows(void);
/* The limit whose window is full; NULL: one of a type that is `rated` may start. */
extern JobLimit *type_closed_by_rate(TypeState *t, TimestampTz now);
/* Hands out, has started then, came back: for its rates. */
extern void type_take(TypeState *t);
extern void type_note_start(TypeState *t, TimestampTz started);
extern void type_refund(TypeState *t);
/* One that was taken before the rates were read again. */
extern void type_retake(TypeState *t);

/* ---- executor_pool.c ---- */
typedef enum HandOut
{
	HANDED_OUT,
	NO_CAPACITY,				/* nobody of this role can take it now */
	LIMIT_FULL,					/* a limit of the type has no room: t->closed */
	TOO_HEAVY,					/* jobq.max_weight has no room */
	TENANT_FULL					/* its tenant runs as many as it may */
} HandOut;

extern void executors_init(MemoryContext context, JobqDb *db);
/* Finds what is in flight in the slots that a former dispatcher handed out. */
extern void executors_recover(void);
extern HandOut hand_out(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now);
/* A job of this type has been committed to an idle queue: who will get it may wake up. */
extern void executors_alert(int32 type_id, int linger_us);
/* Wakes everybody who was handed something since. */
extern void executors_wake(void);
/* Hears verdicts, buries dead executors; true: something changed. */
extern bool executors_collect(MonoTime now);
/* worker_pool.c: starts workers that are waited for; makes room between roles. */
extern void executors_balance(MonoTime now);
extern int	executors_running(void);
/* The smallest concurrency_per_key of those that run of a key. */
extern int	executors_per_key(uint64 key);
/* Tells the rates of the types what has started since. */
extern void executors_note_starts(void);
/* The registry has changed: counts anew what runs under each limit. */
extern void executors_recount(void);
/* The limits of tenants have changed: counts anew what runs under each. */
struct QueueScan;
extern void executors_recount_tenants(struct QueueScan *scan);
extern MonoTime executors_next_timer(void);
/* Hand-out has stopped: takes back what nobody has begun. */
extern void executors_take_back(bool cancels);
extern void executors_dismiss(void);
extern bool executors_cancel(const pg_uuid_t *id, CancelKind kind, const char *reason);
extern bool executors_any(void);

/* ---- inbox.c, dispatcher.c ---- */
/* A job that can't go back to its lane at once. */
extern void hold_job(const JobRef *ref, MonoTime until, bool for_partition);
extern void request_partition(TimestampTz need);
extern void return_job(const JobRef *ref);
extern void probe_again(const LaneKeys *keys);
extern void cancel_after_all(const pg_uuid_t *id, const char *reason);
extern void set_trouble(const char *fmt,...) pg_attribute_printf(1, 2);

#endif
