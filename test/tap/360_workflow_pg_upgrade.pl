# pg_upgrade keeps live runs: the new server goes on with them by itself, and each task has its
# effect once.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $old = run_server('before');
my $new = jobq_server('after', 'jobq.max_sql_workers = 2', 'fsync = off');

# ---------- the old server ----------

one(q{SELECT jobq.alter_job_type('gated', options => '{"batch": false}')});
workflow('wide', '[{"key": "a", "job_type": "act"}, {"key": "m", "job_type": "gated", "map": "$.input.list", "after": ["a"]}, {"key": "j", "after": ["m"]},
  {"key": "z", "job_type": "act", "after": ["j"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
workflow('waits', '[{"key": "e", "event": "go"}, {"key": "d", "delay": "1 min"}, {"key": "l", "event": "never", "timeout": "1 min", "on_failure": "continue"},
  {"key": "z", "job_type": "act", "after": ["e", "d", "l"], "rule": "done"}]');
workflow('claimed', '[{"key": "p", "job_type": "pulled"}, {"key": "z", "job_type": "act", "after": ["p"], "payload": {"result": {"$": "$.tasks.p.result"}}}]');
workflow('outer', '[{"key": "s", "job_type": "waits"}, {"key": "z", "job_type": "act", "after": ["s"]}]');
workflow('paused', '[{"key": "a", "job_type": "act", "delay": "10 s"}]');
workflow('fails', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]');
my %run = (paused => start_run('paused'));
wait_for_sql($old, "SELECT EXISTS (SELECT FROM jobq.runs WHERE id = '$run{paused}')", 'a run has begun');
one("SELECT jobq.pause_workflow('$run{paused}', 'for the upgrade')");
$run{$_} = start_run($_) foreach qw(waits claimed outer);
my ($id, $token) = claim_one(q{, lease => '1 hour'});
$run{fails} = tasks_are('fails', '{}', 'error', 'a:completed b:error', 'a dead run');
wait_for_sql($old, q{SELECT count(*) = 6 FROM jobq.queue WHERE status = 'blocked' AND after_state >= 4 AND task_key <> 'a'}, 'runs wait');
my $sub = one("SELECT id FROM jobq.queue WHERE workflow_id = '$run{outer}' AND task_key = 's'");
# a kept result is newer than the upgrade
$run{early} = one(q{SELECT jobq.enqueue('waits', delay => '1 day')});
is(one("SELECT jobq.send_event('$run{early}', 'go', '5')"), 't', 'an event for a run that has not started');
one('INSERT INTO gate DEFAULT VALUES');
$run{wide} = start_run('wide', sprintf('{"list": [%s]}', join(',', map { qq({"result": $_) . ($_ == 199 ? ', "gate": 1}' : '}') } 0 .. 199)));
$old->poll_query_until('postgres', "SELECT count(*) >= 40 FROM ran WHERE run = '$run{wide}'");
$old->stop;

# ---------- pg_upgrade ----------

chdir $PostgreSQL::Test::Utils::tmp_check or BAIL_OUT("chdir: $!");
my $bin = $old->config_data('--bindir');
command_ok(
	[
		'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin, '-s', $new->host,
		'-p', $old->port, '-P', $new->port
	],
	'pg_upgrade with live runs');
$new->start;

sub new { return $new->safe_psql('postgres', $_[0]); }

sub run_ends
{
	my ($name, $status) = @_;

	ok($new->poll_query_until('postgres', "SELECT status = '$status' FROM jobq.jobs WHERE id = '$run{$name}'"), "run $name: $status")
	  or diag(new("SELECT string_agg(format('%s %s %s', task_key, status, error_msg), E'\\n') FROM jobq.jobs WHERE '$run{$name}' IN (id, workflow_id)"));
	return;
}

wait_dispatcher($new, 'postgres', 'the dispatcher runs');
is(new("SELECT status FROM jobq.jobs WHERE id = '$run{wide}'"), 'running', 'a run was cut');
new('DELETE FROM gate');
run_ends('wide', 'completed');
new("UPDATE jobq.run_timers SET due = now() WHERE id IN (SELECT id FROM jobq.queue WHERE after_state >= 4 AND task_key IN ('d', 'l'))");
is(new("SELECT count(*), count(DISTINCT key) FROM ran WHERE run = '$run{wide}'"), '202|202', '!each task has had its effect once');
is(new("SELECT result -> 'z' = (SELECT jsonb_agg(i ORDER BY i) FROM generate_series(0, 199) i) FROM jobq.jobs WHERE id = '$run{wide}'"), 't', 'the result is whole');
is(new("SELECT jobq.send_event('$_', 'go')"), 't', 'an event is sent') foreach $run{waits}, $sub;
run_ends($_, 'completed') foreach qw(waits outer);
is(new("SELECT jobq.complete('$id', '$token', '7')"), 't', 'a lease goes on');
run_ends('claimed', 'completed');
is(new("SELECT result FROM jobq.jobs WHERE id = '$run{claimed}'"), '{"z": 7}', 'with its result');
is(new("SELECT paused_reason, status FROM jobq.workflow_runs WHERE id = '$run{paused}'"), 'for the upgrade|running', 'a pause stays');
is(new("SELECT jobq.resume_workflow('$run{paused}')"), 't', 'and is ended');
run_ends('paused', 'completed');
is(new("SELECT jobq.alter_job('$run{early}', scheduled_for => now())"), 't', 'a run that had not started');
run_ends('early', 'completed');
is(new("SELECT result FROM jobq.jobs WHERE workflow_id = '$run{early}' AND task_key = 'e'"), '5', 'has the event that was sent before');
new(q{CREATE OR REPLACE FUNCTION act(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p'});
is(new("SELECT jobq.retry_workflow('$run{fails}')"), 't', 'a dead run is retried');
run_ends('fails', 'completed');
is(new('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
is(new(q{SELECT version, is_active FROM jobq.workflows WHERE name = 'wide'}), '1|t', 'definitions are kept');
is(new(q{SELECT jobq.create_workflow('wide', '[{"key": "a", "job_type": "act"}]')}), '2', 'and take a further version');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed') foreach $old, $new;
done_testing();
