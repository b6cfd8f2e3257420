-- The graph of a workflow and of a run.
BEGIN;
SET LOCAL client_min_messages = error;
SELECT * FROM no_plan();
SELECT jobq.create_job_type(t) FROM unnest('{list,doc,"a\"b`c[d]<e>#&%%{x}","refund"}'::text[]) t;
SELECT jobq.create_workflow('graphs', $$[{"key": "list", "job_type": "list", "compensate": {"job_type": "refund"}}, {"key": "doc", "job_type": "doc", "after": ["list"], "map": "$.tasks.list.result"},
  {"key": "end", "after": ["doc", "list"]}, {"key": "wait", "event": "approved", "after": ["end"], "rule": "done"}, {"key": "sleep", "delay": "1h"},
  {"key": "odd", "job_type": "a\"b`c[d]<e>#&%%{x}", "if": "$.input.x == \"y\""}]$$);
SELECT is(jobq.graph('graphs'), $$flowchart TD
  s1["list"]
  s2[["doc<br>map #36;.tasks.list.result"]]
  s3(("end"))
  s4>"wait<br>event approved"]
  s5(["sleep<br>delay 1h"])
  s6["odd<br>a#34;b#96;c[d]#60;e#62;#35;#38;#37;#37;{x}<br>if #36;.input.x == #34;y#34;"]
  u1["list.undo<br>refund"]
  s1 --> s2
  s2 --> s3
  s1 --> s3
  s3 -- done --> s4
  s1 -.-> u1$$, 'the active version');
SELECT jobq.create_workflow('graphs', '[{"key": "only"}]');
SELECT is(jobq.graph('graphs'), E'flowchart TD\n  s1(("only"))', 'a new version');
SELECT is(jobq.graph('graphs', 2), E'flowchart TD\n  s1(("only"))', 'by its number');
SELECT alike(jobq.graph('graphs', 1), E'flowchart TD\n  s1["list"]%', 'an old version');
SELECT throws_ok(call, state, message, call) FROM (VALUES
  ('SELECT jobq.graph()', '22004', 'arguments "workflow" and "id" are both NULL'), ($$SELECT jobq.graph('none')$$, '42704', 'workflow "none" does not exist'),
  ($$SELECT jobq.graph('list')$$, '42704', 'workflow "list" does not exist'), ($$SELECT jobq.graph('graphs', 3)$$, '42704', 'argument "version": workflow "graphs" has no version 3'),
  ($$SELECT jobq.graph('graphs', id => 'b7b7b7b7-0000-7000-8000-000000000000')$$, '22023', 'arguments "workflow" and "id" are both given'),
  ($$SELECT jobq.graph(version => 1, id => 'b7b7b7b7-0000-7000-8000-000000000000')$$, '22023', 'arguments "version" and "id" are both given'),
  ($$SELECT jobq.graph(id => 'b7b7b7b7-0000-7000-8000-000000000000')$$, 'P0002', 'job "b7b7b7b7-0000-7000-8000-000000000000" does not exist')) v(call, state, message);
CREATE TEMP TABLE plain AS SELECT jobq.enqueue('list') AS id;
SELECT throws_ok(format('SELECT jobq.graph(id => %L)', id), '22023', format('argument "id": job "%s" is no run of a workflow', id), 'a plain job') FROM plain;

-- A run, with tasks as the engine stores them.
SELECT jobq.create_workflow('statuses', '[{"key": "a", "job_type": "list", "compensate": {"job_type": "refund"}}, {"key": "m", "job_type": "doc", "map": "$.input.l"}, {"key": "n", "job_type": "doc", "map": "$.input.l"}, {"key": "z"}]');
CREATE TEMP TABLE run AS SELECT jobq.enqueue('statuses') AS id;
SELECT jobq.enqueue('list') FROM generate_series(1, 5);
CREATE TEMP TABLE tasks AS SELECT row_number() OVER (ORDER BY q.id) AS n, q.id FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id AND t.name = 'list' WHERE q.id <> (SELECT id FROM plain);
UPDATE jobq.queue q SET workflow_id = (SELECT id FROM run), task_key = v.key, status = v.status
  FROM tasks t JOIN (VALUES (1, 'a', 'retry'::jobq.job_status), (2, 'm.0', 'pending'), (3, 'm.1', 'retry'), (4, 'n', 'blocked'), (5, 'n.0', 'pending')) v(n, key, status) ON v.n = t.n WHERE q.id = t.id;
SELECT is(substring(jobq.graph(id => id) FROM E'\n  class s.*'), E'\n  class s1 retry\n  class s2 retry\n  class s3 blocked', 'statuses of tasks') FROM run;
SELECT is((SELECT count(*)::int FROM regexp_matches(jobq.graph(id => id), '  classDef (pending|blocked|retry|running|completed|skipped|cancelled|error) ', 'g')), 8, 'a class for each status') FROM run;
UPDATE jobq.queue q SET task_key = 'a.undo' FROM tasks t WHERE q.id = t.id AND t.n = 2;
SELECT is(substring(jobq.graph(id => id) FROM E'\n  class s.*'), E'\n  class s1 retry\n  class s2 retry\n  class s3 blocked\n  class u1 pending', 'and of compensation') FROM run;

SELECT * FROM finish();
ROLLBACK;
