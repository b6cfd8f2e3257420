SET LOCAL search_path = pg_catalog, pg_temp;
\echo Use "ALTER EXTENSION jobq UPDATE" to load this file. \quit

-- From @OLD@ to @NEW@.  Built by make from src/sql: see
-- src/sql/upgrade/README.md.

-- Create the schema of internal functions, which 0.1.0 lacks.  A schema of a
-- user with this name is an error.
DO $update$
DECLARE
  internal oid := to_regnamespace('jobq_internal');
BEGIN
  IF internal IS NULL THEN
    CREATE SCHEMA jobq_internal;
  ELSIF NOT EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'jobq'
                     WHERE (d.classid, d.objid) = ('pg_namespace'::regclass, internal)
                       AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e') THEN
    RAISE EXCEPTION USING ERRCODE = '42P06',
      MESSAGE = 'schema "jobq_internal" exists already and does not belong to extension "jobq"',
      HINT = 'Rename it (ALTER SCHEMA jobq_internal RENAME TO ...) or drop it, then ALTER EXTENSION jobq UPDATE.';
  END IF;
END $update$;

-- Refuse a library that is older than these tables: it would read columns that
-- it does not know.
DO $update$
BEGIN
  CREATE OR REPLACE FUNCTION jobq_internal._library_version() RETURNS text
    LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_library_version';
  IF string_to_array(jobq_internal._library_version(), '.')::int[] >= string_to_array('@NEW@', '.')::int[] THEN
    RETURN;
  END IF;
  RAISE undefined_function;
EXCEPTION WHEN undefined_function THEN
  RAISE EXCEPTION USING ERRCODE = '55000',
    MESSAGE = 'the library that is loaded is older than jobq @NEW@',
    HINT = 'Install jobq @NEW@, restart the server, connect again, then ALTER EXTENSION jobq UPDATE.';
END $update$;

-- Refuse one snapshot for the whole update: it would miss the jobs that commit
-- between the attempts to lock, and leave them unconverted.
DO $update$
DECLARE
  level text := current_setting('transaction_isolation');
BEGIN
  IF level IN ('repeatable read', 'serializable') THEN
    RAISE EXCEPTION USING ERRCODE = '25001',
      MESSAGE = format('jobq cannot be updated at isolation level %s', level),
      HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED; ALTER EXTENSION jobq UPDATE; COMMIT;';
  END IF;
END $update$;

-- Lock all tables and views, or none.  Sessions lock them in many orders, so a
-- session that waits for one while it holds others may deadlock: after a short
-- wait all locks are released.  Every tenth wait is longer, so that the server
-- cancels a blocking autovacuum. lock_timeout bounds the whole.
DO $update$
DECLARE
  tables text := (SELECT string_agg(c.oid::regclass::text, ', ' ORDER BY c.relkind DESC, c.relname <> 'queue', c.oid)
                    FROM pg_depend d
                    JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'jobq'
                    JOIN pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p', 'v')
                   WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.classid = 'pg_class'::regclass);
  patience text := current_setting('lock_timeout');
  until timestamptz := clock_timestamp() + patience::interval;
  long_ms int := 1500 * extract(epoch FROM current_setting('deadlock_timeout')::interval);
  tries int := 0;
BEGIN
  LOOP
    tries := tries + 1;
    BEGIN
      PERFORM set_config('lock_timeout', CASE WHEN tries % 10 = 0 THEN long_ms ELSE 200 END::text, true);
      EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', tables);
      PERFORM set_config('lock_timeout', patience, true);
      EXIT;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      IF patience <> '0' AND clock_timestamp() >= until THEN
        RAISE;
      END IF;
      PERFORM pg_sleep(0.05);
    END;
  END LOOP;
END $update$;

CREATE OR REPLACE FUNCTION jobq_internal._outside_extension(statement text) RETURNS void
  LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'jobq_outside_extension';

-- Grantees of dropped functions; 99_foot.sql gives them the functions of that
-- name.
CREATE TABLE jobq._update_grants (function name NOT NULL, grantee oid NOT NULL, grant_option boolean NOT NULL);

-- Drops functions that get other arguments or another result, or are removed,
-- and stores their grantees.  A grant in pg_init_privs came from default
-- privileges: the new function does not get it.  An error lists the objects of
-- users that depend on any of them.
CREATE FUNCTION jobq_internal._update_drop(VARIADIC signatures regprocedure[]) RETURNS void
  LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  users text;
  f regprocedure;
BEGIN
  SELECT string_agg(DISTINCT format('%s depends on function %s',
           CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, d.objsubid)
                ELSE pg_describe_object('pg_class'::regclass, r.ev_class, 0) END, d.refobjid::regprocedure), E'\n')
    INTO users
    FROM pg_depend d
    LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid AND r.rulename = '_RETURN'
   WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = ANY (signatures::oid[]) AND d.deptype IN ('n', 'a')
     AND NOT EXISTS (SELECT FROM pg_depend m JOIN pg_extension e ON e.oid = m.refobjid AND e.extname = 'jobq'
                      WHERE m.deptype = 'e' AND m.refclassid = 'pg_extension'::regclass
                        AND (m.classid, m.objid) IN ((d.classid, d.objid), ('pg_class'::regclass, r.ev_class)));
  IF users IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '2BP01',
      MESSAGE = 'functions of jobq that change are in use by other objects', DETAIL = users,
      HINT = 'Drop these objects, ALTER EXTENSION jobq UPDATE, and create them again.';
  END IF;
  FOREACH f IN ARRAY signatures LOOP
    INSERT INTO jobq._update_grants
    SELECT p.proname, a.grantee, a.is_grantable FROM pg_proc p, aclexplode(p.proacl) a
     WHERE p.oid = f AND a.grantee <> p.proowner
       AND NOT EXISTS (SELECT FROM pg_init_privs i, aclexplode(i.initprivs) b
                        WHERE (i.classoid, i.objoid, i.objsubid) = ('pg_proc'::regclass, f, 0)
                          AND (b.grantee, b.privilege_type) = (a.grantee, a.privilege_type));
    EXECUTE format('DROP FUNCTION %s', f);
  END LOOP;
END $$;

