/*
 * overview.c
 *	  The overview: health, and job types with their numbers.
 *
 * Roles that may read all tenants and types get jobq.stat_job_types, which is
 * the same for all of them.  A role of some tenants or types gets what
 * row-level security lets it count: live jobs and dead letters of the types
 * that it has jobs of, with the same names of columns.  It counts for half a
 * second at most; exact is false where there are more.
 *
 * GET tries the first statement and takes the second one after 42501.  A
 * stream must know before, because the first kind is computed once for many
 * roles: overview_kind asks with the functions that the server itself uses.
 */
#include "overview.h"

#include <string.h>

#include "problem.h"
#include "statement.h"

#define BODY(types) \
	"json_build_object('health', jobq.health(), 'types', (SELECT coalesce(json_agg(t), '[]') FROM " types " t))"

#define OWN_TYPES "WITH own AS MATERIALIZED (SELECT * FROM jobq_internal._search_overview())"

/* Conditions on a role, a row r of pg_roles. */
#define SIGNS_IN \
	"r.rolcanlogin AND coalesce(r.rolvaliduntil > now(), true)" \
	" AND has_database_privilege(r.oid, current_database(), 'CONNECT')"
#define HAS_HEALTH "has_schema_privilege(r.oid, 'jobq', 'USAGE') AND has_function_privilege(r.oid, 'jobq.health()', 'EXECUTE')"
#define READS_ALL HAS_HEALTH " AND has_table_privilege(r.oid, 'jobq.stat_job_types', 'SELECT') AND jobq_internal._reads_all(r.oid)"

#define TYPE_ROWS(counters, types) \
	" UNION ALL SELECT 't', hashtextextended(ROW(" counters ")::text, 0) || ' ' || coalesce(to_json(t.job_type)::text, 'null')" \
	" FROM " types " t"
#define ROLE_ROWS(condition) \
	" UNION ALL SELECT 'r', n.name FROM (SELECT DISTINCT json_array_elements_text($1::json)) n(name)" \
	" WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = n.name AND " SIGNS_IN " AND " condition ")"

static const char get_all[] = "SELECT " BODY("jobq.stat_job_types");
static const char get_own[] = OWN_TYPES " SELECT " BODY("own");

const char	overview_kind[] =
"SELECT CASE WHEN " READS_ALL " THEN 'all' ELSE 'own' END FROM pg_roles r WHERE r.rolname = session_user";

const char	overview_feed_all[] =
"WITH s AS MATERIALIZED (SELECT * FROM jobq.stat_job_types) SELECT 'o', " BODY("s") "::text"
TYPE_ROWS("t.pending, t.due, t.blocked, t.retry, t.running, t.dead, t.enqueued, t.started, t.completed, t.skipped,"
		  " t.cancelled, t.died, t.retried, t.failures, t.paused", "s")
ROLE_ROWS(READS_ALL);

const char	overview_feed_own[] =
OWN_TYPES " SELECT 'o', " BODY("own") "::text"
TYPE_ROWS("t.pending, t.blocked, t.retry, t.running, t.dead", "own")
ROLE_ROWS(HAS_HEALTH);

static void
own_read(Call *call, const PgError *error)
{
	if (error)
		problem_server(call->request, error);
	else
		call_reply_value(call);
}

static void
all_read(Call *call, const PgError *error)
{
	if (error && strcmp(error->sqlstate, "42501") == 0)
	{
		call->finished = own_read;
		call_run_sql(call, get_own, true);
	}
	else
		own_read(call, error);
}

void
overview_get(Call *call)
{
	call->finished = all_read;
	call_run_sql(call, get_all, true);
}
