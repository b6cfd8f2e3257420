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
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "schedule/conductor_start.h"
#include "shared/child_process.h"
#include "shared/publish_schedules.h"
#include "shared/worker_need.h"
#include "workflow/awaited_jobs.h"

#define RETRY_US		USECS_PER_SEC

static JobqDb *db;
static bool looked = false;
static MonoTime retry = 0;

void
conductor_start_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	looked = false;
	retry = 0;
	awaited_start(mine);
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

/* Wants the conductor if there are schedules, jobs that wait for others, or runs. */
void
conductor_start_look(void)
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
		awaited_complete(db);
	if (has_row(schedules) || has_row(runs))
		db->schedule_news.wanted = true;
}

void
conductor_start_turn(MonoTime now)
{
	if (!db->schedule_news.wanted || now < retry || db->conductor.child.pid > 0)
		return;
	retry = now + RETRY_US;
	(void) child_start(db, &db->conductor.child, WORKER_CONDUCTOR, CONDUCTOR_TYPE, "jobq_conductor_main");
}

MonoTime
conductor_start_next_timer(MonoTime now)
{
	if (!db->schedule_news.wanted)
		return DT_NOEND;
	if (!db->conductor.child.busy)
		return retry;
	return db->conductor.child.pid == 0 ? Max(retry, db->conductor.child.started + CHILD_COME_US) : DT_NOEND;
}

void
conductor_restart(void)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->conductor.child.pid > 0)
		db->conductor.restart = true;
	LWLockRelease(JobqShmem->lock);
	wake_conductor(db);
}
