/*
 * problem.c
 *	  Errors as clients see them: RFC 9457.
 *
 * The status follows from the SQLSTATE alone.  Messages of jobq name the
 * argument (argument "priority": 200 is outside ...): its name is a member of
 * its own.
 */
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RETRY_AFTER "1"
#define MAX_DETAIL	256

typedef struct Rule
{
	const char *state;			/* the beginning of SQLSTATEs */
	int			status;
} Rule;

/* The first one that fits counts. */
static const Rule rules[] = {
	{"25001", 400}, {"25006", 503}, {"22", 400}, {"28", 401}, {"42501", 403}, {"42704", 404}, {"P0002", 404},
	{"42710", 409}, {"23505", 409}, {"55006", 409}, {"40", 409}, {"54", 413}, {"53400", 429},
	{"57014", 504}, {"55P03", 504}, {"53100", 507}, {"53", 503}, {"55000", 503}, {"57", 503}, {"58", 503}, {"08", 503},
	{"3D", 503}, {"0A000", 501}, {"42883", 501}, {"42P01", 501}, {"3F000", 501}, {"23", 400},
};

static const char *
title_of(int status)
{
	static const struct
	{
		int			status;
		const char *title;
	}			titles[] = {
		{400, "Bad request"}, {401, "Not signed in"}, {403, "No right"}, {404, "Not found"},
		{405, "Method not allowed"}, {409, "Conflict"}, {413, "Too large"}, {414, "Target too long"},
		{415, "Not JSON"}, {417, "Expectation failed"}, {429, "Too many requests"}, {431, "Headers too large"},
		{501, "Not available"}, {503, "Server not available"}, {504, "Took too long"},
		{505, "HTTP version not supported"}, {507, "Disk full"}
	};
	size_t		i;

	for (i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
	{
		if (titles[i].status == status)
			return titles[i].title;
	}
	return "Server error";
}

/* The status for an error of the server; "": there is no connection. */
static int
problem_status(const char *sqlstate)
{
	size_t		i;

	if (sqlstate[0] == '\0')
		return 503;
	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
	{
		if (strncmp(sqlstate, rules[i].state, strlen(rules[i].state)) == 0)
			return rules[i].status;
	}
	return 500;
}

static void
add_member(Buf *body, const char *name, const char *value, size_t len)
{
	if (!value)
		return;
	buf_printf(body, ",\"%s\":", name);
	buf_json(body, value, len);
}

static void
add_text(Buf *body, const char *name, const char *value)
{
	add_member(body, name, value, value ? strlen(value) : 0);
}

/* Finds the name in: argument "name". */
static const char *
argument_in(const char *message, size_t *len)
{
	const char *at = message ? strstr(message, "argument \"") : NULL;

	if (!at)
		return NULL;
	at += strlen("argument \"");
	*len = strcspn(at, "\"");
	return at;
}

void
problem_body(Buf *body, int status, const char *detail, const PgError *error, const char *argument)
{
	const char *state = error ? error->sqlstate : "";
	size_t		len = argument ? strlen(argument) : 0;

	if (status == 0)
		status = problem_status(state);
	if (error)
		detail = error->message.data;
	if (error && !argument)
		argument = argument_in(detail, &len);
	buf_printf(body, "{\"type\":\"%s%s\"", *state ? "urn:jobq:sqlstate:" : "about:blank", state);
	add_text(body, "title", title_of(status));
	buf_printf(body, ",\"status\":%d", status);
	add_text(body, "detail", detail ? detail : "");
	add_text(body, "sqlstate", *state ? state : NULL);
	add_member(body, "argument", argument, len);
	add_text(body, "hint", error ? error->hint.data : NULL);
	add_text(body, "server_detail", error ? error->detail.data : NULL);
	buf_text(body, "}\n");
}

static bool
has_header(const Reply *reply, const char *name)
{
	int			i;

	for (i = 0; i < reply->nheaders; i++)
	{
		if (strcmp(reply->names[i], name) == 0)
			return true;
	}
	return false;
}

static void
send_problem(Request *request, int status, const char *detail, const PgError *error, const char *argument)
{
	request->reply.body.len = 0;
	problem_body(&request->reply.body, status, detail, error, argument);
	if ((status == 503 || status == 429) && !has_header(&request->reply, "Retry-After"))
		reply_header(request, "Retry-After", RETRY_AFTER);
	request_reply(request, status, PROBLEM_TYPE);
}

void
problem_reply(Request *request, int status, const char *detail)
{
	/* browsers show a dialog of their own for a challenge to a script */
	if (status == 401 && !request->facts.fetch_mode)
		reply_header(request, "WWW-Authenticate", "Basic realm=\"jobq\", charset=\"UTF-8\"");
	send_problem(request, status, detail, NULL, NULL);
}

void
problem_argument(Request *request, const char *argument, const char *format,...)
{
	char		detail[MAX_DETAIL];
	va_list		args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	send_problem(request, 400, detail, NULL, argument);
}

/* An object that the value of an argument names is not there: a role, a function. */
static bool
is_missing(const char *sqlstate)
{
	return strcmp(sqlstate, "42704") == 0 || strcmp(sqlstate, "42883") == 0 || strcmp(sqlstate, "3F000") == 0;
}

void
problem_statement(Request *request, const PgError *error, const char *argument)
{
	size_t		len;

	if (!argument || argument_in(error->message.data, &len))
		problem_server(request, error);
	else
		send_problem(request, is_missing(error->sqlstate) ? 404 : 400, NULL, error, argument);
}

/* The text of a connection's own error names hosts and ports: it is for the log only. */
void
problem_server(Request *request, const PgError *error)
{
	if (is_refusal(error))
		problem_reply(request, 401, "PostgreSQL does not let this role in with this password");
	else if (error->sqlstate[0])
		send_problem(request, problem_status(error->sqlstate), NULL, error, NULL);
	else
	{
		log_line("no connection: %s", error->message.data ? error->message.data : "");
		problem_reply(request, 503, "the connection to PostgreSQL is lost or cannot be opened: what was shown is stale");
	}
}
