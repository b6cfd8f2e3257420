-- 0.1.0 to 0.2.0, what comes before the functions: see README.md.

ALTER TABLE jobq.queue ADD COLUMN keep_dead interval;
ALTER TABLE jobq.history ADD COLUMN keep_dead interval;
ALTER TABLE jobq.dead_letters ADD COLUMN keep_dead interval;
ALTER TABLE jobq.tenant_quotas ADD COLUMN max_running int4;
ALTER TABLE jobq.job_types ADD COLUMN owner_oid oid, ADD COLUMN run_as_oid oid, ADD COLUMN resumed_at timestamptz,
  ADD COLUMN paused_at timestamptz;
ALTER TABLE jobq.signals ADD COLUMN definer_oid oid;

CREATE TABLE jobq.job_type_env (
  type_id  int4   NOT NULL PRIMARY KEY,
  env      jsonb  NOT NULL
);
SELECT pg_catalog.pg_extension_config_dump('jobq.job_type_env', '');

CREATE TABLE jobq.hook_references (
  hook_job  uuid  NOT NULL PRIMARY KEY,
  job_id    uuid  NOT NULL
);
CREATE INDEX hook_references_job_id ON jobq.hook_references (job_id);
SELECT pg_catalog.pg_extension_config_dump('jobq.hook_references', '');

CREATE SEQUENCE jobq.fence AS int8 MINVALUE 0 START 0;

SELECT jobq._update_drop(
  'jobq.enqueue(text, jsonb, int, interval, timestamptz, int, interval, jsonb, text, text, interval, text, interval, text, jsonb)',
  'jobq.enqueue_many(text, jsonb[], int, interval, timestamptz, int, interval, jsonb, text, text, interval, text, jsonb)',
  'jobq.set_tenant_quota(text, bigint, bigint, int)', 'jobq._set_tenant_quota(oid, text, bigint, bigint, int)',
  'jobq._check_owner(oid, text, text)', 'jobq._ensure_partition(regclass, timestamptz)',
  'jobq._cancel_all(uuid[], text, boolean)', 'jobq._save_type(oid, jobq.job_types, text)',
  'jobq.create_signal(text, text, interval)', 'jobq._create_signal(oid, text, text, interval)',
  'jobq.drop_signal(text)', 'jobq._drop_signal(oid, text)');
