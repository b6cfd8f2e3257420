-- Hooks (on_complete, on_failure, on_dead) and alerts
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.does(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  CASE payload->>'do'
    WHEN 'fail' THEN RAISE EXCEPTION 'oops' USING ERRCODE = 'P0002';
    WHEN 'skip' THEN PERFORM jobq.skip('no');
    WHEN 'snooze' THEN IF (jobq.current_job()).runs < 2 THEN PERFORM jobq.snooze('0'); END IF;
    ELSE NULL;
  END CASE;
  RETURN '{"done": true}';
END $$;
CREATE FUNCTION test.quiet() RETURNS boolean LANGUAGE sql AS $$ SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)') $$;
-- The jobs that follow a job, in order.
CREATE FUNCTION test.followers(job uuid) RETURNS TABLE(job_type text, hook text, status text, attempts text, runs text, depth int)
  LANGUAGE sql AS $$
  SELECT j.job_type, j.payload->>'hook', j.payload->>'status', j.payload->>'attempts', j.payload->>'runs', j.depth
    FROM jobq.jobs j WHERE j.parent_id = job ORDER BY j.id
$$;
SELECT jobq.create_job_type('after', 'test.does(jsonb)');
SELECT jobq.create_job_type('hooked', 'test.does(jsonb)', max_attempts => 2, backoff_base => '0',
  options => '{"on_complete": "after", "on_failure": "after", "on_dead": "after"}');

-- completed: once, also after failures; the payload of the hook
SELECT jobq.enqueue('hooked', '{"do": "snooze"}', tenant => 'acme', metadata => '{"m": 1}') AS id \gset
SELECT test.quiet();
SELECT * FROM test.followers(:'id');
SELECT tenant, payload - '{id,created_at,started_at,ended_at,worker}'::text[] AS story FROM jobq.jobs WHERE parent_id = :'id';
SELECT f.payload->>'id' = :'id' AS id, (f.payload->>'created_at')::timestamptz = j.created_at AS created,
       (f.payload->>'started_at')::timestamptz = j.started_at AS started, (f.payload->>'ended_at')::timestamptz = j.completed_at AS ended,
       f.payload->>'worker' = j.worker AS worker
  FROM jobq.jobs j JOIN jobq.jobs f ON f.parent_id = j.id WHERE j.id = :'id';

-- failed twice, dead; then a skip and a cancel, which have no hook
SELECT jobq.enqueue('hooked', '{"do": "fail"}') AS id \gset
SELECT test.quiet();
SELECT * FROM test.followers(:'id');
SELECT payload->>'error_msg' AS error_msg, payload->>'error_code' AS error_code, payload ? 'result' AS result, payload->'payload' AS payload
  FROM jobq.jobs WHERE parent_id = :'id' AND payload->>'hook' = 'on_dead';
SELECT jobq.enqueue('hooked', '{"do": "skip"}') AS a, jobq.enqueue('hooked', delay => '1 hour') AS b \gset
SELECT jobq.cancel_job(:'b');
SELECT test.quiet();
SELECT count(*) FROM jobq.jobs WHERE parent_id IN (:'a', :'b');

-- a failing hook leaves an event, and the job ends as without it
SELECT jobq.create_job_type('unhooked', 'test.does(jsonb)', options => '{"on_complete": "nosuch"}');
SELECT jobq.enqueue('unhooked') AS id \gset
SELECT status, result, error_msg FROM test.ended(:'id');
SELECT type, source, level, message, data, attempt FROM jobq.job_timeline(:'id');
SELECT jobq.create_job_type('needy', command => '{echo,"{nosuch}"}');
SELECT jobq.alter_job_type('unhooked', options => '{"on_complete": "needy", "on_failure": "nosuch", "on_dead": "after"}');
SELECT jobq.enqueue('unhooked') AS a, jobq.enqueue('unhooked', '{"do": "fail"}', max_attempts => 1) AS b \gset
SELECT status FROM test.ended(:'a');
SELECT type, message, data FROM jobq.job_timeline(:'a');
SELECT status FROM test.ended(:'b');
SELECT type, message, data - 'duration_ms' - 'worker' AS data FROM jobq.job_timeline(:'b');
SELECT test.quiet();
SELECT * FROM test.followers(:'b');

-- ... in a batch with other jobs
SELECT count(*) FROM jobq.enqueue_many('unhooked', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 300) n), tenant => 'batch');
SELECT test.quiet();
SELECT status, count(*) FROM jobq.jobs WHERE tenant = 'batch' GROUP BY 1;
SELECT type, count(*), count(DISTINCT job_id) AS jobs FROM jobq.events WHERE tenant = 'batch' GROUP BY 1;

-- the hook is enqueued with the rights of the type's owner
CREATE ROLE regress_hooks LOGIN;
GRANT EXECUTE ON FUNCTION jobq.create_job_type TO regress_hooks;
CREATE FUNCTION test.nothing() RETURNS void LANGUAGE sql AS '';
SET ROLE regress_hooks;
SELECT jobq.create_job_type('poor', 'test.nothing()', options => '{"on_complete": "after"}');
RESET ROLE;
SELECT jobq.enqueue('poor') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT type, message, data FROM jobq.job_timeline(:'id');
GRANT EXECUTE ON FUNCTION jobq.enqueue TO regress_hooks;
SELECT jobq.enqueue('poor') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT test.quiet();
SELECT job_type, hook FROM test.followers(:'id');
SELECT count(*) FROM jobq.job_timeline(:'id');

-- a cyclic chain ends at max_depth
SELECT jobq.create_job_type('loop', 'test.does(jsonb)', options => '{"on_complete": "loop", "max_depth": 5}');
SELECT jobq.enqueue('loop') AS id \gset
SELECT test.quiet();
SELECT count(*), max(depth) FROM jobq.jobs WHERE job_type = 'loop';
SELECT type, message, data FROM jobq.events WHERE job_type = 'loop';

-- a hook payload that would be too large lacks payload and result
SELECT jobq.create_job_type('large', 'test.does(jsonb)', options => '{"on_complete": "after"}');
SELECT jobq.enqueue('large', jsonb_build_object('x', repeat('x', 1048500))) AS id \gset
SELECT status FROM test.ended(:'id');
SELECT payload->'truncated' AS truncated, payload->>'job_id' = :'id' AS job_id, payload ? 'payload' AS payload, payload->>'status' AS status FROM jobq.jobs WHERE parent_id = :'id';

-- tools have hooks, too; inline, they are in the caller's transaction
SELECT jobq.create_job_type('tool', command => '{/bin/sh,-c,"exit 3"}', max_attempts => 1, options => '{"on_dead": "after"}');
SELECT jobq.enqueue('tool') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT test.quiet();
SELECT * FROM test.followers(:'id');
SELECT payload->>'error_code' AS error_code FROM jobq.jobs WHERE parent_id = :'id';
BEGIN;
SELECT jobq.enqueue('hooked') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT * FROM test.followers(:'id');
ROLLBACK;
SELECT v.options || ': ' || test.error_of(format('SELECT jobq.alter_job_type(%L, options => %L)', 'hooked', v.options))
  FROM (VALUES ('{"on_complete": 1}'), ('{"on_dead": ["after"]}'), ('{"on_failure": ""}'), ('{"on_dead": "' || repeat('x', 64) || '"}'), ('{"alert": "no"}'), ('{"log_fields": "x"}'), ('{"log_fields": [1]}')) v(options);

-- alerts: every dead letter raises one, unless the type opts out
SELECT test.quiet();
DELETE FROM jobq.alerts;
SELECT jobq.create_job_type('plain', 'test.does(jsonb)', max_attempts => 2, backoff_base => '0');
SELECT jobq.create_job_type('critical', 'test.does(jsonb)', max_attempts => 1, critical => true);
SELECT jobq.create_job_type('silent', 'test.does(jsonb)', max_attempts => 1, options => '{"alert": false}');
SELECT jobq.enqueue('plain', '{"do": "fail"}', tenant => 'acme') AS plain, jobq.enqueue('critical', '{"do": "fail"}') AS critical,
       jobq.enqueue('silent', '{"do": "fail"}'), jobq.enqueue('plain') \gset
SELECT test.quiet();
SELECT severity, title, replace(message, job_id::text, '<id>') AS message, job_type, tenant, attempts, error_msg,
       job_id IN (:'plain', :'critical') AS job, ts > now() - interval '10 min' AS ts
  FROM jobq.alerts ORDER BY severity;

-- a job for each alert, with the row as its payload; none for alerts about that type itself
SELECT jobq.create_job_type('alarm', 'test.does(jsonb)', max_attempts => 1);
SET jobq.alert_job_type = 'alarm';
BEGIN;
SELECT jobq.enqueue('plain', '{"do": "fail"}', tenant => 'acme', max_attempts => 1) AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT j.payload = to_jsonb(a) AS is_the_row, j.tenant, j.depth FROM jobq.jobs j JOIN jobq.alerts a ON a.job_id = j.parent_id WHERE j.parent_id = :'id';
SELECT jobq.enqueue('alarm', '{"do": "fail"}') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT count(*) AS alerts FROM jobq.alerts WHERE job_id = :'id';
SELECT count(*) AS jobs FROM jobq.jobs WHERE parent_id = :'id';
SET LOCAL jobq.alert_job_type = 'nosuch';
SELECT jobq.enqueue('plain', '{"do": "fail"}', max_attempts => 1) AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT type, message, data - 'duration_ms' - 'worker' AS data FROM jobq.job_timeline(:'id');
SELECT count(*) AS alerts FROM jobq.alerts WHERE job_id = :'id';
ROLLBACK;
RESET jobq.alert_job_type;

-- a tool that can't be started here
SELECT jobq.create_job_type('missing', command => '{/no/such/tool}', critical => true);
SELECT jobq.enqueue('missing') AS id \gset
SELECT test.wait_until($$SELECT EXISTS (SELECT FROM jobq.alerts WHERE job_type = 'missing')$$);
SELECT severity, title, message, attempts, error_msg, job_id = :'id' AS job FROM jobq.alerts WHERE job_type = 'missing';
SELECT jobq.cancel_job(:'id');

-- they are deleted with events
BEGIN;
SELECT jobq_internal._ensure_partition('jobq.alerts', '2001-01-01 12:00+00', '2001-01-01');
INSERT INTO jobq.alerts (ts, severity, title, message) VALUES ('2001-01-01 12:00+00', 'warning', 'old', 'old');
COMMIT;
UPDATE jobq.job_types SET paused = paused WHERE false;  -- starts maintenance
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM pg_class WHERE relname = 'alerts_20010101')$$);
SELECT count(*) FROM jobq.alerts WHERE title = 'old';

-- channels
SELECT jobq.channel('plain') AS plain, jobq.channel('a b/c') AS odd, length(jobq.channel(repeat('x', 63))) AS long,
       jobq.channel(repeat('x', 63)) <> jobq.channel(repeat('x', 62) || 'y') AS differ, octet_length(jobq.channel(repeat('ä', 31))) <= 63 AS whole;
SET jobq.notify_prefix = 'p_';
SELECT jobq.channel('plain');
RESET jobq.notify_prefix;
SELECT call || ': ' || test.error_of('SELECT jobq.' || call) FROM (VALUES ('channel(NULL)'), ('channel('''')'), ('channel(repeat(''x'', 64))')) v(call);
REVOKE ALL ON FUNCTION jobq.create_job_type, jobq.enqueue FROM regress_hooks;
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
DROP OWNED BY regress_hooks;
DROP ROLE regress_hooks;
