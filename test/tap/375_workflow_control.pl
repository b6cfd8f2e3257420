# What is done to a run: cancel, deadline, pause, retry.  Then its order, limits, keys, tenant,
# retention and alerts.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('control');

sub rows_of { my ($run, $what) = @_; return one("SELECT string_agg(DISTINCT $what, ' ') FROM jobq.jobs WHERE workflow_id = '$run'"); }

# ---------- cancel ----------

workflow('two', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["a"]}, {"key": "c", "job_type": "act", "after": ["a"], "rule": "done"}]');
my $run = start_run('two');
my ($id, $token) = claim_one();
is(one("SELECT jobq.cancel_job('$run', 'enough')"), 't', 'cancel_job of a run');
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'its running task is told');
is(one("SELECT jobq.heartbeat('$id', '$token')"), 'cancel', 'by its heartbeat');
is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', 'the run waits for it');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled', 'then it is cancelled');
is(one("SELECT error_msg FROM jobq.jobs WHERE id = '$run'"), 'enough', 'with the reason');
like(tasks_of($run), qr/^a:\w+ b:cancelled c:cancelled$/, 'and all its tasks');
$run = start_run('two', '{}', q{delay => '1 day'});
is(one("SELECT jobq.cancel_job('$run')"), 't', 'cancel of a run that has not begun');
run_is($run, 'cancelled');

workflow('inner', '[{"key": "x", "job_type": "pulled"}, {"key": "y", "job_type": "act", "after": ["x"]}]');
workflow('outer', '[{"key": "s", "job_type": "inner"}, {"key": "z", "job_type": "act", "after": ["s"]}]');
$run = start_run('outer');
($id, $token) = claim_one();
is(one("SELECT jobq.cancel_job('$run')"), 't', 'cancel of a run with a workflow as step');
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'the inner task is told');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled');
is(tasks_of($run), 's:cancelled z:cancelled', 'the inner run, too');
workflow('mapped', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 1}]');
$run = start_run('mapped', '{"list": [1, 2, 3]}');
($id, $token) = claim_one();
one("SELECT jobq.cancel_job('$run')");
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'a member is told');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled', 'cancel of a run with a map');

# ---------- deadline ----------

$run = start_run('two', '{}', q{timeout => '5s'});
($id, $token) = claim_one();
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'a task is told of the deadline');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'error', 'the run is a dead letter');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'timeout', 'error_code');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'it is retried');
($id, $token) = claim_one();
is(one("SELECT deadline > now() AND phase = 'running' FROM jobq.runs WHERE id = '$run'"), 't', 'with a new deadline');
complete_one($id, $token);
run_is($run, 'completed');

# ---------- pause ----------

workflow('row', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "pulled", "after": ["a"]}]');
$run = start_run('row');
($id, $token) = claim_one();
is(one("SELECT jobq.pause_workflow('$run', 'why'), jobq.pause_workflow('$run')"), 't|f', 'pause_workflow');
is(one("SELECT paused_reason FROM jobq.workflow_runs WHERE id = '$run'"), 'why', 'its reason');
complete_one($id, $token);
wait_for_sql($node, "SELECT waiting_for = 0 FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'b'", 'the next task is ready');
is(one("SELECT status FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'b'"), 'blocked', 'and does not start');
is(one("SELECT jobq.resume_workflow('$run'), jobq.resume_workflow('$run')"), 't|f', 'resume_workflow');
($id, $token) = claim_one();
complete_one($id, $token);
run_is($run, 'completed');
one(q{SELECT jobq.pause_job_type('pulled')});
$run = start_run('row');
wait_for_sql($node, "SELECT status = 'pending' FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'a'", 'a task waits');
one("SELECT jobq.pause_workflow('$run')");
is(one("SELECT paused_reason IS NOT NULL FROM jobq.workflow_runs WHERE id = '$run'"), 't', 'a pause without a reason is seen');
is(one("SELECT status FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'a'"), 'blocked', 'a pause takes back what has not begun');
one(q{SELECT jobq.resume_job_type('pulled')});
is(one("SELECT count(*) FROM jobq.claim('{pulled}')"), '0', 'no claim gets it');
one("SELECT jobq.resume_workflow('$run')");
complete_one((claim_one())[0, 1]) for 1 .. 2;
run_is($run, 'completed');

# ---------- retry ----------

workflow('again', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": {"$": "$.input.end", "default": null}}},
  {"key": "c", "job_type": "act", "after": ["b"]}, {"key": "d", "job_type": "act", "after": ["a"], "rule": "done"}]');
$run = tasks_are('again', '{"end": "fail"}', 'error', 'a:completed b:error c:cancelled d:completed', 'b fails');
my $task = one("SELECT id FROM jobq.dead_letters WHERE workflow_id = '$run' AND task_key = 'b'");
my $copy = one("SELECT jobq.rerun_job('$task', '{}')");
is(ended($copy), 'completed', 'rerun_job of a task');
is(one("SELECT workflow_id IS NULL AND task_key IS NULL FROM jobq.jobs WHERE id = '$copy'"), 't', 'is a plain job');
is(one("SELECT jobq.retry_job('$task')"), 't', 'retry_job of a task of an ended run');
run_is($run, 'error', 'runs the run again: b fails');
one(q{CREATE OR REPLACE FUNCTION act(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  j jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO public.ran (run, key, payload) VALUES (j.workflow_id, j.task_key, p);
  IF p ->> 'end' = 'fail' AND NOT EXISTS (SELECT FROM public.repaired) THEN RAISE 'told to'; END IF;
  RETURN p -> 'result';
END $$; CREATE TABLE repaired ()});
one('INSERT INTO repaired DEFAULT VALUES');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'retry_workflow');
run_is($run, 'completed');
is(one("SELECT string_agg(key || n, ' ' ORDER BY key) FROM (SELECT key, count(*) AS n FROM ran WHERE run = '$run' GROUP BY key) x"), 'a1 b1 c1 d1',
	'runs the dead task and what is behind it');
is(one("SELECT jobq.retry_workflow('$run')"), 'f', 'a completed run has nothing to retry');
is(one("SELECT jobq.retry_workflow('$run', from_task => 'b')"), 't', 'from_task');
run_is($run, 'completed');
is(one("SELECT string_agg(key || n, ' ' ORDER BY key) FROM (SELECT key, count(*) AS n FROM ran WHERE run = '$run' GROUP BY key) x"), 'a1 b2 c2 d1', 'it and all behind run again');
is(tasks_of($run), 'a:completed b:completed c:completed d:completed', 'each task has one row');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', from_task => 'nix')", '22023', 'an unknown step');
one('DELETE FROM repaired');
$run = tasks_are('again', '{"end": "fail"}', 'error', 'a:completed b:error c:cancelled d:completed', 'b fails again');
is(workflow('again', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"v": 2}},
  {"key": "c", "job_type": "act", "after": ["b"]}, {"key": "d", "job_type": "act", "after": ["a"], "rule": "done"}, {"key": "e", "job_type": "act", "after": ["c"]}]'), '2', 'a second version');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', version => 9)", '42704', 'an unknown version');
is(one("SELECT jobq.retry_workflow('$run', version => 2)"), 't', 'a retry by another version');
run_is($run, 'completed');
is(tasks_of($run), 'a:completed b:completed c:completed d:completed e:completed', 'runs its steps');
is(one("SELECT version, progress, current_task_key, tasks FROM jobq.workflow_runs WHERE id = '$run'"), '2|100.0000000000000000||{"completed": 5}', 'workflow_runs');
workflow('remap', '[{"key": "m", "job_type": "act", "map": "$.input.list"}]');
$run = tasks_are('remap', '{"list": [{"result": 1}, {"end": "fail", "result": 2}]}', 'error', 'm:error m.0:completed m.1:error', 'a member fails');
one('INSERT INTO repaired DEFAULT VALUES');
one("SELECT jobq.retry_workflow('$run')");
run_is($run, 'completed', 'a map is retried');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [1, 2]}', 'its result');

# ---------- the order of locks ----------

# Each call locks the queue first: a REINDEX in between would wait for the call, and the call for
# it.
workflow('holds', '[{"key": "e", "event": "go"}]');
$run = start_run('holds');
wait_for_sql($node, "SELECT after_state = 4 FROM jobq.queue WHERE workflow_id = '$run'", 'a run waits');
foreach my $call ("pause_workflow('$run')", "resume_workflow('$run')", "retry_workflow('$run')")
{
	my ($reindex, $caller) = map { $node->background_psql('postgres') } 1 .. 2;

	$reindex->query_safe('BEGIN; LOCK TABLE jobq.queue IN SHARE MODE');
	$caller->{stdin} .= "SELECT jobq.$call;\n\\echo over\n";
	$caller->{run}->pump_nb;
	wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT jobq.%_workflow(%' AND wait_event_type = 'Lock'", "$call waits for the queue");
	is($reindex->query_safe("SELECT count(*) FROM (SELECT FROM jobq.runs WHERE id = '$run' FOR UPDATE SKIP LOCKED) r"), '1', 'and holds no row meanwhile');
	$reindex->query_safe('COMMIT');
	$caller->query_until(qr/over/, '');
	$_->quit foreach $reindex, $caller;
}
one("SELECT jobq.send_event('$run', 'go')");
run_is($run, 'completed');

# ---------- pause of runs among the tasks, and of a run that has not begun ----------

my $inner_state = q{SELECT string_agg(t.task_key || ' ' || t.status || ' ' || t.after_state, ', ' ORDER BY t.task_key) FROM jobq.queue s JOIN jobq.queue t ON t.workflow_id = s.id WHERE s.workflow_id = '%s'};
workflow('inside', '[{"key": "x", "job_type": "pulled"}, {"key": "y", "job_type": "pulled", "after": ["x"]}]');
workflow('around', '[{"key": "s", "job_type": "inside"}]');
$run = start_run('around');
($id, $token) = claim_one();
is(one("SELECT jobq.pause_workflow('$run', 'all of it')"), 't', 'pause of a run with a running workflow among its tasks');
complete_one($id, $token);
wait_for_sql($node, "SELECT ($inner_state) = 'y blocked 16'" =~ s/%s/$run/r, 'the inner run starts no other task');
is(one("SELECT string_agg(r.paused_reason, ' ') FROM jobq.workflow_runs r JOIN jobq.queue q ON q.id = r.id WHERE q.workflow_id = '$run'"), 'all of it', 'it is paused, too');
is(one("SELECT jobq.resume_workflow('$run')"), 't', 'resumed with the outer one');
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');

# A run is paused while one among its tasks starts: that waits for the lock.
one(q{SELECT jobq.pause_job_type('inside')});
$run = start_run('around');
wait_for_sql($node, "SELECT status = 'pending' FROM jobq.queue WHERE workflow_id = '$run'", 'an inner run is to start');
my $pauser = $node->background_psql('postgres');
$pauser->query_safe("BEGIN; SELECT FROM jobq.runs WHERE id = '$run' FOR UPDATE; UPDATE jobq.runs SET paused = true, paused_reason = 'why' WHERE id = '$run'");
one(q{SELECT jobq.resume_job_type('inside')});
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND wait_event_type = 'Lock')}, 'the conductor meets the pause');
$pauser->query_safe('COMMIT');
$pauser->quit;
wait_for_sql($node, "SELECT ($inner_state) LIKE 'x blocked 16%'" =~ s/%s/$run/r, 'it starts paused');
one("SELECT jobq.resume_workflow('$run')");
complete_one((claim_one())[0, 1]) for 1 .. 2;
run_is($run, 'completed');

one(q{SELECT jobq.pause_job_type('row')});
$run = start_run('row');
is(one("SELECT jobq.pause_workflow('$run', 'not yet'), jobq.pause_workflow('$run')"), 't|f', 'pause of a run that has not begun');
is(one("SELECT paused_reason FROM jobq.workflow_runs WHERE id = '$run'"), 'not yet', 'its reason');
one("SELECT jobq.cancel_job('$run')");
is(one("SELECT jobq.retry_job('$run')"), 't', 'it is cancelled, and retried');
is(one("SELECT count(*) FROM jobq.runs WHERE id = '$run' AND paused"), '0', 'the pause has ended');
is(one("SELECT jobq.pause_workflow('$run', 'not yet')"), 't', 'it is paused again');
one(q{SELECT jobq.resume_job_type('row')});
wait_for_sql($node, "SELECT after_state = 16 FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'a'", 'its tasks wait when it begins');
one("SELECT jobq.resume_workflow('$run')");
complete_one((claim_one())[0, 1]) for 1 .. 2;
run_is($run, 'completed');

# ---------- no deadline is none ----------

$run = start_run('row', '{}', q{delay => '1 day'});
sqlstate_is($node, 'postgres', $_->[0], '22023', "$_->[1]: a run has a deadline") foreach
	[ q{SELECT jobq.enqueue('row', timeout => '0')}, 'enqueue' ],
	[ "SELECT jobq.alter_job('$run', timeout => '0')", 'alter_job' ],
	[ q{SELECT jobq.create_workflow('zero', '[{"key": "s", "job_type": "row", "timeout": "0s"}]')}, 'a step' ],
	[ q{SELECT jobq.alter_job_type('row', timeout => '0')}, 'its type' ];
one("SELECT jobq.cancel_job('$run')");

# ---------- tasks that act on themselves ----------

one(q{CREATE FUNCTION acts(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ DECLARE j jobq.jobs := jobq.current_job(); BEGIN EXECUTE p ->> 'sql' USING j.id, j.workflow_id; END $$;
SELECT jobq.create_job_type('acts', 'acts(jsonb)', max_attempts => 1)});
workflow('self', '[{"key": "a", "job_type": "acts", "payload": {"sql": {"$": "$.input.sql"}}}, {"key": "b", "job_type": "act", "after": ["a"]}]');
tasks_are('self', '{"sql": "SELECT jobq.cancel_job($1)"}', 'completed', 'a:completed b:completed', 'a handler that cancels its own job: that comes too late');
$run = start_run('self', '{"sql": "SELECT jobq.pause_workflow($2)"}');
wait_for_sql($node, "SELECT after_state = 16 FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'b'", 'a handler pauses its run');
is(tasks_of($run), 'a:completed b:blocked', 'and completes');
one("SELECT jobq.resume_workflow('$run')");
run_is($run, 'completed');

# ---------- order ----------

# Two runs of two tasks: the tasks of the first run come first.
one(q{SELECT jobq.pause_job_type('pulled')});
workflow('line', '[{"key": "a", "job_type": "pulled", "payload": {"of": {"$": "$.input.n"}, "k": "a"}, "max_attempts": 2, "backoff": {"type": "fixed", "base": "0s"}},
  {"key": "b", "job_type": "pulled", "after": ["a"], "payload": {"of": {"$": "$.input.n"}, "k": "b"}}]');
my @runs = map { start_run('line', qq({"n": $_})) } 1 .. 2;
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.queue WHERE task_key = 'a' AND status = 'pending'}, 'both runs have begun');
one(q{SELECT jobq.resume_job_type('pulled')});
my @order;
my $failed = 0;
for (1 .. 5)
{
	my ($job, $lease, $payload) = claim_one();
	my ($of) = $payload =~ /"of": (\d)/;
	my ($k) = $payload =~ /"k": "(\w)"/;

	push @order, "$of$k";
	if (!$failed++)
	{
		one("SELECT jobq.fail('$job', '$lease', 'once')");
		wait_for_sql($node, "SELECT status <> 'running' FROM jobq.queue WHERE id = '$job'", 'the first task is to be retried');
		next;
	}
	complete_one($job, $lease);
	wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$runs[$of - 1]' AND status = 'blocked')", "the task behind $of$k is released") if $k eq 'a';
}
is("@order", '1a 1a 1b 2a 2b', 'tasks keep the position of their run, a retried task its place');
run_is($_, 'completed') foreach @runs;

# A task that was not due takes the place of its run when it is.
workflow('slowly', '[{"key": "a", "job_type": "pulled", "payload": {"of": {"$": "$.input.n"}}, "max_attempts": 3, "backoff": {"type": "fixed", "base": "1s"}},
  {"key": "d", "job_type": "pulled", "after": ["a"], "delay": "1s", "payload": {"of": {"$": "$.input.n"}}}]');
sub keeps_place
{
	my ($run, $key) = @_;

	return wait_for_sql($node, "SELECT t.status IN ('pending', 'retry') AND t.position = r.position FROM jobq.queue t JOIN jobq.queue r ON r.id = t.workflow_id WHERE r.id = '$run' AND t.task_key = '$key'",
		"a task has the place of its run: $key");
}
@runs = map { start_run('slowly', qq({"n": $_})) } 1 .. 2;
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.queue WHERE task_key = 'a' AND status = 'pending'}, 'both runs have begun');
my @first = claim_one();
like($first[2], qr/1/, 'the first run is first');
one(q{SELECT jobq.pause_job_type('pulled')});
one("SELECT jobq.fail('$first[0]', '$first[1]', 'once')");
keeps_place($runs[0], 'a');
one(q{SELECT jobq.resume_job_type('pulled')});
@first = claim_one();
like($first[2], qr/1/, 'after its backoff its task is first');
one("SELECT jobq.pause_job_type('pulled'), jobq.snooze_job('$first[0]', '$first[1]', '1s')");
keeps_place($runs[0], 'a');
one(q{SELECT jobq.resume_job_type('pulled')});
@first = claim_one();
like($first[2], qr/1/, 'after a snooze, too');
one(q{SELECT jobq.pause_job_type('pulled')});
complete_one(@first[0, 1]);
keeps_place($runs[0], 'd');
one(q{SELECT jobq.resume_job_type('pulled')});
@first = claim_one();
like($first[2], qr/1/, 'and after a delay');
complete_one(@first[0, 1]);
complete_one((claim_one())[0, 1]) for 1 .. 2;
run_is($_, 'completed') foreach @runs;

# Tasks of a workflow among the steps have the place of the outermost run, though it starts later.
workflow('below', '[{"key": "x", "job_type": "pulled", "payload": {"of": {"$": "$.input.n"}}}]');
workflow('between', '[{"key": "b", "job_type": "below", "payload": {"n": {"$": "$.input.n"}}}]');
workflow('above', '[{"key": "a", "job_type": "pulled", "payload": {"of": {"$": "$.input.n"}}}, {"key": "s", "job_type": "between", "after": ["a"], "payload": {"n": {"$": "$.input.n"}}}]');
@runs = map { start_run('above', qq({"n": $_})) } 1 .. 2;
my @both = (([ claim_one() ]), ([ claim_one() ]));
like($both[0][2], qr/1/, 'the first run is first');
foreach my $n (1, 0)
{
	complete_one($both[$n][0], $both[$n][1]);
	wait_for_sql($node, sprintf(q{SELECT count(*) = 1 FROM jobq.queue WHERE task_key = 'x' AND status = 'pending' AND payload @> '{"of": %d}'}, $n + 1), 'a nested run starts');
}
my @nested = map { [ claim_one() ] } 1 .. 2;
is(join(' ', map { $_->[2] =~ /(\d)/ } @nested), '1 2', 'nested runs: the task of the first run is first');
complete_one($_->[0], $_->[1]) foreach @nested;
run_is($_, 'completed') foreach @runs;

# ---------- limits and keys ----------

workflow('narrow', '[{"key": "a", "job_type": "pulled"}]', q{options => '{"max_concurrent": 1}'});
@runs = map { start_run('narrow') } 1 .. 2;
($id, $token) = claim_one();
wait_for_sql($node, "SELECT jobq.why('$runs[1]')::text ~ '\"limit\"'", 'another run waits for the limit');
is(one("SELECT string_agg(status::text, ' ' ORDER BY id) FROM jobq.queue WHERE id IN ('$runs[0]', '$runs[1]')"), 'running pending', 'max_concurrent counts running runs');
complete_one($id, $token);
($id, $token) = claim_one();
complete_one($id, $token);
run_is($_, 'completed') foreach @runs;
workflow('nested', '[{"key": "s", "job_type": "narrow"}, {"key": "t", "job_type": "narrow", "after": ["s"]}]', q{options => '{"max_concurrent": 1}'});
@runs = map { start_run('nested') } 1 .. 2;
complete_one((claim_one())[0, 1]) for 1 .. 4;
run_is($_, 'completed', 'nested runs of max_concurrent 1') foreach @runs;

workflow('keyed', '[{"key": "a", "job_type": "act", "concurrency_key": "k"}, {"key": "m", "job_type": "act", "map": "$.input.list", "concurrency_key": "k", "after": ["a"]},
  {"key": "s", "job_type": "keyed_in", "after": ["m"]}]') if workflow('keyed_in', '[{"key": "a", "job_type": "act", "concurrency_key": "k"}]');
@runs = map { start_run('keyed', '{"list": [{}, {}]}', q{concurrency_key => 'k'}) } 1 .. 2;
run_is($_, 'completed', 'a task does not wait for the key of its run') foreach @runs;
is(one("SELECT max(completed_at) FILTER (WHERE id = '$runs[0]') <= max(started_at) FILTER (WHERE id = '$runs[1]') FROM jobq.jobs"), 't', 'runs of one key run one after the other');
one(q{SELECT jobq.create_job_type('ordered', 'act(jsonb)', options => '{"key_order": "fifo"}')});
workflow('behind', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "ordered", "after": ["a"], "concurrency_key": "f"}, {"key": "c", "job_type": "ordered", "concurrency_key": "f"}]');
@runs = map { start_run('behind') } 1 .. 2;
wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.jobs WHERE workflow_id IN ('$runs[0]', '$runs[1]') AND task_key = 'c' AND status = 'completed'",
	'a blocked task does not hold its key against younger ones');
complete_one((claim_one())[0, 1]) for 1 .. 2;
run_is($_, 'completed', 'and has it when it is released') foreach @runs;
one(q{SELECT jobq.pause_job_type('keyed')});
my $plain = start_run('keyed', '{"list": []}', q{concurrency_key => 'z'});
is(one("SELECT count(DISTINCT key_hash) FROM jobq.queue WHERE concurrency_key = 'z'"), '1', 'a run has a hash');
one(q{SELECT jobq.pause_job_type('act'), jobq.enqueue('act', concurrency_key => 'z')});
is(one("SELECT count(DISTINCT key_hash) FROM jobq.queue WHERE concurrency_key = 'z'"), '2', 'another than a job of the same key');
one(q{CREATE TABLE hashes AS SELECT id, key_hash FROM jobq.queue WHERE concurrency_key = 'z'; UPDATE jobq.queue SET priority = 1 WHERE concurrency_key = 'z'});
is(one('SELECT bool_and(q.key_hash = h.key_hash) FROM hashes h JOIN jobq.queue q USING (id)'), 't', 'the trigger keeps them');
one("SELECT jobq.cancel_job('$plain')");
one("SELECT jobq.retry_job('$plain')");
is(one("SELECT q.key_hash = h.key_hash FROM hashes h JOIN jobq.queue q USING (id) WHERE id = '$plain'"), 't', 'and so does a retry');
one(q{SELECT jobq.resume_job_type('keyed'), jobq.resume_job_type('act')});
run_is($plain, 'completed');

# A limit and a key that a run shares with its tasks, and a key that it shares with runs among them.
one(q{SELECT jobq.set_limit('one', max_concurrent => 1, rate_limit => 100), jobq.create_job_type('limited', 'act(jsonb)', options => '{"limits": ["one"]}')});
workflow('limited_run', '[{"key": "a", "job_type": "limited"}, {"key": "p", "job_type": "pulled", "after": ["a"]}]', q{options => '{"limits": ["one"]}'});
@runs = map { start_run('limited_run') } 1 .. 2;
($id, $token) = claim_one();
is(ended(one(q{SELECT jobq.enqueue('limited')})), 'completed', 'a shared limit counts jobs by themselves');
is(one("SELECT string_agg(status::text, ' ' ORDER BY id) FROM jobq.queue WHERE id IN ('$runs[0]', '$runs[1]')"), 'running pending', 'and runs');
complete_one($id, $token);
complete_one((claim_one())[0, 1]);
run_is($_, 'completed', 'a task does not wait for the shared limit of its run') foreach @runs;
sqlstate_is($node, 'postgres', q{SELECT jobq.create_workflow('limit_out', '[{"key": "a", "job_type": "limited_run"}]', options => '{"limits": ["one"]}')}, '22023', 'a workflow with one below it in the same limit');
workflow('limit_mid', '[{"key": "a", "job_type": "limited_run"}]');
workflow('limit_out', '[{"key": "a", "job_type": "limit_mid"}]');
sqlstate_is($node, 'postgres', q{SELECT jobq.alter_job_type('limit_out', options => '{"limits": ["one"]}')}, '22023', 'nor does it get the limit later');
workflow('key_in', '[{"key": "a", "job_type": "act", "concurrency_key": "n"}]');
workflow('key_mid', '[{"key": "a", "job_type": "key_in", "concurrency_key": "n"}, {"key": "b", "job_type": "key_in", "concurrency_key": "n"}]');
workflow('key_out', '[{"key": "a", "job_type": "key_mid", "concurrency_key": "n"}, {"key": "m", "job_type": "key_mid", "concurrency_key": "n", "map": "$.input"}]');
@runs = map { start_run('key_out', '[{}, {}]', q{concurrency_key => 'n'}) } 1 .. 2;
run_is($_, 'completed', 'nor a nested run for its key') foreach @runs;
is(one("SELECT max(completed_at) FILTER (WHERE id = '$runs[0]') <= max(started_at) FILTER (WHERE id = '$runs[1]') FROM jobq.jobs"), 't', 'which runs at the top take one after the other');
is(one("SELECT bool_and(a.completed_at <= b.started_at) FROM jobq.jobs a JOIN jobq.jobs b ON a.job_type = b.job_type AND a.started_at < b.started_at WHERE a.job_type = 'key_in'"), 't', 'and so do those of a level');

# ---------- unique keys, tenants ----------

$run = start_run('narrow', '{}', q{unique_key => 'u'});
is(start_run('narrow', '{}', q{unique_key => 'u', on_conflict => 'ignore'}), $run, 'the unique key of a run');
($id, $token) = claim_one();
is(start_run('narrow', '{}', q{unique_key => 'u', on_conflict => 'ignore'}), $run, 'and of a running one');
complete_one($id, $token);
run_is($run, 'completed');

one(q{SELECT jobq.set_tenant_quota('t', max_running => 1)});
workflow('tenants', '[{"key": "a", "job_type": "act"}, {"key": "s", "job_type": "keyed_in", "after": ["a"]}, {"key": "m", "job_type": "act", "map": "$.input.list"}]');
$run = start_run('tenants', '{"list": [{}, {}, {}]}', q{tenant => 't'});
run_is($run, 'completed', 'runs do not count in max_running');
is(rows_of($run, 'tenant'), 't', 'tasks have the tenant of their run');

# ---------- retention, alerts ----------

one(q{SELECT jobq.create_job_type('forgets', 'act(jsonb)', keep_completed => '0', keep_dead => '0', max_attempts => 1)});
workflow('keeps', '[{"key": "a", "job_type": "forgets", "payload": {"result": 3}}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"result": {"$": "$.tasks.a.result"}, "end": {"$": "$.input.end", "default": null}}},
  {"key": "s", "job_type": "keyed_in", "after": ["a"]}, {"key": "m", "job_type": "forgets", "after": ["a"], "map": "$.input.list"}]', q{options => '{"timeout": "1h", "keep_completed": "3 days"}'});
$run = start_run('keeps', '{"list": [{}, {"result": 1}]}');
run_is($run, 'completed', 'a run with tasks that keep nothing');
is(tasks_of($run), 'a:completed b:completed m:completed m.0:completed m.1:completed s:completed', 'keeps their rows');
is(one("SELECT count(DISTINCT expires_at) || ' ' || count(DISTINCT tableoid) FROM jobq.history WHERE '$run' IN (id, workflow_id)"), '1 1', 'which expire together');
is(one("SELECT bool_and(expires_at = r.keep_until) FROM jobq.history h, jobq.runs r WHERE r.id = '$run' AND r.id IN (h.id, h.workflow_id)"), 't', 'at the deadline and what is kept after it');

one('DELETE FROM repaired; DELETE FROM jobq.alerts');
$run = start_run('keeps', '{"list": [{"end": "fail"}, {"end": "fail"}], "end": "fail"}');
run_is($run, 'error');
is(one('SELECT count(*) FROM jobq.alerts'), '1', 'one alert per run');
is(one("SELECT bool_and(job_id = '$run') FROM jobq.alerts"), 't', 'of the run');
is(one("SELECT string_agg(type, ' ' ORDER BY id) FROM jobq.events WHERE job_id = '$run' AND type LIKE 'run%'"), 'run_started run_finished', 'events of a run');

is(one("SELECT count(*) FROM jobq.runs WHERE phase <> 'ended'"), '0', 'all runs have ended');
is(one('SELECT count(*) FROM jobq.dependencies'), '0', 'no edge is left');
is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/WARNING:  jobq|terminated by|PANIC|TRAP/, 'no warnings');

done_testing();
