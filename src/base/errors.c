/*
 * errors.c
 *	  Errors that users see: see errors.h.
 */
#include "jobq.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/errors.h"
#include "base/interval.h"

PG_FUNCTION_INFO_V1(jobq_shown);

#define MAX_SHOWN	63

void
argument_is_null(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be NULL", argument)));
}

void
argument_out_of_range(const char *argument, int64 value, int64 low, int64 high)
{
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("argument \"%s\": %lld is outside %lld..%lld", argument,
					(long long) value, (long long) low, (long long) high)));
}

void
argument_no_choice(const char *argument, const char *value, const char *choices)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\": \"%s\" is not one of %s", argument, argument_shown(value), choices)));
}

void
argument_too_long(const char *argument, Size bytes, Size max)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("argument \"%s\": %zu bytes are more than %zu", argument, bytes, max)));
}

void
argument_check_interval(const char *argument, const Interval *span)
{
	int64		us = interval_to_us(span);

	if (!INTERVAL_NOT_FINITE(span) && us >= 0 && us <= JOBQ_MAX_INTERVAL_US)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\": \"%s\" is outside 0..10000 years", argument,
					DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(span))))));
}

int
control_len(const unsigned char *p)
{
	if (*p < 0x20 || *p == 0x7f)
		return 1;
	if (GetDatabaseEncoding() == PG_UTF8 && p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
		return 2;
	return 0;
}

bool
has_control(const char *text)
{
	for (const char *p = text; *p != '\0'; p++)
	{
		if (control_len((const unsigned char *) p) > 0)
			return true;
	}
	return false;
}

char *
argument_shown(const char *value)
{
	int			len = (int) strlen(value);
	int			kept = pg_mbcliplen(value, len, MAX_SHOWN);
	char	   *shown = palloc(kept + 4);
	char	   *to = shown;

	for (const char *p = value; p < value + kept;)
	{
		int			control = control_len((const unsigned char *) p);

		*to++ = control > 0 ? '?' : *p;
		p += Max(control, 1);
	}
	strcpy(to, kept < len ? "..." : "");
	return shown;
}

/* jobq_internal._shown(value), STRICT */
Datum
jobq_shown(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(argument_shown(text_to_cstring(PG_GETARG_TEXT_PP(0)))));
}

char *
json_shown(Jsonb *value)
{
	return argument_shown(JsonbToCString(NULL, &value->root, VARSIZE(value)));
}

char *
json_value_shown(const JsonbValue *value)
{
	JsonbValue	copy = *value;

	return json_shown(JsonbValueToJsonb(&copy));
}

/*
 * True if the caught error is internal: then it keeps its message and CONTEXT.
 */
static bool
is_internal(void)
{
	return ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_TO_CATEGORY(ERRCODE_INTERNAL_ERROR) ||
		geterrcode() == ERRCODE_OUT_OF_MEMORY;
}

static ErrorData *
take_error(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	return error;
}

void
raise_for_caller(MemoryContext context)
{
	ErrorData  *error;

	/*
	 * a trigger that the owner has added to a table raises without a SQLSTATE
	 * of its own
	 */
	if (is_internal() || geterrcode() == ERRCODE_RAISE_EXCEPTION)
		PG_RE_THROW();
	error = take_error(context);
	error->context = NULL;
	ThrowErrorData(error);
	pg_unreachable();
}

void
raise_with_prefix(MemoryContext context, const char *prefix)
{
	ErrorData  *error;

	if (is_internal() || ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION))
		PG_RE_THROW();
	prefix = MemoryContextStrdup(context, prefix);	/* the caller has made it in ErrorContext */
	error = take_error(context);
	error->message = psprintf("%s%s", prefix, error->message);
	error->cursorpos = 0;		/* is none in the caller's statement */
	ReThrowError(error);
}

void
rethrow_after_rollback(MemoryContext context, ResourceOwner owner)
{
	ErrorData  *error = take_error(context);

	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	ReThrowError(error);
}

/*
 * ---------- hints to errors of PostgreSQL's own ----------
 *
 * The literal 'app.ok' of a handler is read by the parser, and EXECUTE is
 * checked by the executor.  A hook of the log adds the hint when the error is
 * reported: an error that a function of the user's catches has none.  elog.c
 * sends the hook's ErrorData to log and client alike.
 */

static emit_log_hook_type next_hook;

/*
 * True if the statement calls the function of jobq that the message ends with.
 */
static bool
names_our_function(const ErrorData *error)
{
	const char *name = strrchr(error->message, ' ');

	return name != NULL && strstr(debug_query_string, psprintf("jobq.%s", name + 1)) != NULL;
}

static const char *
hint_for(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_INVALID_TEXT_REPRESENTATION &&
		strcmp(error->message_id, "expected a left parenthesis") == 0 &&
		(strstr(debug_query_string, "create_job_type") || strstr(debug_query_string, "alter_job_type")))
		return "Write the argument types: ok(jsonb).";
	if (error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE &&
		strcmp(error->message_id, "permission denied for function %s") == 0 && names_our_function(error))
		return "jobq.grant_access gives the right to call functions of jobq.";
	return NULL;
}

static void
add_hint(ErrorData *error)
{
	const char *hint = NULL;

	if (error->elevel == ERROR && error->hint == NULL && error->message != NULL && error->message_id != NULL &&
		debug_query_string != NULL)
		hint = hint_for(error);
	if (hint != NULL)
		error->hint = pstrdup(hint);
	if (next_hook)
		next_hook(error);
}

void
hints_install_hook(void)
{
	next_hook = emit_log_hook;
	emit_log_hook = add_hint;
}
