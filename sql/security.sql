-- Rights, identity, search paths
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

SET client_min_messages = warning;
DROP ROLE IF EXISTS jobq_regress_owner, jobq_regress_member, jobq_regress_other, jobq_regress_worker, jobq_regress_nologin;
RESET client_min_messages;
CREATE ROLE jobq_regress_owner LOGIN;
CREATE ROLE jobq_regress_member LOGIN IN ROLE jobq_regress_owner;
CREATE ROLE jobq_regress_other LOGIN;
CREATE ROLE jobq_regress_worker LOGIN;
CREATE ROLE jobq_regress_nologin;
CREATE FUNCTION test.error_as(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  said text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  said := test.error_of(statement);
  RESET ROLE;
  RETURN said;
END $$;
CREATE FUNCTION test.ok(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;
CREATE FUNCTION test.also(payload jsonb) RETURNS jsonb LANGUAGE sql RETURN payload;

-- PUBLIC has no right but EXECUTE of version()
SELECT f.oid::regprocedure FROM pg_proc f WHERE f.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND has_function_privilege('jobq_regress_other', f.oid, 'EXECUTE');
SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'v')
   AND has_table_privilege('jobq_regress_other', c.oid, 'SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER');
SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'jobq'::regnamespace
   AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege('jobq_regress_other', c.oid, 'SELECT,USAGE,UPDATE') END;
SELECT has_schema_privilege('jobq_regress_other', s, 'CREATE') AS may_create FROM unnest('{jobq,jobq_internal}'::text[]) s;
\pset format unaligned
\pset tuples_only on
SELECT statement || ': ' || test.error_as('jobq_regress_other', statement)
  FROM (VALUES ('SELECT jobq.version()'), ('SELECT jobq.enqueue(''t'')'), ('SELECT jobq.cancel_job(NULL)'), ('SELECT * FROM jobq.jobs'),
    ('SELECT * FROM jobq.queue'), ('SELECT jobq.create_job_type(''x'', ''test.ok(jsonb)'')'), ('SELECT jobq_internal._create_job_type(10, ''x'', ''test.ok(jsonb)'', NULL, 1, ''fixed'', ''1s'', ''1s'', 0, ''1s'', 0, 0, 0, 0, ''1s'', ''1s'', NULL, false, NULL, ''{}'', ''error'')'),
    ('SELECT jobq_internal._adopt(10)'), ('SELECT jobq_internal._cancel(gen_random_uuid(), NULL)'), ('SELECT jobq_internal._maintain(NULL)')) v(statement);

-- definers: only as themselves and the roles they may become
GRANT EXECUTE ON FUNCTION jobq.create_job_type, jobq.alter_job_type, jobq.drop_job_type, jobq.pause_job_type, jobq.resume_job_type, jobq.enqueue
  TO jobq_regress_owner, jobq_regress_other;
SELECT test.error_as('jobq_regress_owner', $$SELECT jobq.create_job_type('mine', 'test.ok(jsonb)')$$);
SELECT owner, run_as FROM jobq.job_types WHERE name = 'mine';
SELECT call || ': ' || replace(test.error_as('jobq_regress_owner', format('SELECT jobq.create_job_type(%L, %s)', 'x', call)), current_user, '<superuser>')
  FROM (VALUES ('''test.ok(jsonb)'', run_as => ''jobq_regress_worker'''), ('''test.ok(jsonb)'', run_as => current_setting(''test.superuser'')::regrole'),
    ('command => ''{true}''')) v(call), set_config('test.superuser', quote_ident(current_user), false);
GRANT jobq_regress_worker TO jobq_regress_owner;
GRANT pg_execute_server_program TO jobq_regress_owner;
SELECT test.error_as('jobq_regress_owner', $$SELECT jobq.create_job_type('theirs', 'test.ok(jsonb)', run_as => 'jobq_regress_worker')$$);
SELECT test.error_as('jobq_regress_owner', $$SELECT jobq.create_job_type('tool', command => '{true}')$$);
REVOKE EXECUTE ON FUNCTION test.ok FROM PUBLIC;
SELECT test.error_as('jobq_regress_owner', $$SELECT jobq.create_job_type('x', 'test.ok(jsonb)')$$);
GRANT EXECUTE ON FUNCTION test.ok TO PUBLIC;
-- a role that cannot log in (before 17)
GRANT jobq_regress_nologin TO jobq_regress_owner;
SELECT CASE WHEN current_setting('server_version_num')::int < 170000 THEN said LIKE '22023: argument "run_as"%LOGIN%' ELSE said = 'no error' END
  FROM test.error_as('jobq_regress_owner', $$SELECT jobq.create_job_type('nologin', 'test.ok(jsonb)', run_as => 'jobq_regress_nologin')$$) said;
-- superusers, when the setting forbids them
SET jobq.allow_superuser_handlers = off;
SELECT test.error_of($$SELECT jobq.create_job_type('x', 'test.ok(jsonb)')$$) ~ '^42501: argument "run_as": .* is a superuser';
RESET jobq.allow_superuser_handlers;

-- a type belongs to its definer, members of that role, and superusers
SELECT call || ': ' || test.error_as('jobq_regress_other', 'SELECT jobq.' || call)
  FROM (VALUES ('alter_job_type(''mine'', max_attempts => 1)'), ('pause_job_type(''mine'')'), ('resume_job_type(''mine'')'), ('drop_job_type(''mine'')'),
    ('create_job_type(''mine'', ''test.ok(jsonb)'', on_conflict => ''replace'')')) v(call);
SELECT call || ': ' || test.error_as('jobq_regress_member', 'SELECT jobq.' || call)
  FROM (VALUES ('alter_job_type(''mine'', max_attempts => 1)'), ('pause_job_type(''mine'')'), ('resume_job_type(''mine'')')) v(call);
SELECT test.error_of($$SELECT jobq.alter_job_type('mine', max_attempts => 2)$$);
SELECT owner, run_as, max_attempts, paused FROM jobq.job_types WHERE name = 'mine';
-- changing the handler, command or role of a type requires membership in the role that runs it
REVOKE jobq_regress_worker FROM jobq_regress_owner;
REVOKE pg_execute_server_program FROM jobq_regress_owner;
SELECT call || ': ' || test.error_as('jobq_regress_owner', 'SELECT jobq.' || call)
  FROM (VALUES ('alter_job_type(''theirs'', max_attempts => 4)'), ('alter_job_type(''theirs'', ''test.also(jsonb)'')'),
    ('alter_job_type(''theirs'', options => ''{"batch": false}'')'), ('alter_job_type(''tool'', command => ''{false}'')'),
    ('alter_job_type(''tool'', options => ''{"output": "none"}'')'), ('alter_job_type(''tool'', max_attempts => 4)')) v(call);
-- ... also when the job runs
SELECT jobq.alter_job_type('tool', max_attempts => 1);
SELECT jobq.enqueue('tool') AS id \gset
SELECT status, error_code FROM test.ended(:'id');

-- create_job_type grants run_as the functions that a handler calls, no more
SELECT f.proname FROM pg_proc f WHERE f.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND has_function_privilege('jobq_regress_worker', f.oid, 'EXECUTE') ORDER BY 1;

-- a handler runs as its role, and cannot leave it
CREATE TABLE test.who (what text, cur text DEFAULT current_user, ses text DEFAULT session_user);
GRANT INSERT, SELECT ON test.who TO jobq_regress_worker;
CREATE FUNCTION test.spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO test.who (what) VALUES ('deferred trigger');
  RETURN NULL;
END $$;
CREATE TABLE test.trap (i int);
CREATE CONSTRAINT TRIGGER spy AFTER INSERT ON test.trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test.spy();
GRANT INSERT ON test.trap TO jobq_regress_worker;
CREATE FUNCTION test.held() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO test.who (what) VALUES ('held cursor');
  RETURN current_user;
END $$;
CREATE FUNCTION test.escapes(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  said text := '';
  how text;
BEGIN
  INSERT INTO test.who (what) VALUES ('handler');
  FOREACH how IN ARRAY ARRAY['RESET ROLE', 'RESET SESSION AUTHORIZATION', 'SET ROLE NONE', 'SET ROLE ' || (payload->>'superuser'),
                             'SET SESSION AUTHORIZATION ' || (payload->>'superuser'), 'SET ROLE jobq_regress_other'] LOOP
    BEGIN
      EXECUTE how;
    EXCEPTION WHEN OTHERS THEN
      said := said || ' ' || SQLSTATE;
    END;
    INSERT INTO test.who (what) VALUES ('after an escape');
  END LOOP;
  INSERT INTO test.trap VALUES (1);
  EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT test.held()';
  RETURN to_jsonb(said);
END $$;
SELECT jobq.create_job_type('escapes', 'test.escapes(jsonb)', run_as => 'jobq_regress_worker', max_attempts => 1);
SELECT jobq.enqueue('escapes', jsonb_build_object('superuser', quote_ident(current_user))) AS id \gset
SELECT status, error_msg, result FROM test.ended(:'id');
SELECT what, cur, ses, count(*) FROM test.who GROUP BY 1, 2, 3 ORDER BY 1;
-- it cannot touch the queue, nor its own job's row
CREATE FUNCTION test.touches(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  said text := '';
  how text;
BEGIN
  FOREACH how IN ARRAY ARRAY['DELETE FROM jobq.queue', 'SELECT * FROM jobq.jobs', 'LOCK TABLE jobq.queue IN ACCESS EXCLUSIVE MODE', 'SELECT jobq.enqueue(''touches'')',
                             'SELECT jobq_internal._current_job_id()', 'SELECT (jobq.current_job()).id'] LOOP
    BEGIN
      EXECUTE how;
      said := said || ' ok';
    EXCEPTION WHEN OTHERS THEN
      said := said || ' ' || SQLSTATE;
    END;
  END LOOP;
  RETURN to_jsonb(said);
END $$;
SELECT jobq.create_job_type('touches', 'test.touches(jsonb)', run_as => 'jobq_regress_worker', max_attempts => 1);
SELECT jobq.enqueue('touches') AS id \gset
SELECT status, error_msg, result FROM test.ended(:'id');
-- its rights are checked again when it runs
CREATE FUNCTION test.secret(payload jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('secret', 'test.secret(jsonb)', run_as => 'jobq_regress_worker', max_attempts => 1);
REVOKE EXECUTE ON FUNCTION test.secret FROM PUBLIC;
SELECT jobq.enqueue('secret') AS id \gset
SELECT status, error_code FROM test.ended(:'id');

-- no search_path affects jobq: functions, operators and types of an attacker that come first
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.captured() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured' USING ERRCODE = 'EV111'; END $$;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT evil.captured(); SELECT now()';
CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS 'SELECT evil.captured(); SELECT $1';
CREATE FUNCTION evil.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil.captured(); SELECT true';
CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT evil.captured(); SELECT $1';
CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT evil.captured(); SELECT 1::bigint';
CREATE FUNCTION evil.text_eq(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil.captured(); SELECT true';
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.text_eq);
CREATE FUNCTION evil.uuid_eq(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT evil.captured(); SELECT true';
CREATE OPERATOR evil.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = evil.uuid_eq);
CREATE FUNCTION evil.jsonb_contains(jsonb, jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT evil.captured(); SELECT true';
CREATE OPERATOR evil.@> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = evil.jsonb_contains);
CREATE FUNCTION evil.int_lt(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT evil.captured(); SELECT true';
CREATE OPERATOR evil.< (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.int_lt);
CREATE TABLE evil.pg_proc AS SELECT * FROM pg_catalog.pg_proc LIMIT 0;
CREATE TABLE evil.pg_roles AS SELECT * FROM pg_catalog.pg_roles LIMIT 0;
SET search_path = evil, pg_catalog, test;
SELECT 1 < 2;  -- the trap is set
SELECT jobq.create_job_type('evil', 'test.ok(jsonb)', options => '{"batch": true}');
SELECT jobq.alter_job_type('evil', max_attempts => 2, reset => '{timeout}');
SELECT jobq.pause_job_type('evil', 'why', '1 hour');
SELECT jobq.enqueue('evil', '{"n": 1}') AS id \gset
SELECT count(*) FROM jobq.enqueue_many('evil', '{"{}"}');
SELECT count(*) FROM jobq.enqueue_jobs('[{"job_type": "evil", "unique_key": "k"}]');
SELECT jobq.alter_job(:'id', priority => 1), jobq.cancel_job(:'id');
SELECT jobq.retry_job(:'id');
SELECT jobq.cancel_jobs('evil', payload_contains => '{}');
SELECT jobq.rerun_job(:'id') IS NOT NULL;
SELECT status OPERATOR(pg_catalog.=) 'cancelled' FROM jobq.list_jobs('cancelled', 'evil', '', payload_contains => '{"n": 1}', error_like => NULL);
SELECT count(*) FROM jobq.count_by_status('evil', '');
SELECT count(*) FROM jobq.job_timeline(:'id');
SELECT count(*) OPERATOR(pg_catalog.>) 0 FROM jobq.distinct_job_types();
SELECT jobq.retry_dead_letters('evil', error_like => '%'), jobq.purge_dead_letters('evil', '1 s', error_like => '%');
SELECT jobq.version() IS NOT NULL, jobq.health() IS NOT NULL, (jobq.current_job()).id IS NULL, (jobq.wait_for(:'id', '0')).id IS NULL;
SELECT jobq.adopt(), jobq.reload();
SELECT jobq.resume_job_type('evil'), jobq.drop_job_type('evil', true);
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA evil CASCADE;

DO 'BEGIN PERFORM test.clean(), test.forget(); END';
DROP OWNED BY jobq_regress_owner, jobq_regress_member, jobq_regress_other, jobq_regress_worker, jobq_regress_nologin;
DROP ROLE jobq_regress_owner, jobq_regress_member, jobq_regress_other, jobq_regress_worker, jobq_regress_nologin;
-- no foreign key refers to a table of jobq: its rows go without a trigger
CREATE TABLE refers (job uuid REFERENCES jobq.queue (id));
CREATE TABLE refers (job uuid);
ALTER TABLE refers ADD FOREIGN KEY (job) REFERENCES jobq.dead_letters;
ALTER TABLE refers ADD COLUMN other uuid REFERENCES jobq.queue (id);
CREATE TABLE own (id uuid PRIMARY KEY, parent uuid REFERENCES own);
DROP TABLE refers, own;

-- no statement changes the columns of a table of jobq, or of a partition
ALTER TABLE jobq.queue ADD COLUMN note text;
ALTER TABLE jobq.queue SET (fillfactor = 80), DROP COLUMN metadata;
ALTER TABLE jobq.queue ALTER COLUMN priority TYPE int;
ALTER TABLE jobq.queue ALTER COLUMN priority SET DEFAULT 1;
ALTER TABLE jobq.job_types ALTER COLUMN handler SET NOT NULL;
ALTER TABLE jobq.job_types ALTER COLUMN name DROP NOT NULL;
ALTER TABLE jobq.runs RENAME COLUMN home_id TO home;
ALTER TABLE ONLY jobq.history ADD COLUMN note text;
CREATE TABLE far PARTITION OF jobq.history FOR VALUES FROM ('2999-01-01') TO ('2999-01-02');
ALTER TABLE far ALTER COLUMN id DROP NOT NULL;
DROP TABLE far;
DO $$ BEGIN EXECUTE 'ALTER TABLE jobq.events ADD COLUMN note text'; END $$;
BEGIN;
ALTER TABLE jobq.queue ALTER COLUMN payload SET STATISTICS 10, SET (fillfactor = 80);
CREATE TABLE queue (id uuid);
ALTER TABLE queue ADD COLUMN note text;
ALTER TABLE queue RENAME COLUMN note TO notes;
ROLLBACK;
