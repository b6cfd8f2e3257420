/*
 * seeds.c
 *	  The routes of the seeds that are more than one call: /admin.
 *
 * Jobs and counts end after about a second each, as other lists do: counts
 * that are not exact by then say so, and searched_to how far the jobs reach.
 */
#include "seeds.h"

#include <string.h>

#include "problem.h"
#include "statement.h"

/*
 * The page ends after 4 MB, as other lists do; next is the offset of the next
 * one.  An empty field of a form is not given.
 */
#define FILTER	"nullif({type}::text, ''), nullif({collection_id}::text, '')"

const char	seeds_jobs[] =
"WITH found AS MATERIALIZED (SELECT s.item, s.id, row_number() OVER (ORDER BY s.id DESC) AS n"
"   FROM jobq_internal._search_jobs({status}, " FILTER ", NULL, NULL, NULL, NULL,"
"                                   {limit} + coalesce({offset}, 0), ids_only => true) s),"
" page AS MATERIALIZED (SELECT to_json(j)::text AS item, f.n - coalesce({offset}, 0) AS n"
"   FROM found f JOIN jobq.jobs j ON j.id = f.id WHERE f.item IS NOT NULL AND f.n > coalesce({offset}, 0)),"
" sized AS (SELECT p.item, p.n, sum(octet_length(p.item)) OVER (ORDER BY p.n) AS bytes FROM page p),"
" shown AS MATERIALIZED (SELECT s.item, s.n FROM sized s WHERE s.n < {limit} AND (s.bytes <= 4194304 OR s.n = 1))"
" SELECT jsonb_strip_nulls(jsonb_build_object('searched_to', (SELECT to_timestamp(('x' || left(replace(f.id::text, '-', ''), 12))::bit(48)::int8"
"    / 1000.0) FROM found f WHERE f.item IS NULL))) || jsonb_build_object("
"  'jobs', (SELECT coalesce(json_agg(s.item::json ORDER BY s.n), '[]') FROM shown s),"
"  'counts', (SELECT json_object_agg(c.status, json_build_object('n', c.n, 'exact', c.exact))"
"               FROM jobq_internal._search_counts(" FILTER ") c),"
"  'job_types', (SELECT coalesce(json_agg(t.name ORDER BY t.name), '[]') FROM jobq.job_types t WHERE t.dropped_at IS NULL),"
"  'next', CASE WHEN (SELECT count(*) FROM page) > (SELECT count(*) FROM shown)"
"               THEN coalesce({offset}, 0) + (SELECT count(*) FROM shown) END)";

/* Of each file system that is still watched the last 60 readings; current: of the fullest one. */
const char	seeds_disk[] =
"WITH last AS MATERIALIZED (SELECT DISTINCT ON (d.path) d.* FROM jobq.disk_log d ORDER BY d.path, d.ts DESC),"
" live AS MATERIALIZED (SELECT l.* FROM last l WHERE l.ts > (SELECT max(m.ts) FROM last m) - interval '5 minutes')"
" SELECT json_build_object("
"  'current', (SELECT to_json(l) FROM live l ORDER BY l.percent DESC, l.path LIMIT 1),"
"  'readings', (SELECT coalesce(json_agg(r ORDER BY r.ts DESC, r.path), '[]')"
"                 FROM live l, LATERAL (SELECT * FROM jobq.disk_log d WHERE d.path = l.path ORDER BY d.ts DESC LIMIT 60) r))";

#define SET_RULE(signal, adj, block) "jobq_internal._alter_pressure_rule({job_type}, " signal ", " adj ", " block ")"

static bool
has(const Call *call, const char *a, const char *b)
{
	return call_value(call, a) || call_value(call, b);
}

/* All changes are one statement: all or none. */
void
seeds_update_rule(Call *call)
{
	Buf			sql = {0};
	const char *comma = "";

	buf_text(&sql, "SELECT json_build_object('ok', true) FROM (SELECT ");
	if (has(call, "base_priority", "cpu_weight") || has(call, "max_concurrent", "timeout_seconds"))
	{
		buf_text(&sql, "jobq.alter_job_type(name => {job_type}, base_priority => {base_priority},"
				 " cpu_weight => {cpu_weight}, max_concurrent => {max_concurrent},"
				 " timeout => CASE WHEN {timeout_seconds} IS NOT NULL"
				 "            THEN least(greatest({timeout_seconds}::float8, -1), 1e12) * interval '1 second' END)");
		comma = ", ";
	}
	if (call_value(call, "signal"))
	{
		buf_printf(&sql, "%s%s", comma, SET_RULE("{signal}", "{priority_adj}", "{block}"));
		comma = ", ";
	}
	if (has(call, "livekit_priority_adj", "block_during_livekit"))
	{
		buf_printf(&sql, "%s%s", comma, SET_RULE("'livekit'", "{livekit_priority_adj}", "{block_during_livekit}"));
		comma = ", ";
	}
	buf_text(&sql, " OFFSET 0) c");
	if (has(call, "priority_adj", "block") && !call_value(call, "signal"))
		problem_argument(call->request, "signal", "argument \"signal\" is missing");
	else if (*comma == '\0')
		problem_reply(call->request, 400, "no argument to change is given");
	else
		call_run_sql(call, sql.data, false);
	buf_free(&sql);
}
