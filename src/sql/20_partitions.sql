
-- Partitions of jobq.history and jobq.artifacts (by expires_at), jobq.events,
-- jobq.alerts and jobq.audit (by ts).
--
-- They are made one at a time, with fixed boundaries: multiples of
-- jobq.partition_interval since 1970.  Far ahead they are whole days, months,
-- years and more (_partition_bounds), cut where they meet a neighbour of
-- another width.  So there are a few hundred at most, for any retention time.
--
-- CREATE LIKE + ATTACH takes no lock on the parent that a writer would wait
-- for.  Partitions are not members of the extension, so that dumps carry them;
-- one that exists already (also from a restored dump) is kept.  Each has its
-- own indexes and the parents have none: in a restored dump ATTACH would
-- create the parents' indexes, which would collide with the dump's own.
--
-- They are removed in two steps, because a drop needs an exclusive lock on the
-- parent: a partition is emptied when no other session uses it, and dropped
-- when the parent's lock is free.
--
-- A query that names a partition is not held to the policies of its parent.
-- So each partition has the policies itself, and no privileges but its
-- owner's, whatever default privileges or a restore have added.

-- Bounds are read back as text, so the settings that format them are pinned.
-- (And no backslash in a plain string: standard_conforming_strings is the
-- session's.)
CREATE FUNCTION jobq_internal._partitions(parent regclass)
  RETURNS TABLE(partition regclass, low timestamptz, high timestamptz)
  LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
  SELECT i.inhrelid::regclass,
         coalesce((regexp_match(b.bound, 'FROM [(]''([^'']+)''[)]'))[1], '-infinity')::timestamptz,
         coalesce((regexp_match(b.bound, 'TO [(]''([^'']+)''[)]'))[1], 'infinity')::timestamptz
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
         LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid)) b(bound)
   WHERE i.inhparent = parent AND NOT i.inhdetachpending
$$;

-- Returns the partitions that a query past the parent could read or empty with
-- privileges which jobq did not grant.
CREATE FUNCTION jobq_internal._exposed_partitions() RETURNS TABLE(partition regclass, parent regclass)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.oid::regclass, i.inhparent::regclass
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
   WHERE i.inhparent = ANY ('{jobq.history,jobq.artifacts,jobq.events,jobq.alerts,jobq.audit}'::text[]::regclass[])
     AND (NOT c.relrowsecurity
          OR NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)
          OR EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee <> c.relowner))
$$;

-- Gives a partition the row-level security of its parent and leaves its
-- privileges to its owner.  Only missing parts take a lock.  Privileges need
-- none, so they go first.
CREATE FUNCTION jobq_internal._protect_partition(partition regclass, parent regclass) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT DISTINCT format('REVOKE ALL ON %s FROM %s CASCADE', partition,
                           CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
      FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = partition AND a.grantee <> c.relowner LOOP
    EXECUTE statement;
  END LOOP;
  BEGIN
    IF NOT (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = partition) THEN
      EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', partition);
    END IF;
    FOR statement IN
      SELECT format('CREATE POLICY %I ON %s FOR SELECT USING (%s)', p.polname, partition,
                    pg_get_expr(p.polqual, p.polrelid))
        FROM pg_policy p WHERE p.polrelid = parent
         AND NOT EXISTS (SELECT FROM pg_policy o WHERE o.polrelid = partition AND o.polname = p.polname) LOOP
      EXECUTE statement;
    END LOOP;
  EXCEPTION WHEN lock_not_available THEN
    NULL;  -- in use: left to the next run
  END;
END $$;

-- Gives each table without a primary key a replica identity.  Without one
-- UPDATE and DELETE fail while a publication has all tables.  FULL needs no
-- index: rows of these tables are rarely changed by SQL.
CREATE FUNCTION jobq_internal._identify_tables() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t regclass;
BEGIN
  FOR t IN SELECT c.oid FROM pg_class c
            WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p') AND c.relreplident = 'd'
              AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) LOOP
    EXECUTE format('ALTER TABLE ONLY %s REPLICA IDENTITY %s', t,
                   CASE t WHEN 'jobq.queue'::regclass THEN 'USING INDEX queue_id' ELSE 'FULL' END);
  END LOOP;
END $$;

-- Returns the bounds of the partition that a moment belongs to: those of the
-- longest unit that begins far enough ahead of `at`.  Rows kept for up to 31
-- days never meet a month.
CREATE FUNCTION jobq_internal._partition_bounds(moment timestamptz, at timestamptz, OUT low timestamptz, OUT high timestamptz)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE
  width interval := current_setting('jobq.partition_interval');
  seconds numeric := extract(epoch FROM width);
  year int := extract(year FROM moment);
  unit record;
BEGIN
  FOR unit IN SELECT * FROM (VALUES
      (1000, interval '1000 years', interval '500 years'), (100, '100 years', '50 years'), (10, '10 years', '5 years'),
      (1, '1 year', '6 months'), (NULL, '1 month', '32 days'), (NULL, '1 day', 48 * width)) u(years, length, ahead) LOOP
    EXIT WHEN unit.length <= width;
    low := CASE WHEN unit.years IS NOT NULL THEN make_timestamptz(year - year % unit.years, 1, 1, 0, 0, 0)
                WHEN unit.length = '1 month' THEN date_trunc('month', moment)
                ELSE date_trunc('day', moment) END;
    high := low + unit.length;
    IF low >= at + unit.ahead THEN
      RETURN;
    END IF;
  END LOOP;
  low := to_timestamp(floor(extract(epoch FROM moment) / seconds) * seconds);
  high := low + make_interval(secs => seconds::float8);
END $$;

CREATE FUNCTION jobq_internal._ensure_partition(parent regclass, moment timestamptz, at timestamptz DEFAULT clock_timestamp())
  RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
  SET default_tablespace = '' SET default_table_access_method = 'heap' AS $$
DECLARE
  starts timestamptz;
  ends timestamptz;
  name text;
BEGIN
  IF moment IS NULL OR NOT isfinite(moment)
     OR parent NOT IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass, 'jobq.events'::regclass, 'jobq.alerts'::regclass,
                       'jobq.audit'::regclass) THEN
    PERFORM jobq_internal._bad('22023', format('no partition of %s can hold "%s"', parent, moment));
  END IF;
  IF EXISTS (SELECT FROM jobq_internal._partitions(parent) p WHERE moment >= p.low AND moment < p.high) THEN
    RETURN;
  END IF;
  -- a second session that makes the same partition waits here, then sees it
  EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', parent);
  IF EXISTS (SELECT FROM jobq_internal._partitions(parent) p WHERE moment >= p.low AND moment < p.high) THEN
    RETURN;
  END IF;
  SELECT b.low, b.high INTO starts, ends FROM jobq_internal._partition_bounds(moment, at) b;
  SELECT greatest(starts, max(p.high) FILTER (WHERE p.high <= moment)),
         least(ends, min(p.low) FILTER (WHERE p.low > moment))
    INTO starts, ends FROM jobq_internal._partitions(parent) p;
  SELECT format('%s_%s', c.relname, to_char(starts, CASE WHEN starts = date_trunc('day', starts) THEN 'YYYYMMDD'
                                                      ELSE 'YYYYMMDD_HH24MISS' END))
    INTO name FROM pg_class c WHERE c.oid = parent;
  IF to_regclass(format('jobq.%I', name)) IS NOT NULL THEN
    RETURN;  -- a restore is about to attach it
  END IF;
  EXECUTE format('CREATE TABLE jobq.%I (LIKE %s INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS INCLUDING STORAGE)',
                 name, parent);
  EXECUTE format('ALTER TABLE jobq.%I REPLICA IDENTITY FULL', name);
  IF parent = 'jobq.history'::regclass THEN
    EXECUTE format('CREATE INDEX %I ON jobq.%I (id)', name || '_id', name);
    EXECUTE format('CREATE INDEX %I ON jobq.%I (type_id, unique_key) WHERE unique_until IS NOT NULL',
                   name || '_unique_key', name);
    EXECUTE format('CREATE INDEX %I ON jobq.%I (type_id, completed_at, id) WHERE counted', name || '_counted', name);
    EXECUTE format('CREATE INDEX %I ON jobq.%I (workflow_id) WHERE workflow_id IS NOT NULL', name || '_workflow', name);
  ELSIF parent = 'jobq.artifacts'::regclass THEN
    EXECUTE format('CREATE INDEX %I ON jobq.%I (job_id)', name || '_job', name);
    EXECUTE format('CREATE INDEX %I ON jobq.%I (workflow_id) WHERE workflow_id IS NOT NULL', name || '_workflow', name);
  ELSIF parent = 'jobq.events'::regclass THEN
    EXECUTE format('CREATE INDEX %I ON jobq.%I (job_id, ts)', name || '_job', name);
  END IF;
  IF parent = 'jobq.audit'::regclass THEN
    EXECUTE format('CREATE TRIGGER kept BEFORE TRUNCATE ON jobq.%I'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._refuse_audit_change()', name);
    EXECUTE format('ALTER TABLE jobq.%I ENABLE ALWAYS TRIGGER kept', name);
  END IF;
  IF parent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass)
     AND ends - starts > greatest('1 day', current_setting('jobq.partition_interval')::interval) THEN
    EXECUTE format('CREATE INDEX %I ON jobq.%I (expires_at)', name || '_expires', name);  -- for _drop_expired
  END IF;
  EXECUTE format('ALTER TABLE ONLY %s ATTACH PARTITION jobq.%I FOR VALUES FROM (%L) TO (%L)',
                 parent, name, starts, ends);
  PERFORM jobq_internal._protect_partition(format('jobq.%I', name)::regclass, parent);
END $$;

-- Makes the partitions of history and of artifacts.  A job's end must not wait
-- for the latter: when a session holds that table, the next run makes them.
CREATE FUNCTION jobq_internal._ensure_history_partition(expires_at timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._ensure_partition('jobq.history', expires_at);
  PERFORM jobq_internal._ensure_partition('jobq.artifacts', expires_at);
EXCEPTION WHEN lock_not_available THEN
  PERFORM jobq_internal._ensure_partition('jobq.history', expires_at);
END $$;

-- Makes the partitions of events and of alerts, which are kept alike.
CREATE FUNCTION jobq_internal._ensure_events_partition(ts timestamptz) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT jobq_internal._ensure_partition('jobq.events', ts), jobq_internal._ensure_partition('jobq.alerts', ts)
$$;

-- src/tables/partition.c.  Has another process, with a transaction of its own,
-- make the partitions that a new type needs first: a transaction that has read
-- jobq.jobs sees no partition attached later.
CREATE FUNCTION jobq_internal._want_partitions(keep_completed interval) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_want_partitions';
-- Makes the partitions for rows of history and artifacts that expire then; in a
-- client's session another process makes them.
CREATE FUNCTION jobq_internal._have_partitions(expires_at timestamptz) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_have_partitions';

-- Makes the partitions that jobs of a type will need, now and in the next
-- interval.
CREATE FUNCTION jobq_internal._ensure_partitions_of_type(keep_completed interval) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  FOR i IN 0..1 LOOP
    PERFORM jobq_internal._ensure_events_partition(moment),
            CASE WHEN keep_completed > '0' THEN jobq_internal._ensure_history_partition(moment + keep_completed)
                 ELSE jobq_internal._ensure_partition('jobq.artifacts', moment + interval '1 day') END
       FROM (SELECT clock_timestamp() + i * current_setting('jobq.partition_interval')::interval) t(moment);
  END LOOP;
END $$;

-- Empties the expired partitions of history, artifacts, events or alerts, and
-- drops the empty ones; those of audit are dropped as they are.  It waits for
-- no lock: the next run handles the rest.  A partition may wait for a job
-- before (27_before_drop.sql).  In a restored dump nothing expires before
-- adopt().
CREATE FUNCTION jobq_internal._expire_partitions(parent regclass) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  before timestamptz := CASE WHEN parent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass) THEN clock_timestamp()
    WHEN parent = 'jobq.audit'::regclass THEN clock_timestamp() - current_setting('jobq.keep_audit')::interval
    ELSE clock_timestamp() - current_setting('jobq.keep_events')::interval END;
  expired regclass;
  from_time timestamptz;
  to_time timestamptz;
  asks boolean := jobq_internal._asks_before_drop(parent);
  critical boolean := asks AND jobq_internal._disk_is_critical();
  released timestamptz := 'infinity';
  unseen boolean;
BEGIN
  IF NOT jobq_internal._rows_are_ours() THEN
    RETURN;
  END IF;
  FOR expired, from_time, to_time IN
    SELECT p.partition, p.low, p.high FROM jobq_internal._partitions(parent) p WHERE p.high <= before ORDER BY p.low LOOP
    CONTINUE WHEN pg_relation_size(expired) = 0 OR parent = 'jobq.audit'::regclass;
    IF asks THEN
      released := jobq_internal._released_until(parent, from_time, to_time, NOT critical);
      IF released > '-infinity' AND released < to_time THEN  -- only a range of it had its job
        PERFORM jobq_internal._forget_drops(parent, from_time, released);
        PERFORM jobq_internal._ask_before_drop((SELECT c.relname FROM pg_class c WHERE c.oid = parent), released, to_time);
      END IF;
      CONTINUE WHEN released < to_time AND NOT critical;
    END IF;
    BEGIN
      EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', expired);
      unseen := jobq_internal._edges_mark() IS NULL;
      IF parent = 'jobq.history'::regclass AND (EXISTS (SELECT FROM jobq.hook_references) OR EXISTS (SELECT FROM jobq.dependencies)) THEN
        PERFORM jobq_internal._postpone_referenced();
      END IF;
      IF parent = 'jobq.history'::regclass AND unseen THEN
        PERFORM jobq_internal._postpone_awaited(expired);
      END IF;
      EXECUTE format('TRUNCATE ONLY %s', expired);
      PERFORM jobq_internal._forget_drops(parent, from_time, to_time);
      IF released < to_time THEN
        PERFORM jobq_internal._tell_of_drop(parent, from_time, to_time);
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  BEGIN
    FOR expired IN SELECT p.partition FROM jobq_internal._partitions(parent) p
                    WHERE p.high <= before AND (pg_relation_size(p.partition) = 0 OR parent = 'jobq.audit'::regclass) LOOP
      EXECUTE format('LOCK TABLE ONLY %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', parent, expired);
      IF pg_relation_size(expired) = 0 OR parent = 'jobq.audit'::regclass THEN  -- a row may have come before the lock
        EXECUTE format('DROP TABLE %s', expired);
      END IF;
    END LOOP;
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
END $$;

-- Runs the maintenance process's care of partitions. need: the expires_at of a
-- row that found no partition, or NULL.
CREATE FUNCTION jobq_internal._maintain(need timestamptz) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
  width interval := current_setting('jobq.partition_interval');
BEGIN
  IF need IS NOT NULL THEN
    PERFORM jobq_internal._ensure_history_partition(need);
  END IF;
  FOR i IN 0..7 LOOP
    PERFORM jobq_internal._ensure_events_partition(clock_timestamp() + i * width);
  END LOOP;
  PERFORM jobq_internal._ensure_audit_partition(clock_timestamp() + d * interval '8 days') FROM generate_series(0, 1) d;
  PERFORM jobq_internal._ensure_partitions_of_type(t.keep_completed)
     FROM (SELECT DISTINCT keep_completed FROM jobq.job_types WHERE dropped_at IS NULL LIMIT 100) t;
  PERFORM jobq_internal._protect_partition(p.partition, p.parent) FROM jobq_internal._exposed_partitions() p;
  PERFORM jobq_internal._follow_renamed_roles();
  PERFORM jobq_internal._forget_stale_drops();

  PERFORM jobq_internal._expire_partitions('jobq.events'), jobq_internal._expire_partitions('jobq.alerts'),
          jobq_internal._expire_partitions('jobq.artifacts'), jobq_internal._expire_partitions('jobq.history'),
          jobq_internal._expire_partitions('jobq.audit');
END $$;

CREATE INDEX dead_letters_expires_at ON jobq.dead_letters (expires_at) WHERE expires_at < 'infinity';
