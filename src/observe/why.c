/*
 * why.c
 *	  jobq.why: why a job does not start.
 *
 * The caller's own rights decide if the job exists for it: the row is read
 * from jobq.jobs, under its policies.  A job that waits for others (blocked)
 * is answered from its row.  For one that could start the session asks the
 * dispatcher (dispatch/why_answers.c), and takes its word: this file decides
 * nothing about hand-out.  A dispatcher that does not run, or does not answer
 * within ANSWER_US, is itself the reason.
 *
 * The session counts the jobs that go before, in the lanes that the answer
 * names, by the lane index and up to MAX_AHEAD.  It counts as the owner of
 * jobq's tables: other tenants' jobs are in the number, and in nothing else.
 * The holder of a concurrency key is named if the caller sees that job.
 */
#include "jobq.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "base/act_as.h"
#include "base/errors.h"
#include "base/relations.h"
#include "observe/health.h"
#include "shared/shmem.h"

#define ANSWER_US	USECS_PER_SEC
#define MAX_AHEAD	10000

/* queue.after_state of a task that waits for its run: 58_runs.sql */
#define RUN_EVENT	4
#define RUN_DELAY	8

PG_FUNCTION_INFO_V1(jobq_why);

typedef struct JobState
{
	char	   *status;			/* NULL: no such job for the caller */
	bool		waits;			/* pending or retry */
	bool		blocked;
} JobState;

/* The jobs that go before. */
typedef struct Ahead
{
	int64		n;
	bool		exact;
} Ahead;

/* ---------- queries ---------- */

/* Runs a query about a job, as the current user; returns the number of rows, at most max. */
static int
ask_rows(const char *query, const pg_uuid_t *id, int max)
{
	Oid			argtype = UUIDOID;
	Datum		arg = UUIDPGetDatum(id);

	if (SPI_execute_with_args(query, 1, &argtype, &arg, NULL, false, max) != SPI_OK_SELECT)
		elog(ERROR, "could not query a job");
	return (int) SPI_processed;
}

/* True if the query gave a row. */
static bool
ask(const char *query, const pg_uuid_t *id)
{
	return ask_rows(query, id, 1) > 0;
}

static char *
column_of(int row, int number)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number);
}

static char *
column(int number)
{
	return column_of(0, number);
}

static JobState
read_state(const pg_uuid_t *id)
{
	JobState	state = {0};

	if (!ask("SELECT j.status FROM jobq.jobs j WHERE j.id OPERATOR(pg_catalog.=) $1", id))
		return state;
	state.status = column(1);
	state.waits = strcmp(state.status, "pending") == 0 || strcmp(state.status, "retry") == 0;
	state.blocked = strcmp(state.status, "blocked") == 0;
	return state;
}

static WhyReason *
add_reason(WhyAnswer *a, WhyCode code, const char *message)
{
	WhyReason  *r = &a->reasons[Min(a->nreasons, WHY_REASONS - 1)];

	a->nreasons = Min(a->nreasons + 1, WHY_REASONS);
	memset(r, 0, sizeof(WhyReason));
	r->code = code;
	strlcpy(r->message, message, sizeof(r->message));
	return r;
}

static void
name_job(WhyReason *r, const char *id)
{
	r->has_job = true;
	r->job = *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(id)));
}

/*
 * Names the parents that a job waits for: the first one that lives with the
 * reason that has been added, the others and dead letters with their own.
 */
static void
add_parents(WhyAnswer *a, WhyCode code, const pg_uuid_t *id)
{
	static const char query[] =
		"SELECT p.id, p.is_dead FROM jobq.queue q, LATERAL"
		"  (SELECT o.id, false AS is_dead FROM jobq.queue o WHERE o.id OPERATOR(pg_catalog.=) ANY (q.after) UNION ALL"
		"   SELECT d.id, true FROM jobq.dead_letters d WHERE d.id OPERATOR(pg_catalog.=) ANY (q.after)"
		"      AND q.after_rule OPERATOR(pg_catalog.=) 'success') p"
		" WHERE q.id OPERATOR(pg_catalog.=) $1 ORDER BY p.is_dead DESC, p.id";
	WhyReason  *first = &a->reasons[a->nreasons - 1];
	int			n = ask_rows(query, id, WHY_REASONS - a->nreasons);

	for (int i = 0; i < n; i++)
	{
		bool		is_dead = strcmp(column_of(i, 2), "t") == 0;

		if (is_dead)
			name_job(add_reason(a, code, "a dead letter holds it, until that is retried or purged"), column_of(i, 1));
		else if (!first->has_job)
			name_job(first, column_of(i, 1));
		else
			name_job(add_reason(a, code, "it waits for the end of this job, too"), column_of(i, 1));
	}
}

/* Returns the number in a column; 0 for NULL. */
static int
number_in(int column_number)
{
	char	   *value = column(column_number);

	return value == NULL ? 0 : pg_strtoint32(value);
}

/* Adds what a blocked job waits for, besides a pause of its run. */
static void
add_wait(WhyAnswer *a, WhyCode code, int waiting_for, int after_state)
{
	if (waiting_for > 0)
		(void) add_reason(a, code, psprintf("it waits for the end of other jobs: %d", waiting_for));
	else if (after_state == RUN_EVENT)
		(void) add_reason(a, code, "it waits for an event of its workflow run");
	else if (after_state == RUN_DELAY)
		(void) add_reason(a, code, "it waits for its delay in its workflow run");
	else if (a->nreasons == 0)
		(void) add_reason(a, code, "it is about to be released");
}

/* Adds why a job is blocked: its parents, or its run. */
static void
add_blocked(WhyAnswer *a, const pg_uuid_t *id)
{
	static const char query[] =
		"SELECT q.waiting_for, q.after_state, coalesce(r.paused, false), q.workflow_id IS NULL"
		"  FROM jobq.queue q LEFT JOIN jobq.runs r ON r.id OPERATOR(pg_catalog.=) q.workflow_id"
		" WHERE q.id OPERATOR(pg_catalog.=) $1";
	int			waiting_for;
	int			after_state;
	WhyCode		code;

	if (!ask(query, id))
		return;					/* it has gone on meanwhile */
	waiting_for = number_in(1);
	after_state = number_in(2);
	code = strcmp(column(4), "t") == 0 ? WHY_AFTER : WHY_WORKFLOW;
	if (strcmp(column(3), "t") == 0)
		(void) add_reason(a, code, "its workflow run is paused");
	add_wait(a, code, waiting_for, after_state);
	add_parents(a, code, id);
}

/* ---------- the dispatcher ---------- */

/*
 * Asks the dispatcher.  Without an answer that is the reason; an answer that
 * does not find the job leaves `found` false.
 */
static void
ask_dispatcher(WhyAnswer *a, const pg_uuid_t *id)
{
	JobqDb	   *db = RecoveryInProgress() ? NULL : my_db();

	if (db == NULL || db->dispatcher.proc == NULL || db->lifecycle.suspended > 0)
	{
		want_dispatcher(db);
		a->found = true;
		(void) add_reason(a, WHY_DISPATCHER, why_no_dispatcher(db, false));
		return;
	}
	if (why_ask(db, id, mono_now() + ANSWER_US, a))
		return;
	memset(a, 0, sizeof(WhyAnswer));
	a->found = true;
	(void) add_reason(a, WHY_DISPATCHER, db->dispatcher.proc == NULL ? why_no_dispatcher(db, false) :
					  "the dispatcher does not answer");
}

/* ---------- the jobs that go before ---------- */

static int64
count_rows(const char *condition, int nargs, Oid *types, Datum *args)
{
	char	   *query = psprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM jobq.queue q WHERE %s"
								 " AND jobq_internal._live_status(q.id, q.rev, q.status)"
								 "     OPERATOR(pg_catalog.=) ANY ('{pending,retry}'::jobq.job_status[])"
								 " LIMIT %d) s", condition, MAX_AHEAD);
	bool		isnull;

	if (SPI_execute_with_args(query, nargs, types, args, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not count waiting jobs");
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* Counts the jobs of a lane; those before the job, or all. */
static int64
count_lane(int32 type_id, int16 priority, int16 sublane, const WhyAnswer *older_than, const pg_uuid_t *id)
{
	Oid			types[5] = {INT4OID, INT2OID, INT2OID, TIMESTAMPTZOID, UUIDOID};
	Datum		args[5] = {Int32GetDatum(type_id), Int16GetDatum(priority), Int16GetDatum(sublane)};

	args[3] = TimestampTzGetDatum(older_than ? older_than->position : GetCurrentTimestamp());
	args[4] = UUIDPGetDatum(id);
	return count_rows(older_than == NULL ?
					  "q.type_id OPERATOR(pg_catalog.=) $1 AND q.priority OPERATOR(pg_catalog.=) $2"
					  " AND q.sublane OPERATOR(pg_catalog.=) $3 AND q.position OPERATOR(pg_catalog.<=) $4"
					  " AND q.id OPERATOR(pg_catalog.<>) $5" :
					  "q.type_id OPERATOR(pg_catalog.=) $1 AND q.priority OPERATOR(pg_catalog.=) $2"
					  " AND q.sublane OPERATOR(pg_catalog.=) $3 AND q.position OPERATOR(pg_catalog.<=) $4"
					  " AND (q.position OPERATOR(pg_catalog.<) $4 OR q.id OPERATOR(pg_catalog.<) $5)",
					  5, types, args);
}

/*
 * Counts what goes before, as the owner.  Turns of tenants are not foreseen:
 * the number is a lower bound then.
 */
static Ahead
count_ahead(const WhyAnswer *a, const pg_uuid_t *id)
{
	Ahead		ahead = {0, true};
	Caller		caller;

	if (!a->placed || !a->behind)
		return ahead;
	caller = act_as_owner();
	ahead.n = count_lane(a->type_id, a->priority, a->sublane, a, id);
	ahead.exact = !a->fair && !a->more_groups;
	for (int i = 0; i < a->ngroups && ahead.n < MAX_AHEAD; i++)
	{
		const WhyGroup *g = &a->groups[i];

		ahead.exact &= !g->fair;
		ahead.n += count_lane(g->type_id, g->priority, 0, g->older ? a : NULL, id);
	}
	act_as_caller(caller);
	ahead.exact &= ahead.n < MAX_AHEAD;
	ahead.n = Min(ahead.n, MAX_AHEAD);
	return ahead;
}

/*
 * Returns in how many seconds the job starts: 0 without a reason, the latest
 * end of the reasons if all have one; below 0: not known.
 */
static double
start_in(const WhyAnswer *a, const Ahead *ahead)
{
	TimestampTz now = GetCurrentTimestamp();
	double		seconds = 0;
	double		turn = a->rate > 0 ? ahead->n / a->rate : 0;

	for (int i = 0; i < a->nreasons; i++)
	{
		const WhyReason *r = &a->reasons[i];

		if (r->until != 0)
			seconds = Max(seconds, (double) (r->until - now) / USECS_PER_SEC);
		else if (r->code != WHY_BEHIND || a->rate == 0)
			return -1;
	}
	return seconds + turn;
}

/* ---------- the answer ---------- */

/* True if the caller sees that job. */
static bool
sees(const pg_uuid_t *id)
{
	return ask("SELECT FROM jobq.jobs j WHERE j.id OPERATOR(pg_catalog.=) $1", id);
}

static void
add_json_string(StringInfo out, const char *key, const char *value)
{
	appendStringInfo(out, ", \"%s\": ", key);
	if (value == NULL)
		appendStringInfoString(out, "null");
	else
		escape_json(out, value);
}

static void
add_reason_json(StringInfo out, const WhyReason *r)
{
	char		until[MAXDATELEN + 1];
	const char *holder = r->holder[0] != '\0' ? r->holder : NULL;

	if (r->until != 0)
		JsonEncodeDateTime(until, TimestampTzGetDatum(r->until), TIMESTAMPTZOID, NULL);
	if (r->has_job && sees(&r->job))
		holder = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&r->job)));
	appendStringInfo(out, "{\"code\": \"%s\"", why_code_names[r->code]);
	add_json_string(out, "message", r->message);
	add_json_string(out, "until", r->until != 0 ? until : NULL);
	add_json_string(out, "holder", holder);
	appendStringInfoChar(out, '}');
}

static void
build_json(StringInfo out, const JobState *state, const WhyAnswer *a, const pg_uuid_t *id)
{
	Ahead		ahead = count_ahead(a, id);
	double		seconds = start_in(a, &ahead);

	appendStringInfo(out, "{\"status\": \"%s\", \"reasons\": [", state->status);
	for (int i = 0; i < a->nreasons; i++)
	{
		if (i > 0)
			appendStringInfoString(out, ", ");
		add_reason_json(out, &a->reasons[i]);
	}
	appendStringInfo(out, "], \"ahead\": {\"n\": " INT64_FORMAT ", \"exact\": %s}, \"start_in_s\": ", ahead.n,
					 ahead.exact ? "true" : "false");
	if (!state->waits || seconds < 0)
		appendStringInfoString(out, "null}");
	else
		appendStringInfo(out, "%.3f}", seconds);
}

static void
unknown_job(const pg_uuid_t *id)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("job \"%s\" does not exist", DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id))))));
}

/*
 * Finds out the reasons.  A job that the dispatcher does not see has gone on
 * since its row was read, or was enqueued by this very transaction.
 */
static JobState
find_out(WhyAnswer *a, const pg_uuid_t *id)
{
	JobState	state = read_state(id);

	if (state.status == NULL)
		unknown_job(id);
	if (state.waits)
	{
		ask_dispatcher(a, id);
		if (a->found && !a->handed_out)
			return state;
		state = read_state(id);
		if (state.status == NULL)
			unknown_job(id);
		if (state.waits && a->found)
			return state;
		memset(a, 0, sizeof(WhyAnswer));
		if (state.waits)
			(void) add_reason(a, WHY_DISPATCHER, "the dispatcher does not see it: it has not been committed, or has ended since this transaction began");
	}
	if (state.blocked)
		add_blocked(a, id);
	return state;
}

/* jobq.why(id) */
Datum
jobq_why(PG_FUNCTION_ARGS)
{
	WhyAnswer  *answer = palloc0(sizeof(WhyAnswer));
	StringInfoData out;
	pg_uuid_t	id;
	JobState	state;

	if (PG_ARGISNULL(0))
		argument_is_null("id");
	id = *PG_GETARG_UUID_P(0);
	initStringInfo(&out);
	SPI_connect();
	state = find_out(answer, &id);
	build_json(&out, &state, answer, &id);
	SPI_finish();
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}
