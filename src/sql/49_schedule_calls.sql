-- Functions for users of schedules.  They lock the row of their schedule, so
-- that the conductor decides no tick of it meanwhile.

CREATE FUNCTION jobq.schedule(
  name text, cron text, job_type text, payload jsonb DEFAULT '{}', timezone text DEFAULT 'UTC',
  starts_at timestamptz DEFAULT NULL, ends_at timestamptz DEFAULT NULL, max_runs int DEFAULT NULL,
  catch_up text DEFAULT 'one', catch_up_limit int DEFAULT 100, overlap text DEFAULT 'skip', jitter interval DEFAULT '0',
  pause_after_failures int DEFAULT NULL, options jsonb DEFAULT '{}', tenant text DEFAULT NULL,
  on_conflict text DEFAULT 'error')
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._schedule(caller oid,
  name text, cron text, job_type text, payload jsonb, timezone text, starts_at timestamptz, ends_at timestamptz,
  max_runs int, catch_up text, catch_up_limit int, overlap text, jitter interval, pause_after_failures int,
  options jsonb, tenant text, on_conflict text)
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  of_tenant text := jobq_internal._schedule_tenant(tenant);
  old jobq.schedules;
  s jobq.schedules;
BEGIN
  PERFORM jobq_internal._check_name('schedule', name), jobq_internal._check_on_conflict(on_conflict);
  s := jobq_internal._new_schedule(name, of_tenant);
  s := jobq_internal._define_schedule(s, caller, cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up,
                                      catch_up_limit, overlap, jitter, pause_after_failures, options);
  -- first, so that a caller without the right to enqueue the type learns no
  -- names
  PERFORM jobq_internal._check_schedule_values(s);
  PERFORM jobq_internal._check_schedule(s);
  LOOP  -- until no other session creates or drops the schedule in between
    old := jobq_internal._find_schedule(name, of_tenant);
    IF old.id IS NULL THEN
      EXIT WHEN jobq_internal._add_schedule(jobq_internal._plan_schedule(s, NULL));
    ELSIF on_conflict = 'replace' THEN
      EXIT WHEN jobq_internal._replace_schedule(caller, s);
    ELSIF on_conflict = 'ignore' THEN
      EXIT;
    ELSE
      PERFORM jobq_internal._bad('42710', format('schedule "%s" exists already', name),
        'on_conflict => ''replace'' changes it and keeps its runs, ''ignore'' leaves it as it is.');
    END IF;
  END LOOP;
END $$;

-- Returns a schedule with the arguments of jobq.schedule() and its caller as
-- the owner.
CREATE FUNCTION jobq_internal._define_schedule(s jobq.schedules, caller oid,
  cron text, job_type text, payload jsonb, timezone text, starts_at timestamptz, ends_at timestamptz, max_runs int,
  catch_up text, catch_up_limit int, overlap text, jitter interval, pause_after_failures int, options jsonb)
  RETURNS jobq.schedules LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  s.cron := cron;
  s.job_type := job_type;
  s.payload := payload;
  s.timezone := timezone;
  s.starts_at := starts_at;
  s.ends_at := ends_at;
  s.max_runs := max_runs;
  s.catch_up := catch_up;
  s.catch_up_limit := catch_up_limit;
  s.overlap := overlap;
  s.jitter := jitter;
  s.pause_after_failures := pause_after_failures;
  s.options := jobq_internal._without_nulls(options);
  s.owner := pg_get_userbyid(caller);
  s.owner_oid := caller;
  RETURN s;
END $$;

-- Replaces a definition by that of s; false: the schedule was dropped
-- meanwhile.  Writes nothing when both are the same, unless the caller is not
-- the owner and becomes it.
CREATE FUNCTION jobq_internal._replace_schedule(caller oid, s jobq.schedules) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  old jobq.schedules := jobq_internal._find_schedule(s.name, s.tenant);
  new jobq.schedules;
  of_caller text := coalesce(jobq_internal._schedule_right(caller, old.tenant, old.job_type, old.owner_oid), 'none');
BEGIN
  IF old.id IS NULL THEN
    RETURN false;
  ELSIF of_caller NOT IN ('own', 'admin') THEN
    PERFORM jobq_internal._bad('42501', format('must be owner of schedule "%s"', s.name));
  END IF;
  old := jobq_internal._lock_schedule(caller, s.name, s.tenant);
  IF old.id IS NULL THEN
    RETURN false;
  END IF;
  new := jobq_internal._define_schedule(old, caller, s.cron, s.job_type, s.payload, s.timezone, s.starts_at, s.ends_at,
           s.max_runs, s.catch_up, s.catch_up_limit, s.overlap, s.jitter, s.pause_after_failures, s.options);
  IF of_caller = 'admin' OR (old.cron, old.job_type, old.payload, old.timezone, old.starts_at, old.ends_at, old.max_runs, old.catch_up,
      old.catch_up_limit, old.overlap, old.jitter, old.pause_after_failures, old.options)
     IS DISTINCT FROM
     (new.cron, new.job_type, new.payload, new.timezone, new.starts_at, new.ends_at, new.max_runs, new.catch_up,
      new.catch_up_limit, new.overlap, new.jitter, new.pause_after_failures, new.options) THEN
    PERFORM jobq_internal._change_schedule(new, old);
  END IF;
  RETURN true;
END $$;

CREATE FUNCTION jobq.alter_schedule(
  name text, cron text DEFAULT NULL, job_type text DEFAULT NULL, payload jsonb DEFAULT NULL, timezone text DEFAULT NULL,
  starts_at timestamptz DEFAULT NULL, ends_at timestamptz DEFAULT NULL, max_runs int DEFAULT NULL,
  catch_up text DEFAULT NULL, catch_up_limit int DEFAULT NULL, overlap text DEFAULT NULL, jitter interval DEFAULT NULL,
  pause_after_failures int DEFAULT NULL, options jsonb DEFAULT NULL, tenant text DEFAULT NULL, reset text[] DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';

-- Returns the schedule with the arguments named in reset set to their
-- defaults.
CREATE FUNCTION jobq_internal._reset_schedule(s jobq.schedules, reset text[], given text[]) RETURNS jobq.schedules
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  defaults jsonb := to_jsonb(jobq_internal._schedule_defaults());
  name text;
BEGIN
  FOREACH name IN ARRAY reset LOOP
    IF name IS NULL THEN
      PERFORM jobq_internal._bad('22004', 'argument "reset": an element must not be NULL');
    ELSIF name NOT IN ('payload', 'timezone', 'starts_at', 'ends_at', 'max_runs', 'catch_up', 'catch_up_limit', 'overlap',
                       'jitter', 'pause_after_failures', 'options') THEN
      PERFORM jobq_internal._bad('22023',
        format('argument "reset": "%s" is no argument with a default', jobq_internal._shown(name)));
    ELSIF name = ANY (given) THEN
      PERFORM jobq_internal._bad('22023', format('argument "reset": "%s" is given, too', name));
    END IF;
    s := jsonb_populate_record(s, jsonb_build_object(name, defaults -> name));
  END LOOP;
  RETURN s;
END $$;

-- Options are merged key by key; a JSON null removes a key.
CREATE FUNCTION jobq_internal._alter_schedule(caller oid,
  name text, cron text, job_type text, payload jsonb, timezone text, starts_at timestamptz, ends_at timestamptz,
  max_runs int, catch_up text, catch_up_limit int, overlap text, jitter interval, pause_after_failures int,
  options jsonb, tenant text, reset text[])
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  old jobq.schedules := jobq_internal._named_schedule(caller, name, tenant);
  s jobq.schedules := old;
  given text[] := ARRAY(
    SELECT a.argument FROM (VALUES
      ('cron', cron IS NOT NULL), ('job_type', job_type IS NOT NULL), ('payload', payload IS NOT NULL),
      ('timezone', timezone IS NOT NULL), ('starts_at', starts_at IS NOT NULL), ('ends_at', ends_at IS NOT NULL),
      ('max_runs', max_runs IS NOT NULL), ('catch_up', catch_up IS NOT NULL), ('catch_up_limit', catch_up_limit IS NOT NULL),
      ('overlap', overlap IS NOT NULL), ('jitter', jitter IS NOT NULL),
      ('pause_after_failures', pause_after_failures IS NOT NULL), ('options', options IS NOT NULL)) a(argument, is_given)
     WHERE a.is_given);
BEGIN
  -- jobs are enqueued with the rights of the owner
  IF jobq_internal._schedule_right(caller, old.tenant, old.job_type, old.owner_oid) = 'admin'
     AND (given || reset) && '{job_type,payload,options}' THEN
    PERFORM jobq_internal._bad('42501', format('must be owner of schedule "%s"', name),
      'Access "admin" changes all but job_type, payload and options; on_conflict => ''replace'' makes you the owner.');
  END IF;
  s.cron := coalesce(cron, s.cron);
  s.job_type := coalesce(job_type, s.job_type);
  s.payload := coalesce(payload, s.payload);
  s.timezone := coalesce(timezone, s.timezone);
  s.starts_at := coalesce(starts_at, s.starts_at);
  s.ends_at := coalesce(ends_at, s.ends_at);
  s.max_runs := coalesce(max_runs, s.max_runs);
  s.catch_up := coalesce(catch_up, s.catch_up);
  s.catch_up_limit := coalesce(catch_up_limit, s.catch_up_limit);
  s.overlap := coalesce(overlap, s.overlap);
  s.jitter := coalesce(jitter, s.jitter);
  s.pause_after_failures := coalesce(pause_after_failures, s.pause_after_failures);
  IF options IS NOT NULL THEN
    s.options := CASE WHEN jsonb_typeof(options) = 'object' THEN jobq_internal._without_nulls(s.options || options)
                      ELSE options END;
  END IF;
  IF reset IS NOT NULL THEN
    s := jobq_internal._reset_schedule(s, reset, given);
  END IF;
  IF given <> '{}' OR reset <> '{}' THEN
    PERFORM jobq_internal._change_schedule(s, old);
  END IF;
END $$;

CREATE FUNCTION jobq.unschedule(name text, tenant text DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._unschedule(caller oid, name text, tenant text) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules;
BEGIN
  PERFORM jobq_internal._check_name('schedule', name);
  s := jobq_internal._lock_schedule(caller, name, jobq_internal._schedule_tenant(tenant));
  DELETE FROM jobq.schedules x WHERE x.id = s.id;
  RETURN FOUND;
END $$;

-- Returns the ids of the schedules that pause and resume change, with their
-- rows locked: the one of that name, or all that the caller itself owns.
CREATE FUNCTION jobq_internal._lock_schedules(caller oid, name text, tenant text) RETURNS int[]
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF name IS NOT NULL THEN
    RETURN ARRAY[(jobq_internal._named_schedule(caller, name, tenant)).id];
  END IF;
  PERFORM jobq_internal._check_tenant(tenant);
  RETURN ARRAY(SELECT x.id FROM jobq.schedules x
                WHERE jobq_internal._tenant_is(x.tenant, _lock_schedules.tenant) AND x.owner_oid = caller
                ORDER BY x.id FOR UPDATE);
END $$;

CREATE FUNCTION jobq.pause_schedule(name text, reason text DEFAULT NULL, duration interval DEFAULT NULL,
                                    tenant text DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._pause_schedule(caller oid, name text, reason text, duration interval, tenant text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ids int[];
  now timestamptz := clock_timestamp();
BEGIN
  PERFORM jobq_internal._check_interval('duration', duration, false);
  IF octet_length(reason) > 8192 THEN
    PERFORM jobq_internal._bad('54000', format('argument "reason": %s bytes are more than 8192', octet_length(reason)));
  END IF;
  ids := jobq_internal._lock_schedules(caller, name, tenant);
  UPDATE jobq.schedules x
     SET status = 'paused', reason = _pause_schedule.reason, paused_until = now + duration, paused_by_jobq = false,
         next_tick = NULL, waiting_tick = NULL, updated_at = now
   WHERE x.id = ANY (ids) AND (_pause_schedule.name IS NOT NULL OR x.status <> 'finished');
END $$;

CREATE FUNCTION jobq.resume_schedule(name text, tenant text DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._resume_schedule(caller oid, name text, tenant text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ids int[] := jobq_internal._lock_schedules(caller, name, tenant);
  old jobq.schedules;
  s jobq.schedules;
  hint text;
BEGIN
  FOR old IN SELECT * FROM jobq.schedules x WHERE x.id = ANY (ids) AND x.status = 'paused' ORDER BY x.id LOOP
    s := old;
    s.status := 'active';
    s.reason := NULL;
    s.paused_until := NULL;
    s.paused_by_jobq := false;
    s.waiting_tick := NULL;
    s.failures := 0;
    BEGIN
      PERFORM jobq_internal._store_schedule(jobq_internal._plan_schedule(s, old));
    EXCEPTION WHEN OTHERS THEN
      GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
      IF _resume_schedule.name IS NULL THEN  -- one that cannot tick keeps no other one from it
        RAISE WARNING 'schedule "%" stays paused: %', s.name, SQLERRM;
        CONTINUE;
      END IF;
      PERFORM jobq_internal._bad(SQLSTATE, format('schedule "%s": %s', s.name, SQLERRM), nullif(hint, ''));
    END;
  END LOOP;
END $$;

CREATE FUNCTION jobq.run_schedule(name text, tick timestamptz DEFAULT now(), tenant text DEFAULT NULL) RETURNS uuid
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._run_schedule(caller oid, name text, tick timestamptz, tenant text) RETURNS uuid
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules;
BEGIN
  PERFORM jobq_internal._check_not_null('tick', tick IS NOT NULL), jobq_internal._check_time('tick', tick);
  s := jobq_internal._named_schedule(caller, name, tenant);
  RETURN (jobq_internal._run_ticks(s.id, ARRAY[tick]))[1];
END $$;

CREATE FUNCTION jobq.backfill_schedule(name text, since timestamptz, until timestamptz, max_runs int DEFAULT 1000,
                                       tenant text DEFAULT NULL) RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._backfill_schedule(caller oid,
  name text, since timestamptz, until timestamptz, max_runs int, tenant text) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules;
  ticks timestamptz[];
BEGIN
  PERFORM jobq_internal._check_not_null('since', since IS NOT NULL), jobq_internal._check_time('since', since),
          jobq_internal._check_not_null('until', until IS NOT NULL), jobq_internal._check_time('until', until),
          jobq_internal._check_not_null('max_runs', max_runs IS NOT NULL),
          jobq_internal._check_number('max_runs', max_runs, 1, 10000);
  IF since > until THEN
    PERFORM jobq_internal._bad('22023', format('argument "until": "%s" is before since, "%s"', until, since));
  END IF;
  s := jobq_internal._named_schedule(caller, name, tenant);
  IF jobq_internal._is_after(s.cron) THEN
    PERFORM jobq_internal._bad('22023',
      format('schedule "%s" has no ticks of its own: "%s"', name, jobq_internal._shown(s.cron)));
  END IF;
  ticks := jobq_internal._ticks_of(s, since, until, max_runs + 1);
  IF cardinality(ticks) > max_runs THEN
    PERFORM jobq_internal._bad('54000',
      format('argument "max_runs": schedule "%s" has more than %s ticks from "%s" to "%s"', name, max_runs, since, until));
  END IF;
  RETURN cardinality(jobq_internal._run_ticks(s.id, ticks));
END $$;
