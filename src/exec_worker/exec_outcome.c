/*
 * exec_outcome.c
 *	  Derives the outcome (settle.h) from the end of a tool.
 *
 *	 exit 0				completed if the output has the kind of
 *						options.output; else failed, bad_output
 *	 exit n				failed by the error on descriptor 3
 *						(exec_tool_answers.c); without one failed, skipped or
 *						snoozed by the type's lists of exit codes
 *	 a signal, timeout	failed; so is a tool silent for options.stall
 *	 over max_output	failed, bad_output
 *	 not started		released (a fault of this node); failed if its
 *						arguments are too long
 *	 stopped by jobq	cancelled if a user asked; else released
 *	 helper lost		failed
 *	 warm: an answer	by the answer (exec_tool_answers.c); every exit,
 *						whatever its code, failed
 *
 * The message of an exit has the last line of stderr.  When a limit probably
 * caused the failure, the message ends with that limit.
 */
#include "jobq.h"

#include <ctype.h>
#include <signal.h>

#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "base/interval.h"
#include "base/json_build.h"
#include "exec_worker/exec_internal.h"
#include "registry/options.h"

#define MAX_STDERR_LINE 1024	/* maximal length in a message */

static bool
in_codes(Jsonb *options, const char *key, int code, bool otherwise)
{
	JsonbValue	container;
	JsonbValue *element;
	Datum		wanted = DirectFunctionCall1(int4_numeric, Int32GetDatum(code));
	uint32		i;

	if (getKeyJsonValueFromContainer(&options->root, key, (int) strlen(key), &container) == NULL ||
		container.type != jbvBinary)
		return otherwise;
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

/* Returns "KILL" for example, or a number when the signal has no name here. */
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

/*
 * Stores repaired text as the result (an event reports the repair). Truncated
 * text is bad output.
 */
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

/* Formats a size: "64 MB", "1000 bytes". */
static char *
size_text(int64 bytes)
{
	static const char *const units[] = {"bytes", "kB", "MB", "GB"};
	int			unit = 0;

	for (; unit < 3 && bytes % 1024 == 0 && bytes > 0; unit++)
		bytes /= 1024;
	return psprintf(INT64_FORMAT " %s", bytes, units[unit]);
}

/* Adds the limit that probably caused the failure to its message. */
static char *
with_limit(char *message, FrameExit *end, JobType *type)
{
	if (type == NULL)
		return message;
	switch ((FrameLimit) end->limit)
	{
		case FRAME_LIMIT_NONE:
			break;
		case FRAME_LIMIT_MEMORY:
			return psprintf("%s: memory limit of %s exceeded", message,
							size_text(option_size(type->options, "memory_max", 0)));
		case FRAME_LIMIT_CPU:
			return psprintf("%s: processor time limit of %d s exceeded", message,
							option_int(type->options, "cpu_seconds", 0));
		case FRAME_LIMIT_FILES:
			return psprintf("%s: limit of %d open files reached", message,
							option_int(type->options, "nofile", EXEC_NOFILE));
	}
	return message;
}

/* Finds the last line that is not blank, trimmed. Returns its length. */
static int
last_line(const char *text, const char **line)
{
	const char *end = text + strlen(text);

	for (;;)
	{
		while (end > text && isspace((unsigned char) end[-1]))
			end--;
		/* the helper's escape for a carriage return */
		if (end - text < 4 || memcmp(end - 4, "\\x0d", 4) != 0)
			break;
		end -= 4;
	}
	for (*line = end; *line > text && (*line)[-1] != '\n';)
		(*line)--;
	while (*line < end && isspace((unsigned char) **line))
		(*line)++;
	return (int) (end - *line);
}

static char *
exit_message(Outcome *o, int code, bool warm)
{
	char	   *message = psprintf("exited with code %d%s", code, warm ? " before it had answered" : "");
	const char *line;
	int			len = o->stderr_tail ? last_line(o->stderr_tail, &line) : 0;

	if (len == 0)
		return message;
	return psprintf("%s: %.*s", message, pg_mbcliplen(line, len, MAX_STDERR_LINE), line);
}

static void
exited(Outcome *o, FrameExit *end, JobType *type, bool warm)
{
	int			code = end->value;

	if (code == 0 && !warm)
	{
		o->kind = OUTCOME_COMPLETED;
		if (type && type->output == OUTPUT_JSON)
			json_result(o, end);
		else if (type && type->output == OUTPUT_TEXT)
			text_result(o, end);
		return;
	}
	failed(o, psprintf("exit:%d", code), with_limit(exit_message(o, code, warm), end, type));
	o->code_given = true;
	if (exec_take_error(o, end) || type == NULL || warm)
		return;
	if (in_codes(type->options, "skip_exit_codes", code, false))
		o->kind = OUTCOME_SKIPPED;
	else if (in_codes(type->options, "snooze_exit_codes", code, false))
	{
		o->kind = OUTCOME_SNOOZED;
		o->delay_us = option_interval(type->options, "snooze", USECS_PER_MINUTE);
	}
	else
		o->permanent = in_codes(type->options, "permanent_exit_codes", code, IS_PERMANENT_EXIT_CODE(code));
	if (o->kind != OUTCOME_FAILED)
		o->code = NULL;
}

/* Fills the outcome of a tool stopped by a user or for DDL or shutdown. */
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
		o->never_ran = true;
		o->message = why;
	}
}

/* Returns error_details with the tail of stderr; NULL: it is empty. */
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

void
exec_judge(ExecJob *x, JobType *type, Outcome *o)
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
			exited(o, end, type, x->warm);
			break;
		case FRAME_ANSWERED:
			if (end->verdict == FRAME_OUT_OK)
				exec_judge_answer(o, end, type);
			else
				bad_output(o, end, text_from_utf8(end->message.data, (int) end->message.len));
			break;
		case FRAME_OUTPUT_LIMIT:
			bad_output(o, end, text_from_utf8(end->message.data, (int) end->message.len));
			break;
		case FRAME_SIGNALLED:
			failed(o, psprintf("signal:%s", signal_name(end->value)),
				   with_limit(psprintf("terminated by signal %s", signal_name(end->value)), end, type));
			break;
		case FRAME_START_FAILED:
			start_failed(o, x);
			break;
		case FRAME_TIMEOUT:
			failed(o, "timeout", psprintf("timeout after %s", span_text(x->timeout_us)));
			break;
		case FRAME_STALLED:
			failed(o, "stalled", psprintf("stalled: no output, progress or heartbeat for %s",
										  span_text(x->stall_us)));
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
