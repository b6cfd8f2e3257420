/*
 * handler_calls.c
 *	  What a SQL handler may call while it runs: its own job, progress, events, its word on the outcome.
 *
 * Progress goes to the slot and is visible at once; events and the outcome are kept in the Run until
 * the attempt ends, so that they survive its rollback.
 */
#include "jobq.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/memutils.h"

#include "handler.h"

PG_FUNCTION_INFO_V1(jobq_current_job_id);
PG_FUNCTION_INFO_V1(jobq_set_progress);
PG_FUNCTION_INFO_V1(jobq_log_event);
PG_FUNCTION_INFO_V1(jobq_skip);
PG_FUNCTION_INFO_V1(jobq_discard);
PG_FUNCTION_INFO_V1(jobq_snooze);

bool
handler_current_job(pg_uuid_t *id, int *depth)
{
	Run		   *run = handler_now();

	if (run == NULL)
		return false;
	*id = *JOB_ID(run->job);
	*depth = JOB_INT(run->job, Q_depth);
	return true;
}

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

/* jobq._current_job_id() */
Datum
jobq_current_job_id(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));
	int			depth;

	if (!handler_current_job(id, &depth))
		PG_RETURN_NULL();
	PG_RETURN_UUID_P(id);
}

static char *
arg_text(FunctionCallInfo fcinfo, int i)
{
	if (PG_NARGS() <= i || PG_ARGISNULL(i))
		return NULL;
	return text_to_cstring(PG_GETARG_TEXT_PP(i));
}

static void
need_arg(FunctionCallInfo fcinfo, int i, const char *name)
{
	if (PG_ARGISNULL(i))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be NULL", name)));
}

/* jobq.set_progress(progress numeric, data jsonb): visible at once, in the slot */
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
				 errmsg("argument \"progress\" is %s, outside 0..100",
						DatumGetCString(DirectFunctionCall1(numeric_out, PG_GETARG_DATUM(0))))));
	if (!PG_ARGISNULL(1))
	{
		data = JsonbToCString(NULL, &PG_GETARG_JSONB_P(1)->root, 0);
		if (strlen(data) >= JOBQ_PROGRESS_LEN)
			data = "{\"truncated\": true}";
	}
	if (run->cell >= 0)
	{
		Cell	   *cell = &MySlot->cells[run->cell];

		SpinLockAcquire(&MySlot->mutex);
		cell->progress = progress;
		strlcpy(cell->progress_data, data ? data : "", JOBQ_PROGRESS_LEN);
		SpinLockRelease(&MySlot->mutex);
	}
	else
	{
		run->progress = progress;
		strlcpy(run->progress_data, data ? data : "", JOBQ_PROGRESS_LEN);
	}
	PG_RETURN_VOID();
}

/* jobq.log_event(message, level, type, data, id, lease_token): kept aside until the attempt ends */
Datum
jobq_log_event(PG_FUNCTION_ARGS)
{
	Run		   *run = need_run("log_event");
	MemoryContext old = MemoryContextSwitchTo(run->context);
	LogLine    *line = palloc0(sizeof(LogLine));

	need_arg(fcinfo, 0, "message");
	line->message = arg_text(fcinfo, 0);
	line->level = PG_ARGISNULL(1) ? "info" : arg_text(fcinfo, 1);
	line->type = PG_ARGISNULL(2) ? "log" : arg_text(fcinfo, 2);
	if (!PG_ARGISNULL(3))
		line->data = (Jsonb *) PG_DETOAST_DATUM_COPY(PG_GETARG_DATUM(3));
	run->log = lappend(run->log, line);
	MemoryContextSwitchTo(old);
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
	int64		delay;

	need_arg(fcinfo, 0, "delay");
	delay = interval_to_us(PG_GETARG_INTERVAL_P(0));
	if (delay < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"delay\" is negative: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(0))))));
	say(run, OUTCOME_SNOOZED, arg_text(fcinfo, 1));
	run->said_delay_us = delay;
	PG_RETURN_VOID();
}
