
-- jobq.audit: what was changed, by which role and call.
--
-- src/security/audit.c calls the functions below for every management call, in
-- its transaction.  Rows are never changed: a trigger refuses that to the
-- owner, too, and no role has the right.  They go a partition at a time, as
-- those of jobq.events do, after jobq.keep_audit.  A partition is a month,
-- because rows are few and are kept for long.  Like those of events, partitions
-- are no members of the extension, so that dumps carry them.
--
-- old and new are states of the object, not arguments: rows of the registry
-- without options.env, of a job without its payload.  Nothing else of a job's
-- data is kept here, which would outlive jobq.purge_tenant.
CREATE SEQUENCE jobq.audit_id_seq AS int8;
CREATE TABLE jobq.audit (
  id           bigint      NOT NULL DEFAULT nextval('jobq.audit_id_seq'),
  ts           timestamptz NOT NULL DEFAULT clock_timestamp(),
  by           text        NOT NULL,   -- the session's user; "a as b": after SET ROLE b
  action       text        NOT NULL,   -- the function
  object_type  text        NOT NULL,
  object       text,                   -- NULL: many, see new.filter
  tenant       text,                   -- NULL: of no tenant, or of all
  old          jsonb,
  new          jsonb,
  client_addr  inet
) PARTITION BY RANGE (ts);
SELECT pg_catalog.pg_extension_config_dump('jobq.audit_id_seq', '');

CREATE FUNCTION jobq_internal._refuse_audit_change() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'rows of jobq.audit cannot be changed or deleted',
    HINT = 'They are dropped after jobq.keep_audit.';
END $$;
CREATE TRIGGER fixed BEFORE UPDATE OR DELETE ON jobq.audit
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._refuse_audit_change();
ALTER TABLE jobq.audit ENABLE ALWAYS TRIGGER fixed;
CREATE TRIGGER kept BEFORE TRUNCATE ON jobq.audit
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._refuse_audit_change();
ALTER TABLE jobq.audit ENABLE ALWAYS TRIGGER kept;

-- src/base/caller.c
CREATE FUNCTION jobq_internal._called_by() RETURNS text
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_called_by';

-- Makes the partition of a month.
CREATE FUNCTION jobq_internal._ensure_audit_partition(ts timestamptz) RETURNS void
  LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT jobq_internal._ensure_partition('jobq.audit', ts, ts - interval '70 days')
$$;

-- The object of each call: its type, and the argument that names it.
CREATE FUNCTION jobq_internal._audited(action text, OUT object_type text, OUT argument text)
  LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT v.object_type, v.argument INTO object_type, argument
    FROM (VALUES
      ('job_type', 'name', '{create_job_type,alter_job_type,drop_job_type,pause_job_type,resume_job_type}'::text[]),
      ('workflow', 'name', '{create_workflow}'),
      ('limit', 'name', '{set_limit,drop_limit}'),
      ('signal', 'name', '{create_signal,set_signal,drop_signal}'),
      ('rule', 'signal', '{set_pressure_rule}'),
      ('role', 'role', '{grant_access,revoke_access}'),
      ('tenant', 'tenant', '{set_tenant_quota,purge_tenant}'),
      ('schedule', 'name', '{schedule,alter_schedule,unschedule,pause_schedule,resume_schedule,run_schedule,backfill_schedule}'),
      ('database', NULL, '{stop_all,start_all,drain,adopt,set_tenant_check}'),
      ('statistics', 'job_type', '{stat_reset}'),
      ('job', 'id', '{cancel_job,retry_job,rerun_job,alter_job}'),
      ('run', 'id', '{pause_workflow,resume_workflow,retry_workflow}'),
      ('jobs', NULL, '{cancel_jobs,retry_dead_letters,purge_dead_letters}')) v(object_type, argument, actions)
   WHERE _audited.action = ANY (v.actions);
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = format('jobq.audit has no object of "%s"', action);
  END IF;
END $$;

-- Returns the state of a job, without its data.  with_ended: also of one that
-- has left the queue.
CREATE FUNCTION jobq_internal._audit_job(id uuid, with_ended boolean) RETURNS jsonb
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  state jsonb;
BEGIN
  LOCK TABLE jobq.queue IN ROW EXCLUSIVE MODE;  -- before it is read, as in 60_manage.sql
  SELECT to_jsonb(s) INTO state
    FROM (SELECT jobq_internal._live_status(q.id, q.rev, q.status) AS status, jobq_internal._type_name(q.type_id) AS job_type, q.tenant,
                 q.priority, q.scheduled_for, q.attempts, q.max_attempts, q.timeout, q.error_code
            FROM jobq.queue q WHERE q.id = _audit_job.id) s;
  IF state IS NOT NULL OR NOT with_ended THEN
    RETURN state;
  END IF;
  SELECT to_jsonb(s) INTO state
    FROM (SELECT d.status, jobq_internal._type_name(d.type_id) AS job_type, d.tenant, d.priority, d.scheduled_for, d.attempts,
                 d.max_attempts, d.timeout, d.error_code
            FROM jobq.dead_letters d WHERE d.id = _audit_job.id
          UNION ALL
          SELECT h.status, jobq_internal._type_name(h.type_id), h.tenant, h.priority, h.scheduled_for, h.attempts,
                 h.max_attempts, h.timeout, h.error_code
            FROM jobq.history h WHERE h.id = _audit_job.id
          LIMIT 1) s;
  RETURN state;
END $$;

-- Returns the state of the object that the arguments name; NULL: there is
-- none.  locks: it is about to change, so the row is locked, and old is the
-- state that the call replaces.
CREATE FUNCTION jobq_internal._audit_state(object_type text, args jsonb, locks boolean) RETURNS jsonb
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  state jsonb;
BEGIN
  CASE object_type
    WHEN 'job_type' THEN
      IF locks THEN
        PERFORM FROM jobq.job_types t WHERE t.name = args ->> 'name' AND t.dropped_at IS NULL FOR NO KEY UPDATE;
      END IF;
      SELECT to_jsonb(t) - '{id,owner_oid,run_as_oid,created_at,dropped_at,is_workflow}'::text[] INTO state
        FROM jobq.job_types t WHERE t.name = args ->> 'name' AND t.dropped_at IS NULL;
    WHEN 'workflow' THEN
      SELECT jsonb_build_object('version', w.version, 'on_failure', w.on_failure, 'created_by', w.created_by, 'steps', w.steps) INTO state
        FROM jobq.workflows w JOIN jobq.job_types t ON t.id = w.type_id AND t.dropped_at IS NULL
       WHERE t.name = args ->> 'name' AND w.is_active;
    WHEN 'limit' THEN
      IF locks THEN
        PERFORM FROM jobq.limits l WHERE l.name = args ->> 'name' FOR NO KEY UPDATE;
      END IF;
      SELECT to_jsonb(l) - 'name' INTO state FROM jobq.limits l WHERE l.name = args ->> 'name';
    WHEN 'signal' THEN
      IF locks THEN
        PERFORM FROM jobq.signals s WHERE s.name = args ->> 'name' FOR NO KEY UPDATE;
      END IF;
      SELECT to_jsonb(s) - '{id,name,problem,definer_oid,changed_at}'::text[] INTO state FROM jobq.signals s WHERE s.name = args ->> 'name';
    WHEN 'rule' THEN
      SELECT to_jsonb(r) - '{type_id,signal}'::text[] INTO state FROM jobq.pressure_rules r
       WHERE r.signal = args ->> 'signal'
         AND r.type_id = CASE WHEN args ->> 'job_type' IS NULL THEN 0
                              ELSE (SELECT t.id FROM jobq.job_types t WHERE t.name = args ->> 'job_type' AND t.dropped_at IS NULL) END;
    WHEN 'role' THEN  -- of the call's tenant, if it names one: its readers see the row
      SELECT jsonb_agg(jsonb_build_object('access', a.access, 'tenant', a.tenant, 'job_types', a.job_types)
                       ORDER BY a.access, a.tenant, a.job_types) INTO state
        FROM jobq.access a WHERE a.role_oid = (args ->> 'role')::regrole
         AND (args ->> 'tenant' IS NULL OR a.tenant = args ->> 'tenant'
              OR (args ->> 'tenant' <> '' AND starts_with(a.tenant, (args ->> 'tenant') || '/')));
    WHEN 'tenant' THEN
      SELECT to_jsonb(q) - 'tenant' INTO state FROM jobq.tenant_quotas q WHERE q.tenant = args ->> 'tenant';
    WHEN 'schedule' THEN
      SELECT to_jsonb(s) - '{id,owner_oid,home_id,ended_job_id,ticks_after,waiting_tick,failures,runs,skipped,created_at,updated_at,payload}'::text[]
        INTO state FROM jobq.schedules s
       WHERE s.name = args ->> 'name' AND s.tenant IS NOT DISTINCT FROM jobq_internal._schedule_tenant(args ->> 'tenant');
    WHEN 'database' THEN
      state := jsonb_build_object('stopped', (SELECT jsonb_build_object('reason', s.reason, 'since', s.since) FROM jobq.stopped s),
                                  'tenant_check', (SELECT c.signature FROM jobq.tenant_check c));
    ELSE
      NULL;
  END CASE;
  RETURN state;
END $$;

-- Returns the state of the call's object before the call.
CREATE FUNCTION jobq_internal._audit_before(caller oid, action text, args jsonb) RETURNS jsonb
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  object_type text := (jobq_internal._audited(action)).object_type;
BEGIN
  IF object_type IN ('job', 'run') THEN
    RETURN jobq_internal._audit_job((args ->> 'id')::uuid, true);
  END IF;
  RETURN jobq_internal._audit_state(object_type, args, coalesce(args ->> 'on_conflict', 'replace') = 'replace');
END $$;

-- Writes the row of a call that has succeeded, with its result.  A call that
-- has found no such job, run or schedule leaves none.
CREATE FUNCTION jobq_internal._audit(caller oid, action text, args jsonb, old jsonb, result jsonb) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  called record := jobq_internal._audited(action);
  object text := args ->> called.argument;
  tenant text := args ->> 'tenant';
  new jsonb;
BEGIN
  CASE
    WHEN called.object_type IN ('job', 'run') THEN
      IF result -> 'result' IS NULL OR result -> 'result' = 'false' THEN
        RETURN;
      END IF;
      tenant := old ->> 'tenant';
      new := coalesce(jobq_internal._audit_job((args ->> 'id')::uuid, false),
                      CASE action WHEN 'cancel_job' THEN '{"status": "cancelled"}' ELSE '{}' END::jsonb)
             || CASE WHEN args ? 'payload' THEN '{"payload": "given"}' ELSE '{}' END::jsonb
             || CASE action WHEN 'rerun_job' THEN jsonb_build_object('rerun', result -> 'result') ELSE '{}' END
             || (args - '{id,payload,priority,scheduled_for,max_attempts,timeout}'::text[]);
    WHEN called.object_type = 'jobs' THEN
      new := jsonb_build_object('filter', args, 'count', result -> 'result') || (result - 'result');
    WHEN action = 'unschedule' AND result -> 'result' = 'false' THEN
      RETURN;
    WHEN action IN ('purge_tenant', 'drain', 'run_schedule', 'backfill_schedule') THEN
      new := coalesce(result -> 'result', 'null');
      new := (args - '{name,tenant}'::text[]) || jsonb_build_object(CASE action WHEN 'drain' THEN 'idle' WHEN 'run_schedule' THEN 'job'
                                                                     ELSE 'count' END, new);
    ELSE
      new := jobq_internal._audit_state(called.object_type, args, false);
  END CASE;
  IF called.object_type = 'rule' THEN
    object := coalesce(args ->> 'job_type', '*') || '/' || object;
  ELSIF called.object_type = 'database' THEN
    object := current_database();
  ELSIF called.object_type = 'schedule' THEN
    tenant := jobq_internal._schedule_tenant(tenant);
  END IF;
  -- found by name as a rule: a look at the bounds costs more
  IF to_regclass(format('jobq.audit_%s', to_char(date_trunc('month', clock_timestamp(), 'UTC') AT TIME ZONE 'UTC', 'YYYYMMDD'))) IS NULL THEN
    PERFORM jobq_internal._ensure_audit_partition(clock_timestamp());
  END IF;
  INSERT INTO jobq.audit (by, action, object_type, object, tenant, old, new, client_addr)
  VALUES (jobq_internal._called_by(), action, called.object_type, object, tenant, old, new, inet_client_addr());
END $$;
