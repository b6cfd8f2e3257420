
-- Revokes all rights on new members: those of PUBLIC, which functions have by
-- default, and those that default privileges added.  A new schema gives PUBLIC
-- its USAGE, as the install script does.  A member is new when no rights were
-- recorded for it yet.
DO $update$
DECLARE
  member record;
BEGIN
  FOR member IN
    SELECT CASE WHEN p.oid IS NOT NULL THEN format('FUNCTION %s', p.oid::regprocedure)
                WHEN n.oid IS NOT NULL THEN format('SCHEMA %s', n.oid::regnamespace)
                WHEN c.relkind = 'S' THEN format('SEQUENCE %s', c.oid::regclass)
                ELSE format('TABLE %s', c.oid::regclass) END AS name,
           coalesce(p.proacl, n.nspacl, c.relacl) AS acl, coalesce(p.proowner, n.nspowner, c.relowner) AS owner
      FROM pg_depend d
      JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'jobq'
      LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
      LEFT JOIN pg_namespace n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid
      LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('r', 'p', 'v', 'S')
     WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND coalesce(p.oid, n.oid, c.oid) IS NOT NULL
       AND NOT EXISTS (SELECT FROM pg_init_privs i WHERE (i.classoid, i.objoid, i.objsubid) = (d.classid, d.objid, 0))
  LOOP
    EXECUTE format('REVOKE ALL ON %s FROM %s', member.name,
                   (SELECT string_agg(g.name, ', ')
                      FROM (SELECT 'PUBLIC' UNION
                            SELECT quote_ident(pg_get_userbyid(a.grantee)) FROM aclexplode(member.acl) a
                             WHERE a.grantee NOT IN (0, member.owner)) g(name)));
    IF starts_with(member.name, 'SCHEMA ') THEN
      EXECUTE format('GRANT USAGE ON %s TO PUBLIC', member.name);
    END IF;
  END LOOP;
END $update$;

-- Warns of grants on functions that no other one replaces.  The messages of a
-- script below WARNING are not shown.
DO $update$
DECLARE
  gone record;
BEGIN
  FOR gone IN
    SELECT g.function, string_agg(DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END, ', ') AS grantees
      FROM jobq._update_grants g
     WHERE NOT starts_with(g.function, '_')
       AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.proname = g.function AND p.pronamespace = 'jobq'::regnamespace)
     GROUP BY g.function ORDER BY g.function
  LOOP
    RAISE WARNING 'function jobq.% is gone, and with it the grant to %', gone.function, gone.grantees;
  END LOOP;
END $update$;

-- Grants rights on functions that replace dropped ones, and on new functions.  The
-- grants are no part of the extension: dumps must carry them.
DO $update$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    -- the grantees of dropped functions
    SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s %s', p.oid::regprocedure,
                  CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
                  CASE WHEN g.grant_option THEN 'WITH GRANT OPTION' END)
      FROM jobq._update_grants g JOIN pg_proc p ON p.proname = g.function
       AND p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace)
  LOOP
    PERFORM jobq_internal._outside_extension(statement);
  END LOOP;
  PERFORM jobq_internal._outside_extension('SELECT jobq_internal._grant_again()');
END $update$;

-- Refuse the update of tables that are not as a fresh install makes them: a
-- column was added or dropped.
CREATE FUNCTION jobq_internal._update_check() RETURNS void
  LANGUAGE c AS 'MODULE_PATHNAME', 'jobq_update_check';
SELECT jobq_internal._update_check();

DROP FUNCTION jobq_internal._update_check();
DROP FUNCTION jobq_internal._update_drop(regprocedure[]);
DROP TABLE jobq._update_grants;

-- Fires the statement trigger: the dispatcher reads the registry again, and
-- the extension's version with it.
UPDATE jobq.job_types SET paused = paused WHERE false;
