/*
 * admission.c
 *	  Which jobs may start now: types, their limits and pauses, the roles they run as.
 *
 * Everything is rebuilt from the registry and the slots when a dispatcher starts, so nothing can leak.
 */
#include "jobq.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "dispatcher.h"
#include "job_types.h"
#include "keys.h"
#include "options.h"
#include "weight.h"
#include "pressure.h"

#define CLEAN_RUNS_TO_BATCH	3
#define SHORT_RUN_US		5000	/* average above that: not batched */
#define SLOW_RUN_US			100000	/* one run above that: alone for a while */
#define ALONE_FOR_US		INT64CONST(2000000)

#define MAX_LEFTOVERS		256		/* dropped types that are remembered */

static HTAB *types = NULL;
static int	gone_kept = 0;	/* such as have jobs; -1: to be counted */
static HTAB *roles = NULL;
dlist_head	all_roles = DLIST_STATIC_INIT(all_roles);
static bool roles_changed = false;
static bool order_changed = false;	/* ready lanes must be ranked anew */
bool		types_keep_order = false;
static bool key_order_changed = false;

/* A role was made, changed or dropped, or somebody's right to connect. */
static void
note_role_change(Datum arg, int cacheid, uint32 hashvalue)
{
	roles_changed = true;
}

bool
admission_roles_changed(void)
{
	bool		changed = roles_changed;

	roles_changed = false;
	return changed;
}

void
admission_init(MemoryContext context, JobqDb *db)
{
	HASHCTL		ctl;

	limits_init(context);
	rate_init(db);
	CacheRegisterSyscacheCallback(AUTHOID, note_role_change, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, note_role_change, (Datum) 0);

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int32);
	ctl.entrysize = sizeof(TypeState);
	ctl.hcxt = context;
	types = hash_create("jobq dispatcher types", 128, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(RoleState);
	roles = hash_create("jobq dispatcher roles", 32, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

RoleState *
role_state(Oid roleid)
{
	bool		found;
	RoleState  *r = hash_search(roles, &roleid, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) r + sizeof(Oid), 0, sizeof(RoleState) - sizeof(Oid));
		door_init(&r->door);
		dlist_push_tail(&all_roles, &r->all);
	}
	return r;
}

/* jobq.job_type_filter: a comma list of names, or of -names that are excluded. */
static bool
filter_admits(const char *name)
{
	char	   *copy;
	List	   *items = NIL;
	ListCell   *lc;
	bool		admitted = true;

	if (jobq_job_type_filter == NULL || jobq_job_type_filter[0] == '\0')
		return true;
	copy = pstrdup(jobq_job_type_filter);
	if (SplitGUCList(copy, ',', &items) && items != NIL)
	{
		admitted = ((char *) linitial(items))[0] == '-';
		foreach(lc, items)
		{
			char	   *item = lfirst(lc);

			if (item[0] == '-' ? strcmp(item + 1, name) == 0 : strcmp(item, name) == 0)
				admitted = item[0] != '-';
		}
	}
	pfree(copy);
	return admitted;
}

/* What its lanes are ranked by. */
static void
load_order(TypeState *t, const JobType *jt)
{
	if (t->aging_per == jt->aging_per_us && t->aging_max == jt->aging_max && t->fair == jt->fair)
		return;
	t->aging_per = jt->aging_per_us;
	t->aging_max = jt->aging_max;
	t->fair = jt->fair;
	order_changed = true;
}

static void
load_keys(TypeState *t, const JobType *jt)
{
	bool		keeps_order = option_is(jt->options, "key_order", "fifo");

	key_order_changed |= t->per_key > 0 && keeps_order != t->keeps_order;
	t->per_key = option_int(jt->options, "concurrency_per_key", 1);
	t->keeps_order = keeps_order;
	types_keep_order |= keeps_order;
}

bool
admission_key_order_changed(void)
{
	bool		was = key_order_changed;

	key_order_changed = false;
	return was;
}

/* true: something else than before */
static bool
load_pressure(TypeState *t)
{
	int			pressure;
	bool		blocked;
	bool		changed;

	pressure_on_type(t->id, &pressure, &blocked);
	changed = pressure != t->pressure || blocked != t->blocked;
	order_changed |= pressure != t->pressure;
	t->pressure = pressure;
	t->blocked = blocked;
	return changed;
}

static void
load_rates(TypeState *t, const JobType *jt)
{
	rate_load(&t->own.rate, jt->id, "", jt->dropped ? 0 : jt->rate_limit, jt->rate_window_us, jt->burst);
	t->rated = jt->rate_limit > 0;
	for (int i = 0; i < t->nlimits; i++)
		t->rated |= t->limits[i]->rate.limit > 0;
}

static void
load_type(TypeState *t)
{
	JobType    *jt = job_type_by_id(t->id);
	Oid			roleid;

	t->known = jt != NULL;
	t->gone = jt == NULL || jt->dropped;
	if (jt == NULL)
	{
		t->refused = true;
		t->per_key = Max(t->per_key, 1);
		return;
	}
	t->exec = jt->command != NULL;
	t->paused = jt->paused;
	t->paused_until = jt->paused_until;
	t->own.max_concurrent = jt->max_concurrent;
	t->weight = jt->cpu_weight;
	t->max_skip = option_int(jt->options, "max_skip", 100);
	t->nlimits = limits_of_type(jt->options, t->limits);
	load_rates(t, jt);
	t->may_batch = jt->batch && !t->exec;
	t->refused = !filter_admits(jt->name);
	load_order(t, jt);
	load_keys(t, jt);
	(void) load_pressure(t);
	roleid = t->exec ? EXEC_ROLE : get_role_oid(jt->run_as, true);
	if (!t->exec && !OidIsValid(roleid))
		t->refused = true;		/* the role is gone: its jobs wait, the registry says for whom */
	else
		t->role = role_state(roleid);
}

TypeState *
type_state(int32 id)
{
	bool		found;
	TypeState  *t = hash_search(types, &id, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) t + sizeof(int32), 0, sizeof(TypeState) - sizeof(int32));
		dlist_init(&t->parked);
		limit_init(&t->own);
		load_type(t);
	}
	return t;
}

TypeState *
type_remembered(int32 id)
{
	return hash_search(types, &id, HASH_FIND, NULL);
}

RoleState *
role_of_type(int32 id)
{
	TypeState  *t = type_remembered(id);

	return t != NULL && t->known && !t->exec && !t->refused && dlist_is_empty(&t->parked) ? t->role : NULL;
}

void
type_open(TypeState *t)
{
	door_open(&t->own.door);
	for (int i = 0; i < t->nlimits; i++)
		door_open(&t->limits[i]->door);
	if (weight_budget > 0)
		weight_unpark();
}

/* Nobody waits at any. */
static void
init_doors(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	dlist_iter	it;

	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
		door_init(&t->own.door);
	limits_init_doors();
	dlist_foreach(it, &all_roles)
		door_init(&dlist_container(RoleState, all, it.cur)->door);
}

/* Whoever waits is tried again, perhaps at other doors. */
static void
try_all(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	doors_leave();
	init_doors();
	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
		groups_unpark(&t->parked);
	weight_unpark();
}

void
admission_forget_lanes(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	init_doors();
	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
		dlist_init(&t->parked);
	weight_forget_lanes();
}

/* All that runs is counted and weighed anew, and whoever waits looks again. */
static void
count_anew(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	dlist_iter	it;

	limits_restart();
	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		load_type(t);
		limit_restart(&t->own);
		t->held_until = 0;
		t->start_failures = 0;
	}
	executors_recount();
	keys_reload();
	dlist_foreach(it, &all_roles)
	{
		RoleState  *r = dlist_container(RoleState, all, it.cur);

		r->failures = 0;
		r->next_start = 0;
	}
	if (order_changed)
		lanes_rerank(now);
	order_changed = false;
	try_all();
}

void
admission_reload(TimestampTz now)
{
	limits_load();
	count_anew(now);
}

/* Types that were dropped, and their lanes, stay until they are many: a full scan gets rid of both. */
bool
admission_has_leftovers(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	int			gone = 0;

	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
		gone += t->gone;
	if (gone_kept < 0)
		gone_kept = gone;
	return gone > 2 * gone_kept + MAX_LEFTOVERS;
}

void
admission_forget_types(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	int			forgotten = 0;

	gone_kept = -1;
	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (!t->gone || t->own.running > 0)
			continue;
		hash_search(types, &t->id, HASH_REMOVE, NULL);
		forgotten++;
	}
	if (forgotten > 0)
		elog(DEBUG1, "jobq: forgot %d job types that were dropped", forgotten);
}

/* What was handed ahead and not begun comes back, and goes by the new order. */
void
admission_press(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	bool		budget_changed = pressure_max_weight() != weight_budget;
	bool		changed = budget_changed;

	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
		changed |= load_pressure(t);
	if (!changed)
		return;
	executors_take_back(false);
	if (budget_changed)
	{
		count_anew(now);		/* not admission_reload: nobody has locked jobq.limits */
		return;
	}
	lanes_rerank(now);
	order_changed = false;
	try_all();
}

/* ---------- may it start now ---------- */

static bool
type_is_blocked(TypeState *t, TimestampTz now)
{
	if (!t->known || t->refused || t->blocked || t->held_until > now)
		return true;
	return t->paused && t->paused_until > now;
}

bool
type_may_start(TypeState *t, TimestampTz now)
{
	return !type_is_blocked(t, now);
}

bool
roles_wait(void)
{
	dlist_iter	it;

	dlist_foreach(it, &all_roles)
	{
		if (dlist_container(RoleState, all, it.cur)->door.shut)
			return true;
	}
	return false;
}

bool
type_is_quiet(TypeState *t)
{
	if (t == NULL || !t->known)
		return false;
	for (int i = 0; i < t->nlimits; i++)
	{
		if (t->limits[i]->door.shut)
			return true;
	}
	return !dlist_is_empty(&t->parked) || t->own.door.shut || (t->role != NULL && t->role->door.shut);
}

TimestampTz
admission_next_timer(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	TimestampTz next = limits_next_timer();

	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		next = Min(next, limit_next_timer(&t->own));
		if (dlist_is_empty(&t->parked))
			continue;
		if (t->paused)
			next = Min(next, t->paused_until);
		if (t->held_until != 0)
			next = Min(next, t->held_until);
	}
	return next;
}

void
admission_timers(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	limits_timers(now);
	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		limit_timer(&t->own, now);
		if (t->paused && t->paused_until <= now)
			t->paused = false;
		if (t->held_until <= now)
			t->held_until = 0;	/* no timer of a type that waits for something else */
		if (!dlist_is_empty(&t->parked) && !type_is_blocked(t, now))
			groups_unpark(&t->parked);
	}
}

/* ---------- batching ---------- */

bool
type_is_short(TypeState *t, TimestampTz now)
{
	return t->may_batch && t->clean_runs >= CLEAN_RUNS_TO_BATCH && t->avg_us < SHORT_RUN_US &&
		t->alone_until <= now;
}

void
type_note_run(TypeState *t, Verdict verdict, int32 run_us, TimestampTz now)
{
	if (verdict == VERDICT_ALONE || run_us > SLOW_RUN_US)
	{
		t->clean_runs = 0;
		t->alone_until = now + ALONE_FOR_US;
	}
	if (verdict != VERDICT_SETTLED)
		return;
	t->avg_us = t->clean_runs == 0 ? run_us : t->avg_us * 0.9 + run_us * 0.1;
	if (run_us <= SLOW_RUN_US && t->clean_runs < CLEAN_RUNS_TO_BATCH)
		t->clean_runs++;
}

static void
role_trouble(char *buf, int size)
{
	dlist_iter	it;

	dlist_foreach(it, &all_roles)
	{
		RoleState  *r = dlist_container(RoleState, all, it.cur);

		if (r->failures == 0 || r->waiting_since == 0)
			continue;
		if (r->roleid == EXEC_ROLE)
			snprintf(buf, size, "the exec worker does not start: see the server log");
		else
			snprintf(buf, size, "no worker can connect as role \"%s\": see the server log", r->name);
	}
}

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

	hash_seq_init(&status, types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (dlist_is_empty(&t->parked))
			continue;
		unknown += !t->known;
		refused += t->known && t->refused;
		held += t->held_until > GetCurrentTimestamp();
	}
	buf[0] = '\0';
	if (unknown > 0)
		snprintf(buf, size, "jobs of %d unknown %s wait", unknown, types_word(unknown));
	else if (refused > 0)
		snprintf(buf, size, "jobs of %d %s wait: the role they run as is missing, or jobq.job_type_filter excludes them",
				 refused, types_word(refused));
	else if (held > 0)
		snprintf(buf, size, "tools of %d %s cannot be started on this node", held, types_word(held));
	else
		role_trouble(buf, size);
}
