/*
 * executor_reports.c
 *	  Reads the reports of executors: attached, a job ended and how, process
 *	  gone.
 *
 * A worker writes its report into the job's cell and sets a bit of the slot's
 * `done`; its writes to the database are committed before that.  This file
 * decides the job's state in memory: forgotten, back in its lane, read again,
 * or held for a while.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/timestamp.h"

#include "limits/concurrency_keys.h"
#include "workers/cancel_requests.h"
#include "workers/executor_pool.h"
#include "workers/executor_reports.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"
#include "workers/take_back.h"

#define CANCEL_RETRY_US		INT64CONST(500000)

/*
 * A cancel was not settled: its row was locked, say.  The job is held until the
 * cancel is tried again.
 */
static void
cancel_failed(const Cell *cell, MonoTime now)
{
	if (cell->report == REPORT_NOT_MINE)
		pg_atomic_fetch_add_u64(&my_db()->counters.fallbacks, 1);
	hold_job(&cell->ref, now + MAX_RETRY_US, HOLD_CANCEL);
	cancel_later(&cell->ref.id, cell->has_reason ? cell->reason : NULL, now + CANCEL_RETRY_US);
}

static void
apply_report(Executor *e, Cell *cell, TypeState *t, MonoTime now)
{
	JobRef		ref = cell->ref;

	type_note_run(t, cell->report, cell->run_us, now);
	if (ref_leased(&ref) && cell->report != REPORT_SETTLED)
	{
		lease_keep(&ref);		/* renewed, ended by its client, or locked */
		return;
	}
	if (ref_leased(&ref))
		lease_settled(&ref.id);
	if ((ref.flags & REF_CANCEL) && cell->report != REPORT_SETTLED)
	{
		cancel_failed(cell, now);
		return;
	}
	switch ((CellReport) cell->report)
	{
		case REPORT_NOT_MINE:
			pg_atomic_fetch_add_u64(&my_db()->counters.fallbacks, 1);
			if (ref.key != 0)
				key_not_had(&ref);
			forget_job(&ref);
			break;
		case REPORT_SETTLED:
			type_release(t, now);
			scan_unmark(&ref.id);
			forget_job(&ref);
			break;
		case REPORT_RELEASED:
			if (e->exec)
				reread_job(&ref);
			else
				return_job(&ref);
			break;
		case REPORT_ALONE:
			ref.flags |= (ref.flags & REF_ALONE) ? REF_AGAIN : REF_ALONE;
			return_job(&ref);
			break;
		case REPORT_STUCK:
			if (e->exec)
			{
				type_hold(t, now);	/* its tool can't be started here: longer each time */
				reread_job(&ref);
			}
			else
				hold_job(&ref, now + 5 * START_RETRY_US, HOLD_COMMIT);
			break;
		case REPORT_CHARGE:
			/*
			 * the row has nothing of the attempt, and may be read again before
			 * it is settled
			 */
			ref.charge = cell->charge;
			scan_mark(&ref.id, ref.rev, 0, ref.charge);
			return_job(&ref);
			break;
	}
}

static bool
collect_cells(Executor *e, MonoTime now)
{
	uint64		done[JOBQ_DONE_WORDS];
	uint64		any = 0;

	for (int i = 0; i < JOBQ_DONE_WORDS; i++)
	{
		uint64		ended;

		done[i] = pg_atomic_exchange_u64(&e->slot->done[i], 0);
		/*
		 * read after `done`: a cell in both has ended; a later bit is of the
		 * cell's next job
		 */
		ended = e->exec ? pg_atomic_exchange_u64(&e->slot->ended[i], 0) : 0;
		any |= done[i] | ended;
		for (ended &= ~done[i]; ended != 0; ended &= ended - 1)
			executor_note_end(e, i * 64 + pg_rightmost_one_pos64(ended));
	}
	if (any == 0)
		return false;
	for (int c = 0; c < JOBQ_CELLS; c++)
	{
		Cell	   *cell = &e->slot->cells[c];
		TypeState  *t;

		if ((done[c / 64] & (UINT64CONST(1) << (c % 64))) == 0)
			continue;
		if (pg_atomic_read_u32(&cell->state) != CELL_DONE)
			continue;			/* a former dispatcher has read the report */
		t = executor_vacate(e, c);
		apply_report(e, cell, t, now);
		if (cell->cancel == CANCEL_USER)
			cancel_after_all(&cell->ref.id, cell->has_reason ? cell->reason : NULL);
		pg_atomic_write_u32(&cell->state, CELL_FREE);
		type_open(t);
	}
	return true;
}

static void
drop_executor(Executor *e)
{
	slot_release(e->slot);
	executor_forget(e);
}

/*
 * True if the process was registered and ended before it attached: the role
 * can't connect, or a similar error.
 */
static bool
never_attached(Executor *e)
{
	pid_t		pid;

	return !e->attached && e->handle != NULL && !e->slot->dead && e->slot->proc == NULL &&
		GetBackgroundWorkerPid(e->handle, &pid) == BGWH_STOPPED && e->slot->proc == NULL &&
		!e->slot->dead;
}

bool
executor_reports_take(MonoTime now)
{
	bool		changed = false;

	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];
		bool		dead;

		if (e->slot == NULL)
			continue;
		/*
		 * its worker did not come in time: the slot has been taken, or is
		 * given up here
		 */
		if (e->slot->generation != e->generation ||
			(!e->attached && e->handle == NULL && slot_give_up(e->slot, now)))
		{
			executor_forget(e);
			changed = true;
			continue;
		}
		dead = e->slot->dead;
		pg_read_barrier();
		if (collect_cells(e, now))
		{
			changed = true;
			wait_queue_open(&e->role->wait_queue);
		}
		if (!e->attached && e->slot->proc != NULL)
		{
			e->attached = changed = true;
			e->role->failures = 0;
			wait_queue_open(&e->role->wait_queue);
		}
		if (dead)
		{
			changed = true;
			wait_queue_open(&e->role->wait_queue);
			executor_take_back(e, true);	/* handed over while it was leaving */
			drop_executor(e);
		}
		else if (never_attached(e))
		{
			RoleState  *role = e->role;
			char	   *name = GetUserNameFromId(role->roleid, true);

			strlcpy(role->name, name ? name : "", sizeof(role->name));
			role->failures = Min(role->failures + 1, 6);
			role->next_start = now + Min(START_RETRY_US << role->failures, MAX_RETRY_US);
			drop_executor(e);
		}
	}
	return changed;
}
