-- The dry run of a workflow, and its graph.

-- Returns the payload of a step as far as it depends on the payload of the run
-- alone, and the problem that the engine would have with its data.  given
-- NULL: there is no payload of a run.
CREATE FUNCTION jobq_internal._dry_run(step jsonb, given jsonb, OUT payload jsonb, OUT problem text)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  context jsonb := jsonb_build_object('input', given);
  path jsonb;
  found_item jsonb;
BEGIN
  IF coalesce(step ->> 'job_type', '') = '' THEN
    NULL;  -- no job, no payload
  ELSIF coalesce(step -> 'payload', 'null') <> 'null' THEN
    payload := step -> 'payload';
  ELSIF coalesce(step -> 'map', 'null') = 'null' THEN
    payload := '{}';
  END IF;
  IF given IS NULL THEN
    RETURN;
  END IF;
  payload := jobq_internal._fill_input(payload, context);
  IF step ->> 'if' IS NOT NULL THEN
    path := jsonb_build_object('$', step -> 'if');
    found_item := jobq_internal._fill_input(path, context);
    IF found_item <> path AND jsonb_typeof(found_item) NOT IN ('boolean', 'null') THEN
      problem := format('"if": path "%s" is not true, false or null', jobq_internal._shown(step ->> 'if'));
    END IF;
  END IF;
  IF step ->> 'map' IS NOT NULL THEN
    path := jsonb_build_object('$', step -> 'map');
    found_item := jobq_internal._fill_input(path, context);
    IF found_item <> path AND jsonb_typeof(found_item) <> 'array' THEN
      problem := format('"map": path "%s" is no array', jobq_internal._shown(step ->> 'map'));
    END IF;
  END IF;
EXCEPTION WHEN SQLSTATE 'JQ004' THEN
  problem := SQLERRM;
END $$;

CREATE FUNCTION jobq.check_workflow(steps jsonb, payload jsonb DEFAULT NULL)
  RETURNS TABLE(task_key text, wave int, job_type text, payload jsonb, problem text)
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_gateway';
CREATE FUNCTION jobq_internal._check_workflow(caller oid, steps jsonb, given jsonb)
  RETURNS TABLE(task_key text, wave int, job_type text, payload jsonb, problem text)
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  c record;
BEGIN
  PERFORM jobq_internal._check_not_null('steps', steps IS NOT NULL), jobq_internal._check_payload(0, given);
  FOR c IN
    SELECT p.* FROM jobq_internal._check_steps(caller, steps, NULL) WITH ORDINALITY p(ordinal, task_key, wave, job_type, problem, state, n)
     ORDER BY p.wave NULLS LAST, p.ordinal NULLS LAST, p.n LOOP
    task_key := c.task_key;
    wave := c.wave;
    job_type := c.job_type;
    payload := NULL;
    problem := c.problem;
    IF c.ordinal IS NOT NULL AND problem IS NULL THEN
      SELECT d.payload, d.problem INTO payload, problem FROM jobq_internal._dry_run(steps -> (c.ordinal - 1), given) d;
    ELSIF c.ordinal IS NOT NULL AND task_key IS NULL THEN
      problem := format('step %s: %s', c.ordinal, problem);
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Returns a text as it may stand in a quoted label of Mermaid.
CREATE FUNCTION jobq_internal._mermaid_text(value text) RETURNS text
  LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
  SELECT string_agg(CASE WHEN c ~ '[][A-Za-z0-9 _.:/(){}=,+-]' OR c COLLATE "C" > chr(127) THEN c ELSE format('#%s;', ascii(c)) END, '' ORDER BY n)
    FROM string_to_table(value, NULL) WITH ORDINALITY t(c, n)
$$;

-- Returns the node of a step.  Its shape depends on the kind of the step: a
-- job, a map, a wait for an event, a sleep, a join.
CREATE FUNCTION jobq_internal._graph_node(id text, step jsonb) RETURNS text
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT format('  %s%s"%s"%s', id, s.opening,
                concat_ws('<br>', jobq_internal._mermaid_text(step ->> 'key'),
                          jobq_internal._mermaid_text(nullif(step ->> 'job_type', step ->> 'key')),
                          jobq_internal._mermaid_text('if ' || (step ->> 'if')), jobq_internal._mermaid_text('map ' || (step ->> 'map')),
                          jobq_internal._mermaid_text('event ' || (step ->> 'event')), jobq_internal._mermaid_text('delay ' || (step ->> 'delay'))),
                s.closing)
    FROM (VALUES (1, '[[', ']]', step ->> 'map' IS NOT NULL), (2, '[', ']', step ->> 'job_type' IS NOT NULL),
                 (3, '>', ']', step ->> 'event' IS NOT NULL), (4, '([', '])', step ->> 'delay' IS NOT NULL),
                 (5, '((', '))', true)) s(n, opening, closing, fits)
   WHERE s.fits ORDER BY s.n LIMIT 1
$$;

-- Returns the lines of nodes and edges.  Nodes are named by number: a key may be
-- a word of Mermaid.
CREATE FUNCTION jobq_internal._graph_lines(steps jsonb) RETURNS SETOF text
  LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH step AS (SELECT s, n, s ->> 'key' AS key FROM jsonb_array_elements(steps) WITH ORDINALITY t(s, n)),
  line AS (
    SELECT 1 AS part, n, 0::bigint AS m, jobq_internal._graph_node('s' || n, s) AS text FROM step
     UNION ALL
    SELECT 2, n, 0, format('  u%s["%s.undo<br>%s"]', n, jobq_internal._mermaid_text(key),
                           jobq_internal._mermaid_text(s #>> '{compensate,job_type}'))
      FROM step WHERE s #>> '{compensate,job_type}' IS NOT NULL
     UNION ALL
    SELECT 3, c.n, a.m, format('  s%s %s s%s', p.n,
             CASE WHEN coalesce(c.s ->> 'rule', 'success') = 'success' THEN '-->' ELSE format('-- %s -->', c.s ->> 'rule') END, c.n)
      FROM step c, LATERAL jsonb_array_elements_text(CASE jsonb_typeof(c.s -> 'after') WHEN 'array' THEN c.s -> 'after' ELSE '[]' END)
             WITH ORDINALITY a(key, m)
      JOIN step p ON p.key = a.key
     UNION ALL
    SELECT 4, n, 0, format('  s%s -.-> u%s', n, n) FROM step WHERE s #>> '{compensate,job_type}' IS NOT NULL)
  SELECT l.text FROM line l ORDER BY l.part, l.n, l.m
$$;

-- Returns the version of a workflow that a run has, or will have; NULL: the job
-- is none.
CREATE FUNCTION jobq_internal._run_version(id uuid) RETURNS int
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT coalesce((SELECT nullif(r.version, 0) FROM jobq.runs r WHERE r.id = j.id), w.version)
            FROM jobq.jobs j JOIN jobq.workflows w ON w.name = j.job_type AND w.is_active WHERE j.id = _run_version.id);
END $$;

-- Returns lines that give the nodes of a run's steps the status of their tasks
-- as a class.  A mapped step without a row of its own has the first status in
-- this order that one of its tasks has.
CREATE FUNCTION jobq_internal._graph_statuses(steps jsonb, id uuid) RETURNS SETOF text
  LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH task AS (SELECT j.task_key, split_part(j.task_key, '.', 1) AS key, j.status FROM jobq.jobs j
                 WHERE j.workflow_id = _graph_statuses.id),
  node AS (
    SELECT 's' || n AS node, s ->> 'key' AS key, s ->> 'key' AS task_key, n, 1 AS part
      FROM jsonb_array_elements(steps) WITH ORDINALITY t(s, n)
     UNION ALL
    SELECT 'u' || n, s ->> 'key', (s ->> 'key') || '.undo', n, 2 FROM jsonb_array_elements(steps) WITH ORDINALITY t(s, n)
     WHERE s #>> '{compensate,job_type}' IS NOT NULL)
  SELECT l.line FROM (
    SELECT 0 AS part, o.n, format('  classDef %s fill:%s,stroke:#333333,color:#000000', o.status, o.colour) AS line
      FROM unnest('{pending,blocked,retry,running,completed,skipped,cancelled,error}'::text[],
                  '{#ffffff,#eeeeee,#ffdd99,#99ccff,#aaddaa,#dddddd,#ccbbdd,#ff9999}'::text[]) WITH ORDINALITY o(status, colour, n)
     UNION ALL
    SELECT n.part, n.n, format('  class %s %s', n.node,
             (SELECT t.status FROM task t
               WHERE t.key = n.key AND (n.task_key = t.task_key OR (n.part = 1 AND t.task_key ~ '[.][0-9]+$'))
               ORDER BY t.task_key = n.task_key DESC,
                        array_position('{error,running,retry,pending,blocked,cancelled,completed,skipped}', t.status::text)
               LIMIT 1)) AS line
      FROM node n WHERE EXISTS (SELECT FROM task t WHERE t.key = n.key
                                   AND (n.task_key = t.task_key OR (n.part = 1 AND t.task_key ~ '[.][0-9]+$')))) l
   ORDER BY l.part, l.n
$$;

CREATE FUNCTION jobq.graph(workflow text DEFAULT NULL, version int DEFAULT NULL, id uuid DEFAULT NULL) RETURNS text
  LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'jobq_gateway_as_caller';
CREATE FUNCTION jobq_internal._graph(caller oid, workflow text, version int, id uuid) RETURNS text
  LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  of_workflow text := workflow;
  of_version int := version;
  steps jsonb;
BEGIN
  IF id IS NULL AND workflow IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'arguments "workflow" and "id" are both NULL';
  ELSIF id IS NOT NULL AND (workflow IS NOT NULL OR version IS NOT NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('arguments "%s" and "id" are both given',
      CASE WHEN workflow IS NULL THEN 'version' ELSE 'workflow' END);
  ELSIF id IS NOT NULL THEN
    SELECT j.job_type INTO of_workflow FROM jobq.jobs j WHERE j.id = _graph.id;
    IF NOT FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('job "%s" does not exist', id);
    END IF;
    of_version := jobq_internal._run_version(id);
    IF of_version IS NULL THEN
      RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('argument "id": job "%s" is no run of a workflow', id);
    END IF;
  END IF;
  SELECT w.steps INTO steps FROM jobq.workflows w
   WHERE w.name = of_workflow AND CASE WHEN of_version IS NULL THEN w.is_active ELSE w.version = of_version END;
  IF NOT FOUND AND version IS NOT NULL AND EXISTS (SELECT FROM jobq.workflows w WHERE w.name = of_workflow) THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('argument "version": workflow "%s" has no version %s', workflow, version);
  ELSIF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('workflow "%s" does not exist',
      regexp_replace(left(of_workflow, 63), '[[:cntrl:]]', '?', 'g'));
  END IF;
  -- with the steps that tasks have added
  steps := coalesce((SELECT jobq_internal._steps_of(r) FROM jobq.runs r WHERE r.id = _graph.id AND r.version > 0), steps);
  RETURN (SELECT string_agg(l.line, E'\n' ORDER BY l.n)
            FROM (SELECT 'flowchart TD' AS line, 0::bigint AS n
                   UNION ALL
                  SELECT g.line, g.n FROM jobq_internal._graph_lines(steps) WITH ORDINALITY g(line, n)
                   UNION ALL
                  SELECT g.line, 1000000 + g.n FROM jobq_internal._graph_statuses(steps, id) WITH ORDINALITY g(line, n)
                   WHERE _graph.id IS NOT NULL) l);
END $$;
