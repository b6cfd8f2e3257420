/*
 * wake.c
 *	  How the dispatcher sleeps and wakes up: early for a single job, seldom for many.
 *
 * On an idle queue the way from a commit to the handler is mostly two sleeping processes.  So a commit that will
 * publish a job tells of it before it is flushed (publish.c: JobqDb.imminent): the dispatcher takes a turn for the
 * caches, wakes a worker, and both stay awake until the job is there, at most FLUSH_US.  That is done for a dispatcher that
 * has slept for a while (ASLEEP_US), so it costs each of the two 5 % of a processor at most.
 *
 * Woken again and again as soon as it has gone to sleep, the dispatcher would take a turn, and a worker a
 * commit, for each job.  Then, and if nobody waits for capacity, it lets a moment's jobs come together.
 */
#include "jobq.h"

#include <sched.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "dispatcher.h"
#include "ready.h"
#include "waits.h"
#include "wake.h"

#define NAP_US			500		/* under load, between turns that left nothing waiting */
#define LINGER_US		200		/* twice what it takes to find one job */
#define FLUSH_US		500		/* most that is waited for a commit */
#define QUICK_WAKE_US	200
#define QUICK_WAKES		4		/* in a row: load */

static JobqDb *db;
static TimestampTz commit_due = 0;	/* till then it is worth while to stay awake; 0: nothing */

void
wake_init(JobqDb *mine)
{
	db = mine;
	commit_due = 0;
}

/* The first job of an idle queue: its worker wakes up while we look for it, or while it is being committed. */
void
wake_worker(TimestampTz now, bool may_hand_out)
{
	int32		imminent = (int32) pg_atomic_exchange_u32(&db->imminent, 0);
	LaneKeys	keys = {.type_id = 0};

	if (executors_running() > 0)
		return;
	SpinLockAcquire(&db->mutex);
	if (db->ring_head != db->ring_tail)
		keys = db->ring[db->ring_head % jobq_max_lanes];
	SpinLockRelease(&db->mutex);
	if (keys.type_id != 0 && keys.lo <= now)
		executors_alert(keys.type_id, LINGER_US);
	else if (imminent != 0 && may_hand_out)
	{
		commit_due = now + FLUSH_US;
		executors_alert(imminent, FLUSH_US);
	}
}

static bool
await_commit(void)
{
	while (!MyLatch->is_set && GetCurrentTimestamp() < commit_due)
		sched_yield();			/* the flush may need this very processor */
	commit_due = 0;
	return MyLatch->is_set;
}

void
wake_wait(long timeout)
{
	static int	quick_wakes = 0;
	TimestampTz began;

	if (commit_due != 0 && await_commit())
		return;
	if (quick_wakes >= QUICK_WAKES && lanes_first_ready() == NULL && !roles_wait() && !db->suspended)
		pg_usleep(NAP_US);
	began = GetCurrentTimestamp();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
					 jobq_wait(WAIT_DISPATCHER));
	if (GetCurrentTimestamp() - began < QUICK_WAKE_US)
		quick_wakes++;
	else
		quick_wakes = 0;
}
