/*
 * executor_pool.c
 *	  The dispatcher's executors: handing jobs over, and what counts of them.
 *
 * What an executor holds stands in its slot (shared memory), so a new dispatcher finds it again.  Short
 * jobs are handed out ahead of need, up to a slot's cells; a job of unknown length only to a worker
 * that has nothing else, and what waits behind a run that turned out long is taken back.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/timestamp.h"

#include "dispatch/inbox.h"
#include "limits/concurrency_keys.h"
#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "limits/weight.h"
#include "workers/executor_pool.h"

#define EXEC_CELLS			60		/* of JOBQ_CELLS; the rest for cancels */
#define PACK_US				1000	/* short jobs of one turn go to one worker, and share its commit, up to so much work */
#define SHORT_CELLS			252		/* a batch, and the next one while it commits */
#define AHEAD_US			3000	/* with so much work before it, a job waits for another worker that may come */

Executor	executors[JOBQ_MAX_SLOTS];
int			executors_end = 0;
static JobqDb *db;
static int	running = 0;		/* SQL workers with a job, plus tools */

void
executors_init(MemoryContext cxt, JobqDb *mine)
{
	db = mine;
	workers_init(cxt, mine);
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
executors_alert(int32 type_id, int linger_us)
{
	RoleState  *role = running == 0 ? role_of_type(type_id) : NULL;

	for (int i = 0; role != NULL && i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		if (e->slot && e->attached && e->role == role && !e->exec && slot_takes_jobs(e->slot))
		{
			slot_alert(e->slot, linger_us);
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

/* Does its start still have to be noted? */
static bool
will_start(Executor *e, int cell)
{
	Cell	   *c = &e->slot->cells[cell];

	return !c->noted && !ref_settles(&c->ref);
}

/* Tells the rates of its type when it has started; false: it has not, or it was known. */
static bool
note_start(Executor *e, int cell, TypeState *t)
{
	Cell	   *c = &e->slot->cells[cell];

	if (c->started_at == 0 || !will_start(e, cell))
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

/* False for a job that is only to be settled: it starts nothing. */
static bool
counts_for_tenant(Executor *e, int cell)
{
	const JobRef *ref = &e->slot->cells[cell].ref;

	return ref->tenant_limit != 0 && !ref_settles(ref);
}

static void
occupy(Executor *e, int cell, TypeState *t, bool slow)
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

/* It counts no more: another may run. */
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
	return pg_atomic_read_u32(&c->state) == CELL_DONE && c->verdict == VERDICT_CHARGE;
}

TypeState *
executor_vacate(Executor *e, int cell)
{
	TypeState  *t = type_state(e->types[cell]);

	if (t->rated && !note_start(e, cell, t) && will_start(e, cell))
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
			if (t->rated && will_start(e, c))
				type_retake(t);
			if (e->ended[c])
				continue;
			count_up(e, t);
			if (weight_budget > 0)
				weight_occupy(&e->weight, c, t->weight);
		}
	}
}

/* A job whose row is gone has ended, which will be read from its cell. */
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
			else if (state == CELL_DONE)	/* it may have been taken out of `done` */
				slot_mark_done(slot, c);
			k = known_insert(known_jobs, slot->cells[c].ref.id, &found);
			k->where = IN_FLIGHT;
			k->again = false;
			k->rev = slot->cells[c].ref.rev;
			slot->cells[c].ref.tenant_limit = 0;	/* of our predecessor's numbers; tenant_limits_refresh counts */
			occupy(e, c, type_state(slot->cells[c].ref.type_id), true);
		}
	}
}

/* ---------- handing out ---------- */

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

/* takes_more has said that there is one. */
static int
free_cell(Executor *e)
{
	return (int) ((bool *) memchr(e->used, false, JOBQ_CELLS) - e->used);
}

/* The first limit of the type that would not let one more run; NULL: all would. */
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

/* *why: what keeps those from it who could take it.  What is only to be settled starts nothing: no limit counts. */
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
 * Would the job run sooner in one more worker, which may be started?  While none may, its executors hold a whole
 * batch and the next one.
 */
static bool
waits_for_newcomer(const Executor *e, TypeState *t, const JobRef *ref)
{
	return e->ahead_us >= AHEAD_US && limit_without_room(t, -1, true) == NULL &&
		(ref->tenant_limit == 0 || tenant_limit_has_room(ref, -1, true)) &&
		(weight_budget == 0 || weight_fits(NULL, t->weight)) && worker_may_come(t->role);
}

HandOut
hand_out(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now)
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
	occupy(e, cell, t, !is_short && !settles);
	if (!settles)
		type_probe(t, now);
	if (t->rated && will_start(e, cell))
		type_take(t);
	e->wake = true;
	pg_atomic_fetch_add_u64(&db->counters.handed_out, 1);
	return HANDED_OUT;
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

/* ---------- the end of what they had ---------- */

void
executor_note_end(Executor *e, int cell)
{
	TypeState  *t = type_state(e->types[cell]);

	if (!e->used[cell] || e->ended[cell] || t->breaker.limit > 0)
		return;					/* with a breaker, the next one waits for how this one ended */
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

/* false: nobody runs it (any more); an assigned one that nobody has begun is taken back. */
bool
executors_cancel(const pg_uuid_t *id, CancelKind kind, const char *reason)
{
	int			cell;
	Slot	   *slot = slot_find_job(db->dboid, id, &cell);
	Executor   *e;

	if (slot == NULL)
		return false;
	if (slot_cancel(slot, cell, id, kind, reason))
		return true;
	e = executor_of(slot);
	if (e->slot && e->used[cell] && slot_take_back(slot, cell))
	{
		JobRef		ref = slot->cells[cell].ref;

		type_open(executor_vacate(e, cell));
		door_open(&e->role->door);
		return_job(&ref);
		return false;
	}
	return slot_cancel(slot, cell, id, kind, reason);
}
