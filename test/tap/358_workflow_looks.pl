# What the conductor's look at a run makes of tasks that end meanwhile, and of maps of a run that
# fails: what had not run is cancelled, is not taken for a result, and runs when the run is retried.

use strict;
use warnings;

use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('looks');

# ---------- more ends than a transaction keeps ----------

# No job waits for another one yet, so that no end is of a parent.  The last end is of another run.
workflow('many', '[{"key": "m", "job_type": "act", "map": "$.input.list"}]');
workflow('one', '[{"key": "x", "job_type": "act"}]');
workflow('marker', '[{"key": "x"}]');
one(q{SELECT jobq.pause_job_type('act')});
my ($many, $last) = (start_run('many', one(q{SELECT jsonb_build_object('list', jsonb_agg(i)) FROM generate_series(1, 4200) i})), start_run('one'));
wait_for_sql($node, qq{SELECT count(*) = 4201 FROM jobq.queue WHERE status = 'pending' AND workflow_id IN ('$many', '$last')}, 'tasks of two runs wait');
one(qq{SELECT count(jobq.cancel_job(q.id)) FROM (SELECT id FROM jobq.queue WHERE status = 'pending' AND workflow_id IN ('$many', '$last')
  ORDER BY workflow_id = '$last') q});
run_is(start_run('marker'), 'completed', 'one commit ends all of them; a run begun later ends');
is(one("SELECT status FROM jobq.jobs WHERE id = '$last'"), 'completed', 'the run of the last task has ended before it');
run_is($many, 'completed', 'so does the other one');
one(q{SELECT jobq.resume_job_type('act')});

# ---------- the last task ends during a look ----------

# A look at a run with events waits, between what it reads, until the table open has a row.
one(<<'END');
CREATE TABLE open ();
ALTER FUNCTION jobq_internal._settle_answered(jobq.runs, boolean) RENAME TO _settle_answered_before;
CREATE FUNCTION jobq_internal._settle_answered(r jobq.runs, free_ones boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE (SELECT backend_type = 'jobq conductor' FROM pg_stat_activity WHERE pid = pg_backend_pid()) AND NOT EXISTS (SELECT FROM public.open) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$
END
workflow('single', '[{"key": "x", "job_type": "pulled"}]');
foreach my $end ([ 'fail', q{, 'no'}, 'error' ], [ 'complete', '', 'completed' ])
{
	my ($call, $more, $status) = @$end;
	my $run = start_run('single');
	my ($id, $token) = claim_one();

	one('TRUNCATE open');
	is(one("SELECT jobq.send_event('$run', 'any')"), 't', 'a look because of an event');
	wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND wait_event = 'PgSleep')}, 'the conductor looks');
	one("SELECT jobq.$call('$id', '$token'$more)");
	is(one("SELECT status FROM jobq.jobs WHERE id = '$id'"), $status, 'meanwhile the last task ends');
	one('INSERT INTO open DEFAULT VALUES');
	run_is($run, $status, 'so does the run');
}
one(q{DROP FUNCTION jobq_internal._settle_answered(jobq.runs, boolean);
  ALTER FUNCTION jobq_internal._settle_answered_before(jobq.runs, boolean) RENAME TO _settle_answered});

# ---------- maps of a run that fails ----------

one(q{SELECT jobq.create_job_type('member', 'act(jsonb)', max_attempts => 1)});
foreach my $most ('null', 1, 2)
{
	workflow('mapped', qq([{"key": "m", "job_type": "member", "map": "\$.input.list", "max_parallel": $most}, {"key": "x", "job_type": "pulled"}]));
	one(q{SELECT jobq.pause_job_type('member')});
	my $run = start_run('mapped', '{"list": [{"result": 1}, {"result": 2}]}');
	my ($id, $token) = claim_one();

	wait_for_sql($node, qq{SELECT count(*) = coalesce($most, 2) FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm.%'}, 'members wait');
	one("SELECT jobq.fail('$id', '$token', 'no')");
	run_is($run, 'error', "max_parallel $most: another step fails");
	my @members = map { "m.$_:cancelled" } 0 .. ($most eq '1' ? 0 : 1);
	is(tasks_of($run), "m:cancelled @members x:error", 'members that had not run are cancelled, and so is the map');
	is(one("SELECT jobq.retry_workflow('$run')"), 't', 'a retry');
	one(q{SELECT jobq.resume_job_type('member')});
	($id, $token) = claim_one();
	complete_one($id, $token, '3');
	run_is($run, 'completed', 'runs them');
	is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [1, 2], "x": 3}', 'the result has theirs');
}

# A map of rule done or failed starts, and ends, in a run that fails.
workflow('clean', '[{"key": "x", "job_type": "pulled"}, {"key": "m", "job_type": "member", "map": "$.input.list", "max_parallel": 1, "after": ["x"], "rule": "done"},
  {"key": "n", "job_type": "member", "map": "$.input.list", "after": ["x"], "rule": "failed"}, {"key": "z", "job_type": "member", "after": ["m"]}]');
my $run = start_run('clean', '{"list": [{"result": 1}, {"result": 2}]}');
my ($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
run_is($run, 'error', 'a run with maps of rule done and failed');
is(tasks_of($run), 'm:completed m.0:completed m.1:completed n:completed n.0:completed n.1:completed x:error z:cancelled', 'all their members run');

# One that runs already goes on.
workflow('begun', '[{"key": "a", "job_type": "act"}, {"key": "m", "job_type": "member", "map": "$.input.list", "after": ["a"], "rule": "done"}, {"key": "x", "job_type": "pulled"}]');
one(q{SELECT jobq.pause_job_type('member')});
$run = start_run('begun', '{"list": [{}, {}, {}]}');
($id, $token) = claim_one();
wait_for_sql($node, qq{SELECT count(*) = 3 FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm.%'}, 'members of a map of rule done wait');
one("SELECT jobq.fail('$id', '$token', 'no')");
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$run'", 'another step fails');
one(q{SELECT jobq.resume_job_type('member')});
run_is($run, 'error');
is(tasks_of($run), 'a:completed m:completed m.0:completed m.1:completed m.2:completed x:error', 'they run');

# A cancel ends it.
one(q{SELECT jobq.pause_job_type('member')});
$run = start_run('clean', '{"list": [{}, {}, {}]}');
($id, $token) = claim_one();
complete_one($id, $token);
wait_for_sql($node, qq{SELECT count(*) = 1 FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm.%'}, 'a member waits');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled', 'a run is cancelled');
is(tasks_of($run), 'm:cancelled m.0:cancelled n:skipped x:completed z:cancelled', 'and so is its map of rule done');

$node->stop;
done_testing();
