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
 * A transaction decides at most BATCH_SIZE ticks, or SINGLE_SIZE: a turn gets
 * those that leave one to each turn behind it.  A schedule that has more ticks
 * goes on in a later batch, behind the schedules that are due by then.
 *
 * Entries change after the commit only.  A row that another transaction has
 * changed since it was read fails with 40001, and counts as locked.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "base/subtransaction.h"
#include "enqueue/insert_job.h"
#include "schedule/conductor_batch.h"
#include "schedule/conductor_entries.h"
#include "schedule/conductor_transaction.h"
#include "tables/home.h"
#include "tables/table_shape.h"

#define SINGLE_SIZE		48		/* of the 64 subtransactions that a snapshot holds */
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
	TimestampTz missed_until;	/* see TickTurn */
} WorkResult;

typedef struct Batch
{
	Work	   *work;
	WorkResult *results;
	int			n;
	bool		single;
	bool		foreign;		/* out: no schedule of ours */
	TickTurn	turn;
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

typedef struct Attempt
{
	Batch	   *batch;
	const Work *work;
	const ErrorData *error;
	WorkResult *result;
} Attempt;

static void
work_on_open_tables(void *arg)
{
	Attempt    *a = arg;

	open_tables(a->batch);
	do_work(a->batch, a->work, a->error, a->result);
	close_tables(a->batch);
}

/*
 * The same in a subtransaction; returns the error that has rolled it back,
 * else NULL.
 */
static ErrorData *
try_work(Batch *batch, const Work *work, const ErrorData *error, WorkResult *result)
{
	Attempt		attempt = {batch, work, error, result};
	uint64		counts[TICK_OUTCOMES];
	TimestampTz missed_until = batch->turn.missed_until;
	ErrorData  *caught;

	memcpy(counts, batch->turn.counts, sizeof(counts));
	caught = try_subtransaction(work_on_open_tables, &attempt);
	if (caught != NULL)
	{
		memcpy(batch->turn.counts, counts, sizeof(counts));
		batch->turn.missed_until = missed_until;
	}
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

/* True if the schedule has more ticks that are due after its turn. */
static bool
goes_on(Batch *batch, const Work *work, const WorkResult *result)
{
	Schedule   *s = result->schedule;

	return work->kind == WORK_DUE && result->kind == RESULT_SET && s->status == SCHEDULE_ACTIVE &&
		!S_NULL(s, S_next_tick) && S_TIME(s, S_next_tick) <= batch->turn.now;
}

/*
 * Decides the ticks of a schedule one by one, at most `max`; returns the number
 * of subtransactions.
 */
static int
do_work_alone(Batch *batch, const Work *work, WorkResult *result, int max)
{
	int			n = 0;

	do
	{
		batch->turn.ticks_left = 1;
		try_alone(batch, work, result);
		n++;
	} while (n < max && goes_on(batch, work, result));
	return n;
}

/*
 * Does one piece of work, with at most so many ticks, at least one; returns
 * their number.
 */
static int
do_some_work(Batch *batch, int i, int max)
{
	const Work *work = &batch->work[i];
	WorkResult *result = &batch->results[i];
	ScheduleEntry *entry = entry_find(work->id);
	int			n;

	batch->turn.missed_until = entry != NULL ? entry->missed_until : DT_NOBEGIN;
	if (batch->single)
		n = do_work_alone(batch, work, result, max);
	else
	{
		batch->turn.ticks_left = max;
		do_work(batch, work, NULL, result);
		n = max - batch->turn.ticks_left;
	}
	result->missed_until = batch->turn.missed_until;
	return n;
}

/* ---------- the transaction ---------- */

static void
do_batch(void *arg)
{
	Batch	   *batch = arg;
	int			ticks_left = batch->single ? SINGLE_SIZE : BATCH_SIZE;
	int32		home;

	batch->foreign = tables_trouble()[0] != '\0' || !home_is_ours(&home);
	if (batch->foreign)
		return;
	batch->turn.now = GetCurrentTimestamp();
	if (!batch->single)
		open_tables(batch);
	for (int i = 0; i < batch->n; i++)
	{
		int			behind = batch->n - i - 1;
		int			ticks;

		CHECK_FOR_INTERRUPTS();
		ticks = do_some_work(batch, i, ticks_left - behind);
		ticks_left -= Max(ticks, 1);
	}
	if (!batch->single)
		close_tables(batch);
}

/* Puts a schedule that is still due behind the others. */
static void
apply_turn(Batch *batch, const WorkResult *result)
{
	ScheduleEntry *e = entry_find(S_INT(result->schedule, S_id));

	if (e == NULL || e->due > batch->turn.now)
		return;
	if (e->due == DT_NOBEGIN)	/* its turn has changed nothing */
		entry_defer(e->id, true);
	else
		entry_go_on(e->id, result->missed_until);
}

/* Sets the entries and the counts of a committed batch. */
static void
apply(JobqDb *db, Batch *batch, Work *locked, int *nlocked)
{
	for (int i = 0; i < batch->n; i++)
	{
		int32		id = batch->work[i].id;

		switch (batch->results[i].kind)
		{
			case RESULT_SET:
				entry_set(batch->results[i].schedule);
				if (batch->work[i].kind == WORK_DUE)
					apply_turn(batch, &batch->results[i]);
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
	error = conductor_run(do_batch, &batch, true);
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
read_all(void *arg)
{
	Batch	   *batch = arg;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "jobq schedule", ALLOCSET_DEFAULT_SIZES);
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	int32		home;

	batch->foreign = tables_trouble()[0] != '\0' || !home_is_ours(&home);
	if (batch->foreign)
		entries_clear();
	else
	{
		rel = shape_open("schedules", AccessShareLock);
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
	ErrorData  *error = conductor_run(read_all, &batch, true);

	if (error != NULL && !is_transient(error))
		ReThrowError(error);
	return error != NULL ? BATCH_LOCKED : batch.foreign ? BATCH_FOREIGN : BATCH_DONE;
}
