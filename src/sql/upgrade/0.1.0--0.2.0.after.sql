-- 0.1.0 to 0.2.0: statements after the functions; see README.md.

-- Store the oids of roles.  In a restored dump they are those of the names
-- here, as for rows that arrive.
UPDATE jobq.job_types SET owner_oid = jobq_internal._find_role(owner), run_as_oid = jobq_internal._find_role(run_as);
UPDATE jobq.signals SET definer_oid = jobq_internal._find_role(definer) WHERE definer IS NOT NULL;
CREATE TRIGGER find_roles BEFORE INSERT OR UPDATE ON jobq.job_types
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_type_roles();
ALTER TABLE jobq.job_types ENABLE ALWAYS TRIGGER find_roles;
CREATE TRIGGER find_definer BEFORE INSERT OR UPDATE ON jobq.signals
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_definer();
ALTER TABLE jobq.signals ENABLE ALWAYS TRIGGER find_definer;

-- Since 0.2.0 the oid alone identifies the role that enqueued a job.  An oid
-- with another name belongs to a renamed role, or comes from a dump: adopt()
-- of 0.1.0 left it where no role had the name.  No role may see such a job by
-- its oid, as before.
UPDATE jobq.queue q SET enqueued_by = NULL FROM pg_roles r
 WHERE r.oid = split_part(q.enqueued_by, ':', 1)::oid AND q.enqueued_by <> r.oid || ':' || r.rolname
   AND jobq_internal._home_is_ours();
UPDATE jobq.history h SET enqueued_by = NULL FROM pg_roles r
 WHERE r.oid = split_part(h.enqueued_by, ':', 1)::oid AND h.enqueued_by <> r.oid || ':' || r.rolname
   AND jobq_internal._home_is_ours();
UPDATE jobq.dead_letters d SET enqueued_by = NULL FROM pg_roles r
 WHERE r.oid = split_part(d.enqueued_by, ':', 1)::oid AND d.enqueued_by <> r.oid || ':' || r.rolname
   AND jobq_internal._home_is_ours();

-- Protect the partitions that 0.1.0 made; revoke the rights that default
-- privileges added to its objects. health() names the grants made to PUBLIC by
-- hand.  A REVOKE in the script would record all other grants as initial ones,
-- which no dump has.
SELECT jobq_internal._outside_extension(format('SELECT jobq_internal._protect_partition(%L, %L)', p.partition, p.parent))
  FROM jobq_internal._exposed_partitions() p;
SELECT jobq_internal._outside_extension('SELECT jobq_internal._revoke_stray_grants(with_by_hand => false)');

-- A quota of max_running alone counts no jobs when they are enqueued; the
-- others count metadata, too.
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.tenant_quotas
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER types_changed;
DROP TRIGGER quota_set ON jobq.tenant_quotas;
CREATE CONSTRAINT TRIGGER quota_set AFTER INSERT ON jobq.tenant_quotas DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (coalesce(new.max_live, new.max_bytes, new.enqueues_per_minute) IS NOT NULL)
  EXECUTE FUNCTION jobq_internal._quota_set();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER quota_set;
SELECT jobq_internal._count_for_quotas(array_agg(q.id)) FROM jobq.queue q
 WHERE q.tenant IS NOT NULL AND q.metadata IS NOT NULL;

-- Move options.env to a table of its own; from now on access "read" shows the
-- other options and the commands.
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.job_type_env
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.job_type_env ENABLE ALWAYS TRIGGER types_changed;
CREATE TRIGGER move_env BEFORE INSERT OR UPDATE ON jobq.job_types
  FOR EACH ROW WHEN (jsonb_typeof(NEW.options) = 'object' AND NEW.options ? 'env') EXECUTE FUNCTION jobq_internal._move_env();
ALTER TABLE jobq.job_types ENABLE ALWAYS TRIGGER move_env;
UPDATE jobq.job_types SET options = options WHERE options ? 'env';
-- 0.1.0 granted columns; 99_foot.sql grants the table.
SELECT jobq_internal._outside_extension(format('REVOKE SELECT ON TABLE jobq.job_types FROM %I', r.rolname))
  FROM pg_roles r WHERE EXISTS (SELECT FROM jobq.access a WHERE a.role_oid = r.oid AND a.access IN ('read', 'admin'));
DELETE FROM jobq.job_type_env e USING jobq.job_types t WHERE t.id = e.type_id AND t.dropped_at IS NOT NULL;
ALTER TABLE jobq.job_type_env ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.tenant_quotas ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON jobq.tenant_quotas FOR SELECT USING (jobq_internal._reads_tenant(tenant));

CREATE TRIGGER schedules_changed AFTER INSERT OR UPDATE OR DELETE ON jobq.schedules
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._schedules_changed();
ALTER TABLE jobq.schedules ENABLE ALWAYS TRIGGER schedules_changed;
CREATE TRIGGER schedules_truncated AFTER TRUNCATE ON jobq.schedules
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._schedules_changed();
ALTER TABLE jobq.schedules ENABLE ALWAYS TRIGGER schedules_truncated;
CREATE TRIGGER find_owner BEFORE INSERT OR UPDATE ON jobq.schedules
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_schedule_owner();
ALTER TABLE jobq.schedules ENABLE ALWAYS TRIGGER find_owner;
ALTER TABLE jobq.schedules ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON jobq.schedules FOR SELECT USING (jobq_internal._reads_schedule(tenant, job_type, owner_oid));
