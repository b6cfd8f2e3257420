# Odd settings of a role or a database do not break the processes of jobq: immediate timeouts,
# read-only, isolation, formats, paths.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('settings', 'jobq.max_sql_workers = 2');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE tenant LOGIN;
GRANT EXECUTE ON FUNCTION jobq.current_job, jobq.log_event, jobq.set_progress TO tenant;
CREATE TABLE ledger (job uuid, at timestamptz DEFAULT now());
GRANT INSERT ON ledger TO tenant;
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(0.1), jobq.log_event('working', data => '{"a": 1}'), jobq.set_progress(12.5, '{"half": true}');
  INSERT INTO public.ledger SELECT id FROM jobq.current_job();
  IF p ? 'fail' AND (SELECT attempts FROM jobq.current_job()) < 2 THEN RAISE 'not yet'; END IF;
  IF p ? 'snooze' AND (SELECT runs FROM jobq.current_job()) < 2 THEN
    RAISE 'later' USING ERRCODE = 'JQ003', DETAIL = '00:00:00.01';
  END IF;
  RETURN jsonb_build_object('back\slash', 1.5, 'at', now());
END $$;
SELECT jobq.create_job_type('work', 'work(jsonb)', run_as => 'tenant', max_attempts => 2, backoff_base => '10ms');
SELECT jobq.create_job_type('tool', command => '{echo,"{text}"}', options => '{"output": "text"}', backoff_base => '10ms');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Settings of this test's own sessions, against those of the database.
$ENV{PGOPTIONS} = join ' ', map { "-c $_" } qw(statement_timeout=0 lock_timeout=0 idle_in_transaction_session_timeout=0
  default_transaction_read_only=off row_security=on datestyle=ISO standard_conforming_strings=on search_path=public
  client_min_messages=notice), 'default_transaction_isolation=read\ committed';

# Runs jobs of all kinds with new processes; all must end as with default settings.
my $keep = 0;

sub check_work
{
	my ($what) = @_;
	my $former = dispatcher($node, 'postgres') // 0;

	$keep++;    # a missing partition, for the maintenance process to create
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type ~ '^jobq (sql|exec|disp|main)'});
	wait_dispatcher($node, 'postgres', "$what: a new dispatcher", $former);
	my $ids = $node->safe_psql('postgres', <<"END");
SELECT array_agg(id) FROM (
  SELECT jobq.enqueue('work', p, delay => d, unique_key => u, backoff => '{"type": "fixed", "base": "20ms"}', keep_completed => k)
    FROM (VALUES ('{}'::jsonb, NULL::interval, NULL, NULL::interval), ('{"fail": 1}', NULL, NULL, NULL), ('{"snooze": 1}', NULL, NULL, NULL),
      ('{"late": 1}', '300ms', NULL, NULL), ('{"unique": 1}', NULL, 'k', NULL), ('{"kept": 1}', NULL, NULL, '${keep}00 days')) v(p, d, u, k)
  UNION ALL SELECT jobq.enqueue('tool', '{"text": "it''s \\\\"}')) x(id)
END
	ok($node->poll_query_until('postgres', "SELECT count(*) = 7 FROM jobq.jobs WHERE id = ANY ('$ids') AND status = 'completed'"),
		"$what: all jobs complete")
	  or diag $node->safe_psql('postgres', "SELECT payload, status, attempts, error_code, error_msg FROM jobq.jobs WHERE id = ANY ('$ids')");
	is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT attempts::text, ' ') FROM jobq.jobs WHERE id = ANY ('$ids') AND NOT payload ? 'fail'"),
		'1', "$what: with one attempt");
	is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT job) FROM ledger WHERE job = ANY ('$ids')"), '6|6', "!$what: effects are there once");
	is($node->safe_psql('postgres', "SELECT string_agg(result::text, '') FROM jobq.jobs WHERE id = ANY ('$ids') AND job_type = 'tool'"),
		q("it's \\\\\\n"), "$what: the tool's result");
	return;
}

# PostgreSQL 19 has standard-conforming strings only
my @strings = $node->safe_psql('postgres', 'SHOW server_version_num') >= 190000 ? () :
  ('standard_conforming_strings = off', "backslash_quote = 'off'", 'escape_string_warning = on');
my @settings = (
	[ 'timeouts' => "statement_timeout = '1ms'", "lock_timeout = '1ms'", "idle_in_transaction_session_timeout = '1ms'" ],
	[ 'read-only' => 'default_transaction_read_only = on' ],
	[ 'serializable' => "default_transaction_isolation = 'serializable'", 'default_transaction_deferrable = on' ],
	[ 'formats' => "datestyle = 'SQL, DMY'", "intervalstyle = 'sql_standard'", "timezone = 'Asia/Kathmandu'", "bytea_output = 'escape'",
		'extra_float_digits = -15', @strings, 'quote_all_identifiers = on' ],
	[ 'paths' => "search_path = ''", 'row_security = off', 'check_function_bodies = off', "default_tablespace = ''", 'transform_null_equals = on' ],
	[ 'planner' => 'enable_indexscan = off', 'enable_seqscan = off', 'enable_sort = off', 'enable_nestloop = off', 'enable_hashjoin = off',
		'plan_cache_mode = force_generic_plan' ],
	[ 'messages' => "client_min_messages = 'error'", "log_min_messages = 'fatal'", 'log_statement = none', "synchronous_commit = 'remote_apply'",
		"work_mem = '64kB'", "session_replication_role = 'replica'" ],
);
foreach my $set (@settings)
{
	my ($name, @values) = @$set;

	foreach my $where ('ROLE tenant', 'DATABASE postgres')
	{
		$node->safe_psql('postgres', join ';', map { "ALTER $where SET $_" } @values);
		check_work("$name of $where");
		$node->safe_psql('postgres', "ALTER $where RESET ALL");
	}
}

# all settings at once, for all roles
$node->safe_psql('postgres', join ';', map { "ALTER ROLE ALL SET $_" } map { @{$_}[ 1 .. $#$_ ] } @settings[ 0 .. 4 ]);
check_work('all of it');
$node->safe_psql('postgres', 'ALTER ROLE ALL RESET ALL');

# a client with odd settings
$ENV{PGOPTIONS} = '-c datestyle=SQL,DMY -c intervalstyle=sql_standard -c search_path= -c row_security=off' . (@strings ? ' -c standard_conforming_strings=off' : '');
my $id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('work', '{"client": 1}', delay => '0:00:00.1', keep_completed => '1 00:00:00')});
is($node->safe_psql('postgres', q{SELECT jobq.create_job_type('u0 8: an odd name', 'public.work(jsonb)', keep_completed => '1 0:00:00')}), '', 'it makes a job type');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.list_jobs(job_type => 'work', max_rows => 1)}), '1', 'it lists jobs');
$ENV{PGOPTIONS} = '';
wait_status($node, 'postgres', $id, 'completed', 'the job of a client with odd settings completes');

# ---------- a setting changed while the workers are always busy ----------

$node->safe_psql('postgres', <<'END');
CREATE TABLE seen (wave int, setting text);
CREATE FUNCTION looks(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM count(*) FROM generate_series(1, 5000);
  INSERT INTO public.seen VALUES ((p->>'wave')::int, current_setting('work_mem'));
END $$;
SELECT jobq.create_job_type('looks', 'looks(jsonb)');
SELECT count(*) FROM jobq.enqueue_many('looks', array_fill('{"wave": 1}'::jsonb, ARRAY[10000]));
END
wait_for_sql($node, 'SELECT count(*) > 500 FROM seen', 'a backlog is worked off');
$node->safe_psql('postgres', q{ALTER SYSTEM SET work_mem = '5MB'});
$node->reload;
wait_for_sql($node, q{SELECT current_setting('work_mem') = '5MB'}, 'all processes have read another setting');
$node->safe_psql('postgres', q{SELECT count(*) FROM jobq.enqueue_many('looks', array_fill('{"wave": 2}'::jsonb, ARRAY[100]))});
wait_for_sql($node, 'SELECT count(*) = 100 FROM seen WHERE wave = 2', 'later jobs run');
is($node->safe_psql('postgres', 'SELECT DISTINCT setting FROM seen WHERE wave = 2'), '5MB', 'with the new setting');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
