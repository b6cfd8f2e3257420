/*
 * link.c
 *	  Connections to PostgreSQL, opened without waiting.
 *
 * The connection string names the server; role, password and database are
 * those of the person, as separate parameters that libpq does not expand.  The
 * password must have been asked for: a server that lets everybody in from
 * here (trust, peer) would take any password, so its sign-ins are refused.
 *
 * libpq reports why a connection failed as text only.  With verbose errors the
 * text of the server has the SQLSTATE.  libpq looks up host names with a
 * blocking call: dsn should have addresses, or hostaddr.
 */
#include "link.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS		64
#define CONNECT_MS		(5 * SECOND)

/* Fixed for all sessions: formats of the API, limits of contract. */
static const char setup[] =
"SET search_path = pg_catalog, pg_temp; SET statement_timeout = '5s'; SET lock_timeout = '4s';"
"SET idle_in_transaction_session_timeout = '10s'; SET client_encoding = 'UTF8'; SET datestyle = 'ISO';"
"SET timezone = 'UTC'; SET intervalstyle = 'postgres'; SET default_transaction_isolation = 'read committed';"
"SET standard_conforming_strings = on; SET bytea_output = 'hex'; SET extra_float_digits = 1;"
"SET default_transaction_read_only = off; SET row_security = on";

static PQconninfoOption *dsn_options = NULL;

bool
links_open(const char *dsn)
{
	char	   *error = NULL;

	dsn_options = PQconninfoParse(dsn ? dsn : "", &error);
	if (!dsn_options)
	{
		log_line("dsn: %s", error ? error : "out of memory");
		PQfreemem(error);
		return false;
	}
	return true;
}

static bool
is_personal(const char *keyword)
{
	return strcmp(keyword, "user") == 0 || strcmp(keyword, "password") == 0 || strcmp(keyword, "passfile") == 0;
}

typedef struct Options
{
	const char *names[MAX_OPTIONS + 1];
	const char *values[MAX_OPTIONS + 1];
	int			count;
} Options;

static void
add_option(Options *o, const char *name, const char *value)
{
	if (o->count < MAX_OPTIONS && value)
	{
		o->names[o->count] = name;
		o->values[o->count++] = value;
	}
}

/* A person with a password gets nothing of dsn that could take its place. */
static PGconn *
start(const Person *person)
{
	Options		o = {.count = 0};
	PQconninfoOption *d;

	for (d = dsn_options; d->keyword; d++)
	{
		if (d->val && !(person->password && is_personal(d->keyword)) &&
			!(person->role && strcmp(d->keyword, "user") == 0) &&
			!(person->role && !person->password && strcmp(d->keyword, "password") == 0) &&
			!(person->database && strcmp(d->keyword, "dbname") == 0) &&
			strcmp(d->keyword, "fallback_application_name") != 0 && strcmp(d->keyword, "client_encoding") != 0)
			add_option(&o, d->keyword, d->val);
	}
	add_option(&o, "user", person->role);
	add_option(&o, "dbname", person->database);
	add_option(&o, "password", person->password);
	add_option(&o, "fallback_application_name", "jobq-web");
	add_option(&o, "client_encoding", "UTF8");
	return PQconnectStartParams(o.names, o.values, 0);
}

static void
set_error(PgError *error, const char *sqlstate, const char *message)
{
	memcpy(error->sqlstate, sqlstate, strlen(sqlstate) + 1);
	buf_text(&error->message, message);
	while (error->message.len > 0 && error->message.data[error->message.len - 1] == '\n')
		error->message.data[--error->message.len] = '\0';
}

static bool
is_sqlstate(const char *s)
{
	size_t		i;

	for (i = 0; i < 5; i++)
	{
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z')))
			return false;
	}
	return s[5] == ':';
}

/*
 * Finds "FATAL:  28P01: message" in the messages of all hosts; the last one
 * counts.  Without one the server was not reached.
 */
static void
connection_error(PgError *error, const PGconn *pg)
{
	const char *message = PQerrorMessage(pg);
	const char *found = NULL;
	const char *at;
	char		state[6] = "";
	char	   *line;

	for (at = strstr(message, ":  "); at; at = strstr(at + 1, ":  "))
	{
		if (is_sqlstate(at + 3))
			found = at + 3;
	}
	if (!found)
	{
		set_error(error, "", message);
		return;
	}
	memcpy(state, found, 5);
	found += 6;
	found += strspn(found, " ");
	line = mem_copy(found, strcspn(found, "\n"));
	set_error(error, state, line);
	free(line);
}

/*
 * The context of an error in a parameter's text is "unnamed portal parameter
 * $1", in any language; that of functions has statements in quotes.
 */
static int
parameter_in(const char *context)
{
	size_t		len = context ? strcspn(context, "$\"\n") : 0;

	return context && context[len] == '$' ? atoi(context + len + 1) : 0;
}

void
pg_error_of(PgError *error, const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	pg_error_free(error);
	set_error(error, state && strlen(state) == 5 ? state : "", message ? message : PQresultErrorMessage(result));
	if (detail)
		buf_text(&error->detail, detail);
	if (hint)
		buf_text(&error->hint, hint);
	error->parameter = parameter_in(PQresultErrorField(result, PG_DIAG_CONTEXT));
}

void
pg_error_free(PgError *error)
{
	buf_free(&error->message);
	buf_free(&error->detail);
	buf_free(&error->hint);
	error->sqlstate[0] = '\0';
	error->parameter = 0;
}

bool
is_refusal(const PgError *error)
{
	return strncmp(error->sqlstate, "28", 2) == 0;
}

static void
lose(Link *link, const char *sqlstate, const char *message)
{
	PgError		error = {.sqlstate = ""};

	if (message)
		set_error(&error, sqlstate, message);
	else
		connection_error(&error, link->pg);
	if (!link->open)
		person_verdict(link->person, is_refusal(&error) ? VERDICT_REFUSED : VERDICT_NONE);
	link->deadline = NEVER;
	link->on_lost(link, &error);
	pg_error_free(&error);
}

void
link_lost(Link *link)
{
	lose(link, "", NULL);
}

static bool
watch(Link *link, uint32_t events)
{
	link->source.fd = PQsocket(link->pg);
	return link->source.fd >= 0 && loop_watch(&link->source, events);
}

bool
link_flush(Link *link)
{
	int			left = PQflush(link->pg);

	return left >= 0 && watch(link, left > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Reads the results of setup; an error among them ends the connection. */
static void
take_setup(Link *link)
{
	PGresult   *result;

	while (!PQisBusy(link->pg))
	{
		result = PQgetResult(link->pg);
		if (!result)
		{
			link->setting_up = false;
			link->open = true;
			link->deadline = NEVER;
			person_verdict(link->person, VERDICT_LET_IN);
			link->on_open(link);
			return;
		}
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
		{
			PgError		error = {.sqlstate = ""};

			pg_error_of(&error, result);
			PQclear(result);
			lose(link, error.sqlstate, error.message.data);
			pg_error_free(&error);
			return;
		}
		PQclear(result);
	}
}

static void
begin_setup(Link *link)
{
	if (link->person->password && !PQconnectionUsedPassword(link->pg))
	{
		lose(link, "28000", "the server has let the role in without asking for a password");
		return;
	}
	PQsetErrorVerbosity(link->pg, PQERRORS_DEFAULT);
	PQsetnonblocking(link->pg, 1);
	link->setting_up = true;
	if (!PQsendQuery(link->pg, setup) || !link_flush(link))
		link_lost(link);
}

static void
go_on_connecting(Link *link)
{
	PostgresPollingStatusType status = PQconnectPoll(link->pg);

	if (status == PGRES_POLLING_OK)
		begin_setup(link);
	else if (status == PGRES_POLLING_FAILED ||
			 !watch(link, status == PGRES_POLLING_READING ? EPOLLIN : EPOLLOUT))
		link_lost(link);
}

static void
link_ready(Source *source, uint32_t events)
{
	Link	   *link = (Link *) source;

	if (!link->open && !link->setting_up)
	{
		go_on_connecting(link);
		return;
	}
	if ((events & EPOLLOUT) && !link_flush(link))
	{
		link_lost(link);
		return;
	}
	if (!PQconsumeInput(link->pg))
		link_lost(link);
	else if (link->setting_up)
		take_setup(link);
	else
		link->on_input(link);
}

static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

void
link_check(Link *link, uint64_t now)
{
	if (now < link->deadline)
		return;
	if (link->pg && PQstatus(link->pg) != CONNECTION_BAD)
		lose(link, "", "the server did not answer in time");
	else
		link_lost(link);
}

Link *
link_open(Person *person)
{
	Link	   *link = mem_zero(sizeof(Link));

	link->person = person;
	person_hold(person);
	person->links++;
	link->pg = start(person);
	link->source.fd = -1;
	link->source.ready = link_ready;
	link->opened = now_ms();
	link->deadline = link->opened + CONNECT_MS;
	if (!link->pg)
	{
		log_line("out of memory");
		exit(1);
	}
	PQsetErrorVerbosity(link->pg, PQERRORS_VERBOSE);
	PQsetNoticeReceiver(link->pg, ignore_notice, NULL);
	if (PQstatus(link->pg) == CONNECTION_BAD || !watch(link, EPOLLOUT))
		link->deadline = 0;		/* link_check() reports it */
	return link;
}

void
link_close(Link *link)
{
	loop_unwatch(&link->source);
	PQfinish(link->pg);
	link->pg = NULL;
	link->person->links--;
	person_release(link->person);
	loop_free(link);
}
