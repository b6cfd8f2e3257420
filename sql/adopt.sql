-- adopt: jobs of a restored dump wait until adopt() is called in this database
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('a', 'test.ok(jsonb)');
SELECT jobq.enqueue('a', '{"n": 0}') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT jobq_internal._home_is_ours();
-- in its own database jobq has nothing to adopt
SELECT home_id AS home FROM jobq.home \gset
SELECT jobq.adopt();
SELECT home_id = :home AS same FROM jobq.home;
SELECT jobq.enqueue('a', '{"n": 1}') AS id \gset
SELECT status FROM test.ended(:'id');

-- as after a restore: the row names a transaction that did not write it
BEGIN;
UPDATE jobq.home SET self_xid = '3';
UPDATE jobq.job_types SET paused = paused;
SELECT jobq_internal._home_is_ours();
SELECT jobq.enqueue('a', '{"n": 2}') AS id \gset
COMMIT;
SELECT test.wait_until($$SELECT jobq.health()->'checks'->'identity'->>'status' <> 'healthy'$$);
SELECT status, runs FROM jobq.wait_for(:'id', '100 ms');
SELECT status, runs FROM jobq.jobs WHERE id = :'id';
SELECT jobq.adopt();
SELECT jobq_internal._home_is_ours(), count(*) FROM jobq.home;
SELECT status, result, runs FROM test.ended(:'id');

-- a row of another home does not run beside the rows of this one, until it is adopted
SELECT jobq.pause_job_type('a');
SELECT jobq.enqueue('a', '{"n": 3}') AS id \gset
UPDATE jobq.queue SET home_id = home_id + 1 WHERE id = :'id';
SELECT jobq.resume_job_type('a');
SELECT jobq.enqueue('a', '{"n": 4}') AS other \gset
SELECT status FROM test.ended(:'other');
SELECT status, runs FROM jobq.jobs WHERE id = :'id';
SELECT jobq.adopt();
SELECT status, result, runs FROM test.ended(:'id');
