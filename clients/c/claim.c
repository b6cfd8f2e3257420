/* Claims, and notifications that jobs are there. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------- claims ---------- */

static const char claim_sql[] =
	"SELECT id, job_type, payload, attempts, max_attempts, tenant, metadata, lease_token, progress_data,"
	" extract(epoch FROM lease_expires_at - clock_timestamp()),"
	" extract(epoch FROM deadline - clock_timestamp())"
	" FROM jobq.claim($1, $2, worker => $3, lease => $4, wait => $5)";

static char *
field(const PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column) ? NULL : jw_copy(PQgetvalue(result, row, column));
}

static void
read_job(const PGresult *result, int row, jobq_job *job)
{
	int64_t		now = jw_now_ms();
	double		left = atof(PQgetvalue(result, row, 9)),
				time = atof(PQgetvalue(result, row, 10));

	job->id = field(result, row, 0);
	job->type = field(result, row, 1);
	job->payload = field(result, row, 2);
	job->attempts = atoi(PQgetvalue(result, row, 3));
	job->max_attempts = atoi(PQgetvalue(result, row, 4));
	job->tenant = field(result, row, 5);
	job->metadata = field(result, row, 6);
	job->lease_token = field(result, row, 7);
	job->progress_data = field(result, row, 8);
	job->held = jw_allocate(sizeof(struct jobq_held));
	job->held->deadline = PQgetisnull(result, row, 10) ? NEVER : now + (int64_t) (time * 1000);
	job->held->expires = jw_earlier(now + (int64_t) (left * 1000), job->held->deadline);
}

static Run *
new_run(Handler *handler)
{
	Run		   *run = jw_allocate(sizeof(Run));

	run->handler = handler;
	run->jobs = jw_allocate(sizeof(jobq_job) * (size_t) handler->batch);
	return run;
}

/* Adds a claimed job to a run. */
static void
add_job(Run *run, const PGresult *result, int row)
{
	jobq_job   *job = &run->jobs[run->njobs];

	read_job(result, row, job);
	job->held->index = (uint16_t) run->njobs++;
	for (int i = 0; i < run->njobs; i++)
	{
		run->jobs[i].held->batch = run->jobs;
		run->jobs[i].held->nbatch = run->njobs;
	}
}

/* Runs a claim for so many jobs; sends it only if result is NULL. */
static bool
claim(jobq_worker *worker, const char *types, int jobs, int wait, PGresult **result)
{
	char		number[16],
				lease[32],
				seconds[32];
	const char *values[] = {types, number, worker->options.name, lease, seconds};

	snprintf(number, sizeof(number), "%d", jobs < MOST_JOBS ? jobs : MOST_JOBS);
	snprintf(lease, sizeof(lease), "%lld milliseconds", (long long) worker->lease);
	snprintf(seconds, sizeof(seconds), "%d seconds", wait);
	if (result)
		return (*result = jw_call_on(worker, &worker->claims, NULL, claim_sql, 5, values)) != NULL;
	return PQsendQueryParams(worker->claims.conn, claim_sql, 5, NULL, values, NULL, NULL, 0);
}

/* Fills a batch that another claim has begun. */
static void
fill_run(jobq_worker *worker, Run *run)
{
	Buffer		type = {0};
	PGresult   *result;

	jw_append_element(&type, run->handler->type);
	jw_append(&type, "}");
	if (claim(worker, type.data, run->handler->batch - run->njobs, 0, &result))
	{
		for (int row = 0; !jw_is_error(result) && row < PQntuples(result); row++)
			add_job(run, result, row);
		PQclear(result);
	}
	free(type.data);
}

/* Starts the claimed jobs, or releases them if the worker is stopping. */
static void
start_claimed(jobq_worker *worker, const PGresult *result)
{
	for (Handler *handler = worker->handlers; handler; handler = handler->next)
	{
		Run		   *run = NULL;

		for (int row = 0; row < PQntuples(result); row++)
		{
			if (strcmp(PQgetvalue(result, row, 1), handler->type) != 0)
				continue;
			if (run == NULL)
				run = new_run(handler);
			add_job(run, result, row);
			if (run->njobs == handler->batch && !worker->stopping)
			{
				jw_start_run(worker, run);
				run = NULL;
			}
			else if (run->njobs == handler->batch || worker->stopping)
			{
				for (int i = 0; i < run->njobs; i++)
					jw_release_job(worker, run, &run->jobs[i], "the worker stops");
				jw_free_run(run);
				run = NULL;
			}
		}
		if (run && worker->ntypes > 1)
			fill_run(worker, run);
		if (run)
			jw_start_run(worker, run);
	}
}

int
jw_running(const jobq_worker *worker)
{
	int			n = 0;

	for (Run *run = worker->runs; run; run = run->next)
		n++;
	return n;
}

/* Sends a claim if there is room, and nothing to wait for. */
void
jw_begin_claim(jobq_worker *worker)
{
	int			room = worker->options.concurrency - jw_running(worker);
	int			jobs = worker->ntypes == 1 ? room * worker->handlers->batch : room;

	if (worker->stopping || jw_stop_requested || worker->claiming || room <= 0 || jw_now_ms() < worker->claim_at)
		return;
	if (!jw_connected(worker, &worker->claims))
		return;
	worker->notified = false;
	worker->idle = worker->runs == NULL;
	worker->claim_began = jw_now_ms();
	worker->claiming = true;
	if (!claim(worker, worker->types.data, jobs, worker->wait, NULL))
		jw_lose_link(worker, &worker->claims, PQerrorMessage(worker->claims.conn));
	else
		PQflush(worker->claims.conn);
}

/* Takes the answer of a claim. */
static void
end_claim(jobq_worker *worker, PGresult *result)
{
	char		number[16];
	int64_t		now = jw_now_ms();

	worker->claiming = false;
	if (jw_has_code(result, "57014") && !worker->stopping)
	{
		/* a statement_timeout shorter than the wait: there was no job */
		worker->claims.failures = 0;
		worker->answered = true;
		if (!worker->notified && now - worker->claim_began < 1000)
			worker->claim_at = now + (int64_t) (worker->options.poll * 1000);
		return;
	}
	if (jw_is_error(result) && (worker->stopping || jw_is_transient(result)))
	{
		if (!worker->stopping)
			jw_lose_link(worker, &worker->claims, PQresultErrorMessage(result));
		return;
	}
	if (jw_is_error(result) && worker->answered)
	{
		jw_log_event(worker, "error", "claim_refused", "error", PQresultErrorMessage(result), NULL);
		worker->claim_at = now + (int64_t) ((worker->options.poll > 1 ? worker->options.poll : 1) * 1000);
		return;
	}
	if (jw_is_error(result))	/* wrong from the start */
	{
		jw_log_event(worker, "error", "claim_refused", "error", PQresultErrorMessage(result), NULL);
		worker->failed = true;
		jw_stop_requested = 1;
		return;
	}
	worker->claims.failures = 0;
	worker->answered = true;
	if (PQntuples(result) > 0)
	{
		snprintf(number, sizeof(number), "%d", PQntuples(result));
		jw_log_event(worker, "info", "claimed", "#jobs", number, NULL);
		start_claimed(worker, result);
	}
	else if (worker->until_empty && worker->idle)
		jw_stop_requested = 1;
	else if (worker->until_empty && worker->runs == NULL)
		worker->claim_at = 0;	/* the last handler has ended since the claim was sent */
	else if (!worker->notified && (worker->wait == 0 || now - worker->claim_began < 1000))
		worker->claim_at = now + (int64_t) (worker->options.poll * 1000);
}

void
jw_read_claim(jobq_worker *worker)
{
	PGresult   *result;

	if (!worker->claiming)
	{
		if (worker->claims.conn && !PQconsumeInput(worker->claims.conn))
			jw_lose_link(worker, &worker->claims, PQerrorMessage(worker->claims.conn));
		return;
	}
	if ((jw_now_ms() - worker->claim_began) > worker->wait * 1000 + worker->answer ||
		(worker->stopping && jw_now_ms() > worker->claim_ends))
		jw_lose_link(worker, &worker->claims, "no answer to a claim");
	else if (!PQconsumeInput(worker->claims.conn))
		jw_lose_link(worker, &worker->claims, PQerrorMessage(worker->claims.conn));
	else if (!PQisBusy(worker->claims.conn))
	{
		result = jw_answer_of(worker->claims.conn, worker->answer);
		end_claim(worker, result);
		PQclear(result);
	}
}

/* ---------- LISTEN ---------- */

/* A notification: there may be a job, or a cancel of a running one. */
static void
wake(jobq_worker *worker)
{
	worker->notified = true;
	worker->claim_at = 0;
	worker->beat_at = jw_earlier(worker->beat_at, jw_now_ms() + 50);
}

void
jw_read_notifications(jobq_worker *worker)
{
	PGnotify   *notification;
	int			failures = worker->listener.failures;

	if (worker->listener.conn == NULL || worker->listener.opening_ends)
	{
		if (!jw_listener_connected(worker))
			return;
		for (Handler *handler = worker->handlers; handler; handler = handler->next)
		{
			PGresult   *channel = jw_call_on(worker, &worker->listener, NULL,
											 "SELECT 'LISTEN ' || quote_ident(jobq.channel($1))", 1, &handler->type);
			PGresult   *result;

			if (channel)
				worker->listener.failures = failures;	/* a standby answers this, and refuses LISTEN */
			result = channel ? jw_call_on(worker, &worker->listener, NULL, jw_value_of(channel), 0, NULL) : NULL;

			PQclear(channel);
			PQclear(result);
			if (result == NULL)
				return;
		}
		wake(worker);
	}
	if (!PQconsumeInput(worker->listener.conn))
	{
		jw_lose_link(worker, &worker->listener, PQerrorMessage(worker->listener.conn));
		return;
	}
	while ((notification = PQnotifies(worker->listener.conn)) != NULL)
	{
		PQfreemem(notification);
		wake(worker);
	}
}
