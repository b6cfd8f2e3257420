/*
 * housekeeping.c
 *	  The short-lived process for work that no job waits for: retention by
 *	  number, the disk watch, the queue's free space, events of breakers that
 *	  clients opened or closed, the count of all rows for the statistics.
 *
 * The dispatcher starts it once a minute, when there are such breakers, and
 * when the counts of rows are not right any more; at
 * most one runs in a database (HousekeepingProcess.busy).  It is not the
 * maintenance process, because jobs wait for the partitions of that one, while
 * a file system may block this one (disk_watch.c) and retention may have much
 * to do.  The process connects as the bootstrap superuser and acts as the
 * owner of jobq's tables.  Every step is a transaction of its own; a step that
 * finds a table in use is left to the next minute.
 *
 * Exits 0, or 1 after an unexpected error.  SIGTERM is die; ddl_barrier.c
 * sends it when the database must be empty.
 */
#include "jobq.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "base/session.h"
#include "maintenance/disk_watch.h"
#include "maintenance/gauges.h"
#include "maintenance/housekeeping.h"
#include "maintenance/queue_space.h"
#include "settle/breaker_news.h"
#include "shared/process_start.h"
#include "shared/worker_need.h"
#include "tables/live_counts.h"

#define LOCK_TIMEOUT_MS "50"
#define COME_LIMIT_MS	30000	/* a registered worker that has not attached by
								 * then never will */
#define RETAIN_MS		10000	/* of retention in one run */

PGDLLEXPORT void jobq_chores_main(Datum arg);

static JobqDb *my_chores = NULL;

/* ---------- the dispatcher's side ---------- */

static bool
claim(JobqDb *db)
{
	MonoTime	now = mono_now();
	bool		claimed;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	claimed = !db_must_leave(db) && (!db->housekeeping.busy ||
							 (db->housekeeping.pid == 0 &&
							  mono_exceeds(db->housekeeping.started, now, COME_LIMIT_MS)));
	if (claimed)
	{
		db->housekeeping.busy = true;
		db->housekeeping.pid = 0;
		db->housekeeping.started = now;
	}
	LWLockRelease(JobqShmem->lock);
	return claimed;
}

bool
chores_start(JobqDb *db)
{
	BackgroundWorker worker;
	bool		started;

	if (!claim(db))
		return false;
	describe_worker(&worker, "jobq chores", "jobq_chores_main", db->dboid);
	started = RegisterDynamicBackgroundWorker(&worker, NULL);
	note_worker(db, WORKER_CHORES, started);
	if (started)
		return true;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->housekeeping.busy = false;
	LWLockRelease(JobqShmem->lock);
	return false;
}

/* ---------- the process ---------- */

static void
chores_on_exit(int code, Datum arg)
{
	JobqDb	   *db = my_chores;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->housekeeping.pid == MyProcPid)
	{
		db->housekeeping.busy = false;
		db->housekeeping.pid = 0;
	}
	LWLockRelease(JobqShmem->lock);
}

/*
 * Attaches to the place that chores_start() took; exits if the place is
 * another process's.
 */
static void
attach(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);

	if (db == NULL)
		proc_exit(0);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == dboid && db->housekeeping.busy && db->housekeeping.pid == 0 && !db_must_leave(db))
	{
		db->housekeeping.pid = MyProcPid;
		my_chores = db;
	}
	LWLockRelease(JobqShmem->lock);
	if (my_chores == NULL)
		proc_exit(0);
	before_shmem_exit(chores_on_exit, 0);
}

typedef struct Chore
{
	bool		(*what) (void *);
	void	   *arg;
} Chore;

static bool
as_owner(void *arg)
{
	Chore	   *chore = arg;
	bool		answer = false;
	Oid			save_user;
	int			save_context;

	PushActiveSnapshot(GetTransactionSnapshot());
	if (OidIsValid(get_extension_oid("jobq", true)))
	{
		GetUserIdAndSecContext(&save_user, &save_context);
		SetUserIdAndSecContext(jobq_owner(), save_context | SECURITY_LOCAL_USERID_CHANGE |
							   SECURITY_RESTRICTED_OPERATION);
		answer = chore->what(chore->arg);
		SetUserIdAndSecContext(save_user, save_context);
	}
	PopActiveSnapshot();
	return answer;
}

/*
 * Calls what(arg) as the owner of jobq's tables, in a transaction.  Returns
 * its result, or false if a table was in use.
 */
static bool
in_transaction(bool (*what) (void *), void *arg)
{
	Chore		chore = {what, arg};

	return try_transaction("chores", as_owner, &chore);
}

/* Returns the result of a query of one boolean; false for NULL. */
static bool
ask(void *query)
{
	bool		isnull;
	bool		answer;

	pgstat_report_activity(STATE_RUNNING, query);
	SPI_connect();
	if (SPI_execute(query, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not execute \"%s\"", (char *) query);
	answer = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return answer && !isnull;
}

static bool
count_live(void *db)
{
	pgstat_report_activity(STATE_RUNNING, "jobq: counting rows");
	return live_counts_ensure(db);
}

/* Deletes surplus rows for at most RETAIN_MS. */
static void
retain(void)
{
	MonoTime	start = mono_now();

	while (in_transaction(ask, "SELECT jobq_internal._retain()") &&
		   !mono_exceeds(start, mono_now(), RETAIN_MS))
		CHECK_FOR_INTERRUPTS();
}

static bool
record(void *filesystems)
{
	pgstat_report_activity(STATE_RUNNING, "SELECT jobq_internal._log_disk($1, $2, $3, $4, $5)");
	disk_record(filesystems);
	return true;
}

/* Drops the expired partitions of all tables that this database has. */
static bool
expire_all(void *unused)
{
	return ask("SELECT bool_and(jobq_internal._expire_partitions(p.parent) IS NOT NULL)"
			   "  FROM (VALUES ('jobq.events'), ('jobq.alerts'), ('jobq.artifacts'), ('jobq.history'),"
			   "               ('jobq.audit')) n(name),"
			   "       LATERAL (SELECT to_regclass(n.name)) p(parent)"
			   " WHERE p.parent IS NOT NULL");
}

/* Measures the disks; drops expired partitions if one is nearly full. */
static void
watch_disks(void)
{
	List	   *filesystems;

	pgstat_report_activity(STATE_RUNNING, "jobq: measuring disks");
	filesystems = disk_measure();
	if (!in_transaction(record, filesystems))
		return;
	if (disk_announce(my_chores, filesystems) >= DISK_CRITICAL)
		in_transaction(expire_all, NULL);
}

void
jobq_chores_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (JobqShmem == NULL)
		proc_exit(1);
	attach(dboid);
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	neutralise_session();
	set_for_session("search_path", "pg_catalog, pg_temp");
	set_for_session("lock_timeout", LOCK_TIMEOUT_MS);
	set_for_session("synchronous_commit", "local");
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "jobq chores", ALLOCSET_DEFAULT_SIZES));
	breaker_tell_for_clients(my_chores);
	(void) in_transaction(count_live, my_chores);
	retain();
	watch_disks();
	pgstat_report_activity(STATE_RUNNING, "jobq: measuring the queue");
	(void) in_transaction(queue_space_measure, my_chores);
	pgstat_report_activity(STATE_RUNNING, "SELECT jobq_internal._gauges()");
	(void) in_transaction(gauges_read, my_chores);
	proc_exit(0);
}
