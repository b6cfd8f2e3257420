# jobq.retry_workflow(version => ...) of live runs: what has ended keeps its result, what runs goes
# on, all else is done by the new version.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('versions');

sub retry { my ($run, $arguments) = @_; return one("SELECT jobq.retry_workflow('$run', $arguments)"); }

sub version_of { my ($run) = @_; return one("SELECT version FROM jobq.workflow_runs WHERE id = '$run'"); }

# Returns "key:times ..." of the effects of a run's tasks of type act.
sub effects_of
{
	my ($run) = @_;

	return one("SELECT coalesce(string_agg(key || ':' || n, ' ' ORDER BY key COLLATE \"C\"), '') FROM (SELECT key, count(*) AS n FROM ran WHERE run = '$run' GROUP BY key) x");
}

sub task_is
{
	my ($run, $key, $condition, $what) = @_;

	return wait_for_sql($node, "SELECT $condition FROM jobq.queue WHERE workflow_id = '$run' AND task_key = '$key'", $what);
}

# ---------- a task runs ----------

workflow('row', '[{"key": "a", "job_type": "act", "payload": {"result": 1}}, {"key": "b", "job_type": "pulled", "after": ["a"]},
  {"key": "c", "job_type": "act", "after": ["b"], "payload": {"end": "fail"}}, {"key": "old", "job_type": "act", "after": ["c"]}]');
my $run = start_run('row');
my ($id, $token) = claim_one();
is(retry($run, 'version => 1'), 'f', 'a live run has its own version');
is(retry($run, 'NULL'), 'f', 'and nothing to retry');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', version => 7)", '42704', 'an unknown version');
is(workflow('row', '[{"key": "b", "job_type": "pulled"}]'), '2', 'a version without a completed step');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', version => 2)", '22023', 'is refused');
is(version_of($run), '1', 'and the run keeps its own');
is(workflow('row', '[{"key": "a", "job_type": "act", "payload": {"result": 2}}, {"key": "b", "job_type": "pulled", "after": ["a"], "payload": {"new": true}},
  {"key": "c", "job_type": "act", "after": ["b"], "payload": {"result": {"$": "$.tasks.b.result"}}}, {"key": "new", "job_type": "act", "after": ["c"]},
  {"key": "beside", "job_type": "act", "after": ["a"]}]'), '3', 'a repaired version');
is(retry($run, q{from_task => 'a', version => 3}), 'f', 'from_task is for ended runs');
is(retry($run, 'version => 3'), 't', 'the run takes the version while a task runs');
is(version_of($run), '3', 'jobq.workflow_runs shows it');
wait_for_sql($node, "SELECT count(*) = 1 FROM ran WHERE run = '$run' AND key = 'beside'", 'a new step behind an ended one starts');
is(one("SELECT payload FROM jobq.jobs WHERE id = '$id'"), '{}', 'the running task has its payload');
is(complete_one($id, $token, '7'), 't', 'and goes on');
run_is($run, 'completed');
is(tasks_of($run), 'a:completed b:completed beside:completed c:completed new:completed old:cancelled', 'the steps are those of the new version');
is(effects_of($run), 'a:1 beside:1 c:1 new:1', '!each ran once');
is(one("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'c'"), '7', 'with the data of the new version');
is(one("SELECT string_agg(data->>'version', ' ' ORDER BY id) FROM jobq.events WHERE job_id = '$run' AND type IN ('run_started', 'retried')"), '1 3', 'its events');

# ---------- a task waits for a worker, an event, a delay ----------

one(q{SELECT jobq.pause_job_type('pulled')});
workflow('waits', '[{"key": "w", "job_type": "pulled"}, {"key": "same", "job_type": "pulled"}, {"key": "e", "event": "go"}, {"key": "d", "delay": "1 day"},
  {"key": "late", "job_type": "act", "delay": "1 day"}, {"key": "z", "job_type": "act", "after": ["w", "same", "e", "d", "late"]}]');
$run = start_run('waits');
task_is($run, 'late', "status = 'pending'", 'the tasks wait');
my $same = one("SELECT id FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'same'");
my $began = one("SELECT started_at FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'e'");
workflow('waits', '[{"key": "w", "job_type": "act"}, {"key": "same", "job_type": "pulled"}, {"key": "e", "event": "go"},
  {"key": "late", "job_type": "act"}, {"key": "z", "job_type": "act", "after": ["w", "same", "e", "late"]}]');
is(retry($run, 'version => 2'), 't', 'a run none of whose tasks runs');
wait_for_sql($node, "SELECT count(*) = 2 FROM ran WHERE run = '$run' AND key IN ('w', 'late')", 'tasks that waited start by the new version');
is(one("SELECT id FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'same'"), $same, 'one whose step is the same goes on');
is(one("SELECT started_at FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'e'"), $began, 'so does the wait for an event');
is(one("SELECT status FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'd'"), 'cancelled', 'a step that the version lacks is cancelled');
is(one("SELECT jobq.send_event('$run', 'go')"), 't', 'the event');
one(q{SELECT jobq.resume_job_type('pulled')});
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
is(tasks_of($run), 'd:cancelled e:completed late:completed same:completed w:completed z:completed', 'all has been done');
is(effects_of($run), 'late:1 w:1 z:1', '!once');

# ---------- running tasks that the version lacks ----------

workflow('lacks', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 1}, {"key": "t", "job_type": "pulled", "after": ["m"], "rule": "done"}]');
workflow('lacks', '[{"key": "s", "job_type": "act", "payload": {"result": "s"}}]');
is(workflow('lacks', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 1}, {"key": "t", "job_type": "pulled", "after": ["m"], "rule": "done"}]'), '1', 'the first version again');
$run = start_run('lacks', '{"list": [1, 2]}');
($id, $token) = claim_one();
is(retry($run, 'version => 2'), 't', 'a version without the running map');
is(one("SELECT jobq.heartbeat('$id', '$token')"), 'cancel', 'its member is told');
one("SELECT jobq.fail('$id', '$token', 'stopped', false)");
run_is($run, 'completed', 'the run does not fail of it');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"s": "s"}', 'its result is that of the version');
workflow('lacks', '[{"key": "m", "job_type": "pulled"}]');
$run = start_run('lacks');
($id, $token) = claim_one();
is(retry($run, 'version => 2'), 't', 'a version without the running task');
complete_one($id, $token, '1');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"s": "s"}', 'a task that completes all the same is no part of the result');

# ---------- dead tasks ----------

workflow('dies', '[{"key": "s", "event": "start"}, {"key": "x", "job_type": "act", "after": ["s"], "payload": {"end": "fail"}}, {"key": "y", "job_type": "act", "after": ["x"]}, {"key": "p", "job_type": "pulled"},
  {"key": "q", "job_type": "act", "after": ["p"]}]');
workflow('dies', '[{"key": "s", "event": "start"}, {"key": "x", "job_type": "act", "after": ["s"]}, {"key": "y", "job_type": "act", "after": ["x"]}, {"key": "p", "job_type": "pulled"},
  {"key": "q", "job_type": "act", "after": ["p"]}]');
is(workflow('dies', '[{"key": "s", "event": "start"}, {"key": "x", "job_type": "act", "after": ["s"], "payload": {"end": "fail"}}, {"key": "y", "job_type": "act", "after": ["x"]}, {"key": "p", "job_type": "pulled"},
  {"key": "q", "job_type": "act", "after": ["p"]}]'), '1', 'a step fails in the first version only');
$run = start_run('dies');
($id, $token) = claim_one();
one("SELECT jobq.send_event('$run', 'start')");
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$run'", 'the run fails, and waits for a task');
is(retry($run, 'NULL'), 'f', 'without a version it is live');
is(retry($run, 'version => 2'), 't', 'the other version repairs it');
complete_one($id, $token);
run_is($run, 'completed');
is(tasks_of($run), 'p:completed q:completed s:completed x:completed y:completed', 'all its tasks are done');
is(effects_of($run), 'q:1 x:1 y:1', '!once each (the failed attempt was rolled back)');
workflow('removed', '[{"key": "x", "job_type": "act"}, {"key": "bad", "job_type": "act", "payload": {"end": "fail"}}]');
$run = tasks_are('removed', '{}', 'error', 'bad:error x:completed', 'a run fails');
workflow('removed', '[{"key": "x", "job_type": "act"}, {"key": "good", "job_type": "act", "after": ["x"]}]');
is(retry($run, 'version => 2'), 't', 'an ended run takes a version without the step that failed');
run_is($run, 'completed', 'and does not fail of it again');
workflow('go-on', '[{"key": "x", "job_type": "act", "payload": {"end": "fail"}}, {"key": "y", "job_type": "act", "after": ["x"]}, {"key": "p", "job_type": "pulled"}]', q{on_failure => 'continue'});
workflow('go-on', '[{"key": "x", "job_type": "act"}, {"key": "y", "job_type": "act", "after": ["x"]}, {"key": "p", "job_type": "pulled"}]', q{on_failure => 'continue'});
workflow('go-on', '[{"key": "x", "job_type": "act", "payload": {"end": "fail"}}, {"key": "y", "job_type": "act", "after": ["x"]}, {"key": "p", "job_type": "pulled"}]', q{on_failure => 'continue'});
$run = start_run('go-on');
($id, $token) = claim_one();
wait_for_sql($node, "SELECT status = 'skipped' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'y'", 'a run goes on after a dead task');
is(retry($run, 'version => 2'), 't', 'another version');
wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'y'", 'runs the dead task and what was skipped behind it');
complete_one($id, $token);
run_is($run, 'completed');

# ---------- rules behind tasks that go on ----------

workflow('rules', '[{"key": "a", "job_type": "act"}, {"key": "p", "job_type": "pulled", "after": ["a"]}]');
workflow('rules', '[{"key": "a", "job_type": "act"}, {"key": "p", "job_type": "pulled", "after": ["a"]}, {"key": "any", "job_type": "act", "after": ["a", "p"], "rule": "any"},
  {"key": "failed", "job_type": "act", "after": ["a", "p"], "rule": "failed"}, {"key": "both", "job_type": "act", "after": ["a", "p"]}]');
workflow('rules', '[{"key": "a", "job_type": "act"}, {"key": "p", "job_type": "pulled", "after": ["a"]}]');
$run = start_run('rules');
($id, $token) = claim_one();
is(retry($run, 'version => 2'), 't', 'steps behind an ended and a running one');
wait_for_sql($node, "SELECT count(*) = 1 FROM ran WHERE run = '$run' AND key = 'any'", 'one parent is enough for rule any');
is(tasks_of($run), 'a:completed any:completed both:blocked failed:blocked p:running', 'the others wait');
complete_one($id, $token);
run_is($run, 'completed');
is(tasks_of($run), 'a:completed any:completed both:completed failed:skipped p:completed', 'as their rules want');

workflow('goes on', '[{"key": "p", "job_type": "pulled"}, {"key": "a", "job_type": "act", "payload": {"end": "fail"}}]', q{on_failure => 'continue'});
$run = start_run('goes on');
wait_for_sql($node, "SELECT status = 'error' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'a'", 'a task fails');
($id, $token) = claim_one();
one(qq{SELECT jobq.add_tasks('[{"key": "b", "job_type": "act", "after": ["a"]}]', id => '$id', lease_token => '$token')});
complete_one($id, $token);
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE id = '$run')", 'the run ends');
is(tasks_of($run), 'a:error b:skipped p:completed', 'a new task behind a failure after which the run goes on is skipped');

# ---------- pauses, restarts, the end ----------

workflow('rest', '[{"key": "p", "job_type": "pulled"}]');
workflow('rest', '[{"key": "p", "job_type": "pulled"}, {"key": "n", "job_type": "act"}]');
workflow('rest', '[{"key": "p", "job_type": "pulled"}]');
$run = start_run('rest');
($id, $token) = claim_one();
one("SELECT jobq.pause_workflow('$run')");
is(retry($run, 'version => 2'), 't', 'a paused run');
task_is($run, 'n', "status = 'blocked' AND after_state = 16", 'the new step waits for its end');
one("SELECT jobq.resume_workflow('$run')");
wait_for_sql($node, "SELECT count(*) = 1 FROM ran WHERE run = '$run'", 'then it starts');
is(one("SELECT jobq.cancel_job('$run')"), 't', 'a cancel');
is(retry($run, 'version => 1'), 'f', 'a run that is being cancelled keeps its version');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled');

# A run that was retried, and waits for its start.
one(q{SELECT jobq.pause_job_type('rest')});
is(retry($run, 'NULL'), 't', 'it is retried');
is(one("SELECT phase FROM jobq.runs WHERE id = '$run'"), 'restarting', 'and waits');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', version => 1)", '22023', 'a version without a completed step is refused');
workflow('rest', '[{"key": "p", "job_type": "pulled"}, {"key": "n", "job_type": "act"}, {"key": "o", "job_type": "act", "after": ["n"]}]');
is(retry($run, 'version => 3'), 't', 'it starts by another version');
one(q{SELECT jobq.resume_job_type('rest')});
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
is(tasks_of($run), 'n:completed o:completed p:completed', 'its tasks');
is(effects_of($run), 'n:1 o:1', 'the completed one was kept');

# The last task ends while the version changes: the run does not end without the new step.
workflow('last', '[{"key": "p", "job_type": "pulled"}]');
workflow('last', '[{"key": "p", "job_type": "pulled"}, {"key": "n", "job_type": "act", "after": ["p"]}]');
workflow('last', '[{"key": "p", "job_type": "pulled"}]');
$run = start_run('last');
($id, $token) = claim_one();
my $session = $node->background_psql('postgres');
$session->query_safe("BEGIN; SELECT jobq.retry_workflow('$run', version => 2)");
complete_one($id, $token);
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run')", 'the last task has ended');
workflow('fence', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"]}]');
run_is(start_run('fence'), 'completed', 'another run ends');
is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', 'this one waits for the open transaction');
$session->query_safe('COMMIT');
$session->quit;
run_is($run, 'completed');
is(effects_of($run), 'n:1', 'and the step of the new version ran');

# A claimed task adds steps while the version changes: neither waits for the other one for ever.
workflow('meets', '[{"key": "p", "job_type": "pulled"}]');
workflow('meets', '[{"key": "s", "job_type": "act"}]');
workflow('meets', '[{"key": "p", "job_type": "pulled"}]');
$run = start_run('meets');
($id, $token) = claim_one();
my ($changer, $adder) = map { $node->background_psql('postgres') } 1, 2;
$changer->query_safe("BEGIN; SELECT FROM jobq.runs WHERE id = '$run' FOR UPDATE");
$adder->query_until(qr/begun/, qq{\\echo begun\nSELECT jobq.add_tasks('[{"key": "x"}]', '$id', '$token');\n});
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%jobq.add_tasks%')}, 'add_tasks waits for a call');
is($changer->query_safe("SELECT jobq.retry_workflow('$run', version => 2); COMMIT"), 't', 'that does not wait for it');
$_->quit foreach $adder, $changer;
unlike(slurp_file($node->logfile), qr/deadlock detected/, 'and gets no error of it');
complete_one($id, $token);
run_is($run, 'completed');

# ---------- jobs outside of the run ----------

workflow('watched', '[{"key": "p", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["p"], "payload": {"end": "fail"}}]');
workflow('watched', '[{"key": "p", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["p"]}]');
workflow('watched', '[{"key": "p", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["p"], "payload": {"end": "fail"}}]');
# Returns a job that waits for the task of that key.
sub watcher_of { my ($of, $key, $rule) = @_; return one("SELECT jobq.enqueue('act', after => ARRAY[id], after_rule => '$rule') FROM jobq.jobs WHERE workflow_id = '$of' AND task_key = '$key'"); }
$run = start_run('watched');
($id, $token) = claim_one();
my ($success, $done) = map { watcher_of($run, 'b', $_) } qw(success done);
is(retry($run, 'version => 2'), 't', 'a version by which a task starts anew');
is(ended($success), 'cancelled', 'a job that waits for the task that was taken back is cancelled');
is(ended($done), 'completed', 'or released, as its rule wants');
complete_one($id, $token);
run_is($run, 'completed');
workflow('watched', '[{"key": "p", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["p"], "payload": {"end": "fail"}}]');
$run = start_run('watched');
complete_one((claim_one())[0, 1]);
run_is($run, 'error', 'a run fails');
$success = watcher_of($run, 'b', 'success');
is(one("SELECT status FROM jobq.jobs WHERE id = '$success'"), 'blocked', 'a job waits for its dead task');
is(retry($run, 'version => 2'), 't', 'the run is retried');
is(ended($success), 'cancelled', 'the dead task has gone');
run_is($run, 'completed');

# ---------- tasks that tasks have added ----------

one(q{CREATE FUNCTION adds(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.add_tasks(p); END $$; SELECT jobq.create_job_type('adds', 'adds(jsonb)')});
workflow('added', '[{"key": "p", "job_type": "adds", "payload": [{"key": "x", "job_type": "act", "after": ["q"]}]}, {"key": "q", "job_type": "pulled"}]');
is(workflow('added', '[{"key": "p", "job_type": "adds", "payload": []}, {"key": "q", "job_type": "pulled"}, {"key": "x", "job_type": "act", "after": ["p"]}]'), '2', 'a version with the step that a task adds');
is(workflow('added', '[{"key": "p", "job_type": "adds", "payload": []}, {"key": "q", "job_type": "pulled", "after": ["p"], "payload": {"v": 3}}, {"key": "r", "job_type": "act"}]'), '3', 'one in which that step would wait for itself');
is(workflow('added', '[{"key": "p", "job_type": "adds", "payload": []}, {"key": "q", "job_type": "pulled", "payload": {"v": 4}}, {"key": "r", "job_type": "act", "after": ["p"]}]'), '4', 'and one that has room for it');
is(workflow('added', '[{"key": "p", "job_type": "adds", "payload": [{"key": "x", "job_type": "act", "after": ["q"]}]}, {"key": "q", "job_type": "pulled"}]'), '1', 'the first version again');
one(q{SELECT jobq.pause_job_type('pulled')});
$run = start_run('added');
task_is($run, 'x', "status = 'blocked'", 'a task has added a step');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', version => $_)", '22023', "version $_ does not fit the added step") foreach 2, 3;
is(retry($run, 'version => 4'), 't', 'another one does');
one(q{SELECT jobq.resume_job_type('pulled')});
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
is(tasks_of($run), 'p:completed q:completed r:completed x:completed', 'each step has one task');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', 'q', 3)", '22023', 'the same holds when the run has ended');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.dependencies', 'no edge is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
