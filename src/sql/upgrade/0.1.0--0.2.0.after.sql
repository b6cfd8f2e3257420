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
-- that has another name here, or no role, belongs to a renamed or dropped role,
-- or comes from a dump: adopt() of 0.1.0 left it where no role had the name.  No
-- role may see such a job by its oid, now or when it gets that oid.
UPDATE jobq.queue q SET enqueued_by = NULL
 WHERE q.enqueued_by IS NOT NULL AND jobq_internal._home_is_ours()
   AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid || ':' || r.rolname = q.enqueued_by);
UPDATE jobq.history h SET enqueued_by = NULL
 WHERE h.enqueued_by IS NOT NULL AND jobq_internal._home_is_ours()
   AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid || ':' || r.rolname = h.enqueued_by);
UPDATE jobq.dead_letters d SET enqueued_by = NULL
 WHERE d.enqueued_by IS NOT NULL AND jobq_internal._home_is_ours()
   AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid || ':' || r.rolname = d.enqueued_by);

-- The trigger fills key_since.  A running job gets it when it waits again
-- (src/settle/settle.c): its executor knows this version of the row.
UPDATE jobq.queue q SET key_since = q.created_at WHERE q.key_hash IS NOT NULL AND q.status <> 'running';
CREATE INDEX queue_key_order ON jobq.queue (key_hash, key_since) WHERE key_hash IS NOT NULL;
SELECT jobq_internal._note_unique_for();
-- Of rows that were written before them the statistics know nothing yet.
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
CREATE TRIGGER dead_letter_removed BEFORE DELETE ON jobq.dead_letters
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._dead_letter_removed();
ALTER TABLE jobq.dead_letters ENABLE ALWAYS TRIGGER dead_letter_removed;
CREATE TRIGGER jobs_truncated AFTER TRUNCATE ON jobq.dead_letters
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._jobs_truncated();
ALTER TABLE jobq.dead_letters ENABLE ALWAYS TRIGGER jobs_truncated;
CREATE TRIGGER jobs_truncated AFTER TRUNCATE ON jobq.queue
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._jobs_truncated();
ALTER TABLE jobq.queue ENABLE ALWAYS TRIGGER jobs_truncated;

-- Protect the partitions that 0.1.0 made; revoke the rights that default
-- privileges added to its objects. health() names the grants made to PUBLIC by
-- hand.  A REVOKE in the script would record all other grants as initial ones,
-- which no dump has.
SELECT jobq_internal._outside_extension(format('SELECT jobq_internal._protect_partition(%L, %L)', p.partition, p.parent))
  FROM jobq_internal._exposed_partitions() p;
SELECT jobq_internal._outside_extension('SELECT jobq_internal._revoke_stray_grants(with_by_hand => false)');

-- Only quotas of max_live and max_bytes have rows of jobs; these count metadata,
-- too.
CREATE TRIGGER types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON jobq.tenant_quotas
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._types_changed();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER types_changed;
DROP TRIGGER quota_set ON jobq.tenant_quotas;
CREATE CONSTRAINT TRIGGER quota_set AFTER INSERT ON jobq.tenant_quotas DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (coalesce(new.max_live, new.max_bytes) IS NOT NULL)
  EXECUTE FUNCTION jobq_internal._quota_set();
ALTER TABLE jobq.tenant_quotas ENABLE ALWAYS TRIGGER quota_set;
DELETE FROM jobq.quota_jobs j USING jobq.tenant_quotas t
 WHERE t.tenant = j.tenant AND coalesce(t.max_live, t.max_bytes) IS NULL;
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
DO $update$
DECLARE
  types text;
BEGIN
  WITH changed AS (
    UPDATE jobq.job_types SET options = options - 'max_children_per_minute' WHERE options ? 'max_children_per_minute'
    RETURNING name)
  SELECT string_agg(c.name, ', ' ORDER BY c.name) INTO types FROM changed c;
  IF types IS NOT NULL THEN
    RAISE WARNING 'option "max_children_per_minute" of job types is gone, and with it their limit: %', types
      USING HINT = 'options.max_depth and the quotas of tenants bound jobs that enqueue jobs.';
  END IF;
END $update$;
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

CREATE TRIGGER find_definer BEFORE INSERT OR UPDATE ON jobq.workflows
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._find_workflow_definer();
ALTER TABLE jobq.workflows ENABLE ALWAYS TRIGGER find_definer;
ALTER TABLE jobq.workflows ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON jobq.workflows FOR SELECT USING (jobq_internal._reads_type(name));
ALTER TABLE jobq.artifacts ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON jobq.artifacts FOR SELECT USING (jobq_internal._reads_event(tenant, job_type));
SELECT jobq_internal._protect_partition('jobq.artifacts_default', 'jobq.artifacts');
ALTER TABLE jobq.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.run_timers ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.dependencies ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON jobq.runs FOR SELECT USING (EXISTS (SELECT FROM jobq.jobs j WHERE j.id = runs.id OFFSET 0));

CREATE TRIGGER fixed BEFORE UPDATE OR DELETE ON jobq.audit
  FOR EACH ROW EXECUTE FUNCTION jobq_internal._refuse_audit_change();
ALTER TABLE jobq.audit ENABLE ALWAYS TRIGGER fixed;
CREATE TRIGGER kept BEFORE TRUNCATE ON jobq.audit
  FOR EACH STATEMENT EXECUTE FUNCTION jobq_internal._refuse_audit_change();
ALTER TABLE jobq.audit ENABLE ALWAYS TRIGGER kept;
ALTER TABLE jobq.audit ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON jobq.audit FOR SELECT USING (jobq_internal._reads_audit(tenant, object_type,
  CASE WHEN object_type IN ('job_type', 'workflow') THEN object
       ELSE coalesce(old ->> 'job_type', new ->> 'job_type', new #>> '{filter,job_type}') END));

-- Partitions that are made from now on have this index.
DO $update$
DECLARE
  p record;
BEGIN
  FOR p IN SELECT c.relname, c.oid::regclass AS relation FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'jobq.history'::regclass AND i.inhrelid <> 'jobq.history_default'::regclass LOOP
    EXECUTE format('CREATE INDEX %I ON %s (workflow_id, parent_id) WHERE workflow_id IS NOT NULL', p.relname || '_workflow', p.relation);
  END LOOP;
END $update$;

SELECT jobq_internal._identify_tables();

GRANT SELECT ON jobq.stat_job_types, jobq.stat_workers, jobq.stat_lanes, jobq.stat_limits, jobq.stat_dispatcher TO pg_monitor;
GRANT EXECUTE ON FUNCTION jobq.metrics(text), jobq.stat_series(interval), jobq_internal._stat_job_types(int[]),
  jobq_internal._stat_workers(), jobq_internal._stat_claimed(), jobq_internal._stat_lanes(), jobq_internal._stat_limits(), jobq_internal._stat_dispatcher() TO pg_monitor;
