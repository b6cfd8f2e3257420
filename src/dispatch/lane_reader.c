/*
 * lane_reader.c
 *	  Which lanes are read, and when.
 *
 * A lane is read when a publication or a timer is due, all lanes at the start
 * and after publications were lost.  The sweep finds rows that all of these
 * have missed.
 *
 * A ref in a lane's memory is not told when its row goes or changes: its
 * hand-out finds that out.  In a lane that hands out nothing it would stay, so
 * statistics and jobq.why look for such refs.
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
#include "limits/type_state.h"
#include "shared/clock_steps.h"
#include "workers/claim_scopes.h"
#include "workers/former_claims.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"

#define SWEEP_ENTRIES		2000	/* index entries read at a time */
#define LEASE_ENTRIES		5000	/* the same for leases */
#define LANE_COST			16		/* of these entries */

static const LaneId first_lane = {PG_INT32_MIN, PG_INT16_MAX, PG_INT16_MAX};
static LaneId lease_lane = {PG_INT32_MIN, PG_INT16_MAX, PG_INT16_MAX};
static Range lease_at;
static bool in_lease_lane = false;
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
reread_lanes(QueueScan *scan, TimestampTz lo, bool all)
{
	LaneId		id = first_lane;
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
read_all_lanes(QueueScan *scan)
{
	held_forget();
	inbox_forget_lanes();
	admission_forget_lanes();
	keys_forget_lanes();
	tenant_limits_forget_lanes();
	claim_scopes_forget_lanes();
	lanes_reset();
	types_forget();
	reread_lanes(scan, DT_NOBEGIN, true);
	sweeping = false;
}

/* Goes to the next lane of a pull type; false: there is none. */
static bool
next_lease_lane(QueueScan *scan)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!scan_next_lane(scan, &lease_lane))
			return false;
	} while (!type_state(lease_lane.type_id)->pull);
	/* one that lies ahead was claimed before the wall clock was set back */
	lease_at = (Range) {.pos = DT_NOBEGIN, .hi = Max(scan->now, clock_latest(my_db()))};
	return true;
}

void
read_leases(QueueScan *scan)
{
	int			left = LEASE_ENTRIES;

	if (!leases_are_being_read())
		return;
	if (scan->rewritten)
	{
		lease_lane = first_lane;
		in_lease_lane = false;
	}
	while (left > 0)
	{
		if (!in_lease_lane && !next_lease_lane(scan))
		{
			leases_were_read();
			return;
		}
		in_lease_lane = !scan_leases(scan, &lease_lane, &lease_at, &left);
		left -= LANE_COST;
	}
}

/*
 * Reads a bounded number of entries behind the cursors, resumed each time:
 * the safety net of the publications.
 */
void
sweep(QueueScan *scan)
{
	int			budget = SWEEP_ENTRIES;
	DbStats    *stats = &my_db()->stats;

	while (budget > 0)
	{
		Lane	   *lane;
		int			known;
		bool		done;

		if (!sweeping)
		{
			LaneId		id = first_lane;

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
		known = lane->nextra;
		done = known >= MAX_CHUNK ||	/* jobs that were passed over would pile up */
			scan_behind(scan, lane, &sweep_at, &budget);
		stats->sweep_finds += lane->nextra - known;
		lane_place(lane, scan->now);
		if (!done)
			return;
		budget -= LANE_COST;
		sweep_at.pos = DT_NOBEGIN;
		if (!scan_next_lane(scan, &sweep_lane))
		{
			sweeping = false;	/* once round: enough for this time */
			return;
		}
	}
}

/*
 * Reads one chunk of each due lane in a turn: one may hold nothing but dead
 * rows, or a crowd that waits for its key.
 */
void
read_due_lanes(QueueScan *scan)
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

/* ---------- refs whose rows have gone or changed ---------- */

/*
 * True if the ref does not wait any more; its job is forgotten.  A changed row
 * is read again by its publication.
 */
static bool
forget_if_gone(QueueScan *scan, const JobRef *ref)
{
	JobRef		row;
	JobStatus	status;
	bool		waits;

	if (ref_is_stale(ref))
		return true;
	if (ref_settles(ref))
		return false;
	waits = scan_find(scan, &ref->id, &row, &status) && row.rev == ref->rev;
	ExecClearTuple(scan->slot);
	if (!waits)
		forget_job(ref);
	return !waits;
}

void
lane_drop_gone(QueueScan *scan, Lane *lane)
{
	JobRef	   *head;

	while ((head = lane_head(lane)) != NULL && forget_if_gone(scan, head))
	{
		Rank		rank = ready_rank(lane, head);

		lane_place(lane, scan->now);	/* this takes it off */
		if (lane->type->role != NULL)
			wait_queues_note_start(lane->group, &rank); /* no job waits behind it any more */
	}
}

static int
count_gone(QueueScan *scan, const JobRef *refs, int n, MonoTime until, bool *exact)
{
	int			gone = 0;

	for (int i = 0; i < n; i++)
	{
		if (mono_now() > until)
		{
			*exact = false;
			break;
		}
		if (forget_if_gone(scan, &refs[i]))
			gone++;
	}
	return gone;
}

int
lane_count_gone(QueueScan *scan, Lane *lane, MonoTime until, bool *exact)
{
	return count_gone(scan, lane->buf + lane->bufpos, lane->nbuf - lane->bufpos, until, exact) +
		count_gone(scan, lane->extra, lane->nextra, until, exact);
}
