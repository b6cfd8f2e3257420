/*
 * answers.c
 *	  The JSON Schemas of openapi.json: of answers that are no rows of a view,
 *	  and what the catalog says of rows and arguments.
 *
 * Columns come from the catalog of the database that is served, and so cannot
 * differ from the answers.  Bounds, words, defaults and descriptions of
 * arguments come from the function's comment and signature, the source of
 * docs/reference: "1 to 1,000", "1 to 63 bytes", words in quotes.
 */
#include "answers.h"

#include <string.h>

/* The text of JSON. */
#define JSON(...) #__VA_ARGS__
#define OBJECT(...) .properties = #__VA_ARGS__

/* *INDENT-OFF* */
const Answer answer_table[] = {
	{"ok", OBJECT("ok": {"type": "boolean"})},
	{"id", OBJECT("id": {"type": "string", "format": "uuid"})},
	{"n", OBJECT("n": {"type": "integer", "format": "int64"})},
	{"idle", OBJECT("idle": {"type": "boolean", "description": "no job runs any more"})},
	{"heartbeat", OBJECT("status": {"type": "string", "enum": ["ok", "cancel", "lost"]})},
	{"fail", OBJECT("status": {"type": "string", "enum": ["retry", "error", "lost"]})},
	{"count", OBJECT(
		"n": {"type": "integer", "maximum": 10000},
		"exact": {"type": "boolean", "description": "false: there are more"})},
	{"session", OBJECT(
		"user": {"type": "string"},
		"database": {"type": "string"},
		"can": {"type": "object", "additionalProperties": {"type": "boolean"}, "description":
			"by access: read, enqueue, work, admin; configure: create job types; watch: metrics"},
		"csrf": {"type": ["string", "null"], "description": "for X-Csrf-Token; null without a session"})},
	{"bulk", OBJECT(
		"n": {"type": "integer", "maximum": 10000},
		"exact": {"type": "boolean", "description": "false: there may be more"},
		"token": {"type": "string"},
		"searched_to?": {"type": "string", "format": "date-time", "description": "older jobs were not counted"})},
	{"bulk_state", OBJECT(
		"done": {"type": "integer"},
		"total": {"type": "integer", "maximum": 10000},
		"exact": {"type": "boolean"},
		"state": {"type": "string", "enum": ["previewed", "running", "done", "stopped", "failed"]},
		"error?": {"type": "string"})},
	{"why", OBJECT(
		"status": {"type": "string"},
		"reasons": {"type": "array", "items": {"$ref": "#/components/schemas/reason"}},
		"ahead": {"$ref": "#/components/schemas/count"},
		"start_in_s": {"type": ["number", "null"], "description": "null: not known"})},
	{"reason", OBJECT(
		"code": {"type": "string"},
		"message": {"type": "string"},
		"until": {"type": ["string", "null"], "format": "date-time"},
		"holder": {"type": ["string", "null"]})},
	{"health", OBJECT(
		"status": {"$ref": "#/components/schemas/level"},
		"checks": {"type": "object", "additionalProperties": {"type": "object", "required": ["status"], "properties":
			{"status": {"$ref": "#/components/schemas/level"}, "message": {"type": "string"}}, "additionalProperties": true}},
		"details": {"type": "object", "required": ["total_queues", "active_workers", "oldest_waiting_job", "dead_letter_count"],
			"properties": {
				"total_queues": {"type": "integer"}, "active_workers": {"type": "integer"},
				"oldest_waiting_job": {"type": ["string", "null"], "format": "uuid"},
				"dead_letter_count": {"type": "integer"}}}),
		.status = 503},
	{"overview", OBJECT(
		"health": {"$ref": "#/components/schemas/health"},
		"types": {"type": "array", "items": {"anyOf": [
			{"$ref": "#/components/schemas/stat_job_types"}, {"$ref": "#/components/schemas/own_type"}]}}),
		.row = "jobq.stat_job_types"},
	{"own_type", OBJECT(
		"job_type": {"type": "string", "description": "of a role that may not read all tenants and types"},
		"pending": {"type": "integer", "format": "int64"},
		"blocked": {"type": "integer", "format": "int64"},
		"retry": {"type": "integer", "format": "int64"},
		"running": {"type": "integer", "format": "int64"},
		"dead": {"type": "integer", "format": "int64"},
		"exact": {"type": "boolean"})},
	{"admin_jobs", OBJECT(
		"jobs": {"type": "array", "items": {"$ref": "#/components/schemas/jobs"}},
		"counts": {"type": "object", "description": "by status", "additionalProperties": {"$ref": "#/components/schemas/count"}},
		"job_types": {"type": "array", "items": {"type": "string"}},
		"next": {"type": ["integer", "null"], "description": "offset of the next page; null: the last one"},
		"searched_to?": {"type": "string", "format": "date-time", "description": "older jobs were not looked at"})},
	{"disk", OBJECT(
		"current": {"anyOf": [{"$ref": "#/components/schemas/disk_log"}, {"type": "null"}]},
		"readings": {"type": "array", "items": {"$ref": "#/components/schemas/disk_log"}, "description": "at most 60 of each file system"}),
		.row = "jobq.disk_log"},
	{"resources", OBJECT(
		"disk": {"type": "object", "required": ["level", "percent", "file_systems"], "properties": {
			"level": {"type": ["string", "null"]}, "percent": {"type": ["number", "null"]},
			"file_systems": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/file_system"}}}},
		"signals": {"type": "array", "items": {"$ref": "#/components/schemas/signal_state"}},
		"weight": {"type": "object", "required": ["used", "max"], "properties": {
			"used": {"type": ["number", "null"]}, "max": {"type": ["number", "null"]}}},
		"rules": {"type": "array", "items": {"$ref": "#/components/schemas/type_rules"}},
		"running": {"type": "array", "items": {"$ref": "#/components/schemas/running_job"}})},
	{"file_system", OBJECT(
		"path": {"type": "string"},
		"ts": {"type": "string", "format": "date-time"},
		"total_bytes": {"type": ["integer", "null"], "format": "int64"},
		"used_bytes": {"type": ["integer", "null"], "format": "int64"},
		"percent": {"type": ["number", "null"]},
		"level": {"type": ["string", "null"]})},
	{"signal_state", OBJECT(
		"name": {"type": "string"},
		"active": {"type": "boolean"},
		"active_until": {"type": ["string", "null"], "format": "date-time"},
		"has_condition": {"type": "boolean"},
		"builtin": {"type": "boolean"})},
	{"type_rules", OBJECT(
		"job_type": {"type": ["string", "null"], "description": "null: every type"},
		"base_priority": {"type": ["integer", "null"]},
		"cpu_weight": {"type": ["integer", "null"]},
		"max_concurrent": {"type": ["integer", "null"]},
		"timeout_seconds": {"type": ["number", "null"]},
		"signals": {"type": "array", "items": {"$ref": "#/components/schemas/rule"}})},
	{"rule", OBJECT(
		"signal": {"type": "string"},
		"priority_adj": {"type": "integer"},
		"block": {"type": "boolean"},
		"max_weight": {"type": ["integer", "null"]})},
	{"running_job", OBJECT(
		"id": {"type": "string", "format": "uuid"},
		"job_type": {"type": "string"},
		"tenant": {"type": ["string", "null"]},
		"priority": {"type": "integer"},
		"cpu_weight": {"type": "integer"},
		"started_at": {"type": ["string", "null"], "format": "date-time"},
		"worker": {"type": ["string", "null"]})},
	{"version", OBJECT("version": {"type": "integer"})},
	{"signal", OBJECT(
		"name": {"type": "string"},
		"active": {"type": "boolean"},
		"active_until": {"type": ["string", "null"], "format": "date-time"},
		"condition": {"type": ["string", "null"]},
		"definer": {"type": ["string", "null"]},
		"every": {"type": ["string", "null"], "format": "interval"},
		"changed_at": {"type": "string", "format": "date-time"})},
	{"pressure_rule", OBJECT(
		"job_type": {"type": ["string", "null"], "description": "null: every type"},
		"signal": {"type": "string"},
		"priority_adj": {"type": "integer"},
		"block": {"type": "boolean"},
		"max_weight": {"type": ["integer", "null"]})},
	{"run", OBJECT(
		"run": {"$ref": "#/components/schemas/workflow_runs"},
		"steps": {"$ref": "#/components/schemas/any"},
		"tasks": {"type": "array", "items": {"$ref": "#/components/schemas/task"}},
		"maps": {"type": "array", "items": {"$ref": "#/components/schemas/map"}})},
	{"task", OBJECT(
		"id": {"type": "string", "format": "uuid"},
		"task_key": {"type": "string"},
		"job_type": {"type": ["string", "null"], "description": "null: the task waits for an event"},
		"status": {"type": "string"},
		"after": {"type": ["array", "null"], "items": {"type": "string", "format": "uuid"}},
		"after_rule": {"type": ["string", "null"]},
		"progress": {"type": ["number", "null"]},
		"attempts": {"type": "integer"},
		"scheduled_for": {"type": ["string", "null"], "format": "date-time"},
		"created_at": {"type": "string", "format": "date-time"},
		"started_at": {"type": ["string", "null"], "format": "date-time"},
		"completed_at": {"type": ["string", "null"], "format": "date-time"},
		"error_code": {"type": ["string", "null"]},
		"error_msg": {"type": ["string", "null"]})},
	{"map", OBJECT(
		"task_key": {"type": "string"},
		"status": {"type": "string"},
		"n": {"type": "integer", "format": "int64"},
		"started_at": {"type": ["string", "null"], "format": "date-time"},
		"completed_at": {"type": ["string", "null"], "format": "date-time"})},
	{"openapi", OBJECT(
		"openapi": {"type": "string"},
		"info": {"type": "object"},
		"servers": {"type": "array"},
		"security": {"type": "array"},
		"tags": {"type": "array"},
		"paths": {"type": "object"},
		"components": {"type": "object"})},
};
const int	answer_count = (int) (sizeof(answer_table) / sizeof(answer_table[0]));

const char	answer_problem[] = JSON(
	"type": {"type": "string", "description": "urn:jobq:sqlstate:NNNNN or about:blank"},
	"title": {"type": "string"},
	"status": {"type": "integer"},
	"detail": {"type": "string"},
	"sqlstate?": {"type": "string", "pattern": "^[0-9A-Z]{5}$"},
	"argument?": {"type": "string", "description": "the argument that is wrong"},
	"hint?": {"type": "string"},
	"server_detail?": {"type": "string"});
/* *INDENT-ON* */

const Answer *
answer_named(const char *name)
{
	int			i;

	for (i = 0; i < answer_count; i++)
	{
		if (strcmp(answer_table[i].name, name) == 0)
			return &answer_table[i];
	}
	return NULL;
}

/* The type of JSON of a column: {type, format, enum}. */
#define COLUMN_TYPE \
	"SELECT x.type, x.format, CASE WHEN t.typtype = 'e' THEN" \
	"  (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid) END AS words" \
	" FROM pg_type t LEFT JOIN (VALUES ('int2', 'integer', 'int32'), ('int4', 'integer', 'int32')," \
	"  ('int8', 'integer', 'int64'), ('oid', 'integer', 'int64'), ('float4', 'number', NULL), ('float8', 'number', NULL)," \
	"  ('numeric', 'number', NULL), ('bool', 'boolean', NULL), ('uuid', 'string', 'uuid')," \
	"  ('timestamptz', 'string', 'date-time'), ('json', 'any', NULL), ('jsonb', 'any', NULL)) v(name, type, format)" \
	" ON v.name = t.typname, LATERAL (SELECT coalesce(v.type, 'string') AS type, v.format) x"

const char	answer_facts[] =
"WITH named AS MATERIALIZED (SELECT n.name, to_regclass(n.name) AS relation, p.oid AS f, p.proargnames, p.pronargs,"
"   p.proargtypes, p.proallargtypes, p.proargmodes"
"  FROM (SELECT DISTINCT j.name FROM json_array_elements_text($1::json) j(name)) n"
"  LEFT JOIN pg_proc p ON p.pronamespace = to_regnamespace('jobq') AND 'jobq.' || p.proname = n.name),"
" columns AS (SELECT n.name, a.attnum::int8 AS place, a.attname::text AS col, a.atttypid AS type, a.attnotnull AS filled"
"   FROM named n JOIN pg_attribute a ON a.attrelid = n.relation WHERE a.attnum > 0 AND NOT a.attisdropped"
"    AND a.attname <> ALL (CASE n.name WHEN 'jobq.job_types' THEN " TYPE_HIDDEN " WHEN 'jobq.schedules' THEN " SCHEDULE_HIDDEN
"     WHEN 'jobq.workflows' THEN " WORKFLOW_HIDDEN " ELSE '{}' END)"
"  UNION ALL SELECT n.name, o.place, n.proargnames[o.place], o.type, false"
"   FROM named n, unnest(n.proallargtypes, n.proargmodes) WITH ORDINALITY o(type, mode, place) WHERE o.mode = 't'),"
" typed AS (SELECT c.name, c.place, c.col, c.filled, t.typcategory = 'A' AS listed, k.* FROM columns c"
"   JOIN pg_type t ON t.oid = c.type, LATERAL (" COLUMN_TYPE
"    WHERE t.oid = CASE WHEN c.type IN (SELECT a.typarray FROM pg_type a WHERE a.typarray <> 0)"
"     THEN (SELECT b.oid FROM pg_type b WHERE b.typarray = c.type) ELSE c.type END) k),"
" schemas AS (SELECT t.name, t.place, t.col, CASE WHEN t.listed THEN json_build_object('type',"
"    CASE WHEN t.filled THEN to_json('array'::text) ELSE '[\"array\",\"null\"]' END, 'items',"
"    json_strip_nulls(json_build_object('type', t.type, 'format', t.format)))"
"   WHEN t.type = 'any' THEN json_build_object('$ref', '#/components/schemas/any')"
"   ELSE json_strip_nulls(json_build_object('type', CASE WHEN t.filled THEN to_json(t.type) ELSE json_build_array(t.type, 'null') END,"
"    'format', t.format)) END AS schema, t.words, t.filled FROM typed t),"
" rows AS (SELECT s.name, json_build_object('type', 'object', 'required', json_agg(s.col ORDER BY s.place), 'properties',"
"   json_object_agg(s.col, CASE WHEN s.words IS NULL THEN s.schema ELSE json_build_object('enum',"
"    CASE WHEN s.filled THEN s.words ELSE (s.words::jsonb || 'null')::json END) END ORDER BY s.place)) AS schema"
"  FROM schemas s GROUP BY s.name),"
" said AS (SELECT n.name, n.f, a.name AS arg, m.part[2] AS text, array_position(n.proargnames, a.name) AS place, n.proargtypes"
"  FROM named n, regexp_split_to_table(replace(obj_description(n.f, 'pg_proc'), E'\\n  ', ' '), E'\\n') l(line),"
"   regexp_match(l.line, '^((?:[a-z_]+, )*[a-z_]+): (.*)$') m(part), unnest(string_to_array(m.part[1], ', ')) a(name)"
"  WHERE a.name = ANY (n.proargnames[:n.pronargs])),"
" parts AS (SELECT s.*, format_type(s.proargtypes[s.place - 1], NULL) AS type,"
"   pg_get_function_arg_default(s.f, s.place) AS standard,"
"   regexp_match(s.text, '(?:^|[ ,])(-?[0-9][0-9,.]*) to ([0-9](?:[0-9,]*[0-9])?)(?![^(]*\\(with)') AS range,"
"   s.text ~ '[0-9] to [0-9,]+ bytes' AS bytes,"
"   ARRAY(SELECT w[1] FROM regexp_matches(s.text, '(?:^|[:,;.] |or |[(])''([a-z]+)''', 'g') w) AS words FROM said s),"
" arguments AS (SELECT p.name || '.' || p.arg AS name, json_strip_nulls(json_build_object('description', p.text,"
"   'minimum', CASE WHEN p.type IN ('integer', 'bigint', 'real', 'numeric') THEN replace(p.range[1], ',', '')::numeric END,"
"   'maximum', CASE WHEN p.type IN ('integer', 'bigint', 'real', 'numeric') THEN replace(p.range[2], ',', '')::numeric END,"
"   'minLength', CASE WHEN p.type = 'text' AND p.bytes THEN replace(p.range[1], ',', '')::int END,"
"   'maxLength', CASE WHEN p.type = 'text' AND p.bytes THEN replace(p.range[2], ',', '')::int END,"
"   'enum', CASE WHEN p.type = 'text' AND cardinality(p.words) > 1 THEN CASE WHEN p.standard IS NULL THEN to_jsonb(p.words)"
"     ELSE to_jsonb(p.words || NULL::text) END END,"
"   'default', CASE WHEN p.standard ~ '^(-?[0-9]+|true|false)$' OR p.standard = '''{}''::jsonb'"
"     THEN btrim(split_part(p.standard, '::', 1), '''')::jsonb"
"    WHEN p.standard ~ '^''[^'']*''::(text|interval)$' THEN to_jsonb(btrim(split_part(p.standard, '::', 1), '''')) END)) AS schema"
"  FROM parts p)"
" SELECT coalesce(json_object_agg(x.name, x.schema), '{}') FROM (SELECT r.name, r.schema FROM rows r"
"  UNION ALL SELECT a.name, a.schema FROM arguments a) x";
