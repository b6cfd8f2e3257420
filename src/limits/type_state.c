/*
 * type_state.c
 *	  Job types as the dispatcher has read them: registry rows, effects of
 *	  signals, durations of their runs.
 *
 * Each type of which a job was read has an entry.  Types that were dropped
 * keep theirs, as their lanes do, until they are many: a full scan removes
 * both.
 */
#include "jobq.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "base/subtransaction.h"
#include "lanes/ready_queue.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "pressure/pressure_rules.h"
#include "registry/job_types.h"
#include "registry/options.h"

#define CLEAN_RUNS_TO_BATCH	3
#define SHORT_RUN_US		5000	/* average above that: not batched */
#define SLOW_RUN_US			100000	/* one run above that: alone for a while */
#define ALONE_FOR_US		INT64CONST(2000000)

#define PROBE_US			INT64CONST(2000000)	/* a tool that does not start has been reported by then */

#define MAX_LEFTOVERS		256		/* dropped types that are kept */

HTAB	   *all_types = NULL;
bool		types_notify = false;
bool		types_order_changed = false;
bool		types_keep_order = false;
static int	gone_kept = 0;	/* those that have jobs; -1: to be counted */
static bool left_lanes = false; /* a type went while its jobs waited: they are gone, too */
static bool key_order_changed = false;
static bool names_stale = false;	/* the registry has an old name of a role */
static bool lacking = false;	/* some type has no window for its rate */

void
types_init(MemoryContext context)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int32);
	ctl.entrysize = sizeof(TypeState);
	ctl.hcxt = context;
	all_types = hash_create("jobq dispatcher types", 128, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* ---------- settings from the registry ---------- */

/*
 * Applies jobq.job_type_filter: a comma list of names, or of -names that are
 * excluded.
 */
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

/* Loads the settings that its lanes are ranked by. */
static void
load_order(TypeState *t, const JobType *jt)
{
	LaneType   *lanes = &t->lanes;

	if (lanes->aging_per == jt->aging_per_us && lanes->aging_max == jt->aging_max && lanes->fair == jt->fair)
		return;
	lanes->aging_per = jt->aging_per_us;
	lanes->aging_max = jt->aging_max;
	lanes->fair = jt->fair;
	types_order_changed = true;
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
types_key_order_changed(void)
{
	bool		was = key_order_changed;

	key_order_changed = false;
	return was;
}

bool
types_names_stale(void)
{
	bool		was = names_stale;

	names_stale = false;
	return was;
}

bool
type_load_pressure(TypeState *t)
{
	int			pressure;
	bool		blocked;
	bool		changed;

	pressure_on_type(t->id, &pressure, &blocked);
	changed = pressure != t->lanes.pressure || blocked != t->blocked;
	types_order_changed |= pressure != t->lanes.pressure;
	t->lanes.pressure = pressure;
	t->blocked = blocked;
	return changed;
}

static void
load_limits(TypeState *t, const JobType *jt)
{
	t->nlimits = limits_of_type(jt->options, jt->workflow, t->limits);
	t->lanes.nlimits = t->nlimits;
	for (int i = 0; i < t->nlimits; i++)
		t->lanes.limits[i] = &t->limits[i]->wait_queue;
}

static void
set_role(TypeState *t, RoleState *role)
{
	t->role = role;
	t->lanes.role = &role->wait_queue;
}

static void
load_rates(TypeState *t, const JobType *jt)
{
	const char *no_window;

	rate_load(&t->own.rate, jt->id, "", jt->dropped ? 0 : jt->rate_limit, jt->rate_window_us, jt->burst);
	t->rated = jt->rate_limit > 0;
	no_window = t->own.rate.no_window;
	for (int i = 0; i < t->nlimits; i++)
	{
		t->rated |= t->limits[i]->rate.limit > 0;
		if (no_window == NULL)
			no_window = t->limits[i]->rate.no_window;
	}
	if (no_window != NULL)
		snprintf(t->trouble, sizeof(t->trouble), "jobs of type \"%s\" wait: %s", jt->name, no_window);
	lacking |= no_window != NULL;
}

/* Forgets failures of the tool if its definition or its path has changed. */
static void
load_tool(TypeState *t, const JobType *jt)
{
	uint32		tool_hash = job_type_tool_hash(jt);

	if (t->tool_hash == tool_hash)
		return;
	t->tool_hash = tool_hash;
	t->held_until = 0;
	t->start_failures = Min(t->start_failures, 1);	/* one job tries it */
	t->probing = false;
}

/* Loads the pause; its end is computed once, when the pause is read first. */
static void
load_pause(TypeState *t, const JobType *jt)
{
	if (!jt->paused)
		t->paused_until = 0;
	else if (t->paused_until != jt->paused_until)
	{
		t->paused_until = jt->paused_until;
		t->pause_ends = mono_at_since(jt->paused_until, jt->paused_at);
	}
	t->paused = jt->paused && t->pause_ends > mono_now();
}

/* Loads the type; may raise an error, of which type_load keeps the text. */
static void
load(TypeState *t)
{
	JobType    *jt = job_type_by_id(t->id);
	Oid			roleid;

	t->known = jt != NULL;
	left_lanes |= !t->gone && (jt == NULL || jt->dropped) && !dlist_is_empty(&t->parked);
	t->gone = jt == NULL || jt->dropped;
	t->filtered = t->no_role = false;
	if (jt == NULL)
	{
		t->per_key = Max(t->per_key, 1);
		return;
	}
	t->exec = jt->command != NULL;
	t->workflow = jt->workflow;
	t->pull = job_type_is_pull(jt) || t->workflow;
	load_tool(t, jt);
	load_pause(t, jt);
	type_breaker_load(t, jt);
	t->own.max_concurrent = jt->max_concurrent;
	t->weight = t->workflow ? 0 : jt->cpu_weight;	/* its tasks have one */
	t->max_skip = option_int(jt->options, "max_skip", 100);
	load_limits(t, jt);
	load_rates(t, jt);
	t->may_batch = jt->batch && !t->exec && !t->pull;
	t->filtered = !filter_admits(jt->name);
	load_order(t, jt);
	load_keys(t, jt);
	(void) type_load_pressure(t);
	if (job_type_names_stale(jt))
		names_stale = true;
	batch_gate_load(&t->batch, t->pull ? jt->min_batch_jobs : 0, jt->min_batch_wait_us);
	if (t->pull)
	{
		set_role(t, &t->pullers);
		return;
	}
	roleid = t->exec ? EXEC_ROLE : job_type_run_as(jt);
	if (!t->exec && !OidIsValid(roleid))
		t->no_role = true;		/* the role is gone: its jobs wait; the registry has its name */
	else
		set_role(t, role_state(roleid));
}

static void
load_type(void *arg)
{
	load(arg);
}

/* Writes the error into t->trouble. */
static void
set_type_trouble(TypeState *t, ErrorData *error)
{
	char	   *text = psprintf("jobs of type %d wait: %s", t->id, error->message);

	text[pg_mbcliplen(text, (int) strlen(text), sizeof(t->trouble) - 1)] = '\0';
	strlcpy(t->trouble, text, sizeof(t->trouble));
	pfree(text);
	FreeErrorData(error);
}

/* Loads the type; an error in its settings stops this type only. */
void
type_load(TypeState *t)
{
	ErrorData  *error;
	char		before[sizeof(t->trouble)];

	strlcpy(before, t->trouble, sizeof(before));
	t->trouble[0] = '\0';
	error = try_subtransaction(load_type, t);
	if (error == NULL)
		return;
	set_type_trouble(t, error);
	t->per_key = Max(t->per_key, 1);
	if (strcmp(t->trouble, before) != 0)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq: %s", t->trouble)));
}

bool
types_lack_windows(void)
{
	return lacking;
}

static bool
window_is_used(int32 type_id, const char *name)
{
	JobType    *jt;

	if (type_id == RATE_OF_JOBS || type_id == RATE_OF_RUNS)
		return limit_has_rate(name);
	jt = job_type_by_id(type_id);
	return jt != NULL && !jt->dropped && jt->rate_limit > 0;
}

void
types_retry_windows(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;

	lacking = false;
	rates_drop_unused(window_is_used);
	limits_retry_windows();
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (t->trouble[0] != '\0')
			type_load(t);
	}
}

TypeState *
type_state(int32 id)
{
	bool		found;
	TypeState  *t = hash_search(all_types, &id, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) t + sizeof(int32), 0, sizeof(TypeState) - sizeof(int32));
		dlist_init(&t->parked);
		wait_queue_init(&t->pullers.wait_queue);
		batch_gate_init(&t->batch);
		limit_init(&t->own);
		t->lanes.own = &t->own.wait_queue;
		type_load(t);
	}
	return t;
}

static LaneType *
lanes_of_type(int32 id)
{
	return &type_state(id)->lanes;
}

Lane *
type_lane(const LaneId *id)
{
	return lane_get(id, lanes_of_type);
}

TypeState *
type_remembered(int32 id)
{
	return hash_search(all_types, &id, HASH_FIND, NULL);
}

RoleState *
role_of_type(int32 id)
{
	TypeState  *t = type_remembered(id);

	return t != NULL && t->known && !t->exec && !t->pull && !t->filtered && !t->no_role && dlist_is_empty(&t->parked) ? t->role : NULL;
}

bool
types_have_leftovers(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	int			gone = 0;

	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
		gone += t->gone;
	if (gone_kept < 0)
		gone_kept = gone;
	return left_lanes || gone > 2 * gone_kept + MAX_LEFTOVERS;
}

void
types_forget(void)
{
	HASH_SEQ_STATUS status;
	TypeState  *t;
	int			forgotten = 0;

	gone_kept = -1;
	left_lanes = false;
	hash_seq_init(&status, all_types);
	while ((t = hash_seq_search(&status)) != NULL)
	{
		if (!t->gone || t->own.running > 0)
			continue;
		batch_gate_open(&t->batch);
		hash_search(all_types, &t->id, HASH_REMOVE, NULL);
		forgotten++;
	}
	if (forgotten > 0)
		elog(DEBUG1, "jobq: forgot %d job types that were dropped", forgotten);
}

/* ---------- types that may start jobs ---------- */

uint32
type_bars(TypeState *t, TimestampTz now)
{
	uint32		bars = 0;

	if (!t->known)
		bars |= TYPE_UNKNOWN;
	if (t->trouble[0] != '\0')
		bars |= TYPE_TROUBLE;
	if (t->filtered)
		bars |= TYPE_FILTERED;
	if (t->no_role)
		bars |= TYPE_NO_ROLE;
	if (t->blocked)
		bars |= TYPE_BLOCKED;
	if (t->held_until != 0 && t->held_until > mono_now())
		bars |= TYPE_HELD;
	if (t->breaker.state != BREAKER_CLOSED && type_breaker_blocks(t))
		bars |= TYPE_BREAKER;
	if (t->paused && t->paused_until > now && t->pause_ends > mono_now())
		bars |= TYPE_PAUSED;
	return bars;
}

bool
type_may_start(TypeState *t, TimestampTz now)
{
	return type_bars(t, now) == 0;
}

void
type_open(TypeState *t)
{
	wait_queue_open(&t->own.wait_queue);
	for (int i = 0; i < t->nlimits; i++)
		wait_queue_open(&t->limits[i]->wait_queue);
	if (weight_budget > 0)
		weight_unpark();
}

uint32
type_full_limits(TypeState *t, int executor, bool exec)
{
	uint32		full = 0;

	for (int i = 0; i <= t->nlimits; i++)
	{
		if (!limit_has_room(type_limit(t, i), executor, exec))
			full |= (uint32) 1 << i;
	}
	return full;
}

bool
type_is_quiet(TypeState *t)
{
	if (t == NULL || !t->known)
		return false;
	for (int i = 0; i < t->nlimits; i++)
	{
		if (t->limits[i]->wait_queue.shut)
			return true;
	}
	return !dlist_is_empty(&t->parked) || t->own.wait_queue.shut ||
		(t->role != NULL && t->role->wait_queue.shut);
}

/* ---------- tools that can't be started ---------- */

void
type_hold(TypeState *t, MonoTime now)
{
	t->start_failures = Min(t->start_failures + 1, 10);
	t->held_until = now + Min(START_RETRY_US << t->start_failures, MAX_RETRY_US);
	t->probing = false;
}

void
type_probe(TypeState *t, MonoTime now)
{
	if (t->start_failures == 0)
		return;
	t->held_until = now + PROBE_US;
	t->probing = true;
}

void
type_release(TypeState *t, MonoTime now)
{
	if (!t->probing)
		return;
	t->held_until = Min(t->held_until, now);	/* a timer of now: its groups are retried */
	t->start_failures = 0;
	t->probing = false;
}

/* ---------- batching ---------- */

bool
type_is_short(TypeState *t)
{
	return t->may_batch && t->clean_runs >= CLEAN_RUNS_TO_BATCH && t->avg_us < SHORT_RUN_US &&
		(t->alone_until == 0 || t->alone_until <= mono_now());
}

void
type_note_run(TypeState *t, CellReport report, int32 run_us, MonoTime now)
{
	if (report == REPORT_ALONE || run_us > SLOW_RUN_US)
	{
		t->clean_runs = 0;
		t->alone_until = now + ALONE_FOR_US;
	}
	if (report != REPORT_SETTLED)
		return;
	t->avg_us = t->clean_runs == 0 ? run_us : t->avg_us * 0.9 + run_us * 0.1;
	if (run_us <= SLOW_RUN_US && t->clean_runs < CLEAN_RUNS_TO_BATCH)
		t->clean_runs++;
}
