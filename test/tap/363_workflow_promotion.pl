# A standby is promoted in the middle of runs: each SQL task has its effect once, claims and timers
# go on there, and the runs end.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $primary = run_server('primary', 'hot_standby_feedback = on', 'wal_keep_size = 1GB');

one(q{SELECT jobq.alter_job_type('gated', options => '{"batch": false}')});
workflow('wide', '[{"key": "a", "job_type": "act"}, {"key": "m", "job_type": "gated", "map": "$.input.list", "after": ["a"]}, {"key": "j", "after": ["m"]},
  {"key": "z", "job_type": "act", "after": ["j"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
workflow('waits', '[{"key": "e", "event": "go"}, {"key": "d", "delay": "3 s"}, {"key": "l", "event": "never", "timeout": "4 s", "on_failure": "continue"},
  {"key": "z", "job_type": "act", "after": ["e", "d", "l"], "rule": "done"}]');
workflow('claimed', '[{"key": "p", "job_type": "pulled"}, {"key": "z", "job_type": "act", "after": ["p"], "payload": {"result": {"$": "$.tasks.p.result"}}}]');
workflow('late', '[{"key": "e", "event": "never"}]', q{options => '{"timeout": "5 s"}'});
$primary->backup('base');

my @members = (0 .. 199);
my $list = join ',', map { qq({"result": $_) . ($_ == 199 ? ', "gate": 1}' : '}') } @members;
my $n = 0;

# Starts runs on the primary, promotes a standby of it when that many tasks of the wide run have had
# their effects, and tests that all runs end there.
sub promoted_after
{
	my ($tasks) = @_;
	my $standby = PostgreSQL::Test::Cluster->new('standby' . ++$n);

	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	my %run = map { $_ => start_run($_) } qw(waits claimed late);
	my ($id, $token) = claim_one();
	my $parent = one(q{SELECT jobq.enqueue('pulled')});
	my ($child, $behind) = map { one("SELECT jobq.enqueue('act', '{\"result\": 9}', after => '{$_}')") } $parent, $id;
	my (undef, $parents_token) = claim_one();
	wait_for_sql($primary, "SELECT after_state = 4 FROM jobq.queue WHERE workflow_id = '$run{waits}' AND task_key = 'e'", 'a run waits');
	$primary->wait_for_catchup($standby, 'replay');
	is($standby->safe_psql('postgres', "SELECT round(progress), tasks FROM jobq.workflow_runs WHERE id = '$run{claimed}'"), '0|{"blocked": 1, "running": 1}',
		'jobq.workflow_runs on a standby');
	is($standby->safe_psql('postgres', "SELECT jobq.graph(id => '$run{waits}') ~ 'blocked'"), 't', 'jobq.graph, too');
	sqlstate_is($standby, 'postgres', "SELECT jobq.send_event('$run{waits}', 'go')", '25006', 'no call changes a run');
	one('INSERT INTO gate DEFAULT VALUES');
	$run{wide} = start_run('wide', qq({"list": [$list]}));
	$primary->poll_query_until('postgres', "SELECT count(*) >= $tasks FROM ran WHERE run = '$run{wide}'");
	wait_for_sql($standby, "SELECT EXISTS (SELECT FROM jobq.jobs WHERE id = '$run{wide}')", 'the standby has the run');
	$primary->stop('immediate');
	$standby->promote;
	wait_dispatcher($standby, 'postgres', "promoted after $tasks tasks");
	like($standby->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$run{wide}'"), $tasks > 0 ? qr/running/ : qr/pending|running/, 'a run was cut');
	$standby->safe_psql('postgres', 'DELETE FROM gate');
	is($standby->safe_psql('postgres', "SELECT string_agg(status::text, ' ') FROM jobq.jobs WHERE id IN ('$child', '$behind')"), 'blocked blocked',
		'jobs that wait for a job, and for a task, wait there');
	is($standby->safe_psql('postgres', "SELECT jobq.complete('$parent', '$parents_token')"), 't', 'the job that one waits for ends');
	is($standby->safe_psql('postgres', "SELECT jobq.send_event('$run{waits}', 'go')"), 't', 'an event is sent there');
	is($standby->safe_psql('postgres', "SELECT jobq.complete('$id', '$token', '7')"), 't', 'the holder of a lease completes its task there');
	my %end = (waits => 'completed', claimed => 'completed', wide => 'completed', late => 'error');
	foreach my $name (sort keys %end)
	{
		ok($standby->poll_query_until('postgres', "SELECT status = '$end{$name}' FROM jobq.jobs WHERE id = '$run{$name}'"), "run $name: $end{$name}")
		  or diag($standby->safe_psql('postgres', "SELECT string_agg(format('%s %s %s', task_key, status, error_msg), E'\\n') FROM jobq.jobs WHERE '$run{$name}' IN (id, workflow_id)"));
	}
	ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 AND bool_and(status = 'completed' AND result = '9') FROM jobq.jobs WHERE id IN ('$child', '$behind')"),
		'the jobs that waited for others run');
	is($standby->safe_psql('postgres', "SELECT c.started_at >= p.completed_at FROM jobq.jobs c, jobq.jobs p WHERE c.id = '$child' AND p.id = '$parent'"), 't', 'after these');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM jobq.dependencies WHERE child_id IN ('$child', '$behind')"), '0', 'and have no edge');
	is($standby->safe_psql('postgres', "SELECT count(*), count(DISTINCT key) FROM ran WHERE run = '$run{wide}'"), '202|202', '!each task has had its effect once');
	is($standby->safe_psql('postgres', "SELECT result -> 'z' = '[" . join(',', @members) . "]' FROM jobq.jobs WHERE id = '$run{wide}'"), 't', 'the result is whole');
	is($standby->safe_psql('postgres', "SELECT result FROM jobq.jobs WHERE id = '$run{claimed}'"), '{"z": 7}', 'that of the claimed task, too');
	is($standby->safe_psql('postgres', "SELECT error_code FROM jobq.jobs WHERE id = '$run{late}'"), 'timeout', 'the deadline comes there');
	is($standby->safe_psql('postgres', "SELECT string_agg(task_key || ':' || status, ' ' ORDER BY task_key) FROM jobq.jobs WHERE workflow_id = '$run{waits}'"),
		'd:completed e:completed l:error z:completed', 'so do a delay and the time limit of an event');
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM jobq.queue WHERE coalesce(workflow_id, id) IN ($$' . join('$$,$$', values %run) . '$$)'), '0', 'no row of them is left');
	is($standby->safe_psql('postgres', "SELECT jobq.health()->'checks'->'identity'->>'status'"), 'healthy', 'it is the same database');
	unlike(slurp_file($standby->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
	$standby->stop;
	return;
}

foreach my $tasks (0, 20, 150)
{
	promoted_after($tasks);
	next if $tasks == 150;
	$primary->start;
	wait_dispatcher($primary, 'postgres', 'the primary again, for the next one');
	one('DELETE FROM gate');
}
done_testing();
