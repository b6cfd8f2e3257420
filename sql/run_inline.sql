-- run_inline: a job within the transaction of a test
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE test.log (what text, who text);
CREATE FUNCTION test.note(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE job jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO test.log VALUES (payload->>'what', current_user);
  IF payload ? 'fail' THEN RAISE EXCEPTION 'failed' USING ERRCODE = 'ZZ001'; END IF;
  IF payload ? 'skip' THEN PERFORM jobq.skip('skipped'); END IF;
  IF payload ? 'snooze' THEN PERFORM jobq.snooze('1 hour'); END IF;
  IF payload ? 'sleep' THEN PERFORM pg_sleep(60); END IF;
  PERFORM jobq.set_progress(50);
  RETURN jsonb_build_object('attempts', job.attempts, 'status', job.status);
END $$;
SELECT jobq.create_job_type('note', 'test.note(jsonb)', max_attempts => 2);
SELECT jobq.create_job_type('tool', command => '{true}');

BEGIN;
SELECT jobq.enqueue('note', '{"what": "one"}') AS id \gset
SELECT job_type, status, result, attempts, runs, progress, worker IS NOT NULL AS worker, started_at IS NOT NULL AS started FROM jobq.run_inline(:'id');
SELECT status FROM jobq.jobs WHERE id = :'id';
SELECT what, who = current_user AS me FROM test.log;
SELECT (jobq.current_job()).id IS NULL AS over, current_user = session_user AS still_me;
SELECT jobq.enqueue('note', '{"what": "two", "fail": 1}') AS id \gset
SELECT status, error_code, error_msg, attempts, runs FROM jobq.run_inline(:'id');
SELECT status, error_code, error_msg, attempts, runs FROM jobq.run_inline(:'id');
SELECT jobq.enqueue('note', '{"what": "three", "skip": 1}') AS id \gset
SELECT status, error_msg FROM jobq.run_inline(:'id');
SELECT jobq.enqueue('note', '{"what": "four", "snooze": 1}') AS id \gset
SELECT status, attempts, runs, scheduled_for > clock_timestamp() AS later FROM jobq.run_inline(:'id');
SELECT jobq.enqueue('note', '{"what": "five", "sleep": 1}', timeout => '20ms', max_attempts => 1) AS id \gset
SELECT status, error_code, error_msg FROM jobq.run_inline(:'id');
SELECT what FROM test.log;
ROLLBACK;
SELECT count(*) FROM jobq.jobs;
SELECT count(*) FROM test.log;

-- as the role of the type
SET client_min_messages = warning;
DROP ROLE IF EXISTS jobq_regress_handler;
RESET client_min_messages;
CREATE ROLE jobq_regress_handler LOGIN;
GRANT INSERT, SELECT ON test.log TO jobq_regress_handler;
GRANT USAGE ON SCHEMA test TO jobq_regress_handler;
SELECT jobq.alter_job_type('note', run_as => 'jobq_regress_handler');
BEGIN;
SELECT jobq.enqueue('note', '{"what": "six"}') AS id \gset
SELECT status, error_msg, result FROM jobq.run_inline(:'id');
SELECT what, who FROM test.log;
SELECT current_user = session_user AS me_again;
ROLLBACK;

-- inside of a query that modifies, in triggers of all kinds
BEGIN;
CREATE TABLE test.asked (id uuid, note text);
ALTER TABLE test.asked REPLICA IDENTITY FULL;
SELECT jobq.enqueue('note', '{"what": "with"}', delay => '1 hour') AS id \gset
WITH x AS (INSERT INTO test.asked (note) VALUES ('x') RETURNING note) SELECT x.note, j.status FROM x, jobq.run_inline(:'id') j;
SELECT jobq.enqueue('note', '{"what": "in values"}', delay => '1 hour') AS id \gset
INSERT INTO test.asked (note) SELECT status FROM jobq.run_inline(:'id');
CREATE FUNCTION test.runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.note := concat_ws(' ', TG_WHEN, (SELECT concat_ws(' ', status, error_code) FROM jobq.run_inline(NEW.id)));
  INSERT INTO test.asked (note) VALUES (NEW.note);
  RETURN NEW;
END $$;
CREATE TRIGGER runs AFTER INSERT ON test.asked FOR EACH ROW WHEN (NEW.id IS NOT NULL) EXECUTE FUNCTION test.runs();
INSERT INTO test.asked SELECT jobq.enqueue('note', jsonb_build_object('what', 'after ' || n), delay => '1 hour') FROM generate_series(1, 2) n;
CREATE TRIGGER runs_first BEFORE UPDATE ON test.asked FOR EACH ROW WHEN (NEW.id IS NOT NULL) EXECUTE FUNCTION test.runs();
UPDATE test.asked SET id = jobq.enqueue('note', '{"what": "before", "fail": 1}', delay => '1 hour', max_attempts => 1) WHERE note = 'x';
DROP TRIGGER runs ON test.asked;
CREATE CONSTRAINT TRIGGER runs AFTER INSERT ON test.asked DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id IS NOT NULL) EXECUTE FUNCTION test.runs();
INSERT INTO test.asked SELECT jobq.enqueue('note', '{"what": "deferred"}', delay => '1 hour');
SET CONSTRAINTS test.runs IMMEDIATE;
SELECT note, id IS NOT NULL AS asks FROM test.asked ORDER BY 1, 2;
SELECT what, who FROM test.log ORDER BY what;
ROLLBACK;

-- a cancel of the caller's statement ends that statement, and is no outcome of the job
CREATE FUNCTION test.sleeps(payload jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
SELECT jobq.create_job_type('sleeps', 'test.sleeps(jsonb)');
BEGIN;
SELECT jobq.enqueue('sleeps') AS id \gset
SAVEPOINT before;
SET LOCAL statement_timeout = '200ms';
SELECT status FROM jobq.run_inline(:'id');
ROLLBACK TO before;
SELECT status, attempts FROM jobq.jobs WHERE id = :'id';
ROLLBACK;

-- jobs that cannot be run inline
BEGIN;
SELECT jobq.enqueue('tool') AS id \gset
SELECT test.error_of(format('SELECT jobq.run_inline(%L)', :'id'));
SELECT jobq.enqueue('note', '{"what": "seven"}') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT test.error_of(format('SELECT jobq.run_inline(%L)', :'id'));
SELECT test.error_of('SELECT jobq.run_inline(NULL)');
SELECT test.error_of('SELECT jobq.run_inline(gen_random_uuid())');
ROLLBACK;
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
DROP OWNED BY jobq_regress_handler;
DROP ROLE jobq_regress_handler;
