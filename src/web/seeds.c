/*
 * seeds.c
 *	  The routes of the seeds that are more than one call: /admin.
 *
 * Counts of live jobs stop at 10,000 for each status.  Those of finished jobs
 * are of the newest 10,000 of history: a rare status would otherwise read all
 * of it.
 */
#include "seeds.h"

#include <string.h>

#include "problem.h"
#include "statement.h"

/* Conditions of the page, for a table with a column type_id. */
#define OF_PAGE(t) \
	" WHERE ({type} IS NULL OR " t ".job_type = {type})" \
	" AND ({collection_id} IS NULL OR coalesce(" t ".tenant, '') = {collection_id})"
#define COUNT(status) \
	"'" status "', (SELECT json_build_object('n', least(count(*), 10000), 'exact', count(*) <= 10000)" \
	" FROM (SELECT FROM jobq.jobs j" OF_PAGE("j") " AND j.status = '" status "' LIMIT 10001) x)"
#define FINISHED(status) \
	"'" status "', json_build_object('n', (SELECT count(*) FROM newest n WHERE n.status = '" status "')," \
	" 'exact', (SELECT count(*) <= 10000 FROM newest))"

/* The page ends after 4 MB, as other lists do; next is the offset of the next one. */
const char	seeds_jobs[] =
"WITH page AS MATERIALIZED (SELECT to_json(t)::text AS item, row_number() OVER () AS n"
"   FROM jobq.list_jobs(status => {status}, job_type => {type}, tenant => {collection_id}, max_rows => {limit},"
"                       skip_rows => coalesce({offset}, 0)) t),"
" sized AS (SELECT p.item, p.n, sum(octet_length(p.item)) OVER (ORDER BY p.n) AS bytes FROM page p),"
" shown AS MATERIALIZED (SELECT s.item, s.n FROM sized s WHERE s.n < {limit} AND (s.bytes <= 4194304 OR s.n = 1)),"
" newest AS MATERIALIZED (SELECT j.status FROM jobq.jobs j" OF_PAGE("j")
"   AND j.status IN ('completed', 'skipped', 'cancelled') ORDER BY j.id DESC LIMIT 10001)"
" SELECT json_build_object("
"  'jobs', (SELECT coalesce(json_agg(s.item::json ORDER BY s.n), '[]') FROM shown s),"
"  'counts', json_build_object(" COUNT("pending") ", " COUNT("blocked") ", " COUNT("retry") ", " COUNT("running") ", "
COUNT("error") ", " FINISHED("completed") ", " FINISHED("skipped") ", " FINISHED("cancelled") "),"
"  'job_types', (SELECT coalesce(json_agg(d), '[]') FROM jobq.distinct_job_types() d),"
"  'next', CASE WHEN (SELECT count(*) FROM page) > (SELECT count(*) FROM shown)"
"               THEN coalesce({offset}, 0) + (SELECT count(*) FROM shown) END)";

const char	seeds_disk[] =
"SELECT json_build_object("
" 'current', (SELECT to_json(d) FROM jobq.disk_log d ORDER BY d.ts DESC LIMIT 1),"
" 'readings', (SELECT coalesce(json_agg(r), '[]') FROM (SELECT * FROM jobq.disk_log d ORDER BY d.ts DESC LIMIT 60) r))";

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
				 " timeout => {timeout_seconds}::float8 * interval '1 second')");
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
	if (*comma == '\0')
		problem_reply(call->request, 400, "no argument to change is given");
	else if (has(call, "priority_adj", "block") && !call_value(call, "signal"))
		problem_argument(call->request, "signal", "argument \"signal\" is missing");
	else
		call_run_sql(call, sql.data, false);
	buf_free(&sql);
}
