# Processes that die during a run, servers that crash, copies of the database: each task has its
# effect once, and the run ends.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('faults', 'log_min_messages = info', 'restart_after_crash = on');

sub run_wide { return start_run('wide', sprintf('{"list": [%s]}', join(',', map { qq({"result": $_}) } 0 .. 199))); }

workflow('wide', '[{"key": "a", "job_type": "act"}, {"key": "m", "job_type": "act", "map": "$.input.list", "after": ["a"]}, {"key": "j", "after": ["m"]},
  {"key": "z", "job_type": "act", "after": ["j"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');

sub run_is_whole
{
	my ($run, $what) = @_;

	run_is($run, 'completed', "$what: the run ends");
	is(one("SELECT count(*), count(DISTINCT key) FROM ran WHERE run = '$run'"), '202|202', "!$what: each task once");
	is(one("SELECT result -> 'z' = (SELECT jsonb_agg(i ORDER BY i) FROM generate_series(0, 199) i) FROM jobq.jobs WHERE id = '$run'"), 't', "$what: the result is whole");
	return;
}

# Waits until that many members of the run have an effect, or it has ended.
sub progress_of
{
	my ($run, $n) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) >= $n FROM ran WHERE run = '$run'");
	return;
}

# ---------- processes ----------

# kill -9 of a process makes the server restart all of them.
foreach my $case ([ 'conductor', 0 ], [ 'conductor', 1 ], [ 'conductor', 60 ], [ 'dispatcher', 30 ], [ 'SQL worker', 90 ], [ 'conductor', 200 ])
{
	my ($type, $n) = @$case;
	my $run = run_wide();

	progress_of($run, $n) if $n > 0;
	my $former = dispatcher($node, 'postgres');
	my ($pid) = split /\n/, one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq $type' LIMIT 1");
	if ($pid && kill 'KILL', $pid)
	{
		ok($node->poll_query_until('postgres', "SELECT count(*) = 1 AND bool_and(pid <> $former) FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'"),
			"kill -9 of a $type after $n tasks: the server works again");
	}
	run_is_whole($run, "kill -9 of a $type after $n tasks");
}

# A terminated process is started again alone.
foreach my $type ('conductor', 'dispatcher', 'SQL worker')
{
	my $run = run_wide();

	foreach my $n (40, 120)
	{
		progress_of($run, $n);
		one("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq $type'");
	}
	run_is_whole($run, "a $type is terminated");
}

# ---------- the server ----------

foreach my $n (1, 50, 150)
{
	my $run = run_wide();

	progress_of($run, $n);
	$node->stop('immediate');
	$node->start;
	run_is_whole($run, "a crash of the server after $n tasks");
}
my $run = run_wide();
progress_of($run, 100);
$node->restart;
run_is_whole($run, 'a restart of the server');

# ---------- no conductor ----------

my $conductor;
$run = start_run('wide', '{"list": []}');
run_is($run, 'completed');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq conductor'"), 'a conductor runs');
$conductor = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});
freeze($node, $conductor);
$run = run_wide();
is(one(q{SELECT jobq.enqueue('act') IS NOT NULL}), 't', 'plain jobs are enqueued');
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM ran WHERE run IS NULL)}, 'and run while the conductor is stopped');
is(one("SELECT status FROM jobq.queue WHERE id = '$run'"), 'pending', 'the run waits');
kill 'CONT', $conductor;
run_is_whole($run, 'the conductor goes on');

# ---------- reload, copies ----------

$run = run_wide();
progress_of($run, 20);
one('SELECT jobq.reload()');
run_is_whole($run, 'reload');

workflow('waits', '[{"key": "a", "job_type": "act"}, {"key": "e", "event": "go", "after": ["a"]}, {"key": "m", "job_type": "act", "map": "$.input.list", "after": ["e"]},
  {"key": "z", "job_type": "act", "after": ["m"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
$run = start_run('waits', '{"list": [{"result": 1}, {"result": 2}]}');
my $delayed = start_run('waits', '{"list": [{"result": 3}]}', q{delay => '2 days'});
wait_for_sql($node, "SELECT started_at IS NOT NULL FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'e'", 'a run waits for its event');
my $dump = $node->basedir . '/runs.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump with a live run');
one('CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '-d', $node->connstr('copy'), $dump ], 'pg_restore');
is($node->safe_psql('copy', 'SELECT count(*) FROM jobq.runs'), one('SELECT count(*) FROM jobq.runs'), 'runs are restored');
$node->safe_psql('copy', 'SELECT jobq.adopt()');
is($node->safe_psql('copy', "SELECT jobq.send_event('$run', 'go')"), 't', 'send_event in the copy');
ok($node->poll_query_until('copy', "SELECT status = 'completed' FROM jobq.jobs WHERE id = '$run'"), 'the run goes on there')
  or diag($node->safe_psql('copy', "SELECT string_agg(format('%s %s %s %s', task_key, status, error_code, error_msg), E'\\n') FROM jobq.jobs WHERE '$run' IN (id, workflow_id)"));
is($node->safe_psql('copy', "SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"z": [1, 2]}', 'and ends');
is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', 'the original waits');
is(one("SELECT jobq.send_event('$run', 'go')"), 't', 'for its own event');
run_is($run, 'completed');

# ---------- DROP ----------

my $other = start_run('waits', '{"list": []}');
wait_for_sql($node, "SELECT started_at IS NOT NULL FROM jobq.queue WHERE workflow_id = '$other' AND task_key = 'e'", 'a run waits');
is(one(q{SELECT jobq.drop_job_type('waits', force => true) IS NOT NULL}), 't', 'drop_job_type of its workflow');
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue}, 'the run and its tasks are gone');
$run = run_wide();
progress_of($run, 20);
one('DROP EXTENSION jobq CASCADE');
one('CREATE EXTENSION jobq');
one(q{SELECT jobq.create_job_type('act', 'act(jsonb)')});
workflow('wide', '[{"key": "a", "job_type": "act"}]');
run_is(start_run('wide'), 'completed', 'DROP EXTENSION during a run, and a new one');
$node->safe_psql('copy', 'DROP EXTENSION jobq CASCADE');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq: a run could/, 'no crash');

done_testing();
