-- Creates the schemas, the status type and the tables.  Schema jobq holds
-- tables, views, types, sequences and the functions that users call.  Schema
-- jobq_internal holds the functions that jobq itself calls.  Neither schema
-- may exist before: an install script never adopts an object that it has not
-- created.
CREATE SCHEMA jobq;
COMMENT ON SCHEMA jobq IS 'jobq: the job queue inside PostgreSQL';
CREATE SCHEMA jobq_internal;
COMMENT ON SCHEMA jobq_internal IS 'functions that jobq itself calls; they may change in any release';

CREATE TYPE jobq.job_status AS ENUM
  ('pending', 'blocked', 'retry', 'running', 'completed', 'skipped', 'cancelled', 'error');

-- The identity of this database.  The row is valid only while its xmin is the
-- transaction that it names: pg_upgrade keeps both, a restored dump does not.
-- The first dispatcher or enqueue writes the row, this script never does.
CREATE TABLE jobq.home (
  home_id   int4 NOT NULL,
  self_xid  xid8 NOT NULL,
  database  oid  NOT NULL               -- kept by pg_upgrade; another one in a copy made with TEMPLATE
);

CREATE SEQUENCE jobq.job_type_id_seq AS int4;

-- The registry of job types.  The handler is text, looked up when a job runs
-- (pg_upgrade refuses reg* columns).  Roles are oids, which pg_upgrade keeps;
-- their names serve restored dumps and follow a rename.
CREATE TABLE jobq.job_types (
  id              int4        NOT NULL DEFAULT nextval('jobq.job_type_id_seq') PRIMARY KEY,
  name            text        NOT NULL,
  owner           text        NOT NULL,
  run_as          text        NOT NULL,
  handler         text,                  -- schema.function(argument types), all quoted as needed
  command         text[],
  max_attempts    int4        NOT NULL,
  backoff         text        NOT NULL,
  backoff_base    interval    NOT NULL,
  backoff_max     interval    NOT NULL,
  backoff_jitter  real        NOT NULL,
  timeout         interval    NOT NULL,
  base_priority   int4        NOT NULL,
  max_concurrent  int4        NOT NULL,
  cpu_weight      int4        NOT NULL,
  rate_limit      int4        NOT NULL,
  rate_window     interval    NOT NULL,
  keep_completed  interval    NOT NULL,
  keep_dead       interval,
  critical        boolean     NOT NULL,
  options         jsonb       NOT NULL,
  paused          boolean     NOT NULL DEFAULT false,
  pause_reason    text,
  paused_until    timestamptz,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  dropped_at      timestamptz,           -- rows of history refer to it; the name is free again
  owner_oid       oid,                   -- 0: no role of that name existed when the row was restored
  run_as_oid      oid,
  resumed_at      timestamptz,           -- last call of jobq.resume_job_type
  paused_at       timestamptz,           -- the pause's length is paused_until - paused_at, also after a clock step
  is_workflow     boolean     NOT NULL DEFAULT false,  -- its jobs are runs: 54_workflows.sql
  kind            text        GENERATED ALWAYS AS
                  (CASE WHEN is_workflow THEN 'workflow' WHEN handler IS NOT NULL THEN 'sql'
                        WHEN command IS NOT NULL THEN 'exec' ELSE 'pull' END) STORED,
  CONSTRAINT job_types_check CHECK (is_workflow::int + num_nonnulls(handler, command) <= 1)
);
CREATE UNIQUE INDEX job_types_name ON jobq.job_types (name) WHERE dropped_at IS NULL;

-- options.env is stored here because readers of jobq.job_types may not see it.
-- src/registry/job_types.c numbers the columns.
CREATE TABLE jobq.job_type_env (
  type_id  int4   NOT NULL PRIMARY KEY,
  env      jsonb  NOT NULL
);

-- Limits that job types share by naming them in options.limits.
-- src/limits/job_limit.c numbers the columns.
CREATE TABLE jobq.limits (
  name            text        NOT NULL PRIMARY KEY,
  max_concurrent  int4        NOT NULL,
  rate_limit      int4        NOT NULL,
  rate_window     interval    NOT NULL
);

-- The kill switch: while its row exists, no job starts.
-- src/limits/kill_switch.c numbers the columns.
CREATE TABLE jobq.stopped (
  one     boolean      NOT NULL DEFAULT true PRIMARY KEY CHECK (one),
  reason  text,
  since   timestamptz  NOT NULL
);

-- Live jobs only. src/tables/queue_table.h numbers the columns: append, never
-- reorder.
CREATE TABLE jobq.queue (
  id               uuid        NOT NULL,
  position         timestamptz NOT NULL,
  scheduled_for    timestamptz NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  type_id          int4        NOT NULL,
  rev              int4        NOT NULL DEFAULT 0,
  home_id          int4        NOT NULL,
  status           jobq.job_status NOT NULL DEFAULT 'pending'
                   CHECK (status IN ('pending', 'blocked', 'retry', 'running')),
  attempts         int4        NOT NULL DEFAULT 0,
  max_attempts     int4        NOT NULL,
  runs             int4        NOT NULL DEFAULT 0,
  crashes          int4        NOT NULL DEFAULT 0,
  depth            int4        NOT NULL DEFAULT 0,
  priority         int2        NOT NULL DEFAULT 0,
  sublane          int2        NOT NULL DEFAULT 0,      -- 0, or the tenant's lane (options.fair_by)
  successor        boolean     NOT NULL DEFAULT false,  -- shares its unique key with a running job
  payload          jsonb       NOT NULL DEFAULT '{}',
  timeout          interval,                            -- NULL: the type's
  backoff          jsonb,                               -- NULL: the type's
  unique_key       text,
  unique_for       interval,
  concurrency_key  text,
  keep_completed   interval,                            -- NULL: the type's
  tenant           text,
  parent_id        uuid,
  workflow_id      uuid,
  task_key         text,
  metadata         jsonb,
  error_msg        text,                                -- of the last attempt
  error_code       text,
  error_details    jsonb,
  started_at       timestamptz,                         -- of the current or last attempt
  worker           text,
  node             text,
  lease_token      uuid,
  lease_expires_at timestamptz,
  progress         numeric,
  progress_data    jsonb,
  enqueued_by      text,                                -- oid:name; roles held to grants (jobq.access) see their own jobs
  key_hash         int8,                                -- of concurrency_key and tenant; NULL: no key
  keep_dead        interval,                            -- NULL: the type's
  schedule_id      int4,                                -- of the tick that enqueued it
  lease            interval,                            -- length of the lease of a pulled job
  cancel_requested boolean,                             -- true: its worker is told by heartbeat; error_msg has the reason
  after            uuid[],                              -- its parents, as given; NULL: none
  after_rule       text,                                -- success, done, any, failed
  waiting_for      int4,                                -- parents whose end does not count yet; of a blocked job only
  after_state      int2,                                -- bits: 1 a parent has completed, 2 one has died or was cancelled
  keep_until       timestamptz,                         -- of a task: all rows of a run expire then
  key_since        timestamptz                          -- place in the order of its key: created_at, or when it was released
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
        toast.autovacuum_vacuum_cost_delay = 0, toast.vacuum_truncate = off);
CREATE UNIQUE INDEX queue_id ON jobq.queue (id);
-- A lane is (type, priority, sublane).  Its key has 16 bytes, so that appends
-- to every lane fill their pages.
CREATE INDEX queue_lane ON jobq.queue (type_id, priority DESC, sublane, position);
CREATE UNIQUE INDEX queue_unique_key ON jobq.queue (type_id, tenant, unique_key, successor)
  NULLS NOT DISTINCT WHERE unique_key IS NOT NULL;

-- The jobs that wait for a concurrency key, in the order of their lane and in
-- that of key_order = fifo.
CREATE INDEX queue_key_lane ON jobq.queue (key_hash, type_id, priority DESC, sublane, position)
  WHERE key_hash IS NOT NULL;
CREATE INDEX queue_key_order ON jobq.queue (key_hash, key_since) WHERE key_hash IS NOT NULL;

-- Blocked jobs and maps; jobs that have failed, wait or run again: lists of a
-- status find its newest jobs among a million others.  A claim changes neither
-- column.
CREATE INDEX queue_blocked ON jobq.queue (id) WHERE "position" = 'infinity';
CREATE INDEX queue_failed ON jobq.queue (id) WHERE error_msg IS NOT NULL;

-- The edges from parents to the jobs that wait for them (queue.after).  An edge
-- is deleted when its parent's end has been counted.
-- src/tables/edge_table.h numbers the columns.
CREATE TABLE jobq.dependencies (
  parent_id  uuid  NOT NULL,
  child_id   uuid  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX dependencies_parent ON jobq.dependencies (parent_id);

-- Jobs that ended as completed, skipped or cancelled.  The maintenance process
-- makes the partitions ahead of need.
CREATE TABLE jobq.history (
  id               uuid        NOT NULL,
  expires_at       timestamptz NOT NULL,
  scheduled_for    timestamptz NOT NULL,
  created_at       timestamptz NOT NULL,
  started_at       timestamptz,
  completed_at     timestamptz NOT NULL,
  type_id          int4        NOT NULL,
  status           jobq.job_status NOT NULL CHECK (status IN ('completed', 'skipped', 'cancelled')),
  attempts         int4        NOT NULL,
  max_attempts     int4        NOT NULL,
  runs             int4        NOT NULL,
  depth            int4        NOT NULL,
  priority         int2        NOT NULL,
  payload          jsonb       NOT NULL,
  result           jsonb,
  timeout          interval,
  unique_key       text,
  unique_until     timestamptz,
  concurrency_key  text,
  tenant           text,
  parent_id        uuid,
  workflow_id      uuid,
  task_key         text,
  metadata         jsonb,
  error_msg        text,
  error_code       text,
  error_details    jsonb,
  worker           text,
  node             text,
  progress         numeric,
  progress_data    jsonb,
  backoff          jsonb,
  unique_for       interval,
  keep_completed   interval,
  counted          boolean     NOT NULL DEFAULT false,  -- in history: its type has keep_completed_count
  enqueued_by      text,
  keep_dead        interval,
  after            uuid[],
  after_rule       text
) PARTITION BY RANGE (expires_at);

-- Jobs that used up their attempts or failed permanently, until they are
-- retried or purged.  They have history's columns in history's order, because
-- one C function writes both.  If they are kept without limit, expires_at is
-- infinity.
CREATE TABLE jobq.dead_letters (
  id               uuid        NOT NULL PRIMARY KEY,
  expires_at       timestamptz NOT NULL,
  scheduled_for    timestamptz NOT NULL,
  created_at       timestamptz NOT NULL,
  started_at       timestamptz,
  completed_at     timestamptz NOT NULL,
  type_id          int4        NOT NULL,
  status           jobq.job_status NOT NULL DEFAULT 'error' CHECK (status = 'error'),
  attempts         int4        NOT NULL,
  max_attempts     int4        NOT NULL,
  runs             int4        NOT NULL,
  depth            int4        NOT NULL,
  priority         int2        NOT NULL,
  payload          jsonb       NOT NULL,
  result           jsonb,
  timeout          interval,
  unique_key       text,
  unique_until     timestamptz,
  concurrency_key  text,
  tenant           text,
  parent_id        uuid,
  workflow_id      uuid,
  task_key         text,
  metadata         jsonb,
  error_msg        text,
  error_code       text,
  error_details    jsonb,
  worker           text,
  node             text,
  progress         numeric,
  progress_data    jsonb,
  backoff          jsonb,
  unique_for       interval,
  keep_completed   interval,
  counted          boolean     NOT NULL DEFAULT false,
  enqueued_by      text,
  keep_dead        interval,
  after            uuid[],
  after_rule       text
);
CREATE INDEX dead_letters_newest ON jobq.dead_letters (completed_at);
CREATE INDEX dead_letters_of_type ON jobq.dead_letters (type_id, completed_at, id);
CREATE INDEX dead_letters_unique_key ON jobq.dead_letters (type_id, unique_key) WHERE unique_until IS NOT NULL;

-- Types of which a job with unique_for was enqueued: finished jobs of others
-- hold no unique key (src/tables/finished_keys.c).
CREATE TABLE jobq.unique_for_types (
  type_id  int4  NOT NULL
);
CREATE INDEX unique_for_types_type_id ON jobq.unique_for_types (type_id);

CREATE SEQUENCE jobq.event_id_seq AS int8 CACHE 32;
CREATE TABLE jobq.events (
  id        bigint      NOT NULL DEFAULT nextval('jobq.event_id_seq'),
  ts        timestamptz NOT NULL DEFAULT clock_timestamp(),
  job_id    uuid,                        -- NULL, as job_type is, in an event of a signal
  job_type  text,
  tenant    text,
  attempt   int4,
  type      text        NOT NULL,
  source    text        NOT NULL,
  level     text        NOT NULL DEFAULT 'info',
  message   text,
  data      jsonb
) PARTITION BY RANGE (ts);

-- Alerts for operators; partitioned and kept as events are.
-- src/settle/alerts.c numbers the columns.
CREATE TABLE jobq.alerts (
  ts        timestamptz NOT NULL DEFAULT clock_timestamp(),
  severity  text        NOT NULL CHECK (severity IN ('warning', 'high')),
  title     text        NOT NULL,
  message   text        NOT NULL,
  job_id    uuid,
  job_type  text,
  tenant    text,
  attempts  int4,
  error_msg text
) PARTITION BY RANGE (ts);

SELECT pg_catalog.pg_extension_config_dump('jobq.home', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.job_type_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.job_types', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.job_type_env', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.limits', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.stopped', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.queue', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.dependencies', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.dead_letters', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.unique_for_types', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.event_id_seq', '');
