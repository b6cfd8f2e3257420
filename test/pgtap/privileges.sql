-- Nothing is granted to PUBLIC beyond jobq.version().
BEGIN;
SELECT plan(8);
CREATE ROLE jobq_pgtap_nobody;

SELECT results_eq($$
  SELECT p.proname::text COLLATE "default" FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
   WHERE p.pronamespace = 'jobq'::regnamespace AND a.grantee = 0
$$, ARRAY['version'], 'functions');
SELECT is_empty($$
  SELECT c.oid::regclass FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'jobq'::regnamespace AND a.grantee = 0
$$, 'tables, views, sequences');
SELECT is_empty($$
  SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
   WHERE c.relnamespace = 'jobq'::regnamespace AND a.attacl IS NOT NULL
$$, 'columns');
SELECT schema_privs_are('jobq', 'jobq_pgtap_nobody', ARRAY['USAGE'], 'the schema, for jobq.version() only');
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname <> 'version'
     AND has_function_privilege('jobq_pgtap_nobody', p.oid, 'EXECUTE')
$$, 'a new role may call nothing else');

SET LOCAL ROLE jobq_pgtap_nobody;
SELECT lives_ok('SELECT jobq.version()', 'every role may call version()');
SELECT throws_ok($$SELECT jobq.enqueue('x')$$, '42501', NULL, 'enqueue takes a right');
SELECT throws_ok($$SELECT count(*) FROM jobq.jobs$$, '42501', NULL, 'so does reading');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
