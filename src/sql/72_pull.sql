
-- Jobs of types without handler and command: clients claim them, work them
-- anywhere and report their end.  src/pull has the C functions; each call is
-- one statement and leaves no state in the session.
CREATE FUNCTION jobq.claim(
  job_types text[], max_jobs int DEFAULT 1, worker text DEFAULT NULL, lease interval DEFAULT '2min',
  wait interval DEFAULT '0', node text DEFAULT NULL)
  RETURNS TABLE(id uuid, job_type text, payload jsonb, attempts int, max_attempts int, tenant text, metadata jsonb,
                lease_token uuid, lease_expires_at timestamptz, deadline timestamptz, progress_data jsonb)
  LANGUAGE c ROWS 10 AS 'MODULE_PATHNAME', 'jobq_claim';

-- 'ok': the lease is renewed | 'cancel': stop, then fail or skip the job |
-- 'lost': the token is not valid any more.
CREATE FUNCTION jobq.heartbeat(id uuid, lease_token uuid, progress numeric DEFAULT NULL, data jsonb DEFAULT NULL)
  RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_heartbeat';

-- False, or no row: lost.
CREATE FUNCTION jobq.complete(id uuid, lease_token uuid, result jsonb DEFAULT NULL) RETURNS boolean
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_complete';
CREATE FUNCTION jobq.complete_many(ids uuid[], lease_tokens uuid[], results jsonb[] DEFAULT NULL) RETURNS SETOF uuid
  LANGUAGE c ROWS 10 AS 'MODULE_PATHNAME', 'jobq_complete_many';
CREATE FUNCTION jobq.skip_job(id uuid, lease_token uuid, reason text DEFAULT NULL, result jsonb DEFAULT NULL)
  RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_skip_job';
CREATE FUNCTION jobq.snooze_job(id uuid, lease_token uuid, delay interval DEFAULT '0', reason text DEFAULT NULL)
  RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_snooze_job';

-- 'retry' | 'error' | 'lost'
CREATE FUNCTION jobq.fail(
  id uuid, lease_token uuid, error text, retryable boolean DEFAULT NULL, error_code text DEFAULT NULL,
  retry_after interval DEFAULT NULL, details jsonb DEFAULT NULL)
  RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_fail';

-- For a batch that fails whole; returns the ids whose tokens were valid.
CREATE FUNCTION jobq.fail_many(
  ids uuid[], lease_tokens uuid[], error text, retryable boolean DEFAULT NULL, error_code text DEFAULT NULL,
  retry_after interval DEFAULT NULL)
  RETURNS SETOF uuid LANGUAGE c ROWS 10 AS 'MODULE_PATHNAME', 'jobq_fail_many';
