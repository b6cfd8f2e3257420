-- What all stories use: the extension, and functions that print a graph, follow a run, and end the
-- story with an error when something is not as it must be.
\set ON_ERROR_STOP 1
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;

CREATE EXTENSION jobq;
CREATE SCHEMA tell;
CREATE FUNCTION tell.check(ok boolean, what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF ok IS NOT TRUE THEN
    RAISE EXCEPTION 'the example failed: %', what;
  END IF;
  RETURN 'yes';
END $$;

-- Ends the story unless the two are equal.
CREATE FUNCTION tell.equal(is_now text, must_be text, what text) RETURNS text LANGUAGE sql AS $$
  SELECT tell.check(is_now IS NOT DISTINCT FROM must_be, format('%s: %s, not %s', what, coalesce(is_now, 'NULL'), must_be))
$$;

CREATE FUNCTION tell.graph(workflow text DEFAULT NULL, run uuid DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg('   ' || line, E'\n') FROM string_to_table(jobq.graph(workflow, id => run), E'\n') line
$$;

-- Returns the progress of a run as a line.
CREATE FUNCTION tell.line(run uuid) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce((SELECT format('   %3s %%  %s %s  %s', round(progress), status, tasks, current_task_key)
                     FROM jobq.workflow_runs WHERE id = run AND version IS NOT NULL), '     0 %  the run has not started')
$$;
-- Waits for another line of a run than the last one; live: the run has not ended.  Each look is a
-- transaction: one that goes on keeps plans which do not know a partition that is made meanwhile.
CREATE PROCEDURE tell.next_line(run uuid, last text, INOUT line text DEFAULT NULL, INOUT live boolean DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
  give_up timestamptz := clock_timestamp() + '2 min';
BEGIN
  LOOP
    line := tell.line(run);
    EXIT WHEN line <> last;
    PERFORM tell.check(clock_timestamp() < give_up, format('the run %s stands still: %s', run, line));
    PERFORM pg_sleep(0.02);
    COMMIT;
  END LOOP;
  live := (SELECT j.status NOT IN ('completed', 'skipped', 'cancelled', 'error') FROM jobq.jobs j WHERE j.id = run);
END $$;
-- Waits until a step of a run waits for its event.
CREATE FUNCTION tell.until_step(run uuid, key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  give_up timestamptz := clock_timestamp() + '2 min';
BEGIN
  WHILE NOT EXISTS (SELECT FROM jobq.workflow_runs WHERE id = run AND current_task_key = key) LOOP
    PERFORM tell.check(clock_timestamp() < give_up, format('the run %s does not come to step %s: %s', run, key, tell.line(run)));
    PERFORM pg_sleep(0.02);
  END LOOP;
  RETURN tell.line(run);
END $$;

-- Returns "key:status ..." of the tasks of a run.
CREATE FUNCTION tell.tasks(run uuid) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(task_key || ':' || status, ' ' ORDER BY task_key COLLATE "C") FROM jobq.jobs WHERE workflow_id = run
$$;
-- Returns the end of a run; ends the story unless it is the given one.
CREATE FUNCTION tell.ended(run uuid, must_be text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  j jobq.jobs := jobq.wait_for(run, '2 min');
  failed text := (SELECT string_agg(format('%s: %s %s', task_key, error_code, error_msg), '; ') FROM jobq.jobs
                   WHERE workflow_id = run AND status = 'error');
BEGIN
  PERFORM tell.equal(j.status::text, must_be, format('run %s (%s)', run, coalesce(failed, 'no task failed')));
  RETURN format('   %s %s after %s ms%s', j.job_type, j.status, round(extract(epoch FROM j.completed_at - j.created_at) * 1000),
                ': ' || coalesce(j.error_msg, j.result::text));
END $$;
