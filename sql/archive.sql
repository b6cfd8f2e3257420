-- jobq.archive: history and events as lines of JSON that restore to identical rows
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.echo(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF payload ? 'skip' THEN PERFORM jobq.skip(payload->>'skip'); END IF;
  IF payload ? 'log' THEN PERFORM jobq.log_event(payload->>'log', data => payload->'data'); END IF;
  IF payload ? 'progress' THEN PERFORM jobq.set_progress((payload->>'progress')::numeric, '{"a": [1, null]}'); END IF;
  RETURN payload->'result';
END $$;
SELECT jobq.create_job_type('odd "type"', 'test.echo(jsonb)', keep_completed => '10 days');
SELECT jobq.create_job_type('plain', 'test.echo(jsonb)');
SELECT jobq.pause_job_type('odd "type"'), jobq.pause_job_type('plain');
CREATE FUNCTION test.run(payload jsonb, tenant text DEFAULT NULL, metadata jsonb DEFAULT NULL, timeout interval DEFAULT NULL, key text DEFAULT NULL,
                         concurrency_key text DEFAULT NULL, backoff jsonb DEFAULT NULL) RETURNS jobq.job_status LANGUAGE sql AS $$
  SELECT (jobq.run_inline(jobq.enqueue('odd "type"', payload, tenant => tenant, metadata => metadata, timeout => timeout, unique_key => key,
    unique_for => CASE WHEN key IS NOT NULL THEN interval '-1 day +30 hours 0.000001 s' END, concurrency_key => concurrency_key, backoff => backoff))).status
$$;
SELECT test.run('{}'), test.run('{"result": {"n": 1e300, "m": -0.000000000000000000000000000000000000001, "t": 1.10, "deep": [[[null, true, ""]]]}}');
SELECT test.run(jsonb_build_object('odd', E'quote " backslash \\ tab \t newline \n bell \u0007 del \u007f é 漢 😀 \u2028', 'result', 'x'::text), tenant => E'é"\\/', key => E'k"\\\'', concurrency_key => ' ');
SELECT test.run('{"skip": "a \"reason\"\nin two lines", "progress": 33.330}', metadata => '{"m": [1.0, 1.00]}', timeout => '1 mon -2 days +03:04:05.000006');
SELECT test.run('{"log": "x\ty", "data": {"n": 1.50}, "result": "text"}', backoff => '{"base": "1s"}');
SELECT test.run('null'), test.run('{"result": null}', metadata => 'null'), test.run('[]'), test.run('"string"'), test.run('12.00');
-- a row with extreme values in every column
INSERT INTO jobq.history SELECT (jsonb_populate_record(h, '{"id": "ffffffff-ffff-ffff-ffff-ffffffffffff", "scheduled_for": "infinity", "created_at": "-infinity",
  "started_at": "0044-03-15 12:00:00.123456+00 BC", "progress": "NaN", "priority": -100, "depth": 2147483647, "timeout": "-1 year +2 days -03:00:00.000001"}')).* FROM jobq.history h WHERE h.payload = '{}';
SELECT jobq.enqueue('odd "type"', '{"n": 1}') AS id \gset
SELECT jobq.cancel_job(:'id', E'no\u0001 longer');
SELECT count(*) FROM generate_series(1, 200) n, jobq.run_inline(jobq.enqueue('plain', jsonb_build_object('n', n, 'log', 'n' || n % 7, 'result', n)));
INSERT INTO jobq.events (ts, job_id, job_type, type, source, level, message, data)
SELECT clock_timestamp(), id, 'plain', 'log', 'client', 'info', NULL, 'null' FROM jobq.history WHERE status = 'cancelled';
-- an event without a job
INSERT INTO jobq.events (type, source, level, message) SELECT 'signal_failed', 'dispatcher', 'warning', 'n' || n FROM generate_series(1, 3) n;

-- there and back
SET timezone = 'America/St_Johns';
SET intervalstyle = 'sql_standard';
SET datestyle = 'German';
CREATE TABLE test.lines AS SELECT row_number() OVER () AS n, line FROM jobq.archive('infinity') a(line);
CREATE TABLE test.event_lines AS SELECT row_number() OVER () AS n, line FROM jobq.archive('infinity', what => 'events') a(line);
RESET timezone;
RESET intervalstyle;
RESET datestyle;
SELECT count(*) = (SELECT count(*) FROM jobq.history) AS all, count(*) > 200 AS many, count(*) FILTER (WHERE line ~ E'[\n\r]') AS broken FROM test.lines;
-- a JSON null in a jsonb column is named; else jsonb_populate_record could not tell it from NULL
CREATE FUNCTION test.line_to_history(line jsonb) RETURNS jobq.history LANGUAGE plpgsql AS $$
DECLARE
  job jobq.history := jsonb_populate_record(NULL::jobq.history, line);
BEGIN
  IF line->'json_nulls' ? 'payload' THEN job.payload := 'null'; END IF;
  IF line->'json_nulls' ? 'result' THEN job.result := 'null'; END IF;
  IF line->'json_nulls' ? 'metadata' THEN job.metadata := 'null'; END IF;
  RETURN job;
END $$;
CREATE TABLE test.restored AS SELECT (test.line_to_history(line::jsonb)).* FROM test.lines;
SELECT count(*) FROM (TABLE test.restored EXCEPT ALL SELECT * FROM jobq.history) d;
SELECT count(*) FROM (SELECT * FROM jobq.history EXCEPT ALL TABLE test.restored) d;
-- numbers and text must be identical to the last digit, not merely equal
SELECT count(*) FROM (SELECT r::text FROM test.restored r EXCEPT ALL SELECT h::text FROM jobq.history h) d;
SELECT count(*) FROM (SELECT (jsonb_populate_record(NULL::jobq.history, line::jsonb)).* FROM test.lines WHERE NOT line::jsonb ? 'json_nulls' EXCEPT SELECT * FROM jobq.history) d;
SELECT count(*) FROM test.lines WHERE line::jsonb ? 'json_nulls';
SELECT DISTINCT line::jsonb->>'job_type' AS job_type FROM test.lines ORDER BY 1;
CREATE TABLE test.restored_events AS
SELECT (jsonb_populate_record(NULL::jobq.events, CASE WHEN line::jsonb ? 'json_nulls' THEN line::jsonb - 'data' ELSE line::jsonb END)).* FROM test.event_lines;
ALTER TABLE test.restored_events REPLICA IDENTITY FULL;
UPDATE test.restored_events r SET data = 'null' FROM test.event_lines l WHERE (l.line::jsonb->>'id')::bigint = r.id AND l.line::jsonb->'json_nulls' ? 'data';
SELECT count(*) > 200 AS many, count(*) = (SELECT count(*) FROM jobq.events) AS all FROM test.restored_events;
SELECT count(*) FROM (SELECT r::text FROM test.restored_events r EXCEPT ALL SELECT e::text FROM jobq.events e) d;
SELECT count(*) FROM (SELECT e::text FROM jobq.events e EXCEPT ALL SELECT r::text FROM test.restored_events r) d;

-- ordered, and resumed from the last id
SELECT count(*) FROM (SELECT line::jsonb->>'id' AS id, lag(line::jsonb->>'id') OVER (ORDER BY n) AS before FROM test.lines) l WHERE id <= before;
CREATE FUNCTION test.pages(what text, key text, max_rows int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  last uuid;
  line text;
  n int;
BEGIN
  LOOP
    n := 0;
    FOR line IN SELECT * FROM jobq.archive('infinity', last, what, max_rows) LOOP
      n := n + 1;
      last := line::jsonb->>key;
      RETURN NEXT line;
    END LOOP;
    EXIT WHEN n = 0;
    IF n > max_rows THEN RAISE 'too many'; END IF;
  END LOOP;
END $$;
SELECT p, count(*) AS off FROM (VALUES (7), (100), (1000)) v(p),
  LATERAL (SELECT n, line FROM test.lines EXCEPT ALL SELECT row_number() OVER (), line FROM test.pages('history', 'id', p) p(line)) d GROUP BY p;
SELECT p, count(*) AS off FROM (VALUES (7), (100), (1000)) v(p),
  LATERAL (SELECT n, line FROM test.event_lines EXCEPT ALL SELECT row_number() OVER (), line FROM test.pages('events', 'job_id', p) p(line)) d GROUP BY p;
DELETE FROM jobq.events WHERE job_id IS NULL;
-- resuming works also when the row at the last id is gone
SELECT line::jsonb->>'id' AS at, n FROM test.lines WHERE n = 100 \gset
DELETE FROM jobq.history WHERE id = :'at';
SELECT count(*) FROM (SELECT line FROM test.lines WHERE n > :n EXCEPT ALL SELECT * FROM jobq.archive('infinity', :'at')) d;
-- the events of a job are never split: more than max_rows only when one job has more
INSERT INTO jobq.events (ts, job_id, job_type, type, source) SELECT clock_timestamp(), '00000000-0000-0000-0000-000000000001', 'plain', 'log', 'client' FROM generate_series(1, 9);
SELECT count(*) FROM jobq.archive('infinity', what => 'events', max_rows => 5);
SELECT count(*) FROM jobq.archive('infinity', '00000000-0000-0000-0000-000000000000', 'events', 10);
-- filters by age
SELECT count(*) FROM jobq.archive('-infinity');
SELECT count(*) FROM jobq.archive((SELECT completed_at FROM jobq.history WHERE payload->>'n' = '150')) a(line) WHERE line::jsonb->'payload' ? 'log' AND line::jsonb->>'job_type' = 'plain';
SELECT count(*) FROM jobq.archive(clock_timestamp() - interval '1 hour', what => 'events');
SELECT count(*) FROM jobq.archive('infinity', max_rows => 0);

SELECT call || ': ' || test.error_of('SELECT * FROM jobq.' || call)
  FROM (VALUES ('archive(NULL)'), ('archive(now(), what => NULL)'), ('archive(now(), what => ''jobs'')'), ('archive(now(), max_rows => -1)')) v(call);
-- it returns only rows that the caller may read
CREATE ROLE jobq_regress_archivist;
GRANT USAGE ON SCHEMA test TO jobq_regress_archivist;
CREATE FUNCTION test.as_archivist(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  answer text;
BEGIN
  SET LOCAL ROLE jobq_regress_archivist;
  EXECUTE query INTO answer;
  RESET ROLE;
  RETURN answer;
EXCEPTION WHEN insufficient_privilege THEN
  RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
SELECT test.as_archivist($$SELECT count(*) FROM jobq.archive('infinity')$$);
SELECT jobq.grant_access('jobq_regress_archivist', 'read', 'é"\/');
SELECT test.as_archivist($$SELECT string_agg(line::jsonb->>'tenant', ' ') FROM jobq.archive('infinity') a(line)$$);
SELECT test.as_archivist($$SELECT count(*) FROM jobq.archive('infinity', what => 'events', max_rows => 10)$$);
SELECT test.as_archivist($$SELECT count(*) FROM jobq.disk_log$$);
SELECT jobq.grant_access('jobq_regress_archivist', 'read', job_types => '{plain}');
SELECT test.as_archivist($$SELECT string_agg(DISTINCT line::jsonb->>'job_type', ' ') FROM jobq.archive('infinity', max_rows => 150) a(line)$$);
SELECT test.as_archivist($$SELECT string_agg(DISTINCT line::jsonb->>'job_type', ' ') FROM jobq.archive('infinity', what => 'events') a(line)$$);
SELECT test.as_archivist($$SELECT count(*) >= 0 FROM jobq.disk_log$$);
DELETE FROM jobq.access;
DROP OWNED BY jobq_regress_archivist;
DROP ROLE jobq_regress_archivist;
DELETE FROM jobq.history;
DELETE FROM jobq.events;
