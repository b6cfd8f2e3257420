-- The functions of the contract: names, arguments with their names and defaults, results; and no others.
BEGIN;
SET LOCAL intervalstyle = postgres;
SELECT plan(100);

SELECT is(pg_get_function_arguments(oid), $a$name text, handler regprocedure DEFAULT NULL::regprocedure, command text[] DEFAULT NULL::text[], max_attempts integer DEFAULT NULL::integer, backoff text DEFAULT NULL::text, backoff_base interval DEFAULT NULL::interval, backoff_max interval DEFAULT NULL::interval, backoff_jitter real DEFAULT NULL::real, timeout interval DEFAULT NULL::interval, base_priority integer DEFAULT NULL::integer, max_concurrent integer DEFAULT NULL::integer, cpu_weight integer DEFAULT NULL::integer, rate_limit integer DEFAULT NULL::integer, rate_window interval DEFAULT NULL::interval, keep_completed interval DEFAULT NULL::interval, keep_dead interval DEFAULT NULL::interval, critical boolean DEFAULT NULL::boolean, run_as regrole DEFAULT NULL::regrole, options jsonb DEFAULT NULL::jsonb, on_conflict text DEFAULT 'error'::text$a$, 'arguments of create_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'create_job_type';
SELECT is(pg_get_function_result(oid), 'void', 'result of create_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'create_job_type';
SELECT is(pg_get_function_arguments(oid), $a$name text, handler regprocedure DEFAULT NULL::regprocedure, command text[] DEFAULT NULL::text[], max_attempts integer DEFAULT NULL::integer, backoff text DEFAULT NULL::text, backoff_base interval DEFAULT NULL::interval, backoff_max interval DEFAULT NULL::interval, backoff_jitter real DEFAULT NULL::real, timeout interval DEFAULT NULL::interval, base_priority integer DEFAULT NULL::integer, max_concurrent integer DEFAULT NULL::integer, cpu_weight integer DEFAULT NULL::integer, rate_limit integer DEFAULT NULL::integer, rate_window interval DEFAULT NULL::interval, keep_completed interval DEFAULT NULL::interval, keep_dead interval DEFAULT NULL::interval, critical boolean DEFAULT NULL::boolean, run_as regrole DEFAULT NULL::regrole, options jsonb DEFAULT NULL::jsonb, reset text[] DEFAULT NULL::text[]$a$, 'arguments of alter_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'alter_job_type';
SELECT is(pg_get_function_result(oid), 'void', 'result of alter_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'alter_job_type';
SELECT is(pg_get_function_arguments(oid), $a$name text, force boolean DEFAULT false$a$, 'arguments of drop_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drop_job_type';
SELECT is(pg_get_function_result(oid), 'void', 'result of drop_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drop_job_type';
SELECT is(pg_get_function_arguments(oid), $a$name text, reason text DEFAULT NULL::text, duration interval DEFAULT NULL::interval$a$, 'arguments of pause_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'pause_job_type';
SELECT is(pg_get_function_result(oid), 'void', 'result of pause_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'pause_job_type';
SELECT is(pg_get_function_arguments(oid), $a$name text$a$, 'arguments of resume_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'resume_job_type';
SELECT is(pg_get_function_result(oid), 'void', 'result of resume_job_type') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'resume_job_type';
SELECT is(pg_get_function_arguments(oid), $a$job_type text, payload jsonb DEFAULT '{}'::jsonb, priority integer DEFAULT NULL::integer, delay interval DEFAULT NULL::interval, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, backoff jsonb DEFAULT NULL::jsonb, unique_key text DEFAULT NULL::text, on_conflict text DEFAULT 'ignore'::text, unique_for interval DEFAULT NULL::interval, concurrency_key text DEFAULT NULL::text, keep_completed interval DEFAULT NULL::interval, tenant text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, keep_dead interval DEFAULT NULL::interval, after uuid[] DEFAULT NULL::uuid[], after_rule text DEFAULT 'success'::text$a$, 'arguments of enqueue') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'enqueue';
SELECT is(pg_get_function_result(oid), 'uuid', 'result of enqueue') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'enqueue';
SELECT is(pg_get_function_arguments(oid), $a$job_type text, payloads jsonb[], priority integer DEFAULT NULL::integer, delay interval DEFAULT NULL::interval, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, backoff jsonb DEFAULT NULL::jsonb, concurrency_key text DEFAULT NULL::text, keep_completed interval DEFAULT NULL::interval, tenant text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, keep_dead interval DEFAULT NULL::interval, after uuid[] DEFAULT NULL::uuid[], after_rule text DEFAULT 'success'::text$a$, 'arguments of enqueue_many') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'enqueue_many';
SELECT is(pg_get_function_result(oid), 'SETOF uuid', 'result of enqueue_many') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'enqueue_many';
SELECT is(pg_get_function_arguments(oid), $a$jobs jsonb$a$, 'arguments of enqueue_jobs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'enqueue_jobs';
SELECT is(pg_get_function_result(oid), 'TABLE(ordinal integer, id uuid, is_new boolean)', 'result of enqueue_jobs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'enqueue_jobs';
SELECT is(pg_get_function_arguments(oid), $a$id uuid, reason text DEFAULT NULL::text$a$, 'arguments of cancel_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'cancel_job';
SELECT is(pg_get_function_result(oid), 'boolean', 'result of cancel_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'cancel_job';
SELECT is(pg_get_function_arguments(oid), $a$job_type text DEFAULT NULL::text, tenant text DEFAULT NULL::text, payload_contains jsonb DEFAULT NULL::jsonb, include_running boolean DEFAULT false, reason text DEFAULT NULL::text$a$, 'arguments of cancel_jobs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'cancel_jobs';
SELECT is(pg_get_function_result(oid), 'bigint', 'result of cancel_jobs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'cancel_jobs';
SELECT is(pg_get_function_arguments(oid), $a$id uuid, max_attempts integer DEFAULT NULL::integer$a$, 'arguments of retry_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'retry_job';
SELECT is(pg_get_function_result(oid), 'boolean', 'result of retry_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'retry_job';
SELECT is(pg_get_function_arguments(oid), $a$id uuid, payload jsonb DEFAULT NULL::jsonb$a$, 'arguments of rerun_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'rerun_job';
SELECT is(pg_get_function_result(oid), 'uuid', 'result of rerun_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'rerun_job';
SELECT is(pg_get_function_arguments(oid), $a$id uuid, payload jsonb DEFAULT NULL::jsonb, priority integer DEFAULT NULL::integer, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval$a$, 'arguments of alter_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'alter_job';
SELECT is(pg_get_function_result(oid), 'boolean', 'result of alter_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'alter_job';
SELECT is(pg_get_function_arguments(oid), $a$status jobq.job_status DEFAULT NULL::jobq.job_status, job_type text DEFAULT NULL::text, tenant text DEFAULT NULL::text, max_rows integer DEFAULT 50, skip_rows integer DEFAULT 0, before uuid DEFAULT NULL::uuid, payload_contains jsonb DEFAULT NULL::jsonb, error_like text DEFAULT NULL::text$a$, 'arguments of list_jobs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'list_jobs';
SELECT is(pg_get_function_result(oid), 'SETOF jobq.jobs', 'result of list_jobs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'list_jobs';
SELECT is(pg_get_function_arguments(oid), $a$job_type text DEFAULT NULL::text, tenant text DEFAULT NULL::text$a$, 'arguments of count_by_status') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'count_by_status';
SELECT is(pg_get_function_result(oid), 'TABLE(status jobq.job_status, count bigint)', 'result of count_by_status') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'count_by_status';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of distinct_job_types') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'distinct_job_types';
SELECT is(pg_get_function_result(oid), 'SETOF text', 'result of distinct_job_types') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'distinct_job_types';
SELECT is(pg_get_function_arguments(oid), $a$job_type text DEFAULT NULL::text, max_jobs integer DEFAULT NULL::integer, tenant text DEFAULT NULL::text, error_like text DEFAULT NULL::text, dead_before timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT NULL::integer$a$, 'arguments of retry_dead_letters') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'retry_dead_letters';
SELECT is(pg_get_function_result(oid), 'bigint', 'result of retry_dead_letters') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'retry_dead_letters';
SELECT is(pg_get_function_arguments(oid), $a$job_type text DEFAULT NULL::text, older_than interval DEFAULT NULL::interval, max_jobs integer DEFAULT NULL::integer, tenant text DEFAULT NULL::text, error_like text DEFAULT NULL::text$a$, 'arguments of purge_dead_letters') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'purge_dead_letters';
SELECT is(pg_get_function_result(oid), 'bigint', 'result of purge_dead_letters') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'purge_dead_letters';
SELECT is(pg_get_function_arguments(oid), $a$id uuid$a$, 'arguments of job_timeline') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'job_timeline';
SELECT is(pg_get_function_result(oid), 'SETOF jobq.events', 'result of job_timeline') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'job_timeline';
SELECT is(pg_get_function_arguments(oid), $a$before timestamp with time zone, after_id uuid DEFAULT NULL::uuid, what text DEFAULT 'history'::text, max_rows integer DEFAULT NULL::integer$a$, 'arguments of archive') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'archive';
SELECT is(pg_get_function_result(oid), 'SETOF text', 'result of archive') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'archive';
SELECT is(pg_get_function_arguments(oid), $a$id uuid, timeout interval DEFAULT '00:00:20'::interval$a$, 'arguments of wait_for') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'wait_for';
SELECT is(pg_get_function_result(oid), 'jobq.jobs', 'result of wait_for') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'wait_for';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of current_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'current_job';
SELECT is(pg_get_function_result(oid), 'jobq.jobs', 'result of current_job') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'current_job';
SELECT is(pg_get_function_arguments(oid), $a$progress numeric, data jsonb DEFAULT NULL::jsonb$a$, 'arguments of set_progress') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_progress';
SELECT is(pg_get_function_result(oid), 'void', 'result of set_progress') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_progress';
SELECT is(pg_get_function_arguments(oid), $a$message text, level text DEFAULT 'info'::text, type text DEFAULT 'log'::text, data jsonb DEFAULT NULL::jsonb, id uuid DEFAULT NULL::uuid, lease_token uuid DEFAULT NULL::uuid$a$, 'arguments of log_event') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'log_event';
SELECT is(pg_get_function_result(oid), 'void', 'result of log_event') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'log_event';
SELECT is(pg_get_function_arguments(oid), $a$reason text DEFAULT NULL::text$a$, 'arguments of skip') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'skip';
SELECT is(pg_get_function_result(oid), 'void', 'result of skip') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'skip';
SELECT is(pg_get_function_arguments(oid), $a$reason text$a$, 'arguments of discard') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'discard';
SELECT is(pg_get_function_result(oid), 'void', 'result of discard') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'discard';
SELECT is(pg_get_function_arguments(oid), $a$delay interval, reason text DEFAULT NULL::text$a$, 'arguments of snooze') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'snooze';
SELECT is(pg_get_function_result(oid), 'void', 'result of snooze') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'snooze';
SELECT is(pg_get_function_arguments(oid), $a$id uuid$a$, 'arguments of run_inline') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'run_inline';
SELECT is(pg_get_function_result(oid), 'jobq.jobs', 'result of run_inline') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'run_inline';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of health') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'health';
SELECT is(pg_get_function_result(oid), 'jsonb', 'result of health') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'health';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of version') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'version';
SELECT is(pg_get_function_result(oid), 'text', 'result of version') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'version';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of adopt') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'adopt';
SELECT is(pg_get_function_result(oid), 'void', 'result of adopt') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'adopt';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of reload') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'reload';
SELECT is(pg_get_function_result(oid), 'void', 'result of reload') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'reload';
SELECT is(pg_get_function_arguments(oid), $a$role regrole, access text, tenant text DEFAULT NULL::text, job_types text[] DEFAULT NULL::text[]$a$, 'arguments of grant_access') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'grant_access';
SELECT is(pg_get_function_result(oid), 'void', 'result of grant_access') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'grant_access';
SELECT is(pg_get_function_arguments(oid), $a$tenant text$a$, 'arguments of purge_tenant') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'purge_tenant';
SELECT is(pg_get_function_result(oid), 'bigint', 'result of purge_tenant') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'purge_tenant';
SELECT is(pg_get_function_arguments(oid), $a$role regrole, access text, tenant text DEFAULT NULL::text, job_types text[] DEFAULT NULL::text[]$a$, 'arguments of revoke_access') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'revoke_access';
SELECT is(pg_get_function_result(oid), 'void', 'result of revoke_access') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'revoke_access';
SELECT is(pg_get_function_arguments(oid), $a$f regprocedure$a$, 'arguments of set_tenant_check') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_tenant_check';
SELECT is(pg_get_function_result(oid), 'void', 'result of set_tenant_check') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_tenant_check';
SELECT is(pg_get_function_arguments(oid), $a$name text, max_concurrent integer DEFAULT 0, rate_limit integer DEFAULT 0, rate_window interval DEFAULT '00:00:01'::interval$a$, 'arguments of set_limit') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_limit';
SELECT is(pg_get_function_result(oid), 'void', 'result of set_limit') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_limit';
SELECT is(pg_get_function_arguments(oid), $a$name text$a$, 'arguments of drop_limit') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drop_limit';
SELECT is(pg_get_function_result(oid), 'void', 'result of drop_limit') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drop_limit';
SELECT is(pg_get_function_arguments(oid), $a$reason text$a$, 'arguments of stop_all') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'stop_all';
SELECT is(pg_get_function_result(oid), 'void', 'result of stop_all') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'stop_all';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of start_all') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'start_all';
SELECT is(pg_get_function_result(oid), 'void', 'result of start_all') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'start_all';
SELECT is(pg_get_function_arguments(oid), $a$timeout interval DEFAULT '00:00:30'::interval$a$, 'arguments of drain') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drain';
SELECT is(pg_get_function_result(oid), 'boolean', 'result of drain') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drain';
SELECT is(pg_get_function_arguments(oid), $a$$a$, 'arguments of compact') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'compact';
SELECT is(pg_get_function_result(oid), 'bigint', 'result of compact') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'compact';
SELECT is(pg_get_function_arguments(oid), $a$cron text, timezone text DEFAULT 'UTC'::text, n integer DEFAULT 5, since timestamp with time zone DEFAULT now()$a$, 'arguments of next_runs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'next_runs';
SELECT is(pg_get_function_result(oid), 'SETOF timestamp with time zone', 'result of next_runs') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'next_runs';
SELECT is(pg_get_function_arguments(oid), $a$job_type text$a$, 'arguments of channel') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'channel';
SELECT is(pg_get_function_result(oid), 'text', 'result of channel') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'channel';
SELECT is(pg_get_function_arguments(oid), $a$name text, condition text, every interval DEFAULT '00:00:10'::interval, on_conflict text DEFAULT 'error'::text$a$, 'arguments of create_signal') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'create_signal';
SELECT is(pg_get_function_result(oid), 'void', 'result of create_signal') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'create_signal';
SELECT is(pg_get_function_arguments(oid), $a$name text, force boolean DEFAULT false$a$, 'arguments of drop_signal') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drop_signal';
SELECT is(pg_get_function_result(oid), 'void', 'result of drop_signal') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'drop_signal';
SELECT is(pg_get_function_arguments(oid), $a$job_type text, signal text, priority_adj integer DEFAULT 0, block boolean DEFAULT false, max_weight integer DEFAULT NULL::integer$a$, 'arguments of set_pressure_rule') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_pressure_rule';
SELECT is(pg_get_function_result(oid), 'void', 'result of set_pressure_rule') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_pressure_rule';
SELECT is(pg_get_function_arguments(oid), $a$name text, active boolean, ttl interval DEFAULT NULL::interval$a$, 'arguments of set_signal') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_signal';
SELECT is(pg_get_function_result(oid), 'void', 'result of set_signal') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_signal';
SELECT is(pg_get_function_arguments(oid), $a$tenant text, max_live bigint DEFAULT NULL::bigint, max_bytes bigint DEFAULT NULL::bigint, enqueues_per_minute integer DEFAULT NULL::integer, max_running integer DEFAULT NULL::integer, max_schedules integer DEFAULT NULL::integer$a$, 'arguments of set_tenant_quota') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_tenant_quota';
SELECT is(pg_get_function_result(oid), 'void', 'result of set_tenant_quota') FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace AND proname = 'set_tenant_quota';

-- \df jobq.* shows what the contract lists
SELECT bag_eq($$SELECT proname::text FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace$$,
  ARRAY['create_job_type', 'alter_job_type', 'drop_job_type', 'pause_job_type', 'resume_job_type', 'enqueue', 'enqueue_many', 'enqueue_jobs',
    'cancel_job', 'cancel_jobs', 'retry_job', 'rerun_job', 'alter_job', 'list_jobs', 'count_by_status', 'distinct_job_types',
    'retry_dead_letters', 'purge_dead_letters', 'job_timeline', 'archive', 'wait_for', 'current_job', 'set_progress', 'log_event', 'skip',
    'discard', 'snooze', 'run_inline', 'purge_tenant', 'grant_access', 'revoke_access', 'set_tenant_check', 'set_tenant_quota', 'health', 'version', 'adopt', 'reload',
    'set_limit', 'drop_limit', 'stop_all', 'start_all', 'drain', 'compact', 'channel', 'set_signal', 'create_signal', 'drop_signal', 'set_pressure_rule', 'next_runs'],
  'no other function than those');
SELECT results_eq($$SELECT starts_with(proname, '_'), count(*) > 100 FROM pg_proc WHERE pronamespace = 'jobq_internal'::regnamespace GROUP BY 1$$,
  $$VALUES (true, true)$$, 'functions of schema jobq_internal have names with an underscore');

SELECT * FROM finish();
ROLLBACK;
