-- Errors of the public functions: every argument with every kind of wrong value.  The functions and arguments are
-- those of pg_proc, so that a new one is asked for a valid call below, and is tried like the others.
BEGIN;
SET LOCAL client_min_messages = error;
SET LOCAL statement_timeout = '5min';
CREATE SCHEMA errors;
CREATE FUNCTION errors.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION errors.check(tenant text) RETURNS boolean LANGUAGE sql RETURN true;

-- What a statement's error says; it is undone when there is none.
CREATE FUNCTION errors.of(statement text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  message text;
  hint text;
  context text;
BEGIN
  EXECUTE statement;
  RAISE SQLSTATE 'UNDO0';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
  RETURN jsonb_build_object('state', CASE SQLSTATE WHEN 'UNDO0' THEN 'none' ELSE SQLSTATE END,
                            'message', message, 'hint', hint, 'context', context);
END $$;
-- ... in a handler
CREATE FUNCTION errors.handler(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN errors.of(payload #>> '{}');
CREATE FUNCTION errors.of_handler(statement text) RETURNS jsonb LANGUAGE sql AS $$
  SELECT r.result FROM (SELECT jobq.enqueue('errors handler', to_jsonb(statement)) AS id) e, jobq.run_inline(e.id) r
$$;

SELECT jobq.create_job_type('errors t', 'errors.ok(jsonb)');
SELECT jobq.create_job_type('errors handler', 'errors.handler(jsonb)');
SELECT jobq.set_limit('errors l');
SELECT jobq.create_signal('errors s', 'false');

-- Values that make a call valid: of arguments without a default, and of those that a function needs besides.
CREATE TEMP TABLE valid (functions text[], argument text, value text);
INSERT INTO valid VALUES
  ('{create_job_type}', 'name', $$'errors new'$$), ('{create_job_type}', 'handler', $$'errors.ok(jsonb)'$$),
  ('{alter_job_type,drop_job_type,pause_job_type,resume_job_type}', 'name', $$'errors t'$$),
  ('{set_limit,drop_limit}', 'name', $$'errors l'$$), ('{set_signal,drop_signal}', 'name', $$'errors s'$$),
  ('{create_signal}', 'name', $$'errors new'$$), ('{create_signal}', 'condition', $$'true'$$), ('{set_signal}', 'active', 'true'),
  ('{set_pressure_rule}', 'job_type', $$'errors t'$$), ('{set_pressure_rule}', 'signal', $$'errors s'$$),
  ('{enqueue,enqueue_many,channel}', 'job_type', $$'errors t'$$), ('{enqueue_many}', 'payloads', $$'{"{}"}'$$),
  ('{enqueue_jobs}', 'jobs', $$'[{"job_type": "errors t"}]'$$),
  ('{cancel_job,retry_job,rerun_job,alter_job,job_timeline,wait_for,run_inline}', 'id', 'gen_random_uuid()'),
  ('{wait_for,drain}', 'timeout', $$'0'$$), ('{archive}', 'before', 'now()'), ('{purge_tenant,set_tenant_quota}', 'tenant', $$'errors'$$),
  ('{cancel_jobs,purge_dead_letters}', 'job_type', $$'errors t'$$),
  ('{grant_access,revoke_access}', 'role', 'current_user::regrole'), ('{grant_access,revoke_access}', 'access', $$'read'$$),
  ('{set_tenant_check}', 'f', $$'errors.check(text)'$$), ('{stop_all,discard}', 'reason', $$'errors'$$),
  ('{set_progress}', 'progress', '1'), ('{log_event}', 'message', $$'errors'$$), ('{snooze}', 'delay', $$'1s'$$);

-- Wrong values, by type.
CREATE TEMP TABLE wrong (types regtype[], kind text, value text);
INSERT INTO wrong VALUES
  ('{int,bigint}', 'low', '-2147483648'), ('{int}', 'high', '2147483647'), ('{bigint}', 'high', '9223372036854775807'),
  ('{real,numeric}', 'low', '-1'), ('{real,numeric}', 'NaN', $$'NaN'$$),
  ('{interval}', 'negative', $$'-1s'$$), ('{interval}', 'long', $$'20000 years'$$), ('{interval}', 'overflowing', $$'100000000 years'$$),
  ('{timestamptz}', 'infinite', $$'infinity'$$), ('{timestamptz}', 'infinite', $$'-infinity'$$),
  ('{text}', 'empty', $$''$$), ('{text}', 'control character', $$E'a\u0001b'$$), ('{text}', 'long', $$repeat('x', 5000)$$),
  ('{text}', 'unknown', $$'errors unknown'$$),
  ('{text[],jsonb[],uuid[]}', 'empty', $$'{}'$$), ('{text[],jsonb[],uuid[]}', 'NULL inside', $$'{NULL}'$$),
  ('{text[]}', 'square', $$'{{a,b},{c,d}}'$$), ('{text[]}', 'unknown', $$'{errors unknown}'$$),
  ('{jsonb}', 'scalar', $$'1'$$), ('{jsonb}', 'empty array', $$'[]'$$), ('{jsonb}', 'array', $$'[1]'$$),
  ('{jsonb}', 'unknown key', $$'{"errors": 1}'$$), ('{jsonb}', 'deep', $$(repeat('[', 200) || repeat(']', 200))::jsonb$$),
  ('{regprocedure,regrole}', 'gone', '4'), ('{regprocedure}', 'unfit', $$'pg_catalog.abs(int)'$$);

CREATE TEMP TABLE arguments AS
SELECT p.proname::text AS function, n.name AS argument, p.proargtypes[n.i - 1]::regtype AS type,
       pg_get_function_arg_default(p.oid, n.i::int) AS default_value,
       (SELECT v.value FROM valid v WHERE p.proname = ANY (v.functions) AND v.argument = n.name) AS valid
  FROM pg_proc p, unnest(p.proargnames[1:p.pronargs]) WITH ORDINALITY n(name, i)
 WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname !~ '^_';

CREATE TEMP TABLE tried AS
SELECT a.function, a.argument, w.kind, w.value, a.default_value,
       format('SELECT * FROM jobq.%I(%s)', a.function,
              (SELECT string_agg(format('%I => %s', b.argument, CASE WHEN b.argument = a.argument THEN w.value ELSE b.valid END), ', ')
                 FROM arguments b WHERE b.function = a.function AND (b.valid IS NOT NULL OR b.argument = a.argument))) AS call,
       NULL::jsonb AS error
  FROM arguments a
  JOIN (SELECT * FROM wrong UNION ALL SELECT NULL, 'NULL', 'NULL') w ON w.types IS NULL OR a.type = ANY (w.types);
UPDATE tried SET error = errors.of(call);
UPDATE tried SET error = errors.of_handler(call) WHERE error ->> 'message' LIKE 'jobq.% can only be called inside a SQL handler';

-- \copy (SELECT function, argument, kind, error->>'state' AS s, error->>'message' AS m, error->>'hint' AS h, error->>'context' AS c FROM tried ORDER BY 1,2,3,4) TO '/tmp/errors_wk/sweep.csv' CSV
SELECT * FROM no_plan();
SELECT is_empty($$SELECT function, argument FROM arguments WHERE default_value IS NULL AND valid IS NULL$$,
                'each argument without a default has a valid value in this test');
SELECT is_empty($$SELECT call, error FROM (SELECT DISTINCT call, error FROM tried) t
   WHERE error ->> 'context' ~ 'PL/pgSQL function (?!errors)|SQL function "_'$$, 'no line of CONTEXT is of a function of jobq');
SELECT * FROM finish();
ROLLBACK;
