/*
 * ready_queue.c
 *	  The order in which ready lanes are served.
 *
 * The lanes of one type and priority are a group and wait together.  A cause
 * that blocks the job next in turn (a pause, a limit, weight, no free
 * executor) also blocks the rest of its group.  So the group is parked and
 * retried, not its lanes: the end of a job costs the same beside one waiting
 * tenant and beside thousands.
 *
 * Groups that wait for a worker or for room under a limit are in other heaps,
 * in the same order, and come back one by one (wait_queues.h).
 *
 * One heap holds all ready groups by (effective priority, position, id) of
 * their oldest job.  The values that this order depends on are written into
 * the group when it is added.  So no change of a type, a signal or the time
 * can break the heap.  After such a change lanes_rerank adds all groups again.
 *
 * Aging.  A group ages as its oldest job does: `aged` steps of its type's
 * aging_per since its position, at most aging_max.  Groups that still age are
 * in a second heap by the moment of their next step.  That moment wakes no
 * process: ready_age applies all steps that have passed when something can be
 * handed out, each group once.
 *
 * Fairness.  When a group comes first, its lane next in turn goes, so a type's
 * share of the workers is the same as without fairness.  Turns are counted in
 * rounds.  A lane that was served waits for the next round; a lane that had no
 * job waiting joins the next round, too.  Within a round positions decide.  So
 * no lane that could go is passed by another more than twice, and no lane saves
 * up turns.  Without fairness every turn is 0.  A job that comes back as it was
 * (taken back, to run alone) gives its lane the turn back.  A job that is only
 * to be settled takes no turn and waits for none: a rate that blocks the
 * others does not block it.
 */
#include "jobq.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lanes/ready_queue.h"

static MemoryContext ready_context;
static pairingheap *ready;
static pairingheap *aging;
static HTAB *groups;
static TimestampTz aged_until = 0;	/* effective priorities are as of then */

#define GROUP_OF(n, member)	pairingheap_container(LaneGroup, member, n)
#define CONST_GROUP_OF(n, member)	pairingheap_const_container(LaneGroup, member, n)
#define CONST_LANE_OF(n, member)	pairingheap_const_container(Lane, member, n)

/* ---------- order; pairingheap: the larger is on top ---------- */

static JobRef *
oldest_head(const LaneGroup *group)
{
	return lane_head(pairingheap_container(Lane, node, pairingheap_first(group->oldest)));
}

static int
compare_ready(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const LaneGroup *x = CONST_GROUP_OF(a, node);
	const LaneGroup *y = CONST_GROUP_OF(b, node);

	if (x->effective != y->effective)
		return x->effective < y->effective ? -1 : 1;
	return compare_refs(oldest_head(y), oldest_head(x));
}

static int
compare_steps(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const LaneGroup *x = CONST_GROUP_OF(a, age_node);
	const LaneGroup *y = CONST_GROUP_OF(b, age_node);

	if (x->next_step == y->next_step)
		return 0;
	return x->next_step > y->next_step ? -1 : 1;
}

static int
compare_heads(const Lane *x, const Lane *y)
{
	return compare_refs(lane_head((Lane *) y), lane_head((Lane *) x));
}

static int
compare_oldest(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	return compare_heads(CONST_LANE_OF(a, node), CONST_LANE_OF(b, node));
}

/* True if the lane's head is only to be settled. */
static bool
settles(const Lane *lane)
{
	return ref_settles(lane_head((Lane *) lane));
}

static int
compare_turns(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Lane *x = CONST_LANE_OF(a, turn_node);
	const Lane *y = CONST_LANE_OF(b, turn_node);

	if (settles(x) != settles(y))
		return settles(y) ? -1 : 1;
	if (x->turn != y->turn)
		return x->turn > y->turn ? -1 : 1;
	return compare_heads(x, y);
}

/* Returns the lane next in turn. */
static Lane *
first_lane(const LaneGroup *group)
{
	return pairingheap_container(Lane, turn_node, pairingheap_first(group->turns));
}

Rank
rank_of(LaneGroup *group)
{
	JobRef	   *head = oldest_head(group);
	Rank		rank = {group->effective, group, first_lane(group)->turn, head->position, head->id};

	return rank;
}

bool
outranks(const Rank *a, const Rank *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->group == b->group && a->turn != b->turn)
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
	ctl.keysize = sizeof(GroupId);
	ctl.entrysize = sizeof(LaneGroup);
	ctl.hcxt = context;
	groups = hash_create("jobq lane groups", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	wait_queues_init(context);
	MemoryContextSwitchTo(old);
}

LaneGroup *
ready_group(const LaneId *id, LaneType *type)
{
	GroupId		key = {id->type_id, id->priority};
	bool		found;
	LaneGroup  *group = hash_search(groups, &key, HASH_ENTER, &found);

	if (!found)
	{
		MemoryContext old = MemoryContextSwitchTo(ready_context);

		memset((char *) group + sizeof(GroupId), 0, sizeof(LaneGroup) - sizeof(GroupId));
		group->type = type;
		group->oldest = pairingheap_allocate(compare_oldest, NULL);
		group->turns = pairingheap_allocate(compare_turns, NULL);
		MemoryContextSwitchTo(old);
	}
	return group;
}

/* ---------- groups: effective priority, in and out ---------- */

void
ready_init_heap(pairingheap *heap)
{
	heap->ph_compare = compare_ready;
	heap->ph_arg = NULL;
	pairingheap_reset(heap);
}

LaneGroup *
ready_first_of(pairingheap *heap)
{
	return GROUP_OF(pairingheap_first(heap), node);
}

/*
 * Returns how many steps a job of that position has aged; *next: when the next
 * step is due, DT_NOEND: never.
 */
static int
steps_of(const LaneType *t, TimestampTz position, TimestampTz *next)
{
	int64		steps;

	*next = DT_NOEND;
	if (t->aging_per == 0)
		return 0;
	steps = Max(aged_until - position, 0) / t->aging_per;
	if (steps >= t->aging_max)
		return t->aging_max;
	*next = position + (steps + 1) * t->aging_per;
	return (int) steps;
}

static int32
effective_at(const LaneGroup *group, TimestampTz position, TimestampTz *next_step)
{
	return group->id.priority + group->type->pressure + steps_of(group->type, position, next_step);
}

Rank
ready_rank(const Lane *lane, const JobRef *ref)
{
	LaneGroup  *group = lane->group;
	TimestampTz position = ref->position;
	TimestampTz next_step;

	if (!pairingheap_is_empty(group->oldest))
		position = Min(position, oldest_head(group)->position);
	return (Rank) {effective_at(group, position, &next_step), group, lane->turn, ref->position, ref->id};
}

void
ready_each_group(void (*look) (LaneGroup *group, const Rank *rank, void *arg), void *arg)
{
	HASH_SEQ_STATUS status;
	LaneGroup  *group;

	hash_seq_init(&status, groups);
	while ((group = hash_seq_search(&status)) != NULL)
	{
		Rank		rank;
		TimestampTz next_step;

		if (pairingheap_is_empty(group->oldest))
			continue;
		rank = rank_of(group);
		rank.priority = effective_at(group, rank.position, &next_step);	/* also of a parked group */
		look(group, &rank, arg);
	}
}

bool
ready_is_next(const Lane *lane)
{
	return lane->place == LANE_READY && first_lane(lane->group) == lane;
}

static bool
is_in_heap(const LaneGroup *group)
{
	return group->place == GROUP_READY || group->place == GROUP_WAITS;
}

static void
enter_heap(LaneGroup *group, GroupPlace place, pairingheap *heap)
{
	group->effective = effective_at(group, oldest_head(group)->position, &group->next_step);
	group->place = place;
	pairingheap_add(heap, &group->node);
	if (group->next_step != DT_NOEND)
		pairingheap_add(aging, &group->age_node);
}

static void
group_add(LaneGroup *group)
{
	enter_heap(group, GROUP_READY, ready);
}

/*
 * Removes the group; if it was offered, the next group of its wait queue is
 * offered.
 */
static void
group_remove(LaneGroup *group)
{
	Waiting    *from = group->waiting;
	bool		was_offered = group->place == GROUP_READY && from != NULL;

	if (is_in_heap(group))
	{
		pairingheap_remove(group->place == GROUP_READY ? ready : &from->groups, &group->node);
		if (group->next_step != DT_NOEND)
			pairingheap_remove(aging, &group->age_node);
	}
	else if (group->place == GROUP_PARKED)
		dlist_delete(&group->parked);
	group->place = GROUP_NOWHERE;
	group->waiting = NULL;
	if (was_offered)
		waiting_offer(from);
}

void
group_wait(LaneGroup *group, Waiting *waiting)
{
	group_remove(group);
	group->waiting = waiting;
	enter_heap(group, GROUP_WAITS, &waiting->groups);
}

void
group_offer(LaneGroup *group)
{
	Waiting    *from = group->waiting;

	group_remove(group);
	group_add(group);
	group->waiting = from;
}

void
group_park(LaneGroup *group, dlist_head *list)
{
	group_remove(group);
	group->place = GROUP_PARKED;
	dlist_push_tail(list, &group->parked);
}

void
groups_unpark(dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		LaneGroup  *group = dlist_head_element(LaneGroup, parked, list);

		group_remove(group);
		group_add(group);
	}
}

void
ready_age(TimestampTz now)
{
	aged_until = now;
	while (!pairingheap_is_empty(aging))
	{
		LaneGroup  *group = GROUP_OF(pairingheap_first(aging), age_node);

		if (group->next_step > now)
			break;
		group_remove(group);
		group_add(group);
	}
}

/* ---------- lanes ---------- */

void
ready_add(Lane *lane)
{
	LaneGroup  *group = lane->group;
	bool		fair = lane->type->fair;

	group_remove(group);
	if (!fair)
		lane->turn = 0;
	else if (!lane->in_turn)
		lane->turn = Max(lane->turn, group->round + 1);
	lane->in_turn = fair;
	pairingheap_add(group->oldest, &lane->node);
	pairingheap_add(group->turns, &lane->turn_node);
	group_add(group);
}

void
ready_remove(Lane *lane)
{
	LaneGroup  *group = lane->group;
	bool		was_ready = is_in_heap(group);

	if (was_ready)
		group_remove(group);
	pairingheap_remove(group->oldest, &lane->node);
	pairingheap_remove(group->turns, &lane->turn_node);
	if (pairingheap_is_empty(group->oldest))
		group_remove(group);
	else if (was_ready)
		group_add(group);
}

Lane *
ready_first(void)
{
	if (pairingheap_is_empty(ready))
		return NULL;
	return first_lane(ready_first_of(ready));
}

void
ready_served(Lane *lane)
{
	LaneGroup  *group = lane->group;

	if (!lane->type->fair || settles(lane))
		return;
	group->round = Max(group->round, lane->turn);
	lane->turn = group->round + 1;	/* the removal compares it with no other lane */
}

void
ready_refund(Lane *lane)
{
	if (!lane->type->fair || lane->turn == 0)
		return;
	lane->turn--;
	lane->in_turn = true;
}
