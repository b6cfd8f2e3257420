-- Paths and templates of workflow steps: placeholders, conditions, maps; hostile paths.
BEGIN;
SET LOCAL client_min_messages = error;
SELECT * FROM no_plan();
CREATE SCHEMA templates;

-- Returns the error of a statement, or its value.
CREATE FUNCTION templates.said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE statement INTO result;
  RETURN coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE FUNCTION templates.fill(template jsonb) RETURNS text LANGUAGE sql AS $$
  SELECT templates.said(format('SELECT jobq_internal._fill(%L, %L)', template,
    '{"input": {"n": 5, "text": "a\"b", "list": [1, 2, 3], "objects": [{"k": 1}, {"k": 2}, {}], "null": null, "at": "2026-03-01T12:00:00+02:00", "dash-ed": 7},
      "tasks": {"ingest": {"status": "completed", "result": {"file": "x.wav"}}}, "item": {"id": 9}, "index": 3}'));
$$;

-- ---------- placeholders ----------

SELECT is(templates.fill(template), filled, template::text) FROM (VALUES
  ('{"a": 1, "b": ["$", "$.input.n"], "$x": {"$ref": "#"}}'::jsonb, '{"a": 1, "b": ["$", "$.input.n"], "$x": {"$ref": "#"}}'),
  ('"$.input.n"', '"$.input.n"'), ('5', '5'), ('[]', '[]'), ('{}', '{}'),
  ('{"$": "$.input.n"}', '5'), ('{"$": "$.input.text"}', '"a\"b"'), ('{"$": "$.input.list"}', '[1, 2, 3]'), ('{"$": "$.input.null"}', 'null'),
  ('{"$": "$.input.\"dash-ed\""}', '7'), ('{"$": "$.tasks.ingest.result.file"}', '"x.wav"'), ('{"$": "$.item.id"}', '9'), ('{"$": "$.index"}', '3'),
  ('{"in": {"$": "$.tasks.ingest.result"}, "l": [[{"$": "$.input.n"}], {"x": {"$": "$.input.n"}}]}', '{"l": [[5], {"x": 5}], "in": {"file": "x.wav"}}'),
  ('{"$": "$.input.list[1]"}', '2'), ('{"$": "$.input.list.size()"}', '3'), ('{"$": "$.input.n + 1"}', '6'), ('{"$": "$.input.n == 5"}', 'true'),
  ('{"$": "$.input.none", "default": {"x": [1]}}', '{"x": [1]}'), ('{"$": "$.input.n", "default": 1}', '5'), ('{"$": "$.input.null", "default": 1}', 'null'),
  ('{"$": "$.input.none", "default": {"$": "$.input.n"}}', '5'), ('{"$": "$.input.none", "default": {"x": {"$": "$.input.n"}}}', '{"x": 5}'),
  ('{"$": "$.input.n.x.y", "default": "none"}', '"none"'),
  ('{"$[]": "$.input.list[*]"}', '[1, 2, 3]'), ('{"$[]": "$.input.list"}', '[[1, 2, 3]]'), ('{"$[]": "$.input.none"}', '[]'), ('{"$[]": "$.input.n"}', '[5]'),
  ('{"$[]": "$.input.objects.k"}', '[1, 2]'), ('{"ids": {"$[]": "$.input.objects[*].k ? (@ > 1)"}}', '{"ids": [2]}'),
  ('{"$": "$.input.at.datetime().type()"}', '"timestamp with time zone"'),
  ('{"$": "$.input.at.datetime() == \"2026-03-01T10:00:00+00:00\".datetime()"}', 'true'),
  ('{"$": "$.input.none"}', 'JQ004: path "$.input.none" finds no item'),
  ('{"$": "$.input.list[*]"}', 'JQ004: path "$.input.list[*]" finds several items'),
  ('{"$": "$.input.objects.k", "default": 1}', 'JQ004: path "$.input.objects.k" finds several items'),
  ('{"$": 5}', 'JQ004: placeholder {"$": ...} has a path that is no text'), ('{"$[]": null}', 'JQ004: placeholder {"$[]": ...} has a path that is no text'),
  ('{"$": "$.input.n", "x": 1}', 'JQ004: placeholder {"$": ...} has other keys'), ('{"$[]": "$.input.n", "default": 1}', 'JQ004: placeholder {"$[]": ...} has other keys'),
  ('{"$": "$.input.n", "$[]": "$.input.n"}', 'JQ004: placeholder {"$": ...} has other keys'),
  ('{"$": "strict $.input.none", "default": 1}', 'JQ004: path "strict $.input.none" is strict, paths of workflows are lax'),
  ('{"$": "$.input.text + 1"}', 'JQ004: path "$.input.text + 1" cannot be evaluated: left operand of jsonpath operator + is not a single numeric value'),
  ('{"$": "$.input.n / 0"}', 'JQ004: path "$.input.n / 0" cannot be evaluated: division by zero')) v(template, filled);
SELECT alike(templates.fill(template), error, template::text) FROM (VALUES
  ('{"$": ""}'::jsonb, 'JQ004: path "" cannot be evaluated:%'), ('{"$": "$.("}', 'JQ004: path "$.(" cannot be evaluated:%'),
  ('{"$": "$x"}', 'JQ004: path "$x" cannot be evaluated:%')) v(template, error);
SELECT is(jobq_internal._fill('{"$": "$"}', '[1]'), '[1]', 'a context that is no object');
SELECT is(jobq_internal._fill('{"$": "$.a"}', '[{"a": 1}]'), '1', 'lax paths unwrap arrays');
SELECT is(jobq_internal._fill('{"$": "$"}', '5'), '5', 'a scalar context');
SET LOCAL timezone = 'America/New_York';
SELECT is(jobq_internal._fill('{"$": "$.a.datetime() < \"2026-03-01T12:30:00+00:00\".datetime()"}', '{"a": "2026-03-01T12:00:00"}'), 'true', 'the time zone is UTC');
SELECT is(current_setting('timezone') || (timestamptz '2026-03-01 12:00+00')::text, 'America/New_York2026-03-01 07:00:00-05', 'and the session''s afterwards');
SELECT is(jobq_internal._fill_input('{"a": {"$": "$.input.x"}, "b": {"$": "$.tasks.a.result"}, "c": {"$": "$.input.x + $.index"}, "d": {"$[]": "$.input.y[*]"}, "e": [{"$": "$"}]}',
  '{"input": {"x": 1, "y": [2, 3]}}'), '{"a": 1, "b": {"$": "$.tasks.a.result"}, "c": {"$": "$.input.x + $.index"}, "d": [2, 3], "e": [{"$": "$"}]}', 'only $.input');

-- ---------- conditions, maps ----------

SELECT is(templates.said(format('SELECT jobq_internal._test(%L, %L)', path, '{"input": {"n": 5, "yes": true, "no": false, "null": null, "text": "true"}}')), truth, 'if ' || path) FROM (VALUES
  ('$.input.n == 5', 'true'), ('$.input.n > 5', 'false'), ('$.input.none == 1', 'false'), ('$.input.text > 1', 'false'), ('exists($.input.n)', 'true'),
  ('$.input.yes', 'true'), ('$.input.no', 'false'), ('$.input.null', 'false'), ('null', 'false'), ('true', 'true'), ('$.input.n == 5 && !($.input.no == true)', 'true'),
  ('$.input.n', 'JQ004: path "$.input.n" cannot be evaluated: single boolean result is expected'),
  ('$.input.text', 'JQ004: path "$.input.text" cannot be evaluated: single boolean result is expected'),
  ('$.input.none', 'JQ004: path "$.input.none" cannot be evaluated: single boolean result is expected')) v(path, truth);
SELECT is(templates.said(format('SELECT jobq_internal._items(%L, %L)', path, '{"a": [1, {"b": [2]}], "e": [], "o": {}, "n": 1}')), found, 'map ' || path) FROM (VALUES
  ('$.a', '[1, {"b": [2]}]'), ('$.a[1].b', '[2]'), ('$.e', '[]'), ('$.a.b', '[2]'),
  ('$.o', 'JQ004: path "$.o" finds another item, not an array'), ('$.n', 'JQ004: path "$.n" finds another item, not an array'),
  ('$.x', 'JQ004: path "$.x" finds no item, not an array'), ('$.a[*]', 'JQ004: path "$.a[*]" finds several items, not an array')) v(path, found);

-- ---------- hostile paths ----------

CREATE TEMP TABLE bombs AS SELECT name, path FROM (VALUES
  ('nested repetitions', '$.text like_regex "^((((a{1,200}){1,200}){1,200}){1,200})$"'),
  ('back references', '$.long like_regex "^(a+)(a+)(a+)(a+)\\1\\2\\3\\4$"'),
  ('products of levels', '$.**.**.**.**.**.** == "never"'),
  ('a product in filters', 'exists($.list[*] ? (exists($.list[*] ? (exists($.list[*] ? (@ == -1))))))')) v(name, path);
CREATE TEMP TABLE hostile AS
  SELECT jsonb_build_object('text', repeat('a', 50), 'long', repeat('a', 2001), 'list', (SELECT jsonb_agg(i) FROM generate_series(1, 1000) i),
                            'deep', (SELECT jsonb_agg(jsonb_build_object('a', jsonb_build_object('b', i))) FROM generate_series(1, 1000) i)) AS context;
SELECT alike(templates.said(format('SELECT jobq_internal._test(%L, context) FROM hostile', path)), 'JQ004: path "%" takes more than % ms', name) FROM bombs;
CREATE FUNCTION templates.seconds() RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
  began timestamptz := clock_timestamp();
BEGIN
  PERFORM templates.said(format('SELECT jobq_internal._test(%L, context) FROM hostile', path)) FROM bombs;
  RETURN extract(epoch FROM clock_timestamp() - began);
END $$;
SELECT cmp_ok(templates.seconds(), '<', 20::numeric, 'all of them end soon, also on a busy machine');
SELECT is(jobq_internal._fill('{"$": "$.list.size()"}', context), '1000', 'the next path is not affected') FROM hostile;
SELECT alike(templates.said(format('SELECT jobq_internal._fill(%L, %L)', jsonb_build_object('$', path), '{}')), 'JQ004: path "%" ' || error, name) FROM (VALUES
  ('10,000 keys', '$' || repeat('.a', 10000) || '.size()', 'is longer than 4096 bytes'), ('2,000 keys', '$' || repeat('.a', 2000) || '.size()', 'finds no item'),
  ('parentheses, 10,000 deep', repeat('(', 10000) || '$' || repeat(')', 10000), 'is longer than 4096 bytes'),
  ('filters, 1,000 deep', '$' || repeat('?(@', 1000) || '==1' || repeat(')', 1000), '%')) v(name, path, error);
SELECT is(templates.said(format('SELECT jobq_internal._fill(%L, %L)', (repeat('[', 60) || '{"$": "$.a"}' || repeat(']', 60))::jsonb, (repeat('{"a": ', 20) || '1' || repeat('}', 20))::jsonb)),
  'JQ004: filled template is larger than jobq.max_payload, 1048576 bytes, or nested more than 64 levels deep', 'depth of the result');
SELECT is(templates.said($$SELECT jobq_internal._fill((SELECT jsonb_agg('{"$": "$"}'::jsonb) FROM generate_series(1, 20000)), context) FROM hostile$$),
  'JQ004: filled template is larger than jobq.max_payload, 1048576 bytes', 'its size, while it grows');
SELECT alike(templates.said($$SELECT jobq_internal._fill('{"$[]": "$.a[*]"}', jsonb_build_object('a', (SELECT jsonb_agg(repeat('x', 100)) FROM generate_series(1, 20000))))$$),
  'JQ004: filled template is larger than jobq.max_payload, 1048576 bytes, %', 'and at its end');
SELECT is(jsonb_array_length(jobq_internal._items(path, c)), 100000, 'a map over 100,000 elements by ' || path)
  FROM (SELECT jsonb_build_object('tasks', jsonb_build_object('a', jsonb_build_object('result', jsonb_agg(i)))) AS c FROM generate_series(1, 100000) i) t,
       (VALUES ('$.tasks.a.result'), ('$.tasks ? (1 == 1).a.result')) v(path);

-- A cancel of the statement is not one of the path.
CREATE FUNCTION templates.cancelled() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM count(*) FROM generate_series(1, 1000000000) i WHERE jobq_internal._test('$.a like_regex "^b"', '{"a": "a"}');
EXCEPTION WHEN query_canceled THEN
  RETURN SQLERRM;
END $$;
SET LOCAL statement_timeout = '300ms';
SELECT is(templates.cancelled(), 'canceling statement due to statement timeout', 'statement_timeout cancels the statement');
RESET statement_timeout;

SELECT * FROM finish();
ROLLBACK;
