# Calls whose transaction is open while a run goes on: pause and resume, retries of tasks, cancels,
# purges.  Each task runs once, none is forgotten, and no run ends without one.

use strict;
use warnings;

use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('races');
my $other = $node->background_psql('postgres');

# Returns when the conductor has tried all that was there before.
workflow('fence', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"]}]');
sub fence { return ended(start_run('fence')) eq 'completed' || die 'the conductor stands still'; }

# Runs statements with a transaction of another session open, which commits afterwards.
sub while_open
{
	my ($statement, $act) = @_;
	my $result = $other->query_safe("BEGIN; $statement");

	$act->();
	fence();
	$other->query_safe('COMMIT');
	return $result;
}

sub of { my ($run, $key, $what) = @_; return one("SELECT $what FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = '$key'"); }

# Claims until the tasks of these keys have ended; the result of a task is its key's.
sub complete_all
{
	my (%result) = @_;

	foreach (1 .. keys %result)
	{
		my ($id, $token) = claim_one();
		complete_one($id, $token, $result{ one("SELECT task_key FROM jobq.queue WHERE id = '$id'") });
	}
	return;
}

# ---------- pause, resume ----------

workflow('line', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"result": 2}}]');
my $run = start_run('line');
my ($id, $token) = claim_one();
one("SELECT jobq.pause_workflow('$run')");
while_open("SELECT jobq.resume_workflow('$run')", sub { complete_one($id, $token) });
run_is($run, 'completed', 'a task becomes ready while a resume is open');

$run = start_run('line');
($id, $token) = claim_one();
while_open("SELECT jobq.pause_workflow('$run')", sub { complete_one($id, $token) });
fence();
is(of($run, 'b', 'status'), 'blocked', 'a task becomes ready while a pause is open: it waits');
one("SELECT jobq.resume_workflow('$run')");
run_is($run, 'completed');

workflow('narrow', '[{"key": "m", "job_type": "pulled", "map": "$.input", "max_parallel": 1}]');
$run = start_run('narrow', '[1, 2]');
($id, $token) = claim_one();
while_open("SELECT jobq.pause_workflow('$run')", sub { complete_one($id, $token, '1') });
fence();
is(of($run, 'm.1', 'count(*)'), '0', 'a member ends while a pause is open: no other one comes');
one("SELECT jobq.resume_workflow('$run')");
complete_all('m.1' => '2');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [1, 2]}', 'then it does');

# A pause that waits for the release of a task does not wait for its handler, which waits for it.
one(q{CREATE FUNCTION gate(status jobq.job_status, key text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
  WHILE status = 'pending' AND key = 'gated' AND NOT pg_try_advisory_xact_lock_shared(77) LOOP  -- the conductor waits for no lock
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN 0;
END $$;
  CREATE INDEX gate ON jobq.queue (gate(status, task_key));
  CREATE FUNCTION adds(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.add_tasks('[{"key": "x", "job_type": "act"}]'); END $$;
  SELECT jobq.create_job_type('adds', 'adds(jsonb)', max_attempts => 1)});
workflow('adding', '[{"key": "a", "job_type": "pulled"}, {"key": "gated", "job_type": "adds", "after": ["a"]}]');
$run = start_run('adding');
($id, $token) = claim_one();
$other->query_safe('SELECT pg_advisory_lock(77)');
complete_one($id, $token);
wait_for_sql($node, q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE backend_type = 'jobq conductor'}, 'the release of a task is open');
my $pauser = $node->background_psql('postgres');
my $pid = $pauser->query_safe('SELECT pg_backend_pid()');
$pauser->query_until(qr/begun/, "\\echo begun\nSELECT jobq.pause_workflow('$run');\n");
wait_for_sql($node, "SELECT wait_event = 'transactionid' FROM pg_stat_activity WHERE pid = $pid", 'a pause waits for it');
kill 'STOP', $pid;
$other->query_safe('SELECT pg_advisory_unlock(77)');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event_type = 'Lock'}, 'the handler waits for the pause');
kill 'CONT', $pid;
wait_for_sql($node, "SELECT paused FROM jobq.runs WHERE id = '$run'", 'the pause does not wait for the handler');
$pauser->quit;
one("SELECT jobq.resume_workflow('$run')");
run_is($run, 'completed', 'which adds its task');

# A task that ran at the pause, or when the run began to fail, does not start again.
workflow('twice', '[{"key": "a", "job_type": "pulled", "max_attempts": 2, "backoff": {"base": "0s"}}, {"key": "x", "job_type": "pulled"}]');
foreach my $end ('pause', 'snooze', 'failure')
{
	$run = start_run('twice');
	my %held = map { ($id, $token) = claim_one(); (of($run, 'a', 'id') eq $id ? 'a' : 'x') => [ $id, $token ] } 1, 2;

	one($end eq 'failure' ? "SELECT jobq.fail('$held{x}[0]', '$held{x}[1]', 'no')" : "SELECT jobq.pause_workflow('$run')");
	wait_for_sql($node, "SELECT phase = 'failing' OR paused FROM jobq.runs WHERE id = '$run'", "$end of a run with a running task");
	one($end eq 'snooze' ? "SELECT jobq.snooze_job('$held{a}[0]', '$held{a}[1]', '10ms')" : "SELECT jobq.fail('$held{a}[0]', '$held{a}[1]', 'no')");
	if ($end eq 'failure')
	{
		run_is($run, 'error', 'the run ends');
		is(of($run, 'a', 'status'), 'cancelled', 'the task is not tried again');
		next;
	}
	wait_for_sql($node, "SELECT status = 'blocked' FROM jobq.jobs WHERE id = '$held{a}[0]'", 'the task waits for the end of the pause');
	one("SELECT jobq.resume_workflow('$run')");
	complete_one(@{ $held{x} });
	complete_all(a => '1');
	run_is($run, 'completed', 'then it runs again');
}

# ---------- retries of tasks ----------

workflow('going', '[{"key": "t", "job_type": "pulled"}, {"key": "x", "job_type": "pulled"}]', q{on_failure => 'continue'});
$run = start_run('going');
my %task = map { ($id, $token) = claim_one(); (one("SELECT task_key FROM jobq.queue WHERE id = '$id'") => [ $id, $token ]) } 1, 2;
one("SELECT jobq.fail('$task{t}[0]', '$task{t}[1]', 'no')");
is(while_open("SELECT jobq.retry_job('$task{t}[0]')", sub { complete_one(@{ $task{x} }, '1') }), 't', 'the last live task ends while the retry of another one is open');
complete_all(t => '2');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"t": 2, "x": 1}', 'the run has waited for it');
is(while_open("SELECT jobq.retry_job('$task{t}[0]')", sub { }), 'f', 'a completed task is not retried');

foreach my $call ("jobq.retry_job(id)", "jobq.retry_dead_letters('pulled')")
{
	workflow('members', '[{"key": "m", "job_type": "pulled", "map": "$.input"}]');
	$run = start_run('members', '[1, 2]');
	%task = map { ($id, $token) = claim_one(); (one("SELECT task_key FROM jobq.queue WHERE id = '$id'") => [ $id, $token ]) } 1, 2;
	one("SELECT jobq.fail('$task{'m.0'}[0]', '$task{'m.0'}[1]', 'no')");
	while_open('SELECT ' . $call =~ s/\bid\b/'$task{'m.0'}[0]'/r, sub { complete_one(@{ $task{'m.1'} }, '2') });
	complete_all('m.0' => '1');
	run_is($run, 'completed', "the last live member ends while $call of another one is open");
	is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [1, 2]}', 'the map has waited for it');
}

workflow('stops', '[{"key": "m", "job_type": "pulled", "map": "$.input"}, {"key": "x", "job_type": "pulled"}]');
$run = start_run('stops', '[1]');
%task = map { ($id, $token) = claim_one(); (one("SELECT task_key FROM jobq.queue WHERE id = '$id'") => [ $id, $token ]) } 1, 2;
one("SELECT jobq.fail('$task{'m.0'}[0]', '$task{'m.0'}[1]', 'no')");
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$run'", 'a map fails');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_job('$task{'m.0'}[0]')", '55000', 'a member of a map that has ended is not retried by itself');
is(one("SELECT jobq.retry_dead_letters('pulled')"), '0', 'nor with others');
one("SELECT jobq.cancel_job('$run')");
wait_for_sql($node, "SELECT phase = 'cancelling' FROM jobq.runs WHERE id = '$run'", 'its run is cancelled');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_job((SELECT id FROM jobq.dead_letters WHERE workflow_id = '$run' LIMIT 1))", '55000', 'no task of a run that is cancelled is retried');
complete_one(@{ $task{x} });
run_is($run, 'cancelled');

# Dead tasks of ended runs, which it leaves, do not use up max_jobs.
one(q{SELECT jobq.enqueue('pulled')});
($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
is(one(q{SELECT jobq.retry_dead_letters('pulled', max_jobs => 1)}), '1', 'a job behind tasks of ended runs is retried');
complete_one((claim_one())[0, 1]);

# ---------- purges ----------

$run = start_run('narrow', '[1, 2]');
($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
my $others = one("SELECT count(*) FROM jobq.dead_letters WHERE workflow_id IS DISTINCT FROM '$run'");
is(one("SELECT jobq.purge_dead_letters(older_than => '0')"), $others, 'dead letters of ended runs are purged, that of a live run stays');
complete_all('m.1' => '2');
run_is($run, 'error', 'the run still knows of it');

# ---------- cancels ----------

$run = start_run('line');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run' AND status = 'pending')", 'a task waits');
while_open(q{SELECT id, lease_token FROM jobq.claim('{pulled}')}, sub { one("SELECT jobq.cancel_job('$run')") }) =~ /^(\S+)\|(\S+)/ or die;
($id, $token) = ($1, $2);
wait_for_sql($node, "SELECT jobq.heartbeat('$id', '$token') = 'cancel'", 'a run is cancelled while a claim of its task is open: the task is told');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled');

one(q{SELECT jobq.pause_job_type('pulled')});
$run = start_run('line');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run' AND status = 'pending')", 'a task waits');
$id = of($run, 'a', 'id');
while_open("SELECT jobq.alter_job('$id', priority => 5)", sub { one("SELECT jobq.cancel_job('$run')") });
run_is($run, 'cancelled', 'a run is cancelled while its task is altered');
one(q{SELECT jobq.resume_job_type('pulled')});

# A session that holds one task does not keep the run from ending: the others end at once.
one(q{SELECT jobq.create_job_type('held', max_attempts => 1)});
workflow('many', '[{"key": "x", "job_type": "pulled"}, {"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "held"}, {"key": "c", "job_type": "act", "after": ["a"]}]');
foreach my $what ('failure', 'cancel')
{
	$run = start_run('many');
	my %held = map { ($id, $token) = claim_one(); (of($run, 'a', 'id') eq $id ? 'a' : 'x') => [ $id, $token ] } 1, 2;
	$id = of($run, 'b', 'id');
	while_open("SELECT jobq.alter_job('$id', priority => 5)", sub {
		one($what eq 'cancel' ? "SELECT jobq.cancel_job('$run')" : "SELECT jobq.fail('$held{x}[0]', '$held{x}[1]', 'no')");
		wait_for_sql($node, "SELECT phase <> 'running' FROM jobq.runs WHERE id = '$run'", "$what while a session holds a task");
		wait_for_sql($node, "SELECT status = 'cancelled' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'c'", 'what has not begun is cancelled');
		is(one("SELECT jobq.heartbeat('$held{a}[0]', '$held{a}[1]')"), $what eq 'cancel' ? 'cancel' : 'ok', 'and what runs is told of a cancel');
	});
	wait_for_sql($node, "SELECT status = 'cancelled' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'b'", 'that task after its session');
	complete_one(@{ $held{a} });
	complete_one(@{ $held{x} }) if $what eq 'cancel';
	run_is($run, $what eq 'cancel' ? 'cancelled' : 'error');
}

# ---------- a map ----------

# Members are added once, though a look finds the map twice.
one(q{SELECT jobq.pause_job_type('pulled')});
workflow('window', '[{"key": "m", "job_type": "pulled", "map": "$.input", "max_parallel": 4}]');
$run = start_run('window', '[0, 1, 2, 3, 4]');
wait_for_sql($node, "SELECT count(*) = 4 FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm.%'", 'four members wait');
my $map = of($run, 'm', 'id');
my $conductor = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});
freeze($node, $conductor);
one("SELECT jobq.cancel_job(id) FROM jobq.queue WHERE workflow_id = '$run' AND task_key IN ('m.0', 'm.1', 'm.2')");
one("SELECT jobq_internal._look(ARRAY['$map', '$map']::uuid[])");
kill 'CONT', $conductor;
is(one("SELECT string_agg(task_key, ' ' ORDER BY task_key) FROM jobq.queue WHERE workflow_id = '$run' AND parent_id = '$map'"), 'm.3 m.4', 'a look finds a map twice: each member is added once');
one(q{SELECT jobq.resume_job_type('pulled')});
complete_all('m.3' => '3', 'm.4' => '4');
run_is($run, 'completed');

# A cancel meets the start of a map, whose data the conductor reads until the table open has a row.
one(<<'END');
CREATE TABLE open ();
ALTER FUNCTION jobq_internal._items(text, jsonb) RENAME TO _items_before;
CREATE FUNCTION jobq_internal._items(path text, context jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.open) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN jobq_internal._items_before(path, context);
END $$;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq conductor';
END
workflow('late', '[{"key": "a", "job_type": "act"}, {"key": "m", "job_type": "pulled", "map": "$.input", "after": ["a"]}]');
$run = start_run('late', '[1, 2]');
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND wait_event = 'PgSleep')}, 'a map starts');
$map = of($run, 'm', 'id');
$other->query_until(qr/begun/, "\\echo begun\nSELECT 'told: ' || jobq.cancel_job('$map');\n");
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%jobq.cancel_job%')}, 'a cancel waits for it');
one('INSERT INTO open DEFAULT VALUES');
like($other->query_safe('SELECT 1'), qr/^1/m, 'it has ended');
wait_for_sql($node, "SELECT status = 'cancelled' FROM jobq.jobs WHERE id = '$map'", 'the map is cancelled, and none of its members runs');
run_is($run, 'completed');
one(q{DROP FUNCTION jobq_internal._items(text, jsonb); ALTER FUNCTION jobq_internal._items_before(text, jsonb) RENAME TO _items;
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});

# A retry meets the end of a run: the conductor has seen the dead task, and waits for a row of open.
one(<<'END');
TRUNCATE open;
ALTER FUNCTION jobq_internal._continues(jobq.runs, text) RENAME TO _continues_before;
CREATE FUNCTION jobq_internal._continues(r jobq.runs, key text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  WHILE (SELECT backend_type = 'jobq conductor' FROM pg_stat_activity WHERE pid = pg_backend_pid()) AND NOT EXISTS (SELECT FROM public.open) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN jobq_internal._continues_before(r, key);
END $$;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq conductor';
END
workflow('seen', '[{"key": "t", "job_type": "pulled"}]');
$run = start_run('seen');
($id, $token) = claim_one();
one("SELECT jobq.fail('$id', '$token', 'no')");
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND wait_event = 'PgSleep')}, 'the conductor has seen a dead task');
is(one("SELECT jobq.retry_job('$id')"), 't', 'which is retried');
one('INSERT INTO open DEFAULT VALUES');
complete_all(t => '1');
run_is($run, 'completed', 'its run does not fail of its former end');
one(q{DROP FUNCTION jobq_internal._continues(jobq.runs, text); ALTER FUNCTION jobq_internal._continues_before(jobq.runs, text) RENAME TO _continues;
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});

# ---------- steps that a task adds ----------

$run = start_run('line');
($id, $token) = claim_one();
my $began = time;
one(qq{SELECT jobq.add_tasks('[{"key": "d", "delay": "1s"}]', '$id', '$token')});
wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'd'", 'a delay that a task adds');
cmp_ok(time - $began, '<', 30, sprintf('ends in time: after %d s', time - $began));
complete_one($id, $token);
run_is($run, 'completed');

# ---------- a run that waits to start again ----------

workflow('again', '[{"key": "a", "job_type": "act", "payload": {"result": 1}}, {"key": "x", "job_type": "pulled", "after": ["a"]},
  {"key": "z", "job_type": "act", "after": ["x"], "payload": {"result": {"$": "$.tasks.a.result"}}}]');
sub restart
{
	my ($again) = @_;
	my ($id, $token) = claim_one();

	one("SELECT jobq.fail('$id', '$token', 'no')");
	run_is($again, 'error', 'a run fails');
	one(q{SELECT jobq.pause_job_type('again')});
	is(one("SELECT jobq.retry_workflow('$again')"), 't', 'its retry waits');
	return;
}
$run = start_run('again');
restart($run);
one("DELETE FROM jobq.history WHERE workflow_id = '$run' AND task_key = 'a'");	# as it expires
one(q{SELECT jobq.resume_job_type('again')});
wait_for_sql($node, "SELECT error_code = '55000' FROM jobq.jobs WHERE id = '$run'", 'a result expired meanwhile: it does not start');
is(one("SELECT count(*) FROM ran WHERE run = '$run' AND key = 'a'"), '1', 'nor does its task run again');
is(one("SELECT jobq.cancel_job('$run')"), 't', 'it is cancelled');
$run = start_run('again');
restart($run);
is(one("SELECT jobq.cancel_job('$run')"), 't', 'it is cancelled');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'and retried');
one(q{SELECT jobq.resume_job_type('again')});
complete_all(x => '7');
run_is($run, 'completed');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
is(one('SELECT count(*) FROM jobq.dependencies'), '0', 'no edge is left');
$other->quit;
$node->stop;
done_testing();
