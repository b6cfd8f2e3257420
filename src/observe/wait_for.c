/*
 * wait_for.c
 *	  jobq.wait_for: the session sleeps until a job has ended.
 *
 * The session registers in its database's list of waiters, then looks.  The
 * executor that settles the job commits, then wakes the waiters (wake_waiters,
 * slots.c).  So either the look sees the result or the wake comes after it.
 * Jobs that end otherwise (cancelled while they wait, settled by a process
 * that died before the wake) are found by looking again every LOOK_AGAIN_MS.
 * So are all jobs when the list is full, jobq is not preloaded, or the server
 * is a standby.
 *
 * A look is a query of jobq.jobs with a new snapshot, as the owner of jobq's
 * tables, in a subtransaction that is rolled back.  So the session holds no
 * lock while it sleeps; else DROP EXTENSION and the drop of a history
 * partition would wait for it.
 *
 * A job that the caller may not see does not exist.
 *
 * A job that was not kept is answered from memory (recent_ends.c).  An id
 * that names no job, or one that memory has lost, is an error at once.  NULL
 * means that the time is up, nothing else.
 */
#include "jobq.h"

#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/act_as.h"
#include "base/errors.h"
#include "base/interval.h"
#include "base/job_status.h"
#include "base/relations.h"
#include "lifecycle/release.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "settle/recent_ends.h"
#include "shared/current_job.h"
#include "shared/wait_events.h"
#include "shared/xact_changes.h"
#include "tables/queue_table.h"

#define LONGEST_WAIT_US		(20 * USECS_PER_SEC)
#define LOOK_AGAIN_MS		1000
#define LOOK_SOON_MS		100		/* without a place in the list */

PG_FUNCTION_INFO_V1(jobq_wait_for);

typedef struct Wait
{
	pg_uuid_t	id;
	MonoTime	deadline;
	JobqDb	   *db;				/* NULL: no process wakes the session */
	int			place;			/* in db->waiters, -1: none */
	TupleDesc	desc;			/* of jobq.jobs */
	Oid			caller;
	MemoryContext context;		/* the caller's */
} Wait;

/* ---------- the list of waiters ---------- */

static void
take_place(Wait *wait)
{
	JobqDb	   *db = wait->db;

	if (db == NULL || wait->place >= 0)
		return;
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < JOBQ_MAX_WAITERS && wait->place < 0; i++)
	{
		Waiter	   *w = &db->wait_for.waiters[i];

		if (w->in_use)
			continue;
		w->in_use = true;
		w->done = false;
		w->id = wait->id;
		w->proc = MyProc;
		db->wait_for.nwaiters++;
		wait->place = i;
	}
	SpinLockRelease(&db->mutex);
	pg_memory_barrier();		/* first the list, then the look; see wake_waiters */
}

/* Also an exit callback: a place must not outlive the session. */
static void
leave_place(int code, Datum arg)
{
	Wait	   *wait = (Wait *) DatumGetPointer(arg);
	JobqDb	   *db = wait->db;

	if (wait->place < 0)
		return;
	SpinLockAcquire(&db->mutex);
	db->wait_for.waiters[wait->place].in_use = false;
	db->wait_for.waiters[wait->place].proc = NULL;
	db->wait_for.nwaiters--;
	SpinLockRelease(&db->mutex);
	wait->place = -1;
}

/* Makes executors wake this session once more. */
static void
expect_news(Wait *wait)
{
	if (wait->place < 0)
		return;
	SpinLockAcquire(&wait->db->mutex);
	wait->db->wait_for.waiters[wait->place].done = false;
	SpinLockRelease(&wait->db->mutex);
}

/* ---------- looking ---------- */

static bool
is_final(JobStatus status)
{
	return status == JOB_COMPLETED || status == JOB_SKIPPED || status == JOB_CANCELLED ||
		status == JOB_ERROR;
}

/*
 * Runs a query about the job; true if it gave a row.  $1 is its id, $2 the
 * caller.
 */
static bool
ask(const char *query, SPIPlanPtr *plan, Wait *wait)
{
	Oid			argtypes[2] = {UUIDOID, OIDOID};
	Datum		args[2] = {UUIDPGetDatum(&wait->id), ObjectIdGetDatum(wait->caller)};

	if (*plan == NULL)
	{
		SPIPlanPtr	prepared = SPI_prepare(query, 2, argtypes);

		if (prepared == NULL || SPI_keepplan(prepared) != 0)
			elog(ERROR, "could not prepare a query of jobq.jobs");
		*plan = prepared;
	}
	if (SPI_execute_plan(*plan, args, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not query jobq.jobs");
	return SPI_processed > 0;
}

/*
 * True if this very transaction wrote the row: then no other session sees it,
 * and no worker runs it.
 */
static bool
is_our_own(Wait *wait)
{
	static SPIPlanPtr plan = NULL;
	bool		isnull;

	if (!ask("SELECT q.xmin FROM jobq.queue q WHERE q.id OPERATOR(pg_catalog.=) $1", &plan, wait))
		return false;
	return TransactionIdIsCurrentTransactionId(
		DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)));
}

static void
refuse_own_job(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("wait_for cannot wait for a job of this transaction"),
			 errhint("Commit first: the job cannot start before the commit.")));
}

/* Returns the job's row, copied to the caller's memory, or NULL. */
static HeapTuple
read_row(Wait *wait)
{
	static SPIPlanPtr plan = NULL;
	MemoryContext old;
	HeapTuple	row;

	if (!ask("SELECT j.* FROM jobq.jobs j WHERE j.id OPERATOR(pg_catalog.=) $1", &plan, wait))
		return NULL;
	old = MemoryContextSwitchTo(wait->context);
	row = heap_copytuple(SPI_tuptable->vals[0]);
	/* without a lock the row may be moved or dropped */
	if (HeapTupleHasExternal(row))
		row = toast_flatten_tuple(row, SPI_tuptable->tupdesc);
	MemoryContextSwitchTo(old);
	return row;
}

/*
 * True if the caller may see the job; else it does not exist for the caller.
 */
static bool
may_see(Wait *wait)
{
	static SPIPlanPtr plan = NULL;

	return access_is_free(wait->caller) || ask("SELECT WHERE jobq_internal._sees_job($2, $1)", &plan, wait);
}

static bool
may_know_ending(Wait *wait, const RecentEnd *ending)
{
	JobType    *type = job_type_by_id(ending->type_id);

	return access_is_free(wait->caller) ||
		access_sees(wait->caller, ending->tenant[0] ? cstring_to_text(ending->tenant) : NULL,
					type ? type->name : NULL,
					ending->enqueued_by[0] ? cstring_to_text(ending->enqueued_by) : NULL);
}

static HeapTuple
look(Wait *wait, bool first)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	HeapTuple	row;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		(void) act_as_owner();
		SPI_connect();
		if (first && is_our_own(wait))
			refuse_own_job();
		row = may_see(wait) ? read_row(wait) : NULL;
		SPI_finish();
	}
	PG_CATCH();
	{
		rethrow_after_rollback(context, owner);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();	/* gives back locks and identity */
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return row;
}

static int
column(TupleDesc desc, const char *name)
{
	int			number = SPI_fnumber(desc, name);

	if (number <= 0)
		elog(ERROR, "jobq.jobs has no column %s", name);
	return number;
}

static JobStatus
row_status(Wait *wait, HeapTuple row)
{
	bool		isnull;

	return status_from_oid(DatumGetObjectId(
		heap_getattr(row, column(wait->desc, "status"), wait->desc, &isnull)));
}

/*
 * Returns the row of a job that ended and was not kept: as last seen, with its
 * final status.  If it was never seen, only id, type and status are known.
 */
static HeapTuple
row_from_memory(Wait *wait, HeapTuple last, const RecentEnd *ending)
{
	int			columns[5];
	Datum		values[5] = {0};
	bool		nulls[5] = {false, false, false, true, true};
	JobType    *type = job_type_by_id(ending->type_id);

	columns[0] = column(wait->desc, "id");
	columns[1] = column(wait->desc, "status");
	columns[2] = column(wait->desc, "job_type");
	columns[3] = column(wait->desc, "result");
	columns[4] = column(wait->desc, "lease_expires_at");
	values[0] = UUIDPGetDatum(&wait->id);
	values[1] = ObjectIdGetDatum(status_oid((JobStatus) ending->status));
	if (type)
		values[2] = CStringGetTextDatum(type->name);
	else
		nulls[2] = true;
	if (last == NULL)
	{
		Datum	   *all = palloc0(sizeof(Datum) * wait->desc->natts);
		bool	   *allnull = palloc(sizeof(bool) * wait->desc->natts);

		memset(allnull, true, sizeof(bool) * wait->desc->natts);
		last = heap_form_tuple(wait->desc, all, allnull);
	}
	return heap_modify_tuple_by_cols(last, wait->desc, 5, columns, values, nulls);
}

/* ---------- waiting ---------- */

/*
 * Sleeps until woken, at most that long, and never beyond the deadline;
 * returns false at the deadline.
 */
static bool
sleep_at_most(Wait *wait, long ms)
{
	long		left = mono_ms_left(mono_now(), wait->deadline);

	if (left <= 0)
		return false;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Min(left, ms),
					 jobq_wait(WAIT_JOB));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * Returns the end of a job without a row: it was noted before the row went.
 * P0002 if there is no such note.
 */
static HeapTuple
answer_for_missing(Wait *wait, HeapTuple last)
{
	RecentEnd ending;

	if (recall_end(wait->db, &wait->id, &ending) && may_know_ending(wait, &ending))
		return row_from_memory(wait, last, &ending);
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("job \"%s\" does not exist",
					DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&wait->id)))),
			 last == NULL ? 0 :
			 errdetail("It was there when wait_for began: it was removed, or has ended and its type keeps nothing.")));
}

/* Returns the job's row once the job has ended; NULL: the time is up. */
static HeapTuple
wait_until_ended(Wait *wait)
{
	HeapTuple	last = NULL;

	for (;;)
	{
		HeapTuple	row;

		take_place(wait);
		expect_news(wait);
		row = look(wait, last == NULL);
		if (row == NULL)
			row = look(wait, false);	/* the plan was older than the partition with the row, maybe */
		if (row == NULL)
			return answer_for_missing(wait, last);
		if (is_final(row_status(wait, row)))
			return row;
		if (last)
			heap_freetuple(last);
		last = row;
		if (!sleep_at_most(wait, wait->place >= 0 ? LOOK_AGAIN_MS : LOOK_SOON_MS))
			return NULL;
	}
}

static void
check_circumstances(const pg_uuid_t *id)
{
	if (current_job() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("wait_for cannot be called in a handler"),
				 errhint("A job that waits for another one keeps a worker from running it.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("wait_for cannot be called in a REPEATABLE READ or SERIALIZABLE transaction"),
				 errhint("Its snapshot never sees the job's end.")));
	if (has_written_job(id))
		refuse_own_job();
}

static MonoTime
deadline_after(const Interval *timeout)
{
	int64		us = interval_to_us(timeout);
	char	   *given = DatumGetCString(DirectFunctionCall1(interval_out, PointerGetDatum(timeout)));

	if (us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"timeout\": \"%s\" is below zero", given)));
	if (us > LONGEST_WAIT_US)
		ereport(NOTICE,
				(errmsg("argument \"timeout\": \"%s\" counts as 20 s", given),
				 errhint("Call wait_for again when it returns NULL.")));
	return mono_now() + Min(us, LONGEST_WAIT_US);
}

Datum
jobq_wait_for(PG_FUNCTION_ARGS)
{
	Wait		wait;
	HeapTuple	row;

	release_require();
	for (int i = 0; i < 2; i++)
	{
		if (PG_ARGISNULL(i))
			argument_is_null(i == 0 ? "id" : "timeout");
	}
	memset(&wait, 0, sizeof(wait));
	wait.id = *PG_GETARG_UUID_P(0);
	check_circumstances(&wait.id);
	wait.deadline = deadline_after(PG_GETARG_INTERVAL_P(1));
	wait.db = RecoveryInProgress() ? NULL : my_db();
	wait.place = -1;
	wait.caller = GetUserId();
	wait.context = CurrentMemoryContext;
	if (get_call_result_type(fcinfo, NULL, &wait.desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "wait_for must return a row");

	PG_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(&wait));
	{
		want_dispatcher(wait.db);
		row = wait_until_ended(&wait);
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave_place, PointerGetDatum(&wait));
	leave_place(0, PointerGetDatum(&wait));

	if (row == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(heap_copy_tuple_as_datum(row, BlessTupleDesc(wait.desc)));
}
