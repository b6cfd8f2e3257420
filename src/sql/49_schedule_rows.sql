-- Definitions of schedules: their checks, and the rows of jobq.schedules.

-- Returns the values for arguments of jobq.schedule() that are not given;
-- reset restores them.
CREATE FUNCTION jobq_internal._schedule_defaults() RETURNS jobq.schedules
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules;
BEGIN
  s.payload := '{}';
  s.timezone := 'UTC';
  s.catch_up := 'one';
  s.catch_up_limit := 100;
  s.overlap := 'skip';
  s.jitter := '0';
  s.options := '{}';
  RETURN s;
END $$;

-- Returns a schedule that has had no tick yet; all NOT NULL columns but those
-- of its definition have values.
CREATE FUNCTION jobq_internal._new_schedule(name text, tenant text) RETURNS jobq.schedules
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules;
BEGIN
  s.id := 0;  -- until it is stored, as home_id
  s.home_id := 0;
  s.name := name;
  s.tenant := tenant;
  s.status := 'active';
  s.runs := 0;
  s.skipped := 0;
  s.failures := 0;
  s.paused_by_jobq := false;
  s.created_at := clock_timestamp();
  s.updated_at := s.created_at;
  s.ticks_after := s.created_at;
  RETURN s;
END $$;

-- Returns the tenant that an argument means: itself, else jobq.tenant, else
-- NULL for none.  Refuses what enqueue refuses.
CREATE FUNCTION jobq_internal._schedule_tenant(tenant text) RETURNS text
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  meant text := coalesce(nullif(tenant, ''), nullif(current_setting('jobq.tenant'), ''));
BEGIN
  PERFORM jobq_internal._check_tenant(meant);
  IF regexp_replace(meant, '(.)/$', E'\\1') ~ '(^|/)[.]{0,2}(/|$)' THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "tenant": "%s" begins with a slash or has an element that is empty, "." or ".."',
             jobq_internal._shown(meant)));
  END IF;
  RETURN meant;
END $$;

CREATE FUNCTION jobq_internal._check_time(argument text, value timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT isfinite(value) THEN
    PERFORM jobq_internal._bad('22023', format('argument "%s": "%s" is no point in time', argument, value));
  END IF;
END $$;

-- Checks the values that need no other row and no cron expression.
CREATE FUNCTION jobq_internal._check_schedule_values(s jobq.schedules) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_not_null(a.name, a.given)
     FROM (VALUES ('cron', s.cron IS NOT NULL), ('job_type', s.job_type IS NOT NULL), ('payload', s.payload IS NOT NULL),
                  ('timezone', s.timezone IS NOT NULL), ('catch_up', s.catch_up IS NOT NULL),
                  ('catch_up_limit', s.catch_up_limit IS NOT NULL), ('overlap', s.overlap IS NOT NULL),
                  ('jitter', s.jitter IS NOT NULL), ('options', s.options IS NOT NULL)) a(name, given);
  PERFORM jobq_internal._check_time('starts_at', s.starts_at), jobq_internal._check_time('ends_at', s.ends_at),
          jobq_internal._check_number('max_runs', s.max_runs, 1, 2147483647),
          jobq_internal._check_choice('catch_up', s.catch_up, '{skip,one,all}'),
          jobq_internal._check_number('catch_up_limit', s.catch_up_limit, 1, 10000),
          jobq_internal._check_choice('overlap', s.overlap, '{skip,queue,allow,cancel}'),
          jobq_internal._check_number('pause_after_failures', s.pause_after_failures, 1, 2147483647);
  IF s.jitter < '0' OR s.jitter > '1 day' THEN
    PERFORM jobq_internal._bad('22023', format('argument "jitter": "%s" is outside 0..1 day', s.jitter));
  ELSIF s.ends_at < s.starts_at THEN
    PERFORM jobq_internal._bad('22023', format('argument "ends_at": "%s" is before starts_at, "%s"', s.ends_at, s.starts_at));
  END IF;
END $$;

-- True for "after 90s": its ticks depend on the ends of its jobs.
CREATE FUNCTION jobq_internal._is_after(cron text) RETURNS boolean
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT cron ~* E'^\\s*after\\M'
$$;

-- Raises 42501 if the owner is held to its grants and ticks follow each other
-- faster than options.min_interval of the job type.
CREATE FUNCTION jobq_internal._check_min_interval(s jobq.schedules) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  since timestamptz := greatest(s.ticks_after, s.starts_at);
  ticks timestamptz[];
  least_gap interval;
  gap interval;
BEGIN
  IF jobq_internal._is_free(s.owner_oid) THEN
    RETURN;
  END IF;
  SELECT coalesce((t.options ->> 'min_interval')::interval, '1 min') INTO least_gap
    FROM jobq.job_types t WHERE t.name = s.job_type AND t.dropped_at IS NULL;
  IF jobq_internal._is_after(s.cron) THEN
    ticks := ARRAY(SELECT jobq.next_runs(regexp_replace(s.cron, E'^\\s*after', 'every', 'i'), n => 2));
  ELSE
    ticks := jobq_internal._ticks_of(s, since, since + interval '100 years', 100);
  END IF;
  SELECT min(g.gap) INTO gap FROM (SELECT t - lag(t) OVER (ORDER BY t) FROM unnest(ticks) t) g(gap);
  IF gap < least_gap THEN
    PERFORM jobq_internal._bad('42501',
      format('argument "cron": ticks of "%s" are %s apart, job type "%s" allows %s', jobq_internal._shown(s.cron), gap,
             s.job_type, least_gap),
      'The owner of the schedule is held to its grants: options.min_interval of the job type is the least interval.');
  END IF;
END $$;

-- Checks a definition, and sets status and next_tick by it.  old: the stored
-- row, NULL for a new schedule.  Ticks begin now when those of the definition
-- have changed, and when the schedule did not run before.
CREATE FUNCTION jobq_internal._plan_schedule(s jobq.schedules, old jobq.schedules) RETURNS jobq.schedules
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  moved boolean := (s.cron, s.timezone, s.starts_at) IS DISTINCT FROM (old.cron, old.timezone, old.starts_at);
  begins boolean := moved OR old.status = 'finished' OR (old.status = 'paused' AND s.status = 'active');
  next timestamptz;
BEGIN
  PERFORM jobq_internal._check_schedule_values(s);
  IF begins AND old.id IS NOT NULL THEN
    s.ticks_after := greatest(s.ticks_after, clock_timestamp());
  END IF;
  next := jobq_internal._check_schedule(s);
  PERFORM jobq_internal._check_min_interval(s);
  IF next IS NULL AND (moved OR s.ends_at IS DISTINCT FROM old.ends_at) THEN
    PERFORM jobq_internal._bad('22023', CASE WHEN s.ends_at IS NULL
      THEN format('argument "cron": "%s" has no tick', jobq_internal._shown(s.cron))
      ELSE format('argument "ends_at": "%s" has no tick before it', s.ends_at) END);
  ELSIF s.status <> 'paused' THEN
    s.status := CASE WHEN next IS NULL OR s.runs >= s.max_runs THEN 'finished' ELSE 'active' END;
  END IF;
  s.next_tick := CASE
    WHEN s.status <> 'active' THEN NULL
    WHEN NOT jobq_internal._is_after(s.cron) THEN next
    WHEN NOT begins THEN old.next_tick
    -- the end of a live job decides
    WHEN NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = s.last_job_id) THEN next END;
  RETURN s;
END $$;

-- Returns the schedule, without a lock; NULL: there is none.
CREATE FUNCTION jobq_internal._find_schedule(name text, tenant text) RETURNS jobq.schedules
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules;
BEGIN
  IF tenant IS NULL THEN  -- each query is one that the index serves
    SELECT * INTO s FROM jobq.schedules x WHERE x.tenant IS NULL AND x.name = _find_schedule.name;
  ELSE
    SELECT * INTO s FROM jobq.schedules x WHERE x.tenant = _find_schedule.tenant AND x.name = _find_schedule.name;
  END IF;
  RETURN s;
END $$;

-- Returns the schedule with its row locked; NULL: there is none that the
-- caller may see.  42501 if the caller may not change it.  A caller without
-- the right locks no row.
CREATE FUNCTION jobq_internal._lock_schedule(caller oid, name text, tenant text) RETURNS jobq.schedules
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s jobq.schedules := jobq_internal._find_schedule(name, tenant);
BEGIN
  IF jobq_internal._schedule_right(caller, s.tenant, s.job_type, s.owner_oid) = 'read' THEN
    PERFORM jobq_internal._bad('42501', format('must be owner of schedule "%s"', s.name));
  END IF;
  SELECT * INTO s FROM jobq.schedules x
   WHERE x.id = s.id AND jobq_internal._schedule_right(caller, x.tenant, x.job_type, x.owner_oid) IN ('own', 'admin')
     FOR UPDATE;
  RETURN s;
END $$;

-- The same for the arguments of a call; 42704 when there is none.
CREATE FUNCTION jobq_internal._named_schedule(caller oid, name text, tenant text) RETURNS jobq.schedules
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  of_tenant text := jobq_internal._schedule_tenant(tenant);
  s jobq.schedules;
BEGIN
  PERFORM jobq_internal._check_name('schedule', name);
  s := jobq_internal._lock_schedule(caller, name, of_tenant);
  IF s.id IS NULL THEN
    PERFORM jobq_internal._bad('42704', CASE WHEN of_tenant IS NULL THEN format('schedule "%s" does not exist', name)
      ELSE format('schedule "%s" of tenant "%s" does not exist', name, jobq_internal._shown(of_tenant)) END);
  END IF;
  RETURN s;
END $$;

-- Refuses a new schedule, which is in the table, above jobq.max_schedules or a
-- tenant's max_schedules.
CREATE FUNCTION jobq_internal._check_schedule_limits(id int, tenant text) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_check_schedule_limits';

-- Stores a new schedule; false: the name exists.
CREATE FUNCTION jobq_internal._add_schedule(s jobq.schedules) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- columns that the owner of the table has added get their defaults
  INSERT INTO jobq.schedules (name, cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up,
                              catch_up_limit, overlap, jitter, pause_after_failures, options, tenant, owner, status,
                              next_tick, created_at, updated_at, ticks_after)
  VALUES (s.name, s.cron, s.job_type, s.payload, s.timezone, s.starts_at, s.ends_at, s.max_runs, s.catch_up,
          s.catch_up_limit, s.overlap, s.jitter, s.pause_after_failures, s.options, s.tenant, s.owner, s.status,
          s.next_tick, s.created_at, s.created_at, s.ticks_after)
  ON CONFLICT DO NOTHING RETURNING id INTO s.id;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- the trigger has found the owner by name, which another role may have got a
  -- moment ago
  UPDATE jobq.schedules x SET owner_oid = s.owner_oid WHERE x.id = s.id AND x.owner_oid <> s.owner_oid;
  PERFORM jobq_internal._check_schedule_limits(s.id, s.tenant);
  RETURN true;
END $$;

-- Writes a changed definition; runs and last_tick stay.
CREATE FUNCTION jobq_internal._store_schedule(s jobq.schedules) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE jobq.schedules SET
    (cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up, catch_up_limit, overlap, jitter,
     pause_after_failures, options, owner, owner_oid, status, reason, paused_until, paused_by_jobq, next_tick, ticks_after,
     waiting_tick, failures, updated_at) =
    ROW (s.cron, s.job_type, s.payload, s.timezone, s.starts_at, s.ends_at, s.max_runs, s.catch_up, s.catch_up_limit,
     s.overlap, s.jitter, s.pause_after_failures, s.options, s.owner, s.owner_oid, s.status, s.reason, s.paused_until,
     s.paused_by_jobq, s.next_tick, s.ticks_after, s.waiting_tick, s.failures, clock_timestamp())
   WHERE id = s.id
$$;

-- Stores a definition.
CREATE FUNCTION jobq_internal._change_schedule(s jobq.schedules, old jobq.schedules) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF s.pause_after_failures IS DISTINCT FROM old.pause_after_failures THEN
    s.failures := 0;
  END IF;
  PERFORM jobq_internal._store_schedule(jobq_internal._plan_schedule(s, old));
END $$;
