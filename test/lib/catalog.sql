-- All catalog entries of jobq in this database, a line per object, for comparisons: variable
-- catalog is a JSON array of text, in order.  Roles are printed by name, so the same role must have
-- created both sides.
SET search_path = pg_catalog;
SET intervalstyle = postgres;
WITH ns AS (
  SELECT oid FROM pg_namespace WHERE nspname IN ('jobq', 'jobq_internal')
), rels AS (  -- partitions come and go
  SELECT c.* FROM pg_class c, ns WHERE c.relnamespace = ns.oid AND NOT c.relispartition
     AND NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid WHERE x.indexrelid = c.oid)
     AND NOT EXISTS (SELECT FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid WHERE x.indexrelid = c.oid AND t.relispartition)
), objects (line) AS (
  SELECT format('extension %s version %s schema %s relocatable %s', extname, extversion, extnamespace::regnamespace, extrelocatable)
    FROM pg_extension WHERE extname = 'jobq'
   UNION ALL
  SELECT format('extension dumps %s where "%s"', c.oid::regclass, e.extcondition[c.i])
    FROM pg_extension e, unnest(e.extconfig) WITH ORDINALITY c(oid, i) WHERE e.extname = 'jobq'
   UNION ALL
  SELECT format('member %s', pg_describe_object(classid, objid, objsubid))
    FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
     AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'jobq')
   UNION ALL
  SELECT format('initial rights of %s: %s', pg_describe_object(classoid, objoid, objsubid), acl.list)
    FROM pg_init_privs i, LATERAL (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(i.initprivs) a) acl(list)
   WHERE (classoid, objoid) IN (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'
     AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'jobq'))
   UNION ALL
  SELECT format('schema %s owner %s rights %s comment %s', nspname, nspowner::regrole, (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(nspacl) x), obj_description(oid, 'pg_namespace'))
    FROM pg_namespace WHERE nspname IN ('jobq', 'jobq_internal')
   UNION ALL
  SELECT format('relation %s kind %s persistence %s owner %s options %s toast %s rls %s %s replica %s part %s rights %s comment %s',
                c.oid::regclass, c.relkind, c.relpersistence, c.relowner::regrole, c.reloptions,
                (SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid AND c.relkind = 'r'), c.relrowsecurity,
                c.relforcerowsecurity, c.relreplident, pg_get_partkeydef(c.oid), (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(c.relacl) x), obj_description(c.oid, 'pg_class'))
    FROM rels c
   UNION ALL
  SELECT format('column %s %s %s %s notnull %s collation %s storage %s statistics %s identity "%s" default %s rights %s comment %s',
                a.attrelid::regclass, a.attnum,
                a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attcollation::regcollation, a.attstorage,
                nullif(a.attstattarget, -1), a.attidentity::text || a.attgenerated::text,
                (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum),
                (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(a.attacl) x), col_description(a.attrelid, a.attnum))
    FROM pg_attribute a JOIN rels c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'v', 'm', 'c')
   WHERE a.attnum > 0 AND NOT a.attisdropped
   UNION ALL
  SELECT format('view %s as %s', oid::regclass, pg_get_viewdef(oid)) FROM rels WHERE relkind = 'v'
   UNION ALL
  SELECT format('sequence %s as %s start %s increment %s min %s max %s cache %s cycle %s owned %s', seqrelid::regclass,
                seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
                (SELECT pg_describe_object(refclassid, refobjid, refobjsubid) FROM pg_depend
                  WHERE classid = 'pg_class'::regclass AND objid = seqrelid AND deptype = 'a'))
    FROM pg_sequence JOIN rels ON rels.oid = seqrelid
   UNION ALL
  SELECT format('index %s valid %s cluster %s options %s comment %s', pg_get_indexdef(indexrelid), indisvalid, indisclustered,
                c.reloptions, obj_description(indexrelid, 'pg_class'))
    FROM pg_index JOIN rels c ON c.oid = indexrelid
   UNION ALL
  SELECT format('constraint %s on %s %s %s valid %s', k.conname, k.conrelid::regclass, k.contypid::regtype,
                pg_get_constraintdef(k.oid), k.convalidated)
    FROM pg_constraint k, ns
   WHERE k.connamespace = ns.oid AND (k.contypid <> 0 OR k.conrelid IN (SELECT oid FROM rels))
   UNION ALL
  SELECT format('trigger %s enabled %s comment %s', pg_get_triggerdef(t.oid), tgenabled, obj_description(t.oid, 'pg_trigger'))
    FROM pg_trigger t JOIN rels ON rels.oid = t.tgrelid WHERE NOT tgisinternal
   UNION ALL
  SELECT format('policy %s on %s for %s permissive %s to %s using %s check %s', polname, polrelid::regclass, polcmd,
                polpermissive, (SELECT array_agg(r::regrole) FROM unnest(polroles) r), pg_get_expr(polqual, polrelid),
                pg_get_expr(polwithcheck, polrelid))
    FROM pg_policy JOIN rels ON rels.oid = polrelid
   UNION ALL
  SELECT format('rule %s', pg_get_ruledef(r.oid)) FROM pg_rewrite r JOIN rels ON rels.oid = r.ev_class
   WHERE r.rulename <> '_RETURN'
   UNION ALL
  SELECT format('function %s(%s) returns %s owner %s language %s library %s cost %s rows %s strict %s leakproof %s secdef %s volatile %s parallel %s config %s support %s kind %s rights %s comment %s source %s',
                p.oid::regproc, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), proowner::regrole, l.lanname,
                probin, procost, prorows, proisstrict, proleakproof, prosecdef, provolatile, proparallel, proconfig,
                prosupport, prokind, (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(proacl) x), obj_description(p.oid, 'pg_proc'), coalesce(pg_get_function_sqlbody(p.oid), prosrc))
    FROM pg_proc p JOIN pg_language l ON l.oid = prolang, ns WHERE pronamespace = ns.oid
   UNION ALL
  SELECT format('type %s kind %s owner %s base %s notnull %s default %s labels %s rights %s comment %s', t.oid::regtype,
                typtype, typowner::regrole, format_type(typbasetype, typtypmod), typnotnull, typdefault,
                (SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid), (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(typacl) x),
                obj_description(t.oid, 'pg_type'))
    FROM pg_type t, ns
   WHERE typnamespace = ns.oid AND (typrelid = 0 OR typrelid IN (SELECT oid FROM rels))
     AND NOT EXISTS (SELECT FROM pg_type e JOIN pg_class c ON c.oid = e.typrelid WHERE e.oid = t.typelem AND c.relispartition)
   UNION ALL
  SELECT format('statistics %s', pg_get_statisticsobjdef(s.oid)) FROM pg_statistic_ext s, ns WHERE stxnamespace = ns.oid
)
SELECT json_agg(line ORDER BY line COLLATE "C") AS catalog FROM objects \gset
RESET search_path;
RESET intervalstyle;
