
-- Functions about the server and the extension.

-- src/observe/health.c, src/lifecycle/launcher.c
CREATE FUNCTION jobq.health() RETURNS jsonb
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_health';
-- src/observe/metrics.c
CREATE FUNCTION jobq.metrics(format text DEFAULT 'prometheus') RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_metrics';

-- src/observe/why.c
CREATE FUNCTION jobq.why(id uuid) RETURNS jsonb
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_why';

-- src/observe/resources.c: the jobs that executors run now; the disk as last
-- measured; the weight of running jobs.
CREATE FUNCTION jobq_internal._running_jobs() RETURNS SETOF uuid
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_running_jobs';
CREATE FUNCTION jobq_internal._disk_level(OUT level text, OUT percent float8)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_disk_level';
CREATE FUNCTION jobq_internal._weight(OUT used int, OUT max int)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_weight';

-- Returns the pressure rules of a type, 0: of every type.
CREATE FUNCTION jobq_internal._rules_of(type_id int) RETURNS jsonb
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(jsonb_agg(jsonb_build_object('signal', p.signal, 'priority_adj', p.priority_adj, 'block', p.block,
                                               'max_weight', p.max_weight) ORDER BY p.signal), '[]')
    FROM jobq.pressure_rules p WHERE p.type_id = _rules_of.type_id
$$;

CREATE FUNCTION jobq.resources() RETURNS jsonb
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
-- Types, rules and signals are those that the caller may know; the paths of
-- disks are for readers of all tenants, as jobq.disk_log is.
CREATE FUNCTION jobq_internal._resources(caller oid) RETURNS jsonb
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT jsonb_build_object(
    'disk', (SELECT jsonb_build_object('level', d.level, 'percent', round(d.percent::numeric, 2),
                      'file_systems', CASE WHEN jobq_internal._reads_all(caller) THEN
                        (SELECT jsonb_agg(to_jsonb(l) ORDER BY l.path)
                           FROM (SELECT DISTINCT ON (g.path) g.path, g.ts, g.total_bytes, g.used_bytes, g.percent, g.level
                                   FROM jobq.disk_log g ORDER BY g.path, g.ts DESC) l) END)
               FROM jobq_internal._disk_level() d),
    'signals', (SELECT coalesce(jsonb_agg(to_jsonb(s) ORDER BY s.name), '[]')
                  FROM (SELECT n.name, n.active AND coalesce(n.active_until > (SELECT clock_timestamp()), true) AS active,
                               n.active_until, n.condition IS NOT NULL AS has_condition, false AS builtin FROM jobq.signals n
                        UNION ALL
                        SELECT b.name, true, NULL, false, true FROM jobq_internal._builtin_signals() b(name)) s),
    'weight', (SELECT jsonb_build_object('used', w.used, 'max', w.max) FROM jobq_internal._weight() w),
    'rules', (SELECT coalesce(jsonb_agg(to_jsonb(r) ORDER BY r.job_type NULLS FIRST), '[]')
                FROM (SELECT t.name AS job_type, t.base_priority, t.cpu_weight, t.max_concurrent,
                             extract(epoch FROM t.timeout)::float8 AS timeout_seconds, jobq_internal._rules_of(t.id) AS signals
                        FROM jobq.job_types t WHERE t.dropped_at IS NULL AND jobq_internal._knows_type(caller, t.name)
                      UNION ALL
                      SELECT NULL, NULL, NULL, NULL, NULL, jobq_internal._rules_of(0)
                       WHERE EXISTS (SELECT FROM jobq.pressure_rules p WHERE p.type_id = 0)) r),
    'running', (SELECT coalesce(jsonb_agg(to_jsonb(j) ORDER BY j.started_at), '[]')
                  FROM (SELECT q.id, t.name AS job_type, q.tenant, q.priority, t.cpu_weight,
                               jobq_internal._live_started_at(q.id, q.rev, q.status, q.started_at) AS started_at,
                               jobq_internal._live_worker(q.id, q.rev, q.status, q.worker) AS worker
                          FROM jobq_internal._running_jobs() i(id) JOIN jobq.queue q ON q.id = i.id
                          JOIN jobq.job_types t ON t.id = q.type_id
                         WHERE jobq_internal._sees(caller, q.tenant, q.type_id, q.enqueued_by)) j))
$$;

CREATE FUNCTION jobq.reload() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_reload';

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
  IF NOT jobq_internal._rows_are_ours() THEN
    RETURN;
  END IF;
  -- An UPDATE of no row would fire the statement's trigger, too: the dispatcher
  -- would read the types again, and ask for maintenance again.
  IF EXISTS (SELECT FROM jobq.job_types j
               LEFT JOIN pg_roles o ON o.oid = j.owner_oid LEFT JOIN pg_roles r ON r.oid = j.run_as_oid
              WHERE o.rolname <> j.owner OR r.rolname <> j.run_as) THEN
    UPDATE jobq.job_types t SET owner = n.owner, run_as = n.run_as
      FROM (SELECT j.id, coalesce(o.rolname, j.owner) AS owner, coalesce(r.rolname, j.run_as) AS run_as
              FROM jobq.job_types j
              LEFT JOIN pg_roles o ON o.oid = j.owner_oid LEFT JOIN pg_roles r ON r.oid = j.run_as_oid
             WHERE o.rolname <> j.owner OR r.rolname <> j.run_as
               FOR UPDATE OF j SKIP LOCKED) n
     WHERE t.id = n.id;
  END IF;
  IF EXISTS (SELECT FROM jobq.signals g JOIN pg_roles d ON d.oid = g.definer_oid WHERE d.rolname <> g.definer) THEN
    UPDATE jobq.signals s SET definer = n.definer
      FROM (SELECT g.id, d.rolname AS definer FROM jobq.signals g JOIN pg_roles d ON d.oid = g.definer_oid
             WHERE d.rolname <> g.definer FOR UPDATE OF g SKIP LOCKED) n
     WHERE s.id = n.id;
  END IF;
  UPDATE jobq.schedules s SET owner = n.owner
    FROM (SELECT c.id, o.rolname AS owner FROM jobq.schedules c JOIN pg_roles o ON o.oid = c.owner_oid
           WHERE o.rolname <> c.owner FOR UPDATE OF c SKIP LOCKED) n
   WHERE s.id = n.id;
  UPDATE jobq.workflows w SET created_by = n.definer
    FROM (SELECT v.type_id, v.version, d.rolname AS definer FROM jobq.workflows v JOIN pg_roles d ON d.oid = v.definer_oid
           WHERE d.rolname <> v.created_by FOR UPDATE OF v SKIP LOCKED) n
   WHERE (w.type_id, w.version) = (n.type_id, n.version);
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
  UPDATE jobq.workflows w SET definer_oid = jobq_internal._find_role(w.created_by)
   WHERE (all_rows OR w.definer_oid = 0) AND w.definer_oid <> jobq_internal._find_role(w.created_by);
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
          UNION ALL SELECT s.owner FROM jobq.schedules s WHERE s.owner_oid = 0
          UNION ALL SELECT w.created_by FROM jobq.workflows w WHERE w.definer_oid = 0) n(name);
  IF missing IS NOT NULL THEN
    RAISE WARNING 'no role has the name of an owner or run_as of a job type, a definer of a signal or workflow, or an owner of a schedule: %', missing
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

-- Notes the types whose jobs use unique_for, for rows that no enqueue here wrote.
CREATE FUNCTION jobq_internal._note_unique_for() RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO jobq.unique_for_types (type_id)
  SELECT t.id FROM jobq.job_types t
   WHERE NOT EXISTS (SELECT FROM jobq.unique_for_types u WHERE u.type_id = t.id)
     AND (EXISTS (SELECT FROM jobq.queue q WHERE q.type_id = t.id AND q.unique_key IS NOT NULL AND q.unique_for IS NOT NULL)
          OR EXISTS (SELECT FROM jobq.history h WHERE h.type_id = t.id AND h.unique_until IS NOT NULL)
          OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.type_id = t.id AND d.unique_until IS NOT NULL));
$$;

-- Takes over the jobs of a restored dump, which stays paused because its home
-- row names a transaction of another database.  The new home row makes all
-- jobs those of this database.  Jobs keep their state: a waiting one waits, a
-- running one has lost its worker.  The call waits for open transactions that
-- have written jobs or schedules, also for prepared ones.
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
    -- open transactions have written rows with the former home
    LOCK TABLE jobq.queue, jobq.schedules IN SHARE ROW EXCLUSIVE MODE;
    PERFORM jobq_internal._check_snapshot('jobq.queue'), jobq_internal._check_snapshot('jobq.schedules');
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
         enqueued_by = CASE WHEN copied THEN q.enqueued_by ELSE jobq_internal._enqueuer_here(q.enqueued_by) END,
         -- leases of the original end here: no client has this token, and it names no session
         lease_token = CASE WHEN q.lease_token IS NOT NULL THEN ('00' || substr(gen_random_uuid()::text, 3))::uuid END,
         lease_expires_at = least(q.lease_expires_at, clock_timestamp())
    FROM jobq.home h WHERE q.home_id <> h.home_id;
  PERFORM jobq_internal._count_queue(t.tenant) FROM jobq.tenant_quotas t WHERE coalesce(t.max_live, t.max_bytes) IS NOT NULL;
  PERFORM jobq_internal._protect_partition(p.partition, p.parent) FROM jobq_internal._exposed_partitions() p;
  PERFORM jobq_internal._identify_tables();
  PERFORM jobq_internal._find_roles_here(restored);
  PERFORM jobq_internal._grant_again();
  PERFORM jobq_internal._adopt_schedules();
  PERFORM jobq_internal._note_unique_for();
  -- fires the statement trigger: the dispatcher reads again
  UPDATE jobq.job_types SET paused = paused WHERE false;
END $$;
