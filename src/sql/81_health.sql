-- What jobq.health() reads from tables (src/observe/health_facts.c), which sets
-- search_path, lock_timeout and the planner for all of it: an index, never a
-- scan of a table.  sees_all: the caller may read every job.  Tables whose lock
-- does not matter now are in statements that are not reached then.

-- Returns the type and the place of the first job of each lane, by the lane
-- index: ORDER BY ... LIMIT 1 reads one entry, however many jobs wait.
CREATE FUNCTION jobq_internal._lane_heads() RETURNS TABLE(type_id int4, priority int2, sublane int2)
  LANGUAGE sql STABLE ROWS 100 SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE lane(type_id, at) AS (
    SELECT t.id, (SELECT ARRAY[q.priority, q.sublane] FROM jobq.queue q WHERE q.type_id = t.id
                   ORDER BY q.priority DESC, q.sublane LIMIT 1)
      FROM jobq.job_types t
    UNION ALL
    SELECT l.type_id, coalesce(
      (SELECT ARRAY[q.priority, q.sublane] FROM jobq.queue q
        WHERE q.type_id = l.type_id AND q.priority = l.at[1] AND q.sublane > l.at[2]
        ORDER BY q.sublane LIMIT 1),
      (SELECT ARRAY[q.priority, q.sublane] FROM jobq.queue q
        WHERE q.type_id = l.type_id AND q.priority < l.at[1]
        ORDER BY q.priority DESC, q.sublane LIMIT 1))
      FROM lane l WHERE l.at IS NOT NULL)
  SELECT l.type_id, l.at[1], l.at[2] FROM lane l WHERE l.at IS NOT NULL
$$;

-- Returns the due job that has waited longest, and the paused types that have
-- one, with the first of the pauses.  types, priorities, sublanes: the lanes.
CREATE FUNCTION jobq_internal._health_waiting(sees_all boolean, caller oid, types int4[], priorities int2[], sublanes int2[], OUT oldest_id text, OUT oldest_s float8, OUT paused text,
                                              OUT paused_since timestamptz)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH head AS MATERIALIZED (
    SELECT h.id, h.position,
           CASE WHEN t.paused AND (t.paused_until IS NULL OR t.paused_until > (SELECT clock_timestamp())) THEN t.name END AS paused, t.paused_at
      FROM unnest(types, priorities, sublanes) l(type_id, priority, sublane) JOIN jobq.job_types t ON t.id = l.type_id
     CROSS JOIN LATERAL (SELECT q.id, q.position FROM jobq.queue q
                          WHERE q.type_id = l.type_id AND q.priority = l.priority AND q.sublane = l.sublane
                            AND jobq_internal._live_status(q.id, q.rev, q.status) IN ('pending', 'retry')
                            AND q.position <= (SELECT clock_timestamp())
                            AND (sees_all OR jobq_internal._sees(caller, q.tenant, q.type_id, q.enqueued_by))
                          ORDER BY q.position LIMIT 1) h),
  oldest AS (SELECT h.id, h.position FROM head h WHERE h.paused IS NULL ORDER BY h.position LIMIT 1)
  SELECT (SELECT o.id::text FROM oldest o),
         (SELECT extract(epoch FROM clock_timestamp() - o.position)::float8 FROM oldest o),
         (SELECT string_agg(DISTINCT format('"%s"', h.paused) COLLATE "C", ', ') FROM head h WHERE h.paused IS NOT NULL),
         (SELECT min(h.paused_at) FROM head h WHERE h.paused IS NOT NULL)
$$;

-- Returns the number of dead letters.
CREATE FUNCTION jobq_internal._health_dead_letters(sees_all boolean, caller oid) RETURNS int8
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF sees_all THEN
    RETURN (SELECT coalesce(sum(c.change), 0) FROM jobq.dead_letter_count c);
  END IF;
  RETURN (SELECT count(*) FROM jobq.dead_letters d WHERE jobq_internal._sees(caller, d.tenant, d.type_id, d.enqueued_by));
END $$;

-- The same of those that died after `since`, max_rows at most: of each type
-- that has some, an index entry each.  With the first of them.
CREATE FUNCTION jobq_internal._health_recent_dead_letters(sees_all boolean, caller oid, since timestamptz, max_rows int,
                                                          OUT n int8, OUT first timestamptz)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_sort = off AS $$
  WITH RECURSIVE t(id) AS (
    SELECT min(d.type_id) FROM jobq.dead_letters d
    UNION ALL SELECT (SELECT min(d.type_id) FROM jobq.dead_letters d WHERE d.type_id > t.id) FROM t WHERE t.id IS NOT NULL)
  SELECT count(*), min(r.completed_at) FROM (
    SELECT d.completed_at FROM t CROSS JOIN LATERAL (SELECT d.completed_at FROM jobq.dead_letters d
      WHERE d.type_id = t.id AND d.completed_at > since
        AND (sees_all OR jobq_internal._sees(caller, d.tenant, d.type_id, d.enqueued_by))
      ORDER BY d.completed_at DESC, d.id DESC LIMIT max_rows) d  -- the order of the type's index, not of that by time
    LIMIT max_rows) r
$$;

-- Returns dead letters that jobs have waited for too long, among the first 1,000
-- parents of edges; if there are more parents, also among the 1,000 newest dead
-- letters.
CREATE FUNCTION jobq_internal._health_holding(sees_all boolean, caller oid) RETURNS SETOF uuid
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_sort = off AS $$
  WITH RECURSIVE parent(id, n) AS (
    SELECT (SELECT e.parent_id FROM jobq.dependencies e ORDER BY e.parent_id LIMIT 1), 1
    UNION ALL SELECT (SELECT e.parent_id FROM jobq.dependencies e WHERE e.parent_id > p.id ORDER BY e.parent_id LIMIT 1), p.n + 1
      FROM parent p WHERE p.id IS NOT NULL AND p.n < 1000),
  t(id) AS (
    SELECT min(d.type_id) FROM jobq.dead_letters d WHERE NOT EXISTS (SELECT FROM parent p WHERE p.id IS NULL)
    UNION ALL SELECT (SELECT min(d.type_id) FROM jobq.dead_letters d WHERE d.type_id > t.id) FROM t WHERE t.id IS NOT NULL),
  dead AS (
    SELECT d.* FROM parent p CROSS JOIN LATERAL (SELECT l.id, l.tenant, l.type_id, l.enqueued_by, l.completed_at FROM jobq.dead_letters l
      WHERE l.id = p.id OFFSET 0) d
    UNION
    (SELECT d.* FROM t CROSS JOIN LATERAL (SELECT l.id, l.tenant, l.type_id, l.enqueued_by, l.completed_at FROM jobq.dead_letters l
      WHERE l.type_id = t.id AND l.completed_at < (SELECT clock_timestamp()) - interval '1 hour'
      ORDER BY l.completed_at DESC, l.id DESC LIMIT 1000) d LIMIT 1000))
  SELECT d.id FROM dead d
   WHERE d.completed_at < (SELECT clock_timestamp()) - interval '1 hour'
     AND EXISTS (SELECT FROM jobq.dependencies e JOIN jobq.queue q ON q.id = e.child_id
                  WHERE e.parent_id = d.id AND q.status = 'blocked' AND q.after_rule = 'success'
                    AND q.created_at < (SELECT clock_timestamp()) - interval '1 hour')  -- it may be newer than its parent's end
     AND (sees_all OR jobq_internal._sees(caller, d.tenant, d.type_id, d.enqueued_by))
   ORDER BY 1 DESC LIMIT 10
$$;

CREATE FUNCTION jobq_internal._health_types() RETURNS TABLE(name text, is_exec boolean, is_paused boolean)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT t.name, t.command IS NOT NULL, t.paused AND (t.paused_until IS NULL OR t.paused_until > (SELECT clock_timestamp()))
    FROM jobq.job_types t WHERE t.dropped_at IS NULL ORDER BY t.name COLLATE "C"
$$;

-- Returns those of the types, whose tools can't be started, that are there
-- still, with what their jobs say, which tried last.
CREATE FUNCTION jobq_internal._health_unstartable(types int4[], jobs uuid[], OUT names text, OUT n int8)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT string_agg(format('"%s"%s', t.name, ': ' || q.error_msg), '; ' ORDER BY t.name COLLATE "C"), count(*)
    FROM unnest(types, jobs) u(type_id, job) JOIN jobq.job_types t ON t.id = u.type_id AND t.dropped_at IS NULL
    LEFT JOIN jobq.queue q ON q.id = u.job AND q.error_code IS NULL
$$;

-- Returns the names of those of the pull types that have due jobs; NULL: none has.
-- `more` are not listed.  types, priorities, sublanes: the lanes.
CREATE FUNCTION jobq_internal._health_unclaimed(pulled int4[], more int, types int4[], priorities int2[], sublanes int2[]) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT string_agg(format('"%s"', t.name), ', ' ORDER BY t.name COLLATE "C") || CASE WHEN more > 0 THEN format(' and %s more', more) ELSE '' END
    FROM jobq.job_types t
   WHERE t.id = ANY (pulled) AND EXISTS (
     SELECT FROM unnest(types, priorities, sublanes) l(type_id, priority, sublane)
      CROSS JOIN LATERAL (SELECT FROM jobq.queue q
                           WHERE q.type_id = l.type_id AND q.priority = l.priority AND q.sublane = l.sublane
                             AND q.status IN ('pending', 'retry') AND q.position <= (SELECT clock_timestamp()) LIMIT 1) h
      WHERE l.type_id = t.id)
$$;

-- Returns concurrency keys that due jobs have waited for too long.  Other jobs
-- pass a job that waits for its key, so it is among the first of its lane.
-- types, priorities, sublanes: the lanes; behind: another job of the key goes
-- before it.
CREATE FUNCTION jobq_internal._health_keys(sees_all boolean, caller oid, types int4[], priorities int2[], sublanes int2[])
  RETURNS TABLE(key_hash int8, concurrency_key text, per_key int, behind boolean)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT o.key_hash, o.concurrency_key,
         min(coalesce((t.options ->> 'concurrency_per_key')::int, 1)),
         coalesce(bool_or(t.options ->> 'key_order' = 'fifo' AND EXISTS (
           SELECT FROM jobq.queue r WHERE r.key_hash = o.key_hash AND r.key_since < o.key_since)), false)
    FROM unnest(types, priorities, sublanes) l(type_id, priority, sublane) JOIN jobq.job_types t ON t.id = l.type_id
   CROSS JOIN LATERAL (SELECT q.* FROM jobq.queue q
                        WHERE q.type_id = l.type_id AND q.priority = l.priority AND q.sublane = l.sublane
                          AND q.position < (SELECT clock_timestamp()) - interval '1 hour'
                        ORDER BY q.position LIMIT 20) o
   WHERE o.key_hash IS NOT NULL AND NOT (t.paused AND (t.paused_until IS NULL OR t.paused_until > (SELECT clock_timestamp())))
     AND jobq_internal._live_status(o.id, o.rev, o.status) IN ('pending', 'retry')
     AND (sees_all OR jobq_internal._sees(caller, o.tenant, o.type_id, o.enqueued_by))
   GROUP BY 1, 2 ORDER BY 2
$$;

-- Returns what holds back the removal of dead rows in this database, of catalogs
-- alone last.  A slot and the feedback of a standby have no time of their own:
-- the one that holds the horizon has held it since that stands still.
CREATE FUNCTION jobq_internal._health_holder(horizon xid, horizon_s float8, catalog_horizon xid, catalog_horizon_s float8)
  RETURNS TABLE(holder text, since_s float8, xids int8, lever text)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT h.holder, h.since_s::float8, h.xids::int8,
         format('keeps dead rows%s: ', CASE WHEN h.catalogs THEN ' of the system catalogs' ELSE ', also of jobq.queue' END) || h.lever
    FROM (
    SELECT format('%s with PID %s (%s)%s', a.backend_type, a.pid, coalesce(a.state, 'no state'),
                  ', application ' || nullif(a.application_name, '')),
           extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.backend_start)),
           greatest(age(a.backend_xmin), age(a.backend_xid)), NULL, false
      FROM pg_stat_activity a
     WHERE coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.pid <> pg_backend_pid()
       AND (a.backend_type <> 'walsender' OR a.xact_start IS NOT NULL)
       AND (a.datid IS NULL OR a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    UNION ALL
    SELECT format('standby %s (walsender with PID %s)', a.application_name, a.pid),
           CASE WHEN age(a.backend_xmin) >= age(horizon) THEN horizon_s END, age(a.backend_xmin),
           'end its long transaction, or set hot_standby_feedback = off there', false
      FROM pg_stat_activity a
     WHERE a.backend_type = 'walsender' AND a.xact_start IS NULL AND a.backend_xmin IS NOT NULL
    UNION ALL
    SELECT format('replication slot %s', s.slot_name), x.held_s, age(x.xmin),
           format('its standby or subscriber has to go on, or SELECT pg_drop_replication_slot(%L)', s.slot_name), x.catalogs
      FROM pg_replication_slots s,
           LATERAL (VALUES (s.xmin, CASE WHEN age(s.xmin) >= age(horizon) THEN horizon_s END, false),
                           (s.catalog_xmin, CASE WHEN age(s.catalog_xmin) >= age(catalog_horizon) THEN catalog_horizon_s END, true)
                   ) x(xmin, held_s, catalogs)
     WHERE x.xmin IS NOT NULL
    UNION ALL
    SELECT format('prepared transaction "%s"', p.gid), extract(epoch FROM clock_timestamp() - p.prepared), age(p.transaction), NULL, false
      FROM pg_prepared_xacts p WHERE p.database = current_database()
  ) h(holder, since_s, xids, lever, catalogs)
   ORDER BY coalesce(h.since_s > 3600, false) DESC, h.catalogs, h.xids DESC, h.since_s DESC NULLS LAST LIMIT 1
$$;

-- Returns the use of the server's background workers and of NOTIFY's queue, and
-- the size of jobq.queue.
CREATE FUNCTION jobq_internal._health_server(OUT background_workers int8, OUT notify_usage float8, OUT queue_bytes int8,
                                             OUT dead_rows int8, OUT live_rows int8)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type NOT IN ('client backend',
            'autovacuum launcher', 'autovacuum worker', 'background writer', 'checkpointer',
            'walwriter', 'walsender', 'walreceiver', 'archiver', 'startup', 'logger',
            'walsummarizer', 'slotsync worker', 'io worker', 'standalone backend')),
         pg_notification_queue_usage(), pg_total_relation_size('jobq.queue'),
         pg_stat_get_dead_tuples('jobq.queue'::regclass), pg_stat_get_live_tuples('jobq.queue'::regclass)
$$;

-- Returns active signals as an array (NULL: there is none), and conditions that
-- could not be evaluated.
CREATE FUNCTION jobq_internal._health_signals(OUT active text, OUT problems text)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT (SELECT coalesce(json_agg(a.name ORDER BY a.name)::text, CASE WHEN EXISTS (SELECT FROM jobq.signals) THEN '[]' END) FROM (
            SELECT s.name FROM jobq.signals s
             WHERE s.active AND (s.active_until IS NULL OR s.active_until > (SELECT clock_timestamp()))
            UNION ALL SELECT b FROM jobq_internal._builtin_signals() b) a(name)),
         (SELECT string_agg(format('the condition of signal "%s": %s', s.name, s.problem), '; ' ORDER BY s.name)
            FROM jobq.signals s WHERE s.problem IS NOT NULL)
$$;

CREATE FUNCTION jobq_internal._health_schedules(OUT active int8, OUT paused int8, OUT late_s float8)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FILTER (WHERE s.status = 'active'), count(*) FILTER (WHERE s.paused_by_jobq),
         coalesce(greatest(extract(epoch FROM clock_timestamp() - min(s.next_tick) FILTER (WHERE s.status = 'active')), 0), 0)::float8
    FROM jobq.schedules s WHERE s.home_id = jobq_internal._home_id()
$$;

-- Returns the ranges that wait for a job which has failed, or could not be
-- enqueued.
CREATE FUNCTION jobq_internal._health_before_drops(OUT n int8, OUT problem text)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  n := 0;
  IF EXISTS (SELECT FROM jobq.before_drops) THEN
    SELECT count(*), min(b.problem) INTO n, problem
      FROM jobq.before_drops b
     WHERE b.problem IS NOT NULL OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = b.job_id);
  END IF;
END $$;

-- Returns the number of rows in default partitions, 10,000 of each at most, and
-- of which tables partitions are missing.  One without a block is not opened:
-- it may be locked.
CREATE FUNCTION jobq_internal._health_default_rows(OUT n int8, OUT unmade text, OUT too_large boolean)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part regclass;
  its int8;
BEGIN
  n := 0;
  too_large := false;
  FOR part IN SELECT c.oid FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partdefid
               WHERE c.relnamespace = 'jobq'::regnamespace LOOP
    CONTINUE WHEN pg_relation_size(part) = 0;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM ONLY %s LIMIT 10000) r', part) INTO its;
    n := n + its;
  END LOOP;
  IF n > 0 THEN
    SELECT string_agg(DISTINCT m.parent::text, ', '), coalesce(bool_or(m.too_large), false) INTO unmade, too_large
      FROM jobq_internal._missing_partitions() m WHERE m.due;
  END IF;
END $$;

-- Returns the roles with privileges that jobq did not grant.
CREATE FUNCTION jobq_internal._health_strays() RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT string_agg(DISTINCT CASE s.grantee WHEN 0 THEN 'PUBLIC' ELSE format('"%s"', pg_get_userbyid(s.grantee)) END, ', ')
    FROM jobq_internal._stray_grants() s
$$;
