-- jobq.record_artifact, jobq.build_key, jobq.archive of artifacts; rows between tenants.
BEGIN;
SELECT * FROM no_plan();

-- ---------- keys ----------

SELECT is(jobq.build_key('00000000-0000-4000-8000-000000000001', 'render.7', 'output', 'mp4', 'clip'),
          'outputs/00000000-0000-4000-8000-000000000001/render.7/clip.mp4', 'a key of a task');
SELECT is(jobq.build_key('00000000-0000-4000-8000-000000000001', NULL, 'log'),
          'logs/00000000-0000-4000-8000-000000000001/data', 'without a task, without an extension');
SELECT is(jobq.build_key('00000000-0000-4000-8000-000000000001', 'a', 'input', 'tar.gz'),
          'inputs/00000000-0000-4000-8000-000000000001/a/data.tar.gz', 'an extension with a dot inside');
SELECT throws_ok($$SELECT jobq.build_key('00000000-0000-4000-8000-000000000001', 'a', 'output', '.mp4')$$, '22023', 'argument "ext": ".mp4" begins with a dot');
SELECT throws_ok($$SELECT jobq.build_key('00000000-0000-4000-8000-000000000001', 'a', 'thumbnail')$$, '22023', 'argument "kind": "thumbnail" is not one of "input", "output", "log"');
SELECT throws_ok($$SELECT jobq.build_key('00000000-0000-4000-8000-000000000001', 'a', 'output', repeat('x', 70), repeat('y', 70))$$, '54000', NULL, 'name and extension together');

CREATE FUNCTION pg_temp.state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
  RETURN 'none';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;
CREATE TEMP TABLE bad_elements AS
  SELECT e FROM unnest(ARRAY['..', '.', 'a/b', '/a', 'a/', 'a b', 'a\b', E'a\nb', 'ä', '%2e%2e', '', 'a:b', repeat('x', 129), '../..', '~', '$HOME', 'a*']) e;
SELECT is_empty($$
  SELECT e, p FROM bad_elements, unnest('{task_key,ext,name}'::text[]) p
   WHERE pg_temp.state_of(format('SELECT jobq.build_key(job_id => gen_random_uuid(), %s kind => ''output'', %I => %L)',
           CASE p WHEN 'task_key' THEN '' ELSE 'task_key => ''t'',' END, p, e)) NOT IN ('22023', '54000')
$$, 'each part is one element of a key');

-- ---------- a handler ----------

CREATE FUNCTION artifact_handler(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  new_id bigint;
BEGIN
  IF payload ? 'statement' THEN
    RETURN to_jsonb(pg_temp.state_of(payload->>'statement'));
  END IF;
  new_id := jobq.record_artifact(payload->>'key', size_bytes => 9223372036854775807, bucket => 'media', content_type => 'audio/wav',
    checksum => 'sha256:' || repeat('AB', 32), data => '{"seconds": 3}');
  IF payload ? 'fail' THEN RAISE EXCEPTION 'no'; END IF;
  RETURN to_jsonb(new_id);
END $$;
CREATE FUNCTION pg_temp.state_of_in_handler(statement text) RETURNS text LANGUAGE sql AS $$
  SELECT r.result #>> '{}' FROM (SELECT jobq.enqueue('maker', jsonb_build_object('statement', statement)) AS id) e, jobq.run_inline(e.id) r
$$;
SELECT jobq.create_job_type('maker', 'artifact_handler(jsonb)', max_attempts => 2, timeout => '10min', keep_completed => '3 days',
  options => '{"events": "all", "alert": false}');
CREATE TEMP TABLE made AS SELECT r.* FROM jobq.enqueue('maker', '{"key": "outputs/a.wav"}', tenant => 'acme') e, jobq.run_inline(e) r;
SELECT is((SELECT status FROM made), 'completed', 'a handler records an artifact');
SELECT results_eq($$SELECT a.id, a.workflow_id, a.task_key, a.tenant, a.attempt, a.key, a.kind, a.bucket, a.size_bytes, a.content_type, a.checksum, a.data, a.job_type
                      FROM jobq.artifacts a JOIN made m ON m.id = a.job_id$$,
                  $$SELECT (m.result #>> '{}')::bigint, NULL::uuid, NULL::text, 'acme', 1, 'outputs/a.wav', 'output', 'media', 9223372036854775807, 'audio/wav',
                           'sha256:' || repeat('ab', 32), '{"seconds": 3}'::jsonb, 'maker' FROM made m$$, 'the row');
SELECT ok(a.expires_at - a.created_at BETWEEN '3 days 10 minutes' AND '3 days 10 minutes 1 second' AND a.expires_at >= h.expires_at, 'it goes with the job''s row, not before')
  FROM jobq.artifacts a JOIN jobq.history h ON h.id = a.job_id;
SELECT results_eq($$SELECT e.attempt, e.source, e.level, e.data - 'id' FROM jobq.events e JOIN made m ON m.id = e.job_id WHERE e.type = 'artifact'$$,
  $$SELECT 1, 'sql', 'info', jsonb_build_object('key', 'outputs/a.wav', 'kind', 'output', 'bucket', 'media', 'size_bytes', 9223372036854775807,
      'content_type', 'audio/wav', 'checksum', 'sha256:' || repeat('ab', 32))$$, 'its event, without data');
SELECT is((jobq.run_inline(jobq.enqueue('maker', '{"key": "gone", "fail": 1}'))).status, 'retry', 'a handler fails after it');
SELECT is_empty($$SELECT FROM jobq.artifacts WHERE key = 'gone'$$, 'its artifact is rolled back with the attempt');
SELECT is_empty($$SELECT FROM jobq.events WHERE type = 'artifact' AND data->>'key' = 'gone'$$, 'and the event');

SELECT throws_ok($$SELECT jobq.record_artifact('a')$$, '55000', 'jobq.record_artifact can only be called inside a SQL handler');
SELECT throws_ok($$SELECT jobq.record_artifact('a', id => gen_random_uuid())$$, '22004', 'argument "lease_token" must not be NULL');
SELECT throws_ok($$SELECT jobq.record_artifact(NULL)$$, '22004', 'argument "key" must not be NULL');
CREATE TEMP TABLE corpus AS
SELECT k FROM unnest(ARRAY['', '/', '/a', 'a/', 'a//b', '.', '..', './a', 'a/.', '../a', 'a/..', 'a/../b', 'a/../../b', '..\a', 'a\..\b', 'C:\a', 'C:/a',
    '%2e%2e/a', '%2e%2e%2fa', '..%2fa', 'a%00b', '..%c0%af', '.. /a', ' a', 'a ', 'a b', E'a\tb', E'a\nb', E'a\rb', E'a\u0001', E'a\u007f', E'a\u0080b',
    E'a\uff0fb', E'..\u2215a', E'\u2024\u2024/a', E'a\u2044b', E'\u202ea', E'\u200ba', 'ä', 'а', '~', '~/a', '$HOME/a', '`a`', 'a;b', 'a|b', 'a&b', 'a<b', 'a"b', '''', 'a*', 'a?b', '[a]', '{a}',
    'a#b', 'a@b', 'a+b', 'a,b', 'a=b', 'a!b', 'file:a', 'http://a/b', '//host/a', '\\host\a', 's3://a/b', repeat('x', 129), repeat('x/', 9) || 'x', repeat('x', 5000),
    (SELECT string_agg(repeat('y', 128), '/') FROM generate_series(1, 9)), 'a/' || repeat('../', 200) || 'etc/passwd'])
  k UNION ALL SELECT s || d FROM unnest(ARRAY['../', '..%2f', '..\', '%2e%2e/', '....//', '..;/', '.%2e/', E'..\u2215']) s, unnest(ARRAY['a', 'etc/passwd', 'a/b/c', '..', 'x.txt']) d;
SELECT is_empty($$SELECT k FROM corpus WHERE pg_temp.state_of_in_handler(format('SELECT jobq.record_artifact(%L)', k)) NOT IN ('22023', '54000')
   AND k NOT LIKE '....//%'$$, 'no key leads out of a directory');
SELECT is_empty($$SELECT k FROM corpus WHERE k LIKE '....//%' AND pg_temp.state_of_in_handler(format('SELECT jobq.record_artifact(%L)', k)) <> '22023'$$, 'nor an empty element');
SELECT is_empty($$SELECT k FROM unnest(ARRAY['a', '...', '.a', 'a.', '-', 'A_b-C.9/x', repeat('x', 128), repeat('x/', 8) || 'x', 'a/...', '..a/b..']) k
   WHERE pg_temp.state_of_in_handler(format('SELECT jobq.record_artifact(%L)', k)) <> 'none'$$, 'other keys are taken');
SELECT is_empty($$SELECT v FROM (VALUES ('kind => ''outputs''', '22023'), ('size_bytes => -1', '22003'), ('checksum => ''sha256:abc''', '22023'),
    ('checksum => ''md5:' || repeat('0', 64) || '''', '22023'), ('checksum => ''sha256:' || repeat('g', 64) || '''', '22023'), ('bucket => ''''', '22023'),
    ('bucket => repeat(''x'', 256)', '54000'), ('bucket => repeat(''x'', 255)', 'none'), ('bucket => E''a\x7f''', '22023'),
    ('content_type => repeat(''ä'', 128)', '54000'), ('content_type => repeat(''ä'', 127)', 'none'), ('content_type => ''''', '22023'),
    ('size_bytes => 0', 'none'), ('size_bytes => 9223372036854775808', '42883'), ('checksum => ''SHA256:' || repeat('0', 64) || '''', '22023'),
    ('checksum => ''sha256:' || repeat('0', 65) || '''', '22023'), ('checksum => repeat(''0'', 64)', '22023'), ('data => ''[]''', 'none'),
    ('data => to_jsonb(repeat(''x'', 1048574))', 'none'), ('data => to_jsonb(repeat(''x'', 1048575))', '54000'),
    ('content_type => E''a\nb''', '22023'), ('data => to_jsonb(repeat(''x'', 1100000))', '54000'),
    ('kind => NULL', '22004')) v(argument, state)
   WHERE pg_temp.state_of_in_handler('SELECT jobq.record_artifact(''a'', ' || argument || ')') <> state$$, 'other arguments');

-- ---------- how long a row stays ----------

-- timeout and keep_completed of the type, of the job; the time from the record
CREATE TEMP TABLE spans AS SELECT * FROM (VALUES
  ('0', '0', NULL, NULL, '1 day'), ('5min', '0', NULL, NULL, '1 day'), ('0', '1h', NULL, NULL, '1 day 1h'), ('1h', '1h', NULL, NULL, '1 day'),
  ('2 days', '0', NULL, NULL, '2 days'), ('2 days', '1h', NULL, NULL, '2 days 1h'), ('1h', '23h 1s', NULL, NULL, '1 day 1s'), ('1h', '10 years', NULL, NULL, '10 years 1h'),
  ('2 days', '10 years', '1min', '0', '1 day'), ('1min', '0', '3 days', '0', '3 days'), ('1min', '0', '0', '2h', '1 day 2h'), ('1min', '5 days', NULL, '0', '1 day'),
  ('2 days', '10 years', '0', '0', '1 day')) s(timeout, keep, job_timeout, job_keep, stays);
ALTER TABLE spans ADD COLUMN n serial, ADD COLUMN id uuid;
SELECT jobq.create_job_type('span ' || n, 'artifact_handler(jsonb)', timeout => timeout::interval, keep_completed => keep::interval, max_attempts => 1) FROM spans \g /dev/null
UPDATE spans SET id = jobq.enqueue('span ' || n, '{"key": "a"}', timeout => job_timeout::interval, keep_completed => job_keep::interval);
SELECT count(jobq.run_inline(id)) FROM spans \g /dev/null
SELECT is_empty($$SELECT s.timeout, s.keep, s.job_timeout, s.job_keep, s.stays, a.expires_at - a.created_at FROM spans s LEFT JOIN jobq.artifacts a ON a.job_id = s.id
   WHERE a.expires_at IS DISTINCT FROM a.created_at + s.stays::interval$$, 'keep_completed after the time limit, and no less than a day');
SELECT is((SELECT count(*)::int FROM spans s JOIN jobq.artifacts a ON a.job_id = s.id), 13, 'also of types that keep nothing');
SELECT ok(count(*) > 5 AND bool_and(a.expires_at >= h.expires_at), 'never before the job''s row')
  FROM spans s JOIN jobq.artifacts a ON a.job_id = s.id JOIN jobq.history h ON h.id = s.id;

-- ---------- a client ----------

SELECT jobq.create_job_type('pulled artifacts', keep_completed => '0', timeout => '0', options => '{"events": "all"}');
CREATE TEMP TABLE claimed AS SELECT jobq.enqueue('pulled artifacts') AS id;
UPDATE jobq.queue SET status = 'running', attempts = 3, started_at = clock_timestamp(), worker = 'w', lease = '1min', lease_token = id,
       lease_expires_at = clock_timestamp() + interval '1min' WHERE id = (SELECT id FROM claimed);
SELECT ok(jobq.record_artifact('outputs/b', 'log', id => id, lease_token => id) > 0, 'the holder of a lease records one') FROM claimed;
SELECT results_eq($$SELECT attempt, key, kind, bucket, data, expires_at - created_at = interval '1 day' FROM jobq.artifacts WHERE job_id = (SELECT id FROM claimed)$$,
  $$VALUES (3, 'outputs/b', 'log', NULL::text, NULL::jsonb, true)$$, 'its row stays a day, though its type keeps nothing');
SELECT is((SELECT source FROM jobq.events WHERE type = 'artifact' AND job_id = (SELECT id FROM claimed)), 'worker:w', 'source of its event');
SELECT throws_like($$SELECT jobq.record_artifact('outputs/b', id => id, lease_token => gen_random_uuid()) FROM claimed$$,
  'argument "lease_token" is not that of a running attempt of job %', 'a wrong token');
SELECT throws_ok($$SELECT jobq.record_artifact('outputs/b', id => gen_random_uuid(), lease_token => id) FROM claimed$$, '55000', NULL, 'another job');
SELECT is(jobq.complete(id, id), true, 'it completes') FROM claimed;
SELECT throws_ok($$SELECT jobq.record_artifact('outputs/b', id => id, lease_token => id) FROM claimed$$, '55000', NULL, 'after the end');

-- ---------- archive ----------

SELECT is((SELECT count(*)::int FROM jobq.archive(NULL, what => 'artifacts', expires_from => '-infinity', expires_to => 'infinity')),
          (SELECT count(*)::int FROM jobq.artifacts), 'archive returns all artifacts');
SELECT results_eq($$SELECT r.* FROM jobq.archive('infinity', what => 'artifacts') l, LATERAL jsonb_populate_record(NULL::jobq.artifacts, l::jsonb) r ORDER BY 1$$,
  $$SELECT * FROM jobq.artifacts ORDER BY 1$$, 'a line makes its row again');
SELECT is_empty($$SELECT jobq.archive('infinity', what => w, expires_from => e, expires_to => e) FROM unnest('{history,events,artifacts}'::text[]) w,
  (SELECT max(expires_at) FROM jobq.artifacts) m(e)$$, 'an empty range');
SELECT is((SELECT count(*)::int FROM jobq.archive('infinity', expires_from => h.expires_at, expires_to => h.expires_at + interval '1 us')), 1, 'a range of history excludes its end')
  FROM jobq.history h JOIN made m ON m.id = h.id;
SELECT is((SELECT count(*)::int FROM jobq.archive('infinity', what => 'events', expires_from => e.ts, expires_to => e.ts + interval '1 us')), 1, 'of events the range is of ts')
  FROM jobq.events e JOIN made m ON m.id = e.job_id WHERE e.type = 'artifact';
SELECT is((SELECT count(*)::int FROM jobq.archive('infinity', what => 'artifacts', max_rows => 1)), 1, 'max_rows');
SELECT throws_ok($$SELECT jobq.archive('infinity', expires_from => '2030-01-02', expires_to => '2030-01-01')$$, '22023', NULL, 'the range is the wrong way round');
SELECT throws_ok($$SELECT jobq.archive(NULL, expires_to => '2030-01-01')$$, '22004', 'argument "before" must not be NULL');
SELECT throws_ok($$SELECT jobq.archive(now(), what => 'alerts')$$, '22023', 'argument "what": "alerts" is not one of "history", "events", "artifacts", "audit"');

-- ---------- tenants ----------

CREATE ROLE artifact_reader;
CREATE ROLE artifact_worker;
SELECT jobq.grant_access('artifact_reader', 'read', tenant => 'acme');
SELECT jobq.grant_access('artifact_worker', 'work');
SELECT ok(has_function_privilege('artifact_worker', p.oid, 'EXECUTE'), 'access "work" calls ' || p.proname)
  FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname IN ('record_artifact', 'build_key') ORDER BY 1;
SELECT ok(NOT has_function_privilege('artifact_reader', p.oid, 'EXECUTE'), 'access "read" does not call record_artifact')
  FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname = 'record_artifact';
SET LOCAL ROLE artifact_reader;
SELECT is((SELECT array_agg(key) FROM jobq.artifacts), '{outputs/a.wav}', 'a reader of a tenant sees the rows of that tenant');
SELECT is((SELECT count(*)::int FROM jobq.archive('infinity', what => 'artifacts')), 1, 'archive, too');
RESET ROLE;
SET LOCAL ROLE artifact_worker;
SELECT throws_ok('SELECT count(*) FROM jobq.artifacts', '42501', NULL, 'a worker reads none');
RESET ROLE;
SELECT ok(jobq.purge_tenant('acme') > 0, 'purge_tenant');
SELECT is_empty($$SELECT FROM jobq.artifacts WHERE tenant = 'acme'$$, 'deletes the tenant''s artifacts');
SELECT isnt_empty('SELECT FROM jobq.artifacts', 'and no other');

SELECT * FROM finish();
ROLLBACK;
