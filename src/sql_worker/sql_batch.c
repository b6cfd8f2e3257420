/*
 * sql_batch.c
 *	  Jobs that share a commit.
 *
 * Short jobs share a commit while no handler can notice.  When the commit
 * fails, each job is run again alone, uncharged.  Then the dispatcher gets a
 * report for each cell.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "settle/breaker_news.h"
#include "sql_worker/sql_batch.h"
#include "workflow/release_children.h"

#define MAX_BATCH_US		20000	/* no new job is begun in a transaction older than that */
#define SLOW_RUN_US			100000
#define BATCH_MEMORY		(1024 * 1024)	/* kept between batches: free() would return it to the system */

static JobqDb *db;
static MemoryContext batch_context;
static Batch *batch;
static int	held_cell = -1;		/* begun, but must not share the batch before it */

void
sql_batch_init(void)
{
	db = my_db();
	batch_context = AllocSetContextCreate(TopMemoryContext, "jobq batch", BATCH_MEMORY,
										  ALLOCSET_DEFAULT_INITSIZE, ALLOCSET_DEFAULT_MAXSIZE);
}

int
sql_batch_next(void)
{
	int			cell = held_cell >= 0 ? held_cell : slot_next();

	held_cell = -1;
	return cell;
}

/* ---------- which jobs share a transaction ---------- */

static bool
is_alone(int cell)
{
	return (MySlot->cells[cell].ref.flags & (REF_ALONE | REF_AGAIN)) != 0;
}

/* True if this transaction holds a lock that the next job would notice. */
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

/*
 * True if PGPROC has room for the subtransactions of two more jobs like the
 * worst.  Beyond that room every session's snapshot costs more.
 */
static bool
subxids_left(void)
{
	int			count = MyProc->subxidStatus.count;

	batch->most_subxids = Max(batch->most_subxids, count - batch->subxids);
	batch->subxids = count;
	return !MyProc->subxidStatus.overflowed && count + 2 * batch->most_subxids <= PGPROC_MAX_CACHED_SUBXIDS;
}

/* True if another job may join the transaction that the last entry ran in. */
static bool
batch_goes_on(void)
{
	Entry	   *last = &batch->entries[batch->n - 1];
	Cell	   *cell = &MySlot->cells[last->cell];

	if (batch->n == SQL_BATCH_JOBS || is_alone(last->cell) || db->lifecycle.suspended || db_must_leave(db))
		return false;
	if (last->report == REPORT_NOT_MINE)
		return true;
	if (last->report != REPORT_SETTLED || last->run.closes_batch ||
		(last->run.type && !last->run.type->batch))
		return false;
	if (last->breaker.failed)
		return false;			/* it may be the one that opens the breaker */
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
		sql_entry_run(batch, cell, batch_context);
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

/* Releases the jobs that wait for nothing but the ends of this batch. */
static void
release_children(void)
{
	EndedParents parents = {0};

	for (int i = 0; i < batch->n; i++)
	{
		Entry	   *e = &batch->entries[i];

		if (e->report == REPORT_SETTLED)
			parents_add(&parents, &e->job, e->status);
	}
	parents_release_children(&parents);
}

/* Removes what a job may have left in the session; the plan cache stays. */
static void
reset_session(void)
{
	bool		temp = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;

	LockReleaseSession(USER_LOCKMETHOD);
	DropAllPreparedStatements();
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

		if (e->report == REPORT_SETTLED)
		{
			breaker_note(&e->breaker, &cell->ref.id);
			pg_atomic_fetch_add_u64(&db->counters.settled, 1);
			if (e->run.outcome.kind == OUTCOME_FAILED)
				pg_atomic_fetch_add_u64(&db->counters.failed_attempts, 1);
			if (e->status >= JOB_COMPLETED)
				wake_waiters(db, &cell->ref.id, e->status);
		}
		slot_done(e->cell, e->report);
	}
	slot_report();
}

/*
 * Charges a job that ran alone for the failure of its commit or bookkeeping.
 */
static void
charge_failed_commit(Entry *e, ErrorData *edata)
{
	Cell	   *cell = &MySlot->cells[e->cell];

	e->report = REPORT_STUCK;
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
			sql_entry_settle(batch, e);
		}
		else
			e->report = REPORT_NOT_MINE;
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
		if (e->report == REPORT_SETTLED)
			e->report = REPORT_STUCK;
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
}

/* Decides on each job of a transaction that was rolled back. */
static void
batch_failed(ErrorData *edata)
{
	if (batch->n == 1)
	{
		charge_failed_commit(&batch->entries[0], edata);
		return;
	}
	for (int i = 0; i < batch->n; i++)
	{
		Entry	   *e = &batch->entries[i];

		e->settled = false;
		if (e->report == REPORT_SETTLED)
			e->report = REPORT_ALONE;
	}
}

void
sql_batch_run(int cell)
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
		release_children();
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
		slot_done(cell, REPORT_STUCK); /* the queue could not even be opened */
	report_entries();
	reset_session();
	breaker_tell();
	pgstat_report_stat(false);
}
