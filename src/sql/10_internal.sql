
-- Defines functions that the other parts need.  Schema jobq_internal and the
-- underscore mark functions that users do not call.

-- src/shared/publish_jobs.c notifies the dispatcher of rows that plain SQL
-- writes.  A new rev invalidates what the dispatcher chose before.
CREATE FUNCTION jobq_internal._queue_changed() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_queue_trigger';
CREATE TRIGGER queue_changed BEFORE INSERT OR UPDATE OR DELETE ON jobq.queue
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._queue_changed();
ALTER TABLE jobq.queue ENABLE ALWAYS TRIGGER queue_changed;

-- src/shared/stat_changes.c counts them.
CREATE FUNCTION jobq_internal._queue_counted() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_queue_count_trigger';
CREATE FUNCTION jobq_internal._dead_letter_counted() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_dead_letter_count_trigger';
CREATE TRIGGER rows_counted AFTER INSERT OR DELETE ON jobq.queue
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._queue_counted();
CREATE TRIGGER rows_moved AFTER UPDATE ON jobq.queue
  FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.type_id IS DISTINCT FROM NEW.type_id)
  EXECUTE FUNCTION jobq_internal._queue_counted();
CREATE TRIGGER rows_counted AFTER INSERT OR DELETE ON jobq.dead_letters
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._dead_letter_counted();
CREATE TRIGGER rows_moved AFTER UPDATE ON jobq.dead_letters
  FOR EACH ROW WHEN (OLD.type_id IS DISTINCT FROM NEW.type_id) EXECUTE FUNCTION jobq_internal._dead_letter_counted();
ALTER TABLE jobq.queue ENABLE ALWAYS TRIGGER rows_counted, ENABLE ALWAYS TRIGGER rows_moved;
ALTER TABLE jobq.dead_letters ENABLE ALWAYS TRIGGER rows_counted, ENABLE ALWAYS TRIGGER rows_moved;

-- Jobs that wait for removed ones: src/workflow/edges.c decides.
CREATE FUNCTION jobq_internal._dead_letter_removed() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_dead_letter_trigger';
CREATE FUNCTION jobq_internal._jobs_truncated() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_truncate_trigger';
CREATE TRIGGER dead_letter_removed BEFORE DELETE ON jobq.dead_letters
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._dead_letter_removed();
ALTER TABLE jobq.dead_letters ENABLE ALWAYS TRIGGER dead_letter_removed;
CREATE TRIGGER jobs_truncated AFTER TRUNCATE ON jobq.dead_letters
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._jobs_truncated();
ALTER TABLE jobq.dead_letters ENABLE ALWAYS TRIGGER jobs_truncated;
CREATE TRIGGER jobs_truncated AFTER TRUNCATE ON jobq.queue
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._jobs_truncated();
ALTER TABLE jobq.queue ENABLE ALWAYS TRIGGER jobs_truncated;

CREATE FUNCTION jobq_internal._types_changed() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_types_trigger';
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.job_types
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.job_types ENABLE ALWAYS TRIGGER types_changed;
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.job_type_env
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.job_type_env ENABLE ALWAYS TRIGGER types_changed;
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.limits
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.limits ENABLE ALWAYS TRIGGER types_changed;
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.stopped
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.stopped ENABLE ALWAYS TRIGGER types_changed;

-- Finds the oid of the role with this name, for a row that arrives (also from
-- a dump) or gets another role name.
CREATE FUNCTION jobq_internal._find_role(name text) RETURNS oid
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT r.oid FROM pg_roles r WHERE r.rolname = _find_role.name), 0)
$$;
CREATE FUNCTION jobq_internal._find_type_roles() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' OR (NEW.owner <> OLD.owner AND NEW.owner_oid IS NOT DISTINCT FROM OLD.owner_oid) THEN
    NEW.owner_oid := jobq_internal._find_role(NEW.owner);
  END IF;
  IF TG_OP = 'INSERT' OR (NEW.run_as <> OLD.run_as AND NEW.run_as_oid IS NOT DISTINCT FROM OLD.run_as_oid) THEN
    NEW.run_as_oid := jobq_internal._find_role(NEW.run_as);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER find_roles BEFORE INSERT OR UPDATE ON jobq.job_types
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_type_roles();
ALTER TABLE jobq.job_types ENABLE ALWAYS TRIGGER find_roles;

-- Stores options.env apart from the row; NULL: the type has none.
CREATE FUNCTION jobq_internal._store_env(type_id int, env jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF env IS NULL OR env = 'null' THEN
    DELETE FROM jobq.job_type_env e WHERE e.type_id = _store_env.type_id;
    RETURN;
  END IF;
  INSERT INTO jobq.job_type_env AS e VALUES (_store_env.type_id, _store_env.env)
  ON CONFLICT ON CONSTRAINT job_type_env_pkey DO UPDATE SET env = excluded.env WHERE e.env <> excluded.env;
END $$;
-- Moves options.env out of a row that arrives with it: from a dump of 0.1.0,
-- or from a statement of the owner.
CREATE FUNCTION jobq_internal._move_env() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._store_env(NEW.id, NEW.options -> 'env');
  NEW.options := NEW.options - 'env';
  RETURN NEW;
END $$;
CREATE TRIGGER move_env BEFORE INSERT OR UPDATE ON jobq.job_types
  FOR EACH ROW WHEN (jsonb_typeof(NEW.options) = 'object' AND NEW.options ? 'env') EXECUTE FUNCTION jobq_internal._move_env();
ALTER TABLE jobq.job_types ENABLE ALWAYS TRIGGER move_env;

-- src/tables/home.c: true if the rows belong to this database,
-- false in a restored dump.
CREATE FUNCTION jobq_internal._home_is_ours() RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_home_is_ours';
-- The same, but false without a row: no job was enqueued yet, or a restore has
-- written other rows before that one.  Maintenance leaves the rows then.
CREATE FUNCTION jobq_internal._rows_are_ours() RETURNS boolean
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT EXISTS (SELECT FROM jobq.home) AND jobq_internal._home_is_ours()
$$;
CREATE FUNCTION jobq_internal._home_id() RETURNS int
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_home_id';

-- src/sql_internal.c.  Locks a waiting job for this transaction: 'locked' |
-- 'running' | 'gone'.
CREATE FUNCTION jobq_internal._lock_job(id uuid) RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_lock_job';
-- Ends a live job: 'cancelled' (it waited) | 'told' (it runs, and the request
-- reaches it at commit; tell false: 'running') | 'gone'.
CREATE FUNCTION jobq_internal._cancel(id uuid, reason text, tell boolean DEFAULT true) RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_cancel';

-- Both again, without waiting for a transaction that holds the row: the result
-- is then 'held'.
CREATE FUNCTION jobq_internal._lock_free_job(id uuid) RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_lock_free_job';
CREATE FUNCTION jobq_internal._cancel_free(id uuid, reason text, tell boolean) RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_cancel_free';

-- Check the definition of a job type: src/registry/options.c,
-- src/registry/command_template.c.
CREATE FUNCTION jobq_internal._check_options(options jsonb, kind text) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_check_options';
CREATE FUNCTION jobq_internal._check_command(command text[], warm boolean) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_check_command';
-- Returns the reason why this server cannot start the program now; NULL: no
-- reason can be seen.
CREATE FUNCTION jobq_internal._program_trouble(program text) RETURNS text
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_program_trouble';

-- src/sql_internal.c
CREATE FUNCTION jobq_internal._new_id() RETURNS uuid
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_new_id';
CREATE FUNCTION jobq_internal._check_payload(type_id int, payload jsonb) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_check_payload';

-- src/registry/sublane.c: returns the lane of a tenant's job.
CREATE FUNCTION jobq_internal._sublane(type_id int, tenant text) RETURNS int2
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_sublane';

-- Writes the event of a client's action on a job: 'enqueued' at level all, any
-- other at level failures.
CREATE FUNCTION jobq_internal._tell(job_id uuid, type_id int, tenant text, attempt int, type text, message text, data jsonb)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_tell';

-- src/lifecycle/release.c: for update scripts.
CREATE FUNCTION jobq_internal._library_version() RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_library_version';
CREATE FUNCTION jobq_internal._outside_extension(statement text) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_outside_extension';

-- Raises an error about a bad argument, worded as in src/base/errors.c:
-- argument "priority": 500 is outside -100..100.
CREATE FUNCTION jobq_internal._bad(state text, message text, hint text DEFAULT NULL) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF hint IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message;
  END IF;
  RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, HINT = hint;
END $$;

CREATE FUNCTION jobq_internal._check_not_null(argument text, given boolean) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT given THEN
    PERFORM jobq_internal._bad('22004', format('argument "%s" must not be NULL', argument));
  END IF;
END $$;

-- NULL passes: it is an argument that was not given.
CREATE FUNCTION jobq_internal._check_number(argument text, value numeric, low numeric, high numeric)
  RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF value = 'NaN' OR value < low OR value > high THEN
    PERFORM jobq_internal._bad('22003',
      format('argument "%s": %s is outside %s..%s', argument, value, low, high));
  END IF;
END $$;

-- Returns a value as messages show it: src/base/errors.c.
CREATE FUNCTION jobq_internal._shown(value text) RETURNS text
  LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'jobq_shown';

CREATE FUNCTION jobq_internal._check_choice(argument text, value text, choices text[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF value <> ALL (choices) THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "%s": "%s" is not one of %s', argument, jobq_internal._shown(value),
             (SELECT string_agg(format('"%s"', c), ', ') FROM unnest(choices) c)));
  END IF;
END $$;

-- Raises 42704.
CREATE FUNCTION jobq_internal._bad_name(what text, name text, hint text DEFAULT NULL) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT jobq_internal._bad('42704', format('%s "%s" does not exist', what, jobq_internal._shown(name)), hint)
$$;

-- Checks the name of a job type, a limit, a signal.
CREATE FUNCTION jobq_internal._check_name(what text, name text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_not_null('name', name IS NOT NULL);
  IF octet_length(name) > 63 THEN
    PERFORM jobq_internal._bad('54000',
      format('argument "name": %s bytes are more than 63', octet_length(name)));
  ELSIF name = '' OR name LIKE ' %' OR name LIKE '% ' OR name ~ E'[[:cntrl:]\\u0080-\\u009f]' THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "name": "%s" is no name of a %s', jobq_internal._shown(name), what),
      'Names have 1 to 63 bytes, no control characters, and no space at either end.');
  END IF;
END $$;

-- Refuses intervals longer than ten thousand years: they are mistakes, and
-- sums with a date overflow.
CREATE FUNCTION jobq_internal._check_interval(argument text, value interval, zero_is_good boolean DEFAULT true)
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT isfinite(value) OR value < '0' OR value > '10000 years' OR (value = '0' AND NOT zero_is_good) THEN
    PERFORM jobq_internal._bad('22023', format('argument "%s": "%s" is %s', argument, value,
      CASE WHEN value = '0' THEN 'not more than zero' ELSE 'outside 0..10000 years' END));
  END IF;
END $$;

-- Checks on_conflict of create_job_type and create_signal: the action when the
-- name exists.
CREATE FUNCTION jobq_internal._check_on_conflict(on_conflict text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_not_null('on_conflict', on_conflict IS NOT NULL);
  PERFORM jobq_internal._check_choice('on_conflict', on_conflict, '{error,replace,ignore}');
END $$;

-- Raises 40001 if the caller's snapshot, above READ COMMITTED, is older than a
-- row of the table: src/tables/stale_snapshot.c
CREATE FUNCTION jobq_internal._check_snapshot(rows regclass) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_check_snapshot';

-- True if the row's tenant passes a filter: NULL takes every job, '' those
-- without a tenant.
CREATE FUNCTION jobq_internal._tenant_is(tenant text, wanted text) RETURNS boolean
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN wanted IS NULL OR coalesce(tenant, '') = wanted;
