
-- jobq.archive: old history and events as lines of JSON, with the rights of
-- the caller: it returns only rows that the caller may read.  The order is
-- that of the jobs' ids, so that the last id is where the next call continues,
-- even if rows were dropped since. jsonb_populate_record(NULL::jobq.history,
-- line::jsonb) makes the row from a line.  Beyond the row's columns a line has
-- job_type (history), and json_nulls where a jsonb column holds a JSON null,
-- which is read back as NULL.
CREATE FUNCTION jobq.archive(before timestamptz, after_id uuid DEFAULT NULL, what text DEFAULT 'history',
                             max_rows int DEFAULT NULL)
  RETURNS SETOF text LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway_as_caller';
CREATE FUNCTION jobq_internal._archive(caller oid, before timestamptz, after_id uuid, what text, max_rows int)
  RETURNS SETOF text LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET intervalstyle = 'postgres' AS $$
DECLARE
  events_query constant text := $query$
    SELECT CASE WHEN e.data = 'null' THEN left(l.line, -1) || ',"json_nulls":["data"]}' ELSE l.line END
      FROM (SELECT * FROM jobq.events v WHERE v.ts < $1 AND %s ORDER BY v.job_id, v.ts, v.id) e,
           LATERAL (SELECT row_to_json(e)::text) l(line) $query$;
  of_no_job int := 0;
BEGIN
  IF before IS NULL OR what IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = format('argument "%s" must not be NULL',
      CASE WHEN before IS NULL THEN 'before' ELSE 'what' END);
  ELSIF what NOT IN ('history', 'events') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('argument "what": "%s" is not one of "history", "events"',
      regexp_replace(left(what, 63), '[[:cntrl:]]', '?', 'g'));
  ELSIF max_rows < 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = format('argument "max_rows": %s is outside 0..2147483647', max_rows);
  ELSIF what = 'history' THEN
    RETURN QUERY EXECUTE format($query$
      SELECT CASE WHEN 'null' IN (r.payload, r.result, r.metadata, r.error_details, r.progress_data, r.backoff)
                  THEN left(l.line, -1) || ',"json_nulls":' ||
                       (SELECT json_agg(v.key) FROM (VALUES ('payload', r.payload), ('result', r.result),
                          ('metadata', r.metadata), ('error_details', r.error_details),
                          ('progress_data', r.progress_data), ('backoff', r.backoff)) v(key, value)
                         WHERE v.value = 'null')::text || '}'
                  ELSE l.line END
        FROM (SELECT h.*, jobq_internal._type_name(h.type_id) AS job_type FROM jobq.history h
               WHERE h.completed_at < $1 %s ORDER BY h.id LIMIT $3) r,
             LATERAL (SELECT row_to_json(r)::text) l(line)
    $query$, CASE WHEN after_id IS NOT NULL THEN 'AND h.id > $2' ELSE '' END)
      USING before, after_id, max_rows;
  ELSE
    IF after_id IS NULL AND max_rows IS DISTINCT FROM 0 THEN
      RETURN QUERY EXECUTE format(events_query, 'v.job_id IS NULL') USING before, after_id;
      GET DIAGNOSTICS of_no_job = ROW_COUNT;
    END IF;
    RETURN QUERY EXECUTE format(events_query,
      jobq_internal._archive_end(before, after_id,
        CASE WHEN max_rows > 0 THEN greatest(max_rows - of_no_job, 1) ELSE max_rows END))
      USING before, after_id;
  END IF;
END $$;

-- Returns the condition that limits the events of one call.  Events are
-- returned in whole jobs, as many as max_rows has room for and at least one,
-- because the next call continues after a job's id.  Events without a job (of
-- signals) come before all others.
CREATE FUNCTION jobq_internal._archive_end(before timestamptz, after_id uuid, max_rows int) RETURNS text
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  condition text := CASE WHEN after_id IS NULL THEN 'v.job_id IS NOT NULL' ELSE 'v.job_id > $2' END;
  first uuid;
  beyond uuid;
BEGIN
  IF max_rows IS NULL THEN
    RETURN condition;
  ELSIF max_rows = 0 THEN
    RETURN 'false';
  END IF;
  EXECUTE format('SELECT v.job_id FROM jobq.events v WHERE v.ts < $1 AND %s ORDER BY v.job_id, v.ts, v.id OFFSET $3 LIMIT 1',
                 condition) INTO beyond USING before, after_id, max_rows;
  IF beyond IS NULL THEN
    RETURN condition;
  END IF;
  EXECUTE format('SELECT v.job_id FROM jobq.events v WHERE v.ts < $1 AND %s ORDER BY v.job_id LIMIT 1', condition)
    INTO first USING before, after_id;
  RETURN format(CASE WHEN first = beyond THEN '%s AND v.job_id = %L::uuid' ELSE '%s AND v.job_id < %L::uuid' END,
                condition, beyond);
END $$;
