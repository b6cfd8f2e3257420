/*
 * pull_calls.c
 *	  Calls of a client about a job that it has claimed: heartbeat, and the
 *	  ends of its attempt.
 *
 * Each locks the job's row if it runs with the token (pull_job.c) and writes it
 * in the caller's transaction.  A wrong token, a foreign job and one that does
 * not exist give the same answer: lost.
 */
#include "jobq.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "pull/claim_request.h"
#include "pull/pull_job.h"

#define MAX_PROGRESS_DATA	(1024 * 1024)
#define MAX_MANY			1000

PG_FUNCTION_INFO_V1(jobq_heartbeat);
PG_FUNCTION_INFO_V1(jobq_complete);
PG_FUNCTION_INFO_V1(jobq_complete_many);
PG_FUNCTION_INFO_V1(jobq_fail);
PG_FUNCTION_INFO_V1(jobq_fail_many);
PG_FUNCTION_INFO_V1(jobq_skip_job);
PG_FUNCTION_INFO_V1(jobq_snooze_job);

/* ---------- arguments ---------- */

/* Checks that id and lease_token, the first two arguments, are given. */
static void
check_fence(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		argument_is_null("id");
	if (PG_ARGISNULL(1))
		argument_is_null("lease_token");
}

static char *
text_argument(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
}

static bool
lock_job(FunctionCallInfo fcinfo, PullCall *call, Job *job)
{
	return pull_lock(call, PG_GETARG_UUID_P(0), PG_GETARG_UUID_P(1), job);
}

/* Raises 54000 if the result in that argument is over jobq.max_output. */
static void
check_result(const char *argument, Jsonb *result)
{
	check_json_size_hint(argument, result, jobq_max_output,
						 "Raise jobq.max_output, or store large data elsewhere and complete with where it is.");
}

/* ---------- heartbeat ---------- */

static void
check_progress(FunctionCallInfo fcinfo)
{
	double		progress;

	if (!PG_ARGISNULL(2))
	{
		progress = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, PG_GETARG_DATUM(2)));
		if (isnan(progress) || progress < 0 || progress > 100)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("argument \"progress\": %s is outside 0..100",
							DatumGetCString(DirectFunctionCall1(numeric_out, PG_GETARG_DATUM(2))))));
	}
	if (!PG_ARGISNULL(3))
		check_json_size_hint("data", PG_GETARG_JSONB_P(3), Min(MAX_PROGRESS_DATA, jobq_max_payload),
							 "Store large data elsewhere, and where it is in the checkpoint.");
}

static void
add_heartbeat_event(FunctionCallInfo fcinfo, PullCall *call, Job *job, JobType *type)
{
	bool		progress = !PG_ARGISNULL(2) || !PG_ARGISNULL(3);
	Event		event = {.ts = GetCurrentTimestamp(), .attempt = JOB_INT(job, Q_attempts),
	.type = progress ? "progress" : "heartbeat", .level = "info"};
	JsonBuild	b;

	event.source = JOB_NULL(job, Q_worker) ? "client" : psprintf("worker:%s", TextDatumGetCString(JOB_ATT(job, Q_worker)));
	if (!PG_ARGISNULL(2))
	{
		json_begin_object(&b);
		json_add_number(&b, "progress", DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, PG_GETARG_DATUM(2))));
		event.data = json_end_object(&b);
	}
	event_add(&call->ledger.events, job->values, job->nulls, type->name, &event);
}

/* Renews the lease in the row: the dispatcher reads it when its timer fires. */
static void
renew(FunctionCallInfo fcinfo, PullCall *call, Job *job)
{
	JobType    *type = job_type_by_id(JOB_INT(job, Q_type_id));
	int64		lease_us = JOB_NULL(job, Q_lease) ? USECS_PER_MINUTE : interval_to_us(DatumGetIntervalP(JOB_ATT(job, Q_lease)));

	JOB_ATT(job, Q_lease_expires_at) = TimestampTzGetDatum(GetCurrentTimestamp() + lease_us);
	job->nulls[Q_lease_expires_at - 1] = false;
	if (!PG_ARGISNULL(2))
	{
		JOB_ATT(job, Q_progress) = DirectFunctionCall1(float8_numeric, DirectFunctionCall1(numeric_float8_no_overflow, PG_GETARG_DATUM(2)));
		job->nulls[Q_progress - 1] = false;
	}
	if (!PG_ARGISNULL(3))
	{
		JOB_ATT(job, Q_progress_data) = PG_GETARG_DATUM(3);
		job->nulls[Q_progress_data - 1] = false;
	}
	JOB_ATT(job, Q_rev) = Int32GetDatum(JOB_INT(job, Q_rev) + 1);
	queue_update(&call->ledger.queue, job);
	if (EVENTS_WANTED(type, EVENTS_ALL))
		add_heartbeat_event(fcinfo, call, job, type);
}

/* jobq.heartbeat(id, lease_token, progress, data) */
Datum
jobq_heartbeat(PG_FUNCTION_ARGS)
{
	const char *answer = "lost";
	PullCall	call;
	Job			job;

	check_fence(fcinfo);
	check_progress(fcinfo);
	pull_begin(&call, "jobq.heartbeat()");
	if (lock_job(fcinfo, &call, &job))
	{
		answer = pull_cancel_requested(&job) ? "cancel" : "ok";
		renew(fcinfo, &call, &job);
	}
	pull_end(&call);
	PG_RETURN_TEXT_P(cstring_to_text(answer));
}

/* ---------- ends ---------- */

static void
complete_locked(PullCall *call, Job *job, Jsonb *result)
{
	Outcome		outcome;

	pull_outcome(job, &outcome, OUTCOME_COMPLETED);
	outcome.has_result = result != NULL;
	outcome.result = result;
	(void) pull_settle(call, job, &outcome);
}

/* jobq.complete(id, lease_token, result) */
Datum
jobq_complete(PG_FUNCTION_ARGS)
{
	PullCall	call;
	Job			job;
	bool		held;

	check_fence(fcinfo);
	pull_begin(&call, "jobq.complete()");
	held = lock_job(fcinfo, &call, &job);
	if (held)
	{
		Jsonb	   *result = PG_ARGISNULL(2) ? NULL : PG_GETARG_JSONB_P(2);

		if (result)
			check_result("result", result);
		complete_locked(&call, &job, result);
	}
	pull_end(&call);
	PG_RETURN_BOOL(held);
}

/* Returns the elements of an array argument; n: what its length must be, -1: any. */
static Datum *
array_argument(FunctionCallInfo fcinfo, int i, const char *name, Oid type, bool **nulls, int *n)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(i);
	Datum	   *elements;
	int			count;

	deconstruct_array(array, type, type == UUIDOID ? UUID_LEN : -1, false,
					  type == UUIDOID ? TYPALIGN_CHAR : TYPALIGN_INT, &elements, nulls, &count);
	if (ARR_NDIM(array) > 1 || (*n >= 0 && count != *n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 *n >= 0 && count != *n ?
				 errmsg("argument \"%s\" has %d elements, and \"ids\" has %d", name, count, *n) :
				 errmsg("argument \"%s\" has more than one dimension", name)));
	*n = count;
	return elements;
}

static void
check_elements(const char *name, const bool *nulls, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\": element %d must not be NULL", name, i + 1)));
	}
}

typedef struct Many
{
	int			n;
	Datum	   *ids;
	Datum	   *tokens;
	int		   *order;			/* indexes, in which the jobs are locked */
	MemoryContext each;			/* of one job */
} Many;

static int
compare_ids(const void *a, const void *b, void *ids)
{
	return memcmp(DatumGetUUIDP(((Datum *) ids)[*(const int *) a]), DatumGetUUIDP(((Datum *) ids)[*(const int *) b]),
				  UUID_LEN);
}

/*
 * Returns the indexes in the order of the ids: calls that lock the same rows do
 * not deadlock.
 */
static int *
lock_order(const Many *many)
{
	int		   *order = palloc(sizeof(int) * Max(many->n, 1));

	for (int i = 0; i < many->n; i++)
		order[i] = i;
	qsort_arg(order, many->n, sizeof(int), compare_ids, many->ids);
	return order;
}

/* Reads the first two arguments, ids and lease_tokens. */
static void
read_many(FunctionCallInfo fcinfo, Many *many)
{
	bool	   *nulls;

	if (PG_ARGISNULL(0))
		argument_is_null("ids");
	if (PG_ARGISNULL(1))
		argument_is_null("lease_tokens");
	many->n = -1;
	many->ids = array_argument(fcinfo, 0, "ids", UUIDOID, &nulls, &many->n);
	if (many->n > MAX_MANY)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"ids\" has %d elements, which is outside 0..%d", many->n, MAX_MANY)));
	check_elements("ids", nulls, many->n);
	many->tokens = array_argument(fcinfo, 1, "lease_tokens", UUIDOID, &nulls, &many->n);
	check_elements("lease_tokens", nulls, many->n);
	many->order = lock_order(many);
	many->each = AllocSetContextCreate(CurrentMemoryContext, "jobq job", ALLOCSET_DEFAULT_SIZES);
}

/*
 * Locks the job of ids[i]; false: it is lost.  The memory context is this
 * job's.
 */
static bool
lock_of_many(PullCall *call, const Many *many, int i, Job *job)
{
	MemoryContextReset(many->each);
	MemoryContextSwitchTo(many->each);
	return pull_lock(call, DatumGetUUIDP(many->ids[i]), DatumGetUUIDP(many->tokens[i]), job);
}

/* Adds the id to the result. */
static void
return_id(FunctionCallInfo fcinfo, Datum id)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		isnull = false;

	tuplestore_putvalues(result->setResult, result->setDesc, &id, &isnull);
}

/* jobq.complete_many(ids, lease_tokens, results) */
Datum
jobq_complete_many(PG_FUNCTION_ARGS)
{
	Datum	   *results = NULL;
	bool	   *no_result;
	Many		many;
	PullCall	call;

	read_many(fcinfo, &many);
	if (!PG_ARGISNULL(2))
		results = array_argument(fcinfo, 2, "results", JSONBOID, &no_result, &many.n);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	pull_begin(&call, "jobq.complete_many()");
	for (int at = 0; at < many.n; at++)
	{
		int			i = many.order[at];
		Jsonb	   *given;
		Job			job;

		if (!lock_of_many(&call, &many, i, &job))
			continue;
		given = results == NULL || no_result[i] ? NULL : DatumGetJsonbP(results[i]);
		if (given)
			check_result(psprintf("results[%d]", i + 1), given);
		complete_locked(&call, &job, given);
		return_id(fcinfo, many.ids[i]);
	}
	MemoryContextSwitchTo(call.ledger.context);
	pull_end(&call);
	return (Datum) 0;
}

/*
 * Checks the arguments of a failure from the third on: error, retryable,
 * error_code, retry_after.  Returns error_code.
 */
static char *
check_failure(FunctionCallInfo fcinfo)
{
	char	   *code;

	if (PG_ARGISNULL(2))
		argument_is_null("error");
	code = name_argument(fcinfo, 4, "error_code");
	if (!PG_ARGISNULL(5))
		argument_check_interval("retry_after", PG_GETARG_INTERVAL_P(5));
	return code;
}

/* Settles the locked job with these arguments. */
static JobStatus
fail_locked(FunctionCallInfo fcinfo, PullCall *call, Job *job, char *code, Jsonb *details)
{
	Outcome		outcome;

	pull_outcome(job, &outcome, OUTCOME_FAILED);
	outcome.message = text_argument(fcinfo, 2);
	outcome.retryable = !PG_ARGISNULL(3) && PG_GETARG_BOOL(3);
	outcome.permanent = !PG_ARGISNULL(3) && !PG_GETARG_BOOL(3);
	outcome.code = code;
	outcome.code_given = outcome.code != NULL;
	outcome.delay_us = PG_ARGISNULL(5) ? 0 : Max(interval_to_us(PG_GETARG_INTERVAL_P(5)), 1);
	outcome.details = details;
	return pull_settle(call, job, &outcome);
}

/* jobq.fail(id, lease_token, error, retryable, error_code, retry_after, details) */
Datum
jobq_fail(PG_FUNCTION_ARGS)
{
	const char *answer = "lost";
	PullCall	call;
	Job			job;
	char	   *code;

	check_fence(fcinfo);
	code = check_failure(fcinfo);
	pull_begin(&call, "jobq.fail()");
	if (lock_job(fcinfo, &call, &job))
		answer = fail_locked(fcinfo, &call, &job, code, PG_ARGISNULL(6) ? NULL : PG_GETARG_JSONB_P(6)) == JOB_RETRY ?
			"retry" : "error";
	pull_end(&call);
	PG_RETURN_TEXT_P(cstring_to_text(answer));
}

/* jobq.fail_many(ids, lease_tokens, error, retryable, error_code, retry_after) */
Datum
jobq_fail_many(PG_FUNCTION_ARGS)
{
	Many		many;
	PullCall	call;
	char	   *code;

	read_many(fcinfo, &many);
	code = check_failure(fcinfo);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	pull_begin(&call, "jobq.fail_many()");
	for (int at = 0; at < many.n; at++)
	{
		int			i = many.order[at];
		Job			job;

		if (!lock_of_many(&call, &many, i, &job))
			continue;
		(void) fail_locked(fcinfo, &call, &job, code, NULL);
		return_id(fcinfo, many.ids[i]);
	}
	MemoryContextSwitchTo(call.ledger.context);
	pull_end(&call);
	return (Datum) 0;
}

/* jobq.skip_job(id, lease_token, reason, result) */
Datum
jobq_skip_job(PG_FUNCTION_ARGS)
{
	PullCall	call;
	Outcome		outcome;
	Job			job;
	bool		held;

	check_fence(fcinfo);
	pull_begin(&call, "jobq.skip_job()");
	held = lock_job(fcinfo, &call, &job);
	if (held)
	{
		pull_outcome(&job, &outcome, OUTCOME_SKIPPED);
		outcome.message = text_argument(fcinfo, 2);
		outcome.has_result = !PG_ARGISNULL(3);
		outcome.result = PG_ARGISNULL(3) ? NULL : PG_GETARG_JSONB_P(3);
		if (outcome.has_result)
			check_result("result", outcome.result);
		(void) pull_settle(&call, &job, &outcome);
	}
	pull_end(&call);
	PG_RETURN_BOOL(held);
}

/* jobq.snooze_job(id, lease_token, delay, reason) */
Datum
jobq_snooze_job(PG_FUNCTION_ARGS)
{
	PullCall	call;
	Outcome		outcome;
	Job			job;
	bool		held;

	check_fence(fcinfo);
	if (PG_ARGISNULL(2))
		argument_is_null("delay");
	argument_check_interval("delay", PG_GETARG_INTERVAL_P(2));
	pull_begin(&call, "jobq.snooze_job()");
	held = lock_job(fcinfo, &call, &job);
	if (held)
	{
		pull_outcome(&job, &outcome, OUTCOME_SNOOZED);
		outcome.message = text_argument(fcinfo, 3);
		outcome.delay_us = interval_to_us(PG_GETARG_INTERVAL_P(2));
		(void) pull_settle(&call, &job, &outcome);
	}
	pull_end(&call);
	PG_RETURN_BOOL(held);
}
