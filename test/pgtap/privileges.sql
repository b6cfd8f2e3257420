-- Nothing is granted to PUBLIC beyond jobq.version().
BEGIN;
SELECT plan(11);
CREATE ROLE jobq_pgtap_nobody;

SELECT results_eq($$
  SELECT p.proname::text COLLATE "default" FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
   WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND a.grantee = 0
$$, ARRAY['version'], 'functions');
SELECT is_empty($$
  SELECT c.oid::regclass FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'jobq'::regnamespace AND a.grantee = 0
$$, 'tables, views, sequences');
SELECT is_empty($$
  SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
   WHERE c.relnamespace = 'jobq'::regnamespace AND a.attacl IS NOT NULL
$$, 'columns');
SELECT schema_privs_are('jobq', 'jobq_pgtap_nobody', ARRAY['USAGE'], 'the schema, for jobq.version() only');
SELECT schema_privs_are('jobq_internal', 'jobq_pgtap_nobody', ARRAY['USAGE'], 'the schema of internal functions, for functions that run as the caller');
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND p.proname <> 'version'
     AND has_function_privilege('jobq_pgtap_nobody', p.oid, 'EXECUTE')
$$, 'a new role may call nothing else');

SET LOCAL ROLE jobq_pgtap_nobody;
SELECT lives_ok('SELECT jobq.version()', 'every role may call version()');
SELECT throws_ok($$SELECT jobq.enqueue('x')$$, '42501', NULL, 'enqueue takes a right');
SELECT throws_ok($$SELECT jobq_internal._bad('22023', 'x')$$, '42501', NULL, 'an internal function, too');
SELECT throws_ok($$CREATE FUNCTION jobq_internal._mine() RETURNS int LANGUAGE sql RETURN 1$$, '42501', NULL, 'and there is no right to create one');
SELECT throws_ok($$SELECT count(*) FROM jobq.jobs$$, '42501', NULL, 'so does reading');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
