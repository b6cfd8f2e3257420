-- Bad keys, paths and labels: each is refused by name or shown so that it can't be read as anything
-- else.  The corpus: all ASCII characters at the begin, the middle and the end of a name, names of
-- other places, look-alikes, long ones.
BEGIN;
SET LOCAL client_min_messages = error;
SELECT * FROM no_plan();

CREATE FUNCTION pg_temp.state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
  RAISE SQLSTATE 'UNDO0';
EXCEPTION WHEN OTHERS THEN
  RETURN CASE SQLSTATE WHEN 'UNDO0' THEN 'none' ELSE SQLSTATE END;
END $$;

CREATE TEMP TABLE corpus AS
SELECT DISTINCT name FROM (
  SELECT format(f, chr(i)) AS name FROM generate_series(1, 127) i, unnest('{%sab,a%sb,ab%s}'::text[]) f
   UNION ALL
  SELECT unnest(ARRAY['', '.', '..', '...', '../a', 'a/../b', '/a', 'a/', 'a//b', './a', '~', '~/a', '-', '--', '-rf', 'a.0', 'a.undo', 'a..b', '$', '$.a', '$[]', '@',
    '%00', '%2e%2e', '\0', '\u0000', 'C:\a', '\\host\a', 'a;b', 'a&&b', '$(a)', '`a`', '{a}', '{{a}}', '<script>', '"><b>', 'end', 'subgraph', 'a"]', 'a]:::b', 'click a',
    'null', 'true', 'constructor', '__proto__', 'item', 'index', 'run', 'input', 'tasks',
    U&'\0430b', U&'a\0301', U&'\00E4', U&'a\00A0b', U&'a\200Bb', U&'\202Ea', U&'\FEFFa', U&'\FF0E\FF0E', U&'\2025', U&'\+01F600',
    repeat('a', 63), repeat('a', 64), repeat('a', 128), repeat('a', 129), repeat(U&'\00E4', 64), repeat('a', 100000), repeat('../', 1000)])) c;
SELECT cmp_ok((SELECT count(*) FROM corpus), '>', 400::bigint, 'the corpus');

-- ---------- steps ----------

CREATE FUNCTION pg_temp.creates(steps jsonb) RETURNS text LANGUAGE sql AS $$ SELECT pg_temp.state_of(format('SELECT jobq.create_workflow(''names'', %L)', steps)) $$;

SELECT is_empty($$
  SELECT left(name, 40), s FROM corpus, pg_temp.creates(jsonb_build_array(jsonb_build_object('key', name))) s
   WHERE s <> CASE WHEN name ~ '^[A-Za-z_][A-Za-z0-9_-]{0,62}$' THEN 'none' ELSE '22023' END
$$, 'the key of a step is an identifier');
SELECT is_empty($$
  SELECT left(name, 40) FROM corpus
   WHERE name !~ '^[A-Za-z_][A-Za-z0-9_-]{0,62}$'
     AND NOT EXISTS (SELECT FROM jobq.check_workflow(jsonb_build_array(jsonb_build_object('key', name))) c WHERE c.problem IS NOT NULL)
$$, 'check_workflow names it');
SELECT is_empty($$
  SELECT left(name, 40), s FROM corpus, pg_temp.creates(jsonb_build_array('{"key": "a"}'::jsonb, jsonb_build_object('key', 'z', 'after', jsonb_build_array(name)))) s
   WHERE s <> CASE name WHEN 'a' THEN 'none' ELSE '22023' END
$$, 'no step waits for one that does not exist');
SELECT is_empty($$
  SELECT left(name, 40), s FROM corpus, pg_temp.creates(jsonb_build_array('{"key": "a"}'::jsonb || jsonb_build_object(name, 1))) s
   WHERE s <> '22023' AND name NOT IN ('key')
$$, 'no unknown key of a step');
SELECT is_empty($$
  SELECT left(name, 40), s FROM corpus, pg_temp.creates(jsonb_build_array(jsonb_build_object('key', 'a', 'job_type', name))) s WHERE s NOT IN ('22023', '42704', '54000')
$$, 'no unknown job type');
SELECT is_empty($$
  SELECT left(name, 40), s FROM corpus, pg_temp.creates(jsonb_build_array(jsonb_build_object('key', 'a', 'event', name))) s
   WHERE s <> CASE WHEN octet_length(name) BETWEEN 1 AND 63 AND name !~ '[[:cntrl:]]' THEN 'none' ELSE '22023' END
$$, 'names of events');
SELECT is(pg_temp.creates('[{"key": "a"}, {"key": "A"}, {"key": "b", "after": ["a", "A"]}]'), 'none', 'case distinguishes keys');
SELECT is(pg_temp.creates('[{"key": "a"}, {"key": "a"}]'), '22023', 'no key is twice');
SELECT is(pg_temp.state_of($$SELECT jobq.create_workflow('names', '[{"key": "a\u0000"}]')$$), '22P05', 'jsonb has no NUL');

-- ---------- deep and large definitions ----------

CREATE FUNCTION pg_temp.nested(n int, opens text, closes text) RETURNS text LANGUAGE sql AS $$ SELECT repeat(opens, n) || '1' || repeat(closes, n) $$;
SELECT jobq.create_job_type('names job');
SELECT ok(pg_temp.state_of(format('SELECT jobq.create_workflow(''names'', %L)', format('[{"key": "a", "job_type": "names job", "payload": %s}]', pg_temp.nested(n, o, c)))) = ANY (states),
          format('a payload of %s times %s', n, o))
  FROM (VALUES ('{"a":', '}'), ('[', ']'), ('{"$": "$", "default":', '}')) v(o, c), (VALUES (1000, '{none,22023,54000}'::text[]), (200000, '{22023,54000,54001}')) w(n, states);
SELECT ok(pg_temp.creates(jsonb_build_array(jsonb_build_object('key', 'a', 'job_type', 'names job', 'payload', (SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, 1000) i)))) = 'none', 'a payload of 1,000 keys');
SELECT is(pg_temp.creates((SELECT jsonb_agg(jsonb_build_object('key', 'k' || i)) FROM generate_series(1, 1001) i)), '54000', 'no 1,001 steps');

-- ---------- paths ----------

CREATE TEMP TABLE paths AS
SELECT name AS path FROM corpus
 UNION ALL SELECT '$.' || name FROM corpus
 UNION ALL SELECT '$.input."' || name || '"' FROM corpus
 UNION ALL SELECT '$.input.s ? (@ like_regex "' || r || '")'
   FROM unnest(ARRAY['(a*)*b', '(a+)+$', '(a|a)*c', '(a|aa)+$', '((a{1,30}){1,30}){1,30}b', '(.*.*.*.*.*.*)b', '([a-z]+)*[0-9]', '(?=(a+))a*b\\1', '(x+x+)+y', '[', '(', '*', '\\', 'a{99999}', repeat('(', 500) || repeat(')', 500)]) r
 UNION ALL SELECT unnest(ARRAY[repeat('(', 1000) || '$' || repeat(')', 1000), '$' || repeat('.a', 10000), '$' || repeat('[*]', 1000), '$.input.l[*] ? (' || repeat('!', 1000) || '(@ > 1))',
   '$.**.**.**.**.**', 'strict $.no', '$x', '$.input.l[last + 99999999999999999999]', '$.input.s.datetime()', '$ ? (@ like_regex "a" flag "z")', '1/0', '$.input.l[*] / 0', 'lax', '"' || repeat('x', 100000)]);
SELECT is_empty($$
  SELECT left(path, 60), s FROM paths, pg_temp.creates(jsonb_build_array(jsonb_build_object('key', 'a', 'if', path))) s WHERE s NOT IN ('none', '22023', '54000', '54001')
$$, 'a path is refused as an argument');
SELECT is_empty($$
  SELECT left(path, 60), s
    FROM paths,
         pg_temp.state_of(format('SELECT jobq_internal._fill(%L, %L)', jsonb_build_object('x', jsonb_build_object('$', path)),
                                 '{"input": {"s": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "l": [1, 2, 3]}, "run": {}, "tasks": {}}')) s
   WHERE pg_temp.creates(jsonb_build_array(jsonb_build_object('key', 'a', 'if', path))) = 'none' AND s NOT IN ('none', 'JQ004')
$$, 'one that was accepted is an error of the data, within its time');

-- ---------- artifacts ----------

CREATE FUNCTION names_handler(payload jsonb) RETURNS jsonb LANGUAGE sql AS $$
  SELECT jsonb_object_agg(name, pg_temp.state_of(format('SELECT jobq.record_artifact(%L)', name))) FROM pg_temp.corpus
$$;
SELECT jobq.create_job_type('names record', 'names_handler(jsonb)');
CREATE FUNCTION pg_temp.sound(element text) RETURNS boolean LANGUAGE sql AS $$ SELECT element ~ '^[A-Za-z0-9._-]{1,128}$' AND element NOT IN ('.', '..') $$;
CREATE TEMP TABLE recorded AS SELECT r.key AS name, r.value AS state FROM jobq.run_inline(jobq.enqueue('names record')) j, jsonb_each_text(j.result) r;
SELECT is((SELECT count(*) FROM recorded), (SELECT count(*) FROM corpus), 'all names are tried as keys of artifacts');
SELECT is_empty($$
  SELECT left(name, 40), state FROM recorded
   WHERE CASE WHEN (SELECT bool_and(pg_temp.sound(e)) FROM string_to_table(name, '/') e) AND name <> '' THEN state <> 'none' ELSE state NOT IN ('22023', '54000') END
$$, 'a key leads to no other place');
SELECT is_empty($$
  SELECT left(name, 40), s FROM corpus, pg_temp.state_of(format('SELECT jobq.build_key(gen_random_uuid(), %L, ''output'')', name)) s
   WHERE CASE WHEN pg_temp.sound(name) THEN s <> 'none' ELSE s NOT IN ('22023', '54000') END
$$, 'build_key makes none');

-- ---------- labels ----------

-- In every collation: the order of characters is another one there.  A server without ICU has none.
SELECT coalesce((SELECT collname FROM pg_collation WHERE collname = 'en-x-icu'), 'C') AS other \gset
SELECT is_empty(format($$
  SELECT left(name, 40), label FROM corpus, jobq_internal._mermaid_text(name COLLATE %I) label
   WHERE label !~ '^([][A-Za-z0-9 _.:/(){}=,+-]|#[0-9]+;|[^\x01-\x7f])*$'
$$, :'other'), 'a label has no character that Mermaid reads');
SELECT is_empty(format($$
  SELECT left(name, 40) FROM corpus, jobq_internal._mermaid_text(name) label WHERE label IS DISTINCT FROM jobq_internal._mermaid_text(name COLLATE %I)
$$, :'other'), 'whatever the collation');

SELECT * FROM finish();
ROLLBACK;
