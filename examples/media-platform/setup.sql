-- Nodes, edges and access, the write path, 19 job types with their limits, and the signal "LiveKit
-- is active".  psql variables: dir (has the program tool), backoff (the wait before the second
-- attempt), look (how often the signal's condition is looked at), password (of both roles).
\set ON_ERROR_STOP 1

CREATE TABLE nodes (
  id          uuid PRIMARY KEY,
  collection  text NOT NULL,
  kind        text NOT NULL,
  title       text NOT NULL,
  data        jsonb NOT NULL DEFAULT '{}'
);
CREATE TABLE edges (
  source  uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
  target  uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
  kind    text NOT NULL,          -- part_of: of another node; may_read: a person reads a node
  PRIMARY KEY (source, target, kind)
);
CREATE INDEX ON edges (target);
CREATE TABLE node_access (        -- made by recompute_access()
  node    uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
  person  uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
  PRIMARY KEY (node, person)
);
CREATE TABLE livekit_rooms (name text PRIMARY KEY, participants int NOT NULL);

-- Makes the access of a node and of all its parts anew: the readers of a whole read its parts.
CREATE FUNCTION recompute_access(node uuid) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  parts uuid[] := ARRAY(
    WITH RECURSIVE part(id) AS (SELECT recompute_access.node UNION
                                SELECT e.source FROM edges e JOIN part ON e.target = part.id AND e.kind = 'part_of')
    SELECT id FROM part);
BEGIN
  IF EXISTS (SELECT FROM edges e WHERE e.source = recompute_access.node AND e.kind = 'part_of' AND e.target = ANY (parts)) THEN
    RAISE EXCEPTION 'node % would be a part of itself', recompute_access.node USING ERRCODE = 'check_violation';
  END IF;
  DELETE FROM node_access WHERE node = ANY (parts);
  INSERT INTO node_access (node, person)
  WITH RECURSIVE whole(part, id) AS (SELECT p, p FROM unnest(parts) p UNION
                                     SELECT w.part, e.target FROM whole w JOIN edges e ON e.source = w.id AND e.kind = 'part_of')
  SELECT DISTINCT w.part, e.source FROM whole w JOIN edges e ON e.target = w.id AND e.kind = 'may_read';
END $$;

-- The write path: each handler's writes, the access and the job's completion are one transaction.
CREATE FUNCTION pg_insert_node(payload jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO nodes (id, collection, kind, title, data)
  VALUES ((payload->>'id')::uuid, (jobq.current_job()).tenant, payload->>'kind', payload->>'title', coalesce(payload->'data', '{}'))
  ON CONFLICT (id) DO NOTHING   -- a tool that has run twice
$$;
CREATE FUNCTION pg_update_node(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE nodes SET title = coalesce(payload->>'title', title), data = data || coalesce(payload->'data', '{}')
   WHERE id = (payload->>'id')::uuid AND collection = (jobq.current_job()).tenant;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no node % in this collection', payload->>'id' USING ERRCODE = 'foreign_key_violation';
  END IF;
END $$;
CREATE FUNCTION pg_delete_node(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  parts uuid[] := ARRAY(SELECT source FROM edges WHERE target = (payload->>'id')::uuid AND kind = 'part_of');
BEGIN
  DELETE FROM nodes WHERE id = (payload->>'id')::uuid AND collection = (jobq.current_job()).tenant;
  PERFORM recompute_access(part) FROM unnest(parts) part;
END $$;
-- Raises 23503 unless both nodes of an edge are there, in the job's collection.
CREATE FUNCTION check_nodes(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT count(*) FROM unnest(ARRAY[payload->>'source', payload->>'target']::uuid[]) i
        JOIN nodes n ON n.id = i AND n.collection = (jobq.current_job()).tenant) < 2 THEN
    RAISE EXCEPTION 'no such nodes in this collection: %, %', payload->>'source', payload->>'target' USING ERRCODE = 'foreign_key_violation';
  END IF;
END $$;
CREATE FUNCTION pg_insert_edge(payload jsonb) RETURNS void LANGUAGE sql AS $$
  SELECT check_nodes(payload);
  INSERT INTO edges (source, target, kind) VALUES ((payload->>'source')::uuid, (payload->>'target')::uuid, payload->>'kind')
  ON CONFLICT DO NOTHING;
  SELECT recompute_access((payload->>CASE payload->>'kind' WHEN 'may_read' THEN 'target' ELSE 'source' END)::uuid)
$$;
CREATE FUNCTION pg_delete_edge(payload jsonb) RETURNS void LANGUAGE sql AS $$
  DELETE FROM edges e USING nodes s, nodes t
   WHERE e.source = (payload->>'source')::uuid AND e.target = (payload->>'target')::uuid AND e.kind = payload->>'kind'
     AND s.id = e.source AND t.id = e.target AND (jobq.current_job()).tenant = ALL (ARRAY[s.collection, t.collection]);
  SELECT recompute_access((payload->>CASE payload->>'kind' WHEN 'may_read' THEN 'target' ELSE 'source' END)::uuid)
$$;
-- Enqueues what a tool wants to write: its result has {"write": [{"job_type", "payload"}]}.  It is
-- a hook, enqueued by the transaction that completed the tool's job.  The payload of a large job
-- lacks the result: the row has it.  The collection is that of this job, whatever the payload says.
CREATE FUNCTION pg_apply_result(hook jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  collection text := (jobq.current_job()).tenant;
  result jsonb := hook->'result';
  w jsonb;
BEGIN
  IF result IS NULL THEN
    SELECT coalesce(j.result, 'null') INTO result FROM jobq.jobs j WHERE j.id = (hook->>'id')::uuid AND j.tenant = collection;
  END IF;
  IF result IS NULL THEN
    RAISE EXCEPTION 'the result of job % is gone', hook->>'id' USING ERRCODE = 'no_data_found';
  END IF;
  FOR w IN SELECT jsonb_array_elements(result->'write') LOOP
    IF w->>'job_type' !~ '^pg_(insert|update|delete)_' THEN
      RAISE EXCEPTION 'no write: %', w->>'job_type' USING ERRCODE = 'check_violation';
    END IF;
    PERFORM jobq.enqueue(w->>'job_type', w->'payload', tenant => collection, concurrency_key => w->'payload'->>'id');
  END LOOP;
END $$;

-- priority, weight, jobs at once, timeout; while LiveKit is active: NULL changes nothing, 0 blocks,
-- another number is added to the priority
CREATE TEMP TABLE types AS
SELECT * FROM (VALUES
  ('whisper_transcribe', -10, 5, 1, '2 hours', 0), ('render_video',      -20, 5, 1, '2 hours', 0),
  ('normalize_audio',     -5, 3, 2, '30 min', -20), ('ocr_image',           0, 2, 2, '5 min', -10),
  ('suggest_edges',       -5, 1, 2, '5 min',  -10), ('openrouter_analyze',  0, 1, 4, '5 min', NULL),
  ('summarize',            0, 1, 4, '5 min', NULL), ('translate',           0, 1, 4, '5 min', NULL),
  ('extract_text',         5, 1, 2, '2 min', NULL), ('make_thumbnail',     10, 1, 4, '1 min', NULL),
  ('fetch_url',            5, 1, 8, '1 min', NULL), ('import_feed',         0, 1, 2, '2 min', NULL),
  ('publish',             20, 1, 1, '1 min', NULL), ('pg_apply_result',    30, 0, 0, '1 min', NULL),
  ('pg_insert_node',      40, 0, 0, '1 min', NULL), ('pg_insert_edge',     30, 0, 0, '1 min', NULL),
  ('pg_update_node',      35, 0, 0, '1 min', NULL), ('pg_delete_node',     30, 0, 0, '1 min', NULL),
  ('pg_delete_edge',      30, 0, 0, '1 min', NULL)
) t(name, priority, weight, at_once, timeout, livekit);

-- All writes go this way, one at a time, so that access is computed from all that is committed.
SELECT jobq.set_limit('writes', max_concurrent => 1) \g /dev/null
SELECT jobq.create_job_type(name, (name || '(jsonb)')::regprocedure, base_priority => priority, cpu_weight => weight, timeout => timeout::interval,
                            max_attempts => 10, backoff_base => :'backoff', critical => true,
                            options => '{"limits": ["writes"], "require_tenant": true, "permanent_codes": ["23514"]}')
  FROM types WHERE name LIKE 'pg\_%' \g /dev/null
-- The tools: stdout is the result, stderr the log, the exit code the status; 65 is for good.
SELECT jobq.create_job_type(name, command => ARRAY[:'dir' || '/tool', name, '--write'], base_priority => priority, cpu_weight => weight,
                            max_concurrent => at_once, timeout => timeout::interval, backoff_base => :'backoff',
                            options => '{"on_complete": "pg_apply_result", "permanent_exit_codes": [65], "log_stderr": "log",
                                         "require_tenant": true, "fair_by": "tenant", "refuse_on_disk_emergency": true}')
  FROM types WHERE name NOT LIKE 'pg\_%' \g /dev/null

SELECT jobq.create_signal('livekit', 'EXISTS (SELECT FROM livekit_rooms WHERE participants > 0)', every => :'look') \g /dev/null
SELECT jobq.set_pressure_rule(name, 'livekit', priority_adj => livekit, block => livekit = 0)
  FROM types WHERE livekit IS NOT NULL \g /dev/null

ALTER DATABASE :"DBNAME" SET jobq.max_weight = 8;
ALTER DATABASE :"DBNAME" SET jobq.disk_warning = 85;
ALTER DATABASE :"DBNAME" SET jobq.disk_critical = 90;
ALTER DATABASE :"DBNAME" SET jobq.disk_emergency = 95;
SELECT jobq.reload() \g /dev/null

-- An editor sees the jobs of a collection, the chief all of them and the levers.
CREATE ROLE editor LOGIN PASSWORD :'password';
CREATE ROLE chief LOGIN PASSWORD :'password';
SELECT jobq.grant_access('editor', 'read', tenant => 'nyheter'), jobq.grant_access('chief', 'admin'),
       jobq.grant_access('chief', 'read') \g /dev/null
