-- Delayed jobs start when they are due, by timer; priorities; order of time within one
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE test.ran (n int GENERATED ALWAYS AS IDENTITY, what text, at timestamptz DEFAULT clock_timestamp());
-- Blocks on request while another session holds the lock.
CREATE FUNCTION test.note(payload jsonb) RETURNS void LANGUAGE sql BEGIN ATOMIC
  SELECT pg_advisory_xact_lock_shared(816) WHERE payload ? 'stands';
  INSERT INTO test.ran (what) VALUES (payload->>'what');
END;
-- Without batches: a run of more than 100 ms in a batch returns the job behind later ones.
SELECT jobq.create_job_type('d', 'test.note(jsonb)', max_concurrent => 1, options => '{"batch": false}');

-- not early, and by timer: no sweep runs in that time, except within one second
ALTER SYSTEM SET jobq.sweep_interval = '1h';
SELECT pg_reload_conf();
SELECT jobq.enqueue('d', '{"what": "later"}', delay => '1500 ms') AS later, jobq.enqueue('d', '{"what": "now"}') AS now,
       jobq.enqueue('d', '{"what": "tomorrow"}', delay => '1 day') AS tomorrow \gset
SELECT status FROM test.ended(:'later');
SELECT what FROM test.ran ORDER BY n;
SELECT started_at >= scheduled_for AS not_before FROM jobq.jobs WHERE id = :'later';
SELECT status, attempts, scheduled_for > clock_timestamp() AS future FROM jobq.jobs WHERE id = :'tomorrow';

-- brought forward, and put off
SELECT jobq.alter_job(:'tomorrow', scheduled_for => clock_timestamp());
SELECT status FROM test.ended(:'tomorrow');
SELECT pg_advisory_lock(816);
SELECT jobq.enqueue('d', '{"what": "before them", "stands": true}') AS first \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'running', :'first'));
SELECT jobq.enqueue('d', '{"what": "put off"}', delay => '200 ms') AS id \gset
SELECT jobq.alter_job(:'id', scheduled_for => clock_timestamp() + interval '1 hour');
SELECT jobq.enqueue('d', '{"what": "behind"}', delay => '300 ms') AS behind \gset
SELECT pg_advisory_unlock(816);
SELECT status FROM test.ended(:'behind');
SELECT status FROM jobq.jobs WHERE id = :'id';
SELECT jobq.cancel_job(:'id');

-- a due time in the past does not jump the queue; equal priorities run in
-- order of time; higher ones first
TRUNCATE test.ran;
SELECT jobq.pause_job_type('d');
SELECT jobq.enqueue('d', '{"what": "1"}') IS NULL, jobq.enqueue('d', '{"what": "2"}') IS NULL,
       jobq.enqueue('d', '{"what": "3, long ago"}', scheduled_for => '2001-01-01') IS NULL,
       jobq.enqueue('d', '{"what": "low"}', priority => -1) IS NULL, jobq.enqueue('d', '{"what": "highest"}', priority => 100) IS NULL,
       jobq.enqueue('d', '{"what": "high"}', priority => 1) IS NULL;
SELECT jobq.resume_job_type('d');
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT what FROM test.ran ORDER BY n;

-- a pause with a duration ends by itself
TRUNCATE test.ran;
BEGIN;
SELECT jobq.pause_job_type('d', duration => '200 ms');
SELECT jobq.enqueue('d', '{"what": "after the pause"}') AS id \gset
SELECT paused_until FROM jobq.job_types WHERE name = 'd' \gset
COMMIT;
SELECT status FROM test.ended(:'id');
SELECT started_at >= :'paused_until' AS waited FROM jobq.jobs WHERE id = :'id';

-- max_concurrent
CREATE TABLE test.overlap (n int);
CREATE FUNCTION test.alone(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE others int;
BEGIN
  SELECT count(*) INTO others FROM jobq.list_jobs('running', 'one');
  PERFORM pg_sleep(0.005);
  RETURN to_jsonb(others);
END $$;
SELECT jobq.create_job_type('one', 'test.alone(jsonb)', max_concurrent => 1);
SELECT count(*) FROM jobq.enqueue_many('one', array_fill('{}'::jsonb, ARRAY[10]));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT status, result, count(*) FROM jobq.jobs WHERE job_type = 'one' GROUP BY 1, 2;
ALTER SYSTEM RESET jobq.sweep_interval;
SELECT pg_reload_conf();
