
-- What users and tasks call about runs of workflows (58_runs.sql): pause, resume,
-- events, retries, tasks that add tasks.  Then the parts of calls about jobs
-- (60_manage.sql) and of jobq.run_inline that are about runs.

-- ---------- what users call ----------

-- False for a run that has ended, be it while it waited to start again.
CREATE FUNCTION jobq_internal._lives(r jobq.runs) RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN r.phase <> 'ended' AND (r.phase <> 'restarting' OR EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id));
END $$;

-- Returns the run with that id if the caller manages it; NULL: none.
CREATE FUNCTION jobq_internal._managed_run(caller oid, id uuid) RETURNS jobq.runs
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r jobq.runs;
BEGIN
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL);
  IF jobq_internal._manages_job(caller, id) THEN
    SELECT * INTO r FROM jobq.runs j WHERE j.id = _managed_run.id FOR UPDATE;
  END IF;
  RETURN r;
END $$;

-- Locks the blocked tasks of a run: waits for the conductor, which may release
-- or park one by the former state of the run, and makes it wait.  A task that was
-- released meanwhile may run, and its handler wait for the run: its lock is not
-- waited for.
CREATE FUNCTION jobq_internal._hold_blocked(run uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  held uuid[] := ARRAY(SELECT q.id FROM jobq.queue q WHERE q.workflow_id = run AND q.parent_id = run AND q.status = 'blocked' FOR UPDATE SKIP LOCKED);
BEGIN
  PERFORM jobq_internal._lock_job(q.id)
     FROM (SELECT o.id FROM jobq.queue o
            WHERE o.workflow_id = run AND o.parent_id = run AND o.status = 'blocked' AND o.id <> ALL (held) OFFSET 0) q ORDER BY q.id;
END $$;

-- Makes a task of a paused run that has not begun wait for the end of the pause.
CREATE FUNCTION jobq_internal._take_back_waiting(task uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF jobq_internal._lock_job(task) = 'locked' THEN
    PERFORM jobq_internal._park(q, 32, NULL) FROM jobq.queue q WHERE q.id = task AND q.status IN ('pending', 'retry');
  END IF;
END $$;

-- Gives a run that has not started its row.
CREATE FUNCTION jobq_internal._meet_run(run uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO jobq.runs (id, type_id, version, deadline, keep_until)
  SELECT q.id, q.type_id, 0, 'infinity', 'infinity'
    FROM (SELECT * FROM jobq.queue o WHERE o.id = run AND o.status <> 'running' OFFSET 0) q JOIN jobq.job_types t ON t.id = q.type_id
   WHERE t.is_workflow
  ON CONFLICT DO NOTHING;
END $$;

-- Pauses a run that is live, or waits for the start of its retry; then the runs
-- among its tasks.  Returns false if there is nothing to pause.
CREATE FUNCTION jobq_internal._pause_run(run uuid, reason text) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM jobq.runs j WHERE j.id = run FOR UPDATE;  -- no run among its tasks starts meanwhile
  UPDATE jobq.runs j SET paused = true, paused_reason = coalesce(reason, '')
   WHERE j.id = run AND j.phase IN ('running', 'restarting') AND jobq_internal._lives(j) AND NOT j.paused;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM jobq_internal._hold_blocked(run);
  -- what has not begun is taken back
  PERFORM jobq_internal._take_back_waiting(q.id)
     FROM jobq.queue q WHERE q.workflow_id = run AND q.status IN ('pending', 'retry') AND q.type_id <> 0;
  PERFORM jobq_internal._pause_run(q.id, reason)
     FROM (SELECT o.id FROM jobq.queue o WHERE o.workflow_id = run AND o.status = 'running' OFFSET 0) q JOIN jobq.runs r ON r.id = q.id
    ORDER BY q.id;
  RETURN true;
END $$;

CREATE FUNCTION jobq.pause_workflow(id uuid, reason text DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._pause_workflow(caller oid, id uuid, reason text) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r jobq.runs;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  IF jobq_internal._manages_job(caller, id) THEN
    PERFORM jobq_internal._meet_run(id);
  END IF;
  r := jobq_internal._managed_run(caller, id);
  RETURN r.id IS NOT NULL AND jobq_internal._pause_run(r.id, reason);
END $$;

-- Ends the pause of a run and of the runs among its tasks.  Returns false if
-- it is not paused.
CREATE FUNCTION jobq_internal._resume_run(run uuid) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM jobq.runs j WHERE j.id = run FOR UPDATE;
  UPDATE jobq.runs j SET paused = false, paused_reason = NULL WHERE j.id = run AND j.paused AND jobq_internal._lives(j);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM jobq_internal._hold_blocked(run);
  PERFORM jobq_internal._release_task(q.id, q.payload, q.scheduled_for, o.position), jobq_internal._look_again(q.id)
     FROM jobq.queue q, jobq.queue o WHERE o.id = run AND q.workflow_id = run AND q.status = 'blocked' AND q.after_state = 32;
  PERFORM jobq_internal._ready(ARRAY(SELECT q.id FROM jobq.queue q WHERE q.workflow_id = run AND q.status = 'blocked' AND q.after_state = 16)),
          jobq_internal._look_again(q.id) FROM jobq.queue q
    WHERE (q.workflow_id = run AND q.status = 'running' AND q.position = 'infinity') OR q.id = run;
  PERFORM jobq_internal._resume_run(q.id)
     FROM (SELECT o.id FROM jobq.queue o WHERE o.workflow_id = run OFFSET 0) q JOIN jobq.runs r ON r.id = q.id
    ORDER BY q.id;
  RETURN true;
END $$;

CREATE FUNCTION jobq.resume_workflow(id uuid) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._resume_workflow(caller oid, id uuid) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r jobq.runs;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  r := jobq_internal._managed_run(caller, id);
  RETURN r.id IS NOT NULL AND jobq_internal._resume_run(r.id);
END $$;

-- Raises 54000 for data of events that are too large.
CREATE FUNCTION jobq_internal._check_event_data(what text, data jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_payload(0, data);
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  PERFORM jobq_internal._bad(SQLSTATE, replace(SQLERRM, 'argument "payload"', what));
END $$;

CREATE FUNCTION jobq.send_event(id uuid, event text, data jsonb DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._send_event(caller oid, id uuid, event text, data jsonb) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r jobq.runs;
  run jobq.queue;
  sent int;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL),
          jobq_internal._check_not_null('event', event IS NOT NULL);
  IF octet_length(event) NOT BETWEEN 1 AND 63 OR event ~ '[[:cntrl:]]' THEN
    PERFORM jobq_internal._bad('22023', format('argument "event": "%s" is no name of an event', jobq_internal._shown(event)),
      'Names have 1 to 63 bytes and no control characters.');
  END IF;
  PERFORM jobq_internal._check_event_data('argument "data"', data);
  SELECT * INTO run FROM jobq.queue q WHERE q.id = _send_event.id;
  IF NOT FOUND OR NOT jobq_internal._may_enqueue(caller, run.tenant, run.type_id) THEN
    RETURN false;
  END IF;
  PERFORM jobq_internal._meet_run(run.id);
  SELECT * INTO r FROM jobq.runs j WHERE j.id = _send_event.id FOR NO KEY UPDATE;
  IF NOT FOUND OR r.phase NOT IN ('running', 'failing', 'restarting') OR r.events ? event THEN
    RETURN false;
  END IF;
  UPDATE jobq.runs j SET events = j.events || jsonb_build_object(event, data) WHERE j.id = r.id RETURNING * INTO r;
  sent := (SELECT count(*) FROM jsonb_object_keys(r.events));
  IF sent > 1000 THEN
    PERFORM jobq_internal._bad('54000', format('run %s has 1000 events', r.id));
  ELSIF sent > 1 THEN
    PERFORM jobq_internal._check_event_data('argument "data", with the events sent before,', r.events);
  END IF;
  PERFORM jobq_internal._run_event(r.id, 'event_received', jsonb_build_object('event', event));
  PERFORM jobq_internal._settle_answered(r, true),
          -- a step may begin to wait in a transaction that is open, or another one holds its row
          jobq_internal._look_again(r.id);
  RETURN true;
END $$;

-- Returns the keys of steps and of all steps behind them.
CREATE FUNCTION jobq_internal._steps_behind(steps jsonb, keys text[]) RETURNS text[]
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE behind(key) AS (
    SELECT unnest(keys)
     UNION
    SELECT s ->> 'key' FROM behind b JOIN jsonb_array_elements(steps) s
      ON jsonb_typeof(s -> 'after') = 'array' AND s -> 'after' ? b.key)
  SELECT coalesce(array_agg(b.key), '{}') FROM behind b
$$;

-- Returns the keys of the steps that a retry takes again: of tasks that are dead
-- or cancelled, from_task, steps that are fresh, and all behind them; but for
-- those that go on.
CREATE FUNCTION jobq_internal._again(r jobq.runs, from_task text, go_on text[], fresh text[]) RETURNS text[]
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT ARRAY(
    SELECT k FROM unnest(jobq_internal._steps_behind(n.steps, ARRAY(
      SELECT s ->> 'key' FROM jsonb_array_elements(n.steps) s
       WHERE s ->> 'key' = from_task
          OR (s ->> 'key' <> ALL (go_on)
              AND s ->> 'key' = ANY (fresh || ARRAY(SELECT t.task_key FROM jobq_internal._tasks_of(r.id) t
                                                     WHERE t.status IN ('error', 'cancelled'))))))) k
     WHERE k <> ALL (go_on))
    FROM (SELECT jobq_internal._steps_of(r) AS steps) n
$$;

-- Returns the steps of a run that have no rows yet: those that its version adds to
-- the former ones, and those that an earlier retry has taken away.
CREATE FUNCTION jobq_internal._fresh_steps(r jobq.runs, steps_before jsonb) RETURNS text[]
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT ARRAY(SELECT k FROM unnest(jobq_internal._keys_of(jobq_internal._steps_of(r))) k
                WHERE k <> ALL (jobq_internal._keys_of(steps_before)) OR k = ANY (r.again))
$$;

-- Raises 55000 if a task of a run that does not run again has no row any more, or a
-- member of a dead map that is kept.
CREATE FUNCTION jobq_internal._check_results(r jobq.runs, keys text[], kept text[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  lost text := (SELECT k FROM unnest(jobq_internal._keys_of(jobq_internal._steps_of(r))) WITH ORDINALITY s(k, n)
                 WHERE k <> ALL (keys || ARRAY(SELECT t.task_key FROM jobq_internal._tasks_of(r.id) t))
                 ORDER BY n LIMIT 1);
BEGIN
  IF lost IS NULL AND kept <> '{}' THEN
    SELECT m.task_key || '.*' INTO lost FROM jobq.dead_letters m
     WHERE m.workflow_id = r.id AND m.parent_id = r.id AND m.task_key = ANY (kept) AND m.error_code = 'task_failed'
       AND jsonb_array_length(CASE jsonb_typeof(m.payload) WHEN 'array' THEN m.payload ELSE '[]' END)
           > (SELECT count(*) FROM jobq.history h WHERE h.workflow_id = r.id AND h.parent_id = m.id)
           + (SELECT count(*) FROM jobq.dead_letters d WHERE d.workflow_id = r.id AND d.parent_id = m.id)
     LIMIT 1;
  END IF;
  IF lost IS NOT NULL THEN
    PERFORM jobq_internal._bad('55000', format('the row of task "%s" of run %s has expired', lost, r.id), 'jobq.rerun_job starts the run anew.');
  END IF;
END $$;

-- Returns those of the steps of a retry that are maps whose members stay, if they
-- have completed: nothing before the map runs again, and its step is as before.
CREATE FUNCTION jobq_internal._kept_maps(r jobq.runs, keys text[], steps_before jsonb, from_task text) RETURNS text[]
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT ARRAY(SELECT s ->> 'key' FROM jsonb_array_elements(jobq_internal._steps_of(r)) s
                WHERE s ->> 'map' IS NOT NULL AND s ->> 'key' = ANY (keys) AND s ->> 'key' IS DISTINCT FROM from_task
                  AND NOT coalesce(s -> 'after' ?| keys, false)
                  AND s IN (SELECT b FROM jsonb_array_elements(steps_before) b))
$$;

-- Deletes the rows of the tasks of these keys, and of their members, but for
-- completed ones of maps that are kept, and the events that they had got.  Steps
-- that these tasks had added go with them.  Jobs outside of the run that wait for
-- one of these tasks find it gone.  Returns the keys of those that start again.
CREATE FUNCTION jobq_internal._take_away(r jobq.runs, keys text[], kept text[]) RETURNS text[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  lost text[] := ARRAY(SELECT a ->> 'key' FROM jsonb_array_elements(r.added) a WHERE a -> 'for' ?| keys);
  gone uuid[] := ARRAY(SELECT t.id FROM jobq_internal._tasks_of(r.id) t WHERE t.task_key = ANY (keys || lost));
  taken uuid[];
BEGIN
  UPDATE jobq.runs j SET events = j.events - answered.names
    FROM (SELECT array_agg(s ->> 'event') AS names FROM jsonb_array_elements(jobq_internal._steps_of(r)) s
           WHERE s ->> 'event' IS NOT NULL AND s ->> 'key' = ANY (keys || lost)
             AND s ->> 'key' IN (SELECT t.task_key FROM jobq_internal._tasks_of(r.id) t WHERE t.status = 'completed')) answered
   WHERE j.id = r.id AND answered.names IS NOT NULL;
  -- members by the key: those that an earlier retry has kept have a parent that is gone
  WITH dead AS (
    DELETE FROM jobq.dead_letters d
     WHERE d.workflow_id = r.id AND (d.id = ANY (gone) OR (d.parent_id <> r.id AND split_part(d.task_key, '.', 1) = ANY (keys || lost)))
    RETURNING d.id),
  ended AS (
    DELETE FROM jobq.history h
     WHERE h.workflow_id = r.id
       AND (h.id = ANY (gone) OR (h.parent_id <> r.id AND split_part(h.task_key, '.', 1) = ANY (keys || lost)
                                  AND (h.status = 'cancelled' OR split_part(h.task_key, '.', 1) <> ALL (kept))))
    RETURNING h.id)
  SELECT array_agg(t.id) INTO taken FROM (SELECT d.id FROM dead d UNION ALL SELECT e.id FROM ended e) t;
  PERFORM jobq_internal._forget_runs(taken);
  DELETE FROM jobq.dependencies d
   WHERE d.parent_id = ANY (gone)
     AND NOT EXISTS (SELECT FROM jobq.queue c WHERE c.id = d.child_id AND c.workflow_id IS DISTINCT FROM r.id);
  PERFORM jobq_internal._look_at_parent(p.id)
     FROM (SELECT DISTINCT d.parent_id AS id FROM jobq.dependencies d WHERE d.parent_id = ANY (gone)) p;
  IF lost <> '{}' THEN
    UPDATE jobq.runs j SET added = (SELECT coalesce(jsonb_agg(a ORDER BY n), '[]')
                                      FROM jsonb_array_elements(j.added) WITH ORDINALITY e(a, n) WHERE a ->> 'key' <> ALL (lost))
     WHERE j.id = r.id;
  END IF;
  RETURN ARRAY(SELECT k FROM unnest(keys) k WHERE k <> ALL (lost));
END $$;

-- Returns the run with another version, not stored; an error if that lacks a step
-- that has ended and does not run again.
CREATE FUNCTION jobq_internal._take_version(r jobq.runs, version int) RETURNS jobq.runs
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  before text[] := jobq_internal._keys_of(jobq_internal._steps_of(r));
BEGIN
  IF NOT EXISTS (SELECT FROM jobq.workflows w WHERE w.type_id = r.type_id AND w.version = version) THEN
    PERFORM jobq_internal._bad('42704', format('argument "version": the workflow has no version %s', version));
  END IF;
  r.version := version;
  IF EXISTS (SELECT FROM jobq_internal._tasks_of(r.id) t WHERE t.status IN ('completed', 'skipped') AND t.task_key = ANY (before)
                AND t.task_key <> ALL (jobq_internal._keys_of(jobq_internal._steps_of(r)))) THEN
    PERFORM jobq_internal._bad('22023', format('argument "version": version %s lacks steps that have ended', version));
  END IF;
  RETURN r;
END $$;

-- An error unless the steps that tasks have added fit the run's new version,
-- as jobq.add_tasks wants: other keys than its steps, no cycle.
CREATE FUNCTION jobq_internal._check_added(run uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r jobq.runs;
BEGIN
  SELECT * INTO r FROM jobq.runs j WHERE j.id = run;
  IF r.added <> '[]' THEN
    PERFORM jobq_internal._check_run_steps(r);
  END IF;
EXCEPTION
  WHEN undefined_object THEN
    NULL;  -- a type was dropped: only a step that starts again needs it
  WHEN invalid_parameter_value OR program_limit_exceeded THEN
    PERFORM jobq_internal._bad(SQLSTATE, replace(SQLERRM, 'argument "steps"', format('argument "version": version %s with the steps that tasks have added', r.version)));
END $$;

-- Ends a live task whose step starts again, or that the run's new version
-- lacks; false: it has begun, and goes on.
CREATE FUNCTION jobq_internal._take_back(q jobq.queue, wanted boolean) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  message CONSTANT text := 'its run has taken another version';
BEGIN
  IF q.status = 'blocked' THEN
    RETURN jobq_internal._settle_task(q.id, 'cancelled', NULL, 'dependency', message);
  ELSIF NOT (q.status = 'running' AND q.position = 'infinity') AND jobq_internal._cancel(q.id, message, false) <> 'running' THEN
    RETURN true;
  ELSIF NOT wanted AND NOT jobq_internal._cancel_map(q.id, message) THEN
    PERFORM jobq_internal._cancel(q.id, message);
  END IF;
  RETURN false;
END $$;

-- Takes back the live tasks that have not begun, but for those that wait no
-- longer for other steps and whose step is as before; cancels those that the
-- new version lacks.  Returns the keys of the others: they go on.
CREATE FUNCTION jobq_internal._take_back_tasks(r jobq.runs, steps_before jsonb) RETURNS text[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  go_on text[] := '{}';
  q jobq.queue;
  step jsonb;
  is_same boolean;
BEGIN
  PERFORM jobq_internal._hold_blocked(r.id);
  FOR q IN SELECT * FROM (SELECT * FROM jobq.queue o WHERE o.workflow_id = r.id AND o.parent_id = r.id OFFSET 0) j ORDER BY j.id LOOP
    step := jobq_internal._step_of(r, q.task_key);
    is_same := step = (SELECT s FROM jsonb_array_elements(steps_before) s WHERE s ->> 'key' = q.task_key);
    -- after_state 4 and more: only its event, its delay or a pause holds it
    IF (is_same AND (q.status <> 'blocked' OR q.after_state >= 4)) OR NOT jobq_internal._take_back(q, step IS NOT NULL) THEN
      go_on := go_on || q.task_key;
    END IF;
  END LOOP;
  RETURN go_on;
END $$;

-- Gives a live run another version: its dead and cancelled tasks, all behind
-- them and all that has not begun start by that one.
CREATE FUNCTION jobq_internal._change_version(r jobq.runs, version int) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  steps_before jsonb := jobq_internal._steps_of(r);
  go_on text[];
  keys text[];
BEGIN
  r := jobq_internal._take_version(r, version);
  UPDATE jobq.runs j SET version = r.version WHERE j.id = r.id;
  go_on := jobq_internal._take_back_tasks(r, steps_before);
  keys := jobq_internal._again(r, NULL, go_on, jobq_internal._fresh_steps(r, steps_before));
  IF EXISTS (SELECT FROM jsonb_array_elements(r.added) a WHERE a -> 'for' ?| keys AND a ->> 'key' = ANY (go_on)) THEN
    PERFORM jobq_internal._bad('55000', 'a task that was added by one that is to run again has begun', 'Try again when it has ended.');
  END IF;
  keys := jobq_internal._take_away(r, keys, CASE r.phase WHEN 'restarting' THEN jobq_internal._kept_maps(r, keys, steps_before, NULL) ELSE '{}' END);
  PERFORM jobq_internal._check_added(r.id);
  IF r.phase = 'restarting' THEN
    UPDATE jobq.runs j SET again = keys WHERE j.id = r.id;
  ELSE
    UPDATE jobq.runs j SET phase = 'running', failure = NULL WHERE j.id = r.id RETURNING * INTO r;
    PERFORM jobq_internal._add_live_steps(r, jobq_internal._steps_of(r), keys), jobq_internal._look_again(r.id);
  END IF;
  PERFORM jobq_internal._run_event(r.id, 'retried', jsonb_build_object('from', 'running', 'version', version));
END $$;

CREATE FUNCTION jobq.retry_workflow(id uuid, from_task text DEFAULT NULL, version int DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._retry_workflow(caller oid, id uuid, from_task text, version int) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  r jobq.runs;
  job jobq.dead_letters;
  ended jsonb;
  keys text[];
  kept text[];
  steps_before jsonb;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL);
  IF jobq_internal._manages_job(caller, id) THEN  -- its outer run first: see 60_manage.sql
    PERFORM FROM jobq.runs o
     WHERE o.id = (SELECT j.workflow_id FROM (SELECT d.workflow_id FROM jobq.dead_letters d WHERE d.id = _retry_workflow.id
                                               UNION ALL
                                              SELECT h.workflow_id FROM jobq.history h WHERE h.id = _retry_workflow.id LIMIT 1) j) FOR SHARE;
  END IF;
  r := jobq_internal._managed_run(caller, id);
  IF coalesce(r.version, 0) = 0 AND EXISTS (
       SELECT FROM (SELECT d.type_id FROM jobq.dead_letters d WHERE d.id = _retry_workflow.id
                     UNION ALL
                    SELECT h.type_id FROM jobq.history h WHERE h.id = _retry_workflow.id) j
         JOIN jobq.job_types t ON t.id = j.type_id WHERE t.is_workflow) THEN
    RETURN jobq_internal._retry_job(caller, id, NULL);  -- it has never started
  ELSIF coalesce(r.version, 0) = 0 THEN
    RETURN false;
  ELSIF jobq_internal._lives(r) THEN
    IF version IS NULL OR version = r.version OR from_task IS NOT NULL OR r.phase NOT IN ('running', 'failing', 'restarting')
       OR EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id AND q.cancel_requested) THEN
      RETURN false;
    END IF;
    PERFORM jobq_internal._change_version(r, version);
    RETURN true;
  END IF;
  steps_before := jobq_internal._steps_of(r);
  IF version IS NOT NULL THEN
    r := jobq_internal._take_version(r, version);
  END IF;
  IF r.compensated THEN
    PERFORM jobq_internal._bad('55000', format('run %s has been compensated', id), 'jobq.rerun_job starts it anew.');
  ELSIF from_task IS NOT NULL AND NOT from_task = ANY (jobq_internal._keys_of(jobq_internal._steps_of(r))) THEN
    PERFORM jobq_internal._bad('22023', format('argument "from_task": the workflow has no step "%s"', jobq_internal._shown(from_task)));
  END IF;
  keys := jobq_internal._again(r, from_task, '{}', jobq_internal._fresh_steps(r, steps_before));
  IF keys = '{}' AND from_task IS NULL AND NOT EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = r.id) THEN
    RETURN false;
  END IF;
  DELETE FROM jobq.dead_letters d WHERE d.id = r.id RETURNING d.* INTO job;
  IF NOT FOUND THEN
    DELETE FROM jobq.history h WHERE h.id = r.id RETURNING to_jsonb(h) INTO ended;
    IF NOT FOUND THEN
      PERFORM jobq_internal._bad('55000', format('the row of run %s has expired', id));
    END IF;
    job := jsonb_populate_record(NULL::jobq.dead_letters, ended);
  END IF;
  IF job.workflow_id IS NOT NULL AND NOT jobq_internal._hold_run_of(job) THEN
    PERFORM jobq_internal._bad('55000', format('the run %s of this run has ended, or ends', job.workflow_id), 'jobq.retry_workflow retries that one.');
  END IF;
  kept := jobq_internal._kept_maps(r, keys, steps_before, from_task);
  PERFORM jobq_internal._check_results(r, keys, kept);
  keys := jobq_internal._take_away(r, keys, kept);
  UPDATE jobq.runs j SET phase = 'restarting', failure = NULL, version = r.version, again = keys WHERE j.id = r.id;
  IF version IS NOT NULL THEN
    PERFORM jobq_internal._check_added(r.id);
  END IF;
  PERFORM jobq_internal._requeue_one(job, NULL), jobq_internal._event_retried(ARRAY[job]);
  RETURN true;
END $$;

-- ---------- calls about jobs that are runs or tasks (60_manage.sql) ----------

-- Returns the ended run that the job is or is a task of, the outermost one; a retry
-- of the job takes it up again.  NULL: the job is retried by itself.
CREATE FUNCTION jobq_internal._ended_run_of(id uuid) RETURNS uuid
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE up(id, level) AS (
    SELECT _ended_run_of.id, 0
     UNION ALL
    SELECT o.run, u.level + 1
      FROM up u, LATERAL (SELECT d.workflow_id AS run FROM jobq.dead_letters d WHERE d.id = u.id
                           UNION ALL
                          SELECT h.workflow_id FROM jobq.history h
                           WHERE h.id = u.id AND (u.level > 0 OR h.status IN ('cancelled', 'skipped')) LIMIT 1) o
     WHERE o.run IS NOT NULL)
  SELECT r.id FROM up u JOIN jobq.runs r ON r.id = u.id WHERE NOT jobq_internal._lives(r) ORDER BY u.level DESC LIMIT 1
$$;

-- Retries the ended runs among dead letters, and those that dead letters are
-- tasks of; others: the rest.  A run that was compensated stays.
CREATE FUNCTION jobq_internal._retry_runs(caller oid, jobs jobq.dead_letters[], OUT retried bigint, OUT others jobq.dead_letters[])
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job jobq.dead_letters;
  run uuid;
BEGIN
  retried := 0;
  others := '{}';
  FOREACH job IN ARRAY jobs LOOP
    -- the run of an earlier one may have taken this one along
    CONTINUE WHEN NOT EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = job.id);
    run := jobq_internal._ended_run_of(job.id);
    IF run IS NULL THEN
      others := others || job;
      CONTINUE;
    END IF;
    BEGIN
      retried := retried + jobq_internal._retry_workflow(caller, run, NULL, NULL)::int;
    EXCEPTION WHEN object_not_in_prerequisite_state OR unique_violation OR undefined_object THEN
      NULL;
    END;
  END LOOP;
END $$;

-- Deletes what is left of those runs among the ids that are not in the queue, and
-- of the runs in them: dead letters of their tasks, timers, the rows of jobq.runs.
CREATE FUNCTION jobq_internal._forget_runs(ids uuid[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  gone uuid[];
BEGIN
  LOOP
    WITH run AS (
      DELETE FROM jobq.runs r WHERE r.id = ANY (ids) AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id) RETURNING r.id)
    SELECT array_agg(run.id) INTO gone FROM run;
    EXIT WHEN gone IS NULL;
    ids := ARRAY(SELECT r.id FROM (SELECT d.id FROM jobq.dead_letters d WHERE d.workflow_id = ANY (gone)
                                    UNION ALL SELECT h.id FROM jobq.history h WHERE h.workflow_id = ANY (gone)) t
                   JOIN jobq.runs r ON r.id = t.id);
    DELETE FROM jobq.dead_letters d WHERE d.workflow_id = ANY (gone);
    DELETE FROM jobq.run_timers t WHERE t.id = ANY (gone);
  END LOOP;
END $$;

-- Deletes the rows of those runs among the ids, and of the runs in them, but for
-- tasks that a job outside still waits for or a hook refers to: these expire.
-- Returns the number of tasks.
CREATE FUNCTION jobq_internal._drop_tasks(ids uuid[]) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  dead bigint;
  ended bigint;
  dropped bigint := 0;
  inner_runs uuid[];
  referenced uuid[] := jobq_internal._referenced_jobs();
  mark bigint := jobq_internal._edges_mark();
BEGIN
  LOOP
    ids := ARRAY(SELECT r.id FROM jobq.runs r WHERE r.id = ANY (ids) AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id));
    EXIT WHEN ids = '{}';
    WITH gone AS (DELETE FROM jobq.dead_letters d WHERE d.workflow_id = ANY (ids) RETURNING d.id)
    SELECT count(*), array_agg(r.id) FILTER (WHERE r.id IS NOT NULL) INTO dead, inner_runs FROM gone g LEFT JOIN jobq.runs r ON r.id = g.id;
    WITH gone AS (DELETE FROM jobq.history h WHERE h.workflow_id = ANY (ids) AND h.id <> ALL (referenced)
                     AND NOT EXISTS (SELECT FROM jobq.dependencies d WHERE d.parent_id = h.id)
                     AND NOT jobq_internal._may_be_awaited(h.id, mark) RETURNING h.id)
    SELECT count(*), inner_runs || array_agg(r.id) FILTER (WHERE r.id IS NOT NULL) INTO ended, inner_runs FROM gone g LEFT JOIN jobq.runs r ON r.id = g.id;
    DELETE FROM jobq.artifacts a WHERE a.workflow_id = ANY (ids);
    PERFORM jobq_internal._forget_runs(ids);
    dropped := dropped + dead + ended;
    ids := inner_runs;
  END LOOP;
  RETURN dropped;
END $$;

-- Cancels a mapped task: its members, and then itself; false: the job is none.
-- With a code it becomes a dead letter when its members have ended.
CREATE FUNCTION jobq_internal._cancel_map(id uuid, reason text, code text DEFAULT NULL) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  run uuid;
BEGIN
  UPDATE jobq.queue q SET cancel_requested = true, error_code = coalesce(q.error_code, code),
         error_msg = CASE WHEN q.error_code IS NULL THEN reason ELSE q.error_msg END, rev = q.rev + 1
   WHERE q.id = _cancel_map.id AND q.workflow_id IS NOT NULL AND q.status = 'running' AND q.position = 'infinity'
  RETURNING q.workflow_id INTO run;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM jobq_internal._end_task(m.id, reason, true) FROM jobq.queue m WHERE m.workflow_id = run AND m.parent_id = _cancel_map.id;
  PERFORM jobq_internal._look_again(_cancel_map.id);
  RETURN true;
END $$;

-- ---------- tasks that add tasks ----------

-- src/sql_worker/running_attempt.c.  Returns the job whose handler calls, or
-- the claimed job of that token, locked.
CREATE FUNCTION jobq_internal._running_attempt(caller oid, id uuid, lease_token uuid) RETURNS uuid
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_running_attempt';

-- Decides about a new task whose parents have ended, or some of them: ready,
-- cancelled, skipped; NULL: it waits.
CREATE FUNCTION jobq_internal._fate_of(q jobq.queue) RETURNS text
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN q.after IS NULL THEN 'ready'
              WHEN q.after_rule = 'success' AND q.after_state & 2 > 0 THEN 'cancelled'
              WHEN q.after_rule = 'any' AND q.after_state & 1 > 0 THEN 'ready'
              WHEN q.after_rule = 'failed' AND q.after_state & 2 > 0 THEN 'ready'
              WHEN q.waiting_for > 0 THEN NULL
              WHEN q.after_rule = 'done' OR (q.after_rule = 'success' AND q.after_state & 1 > 0) THEN 'ready'
              ELSE 'skipped' END
$$;

-- What waits for the task waits for the new ones, too.
CREATE FUNCTION jobq_internal._hold_children(task uuid, new_tasks uuid[]) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  WITH held AS (
    UPDATE jobq.queue c SET waiting_for = c.waiting_for + cardinality(new_tasks), after = c.after || new_tasks, rev = c.rev + 1
     WHERE c.id = ANY (ARRAY(SELECT d.child_id FROM jobq.dependencies d WHERE d.parent_id = task AND d.child_id <> ALL (new_tasks)))
       AND c.status = 'blocked' AND c.waiting_for > 0 RETURNING c.id)
  INSERT INTO jobq.dependencies (parent_id, child_id) SELECT n, h.id FROM held h, unnest(new_tasks) n
$$;

-- Adds steps to a run that is live, and starts those whose rule is met; returns
-- their tasks in the order of the steps.
CREATE FUNCTION jobq_internal._add_live_steps(r jobq.runs, steps jsonb, keys text[], task uuid DEFAULT NULL) RETURNS uuid[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ids uuid[];
  q jobq.queue;
  fate text;
BEGIN
  PERFORM jobq_internal._add_steps(r, steps, keys);
  ids := ARRAY(SELECT j.id FROM jsonb_array_elements(steps) WITH ORDINALITY e(s, n)
                 JOIN jobq.queue j ON j.workflow_id = r.id AND j.parent_id = r.id AND j.task_key = e.s ->> 'key'
                WHERE j.task_key = ANY (keys) ORDER BY e.n);
  IF task IS NOT NULL THEN
    PERFORM jobq_internal._hold_children(task, ids);
  END IF;
  FOR q IN SELECT j.* FROM unnest(ids) WITH ORDINALITY t(id, n), LATERAL (SELECT * FROM jobq.queue o WHERE o.id = t.id OFFSET 0) j ORDER BY t.n LOOP
    fate := jobq_internal._fate_of(q);
    -- behind failed tasks after which the run goes on
    IF fate = 'cancelled' AND NOT EXISTS (SELECT FROM jobq_internal._tasks_of(r.id) t
                                           WHERE t.id = ANY (q.after) AND t.status IN ('error', 'cancelled')
                                             AND NOT (t.status = 'error' AND jobq_internal._continues(r, t.task_key))) THEN
      fate := 'skipped';
    END IF;
    CASE fate
      WHEN 'ready' THEN
        PERFORM jobq_internal._ready(ARRAY[q.id]);
      WHEN 'cancelled' THEN
        PERFORM jobq_internal._settle_task(q.id, 'cancelled', NULL, 'dependency', 'a job that it waits for was cancelled or is gone');
      WHEN 'skipped' THEN
        PERFORM jobq_internal._settle_task(q.id, 'skipped', NULL, 'dependency', 'no job that it waits for has ended as after_rule wants');
      ELSE
        NULL;
    END CASE;
  END LOOP;
  -- a parent may end before this transaction does
  PERFORM jobq_internal._look_at_parent(p.id)
     FROM (SELECT DISTINCT d.parent_id AS id FROM jobq.dependencies d
            WHERE d.parent_id IN (SELECT a FROM jobq.queue j, unnest(j.after) a WHERE j.id = ANY (ids)) AND d.parent_id <> ALL (ids)) p;
  PERFORM jobq_internal._look_again(r.id);  -- the conductor reads the next timer
  RETURN ids;
END $$;

CREATE FUNCTION jobq.add_tasks(steps jsonb, id uuid DEFAULT NULL, lease_token uuid DEFAULT NULL) RETURNS SETOF uuid
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
-- Raises an error unless the caller may add the steps to a run of that tenant.
CREATE FUNCTION jobq_internal._check_adder(caller oid, tenant text, steps jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name text;
  -- a role without any grant is not held to grants, but may not call this
  enqueue oid := (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'jobq'::regnamespace AND p.proname = 'enqueue');
BEGIN
  FOR name IN SELECT t.name FROM jobq.job_types t
               WHERE t.dropped_at IS NULL AND t.name IN (SELECT jobq_internal._types_of_steps(steps))
                 AND NOT (has_function_privilege(caller, enqueue, 'EXECUTE')
                          AND jobq_internal._may_enqueue(caller, _check_adder.tenant, t.id)) ORDER BY t.name LIMIT 1 LOOP
    PERFORM jobq_internal._bad('42501', format('argument "steps": permission denied to enqueue a job of type "%s"', name),
      'It takes access "enqueue" to that job type and the tenant of the run: see jobq.grant_access.');
  END LOOP;
END $$;

CREATE FUNCTION jobq_internal._add_tasks(caller oid, steps jsonb, id uuid, lease_token uuid) RETURNS SETOF uuid
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  task_id uuid;
  task jobq.queue;
  r jobq.runs;
  adders jsonb;
  reads jsonb;  -- of the new steps
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('steps', steps IS NOT NULL);
  -- the run first: jobq.retry_workflow has it when it waits for a task
  PERFORM FROM jobq.runs j WHERE j.id = (SELECT q.workflow_id FROM jobq.queue q WHERE q.id = _add_tasks.id AND q.lease_token = _add_tasks.lease_token)
     FOR NO KEY UPDATE;
  task_id := jobq_internal._running_attempt(caller, id, lease_token);
  IF jsonb_typeof(steps) <> 'array' OR steps = '[]' OR EXISTS (SELECT FROM jsonb_array_elements(steps) s WHERE jsonb_typeof(s) <> 'object') THEN
    PERFORM jobq_internal._check_workflow_steps(caller, '', steps, NULL);
  END IF;
  SELECT * INTO task FROM jobq.queue j WHERE j.id = task_id;
  SELECT * INTO r FROM jobq.runs j WHERE j.id = task.workflow_id FOR NO KEY UPDATE;  -- a run among its tasks may start
  IF r.id IS NULL THEN
    PERFORM jobq_internal._bad('55000', format('job %s is no task of a run', task_id));
  ELSIF r.phase <> 'running' THEN
    PERFORM jobq_internal._bad('55000', format('run %s ends: it takes no more tasks', r.id));
  END IF;
  adders := to_jsonb(split_part(task.task_key, '.', 1));
  adders := jsonb_build_array(adders) || coalesce(jobq_internal._step_of(r, task.task_key) -> 'for', '[]');
  r.added := r.added || (SELECT jsonb_agg(s || jsonb_build_object('for', adders) ORDER BY n)
                           FROM jsonb_array_elements(steps) WITH ORDINALITY e(s, n));
  PERFORM jobq_internal._check_run_steps(r), jobq_internal._check_adder(caller, task.tenant, steps);
  reads := jobq_internal._step_reads(steps, NULL);
  r.added := (SELECT jsonb_agg(s || CASE WHEN reads ? (s ->> 'key') THEN jsonb_build_object('reads', reads -> (s ->> 'key')) ELSE '{}' END ORDER BY n)
                FROM jsonb_array_elements(r.added) WITH ORDINALITY e(s, n));
  UPDATE jobq.runs j SET added = r.added WHERE j.id = r.id;
  -- a member of a map has no children: its map has
  RETURN QUERY SELECT unnest(jobq_internal._add_live_steps(r, steps, jobq_internal._keys_of(steps),
                                                           CASE WHEN task.parent_id = r.id THEN task.id ELSE task.parent_id END));
END $$;

-- ---------- jobq.run_inline of a run (src/sql_worker/inline_workflow.c) ----------

-- Raises 0A000 unless all tasks of a run that has just started are SQL jobs,
-- runs, or end by themselves.
CREATE FUNCTION jobq_internal._check_inline(run uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  step record;
BEGIN
  SELECT s ->> 'key' AS key, w.why INTO step
    FROM jobq.runs r, jsonb_array_elements(jobq_internal._steps_of(r)) WITH ORDINALITY e(s, n),
         LATERAL (SELECT CASE WHEN s ->> 'event' IS NOT NULL THEN 'waits for an event'
                              WHEN s ->> 'delay' IS NOT NULL THEN 'has a delay'
                              ELSE (SELECT format('has a job of type "%s", which is no SQL type', t.name) FROM jobq.job_types t
                                     WHERE t.name IN (s ->> 'job_type', s #>> '{compensate,job_type}') AND t.dropped_at IS NULL
                                       AND t.kind NOT IN ('sql', 'workflow') LIMIT 1) END) w(why)
   WHERE r.id = run AND w.why IS NOT NULL ORDER BY e.n LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('run %s cannot run in one transaction: step "%s" %s', run, step.key, step.why);
  END IF;
END $$;

-- Returns what is to be done next for a run all of whose rows are this
-- transaction's: its parents that have ended, the runs and maps that live, and
-- the task that was released first.  state changes with the rows.
CREATE FUNCTION jobq_internal._inline_state(run uuid, OUT parents uuid[], OUT looks uuid[], OUT next uuid, OUT state text)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  WITH RECURSIVE family AS (
    SELECT q.id, q.status, q.position, q.scheduled_for, q.after, q.waiting_for, q.rev FROM jobq.queue q WHERE q.id = run
     UNION ALL
    SELECT q.id, q.status, q.position, q.scheduled_for, q.after, q.waiting_for, q.rev
      FROM family f, LATERAL (SELECT * FROM jobq.queue o WHERE o.workflow_id = f.id OFFSET 0) q)
  SELECT coalesce((SELECT array_agg(DISTINCT d.parent_id) FROM family c, unnest(c.after) a JOIN jobq.dependencies d ON d.parent_id = a
                    WHERE c.status = 'blocked' AND d.child_id = c.id AND NOT EXISTS (SELECT FROM jobq.queue p WHERE p.id = a)), '{}'),
         coalesce(array_agg(f.id) FILTER (WHERE f.status = 'running'), '{}'),
         (array_agg(f.id ORDER BY f.scheduled_for, f.position, f.id)
            FILTER (WHERE f.status = 'retry' OR (f.status = 'pending' AND f.scheduled_for <= (SELECT clock_timestamp()))))[1],
         format('%s %s %s', count(*), sum(f.waiting_for), sum(f.rev))
    INTO parents, looks, next, state FROM family f;
END $$;

-- Runs that have begun, and those in the queue that wait.  A map is done as far as
-- its elements are.  The branches have no join and no WHERE, so the planner reads
-- the newest runs from the indexes of ids.
CREATE VIEW jobq.workflow_runs WITH (security_invoker = true) AS
SELECT j.id, j.job_type AS workflow, r.version, j.status,
       CASE WHEN r.version IS NULL THEN 0 ELSE
       (SELECT avg(CASE WHEN t.status IN ('completed', 'skipped') THEN 100
                        WHEN m.map IS NOT NULL THEN m.done / greatest(CASE jsonb_typeof(t.payload) WHEN 'array' THEN jsonb_array_length(t.payload) END, 1)
                        ELSE coalesce(t.progress, 0) END)
          FROM jobq.jobs t
          LEFT JOIN (SELECT e.parent_id AS map, sum(CASE WHEN e.status IN ('completed', 'skipped') THEN 100 ELSE coalesce(e.progress, 0) END) AS done
                       FROM jobq.jobs e WHERE e.workflow_id = j.id AND e.parent_id <> j.id GROUP BY 1) m ON m.map = t.id
         WHERE t.workflow_id = j.id AND t.parent_id = j.id) END AS progress,
       (SELECT t.task_key FROM jobq.jobs t WHERE t.workflow_id = j.id AND t.parent_id = j.id
           AND t.status IN ('running', 'pending', 'retry', 'blocked')
         ORDER BY CASE t.status WHEN 'running' THEN 0 WHEN 'blocked' THEN 2 ELSE 1 END, t.created_at, t.id LIMIT 1) AS current_task_key,
       (SELECT coalesce(jsonb_object_agg(c.status, c.n), '{}') FROM
          (SELECT t.status, count(*) AS n FROM jobq.jobs t WHERE t.workflow_id = j.id GROUP BY t.status) c) AS tasks,
       j.priority, coalesce(nullif(r.position, 'infinity'), j.scheduled_for) AS position, j.payload, j.result, j.error_code, j.error_msg, j.tenant,
       CASE WHEN j.completed_at IS NULL THEN r.paused_reason END AS paused_reason, j.scheduled_for, r.deadline, j.created_at, j.started_at, j.completed_at, j.updated_at
  FROM (SELECT b.id, b.type_id, b.version, b.version AS number, 0 AS runs, b.paused_reason, b.deadline, NULL::timestamptz AS position FROM jobq.runs b
         UNION ALL
        SELECT q.id, q.type_id, NULL::int, 1, q.runs, (SELECT b.paused_reason FROM jobq.runs b WHERE b.id = q.id), NULL::timestamptz, q.position FROM jobq.queue q) r
  JOIN jobq.jobs j ON j.id = r.id
 WHERE r.type_id = ANY (ARRAY(SELECT t.id FROM jobq.job_types t WHERE t.is_workflow)) AND r.number > 0 AND r.runs = 0;
