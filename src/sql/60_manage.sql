
-- Management of jobs.  Rows of waiting jobs are locked with
-- jobq_internal._lock_job, which waits for other clients but never for a
-- handler.  A request to a running job reaches it when the transaction
-- commits.
--
-- Functions that change the queue lock it before they read it: otherwise a
-- REINDEX in between would wait for the read, and the change for the REINDEX.
--
-- Rows of jobq.runs are locked first, those of outer runs before those of inner
-- ones, then ended jobs.  Calls about many jobs, and retention, wait for no run
-- that has ended, and leave what another session holds.

-- Returns the ids of the types of that name; NULL for NULL. with_dropped: also
-- of dropped types.
CREATE FUNCTION jobq_internal._type_ids(job_type text, with_dropped boolean) RETURNS int[]
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ids int[];
BEGIN
  IF job_type IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT array_agg(t.id) INTO ids FROM jobq.job_types t
   WHERE t.name = job_type AND (with_dropped OR t.dropped_at IS NULL);
  IF ids IS NULL THEN
    PERFORM jobq_internal._bad_name('job type', job_type);
  END IF;
  RETURN ids;
END $$;

CREATE FUNCTION jobq.cancel_job(id uuid, reason text DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._cancel_job(caller oid, id uuid, reason text) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL);
  IF NOT jobq_internal._manages_job(caller, id) THEN
    RETURN false;
  END IF;
  -- a map after it has been waited for: it may start
  CASE jobq_internal._cancel(id, reason, false)
    WHEN 'gone' THEN RETURN false;
    WHEN 'cancelled' THEN RETURN true;
    ELSE RETURN jobq_internal._cancel_map(id, reason) OR jobq_internal._cancel(id, reason) <> 'gone';
  END CASE;
END $$;

-- Ends live jobs, in the order of the array; returns them and their number.  Only a
-- limited number of running jobs can be cancelled at once, and short jobs
-- count as running until their batch has been committed: if too many run, the
-- function waits until none of them ends for a second.  It also waits so long
-- for transactions that hold a job; held: the number of jobs still held after
-- that.
CREATE FUNCTION jobq_internal._cancel_each(ids uuid[], reason text, tell boolean, OUT cancelled bigint, OUT held bigint,
                                   OUT jobs uuid[])
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  until timestamptz;
  job uuid;
  state text;
  running uuid[];
  in_use uuid[];
  open int;
  fewest int;
BEGIN
  jobs := '{}';
  LOOP
    running := '{}';
    in_use := '{}';
    FOREACH job IN ARRAY ids LOOP
      CASE jobq_internal._cancel_free(job, reason, false)
        WHEN 'cancelled' THEN jobs := jobs || job;
        WHEN 'running' THEN running := running || job;
        WHEN 'held' THEN in_use := in_use || job;
        ELSE NULL;
      END CASE;
    END LOOP;
    EXIT WHEN in_use = '{}' AND (NOT tell OR cardinality(running) <= 128);
    ids := CASE WHEN tell THEN in_use || running ELSE in_use END;
    open := cardinality(ids);
    IF fewest IS NULL OR open < fewest THEN
      fewest := open;
      until := clock_timestamp() + interval '1 second';
    END IF;
    EXIT WHEN clock_timestamp() >= until;
    PERFORM pg_sleep(0.01);
  END LOOP;
  IF tell THEN
    until := clock_timestamp() + interval '1 second';
    FOREACH job IN ARRAY running LOOP
      LOOP
        state := CASE WHEN jobq_internal._cancel_map(job, reason) THEN 'told' ELSE jobq_internal._cancel_free(job, reason, true) END;
        EXIT WHEN state <> 'held' OR clock_timestamp() >= until;
        PERFORM pg_sleep(0.01);  -- by the worker that ends it now
      END LOOP;
      CASE state
        WHEN 'cancelled', 'told' THEN jobs := jobs || job;
        WHEN 'held' THEN in_use := in_use || job;
        ELSE NULL;
      END CASE;
    END LOOP;
  END IF;
  cancelled := cardinality(jobs);
  held := cardinality(in_use);
END $$;

-- Reports the number of jobs that a call has left unchanged.
CREATE FUNCTION jobq_internal._notice_held(held bigint) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF held > 0 THEN
    RAISE NOTICE '% job(s) stay: open transactions of other sessions hold them', held
      USING HINT = 'Call it again when these have ended.';
  END IF;
END $$;

CREATE FUNCTION jobq.cancel_jobs(
  job_type text DEFAULT NULL, tenant text DEFAULT NULL, payload_contains jsonb DEFAULT NULL,
  include_running boolean DEFAULT false, reason text DEFAULT NULL)
  RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._cancel_jobs(caller oid,
  job_type text, tenant text, payload_contains jsonb, include_running boolean, reason text)
  RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  type_ids int[] := jobq_internal._type_ids(job_type, true);
  done record;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('include_running', include_running IS NOT NULL);
  IF job_type IS NULL AND tenant IS NULL AND payload_contains IS NULL THEN
    PERFORM jobq_internal._bad('22023', 'arguments "job_type", "tenant" and "payload_contains" are all NULL',
      'Give at least one of them.');
  END IF;
  -- the newest first: workers take the oldest
  SELECT * INTO done
    FROM jobq_internal._cancel_each(ARRAY(SELECT q.id FROM jobq.queue q
                                  WHERE jobq_internal._manages(caller, q.tenant, q.type_id)
                                    AND (type_ids IS NULL OR q.type_id = ANY (type_ids))
                                    AND jobq_internal._tenant_is(q.tenant, _cancel_jobs.tenant)
                                    AND (payload_contains IS NULL OR q.payload @> payload_contains)
                                  ORDER BY q.id DESC), reason, include_running);
  PERFORM jobq_internal._notice_held(done.held);
  RETURN done.cancelled;
END $$;

-- Puts finished jobs (rows with the columns of history and dead_letters) back
-- into the queue, due now, in the order of the array; tasks at their run's
-- place.  Returns the ids of the inserted jobs: none of a dropped type, none
-- with the unique key of a live job. rev is one that no earlier row of this id
-- had, so that no executor takes this row for one handed to it before.  A
-- payload of JSON null is NULL in a row made with jsonb_populate_record.
CREATE FUNCTION jobq_internal._requeue(jobs jobq.dead_letters[], max_attempts int) RETURNS SETOF uuid
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO jobq.queue (id, position, scheduled_for, created_at, type_id, rev, home_id, max_attempts, runs, depth,
                          priority, sublane, payload, timeout, backoff, unique_key, unique_for, concurrency_key,
                          keep_completed, keep_dead, tenant, parent_id, workflow_id, task_key, metadata, enqueued_by,
                          after, after_rule, keep_until, progress, progress_data)
  SELECT j.id, least(run.position, clock_timestamp()), clock_timestamp(), j.created_at, j.type_id, 1 + floor(random() * 1000000000)::int,
         jobq_internal._home_id(), coalesce(_requeue.max_attempts, j.max_attempts), j.runs, j.depth, j.priority,
         jobq_internal._sublane(j.type_id, j.tenant), coalesce(j.payload, 'null'), j.timeout, j.backoff, j.unique_key, j.unique_for,
         j.concurrency_key, j.keep_completed, j.keep_dead, j.tenant, j.parent_id, j.workflow_id, j.task_key,
         j.metadata, j.enqueued_by, j.after, j.after_rule, r.keep_until, j.progress, j.progress_data
    FROM unnest(jobs) WITH ORDINALITY j JOIN jobq.job_types t ON t.id = j.type_id AND t.dropped_at IS NULL
    LEFT JOIN jobq.runs r ON r.id = j.workflow_id
    LEFT JOIN LATERAL (SELECT q.position FROM jobq.queue q WHERE q.id = j.workflow_id OFFSET 0) run ON true
   ORDER BY j.ordinality
  ON CONFLICT DO NOTHING RETURNING id
$$;

-- Deletes those of these jobs again whose unique key another live job has: one
-- that was queued behind the job that died is no conflict of the index.  The
-- index finds a tenant by = or IS NULL, and not by IS NOT DISTINCT FROM.
CREATE FUNCTION jobq_internal._take_back_copies(ids uuid[]) RETURNS SETOF uuid
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM jobq.queue q
   WHERE q.id = ANY (ids) AND q.unique_key IS NOT NULL
     AND (EXISTS (SELECT FROM jobq.queue o
                   WHERE o.type_id = q.type_id AND o.tenant = q.tenant AND o.unique_key = q.unique_key AND o.id <> q.id)
          OR q.tenant IS NULL AND
          EXISTS (SELECT FROM jobq.queue o
                   WHERE o.type_id = q.type_id AND o.tenant IS NULL AND o.unique_key = q.unique_key AND o.id <> q.id))
  RETURNING q.id
$$;

-- The same for one job; an error when it is not inserted.
CREATE FUNCTION jobq_internal._requeue_one(job jobq.dead_letters, max_attempts int) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM jobq_internal._requeue(ARRAY[job], max_attempts))
     AND NOT EXISTS (SELECT FROM jobq_internal._take_back_copies(ARRAY[job.id])) THEN
    -- the end of a run that had not begun has ended its pause
    UPDATE jobq.runs r SET paused = false, paused_reason = NULL WHERE r.id = job.id AND r.paused;
    RETURN;
  ELSIF EXISTS (SELECT FROM jobq.job_types t WHERE t.id = job.type_id AND t.dropped_at IS NULL) THEN
    PERFORM jobq_internal._bad('23505', format('a newer job with unique_key "%s" is live', job.unique_key));
  ELSE
    PERFORM jobq_internal._bad('42704',
      format('job type "%s" does not exist any more', jobq_internal._type_name(job.type_id)));
  END IF;
END $$;

-- Writes the events of retried jobs, with the error and the counts of their
-- earlier attempts.
CREATE FUNCTION jobq_internal._event_retried(jobs jobq.dead_letters[]) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT jobq_internal._tell(j.id, j.type_id, j.tenant, j.attempts, 'retried', j.error_msg,
                    jsonb_strip_nulls(jsonb_build_object('from', j.status, 'error', j.error_msg,
                                                         'code', j.error_code, 'attempts', j.attempts, 'runs', j.runs)))
    FROM unnest(jobs) j
$$;

-- False for a task that no worker has had: its payload has not been filled in, or
-- is the array of a map, or it is a step without a job type.
CREATE FUNCTION jobq_internal._can_run_again(job jobq.dead_letters) RETURNS boolean
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT job.workflow_id IS NULL OR job.runs > 0
$$;

-- True if the live run of an ended task lets it run again: one that fails starts
-- only tasks of the rules done and failed.  The run, and the map of a member,
-- don't end before this transaction does.
CREATE FUNCTION jobq_internal._hold_run_of(job jobq.dead_letters) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  rule text := CASE job.parent_id WHEN job.workflow_id THEN job.after_rule
                                  ELSE (SELECT m.after_rule FROM jobq.queue m WHERE m.id = job.parent_id) END;
BEGIN
  PERFORM FROM jobq.runs r
   WHERE r.id = job.workflow_id AND (r.phase = 'running' OR (r.phase = 'failing' AND rule IN ('done', 'failed'))) FOR SHARE;
  RETURN FOUND AND EXISTS (SELECT FROM jobq.queue q WHERE q.id = job.workflow_id)
                AND EXISTS (SELECT FROM jobq.queue q WHERE q.id = job.parent_id);
END $$;

-- Locks the runs of these dead letters, before their rows: the ended run that a
-- retry takes up (_ended_run_of); with_live: also live runs above, which a retry
-- shares and waits for.  Returns the dead letters whose ended run no other session
-- holds.
CREATE FUNCTION jobq_internal._hold_runs_of(ids uuid[], with_live boolean) RETURNS uuid[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  letters uuid[];
  ended uuid[];   -- of the letters
  above uuid[];
  held uuid[];
  run uuid;
BEGIN
  SELECT array_agg(l.id), array_agg(l.run),
         array_agg(DISTINCT CASE WHEN l.run IS NULL THEN l.workflow_id
                                 ELSE (SELECT o.workflow_id FROM (SELECT d.workflow_id FROM jobq.dead_letters d WHERE d.id = l.run
                                                                   UNION ALL
                                                                  SELECT h.workflow_id FROM jobq.history h WHERE h.id = l.run LIMIT 1) o) END)
    INTO letters, ended, above
    FROM (SELECT d.id, d.workflow_id, jobq_internal._ended_run_of(d.id) AS run
            FROM unnest(ids) i(id), LATERAL (SELECT * FROM jobq.dead_letters o WHERE o.id = i.id OFFSET 0) d OFFSET 0) l;
  IF with_live THEN
    FOR run IN SELECT q.id FROM unnest(above) i(id), LATERAL (SELECT o.id, o.depth FROM jobq.queue o WHERE o.id = i.id OFFSET 0) q
                ORDER BY q.depth, q.id LOOP
      PERFORM FROM jobq.runs r WHERE r.id = run FOR SHARE;
    END LOOP;
  END IF;
  held := ARRAY(SELECT r.id FROM jobq.runs r WHERE r.id = ANY (ended) FOR UPDATE SKIP LOCKED);
  RETURN ARRAY(SELECT l.id FROM unnest(letters, ended) l(id, run) WHERE l.run IS NULL OR l.run = ANY (held));
END $$;

CREATE FUNCTION jobq.retry_job(id uuid, max_attempts int DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._retry_job(caller oid, id uuid, max_attempts int) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  waiting jobq.queue;
  job jobq.dead_letters;
  is_dead boolean;
  ended jsonb;
  run uuid;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL);
  PERFORM jobq_internal._check_number('max_attempts', max_attempts, 1, 1000000);
  IF NOT jobq_internal._manages_job(caller, id) THEN
    RETURN false;
  END IF;
  run := jobq_internal._ended_run_of(id);
  IF run IS NOT NULL THEN
    RETURN jobq_internal._retry_workflow(caller, run, NULL, NULL);
  END IF;
  CASE jobq_internal._lock_job(id)
    WHEN 'running' THEN
      RETURN false;
    WHEN 'locked' THEN
      SELECT * INTO waiting FROM jobq.queue q WHERE q.id = _retry_job.id AND q.status = 'retry';
      IF NOT FOUND THEN
        RETURN false;
      END IF;
      PERFORM jobq_internal._check_ceilings(caller, waiting.type_id, NULL, max_attempts, NULL);
      UPDATE jobq.queue q
         SET status = 'pending', scheduled_for = clock_timestamp(), attempts = 0,
             position = least((SELECT run.position FROM jobq.queue run WHERE run.id = q.workflow_id), clock_timestamp()),
             max_attempts = coalesce(_retry_job.max_attempts, q.max_attempts),
             crashes = 0, error_msg = NULL, error_code = NULL, error_details = NULL
       WHERE q.id = waiting.id;
      PERFORM jobq_internal._event_retried(ARRAY[jsonb_populate_record(NULL::jobq.dead_letters, to_jsonb(waiting))]);
      RETURN true;
    ELSE
      NULL;
  END CASE;

  -- its run is locked before its row is
  SELECT d.* INTO job FROM jobq.dead_letters d WHERE d.id = _retry_job.id;
  is_dead := FOUND;
  IF NOT is_dead THEN
    SELECT to_jsonb(h) INTO ended FROM jobq.history h WHERE h.id = _retry_job.id AND h.status IN ('cancelled', 'skipped');
    IF NOT FOUND THEN
      RETURN false;
    END IF;
    -- by name: the tables have columns of their own
    job := jsonb_populate_record(NULL::jobq.dead_letters, ended);
  END IF;
  PERFORM jobq_internal._check_ceilings(caller, job.type_id, NULL, max_attempts, NULL);
  IF job.workflow_id IS NOT NULL AND NOT jobq_internal._hold_run_of(job) THEN
    PERFORM jobq_internal._bad('55000', format('the run %s of this task has ended, or ends', job.workflow_id), 'jobq.retry_workflow retries it.');
  ELSIF NOT jobq_internal._can_run_again(job) THEN
    PERFORM jobq_internal._bad('55000', format('task "%s" of the live run %s has had no attempt', job.task_key, job.workflow_id),
      'jobq.retry_workflow takes it up when the run has ended.');
  END IF;
  IF is_dead THEN
    DELETE FROM jobq.dead_letters d WHERE d.id = _retry_job.id RETURNING d.* INTO job;
  ELSE
    DELETE FROM jobq.history h WHERE h.id = _retry_job.id;
  END IF;
  IF NOT FOUND THEN  -- another session has taken it meanwhile
    RETURN false;
  END IF;
  PERFORM jobq_internal._requeue_one(job, max_attempts);
  -- it no longer waits: edges are left of a job that was cancelled while it did
  DELETE FROM jobq.dependencies d WHERE d.parent_id = ANY (job.after) AND d.child_id = job.id;
  PERFORM jobq_internal._count_for_quotas(ARRAY[job.id]);
  PERFORM jobq_internal._event_retried(ARRAY[job]);
  RETURN true;
END $$;

CREATE FUNCTION jobq.rerun_job(id uuid, payload jsonb DEFAULT NULL) RETURNS uuid
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._rerun_job(caller oid, id uuid, payload jsonb) RETURNS uuid
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job jobq.dead_letters;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL);
  IF NOT jobq_internal._manages_job(caller, id) THEN
    RETURN NULL;
  END IF;
  SELECT * INTO job FROM jobq.dead_letters d WHERE d.id = _rerun_job.id;
  IF NOT FOUND THEN
    SELECT r.* INTO job FROM jobq.history h, jsonb_populate_record(NULL::jobq.dead_letters, to_jsonb(h)) r
     WHERE h.id = _rerun_job.id;
  END IF;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF payload IS NOT NULL THEN
    PERFORM jobq_internal._check_payload(job.type_id, payload);
    job.payload := payload;
  END IF;
  job.parent_id := job.id;
  job.id := jobq_internal._new_id();
  job.created_at := clock_timestamp();
  job.runs := 0;
  job.progress := NULL;
  job.progress_data := NULL;
  job.enqueued_by := NULL;
  job.after := NULL;
  job.after_rule := NULL;
  job.workflow_id := NULL;
  job.task_key := NULL;
  PERFORM jobq_internal._requeue_one(job, NULL);
  PERFORM jobq_internal._admit(job.id);
  PERFORM jobq_internal._tell(job.id, job.type_id, job.tenant, 0, 'enqueued', NULL,
                     jsonb_build_object('priority', job.priority, 'parent_id', job.parent_id));
  RETURN job.id;
END $$;

CREATE FUNCTION jobq.alter_job(
  id uuid, payload jsonb DEFAULT NULL, priority int DEFAULT NULL, scheduled_for timestamptz DEFAULT NULL,
  max_attempts int DEFAULT NULL, timeout interval DEFAULT NULL)
  RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._alter_job(caller oid,
  id uuid, payload jsonb, priority int, scheduled_for timestamptz, max_attempts int, timeout interval)
  RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job jobq.queue;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('id', id IS NOT NULL);
  PERFORM jobq_internal._check_number('priority', priority, -100, 100);
  PERFORM jobq_internal._check_number('max_attempts', max_attempts, 1, 1000000);
  PERFORM jobq_internal._check_interval('timeout', timeout);
  IF NOT isfinite(scheduled_for) THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "scheduled_for": "%s" is not finite', scheduled_for));
  END IF;
  IF NOT jobq_internal._manages_job(caller, id) THEN
    RETURN false;
  ELSIF jobq_internal._lock_job(id) <> 'locked' THEN
    RETURN false;
  END IF;
  SELECT * INTO job FROM jobq.queue q WHERE q.id = _alter_job.id;
  IF payload IS NOT NULL THEN
    PERFORM jobq_internal._check_payload(job.type_id, payload);
  END IF;
  PERFORM jobq_internal._check_ceilings(caller, job.type_id, priority, max_attempts, timeout),
          jobq_internal._check_interval('timeout', timeout, (SELECT NOT t.is_workflow FROM jobq.job_types t WHERE t.id = job.type_id));
  UPDATE jobq.queue q
     SET payload = coalesce(_alter_job.payload, q.payload),
         priority = coalesce(_alter_job.priority, q.priority),
         scheduled_for = coalesce(_alter_job.scheduled_for, q.scheduled_for),
         -- a lane is read in the order of position, which is never in the past
         -- when it is set; a blocked job has none yet
         position = CASE WHEN _alter_job.scheduled_for IS NULL OR q.status = 'blocked' THEN q.position
                         ELSE greatest(_alter_job.scheduled_for, clock_timestamp()) END,
         max_attempts = coalesce(_alter_job.max_attempts, q.max_attempts),
         timeout = coalesce(_alter_job.timeout, q.timeout)
   WHERE q.id = job.id;
  IF payload IS NOT NULL THEN
    PERFORM jobq_internal._count_for_quotas(ARRAY[job.id]);
  END IF;
  RETURN true;
END $$;

-- Returns the dead letters that pass a filter, oldest first, locked; without
-- those that another session has locked, or their ended run.  Of tasks: those of
-- live runs that can run again by themselves, or those of ended runs.
CREATE FUNCTION jobq_internal._dead_letters(caller oid, job_type text, tenant text, error_like text, dead_before timestamptz, max_jobs int,
                                            of_live_runs boolean)
  RETURNS SETOF jobq.dead_letters
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  type_ids int[] := jobq_internal._type_ids(job_type, true);
  of_runs uuid[] := '{}';
BEGIN
  PERFORM jobq_internal._check_number('max_jobs', max_jobs, 0, 2147483647), jobq_internal._check_like(error_like);
  IF EXISTS (SELECT FROM jobq.runs) THEN
    of_runs := jobq_internal._hold_runs_of(ARRAY(
    SELECT d.id FROM jobq.dead_letters d
     WHERE jobq_internal._manages(caller, d.tenant, d.type_id)
       AND (type_ids IS NULL OR d.type_id = ANY (type_ids))
       AND jobq_internal._tenant_is(d.tenant, _dead_letters.tenant)
       AND (error_like IS NULL OR d.error_msg LIKE error_like)
       AND (dead_before IS NULL OR d.completed_at < dead_before)
       AND (d.workflow_id IS NULL
            OR CASE WHEN of_live_runs THEN jobq_internal._can_run_again(d) AND EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.workflow_id)
                    ELSE NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.workflow_id) END)
       AND (d.workflow_id IS NOT NULL OR EXISTS (SELECT FROM jobq.runs r WHERE r.id = d.id))
     ORDER BY d.completed_at, d.id LIMIT max_jobs), of_live_runs);
  END IF;
  RETURN QUERY
    SELECT * FROM jobq.dead_letters d
     WHERE jobq_internal._manages(caller, d.tenant, d.type_id)
       AND (type_ids IS NULL OR d.type_id = ANY (type_ids))
       AND jobq_internal._tenant_is(d.tenant, _dead_letters.tenant)
       AND (error_like IS NULL OR d.error_msg LIKE error_like)
       AND (dead_before IS NULL OR d.completed_at < dead_before)
       AND (d.workflow_id IS NULL
            OR CASE WHEN of_live_runs THEN jobq_internal._can_run_again(d) AND EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.workflow_id)
                    ELSE NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.workflow_id) END)
       AND (d.id = ANY (of_runs) OR (d.workflow_id IS NULL AND NOT EXISTS (SELECT FROM jobq.runs r WHERE r.id = d.id)))
     ORDER BY d.completed_at, d.id LIMIT max_jobs
     FOR UPDATE SKIP LOCKED;
END $$;

CREATE FUNCTION jobq.retry_dead_letters(
  job_type text DEFAULT NULL, max_jobs int DEFAULT NULL, tenant text DEFAULT NULL, error_like text DEFAULT NULL,
  dead_before timestamptz DEFAULT NULL, max_attempts int DEFAULT NULL)
  RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._retry_dead_letters(caller oid,
  job_type text, max_jobs int, tenant text, error_like text, dead_before timestamptz, max_attempts int)
  RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  jobs jobq.dead_letters[];
  ids uuid[];
  picked bigint := 0;
  retried bigint := 0;
  runs record;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_number('max_attempts', max_attempts, 1, 1000000);
  FOR jobs IN SELECT array_agg(n.job ORDER BY n.place)
                FROM (SELECT d AS job, row_number() OVER () AS place
                        FROM jobq_internal._dead_letters(caller, job_type, tenant, error_like, dead_before, max_jobs, true) d) n
               GROUP BY n.place / 100 ORDER BY n.place / 100 LOOP
    PERFORM jobq_internal._check_ceilings(caller, t.type_id, NULL, max_attempts, NULL)
       FROM (SELECT DISTINCT j.type_id FROM unnest(jobs) j) t;
    SELECT * INTO runs FROM jobq_internal._retry_runs(caller, jobs);
    picked := picked + cardinality(jobs) - cardinality(runs.others);
    retried := retried + runs.retried;
    jobs := ARRAY(SELECT j FROM unnest(runs.others) j WHERE j.workflow_id IS NULL OR jobq_internal._hold_run_of(j));
    CONTINUE WHEN jobs = '{}';
    ids := ARRAY(SELECT jobq_internal._requeue(jobs, max_attempts));
    ids := ARRAY(SELECT i FROM unnest(ids) i EXCEPT SELECT jobq_internal._take_back_copies(ids));
    DELETE FROM jobq.dead_letters d WHERE d.id = ANY (ids);
    PERFORM jobq_internal._count_for_quotas(ids);
    PERFORM jobq_internal._event_retried(ARRAY(SELECT j FROM unnest(jobs) j WHERE j.id = ANY (ids)));
    picked := picked + cardinality(jobs);
    retried := retried + cardinality(ids);
  END LOOP;
  IF picked > retried THEN
    RAISE NOTICE '% dead letter(s) stay: a newer job has their unique_key, their job type was dropped, or their run was compensated',
      picked - retried;
  END IF;
  RETURN retried;
END $$;

CREATE FUNCTION jobq.purge_dead_letters(
  job_type text DEFAULT NULL, older_than interval DEFAULT NULL, max_jobs int DEFAULT NULL,
  tenant text DEFAULT NULL, error_like text DEFAULT NULL)
  RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._purge_dead_letters(caller oid,
  job_type text, older_than interval, max_jobs int, tenant text, error_like text)
  RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ids uuid[];
BEGIN
  PERFORM jobq_internal._check_interval('older_than', older_than),
          jobq_internal._check_number('max_jobs', max_jobs, 0, 2147483647);
  IF job_type IS NULL AND older_than IS NULL AND _purge_dead_letters.tenant IS NULL AND error_like IS NULL THEN
    PERFORM jobq_internal._bad('22023',
      'arguments "job_type", "older_than", "tenant" and "error_like" are all NULL',
      'Give at least one of them; older_than => ''0'' takes all.');
  END IF;
  ids := ARRAY(SELECT d.id FROM jobq_internal._dead_letters(caller, job_type, _purge_dead_letters.tenant, error_like,
                                                   CASE WHEN older_than > '6000 years' THEN '-infinity'
                                                        ELSE clock_timestamp() - older_than END, max_jobs, false) d);
  DELETE FROM jobq.dead_letters d WHERE d.id = ANY (ids);
  PERFORM jobq_internal._forget_runs(ids);
  RETURN cardinality(ids);
END $$;

-- Deletes all data of a tenant's jobs.  Running jobs are cancelled, and leave
-- a row for the next call.
CREATE FUNCTION jobq.purge_tenant(tenant text) RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._purge_tenant(caller oid, tenant text) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  until timestamptz := clock_timestamp() + interval '1 second';
  job uuid;
  ids uuid[];
  running uuid[] := '{}';
  in_use uuid[];
  told record;
  runs uuid[];
  held_runs uuid[];
  left_runs uuid[];
  live bigint := 0;
  dead bigint;
  ended bigint;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_not_null('tenant', tenant IS NOT NULL);
  IF tenant = '' THEN
    PERFORM jobq_internal._bad('22023', 'argument "tenant": "" is empty', 'There is no tenant to purge.');
  END IF;
  runs := ARRAY(SELECT r.id FROM jobq.runs r
                 WHERE EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id AND q.tenant = _purge_tenant.tenant)
                    OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = r.id AND d.tenant = _purge_tenant.tenant)
                    OR EXISTS (SELECT FROM jobq.history h WHERE h.id = r.id AND h.tenant = _purge_tenant.tenant));
  LOOP  -- the conductor holds one for a moment
    held_runs := ARRAY(SELECT r.id FROM jobq.runs r WHERE r.id = ANY (runs) FOR UPDATE SKIP LOCKED);
    EXIT WHEN cardinality(held_runs) = cardinality(runs) OR clock_timestamp() >= until;
    PERFORM pg_sleep(0.01);
  END LOOP;
  left_runs := ARRAY(SELECT unnest(runs) EXCEPT SELECT unnest(held_runs));
  until := clock_timestamp() + interval '1 second';
  -- schedules before jobs: no tick adds one
  DELETE FROM jobq.schedules s
   WHERE s.id IN (SELECT x.id FROM jobq.schedules x WHERE x.tenant = _purge_tenant.tenant FOR UPDATE SKIP LOCKED);
  ids := ARRAY(SELECT q.id FROM jobq.queue q WHERE q.tenant = _purge_tenant.tenant ORDER BY q.id DESC);
  LOOP
    in_use := '{}';
    FOREACH job IN ARRAY ids LOOP
      CASE jobq_internal._lock_free_job(job)
        WHEN 'locked' THEN
          DELETE FROM jobq.queue q WHERE q.id = job;
          live := live + 1;
        WHEN 'running' THEN
          running := running || job;
        WHEN 'held' THEN
          in_use := in_use || job;
        ELSE
          NULL;
      END CASE;
    END LOOP;
    EXIT WHEN in_use = '{}';
    IF cardinality(in_use) < cardinality(ids) THEN
      until := clock_timestamp() + interval '1 second';
    END IF;
    EXIT WHEN clock_timestamp() >= until;
    PERFORM pg_sleep(0.01);
    ids := in_use;
  END LOOP;
  SELECT * INTO told FROM jobq_internal._cancel_each(running, 'tenant purged', true);
  -- skip rows locked by a transaction that retries them, and those of a run that it retries
  DELETE FROM jobq.dead_letters d
   WHERE d.ctid IN (SELECT r.ctid FROM jobq.dead_letters r
                     WHERE r.tenant = _purge_tenant.tenant AND r.id <> ALL (left_runs) AND (r.workflow_id <> ALL (left_runs)) IS NOT false
                       FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS dead = ROW_COUNT;
  DELETE FROM jobq.history h
   WHERE (h.tableoid, h.ctid) IN (SELECT r.tableoid, r.ctid FROM jobq.history r
                                   WHERE r.tenant = _purge_tenant.tenant AND r.id <> ALL (left_runs)
                                     AND (r.workflow_id <> ALL (left_runs)) IS NOT false FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS ended = ROW_COUNT;
  PERFORM jobq_internal._forget_runs(held_runs);
  DELETE FROM jobq.events e WHERE e.tenant = _purge_tenant.tenant;
  DELETE FROM jobq.alerts a WHERE a.tenant = _purge_tenant.tenant;
  DELETE FROM jobq.artifacts a WHERE a.tenant = _purge_tenant.tenant;
  PERFORM jobq_internal._notice_held(cardinality(in_use) + told.held
    + (SELECT count(*) FROM jobq.schedules s WHERE s.tenant = _purge_tenant.tenant)
    + (SELECT count(*) FROM jobq.dead_letters d WHERE d.tenant = _purge_tenant.tenant)
    + (SELECT count(*) FROM jobq.history h WHERE h.tenant = _purge_tenant.tenant));
  RETURN live + told.cancelled + dead + ended;
END $$;

-- ---------- jobq-web's bulk actions (src/web/bulk.c) ----------

-- Raises 22023 for another action, 42501 for a tenant of which the caller manages
-- no job type: the filter goes into the audit.
CREATE FUNCTION jobq_internal._check_bulk(caller oid, action text, filter jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF action IS NULL OR action NOT IN ('cancel_jobs', 'retry_dead_letters', 'purge_dead_letters') THEN
    PERFORM jobq_internal._bad('22023', format('argument "action": "%s" is not cancel_jobs, retry_dead_letters or purge_dead_letters',
      regexp_replace(left(action, 63), '[[:cntrl:]]', '?', 'g')));
  ELSIF filter ->> 'tenant' IS NOT NULL
        AND NOT EXISTS (SELECT FROM jobq.job_types t WHERE jobq_internal._manages(caller, nullif(filter ->> 'tenant', ''), t.id)) THEN
    PERFORM jobq_internal._bad('42501', format('permission denied for tenant "%s"', left(filter ->> 'tenant', 63)));
  END IF;
END $$;

-- Each is a row of the audit with its filter and the number of its preview,
-- whose id this returns.
CREATE FUNCTION jobq_internal._bulk_begin(action text, filter jsonb, n bigint, exact boolean) RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal.__bulk_begin(caller oid, action text, filter jsonb, n bigint, exact boolean) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_bulk(caller, action, filter);
  PERFORM jobq_internal._audit(caller, action, filter, NULL, jsonb_build_object('result', n, 'exact', exact));
  RETURN currval('jobq.audit_id_seq');
END $$;

-- A step has the rights that calls for each job have.  A job that can't be
-- changed now stays.  Returns the number of changed jobs; a row of the audit has
-- it, and names the bulk action.
CREATE FUNCTION jobq_internal._bulk_step(bulk bigint, action text, filter jsonb, ids uuid[]) RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal.__bulk_step(caller oid, bulk bigint, action text, filter jsonb, ids uuid[]) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  done bigint;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  PERFORM jobq_internal._check_bulk(caller, action, filter);
  CASE action
    WHEN 'cancel_jobs' THEN
      ids := ARRAY(SELECT i.id FROM unnest(ids) WITH ORDINALITY i(id, place)
                    WHERE jobq_internal._manages_job(caller, i.id) ORDER BY i.place);
      done := (jobq_internal._cancel_each(ids, NULL, coalesce((filter ->> 'include_running')::boolean, false)
                                                     OR coalesce(filter ->> 'status' = 'running', false))).cancelled;
    WHEN 'retry_dead_letters' THEN
      done := jobq_internal._bulk_retry(caller, ids);
    WHEN 'purge_dead_letters' THEN
      ids := jobq_internal._hold_runs_of(ARRAY(
               SELECT d.id FROM jobq.dead_letters d WHERE d.id = ANY (ids) AND jobq_internal._manages(caller, d.tenant, d.type_id)), false);
      ids := ARRAY(SELECT d.id FROM jobq.dead_letters d
                    WHERE d.id = ANY (ids) AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.workflow_id) FOR UPDATE SKIP LOCKED);
      DELETE FROM jobq.dead_letters d WHERE d.id = ANY (ids);
      PERFORM jobq_internal._forget_runs(ids);
      done := cardinality(ids);
  END CASE;
  IF done > 0 THEN
    PERFORM jobq_internal._audit(caller, action, filter, NULL, jsonb_build_object('result', done, 'bulk', bulk));
  END IF;
  RETURN done;
END $$;

CREATE FUNCTION jobq_internal._bulk_retry(caller oid, ids uuid[]) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job uuid;
  retried bigint := 0;
BEGIN
  ids := jobq_internal._hold_runs_of(ARRAY(
           SELECT d.id FROM unnest(ids) WITH ORDINALITY i(id, place), LATERAL (SELECT * FROM jobq.dead_letters o WHERE o.id = i.id OFFSET 0) d
            WHERE jobq_internal._manages(caller, d.tenant, d.type_id) ORDER BY i.place), true);
  FOREACH job IN ARRAY ids LOOP
    -- an earlier one may have taken it along, another session may hold it
    PERFORM FROM jobq.dead_letters d WHERE d.id = job FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    BEGIN
      retried := retried + jobq_internal._retry_job(caller, job, NULL)::int;
    EXCEPTION WHEN object_not_in_prerequisite_state OR unique_violation OR undefined_object OR lock_not_available THEN
      NULL;
    END;
  END LOOP;
  RETURN retried;
END $$;
