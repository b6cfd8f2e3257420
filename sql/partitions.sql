-- Partitions of history and events: boundaries, names, retention
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

-- the partitions between two times that this test has created
CREATE FUNCTION test.partitions(parent regclass, since timestamptz) RETURNS TABLE(name text, low text, high text) LANGUAGE sql
SET timezone = 'UTC' SET datestyle = 'ISO' AS $$
  SELECT partition::text, low::text, high::text FROM jobq_internal._partitions(parent) WHERE low >= since ORDER BY low
$$;

-- as for the near future, at any time of day
CREATE FUNCTION test.near(moment timestamptz, parent regclass DEFAULT 'jobq.history') RETURNS void LANGUAGE sql AS $$
  SELECT jobq_internal._ensure_partition(parent, moment, moment)
$$;

-- fixed boundaries; a second call changes nothing; neighbours of another width stay
SELECT test.near('2090-03-05 12:34:56+00'), test.near('2090-03-05 00:00+00');
SET jobq.partition_interval = '6h';
SELECT test.near('2090-03-05 23:59:59+00'), test.near('2090-03-06 01:00+00'),
       test.near('2090-03-06 13:00+00');
SET jobq.partition_interval = '30d';
SELECT test.near('2090-03-06 07:00+00'), test.near('2090-03-04 07:00+00');
RESET jobq.partition_interval;
SELECT * FROM test.partitions('jobq.history', '2090-01-01');
SELECT test.near('2090-03-05 12:34:56+00', 'jobq.events');
SELECT * FROM test.partitions('jobq.events', '2090-01-01');
SELECT test.error_of($$SELECT jobq_internal._ensure_partition('jobq.history', NULL)$$);
SELECT test.error_of($$SELECT jobq_internal._ensure_partition('jobq.history', 'infinity')$$);
-- with other settings of the session
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'SQL, DMY';
SELECT test.near('2091-03-05 12:34:56+00');
RESET timezone;
RESET datestyle;
SELECT * FROM test.partitions('jobq.history', '2091-01-01');
-- partitions have the checks that keep them out of plans, and their owner
SELECT count(*) FILTER (WHERE contype = 'c') AS checks FROM pg_constraint WHERE conrelid = 'jobq.history_20910305'::regclass;
SELECT c.relowner = p.relowner AS same_owner FROM pg_class c, pg_class p
 WHERE c.oid = 'jobq.history_20910305'::regclass AND p.oid = 'jobq.history'::regclass;

-- a table of that name that is not attached yet, as during a restore
CREATE TABLE jobq.history_20910310 (LIKE jobq.history INCLUDING ALL);
SELECT test.near('2091-03-10 01:00+00');
SELECT count(*) FROM test.partitions('jobq.history', '2091-03-06');
DROP TABLE jobq.history_20910310;

-- in the far future they get coarser, with fixed boundaries, cut at existing neighbours
CREATE FUNCTION test.bounds(moment timestamptz, at timestamptz) RETURNS text LANGUAGE sql
SET timezone = 'UTC' SET datestyle = 'ISO' AS $$
  SELECT format('%s - %s', low::date, high::date) FROM jobq_internal._partition_bounds(moment, at)
$$;
SELECT d AS days_ahead, test.bounds(timestamptz '2090-01-20 07:00+00' + d * interval '1 day', '2090-01-20 07:00+00')
  FROM unnest('{0,1,31,41,42,60,300,345,346,700,720,2000,3600,5000,20000,40000,300000,1000000,3650000}'::int[]) d;
SELECT max(parts) <= 100 AS few FROM (
  SELECT count(DISTINCT test.bounds(at + d * interval '1 day', at)) AS parts
    FROM generate_series('2090-01-20 07:00+00', '2091-01-20 07:00+00', interval '9 days') at, generate_series(0, 3650, 4) d GROUP BY at) b;
SELECT jobq_internal._ensure_partition('jobq.history', '2092-05-10 12:00+00', '2092-05-01'), jobq_internal._ensure_partition('jobq.history', '2092-05-20 12:00+00', '2090-05-01'),
       jobq_internal._ensure_partition('jobq.history', '2092-05-01 12:00+00', '2092-01-01');
SELECT * FROM test.partitions('jobq.history', '2092-01-01');

-- a row that no partition holds goes to the default one; later ones of its
-- retention time have their partition, which leaves the row where it is
CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('long', 'test.ok(jsonb)', keep_completed => '3 years');
SELECT jobq.enqueue('long', '{"n": 1}') AS id \gset
SELECT status, attempts, runs FROM test.ended(:'id');
SELECT tableoid::regclass <> 'jobq.history'::regclass AS in_a_partition, expires_at = completed_at + interval '3 years' AS kept FROM jobq.history WHERE id = :'id';
SELECT jobq.enqueue('long', '{"n": 2}', keep_completed => '9 years') AS id \gset
SELECT status, attempts, runs FROM test.ended(:'id');
SELECT tableoid::regclass, expires_at = completed_at + interval '9 years' AS kept FROM jobq.history WHERE id = :'id';
CREATE FUNCTION test.has_partition(ahead interval) RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (SELECT FROM jobq_internal._partitions('jobq.history') p WHERE clock_timestamp() + ahead >= p.low AND clock_timestamp() + ahead < p.high)
$$;
-- any change of the job types starts maintenance
UPDATE jobq.job_types SET paused = paused WHERE false;
SELECT test.wait_until($$SELECT test.has_partition('9 years')$$);
SELECT jobq.enqueue('long', '{"n": 3}', keep_completed => '9 years') AS other \gset
SELECT status FROM test.ended(:'other');
SELECT tableoid::regclass <> 'jobq.history_default'::regclass AS in_a_partition FROM jobq.history WHERE id = :'other';
SELECT tableoid::regclass, (SELECT status FROM jobq.wait_for(:'id')) AS ended FROM jobq.history WHERE id = :'id';

-- retention: an expired partition is emptied and dropped, or left to the next
-- run while a session reads it
SELECT jobq_internal._ensure_partition('jobq.history', '2001-01-01 12:00+00'), jobq_internal._ensure_partition('jobq.history', '2001-01-02 12:00+00'),
       jobq_internal._ensure_partition('jobq.events', '2001-01-01 12:00+00');
INSERT INTO jobq.events (ts, job_id, job_type, type, source) VALUES ('2001-01-01 12:00+00', gen_random_uuid(), 'x', 'log', 'client');
INSERT INTO jobq.history (id, expires_at, scheduled_for, created_at, completed_at, type_id, status, attempts, max_attempts, runs, depth, priority, payload)
  SELECT gen_random_uuid(), '2001-01-01 12:00+00', now(), now(), now(), 1, 'completed', 1, 1, 1, 0, 0, '{}' FROM generate_series(1, 10);
UPDATE jobq.job_types SET paused = paused WHERE false;
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq_internal._partitions('jobq.history') WHERE high < '2002-01-01')$$);
SELECT count(*) FROM jobq_internal._partitions('jobq.history') WHERE high < '2002-01-01';
SELECT count(*) FROM jobq_internal._partitions('jobq.events') WHERE high < '2002-01-01';
SELECT count(*) > 1 AS ahead FROM jobq_internal._partitions('jobq.events') WHERE high > now() AND low < '2090-01-01';
-- unexpired ones are kept
SELECT count(*) FROM jobq.history WHERE id = :'id';
SELECT count(*) FROM test.partitions('jobq.history', '2090-01-01');
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT partition::text FROM jobq_internal._partitions('jobq.history') WHERE low > '2080-01-01'
              UNION ALL SELECT partition::text FROM jobq_internal._partitions('jobq.events') WHERE low > '2080-01-01' LOOP
    EXECUTE 'DROP TABLE ' || name;
  END LOOP;
END $$;
-- rows that expire in a partition of more than a day are deleted one by one
BEGIN;
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT partition::text FROM jobq_internal._partitions('jobq.history') WHERE low < now() + interval '4 days' LOOP
    EXECUTE 'DROP TABLE ' || name;
  END LOOP;
END $$;
SELECT jobq_internal._ensure_partition('jobq.history', clock_timestamp(), clock_timestamp() - interval '100 years');
COMMIT;
SELECT high - low > interval '3650 days' AS long FROM jobq_internal._partitions('jobq.history') WHERE clock_timestamp() BETWEEN low AND high;
INSERT INTO jobq.history (id, expires_at, scheduled_for, created_at, completed_at, type_id, status, attempts, max_attempts, runs, depth, priority, payload)
  SELECT gen_random_uuid(), clock_timestamp() + n * interval '1 minute', now(), now(), now(), 0, 'completed', 1, 1, 1, 0, 0, '{}' FROM generate_series(-10, 9) n;
SELECT jobq_internal._drop_expired(4), jobq_internal._drop_expired(100), jobq_internal._drop_expired(100);
SELECT count(*) FROM jobq.history WHERE type_id = 0;
DELETE FROM jobq.history WHERE type_id = 0;
DO $$
BEGIN
  EXECUTE (SELECT 'DROP TABLE ' || partition FROM jobq_internal._partitions('jobq.history') WHERE clock_timestamp() BETWEEN low AND high);
END $$;

-- so are those of a default partition
BEGIN;
INSERT INTO jobq.history (id, expires_at, scheduled_for, created_at, completed_at, type_id, status, attempts, max_attempts, runs, depth, priority, payload)
  SELECT gen_random_uuid(), clock_timestamp() + n * interval '1 minute' - interval '3000 years', now(), now(), now(), 0, 'completed', 1, 1, 1, 0, 0, '{}' FROM generate_series(1, 10) n;
INSERT INTO jobq.alerts (ts, severity, title, message) SELECT '1000-01-01', 'warning', 'old', 'old' FROM generate_series(1, 10);
SELECT count(*) FROM jobq.history_default WHERE type_id = 0;
SELECT jobq_internal._expire_default('jobq.history', 4), jobq_internal._expire_default('jobq.history', 100), jobq_internal._expire_default('jobq.alerts', 100);
SELECT count(*) FROM jobq.history_default WHERE type_id = 0;
ROLLBACK;

-- these run as their owner, but only on jobq's own tables
CREATE TABLE test.other (t timestamptz) PARTITION BY RANGE (t);
SELECT test.error_of($$SELECT jobq_internal._ensure_partition('test.other', '2030-01-01 00:00+00')$$);
-- a row of the default partition holds its unique key
SELECT jobq.enqueue('long', unique_key => 'k', unique_for => '50 years') AS id \gset
SELECT status, runs FROM test.ended(:'id');
SELECT tableoid::regclass FROM jobq.history WHERE id = :'id';
SELECT jobq.enqueue('long', unique_key => 'k', unique_for => '50 years') = :'id' AS same;

-- a handler locks no partition while it runs: DDL on them does not wait for it
CREATE FUNCTION test.held(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); END $$;
SELECT jobq.create_job_type('held', 'test.held(jsonb)', options => '{"events": "all"}');
SELECT pg_advisory_lock(4711);
SELECT jobq.enqueue('held') AS id \gset
SELECT test.wait_until($$SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted)$$);
SELECT c.relname, l.mode
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relname ~ '^(history|events|alerts|artifacts)'
   AND l.pid = (SELECT h.pid FROM pg_locks h WHERE h.locktype = 'advisory' AND h.objid = 4711 AND NOT h.granted);
SELECT pg_advisory_unlock(4711);
SELECT status FROM test.ended(:'id');

-- without new tables jobs end all the same, and health() says where their rows go
UPDATE jobq.job_types SET paused = paused WHERE false;
SELECT test.wait_until($$SELECT bool_and(test.has_partition(a)) FROM unnest('{0,1 day,7 days,50 years}'::interval[]) a$$);
CREATE FUNCTION test.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no new tables'; END $$;
CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION test.refuse();
SELECT jobq.enqueue('held', keep_completed => '777 years') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT jobq.health()->'checks'->'partitions'->>'status' AS status, jobq.health()->'checks'->'partitions'->>'message' AS message,
       (jobq.health()->'checks'->'partitions'->>'default_rows')::int > 0 AS counted;
DROP EVENT TRIGGER refuse;
UPDATE jobq.job_types SET paused = paused WHERE false;
SELECT test.wait_until($$SELECT test.has_partition('777 years')$$);
SELECT jobq.health()->'checks'->'partitions'->>'status' AS status, jobq.health()->'checks'->'partitions'->>'message' AS message;
