# How long the rows of a run stay; and tasks of a live run that are not to run again, or no more:
# retries of tasks that had no attempt, maps whose later elements are bad or may not run.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('kept');

# ---------- a retry moves what is kept ----------

one(q{CREATE FUNCTION makes(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(jobq.record_artifact('k', 'log')) $$});
one(q{SELECT jobq.create_job_type('makes', 'makes(jsonb)', keep_completed => '0', timeout => '1min')});
one(q{SELECT jobq.create_job_type('tool', options => '{"output": "none"}', keep_completed => '0',
  command => ARRAY['sh', '-c', 'cat >/dev/null; echo "{\"artifact\": {\"key\": \"t\"}}" >&3'])});
workflow('inside', '[{"key": "x", "job_type": "makes"}]');
my $steps = '[{"key": "a", "job_type": "makes"}, {"key": "s", "job_type": "inside"}, {"key": "t", "job_type": "tool"}, {"key": "b", "job_type": "pulled", "after": ["a", "s", "t"]}]';
workflow('kept', $steps, q{options => '{"timeout": "3 days", "keep_completed": "4 days"}'});

# Tests that all rows of a run, and of the run in it, expire when they should.
sub all_kept
{
	my ($run, $keep, $what) = @_;
	my $runs = "SELECT r.keep_until, r.deadline, o.id FROM jobq.runs r, LATERAL (SELECT r.id UNION ALL SELECT h.id FROM jobq.history h WHERE h.workflow_id = r.id) o WHERE r.id = '$run'";

	is(one("SELECT keep_until - deadline FROM jobq.runs WHERE id = '$run'"), $keep, "$what: the time after the deadline");
	is(one("SELECT count(*), count(*) FILTER (WHERE h.expires_at = o.keep_until) FROM ($runs) o JOIN jobq.history h ON o.id IN (h.workflow_id)"), '5|5', "$what: rows of history");
	is(one("SELECT count(*), count(*) FILTER (WHERE a.expires_at >= o.keep_until) FROM ($runs) o JOIN jobq.artifacts a ON a.workflow_id = o.id"), '3|3', "$what: artifacts");
	return;
}

my $run = start_run('kept');
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
all_kept($run, '4 days', 'a run');
my $run2 = start_run('kept');
my ($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
run_is($run2, 'error', 'a run fails');
workflow('kept', $steps, q{options => '{"keep_completed": "60 days"}'});
is(one("SELECT jobq.retry_workflow('$run2')"), 't', 'it is retried');
complete_one((claim_one())[0, 1]);
run_is($run2, 'completed');
all_kept($run2, '60 days', 'after a retry');
all_kept($run, '4 days', 'another run');

# ---------- dead runs ----------

foreach my $dead ('', ', "keep_dead": "70 days"')
{
	workflow('late' . length($dead), '[{"key": "a", "job_type": "act"}, {"key": "b", "event": "never", "after": ["a"]}]', qq{options => '{"timeout": "1s", "keep_completed": "0"$dead}'});
	$run = start_run('late' . length($dead));
	run_is($run, 'error', 'a run without keep_completed reaches its deadline');
	is(one("SELECT CASE expires_at WHEN 'infinity' THEN 'forever' ELSE (expires_at - completed_at)::text END FROM jobq.dead_letters WHERE id = '$run'"),
		$dead ? '70 days' : 'forever', 'its dead letter stays for keep_dead');
	is(one("SELECT count(*) FROM jobq.history h JOIN jobq.dead_letters d ON d.id = h.workflow_id AND d.expires_at = h.expires_at WHERE d.id = '$run'"), '2', 'so do its tasks') if $dead;
	$run2 = $run if !$dead;
}
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher runs again');
run_is(start_run('inside'), 'completed', 'the conductor has looked at old runs');
is(one("SELECT jobq.retry_workflow('$run2')"), 't', 'a dead run that is kept can be retried');
run_is($run2, 'error');

# ---------- retries in a live run ----------

workflow('live', '[{"key": "hold", "job_type": "pulled"}, {"key": "cut", "job_type": "act", "after": ["hold"], "on_failure": "continue"},
  {"key": "bad", "job_type": "act", "payload": {"v": {"$": "$.input.nix"}}, "on_failure": "continue"},
  {"key": "late", "event": "never", "timeout": "1s", "on_failure": "continue"},
  {"key": "ran", "job_type": "act", "payload": {"end": "once"}, "on_failure": "continue"},
  {"key": "go", "event": "go"},
  {"key": "map", "job_type": "act", "map": "$.input.list", "after": ["ran", "late", "go"], "rule": "done"}]');
$run = start_run('live', '{"list": [{"end": "fail"}]}');
($id, $token) = claim_one();
wait_for_sql($node, "SELECT count(*) = 3 FROM jobq.dead_letters WHERE workflow_id = '$run'", 'tasks of a live run are dead');
is(one('SELECT jobq.retry_dead_letters(max_attempts => 1, error_like => \'once\')'), '1', 'retry_dead_letters takes one that has had an attempt');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.history WHERE workflow_id = '$run' AND task_key = 'ran' AND status = 'completed')", 'it runs');
one("SELECT jobq.send_event('$run', 'go')");
wait_for_sql($node, "SELECT count(*) = 4 FROM jobq.dead_letters WHERE workflow_id = '$run'", 'a map fails');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.history WHERE workflow_id = '$run' AND task_key = 'cut')", 'and its run begins to');
foreach my $key (qw(bad late map))
{
	my $task = one("SELECT id FROM jobq.dead_letters WHERE workflow_id = '$run' AND task_key = '$key'");

	sqlstate_is($node, 'postgres', "SELECT jobq.retry_job('$task')", '55000', "retry_job of $key, which had no attempt");
}
my $cut = one("SELECT id FROM jobq.history WHERE workflow_id = '$run' AND task_key = 'cut'");
sqlstate_is($node, 'postgres', "SELECT jobq.retry_job('$cut')", '55000', 'nor does a task run that was cancelled while it waited');
one(q{DELETE FROM jobq.dead_letters WHERE task_key = 'map.0'; DELETE FROM jobq.dead_letters WHERE workflow_id IS NULL});
is(one('SELECT jobq.retry_dead_letters()'), '0', 'retry_dead_letters takes none of them');
is(tasks_of($run), 'bad:error cut:cancelled go:completed hold:running late:error map:error ran:completed', 'they stay');
complete_one($id, $token);
run_is($run, 'error');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'retry_workflow takes them when the run has ended');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run')", 'it runs again');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');

# ---------- maps that go wrong later ----------

# A run with a map of the type, two of whose members run; returns its id and theirs.
sub run_of_two
{
	my ($workflow) = @_;
	my $of = start_run($workflow, '{"list": [{"v": 1}, {"v": 2}, {}]}');

	return ($of, map { [ (claim_one())[0, 1] ] } 1 .. 2);
}

# Ends one of two members; the map waits for the other, which is told.  Then the map is dead.
sub map_dies
{
	my ($of, $first, $second, $code, $message) = @_;

	complete_one(@$first);
	wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$second->[0]'", "$code: the other member is told");
	is(one("SELECT status FROM jobq.queue WHERE workflow_id = '$of' AND task_key = 'm'"), 'running', 'the map waits for it');
	one("SELECT jobq.fail('$second->[0]', '$second->[1]', 'stopped')");
	run_is($of, 'error', 'then it is dead, and the run');
	is(one("SELECT error_code FROM jobq.dead_letters WHERE workflow_id = '$of' AND task_key = 'm'"), $code, 'with the code');
	like(one("SELECT error_msg FROM jobq.dead_letters WHERE workflow_id = '$of' AND task_key = 'm'"), $message, 'and the message');
	is(one("SELECT count(*) FROM jobq.jobs WHERE workflow_id = '$of'"), '3', 'no other member was made');
	return;
}

workflow('spoilt', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 2, "payload": {"v": {"$": "$.item.v"}}}]');
map_dies(run_of_two('spoilt'), 'bad_input', qr/\bv\b/);
($run, my $first, my $second) = run_of_two('spoilt');
complete_one(@$first);
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$second->[0]'", 'a cancel meanwhile');
is(one("SELECT jobq.cancel_job('$run', 'enough')"), 't', 'of the run');
one("SELECT jobq.fail('$second->[0]', '$second->[1]', 'stopped')");
run_is($run, 'cancelled', 'cancels the run');

one(<<'END');
CREATE ROLE definer LOGIN;
SELECT jobq.grant_access('definer', 'admin'), jobq.grant_access('definer', 'enqueue', job_types => '{act,pulled}');
END
one(q{SET ROLE definer; SELECT jobq.create_workflow('owned', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 2}]')});
my @owned = run_of_two('owned');
one(q{SELECT jobq.revoke_access('definer', 'admin'), jobq.revoke_access('definer', 'enqueue', job_types => '{act,pulled}'),
  jobq.grant_access('definer', 'enqueue', job_types => '{act}')});
map_dies(@owned, '42501', qr/definer/);

is(one("SELECT count(*) FROM jobq.runs WHERE phase <> 'ended'"), '0', 'all runs have ended');
is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|a run could/, 'no crash');

done_testing();
