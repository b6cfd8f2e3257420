
-- jobq.archive: old history, events, artifacts and the audit as lines of JSON,
-- with the rights of the caller: it returns only rows that the caller may read.
-- The order is that of the jobs' ids, of the audit that of its own, so that the
-- last id is where the next call continues, even if rows were dropped since.
-- jsonb_populate_record(NULL::jobq.history, line::jsonb) makes the row from a
-- line.  Beyond the row's columns a line has job_type (history), and
-- json_nulls where a jsonb column holds a JSON null, which is read back as
-- NULL.
CREATE FUNCTION jobq.archive(before timestamptz, after_id uuid DEFAULT NULL, what text DEFAULT 'history',
                             max_rows int DEFAULT NULL, expires_from timestamptz DEFAULT NULL,
                             expires_to timestamptz DEFAULT NULL)
  RETURNS SETOF text LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway_as_caller';
CREATE FUNCTION jobq_internal._archive(caller oid, before timestamptz, after_id uuid, what text, max_rows int,
                                       expires_from timestamptz, expires_to timestamptz)
  RETURNS SETOF text LANGUAGE plpgsql STABLE
  SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET intervalstyle = 'postgres' AS $$
DECLARE
  -- of events and artifacts
  query text := $query$
    SELECT CASE WHEN e.data = 'null' THEN left(l.line, -1) || ',"json_nulls":["data"]}' ELSE l.line END
      FROM (SELECT * FROM jobq.%s v WHERE %s AND %%s ORDER BY v.job_id, v.%s, v.id) e,
           LATERAL (SELECT row_to_json(e)::text) l(line) $query$;
  time_key text := CASE what WHEN 'history' THEN 'completed_at' WHEN 'artifacts' THEN 'created_at' ELSE 'ts' END;
  partition_key text := CASE WHEN what IN ('history', 'artifacts') THEN 'expires_at' ELSE 'ts' END;
  old text;  -- the condition on $1 and on the partition key
  of_no_job int := 0;
BEGIN
  IF before IS NULL AND expires_from IS NOT NULL AND expires_to IS NOT NULL THEN
    before := 'infinity';
  END IF;
  IF before IS NULL OR what IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = format('argument "%s" must not be NULL',
      CASE WHEN before IS NULL THEN 'before' ELSE 'what' END);
  ELSIF what NOT IN ('history', 'events', 'artifacts', 'audit') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('argument "what": "%s" is not one of "history", "events", "artifacts", "audit"',
      regexp_replace(left(what, 63), '[[:cntrl:]]', '?', 'g'));
  ELSIF max_rows < 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = format('argument "max_rows": %s is outside 0..2147483647', max_rows);
  ELSIF expires_from > expires_to THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('argument "expires_from": %s is after expires_to, %s',
      expires_from, expires_to);
  END IF;
  old := format('v.%s < $1', time_key)
    || CASE WHEN expires_from IS NOT NULL THEN format(' AND v.%s >= $4', partition_key) ELSE '' END
    || CASE WHEN expires_to IS NOT NULL THEN format(' AND v.%s < $5', partition_key) ELSE '' END;
  IF what = 'audit' THEN
    RETURN QUERY EXECUTE format($query$
      SELECT CASE WHEN 'null' IN (r.old, r.new)
                  THEN left(l.line, -1) || ',"json_nulls":' ||
                       (SELECT json_agg(v.key) FROM (VALUES ('old', r.old), ('new', r.new)) v(key, value) WHERE v.value = 'null')::text || '}'
                  ELSE l.line END
        FROM (SELECT v.* FROM jobq.audit v WHERE %s %s ORDER BY v.id LIMIT $3) r,
             LATERAL (SELECT row_to_json(r)::text) l(line)
    $query$, old, CASE WHEN after_id IS NOT NULL THEN 'AND v.id > $2' ELSE '' END)
      USING before, jobq_internal._archived_audit_id(after_id), max_rows, expires_from, expires_to;
    RETURN;
  ELSIF what = 'history' THEN
    RETURN QUERY EXECUTE format($query$
      SELECT CASE WHEN 'null' IN (r.payload, r.result, r.metadata, r.error_details, r.progress_data, r.backoff)
                  THEN left(l.line, -1) || ',"json_nulls":' ||
                       (SELECT json_agg(v.key) FROM (VALUES ('payload', r.payload), ('result', r.result),
                          ('metadata', r.metadata), ('error_details', r.error_details),
                          ('progress_data', r.progress_data), ('backoff', r.backoff)) v(key, value)
                         WHERE v.value = 'null')::text || '}'
                  ELSE l.line END
        FROM (SELECT v.*, jobq_internal._type_name(v.type_id) AS job_type FROM jobq.history v
               WHERE %s %s ORDER BY v.id LIMIT $3) r,
             LATERAL (SELECT row_to_json(r)::text) l(line)
    $query$, old, CASE WHEN after_id IS NOT NULL THEN 'AND v.id > $2' ELSE '' END)
      USING before, after_id, max_rows, expires_from, expires_to;
    RETURN;
  END IF;
  query := format(query, what, old, time_key);
  IF what = 'events' AND after_id IS NULL AND max_rows IS DISTINCT FROM 0 THEN
    RETURN QUERY EXECUTE format(query, 'v.job_id IS NULL') USING before, after_id, max_rows, expires_from, expires_to;
    GET DIAGNOSTICS of_no_job = ROW_COUNT;
  END IF;
  RETURN QUERY EXECUTE format(query,
    jobq_internal._archive_end(what, old, before, after_id,
      CASE WHEN max_rows > 0 THEN greatest(max_rows - of_no_job, 1) ELSE max_rows END, expires_from, expires_to))
    USING before, after_id, max_rows, expires_from, expires_to;
END $$;

-- Returns the id of jobq.audit that a uuid stands for: its last digits are the id.
CREATE FUNCTION jobq_internal._archived_audit_id(after_id uuid) RETURNS bigint
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  digits text := replace(after_id::text, '-', '');
BEGIN
  IF digits !~ '^0{16}[0-7]' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('argument "after_id": %s is no id of jobq.audit', after_id),
      HINT = 'Give lpad(to_hex(id), 32, ''0'') of the last line''s id.';
  END IF;
  RETURN ('x' || right(digits, 16))::bit(64)::bigint;
END $$;

-- Returns the condition that limits the events or artifacts of one call.  They
-- are returned in whole jobs, as many as max_rows has room for and at least
-- one, because the next call continues after a job's id.  Events without a job
-- (of signals) come before all others.  old: the condition on all calls.
CREATE FUNCTION jobq_internal._archive_end(what text, old text, before timestamptz, after_id uuid, max_rows int,
                                           expires_from timestamptz, expires_to timestamptz) RETURNS text
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
  EXECUTE format('SELECT v.job_id FROM jobq.%s v WHERE %s AND %s ORDER BY v.job_id OFFSET $3 LIMIT 1',
                 what, old, condition) INTO beyond USING before, after_id, max_rows, expires_from, expires_to;
  IF beyond IS NULL THEN
    RETURN condition;
  END IF;
  EXECUTE format('SELECT v.job_id FROM jobq.%s v WHERE %s AND %s ORDER BY v.job_id LIMIT 1', what, old, condition)
    INTO first USING before, after_id, max_rows, expires_from, expires_to;
  RETURN format(CASE WHEN first = beyond THEN '%s AND v.job_id = %L::uuid' ELSE '%s AND v.job_id < %L::uuid' END,
                condition, beyond);
END $$;
