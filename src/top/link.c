/*
 * link.c
 *	  The connection to PostgreSQL, without waiting for it.
 *
 * One connection, one statement at a time.  Nothing here waits: the caller
 * waits for link_wait's socket and time, then calls link_step.
 *
 * DOWN: link_step opens it at retry_at.  CONNECTING: libpq's own steps.
 * BUSY: a statement runs, first the one that makes the session read-only.
 * IDLE: link_ask may send.  Each step that takes over LIMIT_MS, and each error
 * of the connection, leads back to DOWN.
 */
#include "top/link.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "top/text.h"

#define LIMIT_MS	10000

/* Names are qualified: search_path is the role's until this has run. */
static const char session_sql[] =
	"SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),"
	" pg_catalog.set_config('default_transaction_read_only', 'on', false),"
	" pg_catalog.set_config('statement_timeout', '5s', false),"
	" pg_catalog.set_config('lock_timeout', '2s', false)";

static struct
{
	enum
	{
		DOWN, CONNECTING, BUSY, IDLE
	}			state;
	const char *const *keys;
	const char *const *values;
	int64_t		retry_ms;
	int64_t		until;			/* the next attempt, or the end of patience */
	PGconn	   *conn;
	PostgresPollingStatusType wants;
	bool		in_session;		/* session_sql has run */
	bool		needs_password;
	PGresult   *result;			/* of the running statement */
	PGresult   *answer;			/* of the ended one */
	int			losses;
	char		error[512];
	char		place[256];
} it;

int64_t
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void
drop(void)
{
	PQclear(it.result);
	PQclear(it.answer);
	it.result = it.answer = NULL;
	PQfinish(it.conn);
	it.conn = NULL;
	it.state = DOWN;
	it.in_session = false;
}

static void
lose(const char *why)
{
	size_t		len = strcspn(why, "\n");

	snprintf(it.error, sizeof(it.error), "%.*s", (int) (len < 500 ? len : 500), len ? why : "the connection was lost");
	it.needs_password = it.conn && PQconnectionNeedsPassword(it.conn);
	drop();
	it.losses++;
	it.until = now_ms() + it.retry_ms;
}

static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

static void
connect_now(void)
{
	it.conn = PQconnectStartParams(it.keys, it.values, 1);
	it.state = CONNECTING;
	it.wants = PGRES_POLLING_WRITING;
	it.until = now_ms() + LIMIT_MS;
	if (!it.conn || PQstatus(it.conn) == CONNECTION_BAD)
		lose(it.conn ? PQerrorMessage(it.conn) : "out of memory");
	else
		PQsetNoticeReceiver(it.conn, ignore_notice, NULL);
}

static void
send_statement(const char *sql, const char *parameter)
{
	it.state = BUSY;
	it.until = now_ms() + LIMIT_MS;
	if (!PQsendQueryParams(it.conn, sql, parameter ? 1 : 0, NULL, &parameter, NULL, NULL, 0))
		lose(PQerrorMessage(it.conn));
}

static void
go_on_connecting(void)
{
	it.wants = PQconnectPoll(it.conn);
	if (it.wants == PGRES_POLLING_FAILED)
		lose(PQerrorMessage(it.conn));
	else if (it.wants == PGRES_POLLING_OK)
	{
		PQsetnonblocking(it.conn, 1);
		snprintf(it.place, sizeof(it.place), "%s on %s:%s", PQdb(it.conn), PQhost(it.conn), PQport(it.conn));
		send_statement(session_sql, NULL);
	}
}

/* Keeps the result as the answer, except that of session_sql. */
static void
end_statement(void)
{
	it.state = IDLE;
	it.until = NEVER;
	if (it.in_session)
		it.answer = it.result;
	else if (PQresultStatus(it.result) == PGRES_TUPLES_OK)
	{
		it.in_session = true;
		it.error[0] = '\0';
		PQclear(it.result);
	}
	else
	{
		lose(PQresultErrorMessage(it.result));
		return;
	}
	it.result = NULL;
}

static void
go_on_reading(void)
{
	if (PQflush(it.conn) < 0 || !PQconsumeInput(it.conn))
	{
		lose(it.result ? PQresultErrorMessage(it.result) : PQerrorMessage(it.conn));
		return;
	}
	while (!PQisBusy(it.conn))
	{
		PGresult   *result = PQgetResult(it.conn);

		if (PQstatus(it.conn) == CONNECTION_BAD)
		{
			lose(result ? PQresultErrorMessage(result) : PQerrorMessage(it.conn));
			PQclear(result);
			return;
		}
		if (!result)
		{
			end_statement();
			return;
		}
		PQclear(it.result);
		it.result = result;
	}
}

/* Without a statement there is only the end of the connection to read. */
static void
look_for_end(void)
{
	if (!PQconsumeInput(it.conn) || PQstatus(it.conn) == CONNECTION_BAD)
		lose(PQerrorMessage(it.conn));
}

/* libpq may block where the socket is not ready. */
static bool
is_ready(void)
{
	struct pollfd p = {.events = it.wants == PGRES_POLLING_READING ? POLLIN : POLLOUT};

	p.fd = PQsocket(it.conn);
	return poll(&p, 1, 0) > 0;
}

void
link_open(const char *const *keys, const char *const *values, int64_t retry_ms)
{
	it.keys = keys;
	it.values = values;
	it.retry_ms = retry_ms;
	it.error[0] = '\0';
	connect_now();
}

void
link_close(void)
{
	drop();
	it.until = NEVER;
}

int
link_wait(short *events, int64_t *until)
{
	*until = it.until;
	*events = POLLIN;
	if (it.state == CONNECTING && it.wants != PGRES_POLLING_READING)
		*events = POLLOUT;
	else if (it.state == BUSY && PQflush(it.conn) > 0)
		*events |= POLLOUT;
	return it.conn ? PQsocket(it.conn) : -1;
}

void
link_step(void)
{
	if (it.state == DOWN && now_ms() >= it.until)
		connect_now();
	else if (it.state == CONNECTING && is_ready())
		go_on_connecting();
	else if (it.state == BUSY)
		go_on_reading();
	else if (it.state == IDLE)
		look_for_end();
	if ((it.state == CONNECTING || it.state == BUSY) && now_ms() >= it.until)
		lose("the server does not answer");
}

bool
link_is_idle(void)
{
	return it.state == IDLE && !it.answer;
}

const char *
link_error(void)
{
	return it.error[0] ? it.error : NULL;
}

bool
link_needs_password(void)
{
	return it.needs_password;
}

int
link_losses(void)
{
	return it.losses;
}

void
link_ask(const char *sql, const char *parameter)
{
	send_statement(sql, parameter);
}

PGresult *
link_take(void)
{
	PGresult   *answer = it.answer;

	it.answer = NULL;
	return answer;
}

const char *
link_place(void)
{
	return it.place;
}
