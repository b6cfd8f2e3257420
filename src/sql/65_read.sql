
-- Queries about jobs.  These are SECURITY INVOKER: they show what the caller
-- may read in jobq.jobs.  The functions called through jobq_gateway_as_caller
-- run as the caller, without EXECUTE on the other functions of jobq_internal.

-- Raises 42704 for an unknown job type; a dropped one counts while the
-- registry has it.
CREATE FUNCTION jobq.list_jobs(
  status jobq.job_status DEFAULT NULL, job_type text DEFAULT NULL, tenant text DEFAULT NULL,
  max_rows int DEFAULT 50, skip_rows int DEFAULT 0, before uuid DEFAULT NULL,
  payload_contains jsonb DEFAULT NULL, error_like text DEFAULT NULL)
  RETURNS SETOF jobq.jobs LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway_as_caller';
-- Only the given conditions are in the query, so that the newest jobs come
-- from the id indexes.
CREATE FUNCTION jobq_internal._list_jobs(caller oid,
  status jobq.job_status, job_type text, tenant text, max_rows int, skip_rows int, before uuid,
  payload_contains jsonb, error_like text)
  RETURNS SETOF jobq.jobs LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  query text := 'SELECT * FROM jobq.jobs j WHERE true';
BEGIN
  IF max_rows IS NULL OR skip_rows IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = format('argument "%s" must not be NULL',
      CASE WHEN max_rows IS NULL THEN 'max_rows' ELSE 'skip_rows' END);
  ELSIF max_rows < 0 OR skip_rows < 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = format('argument "%s": %s is outside 0..2147483647',
      CASE WHEN max_rows < 0 THEN 'max_rows' ELSE 'skip_rows' END, least(max_rows, skip_rows));
  ELSIF NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = job_type) AND job_type IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('job type "%s" does not exist',
      regexp_replace(left(job_type, 63), '[[:cntrl:]]', '?', 'g'));
  END IF;
  IF status IS NOT NULL THEN query := query || ' AND j.status = $1'; END IF;
  IF job_type IS NOT NULL THEN query := query || ' AND j.job_type = $2'; END IF;
  IF tenant IS NOT NULL THEN query := query || ' AND coalesce(j.tenant, '''') = $3'; END IF;
  IF before IS NOT NULL THEN query := query || ' AND j.id < $6'; END IF;
  IF payload_contains IS NOT NULL THEN query := query || ' AND j.payload @> $7'; END IF;
  IF error_like IS NOT NULL THEN query := query || ' AND j.error_msg LIKE $8'; END IF;
  RETURN QUERY EXECUTE query || ' ORDER BY j.id DESC LIMIT $4 OFFSET $5'
    USING status, job_type, tenant, max_rows, skip_rows, before, payload_contains, error_like;
END $$;

CREATE FUNCTION jobq.count_by_status(job_type text DEFAULT NULL, tenant text DEFAULT NULL)
  RETURNS TABLE(status jobq.job_status, count bigint)
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway_as_caller';
CREATE FUNCTION jobq_internal._count_by_status(caller oid, job_type text, tenant text)
  RETURNS TABLE(status jobq.job_status, count bigint)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  IF NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = _count_by_status.job_type) AND job_type IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('job type "%s" does not exist',
      regexp_replace(left(job_type, 63), '[[:cntrl:]]', '?', 'g'));
  END IF;
  RETURN QUERY
    SELECT s.status, count(j.status)
      FROM unnest(enum_range(NULL::jobq.job_status)) s(status)
      LEFT JOIN (SELECT v.status FROM jobq.jobs v
                  WHERE (_count_by_status.job_type IS NULL OR v.job_type = _count_by_status.job_type)
                    AND (_count_by_status.tenant IS NULL OR coalesce(v.tenant, '') = _count_by_status.tenant)) j
        ON j.status = s.status
     GROUP BY s.status ORDER BY s.status;
END $$;

-- Dropped types are listed only while some job names them.
CREATE FUNCTION jobq.distinct_job_types() RETURNS SETOF text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT DISTINCT t.name FROM jobq.job_types t
   WHERE t.dropped_at IS NULL
      OR EXISTS (SELECT FROM jobq.queue q WHERE q.type_id = t.id)
      OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.type_id = t.id)
      OR EXISTS (SELECT FROM jobq.history h WHERE h.type_id = t.id)
   ORDER BY t.name
$$;

CREATE FUNCTION jobq.job_timeline(id uuid) RETURNS SETOF jobq.events
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway_as_caller';
CREATE FUNCTION jobq_internal._job_timeline(caller oid, id uuid) RETURNS SETOF jobq.events
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'argument "id" must not be NULL';
  END IF;
  RETURN QUERY SELECT * FROM jobq.events e WHERE e.job_id = _job_timeline.id ORDER BY e.ts, e.id;
  -- events may outlive the job's row
  IF NOT FOUND AND NOT EXISTS (SELECT FROM jobq.jobs j WHERE j.id = _job_timeline.id) THEN
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('job "%s" does not exist', id);
  END IF;
END $$;

-- src/observe/wait_for.c
CREATE FUNCTION jobq.wait_for(id uuid, timeout interval DEFAULT '20s') RETURNS jobq.jobs
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_wait_for';
