/*
 * launcher.c
 *	  Keeps one dispatcher in every database that has the extension.
 *
 * One static background worker, in no database: it reads pg_database and nothing else, so it can't see
 * whether a database has the extension.  The dispatcher it starts there looks, and if there is none it
 * sets db->absent and leaves; such a database is left alone until somebody wants it (db->wanted:
 * CREATE EXTENSION at its commit, any jobq call without a dispatcher, ddl.c when it is done).
 *
 * Its own notes on each database (Keeper) are private; a new launcher finds running dispatchers by
 * db->dispatcher and never starts a second one.  Dispatchers are not restarted by the postmaster but
 * by us, with a delay that doubles from 1 s to 1 min while they don't stay up.  At most one is being
 * started at a time, so many databases can't use up the worker slots while they are probed.
 *
 * SIGTERM is die (exit 1: the postmaster restarts us after RESTART_S), SIGHUP reloads, SIGUSR1 is
 * PostgreSQL's; a dispatcher that starts or ends makes the postmaster send it.  JobqShmem->lock is
 * held for a few loads and stores only.
 */
#include "jobq.h"

#include <signal.h>

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
#include "utils/varlena.h"

#include "inflight.h"
#include "launcher.h"
#include "slots.h"

#define RESTART_S			5
#define FIRST_DELAY_MS		1000
#define LAST_DELAY_MS		60000
#define STAYED_UP_MS		60000	/* who ran for so long starts with the first delay again */
#define ATTACH_POLL_MS		50		/* while a dispatcher attaches, or executors leave */
#define ATTACH_LIMIT_MS		10000	/* then the next one may start */
#define LEAVE_LIMIT_MS		5000	/* after DROP EXTENSION; then a new dispatcher may come all the same */
#define ADOPTED_POLL_MS		2000	/* the postmaster tells a former launcher of its end, not us */
#define NO_SLOT_DELAY_MS	5000
#define WARN_INTERVAL_MS	60000
#define SCAN_INTERVAL_MS	1000

typedef enum KeeperState
{
	KEEPER_IDLE,				/* to be started at next_try */
	KEEPER_ABSENT,				/* looked: no extension */
	KEEPER_STARTING,			/* registered, not attached */
	KEEPER_RUNNING
} KeeperState;

typedef struct Keeper
{
	Oid			dboid;			/* hash key */
	KeeperState state;
	bool		exists;			/* seen by the last scan */
	bool		admitted;		/* no template, allows connections, in jobq.databases */
	BackgroundWorkerHandle *handle; /* NULL: none, or a former launcher's */
	TimestampTz started;
	TimestampTz next_try;
	int			failures;		/* ends in a row without having stayed up */
} Keeper;

static HTAB *keepers = NULL;
static TimestampTz last_scan = 0;
static TimestampTz last_warning = 0;

PGDLLEXPORT void jobq_launcher_main(Datum arg);

void
launcher_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = RESTART_S;
	strlcpy(worker.bgw_library_name, "jobq", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "jobq_launcher_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "jobq launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "jobq launcher", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

bool
launcher_admits(const char *dbname)
{
	char	   *raw = pstrdup(jobq_databases);
	List	   *names = NIL;
	ListCell   *lc;
	bool		admitted;

	/* the check hook has seen to the syntax */
	if (!SplitGUCList(raw, ',', &names))
		return false;
	admitted = names == NIL;
	foreach(lc, names)
	{
		if (strcmp((char *) lfirst(lc), dbname) == 0)
			admitted = true;
	}
	list_free(names);
	pfree(raw);
	return admitted;
}

static bool
may_warn(TimestampTz now)
{
	if (!TimestampDifferenceExceeds(last_warning, now, WARN_INTERVAL_MS))
		return false;
	last_warning = now;
	return true;
}

static void
note_database(Form_pg_database form)
{
	Keeper	   *k;
	bool		found;

	k = hash_search(keepers, &form->oid, HASH_ENTER, &found);
	if (!found)
	{
		k->state = KEEPER_IDLE;
		k->handle = NULL;
		k->started = 0;
		k->next_try = 0;
		k->failures = 0;
	}
	k->exists = true;
	k->admitted = form->datallowconn && !form->datistemplate &&
		!database_is_invalid_form(form) && launcher_admits(NameStr(form->datname));
}

/* The database is gone: so is its entry, unless somebody made it anew meanwhile. */
static void
forget_database(Keeper *k)
{
	JobqDb	   *db = find_db(k->dboid);

	if (k->handle)
		return;					/* its end will be noticed first */
	if (db)
	{
		LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
		if (db->dboid == k->dboid && db->dispatcher == NULL)
			db->dboid = InvalidOid;
		LWLockRelease(JobqShmem->lock);
	}
	hash_search(keepers, &k->dboid, HASH_REMOVE, NULL);
}

/* A dispatcher where there should be none (jobq.databases changed, or the database became a template). */
static void
end_dispatcher(Keeper *k)
{
	JobqDb	   *db = find_db(k->dboid);

	if (k->handle)
		TerminateBackgroundWorker(k->handle);
	else if (db)
	{
		LWLockAcquire(JobqShmem->lock, LW_SHARED);
		if (db->dboid == k->dboid && db->dispatcher != NULL && db->dispatcher_pid > 0)
			kill(db->dispatcher_pid, SIGTERM);
		LWLockRelease(JobqShmem->lock);
	}
}

static void
scan_databases(TimestampTz now)
{
	HASH_SEQ_STATUS seq;
	Keeper	   *k;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	hash_seq_init(&seq, keepers);
	while ((k = hash_seq_search(&seq)) != NULL)
		k->exists = k->admitted = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		note_database((Form_pg_database) GETSTRUCT(tuple));
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();

	hash_seq_init(&seq, keepers);
	while ((k = hash_seq_search(&seq)) != NULL)
	{
		if (!k->exists)
			forget_database(k);
		else if (!k->admitted && k->state >= KEEPER_STARTING)
			end_dispatcher(k);
	}
	last_scan = now;
}

/* Has everybody left the database?  JobqShmem->lock is held. */
static bool
is_empty(JobqDb *db)
{
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (slot->in_use && !slot->dead && slot->dboid == db->dboid)
			return false;
	}
	return db->dispatcher == NULL && !db->maintenance_busy;
}

/*
 * After DROP EXTENSION, everybody has left: whoever comes now sees what is there.  And the entry of a
 * database without extension is free for others.
 */
static void
tidy_entry(Oid dboid, TimestampTz now)
{
	JobqDb	   *db = find_db(dboid);

	if (db == NULL || !(db->restart || db->absent))
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == dboid && db->restart &&
		(is_empty(db) || TimestampDifferenceExceeds(db->suspended_at, now, LEAVE_LIMIT_MS)))
	{
		db->restart = false;
		db->leave = db->leaving > 0;
	}
	if (db->dboid == dboid && db->absent && !db->wanted && db->suspended == 0 && is_empty(db))
		db->dboid = InvalidOid;
	LWLockRelease(JobqShmem->lock);
}

static bool
restart_is_pending(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);

	return db != NULL && db->restart;
}

/* Its dispatcher has ended: remember why, and when to try again. */
static void
dispatcher_ended(Keeper *k, TimestampTz now)
{
	JobqDb	   *db = find_db(k->dboid);
	bool		absent = true;	/* without an entry: the dispatcher, or DROP DATABASE, has freed it */
	int			delay;

	if (db)
		absent = db->absent && !db->wanted;
	if (k->handle)
		pfree(k->handle);
	k->handle = NULL;
	k->state = absent ? KEEPER_ABSENT : KEEPER_IDLE;

	if (db && db->absent)
	{
		k->failures = 0;		/* it did what it should; somebody has wanted it meanwhile */
		k->next_try = now;
		return;
	}
	if (TimestampDifferenceExceeds(k->started, now, STAYED_UP_MS))
		k->failures = 0;
	delay = Min(FIRST_DELAY_MS << Min(k->failures, 6), LAST_DELAY_MS);
	k->next_try = TimestampTzPlusMilliseconds(now, delay);
	k->failures++;
}

/* Brings a note up to date with what its dispatcher does. */
static void
look_at_dispatcher(Keeper *k, TimestampTz now)
{
	JobqDb	   *db = find_db(k->dboid);
	bool		attached = db != NULL && db->dispatcher != NULL;
	pid_t		pid;

	if (k->handle && GetBackgroundWorkerPid(k->handle, &pid) == BGWH_STOPPED)
		dispatcher_ended(k, now);
	else if (k->handle == NULL && k->state >= KEEPER_STARTING && !attached)
		dispatcher_ended(k, now);

	if (k->state == KEEPER_STARTING &&
		(attached || TimestampDifferenceExceeds(k->started, now, ATTACH_LIMIT_MS)))
		k->state = KEEPER_RUNNING;
	if (attached && k->state < KEEPER_STARTING)
		k->state = KEEPER_RUNNING;	/* a former launcher's */
}

/* db->wanted cuts a delay short, but not below the first one: a dispatcher that fails must not spin. */
static void
heed_wish(Keeper *k, TimestampTz now)
{
	TimestampTz soonest = k->started == 0 || k->state == KEEPER_ABSENT ? now :
		TimestampTzPlusMilliseconds(k->started, FIRST_DELAY_MS);

	k->state = KEEPER_IDLE;
	k->next_try = Min(k->next_try, soonest);
}

static bool
is_wanted(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);

	return db != NULL && db->wanted;
}

/* Somebody wants a database that the last scan did not see, or saw when it was not admitted. */
static bool
scan_is_due(TimestampTz now)
{
	if (last_scan == 0)
		return true;
	for (int i = 0; i < JobqShmem->ndbs; i++)
	{
		JobqDb	   *db = &JobqShmem->dbs[i];
		Oid			dboid = db->dboid;
		Keeper	   *k;

		if (!OidIsValid(dboid) || !db->wanted)
			continue;
		k = hash_search(keepers, &dboid, HASH_FIND, NULL);
		if (k == NULL ||
			(!k->admitted && TimestampDifferenceExceeds(last_scan, now, SCAN_INTERVAL_MS)))
			return true;
	}
	return false;
}

static bool
register_dispatcher(Keeper *k)
{
	BackgroundWorker worker;
	MemoryContext old;
	bool		ok;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "jobq", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "jobq_dispatcher_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "jobq dispatcher for database %u", k->dboid);
	strlcpy(worker.bgw_type, "jobq dispatcher", sizeof(worker.bgw_type));
	worker.bgw_main_arg = ObjectIdGetDatum(k->dboid);
	worker.bgw_notify_pid = MyProcPid;

	old = MemoryContextSwitchTo(TopMemoryContext);	/* the handle lives as long as the worker */
	ok = RegisterDynamicBackgroundWorker(&worker, &k->handle);
	MemoryContextSwitchTo(old);
	if (!ok)
		k->handle = NULL;
	return ok;
}

static void
start_dispatcher(Keeper *k, TimestampTz now)
{
	JobqDb	   *db = make_db(k->dboid);
	bool		make_way;

	k->next_try = TimestampTzPlusMilliseconds(now, NO_SLOT_DELAY_MS);
	if (db == NULL)
	{
		if (may_warn(now))
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("jobs of database %u don't run: jobq.max_databases (%d) are in use",
							k->dboid, jobq_max_databases),
					 errhint("Increase jobq.max_databases and restart the server.")));
		return;
	}
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	make_way = db->leave;
	if (!make_way)
		db->wanted = db->absent = false;
	LWLockRelease(JobqShmem->lock);
	if (make_way)
		return;					/* ddl.c wakes us when it is done */

	if (!register_dispatcher(k))
	{
		db->wanted = true;
		if (may_warn(now))
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("could not start a jobq dispatcher: out of background worker slots"),
					 errhint("You might need to increase max_worker_processes.")));
		return;
	}
	k->state = KEEPER_STARTING;
	k->started = now;
}

/* The database may have been dropped since the last scan.  true: a dispatcher starts. */
static bool
start_if_still_there(Oid dboid, TimestampTz now)
{
	Keeper	   *k;

	scan_databases(now);
	k = hash_search(keepers, &dboid, HASH_FIND, NULL);
	if (k == NULL || !k->admitted || k->state != KEEPER_IDLE)
		return false;
	start_dispatcher(k, now);
	return k->state == KEEPER_STARTING;
}

/* How long we may sleep because of this one; -1: for ever. */
static long
time_until_needed(Keeper *k, TimestampTz now)
{
	if (k->state == KEEPER_STARTING || restart_is_pending(k->dboid))
		return ATTACH_POLL_MS;	/* nobody tells us */
	if (k->state == KEEPER_RUNNING)
		return k->handle ? -1 : ADOPTED_POLL_MS;
	if (k->state == KEEPER_ABSENT || !k->admitted)
		return -1;
	return TimestampDifferenceMilliseconds(now, k->next_try);
}

/* Looks at every database, starts at most one dispatcher; returns how long to sleep. */
static long
tend_databases(TimestampTz now)
{
	HASH_SEQ_STATUS seq;
	Keeper	   *k;
	Keeper	   *next = NULL;
	bool		starting = false;
	long		timeout = -1;

	hash_seq_init(&seq, keepers);
	while ((k = hash_seq_search(&seq)) != NULL)
	{
		look_at_dispatcher(k, now);
		tidy_entry(k->dboid, now);
		if (k->admitted && k->state < KEEPER_STARTING && is_wanted(k->dboid))
			heed_wish(k, now);
		if (k->state == KEEPER_STARTING)
			starting = true;
		if (k->state == KEEPER_IDLE && k->admitted && k->next_try <= now &&
			!restart_is_pending(k->dboid) && (next == NULL || k->next_try < next->next_try))
			next = k;
	}
	if (next && !starting)
		starting = start_if_still_there(next->dboid, now);

	hash_seq_init(&seq, keepers);
	while ((k = hash_seq_search(&seq)) != NULL)
	{
		long		t = time_until_needed(k, now);

		if (t == 0 && starting)
			continue;			/* due, and waits for the one that starts */
		if (t >= 0 && (timeout < 0 || t < timeout))
			timeout = t;
	}
	return timeout;
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
	ctl.entrysize = sizeof(Keeper);
	ctl.hcxt = TopMemoryContext;
	keepers = hash_create("jobq databases", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
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
	inflight_after_restart();
	cycle = AllocSetContextCreate(TopMemoryContext, "jobq launcher cycle", ALLOCSET_SMALL_SIZES);

	for (;;)
	{
		TimestampTz now;
		long		timeout;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(cycle);
		MemoryContextSwitchTo(cycle);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			last_scan = 0;
		}
		now = GetCurrentTimestamp();
		if (scan_is_due(now))
			scan_databases(now);
		MemoryContextSwitchTo(cycle);	/* a transaction's end leaves us in another one */
		timeout = tend_databases(now);

		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
						 (timeout >= 0 ? WL_TIMEOUT : 0), timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}
