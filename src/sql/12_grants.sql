-- The rights of roles: src/security/access.h, src/security/grant_checks.c.

-- The kinds of access.  USAGE on this domain marks the roles that
-- jobq.grant_access has named: they are held to their grants.  No GRANT ...
-- ON ALL gives it by mistake.
CREATE DOMAIN jobq.access_kind AS text CHECK (VALUE IN ('enqueue', 'work', 'read', 'admin'));

-- The grants.  Column role is for dumps, role_oid decides; the trigger below
-- finds the oid where the row arrives.
CREATE TABLE jobq.access (
  role       text             NOT NULL,
  access     jobq.access_kind NOT NULL,
  tenant     text,                        -- NULL: every tenant; '': jobs without one; 'acme': also 'acme/...'
  job_types  text[],                      -- NULL: every type
  role_oid   oid              NOT NULL    -- 0: no role of that name existed when the row was restored
);
-- role_oid is 0 for every role that does not exist here, and several such
-- roles may have the same grant.
CREATE UNIQUE INDEX access_of_role ON jobq.access (role_oid, access, tenant, job_types)
  NULLS NOT DISTINCT WHERE role_oid <> 0;

-- The function that jobq.set_tenant_check has set: one row or none
-- (src/security/tenant_check.c).
CREATE TABLE jobq.tenant_check (
  signature  text NOT NULL                -- schema.function(pg_catalog.text), quoted as needed
);

SELECT pg_catalog.pg_extension_config_dump('jobq.access', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.tenant_check', '');

CREATE FUNCTION jobq_internal._find_grantee() RETURNS trigger
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  NEW.role_oid := coalesce((SELECT r.oid FROM pg_roles r WHERE r.rolname = NEW.role), 0);
  RETURN NEW;
END $$;
CREATE TRIGGER find_grantee BEFORE INSERT OR UPDATE ON jobq.access
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_grantee();
ALTER TABLE jobq.access ENABLE ALWAYS TRIGGER find_grantee;

CREATE FUNCTION jobq_internal._access_changed() RETURNS trigger
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_access_trigger';
CREATE TRIGGER access_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.access
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._access_changed();
ALTER TABLE jobq.access ENABLE ALWAYS TRIGGER access_changed;
CREATE TRIGGER access_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.tenant_check
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._access_changed();
ALTER TABLE jobq.tenant_check ENABLE ALWAYS TRIGGER access_changed;

-- True if current_user may see the row.  The row-level policies
-- (95_row_security.sql) call these once per row.
CREATE FUNCTION jobq_internal._reads(tenant text, type_id int, enqueued_by text) RETURNS boolean
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_reads';
CREATE FUNCTION jobq_internal._reads_event(tenant text, job_type text) RETURNS boolean
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_reads_event';
CREATE FUNCTION jobq_internal._reads_type(name text) RETURNS boolean
  LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_reads_type';
CREATE FUNCTION jobq_internal._reads_tenant(tenant text) RETURNS boolean
  LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_reads_tenant';
CREATE FUNCTION jobq_internal._reads_audit(tenant text, object_type text, job_type text) RETURNS boolean
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_reads_audit';
CREATE FUNCTION jobq_internal._reads_schedule(tenant text, job_type text, owner_oid oid) RETURNS boolean
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_reads_schedule';

-- The same for a caller of src/security/owner_call.c: true if the caller may
-- see, or manage, a job of that tenant and type.
CREATE FUNCTION jobq_internal._sees(caller oid, tenant text, type_id int, enqueued_by text) RETURNS boolean
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_sees';
CREATE FUNCTION jobq_internal._manages(caller oid, tenant text, type_id int) RETURNS boolean
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_manages';
-- Returns the caller's right on a schedule: 'own' | 'admin' (all but its jobs)
-- | 'read'; NULL: the schedule does not exist for the caller.
CREATE FUNCTION jobq_internal._schedule_right(caller oid, tenant text, job_type text, owner_oid oid) RETURNS text
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_schedule_right';
-- True if the caller may read the jobs of all tenants and types; if it may know
-- that there is such a type.
CREATE FUNCTION jobq_internal._reads_all(caller oid) RETURNS boolean
  LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'jobq_reads_all';
CREATE FUNCTION jobq_internal._knows_type(caller oid, name text) RETURNS boolean
  LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'jobq_knows_type';
CREATE FUNCTION jobq_internal._is_free(role oid) RETURNS boolean
  LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'jobq_is_free';

-- Raises 42501 when the caller is held to grants and gives a job more than its
-- type allows; NULL: not given.
CREATE FUNCTION jobq_internal._check_ceilings(caller oid, type_id int, priority int, max_attempts int, timeout interval) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_check_ceilings';

-- True if the caller may see, or manage, the job with this id; false if there
-- is no such job.
CREATE FUNCTION jobq_internal._sees_job(caller oid, id uuid) RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN jobq_internal._is_free(caller)
      OR EXISTS (SELECT FROM jobq.queue q WHERE q.id = _sees_job.id
                    AND jobq_internal._sees(caller, q.tenant, q.type_id, q.enqueued_by))
      OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = _sees_job.id
                    AND jobq_internal._sees(caller, d.tenant, d.type_id, d.enqueued_by))
      OR EXISTS (SELECT FROM jobq.history h WHERE h.id = _sees_job.id
                    AND jobq_internal._sees(caller, h.tenant, h.type_id, h.enqueued_by));
END $$;
CREATE FUNCTION jobq_internal._manages_job(caller oid, id uuid) RETURNS boolean
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN jobq_internal._is_free(caller)
      OR EXISTS (SELECT FROM jobq.queue q WHERE q.id = _manages_job.id
                    AND jobq_internal._manages(caller, q.tenant, q.type_id))
      OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = _manages_job.id
                    AND jobq_internal._manages(caller, d.tenant, d.type_id))
      OR EXISTS (SELECT FROM jobq.history h WHERE h.id = _manages_job.id
                    AND jobq_internal._manages(caller, h.tenant, h.type_id));
END $$;

-- Returns the privileges that an access needs, in the syntax of GRANT and
-- REVOKE. jobq itself checks which rows they reach.
CREATE FUNCTION jobq_internal._privileges(access text, every_tenant boolean) RETURNS SETOF text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  -- functions, including those that jobq.jobs calls
  SELECT 'EXECUTE ON FUNCTION ' || p.oid::regprocedure
    FROM pg_proc p
    JOIN (VALUES
      ('{enqueue,admin}'::text[], '{enqueue,enqueue_many,enqueue_jobs,schedule,alter_schedule,unschedule,
                                     pause_schedule,resume_schedule,run_schedule,backfill_schedule,send_event}'::text[]),
      ('{enqueue,work,read,admin}', '{next_runs,build_key}'),
      ('{work}', '{claim,heartbeat,complete,complete_many,fail,fail_many,skip_job,snooze_job,log_event,record_artifact,add_tasks,channel}'),
      ('{enqueue,read,admin}', '{wait_for,_type_name,_live_status,_live_attempts,_live_runs,_live_started_at,_live_worker,
                                 _live_progress,_live_progress_data,_reads,_reads_schedule}'),
      ('{read,admin}', '{list_jobs,_list_candidates,_running_ids,_search,_search_bound,_search_span,_search_step,_search_times,_search_type,_search_found,_check_like,_search_jobs,_search_counts,
                         _search_runs,_search_scheduled,_search_log,_search_errors,_search_bulk,_search_overview,_error_pattern,count_by_status,
                         distinct_job_types,job_timeline,archive,_archive_end,_archived_audit_id,health,why,error_groups,resources,
                         _reads_event,_reads_type,_option_keys,_reads_tenant,_reads_audit,_reads_all,
                         graph,_graph_lines,_graph_node,_graph_statuses,_mermaid_text,_run_version,_steps_of}'),
      ('{admin}', '{check_workflow,cancel_job,cancel_jobs,retry_job,rerun_job,alter_job,retry_dead_letters,purge_dead_letters,purge_tenant,
                  pause_workflow,resume_workflow,retry_workflow,_bulk_begin,_bulk_step}'),
      (CASE WHEN every_tenant THEN '{read,admin}'::text[] ELSE '{}' END, '{metrics,stat_series,_stat_job_types,_stat_workers,_stat_claimed,_stat_lanes,_stat_limits,_stat_dispatcher}'),
      (CASE WHEN every_tenant THEN '{admin}'::text[] ELSE '{}' END,
       '{create_job_type,create_workflow,alter_job_type,drop_job_type,pause_job_type,resume_job_type,set_limit,drop_limit,set_signal,
         create_signal,drop_signal,set_pressure_rule,_alter_pressure_rule,stop_all,start_all,drain,set_tenant_quota,stat_reset}')
      ) v(accesses, functions) ON p.proname = ANY (v.functions)
   WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace)
     AND _privileges.access = ANY (v.accesses)
  UNION ALL
  SELECT 'SELECT ON TABLE ' || c.oid::regclass
    FROM pg_class c
    JOIN (VALUES ('{enqueue,read,admin}'::text[], '{jobs,history,dead_letters,schedules}'::text[]),
                 ('{read,admin}', '{events,alerts,audit,artifacts,option_keys,job_types,pressure_rules,limits,stopped,tenant_quotas,workflows,runs,workflow_runs}'),
                 (CASE WHEN every_tenant THEN '{read,admin}'::text[] ELSE '{}' END, '{disk_log,stat_job_types,stat_workers,stat_lanes,stat_limits,stat_dispatcher}')
      ) v(accesses, relations) ON c.relname = ANY (v.relations)
   WHERE c.relnamespace = 'jobq'::regnamespace AND _privileges.access = ANY (v.accesses)
  UNION ALL
  -- A lease token grants the rights on its job; the error of a signal's
  -- condition may hold rows of other tenants.  REVOKE on a table takes its
  -- columns, too: no table is granted as a whole and by columns.
  SELECT format('SELECT (%s) ON TABLE %s', string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum), a.attrelid::regclass)
    FROM pg_attribute a
   WHERE a.attnum > 0 AND NOT a.attisdropped
     AND CASE a.attrelid WHEN 'jobq.queue'::regclass THEN a.attname <> 'lease_token' AND access IN ('enqueue', 'read', 'admin')
                         WHEN 'jobq.signals'::regclass THEN (a.attname <> 'problem' OR every_tenant) AND access IN ('read', 'admin') END
   GROUP BY a.attrelid, a.attname = 'problem'
  UNION ALL
  SELECT 'USAGE ON TYPE jobq.access_kind'
$$;

-- Returns the privileges of the grants made to this role itself, not to roles
-- that it is a member of.
CREATE FUNCTION jobq_internal._privileges_of(grantee oid) RETURNS SETOF text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT DISTINCT p.privilege FROM jobq.access a, jobq_internal._privileges(a.access, a.tenant IS NULL) p(privilege)
   WHERE a.role_oid = grantee
$$;

-- Returns stray privileges on jobq's own objects: those that default
-- privileges added when an object was created, and those of PUBLIC beyond
-- jobq.version(). pg_init_privs does not list grants that were made later, by
-- hand: those to a role stay, and those to pg_monitor of 82_statistics.sql.
CREATE FUNCTION jobq_internal._stray_grants()
  RETURNS TABLE(object text, grantee oid, privilege text, by_hand boolean)
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  -- The planner knows nothing of a new extension: without this order it looks at
  -- each member for each member.  The subselects are evaluated once.
  WITH member(classid, objid, kind, owner, acl, everybody) AS (
    SELECT 'pg_class'::regclass, c.oid, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END, c.relowner, c.relacl, false
      FROM pg_class c WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
    UNION ALL
    SELECT 'pg_proc'::regclass, p.oid, 'FUNCTION ', p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)),
           p.oid = (SELECT to_regprocedure('jobq.version()'))
      FROM pg_proc p WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace)
    UNION ALL
    SELECT 'pg_type'::regclass, t.oid, 'TYPE ', t.typowner, t.typacl, t.oid <> (SELECT to_regtype('jobq.access_kind'))
      FROM pg_type t WHERE t.typnamespace = 'jobq'::regnamespace
    UNION ALL
    SELECT 'pg_namespace'::regclass, n.oid, 'SCHEMA ', n.nspowner, n.nspacl, true
      FROM pg_namespace n WHERE n.nspname IN ('jobq', 'jobq_internal')),
  granted AS MATERIALIZED (
    SELECT m.classid, m.objid, m.kind, a.grantee, a.privilege_type FROM member m, LATERAL aclexplode(m.acl) a
     WHERE a.grantee <> m.owner AND (a.grantee <> 0 OR NOT m.everybody OR a.privilege_type NOT IN ('EXECUTE', 'USAGE'))),
  owned AS MATERIALIZED (
    SELECT g.* FROM granted g
     WHERE EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'jobq'
                    WHERE d.classid = g.classid AND d.objid = g.objid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'))
  SELECT m.kind || CASE m.classid WHEN 'pg_class'::regclass THEN m.objid::regclass::text
                                  WHEN 'pg_proc'::regclass THEN m.objid::regprocedure::text
                                  WHEN 'pg_type'::regclass THEN m.objid::regtype::text
                                  ELSE m.objid::regnamespace::text END, m.grantee, m.privilege_type,
         i.initprivs IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(i.initprivs) b
                                                  WHERE b.grantee = m.grantee AND b.privilege_type = m.privilege_type)
    FROM owned m
    LEFT JOIN pg_init_privs i ON i.classoid = m.classid AND i.objoid = m.objid AND i.objsubid = 0
   WHERE m.grantee = 0
      OR ((i.initprivs IS NULL OR EXISTS (SELECT FROM aclexplode(i.initprivs) b
                                           WHERE b.grantee = m.grantee AND b.privilege_type = m.privilege_type))
          -- an upgrade grants these again
          AND NOT EXISTS (SELECT FROM jobq.access g WHERE g.role_oid = m.grantee)
          AND NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.run_as_oid = m.grantee)
          AND NOT (m.grantee = 'pg_monitor'::regrole AND m.privilege_type IN ('SELECT', 'EXECUTE') AND m.objid IN (
            SELECT c.oid FROM pg_class c
             WHERE c.relnamespace = 'jobq'::regnamespace AND c.relname IN ('stat_job_types', 'stat_workers', 'stat_lanes', 'stat_limits', 'stat_dispatcher')
            UNION ALL
            SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace)
               AND p.proname IN ('metrics', 'stat_series', '_stat_job_types', '_stat_workers', '_stat_claimed', '_stat_lanes', '_stat_limits', '_stat_dispatcher'))))
$$;

CREATE FUNCTION jobq_internal._revoke_stray_grants(with_by_hand boolean DEFAULT true) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT DISTINCT format('REVOKE %s ON %s FROM %s CASCADE', s.privilege, s.object,
                           CASE s.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(s.grantee)) END)
      FROM jobq_internal._stray_grants() s WHERE with_by_hand OR NOT s.by_hand LOOP
    EXECUTE statement;
  END LOOP;
END $$;

-- Grants what jobq.access says, and to the roles of handlers what these may
-- call: a dump can lack both (pg_dump -x), and a release has new functions.
CREATE FUNCTION jobq_internal._grant_again() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT format('GRANT %s TO %I', p.privilege, r.rolname)
      FROM jobq.access a JOIN pg_roles r ON r.oid = a.role_oid,
           jobq_internal._privileges(a.access, a.tenant IS NULL) p(privilege)
    UNION
    SELECT format('SELECT jobq_internal._grant_in_handler(%s)', r.oid)
      FROM jobq.job_types t JOIN pg_roles r ON r.oid = t.run_as_oid
     WHERE t.dropped_at IS NULL AND t.handler IS NOT NULL
  LOOP
    EXECUTE statement;
  END LOOP;
END $$;

-- Checks the arguments of grant_access and revoke_access.
CREATE FUNCTION jobq_internal._check_grant(role oid, access text, tenant text, job_types text[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._check_not_null('role', role IS NOT NULL),
          jobq_internal._check_not_null('access', access IS NOT NULL);
  IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) THEN
    PERFORM jobq_internal._bad('42704', format('argument "role": "%s" is no role', role::regrole));
  END IF;
  PERFORM jobq_internal._check_choice('access', access, '{enqueue,work,read,admin}');
  IF job_types = '{}' OR array_ndims(job_types) > 1 THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "job_types": "%s" is no list of names', jobq_internal._shown(job_types::text)),
                      'Leave it out for every job type.');
  ELSIF array_position(job_types, NULL) IS NOT NULL THEN
    PERFORM jobq_internal._bad('22004', 'argument "job_types": an element must not be NULL');
  END IF;
  PERFORM jobq_internal._check_tenant(tenant);
END $$;

-- Checks the length and the characters of a tenant; NULL passes.
CREATE FUNCTION jobq_internal._check_tenant(tenant text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF octet_length(tenant) > 255 THEN
    PERFORM jobq_internal._bad('54000',
      format('argument "tenant": %s bytes are more than 255', octet_length(tenant)));
  ELSIF tenant ~ E'[\u0001-\u001f\u007f]' THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "tenant": "%s" has control characters', jobq_internal._shown(tenant)));
  END IF;
END $$;

-- Checks that a job can have this tenant, or none: check_tenant_path of
-- enqueue_request.c.
CREATE FUNCTION jobq_internal._check_tenant_path(tenant text) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF tenant <> '' AND (CASE WHEN tenant LIKE '_%/' THEN left(tenant, -1) ELSE tenant END) ~ '(^|/)[.]{0,2}(/|$)' THEN
    PERFORM jobq_internal._bad('22023',
      format('argument "tenant": "%s" begins with a slash or has an element that is empty, "." or ".."', jobq_internal._shown(tenant)));
  END IF;
END $$;

-- Serializes grants and revokes behind a lock that only the owner of the
-- tables can take: two simultaneous grants on one object would be an error.
CREATE FUNCTION jobq_internal._lock_privileges() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE jobq.access IN SHARE ROW EXCLUSIVE MODE;
END $$;

-- Takes the same lock, then updates the grants of roles that were renamed or
-- dropped.  A grant restored without its role gave no rights; it still gives
-- none after a role of that name is created.
CREATE FUNCTION jobq_internal._lock_access() RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq_internal._lock_privileges();
  DELETE FROM jobq.access a
   WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = a.role_oid)
     AND (a.role_oid <> 0 OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = a.role));
  UPDATE jobq.access a SET role = r.rolname FROM pg_roles r WHERE r.oid = a.role_oid AND r.rolname <> a.role;
END $$;

CREATE FUNCTION jobq.grant_access(role regrole, access text, tenant text DEFAULT NULL, job_types text[] DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._grant_access(caller oid, role regrole, access text, tenant text, job_types text[])
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  unknown text;
  privilege text;
BEGIN
  PERFORM jobq_internal._check_grant(role, access, tenant, job_types), jobq_internal._check_tenant_path(tenant);
  SELECT n INTO unknown FROM unnest(job_types) n
   WHERE NOT EXISTS (SELECT FROM jobq.job_types t WHERE t.name = n AND t.dropped_at IS NULL) LIMIT 1;
  IF FOUND THEN
    PERFORM jobq_internal._bad_name('job type', unknown);
  END IF;
  PERFORM jobq_internal._lock_access();
  INSERT INTO jobq.access (role, access, tenant, job_types)
  VALUES (pg_get_userbyid(role), access, tenant,
          (SELECT array_agg(DISTINCT n ORDER BY n) FROM unnest(job_types) n))
  ON CONFLICT DO NOTHING;
  FOR privilege IN SELECT * FROM jobq_internal._privileges(access, tenant IS NULL) LOOP
    EXECUTE format('GRANT %s TO %I', privilege, pg_get_userbyid(role));
  END LOOP;
END $$;

-- Takes back all grants that the arguments cover: without a tenant every
-- tenant, without types every type.
CREATE FUNCTION jobq.revoke_access(role regrole, access text, tenant text DEFAULT NULL, job_types text[] DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._revoke_access(caller oid, role regrole, access text, tenant text, job_types text[])
  RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  had text[];
  privilege text;
BEGIN
  PERFORM jobq_internal._check_grant(role, _revoke_access.access, _revoke_access.tenant, _revoke_access.job_types);
  PERFORM jobq_internal._lock_access();
  had := ARRAY(SELECT jobq_internal._privileges_of(role));
  WITH covered AS (
    DELETE FROM jobq.access a
     WHERE a.role_oid = _revoke_access.role AND a.access = _revoke_access.access
       AND (_revoke_access.tenant IS NULL OR a.tenant = _revoke_access.tenant
            OR (_revoke_access.tenant <> '' AND starts_with(a.tenant, _revoke_access.tenant || '/')))
       AND (_revoke_access.job_types IS NULL OR a.job_types && _revoke_access.job_types)
    RETURNING a.*)
  INSERT INTO jobq.access (role, access, tenant, job_types)
  SELECT c.role, c.access, c.tenant, r.rest
    FROM covered c, LATERAL (SELECT array_agg(n ORDER BY n) FROM unnest(c.job_types) n
                              WHERE n <> ALL (_revoke_access.job_types)) r(rest)
   WHERE r.rest IS NOT NULL
  ON CONFLICT DO NOTHING;
  FOREACH privilege IN ARRAY had LOOP
    CONTINUE WHEN privilege IN (SELECT jobq_internal._privileges_of(role));
    EXECUTE format('REVOKE %s FROM %I', privilege, pg_get_userbyid(role));
  END LOOP;
END $$;

CREATE FUNCTION jobq.set_tenant_check(f regprocedure) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._set_tenant_check(caller oid, f regprocedure) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  found_function record;
BEGIN
  LOCK TABLE jobq.tenant_check IN EXCLUSIVE MODE;
  DELETE FROM jobq.tenant_check;
  IF f IS NULL THEN
    RETURN;
  END IF;
  SELECT format('%I.%I(pg_catalog.text)', n.nspname, p.proname) AS signature,
         p.prokind = 'f' AND NOT p.proretset AND p.prorettype = 'boolean'::regtype
           AND p.proargtypes = 'text'::regtype::oid::text::oidvector AND p.provariadic = 0 AS good
    INTO found_function FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = f;
  IF NOT FOUND THEN
    PERFORM jobq_internal._bad('22023', format('argument "f": "%s" is no function', f::oid));
  ELSIF NOT found_function.good THEN
    PERFORM jobq_internal._bad('22023', format('argument "f": %s has the wrong signature', f),
                      'A tenant check is f(text) and returns boolean.');
  END IF;
  INSERT INTO jobq.tenant_check VALUES (found_function.signature);
END $$;
