/*
 * wait_queues.c
 *	  Wait queues of limits and roles.  wait_queues.h has the design.
 */
#include "jobq.h"

#include "utils/hsearch.h"

#include "lanes/ready_queue.h"

static HTAB *all_waiting = NULL;
static int	nlimits_shut = 0;

void
wait_queues_init(MemoryContext context)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(WaitingKey);
	ctl.entrysize = sizeof(Waiting);
	ctl.hcxt = context;
	all_waiting = hash_create("jobq waiting groups", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	nlimits_shut = 0;
}

void
wait_queue_init(WaitQueue *queue)
{
	queue->shut = queue->of_limit = false;
	dlist_init(&queue->waiting);
}

static Waiting *
get_waiting(const WaitingKey *key)
{
	bool		found;
	Waiting    *w = hash_search(all_waiting, key, HASH_ENTER, &found);

	if (!found)
	{
		ready_init_heap(&w->groups);
		w->queue = NULL;
	}
	return w;
}

static Waiting *
waiting_at(WaitQueue *role, int nlimits, WaitQueue *const *limits)
{
	WaitingKey	key = {.role = role, .nlimits = nlimits};

	for (int i = 0; i < nlimits; i++)
		key.limits[i] = limits[i];
	return get_waiting(&key);
}

/* Returns the groups with the same role and shared limits as the type. */
static Waiting *
waiting_of(LaneType *t)
{
	return waiting_at(t->role, t->nlimits, t->limits);
}

static Waiting *
waiting_for_own(LaneType *t)
{
	return waiting_at(t->role, 1, &t->own);
}

/* ---------- in the wait queues ---------- */

static WaitQueue *
queue_of(const Waiting *w, int i)
{
	return i < w->key.nlimits ? w->key.limits[i] : w->key.role;
}

void
waiting_offer(Waiting *waiting)
{
	LaneGroup  *first;
	Rank		rank;

	if (waiting->queue != NULL || pairingheap_is_empty(&waiting->groups))
		return;
	first = ready_first_of(&waiting->groups);
	rank = rank_of(first);
	for (int i = 0; i <= waiting->key.nlimits; i++)
	{
		WaitQueue  *queue = queue_of(waiting, i);

		if (!queue->shut || outranks(&rank, &queue->refused))
			continue;
		waiting->queue = queue;
		dlist_push_tail(&queue->waiting, &waiting->node);
		return;
	}
	group_offer(first);
}

static void
group_joins(LaneGroup *group, Waiting *waiting)
{
	group_wait(group, waiting);
	if (waiting->queue != NULL && ready_first_of(&waiting->groups) == group)
	{
		dlist_delete(&waiting->node);	/* it blocked the group that was the first before */
		waiting->queue = NULL;
	}
	waiting_offer(waiting);
}

void
wait_queue_open(WaitQueue *queue)
{
	if (queue->shut && queue->of_limit)
		nlimits_shut--;
	queue->shut = false;
	while (!dlist_is_empty(&queue->waiting))
	{
		Waiting    *w = dlist_container(Waiting, node, dlist_pop_head_node(&queue->waiting));

		w->queue = NULL;
		waiting_offer(w);
	}
}

bool
wait_queues_limits_shut(void)
{
	return nlimits_shut > 0;
}

bool
wait_queue_has_groups(WaitQueue *queue)
{
	dlist_iter	it;

	dlist_foreach(it, &queue->waiting)
	{
		if (!pairingheap_is_empty(&dlist_container(Waiting, node, it.cur)->groups))
			return true;
	}
	return false;
}

void
wait_queues_release(void)
{
	HASH_SEQ_STATUS status;
	Waiting    *w;

	nlimits_shut = 0;
	hash_seq_init(&status, all_waiting);
	while ((w = hash_seq_search(&status)) != NULL)
	{
		w->queue = NULL;
		while (!pairingheap_is_empty(&w->groups))
			group_offer(ready_first_of(&w->groups));
	}
}

/* ---------- groups that are refused ---------- */

static bool
keeps_out(const WaitQueue *queue, const Rank *rank)
{
	return queue->shut && outranks(&queue->refused, rank);
}

bool
wait_queues_block(LaneType *t, const Rank *rank)
{
	bool		blocked = keeps_out(t->own, rank) || keeps_out(t->role, rank);

	for (int i = 0; i < t->nlimits; i++)
		blocked |= keeps_out(t->limits[i], rank);
	return blocked;
}

bool
wait_queues_keep_out(LaneGroup *group, const Rank *rank)
{
	LaneType   *t = group->type;

	if (!wait_queues_block(t, rank))
		return false;
	group_joins(group, keeps_out(t->own, rank) ? waiting_for_own(t) : waiting_of(t));
	return true;
}

static void
shut(WaitQueue *queue, const Rank *rank)
{
	if (!queue->shut || outranks(rank, &queue->refused))
		queue->refused = *rank;
	queue->shut = true;
}

void
group_refused_by_limit(LaneGroup *group, WaitQueue *limit, const Rank *rank)
{
	LaneType   *t = group->type;

	if (!limit->shut)
		nlimits_shut++;
	limit->of_limit = true;
	shut(limit, rank);
	group_joins(group, limit == t->own ? waiting_for_own(t) : waiting_of(t));
}

void
group_refused_by_role(LaneGroup *group, const Rank *rank, bool settles)
{
	LaneType   *t = group->type;

	shut(t->role, rank);
	group_joins(group, settles ? waiting_at(t->role, 0, NULL) : waiting_of(t));
}

static void
open_if_waited_for(WaitQueue *queue, const Rank *rank)
{
	if (queue->shut && !outranks(rank, &queue->refused))
		wait_queue_open(queue);
}

void
wait_queues_note_start(LaneGroup *group, const Rank *rank)
{
	LaneType   *t = group->type;

	open_if_waited_for(t->role, rank);
	open_if_waited_for(t->own, rank);
	for (int i = 0; i < t->nlimits; i++)
		open_if_waited_for(t->limits[i], rank);
}
