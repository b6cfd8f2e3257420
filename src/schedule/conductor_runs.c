/*
 * conductor_runs.c
 *	  The conductor's turns for runs of workflows.
 *
 * Three kinds of work, each a transaction that waits for no flush and leaves
 * the rest of its work to others after 50 ms (run_turn_is_over): runs that
 * the dispatcher has handed out are started, runs and mapped tasks with news
 * are looked at, timers that are due are acted on.  The decisions are those of
 * src/sql/58_runs.sql.  What a crash takes back is done again: an unstarted
 * run still waits, the sweep finds runs whose news were lost, timers are rows.
 *
 * What the sweep (conductor_sweep.h) finds is in a list of its own: it has a
 * turn when there are no news, and one in SWEPT_TURNS.
 *
 * An error of one run does not stop the others, nor does a lock of its rows:
 * work that has failed is done one by one, and what fails alone is put aside
 * (conductor_held.h).  A start that fails alone, not for a lock, ends its run's
 * attempt.  A start begins only while the dispatcher counts its run
 * (run_hand_outs.h).
 */
#include "jobq.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/concurrency_key_hash.h"
#include "base/relations.h"
#include "schedule/conductor_held.h"
#include "schedule/conductor_runs.h"
#include "schedule/conductor_sweep.h"
#include "schedule/conductor_timers.h"
#include "schedule/conductor_transaction.h"
#include "schedule/tenants_in_turn.h"
#include "settle/settle.h"
#include "shared/run_hand_outs.h"
#include "shared/slots.h"
#include "tables/home.h"
#include "tables/queue_find.h"
#include "tables/table_shape.h"
#include "workflow/edges.h"
#include "workflow/run_begin.h"

#define LOOKS_AT_ONCE	200
#define STARTS_AT_ONCE	50
#define SWEPT_TURNS		8
#define RUN_LEASE_US	(INT64CONST(1000) * 365 * USECS_PER_DAY)

typedef struct HeldStart
{
	Held		held;
	RunStart	start;
} HeldStart;

typedef struct Look
{
	pg_uuid_t	id;
	uint32		tenant;			/* a hash; 0: none */
} Look;

typedef struct LookList
{
	Look	   *looks;
	int			n;
	int			size;
	int			alone;			/* of a transaction that has failed: the first ones, one by one */
} LookList;

static JobqDb *db;
static MemoryContext lasting;
static LookList news;
static LookList swept;			/* by the sweep */
static HeldList held_looks;
static HeldList held_starts;
static RunStart starts[JOBQ_RUN_STARTS];
static int	nstarts = 0;
static int	starts_alone = 0;
static TimestampTz next_timer = DT_NOBEGIN; /* DT_NOBEGIN: not read yet, DT_NOEND: none */

void
runs_init(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
	run_drop_marks(db);
	held_init(&held_looks, context, "jobq held runs", sizeof(Held));
	held_init(&held_starts, context, "jobq held starts", sizeof(HeldStart));
}

/* The last ones are compared: the ends of many tasks name one run. */
static void
add_look(LookList *list, const pg_uuid_t *id, uint32 tenant)
{
	if (held_news(&held_looks, id))
		return;
	for (int i = list->n - 1; i >= 0 && i >= list->n - 32; i--)
	{
		if (memcmp(&list->looks[i].id, id, UUID_LEN) == 0)
			return;
	}
	if (list->n == list->size)
	{
		list->size = Max(list->size * 2, 64);
		list->looks = list->looks == NULL ? MemoryContextAlloc(lasting, sizeof(Look) * list->size) :
			repalloc(list->looks, sizeof(Look) * list->size);
	}
	list->looks[list->n++] = (Look) {*id, tenant};
}

void
runs_look(const pg_uuid_t *id, uint32 tenant)
{
	sweep_has_runs();
	add_look(&news, id, tenant);
}

void
runs_add_swept(const pg_uuid_t *id, uint32 tenant)
{
	add_look(&swept, id, tenant);
}

/*
 * Of a run that is put aside, takes the hand-out only: it keeps its pause.  A
 * start that has failed is over, so the dispatcher hands the run out again when
 * it has a place, mostly at once.
 */
static void
drop_held_starts(void)
{
	int			kept = 0;

	for (int i = 0; i < nstarts; i++)
	{
		HeldStart  *held = hash_search(held_starts.table, &starts[i].id, HASH_FIND, NULL);

		if (held == NULL)
			starts[kept++] = starts[i];
		else
			held->start = starts[i];
	}
	nstarts = kept;
}

void
runs_take_starts(void)
{
	if (nstarts > 0 || db->run_starts.n == 0)
		return;
	SpinLockAcquire(&db->mutex);
	nstarts = db->run_starts.n;
	memcpy(starts, db->run_starts.runs, sizeof(RunStart) * nstarts);
	db->run_starts.n = 0;
	db->run_starts.taken = true;
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
	if (!held_is_empty(&held_starts))
		drop_held_starts();
}

/* ---------- transactions ---------- */

bool
runs_are_foreign(void)
{
	int32		home;

	return tables_trouble()[0] != '\0' || !home_is_ours(&home);
}

static void
set(Job *job, int att, Datum value)
{
	JOB_ATT(job, att) = value;
	job->nulls[att - 1] = false;
}

/* Writes that the run runs: with a lease that does not end. */
static void
mark_running(Ledger *ledger, Job *job)
{
	Interval   *lease = palloc0(sizeof(Interval));
	pg_uuid_t  *token = palloc(sizeof(pg_uuid_t));

	if (!pg_strong_random(token->data, UUID_LEN))
		elog(ERROR, "could not make a token");
	memset(token->data, 0, sizeof(uint32));	/* of no session: claim_session.c */
	lease->time = RUN_LEASE_US;
	set(job, Q_lease_token, UUIDPGetDatum(token));
	set(job, Q_lease, IntervalPGetDatum(lease));
	set(job, Q_lease_expires_at, TimestampTzGetDatum(GetCurrentTimestamp() + RUN_LEASE_US));
	run_write_begin(ledger, job, "conductor");
}

/* Locks the very version that was handed out; false: it is another's. */
static bool
lock_start(Ledger *ledger, const RunStart *start, Job *job)
{
	JobRef		ref = {.id = start->id, .tid = start->tid, .rev = start->rev, .type_id = start->type_id,
	.priority = start->priority, .sublane = start->sublane, .position = start->position};

	return queue_lock(&ledger->queue, &ref, job) == LOCK_OK && (job->status == JOB_PENDING || job->status == JOB_RETRY);
}

typedef struct RunsTurn
{
	RunStart   *starts;
	int			nstarts;
	pg_uuid_t  *looks;
	int			nlooks;
	const ErrorData *error;		/* of a start: it ends the attempt */
	int			done;			/* out: of the starts or looks, the first ones */
	TimestampTz next;			/* out: of timers */
	bool		foreign;		/* out */
} RunsTurn;

/* Ends the attempt of a run that could not be started. */
static void
fail_start(Ledger *ledger, Job *job, const ErrorData *error)
{
	Outcome		o = {.kind = OUTCOME_FAILED, .source = "dispatcher"};

	o.started_at = o.ended_at = GetCurrentTimestamp();
	o.code = pstrdup(unpack_sql_state(error->sqlerrcode));
	o.message = pstrdup(error->message ? error->message : "could not start");
	o.progress = NAN;
	(void) settle(ledger, job, job_type_by_id(JOB_INT(job, Q_type_id)), &o);
}

static void
do_start(const RunStart *start, const ErrorData *error)
{
	Ledger		ledger;
	Job			job;
	bool		locked;

	ledger_open(&ledger);
	locked = lock_start(&ledger, start, &job);
	if (locked && error != NULL)
		fail_start(&ledger, &job, error);
	else if (locked)
		mark_running(&ledger, &job);
	ledger_close(&ledger);
	if (locked && error == NULL)
		runs_begin(&start->id, 1);
}

/* Starts runs until the turn is over. */
static void
do_starts(void *arg)
{
	RunsTurn   *turn = arg;

	turn->foreign = runs_are_foreign();
	turn->done = turn->foreign ? turn->nstarts : 0;
	while (turn->done < turn->nstarts && (turn->done == 0 || !run_turn_is_over()))
		do_start(&turn->starts[turn->done++], turn->error);
}

static void
do_looks(void *arg)
{
	RunsTurn   *turn = arg;

	turn->foreign = runs_are_foreign();
	turn->done = turn->nlooks;
	if (!turn->foreign)
		turn->done = DatumGetInt32(run_sql_for_ids("SELECT jobq_internal._look($1)", turn->looks, turn->nlooks));
}

static void
do_timers(void *arg)
{
	RunsTurn   *turn = arg;
	bool		isnull;
	Datum		next;

	turn->foreign = runs_are_foreign();
	turn->next = DT_NOEND;
	if (turn->foreign)
		return;
	SPI_connect();
	if (SPI_execute("SELECT jobq_internal._run_due_timers()", false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read jobq.run_timers");
	next = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
		turn->next = DatumGetTimestampTz(next);
	SPI_finish();
}

/* ---------- turns ---------- */

static void
warn(const char *what, const ErrorData *error)
{
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("jobq: %s: %s", what, error->message)));
}

/* Ends the attempt of a run whose start has raised an error. */
static void
serve_failed_start(RunsTurn *turn, ErrorData *error)
{
	turn->error = error;
	error = conductor_transaction(do_starts, turn);
	if (error != NULL)
		warn("a run could not be started", error);
}

/* Starts one run; a lock puts it aside, until the dispatcher has handed it out again. */
static void
start_one(const RunStart *start)
{
	RunStart	copy = *start;	/* it may be in an entry */
	RunsTurn	turn = {.starts = &copy, .nstarts = 1};
	ErrorData  *error;
	HeldStart  *held;

	if (run_mark(db, &copy, 1) == 0)
	{
		(void) hash_search(held_starts.table, &copy.id, HASH_REMOVE, NULL);
		return;
	}
	error = conductor_transaction(do_starts, &turn);
	next_timer = DT_NOBEGIN;
	sweep_has_runs();
	if (error != NULL && conductor_error_is_transient(error))
	{
		held = held_put(&held_starts, &copy.id, true);
		held->start = copy;
	}
	else
	{
		if (error != NULL)
			serve_failed_start(&turn, error);
		held_done(&held_starts, &copy.id);
	}
	run_starts_over(db, &copy, 1);
}

/*
 * Starts the first n in one transaction, as many as its turn has time for;
 * returns the number of those that are over, 0: it has failed.
 */
static int
start_many(int n)
{
	RunStart	some[STARTS_AT_ONCE];
	RunsTurn	turn = {.starts = some};
	int			left;

	memcpy(some, starts, sizeof(RunStart) * n);
	turn.nstarts = run_mark(db, some, n);
	if (turn.nstarts > 0 && conductor_transaction(do_starts, &turn) != NULL)
		turn.done = 0;
	else if (turn.nstarts == 0)
		return n;
	left = turn.nstarts - turn.done;
	run_starts_over(db, some, turn.done);
	run_unmark(db, some + turn.done, left);
	if (turn.done == 0)
		return 0;
	memcpy(starts + n - left, some + turn.done, sizeof(RunStart) * left);
	return n - left;
}

static void
serve_starts(void)
{
	int			n = Min(nstarts, starts_alone > 0 ? 1 : STARTS_AT_ONCE);
	int			over = 1;

	if (n == 1)
		start_one(&starts[0]);
	else if ((over = start_many(n)) == 0)
	{
		starts_alone = n;
		return;
	}
	next_timer = DT_NOBEGIN;
	sweep_has_runs();
	starts_alone = Max(starts_alone - 1, 0);
	nstarts -= over;
	memmove(starts, starts + over, sizeof(RunStart) * nstarts);
}

static void
look_at_one(const pg_uuid_t *id)
{
	pg_uuid_t	copy = *id;
	RunsTurn	turn = {.looks = &copy, .nlooks = 1};
	ErrorData  *error = conductor_transaction(do_looks, &turn);
	bool		transient = error != NULL && conductor_error_is_transient(error);

	next_timer = DT_NOBEGIN;
	if (error == NULL)
	{
		held_done(&held_looks, &copy);
		return;
	}
	(void) held_put(&held_looks, &copy, transient);
	/* a quota admits it later */
	if (!transient && error->sqlerrcode != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
		warn("a run could not go on", error);
}

/* Looks that fail together stay in front, to be done one by one. */
static void
serve_list(LookList *list)
{
	pg_uuid_t	ids[LOOKS_AT_ONCE];
	RunsTurn	turn = {.looks = ids, .nlooks = Min(list->n, list->alone > 0 ? 1 : LOOKS_AT_ONCE), .done = 1};

	if (list->alone == 0)
		put_tenants_in_turn(list->looks, sizeof(Look), offsetof(Look, tenant), list->n, turn.nlooks);
	for (int i = 0; i < turn.nlooks; i++)
		ids[i] = list->looks[i].id;
	if (turn.nlooks == 1)
		look_at_one(&ids[0]);
	else if (conductor_transaction(do_looks, &turn) != NULL)
	{
		list->alone = turn.nlooks;
		return;
	}
	next_timer = DT_NOBEGIN;
	list->alone = Max(list->alone - 1, 0);
	list->n -= turn.done;
	memmove(list->looks, list->looks + turn.done, sizeof(Look) * list->n);
}

/* True if the sweep has its turn: mostly when there are no news. */
static bool
is_swept_turn(void)
{
	static int	turns = 0;

	return news.n == 0 || ++turns % SWEPT_TURNS == 0;
}

static void
serve_looks(void)
{
	if (swept.n > 0 && is_swept_turn())
		serve_list(&swept);
	else if (news.n > 0)
		serve_list(&news);
}

/* Tries what is put aside: one start, one look. */
static void
serve_held(void)
{
	HeldStart  *start = held_due(&held_starts);
	Held	   *look = held_due(&held_looks);

	if (start != NULL)
		start_one(&start->start);
	if (look != NULL)
		look_at_one(&look->id);
}

static void
serve_timers(void)
{
	RunsTurn	turn = {0};
	ErrorData  *error = conductor_transaction(do_timers, &turn);

	if (error != NULL)
		error = timers_one_by_one();
	else
	{
		next_timer = turn.next;
		return;
	}
	if (error != NULL && !conductor_error_is_transient(error))
		warn("timers of runs", error);
	next_timer = error != NULL ? GetCurrentTimestamp() + USECS_PER_SEC : DT_NOBEGIN;
}

/*
 * True if the wall clock was set back since the last call: timers that were to
 * come in a moment may be far away.
 */
static bool
clock_was_set_back(void)
{
	static int64 latest = PG_INT64_MIN;
	int64		difference = GetCurrentTimestamp() - mono_now();
	bool		back = latest > difference + USECS_PER_SEC;

	latest = difference;
	return back;
}

/* Each kind has its turn: none waits until there is nothing of another one. */
void
runs_turn(void)
{
	if (clock_was_set_back())
		sweep_again(true);
	if (swept.n == 0 && sweep_turn())
		next_timer = DT_NOBEGIN;
	if (nstarts > 0)
		serve_starts();
	serve_looks();
	serve_held();
	if (next_timer == DT_NOBEGIN || next_timer <= GetCurrentTimestamp())
		serve_timers();
}

int64
runs_time_left(void)
{
	MonoTime	next = sweep_next();
	int64		left;

	if (nstarts > 0 || news.n > 0 || swept.n > 0 || next_timer == DT_NOBEGIN)
		return 0;
	next = Min(next, Min(held_next(&held_starts), held_next(&held_looks)));
	left = next == DT_NOEND ? -1 : Max(next - mono_now(), 0);
	if (next_timer != DT_NOEND)
	{
		int64		timer = Max(next_timer - GetCurrentTimestamp(), 0);

		left = left < 0 ? timer : Min(left, timer);
	}
	return left;
}

bool
runs_are_idle(void)
{
	return nstarts == 0 && news.n == 0 && swept.n == 0 && sweep_is_idle() && held_is_empty(&held_starts) && held_is_empty(&held_looks) &&
		next_timer == DT_NOEND;
}
