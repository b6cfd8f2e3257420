/*
 * skip_locked_run.c
 *	  Claims, runs and completes jobs for the hand-written worker.
 */
#include "skip_locked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TID_MAX			32		/* "(4294967295,65535)" and what an array adds */

/* Columns of a claim; those behind PAYLOAD come only where the history needs them. */
enum {ID, CTID, PAYLOAD, PRIORITY, SCHEDULED_FOR, ATTEMPTS};

/*
 * Pipeline
 */
static void
submit(Worker *w, const char *statement, int n, const char *const *values)
{
	if (!PQsendQueryPrepared(w->conn, statement, n, values, NULL, NULL, 0))
		die("%s", PQerrorMessage(w->conn));
}

static void
send_sync(Worker *w)
{
	if (!PQpipelineSync(w->conn))
		die("%s", PQerrorMessage(w->conn));
}

static void
ask_for_answers(Worker *w)
{
	if (!PQsendFlushRequest(w->conn) || PQflush(w->conn) != 0)
		die("%s", PQerrorMessage(w->conn));
}

/* The answer to the next statement, or the next Sync. */
static PGresult *
next_result(Worker *w)
{
	PGresult   *result = PQgetResult(w->conn);

	if (result == NULL)
		die("%s", PQerrorMessage(w->conn));
	if (PQresultStatus(result) != PGRES_PIPELINE_SYNC && PQgetResult(w->conn) != NULL)
		die("a statement has two results");
	return result;
}

static void
expect(Worker *w, int results)
{
	while (results-- > 0)
		expect_ok(w->conn, next_result(w));
}

static void
skip_to_sync(Worker *w)
{
	bool		reached = false;

	while (!reached)
	{
		PGresult   *result = next_result(w);

		reached = PQresultStatus(result) == PGRES_PIPELINE_SYNC;
		PQclear(result);
	}
}

/* Savepoints need a transaction block. */
static bool
in_block(void)
{
	return row && batch > 1;
}

/*
 * Claiming
 */
static void
send_claim(Worker *w)
{
	if (in_block())
		submit(w, "begin", 0, NULL);
	submit(w, "claim", 0, NULL);
	ask_for_answers(w);
}

static void
take_claim(Worker *w)
{
	expect(w, in_block());
	w->claim = next_result(w);
	if (PQresultStatus(w->claim) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(w->claim));
	w->jobs = PQntuples(w->claim);
	memset(w->failed, 0, sizeof(w->failed));
	if (w->jobs > 0 && listening)
		tend_listener(w);
}

static void
drop_claim(Worker *w)
{
	PQclear(w->claim);
	w->claim = NULL;
	w->jobs = 0;
}

/*
 * Running
 */

/* The handler of a row job. */
static void
insert_row(Worker *w, const char *payload)
{
	char		ran[32];
	const char *n = strchr(payload, ':');
	char		number[32];
	const char *values[] = {number, ran};

	snprintf(ran, sizeof(ran), "%.6f", epoch_now());
	if (n == NULL)
		die("no number in payload %s", payload);
	snprintf(number, sizeof(number), "%" PRId64, (int64_t) strtoll(n + 1, NULL, 10));
	submit(w, "handler", 2, values);
}

/* False if its handler failed, or one that did not wait for its own answer. */
static bool
take_handler_results(Worker *w)
{
	bool		ok = true;

	for (int i = in_block() ? 3 : 1; i > 0; i--)
	{
		PGresult   *result = next_result(w);

		if (PQresultStatus(result) == PGRES_FATAL_ERROR)
			fprintf(stderr, "skip_locked: %s", PQresultErrorMessage(result));
		ok = ok && PQresultStatus(result) == PGRES_COMMAND_OK;
		PQclear(result);
	}
	return ok;
}

/* Runs the jobs from the given one on; returns the job known to have failed, or -1. */
static int
run_handlers(Worker *w, int from)
{
	for (int i = from; row && i < w->jobs; i++)
	{
		if (in_block())
			submit(w, "savepoint", 0, NULL);
		insert_row(w, PQgetvalue(w->claim, i, PAYLOAD));
		if (in_block())
			submit(w, "release", 0, NULL);
		if (await)
		{
			ask_for_answers(w);
			if (!take_handler_results(w))
				return i;
		}
	}
	return -1;
}

/*
 * Completing
 */
void
allocate_tids(Worker *w)
{
	w->tids = allocate((batch + 1) * TID_MAX);
}

static void
send_failures(Worker *w)
{
	for (int i = 0; i < w->jobs; i++)
	{
		const char *id = PQgetvalue(w->claim, i, ID);

		if (w->failed[i])
			submit(w, "retry", 1, &id);
	}
}

static void
send_deletion(Worker *w)
{
	const char *tids = w->tids;
	char	   *at = w->tids;

	*at++ = '{';
	for (int i = 0; i < w->jobs; i++)
	{
		if (!w->failed[i])
			at += sprintf(at, "%s\"%s\"", at == tids + 1 ? "" : ",", PQgetvalue(w->claim, i, CTID));
	}
	strcpy(at, "}");
	submit(w, "complete", 1, &tids);
}

static void
send_history(Worker *w)
{
	const char *values[] = {
		PQgetvalue(w->claim, 0, ID), PQgetvalue(w->claim, 0, PRIORITY), PQgetvalue(w->claim, 0, SCHEDULED_FOR),
		PQgetvalue(w->claim, 0, PAYLOAD), PQgetvalue(w->claim, 0, ATTEMPTS)
	};

	submit(w, "complete", 5, values);
}

/* Completes the jobs that have not failed, and commits. */
static void
send_completion(Worker *w)
{
	if (batch > 1)
		send_deletion(w);
	else if (history)
		send_history(w);
	if (in_block())
	{
		send_failures(w);
		submit(w, "commit", 0, NULL);
	}
	send_sync(w);
}

static void
take_completion(Worker *w)
{
	expect(w, batch > 1 || history);
	for (int i = 0; in_block() && i < w->jobs; i++)
		expect(w, w->failed[i]);
	expect(w, in_block() + 1);
}

/*
 * The server has skipped all statements between the failed handler and the
 * Sync.  The claim behind the Sync has failed in a transaction block; without
 * a block it has worked, and is given back before the failed job is written.
 */
static void
recover(Worker *w, bool claimed)
{
	skip_to_sync(w);
	if (in_block())
	{
		if (claimed)
		{
			send_sync(w);
			skip_to_sync(w);
		}
		submit(w, "rollback to", 0, NULL);
		send_sync(w);
		expect(w, 2);
		return;
	}
	submit(w, "rollback", 0, NULL);
	send_failures(w);
	send_sync(w);
	expect(w, claimed + 3);
}

static bool
is_enough(int64_t jobs)
{
	return wanted > 0 && finished + jobs >= wanted;
}

static void
count_finished(Worker *w)
{
	for (int i = 0; i < w->jobs; i++)
		finished += !w->failed[i];
	w->last_finished = epoch_now();
	if (is_enough(0))
		stop(0);
}

/* Returns the first job, from the given one on, with a failed handler, or -1. */
static int
take_handlers(Worker *w, int from)
{
	for (int i = from; row && !await && i < w->jobs; i++)
	{
		if (!take_handler_results(w))
			return i;
	}
	return -1;
}

/*
 * Runs the claimed jobs from the given one on, and takes the next
 * claim; or stops at one that fails.
 */
static int
run_from(Worker *w, int from)
{
	int			failed = run_handlers(w, from);
	bool		claim_next = failed < 0 && !stopping && !is_enough(w->jobs);

	if (failed < 0)
		send_completion(w);
	else
		send_sync(w);
	if (claim_next)
		send_claim(w);
	if (failed < 0)
		failed = take_handlers(w, from);
	if (failed >= 0)
	{
		w->failed[failed] = true;
		recover(w, claim_next);
		return failed;
	}
	take_completion(w);
	count_finished(w);
	drop_claim(w);
	if (claim_next)
		take_claim(w);
	return -1;
}

static void
run_claim(Worker *w)
{
	int			failed = run_from(w, 0);

	while (failed >= 0 && in_block())
		failed = run_from(w, failed + 1);
	if (failed >= 0)
		drop_claim(w);
}

static void
end_empty_claim(Worker *w)
{
	drop_claim(w);
	if (in_block())
		submit(w, "commit", 0, NULL);
	send_sync(w);
	expect(w, in_block() + 1);
}

/* A claim in hand at the end is given back by the disconnection. */
void *
run_worker(void *arg)
{
	Worker	   *w = arg;

	while (!stopping)
	{
		if (w->claim == NULL)
		{
			send_claim(w);
			take_claim(w);
		}
		if (w->jobs > 0)
			run_claim(w);
		else
		{
			end_empty_claim(w);
			sleep_for_jobs(w);
		}
	}
	PQfinish(w->conn);
	return NULL;
}
