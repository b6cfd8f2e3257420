/* Connections, which are opened again with a back-off, and statements on them. */
#include "internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Closes a connection.  It is opened again after 0.1 s doubling to 10 s, times 0.5 to 1. */
void
jw_lose_link(jobq_worker *worker, Link *link, const char *error)
{
	double		delay = 0.1 * (1 << (link->failures < 7 ? link->failures : 7));
	char		text[32];

	delay = (delay < 10 ? delay : 10) * (0.5 + 0.5 * rand() / RAND_MAX);
	link->failures++;
	link->retry_at = jw_now_ms() + (int64_t) (delay * 1000);
	snprintf(text, sizeof(text), "%.3f", delay);
	jw_log_event(worker, "warning", "reconnecting", "error", error, "#delay", text, NULL);
	PQfinish(link->conn);
	link->conn = NULL;
	if (link == &worker->claims)
		worker->claiming = false;
}

static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

/* Those before dbname are defaults.  The keepalives find a listener whose server has vanished. */
static const char *const parameters[] = {"connect_timeout", "fallback_application_name", "client_encoding",
"keepalives_idle", "keepalives_interval", "keepalives_count", "dbname", NULL};
#define VALUES(dsn) {"5", "jobq", "UTF8", "30", "10", "3", dsn, NULL}

/* A connection cannot be made: its message outlives it until it is logged. */
static bool
connect_failed(jobq_worker *worker, Link *link, const char *message)
{
	char	   *error = jw_copy(message);

	link->opening_ends = 0;
	jw_lose_link(worker, link, error);
	free(error);
	return false;
}

/* True if the link is connected, perhaps by this call, which waits for the server. */
bool
jw_connected(jobq_worker *worker, Link *link)
{
	const char *values[] = VALUES(link->dsn);

	if (link->conn)
		return true;
	if (jw_now_ms() < link->retry_at)
		return false;
	link->conn = PQconnectdbParams(parameters, values, 1);
	if (PQstatus(link->conn) != CONNECTION_OK)
		return connect_failed(worker, link, PQerrorMessage(link->conn));
	PQsetNoticeProcessor(link->conn, ignore_notice, NULL);
	return true;
}

/* Begins or goes on to connect the listener, without a wait. */
static bool
open_listener(jobq_worker *worker, Link *link)
{
	const char *values[] = VALUES(link->dsn);
	struct pollfd fd = {0};

	if (link->conn == NULL)
	{
		if (jw_now_ms() < link->retry_at)
			return false;
		link->conn = PQconnectStartParams(parameters, values, 1);
		link->opening = PGRES_POLLING_WRITING;
		link->opening_ends = jw_now_ms() + OPEN_MS;
	}
	for (; link->opening != PGRES_POLLING_OK; link->opening = PQconnectPoll(link->conn))
	{
		if (PQstatus(link->conn) == CONNECTION_BAD || link->opening == PGRES_POLLING_FAILED)
			return connect_failed(worker, link, PQerrorMessage(link->conn));
		fd.fd = PQsocket(link->conn);
		fd.events = link->opening == PGRES_POLLING_READING ? POLLIN : POLLOUT;
		if (poll(&fd, 1, 0) == 0)
			return jw_now_ms() < link->opening_ends ? false : connect_failed(worker, link, "no answer to a connect");
	}
	PQsetNoticeProcessor(link->conn, ignore_notice, NULL);
	link->opening_ends = 0;
	return true;
}

/*
 * True if the listener is connected.  Its server may be another one than that
 * of the leases, so that a connect must not hold up heartbeats; the poll is the
 * net meanwhile.
 */
bool
jw_listener_connected(jobq_worker *worker)
{
	Link	   *link = &worker->listener;

	return (link->conn && link->opening_ends == 0) || open_listener(worker, link);
}

/* True if the error has one of these beginnings of SQLSTATEs, or none at all. */
static bool
has_class(const PGresult *result, const char *const *classes)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (code == NULL)
		return true;
	for (; *classes; classes++)
		if (strncmp(code, *classes, strlen(*classes)) == 0)
			return true;
	return false;
}

/*
 * True if a later try may succeed: a lost connection, a restart, a standby, a
 * lock, a serialization failure.
 */
bool
jw_is_transient(const PGresult *result)
{
	static const char *const classes[] = {"08", "40", "53", "55", "57", "58", "XX", "25006", "0A000", NULL};

	return has_class(result, classes);
}

/* True if that try needs another connection. */
static bool
is_lost(const PGresult *result)
{
	static const char *const classes[] = {"08", "57P", "53300", "25006", "0A000", NULL};

	return has_class(result, classes);
}

bool
jw_has_code(const PGresult *result, const char *code)
{
	const char *own = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return own && code && strcmp(own, code) == 0;
}

bool
jw_is_error(const PGresult *result)
{
	return PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK;
}

/* Waits for the answer of a statement; NULL after the time. */
PGresult *
jw_answer_of(PGconn *conn, int64_t timeout)
{
	int64_t		end = jw_now_ms() + timeout;
	PGresult   *result = NULL,
			   *next;

	for (;;)
	{
		struct pollfd fd = {.fd = PQsocket(conn),.events = POLLIN | (PQflush(conn) > 0 ? POLLOUT : 0)};
		int64_t		left = end - jw_now_ms();

		while (!PQisBusy(conn))
		{
			if ((next = PQgetResult(conn)) == NULL)
				return result;
			PQclear(result);
			result = next;
		}
		if (left <= 0 || (poll(&fd, 1, (int) left) > 0 && !PQconsumeInput(conn)))
		{
			PQclear(result);
			return NULL;
		}
	}
}

/*
 * Runs a statement on a link.  NULL: the connection was lost, or the error is
 * one that a later try may not meet.  An error with the SQLSTATE `final` is an
 * answer.
 */
PGresult *
jw_call_on(jobq_worker *worker, Link *link, const char *final, const char *sql, int n, const char *const *values)
{
	PGresult   *result = NULL;
	int64_t		answer = worker->stopping ? jw_earlier(worker->answer, 5000) : worker->answer;

	if (!jw_connected(worker, link))
		return NULL;
	if (PQsendQueryParams(link->conn, sql, n, NULL, values, NULL, NULL, 0))
		result = jw_answer_of(link->conn, answer);
	if (result == NULL || (jw_is_error(result) && is_lost(result)))
	{
		char	   *error = jw_copy(result ? PQresultErrorMessage(result) : PQerrorMessage(link->conn));

		PQclear(result);
		jw_lose_link(worker, link, *error ? error : "no answer");
		free(error);
		return NULL;
	}
	link->failures = 0;
	if (jw_is_error(result) && jw_is_transient(result) && !jw_has_code(result, final))
	{
		jw_log_event(worker, "warning", "call_delayed", "error", PQresultErrorMessage(result), NULL);
		PQclear(result);
		return NULL;
	}
	return result;
}

/* Returns the single value of a result, "" for NULL, and keeps the result. */
const char *
jw_value_of(const PGresult *result)
{
	return jw_is_error(result) || PQntuples(result) == 0 ? "" : PQgetvalue(result, 0, 0);
}

/* ---------- enqueue ---------- */

int
jobq_enqueue(PGconn *conn, const char *type, const char *payload, const char *options, char id[37])
{
	const char *values[] = {type, payload ? payload : "{}", options ? options : "{}"};
	PGresult   *answer = PQexecParams(conn,
									  "SELECT id FROM jobq.enqueue_jobs(jsonb_build_array("
									  "$3::jsonb || jsonb_build_object('job_type', $1::text, 'payload', $2::jsonb)))",
									  3, NULL, values, NULL, NULL, 0);
	int			rc = jw_is_error(answer) || PQntuples(answer) != 1 ? -1 : 0;

	if (rc == 0)
		snprintf(id, 37, "%s", jw_value_of(answer));
	PQclear(answer);
	return rc;
}
