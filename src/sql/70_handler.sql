
-- Functions for use inside a SQL handler: src/sql_worker/handler.c.
-- create_job_type grants these to the role that handlers run as.
CREATE FUNCTION jobq_internal._current_job_id() RETURNS uuid
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_current_job_id';

-- A handler sees its own job, whatever else it may read.  The plan is cached;
-- the condition on status leaves only the queue in it.
CREATE FUNCTION jobq.current_job() RETURNS jobq.jobs
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  job jobq.jobs;
BEGIN
  SELECT * INTO job FROM jobq.jobs j WHERE j.id = jobq_internal._current_job_id() AND j.status = 'running';
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  RETURN job;
END $$;

CREATE FUNCTION jobq.set_progress(progress numeric, data jsonb DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_set_progress';
CREATE FUNCTION jobq.log_event(message text, level text DEFAULT 'info', type text DEFAULT 'log',
                               data jsonb DEFAULT NULL, id uuid DEFAULT NULL, lease_token uuid DEFAULT NULL)
  RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_log_event';
CREATE FUNCTION jobq.skip(reason text DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_skip';
CREATE FUNCTION jobq.discard(reason text) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_discard';
CREATE FUNCTION jobq.snooze(delay interval, reason text DEFAULT NULL) RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_snooze';

-- Not called through src/security/owner_call.c: the C code needs no right, and
-- the handler runs as the role of its type under the caller's settings.
CREATE FUNCTION jobq.run_inline(id uuid) RETURNS jobq.jobs
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_run_inline';
