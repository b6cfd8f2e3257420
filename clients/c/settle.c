/* How jobs end, and their leases until then. */
#include "internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---------- settlements ---------- */

static void
finish_job(jobq_worker *worker, jobq_job *job, const char *outcome, const char *error, const char *answer)
{
	char		event[32];

	if (job->held->outcome)
		return;
	job->held->outcome = outcome;
	snprintf(event, sizeof(event), "job_%s", outcome);
	jw_log_end(worker, job, event, answer ? answer : outcome, error);
	if (worker->options.job_end && job->held->began)
		worker->options.job_end(job, outcome, worker->options.arg);
}

void
jw_send_order(Run *run, jobq_job *job, char kind)
{
	Order		order = {.kind = kind,.index = job->held->index};

	if (run->pid)
		(void) send(run->fd, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Stops a job's handler.  The child is killed later if each of its jobs is stopped. */
void
jw_stop_job(Run *run, jobq_job *job, char reason)
{
	if (job->held->stopped || job->held->outcome)
		return;
	job->held->stopped = reason;
	jw_send_order(run, job, reason);
	if (run->pid)
		kill(run->pid, SIGTERM);
	for (int i = 0; i < run->njobs; i++)
		if (!run->jobs[i].held->stopped)
			return;
	run->kill_at = jw_now_ms() + STOP_MS;
}

/*
 * The token is no longer valid.  A job that its handler has completed in a
 * transaction of its own is over by that: the transaction was committed.
 */
static void
lose_job(jobq_worker *worker, Run *run, jobq_job *job)
{
	if (job->held->own == 'd' && job->held->ended)
	{
		finish_job(worker, job, "completed", NULL, NULL);
		return;
	}
	jw_stop_job(run, job, 'l');
	finish_job(worker, job, "lost", NULL, NULL);
}

/* The time that a call about the job may wait for its row's lock: less after a first try. */
static const char *
lock_of(const jobq_worker *worker, const jobq_job *job)
{
	return job->held->retry_at ? worker->short_lock : worker->lock;
}

/* Tells a failure.  False: not told yet. */
static bool
tell_failure(jobq_worker *worker, Run *run, jobq_job *job, const char *message, int retryable, const char *outcome)
{
	static const char sql[] = "SELECT jobq.fail($1, $2, $3, retryable => $4, error_code => $5,"
		" retry_after => $6, details => $7)" BOUNDED("$8");
	const char *may_retry = retryable > 0 ? "true" : retryable < 0 ? "false" : NULL;
	bool		given = job->held->end == END_FAIL;
	PGresult   *result = CALL(worker, sql, job->id, job->lease_token, message, may_retry,
							  given ? job->held->code : NULL, given ? job->held->retry_after : NULL,
							  given ? job->held->details : NULL, lock_of(worker, job));

	if (result && jw_is_error(result))		/* a text or interval that the server cannot store */
	{
		jw_log_event(worker, "error", "settlement_failed", "job_id", job->id, "error", PQresultErrorMessage(result), NULL);
		PQclear(result);
		result = CALL(worker, sql, job->id, job->lease_token, message, may_retry, NULL, NULL, NULL, lock_of(worker, job));
	}
	if (result && jw_is_error(result))
	{
		PQclear(result);
		result = CALL(worker, sql, job->id, job->lease_token, "the handler's error cannot be stored", may_retry,
					  NULL, NULL, NULL, lock_of(worker, job));
	}
	if (result == NULL)
		return false;
	if (jw_is_error(result) || strcmp(jw_value_of(result), "lost") == 0)
		lose_job(worker, run, job);
	else if (strcmp(outcome, "failed") == 0)
		finish_job(worker, job, outcome, message, jw_value_of(result));
	else
		finish_job(worker, job, outcome, NULL, NULL);
	PQclear(result);
	return true;
}

/* Tells the end of an attempt that a call of boolean answers.  False: not told yet. */
static bool
told(jobq_worker *worker, Run *run, jobq_job *job, PGresult *result, const char *outcome)
{
	if (result == NULL)
		return false;
	if (jw_is_error(result))
	{
		Buffer		message = {0};
		bool		done;

		jw_append(&message, "the end of the attempt cannot be stored: ");
		jw_append(&message, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
		free(job->held->code);
		free(job->held->details);
		job->held->end = END_FAIL;
		job->held->code = jw_copy(PQresultErrorField(result, PG_DIAG_SQLSTATE));
		job->held->details = NULL;
		job->held->retryable = JOBQ_PERMANENT;
		free(job->held->text);
		job->held->text = message.data;
		done = tell_failure(worker, run, job, message.data, JOBQ_PERMANENT, "failed");
		PQclear(result);
		return done;
	}
	if (*jw_value_of(result) == 't')
		finish_job(worker, job, outcome, NULL, NULL);
	else
		lose_job(worker, run, job);
	PQclear(result);
	return true;
}

bool
jw_release_job(jobq_worker *worker, Run *run, jobq_job *job, const char *reason)
{
	return told(worker, run, job, CALL(worker, "SELECT jobq.snooze_job($1, $2, '0', reason => $3)" BOUNDED("$4"),
									   job->id, job->lease_token, reason, lock_of(worker, job)), "released");
}

/*
 * Ends a job that its handler has completed in a transaction of its own: the
 * token is no longer valid if that transaction was committed.  False: not told
 * yet.
 */
static bool
settle_completed(jobq_worker *worker, Run *run, jobq_job *job)
{
	PGresult   *result = CALL(worker, "SELECT jobq.heartbeat($1, $2)" BOUNDED("$3"), job->id, job->lease_token,
							  lock_of(worker, job));
	bool		done = result != NULL;

	if (done && strcmp(jw_value_of(result), "lost") == 0)
		lose_job(worker, run, job);
	else if (done && strcmp(jw_value_of(result), "cancel") == 0)
		done = tell_failure(worker, run, job, "cancelled", JOBQ_PERMANENT, "cancelled");
	else if (done)
		done = tell_failure(worker, run, job, "the transaction of jobq_complete was not committed", 0, "failed");
	PQclear(result);
	return done;
}

/* True if the transaction of a batch rolls back, because one of its jobs was lost or failed. */
static bool
is_undone(const Run *run)
{
	for (int i = 0; i < run->njobs; i++)
		if (run->jobs[i].held->undone)
			return true;
	return false;
}

/* Tells the server how an attempt ended.  False: not told yet. */
static bool
settle_job(jobq_worker *worker, Run *run, jobq_job *job)
{
	struct jobq_held *held = job->held;

	if (!jw_send_reports(worker, run, job))
		return false;
	if (held->outcome)
		return true;
	if (held->own == 'l' && held->end == END_NONE)
		lose_job(worker, run, job);
	else if (held->own == 'f' && held->end == END_NONE && !held->stopped)
		return tell_failure(worker, run, job, "the completion in the handler's transaction failed", 0, "failed");
	else if (held->stopped && held->end != END_RESULT && held->end != END_SKIP && held->end != END_SNOOZE)
	{
		if (held->stopped == 's')
			return jw_release_job(worker, run, job, "the worker stops");
		held->end = END_NONE;
		return tell_failure(worker, run, job, "cancelled", JOBQ_PERMANENT, "cancelled");
	}
	else if (held->end == END_NONE && is_undone(run))
		return jw_release_job(worker, run, job, "another job of the batch was lost");
	else if (held->end == END_NONE && held->own == 'd')
		return settle_completed(worker, run, job);
	else if (held->end == END_FAIL)
		return tell_failure(worker, run, job, held->text, held->retryable, "failed");
	else if (held->end == END_SKIP)
		return told(worker, run, job, CALL(worker, "SELECT jobq.skip_job($1, $2, reason => $3)" BOUNDED("$4"),
										   job->id, job->lease_token, held->text, lock_of(worker, job)), "skipped");
	else if (held->end == END_SNOOZE)
		return told(worker, run, job, CALL(worker, "SELECT jobq.snooze_job($1, $2, $3::interval, reason => $4)" BOUNDED("$5"),
										   job->id, job->lease_token, held->text, held->code, lock_of(worker, job)), "snoozed");
	else
		return told(worker, run, job, CALL(worker, "SELECT jobq.complete($1, $2, $3)" BOUNDED("$4"),
										   job->id, job->lease_token, held->text, lock_of(worker, job)), "completed");
	return true;
}

/* True if settle_job() will complete the job. */
static bool
will_complete(const Run *run, const jobq_job *job)
{
	const struct jobq_held *held = job->held;

	return held->ended && !held->outcome && !held->own && !held->reports && !held->retry_at &&
		(held->end == END_RESULT || (held->end == END_NONE && !held->stopped && !is_undone(run)));
}

/*
 * Completes the jobs of a batch in one statement; an error or a locked row
 * leaves them to settle_job().
 */
static void
complete_run(jobq_worker *worker, Run *run)
{
	Buffer		ids = {0},
				tokens = {0},
				results = {0};
	int			n = 0;
	PGresult   *result = NULL;

	for (int i = 0; i < run->njobs; i++)
		if (will_complete(run, &run->jobs[i]))
		{
			jw_append_element(&ids, run->jobs[i].id);
			jw_append_element(&tokens, run->jobs[i].lease_token);
			jw_append_element(&results, run->jobs[i].held->text);
			n++;
		}
	if (n > 1)
	{
		jw_append(&ids, "}");
		jw_append(&tokens, "}");
		jw_append(&results, "}");
		result = CALL_FINAL(worker, LOCKED, "SELECT jobq.complete_many($1, $2, $3)" BOUNDED("$4"), ids.data, tokens.data,
							results.data, worker->lock);
	}
	for (int i = 0; result && !jw_is_error(result) && i < run->njobs; i++)
	{
		bool		done = false;

		if (!will_complete(run, &run->jobs[i]))
			continue;
		for (int row = 0; row < PQntuples(result) && !done; row++)
			done = strcmp(PQgetvalue(result, row, 0), run->jobs[i].id) == 0;
		if (done)
			finish_job(worker, &run->jobs[i], "completed", NULL, NULL);
		else
			lose_job(worker, run, &run->jobs[i]);
	}
	PQclear(result);
	free(ids.data);
	free(tokens.data);
	free(results.data);
}

void
jw_free_run(Run *run)
{
	for (int i = 0; i < run->njobs; i++)
	{
		jobq_job   *job = &run->jobs[i];
		const char *texts[] = {job->id, job->type, job->payload, job->tenant, job->metadata, job->progress_data,
			job->lease_token, job->held->text, job->held->code, job->held->retry_after, job->held->details};

		for (size_t t = 0; t < sizeof(texts) / sizeof(*texts); t++)
			free((void *) texts[t]);
		jw_free_reports(job->held);
		free(job->held);
	}
	free(run->jobs);
	free(run->in.data);
	free(run);
}

/* Settles a job whose handler has ended.  False: not yet, perhaps because heartbeats are due. */
static bool
settle_when_due(jobq_worker *worker, Run *run, jobq_job *job)
{
	int64_t		now = jw_now_ms();

	if (job->held->outcome)
		return true;
	if (now >= worker->beat_at || now < job->held->retry_at)
		return false;
	if (settle_job(worker, run, job))
		return true;
	job->held->retry_at = jw_now_ms() + REPEAT_MS;
	return false;
}

/* Tells all ends that are due, and forgets runs that are over. */
void
jw_settle_all(jobq_worker *worker)
{
	for (Run **link = &worker->runs, *run; (run = *link) != NULL;)
	{
		bool		over = run->pid == 0;

		if (over && jw_now_ms() < worker->beat_at)
			complete_run(worker, run);
		for (int i = 0; run->pid == 0 && i < run->njobs; i++)
			if (!settle_when_due(worker, run, &run->jobs[i]))
				over = false;
		if (over)
		{
			*link = run->next;
			jw_free_run(run);
		}
		else
			link = &run->next;
	}
}

/* ---------- leases ---------- */

static void
renew(jobq_worker *worker, jobq_job *job, int64_t sent)
{
	job->held->expires = jw_earlier(sent + worker->lease, job->held->deadline);
}

/* Applies an answer of jw_heartbeat() to a statement that was sent at the time. */
void
jw_heard(jobq_worker *worker, Run *run, jobq_job *job, const char *state, int64_t sent)
{
	if (job->held->outcome)
		return;
	if (strcmp(state, "lost") == 0)
	{
		if (!job->held->ended && jw_in_own_transaction(job->held))
			return;				/* perhaps by its own completion */
		lose_job(worker, run, job);
		return;
	}
	renew(worker, job, sent);
	if (strcmp(state, "cancel") == 0)
		jw_stop_job(run, job, 'c');
}

static bool
needs_heartbeat(const jobq_job *job)
{
	return !job->held->outcome && (!job->held->own || job->held->own == 'f');
}

/* The jobs of a heartbeat as array literals. */
typedef struct Beat
{
	Buffer		ids,
				tokens;
} Beat;

static void
add_to_beat(Beat *beat, const jobq_job *job)
{
	jw_append_element(&beat->ids, job->id);
	jw_append_element(&beat->tokens, job->lease_token);
}

/* Applies the rows of a heartbeat to the jobs. */
static void
take_beat(jobq_worker *worker, const PGresult *result, int64_t sent)
{
	for (int row = 0; row < PQntuples(result); row++)
		for (Run *run = worker->runs; run; run = run->next)
			for (int i = 0; i < run->njobs; i++)
				if (strcmp(run->jobs[i].lease_token, PQgetvalue(result, row, 0)) == 0)
					jw_heard(worker, run, &run->jobs[i], PQgetvalue(result, row, 1), sent);
}

/* Sends a heartbeat, and frees it.  False: a lock of a row has ended it. */
static bool
send_beat(jobq_worker *worker, Beat *beat, const char *lock)
{
	static const char sql[] = "SELECT t.token, jobq.heartbeat(t.id, t.token)" BOUNDED("$3")
		", unnest($1::uuid[], $2::uuid[]) t(id, token)";
	int64_t		sent = jw_now_ms();
	PGresult   *result = NULL;
	bool		locked;

	if (beat->ids.length > 0)
	{
		jw_append(&beat->ids, "}");
		jw_append(&beat->tokens, "}");
		result = CALL_FINAL(worker, LOCKED, sql, beat->ids.data, beat->tokens.data, lock);
		if (result == NULL)
			worker->beat_at = jw_earlier(worker->beat_at, worker->calls.conn ? sent + REPEAT_MS : worker->calls.retry_at);
	}
	locked = result && jw_has_code(result, LOCKED);
	if (result && !jw_is_error(result))
		take_beat(worker, result, sent);
	else if (result && !locked)
		jw_log_event(worker, "error", "heartbeat_refused", "error", PQresultErrorMessage(result), NULL);
	PQclear(result);
	free(beat->ids.data);
	free(beat->tokens.data);
	return !locked;
}

/*
 * Renews all leases with one statement.  If a row is locked, each job has its
 * own, and later heartbeats leave those that were locked to the end.
 */
void
jw_heartbeat(jobq_worker *worker)
{
	Beat		all = {0};
	bool		alone;

	worker->beat_at = jw_now_ms() + worker->lease / 3;
	for (Run *run = worker->runs; run; run = run->next)
		for (int i = 0; i < run->njobs; i++)
			if (needs_heartbeat(&run->jobs[i]) && !run->jobs[i].held->locked)
				add_to_beat(&all, &run->jobs[i]);
	alone = !send_beat(worker, &all, worker->lock);
	for (int locked = alone ? 0 : 1; locked <= 1; locked++)
		for (Run *run = worker->runs; run; run = run->next)
			for (int i = 0; i < run->njobs; i++)
			{
				jobq_job   *job = &run->jobs[i];
				Beat		one = {0};

				if (!needs_heartbeat(job) || job->held->locked != (locked == 1) || !worker->calls.conn)
					continue;
				add_to_beat(&one, job);
				job->held->locked = !send_beat(worker, &one, worker->short_lock);
				if (job->held->locked)
					worker->beat_at = jw_earlier(worker->beat_at, jw_now_ms() + worker->lease / 12);
			}
}

/*
 * A job that a transaction of its running handler completes is not lost: its
 * row is locked, and that transaction decides.
 */
void
jw_expire_leases(jobq_worker *worker, int64_t now)
{
	for (Run *run = worker->runs; run; run = run->next)
		for (int i = 0; i < run->njobs; i++)
		{
			struct jobq_held *held = run->jobs[i].held;

			if (held->outcome || now < held->expires)
				continue;
			if (!held->ended && jw_in_own_transaction(held))
				held->expires = now + 1000;
			else
				lose_job(worker, run, &run->jobs[i]);
		}
}
