-- Job types: every rule of a definition, with its SQLSTATE
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION test.takes_int(i int) RETURNS jsonb LANGUAGE sql RETURN '{}'::jsonb;
CREATE FUNCTION test.takes_two(a jsonb, b int DEFAULT 1) RETURNS jsonb LANGUAGE sql RETURN a;
CREATE FUNCTION test.gives_int(payload jsonb) RETURNS int LANGUAGE sql RETURN 1;
CREATE FUNCTION test.gives_set(payload jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT payload';
CREATE FUNCTION test.gives_out(payload jsonb, OUT a int, OUT b int) LANGUAGE sql AS 'SELECT 1, 2';
CREATE PROCEDURE test.procedure(payload jsonb) LANGUAGE sql AS '';
CREATE AGGREGATE test.aggregate(jsonb) (sfunc = jsonb_concat, stype = jsonb);
SELECT jobq.create_job_type('exists', 'test.ok(jsonb)');
SELECT jobq.create_job_type('tool', command => '{true}');
\pset format unaligned
\pset tuples_only on

-- names
SELECT test.error_of(format('SELECT jobq.create_job_type(%L, %L)', name, 'test.ok(jsonb)'))
  FROM (VALUES (NULL), (''), (' x'), ('x '), (E'a\nb'), (E'\x7f'), (U&'\0085'), (repeat('x', 64)), (repeat('é', 32)),
               ('exists')) v(name);
SELECT test.error_of(format('SELECT jobq.create_job_type(%L, %L)', name, 'test.ok(jsonb)'))
  FROM (VALUES (repeat('x', 63)), ('with space'), ('quote "''" $'), ('Größe')) v(name);

-- handlers
SELECT test.error_of(format('SELECT jobq.create_job_type(%L, %s)', 'new', handler))
  FROM (VALUES ('''test.ok'''), ('''test.ok''::regproc'), ('''test.missing(jsonb)'''), ('0'),
    ('''test.takes_int(int)'''), ('''test.takes_int''::regproc'), ('''test.takes_two(jsonb, int)'''),
    ('''test.gives_int(jsonb)'''), ('''test.gives_set(jsonb)'''), ('''test.gives_out(jsonb)'''),
    ('''test.procedure(jsonb)'''), ('''test.aggregate(jsonb)''')) v(handler);
SELECT jobq.drop_job_type('new');

-- commands
SELECT test.error_of(format('SELECT jobq.create_job_type(%L, command => %s)', 'new', command))
  FROM (VALUES ('''{}'''), ('''{NULL}'''), ('''{echo,NULL}'''), ('''{""}'''), ('''{bin/echo}'''), ('''{./echo}'''),
    ('''{..}'''), ('''{{a,b},{c,d}}'''), ('array_fill(''x''::text, ARRAY[1000])'), ('ARRAY[''echo'', repeat(''x'', 1000000)]'),
    ('''{"{tool}"}''')) v(command);
SELECT test.error_of($$SELECT jobq.create_job_type('new', 'test.ok(jsonb)', '{echo}')$$);

-- everything else
SELECT argument || ': ' || test.error_of(format('SELECT jobq.create_job_type(%L, %L, %s)', 'new', 'test.ok(jsonb)', argument))
  FROM (VALUES
    ('max_attempts => 0'), ('max_attempts => -1'), ('max_attempts => 1000001'),
    ('backoff => ''linear'''), ('backoff_base => ''-1s'''),
    ('backoff_max => ''-1s'''), ('backoff_jitter => -0.1'), ('backoff_jitter => 1.1'),
    ('backoff_jitter => ''NaN'''),
    ('timeout => ''-1s'''), ('timeout => ''20000 years'''),
    ('base_priority => 101'), ('base_priority => -101'),
    ('max_concurrent => -1'), ('cpu_weight => -1'),
    ('rate_limit => -1'), ('rate_window => ''0'''), ('rate_window => ''-1s'''),
    ('keep_completed => ''-1s'''), ('keep_dead => ''-1s'''),
    ('run_as => 4294967295'), ('options => ''[]'''), ('options => ''1'''),
    ('options => ''{"no_such_key": 1}'''), ('options => ''{"output": "json"}'''), ('options => ''{"batch": 1}'''),
    ('on_conflict => ''sometimes'''), ('on_conflict => NULL')) v(argument);
SELECT argument || ': ' || test.error_of(format('SELECT jobq.create_job_type(%L, command => %L, %s)', 'new', '{echo}', argument))
  FROM (VALUES ('options => ''{"output": "xml"}'''), ('options => ''{"batch": true}'''),
    ('options => ''{"env": {"LD_PRELOAD": "x.so"}}'''), ('options => ''{"pass_env": ["PYTHONPATH"]}'''),
    ('options => ''{"kill_grace": "-1s"}'''),
    ('options => ''{"permanent_exit_codes": ["a"]}''')) v(argument);
-- Python's variables that load no code
SELECT jobq.create_job_type('python', command => '{echo}', options => '{"env": {"PYTHONUNBUFFERED": "1"}, "pass_env": ["PYTHONIOENCODING"]}');
-- braces of scripts
SELECT jobq.alter_job_type('python', command => ARRAY['awk', '-F', ':', '{print}']);
SELECT jobq.alter_job_type('python', command => ARRAY['/bin/bash', '-ec', 'echo ${HOME}']);
SELECT jobq.alter_job_type('python', command => ARRAY['awk', '-v', 'x={x}', '{{print}']);
SELECT jobq.alter_job_type('python', command => ARRAY['sh', '-c', 'echo ${{HOME} "$1"', 'sh', '{file}']);
SELECT jobq.drop_job_type('python');
-- options for nodes, a later feature: their values without effect are no errors
SELECT option || ': ' || test.error_of(format('SELECT jobq.create_job_type(%L, command => %L, options => %L)', 'new', '{echo}', option))
  FROM (VALUES ('{"run_on": "agents"}'), ('{"run_on": "any"}'), ('{"run_on": "moon"}'), ('{"require_labels": {"gpu": "1"}}'),
    ('{"require_labels": []}'), ('{"sticky": true}'), ('{"sticky": 1}')) v(option);
SELECT test.error_of($$SELECT jobq.alter_job_type('tool', options => '{"run_on": "agents"}')$$);
SELECT jobq.alter_job_type('tool', options => '{"run_on": "server", "require_labels": {}, "sticky": false}');
SELECT options FROM jobq.job_types WHERE name = 'tool';
SELECT jobq.alter_job_type('tool', options => '{"run_on": null, "require_labels": null, "sticky": null}');
SELECT options FROM jobq.job_types WHERE name = 'tool';
SELECT count(*) FROM jobq.job_types WHERE name = 'new' AND dropped_at IS NULL;

-- alter
SELECT call || ': ' || test.error_of('SELECT jobq.alter_job_type(' || call || ')')
  FROM (VALUES ('NULL'), ('''missing'''), ('''exists'', ''test.ok(jsonb)'', ''{true}'''), ('''exists'', ''test.gives_int(jsonb)'''),
    ('''exists'', command => ''{a/b}'''), ('''exists'', max_attempts => 0'), ('''exists'', base_priority => 200'),
    ('''exists'', timeout => ''-1s'''), ('''exists'', options => ''{"nope": 1}'''), ('''exists'', options => ''{"nope": null}'''),
    ('''exists'', options => ''[]'''), ('''exists'', options => ''{"output": "json"}'''), ('''tool'', options => ''{"batch": false}'''),
    ('''exists'', reset => ''{nope}'''), ('''exists'', reset => ''{handler}'''), ('''exists'', reset => ''{NULL}'''),
    ('''exists'', timeout => ''1s'', reset => ''{timeout}'''), ('''exists'', options => ''{}'', reset => ''{options}''')) v(call);
SELECT handler, command, max_attempts, options FROM jobq.job_types WHERE name = 'exists';

-- a command that replaces a handler must suit the options, and vice versa
SELECT jobq.alter_job_type('tool', options => '{"output": "text"}');
SELECT test.error_of($$SELECT jobq.alter_job_type('tool', 'test.ok(jsonb)')$$);
SELECT test.error_of($$SELECT jobq.alter_job_type('tool', 'test.ok(jsonb)', reset => '{options}')$$);

-- pause, resume, drop
SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('pause_job_type(NULL)'), ('pause_job_type(''missing'')'), ('pause_job_type(''exists'', duration => ''0'')'),
    ('pause_job_type(''exists'', duration => ''-1 h'')'), ('resume_job_type(NULL)'), ('resume_job_type(''missing'')'),
    ('drop_job_type(NULL)'), ('drop_job_type(''missing'')'), ('drop_job_type(''exists'', NULL)')) v(call);
