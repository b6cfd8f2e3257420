/*
 * type_state.h
 *	  Job types as the dispatcher has read them.
 */
#ifndef JOBQ_TYPE_STATE_H
#define JOBQ_TYPE_STATE_H

#include "limits/job_limit.h"
#include "limits/min_batch.h"
#include "limits/role_state.h"
#include "limits/type_breaker.h"

/* Bits of TypeState.notify. */
#define NOTIFY_WAITS	1		/* a job waits for a claim; the next claim takes the bit */
#define NOTIFY_PASSED	2		/* the same, of a tenant that no waiting claim may work */
#define NOTIFY_CANCEL	4		/* a cancel waits for a heartbeat */
#define NOTIFY_WAITED	8		/* NOTIFY_WAITS of a former turn: hand-out is to set it again */

typedef struct TypeState
{
	int32		id;				/* hash key */
	bool		known;			/* is in the registry */
	bool		gone;			/* is not in the registry, or was dropped */
	bool		exec;
	bool		pull;			/* or workflow: its jobs have leases */
	bool		workflow;		/* its jobs are runs, which the conductor starts */
	bool		paused;
	TimestampTz paused_until;	/* DT_NOEND: until resumed */
	MonoTime	pause_ends;		/* the same, unaffected by steps of the wall clock */
	bool		filtered;		/* by jobq.job_type_filter */
	bool		no_role;		/* its role is missing */
	char		trouble[512];	/* why no job can start until the registry is read again; '': they can */
	bool		blocked;		/* by an active signal (pressure_rules.c) */
	bool		may_batch;
	int			weight;			/* cpu_weight */
	int			max_skip;		/* options.max_skip */
	RoleState  *role;			/* of its executors; pullers: of a pull type */
	uint8		notify;			/* NOTIFY_*: reasons to notify its channel (notify.c) */
	int			emptied;		/* claims since the last notification that found too few jobs */
	uint64		told;			/* lanes.published when the last bit was set for a job */
	MonoTime	notified;		/* last time; 0: never */
	RoleState	pullers;		/* of a pull type: its groups wait for a claim */
	bool		unclaimed;		/* the sweep has found a due job that waits for one */
	MonoTime	unclaimed_since;	/* sweeps find some, and no claim has come since; 0: no */
	TimestampTz unworked;		/* position of the oldest job that claims pass for its tenant; 0: none */
	MonoTime	unworked_since; /* when they began to */
	bool		unworked_waits; /* the sweep has found it again */
	dlist_head	parked;			/* groups of lanes that wait for the type itself: it is paused, say */
	BatchGate	batch;			/* of a pull type */
	JobLimit	own;			/* the type's own limits */
	int			nlimits;
	JobLimit   *limits[JOBQ_TYPE_LIMITS];	/* those that it shares with other types */
	bool		rated;			/* one of them has a rate */
	JobLimit   *closed;			/* had no room at the last hand-out of one of its jobs */
	int			per_key;		/* options.concurrency_per_key */
	bool		keeps_order;	/* options.key_order is fifo */
	LaneType	lanes;			/* order and wait queues of its lanes */

	/*
	 * batching: a type starts alone, is batched while its runs stay short and
	 * clean
	 */
	int			clean_runs;
	double		avg_us;
	MonoTime	alone_until;
	MonoTime	held_until;		/* its tool can't be started here: not before then */
	int			start_failures; /* in a row; held_until is computed from them */
	bool		probing;		/* held while one job checks if the tool starts again */
	uint32		tool_hash;		/* of the definition that the failures belong to */
	TypeBreaker breaker;
} TypeState;

/* Returns the type of a lane or of a group of lanes. */
static inline TypeState *
type_of(LaneType *lanes)
{
	return (TypeState *) ((char *) lanes - offsetof(TypeState, lanes));
}

extern HTAB *all_types;			/* types of which a job has been read */
extern bool types_notify;		/* the notify of some type may be set */

static inline void
type_set_notify(TypeState *t, uint8 reason)
{
	t->notify |= reason;
	types_notify = true;
}
extern bool types_order_changed;	/* ready lanes must be ranked again */
extern bool types_keep_order;	/* some type has had key_order = fifo */
extern void types_init(MemoryContext context);
extern TypeState *type_state(int32 id);
/* Returns a lane of the type, made if it is new. */
extern Lane *type_lane(const LaneId *id);

/*
 * Returns the type without reading the registry, outside a transaction too;
 * NULL when it has no entry.
 */
extern TypeState *type_remembered(int32 id);

/*
 * Returns the role that runs jobs of a SQL type; NULL: none does now, as far
 * as memory holds.
 */
extern RoleState *role_of_type(int32 id);
/* Reads the type's registry row again. */
extern void type_load(TypeState *t);
/* Reads again how signals affect the type; true if that has changed. */
extern bool type_load_pressure(TypeState *t);

/*
 * True if key_order of any type has changed since the last call: jobs that
 * wait for their key must be read again.
 */
extern bool types_key_order_changed(void);

/*
 * True if a type read since the last call has an old name of a renamed role:
 * maintenance corrects it.
 */
extern bool types_names_stale(void);

/*
 * True if some type can't start jobs because the server's memory for rates is
 * used up: retry after a while.
 */
extern bool types_lack_windows(void);

/*
 * Frees windows that nothing uses and retries types that lack one; called when
 * all known types are loaded.
 */
extern void types_retry_windows(void);

/*
 * True if so many dropped types have piled up that lanes should be forgotten,
 * and these types with them.
 */
extern bool types_have_leftovers(void);
extern void types_forget(void);

/* Reasons why no job of a type may start: a bit each. */
#define TYPE_UNKNOWN	0x01	/* it is not in the registry */
#define TYPE_TROUBLE	0x02	/* TypeState.trouble */
#define TYPE_FILTERED	0x04	/* jobq.job_type_filter */
#define TYPE_NO_ROLE	0x08	/* the role that it runs as is missing */
#define TYPE_BLOCKED	0x10	/* a signal */
#define TYPE_HELD		0x20	/* its tool can't be started here */
#define TYPE_BREAKER	0x40	/* its breaker */
#define TYPE_PAUSED		0x80
extern uint32 type_bars(TypeState *t, TimestampTz now);

/* True if one more job of the type may start: there is no reason. */
extern bool type_may_start(TypeState *t, TimestampTz now);

/*
 * Ends the wait of groups for the type's limits: a job of it has left its
 * executor.
 */
extern void type_open(TypeState *t);

/*
 * True if no job of the type can be handed out before another event that wakes
 * the dispatcher.
 */
extern bool type_is_quiet(TypeState *t);

/* Returns a limit of the type: 0 is its own, those that it shares follow. */
static inline JobLimit *
type_limit(TypeState *t, int number)
{
	return number == 0 ? &t->own : t->limits[number - 1];
}

/*
 * Returns the limits of the type without room for one more job in the
 * executor, -1: in another one: a bit for each number of type_limit().
 */
extern uint32 type_full_limits(TypeState *t, int executor, bool exec);

extern bool type_is_short(TypeState *t);
/* Holds the type: its tool could not be started. */
extern void type_hold(TypeState *t, MonoTime now);
/* Notes that one of its jobs is handed out to check the tool again. */
extern void type_probe(TypeState *t, MonoTime now);
/* Ends the hold: that job has started. */
extern void type_release(TypeState *t, MonoTime now);
extern void type_note_run(TypeState *t, CellReport report, int32 run_us, MonoTime now);

#endif
