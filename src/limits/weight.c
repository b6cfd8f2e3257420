/*
 * weight.c
 *	  The weight of running jobs, and the groups that wait for it.
 *
 * A SQL worker runs one job at a time: it weighs as much as the heaviest of
 * its cells.  Each tool weighs by itself.  A job that doesn't fit waits with
 * its group, and lighter ones pass it.  Each of those that ranks after it is
 * counted.  From options.max_skip on, no job that has a weight and ranks after
 * it may start; so weight that becomes free adds up for it.
 */
#include "jobq.h"

#include "lanes/ready_queue.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "pressure/pressure_rules.h"

int			weight_budget = 0;

static int64 weight_running = 0;
static dlist_head parked = DLIST_STATIC_INIT(parked);	/* groups of lanes */
static LaneGroup *reserver = NULL;	/* group that weight is reserved for */
static Rank reserved_for;	/* rank of its head */

void
weight_restart(void)
{
	weight_budget = pressure_max_weight();
	weight_running = 0;
}

int64
weight_used(void)
{
	return weight_running;
}

void
weight_add(int weight)
{
	weight_running += weight;
}

void
weight_clear(HeldWeight *held, bool exec)
{
	memset(held, 0, sizeof(HeldWeight));
	held->exec = exec;
}

void
weight_occupy(HeldWeight *held, int cell, int weight)
{
	int			before = held->total;

	held->cells[cell] = weight;
	held->total = held->exec ? held->total + weight : Max(held->total, weight);
	weight_running += held->total - before;
}

static int
heaviest(const HeldWeight *held)
{
	int			weight = 0;

	for (int i = 0; i < JOBQ_CELLS && weight < held->total; i++)
		weight = Max(weight, held->cells[i]);
	return weight;
}

void
weight_vacate(HeldWeight *held, int cell)
{
	int			before = held->total;
	int			weight = held->cells[cell];

	held->cells[cell] = 0;
	if (held->exec)
		held->total -= weight;
	else if (weight == held->total)
		held->total = heaviest(held);
	weight_running += held->total - before;
}

bool
weight_fits(const HeldWeight *held, int weight)
{
	int			more = held == NULL || held->exec ? weight : Max(weight - held->total, 0);

	return more == 0 || weight_running == 0 || weight_running + more <= weight_budget;
}

/* ---------- groups that wait ---------- */

/*
 * Reserves weight for the group's head if it was passed often enough and no
 * head that ranks before it was.
 */
static void
reserve(LaneGroup *group)
{
	if (group->passed < type_of(group->type)->max_skip || (reserver && !outranks(&group->heavy, &reserved_for)))
		return;
	reserver = group;
	reserved_for = group->heavy;
}

void
weight_park(LaneGroup *group, const Rank *rank)
{
	group->heavy = *rank;
	reserve(group);
	group_park(group, &parked);
}

void
weight_unpark(void)
{
	reserver = NULL;			/* a group that does not fit reserves again before lower ranks are tried */
	groups_unpark(&parked);
}

void
weight_forget_lanes(void)
{
	reserver = NULL;
	dlist_init(&parked);
}

bool
weight_has_groups(void)
{
	return !dlist_is_empty(&parked);
}

bool
weight_is_reserved(const TypeState *t, const Rank *rank)
{
	return reserver != NULL && t->weight > 0 && outranks(&reserved_for, rank);
}

void
weight_note_start(LaneGroup *group, const Rank *rank)
{
	int			weight = type_of(group->type)->weight;
	dlist_iter	it;

	group->passed = 0;
	if (reserver == group)
		reserver = NULL;
	if (weight == 0)
		return;
	dlist_foreach(it, &parked)
	{
		LaneGroup  *waiting = dlist_container(LaneGroup, parked, it.cur);

		if (type_of(waiting->type)->weight <= weight || !outranks(&waiting->heavy, rank))
			continue;
		waiting->passed++;
		reserve(waiting);
	}
}
