/*
 * maintenance.c
 *	  The short-lived process for work that the dispatcher must not wait for.
 *
 * The dispatcher asks for tasks (MaintenanceProcess.asked) and starts the
 * process; at most one runs in a database.  It connects as the bootstrap
 * superuser, runs what is asked in the order of the tasks, partitions first,
 * over and over until nothing is asked, and ends.  Between two steps it ends
 * for DDL, too; what it did not do is left for the next one.  It waits
 * LOCK_TIMEOUT_MS for a lock and no longer, because sessions that wait behind
 * it for a parent or its default partition wait that long, too.
 *
 * The condition of a signal is SQL of a user, which may leave anything in the
 * session: it is the last task, the process ends after it, and another one
 * does the rest.
 *
 * One that hangs, in the file system say, keeps its place: health() names it.
 *
 * Exits 0, or 1 after an unexpected error.  SIGTERM is die: ddl_barrier.c
 * sends it to one that does not leave, the dispatcher to one whose condition
 * exceeds its time.
 */
#include "jobq.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/session.h"
#include "maintenance/maintenance.h"
#include "pressure/signal_condition.h"
#include "shared/child_process.h"
#include "shared/worker_need.h"

#define LOCK_TIMEOUT_MS "50"

PGDLLEXPORT void jobq_maintenance_main(Datum arg);

static JobqDb *db = NULL;
static int	running = -1;		/* the task */

bool
maintenance_start(JobqDb *for_db)
{
	return child_start(for_db, &for_db->maintenance.child, WORKER_MAINTENANCE, "jobq maintenance", "jobq_maintenance_main");
}

/* Of a task that is not wanted now the error is of the past. */
const char *
maintenance_trouble(JobqDb *of_db, char *error, size_t size)
{
	for (int i = 0; i < MAINTENANCE_TASKS; i++)
	{
		if (maintenance_tasks[i].wanted != NULL && !maintenance_tasks[i].wanted(of_db))
			continue;
		SpinLockAcquire(&of_db->mutex);
		strlcpy(error, of_db->maintenance.trouble[i], size);
		SpinLockRelease(&of_db->mutex);
		if (error[0] != '\0')
			return maintenance_tasks[i].name;
	}
	return NULL;
}

int64
maintenance_task_seconds(JobqDb *of_db)
{
	MonoTime	since = (MonoTime) pg_atomic_read_u64(&of_db->maintenance.since);

	return since == 0 ? 0 : (mono_now() - since) / USECS_PER_SEC;
}

bool
maintenance_is_awaited(JobqDb *of_db)
{
	return child_must_leave(of_db) || pg_atomic_read_u32(&of_db->maintenance.asked) != 0;
}

/* A process that has given up its place leaves the state to the next one. */
static void
maintenance_on_exit(int code, Datum arg)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->maintenance.child.pid == MyProcPid)
	{
		condition_interrupted(db);
		if (running == TASK_PARTITIONS)
			(void) pg_atomic_fetch_add_u32(&db->maintenance.failures, 1);
		pg_atomic_write_u64(&db->maintenance.since, 0);
		(void) child_detach(&db->maintenance.child);
	}
	LWLockRelease(JobqShmem->lock);
	wake_dispatcher(db);
}

/*
 * Takes the first task that is asked behind the last one, else the first; -1:
 * none is, and the place is given up.
 */
static int
take_task(int last)
{
	pg_atomic_uint32 *asked = &db->maintenance.asked;
	uint32		tasks;
	uint32		later;
	int			task = -1;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	tasks = pg_atomic_read_u32(asked);
	later = tasks & ~((UINT32_C(1) << (last + 1)) - 1);
	if (tasks != 0)
		task = pg_rightmost_one_pos32(later != 0 ? later : tasks);
	else
		(void) child_detach(&db->maintenance.child);
	LWLockRelease(JobqShmem->lock);
	if (task >= 0)
		(void) pg_atomic_fetch_and_u32(asked, ~(UINT32_C(1) << task));
	return task;
}

/* Notes the task's error for health(); "": it has succeeded. */
static void
note_trouble(int task, const char *error)
{
	char	   *trouble = db->maintenance.trouble[task];
	int			len = pg_mbcliplen(error, (int) strlen(error), sizeof(db->maintenance.trouble[task]) - 1);

	SpinLockAcquire(&db->mutex);
	memcpy(trouble, error, len);
	trouble[len] = '\0';
	SpinLockRelease(&db->mutex);
}

static void
run_task(int task)
{
	MemoryContext context = CurrentMemoryContext;

	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	running = task;
	pg_atomic_write_u64(&db->maintenance.since, (uint64) mono_now());
	PG_TRY();
	{
		maintenance_tasks[task].run(db);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		note_trouble(task, CopyErrorData()->message);
		PG_RE_THROW();
	}
	PG_END_TRY();
	note_trouble(task, "");
	pg_atomic_write_u64(&db->maintenance.since, 0);
	running = -1;
}

void
jobq_maintenance_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);
	MemoryContext step;
	int			task = -1;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	db = child_attach(dboid, offsetof(JobqDb, maintenance.child));
	before_shmem_exit(maintenance_on_exit, 0);
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	neutralise_session();
	set_for_session("search_path", "pg_catalog, pg_temp");
	set_for_session("lock_timeout", LOCK_TIMEOUT_MS);
	set_for_session("default_table_access_method", "heap");
	set_for_session("synchronous_commit", "local");
	step = AllocSetContextCreate(TopMemoryContext, "jobq maintenance", ALLOCSET_DEFAULT_SIZES);
	while (!child_must_leave(db) && (task = take_task(task)) >= 0)
	{
		MemoryContextSwitchTo(step);
		run_task(task);
		MemoryContextReset(step);
		CHECK_FOR_INTERRUPTS();
		if (task == TASK_CONDITION)
			break;
	}
	proc_exit(0);
}
