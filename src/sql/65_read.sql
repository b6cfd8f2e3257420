
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
-- Returns the query of ids that has all jobs of a status and few others, for a
-- condition on q.id to follow; NULL: the index of all ids serves.
CREATE FUNCTION jobq_internal._list_candidates(status jobq.job_status) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE status
    WHEN 'blocked' THEN $q$SELECT q.id FROM jobq.queue q WHERE q."position" = 'infinity'$q$
    WHEN 'retry' THEN 'SELECT q.id FROM jobq.queue q WHERE q.error_msg IS NOT NULL'
    WHEN 'running' THEN (SELECT format($q$SELECT q.id FROM (SELECT unnest(%L::uuid[]) UNION SELECT r.id FROM jobq.runs r WHERE r.phase <> 'ended'
        UNION SELECT m.id FROM jobq.queue m WHERE m."position" = 'infinity' AND m.status = 'running') q(id) WHERE true$q$, r.ids)
      FROM jobq_internal._running_ids() r WHERE r.complete) END
$$;
-- Checks a LIKE pattern, which LIKE itself refuses only when it comes to its end.
CREATE FUNCTION jobq_internal._check_like(error_like text) RETURNS void
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF length(error_like) % 2 <> length(rtrim(error_like, chr(92))) % 2 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('argument "error_like": "%s" ends with an escape character',
      regexp_replace(left(error_like, 63), '[[:cntrl:]]', '?', 'g'));
  END IF;
END $$;

-- Only the given conditions are in the query, so that the newest jobs come
-- from the id indexes.
CREATE FUNCTION jobq_internal._list_jobs(caller oid,
  status jobq.job_status, job_type text, tenant text, max_rows int, skip_rows int, before uuid,
  payload_contains jsonb, error_like text)
  RETURNS SETOF jobq.jobs LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  query text;
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
  PERFORM jobq_internal._check_like(error_like);
  query := coalesce('SELECT j.* FROM (' || jobq_internal._list_candidates(status) || CASE WHEN before IS NOT NULL THEN ' AND q.id < $6' ELSE '' END
                      || ' ORDER BY q.id DESC) c, LATERAL (SELECT * FROM jobq.jobs v WHERE v.id = c.id AND v.status = $1 OFFSET 0) j WHERE true',
                    'SELECT * FROM jobq.jobs j WHERE true' || CASE WHEN status IS NOT NULL THEN ' AND j.status = $1' ELSE '' END);
  IF job_type IS NOT NULL THEN query := query || ' AND j.job_type = $2'; END IF;
  IF tenant IS NOT NULL THEN query := query || ' AND coalesce(j.tenant, '''') = $3'; END IF;
  IF before IS NOT NULL THEN query := query || ' AND j.id < $6'; END IF;
  IF payload_contains IS NOT NULL THEN query := query || ' AND j.payload @> $7'; END IF;
  IF error_like IS NOT NULL THEN query := query || ' AND j.error_msg LIKE $8'; END IF;
  RETURN QUERY EXECUTE query || ' ORDER BY j.id DESC LIMIT $4 OFFSET $5'
    USING status, job_type, tenant, max_rows, skip_rows, before, payload_contains, error_like;
END $$;

-- ---------- searches of jobq-web ----------

-- A search reads the newest rows first, in steps of about a tenth of a second,
-- and ends after about time_limit.  Then its last row has no item, and the key
-- from which the next search goes on.  The size of a step counts all rows, also
-- those that a filter or row-level security leaves out, which take their time.

-- Returns a bound about so many rows below an id, of all rows of these tables:
-- without the second half of an id, it names none that the caller may not read;
-- NULL: there are not so many.  blocked, failed, live_runs: the rows of these indexes.
CREATE FUNCTION jobq_internal._search_bound(tables text[], before uuid, n int) RETURNS uuid
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  bound uuid;
BEGIN
  EXECUTE format('SELECT s.id FROM (%s) s WHERE s.id < $1 ORDER BY s.id DESC OFFSET $2 LIMIT 1',
                 (SELECT string_agg('SELECT t.id FROM jobq.' || CASE name
                           WHEN 'blocked' THEN 'queue t WHERE t."position" = ''infinity''' WHEN 'failed' THEN 'queue t WHERE t.error_msg IS NOT NULL'
                           WHEN 'live_runs' THEN 'runs t WHERE t.phase <> ''ended''' ELSE name || ' t' END, ' UNION ALL ') FROM unnest(tables) name
                   WHERE name IN ('queue', 'blocked', 'failed', 'history', 'dead_letters', 'runs', 'live_runs')))
    INTO bound USING before, n;
  RETURN (left(bound::text, 18) || '-0000-000000000000')::uuid;
END $$;

-- Returns the start of a span of time before `high` in which a table has about n
-- rows at most: span, or an eighth of it, and so on; and the span to try next.
CREATE FUNCTION jobq_internal._search_span(source text, high timestamptz, span interval, n int, OUT low timestamptz, OUT next interval)
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  key text := CASE WHEN source IN ('events', 'alerts', 'audit') THEN 'ts' WHEN source = 'dead_letters' THEN 'completed_at' END;
  found int;
BEGIN
  LOOP
    low := CASE WHEN span > interval '1 year' THEN '-infinity' ELSE least(high, clock_timestamp()) - span END;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM jobq.%1$I t WHERE t.%2$I >= $1 AND t.%2$I < $2 LIMIT $3) c', source, key)
      INTO found USING low, high, n + 1;
    next := span * least(n::float8 / greatest(found, 1), 8);
    EXIT WHEN found <= n OR span <= interval '1 ms';
    span := span / 8;
  END LOOP;
END $$;

-- Returns the size of the next step.
CREATE FUNCTION jobq_internal._search_step(step int, began timestamptz) RETURNS int
  LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN t.took < interval '50ms' THEN least(step * 2, 200000)
              WHEN t.took > interval '250ms' THEN greatest(step / 4, 100) ELSE step END
    FROM (SELECT clock_timestamp() - began) t(took)
$$;

-- Searches by id.  The query gives items and ids; its parameters are the lower
-- bound, the upper bound (not included) and the number of rows.
CREATE FUNCTION jobq_internal._search(tables text[], query text, since uuid, before uuid, max_rows int, time_limit interval)
  RETURNS TABLE(item json, id uuid) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ends timestamptz := clock_timestamp() + time_limit;
  high uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  lowest uuid := coalesce(since, '00000000-0000-0000-0000-000000000000');
  low uuid;
  step int := 100;  -- the rows may be large
  began timestamptz;
  found int;
BEGIN
  WHILE max_rows > 0 AND high > lowest LOOP
    began := clock_timestamp();
    low := greatest(jobq_internal._search_bound(tables, high, step), lowest);
    RETURN QUERY EXECUTE query USING low, high, max_rows;
    GET DIAGNOSTICS found = ROW_COUNT;
    max_rows := max_rows - found;
    high := low;
    step := jobq_internal._search_step(step, began);
    IF clock_timestamp() > ends AND max_rows > 0 AND high > lowest THEN
      RETURN QUERY SELECT NULL::json, high;
      EXIT;
    END IF;
  END LOOP;
END $$;

-- The same by time; a key is microseconds, a dot and what tells rows of the same
-- time apart.
CREATE FUNCTION jobq_internal._search_times(
  source text, query text, since timestamptz, until timestamptz, max_rows int, time_limit interval)
  RETURNS TABLE(item json, key text) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ends timestamptz := clock_timestamp() + time_limit;
  high timestamptz := coalesce(until, 'infinity');
  lowest timestamptz := coalesce(since, '-infinity');
  low timestamptz;
  span interval := '1 hour';
  step int := least(greatest(max_rows, 1000), 10000);
  began timestamptz;
  found int;
BEGIN
  WHILE max_rows > 0 AND high > lowest LOOP
    began := clock_timestamp();
    SELECT greatest(s.low, lowest), s.next INTO low, span FROM jobq_internal._search_span(source, high, span, step) s;
    RETURN QUERY EXECUTE query USING low, high, max_rows;
    GET DIAGNOSTICS found = ROW_COUNT;
    max_rows := max_rows - found;
    high := low;
    step := jobq_internal._search_step(step, began);
    IF clock_timestamp() > ends AND max_rows > 0 AND high > lowest THEN
      RETURN QUERY SELECT NULL::json, (extract(epoch FROM high) * 1000000)::int8 || CASE source WHEN 'alerts' THEN '.' ELSE '.0' END;
      EXIT;
    END IF;
  END LOOP;
END $$;

-- Raises 42704 for a job type, or a workflow, that the caller does not see.
CREATE FUNCTION jobq_internal._search_type(name text, what text DEFAULT 'job type') RETURNS void
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = _search_type.name AND (t.is_workflow OR what = 'job type')) AND name IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('%s "%s" does not exist', what,
      regexp_replace(left(name, 63), '[[:cntrl:]]', '?', 'g'));
  END IF;
END $$;

-- Raises the error of a list below an object that the caller does not see.  In a
-- condition without columns it is called once.
CREATE FUNCTION jobq_internal._search_found(is_there boolean, what text) RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT is_there THEN
    RAISE EXCEPTION USING ERRCODE = CASE what WHEN 'run' THEN 'P0002' ELSE '42704' END,
      MESSAGE = format('the %s does not exist', what);
  END IF;
  RETURN true;
END $$;

-- As list_jobs, down to the id since.  ids_only: an item is the id alone.
CREATE FUNCTION jobq_internal._search_jobs(
  status jobq.job_status, job_type text, tenant text, payload_contains jsonb, error_like text, since uuid, before uuid,
  max_rows int, time_limit interval DEFAULT '1s', ids_only boolean DEFAULT false)
  RETURNS TABLE(item json, id uuid) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  candidates text := jobq_internal._list_candidates(status);
BEGIN
  PERFORM jobq_internal._search_type(job_type), jobq_internal._check_like(error_like);
  RETURN QUERY SELECT * FROM jobq_internal._search(
    CASE WHEN candidates IS NOT NULL AND status = 'blocked' THEN '{blocked}' WHEN candidates IS NOT NULL AND status = 'retry' THEN '{failed}'
         WHEN candidates IS NOT NULL THEN '{blocked,live_runs}' WHEN status IN ('pending', 'running') THEN '{queue}'
         WHEN status IN ('completed', 'skipped', 'cancelled') THEN '{history}'
         WHEN status = 'error' THEN '{dead_letters}' ELSE '{queue,history,dead_letters}' END::text[],
    concat('SELECT to_json(', CASE WHEN ids_only THEN 'j.id' ELSE 'j' END, '), j.id FROM ',
           coalesce('(' || candidates || ' AND q.id >= $1 AND q.id < $2 ORDER BY q.id DESC) c, LATERAL (SELECT * FROM jobq.jobs v WHERE v.id = c.id'
                      ' AND v.status = ' || quote_literal(status) || ' OFFSET 0) j WHERE true',
                    concat('jobq.jobs j WHERE j.id >= $1 AND j.id < $2', ' AND j.status = ' || quote_literal(status))), ' AND j.job_type = ' || quote_literal(job_type),
           ' AND coalesce(j.tenant, '''') = ' || quote_literal(tenant), ' AND j.payload @> ' || quote_literal(payload_contains),
           ' AND j.error_msg LIKE ' || quote_literal(error_like), ' ORDER BY j.id DESC LIMIT $3'),
    since, before, max_rows, time_limit);
END $$;

-- Returns the number of jobs of each status, to 10,000, of a type and a tenant.
-- Finished jobs are counted among the newest 10,000, and so are dead letters.
CREATE FUNCTION jobq_internal._search_counts(job_type text, tenant text, time_limit interval DEFAULT '1s')
  RETURNS TABLE(status jobq.job_status, n bigint, exact boolean)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  of record;
  query text;
BEGIN
  FOR of IN SELECT * FROM (VALUES ('queue', '{pending,blocked,retry,running}'::jobq.job_status[], 2147483647),
                                  ('history', '{completed,skipped,cancelled}', 10001), ('dead_letters', '{error}', 10001)) v(source, statuses, max_rows) LOOP
    query := concat(' FROM jobq.jobs j WHERE j.id >= $1 AND j.id < $2 AND j.status = ANY (', quote_literal(of.statuses), ')',
                    ' AND j.job_type = ' || quote_literal(job_type), ' AND coalesce(j.tenant, '''') = ' || quote_literal(tenant));
    query := CASE of.source WHEN 'queue' THEN 'SELECT json_build_array(j.status, count(*)), NULL::uuid' || query || ' GROUP BY j.status'
                            ELSE 'SELECT json_build_array(j.status, 1), j.id' || query || ' ORDER BY j.id DESC LIMIT $3' END;
    RETURN QUERY
      WITH found AS MATERIALIZED (
        SELECT f.item ->> 0 AS status, (f.item ->> 1)::bigint AS n
          FROM jobq_internal._search(ARRAY[of.source], query, NULL, NULL, of.max_rows, time_limit / 3) f)
      SELECT s.status, least(coalesce(sum(f.n), 0), 10000)::bigint,
             coalesce(sum(f.n), 0) <= 10000 AND (SELECT count(*) < of.max_rows AND count(*) = count(x.n) FROM found x)
        FROM unnest(of.statuses) s(status) LEFT JOIN found f ON f.status = s.status::text GROUP BY s.status;
  END LOOP;
END $$;

CREATE FUNCTION jobq_internal._search_runs(workflow text, status jobq.job_status, before uuid, max_rows int, time_limit interval DEFAULT '1s')
  RETURNS TABLE(item json, id uuid) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._search_type(workflow, 'workflow');
  RETURN QUERY SELECT * FROM jobq_internal._search('{runs}',
    concat('SELECT to_json(r), r.id FROM jobq.workflow_runs r WHERE r.id >= $1 AND r.id < $2',
           ' AND r.workflow = ' || quote_literal(workflow), ' AND r.status = ' || quote_literal(status), ' ORDER BY r.id DESC LIMIT $3'),
    NULL, before, max_rows, time_limit);
END $$;

-- The jobs of a schedule, which are not older; a day is for clocks that were set back.
CREATE FUNCTION jobq_internal._search_scheduled(
  schedule text, tenant text, created_at timestamptz, before uuid, max_rows int, time_limit interval DEFAULT '1s')
  RETURNS TABLE(item json, id uuid) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT s.* FROM jobq_internal._search('{queue,history,dead_letters}',
    concat('SELECT to_json(j), j.id FROM jobq.jobs j WHERE j.id >= $1 AND j.id < $2 AND j.metadata ->> ''schedule'' = ', quote_literal(schedule),
           ' AND j.tenant IS NOT DISTINCT FROM ', quote_nullable(tenant), ' ORDER BY j.id DESC LIMIT $3'),
    (lpad(to_hex(greatest((extract(epoch FROM created_at - interval '1 day') * 1000)::int8, 0)), 12, '0') || repeat('0', 20))::uuid,
    before, max_rows, time_limit) s
$$;

-- Rows of jobq.events, alerts or audit.  filter: columns and their values.
-- many: calls for more than a job or a run, and no steps of a bulk action.
CREATE FUNCTION jobq_internal._search_log(
  source text, filter jsonb, since timestamptz, until timestamptz, before text, max_rows int, time_limit interval DEFAULT '1s')
  RETURNS TABLE(item json, key text) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tie text := CASE source WHEN 'alerts' THEN 'coalesce(t.job_id::text, '''')' ELSE 't.id' END;
  last timestamptz := timestamptz 'epoch' + split_part(before, '.', 1)::int8 * interval '1us';
BEGIN
  RETURN QUERY SELECT * FROM jobq_internal._search_times(source,
    concat(format('SELECT to_json(t), (extract(epoch FROM t.ts) * 1000000)::int8 || ''.'' || %s FROM jobq.%I t WHERE t.ts >= $1 AND t.ts < $2',
                  tie, source),
           ' AND (t.ts, ' || tie || ') < (' || quote_literal(last) || ', ' || quote_literal(split_part(before, '.', 2))
             || CASE source WHEN 'alerts' THEN ')' ELSE '::int8)' END,
           (SELECT string_agg(format(CASE f.key WHEN 'tenant' THEN ' AND coalesce(t.%I, '''') = %L'
                                                WHEN 'many' THEN ' AND (t.object_type NOT IN (''job'', ''run'') AND NOT coalesce(t.new ? ''bulk'', false)) = %2$L'
                                                ELSE ' AND t.%I = %L' END, f.key, f.value), '')
              FROM jsonb_each_text(filter) f WHERE f.value IS NOT NULL),
           format(' ORDER BY t.ts DESC, %s DESC LIMIT $3', tie)),
    since, least(until, last + interval '1us'), max_rows, time_limit);
END $$;

-- The groups of jobq.error_groups (below), and a last row without an item.  seen_by:
-- only jobs that this role may read.
CREATE FUNCTION jobq_internal._search_errors(
  since timestamptz DEFAULT NULL, job_type text DEFAULT NULL, tenant text DEFAULT NULL, max_rows int DEFAULT 50, time_limit interval DEFAULT '1s',
  error_code text DEFAULT NULL, seen_by oid DEFAULT NULL)
  RETURNS TABLE(item json, key text) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  filter text := concat(' AND x.type_id IN (SELECT t.id FROM jobq.job_types t WHERE t.name = ' || quote_literal(job_type) || ')',
                        ' AND coalesce(x.tenant, '''') = ' || quote_literal(tenant),
                        ' AND coalesce(x.error_code, '''') = ' || quote_literal(error_code),
                        ' AND jobq_internal._sees(' || seen_by || ', x.tenant, x.type_id, x.enqueued_by)');
  query text := 'SELECT json_build_object(''job_type'', jobq_internal._type_name(x.type_id), ''error_code'', x.error_code,'
                ' ''error_msg'', x.error_msg, ''at'', %1$s, ''id'', x.id), %2$s FROM jobq.%3$I x WHERE x.%4$I >= $1 AND x.%4$I < $2';
BEGIN
  IF max_rows IS NULL OR max_rows < 0 THEN
    RAISE EXCEPTION USING ERRCODE = CASE WHEN max_rows < 0 THEN '22003' ELSE '22004' END,
      MESSAGE = CASE WHEN max_rows < 0 THEN format('argument "max_rows": %s is outside 0..2147483647', max_rows)
                     ELSE 'argument "max_rows" must not be NULL' END;
  END IF;
  PERFORM jobq_internal._search_type(job_type);
  RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT d.item, d.key FROM jobq_internal._search_times('dead_letters',
        format(query, 'x.completed_at', 'NULL', 'dead_letters', 'completed_at') || filter || ' ORDER BY x.completed_at DESC LIMIT $3',
        since, NULL, 10000, time_limit / 2) d
      UNION ALL
      SELECT q.item, (('x' || left(replace(q.id::text, '-', ''), 12))::bit(48)::int8 * 1000)::text || '.' FROM jobq_internal._search('{failed}',
        concat(format(query, 'coalesce(x.started_at, x.created_at)', 'x.id', 'queue', 'id'), ' AND x.error_msg IS NOT NULL AND x.status = ''retry''', filter,
               ' AND coalesce(x.started_at, x.created_at) >= ' || quote_literal(since)), NULL, NULL, 2147483647, time_limit / 2) q),
    newest AS (
      SELECT r.* FROM found f, json_to_record(f.item) r(job_type text, error_code text, error_msg text, at timestamptz, id uuid)
       WHERE f.item IS NOT NULL ORDER BY r.at DESC LIMIT 10000),
    groups AS (
      SELECT n.job_type, n.error_code, jobq_internal._error_pattern(n.error_msg) AS pattern, count(*) AS n, min(n.at) AS first, max(n.at) AS last,
             (array_agg(n.id ORDER BY n.at DESC, n.id DESC))[1] AS job_id
        FROM newest n GROUP BY 1, 2, 3 ORDER BY 4 DESC, 6 DESC, 1, 2, 3 LIMIT max_rows)
    SELECT to_json(g), NULL FROM groups g
    UNION ALL
    SELECT NULL, t.key FROM (SELECT f.key FROM found f WHERE f.item IS NULL ORDER BY split_part(f.key, '.', 1)::int8 DESC LIMIT 1) t;
END $$;

-- The jobs of a bulk action (src/web/bulk.c), not newer than newest: an id, of a
-- purge the time of the end.
CREATE FUNCTION jobq_internal._search_bulk(
  action text, filter jsonb, newest text, before uuid, max_rows int, time_limit interval DEFAULT '1s')
  RETURNS TABLE(item json, id uuid) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM (filter ->> 'include_running')::boolean, (filter ->> 'status')::jobq.job_status,
          jobq_internal._search_type(filter ->> 'job_type'), jobq_internal._check_like(filter ->> 'error_like');
  RETURN QUERY SELECT * FROM jobq_internal._search(CASE action WHEN 'cancel' THEN '{queue}' ELSE '{dead_letters}' END::text[],
    concat('SELECT to_json(j.id), j.id FROM jobq.jobs j WHERE j.id >= $1 AND j.id < $2 AND j.status IN (',
           CASE WHEN action <> 'cancel' THEN '''error'')'
                WHEN (filter ->> 'include_running')::boolean OR filter ->> 'status' = 'running' THEN '''pending'', ''blocked'', ''retry'', ''running'')'
                ELSE '''pending'', ''blocked'', ''retry'')' END,
           CASE action WHEN 'purge' THEN ' AND j.completed_at <= ' ELSE ' AND j.id <= ' END || quote_literal(newest),
           ' AND j.job_type = ' || quote_literal(filter ->> 'job_type'),
           ' AND coalesce(j.tenant, '''') = ' || quote_literal(filter ->> 'tenant'),
           ' AND j.status = ' || quote_literal(filter ->> 'status'),
           ' AND j.payload @> ' || quote_literal(nullif(filter -> 'payload_contains', 'null')),
           ' AND j.error_msg LIKE ' || quote_literal(filter ->> 'error_like'),
           ' AND coalesce(j.error_code, '''') = ' || quote_literal(filter ->> 'error_code'),
           ' AND coalesce(jobq_internal._error_pattern(j.error_msg), '''') = ' || quote_literal(filter ->> 'error_pattern'),
           ' ORDER BY j.id DESC LIMIT $3'),
    NULL, before, max_rows, time_limit);
END $$;

-- The job types and live jobs and dead letters of a role that may not read all.
CREATE FUNCTION jobq_internal._search_overview(time_limit interval DEFAULT '500ms')
  RETURNS TABLE(job_type text, pending bigint, blocked bigint, retry bigint, running bigint, dead bigint, exact boolean)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH found AS MATERIALIZED (
    SELECT f.item ->> 0 AS job_type, f.item ->> 1 AS status, (f.item ->> 2)::bigint AS n
      FROM unnest('{queue,dead_letters}'::text[]) source, LATERAL jobq_internal._search(ARRAY[source],
        'SELECT json_build_array(j.job_type, j.status, count(*)), NULL::uuid FROM jobq.jobs j WHERE j.id >= $1 AND j.id < $2 AND j.status = ANY ('
        || CASE source WHEN 'queue' THEN '''{pending,blocked,retry,running}''' ELSE '''{error}''' END || ') GROUP BY j.job_type, j.status',
        NULL, NULL, 2147483647, time_limit / 2) f)
  SELECT f.job_type, coalesce(sum(f.n) FILTER (WHERE f.status = 'pending'), 0), coalesce(sum(f.n) FILTER (WHERE f.status = 'blocked'), 0),
         coalesce(sum(f.n) FILTER (WHERE f.status = 'retry'), 0), coalesce(sum(f.n) FILTER (WHERE f.status = 'running'), 0),
         coalesce(sum(f.n) FILTER (WHERE f.status = 'error'), 0), (SELECT bool_and(x.n IS NOT NULL) FROM found x)
    FROM found f WHERE f.n IS NOT NULL GROUP BY f.job_type ORDER BY f.job_type
$$;

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
-- The time of a retry is the start of its last attempt.  No index has the
-- retries: the search ends after a second.
CREATE FUNCTION jobq_internal._error_groups(caller oid, since timestamptz, of_type text, of_tenant text, max_rows int)
  RETURNS TABLE(job_type text, error_code text, pattern text, n bigint, first timestamptz, last timestamptz, job_id uuid)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_not_null('max_rows', max_rows IS NOT NULL),
          jobq_internal._check_number('max_rows', max_rows, 0, 2147483647);
  IF of_type IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = of_type AND jobq_internal._knows_type(caller, t.name)) THEN
    PERFORM jobq_internal._bad_name('job type', of_type);
  END IF;
  RETURN QUERY
    SELECT g.*
      FROM jobq_internal._search_errors(since, of_type, of_tenant, max_rows,
             seen_by => CASE WHEN NOT jobq_internal._is_free(caller) THEN caller END) e,
           json_to_record(e.item) g(job_type text, error_code text, pattern text, n bigint, first timestamptz, last timestamptz, job_id uuid)
     WHERE e.item IS NOT NULL ORDER BY g.n DESC, g.last DESC, g.job_type, g.error_code, g.pattern;
END $$;
