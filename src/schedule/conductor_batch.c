/*
 * conductor_batch.c
 *	  Transactions of the conductor: see conductor_batch.h.
 *
 * A batch is one transaction without subtransactions.  When one of its turns
 * raises an error, all is rolled back, and the batch is done again with a
 * subtransaction for each tick, SINGLE_SIZE schedules a transaction: the
 * refused ticks are decided by turn_refused(), the others are as before.  A
 * turn that meets a lock is put off; the first one waits for it, the others
 * hardly, so that locks of one role do not delay the schedules of another.
 *
 * Entries change after the commit only.  A row that another transaction has
 * changed since it was read fails with 40001, and counts as locked.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "enqueue/insert_job.h"
#include "schedule/conductor_batch.h"
#include "schedule/conductor_entries.h"
#include "tables/table_fit.h"

#define SINGLE_SIZE		48		/* of the 64 subtransactions that a snapshot holds */
#define MAX_TICKS		100		/* of a schedule in one transaction, one by one */
#define SHORT_WAIT_MS	1		/* for locks, once a batch has waited for one */

typedef enum WorkResultKind
{
	RESULT_SET,					/* the row is in `schedule` */
	RESULT_GONE,
	RESULT_BUSY,
	RESULT_HOPELESS				/* not even a reason could be written */
} WorkResultKind;

typedef struct WorkResult
{
	WorkResultKind	kind;
	Schedule   *schedule;
} WorkResult;

typedef struct Batch
{
	Work	   *work;
	WorkResult *results;
	int			n;
	bool		single;
	bool		foreign;		/* out: no schedule of ours */
	Turn		turn;
	Table		table;
} Batch;

/* ---------- one piece of work ---------- */

static bool
is_ours(Schedule *s)
{
	int32		home;

	return home_is_ours(&home) && S_INT(s, S_home_id) == home;
}

/* error: of the turn that was rolled back; NULL: take the turn. */
static void
do_work(Batch *batch, const Work *work, const ErrorData *error, WorkResult *result)
{
	ScheduleEntry *entry = entry_find(work->id);
	ItemPointerData tid;
	Schedule   *s = palloc(sizeof(Schedule));
	bool		locked;

	ItemPointerSetInvalid(&tid);
	if (entry != NULL)
		tid = entry->tid;
	result->kind = RESULT_GONE;
	if (!schedule_fetch(&batch->table, &tid, work->id, s, &locked) || !is_ours(s))
		return;
	result->kind = RESULT_BUSY;
	if (locked && work->kind != WORK_READ)
		return;
	if (error != NULL)
		turn_refused(&batch->turn, s, error);
	else if (work->kind == WORK_DUE)
		turn_due(&batch->turn, s);
	else if (work->kind == WORK_END)
		turn_end(&batch->turn, s, &work->end);
	else if (work->kind == WORK_LOOK)
		turn_look(&batch->turn, s);
	else if (!locked)			/* else its transaction publishes it again */
		turn_read(&batch->turn, s);
	schedule_write(&batch->table, s, batch->turn.now);
	result->kind = RESULT_SET;
	result->schedule = s;
}

/*
 * Opens tables for a transaction, or for a subtransaction, whose rollback
 * releases the pages and descriptors that they hold.
 */
static void
open_tables(Batch *batch)
{
	table_open_for_write(&batch->table, jobq_relid("schedules"));
	enqueuer_begin(&batch->turn.e);
}

static void
close_tables(Batch *batch)
{
	enqueuer_end(&batch->turn.e);
	table_close_after_write(&batch->table);
}

/*
 * The same in a subtransaction; returns the error that has rolled it back,
 * else NULL.
 */
static ErrorData *
try_work(Batch *batch, const Work *work, const ErrorData *error, WorkResult *result)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint64		counts[TICK_OUTCOMES];
	ErrorData  *volatile caught = NULL;

	memcpy(counts, batch->turn.counts, sizeof(counts));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		open_tables(batch);
		do_work(batch, work, error, result);
		close_tables(batch);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		caught = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		memcpy(batch->turn.counts, counts, sizeof(counts));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return caught;
}

/* True if the same turn may succeed a moment later. */
static bool
is_transient(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED || error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		error->sqlerrcode == ERRCODE_OUT_OF_MEMORY || error->sqlerrcode == ERRCODE_IO_ERROR;
}

static void
try_alone(Batch *batch, const Work *work, WorkResult *result)
{
	ErrorData  *error = try_work(batch, work, NULL, result);

	if (error == NULL)
		return;
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		LockTimeout = SHORT_WAIT_MS;
	if (is_transient(error) || work->kind == WORK_READ)
	{
		result->kind = RESULT_BUSY;
		return;
	}
	error = try_work(batch, work, error, result);
	if (error == NULL)
		return;
	result->kind = is_transient(error) ? RESULT_BUSY : RESULT_HOPELESS;
	if (result->kind == RESULT_HOPELESS)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("jobq: schedule %d could not take its turn: %s", work->id, error->message)));
}

/* Decides the ticks of a schedule one by one. */
static void
do_work_alone(Batch *batch, const Work *work, WorkResult *result)
{
	batch->turn.missed_until = DT_NOBEGIN;
	for (int i = 0; i < MAX_TICKS; i++)
	{
		Schedule   *s;

		try_alone(batch, work, result);
		s = result->schedule;
		if (work->kind != WORK_DUE || result->kind != RESULT_SET || s->status != SCHEDULE_ACTIVE ||
			S_NULL(s, S_next_tick) || S_TIME(s, S_next_tick) > batch->turn.now)
			break;
	}
}

/* ---------- the transaction ---------- */

static void
do_batch(Batch *batch)
{
	int32		home;

	batch->foreign = fit_trouble()[0] != '\0' || !home_is_ours(&home);
	if (batch->foreign)
		return;
	batch->turn.now = GetCurrentTimestamp();
	batch->turn.one_tick = batch->single;
	batch->turn.missed_until = DT_NOBEGIN;
	if (!batch->single)
		open_tables(batch);
	for (int i = 0; i < batch->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (batch->single)
			do_work_alone(batch, &batch->work[i], &batch->results[i]);
		else
			do_work(batch, &batch->work[i], NULL, &batch->results[i]);
	}
	if (!batch->single)
		close_tables(batch);
}

/* Returns the error that has rolled the transaction back, else NULL. */
static ErrorData *
in_transaction(void (*what) (Batch *), Batch *batch)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		what(batch);
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	pgstat_report_stat(false);
	return error;
}

/* Sets the entries and the counts of a committed batch. */
static void
apply(JobqDb *db, Batch *batch, Work *locked, int *nlocked)
{
	for (int i = 0; i < batch->n; i++)
	{
		int32		id = batch->work[i].id;
		ScheduleEntry *e;

		switch (batch->results[i].kind)
		{
			case RESULT_SET:
				entry_set(batch->results[i].schedule);
				e = entry_find(id);
				if (e != NULL && e->due == DT_NOBEGIN && batch->work[i].kind == WORK_DUE)
					entry_defer(id, true);	/* its turn has changed nothing */
				break;
			case RESULT_GONE:
				entry_remove(id);
				break;
			case RESULT_BUSY:
				if (batch->work[i].kind == WORK_DUE)
					entry_defer(id, false);
				else
					locked[(*nlocked)++] = batch->work[i];
				break;
			case RESULT_HOPELESS:
				entry_defer(id, true);
				break;
		}
	}
	for (int i = 0; i < TICK_OUTCOMES; i++)
		pg_atomic_fetch_add_u64(&db->schedules.ticks[i], batch->turn.counts[i]);
}

/* Runs one transaction; false: it was rolled back, and is to be done alone. */
static bool
run(JobqDb *db, Work *work, int n, bool single, BatchResult *result, Work *locked, int *nlocked)
{
	Batch		batch = {.work = work, .n = n, .single = single};
	ErrorData  *error;

	batch.results = palloc0(sizeof(WorkResult) * n);
	error = in_transaction(do_batch, &batch);
	*result = batch.foreign ? BATCH_FOREIGN : BATCH_DONE;
	if (error != NULL && !single)
		return false;
	if (error != NULL && !is_transient(error))
		ReThrowError(error);
	for (int i = 0; error != NULL && i < n; i++)
		batch.results[i].kind = RESULT_BUSY;
	if (!batch.foreign)
		apply(db, &batch, locked, nlocked);
	return true;
}

BatchResult
batch_run(JobqDb *db, Work *work, int n, int *nlocked)
{
	BatchResult result = BATCH_DONE;
	Work	   *locked = palloc(sizeof(Work) * n);
	int			lock_timeout = LockTimeout;

	*nlocked = 0;
	if (!run(db, work, n, false, &result, locked, nlocked))
	{
		for (int i = 0; i < n && result == BATCH_DONE; i += SINGLE_SIZE)
			(void) run(db, work + i, Min(SINGLE_SIZE, n - i), true, &result, locked, nlocked);
	}
	LockTimeout = lock_timeout;
	memcpy(work, locked, sizeof(Work) * *nlocked);
	return result;
}

/* ---------- all schedules ---------- */

static void
read_all(Batch *batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq schedule", ALLOCSET_DEFAULT_SIZES);
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	int32		home;

	batch->foreign = !OidIsValid(jobq_relid("schedules")) || fit_trouble()[0] != '\0' || !home_is_ours(&home);
	if (batch->foreign)
		entries_clear();
	else
	{
		rel = table_open(jobq_relid("schedules"), AccessShareLock);
		entries_clear();
		scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL, SO_NONE);
		while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		{
			MemoryContext old = MemoryContextSwitchTo(context);
			Schedule	s;

			CHECK_FOR_INTERRUPTS();
			if (schedule_from_tuple(rel, tuple, &s) && S_INT(&s, S_home_id) == home)
				entry_set(&s);
			MemoryContextSwitchTo(old);
			MemoryContextReset(context);
		}
		table_endscan(scan);
		table_close(rel, NoLock);
	}
	MemoryContextDelete(context);
}

BatchResult
batch_read_all(void)
{
	Batch		batch = {0};
	ErrorData  *error = in_transaction(read_all, &batch);

	if (error != NULL && !is_transient(error))
		ReThrowError(error);
	return error != NULL ? BATCH_LOCKED : batch.foreign ? BATCH_FOREIGN : BATCH_DONE;
}
