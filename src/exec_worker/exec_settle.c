/*
 * exec_settle.c
 *	  Writes the settlements of ended attempts, and the events of tools.
 *
 * All ended attempts are settled in one transaction (exec_transaction.c); when
 * it fails, each alone.  No result is dropped: when it can't be written now
 * (a lock, a full disk), it is kept and retried with a delay
 * that doubles.  Only an error that the result itself causes replaces the
 * result.
 *
 * A row is found by the version that the claim wrote.  When a rewrite of the
 * table has moved the row, it is found by its id.  It belongs to this attempt
 * while it is running and has the number of runs that the claim wrote.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/texts.h"
#include "exec_worker/exec_internal.h"
#include "settle/alerts.h"
#include "settle/breaker_news.h"
#include "tables/queue_find.h"
#include "workflow/release_children.h"

#define RETRY_MIN_MS	50
#define RETRY_MAX_MS	10000

/* Result of one entry in the transaction; applied after the commit. */
typedef enum SettleResult
{
	RESULT_SETTLED,
	RESULT_NOT_MINE,			/* the row is gone, or another attempt has
								 * it */
	RESULT_LATER,				/* locked */
	RESULT_EVENTS				/* the events are written, the tool still
								 * runs */
} SettleResult;

typedef struct Settlement
{
	ExecJob    *job;
	SettleResult result;
	JobStatus	status;
	CellReport	report;
	bool		failed;
	BreakerNote breaker;
} Settlement;

struct Settlements
{
	int			n;
	Settlement	all[JOBQ_CELLS];
	EndedParents parents;		/* of the transaction */
};

/* ---------- events ---------- */

static void
add_event(Ledger *ledger, ExecJob *x, JobType *type, Event *event)
{
	event->attempt = JOB_INT(&x->row, Q_attempts);
	event->source = "helper";
	event_add(&ledger->events, x->row.values, x->row.nulls, type->name, event);
}

static char *
string_of(Jsonb *line, const char *key)
{
	JsonbValue	v;

	if (getKeyJsonValueFromContainer(&line->root, key, (int) strlen(key), &v) == NULL ||
		v.type != jbvString)
		return NULL;
	return pnstrdup(v.val.string.val, v.val.string.len);
}

static Jsonb *
value_of(Jsonb *line, const char *key)
{
	JsonbValue	v;

	if (getKeyJsonValueFromContainer(&line->root, key, (int) strlen(key), &v) == NULL)
		return NULL;
	return JsonbValueToJsonb(&v);
}

/*
 * Returns the level of {"log": text, "level": ...}; an unknown level is info.
 */
static const char *
level_of(Jsonb *line)
{
	static const char *const levels[] = {"debug", "info", "warning", "error"};
	char	   *level = string_of(line, "level");

	for (int i = 0; level && i < (int) lengthof(levels); i++)
	{
		if (strcmp(level, levels[i]) == 0)
			return levels[i];
	}
	return "info";
}

/*
 * Builds the event of a line of the tool.  NULL: the line is none, or its
 * artifact has an event of its own (exec_artifacts.c).
 */
static Event *
event_of(ToolEvent *kept)
{
	Event	   *event = palloc0(sizeof(Event));
	char	   *why;
	Jsonb	   *line = NULL;

	event->ts = kept->ts;
	event->type = "started";
	event->source = "helper";
	event->level = "info";
	if (kept->kind == EXEC_EVENT_STARTED)
		return event;
	if (kept->kind == FRAME_EVENT_ARTIFACT)
		return NULL;
	line = json_from_utf8(kept->text, (int) strlen(kept->text), &why);
	if (line == NULL || !JB_ROOT_IS_OBJECT(line))
		return NULL;
	switch (kept->kind)
	{
		case FRAME_EVENT_LOG:
			event->type = "log";
			event->level = level_of(line);
			event->message = string_of(line, "log");
			event->data = value_of(line, "data");
			break;
		case FRAME_EVENT_PROGRESS:
			event->type = "progress";
			event->data = line;
			break;
		default:
			event->type = "artifact";
			event->data = value_of(line, "artifact");
			if (event->data == NULL)
				return NULL;
	}
	return event;
}

static List *
events_of(ExecJob *x)
{
	List	   *events = NIL;
	ListCell   *lc;

	foreach(lc, x->events)
	{
		Event	   *event = event_of(lfirst(lc));

		if (event)
			events = lappend(events, event);
	}
	return events;
}

static void
warn(Ledger *ledger, ExecJob *x, JobType *type, const char *message, Jsonb *data)
{
	Event		event = {.ts = x->ended_at, .type = "log", .level = "warning", .message = message,
	.data = data};

	add_event(ledger, x, type, &event);
}

/* Writes an event of the error on descriptor 3 that is not the outcome. */
static void
warn_of_ignored_error(Ledger *ledger, ExecJob *x, JobType *type)
{
	FrameExit  *end = &x->end;
	bool		exited = end->kind == FRAME_EXITED;
	char	   *why;

	if (end->error.len == 0 || (exited && (end->value != 0 || x->warm)))
		return;
	warn(ledger, x, type, exited ? "the error on descriptor 3 was ignored: the exit code is 0" :
		 "the error on descriptor 3 was ignored: the tool did not exit by itself",
		 json_from_utf8_lossy(end->error.data, (int) end->error.len, &why));
}

/* Writes warnings about the end that the outcome does not have. */
static void
write_remarks(Ledger *ledger, ExecJob *x, JobType *type)
{
	FrameExit  *end = &x->end;

	if (x->nevents > EXEC_MAX_EVENTS)
		warn(ledger, x, type, psprintf("%d more events of this attempt were dropped",
									   x->nevents - EXEC_MAX_EVENTS), NULL);
	if (x->nartifacts > EXEC_MAX_ARTIFACTS)
		warn(ledger, x, type, psprintf("%d more artifacts of this attempt were dropped",
									   x->nartifacts - EXEC_MAX_ARTIFACTS), NULL);
	if (end->bad_lines + x->bad_artifacts > 0)
		warn(ledger, x, type, psprintf("%u lines on descriptor 3 were malformed",
									   end->bad_lines + x->bad_artifacts), NULL);
	warn_of_ignored_error(ledger, x, type);
	if (end->left_processes > 0)
		warn(ledger, x, type, psprintf("%u processes were left when the tool had ended, and were killed",
									   end->left_processes), NULL);
	if (end->kind == FRAME_EXITED && end->value == 0 && type->output == OUTPUT_TEXT &&
		(end->verdict == FRAME_OUT_NOT_UTF8 || end->verdict == FRAME_OUT_NUL))
		warn(ledger, x, type, end->verdict == FRAME_OUT_NUL ?
			 "NUL bytes were removed from the output" : "invalid UTF-8 was replaced in the output", NULL);
}

/* Writes the events and artifacts of a tool that still runs. */
static void
write_events(Ledger *ledger, ExecJob *x, JobType *type)
{
	ListCell   *lc;

	exec_write_artifacts(ledger, x, type);
	if (type == NULL)
		return;
	foreach(lc, events_of(x))
		add_event(ledger, x, type, lfirst(lc));
}

/* ---------- the row ---------- */

/* Finds the row after a rewrite. True if it still belongs to this attempt. */
static bool
find_row(Ledger *ledger, ExecJob *x)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Job			job;
	bool		found = queue_find_by_id(&ledger->queue, &x->ref.id, snapshot, &job);

	UnregisterSnapshot(snapshot);
	if (!found || JOB_INT(&job, Q_runs) != x->ref.runs)
		return false;
	x->ref.tid = job.tid;
	x->ref.rev = JOB_INT(&job, Q_rev);
	return true;
}

static LockResult
lock_row(Ledger *ledger, ExecJob *x, Job *job)
{
	LockResult	result = queue_lock(&ledger->queue, &x->ref, job);

	if (result == LOCK_GONE && find_row(ledger, x))
		result = queue_lock(&ledger->queue, &x->ref, job);
	if (result == LOCK_OK && (job->status != JOB_RUNNING || JOB_INT(job, Q_runs) != x->ref.runs))
		result = LOCK_GONE;
	return result;
}

static void
report_start_failure(Ledger *ledger, ExecJob *x, JobType *type, const char *why)
{
	Event		event = {.type = "paused", .level = "error", .message = why};
	Alert		alert = {.high = type->critical, .attempts = JOB_INT(&x->row, Q_attempts) - 1,
	.error = why, .source = "helper"};

	if (EVENTS_WANTED(type, EVENTS_FAILURES))
		add_event(ledger, x, type, &event);
	if (!type->alert)
		return;
	alert.title = psprintf("job type \"%s\" is paused on this node", type->name);
	alert.message = psprintf("the tool of job type \"%s\" cannot be started on this node: %s",
							 type->name, why);
	alert_raise(ledger, x->row.values, x->row.nulls, type, &alert);
}

/*
 * Returns the report for a tool that can't be started.  The first report of
 * the fault is also written to events, alerts and the log.
 */
static CellReport
start_failure(Ledger *ledger, ExecJob *x, JobType *type, const char *why, const char *reported)
{
	bool		first;
	CellReport	report;

	if (type == NULL)
		return REPORT_RELEASED;
	report = exec_type_broken(x, type, why, reported, &first) ? REPORT_STUCK : REPORT_RELEASED;
	if (first)
	{
		report_start_failure(ledger, x, type, why);
		ereport(WARNING,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("job type \"%s\" is paused on this node: %s", type->name, log_text(why))));
	}
	return report;
}

static void
settle_one(Ledger *ledger, Settlement *item, EndedParents *parents)
{
	ExecJob    *x = item->job;
	JobType    *type = job_type_by_id(x->ref.type_id);
	Outcome		outcome;
	char	   *reported;
	Job			job;

	item->report = REPORT_SETTLED;
	switch (lock_row(ledger, x, &job))
	{
		case LOCK_GONE:
			item->result = RESULT_NOT_MINE;
			return;
		case LOCK_BUSY:
			item->result = RESULT_LATER;
			return;
		case LOCK_OK:
			break;
	}
	reported = JOB_NULL(&job, Q_error_msg) ? NULL : TextDatumGetCString(JOB_ATT(&job, Q_error_msg));
	exec_judge(x, type, &outcome);
	outcome.log = events_of(x);
	if (outcome.kind == OUTCOME_RELEASED || outcome.kind == OUTCOME_SNOOZED)
		job.nulls[Q_started_at - 1] = job.nulls[Q_worker - 1] = job.nulls[Q_node - 1] = true;
	item->status = settle(ledger, &job, type, &outcome);
	exec_write_artifacts(ledger, x, type);
	parents_add(parents, &job, item->status);
	item->result = RESULT_SETTLED;
	item->failed = outcome.kind == OUTCOME_FAILED;
	breaker_take_down(&item->breaker, type, &outcome);
	if (type)
		write_remarks(ledger, x, type);
	if (x->end.kind == FRAME_START_FAILED && outcome.kind == OUTCOME_RELEASED)
		item->report = start_failure(ledger, x, type, outcome.message, reported);
}

void
settlements_write(Settlements *settlements, Ledger *ledger)
{
	int			i;

	settlements->parents = (EndedParents) {0};
	for (i = 0; i < settlements->n; i++)
	{
		Settlement *item = &settlements->all[i];
		ExecJob    *x = item->job;

		/* no ledger: the extension was dropped while the tools ran */
		if (x->state == EXEC_ENDED && ledger)
			settle_one(ledger, item, &settlements->parents);
		else
			item->result = x->state == EXEC_ENDED ? RESULT_NOT_MINE : RESULT_EVENTS;
		if (item->result == RESULT_EVENTS && ledger)
			write_events(ledger, x, job_type_by_id(x->ref.type_id));
	}
}

void
settlements_release_children(Settlements *settlements)
{
	parents_release_children(&settlements->parents);
}

/* ---------- after the transaction ---------- */

static void
retry_later(ExecJob *x)
{
	int64		delay = Min((int64) RETRY_MIN_MS << Min(x->failures, 16), RETRY_MAX_MS);

	x->failures++;
	x->retry_at = mono_now() + delay * 1000;
}

static void
forget_events(ExecJob *x)
{
	ListCell   *lc;

	foreach(lc, x->events)
	{
		ToolEvent  *kept = lfirst(lc);

		if (kept->text)
			pfree(kept->text);
	}
	list_free_deep(x->events);
	x->events = NIL;
	x->events_due = 0;
}

static void
count_settled(Settlement *item)
{
	breaker_note(&item->breaker, &item->job->ref.id);
	pg_atomic_fetch_add_u64(&exec_db->counters.settled, 1);
	if (item->failed)
		pg_atomic_fetch_add_u64(&exec_db->counters.failed_attempts, 1);
	if (item->status >= JOB_COMPLETED)
		wake_waiters(exec_db, &item->job->ref.id, item->status);
}

/* Applies the settlement after the commit. */
static void
apply(Settlement *item)
{
	ExecJob    *x = item->job;

	switch (item->result)
	{
		case RESULT_SETTLED:
			count_settled(item);
			exec_job_forget(x, item->report);
			break;
		case RESULT_NOT_MINE:
			exec_job_forget(x, REPORT_NOT_MINE);
			break;
		case RESULT_EVENTS:
			forget_events(x);
			break;
		case RESULT_LATER:
			retry_later(x);
			break;
	}
}

/* Keeps only the artifacts of the events that are not written. */
static List *
only_artifacts(List *events)
{
	List	   *kept = NIL;
	ListCell   *lc;

	foreach(lc, events)
	{
		if (((ToolEvent *) lfirst(lc))->kind == FRAME_EVENT_ARTIFACT)
			kept = lappend(kept, lfirst(lc));
	}
	return kept;
}

/*
 * Handles the error of a job settled alone.  An error of the data (class 22 or
 * 54) would repeat: then the attempt fails with that error in place of its
 * result.  After any other error the result is retried.
 */
static void
after_failure(ExecJob *x, ErrorData *error)
{
	MemoryContext caller;
	int			class = ERRCODE_TO_CATEGORY(error->sqlerrcode);
	bool		of_data = class == ERRCODE_DATA_EXCEPTION || class == ERRCODE_PROGRAM_LIMIT_EXCEEDED;

	retry_later(x);
	if (x->state != EXEC_ENDED)
	{
		if (of_data || !exec_has_artifact(x))
			forget_events(x);
		return;
	}
	if (!of_data)
		return;
	caller = MemoryContextSwitchTo(x->context);
	/* the result is the cause, most probably; the second time nothing stays */
	x->events = x->end.kind == EXEC_UNSETTLED ? NIL : only_artifacts(x->events);
	x->end.kind = EXEC_UNSETTLED;
	x->end.message = frame_text(pstrdup(unpack_sql_state(error->sqlerrcode)));
	x->end.output = frame_text(psprintf("could not store the result: %s", error->message));
	x->progress = get_float8_nan();
	x->progress_data = NULL;
	x->end.error.len = 0;
	MemoryContextSwitchTo(caller);
}

void
settlements_apply(Settlements *settlements)
{
	int			i;

	exec_types_settled(true);
	for (i = 0; i < settlements->n; i++)
		apply(&settlements->all[i]);
}

void
settlements_retry(Settlements *settlements, ErrorData *(*alone) (Settlements *one, bool final),
				  bool final)
{
	Settlements *one = MemoryContextAllocZero(ExecTurnContext, sizeof(Settlements));
	int			i;

	exec_types_settled(false);
	for (i = 0; i < settlements->n; i++)
	{
		ErrorData  *error;

		one->n = 1;
		one->all[0] = settlements->all[i];
		error = alone(one, final);
		if (error)
		{
			exec_types_settled(false);
			after_failure(one->all[0].job, error);
		}
	}
}

static bool
is_due(ExecJob *x, MonoTime now)
{
	if (x->retry_at > now)
		return false;
	return x->state == EXEC_ENDED ||
		(x->state == EXEC_STARTED && x->events_due != 0 && x->events_due <= now);
}

Settlements *
settlements_make(bool final)
{
	Settlements *settlements = NULL;
	MonoTime	now = final ? DT_NOEND : mono_now();
	ExecJob    *x = NULL;

	while ((x = exec_jobs_next(x)) != NULL)
	{
		if (!is_due(x, now))
			continue;
		if (settlements == NULL)
			settlements = MemoryContextAllocZero(ExecTurnContext, sizeof(Settlements));
		settlements->all[settlements->n++].job = x;
	}
	return settlements;
}

MonoTime
exec_settle_at(void)
{
	MonoTime	at = DT_NOEND;
	ExecJob    *x = NULL;

	while ((x = exec_jobs_next(x)) != NULL)
	{
		if (x->state == EXEC_ENDED)
			at = Min(at, x->retry_at);
		else if (x->state == EXEC_STARTED && x->events_due != 0)
			at = Min(at, Max(x->events_due, x->retry_at));
	}
	return at;
}
