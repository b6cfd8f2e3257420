# Workflows and job types that keep a number of jobs.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('counts');

# A run keeps its tasks, whatever number their type keeps, while it lives and as long as it is kept.
one(q{SELECT jobq.create_job_type('counted', 'act(jsonb)', max_attempts => 1, options => '{"keep_completed_count": 0, "keep_dead_count": 0}')});
workflow('few', '[{"key": "a", "job_type": "counted", "payload": {"result": 7}}, {"key": "f", "job_type": "counted", "payload": {"end": "fail"}, "on_failure": "continue"},
  {"key": "hold", "job_type": "pulled", "after": ["a", "f"], "rule": "done"},
  {"key": "b", "job_type": "counted", "after": ["hold"], "payload": {"result": {"$": "$.tasks.a.result"}, "end": {"$": "$.input.end", "default": "well"}}}]',
	q{options => '{"keep_completed_count": 2, "keep_dead_count": 1, "critical": true}'});
my @few = map { start_run('few', $_) } ('{}') x 3, ('{"end": "fail"}') x 2;
my %held = map { my ($id, $token) = claim_one(); (one("SELECT workflow_id FROM jobq.queue WHERE id = '$id'") => [ $id, $token ]) } @few;
one(q{SELECT jobq.enqueue('counted') FROM generate_series(1, 3)});
# Maintenance runs after a reload.
sub maintain
{
	$node->reload;
	return wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'counted' AND workflow_id IS NULL)", 'maintenance has been there');
}
maintain();
is(tasks_of($few[0]), 'a:completed b:blocked f:error hold:running', 'a live run keeps its tasks');
foreach my $n (0 .. 4)	# one after another: their ends have this order
{
	complete_one(@{ $held{ $few[$n] } });
	run_is($few[$n], $n < 3 ? 'completed' : 'error');
}
is(one("SELECT string_agg(DISTINCT result::text, ',') FROM jobq.jobs WHERE task_key = 'b' AND workflow_id = ANY ('{" . join(',', @few[ 0 .. 2 ]) . "}')"), '7', 'a later step reads their results');
is(one("SELECT string_agg(DISTINCT severity, ',') FROM jobq.alerts WHERE job_type = 'few'"), 'high', 'a critical workflow raises alerts of severity high');
one(q{SELECT jobq.enqueue('counted') FROM generate_series(1, 3)});
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE job_type = 'counted')} =~ s/job_type = 'counted'/type_id = (SELECT id FROM jobq.job_types WHERE name = 'counted')/r, 'more have run');
maintain();
wait_for_sql($node, q{SELECT array_agg(id ORDER BY id) = ARRAY['} . join("','", @few[ 1, 2, 4 ]) . q{']::uuid[] FROM jobq.workflow_runs WHERE workflow = 'few'}, 'the newest runs stay');
is(tasks_of($few[1]), 'a:completed b:completed f:error hold:completed', 'with their tasks');
is(tasks_of($few[0]), '', 'those of the others are gone');
is(one("SELECT count(*) FROM jobq.runs WHERE id = ANY ('{$few[0],$few[3]}')"), '0', 'and nothing of them is left');
is(one("SELECT jobq.retry_workflow('$few[4]')"), 't', 'a run that was kept can be retried');
complete_one((claim_one())[0, 1]);
run_is($few[4], 'error');

# More rows than a step may take: tasks go with their runs.
workflow('three', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act"}, {"key": "c", "job_type": "act"}]');
my @three = map { start_run('three') } 1 .. 4;
run_is($_, 'completed') foreach @three;
one(q{SELECT jobq.alter_job_type('three', options => '{"keep_completed_count": 1, "keep_dead_count": 1}')});
is(one('SELECT jobq_internal._retain(2)'), 't', 'a step of retention that takes more rows than it may');
wait_for_sql($node, q{SELECT NOT jobq_internal._retain(2) AND (SELECT count(*) = 1 FROM jobq.workflow_runs WHERE workflow = 'three')}, 'they go step by step');

done_testing();
