-- Failures: attempts, backoff, permanent codes, retry_job, rerun_job, alter_job
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE SEQUENCE test.tries;   -- not undone by a rollback
CREATE FUNCTION test.third_time(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('test.tries') < 3 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = '22012'; END IF;
  RETURN '"at last"';
END $$;
CREATE FUNCTION test.fails(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'ok' THEN RETURN; END IF;
  RAISE EXCEPTION 'failed on %', payload->>'on' USING ERRCODE = coalesce(payload->>'code', 'P0001');
END $$;

-- fails twice, then succeeds: one row, its attempts in the events
SELECT jobq.create_job_type('third', 'test.third_time(jsonb)', backoff_base => '10ms');
SELECT jobq.enqueue('third') AS id \gset
SELECT status, result, attempts, runs, error_msg, error_code FROM test.ended(:'id');
SELECT type, source, level, message, attempt, data->>'code' AS code, data->>'error' AS error FROM jobq.job_timeline(:'id');

-- waiting for the next attempt: the row has the reason and the time
SELECT jobq.create_job_type('fixed', 'test.fails(jsonb)', backoff => 'fixed', backoff_base => '1 hour', backoff_max => '2 hours', backoff_jitter => 0);
SELECT jobq.enqueue('fixed', '{"on": "purpose"}') AS id \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'retry', :'id'));
SELECT status, attempts, runs, error_msg, error_code, trunc(extract(epoch FROM scheduled_for - started_at) / 10) * 10 AS seconds FROM jobq.jobs WHERE id = :'id';

-- exponential, capped; jitter stays within its share; a job's own backoff
SELECT jobq.create_job_type('exp', 'test.fails(jsonb)', max_attempts => 9, backoff_base => '100 s', backoff_max => '300 s', backoff_jitter => 0);
SELECT jobq.create_job_type('jitter', 'test.fails(jsonb)', backoff_base => '1000 s', backoff_jitter => 0.5);
SELECT jobq.enqueue('exp') AS exp, jobq.enqueue('exp', backoff => '{"base": "50 s", "max": "60 s", "type": "fixed"}') AS own \gset
SELECT count(*) FROM jobq.enqueue_many('jitter', array_fill('{}'::jsonb, ARRAY[20]));
SELECT test.wait_until($$SELECT bool_and(status = 'retry') FROM jobq.jobs WHERE job_type IN ('exp', 'jitter')$$);
SELECT trunc(extract(epoch FROM scheduled_for - started_at) / 10) * 10 AS seconds FROM jobq.jobs WHERE id IN (:'exp', :'own') ORDER BY id;
SELECT bool_and(extract(epoch FROM scheduled_for - started_at) BETWEEN 499 AND 1510) AS within, count(DISTINCT scheduled_for - started_at) > 10 AS differ
  FROM jobq.jobs WHERE job_type = 'jitter';
SELECT jobq.alter_job(:'exp', scheduled_for => now());
SELECT test.wait_until(format('SELECT status = %L AND attempts = 2 FROM jobq.jobs WHERE id = %L', 'retry', :'exp'));
SELECT trunc(extract(epoch FROM scheduled_for - started_at) / 10) * 10 AS seconds FROM jobq.jobs WHERE id = :'exp';
SELECT jobq.alter_job(:'exp', scheduled_for => now());
SELECT test.wait_until(format('SELECT status = %L AND attempts = 3 FROM jobq.jobs WHERE id = %L', 'retry', :'exp'));
SELECT trunc(extract(epoch FROM scheduled_for - started_at) / 10) * 10 AS seconds FROM jobq.jobs WHERE id = :'exp';

-- permanent codes
SELECT jobq.create_job_type('permanent', 'test.fails(jsonb)', options => '{"permanent_codes": ["22%", "P0002"]}');
SELECT jobq.enqueue('permanent', '{"code": "22012"}') AS a, jobq.enqueue('permanent', '{"code": "P0002"}') AS b, jobq.enqueue('permanent', '{"code": "P0001"}') AS c \gset
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'permanent' AND status IN ('pending', 'running'))$$);
SELECT status, attempts, error_code FROM jobq.jobs WHERE job_type = 'permanent' ORDER BY id;

-- retry_job: of a dead letter, same id, attempts from 0, runs continue
SELECT jobq.create_job_type('dies', 'test.fails(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('dies', '{"on": "monday"}', priority => 5, tenant => 'acme', metadata => '{"m": 1}', concurrency_key => 'c', unique_key => 'u',
  unique_for => '1 ms', keep_completed => '3 days', backoff => '{"base": "2s"}', timeout => '9s') AS id \gset
SELECT status, attempts, runs, error_msg FROM test.ended(:'id');
SELECT jobq.pause_job_type('dies');
SELECT jobq.retry_job(:'id', max_attempts => 2);
SELECT status, attempts, max_attempts, runs, priority, tenant, metadata, concurrency_key, error_msg, started_at, result FROM jobq.jobs WHERE id = :'id';
SELECT unique_key, unique_for, keep_completed, backoff, timeout FROM jobq.queue WHERE id = :'id';
SELECT jobq.retry_job(:'id') AS waits_already;
SELECT jobq.alter_job(:'id', payload => '{"ok": 1}', priority => -5, max_attempts => 3, timeout => '1s');
SELECT payload, priority, max_attempts, timeout FROM jobq.jobs WHERE id = :'id';
SELECT jobq.resume_job_type('dies');
SELECT status, attempts, runs, tenant, priority FROM test.ended(:'id');
SELECT type, source, message, data - 'by' AS data FROM jobq.job_timeline(:'id') WHERE type = 'retried';
SELECT jobq.retry_job(:'id') AS completed, jobq.alter_job(:'id', priority => 1) AS finished;

-- of a job that waits for its retry
SELECT id FROM jobq.jobs WHERE job_type = 'fixed' \gset
SELECT jobq.pause_job_type('fixed');
SELECT jobq.retry_job(:'id');
SELECT status, attempts, runs, error_msg, scheduled_for <= clock_timestamp() AS due FROM jobq.jobs WHERE id = :'id';
SELECT message, data - 'by' AS data FROM jobq.job_timeline(:'id') WHERE type = 'retried';

-- of a cancelled job
SELECT jobq.cancel_job(:'id', 'not now');
SELECT status, error_msg FROM jobq.jobs WHERE id = :'id';
SELECT jobq.retry_job(:'id');
SELECT status, error_msg, runs FROM jobq.jobs WHERE id = :'id';
SELECT count(*) FROM jobq.jobs WHERE id = :'id';

-- rerun_job: a new one, the old one stays
SELECT jobq.create_job_type('again', 'test.fails(jsonb)', max_attempts => 2);
SELECT jobq.enqueue('again', '{"ok": 1}', priority => 9, tenant => 'acme', unique_key => 'k') AS old \gset
SELECT status FROM test.ended(:'old');
SELECT jobq.rerun_job(:'old') AS new \gset
SELECT status, job_type, payload, priority, tenant, unique_key, max_attempts, attempts, runs, parent_id = :'old' AS ours FROM test.ended(:'new');
SELECT status FROM jobq.jobs WHERE id = :'old';
SELECT jobq.rerun_job(:'old', '{"ok": 2}') AS new \gset
SELECT status, payload FROM test.ended(:'new');
SELECT jobq.rerun_job(gen_random_uuid()) IS NULL AS unknown;

-- refused
SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('retry_job(NULL)'), ('retry_job(gen_random_uuid(), 0)'), ('rerun_job(NULL)'), ('alter_job(NULL)'),
    ('alter_job(gen_random_uuid(), priority => 101)'), ('alter_job(gen_random_uuid(), max_attempts => 0)'),
    ('alter_job(gen_random_uuid(), timeout => ''-1s'')'), ('alter_job(gen_random_uuid(), scheduled_for => ''infinity'')')) v(call);
SELECT jobq.retry_job(gen_random_uuid()) AS retried, jobq.alter_job(gen_random_uuid(), priority => 1) AS altered;
SELECT jobq.create_job_type('tool', command => '{echo,"{name}"}');
SELECT jobq.pause_job_type('tool');
SELECT jobq.enqueue('tool', '{"name": "x"}') AS id \gset
SELECT test.error_of(format('SELECT jobq.alter_job(%L, payload => %L)', :'id', '{}'));
SELECT test.error_of(format('SELECT jobq.alter_job(%L, payload => to_jsonb(repeat(%L, 2000000)))', :'id', 'x'));
SELECT jobq.cancel_job(:'id');
SELECT test.error_of(format('SELECT jobq.rerun_job(%L, payload => %L)', :'id', '{"name": "-x"}'));
