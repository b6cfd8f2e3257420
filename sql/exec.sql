-- Exec types: arguments, stdin, stdout, exit codes, progress, environment
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.tool(name text, command text[], VARIADIC options text[] DEFAULT '{}') RETURNS void LANGUAGE sql
  AS $$ SELECT jobq.create_job_type(name, command => command, max_attempts => 1, timeout => '30s', options => jsonb_object(options)) $$;
CREATE FUNCTION test.run(job_type text, payload jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS 'SELECT jobq.enqueue(job_type, payload)';

-- stdin is the payload, stdout the result
SELECT test.tool('cat', '{cat}');
SELECT test.run('cat', '{"a": [1, 2.50, "é\n\"", null, true]}') AS id \gset
SELECT job_type, status, payload, result, attempts, runs, error_msg, error_code, worker ~ '^exec/\d+$' AS worker, node IS NOT NULL AS node,
       started_at >= created_at AS started, completed_at >= started_at AS ended FROM test.ended(:'id') \gx

-- output: json, text (byte for byte), none
SELECT test.tool('text', '{printf,"%s","{what}"}', 'output', 'text');
SELECT test.run('text', '{"what": "two\nlines \"quoted\" \\ é\n"}') AS id \gset
SELECT status, result, result = payload->'what' AS same FROM test.ended(:'id');
SELECT test.tool('none', '{echo,"not json"}', 'output', 'none');
SELECT test.run('none') AS id \gset
SELECT status, result FROM test.ended(:'id');
SELECT test.tool('scalar', '{echo," 42 "}');
SELECT test.run('scalar') AS id \gset
SELECT status, result FROM test.ended(:'id');
SELECT test.tool('large', '{head,-c,1000000,/dev/zero}', 'output', 'none');
SELECT test.run('large') AS id \gset
SELECT status, error_msg FROM test.ended(:'id');

-- arguments: no shell, no splitting, nothing added
SELECT test.tool('args', ARRAY['sh', '-c', 'for a do printf "<%s>\n" "$a"; done', 'sh', '{text}', '--x={text}', 'a{n}b{flag}c', '{deep.er}',
  '{{text}', '{ text}', '{}', ''], 'output', 'text');
SELECT test.run('args', '{"text": "a b; $(id) `id` * \"q\" é", "n": -1.50, "flag": true, "deep": {"er": "{text}"}}') AS id \gset
SELECT status, error_msg, arg FROM test.ended(:'id') LEFT JOIN regexp_split_to_table(result->>0, '\n') arg ON true;

-- 400 pairs of characters special to a shell, printf or an option parser arrive unchanged
SELECT test.tool('hostile', '{printf,%s,"<{a}>"}', 'output', 'text');
CREATE TABLE test.hostile AS SELECT a || b AS a, test.run('hostile', jsonb_build_object('a', a || b)) AS id
  FROM unnest(ARRAY[';', '|', '& ', '$(id)', '`id`', '"', '''', '\', E'\n', '*', '~', '#', '!', '{', '{{', '{a}', '%n', '-', ' ', 'é']) a,
       unnest(ARRAY['', '$HOME', '>x', '<', '\0', '%s', '''', '"', E'\t', '}', '--', '(', '[a]', '?', '=', '../', '/', ':', '日本', E'\r\n']) b;
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT count(*), count(*) FILTER (WHERE status = 'completed' AND result->>0 = '<' || a || '>') AS intact FROM test.hostile JOIN jobq.jobs USING (id);

-- exit codes and signals
SELECT jobq.create_job_type('exit', command => '{sh,-c,"echo to stderr >&2; exit $0","{code}"}', max_attempts => 2, backoff_base => '0',
  options => '{"permanent_exit_codes": [3], "skip_exit_codes": [4], "snooze_exit_codes": [5], "snooze": "1 hour", "output": "none"}');
SELECT jobq.enqueue('exit', jsonb_build_object('code', code)) IS NULL AS none FROM generate_series(0, 5) code GROUP BY 1;
SELECT test.wait_until($$SELECT count(*) = 6 AND bool_and(runs > 0 AND status NOT IN ('running', 'retry')) FROM jobq.jobs WHERE job_type = 'exit'$$);
SELECT payload->'code' AS code, status, attempts, runs, error_code, error_msg, error_details->>'stderr' AS stderr FROM jobq.jobs WHERE job_type = 'exit' ORDER BY id;
SELECT type, source, level, message, attempt, data->>'code' AS code, data->>'stderr' AS stderr
  FROM jobq.events WHERE job_type = 'exit' ORDER BY job_id, ts, id;
SELECT jobq.cancel_jobs('exit');
SELECT test.tool('signal', '{sh,-c,"kill -KILL $$"}');
SELECT test.run('signal') AS id \gset
SELECT status, error_code, error_msg FROM test.ended(:'id');

-- progress and log lines on descriptor 3; bad lines are ignored
SELECT test.tool('tells', '{sh,-c,"
  echo ''{\"progress\": 40, \"data\": {\"page\": 4}}'' >&3
  echo ''nonsense'' >&3
  echo ''{\"log\": \"half way\", \"level\": \"warning\", \"data\": {\"n\": 1}}'' >&3
  cat >/dev/null; echo 1"}');
SELECT test.run('tells') AS id \gset
SELECT status, result, progress, progress_data FROM test.ended(:'id');
SELECT type, source, level, message, data FROM jobq.job_timeline(:'id');

-- environment, work directory, descriptors
SELECT jobq.create_job_type('env', command => '{sh,-c,"env | sed s/=.*// | sort | paste -sd, -; pwd >&2; test \"$PWD\" = \"$JOBQ_WORKDIR\"; ls -A | wc -l; ls /proc/self/fd | wc -l"}',
  max_attempts => 1, options => '{"output": "text", "env": {"GREETING": "hello"}}');
SELECT test.run('env') AS id \gset
SELECT status, error_msg, line FROM test.ended(:'id') LEFT JOIN regexp_split_to_table(result->>0, '\n') line ON true WHERE line <> '';
SELECT test.tool('job env', '{sh,-c,"echo $JOBQ_JOB_ID $JOBQ_JOB_TYPE $JOBQ_ATTEMPT $JOBQ_MAX_ATTEMPTS $JOBQ_TENANT $GREETING"}', 'output', 'text');
SELECT jobq.enqueue('job env', tenant => 'acme') AS id \gset
SELECT status, replace(result->>0, :'id', '<id>') AS result FROM test.ended(:'id');

-- timeouts: TERM, then KILL; the whole tree
SELECT jobq.create_job_type('slow', command => '{sleep,600}', max_attempts => 1, timeout => '100ms');
SELECT jobq.create_job_type('stubborn', command => '{sh,-c,"trap '''' TERM; while :; do sleep 600; done"}', max_attempts => 1, timeout => '100ms',
  options => '{"kill_grace": "100ms"}');
SELECT test.run('slow') AS a, test.run('stubborn') AS b \gset
SELECT status, error_code, error_msg FROM test.ended(:'a');
SELECT status, error_code, error_msg FROM test.ended(:'b');

-- the job ends with its main process, even with processes left behind
SELECT test.tool('leaves', '{sh,-c,"sleep 600 & echo 1"}');
SELECT test.run('leaves') AS id \gset
SELECT status, result, completed_at - started_at < '25 s' AS at_once FROM test.ended(:'id');

-- many at once
SELECT test.tool('true', '{true}', 'output', 'none');
SELECT count(*) FROM jobq.enqueue_many('true', array_fill('{}'::jsonb, ARRAY[200]));
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT status, attempts, runs, count(*) FROM jobq.jobs WHERE job_type = 'true' GROUP BY 1, 2, 3;
