/*
 * worker_pool.c
 *	  Starts executors, and makes room for the workers of one role among those
 *	  of others.
 *
 * A worker is started when lanes wait for one of its role and none of those
 * can take more.  Without a free worker slot nothing fails: jobs wait,
 * health() reports it, and a WARNING is logged once a minute.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "shared/process_start.h"
#include "shared/worker_need.h"
#include "workers/executor_pool.h"
#include "workers/worker_pool.h"

#define OVERDUE_US			USECS_PER_SEC	/* its own timer should have cancelled the handler */
#define ROLE_HYSTERESIS_US	INT64CONST(250000)

static JobqDb *db;
static MemoryContext context;
static MonoTime next_start = 0;	/* set when there was no free worker process */
static MonoTime last_warning = 0;

void
workers_init(MemoryContext cxt, JobqDb *mine)
{
	context = cxt;
	db = mine;
}

static bool
start_executor(RoleState *role, MonoTime now)
{
	bool		exec = role->roleid == EXEC_ROLE;
	Slot	   *slot = slot_claim(db->dboid, exec ? SLOT_EXEC : SLOT_SQL, role->roleid);
	BackgroundWorker worker;
	WorkerStart start;
	MemoryContext old;
	Executor   *e;
	bool		ok;

	if (slot == NULL)
		return false;
	e = executor_of(slot);
	if (e->slot)
		executor_forget(e);		/* it has not come in time; slot_claim has taken its slot */
	start.dboid = db->dboid;
	start.roleid = role->roleid;
	start.generation = slot->generation;
	if (exec)
		describe_worker(&worker, "jobq exec worker", "jobq_exec_worker_main", InvalidOid);
	else
		describe_worker(&worker, "jobq sql worker", "jobq_sql_worker_main", InvalidOid);
	worker.bgw_main_arg = Int32GetDatum(slot_number(slot));
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &start, sizeof(start));

	memset(e, 0, sizeof(Executor));
	old = MemoryContextSwitchTo(context);
	ok = RegisterDynamicBackgroundWorker(&worker, &e->handle);
	MemoryContextSwitchTo(old);
	if (!ok)
	{
		slot_release(slot);
		return false;
	}
	e->slot = slot;
	e->generation = slot->generation;
	e->role = role;
	e->exec = exec;
	weight_clear(&e->weight, exec);
	role->nworkers++;
	note_worker(db, WORKER_EXECUTOR, true);
	return true;
}

static void
warn_no_slots(MonoTime now)
{
	note_worker(db, WORKER_EXECUTOR, false);
	next_start = now + START_RETRY_US;
	if (last_warning != 0 && now - last_warning < 60 * USECS_PER_SEC)
		return;
	last_warning = now;
	ereport(WARNING,
			(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			 errmsg("jobq cannot start a worker: out of background worker slots"),
			 errhint("%s", worker_hint(db->dboid))));
}

static int
sql_workers(void)
{
	int			n = 0;

	for (int i = 0; i < executors_end; i++)
		n += executors[i].slot != NULL && !executors[i].exec;
	return n;
}

static bool
has_starting_worker(RoleState *role)
{
	for (int i = 0; i < executors_end; i++)
	{
		if (executors[i].slot && executors[i].role == role && !executors[i].attached)
			return true;
	}
	return false;
}

bool
worker_may_come(RoleState *role)
{
	MonoTime	now;

	if (has_starting_worker(role))
		return true;
	now = mono_now();
	return sql_workers() < sql_workers_allowed(db) && role->next_start <= now && next_start <= now;
}

/*
 * Dismisses an idle worker of another role, since all workers are taken; after
 * a while a busy one, too.
 */
static void
make_room(RoleState *role, MonoTime now)
{
	Executor   *victim = NULL;
	bool		one_leaves = false;

	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];

		if (e->slot == NULL || e->exec || e->role == role || !e->attached)
			continue;
		if (!slot_takes_jobs(e->slot))
		{
			if (e->ncells == 0)
				return;			/* its place is free in a moment */
			one_leaves = true;
			continue;
		}
		if (e->ncells == 0 ||
			(role->nworkers == 0 && now - role->waiting_since > ROLE_HYSTERESIS_US &&
			 (victim == NULL || e->role->nworkers > victim->role->nworkers)))
			victim = e;
		if (victim && victim->ncells == 0)
			break;
	}
	if (victim && (victim->ncells == 0 || !one_leaves))
		slot_dismiss(victim->slot);
}

/*
 * Dismisses SQL workers above the allowed number, which another database has
 * lowered: idle ones, else busy ones, which end with their jobs.
 */
static void
dismiss_surplus(int allowed)
{
	int			surplus = -allowed;

	for (int i = 0; i < executors_end; i++)
		surplus += executors[i].slot != NULL && !executors[i].exec && slot_takes_jobs(executors[i].slot);
	for (int busy = 0; busy <= 1; busy++)
	{
		for (int i = 0; i < executors_end && surplus > 0; i++)
		{
			Executor   *e = &executors[i];

			if (e->slot == NULL || e->exec || !e->attached || !slot_takes_jobs(e->slot) || (e->ncells > 0) != busy)
				continue;
			slot_dismiss(e->slot);
			surplus--;
		}
	}
}

/*
 * True if there is an exec worker.  A dismissed one, which ends with its
 * tools, does not count: there are two while these run.
 */
static bool
has_exec_worker(void)
{
	for (int i = 0; i < executors_end; i++)
	{
		if (executors[i].slot && executors[i].exec && !executors[i].slot->dismissed)
			return true;
	}
	return false;
}

/*
 * Returns when the dispatcher has to end the executor's handler; DT_NOEND: no
 * deadline.
 */
static MonoTime
overdue_at(Executor *e)
{
	int			current = e->slot == NULL || e->exec || e->ncells == 0 ? -1 : e->slot->current;
	MonoTime	deadline;

	if (current < 0 || e->slot->phase != PHASE_HANDLER)
		return DT_NOEND;
	deadline = e->slot->cells[current].deadline;
	return deadline == 0 ? DT_NOEND : deadline + OVERDUE_US;
}

static void
end_overdue_runs(MonoTime now)
{
	for (int i = 0; i < executors_end; i++)
	{
		Executor   *e = &executors[i];
		int			current = e->slot ? e->slot->current : -1;

		if (current >= 0 && overdue_at(e) <= now)
			slot_time_out(e->slot, current);
	}
}

void
executors_balance(MonoTime now)
{
	dlist_iter	it;
	bool		one_waits = false;
	int			allowed = sql_workers_allowed(db);

	end_overdue_runs(now);
	dismiss_surplus(allowed);
	dlist_foreach(it, &all_roles)
	{
		RoleState  *role = dlist_container(RoleState, all, it.cur);
		bool		exec = role->roleid == EXEC_ROLE;

		if (role->wait_queue.shut && !wait_queue_has_groups(&role->wait_queue))
			wait_queue_open(&role->wait_queue); /* the refused groups have gone */
		if (!role->wait_queue.shut && role->cancels == 0)
		{
			role->waiting_since = 0;
			continue;
		}
		one_waits = true;
		if (role->waiting_since == 0)
			role->waiting_since = now;
		if (has_starting_worker(role) || role->next_start > now || next_start > now ||
			(exec && has_exec_worker()))
			continue;
		if (!exec && sql_workers() >= allowed)
			make_room(role, now);
		else if (!start_executor(role, now))
			warn_no_slots(now);
	}
	if (!one_waits)
		note_worker(db, WORKER_EXECUTOR, true);
}

MonoTime
executors_next_timer(MonoTime now)
{
	MonoTime	next = DT_NOEND;
	dlist_iter	it;

	for (int i = 0; i < executors_end; i++)
		next = Min(next, overdue_at(&executors[i]));
	dlist_foreach(it, &all_roles)
	{
		RoleState  *role = dlist_container(RoleState, all, it.cur);

		if (role->waiting_since == 0)
			continue;
		if (has_starting_worker(role))
			continue;			/* its attachment or end wakes the dispatcher */
		if (role->next_start > now || next_start > now)
			next = Min(next, Max(role->next_start, next_start));
		else if (role->nworkers == 0)
			next = Min(next, now + ROLE_HYSTERESIS_US);
	}
	return next;
}
