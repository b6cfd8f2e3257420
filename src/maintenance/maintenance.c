/*
 * maintenance.c
 *	  The short-lived process that makes partitions ahead of need and drops
 *	  expired ones.
 *
 * The dispatcher starts it and writes nothing itself; at most one runs in a
 * database (MaintenanceProcess.busy).  The process connects as the bootstrap
 * superuser, acts as the owner of jobq's tables, and calls
 * jobq_internal._maintain(), in a transaction each, until that has made all
 * partitions or no further one.  It waits LOCK_TIMEOUT_MS for a lock and no
 * longer, because sessions that wait behind it for a parent or its default
 * partition wait that long, too.  No job waits for this process.  The next run
 * does the work that a run could not do; the dispatcher decides when
 * (MaintenanceProcess.done, .failed).
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
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "base/session.h"
#include "maintenance/maintenance.h"
#include "shared/process_start.h"
#include "shared/worker_need.h"

#define LOCK_TIMEOUT_MS "50"
#define MAINTAIN		"SELECT jobq_internal._maintain()"
#define COME_LIMIT_MS	30000	/* a registered worker that has not attached by
								 * then never will */

PGDLLEXPORT void jobq_maintenance_main(Datum arg);

static JobqDb *maintained = NULL;
static bool succeeded = false;

/* ---------- the dispatcher's side ---------- */

/* Takes the database's one place; false if another process has it. */
static bool
claim(JobqDb *db)
{
	MonoTime	now = mono_now();
	bool		claimed;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	claimed = !db_must_leave(db) && (!db->maintenance.busy ||
							 (db->maintenance.pid == 0 &&
							  mono_exceeds(db->maintenance.started, now, COME_LIMIT_MS)));
	if (claimed)
	{
		db->maintenance.busy = true;
		db->maintenance.pid = 0;
		db->maintenance.started = now;
	}
	LWLockRelease(JobqShmem->lock);
	return claimed;
}

bool
maintenance_start(JobqDb *db)
{
	BackgroundWorker worker;
	bool		started;

	if (!claim(db))
		return false;
	describe_worker(&worker, "jobq maintenance", "jobq_maintenance_main", db->dboid);
	started = RegisterDynamicBackgroundWorker(&worker, NULL);
	note_worker(db, WORKER_MAINTENANCE, started);
	if (started)
		return true;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->maintenance.busy = false;
	LWLockRelease(JobqShmem->lock);
	return false;
}

/* ---------- the process ---------- */

static void
maintenance_on_exit(int code, Datum arg)
{
	JobqDb	   *db = maintained;

	if (db == NULL)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->maintenance.pid == MyProcPid)
	{
		db->maintenance.busy = false;
		db->maintenance.pid = 0;
		if (succeeded)
			db->maintenance.done++;
		else
			db->maintenance.failed++;
	}
	LWLockRelease(JobqShmem->lock);
	wake_dispatcher(db);
}

/*
 * Attaches to the place that maintenance_start() took; exits if the place is
 * another process's.
 */
static void
attach(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);

	if (db == NULL)
		proc_exit(0);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == dboid && db->maintenance.busy && db->maintenance.pid == 0 && !db_must_leave(db))
	{
		db->maintenance.pid = MyProcPid;
		maintained = db;
	}
	LWLockRelease(JobqShmem->lock);
	if (maintained == NULL)
		proc_exit(0);
	before_shmem_exit(maintenance_on_exit, 0);
}

/* Returns the number of partitions that are still missing. */
static int32
call_maintain(void)
{
	int32		missing;
	bool		isnull;

	SPI_connect();
	if (SPI_execute(jobq_internal_sql(MAINTAIN), false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not execute \"%s\"", MAINTAIN);
	missing = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return missing;
}

/* Calls it as the owner of jobq's tables. */
static bool
maintain(void *missing)
{
	Oid			save_user;
	int			save_context;

	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, MAINTAIN);
	if (OidIsValid(get_extension_oid("jobq", true)))
	{
		GetUserIdAndSecContext(&save_user, &save_context);
		SetUserIdAndSecContext(jobq_owner(), save_context | SECURITY_LOCAL_USERID_CHANGE |
							   SECURITY_RESTRICTED_OPERATION);
		*(int32 *) missing = call_maintain();
		SetUserIdAndSecContext(save_user, save_context);
	}
	PopActiveSnapshot();
	return true;
}

/* Maintains until nothing is missing (true), or a run has made no partition. */
static bool
maintain_all(void)
{
	int32		before;
	int32		missing = PG_INT32_MAX;

	do
	{
		before = missing;
		missing = 0;
		if (!try_transaction("maintenance", maintain, &missing))
			return false;
	} while (missing > 0 && missing < before);
	return missing == 0;
}

void
jobq_maintenance_main(Datum arg)
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
	set_for_session("default_table_access_method", "heap");
	set_for_session("synchronous_commit", "local");
	succeeded = maintain_all();
	proc_exit(0);
}
