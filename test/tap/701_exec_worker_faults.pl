# Exec jobs when a process dies or must leave: no job is lost, no process is left,
# no attempt is charged wrongly.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = jobq_node('exec_faults', "jobq.shutdown_grace = '2s'", 'restart_after_crash = on');
my $dir = tools();
my $pids = "$dir/pids";
my @tools;						# processes that begin started last
my $gate = "$dir/gate";

# Reports its start, then waits for a file; ignores TERM when told to.
my $wait = tool('wait', <<'END');
#!/bin/sh
[ "$2" != stubborn ] || trap '' TERM
echo $$ >> "$1/pids"
while [ ! -e "$1/gate" ]; do sleep 0.05; done
END

sub pid_of
{
	my ($backend) = @_;
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = '$backend'");

	return $pid;
}

sub helper_pids
{
	my $worker = pid_of('jobq exec worker');

	return grep {
		my $stat = eval { slurp_file("/proc/$_/stat") } // '';	# any process may end meanwhile
		$stat =~ /^\d+ \(jobq-helper\) [^Z] $worker /;
	} map { m{/proc/(\d+)} } glob '/proc/[0-9]*';
}

# Waits until that many tools have begun.
sub wait_for_lines
{
	my ($file, $n) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 if -e $file && (() = slurp_file($file) =~ /\n/g) >= $n;
		select undef, undef, undef, 0.1;
	}
	return 0;
}

# Starts n tools; returns their jobs once they run.
sub begin
{
	my ($n, $type) = @_;
	my @ids;

	unlink $pids, $gate;
	@ids = split /\n/, $node->safe_psql('postgres',
		"SELECT jobq.enqueue_many('$type', array_fill('{}'::jsonb, ARRAY[$n]))");
	wait_for_lines($pids, $n) or diag 'the tools did not start';
	@tools = pids_in($pids);
	return @ids;
}

sub all_completed
{
	my ($what, $attempts, $runs, @ids) = @_;
	my $list = join ',', map { "'$_'" } @ids;

	tool('gate', '');
	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM jobq.jobs WHERE id IN ($list) AND status <> 'completed'");
	is($node->safe_psql('postgres', "SELECT DISTINCT status, attempts, runs FROM jobq.jobs WHERE id IN ($list)"),
		"completed|$attempts|$runs", $what);
	unlink $gate;
}

my %common = (max_attempts => 3, backoff_base => "'1ms'", timeout => "'10min'");
my $limit = 30;					# seconds: 2 for jobq, the rest for a stalled machine; a tool that blocks never ends
define_tool($node, 'wait', [ $wait, $dir ], %common, options => q('{"output": "none", "kill_grace": "1s"}'));
define_tool($node, 'wait stubborn', [ $wait, $dir, 'stubborn' ], %common, options => q('{"output": "none"}'));

# ---------- the helper dies ----------

my @ids = begin(3, 'wait');
my @helpers = helper_pids();
is(scalar @helpers, 1, 'one helper');
kill 'KILL', @helpers;
ok(wait_gone(@tools), 'its tools die with it');
$node->poll_query_until('postgres',
	"SELECT count(*) = 3 FROM jobq.events WHERE type = 'failed' AND data->>'code' = 'helper_lost'");
all_completed('kill -9 of the helper costs an attempt; a new one runs the next', 2, 2, @ids);

# ---------- a helper that cannot work ----------

{
	my $base = ($ENV{TMPDIR} // '/tmp') . '/jobq-' .
	  $node->safe_psql('postgres', 'SELECT to_hex(system_identifier) FROM pg_control_system()');
	my ($helper) = helper_pids();

	chmod 0500, $base or die "$base: $!";
	kill 'KILL', $helper;
	wait_gone($helper);
	my $job = enqueue($node, 'wait');
	$node->poll_query_until('postgres',
		"SELECT error_msg IS NOT NULL OR status = 'error' FROM jobq.jobs WHERE id = '$job'");
	is(job($node, $job)->{error_msg}, 'jobq-helper cannot work: see the server log', 'a helper cannot make its directory');
	chmod 0700, $base;
	tool('gate', '');
	my $row = finished($node, $job);
	is("$row->{status} $row->{attempts}", 'completed 1', 'no attempt is charged for it');
	unlink $gate;
}

# ---------- the exec worker is terminated ----------

@ids = begin(3, 'wait');
my $worker = pid_of('jobq exec worker');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
ok(wait_gone(@tools), 'tools are stopped when the exec worker is terminated');
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'jobq exec worker' AND pid <> $worker");
all_completed('their jobs were put back uncharged', 1, 2, @ids);

# ---------- a stray cancel ----------

@ids = begin(2, 'wait');
$worker = pid_of('jobq exec worker');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)");
is(pid_of('jobq exec worker'), $worker, 'pg_cancel_backend does not end the exec worker');
all_completed('nor any tool', 1, 1, @ids);

# ---------- fast shutdown ----------

@ids = begin(3, 'wait stubborn');
my $start = time;
$node->stop('fast');
cmp_ok(time - $start, '<=', $limit, 'fast shutdown does not wait for the tools');
ok(!alive(@tools), 'no tool is left');
$node->start;
all_completed('fast shutdown puts them back uncharged', 1, 2, @ids);

@ids = begin(2, 'wait');
$node->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_standby_names = 'nobody'));
$node->reload;
$start = time;
$node->stop('fast');
cmp_ok(time - $start, '<=', $limit, 'nor for a standby that is not there');
$node->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''\n");
$node->start;
all_completed('and puts the jobs back', 1, 2, @ids);

# ---------- the server dies ----------

@ids = begin(3, 'wait');
@helpers = helper_pids();
$node->stop('immediate');
ok(wait_gone(@tools), 'immediate stop leaves no orphan');
ok(wait_gone(@helpers), 'and no helper');
$node->start;
$node->poll_query_until('postgres', sprintf(
	"SELECT count(*) = 3 FROM jobq.events WHERE type = 'failed' AND data->>'code' = 'server_crash' AND job_id IN (%s)",
	join ',', map { "'$_'" } @ids)) or diag 'no server_crash';
all_completed('each has been charged and is retried', 2, 2, @ids);

@ids = begin(3, 'wait');
kill 'KILL', pid_of('jobq exec worker');
ok(wait_gone(@tools), 'kill -9 of the exec worker leaves no orphan');
$node->poll_query_until('postgres', 'SELECT true');
all_completed('a crash restart charges and retries them', 2, 2, @ids);

# ---------- the dispatcher dies ----------

@ids = begin(3, 'wait');
my $dispatcher = pid_of('jobq dispatcher');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($dispatcher)");
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'jobq dispatcher' AND pid <> $dispatcher");
is(scalar(() = alive(@tools)), 3, 'tools outlive the dispatcher');
all_completed('and end as if nothing had happened', 1, 1, @ids);

# ---------- DDL ----------

@ids = begin(2, 'wait');
$start = time;
$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION jobq; ROLLBACK');
cmp_ok(time - $start, '<=', $limit, 'DROP EXTENSION does not wait for tools');
all_completed('after a rollback they run again, uncharged', 1, 2, @ids);

begin(2, 'wait stubborn');
$start = time;
$node->safe_psql('postgres', 'DROP EXTENSION jobq');
cmp_ok(time - $start, '<=', $limit, 'nor for stubborn ones');
ok(wait_gone(@tools), 'which are killed');
ok($node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type IN ('jobq dispatcher', 'jobq exec worker')"),
	'all processes leave');
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
define_tool($node, 'wait', [ $wait, $dir ], %common, options => q('{"output": "none"}'));
all_completed('CREATE EXTENSION: new jobs run', 1, 1, begin(2, 'wait'));

$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION jobq');
$node->safe_psql('other', "SELECT jobq.create_job_type('s', command => '{sleep,600}', options => '{\"output\": \"none\"}')");
my $id = $node->safe_psql('other', "SELECT jobq.enqueue('s')");
$node->poll_query_until('other', "SELECT status = 'running' FROM jobq.jobs WHERE id = '$id'");
$start = time;
$node->safe_psql('postgres', 'DROP DATABASE other');
cmp_ok(time - $start, '<=', $limit, 'DROP DATABASE with a tool running');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|1[0-9])/, 'exits are 0 or 1 only');
done_testing();
