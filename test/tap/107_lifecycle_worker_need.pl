# Messages of CREATE EXTENSION, the log and health() when background workers don't
# suffice or jobq is not preloaded.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

# Returns the stderr of psql.
sub messages
{
	my ($node, $db, $sql) = @_;
	my (undef, undef, $stderr) = $node->psql($db, $sql);

	return $stderr;
}

sub new_database
{
	my ($node, $db) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	return messages($node, $db, 'CREATE EXTENSION jobq');
}

sub slots_check
{
	my ($node, $what) = @_;

	return $node->safe_psql('postgres', "SELECT jobq.health()->'checks'->'slots'->>'$what'");
}

# ---------- the sum ----------

# launcher 1; in each database dispatcher 1, SQL workers 4, exec worker 1, maintenance and conductor
# 2; the server's logical replication launcher 1
my $node = jobq_server('need', 'max_worker_processes = 8', 'max_parallel_workers = 3', 'max_logical_replication_workers = 2');
$node->start;
is(messages($node, 'postgres', 'CREATE EXTENSION jobq'), '', 'a default server: no warning');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
is(slots_check($node, 'sql_workers'), '2 of 4', 'SQL workers leave the other processes a place each');
sleeper_types($node, 'postgres');
my @busy = map { $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"seconds": 600}')}) } 1 .. 4;
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs WHERE status = 'running'}, 'two SQL jobs run');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('true', command => '{/bin/true}', options => '{"output": "none"}');
  SELECT jobq.schedule('often', 'every 1s', 'true')});
wait_for_sql($node, q{SELECT count(*) >= 2 FROM jobq.jobs WHERE job_type = 'true' AND status = 'completed'}, 'beside them ticks and tools');
my $then = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$node->reload;
wait_for_sql($node, "SELECT max(ts) > '$then' FROM jobq.disk_log", 'and maintenance');
is(slots_check($node, 'status'), 'healthy', 'health() says so');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'}), 2, 'with two SQL workers');
$node->safe_psql('postgres', q{SELECT jobq.unschedule('often'); SELECT jobq.cancel_jobs(job_type => 'sleeper', include_running => true)});

# another database gets the same share
$node->append_conf('postgresql.conf', 'max_worker_processes = 13');
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher runs again');
is(slots_check($node, 'sql_workers'), '4 of 4', 'all fit');
@busy = map { $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"seconds": 600}')}) } 1 .. 4;
wait_for_sql($node, q{SELECT count(*) = 4 FROM jobq.jobs WHERE status = 'running'}, 'four SQL jobs run');
is(new_database($node, 'other'), '', 'another database without a warning');
wait_dispatcher($node, 'other', 'its dispatcher runs');
is(slots_check($node, 'sql_workers'), '1 of 4', 'it has the same share');
$node->safe_psql('postgres', 'SELECT jobq.cancel_job(id) FROM jobq.queue ORDER BY id LIMIT 1');
sleeper_types($node, 'other');
my $there = $node->safe_psql('other', q{SELECT jobq.enqueue('sleeper')});
wait_status($node, 'other', $there, 'completed', 'workers that are too many end with their jobs, and one comes there');
$node->safe_psql('postgres', q{SELECT jobq.cancel_jobs(job_type => 'sleeper', include_running => true)});
wait_for_sql($node, q{SELECT count(*) <= 1 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND datname = 'postgres'}, 'one is left here');
$node->safe_psql('other', 'DROP EXTENSION jobq');
$node->safe_psql('postgres', 'DROP DATABASE other');

# not even one SQL worker
$node->append_conf('postgresql.conf', 'max_worker_processes = 6');
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher runs once more');
$node->safe_psql('postgres', 'DROP EXTENSION jobq');
my $said = messages($node, 'postgres', 'CREATE EXTENSION jobq');
my $sum = 'the background workers of this server add up to 10, or 7 with one SQL worker a database';
like($said, qr/^(?:psql:\S+ )?WARNING:  max_worker_processes \(6\) is too small: $sum$/m, 'CREATE EXTENSION warns');
my ($number) = $said =~ /^HINT: .*max_worker_processes = (\d+)\b/m;
is($number, 15, 'the hint has the number: 10, and 3 for parallel queries and 2 for logical replication') or diag $said;
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $log = -s $node->logfile;
$node->restart;
ok($node->wait_for_log(qr/WARNING:\s+max_worker_processes \(6\) is too small: $sum/, $log), 'the log says so at each start');

$node->append_conf('postgresql.conf', "max_worker_processes = $number");
$log = -s $node->logfile;
$node->restart;
wait_dispatcher($node, 'postgres', 'with that number');
is(new_database($node, 'second'), '', 'another database');
$node->append_conf('postgresql.conf', 'max_worker_processes = 18');
$node->restart;
wait_for_sql($node, "SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'two dispatchers run');
is(slots_check($node, 'needed'), 18, 'health() has the sum');
$node->safe_psql('second', 'ALTER DATABASE second SET jobq.max_sql_workers = 2; SELECT jobq.reload()');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'needed' = '16'}, 'with the setting of each database');
$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.max_sql_workers = 1; SELECT pg_reload_conf()');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'needed' = '13'}, 'also after a reload');
$node->safe_psql('second', 'DROP EXTENSION jobq');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'needed' = '7'}, 'a database without the extension counts no longer');
unlike(messages($node, 'second', 'CREATE EXTENSION jobq'), qr/WARNING/, 'no warning when it fits');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'needed' = '13'}, 'it is back');
unlike(slurp_file($node->logfile, $log), qr/max_worker_processes \(18\)/, 'and none in the log');

# The dispatcher reads the new setting after the launcher has refused the database.
my $refused = dispatcher($node, 'second');
kill 'STOP', $refused;
$node->append_conf('postgresql.conf', "jobq.databases = 'postgres'");
$node->reload;
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'needed' = '7'}, 'nor one that jobq.databases leaves out');
kill 'CONT', $refused;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'}, 'its dispatcher ends');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'needed' = '7'}, 'and is not counted again');
$node->stop;

# ---------- none left ----------

$node = jobq_server('none', 'max_logical_replication_workers = 0', 'max_parallel_workers = 0');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'a dispatcher');
sleeper_types($node, 'postgres');
wait_status($node, 'postgres', $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper')}), 'completed', 'today has its partitions');
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$node->restart;
wait_dispatcher($node, 'postgres', 'launcher and dispatcher take both');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'status' = 'degraded'}, 'maintenance cannot start: degraded');
like(slots_check($node, 'message'), qr/^a worker could not be started \(maintenance\): increase max_worker_processes to 9$/, 'health() says which, and the number');
my $id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper')});
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'message' ~ 'executor'}, 'a job waits for a worker');
$node->safe_psql('postgres', "SELECT jobq.stop_all('no worker'); SELECT jobq.pause_job_type('sleeper')");
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'message' !~ 'executor'}, 'until no job waits for one');
like($node->safe_psql('postgres', q{SELECT jobq.health()->>'status'}), qr/degraded|unhealthy/, 'the whole is not healthy');
$node->append_conf('postgresql.conf', 'max_worker_processes = 9');
$node->restart;
$node->safe_psql('postgres', "SELECT jobq.start_all(); SELECT jobq.resume_job_type('sleeper')");
wait_status($node, 'postgres', $id, 'completed', 'with the number the job runs');
wait_for_sql($node, q{SELECT jobq.health()->>'status' = 'healthy'}, 'and all is healthy');
$node->stop;

# ---------- not preloaded ----------

foreach my $others ('', 'auto_explain', 'auto_explain, "pg_prewarm"')
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$others'");
	$node->start;
	$node->safe_psql('postgres', 'DROP EXTENSION jobq');
	$said = messages($node, 'postgres', 'CREATE EXTENSION jobq');
	like($said, qr/^(?:psql:\S+ )?WARNING:  jobq is not preloaded: jobs are stored, and nothing runs them$/m, "preloaded: '$others'");
	my $line = "shared_preload_libraries = '" . ($others eq '' ? '' : "$others,") . "jobq'";
	like($said, qr/^HINT:  Put this line into postgresql\.conf and restart the server: \Q$line\E$/m, "the hint has the line: $line");
	$node->append_conf('postgresql.conf', $said =~ /restart the server: (.*)$/m ? $1 : '');
	$node->restart;
	wait_dispatcher($node, 'postgres', 'and with it, jobs are run');
	$node->stop;
}

done_testing();
