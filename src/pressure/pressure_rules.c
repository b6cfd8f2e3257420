/*
 * pressure_rules.c
 *	  Signals and pressure rules as the dispatcher keeps them.
 *
 * Two small arrays, read again (direct scans, no plan) when a transaction that
 * touched the tables has committed, when the registry has changed, and at the
 * start.  A type's share is computed then and kept in its TypeState, so a job
 * pays nothing for rules, and no row is written.  A change of it ranks ready
 * lanes again, lets lanes go on whose block is over, and takes back jobs that
 * were handed out and have not begun (admission_press).
 *
 * Timers: the end of a signal's ttl, the next evaluation of a condition, which
 * maintenance does (signal_condition.c); it writes the row when the answer is
 * new.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/conditional_lock.h"
#include "base/interval.h"
#include "base/relations.h"
#include "pressure/pressure_rules.h"
#include "pressure/pressure_signals.h"
#include "pressure/signal_condition.h"
#include "tables/table_shape.h"

#define LOCK_RETRY_US	INT64CONST(100000)
#define START_RETRY_US	USECS_PER_SEC
#define MAX_PRESSURE	1000000	/* of all rules together: plain SQL may have written more */

/* attribute numbers: src/sql/47_signals.sql */
enum
{
	S_id = 1, S_name, S_active, S_active_until, S_condition, S_definer, S_search_path, S_every, S_problem, S_changed_at,
	S_definer_oid
};
#define S_NATTS S_definer_oid
enum
{
	R_type_id = 1, R_signal, R_priority_adj, R_block, R_max_weight
};
#define R_NATTS R_max_weight

static const ShapeColumn signals_columns[] = {
	{"id", INT4OID, FILLED}, {"name", TEXTOID, FILLED}, {"active", BOOLOID, FILLED},
	{"active_until", TIMESTAMPTZOID, NULLABLE}, {"condition", TEXTOID, NULLABLE}, {"definer", TEXTOID, NULLABLE},
	{"search_path", TEXTOID, NULLABLE}, {"every", INTERVALOID, NULLABLE}, {"problem", TEXTOID, NULLABLE},
	{"changed_at", TIMESTAMPTZOID, FILLED}, {"definer_oid", OIDOID, NULLABLE}
};
static const ShapeColumn pressure_rules_columns[] = {
	{"type_id", INT4OID, FILLED}, {"signal", TEXTOID, FILLED}, {"priority_adj", INT4OID, FILLED},
	{"block", BOOLOID, FILLED}, {"max_weight", INT4OID, NULLABLE}
};
const Shape signals_shape = SHAPE("signals", signals_columns);
const Shape pressure_rules_shape = SHAPE("pressure_rules", pressure_rules_columns);

StaticAssertDecl(lengthof(signals_columns) == S_NATTS, "signals' columns");
StaticAssertDecl(lengthof(pressure_rules_columns) == R_NATTS, "pressure_rules' columns");

typedef struct Signal
{
	int32		id;
	char		name[64];
	bool		active;
	TimestampTz until;			/* DT_NOEND: until it is set again */
	MonoTime	ends;			/* the same, by the monotonic clock */
	int64		every;			/* us; 0: no condition */
	MonoTime	next_check;
} Signal;

typedef struct Rule
{
	int32		type_id;		/* 0: every type */
	char		signal[64];
	int			priority_adj;
	bool		block;
	int			max_weight;		/* 0: none */
	bool		active;
} Rule;

static JobqDb *db;
static MemoryContext context;
static Signal *signals = NULL;
static int	nsignals = 0;
static Rule *rules = NULL;
static int	nrules = 0;
static bool stale = true;
static MonoTime retry_at = 0;	/* the tables could not be read */
static uint32 builtin_applied = 0;

void
pressure_init(MemoryContext parent, JobqDb *mine)
{
	db = mine;
	context = AllocSetContextCreate(parent, "jobq pressure", ALLOCSET_SMALL_SIZES);
}

void
pressure_stale(void)
{
	stale = true;
	retry_at = 0;
}

/* ---------- reading the tables ---------- */

static void
read_signal(Relation rel, HeapTuple tuple)
{
	Signal	   *s = &signals[nsignals++];
	Datum		values[S_NATTS];
	bool		nulls[S_NATTS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	s->id = DatumGetInt32(values[S_id - 1]);
	strlcpy(s->name, TextDatumGetCString(values[S_name - 1]), sizeof(s->name));
	s->active = DatumGetBool(values[S_active - 1]);
	s->until = nulls[S_active_until - 1] ? DT_NOEND : DatumGetTimestampTz(values[S_active_until - 1]);
	s->ends = mono_at_since(s->until, DatumGetTimestampTz(values[S_changed_at - 1]));
	/* a process is started for it: at most once a second */
	s->every = nulls[S_every - 1] ? 0 :
		Max(interval_to_us(DatumGetIntervalP(values[S_every - 1])), USECS_PER_SEC);
	s->next_check = 0;			/* at once, unless it was known */
}

static void
read_rule(Relation rel, HeapTuple tuple)
{
	Rule	   *r = &rules[nrules++];
	Datum		values[R_NATTS];
	bool		nulls[R_NATTS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	r->type_id = DatumGetInt32(values[R_type_id - 1]);
	strlcpy(r->signal, TextDatumGetCString(values[R_signal - 1]), sizeof(r->signal));
	r->priority_adj = DatumGetInt32(values[R_priority_adj - 1]);
	r->block = DatumGetBool(values[R_block - 1]);
	r->max_weight = nulls[R_max_weight - 1] ? 0 : DatumGetInt32(values[R_max_weight - 1]);
}

/* Returns the array with room for one more element of `size`. */
static void *
make_room(void *array, int n, Size size)
{
	if (n == 0)
		return MemoryContextAlloc(context, 8 * size);
	return n >= 8 && (n & (n - 1)) == 0 ? repalloc(array, 2 * n * size) : array;
}

static void
read_table(Relation rel, Snapshot snapshot)
{
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		of_signals = RelationGetRelid(rel) == jobq_relid("signals");

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);

		if (of_signals)
		{
			signals = make_room(signals, nsignals, sizeof(Signal));
			read_signal(rel, tuple);
		}
		else
		{
			rules = make_room(rules, nrules, sizeof(Rule));
			read_rule(rel, tuple);
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
}

/*
 * Keeps the timers of signals that have not changed: the next evaluation, the
 * end of a time to live.
 */
static void
keep_timers(const Signal *old, int nold)
{
	for (int i = 0; i < nsignals; i++)
	{
		for (int k = 0; k < nold; k++)
		{
			if (old[k].id == signals[i].id && old[k].every == signals[i].every)
				signals[i].next_check = old[k].next_check;
			if (old[k].id == signals[i].id && old[k].until == signals[i].until)
				signals[i].ends = old[k].ends;
		}
	}
}

static Relation
open_without_waiting(const char *name)
{
	Oid			relid = jobq_relid(name);
	Relation	rel = lock_rows_if_free(relid) ? try_table_open(relid, NoLock) : NULL;

	if (rel != NULL)
		shape_require(rel);
	return rel;
}

static void
read_both(Relation of_signals, Relation of_rules)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int			nold = nsignals;
	Signal	   *old = palloc(sizeof(Signal) * (nold + 1));

	if (nold > 0)
		memcpy(old, signals, sizeof(Signal) * nold);
	MemoryContextReset(context);
	nsignals = nrules = 0;
	read_table(of_signals, snapshot);
	read_table(of_rules, snapshot);
	keep_timers(old, nold);
	UnregisterSnapshot(snapshot);
	pfree(old);
}

/* Reads both tables; locks are kept to the end of the transaction. */
static void
read_again(MonoTime now)
{
	Relation	of_signals = open_without_waiting("signals");
	Relation	of_rules = of_signals ? open_without_waiting("pressure_rules") : NULL;

	if (of_rules)
		read_both(of_signals, of_rules);
	stale = of_rules == NULL;
	retry_at = stale ? now + LOCK_RETRY_US : 0;
	if (of_rules)
		table_close(of_rules, NoLock);
	if (of_signals)
		table_close(of_signals, NoLock);
}

/* ---------- what is active ---------- */

static bool
is_active(const char *name)
{
	int			builtin = builtin_signal(name);

	if (builtin >= 0)
		return (builtin_applied & ((uint32) 1 << builtin)) != 0;
	for (int i = 0; i < nsignals; i++)
	{
		if (strcmp(signals[i].name, name) == 0)
			return signals[i].active;
	}
	return false;
}

static void
apply(TimestampTz now)
{
	MonoTime	mono = mono_now();

	builtin_applied = pg_atomic_read_u32(&db->builtin_signals);
	for (int i = 0; i < nsignals; i++)
		signals[i].active &= signals[i].until > now && signals[i].ends > mono;
	for (int i = 0; i < nrules; i++)
		rules[i].active = is_active(rules[i].signal);
}

static bool
applies_to(const Rule *r, int32 type_id)
{
	return r->active && (r->type_id == 0 || r->type_id == type_id);
}

const char *
pressure_blocking_signal(int32 type_id)
{
	for (int i = 0; i < nrules; i++)
	{
		if (rules[i].block && applies_to(&rules[i], type_id))
			return rules[i].signal;
	}
	return NULL;
}

void
pressure_on_type(int32 type_id, int *priority_adj, bool *block)
{
	int64		sum = 0;

	*block = false;
	for (int i = 0; i < nrules; i++)
	{
		const Rule *r = &rules[i];

		if (!applies_to(r, type_id))
			continue;
		sum += r->priority_adj;
		*block |= r->block;
	}
	*priority_adj = (int) Max(Min(sum, MAX_PRESSURE), -MAX_PRESSURE);
}

int
pressure_max_weight(void)
{
	int			budget = jobq_max_weight;

	for (int i = 0; i < nrules; i++)
	{
		if (rules[i].active && rules[i].max_weight > 0 && (budget == 0 || rules[i].max_weight < budget))
			budget = rules[i].max_weight;
	}
	return budget;
}

bool
pressure_uses(int builtin)
{
	for (int i = 0; i < nrules; i++)
	{
		if (builtin_signal(rules[i].signal) == builtin)
			return true;
	}
	return false;
}

/* ---------- timers ---------- */

static bool
one_has_expired(TimestampTz now, MonoTime mono)
{
	for (int i = 0; i < nsignals; i++)
	{
		if (signals[i].active && (signals[i].until <= now || signals[i].ends <= mono))
			return true;
	}
	return false;
}

/*
 * True if the condition is evaluated here: a restored dump does nothing before
 * it is adopted.
 */
static bool
is_asked(const Signal *s)
{
	return s->every > 0 && !db->health.paused_identity;
}

/* Asks for the conditions that are due, first for those behind the last one that was asked. */
static void
ask_conditions(MonoTime now)
{
	static int	last = 0;
	int			begin = last + 1;

	for (int i = 0; i < nsignals; i++)
	{
		int			at = (begin + i) % nsignals;
		Signal	   *s = &signals[at];
		bool		asked;

		if (!is_asked(s) || s->next_check > now)
			continue;
		asked = condition_ask(db, s->id);
		s->next_check = now + (asked ? s->every : START_RETRY_US);
		if (asked)
			last = at;
	}
}

bool
pressure_due(MonoTime now)
{
	return pressure_next_timer(now) <= now ||
		pg_atomic_read_u32(&db->builtin_signals) != builtin_applied;
}

bool
pressure_turn(TimestampTz now)
{
	MonoTime	mono = mono_now();
	bool		was_stale = stale && retry_at <= mono;
	bool		changed;

	if (was_stale)
		read_again(mono);
	changed = was_stale || one_has_expired(now, mono) || pg_atomic_read_u32(&db->builtin_signals) != builtin_applied;
	if (changed)
		apply(now);
	ask_conditions(mono);
	return changed;
}

MonoTime
pressure_next_timer(MonoTime now)
{
	MonoTime	next = stale ? retry_at : DT_NOEND;

	for (int i = 0; i < nsignals; i++)
	{
		if (signals[i].active)
			next = Min(next, Min(signals[i].ends, mono_at(signals[i].until)));
		if (is_asked(&signals[i]))
			next = Min(next, signals[i].next_check);
	}
	return next;
}
