/* The test worker of the C client.  Built with the .c files of clients/c and -lpq. */
#define _POSIX_C_SOURCE 200809L
#include "../../clients/c/jobq.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *
setting(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && *text ? text : value;
}

/*
 * Returns the value of a key of a flat JSON object as jsonb writes it, without
 * the quotes of a string.
 */
static char *
value_of(const char *json, const char *key)
{
	static char value[4096];
	char		pattern[64];
	const char *found;
	size_t		length;

	snprintf(pattern, sizeof(pattern), "\"%s\": ", key);
	found = strstr(json, pattern);
	if (found == NULL)
		return NULL;
	found += strlen(pattern);
	length = *found == '"' ? strcspn(++found, "\"") : strcspn(found, ",}");
	snprintf(value, sizeof(value), "%.*s", (int) length, found);
	return value;
}

static PGconn *
connection(void)
{
	PGconn	   *conn = PQconnectdb(getenv("JOBQ_DSN"));

	if (PQstatus(conn) == CONNECTION_OK)
		return conn;
	fprintf(stderr, "%s", PQerrorMessage(conn));
	exit(1);
}

static void
echo(jobq_job *job)
{
	jobq_result(job, job->payload);
}

static void
slow(jobq_job *job)
{
	char		path[4200],
				result[4200];
	const char *gate = value_of(job->payload, "gate");
	struct timespec nap = {0, 20000000};

	snprintf(path, sizeof(path), "%s/%s", getenv("JOBQ_DIR"), gate);
	snprintf(result, sizeof(result), "{\"gate\": \"%s\"}", gate);
	while (access(path, F_OK) != 0)
	{
		const char *reason = jobq_stopped(job);

		if (reason)
		{
			fprintf(stderr, "{\"event\": \"handler_stopped\", \"job_id\": \"%s\", \"reason\": \"%s\"}\n", job->id, reason);
			return;
		}
		nanosleep(&nap, NULL);
	}
	jobq_result(job, result);
}

static void
fail(jobq_job *job)
{
	char	   *details = malloc(strlen(job->payload) + 16);

	sprintf(details, "{\"payload\": %s}", job->payload);
	jobq_fail(job, "no such thing", &(jobq_error) {JOBQ_PERMANENT, "E_FAIL", NULL, details});
	free(details);
}

static void
flaky(jobq_job *job)
{
	char		result[32];

	if (job->attempts == 1)
	{
		jobq_fail(job, "not yet", &(jobq_error) {JOBQ_RETRY, "E_FLAKY", value_of(job->payload, "retry_after"), NULL});
		return;
	}
	snprintf(result, sizeof(result), "{\"attempts\": %d}", job->attempts);
	jobq_result(job, result);
}

static void
raise_error(jobq_job *job)
{
	jobq_fail(job, "boom", NULL);
}

static void
effect(jobq_job *job)
{
	PGconn	   *conn = connection();
	const char *values[] = {job->id, job->lease_token};
	PGresult   *result;
	int			done;

	PQclear(PQexec(conn, "BEGIN"));
	PQclear(PQexecParams(conn, "INSERT INTO public.effects (job, token) VALUES ($1, $2)", 2, NULL, values, NULL, NULL, 0));
	done = jobq_complete(job, conn, "{\"effect\": true}");
	result = PQexec(conn, done == 1 ? "COMMIT" : "ROLLBACK");
	if (done < 0 || PQresultStatus(result) != PGRES_COMMAND_OK)
		jobq_fail(job, PQerrorMessage(conn), NULL);
	PQclear(result);
	PQfinish(conn);
}

static void
checkpoint(jobq_job *job)
{
	char		result[4096];

	if (job->progress_data == NULL)
	{
		jobq_progress(job, 50);
		jobq_checkpoint(job, "{\"step\": 1}");
		jobq_fail(job, "again", &(jobq_error) {JOBQ_RETRY, NULL, "0", NULL});
		return;
	}
	snprintf(result, sizeof(result), "{\"resumed\": %s}", job->progress_data);
	jobq_result(job, result);
}

static void
batch(jobq_job *jobs, int njobs)
{
	char		result[4200];

	for (int i = 0; i < njobs; i++)
	{
		snprintf(result, sizeof(result), "{\"n\": %s, \"of\": %d}", value_of(jobs[i].payload, "n"), njobs);
		jobq_result(&jobs[i], result);
	}
}

static void
poison(jobq_job *job)
{
	(void) job;
	kill(getppid(), SIGKILL);
	pause();
}

/* ---------- handlers of the scenarios about ends and faults ---------- */

static void
make_path(char *path, size_t size, const jobq_job *job, const char *suffix)
{
	snprintf(path, size, "%s/%s%s", getenv("JOBQ_DIR"), value_of(job->payload, "gate"), suffix);
}

/* Waits for the job's gate; the end of the job does not end the wait. */
static void
pass_gate(const jobq_job *job, const char *suffix)
{
	char		path[4200];
	struct timespec nap = {0, 20000000};

	make_path(path, sizeof(path), job, suffix);
	while (access(path, F_OK) != 0)
		nanosleep(&nap, NULL);
}

static void
skip(jobq_job *job)
{
	jobq_skip(job, "not needed");
}

static void
snooze(jobq_job *job)
{
	jobq_snooze(job, value_of(job->payload, "delay"), "later");
}

static void
progress(jobq_job *job)
{
	int			times = strstr(job->payload, "times") ? atoi(value_of(job->payload, "times")) : 0;

	for (int n = 1; n <= times; n++)
		jobq_progress(job, 100.0 * n / times);
	if (times > 0)
		return;
	jobq_progress(job, 30);
	pass_gate(job, "");
}

static void
log_events(jobq_job *job)
{
	jobq_log(job, "info", "it's here", NULL);
	jobq_log(job, "warning", "half way", "{\"n\": [1]}");
}

static void
mixed(jobq_job *jobs, int njobs)
{
	if (value_of(jobs[0].payload, "gate"))
		pass_gate(&jobs[0], "");
	for (int i = 0; i < njobs; i++)
	{
		if (strcmp(value_of(jobs[i].payload, "n"), "2") == 0)
			jobq_fail(&jobs[i], "bad element", &(jobq_error) {.retryable = JOBQ_PERMANENT});
		else
			jobq_result(&jobs[i], jobs[i].payload);
	}
}

static void
malformed(jobq_job *job)
{
	jobq_checkpoint(job, "{\"step\": 1}");
	jobq_fail(job, "boom", &(jobq_error) {JOBQ_RETRY, "no UTF-8: \xff", "1 huor", "{\"no\": "});
}

static void
badskip(jobq_job *job)
{
	jobq_skip(job, "no UTF-8: \xff");
}

static void
badsnooze(jobq_job *job)
{
	jobq_snooze(job, "1 huor", NULL);
}

static void
badcode(jobq_job *job)
{
	jobq_fail(job, "gone", &(jobq_error) {.retryable = JOBQ_PERMANENT,.code = "404"});
}

static void
longcode(jobq_job *job)
{
	char		code[301];

	memset(code, 'x', 300);
	code[300] = '\0';
	jobq_fail(job, "gone", &(jobq_error) {.retryable = JOBQ_PERMANENT,.code = code});
}

static void
big(jobq_job *job)
{
	static char data[200100];
	char		result[100];
	size_t		length = 0,
				metadata = strlen(job->metadata) - strlen("{\"k\": \"\"}");

	if (job->progress_data == NULL)
	{
		snprintf(data, sizeof(data), "{\"data\": \"%0200000d\"}", 0);
		jobq_checkpoint(job, data);
		jobq_fail(job, "resume", &(jobq_error) {JOBQ_RETRY, NULL, "0", NULL});
		return;
	}
	for (const char *next = job->progress_data; *next; next++)
		length += *next == '0';
	snprintf(result, sizeof(result), "{\"length\": %zu, \"metadata\": %zu}", length, metadata);
	jobq_result(job, result);
}

/* Completes in a transaction that is rolled back, or kept; then it returns. */
static void
swallow(jobq_job *job)
{
	PGconn	   *conn = connection();
	const char *values[] = {job->id, job->lease_token};

	if (strstr(value_of(job->payload, "how"), "again"))
	{
		PQclear(PQexec(conn, "BEGIN"));
		PQclear(PQexec(conn, "SELECT 1 / 0"));
		jobq_complete(job, conn, NULL);
		PQclear(PQexec(conn, "ROLLBACK"));
	}
	PQclear(PQexec(conn, "BEGIN"));
	PQclear(PQexecParams(conn, "INSERT INTO public.effects (job, token) VALUES ($1, $2)", 2, NULL, values, NULL, NULL, 0));
	jobq_complete(job, conn, "{\"own\": true}");
	if (strcmp(value_of(job->payload, "how"), "late") == 0)
		pass_gate(job, "");
	PQclear(PQexec(conn, strstr(value_of(job->payload, "how"), "rolled back") ? "ROLLBACK" : "COMMIT"));
	PQfinish(conn);
	if (strcmp(value_of(job->payload, "how"), "reported") == 0)
		jobq_progress(job, 100);
	if (strncmp(value_of(job->payload, "how"), "silent", 6) != 0)
		jobq_result(job, "{\"swallowed\": true}");
}

static void
note(jobq_job *job)
{
	pass_gate(job, "");
	jobq_log(job, "info", "a note", NULL);
}

static void
refused(jobq_job *job)
{
	if (strcmp(value_of(job->payload, "end"), "skip") == 0)
		jobq_skip(job, "no UTF-8: \xff");
	else
		jobq_snooze(job, "no interval", NULL);
}

static void *
watch(void *job)
{
	while (jobq_stopped(job) == NULL)
		;
	return NULL;
}

static void
broken(jobq_job *job)
{
	PGconn	   *conn = connection();
	int			times = strstr(job->payload, "watched") ? 50 : 1;
	pthread_t	thread;

	if (times > 1)
		pthread_create(&thread, NULL, watch, job);
	for (int n = 0; n < times; n++)
	{
		PQclear(PQexec(conn, "BEGIN"));
		PQclear(PQexec(conn, "SELECT 1 / 0"));
		jobq_complete(job, conn, NULL);
		PQclear(PQexec(conn, "ROLLBACK"));
	}
	pass_gate(job, "");
	if (strstr(job->payload, "silent") == NULL)
		jobq_result(job, "{\"after\": true}");
	PQfinish(conn);
}

static void
together(jobq_job *jobs, int njobs)
{
	PGconn	   *conn = connection();
	int			done = 1;

	pass_gate(&jobs[0], "");
	PQclear(PQexec(conn, "BEGIN"));
	for (int i = 0; done == 1 && i < njobs; i++)
	{
		const char *values[] = {jobs[i].id, jobs[i].lease_token};

		PQclear(PQexecParams(conn, "INSERT INTO public.effects (job, token) VALUES ($1, $2)", 2, NULL, values, NULL, NULL, 0));
		done = jobq_complete(&jobs[i], conn, NULL);
	}
	PQclear(PQexec(conn, done == 1 ? "COMMIT" : "ROLLBACK"));
	PQfinish(conn);
}

static void
report(jobq_job *job)
{
	char		path[4200];
	FILE	   *file;

	pass_gate(job, "");
	jobq_progress(job, 50);
	jobq_checkpoint(job, "{\"step\": 1}");
	jobq_log(job, "info", "reported", NULL);
	make_path(path, sizeof(path), job, ".reported");
	if ((file = fopen(path, "w")) != NULL)
		fclose(file);
	pass_gate(job, ".end");
}

static void
chat(jobq_job *job)
{
	struct timespec nap = {0, 20000000};

	while (jobq_stopped(job) == NULL)
	{
		jobq_progress(job, 30);
		nanosleep(&nap, NULL);
	}
	jobq_progress(job, 40);
}

static void
rude(jobq_job *job)
{
	struct timespec nap = {0, 20000000};

	while (jobq_stopped(job) == NULL)
		nanosleep(&nap, NULL);
	jobq_fail(job, "stopped", NULL);
}

static void
deaf(jobq_job *job)
{
	(void) job;
	for (;;)
		pause();
}

static const struct
{
	const char *type;
	jobq_handler handler;
}			handlers[] = {
	{"echo", echo}, {"slow", slow}, {"fail", fail}, {"flaky", flaky}, {"raise", raise_error},
	{"effect", effect}, {"checkpoint", checkpoint}, {"poison", poison},
	{"skip", skip}, {"snooze", snooze}, {"progress", progress}, {"log", log_events}, {"malformed", malformed},
	{"badskip", badskip}, {"badsnooze", badsnooze}, {"badcode", badcode}, {"longcode", longcode}, {"big", big}, {"swallow", swallow},
	{"note", note}, {"refused", refused}, {"broken", broken}, {"report", report}, {"chat", chat}, {"rude", rude}, {"deaf", deaf}
};

static void
span_start(const jobq_job *job, void *arg)
{
	const char *traceparent = job->metadata ? value_of(job->metadata, "traceparent") : NULL;

	(void) arg;
	fprintf(stderr, "{\"event\": \"span_start\", \"job_id\": \"%s\", \"traceparent\": \"%s\"}\n", job->id,
			traceparent ? traceparent : "");
}

static void
span_end(const jobq_job *job, const char *outcome, void *arg)
{
	(void) arg;
	fprintf(stderr, "{\"event\": \"span_end\", \"job_id\": \"%s\", \"outcome\": \"%s\"}\n", job->id, outcome);
}

static int
enqueue(char **arguments)
{
	static char text[4 << 20];
	PGconn	   *conn = connection();
	char		id[37];
	int			rc;

	if (strcmp(arguments[1], "-") == 0 && fread(text, 1, sizeof(text) - 1, stdin) > 0)
		arguments[1] = text;
	rc = jobq_enqueue(conn, arguments[0], arguments[1], arguments[2], id);

	if (rc == 0)
		puts(id);
	else
		fprintf(stderr, "%s", PQerrorMessage(conn));
	PQfinish(conn);
	return rc ? 1 : 0;
}

int
main(int argc, char **argv)
{
	jobq_options options = jobq_defaults();
	char	   *types;
	jobq_worker *worker;
	int			rc;

	if (argc > 3 && strcmp(argv[1], "enqueue") == 0)
		return enqueue(argv + 2);
	types = strdup(setting("JOBQ_TYPES", ""));
	options.listen_dsn = setting("JOBQ_LISTEN_DSN", NULL);
	options.pooler = atoi(setting("JOBQ_POOLER", "0"));
	options.concurrency = atoi(setting("JOBQ_CONCURRENCY", "1"));
	options.lease = atof(setting("JOBQ_LEASE", "120"));
	options.poll = atof(setting("JOBQ_POLL", "1"));
	options.grace = atof(setting("JOBQ_GRACE", "30"));
	options.name = setting("JOBQ_WORKER", NULL);
	options.job_start = span_start;
	options.job_end = span_end;
	worker = jobq_worker_new(getenv("JOBQ_DSN"), &options);
	for (char *type = strtok(types, ","); type; type = strtok(NULL, ","))
	{
		if (strcmp(type, "batch") == 0)
			jobq_handle_batch(worker, "batch", 10, batch);
		if (strcmp(type, "together") == 0)
			jobq_handle_batch(worker, type, 5, together);
		if (strcmp(type, "mixed") == 0 || strcmp(type, "other") == 0)
			jobq_handle_batch(worker, type, 5, mixed);
		for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++)
			if (strcmp(type, handlers[i].type) == 0)
			{
				jobq_handle(worker, type, fail);	/* which the next one replaces */
				jobq_handle(worker, type, handlers[i].handler);
			}
	}
	rc = getenv("JOBQ_UNTIL_EMPTY") ? 0 : jobq_run(worker);
	for (int n = atoi(setting("JOBQ_UNTIL_EMPTY", "0")); n > 0; n--)
		rc |= jobq_run_until_empty(worker);
	jobq_worker_free(worker);
	free(types);
	return rc;
}
