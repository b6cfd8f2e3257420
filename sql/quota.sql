-- Quotas of tenants
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all
CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('held', 'test.ok(jsonb)', max_attempts => 1);
SELECT jobq.pause_job_type('held');
\pset format unaligned
\pset tuples_only on
SELECT call || ': ' || test.error_of('SELECT jobq.set_tenant_quota(' || call || ')') FROM (VALUES ('NULL, 1'), (''''', 1'), ('''acme'', -1'),
  ('''acme'', max_bytes => -1'), ('''acme'', enqueues_per_minute => -1'), ('''acme/../eu'', 1'), ('''/'', max_running => 1'), ('repeat(''x'', 256), 1'), ('E''a\nb'', 1')) v(call);

-- live jobs: its own and those of tenants below it, those that were there before included
CREATE FUNCTION test.enqueue(tenant text, payload jsonb DEFAULT '{}', key text DEFAULT NULL, conflict text DEFAULT 'ignore') RETURNS text LANGUAGE sql AS $$
  SELECT test.error_of(format('SELECT jobq.enqueue(''held'', %L, tenant => %L, unique_key => %L, on_conflict => %L)', payload, tenant, key, conflict))
$$;
SELECT test.enqueue('acme');
SELECT jobq.set_tenant_quota('acme', max_live => 3);
SELECT test.enqueue('acme'), test.enqueue('acme/eu'), test.enqueue('acme'), test.enqueue('acme/us'), test.enqueue('acmeta'), test.enqueue('beta'), test.enqueue('');
-- an ended job makes room, also in the same transaction
SELECT id FROM jobq.queue WHERE tenant = 'acme/eu' \gset
SELECT jobq.cancel_job(:'id'), test.enqueue('acme/us'), test.enqueue('acme');
-- a unique conflict with an existing job adds none; a retried job counts, and is not refused
SELECT jobq.cancel_jobs(tenant => 'acme/us'), test.enqueue('acme', key => 'k'), test.enqueue('acme', key => 'k'), test.enqueue('acme', key => 'k', conflict => 'replace');
SELECT jobq.retry_job(:'id'), test.enqueue('acme');
SELECT count(*) FROM jobq.queue WHERE tenant ~ '^acme(/|$)';
SELECT jobq.cancel_jobs(tenant => 'acme', payload_contains => '{}');
-- all or nothing; a rollback makes room
SELECT test.error_of($$SELECT jobq.enqueue_many('held', array_fill('{}'::jsonb, '{3}'), tenant => 'acme')$$);
SELECT count(*) FROM jobq.queue WHERE tenant ~ '^acme(/|$)';
SELECT test.error_of($$SELECT jobq.enqueue_jobs('[{"job_type": "held", "tenant": "acme"}, {"job_type": "held", "tenant": "acme"}, {"job_type": "held", "tenant": "beta"}]')$$);
SELECT test.enqueue('acme');
-- many jobs that have ended
SELECT count(*) FILTER (WHERE jobq.cancel_job(id)) FROM jobq.queue WHERE tenant ~ '^acme(/|$)';
DO $$
BEGIN
  FOR i IN 1..200 LOOP
    PERFORM jobq.cancel_job(jobq.enqueue('held', tenant => 'acme'));
  END LOOP;
END $$;
SELECT test.enqueue('acme'), test.enqueue('acme'), test.enqueue('acme'), test.enqueue('acme');
SELECT count(*) <= 4 FROM jobq.quota_jobs;

-- the quota of a tenant below applies as well
SELECT jobq.set_tenant_quota('acme', max_live => 5), jobq.set_tenant_quota('acme/eu', max_live => 1);
SELECT test.enqueue('acme/eu'), test.enqueue('acme/eu/de'), test.enqueue('acme/us'), test.enqueue('acme/us');
SELECT jobq.set_tenant_quota('acme/eu');
SELECT jobq.set_tenant_quota('acme', max_live => 0);
SELECT test.enqueue('acme');
TABLE jobq.tenant_quotas;
SELECT jobq.set_tenant_quota('acme');
SELECT test.enqueue('acme'), (SELECT count(*) FROM jobq.quota_jobs);

-- bytes of payloads
SELECT jobq.set_tenant_quota('bytes', max_bytes => 100);
SELECT test.enqueue('bytes', to_jsonb(repeat('x', 78))), test.enqueue('bytes', to_jsonb(repeat('x', 18))), test.enqueue('bytes', to_jsonb(repeat('x', 19))), test.enqueue('bytes', '0'), test.enqueue('bytes', to_jsonb(repeat('x', 98)));
SELECT jobq.cancel_jobs(tenant => 'bytes', payload_contains => to_jsonb(repeat('x', 78))), test.enqueue('bytes', to_jsonb(repeat('x', 76))), test.enqueue('bytes', '0');

-- a replacing payload counts instead of the old one; alter_job is not refused
SELECT jobq.set_tenant_quota('swap', max_live => 1, max_bytes => 100);
SELECT test.enqueue('swap', to_jsonb(repeat('x', 38)), 'k'), test.enqueue('swap', to_jsonb(repeat('x', 98)), 'k', 'replace'), test.enqueue('swap', to_jsonb(repeat('x', 99)), 'k', 'replace'),
       test.enqueue('swap', '0', 'k', 'replace'), test.enqueue('swap', to_jsonb(repeat('x', 98)), 'k', 'replace');
SELECT jobq.alter_job(id, payload => to_jsonb(repeat('x', 200))), test.enqueue('swap', to_jsonb(repeat('x', 201)), 'k', 'replace'), test.enqueue('swap', to_jsonb(repeat('x', 99)), 'k', 'replace'),
       test.enqueue('swap', '0', 'k', 'replace') FROM jobq.queue WHERE tenant = 'swap';
SELECT bytes FROM jobq.quota_jobs WHERE tenant = 'swap';
SELECT jobq.set_tenant_quota('swap', max_bytes => 100);
SELECT test.enqueue('swap', to_jsonb(repeat('x', 97))), test.enqueue('swap', '0');

-- enqueues in a minute
SELECT jobq.set_tenant_quota('fast', enqueues_per_minute => 3);
SELECT test.enqueue('fast'), test.enqueue('fast'), test.enqueue('fast/er'), test.enqueue('fast'), test.enqueue('faster');
SELECT jobq.cancel_jobs(tenant => 'fast'), test.enqueue('fast');
SELECT jobq.set_tenant_quota('fast', enqueues_per_minute => 4);
SELECT test.enqueue('fast'), test.enqueue('fast');

-- metadata counts as payload does, also when it is replaced, altered or was there before the quota
CREATE FUNCTION test.enqueue_with(tenant text, metadata jsonb, key text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
  SELECT test.error_of(format('SELECT jobq.enqueue(''held'', tenant => %L, metadata => %L, unique_key => %L, on_conflict => ''replace'')', tenant, metadata, key))
$$;
SELECT test.enqueue_with('meta', to_jsonb(repeat('x', 38)));
SELECT jobq.set_tenant_quota('meta', max_bytes => 100);
SELECT test.enqueue_with('meta', to_jsonb(repeat('x', 55))), test.enqueue_with('meta', to_jsonb(repeat('x', 54)));
SELECT sum(bytes) FROM jobq.quota_jobs WHERE tenant = 'meta';
SELECT jobq.set_tenant_quota('meta', max_bytes => 200);
SELECT test.enqueue_with('meta', to_jsonb(repeat('x', 50)), 'k'), test.enqueue_with('meta', to_jsonb(repeat('x', 97)), 'k'), test.enqueue_with('meta', to_jsonb(repeat('x', 96)), 'k'),
       test.enqueue('meta', '{}', 'k', 'replace');
SELECT sum(bytes) FROM jobq.quota_jobs WHERE tenant = 'meta';
SELECT jobq.alter_job(id, payload => '[]') FROM jobq.queue WHERE tenant = 'meta' AND unique_key = 'k';
SELECT sum(bytes) FROM jobq.quota_jobs WHERE tenant = 'meta';

-- a rerun is admitted as an enqueue is
SELECT jobq.enqueue('held', tenant => 'again') AS id \gset
SELECT jobq.cancel_job(:'id');
SELECT jobq.set_tenant_quota('again', max_live => 1);
SELECT jobq.rerun_job(:'id') IS NOT NULL, test.error_of(format('SELECT jobq.rerun_job(%L)', :'id'));
SELECT count(*) FROM jobq.queue WHERE tenant = 'again';
SELECT jobq.set_tenant_quota('again', enqueues_per_minute => 3);
SELECT jobq.rerun_job(:'id') IS NOT NULL, jobq.rerun_job(:'id') IS NOT NULL, test.error_of(format('SELECT jobq.rerun_job(%L)', :'id'));
SELECT jobq.set_tenant_quota('again', max_bytes => 10);
SELECT test.error_of(format('SELECT jobq.rerun_job(%L, payload => ''"xxxxxxx"'')', :'id'));

-- schedules: one that the transaction itself has deleted counts no more
SELECT jobq.set_tenant_quota('plans', max_schedules => 1);
BEGIN;
SELECT jobq.schedule('one', '@daily', 'held', tenant => 'plans');
SELECT jobq.unschedule('one', tenant => 'plans');
SELECT jobq.schedule('other', '@daily', 'held', tenant => 'plans');
SELECT test.error_of($$SELECT jobq.schedule('too many', '@daily', 'held', tenant => 'plans')$$);
ROLLBACK;

SET client_min_messages = warning;
DO 'BEGIN PERFORM jobq.set_tenant_quota(tenant) FROM jobq.tenant_quotas; END';
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
