/*
 * signal_condition.c
 *	  The conditions of signals (jobq.create_signal).
 *
 * The dispatcher asks for the conditions that are due; maintenance evaluates
 * them, one in a process.  A condition is evaluated in a read-only
 * transaction, with the rights of the definer and no way back from them (a
 * security-restricted operation, as for an index expression), in the
 * search_path of its creation, for at most five seconds; then it is rolled
 * back.  A new answer is written in another transaction, as the owner of
 * jobq's tables, which wakes the dispatcher.
 *
 * When a condition exceeds its time limit and ignores the cancel, the
 * dispatcher terminates the process, and the next one records that.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/act_as.h"
#include "base/relations.h"
#include "base/session.h"
#include "pressure/pressure_signals.h"
#include "pressure/signal_condition.h"
#include "shared/child_process.h"

#define CONDITION_MS	5000
#define GRACE_MS		10000	/* beyond the limit */
#define KILL_AGAIN_US	USECS_PER_SEC
#define PROBLEM_LEN		200

static const char too_long[] = "it takes longer than 5 seconds";

typedef struct Condition
{
	char	   *query;
	char	   *definer;
	Oid			definer_oid;
	char	   *path;
} Condition;

typedef struct Answer
{
	bool		value;
	bool		isnull;
	char		problem[PROBLEM_LEN + 1];	/* the reason of a missing value */
} Answer;

/* ---------- the dispatcher's side ---------- */

bool
condition_ask(JobqDb *db, int32 signal)
{
	MaintenanceProcess *m = &db->maintenance;
	bool		asked;

	SpinLockAcquire(&db->mutex);
	asked = m->evaluated == signal;
	for (int i = 0; i < m->nconditions; i++)
		asked |= m->conditions[i] == signal;
	if (!asked && m->nconditions < JOBQ_ASKED_CONDITIONS)
	{
		m->conditions[m->nconditions++] = signal;
		asked = true;
	}
	SpinLockRelease(&db->mutex);
	return asked;
}

bool
conditions_are_asked(JobqDb *db)
{
	return db->maintenance.nconditions > 0 || db->maintenance.overrun != 0;
}

MonoTime
condition_must_end(JobqDb *db)
{
	MonoTime	end = db->maintenance.must_end;

	return end == 0 ? DT_NOEND : end;
}

void
condition_terminate_overdue(JobqDb *db, MonoTime now)
{
	MaintenanceProcess *m = &db->maintenance;
	bool		overdue;

	if (now < condition_must_end(db))
		return;
	SpinLockAcquire(&db->mutex);
	overdue = m->evaluated != 0 && m->must_end <= now;
	if (overdue)
	{
		m->overrun = m->evaluated;
		m->must_end = now + KILL_AGAIN_US;
	}
	SpinLockRelease(&db->mutex);
	if (overdue)
		(void) child_dismiss(&m->child, true);
}

/* ---------- evaluation ---------- */

/* Runs a query of jobq's own tables, as their owner. */
static bool
ask_own(const char *sql, int nargs, Oid *types, Datum *args, const char *nulls)
{
	Caller		caller = act_as(jobq_owner(), SECURITY_RESTRICTED_OPERATION);
	bool		found;

	found = SPI_execute_with_args(sql, nargs, types, args, nulls, false, 1) == SPI_OK_SELECT && SPI_processed == 1;
	act_as_caller(caller);
	return found;
}

static char *
text_of(int column)
{
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
}

/*
 * Reads the condition of that signal, if it still has one.  A restored dump
 * may have been loaded since the dispatcher asked: it does nothing before it
 * is adopted.
 */
static bool
read_condition(int32 id, Condition *condition)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(id);
	bool		found;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	found = OidIsValid(get_extension_oid("jobq", true)) &&
		ask_own("SELECT condition, definer, search_path, coalesce(definer_oid, 0) FROM jobq.signals"
				" WHERE id = $1 AND condition IS NOT NULL AND jobq_internal._home_is_ours()",
				1, &type, &value, NULL);
	if (found)
	{
		condition->query = MemoryContextStrdup(context, signal_query(text_of(1)));
		condition->definer = MemoryContextStrdup(context, text_of(2));
		condition->path = MemoryContextStrdup(context, text_of(3));
		condition->definer_oid = atooid(text_of(4));
	}
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return found;
}

static Oid
definer_of(const Condition *condition)
{
	return SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(condition->definer_oid)) ? condition->definer_oid : InvalidOid;
}

/*
 * Evaluates the condition as its definer, in a transaction that is rolled
 * back.
 */
static void
evaluate(const Condition *condition, Answer *answer)
{
	Oid			definer = definer_of(condition);

	if (!OidIsValid(definer))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", condition->definer)));
	(void) act_as(definer, SECURITY_RESTRICTED_OPERATION);
	XactReadOnly = true;
	(void) set_config_option("search_path", condition->path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (SPI_execute(condition->query, true, 2) != SPI_OK_SELECT || SPI_tuptable->tupdesc->natts != 1 ||
		SPI_gettypeid(SPI_tuptable->tupdesc, 1) != BOOLOID)
		strlcpy(answer->problem, "it does not say one boolean", sizeof(answer->problem));
	else if (SPI_processed > 1)
		strlcpy(answer->problem, "it has more than one row", sizeof(answer->problem));
	else
	{
		if (SPI_processed == 1)
			answer->value = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
													   &answer->isnull));
		if (answer->isnull)
			strlcpy(answer->problem, "it is NULL", sizeof(answer->problem));
	}
}

static void
note_problem(Answer *answer, const ErrorData *error)
{
	char		text[PROBLEM_LEN * 4];

	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		strlcpy(text, too_long, sizeof(text));
	else
		snprintf(text, sizeof(text), "%s (%s)", error->message, unpack_sql_state(error->sqlerrcode));
	text[pg_mbcliplen(text, (int) strlen(text), PROBLEM_LEN)] = '\0';
	strlcpy(answer->problem, text, sizeof(answer->problem));
	answer->isnull = true;
}

static void
ask(const Condition *condition, Answer *answer)
{
	MemoryContext context = CurrentMemoryContext;

	memset(answer, 0, sizeof(*answer));
	answer->isnull = true;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	enable_timeout_after(STATEMENT_TIMEOUT, CONDITION_MS);
	pgstat_report_activity(STATE_RUNNING, condition->query);
	PG_TRY();
	{
		evaluate(condition, answer);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		disable_timeout(STATEMENT_TIMEOUT, false);
		QueryCancelPending = false;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		note_problem(answer, error);
		FreeErrorData(error);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	disable_timeout(STATEMENT_TIMEOUT, false);
	QueryCancelPending = false;
	AbortCurrentTransaction();
	MemoryContextSwitchTo(context);
	pgstat_report_activity(STATE_IDLE, NULL);
}

static void
write_answer(int32 id, const Answer *answer)
{
	MemoryContext context = CurrentMemoryContext;
	Oid			types[3] = {INT4OID, BOOLOID, TEXTOID};
	Datum		args[3] = {Int32GetDatum(id), BoolGetDatum(answer->value), CStringGetTextDatum(answer->problem)};
	char		nulls[3] = {' ', answer->isnull ? 'n' : ' ', answer->problem[0] ? ' ' : 'n'};

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (OidIsValid(get_extension_oid("jobq", true)))
		(void) ask_own("SELECT jobq_internal._signal_checked($1, $2, $3)", 3, types, args, nulls);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
}

/* ---------- in the process ---------- */

/* Takes the next condition, and the one whose process had to be terminated; 0: none. */
static int32
take(JobqDb *db, int32 *overrun)
{
	MaintenanceProcess *m = &db->maintenance;
	int32		signal = 0;

	SpinLockAcquire(&db->mutex);
	*overrun = m->overrun;
	m->overrun = 0;
	if (m->nconditions > 0)
	{
		signal = m->conditions[0];
		memmove(&m->conditions[0], &m->conditions[1], sizeof(int32) * --m->nconditions);
		m->must_end = mono_now() + (CONDITION_MS + GRACE_MS) * INT64CONST(1000);
	}
	m->evaluated = signal;
	SpinLockRelease(&db->mutex);
	return signal;
}

void
condition_run(JobqDb *db)
{
	Condition	condition;
	Answer		answer = {.isnull = true};
	int32		overrun;
	int32		signal = take(db, &overrun);

	set_for_session("lock_timeout", "5s");
	if (overrun != 0)
	{
		strlcpy(answer.problem, too_long, sizeof(answer.problem));
		write_answer(overrun, &answer);
	}
	if (signal != 0 && read_condition(signal, &condition))
	{
		ask(&condition, &answer);
		write_answer(signal, &answer);
	}
	SpinLockAcquire(&db->mutex);
	db->maintenance.evaluated = 0;
	db->maintenance.must_end = 0;
	SpinLockRelease(&db->mutex);
}

void
condition_interrupted(JobqDb *db)
{
	MaintenanceProcess *m = &db->maintenance;
	bool		for_ddl = child_must_leave(db);

	SpinLockAcquire(&db->mutex);
	if (m->evaluated != 0 && m->evaluated != m->overrun && for_ddl && m->nconditions < JOBQ_ASKED_CONDITIONS)
		m->conditions[m->nconditions++] = m->evaluated;
	m->evaluated = 0;
	m->must_end = 0;
	SpinLockRelease(&db->mutex);
}
