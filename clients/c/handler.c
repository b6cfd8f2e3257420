/*
 * Handlers: a child process for each run, its messages, and the calls of a
 * handler.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* ---------- messages between worker and child ---------- */

static void
write_all(int fd, const void *data, size_t length)
{
	const char *next = data;

	while (length > 0)
	{
		ssize_t		n = send(fd, next, length, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return;				/* the worker is gone */
		if (n > 0)
			next += n, length -= (size_t) n;
	}
}

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER;	/* a handler may use threads */

/* Sends a message with its texts, each with a byte before it that is 0 for NULL. */
static void
send_message(jobq_job *job, char kind, int retryable, int ntexts, const char *const *texts)
{
	Buffer		body = {0};
	MessageHead head = {.kind = kind,.retryable = (int8_t) retryable,.index = job->held->index};

	for (int i = 0; i < ntexts; i++)
	{
		jw_append_bytes(&body, texts[i] ? "\1" : "\0", 1);
		jw_append_bytes(&body, texts[i] ? texts[i] : "", strlen(texts[i] ? texts[i] : "") + 1);
	}
	head.length = (uint32_t) body.length;
	pthread_mutex_lock(&sending);
	write_all(job->held->fd, &head, sizeof(head));
	write_all(job->held->fd, body.data, body.length);
	pthread_mutex_unlock(&sending);
	free(body.data);
}

#define SEND(job, kind, retryable, ...) \
	send_message(job, kind, retryable, sizeof((const char *[]) {__VA_ARGS__}) / sizeof(char *), \
				 (const char *[]) {__VA_ARGS__})

static pthread_mutex_t receiving = PTHREAD_MUTEX_INITIALIZER;

/*
 * Takes the orders for the jobs of this child that have come.  Returns the
 * order that the job has: to stop, or else an acknowledgement, or 0.
 */
static char
take_orders(jobq_job *job)
{
	Order		order;
	ssize_t		n;
	char		mine;

	pthread_mutex_lock(&receiving);
	while ((n = recv(job->held->fd, &order, sizeof(order), MSG_DONTWAIT)) == (ssize_t) sizeof(order))
		if (order.index < job->held->nbatch)
		{
			struct jobq_held *held = job->held->batch[order.index].held;

			*(order.kind == 'k' ? &held->acknowledged : &held->stopped) = order.kind;
		}
	for (int i = 0; n == 0 && i < job->held->nbatch; i++)
		job->held->batch[i].held->stopped = 'l';	/* the worker is gone */
	mine = job->held->stopped ? job->held->stopped : job->held->acknowledged;
	pthread_mutex_unlock(&receiving);
	return mine;
}

void
jobq_result(jobq_job *job, const char *result)
{
	SEND(job, 'r', 0, result);
}

void
jobq_fail(jobq_job *job, const char *message, const jobq_error *error)
{
	static const jobq_error none = {0};

	if (error == NULL)
		error = &none;
	SEND(job, 'f', error->retryable, message, error->code, error->retry_after, error->details);
}

void
jobq_skip(jobq_job *job, const char *reason)
{
	SEND(job, 's', 0, reason);
}

void
jobq_snooze(jobq_job *job, const char *delay, const char *reason)
{
	SEND(job, 'z', 0, delay, reason);
}

void
jobq_progress(jobq_job *job, double percent)
{
	char		text[32];

	snprintf(text, sizeof(text), "%.6g", percent);
	if (strchr(text, ','))
		*strchr(text, ',') = '.';	/* a locale of the program */
	SEND(job, 'p', 0, text, NULL);
}

void
jobq_checkpoint(jobq_job *job, const char *data)
{
	SEND(job, 'p', 0, NULL, data);
}

void
jobq_log(jobq_job *job, const char *level, const char *message, const char *data)
{
	SEND(job, 'l', 0, message, level, data);
}

static const char *
reason_of(char stopped)
{
	return stopped == 'c' ? "cancel" : stopped == 'l' ? "lost" : stopped == 's' ? "shutdown" : NULL;
}

const char *
jobq_stopped(jobq_job *job)
{
	return reason_of(take_orders(job));
}

int
jobq_complete(jobq_job *job, PGconn *conn, const char *result)
{
	const char *values[] = {job->id, job->lease_token, result};
	struct pollfd fd = {.fd = job->held->fd,.events = POLLIN};
	PGresult   *answer;
	int			done;

	job->held->acknowledged = 0;
	SEND(job, 'b', 0, NULL);	/* the worker's heartbeats would wait for this transaction */
	while (!take_orders(job))
		poll(&fd, 1, 20);		/* another thread may take the acknowledgement */
	answer = PQexecParams(conn, "SELECT jobq.complete($1, $2, $3)", 3, NULL, values, NULL, NULL, 0);
	done = jw_is_error(answer) ? -1 : *jw_value_of(answer) == 't';
	PQclear(answer);
	SEND(job, done == 1 ? 'd' : done == 0 ? 'o' : 'e', 0, NULL);
	return done;
}

/* ---------- children ---------- */

static void
free_report(struct jobq_held *held)
{
	Report	   *report = held->reports;

	held->reports = report->next;
	held->nreports--;
	for (int t = 0; t < 3; t++)
		free(report->texts[t]);
	free(report);
}

void
jw_free_reports(struct jobq_held *held)
{
	while (held->reports)
		free_report(held);
}

/* Keeps a report of a handler.  Progress replaces progress that the server does not have yet. */
static void
add_report(jobq_worker *worker, jobq_job *job, char kind, char *const *texts)
{
	Report	  **end = &job->held->reports;
	Report	   *report = NULL;

	for (; *end; end = &(*end)->next)
		report = *end;
	if (kind != 'p' || report == NULL || report->kind != 'p')
	{
		if (job->held->nreports >= MOST_REPORTS)
		{
			jw_log_event(worker, "error", "call_failed", "job_id", job->id, "error", "too many reports without an answer", NULL);
			return;
		}
		report = *end = jw_allocate(sizeof(Report));
		report->kind = kind;
		job->held->nreports++;
	}
	for (int t = 0; t < 3; t++)
		if (texts[t])
		{
			free(report->texts[t]);
			report->texts[t] = jw_copy(texts[t]);
		}
}

/* Sends a report.  NULL: there is no answer. */
static PGresult *
send_report(jobq_worker *worker, const jobq_job *job, const Report *report)
{
	if (report->kind == 'p')
		return CALL(worker, "SELECT jobq.heartbeat($1, $2, progress => $3, data => $4)" BOUNDED("$5"),
					job->id, job->lease_token, report->texts[0], report->texts[1],
					job->held->retry_at ? worker->short_lock : worker->lock);
	/* 55000: the token is lost */
	return CALL_FINAL(worker, "55000", "SELECT jobq.log_event($1, level => $2, data => $3, id => $4, lease_token => $5)",
					  report->texts[0], report->texts[1], report->texts[2], job->id, job->lease_token);
}

/* True if a transaction of the handler completes the job: heartbeats would wait for its lock. */
bool
jw_in_own_transaction(const struct jobq_held *held)
{
	return held->own == 'b' || held->own == 'd';
}

/* Sends the reports of a job, and heartbeats that are due meanwhile.  False: some are left. */
bool
jw_send_reports(jobq_worker *worker, Run *run, jobq_job *job)
{
	struct jobq_held *held = job->held;

	while (held->reports && !held->outcome)
	{
		int64_t		sent = jw_now_ms();
		PGresult   *result;

		if (held->reports->kind == 'p' && jw_in_own_transaction(held))
		{
			free_report(held);
			continue;
		}
		result = send_report(worker, job, held->reports);
		if (result == NULL)
		{
			held->retry_at = jw_now_ms() + REPEAT_MS;
			return false;
		}
		held->retry_at = 0;
		if (jw_is_error(result))
			jw_log_event(worker, "error", "call_failed", "job_id", job->id, "error", PQresultErrorMessage(result), NULL);
		else if (held->reports->kind == 'p')
			jw_heard(worker, run, job, jw_value_of(result), sent);
		if (held->reports->kind == 'p')
			held->progress_at = sent + PROGRESS_MS;
		PQclear(result);
		free_report(held);
		if (jw_now_ms() >= worker->beat_at)
			jw_heartbeat(worker);
	}
	jw_free_reports(held);
	return true;
}

/*
 * Returns the time when the reports of a job are due.  Progress, if it is the
 * last report of a handler that runs, waits a moment: the next one may replace it.
 */
int64_t
jw_reports_due(const Run *run, const struct jobq_held *held)
{
	if (held->reports == NULL)
		return NEVER;
	if (run->pid && held->reports->kind == 'p' && !held->reports->next && held->progress_at > held->retry_at)
		return held->progress_at;
	return held->retry_at;
}

/* Sends the reports that are due. */
void
jw_send_all_reports(jobq_worker *worker)
{
	for (Run *run = worker->runs; run; run = run->next)
		for (int i = 0; i < run->njobs; i++)
			if (jw_now_ms() >= jw_reports_due(run, run->jobs[i].held))
				(void) jw_send_reports(worker, run, &run->jobs[i]);
}

/* Returns a copy of an error code, of at most 255 bytes, which the server takes. */
static char *
copy_code(const char *code)
{
	char	   *copy = jw_copy(code);
	size_t		most = 255;

	if (strlen(copy) > most)
	{
		while ((copy[most] & 0xC0) == 0x80)
			most--;				/* in the middle of a character */
		copy[most] = '\0';
	}
	return copy;
}

/* Handles a message of a child; texts are as in SEND. */
static void
take_message(jobq_worker *worker, Run *run, const MessageHead *head, char *const *texts)
{
	jobq_job   *job = &run->jobs[head->index];
	struct jobq_held *held = job->held;

	if (held->outcome && head->kind != 'b')
		return;
	switch (head->kind)
	{
		case 'p':
		case 'l':
			if (held->nreports >= MOST_REPORTS && jw_now_ms() >= held->retry_at)
				(void) jw_send_reports(worker, run, job);
			add_report(worker, job, head->kind, texts);
			break;
		case 'b':
			if (jw_now_ms() >= held->retry_at)
				(void) jw_send_reports(worker, run, job);
			held->own = 'b';
			jw_send_order(run, job, 'k');
			break;
		case 'd':
		case 'o':
		case 'e':
			held->own = head->kind == 'd' ? 'd' : head->kind == 'o' ? 'l' : 'f';
			held->undone = held->own != 'd';
			break;
		default:
			if (held->end != END_NONE)
				break;
			held->end = head->kind == 'r' ? END_RESULT : head->kind == 'f' ? END_FAIL :
				head->kind == 's' ? END_SKIP : END_SNOOZE;
			if (held->end == END_FAIL || held->own == 'f')
				held->own = 0;	/* rolled back */
			held->retryable = head->retryable;
			held->text = jw_copy(texts[0]);
			held->code = texts[1] && *texts[1] ? copy_code(texts[1]) : NULL;
			held->retry_after = jw_copy(texts[2]);
			held->details = jw_copy(texts[3]);
	}
}

/*
 * Reads messages of a child that have arrived.  False: there are none.  A child
 * may write faster than the worker reads, so that one call does not read all.
 */
bool
jw_read_child(jobq_worker *worker, Run *run)
{
	char		chunk[8192];
	size_t		used = 0;
	ssize_t		n = recv(run->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

	if (n <= 0)
		return false;
	jw_append_bytes(&run->in, chunk, (size_t) n);
	for (;;)
	{
		MessageHead head;
		char	   *texts[4] = {0};
		char	   *next;

		if (run->in.length - used < sizeof(head))
			break;
		memcpy(&head, run->in.data + used, sizeof(head));
		if (run->in.length - used - sizeof(head) < head.length)
			break;
		next = run->in.data + used + sizeof(head);
		used += sizeof(head) + head.length;
		for (int t = 0; t < 4 && next < run->in.data + used; t++)
		{
			texts[t] = *next ? next + 1 : NULL;
			next += strlen(next + 1) + 2;
		}
		if (head.index < run->njobs)
			take_message(worker, run, &head, texts);
	}
	if (used > 0)
	{
		memmove(run->in.data, run->in.data + used, run->in.length - used);
		run->in.length -= used;
	}
	return true;
}

/* Notes the end of a child: a job without a reported end has failed if the child did. */
static void
child_ended(jobq_worker *worker, Run *run, int status)
{
	char		message[64],
				code[32];

	while (jw_read_child(worker, run))
		;
	close(run->fd);
	run->pid = 0;
	run->kill_at = NEVER;
	if (WIFSIGNALED(status))
		snprintf(message, sizeof(message), "the handler was terminated by signal %d", WTERMSIG(status));
	else
		snprintf(message, sizeof(message), "the handler exited with code %d", WEXITSTATUS(status));
	snprintf(code, sizeof(code), "%s:%d", WIFSIGNALED(status) ? "signal" : "exit",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	for (int i = 0; i < run->njobs; i++)
	{
		struct jobq_held *held = run->jobs[i].held;

		held->ended = true;
		if (status != 0 && held->end == END_NONE)
		{
			if (held->own != 'd')
				held->own = 0;
			held->end = END_FAIL;
			held->text = jw_copy(message);
			held->code = jw_copy(code);
		}
	}
}

void
jw_reap_children(jobq_worker *worker)
{
	int			status;

	for (Run *run = worker->runs; run; run = run->next)
		if (run->pid && waitpid(run->pid, &status, WNOHANG) == run->pid)
			child_ended(worker, run, status);
}

static void
on_stop_in_child(int number)
{
	(void) number;				/* interrupts a blocking call */
}

/* Runs the handler in the child. */
static void
be_child(jobq_worker *worker, Run *run, int fd)
{
	struct sigaction action = {.sa_handler = on_stop_in_child};
	Link	   *links[] = {&worker->calls, &worker->claims, &worker->listener};

#ifdef __linux__
	prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
	sigaction(SIGTERM, &action, NULL);
	signal(SIGINT, SIG_IGN);	/* of a terminal: the worker decides */
	signal(SIGCHLD, SIG_DFL);
	close(jw_signal_pipe[0]);
	close(jw_signal_pipe[1]);
	for (int i = 0; i < 3; i++)
		if (links[i]->conn)
			close(PQsocket(links[i]->conn));	/* the session is the worker's */
	for (Run *other = worker->runs; other; other = other->next)
		if (other->pid)
			close(other->fd);
	for (int i = 0; i < run->njobs; i++)
		run->jobs[i].held->fd = fd;
	if (run->handler->many)
		run->handler->many(run->jobs, run->njobs);
	else
		run->handler->single(run->jobs);
	fflush(NULL);
	_exit(0);
}

/* There is no process for the handler: the jobs are released, and the next claim waits. */
static void
release_run(jobq_worker *worker, Run *run)
{
	jw_log_event(worker, "error", "call_failed", "error", strerror(errno), NULL);
	for (int i = 0; i < run->njobs; i++)
		jw_release_job(worker, run, &run->jobs[i], "the handler's process cannot be started");
	jw_free_run(run);
	worker->claim_at = jw_now_ms() + (int64_t) ((worker->options.poll > 1 ? worker->options.poll : 1) * 1000);
}

/* Starts the handler of a run in a child. */
void
jw_start_run(jobq_worker *worker, Run *run)
{
	int			pair[2] = {-1, -1};

	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && (run->pid = fork()) == 0)
	{
		close(pair[0]);
		be_child(worker, run, pair[1]);
	}
	if (run->pid <= 0)
	{
		run->pid = 0;
		release_run(worker, run);
		for (int i = 0; i < 2; i++)
			if (pair[i] >= 0)
				close(pair[i]);
		return;
	}
	close(pair[1]);
	run->fd = pair[0];
	run->kill_at = NEVER;
	run->next = worker->runs;
	worker->runs = run;
	for (int i = 0; i < run->njobs; i++)
	{
		jobq_job   *job = &run->jobs[i];

		job->held->began = jw_now_ms();
		jw_log_started(worker, job);
		if (worker->options.job_start)
			worker->options.job_start(job, worker->options.arg);
	}
}
