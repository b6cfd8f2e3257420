/*
 * ready.c
 *	  The order in which ready lanes are served.
 *
 * One heap holds all ready lanes by (effective priority, position, id).  What a lane's place depends on is written into
 * the lane when it is added, so that no change of a type, a signal or the time can bend the heap; lanes_rerank adds
 * all of them anew after such a change.
 *
 * Aging.  A lane's head is its oldest job, so its age is the lane's: `aged` steps of its type's aging_per since its
 * position, at most aging_max.  Lanes that still age are in a second heap by the moment of their next step.  Nobody is
 * woken for it: ready_age brings up to date what has passed when something can be handed out, each lane once.
 *
 * Fairness.  Ready lanes of a fair type with equal priority are a group.  The group waits in the first heap with all its
 * lanes, so what a type gets of the workers is as without fairness; when one of its lanes comes first there, the one
 * whose turn it is goes.  Turns are counted in rounds: who was served waits for the next round, who had nothing waiting
 * joins the next round, too, and within a round positions decide.  So no lane that could go is passed twice by another,
 * and none saves up turns.
 */
#include "jobq.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "dispatcher.h"
#include "ready.h"

typedef struct GroupKey
{
	int32		type_id;
	int32		priority;
} GroupKey;

typedef struct FairGroup
{
	GroupKey	key;			/* hash key */
	uint64		round;			/* of the lane that was served last */
	pairingheap *lanes;
} FairGroup;

static MemoryContext ready_context;
static pairingheap *ready;
static pairingheap *aging;
static HTAB *groups;

#define LANE_OF(n, member)	pairingheap_container(Lane, member, n)
#define CONST_LANE_OF(n, member)	pairingheap_const_container(Lane, member, n)

/* ---------- order; pairingheap: the larger is on top ---------- */

static int
compare_heads(const Lane *x, const Lane *y)
{
	return compare_refs(lane_head((Lane *) y), lane_head((Lane *) x));
}

static int
compare_ready(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Lane *x = CONST_LANE_OF(a, node);
	const Lane *y = CONST_LANE_OF(b, node);

	if (x->effective != y->effective)
		return x->effective < y->effective ? -1 : 1;
	return compare_heads(x, y);
}

static int
compare_turns(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Lane *x = CONST_LANE_OF(a, fair_node);
	const Lane *y = CONST_LANE_OF(b, fair_node);

	if (x->effective != y->effective)
		return x->effective < y->effective ? -1 : 1;
	if (x->turn != y->turn)
		return x->turn > y->turn ? -1 : 1;
	return compare_heads(x, y);
}

static int
compare_steps(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Lane *x = CONST_LANE_OF(a, age_node);
	const Lane *y = CONST_LANE_OF(b, age_node);

	if (x->next_step == y->next_step)
		return 0;
	return x->next_step > y->next_step ? -1 : 1;
}

Rank
rank_of_first(Lane *lane)
{
	JobRef	   *head = lane_head(LANE_OF(pairingheap_first(ready), node));	/* its group's oldest */
	Rank		rank = {lane->effective, lane->group, lane->turn, head->position, head->id};

	return rank;
}

bool
outranks(const Rank *a, const Rank *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->group != NULL && a->group == b->group && a->turn != b->turn)
		return a->turn < b->turn;
	if (a->position != b->position)
		return a->position < b->position;
	return memcmp(&a->id, &b->id, sizeof(pg_uuid_t)) < 0;
}

void
ready_init(MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	HASHCTL		ctl;

	ready_context = context;
	ready = pairingheap_allocate(compare_ready, NULL);
	aging = pairingheap_allocate(compare_steps, NULL);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(GroupKey);
	ctl.entrysize = sizeof(FairGroup);
	ctl.hcxt = context;
	groups = hash_create("jobq fair groups", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	MemoryContextSwitchTo(old);
}

/* ---------- effective priority ---------- */

/* How many steps the head has aged; when the next one is due, DT_NOEND: none will be. */
static int
steps_of(Lane *lane, TimestampTz now, TimestampTz *next)
{
	TypeState  *t = lane->type;
	TimestampTz position = lane_head(lane)->position;
	int64		steps;

	*next = DT_NOEND;
	if (t->aging_per == 0)
		return 0;
	steps = Max(now - position, 0) / t->aging_per;
	if (steps >= t->aging_max)
		return t->aging_max;
	*next = position + (steps + 1) * t->aging_per;
	return (int) steps;
}

static void
rank_lane(Lane *lane, TimestampTz now)
{
	lane->effective = lane->id.priority + lane->type->pressure + steps_of(lane, now, &lane->next_step);
}

/* ---------- in and out ---------- */

static FairGroup *
group_of(Lane *lane)
{
	GroupKey	key = {lane->id.type_id, lane->id.priority};
	bool		found;
	FairGroup  *group = hash_search(groups, &key, HASH_ENTER, &found);

	if (!found)
	{
		MemoryContext old = MemoryContextSwitchTo(ready_context);

		group->round = 0;
		group->lanes = pairingheap_allocate(compare_turns, NULL);
		MemoryContextSwitchTo(old);
	}
	return group;
}

void
ready_add(Lane *lane, TimestampTz now)
{
	rank_lane(lane, now);
	pairingheap_add(ready, &lane->node);
	if (lane->next_step != DT_NOEND)
		pairingheap_add(aging, &lane->age_node);
	if (lane->type->fair)
	{
		lane->group = group_of(lane);
		if (!lane->in_turn)
			lane->turn = Max(lane->turn, lane->group->round + 1);
		lane->in_turn = true;
		pairingheap_add(lane->group->lanes, &lane->fair_node);
	}
}

void
ready_remove(Lane *lane)
{
	pairingheap_remove(ready, &lane->node);
	if (lane->next_step != DT_NOEND)
		pairingheap_remove(aging, &lane->age_node);
	if (lane->group)
		pairingheap_remove(lane->group->lanes, &lane->fair_node);
	lane->group = NULL;
}

Lane *
ready_first(void)
{
	Lane	   *lane;

	if (pairingheap_is_empty(ready))
		return NULL;
	lane = LANE_OF(pairingheap_first(ready), node);
	return lane->group ? LANE_OF(pairingheap_first(lane->group->lanes), fair_node) : lane;
}

void
ready_served(Lane *lane)
{
	FairGroup  *group = lane->group;

	if (group == NULL)
		return;
	group->round = Max(group->round, lane->turn);
	lane->turn = group->round + 1;	/* removing it compares it with nobody */
}

void
ready_age(TimestampTz now)
{
	while (!pairingheap_is_empty(aging))
	{
		Lane	   *lane = LANE_OF(pairingheap_first(aging), age_node);

		if (lane->next_step > now)
			break;
		ready_remove(lane);
		ready_add(lane, now);
	}
}
