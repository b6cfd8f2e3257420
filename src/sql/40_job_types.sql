
-- Job types: the registry.  The functions called through
-- src/security/owner_call.c check the whole definition before they write it,
-- for every caller and every change (create, replace, alter, reset).  They
-- lock the row of their type and nothing else: an open transaction that
-- changed one type does not block the pause of another.

-- Raises 42501 unless caller may change the type.  In a restored dump the name
-- decides until jobq.adopt().
CREATE FUNCTION jobq_internal._check_owner(caller oid, t jobq.job_types) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT jobq_internal._owns(caller, t) THEN
    PERFORM jobq_internal._bad('42501', format('must be owner of job type "%s"', t.name));
  END IF;
END $$;

-- Returns the registered type of that name, locked. 42704 when there is none.
CREATE FUNCTION jobq_internal._live_type(name text) RETURNS jobq.job_types
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  found_type jobq.job_types;
BEGIN
  PERFORM jobq_internal._check_not_null('name', _live_type.name IS NOT NULL);
  SELECT * INTO found_type FROM jobq.job_types t
   WHERE t.name = _live_type.name AND t.dropped_at IS NULL FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM jobq_internal._bad_name('job type', _live_type.name);
  END IF;
  RETURN found_type;
END $$;

-- The same; 42501 when the type is not caller's.
CREATE FUNCTION jobq_internal._own_type(caller oid, name text) RETURNS jobq.job_types
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types := jobq_internal._live_type(name);
BEGIN
  PERFORM jobq_internal._check_owner(caller, t);
  RETURN t;
END $$;

-- True for the roles that may change the whole definition of the type: as
-- _check_owner, without the error.
CREATE FUNCTION jobq_internal._owns(caller oid, t jobq.job_types) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  owner oid := (SELECT r.oid FROM pg_roles r
                 WHERE CASE WHEN t.owner_oid IS NULL OR NOT jobq_internal._home_is_ours() THEN r.rolname = t.owner
                            ELSE r.oid = t.owner_oid END);
BEGIN
  RETURN (SELECT rolsuper FROM pg_roles WHERE oid = caller) OR (owner IS NOT NULL AND pg_has_role(caller, owner, 'USAGE'));
END $$;

-- Returns a type that the caller may pause: its owner, and the roles that
-- access "admin" admits.
CREATE FUNCTION jobq_internal._pausable_type(caller oid, name text) RETURNS jobq.job_types
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF jobq_internal._is_free(caller) THEN
    RETURN jobq_internal._own_type(caller, name);
  END IF;
  RETURN jobq_internal._live_type(name);
END $$;

-- Returns the handler as it is stored: schema.function(argument types), every
-- part quoted as needed.
CREATE FUNCTION jobq_internal._handler_signature(handler regprocedure) RETURNS text
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f record;
BEGIN
  SELECT format('%I.%I(%s)', n.nspname, p.proname, CASE p.pronargs WHEN 0 THEN '' ELSE 'jsonb' END) AS signature,
         format('%I(jsonb)', p.proname) AS right_way, p.prokind = 'f' AND NOT p.proretset
           AND p.provariadic = 0 AND p.prorettype IN ('jsonb'::regtype, 'json'::regtype, 'void'::regtype)
           AND p.proargtypes IN ('', 'jsonb'::regtype::oid::text::oidvector) AS good
    INTO f FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = handler;
  IF NOT FOUND THEN
    PERFORM jobq_internal._bad('22023', format('argument "handler": "%s" is no function', handler::oid),
      'Write the argument types: ok(jsonb).');
  ELSIF NOT f.good THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "handler": %s RETURNS %s has the wrong signature', handler,
        (SELECT coalesce(pg_get_function_result(oid), 'nothing') FROM pg_proc WHERE oid = handler)),
      format('A handler is f(jsonb) or f() and returns jsonb, json or void; write the argument types: %s.',
             f.right_way));
  END IF;
  RETURN f.signature;
END $$;

-- Raises an error unless caller may let jobs run as this role and the server
-- can run them. kind: 'sql' | 'exec' | 'pull' | 'workflow'
CREATE FUNCTION jobq_internal._check_run_as(caller oid, run_as oid, kind text, handler oid) RETURNS void
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  role pg_roles;
  version int := current_setting('server_version_num');
BEGIN
  SELECT * INTO role FROM pg_roles WHERE oid = run_as;
  IF NOT FOUND THEN
    PERFORM jobq_internal._bad('42704', format('argument "run_as": "%s" is no role', run_as));
  ELSIF NOT pg_has_role(caller, run_as, CASE WHEN version >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
    PERFORM jobq_internal._bad('42501', format('argument "run_as": role "%s" may not become role "%s"',
                                      pg_get_userbyid(caller), role.rolname));
  END IF;
  IF kind <> 'sql' THEN
    RETURN;
  ELSIF role.rolsuper AND NOT current_setting('jobq.allow_superuser_handlers')::boolean THEN
    PERFORM jobq_internal._bad('42501',
      format('argument "run_as": "%s" is a superuser, as which no handler may run', role.rolname),
      'Give run_as another role, or set jobq.allow_superuser_handlers.');
  ELSIF NOT role.rolcanlogin AND version < 170000 THEN
    PERFORM jobq_internal._bad('22023', format('argument "run_as": role "%s" may not log in', role.rolname),
      'A worker is connected as run_as, which before PostgreSQL 17 takes LOGIN: ALTER ROLE ... LOGIN.');
  ELSIF NOT has_database_privilege(run_as, current_database(), 'CONNECT') THEN
    PERFORM jobq_internal._bad('42501',
      format('argument "run_as": role "%s" has no CONNECT on this database', role.rolname));
  ELSIF NOT has_function_privilege(run_as, handler, 'EXECUTE') THEN
    PERFORM jobq_internal._bad('42501', format('argument "run_as": role "%s" has no EXECUTE on handler %s',
                                      role.rolname, handler::regprocedure));
  END IF;
END $$;

-- Returns the kind of a type that is not stored yet, as column kind has it.
CREATE FUNCTION jobq_internal._kind(t jobq.job_types) RETURNS text
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN t.is_workflow THEN 'workflow' WHEN t.handler IS NOT NULL THEN 'sql'
              WHEN t.command IS NOT NULL THEN 'exec' ELSE 'pull' END
$$;

-- Checks all other values.
CREATE FUNCTION jobq_internal._check_type_values(t jobq.job_types) RETURNS void
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_number('max_attempts', t.max_attempts, 1, 1000000);
  PERFORM jobq_internal._check_choice('backoff', t.backoff, '{exponential,fixed}');
  PERFORM jobq_internal._check_interval('backoff_base', t.backoff_base);
  PERFORM jobq_internal._check_interval('backoff_max', t.backoff_max);
  PERFORM jobq_internal._check_number('backoff_jitter', t.backoff_jitter::numeric, 0, 1);
  PERFORM jobq_internal._check_interval('timeout', t.timeout, NOT t.is_workflow);
  PERFORM jobq_internal._check_number('base_priority', t.base_priority, -100, 100);
  PERFORM jobq_internal._check_number('max_concurrent', t.max_concurrent, 0, 1000000);
  PERFORM jobq_internal._check_number('cpu_weight', t.cpu_weight, 0, 1000000);
  PERFORM jobq_internal._check_number('rate_limit', t.rate_limit, 0, 1000000000);
  PERFORM jobq_internal._check_interval('rate_window', t.rate_window, false);
  IF t.rate_limit > 10000 AND coalesce(t.options ->> 'burst', '0') = '0' THEN
    PERFORM jobq_internal._bad('22003',
      format('argument "rate_limit": %s is outside 0..10000, without options.burst', t.rate_limit),
      'With options.burst a token bucket of that size takes the place of the exact window.');
  END IF;
  PERFORM jobq_internal._check_interval('keep_completed', t.keep_completed);
  PERFORM jobq_internal._check_interval('keep_dead', t.keep_dead);
  PERFORM jobq_internal._check_options(t.options, jobq_internal._kind(t));
  PERFORM jobq_internal._check_limits(t.options);
END $$;

-- True for PUBLIC (0) and for a role without the rights of a superuser.
CREATE FUNCTION jobq_internal._is_lesser(role oid) RETURNS boolean
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT NOT coalesce((SELECT r.rolsuper FROM pg_roles r
                        WHERE r.oid = CASE WHEN role = 'pg_database_owner'::regrole
                                           THEN (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database())
                                           ELSE role END), false)
$$;

-- Returns how a role that is no superuser could replace this handler; NULL:
-- none could.
CREATE FUNCTION jobq_internal._handler_risk(handler oid) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN jobq_internal._is_lesser(p.proowner) THEN format('it belongs to role "%s"', pg_get_userbyid(p.proowner))
              ELSE (SELECT format('its schema "%s" can be written by %s', n.nspname,
                                  CASE w.role WHEN 0 THEN 'PUBLIC' ELSE format('role "%s"', pg_get_userbyid(w.role)) END)
                      FROM (SELECT n.nspowner AS role
                             UNION ALL
                            SELECT a.grantee FROM aclexplode(n.nspacl) a WHERE a.privilege_type = 'CREATE') w
                     WHERE jobq_internal._is_lesser(w.role) ORDER BY w.role LIMIT 1) END
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = handler
$$;

-- Warns of definitions that are allowed but probably a mistake.
CREATE FUNCTION jobq_internal._warn_of_type(t jobq.job_types) RETURNS void
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  trouble text := jobq_internal._program_trouble(t.command[1]);
  risk text := jobq_internal._handler_risk(to_regprocedure(t.handler));
BEGIN
  IF risk IS NOT NULL AND (SELECT rolsuper FROM pg_roles WHERE oid = t.run_as_oid) THEN
    RAISE WARNING 'job type "%" runs as a superuser, and a lesser role could replace its handler %: %', t.name, t.handler, risk
      USING HINT = 'Give run_as a role without superuser rights, or the handler an owner and a schema that only superusers can change.';
  END IF;
  IF trouble IS NOT NULL THEN
    RAISE WARNING 'the tool of job type "%" cannot be started on this server now: could not run "%": %',
      t.name, t.command[1], trouble
      USING ERRCODE = '58P01', HINT = 'Its jobs wait until it can.';
  END IF;
  IF t.handler IS NOT NULL AND t.max_concurrent > current_setting('jobq.max_sql_workers')::int THEN
    RAISE WARNING 'max_concurrent of job type "%" is more than jobq.max_sql_workers: % > %',
      t.name, t.max_concurrent, current_setting('jobq.max_sql_workers')
      USING HINT = 'Each SQL worker runs one job at a time.';
  END IF;
END $$;

-- Returns the functions for use in a running handler that a role lacks EXECUTE
-- on.
CREATE FUNCTION jobq_internal._missing_in_handler(run_as oid) RETURNS SETOF regprocedure
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.oid::regprocedure FROM pg_proc p
   WHERE p.pronamespace = 'jobq'::regnamespace
     AND p.proname IN ('current_job', 'set_progress', 'log_event', 'record_artifact', 'build_key', 'add_tasks', 'skip', 'discard', 'snooze')
     AND NOT has_function_privilege(run_as, p.oid, 'EXECUTE')
$$;

CREATE FUNCTION jobq_internal._grant_in_handler(run_as oid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  role text := quote_ident(pg_get_userbyid(run_as));
  f regprocedure;
BEGIN
  IF has_schema_privilege(run_as, 'jobq', 'USAGE')
     AND NOT EXISTS (SELECT FROM jobq_internal._missing_in_handler(run_as)) THEN
    RETURN;
  END IF;
  PERFORM jobq_internal._lock_privileges();
  EXECUTE 'GRANT USAGE ON SCHEMA jobq TO ' || role;
  FOR f IN SELECT * FROM jobq_internal._missing_in_handler(run_as) LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, role);
  END LOOP;
END $$;

-- Checks handler and run_as, given by oid; the row stores their names.
CREATE FUNCTION jobq_internal._check_type(caller oid, t jobq.job_types, handler oid, run_as oid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF t.command IS NOT NULL THEN
    PERFORM jobq_internal._check_command(t.command, coalesce((t.options->>'warm')::numeric, 0) > 0);
    IF NOT pg_has_role(caller, 'pg_execute_server_program', 'USAGE') THEN
      PERFORM jobq_internal._bad('42501',
        format('command of job type "%s" takes the rights of pg_execute_server_program', t.name));
    END IF;
  END IF;
  PERFORM jobq_internal._check_run_as(caller, run_as, jobq_internal._kind(t), handler);
END $$;

-- Removes keys with the value JSON null: they count as not given.
CREATE FUNCTION jobq_internal._without_nulls(options jsonb) RETURNS jsonb
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF jsonb_typeof(options) <> 'object' THEN
    RETURN options;
  END IF;
  RETURN options - ARRAY(SELECT key FROM jsonb_each(options) WHERE value = 'null');
END $$;

-- Returns the values of a new type for arguments that are not given; reset
-- restores them. run_as: the owner.
CREATE FUNCTION jobq_internal._type_defaults() RETURNS jobq.job_types
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types;
BEGIN
  t.max_attempts := 3;
  t.backoff := 'exponential';
  t.backoff_base := '30s';
  t.backoff_max := '1h';
  t.backoff_jitter := 0.1;
  t.timeout := '5min';
  t.base_priority := 0;
  t.max_concurrent := 0;
  t.cpu_weight := 1;
  t.rate_limit := 0;
  t.rate_window := '1s';
  t.keep_completed := '7 days';
  t.keep_dead := NULL;
  t.critical := false;
  t.options := '{}';
  t.is_workflow := false;
  RETURN t;
END $$;

-- NULL is an argument that is not given: a new type gets
-- jobq_internal._type_defaults(), a replaced one keeps its own.
CREATE FUNCTION jobq.create_job_type(
  name text, handler regprocedure DEFAULT NULL, command text[] DEFAULT NULL, max_attempts int DEFAULT NULL,
  backoff text DEFAULT NULL, backoff_base interval DEFAULT NULL, backoff_max interval DEFAULT NULL,
  backoff_jitter real DEFAULT NULL, timeout interval DEFAULT NULL, base_priority int DEFAULT NULL,
  max_concurrent int DEFAULT NULL, cpu_weight int DEFAULT NULL, rate_limit int DEFAULT NULL,
  rate_window interval DEFAULT NULL, keep_completed interval DEFAULT NULL, keep_dead interval DEFAULT NULL,
  critical boolean DEFAULT NULL, run_as regrole DEFAULT NULL, options jsonb DEFAULT NULL,
  on_conflict text DEFAULT 'error')
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';

CREATE FUNCTION jobq_internal._create_job_type(caller oid,
  name text, handler regprocedure, command text[], max_attempts int, backoff text, backoff_base interval,
  backoff_max interval, backoff_jitter real, timeout interval, base_priority int, max_concurrent int,
  cpu_weight int, rate_limit int, rate_window interval, keep_completed interval, keep_dead interval,
  critical boolean, run_as regrole, options jsonb, on_conflict text)
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  t jobq.job_types := jobq_internal._type_defaults();
  role oid := coalesce(run_as::oid, caller);
BEGIN
  PERFORM jobq_internal._check_name('job type', _create_job_type.name);
  PERFORM jobq_internal._check_on_conflict(on_conflict);
  LOOP  -- until no other session creates or drops the type in between
    IF on_conflict = 'replace' THEN
      PERFORM FROM jobq.job_types j WHERE j.name = _create_job_type.name AND j.dropped_at IS NULL FOR UPDATE;
      IF FOUND THEN
        PERFORM jobq_internal._alter_job_type(caller, name, handler, command, max_attempts, backoff, backoff_base, backoff_max,
          backoff_jitter, timeout, base_priority, max_concurrent, cpu_weight, rate_limit, rate_window, keep_completed,
          keep_dead, critical, run_as, options, reset => NULL);
        RETURN;
      END IF;
    END IF;
    IF handler IS NOT NULL AND command IS NOT NULL THEN
      PERFORM jobq_internal._bad('22023',
        format('arguments "handler" and "command" of job type "%s" are both given', _create_job_type.name),
        'A job type has either a SQL function or an external program, or neither: then clients claim its jobs.');
    END IF;
    t.name := _create_job_type.name;
    t.handler := CASE WHEN handler IS NOT NULL THEN jobq_internal._handler_signature(handler) END;
    t.command := command;
    t.max_attempts := coalesce(max_attempts, t.max_attempts);
    t.backoff := coalesce(backoff, t.backoff);
    t.backoff_base := coalesce(backoff_base, t.backoff_base);
    t.backoff_max := coalesce(backoff_max, t.backoff_max);
    t.backoff_jitter := coalesce(backoff_jitter, t.backoff_jitter);
    t.timeout := coalesce(timeout, t.timeout);
    t.base_priority := coalesce(base_priority, t.base_priority);
    t.max_concurrent := coalesce(max_concurrent, t.max_concurrent);
    t.cpu_weight := coalesce(cpu_weight, t.cpu_weight);
    t.rate_limit := coalesce(rate_limit, t.rate_limit);
    t.rate_window := coalesce(rate_window, t.rate_window);
    t.keep_completed := coalesce(keep_completed, t.keep_completed);
    t.keep_dead := coalesce(keep_dead, t.keep_dead);
    t.critical := coalesce(critical, t.critical);
    t.options := jobq_internal._without_nulls(coalesce(options, t.options));
    t.paused := false;
    t.created_at := clock_timestamp();
    t.owner := pg_get_userbyid(caller);
    t.run_as := pg_get_userbyid(role);
    t.owner_oid := caller;
    t.run_as_oid := role;
    PERFORM jobq_internal._check_type_values(t);
    PERFORM jobq_internal._check_type(caller, t, handler::oid, role);
    EXIT WHEN jobq_internal._add_type(t);
    IF on_conflict = 'ignore' THEN
      RETURN;
    ELSIF on_conflict = 'error' THEN
      PERFORM jobq_internal._bad('42710', format('job type "%s" exists already', t.name),
        'on_conflict => ''replace'' changes it and keeps its jobs, ''ignore'' leaves it as it is.');
    END IF;
  END LOOP;
  IF jobq_internal._kind(t) IN ('sql', 'exec') THEN
    PERFORM jobq_internal._grant_in_handler(role);
  END IF;
  PERFORM jobq_internal._home_id();  -- from now on maintenance makes partitions
  PERFORM jobq_internal._warn_of_type(t);
END $$;

-- Stores a new type; false: the name exists.
CREATE FUNCTION jobq_internal._add_type(t jobq.job_types) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM jobq.job_types j WHERE j.name = t.name AND j.dropped_at IS NULL) THEN
    RETURN false;
  END IF;
  t.id := nextval('jobq.job_type_id_seq');
  -- columns that the owner of the table has added get their defaults
  INSERT INTO jobq.job_types (id, name, owner, run_as, handler, command, max_attempts, backoff, backoff_base,
                              backoff_max, backoff_jitter, timeout, base_priority, max_concurrent, cpu_weight,
                              rate_limit, rate_window, keep_completed, keep_dead, critical, options, paused,
                              pause_reason, paused_until, created_at, dropped_at, is_workflow)
  VALUES (t.id, t.name, t.owner, t.run_as, t.handler, t.command, t.max_attempts, t.backoff, t.backoff_base,
          t.backoff_max, t.backoff_jitter, t.timeout, t.base_priority, t.max_concurrent, t.cpu_weight,
          t.rate_limit, t.rate_window, t.keep_completed, t.keep_dead, t.critical, t.options - 'env', t.paused,
          t.pause_reason, t.paused_until, t.created_at, t.dropped_at, t.is_workflow)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM jobq_internal._store_env(t.id, t.options -> 'env');
  -- the trigger has found the roles by name, which another role may have got a
  -- moment ago
  UPDATE jobq.job_types j SET owner_oid = t.owner_oid, run_as_oid = t.run_as_oid
   WHERE j.id = t.id AND (j.owner_oid, j.run_as_oid) IS DISTINCT FROM (t.owner_oid, t.run_as_oid);
  -- no history from before it had its options
  INSERT INTO jobq.counted_types (type_id, done)
  SELECT t.id, true WHERE jobq_internal._keep_count(t.options, 'keep_completed_count') IS NOT NULL;
  RETURN true;
END $$;

-- Writes a definition over that of type `type_id`; owner, pause, env and jobs
-- stay.  NULL: it was dropped meanwhile.  Jobs that ended without
-- keep_completed_count are not marked (25_retention.sql): if it is set again,
-- marking begins again.
CREATE FUNCTION jobq_internal._store_type(type_id int, t jobq.job_types) RETURNS boolean
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM jobq.counted_types c
   WHERE c.type_id = _store_type.type_id
     AND EXISTS (SELECT FROM jobq.job_types o
                  WHERE o.id = c.type_id AND jobq_internal._keep_count(o.options, 'keep_completed_count') IS NULL);
  UPDATE jobq.job_types SET
    (run_as, run_as_oid, handler, command, max_attempts, backoff, backoff_base, backoff_max, backoff_jitter, timeout,
     base_priority, max_concurrent, cpu_weight, rate_limit, rate_window, keep_completed, keep_dead,
     critical, options) =
    ROW (t.run_as, t.run_as_oid, t.handler, t.command, t.max_attempts, t.backoff, t.backoff_base, t.backoff_max,
     t.backoff_jitter, t.timeout, t.base_priority, t.max_concurrent, t.cpu_weight, t.rate_limit,
     t.rate_window, t.keep_completed, t.keep_dead, t.critical, t.options - 'env')
   WHERE id = type_id AND dropped_at IS NULL
   RETURNING true
$$;

CREATE FUNCTION jobq.alter_job_type(
  name text, handler regprocedure DEFAULT NULL, command text[] DEFAULT NULL, max_attempts int DEFAULT NULL,
  backoff text DEFAULT NULL, backoff_base interval DEFAULT NULL, backoff_max interval DEFAULT NULL,
  backoff_jitter real DEFAULT NULL, timeout interval DEFAULT NULL, base_priority int DEFAULT NULL,
  max_concurrent int DEFAULT NULL, cpu_weight int DEFAULT NULL, rate_limit int DEFAULT NULL,
  rate_window interval DEFAULT NULL, keep_completed interval DEFAULT NULL, keep_dead interval DEFAULT NULL,
  critical boolean DEFAULT NULL, run_as regrole DEFAULT NULL, options jsonb DEFAULT NULL,
  reset text[] DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';

-- Returns the type with the arguments named in reset set to their defaults.
CREATE FUNCTION jobq_internal._reset_type(t jobq.job_types, reset text[], given jsonb) RETURNS jobq.job_types
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  defaults jsonb := to_jsonb(jobq_internal._type_defaults()) || jsonb_build_object('run_as', t.owner)  -- the oid is below
                    || CASE WHEN t.is_workflow THEN '{"timeout": "1 day"}' ELSE '{}' END::jsonb;
  name text;
BEGIN
  FOREACH name IN ARRAY reset LOOP
    IF name IS NULL THEN
      PERFORM jobq_internal._bad('22004', 'argument "reset": an element must not be NULL');
    ELSIF name NOT IN ('max_attempts', 'backoff', 'backoff_base', 'backoff_max', 'backoff_jitter', 'timeout',
                    'base_priority', 'max_concurrent', 'cpu_weight', 'rate_limit', 'rate_window',
                    'keep_completed', 'keep_dead', 'critical', 'run_as', 'options') THEN
      PERFORM jobq_internal._bad('22023',
        format('argument "reset": "%s" is no argument with a default', jobq_internal._shown(name)));
    ELSIF given ? name THEN
      PERFORM jobq_internal._bad('22023', format('argument "reset": "%s" is given, too', name));
    END IF;
    t := jsonb_populate_record(t, jsonb_build_object(name, defaults -> name));
    IF name = 'run_as' THEN
      t.run_as_oid := t.owner_oid;
    END IF;
  END LOOP;
  RETURN t;
END $$;

-- Refuses all but the arguments that an operator, a role with access "admin"
-- to all tenants, may change of another role's type: weights, limits,
-- priorities, timeouts.  Never add an argument or option key that decides the
-- program, its host, role or environment, its hooks, or the roles that may
-- enqueue it.
CREATE FUNCTION jobq_internal._check_levers(t jobq.job_types, arguments text[], options jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  denied text;
BEGIN
  SELECT format('argument "%s"', jobq_internal._shown(a)) INTO denied FROM unnest(arguments) a
   WHERE a NOT IN ('timeout', 'base_priority', 'max_concurrent', 'cpu_weight', 'rate_limit', 'rate_window') LIMIT 1;
  IF denied IS NULL AND jsonb_typeof(options) = 'object' THEN
    SELECT format('option "%s"', k) INTO denied FROM jsonb_object_keys(options) k
     WHERE k NOT IN ('limits', 'burst', 'concurrency_per_key', 'max_skip', 'aging', 'fair_by', 'fair_depth',
                     'max_depth', 'stall') LIMIT 1;
  END IF;
  IF denied IS NOT NULL THEN
    PERFORM jobq_internal._bad('42501', format('%s: must be owner of job type "%s"', denied, t.name),
      'Access "admin" changes its weights, limits, priorities and timeouts.');
  END IF;
END $$;

CREATE FUNCTION jobq_internal._alter_job_type(caller oid,
  name text, handler regprocedure, command text[], max_attempts int, backoff text, backoff_base interval,
  backoff_max interval, backoff_jitter real, timeout interval, base_priority int, max_concurrent int,
  cpu_weight int, rate_limit int, rate_window interval, keep_completed interval, keep_dead interval,
  critical boolean, run_as regrole, options jsonb, reset text[])
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  t jobq.job_types;
  old jobq.job_types := jobq_internal._live_type(name);
  owns boolean := jobq_internal._owns(caller, old);
  given jsonb := jsonb_strip_nulls(jsonb_build_object(
    'max_attempts', max_attempts, 'backoff', backoff, 'backoff_base', backoff_base, 'backoff_max', backoff_max,
    'backoff_jitter', backoff_jitter, 'timeout', timeout, 'base_priority', base_priority,
    'max_concurrent', max_concurrent, 'cpu_weight', cpu_weight, 'rate_limit', rate_limit,
    'rate_window', rate_window, 'keep_completed', keep_completed, 'keep_dead', keep_dead,
    'critical', critical, 'run_as', pg_get_userbyid(run_as), 'run_as_oid', run_as::oid));
BEGIN
  IF owns THEN
    old.options := old.options || coalesce((SELECT jsonb_build_object('env', e.env) FROM jobq.job_type_env e
                                             WHERE e.type_id = old.id), '{}');
  ELSIF jobq_internal._is_free(caller) THEN
    PERFORM jobq_internal._check_owner(caller, old);
  ELSE
    PERFORM jobq_internal._check_options(options, old.kind);
    PERFORM jobq_internal._check_levers(old, ARRAY(SELECT unnest(reset) UNION ALL SELECT jsonb_object_keys(given - 'run_as_oid')
      UNION ALL SELECT 'handler' WHERE handler IS NOT NULL UNION ALL SELECT 'command' WHERE command IS NOT NULL), options);
  END IF;
  IF handler IS NOT NULL AND command IS NOT NULL THEN
    PERFORM jobq_internal._bad('22023',
      format('arguments "handler" and "command" of job type "%s" are both given', name),
      'A job type has either a SQL function or an external program.');
  END IF;
  IF old.is_workflow AND (handler IS NOT NULL OR command IS NOT NULL) THEN
    PERFORM jobq_internal._bad('22023', format('argument "%s": "%s" is a workflow',
        CASE WHEN handler IS NULL THEN 'command' ELSE 'handler' END, name),
      'jobq.create_workflow changes its steps.');
  END IF;
  t := jsonb_populate_record(old, given);
  IF handler IS NOT NULL THEN
    t.handler := jobq_internal._handler_signature(handler);
    t.command := NULL;
  ELSIF command IS NOT NULL THEN
    t.handler := NULL;
    t.command := command;
  END IF;
  IF reset IS NOT NULL THEN
    t := jobq_internal._reset_type(t, reset,
      CASE WHEN options IS NULL THEN given ELSE given || '{"options": {}}' END);
  END IF;
  IF jsonb_typeof(options) = 'object' THEN
    PERFORM jobq_internal._check_options(options, jobq_internal._kind(t));
    t.options := jobq_internal._without_nulls(t.options || options);
  ELSIF options IS NOT NULL THEN
    PERFORM jobq_internal._check_options(options, jobq_internal._kind(t));
  END IF;
  PERFORM jobq_internal._check_type_values(t);
  -- a caller that changes the handler, the command or the role needs the
  -- rights to define it
  IF owns AND (t.handler, t.command, t.run_as_oid, t.options)
     IS DISTINCT FROM (old.handler, old.command, old.run_as_oid, old.options) THEN
    PERFORM jobq_internal._check_type(caller, t, coalesce(handler::oid, to_regprocedure(t.handler)::oid), t.run_as_oid);
    IF jobq_internal._kind(t) IN ('sql', 'exec') THEN
      PERFORM jobq_internal._grant_in_handler(t.run_as_oid);
    END IF;
    IF NOT pg_has_role(t.owner_oid, t.run_as_oid,
                       CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
      RAISE WARNING 'jobs of type "%" will fail: its owner "%" may not become role "%"', t.name, t.owner, t.run_as;
    END IF;
  END IF;
  PERFORM jobq_internal._store_type(t.id, t), jobq_internal._check_nested_limits(t);
  IF owns THEN
    PERFORM jobq_internal._store_env(t.id, t.options -> 'env');
  END IF;
  PERFORM jobq_internal._warn_of_type(t);
END $$;

CREATE FUNCTION jobq.drop_job_type(name text, force boolean DEFAULT false) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._drop_job_type(caller oid, name text, force boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types := jobq_internal._own_type(caller, name);
  live bigint;
BEGIN
  PERFORM jobq_internal._check_not_null('force', force IS NOT NULL);
  IF force THEN
    SELECT c.held INTO live
      FROM jobq_internal._cancel_each(ARRAY(SELECT q.id FROM jobq.queue q WHERE q.type_id = t.id ORDER BY q.id DESC),
                             'job type dropped', true) c;
    IF live > 0 THEN
      PERFORM jobq_internal._bad('55006',
        format('open transactions hold %s job(s) of job type "%s"', live, name),
        'Drop it again when these transactions have ended.');
    END IF;
  ELSE
    SELECT count(*) INTO live FROM jobq.queue q WHERE q.type_id = t.id;
    IF live > 0 THEN
      PERFORM jobq_internal._bad('55006', format('job type "%s" has %s live job(s)', name, live),
        'force => true cancels them.');
    END IF;
  END IF;
  DELETE FROM jobq.pressure_rules r WHERE r.type_id = t.id;
  DELETE FROM jobq.job_type_env e WHERE e.type_id = t.id;
  -- runs that end need their steps, and their compensations: _remove_old_runs
  UPDATE jobq.workflows w SET is_active = false, name = w.name || ' (dropped)' WHERE w.type_id = t.id;
  DELETE FROM jobq.workflows w
   WHERE w.type_id = t.id AND NOT EXISTS (SELECT FROM jobq.queue q WHERE q.type_id = t.id);
  DELETE FROM jobq.unique_for_types u WHERE u.type_id = t.id;
  UPDATE jobq.job_types SET dropped_at = clock_timestamp() WHERE id = t.id;
END $$;

CREATE FUNCTION jobq.pause_job_type(name text, reason text DEFAULT NULL, duration interval DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._pause_job_type(caller oid, name text, reason text, duration interval)
  RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types := jobq_internal._pausable_type(caller, name);
  now timestamptz := clock_timestamp();
BEGIN
  PERFORM jobq_internal._check_interval('duration', duration, false);
  UPDATE jobq.job_types SET paused = true, pause_reason = reason, paused_until = now + duration, paused_at = now
   WHERE id = t.id;
END $$;

CREATE FUNCTION jobq.resume_job_type(name text) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._resume_job_type(caller oid, name text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t jobq.job_types := jobq_internal._pausable_type(caller, name);
BEGIN
  -- the breaker closes because resumed_at rises, also where the clock was set
  -- back
  UPDATE jobq.job_types SET paused = false, pause_reason = NULL, paused_until = NULL, paused_at = NULL,
         resumed_at = greatest(clock_timestamp(), resumed_at + interval '1 us')
   WHERE id = t.id;
END $$;
