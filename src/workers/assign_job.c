/*
 * assign_job.c
 *	  Assigns a job to an executor: which one can take it, and which counts
 *	  rise.
 *
 * Short jobs are handed out ahead of need, up to a slot's cells.  A job of
 * unknown length goes only to a worker that has no other job.
 */
#include "jobq.h"

#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "workers/assign_job.h"
#include "workers/executor_pool.h"
#include "workers/worker_pool.h"

#define EXEC_CELLS			60		/* of JOBQ_CELLS; the rest for cancels */
#define PACK_US				1000	/* of one turn's short jobs go to one worker and share its commit */
#define SHORT_CELLS			252		/* a batch, and the next one while it commits */
#define AHEAD_US			3000	/* behind so much work, a job waits for another worker that may come */

static bool
takes_more(Executor *e, TypeState *t, bool is_short, bool settles)
{
	if (e->slot == NULL || !e->attached || !slot_takes_jobs(e->slot) ||
		e->role != t->role || e->ncells >= JOBQ_CELLS)
		return false;
	if (settles)
		return e->exec || e->nslow == 0;	/* not behind a run of unknown length */
	if (e->exec)
		return e->ncells < EXEC_CELLS;
	if (is_short)
		return e->nslow == 0 && e->ncells < SHORT_CELLS;
	return e->ncells == 0;
}

/* Returns a free cell; takes_more() has found that there is one. */
static int
free_cell(Executor *e)
{
	return (int) ((bool *) memchr(e->used, false, JOBQ_CELLS) - e->used);
}

/*
 * Returns the first limit of the type without room for one more job; NULL: all
 * have room.
 */
static JobLimit *
limit_without_room(TypeState *t, int executor, bool exec)
{
	if (!limit_has_room(&t->own, executor, exec))
		return &t->own;
	for (int i = 0; i < t->nlimits; i++)
	{
		if (!limit_has_room(t->limits[i], executor, exec))
			return t->limits[i];
	}
	return NULL;
}

/*
 * Returns the executor for the job.  *why: the reason why executors with room
 * can't take it.  No limit counts a job that is only to be settled: it starts
 * nothing.
 */
static Executor *
best_executor(TypeState *t, const JobRef *ref, bool is_short, bool settles, HandOut *why)
{
	Executor   *best = NULL;

	*why = NO_CAPACITY;
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		if (!takes_more(e, t, is_short, settles))
			continue;
		if (!settles && (t->closed = limit_without_room(t, i, e->exec)) != NULL)
		{
			*why = LIMIT_FULL;
			continue;
		}
		if (!settles && ref->tenant_limit != 0 && !tenant_limit_has_room(ref, i, e->exec))
		{
			*why = TENANT_FULL;
			continue;
		}
		if (!settles && weight_budget > 0 && !weight_fits(&e->weight, t->weight))
		{
			*why = TOO_HEAVY;
			continue;
		}
		if (is_short && e->wake && e->ahead_us < PACK_US)
			return e;
		if (best == NULL || e->ahead_us < best->ahead_us || (e->ahead_us == best->ahead_us && e->ncells < best->ncells))
			best = e;
	}
	return best;
}

/*
 * True if the job would run sooner in one more worker, which may be started.
 * While none may be started, the executors hold a whole batch and the next
 * one.
 */
static bool
waits_for_newcomer(const Executor *e, TypeState *t, const JobRef *ref)
{
	return e->ahead_us >= AHEAD_US && limit_without_room(t, -1, true) == NULL &&
		(ref->tenant_limit == 0 || tenant_limit_has_room(ref, -1, true)) &&
		(weight_budget == 0 || weight_fits(NULL, t->weight)) && worker_may_come(t->role);
}

HandOut
assign_job(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now)
{
	bool		settles = ref_settles(ref);
	bool		is_short = type_is_short(t) && (ref->flags & (REF_ALONE | REF_AGAIN)) == 0;
	HandOut		why;
	Executor   *e;
	int			cell;

	if (t->role == NULL)
		return NO_CAPACITY;
	e = best_executor(t, ref, is_short, settles, &why);
	if (e == NULL && !settles && why == NO_CAPACITY && (t->closed = limit_without_room(t, -1, true)) != NULL)
		why = LIMIT_FULL;		/* no use in waiting for a worker */
	if (e == NULL && !settles && why == NO_CAPACITY && !tenant_limit_has_room(ref, -1, true))
		why = TENANT_FULL;
	if (e == NULL)
		return why;
	if (is_short && !settles && waits_for_newcomer(e, t, ref))
		return NO_CAPACITY;
	cell = free_cell(e);
	if (!settles && t->breaker.state != BREAKER_CLOSED)
		type_breaker_start(t, &ref->id);	/* before the executor can ask */
	if (!slot_assign(e->slot, cell, ref, cancel_reason))
	{
		type_breaker_back(t, &ref->id, true);
		return NO_CAPACITY;
	}
	executor_occupy(e, cell, t, !is_short && !settles);
	if (!settles)
		type_probe(t, now);
	if (t->rated && executor_will_start(e, cell))
		type_take(t);
	e->wake = true;
	pg_atomic_fetch_add_u64(&my_db()->counters.handed_out, 1);
	return HANDED_OUT;
}
