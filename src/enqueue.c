/*
 * enqueue.c
 *	  Storing jobs: jobq.enqueue, enqueue_many, enqueue_jobs.
 *
 * A job is a row of jobq.queue, inserted past the executor: no plan, no trigger, no privilege on the
 * table (the right to enqueue is EXECUTE on the function).  The lane and position of each row written
 * or locked are given to publish.c, which tells the dispatcher when the transaction has ended; nothing
 * here needs a dispatcher, so enqueue works without one.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#include "find.h"
#include "job_list.h"
#include "publish.h"
#include "queue.h"
#include "request.h"
#include "unique.h"

PG_FUNCTION_INFO_V1(jobq_enqueue);
PG_FUNCTION_INFO_V1(jobq_enqueue_many);
PG_FUNCTION_INFO_V1(jobq_enqueue_jobs);

#define MAX_YIELD_TRIES 1000	/* of 5 ms */

/* One call. */
typedef struct Enqueuer
{
	Table		queue;
	int32		home_id;
	TimestampTz future;			/* scheduled_for of the last job that is not due yet */
	int64		nfuture;		/* how many before it had the same */
} Enqueuer;

/* --- being run --- */

/* What keeps jobs from being run here, for somebody who has just stored one; NULL: nothing known. */
static const char *
nobody_runs_jobs(JobqDb *db)
{
	if (JobqShmem == NULL)
		return "Add jobq to shared_preload_libraries and restart the server.";
	if (db == NULL)
		return "Raise jobq.max_databases and restart the server.";
	if (db->dispatcher != NULL)
		return NULL;
	if (JobqShmem->launcher == NULL || strcmp(jobq_databases, "-") == 0)
		return "See jobq.health().";
	if (db->no_worker_slots > 0)
		return "Raise max_worker_processes and restart the server.";
	return NULL;				/* it is being started */
}

static void
see_that_it_runs(void)
{
	static bool warned = false;
	JobqDb	   *db = my_db();
	const char *hint;

	if (db != NULL && db->dispatcher != NULL)
		return;
	if (db != NULL)
		want_dispatcher(db);
	hint = warned ? NULL : nobody_runs_jobs(db);
	if (hint == NULL)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the job is stored, but nothing runs jobs in database \"%s\"",
					get_database_name(MyDatabaseId)),
			 errhint("%s", hint)));
}

static void
begin_call(Enqueuer *e, const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
	memset(e, 0, sizeof(*e));
	table_open_for_write(&e->queue, jobq_relid("queue"));
	e->home_id = home_id(true);
}

static void
end_call(Enqueuer *e)
{
	table_close_after_write(&e->queue);
	see_that_it_runs();
}

/* --- rows --- */

static void
set(Datum *values, bool *nulls, int att, Datum value)
{
	values[att - 1] = value;
	nulls[att - 1] = false;
}

static void
set_pointer(Datum *values, bool *nulls, int att, const void *value)
{
	values[att - 1] = PointerGetDatum(value);
	nulls[att - 1] = value == NULL;
}

/* This moment, but later than the last one, unless the clock was set back. */
static TimestampTz
distinct_now(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now <= last && last - now < USECS_PER_SEC)
		now = last + 1;
	last = now;
	return now;
}

/*
 * Due time and place in the lane.  Jobs of one call that are due at the same later moment are a
 * microsecond apart there, which keeps their order.
 */
static void
set_times(Enqueuer *e, Request *request, Datum *values, bool *nulls)
{
	TimestampTz now = distinct_now();
	TimestampTz due = request->scheduled_for == 0 ? now : request->scheduled_for;
	TimestampTz position = now;

	if (due > now)
	{
		e->nfuture = due == e->future ? e->nfuture + 1 : 0;
		e->future = due;
		position = due + e->nfuture;
	}
	set(values, nulls, Q_position, TimestampTzGetDatum(position));
	set(values, nulls, Q_scheduled_for, TimestampTzGetDatum(due));
	set(values, nulls, Q_created_at, TimestampTzGetDatum(now));
}

static void
set_options(Request *request, Datum *values, bool *nulls)
{
	set_pointer(values, nulls, Q_timeout, request->timeout);
	set_pointer(values, nulls, Q_backoff, request->backoff);
	set_pointer(values, nulls, Q_unique_key, request->unique_key);
	set_pointer(values, nulls, Q_unique_for, request->unique_for);
	set_pointer(values, nulls, Q_concurrency_key, request->concurrency_key);
	set_pointer(values, nulls, Q_keep_completed, request->keep_completed);
	set_pointer(values, nulls, Q_tenant, request->tenant);
	set_pointer(values, nulls, Q_metadata, request->metadata);
	set_pointer(values, nulls, Q_parent_id, request->has_parent ? &request->parent_id : NULL);
}

static void
build_row(Enqueuer *e, Request *request, bool successor, const pg_uuid_t *id,
		  Datum *values, bool *nulls)
{
	memset(values, 0, sizeof(Datum) * Q_NATTS);
	memset(nulls, true, sizeof(bool) * Q_NATTS);
	set(values, nulls, Q_id, UUIDPGetDatum(id));
	set_times(e, request, values, nulls);
	set(values, nulls, Q_type_id, Int32GetDatum(request->type->id));
	set(values, nulls, Q_rev, Int32GetDatum(0));
	set(values, nulls, Q_home_id, Int32GetDatum(e->home_id));
	set(values, nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	set(values, nulls, Q_attempts, Int32GetDatum(0));
	set(values, nulls, Q_max_attempts, Int32GetDatum(request->max_attempts));
	set(values, nulls, Q_runs, Int32GetDatum(0));
	set(values, nulls, Q_crashes, Int32GetDatum(0));
	set(values, nulls, Q_depth, Int32GetDatum(request->depth));
	set(values, nulls, Q_priority, Int16GetDatum((int16) request->priority));
	set(values, nulls, Q_sublane, Int16GetDatum(0));
	set(values, nulls, Q_successor, BoolGetDatum(successor));
	set(values, nulls, Q_payload, JsonbPGetDatum(request->payload));
	set_options(request, values, nulls);
}

/* Tells the dispatcher, at the end of the transaction, to look at this row's place. */
static void
publish_row(Datum *values)
{
	publish_key(DatumGetInt32(values[Q_type_id - 1]), DatumGetInt16(values[Q_priority - 1]),
				DatumGetInt16(values[Q_sublane - 1]), DatumGetTimestampTz(values[Q_position - 1]));
}

/* --- jobs without a key --- */

static void
store_plain(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];

	make_job_id(id);
	build_row(e, request, false, id, values, nulls);
	table_insert_row(&e->queue, values, nulls);
	publish_row(values);
	publish_note_job(id);
}

/* --- jobs with a unique key --- */

static bool
insert_unique(Enqueuer *e, Request *request, const UniqueKey *key, bool successor, pg_uuid_t *id)
{
	Datum		values[Q_NATTS];
	bool		nulls[Q_NATTS];

	make_job_id(id);
	build_row(e, request, successor, id, values, nulls);
	if (!table_insert_unless_conflict(&e->queue, values, nulls))
	{
		unique_wait(&e->queue, key, successor);
		return false;
	}
	publish_row(values);
	publish_note_job(id);
	return true;
}

/* Makes a waiting job, which we have locked, the one that is asked for.  Its attempts start again. */
static void
replace_waiting(Enqueuer *e, Request *request, Job *job)
{
	static const int cleared[] = {
		Q_error_msg, Q_error_code, Q_error_details, Q_started_at, Q_worker, Q_node,
		Q_progress, Q_progress_data
	};
	Datum		created = JOB_ATT(job, Q_created_at);
	int			i;

	for (i = 0; i < (int) lengthof(cleared); i++)
		job->nulls[cleared[i] - 1] = true;
	set_times(e, request, job->values, job->nulls);
	set(job->values, job->nulls, Q_created_at, created);
	set(job->values, job->nulls, Q_payload, JsonbPGetDatum(request->payload));
	set(job->values, job->nulls, Q_priority, Int16GetDatum((int16) request->priority));
	set(job->values, job->nulls, Q_max_attempts, Int32GetDatum(request->max_attempts));
	set_pointer(job->values, job->nulls, Q_timeout, request->timeout);
	set(job->values, job->nulls, Q_attempts, Int32GetDatum(0));
	set(job->values, job->nulls, Q_crashes, Int32GetDatum(0));
	set(job->values, job->nulls, Q_rev, Int32GetDatum(JOB_INT(job, Q_rev) + 1));
	if (job->status == JOB_RETRY)
		set(job->values, job->nulls, Q_status, ObjectIdGetDatum(status_oid(JOB_PENDING)));
	table_update_row(&e->queue, &job->tid, job->values, job->nulls);
	publish_row(job->values);
}

static void
raise_conflict(Request *request, const pg_uuid_t *id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("a job of type \"%s\" with unique_key \"%s\" exists already",
					request->type->name, text_to_cstring(request->unique_key)),
			 errdetail("It is job %s.",
					   DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
}

/*
 * Both jobs of the key have begun, but they do not run at the same time: one is about to be put back.
 * Looks again in a moment; after `tries` of them something is wrong.
 */
static void
wait_until_one_yields(Request *request, int tries)
{
	if (tries < MAX_YIELD_TRIES)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 5,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("two jobs of type \"%s\" with unique_key \"%s\" are running",
					request->type->name, text_to_cstring(request->unique_key)),
			 errhint("Try again when one of them has ended.")));
}

/*
 * The key's job waits and is ours until our transaction ends, so it will see what we write.  An
 * executor may have found it locked: its place is published whatever becomes of us.
 */
static void
meet_waiting(Enqueuer *e, Request *request, Job *job)
{
	publish_row(job->values);
	if (request->on_conflict == CONFLICT_ERROR)
		raise_conflict(request, JOB_ID(job));
	if (request->on_conflict == CONFLICT_REPLACE)
		replace_waiting(e, request, job);
}

/* True: a new job.  Ends only when a row is in, or the id of the job that holds the key is known. */
static bool
store_unique(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	UniqueKey	key = {request->type->id, request->tenant, request->unique_key};
	int			yields = 0;

	for (;;)
	{
		Job			job;
		KeyState	state;

		CHECK_FOR_INTERRUPTS();
		state = unique_look(&e->queue, &key, &job, id);
		switch (state)
		{
			case KEY_FREE:
				if (insert_unique(e, request, &key, false, id))
					return true;
				break;
			case KEY_WAITING:
				*id = *JOB_ID(&job);
				meet_waiting(e, request, &job);
				return false;
			case KEY_RUNNING:
			case KEY_FULL:
				*id = *JOB_ID(&job);
				if (request->on_conflict == CONFLICT_ERROR)
					raise_conflict(request, id);
				if (request->on_conflict == CONFLICT_IGNORE)
					return false;
				if (state == KEY_FULL)
					wait_until_one_yields(request, yields++);
				else if (insert_unique(e, request, &key, !DatumGetBool(JOB_ATT(&job, Q_successor)), id))
					return true;
				break;
			case KEY_FINISHED:
				if (request->on_conflict == CONFLICT_ERROR)
					raise_conflict(request, id);
				return false;
			case KEY_CHANGED:
				break;
		}
	}
}

/* --- the calls --- */

static bool
store(Enqueuer *e, Request *request, pg_uuid_t *id)
{
	if (request->unique_key != NULL)
		return store_unique(e, request, id);
	store_plain(e, request, id);
	return true;
}

Datum
jobq_enqueue(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	Enqueuer	e;
	Request		request;

	request_read(&request, fcinfo->args);
	request_set_payload(&request, PG_ARGISNULL(A_payload) ? NULL : PG_GETARG_JSONB_P(A_payload));
	begin_call(&e, "jobq.enqueue()");
	store(&e, &request, id);
	end_call(&e);
	PG_RETURN_UUID_P(id);
}

/* enqueue's arguments from those of enqueue_many, which has no unique_key and no unique_for. */
static void
arguments_of_many(FunctionCallInfo fcinfo, NullableDatum *args)
{
	int			from = 0;
	int			to;

	for (to = 0; to < A_COUNT; to++)
	{
		args[to].isnull = true;
		if (to != A_unique_key && to != A_unique_for && from < PG_NARGS())
			args[to] = fcinfo->args[from++];
	}
}

static void
store_many(Enqueuer *e, Request *request, ArrayType *payloads, ReturnSetInfo *result)
{
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "jobq enqueue_many",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = CurrentMemoryContext;
	Datum	   *elements;
	bool	   *nulls;
	int			n;
	int			i;

	deconstruct_array(payloads, JSONBOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	MemoryContextSwitchTo(per_row);
	for (i = 0; i < n; i++)
	{
		pg_uuid_t	id;
		Datum		value = UUIDPGetDatum(&id);
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(per_row);
		request_set_payload(request, nulls[i] ? NULL : DatumGetJsonbP(elements[i]));
		store_plain(e, request, &id);
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(per_row);
}

Datum
jobq_enqueue_many(PG_FUNCTION_ARGS)
{
	NullableDatum args[A_COUNT];
	Enqueuer	e;
	Request		request;

	arguments_of_many(fcinfo, args);
	request_read(&request, args);
	if (args[A_payload].isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("payloads must not be NULL")));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	begin_call(&e, "jobq.enqueue_many()");
	store_many(&e, &request, DatumGetArrayTypeP(args[A_payload].value),
			   (ReturnSetInfo *) fcinfo->resultinfo);
	end_call(&e);
	return (Datum) 0;
}

Datum
jobq_enqueue_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobList		list;
	Enqueuer	e;
	Request		request;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("jobs must not be NULL")));
	InitMaterializedSRF(fcinfo, 0);
	job_list_begin(&list, PG_GETARG_JSONB_P(0));
	begin_call(&e, "jobq.enqueue_jobs()");
	while (job_list_next(&list, &request))
	{
		pg_uuid_t	id;
		Datum		values[3];
		bool		nulls[3] = {false, false, false};

		CHECK_FOR_INTERRUPTS();
		values[2] = BoolGetDatum(store(&e, &request, &id));
		values[1] = UUIDPGetDatum(&id);
		values[0] = Int32GetDatum(list.ordinal);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	job_list_end(&list);
	end_call(&e);
	return (Datum) 0;
}
