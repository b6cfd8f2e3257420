/*
 * exec_messages.c
 *	  Handles frames of jobq-helper about running tools: progress, log lines,
 *	  events and ends.
 *
 * Progress is shown at once (in the cell, through the view) and written when
 * the job is settled.  Other events wait in the job's entry for exec_settle.c.
 * The helper bounds the length of lines; EXEC_MAX_EVENTS and
 * EXEC_MAX_ARTIFACTS bound their number, so that a tool can fill neither memory
 * nor tables.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/texts.h"
#include "exec_worker/exec_internal.h"

#define EVENT_DELAY_MS	500

bool		exec_stopping = false;

static bool any_ended;

static void
got_exit(ExecJob *x, const FrameExit *exit)
{
	exec_job_exited(x, exit);
	if (exit->kind != FRAME_START_FAILED)
	{
		slot_ended(x->cell);
		any_ended = true;
	}
}

void
exec_keep_event(ExecJob *x, int kind, const FrameText *text)
{
	MemoryContext caller = MemoryContextSwitchTo(x->context);
	ToolEvent  *kept = palloc(sizeof(ToolEvent));

	kept->ts = GetCurrentTimestamp();
	kept->kind = (uint8) kind;
	kept->text = text ? pnstrdup(text->data, text->len) : NULL;
	x->events = lappend(x->events, kept);
	if (x->events_due == 0)
		x->events_due = mono_now() + EVENT_DELAY_MS * INT64CONST(1000);
	MemoryContextSwitchTo(caller);
}

typedef struct ProgressWork
{
	ExecJob    *job;
	FrameText	text;
	bool		valid;
	double		progress;
	char	   *data;
} ProgressWork;

/* Parses {"progress": 40, "data": {...}} and formats data as jsonb does. */
static void
parse_progress(void *arg)
{
	ProgressWork *work = arg;
	char	   *why;
	Jsonb	   *line = json_from_utf8(work->text.data, (int) work->text.len, &why);
	JsonbValue	v;

	if (line == NULL || !JB_ROOT_IS_OBJECT(line) ||
		getKeyJsonValueFromContainer(&line->root, "progress", 8, &v) == NULL ||
		v.type != jbvNumeric)
		return;
	work->valid = true;
	work->progress = DatumGetFloat8(DirectFunctionCall1(numeric_float8,
														NumericGetDatum(v.val.numeric)));
	if (getKeyJsonValueFromContainer(&line->root, "data", 4, &v) != NULL && v.type != jbvNull)
	{
		Jsonb	   *data = JsonbValueToJsonb(&v);
		char	   *text = JsonbToCString(NULL, &data->root, VARSIZE(data));

		if (strlen(text) <= EXEC_MAX_PROGRESS)
			work->data = MemoryContextStrdup(ExecTurnContext, text);
	}
}

/* Keeps the first progress event, then at most one a second (level all). */
static void
keep_progress_event(ExecJob *x, const FrameText *text)
{
	MonoTime	now = mono_now();

	if (x->progress_kept_at != 0 && now - x->progress_kept_at < USECS_PER_SEC)
		return;
	x->progress_kept_at = now;
	exec_keep_event(x, FRAME_EVENT_PROGRESS, text);
}

/* Shows progress in the view, and keeps it for the settlement. */
static void
got_progress(ExecJob *x, FrameText text)
{
	ProgressWork work = {.job = x, .text = text};
	Cell	   *cell = &MySlot->cells[x->cell];

	if (exec_in_transaction(parse_progress, &work) != NULL || !work.valid)
		return;
	x->progress = work.progress;
	if (work.data)
	{
		if (x->progress_data)
			pfree(x->progress_data);
		x->progress_data = MemoryContextStrdup(x->context, work.data);
	}
	SpinLockAcquire(&MySlot->mutex);
	cell->progress = x->progress;
	if (work.data && strlen(work.data) < JOBQ_PROGRESS_LEN)
		strlcpy(cell->progress_data, work.data, JOBQ_PROGRESS_LEN);
	SpinLockRelease(&MySlot->mutex);
	if (x->all_events)
		keep_progress_event(x, &text);
}

typedef struct StderrLine
{
	ExecJob    *job;
	FrameText	text;
} StderrLine;

static void
log_stderr_line(void *arg)
{
	StderrLine *line = arg;
	JobType    *type = job_type_by_id(line->job->ref.type_id);
	int			level = type && jobq_log_error_text ? exec_log_level(type) : 0;

	if (level != 0)
		ereport(level,
				(errmsg("job %s of type \"%s\": %s",
						DatumGetCString(DirectFunctionCall1(uuid_out,
															UUIDPGetDatum(&line->job->ref.id))),
						type->name,
						log_text(text_from_utf8(line->text.data, (int) line->text.len))),
				 line->job->log_fields ? errdetail_internal("%s", log_text(line->job->log_fields)) : 0,
				 errhidestmt(true), errhidecontext(true)));
}

static void
got_frame(const Frame *frame)
{
	ExecJob    *x;

	switch (frame->type)
	{
		case FRAME_STARTED:
			if ((x = exec_job_by_number(frame->u.started.job)) == NULL)
				break;
			exec_type_started(x);
			MySlot->cells[x->cell].starting = false;
			if (x->all_events)
				exec_keep_event(x, EXEC_EVENT_STARTED, NULL);
			break;
		case FRAME_EVENT:
			if (exec_stopping || (x = exec_job_by_number(frame->u.event.job)) == NULL)
				break;
			if (frame->u.event.kind == FRAME_EVENT_PROGRESS)
				got_progress(x, frame->u.event.text);
			else if (frame->u.event.kind == FRAME_EVENT_STDERR)
			{
				StderrLine	line = {x, frame->u.event.text};

				(void) exec_in_transaction(log_stderr_line, &line);
			}
			else if (frame->u.event.kind == FRAME_EVENT_ARTIFACT)
				exec_got_artifact(x, &frame->u.event.text);
			else if (x->nevents++ < EXEC_MAX_EVENTS)
				exec_keep_event(x, frame->u.event.kind, &frame->u.event.text);
			break;
		case FRAME_EXIT:
			if ((x = exec_job_by_number(frame->u.exit.job)) != NULL)
				got_exit(x, &frame->u.exit);
			break;
	}
}

void
exec_take_frames(void)
{
	any_ended = false;
	if (helper_socket() != PGINVALID_SOCKET && !helper_receive(got_frame))
		exec_jobs_helper_lost();
	if (any_ended)
		slot_report();			/* before the settlements, so that the next
								 * jobs arrive meanwhile */
}
