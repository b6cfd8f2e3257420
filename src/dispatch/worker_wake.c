/*
 * worker_wake.c
 *	  Wakes dispatcher and worker before the first job of an idle queue is
 *	  there.
 *
 * On an idle queue the way from a commit to the handler is mostly the wake-up
 * of two sleeping processes.  So a commit that will publish a job announces it
 * before its flush (publish_jobs.c: PublicationRing.imminent).  The dispatcher
 * takes a turn and wakes a worker.  Both find nothing, and a moment later they
 * and their caches are awake already.  To wait there for the commit without
 * sleeping gains little more, and takes processors from backends that flush.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "dispatch/worker_wake.h"
#include "workers/executor_pool.h"

#define LINGER_US		200		/* twice the time to find one job */

static JobqDb *db;

void
worker_wake_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
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
		executors_alert(keys.type_id, LINGER_US);
	else if (imminent != 0 && may_hand_out)
		executors_alert(imminent, 0);
}
