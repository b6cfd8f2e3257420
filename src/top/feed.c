/*
 * feed.c
 *	  What jobq-top shows: parts, each the rows of one statement.
 *
 * A round asks the parts one after the other.  Each is a statement and a
 * snapshot of its own: a role without the right to one of them, or a server
 * that can't answer it in time, still shows the others.  A part with an error
 * has no rows; a lost connection leaves the rows as they were.
 *
 * The statements are constant; the only parameter is the id of feed_why.
 */
#include "top/feed.h"

#include <stdlib.h>
#include <string.h>

#include "top/link.h"
#include "top/text.h"

#define ERRORS_EVERY_MS	10000	/* jobq.error_groups() reads up to 10,000 jobs */

#define HEALTH_SQL \
	"WITH f(h) AS MATERIALIZED (SELECT jobq.health())" \
	" SELECT h->>'status' AS status, c.key, c.value->>'status' AS check_status, c.value->>'message' AS message" \
	" FROM f, jsonb_each(h->'checks') c" \
	" ORDER BY c.value->>'status' = 'unhealthy' DESC, c.value->>'status' = 'degraded' DESC, c.key"
/* Trouble first: due jobs that do not get fewer, the oldest, then new failures. */
#define TYPES_SQL \
	"SELECT job_type, due, due_exact, pending, running, retry, blocked, dead," \
	" (SELECT sum(n::bigint) FROM jsonb_each_text(failures) f(kind, n)) AS failures, oldest_due_s, drain_s, paused" \
	" FROM jobq.stat_job_types" \
	" ORDER BY coalesce(due > 0 AND (paused OR drain_s IS NULL), false) DESC, oldest_due_s DESC NULLS LAST," \
	" due DESC NULLS LAST, last_failed DESC NULLS LAST, dead DESC NULLS LAST, job_type"
#define WORKERS_SQL \
	"SELECT kind, pid, worker, state, job_id, job_type, attempt," \
	" extract(epoch FROM clock_timestamp() - started_at) AS run_s," \
	" extract(epoch FROM coalesce(lease_expires_at, deadline) - clock_timestamp()) AS left_s," \
	" count(job_id) OVER () AS running, count(*) FILTER (WHERE job_id IS NULL) OVER () AS idle" \
	" FROM jobq.stat_workers ORDER BY job_id IS NULL, started_at, kind, pid LIMIT 200"
#define WAITING_SQL \
	"SELECT id, job_type, status, priority, tenant, attempts," \
	" extract(epoch FROM clock_timestamp() - created_at) AS age_s," \
	" extract(epoch FROM scheduled_for - clock_timestamp()) AS due_s" \
	" FROM jobq.jobs WHERE status IN ('pending', 'retry', 'blocked') ORDER BY id LIMIT 50"
#define ERRORS_SQL \
	"SELECT g.job_type, g.error_code, g.pattern, g.n, extract(epoch FROM clock_timestamp() - g.last) AS last_s, g.job_id" \
	" FROM jobq.error_groups(max_rows => 10000) g ORDER BY g.last DESC, g.n DESC LIMIT 50"
#define WHY_SQL \
	"SELECT w->>'status', w->'ahead'->>'n', w->'ahead'->>'exact', w->>'start_in_s', r->>'code', r->>'message'," \
	" extract(epoch FROM (r->>'until')::timestamptz - clock_timestamp()), r->>'holder'" \
	" FROM jobq.why($1) w LEFT JOIN LATERAL jsonb_array_elements(w->'reasons') r ON true"
/* HEALTH_STATUS is the status, PART_JSON the value. */
#define AS_JSON(sql)	"SELECT NULL, coalesce(json_agg(t), '[]') FROM (" sql ") t"

const char *const part_names[N_PARTS] = {"health", "job_types", "workers", "waiting", "errors", "why"};

static const char *const row_statements[N_PARTS] = {HEALTH_SQL, TYPES_SQL, WORKERS_SQL, WAITING_SQL, ERRORS_SQL, WHY_SQL};
static const char *const json_statements[N_ROUND] = {
	"SELECT h->>'status', h FROM (SELECT jobq.health()) f(h)", AS_JSON(TYPES_SQL), AS_JSON(WORKERS_SQL), AS_JSON(WAITING_SQL), AS_JSON(ERRORS_SQL)
};

static const char *const *statements = row_statements;
static Part parts[N_PARTS];
static int	asked = -1;			/* the part whose statement runs */
static int	next = N_ROUND;		/* the part of the round to ask then */
static bool round_wanted;
static bool all_wanted;
static bool all;
static char *why_id;			/* to ask; NULL: nothing */
static int	losses;
static int64_t round_at;

const Part *
feed_part(PartId id)
{
	return &parts[id];
}

int
part_rows(PartId id)
{
	return parts[id].rows ? PQntuples(parts[id].rows) : 0;
}

const char *
part_value(PartId id, int row, int column)
{
	return PQgetvalue(parts[id].rows, row, column);
}

void
feed_setup(bool as_json)
{
	statements = as_json ? json_statements : row_statements;
}

void
feed_round(bool everything)
{
	round_wanted = true;
	all_wanted |= everything;
}

static void
clear_part(Part *part)
{
	PQclear(part->rows);
	free(part->error);
	memset(part, 0, sizeof(*part));
}

void
feed_why(const char *id)
{
	free(why_id);
	why_id = text_copy(id);
	clear_part(&parts[PART_WHY]);
}

int64_t
feed_at(void)
{
	return round_at;
}

static void
keep(Part *part, PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	clear_part(part);
	part->at = now_ms();
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		part->rows = result;
		return;
	}
	part->error = text_copy(message ? message : PQresultErrorMessage(result));
	strncpy(part->sqlstate, state ? state : "", sizeof(part->sqlstate) - 1);
	PQclear(result);
}

/* True if the part is due in this round. */
static bool
is_due(int id)
{
	return id != PART_ERRORS || all || now_ms() - parts[id].at >= ERRORS_EVERY_MS;
}

/* Skips parts that are not due. */
static void
skip_parts(void)
{
	while (next < N_ROUND && !is_due(next))
		next++;
}

/* Sends the next statement, if there is one: that of why goes first. */
static void
ask_next(void)
{
	if (why_id)
	{
		asked = PART_WHY;
		link_ask(statements[PART_WHY], why_id);
		free(why_id);
		why_id = NULL;
		return;
	}
	if (next == N_ROUND && round_wanted)
	{
		next = 0;
		all = all_wanted;
		round_wanted = all_wanted = false;
	}
	skip_parts();
	if (next < N_ROUND)
	{
		asked = next++;
		link_ask(statements[asked], NULL);
	}
}

/* A statement of a lost connection has no answer. */
static bool
forget_lost_work(void)
{
	if (losses == link_losses())
		return false;
	losses = link_losses();
	if (asked == PART_WHY)
	{
		clear_part(&parts[PART_WHY]);
		parts[PART_WHY].error = text_copy("the connection was lost");
	}
	asked = -1;
	next = N_ROUND;
	round_wanted = true;
	return true;
}

bool
feed_step(void)
{
	bool		changed = forget_lost_work();
	PGresult   *result = asked >= 0 ? link_take() : NULL;

	if (result)
	{
		keep(&parts[asked], result);
		skip_parts();
		if (asked != PART_WHY && next == N_ROUND)
			round_at = now_ms();
		changed = asked == PART_WHY || next == N_ROUND;
		asked = -1;
	}
	if (asked < 0 && link_is_idle())
		ask_next();
	return changed;
}
