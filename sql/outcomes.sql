-- Outcomes: permanent failures, charged attempts, exit codes, signals, timeouts, backoff
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.settled(type text) RETURNS TABLE(payload jsonb, status jobq.job_status, attempts int, runs int, error_code text, error_msg text)
  LANGUAGE plpgsql AS $$
BEGIN
  PERFORM test.wait_until(format($q$SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = %L
    AND (status = 'running' OR status = 'pending' AND scheduled_for < now() + '10 min' OR status = 'retry' AND scheduled_for <= now()))$q$, type));
  RETURN QUERY SELECT j.payload, j.status, j.attempts, j.runs, j.error_code, j.error_msg FROM jobq.jobs j WHERE j.job_type = type ORDER BY j.id;
END $$;

-- tools: patterns on exit codes, signals and timeout
SELECT jobq.create_job_type('tool', command => '{/bin/sh,-c,"{do}"}', backoff => 'fixed', backoff_base => '1 hour',
  options => '{"permanent_codes": ["exit:4_", "signal:K%", "bad\\_out%"], "permanent_exit_codes": [7], "skip_exit_codes": [8], "snooze_exit_codes": [9], "snooze": "2h"}');
SELECT jobq.enqueue('tool', jsonb_build_object('do', v)) IS NOT NULL AS ok
  FROM (VALUES (1, 'exit 3'), (2, 'exit 42'), (3, 'exit 4'), (4, 'exit 7'), (5, 'exit 8'), (6, 'exit 9'), (7, 'kill -KILL $$'),
               (8, 'kill -TERM $$'), (9, 'echo nonsense'), (10, 'exit 126'), (11, 'echo 1')) t(n, v) ORDER BY n;
SELECT * FROM test.settled('tool');
SELECT payload->>'do' AS do, round(extract(epoch FROM scheduled_for - now()) / 3600) AS hours FROM jobq.jobs WHERE job_type = 'tool' AND status IN ('retry', 'pending') ORDER BY id;

-- a timeout is its own kind: retried, unless a pattern says so
SELECT jobq.create_job_type('slow', command => '{sleep,600}', timeout => '100ms', backoff_base => '1 hour', options => '{"kill_grace": "1s"}');
SELECT jobq.enqueue('slow') AS id \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'retry', :'id'));
SELECT status, attempts, error_code, error_msg FROM jobq.jobs WHERE id = :'id';
SELECT jobq.alter_job_type('slow', options => '{"permanent_codes": ["time%"]}');
SELECT jobq.enqueue('slow', timeout => '50ms') AS id \gset
SELECT status, attempts, error_code, error_msg FROM test.ended(:'id');
CREATE FUNCTION test.sleeps(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$;
SELECT jobq.create_job_type('sleeps', 'test.sleeps(jsonb)', timeout => '50ms', options => '{"permanent_codes": ["57014", "timeout"]}');
SELECT jobq.enqueue('sleeps') AS id \gset
SELECT status, attempts, error_code, error_msg FROM test.ended(:'id');

-- SQL: patterns on the SQLSTATE; % alone makes every failure permanent, none of the others
CREATE FUNCTION test.raises(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'raised' USING ERRCODE = payload->>'code';
END $$;
SELECT jobq.create_job_type('raises', 'test.raises(jsonb)', backoff => 'fixed', backoff_base => '1 hour', options => '{"permanent_codes": ["22%", "_3505", "P000\\_"]}');
SELECT jobq.enqueue('raises', jsonb_build_object('code', v)) IS NOT NULL AS ok
  FROM (VALUES (1, '22012'), (2, '23505'), (3, 'P0001'), (4, '40001')) t(n, v) ORDER BY n;
SELECT * FROM test.settled('raises');
SELECT jobq.alter_job_type('raises', options => '{"permanent_codes": ["%"]}');
SELECT jobq.enqueue('raises', '{"code": "40001"}') AS id \gset
SELECT status, attempts FROM test.ended(:'id');

-- by RAISE: skip, discard, snooze; a snooze without an interval is a failure, and
-- its message gives the reason
CREATE FUNCTION test.says(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'detail' THEN
    RAISE EXCEPTION 'said' USING ERRCODE = payload->>'code', DETAIL = payload->>'detail';
  END IF;
  RAISE EXCEPTION 'said' USING ERRCODE = payload->>'code';
END $$;
SELECT jobq.create_job_type('says', 'test.says(jsonb)', backoff => 'fixed', backoff_base => '1 hour', options => '{"events": "all"}');
SELECT jobq.enqueue('says', v) IS NOT NULL AS ok
  FROM (VALUES (1, '{"code": "JQ001"}'::jsonb), (2, '{"code": "JQ002"}'), (3, '{"code": "JQ003", "detail": "3 hours"}'),
               (4, '{"code": "JQ003", "detail": "soon"}'), (5, '{"code": "JQ003"}'),
               (6, '{"code": "JQ003", "detail": "-1 second"}'), (7, '{"code": "JQ003", "detail": "20000 years"}')) t(n, v) ORDER BY n;
SELECT * FROM test.settled('says');
SELECT e.type, e.attempt, count(*) FROM jobq.events e WHERE e.job_type = 'says' GROUP BY 1, 2 ORDER BY 1, 2;

-- a snooze costs no attempt, however often; a job's own backoff counts before its type's
CREATE FUNCTION test.snoozes(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (jobq.current_job()).runs < 6 THEN PERFORM jobq.snooze('0'); ELSE RAISE EXCEPTION 'at last'; END IF;
END $$;
SELECT jobq.create_job_type('snoozes', 'test.snoozes(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('snoozes') AS id \gset
SELECT status, attempts, runs FROM test.ended(:'id');
SELECT jobq.create_job_type('own', 'test.raises(jsonb)', backoff_base => '1 s', backoff_jitter => 0);
SELECT jobq.enqueue('own', '{"code": "22012"}', backoff => '{"type": "fixed", "base": "2 hours", "max": "3 hours", "jitter": 0}') AS id \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'retry', :'id'));
SELECT round(extract(epoch FROM scheduled_for - started_at) / 3600) AS hours FROM jobq.jobs WHERE id = :'id';

-- retry_codes: all other codes of a handler are permanent; permanent_codes win;
-- timeouts are retried as before
SELECT jobq.create_job_type('choosy', 'test.raises(jsonb)', backoff => 'fixed', backoff_base => '1 hour', options => '{"retry_codes": ["40%", "53%"], "permanent_codes": ["4000_"]}');
SELECT jobq.enqueue('choosy', jsonb_build_object('code', v)) IS NOT NULL AS ok
  FROM (VALUES (1, '40P01'), (2, '40001'), (3, 'P0001'), (4, '53100')) t(n, v) ORDER BY n;
SELECT * FROM test.settled('choosy');
SELECT jobq.alter_job_type('choosy', options => '{"retry_codes": []}');
SELECT jobq.enqueue('choosy', '{"code": "53100"}') AS id \gset
SELECT status, attempts FROM test.ended(:'id');
SELECT jobq.alter_job_type('choosy', options => '{"retry_codes": null}');
SELECT jobq.enqueue('choosy', '{"code": "P0001"}') AS id \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'retry', :'id'));
-- ... a pattern that LIKE refuses, stored by an older release, matches nothing
UPDATE jobq.job_types SET options = '{"permanent_codes": ["P\\"]}' WHERE name = 'choosy';
SELECT jobq.enqueue('choosy', '{"code": "P0001"}') AS id \gset
SELECT test.wait_until(format('SELECT status = %L FROM jobq.jobs WHERE id = %L', 'retry', :'id'));
SELECT jobq.create_job_type('napper', 'test.sleeps(jsonb)', timeout => '50ms', backoff_base => '1 hour', options => '{"retry_codes": ["PY%"]}');
SELECT jobq.enqueue('napper') AS id \gset
SELECT test.wait_until(format('SELECT status <> ALL (%L) FROM jobq.jobs WHERE id = %L', '{pending,running}', :'id'));
SELECT status, error_code FROM jobq.jobs WHERE id = :'id';
-- ... a missing handler gives no code
CREATE FUNCTION test.leaves(payload jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('left', 'test.leaves(jsonb)', backoff_base => '1 hour', options => '{"retry_codes": ["PY%"]}');
DROP FUNCTION test.leaves;
SELECT jobq.enqueue('left') AS id \gset
SELECT test.wait_until(format('SELECT status <> ALL (%L) FROM jobq.jobs WHERE id = %L', '{pending,running}', :'id'));
SELECT status, error_code FROM jobq.jobs WHERE id = :'id';
-- tools give exit codes; signals, timeouts and bad output are not codes of the tool
SELECT jobq.create_job_type('picky', command => '{/bin/sh,-c,"{do}"}', backoff => 'fixed', backoff_base => '1 hour',
  options => '{"retry_codes": ["exit:7_"], "permanent_exit_codes": [72], "kill_grace": "1s"}');
SELECT jobq.enqueue('picky', jsonb_build_object('do', v), timeout => t) IS NOT NULL AS ok
  FROM (VALUES (1, 'exit 75', NULL::interval), (2, 'exit 3', NULL), (3, 'exit 72', NULL), (4, 'kill -KILL $$', NULL), (5, 'echo nonsense', NULL),
               (6, 'sleep 600', '100ms')) t(n, v, t) ORDER BY n;
SELECT * FROM test.settled('picky');

-- refused
SELECT v.options || ': ' || test.error_of(format('SELECT jobq.alter_job_type(%L, options => %L)', 'tool', v.options))
  FROM (VALUES ('{"permanent_codes": "22%"}'), ('{"permanent_codes": [22]}'), ('{"permanent_codes": {}}'), ('{"permanent_exit_codes": [256]}'),
    ('{"skip_exit_codes": [-1]}'), ('{"snooze_exit_codes": ["9"]}'), ('{"snooze": "-1s"}'), ('{"snooze": 5}'), ('{"retry_codes": "40%"}'), ('{"retry_codes": [40]}'), ('{"permanent_codes": ["22%", "2\\"]}'), ('{"retry_codes": ["4\\"]}'), ('{"breaker": true}'),
    ('{"breaker": []}'), ('{"breaker": {"failures": 0}}'), ('{"breaker": {"failures": 1.5}}'), ('{"breaker": {"failures": 1000001}}'), ('{"breaker": {"pause": "0"}}'), ('{"breaker": {"pause": 5}}'),
    ('{"breaker": {"pause": "101 years"}}'), ('{"breaker": {"fail": 3}}'), ('{"breaker": {}}'), ('{"breaker": {"failures": 3, "pause": "100 ms"}}'), ('{"breaker": null}')) v(options);
SELECT v.backoff || ': ' || test.error_of(format('SELECT jobq.enqueue(%L, %L, backoff => %L)', 'own', '{}', v.backoff))
  FROM (VALUES ('[]'), ('{"base": "-1s"}'), ('{"type": "odd"}'), ('{"jitter": 2}'), ('{"what": 1}')) v(backoff);
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
