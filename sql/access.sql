-- Rights: grants, tenants, job types, rows
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

SET client_min_messages = warning;
DROP ROLE IF EXISTS jobq_regress_app, jobq_regress_app2, jobq_regress_group, jobq_regress_reader, jobq_regress_admin, jobq_regress_chief, jobq_regress_renamed;
RESET client_min_messages;
CREATE ROLE jobq_regress_app LOGIN;
CREATE ROLE jobq_regress_app2 LOGIN;
CREATE ROLE jobq_regress_group;
CREATE ROLE jobq_regress_reader LOGIN IN ROLE jobq_regress_group;
CREATE ROLE jobq_regress_admin LOGIN;
CREATE ROLE jobq_regress_chief LOGIN;
GRANT USAGE ON SCHEMA test TO PUBLIC;
CREATE FUNCTION test.error_as(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  said text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  said := test.error_of(statement);
  RESET ROLE;
  RETURN said;
END $$;
-- returns the value or the error of a statement
CREATE FUNCTION test.value_as(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  value text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  BEGIN
    EXECUTE statement INTO value;
  EXCEPTION WHEN OTHERS THEN
    value := SQLSTATE;
  END;
  RESET ROLE;
  RETURN value;
END $$;
CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type(name, 'test.ok(jsonb)', max_attempts => 1) FROM unnest('{mail,report}'::text[]) name;
SELECT jobq.pause_job_type(name) FROM unnest('{mail,report}'::text[]) name;
\pset format unaligned
\pset tuples_only on

-- bad input
SELECT call || ': ' || test.error_of('SELECT jobq.' || call) FROM (VALUES
  ('grant_access(NULL, ''read'')'), ('grant_access(''jobq_regress_app'', NULL)'), ('grant_access(''jobq_regress_app'', ''all'')'),
  ('grant_access(0::regrole, ''read'')'), ('grant_access(''jobq_regress_app'', ''read'', repeat(''x'', 256))'),
  ('grant_access(''jobq_regress_app'', ''read'', E''a\nb'')'), ('grant_access(''jobq_regress_app'', ''read'', NULL, ''{}'')'),
  ('grant_access(''jobq_regress_app'', ''read'', ''/acme'')'), ('grant_access(''jobq_regress_app'', ''read'', ''acme//eu'')'),
  ('grant_access(''jobq_regress_app'', ''read'', NULL, ''{NULL}'')'), ('grant_access(''jobq_regress_app'', ''read'', NULL, ''{mail,nosuch}'')'),
  ('revoke_access(NULL, ''read'')'), ('revoke_access(''jobq_regress_app'', NULL)'), ('revoke_access(''jobq_regress_app'', ''all'')'),
  ('set_tenant_check(''test.ok(jsonb)'')'), ('set_tenant_check(0::regprocedure)'), ('purge_tenant(NULL)'), ('purge_tenant('''')')) v(call);
SELECT count(*) FROM jobq.access;

-- enqueue: by tenant and type; a role sees its own rows
SELECT jobq.grant_access('jobq_regress_app', 'enqueue', 'acme', '{mail}'), jobq.grant_access('jobq_regress_app2', 'enqueue', 'acme');
SELECT jobq.grant_access('jobq_regress_app', 'enqueue', 'acme', '{mail}');
SELECT role, access, tenant, job_types FROM jobq.access ORDER BY role;
SELECT args || ': ' || test.error_as('jobq_regress_app', format('SELECT jobq.enqueue(%s)', args)) FROM (VALUES
  ('''mail'', tenant => ''acme'''), ('''mail'', tenant => ''acme/eu'''), ('''mail'', tenant => ''acmeta'''), ('''mail'', tenant => ''beta'''),
  ('''mail'''), ('''report'', tenant => ''acme'''), ('''nosuch'', tenant => ''acme''')) v(args);
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue_many('mail', '{"{}"}', tenant => 'beta')$$),
       test.error_as('jobq_regress_app', $$SELECT jobq.enqueue_jobs('[{"job_type": "mail", "tenant": "acme"}, {"job_type": "mail", "tenant": "beta"}]')$$);
SELECT test.error_as('jobq_regress_app2', $$SELECT jobq.enqueue('report', tenant => 'acme')$$);
-- jobq.tenant is a default and gives no right
SET jobq.tenant = 'acme';
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail')$$), test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'beta')$$);
SET jobq.tenant = 'beta';
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail')$$);
RESET jobq.tenant;
SELECT jobq.enqueue('mail', '{"secret": 1}', tenant => 'acme') AS mine, jobq.enqueue('mail', '{"secret": 2}', tenant => 'beta') AS theirs,
       jobq.enqueue('mail', '{"secret": 3}') AS nobodys \gset
SELECT test.value_as('jobq_regress_app', $$SELECT count(*) || ' ' || string_agg(DISTINCT tenant, ' ') FROM jobq.jobs$$);
SELECT test.value_as('jobq_regress_app2', $$SELECT string_agg(job_type, ' ') FROM jobq.jobs$$);
SELECT what || ': ' || test.error_as('jobq_regress_app', what) FROM (VALUES ('SELECT * FROM jobq.list_jobs()'), ('SELECT * FROM jobq.events'), ('SELECT lease_token FROM jobq.queue'),
  ('SELECT jobq.cancel_jobs(''mail'')'), ('SELECT jobq.health()'), ('SELECT * FROM jobq.job_types'), ('INSERT INTO jobq.queue DEFAULT VALUES'), ('DELETE FROM jobq.queue'),
  ('SELECT * FROM jobq.access'), ('SELECT jobq.grant_access(''jobq_regress_app'', ''admin'')')) v(what);
SELECT test.value_as('jobq_regress_app', format('SELECT (jobq.wait_for(%L, %L)).id', :'mine', '0'));

-- read: members inherit the grants of a role; rows, counts and ids of other tenants are hidden
SELECT jobq.grant_access('jobq_regress_group', 'read', 'acme');
SELECT test.value_as('jobq_regress_reader', 'SELECT count(*) || '' '' || string_agg(DISTINCT tenant, '' '') FROM jobq.' || what) FROM unnest('{jobs,list_jobs(),queue,list_jobs(tenant => $$beta$$)}'::text[]) what;
SELECT test.value_as('jobq_regress_reader', 'SELECT string_agg(status || '' '' || count, '', '') FROM jobq.count_by_status() WHERE count > 0');
SELECT test.value_as('jobq_regress_reader', format('SELECT count(*) FROM jobq.jobs WHERE id = %L', :'theirs')), test.value_as('jobq_regress_reader', format('SELECT jobq.wait_for(%L)', :'theirs')),
       test.value_as('jobq_regress_reader', format('SELECT count(*) FROM jobq.job_timeline(%L)', :'theirs'));
-- a leaking operator is never evaluated on hidden rows
CREATE FUNCTION test.tells(payload jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN IF payload->>'secret' IN ('2', '3') THEN RAISE 'seen %', payload; END IF; RETURN true; END $$;
SELECT test.error_as('jobq_regress_reader', 'SELECT count(*) FROM jobq.jobs WHERE test.tells(payload)');
SELECT test.value_as('jobq_regress_reader', 'SELECT count(*) FROM jobq.queue WHERE 1 / (payload->>''secret'' IS NULL OR payload->>''secret'' = ''1'')::int = 1');
SELECT what || ': ' || test.error_as('jobq_regress_reader', what) FROM (VALUES ('SELECT jobq.enqueue(''mail'', tenant => ''acme'')'), ('SELECT jobq.cancel_jobs(tenant => ''acme'')'),
  ('SELECT jobq.health()'), ('SELECT jobq.pause_job_type(''mail'')'), ('SELECT options FROM jobq.job_types'), ('SELECT name FROM jobq.job_types'), ('UPDATE jobq.queue SET tenant = NULL')) v(what);

-- admin of a tenant: jobs of other tenants are hidden
SELECT jobq.grant_access('jobq_regress_admin', 'admin', 'acme', '{mail}');
SELECT call || ': ' || test.value_as('jobq_regress_admin', format('SELECT jobq.' || call, id)) FROM (VALUES ('cancel_job(%L)'), ('retry_job(%L)'), ('alter_job(%L, priority => 1)'), ('rerun_job(%L) IS NULL')) v(call),
  unnest(ARRAY[:'theirs', :'nobodys']::uuid[]) id;
SELECT call || ': ' || test.value_as('jobq_regress_admin', 'SELECT jobq.' || call) FROM (VALUES ('cancel_jobs(tenant => ''beta'')'), ('cancel_jobs(tenant => '''')'), ('cancel_jobs(''report'')'),
  ('purge_tenant(''beta'')'), ('purge_tenant(''acme'')'), ('pause_job_type(''mail'')'), ('create_job_type(''x'', ''test.ok(jsonb)'')'), ('retry_dead_letters()'), ('purge_dead_letters(older_than => ''0'')')) v(call);
SELECT test.value_as('jobq_regress_admin', format('SELECT jobq.alter_job(%L, priority => 1)', :'mine')), test.value_as('jobq_regress_admin', format('SELECT jobq.cancel_job(%L)', :'mine')),
       test.value_as('jobq_regress_admin', format('SELECT jobq.retry_job(%L)', :'mine')), test.value_as('jobq_regress_admin', format('SELECT jobq.cancel_job(%L)', :'mine'));
SELECT test.value_as('jobq_regress_admin', 'SELECT jobq.cancel_jobs(payload_contains => ''{}'')');
SELECT tenant, job_type, status, count(*) FROM jobq.jobs GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- the functions behind the view, called directly: running jobs of other tenants are unknown
CREATE FUNCTION test.naps(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.set_progress(50, '{"secret": 1}'), pg_advisory_xact_lock(4712); END $$;
SELECT jobq.create_job_type('naps', 'test.naps(jsonb)', keep_completed => '0');
SELECT jobq.enqueue('naps', tenant => 'beta') AS naps FROM pg_advisory_lock(4712) \gset
SELECT test.wait_until($$SELECT status = 'running' AND progress_data IS NOT NULL FROM jobq.jobs WHERE job_type = 'naps'$$);
CREATE FUNCTION test.live(id uuid) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', jobq_internal._live_status(id, 0, 'pending'), jobq_internal._live_attempts(id, 0, 'pending', 7), jobq_internal._live_runs(id, 0, 'pending', 7),
                   jobq_internal._live_started_at(id, 0, 'pending', NULL) IS NULL, jobq_internal._live_worker(id, 0, 'pending', NULL) IS NULL,
                   jobq_internal._live_progress(id, 0, 'pending', NULL), jobq_internal._live_progress_data(id, 0, 'pending', NULL)) $$;
SELECT role, test.value_as('jobq_regress_' || role, format('SELECT test.live(%L)', :'naps')) FROM unnest('{app,reader,admin}'::text[]) role;
SELECT test.live(:'naps');
SELECT jobq.grant_access('jobq_regress_reader', 'read', 'beta');
SELECT test.value_as('jobq_regress_reader', format('SELECT test.live(%L)', :'naps')), test.value_as('jobq_regress_reader', $$SELECT concat_ws(' ', status, attempts, progress, progress_data) FROM jobq.jobs WHERE job_type = 'naps'$$);
SELECT jobq.revoke_access('jobq_regress_reader', 'read');
SELECT role, test.value_as('jobq_regress_' || role, format('SELECT string_agg(jobq_internal._type_name(i), '' '' ORDER BY jobq_internal._type_name(i)) FROM unnest(%L::int[]) i', (SELECT array_agg(id) FROM jobq.job_types)))
  FROM unnest('{app,reader}'::text[]) role;
SELECT pg_advisory_unlock(4712), test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'naps')$$);
SELECT jobq.drop_job_type('naps');

-- only a role with read access to all jobs learns the tenant of the oldest job
BEGIN;
SELECT jobq.resume_job_type('mail'), jobq.grant_access('jobq_regress_chief', 'read');
SELECT jobq.enqueue('mail', tenant => 'beta') IS NOT NULL;
SELECT role, test.value_as('jobq_regress_' || role, $$SELECT jobq.health()->'details'->>'oldest_waiting_job' IS NULL$$) FROM unnest('{reader,chief}'::text[]) role;
ROLLBACK;

-- a restricted role replaces its own jobs only; a job that a free role has
-- replaced belongs to the free role
BEGIN;
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', '{"of": "app"}', unique_key => 'k', tenant => 'acme', metadata => '{"of": "app"}')$$),
       test.error_as('jobq_regress_app2', $$SELECT jobq.enqueue('mail', '{"of": "app2"}', unique_key => 'k', tenant => 'acme', on_conflict => 'replace')$$);
SELECT role, test.value_as('jobq_regress_' || role, $$SELECT concat_ws(' ', payload, metadata) FROM jobq.jobs WHERE unique_key = 'k'$$) FROM unnest('{app,app2}'::text[]) role;
-- metadata is replaced if given, and does not change the owner of the job
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', '{"of": 2}', unique_key => 'k', tenant => 'acme', on_conflict => 'replace', metadata => '{"of": "app"}')$$),
       test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', '{"of": 3}', unique_key => 'k', tenant => 'acme', on_conflict => 'replace')$$);
SELECT test.value_as('jobq_regress_app', $$SELECT concat_ws(' ', payload, metadata) FROM jobq.jobs WHERE unique_key = 'k'$$);
SELECT jobq.enqueue('mail', '{"of": "nobody"}', unique_key => 'k', tenant => 'acme', on_conflict => 'replace') IS NOT NULL;
SELECT test.value_as('jobq_regress_app', $$SELECT count(*) FROM jobq.jobs WHERE unique_key = 'k'$$);
SELECT payload, metadata FROM jobq.jobs WHERE unique_key = 'k';
ROLLBACK;

-- admin of all: types, also pausing types of other owners
SELECT jobq.grant_access('jobq_regress_chief', 'admin');
SELECT call || ': ' || test.error_as('jobq_regress_chief', 'SELECT jobq.' || call) FROM (VALUES ('create_job_type(''chiefs'', ''test.ok(jsonb)'')'),
  ('pause_job_type(''mail'')'), ('resume_job_type(''mail'')'), ('drop_job_type(''mail'')'), ('alter_job_type(''mail'', max_attempts => 2)'), ('drop_job_type(''chiefs'')'),
  ('enqueue(''mail'')'), ('adopt()'), ('reload()'), ('set_tenant_check(NULL)'), ('grant_access(''jobq_regress_chief'', ''enqueue'')'),
  ('create_job_type(''x'', ''test.ok(jsonb)'', run_as => ''jobq_regress_app'')')) v(call);
SELECT jobq.pause_job_type('mail');

-- a tenant check that admits more than the grants
CREATE FUNCTION test.admits(tenant text) RETURNS boolean LANGUAGE sql STABLE RETURN tenant = 'gamma' AND current_user = 'jobq_regress_app';
REVOKE EXECUTE ON FUNCTION test.admits FROM PUBLIC;
SELECT jobq.set_tenant_check('test.admits(text)');
TABLE jobq.tenant_check;
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'gamma')$$);
GRANT EXECUTE ON FUNCTION test.admits TO PUBLIC;
SELECT args || ': ' || test.error_as('jobq_regress_app', format('SELECT jobq.enqueue(%s)', args)) FROM (VALUES ('''mail'', tenant => ''gamma'''), ('''report'', tenant => ''gamma'''), ('''mail'', tenant => ''delta'''), ('''mail''')) v(args);
SELECT test.error_as('jobq_regress_app2', $$SELECT jobq.enqueue('mail', tenant => 'gamma')$$), test.value_as('jobq_regress_reader', $$SELECT count(*) FROM jobq.jobs WHERE tenant = 'gamma'$$);
SELECT jobq.grant_access('jobq_regress_app', 'admin', 'acme');
SELECT test.value_as('jobq_regress_app', $$SELECT count(*) FROM jobq.jobs WHERE tenant = 'gamma'$$), test.value_as('jobq_regress_app', $$SELECT jobq.cancel_jobs(tenant => 'gamma')$$), test.value_as('jobq_regress_app', $$SELECT jobq.cancel_jobs(tenant => 'beta')$$);
SELECT jobq.set_tenant_check(NULL);
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'gamma')$$);

-- names in the check do not resolve to objects of the caller
CREATE TABLE test.members (who name, tenant text);
ALTER TABLE test.members REPLICA IDENTITY FULL;
GRANT SELECT ON test.members TO PUBLIC;
SET check_function_bodies = off;
CREATE FUNCTION test.is_member(t text) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT EXISTS (SELECT FROM members m WHERE m.who = current_user AND m.tenant = t)';
RESET check_function_bodies;
SELECT jobq.set_tenant_check('test.is_member(text)');
BEGIN;
SET LOCAL ROLE jobq_regress_app;
CREATE TEMP TABLE members (who name, tenant text);
INSERT INTO members VALUES ('jobq_regress_app', 'gamma');
SELECT path, set_config('search_path', path, true) = path, test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'gamma')$$) FROM unnest('{public,"pg_temp, test",pg_temp}'::text[]) path;
RESET ROLE;
INSERT INTO test.members VALUES ('jobq_regress_app', 'gamma');
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'gamma')$$), current_setting('search_path');
-- the function's own search_path wins
ALTER FUNCTION test.is_member SET search_path = pg_temp;
DELETE FROM test.members;
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'gamma')$$), current_setting('search_path');
ROLLBACK;
SELECT jobq.set_tenant_check(NULL);

-- revoked: rights that no grant needs any more are gone
SELECT jobq.revoke_access('jobq_regress_app', 'admin');
SELECT jobq.revoke_access('jobq_regress_app', 'enqueue', 'beta'), jobq.revoke_access('jobq_regress_app', 'enqueue', job_types => '{report}');
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'acme')$$);
SELECT jobq.grant_access('jobq_regress_app', 'enqueue', 'acme/eu', '{mail,report}');
SELECT jobq.revoke_access('jobq_regress_app', 'enqueue', 'acme', '{mail}');
SELECT role, access, tenant, job_types FROM jobq.access WHERE role = 'jobq_regress_app';
SELECT jobq.revoke_access('jobq_regress_app', 'enqueue');
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('mail', tenant => 'acme')$$), test.error_as('jobq_regress_app', $$SELECT count(*) FROM jobq.jobs$$);
SELECT count(*) FROM pg_shdepend WHERE refobjid = 'jobq_regress_app'::regrole;
-- a renamed role keeps its grants; DROP ROLE removes them
ALTER ROLE jobq_regress_app2 RENAME TO jobq_regress_renamed;
CREATE ROLE jobq_regress_app2 LOGIN;
SELECT test.error_as('jobq_regress_renamed', $$SELECT jobq.enqueue('mail', tenant => 'acme')$$), test.error_as('jobq_regress_app2', $$SELECT jobq.enqueue('mail', tenant => 'acme')$$);
SELECT jobq.grant_access('jobq_regress_app2', 'read', 'delta');
SELECT role, access, tenant FROM jobq.access WHERE role IN ('jobq_regress_app2', 'jobq_regress_renamed') ORDER BY 1;
DROP OWNED BY jobq_regress_app2;
DROP ROLE jobq_regress_app2;
CREATE ROLE jobq_regress_app2 LOGIN;
SELECT jobq.grant_access('jobq_regress_app2', 'read', 'beta');
SELECT role, tenant FROM jobq.access WHERE role = 'jobq_regress_app2';
-- lost rows of the table remove rights and give none
DELETE FROM jobq.access WHERE role = 'jobq_regress_renamed';
SELECT test.error_as('jobq_regress_renamed', $$SELECT jobq.enqueue('mail', tenant => 'acme')$$);
-- a GRANT by hand, to a role without grant_access, reaches every tenant
GRANT EXECUTE ON FUNCTION jobq.enqueue TO jobq_regress_app;
SELECT test.error_as('jobq_regress_app', $$SELECT jobq.enqueue('report', tenant => 'beta')$$);

-- a type may require a tenant
SELECT jobq.create_job_type('tenants', 'test.ok(jsonb)', options => '{"require_tenant": true}');
SELECT jobq.pause_job_type('tenants');
SELECT test.error_of($$SELECT jobq.enqueue('tenants')$$), test.error_of($$SELECT jobq.enqueue('tenants', tenant => '')$$);
SELECT test.error_of($$SELECT jobq.enqueue('tenants', tenant => 'acme')$$);
-- jobq.tenant is the job's while its handler runs, whatever the setting of the session
CREATE FUNCTION test.tenant(payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(current_setting('jobq.tenant')) $$;
SELECT jobq.create_job_type('tenant', 'test.tenant(jsonb)', max_attempts => 1);
SET jobq.tenant = 'session';
BEGIN;
SELECT jobq.enqueue('tenant', tenant => 'acme') AS id \gset
SELECT (jobq.run_inline(:'id')).result, current_setting('jobq.tenant');
SELECT jobq.enqueue('tenant') AS id \gset
UPDATE jobq.queue SET tenant = NULL WHERE id = :'id';
SELECT (jobq.run_inline(:'id')).result, current_setting('jobq.tenant');
COMMIT;
RESET jobq.tenant;

-- removal of a tenant
SELECT tenant, count(*) FROM jobq.jobs WHERE tenant ~ '^acme' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM jobq.jobs WHERE tenant = 'acme' \gset
SELECT jobq.purge_tenant('acme') = :count;
SELECT tenant, count(*) FROM jobq.jobs WHERE tenant ~ '^acme' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM jobq.events WHERE tenant = 'acme';
SELECT test.value_as('jobq_regress_chief', 'SELECT jobq.purge_tenant(''acme/eu'') > 0');

SET client_min_messages = warning;
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
DELETE FROM jobq.access;
DROP OWNED BY jobq_regress_app, jobq_regress_app2, jobq_regress_group, jobq_regress_reader, jobq_regress_admin, jobq_regress_chief, jobq_regress_renamed;
DROP ROLE jobq_regress_app, jobq_regress_app2, jobq_regress_group, jobq_regress_reader, jobq_regress_admin, jobq_regress_chief, jobq_regress_renamed;
