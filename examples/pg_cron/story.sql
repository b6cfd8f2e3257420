-- The story of examples/pg_cron.  psql variable: schedule, of pg_cron's job.  Every
-- figure is read from the database.
\set ON_ERROR_STOP 1
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;

CREATE EXTENSION pg_cron;
CREATE EXTENSION jobq;

-- Ends the story with an error unless the condition is true.
CREATE SCHEMA tell;
CREATE FUNCTION tell.check(ok boolean, what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF ok IS NOT TRUE THEN
    RAISE EXCEPTION 'the example failed: %', what;
  END IF;
  RETURN 'yes';
END $$;
SELECT format('%s, pg_cron %s, jobq %s', split_part(version(), ' on ', 1), extversion, jobq.version())
  FROM pg_extension WHERE extname = 'pg_cron';

\echo
\echo '1. A job type whose first attempt fails'
CREATE TABLE public.reports (day date, written_at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION public.write_report(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF (jobq.current_job()).attempts = 1 THEN
    RAISE EXCEPTION 'the warehouse does not answer';
  END IF;
  INSERT INTO public.reports VALUES (current_date);
  RETURN '{"pages": 3}';
END $$;
SELECT jobq.create_job_type('report', 'write_report(jsonb)', max_attempts => 3, backoff_base => '1s',
                            options => '{"events": "all"}') \g /dev/null
\echo '   report: write_report(jsonb), three attempts'

\echo
\echo '2. pg_cron enqueues it, with a unique key: a tick while the job waits or runs makes no second one'
\echo '   in production the schedule is ''0 3 * * *''; here it is' :'schedule'
SELECT cron.schedule('nightly', :'schedule', $$SELECT jobq.enqueue('report', unique_key => 'nightly')$$) \g /dev/null
SELECT format('   cron.job %s: %s, %s', jobid, schedule, command) FROM cron.job;
\echo '   waiting for the tick ...'
DO $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM cron.job_run_details WHERE end_time IS NOT NULL) LOOP PERFORM pg_sleep(0.1); END LOOP;
END $$;
SELECT cron.unschedule('nightly') \g /dev/null

\echo
\echo '3. The job starts when the transaction of pg_cron commits'
SELECT id AS job FROM jobq.jobs WHERE job_type = 'report' ORDER BY created_at LIMIT 1 \gset
SELECT format('   job %s: %s', id, status) FROM jobq.wait_for(:'job', '20s');
WITH t AS (
  SELECT (SELECT start_time FROM cron.job_run_details ORDER BY runid LIMIT 1) AS tick,
         (SELECT pg_xact_commit_timestamp(xmin) FROM jobq.events
           WHERE job_id = :'job' AND type = 'enqueued') AS committed,
         (SELECT min(ts) FROM jobq.events WHERE job_id = :'job' AND type = 'started') AS started)
SELECT format(E'   pg_cron began its command    %s\n   it had committed             %s ms later\n'
                '   the job''s handler was called %s ms after that',
              to_char(tick, 'HH24:MI:SS.MS'), round(1000 * extract(epoch FROM committed - tick), 1),
              round(1000 * extract(epoch FROM started - committed), 1)) FROM t;
SELECT format('   it failed, and was retried: %s',
              tell.check(status = 'completed' AND attempts = 2, status || ' ' || attempts))
  FROM jobq.jobs WHERE id = :'job';
SELECT format('   its report is written: %s', tell.check(count(*) > 0, 'no report')) FROM public.reports;

\echo
\echo '4. Two histories: for pg_cron the run ended with the enqueue, all else is in jobq.events'
\pset format aligned
\pset tuples_only off
\pset footer off
\pset border 2
SELECT runid, status, return_message, to_char(start_time, 'HH24:MI:SS.MS') AS start_time,
       to_char(end_time, 'HH24:MI:SS.MS') AS end_time
  FROM cron.job_run_details ORDER BY runid LIMIT 1;
SELECT to_char(ts, 'HH24:MI:SS.MS') AS ts, type, attempt, message FROM jobq.job_timeline(:'job');
SELECT status, attempts, unique_key, result, to_char(completed_at, 'HH24:MI:SS.MS') AS completed_at
  FROM jobq.jobs WHERE id = :'job';
