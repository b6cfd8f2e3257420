-- Dead letters in numbers: retry_dead_letters, purge_dead_letters, keep_dead
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.fails(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'ok' THEN RETURN; END IF;
  RAISE EXCEPTION 'bad luck %', payload->>'n';
END $$;
SELECT jobq.create_job_type('a', 'test.fails(jsonb)', max_attempts => 1, max_concurrent => 1);
SELECT jobq.create_job_type('b', 'test.fails(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('brief', 'test.fails(jsonb)', max_attempts => 1, keep_dead => '0');
SELECT jobq.create_job_type('hour', 'test.fails(jsonb)', max_attempts => 1, keep_dead => '1 hour');
SELECT count(*) FROM jobq.enqueue_many('a', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 20) n));
SELECT count(*) FROM jobq.enqueue_many('b', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 10) n), tenant => 'acme');
SELECT jobq.enqueue('brief') IS NULL, jobq.enqueue('hour') IS NULL;
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT job_type, status, count(*) FROM jobq.jobs GROUP BY 1, 2 ORDER BY 1, 2;
SELECT job_type, isfinite(d.expires_at) AS finite, count(*) FROM jobq.dead_letters d JOIN jobq.jobs j USING (id) GROUP BY 1, 2 ORDER BY 1;

-- purge: filters, oldest first, a number at most
SELECT jobq.purge_dead_letters('hour');
SELECT jobq.purge_dead_letters('b', tenant => 'globex') AS other_tenant, jobq.purge_dead_letters('b', tenant => '') AS none,
       jobq.purge_dead_letters('b', older_than => '1 day') AS too_young,
       jobq.purge_dead_letters('b', older_than => '10000 years') AS ancient, jobq.purge_dead_letters(error_like => 'good%') AS other_error;
SELECT jobq.purge_dead_letters('b', tenant => 'acme', error_like => 'bad luck _', max_jobs => 3);
SELECT jobq.purge_dead_letters('b', tenant => 'acme');
SELECT jobq.purge_dead_letters('b', max_jobs => 0);

-- retry: the same filters
SELECT jobq.pause_job_type('a');
SELECT jobq.retry_dead_letters('a', tenant => 'acme') AS other_tenant, jobq.retry_dead_letters('b') AS none_left,
       jobq.retry_dead_letters('a', dead_before => now() - interval '1 day') AS too_young;
SELECT jobq.retry_dead_letters('a', max_jobs => 4, max_attempts => 2);
SELECT status, count(*), min(max_attempts), max(runs) FROM jobq.jobs WHERE job_type = 'a' GROUP BY 1 ORDER BY 1;
SELECT jobq.retry_dead_letters('a', error_like => '%luck 1_');
SELECT status, count(*) FROM jobq.jobs WHERE job_type = 'a' GROUP BY 1 ORDER BY 1;
SELECT jobq.retry_dead_letters();
SELECT status, count(*) FROM jobq.jobs WHERE job_type = 'a' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM jobq.events WHERE type = 'retried';

-- a dead letter stays when a newer job has its key, or when its type was dropped
SELECT jobq.create_job_type('u', 'test.fails(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('u', unique_key => 'k') AS old \gset
SELECT status FROM test.ended(:'old');
SELECT jobq.pause_job_type('u');
SELECT jobq.enqueue('u', unique_key => 'k') = :'old' AS same;
SELECT test.error_of(format('SELECT jobq.retry_job(%L)', :'old'));
SELECT status FROM jobq.jobs WHERE id = :'old';
SELECT jobq.retry_dead_letters('u');
SELECT jobq.cancel_jobs('u');
SELECT jobq.retry_dead_letters('u');
SELECT status FROM jobq.jobs WHERE id = :'old';
SELECT jobq.resume_job_type('u');
SELECT status, runs FROM test.ended(:'old');
SELECT jobq.drop_job_type('u');
SELECT test.error_of(format('SELECT jobq.retry_job(%L)', :'old'));
SELECT jobq.retry_dead_letters();
SELECT jobq.purge_dead_letters('u');

-- expired ones are deleted automatically
SELECT jobq.enqueue('hour') AS id \gset
SELECT status FROM test.ended(:'id');
UPDATE jobq.dead_letters SET expires_at = clock_timestamp() - interval '1 s' WHERE id = :'id';
SELECT jobq_internal._retain();
SELECT count(*) FROM jobq.dead_letters WHERE id = :'id';

SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('retry_dead_letters(''missing'')'), ('retry_dead_letters(max_jobs => -1)'), ('retry_dead_letters(max_attempts => 0)'),
    ('purge_dead_letters(''missing'')'), ('purge_dead_letters(older_than => ''-1s'')'), ('purge_dead_letters(max_jobs => -1)'),
    ('retry_dead_letters(error_like => ''bad\'')'), ('list_jobs(error_like => ''bad\\\'')'), ('purge_dead_letters()'), ('purge_dead_letters(max_jobs => 1)')) v(call);

-- a retry finds the live job with a unique key by the index, among 5,000: some blocks for each job
SELECT jobq.create_job_type('keys');
SELECT count(*) FROM jobq.enqueue_jobs((SELECT jsonb_agg(jsonb_build_object('job_type', 'keys', 'unique_key', 'live ' || n)) FROM generate_series(1, 5000) n));
INSERT INTO jobq.dead_letters (id, expires_at, scheduled_for, created_at, completed_at, type_id, attempts, max_attempts, runs, depth, priority, payload, unique_key)
SELECT gen_random_uuid(), 'infinity', now(), now(), now(), t.id, 1, 1, 1, 0, 0, '{}', 'key ' || n
  FROM generate_series(1, 100) n, jobq.job_types t WHERE t.name = 'keys';
BEGIN;
SELECT pg_stat_get_xact_blocks_fetched('jobq.queue_unique_key'::regclass) AS before \gset
SELECT jobq.retry_dead_letters('keys');
SELECT pg_stat_get_xact_blocks_fetched('jobq.queue_unique_key'::regclass) - :before < 20 * 100 AS few;
ROLLBACK;
SELECT jobq.purge_dead_letters('keys');
SELECT jobq.drop_job_type('keys', force => true);
