/*
 * assign_job.c
 *	  Assigns a job to an executor: which one can take it, and which counts
 *	  rise.
 *
 * Short jobs are handed ahead, up to a slot's cells.  A job of unknown length
 * goes only to a worker that has no other job.  Jobs of pull types go to
 * claims (claimers.c); the exec worker settles those that are lost.
 */
#include "jobq.h"

#include "port/pg_bitutils.h"

#include "limits/job_bars.h"
#include "limits/type_rates.h"
#include "workers/assign_job.h"
#include "workers/claimers.h"
#include "workers/run_starts.h"
#include "workers/executor_pool.h"
#include "workers/worker_pool.h"

#define EXEC_CELLS			60		/* of JOBQ_CELLS; the rest for cancels */
#define PACK_US				1000	/* of one turn's short jobs go to one worker and share its commit */
#define SHORT_CELLS			252		/* a batch, and the next one while it commits */
#define AHEAD_US			3000	/* behind so much work, a job waits for another worker that may come */

static bool
takes_more(Executor *e, const RoleState *role, bool is_short, bool settles)
{
	if (e->slot == NULL || !e->attached || !slot_takes_jobs(e->slot) ||
		e->role != role || e->ncells >= JOBQ_CELLS)
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

RoleState *
settling_role(TypeState *t, const JobRef *ref)
{
	return t->pull || ref_leased(ref) ? role_state(EXEC_ROLE) : t->role;
}

/* NULL: its type could not be loaded; a lease of that type ends all the same. */
static RoleState *
role_of(TypeState *t, const JobRef *ref, bool settles)
{
	return settles ? settling_role(t, ref) : t->role;
}

static bool
is_lighter(uint32 bars, uint32 than)
{
	return pg_popcount32(bars) < pg_popcount32(than);
}

/*
 * Returns the executor for the job; NULL: none, and *bars has the reasons of
 * the executor with the fewest.  No limit counts a job that is only to be
 * settled: it starts nothing.
 */
static Executor *
best_executor(TypeState *t, const JobRef *ref, bool is_short, bool settles, uint32 *bars)
{
	Executor   *best = NULL;
	RoleState  *role = role_of(t, ref, settles);

	*bars = 0;
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];
		uint32		own;

		if (!takes_more(e, role, is_short, settles))
			continue;
		if (!settles && (own = job_bars(t, ref, i, e->exec, &e->weight)) != 0)
		{
			if (*bars == 0 || is_lighter(own, *bars))
				*bars = own;
			continue;
		}
		if (is_short && e->wake && e->ahead_us < PACK_US)
			return e;
		if (best == NULL || e->ahead_us < best->ahead_us || (e->ahead_us == best->ahead_us && e->ncells < best->ncells))
			best = e;
	}
	if (best == NULL && *bars == 0)
		*bars = BAR_CAPACITY | (settles ? 0 : job_bars(t, ref, -1, true, NULL));
	return best;
}

/*
 * True if the job would run sooner in one more worker, which may be started.
 * While none may be started, the executors hold a whole batch and the next
 * one.
 */
static bool
waits_for_starting_worker(const Executor *e, TypeState *t, const JobRef *ref)
{
	return e->ahead_us >= AHEAD_US && job_bars(t, ref, -1, true, NULL) == 0 && worker_may_come(t->role);
}

/*
 * Returns the executor that takes the job now; NULL: none, and *bars has the
 * reasons.
 */
static Executor *
choose_executor(TypeState *t, const JobRef *ref, bool is_short, uint32 *bars)
{
	bool		settles = ref_settles(ref);
	Executor   *e = best_executor(t, ref, is_short, settles, bars);

	if (e == NULL || !is_short || settles || !waits_for_starting_worker(e, t, ref))
		return e;
	*bars = BAR_CAPACITY;
	return NULL;
}

/* True if the job may share a worker with others. */
static bool
is_packed(TypeState *t, const JobRef *ref)
{
	return type_is_short(t) && (ref->flags & (REF_ALONE | REF_AGAIN)) == 0;
}

/* Returns where the job has to wait; a full limit comes before a lack of executors. */
static HandOut
refusal(TypeState *t, uint32 bars)
{
	if (bars & BAR_LIMITS)
	{
		t->closed = first_full_limit(t, bars);
		return LIMIT_FULL;
	}
	if (bars & BAR_TENANT)
		return TENANT_FULL;
	return bars & BAR_CAPACITY ? NO_CAPACITY : TOO_HEAVY;
}

uint32
assign_bars(TypeState *t, const JobRef *ref)
{
	uint32		bars;

	if (role_of(t, ref, ref_settles(ref)) == NULL)
		return BAR_CAPACITY;
	if (t->workflow)
		return run_starts_bars(t);
	if (t->pull && !ref_settles(ref))
		return claimers_bars(t, ref);
	return choose_executor(t, ref, is_packed(t, ref), &bars) != NULL ? 0 : bars;
}

HandOut
assign_job(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now)
{
	bool		settles = ref_settles(ref);
	bool		is_short = is_packed(t, ref);
	uint32		bars;
	Executor   *e;
	int			cell;

	if (role_of(t, ref, settles) == NULL)
		return NO_CAPACITY;
	if (t->workflow)
		return run_starts_assign(t, ref, now);
	if (t->pull && !settles)
		return claimers_assign(t, ref);
	e = choose_executor(t, ref, is_short, &bars);
	if (e == NULL)
		return refusal(t, bars);
	cell = free_cell(e);
	if (!settles && t->breaker.state != BREAKER_CLOSED)
		type_breaker_start(t, &ref->id);	/* before the executor can ask */
	if (!slot_assign(e->slot, cell, ref, cancel_reason))
	{
		type_breaker_back(t, &ref->id, !settles);
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
