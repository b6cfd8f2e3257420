# Attacks by roles without grants: calling functions without the right, shadowing functions and
# operators that jobq uses, creating objects before the installation.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('attack', 'jobq.max_sql_workers = 2');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE plain LOGIN;
CREATE ROLE reader LOGIN IN ROLE pg_read_all_data, pg_monitor;
CREATE ROLE tenant LOGIN;
CREATE SCHEMA handlers;
GRANT USAGE ON SCHEMA handlers TO tenant;
GRANT EXECUTE ON FUNCTION jobq.current_job, jobq.log_event, jobq.set_progress, jobq.snooze, jobq.skip TO tenant;
CREATE FUNCTION handlers.work(p jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM jobq.log_event('working', 'info', 'log', '{"a": 1}');
  PERFORM jobq.set_progress(50, '{"half": true}');
  PERFORM id FROM jobq.current_job();
  CASE p->>'how'
    WHEN 'fail' THEN RAISE 'told to';
    WHEN 'snooze' THEN
      IF (SELECT runs FROM jobq.current_job()) < 2 THEN PERFORM jobq.snooze('10ms', 'later'); END IF;
    WHEN 'snooze_error' THEN
      IF (SELECT runs FROM jobq.current_job()) < 2 THEN RAISE 'later' USING ERRCODE = 'JQ003', DETAIL = '10 ms'; END IF;
    WHEN 'skip' THEN PERFORM jobq.skip('no need');
    ELSE NULL;
  END CASE;
  RETURN p;
END $$;
SELECT jobq.create_job_type('work', 'handlers.work(jsonb)', run_as => 'tenant', max_attempts => 2, backoff_base => '10ms');
SELECT jobq.create_job_type('tool', command => '{echo,"{text}"}', options => '{"output": "text"}');
SELECT jobq.enqueue('work', '{}', delay => '1h');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $dispatcher = dispatcher($node, 'postgres');

# ---------- T1: PUBLIC has no function and no table ----------

$node->safe_psql('postgres', <<'END');
CREATE TABLE tried (role text, what text, result text);
CREATE FUNCTION attempt(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE statement;
  RAISE SQLSTATE 'ZZZZZ';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;
CREATE TABLE before AS SELECT md5(string_agg(t::text, '' ORDER BY t::text)) FROM
  (SELECT q::text FROM jobq.queue q UNION ALL SELECT t::text FROM jobq.job_types t) t;
INSERT INTO tried
SELECT role, f.oid::regprocedure::text, attempt(role, format('SELECT %s.%I(%s) FROM (SELECT %s OFFSET 0) a', f.pronamespace::regnamespace, f.proname,
         (SELECT string_agg('a' || o, ', ' ORDER BY o) FROM unnest(f.proargtypes) WITH ORDINALITY a(t, o)),
         (SELECT string_agg('NULL::' || format_type(t, NULL) || ' AS a' || o, ', ' ORDER BY o) FROM unnest(f.proargtypes) WITH ORDINALITY a(t, o))))
  FROM pg_proc f, unnest('{plain,reader,tenant}'::text[]) role
 WHERE f.pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace) AND f.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
   AND f.oid <> 'jobq.version()'::regprocedure AND f.prokind = 'f'
   AND NOT (role = 'tenant' AND has_function_privilege('tenant', f.oid, 'EXECUTE'));
INSERT INTO tried
SELECT 'plain', c.oid::regclass || ' ' || left(statement, 6), attempt('plain', format(statement, c.oid::regclass))
  FROM pg_class c, unnest(ARRAY['SELECT FROM %s', 'INSERT INTO %s DEFAULT VALUES', 'DELETE FROM %s', 'TRUNCATE %s', 'LOCK %s']) statement
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND (c.relkind <> 'v' OR statement ~ '^[SL]')
UNION ALL
SELECT 'plain', c.oid::regclass::text, attempt('plain', format('SELECT nextval(%L)', c.oid::regclass))
  FROM pg_class c WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind = 'S';
END
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM tried'), '>', 200, 'every function and table has been tried');
is($node->safe_psql('postgres', q{SELECT role, what FROM tried WHERE result <> '42501' AND NOT (role = 'reader'
  AND what ~ '^(jobq\.(metrics|stat_series)|jobq_internal\._stat_(claimed|dispatcher|job_types|lanes|limits|workers))\(')}), '',
	'every try was denied, but statistics to pg_monitor');
is($node->safe_psql('postgres', q{SELECT string_agg(f.proname, ' ') FROM pg_proc f WHERE pronamespace IN ('jobq'::regnamespace, 'jobq_internal'::regnamespace)
  AND has_function_privilege('plain', oid, 'EXECUTE')}), 'version', 'all may ask for the version, for nothing else');
is($node->safe_psql('postgres', q{SELECT md5(string_agg(t::text, '' ORDER BY t::text)) = (SELECT md5 FROM before) FROM
  (SELECT q::text FROM jobq.queue q UNION ALL SELECT t::text FROM jobq.job_types t) t}), 't', 'nothing has changed');
sqlstate_is($node, 'postgres', "SET ROLE plain; CREATE TABLE $_.mine (a int)", '42501', "no other role may create objects in schema $_")
  foreach 'jobq', 'jobq_internal';
sqlstate_is($node, 'postgres', q{SET ROLE plain; DROP EXTENSION jobq}, '42501', 'nor drop it');

# ---------- T9: an attacker's schema comes first in the path ----------

# Every function and operator of pg_catalog over usual types has a double that records its call.
$node->safe_psql('postgres', <<'END');
CREATE SCHEMA attack;
GRANT USAGE ON SCHEMA attack TO PUBLIC;
DO $$
DECLARE
  usual oid[] := ARRAY(SELECT t::regtype FROM unnest('{text,name,uuid,"char",int2,int4,int8,float4,float8,numeric,bool,timestamptz,timestamp,date,
    interval,json,jsonb,oid,regclass,regproc,regprocedure,regrole,regnamespace,regtype,xid,xid8,text[],jsonb[],oidvector,bytea}'::text[]) t);
  f record;
  n int := 0;
BEGIN
  FOR f IN SELECT format('attack.%I(%s)', proname, oidvectortypes(proargtypes)) AS sig, prorettype::regtype AS ret
             FROM pg_catalog.pg_proc p WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset
              AND provariadic = 0 AND pronargs <= 4 AND prorettype = ANY (usual || 'void'::regtype::oid)
              AND (SELECT coalesce(bool_and(a = ANY (usual)), true) FROM unnest(proargtypes) a)
  LOOP
    EXECUTE format('CREATE FUNCTION %s RETURNS %s LANGUAGE plpgsql AS ''BEGIN RAISE ''''captured''''; END''', f.sig, f.ret);
  END LOOP;
  FOR f IN SELECT oprname, oprleft, oprright, oprresult::regtype AS ret FROM pg_catalog.pg_operator
            WHERE oprkind = 'b' AND oprleft = ANY (usual) AND oprright = ANY (usual) AND oprresult = ANY (usual)
  LOOP
    n := n + 1;
    EXECUTE format('CREATE FUNCTION attack.op%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS ''BEGIN RAISE ''''captured''''; END''',
                   n, f.oprleft::regtype, f.oprright::regtype, f.ret);
    EXECUTE format('CREATE OPERATOR attack.%s (FUNCTION = attack.op%s, LEFTARG = %s, RIGHTARG = %s)',
                   f.oprname, n, f.oprleft::regtype, f.oprright::regtype);
  END LOOP;
  FOR f IN SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
            UNION SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 'jobq'::regnamespace AND relkind IN ('r', 'v', 'p')
  LOOP
    EXECUTE format('CREATE TABLE attack.%I (captured int)', f.relname);
  END LOOP;
END $$;
END
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'attack'::regnamespace}), '>', 1500, 'traps are set');
my $path = 'SET search_path = attack, pg_catalog, jobq;';
like(($node->psql('postgres', "$path SELECT lower('A')"))[2], qr/captured/, 'and work');

my @calls = (
	q{SELECT jobq.create_job_type('trap', 'handlers.work(jsonb)', max_attempts => 2, backoff => 'fixed', backoff_base => '1ms', timeout => '1min',
	  keep_dead => '1 day', options => '{"permanent_codes": ["22%"]}')},
	q{SELECT jobq.create_job_type('trap_tool', command => '{echo,"{text}"}', on_conflict => 'replace', options => '{"env": {"A": "b"}}')},
	q{SELECT jobq.create_job_type('trap', 'handlers.work(jsonb)', on_conflict => 'replace')},
	q{SELECT jobq.alter_job_type('trap', max_attempts => 3, options => '{"max_depth": 10}', reset => '{keep_dead}')},
	q{SELECT jobq.pause_job_type('trap', 'for now', '1h')},
	q{SELECT jobq.enqueue('trap', '{"a": 1}', priority => 3, delay => '1h', unique_key => 'k', unique_for => '1h', tenant => 'acme',
	  backoff => '{"type": "fixed", "base": "1s"}', metadata => '{}')},
	q{SELECT jobq.enqueue('trap', '{"a": 2}', unique_key => 'k', on_conflict => 'replace', tenant => 'acme')},
	q{SELECT jobq.enqueue_many('trap', '{"{}","{}"}')},
	q{SELECT * FROM jobq.enqueue_jobs('[{"job_type": "trap", "payload": {}}]')},
	q{SELECT * FROM jobq.list_jobs('pending', 'trap', 'acme', 10, 0, NULL, '{"a": 2}', NULL)},
	q{SELECT * FROM jobq.list_jobs(error_like => '%x%')},
	q{SELECT * FROM jobq.count_by_status('trap', 'acme')},
	q{SELECT * FROM jobq.distinct_job_types()},
	q{SELECT id, status, updated_at, progress FROM jobq.jobs},
	q{SELECT jobq.alter_job(id, '{"a": 3}', 2, '2100-01-01', 5, '1min') FROM jobq.list_jobs('pending', 'trap')},
	q{SELECT jobq.cancel_job(id, 'no') FROM jobq.list_jobs('pending', 'trap', max_rows => 1)},
	q{SELECT jobq.retry_job(id, 2) FROM jobq.list_jobs('cancelled', 'trap', max_rows => 1)},
	q{SELECT jobq.cancel_job(id, 'no') FROM jobq.list_jobs('pending', 'trap', max_rows => 1)},
	q{SELECT jobq.rerun_job(id, '{"a": 4}') FROM jobq.list_jobs('cancelled', 'trap', max_rows => 1)},
	q{SELECT jobq.run_inline(id) FROM jobq.list_jobs('pending', 'trap', max_rows => 1)},
	q{SELECT jobq.cancel_jobs('trap', payload_contains => '{}', include_running => true, reason => 'all')},
	q{SELECT jobq.retry_dead_letters('trap', 10, 'acme', '%', '2100-01-01', 1)},
	q{SELECT jobq.purge_dead_letters('trap', '0', 10, 'acme', '%')},
	q{SELECT jobq.wait_for('01a1fd86-53aa-7af4-a063-8be5f8525fad', '1ms')},
	q{SELECT * FROM jobq.job_timeline('01a1fd86-53aa-7af4-a063-8be5f8525fad')},
	q{SELECT jobq.resume_job_type('trap')},
	q{SELECT jobq.health()}, q{SELECT jobq.version()}, q{SELECT jobq.reload()}, q{SELECT jobq.adopt()}, q{SELECT jobq.current_job()},
	q{SELECT jobq.drop_job_type('trap', force => true)},
);
foreach my $call (@calls)
{
	my ($rc, undef, $err) = $node->psql('postgres', "$path $call", on_error_stop => 1);

	like($rc ? $err : '', qr/^$|job "01a1fd86[-0-9a-f]*" does not exist/, "not captured: " . substr($call =~ s/\s+/ /gr, 0, 70));
}

# the processes of jobq
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = attack, pg_catalog, jobq; ALTER ROLE tenant SET search_path = attack, pg_catalog, jobq');
$node->safe_psql('postgres', q{SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE backend_type OPERATOR(pg_catalog.~) '^jobq (sql|exec|disp)'});
$ENV{PGOPTIONS} = '-c search_path=pg_catalog';
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 AND min(pid) <> $dispatcher FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'"),
	'a new dispatcher');
my %expected = (complete => 'completed 1', fail => 'error 2', snooze => 'completed 1', snooze_error => 'completed 1', skip => 'skipped 1');
foreach my $how (sort keys %expected)
{
	my $id = $node->safe_psql('postgres', qq(SELECT jobq.enqueue('work', '{"how": "$how"}', backoff => '{"type": "exponential", "base": "1ms"}')));

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'skipped', 'error') FROM jobq.jobs WHERE id = '$id'");
	is($node->safe_psql('postgres', "SELECT status || ' ' || attempts FROM jobq.jobs WHERE id = '$id'"), $expected{$how}, "a job that should $how");
	unlike($node->safe_psql('postgres', "SELECT coalesce(error_msg, '') FROM jobq.jobs WHERE id = '$id'"), qr/captured/, 'not captured');
}
my $tool = $node->safe_psql('postgres', qq(SELECT jobq.enqueue('tool', '{"text": "free"}')));
$node->poll_query_until('postgres', "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$tool'");
is($node->safe_psql('postgres', "SELECT concat_ws(' ', status, result, error_msg) FROM jobq.jobs WHERE id = '$tool'"),
	'completed "free\n"', 'a tool');
delete $ENV{PGOPTIONS};
is($node->safe_psql('postgres', q{SELECT jobq_internal._maintain() OPERATOR(pg_catalog.>=) 0}), 't', 'maintenance');
unlike(slurp_file($node->logfile) =~ s/.*statement: .*//gr =~ s/.*lower\('A'\).*//gr, qr/\[\d+\] jobq [^\n]*captured/, 'no process of ours was captured');

# ---------- T10: objects created before the installation ----------

$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET search_path');
$node->safe_psql('postgres', 'CREATE DATABASE early TEMPLATE template0');
$node->safe_psql('early', <<'END');
GRANT CREATE ON DATABASE early TO plain;
SET SESSION AUTHORIZATION plain;
CREATE SCHEMA jobq;
CREATE FUNCTION jobq.version() RETURNS text LANGUAGE sql RETURN 'mine';
CREATE TABLE jobq.queue (mine int);
END
sqlstate_is($node, 'early', 'CREATE EXTENSION jobq', '42P06', 'CREATE EXTENSION does not adopt an existing schema');
is($node->safe_psql('early', 'SELECT jobq.version()'), 'mine', 'and leaves it alone');
sqlstate_is($node, 'early', 'SET SESSION AUTHORIZATION plain; BEGIN; DROP SCHEMA jobq CASCADE; CREATE EXTENSION jobq', '42501', 'only a superuser creates it');
$node->safe_psql('early', <<'END');
DROP SCHEMA jobq CASCADE;
CREATE SCHEMA elsewhere;
SET SESSION AUTHORIZATION plain;
CREATE SCHEMA jobq_internal;
END
sqlstate_is($node, 'early', 'CREATE EXTENSION jobq', '42P06', 'nor an existing schema for its internal functions');
$node->safe_psql('early', 'DROP SCHEMA jobq_internal');
isnt(errors_of($node, 'early', 'CREATE EXTENSION jobq SCHEMA elsewhere'), '00000', 'in no other schema');
$node->safe_psql('early', 'CREATE EXTENSION jobq');
isnt(errors_of($node, 'early', 'ALTER EXTENSION jobq SET SCHEMA elsewhere'), '00000', 'nor is it moved there');
is($node->safe_psql('early', q{SELECT DISTINCT superuser, trusted, relocatable FROM pg_available_extension_versions WHERE name = 'jobq'}), 't|f|f',
	'its control file says so');

# installed with the traps in the path
$node->safe_psql('postgres', 'DROP EXTENSION jobq');
my ($rc, undef, $err) = $node->psql('postgres', "SET search_path = attack, pg_catalog; CREATE EXTENSION jobq", on_error_stop => 1);
is($rc ? $err : '', '', 'the install script is not captured');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
