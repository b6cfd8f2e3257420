
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

-- Returns a bound about so many rows below an id, of all rows, also those that
-- the caller may not read: without the second half of an id, it names none of
-- them; NULL: there are not so many.
CREATE FUNCTION jobq_internal._search_bound(status jobq.job_status, before uuid, n int) RETURNS uuid
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  bound uuid;
BEGIN
  EXECUTE format('SELECT s.id FROM (%s) s WHERE s.id < $1 ORDER BY s.id DESC OFFSET $2 LIMIT 1',
    CASE WHEN status IN ('pending', 'blocked', 'retry', 'running') THEN 'SELECT q.id FROM jobq.queue q'
         WHEN status IN ('completed', 'skipped', 'cancelled') THEN 'SELECT h.id FROM jobq.history h'
         WHEN status = 'error' THEN 'SELECT d.id FROM jobq.dead_letters d'
         ELSE 'SELECT q.id FROM jobq.queue q UNION ALL SELECT h.id FROM jobq.history h UNION ALL SELECT d.id FROM jobq.dead_letters d' END)
    INTO bound USING before, n;
  RETURN (left(bound::text, 18) || '-0000-000000000000')::uuid;
END $$;

-- The list of jobq-web: as list_jobs, down to the id since, but it ends after
-- about time_limit.  Then its last row has no item, and the id from which to go
-- on.
CREATE FUNCTION jobq_internal._search_jobs(
  status jobq.job_status, job_type text, tenant text, payload_contains jsonb, error_like text, since uuid, before uuid,
  max_rows int, time_limit interval DEFAULT '1s')
  RETURNS TABLE(item json, id uuid) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ends timestamptz := clock_timestamp() + time_limit;
  query text := 'SELECT to_json(j), j.id FROM jobq.jobs j WHERE j.id >= $6 AND j.id < $7';
  high uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  lowest uuid := coalesce(since, '00000000-0000-0000-0000-000000000000');
  low uuid;
  step int := greatest(max_rows, 1000);
  began timestamptz;
  found int;
BEGIN
  IF NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = job_type) AND job_type IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('job type "%s" does not exist',
      regexp_replace(left(job_type, 63), '[[:cntrl:]]', '?', 'g'));
  END IF;
  IF status IS NOT NULL THEN query := query || ' AND j.status = $1'; END IF;
  IF job_type IS NOT NULL THEN query := query || ' AND j.job_type = $2'; END IF;
  IF tenant IS NOT NULL THEN query := query || ' AND coalesce(j.tenant, '''') = $3'; END IF;
  IF payload_contains IS NOT NULL THEN query := query || ' AND j.payload @> $4'; END IF;
  IF error_like IS NOT NULL THEN query := query || ' AND j.error_msg LIKE $5'; END IF;
  query := query || ' ORDER BY j.id DESC LIMIT $8';
  WHILE max_rows > 0 AND high > lowest LOOP
    began := clock_timestamp();
    low := greatest(jobq_internal._search_bound(status, high, step), lowest);
    RETURN QUERY EXECUTE query USING status, job_type, tenant, payload_contains, error_like, low, high, max_rows;
    GET DIAGNOSTICS found = ROW_COUNT;
    max_rows := max_rows - found;
    high := low;
    -- steps of about a tenth of a second
    IF clock_timestamp() - began < interval '50ms' THEN
      step := least(step * 2, 200000);
    ELSIF clock_timestamp() - began > interval '200ms' THEN
      step := greatest(step / 4, 100);
    END IF;
    IF clock_timestamp() > ends AND max_rows > 0 AND high > lowest THEN
      RETURN QUERY SELECT NULL::json, high;
      EXIT;
    END IF;
  END LOOP;
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

-- Returns an error message without what differs from job to job: texts in
-- quotes, ids and numbers.
CREATE FUNCTION jobq_internal._error_pattern(message text) RETURNS text
  LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
  SELECT regexp_replace(regexp_replace(regexp_replace(left(_error_pattern.message, 1000),
           '"[^"]*"|''[^'']*''', '"?"', 'g'),
           '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+', '?', 'g'),
           '[0-9][0-9a-fA-F]*([.,:][0-9]+)*', '?', 'g')
$$;

CREATE FUNCTION jobq.error_groups(
  since timestamptz DEFAULT NULL, job_type text DEFAULT NULL, tenant text DEFAULT NULL, max_rows int DEFAULT 50)
  RETURNS TABLE(job_type text, error_code text, pattern text, n bigint, first timestamptz, last timestamptz, job_id uuid)
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway';
-- Of the 10,000 newest dead letters and waiting retries that the caller sees.
-- The time of a retry is the start of its last attempt.
CREATE FUNCTION jobq_internal._error_groups(caller oid, since timestamptz, of_type text, of_tenant text, max_rows int)
  RETURNS TABLE(job_type text, error_code text, pattern text, n bigint, first timestamptz, last timestamptz, job_id uuid)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  query text := $query$
    SELECT j.id, j.job_type, j.error_code, j.error_msg, j.at
      FROM (SELECT x.id, jobq_internal._type_name(x.type_id) AS job_type, x.error_code, x.error_msg, %1$s AS at
              FROM jobq.%2$I x WHERE %3$s ORDER BY %1$s DESC LIMIT 10000) j $query$;
  filter text := '';
BEGIN
  PERFORM jobq_internal._check_not_null('max_rows', max_rows IS NOT NULL),
          jobq_internal._check_number('max_rows', max_rows, 0, 2147483647);
  IF of_type IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = of_type AND jobq_internal._knows_type(caller, t.name)) THEN
    PERFORM jobq_internal._bad_name('job type', of_type);
  END IF;
  IF of_type IS NOT NULL THEN
    filter := ' AND x.type_id IN (SELECT t.id FROM jobq.job_types t WHERE t.name = $2)';
  END IF;
  IF of_tenant IS NOT NULL THEN
    filter := filter || ' AND coalesce(x.tenant, '''') = $3';
  END IF;
  IF NOT jobq_internal._is_free(caller) THEN
    filter := filter || ' AND jobq_internal._sees($5, x.tenant, x.type_id, x.enqueued_by)';
  END IF;
  RETURN QUERY EXECUTE format(
    'SELECT g.job_type, g.error_code, jobq_internal._error_pattern(g.error_msg), count(*), min(g.at), max(g.at),'
    '       (array_agg(g.id ORDER BY g.at DESC, g.id DESC))[1]'
    '  FROM (%s UNION ALL %s ORDER BY 5 DESC LIMIT 10000) g'
    ' GROUP BY 1, 2, 3 ORDER BY 4 DESC, 6 DESC, 1, 2, 3 LIMIT $4',
    format(query, 'x.completed_at', 'dead_letters', '($1 IS NULL OR x.completed_at >= $1)' || filter),
    format(query, 'coalesce(x.started_at, x.created_at)', 'queue',
           'x.status = ''retry'' AND ($1 IS NULL OR coalesce(x.started_at, x.created_at) >= $1)' || filter))
    USING since, of_type, of_tenant, max_rows, caller;
END $$;
