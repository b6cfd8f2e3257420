/*
 * executor_pool.c
 *	  The dispatcher's executors, and the counts of their jobs.
 *
 * The jobs of an executor are in its slot (shared memory), so a new dispatcher
 * finds them there.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/timestamp.h"

#include "limits/concurrency_keys.h"
#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "limits/weight.h"
#include "workers/executor_pool.h"

Executor	executors[JOBQ_MAX_SLOTS];
int			executors_end = 0;
static JobqDb *db;
static int	running = 0;		/* SQL workers with a job, plus tools */

void
executors_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	memset(executors, 0, sizeof(executors));
	executors_end = 0;
	running = 0;
}

Executor *
executor_of(const Slot *slot)
{
	executors_end = Max(executors_end, slot_number(slot) + 1);
	return &executors[slot_number(slot)];
}

int
executors_running(void)
{
	return running;
}

bool
executors_any(void)
{
	for (int i = 0; i < executors_end; i++)
	{
		if (executors[i].slot)
			return true;
	}
	return false;
}

void
executors_wake_early(int32 type_id, int linger_us)
{
	RoleState  *role = running == 0 ? role_of_type(type_id) : NULL;

	for (int i = 0; role != NULL && i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		if (e->slot && e->attached && e->role == role && !e->exec && slot_takes_jobs(e->slot))
		{
			slot_wake_early(e->slot, linger_us);
			return;
		}
	}
}

/* ---------- accounting ---------- */

static void
count_up(Executor *e, TypeState *t)
{
	limit_up(&t->own, executor_number(e), e->exec);
	for (int i = 0; i < t->nlimits; i++)
		limit_up(t->limits[i], executor_number(e), e->exec);
}

static void
count_down(Executor *e, TypeState *t)
{
	limit_down(&t->own, executor_number(e), e->exec);
	for (int i = 0; i < t->nlimits; i++)
		limit_down(t->limits[i], executor_number(e), e->exec);
}

bool
executor_will_start(Executor *e, int cell)
{
	Cell	   *c = &e->slot->cells[cell];

	return !c->noted && !ref_settles(&c->ref);
}

/*
 * Notes the start for the rates of the job's type; false: it has not started,
 * or was noted before.
 */
static bool
note_start(Executor *e, int cell, TypeState *t)
{
	Cell	   *c = &e->slot->cells[cell];

	if (c->started_at == 0 || !executor_will_start(e, cell))
		return false;
	c->noted = true;
	type_note_start(t, c->started_at);
	return true;
}

void
executors_note_starts(void)
{
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		for (int c = 0; e->ncells > 0 && c < JOBQ_CELLS; c++)
		{
			TypeState  *t = e->used[c] ? type_state(e->types[c]) : NULL;

			if (t != NULL && t->rated)
				(void) note_start(e, c, t);
		}
	}
}

/*
 * True if limits of tenants count the job; false for a job that is only to be
 * settled: it starts nothing.
 */
static bool
counts_for_tenant(Executor *e, int cell)
{
	const JobRef *ref = &e->slot->cells[cell].ref;

	return ref->tenant_limit != 0 && !ref_settles(ref);
}

void
executor_occupy(Executor *e, int cell, TypeState *t, bool slow)
{
	if (e->exec || e->ncells == 0)
		running++;
	count_up(e, t);
	if (counts_for_tenant(e, cell))
		tenant_limit_up(&e->slot->cells[cell].ref, executor_number(e), e->exec);
	if (weight_budget > 0)
		weight_occupy(&e->weight, cell, t->weight);
	if (e->slot->cells[cell].ref.key != 0)
		key_take(&e->slot->cells[cell].ref, t);
	e->used[cell] = true;
	e->ended[cell] = false;
	e->types[cell] = t->id;
	e->slow[cell] = slow;
	e->nslow += slow;
	e->cost_us[cell] = (float) t->avg_us;
	e->ahead_us += e->cost_us[cell];
	e->ncells++;
}

/* Stops counting the job: another may run. */
static void
stop_counting(Executor *e, int cell, TypeState *t)
{
	if (e->exec || e->ncells == 0)
		running--;
	count_down(e, t);
	if (counts_for_tenant(e, cell))
		tenant_limit_down(&e->slot->cells[cell].ref, executor_number(e), e->exec);
	if (weight_budget > 0)
		weight_vacate(&e->weight, cell);
}

/* True if the attempt is over and will be settled by another executor. */
static bool
is_to_be_charged(Cell *c)
{
	return pg_atomic_read_u32(&c->state) == CELL_DONE && c->report == REPORT_CHARGE;
}

TypeState *
executor_vacate(Executor *e, int cell)
{
	TypeState  *t = type_state(e->types[cell]);

	if (t->rated && !note_start(e, cell, t) && executor_will_start(e, cell))
		type_refund(t);
	e->used[cell] = false;
	e->ncells--;
	e->ahead_us = e->ncells == 0 ? 0 : e->ahead_us - e->cost_us[cell];
	e->nslow -= e->slow[cell];
	if (!e->ended[cell])
		stop_counting(e, cell, t);
	if (e->slot->cells[cell].ref.key != 0)
		key_give_back(&e->slot->cells[cell].ref, t);
	if (t->breaker.limit > 0)
		type_breaker_back(t, &e->slot->cells[cell].ref.id, !is_to_be_charged(&e->slot->cells[cell]));
	return t;
}

int
executors_per_key(uint64 key)
{
	int			smallest = PG_INT32_MAX;

	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		for (int c = 0; e->ncells > 0 && c < JOBQ_CELLS; c++)
		{
			if (e->used[c] && e->slot->cells[c].ref.key == key)
				smallest = Min(smallest, type_state(e->types[c])->per_key);
		}
	}
	return smallest;
}

bool
executors_key_holder(uint64 key, pg_uuid_t *id)
{
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		for (int c = 0; e->ncells > 0 && c < JOBQ_CELLS; c++)
		{
			if (!e->used[c] || e->slot->cells[c].ref.key != key)
				continue;
			*id = e->slot->cells[c].ref.id;
			return true;
		}
	}
	return false;
}

void
executors_recount(void)
{
	weight_restart();
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		weight_clear(&e->weight, e->exec);
		for (int c = 0; e->slot != NULL && c < JOBQ_CELLS; c++)
		{
			TypeState  *t;

			if (!e->used[c])
				continue;
			t = type_state(e->types[c]);
			if (t->rated && executor_will_start(e, c))
				type_retake(t);
			if (e->ended[c])
				continue;
			count_up(e, t);
			if (weight_budget > 0)
				weight_occupy(&e->weight, c, t->weight);
		}
	}
}

/*
 * Counts again.  A job without a row has ended; the report in its cell has not
 * been read yet.
 */
void
executors_recount_tenants(QueueScan *scan)
{
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		for (int c = 0; e->slot != NULL && e->ncells > 0 && c < JOBQ_CELLS; c++)
		{
			JobRef	   *ref = &e->slot->cells[c].ref;
			JobRef		row;
			JobStatus	status;

			if (!e->used[c])
				continue;
			ref->tenant_limit = scan_find(scan, &ref->id, &row, &status) ? row.tenant_limit : 0;
			if (!e->ended[c] && counts_for_tenant(e, c))
				tenant_limit_up(ref, i, e->exec);
		}
	}
}

void
executors_recover(void)
{
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];
		Executor   *e;

		if (!slot->in_use || slot->dboid != db->dboid)
			continue;
		e = executor_of(slot);
		e->slot = slot;
		e->generation = slot->generation;
		e->exec = slot->kind == SLOT_EXEC;
		weight_clear(&e->weight, e->exec);
		e->role = role_state(e->exec ? EXEC_ROLE : slot->roleid);
		e->role->nworkers++;
		e->attached = slot->proc != NULL;
		for (int c = 0; c < JOBQ_CELLS; c++)
		{
			uint32		state = pg_atomic_read_u32(&slot->cells[c].state);
			bool		found;
			Known	   *k;

			if (state == CELL_FREE)
				continue;
			if (state == CELL_ASSIGNED)
				e->wake = true;
			else if (state == CELL_DONE)	/* `done` may have been read and reset before */
				slot_mark_done(slot, c);
			k = known_insert(known_jobs, slot->cells[c].ref.id, &found);
			k->where = IN_FLIGHT;
			k->again = false;
			k->rev = slot->cells[c].ref.rev;
			slot->cells[c].ref.tenant_limit = 0;	/* a former dispatcher's; tenant_limits_refresh counts */
			executor_occupy(e, c, type_state(slot->cells[c].ref.type_id), true);
		}
	}
}

void
executors_wake(void)
{
	for (int i = 0; i < executors_end; i++)
	{
		if (executors[i].wake)
			slot_wake(executors[i].slot);
		executors[i].wake = false;
	}
}

/* ---------- ends ---------- */

void
executor_note_end(Executor *e, int cell)
{
	TypeState  *t = type_state(e->types[cell]);

	if (!e->used[cell] || e->ended[cell] || t->breaker.limit > 0)
		return;					/* with a breaker, the next job waits for the outcome of this one */
	e->ended[cell] = true;
	stop_counting(e, cell, t);
	type_open(t);
}

void
executor_forget(Executor *e)
{
	e->role->nworkers--;
	if (e->handle)
		pfree(e->handle);
	memset(e, 0, sizeof(Executor));
}

