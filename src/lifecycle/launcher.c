/*
 * launcher.c
 *	  Keeps one dispatcher in every database that has the extension.
 *
 * One static background worker, in no database: it reads only pg_database, so
 * it can't see whether a database has the extension.  The dispatcher that it
 * starts there looks; if there is none, it sets Lifecycle.ended and exits.
 * The launcher starts no other one there until the database is wanted
 * (Lifecycle.wanted: CREATE EXTENSION at its commit, any call of jobq without
 * a dispatcher, ddl_barrier.c at its end).
 *
 * The state of each database (Supervision) is private.  A new launcher finds
 * running dispatchers by db->dispatcher.proc and never starts a second one.
 * The launcher restarts dispatchers, not the postmaster, with a delay that
 * doubles from 1 s to 1 min while they don't stay up.  It starts one at a
 * time, so that many databases can't use up the worker slots while they are
 * probed.
 *
 * SIGTERM is die (exit 1: the postmaster restarts the launcher after
 * RESTART_S), SIGHUP reloads, SIGUSR1 is PostgreSQL's; a dispatcher that
 * starts or ends makes the postmaster send it.  JobqShmem->lock is held for a
 * few loads and stores only.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/tool_env.h"
#include "lifecycle/dispatcher_supervision.h"
#include "lifecycle/launcher.h"
#include "shared/crash_record.h"
#include "shared/process_start.h"
#include "shared/shmem.h"
#include "shared/wait_events.h"
#include "shared/wakeups.h"
#include "shared/worker_need.h"

#define RESTART_S			5

static HTAB *databases = NULL;
static MonoTime last_scan = 0;

PGDLLEXPORT void jobq_launcher_main(Datum arg);

void
launcher_register(void)
{
	BackgroundWorker worker;

	describe_worker(&worker, "jobq launcher", "jobq_launcher_main", InvalidOid);
	worker.bgw_restart_time = RESTART_S;
	RegisterBackgroundWorker(&worker);
}

static void
note_database(Form_pg_database form)
{
	Supervision *k;
	bool		found;

	k = hash_search(databases, &form->oid, HASH_ENTER, &found);
	if (!found)
	{
		k->state = SUPERVISION_IDLE;
		k->handle = NULL;
		k->refused = 0;
		k->started = 0;
		k->tried = 0;
		k->next_try = 0;
		k->failures = 0;
	}
	k->exists = true;
	k->closed = !form->datallowconn && !form->datistemplate;
	k->admitted = form->datallowconn && !form->datistemplate &&
		!database_is_invalid_form(form) && database_is_admitted(NameStr(form->datname));
}

/*
 * Drops the state and the entry of a database that is gone, unless one with
 * its oid exists again.
 */
static void
forget_database(Supervision *k)
{
	JobqDb	   *db = find_db(k->dboid);

	if (k->handle)
		return;					/* its end will be noticed first */
	if (db)
	{
		LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
		if (db->dboid == k->dboid && db->dispatcher.proc == NULL)
			release_db(db);
		LWLockRelease(JobqShmem->lock);
	}
	hash_search(databases, &k->dboid, HASH_REMOVE, NULL);
}

static void
scan_databases(MonoTime now)
{
	HASH_SEQ_STATUS seq;
	Supervision *k;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	hash_seq_init(&seq, databases);
	while ((k = hash_seq_search(&seq)) != NULL)
		k->exists = k->closed = k->admitted = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		note_database((Form_pg_database) GETSTRUCT(tuple));
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();

	hash_seq_init(&seq, databases);
	while ((k = hash_seq_search(&seq)) != NULL)
	{
		if (!k->exists)
			forget_database(k);
		else if (!k->admitted)
			supervision_refuse(k);
	}
	last_scan = now;
}

/*
 * True if pg_database may have changed, or a database is wanted that the last
 * scan did not see, or saw when it was not admitted.
 */
static bool
scan_is_due(MonoTime now)
{
	HASH_SEQ_STATUS seq;
	Supervision *closed;

	if (last_scan == 0 || JobqShmem->databases_changed)
	{
		JobqShmem->databases_changed = false;
		return true;
	}
	hash_seq_init(&seq, databases);
	while ((closed = hash_seq_search(&seq)) != NULL)
	{
		if (closed->closed && mono_exceeds(last_scan, now, CLOSED_AGAIN_MS))
		{
			hash_seq_term(&seq);
			return true;
		}
	}
	for (int i = 0; i < JobqShmem->ndbs; i++)
	{
		JobqDb	   *db = &JobqShmem->dbs[i];
		Oid			dboid = db->dboid;
		Supervision *k;

		if (!OidIsValid(dboid) || !db->lifecycle.wanted)
			continue;
		k = hash_search(databases, &dboid, HASH_FIND, NULL);
		if (k == NULL ||
			(!k->admitted && mono_exceeds(last_scan, now, REFUSED_AGAIN_MS)))
			return true;
	}
	return false;
}

/*
 * Starts a dispatcher unless the database was dropped since the last scan;
 * true: it starts.
 */
static bool
start_if_still_there(Oid dboid, MonoTime now)
{
	Supervision *k;

	scan_databases(now);
	k = hash_search(databases, &dboid, HASH_FIND, NULL);
	if (k == NULL || !k->admitted || k->state != SUPERVISION_IDLE)
		return false;
	supervision_start(k, now);
	return k->state == SUPERVISION_STARTING;
}

/*
 * Updates every database, starts at most one dispatcher; returns the time to
 * sleep.
 */
static long
tend_databases(MonoTime now)
{
	HASH_SEQ_STATUS seq;
	Supervision *k;
	Supervision *next = NULL;
	bool		starting = false;
	long		timeout = -1;

	hash_seq_init(&seq, databases);
	while ((k = hash_seq_search(&seq)) != NULL)
	{
		supervision_look(k, now);
		if (k->state == SUPERVISION_STARTING)
			starting = true;
		if (supervision_may_start(k, now) && (next == NULL || k->next_try < next->next_try))
			next = k;
	}
	if (next && !starting)
		starting = start_if_still_there(next->dboid, now);

	hash_seq_init(&seq, databases);
	while ((k = hash_seq_search(&seq)) != NULL)
	{
		long		t = supervision_timeout(k, now);

		if (t == 0 && starting)
			continue;			/* due, and waits for another one's start */
		if (t >= 0 && (timeout < 0 || t < timeout))
			timeout = t;
	}
	return timeout;
}

/* Warns once, when all databases have been checked. */
static void
announce_worker_need(void)
{
	static bool announced = false;
	HASH_SEQ_STATUS seq;
	Supervision *k;
	bool		known = true;

	if (announced)
		return;
	hash_seq_init(&seq, databases);
	while ((k = hash_seq_search(&seq)) != NULL)
		known &= supervision_knows(k);
	if (!known)
		return;
	announced = true;
	warn_of_worker_need(InvalidOid);
}

static void
launcher_on_exit(int code, Datum arg)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (JobqShmem->launcher_pid == MyProcPid)
	{
		JobqShmem->launcher = NULL;
		JobqShmem->launcher_pid = 0;
	}
	LWLockRelease(JobqShmem->lock);
}

static void
launcher_attach(void)
{
	HASHCTL		ctl;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	JobqShmem->launcher = &MyProc->procLatch;
	JobqShmem->launcher_pid = MyProcPid;
	LWLockRelease(JobqShmem->lock);
	before_shmem_exit(launcher_on_exit, 0);

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Supervision);
	ctl.hcxt = TopMemoryContext;
	databases = hash_create("jobq databases", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void
jobq_launcher_main(Datum arg)
{
	MemoryContext cycle;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	launcher_attach();
	crash_record_after_restart();
	cycle = AllocSetContextCreate(TopMemoryContext, "jobq launcher cycle", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(cycle);
	tool_env_check_file();

	for (;;)
	{
		MonoTime	now;
		long		timeout;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(cycle);
		MemoryContextSwitchTo(cycle);
		wakeups_taken(&JobqShmem->launcher_woken);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			tool_env_check_file();
			last_scan = 0;
		}
		now = mono_now();
		if (scan_is_due(now))
			scan_databases(now);
		MemoryContextSwitchTo(cycle);	/* a transaction's end leaves us in another one */
		timeout = tend_databases(now);
		announce_worker_need();

		pgstat_report_activity(STATE_IDLE, NULL);
		if (!wakeup_is_due(&JobqShmem->launcher_woken))
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
							 (timeout >= 0 ? WL_TIMEOUT : 0), timeout, jobq_wait(WAIT_LAUNCHER));
		ResetLatch(MyLatch);
	}
}
