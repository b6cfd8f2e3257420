/*
 * child_process.c
 *	  The processes of which a database has at most one: see child_process.h.
 */
#include "jobq.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "shared/child_process.h"
#include "shared/process_start.h"
#include "shared/wakeups.h"
#include "shared/worker_need.h"

bool
child_must_leave(JobqDb *db)
{
	return db_must_leave(db) || db->lifecycle.refused || db->lifecycle.suspended > 0;
}

static bool
claim(JobqDb *db, ChildProcess *place)
{
	MonoTime	now = mono_now();
	bool		claimed;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	claimed = !child_must_leave(db) &&
		(!place->busy || (place->pid == 0 && now >= place->started + CHILD_COME_US));
	if (claimed)
	{
		place->busy = true;
		place->pid = 0;
		place->started = now;
	}
	LWLockRelease(JobqShmem->lock);
	return claimed;
}

bool
child_start(JobqDb *db, ChildProcess *place, uint32 kind, const char *type, const char *function)
{
	BackgroundWorker worker;
	bool		started;

	if (!claim(db, place))
		return false;
	describe_worker(&worker, type, function, db->dboid);
	started = RegisterDynamicBackgroundWorker(&worker, NULL);
	note_worker(db, kind, started);
	if (started)
		return true;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	place->busy = false;
	LWLockRelease(JobqShmem->lock);
	return false;
}

JobqDb *
child_attach(Oid dboid, Size offset)
{
	JobqDb	   *db = JobqShmem == NULL ? NULL : find_db(dboid);
	ChildProcess *place;
	bool		attached = false;

	if (db == NULL)
		proc_exit(0);
	place = (ChildProcess *) ((char *) db + offset);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == dboid && place->pid == 0)
	{
		attached = place->busy && !child_must_leave(db);
		place->busy = attached;
		if (attached)
		{
			place->pid = MyProcPid;
			place->proc = MyProc;
		}
	}
	LWLockRelease(JobqShmem->lock);
	if (!attached)
		proc_exit(0);
	return db;
}

bool
child_detach(ChildProcess *place)
{
	if (place->pid != MyProcPid)
		return false;
	place->busy = false;
	place->pid = 0;
	place->proc = NULL;
	return true;
}

bool
child_dismiss(ChildProcess *place, bool terminate)
{
	bool		runs;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	runs = place->pid > 0;
	if (runs && terminate)
		kill(place->pid, SIGTERM);
	else if (runs)
		wake_process(&place->woken, &place->proc->procLatch);
	LWLockRelease(JobqShmem->lock);
	return runs;
}
