-- Moves embedding_retry_queue to jobq.  The old workers and writers are stopped; the type has no
-- job yet.  A move that was interrupted goes on when the script runs again.
\set ON_ERROR_STOP 1
-- Enqueues the rows in one of these statuses.
CREATE FUNCTION pg_temp.enqueue_rows(statuses text[]) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FILTER (WHERE is_new) FROM jobq.enqueue_jobs((
    SELECT coalesce(jsonb_agg(jsonb_build_object(
             'job_type', 'embed',
             'payload', jsonb_build_object('table', target_table, 'id', target_id, 'text', text_content, 'model', model),
             'unique_key', target_table || ' ' || target_id, 'on_conflict', 'replace',  -- the newest text counts
             'max_attempts', CASE status WHEN 'failed' THEN 5 ELSE greatest(5 - attempts, 1) END,
             'scheduled_for', CASE status WHEN 'pending' THEN next_retry_at ELSE now() END,
             'metadata', jsonb_build_object('moved_from', id, 'attempts', attempts, 'last_error', last_error,
                                            'created_at', created_at)) ORDER BY created_at, id), '[]')
      FROM embedding_retry_queue WHERE status = ANY (statuses)))
$$;

-- Failed rows become dead letters: each is claimed, and fails with the error that it had.
-- Meanwhile the type has no limits and raises no alerts; the table embedding_move has its settings.
BEGIN;
SELECT to_regclass('embedding_move') IS NULL AS begins \gset
\if :begins
DO $$ BEGIN
  IF EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'embed') THEN
    RAISE EXCEPTION 'job type "embed" has jobs already';
  END IF;
END $$;
CREATE TABLE embedding_move AS SELECT coalesce(rate_limit, 0) AS rate, options FROM jobq.job_types WHERE name = 'embed';
SELECT jobq.alter_job_type('embed', rate_limit => 0, options => '{"min_batch": null, "alert": false, "events": "none"}') \g /dev/null
SELECT pg_temp.enqueue_rows('{failed}') \g /dev/null
\endif
COMMIT;
DO $$
DECLARE
  waiting bigint := (SELECT count(*) FROM jobq.jobs
                     WHERE job_type = 'embed' AND status IN ('pending', 'retry', 'running') AND metadata ? 'moved_from');
  claimed bigint;
  done bigint;
  others bigint;
BEGIN
  WHILE waiting > 0 LOOP
    COMMIT;
    SELECT count(*), count(CASE WHEN metadata ? 'moved_from'
               THEN jobq.fail(id, lease_token, coalesce(metadata->>'last_error', 'failed'), false) END),
           count(CASE WHEN metadata ? 'moved_from' IS NOT TRUE     -- of a writer that is not stopped
               THEN jobq.snooze_job(id, lease_token, '10 min') END)
      INTO claimed, done, others
      FROM jobq.claim('{embed}', 50, wait => '20s');
    IF claimed = 0 THEN
      RAISE EXCEPTION 'no job in 20 s: is the type paused? no dispatcher?';
    END IF;
    waiting := waiting - done;
  END LOOP;
END $$;

-- Rows that wait, and those that a worker had when it was stopped, in one transaction with the
-- settings and the end of the old table.
BEGIN;
LOCK TABLE embedding_retry_queue;
SELECT jobq.alter_job_type('embed', rate_limit => rate, options => '{"min_batch": null, "alert": null, "events": null}' || options)
  FROM embedding_move \g /dev/null
DROP TABLE embedding_move;
SELECT pg_temp.enqueue_rows('{pending,processing}') AS waiting \gset
SELECT count(*) AS failed FROM embedding_retry_queue WHERE status = 'failed' \gset
ALTER TABLE embedding_retry_queue RENAME TO embedding_retry_queue_old;
COMMIT;
\echo '   moved' :waiting 'jobs and' :failed 'dead letters'
