-- run_inline: deferred triggers of the caller and of the handler, inside and
-- outside of a query that modifies
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir /test/lib/regress.sql
\set ECHO none
\i :helpers
\set ECHO all

SET client_min_messages = warning;
DROP ROLE IF EXISTS jobq_regress_handler;
RESET client_min_messages;
CREATE ROLE jobq_regress_handler LOGIN;
CREATE TABLE test.parents (id int PRIMARY KEY);
CREATE TABLE test.children (parent int CONSTRAINT late REFERENCES test.parents DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE test.children REPLICA IDENTITY FULL;
CREATE TABLE test.wards (parent int CONSTRAINT prompt REFERENCES test.parents DEFERRABLE INITIALLY IMMEDIATE);
ALTER TABLE test.wards REPLICA IDENTITY FULL;
CREATE TABLE test.log (n serial, what text, me boolean DEFAULT current_user = session_user);
CREATE TABLE test.watched (what text);
CREATE FUNCTION test.watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO test.log (what) VALUES (NEW.what);
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch AFTER INSERT ON test.watched DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION test.watch();
GRANT ALL ON ALL TABLES IN SCHEMA test TO jobq_regress_handler;
GRANT ALL ON ALL SEQUENCES IN SCHEMA test TO jobq_regress_handler;
-- executes the statements of the payload
CREATE FUNCTION test.does(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN SELECT * FROM jsonb_array_elements_text(payload) LOOP
    EXECUTE statement;
  END LOOP;
END $$;
SELECT jobq.create_job_type('does', 'test.does(jsonb)', run_as => 'jobq_regress_handler', max_attempts => 1);
CREATE FUNCTION test.job(VARIADIC statements text[]) RETURNS uuid LANGUAGE sql AS
  $$SELECT jobq.enqueue('does', to_jsonb(statements), delay => '1 hour')$$;
CREATE VIEW test.story AS SELECT string_agg(what || CASE WHEN me THEN '' ELSE ' as the handler' END, ', ' ORDER BY n) FROM test.log;

-- inside of a query that modifies
BEGIN;
SELECT test.job('INSERT INTO test.watched VALUES (''handler'')') AS id \gset
WITH x AS (INSERT INTO test.parents VALUES (1) RETURNING id) SELECT x.id, j.status FROM x, jobq.run_inline(:'id') j;
TABLE test.story;
SELECT test.job('INSERT INTO test.watched VALUES (''in values'')') AS id \gset
INSERT INTO test.log (what) SELECT status FROM jobq.run_inline(:'id');
CREATE FUNCTION test.runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO test.log (what) SELECT concat_ws(' ', TG_WHEN, status, error_code) FROM jobq.run_inline(NEW.id);
  RETURN NEW;
END $$;
CREATE TABLE test.asked (id uuid, CONSTRAINT twice UNIQUE (id) DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE test.asked REPLICA IDENTITY FULL;
CREATE TRIGGER runs AFTER INSERT ON test.asked FOR EACH ROW EXECUTE FUNCTION test.runs();
INSERT INTO test.asked SELECT test.job(format('INSERT INTO test.watched VALUES (%L)', n)) FROM generate_series(1, 3) n;
CREATE TRIGGER runs_first BEFORE UPDATE ON test.asked FOR EACH ROW EXECUTE FUNCTION test.runs();
UPDATE test.asked SET id = test.job('INSERT INTO test.children VALUES (7)');
-- as a deferred trigger, too
CREATE CONSTRAINT TRIGGER runs_late AFTER DELETE ON test.asked DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test.watch();
CREATE TABLE test.late (id uuid);
CREATE CONSTRAINT TRIGGER runs AFTER INSERT ON test.late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test.runs();
INSERT INTO test.late SELECT test.job('INSERT INTO test.watched VALUES (''deep'')') FROM generate_series(1, 2);
SET CONSTRAINTS test.runs IMMEDIATE;
TABLE test.story;
ROLLBACK;

-- the caller's triggers fire once, before the handler and as the caller;
-- later changes are deferred again
BEGIN;
INSERT INTO test.watched VALUES ('caller');
SELECT test.job('INSERT INTO test.log (what) VALUES (''handler'')', 'INSERT INTO test.watched VALUES (''deferred'')') AS id \gset
WITH x AS (INSERT INTO test.parents VALUES (1) RETURNING id) SELECT x.id, j.status FROM x, jobq.run_inline(:'id') j;
INSERT INTO test.watched VALUES ('caller again');
INSERT INTO test.log (what) VALUES ('end');
SET CONSTRAINTS ALL IMMEDIATE;
TABLE test.story;
ROLLBACK;
BEGIN;
INSERT INTO test.children VALUES (2);
SELECT test.job('SELECT 1') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
ROLLBACK;

-- ... and once more after the rollback of a subtransaction in which they have fired
BEGIN;
INSERT INTO test.children VALUES (3);
SAVEPOINT s;
INSERT INTO test.parents VALUES (3);
SELECT test.job('INSERT INTO test.watched SELECT n FROM generate_series(1, 3) n') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM test.children;

-- SET CONSTRAINTS of a handler ends with it
BEGIN;
SELECT test.job('SET CONSTRAINTS ALL IMMEDIATE') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
INSERT INTO test.children VALUES (4);
DELETE FROM test.children;
SELECT test.job('SET CONSTRAINTS ALL DEFERRED', 'INSERT INTO test.wards VALUES (4)', 'DELETE FROM test.wards', 'SET CONSTRAINTS test.late IMMEDIATE') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SAVEPOINT s;
INSERT INTO test.wards VALUES (4);
ROLLBACK TO s;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO test.children VALUES (4);
INSERT INTO test.parents VALUES (4);
SELECT test.job('SET CONSTRAINTS ALL IMMEDIATE', 'SELECT 1/0') AS id \gset
SELECT status, error_code FROM jobq.run_inline(:'id');
INSERT INTO test.wards VALUES (5);
DELETE FROM test.wards;
SELECT test.job('SET CONSTRAINTS ALL IMMEDIATE') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
INSERT INTO test.wards VALUES (5);
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;

-- constraints deferred within a handler's deferred triggers are checked in its attempt
CREATE FUNCTION test.defers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SET CONSTRAINTS ALL DEFERRED;
  INSERT INTO test.children VALUES (6);
  INSERT INTO test.wards VALUES (6);
  INSERT INTO test.parents SELECT 6 WHERE NEW.what = 'found';
  RETURN NULL;
END $$;
CREATE TABLE test.again (what text);
CREATE CONSTRAINT TRIGGER again AFTER INSERT ON test.again DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION test.defers();
GRANT ALL ON test.again TO jobq_regress_handler;
BEGIN;
SELECT test.job('INSERT INTO test.again VALUES (''missing'')') AS id \gset
SELECT status, error_code FROM jobq.run_inline(:'id');
SELECT test.job('INSERT INTO test.again VALUES (''found'')') AS id \gset
SELECT status, error_code FROM jobq.run_inline(:'id');
ROLLBACK;

-- the caller's triggers cannot fire when the deferred ones are unknown
BEGIN;
SET CONSTRAINTS test.prompt DEFERRED;
SELECT test.job('SELECT 1') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
SELECT test.job('SELECT 1') AS id \gset
INSERT INTO test.watched VALUES ('caller');
SAVEPOINT s;
SELECT jobq.run_inline(:'id');
ROLLBACK TO s;
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO test.watched VALUES ('caller again');
SELECT status FROM jobq.run_inline(:'id');
TABLE test.story;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK TO s;
SELECT test.job('SELECT 1') AS id \gset
INSERT INTO test.watched VALUES ('caller');
SELECT test.error_of(format('SELECT jobq.run_inline(%L)', :'id'));
ROLLBACK;
-- nor where SET CONSTRAINTS would take a constraint of the same name that is not deferred
BEGIN;
CREATE TABLE test.others (parent int CONSTRAINT late REFERENCES test.parents DEFERRABLE INITIALLY IMMEDIATE);
SELECT test.job('SELECT 1') AS id \gset
SAVEPOINT s;
SELECT status FROM jobq.run_inline(:'id');
ROLLBACK TO s;
INSERT INTO test.children VALUES (8);
INSERT INTO test.parents VALUES (8);
SELECT jobq.run_inline(:'id');
ROLLBACK TO s;
DROP TABLE test.others;
CREATE TABLE test.others (parent int CONSTRAINT late CHECK (parent > 0));
INSERT INTO test.children VALUES (8);
INSERT INTO test.parents VALUES (8);
SELECT jobq.run_inline(:'id');
ROLLBACK;
-- a caller's trigger may change the job, end it or run it
BEGIN;
CREATE FUNCTION test.meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE NEW.what;
  RETURN NULL;
END $$;
CREATE TABLE test.orders (what text);
CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON test.orders DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION test.meddle();
SELECT test.job('SELECT 1') AS id \gset
SAVEPOINT s;
INSERT INTO test.orders SELECT format($$SELECT jobq.alter_job(%L, payload => '["SELECT 2"]')$$, :'id');
SELECT status, payload FROM jobq.run_inline(:'id');
ROLLBACK TO s;
INSERT INTO test.orders SELECT format('SELECT jobq.cancel_job(%L)', :'id');
SELECT test.error_of(format('SELECT jobq.run_inline(%L)', :'id'));
ROLLBACK TO s;
INSERT INTO test.orders SELECT format('SELECT jobq.run_inline(%L)', :'id');
SELECT test.error_of(format('SELECT jobq.run_inline(%L)', :'id'));
ROLLBACK;
-- no effect on another transaction
BEGIN;
INSERT INTO test.watched VALUES ('caller');
SELECT test.job('SELECT 1') AS id \gset
SELECT status FROM jobq.run_inline(:'id');
ROLLBACK;
DO 'BEGIN PERFORM test.clean(), test.forget(); END';
DROP OWNED BY jobq_regress_handler;
DROP ROLE jobq_regress_handler;
