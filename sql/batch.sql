-- Batches: many short jobs share a commit, invisibly to handlers
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE test.done (n int PRIMARY KEY, xid xid8 DEFAULT pg_current_xact_id());
CREATE FUNCTION test.short(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'fail' THEN
    INSERT INTO test.done VALUES (-1);
    RAISE EXCEPTION 'no';
  END IF;
  INSERT INTO test.done VALUES ((payload->>'n')::int);
END $$;
SELECT jobq.create_job_type('short', 'test.short(jsonb)', max_attempts => 1);

-- every job runs once; a failing job affects no other
SELECT count(*) FROM jobq.enqueue_many('short', ARRAY(SELECT CASE WHEN n % 100 = 0 THEN jsonb_build_object('n', n, 'fail', true)
                                                              ELSE jsonb_build_object('n', n) END FROM generate_series(1, 5000) n));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT status, attempts, runs, count(*) FROM jobq.jobs GROUP BY 1, 2, 3 ORDER BY 1;
SELECT count(*), min(n), max(n), count(DISTINCT xid) < 4950 AS shared FROM test.done;

-- options.batch = false: one commit per job
TRUNCATE test.done;
SELECT jobq.alter_job_type('short', options => '{"batch": false}');
SELECT count(*) FROM jobq.enqueue_many('short', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 500) n));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT count(*), count(DISTINCT xid) FROM test.done;

-- settings, temporary tables, deferred constraints, notifications of one job do not reach another
CREATE TABLE test.parents (id int PRIMARY KEY);
CREATE TABLE test.children (parent int REFERENCES test.parents DEFERRABLE INITIALLY IMMEDIATE);
CREATE FUNCTION test.messy(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  n int := payload->'n';
  before text := current_setting('work_mem') || current_setting('search_path') || coalesce(current_setting('messy.x', true), '');
BEGIN
  PERFORM set_config('work_mem', (100 + n) || 'kB', true), set_config('messy.x', 'set', true), set_config('search_path', 'test', false);
  IF n % 10 = 0 THEN
    CREATE TEMP TABLE tmp (i int) ON COMMIT DROP;
  ELSIF n % 10 = 1 THEN
    SET CONSTRAINTS ALL DEFERRED;
    INSERT INTO test.children VALUES (n);
  ELSIF n % 10 = 2 THEN
    PERFORM pg_advisory_xact_lock(1);
    LOCK TABLE test.parents IN EXCLUSIVE MODE;
  END IF;
  RETURN to_jsonb(before);
END $$;
SELECT jobq.create_job_type('messy', 'test.messy(jsonb)', max_attempts => 1);
SELECT count(*) FROM jobq.enqueue_many('messy', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 300) n));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT (payload->'n')::int % 10 AS kind, status, error_code, count(*) FROM jobq.jobs WHERE job_type = 'messy' GROUP BY 1, 2, 3 ORDER BY 1, 2;
SELECT count(DISTINCT result) FROM jobq.jobs WHERE job_type = 'messy' AND status = 'completed';

-- jobs that deadlock only because they share a batch lose nothing and are charged no attempt
CREATE TABLE test.accounts (id int PRIMARY KEY, balance int);
INSERT INTO test.accounts SELECT i, 0 FROM generate_series(1, 20) i;
CREATE FUNCTION test.pay(payload jsonb) RETURNS void LANGUAGE sql
  BEGIN ATOMIC UPDATE test.accounts SET balance = balance + 1 WHERE id = (payload->'id')::int; END;
SELECT jobq.create_job_type('pay', 'test.pay(jsonb)');
SELECT count(*) FROM jobq.enqueue_many('pay', ARRAY(SELECT jsonb_build_object('id', 1 + (n * 7919) % 20) FROM generate_series(1, 4000) n));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT sum(balance) FROM test.accounts;
SELECT status, attempts, count(*) FROM jobq.jobs WHERE job_type = 'pay' GROUP BY 1, 2 ORDER BY 1, 2;

-- A finished job and the later handlers of its batch: the job is in a table, its key is
-- free, and they can't undo it
CREATE FUNCTION test.peek(payload jsonb) RETURNS jsonb LANGUAGE sql
  BEGIN ATOMIC SELECT to_jsonb(count(*)) FROM jobq.jobs WHERE job_type = 'peek'; END;
SELECT jobq.create_job_type('peek', 'test.peek(jsonb)');
SELECT count(*) FROM jobq.enqueue_many('peek', array_fill('{}'::jsonb, ARRAY[200]));
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.queue)$$);
SELECT result, count(*) FROM jobq.jobs WHERE job_type = 'peek' GROUP BY 1;

-- A run of more than 100 ms returns the job, to run alone: on a slow machine the next
-- job may come first, and waits.
CREATE TABLE test.ran (what text, n int);
CREATE FUNCTION test.after(what text, n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF n > 1 AND NOT EXISTS (SELECT FROM test.ran r WHERE r.what = after.what AND r.n = after.n - 1) THEN
    RAISE 'not my turn' USING ERRCODE = 'JQ003', DETAIL = '1 ms';
  END IF;
  INSERT INTO test.ran VALUES (what, n);
END $$;
CREATE FUNCTION test.chain(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'again' THEN
    RETURN NULL;
  END IF;
  PERFORM test.after('chain', (payload->'n')::int);
  IF payload->>'n' > '1' THEN
    RETURN to_jsonb(jobq.enqueue('chain', payload || '{"again": true}', unique_key => ((payload->'n')::int - 1)::text));
  END IF;
  RETURN NULL;
END $$;
SELECT jobq.create_job_type('chain', 'test.chain(jsonb)', max_concurrent => 1);
SELECT count(*) FROM jobq.enqueue_jobs((SELECT jsonb_agg(jsonb_build_object('job_type', 'chain', 'unique_key', n::text,
                                                                         'payload', jsonb_build_object('n', n))) FROM generate_series(1, 200) n));
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.queue)$$);
SELECT payload ? 'again' AS again, status, attempts, count(*) FROM jobq.jobs WHERE job_type = 'chain' GROUP BY 1, 2, 3 ORDER BY 1;

CREATE FUNCTION test.killer(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM test.after('killer', (payload->'n')::int);
  RETURN to_jsonb(ARRAY(SELECT jobq.cancel_job(j.id) FROM jobq.jobs j
                         WHERE j.job_type = 'killer' AND (j.payload->'n')::int = (killer.payload->'n')::int - 1));
END $$;
SELECT jobq.create_job_type('killer', 'test.killer(jsonb)', max_concurrent => 1);
SELECT count(*) FROM jobq.enqueue_many('killer', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series(1, 100) n));
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.queue)$$);
SELECT status, attempts, count(*) FROM jobq.jobs WHERE job_type = 'killer' GROUP BY 1, 2;

-- a connection that a handler leaves open reaches no other job
SET client_min_messages = warning;
CREATE EXTENSION dblink SCHEMA test;
RESET client_min_messages;
CREATE FUNCTION test.linked(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM test.dblink_connect('c', format('dbname=%s port=%s host=%s application_name=linked', current_database(), current_setting('port'),
                                          split_part(current_setting('unix_socket_directories'), ',', 1)));
  PERFORM test.dblink_exec('c', 'BEGIN');
END $$;
SELECT jobq.create_job_type('linked', 'test.linked(jsonb)', max_attempts => 1);
SELECT count(*) FROM jobq.enqueue_many('linked', array_fill('{}'::jsonb, ARRAY[20]));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT status, error_msg, attempts, count(*) FROM jobq.jobs WHERE job_type = 'linked' GROUP BY 1, 2, 3;
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'linked')$$);
