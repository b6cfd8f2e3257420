-- Enqueueing: refused arguments
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('t', 'test.ok(jsonb)');
SELECT jobq.create_job_type('tool', command => '{echo,"--name={name}","{file.path}"}');
SELECT jobq.create_job_type('dashes', command => '{echo,"{name}"}', options => '{"allow_dash": true}');
SELECT jobq.pause_job_type(name) FROM jobq.job_types;
\pset format unaligned
\pset tuples_only on

SELECT call || ': ' || test.error_of('SELECT jobq.enqueue(' || call || ')')
  FROM (VALUES ('NULL'), ('''missing'''), ('''T'''), ('''t'', NULL'),
    ('''t'', priority => 101'), ('''t'', priority => -101'), ('''t'', max_attempts => 0'), ('''t'', max_attempts => 1000001'),
    ('''t'', delay => ''-1s'''), ('''t'', delay => ''1s'', scheduled_for => now()'), ('''t'', scheduled_for => ''infinity'''),
    ('''t'', scheduled_for => ''-infinity'''), ('''t'', timeout => ''-1s'''), ('''t'', keep_completed => ''-1s'''),
    ('''t'', keep_dead => ''-1s'''), ('''t'', keep_dead => ''1000000 years'''), ('''t'', after => ''{00000000-0000-0000-0000-000000000000}'''), ('''t'', after => ''{NULL}'''),
    ('''t'', after => array_fill(gen_random_uuid(), ARRAY[10001])'),
    ('''t'', after_rule => ''sometimes'''), ('''t'', after_rule => NULL'),
    ('''t'', unique_key => ''k'', unique_for => ''-1s'''), ('''t'', unique_for => ''1s'''), ('''t'', unique_key => '''''),
    ('''t'', concurrency_key => '''''), ('''t'', on_conflict => ''maybe'''), ('''t'', on_conflict => NULL'),
    ('''t'', backoff => ''[]'''), ('''t'', backoff => ''{"type": "linear"}'''), ('''t'', backoff => ''{"base": "-1s"}'''),
    ('''t'', backoff => ''{"jitter": 2}'''), ('''t'', backoff => ''{"step": 1}''')) v(call);
SELECT test.error_of(format('SELECT jobq.enqueue(%L, unique_key => %L)', 't', repeat('k', 2000)));
SELECT test.error_of(format('SELECT jobq.enqueue(%L, tenant => %L)', 't', repeat('k', 2000)));
SELECT test.error_of(format('SELECT jobq.enqueue(%L, tenant => %L)', 't', E'a\nb'));

-- enqueue_many has no unique keys
SELECT test.error_of($$SELECT jobq.enqueue_many('t', '{}', on_conflict => 'ignore')$$);

-- payloads: the rendered size and the depth count
SELECT test.error_of($$SELECT jobq.enqueue('t', to_jsonb(repeat('x', 1024 * 1024)))$$);
SELECT test.error_of($$SELECT jobq.enqueue('t', jsonb_build_array(1e131071, 1e131071, 1e131071, 1e131071, 1e131071, 1e131071, 1e131071, 1e131071))$$);
SELECT test.error_of($$SELECT jobq.enqueue('t', (repeat('[', 1000) || repeat(']', 1000))::jsonb)$$);
SELECT test.error_of($$SELECT jobq.enqueue('t', metadata => to_jsonb(repeat('x', 1024 * 1024)))$$);
SET jobq.max_payload = '2kB';
SELECT test.error_of($$SELECT jobq.enqueue('t', to_jsonb(repeat('x', 2000)))$$);
SELECT test.error_of($$SELECT jobq.enqueue('t', to_jsonb(repeat('x', 2048)))$$);
RESET jobq.max_payload;

-- placeholders
SELECT payload || ': ' || test.error_of(format('SELECT jobq.enqueue(%L, %L)', 'tool', payload))
  FROM (VALUES ('{}'), ('[]'), ('1'), ('{"name": "x"}'), ('{"name": "x", "file": 1}'), ('{"name": "x", "file": {"path": {}}}'),
    ('{"name": null, "file": {"path": "p"}}'), ('{"name": ["x"], "file": {"path": "p"}}'),
    ('{"name": "-x", "file": {"path": "-p"}}'), ('{"name": "-x", "file": {"path": "p"}}'),
    ('{"name": true, "file": {"path": 1.5}}')) v(payload);
SELECT test.error_of($$SELECT jobq.enqueue('dashes', '{"name": "-n"}')$$);

-- many, and several types: all or nothing
SELECT count(*) AS before FROM jobq.queue \gset
SELECT call || ': ' || test.error_of('SELECT * FROM jobq.' || call)
  FROM (VALUES ('enqueue_many(''t'', NULL)'), ('enqueue_many(''missing'', ''{}'')'), ('enqueue_many(''t'', ARRAY[''{}'', NULL]::jsonb[])'),
    ('enqueue_many(''tool'', ARRAY[''{"name": 1, "file": {"path": 1}}'', ''{}'']::jsonb[])'),
    ('enqueue_many(''t'', ''{"{}"}'', delay => ''-1s'')'), ('enqueue_jobs(NULL)'), ('enqueue_jobs(''{}'')'),
    ('enqueue_jobs(''[1]'')'), ('enqueue_jobs(''[{"job_type": "t"}, {}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "missing"}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "colour": 1}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "priority": "high"}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "priority": 1000}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": [2]}]'')'), ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": [0]}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": [1.5]}]'')'), ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": ["x"]}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": [null]}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": ["00000000-0000-0000-0000-000000000000"]}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after": 1}]'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "after_rule": "never"}]'')'),
    ('enqueue_jobs(''[{"job_type": "t", "keep_dead": 1}]'')'), ('enqueue_jobs(''[{"job_type": "t", "keep_dead": "-1 day"}]'')'),
    ('enqueue_many(''t'', ''{"{}"}'', after => ''{NULL}'')'), ('enqueue_many(''t'', ''{"{}"}'', after_rule => ''never'')'),
    ('enqueue_many(''t'', ''{"{}"}'', keep_dead => ''-1s'')'),
    ('enqueue_jobs(''[{"job_type": "t"}, {"job_type": "t", "delay": "soon"}]'')')) v(call);
SELECT count(*) - :before FROM jobq.queue;
BEGIN READ ONLY;
SELECT test.error_of($$SELECT jobq.enqueue('t')$$);
ROLLBACK;
