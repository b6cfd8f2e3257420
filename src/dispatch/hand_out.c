/*
 * hand_out.c
 *	  Hands out jobs in order.
 *
 * The head of the first ready lane is tried.  It is handed out, or its group
 * goes to its place of waiting: parked with its type, in the wait queue of a
 * limit or a role, or with reserved weight.  A job of a full concurrency key
 * or tenant, or of none of the waiting claims' tenants, leaves memory, and the
 * next job of its lane is tried.
 */
#include "jobq.h"

#include "dispatch/hand_out.h"
#include "lanes/ready_queue.h"
#include "limits/concurrency_keys.h"
#include "limits/job_bars.h"
#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "limits/weight.h"
#include "workers/assign_job.h"
#include "workers/claim_scopes.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"

/* Takes the lane's head out of memory, so that others pass it. */
static void
pass_head(QueueScan *scan, Lane *lane, void (*pass) (Lane *), WhyCode why, TimestampTz now)
{
	lane_unplace(lane);
	lane_note_passed(lane, lane_head(lane)->position, why);
	pass(lane);
	if (scan && lane_wants_scan(lane, now))
		scan_lane(scan, lane);
	lane_place(lane, now);
}

/*
 * True if the lane's head has to wait for its concurrency key; other jobs pass
 * it.
 */
static bool
wait_for_key(QueueScan *scan, Lane *lane, const JobRef *ref, TimestampTz now)
{
	switch (key_asks(scan, lane, ref))
	{
		case KEY_MAY_START:
			return false;
		case KEY_PASS:
			pass_head(scan, lane, key_pass, WHY_KEY, now);
			break;
		case KEY_UNKNOWN:
			group_park(lane->group, &type_of(lane->type)->parked);
			break;
	}
	return true;
}

/* Moves the lane on: its head has been handed out. */
static void
go_on_with_lane(QueueScan *scan, Lane *lane, const Rank *rank, TimestampTz now)
{
	JobRef		ref;

	ready_served(lane);
	lane_unplace(lane);
	lane_pop(lane, &ref);
	known_lookup(known_jobs, ref.id)->where = IN_FLIGHT;
	if (scan && lane_wants_scan(lane, now))
		scan_lane(scan, lane);
	lane_place(lane, now);
	if (ref_settles(&ref))
		return;
	wait_queues_note_start(lane->group, rank);
	if (weight_budget > 0)
		weight_note_start(lane->group, rank);
}

uint32
hand_out_closed_rates(TypeState *t, TimestampTz now)
{
	if (!t->rated)
		return 0;
	if (type_needs_starts(t, now))
		executors_note_starts();
	return type_closed_rates(t, now);
}

/*
 * True if a reason other than the lack of an executor keeps the job from
 * starting; the lane or its group has gone to its place of waiting.
 */
static bool
has_to_wait(QueueScan *scan, Lane *lane, const JobRef *ref, const Rank *rank, TimestampTz now)
{
	TypeState  *t = type_of(lane->type);
	uint32		closed;

	if (!type_may_start(t, now))	/* its key waits for that, too */
		group_park(lane->group, &t->parked);
	else if (ref->key != 0 && wait_for_key(scan, lane, ref, now))
		return true;
	else if (wait_queues_keep_out(lane->group, rank))
		return true;
	else if ((closed = hand_out_closed_rates(t, now)) != 0)
		group_refused_by_limit(lane->group, &first_full_limit(t, closed)->wait_queue, rank);
	else if (weight_budget > 0 && weight_is_reserved(t, rank))
		weight_park(lane->group, rank);
	else
		return false;
	return true;
}

/* Hands out the lane's head, or moves its group to its place of waiting. */
static void
try_lane(QueueScan *scan, Lane *lane, TimestampTz now, MonoTime mono)
{
	TypeState  *t = type_of(lane->type);
	JobRef		ref = *lane_head(lane);
	Rank		rank = rank_of(lane->group);
	bool		settles = ref_settles(&ref);

	if (!settles && ref.position > now)
	{
		lane_place(lane, now);	/* the clock was set back */
		return;
	}
	if (!settles && has_to_wait(scan, lane, &ref, &rank, now))
		return;
	switch (assign_job(t, &ref, NULL, mono))
	{
		case HANDED_OUT:
			go_on_with_lane(scan, lane, &rank, now);
			break;
		case NO_CAPACITY:
			if (t->role == NULL)
				group_park(lane->group, &t->parked);
			else
				group_refused_by_role(lane->group, &rank, settles);
			break;
		case LIMIT_FULL:
			group_refused_by_limit(lane->group, &t->closed->wait_queue, &rank);
			break;
		case TOO_HEAVY:
			weight_park(lane->group, &rank);
			break;
		case TENANT_FULL:
			pass_head(scan, lane, tenant_limit_pass, WHY_LIMIT, now);
			break;
		case NO_BATCH:
			group_park(lane->group, &t->batch.groups);
			break;
		case NO_CLAIM:
			pass_head(scan, lane, claim_scopes_pass, WHY_NO_WORKER, now);
			break;
	}
}

bool
hand_out_has_room(void)
{
	return executors_running() + leases_running() < jobq_max_concurrent;
}

void
hand_out_ready(QueueScan *scan, TimestampTz now)
{
	Lane	   *lane;
	MonoTime	mono = mono_now();

	ready_age(now);
	while (hand_out_has_room() && (lane = lanes_first_ready()) != NULL)
		try_lane(scan, lane, now, mono);
}
