
-- New members belong to the owner of the tables, as in a fresh install,
-- whichever superuser runs the update.
DO $update$
DECLARE
  owner oid := (SELECT relowner FROM pg_class WHERE oid = 'jobq.queue'::regclass);
  member text;
BEGIN
  FOR member IN
    SELECT CASE WHEN p.oid IS NOT NULL THEN format('FUNCTION %s', p.oid::regprocedure)
                WHEN t.oid IS NOT NULL THEN format('TYPE %s', t.oid::regtype)
                WHEN n.oid IS NOT NULL THEN format('SCHEMA %s', n.oid::regnamespace)
                ELSE format('TABLE %s', c.oid::regclass) END
      FROM pg_depend d
      JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'jobq'
      LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
      LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid AND t.typrelid = 0
            AND NOT EXISTS (SELECT FROM pg_type element WHERE element.typarray = t.oid)
      LEFT JOIN pg_namespace n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid
      LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('r', 'p', 'v', 'S')
     WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
       AND owner <> coalesce(p.proowner, t.typowner, n.nspowner, c.relowner)
  LOOP
    EXECUTE format('ALTER %s OWNER TO %I', member, pg_get_userbyid(owner));
  END LOOP;
END $update$;

