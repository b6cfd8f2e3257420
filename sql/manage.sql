-- Queries for jobs: list_jobs, count_by_status, job_timeline, wait_for
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'fail' THEN RAISE EXCEPTION 'failed: %', payload->>'fail'; END IF;
  RETURN payload;
END $$;
SELECT jobq.create_job_type('a', 'test.ok(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('b', 'test.ok(jsonb)');
SELECT count(*) FROM jobq.enqueue_many('a', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 5) n));
SELECT jobq.enqueue('a', '{"fail": "one"}', tenant => 'acme') AS dead \gset
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT jobq.pause_job_type('b');
SELECT count(*) FROM jobq.enqueue_many('b', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 3) n), tenant => 'acme');
SELECT jobq.enqueue('b', '{"n": 4}') AS cancelled \gset
SELECT jobq.cancel_job(:'cancelled', 'why not');

-- newest first, over all tables
SELECT job_type, payload, status, tenant FROM jobq.list_jobs();
SELECT job_type, payload FROM jobq.list_jobs(max_rows => 2);
SELECT job_type, payload FROM jobq.list_jobs(max_rows => 2, skip_rows => 2);
SELECT (array_agg(id))[3] AS third FROM (SELECT id FROM jobq.list_jobs(max_rows => 3)) j \gset
SELECT job_type, payload FROM jobq.list_jobs(max_rows => 2, before => :'third');
SELECT count(*) FROM jobq.list_jobs(max_rows => 0);
-- filters
SELECT job_type, payload, status FROM jobq.list_jobs('error');
SELECT job_type, payload, status FROM jobq.list_jobs('cancelled', 'b');
SELECT payload, status FROM jobq.list_jobs(job_type => 'b', tenant => 'acme');
SELECT payload, status FROM jobq.list_jobs(tenant => '', payload_contains => '{"n": 4}');
SELECT payload, error_msg FROM jobq.list_jobs(error_like => '%one');
SELECT count(*) FROM jobq.list_jobs('running') r, jobq.list_jobs('blocked') b;
SELECT call || ': ' || test.error_of('SELECT * FROM jobq.' || call)
  FROM (VALUES ('list_jobs(max_rows => -1)'), ('list_jobs(skip_rows => -1)'), ('list_jobs(max_rows => NULL)'), ('list_jobs(skip_rows => NULL)'),
    ('list_jobs(job_type => ''missing'')'), ('count_by_status(''missing'')')) v(call);

SELECT * FROM jobq.count_by_status();
SELECT * FROM jobq.count_by_status('a') WHERE count > 0;
SELECT * FROM jobq.count_by_status(tenant => 'acme') WHERE count > 0;
SELECT name FROM jobq.distinct_job_types() name ORDER BY name;

SELECT type, source, level, message, data - '{duration,duration_ms,worker,stack}'::text[] AS data FROM jobq.job_timeline(:'dead');
SELECT test.error_of($$SELECT jobq.job_timeline('00000000-0000-7000-8000-000000000000')$$), test.error_of('SELECT jobq.job_timeline(NULL)');

-- wait_for: returns at once for an ended job; NULL at the timeout; an error for an unknown job
SELECT status FROM jobq.wait_for(:'dead');
SELECT id AS waiting FROM jobq.list_jobs('pending', max_rows => 1) \gset
SELECT (jobq.wait_for(:'waiting', '10ms')).id IS NULL AS too_late;
SELECT (jobq.wait_for(:'waiting', '0')).id IS NULL AS too_late;
SELECT test.error_of($$SELECT jobq.wait_for('00000000-0000-7000-8000-000000000000', '10ms')$$);
SELECT test.error_of('SELECT jobq.wait_for(NULL)');
SELECT test.error_of($$SELECT jobq.wait_for(gen_random_uuid(), '-1s')$$);
BEGIN;
SELECT jobq.enqueue('a') AS id \gset
SELECT jobq.wait_for(:'id');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT jobq.wait_for(:'dead');
ROLLBACK;
SELECT jobq.enqueue('a', '{"n": "waited for"}') AS id \gset
SELECT status, result FROM jobq.wait_for(:'id', '5 min');

-- a payload of JSON null
SELECT jobq.enqueue('b', 'null') AS id \gset
SELECT jobq.cancel_job(:'id'), jobq.retry_job(:'id');
SELECT payload FROM jobq.queue WHERE id = :'id';
