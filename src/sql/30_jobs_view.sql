
-- jobq.jobs: every job, live or not. src/observe/jobs_view.c describes what
-- the functions below add to the rows.
CREATE FUNCTION jobq_internal._type_name(type_id int) RETURNS text
  LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_type_name';
CREATE FUNCTION jobq_internal._live_status(id uuid, rev int, status jobq.job_status) RETURNS jobq.job_status
  LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_status';
CREATE FUNCTION jobq_internal._live_attempts(id uuid, rev int, status jobq.job_status, attempts int)
  RETURNS int
  LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_attempts';
CREATE FUNCTION jobq_internal._live_runs(id uuid, rev int, status jobq.job_status, runs int) RETURNS int
  LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_runs';
CREATE FUNCTION jobq_internal._live_started_at(id uuid, rev int, status jobq.job_status, started_at timestamptz)
  RETURNS timestamptz
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_started_at';
CREATE FUNCTION jobq_internal._live_worker(id uuid, rev int, status jobq.job_status, worker text) RETURNS text
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_worker';
CREATE FUNCTION jobq_internal._live_progress(id uuid, rev int, status jobq.job_status, progress numeric)
  RETURNS numeric
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_progress';
CREATE FUNCTION jobq_internal._live_progress_data(id uuid, rev int, status jobq.job_status, progress_data jsonb)
  RETURNS jsonb
  LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_live_progress_data';

-- The jobs of executors and clients that the caller sees; runs and maps are not
-- among them.  complete: false if others may run, too.
CREATE FUNCTION jobq_internal._running_ids(OUT complete boolean, OUT ids uuid[])
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_running_ids';

-- Columns are appended, never reordered.  Each branch has exactly the columns'
-- types and no join.  So the planner reads the newest jobs from the three id
-- indexes, and leaves out tables that a status excludes.
CREATE VIEW jobq.jobs WITH (security_invoker = true) AS
SELECT id,
       jobq_internal._type_name(type_id) AS job_type,
       jobq_internal._live_status(id, rev, status) AS status,
       priority, payload,
       NULL::jsonb AS result,
       error_msg, error_code, error_details,
       jobq_internal._live_attempts(id, rev, status, attempts) AS attempts,
       max_attempts,
       jobq_internal._live_runs(id, rev, status, runs) AS runs,
       created_at, scheduled_for,
       jobq_internal._live_started_at(id, rev, status, started_at) AS started_at,
       NULL::timestamptz AS completed_at,
       greatest(created_at, jobq_internal._live_started_at(id, rev, status, started_at)) AS updated_at,
       jobq_internal._live_progress(id, rev, status, progress) AS progress,
       jobq_internal._live_progress_data(id, rev, status, progress_data) AS progress_data,
       tenant, unique_key, concurrency_key, timeout,
       jobq_internal._live_worker(id, rev, status, worker) AS worker,
       node, lease_expires_at, parent_id, depth, workflow_id, task_key, metadata, after, after_rule
  FROM jobq.queue
UNION ALL
SELECT id, jobq_internal._type_name(type_id), status, priority, payload, result, error_msg, error_code, error_details,
       attempts, max_attempts, runs, created_at, scheduled_for, started_at, completed_at, completed_at,
       progress, progress_data, tenant, unique_key, concurrency_key, timeout, worker, node,
       NULL::timestamptz, parent_id, depth, workflow_id, task_key, metadata, after, after_rule
  FROM jobq.history
UNION ALL
SELECT id, jobq_internal._type_name(type_id), status, priority, payload, result, error_msg, error_code, error_details,
       attempts, max_attempts, runs, created_at, scheduled_for, started_at, completed_at, completed_at,
       progress, progress_data, tenant, unique_key, concurrency_key, timeout, worker, node,
       NULL::timestamptz, parent_id, depth, workflow_id, task_key, metadata, after, after_rule
  FROM jobq.dead_letters;
