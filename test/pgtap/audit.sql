-- jobq.audit: one row for each management call; rows stay as they are.
BEGIN;
SELECT plan(58);
CREATE FUNCTION pg_temp.last() RETURNS jobq.audit LANGUAGE sql AS 'SELECT a FROM jobq.audit a ORDER BY a.id DESC LIMIT 1';
-- The row that a call has added; NULL: none.
CREATE FUNCTION pg_temp.row_of(call text) RETURNS jobq.audit LANGUAGE plpgsql AS $$
DECLARE
  before bigint;
  n int;
  result jobq.audit;
BEGIN
  SELECT coalesce(max(a.id), 0) INTO before FROM jobq.audit a;
  EXECUTE call;
  SELECT count(*) INTO n FROM jobq.audit a WHERE a.id > before;
  IF n > 1 THEN
    RAISE 'the call has % rows', n;
  END IF;
  SELECT a.* INTO result FROM jobq.audit a WHERE a.id > before;
  RETURN result;
END $$;
CREATE FUNCTION ok(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE ROLE pgtap_audited;

-- every function that manages has its object
SELECT is_empty($$
  SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.prosrc IN ('jobq_gateway', 'jobq_create_signal')
     AND p.proname NOT IN ('add_tasks', 'check_workflow', 'error_groups', 'resources', 'send_event')
     AND (jobq_internal._audited(p.proname)).object_type IS NULL
$$, 'every call behind the gate has an object');

-- types
SELECT is((a.by, a.action, a.object_type, a.object, a.tenant, a.old)::text, format('(%s,create_job_type,job_type,audited,,)', quote_ident(session_user)), 'create_job_type')
  FROM pg_temp.row_of($$SELECT jobq.create_job_type('audited', 'ok(jsonb)')$$) a;
SELECT is(a.old ->> 'max_attempts' || ' ' || (a.new ->> 'max_attempts'), '3 7', 'alter_job_type: the state before and after')
  FROM pg_temp.row_of($$SELECT jobq.alter_job_type('audited', max_attempts => 7)$$) a;
SELECT is(a.new ->> 'pause_reason', 'why', 'pause_job_type') FROM pg_temp.row_of($$SELECT jobq.pause_job_type('audited', 'why')$$) a;
SELECT is(a.old ->> 'paused' || ' ' || (a.new ->> 'paused'), 'true false', 'resume_job_type') FROM pg_temp.row_of($$SELECT jobq.resume_job_type('audited')$$) a;
SELECT jobq.create_job_type('dropped', 'ok(jsonb)') \gset
SELECT is(a.old ->> 'kind' || coalesce(a.new::text, ''), 'sql', 'drop_job_type') FROM pg_temp.row_of($$SELECT jobq.drop_job_type('dropped')$$) a;
SELECT ok(a::text !~ 's3cr3t', 'options.env is not in it') FROM pg_temp.row_of($$SELECT jobq.create_job_type('with env', command => '{cat}', options => '{"env": {"TOKEN": "s3cr3t"}}')$$) a;

-- limits, signals, rules, quotas, the kill switch
SELECT is(a.new, '{"max_concurrent": 3, "rate_limit": 0, "rate_window": "00:00:01"}', 'set_limit') FROM pg_temp.row_of($$SELECT jobq.set_limit('audited', 3)$$) a;
SELECT is(a.old ->> 'max_concurrent' || coalesce(a.new::text, ''), '3', 'drop_limit') FROM pg_temp.row_of($$SELECT jobq.drop_limit('audited')$$) a;
SELECT is(a.new ->> 'active', 'true', 'set_signal') FROM pg_temp.row_of($$SELECT jobq.set_signal('audited', true)$$) a;
SELECT is(a.object || ' ' || (a.new ->> 'block'), 'audited/audited true', 'set_pressure_rule')
  FROM pg_temp.row_of($$SELECT jobq.set_pressure_rule('audited', 'audited', block => true)$$) a;
SELECT is(a.object || coalesce(a.new::text, ''), 'audited/audited', 'a rule that is removed') FROM pg_temp.row_of($$SELECT jobq.set_pressure_rule('audited', 'audited')$$) a;
SELECT is(a.object || ' ' || (a.new ->> 'priority_adj'), '*/audited 5', 'a rule of all types') FROM pg_temp.row_of($$SELECT jobq.set_pressure_rule(NULL, 'audited', 5)$$) a;
SELECT is(a.action || coalesce(a.new::text, ''), 'drop_signal', 'drop_signal') FROM pg_temp.row_of($$SELECT jobq.drop_signal('audited', force => true)$$) a;
SELECT is(a.new ->> 'condition', 'SELECT true', 'create_signal') FROM pg_temp.row_of($$SELECT jobq.create_signal('asked', 'SELECT true')$$) a;
SELECT is((a.object, a.tenant, a.new ->> 'max_live')::text, '(acme,acme,5)', 'set_tenant_quota') FROM pg_temp.row_of($$SELECT jobq.set_tenant_quota('acme', 5)$$) a;
SELECT is((a.object = current_database(), a.new #>> '{stopped,reason}')::text, '(t,testing)', 'stop_all') FROM pg_temp.row_of($$SELECT jobq.stop_all('testing')$$) a;
SELECT is(a.new -> 'stopped', 'null', 'start_all') FROM pg_temp.row_of($$SELECT jobq.start_all()$$) a;

-- grants
SELECT is((a.object_type, a.object, a.tenant)::text, '(role,pgtap_audited,acme)', 'grant_access: role and tenant')
  FROM pg_temp.row_of($$SELECT jobq.grant_access('pgtap_audited', 'read', 'acme')$$) a;
SELECT is((pg_temp.last()).new, '[{"access": "read", "tenant": "acme", "job_types": null}]', 'its grants');
SELECT is(a.old -> 0 ->> 'access' || coalesce(a.new::text, ''), 'read', 'revoke_access') FROM pg_temp.row_of($$SELECT jobq.revoke_access('pgtap_audited', 'read')$$) a;

-- schedules, workflows
SELECT is((a.object, a.tenant, a.new ->> 'cron')::text, '(nightly,acme,@daily)', 'schedule') FROM pg_temp.row_of($$SELECT jobq.schedule('nightly', '@daily', 'audited', '{"secret": 1}', tenant => 'acme')$$) a;
SELECT ok((pg_temp.last()).new::text !~ 'secret', 'without its payload');
SELECT is(a.old ->> 'cron' || ' ' || (a.new ->> 'cron'), '@daily @hourly', 'alter_schedule') FROM pg_temp.row_of($$SELECT jobq.alter_schedule('nightly', '@hourly', tenant => 'acme')$$) a;
SELECT is(a.new ->> 'status', 'paused', 'pause_schedule') FROM pg_temp.row_of($$SELECT jobq.pause_schedule('nightly', tenant => 'acme')$$) a;
SELECT is(a.new ->> 'status', 'active', 'resume_schedule') FROM pg_temp.row_of($$SELECT jobq.resume_schedule('nightly', 'acme')$$) a;
SELECT ok(a.new ->> 'job' IS NOT NULL, 'run_schedule') FROM pg_temp.row_of($$SELECT jobq.run_schedule('nightly', tenant => 'acme')$$) a;
SELECT is(a.old ->> 'cron' || coalesce(a.new::text, ''), '@hourly', 'unschedule') FROM pg_temp.row_of($$SELECT jobq.unschedule('nightly', 'acme')$$) a;
SELECT ok(a.id IS NULL, 'a schedule that is not there leaves no row') FROM pg_temp.row_of($$SELECT jobq.unschedule('nightly', 'acme')$$) a;
SELECT is(a.new ->> 'version', '1', 'create_workflow') FROM pg_temp.row_of($$SELECT jobq.create_workflow('flow', '[{"key": "a", "event": "e"}]')$$) a;

-- jobs
CREATE TEMP TABLE job AS SELECT jobq.enqueue('audited', '{"secret": 1}', tenant => 'acme') AS id;
SELECT is(count(*), 0::bigint, 'enqueue is no management call') FROM jobq.audit a WHERE a.action LIKE 'enqueue%';
SELECT is((a.object_type, a.object = job.id::text, a.tenant, a.old ->> 'priority', a.new ->> 'priority')::text, '(job,t,acme,0,9)', 'alter_job')
  FROM job, pg_temp.row_of(format('SELECT jobq.alter_job(%L, priority => 9, payload => ''{"secret": 2}'')', id)) a;
SELECT ok(a.new ->> 'payload' = 'given' AND a::text !~ 'secret', 'no payload is in it') FROM pg_temp.last() a;
SELECT is((a.old ->> 'status', a.new ->> 'status', a.new ->> 'reason')::text, '(pending,cancelled,no)', 'cancel_job') FROM job, pg_temp.row_of(format('SELECT jobq.cancel_job(%L, ''no'')', id)) a;
SELECT is((a.old ->> 'status', a.new ->> 'status')::text, '(cancelled,pending)', 'retry_job') FROM job, pg_temp.row_of(format('SELECT jobq.retry_job(%L)', id)) a;
SELECT jobq.run_inline(id) FROM job \gset
SELECT is(a.object, job.id::text, 'rerun_job') FROM job, pg_temp.row_of(format('SELECT jobq.rerun_job(%L)', id)) a;
SELECT is((pg_temp.last()).new ->> 'rerun', (SELECT q.id::text FROM jobq.queue q WHERE q.parent_id = job.id), 'and the new job') FROM job;
SELECT ok(a.id IS NULL, 'a call that finds no job leaves no row') FROM pg_temp.row_of('SELECT jobq.cancel_job(gen_random_uuid())') a;
SELECT is((a.object_type, a.object, a.tenant, a.new -> 'count', a.new #>> '{filter,job_type}')::text, '(jobs,,acme,2,audited)', 'cancel_jobs: filter and count')
  FROM pg_temp.row_of($$SELECT jobq.cancel_jobs('audited', 'acme')$$) a;
SELECT is((a.new -> 'count')::text, '0', 'retry_dead_letters') FROM pg_temp.row_of($$SELECT jobq.retry_dead_letters('audited')$$) a;
SELECT is((a.new -> 'count')::text, '0', 'purge_dead_letters') FROM pg_temp.row_of($$SELECT jobq.purge_dead_letters('audited')$$) a;
SELECT is((a.object_type, a.object, a.tenant)::text, '(tenant,acme,acme)', 'purge_tenant') FROM pg_temp.row_of($$SELECT jobq.purge_tenant('acme')$$) a;

-- the caller
SET LOCAL ROLE pgtap_audited;
RESET ROLE;
SELECT jobq.grant_access('pgtap_audited', 'admin') \gset
SET LOCAL ROLE pgtap_audited;
SELECT jobq.set_limit('theirs') \gset
SELECT is((SELECT a.by FROM jobq.audit a ORDER BY a.id DESC LIMIT 1), format('%I as pgtap_audited', session_user), 'by has the user of the session and the role');
SELECT throws_ok('DELETE FROM jobq.audit', '42501', NULL, 'an administrator deletes nothing');
SELECT throws_ok($$INSERT INTO jobq.audit (by, action, object_type) VALUES ('me', 'x', 'y')$$, '42501', NULL, 'and adds nothing');
RESET ROLE;

-- rows stay
SELECT throws_ok('UPDATE jobq.audit SET by = ''nobody''', '42501', 'rows of jobq.audit cannot be changed or deleted', 'the owner cannot change them');
SELECT throws_ok('DELETE FROM jobq.audit', '42501', 'rows of jobq.audit cannot be changed or deleted', 'nor delete them');
SELECT throws_ok('TRUNCATE jobq.audit', '42501', 'rows of jobq.audit cannot be changed or deleted', 'nor all of them');

-- archive
CREATE FUNCTION pg_temp.after(id bigint) RETURNS uuid LANGUAGE sql AS $$ SELECT lpad(to_hex(id), 32, '0')::uuid $$;
SELECT results_eq($$SELECT r.* FROM jobq.archive('infinity', what => 'audit') WITH ORDINALITY l(line, n), LATERAL jsonb_populate_record(NULL::jobq.audit, l.line::jsonb) r ORDER BY l.n$$,
  $$SELECT * FROM jobq.audit ORDER BY id$$, 'archive returns the audit, by id; a line makes its row again');
SELECT ok(count(*) > 10, 'all of it') FROM jobq.archive('infinity', what => 'audit');
SELECT results_eq(format($$SELECT (l::jsonb ->> 'id')::bigint FROM jobq.archive('infinity', pg_temp.after(%s), 'audit', 3) l$$, min(id)),
  format($$SELECT id FROM jobq.audit WHERE id > %s ORDER BY id LIMIT 3$$, min(id)), 'after_id and max_rows') FROM jobq.audit;
SELECT is((SELECT count(*) FROM jobq.archive('infinity', pg_temp.after(max(id)), 'audit')), 0::bigint, 'after the last one') FROM jobq.audit;
SELECT is((SELECT count(*) FROM jobq.archive(NULL, what => 'audit', expires_from => a.ts, expires_to => a.ts + interval '1 us')), 1::bigint, 'a range of ts excludes its end')
  FROM jobq.audit a ORDER BY id DESC LIMIT 1;
SELECT is((SELECT count(*) FROM jobq.archive(a.ts, what => 'audit')), (SELECT count(*) FROM jobq.audit b WHERE b.ts < a.ts), 'before') FROM jobq.audit a ORDER BY id DESC LIMIT 1;
SELECT is_empty($$SELECT jobq.archive('infinity', what => 'audit', max_rows => 0)$$, 'no rows');
SELECT throws_ok($$SELECT jobq.archive('infinity', '01a22dbe-5d8f-7360-8ffe-2bd97e9bbe36', 'audit')$$, '22023',
  'argument "after_id": 01a22dbe-5d8f-7360-8ffe-2bd97e9bbe36 is no id of jobq.audit', 'the id of a job');
INSERT INTO jobq.audit (by, action, object_type, old, new) VALUES ('test', 'test', 'test', 'null', '{"a": null}');
SELECT is(l::jsonb -> 'json_nulls', '["old"]', 'a JSON null is named') FROM jobq.archive('infinity', what => 'audit') l WHERE l::jsonb ->> 'by' = 'test';
CREATE ROLE pgtap_auditor;
SELECT jobq.grant_access('pgtap_auditor', 'read', tenant => 'acme') \gset
SELECT set_config('test.n', count(*)::text, true) FROM jobq.audit WHERE tenant = 'acme' \gset
SET LOCAL ROLE pgtap_auditor;
SELECT ok(count(*) > 0 AND bool_and(l::jsonb ->> 'tenant' = 'acme') AND count(*)::text = current_setting('test.n'), 'a reader of a tenant gets the rows of that tenant')
  FROM jobq.archive('infinity', what => 'audit') l;
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
