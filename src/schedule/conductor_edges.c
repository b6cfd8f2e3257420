/*
 * conductor_edges.c
 *	  The conductor's turns for jobs that wait for other jobs.
 *
 * Parents that have ended come from EndNews (publish_ends.h), unless the
 * transaction that ended them has released all their children.  Up to
 * PARENTS_AT_ONCE of them are one transaction, tenants in turn
 * (tenants_in_turn.h), which waits for no flush: what
 * a crash of the server takes back is found again by the pass.  The pass reads
 * all edges, marks their parents as awaited, and takes those that are not in
 * the queue; it runs at the start, when news were lost, when the sets of
 * awaited jobs change (awaited_jobs.h), and once in SWEEP_US while there are
 * edges.
 *
 * A parent whose child is locked is put aside (conductor_held.h), and tried
 * again together with others.  When a transaction fails, its parents are taken
 * one by one; one that fails alone is put aside, and tried again alone.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "schedule/conductor_edges.h"
#include "schedule/conductor_held.h"
#include "schedule/conductor_runs.h"
#include "schedule/conductor_sweep.h"
#include "schedule/conductor_transaction.h"
#include "schedule/tenants_in_turn.h"
#include "shared/publish_ends.h"
#include "tables/home.h"
#include "tables/table_shape.h"
#include "workflow/awaited_jobs.h"
#include "workflow/edges.h"

#define PARENTS_AT_ONCE	1000
#define LOCKED_US		INT64CONST(100000)
#define SWEEP_US		USECS_PER_MINUTE
#define READY_TURNS		8		/* with parents, between parts of the pass */
#define CHANGE_US		USECS_PER_SEC	/* between passes while the sets change */

typedef struct HeldParent
{
	Held		held;
	Parent		parent;
} HeldParent;

static JobqDb *db;
static MemoryContext lasting;
static Parent *ready = NULL;	/* to be applied, the oldest first */
static int	nready = 0;
static int	ready_size = 0;
static HeldList locked;			/* their children are */
static HeldList failed;			/* alone */
static bool passing = true;		/* a pass is to be begun or goes on */
static bool pass_again = false; /* when the one that goes on is over */
static bool pass_has_edges;
static pg_uuid_t pass_from;		/* zero: at its beginning */
static JobEnd *taken = NULL;	/* JOBQ_ENDS: news */
static MonoTime next_pass = 0;
static MonoTime retry_pass = 0; /* when the next part of the pass is read */
static bool have_edges = true;
static int	nalone = 0;			/* of a transaction that has failed: the first ones, one by one */

void
edges_init(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
	held_init(&locked, context, "jobq locked children", sizeof(HeldParent));
	held_init(&failed, context, "jobq held parents", sizeof(HeldParent));
	taken = MemoryContextAlloc(context, sizeof(JobEnd) * JOBQ_ENDS);
}

static void *
grown(void *array, int *size, Size element)
{
	*size = Max(*size * 2, 64);
	return array == NULL ? MemoryContextAlloc(lasting, element * *size) : repalloc(array, element * *size);
}

static void
add_ready(const Parent *parent)
{
	if (nready == ready_size)
		ready = grown(ready, &ready_size, sizeof(Parent));
	ready[nready++] = *parent;
}

/* Puts parents back in front of the others. */
static void
add_first(const Parent *parents, int n)
{
	while (nready + n > ready_size)
		ready = grown(ready, &ready_size, sizeof(Parent));
	memmove(ready + n, ready, sizeof(Parent) * nready);
	memcpy(ready, parents, sizeof(Parent) * n);
	nready += n;
}

static void
put_aside(HeldList *list, const Parent *parent, bool transient)
{
	HeldParent *held = held_put(list, &parent->id, transient);

	held->parent = *parent;
}

static bool
pass_is_at_its_beginning(void)
{
	static const pg_uuid_t zero = {{0}};

	return memcmp(&pass_from, &zero, sizeof(zero)) == 0;
}

/* Begins a pass; one that goes on ends first, or news lost at each turn would stop all. */
static void
begin_pass(void)
{
	if (passing && !pass_is_at_its_beginning())
	{
		pass_again = true;
		return;
	}
	passing = true;
	pass_again = false;
	memset(&pass_from, 0, sizeof(pass_from));
}

void
edges_take_news(void)
{
	EndNews    *news = &db->ends;
	int			n;
	bool		lost;

	if (news->n == 0 && !news->lost)
		return;
	SpinLockAcquire(&db->mutex);
	n = news->n;
	memcpy(taken, news->ends, sizeof(JobEnd) * n);
	lost = news->lost;
	news->n = 0;
	news->lost = false;
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		if (taken[i].status == END_READ)
			runs_look(&taken[i].id, taken[i].tenant);
		else
			add_ready(&(Parent) {.id = taken[i].id, .status = taken[i].status, .tenant = taken[i].tenant});
	}
	if (n > 0)
		have_edges = pass_has_edges = true;
	if (lost)
	{
		begin_pass();
		sweep_again(false);
	}
}

/* ---------- transactions ---------- */

typedef struct EdgesTurn
{
	Parent	   *parents;
	int			n;
	int			kept;			/* out */
	bool		foreign;		/* out: not our tables, or a copy */
} EdgesTurn;

/*
 * True if the tables are not ours to work with.  No edge matters before
 * jobq.adopt().
 */
static bool
is_foreign(void)
{
	int32		home;

	if (tables_trouble()[0] != '\0')
		return true;
	if (home_is_ours(&home))
		return false;
	have_edges = false;
	return true;
}

static void
apply(void *arg)
{
	EdgesTurn  *turn = arg;

	turn->foreign = is_foreign();
	if (!turn->foreign)
		turn->kept = edges_apply(turn->parents, turn->n);
}

/* Reads the next part of all edges. */
static void
read_part(void *arg)
{
	EdgesTurn  *turn = arg;
	Parent	   *parents;
	int			n;

	turn->foreign = is_foreign();
	if (turn->foreign)
		return;
	if (pass_is_at_its_beginning())
	{
		pass_has_edges = false;
		awaited_pass_begins(db);
	}
	passing = edges_read_part(db, &pass_from, &parents, &n, &pass_has_edges);
	for (int i = 0; i < n; i++)
		add_ready(&parents[i]);
	if (passing)
		return;
	have_edges = pass_has_edges;
	awaited_pass_ends(db);
	if (pass_again)
		begin_pass();
}

static int
compare_places(const void *a, const void *b)
{
	const Parent *p = &ready[*(const int *) a];
	const Parent *q = &ready[*(const int *) b];
	int			result = memcmp(&p->id, &q->id, UUID_LEN);

	return result != 0 ? result : *(const int *) a - *(const int *) b;
}

/*
 * Takes up to max parents from the first ready ones.  What came later about one
 * of them stays: it may have ended, been retried, and ended again.
 */
static void
take_ready(EdgesTurn *turn, int max)
{
	int			n = Min(nready, max);
	int		   *places = palloc(sizeof(int) * n);
	bool	   *later_one = palloc0(sizeof(bool) * n);
	int			kept = 0;

	for (int i = 0; i < n; i++)
		places[i] = i;
	qsort(places, n, sizeof(int), compare_places);
	for (int i = 1; i < n; i++)
		later_one[places[i]] = memcmp(&ready[places[i - 1]].id, &ready[places[i]].id, UUID_LEN) == 0;
	turn->parents = palloc(sizeof(Parent) * n);
	for (int i = 0; i < n; i++)
	{
		if (later_one[i])
			ready[kept++] = ready[i];
		else
			turn->parents[turn->n++] = ready[i];
	}
	nready -= n;
	memmove(ready + kept, ready + n, sizeof(Parent) * nready);
	nready += kept;
}

/* Sorts what a transaction has left: n parents were taken, the ids of which are given. */
static void
keep_parents(const EdgesTurn *turn, const pg_uuid_t *ids)
{
	for (int i = 0; i < turn->kept; i++)
	{
		if (turn->parents[i].locked)
			put_aside(&locked, &turn->parents[i], true);
		else
			add_ready(&turn->parents[i]);
	}
	for (int i = 0; i < turn->n && !held_is_empty(&locked); i++)
	{
		HeldParent *held = hash_search(locked.table, &ids[i], HASH_FIND, NULL);

		if (held != NULL && held->held.since == DT_NOEND)
			held_done(&locked, &ids[i]);	/* it was not put aside again */
	}
}

/* Applies parents in one transaction; returns the error that has rolled it back. */
static ErrorData *
apply_some(EdgesTurn *turn)
{
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * turn->n);
	Parent	   *before = palloc(sizeof(Parent) * turn->n);
	ErrorData  *error;

	for (int i = 0; i < turn->n; i++)
		ids[i] = turn->parents[i].id;
	memcpy(before, turn->parents, sizeof(Parent) * turn->n);
	error = conductor_transaction(apply, turn);
	if (error != NULL)
		memcpy(turn->parents, before, sizeof(Parent) * turn->n);
	else if (turn->foreign)
		begin_pass();
	if (error == NULL)
		keep_parents(turn, ids);
	return error;
}

static void
apply_one(EdgesTurn *turn)
{
	Parent		parent = turn->parents[0];
	ErrorData  *error = apply_some(turn);
	bool		transient = error != NULL && conductor_error_is_transient(error);

	if (error == NULL)
	{
		held_done(&failed, &parent.id);
		return;
	}
	(void) hash_search(locked.table, &parent.id, HASH_REMOVE, NULL);
	put_aside(&failed, &parent, transient);
	if (!transient)
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("jobq: jobs that wait for an ended job could not be released: %s", error->message)));
}

static void
apply_ready(void)
{
	EdgesTurn	turn = {0};

	if (nalone == 0)
		put_tenants_in_turn(ready, sizeof(Parent), offsetof(Parent, tenant), nready, PARENTS_AT_ONCE);
	take_ready(&turn, nalone > 0 ? 1 : PARENTS_AT_ONCE);
	nalone = Max(nalone - 1, 0);
	if (turn.n == 1)
		apply_one(&turn);
	else if (apply_some(&turn) != NULL)
	{
		add_first(turn.parents, turn.n);
		nalone = turn.n;
	}
}

/* Tries one parent that has failed alone. */
static void
apply_failed(void)
{
	HeldParent *held = held_due(&failed);
	EdgesTurn	turn = {.n = 1};

	if (held == NULL)
		return;
	turn.parents = palloc(sizeof(Parent));
	*turn.parents = held->parent;
	apply_one(&turn);
}

/* Takes those whose children may be free again; their entries keep the pause. */
static void
take_locked(MonoTime now)
{
	HASH_SEQ_STATUS status;
	HeldParent *held;

	if (held_is_empty(&locked) || now < locked.rest)
		return;
	hash_seq_init(&status, locked.table);
	while ((held = hash_seq_search(&status)) != NULL)
	{
		if (held->held.since > now)
			continue;
		add_ready(&held->parent);
		held->held.since = DT_NOEND;
	}
}

static void
run_pass(void)
{
	EdgesTurn	turn = {0};
	ErrorData  *error = conductor_transaction(read_part, &turn);

	if (error != NULL && !conductor_error_is_transient(error))
		ReThrowError(error);
	if (error != NULL)
		retry_pass = mono_now() + LOCKED_US;
	if (turn.foreign)
		passing = false;
	next_pass = mono_now() + (turn.foreign ? USECS_PER_SEC : SWEEP_US);
}

void
edges_turn(void)
{
	static int	ready_turns = 0;
	MonoTime	now = mono_now();

	if (awaited_turn(db))
		next_pass = Min(next_pass, now + CHANGE_US);
	take_locked(now);
	apply_failed();
	if (nready > 0)
		apply_ready();
	if (nready > 0 && ++ready_turns % READY_TURNS != 0)
		return;
	if (!passing && (have_edges || awaited_change(db)) && now >= next_pass)
		begin_pass();
	if (passing && now >= retry_pass)
		run_pass();
}

int64
edges_time_left(void)
{
	MonoTime	next = DT_NOEND;

	if (nready > 0)
		return 0;
	next = Min(held_next(&locked), held_next(&failed));
	if (passing)
		next = Min(next, retry_pass);
	else if (have_edges || awaited_change(db))
		next = Min(next, next_pass);
	return next == DT_NOEND ? -1 : Max(next - mono_now(), 0);
}

bool
edges_are_idle(void)
{
	return nready == 0 && held_is_empty(&locked) && held_is_empty(&failed) && !passing && !have_edges && !awaited_change(db);
}
