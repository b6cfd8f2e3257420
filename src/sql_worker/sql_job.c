/*
 * sql_job.c
 *	  One job of a batch: locks its row, runs its handler, settles it.
 *
 * A job whose former attempt has ended with its executor, or that is
 * cancelled, is only settled.
 */
#include "jobq.h"

#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"

#include "settle/breaker_news.h"
#include "shared/crash_record.h"
#include "sql_worker/sql_batch.h"
#include "sql_worker/stray_connections.h"
#include "sql_worker/worker_role.h"

/* True if the worker of the attempt before this one was terminated. */
static bool
was_terminated(Job *job)
{
	return !JOB_NULL(job, Q_error_code) &&
		strcmp(TextDatumGetCString(JOB_ATT(job, Q_error_code)), CODE_TERMINATED) == 0;
}

/*
 * Sets the outcome of an attempt whose worker was terminated, by its own
 * handler or by an outside cause.  The first time the job waits again at once,
 * at no charge; the second time in a row it is charged.
 */
static void
terminated(Run *run)
{
	Outcome    *o = &run->outcome;

	o->code = CODE_TERMINATED;
	o->message = "the worker process was terminated while the handler ran";
	if (!was_terminated(run->job))
		o->kind = OUTCOME_RELEASED;
}

/*
 * Sets the outcome of an attempt that ended before this worker got the job, or
 * of none: ref_settles.
 */
static void
prior_outcome(Cell *cell, Run *run)
{
	Outcome    *o = &run->outcome;

	memset(o, 0, sizeof(Outcome));
	o->progress = get_float8_nan();
	o->ended_at = GetCurrentTimestamp();
	o->source = "sql";
	o->worker = MySlot->name;
	if (cell->ref.flags & REF_CANCEL)
	{
		o->kind = OUTCOME_CANCELLED;
		o->source = "client";
		o->message = cell->has_reason ? cell->reason : NULL;
		return;
	}
	o->kind = OUTCOME_FAILED;
	o->started_at = o->ended_at;
	if (cell->ref.charge == CHARGE_TIMED_OUT)
	{
		o->code = "timeout";
		o->message = run->type == NULL ? "timeout" :
			psprintf("%s, ignored by the handler: its process was ended", handler_timeout_message(run));
		return;
	}
	if (cell->ref.charge == CHARGE_DIED)
	{
		terminated(run);
		return;
	}
	o->code = "server_crash";
	o->message = "the server crashed while the handler ran";
	o->crashed = true;
}

static void
no_such_type(Entry *e)
{
	Cell	   *cell = &MySlot->cells[e->cell];

	prior_outcome(cell, &e->run);
	if (e->run.outcome.kind == OUTCOME_RELEASED)
		e->run.outcome.kind = OUTCOME_FAILED;	/* without a type it would wait without end */
	e->run.outcome.permanent = true;
	e->run.outcome.code = "42704";
	e->run.outcome.message = psprintf("job type %d no longer exists", cell->ref.type_id);
}

/*
 * True if the completion has its partitions.  A handler may run for hours: its
 * transaction locks them when it settles, so that DDL on them does not wait
 * for it.
 */
static bool
partition_ready(Batch *batch, Job *job, JobType *type, TimestampTz *need)
{
	Ledger	   *ledger = &batch->ledger;

	*need = batch->started;
	if (EVENTS_WANTED(type, EVENTS_ALL) && !partition_holds(&ledger->events.partition, *need) && !partition_exists("events", *need))
		return false;
	/* without history still for a row that a hook refers to */
	if (!history_keeps(job, type, batch->started, need))
	{
		*need = batch->started;
		if (!type->has_hooks)
			return true;
	}
	return partition_holds(&ledger->history, *need) || partition_exists("history", *need);
}

void
sql_entry_settle(Batch *batch, Entry *e)
{
	e->run.outcome.worker = MySlot->name;
	e->status = settle(&batch->ledger, &e->job, e->run.type, &e->run.outcome, &e->need);
	if (e->need != 0)
	{
		e->report = REPORT_NO_PARTITION;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq has no partition for %s", timestamptz_to_str(e->need))));
	}
	breaker_take_down(&e->breaker, e->run.type, &e->run.outcome);
	e->settled = true;
	e->report = REPORT_SETTLED;
}

static void
run_handler_of(Batch *batch, Entry *e, Cell *cell)
{
	e->run.shared = batch->n > 1;
	e->run.stray_before = (cell->ref.flags & REF_AGAIN) != 0;
	crash_record_begin(&cell->ref.id);
	handler_run(&e->run);
	crash_record_end();
	cell->run_us = (int32) Min(mono_now() - cell->begun_at, PG_INT32_MAX);
	e->run.closes_batch |= find_stray_connections();
	switch (e->run.end)
	{
		case RUN_OUTCOME:
			sql_entry_settle(batch, e);
			break;
		case RUN_ALONE:
			e->report = REPORT_ALONE;
			break;
		case RUN_RELEASED:
			e->report = REPORT_RELEASED;
			break;
	}
}

void
sql_entry_run(Batch *batch, int cellno, MemoryContext context)
{
	Cell	   *cell = &MySlot->cells[cellno];
	Entry	   *e = &batch->entries[batch->n++];
	JobType    *type;

	memset(e, 0, sizeof(Entry));
	e->cell = cellno;
	e->run.cell = cellno;
	e->run.job = &e->job;
	e->run.context = context;
	slot_enter(cellno, PHASE_SETTLING);
	if (queue_lock(&batch->ledger.queue, &cell->ref, &e->job) != LOCK_OK)
	{
		e->report = REPORT_NOT_MINE;
		return;
	}
	cell->row_status = (uint8) e->job.status;
	type = e->run.type = job_type_by_id(cell->ref.type_id);
	if (type == NULL)
		no_such_type(e);
	else if (ref_settles(&cell->ref))
		prior_outcome(cell, &e->run);
	else
	{
		if (!worker_role_fits(type))
		{
			MySlot->leaving = true;
			e->report = REPORT_RELEASED;
		}
		else if (type->breaker_failures > 0 && !breaker_admits(type->id, &cell->ref.id))
			e->report = REPORT_RELEASED;
		else if (partition_ready(batch, &e->job, type, &e->need))
		{
			e->need = 0;
			run_handler_of(batch, e, cell);
		}
		else
			e->report = REPORT_NO_PARTITION;
		return;
	}
	sql_entry_settle(batch, e);
}
