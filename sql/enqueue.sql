-- Enqueueing: the columns that each argument sets
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('t', 'test.ok(jsonb)', base_priority => 7, max_attempts => 4);
SELECT jobq.pause_job_type('t');

-- defaults
SELECT jobq.enqueue('t') AS id \gset
SELECT job_type, status, priority, payload, result, error_msg, error_code, error_details, attempts, max_attempts, runs,
       scheduled_for <= clock_timestamp() AS due, started_at, completed_at, updated_at = created_at AS untouched,
       progress, progress_data, tenant, unique_key, concurrency_key, timeout, worker, node, lease_expires_at,
       parent_id, depth, workflow_id, task_key, metadata
  FROM jobq.jobs WHERE id = :'id' \gx

-- everything given
SELECT jobq.enqueue('t', '{"a": [1, "é"]}', priority => -100, scheduled_for => '2100-01-01 12:00+00', max_attempts => 1,
  timeout => '1 min', backoff => '{"type": "fixed", "base": "1s", "max": "1min", "jitter": 0}', unique_key => 'k',
  on_conflict => 'error', unique_for => '1 day', concurrency_key => 'c', keep_completed => '0', tenant => 'acme',
  metadata => '{"from": "test"}', keep_dead => '3 days', after => NULL, after_rule => 'success') AS id \gset
SELECT job_type, status, priority, payload, max_attempts, scheduled_for AT TIME ZONE 'UTC' AS scheduled_for, tenant,
       unique_key, concurrency_key, timeout, metadata
  FROM jobq.jobs WHERE id = :'id' \gx
SELECT backoff, unique_for, keep_completed, keep_dead FROM jobq.queue WHERE id = :'id';

-- times: a delay, one in the past, one that is 0
SELECT jobq.enqueue('t', delay => '1 hour') AS id \gset
SELECT scheduled_for - created_at BETWEEN '59 min' AND '61 min' AS later FROM jobq.jobs WHERE id = :'id';
SELECT jobq.enqueue('t', scheduled_for => '1999-01-01') AS id \gset
SELECT position >= created_at AS in_its_turn FROM jobq.queue WHERE id = :'id';
SELECT jobq.enqueue('t', delay => '0') AS id \gset
SELECT scheduled_for = created_at AS now FROM jobq.jobs WHERE id = :'id';

-- jobq.tenant of the session is the default
SET jobq.tenant = 'globex';
SELECT jobq.enqueue('t') AS a, jobq.enqueue('t', tenant => '') AS b, jobq.enqueue('t', tenant => 'acme') AS c \gset
RESET jobq.tenant;
SELECT jobq.enqueue('t', tenant => '') AS d \gset
SELECT tenant FROM jobq.jobs WHERE id IN (:'a', :'b', :'c', :'d') ORDER BY id;

-- ids are ordered in time; they are UUIDs of version 7
SELECT count(*) FROM (SELECT id > lag(id) OVER (ORDER BY created_at) AS later FROM jobq.queue) q WHERE NOT later;
SELECT DISTINCT substr(id::text, 15, 1) AS version FROM jobq.queue;

-- many: in the order of payloads
SELECT count(*), count(DISTINCT id) FROM jobq.enqueue_many('t', '{}') id;
CREATE TEMP TABLE many AS SELECT row_number() OVER () AS n, id
  FROM jobq.enqueue_many('t', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 1000) i), priority => 3, tenant => 'many') id;
SELECT count(*), bool_and(j.payload = to_jsonb(m.n)) AS in_order, min(priority), max(priority), min(tenant)
  FROM many m JOIN jobq.jobs j USING (id);
SELECT count(*) FROM (SELECT q.position > lag(q.position) OVER (ORDER BY n) AS later FROM many JOIN jobq.queue q USING (id)) q
 WHERE NOT later;

-- jobs of several types
SELECT jobq.create_job_type('u', 'test.ok(jsonb)');
SELECT jobq.pause_job_type('u');
CREATE TEMP TABLE several AS SELECT * FROM jobq.enqueue_jobs('[
  {"job_type": "t", "payload": {"n": 1}, "priority": 1, "delay": "1 hour"},
  {"job_type": "u", "unique_key": "one", "metadata": {"m": 1}},
  {"job_type": "u", "unique_key": "one"}]');
SELECT ordinal, is_new, job_type, payload, priority, unique_key, metadata, scheduled_for > clock_timestamp() AS later
  FROM several s JOIN jobq.jobs j USING (id) ORDER BY ordinal;
SELECT count(DISTINCT id) FROM several;
SELECT * FROM jobq.enqueue_jobs('[]');

-- a rolled-back enqueue leaves nothing, a savepoint only its own
BEGIN;
SELECT jobq.enqueue('u', '"rolled back"') IS NULL;
ROLLBACK;
BEGIN;
SELECT jobq.enqueue('u', '"kept"') IS NULL;
SAVEPOINT s;
SELECT jobq.enqueue('u', '"rolled back"') IS NULL;
ROLLBACK TO s;
COMMIT;
SELECT payload FROM jobq.jobs WHERE job_type = 'u' AND jsonb_typeof(payload) = 'string';
