/*
 * wakeup_filter.c
 *	  Which commits need not wake the dispatcher, and which worker is woken
 *	  early.
 *
 * A job can't be handed out at once if its type is paused, at its limit, or of
 * a role that has no free worker.  The event that changes this wakes the
 * dispatcher, which takes the ring first.  So before it sleeps, the dispatcher
 * lists the recently published types in that state (JobqDb.wakeup_filter,
 * under the mutex).  publish_jobs.c sets no latch for those alone, unless the
 * ring has become half full.
 *
 * The end of a client's attempt frees room in limits.  Unless jobs may wait for
 * that (ends_count), it wakes no dispatcher either: the next turn counts it.
 *
 * List and ring are under one lock: a publication before the list changes is
 * in the ring when the dispatcher looks; a later one is judged by the new
 * list.
 *
 * On an idle queue the way from a commit to the handler is mostly the wake-up
 * of two sleeping processes.  So a commit that will publish a job announces it
 * before its flush (publish_jobs.c: announce_commit).  The dispatcher takes a
 * turn and wakes a worker.  Both find nothing, and a moment later they
 * and their caches are awake already.  To wait there for the commit without
 * sleeping gains little more, and takes processors from backends that flush.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "dispatch/wakeup_filter.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"

#define LINGER_US		200		/* twice the time to find one job */

static JobqDb *db;
static int32 recent[JOBQ_QUIET_TYPES];	/* published lately, each once */
static int	nrecent = 0;
static int	oldest = 0;

void
wakeup_filter_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	nrecent = oldest = 0;
	SpinLockAcquire(&db->mutex);
	db->wakeup_filter.ntypes = 0;
	db->wakeup_filter.ends_count = true;
	SpinLockRelease(&db->mutex);
}

void
wakeup_filter_note(int32 type_id)
{
	for (int i = 0; i < nrecent; i++)
	{
		if (recent[i] == type_id)
			return;
	}
	if (nrecent < JOBQ_QUIET_TYPES)
		recent[nrecent++] = type_id;
	else
	{
		recent[oldest] = type_id;
		oldest = (oldest + 1) % JOBQ_QUIET_TYPES;
	}
}

/* True if the end of a client's attempt may let another job start. */
static bool
ends_count(void)
{
	return wait_queues_limits_shut() || leases_have_more_limits() || weight_budget > 0 ||
		executors_running() + leases_running() >= jobq_max_concurrent;
}

bool
wakeup_filter_settle(void)
{
	int32		quiet[JOBQ_QUIET_TYPES];
	int			n = 0;
	bool		ends = ends_count();
	bool		changed;
	bool		pushed;

	for (int i = 0; i < nrecent; i++)
	{
		if (db->kill_switch.stopped || type_is_quiet(type_remembered(recent[i])))
			quiet[n++] = recent[i];
	}
	SpinLockAcquire(&db->mutex);
	changed = n != db->wakeup_filter.ntypes || ends != db->wakeup_filter.ends_count ||
		memcmp(quiet, db->wakeup_filter.types, n * sizeof(int32)) != 0;
	if (changed)
		memcpy(db->wakeup_filter.types, quiet, n * sizeof(int32));
	db->wakeup_filter.ntypes = n;
	db->wakeup_filter.ends_count = ends;
	pushed = db->ring.head != db->ring.tail;
	SpinLockRelease(&db->mutex);
	return changed && pushed;
}

/*
 * Wakes the worker of an idle queue's first job, while the dispatcher looks
 * for the job or while it is being committed.
 */
void
worker_wake(TimestampTz now, bool may_hand_out)
{
	int32		imminent = (int32) pg_atomic_exchange_u32(&db->ring.imminent, 0);
	LaneKeys	keys = {.type_id = 0};

	if (executors_running() > 0)
		return;
	SpinLockAcquire(&db->mutex);
	if (db->ring.head != db->ring.tail)
		keys = db->ring.keys[db->ring.head % jobq_max_lanes];
	SpinLockRelease(&db->mutex);
	if (keys.type_id != 0 && keys.lo <= now)
		executors_wake_early(keys.type_id, LINGER_US);
	else if (imminent != 0 && may_hand_out)
		executors_wake_early(imminent, 0);
}
