-- The whole queue: a table with embeddings, the function that stores a row and its job, the job
-- type, and the old queue's columns as a view.  psql variable backoff: the wait before the second
-- attempt.  The database has jobq, and pgvector if this server has it.
SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') AS has_vector \gset
\if :has_vector
CREATE EXTENSION IF NOT EXISTS vector;
\set vector vector(26)
\else
\set vector real[]
\endif

CREATE TABLE insights (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  content    text NOT NULL,
  embedding  :vector
);

SELECT jobq.create_job_type('embed', max_attempts => 5, backoff_base => :'backoff', timeout => '2 min',
                            rate_limit => 10, rate_window => '1 min',
                            options => '{"min_batch": {"jobs": 10, "wait": "1min"}, "lease_follows_connection": true}') \g /dev/null

-- Stores an insight and the job that embeds it: both or neither.
CREATE FUNCTION store_insight(content text, model text DEFAULT 'letters') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  new_id bigint;
BEGIN
  INSERT INTO insights (content) VALUES (store_insight.content) RETURNING id INTO new_id;
  PERFORM jobq.enqueue('embed', jsonb_build_object('table', 'insights', 'id', new_id, 'text', content, 'model', model),
                       unique_key => 'insights ' || new_id);
  RETURN new_id;
END $$;

CREATE VIEW embedding_queue AS
SELECT id, payload->>'table' AS target_table, (payload->>'id')::bigint AS target_id, payload->>'text' AS text_content,
       payload->>'model' AS model,
       CASE status WHEN 'error' THEN 'failed' WHEN 'running' THEN 'processing' WHEN 'retry' THEN 'pending'
                   ELSE status::text END AS status,
       attempts, coalesce(error_msg, metadata->>'last_error') AS last_error, scheduled_for AS next_retry_at, created_at, updated_at
  FROM jobq.jobs WHERE job_type = 'embed';
