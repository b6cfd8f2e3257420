/*
 * lane_reader.c
 *	  Which lanes are read when, and how their jobs are handed out in order.
 *
 * Lanes are read when a publication or a timer says so, all of them at the start and after publications
 * were lost; the sweep is the net under that.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "dispatch/admission.h"
#include "dispatch/inbox.h"
#include "dispatch/lane_reader.h"
#include "lanes/ready_queue.h"
#include "limits/concurrency_keys.h"
#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "limits/weight.h"
#include "workers/executor_pool.h"

#define SWEEP_ENTRIES		2000	/* index entries read per tick */

static LaneId sweep_lane;
static Range sweep_at;
static bool sweeping = false;

static void
see_lane(QueueScan *scan, const LaneId *id, TimestampTz lo)
{
	Lane	   *lane = type_lane(id);

	lane_unplace(lane);
	lane_publish(lane, lo, scan->now);
	lane_place(lane, scan->now);
}

void
rescan(QueueScan *scan, TimestampTz lo, bool all)
{
	LaneId		id = {PG_INT32_MIN, PG_INT16_MAX, PG_INT16_MAX};
	int			nlanes = 0;

	while (scan_next_lane(scan, &id))
	{
		CHECK_FOR_INTERRUPTS();
		if (!all && !type_state(id.type_id)->keeps_order)
			continue;
		see_lane(scan, &id, lo);
		nlanes++;
	}
	elog(DEBUG1, "jobq: %d lanes are read again", nlanes);
}

void
full_scan(QueueScan *scan)
{
	forget_held();
	forget_touched_lanes();
	admission_forget_lanes();
	keys_forget_lanes();
	tenant_limits_forget_lanes();
	lanes_reset();
	types_forget();
	rescan(scan, DT_NOBEGIN, true);
	sweeping = false;
}

/* The net under the publications: a bounded look behind the cursors, resumed at each tick. */
void
sweep(QueueScan *scan)
{
	int			budget = SWEEP_ENTRIES;

	while (budget > 0)
	{
		Lane	   *lane;

		if (!sweeping)
		{
			LaneId		id = {PG_INT32_MIN, PG_INT16_MAX, PG_INT16_MAX};

			if (!scan_next_lane(scan, &id))
				return;
			sweep_lane = id;
			sweep_at.pos = DT_NOBEGIN;
			sweeping = true;
		}
		lane = type_lane(&sweep_lane);
		lane_unplace(lane);
		if (lane->cursor.pos == DT_NOBEGIN)
			lane_publish(lane, DT_NOBEGIN + 1, scan->now);
		if (!scan_behind(scan, lane, &sweep_at, &budget))
		{
			lane_place(lane, scan->now);
			return;
		}
		lane_place(lane, scan->now);
		budget -= 16;
		sweep_at.pos = DT_NOBEGIN;
		if (!scan_next_lane(scan, &sweep_lane))
		{
			sweeping = false;	/* once round: enough for this tick */
			return;
		}
	}
}

/* One chunk of each in a turn: one may hold nothing but dead rows, or a crowd that waits for its key. */
void
scan_due_lanes(QueueScan *scan)
{
	Lane	   *lane;
	List	   *go_on = NIL;
	ListCell   *lc;

	while ((lane = lanes_pop_due(scan->now)) != NULL)
	{
		scan_lane(scan, lane);
		lane_place(lane, scan->now);
		if (lane->place == LANE_TIMER && lane->next_due <= scan->now)
		{
			lane_unplace(lane);
			go_on = lappend(go_on, lane);
		}
	}
	foreach(lc, go_on)
		lane_place(lfirst(lc), scan->now);
	list_free(go_on);
}

/* The lane's head leaves memory, and others pass it. */
static void
pass_head(QueueScan *scan, Lane *lane, void (*pass) (Lane *), TimestampTz now)
{
	lane_unplace(lane);
	pass(lane);
	if (scan && lane_wants_scan(lane, now))
		scan_lane(scan, lane);
	lane_place(lane, now);
}

/* The lane's head waits for its concurrency key: others pass it.  true: it does. */
static bool
wait_for_key(QueueScan *scan, Lane *lane, const JobRef *ref, TimestampTz now)
{
	switch (key_asks(scan, lane, ref))
	{
		case KEY_MAY_START:
			return false;
		case KEY_PASS:
			pass_head(scan, lane, key_pass, now);
			break;
		case KEY_UNKNOWN:
			group_park(lane->group, &type_of(lane->type)->parked);
			break;
	}
	return true;
}

/* The lane's head has been handed out. */
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
	doors_note_start(lane->group, rank);
	if (weight_budget > 0)
		weight_note_start(lane->group, rank);
}

/* Returns the limit of a type that is `rated` whose window is full; NULL: none. */
static JobLimit *
closed_by_rate(TypeState *t, TimestampTz now)
{
	if (type_needs_starts(t, now))
		executors_note_starts();
	return type_closed_by_rate(t, now);
}

/* What keeps a job from starting, besides the lack of an executor; true: the lane or its group has gone where it waits. */
static bool
has_to_wait(QueueScan *scan, Lane *lane, const JobRef *ref, const Rank *rank, TimestampTz now)
{
	TypeState  *t = type_of(lane->type);
	JobLimit   *closed;

	if (!type_may_start(t, now))	/* its key waits for that, too */
		group_park(lane->group, &t->parked);
	else if (ref->key != 0 && wait_for_key(scan, lane, ref, now))
		return true;
	else if (doors_keep_out(lane->group, rank))
		return true;
	else if (t->rated && (closed = closed_by_rate(t, now)) != NULL)
		group_refused_by_limit(lane->group, &closed->door, rank);
	else if (weight_budget > 0 && weight_is_reserved(t, rank))
		weight_park(lane->group, rank);
	else
		return false;
	return true;
}

/* Its head is handed out, or the group goes where it waits. */
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
	switch (hand_out(t, &ref, NULL, mono))
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
			group_refused_by_limit(lane->group, &t->closed->door, &rank);
			break;
		case TOO_HEAVY:
			weight_park(lane->group, &rank);
			break;
		case TENANT_FULL:
			pass_head(scan, lane, tenant_limit_pass, now);
			break;
	}
}

void
hand_out_ready(QueueScan *scan, TimestampTz now)
{
	Lane	   *lane;
	MonoTime	mono = mono_now();

	ready_age(now);
	while (executors_running() < jobq_max_concurrent && (lane = lanes_first_ready()) != NULL)
		try_lane(scan, lane, now, mono);
}
