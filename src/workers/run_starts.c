/*
 * run_starts.c
 *	  The dispatcher's side of runs: a run is handed to the conductor as a job
 *	  is to a claim.
 *
 * A run counts in the limits of its workflow from its hand-out until its end.
 * It takes no place of jobq.max_concurrent and has no weight: its tasks do.
 * The conductor locks the row and writes that it runs, with a lease that does
 * not end, and tells the dispatcher, which reads the row (leases.c).  It begins
 * only runs that the dispatcher has not taken back (run_hand_outs.h): those of
 * which nothing was heard for HAND_OUT_US, whose conductor may have died, those
 * of types that were paused or blocked since, and all when all is stopped.
 */
#include "jobq.h"

#include "miscadmin.h"

#include "limits/job_bars.h"
#include "limits/type_rates.h"
#include "limits/type_state.h"
#include "shared/publish_schedules.h"
#include "shared/run_hand_outs.h"
#include "workers/leases.h"
#include "workers/run_starts.h"

#define HAND_OUT_US		(10 * USECS_PER_SEC)

static JobqDb *db;
static bool former = false;		/* the conductor starts runs of a former dispatcher */

void
run_starts_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	run_take_back_all(db);
	former = db->run_starts.nopen > 0;
}

/* True if none is handed out until the conductor has ended some starts. */
static bool
await_conductor(void)
{
	former = former && db->run_starts.nopen > 0;
	return former || db->run_starts.n >= JOBQ_RUN_STARTS;
}

uint32
run_starts_bars(TypeState *t)
{
	return type_full_limits(t, -1, true) | (await_conductor() ? BAR_CAPACITY : 0);
}

HandOut
run_starts_assign(TypeState *t, const JobRef *ref, MonoTime now)
{
	uint32		full = type_full_limits(t, -1, true);
	RunStart	start = {
		.id = ref->id, .tid = ref->tid, .rev = ref->rev, .type_id = ref->type_id,
		.priority = ref->priority, .sublane = ref->sublane, .position = ref->position
	};
	uint64		number;

	if (full != 0)
	{
		t->closed = first_full_limit(t, full);
		return LIMIT_FULL;
	}
	number = await_conductor() ? 0 : run_hand_out(db, &start);
	if (number == 0)
		return NO_CAPACITY;
	if (t->breaker.state != BREAKER_CLOSED)
		type_breaker_start(t, &ref->id);
	lease_hand_run(t, ref, number, HAND_OUT_US);
	pg_atomic_fetch_add_u64(&db->counters.handed_out, 1);
	if (db->conductor.child.proc != NULL)
		wake_conductor(db);
	return HANDED_OUT;
}

bool
run_starts_pending(void)
{
	return db->run_starts.taken;
}

void
run_starts_open(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	if (!db->run_starts.taken)
		return;
	db->run_starts.taken = false;
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (t->workflow)
			wait_queue_open(&t->pullers.wait_queue);
	}
}
