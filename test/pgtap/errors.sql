-- Errors of the public functions: every argument with every kind of wrong value.  The functions and
-- arguments are those of pg_proc: a new function fails this test until a valid call stands below,
-- and is then tried like the others.
BEGIN;
SET LOCAL client_min_messages = error;
SET LOCAL statement_timeout = '5min';
CREATE SCHEMA errors;
CREATE FUNCTION errors.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION errors.check(tenant text) RETURNS boolean LANGUAGE sql RETURN true;

-- Returns the error of a statement; undoes a statement without error.
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
SELECT jobq.create_job_type('errors pull');
SELECT jobq.create_job_type('errors tool', command => '{cat}');
SELECT jobq.create_job_type('errors handler', 'errors.handler(jsonb)');
SELECT jobq.set_limit('errors l');
SELECT jobq.create_signal('errors s', 'false');
SELECT jobq.schedule('errors c', '@daily', 'errors t');
SELECT jobq.create_workflow('errors w', '[{"key": "a"}]');
CREATE TEMP TABLE job AS SELECT jobq.enqueue('errors t') AS waiting, jobq.enqueue('errors t') AS ended;
SELECT jobq.run_inline(ended) FROM job;
-- runs: one that has started, one that has ended
CREATE TEMP TABLE run AS SELECT jobq.enqueue('errors w') AS live, jobq.enqueue('errors t') AS ended;
SELECT jobq.run_inline(ended) FROM run;
INSERT INTO jobq.runs (id, type_id, version, deadline, keep_until, phase)
SELECT r.id, t.id, 1, now(), now(), r.phase FROM run, LATERAL (VALUES (live, 'running'), (ended, 'ended')) r(id, phase), jobq.job_types t
 WHERE t.name = 'errors w';

-- Values that make a call valid: of arguments without a default, and of other required arguments.
CREATE TEMP TABLE valid (functions text[], argument text, value text);
INSERT INTO valid VALUES
  ('{create_job_type}', 'name', $$'errors new'$$), ('{create_job_type}', 'handler', $$'errors.ok(jsonb)'$$),
  ('{alter_job_type,drop_job_type,pause_job_type,resume_job_type}', 'name', $$'errors t'$$),
  ('{set_limit,drop_limit}', 'name', $$'errors l'$$), ('{set_signal,drop_signal}', 'name', $$'errors s'$$),
  ('{create_signal}', 'name', $$'errors new'$$), ('{create_signal}', 'condition', $$'true'$$), ('{set_signal}', 'active', 'true'),
  ('{set_pressure_rule}', 'job_type', $$'errors t'$$), ('{set_pressure_rule}', 'signal', $$'errors s'$$),
  ('{enqueue,enqueue_many,channel}', 'job_type', $$'errors t'$$), ('{enqueue_many}', 'payloads', $$'{"{}"}'$$),
  ('{enqueue_jobs}', 'jobs', $$'[{"job_type": "errors t"}]'$$),
  ('{cancel_job,alter_job,run_inline}', 'id', '(SELECT waiting FROM job)'), ('{retry_job,rerun_job,job_timeline,why}', 'id', '(SELECT ended FROM job)'),
  ('{wait_for}', 'id', 'gen_random_uuid()'), ('{next_runs}', 'cron', $$'@daily'$$),
  ('{wait_for,drain}', 'timeout', $$'0'$$), ('{archive}', 'before', 'now()'), ('{purge_tenant,set_tenant_quota}', 'tenant', $$'errors'$$),
  ('{cancel_jobs,purge_dead_letters}', 'job_type', $$'errors t'$$), ('{cancel_jobs,purge_dead_letters}', 'tenant', $$'errors'$$),
  ('{grant_access,revoke_access}', 'role', 'current_user::regrole'), ('{grant_access,revoke_access}', 'access', $$'read'$$),
  ('{set_tenant_check}', 'f', $$'errors.check(text)'$$), ('{stop_all,discard}', 'reason', $$'errors'$$),
  ('{set_progress}', 'progress', '1'), ('{log_event}', 'message', $$'errors'$$), ('{snooze}', 'delay', $$'1s'$$),
  ('{schedule}', 'name', $$'errors new'$$), ('{schedule}', 'cron', $$'@daily'$$), ('{schedule}', 'job_type', $$'errors t'$$),
  ('{alter_schedule,unschedule,pause_schedule,resume_schedule,run_schedule,backfill_schedule}', 'name', $$'errors c'$$),
  ('{create_workflow}', 'name', $$'errors new'$$), ('{create_workflow,check_workflow}', 'steps', $$'[{"key": "a"}]'$$), ('{graph}', 'workflow', $$'errors w'$$),
  ('{claim}', 'job_types', $$'{errors pull}'$$), ('{heartbeat,complete,fail,skip_job,snooze_job}', 'id', 'gen_random_uuid()'),
  ('{heartbeat,complete,fail,skip_job,snooze_job}', 'lease_token', 'gen_random_uuid()'), ('{fail,fail_many}', 'error', $$'errors'$$),
  ('{complete_many,fail_many}', 'ids', 'ARRAY[gen_random_uuid()]'), ('{complete_many,fail_many}', 'lease_tokens', 'ARRAY[gen_random_uuid()]'),
  ('{backfill_schedule}', 'since', 'now()'), ('{backfill_schedule}', 'until', 'now()'),
  ('{pause_workflow,resume_workflow,send_event}', 'id', '(SELECT live FROM run)'), ('{retry_workflow}', 'id', '(SELECT ended FROM run)'),
  ('{send_event}', 'event', $$'errors'$$), ('{add_tasks}', 'steps', $$'[{"key": "new"}]'$$),
  ('{record_artifact}', 'key', $$'outputs/a.wav'$$), ('{build_key}', 'job_id', 'gen_random_uuid()'), ('{build_key}', 'task_key', $$'render.7'$$),
  ('{build_key}', 'kind', $$'output'$$);

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
 WHERE p.pronamespace = 'jobq'::regnamespace;

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

-- the valid call of add_tasks finds that the handler's job is no task
UPDATE tried SET error = '{"state": "none"}' WHERE function = 'add_tasks' AND error ->> 'message' ~ '^job .* is no task of a run$';
UPDATE tried SET error = '{"state": "none"}' 
 WHERE error IS NULL OR error ->> 'state' = 'P0002';  -- snooze() has delayed its own job; wait_for() has looked for the job

-- Wrong values that are accepted: where any text or JSON is valid, new names, an end of a range.
CREATE TEMP TABLE taken (functions text[], arguments text[], kinds text[]);
INSERT INTO taken VALUES
  (NULL, '{reason,message,error_like}', '{empty,control character,long,unknown}'),
  (NULL, '{payload,payload_contains,metadata,data}', '{scalar,empty array,array,unknown key}'),
  (NULL, '{payload_contains}', '{deep}'), ('{set_progress}', '{data}', '{deep}'),
  ('{cancel_jobs,purge_dead_letters,retry_dead_letters,list_jobs,count_by_status,error_groups,purge_tenant}', '{tenant}', '{control character,long,unknown}'),
  ('{cancel_jobs,purge_dead_letters,retry_dead_letters,list_jobs,count_by_status,error_groups}', '{tenant}', '{empty}'), ('{error_groups}', '{since}', '{infinite}'),
  ('{enqueue,enqueue_many,grant_access,revoke_access}', '{tenant}', '{empty,unknown}'), ('{set_tenant_quota}', '{tenant}', '{unknown}'),
  ('{retry_dead_letters,purge_dead_letters}', '{max_jobs}', '{high}'),
  (NULL, '{max_rows,skip_rows,max_live,max_bytes,max_running,max_schedules,enqueues_per_minute}', '{high}'),
  ('{create_job_type,create_signal,create_workflow,set_limit,set_signal}', '{name}', '{unknown}'), ('{channel}', '{job_type}', '{unknown}'),
  ('{enqueue,enqueue_many}', '{unique_key,concurrency_key}', '{unknown}'), ('{enqueue_many}', '{payloads}', '{empty}'), ('{enqueue,enqueue_many}', '{after}', '{empty}'),
  ('{enqueue_jobs}', '{jobs}', '{empty array}'), ('{alter_job_type}', '{command}', '{unknown}'), ('{alter_job_type}', '{reset}', '{empty}'),
  ('{archive}', '{before,expires_from,expires_to}', '{infinite}'),
  ('{record_artifact}', '{bucket,content_type}', '{unknown}'), ('{record_artifact}', '{size_bytes}', '{high}'), ('{build_key}', '{task_key}', '{"NULL"}'),
  ('{retry_dead_letters}', '{dead_before}', '{infinite}'), ('{log_event}', '{type}', '{unknown}'),
  ('{revoke_access}', '{job_types}', '{unknown}'), ('{wait_for}', '{timeout}', '{long,overflowing}'),
  ('{log_event}', '{type,level}', '{"NULL"}'), ('{set_pressure_rule}', '{job_type}', '{"NULL"}'), ('{set_tenant_check}', '{f}', '{"NULL"}'),
  ('{stop_all}', '{reason}', '{"NULL"}'),
  ('{schedule}', '{name}', '{unknown}'), ('{pause_schedule,resume_schedule}', '{name}', '{"NULL"}'), ('{unschedule}', '{name,tenant}', '{unknown}'),
  ('{fail,fail_many}', '{error}', '{empty,control character,long,unknown}'), ('{fail,fail_many}', '{error_code}', '{unknown}'), ('{claim}', '{worker,node}', '{unknown}'),
  ('{complete_many}', '{results}', '{NULL inside}'), ('{complete,skip_job,fail}', '{result,details}', '{scalar,empty array,array,unknown key,deep,large}'),
  ('{claim}', '{job_types}', '{"NULL"}'),
  ('{send_event}', '{event}', '{unknown}'), ('{enqueue,enqueue_many}', '{after}', '{empty}'),
  ('{create_workflow}', '{output}', '{scalar,empty array,array,unknown key}'), ('{check_workflow}', '{steps}', '{scalar,empty array,array,unknown key}'),
  ('{schedule}', '{tenant}', '{empty,unknown}'), ('{alter_schedule,unschedule,pause_schedule,resume_schedule,run_schedule,backfill_schedule}', '{tenant}', '{empty}'),
  ('{schedule,alter_schedule}', '{max_runs,pause_after_failures}', '{high}'), ('{alter_schedule}', '{reset}', '{empty}');

SELECT * FROM no_plan();
SELECT is_empty($$SELECT function, argument FROM arguments WHERE default_value IS NULL AND valid IS NULL$$,
                'each argument without a default has a valid value in this test');
SELECT is_empty($$
  SELECT function, argument, kind, error ->> 'state', error ->> 'message' FROM tried t
   WHERE (error ->> 'state' = 'none') <> (kind = 'NULL' AND coalesce(default_value, '') LIKE 'NULL::%' AND (function, argument) <> ('graph', 'workflow')
          OR EXISTS (SELECT FROM taken k WHERE (k.functions IS NULL OR t.function = ANY (k.functions)) AND t.argument = ANY (k.arguments)
                        AND t.kind = ANY (k.kinds)))$$, 'wrong values are refused, others are not');
CREATE TEMP VIEW refused AS
  SELECT DISTINCT function, argument, kind, error ->> 'state' AS state, error ->> 'message' AS message, error ->> 'hint' AS hint
    FROM tried WHERE error ->> 'state' <> 'none';
SELECT is_empty($$SELECT * FROM refused WHERE state <> ALL ('{22004,22023,22003,54000,42704,42710,0A000}')
                     AND NOT (argument = 'condition' AND state IN ('42601', '42703'))$$, 'SQLSTATEs are those of the contract');
SELECT is_empty($$
  SELECT DISTINCT r.function, r.state
    FROM refused r, obj_description(('jobq.' || r.function)::regproc, 'pg_proc') comment,
         obj_description(('jobq.' || substring(comment FROM '[Tt]hose of (enqueue|create_job_type|schedule)\M'))::regproc, 'pg_proc') of_another
   WHERE r.state <> ALL ('{22004,22023,22003,54000}') AND concat(comment, of_another) !~ r.state$$, 'the comment of the function has them');
SELECT is_empty($$SELECT * FROM refused WHERE kind = 'NULL' AND state <> '22004' AND (function, argument) NOT IN (('enqueue', 'payload'))$$,
                'NULL is 22004');
SELECT is_empty($$
  SELECT * FROM refused WHERE message !~ format('arguments? .*"%s"', argument) AND NOT (state = '42704' AND message ~ '" does not exist$')
     AND NOT (function IN ('enqueue_jobs', 'enqueue_many') AND message ~ '^job 1: ')$$, 'messages name the argument');
SELECT is_empty($$SELECT * FROM refused WHERE (message ~ '^[A-Z]|\.$|[[:cntrl:]]' AND state <> '42601') OR length(message) > 200 OR hint !~ '(^|\.)$'$$,
                'they are one line that begins in lower case, and hints are sentences');
SELECT is_empty($$SELECT call, error FROM (SELECT DISTINCT call, error FROM tried) t
   WHERE error ->> 'context' ~ 'PL/pgSQL function (?!errors)|SQL function "_'$$, 'no line of CONTEXT is of a function of jobq');

-- The keys of a job of enqueue_jobs are enqueue's arguments; the values are of a wrong
-- type, or not valid for the type.
CREATE TEMP TABLE keys AS
SELECT a.argument, v.value,
       errors.of(format('SELECT * FROM jobq.enqueue_jobs(%L)',
                        jsonb_build_array('{"job_type": "errors t"}'::jsonb, jsonb_build_object('job_type', 'errors t') || jsonb_build_object(a.argument, v.value)))) AS error
  FROM arguments a, (VALUES ('true'::jsonb), ('1.5'), ('[]'), ('"errors unknown"')) v(value) WHERE a.function = 'enqueue';
SELECT is_empty($$
  SELECT argument, value, error FROM keys
   WHERE CASE WHEN error ->> 'state' = 'none' THEN argument <> ALL ('{payload,metadata}') AND (argument, value) NOT IN
                     (('after', '[]'), ('tenant', '"errors unknown"'), ('unique_key', '"errors unknown"'), ('concurrency_key', '"errors unknown"'))
              WHEN argument = 'job_type' AND value = '"errors unknown"' THEN error ->> 'message' <> 'job 2: job type "errors unknown" does not exist'
              ELSE error ->> 'message' NOT LIKE format('job 2: argument "%s"%%', argument) OR error ->> 'state' NOT IN ('22023', '22007', '0A000') END
  $$, 'enqueue_jobs names the job and its argument');
SELECT is(errors.of($$SELECT jobq.enqueue_many('errors t', '{"{}",NULL}')$$) ->> 'message', 'job 2: argument "payload" must not be NULL', 'enqueue_many, too');

-- Options, and the keys of a backoff.
CREATE TEMP TABLE options AS
SELECT o.key, v.value, errors.of(format('SELECT jobq.alter_job_type(%L, options => %L)', t.name, jsonb_build_object(o.key, v.value))) AS error
  FROM jobq.option_keys o, (VALUES ('true'::jsonb), ('1.5'), ('[1]'), ('"errors unknown"'), ('{"x": 1}'), ('-1')) v(value), (VALUES ('errors t'), ('errors tool')) t(name);
SELECT is_empty($$SELECT key FROM jobq.option_keys EXCEPT SELECT key FROM options WHERE error ->> 'state' = '22023'$$, 'each option refuses some value');
SELECT is_empty($$SELECT * FROM options WHERE error ->> 'state' <> 'none' AND (error ->> 'message' NOT LIKE format('option "%s"%%', key)
                   OR error ->> 'state' NOT IN ('22023', '22003', '54000', '0A000'))$$, 'the message names it');
SELECT is_empty($$
  SELECT v FROM (VALUES ('type', '"linear"'), ('type', '1'), ('base', '"soon"'), ('base', '"-1s"'), ('base', '1'), ('max', 'null'), ('jitter', '2'), ('jitter', '"1"')) v(key, value),
    LATERAL errors.of(format('SELECT jobq.enqueue(%L, backoff => %L)', 'errors t', format('{"%s": %s}', key, value))) error
   WHERE error ->> 'message' NOT LIKE format('argument "backoff", key "%s": %s is not %%', key, value) OR error ->> 'state' <> '22023'
  $$, 'backoff names key and value');

SELECT * FROM finish();
ROLLBACK;
