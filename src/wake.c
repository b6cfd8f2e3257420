/*
 * wake.c
 *	  How the dispatcher sleeps and wakes up: early for a single job, seldom for many.
 *
 * On an idle queue the way from a commit to the handler is mostly two sleeping processes.  So a commit that will
 * publish a job tells of it before it is flushed (publish.c: JobqDb.imminent): the dispatcher takes a turn and wakes a
 * worker, both of which find nothing, and a moment later they and their caches are awake already.  To wait there
 * for the commit without sleeping gains little more, and keeps processors from those who flush.
 *
 * Woken again and again as soon as it has gone to sleep, the dispatcher would take a turn, and a worker a
 * commit, for each job.  Then, and if nobody waits for capacity, it lets a moment's jobs come together.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "dispatcher.h"
#include "ready.h"
#include "waits.h"
#include "wake.h"

#define NAP_US			500		/* under load, between turns that left nothing waiting */
#define LINGER_US		200		/* twice what it takes to find one job */
#define QUICK_WAKE_US	200
#define QUICK_WAKES		4		/* in a row: load */

static JobqDb *db;

void
wake_init(JobqDb *mine)
{
	db = mine;
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
		executors_alert(imminent, 0);
}

void
wake_wait(long timeout)
{
	static int	quick_wakes = 0;
	MonoTime	began;

	if (quick_wakes >= QUICK_WAKES && lanes_first_ready() == NULL && !roles_wait() && !db->suspended)
		pg_usleep(NAP_US);
	began = mono_now();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
					 jobq_wait(WAIT_DISPATCHER));
	if (mono_now() - began < QUICK_WAKE_US)
		quick_wakes++;
	else
		quick_wakes = 0;
}
