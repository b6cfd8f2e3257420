/*
 * sql_internal.c
 *	  C functions that jobq's own SQL (src/sql) calls and that belong to no
 *	  folder.
 *
 * They lock, cancel and look up single jobs, check the payload of
 * jobq.rerun_job and jobq.alter_job as enqueue does, make ids and write events.
 * They are internal: only the owner may call them, and they check no rights.
 */
#include "jobq.h"

#include <math.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "base/caller.h"
#include "base/concurrency_key_hash.h"
#include "base/errors.h"
#include "base/job_id.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "base/relations.h"
#include "registry/command_template.h"
#include "registry/job_types.h"
#include "settle/settle.h"
#include "shared/publish_ends.h"
#include "shared/xact_changes.h"
#include "tables/event_log.h"
#include "tables/home.h"
#include "tables/queue_find.h"
#include "tables/queue_table.h"

PG_FUNCTION_INFO_V1(jobq_lock_job);
PG_FUNCTION_INFO_V1(jobq_lock_free_job);
PG_FUNCTION_INFO_V1(jobq_cancel);
PG_FUNCTION_INFO_V1(jobq_cancel_free);
PG_FUNCTION_INFO_V1(jobq_home_id);
PG_FUNCTION_INFO_V1(jobq_home_is_ours);
PG_FUNCTION_INFO_V1(jobq_check_payload);
PG_FUNCTION_INFO_V1(jobq_new_id);
PG_FUNCTION_INFO_V1(jobq_tell);

/* ---------- jobs ---------- */

/*
 * Publishes the job's position at the end of the transaction: an executor may
 * have skipped the row because this transaction had locked it.  A blocked job
 * has no place in a lane.
 */
static void
note_job(Job *job)
{
	if (job->status == JOB_BLOCKED)
		return;
	note_position(JOB_INT(job, Q_type_id), DatumGetInt16(JOB_ATT(job, Q_priority)),
				  DatumGetInt16(JOB_ATT(job, Q_sublane)),
				  DatumGetTimestampTz(JOB_ATT(job, Q_position)));
}

static pg_uuid_t *
id_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		argument_is_null("id");
	return PG_GETARG_UUID_P(0);
}

static LockResult
lock_job(Table *queue, const pg_uuid_t *id, Job *job, bool wait, bool *held)
{
	*held = false;
	return wait ? queue_lock_by_id(queue, id, job) : queue_lock_unless_held(queue, id, job, held);
}

static Datum
lock_waiting_job(const pg_uuid_t *id, bool wait)
{
	const char *result = "gone";
	bool		held;
	Table		queue;
	Job			job;

	PreventCommandIfReadOnly("jobq_internal._lock_job()");
	table_open_for_write(&queue, jobq_relid("queue"));
	switch (lock_job(&queue, id, &job, wait, &held))
	{
		case LOCK_OK:
			note_job(&job);
			result = "locked";
			break;
		case LOCK_BUSY:
			result = "running";
			break;
		case LOCK_GONE:
			if (held)
				result = "held";
			break;
	}
	table_close_after_write(&queue);
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

/* jobq_internal._lock_job(id) */
Datum
jobq_lock_job(PG_FUNCTION_ARGS)
{
	return lock_waiting_job(id_argument(fcinfo), true);
}

/* jobq_internal._lock_free_job(id) */
Datum
jobq_lock_free_job(PG_FUNCTION_ARGS)
{
	return lock_waiting_job(id_argument(fcinfo), false);
}

/* Ends a waiting job that this transaction has locked. */
static void
cancel_waiting(Ledger *ledger, Job *job, char *reason)
{
	JobType    *type = job_type_by_id(JOB_INT(job, Q_type_id));
	Outcome		outcome = {0};

	outcome.kind = OUTCOME_CANCELLED;
	outcome.message = reason;
	outcome.ended_at = GetCurrentTimestamp();
	outcome.source = source_of_sql();
	outcome.progress = NAN;
	(void) settle(ledger, job, type, &outcome);
}

static bool
is_run(Job *job)
{
	JobType    *type = job_type_by_id(JOB_INT(job, Q_type_id));

	return type != NULL && type->workflow;
}

/*
 * True if its row takes a cancel: a client has the job, or it is a run.  A run
 * of jobq.run_inline has no lease.
 */
static bool
is_leased(Job *job)
{
	return job->status == JOB_RUNNING && (!JOB_NULL(job, Q_lease_token) || is_run(job));
}

/*
 * Marks a job that a client has: its heartbeat answers 'cancel'.  False: the
 * row has changed meanwhile, or is held (queue_lock_leased).
 */
static bool
cancel_leased(Table *queue, Job *seen, const char *reason, bool *held)
{
	Job			job;

	if (!queue_lock_leased(queue, seen, &job, held))
		return false;
	JOB_ATT(&job, Q_cancel_requested) = BoolGetDatum(true);
	job.nulls[Q_cancel_requested - 1] = false;
	job.nulls[Q_error_msg - 1] = reason == NULL;
	if (reason)
		JOB_ATT(&job, Q_error_msg) = CStringGetTextDatum(reason);
	job.nulls[Q_error_code - 1] = job.nulls[Q_error_details - 1] = true;
	JOB_ATT(&job, Q_rev) = Int32GetDatum(JOB_INT(&job, Q_rev) + 1);
	queue_update(queue, &job);
	note_lease(JOB_ID(&job));
	if (is_run(&job))
		note_look(JOB_ID(&job), tenant_hash(JOB_TENANT(&job)), END_READ);
	return true;
}

/* Cancels a job.  Arguments: id, reason, tell. */
static Datum
cancel(FunctionCallInfo fcinfo, bool wait)
{
	pg_uuid_t  *id = id_argument(fcinfo);
	char	   *reason = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	const char *result = "gone";
	bool		held;
	bool		leased = false;
	LockResult	locked;
	Ledger		ledger;
	Job			job;

	PreventCommandIfReadOnly("jobq.cancel_job()");
	ledger_open(&ledger);
	do
		locked = lock_job(&ledger.queue, id, &job, wait, &held);
	while (locked == LOCK_BUSY && PG_GETARG_BOOL(2) && is_leased(&job) &&
		   !(leased = cancel_leased(&ledger.queue, &job, reason, wait ? NULL : &held)) && !held);
	switch (locked)
	{
		case LOCK_OK:
			note_job(&job);
			cancel_waiting(&ledger, &job, reason);
			result = "cancelled";
			break;
		case LOCK_BUSY:
			if (held)
			{
				result = "held";
				break;
			}
			if (PG_GETARG_BOOL(2) && !leased)
				note_cancel(id, reason);
			result = PG_GETARG_BOOL(2) ? "told" : "running";
			break;
		case LOCK_GONE:
			if (held)
				result = "held";
			break;
	}
	ledger_close(&ledger);
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

/* jobq_internal._cancel(id, reason, tell) */
Datum
jobq_cancel(PG_FUNCTION_ARGS)
{
	return cancel(fcinfo, true);
}

/* jobq_internal._cancel_free(id, reason, tell) */
Datum
jobq_cancel_free(PG_FUNCTION_ARGS)
{
	return cancel(fcinfo, false);
}

Datum
jobq_home_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(home_id(!XactReadOnly));
}

Datum
jobq_home_is_ours(PG_FUNCTION_ARGS)
{
	int32		id;

	PG_RETURN_BOOL(home_is_ours(&id));
}

/* ---------- payloads, ids, events ---------- */

/* jobq_internal._check_payload(type_id, payload), STRICT */
Datum
jobq_check_payload(PG_FUNCTION_ARGS)
{
	JobType    *type = job_type_by_id(PG_GETARG_INT32(0));
	Jsonb	   *payload = PG_GETARG_JSONB_P(1);

	check_json_size("payload", payload, (int64) jobq_max_payload);
	if (type != NULL && type->command != NULL)
		command_check_payload(type, payload);
	PG_RETURN_VOID();
}

/* jobq_internal._new_id() */
Datum
jobq_new_id(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

	make_job_id(id);
	PG_RETURN_UUID_P(id);
}

/* Adds the caller of the management function that runs to the event's data. */
static Jsonb *
with_caller(Jsonb *data)
{
	char	   *by = caller_text();
	JsonBuild	b;
	Jsonb	   *more;

	if (by == NULL)
		return data;
	json_begin_object(&b);
	json_add_string(&b, "by", by);
	more = json_end_object(&b);
	if (data == NULL)
		return more;
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(data), JsonbPGetDatum(more)));
}

/*
 * jobq_internal._tell(job_id, type_id, tenant, attempt, type, message, data)
 *		Writes the event of a client's action on a job.
 */
Datum
jobq_tell(PG_FUNCTION_ARGS)
{
	Datum		values[Q_NATTS] = {0};
	bool		nulls[Q_NATTS] = {0};
	Event		event = {.source = source_of_sql(), .level = "info"};
	JobType    *type;
	EventLog	log;
	bool		stored;			/* the event of a new row */

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(3) || PG_ARGISNULL(4))
		PG_RETURN_VOID();
	event.type = text_to_cstring(PG_GETARG_TEXT_PP(4));
	type = job_type_by_id(PG_GETARG_INT32(1));
	stored = strcmp(event.type, "enqueued") == 0 || strcmp(event.type, "blocked") == 0;
	if (!EVENTS_WANTED(type, stored ? EVENTS_ALL : EVENTS_FAILURES))
		PG_RETURN_VOID();
	values[Q_id - 1] = PG_GETARG_DATUM(0);
	values[Q_tenant - 1] = PG_GETARG_DATUM(2);
	nulls[Q_tenant - 1] = PG_ARGISNULL(2);
	event.attempt = PG_GETARG_INT32(3);
	event.message = PG_ARGISNULL(5) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(5));
	event.data = with_caller(PG_ARGISNULL(6) ? NULL : PG_GETARG_JSONB_P(6));
	events_begin(&log);
	event_add(&log, values, nulls, type->name, &event);
	events_end(&log);
	PG_RETURN_VOID();
}
