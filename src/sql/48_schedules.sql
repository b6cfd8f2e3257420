-- Cron expressions.

-- src/schedule/next_runs.c
CREATE FUNCTION jobq.next_runs(cron text, timezone text DEFAULT 'UTC', n int DEFAULT 5, since timestamptz DEFAULT now())
  RETURNS SETOF timestamptz
  LANGUAGE c STABLE PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'jobq_next_runs';
