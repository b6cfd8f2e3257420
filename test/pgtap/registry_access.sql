-- The configuration as seen with access "read" and "admin", and an operator's
-- changes to types of other owners.
BEGIN;
SET LOCAL client_min_messages = error;
SELECT * FROM no_plan();
CREATE SCHEMA registry_access;
CREATE FUNCTION registry_access.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE ROLE jobq_pgtap_reader;
CREATE ROLE jobq_pgtap_acme;
CREATE ROLE jobq_pgtap_app;
CREATE ROLE jobq_pgtap_chief LOGIN;
CREATE ROLE jobq_pgtap_other LOGIN;
CREATE ROLE jobq_pgtap_acme_admin LOGIN;
CREATE ROLE jobq_pgtap_acme_mail;
CREATE ROLE jobq_pgtap_mail_admin;
CREATE ROLE jobq_pgtap_stranger;
GRANT USAGE ON SCHEMA registry_access TO PUBLIC;

SELECT jobq.create_job_type('ra mail', 'registry_access.ok(jsonb)'), jobq.create_job_type('ra report', 'registry_access.ok(jsonb)'),
       jobq.create_job_type('ra tool', command => '{true,--shown}', options => '{"output": "none", "env": {"TOKEN": "s3cret", "MODE": "s3cret2"}}'),
       jobq.create_job_type('ra plain tool', command => '{true}');
SELECT jobq.grant_access('jobq_pgtap_reader', 'read'), jobq.grant_access('jobq_pgtap_acme', 'read', 'acme', '{ra tool}'),
       jobq.grant_access('jobq_pgtap_app', 'enqueue'), jobq.grant_access('jobq_pgtap_chief', 'admin'),
       jobq.grant_access('jobq_pgtap_acme_admin', 'admin', 'acme'), jobq.grant_access('jobq_pgtap_mail_admin', 'admin', job_types => '{ra mail}');
SELECT jobq.set_limit('ra limit', 3), jobq.set_signal('ra signal', true), jobq.set_pressure_rule('ra mail', 'ra signal', -5),
       jobq.stop_all('ra reason'), jobq.set_tenant_quota('acme', 10), jobq.set_tenant_quota('acme/eu', 5), jobq.set_tenant_quota('beta', 7);

-- Returns the value of a statement run as a role, or its SQLSTATE.  Undoes its writes.
CREATE FUNCTION registry_access.as(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  said text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE statement INTO said;
  RAISE SQLSTATE 'ZZZZZ' USING MESSAGE = coalesce(said, 'NULL');
EXCEPTION WHEN SQLSTATE 'ZZZZZ' THEN
  RETURN SQLERRM;
WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;

-- ---------- the configuration ----------

SELECT is(registry_access.as('jobq_pgtap_' || role, query), CASE WHEN role IN ('app', 'stranger') THEN '42501' ELSE value END, format('%s as %s', query, role))
  FROM unnest('{reader,acme,chief,acme_admin,mail_admin,app,stranger}'::text[]) role,
       (VALUES ($$SELECT max_concurrent FROM jobq.limits WHERE name = 'ra limit'$$, '3'), ('SELECT reason FROM jobq.stopped', 'ra reason'),
               ($$SELECT active FROM jobq.signals WHERE name = 'ra signal'$$, 'true'),
               ($$SELECT priority_adj FROM jobq.pressure_rules WHERE signal = 'ra signal'$$, '-5')) v(query, value);
SELECT is(registry_access.as('jobq_pgtap_' || role, $$SELECT string_agg(tenant, ' ' ORDER BY tenant) FROM jobq.tenant_quotas WHERE tenant ~ '^(acme|beta)'$$), seen,
          'quotas that ' || role || ' sees')
  FROM (VALUES ('reader', 'acme acme/eu beta'), ('chief', 'acme acme/eu beta'), ('acme', 'acme acme/eu'), ('acme_admin', 'acme acme/eu'),
               ('mail_admin', 'acme acme/eu beta'), ('app', '42501'), ('stranger', '42501')) v(role, seen);
SELECT is(registry_access.as('jobq_pgtap_acme', 'SELECT problem FROM jobq.signals LIMIT 1'), '42501',
          'an error of a condition may hold rows of other tenants');
SELECT is(registry_access.as('jobq_pgtap_reader', 'SELECT count(problem) FROM jobq.signals'), '0', 'a role with access "read" to all tenants sees it');

-- ---------- job types, without env ----------

SELECT is(registry_access.as('jobq_pgtap_' || role, $$SELECT options || to_jsonb(command[2]) FROM jobq.job_types WHERE name = 'ra tool'$$),
          '[{"output": "none"}, "--shown"]', 'options and command as ' || role) FROM unnest('{reader,acme,chief,acme_admin}'::text[]) role;
SELECT is(registry_access.as('jobq_pgtap_' || role, $$SELECT string_agg(t::text, ' ') ~ 's3cret|TOKEN' FROM jobq.job_types t WHERE name ~ '^ra'$$),
          'false', 'no row has the environment for ' || role) FROM unnest('{reader,acme,chief,acme_admin,mail_admin}'::text[]) role;
SELECT is(registry_access.as('jobq_pgtap_' || role, 'SELECT * FROM jobq.job_types LIMIT 1'), '42501', 'none at all for ' || role) FROM unnest('{app,stranger}'::text[]) role;
SELECT is(registry_access.as('jobq_pgtap_acme', 'SELECT string_agg(name, $$ $$) FROM jobq.job_types'), 'ra tool', 'a grant of types shows these types');
SELECT is(registry_access.as('jobq_pgtap_' || role, 'SELECT count(*) FROM jobq.job_type_env'), '42501', 'the environments are not for ' || role)
  FROM unnest('{reader,acme,chief,acme_admin,mail_admin,app,stranger}'::text[]) role;
SELECT is((SELECT env FROM jobq.job_type_env e JOIN jobq.job_types t ON t.id = e.type_id WHERE t.name = 'ra tool'), '{"TOKEN": "s3cret", "MODE": "s3cret2"}',
          'the owner of the tables reads them');
SELECT is_empty($$SELECT FROM jobq.job_types WHERE options ? 'env'$$, 'options hold none');
GRANT SELECT ON ALL TABLES IN SCHEMA jobq TO jobq_pgtap_stranger;
SELECT is(registry_access.as('jobq_pgtap_stranger', 'SELECT count(*) FROM jobq.job_type_env'), '0', 'GRANT ON ALL TABLES shows no row');
GRANT pg_read_all_data TO jobq_pgtap_reader;
SELECT is(registry_access.as('jobq_pgtap_reader', 'SELECT count(*) FROM jobq.job_type_env'), '0', 'nor does pg_read_all_data');
REVOKE pg_read_all_data FROM jobq_pgtap_reader;

-- alter merges it like any option, in either form
CREATE FUNCTION registry_access.env() RETURNS jsonb LANGUAGE sql AS $$
  SELECT (SELECT e.env FROM jobq.job_type_env e WHERE e.type_id = t.id) FROM jobq.job_types t WHERE t.name = 'ra tool' ORDER BY t.id DESC LIMIT 1 $$;
SELECT jobq.alter_job_type('ra tool', timeout => '1min', options => '{"max_log_lines": 5}');
SELECT is(registry_access.env(), '{"TOKEN": "s3cret", "MODE": "s3cret2"}', 'keys that are not given stay');
SELECT jobq.create_job_type('ra tool', options => '{"env": {"TOKEN": "new"}}', on_conflict => 'replace');
SELECT is(registry_access.env(), '{"TOKEN": "new"}', 'a new one takes its place');
SELECT jobq.alter_job_type('ra tool', options => '{"env": null}');
SELECT is(registry_access.env(), NULL, 'null removes it');
UPDATE jobq.job_types SET options = options || '{"env": {"TOKEN": "s3cret"}}' WHERE name = 'ra tool';
SELECT is(registry_access.env(), '{"TOKEN": "s3cret"}', 'an UPDATE by the owner moves it');
SELECT is((SELECT options FROM jobq.job_types WHERE name = 'ra tool'), '{"output": "none", "max_log_lines": 5}', 'out of options');
SELECT jobq.alter_job_type('ra tool', reset => '{options}');
SELECT is(registry_access.env(), NULL, 'reset removes it');
SELECT jobq.alter_job_type('ra tool', options => '{"env": {"TOKEN": "s3cret"}}');
SELECT throws_ok($$SELECT jobq.alter_job_type('ra tool', options => '{"env": {"TOKEN": {"value": "s3cret3"}}}')$$, '22023',
  'option "env" is not an object of environment variables and their values, which are texts', 'the error does not show a value');

-- ---------- an operator's changes to a type of another owner ----------

CREATE TEMP TABLE levers (argument text, value text);
INSERT INTO levers VALUES ('timeout', $$'9min'$$), ('base_priority', '3'), ('max_concurrent', '2'), ('cpu_weight', '4'), ('rate_limit', '9'),
  ('rate_window', $$'7s'$$);
CREATE TEMP TABLE option_levers (key text, value text);
INSERT INTO option_levers VALUES ('limits', '["ra limit"]'), ('burst', '5'), ('concurrency_per_key', '3'), ('max_skip', '7'),
  ('aging', '{"per": "1min", "max": 5}'), ('fair_by', '"tenant"'), ('fair_depth', '2'), ('max_depth', '9'), ('stall', '"5min"');
-- values of other kinds only the owner may set
CREATE TEMP TABLE owners (argument text, value text);
INSERT INTO owners VALUES ('handler', $$'registry_access.ok(jsonb)'$$), ('command', $$'{true}'$$), ('max_attempts', '2'), ('backoff', $$'fixed'$$),
  ('backoff_base', $$'1s'$$), ('backoff_max', $$'1min'$$), ('backoff_jitter', '0.2'), ('keep_completed', $$'1 day'$$), ('keep_dead', $$'1 day'$$),
  ('critical', 'true'), ('run_as', $$'jobq_pgtap_chief'$$);

SELECT bag_eq($$SELECT n FROM pg_proc p, unnest(p.proargnames[1:p.pronargs]) n WHERE p.proname = 'alter_job_type' AND p.pronamespace = 'jobq'::regnamespace$$,
  $$SELECT argument FROM levers UNION ALL SELECT argument FROM owners UNION ALL VALUES ('name'), ('options'), ('reset')$$, 'every argument is tried');
SELECT is(registry_access.as('jobq_pgtap_chief', format('SELECT jobq.alter_job_type(%L, %I => %s)', 'ra mail', argument, value)), '', argument || ' is a lever')
  FROM levers;
SELECT is(registry_access.as('jobq_pgtap_chief', format('SELECT jobq.alter_job_type(%L, %I => %s)', 'ra mail', argument, value)), '42501', argument || ' is the owner''s')
  FROM owners;
SELECT is(registry_access.as('jobq_pgtap_chief', format('SELECT jobq.create_job_type(%L, %I => %s, on_conflict => %L)', 'ra mail', argument, value, 'replace')), '42501',
          argument || ' is also by replace') FROM owners;
SELECT is(registry_access.as('jobq_pgtap_chief', format('SELECT jobq.alter_job_type(%L, reset => %L)', 'ra mail', ARRAY[argument])),
          CASE WHEN argument IN (SELECT argument FROM levers) THEN '' ELSE '42501' END, 'reset of ' || argument)
  FROM (SELECT argument FROM levers UNION ALL SELECT argument FROM owners UNION ALL VALUES ('options')) v(argument) WHERE argument NOT IN ('handler', 'command');
SELECT is(registry_access.as('jobq_pgtap_chief', format('SELECT jobq.alter_job_type(%L, options => %L)', CASE kind WHEN 'sql' THEN 'ra mail' ELSE 'ra tool' END,
                                                  format('{"%s": %s}', key, coalesce(v.value, 'null')))),
          CASE WHEN v.key IS NULL THEN '42501' ELSE '' END, 'option ' || key) FROM jobq.option_keys k LEFT JOIN option_levers v USING (key) WHERE kind <> 'pull';
SELECT is((SELECT count(*) FROM option_levers WHERE key IN (SELECT key FROM jobq.option_keys)), (SELECT count(*) FROM option_levers), 'these options exist');
SELECT is(registry_access.as('jobq_pgtap_chief', format('SELECT jobq.alter_job_type(%L, options => %L)', 'ra tool', options)), state, 'options ' || options)
  FROM (VALUES ('[]', '22023'), ('"env"', '22023'), ('{"nosuch": 1}', '22023'), ('{"burst": -1}', '22003'), ('{"burst": 1, "env": {}}', '42501'),
               ('{"limits": ["nosuch"]}', '42704'), ('{}', '')) v(options, state);

-- nothing else changes with them
CREATE TEMP TABLE former AS SELECT t.name, to_jsonb(t) - 'options' AS r, t.options, registry_access.env() FROM jobq.job_types t WHERE t.name ~ '^ra';
SET LOCAL ROLE jobq_pgtap_chief;
SELECT jobq.alter_job_type('ra tool', timeout => '9min', max_concurrent => 2, options => '{"burst": 5}');
SELECT jobq.create_job_type('ra mail', base_priority => 3, on_conflict => 'replace');
RESET ROLE;
SELECT results_eq($$SELECT t.name, (to_jsonb(t) - 'options')::text, t.options::text, registry_access.env()::text FROM jobq.job_types t WHERE t.name ~ '^ra' ORDER BY name$$,
  $$SELECT f.name, (CASE f.name WHEN 'ra tool' THEN f.r || '{"timeout": "00:09:00", "max_concurrent": 2}' WHEN 'ra mail' THEN f.r || '{"base_priority": 3}' ELSE f.r END)::text,
           (CASE f.name WHEN 'ra tool' THEN f.options || '{"burst": 5}' ELSE f.options END)::text, f.env::text FROM former f ORDER BY name$$,
  'the levers that were given, and nothing else');

-- alter_job_type by each role, of types with and without a grant
SELECT is(registry_access.as('jobq_pgtap_' || role, format('SELECT jobq.alter_job_type(%L, timeout => %L)', type, '1min')), state, format('%s alters %s', role, type))
  FROM (VALUES ('acme_admin', 'ra mail', '42501'), ('mail_admin', 'ra mail', ''), ('mail_admin', 'ra report', '42501'), ('reader', 'ra mail', '42501'),
               ('app', 'ra mail', '42501'), ('stranger', 'ra mail', '42501'), ('chief', 'nosuch', '42704'), ('mail_admin', 'nosuch', '42501')) v(role, type, state);
GRANT EXECUTE ON FUNCTION jobq.alter_job_type TO jobq_pgtap_stranger;
SELECT is(registry_access.as('jobq_pgtap_stranger', format('SELECT jobq.alter_job_type(%L, timeout => %L)', 'ra mail', '1min')), '42501',
          'a role that grant_access has not met alters its own types only');
SELECT is(registry_access.as('jobq_pgtap_chief', $$SELECT jobq.drop_job_type('ra mail')$$), '42501', 'dropping is the owner''s');

-- ---------- its own types ----------

GRANT jobq_pgtap_chief TO jobq_pgtap_other;
SET LOCAL ROLE jobq_pgtap_chief;
SELECT lives_ok($$SELECT jobq.create_job_type('ra own', 'registry_access.ok(jsonb)')$$, 'an admin makes a type');
SELECT lives_ok($$SELECT jobq.alter_job_type('ra own', max_attempts => 7, options => '{"events": "all"}')$$, 'alters all of it');
SELECT ok(jobq.enqueue('ra own', priority => 50) IS NOT NULL, 'and enqueues it');
SELECT is((SELECT count(*) FROM jobq.enqueue_many('ra own', '{"{}","{}"}', tenant => 'acme')), 2::bigint, 'for any tenant');
SELECT is((SELECT count(*) FROM jobq.enqueue_jobs('[{"job_type": "ra own"}]')), 1::bigint, 'by all functions');
RESET ROLE;
SET LOCAL ROLE jobq_pgtap_other;
SELECT jobq.enqueue('ra own') IS NOT NULL AS member_enqueues \gset
RESET ROLE;
SELECT ok(:'member_enqueues', 'so do its members');
SELECT jobq.create_job_type('ra runs', 'registry_access.ok(jsonb)', run_as => 'jobq_pgtap_chief');
SELECT is(registry_access.as('jobq_pgtap_' || role, format('SELECT jobq.enqueue(%L, tenant => %L) IS NOT NULL', type, 'acme')), said, format('%s enqueues %s', role, type))
  FROM (VALUES ('chief', 'ra own', 'true'), ('chief', 'ra runs', 'true'), ('chief', 'ra mail', '42501'), ('mail_admin', 'ra mail', 'true'),
               ('mail_admin', 'ra report', '42501'), ('mail_admin', 'ra own', '42501'), ('acme_admin', 'ra mail', '42501'), ('reader', 'ra own', '42501'),
               ('app', 'ra own', 'true')) v(role, type, said);
-- an administrator of one tenant: the types that its grant names, or that it owns, for that tenant
SELECT jobq.grant_access('jobq_pgtap_acme_mail', 'admin', 'acme', '{ra mail}');
SELECT jobq.create_job_type('ra theirs', 'registry_access.ok(jsonb)', run_as => 'jobq_pgtap_acme_admin');
SELECT is(registry_access.as('jobq_pgtap_' || role, format('SELECT jobq.enqueue(%L, tenant => %L) IS NOT NULL', type, tenant)), said,
          format('%s enqueues %s for %s', role, type, tenant))
  FROM (VALUES ('acme_mail', 'ra mail', 'acme', 'true'), ('acme_mail', 'ra mail', 'acme/eu', 'true'), ('acme_mail', 'ra mail', 'beta', '42501'),
               ('acme_mail', 'ra mail', NULL, '42501'), ('acme_mail', 'ra report', 'acme', '42501'), ('acme_admin', 'ra theirs', 'acme', 'true'),
               ('acme_admin', 'ra theirs', 'beta', '42501'), ('acme_admin', 'ra theirs', NULL, '42501'), ('acme_mail', 'ra theirs', 'acme', '42501'))
       v(role, type, tenant, said);
SELECT is(registry_access.as('jobq_pgtap_mail_admin', $$SELECT jobq.enqueue('ra mail', max_attempts => 9)$$), '42501', 'the ceilings of a type of others hold');

-- ---------- removal ----------

SELECT jobq.revoke_access('jobq_pgtap_reader', 'read'), jobq.revoke_access('jobq_pgtap_chief', 'admin');
SELECT is(registry_access.as('jobq_pgtap_' || role, 'SELECT count(*) FROM jobq.' || relation), '42501', format('revoked: %s of %s', relation, role))
  FROM unnest('{reader,chief}'::text[]) role, unnest('{job_types,signals,pressure_rules,limits,stopped,tenant_quotas}'::text[]) relation;
SELECT is(registry_access.as('jobq_pgtap_chief', $$SELECT jobq.enqueue('ra own')$$), '42501', 'revoked: enqueue');
SELECT jobq.drop_job_type('ra tool');
SELECT is_empty($$SELECT FROM jobq.job_type_env e JOIN jobq.job_types t ON t.id = e.type_id WHERE t.name = 'ra tool'$$, 'a type that is dropped leaves no environment');
SELECT * FROM finish();
ROLLBACK;
