-- The order of jobs: options.aging, options.fair_by, signals and pressure rules
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

-- signals
SELECT jobq.set_signal('call', true, ttl => '1 hour');
SELECT name, active, active_until - changed_at BETWEEN '59 min' AND '1 h', condition FROM jobq.signals;
SELECT jobq.set_signal('call', false, ttl => '1 hour');
SELECT name, active, active_until FROM jobq.signals;
SELECT jobq.create_signal('busy', 'SELECT count(*) > 5 FROM pg_stat_activity WHERE state = ''active''', every => '1 hour');
SELECT jobq.create_signal('late', '(now() > ''infinity'') -- never', '1 day');
SET search_path = test, pg_catalog;
SELECT jobq.create_signal('here', 'ok(''{}'') IS NULL', '1 day');
RESET search_path;
SELECT name, definer = current_user AS mine, search_path, condition, every FROM jobq.signals ORDER BY name;
SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('set_signal(NULL, true)'), ('set_signal('''', true)'), ('set_signal('' call'', true)'), ('set_signal(E''a\nb'', true)'),
    ('set_signal(repeat(''x'', 64), true)'), ('set_signal(''load'', true)'), ('set_signal(''disk'', false)'), ('set_signal(''new'', NULL)'),
    ('set_signal(''new'', true, ''0'')'), ('set_signal(''new'', true, ''-1s'')'), ('set_signal(''new'', true, ''20000 years'')'),
    ('create_signal(NULL, ''true'')'), ('create_signal(''call'', ''true'')'), ('create_signal(''busy'', ''true'')'),
    ('create_signal(''replication_lag'', ''true'')'), ('create_signal(''new'', NULL)'), ('create_signal(''new'', '''')'),
    ('create_signal(''new'', ''1'')'), ('create_signal(''new'', ''SELECT true, false'')'), ('create_signal(''new'', ''SELECT 1'')'),
    ('create_signal(''new'', ''true); SELECT (true'')'), ('create_signal(''new'', ''SELECT true; SELECT true'')'),
    ('create_signal(''new'', ''DELETE FROM test.t RETURNING true'')'), ('create_signal(''new'', ''no_such_column'')'),
    ('create_signal(''new'', ''SELECT true FROM no_such_table'')'), ('create_signal(''new'', ''SELECT true INTO t'')'),
    ('create_signal(''new'', ''SELECT true FROM pg_class FOR UPDATE'')'), ('create_signal(''new'', repeat(''('', 6000) || repeat('')'', 6000))'),
    ('create_signal(''new'', ''true'', NULL)'), ('create_signal(''new'', ''true'', ''0'')'), ('create_signal(''new'', ''true'', ''20000 years'')'),
    ('drop_signal(NULL)'), ('drop_signal(''missing'')'), ('drop_signal(''load'')')) v(call);
SELECT count(*) FROM jobq.signals WHERE name = 'new';
SELECT call || ': ' || test.error_of('SELECT jobq.' || call)
  FROM (VALUES ('create_signal(''new'', ''true'', on_conflict => NULL)'), ('create_signal(''new'', ''true'', on_conflict => ''maybe'')'),
    ('create_signal(''busy'', ''true'', on_conflict => ''error'')'), ('create_signal(''busy'', ''1'', on_conflict => ''ignore'')'),
    ('create_signal(''load'', ''true'', on_conflict => ''replace'')'), ('drop_signal(''busy'', NULL)')) v(call);

-- on_conflict: an existing signal stays, or gets condition, every, definer and
-- search_path; its state stays
SELECT jobq.create_signal('busy', 'true', '1 day', on_conflict => 'ignore'), jobq.create_signal('new', 'false', '1 day', on_conflict => 'ignore');
SELECT name, condition, every FROM jobq.signals WHERE name IN ('busy', 'new') ORDER BY name;
SET search_path = test, pg_catalog;
SELECT jobq.create_signal('new', 'ok(''{}'') IS NULL', '2 days', on_conflict => 'replace'), jobq.create_signal('new2', 'false', on_conflict => 'replace');
RESET search_path;
BEGIN;  -- so that the condition is not asked meanwhile
SELECT jobq.set_signal('call', true, ttl => '1 hour');
SELECT jobq.create_signal('call', 'false', '1 day', 'replace');
SELECT name, active, active_until IS NOT NULL AS ttl, definer = current_user AS mine, definer_oid::regrole::text = current_user AS mine_by_oid,
       search_path, condition, every, problem FROM jobq.signals WHERE name IN ('call', 'new', 'new2') ORDER BY name;
COMMIT;
SELECT jobq.drop_signal('new'), jobq.drop_signal('new2'), jobq.drop_signal('call'), jobq.set_signal('call', true);

-- rules
SELECT jobq.set_pressure_rule('a', 'call', priority_adj => -20), jobq.set_pressure_rule('a', 'load', block => true),
  jobq.set_pressure_rule(NULL, 'disk', max_weight => 3);
SELECT jobq.set_pressure_rule('a', 'call', 5, true);
SELECT r.type_id <> 0 AS of_a_type, signal, priority_adj, block, max_weight FROM jobq.pressure_rules r ORDER BY signal;
SELECT jobq.set_pressure_rule('a', 'load'), jobq.set_pressure_rule('a', 'load'), jobq.set_pressure_rule(NULL, 'disk');
SELECT signal FROM jobq.pressure_rules ORDER BY signal;
SELECT call || ': ' || test.error_of('SELECT jobq.set_pressure_rule(' || call || ')')
  FROM (VALUES ('''missing'', ''call'''), ('''a'', ''missing'', 1'), ('''a'', ''missing'''), ('''a'', NULL'), ('''a'', ''call'', NULL'),
    ('''a'', ''call'', block => NULL'), ('''a'', ''call'', 1001'), ('''a'', ''call'', -1001'), ('''a'', ''call'', max_weight => 5'),
    ('NULL, ''call'', max_weight => 0'), ('NULL, ''call'', max_weight => -1'), ('NULL, ''call'', max_weight => 1000001')) v(call);
SELECT jobq.set_pressure_rule('a', 'call', 1), jobq.set_pressure_rule(NULL, 'call', 1);
SELECT jobq.drop_job_type('a');
SELECT type_id, signal FROM jobq.pressure_rules;
-- a signal that rules name is dropped by force only; that takes the rules along
SELECT jobq.create_job_type('b', 'test.ok(jsonb)'), jobq.create_job_type('c', 'test.ok(jsonb)');
SELECT jobq.set_pressure_rule('c', 'call', 1), jobq.set_pressure_rule('b', 'call', 1), jobq.set_pressure_rule('b', 'busy', 1);
SELECT test.error_of($$SELECT jobq.drop_signal('call')$$), test.error_of($$SELECT jobq.drop_signal('busy', force => false)$$);
SELECT signal, count(*) FROM jobq.pressure_rules GROUP BY signal ORDER BY signal;
SELECT jobq.drop_signal('call', force => true);
SELECT signal, count(*) FROM jobq.pressure_rules GROUP BY signal ORDER BY signal;
SELECT jobq.set_pressure_rule('b', 'busy');
SELECT jobq.drop_signal(name) FROM jobq.signals;
SELECT count(*) FROM jobq.pressure_rules;
SELECT jobq.drop_job_type('b'), jobq.drop_job_type('c');

-- required right: "admin" without a tenant, for all job types
CREATE ROLE jobq_test_user;
SET ROLE jobq_test_user;
\set VERBOSITY sqlstate
SELECT jobq.set_signal('call', true);
RESET ROLE;
SELECT jobq.grant_access('jobq_test_user', 'admin', tenant => 'acme');
SET ROLE jobq_test_user;
SELECT jobq.set_signal('call', true);
RESET ROLE;
SELECT jobq.grant_access('jobq_test_user', 'admin');
SET ROLE jobq_test_user;
SELECT jobq.set_signal('call', true);
SELECT jobq.create_signal('busy', 'current_user = ''jobq_test_user''', '1 day');
SELECT jobq.set_pressure_rule(NULL, 'call', 1), jobq.drop_signal('call', force => true);
RESET ROLE;
SELECT name, definer FROM jobq.signals;
SELECT jobq.drop_signal('busy'), jobq.revoke_access('jobq_test_user', 'admin');
DROP ROLE jobq_test_user;
SELECT test.clean();
