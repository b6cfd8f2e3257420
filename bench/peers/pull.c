/*
 * pull.c
 *	  A minimal client that claims jobs, runs them outside of any transaction, and completes them.
 *
 *	  pull work --kind noop|row [--jobs N] [--concurrency C] [--batch B]
 *			[--wait S] [--listen] [--table] [--join]
 *	  pull hold --kind noop --jobs N --every S --seconds S
 *
 * Each of C threads has a connection with prepared statements.  It claims up
 * to B jobs, runs their handlers, and completes them: two transactions a
 * claim, each of them durable.  A claim of jobq waits for up to --wait (1)
 * seconds.  With --listen it does not wait: the connection listens on the
 * channel of the type instead.
 *
 * --join: the rows of a batch's handlers, its completion and the next claim
 * are one transaction, sent as a pipeline.  That claim does not wait; one that
 * has found no job is followed by a claim of its own.
 *
 * --table: the queue is a table written by hand (LEASES in driver/subjects.py)
 * with the same guarantees: a claim with FOR UPDATE SKIP LOCKED that writes a
 * token, a lease and the attempt, a completion that is fenced by the token and
 * moves the row into a history.  An idle worker of it polls every 100 ms.
 *
 * hold: see pull_hold.c.
 */
#include "pull.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BATCH_MAX		1000
#define UUID_TEXT		40		/* in an array */
#define POLL_MS			100
#define LISTEN_MS		1000

/* By ctid: a join would scan the table in a generic plan. */
#define TABLE_CLAIM \
	"UPDATE leases.job SET leased_until = now() + '2min', token = gen_random_uuid(), attempts = attempts + 1" \
	" WHERE ctid = ANY (ARRAY(SELECT ctid FROM leases.job WHERE leased_until IS NULL AND scheduled_for <= now()" \
	" ORDER BY priority DESC, scheduled_for, id FOR UPDATE SKIP LOCKED LIMIT $1::int)) RETURNING id, token, payload"
#define TABLE_COMPLETE \
	"WITH done AS (DELETE FROM leases.job WHERE id = $1::bigint AND token = $2::uuid RETURNING *)" \
	" INSERT INTO leases.history (id, priority, scheduled_for, payload, attempts, finished_at)" \
	" SELECT id, priority, scheduled_for, payload, attempts, clock_timestamp() FROM done RETURNING true"
#define TABLE_COMPLETE_MANY \
	"WITH done AS (DELETE FROM leases.job j USING unnest($1::bigint[], $2::uuid[]) AS d (id, token)" \
	" WHERE j.id = d.id AND j.token = d.token RETURNING j.*), kept AS" \
	" (INSERT INTO leases.history (id, priority, scheduled_for, payload, attempts, finished_at)" \
	" SELECT id, priority, scheduled_for, payload, attempts, clock_timestamp() FROM done RETURNING id)" \
	" SELECT count(*) FROM kept"

enum {ID, TOKEN, PAYLOAD};

typedef struct Puller
{
	pthread_t	thread;
	PGconn	   *conn;
	char	   *ids;			/* array literals of a batch */
	char	   *tokens;
} Puller;

static const char *kind = "";
static bool listening = false;
static bool by_table = false;
static bool join = false;
static int64_t wanted = 0;
static int64_t concurrency = 1;
static int64_t batch = 1;
static double wait_seconds = 1;
static char most[16];			/* batch as text */
static double every = 30;
static double seconds = 0;

static sem_t stopped;
static atomic_llong finished;
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static double last_finished;

static void
stop(int signal_number)
{
	(void) signal_number;
	sem_post(&stopped);
}

static void
listen_to_type(PGconn *conn)
{
	PGresult   *channel = PQexecParams(conn, "SELECT quote_ident(jobq.channel($1))", 1, NULL, &kind, NULL, NULL, 0);
	char		sql[256];

	if (PQresultStatus(channel) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(channel));
	snprintf(sql, sizeof(sql), "LISTEN %s", PQgetvalue(channel, 0, 0));
	PQclear(channel);
	execute(conn, sql);
}

static void
prepare_statements(PGconn *conn)
{
	const char *format = "SELECT id, lease_token, payload FROM jobq.claim('{%s}', $1::int, wait => '%f s')";
	char		claim[256];
	char		next[256];

	snprintf(claim, sizeof(claim), format, kind, listening ? 0.0 : wait_seconds);
	snprintf(next, sizeof(next), format, kind, 0.0);
	/* An empty table's statistics must not give a cached plan that sorts. */
	if (by_table)
		execute(conn, "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off");
	execute(conn, "SET plan_cache_mode = force_generic_plan");
	prepare(conn, "claim", by_table ? TABLE_CLAIM : claim);
	prepare(conn, "next", by_table ? TABLE_CLAIM : next);
	if (by_table)
		prepare(conn, "complete", batch > 1 ? TABLE_COMPLETE_MANY : TABLE_COMPLETE);
	else if (batch > 1)
		prepare(conn, "complete", "SELECT count(*) FROM jobq.complete_many($1::uuid[], $2::uuid[])");
	else
		prepare(conn, "complete", "SELECT jobq.complete($1::uuid, $2::uuid)");
	prepare(conn, "handler", "INSERT INTO bench.result (n, ran) VALUES ($1, $2)");
	if (listening)
		listen_to_type(conn);
}

static PGresult *
expect_rows(PGresult *result)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(result));
	return result;
}

static PGresult *
claim_jobs(Puller *p)
{
	const char *values[] = {most};

	return expect_rows(PQexecPrepared(p->conn, "claim", 1, values, NULL, NULL, 0));
}

/* The handler of a row job: in its own transaction, or sent as a part of the pipeline. */
static void
insert_row(Puller *p, const char *payload)
{
	char		number[32];
	char		ran[32];
	const char *values[] = {number, ran};
	const char *n = strchr(payload, ':');

	snprintf(ran, sizeof(ran), "%.6f", epoch_now());
	if (n == NULL)
		die("no number in payload %s", payload);
	snprintf(number, sizeof(number), "%lld", strtoll(n + 1, NULL, 10));
	if (!join)
		expect_ok(p->conn, PQexecPrepared(p->conn, "handler", 2, values, NULL, NULL, 0));
	else if (!PQsendQueryPrepared(p->conn, "handler", 2, values, NULL, NULL, 0))
		die("%s", PQerrorMessage(p->conn));
}

/* Takes the result of one statement of the pipeline. */
static PGresult *
next_result(Puller *p)
{
	PGresult   *result = PQgetResult(p->conn);

	(void) PQgetResult(p->conn);	/* NULL: it has no more */
	return result;
}

static void
write_array(char *to, PGresult *claim, int column)
{
	char	   *at = to;

	for (int i = 0; i < PQntuples(claim); i++)
		at += sprintf(at, "%c%s", i == 0 ? '{' : ',', PQgetvalue(claim, i, column));
	strcpy(at, "}");
}

static void
count_finished(int jobs)
{
	double		now = epoch_now();

	pthread_mutex_lock(&last_lock);
	if (now > last_finished)
		last_finished = now;
	pthread_mutex_unlock(&last_lock);
	if (atomic_fetch_add(&finished, jobs) + jobs >= wanted && wanted > 0)
		stop(0);
}

/*
 * Sends a completion and a claim in the transaction of so many rows; *next is the claim's result.
 */
static PGresult *
complete_and_claim(Puller *p, const char *const *values, int rows, PGresult **next)
{
	const char *limit[] = {most};
	PGresult   *done;

	if (!PQsendQueryPrepared(p->conn, "complete", 2, values, NULL, NULL, 0) ||
		!PQsendQueryPrepared(p->conn, "next", 1, limit, NULL, NULL, 0) || !PQpipelineSync(p->conn))
		die("%s", PQerrorMessage(p->conn));
	for (int i = 0; i < rows; i++)
		expect_ok(p->conn, next_result(p));
	done = expect_rows(next_result(p));
	*next = expect_rows(next_result(p));
	PQclear(PQgetResult(p->conn));	/* the pipeline's end */
	return done;
}

/* Completes the jobs; returns the next claim if it was made in the same transaction, else NULL. */
static PGresult *
complete_jobs(Puller *p, PGresult *claim)
{
	PGresult   *next = NULL;
	const char *values[] = {PQgetvalue(claim, 0, ID), PQgetvalue(claim, 0, TOKEN)};
	int			jobs = PQntuples(claim);
	PGresult   *result;
	const char *told;

	if (batch > 1)
	{
		write_array(p->ids, claim, ID);
		write_array(p->tokens, claim, TOKEN);
		values[0] = p->ids;
		values[1] = p->tokens;
	}
	if (join)
		result = complete_and_claim(p, values, strcmp(kind, "row") == 0 ? jobs : 0, &next);
	else
		result = expect_rows(PQexecPrepared(p->conn, "complete", 2, values, NULL, NULL, 0));
	told = PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "no row";
	if (batch > 1 ? atoi(told) != jobs : strcmp(told, "t") != 0)
		die("complete of %d jobs returned %s", jobs, told);
	PQclear(result);
	count_finished(jobs);
	return next;
}

/* Sleeps until a notification or the next poll. */
static void
sleep_for_jobs(Puller *p)
{
	struct pollfd fd = {PQsocket(p->conn), POLLIN, 0};
	PGnotify   *notification;
	bool		notified = false;

	if (by_table)
		usleep(POLL_MS * 1000);
	if (!listening)
		return;
	while ((notification = PQnotifies(p->conn)) != NULL)
	{
		notified = true;
		PQfreemem(notification);
	}
	if (!notified && poll(&fd, 1, LISTEN_MS) > 0 && !PQconsumeInput(p->conn))
		die("%s", PQerrorMessage(p->conn));
}

static void *
run_puller(void *arg)
{
	Puller	   *p = arg;
	PGresult   *next = NULL;	/* of the pipeline */

	for (;;)
	{
		PGresult   *claim = next;

		if (claim == NULL || PQntuples(claim) == 0)
		{
			PQclear(claim);
			if (join)
				PQexitPipelineMode(p->conn);
			claim = claim_jobs(p);
			if (join)
				PQenterPipelineMode(p->conn);
		}
		next = NULL;
		for (int i = 0; i < PQntuples(claim) && strcmp(kind, "row") == 0; i++)
			insert_row(p, PQgetvalue(claim, i, PAYLOAD));
		if (PQntuples(claim) > 0)
			next = complete_jobs(p, claim);
		else
			sleep_for_jobs(p);
		PQclear(claim);
	}
	return NULL;
}

static Puller *
open_pullers(void)
{
	Puller	   *pullers = allocate(sizeof(Puller) * concurrency);

	for (int64_t i = 0; i < concurrency; i++)
	{
		pullers[i].conn = connect_or_die();
		pullers[i].ids = allocate(batch * UUID_TEXT + 2);
		pullers[i].tokens = allocate(batch * UUID_TEXT + 2);
		prepare_statements(pullers[i].conn);
	}
	return pullers;
}

static bool
await_go(void)
{
	char		line[16];

	puts("ready");
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) != NULL;
}

/*
 * Runs pullers until enough jobs are completed, or SIGTERM.  The process then
 * ends without joining the threads, which may wait in a claim.
 */
static void
work(void)
{
	struct sigaction action = {.sa_handler = stop};
	Puller	   *pullers = open_pullers();
	double		started;
	double		cpu;

	sem_init(&stopped, 0, 0);
	sigaction(SIGTERM, &action, NULL);
	if (!await_go())
		return;
	started = epoch_now();
	cpu = cpu_seconds(RUSAGE_SELF);
	for (int64_t i = 0; i < concurrency; i++)
	{
		if (pthread_create(&pullers[i].thread, NULL, run_puller, &pullers[i]) != 0)
			die("pthread_create failed");
	}
	while (sem_wait(&stopped) != 0)
		continue;				/* interrupted */
	printf("{\"jobs\": %lld, \"started\": %.6f, \"finished\": %.6f, \"cpu\": %.6f}\n", (long long) finished, started,
		   last_finished > started ? last_finished : started, cpu_seconds(RUSAGE_SELF) - cpu);
	fflush(stdout);
	_exit(0);
}

static void
read_options(int argc, char **argv)
{
	const Option options[] = {
		{"kind", OPT_TEXT, &kind}, {"jobs", OPT_COUNT, &wanted}, {"concurrency", OPT_COUNT, &concurrency},
		{"batch", OPT_COUNT, &batch}, {"wait", OPT_NUMBER, &wait_seconds}, {"listen", OPT_FLAG, &listening},
		{"table", OPT_FLAG, &by_table}, {"join", OPT_FLAG, &join}, {"every", OPT_NUMBER, &every}, {"seconds", OPT_NUMBER, &seconds},
		{NULL}
	};

	if (parse_options(argc, argv, 2, options) < argc)
		die("an option starts with --");
	if (strcmp(kind, "row") != 0 && strcmp(kind, "noop") != 0)
		die("--kind is noop or row");
	if (batch < 1 || batch > BATCH_MAX || concurrency < 1 || wanted < 0 || every <= 0)
		die("a number is out of range");
	snprintf(most, sizeof(most), "%" PRId64, batch);
	if (by_table && listening)
		die("--table does not take --listen");
}

int
main(int argc, char **argv)
{
	bool		working = argc > 2 && strcmp(argv[1], "work") == 0;

	set_program_name("pull");
	if (!working && !(argc > 2 && strcmp(argv[1], "hold") == 0))
		die("usage: pull work --kind noop|row [--jobs N] [--concurrency C] [--batch B] [--wait S] [--listen] [--table] [--join]"
			" | pull hold --kind noop --jobs N --every S --seconds S");
	read_options(argc, argv);
	if (working)
		work();
	else
		hold(kind, wanted, every, seconds);
	return 0;
}
