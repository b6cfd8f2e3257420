/*
 * conductor_start.c
 *	  When the dispatcher starts the conductor: while ScheduleNews.wanted is set
 *	  and no process has the place (ConductorProcess).
 *
 * A conductor that ends by an error is followed by another one after RETRY_US.
 * No free background worker: the same, and health() is degraded.
 */
#include "jobq.h"

#include "access/table.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "schedule/conductor_start.h"
#include "shared/process_start.h"
#include "shared/publish_schedules.h"
#include "shared/worker_need.h"
#include "workflow/flow_sets.h"

#define RETRY_US		USECS_PER_SEC
#define COME_LIMIT_MS	30000	/* a registered worker that has not attached by
								 * then never will */

static JobqDb *db;
static bool looked = false;
static MonoTime retry = 0;

void
conductor_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	looked = false;
	retry = 0;
	sets_start(mine);
}

static bool
has_row(Oid relid)
{
	Relation	rel;
	TableScanDesc scan;
	Snapshot	snapshot;
	bool		found;

	rel = table_open(relid, NoLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	found = heap_getnext(scan, ForwardScanDirection) != NULL;
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	return found;
}

/* True if there may be schedules, or jobs that wait for others. */
void
conductor_look(void)
{
	Oid			schedules = jobq_relid("schedules");
	Oid			dependencies = jobq_relid("dependencies");
	Oid			runs = jobq_relid("runs");

	if (looked || (db->schedule_news.wanted && pg_atomic_read_u32(&db->awaited.complete) != 0))
		return;
	if (!lock_rows_if_free(schedules) || !lock_rows_if_free(dependencies) || !lock_rows_if_free(runs))
		return;
	looked = true;
	if (has_row(dependencies))
		db->schedule_news.wanted = true;
	else
		sets_complete(db);
	if (has_row(schedules) || has_row(runs))
		db->schedule_news.wanted = true;
}

static bool
claim(MonoTime now)
{
	bool		claimed;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	claimed = !db_must_leave(db) && db->lifecycle.suspended == 0 &&
		(!db->conductor.busy ||
		 (db->conductor.pid == 0 && mono_exceeds(db->conductor.started, now, COME_LIMIT_MS)));
	if (claimed)
	{
		db->conductor.busy = true;
		db->conductor.pid = 0;
		db->conductor.started = now;
	}
	LWLockRelease(JobqShmem->lock);
	return claimed;
}

void
conductor_turn(MonoTime now)
{
	BackgroundWorker worker;
	bool		started;

	if (!db->schedule_news.wanted || now < retry || !claim(now))
		return;
	retry = now + RETRY_US;
	describe_worker(&worker, "jobq conductor", "jobq_conductor_main", db->dboid);
	started = RegisterDynamicBackgroundWorker(&worker, NULL);
	note_worker(db, WORKER_CONDUCTOR, started);
	if (started)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->conductor.busy = false;
	LWLockRelease(JobqShmem->lock);
}

MonoTime
conductor_next_timer(MonoTime now)
{
	if (!db->schedule_news.wanted)
		return DT_NOEND;
	if (!db->conductor.busy)
		return retry;
	return db->conductor.pid == 0 ? db->conductor.started + COME_LIMIT_MS * INT64CONST(1000) : DT_NOEND;
}

void
conductor_restart(void)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->conductor.pid > 0)
		db->conductor.restart = true;
	LWLockRelease(JobqShmem->lock);
	wake_conductor(db);
}
