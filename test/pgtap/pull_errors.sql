-- Bad input of the calls of pull types: SQLSTATE, message with argument and value,
-- HINT; nothing is changed by it.
BEGIN;
SELECT * FROM no_plan();
SELECT jobq.create_job_type('bad pull', options => '{"max_lease": "5min", "alert": false}');
SELECT jobq.create_job_type('bad tool', command => '{cat}');
CREATE SCHEMA bad;
CREATE FUNCTION bad.ok(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('bad sql', 'bad.ok(jsonb)');

-- A job that looks claimed; its token is its id.
CREATE TEMP TABLE j AS SELECT jobq.enqueue('bad pull') AS id;
UPDATE jobq.queue q SET status = 'running', attempts = 1, runs = 1, started_at = clock_timestamp(), worker = 'w', lease = '1min',
       lease_token = q.id, lease_expires_at = clock_timestamp() + interval '1min' FROM j WHERE q.id = j.id;
CREATE TEMP TABLE before AS SELECT * FROM jobq.queue;

CREATE FUNCTION pg_temp.error_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  message text;
  hint text;
BEGIN
  EXECUTE statement;
  RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
  RETURN concat_ws(' | ', SQLSTATE, message, nullif(hint, ''));
END $$;
CREATE TEMP TABLE calls (call text, error text);
INSERT INTO calls VALUES
  ($$claim('{nope}')$$, '42704 | argument "job_types": job type "nope" does not exist'),
  ($$claim('{bad pull,nope}')$$, '42704 | argument "job_types": job type "nope" does not exist'),
  ($$claim('{}')$$, '22023 | argument "job_types" is an empty array | NULL stands for every pull type that the role may work.'),
  ($$claim(ARRAY['bad pull', NULL])$$, '22004 | argument "job_types": an element must not be NULL'),
  ($$claim('{bad sql}')$$, '22023 | argument "job_types": job type "bad sql" has a handler, which a SQL worker calls | Clients claim jobs of types without handler and command.'),
  ($$claim('{bad tool}')$$, '22023 | argument "job_types": the tool of job type "bad tool" runs on the server | Clients claim jobs of types without handler and command.'),
  ($$claim('{bad tool}', node => 'n1')$$, '0A000 | argument "job_types": the tool of job type "bad tool" runs on the server | Clients claim jobs of types without handler and command.'),
  ($$claim('{bad pull}', 0)$$, '22003 | argument "max_jobs": 0 is outside 1..1000'),
  ($$claim('{bad pull}', -1)$$, '22003 | argument "max_jobs": -1 is outside 1..1000'),
  ($$claim('{bad pull}', 1001)$$, '22003 | argument "max_jobs": 1001 is outside 1..1000'),
  ($$claim('{bad pull}', NULL)$$, '22004 | argument "max_jobs" must not be NULL'),
  ($$claim('{bad pull}', lease => NULL)$$, '22004 | argument "lease" must not be NULL'),
  ($$claim('{bad pull}', lease => '0')$$, '22003 | argument "lease": "00:00:00" is outside 00:00:01..87840000:00:00'),
  ($$claim('{bad pull}', lease => '999ms')$$, '22003 | argument "lease": "00:00:00.999" is outside 00:00:01..87840000:00:00'),
  ($$claim('{bad pull}', lease => '-1min')$$, '22003 | argument "lease": "-00:01:00" is outside 00:00:01..87840000:00:00'),
  ($$claim('{bad pull}', lease => '5min 1us')$$, '22003 | argument "lease": "00:05:00.000001" is longer than job type "bad pull" allows: 00:05:00 | options.max_lease of the type is the longest; heartbeats renew a lease.'),
  ($$claim('{bad pull}', wait => NULL)$$, '22004 | argument "wait" must not be NULL'),
  ($$claim('{bad pull}', wait => '20.000001s')$$, '22003 | argument "wait": "00:00:20.000001" is outside 00:00:00..00:00:20'),
  ($$claim('{bad pull}', wait => '-1us')$$, '22003 | argument "wait": "-00:00:00.000001" is outside 00:00:00..00:00:20'),
  ($$claim('{bad pull}', worker => '')$$, '22023 | argument "worker": "" is empty or has control characters'),
  ($$claim('{bad pull}', worker => E'a\nb')$$, '22023 | argument "worker": "a?b" is empty or has control characters'),
  ($$claim('{bad pull}', worker => repeat('w', 256))$$, '54000 | argument "worker": 256 bytes are more than 255'),
  ($$claim('{bad pull}', node => '')$$, '22023 | argument "node": "" is empty or has control characters'),
  ($$claim('{bad pull}', node => repeat('w', 256))$$, '54000 | argument "node": 256 bytes are more than 255'),
  ($$claim((SELECT array_agg('bad pull'::text) FROM generate_series(1, 257)))$$, '54000 | argument "job_types": 257 names are more than 256'),
  ($$heartbeat(NULL, j.id)$$, '22004 | argument "id" must not be NULL'),
  ($$heartbeat(j.id, NULL)$$, '22004 | argument "lease_token" must not be NULL'),
  ($$heartbeat(j.id, j.id, 'NaN')$$, '22003 | argument "progress": NaN is outside 0..100'),
  ($$heartbeat(j.id, j.id, -0.001)$$, '22003 | argument "progress": -0.001 is outside 0..100'),
  ($$heartbeat(j.id, j.id, 100.001)$$, '22003 | argument "progress": 100.001 is outside 0..100'),
  ($$heartbeat(j.id, j.id, 1e400)$$, '22003 | argument "progress": 1' || repeat('0', 400) || ' is outside 0..100'),
  ($$heartbeat(j.id, j.id, data => to_jsonb(repeat('x', 1100000)))$$,
    '54000 | argument "data" is larger than 1048576 bytes when written out | Store large data elsewhere, and where it is in the checkpoint.'),
  ($$heartbeat(j.id, j.id, data => (repeat('[', 65) || repeat(']', 65))::jsonb)$$, '54000 | argument "data" is nested more than 64 levels deep'),
  ($$complete(NULL, j.id)$$, '22004 | argument "id" must not be NULL'),
  ($$complete(j.id, NULL)$$, '22004 | argument "lease_token" must not be NULL'),
  ($$complete(j.id, j.id, to_jsonb(repeat('x', 1100000)))$$,
    '54000 | argument "result" is larger than 1048576 bytes when written out | Raise jobq.max_output, or store large data elsewhere and complete with where it is.'),
  ($$complete(j.id, j.id, (repeat('[', 65) || repeat(']', 65))::jsonb)$$, '54000 | argument "result" is nested more than 64 levels deep'),
  ($$complete_many(NULL, '{}')$$, '22004 | argument "ids" must not be NULL'),
  ($$complete_many('{}', NULL)$$, '22004 | argument "lease_tokens" must not be NULL'),
  ($$complete_many(ARRAY[j.id], '{}')$$, '22023 | argument "lease_tokens" has 0 elements, and "ids" has 1'),
  ($$complete_many(ARRAY[j.id], ARRAY[j.id], '{}')$$, '22023 | argument "results" has 0 elements, and "ids" has 1'),
  ($$complete_many(ARRAY[j.id], ARRAY[j.id], '{"1","2"}')$$, '22023 | argument "results" has 2 elements, and "ids" has 1'),
  ($$complete_many(ARRAY[ARRAY[j.id]], ARRAY[j.id])$$, '22023 | argument "ids" has more than one dimension'),
  ($$complete_many(ARRAY[j.id, NULL], ARRAY[j.id, j.id])$$, '22004 | argument "ids": element 2 must not be NULL'),
  ($$complete_many(ARRAY[j.id, j.id], ARRAY[j.id, NULL])$$, '22004 | argument "lease_tokens": element 2 must not be NULL'),
  ($$complete_many(array_fill(j.id, ARRAY[1001]), array_fill(j.id, ARRAY[1001]))$$, '22003 | argument "ids" has 1001 elements, which is outside 0..1000'),
  ($$complete_many(ARRAY[j.id], ARRAY[j.id], ARRAY[to_jsonb(repeat('x', 1100000))])$$,
    '54000 | argument "results[1]" is larger than 1048576 bytes when written out | Raise jobq.max_output, or store large data elsewhere and complete with where it is.'),
  ($$fail(j.id, NULL, 'x')$$, '22004 | argument "lease_token" must not be NULL'),
  ($$fail(j.id, j.id, NULL)$$, '22004 | argument "error" must not be NULL'),
  ($$fail(j.id, j.id, 'x', error_code => '')$$, '22023 | argument "error_code": "" is empty or has control characters'),
  ($$fail(j.id, j.id, 'x', error_code => repeat('1', 256))$$, '54000 | argument "error_code": 256 bytes are more than 255'),
  ($$fail(j.id, j.id, 'x', retry_after => '-1s')$$, '22023 | argument "retry_after": "-00:00:01" is outside 0..10000 years'),
  ($$fail_many(NULL, '{}', 'x')$$, '22004 | argument "ids" must not be NULL'),
  ($$fail_many('{}', NULL, 'x')$$, '22004 | argument "lease_tokens" must not be NULL'),
  ($$fail_many(ARRAY[j.id], '{}', 'x')$$, '22023 | argument "lease_tokens" has 0 elements, and "ids" has 1'),
  ($$fail_many(ARRAY[j.id], ARRAY[ARRAY[j.id]], 'x')$$, '22023 | argument "lease_tokens" has more than one dimension'),
  ($$fail_many(ARRAY[j.id, NULL], ARRAY[j.id, j.id], 'x')$$, '22004 | argument "ids": element 2 must not be NULL'),
  ($$fail_many(ARRAY[j.id, j.id], ARRAY[j.id, NULL], 'x')$$, '22004 | argument "lease_tokens": element 2 must not be NULL'),
  ($$fail_many(array_fill(j.id, ARRAY[1001]), array_fill(j.id, ARRAY[1001]), 'x')$$, '22003 | argument "ids" has 1001 elements, which is outside 0..1000'),
  ($$fail_many(ARRAY[j.id], ARRAY[j.id], NULL)$$, '22004 | argument "error" must not be NULL'),
  ($$fail_many(ARRAY[j.id], ARRAY[j.id], 'x', error_code => '')$$, '22023 | argument "error_code": "" is empty or has control characters'),
  ($$fail_many(ARRAY[j.id], ARRAY[j.id], 'x', error_code => repeat('1', 256))$$, '54000 | argument "error_code": 256 bytes are more than 255'),
  ($$fail_many(ARRAY[j.id], ARRAY[j.id], 'x', retry_after => '-1s')$$, '22023 | argument "retry_after": "-00:00:01" is outside 0..10000 years'),
  ($$skip_job(j.id, j.id, 'x', to_jsonb(repeat('x', 1100000)))$$,
    '54000 | argument "result" is larger than 1048576 bytes when written out | Raise jobq.max_output, or store large data elsewhere and complete with where it is.'),
  ($$skip_job(NULL, j.id)$$, '22004 | argument "id" must not be NULL'),
  ($$snooze_job(j.id, NULL)$$, '22004 | argument "lease_token" must not be NULL'),
  ($$snooze_job(j.id, j.id, NULL)$$, '22004 | argument "delay" must not be NULL'),
  ($$snooze_job(j.id, j.id, '-1s')$$, '22023 | argument "delay": "-00:00:01" is outside 0..10000 years'),
  ($$create_job_type('bad batch', options => '{"min_batch": 5}')$$,
    '22023 | option "min_batch": 5 is not an object of "jobs", a whole number, and "wait", an interval above zero and up to 1 day'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"jobs": 1.5}}')$$,
    '22023 | option "min_batch": {"jobs": 1.5} is not an object of "jobs", a whole number, and "wait", an interval above zero and up to 1 day'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"wait": "0"}}')$$,
    '22023 | option "min_batch": {"wait": "0"} is not an object of "jobs", a whole number, and "wait", an interval above zero and up to 1 day'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"wait": "1 day 1us"}}')$$,
    '22023 | option "min_batch": {"wait": "1 day 1us"} is not an object of "jobs", a whole number, and "wait", an interval above zero and up to 1 day'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"wait": 5}}')$$,
    '22023 | option "min_batch": {"wait": 5} is not an object of "jobs", a whole number, and "wait", an interval above zero and up to 1 day'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"n": 1}}')$$,
    '22023 | option "min_batch": {"n": 1} is not an object of "jobs", a whole number, and "wait", an interval above zero and up to 1 day'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"jobs": 0}}')$$, '22003 | option "min_batch": 0 is outside 1..128'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"jobs": -1}}')$$, '22003 | option "min_batch": -1 is outside 1..128'),
  ($$create_job_type('bad batch', options => '{"min_batch": {"jobs": 129}}')$$, '54000 | option "min_batch": 129 is outside 1..128'),
  ($$create_job_type('bad batch', 'bad.ok(jsonb)', options => '{"min_batch": {"jobs": 5}}')$$, '22023 | option "min_batch" has no meaning for a job type with a handler'),
  ($$alter_job_type('bad pull', options => '{"min_batch": {"jobs": 129}}')$$, '54000 | option "min_batch": 129 is outside 1..128'),
  ($$channel(NULL)$$, '22004 | argument "job_type" must not be NULL'),
  ($$log_event('x', id => j.id)$$, '22004 | argument "lease_token" must not be NULL | id and lease_token are given together.'),
  ($$log_event('x', lease_token => j.id)$$, '22004 | argument "id" must not be NULL | id and lease_token are given together.');
SELECT is(pg_temp.error_of('SELECT jobq.' || replace(call, 'j.id', quote_literal(j.id) || '::uuid')), error, call) FROM calls, j;
-- since PostgreSQL 17
SELECT is(pg_temp.error_of(format('SELECT jobq.claim(%L, %s => %L)', '{bad pull}', argument, 'infinity')),
          CASE WHEN current_setting('server_version_num')::int >= 170000
               THEN format('22003 | argument "%s": "infinity" is outside %s', argument, bounds)
               ELSE '22007 | invalid input syntax for type interval: "infinity"' END, argument || ' infinite')
  FROM (VALUES ('lease', '00:00:01..87840000:00:00'), ('wait', '00:00:00..00:00:20')) v(argument, bounds);
SELECT results_eq('SELECT * FROM jobq.queue', 'SELECT * FROM before', 'no refused call changed the job');
SELECT is(jobq.heartbeat(id, id, 1e-400), 'ok', 'a progress too small for a double') FROM j;
SELECT is(progress::text, '0', 'is none') FROM jobq.queue q JOIN j USING (id);
SELECT is(jobq.heartbeat(id, id, 200::numeric / 3), 'ok', 'a progress of many digits') FROM j;
SELECT is(progress::text, '66.6666666666667', 'is stored with fifteen') FROM jobq.queue q JOIN j USING (id);
SELECT is(jobq.complete(id, id), true, 'the job still ends') FROM j;
SELECT * FROM finish();
ROLLBACK;
