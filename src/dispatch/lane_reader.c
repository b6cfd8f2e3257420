/*
 * lane_reader.c
 *	  Which lanes are read, and when.
 *
 * A lane is read when a publication or a timer is due, all lanes at the start
 * and after publications were lost.  The sweep finds rows that all of these
 * have missed.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "dispatch/admission.h"
#include "dispatch/inbox.h"
#include "dispatch/lane_reader.h"
#include "limits/concurrency_keys.h"
#include "limits/tenant_limit.h"
#include "limits/type_state.h"
#include "workers/returned_jobs.h"

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

/*
 * Reads a bounded number of entries behind the cursors, resumed at each tick:
 * the safety net of the publications.
 */
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

/*
 * Reads one chunk of each due lane in a turn: one may hold nothing but dead
 * rows, or a crowd that waits for its key.
 */
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
