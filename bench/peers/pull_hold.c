/*
 * pull_hold.c
 *	  Claims jobs, and renews their leases for a while without running them.
 *
 * Jobs are claimed and heartbeated in groups of up to 1,000: one statement a
 * group.  The groups take turns, so that heartbeats come evenly and each job
 * has one in every period.  The program prints `ready` when it has claimed all
 * jobs, and waits for `go`.
 */
#include "pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP			1000

typedef struct Group
{
	char	   *ids;			/* array literals */
	char	   *tokens;
	int			jobs;
} Group;

static Group
claim_group(PGconn *conn, const char *kind, int64_t most, int64_t held)
{
	char		number[16];
	const char *values[] = {kind, number};
	Group		group;
	PGresult   *claim;

	snprintf(number, sizeof(number), "%" PRId64, most);
	claim = PQexecParams(conn, "SELECT count(*), array_agg(id), array_agg(lease_token)"
						 " FROM jobq.claim(ARRAY[$1], $2::int, wait => '10 s')", 2, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(claim) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(claim));
	group.jobs = atoi(PQgetvalue(claim, 0, 0));
	if (group.jobs == 0)
		die("no job to claim after %" PRId64 " of them", held);
	group.ids = strdup(PQgetvalue(claim, 0, 1));
	group.tokens = strdup(PQgetvalue(claim, 0, 2));
	PQclear(claim);
	return group;
}

static void
heartbeat(PGconn *conn, const Group *group)
{
	const char *values[] = {group->ids, group->tokens};
	PGresult   *result = PQexecPrepared(conn, "heartbeat", 2, values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(result));
	if (atoi(PQgetvalue(result, 0, 0)) != group->jobs)
		die("of %d leases %s are left", group->jobs, PQgetvalue(result, 0, 0));
	PQclear(result);
}

static void
sleep_till(double epoch)
{
	double		left = epoch - epoch_now();
	struct timespec ts;

	if (left <= 0)
		return;
	ts.tv_sec = (time_t) left;
	ts.tv_nsec = (long) ((left - (double) ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

/* Renews the leases of so many jobs of the type, each of them every so many seconds. */
void
hold(const char *kind, int64_t jobs, double every, double seconds)
{
	PGconn	   *conn = connect_or_die();
	Group	   *groups = allocate(sizeof(Group) * (jobs + 1));
	int64_t		held = 0;
	int64_t		n = 0;
	int64_t		beats = 0;
	double		started;
	char		line[16];

	prepare(conn, "heartbeat", "SELECT count(*) FILTER (WHERE jobq.heartbeat(id, token) = 'ok')"
			" FROM unnest($1::uuid[], $2::uuid[]) j(id, token)");
	for (; held < jobs; held += groups[n++].jobs)
		groups[n] = claim_group(conn, kind, jobs - held < GROUP ? jobs - held : GROUP, held);
	puts("ready");
	fflush(stdout);
	if (fgets(line, sizeof(line), stdin) == NULL)
		return;
	started = epoch_now();
	for (; epoch_now() < started + seconds; beats++)
	{
		heartbeat(conn, &groups[beats % n]);
		sleep_till(started + (double) (beats + 1) * every / (double) n);
	}
	printf("{\"jobs\": %" PRId64 ", \"groups\": %" PRId64 ", \"heartbeats\": %" PRId64 ", \"late\": %.3f}\n", held, n,
		   beats * held / n, epoch_now() - started - (double) beats * every / (double) n);
}
