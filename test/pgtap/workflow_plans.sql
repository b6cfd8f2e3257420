-- The plans of runs while the statistics of a large queue say that it is empty, as after
-- an ANALYZE of an empty queue whose dead rows an old snapshot keeps: no call reads the
-- whole queue.
BEGIN;
SET LOCAL client_min_messages = error;
SET LOCAL jit = off;
SELECT * FROM no_plan();
SELECT jobq.create_job_type(t, max_attempts => 1) FROM unnest('{plan_other,plan_act}'::text[]) t;
SELECT jobq.pause_job_type('plan_other');
SELECT jobq.create_workflow('plan_run', $$[{"key": "m", "job_type": "plan_act", "map": "$.input.list", "max_parallel": 5},
  {"key": "e", "event": "go"}, {"key": "t", "event": "late", "timeout": "1h"}, {"key": "d", "delay": "1h"}, {"key": "x", "job_type": "plan_act"},
  {"key": "y", "job_type": "plan_act", "after": ["x"]}, {"key": "z", "job_type": "plan_act", "after": ["e"]}]$$);
CREATE TEMP TABLE others AS SELECT jobq.enqueue_many('plan_other', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 3000))) AS id;
CREATE TEMP TABLE run AS SELECT jobq.enqueue('plan_run', '{"list": [1, 2, 3, 4, 5, 6, 7, 8, 9]}') AS id;
UPDATE jobq.queue q SET status = 'running', started_at = clock_timestamp(), runs = 1, attempts = 1 WHERE q.id = (SELECT id FROM run);
UPDATE pg_class SET relpages = 1000, reltuples = 0 WHERE oid IN ('jobq.queue'::regclass, 'jobq.dependencies'::regclass, 'jobq.dead_letters'::regclass);
UPDATE pg_class SET relpages = 1000, reltuples = 0 WHERE oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'jobq.queue'::regclass);

-- The conductor's settings are those of conductor.c.
CREATE FUNCTION pg_temp.as_conductor(off boolean) RETURNS void LANGUAGE sql AS $$
  SELECT set_config('plan_cache_mode', CASE WHEN off THEN 'force_generic_plan' ELSE 'auto' END, true),
         set_config(s, CASE WHEN off THEN 'off' ELSE 'on' END, true) FROM unnest('{enable_seqscan,enable_hashjoin,enable_mergejoin}'::text[]) s
$$;
-- Returns the rows of the queue that the statement reads.
CREATE FUNCTION pg_temp.read_by(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  before bigint := (SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_all_tables WHERE relid = 'jobq.queue'::regclass);
BEGIN
  EXECUTE statement;
  RETURN (SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_all_tables WHERE relid = 'jobq.queue'::regclass) - before;
END $$;
CREATE FUNCTION pg_temp.task(key text) RETURNS uuid STABLE LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT q.id FROM jobq.queue q WHERE q.workflow_id = (SELECT id FROM run) AND q.task_key = key);
END $$;
CREATE FUNCTION pg_temp.is_small(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  rows_read bigint := pg_temp.read_by(statement);
BEGIN
  RETURN cmp_ok(rows_read, '<', 1000::bigint, format('%s (seqscan %s)', statement, current_setting('enable_seqscan')));
END $$;

SELECT cmp_ok(pg_temp.read_by('SELECT count(*) FROM jobq.queue WHERE payload IS NOT NULL'), '>=', 3000::bigint, 'a scan of the whole queue is counted');

-- ---------- what the conductor calls ----------

SELECT pg_temp.as_conductor(true);
SELECT pg_temp.is_small(format('SELECT jobq_internal._start_run(%L)', id)) FROM run;
SELECT is((SELECT count(*) FROM jobq.queue q WHERE q.workflow_id = (SELECT id FROM run) AND q.parent_id = q.workflow_id), 7::bigint, 'all steps have tasks');
SELECT pg_temp.is_small(format('SELECT jobq_internal._look(%L)', ARRAY[pg_temp.task('m'), (SELECT id FROM run)]));
SELECT is((SELECT count(*) FROM jobq.queue q WHERE q.parent_id = (SELECT pg_temp.task('m'))), 5::bigint, 'the map has its first members');
SELECT pg_temp.is_small(format('SELECT jobq_internal._ready(%L)', ARRAY[pg_temp.task('e'), pg_temp.task('y')]));
SELECT pg_temp.is_small('SELECT jobq_internal._run_due_timers()');
UPDATE jobq.run_timers t SET due = '2000-01-01' WHERE t.id = (SELECT pg_temp.task('d'));
SELECT pg_temp.is_small('SELECT jobq_internal._run_due_timers()');
SELECT is(pg_temp.task('d'), NULL, 'a timer that is due is acted on');
SELECT pg_temp.is_small($$SELECT count(*) FROM jobq_internal._sweep('00000000-0000-0000-0000-000000000000')$$);

-- ---------- what users call ----------

SELECT pg_temp.as_conductor(false);
SELECT pg_temp.is_small(format($$SELECT jobq.send_event(%L, 'go', '1')$$, id)) FROM run;
SELECT is(pg_temp.task('e'), NULL, 'the event has come');
SELECT pg_temp.is_small(format('SELECT jobq.pause_workflow(%L)', id)) FROM run;
SELECT pg_temp.is_small(format('SELECT jobq.resume_workflow(%L)', id)) FROM run;
SELECT pg_temp.is_small(format($$SELECT count(*) FROM (SELECT jobq_internal._add_live_steps(r, '[{"key": "n", "job_type": "plan_act"}]', '{n}', %L) FROM jobq.runs r
  WHERE r.id = %L) a$$, pg_temp.task('x'), id)) FROM run;
SELECT pg_temp.is_small(format('SELECT jobq.cancel_job(%L)', pg_temp.task('m')));
SELECT jobq_internal._settle_task(pg_temp.task('t'), 'failed', NULL, 'timeout', 'late');
SELECT jobq_internal._settle_task(q.id, 'failed', NULL, 'bad', 'bad') FROM jobq.queue q WHERE q.id = (SELECT pg_temp.task('x'));
UPDATE jobq.dead_letters d SET runs = 1 WHERE d.workflow_id = (SELECT id FROM run) AND d.task_key = 'x';
SELECT pg_temp.is_small(format('SELECT jobq.retry_job(%L)', d.id)) FROM jobq.dead_letters d WHERE d.workflow_id = (SELECT id FROM run) AND d.task_key = 'x';
SELECT isnt(pg_temp.task('x'), NULL, 'a task is retried');
SELECT * FROM finish();
ROLLBACK;
