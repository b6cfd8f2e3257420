-- Tables, job types and the function that stores results.  psql variables: variant (tools or
-- workers), dir (has the program tool), backoff (the wait before the second attempt).
CREATE TABLE refs (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  url          text NOT NULL,
  sync_source  text,                -- 'url': fetched again each 24 hours
  body_text    text,
  sha256       text,
  last_synced  timestamptz
);
CREATE TABLE audit (
  at           timestamptz NOT NULL DEFAULT now(),
  job_id       uuid NOT NULL,
  job_name     text NOT NULL,
  entity_id    bigint NOT NULL,
  change       text NOT NULL        -- stored or unchanged
);

-- Writes the result of a job to its row, and an audit row.  With an unchanged checksum only
-- last_synced is written.
CREATE FUNCTION store_result(job_id uuid, job_name text, payload jsonb, result jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  entity bigint := payload->>'entity_id';
  change text := 'unchanged';
BEGIN
  UPDATE refs SET last_synced = now() WHERE id = entity AND sha256 = result->>'sha256';
  IF NOT FOUND THEN
    change := 'stored';
    UPDATE refs SET body_text = left(result->>'body_text', 200000), sha256 = result->>'sha256',
                    last_synced = CASE WHEN result ? 'sha256' THEN now() END
     WHERE id = entity;
  END IF;
  INSERT INTO audit (job_id, job_name, entity_id, change) VALUES (store_result.job_id, job_name, entity, change);
END $$;

-- Jobs at once, time and memory of a type.  VOID_CONCURRENCY_EXTRACT_PDF=4 replaces a number.
\set overrides `env | sed -n 's/^VOID_CONCURRENCY_//p'`
CREATE TEMP VIEW types AS
SELECT name, timeout::interval, memory,
       coalesce(substring(:'overrides' FROM upper(replace(name, '.', '_')) || '=(\d+)')::int, concurrency) AS concurrency
  FROM (VALUES ('extract.pdf', 2, '120s', '512MB'), ('extract.image', 2, '60s', '512MB'),
               ('ingest.video', 1, '30min', '1GB'), ('sync.source_doc', 1, '30s', '256MB')) t(name, concurrency, timeout, memory);

SELECT :'variant' = 'tools' AS tools \gset
\if :tools
-- The server runs the program tool; a job of type store, enqueued in the transaction of its
-- completion, writes the result.
-- The payload of store has the result, unless it is too large: then the row has it.
CREATE FUNCTION store(hook jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  job record;
BEGIN
  SELECT hook->'payload' AS payload, hook->'result' AS result INTO job;
  IF hook ? 'truncated' THEN
    SELECT j.payload, j.result INTO STRICT job FROM jobq.jobs j WHERE j.id = (hook->>'id')::uuid;
  END IF;
  PERFORM store_result((hook->>'id')::uuid, hook->>'job_type', job.payload, job.result);
END $$;
SELECT jobq.create_job_type('store', 'store(jsonb)') \g /dev/null
SELECT jobq.create_job_type(name, command => ARRAY[:'dir' || '/tool', name], timeout => timeout, max_concurrent => concurrency,
                            max_attempts => 3, backoff_base => :'backoff',
                            options => jsonb_build_object('memory_max', memory, 'max_output', '3MB',  -- JSON has 12 bytes for a character at most
                                                           'on_complete', 'store', 'log_stderr', 'log')
                                       || CASE name WHEN 'ingest.video' THEN jsonb_build_object('warm', concurrency)
                                                    ELSE '{"skip_exit_codes": [3]}' END)
  FROM types \g /dev/null
\else
-- worker.py claims the jobs.
SELECT jobq.create_job_type(name, timeout => timeout, max_concurrent => concurrency, max_attempts => 3, backoff_base => :'backoff',
                            options => '{"lease_follows_connection": true}')
  FROM types \g /dev/null
\endif

-- Each 24 hours: a job for every row that is fetched from a URL.
CREATE FUNCTION sync_all() RETURNS void LANGUAGE sql AS $$
  SELECT jobq.enqueue('sync.source_doc', jsonb_build_object('entity_type', 'ref', 'entity_id', id, 'url', url), unique_key => 'ref ' || id)
    FROM refs WHERE sync_source = 'url'
$$;
SELECT jobq.create_job_type('sync.all', 'sync_all()') \g /dev/null
SELECT jobq.schedule('sync', 'every 24h', 'sync.all') \g /dev/null
