-- Workflows: a job type whose work is other jobs.  Each definition is a
-- version; runs keep theirs.  src/workflow/steps.h reads the steps.

CREATE TABLE jobq.workflows (
  name         text        NOT NULL,     -- of the job type
  version      int4        NOT NULL,
  is_active    boolean     NOT NULL,     -- new runs have this version
  steps        jsonb       NOT NULL,
  output       jsonb,
  on_failure   text        NOT NULL CHECK (on_failure IN ('stop', 'continue', 'compensate')),
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by   text        NOT NULL,     -- the definer: tasks have its rights
  type_id      int4        NOT NULL,
  definer_oid  oid         NOT NULL,     -- 0: no role of that name existed when the row was restored
  reads        jsonb       NOT NULL,     -- what the paths of each step read: _step_reads()
  PRIMARY KEY (type_id, version)
);
CREATE UNIQUE INDEX workflows_active ON jobq.workflows (type_id) WHERE is_active;

SELECT pg_catalog.pg_extension_config_dump('jobq.workflows', '');

CREATE FUNCTION jobq_internal._find_workflow_definer() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' OR (NEW.created_by <> OLD.created_by AND NEW.definer_oid IS NOT DISTINCT FROM OLD.definer_oid) THEN
    NEW.definer_oid := jobq_internal._find_role(NEW.created_by);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER find_definer BEFORE INSERT OR UPDATE ON jobq.workflows
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_workflow_definer();
ALTER TABLE jobq.workflows ENABLE ALWAYS TRIGGER find_definer;

-- src/workflow/template.c, for payloads, conditions and maps.  Bad data are
-- errors with SQLSTATE JQ004.  A context is {"input", "run", "tasks", "item",
-- "index"}.
CREATE FUNCTION jobq_internal._fill(template jsonb, context jsonb) RETURNS jsonb
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_fill';
-- The same, but placeholders that read more than $.input stay.
CREATE FUNCTION jobq_internal._fill_input(template jsonb, context jsonb) RETURNS jsonb
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_fill_input';
-- Returns the truth of a predicate; null is false.
CREATE FUNCTION jobq_internal._test(path text, context jsonb) RETURNS boolean
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_test';
-- Returns the array that is the one item of a path.
CREATE FUNCTION jobq_internal._items(path text, context jsonb) RETURNS jsonb
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_items';

-- src/workflow/step_checks.c.  Returns a row for each problem and for each
-- step without one; ordinal NULL: a problem of the whole.
CREATE FUNCTION jobq_internal._check_steps(definer oid, steps jsonb, output jsonb)
  RETURNS TABLE(ordinal int, task_key text, wave int, job_type text, problem text, state text)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_check_steps';

-- src/workflow/step_reads.c.  Returns what the paths of each step, and of the
-- output (""), read: {step: {"tasks": [key, ...], "all": true, "artifacts": true}},
-- with "payload": {...} for the tasks of a map.
CREATE FUNCTION jobq_internal._step_reads(steps jsonb, output jsonb) RETURNS jsonb
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_step_reads';

-- Returns the job types that steps name.
CREATE FUNCTION jobq_internal._types_of_steps(steps jsonb) RETURNS SETOF text
  LANGUAGE sql IMMUTABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
  SELECT DISTINCT t.name
    FROM jsonb_array_elements(CASE jsonb_typeof(steps) WHEN 'array' THEN steps ELSE '[]' END) s,
         LATERAL (VALUES (s ->> 'job_type'), (s #>> '{compensate,job_type}')) t(name)
   WHERE t.name IS NOT NULL
$$;

-- Returns a way from the steps over workflows, as they are active now, back to
-- the workflow of that name: a -> b -> a.  NULL: there is none.
CREATE FUNCTION jobq_internal._workflow_cycle(name text, steps jsonb) RETURNS text
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  reached text[] := ARRAY(SELECT jobq_internal._types_of_steps(steps));
  ways text[] := ARRAY(SELECT format('%s -> %s', _workflow_cycle.name, r) FROM unnest(reached) r);
  i int := 1;
  found_type text;
BEGIN
  WHILE i <= cardinality(reached) LOOP
    IF reached[i] = _workflow_cycle.name THEN
      RETURN ways[i];
    END IF;
    FOR found_type IN
      SELECT t.f FROM jobq.workflows w, LATERAL jobq_internal._types_of_steps(w.steps) t(f)
       WHERE w.name = reached[i] AND w.is_active LOOP
      CONTINUE WHEN found_type = ANY (reached);
      reached := reached || found_type;
      ways := ways || format('%s -> %s', ways[i], found_type);
    END LOOP;
    i := i + 1;
  END LOOP;
  RETURN NULL;
END $$;

-- Returns the problem of a workflow, among the steps or below them, that shares a
-- limit of jobq.limits with the workflow of that name: its run would wait for the
-- place of the run above it.  NULL: there is none.  The planner's guess of a
-- recursive query is high enough for JIT, which takes 0.3 s.
CREATE FUNCTION jobq_internal._shared_limit_below(name text, steps jsonb) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
  WITH RECURSIVE below(name) AS (
    SELECT jobq_internal._types_of_steps(steps)
     UNION
    SELECT n.name FROM below b JOIN jobq.workflows w ON w.name = b.name AND w.is_active,
           LATERAL jobq_internal._types_of_steps(w.steps) n(name))
  SELECT format('workflow "%s" shares the limit "%s": its run would wait for the run above it', b.name, l.name)
    FROM jobq.job_types t,
         LATERAL jsonb_array_elements_text(CASE jsonb_typeof(t.options -> 'limits') WHEN 'array' THEN t.options -> 'limits' ELSE '[]' END) l(name),
         below b JOIN jobq.job_types j ON j.name = b.name AND j.is_workflow AND j.dropped_at IS NULL
   WHERE t.name = _shared_limit_below.name AND t.dropped_at IS NULL AND j.options -> 'limits' ? l.name
   ORDER BY b.name, l.name LIMIT 1
$$;

-- Raises 22023 if a workflow that is active shares a limit with one below it, after
-- the limits of a workflow have changed.
CREATE FUNCTION jobq_internal._check_nested_limits(t jobq.job_types) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  problem text;
BEGIN
  IF t.is_workflow AND t.options ? 'limits' THEN
    SELECT format('"%s": %s', w.name, p.problem) INTO problem
      FROM jobq.workflows w JOIN jobq.job_types j ON j.id = w.type_id AND j.dropped_at IS NULL,
           LATERAL jobq_internal._shared_limit_below(w.name, w.steps) p(problem)
     WHERE w.is_active AND j.options ? 'limits' AND p.problem IS NOT NULL ORDER BY w.name LIMIT 1;
  END IF;
  IF problem IS NOT NULL THEN
    PERFORM jobq_internal._bad('22023', format('argument "options": key "limits": workflow %s', problem));
  END IF;
END $$;

-- Raises one error for all problems of a definition.  Its SQLSTATE is that of
-- the problems, if all have the same, else 22023.
CREATE FUNCTION jobq_internal._check_workflow_steps(caller oid, name text, steps jsonb, output jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  problems text[];
  states text[];
BEGIN
  SELECT array_agg(CASE WHEN p.task_key IS NOT NULL THEN format('step "%s": %s', p.task_key, p.problem)
                        WHEN p.ordinal IS NOT NULL THEN format('step %s: %s', p.ordinal, p.problem)
                        ELSE p.problem END ORDER BY p.ordinal NULLS FIRST, p.n),
         array_agg(DISTINCT p.state)
    INTO problems, states
    FROM (SELECT c.*, row_number() OVER () AS n FROM jobq_internal._check_steps(caller, steps, output) c
           UNION ALL
          SELECT NULL, NULL, NULL, NULL, 'cycle of workflows: ' || w.way, '22023', 0
            FROM jobq_internal._workflow_cycle(name, steps) w(way)
           UNION ALL
          SELECT NULL, NULL, NULL, NULL, l.problem, '22023', 0 FROM jobq_internal._shared_limit_below(name, steps) l(problem)) p
   WHERE p.problem IS NOT NULL;
  IF problems IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = CASE WHEN cardinality(states) = 1 THEN states[1] ELSE '22023' END,
      MESSAGE = CASE WHEN problems[1] LIKE '"output"%' THEN 'argument ' ELSE 'argument "steps": ' END
                || CASE WHEN length(problems[1]) > 150 THEN left(problems[1], 147) || '...' ELSE problems[1] END
                || CASE cardinality(problems) WHEN 1 THEN '' ELSE format(' (1 of %s problems)', cardinality(problems)) END,
      DETAIL = array_to_string(problems[1:100], E'\n')
               || CASE WHEN cardinality(problems) > 100 THEN format(E'\n%s more', cardinality(problems) - 100) ELSE '' END;
  END IF;
END $$;

-- Sets the columns of the type that options of create_workflow name; the other
-- keys are option keys.  JSON null is the default.  Errors are about options.
CREATE FUNCTION jobq_internal._workflow_type(t jobq.job_types, options jsonb) RETURNS jobq.job_types
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  defaults jsonb := to_jsonb(jobq_internal._type_defaults()) || '{"timeout": "1 day"}';
  columns text[] := '{timeout,base_priority,max_concurrent,rate_limit,rate_window,keep_completed,keep_dead,critical}';
  key text;
  given jsonb;
BEGIN
  IF jsonb_typeof(options) <> 'object' THEN
    PERFORM jobq_internal._check_options(options, 'workflow');
  END IF;
  FOR key, given IN SELECT o.key, o.value FROM jsonb_each(options) o WHERE o.key = ANY (columns) LOOP
    BEGIN
      t := jsonb_populate_record(t, jsonb_build_object(key, CASE given WHEN 'null' THEN defaults -> key ELSE given END));
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
      PERFORM jobq_internal._bad('22023', format('argument "options": key "%s": %s', key, SQLERRM));
    END;
  END LOOP;
  PERFORM jobq_internal._check_options(options - columns, 'workflow');
  t.options := jobq_internal._without_nulls(coalesce(t.options, '{}') || (options - columns));
  BEGIN
    PERFORM jobq_internal._check_type_values(t);
  EXCEPTION WHEN invalid_parameter_value OR numeric_value_out_of_range THEN
    key := substring(SQLERRM FROM '^argument "([^"]*)"');
    IF key = ANY (columns) THEN
      PERFORM jobq_internal._bad(SQLSTATE, replace(SQLERRM, format('argument "%s"', key), format('argument "options": key "%s"', key)),
        CASE WHEN key = 'timeout' AND t.timeout = '0' THEN 'The run of a workflow always has a deadline.' END);
    END IF;
    RAISE;
  END;
  RETURN t;
END $$;

-- Returns the type of the workflow of that name, locked; NULL: there is none.
CREATE FUNCTION jobq_internal._own_workflow(caller oid, name text) RETURNS jobq.job_types
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types;
BEGIN
  SELECT * INTO t FROM jobq.job_types j WHERE j.name = _own_workflow.name AND j.dropped_at IS NULL FOR UPDATE;
  IF t.id IS NOT NULL AND NOT t.is_workflow THEN
    PERFORM jobq_internal._bad('42710', format('job type "%s" exists already and is no workflow', name),
      'Choose another name, or drop the job type.');
  ELSIF t.id IS NOT NULL THEN
    PERFORM jobq_internal._check_owner(caller, t);
  END IF;
  RETURN t;
END $$;

-- Makes a definition the active version of a workflow, and returns its number:
-- that of an old version, if the caller has defined the same before.
CREATE FUNCTION jobq_internal._activate_version(w jobq.workflows) RETURNS int
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT o.version INTO w.version FROM jobq.workflows o
   WHERE o.type_id = w.type_id AND o.steps = w.steps AND o.output IS NOT DISTINCT FROM w.output
     AND o.on_failure = w.on_failure AND o.definer_oid = w.definer_oid
   ORDER BY o.version DESC LIMIT 1;
  IF EXISTS (SELECT FROM jobq.workflows o WHERE o.type_id = w.type_id AND o.version = w.version AND o.is_active) THEN
    RETURN w.version;
  END IF;
  UPDATE jobq.workflows o SET is_active = false WHERE o.type_id = w.type_id AND o.is_active;
  IF w.version IS NOT NULL THEN
    UPDATE jobq.workflows o SET is_active = true WHERE o.type_id = w.type_id AND o.version = w.version;
    RETURN w.version;
  END IF;
  w.version := coalesce((SELECT max(o.version) FROM jobq.workflows o WHERE o.type_id = w.type_id), 0) + 1;
  INSERT INTO jobq.workflows (name, version, is_active, steps, output, on_failure, created_by, type_id, definer_oid, reads)
  VALUES (w.name, w.version, true, w.steps, w.output, w.on_failure, w.created_by, w.type_id, w.definer_oid,
          jobq_internal._step_reads(w.steps, w.output));
  -- the trigger has found the role by name, which another role may have got a
  -- moment ago
  UPDATE jobq.workflows o SET definer_oid = w.definer_oid
   WHERE o.type_id = w.type_id AND o.version = w.version AND o.definer_oid <> w.definer_oid;
  RETURN w.version;
END $$;

CREATE FUNCTION jobq.create_workflow(name text, steps jsonb, output jsonb DEFAULT NULL, on_failure text DEFAULT 'stop',
                                     options jsonb DEFAULT '{}') RETURNS int
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
-- Creates the job type of a workflow, without a version yet; false: the name
-- exists.
CREATE FUNCTION jobq_internal._add_workflow(caller oid, name text, options jsonb) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types := jobq_internal._type_defaults();
BEGIN
  t.name := name;
  t.is_workflow := true;
  t.timeout := '1 day';
  t.paused := false;
  t.created_at := clock_timestamp();
  t.owner := pg_get_userbyid(caller);
  t.run_as := t.owner;
  t.owner_oid := caller;
  t.run_as_oid := caller;
  RETURN jobq_internal._add_type(jobq_internal._workflow_type(t, options));
END $$;

CREATE FUNCTION jobq_internal._create_workflow(caller oid, name text, steps jsonb, output jsonb, on_failure text, options jsonb)
  RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  t jobq.job_types;
  w jobq.workflows;
BEGIN
  PERFORM jobq_internal._check_name('workflow', name),
          jobq_internal._check_not_null('steps', steps IS NOT NULL),
          jobq_internal._check_not_null('on_failure', on_failure IS NOT NULL),
          jobq_internal._check_choice('on_failure', on_failure, '{stop,continue,compensate}'),
          jobq_internal._check_not_null('options', options IS NOT NULL);
  LOOP  -- until no other session creates or drops the type in between
    t := jobq_internal._own_workflow(caller, name);
    EXIT WHEN t.id IS NOT NULL;
    PERFORM jobq_internal._add_workflow(caller, name, options);
  END LOOP;
  IF options <> '{}' AND EXISTS (SELECT FROM jobq.workflows o WHERE o.type_id = t.id) THEN
    t := jobq_internal._workflow_type(t, options);
    PERFORM jobq_internal._store_type(t.id, t), jobq_internal._check_nested_limits(t);
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed'
     OR EXISTS (SELECT FROM jobq.job_types j WHERE j.is_workflow AND j.dropped_at IS NULL
                   AND j.name IN (SELECT jobq_internal._types_of_steps(steps))) THEN
    -- two definitions at once must not make a cycle
    LOCK TABLE jobq.workflows IN SHARE ROW EXCLUSIVE MODE;
    PERFORM jobq_internal._check_snapshot('jobq.workflows');
  END IF;
  PERFORM jobq_internal._check_workflow_steps(caller, name, steps, output);
  w.name := name;
  w.type_id := t.id;
  w.steps := steps;
  w.output := output;
  w.on_failure := on_failure;
  w.created_by := pg_get_userbyid(caller);
  w.definer_oid := caller;
  RETURN jobq_internal._activate_version(w);
END $$;
