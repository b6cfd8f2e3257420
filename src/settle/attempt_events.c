/*
 * attempt_events.c
 *	  The events of an attempt and its end.
 *
 *	 level failures		failed (with error, code, stderr tail, duration, worker), dead
 *	 level all			also started, completed, skipped, cancelled,
 *						retry_scheduled, snoozed, released
 *	 always				the handler's own events (Outcome.log)
 */
#include "jobq.h"

#include "base/caller.h"
#include "base/json_build.h"
#include "settle/attempt_events.h"

int
attempt_events_number(Job *job, Outcome *o)
{
	return JOB_INT(job, Q_attempts) + (o->begun || o->started_at == 0 ? 0 : 1);
}

static void
tell(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, const char *name, const char *level,
	 Jsonb *data)
{
	Event		event = {.ts = o->ended_at, .attempt = attempt, .type = name, .source = o->source,
	.level = level, .message = o->message, .data = data};

	(void) event_add(&ledger->events, job->values, job->nulls, type->name, &event);
}

bool
attempt_events_ready(Ledger *ledger, JobType *type, Outcome *o)
{
	EventsLevel lowest = o->kind == OUTCOME_FAILED ? EVENTS_FAILURES : EVENTS_ALL;

	if (type == NULL || (o->log == NIL && type->events < lowest && !type->has_hooks))
		return true;
	return events_ready(&ledger->events, o->ended_at);
}

/*
 * Writes the events before the end: nothing of a SQL job has been written
 * before.
 */
void
attempt_events_lines(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt)
{
	Event		event = {.ts = o->started_at, .attempt = attempt, .type = "started", .source = o->source,
	.level = "info"};
	ListCell   *lc;

	if (!o->begun && o->started_at != 0 && EVENTS_WANTED(type, EVENTS_ALL))
		(void) event_add(&ledger->events, job->values, job->nulls, type->name, &event);
	foreach(lc, o->log)
	{
		event = *(Event *) lfirst(lc);
		event.attempt = attempt;
		(void) event_add(&ledger->events, job->values, job->nulls, type->name, &event);
	}
}

static void
add_run(JsonBuild *b, Outcome *o)
{
	if (o->started_at != 0 && o->ended_at >= o->started_at)
		json_add_number(b, "duration_ms", (double) (o->ended_at - o->started_at) / 1000.0);
	json_add_string(b, "worker", o->worker);
}

static Jsonb *
failure_data(Outcome *o)
{
	JsonBuild	b;

	json_begin_object(&b);
	json_add_string(&b, "error", o->message);
	json_add_string(&b, "code", o->code);
	json_add_string(&b, "stderr", o->stderr_tail);
	add_run(&b, o);
	return json_end_object(&b);
}

static Jsonb *
run_data(Outcome *o)
{
	char	   *by = caller_text();	/* of the call that ends a waiting job */
	JsonBuild	b;

	if (o->started_at == 0 && by == NULL)
		return NULL;
	json_begin_object(&b);
	if (o->started_at != 0)
		add_run(&b, o);
	json_add_string(&b, "by", by);
	return json_end_object(&b);
}

/* Returns the data of an attempt that is followed by another one. */
static Jsonb *
next_data(Job *job)
{
	JsonBuild	b;

	json_begin_object(&b);
	json_add_time(&b, "at", DatumGetTimestampTz(JOB_ATT(job, Q_scheduled_for)));
	return json_end_object(&b);
}

void
attempt_events_finished(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, JobStatus status)
{
	attempt_events_lines(ledger, job, type, o, attempt);
	if (EVENTS_WANTED(type, EVENTS_ALL))
		tell(ledger, job, type, o, attempt, status == JOB_COMPLETED ? "completed" :
			 status == JOB_SKIPPED ? "skipped" : "cancelled", "info", run_data(o));
}

void
attempt_events_failed(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, bool last)
{
	attempt_events_lines(ledger, job, type, o, attempt);
	if (!EVENTS_WANTED(type, EVENTS_FAILURES))
		return;
	tell(ledger, job, type, o, attempt, "failed", last ? "error" : "warning", failure_data(o));
	if (last)
		tell(ledger, job, type, o, attempt, "dead", "error", NULL);
}

void
attempt_events_waits(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, const char *how)
{
	if (EVENTS_WANTED(type, EVENTS_ALL))
		tell(ledger, job, type, o, attempt, how, "info", next_data(job));
}
