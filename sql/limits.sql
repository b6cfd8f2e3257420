-- Limits that types share, and the kill switch: arguments and errors
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
\pset format unaligned
\pset tuples_only on

-- set_limit
SELECT test.error_of(format('SELECT jobq.set_limit(%s)', args))
  FROM (VALUES ('NULL'), (''''''), (''' x'''), ('E''a\nb'''), ('repeat(''x'', 64)'),
    ('''l'', max_concurrent => NULL'), ('''l'', rate_limit => NULL'), ('''l'', rate_window => NULL'),
    ('''l'', -1'), ('''l'', 1000001'), ('''l'', rate_limit => -1'), ('''l'', rate_limit => 10001'),
    ('''l'', rate_window => ''0'''), ('''l'', rate_window => ''-1s'''), ('''l'', rate_window => ''20000 years'''),
    ('''l'', 3, 10, ''1 minute'''), ('''m'', rate_limit => 10000'), ('repeat(''x'', 63)')) v(args);
SELECT * FROM jobq.limits WHERE name IN ('l', 'm') ORDER BY name;
SELECT jobq.set_limit('l', 4);
SELECT * FROM jobq.limits WHERE name = 'l';

-- options.limits
SELECT test.error_of(format('SELECT jobq.create_job_type(%L, %L, options => %L)', 't', 'test.ok(jsonb)', options))
  FROM (VALUES ('{"limits": "l"}'), ('{"limits": [1]}'), ('{"limits": ["nope"]}'), ('{"limits": ["l", "nope"]}'),
    ('{"limits": ["l", "l", "l", "l", "l", "l", "l", "l", "l"]}'), ('{"limits": ["l", "m"]}')) v(options);
SELECT test.error_of($$ SELECT jobq.alter_job_type('t', options => '{"limits": ["nope"]}') $$);
SELECT options -> 'limits' FROM jobq.job_types WHERE name = 't';

-- options.concurrency_per_key, options.key_order
SELECT test.error_of(format('SELECT jobq.alter_job_type(%L, options => %L)', 't', options))
  FROM (VALUES ('{"concurrency_per_key": 0}'), ('{"concurrency_per_key": -1}'), ('{"concurrency_per_key": 1.5}'),
    ('{"concurrency_per_key": "2"}'), ('{"concurrency_per_key": 3000000000}'), ('{"key_order": "lifo"}'),
    ('{"key_order": true}'), ('{"concurrency_per_key": 2, "key_order": "fifo"}')) v(options);
SELECT options -> 'concurrency_per_key', options -> 'key_order' FROM jobq.job_types WHERE name = 't';
SELECT test.error_of(format('SELECT jobq.enqueue(%L, concurrency_key => %L)', 't', repeat('k', 2000)));
-- the hash is of key and tenant, also in rows written directly
SELECT count(jobq.enqueue('t', concurrency_key => k, tenant => t, delay => '1 day'))
  FROM unnest(ARRAY['a', 'b', NULL]) k, unnest(ARRAY['x', 'y', NULL]) t;
SELECT count(DISTINCT key_hash), count(key_hash), count(*) FROM jobq.queue;
UPDATE jobq.queue SET concurrency_key = 'b', key_hash = 7 WHERE tenant = 'x' AND concurrency_key = 'a';
UPDATE jobq.queue SET concurrency_key = NULL WHERE tenant = 'y';
SELECT tenant, concurrency_key, count(*), count(DISTINCT key_hash) FROM jobq.queue GROUP BY 1, 2 ORDER BY 1, 2;
SELECT jobq.cancel_jobs('t') > 0;
SELECT jobq.alter_job_type('t', options => '{"concurrency_per_key": null, "key_order": null}');

-- drop_limit
SELECT test.error_of(format('SELECT jobq.drop_limit(%s)', args)) FROM (VALUES ('NULL'), ('''nope'''), ('''l''')) v(args);
SELECT jobq.create_job_type('u', 'test.ok(jsonb)', options => '{"limits": ["l"]}');
SELECT test.error_of($$ SELECT jobq.drop_limit('l') $$);
SELECT jobq.alter_job_type('t', options => '{"limits": []}');
SELECT jobq.drop_job_type('u');
SELECT jobq.drop_limit('l'), jobq.drop_limit('m');
SELECT test.error_of($$ SELECT jobq.drop_limit('l') $$);
SELECT test.error_of($$ SELECT jobq.alter_job_type('t', options => '{"limits": ["l"]}') $$);

-- the kill switch
SELECT test.error_of(format('SELECT jobq.drain(%s)', args))
  FROM (VALUES ('NULL'), ('''-1s'''), ('''20000 years''')) v(args);
SELECT count(*) FROM jobq.stopped;
SELECT jobq.stop_all('maintenance');
SELECT jobq.stop_all(NULL);
SELECT one, reason, since <= clock_timestamp() FROM jobq.stopped;
SELECT jobq.enqueue('t') AS id \gset
SELECT test.error_of(format('SELECT jobq.run_inline(%L)', :'id'));
SELECT jobq.drain('5 min');
SELECT jobq.start_all();
SELECT jobq.start_all();
SELECT (test.ended(:'id')).status;

-- jobs that enqueue jobs
CREATE FUNCTION test.spawns(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..(p->>'children')::int LOOP
    PERFORM jobq.enqueue('t', jsonb_build_object('n', i));
  END LOOP;
  RETURN '{}';
END $$;
SELECT jobq.create_job_type('spawns', 'test.spawns(jsonb)', max_attempts => 1);
SELECT jobq.enqueue('spawns', '{"children": 4}') AS id \gset
SELECT (w).status, (w).error_msg FROM test.ended(:'id') w;
SELECT count(*), min(depth), max(depth), count(DISTINCT parent_id) FROM jobq.jobs WHERE parent_id = :'id';
-- outside a handler no depth is counted
SELECT count(jobq.enqueue('t')) FROM generate_series(1, 20);
SELECT jobq.enqueue('spawns', '{"children": 20}') AS id \gset
SELECT (w).status FROM test.ended(:'id') w;

-- a job scheduled a second or more ahead has no greater depth: a job may enqueue itself for
-- tomorrow
CREATE FUNCTION test.tomorrow(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SELECT jobq.enqueue(%L, %L, %s)', 'tomorrow', p - 'args', p->>'args');
END $$;
SELECT jobq.create_job_type('tomorrow', 'test.tomorrow(jsonb)', max_attempts => 1, options => '{"max_depth": 0}');
SELECT count(jobq.enqueue('tomorrow', jsonb_build_object('n', n, 'args', v)))
  FROM (VALUES (1, 'delay => ''1s'''), (2, 'delay => ''1 day'''), (3, 'scheduled_for => clock_timestamp() + ''1 min'''), (4, 'delay => ''999 ms'''),
         (5, 'delay => ''0'''), (6, 'scheduled_for => clock_timestamp() + ''-1 day''')) t(n, v);
SELECT test.wait_until($$ SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE payload ? 'args' AND status IN ('pending', 'running')) $$);
SELECT j.payload->>'args' AS args, j.status, j.error_msg, c.depth
  FROM jobq.jobs j LEFT JOIN jobq.jobs c ON c.parent_id = j.id WHERE j.payload ? 'args' ORDER BY j.payload->'n';
-- a replacement that is due now has the depth of a child
SELECT jobq.cancel_jobs('tomorrow') > 0;
CREATE FUNCTION test.sooner(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.enqueue('tomorrow', '{}', delay => '1 day', unique_key => 'k'), jobq.enqueue('tomorrow', '{}', delay => '1 hour', unique_key => 'k', on_conflict => 'replace');
  PERFORM jobq.enqueue('sooner', '{}', delay => '1 day', unique_key => 'k');
  IF p ? 'now' THEN
    PERFORM jobq.pause_job_type('sooner');
    PERFORM jobq.enqueue('sooner', '{}', delay => '500 ms', unique_key => 'k', on_conflict => 'replace');
  END IF;
END $$;
SELECT jobq.create_job_type('sooner', 'test.sooner(jsonb)', max_attempts => 1, options => '{"max_depth": 1}');
SELECT jobq.enqueue('sooner', '{"now": true}') AS id \gset
SELECT (w).status, (w).error_msg FROM test.ended(:'id') w;
SELECT job_type, depth FROM jobq.jobs WHERE parent_id = :'id' ORDER BY job_type;
