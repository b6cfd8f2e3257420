-- The shape of the tables and the view, and the safety of the functions.
BEGIN;
SELECT plan(32);

SELECT enum_has_labels('jobq', 'job_status',
  ARRAY['pending', 'blocked', 'retry', 'running', 'completed', 'skipped', 'cancelled', 'error'], 'all eight states, in order');

-- the view: columns are appended, never reordered
SELECT results_eq($$
  SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod) FROM pg_attribute
   WHERE attrelid = 'jobq.jobs'::regclass AND attnum > 0 ORDER BY attnum
$$, $$ VALUES
  ('id', 'uuid'), ('job_type', 'text'), ('status', 'jobq.job_status'), ('priority', 'smallint'), ('payload', 'jsonb'),
  ('result', 'jsonb'), ('error_msg', 'text'), ('error_code', 'text'), ('error_details', 'jsonb'), ('attempts', 'integer'),
  ('max_attempts', 'integer'), ('runs', 'integer'), ('created_at', 'timestamp with time zone'),
  ('scheduled_for', 'timestamp with time zone'), ('started_at', 'timestamp with time zone'),
  ('completed_at', 'timestamp with time zone'), ('updated_at', 'timestamp with time zone'), ('progress', 'numeric'),
  ('progress_data', 'jsonb'), ('tenant', 'text'), ('unique_key', 'text'), ('concurrency_key', 'text'), ('timeout', 'interval'),
  ('worker', 'text'), ('node', 'text'), ('lease_expires_at', 'timestamp with time zone'), ('parent_id', 'uuid'),
  ('depth', 'integer'), ('workflow_id', 'uuid'), ('task_key', 'text'), ('metadata', 'jsonb'),
  ('after', 'uuid[]'), ('after_rule', 'text')
$$, 'columns of jobq.jobs');
SELECT ok('security_invoker=true' = ANY (reloptions), 'jobq.jobs runs with the rights of the caller')
  FROM pg_class WHERE oid = 'jobq.jobs'::regclass;
SELECT results_eq($$
  SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod) FROM pg_attribute
   WHERE attrelid = 'jobq.events'::regclass AND attnum > 0 ORDER BY attnum
$$, $$ VALUES
  ('id', 'bigint'), ('ts', 'timestamp with time zone'), ('job_id', 'uuid'), ('job_type', 'text'), ('tenant', 'text'),
  ('attempt', 'integer'), ('type', 'text'), ('source', 'text'), ('level', 'text'), ('message', 'text'), ('data', 'jsonb')
$$, 'columns of jobq.events');
SELECT results_eq($$
  SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod) FROM pg_attribute
   WHERE attrelid = 'jobq.alerts'::regclass AND attnum > 0 ORDER BY attnum
$$, $$ VALUES
  ('ts', 'timestamp with time zone'), ('severity', 'text'), ('title', 'text'), ('message', 'text'), ('job_id', 'uuid'),
  ('job_type', 'text'), ('tenant', 'text'), ('attempts', 'integer'), ('error_msg', 'text')
$$, 'columns of jobq.alerts');
SELECT results_eq($$
  SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod) FROM pg_attribute
   WHERE attrelid = 'jobq.artifacts'::regclass AND attnum > 0 ORDER BY attnum
$$, $$ VALUES
  ('id', 'bigint'), ('created_at', 'timestamp with time zone'), ('job_id', 'uuid'), ('workflow_id', 'uuid'), ('task_key', 'text'),
  ('tenant', 'text'), ('attempt', 'integer'), ('key', 'text'), ('kind', 'text'), ('bucket', 'text'), ('size_bytes', 'bigint'),
  ('content_type', 'text'), ('checksum', 'text'), ('data', 'jsonb'), ('job_type', 'text'), ('expires_at', 'timestamp with time zone')
$$, 'columns of jobq.artifacts');
SELECT results_eq($$
  SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod) FROM pg_attribute
   WHERE attrelid = 'jobq.audit'::regclass AND attnum > 0 ORDER BY attnum
$$, $$ VALUES
  ('id', 'bigint'), ('ts', 'timestamp with time zone'), ('by', 'text'), ('action', 'text'), ('object_type', 'text'), ('object', 'text'),
  ('tenant', 'text'), ('old', 'jsonb'), ('new', 'jsonb'), ('client_addr', 'inet')
$$, 'columns of jobq.audit');
SELECT is(partattrs::text, '2', 'audit is partitioned by ts') FROM pg_partitioned_table WHERE partrelid = 'jobq.audit'::regclass;
SELECT is(partattrs::text, '16', 'artifacts are partitioned by expires_at') FROM pg_partitioned_table WHERE partrelid = 'jobq.artifacts'::regclass;
SELECT is(provolatile::text || proparallel::text, 'is', 'build_key is immutable and parallel safe')
  FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'build_key';
SELECT is(partattrs::text, '1', 'alerts are partitioned by ts') FROM pg_partitioned_table WHERE partrelid = 'jobq.alerts'::regclass;
SELECT is(partattrs::text, '2', 'history is partitioned by expires_at') FROM pg_partitioned_table WHERE partrelid = 'jobq.history'::regclass;
SELECT is(partattrs::text, '2', 'events are partitioned by ts') FROM pg_partitioned_table WHERE partrelid = 'jobq.events'::regclass;
SELECT columns_are('jobq', 'option_keys', ARRAY['key', 'kind', 'type', 'default_value', 'meaning']);

-- history and dead letters have the same columns: one function writes both
SELECT results_eq(
  $$ SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 'jobq.history'::regclass AND attnum > 0 ORDER BY attnum $$,
  $$ SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 'jobq.dead_letters'::regclass AND attnum > 0 ORDER BY attnum $$,
  'history and dead_letters agree');

-- pg_upgrade refuses reg* columns; foreign keys would lock hot rows
SELECT is_empty($$
  SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
   WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0
     AND t.typname ~ '^(reg|aclitem|_reg|_aclitem|oid$|name$)'
     AND (c.relname, a.attname) NOT IN (('home', 'database'), ('access', 'role_oid'), ('job_types', 'owner_oid'),
                                         ('job_types', 'run_as_oid'), ('signals', 'definer_oid'), ('schedules', 'owner_oid'),
                                         ('workflows', 'definer_oid'))   -- pg_upgrade keeps these oids
$$, 'no oids in tables');
SELECT is_empty($$ SELECT conname FROM pg_constraint WHERE connamespace = 'jobq'::regnamespace AND contype = 'f' $$, 'no foreign keys');
SELECT is_empty($$
  SELECT t.tgname FROM pg_trigger t WHERE t.tgrelid IN ('jobq.queue'::regclass, 'jobq.job_types'::regclass, 'jobq.signals'::regclass, 'jobq.pressure_rules'::regclass,
     'jobq.schedules'::regclass, 'jobq.workflows'::regclass, 'jobq.dead_letters'::regclass) AND t.tgenabled <> 'A'
$$, 'triggers fire in every session_replication_role');
SELECT is((SELECT count(*)::int FROM pg_trigger WHERE tgrelid IN ('jobq.queue'::regclass, 'jobq.job_types'::regclass, 'jobq.signals'::regclass,
  'jobq.pressure_rules'::regclass, 'jobq.schedules'::regclass, 'jobq.workflows'::regclass)), 14,
  'a trigger each, one for TRUNCATE of schedules and of the queue, two that count rows of the queue, one that finds roles for job types, signals, schedules and workflows, and one that moves env');

-- dumped tables
SELECT results_eq($$
  SELECT c.oid::regclass::text FROM pg_extension e, unnest(e.extconfig) c(oid) WHERE e.extname = 'jobq' ORDER BY c.oid::regclass::text COLLATE "C"
$$, $$ VALUES ('jobq.access'), ('jobq.alerts_default'), ('jobq.artifact_id_seq'), ('jobq.artifacts_default'), ('jobq.audit_id_seq'), ('jobq.before_drops'), ('jobq.dead_letters'), ('jobq.dependencies'), ('jobq.event_id_seq'), ('jobq.events_default'), ('jobq.history_default'), ('jobq.home'), ('jobq.hook_references'), ('jobq.job_type_env'), ('jobq.job_type_id_seq'), ('jobq.job_types'), ('jobq.limits'),
  ('jobq.pressure_rules'), ('jobq.queue'), ('jobq.run_timers'), ('jobq.runs'), ('jobq.schedule_id_seq'), ('jobq.schedules'), ('jobq.signal_id_seq'), ('jobq.signals'), ('jobq.stopped'), ('jobq.tenant_check'), ('jobq.tenant_quotas'), ('jobq.unique_for_types'), ('jobq.workflows') $$,
  'configuration tables');
SELECT is_empty($$
  SELECT i.inhrelid::regclass FROM pg_inherits i JOIN pg_depend d ON d.objid = i.inhrelid AND d.deptype = 'e'
   WHERE d.classid = 'pg_class'::regclass
     AND i.inhparent IN ('jobq.history'::regclass, 'jobq.artifacts'::regclass, 'jobq.events'::regclass, 'jobq.alerts'::regclass,
     'jobq.audit'::regclass)
     AND i.inhrelid NOT IN (SELECT p.partdefid FROM pg_partitioned_table p)
$$, 'partitions are no members of the extension, but for the default ones');
SELECT results_eq($$ SELECT extrelocatable, n.nspname::text COLLATE "default" FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'jobq' $$,
  $$ VALUES (false, 'pg_catalog') $$, 'the extension cannot be moved, and belongs to no schema that a user would drop');

-- search_path is pinned in every function that looks up names at run time
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
   WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND l.lanname <> 'c' AND p.prosqlbody IS NULL
     AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)
$$, 'every function has a pinned search_path, is C, or was parsed at installation');
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND p.prosecdef AND p.proconfig IS NULL
$$, 'no SECURITY DEFINER without a pinned search_path');
SELECT is_empty($$
  SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND p.prosecdef
     AND p.proname NOT IN ('current_job', '_ensure_partition', '_expire_partitions', '_maintain', '_retain', '_dead_letters_changed',
       '_dead_letters_truncated', '_search_bound', '_search_span')
$$, 'few functions are SECURITY DEFINER');
SELECT is_empty($$
  SELECT g.proname FROM pg_proc g WHERE g.pronamespace = 'jobq'::regnamespace AND g.prosrc = 'jobq_gateway'
     AND NOT EXISTS (SELECT FROM pg_proc b WHERE b.pronamespace = 'jobq_internal'::regnamespace AND b.proname = '_' || g.proname
                        AND b.prorettype = g.prorettype AND b.proretset = g.proretset
                        AND b.proargtypes = ('26 ' || g.proargtypes::text)::oidvector)
$$, 'behind every gate is its function');

-- the option keys that the view shows are those that definitions may use
CREATE FUNCTION pg_temp.refuses(key text, kind text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq_internal._check_options(jsonb_build_object(key, NULL), kind);
  RETURN false;
EXCEPTION WHEN invalid_parameter_value THEN
  RETURN true;
END $$;
SELECT is_empty($$ SELECT key FROM jobq.option_keys WHERE pg_temp.refuses(key, CASE WHEN kind IN ('sql', 'pull') THEN kind ELSE 'exec' END) $$, 'every key of jobq.option_keys is known');
SELECT is_empty($$ SELECT key FROM jobq.option_keys WHERE kind LIKE 'exec%' AND NOT pg_temp.refuses(key, 'sql') $$, 'keys for tools are refused for handlers');
SELECT is_empty($$ SELECT key FROM jobq.option_keys WHERE kind IN ('sql', 'pull') AND NOT pg_temp.refuses(key, 'exec') $$, 'keys for handlers are refused for tools');

-- the owner renames the schema of internal functions
ALTER SCHEMA jobq_internal RENAME TO jobq_renamed;
SELECT throws_ok($$SELECT jobq.pause_job_type('nosuch')$$, '55000', 'schema "jobq_internal" of extension "jobq" is missing', 'renamed: an error names the schema');
SELECT throws_ok('SELECT jobq.health()', '55000', 'schema "jobq_internal" of extension "jobq" is missing', 'also of health()');
ALTER SCHEMA jobq_renamed RENAME TO jobq_internal;
SELECT throws_ok($$SELECT jobq.pause_job_type('nosuch')$$, '42704', NULL, 'renamed back: the call finds its function');

SELECT * FROM finish();
ROLLBACK;
