-- 0.1.0 to 0.2.0, what comes before the functions: see README.md.

ALTER TABLE jobq.queue ADD COLUMN keep_dead interval;
ALTER TABLE jobq.history ADD COLUMN keep_dead interval;
ALTER TABLE jobq.dead_letters ADD COLUMN keep_dead interval;

SELECT jobq._update_drop(
  'jobq.enqueue(text, jsonb, int, interval, timestamptz, int, interval, jsonb, text, text, interval, text, interval, text, jsonb)',
  'jobq.enqueue_many(text, jsonb[], int, interval, timestamptz, int, interval, jsonb, text, text, interval, text, jsonb)');
