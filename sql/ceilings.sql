-- A role restricted to its grants may lower the limits of a job type, but not raise them
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE ROLE jobq_regress_ceiling_tenant;
CREATE ROLE jobq_regress_ceiling_other;
CREATE ROLE jobq_regress_ceiling_everywhere;
CREATE ROLE jobq_regress_ceiling_admin;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA test TO PUBLIC;
SELECT jobq.create_job_type('capped', 'test.ok(jsonb)', max_attempts => 3, backoff_base => '10s', backoff_max => '1min',
  timeout => '1min', base_priority => 5, keep_completed => '7 days', keep_dead => '30 days',
  options => '{"max_unique_for": "1 hour"}');
SELECT jobq.create_job_type('free', 'test.ok(jsonb)', timeout => '0', options => '{"max_priority": 20}');
SELECT jobq.pause_job_type('capped'), jobq.pause_job_type('free');
SELECT jobq.grant_access('jobq_regress_ceiling_tenant', 'enqueue', 'acme'), jobq.grant_access('jobq_regress_ceiling_other', 'enqueue', 'acme'),
  jobq.grant_access('jobq_regress_ceiling_everywhere', 'enqueue'), jobq.grant_access('jobq_regress_ceiling_admin', 'admin', 'acme');

CREATE FUNCTION test.ask(job_type text, arguments text) RETURNS text LANGUAGE sql AS $$
  SELECT arguments || ': ' || test.error_of(format('SELECT jobq.enqueue(%L, tenant => ''acme'', %s)', job_type, arguments))
$$;
SET ROLE jobq_regress_ceiling_tenant;
-- lower, or equal
SELECT test.ask('capped', a) FROM (VALUES ('timeout => ''59s'''), ('timeout => ''1min'''), ('max_attempts => 3'), ('max_attempts => 1'),
  ('priority => 5'), ('priority => -100'), ('keep_completed => ''7 days'''), ('keep_dead => ''30 days'''), ('keep_completed => ''0'''),
  ('unique_key => ''a'', unique_for => ''1 hour'''), ('backoff => ''{"base": "10s"}'''), ('backoff => ''{"base": "2min", "type": "fixed"}'''),
  ('backoff => ''{"base": "2min", "max": "1h", "jitter": 0}''')) v(a);
-- higher
SELECT test.ask('capped', a) FROM (VALUES ('timeout => ''61s'''), ('timeout => ''0'''), ('max_attempts => 4'), ('priority => 6'),
  ('keep_completed => ''8 days'''), ('keep_dead => ''31 days'''), ('unique_key => ''a'', unique_for => ''61min'''), ('backoff => ''{"base": "9s"}'''),
  ('backoff => ''{"type": "fixed"}'''), ('backoff => ''{"max": "59s"}'''), ('backoff => ''{"jitter": 0.5}'''),
  ('backoff => ''{"base": "0s"}''')) v(a);
-- a type without a time limit; its own ceiling of the priority; 30 days for unique_for
SELECT test.ask('free', a) FROM (VALUES ('timeout => ''0'''), ('timeout => ''10h'''), ('priority => 20'), ('priority => 21'),
  ('unique_key => ''a'', unique_for => ''30 days'''), ('unique_key => ''b'', unique_for => ''31 days''')) v(a);
-- the other functions that enqueue
SELECT test.error_of($$SELECT jobq.enqueue_many('capped', '{"{}"}', tenant => 'acme', timeout => '2min')$$);
SELECT test.error_of($$SELECT jobq.enqueue_jobs('[{"job_type": "capped", "tenant": "acme", "timeout": "2min"}]')$$);
-- a grant without a tenant: the only ceiling for the priority is the type's own
SET ROLE jobq_regress_ceiling_everywhere;
SELECT test.ask('capped', a) FROM (VALUES ('priority => 100'), ('timeout => ''61s''')) v(a);
SELECT test.ask('free', a) FROM (VALUES ('priority => 20'), ('priority => 21')) v(a);
-- a free role may raise any limit
RESET ROLE;
SELECT test.ask('capped', a) FROM (VALUES ('timeout => ''0'', max_attempts => 1000, priority => 100, keep_completed => ''1 year'',
  unique_key => ''x'', unique_for => ''1 year'', backoff => ''{"base": "0s"}''')) v(a);

-- alter_job by an administrator of a tenant raises nothing either
SELECT jobq.enqueue('capped', tenant => 'acme') AS id, jobq.enqueue('free', tenant => 'acme') AS other \gset
SET ROLE jobq_regress_ceiling_admin;
SELECT test.error_of(format('SELECT jobq.alter_job(%L, timeout => ''0'')', :'id'));
SELECT test.error_of(format('SELECT jobq.alter_job(%L, max_attempts => 4)', :'id'));
SELECT jobq.alter_job(:'id', timeout => '30s', priority => 6, max_attempts => 2);
SELECT test.error_of(format('SELECT jobq.alter_job(%L, priority => 21)', :'other'));
RESET ROLE;
UPDATE jobq.queue SET status = 'retry' WHERE id = :'id';
SET ROLE jobq_regress_ceiling_admin;
SELECT test.error_of(format('SELECT jobq.retry_job(%L, max_attempts => 4)', :'id'));
RESET ROLE;
CREATE FUNCTION test.fails(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
SELECT jobq.create_job_type('fails', 'test.fails(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('fails', tenant => 'acme') AS dead \gset
SELECT (test.ended(:'dead')).status;
SET ROLE jobq_regress_ceiling_admin;
SELECT test.error_of($$SELECT jobq.retry_dead_letters('fails', max_attempts => 2)$$);
SELECT test.error_of(format('SELECT jobq.retry_job(%L, max_attempts => 2)', :'dead'));
RESET ROLE;

-- replace takes over the caller's own jobs only
SET ROLE jobq_regress_ceiling_tenant;
SELECT jobq.enqueue('capped', '{"of": "tenant"}', tenant => 'acme', unique_key => 'k') AS id \gset
SELECT jobq.enqueue('capped', '{"of": "tenant again"}', tenant => 'acme', unique_key => 'k', on_conflict => 'replace') = :'id';
SET ROLE jobq_regress_ceiling_other;
SELECT test.error_of($$SELECT jobq.enqueue('capped', '{"of": "other"}', tenant => 'acme', unique_key => 'k', on_conflict => 'replace')$$);
SELECT jobq.enqueue('capped', tenant => 'acme', unique_key => 'k') = :'id';
SELECT test.error_of($$SELECT jobq.enqueue('capped', tenant => 'acme', unique_key => 'k', on_conflict => 'error')$$);
RESET ROLE;
SELECT payload FROM jobq.queue WHERE id = :'id';
-- a restricted role does not own the jobs of a free role; a free role replaces any
SELECT jobq.enqueue('capped', '{"of": "owner"}', tenant => 'acme', unique_key => 'k', on_conflict => 'replace') = :'id';
SET ROLE jobq_regress_ceiling_tenant;
SELECT test.error_of($$SELECT jobq.enqueue('capped', tenant => 'acme', unique_key => 'k', on_conflict => 'replace')$$);
RESET ROLE;
SELECT payload FROM jobq.queue WHERE id = :'id';

SET client_min_messages = warning;
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
DELETE FROM jobq.access;
DROP OWNED BY jobq_regress_ceiling_tenant, jobq_regress_ceiling_other, jobq_regress_ceiling_everywhere, jobq_regress_ceiling_admin;
DROP ROLE jobq_regress_ceiling_tenant, jobq_regress_ceiling_other, jobq_regress_ceiling_everywhere, jobq_regress_ceiling_admin;
