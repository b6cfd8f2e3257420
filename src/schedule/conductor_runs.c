/*
 * conductor_runs.c
 *	  The conductor's turns for runs of workflows.
 *
 * Three kinds of work, each a transaction that waits for no flush and leaves
 * the rest of its work to others after 50 ms (run_turn_is_over): runs that
 * the dispatcher has handed out are started, runs and mapped tasks with news
 * are looked at, timers that are due are acted on.  The decisions are those of
 * src/sql/58_runs.sql.  What a crash takes back is done again: an unstarted
 * run still waits, the pass looks at all runs, timers are rows.
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
#include "schedule/conductor_timers.h"
#include "schedule/conductor_transaction.h"
#include "schedule/conductor_turns.h"
#include "settle/settle.h"
#include "shared/run_hand_outs.h"
#include "shared/slots.h"
#include "tables/queue_find.h"
#include "tables/table_shape.h"
#include "workflow/edges.h"
#include "workflow/run_begin.h"

#define LOOKS_AT_ONCE	200
#define STARTS_AT_ONCE	50
#define SWEEP_US		USECS_PER_MINUTE
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

static JobqDb *db;
static MemoryContext lasting;
static Look *looks = NULL;
static int	nlooks = 0;
static int	looks_size = 0;
static HeldList held_looks;
static HeldList held_starts;
static RunStart starts[JOBQ_RUN_STARTS];
static int	nstarts = 0;
static int	looks_alone = 0;	/* of a transaction that has failed: the first ones, one by one */
static int	starts_alone = 0;
static bool look_at_all = true;
static TimestampTz next_timer = DT_NOBEGIN; /* DT_NOBEGIN: not read yet, DT_NOEND: none */
static MonoTime next_sweep = 0;
static bool have_runs = true;

void
runs_start(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
	run_drop_marks(db);
	held_init(&held_looks, context, "jobq held runs", sizeof(Held));
	held_init(&held_starts, context, "jobq held starts", sizeof(HeldStart));
}

static void *
grown(void *array, int *size, Size element)
{
	*size = Max(*size * 2, 64);
	return array == NULL ? MemoryContextAlloc(lasting, element * *size) : repalloc(array, element * *size);
}

/* The last ones are compared: the ends of many tasks name one run. */
void
runs_look(const pg_uuid_t *id, uint32 tenant)
{
	have_runs = true;
	if (held_news(&held_looks, id))
		return;
	for (int i = nlooks - 1; i >= 0 && i >= nlooks - 32; i--)
	{
		if (memcmp(&looks[i].id, id, UUID_LEN) == 0)
			return;
	}
	if (nlooks == looks_size)
		looks = grown(looks, &looks_size, sizeof(Look));
	looks[nlooks++] = (Look) {*id, tenant};
}

void
runs_look_at_all(void)
{
	look_at_all = true;
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

static bool
is_foreign(void)
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

typedef struct Turn
{
	RunStart   *starts;
	int			nstarts;
	pg_uuid_t  *looks;
	int			nlooks;
	const ErrorData *error;		/* of a start: it ends the attempt */
	int			done;			/* out: of the starts or looks, the first ones */
	TimestampTz next;			/* out: of timers */
	bool		foreign;		/* out */
} Turn;

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
	Turn	   *turn = arg;

	turn->foreign = is_foreign();
	turn->done = turn->foreign ? turn->nstarts : 0;
	while (turn->done < turn->nstarts && (turn->done == 0 || !run_turn_is_over()))
		do_start(&turn->starts[turn->done++], turn->error);
}

static void
do_looks(void *arg)
{
	Turn	   *turn = arg;

	turn->foreign = is_foreign();
	turn->done = turn->nlooks;
	if (!turn->foreign)
		turn->done = DatumGetInt32(run_sql_for_ids("SELECT jobq_internal._look($1)", turn->looks, turn->nlooks));
}

static void
do_timers(void *arg)
{
	Turn	   *turn = arg;
	bool		isnull;
	Datum		next;

	turn->foreign = is_foreign();
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

/*
 * Reads all runs, mapped tasks, tasks that were left by a turn that was over
 * (_ready), and those that could not be ended because they were held
 * (_end_task); rows that wait for their parents are edges.c's.
 */
static void
do_read_all(void *arg)
{
	static const char sql[] = "SELECT q.id, q.tenant FROM jobq.runs r JOIN jobq.queue q ON q.id = r.id WHERE r.phase <> 'ended' UNION ALL"
		" SELECT q.id, q.tenant FROM jobq.queue q WHERE q.workflow_id IS NOT NULL AND q.status = 'running' AND q.position = 'infinity' UNION ALL"
		" (SELECT DISTINCT ON (q.workflow_id) q.id, q.tenant FROM jobq.queue q WHERE q.workflow_id IS NOT NULL"
		" AND q.status = 'blocked' AND q.waiting_for = 0 AND q.after_state < 4) UNION ALL"
		" SELECT q.id, q.tenant FROM jobq.run_timers t JOIN jobq.queue q ON q.id = t.id WHERE q.workflow_id IS NOT NULL AND q.status <> 'blocked'";
	/* a dead letter that is kept can be retried */
	static const char remove_old[] = "DELETE FROM jobq.runs o USING (SELECT r.id FROM jobq.runs r"
		" WHERE (r.keep_until < pg_catalog.now() AND r.phase = 'ended'"
		" AND NOT EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = r.id))"
		" OR (r.version = 0 AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id))"
		" FOR UPDATE SKIP LOCKED) f WHERE o.id = f.id";
	Turn	   *turn = arg;
	bool		isnull;

	turn->foreign = is_foreign();
	have_runs = false;
	if (turn->foreign)
		return;
	SPI_connect();
	if (SPI_execute(remove_old, false, 0) != SPI_OK_DELETE ||
		SPI_execute(sql, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read jobq.runs");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Datum		id = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);
		Datum		tenant = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull);

		runs_look(DatumGetUUIDP(id), isnull ? 0 : tenant_hash(DatumGetTextPP(tenant)));
	}
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
serve_failed_start(Turn *turn, ErrorData *error)
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
	Turn		turn = {.starts = &copy, .nstarts = 1};
	ErrorData  *error;
	HeldStart  *held;

	if (run_mark(db, &copy, 1) == 0)
	{
		(void) hash_search(held_starts.table, &copy.id, HASH_REMOVE, NULL);
		return;
	}
	error = conductor_transaction(do_starts, &turn);
	next_timer = DT_NOBEGIN;
	have_runs = true;
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
	Turn		turn = {.starts = some};
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
	have_runs = true;
	starts_alone = Max(starts_alone - 1, 0);
	nstarts -= over;
	memmove(starts, starts + over, sizeof(RunStart) * nstarts);
}

static void
look_at_one(const pg_uuid_t *id)
{
	pg_uuid_t	copy = *id;
	Turn		turn = {.looks = &copy, .nlooks = 1};
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
serve_looks(void)
{
	pg_uuid_t	ids[LOOKS_AT_ONCE];
	Turn		turn = {.looks = ids, .nlooks = Min(nlooks, looks_alone > 0 ? 1 : LOOKS_AT_ONCE), .done = 1};

	if (looks_alone == 0)
		take_turns(looks, sizeof(Look), offsetof(Look, tenant), nlooks, turn.nlooks);
	for (int i = 0; i < turn.nlooks; i++)
		ids[i] = looks[i].id;
	if (turn.nlooks == 1)
		look_at_one(&ids[0]);
	else if (conductor_transaction(do_looks, &turn) != NULL)
	{
		looks_alone = turn.nlooks;
		return;
	}
	next_timer = DT_NOBEGIN;
	looks_alone = Max(looks_alone - 1, 0);
	nlooks -= turn.done;
	memmove(looks, looks + turn.done, sizeof(Look) * nlooks);
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
	Turn		turn = {0};
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

static void
serve_read_all(void)
{
	Turn		turn = {0};
	ErrorData  *error = conductor_transaction(do_read_all, &turn);

	if (error != NULL && !conductor_error_is_transient(error))
		ReThrowError(error);
	look_at_all = false;
	next_timer = DT_NOBEGIN;
	next_sweep = mono_now() + (error != NULL || turn.foreign ? USECS_PER_SEC : SWEEP_US);
	if (error != NULL || turn.foreign)
		have_runs = true;		/* so that it looks again */
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
	look_at_all |= clock_was_set_back();
	if (look_at_all || (have_runs && mono_now() >= next_sweep))
		serve_read_all();
	if (nstarts > 0)
		serve_starts();
	if (nlooks > 0)
		serve_looks();
	serve_held();
	if (next_timer == DT_NOBEGIN || next_timer <= GetCurrentTimestamp())
		serve_timers();
}

int64
runs_time_left(void)
{
	MonoTime	next = have_runs ? next_sweep : DT_NOEND;
	int64		left;

	if (look_at_all || nstarts > 0 || nlooks > 0 || next_timer == DT_NOBEGIN)
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
	return nstarts == 0 && nlooks == 0 && held_is_empty(&held_starts) && held_is_empty(&held_looks) &&
		!have_runs && next_timer == DT_NOEND;
}
