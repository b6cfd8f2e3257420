/*
 * hooks.c
 *	  Jobs that follow from a job.
 *
 *	 on_complete	it has completed
 *	 on_failure		an attempt has failed, whether or not another one follows
 *	 on_dead		it has become a dead letter; after on_failure
 *
 * The payload describes the job (docs/events.md).  The new job is checked as
 * if the owner of the type had enqueued it; it has the tenant of its parent,
 * and is one deeper, so options.max_depth ends a chain that comes back to
 * itself.  A description that is too large for a payload refers to the job by
 * its id, without payload, metadata and result.  A row of jobq.hook_references
 * keeps the job's row until the job of the hook has ended (25_retention.sql),
 * also of a type that keeps nothing.  A later expires_at alone would not keep it
 * from retention by number.  The table is rarely used, so it is read and written
 * by SQL, as the owner of jobq's tables; its shape is checked as that of others.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/act_as.h"
#include "base/job_status.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "base/relations.h"
#include "base/subtransaction.h"
#include "base/texts.h"
#include "enqueue/insert_job.h"
#include "security/act_as_enqueuer.h"
#include "settle/hooks.h"
#include "tables/table_shape.h"

/* ---------- references ---------- */

static const ShapeColumn hook_references_columns[] = {{"hook_job", UUIDOID, FILLED}, {"job_id", UUIDOID, FILLED}};
const Shape hook_references_shape = SHAPE("hook_references", hook_references_columns);

/*
 * Executes a statement on up to two ids; returns the number of rows returned
 * or written.
 */
static uint64
execute(const char *sql, int expected, const pg_uuid_t *first, const pg_uuid_t *second)
{
	Oid			types[] = {UUIDOID, UUIDOID};
	Datum		values[] = {UUIDPGetDatum(first), UUIDPGetDatum(second)};
	Caller		caller;
	uint64		n;

	caller = act_as_owner();
	SPI_connect();
	if (SPI_execute_with_args(sql, second ? 2 : 1, types, values, NULL, false, 0) != expected)
		elog(ERROR, "could not execute \"%s\"", sql);
	n = SPI_processed;
	SPI_finish();
	act_as_caller(caller);
	return n;
}

/* In the transaction that enqueues the job of the hook. */
static void
hook_reference_add(const pg_uuid_t *hook_job, const pg_uuid_t *job)
{
	(void) execute("INSERT INTO jobq.hook_references (hook_job, job_id) VALUES ($1, $2)", SPI_OK_INSERT, hook_job, job);
}

/* True if a job of a hook names this one. */
static bool
hook_reference_exists(const pg_uuid_t *job)
{
	return execute("SELECT FROM jobq.hook_references r WHERE r.job_id OPERATOR(pg_catalog.=) $1 LIMIT 1",
				   SPI_OK_SELECT, job, NULL) > 0;
}

/* ---------- the new job ---------- */

static void
store_hook(const Datum *values, const bool *nulls, const Hook *hook)
{
	NullableDatum args[A_COUNT];
	pg_uuid_t	id;
	Enqueuer	e;
	Request		request;

	request_defaults(args);
	args[A_job_type].value = CStringGetTextDatum(hook->job_type);
	args[A_job_type].isnull = false;
	args[A_tenant].value = values[Q_tenant - 1];
	args[A_tenant].isnull = nulls[Q_tenant - 1];
	request_read(&request, args);
	request_set_payload(&request, hook->payload);
	request_set_parent(&request, DatumGetUUIDP(values[Q_id - 1]),
					   nulls[Q_depth - 1] ? 1 : DatumGetInt32(values[Q_depth - 1]) + 1);
	enqueuer_begin(&e);
	(void) store_job(&e, &request, &id);
	enqueuer_end(&e);
	if (hook->refers)
		hook_reference_add(&id, DatumGetUUIDP(values[Q_id - 1]));
}

static void
hook_failed(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, int attempt, const Hook *hook,
			ErrorData *edata)
{
	Event		event = {.attempt = attempt, .type = "hook_failed", .source = hook->source, .level = "warning",
	.message = bounded_text(edata->message)};
	JsonBuild	b;

	if (!EVENTS_WANTED(type, EVENTS_FAILURES))
		return;
	json_begin_object(&b);
	json_add_string(&b, "hook", hook->name);
	json_add_string(&b, "job_type", hook->job_type);
	json_add_string(&b, "code", unpack_sql_state(edata->sqlerrcode));
	event.data = json_end_object(&b);
	event_add(&ledger->events, values, nulls, type->name, &event);
}

typedef struct NewHook
{
	const Datum *values;
	const bool *nulls;
	const Hook *hook;
} NewHook;

static void
store_as_owner(void *arg)
{
	NewHook    *n = arg;
	Caller		caller;

	if (n->hook->owned)
		caller = act_as_enqueuer(job_type_owner(n->hook->owned), n->hook->owned->owner);
	else
		caller = act_as_owner();
	store_hook(n->values, n->nulls, n->hook);
	act_as_caller(caller);
}

void
hook_enqueue(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, int attempt, const Hook *hook)
{
	NewHook		new_hook = {values, nulls, hook};
	char	   *tenant = jobq_tenant;
	ErrorData  *error;

	jobq_tenant = "";			/* the parent's counts, or none */
	error = try_subtransaction(store_as_owner, &new_hook);
	jobq_tenant = tenant;
	if (error == NULL)
		return;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);	/* run_inline: the caller's own */
	hook_failed(ledger, values, nulls, type, attempt, hook, error);
}

/* ---------- the payload ---------- */

static void
add_text(JsonBuild *b, const char *key, Job *job, int att)
{
	json_add_text(b, key, JOB_NULL(job, att) ? NULL : TextDatumGetCString(JOB_ATT(job, att)));
}

static void
add_id(JsonBuild *b, const char *key, Job *job, int att)
{
	json_add_text(b, key, JOB_NULL(job, att) ? NULL :
				  DatumGetCString(DirectFunctionCall1(uuid_out, JOB_ATT(job, att))));
}

static Jsonb *
jsonb_of(Job *job, int att)
{
	return JOB_NULL(job, att) ? NULL : DatumGetJsonbP(JOB_ATT(job, att));
}

/* The size of the job's description. */
typedef enum StorySize
{
	STORY_WHOLE,
	STORY_REFERS,				/* payload, metadata and result by reference */
	STORY_SHORT					/* nor error_details */
} StorySize;

static Jsonb *
build_story(Job *job, JobType *type, Outcome *o, int attempt, JobStatus status, const char *hook,
			StorySize size)
{
	JsonBuild	b;

	json_begin_object(&b);
	json_add_string(&b, "hook", hook);
	add_id(&b, "id", job, Q_id);
	json_add_string(&b, "job_type", type->name);
	json_add_string(&b, "status", status_name(status));
	json_add_number(&b, "attempts", attempt);
	json_add_number(&b, "max_attempts", JOB_INT(job, Q_max_attempts));
	json_add_number(&b, "runs", JOB_INT(job, Q_runs));
	json_add_text(&b, "error_msg", o->message);
	json_add_text(&b, "error_code", o->code);
	add_text(&b, "tenant", job, Q_tenant);
	add_id(&b, "parent_id", job, Q_parent_id);
	json_add_text(&b, "worker", o->worker);
	json_add_time(&b, "created_at", DatumGetTimestampTz(JOB_ATT(job, Q_created_at)));
	json_add_time(&b, "started_at", o->started_at);
	json_add_time(&b, "ended_at", o->ended_at);
	if (size == STORY_WHOLE)
	{
		json_add_jsonb(&b, "payload", jsonb_of(job, Q_payload));
		json_add_jsonb(&b, "metadata", jsonb_of(job, Q_metadata));
		json_add_jsonb(&b, "result", o->has_result ? o->result : NULL);
	}
	else
	{
		json_add_bool(&b, "truncated", true);
		add_id(&b, "job_id", job, Q_id);
	}
	if (size != STORY_SHORT)
		json_add_jsonb(&b, "error_details", o->details);
	return json_end_object(&b);
}

static void
fire(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, JobStatus status, const char *name,
	 const char *job_type)
{
	Hook		hook = {.name = name, .job_type = job_type, .owned = type, .source = o->source};

	if (job_type == NULL)
		return;
	for (StorySize size = STORY_WHOLE; size <= STORY_SHORT; size++)
	{
		hook.payload = build_story(job, type, o, attempt, status, name, size);
		hook.refers = size != STORY_WHOLE;
		if (json_fits(hook.payload, (int64) jobq_max_payload))
			break;
	}
	hook_enqueue(ledger, job->values, job->nulls, type, attempt, &hook);
}

void
hooks_fire(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, JobStatus status)
{
	if (o->kind == OUTCOME_COMPLETED)
		fire(ledger, job, type, o, attempt, status, "on_complete", type->on_complete);
	if (o->kind != OUTCOME_FAILED)
		return;
	fire(ledger, job, type, o, attempt, status, "on_failure", type->on_failure);
	if (status == JOB_ERROR)
		fire(ledger, job, type, o, attempt, status, "on_dead", type->on_dead);
}

bool
hooks_refer(Job *job, JobType *type, Outcome *o, int attempt, JobStatus status)
{
	bool		fires = o->kind == OUTCOME_COMPLETED ? type->on_complete != NULL :
		o->kind == OUTCOME_FAILED && (type->on_failure != NULL || type->on_dead != NULL);

	/* the names of hooks differ in length, and runs may rise yet */
	if (fires && !json_fits(build_story(job, type, o, attempt, status, "on_complete", STORY_WHOLE),
							(int64) jobq_max_payload - 32))
		return true;
	return type->on_failure != NULL && JOB_INT(job, Q_runs) > (o->begun ? 1 : 0) && hook_reference_exists(JOB_ID(job));
}
