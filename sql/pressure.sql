-- what shifts the order of jobs: options.aging
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all
\pset tuples_only on
\pset format unaligned

CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
SELECT jobq.create_job_type('a', 'test.ok(jsonb)', options => '{"aging": {"per": "30s", "max": 5}, "fair_by": "tenant"}');
SELECT jobq.alter_job_type('a', options => '{"aging": {}}');
SELECT options FROM jobq.job_types WHERE name = 'a';
SELECT jobq.alter_job_type('a', options => '{"aging": null, "fair_by": null}');
SELECT options FROM jobq.job_types WHERE name = 'a';
SELECT option || ': ' || test.error_of(format('SELECT jobq.alter_job_type(''a'', options => %L)', option))
  FROM (VALUES ('{"aging": 1}'), ('{"aging": []}'), ('{"aging": "1min"}'), ('{"aging": {"per": "0"}}'), ('{"aging": {"per": "-1s"}}'),
    ('{"aging": {"per": 5}}'), ('{"aging": {"per": "soon"}}'), ('{"aging": {"per": null}}'), ('{"aging": {"max": "5"}}'),
    ('{"aging": {"max": 1.5}}'), ('{"aging": {"max": -1}}'), ('{"aging": {"max": 1001}}'), ('{"aging": {"step": 1}}'),
    ('{"aging": {"per": "1s", "": 1}}'), ('{"fair_by": "user"}'), ('{"fair_by": true}')) v(option);
SELECT test.clean();
