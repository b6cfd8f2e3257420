-- How a user of pgTAP tests handlers: in one transaction that is never
-- committed, with jobq.run_inline.
BEGIN;
SELECT plan(13);

CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, state text DEFAULT 'new');
INSERT INTO shop.orders VALUES (1), (2);
CREATE FUNCTION shop.ship(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  UPDATE shop.orders SET state = 'shipped' WHERE id = (payload->>'id')::int;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no order %', payload->>'id' USING ERRCODE = 'no_data_found';
  END IF;
  IF payload ? 'notify' THEN
    PERFORM jobq.enqueue('ship', '{"id": 2}');
  END IF;
  PERFORM jobq.set_progress(100);
  RETURN jsonb_build_object('attempt', (jobq.current_job()).attempts);
END $$;
SELECT lives_ok($$SELECT jobq.create_job_type('ship', 'shop.ship(jsonb)', max_attempts => 2, keep_completed => '1 day')$$, 'a job type');

SELECT jobq.enqueue('ship', '{"id": 1, "notify": true}') AS id \gset
SELECT is(status, 'pending', 'it waits: this transaction has not committed') FROM jobq.jobs WHERE id = :'id';
SELECT is((jobq.run_inline(:'id')).status, 'completed', 'it runs here');
SELECT is(state, 'shipped', 'what it wrote is here') FROM shop.orders WHERE id = 1;
SELECT is(result, '{"attempt": 1}', 'its result') FROM jobq.jobs WHERE id = :'id';
SELECT is(progress, 100::numeric, 'its progress') FROM jobq.jobs WHERE id = :'id';
SELECT is(payload, '{"id": 2}', 'the job it enqueued') FROM jobq.jobs WHERE parent_id = :'id';
SELECT results_eq('SELECT status, count FROM jobq.count_by_status($$ship$$) WHERE count > 0',
  $$ VALUES ('pending'::jobq.job_status, 1::bigint), ('completed', 1) $$, 'counts');

SELECT jobq.enqueue('ship', '{"id": 3}') AS id \gset
SELECT is((jobq.run_inline(:'id')).status, 'retry', 'a failure waits for its retry');
SELECT is(error_msg || ' ' || error_code, 'no order 3 P0002', 'and says why') FROM jobq.jobs WHERE id = :'id';
SELECT is((jobq.run_inline(:'id')).status, 'error', 'the last one is a dead letter');
SELECT ok(jobq.retry_job(:'id'), 'which can be retried');
SELECT is((SELECT array_agg(type ORDER BY id) FROM jobq.job_timeline(:'id')), '{failed,failed,dead,retried}', 'its events');

SELECT * FROM finish();
ROLLBACK;
