
-- jobq.before_drop_type: a job of that type gets each range of history, events
-- and artifacts before it is dropped.
--
-- A row here is a range whose rows stay until its job has completed.  Row and
-- job are written by one transaction, and the row goes with the range, so a
-- crash between two steps loses none and enqueues none twice.  A job that was
-- cancelled, skipped or purged did not do its work: another one is enqueued.
CREATE TABLE jobq.before_drops (
  what     text        NOT NULL CHECK (what IN ('history', 'events', 'artifacts')),
  low      timestamptz NOT NULL,
  high     timestamptz NOT NULL,
  job_id   uuid,                  -- NULL: it could not be enqueued
  problem  text,                  -- the reason why
  PRIMARY KEY (what, low)
);
SELECT pg_catalog.pg_extension_config_dump('jobq.before_drops', '');

-- True if a file system is at level critical or above by its last reading.
CREATE FUNCTION jobq_internal._disk_is_critical() RETURNS boolean
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT EXISTS (SELECT FROM (SELECT DISTINCT ON (d.path) d.level FROM jobq.disk_log d
                               WHERE d.ts > (SELECT clock_timestamp()) - interval '5 minutes' ORDER BY d.path, d.ts DESC) l
                  WHERE l.level IN ('critical', 'emergency'))
$$;

-- True if rows of the table wait for a job before they go.
CREATE FUNCTION jobq_internal._asks_before_drop(parent regclass) RETURNS boolean
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT current_setting('jobq.before_drop_type') <> '' AND parent NOT IN ('jobq.alerts'::regclass, 'jobq.audit'::regclass)
$$;

-- Enqueues the job of a range and stores it, unless another session has
-- replaced the former job meanwhile.  The job's own row stays long enough to be
-- seen, whatever its type keeps.
CREATE FUNCTION jobq_internal._ask_before_drop(what text, low timestamptz, high timestamptz, former uuid DEFAULT NULL) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jobq.tenant = '' AS $$
#variable_conflict use_column
DECLARE
  job uuid;
  reason text;
BEGIN
  INSERT INTO jobq.before_drops AS b (what, low, high) VALUES (_ask_before_drop.what, _ask_before_drop.low, _ask_before_drop.high)
  ON CONFLICT ON CONSTRAINT before_drops_pkey DO UPDATE SET high = excluded.high WHERE b.job_id IS NOT DISTINCT FROM former;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  BEGIN
    job := jobq.enqueue(current_setting('jobq.before_drop_type'),
      jsonb_build_object('what', _ask_before_drop.what, 'from', _ask_before_drop.low, 'to', _ask_before_drop.high),
      keep_completed => '7 days', keep_dead => '10 years');
  EXCEPTION WHEN lock_not_available THEN
    RAISE;
  WHEN OTHERS THEN
    reason := SQLERRM;
    RAISE LOG 'jobq: no job of jobq.before_drop_type was enqueued for % from % to %: %',
      _ask_before_drop.what, _ask_before_drop.low, _ask_before_drop.high, reason;
  END;
  UPDATE jobq.before_drops b SET job_id = job, problem = reason
   WHERE b.what = _ask_before_drop.what AND b.low = _ask_before_drop.low;
END $$;

-- Returns the time up to which rows of a partition may go: `due`, or the end
-- of an earlier range of it, when the job of that range has completed;
-- -infinity: not yet.  asks: enqueues a job that is missing.
CREATE FUNCTION jobq_internal._released_until(parent regclass, low timestamptz, due timestamptz, asks boolean)
  RETURNS timestamptz
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  of_table text := (SELECT c.relname FROM pg_class c WHERE c.oid = parent);
  range jobq.before_drops;
  job record;
BEGIN
  SELECT * INTO range FROM jobq.before_drops b
   WHERE b.what = of_table AND b.low >= _released_until.low AND b.low < due ORDER BY b.low LIMIT 1;
  -- by one snapshot: the job may end meanwhile
  SELECT EXISTS (SELECT FROM jobq.history h WHERE h.id = range.job_id AND h.status = 'completed') AS done,
         EXISTS (SELECT FROM jobq.queue q WHERE q.id = range.job_id)
         OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = range.job_id) AS there INTO job;
  IF job.done THEN
    RETURN range.high;
  ELSIF NOT asks OR NOT jobq_internal._home_is_ours() OR job.there THEN
    RETURN '-infinity';
  END IF;
  PERFORM jobq_internal._ask_before_drop(of_table, coalesce(range.low, _released_until.low), due, range.job_id);
  RETURN '-infinity';
END $$;

-- Forgets the ranges of a partition up to a time: their rows are gone.
CREATE FUNCTION jobq_internal._forget_drops(parent regclass, low timestamptz, until timestamptz) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM jobq.before_drops b
   WHERE b.what = (SELECT c.relname FROM pg_class c WHERE c.oid = parent)
     AND b.low >= _forget_drops.low AND b.high <= until
$$;

-- Writes the event of rows that went at disk level critical before their job
-- had completed.
CREATE FUNCTION jobq_internal._tell_of_drop(parent regclass, low timestamptz, high timestamptz) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  what text := (SELECT c.relname FROM pg_class c WHERE c.oid = parent);
BEGIN
  RAISE LOG 'jobq: % from % to % was dropped before its job of jobq.before_drop_type, because a disk is nearly full', what, low, high;
  INSERT INTO jobq.events (type, source, level, message, data)
    VALUES ('partition_dropped', 'dispatcher', 'warning', 'dropped before the job of jobq.before_drop_type, because a disk is nearly full',
          jsonb_build_object('what', what, 'from', low, 'to', high));
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- Forgets ranges that wait for nothing: the setting is empty, or the partition
-- was dropped by other means and the default one has no row of the range.  In a
-- restored dump the rows stay until adopt().
CREATE FUNCTION jobq_internal._forget_stale_drops() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT jobq_internal._rows_are_ours() OR NOT EXISTS (SELECT FROM jobq.before_drops) THEN
    RETURN;  -- and the default partitions are not locked
  END IF;
  DELETE FROM jobq.before_drops b
   WHERE current_setting('jobq.before_drop_type') = ''
      OR NOT EXISTS (SELECT FROM jobq_internal._partitions(format('jobq.%I', b.what)::regclass) p
                      WHERE p.low < b.high AND p.high > b.low)
         AND CASE b.what
             WHEN 'history' THEN NOT EXISTS (SELECT FROM jobq.history_default r WHERE r.expires_at >= b.low AND r.expires_at < b.high)
             WHEN 'artifacts' THEN NOT EXISTS (SELECT FROM jobq.artifacts_default r WHERE r.expires_at >= b.low AND r.expires_at < b.high)
             ELSE NOT EXISTS (SELECT FROM jobq.events_default r WHERE r.ts >= b.low AND r.ts < b.high) END;
END $$;
