/*
 * sql_worker.c
 *	  Runs SQL jobs: one process, connected as one role, until no job needs it.
 *
 * Started by the dispatcher for a role that has ready jobs; owns one slot
 * (slots.h).  It takes the jobs of the slot in order: locks the row's very
 * version, runs the handler in a subtransaction (handler.c), settles
 * (settle.c) and commits, so effects and completion are one transaction
 * (sql_job.c).  Short jobs share a commit (sql_batch.c).
 *
 * Bookkeeping reads and writes jobq's tables past the executor, so it needs no
 * right on them, and the process never has another identity than its role.
 * Cancel interrupts are held off outside the handler.
 *
 * Signals: PostgreSQL's own.  SIGTERM is die(): the transaction is rolled back
 * and the process exits with 1.  SIGINT cancels the handler; it is sent under
 * the slot's lock only while one runs.  SIGQUIT notes in the crash record that
 * the postmaster stopped this process.
 */
#include "jobq.h"

#include <signal.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "base/session.h"
#include "lifecycle/release.h"
#include "shared/crash_record.h"
#include "shared/process_start.h"
#include "shared/wait_events.h"
#include "sql_worker/sql_batch.h"
#include "sql_worker/stray_connections.h"

#define IDLE_EXIT_MS		60000

static JobqDb *db;

PGDLLEXPORT void jobq_sql_worker_main(Datum arg);

/*
 * Returns all jobs of the slot that have not begun: DDL is under way, or this
 * process ends.
 */
static void
give_back(void)
{
	int			cell;

	while ((cell = sql_batch_next()) >= 0)
		slot_done(cell, REPORT_RELEASED);
	slot_report();
}

static void
wait_for_work(void)
{
	int			rc;

	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	rc = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, IDLE_EXIT_MS,
				   jobq_wait(WAIT_SQL_WORKER));
	ResetLatch(MyLatch);
	slot_linger();
	if (rc & WL_TIMEOUT)
		MySlot->leaving = true;
	CHECK_FOR_INTERRUPTS();
	pgstat_report_activity(STATE_RUNNING, "jobq: running jobs");
}

static void
connect_as_role(const WorkerStart *start)
{
	uint32		flags = 0;

#ifdef BGWORKER_BYPASS_ROLELOGINCHECK
	flags |= BGWORKER_BYPASS_ROLELOGINCHECK;
#endif
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(start->dboid, start->roleid, flags);
}

void
jobq_sql_worker_main(Datum arg)
{
	WorkerStart start;

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	connect_as_role(&start);
	slot_attach(DatumGetInt32(arg), start.generation);
	crash_record_attach(DatumGetInt32(arg), start.dboid);
	neutralise_session();
	set_for_session("role", "none");
	db = my_db();
	release_require_of_worker();
	sql_batch_init();
	stray_connections_init();
	slot_report();

	for (;;)
	{
		int			cell;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (db->lifecycle.suspended || db_must_leave(db))
			give_back();
		cell = sql_batch_next();
		if (cell >= 0)
		{
			sql_batch_run(cell);
			if (stray_connections_found())
			{
				MySlot->leaving = true;
				give_back();
			}
		}
		else if (MySlot->leaving || MySlot->dismissed || db_must_leave(db))
			proc_exit(0);
		else
			wait_for_work();
	}
}
