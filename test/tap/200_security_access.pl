# Rights: every function of schema jobq, as every kind of role, on jobs of its own tenant, of a
# tenant below it, of others (one has a name with the same beginning), and of another type.  The
# matrix is made from pg_proc: a function without an entry in the table of expectations fails the
# test.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('access', 'jobq.max_sql_workers = 2');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
CREATE FUNCTION fails(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'told to'; END $$;
CREATE FUNCTION admits(t text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
SELECT jobq.create_job_type(t, 'fails(jsonb)', max_attempts => 1) FROM unnest('{mail,report}'::text[]) t;
SELECT jobq.create_workflow(type || '_flow', '[{"key": "a", "event": "e"}]') FROM unnest('{mail,report}'::text[]) type;

-- the kinds of roles: NULL as tenant or types: all
CREATE TABLE roles (name text, free boolean, access text, tenant text, types text[]);
CREATE ROLE owners LOGIN IN ROLE postgres;
INSERT INTO roles VALUES
  ('postgres', true, NULL, NULL, NULL), ('owners', true, NULL, NULL, NULL),
  ('chief', false, 'admin', NULL, NULL), ('tenant_admin', false, 'admin', 'acme', NULL), ('type_admin', false, 'admin', 'acme', '{mail,mail_flow}'),
  ('reader', false, 'read', NULL, NULL), ('tenant_reader', false, 'read', 'acme', NULL), ('type_reader', false, 'read', 'acme', '{mail,mail_flow}'),
  ('worker', false, 'work', 'acme', NULL),
  ('app', false, 'enqueue', NULL, NULL), ('tenant_app', false, 'enqueue', 'acme', NULL), ('type_app', false, 'enqueue', 'acme', '{mail,mail_flow}'),
  ('stranger', false, NULL, NULL, NULL);
SELECT jobq.enqueue(type, tenant => tenant) FROM unnest('{acme,acme/eu,beta,acmeous}'::text[]) tenant, unnest('{mail,report}'::text[]) type;
END
ok($node->poll_query_until('postgres', 'SELECT count(*) = 8 FROM jobq.dead_letters'), 'dead letters');
$node->safe_psql('postgres', <<'END');
DO $$
DECLARE
  r roles;
BEGIN
  FOR r IN SELECT * FROM roles WHERE NOT free LOOP
    EXECUTE format('CREATE ROLE %I LOGIN', r.name);
    IF r.access IS NOT NULL THEN
      PERFORM jobq.grant_access(r.name::regrole, r.access, r.tenant, r.types);
    END IF;
  END LOOP;
END $$;
GRANT CREATE ON SCHEMA public TO chief;
SELECT jobq.alter_job_type(t, 'ok(jsonb)'), jobq.pause_job_type(t) FROM unnest('{mail,report}'::text[]) t;
SELECT jobq.enqueue(type, tenant => tenant), jobq.cancel_job(jobq.enqueue(type, tenant => tenant))
  FROM unnest('{acme,acme/eu,beta,acmeous}'::text[]) tenant, unnest('{mail,report}'::text[]) type;
SELECT jobq.schedule(type, '@daily', type, tenant => tenant)
  FROM unnest('{acme,acme/eu,beta,acmeous}'::text[]) tenant, unnest('{mail,report}'::text[]) type;
-- two runs, one of which is cancelled
SELECT jobq.enqueue(type || '_flow', metadata => jsonb_build_object('flow', n), tenant => tenant)
  FROM unnest('{acme,acme/eu,beta,acmeous}'::text[]) tenant, unnest('{mail,report}'::text[]) type, generate_series(1, 2) n;
END
wait_for_sql($node, q{SELECT count(*) = 16 FROM jobq.queue WHERE task_key = 'a' AND status = 'blocked'}, 'runs wait for an event');
$node->safe_psql('postgres', q{SELECT jobq.cancel_job(id) FROM jobq.queue WHERE metadata->>'flow' = '2'});
wait_for_sql($node, q{SELECT count(*) = 8 FROM jobq.queue WHERE task_key = 'a'}, 'half of them are cancelled');
$node->safe_psql('postgres', <<'END');
-- for each tenant and type a waiting, a cancelled and a dead job, and the two runs
CREATE TABLE jobs AS
SELECT tenant, job_type AS type, (array_agg(id) FILTER (WHERE status = 'pending'))[1] AS waits,
       (array_agg(id) FILTER (WHERE status = 'cancelled'))[1] AS ended, (array_agg(id) FILTER (WHERE status = 'error'))[1] AS dead,
       (SELECT id FROM jobq.jobs r WHERE r.tenant = j.tenant AND r.job_type = j.job_type || '_flow' AND r.metadata->>'flow' = '1') AS run,
       (SELECT id FROM jobq.jobs r WHERE r.tenant = j.tenant AND r.job_type = j.job_type || '_flow' AND r.metadata->>'flow' = '2') AS over
  FROM jobq.jobs j WHERE job_type IN ('mail', 'report') GROUP BY tenant, job_type;

-- Arguments and results of the functions.  reach: the check of the caller.  'any': some grant of
-- that access; 'all': a grant for all tenants and types; 'rows': jobs of others are hidden;
-- 'schedule': schedules of others, too; 'job': jobs of others are refused; 'tenant': a tenant is
-- refused unless the caller has all its types.
CREATE TABLE functions (name text, accesses text[], reach text, call text, seen text, hidden text);
INSERT INTO functions VALUES
  ('version', '{public}', 'any', 'jobq.version() IS NOT NULL', 'true', NULL),
  ('enqueue', '{enqueue,admin}', 'job', 'jobq.enqueue(''{type}'', tenant => ''{tenant}'') IS NOT NULL', 'true', NULL),
  ('enqueue_many', '{enqueue,admin}', 'job', '(SELECT count(*) FROM jobq.enqueue_many(''{type}'', ''{"{}"}'', tenant => ''{tenant}''))', '1', NULL),
  ('enqueue_jobs', '{enqueue,admin}', 'job', '(SELECT count(*) FROM jobq.enqueue_jobs(''[{"job_type": "{type}", "tenant": "{tenant}"}]''))', '1', NULL),
  ('wait_for', '{read,admin}', 'rows', '(jobq.wait_for(''{ended}'')).status', 'cancelled', 'P0002'),
  ('list_jobs', '{read,admin}', 'rows', '(SELECT count(*) FROM jobq.list_jobs(job_type => ''{type}'', tenant => ''{tenant}''))', '3', '0'),
  ('count_by_status', '{read,admin}', 'rows', '(SELECT sum(count) FROM jobq.count_by_status(''{type}'', ''{tenant}''))', '3', '0'),
  ('distinct_job_types', '{read,admin}', 'any', '(SELECT count(*) > 0 FROM jobq.distinct_job_types())', 'true', NULL),
  ('job_timeline', '{read,admin}', 'rows', '(SELECT count(*) > 0 FROM jobq.job_timeline(''{dead}''))', 'true', 'P0002'),
  ('why', '{read,admin}', 'rows', 'jobq.why(''{waits}'') ->> ''status''', 'pending', 'P0002'),
  ('error_groups', '{read,admin}', 'rows', '(SELECT count(*) FROM jobq.error_groups(job_type => ''{type}'', tenant => ''{tenant}''))', '1', '0'),
  ('resources', '{read,admin}', 'any', 'jobq.resources() IS NOT NULL', 'true', NULL),
  ('health', '{read,admin}', 'any', 'jobq.health() IS NOT NULL', 'true', NULL),
  ('metrics', '{read,admin}', 'all', 'jobq.metrics() IS NOT NULL', 'true', NULL),
  ('stat_series', '{read,admin}', 'all', '(SELECT count(*) >= 0 FROM jobq.stat_series())', 'true', NULL),
  ('stat_reset', '{admin}', 'all', 'jobq.stat_reset()', '', NULL),
  ('cancel_job', '{admin}', 'rows', 'jobq.cancel_job(''{waits}'')', 'true', 'false'),
  ('cancel_jobs', '{admin}', 'rows', 'jobq.cancel_jobs(''{type}'', ''{tenant}'')', '1', '0'),
  ('retry_job', '{admin}', 'rows', 'jobq.retry_job(''{ended}'')', 'true', 'false'),
  ('rerun_job', '{admin}', 'rows', 'jobq.rerun_job(''{dead}'') IS NOT NULL', 'true', 'false'),
  ('alter_job', '{admin}', 'rows', 'jobq.alter_job(''{waits}'', priority => 1)', 'true', 'false'),
  ('retry_dead_letters', '{admin}', 'rows', 'jobq.retry_dead_letters(''{type}'', tenant => ''{tenant}'')', '1', '0'),
  ('purge_dead_letters', '{admin}', 'rows', 'jobq.purge_dead_letters(''{type}'', tenant => ''{tenant}'')', '1', '0'),
  ('schedule', '{enqueue,admin}', 'job', 'jobq.schedule(''mine'', ''@daily'', ''{type}'', tenant => ''{tenant}'')', '', NULL),
  ('alter_schedule', '{admin}', 'schedule', 'jobq.alter_schedule(''{type}'', ''@hourly'', tenant => ''{tenant}'')', '', NULL),
  ('unschedule', '{admin}', 'schedule', 'jobq.unschedule(''{type}'', ''{tenant}'')', 'true', 'false'),
  ('pause_schedule', '{admin}', 'schedule', 'jobq.pause_schedule(''{type}'', tenant => ''{tenant}'')', '', NULL),
  ('resume_schedule', '{admin}', 'schedule', 'jobq.resume_schedule(''{type}'', ''{tenant}'')', '', NULL),
  ('run_schedule', '{admin}', 'schedule', 'jobq.run_schedule(''{type}'', tenant => ''{tenant}'') IS NOT NULL', 'true', NULL),
  ('backfill_schedule', '{admin}', 'schedule', 'jobq.backfill_schedule(''{type}'', now() - interval ''1 day'', now(), tenant => ''{tenant}'')', '1', NULL),
  ('purge_tenant', '{admin}', 'tenant', 'jobq.purge_tenant(''{tenant}'')', '14', NULL),
  ('create_job_type', '{admin}', 'all', 'jobq.create_job_type(''mine'', ''ok(jsonb)'')', '', NULL),
  ('alter_job_type', '{admin}', 'all', 'jobq.alter_job_type(''{type}'', timeout => ''1min'')', '', NULL),
  ('drop_job_type', '{admin}', 'all', 'jobq.create_job_type(''mine'', ''ok(jsonb)''), jobq.drop_job_type(''mine'')', '', NULL),
  ('pause_job_type', '{admin}', 'all', 'jobq.pause_job_type(''{type}'')', '', NULL),
  ('resume_job_type', '{admin}', 'all', 'jobq.resume_job_type(''{type}'')', '', NULL),
  ('set_limit', '{admin}', 'all', 'jobq.set_limit(''l'', 1)', '', NULL),
  ('drop_limit', '{admin}', 'all', 'jobq.set_limit(''l'', 1), jobq.drop_limit(''l'')', '', NULL),
  ('set_signal', '{admin}', 'all', 'jobq.set_signal(''s'', true)', '', NULL),
  ('create_signal', '{admin}', 'all', 'jobq.create_signal(''s'', ''SELECT true'')', '', NULL),
  ('drop_signal', '{admin}', 'all', 'jobq.set_signal(''s'', true), jobq.drop_signal(''s'')', '', NULL),
  ('set_pressure_rule', '{admin}', 'all', 'jobq.set_signal(''s'', true), jobq.set_pressure_rule(''{type}'', ''s'', 1)', '', NULL),
  ('stop_all', '{admin}', 'all', 'jobq.stop_all(''why'')', '', NULL),
  ('start_all', '{admin}', 'all', 'jobq.start_all()', '', NULL),
  ('drain', '{admin}', 'all', 'jobq.drain(''0'') IS NOT NULL', 'true', NULL),
  ('set_tenant_quota', '{admin}', 'all', 'jobq.set_tenant_quota(''{tenant}'', 10)', '', NULL),
  ('grant_access', '{}', 'all', 'jobq.grant_access(''app'', ''read'')', '', NULL),
  ('revoke_access', '{}', 'all', 'jobq.revoke_access(''app'', ''enqueue'')', '', NULL),
  ('set_tenant_check', '{}', 'all', 'jobq.set_tenant_check(''admits(text)'')', '', NULL),
  ('archive', '{read,admin}', 'rows', '(SELECT count(*) > 0 FROM jobq.archive(''infinity'') l WHERE l::jsonb->>''tenant'' = ''{tenant}'' AND l::jsonb->>''job_type'' = ''{type}'')', 'true', 'false'),
  ('run_inline', '{}', 'all', '(jobq.run_inline(''{waits}'')).status', 'completed', NULL),
  ('next_runs', '{enqueue,work,read,admin}', 'any', '(SELECT count(*) FROM jobq.next_runs(''@daily''))', '5', NULL),
  ('channel', '{work}', 'any', 'jobq.channel(''{type}'') = ''jobq_{type}''', 'true', NULL),
  ('check_workflow', '{admin}', 'any', '(SELECT count(*) FROM jobq.check_workflow(''[{"key": "a", "job_type": "{type}"}]''))', '1', NULL),
  ('create_workflow', '{admin}', 'all', 'jobq.create_workflow(''mine'', ''[{"key": "a"}]'')', '1', NULL),
  ('graph', '{read,admin}', 'rows', 'jobq.graph(id => ''{run}'') IS NOT NULL', 'true', 'P0002'),
  ('pause_workflow', '{admin}', 'rows', 'jobq.pause_workflow(''{run}'')', 'true', 'false'),
  ('resume_workflow', '{admin}', 'rows', 'jobq.pause_workflow(''{run}''), jobq.resume_workflow(''{run}'')', 'true', 'false'),
  ('retry_workflow', '{admin}', 'rows', 'jobq.retry_workflow(''{over}'')', 'true', 'false'),
  ('send_event', '{enqueue,admin}', 'rows', 'jobq.send_event(''{run}'', ''e'')', 'true', 'false'),
  ('build_key', '{enqueue,work,read,admin}', 'any', 'jobq.build_key(''{waits}'', ''a'', ''output'') IS NOT NULL', 'true', NULL),
  ('reload', '{}', 'all', 'jobq.reload()', '', NULL),
  ('adopt', '{}', 'all', 'jobq.adopt()', '', NULL),
  ('heartbeat', '{work}', 'any', 'jobq.heartbeat(gen_random_uuid(), gen_random_uuid())', 'lost', NULL),
  ('complete', '{work}', 'any', 'jobq.complete(gen_random_uuid(), gen_random_uuid())', 'false', NULL),
  ('fail', '{work}', 'any', 'jobq.fail(gen_random_uuid(), gen_random_uuid(), ''x'')', 'lost', NULL),
  ('skip_job', '{work}', 'any', 'jobq.skip_job(gen_random_uuid(), gen_random_uuid())', 'false', NULL),
  ('snooze_job', '{work}', 'any', 'jobq.snooze_job(gen_random_uuid(), gen_random_uuid())', 'false', NULL),
  ('fail_many', '{work}', 'any', $q$(SELECT count(*) FROM jobq.fail_many(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], 'x'))$q$, '0', NULL),
  ('complete_many', '{work}', 'any', '(SELECT count(*) FROM jobq.complete_many(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()]))', '0', NULL),
  ('claim', '{work}', 'any', '(SELECT count(*) FROM jobq.claim(NULL))', '0', NULL),
  -- in a handler: granted to the role that it runs as
  ('current_job', '{}', 'all', '(jobq.current_job()).id', NULL, NULL),
  ('set_progress', '{}', 'all', 'jobq.set_progress(1)', '55000', NULL),
  ('log_event', '{work}', 'any', 'jobq.log_event(''x'')', '55000', NULL),
  ('record_artifact', '{work}', 'any', 'jobq.record_artifact(''x'')', '55000', NULL),
  ('add_tasks', '{work}', 'any', 'jobq.add_tasks(''[{"key": "a"}]'')', '55000', NULL),
  ('skip', '{}', 'all', 'jobq.skip(''x'')', '55000', NULL),
  ('discard', '{}', 'all', 'jobq.discard(''x'')', '55000', NULL),
  ('snooze', '{}', 'all', 'jobq.snooze(''1s'')', '55000', NULL);

-- Returns the result of a call as a role, and undoes the call.
CREATE FUNCTION attempt(role text, call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  said text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE 'SELECT ' || call INTO said;
  RAISE SQLSTATE 'ZZZZZ' USING MESSAGE = coalesce(said, 'NULL');
EXCEPTION WHEN SQLSTATE 'ZZZZZ' THEN
  RETURN nullif(SQLERRM, 'NULL');
WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;

CREATE FUNCTION covers(r roles, tenant text) RETURNS boolean LANGUAGE sql AS $$
  SELECT r.tenant IS NULL OR r.tenant = $2 OR starts_with($2, r.tenant || '/')
$$;
CREATE FUNCTION expected(r roles, f functions, job jobs) RETURNS text LANGUAGE sql AS $$
  SELECT CASE WHEN r.free OR 'public' = ANY (f.accesses) THEN f.seen
              WHEN f.name = 'wait_for' AND r.access = 'enqueue' THEN f.hidden  -- these did not enqueue it
              -- schedules of another role: changed by all tenants' administrators, seen by readers
              WHEN f.reach = 'schedule' AND r.access IN ('enqueue', 'admin') THEN
                CASE WHEN r.access = 'admin' AND r.tenant IS NULL AND coalesce(job.type = ANY (r.types), true) THEN f.seen
                     WHEN r.access = 'admin' AND covers(r, job.tenant) AND coalesce(job.type = ANY (r.types), true) THEN '42501'
                     ELSE coalesce(f.hidden, '42704') END
              WHEN r.access IS NULL OR r.access <> ALL (f.accesses) THEN '42501'
              -- an administrator enqueues jobs of types that its grant names
              WHEN f.name = 'send_event' AND r.access = 'admin' AND r.types IS NULL THEN f.hidden
              WHEN f.reach = 'job' AND 'enqueue' = ANY (f.accesses) AND r.access = 'admin' AND r.types IS NULL THEN '42501'
              -- a job type that no grant of the role names does not exist for it
              WHEN f.name IN ('list_jobs', 'count_by_status', 'error_groups') AND job.type <> ALL (r.types) THEN '42704'
              WHEN f.reach = 'any' THEN f.seen
              WHEN f.reach = 'all' THEN CASE WHEN r.tenant IS NULL AND r.types IS NULL THEN f.seen ELSE '42501' END
              WHEN f.reach = 'tenant' THEN CASE WHEN covers(r, job.tenant) AND r.types IS NULL THEN f.seen ELSE '42501' END
              WHEN covers(r, job.tenant) AND coalesce(job.type = ANY (r.types), true) THEN f.seen
              WHEN f.reach = 'rows' THEN f.hidden
              ELSE '42501' END
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql
{
	my ($text) = @_;

	return $node->safe_psql('postgres', $text);
}

# ---------- functions ----------

is(sql(q{SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace
  AND proname NOT IN (SELECT name FROM functions)}), '', 'the table of expectations knows every function');
sql(<<'END');
CREATE TABLE matrix AS
SELECT r.name AS role, f.name AS function, j.tenant, j.type, expected(r, f, j) AS expected,
       attempt(r.name, replace(replace(replace(replace(replace(replace(replace(f.call, '{tenant}', j.tenant), '{type}', j.type), '{waits}', j.waits::text),
                                       '{ended}', j.ended::text), '{dead}', j.dead::text), '{run}', j.run::text), '{over}', j.over::text)) AS said
  FROM roles r, jobs j, functions f
 WHERE EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname = f.name);
END
cmp_ok(sql('SELECT count(*) FROM matrix'), '>', 3000, 'every function, as every kind of role, of own and foreign tenants and types');
is(sql(q{SELECT * FROM matrix WHERE coalesce(said, '') <> coalesce(expected, '') ORDER BY function, role, tenant, type LIMIT 50}), '',
	'each gave the expected result');
is(sql(q{SELECT count(DISTINCT function) FROM matrix WHERE said = '42501'}), sql('SELECT count(DISTINCT function) - 1 FROM matrix'),
	'each of them is refused to some role, except version()');

# Internal functions: helpers of the view and of the policies are for roles that read, calls of
# jobq-web that are made of public ones for roles that have those; no role may call the others.
is(sql(<<'END'), '', 'no role may call an internal function, except those that readers and jobq-web need');
SELECT r.name, p.proname FROM roles r, pg_proc p
 WHERE p.pronamespace = 'jobq_internal'::regnamespace AND NOT r.free
   AND has_function_privilege(r.name, p.oid, 'EXECUTE')
       <> (coalesce(r.access IN ('enqueue', 'read', 'admin'), false) AND p.proname ~ '^_(type_name|live_(status|attempts|runs|started_at|worker|progress|progress_data)|reads|reads_schedule)$'
           OR coalesce(r.access IN ('read', 'admin'), false) AND p.proname ~ '^_(reads_event|reads_type|reads_tenant|reads_audit|reads_all|option_keys|archive_end|archived_audit_id|list_candidates|running_ids|search(_[a-z]+)?|check_like|error_pattern|graph_(lines|node|statuses)|mermaid_text|run_version|steps_of)$'
           OR coalesce(r.access = 'admin', false) AND p.proname IN ('_bulk_begin', '_bulk_step')
           OR coalesce(r.access = 'admin' AND r.tenant IS NULL, false) AND p.proname = '_alter_pressure_rule'
           OR coalesce(r.access IN ('read', 'admin') AND r.tenant IS NULL, false) AND p.proname ~ '^_stat_(job_types|workers|claimed|lanes|limits|dispatcher)$')
END

# ---------- tables and views ----------

is(sql(<<'END'), '', 'no table and no view can be written, and only roles that may see jobs can read them');
SELECT r.name, c.relname, w.what FROM roles r, pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) w(what)
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT r.free
   AND has_table_privilege(r.name, c.oid, w.what)
       <> (w.what = 'SELECT' AND (coalesce(r.access IN ('enqueue', 'read', 'admin'), false) AND c.relname IN ('jobs', 'history', 'dead_letters', 'schedules')
                                  OR coalesce(r.access IN ('read', 'admin'), false) AND c.relname IN ('events', 'alerts', 'audit', 'artifacts', 'workflows', 'runs', 'workflow_runs', 'option_keys', 'job_types', 'pressure_rules', 'limits', 'stopped', 'tenant_quotas')
                                  OR coalesce(r.access IN ('read', 'admin') AND r.tenant IS NULL, false) AND c.relname IN ('disk_log', 'stat_job_types', 'stat_workers', 'stat_lanes', 'stat_limits', 'stat_dispatcher')))
END
is(sql(<<'END'), '', 'no internal column can be read');
SELECT r.name, a.attrelid::regclass, a.attname FROM roles r, pg_attribute a
 WHERE NOT r.free AND (a.attrelid, a.attname) IN (('jobq.queue'::regclass, 'lease_token'), ('jobq.job_type_env'::regclass, 'env'))
   AND has_column_privilege(r.name, a.attrelid, a.attnum, 'SELECT')
END
# rows with a tenant, of every relation with such a column, read by each role
# that may: exactly its own rows
sql(<<'END');
CREATE FUNCTION rows_seen(relation regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  seen text;
BEGIN
  EXECUTE format('SELECT string_agg(DISTINCT tenant, '' '' ORDER BY tenant) FROM %s', relation) INTO seen;
  RETURN coalesce(seen, 'none');
END $$;
CREATE TABLE rows_matrix AS
SELECT r.name AS role, c.oid::regclass AS relation, attempt(r.name, format('rows_seen(%L)', c.oid::regclass)) AS said,
       CASE WHEN r.free THEN rows_seen(c.oid)
            WHEN NOT has_column_privilege(r.name, c.oid, 'tenant', 'SELECT') THEN '42501'
            WHEN r.access = 'enqueue' THEN 'none'
            ELSE coalesce((SELECT string_agg(t, ' ' ORDER BY t) FROM string_to_table(nullif(rows_seen(c.oid), 'none'), ' ') t WHERE covers(r, t)), 'none')
            END AS expected
  FROM roles r, pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'v');
END
is(sql('SELECT * FROM rows_matrix WHERE said IS DISTINCT FROM expected'), '', 'of every table and view the rows of own tenants are seen');
is(sql(q{SELECT string_agg(DISTINCT relation::text, ' ' ORDER BY relation::text) FROM rows_matrix WHERE said = 'acme acme/eu' AND role = 'tenant_reader'}),
	sql(q{SELECT string_agg(DISTINCT relation::text, ' ' ORDER BY relation::text) FROM rows_matrix WHERE said = 'acme acme/eu acmeous beta' AND role = 'reader'}), 'and there are some');
is(sql(<<'END'), '', 'every table with a tenant\'s rows has its policy');
SELECT c.oid::regclass FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT c.relrowsecurity
   AND c.relname NOT IN ('access', 'quota_jobs')   -- no role may read these
END

# ---------- in separate sessions ----------

# Exactly its own jobs, although other roles enqueue for the tenant.
my %id;
foreach my $role (qw(app tenant_app type_app))
{
	$id{$role} = $node->safe_psql('postgres', q{SELECT jobq.enqueue('mail', tenant => 'acme')}, extra_params => [ '-U', $role ]);
	is($node->safe_psql('postgres', 'SELECT id FROM jobq.jobs', extra_params => [ '-U', $role ]), $id{$role}, "$role sees its own job");
}
like(($node->psql('postgres', "SELECT jobq.wait_for('$id{app}', '0')", extra_params => [ '-U', 'type_app' ]))[2],
	qr/ERROR:  job "$id{app}" does not exist/, 'not that of another');
sql(q{SELECT jobq.resume_job_type('mail')});
my $waits = "(jobq.wait_for('$id{app}')).status";    # for 20 seconds
is($node->safe_psql('postgres', "SELECT coalesce($waits, $waits, $waits, $waits)", extra_params => [ '-U', 'app' ]), 'completed', 'and waits for it');
is($node->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$id{app}'", extra_params => [ '-U', 'app' ]), 'completed', 'also when it has ended');

# The outcome of a job that is not kept comes from shared memory, for the same roles only.
sql(q{SELECT jobq.create_job_type('unkept', 'ok(jsonb)', keep_completed => '0')});
my $gone = $node->safe_psql('postgres', q{SELECT jobq.enqueue('unkept', tenant => 'acme')}, extra_params => [ '-U', 'app' ]);
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM jobq.jobs WHERE id = '$gone'"), 'a job that is not kept');
my $missing = qq{job "$gone" does not exist};
my %told = (app => 'completed', tenant_app => $missing, tenant_reader => 'completed', type_reader => $missing,
	worker => 'permission denied for function wait_for');
foreach my $role (sort keys %told)
{
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT (jobq.wait_for('$gone')).status", extra_params => [ '-U', $role ]);

	is($rc ? $err =~ s/.*ERROR:  (.*)\n?.*/$1/r : $out, $told{$role}, "$role gets the outcome that it may see");
}

# Rights revoked while a session is open, and while its jobs wait.
my $session = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'tenant_app' ]);
like($session->query(q{SELECT jobq.enqueue('report', tenant => 'acme')}), qr/^[0-9a-f-]{36}$/, 'a session enqueues');
sql(q{SELECT jobq.revoke_access('tenant_app', 'enqueue'), jobq.grant_access('tenant_app', 'enqueue', 'beta')});
$session->query(q{SELECT jobq.enqueue('report', tenant => 'acme')});
like($session->{stderr}, qr/permission denied to enqueue a job of type "report" for tenant "acme"/, 'until its grant is gone');
$session->{stderr} = '';
like($session->query(q{SELECT jobq.enqueue('report', tenant => 'beta')}), qr/^[0-9a-f-]{36}$/, 'and with its new one for the other tenant');
$session->quit;
sql(q{SELECT jobq.resume_job_type('report'), jobq.cancel_jobs(type || '_flow', include_running => true) FROM unnest('{mail,report}'::text[]) type});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM jobq.queue}), 'jobs enqueued before run');

# Another role of the same name owns no jobs, whether the first was dropped or renamed.  After a
# restore oids are meaningless: then the name counts again, once the jobs are adopted.
sub own { return $node->safe_psql('postgres', 'SELECT id FROM jobq.jobs', extra_params => [ '-U', 'brief' ]); }
sub told
{
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT (jobq.wait_for('$_[0]', '0')).status", extra_params => [ '-U', 'brief' ]);

	return $rc ? $err =~ s/.*ERROR:  (.*)\n?.*/$1/r : $out;
}
sql(q{CREATE ROLE brief LOGIN; SELECT jobq.grant_access('brief', 'enqueue')});
my $ended = $node->safe_psql('postgres', q{SELECT jobq.enqueue('unkept')}, extra_params => [ '-U', 'brief' ]);
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM jobq.jobs WHERE id = '$ended'"), 'it has ended');
is(told($ended), 'completed', 'the role that enqueued it gets the outcome');
sql(q{SELECT jobq.pause_job_type('mail')});
my $own = $node->safe_psql('postgres', q{SELECT jobq.enqueue('mail')}, extra_params => [ '-U', 'brief' ]);
is(own(), $own, 'and sees waiting jobs');
sql(q{DROP OWNED BY brief; DROP ROLE brief; CREATE ROLE brief LOGIN; SELECT jobq.grant_access('brief', 'enqueue')});
is(own(), '', 'another role of that name does not see it');
is(told($own), qq{job "$own" does not exist}, 'nor waits for it');
is(told($ended), qq{job "$ended" does not exist}, 'and does not get outcomes of jobs that were not kept');
sql(q{SELECT jobq.adopt()});
is(own(), '', 'adopt() changes nothing where the jobs are at home');
sql(q{UPDATE jobq.home SET database = database});	# as a restored dump has it
is(own(), '', 'nor does the restore');
sql(q{SELECT jobq.adopt()});
is(own(), $own, 'the role with that name after adopt() sees the waiting jobs');
sql("SELECT jobq.cancel_job('$own'), jobq.resume_job_type('mail')");
is(own(), $own, 'and ended jobs');
sql("UPDATE jobq.history SET enqueued_by = '1:brief' WHERE id = '$own'; UPDATE jobq.home SET database = database; SELECT jobq.adopt()");
is(own(), $own, 'also when that was before adopt()');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
