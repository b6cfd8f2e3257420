/*
 * pressure_signals.c
 *	  Built-in signals, and the C behind the SQL calls about signals.
 *
 * A condition is parsed and analysed when its signal is created, as the caller
 * and in the caller's search_path: the objects that it names must exist, and
 * it must return one boolean.  The path is stored with it, as a function's SET
 * search_path FROM CURRENT would be, so that it means the same when it is
 * evaluated (signal_condition.c).
 */
#include "jobq.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "pressure/pressure_signals.h"

#define MAX_CONDITION	10000	/* bytes */

PG_FUNCTION_INFO_V1(jobq_create_signal);
PG_FUNCTION_INFO_V1(jobq_callers_search_path);
PG_FUNCTION_INFO_V1(jobq_is_builtin_signal);
PG_FUNCTION_INFO_V1(jobq_builtin_signals);

extern PGDLLEXPORT Datum jobq_gateway(PG_FUNCTION_ARGS);

const char *const builtin_signal_names[] = {"load", "disk", "replication_lag"};

static char *callers_path = NULL;

/* ---------- built-in signals ---------- */

bool
signal_is_set(JobqDb *db, BuiltinSignal which)
{
	return (pg_atomic_read_u32(&db->builtin_signals) & ((uint32) 1 << which)) != 0;
}

void
signal_set_builtin(JobqDb *db, BuiltinSignal which, bool active)
{
	uint32		bit = (uint32) 1 << which;
	uint32		old = active ? pg_atomic_fetch_or_u32(&db->builtin_signals, bit) :
		pg_atomic_fetch_and_u32(&db->builtin_signals, ~bit);

	if (((old & bit) != 0) == active)
		return;
	ereport(LOG, (errmsg("jobq: signal \"%s\" is %s", builtin_signal_names[which], active ? "active" : "over")));
	wake_dispatcher(db);
}

int
builtin_signal(const char *name)
{
	for (int i = 0; i < JOBQ_BUILTIN_SIGNALS; i++)
	{
		if (strcmp(builtin_signal_names[i], name) == 0)
			return i;
	}
	return -1;
}

Datum
jobq_is_builtin_signal(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(builtin_signal(text_to_cstring(PG_GETARG_TEXT_PP(0))) >= 0);
}

Datum
jobq_builtin_signals(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = my_db();

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; db != NULL && i < JOBQ_BUILTIN_SIGNALS; i++)
	{
		Datum		name = CStringGetTextDatum(builtin_signal_names[i]);
		bool		isnull = false;

		if (signal_is_set(db, i))
			tuplestore_putvalues(result->setResult, result->setDesc, &name, &isnull);
	}
	return (Datum) 0;
}

/* ---------- conditions ---------- */

static bool
begins_with(const char *s, const char *word)
{
	size_t		len = strlen(word);

	return pg_strncasecmp(s, word, len) == 0 && strspn(s + len, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$") == 0;
}

char *
signal_query(const char *condition)
{
	const char *s = condition + strspn(condition, " \t\r\n");

	if (begins_with(s, "select") || begins_with(s, "with") || begins_with(s, "values"))
		return pstrdup(condition);
	return psprintf("SELECT (\n%s\n)", condition);	/* its last line may be a comment */
}

static void
bad_condition(const char *condition)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"condition\": \"%s\" is no query of one boolean", argument_shown(condition)),
			 errhint("It is a boolean expression, or a SELECT of one.")));
}

/* Returns the query, NULL for anything but one SELECT. */
static Query *
parse_condition(const char *text)
{
	List	   *statements = raw_parser(text, RAW_PARSE_DEFAULT);

	if (list_length(statements) != 1 || !IsA(linitial_node(RawStmt, statements)->stmt, SelectStmt))
		return NULL;
	return parse_analyze_fixedparams(linitial_node(RawStmt, statements), text, NULL, 0, NULL);
}

/*
 * Checks for one SELECT of one boolean column that writes nothing.  Errors in
 * it are the parser's own.
 */
static void
check_condition(const char *condition)
{
	MemoryContext context = CurrentMemoryContext;
	Query	   *query;
	TargetEntry *column;

	PG_TRY();
	{
		query = parse_condition(signal_query(condition));
	}
	PG_CATCH();
	{
		raise_with_prefix(context, "argument \"condition\": ");
	}
	PG_END_TRY();
	if (query == NULL || query->commandType != CMD_SELECT || query->hasModifyingCTE || query->rowMarks != NIL ||
		query->targetList == NIL)
		bad_condition(condition);
	column = linitial_node(TargetEntry, query->targetList);
	if (ExecCleanTargetListLength(query->targetList) != 1 || exprType((Node *) column->expr) != BOOLOID)
		bad_condition(condition);
}

/*
 * jobq.create_signal: the part that needs the caller's rights and path, before
 * the gate.
 */
Datum
jobq_create_signal(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		argument_is_null("condition");
	if (VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(1)) > MAX_CONDITION)
		argument_too_long("condition", VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(1)), MAX_CONDITION);
	check_condition(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (callers_path)
		pfree(callers_path);
	callers_path = MemoryContextStrdup(TopMemoryContext, namespace_search_path);
	return jobq_gateway(fcinfo);
}

/*
 * Returns the path that create_signal was called with: behind the gate it is
 * pinned.
 */
Datum
jobq_callers_search_path(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(callers_path ? callers_path : ""));
}
