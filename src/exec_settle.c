/*
 * exec_settle.c
 *	  How a tool ended becomes how its job's attempt ends.
 *
 * All that have ended are settled in one transaction; when it fails, each alone.  A result is never
 * dropped: what can't be written now (no partition, a lock, a full disk) is kept and tried again later,
 * with a delay that doubles.  Only an error that the result itself causes replaces the result.
 *
 * The row is found by the version we wrote when we claimed it, else (a rewrite of the table moves rows)
 * by its id; it is ours while it says running, with the number of runs we gave it.
 */
#include "jobq.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "exec_job.h"
#include "find.h"
#include "json_build.h"
#include "maintenance.h"
#include "options.h"

#define RETRY_MIN_MS	50
#define RETRY_MAX_MS	10000
#define FINAL_TRIES		50		/* of 20 ms */

/* What became of one entry in the transaction; applied when that has committed. */
typedef enum SettleResult
{
	RESULT_SETTLED,
	RESULT_NOT_MINE,			/* the row is gone or somebody else's: nothing to say */
	RESULT_LATER,				/* locked, or no partition */
	RESULT_EVENTS				/* its events are written, the tool runs on */
} SettleResult;

typedef struct Settlement
{
	ExecJob    *job;
	SettleResult result;
	JobStatus	status;
	TimestampTz need;
	Verdict		verdict;
	bool		failed;
} Settlement;

typedef struct SettleBatch
{
	Ledger		ledger;
	Settlement *items;
	int			nitems;
	bool		final;			/* this process is exiting */
} SettleBatch;

/* ---------- outcome ---------- */

static bool
in_codes(Jsonb *options, const char *key, int code, const char *otherwise)
{
	JsonbValue	container;
	JsonbValue *element;
	Datum		wanted = DirectFunctionCall1(int4_numeric, Int32GetDatum(code));
	uint32		i;

	if (getKeyJsonValueFromContainer(&options->root, key, (int) strlen(key), &container) == NULL ||
		container.type != jbvBinary)
	{
		/* the default, as options.c has it */
		return otherwise && strstr(otherwise, psprintf(" %d ", code)) != NULL;
	}
	for (i = 0; (element = getIthJsonbValueFromContainer(container.val.binary.data, i)) != NULL; i++)
	{
		if (element->type == jbvNumeric &&
			DatumGetBool(DirectFunctionCall2(numeric_eq, NumericGetDatum(element->val.numeric), wanted)))
			return true;
	}
	return false;
}

int
exec_log_level(JobType *type)
{
	JsonbValue	v;

	if (getKeyJsonValueFromContainer(&type->options->root, "log_stderr", 10, &v) == NULL ||
		v.type != jbvString)
		return 0;
	return v.val.string.len == 3 && strncmp(v.val.string.val, "log", 3) == 0 ? LOG : DEBUG1;
}

/* "KILL"; a number when it has no name here. */
static const char *
signal_name(int signo)
{
	static const char *const names[] = {
		[SIGHUP] = "HUP", [SIGINT] = "INT", [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
		[SIGTRAP] = "TRAP", [SIGABRT] = "ABRT", [SIGBUS] = "BUS", [SIGFPE] = "FPE",
		[SIGKILL] = "KILL", [SIGUSR1] = "USR1", [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
		[SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM", [SIGXCPU] = "XCPU",
		[SIGXFSZ] = "XFSZ", [SIGSYS] = "SYS"
	};

	if (signo > 0 && signo < (int) lengthof(names) && names[signo])
		return names[signo];
	return psprintf("%d", signo);
}

static void
failed(Outcome *o, const char *code, const char *message)
{
	o->kind = OUTCOME_FAILED;
	o->code = unconstify(char *, code);
	o->message = unconstify(char *, message);
}

static void
bad_output(Outcome *o, FrameExit *end, const char *why)
{
	JsonBuild	b;

	failed(o, "bad_output", why);
	json_begin_object(&b);
	json_add_string(&b, "stdout", text_from_utf8(end->output.data, (int) end->output.len));
	json_add_string(&b, "stderr", o->stderr_tail);
	o->details = json_end_object(&b);
}

static Jsonb *
json_string(const char *text)
{
	JsonbValue	v;

	v.type = jbvString;
	v.val.string.val = unconstify(char *, text);
	v.val.string.len = (int) strlen(text);
	return JsonbValueToJsonb(&v);
}

static void
json_result(Outcome *o, FrameExit *end)
{
	char	   *why;

	if (end->verdict != FRAME_OUT_OK)
	{
		why = text_from_utf8(end->message.data, (int) end->message.len);
		bad_output(o, end, why[0] ? why : "output is not valid JSON");
		return;
	}
	o->result = json_from_utf8(end->output.data, (int) end->output.len, &why);
	if (o->result == NULL)
		bad_output(o, end, psprintf("output is not valid JSON: %s", why));
	else
		o->has_result = true;
}

/* Repaired text is a result (an event says so); cut text is none. */
static void
text_result(Outcome *o, FrameExit *end)
{
	if (end->verdict == FRAME_OUT_TRUNCATED)
	{
		bad_output(o, end, text_from_utf8(end->message.data, (int) end->message.len));
		return;
	}
	o->result = json_string(text_from_utf8(end->output.data, (int) end->output.len));
	o->has_result = true;
}

static void
exited(Outcome *o, FrameExit *end, JobType *type)
{
	int			code = end->value;

	if (code == 0)
	{
		o->kind = OUTCOME_COMPLETED;
		if (type && type->output == OUTPUT_JSON)
			json_result(o, end);
		else if (type && type->output == OUTPUT_TEXT)
			text_result(o, end);
		return;
	}
	failed(o, psprintf("exit:%d", code), psprintf("exited with code %d", code));
	if (type == NULL)
		return;
	if (in_codes(type->options, "skip_exit_codes", code, NULL))
		o->kind = OUTCOME_SKIPPED;
	else if (in_codes(type->options, "snooze_exit_codes", code, NULL))
	{
		o->kind = OUTCOME_SNOOZED;
		o->delay_us = option_interval(type->options, "snooze", USECS_PER_MINUTE);
	}
	else
		o->permanent = in_codes(type->options, "permanent_exit_codes", code, " 125 126 127 ");
	if (o->kind != OUTCOME_FAILED)
		o->code = NULL;
}

static char *
span_text(int64 us)
{
	Interval	span = {.time = us};

	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&span)));
}

/* Stopped because we asked for it: by a user, or to get out of the way. */
static void
cancelled(Outcome *o, ExecJob *x)
{
	if (x->asked == CANCEL_USER)
	{
		o->kind = OUTCOME_CANCELLED;
		o->message = x->has_reason ? pstrdup(x->reason) : NULL;
		o->details = NULL;
	}
	else
	{
		o->kind = OUTCOME_RELEASED;
		o->details = NULL;
	}
}

static void
start_failed(Outcome *o, ExecJob *x)
{
	char	   *why = text_from_utf8(x->end.message.data, (int) x->end.message.len);

	if (x->end.value == E2BIG)
		failed(o, "54000", why);
	else
	{
		o->kind = OUTCOME_RELEASED;
		o->message = why;
	}
}

/* error_details of a failure: the tail of stderr, when there is any. */
static Jsonb *
stderr_details(Outcome *o)
{
	JsonBuild	b;

	if (o->stderr_tail == NULL)
		return NULL;
	json_begin_object(&b);
	json_add_string(&b, "stderr", o->stderr_tail);
	return json_end_object(&b);
}

static void
judge(ExecJob *x, JobType *type, Outcome *o)
{
	FrameExit  *end = &x->end;

	memset(o, 0, sizeof(*o));
	o->begun = true;
	o->started_at = x->started_at;
	o->ended_at = x->ended_at;
	o->worker = MySlot->name;
	o->source = "helper";
	o->progress = x->progress;
	o->progress_data = x->progress_data;
	if (end->stderr_tail.len > 0)
		o->stderr_tail = text_from_utf8(end->stderr_tail.data, (int) end->stderr_tail.len);
	o->details = stderr_details(o);
	switch (end->kind)
	{
		case FRAME_EXITED:
			exited(o, end, type);
			break;
		case FRAME_SIGNALLED:
			failed(o, psprintf("signal:%s", signal_name(end->value)),
				   psprintf("terminated by signal %s", signal_name(end->value)));
			break;
		case FRAME_START_FAILED:
			start_failed(o, x);
			break;
		case FRAME_TIMEOUT:
			failed(o, "timeout", psprintf("timeout after %s", span_text(x->timeout_us)));
			break;
		case FRAME_CANCELLED:
		case FRAME_SHUTDOWN_KILL:
			cancelled(o, x);
			break;
		case EXEC_HELPER_LOST:
			if (x->asked != CANCEL_NONE)
				cancelled(o, x);
			else
				failed(o, "helper_lost", "jobq-helper was lost while the tool ran");
			break;
		case EXEC_UNSETTLED:
			failed(o, end->message.data, end->output.data);
			break;
	}
	if (o->kind == OUTCOME_COMPLETED)
		o->details = NULL;
}

/* ---------- events ---------- */

/* {"log": text, "level": ..., "data": ...}; anything else of it is ignored. */
static void
write_log_event(Ledger *ledger, ExecJob *x, JobType *type, Jsonb *line)
{
	static const char *const levels[] = {"debug", "info", "warning", "error"};
	const char *level = "info";
	JsonbValue	v;
	Jsonb	   *data = NULL;
	char	   *message = NULL;
	int			i;

	if (getKeyJsonValueFromContainer(&line->root, "log", 3, &v) && v.type == jbvString)
		message = pnstrdup(v.val.string.val, v.val.string.len);
	if (getKeyJsonValueFromContainer(&line->root, "level", 5, &v) && v.type == jbvString)
	{
		for (i = 0; i < (int) lengthof(levels); i++)
		{
			if (v.val.string.len == (int) strlen(levels[i]) &&
				memcmp(v.val.string.val, levels[i], v.val.string.len) == 0)
				level = levels[i];
		}
	}
	if (getKeyJsonValueFromContainer(&line->root, "data", 4, &v))
		data = JsonbValueToJsonb(&v);
	event_write(ledger, &x->row, type, "log", "helper", level, message, data);
}

static void
write_event(Ledger *ledger, ExecJob *x, JobType *type, ToolEvent *event)
{
	char	   *why;
	Jsonb	   *line = json_from_utf8(event->text, (int) strlen(event->text), &why);
	JsonbValue	v;

	if (line == NULL || !JB_ROOT_IS_OBJECT(line))
		return;
	if (event->kind == FRAME_EVENT_LOG)
		write_log_event(ledger, x, type, line);
	else if (getKeyJsonValueFromContainer(&line->root, "artifact", 8, &v))
		event_write(ledger, &x->row, type, "artifact", "helper", "info", NULL, JsonbValueToJsonb(&v));
}

static void
warn(Ledger *ledger, ExecJob *x, JobType *type, const char *message)
{
	event_write(ledger, &x->row, type, "log", "helper", "warning", message, NULL);
}

/* What a reader of the timeline should know of the end beyond its outcome. */
static void
write_remarks(Ledger *ledger, ExecJob *x, JobType *type)
{
	FrameExit  *end = &x->end;

	if (x->nevents > EXEC_MAX_EVENTS)
		warn(ledger, x, type, psprintf("%d more events of this attempt were dropped",
									   x->nevents - EXEC_MAX_EVENTS));
	if (end->bad_lines > 0)
		warn(ledger, x, type, psprintf("%u lines on descriptor 3 were no JSON objects", end->bad_lines));
	if (end->left_processes > 0)
		warn(ledger, x, type, psprintf("%u processes were left when the tool had ended, and were killed",
									   end->left_processes));
	if (end->kind == FRAME_EXITED && end->value == 0 && type->output == OUTPUT_TEXT &&
		(end->verdict == FRAME_OUT_NOT_UTF8 || end->verdict == FRAME_OUT_NUL))
		warn(ledger, x, type, end->verdict == FRAME_OUT_NUL ?
			 "NUL bytes were removed from the output" : "invalid UTF-8 was replaced in the output");
}

static void
write_events(Ledger *ledger, ExecJob *x, JobType *type)
{
	ListCell   *lc;

	if (type == NULL)
		return;
	foreach(lc, x->events)
		write_event(ledger, x, type, lfirst(lc));
}

/* ---------- the row ---------- */

/* Where the row is now, when it is still our attempt. */
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

/* Held back with its type; the first time it is said aloud. */
static void
say_broken(Ledger *ledger, ExecJob *x, JobType *type, const char *why)
{
	if (type == NULL || !exec_type_broken(type->id))
		return;
	exec_trouble(psprintf("job type \"%s\" is paused on this node: %s", type->name, why));
	ereport(WARNING,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("job type \"%s\" is paused on this node: %s", type->name, why)));
	event_write(ledger, &x->row, type, "paused", "helper", "error", why, NULL);
}

static void
settle_one(SettleBatch *batch, Settlement *item)
{
	ExecJob    *x = item->job;
	Ledger	   *ledger = &batch->ledger;
	JobType    *type = job_type_by_id(x->ref.type_id);
	Outcome		outcome;
	Job			job;

	item->verdict = VERDICT_SETTLED;
	item->need = 0;
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
	judge(x, type, &outcome);
	if (outcome.kind == OUTCOME_RELEASED || outcome.kind == OUTCOME_SNOOZED)
		job.nulls[Q_started_at - 1] = job.nulls[Q_worker - 1] = job.nulls[Q_node - 1] = true;
	item->status = settle(ledger, &job, type, &outcome, &item->need);
	if (item->need != 0)
	{
		item->result = RESULT_LATER;
		return;
	}
	item->result = RESULT_SETTLED;
	item->failed = outcome.kind == OUTCOME_FAILED;
	write_events(ledger, x, type);
	if (type)
		write_remarks(ledger, x, type);
	if (x->end.kind == FRAME_START_FAILED && outcome.kind == OUTCOME_RELEASED)
	{
		say_broken(ledger, x, type, outcome.message);
		item->verdict = VERDICT_STUCK;
	}
}

/* A lock on the queue, but not a long wait for it: the postmaster may be waiting for us. */
static bool
lock_queue_soon(void)
{
	Oid			queue = jobq_relid("queue");
	int			tries = 0;

	if (!OidIsValid(queue))
		return false;
	while (!ConditionalLockRelationOid(queue, RowExclusiveLock))
	{
		if (tries++ >= FINAL_TRIES)
			return false;
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 20, PG_WAIT_EXTENSION);
	}
	return true;
}

static void
settle_batch(void *arg)
{
	SettleBatch *batch = arg;
	int			i;

	if (batch->final && !lock_queue_soon())
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not put back the jobs whose tools were stopped: jobq.queue is locked")));
	ledger_open(&batch->ledger);
	for (i = 0; i < batch->nitems; i++)
	{
		Settlement *item = &batch->items[i];

		if (item->job->state == EXEC_ENDED)
			settle_one(batch, item);
		else
		{
			write_events(&batch->ledger, item->job, job_type_by_id(item->job->ref.type_id));
			item->result = RESULT_EVENTS;
		}
	}
	ledger_close(&batch->ledger);
}

/* ---------- afterwards ---------- */

static void
retry_later(ExecJob *x)
{
	int64		delay = Min((int64) RETRY_MIN_MS << Min(x->failures, 16), RETRY_MAX_MS);

	x->failures++;
	x->retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay);
}

static void
forget_events(ExecJob *x)
{
	list_free_deep(x->events);
	x->events = NIL;
	x->events_due = 0;
}

static void
count_settled(Settlement *item)
{
	pg_atomic_fetch_add_u64(&exec_db->settled, 1);
	if (item->failed)
		pg_atomic_fetch_add_u64(&exec_db->failed_attempts, 1);
	if (item->status >= JOB_COMPLETED)
		wake_waiters(exec_db, &item->job->ref.id, item->status);
}

/* The transaction has committed. */
static void
apply(Settlement *item)
{
	ExecJob    *x = item->job;

	switch (item->result)
	{
		case RESULT_SETTLED:
			count_settled(item);
			exec_forget(x, item->verdict);
			break;
		case RESULT_NOT_MINE:
			exec_forget(x, VERDICT_NOT_MINE);
			break;
		case RESULT_EVENTS:
			forget_events(x);
			break;
		case RESULT_LATER:
			if (item->need != 0)
				maintenance_start(exec_db, item->need);
			retry_later(x);
			break;
	}
}

/*
 * It failed, alone.  An error of the data (class 22 or 54) would come again each time: then the attempt
 * fails with that error instead of its result.  Anything else passes.
 */
static void
give_way(ExecJob *x, ErrorData *error)
{
	MemoryContext caller;
	int			class = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	retry_later(x);
	if (x->state != EXEC_ENDED)
	{
		forget_events(x);
		return;
	}
	if (class != ERRCODE_DATA_EXCEPTION && class != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
		return;
	caller = MemoryContextSwitchTo(x->context);
	x->end.kind = EXEC_UNSETTLED;
	x->end.message = frame_text(pstrdup(unpack_sql_state(error->sqlerrcode)));
	x->end.output = frame_text(psprintf("could not store the result: %s", error->message));
	x->progress = get_float8_nan();
	x->progress_data = NULL;
	x->events = NIL;
	MemoryContextSwitchTo(caller);
}

static bool
run_batch(Settlement *items, int n, bool final)
{
	SettleBatch batch = {.items = items, .nitems = n, .final = final};
	ErrorData  *error = exec_in_transaction(settle_batch, &batch);
	int			i;

	if (error == NULL)
	{
		for (i = 0; i < n; i++)
			apply(&items[i]);
		return true;
	}
	if (n == 1)
		give_way(items[0].job, error);
	return false;
}

static bool
is_due(ExecJob *x, TimestampTz now)
{
	if (x->retry_at > now)
		return false;
	return x->state == EXEC_ENDED ||
		(x->state == EXEC_STARTED && x->events_due != 0 && x->events_due <= now);
}

void
exec_settle(bool final)
{
	Settlement *items = NULL;
	TimestampTz now = final ? DT_NOEND : GetCurrentTimestamp();
	int			n = 0;
	int			i;

	for (i = 0; i < JOBQ_CELLS; i++)
	{
		if (!is_due(&exec_jobs[i], now))
			continue;
		if (items == NULL)
			items = MemoryContextAllocZero(ExecTurnContext, sizeof(Settlement) * JOBQ_CELLS);
		items[n++].job = &exec_jobs[i];
	}
	if (n == 0)
		return;
	if (!run_batch(items, n, final) && n > 1)
	{
		for (i = 0; i < n; i++)
			run_batch(&items[i], 1, final);
	}
	slot_report();
}

TimestampTz
exec_settle_at(void)
{
	TimestampTz at = DT_NOEND;
	int			i;

	for (i = 0; i < JOBQ_CELLS; i++)
	{
		ExecJob    *x = &exec_jobs[i];

		if (x->state == EXEC_ENDED)
			at = Min(at, x->retry_at);
		else if (x->state == EXEC_STARTED && x->events_due != 0)
			at = Min(at, Max(x->events_due, x->retry_at));
	}
	return at;
}
