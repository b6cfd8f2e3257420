/*
 * sql_worker.c
 *	  Runs SQL jobs: one process, connected as one role, until nobody needs it.
 *
 * Started by the dispatcher for a role that has ready jobs; owns one slot (slots.h).  It takes the jobs
 * it is handed in order: locks the row's very version, runs the handler in a subtransaction
 * (handler.c), settles (settle.c) and commits, so effects and completion are one transaction.
 * Short jobs share a commit while their company cannot notice; when that fails, each is run again
 * alone and nobody is charged.  Then it tells the dispatcher how each cell ended.
 *
 * Bookkeeping reads and writes jobq's tables past the executor, so it needs no right on them, and
 * the process is never anybody but its role.  Cancel interrupts are held off outside the handler.
 *
 * Signals: PostgreSQL's own.  SIGTERM is die(): the transaction is rolled back and the process
 * leaves with 1.  SIGINT cancels the handler; it is sent under the slot's lock only while one runs.
 * SIGQUIT notes in the in-flight record that the postmaster stopped us.
 */
#include "jobq.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "handler.h"
#include "inflight.h"
#include "session.h"
#include "settle.h"
#include "waits.h"
#include "worker_role.h"
#include "worker_start.h"

#define IDLE_EXIT_MS		60000
#define MAX_BATCH_US		20000	/* no new job is begun in a transaction older than that */
#define MAX_BATCH_JOBS		128
#define SLOW_RUN_US			100000

typedef struct Entry
{
	int			cell;
	Job			job;
	Run			run;
	Verdict		verdict;
	TimestampTz need;
	bool		settled;		/* settle() has written; true when the commit succeeds */
	JobStatus	status;
} Entry;

typedef struct Batch
{
	int			n;
	Entry		entries[MAX_BATCH_JOBS];
	Ledger		ledger;
	TimestampTz started;
	int			subxids;		/* assigned so far */
	int			most_subxids;	/* that one job has taken */
} Batch;

static JobqDb *db;
static MemoryContext batch_context;
static Batch *batch;
static int	held_cell = -1;		/* begun, but must not share the batch before it */

PGDLLEXPORT void jobq_sql_worker_main(Datum arg);

/* ---------- identity and settings ---------- */

/* ---------- one job ---------- */

static bool
is_alone(int cell)
{
	return (MySlot->cells[cell].ref.flags & (REF_ALONE | REF_AGAIN)) != 0;
}

/* An attempt that ended before this worker was handed the job. */
static bool
prior_outcome(Cell *cell, Run *run)
{
	Outcome    *o = &run->outcome;

	memset(o, 0, sizeof(Outcome));
	o->progress = get_float8_nan();
	o->ended_at = GetCurrentTimestamp();
	o->source = "sql";
	o->worker = MySlot->name;
	if (cell->ref.flags & REF_CANCEL)
	{
		o->kind = OUTCOME_CANCELLED;
		o->source = "client";
		o->message = cell->has_reason ? cell->reason : NULL;
		return true;
	}
	o->kind = OUTCOME_FAILED;
	o->started_at = o->ended_at;
	if (cell->ref.flags & REF_TIMED_OUT)
	{
		o->code = "timeout";
		o->message = run->type == NULL ? "timeout" :
			psprintf("%s, ignored by the handler: its process was ended", handler_timeout_message(run));
		return true;
	}
	if (cell->ref.flags & REF_DIED)
	{
		o->code = "57P01";
		o->message = "the worker process was terminated while the handler ran";
		return true;
	}
	if (cell->ref.flags & (REF_CRASHED | REF_LOST))
	{
		o->code = "server_crash";
		o->message = "the server crashed while the handler ran";
		o->crashed = true;
		return true;
	}
	return false;
}

static void
no_such_type(Entry *e)
{
	Cell	   *cell = &MySlot->cells[e->cell];

	(void) prior_outcome(cell, &e->run);
	e->run.outcome.permanent = true;
	e->run.outcome.code = "42704";
	e->run.outcome.message = psprintf("job type %d no longer exists", cell->ref.type_id);
}

/* Will the completion find its partitions?  Asked before the handler has done anything. */
static bool
partition_ready(Job *job, JobType *type, TimestampTz *need)
{
	if (EVENTS_WANTED(type, EVENTS_ALL) && !events_ready(&batch->ledger.events, batch->started))
	{
		*need = batch->started;
		return false;
	}
	return !history_keeps(job, type, batch->started, need) ||
		ledger_open_history(&batch->ledger, *need);
}

static void
settle_entry(Entry *e)
{
	e->run.outcome.worker = MySlot->name;
	e->status = settle(&batch->ledger, &e->job, e->run.type, &e->run.outcome, &e->need);
	if (e->need != 0)
	{
		e->verdict = VERDICT_NO_PARTITION;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq has no partition for %s", timestamptz_to_str(e->need))));
	}
	e->settled = true;
	e->verdict = VERDICT_SETTLED;
}

static void
run_handler_of(Entry *e, Cell *cell)
{
	e->run.shared = batch->n > 1;
	e->run.stray_before = (cell->ref.flags & REF_AGAIN) != 0;
	inflight_begin(&cell->ref.id);
	handler_run(&e->run);
	inflight_end();
	cell->run_us = (int32) Min(e->run.outcome.ended_at - e->run.outcome.started_at, PG_INT32_MAX);
	switch (e->run.end)
	{
		case RUN_OUTCOME:
			settle_entry(e);
			break;
		case RUN_ALONE:
			e->verdict = VERDICT_ALONE;
			break;
		case RUN_RELEASED:
			e->verdict = VERDICT_RELEASED;
			break;
	}
}

static void
run_one(int cellno)
{
	Cell	   *cell = &MySlot->cells[cellno];
	Entry	   *e = &batch->entries[batch->n++];
	JobType    *type;

	memset(e, 0, sizeof(Entry));
	e->cell = cellno;
	e->run.cell = cellno;
	e->run.job = &e->job;
	e->run.context = batch_context;
	slot_enter(cellno, PHASE_SETTLING);
	if (queue_lock(&batch->ledger.queue, &cell->ref, &e->job) != LOCK_OK)
	{
		e->verdict = VERDICT_NOT_MINE;
		return;
	}
	type = e->run.type = job_type_by_id(cell->ref.type_id);
	if (type == NULL)
		no_such_type(e);
	else if (!prior_outcome(cell, &e->run))
	{
		if (!worker_role_fits(type))
		{
			MySlot->leaving = true;
			e->verdict = VERDICT_RELEASED;
		}
		else if (partition_ready(&e->job, type, &e->need))
		{
			e->need = 0;
			run_handler_of(e, cell);
		}
		else
			e->verdict = VERDICT_NO_PARTITION;
		return;
	}
	settle_entry(e);
}

/* ---------- a batch ---------- */

/* Does this transaction hold a lock that the next job would notice? */
static bool
holds_lasting_lock(void)
{
	bool		found = false;

	for (int i = 0; i < NUM_LOCK_PARTITIONS && !found; i++)
	{
		PROCLOCK   *pl;

		if (my_locks_empty(i))
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		for (pl = my_locks_first(i); pl != NULL && !found; pl = my_locks_next(i, pl))
		{
			LOCKTAG    *tag = &pl->tag.myLock->tag;

			found = tag->locktag_type == LOCKTAG_ADVISORY ||
				(tag->locktag_type == LOCKTAG_RELATION &&
				 (pl->holdMask & LOCKBIT_ON(AccessExclusiveLock)) != 0);
		}
		LWLockRelease(LockHashPartitionLockByIndex(i));
	}
	return found;
}

/* A snapshot is dearer for everybody when PGPROC can't hold our subtransactions: room for two more jobs like the worst. */
static bool
subxids_left(void)
{
	int			count = MyProc->subxidStatus.count;

	batch->most_subxids = Max(batch->most_subxids, count - batch->subxids);
	batch->subxids = count;
	return !MyProc->subxidStatus.overflowed && count + 2 * batch->most_subxids <= PGPROC_MAX_CACHED_SUBXIDS;
}

/* May another job join the transaction that the last entry ran in? */
static bool
batch_goes_on(void)
{
	Entry	   *last = &batch->entries[batch->n - 1];
	Cell	   *cell = &MySlot->cells[last->cell];

	if (batch->n == MAX_BATCH_JOBS || is_alone(last->cell) || db->suspended || db->leave ||
		db_is_paused(db))
		return false;
	if (last->verdict == VERDICT_NOT_MINE)
		return true;
	if (last->verdict != VERDICT_SETTLED || last->run.closes_batch ||
		(last->run.type && !last->run.type->batch))
		return false;
	if (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE)
		return false;
	if (cell->run_us > SLOW_RUN_US || last->run.outcome.ended_at - batch->started > MAX_BATCH_US)
		return false;
	return subxids_left() && !holds_lasting_lock();
}

static void
run_batch_jobs(int cell)
{
	for (;;)
	{
		run_one(cell);
		CommandCounterIncrement();
		if (!batch_goes_on())
			return;
		cell = slot_next();
		if (cell < 0)
			return;
		if (is_alone(cell))
		{
			held_cell = cell;
			return;
		}
	}
}

/* What a job may have left in the session; the plan cache stays. */
static void
reset_session(void)
{
	bool		temp = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;

	LockReleaseSession(USER_LOCKMETHOD);
	DropAllPreparedStatements();
	PortalHashTableDeleteAll();
	ResetSequenceCaches();
	if (temp)
	{
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());	/* deleting from the catalogs needs one */
		ResetTempTableNamespace();
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
}

static void
report_entries(void)
{
	for (int i = 0; i < batch->n; i++)
	{
		Entry	   *e = &batch->entries[i];
		Cell	   *cell = &MySlot->cells[e->cell];

		cell->need = e->need;
		if (e->verdict == VERDICT_SETTLED)
		{
			pg_atomic_fetch_add_u64(&db->settled, 1);
			if (e->run.outcome.kind == OUTCOME_FAILED)
				pg_atomic_fetch_add_u64(&db->failed_attempts, 1);
			if (e->status >= JOB_COMPLETED)
				wake_waiters(db, &cell->ref.id, e->status);
		}
		slot_done(e->cell, e->verdict);
	}
	slot_report();
}

/* A job alone whose commit or bookkeeping failed: that is how its attempt ended. */
static void
charge_failed_commit(Entry *e, ErrorData *edata)
{
	Cell	   *cell = &MySlot->cells[e->cell];

	e->verdict = VERDICT_STUCK;
	PG_TRY();
	{
		StartTransactionCommand();
		HOLD_CANCEL_INTERRUPTS();
		PushActiveSnapshot(GetTransactionSnapshot());	/* what TOAST may need */
		MemoryContextSwitchTo(batch_context);
		ledger_open(&batch->ledger);
		if (queue_lock(&batch->ledger.queue, &cell->ref, &e->job) == LOCK_OK)
		{
			TimestampTz started = e->run.outcome.started_at;

			e->run.type = job_type_by_id(cell->ref.type_id);	/* the former went with its transaction */
			memset(&e->run.outcome, 0, sizeof(Outcome));
			e->run.outcome.kind = OUTCOME_FAILED;
			e->run.outcome.progress = get_float8_nan();
			e->run.outcome.source = "sql";
			e->run.outcome.started_at = started;
			e->run.outcome.ended_at = GetCurrentTimestamp();
			e->run.outcome.message = edata->message;
			e->run.outcome.code = pstrdup(unpack_sql_state(edata->sqlerrcode));
			e->run.outcome.log = e->run.log;
			settle_entry(e);
		}
		else
			e->verdict = VERDICT_NOT_MINE;
		ledger_close(&batch->ledger);
		PopActiveSnapshot();
		CommitTransactionCommand();
		RESUME_CANCEL_INTERRUPTS();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		e->settled = false;
		if (e->verdict == VERDICT_SETTLED)
			e->verdict = VERDICT_STUCK;
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
}

/* The transaction is gone with everything in it: decide what becomes of each job. */
static void
batch_failed(ErrorData *edata)
{
	bool		partition = false;

	for (int i = 0; i < batch->n; i++)
		partition |= batch->entries[i].verdict == VERDICT_NO_PARTITION;
	if (!partition && batch->n == 1)
	{
		charge_failed_commit(&batch->entries[0], edata);
		return;
	}
	for (int i = 0; i < batch->n; i++)
	{
		Entry	   *e = &batch->entries[i];

		e->settled = false;
		if (e->verdict == VERDICT_SETTLED)
			e->verdict = partition ? VERDICT_RELEASED : VERDICT_ALONE;
	}
}

static void
run_batch(int cell)
{
	MemoryContextReset(batch_context);
	batch = MemoryContextAlloc(batch_context, sizeof(Batch));
	batch->n = batch->subxids = batch->most_subxids = 0;
	batch->started = GetCurrentTimestamp();
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		HOLD_CANCEL_INTERRUPTS();
		PushActiveSnapshot(GetTransactionSnapshot());	/* what TOAST may need */
		MemoryContextSwitchTo(batch_context);
		ledger_open(&batch->ledger);
		batch->ledger.together = true;
		run_batch_jobs(cell);
		ledger_close(&batch->ledger);
		PopActiveSnapshot();
		CommitTransactionCommand();
		RESUME_CANCEL_INTERRUPTS();
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(batch_context);
		edata = CopyErrorData();
		if (edata->sqlerrcode != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
			EmitErrorReport();
		AbortOutOfAnyTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		QueryCancelPending = false;
		batch_failed(edata);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(TopMemoryContext);
	if (batch->n == 0)
		slot_done(cell, VERDICT_STUCK); /* the queue could not even be opened */
	report_entries();
	reset_session();
	pgstat_report_stat(false);
}

/* ---------- the process ---------- */

/* DDL is under way: nothing is begun; what we were handed goes back. */
static void
give_back(void)
{
	int			cell;

	while ((cell = held_cell >= 0 ? held_cell : slot_next()) >= 0)
	{
		held_cell = -1;
		slot_done(cell, VERDICT_RELEASED);
	}
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
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	pgstat_report_activity(STATE_RUNNING, "jobq: running jobs");
}

static void
wait_for_end_of_pause(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 2, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
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
	inflight_attach(DatumGetInt32(arg), start.dboid);
	neutralise_session();
	set_for_session("role", "none");
	db = my_db();
	batch_context = AllocSetContextCreate(TopMemoryContext, "jobq batch", ALLOCSET_DEFAULT_SIZES);
	slot_report();

	for (;;)
	{
		int			cell;

		CHECK_FOR_INTERRUPTS();
		if (db->suspended || db->leave)
			give_back();
		if (db_is_paused(db))
		{
			wait_for_end_of_pause();
			continue;
		}
		cell = held_cell >= 0 ? held_cell : slot_next();
		held_cell = -1;
		if (cell >= 0)
			run_batch(cell);
		else if (MySlot->leaving || db->leave)
			proc_exit(0);
		else
			wait_for_work();
	}
}
