/*
 * exec_worker.c
 *	  Runs exec jobs: one process for each database that has exec types;
 *	  jobq-helper is its child.
 *
 * The dispatcher starts this process.  It is connected as the bootstrap
 * superuser and owns one slot.  A loop has one wait, for the latch (new jobs,
 * a cancel, a signal) or the helper's socket.  Each turn it
 *
 *	 handles frames from the helper	exec_messages.c: events and ends of tools
 *	 watches the helper				exec_helper_process.c: kills one that does
 *									not answer, replaces one that is lost
 *	 forwards cancels				of its cells, read under the slot's lock
 *	 settles ended jobs and claims new ones
 *									exec_transaction.c, in one transaction;
 *									then queues START frames
 *
 * No transaction is open while it waits.  exec_internal.h has the states of a
 * job.
 *
 * Signals: PostgreSQL's own.  SIGTERM is die(). At exit, on_worker_exit makes
 * the helper stop its tools (TERM, jobq.shutdown_grace, KILL). Then it settles
 * the ended jobs and puts the others back uncharged, in one last transaction
 * that waits for no standby.  When the postmaster is dead or the server
 * crashes, this process writes nothing: the helper reads end of file on its
 * socket and kills all tools.  The next dispatcher finds the rows, which are
 * still running.
 */
#include "jobq.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/relations.h"
#include "base/session.h"
#include "exec_worker/exec_internal.h"
#include "lifecycle/release.h"
#include "shared/process_start.h"
#include "shared/wait_events.h"

#define IDLE_MS			60000
#define ALONE_MS		1000	/* without a dispatcher, the extension may
								 * be gone */
#define LEAVE_GRACE_MS	500		/* for DDL, which waits for this process */
#define KILL_SLACK_MS	2000	/* time after the grace for the helper's
								 * report */
#define LEAVE_STEP_MS	100		/* a longer wait is a standstill of this
								 * process */

PGDLLEXPORT void jobq_exec_worker_main(Datum arg);

/* ---------- cancels ---------- */

/*
 * Returns the cancel of the job's cell, or CANCEL_DDL when DDL waits for all
 * processes of the database to exit.
 */
static CancelKind
requested_cancel(ExecJob *x)
{
	CancelKind	kind = slot_cancelled(x->cell, x->reason, &x->has_reason);

	if (kind == CANCEL_NONE && db_must_leave(exec_db))
		kind = CANCEL_DDL;
	return kind;
}

static void
pass_on_cancels(void)
{
	ExecJob    *x = NULL;

	while ((x = exec_jobs_next(x)) != NULL)
	{
		Frame		frame = {.type = FRAME_CANCEL};
		CancelKind	kind;

		if (x->state != EXEC_STARTED || (kind = requested_cancel(x)) == CANCEL_NONE ||
			kind == x->asked || x->asked == CANCEL_USER)
			continue;
		frame.u.cancel.job = x->number;
		frame.u.cancel.reason = FRAME_STOP_CANCEL;
		frame.u.cancel.grace_us = kind == CANCEL_USER ? (uint64) x->kill_grace_us :
			(uint64) LEAVE_GRACE_MS * 1000;
		if (helper_queue(&frame, 0))
			x->asked = kind;
	}
}

/* ---------- leaving ---------- */

/*
 * Handles frames until no tool runs or ms have passed.  Returns false if the
 * server is dead.
 *
 * Time in which this process stood still does not count: frames that arrived
 * meanwhile must be read, and the helper may have stood still too.
 */
static bool
await_ends(int ms)
{
	int64		left = (int64) ms * 1000;

	while (left > 0 && helper_socket() != PGINVALID_SOCKET && exec_jobs_count(EXEC_STARTED) > 0)
	{
		int64		step = Min(left, LEAVE_STEP_MS * INT64CONST(1000));
		int			events = WL_TIMEOUT | WL_POSTMASTER_DEATH | WL_SOCKET_READABLE;
		MonoTime	began = mono_now();

		helper_send();
		if (helper_has_output())
			events |= WL_SOCKET_WRITEABLE;
		if (WaitLatchOrSocket(NULL, events, helper_socket(), (long) (step + 999) / 1000,
							  jobq_wait(WAIT_HELPER_LEAVES)) & WL_POSTMASTER_DEATH)
			return false;
		exec_take_frames();
		left -= Min(mono_now() - began, step);
	}
	return true;
}

/*
 * Stops all tools and waits for their ends, for the grace and two slacks at
 * most.  Returns false if the server is dead.
 */
static bool
stop_tools(int grace_ms)
{
	Frame		frame = {.type = FRAME_SHUTDOWN};

	exec_stopping = true;
	frame.u.shutdown.grace_us = (uint64) grace_ms * 1000;
	helper_queue(&frame, 0);
	if (!await_ends(grace_ms + KILL_SLACK_MS))
		return false;
	if (exec_jobs_count(EXEC_STARTED) > 0)
	{
		helper_kill("it has not stopped its tools");
		if (!await_ends(KILL_SLACK_MS))
			return false;
	}
	helper_close(NULL);
	exec_jobs_helper_lost();
	return true;
}

/*
 * Stops the tools and writes their ends.  Runs in before_shmem_exit: database
 * and slot still work, and interrupts are held.  An error ends this callback
 * only.
 */
static void
on_worker_exit(int code, Datum arg)
{
	ExecJob    *x = NULL;

	if (!PostmasterIsAlive() || MySlot == NULL)
		return;
	MySlot->leaving = true;
	AbortOutOfAnyTransaction();
	exec_types_clear();
	while ((x = exec_jobs_next(x)) != NULL)
	{
		if (x->state != EXEC_STARTED)
			continue;
		/* a user's cancel that is not passed on yet ends the job for good */
		if (slot_cancelled(x->cell, x->reason, &x->has_reason) == CANCEL_USER)
			x->asked = CANCEL_USER;
		else if (x->asked == CANCEL_NONE)
			x->asked = CANCEL_TAKE_BACK;
	}
	if (!stop_tools(db_must_leave(exec_db) ? LEAVE_GRACE_MS : jobq_shutdown_grace))
		return;
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);
	exec_turn(true);
}

static void
find_exec_type(void *arg)
{
	bool	   *found = arg;

	*found = false;
	if (!OidIsValid(jobq_relid("job_types")))
		return;
	exec_types_recheck();
	SPI_connect();
	if (SPI_execute("SELECT 1 FROM jobq.job_types WHERE command IS NOT NULL AND dropped_at IS NULL",
					true, 1) == SPI_OK_SELECT)
		*found = SPI_processed > 0;
	SPI_finish();
}

/* Returns true if no job is assigned and no exec type is left. */
static bool
may_leave(void)
{
	bool		found;

	MySlot->leaving = true;
	if (!exec_has_assigned() &&
		(exec_in_transaction(find_exec_type, &found) != NULL || !found) && !exec_has_assigned())
		return true;
	MySlot->leaving = false;
	return false;
}

/* ---------- the loop ---------- */

/* Returns assigned jobs that have not begun, while DDL is under way. */
static void
give_back(void)
{
	int			cell;
	bool		any = false;

	while ((cell = slot_next()) >= 0)
	{
		slot_done(cell, REPORT_RELEASED);
		any = true;
	}
	if (any)
		slot_report();
}

static bool
is_idle(void)
{
	return exec_jobs_next(NULL) == NULL && !exec_has_assigned();
}

/*
 * Returns the time of the next turn when no latch and no socket wakes this
 * process.
 */
static MonoTime
next_turn_at(MonoTime now)
{
	MonoTime	at = exec_settle_at();

	/* a lock wait in the turn consumed the latch of jobs assigned meanwhile */
	if (exec_has_assigned())
		at = Min(at, Max(helper_socket() == PGINVALID_SOCKET ? helper_retry_at() : now, exec_claim_at()));
	at = Min(at, helper_replace_at());
	if (is_idle())
		at = Min(at, now + (exec_db->dispatcher.proc ? IDLE_MS : ALONE_MS) * INT64CONST(1000));
	return at;
}

/*
 * Exits after a SIGTERM.  Ignores pg_cancel_backend: no statement runs, and
 * tools have cancel_job.
 */
static void
process_interrupts(void)
{
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
}

/*
 * Waits for the latch, the socket or the time of the next turn.  Returns true
 * if this process was idle and the time has passed.
 */
static bool
wait_for_event(void)
{
	MonoTime	now = mono_now();
	MonoTime	at = next_turn_at(now);
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	long		timeout = -1;
	long		watch = helper_watch_in();
	bool		idle = is_idle();
	int			rc;

	helper_send();
	if (at != DT_NOEND)
		timeout = mono_ms_left(now, at);
	if (watch >= 0 && (timeout < 0 || watch < timeout))
		timeout = watch;
	if (timeout >= 0)
		events |= WL_TIMEOUT;
	if (helper_socket() != PGINVALID_SOCKET)
		events |= WL_SOCKET_READABLE | (helper_has_output() ? WL_SOCKET_WRITEABLE : 0);
	if (idle)
	{
		pgstat_report_stat(true);
		pgstat_report_activity(STATE_IDLE, NULL);
	}
	process_interrupts();		/* a commit's wait for a standby consumes the latch of a SIGTERM */
	rc = WaitLatchOrSocket(MyLatch, events, helper_socket(), timeout, jobq_wait(WAIT_EXEC_WORKER));
	ResetLatch(MyLatch);
	process_interrupts();
	if (idle)
		pgstat_report_activity(STATE_RUNNING, "jobq: running tools");
	return idle && rc == WL_TIMEOUT;
}

static void
connect_and_attach(Datum arg)
{
	WorkerStart start;

	memcpy(&start, MyBgworkerEntry->bgw_extra, sizeof(start));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(start.dboid, InvalidOid, 0);
	slot_attach(DatumGetInt32(arg), start.generation);
	exec_db = my_db();
	if (exec_db == NULL)
		proc_exit(1);
	release_require_of_worker();
	neutralise_session();
	set_for_session("search_path", "");
	set_for_session("intervalstyle", "postgres");
	ExecContext = AllocSetContextCreate(TopMemoryContext, "jobq exec worker", ALLOCSET_DEFAULT_SIZES);
	ExecTurnContext = AllocSetContextCreate(TopMemoryContext, "jobq exec turn", ALLOCSET_DEFAULT_SIZES);
	before_shmem_exit(on_worker_exit, (Datum) 0);
	exec_types_clear();
	slot_report();
}

void
jobq_exec_worker_main(Datum arg)
{
	connect_and_attach(arg);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextReset(ExecTurnContext);
		MemoryContextSwitchTo(ExecTurnContext);
		if (db_must_leave(exec_db) || exec_db->dboid != MyDatabaseId)
			proc_exit(0);
		exec_take_frames();
		if (!helper_watch(exec_jobs_count(EXEC_STARTED) > 0))
			exec_jobs_helper_lost();
		helper_replace();
		if (exec_db->lifecycle.suspended > 0)
			give_back();
		pass_on_cancels();
		exec_turn(false);
		pass_on_cancels();
		if (MySlot->dismissed && is_idle())
			proc_exit(0);
		if (wait_for_event() && may_leave())
			proc_exit(0);
	}
}
