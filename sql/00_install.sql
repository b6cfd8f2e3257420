-- CREATE EXTENSION: the objects that it creates, and its errors
\set SHOW_CONTEXT never
SELECT 1 FROM pg_extension WHERE extname = 'jobq';
CREATE EXTENSION jobq;
SELECT extname, extversion, extrelocatable FROM pg_extension WHERE extname = 'jobq';
SELECT jobq.version() = extversion AS version FROM pg_extension WHERE extname = 'jobq';
SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'jobq'
   AND table_name !~ '^(history|events|alerts|artifacts)_' ORDER BY table_name COLLATE "C";
-- no partition is a member of the extension, or a dump would leave it out; the default ones are
SELECT i.inhrelid::regclass FROM pg_depend d JOIN pg_inherits i ON i.inhrelid = d.objid AND d.classid = 'pg_class'::regclass
 WHERE d.deptype = 'e' ORDER BY i.inhrelid::regclass::text COLLATE "C";
-- it can be dropped and created again
DROP EXTENSION jobq;
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'jobq';
SELECT count(*) FROM pg_namespace WHERE nspname IN ('jobq', 'jobq_internal');
CREATE EXTENSION jobq;
BEGIN;
DROP EXTENSION jobq;
ROLLBACK;
SELECT count(*) FROM jobq.job_types;
DROP EXTENSION jobq;
-- an existing schema jobq is never adopted
CREATE SCHEMA jobq;
CREATE EXTENSION jobq;
CREATE EXTENSION jobq SCHEMA jobq;
DROP SCHEMA jobq;
CREATE SCHEMA jobq_internal;
CREATE EXTENSION jobq;
CREATE EXTENSION jobq SCHEMA jobq_internal;
DROP SCHEMA jobq_internal;
-- the search_path of the installing role has no effect
CREATE SCHEMA evil;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'captured'; END $$;
CREATE TABLE evil.pg_extension (extname text, extversion text);
INSERT INTO evil.pg_extension VALUES ('jobq', 'captured');
SET search_path = evil, pg_catalog;
CREATE EXTENSION jobq;
SELECT jobq.version() <> 'captured' AS version;
SELECT pg_get_expr(d.adbin, d.adrelid) LIKE '%evil%' AS captured, count(*)
  FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid WHERE c.relname IN ('queue', 'job_types', 'events')
   AND c.relnamespace = 'jobq'::regnamespace GROUP BY 1;
RESET search_path;
DROP SCHEMA evil CASCADE;
-- health() reads about a thousand blocks, whatever the planner knows of a new database
CREATE FUNCTION blocks_of_health() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  plan json;
BEGIN
  PERFORM jobq.health(); -- fills the caches
  EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT jobq.health()' INTO plan;
  RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::int + (plan->0->'Plan'->>'Shared Read Blocks')::int;
END $$;
SELECT blocks_of_health() < 3000 AS cheap;
ANALYZE;
SELECT blocks_of_health() < 3000 AS cheap;
DROP FUNCTION blocks_of_health();
-- all tests run beside a publication of all tables
SET client_min_messages = error;
CREATE PUBLICATION everything FOR ALL TABLES;
RESET client_min_messages;
