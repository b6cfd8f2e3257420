# The library compares its version with that of the extension's SQL, and runs that of its own
# release only.  Until ALTER EXTENSION UPDATE no job is handed out; health(), the log and all other
# calls say so.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('versions', 'jobq.max_sql_workers = 2', 'autovacuum = off', 'jobq.sweep_interval = 100ms');
$node->start;
my $library = $node->safe_psql('postgres', "CREATE EXTENSION jobq; SELECT extversion FROM pg_extension WHERE extname = 'jobq'");
$node->safe_psql('postgres', 'DROP EXTENSION jobq');

sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sub wait_true
{
	my ($query, $what) = @_;

	return ok($node->poll_query_until('postgres', $query), $what);
}

# One job for each outcome.
sub runs
{
	my ($what) = @_;
	my ($done, $dead) = split /\|/, sql(q{SELECT jobq.enqueue('t'), jobq.enqueue('t', '{"fail": 1}')});

	wait_status($node, 'postgres', $done, 'completed', "$what: a job is completed");
	wait_status($node, 'postgres', $dead, 'error', 'one fails');
	is(sql("SELECT count(*) FROM jobq.events WHERE job_id IN ('$done', '$dead') AND type IN ('completed', 'dead')"), 2,
		'with their events');
	return;
}

# Calls fail with both versions and the remedy.
sub refused
{
	my ($installed, $remedy, @calls) = @_;

	foreach my $call (@calls)
	{
		my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$call;", on_error_stop => 1);

		like($err, qr/ERROR:  55000: .*the library is jobq $library, the extension in this database is version $installed\n.*HINT:  $remedy/s, "refused: $call");
	}
	return;
}

# The same for health(), which works.
sub health_says
{
	my ($installed, $remedy) = @_;

	return wait_true("SELECT h->>'status' = 'unhealthy' AND h->'checks'->'queues'->>'message' ~"
		  . " 'no job runs: the library is jobq $library, the extension in this database is version $installed. $remedy'"
		  . " AND h->'checks'->'dispatcher'->>'status' = 'healthy' FROM (SELECT jobq.health() h) s",
		"over version $installed health names both versions and the remedy");
}

# ---------- the SQL of the previous release ----------

my $update = 'Run ALTER EXTENSION jobq UPDATE';
sql("CREATE EXTENSION jobq VERSION '0.1.0'", <<'END');
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF p ? 'fail' THEN RAISE 'told to'; END IF; END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
health_says('0.1.0', $update);
refused('0.1.0', $update, "SELECT jobq.enqueue('t')", "SELECT jobq.enqueue_many('t', ARRAY['{}'::jsonb])", q{SELECT jobq.enqueue_jobs('[{"job_type": "t"}]')},
	"SELECT jobq.create_job_type('t', 'work(jsonb)')", q{SELECT jobq._check_options('{}', true)}, "SELECT jobq.create_signal('s', 'true')",
	map { "SELECT jobq.$_('0190a5b8-1111-7111-8111-111111111111')" } qw(wait_for run_inline cancel_job));
is(sql('SELECT count(*), jobq.version() FROM jobq.jobs'), '0|0.1.0', 'the tables can be read');
sql('CREATE ROLE other', 'GRANT CREATE ON DATABASE postgres TO other', 'SET ROLE other', 'CREATE SCHEMA jobq_internal');
my ($rc, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nALTER EXTENSION jobq UPDATE", on_error_stop => 1);
like($err, qr/ERROR:  42P06: schema "jobq_internal" exists already and does not belong to extension "jobq"\n.*HINT:  Rename it/s,
	'the update refuses a foreign schema of the name that it needs');
is(sql('SELECT jobq.version()'), '0.1.0', 'and changes nothing');
sql('ALTER SCHEMA jobq_internal RENAME TO mine', 'ALTER EXTENSION jobq UPDATE',
	q{SELECT jobq.create_job_type('t', 'work(jsonb)', max_attempts => 1, options => '{"events": "all"}')});
runs('after the update');

# ---------- versions that this library does not know ----------

# the statement trigger notifies every process, as the update script does
sub set_version
{
	my ($version) = @_;

	sql("UPDATE pg_extension SET extversion = '$version' WHERE extname = 'jobq'", 'UPDATE jobq.job_types SET paused = paused WHERE false');
	return;
}

my $waiting = sql("SELECT jobq.enqueue('t', delay => '1s')");
foreach my $case ([ '99.0.0', 'Install that version.s library and restart the server' ], [ '0.0.1', $update ])
{
	my ($version, $remedy) = @$case;

	set_version($version);
	health_says($version, $remedy);
	refused($version, $remedy, "SELECT jobq.enqueue('t')", "SELECT jobq.enqueue_many('t', ARRAY['{}'::jsonb])", "SELECT jobq.pause_job_type('t')",
	  "SELECT jobq.cancel_job('$waiting')", "UPDATE jobq.queue SET priority = 1 WHERE id = '$waiting'");
}
wait_true("SELECT clock_timestamp() > scheduled_for FROM jobq.queue WHERE id = '$waiting'",
	'the job is due');
is(sql("SELECT runs FROM jobq.queue WHERE id = '$waiting'"), 0, 'and has not begun');
set_version($library);
wait_status($node, 'postgres', $waiting, 'completed', 'it runs when the version is known again');
wait_true("SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'", 'and health finds nothing');
set_version('99.0.0');
wait_true("SELECT jobq.health()->>'status' = 'unhealthy'", 'once more');
sql('DROP EXTENSION jobq CASCADE');
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'jobq %er' AND datname = 'postgres')"),
	'and it can be dropped');
$node->stop;
like(slurp_file($node->logfile), qr/jobq: no job runs: the library is jobq \Q$library\E, the extension in this database is version \Q$_\E/,
	"the log names the library's version and $_") foreach '0.1.0', '99.0.0';
done_testing();
