/*
 * dispatcher.c
 *	  The process that decides which job of a database runs next, where and
 *	  when.
 *
 * The launcher starts one per database (bgw_main_arg), connected as the
 * bootstrap superuser.  It reads the queue and the registry and writes
 * nothing; executors do.  It sleeps on its latch, which is set by commits that
 * touched the queue, by executors that have a report, by DDL and by health
 * checks (wakeups.h).  Its timeout is the next time at which anything becomes
 * due.
 *
 * It takes relation locks only when they are free at once and never waits for
 * a row, a lock or a standby.
 *
 * Exits with 0 when the extension is gone, when its tables do not fit, when DDL
 * needs the database empty, for jobq.reload(), and when another dispatcher runs
 * or no entry is free; else with 1.  The next dispatcher finds the jobs in
 * flight in the slots.
 *
 *	 dispatcher_turn.c					one turn of the loop
 *	 dispatcher_parts.c					what has memory and timers of its own
 *	 hand_out_stop.c database_check.c	reasons to hand out nothing, wait, end
 *	 inbox.c unknown_prepared.c			publications, prepared transactions
 *	 lane_reader.c						when lanes are read
 *	 hand_out.c							handing out in order
 *	 admission.c						changes of types, limits and signals
 *	 why_answers.c						answers to jobq.why
 *	 wakeup_filter.c					early wake-ups, and those saved
 *	 statistics.c held_lanes.c			for views: totals, lanes and limits
 *	 lanes/ limits/ pressure/ workers/	jobs that wait, limits, executors
 */
#include "jobq.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/session.h"
#include "dispatch/database_check.h"
#include "dispatch/dispatcher_parts.h"
#include "dispatch/dispatcher_turn.h"
#include "dispatch/hand_out_stop.h"
#include "dispatch/statistics.h"
#include "dispatch/trouble.h"
#include "dispatch/wakeup_filter.h"
#include "schedule/conductor_start.h"
#include "shared/wait_events.h"
#include "shared/wakeups.h"
#include "workers/cancel_requests.h"
#include "workers/claimers.h"
#include "workers/executor_reports.h"
#include "workers/take_back.h"

static JobqDb *db;
static MemoryContext lasting;	/* lives as long as the process */
static MemoryContext turn;		/* reset every turn */

static StatWakeup woken_by = WAKEUP_OTHER;

PGDLLEXPORT void jobq_dispatcher_main(Datum arg);

/* Answers health() and DDL: the turn before is over. */
static void
answer_ping(void)
{
	uint64		ping = pg_atomic_read_u64(&db->health.ping);

	pg_read_barrier();			/* DDL suspends the dispatcher before it pings */
	pg_atomic_write_u64(&db->health.pong, ping);
}

static void
sleep_until_needed(void)
{
	MonoTime	now = mono_now();
	long		timeout = db->lifecycle.suspended ? 1000 : reload_is_due() ? 0 :
		dispatcher_turn_sleep_ms(now);

	pg_atomic_write_u64(&db->health.beat, (uint64) now);
	trouble_turn();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	statistics_note_turn(woken_by);
	woken_by = WAKEUP_OTHER;
	if (timeout > 0 && (db->lifecycle.suspended || !wakeup_filter_settle()) && !wakeup_is_due(&db->dispatcher.woken) &&
		(WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout,
				   jobq_wait(WAIT_DISPATCHER)) & WL_TIMEOUT) != 0)
		woken_by = WAKEUP_TIMER;
	if (db->ring.head != db->ring.tail)
		woken_by = WAKEUP_COMMIT;
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	pgstat_report_activity(STATE_RUNNING, "jobq: dispatching");
	answer_ping();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		dispatcher_turn_settings_changed();
	}
	if (reload_is_due())
	{
		conductor_restart();
		reload();
	}
}

/* ---------- the process ---------- */

static void
dispatcher_on_exit(int code, Datum arg)
{
	cancels_leave();
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	if (db->dispatcher.proc == MyProc)
	{
		db->dispatcher.proc = NULL;
		db->dispatcher.pid = 0;
	}
	LWLockRelease(JobqShmem->lock);
	wake_launcher();
}

static void
attach(Oid dboid)
{
	bool		taken;

	db = make_db(dboid);
	if (db == NULL)
		proc_exit(0);
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	taken = db->dispatcher.proc != NULL;
	if (!taken)
	{
		db->dispatcher.proc = MyProc;
		db->dispatcher.pid = MyProcPid;
		db->dispatcher.started = GetCurrentTimestamp();
		db->dispatcher.starts++;
		db->lifecycle.ended = ENDED_OTHERWISE;
	}
	LWLockRelease(JobqShmem->lock);
	if (taken)
		proc_exit(0);
	on_shmem_exit(dispatcher_on_exit, 0);
	check_init(db);
	stop_init(db);
	trouble_init(db);
}

static void
start_up(void)
{
	lasting = AllocSetContextCreate(TopMemoryContext, "jobq dispatcher", ALLOCSET_DEFAULT_SIZES);
	turn = AllocSetContextCreate(TopMemoryContext, "jobq turn", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(lasting);
	parts_init(lasting, db);
	StartTransactionCommand();
	parts_recover();
	CommitTransactionCommand();
}

/*
 * Gives way to DDL: hands out and reads nothing, holds no lock of a table of
 * the extension.
 */
static void
suspended_turn(void)
{
	StartTransactionCommand();
	(void) claimers_take();
	claimers_answer();
	executors_take_back(true);
	(void) executor_reports_take(mono_now());
	CommitTransactionCommand();
	if (db_must_leave(db) && !executors_any())
	{
		db->lifecycle.ended = ENDED_GAVE_WAY;
		proc_exit(0);
	}
}

void
jobq_dispatcher_main(Datum arg)
{
	Oid			dboid = DatumGetObjectId(arg);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	attach(dboid);
	neutralise_session();
	set_for_session("search_path", "");
	set_for_session("synchronous_commit", "off");
	StartTransactionCommand();
	check_extension();
	CommitTransactionCommand();
	db->dispatcher.sql_workers = jobq_max_sql_workers;
	wake_launcher();			/* it adds up the workers of all databases */
	wait_until_fit();
	start_up();

	for (;;)
	{
		MemoryContextReset(turn);
		MemoryContextSwitchTo(turn);
		wakeups_taken(&db->dispatcher.woken);
		leave_if_refused();
		if (db->lifecycle.suspended || db_must_leave(db))
			suspended_turn();
		else if (dispatcher_turn() && woken_by == WAKEUP_OTHER)
			woken_by = WAKEUP_REPORT;
		MemoryContextSwitchTo(turn);
		sleep_until_needed();
	}
}
