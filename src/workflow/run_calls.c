/*
 * run_calls.c
 *	  What the SQL of runs (src/sql/58_runs.sql) does to single jobs: the end of
 *	  a task or run, the release of a task, another look of the conductor.
 *
 * The functions are internal: only the owner may call them, and they check no
 * rights.
 */
#include "jobq.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "base/concurrency_key_hash.h"
#include "base/errors.h"
#include "base/relations.h"
#include "security/access.h"
#include "settle/release_blocked.h"
#include "settle/settle.h"
#include "shared/breaker.h"
#include "shared/publish_ends.h"
#include "shared/xact_changes.h"
#include "tables/queue_find.h"
#include "workflow/run_begin.h"

PG_FUNCTION_INFO_V1(jobq_settle_task);
PG_FUNCTION_INFO_V1(jobq_release_task);
PG_FUNCTION_INFO_V1(jobq_look_again);
PG_FUNCTION_INFO_V1(jobq_look_at_parent);
PG_FUNCTION_INFO_V1(jobq_may_enqueue);
PG_FUNCTION_INFO_V1(jobq_turn_is_over);

/*
 * Locks the row; false: it has gone.  40001, which the conductor takes for a
 * lock: another transaction has it.
 */
static bool
lock_row(Table *queue, const pg_uuid_t *id, Job *job)
{
	Snapshot	snapshot;
	bool		found;
	Job			seen;

	CommandCounterIncrement();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	found = queue_find_by_id(queue, id, snapshot, &seen);
	UnregisterSnapshot(snapshot);
	if (!found)
		return false;
	if (!queue_fetch_version(queue, &seen.tid) || queue_lock_version(queue) != TM_Ok)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("another transaction holds a job of the run")));
	job_from_slot(queue, job);
	ExecClearTuple(queue->slot);
	return true;
}

static OutcomeKind
outcome_kind(const char *word)
{
	if (strcmp(word, "completed") == 0)
		return OUTCOME_COMPLETED;
	if (strcmp(word, "skipped") == 0)
		return OUTCOME_SKIPPED;
	if (strcmp(word, "cancelled") == 0)
		return OUTCOME_CANCELLED;
	if (strcmp(word, "failed") == 0)
		return OUTCOME_FAILED;
	elog(ERROR, "unknown outcome \"%s\"", word);
}

static char *
text_argument(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
}

/* Tells the dispatcher of the end of a run, which has a lease. */
static void
note_run_end(Job *job, JobStatus status)
{
	BreakerNote note = {0};

	if (!JOB_NULL(job, Q_lease_token))
		note_attempt_end(JOB_ID(job), status, &note, status == JOB_ERROR);
}

/* jobq_internal._settle_task(id, outcome, result, code, message) */
Datum
jobq_settle_task(PG_FUNCTION_ARGS)
{
	Outcome		o = {.source = "dispatcher", .permanent = true, .begun = true};
	Ledger		ledger;
	Job			job;
	bool		found;

	o.kind = outcome_kind(text_argument(fcinfo, 1));
	o.has_result = !PG_ARGISNULL(2);
	o.result = o.has_result ? PG_GETARG_JSONB_P(2) : NULL;
	o.code = text_argument(fcinfo, 3);
	o.message = text_argument(fcinfo, 4);
	o.ended_at = GetCurrentTimestamp();
	ledger_open(&ledger);
	found = lock_row(&ledger.queue, PG_GETARG_UUID_P(0), &job);
	if (found)
	{
		o.started_at = JOB_NULL(&job, Q_started_at) ? 0 : DatumGetTimestampTz(JOB_ATT(&job, Q_started_at));
		outcome_keep_progress(&job, &o);
		note_run_end(&job, settle(&ledger, &job, job_type_by_id(JOB_INT(&job, Q_type_id)), &o));
	}
	ledger_close(&ledger);
	PG_RETURN_BOOL(found);
}

static void
set(Job *job, int att, Datum value)
{
	JOB_ATT(job, att) = value;
	job->nulls[att - 1] = false;
}

/* jobq_internal._release_task(id, payload, due, position) */
Datum
jobq_release_task(PG_FUNCTION_ARGS)
{
	Ledger		ledger;
	Job			job;
	bool		found;

	ledger_open(&ledger);
	found = lock_row(&ledger.queue, PG_GETARG_UUID_P(0), &job) && job.status == JOB_BLOCKED;
	if (found)
	{
		set(&job, Q_payload, PG_GETARG_DATUM(1));
		set(&job, Q_scheduled_for, PG_GETARG_DATUM(2));
		release_blocked(&ledger, &job, job_type_by_id(JOB_INT(&job, Q_type_id)), PG_GETARG_TIMESTAMPTZ(3));
	}
	ledger_close(&ledger);
	PG_RETURN_BOOL(found);
}

/* jobq_internal._look_again(id) */
Datum
jobq_look_again(PG_FUNCTION_ARGS)
{
	Table		queue;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Job			job;

	table_open_for_write(&queue, jobq_relid("queue"));
	if (queue_find_by_id(&queue, PG_GETARG_UUID_P(0), snapshot, &job))
		note_look(JOB_ID(&job), tenant_hash(JOB_TENANT(&job)), END_READ);
	table_close_after_write(&queue);
	UnregisterSnapshot(snapshot);
	PG_RETURN_VOID();
}

/* jobq_internal._turn_is_over() */
Datum
jobq_turn_is_over(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(run_turn_is_over());
}

/* jobq_internal._look_at_parent(id) */
Datum
jobq_look_at_parent(PG_FUNCTION_ARGS)
{
	note_look(PG_GETARG_UUID_P(0), 0, END_LOOK);
	PG_RETURN_VOID();
}

/* jobq_internal._may_enqueue(role, tenant, type_id) */
Datum
jobq_may_enqueue(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	text	   *tenant = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	JobType    *type = job_type_by_id(PG_GETARG_INT32(2));

	PG_RETURN_BOOL(OidIsValid(role) && type != NULL && !type->dropped &&
				   access_may_enqueue(role, type, tenant));
}
