/*
 * admission.c
 *	  Which jobs may start now: types, their limits and pauses, and the groups
 *	  that wait for a change of these.
 *
 * All of it is rebuilt from the registry and the slots when a dispatcher
 * starts, so nothing can leak.
 */
#include "jobq.h"

#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "dispatch/admission.h"
#include "lanes/ready_queue.h"
#include "limits/concurrency_keys.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "pressure/pressure_rules.h"
#include "tables/bad_rows.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"
#include "workers/take_back.h"

void
admission_init(MemoryContext context, JobqDb *db)
{
	limits_init(context);
	rate_init(db);
	types_init(context);
	roles_init(context);
}

/* ---------- changes ---------- */

/* Empties all wait queues. */
static void
init_wait_queues(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	dlist_iter	it;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		wait_queue_init(&t->own.wait_queue);
		wait_queue_init(&t->pullers.wait_queue);
	}
	limits_init_wait_queues();
	dlist_foreach(it, &all_roles)
		wait_queue_init(&dlist_container(RoleState, all, it.cur)->wait_queue);
}

/* Retries all groups that wait; they may join other wait queues. */
static void
try_all(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	wait_queues_release();
	init_wait_queues();
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		groups_unpark(&t->parked);
		batch_gate_open(&t->batch);
	}
	weight_unpark();
}

void
admission_forget_lanes(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	init_wait_queues();
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		dlist_init(&t->parked);
		batch_gate_forget_groups(&t->batch);
	}
	weight_forget_lanes();
}

/*
 * Counts and weighs all running jobs again, and retries all groups that wait.
 */
static void
count_anew(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	dlist_iter	it;

	limits_restart();
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		type_load(t);
		limit_restart(&t->own);
	}
	if (types_lack_windows())
		types_retry_windows();
	executors_recount();
	leases_recount();
	keys_reload();
	dlist_foreach(it, &all_roles)
	{
		RoleState  *r = dlist_container(RoleState, all, it.cur);

		r->failures = 0;
		r->next_start = 0;
	}
	if (types_order_changed)
		lanes_rerank(now);
	types_order_changed = false;
	try_all();
}

void
admission_reload(TimestampTz now)
{
	limits_load();
	count_anew(now);
}

/*
 * Applies changed signals.  Jobs that were handed ahead and have not begun
 * come back, and are handed out in the new order.
 */
void
admission_press(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	bool		budget_changed = pressure_max_weight() != weight_budget;
	bool		changed = budget_changed;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
		changed |= type_load_pressure(t);
	if (!changed)
		return;
	executors_take_back(false);
	if (budget_changed)
	{
		count_anew(now);		/* not admission_reload: the lock of jobq.limits is not held */
		return;
	}
	lanes_rerank(now);
	types_order_changed = false;
	try_all();
}

void
admission_clock_was_set(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	limits_clock_was_set(now);
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
		rate_clock_was_set(&t->own.rate, now);
	try_all();
}

/* ---------- timers ---------- */

MonoTime
admission_next_timer(MonoTime now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	TimestampTz due = limits_next_timer();
	MonoTime	next = DT_NOEND;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		due = Min(due, limit_next_timer(&t->own));
		if (dlist_is_empty(&t->parked))
			continue;
		if (t->paused)
		{
			due = Min(due, t->paused_until);
			next = Min(next, t->pause_ends);
		}
		if (t->held_until != 0)
			next = Min(next, t->held_until);
		if (t->breaker.look_at != 0)
			next = Min(next, t->breaker.look_at);
	}
	return Min(next, mono_at(due));
}

void
admission_timers(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	MonoTime	mono = mono_now();

	limits_timers(now);
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		limit_timer(&t->own, now);
		if (t->paused && (t->paused_until <= now || t->pause_ends <= mono))
			t->paused = false;
		if (t->held_until != 0 && t->held_until <= mono)
		{
			type_release(t, mono);	/* a probe that is not back has started */
			t->held_until = 0;	/* no timer of a type that waits for another reason */
		}
		if (t->breaker.limit > 0)
			type_breaker_timer(t, mono);
		if (!dlist_is_empty(&t->parked) && type_may_start(t, now))
			groups_unpark(&t->parked);
	}
}

/* ---------- health() ---------- */

static const char *
types_word(int n)
{
	return n == 1 ? "type" : "types";
}

void
admission_trouble(char *buf, int size)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	int			unknown = 0;
	int			refused = 0;
	int			held = 0;
	const char *own = NULL;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (dlist_is_empty(&t->parked))
			continue;
		if (t->trouble[0] != '\0')
			own = t->trouble;
		unknown += !t->known;
		refused += t->known && (t->filtered || t->no_role);
		held += t->held_until > mono_now();
	}
	buf[0] = '\0';
	if (own == NULL && bad_rows_trouble()[0] != '\0')
		own = bad_rows_trouble();
	if (own != NULL)
		strlcpy(buf, own, size);
	else if (unknown > 0)
		snprintf(buf, size, "jobs of %d unknown %s wait", unknown, types_word(unknown));
	else if (refused > 0)
		snprintf(buf, size, "jobs of %d %s wait: the role they run as is missing, or jobq.job_type_filter excludes them",
				 refused, types_word(refused));
	else if (held > 0)
		snprintf(buf, size, "tools of %d %s cannot be started on this node", held, types_word(held));
	else
		roles_trouble(buf, size);
}
