
-- Functions about the server and the extension.

-- src/observe/health.c, src/lifecycle/launcher.c
CREATE FUNCTION jobq.health() RETURNS jsonb
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_health';
-- src/observe/metrics.c
CREATE FUNCTION jobq.metrics(format text DEFAULT 'prometheus') RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_metrics';

CREATE FUNCTION jobq.reload() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_reload';

-- src/maintenance/compaction.c
CREATE FUNCTION jobq.compact() RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_compact';

-- src/dispatch/notify.c
CREATE FUNCTION jobq.channel(job_type text) RETURNS text
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_channel';

CREATE FUNCTION jobq.version() RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT extversion FROM pg_extension WHERE extname = 'jobq'
$$;

-- Returns enqueued_by with the oid that the role of that name has here, or 0.
CREATE FUNCTION jobq_internal._enqueuer_here(enqueued_by text) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT jobq_internal._find_role(n.name) || ':' || n.name
    FROM substr(_enqueuer_here.enqueued_by, strpos(_enqueuer_here.enqueued_by, ':') + 1) n(name)
$$;

-- Updates the names of renamed roles.  A row that another transaction has
-- locked is left to the next run.
CREATE FUNCTION jobq_internal._follow_renamed_roles() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT jobq_internal._home_is_ours() THEN
    RETURN;
  END IF;
  UPDATE jobq.job_types t SET owner = n.owner, run_as = n.run_as
    FROM (SELECT j.id, coalesce(o.rolname, j.owner) AS owner, coalesce(r.rolname, j.run_as) AS run_as
            FROM jobq.job_types j
            LEFT JOIN pg_roles o ON o.oid = j.owner_oid LEFT JOIN pg_roles r ON r.oid = j.run_as_oid
           WHERE o.rolname <> j.owner OR r.rolname <> j.run_as
             FOR UPDATE OF j SKIP LOCKED) n
   WHERE t.id = n.id;
  UPDATE jobq.signals s SET definer = n.definer
    FROM (SELECT g.id, d.rolname AS definer FROM jobq.signals g JOIN pg_roles d ON d.oid = g.definer_oid
           WHERE d.rolname <> g.definer FOR UPDATE OF g SKIP LOCKED) n
   WHERE s.id = n.id;
  UPDATE jobq.schedules s SET owner = n.owner
    FROM (SELECT c.id, o.rolname AS owner FROM jobq.schedules c JOIN pg_roles o ON o.oid = c.owner_oid
           WHERE o.rolname <> c.owner FOR UPDATE OF c SKIP LOCKED) n
   WHERE s.id = n.id;
END $$;

-- Finds the roles of a restored dump by their names: those of all rows, or of
-- rows that had no role before.  Warns of names that no role has.
CREATE FUNCTION jobq_internal._find_roles_here(all_rows boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  missing text;
  pattern text := CASE WHEN all_rows THEN '%' ELSE '0:%' END;
BEGIN
  UPDATE jobq.job_types t
     SET owner_oid = CASE WHEN all_rows OR t.owner_oid = 0 THEN jobq_internal._find_role(t.owner) ELSE t.owner_oid END,
         run_as_oid = CASE WHEN all_rows OR t.run_as_oid = 0 THEN jobq_internal._find_role(t.run_as) ELSE t.run_as_oid END
   WHERE all_rows OR 0 IN (t.owner_oid, t.run_as_oid);
  UPDATE jobq.signals s SET definer_oid = jobq_internal._find_role(s.definer)
   WHERE s.definer IS NOT NULL AND (all_rows OR s.definer_oid = 0);
  UPDATE jobq.schedules s SET owner_oid = jobq_internal._find_role(s.owner)
   WHERE (all_rows OR s.owner_oid = 0) AND s.owner_oid <> jobq_internal._find_role(s.owner);
  UPDATE jobq.queue q SET enqueued_by = jobq_internal._enqueuer_here(q.enqueued_by)
   WHERE q.enqueued_by LIKE pattern AND q.enqueued_by <> jobq_internal._enqueuer_here(q.enqueued_by);
  UPDATE jobq.history h SET enqueued_by = jobq_internal._enqueuer_here(h.enqueued_by)
   WHERE h.enqueued_by LIKE pattern AND h.enqueued_by <> jobq_internal._enqueuer_here(h.enqueued_by);
  UPDATE jobq.dead_letters d SET enqueued_by = jobq_internal._enqueuer_here(d.enqueued_by)
   WHERE d.enqueued_by LIKE pattern AND d.enqueued_by <> jobq_internal._enqueuer_here(d.enqueued_by);
  SELECT string_agg(DISTINCT format('"%s"', n.name), ', ') INTO missing
    FROM (SELECT t.owner FROM jobq.job_types t WHERE t.owner_oid = 0 AND t.dropped_at IS NULL
          UNION ALL SELECT t.run_as FROM jobq.job_types t WHERE t.run_as_oid = 0 AND t.dropped_at IS NULL
          UNION ALL SELECT s.definer FROM jobq.signals s WHERE s.definer_oid = 0
          UNION ALL SELECT s.owner FROM jobq.schedules s WHERE s.owner_oid = 0) n(name);
  IF missing IS NOT NULL THEN
    RAISE WARNING 'no role has the name of an owner or run_as of a job type, a definer of a signal or an owner of a schedule: %', missing
      USING HINT = 'Create the roles and call jobq.adopt() again, or change the job types and schedules.';
  END IF;
END $$;

-- Returns the next tick of an adopted schedule; NULL: none, or its definition
-- is not valid here.
CREATE FUNCTION jobq_internal._adopted_tick(s jobq.schedules) RETURNS timestamptz
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF s.status = 'active' AND NOT (jobq_internal._is_after(s.cron) AND EXISTS (SELECT FROM jobq.queue q WHERE q.id = s.last_job_id)) THEN
    RETURN jobq_internal._check_schedule(s);
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

-- Makes the schedules of another database those of this one.  Ticks begin now:
-- those before are the original's.
CREATE FUNCTION jobq_internal._adopt_schedules() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  home int := (SELECT max(h.home_id) FROM jobq.home h);
  s jobq.schedules;
BEGIN
  FOR s IN SELECT * FROM jobq.schedules x WHERE x.home_id <> home LOOP
    s.ticks_after := greatest(s.ticks_after, clock_timestamp());
    UPDATE jobq.schedules x
       SET home_id = home, ticks_after = s.ticks_after, waiting_tick = NULL, next_tick = jobq_internal._adopted_tick(s)
     WHERE x.id = s.id;
  END LOOP;
END $$;

-- Takes over the jobs of a restored dump, which stays paused because its home
-- row names a transaction of another database.  The new home row makes all
-- jobs those of this database.  Jobs keep their state: a waiting one waits, a
-- running one has lost its worker.
CREATE FUNCTION jobq.adopt() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._adopt(caller oid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  restored boolean := false;
  copied boolean := false;
BEGIN
  LOCK TABLE jobq.home IN EXCLUSIVE MODE;
  IF NOT jobq_internal._home_is_ours() THEN
    -- a copy made with TEMPLATE keeps xmin: its oids are those of its roles
    restored := EXISTS (SELECT FROM jobq.home h WHERE h.xmin <> h.self_xid::xid);
    DELETE FROM jobq.home;
    INSERT INTO jobq.home (home_id, self_xid, database)
    SELECT 1 + floor(random() * 2147483646)::int, pg_current_xact_id(), d.oid
      FROM pg_database d WHERE d.datname = current_database();
    copied := NOT restored;
  END IF;
  UPDATE jobq.queue q
     SET home_id = h.home_id,
         enqueued_by = CASE WHEN copied THEN q.enqueued_by ELSE jobq_internal._enqueuer_here(q.enqueued_by) END
    FROM jobq.home h WHERE q.home_id <> h.home_id;
  PERFORM jobq_internal._count_queue(t.tenant) FROM jobq.tenant_quotas t;
  PERFORM jobq_internal._protect_partition(p.partition, p.parent) FROM jobq_internal._exposed_partitions() p;
  PERFORM jobq_internal._find_roles_here(restored);
  PERFORM jobq_internal._adopt_schedules();
  -- fires the statement trigger: the dispatcher reads again
  UPDATE jobq.job_types SET paused = paused WHERE false;
END $$;
