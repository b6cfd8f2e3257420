-- Calls about a claimed job: the contract of each, on rows that this
-- transaction has claimed itself.
BEGIN;
SELECT plan(54);
SELECT jobq.create_job_type('pulled', max_attempts => 2, backoff_base => '1h', backoff_jitter => 0, options => '{"alert": false}');
SELECT jobq.create_job_type('coded', options => '{"alert": false, "permanent_codes": ["4__"], "max_lease": "5min"}');
SELECT jobq.create_job_type('chosen', max_attempts => 9, options => '{"alert": false, "retry_codes": ["5__"]}');
SELECT jobq.create_job_type('none chosen', max_attempts => 9, options => '{"alert": false, "retry_codes": []}');
CREATE FUNCTION pg_temp.ok(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT is((SELECT kind FROM jobq.job_types WHERE name = 'pulled'), 'pull', 'a type without handler and command is of kind pull');

-- Makes a job that looks claimed; its token is its id.
CREATE FUNCTION pg_temp.claimed(job_type text DEFAULT 'pulled') RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
  job uuid := jobq.enqueue(job_type);
BEGIN
  UPDATE jobq.queue SET status = 'running', attempts = 1, runs = 1, started_at = clock_timestamp(), worker = 'w', lease = '1min',
         lease_token = id, lease_expires_at = clock_timestamp() + interval '1min' WHERE id = job;
  RETURN job;
END $$;
CREATE FUNCTION pg_temp.job(job uuid) RETURNS jobq.jobs LANGUAGE sql AS 'SELECT j FROM jobq.jobs j WHERE j.id = job';
CREATE TEMP TABLE j AS SELECT n, pg_temp.claimed(CASE n WHEN 'coded' THEN 'coded' ELSE 'pulled' END) AS id
  FROM unnest('{beat,done,many1,many2,fails,last,given,coded,skipped,snoozed,stopped}'::text[]) n;
CREATE FUNCTION pg_temp.id(name text) RETURNS uuid LANGUAGE sql AS 'SELECT id FROM j WHERE n = name';

-- heartbeat
SELECT is(jobq.heartbeat(pg_temp.id('beat'), pg_temp.id('beat'), 12.5, '{"a": 1}'), 'ok', 'heartbeat');
SELECT is((pg_temp.job(pg_temp.id('beat'))).progress, 12.5, 'progress');
SELECT is((pg_temp.job(pg_temp.id('beat'))).progress_data, '{"a": 1}', 'checkpoint');
SELECT is(jobq.heartbeat(pg_temp.id('beat'), pg_temp.id('beat')), 'ok', 'a heartbeat without progress');
SELECT is((pg_temp.job(pg_temp.id('beat'))).progress_data, '{"a": 1}', 'keeps the checkpoint');
SELECT ok((SELECT lease_expires_at > clock_timestamp() + interval '59s' FROM jobq.queue WHERE id = pg_temp.id('beat')), 'the lease is renewed for its length');
SELECT is(jobq.heartbeat(pg_temp.id('beat'), pg_temp.id('done')), 'lost', 'another job''s token');
SELECT is(jobq.heartbeat(gen_random_uuid(), pg_temp.id('beat')), 'lost', 'another job');
SELECT throws_ok($$SELECT jobq.heartbeat(pg_temp.id('beat'), pg_temp.id('beat'), 'NaN')$$, '22003', 'argument "progress": NaN is outside 0..100');
SELECT throws_ok($$SELECT jobq.heartbeat(pg_temp.id('beat'), NULL)$$, '22004', 'argument "lease_token" must not be NULL');

-- complete
SELECT is(jobq.complete(pg_temp.id('done'), pg_temp.id('beat')), false, 'complete with a wrong token');
SELECT throws_ok($$SELECT jobq.complete(pg_temp.id('done'), pg_temp.id('done'), to_jsonb(repeat('x', 1100000)))$$, '54000', NULL, 'a result that is too large');
SELECT is(jobq.complete(pg_temp.id('done'), pg_temp.id('done'), '[1]'), true, 'complete');
SELECT is((pg_temp.job(pg_temp.id('done'))).result, '[1]', 'its result');
SELECT is((pg_temp.job(pg_temp.id('done'))).status, 'completed', 'its status');
SELECT is(jobq.complete(pg_temp.id('done'), pg_temp.id('done')), false, 'once');

-- complete_many
SELECT bag_eq($$SELECT jobq.complete_many(ARRAY[pg_temp.id('many1'), pg_temp.id('many2'), pg_temp.id('beat')],
  ARRAY[pg_temp.id('many1'), pg_temp.id('many2'), pg_temp.id('done')], '{"1", null, "3"}')$$,
  $$SELECT id FROM j WHERE n LIKE 'many_'$$, 'complete_many returns the completed ones');
SELECT is((pg_temp.job(pg_temp.id('many1'))).result, '1', 'with their results');
SELECT throws_ok($$SELECT jobq.complete_many(ARRAY[pg_temp.id('beat')], '{}')$$, '22023', 'argument "lease_tokens" has 0 elements, and "ids" has 1');
SELECT throws_ok($$SELECT jobq.complete_many(ARRAY[pg_temp.id('beat')], ARRAY[NULL]::uuid[])$$, '22004', 'argument "lease_tokens": element 1 must not be NULL');
SELECT throws_ok($$SELECT jobq.complete_many(array_fill(pg_temp.id('beat'), ARRAY[1001]), array_fill(pg_temp.id('beat'), ARRAY[1001]))$$,
  '22003', 'argument "ids" has 1001 elements, which is outside 0..1000');

-- fail
SELECT is(jobq.fail(pg_temp.id('fails'), pg_temp.id('fails'), 'away', error_code => '503', details => '{"d": 1}'), 'retry', 'fail');
SELECT is((SELECT (status, error_msg, error_code, error_details, attempts)::text FROM jobq.jobs WHERE id = pg_temp.id('fails')),
  '(retry,away,503,"{""d"": 1}",1)', 'the job waits for its retry');
SELECT ok((SELECT lease_token IS NULL AND lease IS NULL AND scheduled_for > clock_timestamp() + interval '59min' FROM jobq.queue WHERE id = pg_temp.id('fails')), 'for the backoff, without a lease');
SELECT is(jobq.fail(pg_temp.id('last'), pg_temp.id('last'), 'wrong', retryable => false), 'error', 'fail without retry');
SELECT is((pg_temp.job(pg_temp.id('last'))).status, 'error', 'a dead letter');
SELECT is(jobq.fail(pg_temp.id('given'), pg_temp.id('given'), 'busy', retry_after => '1min'), 'retry', 'retry_after');
SELECT ok((SELECT scheduled_for < clock_timestamp() + interval '61s' FROM jobq.queue WHERE id = pg_temp.id('given')), 'replaces the backoff');
SELECT is(jobq.fail(pg_temp.id('coded'), pg_temp.id('coded'), 'gone', error_code => '410'), 'error', 'permanent_codes decide');
SELECT is(jobq.fail(pg_temp.id('coded'), pg_temp.id('coded'), 'gone'), 'lost', 'once');

-- fail_many
CREATE TEMP TABLE f AS SELECT n, CASE n WHEN 'coded' THEN pg_temp.claimed('coded') ELSE pg_temp.claimed() END AS id
  FROM unnest('{first,second,coded,stolen,stopped}'::text[]) n;
UPDATE jobq.queue SET attempts = 2 WHERE id = (SELECT id FROM f WHERE n = 'second');
SELECT jobq.cancel_job(id, 'enough') FROM f WHERE n = 'stopped';
SELECT bag_eq($$SELECT jobq.fail_many(array_agg(id), array_agg(CASE n WHEN 'stolen' THEN gen_random_uuid() ELSE id END), 'all down', error_code => '410', retry_after => '1min') FROM f$$,
  $$SELECT id FROM f WHERE n <> 'stolen'$$, 'fail_many returns the ids whose tokens were valid');
SELECT is((SELECT string_agg(concat_ws(' ', n, status, error_msg, error_code), ', ' ORDER BY n) FROM jobq.jobs JOIN f USING (id)),
  'coded error all down 410, first retry all down 410, second error all down 410, stolen running, stopped cancelled enough', 'each job as fail decides');
SELECT ok((SELECT scheduled_for BETWEEN clock_timestamp() + interval '50s' AND clock_timestamp() + interval '61s' FROM jobq.queue JOIN f USING (id) WHERE n = 'first'),
  'retry_after replaces the backoff');
SELECT is_empty($$SELECT jobq.fail_many(array_agg(id), array_agg(id), 'again') FROM f WHERE n <> 'stolen'$$, 'once');
SELECT is_empty($$SELECT jobq.fail_many('{}', '{}', 'none')$$, 'no jobs');
SELECT bag_eq($$SELECT jobq.fail_many(ARRAY[id, id], ARRAY[id, id], 'twice', retryable => false) FROM f WHERE n = 'stolen'$$,
  $$SELECT id FROM f WHERE n = 'stolen'$$, 'an id that is named twice fails once');
SELECT is((SELECT status::text || ' ' || attempts FROM jobq.jobs JOIN f USING (id) WHERE n = 'stolen'), 'error 1', 'retryable false: no attempt follows');
SELECT is((SELECT count(*) FROM jobq.events WHERE job_id = (SELECT id FROM f WHERE n = 'stolen') AND type = 'failed'), 1::bigint, 'with one event');

-- retry_codes
CREATE FUNCTION pg_temp.failed(job_type text, error_code text, retryable bool DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  job uuid := pg_temp.claimed(job_type);
BEGIN
  RETURN jobq.fail(job, job, 'wrong', retryable, error_code);
END $$;
SELECT is(pg_temp.failed('chosen', '503'), 'retry', 'retry_codes: a code that matches');
SELECT is(pg_temp.failed('chosen', '404'), 'error', 'another code');
SELECT is(pg_temp.failed('chosen', NULL), 'retry', 'no code');
SELECT is(pg_temp.failed('chosen', '404', true), 'retry', 'retryable true decides for another code');
SELECT is(pg_temp.failed('chosen', '503', false), 'error', 'retryable false for one that matches');
SELECT is(pg_temp.failed('none chosen', '503') || ' ' || pg_temp.failed('none chosen', NULL), 'error retry', 'an empty list: no code matches');

-- skip_job, snooze_job
SELECT is(jobq.skip_job(pg_temp.id('skipped'), pg_temp.id('skipped'), 'not needed', '{"s": 1}'), true, 'skip_job');
SELECT is((SELECT (status, error_msg, result)::text FROM jobq.jobs WHERE id = pg_temp.id('skipped')), '(skipped,"not needed","{""s"": 1}")', 'skipped');
SELECT is(jobq.snooze_job(pg_temp.id('snoozed'), pg_temp.id('snoozed'), '1h', 'closed'), true, 'snooze_job');
SELECT is((SELECT (status, error_msg, attempts, runs)::text FROM jobq.jobs WHERE id = pg_temp.id('snoozed')), '(pending,closed,0,1)', 'snoozed, uncharged');

-- cancel
SELECT is(jobq.cancel_job(pg_temp.id('stopped'), 'not wanted'), true, 'cancel of a claimed job');
SELECT is(jobq.heartbeat(pg_temp.id('stopped'), pg_temp.id('stopped')), 'cancel', 'the heartbeat tells its worker');
SELECT is(jobq.fail(pg_temp.id('stopped'), pg_temp.id('stopped'), 'told to'), 'error', 'which fails it');
SELECT is((SELECT (status, error_msg)::text FROM jobq.jobs WHERE id = pg_temp.id('stopped')), '(cancelled,"not wanted")', 'cancelled');
SELECT throws_ok($$SELECT jobq.claim('{coded}', lease => '6min')$$, '22003', NULL, 'a lease over options.max_lease');
SELECT * FROM finish();
ROLLBACK;
