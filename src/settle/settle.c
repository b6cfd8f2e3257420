/*
 * settle.c
 *	  The end of an attempt.  settle.h lists the callers; this is the whole state machine:
 *
 *	 completed | skipped | cancelled	queue row deleted, history row if the type keeps any
 *	 failed, attempts left				queue row: retry, later, error kept; event 'failed'
 *	 failed, none left or permanent		queue row deleted, dead letter; events 'failed', 'dead'
 *	 snoozed							queue row: pending, later; the attempt is not charged
 *	 released							queue row as before the attempt, and its error; not charged
 *
 * Each is one function below; all rows are written past the executor
 * (queue_table.h).
 */
#include "jobq.h"

#include <math.h>

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/concurrency_key_hash.h"
#include "base/interval.h"
#include "base/job_status.h"
#include "base/texts.h"
#include "registry/backoff.h"
#include "settle/alerts.h"
#include "settle/attempt_events.h"
#include "settle/failure_codes.h"
#include "settle/hooks.h"
#include "settle/recent_ends.h"
#include "settle/settle.h"
#include "settle/settle_counts.h"
#include "shared/publish_ends.h"
#include "shared/publish_schedules.h"
#include "shared/stat_changes.h"
#include "shared/xact_changes.h"
#include "tables/unique_key_lookup.h"

/* ---------- rows ---------- */

static void
set_text(Datum *values, bool *nulls, int att, const char *text)
{
	nulls[att - 1] = text == NULL;
	values[att - 1] = text ? CStringGetTextDatum(text) : (Datum) 0;
}

static void
copy_att(Datum *values, bool *nulls, int to, Job *job, int from)
{
	values[to - 1] = JOB_ATT(job, from);
	nulls[to - 1] = JOB_NULL(job, from);
}

static void
set_progress(Datum *values, bool *nulls, int att, int att_data, Outcome *o)
{
	nulls[att - 1] = isnan(o->progress);
	if (!isnan(o->progress))
		values[att - 1] = DirectFunctionCall1(float8_numeric, Float8GetDatum(o->progress));
	nulls[att_data - 1] = o->progress_data == NULL || o->progress_data[0] == '\0';
	if (!nulls[att_data - 1])
		values[att_data - 1] = DirectFunctionCall1(jsonb_in, CStringGetDatum(o->progress_data));
}

void
outcome_keep_progress(Job *job, Outcome *o)
{
	o->progress = JOB_NULL(job, Q_progress) ? get_float8_nan() :
		DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, JOB_ATT(job, Q_progress)));
	o->progress_data = NULL;
	if (!JOB_NULL(job, Q_progress_data))
		o->progress_data = JsonbToCString(NULL, &DatumGetJsonbP(JOB_ATT(job, Q_progress_data))->root, 0);
}

static TimestampTz
calendar_sum(TimestampTz ts, const Interval *span)
{
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(ts),
												   IntervalPGetDatum(span)));
}

/*
 * Adds an interval, and reuses the distance for the same interval within a
 * second: one batch after another ends jobs of the same type.
 */
static TimestampTz
add_interval(TimestampTz ts, const Interval *span)
{
	static Interval last_span;
	static TimestampTz last_ts = 0;
	static int64 distance = 0;

	if (last_ts == 0 || ts < last_ts || ts - last_ts > USECS_PER_SEC ||
		memcmp(span, &last_span, sizeof(Interval)) != 0)
	{
		distance = calendar_sum(ts, span) - ts;
		last_ts = ts;
		last_span = *span;
	}
	return ts + distance;
}

/*
 * Builds the row of a finished job, for history and dead_letters alike; false:
 * none is kept.
 */
static bool
finished_row(Job *job, JobType *type, JobStatus status, Outcome *o, bool keep, TimestampTz expires_at,
			 Datum *values, bool *nulls)
{
	static const int copied[][2] = {
		{H_id, Q_id}, {H_scheduled_for, Q_scheduled_for}, {H_created_at, Q_created_at},
		{H_type_id, Q_type_id}, {H_attempts, Q_attempts}, {H_max_attempts, Q_max_attempts},
		{H_runs, Q_runs}, {H_depth, Q_depth}, {H_priority, Q_priority}, {H_payload, Q_payload},
		{H_timeout, Q_timeout}, {H_unique_key, Q_unique_key},
		{H_concurrency_key, Q_concurrency_key}, {H_tenant, Q_tenant}, {H_parent_id, Q_parent_id},
		{H_workflow_id, Q_workflow_id}, {H_task_key, Q_task_key}, {H_metadata, Q_metadata},
		{H_node, Q_node}, {H_backoff, Q_backoff}, {H_unique_for, Q_unique_for},
		{H_keep_completed, Q_keep_completed}, {H_enqueued_by, Q_enqueued_by}, {H_keep_dead, Q_keep_dead},
		{H_after, Q_after}, {H_after_rule, Q_after_rule}
	};

	nulls[H_unique_until - 1] = true;
	if (!JOB_NULL(job, Q_unique_for) && !JOB_NULL(job, Q_unique_key))
	{
		TimestampTz until = add_interval(o->ended_at, DatumGetIntervalP(JOB_ATT(job, Q_unique_for)));

		nulls[H_unique_until - 1] = false;
		values[H_unique_until - 1] = TimestampTzGetDatum(until);
		if (!keep || expires_at < until)
			expires_at = until;
		keep = true;
	}
	if (!keep)
		return false;
	for (int i = 0; i < (int) lengthof(copied); i++)
		copy_att(values, nulls, copied[i][0], job, copied[i][1]);
	values[H_expires_at - 1] = TimestampTzGetDatum(expires_at);
	values[H_completed_at - 1] = TimestampTzGetDatum(o->ended_at);
	values[H_started_at - 1] = TimestampTzGetDatum(o->started_at);
	nulls[H_started_at - 1] = o->started_at == 0;
	values[H_status - 1] = ObjectIdGetDatum(status_oid(status));
	values[H_result - 1] = PointerGetDatum(o->result);
	nulls[H_result - 1] = !o->has_result || o->result == NULL;
	set_text(values, nulls, H_error_msg, o->message);
	set_text(values, nulls, H_error_code, o->code);
	values[H_error_details - 1] = PointerGetDatum(o->details);
	nulls[H_error_details - 1] = o->details == NULL;
	set_text(values, nulls, H_worker, o->worker);
	set_progress(values, nulls, H_progress, H_progress_data, o);
	values[H_counted - 1] = BoolGetDatum(type && type->keep_completed_count >= 0 && JOB_NULL(job, Q_workflow_id));
	return true;
}

/*
 * Charges the attempt in the job, for executors that have not written it
 * before.
 */
static void
charge_attempt(Job *job, Outcome *o)
{
	if (o->begun || o->started_at == 0)
		return;
	JOB_ATT(job, Q_attempts) = Int32GetDatum(JOB_INT(job, Q_attempts) + 1);
	JOB_ATT(job, Q_runs) = Int32GetDatum(JOB_INT(job, Q_runs) + 1);
}

/* Counts a start that costs no attempt in runs, unless nothing was started. */
static void
count_run_only(Job *job, Outcome *o)
{
	if (o->begun)
	{
		JOB_ATT(job, Q_attempts) = Int32GetDatum(Max(JOB_INT(job, Q_attempts) - 1, 0));
		JOB_ATT(job, Q_runs) = Int32GetDatum(Max(JOB_INT(job, Q_runs) - o->never_ran, 0));
	}
	else if (o->started_at != 0)
		JOB_ATT(job, Q_runs) = Int32GetDatum(JOB_INT(job, Q_runs) + 1);
}

/* Stores the reason why the job waits, over its last error. */
static void
note_start_failure(Job *job, Outcome *o)
{
	set_text(job->values, job->nulls, Q_error_msg, o->message);
	job->nulls[Q_error_code - 1] = job->nulls[Q_error_details - 1] = true;
}

/* ---------- the ends ---------- */

/*
 * True if history keeps a row of a job that completes then, and until when: by
 * its own keep_completed or its type's, and for unique_for.
 */
static bool
history_keeps(Job *job, JobType *type, TimestampTz ended_at, TimestampTz *expires_at)
{
	Interval	span = {0};
	bool		keep = type ? !type->keeps_nothing : true;

	if (!JOB_NULL(job, Q_keep_until))
	{
		*expires_at = DatumGetTimestampTz(JOB_ATT(job, Q_keep_until));
		return true;
	}
	if (!JOB_NULL(job, Q_keep_completed))
	{
		span = *DatumGetIntervalP(JOB_ATT(job, Q_keep_completed));
		keep = interval_to_us(&span) > 0;
	}
	else if (type)
		span = type->keep_completed;
	*expires_at = add_interval(ended_at, &span);
	if (!JOB_NULL(job, Q_unique_for) && !JOB_NULL(job, Q_unique_key))
	{
		TimestampTz until = add_interval(ended_at, DatumGetIntervalP(JOB_ATT(job, Q_unique_for)));

		*expires_at = keep ? Max(*expires_at, until) : until;
		keep = true;
	}
	return keep;
}

/* True if other jobs may wait for this one. */
static bool
is_awaited(Job *job)
{
	JobqDb	   *db = my_db();

	return db != NULL && job_is_awaited(db, JOB_ID(job));
}

/* Settles completed, skipped, cancelled. */
static JobStatus
finish(Ledger *ledger, Job *job, JobType *type, JobStatus status, Outcome *o)
{
	Datum		values[H_NATTS] = {0};
	bool		nulls[H_NATTS] = {0};
	TimestampTz expires_at;
	bool		keep = history_keeps(job, type, o->ended_at, &expires_at);
	int			attempt = attempt_events_number(job, o);

	if (!keep && type && type->has_hooks && hooks_refer(job, type, o, attempt, status))
	{
		keep = true;			/* until the job of the hook has ended */
		expires_at = o->ended_at;
	}
	if (!keep && is_awaited(job))
	{
		keep = true;			/* until the jobs that wait for it know */
		expires_at = o->ended_at;
	}
	charge_attempt(job, o);
	if (EVENTS_WANTED(type, EVENTS_ALL) || o->log != NIL)
		attempt_events_finished(ledger, job, type, o, attempt, status);
	if (finished_row(job, type, status, o, keep, expires_at, values, nulls))
		ledger_move_to_history(ledger, job, values, nulls);
	else
	{
		remember_end(job, status);
		table_delete_row(&ledger->queue, &job->tid);
	}
	if (type && type->has_hooks)
		hooks_fire(ledger, job, type, o, attempt, status);
	return status;
}

/*
 * True if the dead letter is kept, by its own keep_dead or its type's, and
 * until when.  keep_until decides about a task; a run stays longer if its
 * keep_dead says so.
 */
static bool
dead_letters_keep(Job *job, JobType *type, TimestampTz ended_at, TimestampTz *expires_at)
{
	bool		keep = type == NULL || !type->buries_nothing;
	const Interval *span = type && !type->keep_dead_forever ? &type->keep_dead : NULL;

	if (!JOB_NULL(job, Q_keep_dead))
	{
		span = DatumGetIntervalP(JOB_ATT(job, Q_keep_dead));
		keep = interval_to_us(span) > 0;
	}
	*expires_at = span ? add_interval(ended_at, span) : DT_NOEND;
	if (!JOB_NULL(job, Q_keep_until))
	{
		TimestampTz until = DatumGetTimestampTz(JOB_ATT(job, Q_keep_until));

		*expires_at = JOB_NULL(job, Q_workflow_id) ? Max(*expires_at, until) : until;
		keep = true;
	}
	return keep;
}

static void
bury(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt)
{
	Datum		values[H_NATTS] = {0};
	bool		nulls[H_NATTS] = {0};
	TimestampTz expires_at;
	bool		keep = dead_letters_keep(job, type, o->ended_at, &expires_at);

	if (!keep && type && type->has_hooks && hooks_refer(job, type, o, attempt, JOB_ERROR))
	{
		keep = true;
		expires_at = o->ended_at;
	}
	if (!keep && is_awaited(job))
	{
		keep = true;
		expires_at = o->ended_at;
	}
	if (finished_row(job, type, JOB_ERROR, o, keep, expires_at, values, nulls))
	{
		ledger_bury(ledger, values, nulls);
		stat_dead_letters(JOB_INT(job, Q_type_id), 1);
	}
	else
		remember_end(job, JOB_ERROR);
	table_delete_row(&ledger->queue, &job->tid);
}

/*
 * Puts the row back to wait until `due`; publishes it.  A task that is due at
 * once keeps its place, the position of its run, unless the clock was set back;
 * a later one gets it back then, from the conductor (_keep_place).
 */
static void
put_back(Ledger *ledger, Job *job, JobStatus status, TimestampTz due)
{
	JOB_ATT(job, Q_status) = ObjectIdGetDatum(status_oid(status));
	JOB_ATT(job, Q_rev) = Int32GetDatum(JOB_INT(job, Q_rev) + 1);
	if (due != 0)
	{
		JOB_ATT(job, Q_scheduled_for) = TimestampTzGetDatum(due);
		if (JOB_NULL(job, Q_workflow_id) ||
			Max(due, DatumGetTimestampTz(JOB_ATT(job, Q_position))) > GetCurrentTimestamp())
			JOB_ATT(job, Q_position) = TimestampTzGetDatum(due);
	}
	job->nulls[Q_lease_token - 1] = true;
	job->nulls[Q_lease_expires_at - 1] = true;
	job->nulls[Q_lease - 1] = true;
	job->nulls[Q_cancel_requested - 1] = true;
	queue_update(&ledger->queue, job);
	note_position(JOB_INT(job, Q_type_id), DatumGetInt16(JOB_ATT(job, Q_priority)),
				  DatumGetInt16(JOB_ATT(job, Q_sublane)),
				  DatumGetTimestampTz(JOB_ATT(job, Q_position)));
}

static void
keep_error(Job *job, Outcome *o)
{
	set_text(job->values, job->nulls, Q_error_msg, o->message);
	set_text(job->values, job->nulls, Q_error_code, o->code);
	job->values[Q_error_details - 1] = PointerGetDatum(o->details);
	job->nulls[Q_error_details - 1] = o->details == NULL;
	job->values[Q_started_at - 1] = TimestampTzGetDatum(o->started_at);
	job->nulls[Q_started_at - 1] = o->started_at == 0;
	set_text(job->values, job->nulls, Q_worker, o->worker);
	set_progress(job->values, job->nulls, Q_progress, Q_progress_data, o);
}

/* True if no attempt follows this one, which has that number. */
static bool
is_last(Job *job, JobType *type, Outcome *o, int attempt)
{
	return type == NULL || o->permanent || (!o->retryable && failure_code_is_permanent(type, o)) ||
		attempt >= JOB_INT(job, Q_max_attempts) ||
		(o->crashed && JOB_INT(job, Q_crashes) + 1 >= type->max_crashes);
}

/* A run raises one alert; its tasks, runs and maps among them, raise none. */
static bool
raises_alert(Job *job, JobType *type)
{
	return type && type->alert && JOB_NULL(job, Q_workflow_id);
}

static JobStatus
fail(Ledger *ledger, Job *job, JobType *type, Outcome *o)
{
	int			attempt = attempt_events_number(job, o);
	bool		last = is_last(job, type, o, attempt);
	Backoff		backoff;

	charge_attempt(job, o);
	if (o->crashed)
		JOB_ATT(job, Q_crashes) = Int32GetDatum(JOB_INT(job, Q_crashes) + 1);
	attempt_events_failed(ledger, job, type, o, attempt, last);
	if (last)
	{
		bury(ledger, job, type, o, attempt);
		if (type && type->has_hooks)
			hooks_fire(ledger, job, type, o, attempt, JOB_ERROR);
		if (raises_alert(job, type))
			alert_dead_letter(ledger, job, type, o, attempt);
		return JOB_ERROR;
	}
	backoff_merge(&type->backoff, JOB_NULL(job, Q_backoff) ? NULL : DatumGetJsonbP(JOB_ATT(job, Q_backoff)), &backoff);
	keep_error(job, o);
	put_back(ledger, job, JOB_RETRY,
			 o->ended_at + (o->delay_us > 0 ? o->delay_us : backoff_delay(&backoff, JOB_INT(job, Q_attempts))));
	attempt_events_waits(ledger, job, type, o, attempt, "retry_scheduled");
	if (type->has_hooks)
		hooks_fire(ledger, job, type, o, attempt, JOB_RETRY);
	return JOB_RETRY;
}

/*
 * Puts the job back without charging the attempt: until `due`, or as before
 * (0).
 */
static JobStatus
postpone(Ledger *ledger, Job *job, JobType *type, Outcome *o, TimestampTz due)
{
	int			attempt = attempt_events_number(job, o);
	JobStatus	waiting = JOB_PENDING;

	count_run_only(job, o);
	if (due == 0 && JOB_INT(job, Q_attempts) > 0)
		waiting = JOB_RETRY;
	if (due != 0)
		set_text(job->values, job->nulls, Q_error_msg, o->message);
	else if (o->never_ran)
		note_start_failure(job, o);
	else if (o->code != NULL)
		keep_error(job, o);
	put_back(ledger, job, waiting, due);
	attempt_events_lines(ledger, job, type, o, attempt);
	attempt_events_waits(ledger, job, type, o, attempt, due != 0 ? "snoozed" : "released");
	return waiting;
}

/* Cuts message, code and details; a second call changes nothing. */
static void
bound_outcome(Outcome *o)
{
	o->message = bounded_text(o->message);
	o->code = bounded_code(o->code);
	o->details = bounded_details(o->details);
}

static JobStatus
settle_by_kind(Ledger *ledger, Job *job, JobType *type, Outcome *o)
{
	switch (o->kind)
	{
		case OUTCOME_COMPLETED:
			return finish(ledger, job, type, JOB_COMPLETED, o);
		case OUTCOME_SKIPPED:
			return finish(ledger, job, type, JOB_SKIPPED, o);
		case OUTCOME_CANCELLED:
			return finish(ledger, job, type, JOB_CANCELLED, o);
		case OUTCOME_FAILED:
			return fail(ledger, job, type, o);
		case OUTCOME_SNOOZED:
			return postpone(ledger, job, type, o, o->ended_at + o->delay_us);
		case OUTCOME_RELEASED:
			return postpone(ledger, job, type, o, 0);
	}
	elog(ERROR, "unknown outcome %d", (int) o->kind);
}

JobStatus
settle(Ledger *ledger, Job *job, JobType *type, Outcome *o)
{
	TimestampTz due = due_since(job);
	uint32		tenant = tenant_hash(JOB_TENANT(job));
	JobStatus	status;

	bound_outcome(o);
	status = settle_by_kind(ledger, job, type, o);
	unique_publish_sibling(&ledger->queue, job);	/* it was held back while this one ran */
	count_settlement(job, o, status, due);
	if (status >= JOB_COMPLETED)
	{
		if (!JOB_NULL(job, Q_schedule_id))
			note_scheduled_end(JOB_INT(job, Q_schedule_id), JOB_ID(job), status, o->ended_at);
		note_end(JOB_ID(job), tenant, status, !JOB_NULL(job, Q_workflow_id));
		if (!JOB_NULL(job, Q_workflow_id) && !JOB_NULL(job, Q_parent_id))
			note_look(DatumGetUUIDP(JOB_ATT(job, Q_parent_id)), tenant, END_READ);
	}
	else if (!JOB_NULL(job, Q_workflow_id))
		note_look(JOB_ID(job), tenant, END_READ);	/* its run may be paused, or end */
	return status;
}
