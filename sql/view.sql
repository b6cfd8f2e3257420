-- The view jobq.jobs: its plans, computed columns
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('a', 'test.ok(jsonb)');
-- the plan of a query: tables by their role, nodes
CREATE FUNCTION test.plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  plan text;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT json, COSTS off) ' || query INTO plan;
  RETURN (SELECT string_agg(DISTINCT node, ', ') FROM (
    SELECT (regexp_matches(plan, '"Node Type": "([^"]+)"', 'g'))[1] AS node
    UNION SELECT regexp_replace((regexp_matches(plan, '"Relation Name": "([^"]+)"', 'g'))[1], '(_\d+)+$', '')) n);
END $$;
SELECT jobq_internal._ensure_partition('jobq.history', now() + interval '1 day'), jobq_internal._ensure_partition('jobq.history', now() + interval '2 days');
-- with any statistics of the tables
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
-- the newest: from the indexes on id, without a sort
SELECT test.plan('SELECT * FROM jobq.jobs ORDER BY id DESC LIMIT 50');
SELECT test.plan('SELECT * FROM jobq.jobs WHERE id < gen_random_uuid() ORDER BY id DESC LIMIT 50');
SELECT test.plan('SELECT * FROM jobq.jobs WHERE id = ''00000000-0000-0000-0000-000000000000''');
RESET enable_seqscan;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
-- a status reads only the tables that can have it
SELECT status, test.plan(format('SELECT * FROM jobq.jobs WHERE status = %L', status)) FROM unnest(enum_range(NULL::jobq.job_status)) status;
RESET enable_bitmapscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;
RESET max_parallel_workers_per_gather;

-- it runs with the rights of the caller
SELECT reloptions FROM pg_class WHERE oid = 'jobq.jobs'::regclass;

-- it can be joined, counted, and read in a subtransaction
SELECT jobq.pause_job_type('a');
SELECT jobq.enqueue('a', '{"n": 1}') AS id \gset
SELECT a.payload, b.payload FROM jobq.jobs a JOIN jobq.jobs b USING (id);
SELECT count(*) FROM jobq.jobs;
DO $$
BEGIN
  PERFORM * FROM jobq.jobs WHERE status = 'running';
  BEGIN
    PERFORM 1 / count(*) FROM jobq.jobs WHERE status = 'running';
  EXCEPTION WHEN division_by_zero THEN
    PERFORM * FROM jobq.jobs;
  END;
END $$;
DECLARE c CURSOR WITH HOLD FOR SELECT job_type, status FROM jobq.jobs;
FETCH ALL c;
CLOSE c;

-- a job that runs is running in every read, never pending and completed around it
CREATE FUNCTION test.naps(payload jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(4711)';
SELECT jobq.create_job_type('naps', 'test.naps(jsonb)');
SELECT jobq.enqueue('naps') AS id FROM pg_advisory_lock(4711) \gset
DO $$
DECLARE
  seen text[] := '{}';
  now_is text;
BEGIN
  LOOP
    SELECT status INTO now_is FROM jobq.jobs WHERE job_type = 'naps';
    IF now_is IS DISTINCT FROM seen[cardinality(seen)] THEN seen := seen || now_is; END IF;
    IF now_is = 'running' THEN PERFORM pg_advisory_unlock_all(); END IF;
    EXIT WHEN now_is = 'completed' OR cardinality(seen) > 5;
  END LOOP;
  IF array_to_string(seen, ',') NOT IN ('pending,running,completed', 'running,completed') THEN RAISE WARNING 'seen: %', seen; END IF;
END $$;

-- names of types that were dropped, and of none
SELECT jobq.drop_job_type('a', true);
SELECT job_type, status FROM jobq.jobs WHERE payload = '{"n": 1}';
SELECT jobq_internal._type_name(-1) IS NULL AS none;
