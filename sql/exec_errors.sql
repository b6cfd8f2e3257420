-- Exec types: misbehaving tools
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.tool(name text, command text[], options jsonb DEFAULT '{}') RETURNS void LANGUAGE sql
  AS $$ SELECT jobq.create_job_type(name, command => command, max_attempts => 1, timeout => '30s', options => options) $$;
CREATE FUNCTION test.outcome(type text, payload jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS 'SELECT jobq.enqueue(type, payload)';

-- stdout without a valid result
SELECT test.tool('not json', '{echo,"not json"}');
SELECT test.tool('empty', '{true}');
SELECT test.tool('two values', '{echo,"1 2"}');
SELECT test.tool('not utf8', '{printf,"\"\\377\\376\""}');
SELECT test.tool('not utf8 text', '{printf,"a\\377b"}', '{"output": "text"}');
SELECT test.tool('nul json', '{printf,"\"a\\000b\""}');
SELECT test.tool('nul text', '{printf,"a\\000b"}', '{"output": "text"}');
SELECT test.tool('nul escape', '{printf,"\"a\\\\u0000b\""}');
SELECT test.tool('too deep', ARRAY['sh', '-c', 'head -c 1000 /dev/zero | tr "\0" "["; head -c 1000 /dev/zero | tr "\0" "]"']);
SELECT test.tool('too much', '{head,-c,100000,/dev/zero}', '{"output": "text", "max_output": 1000}');
SELECT test.tool('never ends', '{yes}', '{"max_output": 1000}');
SELECT test.tool('only stderr', '{sh,-c,"echo lost >&2"}');
SELECT test.tool('stderr flood', '{sh,-c,"yes 0123456789 | head -c 1000000 >&2; echo 1"}');
SELECT test.tool('bad stderr', '{sh,-c,"printf ''a\\377\\000b\\n'' >&2; exit 1"}');
-- stdin that the tool does not read, or reads too late
SELECT test.tool('closes stdin', '{sh,-c,"exec <&-; echo 1"}');
SELECT test.tool('ignores stdin', '{echo,1}');
-- tools that leave processes behind, stop themselves or ignore the timeout
SELECT test.tool('forks away', '{sh,-c,"setsid sh -c ''trap \"\" TERM HUP; sleep 600'' >/dev/null 2>&1 & echo 1"}');
SELECT test.tool('stops itself', '{sh,-c,"kill -STOP $$"}', '{"kill_grace": "100ms"}');
SELECT jobq.alter_job_type('stops itself', timeout => '200ms');
SELECT jobq.alter_job_type('never ends', timeout => '1min');

CREATE TABLE test.jobs AS SELECT t.id AS n, t.name, jobq.enqueue(t.name, jsonb_build_object('big', repeat('x', 300000))) AS id FROM jobq.job_types t ORDER BY t.id;
SELECT test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
SELECT name, status, attempts, error_code, left(error_msg, 60) AS error_msg, left(result::text, 20) AS result
  FROM test.jobs t LEFT JOIN jobq.jobs j USING (id) ORDER BY n;
SELECT name, octet_length(error_details->>'stderr') BETWEEN 1 AND 8192 AS stderr_kept, left(error_details->>'stderr', 10) AS stderr
  FROM test.jobs t JOIN jobq.jobs j USING (id) WHERE name IN ('only stderr', 'bad stderr') ORDER BY n;

-- a tool that this node cannot start: the job waits, no attempt is charged
SELECT test.tool('missing', '{/nonexistent/tool}');
SELECT test.tool('not found', '{jobq-no-such-tool}');
SELECT test.tool('not executable', '{/etc/passwd}');
SELECT jobq.enqueue('missing') AS a, jobq.enqueue('not found') AS b, jobq.enqueue('not executable') AS c \gset
SELECT test.wait_until(format('SELECT count(*) = 3 FROM jobq.events WHERE type = %L AND job_id IN (%L, %L, %L)', 'paused', :'a', :'b', :'c'));
SELECT job_type, status, attempts, error_code FROM jobq.jobs WHERE id IN (:'a', :'b', :'c') ORDER BY id;
SELECT job_type, source, level, message FROM jobq.events WHERE type = 'paused' ORDER BY job_id;
SELECT jobq.cancel_jobs('missing'), jobq.cancel_jobs('not found'), jobq.cancel_jobs('not executable');
-- other types continue
SELECT jobq.enqueue('ignores stdin') AS id \gset
SELECT status FROM test.ended(:'id');

-- a payload that no longer suits the command
SELECT test.tool('changes', '{echo,"{n}"}');
SELECT jobq.pause_job_type('changes');
SELECT jobq.enqueue('changes', '{"n": 1}') AS id \gset
SELECT jobq.alter_job_type('changes', command => '{echo,"{m}"}');
SELECT jobq.resume_job_type('changes');
SELECT status, attempts, error_code, error_msg FROM test.ended(:'id');
