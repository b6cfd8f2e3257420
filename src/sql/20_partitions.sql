
-- Partitions of jobq.history and jobq.artifacts (by expires_at), jobq.events,
-- jobq.alerts and jobq.audit (by ts).
--
-- Maintenance makes them ahead of need, one at a time, with fixed boundaries:
-- multiples of jobq.partition_interval since 1970.  Far ahead they are whole
-- days, months, years and more (_partition_bounds), cut where they meet a
-- neighbour of another width.  So there are a few hundred at most, for any
-- retention time.
--
-- All but audit have a default partition as a net, so that no job waits for a
-- partition and no settlement fails for want of one.  It takes the rows that no
-- partition holds: those of a new retention time, until maintenance has made its
-- partitions, and all rows while maintenance can't.  They stay there until
-- they expire (_drop_expired), and a new partition leaves out their times.
--
-- A new partition scans the default one under an exclusive lock.  So maintenance
-- makes none while that is large, and waits 50 ms for the lock, because readers
-- of the parent wait behind it.  The lock on the parent is one that no writer
-- waits for.  Partitions are not members of the extension, so that dumps carry
-- them; one that exists already (also from a restored dump) is kept.  The
-- default ones are members, and dumps carry their rows.  Each partition has its
-- own indexes and the parents have none: in a restored dump ATTACH would create
-- the parents' indexes, which would collide with the dump's own.
--
-- They are removed in two steps, because a drop needs an exclusive lock on the
-- parent: a partition is emptied when no other session uses it, and dropped
-- when the parent's lock is free.
--
-- A query that names a partition is not held to the policies of its parent.
-- So each partition has the policies itself, and no privileges but its
-- owner's, whatever default privileges or a restore have added.

CREATE TABLE jobq.history_default PARTITION OF jobq.history DEFAULT;
CREATE INDEX history_default_id ON jobq.history_default (id);
CREATE INDEX history_default_unique_key ON jobq.history_default (type_id, unique_key) WHERE unique_until IS NOT NULL;
CREATE INDEX history_default_counted ON jobq.history_default (type_id, completed_at, id) WHERE counted;
CREATE INDEX history_default_workflow ON jobq.history_default (workflow_id, parent_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX history_default_expires ON jobq.history_default (expires_at);
CREATE TABLE jobq.events_default PARTITION OF jobq.events DEFAULT;
CREATE INDEX events_default_job ON jobq.events_default (job_id, ts);
CREATE INDEX events_default_ts ON jobq.events_default (ts);
CREATE TABLE jobq.alerts_default PARTITION OF jobq.alerts DEFAULT;
CREATE INDEX alerts_default_ts ON jobq.alerts_default (ts);
SELECT pg_catalog.pg_extension_config_dump('jobq.history_default', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.events_default', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.alerts_default', '');

-- Returns the partitions but the default one.  Bounds are read back as text, so
-- the settings that format them are pinned.  (And no backslash in a plain
-- string: standard_conforming_strings is the session's.)
CREATE FUNCTION jobq_internal._partitions(parent regclass)
  RETURNS TABLE(partition regclass, low timestamptz, high timestamptz)
  LANGUAGE sql STABLE
  SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
  SELECT i.inhrelid::regclass,
         coalesce((regexp_match(b.bound, 'FROM [(]''([^'']+)''[)]'))[1], '-infinity')::timestamptz,
         coalesce((regexp_match(b.bound, 'TO [(]''([^'']+)''[)]'))[1], 'infinity')::timestamptz
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
         LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid)) b(bound)
   WHERE i.inhparent = parent AND NOT i.inhdetachpending AND b.bound <> 'DEFAULT'
$$;

-- Returns the default partition of a table; NULL: it has none.
CREATE FUNCTION jobq_internal._default_partition(parent regclass) RETURNS regclass
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.partdefid::regclass FROM pg_partitioned_table p WHERE p.partrelid = parent AND p.partdefid <> 0
$$;

-- Returns the column that a table is partitioned by.
CREATE FUNCTION jobq_internal._partition_key(parent regclass) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN parent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass) THEN 'expires_at' ELSE 'ts' END
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

-- Returns the bounds of the partition to be made for a moment: cut at its
-- neighbours and at rows of the default partition.  NULL: there is one, or rows
-- of the default partition leave no room that is worth one.
CREATE FUNCTION jobq_internal._partition_gap(parent regclass, moment timestamptz, at timestamptz,
                                             OUT low timestamptz, OUT high timestamptz)
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  net regclass := jobq_internal._default_partition(parent);
  room interval;
  before timestamptz;
  after timestamptz;
BEGIN
  IF EXISTS (SELECT FROM jobq_internal._partitions(parent) p WHERE moment >= p.low AND moment < p.high) THEN
    RETURN;
  END IF;
  SELECT b.low, b.high INTO low, high FROM jobq_internal._partition_bounds(moment, at) b;
  SELECT greatest(_partition_gap.low, max(p.high) FILTER (WHERE p.high <= moment)),
         least(_partition_gap.high, min(p.low) FILTER (WHERE p.low > moment))
    INTO low, high FROM jobq_internal._partitions(parent) p;
  IF net IS NULL OR pg_relation_size(net) = 0 THEN
    RETURN;
  END IF;
  room := high - low;
  EXECUTE format('SELECT max(r.%1$I) FROM ONLY %2$s r WHERE r.%1$I >= $1 AND r.%1$I <= $2',
                 jobq_internal._partition_key(parent), net) INTO before USING low, moment;
  low := coalesce(date_trunc('second', before) + interval '1 second', low);
  EXECUTE format('SELECT min(r.%1$I) FROM ONLY %2$s r WHERE r.%1$I >= $1 AND r.%1$I < $2',
                 jobq_internal._partition_key(parent), net) INTO after USING low, high;
  high := coalesce(date_trunc('second', after), high);
  IF high - low < room / 16 THEN
    low := NULL;
    high := NULL;
  END IF;
END $$;

-- Makes the partition for a moment, if there is room for one.
CREATE FUNCTION jobq_internal._attach_partition(parent regclass, moment timestamptz, at timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  starts timestamptz;
  ends timestamptz;
  name text;
BEGIN
  SELECT g.low, g.high INTO starts, ends FROM jobq_internal._partition_gap(parent, moment, at) g;
  IF starts IS NULL THEN
    RETURN;
  END IF;
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
    EXECUTE format('CREATE INDEX %I ON jobq.%I (workflow_id, parent_id) WHERE workflow_id IS NOT NULL', name || '_workflow', name);
  ELSIF parent = 'jobq.artifacts'::regclass THEN
    EXECUTE format('CREATE INDEX %I ON jobq.%I (job_id)', name || '_job', name);
    EXECUTE format('CREATE INDEX %I ON jobq.%I (workflow_id) WHERE workflow_id IS NOT NULL', name || '_workflow', name);
  ELSIF parent = 'jobq.events'::regclass THEN
    EXECUTE format('CREATE INDEX %I ON jobq.%I (job_id, ts)', name || '_job', name);
  END IF;
  IF parent IN ('jobq.events'::regclass, 'jobq.alerts'::regclass, 'jobq.audit'::regclass) THEN
    -- for _search_times: rows come in the order of ts, and this index costs them next to nothing
    EXECUTE format('CREATE INDEX %I ON jobq.%I USING brin (ts) WITH (autosummarize = on)', name || '_ts', name);
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

CREATE FUNCTION jobq_internal._ensure_partition(parent regclass, moment timestamptz, at timestamptz DEFAULT clock_timestamp())
  RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
  SET default_tablespace = '' SET default_table_access_method = 'heap' AS $$
DECLARE
  net regclass := jobq_internal._default_partition(parent);
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
  IF net IS NOT NULL THEN  -- not free: found before the work that a rollback would waste
    BEGIN
      EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', net);
      RAISE SQLSTATE 'JQ000';
    EXCEPTION WHEN SQLSTATE 'JQ000' THEN
      NULL;  -- and given back: jobs end meanwhile
    END;
  END IF;
  BEGIN
    PERFORM jobq_internal._attach_partition(parent, moment, at);
  EXCEPTION WHEN check_violation THEN
    -- a row went to the default partition meanwhile: now none does
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', net);
    PERFORM jobq_internal._attach_partition(parent, moment, at);
  END;
END $$;

-- Returns the time before which rows of a table have expired, by its key.
CREATE FUNCTION jobq_internal._expired_before(parent regclass) RETURNS timestamptz
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT clock_timestamp() - CASE WHEN parent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass) THEN interval '0'
    WHEN parent = 'jobq.audit'::regclass THEN current_setting('jobq.keep_audit')::interval
    ELSE current_setting('jobq.keep_events')::interval END
$$;

-- Empties the expired partitions of history, artifacts, events or alerts, and
-- drops the empty ones; those of audit are dropped as they are.  It waits for
-- no lock: the next run handles the rest.  A partition may wait for a job
-- before (27_before_drop.sql).  In a restored dump nothing expires before
-- adopt().
CREATE FUNCTION jobq_internal._expire_partitions(parent regclass) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  before timestamptz := jobq_internal._expired_before(parent);
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
      -- an open transaction may write rows that the job does not see yet
      BEGIN
        EXECUTE format('LOCK TABLE ONLY %s IN SHARE MODE NOWAIT', expired);
        RAISE SQLSTATE 'JQ000';
      EXCEPTION WHEN SQLSTATE 'JQ000' THEN
        NULL;  -- and given back
      WHEN lock_not_available THEN
        CONTINUE;
      END;
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
      IF parent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass) THEN
        PERFORM jobq_internal._postpone_of_runs(parent);
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
      EXECUTE format('LOCK TABLE ONLY %s, %s IN ACCESS EXCLUSIVE MODE NOWAIT', parent,
                     concat_ws(', ', jobq_internal._default_partition(parent), expired));
      IF pg_relation_size(expired) = 0 OR parent = 'jobq.audit'::regclass THEN  -- a row may have come before the lock
        EXECUTE format('DROP TABLE %s', expired);
      END IF;
    END LOOP;
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
END $$;

-- Returns the retention times whose partitions maintenance makes: how far ahead
-- of now the rows of a table expire.  Beside those of the job types, and of runs
-- until their deadline, these are of jobs that have come into the default
-- partition with one of their own.  Rows that are kept for other jobs only have
-- none, then a day (_postpone_referenced).
CREATE FUNCTION jobq_internal._retention_times() RETURNS TABLE(parent regclass, ahead interval)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
  WITH types AS (
    SELECT DISTINCT t.keep_completed, t.timeout, t.is_workflow FROM jobq.job_types t WHERE t.dropped_at IS NULL),
  own AS (  -- the most frequent
    SELECT date_trunc('day', h.expires_at - h.completed_at) AS span
      FROM (SELECT n.expires_at, n.completed_at FROM jobq.history_default n ORDER BY n.expires_at DESC LIMIT 1000) h
     WHERE h.expires_at > h.completed_at GROUP BY 1 ORDER BY count(*) DESC LIMIT 16),
  spans(parent, span) AS (
    SELECT v.parent, v.span FROM (VALUES ('jobq.history', interval '0'), ('jobq.history', '1 day'), ('jobq.artifacts', '1 day')) v(parent, span)
    UNION SELECT 'jobq.history', t.keep_completed + CASE WHEN t.is_workflow THEN t.timeout ELSE '0' END FROM types t
            WHERE t.keep_completed > '0'
    UNION SELECT 'jobq.artifacts', t.keep_completed + CASE WHEN t.timeout > '0' THEN t.timeout ELSE interval '1 day' END FROM types t
    UNION SELECT 'jobq.history', o.span FROM own o
    UNION SELECT 'jobq.history', interval '7 days' WHERE current_setting('jobq.before_drop_type') <> '')  -- _ask_before_drop
  SELECT p::regclass, interval '0' FROM unnest('{jobq.events,jobq.alerts}'::text[]) p
   UNION ALL
  SELECT s.parent::regclass, s.span
    FROM (SELECT s.*, row_number() OVER (PARTITION BY s.parent ORDER BY s.span) AS n FROM spans s) s WHERE s.n <= 100
$$;

-- Returns the moments for which maintenance has to make a partition: now and
-- each retention time ahead (due), and up to two widths later.  too_large: the
-- default partition is, so it makes none.  In a database that a dump is being
-- restored into there are none.
CREATE FUNCTION jobq_internal._missing_partitions()
  RETURNS TABLE(parent regclass, moment timestamptz, due boolean, too_large boolean)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH existing AS MATERIALIZED (
    SELECT p.parent, e.low, e.high
      FROM unnest('{jobq.history,jobq.artifacts,jobq.events,jobq.alerts}'::text[]::regclass[]) p(parent),
           LATERAL jobq_internal._partitions(p.parent) e),
  wanted AS MATERIALIZED (
    SELECT r.parent, clock_timestamp() + r.ahead + i * current_setting('jobq.partition_interval')::interval AS moment, i = 0 AS due
      FROM jobq_internal._retention_times() r, generate_series(0, 2) i
     WHERE jobq_internal._rows_are_ours())
  SELECT w.parent, w.moment, w.due,
         coalesce(pg_relation_size(jobq_internal._default_partition(w.parent)) > 64 * 1024 * 1024, false)
    FROM wanted w
   WHERE NOT EXISTS (SELECT FROM existing e WHERE e.parent = w.parent AND w.moment >= e.low AND w.moment < e.high)
     AND (SELECT g.low FROM jobq_internal._partition_gap(w.parent, w.moment, clock_timestamp()) g) IS NOT NULL
   ORDER BY w.due DESC, w.moment
$$;

-- Makes at most max_partitions of those that are missing, and returns how many
-- are missing then.  A default partition that a session uses is left to the next
-- run.
CREATE FUNCTION jobq_internal._make_partitions(max_partitions int) RETURNS int
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  missing record;
  in_use regclass[] := '{}';
  made int := 0;
BEGIN
  FOR missing IN SELECT m.parent, m.moment FROM jobq_internal._missing_partitions() m WHERE NOT m.too_large LOOP
    CONTINUE WHEN missing.parent = ANY (in_use);
    EXIT WHEN made >= max_partitions;
    BEGIN
      PERFORM jobq_internal._ensure_partition(missing.parent, missing.moment);
      made := made + 1;
    EXCEPTION WHEN lock_not_available THEN
      in_use := in_use || missing.parent;
    END;
  END LOOP;
  RETURN (SELECT count(*) FROM jobq_internal._missing_partitions() m WHERE NOT m.too_large);
END $$;

-- Runs the maintenance process's care of partitions; returns the number of
-- partitions that are still missing.  That process drops and makes them in
-- transactions of their own: a drop locks the parent, and a new partition the
-- default one, until the end.  It makes a few at a time, and makes them last.
CREATE FUNCTION jobq_internal._maintain(drops boolean DEFAULT true, makes boolean DEFAULT true) RETURNS int
  LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
  IF drops THEN
    -- a restore makes the policies of its partitions itself
    PERFORM jobq_internal._protect_partition(p.partition, p.parent) FROM jobq_internal._exposed_partitions() p
      WHERE jobq_internal._rows_are_ours();
    PERFORM jobq_internal._follow_renamed_roles();
    PERFORM jobq_internal._forget_stale_drops();
    PERFORM jobq_internal._expire_partitions('jobq.events'), jobq_internal._expire_partitions('jobq.alerts'),
            jobq_internal._expire_partitions('jobq.artifacts'), jobq_internal._expire_partitions('jobq.history'),
            jobq_internal._expire_partitions('jobq.audit');
  END IF;
  IF NOT makes THEN
    RETURN NULL;
  END IF;
  PERFORM jobq_internal._ensure_audit_partition(clock_timestamp() + d * interval '8 days') FROM generate_series(0, 1) d
    WHERE jobq_internal._rows_are_ours();
  RETURN jobq_internal._make_partitions(8);
END $$;

CREATE INDEX dead_letters_expires_at ON jobq.dead_letters (expires_at) WHERE expires_at < 'infinity';
