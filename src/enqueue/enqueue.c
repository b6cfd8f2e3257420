/*
 * enqueue.c
 *	  Storing jobs: jobq.enqueue, enqueue_many, enqueue_jobs.
 *
 * A job is a row of jobq.queue, inserted past the executor: no plan, no trigger,
 * no privilege on the table (the right to enqueue is EXECUTE on the function).
 * publish_jobs.c gets the lane and position of each row written or locked, and
 * notifies the dispatcher when the transaction has ended.  Nothing here needs a
 * dispatcher, so enqueue works without one.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "enqueue/enqueue.h"
#include "enqueue/enqueue_jobs_reader.h"
#include "enqueue/insert_job.h"
#include "lifecycle/release.h"
#include "shared/worker_need.h"

PG_FUNCTION_INFO_V1(jobq_enqueue);
PG_FUNCTION_INFO_V1(jobq_enqueue_many);
PG_FUNCTION_INFO_V1(jobq_enqueue_jobs);

/* --- the dispatcher --- */

/*
 * Returns the reason why no job runs here, for a session that has just
 * stored one; NULL: none known.
 */
static const char *
why_no_job_runs(JobqDb *db)
{
	if (JobqShmem == NULL)
		return "Add jobq to shared_preload_libraries and restart the server.";
	if (db == NULL)
		return "Raise jobq.max_databases and restart the server.";
	if (db->dispatcher.proc != NULL)
		return NULL;
	if (JobqShmem->launcher == NULL || !database_is_admitted(get_database_name(MyDatabaseId)))
		return "See jobq.health().";
	if (pg_atomic_read_u32(&db->lacking) & WORKER_DISPATCHER)
		return worker_hint(MyDatabaseId);
	return NULL;				/* it is being started */
}

void
see_that_jobs_run(const char *stored)
{
	static bool warned = false;
	JobqDb	   *db = my_db();
	const char *hint;

	if (db != NULL && db->dispatcher.proc != NULL)
		return;
	if (db != NULL)
		want_dispatcher(db);
	hint = warned ? NULL : why_no_job_runs(db);
	if (hint == NULL)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%s is stored, but nothing runs jobs in database \"%s\"",
					stored, get_database_name(MyDatabaseId)),
			 errhint("%s", hint)));
}

static void
begin_call(Enqueuer *e, const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
	enqueuer_begin(e);
}

static void
end_call(Enqueuer *e)
{
	enqueuer_end(e);
	see_that_jobs_run("the job");
}

/* --- the calls --- */

/*
 * Reads enqueue's arguments from a call of enqueue, or of enqueue_many, which
 * has no unique keys and no on_conflict.
 */
static void
read_arguments(FunctionCallInfo fcinfo, bool many, NullableDatum *args)
{
	int			from = 0;

	release_require();			/* another release has other arguments */
	request_defaults(args);
	for (int to = 0; to < A_COUNT; to++)
	{
		if (!many || (to != A_unique_key && to != A_unique_for && to != A_on_conflict))
			args[to] = fcinfo->args[from++];
	}
}

Datum
jobq_enqueue(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	NullableDatum args[A_COUNT];
	Enqueuer	e;
	Request		request;

	read_arguments(fcinfo, false, args);
	request_read(&request, args);
	request_set_payload(&request, PG_ARGISNULL(A_payload) ? NULL : PG_GETARG_JSONB_P(A_payload));
	begin_call(&e, "jobq.enqueue()");
	store_job(&e, &request, id);
	end_call(&e);
	PG_RETURN_UUID_P(id);
}

/* Stores a job for each payload; *ordinal is the current one's. */
static void
store_many(Enqueuer *e, Request *request, ArrayType *payloads, ReturnSetInfo *result, volatile int *ordinal)
{
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "jobq enqueue_many",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = CurrentMemoryContext;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(payloads, JSONBOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	MemoryContextSwitchTo(per_row);
	for (int i = 0; i < n; i++)
	{
		pg_uuid_t	id;
		Datum		value = UUIDPGetDatum(&id);
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(per_row);
		*ordinal = i + 1;
		request_set_payload(request, nulls[i] ? NULL : DatumGetJsonbP(elements[i]));
		store_job(e, request, &id);
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(per_row);
}

Datum
jobq_enqueue_many(PG_FUNCTION_ARGS)
{
	NullableDatum args[A_COUNT];
	MemoryContext context = CurrentMemoryContext;
	volatile int ordinal = 0;
	Enqueuer	e;
	Request		request;

	read_arguments(fcinfo, true, args);
	request_read(&request, args);
	if (args[A_payload].isnull)
		argument_is_null("payloads");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	begin_call(&e, "jobq.enqueue_many()");
	PG_TRY();
	{
		store_many(&e, &request, DatumGetArrayTypeP(args[A_payload].value),
				   (ReturnSetInfo *) fcinfo->resultinfo, &ordinal);
	}
	PG_CATCH();
	{
		raise_with_prefix(context, psprintf("job %d: ", ordinal));
	}
	PG_END_TRY();
	end_call(&e);
	return (Datum) 0;
}

static void
store_list(Enqueuer *e, JobList *list, ReturnSetInfo *result)
{
	Request		request;

	while (job_list_next(list, &request))
	{
		pg_uuid_t	id;
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		CHECK_FOR_INTERRUPTS();
		values[2] = BoolGetDatum(store_job(e, &request, &id));
		list->ids[list->ordinal - 1] = id;
		values[1] = UUIDPGetDatum(&id);
		values[0] = Int32GetDatum(list->ordinal);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

Datum
jobq_enqueue_jobs(PG_FUNCTION_ARGS)
{
	JobList		list;
	Enqueuer	e;

	if (PG_ARGISNULL(0))
		argument_is_null("jobs");
	InitMaterializedSRF(fcinfo, 0);
	job_list_begin(&list, PG_GETARG_JSONB_P(0));
	begin_call(&e, "jobq.enqueue_jobs()");
	PG_TRY();
	{
		store_list(&e, &list, (ReturnSetInfo *) fcinfo->resultinfo);
	}
	PG_CATCH();
	{
		raise_with_prefix(list.caller, job_list_prefix(&list));
	}
	PG_END_TRY();
	job_list_end(&list);
	end_call(&e);
	return (Datum) 0;
}
