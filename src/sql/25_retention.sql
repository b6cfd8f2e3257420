
-- Retention: removes jobs that have expired, or that are too many for their
-- type.
--
-- By age, history and events are removed a partition at a time
-- (20_partitions.sql), rows of the default partitions and dead letters one by
-- one.  By number (options.keep_completed_count, keep_dead_count) the newest of a
-- type stay.
-- Rows of history that count are marked (counted), and only they are in the
-- index that finds the newest of a type: types without the option pay nothing.
-- Finished jobs that hold their unique key (unique_until) count, and stay.
--
-- Maintenance calls
-- jobq_internal._retain() until it returns false, each time in a transaction
-- of its own.

-- Progress of marking: the types with an option by number, and how far their
-- older history has been marked.
CREATE TABLE jobq.counted_types (
  type_id    int4    NOT NULL PRIMARY KEY,
  done       boolean NOT NULL DEFAULT false,
  partition  text    NOT NULL DEFAULT '',     -- the partition of history to continue in
  block      int8    NOT NULL DEFAULT 0
);

-- Jobs of hooks that name the row of another job, because that row's data were
-- too large for their payload (src/settle/hooks.c).  No retention
-- removes that row before the job of the hook has ended.  A type that keeps no
-- rows leaves it as expired.
CREATE TABLE jobq.hook_references (
  hook_job  uuid  NOT NULL PRIMARY KEY,
  job_id    uuid  NOT NULL
);
CREATE INDEX hook_references_job_id ON jobq.hook_references (job_id);
SELECT pg_catalog.pg_extension_config_dump('jobq.hook_references', '');

CREATE FUNCTION jobq_internal._referenced_jobs() RETURNS uuid[]
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(array_agg(r.job_id), '{}') FROM jobq.hook_references r
$$;

-- src/workflow/unseen_edges.c.  Edges of open and prepared transactions are not
-- visible: a job that one of these waits for stays.  Retention takes a mark
-- before the statement that reads edges; NULL: there may be such transactions.
CREATE FUNCTION jobq_internal._edges_mark() RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_edges_mark';
-- True if a transaction may wait for the job whose edge the statement that calls
-- this does not see.
CREATE FUNCTION jobq_internal._may_be_awaited(id uuid, mark bigint) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_may_be_awaited';

-- Deletes the references of ended jobs, and the rows that were kept only for
-- them.
CREATE FUNCTION jobq_internal._end_hook_references(max_rows int) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  released uuid[];
  mark bigint := jobq_internal._edges_mark();
BEGIN
  WITH ended AS (
    DELETE FROM jobq.hook_references r
     WHERE r.hook_job IN (SELECT e.hook_job FROM jobq.hook_references e
                           WHERE NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = e.hook_job) LIMIT max_rows)
    RETURNING r.job_id)
  SELECT array_agg(e.job_id) INTO released FROM ended e;
  IF released IS NOT NULL THEN
    DELETE FROM jobq.history h
     WHERE h.id = ANY (released) AND h.expires_at <= (SELECT clock_timestamp())
       AND NOT EXISTS (SELECT FROM jobq.hook_references r WHERE r.job_id = h.id)
       AND NOT EXISTS (SELECT FROM jobq.dependencies d WHERE d.parent_id = h.id) AND NOT jobq_internal._may_be_awaited(h.id, mark);
  END IF;
END $$;

-- Keeps rows with references, and those whose end the jobs that wait for it
-- have not got yet, for another day; their partition is about to be emptied.
CREATE FUNCTION jobq_internal._postpone_referenced() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  later timestamptz := clock_timestamp() + interval '1 day';
BEGIN
  UPDATE jobq.history h SET expires_at = later
   WHERE h.id = ANY ((SELECT jobq_internal._referenced_jobs())::uuid[]) AND h.expires_at < (SELECT clock_timestamp());
  UPDATE jobq.history h SET expires_at = later
   WHERE h.id = ANY (ARRAY(SELECT d.parent_id FROM jobq.dependencies d
                            WHERE NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = d.parent_id)))
     AND h.expires_at < (SELECT clock_timestamp());
END $$;

-- The same for the tasks of live runs, which are needed until their run has ended: a
-- compensation may take longer than all is kept.
CREATE FUNCTION jobq_internal._postpone_of_runs(parent regclass) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  later timestamptz := clock_timestamp() + interval '1 day';
  runs uuid[] := ARRAY(SELECT r.id FROM jobq.runs r JOIN jobq.queue q ON q.id = r.id WHERE r.keep_until < (SELECT clock_timestamp()));
BEGIN
  IF runs <> '{}' THEN
    EXECUTE format('UPDATE %s t SET expires_at = $1 WHERE t.workflow_id = ANY ($2) AND t.expires_at < (SELECT clock_timestamp())', parent)
      USING later, runs;
  END IF;
END $$;

-- The same for rows of a partition that open transactions may wait for.  If
-- these are many, the partition stays: 55P03, as when a session uses it.
CREATE FUNCTION jobq_internal._postpone_awaited(part regclass) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  later timestamptz := clock_timestamp() + interval '1 day';
  most constant int := 1000;
  since timestamptz;
  ids uuid[];
BEGIN
  -- a transaction has got the end of a job that had ended before it began; a
  -- day for the time before PREPARE, and for steps of the clock
  since := least((SELECT min(a.xact_start) FROM pg_stat_activity a WHERE a.datname = current_database()),
                 (SELECT min(p.prepared) FROM pg_prepared_xacts p WHERE p.database = current_database())) - interval '1 day';
  EXECUTE format('SELECT ARRAY(SELECT h.id FROM ONLY %s h WHERE h.completed_at >= $2 AND jobq_internal._may_be_awaited(h.id, NULL) LIMIT $1)', part)
    INTO ids USING most, since;
  IF cardinality(ids) = most THEN
    PERFORM jobq_internal._bad('55P03', format('open transactions may wait for %s jobs of "%s"', most, part));
  END IF;
  UPDATE jobq.history h SET expires_at = later WHERE h.id = ANY (ids) AND h.expires_at < (SELECT clock_timestamp());
END $$;

-- Returns the number in a type's options; NULL: not set.
CREATE FUNCTION jobq_internal._keep_count(options jsonb, key text) RETURNS int
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN jsonb_typeof(options -> key) = 'number' THEN (options ->> key)::int END
$$;

-- Returns the condition that no job has yet to get the end of this one.  A job of
-- rule success that waits for a retry of a dead letter does not keep it.
CREATE FUNCTION jobq_internal._unawaited(parent regclass, id text, mark text) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT format('NOT jobq_internal._may_be_awaited(%1$s, %2$s) AND NOT EXISTS (SELECT FROM jobq.dependencies d %3$s WHERE d.parent_id = %1$s)',
                id, mark, CASE parent WHEN 'jobq.dead_letters'::regclass
                               THEN 'JOIN jobq.queue c ON c.id = d.child_id AND c.after_rule <> ''success''' ELSE '' END)
$$;

-- Deletes up to max_rows rows of a type beyond the newest `keep`, and what is
-- left of runs among them; returns their number.  Tasks stay as long as their
-- run: a live one needs their results.  The job of a range (27_before_drop.sql)
-- stays as long as the range.  Runs are locked before their rows
-- (60_manage.sql), and those that another session holds stay.
CREATE FUNCTION jobq_internal._drop_surplus(parent regclass, type_id int, keep int, max_rows int)
  RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  home regclass;
  rows tid[];
  ids uuid[];
  held uuid[];
  gone uuid[];
  dropped bigint := 0;
  mark bigint := jobq_internal._edges_mark();
  stay uuid[] := jobq_internal._referenced_jobs() || ARRAY(SELECT b.job_id FROM jobq.before_drops b WHERE b.job_id IS NOT NULL);
BEGIN
  FOR home, rows, ids IN EXECUTE format(
      'SELECT s.tableoid::regclass, array_agg(s.ctid), array_agg(s.id)'
      '  FROM (SELECT n.tableoid, n.ctid, n.id FROM (SELECT r.tableoid, r.ctid, r.id, r.unique_until FROM %s r'
      '          WHERE r.type_id = $1 AND r.workflow_id IS NULL %s ORDER BY r.completed_at DESC, r.id DESC OFFSET $2) n'
      '         WHERE (n.unique_until IS NULL OR n.unique_until <= (SELECT clock_timestamp())) AND n.id <> ALL ($4) AND %s LIMIT $3) s GROUP BY 1',
      parent, CASE parent WHEN 'jobq.history'::regclass THEN 'AND r.counted' ELSE '' END, jobq_internal._unawaited(parent, 'n.id', '$5'))
      USING type_id, keep, max_rows, stay, mark LOOP
    held := ARRAY(SELECT r.id FROM jobq.runs r WHERE r.id = ANY (ids) FOR UPDATE SKIP LOCKED);
    EXECUTE format('WITH gone AS (DELETE FROM ONLY %1$s WHERE ctid = ANY (ARRAY('
                   '  SELECT o.ctid FROM ONLY %1$s o WHERE o.ctid = ANY ($1) AND o.id <> ALL ($2) FOR UPDATE SKIP LOCKED)) RETURNING id)'
                   'SELECT array_agg(g.id) FROM gone g', home)
      INTO gone USING rows, ARRAY(SELECT r.id FROM jobq.runs r WHERE r.id = ANY (ids) AND r.id <> ALL (held));
    dropped := dropped + coalesce(cardinality(gone), 0) + jobq_internal._drop_tasks(gone);
  END LOOP;
  RETURN dropped;
END $$;

-- Marks history rows of a type from before it had the option, in at most
-- max_blocks of the table; true: all are marked.
CREATE FUNCTION jobq_internal._count_old(type_id int, max_blocks bigint) RETURNS boolean
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  place jobq.counted_types;
  part record;
  upto bigint;
BEGIN
  INSERT INTO jobq.counted_types (type_id) VALUES (_count_old.type_id) ON CONFLICT DO NOTHING;
  SELECT * INTO place FROM jobq.counted_types c WHERE c.type_id = _count_old.type_id;
  FOR part IN SELECT c.relname::text AS name, c.oid::regclass AS relation,
                     pg_relation_size(c.oid) / current_setting('block_size')::int AS blocks
                FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = 'jobq.history'::regclass AND c.relname::text COLLATE "C" >= place.partition ORDER BY c.relname::text COLLATE "C" LOOP
    IF part.name <> place.partition THEN
      place.partition := part.name;
      place.block := 0;
    END IF;
    CONTINUE WHEN place.block >= part.blocks;
    upto := least(part.blocks, place.block + max_blocks);
    EXECUTE format('UPDATE %s SET counted = true WHERE type_id = $1 AND NOT counted AND workflow_id IS NULL'
                   '   AND ctid >= $2::text::tid AND ctid < $3::text::tid', part.relation)
      USING _count_old.type_id, format('(%s,0)', place.block), format('(%s,0)', upto);
    max_blocks := max_blocks - (upto - place.block);
    place.block := upto;
    EXIT WHEN max_blocks <= 0;
  END LOOP;
  UPDATE jobq.counted_types c SET done = max_blocks > 0, partition = place.partition, block = place.block
   WHERE c.type_id = _count_old.type_id;
  RETURN max_blocks > 0;
END $$;

-- Returns the condition that a row of the table, r, is needed no more.  $3: the
-- referenced jobs, $4: the mark.
CREATE FUNCTION jobq_internal._unneeded(parent regclass) RETURNS text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN parent = 'jobq.history'::regclass THEN 'r.id <> ALL ($3) AND ' || jobq_internal._unawaited(parent, 'r.id', '$4')
              ELSE '$3 IS NOT NULL AND ($4 IS NULL OR true)' END
         || CASE WHEN parent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass)
                 THEN ' AND (r.workflow_id IS NULL OR NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = r.workflow_id))' ELSE '' END
$$;

-- Deletes up to max_rows rows of a partition from a range of its key.
CREATE FUNCTION jobq_internal._delete_range(parent regclass, part regclass, low timestamptz, high timestamptz, max_rows int)
  RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  mark bigint := jobq_internal._edges_mark();
  deleted bigint;
BEGIN
  EXECUTE format('DELETE FROM ONLY %1$s WHERE ctid = ANY (ARRAY('
                 'SELECT r.ctid FROM ONLY %1$s r WHERE r.%2$I >= $1 AND r.%2$I < $2 AND %3$s ORDER BY r.%2$I LIMIT $5))',
                 part, jobq_internal._partition_key(parent), jobq_internal._unneeded(parent))
    USING low, high, jobq_internal._referenced_jobs(), mark, max_rows;
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END $$;

-- Deletes up to max_rows expired rows in partitions of history and artifacts
-- that span more than a day.  Such partitions were made far ahead, for rows
-- with a long retention.  With jobq.before_drop_type the rows of whole days go,
-- after the job of their range (27_before_drop.sql).
CREATE FUNCTION jobq_internal._drop_expired(max_rows int) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  today constant timestamptz := date_trunc('day', clock_timestamp(), 'UTC');
  part record;
  asks boolean := jobq_internal._asks_before_drop('jobq.history');
  critical boolean := asks AND jobq_internal._disk_is_critical();
  until timestamptz;
  released timestamptz := 'infinity';
  any_due boolean;
  n bigint;
  dropped bigint := 0;
  mark bigint := jobq_internal._edges_mark();
BEGIN
  FOR part IN SELECT t.parent, p.partition, p.low
                FROM (VALUES ('jobq.history'::regclass), ('jobq.artifacts'::regclass)) t(parent),
                     LATERAL jobq_internal._partitions(t.parent) p JOIN pg_class c ON c.oid = p.partition
               WHERE (SELECT clock_timestamp()) >= p.low AND (SELECT clock_timestamp()) < p.high
                 AND to_regclass(format('jobq.%I', c.relname || '_expires')) IS NOT NULL LOOP
    until := clock_timestamp();
    IF asks THEN
      EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s r WHERE r.expires_at >= $2 AND r.expires_at < $1 AND %s)',
                     part.partition, jobq_internal._unneeded(part.parent))
        INTO any_due USING today, timestamptz '-infinity', jobq_internal._referenced_jobs(), mark;
      CONTINUE WHEN NOT any_due;
      released := jobq_internal._released_until(part.parent, part.low, today, NOT critical);
      until := CASE WHEN critical THEN until ELSE released END;
    END IF;
    n := jobq_internal._delete_range(part.parent, part.partition, '-infinity', until, (max_rows - dropped)::int);
    dropped := dropped + n;
    IF asks AND dropped < max_rows THEN  -- all of the range are gone
      PERFORM jobq_internal._forget_drops(part.parent, part.low, until);
    END IF;
    IF n > 0 AND released < until THEN
      PERFORM jobq_internal._tell_of_drop(part.parent, part.low, until);
    END IF;
  END LOOP;
  RETURN dropped;
END $$;

-- Returns the range of a default partition whose rows go next: the day of its
-- oldest expired row, without the times that partitions hold.  NULL: there is no
-- such row, or the day is not over.
CREATE FUNCTION jobq_internal._expired_range(parent regclass, before timestamptz, OUT low timestamptz, OUT high timestamptz)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  mark bigint := jobq_internal._edges_mark();
  oldest timestamptz;
BEGIN
  EXECUTE format('SELECT min(r.%1$I) FROM ONLY %2$s r WHERE r.%1$I >= $1 AND r.%1$I < $2 AND %3$s',
                 jobq_internal._partition_key(parent), jobq_internal._default_partition(parent), jobq_internal._unneeded(parent))
    INTO oldest USING timestamptz '-infinity', before, jobq_internal._referenced_jobs(), mark;
  low := date_trunc('day', oldest, 'UTC');
  high := low + interval '24 hours';
  SELECT greatest(_expired_range.low, max(p.high) FILTER (WHERE p.high <= oldest)),
         least(_expired_range.high, min(p.low) FILTER (WHERE p.low > oldest))
    INTO low, high FROM jobq_internal._partitions(parent) p;
  IF oldest IS NULL OR high > before THEN
    low := NULL;
    high := NULL;
  END IF;
END $$;

-- Gives back the space of a default partition that has no row, unless a session
-- uses it.
CREATE FUNCTION jobq_internal._empty_default(net regclass) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  has_rows boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', net) INTO has_rows;
  IF has_rows THEN
    RETURN;
  END IF;
  EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', net);
  EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', net) INTO has_rows;
  IF NOT has_rows THEN
    EXECUTE format('TRUNCATE ONLY %s', net);
  END IF;
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- Deletes up to max_rows expired rows of a default partition.  With
-- jobq.before_drop_type they go by day, after the job of their range.
CREATE FUNCTION jobq_internal._expire_default(parent regclass, max_rows int) RETURNS bigint
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  net regclass := jobq_internal._default_partition(parent);
  before timestamptz := jobq_internal._expired_before(parent);
  asks boolean := jobq_internal._asks_before_drop(parent);
  critical boolean := asks AND jobq_internal._disk_is_critical();
  low timestamptz := '-infinity';
  n bigint;
BEGIN
  IF net IS NULL OR pg_relation_size(net) = 0 THEN
    RETURN 0;
  END IF;
  IF asks AND NOT critical THEN
    SELECT g.low, g.high INTO low, before FROM jobq_internal._expired_range(parent, before) g;
    before := CASE WHEN low IS NULL THEN '-infinity' ELSE jobq_internal._released_until(parent, low, before, true) END;
  END IF;
  n := jobq_internal._delete_range(parent, net, low, before, max_rows);
  IF critical AND n > 0 THEN
    PERFORM jobq_internal._tell_of_drop(parent, low, before);
  ELSIF asks AND n < max_rows THEN
    PERFORM jobq_internal._forget_drops(parent, low, before);
  END IF;
  IF n < max_rows THEN
    PERFORM jobq_internal._empty_default(net);
  END IF;
  RETURN n;
END $$;

-- Cancels waiting jobs of dropped pull types: no client can claim them.  Their
-- enqueues were open when the type was dropped.  Other jobs like these run.
CREATE FUNCTION jobq_internal._cancel_unclaimable() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  ids uuid[];
BEGIN
  IF NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.kind = 'pull' AND t.dropped_at IS NOT NULL) THEN
    RETURN;
  END IF;
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;
  ids := ARRAY(SELECT q.id FROM jobq.job_types t JOIN jobq.queue q ON q.type_id = t.id
                WHERE t.kind = 'pull' AND t.dropped_at IS NOT NULL AND q.status <> 'running' LIMIT 10000);
  IF ids <> '{}' THEN
    PERFORM jobq_internal._cancel_each(ids, 'job type dropped', false);
  END IF;
END $$;

-- Runs one step; false: nothing was left to do.
CREATE FUNCTION jobq_internal._retain(max_rows int DEFAULT 10000) RETURNS boolean
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
  parent regclass;
  n bigint;
  dropped bigint;
  mark bigint := jobq_internal._edges_mark();
BEGIN
  IF NOT jobq_internal._rows_are_ours() THEN
    RETURN false;
  END IF;
  PERFORM jobq_internal._cancel_unclaimable(), jobq_internal._end_hook_references(max_rows);
  DELETE FROM jobq.dead_letters
   WHERE id IN (SELECT l.id FROM jobq.dead_letters l
                 WHERE l.expires_at < (SELECT clock_timestamp())
                   AND NOT EXISTS (SELECT FROM jobq.hook_references r WHERE r.job_id = l.id)
                   AND NOT EXISTS (SELECT FROM jobq.dependencies d JOIN jobq.queue c ON c.id = d.child_id AND c.after_rule <> 'success'
                                    WHERE d.parent_id = l.id)
                   AND NOT jobq_internal._may_be_awaited(l.id, mark)
                   AND (l.workflow_id IS NULL OR NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = l.workflow_id))
                 ORDER BY l.expires_at LIMIT max_rows FOR UPDATE OF l SKIP LOCKED);
  GET DIAGNOSTICS dropped = ROW_COUNT;
  n := jobq_internal._drop_expired((max_rows - dropped)::int);
  dropped := dropped + n;
  FOREACH parent IN ARRAY '{jobq.events,jobq.alerts,jobq.artifacts,jobq.history}'::regclass[] LOOP
    n := jobq_internal._expire_default(parent, greatest(max_rows - dropped, 0)::int);
    dropped := dropped + n;
  END LOOP;
  PERFORM jobq_internal._fold_dead_letter_count();
  DELETE FROM jobq.counted_types c
   WHERE NOT EXISTS (SELECT FROM jobq.job_types j
                      WHERE j.id = c.type_id AND jobq_internal._keep_count(j.options, 'keep_completed_count') IS NOT NULL);
  FOR t IN SELECT j.id, jobq_internal._keep_count(j.options, 'keep_completed_count') AS completed,
                  jobq_internal._keep_count(j.options, 'keep_dead_count') AS dead, coalesce(c.done, false) AS counted
             FROM jobq.job_types j LEFT JOIN jobq.counted_types c ON c.type_id = j.id
            WHERE j.options ?| '{keep_completed_count,keep_dead_count}'
            ORDER BY j.id LOOP
    IF t.completed IS NOT NULL AND NOT t.counted AND NOT jobq_internal._count_old(t.id, 10000) THEN
      RETURN true;
    END IF;
    -- tasks go with their runs: more rows than max_rows may have gone
    IF t.completed IS NOT NULL THEN
      n := jobq_internal._drop_surplus('jobq.history', t.id, t.completed, greatest(max_rows - dropped, 0)::int);
      dropped := dropped + n;
    END IF;
    IF t.dead IS NOT NULL THEN
      n := jobq_internal._drop_surplus('jobq.dead_letters', t.id, t.dead, greatest(max_rows - dropped, 0)::int);
      dropped := dropped + n;
    END IF;
    EXIT WHEN dropped >= max_rows;
  END LOOP;
  RETURN dropped >= max_rows;
END $$;

-- The number of dead letters, without a count(*).  Each insertion or deletion
-- adds a row with its change of the number, in the same transaction.  So the
-- sum is exact for every snapshot, after a rollback, a prepared transaction or
-- a crash, and no transaction waits for another. src/settle/ledger.c
-- writes such rows itself; a trigger does for SQL.
CREATE TABLE jobq.dead_letter_count (change int8 NOT NULL);

CREATE FUNCTION jobq_internal._dead_letters_changed() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO jobq.dead_letter_count
  SELECT c.n FROM (SELECT CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE - count(*) END FROM changed) c(n) WHERE c.n <> 0;
  RETURN NULL;
END $$;
CREATE FUNCTION jobq_internal._dead_letters_truncated() RETURNS trigger
  LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'jobq_dead_letters_truncated';
CREATE TRIGGER inserted AFTER INSERT ON jobq.dead_letters REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._dead_letters_changed();
CREATE TRIGGER deleted AFTER DELETE ON jobq.dead_letters REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._dead_letters_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON jobq.dead_letters
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._dead_letters_truncated();
ALTER TABLE jobq.dead_letters ENABLE ALWAYS TRIGGER inserted, ENABLE ALWAYS TRIGGER deleted,
  ENABLE ALWAYS TRIGGER truncated;

-- Folds many rows into one.  Rows of open transactions are not visible, and
-- stay; so do those that another session folds: nobody waits.
CREATE FUNCTION jobq_internal._fold_dead_letter_count() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF (SELECT count(*) FROM (SELECT FROM jobq.dead_letter_count LIMIT 100) c) = 100 THEN
    WITH folded AS (DELETE FROM jobq.dead_letter_count WHERE ctid = ANY (ARRAY(
                      SELECT c.ctid FROM jobq.dead_letter_count c FOR UPDATE SKIP LOCKED)) RETURNING change)
    INSERT INTO jobq.dead_letter_count SELECT sum(change) FROM folded HAVING count(*) > 0;
  END IF;
END $$;
