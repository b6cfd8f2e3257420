-- Definitions of workflows: versions, checks, options, rights, the job type behind them.
BEGIN;
SET LOCAL client_min_messages = error;
SELECT * FROM no_plan();
CREATE SCHEMA flows;
GRANT USAGE ON SCHEMA flows TO PUBLIC;
CREATE FUNCTION flows.work(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type(t, 'flows.work(jsonb)') FROM unnest('{ingest,audio-norm,renderer,yt-upload,list_docs,sync.source_doc,flow a,flow b}'::text[]) t;
SELECT jobq.create_job_type('flow pull');

-- Returns the error of a statement as a role, with its DETAIL; undoes one without error and
-- returns its value.
CREATE FUNCTION flows.said(statement text, role name DEFAULT current_user) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
  detail text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE statement INTO result;
  RAISE SQLSTATE 'UNDO0' USING MESSAGE = coalesce(result, 'NULL');
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
  RETURN SQLERRM;
WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
  RETURN SQLSTATE || ': ' || SQLERRM || CASE WHEN detail <> '' THEN E'\n' || detail ELSE '' END;
END $$;
-- ... of create_workflow
CREATE FUNCTION flows.create_said(steps text, output text DEFAULT NULL, options text DEFAULT '{}', role name DEFAULT current_user) RETURNS text LANGUAGE sql AS $$
  SELECT flows.said(format('SELECT jobq.create_workflow(%L, %L, %L, options => %L)', 'flow new', steps, output, options), role)
$$;
-- ... its problems, one a row
CREATE FUNCTION flows.problems(steps text, output text DEFAULT NULL) RETURNS SETOF text LANGUAGE sql AS $$
  SELECT p FROM regexp_split_to_table(flows.create_said(steps, output), E'\n') WITH ORDINALITY t(p, n) WHERE n > 1 ORDER BY n
$$;

-- ---------- the seeds' workflows ----------

SELECT is(jobq.create_workflow('publish', '[{"key":"ingest","job_type":"ingest","payload":{"source":{"$":"$.input.source"}}},
  {"key":"audio","job_type":"audio-norm","after":["ingest"],"payload":{"in":{"$":"$.tasks.ingest.result.file"}}},
  {"key":"render","job_type":"renderer","after":["audio"]},
  {"key":"upload","job_type":"yt-upload","after":["render"]}]'), 1, 'seed 002');
SELECT ok(jobq.enqueue('publish', '{"source":"s3://in/a.wav"}') IS NOT NULL, 'it can be enqueued');
SELECT is(jobq.create_workflow('sync', '[{"key":"list","job_type":"list_docs"},
  {"key":"doc","job_type":"sync.source_doc","after":["list"],"map":"$.tasks.list.result"}]'), 1, 'seed 003');
SELECT jobq.schedule('sync', '@daily', 'sync');
SELECT is(job_type, 'sync', 'and scheduled') FROM jobq.schedules WHERE name = 'sync';

-- ---------- versions ----------

SELECT results_eq($$SELECT name, version, is_active, steps, output, on_failure, created_by = current_user, definer_oid = current_user::regrole, created_at > now() - interval '1 min',
                           type_id = (SELECT id FROM jobq.job_types t WHERE t.name = 'sync') FROM jobq.workflows WHERE name = 'sync'$$,
  $$VALUES ('sync', 1, true, '[{"key":"list","job_type":"list_docs"},{"key":"doc","job_type":"sync.source_doc","after":["list"],"map":"$.tasks.list.result"}]'::jsonb,
            NULL::jsonb, 'stop', true, true, true, true)$$, 'the row of a version');
SELECT results_eq($$SELECT kind, is_workflow, timeout, handler, command, owner = current_user, run_as = current_user, max_concurrent, options FROM jobq.job_types WHERE name = 'sync'$$,
  $$VALUES ('workflow', true, '1 day'::interval, NULL::text, NULL::text[], true, true, 0, '{}'::jsonb)$$, 'the job type');
SELECT is(jobq.create_workflow('v', '[{"key": "a"}]'), 1, 'version 1');
SELECT is(jobq.create_workflow('v', '[{"key": "a"}]'), 1, 'the same again');
SELECT is(jobq.create_workflow('v', '[{"key": "b"}]'), 2, 'other steps');
SELECT is(jobq.create_workflow('v', '[{"key": "b"}]', '{"x": 1}'), 3, 'another output');
SELECT is(jobq.create_workflow('v', '[{"key": "b"}]', '{"x": 1}', 'continue'), 4, 'another on_failure');
SELECT is(jobq.create_workflow('v', '[{"key": "b"}]', '{"x": 1}'), 3, 'an old version becomes active again');
SELECT results_eq($$SELECT version FROM jobq.workflows WHERE name = 'v' AND is_active$$, '{3}'::int[], 'one version is active');
SELECT is(jobq.create_workflow('v', '[{"key": "b"}]', '{"x": 1}', 'compensate'), 5, 'the next number');
SELECT is(jobq.create_workflow('v', '[{"key": "b", "job_type": null}]'), 6, 'a JSON null counts as not given');

-- ---------- the job type ----------

SELECT is(flows.said($$SELECT jobq.create_workflow('flow a', '[{"key": "a"}]')$$), '42710: job type "flow a" exists already and is no workflow', 'a name of a job type');
SELECT is(flows.said(call), error, call) FROM (VALUES
  ($$SELECT jobq.create_job_type('v', 'flows.work(jsonb)')$$, '42710: job type "v" exists already'),
  ($$SELECT jobq.create_job_type('v', 'flows.work(jsonb)', on_conflict => 'replace')$$, '22023: argument "handler": "v" is a workflow'),
  ($$SELECT jobq.alter_job_type('v', 'flows.work(jsonb)')$$, '22023: argument "handler": "v" is a workflow'),
  ($$SELECT jobq.alter_job_type('v', command => '{true}')$$, '22023: argument "command": "v" is a workflow'),
  ($$SELECT jobq.alter_job_type('v', timeout => '0')$$, '22023: argument "timeout": "00:00:00" is not more than zero'),
  ($$SELECT jobq.alter_job_type('v', options => '{"output": "json"}')$$, '22023: option "output" has no meaning for a workflow'),
  ($$SELECT jobq.alter_job_type('v', options => '{"max_lease": "1h"}')$$, '22023: option "max_lease" has no meaning for a workflow'),
  ($$SELECT jobq.claim('{v}')$$, '22023: argument "job_types": "v" is a workflow, whose steps are jobs of other types')) v(call, error);
SELECT jobq.alter_job_type('v', timeout => '2h', max_concurrent => 3, rate_limit => 5, options => '{"max_depth": 4}');
SELECT is((timeout, max_concurrent, rate_limit, options, kind)::text, '(02:00:00,3,5,"{""max_depth"": 4}",workflow)', 'limits can be altered') FROM jobq.job_types WHERE name = 'v';
SELECT is(jobq.create_workflow('v', '[{"key": "c"}]'), 7, 'a new version');
SELECT is((timeout, max_concurrent, options)::text, '(02:00:00,3,"{""max_depth"": 4}")', 'keeps what it does not give') FROM jobq.job_types WHERE name = 'v';
SELECT jobq.create_workflow('v', '[{"key": "c"}]', options => '{"timeout": null, "max_concurrent": 9, "max_depth": null, "keep_dead": "1 day"}');
SELECT is((timeout, max_concurrent, options, keep_dead)::text, '("1 day",9,{},"1 day")', 'JSON null is the default') FROM jobq.job_types WHERE name = 'v';
SELECT jobq.alter_job_type('v', timeout => '3h'), jobq.alter_job_type('v', reset => '{timeout,keep_dead}');
SELECT is((timeout, keep_dead)::text, '("1 day",)', 'reset knows the default of a workflow') FROM jobq.job_types WHERE name = 'v';
SELECT jobq.create_workflow('all options', '[{"key": "a"}]', options => '{"timeout": "1h", "base_priority": 7, "max_concurrent": 2, "rate_limit": 3, "rate_window": "1min",
  "keep_completed": "2 days", "keep_dead": "3 days", "critical": true, "limits": [], "keep_completed_count": 5, "permanent_codes": ["x"]}');
SELECT is(to_jsonb(t) - '{id,name,owner,run_as,owner_oid,run_as_oid,created_at,dropped_at,resumed_at,paused_at,paused,pause_reason,paused_until,handler,command,backoff,backoff_base,backoff_max,backoff_jitter,max_attempts,cpu_weight}'::text[],
  '{"timeout": "01:00:00", "base_priority": 7, "max_concurrent": 2, "rate_limit": 3, "rate_window": "00:01:00", "keep_completed": "2 days", "keep_dead": "3 days", "critical": true,
    "kind": "workflow", "is_workflow": true, "options": {"limits": [], "keep_completed_count": 5, "permanent_codes": ["x"]}}', 'columns and option keys') FROM jobq.job_types t WHERE name = 'all options';
SELECT is(flows.create_said('[{"key": "a"}]', options => options), error, options) FROM (VALUES
  ('{"timeout": "0"}', '22023: argument "options": key "timeout": "00:00:00" is not more than zero'),
  ('{"timeout": "soon"}', '22023: argument "options": key "timeout": invalid input syntax for type interval: "soon"'),
  ('{"max_concurrent": -1}', '22003: argument "options": key "max_concurrent": -1 is outside 0..1000000'),
  ('{"base_priority": 101}', '22003: argument "options": key "base_priority": 101 is outside -100..100'),
  ('{"max_attempts": 3}', '22023: argument "options": unknown option key "max_attempts"'),
  ('{"warm": 3}', '22023: option "warm" has no meaning for a workflow'),
  ('{"limits": ["none"]}', '42704: limit "none" does not exist'),
  ('[]', '22023: argument "options": [] is not an object')) v(options, error);
CREATE TEMP TABLE run AS SELECT jobq.enqueue('v') AS id;
SELECT is(flows.said($$SELECT jobq.drop_job_type('v')$$), '55006: job type "v" has 1 live job(s)', 'a live run');
SELECT jobq.drop_job_type('v', force => true);
SELECT is_empty($$SELECT FROM jobq.workflows WHERE name = 'v'$$, 'a dropped workflow has no versions');
SELECT is(jobq.create_workflow('v', '[{"key": "b"}]'), 1, 'the name is free again');
SELECT throws_ok($$UPDATE jobq.job_types SET handler = 'flows.work(jsonb)' WHERE name = 'v'$$, '23514', NULL, 'a workflow has no handler');

-- ---------- checks of steps ----------

SELECT is(flows.create_said(steps), '22023: argument "steps": ' || problem || E'\n' || problem, steps) FROM (VALUES
  ('5', '5 is not an array of one or more steps'), ('[]', '[] is not an array of one or more steps'), ('{"key": "a"}', '{"key": "a"} is not an array of one or more steps'),
  ('[1]', 'step 1: 1 is not an object'), ('[{"key": "a"}, []]', 'step 2: [] is not an object'), ('[{}]', 'step 1: it has no "key"'),
  ('[{"key": "1a"}]', 'step 1: "key": "1a" is not a letter or "_" and then letters, digits, "_" and "-", at most 63 bytes'),
  ('[{"key": "a.b"}]', 'step 1: "key": "a.b" is not a letter or "_" and then letters, digits, "_" and "-", at most 63 bytes'),
  ('[{"key": "a"}, {"key": "a"}]', 'step 2: "key": step 1 has the key "a", too'),
  ('[{"key": "a", "foo": 1}]', 'step "a": unknown key "foo"'), ('[{"key": "a", "foo": null}]', 'step "a": unknown key "foo"'),
  ('[{"key": "a", "after": "b"}]', 'step "a": "after": "b" is not an array of keys'), ('[{"key": "a", "after": [1]}]', 'step "a": "after": 1 is not a key'),
  ('[{"key": "a", "after": ["b"]}]', 'step "a": "after": there is no step "b"'),
  ('[{"key": "a", "rule": "all"}]', 'step "a": "rule": "all" is not one of "success", "done", "any", "failed"'),
  ('[{"key": "a", "rule": "any"}]', 'step "a": "rule": "any" needs "after"'), ('[{"key": "a", "rule": "failed"}]', 'step "a": "rule": "failed" needs "after"'),
  ('[{"key": "a", "if": true}]', 'step "a": "if": true is not a path, as text'), ('[{"key": "a", "job_type": "flow a", "map": []}]', 'step "a": "map": [] is not a path, as text'),
  ('[{"key": "a", "map": "$.input"}]', 'step "a": "map" needs "job_type"'), ('[{"key": "a", "event": "e", "map": "$.input"}]', 'step "a": "map" and "event" are both given'),
  ('[{"key": "a", "event": "e", "job_type": "flow a"}]', 'step "a": "job_type" and "event" are both given: put the job in a step after it'),
  ('[{"key": "a", "event": ""}]', 'step "a": "event": "" is not a text of 1 to 63 bytes without control characters'),
  ('[{"key": "a", "job_type": "flow a", "max_parallel": 2}]', 'step "a": "max_parallel" needs "map"'),
  ('[{"key": "a", "delay": 5}]', 'step "a": "delay": 5 is not an interval of 0..10000 years, as text'),
  ('[{"key": "a", "event": "e", "timeout": "-1s"}]', 'step "a": "timeout": "-1s" is not an interval of 0..10000 years, as text'),
  ('[{"key": "a", "timeout": "1s"}]', 'step "a": "timeout" needs "job_type" or "event"'),
  ('[{"key": "a", "payload": {}}]', 'step "a": "payload" needs "job_type"'), ('[{"key": "a", "priority": 1}]', 'step "a": "priority" needs "job_type"'),
  ('[{"key": "a", "max_attempts": 1}]', 'step "a": "max_attempts" needs "job_type"'), ('[{"key": "a", "backoff": {}}]', 'step "a": "backoff" needs "job_type"'),
  ('[{"key": "a", "concurrency_key": "k"}]', 'step "a": "concurrency_key" needs "job_type"'),
  ('[{"key": "a", "on_failure": "compensate"}]', 'step "a": "on_failure": "compensate" is not one of "stop", "continue"'),
  ('[{"key": "a", "job_type": "flow a", "max_attempts": 1.5}]', 'step "a": "max_attempts": 1.5 is not a whole number of 1..1000000'),
  ('[{"key": "a", "job_type": "flow a", "backoff": {"base": 5}}]', 'step "a": "backoff", key "base": 5 is not an interval of zero or more, as text'),
  ('[{"key": "a", "job_type": "flow a", "backoff": 5}]', 'step "a": "backoff": 5 is not an object'),
  ('[{"key": "a", "job_type": "flow a", "concurrency_key": 5}]', 'step "a": "concurrency_key": 5 is not a text'),
  ('[{"key": "a", "compensate": "flow a"}]', 'step "a": "compensate": "flow a" is not an object of "job_type" and "payload"'),
  ('[{"key": "a", "compensate": {"payload": 5}}]', 'step "a": "compensate" has no "job_type"'),
  ('[{"key": "a", "compensate": {"job_type": "flow a", "x": 5}}]', 'step "a": "compensate": unknown key "x"'),
  ('[{"key": "a", "after": ["a"]}]', 'step "a": cycle: a -> a'), ('[{"key": "b", "after": ["a"]}, {"key": "a", "after": ["b"]}]', 'step "b": cycle: b -> a -> b'),
  ('[{"key": "x"}, {"key": "a", "after": ["x", "c"]}, {"key": "b", "after": ["a"]}, {"key": "c", "after": ["b"]}, {"key": "d", "after": ["c"]}]', 'step "a": cycle: a -> b -> c -> a'),
  ('[{"key": "a", "if": "$.input.("}]', 'step "a": "if": path "$.input.(" cannot be evaluated: syntax error at or near "(" of jsonpath input'),
  ('[{"key": "a", "if": "strict $.input.x == 1"}]', 'step "a": "if": path "strict $.input.x == 1" is strict, paths of workflows are lax'),
  ('[{"key": "a", "if": "$.imput.x == 1"}]', 'step "a": "if": path "$.imput.x == 1" reads $.imput: there are $.input, $.run, $.tasks, $.item and $.index'),
  ('[{"key": "a", "if": "$x == 1"}]', 'step "a": "if": path "$x == 1" has the variable $x: there are none'),
  ('[{"key": "a", "job_type": "flow a", "payload": [{"x": {"$": "$.tasks.b.result"}}]}, {"key": "b"}]', 'step "a": "payload": path "$.tasks.b.result" reads step "b", which is not before this one'),
  ('[{"key": "a", "job_type": "flow a", "payload": {"$": "$.tasks.a.result"}}]', 'step "a": "payload": path "$.tasks.a.result" reads step "a", which is not before this one'),
  ('[{"key": "a", "job_type": "flow a", "payload": {"$": "$.tasks.z.result"}}]', 'step "a": "payload": path "$.tasks.z.result" reads step "z", which does not exist'),
  ('[{"key": "a", "if": "exists($.input ? (@.x == $.tasks.b.result))"}, {"key": "b"}]', 'step "a": "if": path "exists($.input ? (@.x == $.tasks.b.result))" reads step "b", which is not before this one'),
  ('[{"key": "a", "job_type": "flow a", "map": "$.input[$.tasks.b.result]"}, {"key": "b"}]', 'step "a": "map": path "$.input[$.tasks.b.result]" reads step "b", which is not before this one'),
  ('[{"key": "a", "job_type": "flow a", "payload": {"$": "$.item"}}]', 'step "a": "payload": path "$.item" reads $.item or $.index, which only the payload of a step with "map" has'),
  ('[{"key": "a", "job_type": "flow a", "payload": {"$": "$.input", "x": 1}}]', 'step "a": "payload": placeholder {"$": ...} has other keys'),
  ('[{"key": "a", "job_type": "flow a", "payload": {"x": [{"$[]": 5}]}}]', 'step "a": "payload": placeholder {"$[]": ...} has a path that is no text'),
  ('[{"key": "a", "compensate": {"job_type": "flow a", "payload": {"$": "$.tasks.b.result"}}}, {"key": "b"}]', 'step "a": "compensate": path "$.tasks.b.result" reads step "b", which is not before this one')
  ) v(steps, problem);
SELECT is(flows.create_said(steps), '22003: argument "steps": ' || problem || E'\n' || problem, steps) FROM (VALUES
  ('[{"key": "a", "job_type": "flow a", "map": "$.input", "max_parallel": 0}]', 'step "a": "max_parallel": 0 is not a whole number of 1..1000000'),
  ('[{"key": "a", "job_type": "flow a", "priority": 101}]', 'step "a": "priority": 101 is not a whole number of -100..100')) v(steps, problem);
SELECT is(flows.create_said('[{"key": "a"}]', output), '22023: argument ' || problem || E'\n' || problem, 'output ' || output) FROM (VALUES
  ('{"x": {"$": "$.tasks.b.result"}}', '"output": path "$.tasks.b.result" reads step "b", which does not exist'),
  ('{"$": "$.item"}', '"output": path "$.item" reads $.item or $.index, which only the payload of a step with "map" has'),
  ('{"$": 5}', '"output": placeholder {"$": ...} has a path that is no text')) v(output, problem);

SELECT is(flows.create_said(steps), '1', steps) FROM (VALUES
  ('[{"key": "_a-1"}]'), ('[{"key": "a", "after": []}, {"key": "b", "after": ["a", "a"], "rule": "done"}]'),
  ('[{"key": "a", "delay": "1h"}, {"key": "b", "event": "approved", "timeout": "3 days", "after": ["a"], "on_failure": "continue"}]'),
  ('[{"key": "a", "job_type": "flow a", "delay": "1h", "if": "$.input.x == 1", "priority": -5, "max_attempts": 7, "timeout": "0", "backoff": {"type": "fixed", "base": "1s"}, "concurrency_key": "k"}]'),
  ('[{"key": "a", "job_type": "flow pull", "map": "$.input.list", "max_parallel": 3, "payload": {"id": {"$": "$.item.id"}, "n": {"$": "$.index"}, "run": {"$": "$.run.id"}}}]'),
  ('[{"key": "a", "job_type": "flow a", "compensate": {"job_type": "flow b", "payload": {"$": "$.tasks.a.result"}}}]'),
  ('[{"key": "a"}, {"key": "b", "after": ["a"]}, {"key": "c", "after": ["b"], "if": "$.tasks.a.status == \"completed\" && exists($.tasks.*)"}]'),
  ('[{"key": "a", "job_type": "flow a", "payload": {"$": "$.input.x", "default": {"$": "$"}}}]'), ('[{"key": "a", "job_type": "publish"}]')) v(steps);
SELECT set_eq($$SELECT * FROM flows.problems('[{"key": "a", "after": ["b"]}, {"key": "b", "after": ["a"]}, {"key": "c", "job_type": "none"}, {"key": "d", "x": 1, "y": 2}, {"key": "p", "after": ["q"]}, {"key": "q", "after": ["p"]}]')$$,
  ARRAY['step "a": cycle: a -> b -> a', 'step "c": job type "none" does not exist', 'step "d": unknown key "x"', 'step "d": unknown key "y"', 'step "p": cycle: p -> q -> p'], 'DETAIL has all problems');
SELECT is(split_part(flows.create_said('[{"key": "a", "after": ["b"]}, {"key": "b", "after": ["a"]}, {"key": "c", "job_type": "none"}]'), E'\n', 1),
  '22023: argument "steps": step "a": cycle: a -> b -> a (1 of 2 problems)', 'the message has the first');
SELECT is(flows.create_said('[{"key": "a", "job_type": "none"}, {"key": "b", "compensate": {"job_type": "none"}}]'), E'42704: argument "steps": step "a": job type "none" does not exist (1 of 2 problems)\n'
  'step "a": job type "none" does not exist\nstep "b": job type "none" does not exist', 'unknown job types alone are 42704');

-- ---------- limits ----------

CREATE FUNCTION flows.many(steps int, parents int) RETURNS text LANGUAGE sql AS $$
  SELECT jsonb_agg(jsonb_build_object('key', 'k' || i, 'after', (SELECT coalesce(jsonb_agg('k' || j), '[]') FROM generate_series(greatest(i - parents, 1), i - 1) j)))
    FROM generate_series(1, steps) i
$$;
SELECT is(flows.create_said(flows.many(1000, 1)), '1', '1,000 steps');
SELECT alike(flows.create_said(flows.many(1001, 0)), '54000: argument "steps": 1001 steps are more than 1000%', '1,001 steps');
SELECT is(flows.create_said(flows.many(1000, 10)), '1', '9,945 keys in after');
SELECT alike(flows.create_said(flows.many(1000, 11)), '54000: argument "steps": 10934 keys in "after" are more than 10000%', 'over 10,000');
SELECT alike(flows.create_said((SELECT jsonb_agg(jsonb_build_object('key', 'k' || i, 'after', ARRAY['k' || i % 1000 + 1]))::text FROM generate_series(1, 1000) i)),
  '22023: argument "steps": step "k1": cycle: k1 -> k1000 -> k999 -> k998 -> k997 -> k996 -> k995 -> k994 -> k993 -> k992 -> (980 more) -> k11 -> %', 'a cycle of 1,000 steps');
SELECT alike(flows.create_said((SELECT jsonb_agg(jsonb_build_object('key', 'k' || i, 'x', i))::text FROM generate_series(1, 200) i)), '%' || E'\n100 more', 'DETAIL has 100 problems at most');
SELECT alike(flows.create_said(jsonb_build_array(jsonb_build_object('key', 'a', 'job_type', 'flow a', 'payload', repeat('x', 1100000)))::text), '54000: argument "steps" is larger than 1048576 bytes%', 'size');

-- ---------- workflows in workflows ----------

SELECT jobq.create_workflow('inner', '[{"key": "a", "job_type": "flow a"}]'), jobq.create_workflow('middle', '[{"key": "a", "job_type": "inner"}]'),
       jobq.create_workflow('outer', '[{"key": "a", "compensate": {"job_type": "middle"}}]');
SELECT is(flows.said($$SELECT jobq.create_workflow('inner', '[{"key": "a", "job_type": "outer"}]')$$),
  E'22023: argument "steps": cycle of workflows: inner -> outer -> middle -> inner\ncycle of workflows: inner -> outer -> middle -> inner', 'a cycle');
SELECT is(flows.said($$SELECT jobq.create_workflow('self', '[{"key": "a", "job_type": "self"}]')$$), E'22023: argument "steps": cycle of workflows: self -> self\ncycle of workflows: self -> self', 'of one');
SELECT jobq.create_workflow('middle', '[{"key": "a", "job_type": "flow a"}]');
SELECT is(jobq.create_workflow('inner', '[{"key": "a", "job_type": "outer"}]'), 2, 'versions that are not active do not count');
SELECT alike(flows.said($$SELECT jobq.create_workflow('middle', '[{"key": "a", "job_type": "inner"}]')$$), '22023: argument "steps": cycle of workflows: middle -> inner -> outer -> middle%', 'until they become active');

-- ---------- the dry run ----------

SELECT results_eq($$SELECT * FROM jobq.check_workflow('[{"key": "c", "after": ["a", "b"], "job_type": "flow a", "payload": {"x": {"$": "$.input.x"}, "y": {"$": "$.tasks.a.result"}}},
    {"key": "a", "job_type": "flow b"}, {"key": "b", "after": ["a"]}, {"key": "m", "job_type": "flow b", "map": "$.input.x"}]')$$,
  $$VALUES ('a', 1, 'flow b', '{}'::jsonb, NULL::text), ('m', 1, 'flow b', NULL, NULL), ('b', 2, NULL, NULL, NULL),
           ('c', 3, 'flow a', '{"x": {"$": "$.input.x"}, "y": {"$": "$.tasks.a.result"}}', NULL)$$, 'waves, without a payload');
SELECT results_eq($$SELECT task_key, payload, problem FROM jobq.check_workflow('[{"key": "a", "job_type": "flow a", "payload": {"x": {"$": "$.input.x"}, "y": {"$[]": "$.input.l[*]"}, "z": {"$": "$.run.id"}}},
    {"key": "b", "job_type": "flow a", "payload": {"$": "$.input.none"}}, {"key": "c", "if": "$.input.x"}, {"key": "d", "if": "$.input.x == 2"}, {"key": "e", "if": "$.input.none"},
    {"key": "m", "job_type": "flow a", "map": "$.input.l"}, {"key": "n", "job_type": "flow a", "map": "$.input.x"}, {"key": "o", "job_type": "flow a", "map": "$.input.l", "payload": {"i": {"$": "$.item"}, "x": {"$": "$.input.x"}}}]',
    '{"x": 1, "l": [2, 3]}')$$,
  $$VALUES ('a', '{"x": 1, "y": [2, 3], "z": {"$": "$.run.id"}}'::jsonb, NULL::text), ('b', '{"$": "$.input.none"}', 'path "$.input.none" finds no item'),
           ('c', NULL, '"if": path "$.input.x" is not true, false or null'), ('d', NULL, NULL), ('e', NULL, 'path "$.input.none" finds no item'),
           ('m', NULL, NULL), ('n', NULL, '"map": path "$.input.x" is no array'), ('o', '{"i": {"$": "$.item"}, "x": 1}', NULL)$$, 'filled with the payload of a run');
SELECT results_eq($$SELECT * FROM jobq.check_workflow('[{"key": "a", "after": ["b"]}, {"key": "b", "after": ["a"]}, 5, {"key": "c", "x": 1, "y": 2}, {"key": "d", "after": ["b"]}]', '{}')$$,
  $$VALUES (NULL, 1, NULL, NULL::jsonb, 'step 3: 5 is not an object'), ('c', 1, NULL, NULL, 'unknown key "x"'), ('c', 1, NULL, NULL, 'unknown key "y"'),
           ('a', NULL, NULL, NULL, 'cycle: a -> b -> a'), ('b', NULL, NULL, NULL, NULL), ('d', NULL, NULL, NULL, NULL)$$, 'problems are rows');
SELECT results_eq($$SELECT task_key, problem FROM jobq.check_workflow('{}')$$, $$VALUES (NULL, '{} is not an array of one or more steps')$$, 'a problem without step');
SELECT is((SELECT max(wave) FROM jobq.check_workflow(flows.many(1000, 3)::jsonb)), 1000, 'a chain of 1,000');

-- ---------- rights ----------

CREATE ROLE jobq_pgtap_chief;
CREATE ROLE jobq_pgtap_flow_admin;
CREATE ROLE jobq_pgtap_acme_admin;
CREATE ROLE jobq_pgtap_reader;
CREATE ROLE jobq_pgtap_app;
CREATE ROLE jobq_pgtap_owner;
CREATE ROLE jobq_pgtap_member IN ROLE jobq_pgtap_owner;
SELECT jobq.grant_access('jobq_pgtap_chief', 'admin'), jobq.grant_access('jobq_pgtap_flow_admin', 'admin', job_types => '{flow a,publish}'),
       jobq.grant_access('jobq_pgtap_acme_admin', 'admin', 'acme'), jobq.grant_access('jobq_pgtap_reader', 'read', job_types => '{sync}'),
       jobq.grant_access('jobq_pgtap_app', 'enqueue', 'acme', '{flow a}'), jobq.grant_access('jobq_pgtap_owner', 'admin'), jobq.grant_access('jobq_pgtap_owner', 'enqueue', 'acme', '{flow b}');
SELECT is(flows.create_said('[{"key": "a"}]', role => 'jobq_pgtap_' || role), said, 'create_workflow by ' || role) FROM (VALUES
  ('chief', '1'), ('acme_admin', '42501: permission denied for function create_workflow'), ('reader', '42501: permission denied for function create_workflow'),
  ('app', '42501: permission denied for function create_workflow'), ('flow_admin', '42501: permission denied for jobq.create_workflow')) v(role, said);
SELECT is(split_part(flows.create_said(steps, role => 'jobq_pgtap_' || role), E'\n', 1), said, steps || ' by ' || role) FROM (VALUES
  ('[{"key": "a", "job_type": "flow a"}]', 'chief', '42501: argument "steps": step "a": role "jobq_pgtap_chief" may not enqueue jobs of type "flow a"'),
  ('[{"key": "a", "compensate": {"job_type": "flow a"}}]', 'chief', '42501: argument "steps": step "a": role "jobq_pgtap_chief" may not enqueue jobs of type "flow a"'),
  ('[{"key": "a", "job_type": "flow b"}]', 'owner', '1')) v(steps, role, said);
CREATE ROLE jobq_pgtap_by_hand;
GRANT USAGE ON SCHEMA jobq TO jobq_pgtap_by_hand;
GRANT EXECUTE ON FUNCTION jobq.create_workflow TO jobq_pgtap_by_hand;
SELECT is(split_part(flows.create_said('[{"key": "a", "job_type": "flow a"}]', role => 'jobq_pgtap_by_hand'), E'\n', 1),
  '42501: argument "steps": step "a": role "jobq_pgtap_by_hand" may not enqueue jobs of type "flow a"', 'a role that may not call enqueue');
SELECT is(flows.create_said('[{"key": "a"}]', role => 'jobq_pgtap_by_hand'), '1', 'needs no right for a join');
SET LOCAL ROLE jobq_pgtap_owner;
SELECT jobq.create_workflow('owned', '[{"key": "a", "job_type": "flow b"}]');
RESET ROLE;
SELECT is((w.created_by, w.definer_oid = 'jobq_pgtap_owner'::regrole, t.owner)::text, '(jobq_pgtap_owner,t,jobq_pgtap_owner)', 'owner and definer')
  FROM jobq.workflows w JOIN jobq.job_types t ON t.id = w.type_id WHERE w.name = 'owned';
SELECT is(flows.said($$SELECT jobq.create_workflow('owned', '[{"key": "b"}]')$$, 'jobq_pgtap_chief'), '42501: must be owner of job type "owned"', 'another administrator');
SELECT is(flows.said($$SELECT jobq.create_workflow('owned', '[{"key": "b"}]')$$, 'jobq_pgtap_member'), '2', 'a member of the owner');
SELECT is(jobq.create_workflow('owned', '[{"key": "a", "job_type": "flow b"}]'), 2, 'the same steps by another definer are another version');
SELECT is((created_by = current_user)::text, 'true', 'with its rights') FROM jobq.workflows WHERE name = 'owned' AND is_active;
SELECT is(flows.said('SELECT string_agg(name, $$ $$ ORDER BY name) FROM jobq.workflows WHERE name IN ($$sync$$, $$publish$$, $$owned$$) AND is_active', 'jobq_pgtap_' || role), said, 'rows for ' || role) FROM (VALUES
  ('reader', 'sync'), ('chief', 'owned publish sync'), ('flow_admin', 'publish'), ('app', '42501: permission denied for table workflows')) v(role, said);
SELECT is(split_part(flows.said($$SELECT jobq.graph('sync')$$, 'jobq_pgtap_' || role), E'\n', 1), said, 'graph for ' || role) FROM (VALUES
  ('reader', 'flowchart TD'), ('chief', 'flowchart TD'), ('flow_admin', '42704: workflow "sync" does not exist'), ('app', '42501: permission denied for function graph')) v(role, said);
SELECT is(flows.said($$SELECT problem FROM jobq.check_workflow('[{"key": "a", "job_type": "flow b"}]')$$, 'jobq_pgtap_' || role), said, 'check_workflow by ' || role) FROM (VALUES
  ('owner', 'NULL'), ('chief', 'role "jobq_pgtap_chief" may not enqueue jobs of type "flow b"'), ('acme_admin', 'role "jobq_pgtap_acme_admin" may not enqueue jobs of type "flow b"'),
  ('flow_admin', 'job type "flow b" does not exist'), ('app', '42501: permission denied for function check_workflow')) v(role, said);
ALTER ROLE jobq_pgtap_owner RENAME TO jobq_pgtap_renamed;
SELECT jobq_internal._follow_renamed_roles();
SELECT is(created_by, 'jobq_pgtap_renamed', 'the name follows the role') FROM jobq.workflows WHERE name = 'owned' AND version = 1;
UPDATE jobq.workflows SET definer_oid = 0 WHERE name = 'owned';
SELECT jobq_internal._find_roles_here(false);
SELECT is(definer_oid, 'jobq_pgtap_renamed'::regrole::oid, 'and in a restored dump the role is found by its name') FROM jobq.workflows WHERE name = 'owned' AND version = 1;

SELECT * FROM finish();
ROLLBACK;
