-- A saga: each step of a booking commits by itself and has a job that undoes it.  When a later step
-- fails, the completed ones are undone, newest first.
\echo
\echo '== saga: a booking is undone when its tickets can not be printed'
CREATE SCHEMA hall;
CREATE TABLE hall.seats (no int PRIMARY KEY, run uuid);
INSERT INTO hall.seats SELECT generate_series(1, 10);
CREATE TABLE hall.ledger (customer text, amount numeric, at timestamptz DEFAULT clock_timestamp());
INSERT INTO hall.ledger VALUES ('Lovelace', 100), ('Babbage', 100);

CREATE FUNCTION hall.reserve(booking jsonb) RETURNS jsonb LANGUAGE sql AS $$
  WITH taken AS (
    UPDATE hall.seats SET run = (jobq.current_job()).workflow_id
     WHERE no IN (SELECT no FROM hall.seats WHERE run IS NULL ORDER BY no LIMIT (booking ->> 'seats')::int FOR UPDATE) RETURNING no)
  SELECT jsonb_build_object('seats', jsonb_agg(no ORDER BY no), 'price', 15 * count(*)) FROM taken
$$;
CREATE FUNCTION hall.release(reserved jsonb) RETURNS void LANGUAGE sql AS $$
  UPDATE hall.seats SET run = NULL WHERE to_jsonb(no) <@ (reserved -> 'seats') AND run = (jobq.current_job()).workflow_id
$$;
CREATE FUNCTION hall.charge(bill jsonb) RETURNS jsonb LANGUAGE sql AS $$
  INSERT INTO hall.ledger VALUES (bill ->> 'customer', -(bill ->> 'price')::numeric)
  RETURNING jsonb_build_object('customer', customer, 'paid', -amount)
$$;
CREATE FUNCTION hall.refund(payment jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO hall.ledger VALUES (payment ->> 'customer', (payment ->> 'paid')::numeric)
$$;
CREATE FUNCTION hall.print(tickets jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF jsonb_array_length(tickets) > 4 THEN
    RAISE EXCEPTION 'the printer has paper for 4 tickets';
  END IF;
  RETURN to_jsonb(jsonb_array_length(tickets));
END $$;
SELECT jobq.create_job_type(name, format('hall.%s(jsonb)', name)::regprocedure, max_attempts => 2, backoff_base => '200ms')
  FROM unnest('{reserve,release,charge,refund,print}'::text[]) name \g /dev/null

SELECT jobq.create_workflow('booking', '[
  {"key": "seats", "job_type": "reserve", "payload": {"seats": {"$": "$.input.seats"}},
   "compensate": {"job_type": "release", "payload": {"$": "$.tasks.seats.result"}}},
  {"key": "payment", "job_type": "charge", "after": ["seats"],
   "payload": {"customer": {"$": "$.input.customer"}, "price": {"$": "$.tasks.seats.result.price"}},
   "compensate": {"job_type": "refund", "payload": {"$": "$.tasks.payment.result"}}},
  {"key": "tickets", "job_type": "print", "after": ["payment"], "payload": {"$": "$.tasks.seats.result.seats"}}]',
  on_failure => 'compensate') \g /dev/null
SELECT tell.graph('booking');
CREATE FUNCTION hall.books() RETURNS text LANGUAGE sql AS $$
  SELECT format('%s seats are free; %s', (SELECT count(*) FROM hall.seats WHERE run IS NULL), string_agg(format('%s has %s', customer, sum), ', ' ORDER BY customer))
    FROM (SELECT customer, sum(amount) FROM hall.ledger GROUP BY customer) s
$$;

\echo
\echo '   two seats for Lovelace'
SELECT jobq.enqueue('booking', '{"customer": "Lovelace", "seats": 2}') AS run, '' AS line \gset
\ir follow.sql
SELECT tell.ended(:'run', 'completed');
SELECT tell.equal(tell.tasks(:'run'), 'payment:completed seats:completed tickets:completed', 'the tasks of a booking') \g /dev/null
SELECT format('   %s: %s', b, tell.equal(b, '8 seats are free; Babbage has 100, Lovelace has 70', 'the books')) FROM hall.books() b;

\echo '   five for Babbage: the printer fails'
SELECT jobq.enqueue('booking', '{"customer": "Babbage", "seats": 5}') AS run, '' AS line \gset
\ir follow.sql
SELECT tell.ended(:'run', 'error');
SELECT tell.equal(tell.tasks(:'run'), 'payment:completed payment.undo:completed seats:completed seats.undo:completed tickets:error', 'the tasks of a booking') \g /dev/null
SELECT tell.equal(r.error_code || ' ' || t.attempts, 'task_failed 2', 'error code of the run, attempts of its task')
  FROM jobq.jobs r, jobq.jobs t WHERE r.id = :'run' AND t.workflow_id = r.id AND t.task_key = 'tickets' \g /dev/null
SELECT format('   undone, newest first: %s: %s', keys, tell.equal(keys, 'payment.undo, seats.undo', 'the order of compensation'))
  FROM (SELECT string_agg(task_key, ', ' ORDER BY completed_at) FROM jobq.jobs WHERE workflow_id = :'run' AND task_key LIKE '%.undo') k(keys);
SELECT format('   %s: %s', b, tell.equal(b, '8 seats are free; Babbage has 100, Lovelace has 70', 'the books')) FROM hall.books() b;
SELECT format('   the ledger has the payment and its refund: %s', tell.equal(string_agg(amount::text, ' ' ORDER BY at), '100 -75 75', 'the ledger'))
  FROM hall.ledger WHERE customer = 'Babbage';
\echo '   the run:'
SELECT tell.graph(run => :'run');
