-- Read by every test in sql/ (\i): the extension, and a schema with helper
-- functions.  Each test can run alone.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS jobq;
DROP SCHEMA IF EXISTS test CASCADE;
CREATE SCHEMA test;
GRANT USAGE ON SCHEMA test TO PUBLIC;

-- Returns a statement's SQLSTATE, error message and hint.  Ids in it become <id>.
-- Without the HINT of an unknown function, which servers word differently.
CREATE FUNCTION test.error_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  state text;
  message text;
  hint text;
BEGIN
  EXECUTE statement;
  RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
  RETURN regexp_replace(format('%s: %s', state, message), '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', '<id>', 'g')
         || CASE WHEN hint = '' OR state = '42883' THEN '' ELSE E'\n  HINT: ' || hint END;
END $$;

-- Waits until a query returns true; each execution takes a new snapshot.
CREATE FUNCTION test.wait_until(query text, seconds int DEFAULT 300) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  answer boolean;
  deadline timestamptz := clock_timestamp() + make_interval(secs => seconds);
BEGIN
  LOOP
    EXECUTE query INTO answer;
    IF answer THEN
      RETURN true;
    ELSIF clock_timestamp() > deadline THEN
      RETURN false;
    END IF;
    PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
  END LOOP;
END $$;

-- Waits up to five minutes for the end of a job and returns its row.
CREATE FUNCTION test.ended(id uuid) RETURNS jobq.jobs LANGUAGE plpgsql AS $$
DECLARE
  job jobq.jobs;
BEGIN
  FOR i IN 1..15 LOOP
    job := jobq.wait_for(id);
    EXIT WHEN job.id IS NOT NULL;
  END LOOP;
  RETURN job;
END $$;

-- Removes every job and job type, so that tests do not see those of each other.
CREATE FUNCTION test.clean() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.drop_job_type(name, force => true) FROM jobq.job_types WHERE dropped_at IS NULL;
END $$;
CREATE FUNCTION test.forget() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM test.wait_until('SELECT NOT EXISTS (SELECT FROM jobq.queue)');
  DELETE FROM jobq.dead_letters;
  DELETE FROM jobq.history;
  DELETE FROM jobq.events;
  DELETE FROM jobq.alerts;
  DELETE FROM jobq.job_types;
END $$;
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
RESET client_min_messages;
