/*
 * take_back.c
 *	  Takes back jobs that were handed out and have not begun.
 *
 * Jobs are handed ahead to workers with short runs.  Those behind a run that
 * turned out long go back to their lanes, where another worker gets them.
 */
#include "jobq.h"

#include "workers/cancel_requests.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"
#include "workers/take_back.h"

#define TAKE_BACK_US		INT64CONST(100000)

void
executor_take_back(Executor *e, bool cancels)
{
	for (int c = 0; e->ncells > 0 && c < JOBQ_CELLS; c++)
	{
		JobRef		ref = e->slot->cells[c].ref;

		if (!e->used[c] || (!cancels && (ref.flags & REF_CANCEL)) || !slot_take_back(e->slot, c))
			continue;
		type_open(executor_vacate(e, c));
		wait_queue_open(&e->role->wait_queue);	/* the job may rank behind one that waits for its end */
		if (ref.flags & REF_CANCEL)
		{
			Cell	   *cell = &e->slot->cells[c];

			reread_job(&ref);
			cancel_after_all(&ref.id, cell->has_reason ? cell->reason : NULL);
		}
		else if (ref_leased(&ref))
			lease_keep(&ref);
		else
			return_job(&ref);
	}
}

void
executors_take_back(bool cancels)
{
	for (int i = 0; i < executors_end; i++)
	{
		if (executors[i].slot)
			executor_take_back(&executors[i], cancels);
	}
}

void
executors_dismiss(void)
{
	for (int i = 0; i < executors_end; i++)
	{
		if (executors[i].slot == NULL)
			continue;
		executor_take_back(&executors[i], false);
		slot_dismiss(executors[i].slot);
	}
}

/* ---------- behind long runs ---------- */

/*
 * Lets the type run alone for a while; its jobs in the executor count as of
 * unknown length.
 */
static void
note_slow_run(Executor *e, int cell, TypeState *t, MonoTime now)
{
	t->clean_runs = 0;
	t->alone_until = now + 2 * USECS_PER_SEC;
	if (!e->slow[cell])
	{
		e->slow[cell] = true;
		e->nslow++;
	}
}

void
executors_take_back_slow(MonoTime now)
{
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];
		TypeState  *t;
		int			current;
		MonoTime	started;

		if (e->slot == NULL || e->exec || e->ncells < 2)
			continue;
		current = e->slot->current;
		if (current < 0 || e->slot->phase != PHASE_HANDLER || !e->used[current])
			continue;
		t = type_state(e->types[current]);
		started = e->slot->cells[current].begun_at;
		if (started != 0 && now - started > TAKE_BACK_US)
			note_slow_run(e, current, t, now);
		else if (type_is_short(t))
			continue;
		executor_take_back(e, true);
	}
}

MonoTime
take_back_next_timer(MonoTime now)
{
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		if (e->slot && !e->exec && e->ncells > 1)
			return now + TAKE_BACK_US;
	}
	return DT_NOEND;
}
