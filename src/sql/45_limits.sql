
-- Limits that job types share, and the kill switch.

-- Checks that the limits named in options.limits exist.  It locks them, so
-- that no session drops one meanwhile; a session that changes one does not
-- wait.
CREATE FUNCTION jobq_internal._check_limits(options jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  limit_name text;
BEGIN
  IF jsonb_typeof(options -> 'limits') IS DISTINCT FROM 'array' THEN
    RETURN;
  ELSIF jsonb_array_length(options -> 'limits') > 8 THEN
    PERFORM jobq_internal._bad('54000', format('option "limits": %s limits are more than 8',
                                      jsonb_array_length(options -> 'limits')));
  END IF;
  FOR limit_name IN SELECT DISTINCT n FROM jsonb_array_elements_text(options -> 'limits') n ORDER BY n LOOP
    PERFORM FROM jobq.limits l WHERE l.name = limit_name FOR KEY SHARE;
    IF NOT FOUND THEN
      PERFORM jobq_internal._bad_name('limit', limit_name, 'Create it with jobq.set_limit.');
    END IF;
  END LOOP;
END $$;

CREATE FUNCTION jobq.set_limit(name text, max_concurrent int DEFAULT 0, rate_limit int DEFAULT 0,
                               rate_window interval DEFAULT '1s')
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._set_limit(caller oid, name text, max_concurrent int, rate_limit int, rate_window interval)
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  PERFORM jobq_internal._check_name('limit', _set_limit.name);
  PERFORM jobq_internal._check_not_null('max_concurrent', _set_limit.max_concurrent IS NOT NULL);
  PERFORM jobq_internal._check_not_null('rate_limit', _set_limit.rate_limit IS NOT NULL);
  PERFORM jobq_internal._check_not_null('rate_window', _set_limit.rate_window IS NOT NULL);
  PERFORM jobq_internal._check_number('max_concurrent', _set_limit.max_concurrent, 0, 1000000);
  PERFORM jobq_internal._check_number('rate_limit', _set_limit.rate_limit, 0, 10000);
  PERFORM jobq_internal._check_interval('rate_window', _set_limit.rate_window, false);
  INSERT INTO jobq.limits AS l
  VALUES (_set_limit.name, _set_limit.max_concurrent, _set_limit.rate_limit, _set_limit.rate_window)
  ON CONFLICT (name) DO UPDATE
     SET (max_concurrent, rate_limit, rate_window) =
         (excluded.max_concurrent, excluded.rate_limit, excluded.rate_window);
END $$;

CREATE FUNCTION jobq.drop_limit(name text) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._drop_limit(caller oid, name text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  users text;
BEGIN
  PERFORM jobq_internal._check_not_null('name', name IS NOT NULL);
  PERFORM FROM jobq.limits l WHERE l.name = _drop_limit.name FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM jobq_internal._bad_name('limit', name);
  END IF;
  PERFORM jobq_internal._check_snapshot('jobq.job_types');
  SELECT string_agg(format('"%s"', t.name), ', ' ORDER BY t.name) INTO users
    FROM jobq.job_types t
   WHERE t.dropped_at IS NULL AND t.options -> 'limits' ? _drop_limit.name;
  IF users IS NOT NULL THEN
    PERFORM jobq_internal._bad('55006', format('limit "%s" is in use by job type %s', name, users),
      'Take it out of their options.limits first.');
  END IF;
  DELETE FROM jobq.limits l WHERE l.name = _drop_limit.name;
END $$;

-- Returns the start times, after `since`, of jobs of a type, or of those under
-- a limit (then type_id is 0, or -1 for runs), as far as rows show them.  They are for the
-- windows of src/limits/rate_window.c, which hold `n`.  A row has its last
-- start only: its former starts count as if they had been at that moment, too.
-- If history and dead letters may lack some, all n count as started just
-- before `restart`.
CREATE FUNCTION jobq_internal._recent_starts(type_id int, limit_name text, since timestamptz, restart timestamptz, n int)
  RETURNS SETOF timestamptz LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ids int[];
  unknown boolean;
BEGIN
  SELECT array_agg(t.id),
         bool_or(t.created_at < restart AND (least(t.keep_completed, t.keep_dead) < (SELECT clock_timestamp()) - since
                                             OR t.options ?| '{keep_completed_count,keep_dead_count}'))
    INTO ids, unknown FROM jobq.job_types t
   WHERE t.id = _recent_starts.type_id
      OR (t.options -> 'limits' ? limit_name AND t.is_workflow = (_recent_starts.type_id = -1));  -- RATE_OF_RUNS
  IF unknown THEN
    RETURN QUERY SELECT restart FROM generate_series(1, n);
    RETURN;
  END IF;
  RETURN QUERY
    SELECT r.started_at
      FROM (SELECT q.started_at, q.runs FROM jobq.queue q WHERE q.type_id = ANY (ids)
             UNION ALL
            SELECT h.started_at, h.runs FROM jobq.history h WHERE h.type_id = ANY (ids) AND h.expires_at > since
             UNION ALL
            SELECT d.started_at, d.runs FROM jobq.dead_letters d WHERE d.type_id = ANY (ids)) r,
           LATERAL generate_series(1, least(greatest(r.runs, 1), n))
     WHERE r.started_at > since ORDER BY r.started_at DESC LIMIT n;
END $$;

-- The kill switch: src/limits/kill_switch.c.
CREATE FUNCTION jobq.stop_all(reason text) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._stop_all(caller oid, reason text) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO jobq.stopped (reason, since) VALUES (_stop_all.reason, clock_timestamp())
  ON CONFLICT (one) DO UPDATE SET reason = excluded.reason
$$;

CREATE FUNCTION jobq.start_all() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._start_all(caller oid) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM jobq.stopped
$$;

CREATE FUNCTION jobq_internal._wait_until_idle(timeout interval) RETURNS boolean
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_wait_until_idle';

CREATE FUNCTION jobq.drain(timeout interval DEFAULT '30s') RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._drain(caller oid, timeout interval) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  idle boolean;
BEGIN
  PERFORM jobq_internal._check_not_null('timeout', timeout IS NOT NULL);
  PERFORM jobq_internal._check_interval('timeout', timeout);
  idle := jobq_internal._wait_until_idle(timeout);
  -- Inserted only now: an uncommitted row blocks other sessions that use the
  -- switch.  A reason that is set already stays.
  INSERT INTO jobq.stopped (reason, since) VALUES ('drain', clock_timestamp()) ON CONFLICT (one) DO NOTHING;
  RETURN idle;
END $$;
