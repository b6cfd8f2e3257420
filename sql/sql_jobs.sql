-- SQL jobs: handlers of every form, their effects, results, roles and surroundings
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE test.log (id int GENERATED ALWAYS AS IDENTITY, what text);
CREATE FUNCTION test.echo(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN jsonb_build_object('echo', payload);
CREATE FUNCTION test.as_json(payload jsonb) RETURNS json LANGUAGE sql RETURN '{"a":  1}'::json;
CREATE FUNCTION test.nothing(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO test.log (what) VALUES ('nothing'); END $$;
CREATE FUNCTION test.no_argument() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO test.log (what) VALUES ('no argument'); END $$;
CREATE FUNCTION test.gives_null(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN NULL::jsonb;
CREATE FUNCTION test.strict(payload jsonb) RETURNS jsonb STRICT LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type(f, format('test.%I(jsonb)', f)::regprocedure)
  FROM unnest('{echo,as_json,nothing,gives_null,strict}'::text[]) f;
SELECT jobq.create_job_type('no_argument', 'test.no_argument()');

SELECT jobq.enqueue('echo', '{"n": 1}') AS id \gset
SELECT job_type, status, payload, result, attempts, runs, error_msg, worker ~ '^sql/\d+$' AS worker, started_at >= created_at AS started,
       completed_at >= started_at AS ended, updated_at = completed_at AS updated FROM test.ended(:'id') \gx
SELECT jobq.enqueue('as_json') AS a, jobq.enqueue('gives_null') AS b, jobq.enqueue('no_argument') AS c, jobq.enqueue('nothing') AS d,
       jobq.enqueue('strict', '[]') AS e \gset
SELECT (j).job_type, (j).status, (j).result
  FROM (SELECT test.ended(id) AS j FROM unnest(ARRAY[:'a', :'b', :'c', :'d', :'e']::uuid[]) id) e ORDER BY (j).job_type;
SELECT what FROM test.log ORDER BY what;

-- effects and completion are one transaction: the writes of a failed attempt are gone
CREATE FUNCTION test.writes_then_fails(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO test.log (what) VALUES ('written by a failure');
  RAISE EXCEPTION 'no %', payload->>'what' USING ERRCODE = 'ZZ123', DETAIL = 'a detail', HINT = 'a hint';
END $$;
SELECT jobq.create_job_type('fails', 'test.writes_then_fails(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('fails', '{"what": "luck"}') AS id \gset
SELECT status, attempts, runs, error_code, error_msg, result FROM test.ended(:'id');
SELECT count(*) FROM test.log WHERE what = 'written by a failure';
SELECT type, source, level, message, attempt, data->>'code' AS code FROM jobq.job_timeline(:'id');

-- outcomes requested by the handler: the last call wins; its writes stay
CREATE FUNCTION test.says(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO test.log (what) VALUES (payload->>'say');
  IF payload->>'say' = 'skip' THEN PERFORM jobq.snooze('1 hour'); PERFORM jobq.skip('not today');
  ELSIF payload->>'say' = 'discard' THEN PERFORM jobq.skip(); PERFORM jobq.discard('hopeless');
  ELSIF payload->>'say' = 'snooze' THEN PERFORM jobq.discard('no'); PERFORM jobq.snooze('1 hour', 'later');
  ELSIF payload->>'say' = 'fail after' THEN PERFORM jobq.skip('not today'); RAISE 'failed';
  ELSE RAISE EXCEPTION '%', payload->>'say' USING ERRCODE = payload->>'code', DETAIL = coalesce(payload->>'detail', '');
  END IF;
  RETURN '1';
END $$;
SELECT jobq.create_job_type('says', 'test.says(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('says', '{"say": "skip"}') AS skip, jobq.enqueue('says', '{"say": "discard"}') AS discard,
       jobq.enqueue('says', '{"say": "snooze"}') AS snooze, jobq.enqueue('says', '{"say": "fail after"}') AS fail,
       jobq.enqueue('says', '{"say": "raised skip", "code": "JQ001"}') AS skip2,
       jobq.enqueue('says', '{"say": "raised discard", "code": "JQ002"}') AS discard2,
       jobq.enqueue('says', '{"say": "raised snooze", "code": "JQ003", "detail": "2 hours"}') AS snooze2 \gset
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'says' AND (status = 'running' OR runs = 0))$$);
SELECT payload->>'say' AS say, status, attempts, runs, error_msg, error_code, result,
       round(extract(epoch FROM scheduled_for - created_at) / 3600) AS hours
  FROM jobq.jobs WHERE job_type = 'says' ORDER BY id;
SELECT what FROM test.log WHERE what IN ('skip', 'discard', 'snooze') OR what LIKE 'raised%' OR what LIKE 'fail%' ORDER BY what;

-- outside a handler
SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('set_progress(1)'), ('log_event(''x'')'), ('skip()'), ('discard(''x'')'), ('snooze(''1s'')')) v(call);
SELECT (jobq.current_job()).id IS NULL AS none;

-- inside: the job itself, progress that other sessions see while it runs, events that survive
CREATE FUNCTION test.inside(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE job jobq.jobs := jobq.current_job();
BEGIN
  PERFORM jobq.set_progress(40, '{"page": 4}');
  PERFORM jobq.log_event('hello', 'warning', 'greeting', '{"to": "world"}');
  PERFORM pg_advisory_lock(4711);
  PERFORM pg_advisory_unlock(4711);
  PERFORM jobq.set_progress(100);
  RETURN jsonb_build_object('me', job.id, 'status', job.status, 'attempts', job.attempts, 'runs', job.runs,
                            'user', current_user = session_user, 'isolation', current_setting('transaction_isolation'));
END $$;
SELECT jobq.create_job_type('inside', 'test.inside(jsonb)');
SELECT pg_advisory_lock(4711);
SELECT jobq.enqueue('inside') AS id \gset
SELECT test.wait_until(format('SELECT progress = 40 FROM jobq.jobs WHERE id = %L', :'id'));
SELECT status, attempts, runs, progress, progress_data, worker ~ '^sql/' AS worker, started_at IS NOT NULL AS started
  FROM jobq.jobs WHERE id = :'id';
SELECT status, count FROM jobq.count_by_status('inside') WHERE count > 0;
SELECT count(*) FROM jobq.list_jobs('running');
SELECT pg_advisory_unlock(4711);
SELECT status, result - 'me' AS result, result->>'me' = :'id' AS me, progress, attempts, runs FROM test.ended(:'id');
SELECT type, source, level, message, data FROM jobq.job_timeline(:'id');

-- bad arguments inside
CREATE FUNCTION test.bad(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  call text;
  said jsonb := '[]';
BEGIN
  FOREACH call IN ARRAY ARRAY['set_progress(-1)', 'set_progress(101)', 'set_progress(NULL)', 'set_progress(''NaN'')', 'set_progress(12.5)',
      'log_event(NULL)', 'log_event(''x'', NULL)', 'log_event(''x'', type => NULL)', 'log_event(repeat(''x'', 100000))', 'log_event(''x'')',
      'snooze(NULL)', 'snooze(''-1s'')', 'discard(NULL)', 'skip(NULL)'] LOOP
    said := said || to_jsonb(call || ': ' || test.error_of('SELECT jobq.' || call));
  END LOOP;
  RETURN said;
END $$;
SELECT jobq.create_job_type('bad', 'test.bad(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('bad') AS id \gset
SELECT status, error_msg, said FROM test.ended(:'id') LEFT JOIN jsonb_array_elements_text(result) said ON true;

-- a handler may enqueue: the new job knows its parent
CREATE FUNCTION test.parent(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(jobq.enqueue('echo', '"child"'));
SELECT jobq.create_job_type('parent', 'test.parent(jsonb)');
SELECT jobq.enqueue('parent') AS id \gset
SELECT result->>0 AS child FROM test.ended(:'id') \gset
SELECT status, depth, parent_id = :'id' AS ours FROM test.ended(:'child');

-- timeouts: of the type, of the job
CREATE FUNCTION test.sleeps(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$;
SELECT jobq.create_job_type('sleeps', 'test.sleeps(jsonb)', max_attempts => 1, timeout => '100ms');
SELECT jobq.enqueue('sleeps') AS a, jobq.enqueue('sleeps', timeout => '50ms') AS b \gset
SELECT status, error_code, error_msg FROM test.ended(:'a');
SELECT status, error_code, error_msg FROM test.ended(:'b');

-- a handler that has been dropped when the job runs, and one without EXECUTE for its role
CREATE FUNCTION test.gone(payload jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('gone', 'test.gone(jsonb)', max_attempts => 1);
DROP FUNCTION test.gone;
SELECT jobq.enqueue('gone') AS id \gset
SELECT status, error_code, error_msg FROM test.ended(:'id');

-- a type that keeps nothing
SELECT jobq.create_job_type('forgets', 'test.echo(jsonb)', keep_completed => '0');
SELECT jobq.enqueue('forgets') AS id \gset
SELECT test.wait_until($$SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'forgets')$$);

-- deferred constraints are the job's own failure
CREATE TABLE test.parents (id int PRIMARY KEY);
CREATE TABLE test.children (parent int REFERENCES test.parents DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION test.deferred(payload jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO test.children VALUES (1)';
SELECT jobq.create_job_type('deferred', 'test.deferred(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('deferred') AS id \gset
SELECT status, error_code, attempts FROM test.ended(:'id');

-- session state left by a job does not reach the next one
CREATE FUNCTION test.leaves(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE seen jsonb := jsonb_build_object('search_path', current_setting('search_path'), 'work_mem', current_setting('work_mem') = '77kB',
  'temp', to_regclass('pg_temp.left_behind') IS NOT NULL,
  'locks', (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
  'prepared', (SELECT count(*) FROM pg_prepared_statements));
BEGIN
  PERFORM set_config('search_path', 'test', false), set_config('work_mem', '77kB', false);
  CREATE TEMP TABLE left_behind (i int);
  PERFORM pg_advisory_lock(1);
  EXECUTE 'PREPARE left_behind AS SELECT 1';
  RETURN seen;
END $$;
SELECT jobq.create_job_type('leaves', 'test.leaves(jsonb)');
SELECT jobq.enqueue('leaves') AS a \gset
SELECT status, error_msg, result FROM test.ended(:'a');
SELECT jobq.enqueue('leaves') AS a \gset
SELECT status, error_msg, result FROM test.ended(:'a');
