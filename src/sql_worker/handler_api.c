/*
 * handler_api.c
 *	  Functions that a SQL handler may call while it runs: its own job,
 *	  progress, events, its outcome.
 *
 * Progress goes to the slot and is visible at once.  Events and the outcome
 * are kept in the Run until the attempt ends, so that they survive its
 * rollback.  The holder of a job's lease may call log_event, too.
 */
#include "jobq.h"

#include <ctype.h>
#include <math.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/json_build.h"
#include "base/json_size.h"
#include "pull/lease_log.h"
#include "pull/pull_job.h"
#include "shared/current_job.h"
#include "sql_worker/handler.h"
#include "tables/queue_find.h"

#define MAX_WORD			63		/* bytes of an event's type or level */
#define MAX_PROGRESS_DATA	8192	/* as of a tool */
#define TRUNCATED			"{\"truncated\": true}"

PG_FUNCTION_INFO_V1(jobq_current_job_id);
PG_FUNCTION_INFO_V1(jobq_set_progress);
PG_FUNCTION_INFO_V1(jobq_log_event);
PG_FUNCTION_INFO_V1(jobq_skip);
PG_FUNCTION_INFO_V1(jobq_discard);
PG_FUNCTION_INFO_V1(jobq_snooze);

const Run *
handler_inline_run(void)
{
	Run		   *run = handler_now();

	return run != NULL && run->cell < 0 ? run : NULL;
}

static Run *
need_run(const char *function)
{
	Run		   *run = handler_now();

	if (run == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.%s can only be called inside a SQL handler", function)));
	return run;
}

/* jobq_internal._current_job_id() */
Datum
jobq_current_job_id(PG_FUNCTION_ARGS)
{
	const CurrentJob *job = current_job();
	pg_uuid_t  *id;

	if (job == NULL)
		PG_RETURN_NULL();
	id = palloc(sizeof(pg_uuid_t));
	*id = job->id;
	PG_RETURN_UUID_P(id);
}

static char *
arg_text(FunctionCallInfo fcinfo, int i)
{
	if (PG_ARGISNULL(i))
		return NULL;
	return text_to_cstring(PG_GETARG_TEXT_PP(i));
}

static void
need_arg(FunctionCallInfo fcinfo, int i, const char *name)
{
	if (PG_ARGISNULL(i))
		argument_is_null(name);
}

/* Keeps an event of the run until it is settled. */
static void
keep_event(Run *run, const Event *event)
{
	Event		last = event_of_drop(event->ts, "sql");
	MemoryContext old;

	if (list_length(run->log) > ATTEMPT_EVENTS)
		return;
	if (list_length(run->log) == ATTEMPT_EVENTS)
		event = &last;
	old = MemoryContextSwitchTo(run->context);

	run->log = lappend(run->log, memcpy(palloc(sizeof(Event)), event, sizeof(Event)));
	MemoryContextSwitchTo(old);
}

/*
 * Writes an event of progress at level all: the first, then at most one a
 * second.
 */
static void
tell_progress(Run *run)
{
	Event		event = {.ts = GetCurrentTimestamp(), .type = "progress", .source = "sql", .level = "info"};
	MemoryContext old;

	if (run->progress_told != 0 && event.ts - run->progress_told < USECS_PER_SEC)
		return;
	run->progress_told = event.ts;
	old = MemoryContextSwitchTo(run->context);
	event.data = progress_json(run->progress, run->progress_data);
	MemoryContextSwitchTo(old);
	keep_event(run, &event);
}

/*
 * Copies progress to the cell, where other sessions see it at once; data only
 * if it fits.
 */
static void
show_progress(Run *run)
{
	Cell	   *cell = &MySlot->cells[run->cell];
	const char *data = run->progress_data ? run->progress_data : "";

	if (strlen(data) >= JOBQ_PROGRESS_LEN)
		data = TRUNCATED;
	SpinLockAcquire(&MySlot->mutex);
	cell->progress = run->progress;
	strlcpy(cell->progress_data, data, JOBQ_PROGRESS_LEN);
	SpinLockRelease(&MySlot->mutex);
}

/*
 * jobq.set_progress(progress numeric, data jsonb): visible at once, in the
 * slot
 */
Datum
jobq_set_progress(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("set_progress");
	double		progress;
	char	   *data = NULL;

	need_arg(fcinfo, 0, "progress");
	progress = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, PG_GETARG_DATUM(0)));
	if (isnan(progress) || progress < 0 || progress > 100)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("argument \"progress\": %s is outside 0..100",
						DatumGetCString(DirectFunctionCall1(numeric_out, PG_GETARG_DATUM(0))))));
	if (!PG_ARGISNULL(1))
	{
		data = JsonbToCString(NULL, &PG_GETARG_JSONB_P(1)->root, 0);
		if (strlen(data) > MAX_PROGRESS_DATA)
			data = TRUNCATED;
	}
	if (run->progress_data)
		pfree(run->progress_data);
	run->progress = progress;
	run->progress_data = data ? MemoryContextStrdup(run->context, data) : NULL;
	if (run->cell >= 0)
		show_progress(run);
	if (EVENTS_WANTED(run->type, EVENTS_ALL))
		tell_progress(run);
	PG_RETURN_VOID();
}

/* ---------- log_event ---------- */

/* Returns an argument that must be one word, for filters. */
static char *
word_argument(FunctionCallInfo fcinfo, int i, const char *name, const char *otherwise)
{
	char	   *word = arg_text(fcinfo, i);

	if (word == NULL)
		return pstrdup(otherwise);
	if (strlen(word) > MAX_WORD)
		argument_too_long(name, strlen(word), MAX_WORD);
	for (const char *p = word; *p || p == word; p++)
	{
		if (*p == '\0' || iscntrl((unsigned char) *p))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"%s\": \"%s\" is empty or has control characters", name, argument_shown(word))));
	}
	return word;
}

static bool
is_among(const char *word, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(word, words[i]) == 0)
			return true;
	}
	return false;
}

/*
 * Refuses the name of a transition: only jobq writes those, and readers of the
 * timeline rely on them.
 */
static void
check_event_type(const char *type)
{
	static const char *const own[] = {
		"enqueued", "claimed", "started", "progress", "heartbeat", "retry_scheduled", "snoozed", "released",
		"completed", "failed", "dead", "cancelled", "skipped", "retried", "paused", "resumed", "hook_failed",
		"blocked", "run_started", "run_finished", "event_received", "compensating"
	};

	if (is_among(type, own, lengthof(own)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"type\": \"%s\" is an event type that only jobq writes", type)));
}

static void
check_level(const char *level)
{
	static const char *const levels[] = {"debug", "info", "warning", "error"};

	if (!is_among(level, levels, lengthof(levels)))
		argument_no_choice("level", level, "\"debug\", \"info\", \"warning\", \"error\"");
}

/* Reads the arguments into an event, in the current memory context. */
static void
read_event(FunctionCallInfo fcinfo, Event *event)
{
	need_arg(fcinfo, 0, "message");
	if (VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(0)) > (Size) jobq_max_payload)
		argument_too_long("message", VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(0)), jobq_max_payload);
	event->message = arg_text(fcinfo, 0);
	event->level = word_argument(fcinfo, 1, "level", "info");
	check_level(event->level);
	event->type = word_argument(fcinfo, 2, "type", "log");
	check_event_type(event->type);
	if (PG_ARGISNULL(3))
		return;
	check_json_size("data", PG_GETARG_JSONB_P(3), jobq_max_payload);
	event->data = (Jsonb *) PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(3));
}

/*
 * Writes the event of a lease's holder, outside a handler: at once, in the
 * caller's transaction.
 */
static void
log_event_of_lease(pg_uuid_t *id, pg_uuid_t *token, Event *event)
{
	PullCall	call;
	Snapshot	snapshot;
	Job			job;
	JobType    *type;
	bool		held;
	int			before;

	pull_begin(&call, "jobq.log_event()");
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	held = queue_find_by_id(&call.ledger.queue, id, snapshot, &job) && pull_holds(&call, &job, token);
	UnregisterSnapshot(snapshot);
	if (!held)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("argument \"lease_token\" is not that of a running attempt of job %s",
						DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)))),
				 errhint("The lease has run out, or the job has ended.")));
	event->source = JOB_NULL(&job, Q_worker) ? "client" :
		psprintf("worker:%s", TextDatumGetCString(JOB_ATT(&job, Q_worker)));
	before = lease_log_count(&job);
	if (before == ATTEMPT_EVENTS)
		*event = event_of_drop(0, event->source);
	event->attempt = JOB_INT(&job, Q_attempts);
	type = job_type_by_id(JOB_INT(&job, Q_type_id));
	if (type != NULL && before <= ATTEMPT_EVENTS)
		event_add(&call.ledger.events, job.values, job.nulls, type->name, event);
	pull_end(&call);
}

/* jobq.log_event(message, level, type, data, id, lease_token) */
Datum
jobq_log_event(PG_FUNCTION_ARGS)
{
	Event		event = {.source = "sql"};
	MemoryContext old;
	Run		   *run;

	if (PG_ARGISNULL(4) != PG_ARGISNULL(5))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be NULL", PG_ARGISNULL(4) ? "id" : "lease_token"),
				 errhint("id and lease_token are given together.")));
	if (!PG_ARGISNULL(4))
	{
		read_event(fcinfo, &event);
		log_event_of_lease(PG_GETARG_UUID_P(4), PG_GETARG_UUID_P(5), &event);
		PG_RETURN_VOID();
	}
	run = need_run("log_event");
	if (list_length(run->log) > ATTEMPT_EVENTS)
	{
		read_event(fcinfo, &event);	/* for its errors, in the caller's memory */
		PG_RETURN_VOID();
	}
	old = MemoryContextSwitchTo(run->context);
	event.ts = GetCurrentTimestamp();
	read_event(fcinfo, &event);
	MemoryContextSwitchTo(old);
	keep_event(run, &event);
	PG_RETURN_VOID();
}

static void
say(Run *run, OutcomeKind kind, const char *reason)
{
	run->said = true;
	run->said_kind = kind;
	run->said_permanent = false;
	run->said_reason = reason ? MemoryContextStrdup(run->context, reason) : NULL;
	run->said_delay_us = 0;
}

/* jobq.skip(reason) */
Datum
jobq_skip(PG_FUNCTION_ARGS)
{
	say(need_run("skip"), OUTCOME_SKIPPED, arg_text(fcinfo, 0));
	PG_RETURN_VOID();
}

/* jobq.discard(reason) */
Datum
jobq_discard(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("discard");

	need_arg(fcinfo, 0, "reason");
	say(run, OUTCOME_FAILED, arg_text(fcinfo, 0));
	run->said_permanent = true;
	PG_RETURN_VOID();
}

/* jobq.snooze(delay, reason) */
Datum
jobq_snooze(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("snooze");

	need_arg(fcinfo, 0, "delay");
	argument_check_interval("delay", PG_GETARG_INTERVAL_P(0));
	say(run, OUTCOME_SNOOZED, arg_text(fcinfo, 1));
	run->said_delay_us = interval_to_us(PG_GETARG_INTERVAL_P(0));
	PG_RETURN_VOID();
}
