-- Grafana, a panel of type "Time series" on PostgreSQL: embeddings that failed for good, by minute.
SELECT date_bin('1 minute', completed_at, 'epoch') AS time, count(*) AS failed
  FROM jobq.jobs
 WHERE job_type = 'embed' AND status = 'error' AND $__timeFilter(completed_at)
 GROUP BY 1 ORDER BY 1
