
-- Runs of workflows.  A run is a job of a workflow: a row of jobq.queue that
-- says running, until its tasks have ended.  Its tasks are rows with its id in
-- workflow_id; a step without job_type has type_id 0.  The conductor calls the
-- functions below (src/schedule/conductor_runs.c), one transaction each.  They
-- are in PL/pgSQL, which keeps the plans of its queries; SQL functions are
-- planned for each call.  Statistics may say that a large queue is empty; then the
-- planner takes any index, for a join or for an order.  OFFSET 0 prevents that: a
-- set of ids finds its rows one by one, a run its tasks before they are sorted.
--
--  row		status	position	while
--  run		pending	its own		it waits for its turn
--  run		running	its own		its tasks run
--  task	blocked	infinity	its parents, its event, its delay or the pause last
--  task	pending	the run's	it waits for a worker; before it is due its position is that time
--  map		running	infinity	the members of the task run
--
-- The conductor decides by rows that it has locked: a blocked task whose parents
-- have ended, a map and its run, a run that ends.  A call locks the run's row, for
-- update, and then what the conductor may be about to change (_hold_blocked); the
-- retry of a task shares that lock (_hold_run_of).  So one of the two sees what the
-- other has done.  The conductor waits 50 ms for a lock, then it tries again.
--
-- Tasks change their tables while a function runs: what must hold together is
-- read by one statement.

CREATE TABLE jobq.runs (
  id          uuid        NOT NULL PRIMARY KEY,
  type_id     int4        NOT NULL,
  version     int4        NOT NULL,       -- 0: an event or a pause came before the start
  deadline    timestamptz NOT NULL,
  keep_until  timestamptz NOT NULL,       -- all rows of the run expire then
  phase       text        NOT NULL DEFAULT 'running'
              CHECK (phase IN ('running', 'failing', 'cancelling', 'compensating', 'restarting', 'ended')),
  failure     jsonb,                      -- {"code", "message"} of a run that will not complete
  paused      boolean     NOT NULL DEFAULT false,
  paused_reason text,
  added       jsonb       NOT NULL DEFAULT '[]',    -- steps of jobq.add_tasks
  events      jsonb       NOT NULL DEFAULT '{}',    -- sent so far: {name: data}
  compensated boolean     NOT NULL DEFAULT false,   -- such a run is not retried
  again       text[]                      -- restarting: steps without rows, which start with the run
);
CREATE INDEX runs_keep_until ON jobq.runs (keep_until);
CREATE INDEX runs_live ON jobq.runs (id) WHERE phase <> 'ended';  -- lists of running jobs

-- Times at which the conductor acts: deadlines of runs, delays and time limits
-- of tasks.
CREATE TABLE jobq.run_timers (
  due  timestamptz NOT NULL,
  id   uuid        NOT NULL
);
CREATE INDEX run_timers_due ON jobq.run_timers (due);

CREATE INDEX queue_workflow ON jobq.queue (workflow_id, parent_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX dead_letters_workflow ON jobq.dead_letters (workflow_id, parent_id) WHERE workflow_id IS NOT NULL;

SELECT pg_catalog.pg_extension_config_dump('jobq.runs', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.run_timers', '');

-- ---------- primitives ----------

-- Ends a task or a run that this transaction may lock: outcome completed,
-- skipped, cancelled, failed.
CREATE FUNCTION jobq_internal._settle_task(id uuid, outcome text, result jsonb, code text, message text) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_settle_task';
-- Lets a blocked task wait for a worker.
CREATE FUNCTION jobq_internal._release_task(id uuid, payload jsonb, due timestamptz, "position" timestamptz) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_release_task';
-- Makes the conductor apply the end of a parent, if it has ended.
CREATE FUNCTION jobq_internal._look_at_parent(id uuid) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_look_at_parent';
-- True if the role may enqueue jobs of the type for the tenant.
CREATE FUNCTION jobq_internal._may_enqueue(role oid, tenant text, type_id int) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_may_enqueue';
-- Makes the conductor look at a run, or at a task with map.
CREATE FUNCTION jobq_internal._look_again(id uuid) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_look_again';
-- True if the conductor's transaction is to end, with the rest of its work left to
-- others: it has taken 50 ms.
CREATE FUNCTION jobq_internal._turn_is_over() RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_turn_is_over';

-- ---------- steps and data ----------

-- Returns the steps of a run, those of its version and those that were added.
-- An added step has the key "for": the keys of the step whose task has added
-- it, and of those that have added that one.  Steps behind one of them are
-- behind the added step, too.  "reads" is what its paths read (_step_reads).
CREATE FUNCTION jobq_internal._steps_of(r jobq.runs) RETURNS jsonb
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT CASE WHEN r.added = '[]' THEN w.steps ELSE
                 (SELECT jsonb_agg(CASE WHEN b.keys IS NULL THEN e.s ELSE jsonb_set(e.s, '{after}', (e.s -> 'after') || b.keys) END ORDER BY e.n)
                    FROM jsonb_array_elements(w.steps || r.added) WITH ORDINALITY e(s, n),
                         LATERAL (SELECT jsonb_agg(a -> 'key') AS keys FROM jsonb_array_elements(r.added) a
                                   WHERE NOT a -> 'for' ? (e.s ->> 'key')
                                     AND EXISTS (SELECT FROM jsonb_array_elements_text(a -> 'for') f(key)
                                                  WHERE jsonb_typeof(e.s -> 'after') = 'array' AND e.s -> 'after' ? f.key
                                                    AND NOT coalesce(e.s -> 'for' ? f.key, false))) b) END
            FROM jobq.workflows w WHERE w.type_id = r.type_id AND w.version = r.version);
END $$;

-- Raises an error for problems of the steps of a run together.
CREATE FUNCTION jobq_internal._check_run_steps(r jobq.runs) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_workflow_steps((SELECT c.relowner FROM pg_class c WHERE c.oid = 'jobq.queue'::regclass),
            jobq_internal._type_name(r.type_id),
            (SELECT jsonb_agg(s - '{for,reads}'::text[] ORDER BY n) FROM jsonb_array_elements(jobq_internal._steps_of(r)) WITH ORDINALITY e(s, n)), NULL);
END $$;

CREATE FUNCTION jobq_internal._step_of(r jobq.runs, key text) RETURNS jsonb
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT s FROM jsonb_array_elements(jobq_internal._steps_of(r)) s WHERE s ->> 'key' = split_part(_step_of.key, '.', 1) LIMIT 1);
END $$;

-- Returns the rows of a run's own tasks, ended or not; of mapped steps the one
-- of the step.
CREATE FUNCTION jobq_internal._tasks_of(run uuid)
  RETURNS TABLE(task_key text, id uuid, status jobq.job_status, result jsonb, error_msg text, error_code text, completed_at timestamptz)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY
  SELECT q.task_key, q.id, q.status, NULL::jsonb, q.error_msg, q.error_code, NULL::timestamptz
    FROM jobq.queue q WHERE q.workflow_id = run AND q.parent_id = run
   UNION ALL
  SELECT d.task_key, d.id, d.status, d.result, d.error_msg, d.error_code, d.completed_at
    FROM jobq.dead_letters d WHERE d.workflow_id = run AND d.parent_id = run
   UNION ALL
  SELECT h.task_key, h.id, h.status, h.result, h.error_msg, h.error_code, h.completed_at
    FROM jobq.history h WHERE h.workflow_id = run AND h.parent_id = run;
END $$;

-- Returns the artifacts of a step's task, or of the tasks of its map in their
-- order: those of the last attempt of each, with the arguments of
-- jobq.record_artifact.
CREATE FUNCTION jobq_internal._artifacts_of(run uuid, key text) RETURNS jsonb
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(jsonb_agg(jsonb_build_object('key', a.key, 'kind', a.kind, 'bucket', a.bucket, 'size_bytes', a.size_bytes,
                                               'content_type', a.content_type, 'checksum', a.checksum, 'data', a.data)
                            ORDER BY nullif(split_part(a.task_key, '.', 2), '')::int, a.id), '[]')
    FROM (SELECT h.id, h.task_key, h.attempts, h.runs, h.started_at FROM jobq.history h WHERE h.workflow_id = run
           UNION ALL
          SELECT d.id, d.task_key, d.attempts, d.runs, d.started_at FROM jobq.dead_letters d WHERE d.workflow_id = run) t
    -- after a retry or a snooze an earlier attempt may have had the number, and only the time tells
    JOIN jobq.artifacts a ON a.job_id = t.id AND a.attempt = t.attempts AND (t.runs = t.attempts OR a.created_at >= t.started_at)
   WHERE a.workflow_id = run AND (t.task_key = _artifacts_of.key OR t.task_key ~ ('^' || _artifacts_of.key || '[.][0-9]+$'))
$$;

-- Returns the keys of all steps that a step waits for, however indirectly.
CREATE FUNCTION jobq_internal._steps_before(steps jsonb, key text) RETURNS text[]
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE edge AS MATERIALIZED (
    SELECT s ->> 'key' AS child, a.key AS parent
      FROM jsonb_array_elements(steps) s,
           LATERAL jsonb_array_elements_text(CASE jsonb_typeof(s -> 'after') WHEN 'array' THEN s -> 'after' ELSE '[]' END) a(key)),
  before AS (
    SELECT e.parent FROM edge e WHERE e.child = _steps_before.key
     UNION
    SELECT e.parent FROM before b JOIN edge e ON e.child = b.parent)
  SELECT coalesce(array_agg(b.parent), '{}') FROM before b
$$;

-- Returns the data that paths of a step, of the members of its map, or of the
-- output (''), read; of tasks those that they name (_step_reads), or all before the
-- step and its own.  Each member has a copy: it is without the input, which often
-- holds the array of the map, if the payload does not name it.
CREATE FUNCTION jobq_internal._context(r jobq.runs, key text, of_members boolean DEFAULT false) RETURNS jsonb
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  reads jsonb := coalesce((SELECT w.reads -> key FROM jobq.workflows w WHERE w.type_id = r.type_id AND w.version = r.version),
                          (SELECT a -> 'reads' FROM jsonb_array_elements(r.added) a WHERE a ->> 'key' = _context.key));
  named text[];  -- NULL: all
  tasks jsonb := '{}';
  with_input boolean := true;
BEGIN
  IF of_members THEN
    reads := reads -> 'payload';
    with_input := coalesce(reads ? 'all' OR (jobq_internal._step_of(r, key) -> 'payload')::text ~ E'input|\\\\', true);  -- or by an escape
  END IF;
  IF NOT reads ? 'all' THEN
    named := ARRAY(SELECT jsonb_array_elements_text(reads -> 'tasks'));
  ELSIF key <> '' THEN
    named := jobq_internal._steps_before(jobq_internal._steps_of(r), key) || key;
  END IF;
  IF named IS DISTINCT FROM '{}' THEN
    SELECT coalesce(jsonb_object_agg(t.task_key,
                      jsonb_build_object('status', t.status, 'result', t.result, 'error', t.error_msg)
                      || CASE WHEN reads ? 'artifacts' THEN jsonb_build_object('artifacts', jobq_internal._artifacts_of(r.id, t.task_key))
                              ELSE '{}' END), '{}')
      INTO tasks FROM jobq_internal._tasks_of(r.id) t
     WHERE t.status NOT IN ('pending', 'blocked', 'retry', 'running') AND (named IS NULL OR t.task_key = ANY (named));
  END IF;
  RETURN (SELECT CASE WHEN with_input THEN jsonb_build_object('input', q.payload) ELSE '{}' END || jsonb_build_object(
                   'run', jsonb_build_object('id', q.id, 'workflow', jobq_internal._type_name(r.type_id), 'version', r.version,
                                             'created_at', q.created_at, 'tenant', q.tenant, 'metadata', q.metadata),
                   'tasks', tasks)
            FROM jobq.queue q WHERE q.id = r.id);
END $$;

-- ---------- the start ----------

-- True if quotas count jobs of the tenant.
CREATE FUNCTION jobq_internal._has_quotas(tenant text) RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN tenant IS NOT NULL AND EXISTS (SELECT FROM jobq.tenant_quotas t
                                         WHERE _has_quotas.tenant = t.tenant OR starts_with(_has_quotas.tenant, t.tenant || '/'));
END $$;

-- Admits tasks that this transaction has put into the queue: 53400 when they
-- exceed a quota of their tenant.
CREATE FUNCTION jobq_internal._admit_tasks(tenant text, ids uuid[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF jobq_internal._has_quotas(tenant) THEN
    PERFORM jobq_internal._admit(i) FROM unnest(ids) i;
  END IF;
END $$;

-- Raises 54000 if a task of that type would be deeper than its type allows.
CREATE FUNCTION jobq_internal._check_depth(depth int, job_types text[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
BEGIN
  SELECT j.name, coalesce((j.options ->> 'max_depth')::int, 50) AS allowed INTO t FROM jobq.job_types j
   WHERE j.name = ANY (job_types) AND j.dropped_at IS NULL AND coalesce((j.options ->> 'max_depth')::int, 50) < depth LIMIT 1;
  IF FOUND THEN
    PERFORM jobq_internal._bad('54000', format('task would have depth %s, job type "%s" allows %s', depth, t.name, t.allowed),
      'Jobs that enqueue jobs that enqueue jobs: see options.max_depth.');
  END IF;
END $$;

-- Writes that tasks were stored, and what they wait for.
CREATE FUNCTION jobq_internal._tell_of_tasks(ids uuid[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM jobq.job_types t WHERE t.options ->> 'events' = 'all') THEN
    PERFORM jobq_internal._tell(q.id, q.type_id, q.tenant, 0, e.type, NULL, e.data)
       FROM unnest(ids) WITH ORDINALITY i(id, n), LATERAL (SELECT * FROM jobq.queue o WHERE o.id = i.id OFFSET 0) q,
            LATERAL (VALUES ('enqueued', jsonb_build_object('priority', q.priority, 'scheduled_for', q.scheduled_for, 'parent_id', q.parent_id)),
                            ('blocked', jsonb_build_object('after', cardinality(q.after), 'after_rule', q.after_rule))) e(type, data)
      WHERE e.type = 'enqueued' OR q.waiting_for > 0
      ORDER BY i.n, e.type DESC;
  END IF;
END $$;

-- Inserts the tasks of these keys, blocked, with their edges; a parent that is
-- not among them has a row already.  Returns the ids of those that wait for none.
CREATE FUNCTION jobq_internal._add_steps(r jobq.runs, steps jsonb, keys text[]) RETURNS uuid[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  run jobq.queue;
  roots uuid[];
  added uuid[];
  unknown text;
BEGIN
  SELECT * INTO run FROM jobq.queue q WHERE q.id = r.id;
  SELECT s ->> 'job_type' INTO unknown FROM jsonb_array_elements(steps) s
   WHERE s ->> 'job_type' IS NOT NULL AND (s ->> 'key') = ANY (keys)
     AND NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = s ->> 'job_type' AND t.dropped_at IS NULL) LIMIT 1;
  IF unknown IS NOT NULL THEN
    PERFORM jobq_internal._bad_name('job type', unknown);
  END IF;
  PERFORM jobq_internal._check_depth(run.depth + 1, ARRAY(SELECT s ->> 'job_type' FROM jsonb_array_elements(steps) s
                                                           WHERE (s ->> 'key') = ANY (keys)));
  WITH ended AS MATERIALIZED (
    SELECT t.task_key, t.id, t.status FROM jobq_internal._tasks_of(r.id) t
     WHERE NOT (SELECT keys @> jobq_internal._parents_of(steps, keys))),  -- else all parents are new
  step AS MATERIALIZED (
    SELECT e.s, e.n, e.s ->> 'key' AS key, jobq_internal._new_id() AS id, t.id AS type_id,
           coalesce((e.s ->> 'priority')::int, t.base_priority, run.priority) AS priority,
           coalesce((e.s ->> 'max_attempts')::int, t.max_attempts, 1) AS max_attempts
      FROM jsonb_array_elements(steps) WITH ORDINALITY e(s, n)
      LEFT JOIN jobq.job_types t ON t.name = e.s ->> 'job_type' AND t.dropped_at IS NULL
     WHERE (e.s ->> 'key') = ANY (keys)),
  edge AS MATERIALIZED (
    SELECT c.id AS child, c.s ->> 'rule' AS rule, coalesce(p.id, o.id) AS parent, o.status,
           p.id IS NOT NULL OR coalesce(o.status IN ('pending', 'blocked', 'retry', 'running'), false) AS waits
      FROM step c, LATERAL jsonb_array_elements_text(CASE jsonb_typeof(c.s -> 'after') WHEN 'array' THEN c.s -> 'after' ELSE '[]' END) a(key)
      LEFT JOIN step p ON p.key = a.key
      LEFT JOIN ended o ON o.task_key = a.key),
  waiting AS MATERIALIZED (
    -- a parent that has ended may decide alone, as for a task whose other parents end later
    SELECT p.child, p.parents, p.state,
           CASE WHEN p.state & CASE p.rule WHEN 'any' THEN 1 WHEN 'failed' THEN 2 ELSE 0 END > 0 THEN 0 ELSE p.n END AS n
      FROM (SELECT e.child, min(e.rule) AS rule, array_agg(e.parent ORDER BY e.parent) AS parents, count(*) FILTER (WHERE e.waits) AS n,
                   coalesce(bit_or(CASE e.status WHEN 'completed' THEN 1 WHEN 'error' THEN 2 WHEN 'cancelled' THEN 2 ELSE 0 END), 0) AS state
              FROM edge e WHERE e.parent IS NOT NULL GROUP BY e.child) p),
  task AS (
    INSERT INTO jobq.queue (id, position, scheduled_for, type_id, home_id, status, max_attempts, depth, priority, sublane,
                            payload, timeout, backoff, concurrency_key, tenant, parent_id, workflow_id, task_key,
                            enqueued_by, after, after_rule, waiting_for, after_state, keep_until)
    SELECT s.id, 'infinity', run.position, coalesce(s.type_id, 0), run.home_id, 'blocked',
           s.max_attempts, run.depth + 1, s.priority, coalesce(jobq_internal._sublane(s.type_id, run.tenant), 0::int2),
           '{}', (s.s ->> 'timeout')::interval, s.s -> 'backoff', s.s ->> 'concurrency_key', run.tenant, run.id, run.id, s.key,
           run.enqueued_by, w.parents, CASE WHEN w.parents IS NOT NULL THEN coalesce(s.s ->> 'rule', 'success') END,
           coalesce(w.n, 0), coalesce(w.state, 0), r.keep_until
      FROM step s LEFT JOIN waiting w ON w.child = s.id),
  dependency AS (
    INSERT INTO jobq.dependencies (parent_id, child_id)
    SELECT e.parent, e.child FROM edge e WHERE e.waits AND e.child <> ALL (ARRAY(SELECT w.child FROM waiting w WHERE w.n = 0)))
  SELECT array_agg(s.id ORDER BY s.n) FILTER (WHERE coalesce(w.n, 0) = 0), array_agg(s.id) INTO roots, added
    FROM step s LEFT JOIN waiting w ON w.child = s.id;
  PERFORM jobq_internal._admit_tasks(run.tenant, added), jobq_internal._tell_of_tasks(added);
  RETURN coalesce(roots, '{}');
END $$;

CREATE FUNCTION jobq_internal._keys_of(steps jsonb) RETURNS text[]
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT coalesce(array_agg(s ->> 'key'), '{}') FROM jsonb_array_elements(steps) s);
END $$;

-- Returns the keys of the steps that steps of these keys wait for.
CREATE FUNCTION jobq_internal._parents_of(steps jsonb, keys text[]) RETURNS text[]
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT coalesce(array_agg(DISTINCT a.key), '{}')
            FROM jsonb_array_elements(steps) s,
                 LATERAL jsonb_array_elements_text(CASE jsonb_typeof(s -> 'after') WHEN 'array' THEN s -> 'after' ELSE '[]' END) a(key)
           WHERE s ->> 'key' = ANY (keys));
END $$;

-- Ends those of new tasks whose parents had all ended before, in a former life
-- of the run, otherwise than the rule wants; returns the others.
CREATE FUNCTION jobq_internal._with_met_rules(tasks uuid[]) RETURNS uuid[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  q jobq.queue;
  met uuid[] := '{}';
BEGIN
  FOR q IN SELECT j.* FROM unnest(tasks) WITH ORDINALITY t(id, n), LATERAL (SELECT * FROM jobq.queue o WHERE o.id = t.id OFFSET 0) j ORDER BY t.n LOOP
    IF q.after IS NULL OR q.after_rule = 'done' OR (q.after_state & CASE q.after_rule WHEN 'failed' THEN 2 ELSE 1 END) <> 0 THEN
      met := met || q.id;
    ELSE
      PERFORM jobq_internal._settle_task(q.id, 'skipped', NULL, 'dependency', 'no job that it waits for has ended as after_rule wants');
    END IF;
  END LOOP;
  RETURN met;
END $$;

-- Keeps rows of an ended or restarted run, and of the runs among its tasks, until
-- that time at least: ended tasks and artifacts, which move to other partitions.
CREATE FUNCTION jobq_internal._keep_rows(run uuid, until timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  family uuid[];
BEGIN
  WITH RECURSIVE member(id) AS (
    SELECT run
     UNION
    SELECT t.id FROM member f,
           LATERAL (SELECT h.id FROM jobq.history h WHERE h.workflow_id = f.id
                     UNION ALL SELECT d.id FROM jobq.dead_letters d WHERE d.workflow_id = f.id) t
     WHERE EXISTS (SELECT FROM jobq.runs n WHERE n.id = t.id))
  SELECT array_agg(f.id) INTO family FROM member f;
  UPDATE jobq.history h SET expires_at = until WHERE h.workflow_id = ANY (family) AND h.expires_at < until;
  UPDATE jobq.dead_letters d SET expires_at = until WHERE d.workflow_id = ANY (family) AND d.expires_at < until;
  UPDATE jobq.artifacts a SET expires_at = until WHERE a.workflow_id = ANY (family) AND a.expires_at < until;
  UPDATE jobq.runs r SET keep_until = until WHERE r.id = ANY (family) AND r.keep_until < until;
END $$;

-- Instantiates the steps of a run whose row says running.  A run that is a task
-- of a paused run is paused, too (the pause holds its row's lock), unless that ends:
-- nothing would resume it.
CREATE FUNCTION jobq_internal._start_run(run uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  q jobq.queue;
  t jobq.job_types;
  r jobq.runs;
  steps jsonb;
  keys text[];
  new_tasks uuid[];
  new_deadline timestamptz;
  new_keep_until timestamptz;
  outer_run jobq.runs;
BEGIN
  SELECT * INTO q FROM jobq.queue j WHERE j.id = run;
  IF q.workflow_id IS NOT NULL THEN
    SELECT * INTO outer_run FROM jobq.runs j WHERE j.id = q.workflow_id FOR KEY SHARE;
  END IF;
  SELECT * INTO t FROM jobq.job_types j WHERE j.id = q.type_id;
  SELECT * INTO r FROM jobq.runs j WHERE j.id = run FOR UPDATE;  -- jobq.retry_workflow may give it another version
  new_deadline := q.started_at + coalesce(nullif(q.timeout, '0'), t.timeout);
  -- a step of another run is kept with that
  new_keep_until := coalesce(CASE WHEN q.workflow_id IS NOT NULL THEN q.keep_until END,
                             new_deadline + greatest(coalesce(q.keep_completed, t.keep_completed), interval '0'));
  IF r.id IS NULL OR r.version = 0 THEN
    r.id := run;
    r.type_id := q.type_id;
    SELECT w.version INTO r.version FROM jobq.workflows w WHERE w.type_id = q.type_id AND w.is_active;
    IF r.version IS NULL THEN
      RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('workflow "%s" has no active version', t.name);
    END IF;
    r.deadline := new_deadline;
    r.keep_until := new_keep_until;
    INSERT INTO jobq.runs (id, type_id, version, deadline, keep_until)
    VALUES (r.id, r.type_id, r.version, r.deadline, r.keep_until)
    ON CONFLICT ON CONSTRAINT runs_pkey DO UPDATE SET version = r.version, deadline = r.deadline, keep_until = r.keep_until;
    SELECT * INTO r FROM jobq.runs j WHERE j.id = run;
    steps := jobq_internal._steps_of(r);
    keys := jobq_internal._keys_of(steps);
  ELSE
    keys := r.again;
    PERFORM jobq_internal._check_results(r, keys, '{}'), jobq_internal._keep_rows(run, new_keep_until);
    UPDATE jobq.runs j SET phase = 'running', failure = NULL, deadline = new_deadline, again = NULL
     WHERE j.id = run RETURNING * INTO r;
    steps := jobq_internal._steps_of(r);
  END IF;
  UPDATE jobq.runs j SET paused = true, paused_reason = outer_run.paused_reason WHERE j.id = run AND NOT j.paused AND outer_run.paused AND outer_run.phase = 'running';
  UPDATE jobq.queue j SET keep_until = r.keep_until WHERE j.id = run;
  INSERT INTO jobq.run_timers (due, id) VALUES (r.deadline, run);
  PERFORM jobq_internal._run_event(run, 'run_started', jsonb_build_object('version', r.version));
  new_tasks := jobq_internal._add_steps(r, steps, keys);
  IF q.runs > 1 THEN  -- members that a former life has completed are those of the new map
    UPDATE jobq.history h SET parent_id = m.id FROM jobq.queue m
     WHERE h.workflow_id = run AND h.parent_id <> run AND m.workflow_id = run AND m.parent_id = run AND m.task_key = split_part(h.task_key, '.', 1);
  END IF;
  PERFORM jobq_internal._ready(jobq_internal._with_met_rules(new_tasks)), jobq_internal._look_again(run);
END $$;

CREATE FUNCTION jobq_internal._run_event(run uuid, type text, data jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._tell(q.id, q.type_id, q.tenant, q.attempts, _run_event.type, NULL, data)
     FROM jobq.queue q WHERE q.id = run;
END $$;

-- ---------- a task whose parents have ended ----------

-- Raises 42501 unless the definer of the run's version may enqueue the type
-- for the run's tenant.
CREATE FUNCTION jobq_internal._check_definer(r jobq.runs, type_id int, tenant text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  w jobq.workflows;
BEGIN
  SELECT * INTO w FROM jobq.workflows o WHERE o.type_id = r.type_id AND o.version = r.version;
  IF NOT jobq_internal._may_enqueue(w.definer_oid, tenant, type_id) THEN
    RAISE EXCEPTION USING ERRCODE = '42501',
      MESSAGE = format('the definer "%s" of the workflow may not enqueue job type "%s"', w.created_by, jobq_internal._type_name(type_id));
  END IF;
END $$;

-- Makes a task wait for what after_state says: 4 its event, 8 its delay, 16 and
-- 32 the end of a pause.  Its parents have decided: the others no longer count.
CREATE FUNCTION jobq_internal._park(q jobq.queue, state int, begun timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE jobq.queue j SET status = 'blocked', position = 'infinity', waiting_for = 0, after_state = state,
         started_at = coalesce(begun, j.started_at)
   WHERE j.id = q.id;
  DELETE FROM jobq.dependencies d WHERE d.parent_id = ANY (q.after) AND d.child_id = q.id;
END $$;

-- Counts the payload that a task has got for the quotas of its tenant.
CREATE FUNCTION jobq_internal._count_task(q jobq.queue) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF jobq_internal._has_quotas(q.tenant) THEN
    PERFORM jobq_internal._count_for_quotas(ARRAY[q.id]);
  END IF;
END $$;

-- Returns the number of elements of the other maps of a run, as far as these have
-- begun.
CREATE FUNCTION jobq_internal._elements_of_others(r jobq.runs, key text) RETURNS bigint
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM jsonb_array_elements(jobq_internal._steps_of(r)) s WHERE s ->> 'map' IS NOT NULL AND s ->> 'key' <> key) THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM (SELECT q.task_key FROM jobq.queue q WHERE q.workflow_id = r.id AND q.parent_id <> r.id
                                 UNION ALL
                                SELECT d.task_key FROM jobq.dead_letters d WHERE d.workflow_id = r.id AND d.parent_id <> r.id
                                 UNION ALL
                                SELECT h.task_key FROM jobq.history h WHERE h.workflow_id = r.id AND h.parent_id <> r.id) m
           WHERE split_part(m.task_key, '.', 1) <> key)
       + (SELECT coalesce(sum(jsonb_array_length(q.payload) - q.waiting_for), 0)  -- without a row yet
            FROM jobq.queue q WHERE q.workflow_id = r.id AND q.parent_id = r.id AND q.status = 'running' AND q.position = 'infinity');
END $$;

-- Decides about one task: q is its locked row.
CREATE FUNCTION jobq_internal._ready_task(q jobq.queue, r jobq.runs) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  step jsonb := jobq_internal._step_of(r, q.task_key);
  context jsonb := jobq_internal._context(r, q.task_key);
  now timestamptz := clock_timestamp();
  items jsonb;
  others bigint;
BEGIN
  IF step IS NULL THEN
    PERFORM jobq_internal._settle_task(q.id, 'cancelled', NULL, 'dependency', 'its step is gone');
  ELSIF step ->> 'if' IS NOT NULL AND NOT jobq_internal._test(step ->> 'if', context) THEN
    PERFORM jobq_internal._settle_task(q.id, 'skipped', NULL, NULL, 'its condition is false');
  ELSIF step ->> 'event' IS NOT NULL AND r.events ? (step ->> 'event') THEN
    PERFORM jobq_internal._settle_task(q.id, 'completed', nullif(r.events -> (step ->> 'event'), 'null'), NULL, NULL);
  ELSIF step ->> 'event' IS NOT NULL THEN
    PERFORM jobq_internal._park(q, 4, now);
    IF q.timeout > interval '0' THEN
      INSERT INTO jobq.run_timers (due, id) VALUES (now + q.timeout, q.id);
    END IF;
  ELSIF step ->> 'job_type' IS NULL AND step ->> 'delay' IS NOT NULL THEN
    PERFORM jobq_internal._park(q, 8, now);
    INSERT INTO jobq.run_timers (due, id) VALUES (now + (step ->> 'delay')::interval, q.id);
  ELSIF step ->> 'job_type' IS NULL THEN
    PERFORM jobq_internal._settle_task(q.id, 'completed', NULL, NULL, NULL);
  ELSIF step ->> 'map' IS NOT NULL THEN
    items := jobq_internal._items(step ->> 'map', context);
    others := jobq_internal._elements_of_others(r, q.task_key);
    IF jsonb_array_length(items) + others > current_setting('jobq.max_tasks')::int THEN
      RAISE EXCEPTION USING ERRCODE = '54000',
        MESSAGE = format('"map": %s elements%s are more than jobq.max_tasks', jsonb_array_length(items),
                         CASE WHEN others > 0 THEN format(' and %s of other maps of the run', others) ELSE '' END);
    END IF;
    IF step -> 'for' IS NULL THEN  -- else jobq.add_tasks has checked its caller
      PERFORM jobq_internal._check_definer(r, q.type_id, q.tenant);
    END IF;
    UPDATE jobq.queue j SET status = 'running', waiting_for = 0, payload = items, started_at = now WHERE j.id = q.id;
    PERFORM jobq_internal._count_task(q), jobq_internal._look_again(q.id);
  ELSE
    IF step -> 'for' IS NULL THEN
      PERFORM jobq_internal._check_definer(r, q.type_id, q.tenant);
    END IF;
    items := jobq_internal._fill(coalesce(step -> 'payload', '{}'), context);
    PERFORM jobq_internal._check_payload(q.type_id, items),
            jobq_internal._release_task(q.id, items, CASE WHEN step ->> 'delay' IS NULL THEN now ELSE now + (step ->> 'delay')::interval END,
                                        q.scheduled_for);
    PERFORM jobq_internal._count_task(q);
    IF step ->> 'delay' IS NOT NULL THEN
      PERFORM jobq_internal._look_again(q.id);  -- which keeps its place
    END IF;
  END IF;
END $$;

-- The same for many.  One whose data are bad, or that may not run, is a dead
-- letter at once.  While the run is paused they wait; a run that fails starts
-- only tasks of the rules done and failed.  When the turn is over the others wait
-- for another look at their run (_look_at_ready).
CREATE FUNCTION jobq_internal._ready(tasks uuid[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  q jobq.queue;
  r jobq.runs;
  begun boolean := false;
  left_run uuid;
BEGIN
  FOR q IN SELECT j.* FROM unnest(tasks) WITH ORDINALITY t(id, n),
                          LATERAL (SELECT * FROM jobq.queue o WHERE o.id = t.id AND o.status = 'blocked' OFFSET 0) j ORDER BY t.n LOOP
    IF begun AND jobq_internal._turn_is_over() THEN
      IF q.workflow_id IS DISTINCT FROM left_run THEN
        PERFORM jobq_internal._look_again(q.workflow_id);
      END IF;
      left_run := q.workflow_id;
      CONTINUE;
    END IF;
    begun := true;
    IF r.id IS DISTINCT FROM q.workflow_id THEN
      SELECT * INTO r FROM jobq.runs j WHERE j.id = q.workflow_id;
    END IF;
    IF r.paused AND r.phase = 'running' THEN
      PERFORM jobq_internal._park(q, 16, NULL);
    ELSIF q.task_key LIKE '%.undo' AND r.phase = 'compensating' THEN
      BEGIN
        IF jobq_internal._step_of(r, q.task_key) -> 'for' IS NULL THEN  -- else jobq.add_tasks has checked its caller
          PERFORM jobq_internal._check_definer(r, q.type_id, q.tenant);
        END IF;
        PERFORM jobq_internal._release_task(q.id, q.payload, clock_timestamp(), q.scheduled_for);
      EXCEPTION WHEN insufficient_privilege THEN
        PERFORM jobq_internal._settle_task(q.id, 'failed', NULL, SQLSTATE, SQLERRM);
      END;
    ELSIF r.phase = 'running' OR (r.phase = 'failing' AND q.after_rule IN ('done', 'failed')) THEN
      BEGIN
        PERFORM jobq_internal._ready_task(q, r);
      EXCEPTION
        -- a lock, a full disk, a shutdown are no fault of the task: the conductor tries again
        WHEN lock_not_available OR transaction_rollback OR insufficient_resources OR operator_intervention OR system_error THEN
          RAISE;
        WHEN OTHERS THEN
          PERFORM jobq_internal._settle_task(q.id, 'failed', NULL, CASE SQLSTATE WHEN 'JQ004' THEN 'bad_input' ELSE SQLSTATE END, SQLERRM);
      END;
    ELSE
      PERFORM jobq_internal._settle_task(q.id, 'cancelled', NULL, 'dependency', 'its run ends');
    END IF;
  END LOOP;
END $$;

-- Starts tasks of a run whose parents have ended in a turn that was over.
CREATE FUNCTION jobq_internal._look_at_ready(run uuid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  seen uuid[] := ARRAY(
    SELECT t.id FROM (SELECT q.id FROM jobq.queue q
                       WHERE q.workflow_id = run AND q.parent_id = run AND q.status = 'blocked' AND q.waiting_for = 0
                         AND q.after_state < 4 OFFSET 0) t ORDER BY t.id LIMIT 100);
  -- one that changes meanwhile is left out
  tasks uuid[] := ARRAY(
    SELECT l.id
      FROM unnest(seen) i(id),
           LATERAL (SELECT o.id FROM jobq.queue o
                     WHERE o.id = i.id AND o.status = 'blocked' AND o.waiting_for = 0 AND o.after_state < 4 OFFSET 0 FOR UPDATE) l);
BEGIN
  IF tasks <> '{}' THEN
    PERFORM jobq_internal._ready(tasks);
  END IF;
  IF cardinality(seen) = 100 THEN
    PERFORM jobq_internal._look_again(run);
  END IF;
END $$;

-- True if a run goes on after that dead task: its step says so, or the workflow,
-- or the version has no such step.
CREATE FUNCTION jobq_internal._continues(r jobq.runs, key text) RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  step jsonb := jobq_internal._step_of(r, key);
BEGIN
  RETURN step IS NULL OR (SELECT coalesce(step ->> 'on_failure', w.on_failure) = 'continue'
                            FROM jobq.workflows w WHERE w.type_id = r.type_id AND w.version = r.version);
END $$;

CREATE FUNCTION jobq_internal._task_continues(task uuid) RETURNS boolean
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT jobq_internal._continues(r, d.task_key) FROM jobq.dead_letters d JOIN jobq.runs r ON r.id = d.workflow_id
                    WHERE d.id = task), false)
$$;

-- ---------- maps ----------

-- Inserts members of a mapped task, of the elements with these numbers, or of the
-- first ones of them when the turn is over, so many at least.
CREATE FUNCTION jobq_internal._insert_members(q jobq.queue, r jobq.runs, step jsonb, context jsonb, numbers int[], sure int) RETURNS SETOF uuid
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  first int := numbers[1];
  now timestamptz := clock_timestamp();  -- before the run's position: the clock was set back
BEGIN
  RETURN QUERY
  INSERT INTO jobq.queue AS j (id, position, scheduled_for, type_id, home_id, status, max_attempts, depth, priority, sublane,
                               payload, timeout, backoff, concurrency_key, tenant, parent_id, workflow_id, task_key,
                               enqueued_by, keep_until)
  -- the run's position; a microsecond apart, so that the scan of a lane goes on behind those
  -- that have ended
  SELECT jobq_internal._new_id(), least(q.scheduled_for, now) + i * interval '1 microsecond', clock_timestamp(), q.type_id, q.home_id, 'pending',
         q.max_attempts, q.depth, q.priority, q.sublane,
         CASE WHEN step -> 'payload' IS NULL THEN e.item
              ELSE jobq_internal._fill(step -> 'payload', context || jsonb_build_object('item', e.item, 'index', i)) END,
         q.timeout, q.backoff, q.concurrency_key, q.tenant, q.id, r.id, q.task_key || '.' || i, q.enqueued_by, q.keep_until
    -- the array is read once, not for each element
    FROM jsonb_array_elements(jsonb_path_query_array(q.payload, '$[$from to $to]',
                                jsonb_build_object('from', first, 'to', numbers[cardinality(numbers)]))) WITH ORDINALITY e(item, n),
         LATERAL (SELECT first + e.n::int - 1) o(i)
   WHERE i = ANY (numbers) AND (i = ANY (numbers[1:sure]) OR NOT jobq_internal._turn_is_over())
  RETURNING j.id;
END $$;

-- Adds up to so many members of a mapped task, fewer if the turn is over, or if a
-- quota of the tenant admits no more and one of the others will end: place is the
-- number of the first element that is left.  Elements whose members a former life of the run has
-- completed have no new one.
CREATE FUNCTION jobq_internal._add_members(q jobq.queue, r jobq.runs, step jsonb, room int, live int, OUT place int, OUT added int)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  n int := jsonb_array_length(q.payload);
  context jsonb := jobq_internal._context(r, q.task_key, true);
  done int[] := '{}';
  sure int := 1;  -- so many are added though the turn is over
  numbers int[];
  ids uuid[];
  i int;
  id uuid;
BEGIN
  IF (SELECT run.runs > 1 FROM jobq.queue run WHERE run.id = r.id) THEN
    done := ARRAY(SELECT split_part(m.task_key, '.', 2)::int FROM jobq.history m
                   WHERE m.workflow_id = r.id AND m.parent_id = q.id AND m.status IN ('completed', 'skipped'));
    sure := 100;  -- each turn reads all that are done, which may take all of its time
  END IF;
  numbers := ARRAY(SELECT generate_series(q.waiting_for, least(n, q.waiting_for + room + cardinality(done)) - 1)
                   EXCEPT SELECT unnest(done) ORDER BY 1 LIMIT room);
  added := cardinality(numbers);
  place := CASE WHEN added < room THEN n ELSE numbers[room] + 1 END;
  IF added = 0 THEN
    RETURN;
  ELSIF NOT jobq_internal._has_quotas(q.tenant) THEN
    ids := ARRAY(SELECT jobq_internal._insert_members(q, r, step, context, numbers, sure));
    added := cardinality(ids);
    PERFORM jobq_internal._tell_of_tasks(ids);
    place := coalesce(numbers[added + 1], place);
    RETURN;
  END IF;
  added := 0;
  FOREACH i IN ARRAY numbers LOOP
    IF added >= sure AND jobq_internal._turn_is_over() THEN
      place := i;
      RETURN;
    END IF;
    BEGIN
      id := jobq_internal._insert_members(q, r, step, context, ARRAY[i], 1);
      PERFORM jobq_internal._admit(id), jobq_internal._tell_of_tasks(ARRAY[id]);
      added := added + 1;
    EXCEPTION WHEN configuration_limit_exceeded THEN
      IF added = 0 AND live = 0 THEN
        RAISE;  -- the conductor tries again
      END IF;
      place := i;
      RETURN;
    END;
  END LOOP;
END $$;

-- Adds members of a mapped task up to its window; ends it with the last one.
-- payload is the array, waiting_for the number of members so far.  When its run
-- ends it is cancelled if members are missing or were cancelled, so that a retry
-- of the run takes it again.
CREATE FUNCTION jobq_internal._look_at_map(q jobq.queue, r jobq.runs) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  step jsonb := jobq_internal._step_of(r, q.task_key);
  most int := (step ->> 'max_parallel')::int;
  live int := (SELECT count(*) FROM (SELECT FROM jobq.queue m WHERE m.workflow_id = r.id AND m.parent_id = q.id
                                      LIMIT coalesce(most, 1)) x);
  n int;
  room int;
  failed record;
  place int;
  added int;
  ends boolean := r.phase <> 'running' AND NOT (r.phase = 'failing' AND coalesce(q.after_rule, 'success') IN ('done', 'failed'));
BEGIN
  IF most - live < most / 8 AND pg_column_size(q.payload) > 65536 THEN
    RETURN;  -- a later end adds members, several at once: each time the whole array is read
  END IF;
  n := jsonb_array_length(q.payload);
  room := least(n - q.waiting_for, coalesce(most - live, 1000), 1000);
  IF ends OR r.paused OR q.cancel_requested THEN
    room := 0;
  END IF;
  IF room > 0 THEN
    IF step -> 'for' IS NULL THEN  -- else jobq.add_tasks has checked its caller
      PERFORM jobq_internal._check_definer(r, q.type_id, q.tenant);
    END IF;
    SELECT m.place, m.added INTO place, added FROM jobq_internal._add_members(q, r, step, room, live) m;
    UPDATE jobq.queue j SET waiting_for = place WHERE j.id = q.id;
    -- the last ones may have been kept from a former life; one transaction adds 1,000
    IF (added = 0 AND live = 0) OR (added = room AND place < n AND (most IS NULL OR live + added < most))
       OR (added < room AND place < n AND jobq_internal._turn_is_over()) THEN
      PERFORM jobq_internal._look_again(q.id);
    END IF;
  ELSIF live = 0 AND q.error_code IS NOT NULL THEN
    PERFORM jobq_internal._settle_task(q.id, 'failed', NULL, q.error_code, q.error_msg);
  ELSIF live = 0 AND q.cancel_requested THEN
    PERFORM jobq_internal._settle_task(q.id, 'cancelled', NULL, NULL, q.error_msg);
  ELSIF live = 0 AND (q.waiting_for >= n OR ends) THEN
    SELECT count(*) AS n, min(d.error_msg) AS message INTO failed FROM jobq.dead_letters d WHERE d.workflow_id = r.id AND d.parent_id = q.id;
    IF ends AND (q.waiting_for < n OR EXISTS (SELECT FROM jobq.history m WHERE m.workflow_id = r.id AND m.parent_id = q.id AND m.status = 'cancelled')) THEN
      PERFORM jobq_internal._settle_task(q.id, 'cancelled', NULL, 'dependency', 'its run ends');
    ELSIF failed.n > 0 AND NOT jobq_internal._continues(r, q.task_key) THEN
      PERFORM jobq_internal._settle_task(q.id, 'failed', NULL, 'task_failed', format('%s of %s failed: %s', failed.n, n, failed.message));
    ELSE
      PERFORM jobq_internal._settle_task(q.id, 'completed',
        -- no join: the conductor has nested loops only
        (SELECT coalesce(jsonb_agg(e.results[1] ORDER BY e.i), '[]')
           FROM (SELECT o.i, array_agg(o.result) FILTER (WHERE o.completed) AS results
                   FROM (SELECT i, NULL::jsonb AS result, false AS completed FROM generate_series(0, n - 1) i
                          UNION ALL
                         SELECT split_part(m.task_key, '.', 2)::int, m.result, true FROM jobq.history m
                          WHERE m.workflow_id = r.id AND m.parent_id = q.id AND m.status IN ('completed', 'skipped')) o
                  GROUP BY o.i) e), NULL, NULL);
    END IF;
  END IF;
END $$;

-- ---------- the end of a run ----------

-- Ends a task that has not begun, or asks it to stop, if tell.  When a session
-- holds it the conductor looks at it again, by a timer: it is not told of the
-- session's end.
CREATE FUNCTION jobq_internal._end_task(task uuid, message text, tell boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now timestamptz := clock_timestamp();
  again timestamptz := now + interval '200 milliseconds';
BEGIN
  IF jobq_internal._cancel_free(task, message, tell) = 'held' THEN
    INSERT INTO jobq.run_timers (due, id)
    SELECT again, task WHERE NOT EXISTS (SELECT FROM jobq.run_timers t WHERE t.id = task AND t.due > now AND t.due <= again);
    -- the conductor reads the next timer; a look at the task would come before it
    PERFORM jobq_internal._look_again(q.workflow_id) FROM jobq.queue q WHERE q.id = task;
  END IF;
END $$;

-- Ends tasks of a run that have not begun, but for those of some rules and
-- members of maps of these; asks the others to stop, if tell.
CREATE FUNCTION jobq_internal._end_tasks(r jobq.runs, but text[], tell boolean, message text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  q jobq.queue;
BEGIN
  FOR q IN SELECT * FROM jobq.queue j
            WHERE j.workflow_id = r.id
              AND coalesce(CASE WHEN j.parent_id = r.id THEN j.after_rule
                                ELSE (SELECT m.after_rule FROM jobq.queue m WHERE m.id = j.parent_id) END, 'success') <> ALL (but) LOOP
    IF q.status = 'running' AND q.position = 'infinity' THEN
      PERFORM jobq_internal._look_again(q.id);  -- a map: its members end first
    ELSIF q.type_id = 0 OR q.status = 'blocked' THEN
      PERFORM jobq_internal._settle_task(q.id, 'cancelled', NULL, 'dependency', message);
    ELSE
      PERFORM jobq_internal._end_task(q.id, message, tell);
    END IF;
  END LOOP;
END $$;

-- Returns the result of a completed run.
CREATE FUNCTION jobq_internal._output(r jobq.runs) RETURNS jsonb
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  w jobq.workflows;
  steps jsonb := jobq_internal._steps_of(r);
BEGIN
  SELECT * INTO w FROM jobq.workflows o WHERE o.type_id = r.type_id AND o.version = r.version;
  IF w.output IS NOT NULL THEN
    RETURN jobq_internal._fill(w.output, jobq_internal._context(r, ''));
  END IF;
  RETURN (SELECT coalesce(jsonb_object_agg(t.task_key, t.result), '{}') FROM jobq_internal._tasks_of(r.id) t
           WHERE t.status = 'completed' AND t.task_key = ANY (jobq_internal._keys_of(steps))
             AND NOT EXISTS (SELECT FROM jsonb_array_elements(steps) s WHERE jsonb_typeof(s -> 'after') = 'array' AND s -> 'after' ? t.task_key));
END $$;

-- Inserts the compensation of a completed step, behind another one, and returns
-- its id.  NULL: its job type is gone, or its payload lacks data or it would be too
-- deep, which makes it a dead letter.
CREATE FUNCTION jobq_internal._add_undo(r jobq.runs, key text, before uuid) RETURNS uuid
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  step jsonb := jobq_internal._step_of(r, key);
  new_id uuid := jobq_internal._new_id();
  filled jsonb := '{}';
  code text;
  fault text;
BEGIN
  BEGIN
    PERFORM jobq_internal._check_depth(run.depth + 1, ARRAY[step #>> '{compensate,job_type}']) FROM jobq.queue run WHERE run.id = r.id;
    filled := jobq_internal._fill(coalesce(step #> '{compensate,payload}', '{}'), jobq_internal._context(r, key));
  EXCEPTION WHEN SQLSTATE 'JQ004' OR program_limit_exceeded THEN
    code := CASE SQLSTATE WHEN 'JQ004' THEN 'bad_input' ELSE SQLSTATE END;
    fault := SQLERRM;
    before := NULL;
  END;
  INSERT INTO jobq.queue (id, position, scheduled_for, type_id, home_id, status, max_attempts, depth, priority, sublane, payload,
                          tenant, parent_id, workflow_id, task_key, enqueued_by, after, after_rule, waiting_for, after_state, keep_until)
  SELECT new_id, 'infinity', run.position, j.id, run.home_id, 'blocked', j.max_attempts, run.depth + 1,
         j.base_priority, jobq_internal._sublane(j.id, run.tenant), filled,
         run.tenant, run.id, run.id, key || '.undo', run.enqueued_by,
         CASE WHEN before IS NOT NULL THEN ARRAY[before] END, CASE WHEN before IS NOT NULL THEN 'done' END,
         (before IS NOT NULL)::int, 0, r.keep_until
    FROM jobq.queue run, jobq.job_types j
   WHERE run.id = r.id AND j.name = step #>> '{compensate,job_type}' AND j.dropped_at IS NULL;
  IF NOT FOUND THEN
    RETURN NULL;
  ELSIF fault IS NOT NULL THEN
    PERFORM jobq_internal._settle_task(new_id, 'failed', NULL, code, fault);
    RETURN NULL;
  ELSIF before IS NOT NULL THEN
    INSERT INTO jobq.dependencies (parent_id, child_id) VALUES (before, new_id);
  END IF;
  PERFORM jobq_internal._admit_tasks(q.tenant, ARRAY[q.id]) FROM jobq.queue q WHERE q.id = new_id;
  PERFORM jobq_internal._tell_of_tasks(ARRAY[new_id]);
  RETURN new_id;
END $$;

-- Returns the keys of completed steps, the newest first.  A step is newer than those
-- that it has waited for, also if the clock was set back in between; of rule any it
-- has waited for one that is not known.
CREATE FUNCTION jobq_internal._newest_first(r jobq.runs) RETURNS SETOF text
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  keys text[];
  ids uuid[];
  ends timestamptz[];
  completed boolean[];
  parents int[];   -- of edges: places in keys
  children int[];
  i int;
  changed boolean;
BEGIN
  SELECT array_agg(t.task_key), array_agg(t.id), array_agg(t.completed_at), array_agg(t.status = 'completed')
    INTO keys, ids, ends, completed FROM jobq_internal._tasks_of(r.id) t WHERE t.completed_at IS NOT NULL;
  SELECT array_agg(e.parent), array_agg(e.child) INTO parents, children
    FROM (SELECT array_position(keys, a.key) AS parent, array_position(keys, s ->> 'key') AS child,
                 coalesce(s ->> 'rule', '') IN ('any', 'failed') AS of_any
            FROM jsonb_array_elements(jobq_internal._steps_of(r)) s,
                 LATERAL jsonb_array_elements_text(CASE jsonb_typeof(s -> 'after') WHEN 'array' THEN s -> 'after' ELSE '[]' END) a(key)) e
   WHERE e.parent IS NOT NULL AND e.child IS NOT NULL AND NOT e.of_any;
  LOOP
    changed := false;
    FOR i IN 1 .. coalesce(cardinality(parents), 0) LOOP
      IF ends[children[i]] <= ends[parents[i]] THEN
        ends[children[i]] := ends[parents[i]] + interval '1 microsecond';
        changed := true;
      END IF;
    END LOOP;
    EXIT WHEN NOT changed;
  END LOOP;
  RETURN QUERY SELECT t.key FROM unnest(keys, ids, ends, completed) t(key, id, ended, is_completed)
                WHERE t.is_completed ORDER BY t.ended DESC, t.id DESC;
END $$;

-- Inserts the compensations of completed steps, the newest first, as a chain;
-- false: none can run.
CREATE FUNCTION jobq_internal._compensate(r jobq.runs) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
  new_id uuid;
  before uuid;
  first_task uuid;
BEGIN
  FOR t IN SELECT k AS task_key FROM jobq_internal._newest_first(r) k LOOP
    CONTINUE WHEN jobq_internal._step_of(r, t.task_key) #>> '{compensate,job_type}' IS NULL;
    new_id := jobq_internal._add_undo(r, t.task_key, before);
    first_task := coalesce(first_task, new_id);
    before := coalesce(new_id, before);
  END LOOP;
  UPDATE jobq.runs j SET compensated = true
   WHERE j.id = r.id AND EXISTS (SELECT FROM jobq_internal._tasks_of(r.id) o WHERE o.task_key LIKE '%.undo');
  IF first_task IS NULL THEN
    RETURN false;
  END IF;
  UPDATE jobq.runs j SET phase = 'compensating' WHERE j.id = r.id;
  PERFORM jobq_internal._run_event(r.id, 'compensating', NULL), jobq_internal._ready(ARRAY[first_task]);
  RETURN true;
END $$;

CREATE FUNCTION jobq_internal._end_run(r jobq.runs, outcome text, result jsonb, code text, message text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  dead_until timestamptz;
BEGIN
  UPDATE jobq.runs j SET phase = 'ended', paused = false, paused_reason = NULL WHERE j.id = r.id;
  IF outcome <> 'completed' THEN  -- dead tasks held tasks that were then cancelled
    DELETE FROM jobq.dependencies d USING jobq.dead_letters p
     WHERE p.workflow_id = r.id AND d.parent_id = p.id AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.child_id);
  END IF;
  PERFORM jobq_internal._run_event(r.id, 'run_finished', jsonb_build_object('status', outcome, 'code', code)),
          jobq_internal._settle_task(r.id, outcome, result, code, message);
  -- a retry needs its tasks; history keeps none forever
  SELECT d.expires_at INTO dead_until FROM jobq.dead_letters d WHERE d.id = r.id;
  IF dead_until > r.keep_until AND isfinite(dead_until) THEN
    PERFORM jobq_internal._keep_rows(r.id, dead_until);
  END IF;
END $$;

-- Ends a run none of whose tasks is left.
CREATE FUNCTION jobq_internal._finish_run(r jobq.runs) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  compensates boolean := (SELECT w.on_failure = 'compensate' FROM jobq.workflows w WHERE w.type_id = r.type_id AND w.version = r.version);
BEGIN
  IF r.phase = 'running' THEN
    BEGIN
      PERFORM jobq_internal._end_run(r, 'completed', jobq_internal._output(r), NULL, NULL);
      RETURN;
    EXCEPTION WHEN SQLSTATE 'JQ004' OR program_limit_exceeded THEN
      UPDATE jobq.runs j SET phase = 'failing', failure = jsonb_build_object(
             'code', CASE SQLSTATE WHEN 'JQ004' THEN 'bad_input' ELSE SQLSTATE END, 'message', 'output: ' || SQLERRM)
       WHERE j.id = r.id RETURNING * INTO r;
    END;
  END IF;
  IF r.phase <> 'compensating' AND compensates AND jobq_internal._compensate(r) THEN
    NULL;
  ELSIF r.failure ->> 'code' = 'cancelled' THEN
    PERFORM jobq_internal._end_run(r, 'cancelled', NULL, NULL, r.failure ->> 'message');
  ELSE
    PERFORM jobq_internal._end_run(r, 'failed', NULL, r.failure ->> 'code', r.failure ->> 'message');
  END IF;
END $$;

-- Completes the tasks that wait for events that have been sent.  free_ones: leaves
-- tasks that another transaction holds; otherwise such a task is an error, 40001.
CREATE FUNCTION jobq_internal._settle_answered(r jobq.runs, free_ones boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT q.id, jobq_internal._step_of(r, q.task_key) ->> 'event' AS event FROM jobq.queue q
            WHERE q.workflow_id = r.id AND q.parent_id = r.id AND q.status = 'blocked' AND q.after_state = 4 LOOP
    CONTINUE WHEN NOT r.events ? t.event;
    IF free_ones THEN
      PERFORM FROM jobq.queue q WHERE q.id = t.id AND q.status = 'blocked' AND q.after_state = 4 FOR UPDATE SKIP LOCKED;
      CONTINUE WHEN NOT FOUND;
    END IF;
    PERFORM jobq_internal._settle_task(t.id, 'completed', nullif(r.events -> t.event, 'null'), NULL, NULL);
  END LOOP;
END $$;

-- Looks at a run: a cancel, its deadline, a task that has failed, an event that
-- came while its step began to wait, tasks that an earlier turn has left, its end.
CREATE FUNCTION jobq_internal._look_at_run(q jobq.queue, r jobq.runs) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  over boolean;
  failed record;
BEGIN
  IF r.phase IN ('running', 'failing') AND q.cancel_requested THEN
    UPDATE jobq.runs j SET phase = 'cancelling', failure = jsonb_build_object('code', 'cancelled', 'message', q.error_msg)
     WHERE j.id = r.id RETURNING * INTO r;
    PERFORM jobq_internal._end_tasks(r, '{}', true, coalesce(q.error_msg, 'its run is cancelled'));
  ELSIF r.phase IN ('running', 'failing') AND clock_timestamp() >= r.deadline THEN
    UPDATE jobq.runs j SET phase = 'cancelling',
           failure = jsonb_build_object('code', 'timeout', 'message', format('timeout after %s', r.deadline - q.started_at))
     WHERE j.id = r.id RETURNING * INTO r;
    PERFORM jobq_internal._end_tasks(r, '{}', true, 'the deadline of its run');
  ELSIF r.phase = 'running' THEN
    -- by one snapshot: the last task may fail meanwhile
    SELECT NOT EXISTS (SELECT FROM jobq.queue t WHERE t.workflow_id = r.id) AS over, d.* INTO failed
      FROM (SELECT) one LEFT JOIN
           (SELECT o.task_key, o.error_msg FROM jobq.dead_letters o
             WHERE o.workflow_id = r.id AND o.parent_id = r.id AND NOT jobq_internal._continues(r, o.task_key)
             ORDER BY o.completed_at LIMIT 1) d ON true;
    over := failed.over;
    IF failed.task_key IS NOT NULL THEN
      -- jobq.retry_job and jobq.retry_workflow, which may have run the task again, hold the run
      PERFORM FROM jobq.runs j WHERE j.id = r.id AND j.version = r.version FOR NO KEY UPDATE;
      IF NOT FOUND OR NOT EXISTS (SELECT FROM jobq.dead_letters d
                                   WHERE d.workflow_id = r.id AND d.parent_id = r.id AND d.task_key = failed.task_key) THEN
        PERFORM jobq_internal._look_again(r.id);
        RETURN;
      END IF;
      UPDATE jobq.runs j SET phase = 'failing', failure = jsonb_build_object('code', 'task_failed',
             'message', format('task "%s": %s', failed.task_key, coalesce(failed.error_msg, 'failed')))
       WHERE j.id = r.id RETURNING * INTO r;
      PERFORM jobq_internal._end_tasks(r, '{done,failed}', false, format('task "%s" has failed', failed.task_key));
    END IF;
  END IF;
  IF r.events <> '{}' THEN
    PERFORM jobq_internal._settle_answered(r, false);
  END IF;
  IF r.phase <> 'running' THEN
    over := NOT EXISTS (SELECT FROM jobq.queue t WHERE t.workflow_id = r.id);
  END IF;
  IF over THEN
    PERFORM FROM jobq.runs j WHERE j.id = r.id AND j.version = r.version FOR UPDATE;
    IF FOUND AND NOT EXISTS (SELECT FROM jobq.queue t WHERE t.workflow_id = r.id) THEN  -- else a retry has added tasks
      PERFORM jobq_internal._finish_run(r);
    END IF;
  ELSE
    PERFORM jobq_internal._look_at_ready(r.id);
  END IF;
END $$;

-- Gives a task that waits for a time its place in the order of the run when that
-- time has come: a lane has no place for a job that is not due.
CREATE FUNCTION jobq_internal._keep_place(q jobq.queue) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  place timestamptz := (SELECT run.position FROM jobq.queue run WHERE run.id = q.workflow_id);
BEGIN
  IF q.parent_id <> q.workflow_id THEN  -- a member of a map: _look_at_map
    place := place + split_part(q.task_key, '.', 2)::int * interval '1 microsecond';
  END IF;
  IF q.position > clock_timestamp() THEN
    INSERT INTO jobq.run_timers (due, id)
    SELECT q.position, q.id WHERE NOT EXISTS (SELECT FROM jobq.run_timers t WHERE t.id = q.id AND t.due = q.position);
  ELSIF q.position > place AND jobq_internal._lock_free_job(q.id) = 'locked' THEN
    UPDATE jobq.queue j SET position = place WHERE j.id = q.id AND j.status IN ('pending', 'retry');
  END IF;
END $$;

-- Looks at a task that was put back into the queue, because its attempt has
-- failed or it sleeps, or that a session held when its run or map was to end.
-- It does not start while its run is paused, nor when that ends.
CREATE FUNCTION jobq_internal._look_at_task(q jobq.queue) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r jobq.runs;
  map jobq.queue;
BEGIN
  SELECT * INTO r FROM jobq.runs j WHERE j.id = q.workflow_id;
  IF q.parent_id <> q.workflow_id THEN
    SELECT * INTO map FROM jobq.queue m WHERE m.id = q.parent_id;
    q.after_rule := map.after_rule;
  END IF;
  IF (r.phase = 'cancelling' OR map.cancel_requested) AND q.cancel_requested IS NOT TRUE THEN
    PERFORM jobq_internal._end_task(q.id, coalesce(map.error_msg, r.failure ->> 'message', 'its run ends'), true);
  ELSIF q.status = 'running' THEN
    RETURN;
  ELSIF r.phase = 'failing' AND coalesce(q.after_rule, 'success') NOT IN ('done', 'failed') THEN
    PERFORM jobq_internal._end_task(q.id, 'its run ends', false);
  ELSIF r.paused AND r.phase = 'running' THEN
    PERFORM FROM jobq.runs j WHERE j.id = r.id AND j.paused AND j.phase = 'running' FOR UPDATE;
    IF FOUND THEN
      PERFORM jobq_internal._take_back_waiting(q.id);
    END IF;
  ELSE
    PERFORM jobq_internal._keep_place(q);
  END IF;
END $$;

-- Looks at runs, at tasks with map, and at other tasks, until the turn is over;
-- returns the number of the ids that are done.  A member's end names its parent.
CREATE FUNCTION jobq_internal._look(ids uuid[]) RETURNS int
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  q jobq.queue;
  r jobq.runs;
  i int;
BEGIN
  FOR i IN 1 .. coalesce(cardinality(ids), 0) LOOP
    IF i > 1 AND jobq_internal._turn_is_over() THEN
      RETURN i - 1;
    END IF;
    SELECT * INTO q FROM jobq.queue j WHERE j.id = ids[i];
    CONTINUE WHEN NOT FOUND;
    IF q.status = 'blocked' THEN
      PERFORM jobq_internal._look_at_ready(q.workflow_id);
    ELSIF q.status = 'running' AND q.position = 'infinity' THEN
      -- a cancel may have come; the locks keep out retries of members, pauses and resumes
      SELECT * INTO q FROM jobq.queue j WHERE j.id = q.id AND j.status = 'running' FOR UPDATE;
      CONTINUE WHEN NOT FOUND;
      SELECT * INTO r FROM jobq.runs j WHERE j.id = q.workflow_id FOR UPDATE;
      CONTINUE WHEN NOT FOUND;
      BEGIN
        PERFORM jobq_internal._look_at_map(q, r);
      EXCEPTION WHEN SQLSTATE 'JQ004' OR insufficient_privilege OR program_limit_exceeded THEN
        PERFORM jobq_internal._cancel_map(q.id, SQLERRM, CASE SQLSTATE WHEN 'JQ004' THEN 'bad_input' ELSE SQLSTATE END);
      END;
    ELSE
      IF q.workflow_id IS NOT NULL THEN
        PERFORM jobq_internal._look_at_task(q);
      END IF;
      SELECT * INTO r FROM jobq.runs j WHERE j.id = q.id;
      CONTINUE WHEN NOT FOUND OR q.status <> 'running';
      PERFORM jobq_internal._look_at_run(q, r);
    END IF;
  END LOOP;
  RETURN cardinality(ids);
END $$;

-- Acts on timers of these tasks and runs: the time limit of an event, the end of
-- a delay, a deadline.
CREATE FUNCTION jobq_internal._act_on_timers(due uuid[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  q jobq.queue;
  looked int;
BEGIN
  FOR q IN SELECT j.* FROM unnest(due) t(id), LATERAL (SELECT * FROM jobq.queue o WHERE o.id = t.id OFFSET 0) j LOOP
    IF q.status = 'blocked' AND q.after_state = 4 THEN
      -- an event that was sent in time; then nothing is left to fail
      PERFORM jobq_internal._settle_answered(r, false) FROM jobq.runs r WHERE r.id = q.workflow_id AND r.events <> '{}';
      PERFORM jobq_internal._settle_task(q.id, 'failed', NULL, 'timeout', format('timeout after %s', q.timeout));
    ELSIF q.status = 'blocked' AND q.after_state = 8 THEN
      PERFORM jobq_internal._settle_task(q.id, 'completed', NULL, NULL, NULL);
    END IF;
  END LOOP;
  looked := jobq_internal._look(due);
  PERFORM jobq_internal._look_again(d) FROM unnest(due[looked + 1:]) d;
END $$;

-- Acts on timers that are due; returns the time of the next one.
CREATE FUNCTION jobq_internal._run_due_timers() RETURNS timestamptz
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  due uuid[];
BEGIN
  WITH gone AS (DELETE FROM jobq.run_timers t WHERE t.ctid IN
                  (SELECT o.ctid FROM jobq.run_timers o WHERE o.due <= (SELECT clock_timestamp()) ORDER BY o.due LIMIT 200) RETURNING t.id)
  SELECT array_agg(g.id) INTO due FROM gone g;
  IF due IS NOT NULL THEN
    PERFORM jobq_internal._act_on_timers(due);
  END IF;
  RETURN (SELECT min(t.due) FROM jobq.run_timers t);
END $$;

-- ---------- the sweep ----------

-- Returns the next 1,000 runs after an id, in the order of their ids; live: they are
-- in the queue.  Those of which news may have been lost have rows with the id to look
-- at, which may be that of a map: a cancel or a deadline was not seen, tasks failed,
-- were left by a turn, or have all ended, an event was sent, a map has room.
CREATE FUNCTION jobq_internal._sweep(after uuid) RETURNS TABLE(run uuid, live boolean, id uuid, tenant text)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY
  SELECT r.id, q.id IS NOT NULL, l.id, q.tenant
    FROM (SELECT * FROM jobq.runs o WHERE o.id > _sweep.after ORDER BY o.id LIMIT 1000) r
    LEFT JOIN LATERAL (SELECT * FROM jobq.queue o WHERE o.id = r.id AND r.phase <> 'ended' OFFSET 0) q ON true
    LEFT JOIN LATERAL (
      SELECT unnest(t.maps || CASE WHEN t.n = 0 OR t.left_over
                                     OR (r.phase IN ('running', 'failing') AND (q.cancel_requested OR r.deadline <= (SELECT clock_timestamp())))
                                     OR (r.phase = 'running' AND EXISTS (SELECT FROM jobq.dead_letters d WHERE d.workflow_id = r.id AND d.parent_id = r.id))
                                     OR (t.waits AND r.events <> '{}') THEN r.id END) AS id
        FROM (SELECT count(*) AS n,
                     bool_or(c.status = 'blocked' AND c.waiting_for = 0 AND c.after_state < 4) AS left_over,
                     bool_or(c.status = 'blocked' AND c.after_state = 4) AS waits,
                     array_agg(c.id) FILTER (WHERE c.status = 'running' AND c.position = 'infinity'
                       AND (c.waiting_for < CASE jsonb_typeof(c.payload) WHEN 'array' THEN jsonb_array_length(c.payload) END
                            OR NOT EXISTS (SELECT FROM jobq.queue m WHERE m.workflow_id = r.id AND m.parent_id = c.id))) AS maps
                FROM jobq.queue c WHERE c.workflow_id = r.id AND c.parent_id = r.id) t) l
      ON q.status = 'running' AND l.id IS NOT NULL
   ORDER BY r.id;
END $$;

-- Deletes the rows of ended runs that are not kept any more, and definitions of
-- dropped workflows whose runs have ended.  A dead letter that is kept can be retried.
CREATE FUNCTION jobq_internal._remove_old_runs() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM jobq.runs o USING (
    SELECT r.id FROM jobq.runs r
     WHERE (r.keep_until < (SELECT clock_timestamp()) AND NOT EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = r.id)
            -- a run whose job is there can be retried, or was since this query began:
            -- it would start anew
            AND CASE r.phase
                WHEN 'ended' THEN NOT EXISTS (SELECT FROM jobq.history h WHERE h.id = r.id AND h.status = 'cancelled')
                WHEN 'restarting' THEN NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id)
                                       AND NOT EXISTS (SELECT FROM jobq.history h WHERE h.id = r.id) END)
        OR (r.version = 0 AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.id))
       FOR UPDATE SKIP LOCKED) f WHERE o.id = f.id;
  DELETE FROM jobq.workflows w USING jobq.job_types t
   WHERE t.id = w.type_id AND t.dropped_at IS NOT NULL
     AND NOT EXISTS (SELECT FROM jobq.runs r JOIN jobq.queue q ON q.id = r.id WHERE r.type_id = t.id AND r.phase <> 'ended');
END $$;
