-- wait_for and job_timeline of jobs that do not exist or are hidden from the caller.
SET client_min_messages = warning;
CREATE FUNCTION public.missing_jobs_ok(payload jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT payload';
SELECT jobq.create_job_type('missing jobs', 'public.missing_jobs_ok(jsonb)');
SELECT jobq.pause_job_type('missing jobs');
SELECT jobq.enqueue('missing jobs', tenant => 'beta') AS job, jobq.enqueue('missing jobs', tenant => 'beta') AS ended,
       gen_random_uuid() AS none \gset
SELECT jobq.cancel_job(:'ended');
SELECT jobq.retry_job(:'ended');
SELECT jobq.cancel_job(:'ended');
CREATE ROLE jobq_pgtap_reader;
CREATE ROLE jobq_pgtap_app;
SELECT jobq.grant_access('jobq_pgtap_reader', 'read', 'acme'), jobq.grant_access('jobq_pgtap_app', 'enqueue', 'beta');

BEGIN;
SELECT plan(19);
SELECT format('job "%s" does not exist', :'none') AS no_none, format('job "%s" does not exist', :'job') AS no_job,
       format('job "%s" does not exist', :'ended') AS no_ended,
       format('SELECT jobq.wait_for(%L, %L)', :'none', '0') AS wait_none, format('SELECT jobq.wait_for(%L, %L)', :'job', '0') AS wait_job,
       format('SELECT jobq.wait_for(%L)', :'ended') AS wait_ended,
       format('SELECT * FROM jobq.job_timeline(%L)', :'none') AS timeline_none,
       format('SELECT * FROM jobq.job_timeline(%L)', :'job') AS timeline_job,
       format('SELECT * FROM jobq.job_timeline(%L)', :'ended') AS timeline_ended \gset

SELECT throws_ok(:'wait_none', 'P0002', :'no_none', 'wait_for of an unknown id');
SELECT ok(jobq.wait_for(:'job', '0') IS NULL, 'NULL when the time is up');
SELECT is((jobq.wait_for(:'ended')).status, 'cancelled', 'the row of a job that has ended');
SELECT throws_ok(:'timeline_none', 'P0002', :'no_none', 'job_timeline of an unknown id');
SELECT throws_ok('SELECT * FROM jobq.job_timeline(NULL)', '22004', 'argument "id" must not be NULL', 'and of NULL');
SELECT is_empty(:'timeline_job', 'none of the events of a job that has none is no error');
SELECT is((SELECT array_agg(type) FROM jobq.job_timeline(:'ended')), '{retried}', 'events of a job');

SELECT jobq.enqueue('missing jobs') AS own \gset
SELECT throws_ok(format('SELECT jobq.wait_for(%L)', :'own'), '25001', NULL, 'a job of this very transaction');

SET LOCAL ROLE jobq_pgtap_reader;
SELECT throws_ok(:'wait_none', 'P0002', :'no_none', 'unknown to a reader of another tenant');
SELECT throws_ok(:'wait_job', 'P0002', :'no_job', 'a foreign job');
SELECT throws_ok(:'wait_ended', 'P0002', :'no_ended', 'a foreign one that has ended');
SELECT throws_ok(:'timeline_job', 'P0002', :'no_job', 'its timeline');
SELECT throws_ok(:'timeline_ended', 'P0002', :'no_ended', 'and that of the ended one');
SET LOCAL ROLE jobq_pgtap_app;
SELECT throws_ok(:'wait_job', 'P0002', :'no_job', 'a job of the own tenant that another role has enqueued');
RESET ROLE;
SELECT lives_ok($$SELECT jobq.grant_access('jobq_pgtap_reader', 'read', 'beta')$$, 'with access to the tenant');
SET LOCAL ROLE jobq_pgtap_reader;
SELECT ok(jobq.wait_for(:'job', '0') IS NULL, 'it is waited for');
SELECT is_empty(:'timeline_job', 'its timeline is empty');
SELECT is((SELECT array_agg(type) FROM jobq.job_timeline(:'ended')), '{retried}', 'the other one has its events');
RESET ROLE;

-- the row is deleted before its events
DELETE FROM jobq.history WHERE id = :'ended';
SELECT is((SELECT array_agg(type) FROM jobq.job_timeline(:'ended')), '{retried}', 'a job without a row still has its events');

SELECT * FROM finish();
ROLLBACK;
SELECT jobq.drop_job_type('missing jobs', true);
SELECT jobq.purge_tenant('beta');
SELECT jobq.revoke_access('jobq_pgtap_reader', 'read'), jobq.revoke_access('jobq_pgtap_app', 'enqueue');
DROP ROLE jobq_pgtap_reader, jobq_pgtap_app;
DROP FUNCTION public.missing_jobs_ok;
