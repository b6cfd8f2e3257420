-- jobq.error_groups: patterns, groups, filters.
BEGIN;
SELECT plan(20);
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE '%', p #>> '{}' USING ERRCODE = 'P0042'; END $$;
SELECT jobq.create_job_type('once', 'fails(jsonb)', max_attempts => 1), jobq.create_job_type('often', 'fails(jsonb)', max_attempts => 3);

SELECT is(jobq_internal._error_pattern(message), pattern, message) FROM (VALUES
  ('user 42 not found', 'user ? not found'),
  ('key "alice@example.com" is gone', 'key "?" is gone'),
  ($$relation 'a' has 3.14 of 1,000$$, 'relation "?" has ? of ?'),
  ('job 01a2154b-949b-7fff-9bae-0e1fdf5bcbe5 died', 'job ? died'),
  ('at 0xDEADBEEF', 'at ?'),
  ('exited with code 3: no', 'exited with code ?: no'),
  ('timeout after 00:05:00', 'timeout after ?'),
  ('plain text', 'plain text')) v(message, pattern);

CREATE TEMP TABLE made AS SELECT i, jobq.enqueue('once', to_jsonb(format('user %s not found', i)), tenant => 'acme') AS id FROM generate_series(1, 5) i;
INSERT INTO made SELECT 6, jobq.enqueue('once', '"disk full"');
INSERT INTO made SELECT 7, jobq.enqueue('often', '"user 7 not found"', tenant => 'acme');
SELECT count(jobq.run_inline(id)) FROM (SELECT id FROM made ORDER BY i) m \gset
SELECT results_eq($$SELECT job_type, error_code, pattern, n FROM jobq.error_groups()$$,
  $$VALUES ('once', 'P0042', 'user ? not found', 5::bigint), ('often', 'P0042', 'user ? not found', 1), ('once', 'P0042', 'disk full', 1)$$,
  'dead letters and retries, the largest group first');
SELECT is((SELECT job_id FROM jobq.error_groups() LIMIT 1), (SELECT id FROM made WHERE i = 5), 'the newest job of a group');
SELECT ok(first <= last AND last <= clock_timestamp(), 'first and last') FROM jobq.error_groups() LIMIT 1;
SELECT is((SELECT count(*) FROM jobq.error_groups(max_rows => 2)), 2::bigint, 'max_rows');
SELECT is((SELECT sum(n) FROM jobq.error_groups(job_type => 'often')), 1::numeric, 'job_type');
SELECT is((SELECT sum(n) FROM jobq.error_groups(tenant => 'acme')), 6::numeric, 'tenant');
SELECT is((SELECT sum(n) FROM jobq.error_groups(tenant => '')), 1::numeric, 'jobs without a tenant');
SELECT is((SELECT count(*) FROM jobq.error_groups(since => now() + interval '1 hour')), 0::bigint, 'since');
SELECT throws_ok($$SELECT jobq.error_groups(job_type => 'nosuch')$$, '42704', 'job type "nosuch" does not exist', 'an unknown type');
SELECT throws_ok($$SELECT jobq.error_groups(max_rows => -1)$$, '22003', NULL, 'max_rows below 0');

-- The queue may have millions of rows that wait: it is read in steps by id, and the search ends.
SET LOCAL enable_seqscan = off;
SELECT x.seq_scan AS scans FROM pg_stat_xact_all_tables x WHERE x.relid = 'jobq.queue'::regclass \gset
SELECT count(*) FROM jobq.error_groups() \gset
SELECT is(x.seq_scan, :scans::bigint, 'no scan of the whole queue') FROM pg_stat_xact_all_tables x WHERE x.relid = 'jobq.queue'::regclass;
RESET enable_seqscan;

-- of the 10,000 newest
INSERT INTO jobq.dead_letters (id, expires_at, scheduled_for, created_at, completed_at, type_id, attempts, max_attempts, runs, depth, priority, payload, error_msg)
SELECT gen_random_uuid(), 'infinity', now(), now(), clock_timestamp() + i * interval '1 ms', t.id, 1, 1, 1, 0, 0, '{}', 'flood ' || i
  FROM jobq.job_types t, generate_series(1, 12000) i WHERE t.name = 'once';
SELECT results_eq('SELECT pattern, n FROM jobq.error_groups()', $$VALUES ('flood ?', 10000::bigint)$$, 'only the newest count');
SELECT * FROM finish();
ROLLBACK;
