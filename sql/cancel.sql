-- Cancelling: waiting and running jobs of both kinds
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.sleeps(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$;
SELECT jobq.create_job_type('sleeps', 'test.sleeps(jsonb)');
SELECT jobq.create_job_type('tool', command => '{sleep,600}', options => '{"output": "none"}');
SELECT jobq.create_job_type('waits', 'test.sleeps(jsonb)');
SELECT jobq.pause_job_type('waits');

-- waiting
SELECT jobq.enqueue('waits') AS id \gset
SELECT jobq.cancel_job(:'id', 'changed my mind');
SELECT status, error_msg, error_code, attempts, runs, started_at, completed_at IS NOT NULL AS ended FROM jobq.jobs WHERE id = :'id';
SELECT jobq.cancel_job(:'id') AS again, jobq.cancel_job(gen_random_uuid()) AS unknown;
BEGIN;
SELECT jobq.enqueue('waits') AS id \gset
SELECT jobq.cancel_job(:'id');
SELECT status, error_msg FROM jobq.jobs WHERE id = :'id';
COMMIT;
SELECT jobq.enqueue('waits') AS id \gset
BEGIN;
SELECT jobq.cancel_job(:'id');
ROLLBACK;
SELECT status FROM jobq.jobs WHERE id = :'id';

-- running: at commit, not before
SELECT jobq.enqueue('sleeps') AS sql, jobq.enqueue('tool') AS exec \gset
SELECT test.wait_until(format('SELECT count(*) = 2 FROM jobq.jobs WHERE id IN (%L, %L) AND status = %L', :'sql', :'exec', 'running'));
BEGIN;
SELECT jobq.cancel_job(:'sql', 'stop it'), jobq.cancel_job(:'exec', 'stop it');
ROLLBACK;
SELECT status FROM jobq.jobs WHERE id IN (:'sql', :'exec');
SELECT jobq.cancel_job(:'sql', 'stop it'), jobq.cancel_job(:'exec', 'stop it, too');
SELECT job_type, status, error_msg, attempts, runs FROM test.ended(:'sql');
SELECT job_type, status, error_msg, attempts, runs FROM test.ended(:'exec');

-- many: filters; running ones only on request
SELECT count(*) FROM jobq.enqueue_many('waits', '{"{\"n\": 1}","{\"n\": 2}"}', tenant => 'acme');
SELECT count(*) FROM jobq.enqueue_many('waits', '{"{\"n\": 1}","{\"n\": 2}","{\"n\": 3}"}');
SELECT jobq.enqueue('sleeps', '{"n": 1}') AS sql \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'running', :'sql'));
SELECT jobq.cancel_jobs(tenant => 'globex') AS nobody, jobq.cancel_jobs('sleeps') AS not_running;
SELECT jobq.cancel_jobs('waits', tenant => 'acme', payload_contains => '{"n": 2}', reason => 'filtered');
SELECT jobq.cancel_jobs('waits', tenant => '', payload_contains => '{"n": 3}');
SELECT jobq.cancel_jobs(payload_contains => '{"n": 1}', include_running => true, reason => 'all ones');
SELECT status, error_msg FROM test.ended(:'sql');
SELECT tenant, payload, status, error_msg FROM jobq.jobs WHERE job_type = 'waits' AND payload ? 'n' ORDER BY tenant, payload->'n';
SELECT jobq.cancel_jobs('waits');
SELECT count(*) FROM jobq.queue;

-- drop with force
SELECT jobq.enqueue('sleeps') AS id \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'running', :'id'));
SELECT test.error_of($$SELECT jobq.drop_job_type('sleeps')$$);
SELECT jobq.drop_job_type('sleeps', true);
SELECT job_type, status, error_msg FROM test.ended(:'id');

-- a running job that its worker ends just before it is told
BEGIN;
CREATE SEQUENCE test.look;
CREATE OR REPLACE FUNCTION jobq_internal._cancel_free(id uuid, reason text, tell boolean) RETURNS text LANGUAGE sql
RETURN (ARRAY['running','held','held','gone'])[nextval('test.look')];
SELECT cancelled, held FROM jobq_internal._cancel_each(ARRAY[gen_random_uuid()], 'stop', true);
ROLLBACK;

SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('cancel_job(NULL)'), ('cancel_jobs()'), ('cancel_jobs(reason => ''x'')'), ('cancel_jobs(''missing'')'),
    ('cancel_jobs(tenant => ''x'', include_running => NULL)')) v(call);
