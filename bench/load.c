/*
 * load.c
 *	  Enqueues jobs by SQL: closed loop, bulk, or at an offered rate.
 *
 *	  load --sql SQL [--connections C] [--jobs N] [--first N0] [--bulk B]
 *		   [--rate R --seconds S] [--commit] [--times FILE]
 *
 * Jobs are sent by calls of B jobs (1 without --bulk).  Call k belongs to
 * connection k mod C, which is a thread.  In the closed loop a connection
 * sends its next call after the answer to the last.  In the open loop call k
 * is due at start + k * B / R: a slow call delays only later calls of its own
 * connection, and their "due" then shows the delay.
 *
 * Every call is kept, and percentiles are taken from all of them.  The time of
 * a call is from before its first message to after its last answer, BEGIN and
 * COMMIT included with --commit.
 */
#include "common.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define START_DELAY		0.01	/* all threads are at their loops by then */
#define LONGEST_SLEEP	0.1		/* SIGTERM interrupts one thread only */
#define PAYLOAD_MAX		32

typedef struct Call
{
	int64_t		first;			/* number of its first job */
	int64_t		jobs;
	double		due;
	double		before;
	double		commit;
	double		after;
} Call;

typedef struct Connection
{
	pthread_t	thread;
	PGconn	   *conn;
	int64_t		index;
	char	   *parameter;
	Call	   *calls;
	int64_t		done;
} Connection;

static const char *sql = NULL;
static const char *times_file = NULL;
static int64_t connections = 1;
static int64_t jobs = 0;
static int64_t first_job = 0;
static int64_t bulk = 0;
static double rate = 0;
static double seconds = 0;
static bool by_commit = false;

static int64_t per_call;
static int64_t calls_total;
static struct timespec start_monotonic;
static double start_epoch;
static volatile sig_atomic_t stopping = false;

static void
stop(int signal_number)
{
	(void) signal_number;
	stopping = true;
}

static void
read_options(int argc, char **argv)
{
	const Option options[] = {
		{"sql", OPT_TEXT, &sql}, {"connections", OPT_COUNT, &connections}, {"jobs", OPT_COUNT, &jobs},
		{"first", OPT_COUNT, &first_job}, {"bulk", OPT_COUNT, &bulk}, {"rate", OPT_NUMBER, &rate},
		{"seconds", OPT_NUMBER, &seconds}, {"commit", OPT_FLAG, &by_commit}, {"times", OPT_TEXT, &times_file},
		{NULL}
	};

	if (parse_options(argc, argv, 1, options) < argc)
		die("what is \"%s\"?", argv[parse_options(argc, argv, 1, options)]);
	if (sql == NULL || connections < 1 || bulk < 0 || rate < 0 || (rate > 0) != (seconds > 0))
		die("usage: load --sql SQL [--connections C] [--jobs N] [--first N0] [--bulk B] [--rate R --seconds S] [--commit] [--times FILE]");
	if (rate > 0 && (jobs == 0 || rate * seconds < (double) jobs))
		jobs = (int64_t) (rate * seconds + 0.5);
	if (jobs < 1)
		die("--jobs or --rate and --seconds must say how many");
	per_call = bulk > 0 ? bulk : 1;
	calls_total = (jobs + per_call - 1) / per_call;
}

/* A payload, or a text array of payloads. */
static void
write_parameter(char *to, const Call *call)
{
	char	   *at = to;

	if (bulk == 0)
	{
		sprintf(to, "{\"n\": %" PRId64 "}", call->first);
		return;
	}
	*at++ = '{';
	for (int64_t i = 0; i < call->jobs; i++)
		at += sprintf(at, "%s\"{\\\"n\\\": %" PRId64 "}\"", i > 0 ? "," : "", call->first + i);
	strcpy(at, "}");
}

static void
send_call(Connection *c, Call *call)
{
	const char *parameters[] = {c->parameter};

	call->before = epoch_now();
	if (by_commit)
		execute(c->conn, "BEGIN");
	expect_ok(c->conn, PQexecPrepared(c->conn, "enqueue", 1, parameters, NULL, NULL, 0));
	call->commit = call->before;
	if (by_commit)
	{
		call->commit = epoch_now();
		execute(c->conn, "COMMIT");
	}
	call->after = epoch_now();
}

/* A call that is late already is sent at once. */
static void
sleep_until_due(double offset)
{
	struct timespec due = timespec_after(start_monotonic, offset);
	struct timespec now;

	for (;;)
	{
		double		left;

		clock_gettime(CLOCK_MONOTONIC, &now);
		left = (double) (due.tv_sec - now.tv_sec) + (double) (due.tv_nsec - now.tv_nsec) / 1e9;
		if (left <= 0 || stopping)
			return;
		if (left > LONGEST_SLEEP)
			now = timespec_after(now, LONGEST_SLEEP);
		else
			now = due;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL);
	}
}

static void *
run_connection(void *arg)
{
	Connection *c = arg;

	sleep_until_due(0);
	for (int64_t k = c->index; k < calls_total && !stopping; k += connections)
	{
		Call	   *call = &c->calls[c->done];

		call->first = first_job + k * per_call;
		call->jobs = k == calls_total - 1 ? jobs - k * per_call : per_call;
		write_parameter(c->parameter, call);
		if (rate > 0)
		{
			double		offset = (double) (k * per_call) / rate;

			sleep_until_due(offset);
			if (stopping)
				break;
			call->due = start_epoch + offset;
		}
		send_call(c, call);
		if (rate == 0)
			call->due = call->before;
		c->done++;
	}
	return NULL;
}

static Connection *
open_connections(void)
{
	Connection *all = allocate(sizeof(Connection) * connections);

	for (int64_t i = 0; i < connections; i++)
	{
		all[i].index = i;
		all[i].done = 0;
		all[i].conn = connect_or_die();
		prepare(all[i].conn, "enqueue", sql);
		all[i].parameter = allocate(per_call * PAYLOAD_MAX + PAYLOAD_MAX);
		all[i].calls = allocate(sizeof(Call) * (calls_total / connections + 1));
	}
	return all;
}

static void
run_all(Connection *all)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_MONOTONIC, &start_monotonic);
	start_epoch = epoch_of(now) + START_DELAY;
	start_monotonic = timespec_after(start_monotonic, START_DELAY);
	for (int64_t i = 0; i < connections; i++)
	{
		if (pthread_create(&all[i].thread, NULL, run_connection, &all[i]) != 0)
			die("pthread_create failed");
	}
	for (int64_t i = 0; i < connections; i++)
		pthread_join(all[i].thread, NULL);
}

/* In the order in which the calls were due, not by connection. */
static void
write_times(const Connection *all)
{
	FILE	   *file = fopen(times_file, "w");

	if (file == NULL)
		die("%s: %m", times_file);
	for (int64_t k = 0; k < calls_total; k++)
	{
		const Connection *c = &all[k % connections];
		const Call *call = &c->calls[k / connections];

		if (k / connections < c->done)
			fprintf(file, "%" PRId64 " %.6f %.6f %.6f %.6f\n", call->first, call->due, call->before, call->commit, call->after);
	}
	if (ferror(file) || fclose(file) != 0)
		die("%s: %m", times_file);
}

static void
print_summary(const Connection *all, double cpu)
{
	double	   *durations = allocate(sizeof(double) * calls_total);
	double		last = start_epoch;
	int64_t		sent = 0;
	int64_t		n = 0;

	for (int64_t i = 0; i < connections; i++)
	{
		for (int64_t j = 0; j < all[i].done; j++)
		{
			const Call *call = &all[i].calls[j];

			durations[n++] = call->after - call->before;
			sent += call->jobs;
			if (call->after > last)
				last = call->after;
		}
	}
	sort_doubles(durations, n);
	printf("{\"jobs\": %" PRId64 ", \"seconds\": %.6f, \"cpu\": %.6f, \"calls\": "
		   "{\"p50\": %.6f, \"p95\": %.6f, \"p99\": %.6f, \"max\": %.6f}}\n",
		   sent, last - start_epoch, cpu, percentile(durations, n, 0.50), percentile(durations, n, 0.95),
		   percentile(durations, n, 0.99), percentile(durations, n, 1.0));
	free(durations);
}

int
main(int argc, char **argv)
{
	Connection *all;
	struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
	double		cpu;

	set_program_name("load");
	read_options(argc, argv);
	all = open_connections();
	sigaction(SIGTERM, &action, NULL);
	cpu = cpu_seconds(RUSAGE_SELF);
	run_all(all);
	cpu = cpu_seconds(RUSAGE_SELF) - cpu;
	if (times_file != NULL)
		write_times(all);
	print_summary(all, cpu);
	return 0;
}
