/*
 * routes.c
 *	  The table of routes.
 *
 * Names of arguments and columns are those of SQL.  A statement's second
 * column is the key of the next page of a list, or the status of a value.
 * Where a function or view does not exist in the database yet, the server says
 * 42883 or 42P01, and the reply is 501.
 */
#include "assets.h"
#include "bulk.h"
#include "claim.h"
#include "openapi.h"
#include "overview.h"
#include "plain.h"
#include "route.h"
#include "seeds.h"
#include "sign_in.h"
#include "stream.h"

#define ARGS(...) (const Arg[]) {__VA_ARGS__, {NULL, ARG_TEXT, IN_NONE, false, false}}
#define PATH(name, type) {name, type, IN_PATH, true, false}
#define QUERY(name, type) {name, type, IN_QUERY, false, false}
#define OWN_QUERY(name, type) {name, type, IN_QUERY, false, true}
#define BODY(name, type) {name, type, IN_BODY, false, false}
#define NEEDED(name, type) {name, type, IN_BODY, true, false}
#define LIMIT {"limit", ARG_LIMIT, IN_QUERY, false, true}
#define CURSOR {"cursor", ARG_CURSOR, IN_QUERY, false, true}

/* Rows of a table or view, without an order of pages. */
#define ROWS(source) "SELECT to_json(t) FROM " source " t", .answer = source
#define OK(call) "SELECT json_build_object('ok', true) FROM (SELECT " call " OFFSET 0) c", .answer = "ok"
/* True, or the job's state does not allow it, or there is no such job. */
#define DONE_WITH(id, call) \
	"SELECT json_build_object('ok', c.ok), CASE WHEN c.ok THEN 200" \
	" WHEN EXISTS (SELECT FROM jobq.jobs j WHERE j.id = " id ") THEN 409 ELSE 404 END" \
	" FROM (SELECT " call " AS ok OFFSET 0) c", .answer = "ok"
#define DONE(call) DONE_WITH("{id}", call)
/* The same for holders of a lease, which may not read jobs. */
#define LEASED(call) \
	"SELECT json_build_object('ok', c.ok), CASE WHEN c.ok THEN 200 ELSE 409 END" \
	" FROM (SELECT " call " AS ok OFFSET 0) c", .answer = "ok"

/* Keys of pages: a time in microseconds, a dot, an id; names as hexadecimal digits. */
#define TIME_KEY(ts) "(extract(epoch FROM " ts ") * 1000000)::int8"
#define KEY_TIME "(timestamptz 'epoch' + split_part({cursor}, '.', 1)::int8 * interval '1us')"
#define NAME_KEY(name) "encode(convert_to(" name ", 'UTF8'), 'hex')"
#define KEY_NAME "convert_from(decode({cursor}, 'hex'), 'UTF8')"
/* The first id of a moment: ids begin with milliseconds, up to the year 10889. */
#define ID_AT(ts) \
	"(lpad(to_hex(CASE WHEN " ts " > 'epoch' THEN (extract(epoch FROM least(" ts ", '9999-12-31')) * 1000)::int8" \
	" WHEN " ts " IS NOT NULL THEN 0 END), 12, '0') || repeat('0', 20))::uuid"

/* Rows of a table by time, with these columns. */
#define LOG(table, filter) \
	"SELECT t.item, t.key FROM jobq_internal._search_log('" table "', jsonb_build_object(" filter ")," \
	" {since}, {until}, {cursor}, {limit}) t"

#define LEASE PATH("id", ARG_UUID), NEEDED("lease_token", ARG_UUID)
#define ENQUEUE_ARGS \
	NEEDED("job_type", ARG_TEXT), BODY("payload", ARG_JSON), BODY("priority", ARG_INT), BODY("delay", ARG_INTERVAL), \
	BODY("scheduled_for", ARG_TIME), BODY("max_attempts", ARG_INT), BODY("timeout", ARG_INTERVAL), \
	BODY("backoff", ARG_JSON), BODY("unique_key", ARG_TEXT), BODY("on_conflict", ARG_TEXT), \
	BODY("unique_for", ARG_INTERVAL), BODY("concurrency_key", ARG_TEXT), BODY("keep_completed", ARG_INTERVAL), \
	BODY("tenant", ARG_TEXT), BODY("metadata", ARG_JSON), BODY("keep_dead", ARG_INTERVAL), BODY("after", ARG_UUIDS), \
	BODY("after_rule", ARG_TEXT)
#define TYPE_ARGS \
	BODY("handler", ARG_HANDLER), BODY("command", ARG_TEXTS), BODY("max_attempts", ARG_INT), BODY("backoff", ARG_TEXT), \
	BODY("backoff_base", ARG_INTERVAL), BODY("backoff_max", ARG_INTERVAL), BODY("backoff_jitter", ARG_NUMBER), \
	BODY("timeout", ARG_INTERVAL), BODY("base_priority", ARG_INT), BODY("max_concurrent", ARG_INT), \
	BODY("cpu_weight", ARG_INT), BODY("rate_limit", ARG_INT), BODY("rate_window", ARG_INTERVAL), \
	BODY("keep_completed", ARG_INTERVAL), BODY("keep_dead", ARG_INTERVAL), BODY("critical", ARG_BOOL), \
	BODY("run_as", ARG_ROLE), BODY("options", ARG_JSON)
#define SCHEDULE_ARGS \
	BODY("payload", ARG_JSON), BODY("timezone", ARG_TEXT), BODY("starts_at", ARG_TIME), BODY("ends_at", ARG_TIME), \
	BODY("max_runs", ARG_INT), BODY("catch_up", ARG_TEXT), BODY("catch_up_limit", ARG_INT), BODY("overlap", ARG_TEXT), \
	BODY("jitter", ARG_INTERVAL), BODY("pause_after_failures", ARG_INT), BODY("options", ARG_JSON), BODY("tenant", ARG_TEXT)
/* Names of schedules are unique per tenant. */
#define OF_NAME(t) t ".name = {name} AND " t ".tenant IS NOT DISTINCT FROM {tenant}"
#define SCHEDULE_ROW "to_jsonb(s) - " SCHEDULE_HIDDEN
#define WORKFLOW_ROW "to_jsonb(w) - " WORKFLOW_HIDDEN
#define TYPE_ROW "to_jsonb(t) - " TYPE_HIDDEN

const Route route_table[] = {
	{"GET", "/", "The page", SHAPE_FILE, NULL,.run = page_get,.open = true},
	{"GET", "/assets/{name}", "A file of the page", SHAPE_FILE, NULL,.args = ARGS(PATH("name", ARG_TEXT)),.run = asset_get,.open = true},
	{"GET", "/assets/vendor/{name}", "A file of its libraries", SHAPE_FILE, NULL,
	.args = ARGS(PATH("name", ARG_TEXT)),.run = asset_get,.open = true},

	{"POST", "/api/v1/session", "Sign in as a role of PostgreSQL", SHAPE_VALUE, NULL,
		.args = ARGS(NEEDED("user", ARG_TEXT), NEEDED("password", ARG_TEXT), BODY("database", ARG_TEXT)),
	.answer = "session",.run = session_post,.open = true},
	{"GET", "/api/v1/session", "The role, its rights, the token of the session", SHAPE_VALUE, NULL,.answer = "session",.run = session_get},
	{"DELETE", "/api/v1/session", "Sign out", SHAPE_VALUE, NULL,.answer = "ok",.run = session_delete,.local = true},

	{"GET", "/api/v1/jobs", "Jobs, the newest first; since and until are times of ids", SHAPE_LIST,
		"SELECT t.item, t.id FROM jobq_internal._search_jobs({status}, {job_type}, {tenant}, {payload_contains}, {error_like},"
		" " ID_AT("{since}") ", least({cursor}::uuid, " ID_AT("{until}") "), {limit}) t",
		.args = ARGS(QUERY("status", ARG_STATUS), QUERY("job_type", ARG_TEXT), QUERY("tenant", ARG_TEXT),
			 QUERY("payload_contains", ARG_JSON), QUERY("error_like", ARG_TEXT), OWN_QUERY("since", ARG_TIME),
			 OWN_QUERY("until", ARG_TIME), LIMIT, CURSOR),
	.answer = "jobq.jobs",.redact = true},
	{"POST", "/api/v1/jobs", "Enqueue a job", SHAPE_VALUE, "SELECT json_build_object('id', jobq.enqueue({args}))",
	.args = ARGS(ENQUEUE_ARGS),.answer = "id"},
	{"GET", "/api/v1/jobs/{id}", "A job", SHAPE_VALUE, "SELECT to_json(t) FROM jobq.jobs t WHERE t.id = {id}",
		.args = ARGS(PATH("id", ARG_UUID)),.answer = "jobq.jobs",.redact = true},
	{"PATCH", "/api/v1/jobs/{id}", "Change a waiting job", SHAPE_VALUE, DONE("jobq.alter_job({args})"),
		.args = ARGS(PATH("id", ARG_UUID), BODY("payload", ARG_JSON), BODY("priority", ARG_INT), BODY("scheduled_for", ARG_TIME),
	BODY("max_attempts", ARG_INT), BODY("timeout", ARG_INTERVAL))},
	{"GET", "/api/v1/jobs/{id}/events", "The events of a job, the oldest first", SHAPE_LIST,
		"SELECT to_json(t), " TIME_KEY("t.ts") " || '.' || t.id FROM jobq.job_timeline({id}) t WHERE {cursor} IS NULL"
		" OR (t.ts, t.id) > (" KEY_TIME ", split_part({cursor}, '.', 2)::int8) ORDER BY t.ts, t.id LIMIT {limit}",
		.args = ARGS(PATH("id", ARG_UUID), LIMIT, CURSOR),.answer = "jobq.events",.redact = true},
	{"GET", "/api/v1/jobs/{id}/why", "Why a job waits", SHAPE_VALUE, "SELECT jobq.why({id})",
	.args = ARGS(PATH("id", ARG_UUID)),.answer = "why"},
	{"POST", "/api/v1/jobs/{id}/cancel", "Cancel a live job", SHAPE_VALUE, DONE("jobq.cancel_job({args})"),
	.args = ARGS(PATH("id", ARG_UUID), BODY("reason", ARG_TEXT))},
	{"POST", "/api/v1/jobs/{id}/retry", "Run a job again, as the same job", SHAPE_VALUE, DONE("jobq.retry_job({args})"),
	.args = ARGS(PATH("id", ARG_UUID), BODY("max_attempts", ARG_INT))},
	{"POST", "/api/v1/jobs/{id}/rerun", "Enqueue a job like a finished one", SHAPE_VALUE,
		"SELECT json_build_object('id', c.id), CASE WHEN c.id IS NOT NULL THEN 200"
		" WHEN EXISTS (SELECT FROM jobq.jobs j WHERE j.id = {id}) THEN 409 ELSE 404 END"
		" FROM (SELECT jobq.rerun_job({args}) AS id OFFSET 0) c", .args = ARGS(PATH("id", ARG_UUID), BODY("payload", ARG_JSON)),
	.answer = "id"},

	{"POST", "/api/v1/claim", "Claim jobs; wait holds no connection to PostgreSQL", SHAPE_LIST,
		"SELECT to_json(c) FROM jobq.claim(job_types => {job_types}, wait => least({wait}, interval '0'){more}) c",
		.args = ARGS({"job_types", ARG_TEXTS, IN_BODY, false, true}, BODY("max_jobs", ARG_INT), BODY("worker", ARG_TEXT), BODY("lease", ARG_INTERVAL),
			 {"wait", ARG_INTERVAL, IN_BODY, false, true}, BODY("node", ARG_TEXT)),
	.answer = "jobq.claim",.run = claim_post},
	{"POST", "/api/v1/jobs/{id}/heartbeat", "Renew a lease: ok, cancel or lost", SHAPE_VALUE,
		"SELECT json_build_object('status', jobq.heartbeat({args}))",
	.args = ARGS(LEASE, BODY("progress", ARG_NUMBER), BODY("data", ARG_JSON)),.answer = "heartbeat"},
	{"POST", "/api/v1/jobs/{id}/complete", "End a claimed job", SHAPE_VALUE, LEASED("jobq.complete({args})"),
	.args = ARGS(LEASE, BODY("result", ARG_JSON))},
	{"POST", "/api/v1/jobs/{id}/fail", "End the attempt of a claimed job: retry, error or lost", SHAPE_VALUE,
		"SELECT json_build_object('status', jobq.fail({args}))",
		.args = ARGS(LEASE, NEEDED("error", ARG_TEXT), BODY("retryable", ARG_BOOL), BODY("error_code", ARG_TEXT),
	BODY("retry_after", ARG_INTERVAL), BODY("details", ARG_JSON)),.answer = "fail"},
	{"POST", "/api/v1/jobs/{id}/skip", "End a claimed job that need not run", SHAPE_VALUE, LEASED("jobq.skip_job({args})"),
	.args = ARGS(LEASE, BODY("reason", ARG_TEXT), BODY("result", ARG_JSON))},
	{"POST", "/api/v1/jobs/{id}/snooze", "Give a claimed job back", SHAPE_VALUE, LEASED("jobq.snooze_job({args})"),
	.args = ARGS(LEASE, BODY("delay", ARG_INTERVAL), BODY("reason", ARG_TEXT))},

	{"POST", "/api/v1/bulk", "Preview an action on many jobs: cancel, retry or purge", SHAPE_VALUE, NULL,
		.args = ARGS(NEEDED("action", ARG_ACTION), NEEDED("filter", ARG_JSON)),
	.answer = "bulk",.run = bulk_preview},
	{"POST", "/api/v1/bulk/{token}", "Start it", SHAPE_VALUE, NULL,.args = ARGS(PATH("token", ARG_TEXT)),.answer = "bulk_state",
	.run = bulk_start,.local = true},
	{"GET", "/api/v1/bulk/{token}", "How far it is", SHAPE_VALUE, NULL,.args = ARGS(PATH("token", ARG_TEXT)),.answer = "bulk_state",
	.run = bulk_get,.local = true},
	{"DELETE", "/api/v1/bulk/{token}", "Stop it", SHAPE_VALUE, NULL,.args = ARGS(PATH("token", ARG_TEXT)),.answer = "bulk_state",
	.run = bulk_stop,.local = true},

	{"GET", "/api/v1/overview", "Job types with their numbers, and health", SHAPE_VALUE, NULL,.answer = "overview",.run = overview_get},
	{"GET", "/api/v1/stream", "Events: overview, changed, stale, bye", SHAPE_STREAM, NULL,.answer = EVENTS_TYPE,.run = stream_get},
	{"GET", "/api/v1/errors", "Groups of errors", SHAPE_LIST, "SELECT t.item, t.key FROM jobq_internal._search_errors({args}) t",
		.args = ARGS(QUERY("since", ARG_TIME), QUERY("job_type", ARG_TEXT), QUERY("tenant", ARG_TEXT), QUERY("error_code", ARG_TEXT),
			 QUERY("max_rows", ARG_INT)),
	.answer = "jobq.error_groups",.redact = true},
	{"GET", "/api/v1/events", "Events, the newest first", SHAPE_LIST,
		LOG("events", "'job_type', {job_type}, 'tenant', {tenant}, 'type', {type}, 'level', {level}"),
		.args = ARGS(OWN_QUERY("since", ARG_TIME), OWN_QUERY("until", ARG_TIME), OWN_QUERY("job_type", ARG_TEXT),
			 OWN_QUERY("tenant", ARG_TEXT), OWN_QUERY("type", ARG_TEXT), OWN_QUERY("level", ARG_LEVEL), LIMIT, CURSOR),
	.answer = "jobq.events",.redact = true},
	{"GET", "/api/v1/alerts", "Alerts, the newest first", SHAPE_LIST,
		LOG("alerts", "'severity', {severity}"),
		.args = ARGS(OWN_QUERY("since", ARG_TIME), OWN_QUERY("until", ARG_TIME), OWN_QUERY("severity", ARG_SEVERITY), LIMIT, CURSOR),
	.answer = "jobq.alerts"},
	{"GET", "/api/v1/audit", "Management calls, the newest first", SHAPE_LIST,
		LOG("audit", "'action', {action}, 'many', {many}"),
		.args = ARGS(OWN_QUERY("since", ARG_TIME), OWN_QUERY("until", ARG_TIME), OWN_QUERY("action", ARG_TEXT), OWN_QUERY("many", ARG_BOOL), LIMIT,
	CURSOR),
	.answer = "jobq.audit",.redact = true},
	{"GET", "/api/v1/workers", "Workers", SHAPE_LIST, ROWS("jobq.stat_workers"), .args = NULL},
	{"GET", "/api/v1/lanes", "Lanes in the order in which they are served", SHAPE_LIST, ROWS("jobq.stat_lanes"), .args = NULL},
	{"GET", "/api/v1/series", "Totals over time", SHAPE_LIST, "SELECT to_json(t) FROM jobq.stat_series({args}) t", .answer = "jobq.stat_series",
	.args = ARGS(QUERY("step", ARG_INTERVAL))},

	{"GET", "/api/v1/types", "Job types", SHAPE_LIST,
		"SELECT " TYPE_ROW ", t.id FROM jobq.job_types t"
		" WHERE t.dropped_at IS NULL AND t.id > coalesce({cursor}::int4, -1)"
		" AND ({search} IS NULL OR position(lower({search}) IN lower(t.name)) > 0) AND ({kind} IS NULL OR t.kind = {kind})"
		" AND ({paused} IS NULL OR (t.paused AND coalesce(t.paused_until > (SELECT clock_timestamp()), true)) = {paused}) ORDER BY t.id LIMIT {limit}",
		.args = ARGS(OWN_QUERY("search", ARG_TEXT), OWN_QUERY("kind", ARG_KIND), OWN_QUERY("paused", ARG_BOOL), LIMIT, CURSOR),
	.answer = "jobq.job_types"},
	{"POST", "/api/v1/types", "Create a job type", SHAPE_VALUE, OK("jobq.create_job_type({args})"),
	.args = ARGS(NEEDED("name", ARG_TEXT), TYPE_ARGS, BODY("on_conflict", ARG_TEXT))},
	{"GET", "/api/v1/types/{name}", "A job type", SHAPE_VALUE,
		"SELECT " TYPE_ROW " FROM jobq.job_types t WHERE t.name = {name} AND t.dropped_at IS NULL",
	.args = ARGS(PATH("name", ARG_TEXT)),.answer = "jobq.job_types"},
	{"PATCH", "/api/v1/types/{name}", "Change a job type", SHAPE_VALUE, OK("jobq.alter_job_type({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), TYPE_ARGS, BODY("reset", ARG_TEXTS))},
	{"DELETE", "/api/v1/types/{name}", "Drop a job type", SHAPE_VALUE, OK("jobq.drop_job_type({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), QUERY("force", ARG_BOOL))},
	{"POST", "/api/v1/types/{name}/pause", "Pause a job type", SHAPE_VALUE, OK("jobq.pause_job_type({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), BODY("reason", ARG_TEXT), BODY("duration", ARG_INTERVAL))},
	{"POST", "/api/v1/types/{name}/resume", "Resume a job type", SHAPE_VALUE, OK("jobq.resume_job_type({args})"),
	.args = ARGS(PATH("name", ARG_TEXT))},

	{"GET", "/api/v1/schedules", "Schedules, the oldest first", SHAPE_LIST,
		"SELECT " SCHEDULE_ROW ", s.id FROM jobq.schedules s WHERE s.id > coalesce({cursor}::int4, -1)"
		" AND ({search} IS NULL OR position(lower({search}) IN lower(s.name)) > 0) AND ({job_type} IS NULL OR s.job_type = {job_type})"
		" AND ({tenant} IS NULL OR coalesce(s.tenant, '') = {tenant}) AND ({status} IS NULL OR s.status = {status})"
		" ORDER BY s.id LIMIT {limit}",
		.args = ARGS(OWN_QUERY("search", ARG_TEXT), OWN_QUERY("job_type", ARG_TEXT), OWN_QUERY("tenant", ARG_TEXT),
			 OWN_QUERY("status", ARG_SCHEDULE_STATUS), LIMIT, CURSOR),
	.answer = "jobq.schedules",.redact = true},
	{"POST", "/api/v1/schedules", "Create a schedule", SHAPE_VALUE, OK("jobq.schedule({args})"),
		.args = ARGS(NEEDED("name", ARG_TEXT), NEEDED("cron", ARG_TEXT), NEEDED("job_type", ARG_TEXT), SCHEDULE_ARGS,
	BODY("on_conflict", ARG_TEXT))},
	{"GET", "/api/v1/schedules/{name}", "A schedule", SHAPE_VALUE,
		"SELECT " SCHEDULE_ROW " FROM jobq.schedules s WHERE " OF_NAME("s"),
		.args = ARGS(PATH("name", ARG_TEXT), OWN_QUERY("tenant", ARG_TEXT)),
	.answer = "jobq.schedules",.redact = true},
	{"PATCH", "/api/v1/schedules/{name}", "Change a schedule", SHAPE_VALUE, OK("jobq.alter_schedule({args})"),
		.args = ARGS(PATH("name", ARG_TEXT), BODY("cron", ARG_TEXT), BODY("job_type", ARG_TEXT), SCHEDULE_ARGS,
	BODY("reset", ARG_TEXTS))},
	{"DELETE", "/api/v1/schedules/{name}", "Drop a schedule", SHAPE_VALUE,
		"SELECT json_build_object('ok', c.ok), CASE WHEN c.ok THEN 200 ELSE 404 END"
		" FROM (SELECT jobq.unschedule({args}) AS ok OFFSET 0) c",
	.args = ARGS(PATH("name", ARG_TEXT), QUERY("tenant", ARG_TEXT)),.answer = "ok"},
	{"GET", "/api/v1/schedules/{name}/runs", "Its jobs, the newest first", SHAPE_LIST,
		"SELECT t.item, t.id FROM jobq.schedules s,"
		" jobq_internal._search_scheduled(s.name, s.tenant, s.created_at, {cursor}::uuid, {limit}) t WHERE " OF_NAME("s")
		" AND jobq_internal._search_found(EXISTS (SELECT FROM jobq.schedules o WHERE " OF_NAME("o") "), 'schedule')",
		.args = ARGS(PATH("name", ARG_TEXT), OWN_QUERY("tenant", ARG_TEXT), LIMIT, CURSOR),
	.answer = "jobq.jobs",.redact = true},
	{"POST", "/api/v1/schedules/{name}/pause", "Pause a schedule", SHAPE_VALUE, OK("jobq.pause_schedule({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), BODY("reason", ARG_TEXT), BODY("duration", ARG_INTERVAL), BODY("tenant", ARG_TEXT))},
	{"POST", "/api/v1/schedules/{name}/resume", "Resume a schedule", SHAPE_VALUE, OK("jobq.resume_schedule({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), BODY("tenant", ARG_TEXT))},
	{"POST", "/api/v1/schedules/{name}/run", "Enqueue its job now, as of a tick", SHAPE_VALUE,
		"SELECT json_build_object('id', jobq.run_schedule({args}))",
	.args = ARGS(PATH("name", ARG_TEXT), BODY("tick", ARG_TIME), BODY("tenant", ARG_TEXT)),.answer = "id"},
	{"POST", "/api/v1/schedules/{name}/backfill", "Enqueue the jobs of past ticks", SHAPE_VALUE,
		"SELECT json_build_object('n', jobq.backfill_schedule({args}))",
		.args = ARGS(PATH("name", ARG_TEXT), NEEDED("since", ARG_TIME), NEEDED("until", ARG_TIME), BODY("max_runs", ARG_INT),
	BODY("tenant", ARG_TEXT)),.answer = "n"},
	{"GET", "/api/v1/next_runs", "The next ticks of an expression", SHAPE_LIST,
		"SELECT to_json(t), t FROM jobq.next_runs({args}) t",
		.args = ARGS({"cron", ARG_TEXT, IN_QUERY, true, false}, QUERY("timezone", ARG_TEXT), QUERY("n", ARG_INT),
	QUERY("since", ARG_TIME)),.answer = "tick"},

	{"GET", "/api/v1/workflows", "Workflows in their active versions", SHAPE_LIST,
		"SELECT " WORKFLOW_ROW ", w.type_id FROM jobq.workflows w WHERE w.is_active AND w.type_id > coalesce({cursor}::int4, -1)"
		" ORDER BY w.type_id LIMIT {limit}",
	.args = ARGS(LIMIT, CURSOR),.answer = "jobq.workflows",.redact = true},
	{"POST", "/api/v1/workflows", "Create a workflow, or its next version", SHAPE_VALUE,
		"SELECT json_build_object('version', jobq.create_workflow({args}))",
		.args = ARGS(NEEDED("name", ARG_TEXT), NEEDED("steps", ARG_JSON), BODY("output", ARG_JSON), BODY("on_failure", ARG_TEXT),
	BODY("options", ARG_JSON)),.answer = "version"},
	{"POST", "/api/v1/workflows/check", "Check the steps of a workflow; creates nothing", SHAPE_LIST,
		"SELECT to_json(t) FROM jobq.check_workflow({args}) t", .answer = "jobq.check_workflow",.args = ARGS(NEEDED("steps", ARG_JSON), BODY("payload", ARG_JSON))},
	{"GET", "/api/v1/workflows/{name}", "The versions of a workflow, the newest first", SHAPE_LIST,
		"SELECT " WORKFLOW_ROW ", w.version FROM jobq.workflows w WHERE w.name = {name}"
		" AND jobq_internal._search_found(EXISTS (SELECT FROM jobq.workflows o WHERE o.name = {name}), 'workflow') AND ({cursor} IS NULL OR w.version < {cursor}::int4)"
		" ORDER BY w.version DESC LIMIT {limit}",
	.args = ARGS(PATH("name", ARG_TEXT), LIMIT, CURSOR),.answer = "jobq.workflows",.redact = true},

	{"GET", "/api/v1/runs", "Runs of workflows, the newest first", SHAPE_LIST,
		"SELECT t.item, t.id FROM jobq_internal._search_runs({workflow}, {status}, {cursor}::uuid, {limit}) t",
		.args = ARGS(OWN_QUERY("workflow", ARG_TEXT), OWN_QUERY("status", ARG_STATUS), LIMIT, CURSOR),
	.answer = "jobq.workflow_runs",.redact = true},
	{"GET", "/api/v1/runs/{id}", "A run, the steps of its version, its tasks; those of a map are counted", SHAPE_VALUE,
		"SELECT json_build_object('run', r, 'steps', (SELECT w.steps FROM jobq.workflows w WHERE w.name = r.workflow"
		" AND CASE WHEN r.version IS NULL THEN w.is_active ELSE w.version = r.version END), 'tasks', (SELECT coalesce(json_agg(json_build_object('id', t.id, 'task_key', t.task_key, 'job_type',"
		" t.job_type, 'status', t.status, 'after', t.after, 'after_rule', t.after_rule, 'progress', t.progress, 'attempts', t.attempts,"
		" 'scheduled_for', t.scheduled_for, 'created_at', t.created_at, 'started_at', t.started_at, 'completed_at', t.completed_at,"
		" 'error_code', t.error_code, 'error_msg', t.error_msg) ORDER BY t.id), '[]') FROM jobq.jobs t"
		" WHERE t.workflow_id = r.id AND strpos(t.task_key, '.') = 0), 'maps', (SELECT coalesce(json_agg(m), '[]') FROM"
		" (SELECT regexp_replace(t.task_key, '[.][0-9]+$', '') AS task_key, t.status, count(*) AS n, min(t.started_at) AS started_at,"
		" max(t.completed_at) AS completed_at FROM jobq.jobs t WHERE t.workflow_id = r.id AND strpos(t.task_key, '.') > 0"
		" GROUP BY 1, 2 ORDER BY 1, 2) m)) FROM jobq.workflow_runs r WHERE r.id = {id}",
		.args = ARGS(PATH("id", ARG_UUID)),
	.answer = "run",.redact = true},
	{"GET", "/api/v1/runs/{id}/tasks", "The jobs of a run, the oldest first", SHAPE_LIST,
		"SELECT to_json(t), t.id FROM jobq.jobs t WHERE t.workflow_id = {id}"
		" AND jobq_internal._search_found(EXISTS (SELECT FROM jobq.workflow_runs r WHERE r.id = {id}), 'run') AND ({cursor} IS NULL OR t.id > {cursor}::uuid)"
		" AND ({status} IS NULL OR t.status = {status}) AND ({task_key} IS NULL OR split_part(t.task_key, '.', 1) = {task_key})"
		" ORDER BY t.id LIMIT {limit}",
		.args = ARGS(PATH("id", ARG_UUID), OWN_QUERY("task_key", ARG_TEXT), OWN_QUERY("status", ARG_STATUS), LIMIT, CURSOR),
	.answer = "jobq.jobs",.redact = true},
	{"POST", "/api/v1/runs/{id}/retry", "Run again what has failed, or a task and all behind it", SHAPE_VALUE,
		DONE("jobq.retry_workflow({args})"),
	.args = ARGS(PATH("id", ARG_UUID), BODY("from_task", ARG_TEXT), BODY("version", ARG_INT))},
	{"POST", "/api/v1/runs/{id}/pause", "Start no more tasks of a run", SHAPE_VALUE, DONE("jobq.pause_workflow({args})"),
	.args = ARGS(PATH("id", ARG_UUID), BODY("reason", ARG_TEXT))},
	{"POST", "/api/v1/runs/{id}/resume", "Resume a run", SHAPE_VALUE, DONE("jobq.resume_workflow({args})"),
	.args = ARGS(PATH("id", ARG_UUID))},
	{"POST", "/api/v1/runs/{id}/event", "Send an event to a run", SHAPE_VALUE, DONE("jobq.send_event({args})"),
	.args = ARGS(PATH("id", ARG_UUID), NEEDED("event", ARG_TEXT), BODY("data", ARG_JSON))},

	{"GET", "/api/v1/limits", "Limits that job types share", SHAPE_LIST,
		"SELECT to_json(t), " NAME_KEY("t.name") " FROM jobq.limits t"
		" WHERE {cursor} IS NULL OR t.name > " KEY_NAME " ORDER BY t.name LIMIT {limit}",
	.args = ARGS(LIMIT, CURSOR),.answer = "jobq.limits"},
	{"GET", "/api/v1/limits/usage", "How full limits are", SHAPE_LIST, ROWS("jobq.stat_limits"), .args = NULL},
	{"PUT", "/api/v1/limits/{name}", "Set a limit", SHAPE_VALUE, OK("jobq.set_limit({args})"),
		.args = ARGS(PATH("name", ARG_TEXT), BODY("max_concurrent", ARG_INT), BODY("rate_limit", ARG_INT),
	BODY("rate_window", ARG_INTERVAL))},
	{"DELETE", "/api/v1/limits/{name}", "Drop a limit", SHAPE_VALUE, OK("jobq.drop_limit({args})"),
	.args = ARGS(PATH("name", ARG_TEXT))},
	{"GET", "/api/v1/signals", "Pressure signals", SHAPE_LIST,
		"SELECT to_jsonb(t) - 'id', t.id FROM (SELECT s.name, s.active, s.active_until, s.condition, s.definer, s.every, s.changed_at, s.id"
		" FROM jobq.signals s) t WHERE t.id > coalesce({cursor}::int4, -1) ORDER BY t.id LIMIT {limit}",
	.args = ARGS(LIMIT, CURSOR),.answer = "signal"},
	{"PUT", "/api/v1/signals/{name}", "Set a pressure signal", SHAPE_VALUE, OK("jobq.set_signal({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), NEEDED("active", ARG_BOOL), BODY("ttl", ARG_INTERVAL))},
	{"DELETE", "/api/v1/signals/{name}", "Drop a pressure signal", SHAPE_VALUE, OK("jobq.drop_signal({args})"),
	.args = ARGS(PATH("name", ARG_TEXT), QUERY("force", ARG_BOOL))},
	{"GET", "/api/v1/rules", "Pressure rules; job_type null: every type", SHAPE_LIST,
		"SELECT to_jsonb(t) - 'k', t.k FROM (SELECT j.name AS job_type, r.signal, r.priority_adj, r.block, r.max_weight,"
		" lpad(r.type_id::text, 10, '0') || " NAME_KEY("r.signal") " AS k"
		" FROM jobq.pressure_rules r LEFT JOIN jobq.job_types j ON j.id = r.type_id"
		" WHERE (r.type_id = 0 OR j.dropped_at IS NULL) AND ({signal} IS NULL OR r.signal = {signal})) t"
		" WHERE ({cursor} IS NULL OR t.k > {cursor}) ORDER BY t.k LIMIT {limit}",
	.args = ARGS(OWN_QUERY("signal", ARG_TEXT), LIMIT, CURSOR),.answer = "pressure_rule"},
	{"DELETE", "/api/v1/rules", "Drop a pressure rule", SHAPE_VALUE, OK("jobq.set_pressure_rule({job_type}, {signal})"),
	.args = ARGS(OWN_QUERY("job_type", ARG_TEXT), {"signal", ARG_TEXT, IN_QUERY, true, true})},
	{"PUT", "/api/v1/rules", "Set a pressure rule; job_type null: every type", SHAPE_VALUE,
		OK("jobq.set_pressure_rule(job_type => {job_type}{more})"),
		.args = ARGS({"job_type", ARG_TEXT, IN_BODY, false, true}, NEEDED("signal", ARG_TEXT), BODY("priority_adj", ARG_INT),
	BODY("block", ARG_BOOL), BODY("max_weight", ARG_INT))},
	{"GET", "/api/v1/tenants", "Tenants with a quota", SHAPE_LIST,
		"SELECT to_json(t), " NAME_KEY("t.tenant") " FROM jobq.tenant_quotas t"
		" WHERE ({cursor} IS NULL OR t.tenant > " KEY_NAME ") AND ({tenant} IS NULL OR t.tenant = {tenant})"
		" ORDER BY t.tenant LIMIT {limit}",
	.args = ARGS(OWN_QUERY("tenant", ARG_TEXT), LIMIT, CURSOR),.answer = "jobq.tenant_quotas"},
	{"PUT", "/api/v1/tenants/{tenant}", "Set the quota of a tenant", SHAPE_VALUE, OK("jobq.set_tenant_quota({args})"),
		.args = ARGS(PATH("tenant", ARG_TEXT), BODY("max_live", ARG_BIGINT), BODY("max_bytes", ARG_BIGINT),
	BODY("enqueues_per_minute", ARG_INT), BODY("max_running", ARG_INT), BODY("max_schedules", ARG_INT))},
	{"DELETE", "/api/v1/tenants/{tenant}", "Delete all data of a tenant", SHAPE_VALUE,
	"SELECT json_build_object('n', jobq.purge_tenant({args}))", .args = ARGS(PATH("tenant", ARG_TEXT)),.answer = "n"},

	{"POST", "/api/v1/stop", "Start no more jobs", SHAPE_VALUE, OK("jobq.stop_all({args})"),
	.args = ARGS(NEEDED("reason", ARG_TEXT))},
	{"POST", "/api/v1/start", "Start jobs again", SHAPE_VALUE, OK("jobq.start_all()"), .args = NULL},
	{"POST", "/api/v1/drain", "Stop, and wait for running jobs: 4 s at most", SHAPE_VALUE,
		"SELECT json_build_object('idle', jobq.drain(timeout => least(coalesce({timeout}, interval '4s'), interval '4s')))",
		.args = ARGS({"timeout", ARG_INTERVAL, IN_BODY, false, true}),.answer = "idle"},
	{"GET", "/api/v1/openapi.json", "This table", SHAPE_VALUE, NULL,.answer = "openapi",.run = openapi_get},

	{"GET", "/admin/jobs", "Jobs with counts", SHAPE_VALUE, seeds_jobs,
		.args = ARGS(OWN_QUERY("status", ARG_STATUS), OWN_QUERY("type", ARG_TEXT), OWN_QUERY("collection_id", ARG_TEXT), LIMIT,
			 OWN_QUERY("offset", ARG_OFFSET)),
	.answer = "admin_jobs",.redact = true,.page = true},
	{"POST", "/intentions/retry_job", "Run a job again", SHAPE_VALUE, DONE_WITH("{job_id}", "jobq.retry_job({job_id})"),
		.args = ARGS({"job_id", ARG_UUID, IN_BODY, true, true})},
	{"POST", "/intentions/cancel_job", "Cancel a live job", SHAPE_VALUE, DONE_WITH("{job_id}", "jobq.cancel_job({job_id})"),
		.args = ARGS({"job_id", ARG_UUID, IN_BODY, true, true})},
	{"GET", "/admin/resources", "Disk, signals, weight, rules, running jobs", SHAPE_VALUE, "SELECT jobq.resources()",
	.answer = "resources"},
	{"GET", "/admin/resources/disk", "Readings of the disk", SHAPE_VALUE, seeds_disk, .answer = "disk"},
	{"POST", "/admin/resources/update_rule", "Change a job type and its pressure rules", SHAPE_VALUE, NULL,
		.args = ARGS(NEEDED("job_type", ARG_TEXT), BODY("base_priority", ARG_INT), BODY("cpu_weight", ARG_INT),
			 BODY("max_concurrent", ARG_INT), BODY("timeout_seconds", ARG_NUMBER), BODY("signal", ARG_TEXT),
			 BODY("priority_adj", ARG_INT), BODY("block", ARG_BOOL), BODY("livekit_priority_adj", ARG_INT),
			 BODY("block_during_livekit", ARG_BOOL)),
	.answer = "ok",.run = seeds_update_rule},
	{"GET", "/metrics", "Metrics for Prometheus or OpenMetrics, by Accept", SHAPE_TEXT, NULL,
	.answer = "text/plain application/openmetrics-text",.run = metrics_get,.metrics = true},
	{"GET", "/health", "jobq.health(); 503 if it is unhealthy", SHAPE_VALUE,
		"SELECT c.h, CASE c.h ->> 'status' WHEN 'unhealthy' THEN 503 ELSE 200 END FROM (SELECT jobq.health() AS h OFFSET 0) c",
	.answer = "health",.metrics = true,.page = true},
	{"GET", "/livez", "This program serves", SHAPE_TEXT, NULL,.answer = "text/plain",.local = true,.run = livez_get,.open = true,.metrics = true},
};

const int	route_count = (int) (sizeof(route_table) / sizeof(route_table[0]));
