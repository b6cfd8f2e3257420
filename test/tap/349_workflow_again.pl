# What is left of a former life of a run: events, a pause, rows that have expired, artifacts.  What
# is compensated, and in which order, and what a run does whose workflow is dropped.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('again');

sub waits_for_event { my ($run) = @_; return wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run' AND after_state = 4)", 'a step waits for its event'); }
sub result_of { my ($run, $key) = @_; return one("SELECT coalesce(result::text, 'NULL') FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = '$key'"); }

# ---------- events ----------

workflow('ask', '[{"key": "a", "job_type": "pulled"}, {"key": "e", "event": "go", "after": ["a"]}, {"key": "z", "job_type": "act", "after": ["e"]}]');
my $run = start_run('ask');
is(one("SELECT jobq.send_event('$run', 'go')"), 't', 'an event without data comes early');
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
is(result_of($run, 'e'), 'NULL', 'its step has no result');
is(one("SELECT jobq.retry_workflow('$run', from_task => 'e')"), 't', 'the step runs again');
waits_for_event($run);
is(one("SELECT jobq.send_event('$run', 'go', '1'), jobq.send_event('$run', 'go', '2')"), 't|f', 'and takes another event');
run_is($run, 'completed');
is(result_of($run, 'e'), '1', 'whose data are its result');
$run = start_run('ask');
one("SELECT jobq.send_event('$run', 'go', '3')");
my ($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
run_is($run, 'error', 'a run fails before a step that has an event');
one("SELECT jobq.retry_workflow('$run')");
complete_one((claim_one())[0, 1]);
run_is($run, 'completed', 'retried');
is(result_of($run, 'e'), '3', 'the step gets it: it had not run');

one(q{CREATE FUNCTION asks(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.add_tasks('[{"key": "e", "event": "go"}]'); END $$;
  SELECT jobq.create_job_type('asks', 'asks(jsonb)')});
workflow('asked', '[{"key": "p", "job_type": "asks"}]');
$run = start_run('asked');
foreach my $n (1, 2)
{
	waits_for_event($run);
	is(one("SELECT jobq.send_event('$run', 'go', '$n')"), 't', "event $n of a step that a task has added");
	run_is($run, 'completed');
	is(result_of($run, 'e'), $n, 'its data are the result');
	one("SELECT jobq.retry_workflow('$run', from_task => 'p')") if $n == 1;
}

# ---------- a pause ----------

workflow('line', '[{"key": "a", "job_type": "act"}, {"key": "p", "job_type": "pulled", "after": ["a"]}, {"key": "z", "job_type": "act", "after": ["p"]}]');
$run = start_run('line');
($id, $token) = claim_one();
is(one("SELECT jobq.pause_workflow('$run', 'why'), jobq.cancel_job('$run') IS NOT NULL"), 't|t', 'a run is paused, and cancelled');
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'its task is told');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled');
is(one("SELECT paused, paused_reason IS NULL FROM jobq.runs WHERE id = '$run'"), 'f|t', 'the pause ends with the run');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'it is retried');
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');

$run = start_run('line');
($id, $token) = claim_one();
one("SELECT jobq.cancel_job('$run')");
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'its task is told');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled');
one("UPDATE jobq.runs SET keep_until = now() - interval '1 s' WHERE id = '$run'; SELECT jobq_internal._remove_old_runs()");
is(one("SELECT jobq.retry_job('$run')"), 't', 'a cancelled run is retried while its job is there');
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
is(one("SELECT count(*) FROM jobq.history WHERE workflow_id = '$run' AND task_key = 'a'"), '1', '!and does not start anew');

# ---------- a pause before a retry starts ----------

workflow('held', '[{"key": "a", "job_type": "pulled"}]');
$run = start_run('held');
($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
run_is($run, 'error');
one(q{SELECT jobq.pause_job_type('held')});
one("SELECT jobq.retry_workflow('$run')");
is(one("SELECT jobq.pause_workflow('$run', 'first'), jobq.pause_workflow('$run', 'again')"), 't|f', 'a run whose retry waits is paused, once');
one("SELECT jobq.cancel_job('$run')");
is(one("SELECT jobq.pause_workflow('$run', 'late')"), 'f', 'not when that is cancelled');
is(one("SELECT jobq.resume_workflow('$run'), (SELECT paused_reason IS NULL FROM jobq.workflow_runs WHERE id = '$run')"), 'f|t', 'which ends the pause');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'the next retry');
is(one("SELECT paused FROM jobq.runs WHERE id = '$run'"), 'f', 'is not paused');
is(one("SELECT jobq.pause_workflow('$run', 'why')"), 't', 'until it is paused again');
one(q{SELECT jobq.resume_job_type('held')});
wait_for_sql($node, "SELECT phase = 'running' FROM jobq.runs WHERE id = '$run'", 'it starts');
wait_for_sql($node, "SELECT after_state IN (16, 32) FROM jobq.queue WHERE workflow_id = '$run'", 'its task waits for the end of the pause');
is(one("SELECT count(*) FROM jobq.claim('{pulled}')"), '0', 'no claim gets it');
is(one("SELECT jobq.resume_workflow('$run')"), 't', 'which comes');
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');

# ---------- a retry that never starts ----------

workflow('given-up', '[{"key": "a", "job_type": "act", "payload": {"end": "fail"}}]');
$run = tasks_are('given-up', '{}', 'error', 'a:error', 'a run fails');
one(q{SELECT jobq.pause_job_type('given-up')});
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'its retry waits');
is(one("SELECT jobq.cancel_job('$run')"), 't', 'and is cancelled');
one("UPDATE jobq.runs SET keep_until = now() - interval '1 s' WHERE id = '$run'; SELECT jobq_internal._remove_old_runs()");
is(one("SELECT phase FROM jobq.runs WHERE id = '$run'"), 'restarting', 'its row stays as long as its job: a retry must not start anew');
one("DELETE FROM jobq.history WHERE id = '$run'; SELECT jobq_internal._remove_old_runs()");
is(one("SELECT count(*) FROM jobq.runs WHERE id = '$run'"), '0', 'and goes then');

# ---------- rows that have expired ----------

# A run that ends may take longer than its rows are kept.
one(q{CREATE FUNCTION makes(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(jobq.record_artifact('k', 'log')) $$});
one(q{SELECT jobq.create_job_type('makes', 'makes(jsonb)')});
workflow('files', '[{"key": "a", "job_type": "makes"}, {"key": "p", "job_type": "pulled", "after": ["a"]},
  {"key": "z", "job_type": "act", "after": ["p"], "payload": {"result": {"$[]": "$.tasks.a.artifacts[*].key"}}}]');
$run = start_run('files');
($id, $token) = claim_one();
wait_partitions($node);
foreach my $table ('history', 'artifacts')
{
	my $expire = "UPDATE jobq.$table SET expires_at = now() - interval '40 days' WHERE workflow_id = '$run'";

	is(one(<<"END"), "1\n1\n1|t", "$table: the row of a task stays while its run is live");
BEGIN;
UPDATE jobq.runs SET keep_until = now() - interval '1 hour' WHERE id = '$run';
$expire;
DO \$\$ BEGIN WHILE jobq_internal._retain() LOOP END LOOP; END \$\$;
SELECT count(*) FROM jobq.$table WHERE workflow_id = '$run';
UPDATE jobq.$table SET expires_at = now() + interval '1 day' WHERE workflow_id = '$run';
DO \$\$ BEGIN PERFORM jobq_internal._ensure_partition('jobq.$table', now() - interval '40 days'); END \$\$;
$expire;
SELECT count(*) FROM jobq.$table h JOIN pg_class c ON c.oid = h.tableoid WHERE h.workflow_id = '$run' AND c.relname <> '${table}_default';
DO \$\$ BEGIN PERFORM jobq_internal._expire_partitions('jobq.$table'); END \$\$;
SELECT count(*), bool_and(expires_at > now()) FROM jobq.$table WHERE workflow_id = '$run';
COMMIT;
END
}
complete_one($id, $token);
run_is($run, 'completed');
is(result_of($run, 'z'), '["k"]', 'later tasks have them');
is(one("UPDATE jobq.$_ SET expires_at = now() - interval '40 days' WHERE workflow_id = '$run'; SELECT 1 FROM jobq_internal._retain(); SELECT count(*) FROM jobq.$_ WHERE workflow_id = '$run'"), "1\n0", "$_: no longer")
  foreach 'history', 'artifacts';

# ---------- clocks that were set back ----------

$run = start_run('files');
($id, $token) = claim_one();
one("UPDATE jobq.artifacts SET created_at = created_at - interval '1 hour' WHERE workflow_id = '$run'");
complete_one($id, $token);
run_is($run, 'completed');
is(result_of($run, 'z'), '["k"]', 'an artifact older than its attempt, by a clock that was set back');

my $saga = '[' . join(', ', map { my ($key, $after) = @$_; qq({"key": "$key", "job_type": "act", "after": $after, "compensate": {"job_type": "act"}}) }
	[ 'a', '[]' ], [ 'b', '["a"]' ], [ 'c', '["b"]' ], [ 'x', '[]' ]) . ', {"key": "p", "job_type": "pulled", "after": ["c", "x"]}]';
workflow('saga', $saga, q{on_failure => 'compensate'});
foreach my $back (0, 1)
{
	$run = start_run('saga');
	($id, $token) = claim_one();
	one("UPDATE jobq.history h SET completed_at = timestamptz '2026-01-01' + v.seconds * interval '1 s' FROM (VALUES "
		. ($back ? "('a', 20), ('b', 10), ('c', 15), ('x', 17)" : "('a', 10), ('b', 20), ('c', 30), ('x', 25)")
		. ") v(key, seconds) WHERE h.workflow_id = '$run' AND h.task_key = v.key");
	one("SELECT jobq.fail('$id', '$token', 'no')");
	run_is($run, 'error', 'a run is compensated');
	is(one("SELECT string_agg(key, ' ' ORDER BY seq) FROM ran WHERE run = '$run' AND key LIKE '%.undo'"),
		$back ? 'c.undo b.undo a.undo x.undo' : 'c.undo x.undo b.undo a.undo', $back ? 'a step before those that it waited for, whatever the clock' : 'the newest first');
}

# ---------- a run that is compensated ----------

workflow('slow', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "pulled"}}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]', q{on_failure => 'compensate'});
$run = start_run('slow');
($id, $token) = claim_one();
is(one("SELECT phase FROM jobq.runs WHERE id = '$run'"), 'compensating', 'a run is being compensated');
is(one("SELECT jobq.retry_workflow('$run')"), 'f', 'it is live: nothing to retry');
one("SELECT jobq.cancel_job('$run')");
is(one("SELECT jobq.heartbeat('$id', '$token')"), 'ok', 'a cancel does not stop what undoes it');
complete_one($id, $token);
run_is($run, 'error', 'nor changes its error');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run')", '55000', 'nor when it has ended');

workflow('undo-map', '[{"key": "m", "job_type": "act", "map": "$.input", "compensate": {"job_type": "act", "payload": {"of": {"$": "$.tasks.m.result"}}}},
  {"key": "f", "job_type": "act", "after": ["m"], "payload": {"end": "fail"}}]', q{on_failure => 'compensate'});
$run = tasks_are('undo-map', '[{"result": 1}, {"result": 2}]', 'error', 'f:error m:completed m.0:completed m.1:completed m.undo:completed', 'a map is undone once');
is(one("SELECT payload FROM ran WHERE run = '$run' AND key = 'm.undo'"), '{"of": [1, 2]}', 'with its results');
workflow('sums', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "act"}}]', q{on_failure => 'compensate', output => '{"n": {"$": "$.tasks.a.result.n"}}'});
$run = tasks_are('sums', '{}', 'error', 'a:completed a.undo:completed', 'a run whose output lacks data is compensated');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'bad_input', 'its error code');
workflow('refund', '[{"key": "x", "job_type": "act"}]');
workflow('refunded', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "refund"}}, {"key": "p", "job_type": "pulled", "after": ["a"]}]', q{on_failure => 'compensate'});
$run = start_run('refunded');
($id, $token) = claim_one();
one("SELECT jobq.pause_workflow('$run'), jobq.cancel_job('$run')");
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'a task of a paused run is told of its cancel');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled', 'it is undone by a run that is not paused');
is(tasks_of($run), 'a:completed a.undo:completed p:cancelled', 'which has ended');

# ---------- a workflow that is dropped ----------

# A worker may run a task before its run is seen to be cancelled: here its type is paused.
one(q{SELECT jobq.create_job_type('later', 'act(jsonb)'), jobq.pause_job_type('later')});
workflow('doomed', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "act"}}, {"key": "p", "job_type": "pulled", "after": ["a"]},
  {"key": "z", "job_type": "later", "after": ["p"]}]', q{on_failure => 'compensate'});
$run = start_run('doomed');
($id, $token) = claim_one();
one("BEGIN; SELECT jobq.drop_job_type('doomed', force => true); SELECT jobq.complete('$id', '$token'); COMMIT");
run_is($run, 'cancelled', 'a workflow is dropped: its run is cancelled');
is(tasks_of($run), 'a:completed a.undo:completed p:completed z:cancelled', 'and compensated; the task that became ready meanwhile has not completed');
is(one("SELECT count(*) FROM ran WHERE run = '$run' AND key = 'z'"), '0', 'nor run');
workflow('doomed', '[{"key": "p", "job_type": "pulled"}, {"key": "z", "job_type": "act", "after": ["p"]}]');
is(one(q{SELECT count(*), min(version) FROM jobq.workflows WHERE name = 'doomed'}), '1|1', 'its name is free');
one('SELECT jobq_internal._remove_old_runs()');
is(one(q{SELECT count(*) FROM jobq.workflows w JOIN jobq.job_types t ON t.id = w.type_id WHERE t.dropped_at IS NOT NULL}), '0', 'its definition goes after its runs');
$run = start_run('doomed');
($id, $token) = claim_one();
one(q{UPDATE jobq.workflows SET steps = steps - 1 WHERE name = 'doomed'});
complete_one($id, $token);
run_is($run, 'completed', 'a task whose step is gone');
is(tasks_of($run), 'p:completed z:cancelled', 'is cancelled');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
