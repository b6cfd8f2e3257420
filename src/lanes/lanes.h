/*
 * lanes.h
 *	  The dispatcher's lanes: jobs that wait, in order, read a little ahead.
 *
 * A lane is (job type, priority, sublane).  Its rows are read in index order
 * from behind its cursor, which never moves back.  So a pickup costs the same
 * beside any number of dead or waiting rows.  Keys published at or below the
 * cursor (late committers, rows put back) are read in addition.
 *
 * Invariant: every committed row at or below the cursor is one of these:
 * - in `known`: it waits in a lane, is in flight, or is held;
 * - gone;
 * - passed over for its concurrency key (concurrency_keys.h), its tenant's
 *   limit (tenant_limit.h), or since its tenant is none of the waiting
 *   claims' (claim_scopes.h);
 * - named by a publication that has not been scanned yet.
 *
 * The lanes are memory of one process, without locks.  Each lane keeps at most
 * MAX_CHUNK rows (64 bytes each) of its cursor, and those of its extra heap.
 * The heap is refilled a chunk at a time, too.  The chunk of a tenant's lane
 * (sublane.h) is smaller.
 */
#ifndef JOBQ_LANES_H
#define JOBQ_LANES_H

#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "nodes/pg_list.h"
#include "shared/slots.h"
#include "shared/why_requests.h"

#define JOBQ_TYPE_LIMITS 8		/* names in options.limits: src/registry/option_keys.c */
#define PUBLISHED_MANY	1000000
#define MAX_CHUNK		512
#define MAX_FAIR_CHUNK	32		/* of up to JOBQ_SUBLANES lanes of a type and priority */

typedef struct LaneId
{
	int32		type_id;
	int16		priority;
	int16		sublane;
} LaneId;

/*
 * The part of a job type that lanes use: a member of TypeState
 * (limits/type_state.h).
 */
typedef struct LaneType
{
	/* the order of its jobs (ready_queue.c) */
	int			pressure;		/* added to their priority */
	int64		aging_per;		/* us; 0: they don't age */
	int			aging_max;
	bool		fair;			/* its lanes are served in turn */
	uint64		published;		/* jobs that were published; PUBLISHED_MANY for an unknown number */

	/* wait queues of its groups (wait_queues.c) */
	struct WaitQueue *own;		/* of the type's own limits */
	struct WaitQueue *role;		/* NULL: the role is not known yet */
	int			nlimits;
	struct WaitQueue *limits[JOBQ_TYPE_LIMITS];	/* of the limits that it shares with other types */
} LaneType;

/* An interval of keys to read besides those beyond the cursor. */
typedef struct Range
{
	TimestampTz pos;			/* continue at (pos, tid) */
	ItemPointerData tid;
	TimestampTz hi;
} Range;

typedef enum LanePlace
{
	LANE_NOWHERE,				/* nothing waits */
	LANE_READY,					/* has a head: in its group */
	LANE_TIMER					/* next_due is in the future: in the timer heap */
} LanePlace;

/* The rank of a lane's head, to be kept when the lane moves on. */
typedef struct Rank
{
	int32		priority;		/* effective */
	struct LaneGroup *group;
	uint64		turn;			/* in its group */
	TimestampTz position;
	pg_uuid_t	id;
} Rank;

typedef struct GroupId
{
	int32		type_id;
	int32		priority;
} GroupId;

typedef enum GroupPlace
{
	GROUP_NOWHERE,				/* none of its lanes has a head */
	GROUP_READY,				/* in the ready heap */
	GROUP_WAITS,				/* in a wait queue (wait_queues.h) */
	GROUP_PARKED				/* its type can't run it now, or it is too heavy */
} GroupPlace;

/*
 * The lanes of one type and priority, which wait together (ready_queue.c): one
 * lane, unless tenants have their own.
 */
typedef struct LaneGroup
{
	GroupId		id;				/* hash key */
	LaneType   *type;
	GroupPlace	place;
	pairingheap *oldest;		/* its lanes that have a head, the oldest first */
	pairingheap *turns;			/* the same lanes, in the order of their turns */
	uint64		round;			/* of the lane that was served last */
	pairingheap_node node;		/* in the ready heap, or in that of `waiting` */
	struct Waiting *waiting;	/* the groups it waits with, or was offered for */
	int32		effective;		/* priority */
	TimestampTz next_step;		/* its oldest job's next step of aging; DT_NOEND: in no heap for it */
	pairingheap_node age_node;
	dlist_node	parked;			/* in a list of parked groups */
	Rank		heavy;			/* rank of its head that waits for jobq.max_weight, */
	int			passed;			/* and number of lighter jobs started since (weight.c) */
} LaneGroup;

typedef struct Lane
{
	LaneId		id;				/* hash key */
	LaneType   *type;
	LaneGroup  *group;
	LanePlace	place;
	pairingheap_node node;		/* in the group's `oldest` or the timer heap */
	pairingheap_node turn_node;
	uint64		turn;			/* round it is to be served in; 0: its type is not fair */
	bool		in_turn;		/* has waited since it got that turn */

	Range		cursor;			/* hi is not used */
	TimestampTz next_due;		/* smallest known key beyond the cursor; DT_NOEND: none */
	TimestampTz future;			/* smallest live key not due at the last look ahead; past: look again */
	JobRef	   *buf;			/* read ahead from the cursor, ascending from bufpos to nbuf */
	int			bufpos;
	int			nbuf;
	int			bufsize;
	int			chunk;
	JobRef	   *extra;			/* a heap: jobs only to be settled, then by (position, id) */
	int			nextra;
	int			extrasize;
	List	   *ranges;			/* of Range, not read to their end */
	bool		touched;		/* in inbox.c's list of lanes that were published to */
	uint32		checked;		/* the last round in which statistics.c looked at the head's row */

	/* jobs that were passed over, for statistics: counted now and then (scan_count_passed) */
	TimestampTz passed_from;	/* none of them lies before; DT_NOEND: there is none */
	WhyCode		passed_for;		/* why the last one was */
	int64		npassed;		/* at the last count */
	TimestampTz oldest_passed;	/* the first of these */
} Lane;

typedef enum Whereabouts
{
	IN_LANE,
	IN_FLIGHT,
	HELD
} Whereabouts;

/* A job that the dispatcher has read; its end has not been read yet. */
typedef struct Known
{
	pg_uuid_t	id;				/* hash key */
	char		status;			/* simplehash's */
	uint8		where;			/* Whereabouts */
	bool		again;			/* seen while in flight, or a newer version: read it afterwards */
	int32		rev;
	LaneKeys	newer;
} Known;

#define SH_PREFIX known
#define SH_ELEMENT_TYPE Known
#define SH_KEY_TYPE pg_uuid_t
#define SH_SCOPE extern
#define SH_DECLARE
#include "lib/simplehash.h"

extern known_hash *known_jobs;

extern void lanes_init(MemoryContext context, JobqDb *db);
/* Forgets all lanes and their jobs, but none in flight: before a full scan. */
extern void lanes_reset(void);
/* Returns the lane, made if it is new: with its type from the callback. */
extern Lane *lane_get(const LaneId *id, LaneType *(*lane_type) (int32));
/* Calls visit for each lane; it may not make any. */
extern void lanes_visit(void (*visit) (Lane *lane, void *arg), void *arg);
/* For unit tests: the number of lanes, and of rows read ahead. */
extern int	lanes_count(void);
extern int	lanes_waiting(void);

/*
 * Notes a published interval: keys to read besides the cursor, or the time at
 * which the cursor is due.
 */
extern void lane_publish(Lane *lane, TimestampTz lo, TimestampTz hi);
/* Adds a row that was read; false when it is known already. */
extern bool lane_add(Lane *lane, const JobRef *ref, bool from_cursor);
/* Puts back a ref that was handed out or held. */
extern void lane_return(Lane *lane, const JobRef *ref);
extern JobRef *lane_head(Lane *lane);
/* Compares two refs of one priority; negative: a goes first. */
extern int	compare_refs(const JobRef *a, const JobRef *b);
extern void lane_pop(Lane *lane, JobRef *ref);
/* True if the ref in a lane's memory is of a version that does not wait there any more. */
extern bool ref_is_stale(const JobRef *ref);
/* Notes that a job was passed over: it is not in the lane's memory. */
static inline void
lane_note_passed(Lane *lane, TimestampTz position, WhyCode why)
{
	lane->passed_from = Min(lane->passed_from, position);
	lane->passed_for = why;
}

/* True if the lane has something to read that is due. */
extern bool lane_wants_scan(Lane *lane, TimestampTz now);

/*
 * Puts the lane where it belongs now; called after any change of its contents.
 */
extern void lane_place(Lane *lane, TimestampTz now);
/* Takes the lane out of heaps: before its head changes. */
extern void lane_unplace(Lane *lane);
extern Lane *lanes_first_ready(void);
/* Ranks ready lanes again: a type, or the pressure on it, has changed. */
extern void lanes_rerank(TimestampTz now);

/*
 * Returns a lane with a next key that is due; lanes_next_timer() returns
 * DT_NOEND when no timer is left.
 */
extern Lane *lanes_pop_due(TimestampTz now);
extern TimestampTz lanes_next_timer(void);

#endif
