-- Unique keys: existing jobs of a key, and on_conflict
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.waits(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(815);
  RETURN payload;
END $$;
SELECT jobq.create_job_type('u', 'test.waits(jsonb)');
SELECT jobq.create_job_type('v', 'test.waits(jsonb)');
SELECT jobq.pause_job_type('u'), jobq.pause_job_type('v');

-- one live job per type, tenant and key
SELECT jobq.enqueue('u', '{"n": 1}', unique_key => 'k') AS first \gset
SELECT jobq.enqueue('u', '{"n": 2}', unique_key => 'k') = :'first' AS same,
       jobq.enqueue('u', '{"n": 3}', unique_key => 'l') = :'first' AS other_key,
       jobq.enqueue('v', '{"n": 4}', unique_key => 'k') = :'first' AS other_type,
       jobq.enqueue('u', '{"n": 5}', unique_key => 'k', tenant => 'acme') = :'first' AS other_tenant;
SELECT job_type, tenant, unique_key, payload FROM jobq.jobs ORDER BY id;

-- ignore leaves the job unchanged, replace changes it, error reports it
SELECT jobq.enqueue('u', '{"n": 6}', priority => 9, unique_key => 'k', on_conflict => 'ignore') = :'first' AS same;
SELECT payload, priority FROM jobq.jobs WHERE id = :'first';
SELECT jobq.enqueue('u', '{"n": 7}', priority => 8, delay => '1 hour', max_attempts => 2, timeout => '7s', unique_key => 'k', on_conflict => 'replace') = :'first' AS same;
SELECT payload, priority, max_attempts, timeout, attempts, scheduled_for > clock_timestamp() AS later FROM jobq.jobs WHERE id = :'first';
SELECT test.error_of($$SELECT jobq.enqueue('u', unique_key => 'k', on_conflict => 'error')$$);
SELECT jobq.enqueue('u', '{"n": 8}', unique_key => 'k', on_conflict => 'replace') = :'first' AS same;

-- replace sets the payload and the given arguments; all others stay
SELECT jobq.enqueue('u', '{"n": 1}', priority => 8, delay => '1 hour', max_attempts => 2, timeout => '7s', backoff => '{"base": "2s"}',
  unique_for => '1 hour', concurrency_key => 'c', keep_completed => '1 day', keep_dead => '2 days', metadata => '{"m": 1}', unique_key => 'kept') AS kept \gset
SELECT to_jsonb(q) AS before FROM jobq.queue q WHERE id = :'kept' \gset
SELECT jobq.enqueue('u', '{"n": 2}', unique_key => 'kept', on_conflict => 'replace') = :'kept' AS same;
SELECT is_new FROM jobq.enqueue_jobs('[{"job_type": "u", "payload": {"n": 3}, "unique_key": "kept", "on_conflict": "replace"}]');
SELECT key, value FROM jobq.queue q, jsonb_each(to_jsonb(q)) WHERE id = :'kept' EXCEPT SELECT key, value FROM jsonb_each(:'before') ORDER BY key;
SELECT jobq.enqueue('u', '{"n": 4}', priority => 0, delay => '0', unique_key => 'kept', on_conflict => 'replace') = :'kept' AS same;
SELECT priority, max_attempts, timeout, metadata, scheduled_for <= clock_timestamp() AS due FROM jobq.jobs WHERE id = :'kept';
SELECT position = scheduled_for AS in_time_order FROM jobq.queue WHERE id = :'kept';
SELECT jobq.enqueue('u', '{"n": 5}', max_attempts => 3, timeout => '0', backoff => '{"base": "3s"}', unique_for => '2 hours', concurrency_key => 'd',
  keep_completed => '3 days', keep_dead => '4 days', metadata => '{"m": 2}', scheduled_for => '2100-01-01 UTC', unique_key => 'kept', on_conflict => 'replace') = :'kept' AS same;
SELECT key, CASE key WHEN 'key_hash' THEN to_jsonb(value IS DISTINCT FROM :'before'::jsonb->'key_hash') ELSE value END AS value
  FROM jobq.queue q, jsonb_each(to_jsonb(q) - '{position,scheduled_for}'::text[]) WHERE id = :'kept' EXCEPT SELECT key, value FROM jsonb_each(:'before') ORDER BY key;
SELECT position = '2100-01-01 UTC' AND scheduled_for = '2100-01-01 UTC' AS as_given FROM jobq.queue WHERE id = :'kept';
SELECT jobq.cancel_job(:'kept');

-- replacing a job that waits for its retry resets its attempts and makes it due
-- now, unless a time is given
CREATE FUNCTION test.fails(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE ''told to''; END';
SELECT jobq.create_job_type('f', 'test.fails(jsonb)', backoff_base => '1 hour', backoff_jitter => 0);
SELECT jobq.enqueue('f', '{"n": 1}', unique_key => 'k') AS failed, jobq.enqueue('f', '{"n": 1}', unique_key => 'l') AS failed2 \gset
SELECT test.wait_until(format('SELECT count(*) = 2 FROM jobq.jobs WHERE job_type = %L AND status = %L', 'f', 'retry'));
SELECT jobq.pause_job_type('f');
SELECT jobq.enqueue('f', '{"n": 2}', unique_key => 'k', on_conflict => 'replace') = :'failed' AS same,
       jobq.enqueue('f', '{"n": 3}', unique_key => 'l', delay => '1 day', on_conflict => 'replace') = :'failed2' AS same2;
SELECT status, payload, attempts, error_msg, scheduled_for <= clock_timestamp() AS due FROM jobq.jobs WHERE id IN (:'failed', :'failed2') ORDER BY id;
SELECT jobq.cancel_job(:'failed'), jobq.cancel_job(:'failed2');

-- free again when the job has ended, by any outcome
SELECT jobq.cancel_job(:'first');
SELECT jobq.enqueue('u', '{"n": 9}', unique_key => 'k') AS second \gset
SELECT :'second' <> :'first' AS another;
SELECT jobq.resume_job_type('u'), jobq.resume_job_type('v');
SELECT status FROM test.ended(:'second');
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');

-- a running job: ignore returns it, error refuses, replace queues one
-- successor, replaced in its turn
SELECT pg_advisory_lock(815);
SELECT jobq.enqueue('u', '{"n": 10}', unique_key => 'k') AS running \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'running', :'running'));
SELECT jobq.enqueue('u', '{"n": 11}', unique_key => 'k') = :'running' AS same;
SELECT test.error_of($$SELECT jobq.enqueue('u', unique_key => 'k', on_conflict => 'error')$$);
SELECT jobq.enqueue('u', '{"n": 12}', unique_key => 'k', on_conflict => 'replace') AS next \gset
SELECT jobq.enqueue('u', '{"n": 13}', unique_key => 'k', on_conflict => 'replace') = :'next' AS same, :'next' <> :'running' AS another;
SELECT payload, status FROM jobq.jobs WHERE id IN (:'running', :'next') ORDER BY id;
SELECT pg_advisory_unlock(815);
SELECT status, result FROM test.ended(:'running');
SELECT status, result FROM test.ended(:'next');

-- unique_for: the finished job holds the key for a while
SELECT jobq.enqueue('u', '{"n": 14}', unique_key => 'long', unique_for => '1 hour') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT jobq.enqueue('u', '{"n": 15}', unique_key => 'long') = :'id' AS same;
SELECT test.error_of($$SELECT jobq.enqueue('u', unique_key => 'long', on_conflict => 'error')$$);
-- replace enqueues a new one, which then has the key; when it has finished, too, the newest counts
SELECT jobq.pause_job_type('u');
SELECT jobq.enqueue('u', '{"n": 15}', unique_key => 'long', on_conflict => 'replace', unique_for => '1 hour') AS again \gset
SELECT :'again' <> :'id' AS another, jobq.enqueue('u', '{"n": 15}', unique_key => 'long') = :'again' AS same,
       jobq.enqueue('u', '{"n": 16}', unique_key => 'long', on_conflict => 'replace') = :'again' AS replaced;
SELECT is_new FROM jobq.enqueue_jobs('[{"job_type": "u", "unique_key": "long", "tenant": "acme", "on_conflict": "replace"}]');
SELECT jobq.resume_job_type('u');
SELECT status, result FROM test.ended(:'again');
SELECT jobq.enqueue('u', '{"n": 17}', unique_key => 'long') = :'again' AS same;
SELECT jobq.enqueue('u', '{"n": 16}', unique_key => 'short', unique_for => '1 ms') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT test.wait_until(format('SELECT unique_until < clock_timestamp() FROM jobq.history WHERE id = %L', :'id'));
SELECT jobq.enqueue('u', '{"n": 17}', unique_key => 'short') = :'id' AS same;

-- a rolled-back enqueue holds nothing
BEGIN;
SELECT jobq.enqueue('u', unique_key => 'undone') IS NULL;
ROLLBACK;
SELECT jobq.enqueue('u', '{"n": 18}', unique_key => 'undone', on_conflict => 'error') AS id \gset
SELECT status FROM test.ended(:'id');
-- within one transaction
BEGIN;
SELECT jobq.enqueue('u', '{"n": 19}', unique_key => 'twice') AS id \gset
SELECT jobq.enqueue('u', '{"n": 20}', unique_key => 'twice', on_conflict => 'replace') = :'id' AS same;
COMMIT;
SELECT status, result FROM test.ended(:'id');

-- an enqueue with a unique key reads history only if a job of the type had
-- unique_for: by enqueue, in the same transaction, by plain SQL, or by adopt()
CREATE FUNCTION test.reads_history(q text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  scans CONSTANT text := 'SELECT sum(pg_stat_get_xact_numscans(i.indexrelid))
    FROM pg_inherits h JOIN pg_index i ON i.indrelid = h.inhrelid WHERE h.inhparent = ''jobq.history''::regclass';
  before bigint;
  after bigint;
BEGIN
  EXECUTE scans INTO STRICT before;
  EXECUTE q;
  EXECUTE scans INTO STRICT after;
  RETURN after > before;
END $$;
SELECT jobq.create_job_type('w1', 'test.waits(jsonb)'), jobq.create_job_type('w2', 'test.waits(jsonb)');
SELECT jobq.pause_job_type('w1'), jobq.pause_job_type('w2');
SELECT test.reads_history($$SELECT jobq.enqueue('w1', unique_key => 'a')$$);
BEGIN;
SELECT test.reads_history($$SELECT jobq.enqueue('w1', unique_key => 'b', unique_for => '1 hour')$$);
SELECT test.reads_history($$SELECT jobq.enqueue('w1', unique_key => 'c')$$);
ROLLBACK;
SELECT test.reads_history($$SELECT jobq.enqueue('w1', unique_key => 'd')$$);
SELECT jobq.enqueue('w1', unique_key => 'd', unique_for => '1 hour', on_conflict => 'replace') IS NOT NULL;
SELECT test.reads_history($$SELECT jobq.enqueue('w1', unique_key => 'e')$$);
SELECT jobq.enqueue('w2', unique_key => 'a') IS NOT NULL, jobq.enqueue('w1', unique_key => 'f', unique_for => '1 hour') IS NOT NULL;
SELECT test.reads_history($$SELECT jobq.enqueue('w2', unique_key => 'b')$$);
UPDATE jobq.queue SET unique_for = '1 hour' WHERE type_id = (SELECT id FROM jobq.job_types WHERE name = 'w2') AND unique_key = 'a';
SELECT test.reads_history($$SELECT jobq.enqueue('w2', unique_key => 'c')$$);
SELECT t.name, count(*) FROM jobq.unique_for_types u JOIN jobq.job_types t ON t.id = u.type_id WHERE t.name ~ '^w' GROUP BY 1 ORDER BY 1;
DELETE FROM jobq.unique_for_types;
SELECT jobq.adopt();
SELECT t.name, count(*) FROM jobq.unique_for_types u JOIN jobq.job_types t ON t.id = u.type_id GROUP BY 1 ORDER BY 1;
SELECT jobq.drop_job_type('w2', force => true);
SELECT count(*) FROM jobq.unique_for_types u JOIN jobq.job_types t ON t.id = u.type_id WHERE t.name = 'w2';
