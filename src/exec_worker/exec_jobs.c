/*
 * exec_jobs.c
 *	  The exec worker's table of jobs, one entry for each cell of its slot.
 *
 * Only this file sees the table.  Other files get an entry from
 * exec_job_take(), exec_job_by_number() or exec_jobs_next() and pass it as an
 * ExecJob *. All changes of ExecState are here; exec_internal.h lists them.
 */
#include "jobq.h"

#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "exec_worker/exec_internal.h"

MemoryContext ExecContext;
MemoryContext ExecTurnContext;
JobqDb	   *exec_db;

static ExecJob table[JOBQ_CELLS];

/* ---------- access ---------- */

ExecJob *
exec_jobs_next(const ExecJob *after)
{
	int			cell = after ? after->cell + 1 : 0;

	for (; cell < JOBQ_CELLS; cell++)
	{
		if (table[cell].state != EXEC_FREE)
			return &table[cell];
	}
	return NULL;
}

ExecJob *
exec_job_by_number(uint64 number)
{
	ExecJob    *job = &table[number % JOBQ_CELLS];

	return job->state == EXEC_STARTED && job->number == number ? job : NULL;
}

int
exec_jobs_count(ExecState state)
{
	int			n = 0;

	for (int i = 0; i < JOBQ_CELLS; i++)
		n += table[i].state == state;
	return n;
}

/* ---------- states ---------- */

ExecJob *
exec_job_take(void)
{
	static uint64 last_number = 0;
	/* first: an error leaves the job in the slot */
	MemoryContext context = AllocSetContextCreate(ExecContext, "jobq exec job", ALLOCSET_SMALL_SIZES);
	int			cell = slot_next();
	ExecJob    *job;

	if (cell < 0)
	{
		MemoryContextDelete(context);
		return NULL;
	}
	job = &table[cell];
	Assert(job->state == EXEC_FREE);
	memset(job, 0, sizeof(*job));
	job->state = EXEC_TAKEN;
	job->cell = cell;
	job->context = context;
	job->number = ++last_number * JOBQ_CELLS + (uint64) cell;
	job->progress = get_float8_nan();
	return job;
}

void
exec_job_started(ExecJob *job)
{
	job->state = EXEC_STARTED;
}

static FrameText
keep_text(ExecJob *job, FrameText text)
{
	FrameText	kept = {MemoryContextAlloc(job->context, text.len + 1), text.len};

	memcpy(unconstify(char *, kept.data), text.data, text.len);
	unconstify(char *, kept.data)[text.len] = '\0';
	return kept;
}

static void
set_ended(ExecJob *job)
{
	job->ended_at = GetCurrentTimestamp();
	job->retry_at = 0;
	job->state = EXEC_ENDED;
}

void
exec_job_exited(ExecJob *job, const FrameExit *exit)
{
	job->end = *exit;
	job->end.output = keep_text(job, exit->output);
	job->end.stderr_tail = keep_text(job, exit->stderr_tail);
	job->end.message = keep_text(job, exit->message);
	job->end.error = keep_text(job, exit->error);
	set_ended(job);
}

void
exec_job_ended(ExecJob *job, int kind, int value, const char *message)
{
	memset(&job->end, 0, sizeof(job->end));
	job->end.kind = (uint8_t) kind;
	job->end.value = value;
	job->end.message = frame_text(MemoryContextStrdup(job->context, message));
	set_ended(job);
}

void
exec_jobs_helper_lost(void)
{
	ExecJob    *job = NULL;

	while ((job = exec_jobs_next(job)) != NULL)
	{
		if (job->state != EXEC_STARTED)
			continue;
		if (helper_was_heard() || job->asked != CANCEL_NONE)
			exec_job_ended(job, EXEC_HELPER_LOST, 0, "");
		else
			exec_job_ended(job, FRAME_START_FAILED, EIO, "jobq-helper cannot work: see the server log");
	}
}

void
exec_job_forget(ExecJob *job, CellReport report)
{
	MemoryContextDelete(job->context);
	job->context = NULL;
	job->state = EXEC_FREE;
	slot_done(job->cell, report);
}
