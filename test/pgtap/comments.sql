-- Every object for users has a comment in the database.
BEGIN;
SELECT plan(6);

SELECT is_empty($$
  SELECT proname FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace
     AND coalesce(obj_description(oid, 'pg_proc'), '') = ''
$$, 'every function has a comment');

SELECT is_empty($$
  SELECT p.proname, a.name FROM pg_proc p,
         LATERAL unnest(p.proargnames, coalesce(p.proargmodes, array_fill('i'::"char", ARRAY[p.pronargs::int]))) a(name, mode)
   WHERE p.pronamespace = 'jobq'::regnamespace AND a.mode = 'i'
     AND obj_description(p.oid, 'pg_proc') !~ format('(^|\n)([a-z_]+, )*%s(, [a-z_]+)*: ', a.name)
$$, 'it has a line for every argument');

SELECT is_empty($$
  SELECT proname FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace
     AND obj_description(oid, 'pg_proc') !~ '\nErrors: .*\.$'
$$, 'it ends with its errors');

SELECT is_empty($$
  SELECT oid::regclass FROM pg_class WHERE relnamespace = 'jobq'::regnamespace AND relkind IN ('r', 'p', 'v')
     AND NOT relispartition AND obj_description(oid, 'pg_class') IS NULL
$$, 'every table and view has a comment');

SELECT is_empty($$
  SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
   WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
     AND col_description(c.oid, a.attnum) IS NULL
     -- described under the same name in jobq.jobs or create_job_type
     AND NOT (c.relname IN ('queue', 'history', 'dead_letters')
              AND a.attname IN (SELECT attname FROM pg_attribute WHERE attrelid = 'jobq.jobs'::regclass
                                UNION SELECT attname FROM pg_attribute WHERE attrelid = 'jobq.queue'::regclass
                                         AND col_description('jobq.queue'::regclass, attnum) IS NOT NULL
                                UNION SELECT attname FROM pg_attribute WHERE attrelid = 'jobq.history'::regclass
                                         AND col_description('jobq.history'::regclass, attnum) IS NOT NULL))
     AND NOT (c.relname = 'job_types'
              AND a.attname IN (SELECT unnest(proargnames || 'created_at'::text) FROM pg_proc
                                 WHERE pronamespace = 'jobq'::regnamespace AND proname = 'create_job_type'))
$$, 'every column has one, here or where it comes from');

SELECT isnt(obj_description('jobq.job_status'::regtype, 'pg_type'), NULL, 'the status type has a comment');

SELECT * FROM finish();
ROLLBACK;
