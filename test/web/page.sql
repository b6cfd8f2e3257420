-- What the tests of the page look at: jobs in each status, runs, schedules, limits, rules, tenants.
-- Everything of the tenant umbra has that word in it: a reader of acme must never get it.
CREATE FUNCTION fine(payload jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT payload || '{"pages": 3}' $$;
CREATE FUNCTION broken(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'provider answered 503 for order %', payload->>'order' USING ERRCODE = 'P0503';
END $$;
-- Runs as long as a session of the test holds the lock.
CREATE FUNCTION gated(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_lock_shared(77);
	PERFORM pg_advisory_unlock_shared(77);
	RETURN payload;
END $$;
CREATE TABLE switch (repaired boolean NOT NULL);
INSERT INTO switch VALUES (false);
CREATE FUNCTION fragile(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF NOT (SELECT repaired FROM switch) THEN
		RAISE EXCEPTION 'the store is read-only';
	END IF;
	RETURN '{"url": "s3://out/a.mp4"}';
END $$;

SELECT jobq.set_limit('gpu', max_concurrent => 2), jobq.set_limit('provider', rate_limit => 100, rate_window => '1min');
SELECT jobq.create_job_type('mail', 'fine(jsonb)', options => '{"events": "all"}', max_attempts => 3),
       jobq.create_job_type('invoice', 'broken(jsonb)', max_attempts => 1, critical => true, options => '{"limits": ["provider"]}'),
       jobq.create_job_type('sync', 'broken(jsonb)', max_attempts => 5, backoff_base => '1 hour'),
       jobq.create_job_type('transcode', 'gated(jsonb)', max_concurrent => 1, timeout => '30 min', options => '{"limits": ["gpu"]}'),
       jobq.create_job_type('archive', max_attempts => 2, options => '{"events": "all"}'),
       jobq.create_job_type('import', options => '{"events": "all"}'),
       jobq.create_job_type('newsletter', 'fine(jsonb)'),
       jobq.create_job_type('upload', 'fragile(jsonb)', max_attempts => 1);
SELECT jobq.pause_job_type('newsletter', 'the text is not approved yet');
SELECT jobq.set_signal('live_call', true), jobq.set_signal('backup', false);
SELECT jobq.set_pressure_rule('transcode', 'backup', block => true), jobq.set_pressure_rule(NULL, 'live_call', priority_adj => -10);
SELECT jobq.set_tenant_quota('acme', max_live => 5000), jobq.set_tenant_quota('umbra', max_live => 500);
SELECT jobq.create_workflow('publish', '[
  {"key": "ingest", "job_type": "mail", "payload": {"source": {"$": "$.input.source"}}},
  {"key": "audio", "job_type": "mail", "after": ["ingest"]},
  {"key": "video", "job_type": "mail", "after": ["ingest"]},
  {"key": "approval", "event": "approved", "timeout": "3 days", "after": ["audio"], "if": "$.input.ask"},
  {"key": "upload", "job_type": "upload", "after": ["audio", "video", "approval"]},
  {"key": "notify", "job_type": "mail", "after": ["upload"]}]');

SELECT jobq.schedule('daily report', '30 8 * * mon-fri', 'mail', '{"for": "sales"}', timezone => 'Europe/Berlin'),
       jobq.schedule('nightly', '@daily', 'mail', tenant => 'acme'),
       jobq.schedule('umbra-hourly', '@hourly', 'mail', '{"note": "umbra"}', tenant => 'umbra');

SELECT jobq.enqueue('mail', '{"to": "ann@example.com"}', tenant => 'acme') FROM generate_series(1, 5);
SELECT jobq.enqueue('mail', '{"to": "umbra"}', tenant => 'umbra');
SELECT jobq.enqueue('invoice', jsonb_build_object('order', i), tenant => 'acme') FROM generate_series(1, 6) i;
SELECT jobq.enqueue('invoice', '{"order": "umbra"}', tenant => 'umbra');
SELECT jobq.enqueue('sync', '{"order": 4}', tenant => 'acme'), jobq.enqueue('sync', '{"order": "umbra"}', tenant => 'umbra');
SELECT jobq.enqueue('newsletter', '{"issue": 12}', tenant => 'acme');
SELECT jobq.enqueue('import', '{"file": "a.csv"}', tenant => 'acme', concurrency_key => 'import') FROM generate_series(1, 4);
SELECT jobq.enqueue('archive', jsonb_build_object('n', i)) FROM generate_series(1, 3500) i;
SELECT jobq.enqueue('publish', '{"source": "s3://in/a.wav", "ask": false}', tenant => 'acme'),
       jobq.enqueue('publish', '{"source": "s3://in/b.wav", "ask": true}', tenant => 'acme'),
       jobq.enqueue('publish', '{"source": "s3://in/umbra.wav", "ask": true}', tenant => 'umbra');
