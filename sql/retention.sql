-- Retention by age and by number, and how many dead letters there are
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.job(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'fail' THEN RAISE EXCEPTION 'bad luck %', payload->>'n'; END IF;
  RETURN payload->'n';
END $$;
-- jobs 1..n of a type, ended in that order
CREATE FUNCTION test.run(job_type text, first int, last int, extra jsonb DEFAULT '{}', unique_for interval DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  SELECT (jobq.run_inline(jobq.enqueue(job_type, extra || jsonb_build_object('n', n), unique_key => CASE WHEN unique_for IS NOT NULL THEN n::text END, unique_for => unique_for))).id
    FROM generate_series(first, last) n
$$;
CREATE FUNCTION test.kept(job_type text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(payload->>'n', ' ' ORDER BY completed_at) FROM jobq.jobs j WHERE j.job_type = kept.job_type AND completed_at IS NOT NULL
$$;
CREATE FUNCTION test.retain(max_rows int DEFAULT 10000) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  steps int := 1;
BEGIN
  WHILE jobq_internal._retain(max_rows) LOOP steps := steps + 1; END LOOP;
  RETURN steps;
END $$;

-- the newest of the type stay; other types keep theirs
SELECT jobq.create_job_type('three', 'test.job(jsonb)', options => '{"keep_completed_count": 3, "keep_dead_count": 2}', max_attempts => 1);
SELECT jobq.create_job_type('all', 'test.job(jsonb)', max_attempts => 1);
SELECT jobq.pause_job_type('three'), jobq.pause_job_type('all');
SELECT test.run('three', 1, 5), test.run('all', 1, 5);
SELECT test.run('three', 6, 9, '{"fail": true}'), test.run('all', 6, 9, '{"fail": true}');
SELECT test.retain();
SELECT test.kept('three'), test.kept('all');
-- cancelled and skipped jobs are finished, too
SELECT jobq.enqueue('three', '{"n": 10}') AS id \gset
SELECT jobq.cancel_job(:'id');
SELECT test.retain(), test.kept('three');
-- in steps of bounded size (in a transaction, so that the maintenance process does not see them)
BEGIN;
SELECT test.run('three', 11, 30);
SELECT test.retain(7) AS steps, test.kept('three');
COMMIT;

-- a job that still holds its unique key counts, and stays
SELECT test.run('three', 31, 32, unique_for => '1 hour');
SELECT test.run('three', 33, 36);
SELECT test.retain(), test.kept('three');
SELECT jobq.enqueue('three', unique_key => '31', unique_for => '1 hour') = (SELECT id FROM jobq.history WHERE unique_key = '31') AS holds;
UPDATE jobq.history SET unique_until = clock_timestamp() WHERE unique_until IS NOT NULL;
SELECT test.retain(), test.kept('three');

-- the option is set later: jobs that ended before count as well; then it is removed
SELECT jobq.alter_job_type('all', options => '{"keep_completed_count": 2}');
SELECT test.run('all', 20, 20);
SELECT test.retain() > 0 AS done, test.kept('all');
SELECT count(*) FILTER (WHERE counted) AS counted, count(*) FROM jobq.history h JOIN jobq.job_types t ON t.id = h.type_id WHERE t.name = 'all';
SELECT jobq.alter_job_type('all', options => '{"keep_completed_count": null}');
SELECT test.run('all', 21, 25);
SELECT test.retain() > 0 AS done, test.kept('all');
SELECT count(*) FROM jobq.counted_types c JOIN jobq.job_types t ON t.id = c.type_id WHERE t.name = 'all';
SELECT jobq.alter_job_type('all', options => '{"keep_completed_count": 1, "keep_dead_count": 1}');
SELECT test.retain() > 0 AS done, test.kept('all');
-- in ranges of blocks, from the end of the previous range
SELECT jobq.alter_job_type('all', options => '{"keep_completed_count": null}');
SELECT test.retain() > 0 AS done;
BEGIN;
SELECT test.run('all', 40, 49, jsonb_build_object('large', (SELECT jsonb_agg(gen_random_uuid()) FROM generate_series(1, 40))));
SELECT jobq.alter_job_type('all', options => '{"keep_completed_count": 1000}');
CREATE FUNCTION test.count_old(max_blocks int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  steps int := 1;
BEGIN
  WHILE NOT jobq_internal._count_old((SELECT id FROM jobq.job_types WHERE name = 'all'), max_blocks) LOOP steps := steps + 1; END LOOP;
  RETURN steps;
END $$;
SELECT test.count_old(1) > 2 AS in_steps;
SELECT count(*) FILTER (WHERE counted) = count(*) AS counted, count(*) > 10 AS many FROM jobq.history h JOIN jobq.job_types t ON t.id = h.type_id WHERE t.name = 'all';
COMMIT;

-- 0 keeps none from the start; a job's own keep_completed keeps it until it is too many
SELECT jobq.create_job_type('none', 'test.job(jsonb)', options => '{"keep_completed_count": 0, "keep_dead_count": 0}', max_attempts => 1);
SELECT jobq.pause_job_type('none');
SELECT test.run('none', 1, 2), test.run('none', 3, 3, '{"fail": true}');
SELECT test.kept('none') IS NULL AS nothing;

-- by age: a type's, a job's own
SELECT jobq.create_job_type('aged', 'test.job(jsonb)', keep_completed => '1 hour', keep_dead => '2 hours', max_attempts => 1);
SELECT jobq.pause_job_type('aged');
SELECT (jobq.run_inline(jobq.enqueue('aged', '{"n": 1}'))).status, (jobq.run_inline(jobq.enqueue('aged', '{"n": 2}', keep_completed => '3 days'))).status,
       (jobq.run_inline(jobq.enqueue('aged', '{"n": 3}', keep_completed => '0'))).status, (jobq.run_inline(jobq.enqueue('aged', '{"n": 4, "fail": true}'))).status;
SELECT payload->>'n' AS n, expires_at - completed_at AS kept FROM jobq.history JOIN jobq.job_types t ON t.id = type_id WHERE t.name = 'aged'
UNION ALL SELECT payload->>'n', expires_at - completed_at FROM jobq.dead_letters JOIN jobq.job_types t ON t.id = type_id WHERE t.name = 'aged' ORDER BY n;
UPDATE jobq.dead_letters SET expires_at = clock_timestamp() WHERE payload->>'n' = '4';
SELECT test.retain(), test.kept('aged');

-- a dead letter: its own keep, the type's, none; batch or not, retried and
-- run again it carries its own
SELECT jobq.alter_job_type('aged', options => '{"events": "none", "alert": false}');
SELECT (jobq.run_inline(jobq.enqueue('aged', '{"n": 5, "fail": true}', keep_dead => '40 days'))).status AS own,
       (jobq.run_inline(jobq.enqueue('aged', '{"n": 6, "fail": true}', keep_dead => '0'))).status AS nothing,
       (jobq.run_inline(jobq.enqueue('aged', '{"n": 7, "fail": true}'))).status AS types,
       (SELECT (jobq.run_inline(m)).status FROM jobq.enqueue_many('aged', '{"{\"n\": 8, \"fail\": true}"}', keep_dead => '8 days') m) AS many,
       (SELECT (jobq.run_inline(e.id)).status FROM jobq.enqueue_jobs('[{"job_type": "aged", "payload": {"n": 9, "fail": true}, "keep_dead": "9 days"}]') e) AS jobs;
SELECT jobq.create_job_type('buried', 'test.job(jsonb)', keep_dead => '0', max_attempts => 1);
SELECT jobq.pause_job_type('buried');
SELECT (jobq.run_inline(jobq.enqueue('buried', '{"n": 10, "fail": true}', keep_dead => '1 hour'))).status,
       (jobq.run_inline(jobq.enqueue('buried', '{"n": 11, "fail": true}'))).status;
SELECT d.payload->>'n' AS n, d.keep_dead, expires_at - completed_at AS kept FROM jobq.dead_letters d JOIN jobq.job_types t ON t.id = type_id WHERE t.name IN ('aged', 'buried') ORDER BY (d.payload->>'n')::int;
SELECT jobq.retry_job(d.id) FROM jobq.dead_letters d WHERE d.payload->>'n' = '5';
SELECT keep_dead FROM jobq.queue WHERE payload->>'n' = '5';
SELECT (jobq.run_inline(id)).status FROM jobq.queue WHERE payload->>'n' = '5';
SELECT jobq.rerun_job(d.id) AS again FROM jobq.dead_letters d WHERE d.payload->>'n' = '5' \gset
SELECT keep_dead FROM jobq.queue WHERE id = :'again';
SELECT (jobq.run_inline(:'again')).status;
SELECT (jobq.run_inline(jobq.enqueue('aged', '{"n": 12}', keep_dead => '12 days'))).status;
SELECT a::jsonb->>'keep_dead' AS archived FROM jobq.archive('infinity') a WHERE a::jsonb->'payload'->>'n' = '12';
SELECT d.payload->>'n' AS n, d.keep_dead, expires_at - completed_at AS kept FROM jobq.dead_letters d JOIN jobq.job_types t ON t.id = type_id WHERE t.name IN ('aged', 'buried') ORDER BY completed_at, d.id;

-- bad values
SELECT test.error_of($$SELECT jobq.alter_job_type('aged', options => '{"keep_completed_count": -1}')$$);
SELECT test.error_of($$SELECT jobq.alter_job_type('aged', options => '{"keep_dead_count": "many"}')$$);
SELECT test.error_of($$SELECT jobq.alter_job_type('aged', options => '{"keep_dead_count": 1.5}')$$);

-- how many dead letters there are, without counting them: exact in every transaction
CREATE VIEW test.dead AS SELECT (SELECT coalesce(sum(change), 0) FROM jobq.dead_letter_count) - (SELECT count(*) FROM jobq.dead_letters) AS off,
  (SELECT count(*) FROM jobq.dead_letters) > 0 AS some;
SELECT * FROM test.dead;
SELECT jobq.create_job_type('dies', 'test.job(jsonb)', max_attempts => 1);
SELECT jobq.pause_job_type('dies');
BEGIN;
SELECT test.run('dies', 1, 3, '{"fail": true}');
SELECT * FROM test.dead;
SAVEPOINT s;
SELECT jobq.purge_dead_letters('dies');
SELECT * FROM test.dead;
ROLLBACK TO s;
SELECT jobq.retry_job(id) FROM jobq.jobs WHERE job_type = 'dies' AND payload->>'n' = '1';
SELECT * FROM test.dead;
ROLLBACK;
SELECT * FROM test.dead;
BEGIN;
SELECT test.run('dies', 1, 300, '{"fail": true}');
SELECT count(*) >= 300 AS many FROM jobq.dead_letter_count;
SELECT jobq_internal._fold_dead_letter_count();
SELECT count(*), sum(change) >= 300 AS all FROM jobq.dead_letter_count;
COMMIT;
SELECT jobq.retry_dead_letters('dies', max_jobs => 100), jobq.purge_dead_letters('dies', max_jobs => 50);
SELECT * FROM test.dead;
SELECT (jobq.health()->'checks'->'dead_letters'->>'count')::int = count(*) AS health FROM jobq.dead_letters;
-- a role restricted to a tenant counts only the jobs that it sees
CREATE ROLE jobq_regress_watcher;
SELECT (jobq.run_inline(jobq.enqueue('dies', '{"fail": true}', tenant => 'acme'))).status, (jobq.run_inline(jobq.enqueue('dies', '{"fail": true}', tenant => 'acme/eu'))).status;
SELECT jobq.grant_access('jobq_regress_watcher', 'read', 'acme');
SET ROLE jobq_regress_watcher;
SELECT jobq.health()->'checks'->'dead_letters'->'count' AS count, jobq.health()->'details'->'dead_letter_count' AS details;
SELECT count FROM jobq.count_by_status() WHERE status = 'error';
RESET ROLE;
SELECT jobq.grant_access('jobq_regress_watcher', 'read');
SELECT count(*) FROM jobq.dead_letters \gset
SET ROLE jobq_regress_watcher;
SELECT jobq.health()->'checks'->'dead_letters'->>'count' = :'count' AS all;
RESET ROLE;
DELETE FROM jobq.access;
DROP OWNED BY jobq_regress_watcher;
DROP ROLE jobq_regress_watcher;
-- also for rows written directly
SET session_replication_role = replica;
DELETE FROM jobq.dead_letters WHERE payload->>'n' > '290';
RESET session_replication_role;
SELECT * FROM test.dead;
TRUNCATE jobq.dead_letters;
SELECT * FROM test.dead;
SELECT jobq.health()->'checks'->'dead_letters'->>'count' AS count;
SELECT jobq.resume_job_type(name) FROM jobq.job_types WHERE paused AND dropped_at IS NULL ORDER BY name;
