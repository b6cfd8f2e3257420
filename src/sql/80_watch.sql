
-- The system itself.

-- src/health.c, src/launcher.c
CREATE FUNCTION jobq.health() RETURNS jsonb
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_health';
CREATE FUNCTION jobq.reload() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_reload';

-- src/compaction.c
CREATE FUNCTION jobq.compact() RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_compact';

-- src/notify.c
CREATE FUNCTION jobq.channel(job_type text) RETURNS text
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_channel';

CREATE FUNCTION jobq.version() RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT extversion FROM pg_extension WHERE extname = 'jobq'
$$;

-- enqueued_by with the oid that the role of that name has here.
CREATE FUNCTION jobq._enqueuer_here(enqueued_by text) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT r.oid || ':' || r.rolname FROM pg_roles r
                    WHERE r.rolname = substr(_enqueuer_here.enqueued_by, strpos(_enqueuer_here.enqueued_by, ':') + 1)),
                  _enqueuer_here.enqueued_by)
$$;

-- A restored dump stays paused, because its home row names a transaction of another database.  With a home of
-- our own, all jobs are ours.  Jobs keep their state: what waits, waits; what ran, has lost its worker.
CREATE FUNCTION jobq.adopt() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq._adopt(caller oid) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE jobq.home IN EXCLUSIVE MODE;
  IF NOT jobq._home_is_ours() THEN
    DELETE FROM jobq.home;
    INSERT INTO jobq.home (home_id, self_xid, database)
    SELECT 1 + floor(random() * 2147483646)::int, pg_current_xact_id(), d.oid
      FROM pg_database d WHERE d.datname = current_database();
    UPDATE jobq.history h SET enqueued_by = jobq._enqueuer_here(h.enqueued_by) WHERE h.enqueued_by IS NOT NULL;
    UPDATE jobq.dead_letters d SET enqueued_by = jobq._enqueuer_here(d.enqueued_by) WHERE d.enqueued_by IS NOT NULL;
  END IF;
  UPDATE jobq.queue q SET home_id = h.home_id, enqueued_by = jobq._enqueuer_here(q.enqueued_by)
    FROM jobq.home h WHERE q.home_id <> h.home_id;
  PERFORM jobq._count_queue(t.tenant) FROM jobq.tenant_quotas t;
  PERFORM jobq._protect_partition(p.partition, p.parent) FROM jobq._exposed_partitions() p;
  -- for the statement trigger: the dispatcher looks again
  UPDATE jobq.job_types SET paused = paused WHERE false;
END $$;
