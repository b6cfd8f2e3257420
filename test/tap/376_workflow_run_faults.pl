# Processes that die during a run, servers that crash, copies of the database: each task has its
# effect once, and the run ends.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('faults', 'log_min_messages = info', 'restart_after_crash = on');

# Starts a run with the gate at that element; -1: at the step before the map.
sub run_wide
{
	my ($gate) = @_;
	my $at = $gate // 200;

	return start_run('wide', sprintf('{"a": {%s}, "list": [%s]}', $at < 0 ? '"gate": 1' : '',
			join(',', map { qq({"result": $_) . ($_ == $at ? ', "gate": 1}' : '}') } 0 .. 199)));
}

workflow('wide', '[{"key": "a", "job_type": "gated", "payload": {"$": "$.input.a", "default": {}}}, {"key": "m", "job_type": "gated", "map": "$.input.list", "after": ["a"]}, {"key": "j", "after": ["m"]},
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

# Starts a run; returns it when a worker, whose pid is returned, too, waits at the gate.
my $at_gate = q{FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'PgSleep'};
sub run_to_gate
{
	my ($gate, $what) = @_;

	one('INSERT INTO gate DEFAULT VALUES');
	my $run = run_wide($gate);
	my $worker = '';
	for (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$worker = one("SELECT pid $at_gate LIMIT 1");  # between two of its naps it is not there
		last if $worker ne '';
	}
	isnt($worker, '', "$what: a task of the run is in its handler");
	return ($run, $worker);
}

sub open_gate { return one('DELETE FROM gate'); }

# Returns the pid of a process of jobq that is there, or will be.
sub pid_of
{
	my ($type) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'jobq $type'");
	return (jobq_pids($node, $type))[0];
}

# ---------- processes ----------

# kill -9 of a process makes the server restart all of them.
my @killed;
foreach my $case ([ 'conductor', -1 ], [ 'conductor', 1 ], [ 'conductor', 60 ], [ 'dispatcher', 30 ], [ 'sql worker', 90 ], [ 'conductor', 199 ])
{
	my ($type, $n) = @$case;
	my $what = "kill -9 of a $type at element $n";
	my ($run, $worker) = run_to_gate($n, $what);
	my $former = dispatcher($node, 'postgres');

	push @killed, $type if kill 'KILL', $type eq 'sql worker' ? $worker : pid_of($type);
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 AND bool_and(pid <> $former) FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'"),
		"$what: the server works again");
	is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', "$what: the run lives");
	open_gate();
	run_is_whole($run, $what);
}
is(join(', ', @killed), 'conductor, conductor, conductor, dispatcher, sql worker, conductor', 'all of them were killed');

# A terminated process is started again alone.
foreach my $type ('conductor', 'dispatcher', 'sql worker')
{
	foreach my $n (40, 120)
	{
		my $what = "a $type is terminated at element $n";
		my ($run) = run_to_gate($n, $what);
		my $pid = pid_of($type);

		is(one("SELECT count(*) FROM (SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity WHERE backend_type = 'jobq $type') t WHERE done") > 0, 1, $what);
		wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", "$what: it has ended");
		open_gate();
		run_is_whole($run, $what);
	}
}

# ---------- the server ----------

foreach my $n (1, 50, 150)
{
	my ($run) = run_to_gate($n, "a crash of the server at element $n");

	$node->stop('immediate');
	$node->start;
	is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', "a crash of the server at element $n: the run lives");
	open_gate();
	run_is_whole($run, "a crash of the server at element $n");
}
my ($run) = run_to_gate(100, 'a restart of the server');
$node->restart;
is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', 'a restart of the server: the run lives');
open_gate();
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
