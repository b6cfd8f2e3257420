/*
 * dispatcher_supervision.c
 *	  The launcher's state of one database: its dispatcher, and when to start one.
 *
 *	 IDLE -> STARTING		registered			STARTING -> RUNNING		it has attached
 *	 STARTING, RUNNING -> IDLE			it has ended; next_try says when the next one is due
 *	 STARTING, RUNNING -> ABSENT		it has ended and found no extension
 *	 ABSENT -> IDLE						it is wanted (Lifecycle.wanted)
 *
 * This state is the launcher's own.  A new launcher's begins as IDLE, and
 * turns RUNNING where it finds a dispatcher that the launcher before it has
 * started. That dispatcher has no handle here, so the launcher polls for its
 * end.
 */
#include "jobq.h"

#include <signal.h>

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lifecycle/dispatcher_supervision.h"
#include "shared/breaker.h"
#include "shared/child_process.h"
#include "shared/process_start.h"
#include "shared/slots.h"
#include "shared/worker_need.h"

#define FIRST_DELAY_MS		1000
#define LAST_DELAY_MS		60000
#define ATTACH_POLL_MS		50		/* while a dispatcher attaches, or executors leave */
#define ATTACH_LIMIT_MS		10000	/* then the next one may start */
#define LEAVE_LIMIT_MS		5000	/* after DROP EXTENSION; then a new dispatcher may start all the same */
#define ADOPTED_POLL_MS		2000	/* the postmaster notifies the former launcher of its end */
#define NO_SLOT_DELAY_MS	5000
#define OBEY_MS				1000	/* then processes of a refused database are terminated */
#define WARN_INTERVAL_MS	60000

static MonoTime last_warning = 0;

static bool
may_warn(MonoTime now)
{
	if (!mono_exceeds(last_warning, now, WARN_INTERVAL_MS))
		return false;
	last_warning = now;
	return true;
}

/*
 * True if all processes of jobq have left the database.  JobqShmem->lock is
 * held.
 */
static bool
is_empty(JobqDb *db)
{
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (slot->in_use && !slot->dead && slot->dboid == db->dboid)
			return false;
	}
	return db->dispatcher.proc == NULL && !db->maintenance.child.busy;
}

/*
 * Ends Lifecycle.restart when all processes have left after DROP EXTENSION:
 * new ones see the current catalogs.  Frees the entry of a database without
 * extension.
 */
static void
tidy_entry(Oid dboid, MonoTime now)
{
	JobqDb	   *db = find_db(dboid);

	if (db == NULL || !(db->lifecycle.restart || db->lifecycle.ended == ENDED_ABSENT))
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == dboid && db->lifecycle.restart &&
		(is_empty(db) || mono_exceeds(db->lifecycle.suspended_at, now, LEAVE_LIMIT_MS)))
	{
		breakers_forget(db);
		db->lifecycle.restart = false;
	}
	if (db->dboid == dboid && db->lifecycle.ended == ENDED_ABSENT && !db->lifecycle.wanted &&
		db->lifecycle.suspended == 0 && is_empty(db))
		release_db(db);
	LWLockRelease(JobqShmem->lock);
}

static bool
is_wanted(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);

	return db != NULL && db->lifecycle.wanted;
}

static bool
restart_is_pending(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);

	return db != NULL && db->lifecycle.restart;
}

/* Records the end of the dispatcher, and the time of the next start. */
static void
dispatcher_ended(Supervision *k, MonoTime now)
{
	JobqDb	   *db = find_db(k->dboid);
	bool		absent = true;	/* without an entry: the dispatcher, or DROP DATABASE, has freed it */
	int			delay;

	if (db)
		absent = db->lifecycle.ended == ENDED_ABSENT && !db->lifecycle.wanted;
	if (k->handle)
		pfree(k->handle);
	k->handle = NULL;
	k->state = absent ? SUPERVISION_ABSENT : SUPERVISION_IDLE;

	if (db && db->lifecycle.ended != ENDED_OTHERWISE)
	{
		k->failures = 0;		/* a regular end; it may be wanted again */
		k->tried = 0;
		k->next_try = now;
		return;
	}
	if (db && (MonoTime) pg_atomic_read_u64(&db->health.beat) > k->started)
		k->failures = 0;		/* it has worked, and was terminated */
	delay = Min(FIRST_DELAY_MS << Min(k->failures, 6), LAST_DELAY_MS);
	k->next_try = now + delay * INT64CONST(1000);
	k->failures++;
}

static void
look_at_dispatcher(Supervision *k, MonoTime now)
{
	JobqDb	   *db = find_db(k->dboid);
	bool		attached = db != NULL && db->dispatcher.proc != NULL;
	pid_t		pid;

	if (k->handle && GetBackgroundWorkerPid(k->handle, &pid) == BGWH_STOPPED)
		dispatcher_ended(k, now);
	else if (k->handle == NULL && k->state >= SUPERVISION_STARTING && !attached)
		dispatcher_ended(k, now);

	if (k->state == SUPERVISION_STARTING &&
		(attached || mono_exceeds(k->started, now, ATTACH_LIMIT_MS)))
		k->state = SUPERVISION_RUNNING;
	if (attached && k->state < SUPERVISION_STARTING)
		k->state = SUPERVISION_RUNNING;	/* a former launcher's */
}

/*
 * Shortens a delay because of Lifecycle.wanted, but not below the first one:
 * failing starts must not spin.
 */
static void
heed_wish(Supervision *k, MonoTime now)
{
	MonoTime	soonest = k->state == SUPERVISION_ABSENT ? now :
		k->tried + FIRST_DELAY_MS * INT64CONST(1000);

	k->state = SUPERVISION_IDLE;
	k->next_try = Min(k->next_try, soonest);
}

/* True if a refused database has a process that is to leave. */
static bool
is_occupied(const JobqDb *db)
{
	return db->dispatcher.proc != NULL || db->conductor.child.busy || db->maintenance.child.busy;
}

/*
 * Makes the dispatcher of a refused database and its children leave; one may
 * just have started, or read its settings again.
 */
static void
refuse_processes(Supervision *k, MonoTime now)
{
	JobqDb	   *db = find_db(k->dboid);
	bool		late;

	if (db == NULL || (db->lifecycle.refused && !is_occupied(db)))
		return;
	if (k->refused == 0)
		k->refused = now;
	late = mono_exceeds(k->refused, now, OBEY_MS);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == k->dboid)
	{
		db->lifecycle.refused = true;
		pg_atomic_write_u32(&db->lacking, 0);
		if (late && db->dispatcher.proc != NULL && db->dispatcher.pid > 0)
			kill(db->dispatcher.pid, SIGTERM);
	}
	LWLockRelease(JobqShmem->lock);
	wake_dispatcher(db);
	(void) child_dismiss(&db->conductor.child, late);
	(void) child_dismiss(&db->maintenance.child, late);
}

static void
admit_processes(Supervision *k)
{
	JobqDb	   *db = find_db(k->dboid);

	k->refused = 0;
	if (db == NULL || !db->lifecycle.refused)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == k->dboid)
		db->lifecycle.refused = false;
	LWLockRelease(JobqShmem->lock);
}

/* Updates the state by its dispatcher and by requests. */
void
supervision_look(Supervision *k, MonoTime now)
{
	look_at_dispatcher(k, now);
	if (k->admitted)
		admit_processes(k);
	else
		refuse_processes(k, now);
	tidy_entry(k->dboid, now);
	if (k->admitted && k->state < SUPERVISION_STARTING && is_wanted(k->dboid))
		heed_wish(k, now);
}

bool
supervision_may_start(Supervision *k, MonoTime now)
{
	return k->state == SUPERVISION_IDLE && k->admitted && k->next_try <= now &&
		!restart_is_pending(k->dboid);
}

static bool
register_dispatcher(Supervision *k)
{
	BackgroundWorker worker;
	MemoryContext old;
	bool		ok;

	describe_worker(&worker, "jobq dispatcher", "jobq_dispatcher_main", k->dboid);
	worker.bgw_notify_pid = MyProcPid;

	old = MemoryContextSwitchTo(TopMemoryContext);	/* the handle lives as long as the worker */
	ok = RegisterDynamicBackgroundWorker(&worker, &k->handle);
	MemoryContextSwitchTo(old);
	if (!ok)
		k->handle = NULL;
	return ok;
}

void
supervision_start(Supervision *k, MonoTime now)
{
	JobqDb	   *db = make_db(k->dboid);
	bool		make_way;

	k->next_try = now + NO_SLOT_DELAY_MS * INT64CONST(1000);
	if (db == NULL)
	{
		k->tried = now;
		if (may_warn(now))
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("jobs of database %u don't run: jobq.max_databases (%d) are in use",
							k->dboid, jobq_max_databases),
					 errhint("Increase jobq.max_databases and restart the server.")));
		return;
	}
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	make_way = db_must_leave(db);
	if (!make_way)
	{
		db->lifecycle.wanted = false;
		db->lifecycle.ended = ENDED_OTHERWISE;
	}
	LWLockRelease(JobqShmem->lock);
	if (make_way)
		return;					/* ddl_barrier.c wakes the launcher at the end */

	k->tried = now;
	if (!register_dispatcher(k))
	{
		note_worker(db, WORKER_DISPATCHER, false);
		if (may_warn(now))
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("could not start a jobq dispatcher: out of background worker slots"),
					 errhint("%s", worker_hint(k->dboid))));
		return;
	}
	note_worker(db, WORKER_DISPATCHER, true);
	k->state = SUPERVISION_STARTING;
	k->started = now;
}

/* Returns the time until the state needs attention, in ms; -1: none. */
long
supervision_timeout(Supervision *k, MonoTime now)
{
	JobqDb	   *db = find_db(k->dboid);

	if (k->state == SUPERVISION_STARTING || restart_is_pending(k->dboid))
		return ATTACH_POLL_MS;	/* no notification comes */
	if (!k->admitted && db != NULL && is_occupied(db))
		return REFUSED_AGAIN_MS;
	if (k->state == SUPERVISION_RUNNING)
		return k->handle ? -1 : ADOPTED_POLL_MS;
	if (!k->admitted)
		return is_wanted(k->dboid) ? REFUSED_AGAIN_MS : k->closed ? CLOSED_AGAIN_MS : -1;
	if (k->state == SUPERVISION_ABSENT)
		return -1;
	return mono_ms_left(now, k->next_try);
}

/*
 * Refuses a database that jobq.databases leaves out, a template, or one
 * without connections.
 */
void
supervision_refuse(Supervision *k)
{
	JobqDb	   *db = find_db(k->dboid);

	if (db == NULL)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == k->dboid)
		db->lifecycle.wanted = false;
	LWLockRelease(JobqShmem->lock);
	refuse_processes(k, mono_now());
}

bool
supervision_knows(Supervision *k)
{
	JobqDb	   *db = find_db(k->dboid);

	if (!k->admitted || k->state == SUPERVISION_ABSENT)
		return true;
	if (k->state == SUPERVISION_IDLE)
		return k->tried != 0;
	return k->state == SUPERVISION_RUNNING &&
		(db == NULL || db->dispatcher.proc == NULL || db->lifecycle.ended == ENDED_ABSENT ||
		 db->dispatcher.sql_workers != SQL_WORKERS_UNKNOWN);
}
