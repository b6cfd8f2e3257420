/*
 * type_state.h
 *	  Job types as the dispatcher has read them.
 */
#ifndef JOBQ_TYPE_STATE_H
#define JOBQ_TYPE_STATE_H

#include "limits/job_limit.h"
#include "limits/role_state.h"
#include "limits/type_breaker.h"

typedef struct TypeState
{
	int32		id;				/* hash key */
	bool		known;			/* is in the registry */
	bool		gone;			/* is not in the registry, or was dropped */
	bool		exec;
	bool		paused;
	TimestampTz paused_until;	/* DT_NOEND: until resumed */
	MonoTime	pause_ends;		/* the same, unaffected by steps of the wall clock */
	bool		refused;		/* by jobq.job_type_filter, or its role is missing */
	char		trouble[512];	/* why no job can start until the registry is read again; '': they can */
	bool		blocked;		/* by an active signal (pressure_rules.c) */
	bool		may_batch;
	int			weight;			/* cpu_weight */
	int			max_skip;		/* options.max_skip */
	RoleState  *role;
	dlist_head	parked;			/* groups of lanes that wait for the type itself: it is paused, say */
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

/* True if one more job of the type may start. */
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

extern bool type_is_short(TypeState *t);
/* Holds the type: its tool could not be started. */
extern void type_hold(TypeState *t, MonoTime now);
/* Notes that one of its jobs is handed out to check the tool again. */
extern void type_probe(TypeState *t, MonoTime now);
/* Ends the hold: that job has started. */
extern void type_release(TypeState *t, MonoTime now);
extern void type_note_run(TypeState *t, CellReport report, int32 run_us, MonoTime now);

#endif
