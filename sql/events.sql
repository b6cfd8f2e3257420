-- Events: levels, every transition of SQL jobs and tools, events of handlers, tools and
-- lease holders, bad arguments
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

-- The events of a job, without times; of data only its keys.
CREATE FUNCTION test.story(job uuid) RETURNS TABLE(type text, attempt int, source text, level text, message text, keys text)
  LANGUAGE sql AS $$
  SELECT e.type, e.attempt, e.source, e.level, e.message,
         (SELECT string_agg(k, ' ' ORDER BY k) FROM jsonb_object_keys(e.data) k)
    FROM jobq.job_timeline(job) e
$$;
CREATE SEQUENCE test.tries;   -- not undone by a rollback
CREATE FUNCTION test.acts(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE act text := payload->'acts'->>(jobq.current_job()).runs - 1;
BEGIN
  PERFORM jobq.set_progress(50, '{"half": true}'), jobq.log_event('about to ' || act, data => '{"n": 1}');
  CASE act
    WHEN 'skip' THEN PERFORM jobq.skip('not today');
    WHEN 'discard' THEN PERFORM jobq.discard('never');
    WHEN 'snooze' THEN PERFORM jobq.snooze('0', 'later');
    WHEN 'fail' THEN RAISE EXCEPTION 'oops' USING ERRCODE = 'P0002';
    WHEN 'once' THEN NULL;
    ELSE PERFORM jobq.set_progress(100);
  END CASE;
  RETURN '1';
END $$;

-- level all: every transition, in order, with the attempt it belongs to
SELECT jobq.create_job_type('all', 'test.acts(jsonb)', backoff_base => '0', options => '{"events": "all"}');
SELECT jobq.enqueue('all', '{"acts": ["snooze", "fail", "ok"]}') AS id \gset
SELECT status, attempts, runs, progress, progress_data FROM test.ended(:'id');
SELECT * FROM test.story(:'id');
SELECT bool_and(e.ts >= j.created_at AND e.ts <= j.completed_at) AS within, array_agg(e.id ORDER BY e.ts, e.id) = array_agg(e.id) AS ordered
  FROM jobq.jobs j, jobq.job_timeline(j.id) e WHERE j.id = :'id';
SELECT data->>'code' AS code, data->>'error' AS error, (data->>'duration_ms')::float > 0 AS lasted, data->>'worker' ~ '^sql/' AS worker
  FROM jobq.job_timeline(:'id') WHERE type = 'failed';
SELECT data FROM jobq.job_timeline(:'id') WHERE type = 'progress' LIMIT 1;
SELECT jobq.enqueue('all', '{"acts": ["skip"]}') AS a, jobq.enqueue('all', '{"acts": ["discard"]}') AS b,
       jobq.enqueue('all', '{"acts": ["fail"]}', max_attempts => 1) AS c \gset
SELECT status FROM test.ended(:'a');
SELECT type, attempt, message FROM test.story(:'a');
SELECT status FROM test.ended(:'b');
SELECT type, attempt, message FROM test.story(:'b');
SELECT status FROM test.ended(:'c');
SELECT type, attempt, message FROM test.story(:'c');

-- actions of clients
SELECT jobq.enqueue('all', '{"acts": ["ok"]}', delay => '1 hour', tenant => 'acme') AS id \gset
SELECT jobq.cancel_job(:'id', 'changed my mind');
SELECT jobq.retry_job(:'id');
SELECT status FROM test.ended(:'id');
SELECT type, attempt, source, message FROM test.story(:'id');
SELECT DISTINCT tenant FROM jobq.job_timeline(:'id');
SELECT data - 'by' AS data, data->>'by' = quote_ident(session_user) AS by FROM jobq.job_timeline(:'id') WHERE type = 'retried';
SELECT jobq.rerun_job(:'id', '{"acts": ["ok"]}') AS new \gset
SELECT status FROM test.ended(:'new');
SELECT type, attempt FROM test.story(:'new');
SELECT data->>'parent_id' = :'id' AS parent FROM jobq.job_timeline(:'new') WHERE type = 'enqueued';
SELECT jobq.enqueue('all', unique_key => 'u', delay => '1 hour') AS id \gset
SELECT jobq.enqueue('all', unique_key => 'u', delay => '1 hour', on_conflict => 'ignore') = :'id' AS same;
SELECT jobq.enqueue('all', unique_key => 'u', delay => '2 hours', on_conflict => 'replace') = :'id' AS same;
SELECT type, data->'replaced' AS replaced FROM jobq.job_timeline(:'id');
SELECT jobq.cancel_job(:'id');
BEGIN;
SELECT jobq.enqueue('all') AS id \gset
ROLLBACK;
SELECT test.error_of(format($$SELECT jobq.job_timeline(%L)$$, :'id'));

-- many at once: none is lost, none twice (each with one progress: a second one is an event,
-- too, if a second has passed)
SELECT count(*) FROM jobq.enqueue_many('all', array_fill('{"acts": ["once"]}'::jsonb, ARRAY[600]), tenant => 'many');
SELECT test.wait_until($$SELECT count(*) = 600 FROM jobq.history WHERE tenant = 'many'$$);
SELECT type, count(*), count(DISTINCT job_id) AS jobs FROM jobq.events WHERE tenant = 'many' GROUP BY type ORDER BY type;

-- level failures is the default; none is for types that write their own events
SELECT jobq.create_job_type('failures', 'test.acts(jsonb)', backoff_base => '0');
SELECT jobq.create_job_type('none', 'test.acts(jsonb)', backoff_base => '0', options => '{"events": "none"}');
SELECT jobq.enqueue('failures', '{"acts": ["fail", "snooze", "fail"]}', max_attempts => 2) AS a, jobq.enqueue('none', '{"acts": ["fail", "snooze", "fail"]}', max_attempts => 2) AS b \gset
SELECT status, attempts, runs FROM test.ended(:'a');
SELECT status, attempts, runs FROM test.ended(:'b');
SELECT jobq.retry_job(:'a'), jobq.retry_job(:'b');
SELECT status FROM test.ended(:'a');
SELECT status FROM test.ended(:'b');
SELECT type, attempt FROM test.story(:'a');
SELECT type, attempt FROM test.story(:'b');
SELECT jobq.alter_job_type('none', options => '{"events": "all"}');
SELECT jobq.rerun_job(:'b') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT type, attempt FROM test.story(:'id');

-- inline, in the caller's transaction; a missing partition for today is created
BEGIN;
SELECT jobq.enqueue('all', '{"acts": ["ok"]}') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT type, attempt FROM test.story(:'id');
ROLLBACK;

-- tools: progress, log and artifact of descriptor 3; a signal's name; the rest of stderr
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '-c', $$
  echo '{"progress": 10, "data": {"page": 1}}' >&3; echo '{"progress": 20}' >&3
  echo '{"log": "text", "level": "warning", "data": {"k": 1}}' >&3; echo '{"log": "odd", "level": "purple"}' >&3
  echo '{"artifact": {"key": "a.pdf"}}' >&3; echo '{"other": 1}' >&3; echo nonsense >&3
  echo bad >&2; test "$JOBQ_ATTEMPT" = 2 || exit 3; echo 1 $$], backoff_base => '0', options => '{"events": "all"}');
SELECT jobq.enqueue('tool') AS id \gset
SELECT status, attempts, runs, progress, progress_data FROM test.ended(:'id');
SELECT * FROM test.story(:'id');
SELECT data - 'duration_ms' - 'worker' - 'id' AS data FROM jobq.job_timeline(:'id') WHERE type IN ('failed', 'progress', 'artifact', 'log');

-- by a lease holder: the events are part of its own transaction
SELECT jobq.pause_job_type('all');
SELECT jobq.enqueue('all') AS id, gen_random_uuid() AS token \gset
BEGIN;  -- committed, a running job without an executor would be settled
UPDATE jobq.queue SET status = 'running', attempts = 1, worker = 'w1', lease_token = :'token' WHERE id = :'id';
SELECT jobq.log_event('from outside', 'warning', 'note', '{"a": 1}', id => :'id', lease_token => :'token');
SELECT type, attempt, source, level, message, data FROM jobq.job_timeline(:'id') WHERE type = 'note';
SELECT call || ': ' || test.error_of(format('SELECT jobq.log_event(' || call || ')', :'id'))
  FROM (VALUES ('''x'''), ('''x'', id => %L'), ('''x'', lease_token => gen_random_uuid()'), ('NULL, id => %L, lease_token => gen_random_uuid()'),
    ('''x'', id => %L, lease_token => gen_random_uuid()'), ('''x'', id => gen_random_uuid(), lease_token => %L')) v(call);
UPDATE jobq.queue SET status = 'pending', lease_token = NULL WHERE id = :'id';
COMMIT;
SELECT test.error_of(format('SELECT jobq.log_event(%L, id => %L, lease_token => %L)', 'x', :'id', :'token'));

-- bad arguments
CREATE FUNCTION test.bad(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  call text;
  said jsonb := '[]';
BEGIN
  FOREACH call IN ARRAY ARRAY['NULL', '''x'', ''''', '''x'', E''a\nb''', '''x'', repeat(''x'', 64)', '''x'', type => ''''', '''x'', type => E''\x01''',
      '''x'', type => repeat(''x'', 64)', 'repeat(''x'', 2000000)', '''x'', data => to_jsonb(repeat(''x'', 2000000))', '''''', '''x'', NULL, NULL'] LOOP
    said := said || to_jsonb(call || ': ' || test.error_of('SELECT jobq.log_event(' || call || ')'));
  END LOOP;
  RETURN said;
END $$;
SELECT jobq.create_job_type('bad', 'test.bad(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('bad') AS id \gset
SELECT status, error_msg, said FROM test.ended(:'id') LEFT JOIN jsonb_array_elements_text(result) said ON true;
SELECT count(*) FROM jobq.job_timeline(:'id');
SELECT v.options || ': ' || test.error_of(format('SELECT jobq.create_job_type(%L, %L, options => %L)', 'x', 'test.bad(jsonb)', v.options))
  FROM (VALUES ('{"events": "some"}'), ('{"events": true}'), ('{"events": "all failures"}')) v(options);
SELECT test.error_of($$SELECT jobq.job_timeline(NULL)$$);

-- a handler with many events
CREATE FUNCTION test.talks(payload jsonb) RETURNS void LANGUAGE sql AS $$ SELECT jobq.log_event(n::text) FROM generate_series(1, 12000) n $$;
SELECT jobq.create_job_type('talks', 'test.talks(jsonb)');
SELECT jobq.enqueue('talks') AS id \gset
SELECT status FROM test.ended(:'id');
SELECT count(*), max(message) FILTER (WHERE level = 'warning') AS last FROM jobq.job_timeline(:'id');
