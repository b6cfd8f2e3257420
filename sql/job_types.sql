-- Job types: create, alter, reset, pause, resume, drop
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION test.no_argument() RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION test."Odd name"(payload jsonb) RETURNS json LANGUAGE sql RETURN '{}'::json;

SELECT jobq.create_job_type('plain', 'test.ok(jsonb)');
SELECT name, owner = current_user AS own, run_as = current_user AS as_me, handler, command, max_attempts, backoff,
       backoff_base, backoff_max, backoff_jitter, timeout, base_priority, max_concurrent, cpu_weight, rate_limit,
       rate_window, keep_completed, keep_dead, critical, options, paused, dropped_at
  FROM jobq.job_types WHERE name = 'plain' \gx

SELECT jobq.create_job_type('every:thing/in.a-name_1', handler => 'test."Odd name"(jsonb)', max_attempts => 7,
  backoff => 'fixed', backoff_base => '1s', backoff_max => '2 min', backoff_jitter => 0, timeout => '0',
  base_priority => -100, max_concurrent => 2, cpu_weight => 0, rate_limit => 10, rate_window => '1 hour',
  keep_completed => '0', keep_dead => '1 month', critical => true, run_as => current_user::regrole,
  options => '{"max_crashes": 3, "batch": null}');
SELECT name, handler, max_attempts, backoff, backoff_base, backoff_max, backoff_jitter, timeout, base_priority,
       max_concurrent, cpu_weight, rate_limit, rate_window, keep_completed, keep_dead, critical, options
  FROM jobq.job_types WHERE name LIKE 'every%' \gx

SELECT jobq.create_job_type('tool', command => '{/bin/echo,"{who}",""}');
SELECT jobq.create_job_type('no argument', 'test.no_argument()');
SELECT handler, command FROM jobq.job_types WHERE name IN ('tool', 'no argument') ORDER BY name;

-- on_conflict
SELECT test.error_of($$SELECT jobq.create_job_type('plain', 'test.ok(jsonb)')$$);
SELECT jobq.create_job_type('plain', 'test.no_argument()', max_attempts => 9, on_conflict => 'ignore');
SELECT handler, max_attempts FROM jobq.job_types WHERE name = 'plain';
SELECT id AS type_id FROM jobq.job_types WHERE name = 'plain' \gset
SELECT jobq.create_job_type('plain', command => '{true}', max_attempts => 9, on_conflict => 'replace');
SELECT handler, command, max_attempts, id = :type_id AS same FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.create_job_type('plain', 'test.ok(jsonb)', on_conflict => 'replace');
SELECT handler, command, max_attempts, id = :type_id AS same FROM jobq.job_types WHERE name = 'plain';

-- replace changes the given arguments, as alter does, and keeps all others
SET client_min_messages = warning;
DROP ROLE IF EXISTS jobq_regress_runner;
CREATE ROLE jobq_regress_runner LOGIN;
RESET client_min_messages;
CREATE FUNCTION test.definition(name text) RETURNS jsonb LANGUAGE sql AS $$
  SELECT to_jsonb(t) - '{id,name,created_at,paused,pause_reason,paused_until,dropped_at,owner_oid,run_as_oid}'::text[]
         || jsonb_build_object('runs_as_named', pg_get_userbyid(t.run_as_oid) = t.run_as)
    FROM jobq.job_types t WHERE t.name = definition.name AND t.dropped_at IS NULL
$$;
SELECT jobq.create_job_type('kept', 'test.ok(jsonb)', max_attempts => 9, backoff => 'fixed', backoff_base => '2s', backoff_max => '3min',
  backoff_jitter => 0.5, timeout => '11s', base_priority => 7, max_concurrent => 2, cpu_weight => 4, rate_limit => 5,
  rate_window => '1min', keep_completed => '1 day', keep_dead => '2 days', critical => true, run_as => 'jobq_regress_runner',
  options => '{"max_crashes": 3, "max_depth": 4}');
SELECT test.definition('kept') AS before \gset
SELECT jobq.create_job_type('kept', 'test.ok(jsonb)', on_conflict => 'replace');
SELECT test.definition('kept') = :'before' AS unchanged;
SELECT jobq.create_job_type('kept', on_conflict => 'replace');
SELECT test.definition('kept') = :'before' AS unchanged;
SELECT jobq.create_job_type('kept', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'replace');
SELECT test.definition('kept') = :'before' AS unchanged;
-- a given value counts also when it equals the default; options are merged
SELECT jobq.create_job_type('kept', 'test.no_argument()', max_attempts => 3, max_concurrent => 0, critical => false,
  options => '{"max_depth": null, "alert": false}', on_conflict => 'replace');
SELECT key, value FROM jsonb_each(test.definition('kept')) EXCEPT SELECT key, value FROM jsonb_each(:'before') ORDER BY key;
SELECT test.error_of($$SELECT jobq.create_job_type('kept', 'test.ok(jsonb)', '{true}', on_conflict => 'replace')$$);
SELECT test.error_of($$SELECT jobq.create_job_type('kept', max_attempts => 0, on_conflict => 'replace')$$);
-- with replace, too, a new type has no more than one of handler and command; missing arguments take
-- the default, also when it is NULL
SELECT test.error_of($$SELECT jobq.create_job_type('fresh', 'test.no_argument()', '{true}', on_conflict => 'replace')$$);
SELECT jobq.create_job_type('fresh', 'test.no_argument()', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'replace');
-- reset puts everything back to these defaults
SELECT jobq.alter_job_type('kept', reset => '{max_attempts,backoff,backoff_base,backoff_max,backoff_jitter,timeout,base_priority,max_concurrent,cpu_weight,rate_limit,rate_window,keep_completed,keep_dead,critical,run_as,options}');
SELECT jobq.create_job_type('default', 'test.no_argument()');
SELECT test.definition('kept') = test.definition('default') AS reset, test.definition('fresh') = test.definition('default') AS fresh;
SELECT jobq.drop_job_type('kept'), jobq.drop_job_type('fresh'), jobq.drop_job_type('default');
DROP OWNED BY jobq_regress_runner;
DROP ROLE jobq_regress_runner;

-- alter: NULL changes nothing, options are merged, null removes a key
SELECT jobq.alter_job_type('plain', max_attempts => 5, keep_dead => '1 day', options => '{"max_crashes": 4, "batch": false}');
SELECT jobq.alter_job_type('plain', timeout => '10s', options => '{"batch": null, "permanent_codes": ["22%"]}');
SELECT max_attempts, timeout, keep_dead, options, handler FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.alter_job_type('plain', max_attempts => 6, reset => '{keep_dead,timeout,run_as,backoff_jitter}');
SELECT max_attempts, timeout, keep_dead, options, backoff_jitter FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.alter_job_type('plain', reset => '{options,max_attempts}');
SELECT max_attempts, options FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.alter_job_type('plain', command => '{true}');
SELECT handler, command FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.alter_job_type('plain', 'test.ok(jsonb)');
SELECT handler, command FROM jobq.job_types WHERE name = 'plain';

-- pause
SELECT jobq.pause_job_type('plain');
SELECT paused, pause_reason, paused_until FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.pause_job_type('plain', 'lunch', '1 hour');
SELECT paused, pause_reason, paused_until > clock_timestamp() + interval '59 min' AS an_hour
  FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.resume_job_type('plain');
SELECT paused, pause_reason, paused_until FROM jobq.job_types WHERE name = 'plain';
SELECT jobq.resume_job_type('plain');

-- drop: refused with live jobs, forced it cancels them; the name is free, history keeps it
SELECT jobq.pause_job_type('plain');
SELECT jobq.enqueue('plain') AS id \gset
SELECT test.error_of($$SELECT jobq.drop_job_type('plain')$$);
SELECT jobq.drop_job_type('plain', force => true);
SELECT job_type, status, error_msg FROM jobq.jobs WHERE id = :'id';
SELECT test.error_of($$SELECT jobq.drop_job_type('plain')$$);
SELECT test.error_of($$SELECT jobq.enqueue('plain')$$);
SELECT jobq.create_job_type('plain', 'test.ok(jsonb)');
SELECT id <> :type_id AS another FROM jobq.job_types WHERE name = 'plain' AND dropped_at IS NULL;
SELECT name FROM jobq.distinct_job_types() name ORDER BY name COLLATE "C";
SELECT jobq.drop_job_type(name) FROM jobq.job_types WHERE dropped_at IS NULL;
SELECT name FROM jobq.distinct_job_types() name;

-- a limit above the number of workers
SELECT jobq.create_job_type('wide', 'test.ok(jsonb)', max_concurrent => 1 + current_setting('jobq.max_sql_workers')::int);
SELECT jobq.drop_job_type('wide');

-- a type that is dropped while its jobs wait leaves no lane that waits, also when its row has gone
SELECT test.wait_until($$SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'$$);
SELECT jobq.create_job_type('left', 'test.ok(jsonb)');
SELECT jobq.pause_job_type('left');
SELECT jobq.enqueue('left') AS id \gset
SELECT jobq.health()->'checks'->'queues'->'message' AS message FROM generate_series(1, 2);
SELECT jobq.drop_job_type('left', force => true);
SELECT status FROM test.ended(:'id');
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
SELECT test.wait_until($$SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'$$);
