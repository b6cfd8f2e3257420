
-- Statistics of shared memory: src/observe/stat_views.c.  pg_monitor and roles
-- with access "read" for all tenants may read them.
CREATE FUNCTION jobq_internal._stat_job_types(type_ids int[])
  RETURNS TABLE(job_type text, pending bigint, due bigint, due_exact boolean, blocked bigint, retry bigint, running bigint,
                dead bigint, enqueued bigint, started bigint, completed bigint, skipped bigint, cancelled bigint, died bigint,
                retried bigint, failures jsonb, wait_sum double precision, wait_buckets bigint[], run_sum double precision,
                run_buckets bigint[], attempts_buckets bigint[], oldest_due_s double precision, drain_s double precision,
                paused boolean, last_completed timestamptz, last_failed timestamptz, stats_reset timestamptz)
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_stat_job_types';
CREATE VIEW jobq.stat_job_types AS
  SELECT s.* FROM jobq_internal._stat_job_types(ARRAY(SELECT t.id FROM jobq.job_types t WHERE t.dropped_at IS NULL ORDER BY t.id)) s;

CREATE FUNCTION jobq_internal._stat_workers()
  RETURNS TABLE(kind text, pid int, worker text, node text, role text, state text, job_id uuid, job_type text, attempt int,
                started_at timestamptz, deadline timestamptz, lease_expires_at timestamptz)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_stat_workers';
-- No index finds claimed jobs: it would make a claim more than a HOT update.  The
-- dispatcher knows them; the queue is read while there is none, while it reads the
-- leases, and for more than 4,096 jobs.
CREATE FUNCTION jobq_internal._stat_claimed() RETURNS TABLE(complete boolean, ids uuid[])
  LANGUAGE c ROWS 1 AS 'MODULE_PATHNAME', 'jobq_stat_claimed';
CREATE VIEW jobq.stat_workers AS
  WITH claimed AS MATERIALIZED (SELECT c.complete, c.ids FROM jobq_internal._stat_claimed() c),
  found AS MATERIALIZED (
    SELECT q.id, q.type_id, q.status, q.worker, q.node, q.attempts, q.started_at, q.timeout, q.lease_token, q.lease_expires_at
      FROM jobq.queue q WHERE q.id = ANY ((SELECT c.ids FROM claimed c)::uuid[])
    UNION ALL
    SELECT q.id, q.type_id, q.status, q.worker, q.node, q.attempts, q.started_at, q.timeout, q.lease_token, q.lease_expires_at
      FROM jobq.queue q WHERE NOT (SELECT c.complete FROM claimed c) AND q.status = 'running')
  SELECT w.* FROM jobq_internal._stat_workers() w
  UNION ALL
  SELECT 'pull', NULL, q.worker, q.node, NULL, 'busy', q.id, t.name, q.attempts, q.started_at,
         q.started_at + nullif(coalesce(q.timeout, t.timeout), '0'), q.lease_expires_at
    FROM found q JOIN jobq.job_types t ON t.id = q.type_id
   WHERE q.status = 'running' AND q.lease_token IS NOT NULL AND NOT t.is_workflow;

CREATE FUNCTION jobq_internal._stat_lanes()
  RETURNS TABLE(job_type text, priority int, effective int, oldest_due timestamptz, held_by text)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_stat_lanes';
CREATE VIEW jobq.stat_lanes AS SELECT l.* FROM jobq_internal._stat_lanes() l;

CREATE FUNCTION jobq_internal._stat_limits()
  RETURNS TABLE(kind text, name text, used bigint, max bigint, held_s double precision)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_stat_limits';
CREATE VIEW jobq.stat_limits AS SELECT l.* FROM jobq_internal._stat_limits() l;

CREATE FUNCTION jobq_internal._stat_dispatcher()
  RETURNS TABLE(pid int, started_at timestamptz, loops bigint, wakeups jsonb, handed_out bigint, fallbacks bigint,
                sweep_finds bigint, publications_lost bigint, stats_reset timestamptz)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_stat_dispatcher';
CREATE VIEW jobq.stat_dispatcher AS SELECT d.* FROM jobq_internal._stat_dispatcher() d;

-- What metrics show of tables: maintenance_tasks.c, once a minute.  Beyond
-- 32 signals and 32 disks, those that are off and those that are least full are
-- one, _other.
CREATE FUNCTION jobq_internal._gauges() RETURNS TABLE(family text, label text, value double precision)
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  WITH health(checks) AS MATERIALIZED (SELECT jobq.health()->'checks')
  SELECT 'health', c.key, CASE c.value->>'status' WHEN 'healthy' THEN 0 WHEN 'degraded' THEN 1 ELSE 2 END::double precision
    FROM health h, jsonb_each(h.checks) c
  UNION ALL
  SELECT n.family, '', coalesce((h.checks->'horizon'->>n.key)::double precision, 0)
    FROM health h, (VALUES ('horizon_held_seconds', 'held_s'), ('queue_bytes', 'queue_bytes'), ('dead_row_bytes', 'dead_bytes')) n(family, key)
  UNION ALL
  SELECT r.family, CASE WHEN r.place <= 32 THEN r.label ELSE '_other' END, max(r.value)
    FROM (SELECT g.*, row_number() OVER (PARTITION BY g.family ORDER BY g.value DESC, g.label) AS place
            FROM (SELECT 'disk_used_ratio' AS family, d.path AS label, d.percent / 100.0 AS value
                    FROM (SELECT DISTINCT ON (l.path) l.path, l.percent FROM jobq.disk_log l
                           WHERE l.ts > (SELECT clock_timestamp()) - interval '5 minutes' ORDER BY l.path, l.ts DESC) d
                  UNION ALL
                  SELECT 'signal_active', s.name, (s.active AND coalesce(s.active_until > (SELECT clock_timestamp()), true))::int
                    FROM jobq.signals s) g) r
   GROUP BY 1, 2
$$;

CREATE FUNCTION jobq.stat_series(step interval DEFAULT '10 seconds')
  RETURNS TABLE(since timestamptz, until timestamptz, job_type text, enqueued bigint, started bigint, completed bigint,
                failed bigint, died bigint, wait_buckets bigint[])
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_stat_series';

-- Of all types, and of the database, if it is NULL.
CREATE FUNCTION jobq_internal._stat_zero(type_id int) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_stat_reset';
CREATE FUNCTION jobq.stat_reset(job_type text DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._stat_reset(caller oid, job_type text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  reset int := (SELECT t.id FROM jobq.job_types t WHERE t.name = _stat_reset.job_type AND t.dropped_at IS NULL);
BEGIN
  IF job_type IS NOT NULL AND reset IS NULL THEN
    PERFORM jobq_internal._bad_name('job type', job_type);
  END IF;
  PERFORM jobq_internal._stat_zero(reset);
END $$;

-- Also in upgrade/0.1.0--0.2.0.after.sql.
GRANT SELECT ON jobq.stat_job_types, jobq.stat_workers, jobq.stat_lanes, jobq.stat_limits, jobq.stat_dispatcher TO pg_monitor;
GRANT EXECUTE ON FUNCTION jobq.metrics(text), jobq.stat_series(interval), jobq_internal._stat_job_types(int[]),
  jobq_internal._stat_workers(), jobq_internal._stat_claimed(), jobq_internal._stat_lanes(), jobq_internal._stat_limits(), jobq_internal._stat_dispatcher() TO pg_monitor;
