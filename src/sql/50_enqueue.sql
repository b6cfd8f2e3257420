
-- Enqueueing: src/enqueue/enqueue.c.  These are SECURITY INVOKER, because the
-- identity of the caller counts.
CREATE FUNCTION jobq.enqueue(
  job_type text, payload jsonb DEFAULT '{}', priority int DEFAULT NULL, delay interval DEFAULT NULL,
  scheduled_for timestamptz DEFAULT NULL, max_attempts int DEFAULT NULL, timeout interval DEFAULT NULL,
  backoff jsonb DEFAULT NULL, unique_key text DEFAULT NULL, on_conflict text DEFAULT 'ignore',
  unique_for interval DEFAULT NULL, concurrency_key text DEFAULT NULL, keep_completed interval DEFAULT NULL,
  tenant text DEFAULT NULL, metadata jsonb DEFAULT NULL, keep_dead interval DEFAULT NULL,
  after uuid[] DEFAULT NULL, after_rule text DEFAULT 'success')
  RETURNS uuid LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_enqueue';

CREATE FUNCTION jobq.enqueue_many(
  job_type text, payloads jsonb[], priority int DEFAULT NULL, delay interval DEFAULT NULL,
  scheduled_for timestamptz DEFAULT NULL, max_attempts int DEFAULT NULL, timeout interval DEFAULT NULL,
  backoff jsonb DEFAULT NULL, concurrency_key text DEFAULT NULL,
  keep_completed interval DEFAULT NULL, tenant text DEFAULT NULL, metadata jsonb DEFAULT NULL,
  keep_dead interval DEFAULT NULL, after uuid[] DEFAULT NULL, after_rule text DEFAULT 'success')
  RETURNS SETOF uuid LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_enqueue_many';

CREATE FUNCTION jobq.enqueue_jobs(jobs jsonb) RETURNS TABLE(ordinal int, id uuid, is_new boolean)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_enqueue_jobs';
