-- Errors as a client sees them: hints to errors that PostgreSQL raises before any
-- code of jobq runs, and no CONTEXT but the caller's own
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT errors
CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION test.enqueue() RETURNS void LANGUAGE sql RETURN NULL;
REVOKE EXECUTE ON FUNCTION test.enqueue FROM PUBLIC;
CREATE ROLE jobq_regress_stranger;

-- a handler without argument types
SELECT jobq.create_job_type('hints', 'test.ok');
SELECT jobq.create_job_type(handler => 'test.ok', name => 'hints');
SELECT 'test.ok'::regprocedure;
SELECT jobq.create_job_type('hints', 'test.ok(jsonb)');
SELECT jobq.alter_job_type('hints', 'test.ok');

-- a role without access
SET ROLE jobq_regress_stranger;
SELECT jobq.enqueue('hints');
SELECT jobq.enqueue_jobs('[]');
SELECT jobq.cancel_job(gen_random_uuid());
SELECT test.enqueue();
RESET ROLE;
SELECT jobq.grant_access('jobq_regress_stranger', 'enqueue', 'acme');
SET ROLE jobq_regress_stranger;
SELECT jobq.enqueue('hints', tenant => 'beta');
RESET ROLE;

-- CONTEXT
SELECT jobq.create_job_type('hints', 'test.ok(jsonb)');
DO $$ BEGIN PERFORM jobq.create_job_type('hints', 'test.ok(jsonb)'); END $$;

SELECT jobq.revoke_access('jobq_regress_stranger', 'enqueue', 'acme');
SELECT jobq.drop_job_type('hints');
DROP ROLE jobq_regress_stranger;
