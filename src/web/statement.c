/*
 * statement.c
 *	  Runs the statement of a route, and makes the reply of its rows.
 *
 * A list ends when its limit is reached or after 4 MB, whichever comes first:
 * then next is the key of its last item.  Rows come one by one, so that a page
 * of large payloads never takes more memory than that.  A last row without an
 * item ends a search that has taken too long: next goes on from there.
 */
#include "statement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "gzip.h"
#include "json.h"
#include "problem.h"

#define MAX_LIST_BYTES	(4 * 1024 * 1024)
#define MAX_TEXT_BYTES	(64 * 1024 * 1024)

/* Builds a statement from its pattern. */
typedef struct Builder
{
	Call	   *call;
	Work	   *work;
} Builder;

static const char *
arg_type_name(ArgType type)
{
	static const char *const names[] = {
		[ARG_TEXT] = "text",[ARG_INT] = "int4",[ARG_BIGINT] = "int8",[ARG_NUMBER] = "numeric",[ARG_BOOL] = "bool",[ARG_UUID] = "uuid",
		[ARG_INTERVAL] = "interval",[ARG_TIME] = "timestamptz",[ARG_JSON] = "jsonb",[ARG_TEXTS] = "text[]",
		[ARG_JSONS] = "jsonb[]",[ARG_UUIDS] = "uuid[]",[ARG_STATUS] = "jobq.job_status",[ARG_ACTION] = "text",[ARG_LEVEL] = "text",[ARG_SEVERITY] = "text",
		[ARG_SCHEDULE_STATUS] = "text",[ARG_KIND] = "text",[ARG_HANDLER] = "regprocedure",
		[ARG_ROLE] = "regrole",[ARG_LIMIT] = "int4",[ARG_OFFSET] = "int4",[ARG_CURSOR] = "text",
	};

	return names[type];
}

/* Adds a parameter; a string of a body without the quotes of JSON. */
static void
add_param(Builder *b, const Arg *arg, const char *value)
{
	char	   *bare = arg->place == IN_BODY && arg->type != ARG_JSON ? json_string(value, strlen(value)) : NULL;

	work_param(b->work, bare ? bare : value);
	free(bare);
}

/*
 * Adds the parameter of a value, converted to its type.  The server reads the
 * text of a parameter before it runs the statement, and says which one is
 * wrong.
 */
static void
add_value(Builder *b, int i)
{
	const Arg  *arg = &b->call->route->args[i];
	const char *value = b->call->values[i];
	const char *type = arg_type_name(arg->type);
	Buf		   *sql = &b->work->sql;
	int		   *number = &b->call->number[i];
	char		limit[16];

	if (!value && arg->type != ARG_LIMIT)
	{
		buf_printf(sql, "NULL::%s", type);
		return;
	}
	if (arg->type == ARG_LIMIT)
	{
		snprintf(limit, sizeof(limit), "%d", b->call->limit + 1);
		value = limit;
	}
	if (*number == 0)
	{
		add_param(b, arg, value);
		*number = b->work->nparams;
	}
	if (arg->type == ARG_TEXTS || arg->type == ARG_UUIDS)
		buf_printf(sql, "ARRAY(SELECT pg_catalog.jsonb_array_elements_text($%d::jsonb))::%s", *number, type);
	else if (arg->type == ARG_JSONS)
		buf_printf(sql, "ARRAY(SELECT pg_catalog.jsonb_array_elements($%d::jsonb))", *number);
	else
		buf_printf(sql, "$%d::%s", *number, type);
}

static void
add_arguments(Builder *b, const char *comma)
{
	const Arg  *args = b->call->route->args;
	int			i;

	for (i = 0; i < b->call->nargs; i++)
	{
		if (args[i].own || !b->call->given[i])
			continue;
		buf_printf(&b->work->sql, "%s%s => ", comma, args[i].name);
		add_value(b, i);
		comma = ", ";
	}
}

static void
add_marker(Builder *b, const char *name, size_t len)
{
	int			i;

	if (len == 4 && strncmp(name, "args", 4) == 0)
	{
		add_arguments(b, "");
		return;
	}
	if (len == 4 && strncmp(name, "more", 4) == 0)
	{
		add_arguments(b, ", ");
		return;
	}
	for (i = 0; i < b->call->nargs; i++)
	{
		const char *known = b->call->route->args[i].name;

		if (strlen(known) == len && strncmp(known, name, len) == 0)
		{
			add_value(b, i);
			return;
		}
	}
	log_line("no argument {%.*s}", (int) len, name);
	abort();
}

/* A marker is {word}; other braces are text, as in '{}'::text[]. */
static void
add_pattern(Builder *b, const char *pattern)
{
	while (*pattern)
	{
		size_t		text = strcspn(pattern, "{");
		size_t		word;

		buf_add(&b->work->sql, pattern, text);
		pattern += text;
		if (*pattern == '\0')
			break;
		word = strspn(pattern + 1, "abcdefghijklmnopqrstuvwxyz_");
		if (word > 0 && pattern[word + 1] == '}')
		{
			add_marker(b, pattern + 1, word);
			pattern += word + 2;
		}
		else
			buf_add(&b->work->sql, pattern++, 1);
	}
}

/* ---------- rows ---------- */

static void
add_item(Call *call, const char *text, size_t len)
{
	if (call->route->redact && web_config->redact.count > 0)
		json_redact(&call->items, text, len, &web_config->redact);
	else
		buf_add(&call->items, text, len);
}

static bool
take_list_row(Call *call, const PGresult *result, int row)
{
	if (call->limit > 0 && (call->rows == call->limit || call->items.len > MAX_LIST_BYTES))
	{
		call->more = true;
		return false;
	}
	if (PQnfields(result) > 1)
	{
		free(call->last_key);
		call->last_key = mem_text(PQgetvalue(result, row, 1));
	}
	if (PQgetisnull(result, row, 0))
	{
		call->more = call->searching = true;
		return false;
	}
	if (call->rows++ > 0)
		buf_text(&call->items, ",\n");
	add_item(call, PQgetvalue(result, row, 0), (size_t) PQgetlength(result, row, 0));
	return true;
}

static bool
take_row(Work *work, const PGresult *result, int row)
{
	Call	   *call = work->owner;

	if (call->route->shape == SHAPE_LIST)
		return take_list_row(call, result, row);
	call->rows++;
	if (PQgetisnull(result, row, 0) || PQgetlength(result, row, 0) > MAX_TEXT_BYTES)
		buf_text(&call->items, call->route->shape == SHAPE_TEXT ? "" : "null");
	else
		add_item(call, PQgetvalue(result, row, 0), (size_t) PQgetlength(result, row, 0));
	if (PQnfields(result) > 1)
	{
		free(call->last_key);
		call->last_key = mem_text(PQgetvalue(result, row, 1));
	}
	return false;
}

/*
 * Adds the time of a key: an id, whose first 48 bits are milliseconds, or
 * microseconds and a dot.
 */
void
add_searched_to(Buf *body, const char *key)
{
	char		digits[13];
	char		text[32];
	long long	ms;
	time_t		seconds;
	struct tm	utc;

	if (strchr(key, '.'))
		ms = strtoll(key, NULL, 10) / 1000;
	else
	{
		snprintf(digits, sizeof(digits), "%.8s%.4s", key, key + 9);
		ms = strtoll(digits, NULL, 16);
	}
	seconds = (time_t) (ms / 1000);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &utc));
	buf_printf(body, ",\"searched_to\":\"%s.%03dZ\"", text, (int) (ms % 1000));
}

void
call_reply_list(Call *call)
{
	Buf		   *body = &call->request->reply.body;

	buf_text(body, "{\"items\":[");
	buf_add(body, call->items.data, call->items.len);
	buf_text(body, "],\"next\":");
	if (call->more && call->limit > 0)
		buf_printf(body, "\"%s_%08x\"", call->last_key, call_filter_hash(call));
	else
		buf_text(body, "null");
	if (call->searching)
		add_searched_to(body, call->last_key);
	buf_text(body, "}\n");
	call_reply(call, 200, JSON_TYPE);
}

/* A second column is the status of the reply; that of a refusal has no body of its own. */
void
call_reply_value(Call *call)
{
	int			status = call->last_key ? atoi(call->last_key) : 200;

	if (call->rows == 0)
		status = 404;
	if (status == 404)
		problem_reply(call->request, status, "there is no such object, or you may not see it");
	else if (status == 409)
		problem_reply(call->request, status, "its state does not allow this");
	else
	{
		call->request->reply.body = call->items;
		call->items = (Buf) {0};
		buf_text(&call->request->reply.body, "\n");
		call_reply(call, status, JSON_TYPE);
	}
}

static void
reply_text(Call *call)
{
	const char *accept = call->request->facts.accept;

	call->request->reply.body = call->items;
	call->items = (Buf) {0};
	call_reply(call, 200, header_lists(accept, "application/openmetrics-text") ?
			   "application/openmetrics-text; version=1.0.0; charset=utf-8" :
			   "text/plain; version=0.0.4; charset=utf-8");
}

/* The argument that the error is about, if its message does not say so. */
static const char *
argument_of(const Call *call, const PgError *error)
{
	int			i;

	for (i = 0; i < call->nargs; i++)
	{
		if (error->parameter > 0 && call->number[i] == error->parameter)
			return call->route->args[i].name;
	}
	/* the text of a cursor is taken apart by the statement */
	return strncmp(error->sqlstate, "22", 2) == 0 && call_value(call, "cursor") ? "cursor" : NULL;
}

void
call_reply_error(Call *call, const PgError *error)
{
	problem_statement(call->request, error, argument_of(call, error));
}

static void
work_done(Work *work, const PgError *error)
{
	Call	   *call = work->owner;

	call->work = NULL;
	if (call->finished)
		call->finished(call, error);
	else if (error)
		call_reply_error(call, error);
	else if (call->route->shape == SHAPE_LIST)
		call_reply_list(call);
	else if (call->route->shape == SHAPE_TEXT)
		reply_text(call);
	else
		call_reply_value(call);
}

/* ---------- calls ---------- */

static Work *
new_work(Call *call, bool read_only)
{
	Work	   *work = work_new(call->person);

	call->rows = 0;
	call->items.len = 0;
	memset(call->number, 0, sizeof(call->number));
	work->read_only = read_only;
	work->owner = call;
	work->on_row = take_row;
	work->on_done = work_done;
	return work;
}

static void
start_work(Call *call, Work *work)
{
	call->work = work;
	if (pool_run(work))
		return;
	call->work = NULL;
	problem_reply(call->request, call->person->refused ? 401 : 503, call->person->refused ?
				  "PostgreSQL no longer lets this role in" : "too many requests wait for PostgreSQL");
}

static void
run(Call *call, const char *sql, bool read_only, bool fresh)
{
	Builder		b = {.call = call, .work = new_work(call, read_only)};

	b.work->fresh = fresh;
	add_pattern(&b, sql);
	start_work(call, b.work);
}

void
call_run_sql(Call *call, const char *sql, bool read_only)
{
	run(call, sql, read_only, false);
}

void
call_run_fresh(Call *call, const char *sql)
{
	run(call, sql, true, true);
}

void
call_run_values(Call *call, const char *sql, const char *value)
{
	Work	   *work = new_work(call, true);

	buf_text(&work->sql, sql);
	work_param(work, value);
	start_work(call, work);
}

void
call_run(Call *call)
{
	const char *method = call->route->method;

	run(call, call->route->sql, strcmp(method, "GET") == 0, false);
}
