-- The demo's story.  psql variables: dir (holds page.pdf and page.png), sentence (what they say).
-- Every figure that it prints is read from the database.
\set ON_ERROR_STOP 1
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SELECT clock_timestamp() AS began \gset

CREATE EXTENSION jobq;

-- What the story tells with: how long something took, and a check that ends the demo when it fails.
CREATE SCHEMA tell;
CREATE FUNCTION tell.ms(i interval) RETURNS text LANGUAGE sql
  RETURN round((extract(epoch FROM i) * 1000)::numeric, 1) || ' ms';
CREATE FUNCTION tell.check(ok boolean, what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF ok IS NOT TRUE THEN
    RAISE EXCEPTION 'the demo failed: %', what;
  END IF;
  RETURN 'yes';
END $$;
CREATE FUNCTION tell.times(job jobq.jobs) RETURNS text LANGUAGE sql
  RETURN format('picked up %s after it was due, ran %s', tell.ms(job.started_at - job.scheduled_for),
                tell.ms(job.completed_at - job.started_at));
SELECT format('%s, jobq %s; the extension was created in %s', split_part(version(), ' on ', 1), jobq.version(),
              tell.ms(clock_timestamp() - :'began'));

\echo
\echo '1. A SQL function is a job type: what it writes and its completion commit together'
CREATE ROLE clerk LOGIN;
CREATE SCHEMA shop;
CREATE TABLE shop.invoices (customer text, amount numeric, written_by text, job_id uuid);
CREATE FUNCTION shop.write_invoice(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO shop.invoices
  VALUES (payload->>'customer', (payload->>'amount')::numeric, current_user, (jobq.current_job()).id);
  RETURN jsonb_build_object('invoiced', payload->'amount');
END $$;
GRANT USAGE ON SCHEMA shop, jobq TO clerk;
GRANT INSERT ON shop.invoices TO clerk;
GRANT EXECUTE ON FUNCTION jobq.current_job() TO clerk;
SELECT jobq.create_job_type('write_invoice', handler => 'shop.write_invoice(jsonb)', run_as => 'clerk') \g /dev/null

-- this one is for later: section 6 waits for it
SELECT jobq.enqueue('write_invoice', '{"customer": "Babbage", "amount": 12}', delay => '4s') AS delayed \gset

SELECT jobq.enqueue('write_invoice', '{"customer": "Lovelace", "amount": 42.50}') AS job \gset
SELECT format(E'   job %s: %s, result %s\n   %s', id, status, result, tell.times(j.*)) FROM jobq.wait_for(:'job') j;
SELECT format('   shop.invoices: %s owes %s, written by %s', customer, amount, written_by)
  FROM shop.invoices WHERE job_id = :'job';
SELECT format('   written by the job, as its role: %s', tell.check(count(*) = 1, 'no invoice'))
  FROM shop.invoices WHERE job_id = :'job' AND written_by = 'clerk';

\echo
\echo '2. An external tool is a job type: pdftotext reads a PDF'
SELECT jobq.create_job_type('read_pdf', command => '{pdftotext,"{file}",-}', options => '{"output": "text"}') \g /dev/null
SELECT jobq.enqueue('read_pdf', jsonb_build_object('file', :'dir' || '/page.pdf')) AS job \gset
SELECT format(E'   page.pdf   %s bytes, begins %s\n   sentence   %s', length(f), encode(substr(f, 1, 8), 'escape'), :'sentence')
  FROM pg_read_binary_file(:'dir' || '/page.pdf') f;
SELECT format(E'   read       %s\n   job %s: %s\n   %s', regexp_replace(trim(E' \n\f' FROM result #>> '{}'), '\s+', ' ', 'g'),
              id, status, tell.times(j.*)) FROM jobq.wait_for(:'job') j;
SELECT format('   what was read equals the sentence up to white space: %s',
              tell.check(regexp_split_to_array(trim(E' \n\f' FROM result #>> '{}'), '\s+') = string_to_array(:'sentence', ' '), 'PDF'))
  FROM jobq.jobs WHERE id = :'job';

\echo
\echo '3. The same sentence as a picture: tesseract reads a PNG'
SELECT jobq.create_job_type('read_png', command => '{tesseract,"{file}",stdout,--psm,6}',
                            options => '{"output": "text", "env": {"OMP_THREAD_LIMIT": "1"}}') \g /dev/null
SELECT jobq.enqueue('read_png', jsonb_build_object('file', :'dir' || '/page.png')) AS job \gset
SELECT format('   page.png   %s bytes, begins %s', length(f), encode(substr(f, 1, 4), 'escape'))
  FROM pg_read_binary_file(:'dir' || '/page.png') f;
SELECT format(E'   read       %s\n   job %s: %s\n   %s', regexp_replace(trim(E' \n\f' FROM result #>> '{}'), '\s+', ' ', 'g'),
              id, status, tell.times(j.*)) FROM jobq.wait_for(:'job') j;
SELECT format('   what was read equals the sentence up to white space: %s',
              tell.check(regexp_split_to_array(trim(E' \n\f' FROM result #>> '{}'), '\s+') = string_to_array(:'sentence', ' '), 'PNG'))
  FROM jobq.jobs WHERE id = :'job';

\echo
\echo '4. A job that fails twice and succeeds on its third attempt'
CREATE FUNCTION shop.call_bank() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  attempt int := (jobq.current_job()).attempts;
BEGIN
  IF attempt < 3 THEN
    RAISE EXCEPTION 'the bank does not answer (call %)', attempt;
  END IF;
END $$;
SELECT jobq.create_job_type('call_bank', handler => 'shop.call_bank()', max_attempts => 3, backoff_base => '300ms') \g /dev/null
SELECT jobq.enqueue('call_bank') AS job \gset
SELECT format('   job %s: %s', id, status) FROM jobq.wait_for(:'job');
SELECT format('   attempt %s: %s', attempt, coalesce(data->>'error', message))
  FROM jobq.events WHERE job_id = :'job' AND type = 'failed' ORDER BY ts;
SELECT format(E'   attempt %s: %s, %s after the job was enqueued', attempts, status, tell.ms(completed_at - created_at))
  FROM jobq.jobs WHERE id = :'job';
SELECT format('   two failures, then success: %s', tell.check(status = 'completed' AND attempts = 3 AND
         2 = (SELECT count(*) FROM jobq.events e WHERE e.job_id = j.id AND type = 'failed'), 'retries'))
  FROM jobq.jobs j WHERE id = :'job';

\echo
\echo '5. A job that uses up its attempts is a dead letter, and can be retried from there'
CREATE TABLE shop.printer (has_paper boolean);
INSERT INTO shop.printer VALUES (false);
CREATE FUNCTION shop.print_label() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (SELECT has_paper FROM shop.printer) THEN
    RAISE EXCEPTION 'the printer has no paper' USING ERRCODE = 'PAPER';
  END IF;
  RETURN '"printed"';
END $$;
SELECT jobq.create_job_type('print_label', handler => 'shop.print_label()', max_attempts => 2, backoff => 'fixed',
                            backoff_base => '200ms') \g /dev/null
SELECT jobq.enqueue('print_label') AS job \gset
SELECT format(E'   job %s: %s after %s attempts (%s: %s)', id, status, attempts, error_code, error_msg),
       status AS first_status
  FROM jobq.wait_for(:'job') \gset told_
\echo :told_format
UPDATE shop.printer SET has_paper = true;
SELECT format('   paper is in; jobq.retry_job says %s', jobq.retry_job(:'job'));
SELECT format(E'   the same job: %s, result %s, attempts %s, runs %s', status, result, attempts, runs),
       tell.check(:'told_first_status' = 'error' AND status = 'completed' AND attempts = 1 AND runs = 3, 'dead letter') AS ok
  FROM jobq.wait_for(:'job') \gset told_
\echo :told_format
\echo '   a dead letter, then completed:' :told_ok

\echo
\echo '6. The delayed job from the beginning fires by timer'
SELECT format(E'   job %s: asked for %s after it was enqueued, %s; %s', id, tell.ms(scheduled_for - created_at), status, tell.times(j.*)),
       tell.check(status = 'completed' AND started_at >= scheduled_for AND started_at < scheduled_for + interval '1 min', 'delay') AS ok
  FROM jobq.wait_for(:'delayed') j \gset told_
\echo :told_format
\echo '   not early, and when its timer said:' :told_ok

\echo
\echo '7. A worker in a process of its own, worker.py: it claims its jobs over an ordinary connection'
SELECT jobq.create_job_type('count_letters') \g /dev/null
SELECT jobq.enqueue('count_letters', jsonb_build_object('text', :'sentence')) AS job \gset
\! PGDATABASE=demo timeout 60 ./worker.py 2>worker.log & echo $! >worker.pid
SELECT format(E'   job %s: %s, result %s\n   claimed by %s, ran %s', id, status, result, worker, tell.ms(completed_at - started_at)),
       tell.check(status = 'completed' AND worker = 'worker.py' AND attempts = 1 AND
                  (result->>'letters')::int = length(replace(:'sentence', ' ', '')), 'pull') AS ok
  FROM jobq.wait_for(:'job') \gset told_
\echo :told_format
\echo '   its result is right:' :told_ok
\! kill -TERM "$(cat worker.pid)"

\echo
\echo 'jobq.jobs, in the order of enqueueing'
\pset format aligned
\pset tuples_only off
\pset footer off
\pset border 2
SELECT left(id::text, 8) || '…' || right(id::text, 4) AS id, job_type, status, attempts, runs,
       tell.ms(completed_at - started_at) AS ran, left(regexp_replace(result::text, '(\s|\\n|\\f)+', ' ', 'g'), 40) AS result
  FROM jobq.jobs ORDER BY created_at;
SELECT status, count FROM jobq.count_by_status() WHERE count > 0;
