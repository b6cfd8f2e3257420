/*
 * signal_condition_worker.c
 *	  The short-lived process that evaluates the condition of a signal
 *	  (jobq.create_signal).
 *
 * Started by the dispatcher, one a database at a time.  It connects as the
 * bootstrap superuser, and evaluates the condition in a read-only transaction,
 * with the rights of the definer and no way back from them (a
 * security-restricted operation, as for an index expression), in the
 * search_path of its creation, for at most five seconds; then it rolls back.
 * It writes a new answer in another transaction, as the owner of jobq's
 * tables, which wakes the dispatcher.
 *
 * SIGTERM is die; the dispatcher sends it when DDL needs jobq's tables or the
 * database, or when a condition exceeds its time limit, which the next process
 * records.
 */
#include "jobq.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
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
#include "pressure/pressure_rules.h"
#include "pressure/pressure_signals.h"
#include "shared/process_start.h"
#include "shared/worker_need.h"

#define CONDITION_MS	5000
#define GRACE_MS		10000	/* to start, and beyond the limit */
#define PROBLEM_LEN		200

static const char too_long[] = "it takes longer than 5 seconds";

PGDLLEXPORT void jobq_signal_worker_main(Datum arg);

typedef struct Errand
{
	Oid			dboid;
	int32		signal;
	int32		overrun;		/* signal whose process had to be ended; 0: none */
} Errand;

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

static BackgroundWorkerHandle *handle = NULL;
static int32 asked;				/* the signal that it was started for */
static MonoTime must_end;
static int32 overrun = 0;

bool
signal_worker_start(JobqDb *db, int32 signal)
{
	BackgroundWorker worker;
	Errand		errand = {.dboid = db->dboid, .signal = signal, .overrun = overrun};
	MemoryContext old;
	bool		ok;

	StaticAssertStmt(sizeof(Errand) <= BGW_EXTRALEN, "an errand fits into bgw_extra");
	describe_worker(&worker, "jobq signal worker", "jobq_signal_worker_main", db->dboid);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &errand, sizeof(errand));
	old = MemoryContextSwitchTo(TopMemoryContext);
	ok = RegisterDynamicBackgroundWorker(&worker, &handle);
	MemoryContextSwitchTo(old);
	note_worker(db, WORKER_SIGNAL, ok);
	if (!ok)
	{
		handle = NULL;
		return false;
	}
	asked = signal;
	overrun = 0;
	must_end = mono_now() + (CONDITION_MS + GRACE_MS) * INT64CONST(1000);
	return true;
}

bool
signal_worker_runs(MonoTime now)
{
	pid_t		pid;

	if (handle == NULL)
		return false;
	if (GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED)
	{
		pfree(handle);
		handle = NULL;
		return false;
	}
	if (now > must_end)
	{
		overrun = asked;
		TerminateBackgroundWorker(handle);
	}
	return true;
}

bool
signal_worker_leave(void)
{
	if (handle)
	{
		TerminateBackgroundWorker(handle);
		pressure_ask_again(asked);
	}
	return !signal_worker_runs(DT_NOBEGIN);
}

/* ---------- the process ---------- */

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

/* Reads the condition of that signal, if it still has one. */
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
				" WHERE id = $1 AND condition IS NOT NULL",
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

void
jobq_signal_worker_main(Datum arg)
{
	Errand		errand;
	Condition	condition;
	Answer		answer;

	memcpy(&errand, MyBgworkerEntry->bgw_extra, sizeof(errand));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(errand.dboid, InvalidOid, 0);
	neutralise_session();
	set_for_session("search_path", "pg_catalog, pg_temp");
	set_for_session("lock_timeout", "5s");
	if (errand.overrun != 0)
	{
		memset(&answer, 0, sizeof(answer));
		answer.isnull = true;
		strlcpy(answer.problem, too_long, sizeof(answer.problem));
		write_answer(errand.overrun, &answer);
	}
	if (read_condition(errand.signal, &condition))
	{
		ask(&condition, &answer);
		write_answer(errand.signal, &answer);
	}
	proc_exit(0);
}
