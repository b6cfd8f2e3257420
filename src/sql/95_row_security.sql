-- Row-level security.  The policies are fixed here and read the grants through
-- C (src/security/grant_checks.c), so that a dump carries them with the
-- extension and the grants with its tables.  Superusers and the owner, also in
-- src/security/owner_call.c, are exempt.
ALTER TABLE jobq.queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.history ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.alerts ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.artifacts ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.job_types ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.tenant_quotas ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.workflows ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.run_timers ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.dependencies ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobq.job_type_env ENABLE ROW LEVEL SECURITY;  -- without a policy: a GRANT ON ALL TABLES shows nothing
CREATE POLICY readers ON jobq.queue FOR SELECT USING (jobq_internal._reads(tenant, type_id, enqueued_by));
CREATE POLICY readers ON jobq.history FOR SELECT USING (jobq_internal._reads(tenant, type_id, enqueued_by));
CREATE POLICY readers ON jobq.dead_letters FOR SELECT USING (jobq_internal._reads(tenant, type_id, enqueued_by));
CREATE POLICY readers ON jobq.events FOR SELECT USING (jobq_internal._reads_event(tenant, job_type));
CREATE POLICY readers ON jobq.alerts FOR SELECT USING (jobq_internal._reads_event(tenant, job_type));
CREATE POLICY readers ON jobq.artifacts FOR SELECT USING (jobq_internal._reads_event(tenant, job_type));
CREATE POLICY readers ON jobq.audit FOR SELECT USING (jobq_internal._reads_audit(tenant, object_type,
  CASE WHEN object_type IN ('job_type', 'workflow') THEN object
       ELSE coalesce(old ->> 'job_type', new ->> 'job_type', new #>> '{filter,job_type}') END));
SELECT jobq_internal._protect_partition(p.partition, p.parent) FROM jobq_internal._exposed_partitions() p;
CREATE POLICY readers ON jobq.job_types FOR SELECT USING (jobq_internal._reads_type(name));
CREATE POLICY readers ON jobq.tenant_quotas FOR SELECT USING (jobq_internal._reads_tenant(tenant));
CREATE POLICY readers ON jobq.schedules FOR SELECT USING (jobq_internal._reads_schedule(tenant, job_type, owner_oid));
CREATE POLICY readers ON jobq.workflows FOR SELECT USING (jobq_internal._reads_type(name));
-- A run is seen as its job is.
-- OFFSET 0: never a hash of all jobs, but an index entry for each run.
CREATE POLICY readers ON jobq.runs FOR SELECT USING (EXISTS (SELECT FROM jobq.jobs j WHERE j.id = runs.id OFFSET 0));

-- By default PUBLIC may use a new type.
REVOKE ALL ON TYPE jobq.access_kind FROM PUBLIC;
