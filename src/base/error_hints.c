/*
 * error_hints.c
 *	  Hints to errors that PostgreSQL raises before any code of jobq runs.
 *
 * The literal 'app.ok' of a handler is read by the parser, and EXECUTE is
 * checked by the executor.  A hook of the log adds the hint when the error is
 * reported: an error that a function of the user's catches has none.  elog.c
 * sends the hook's ErrorData to log and client alike.
 */
#include "jobq.h"

#include "tcop/tcopprot.h"

#include "base/error_hints.h"

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
