/*
 * maintenance.c
 *	  The short-lived process that makes partitions ahead of need and drops
 *	  expired ones.
 *
 * The dispatcher starts it and writes nothing itself; at most one runs in a
 * database (MaintenanceProcess.busy).  The process connects as the bootstrap
 * superuser, acts as the owner of jobq's tables, and calls
 * jobq_internal._maintain(need) in one transaction.  It waits LOCK_TIMEOUT_MS
 * for a lock and no longer, because sessions that wait behind it for the
 * parents of history and events wait that long, too.  The next run does the
 * work that a run could not do; the dispatcher decides when
 * (MaintenanceProcess.done, .failed).
 *
 * Exits 0, or 1 after an unexpected error.  SIGTERM is die; ddl_barrier.c
 * sends it when the database must be empty.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
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
#include "tables/partition.h"

#define LOCK_TIMEOUT_MS "50"
#define MAINTAIN		"SELECT jobq_internal._maintain($1)"
#define COME_LIMIT_MS	30000	/* a registered worker that has not attached by
								 * then never will */

PGDLLEXPORT void jobq_maintenance_main(Datum arg);
PGDLLEXPORT void jobq_partition_main(Datum arg);

static JobqDb *maintained = NULL;
static bool succeeded = false;

/* ---------- the dispatcher's side ---------- */

/* Takes the database's one place; false if another process has it. */
static bool
claim(JobqDb *db, TimestampTz need)
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
		db->maintenance.need = need;
	}
	LWLockRelease(JobqShmem->lock);
	return claimed;
}

bool
maintenance_start(JobqDb *db, TimestampTz need)
{
	BackgroundWorker worker;
	bool		started;

	if (!claim(db, need))
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

/* ---------- a client's side ---------- */

bool
maintenance_make_partitions(TimestampTz need)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	bool		started;

	StaticAssertStmt(sizeof(need) <= BGW_EXTRALEN, "a moment fits into bgw_extra");
	describe_worker(&worker, "jobq maintenance", "jobq_partition_main", MyDatabaseId);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &need, sizeof(need));
	started = RegisterDynamicBackgroundWorker(&worker, &handle);
	if (my_db() != NULL)
		note_worker(my_db(), WORKER_MAINTENANCE, started);
	if (!started)
		return false;
	(void) WaitForBackgroundWorkerShutdown(handle);
	pfree(handle);
	return true;
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
static TimestampTz
attach(Oid dboid)
{
	JobqDb	   *db = find_db(dboid);
	TimestampTz need = 0;

	if (db == NULL)
		proc_exit(0);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dboid == dboid && db->maintenance.busy && db->maintenance.pid == 0 && !db_must_leave(db))
	{
		db->maintenance.pid = MyProcPid;
		need = db->maintenance.need;
		maintained = db;
	}
	LWLockRelease(JobqShmem->lock);
	if (maintained == NULL)
		proc_exit(0);
	before_shmem_exit(maintenance_on_exit, 0);
	return need;
}

static void
call_maintain(TimestampTz need)
{
	Oid			argtypes[1] = {TIMESTAMPTZOID};
	Datum		args[1] = {TimestampTzGetDatum(need)};
	char		nulls[1] = {need == 0 ? 'n' : ' '};

	SPI_connect();
	if (SPI_execute_with_args(MAINTAIN, 1, argtypes, args, nulls, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", MAINTAIN);
	SPI_finish();
}

/* Calls what(need) as the owner of jobq's tables. */
static void
call_as_owner(void (*what) (TimestampTz), TimestampTz need, const char *activity)
{
	Oid			save_user;
	int			save_context;

	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, activity);
	if (OidIsValid(get_extension_oid("jobq", true)))
	{
		GetUserIdAndSecContext(&save_user, &save_context);
		SetUserIdAndSecContext(jobq_owner(), save_context | SECURITY_LOCAL_USERID_CHANGE |
							   SECURITY_RESTRICTED_OPERATION);
		what(need);
		SetUserIdAndSecContext(save_user, save_context);
	}
	PopActiveSnapshot();
}

static bool
maintain(void *arg)
{
	call_as_owner(call_maintain, *(TimestampTz *) arg, MAINTAIN);
	return true;
}

static bool
make_partitions(void *arg)
{
	call_as_owner(partitions_ensure, *(TimestampTz *) arg, "jobq: making partitions");
	return true;
}

static void
handle_signals(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
}

static void
connect_to(Oid dboid)
{
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	neutralise_session();
	set_for_session("search_path", "pg_catalog, pg_temp");
	set_for_session("lock_timeout", LOCK_TIMEOUT_MS);
	set_for_session("default_table_access_method", "heap");
	set_for_session("synchronous_commit", "local");
}

void
jobq_maintenance_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);
	TimestampTz need;

	handle_signals();
	if (JobqShmem == NULL)
		proc_exit(1);
	need = attach(dboid);
	connect_to(dboid);
	succeeded = try_transaction("maintenance", maintain, &need);
	proc_exit(0);
}

/*
 * Makes partitions for a client that waits (partitions_make).  This process
 * has no place in shared memory and blocks no other.
 */
void
jobq_partition_main(Datum arg)
{
	TimestampTz need;

	memcpy(&need, MyBgworkerEntry->bgw_extra, sizeof(need));
	handle_signals();
	connect_to(DatumGetObjectId(arg));
	(void) try_transaction("maintenance", make_partitions, &need);
	proc_exit(0);
}
