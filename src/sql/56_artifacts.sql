
-- Artifacts: what an attempt has made, as a row with the key of an object.
-- jobq stores no object and reads none.

CREATE SEQUENCE jobq.artifact_id_seq AS int8;

-- Partitioned as jobq.history is.
-- src/settle/artifacts.c numbers the columns: append, never reorder.
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

CREATE TABLE jobq.artifacts_default PARTITION OF jobq.artifacts DEFAULT;
CREATE INDEX artifacts_default_job ON jobq.artifacts_default (job_id);
CREATE INDEX artifacts_default_workflow ON jobq.artifacts_default (workflow_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX artifacts_default_expires ON jobq.artifacts_default (expires_at);

SELECT pg_catalog.pg_extension_config_dump('jobq.artifact_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('jobq.artifacts_default', '');

-- src/sql_worker/record_artifact.c.  For a running handler, or the holder of a
-- job's lease.
CREATE FUNCTION jobq.record_artifact(
  key text, kind text DEFAULT 'output', bucket text DEFAULT NULL, size_bytes bigint DEFAULT NULL,
  content_type text DEFAULT NULL, checksum text DEFAULT NULL, data jsonb DEFAULT NULL,
  id uuid DEFAULT NULL, lease_token uuid DEFAULT NULL) RETURNS bigint
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_record_artifact';

-- src/settle/artifact_key.c
CREATE FUNCTION jobq.build_key(job_id uuid, task_key text, kind text, ext text DEFAULT NULL, name text DEFAULT 'data')
  RETURNS text LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'jobq_build_key';
