-- A live mixed load for the admin page: a schedule enqueues jobs each second.  Mails are sent,
-- some charges fail, answers wait for a limit, and a workflow runs every minute.
\set ON_ERROR_STOP on
CREATE FUNCTION mail(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(random() * 0.02)';
CREATE FUNCTION charge(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF random() < 0.6 THEN
    RAISE 'card % was declined by bank %', p ->> 'card', chr(65 + (random() * 3)::int);
  END IF;
END $$;
CREATE FUNCTION answer(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('answer', 42, 'to', p ->> 'question') $$;
CREATE FUNCTION visitors(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.enqueue('mail', jsonb_build_object('to', format('user%s@example.org', n)), tenant => (ARRAY['acme', 'globex', NULL])[1 + n % 3])
    FROM generate_series(1, 12) n;
  PERFORM jobq.enqueue('charge', jsonb_build_object('card', 4000 + n, 'cents', (random() * 9999)::int)) FROM generate_series(1, 3) n;
  PERFORM jobq.enqueue('answer', jsonb_build_object('question', n)) FROM generate_series(1, 3) n;
END $$;
SELECT jobq.set_limit('provider', rate_limit => 90, rate_window => '1 minute') \g /dev/null
SELECT jobq.create_job_type('mail', 'mail(jsonb)'),
       jobq.create_job_type('charge', 'charge(jsonb)', max_attempts => 2, backoff_base => '2s', max_concurrent => 1),
       jobq.create_job_type('answer', 'answer(jsonb)', options => '{"limits": ["provider"]}'),
       jobq.create_job_type('visitors', 'visitors(jsonb)', keep_completed => '1 hour'),
       jobq.create_workflow('report', '[{"key": "collect", "job_type": "answer", "payload": {"question": "numbers"}},
         {"key": "pages", "job_type": "mail", "after": ["collect"], "map": "$.input.pages"},
         {"key": "approve", "event": "approved", "after": ["collect"], "timeout": "40s", "on_failure": "continue"},
         {"key": "publish", "job_type": "mail", "after": ["pages", "approve"], "rule": "done"}]') \g /dev/null
SELECT jobq.schedule('visitors', 'every 1s', 'visitors'),
       jobq.schedule('nightly report', '0 3 * * *', 'report', '{"pages": [1, 2, 3, 4]}', timezone => 'Europe/Berlin'),
       jobq.schedule('report', '* * * * *', 'report', '{"pages": [1, 2, 3, 4, 5, 6]}') \g /dev/null
SELECT jobq.run_schedule('report') \g /dev/null
CREATE ROLE demo LOGIN PASSWORD :'password';
SELECT jobq.grant_access('demo', a) FROM unnest('{admin,enqueue}'::text[]) a \g /dev/null
