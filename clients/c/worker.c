/*
 * The worker: setup and loop.
 *
 * One loop over poll(): the connection with the waiting claim, the connection
 * that listens, the sockets of the children, signals.  All other statements
 * are short and go over a third connection, one at a time.  A child sends
 * messages (progress, log, the end of its jobs); the loop tells the server.
 *
 * A connection that fails is opened again with a back-off.  An end that could
 * not be told stays in its job until the lease is over.  Jobs are fenced by
 * their tokens; a job without a heartbeat for the length of its lease is lost.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int	jw_signal_pipe[2];
volatile sig_atomic_t jw_stop_requested;

/* ---------- loop ---------- */

static void
on_signal(int number)
{
	int			saved = errno;

	if (number != SIGCHLD && jw_stop_requested < 2)
		jw_stop_requested++;
	if (write(jw_signal_pipe[1], "", 1) < 0)
		errno = saved;			/* full: the loop wakes up anyway */
	errno = saved;
}

static void
begin_stop(jobq_worker *worker)
{
	worker->stopping = true;
	worker->grace_ends = jw_now_ms() + (int64_t) (worker->options.grace * 1000);
	jw_log_event(worker, "info", "stopping", NULL);
	worker->claim_ends = jw_now_ms() + CLAIM_STOP_MS;
	if (worker->claiming)		/* its answer may still have jobs */
	{
		char		pid[16];

		snprintf(pid, sizeof(pid), "%d", PQbackendPID(worker->claims.conn));
		PQclear(CALL(worker, "SELECT pg_cancel_backend($1)", pid));
	}
}

/* Stops handlers after the grace, and kills those that do not stop. */
static void
stop_handlers(jobq_worker *worker, int64_t now)
{
	for (Run *run = worker->runs; run; run = run->next)
	{
		for (int i = 0; worker->stopping && now >= worker->grace_ends && i < run->njobs; i++)
			jw_stop_job(run, &run->jobs[i], 's');
		if (run->pid && now >= run->kill_at)
		{
			kill(run->pid, SIGKILL);
			run->kill_at = NEVER;
		}
	}
}

/* Returns the time of the next thing to do without an event. */
static int64_t
next_time(const jobq_worker *worker)
{
	int64_t		next = worker->runs ? worker->beat_at : NEVER;

	if (!worker->calls.conn)
		next = jw_earlier(next, worker->calls.retry_at);
	if (worker->stopping)
		next = jw_earlier(next, worker->grace_ends + (jw_now_ms() < worker->grace_ends ? 0 : 2 * STOP_MS));
	else
	{
		if (worker->listener.opening_ends)
			next = jw_earlier(next, worker->listener.opening_ends);
		else if (worker->listener.dsn && !worker->listener.conn)
			next = jw_earlier(next, worker->listener.retry_at);
		if (!worker->claiming && jw_running(worker) < worker->options.concurrency)
			next = jw_earlier(next, worker->claims.conn ? worker->claim_at : worker->claims.retry_at);
	}
	if (worker->stopping && worker->claiming)
		next = jw_earlier(next, worker->claim_ends + 1);
	for (const Run *run = worker->runs; run; run = run->next)
	{
		if (run->pid)
			next = jw_earlier(next, run->kill_at);
		for (int i = 0; i < run->njobs; i++)
		{
			const struct jobq_held *held = run->jobs[i].held;

			next = jw_earlier(next, jw_reports_due(run, held));
			if (!held->outcome)
				next = jw_earlier(next, held->retry_at ? jw_earlier(held->expires, held->retry_at) : held->expires);
		}
	}
	return next;
}

/* Waits for an event, or the time. */
static void
wait_for_events(jobq_worker *worker, int64_t until)
{
	int			n = 3 + jw_running(worker);
	struct pollfd *fds = jw_allocate(sizeof(struct pollfd) * (size_t) n);
	int64_t		left = until - jw_now_ms();
	char		drained[64];
	int			i = 3;

	fds[0].fd = jw_signal_pipe[0];
	fds[1].fd = worker->claims.conn ? PQsocket(worker->claims.conn) : -1;
	fds[2].fd = worker->listener.conn ? PQsocket(worker->listener.conn) : -1;
	for (Run *run = worker->runs; run; run = run->next)
		fds[i++].fd = run->pid ? run->fd : -1;
	for (i = 0; i < n; i++)
		fds[i].events = POLLIN;
	if (worker->listener.opening_ends && worker->listener.opening == PGRES_POLLING_WRITING)
		fds[2].events = POLLOUT;
	/* A child that has closed its socket is about to end: its exit is a signal. */
	poll(fds, (nfds_t) n, left < 0 ? 0 : left > 60000 ? 60000 : (int) left);
	free(fds);
	while (read(jw_signal_pipe[0], drained, sizeof(drained)) > 0)
		;
}

static void
loop(jobq_worker *worker)
{
	while (!worker->stopping || worker->claiming || worker->runs)
	{
		int64_t		now;
		int			before = jw_running(worker);

		if (jw_stop_requested && !worker->stopping)
			begin_stop(worker);
		if (jw_stop_requested > 1 && worker->stopping)	/* the second signal ends the grace */
			worker->grace_ends = jw_earlier(worker->grace_ends, jw_now_ms());
		if (jw_now_ms() >= worker->beat_at)
			jw_heartbeat(worker);	/* before all that may wait for a lock */
		for (Run *run = worker->runs; run; run = run->next)
			if (run->pid)
				(void) jw_read_child(worker, run);
		jw_reap_children(worker);
		jw_send_all_reports(worker);
		jw_settle_all(worker);
		if (jw_running(worker) < before)
			worker->claim_at = 0;
		now = jw_now_ms();
		jw_connected(worker, &worker->calls);
		jw_expire_leases(worker, now);
		stop_handlers(worker, now);
		if (worker->listener.dsn && !worker->stopping)
			jw_read_notifications(worker);
		jw_read_claim(worker);
		jw_begin_claim(worker);
		if (worker->stopping && now > worker->grace_ends + 2 * STOP_MS)
			break;				/* jobs that could not be told: their leases run out */
		if (!worker->stopping || worker->claiming || worker->runs)
			wait_for_events(worker, next_time(worker));
	}
}

/* Prepares the state of a run: a worker may run more than once. */
static bool
begin_run(jobq_worker *worker, bool until_empty)
{
	const jobq_options *options = &worker->options;

	if (!(options->concurrency >= 1 && options->lease > 0 && options->poll > 0 && options->grace >= 0))
	{
		jw_log_event(worker, "error", "claim_refused", "error", "an option is out of range", NULL);
		return false;
	}
	if (worker->ntypes == 0 || pipe(jw_signal_pipe) != 0)
		return false;
	srand((unsigned) (time(NULL) ^ getpid()));
	jw_stop_requested = 0;
	for (int i = 0; i < 2; i++)
	{
		fcntl(jw_signal_pipe[i], F_SETFL, O_NONBLOCK);
		fcntl(jw_signal_pipe[i], F_SETFD, FD_CLOEXEC);
	}
	worker->until_empty = until_empty;
	worker->wait = until_empty || options->pooler || options->listen_dsn ? 0 : LONGEST_WAIT;
	worker->stopping = worker->claiming = worker->failed = worker->answered = false;
	worker->claim_at = 0;
	if (worker->types.data[worker->types.length - 1] != '}')
		jw_append(&worker->types, "}");
	return true;
}

static void
end_run(jobq_worker *worker)
{
	Link	   *links[] = {&worker->calls, &worker->claims, &worker->listener};

	for (int i = 0; i < 3; i++)
	{
		PQfinish(links[i]->conn);
		*links[i] = (Link) {.dsn = links[i]->dsn};
	}
	close(jw_signal_pipe[0]);
	close(jw_signal_pipe[1]);
	jw_log_event(worker, "info", "stopped", NULL);
}

static int
run_worker(jobq_worker *worker, bool until_empty)
{
	struct sigaction action = {.sa_handler = on_signal},
				old[3];
	const int	numbers[] = {SIGTERM, SIGINT, SIGCHLD};
	PGresult   *result = NULL;

	if (!begin_run(worker, until_empty))
		return 1;
	for (int i = 0; i < 3; i++)
		sigaction(numbers[i], &action, &old[i]);
	while (!jw_stop_requested && (result = jw_call_on(worker, &worker->calls, NULL, "SELECT 1", 0, NULL)) == NULL)
		wait_for_events(worker, worker->calls.retry_at);
	PQclear(result);
	if (!jw_stop_requested)
		jw_log_event(worker, "info", "started", "worker", worker->options.name, NULL);
	worker->beat_at = jw_now_ms() + worker->lease / 3;
	loop(worker);
	for (int i = 0; i < 3; i++)
		sigaction(numbers[i], &old[i], NULL);
	end_run(worker);
	return worker->failed;
}

int
jobq_run(jobq_worker *worker)
{
	return run_worker(worker, false);
}

int
jobq_run_until_empty(jobq_worker *worker)
{
	return run_worker(worker, true);
}

/* ---------- setup ---------- */

jobq_options
jobq_defaults(void)
{
	return (jobq_options) {.concurrency = 1,.lease = 120,.poll = 1,.grace = 30};
}

jobq_worker *
jobq_worker_new(const char *dsn, const jobq_options *options)
{
	jobq_worker *worker = jw_allocate(sizeof(jobq_worker));
	char		host[128] = "",
				name[160];

	worker->options = options ? *options : jobq_defaults();
	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "%s:%d", host, (int) getpid());
	worker->options.name = jw_copy(worker->options.name ? worker->options.name : name);
	worker->calls.dsn = worker->claims.dsn = dsn ? dsn : "";
	worker->listener.dsn = worker->options.listen_dsn;
	worker->lease = (int64_t) (worker->options.lease * 1000);
	snprintf(worker->lock, sizeof(worker->lock), "%d",
			 worker->lease < 600 ? 50 : worker->lease < 12000 ? (int) worker->lease / 12 : 1000);
	snprintf(worker->short_lock, sizeof(worker->short_lock), "%d", atoi(worker->lock) / 5);
	worker->answer = worker->lease / 2 < 5000 ? 5000 : jw_earlier(worker->lease / 2, 30000);
	return worker;
}

static void
add_handler(jobq_worker *worker, const char *type, int batch, jobq_handler single, jobq_batch_handler many)
{
	Handler    *handler = worker->handlers;

	while (handler && strcmp(handler->type, type) != 0)
		handler = handler->next;
	batch = batch < 1 ? 1 : batch < MOST_JOBS ? batch : MOST_JOBS;
	if (handler)				/* replaced */
	{
		handler->batch = batch;
		handler->single = single;
		handler->many = many;
		return;
	}
	handler = jw_allocate(sizeof(Handler));
	*handler = (Handler) {.type = jw_copy(type),.batch = batch,
		.single = single,.many = many,.next = worker->handlers};
	worker->handlers = handler;
	worker->ntypes++;
	jw_append_element(&worker->types, type);
}

void
jobq_handle(jobq_worker *worker, const char *type, jobq_handler handler)
{
	add_handler(worker, type, 1, handler, NULL);
}

void
jobq_handle_batch(jobq_worker *worker, const char *type, int batch, jobq_batch_handler handler)
{
	add_handler(worker, type, batch, NULL, handler);
}

void
jobq_worker_free(jobq_worker *worker)
{
	for (Handler *handler = worker->handlers, *next; handler; handler = next)
	{
		next = handler->next;
		free((void *) handler->type);
		free(handler);
	}
	free(worker->types.data);
	free((void *) worker->options.name);
	free(worker);
}
