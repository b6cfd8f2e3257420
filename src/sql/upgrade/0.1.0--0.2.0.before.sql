-- 0.1.0 to 0.2.0: statements before the functions; see README.md.

-- Move the internal functions to their schema.  They keep oid, owner and
-- rights; triggers, policies and views follow.
DO $update$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN SELECT p.oid FROM pg_proc p
             JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
             JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid AND e.extname = 'jobq'
            WHERE p.pronamespace = 'jobq'::regnamespace AND starts_with(p.proname, '_') LOOP
    EXECUTE format('ALTER FUNCTION %s SET SCHEMA jobq_internal', f);
  END LOOP;
END $update$;

ALTER TABLE jobq.queue ADD COLUMN keep_dead interval, ADD COLUMN schedule_id int4, ADD COLUMN lease interval,
  ADD COLUMN cancel_requested boolean, ADD COLUMN after uuid[], ADD COLUMN after_rule text, ADD COLUMN waiting_for int4,
  ADD COLUMN after_state int2, ADD COLUMN keep_until timestamptz, ADD COLUMN key_since timestamptz;
DROP INDEX IF EXISTS jobq.queue_key_order;
CREATE INDEX queue_blocked ON jobq.queue (id) WHERE "position" = 'infinity';
CREATE INDEX queue_failed ON jobq.queue (id) WHERE error_msg IS NOT NULL;
ALTER TABLE jobq.history ADD COLUMN keep_dead interval, ADD COLUMN after uuid[], ADD COLUMN after_rule text;
ALTER TABLE jobq.dead_letters ADD COLUMN keep_dead interval, ADD COLUMN after uuid[], ADD COLUMN after_rule text;

CREATE TABLE jobq.dependencies (
  parent_id  uuid  NOT NULL,
  child_id   uuid  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX dependencies_parent ON jobq.dependencies (parent_id);
SELECT pg_catalog.pg_extension_config_dump('jobq.dependencies', '');
ALTER TABLE jobq.tenant_quotas ADD COLUMN max_running int4, ADD COLUMN max_schedules int4;
ALTER TABLE jobq.job_types ADD COLUMN owner_oid oid, ADD COLUMN run_as_oid oid, ADD COLUMN resumed_at timestamptz,
  ADD COLUMN paused_at timestamptz, ADD COLUMN is_workflow boolean NOT NULL DEFAULT false, DROP CONSTRAINT IF EXISTS job_types_check;
ALTER TABLE jobq.job_types ADD COLUMN kind text GENERATED ALWAYS AS
  (CASE WHEN is_workflow THEN 'workflow' WHEN handler IS NOT NULL THEN 'sql'
        WHEN command IS NOT NULL THEN 'exec' ELSE 'pull' END) STORED,
  ADD CONSTRAINT job_types_check CHECK (is_workflow::int + num_nonnulls(handler, command) <= 1);
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

CREATE TABLE jobq.unique_for_types (
  type_id  int4  NOT NULL
);
CREATE INDEX unique_for_types_type_id ON jobq.unique_for_types (type_id);
SELECT pg_catalog.pg_extension_config_dump('jobq.unique_for_types', '');

CREATE SEQUENCE jobq.schedule_id_seq AS int4;

CREATE TABLE jobq.schedules (
  name                  text        NOT NULL,
  cron                  text        NOT NULL,
  job_type              text        NOT NULL,
  payload               jsonb       NOT NULL,
  timezone              text        NOT NULL,
  starts_at             timestamptz,
  ends_at               timestamptz,
  max_runs              int4,
  catch_up              text        NOT NULL CHECK (catch_up IN ('skip', 'one', 'all')),
  catch_up_limit        int4        NOT NULL,
  overlap               text        NOT NULL CHECK (overlap IN ('skip', 'queue', 'allow', 'cancel')),
  jitter                interval    NOT NULL,
  pause_after_failures  int4,
  options               jsonb       NOT NULL,
  tenant                text,
  owner                 text        NOT NULL,
  status                text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'finished')),
  reason                text,                    -- of a pause
  paused_until          timestamptz,
  runs                  int8        NOT NULL DEFAULT 0,
  skipped               int8        NOT NULL DEFAULT 0,
  last_tick             timestamptz,             -- of the last job
  last_job_id           uuid,
  next_tick             timestamptz,             -- NULL: none, or not known before the last job ends ("after 90s")
  created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
  id                    int4        NOT NULL DEFAULT nextval('jobq.schedule_id_seq') PRIMARY KEY,
  owner_oid             oid         NOT NULL,    -- 0: no role of that name existed when the row was restored
  ticks_after           timestamptz NOT NULL,    -- ticks up to this time have a job or a reason, or are gone
  waiting_tick          timestamptz,             -- overlap = queue: its job starts when the last one has ended
  failures              int4        NOT NULL DEFAULT 0,      -- dead letters in a row
  ended_job_id          uuid,                    -- the last job whose end is counted in failures
  paused_by_jobq        boolean     NOT NULL DEFAULT false,
  home_id               int4        NOT NULL     -- as in jobq.queue: ticks of another database's schedule are not ours
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX schedules_name ON jobq.schedules (tenant, name) NULLS NOT DISTINCT;

SELECT pg_catalog.pg_extension_config_dump('jobq.schedule_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.schedules', '');

CREATE TABLE jobq.workflows (
  name         text        NOT NULL,
  version      int4        NOT NULL,
  is_active    boolean     NOT NULL,
  steps        jsonb       NOT NULL,
  output       jsonb,
  on_failure   text        NOT NULL CHECK (on_failure IN ('stop', 'continue', 'compensate')),
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by   text        NOT NULL,
  type_id      int4        NOT NULL,
  definer_oid  oid         NOT NULL,
  reads        jsonb       NOT NULL,
  PRIMARY KEY (type_id, version)
);
CREATE UNIQUE INDEX workflows_active ON jobq.workflows (type_id) WHERE is_active;
SELECT pg_catalog.pg_extension_config_dump('jobq.workflows', '');

CREATE TABLE jobq.runs (
  id          uuid        NOT NULL PRIMARY KEY,
  type_id     int4        NOT NULL,
  version     int4        NOT NULL,
  deadline    timestamptz NOT NULL,
  keep_until  timestamptz NOT NULL,
  phase       text        NOT NULL DEFAULT 'running'
              CHECK (phase IN ('running', 'failing', 'cancelling', 'compensating', 'restarting', 'ended')),
  failure     jsonb,
  paused      boolean     NOT NULL DEFAULT false,
  paused_reason text,
  added       jsonb       NOT NULL DEFAULT '[]',
  events      jsonb       NOT NULL DEFAULT '{}',
  compensated boolean     NOT NULL DEFAULT false,
  again       text[]
);
CREATE INDEX runs_keep_until ON jobq.runs (keep_until);
CREATE INDEX runs_live ON jobq.runs (id) WHERE phase <> 'ended';

CREATE TABLE jobq.run_timers (
  due  timestamptz NOT NULL,
  id   uuid        NOT NULL
);
CREATE INDEX run_timers_due ON jobq.run_timers (due);

CREATE INDEX queue_workflow ON jobq.queue (workflow_id, parent_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX dead_letters_workflow ON jobq.dead_letters (workflow_id, parent_id) WHERE workflow_id IS NOT NULL;

SELECT pg_catalog.pg_extension_config_dump('jobq.runs', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.run_timers', '');

CREATE SEQUENCE jobq.artifact_id_seq AS int8;

CREATE TABLE jobq.artifacts (
  id            bigint      NOT NULL DEFAULT nextval('jobq.artifact_id_seq'),
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  job_id        uuid        NOT NULL,
  workflow_id   uuid,
  task_key      text,
  tenant        text,
  attempt       int4        NOT NULL,
  key           text        NOT NULL,
  kind          text        NOT NULL CHECK (kind IN ('input', 'output', 'log')),
  bucket        text,
  size_bytes    int8,
  content_type  text,
  checksum      text,
  data          jsonb,
  job_type      text,
  expires_at    timestamptz NOT NULL
) PARTITION BY RANGE (expires_at);

SELECT pg_catalog.pg_extension_config_dump('jobq.artifact_id_seq', '');

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
CREATE TABLE jobq.artifacts_default PARTITION OF jobq.artifacts DEFAULT;
CREATE INDEX artifacts_default_job ON jobq.artifacts_default (job_id);
CREATE INDEX artifacts_default_workflow ON jobq.artifacts_default (workflow_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX artifacts_default_expires ON jobq.artifacts_default (expires_at);
SELECT pg_catalog.pg_extension_config_dump('jobq.history_default', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.events_default', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.alerts_default', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.artifacts_default', '');

CREATE TABLE jobq.before_drops (
  what     text        NOT NULL CHECK (what IN ('history', 'events', 'artifacts')),
  low      timestamptz NOT NULL,
  high     timestamptz NOT NULL,
  job_id   uuid,                  -- NULL: it could not be enqueued
  problem  text,                  -- the reason why
  PRIMARY KEY (what, low)
);
SELECT pg_catalog.pg_extension_config_dump('jobq.before_drops', '');

CREATE INDEX dead_letters_newest ON jobq.dead_letters (completed_at);

CREATE SEQUENCE jobq.audit_id_seq AS int8;
CREATE TABLE jobq.audit (
  id           bigint      NOT NULL DEFAULT nextval('jobq.audit_id_seq'),
  ts           timestamptz NOT NULL DEFAULT clock_timestamp(),
  by           text        NOT NULL,
  action       text        NOT NULL,
  object_type  text        NOT NULL,
  object       text,
  tenant       text,
  old          jsonb,
  new          jsonb,
  client_addr  inet
) PARTITION BY RANGE (ts);
SELECT pg_catalog.pg_extension_config_dump('jobq.audit_id_seq', '');

SELECT jobq_internal._update_drop(
  'jobq.compact()',
  'jobq.enqueue(text, jsonb, int, interval, timestamptz, int, interval, jsonb, text, text, interval, text, interval, text, jsonb)',
  'jobq.enqueue_many(text, jsonb[], int, interval, timestamptz, int, interval, jsonb, text, text, interval, text, jsonb)',
  'jobq.set_tenant_quota(text, bigint, bigint, int)', 'jobq_internal._set_tenant_quota(oid, text, bigint, bigint, int)',
  'jobq_internal._check_owner(oid, text, text)', 'jobq_internal._ensure_partition(regclass, timestamptz)',
  'jobq_internal._ensure_history_partition(timestamptz)', 'jobq_internal._ensure_events_partition(timestamptz)',
  'jobq_internal._ensure_partitions_of_type(interval)', 'jobq_internal._maintain(timestamptz)',
  'jobq_internal._check_options(jsonb, boolean)', 'jobq_internal._check_run_as(oid, oid, text, oid)',
  'jobq_internal._cancel_all(uuid[], text, boolean)', 'jobq_internal._save_type(oid, jobq.job_types, text)',
  'jobq.create_signal(text, text, interval)', 'jobq_internal._create_signal(oid, text, text, interval)',
  'jobq.archive(timestamptz, uuid, text, int)',
  'jobq_internal._archive_end(timestamptz, uuid, int)',
  'jobq_internal._dead_letters(oid, text, text, text, timestamptz, int)',
  'jobq.drop_signal(text)', 'jobq_internal._drop_signal(oid, text)');
