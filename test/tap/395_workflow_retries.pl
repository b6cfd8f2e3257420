# Retries of runs: what they run again and what they refuse, of maps, of nested runs, of results
# that have expired.  Then purges, and the quotas of tenants.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('retries');
one('CREATE TABLE repaired ()');
one(q{CREATE OR REPLACE FUNCTION act(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  j jobq.jobs := jobq.current_job();
BEGIN
  IF p ->> 'end' = 'fail' AND NOT EXISTS (SELECT FROM public.repaired) THEN RAISE 'told to'; END IF;
  INSERT INTO public.ran (run, key, payload) VALUES (j.workflow_id, j.task_key, p);
  RETURN p -> 'result';
END $$});

sub repair { return one('INSERT INTO repaired DEFAULT VALUES'); }
sub break_again { return one('DELETE FROM repaired'); }
sub id_of { my ($run, $key) = @_; return one("SELECT id FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = '$key'"); }
sub effects_of { my ($run) = @_; return one("SELECT coalesce(string_agg(key || ':' || n, ' ' ORDER BY key COLLATE \"C\"), '') FROM (SELECT key, count(*) AS n FROM ran WHERE run = '$run' GROUP BY key) x"); }

# ---------- maps ----------

workflow('maps', '[{"key": "l", "job_type": "act", "payload": {"result": {"$": "$.input.list"}}},
  {"key": "m", "job_type": "act", "after": ["l"], "map": "$.tasks.l.result", "max_parallel": 2},
  {"key": "z", "job_type": "act", "after": ["m"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
my $list = '{"list": [{"result": 0}, {"end": "fail", "result": 1}, {"result": 2}, {"end": "fail", "result": 3}, {"result": 4}]}';
my $run = start_run('maps', $list);
run_is($run, 'error', 'members fail');
my $before = effects_of($run);
like($before, qr/^l:1 m\.0:1/, 'others complete');
unlike($before, qr/m\.[13]/, 'these do not');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'a retry');
run_is($run, 'error', 'which fails again');
repair();
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'and another one');
run_is($run, 'completed');
is(effects_of($run), 'l:1 m.0:1 m.1:1 m.2:1 m.3:1 m.4:1 z:1', 'run only members again that have not completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"z": [0, 1, 2, 3, 4]}', 'the result has all of them in order');
is(tasks_of($run), 'l:completed m:completed m.0:completed m.1:completed m.2:completed m.3:completed m.4:completed z:completed', 'each element has one row');
is(one("SELECT jobq.retry_workflow('$run', from_task => 'm')"), 't', 'from_task: the map');
run_is($run, 'completed');
is(effects_of($run), 'l:1 m.0:2 m.1:2 m.2:2 m.3:2 m.4:2 z:2', 'runs all members again');
break_again();
$run = start_run('maps', $list);
run_is($run, 'error', 'members fail');
repair();
is(one("SELECT jobq.retry_workflow('$run', from_task => 'l')"), 't', 'from_task: the step before the map');
run_is($run, 'completed');
like(effects_of($run), qr/^l:2 m\.0:2 m\.1:1 m\.2:\d m\.3:1 m\.4:\d z:1$/, 'runs all members again, too');
break_again();
workflow('cut', '[{"key": "m", "job_type": "pulled", "map": "$.input", "max_parallel": 1}]');
$run = start_run('cut', '[10, 11, 12]');
my ($id, $token) = claim_one();
complete_one($id, $token, '"first"');
($id, $token) = claim_one();
one("SELECT jobq.cancel_job('$run')");
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'a run is cancelled');
one("SELECT jobq.fail('$id', '$token', 'stopped')");
run_is($run, 'cancelled');
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'and retried');
my @payloads = map { my @claimed = claim_one(); complete_one(@claimed[0, 1], '"second"'); $claimed[2] } 1 .. 2;
is("@payloads", '11 12', 'the completed member does not run again');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": ["first", "second", "second"]}', 'and keeps its result');

# ---------- versions ----------

workflow('same', '[{"key": "a", "job_type": "act"}]');
$run = tasks_are('same', '{}', 'completed', 'a:completed', 'a run completes');
workflow('same', '[{"key": "a", "job_type": "act", "payload": {"v": 2}}]');
is(one("SELECT jobq.retry_workflow('$run', version => 2)"), 'f', 'nothing to retry by another version');
is(one("SELECT version FROM jobq.runs WHERE id = '$run'"), '1', 'the run keeps its own');
workflow('skips', '[{"key": "a", "job_type": "act", "if": "1 == 2"}, {"key": "b", "job_type": "act", "payload": {"end": "fail"}}]');
$run = tasks_are('skips', '{}', 'error', 'a:skipped b:error', 'a run with a skipped step fails');
workflow('skips', '[{"key": "b", "job_type": "act"}]');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run', version => 2)", '22023', 'a version without the skipped step is refused');

# ---------- nested runs ----------

workflow('leaf', '[{"key": "x", "job_type": "act"}, {"key": "y", "job_type": "act", "after": ["x"], "payload": {"end": "fail"}}]');
workflow('mid', '[{"key": "leaf", "job_type": "leaf"}]');
workflow('top', '[{"key": "mid", "job_type": "mid"}, {"key": "end", "job_type": "act", "after": ["mid"]}]');
foreach my $what ('the task', 'the inner run', 'the run between')
{
	break_again();
	$run = start_run('top');
	run_is($run, 'error', 'a nested task fails');
	my $mid = id_of($run, 'mid');
	my $leaf = id_of($mid, 'leaf');
	my $job = $what eq 'the task' ? id_of($leaf, 'y') : $what eq 'the inner run' ? $leaf : $mid;

	repair();
	sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$job')", '55000', "retry_workflow of $what, whose outer run has ended") if $job eq $leaf || $job eq $mid;
	is(one("SELECT jobq.retry_job('$job')"), 't', "retry_job of $what");
	run_is($run, 'completed', 'retries the outermost run');
	is(one("SELECT count(*) FROM jobq.queue"), '0', 'and no other one');
	is(one("SELECT count(*) FROM jobq.runs WHERE id IN ('$mid', '$leaf')"), '0', 'its former tasks have gone');
}
break_again();
workflow('going', '[{"key": "s", "job_type": "leaf"}, {"key": "p", "job_type": "pulled"}, {"key": "z", "job_type": "act", "after": ["s"]}]', q{on_failure => 'continue'});
$run = start_run('going');
($id, $token) = claim_one();
wait_for_sql($node, "SELECT status = 'error' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 's'", 'an inner run fails, the outer one goes on');
repair();
is(one("SELECT jobq.retry_job('" . id_of(id_of($run, 's'), 'y') . "')"), 't', 'retry_job of its task');
wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 's'", 'retries the inner run');
complete_one($id, $token);
run_is($run, 'completed');
is(one("SELECT count(*) FROM ran WHERE run = '" . id_of($run, 's') . "'"), '2', 'whose completed task did not run again');

# ---------- a run that fails ----------

break_again();
workflow('failing', '[{"key": "a", "job_type": "act", "payload": {"end": "fail"}}, {"key": "b", "job_type": "pulled"},
  {"key": "c", "job_type": "act", "after": ["a"], "rule": "failed", "payload": {"end": "fail"}}]');
one(q{SELECT jobq.pause_job_type('act')});	# a run that fails skips what has not begun
$run = start_run('failing');
($id, $token) = claim_one();
one(q{SELECT jobq.resume_job_type('act')});
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$run'", 'a run fails');
wait_for_sql($node, "SELECT status = 'error' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'c'", 'so does its task of rule failed');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_job('" . id_of($run, 'a') . "')", '55000', 'it starts no task of rule success');
repair();
is(one("SELECT jobq.retry_job('" . id_of($run, 'c') . "')"), 't', 'but one of rule failed');
wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'c'", 'which completes');
complete_one($id, $token);
run_is($run, 'error');

# ---------- results that have expired ----------

break_again();
workflow('expires', '[{"key": "a", "job_type": "act", "payload": {"result": 1}}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]');
$run = tasks_are('expires', '{}', 'error', 'a:completed b:error', 'a run fails');
one("DELETE FROM jobq.history WHERE workflow_id = '$run'");	# as it expires
repair();
sqlstate_is($node, 'postgres', "SELECT jobq.$_", '55000', "$_ without the row of a completed task") foreach "retry_workflow('$run')", "retry_job('$run')";
is(one("SELECT phase FROM jobq.runs WHERE id = '$run'"), 'ended', 'the run has not begun');
is(one("SELECT jobq.retry_workflow('$run', from_task => 'a')"), 't', 'from_task runs it again');
run_is($run, 'completed');
is(effects_of($run), 'a:2 b:1', 'knowingly');
break_again();
workflow('lost', '[{"key": "m", "job_type": "act", "map": "$.input"}]');
$run = tasks_are('lost', '[{"result": 0}, {"end": "fail"}]', 'error', 'm:error m.0:completed m.1:error', 'a member fails');
one("DELETE FROM jobq.history WHERE workflow_id = '$run'");
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run')", '55000', 'without the row of a completed member');
workflow('undone', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "act"}}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]', q{on_failure => 'compensate'});
$run = tasks_are('undone', '{}', 'error', 'a:completed a.undo:completed b:error', 'a run is compensated');
one("DELETE FROM jobq.history WHERE workflow_id = '$run' AND task_key LIKE '%.undo'");
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run')", '55000', 'and not retried when its compensation has expired');

# ---------- purges ----------

$run = start_run('top');
run_is($run, 'error', 'a nested task fails');
one(q{SELECT jobq.purge_dead_letters(job_type => 'top')});
is(one('SELECT count(*) FROM jobq.runs r JOIN jobq.job_types t ON t.id = r.type_id WHERE t.name IN (\'mid\', \'leaf\') AND NOT EXISTS (SELECT FROM jobq.history h WHERE h.id = r.id)'), '0', 'a purge takes the runs in a run along');
is(one("SELECT count(*) FROM jobq.dead_letters d WHERE d.workflow_id IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.runs r WHERE r.id = d.workflow_id)"), '0', 'no dead letter is left of a run that has gone');

# ---------- quotas, depth ----------

repair();
one(q{SELECT jobq.set_tenant_quota('small', max_live => 4)});
workflow('five', '[' . join(', ', map { qq({"key": "s$_", "job_type": "act"}) } 1 .. 5) . ']');
$run = start_run('five', '{}', q{tenant => 'small'});
wait_for_sql($node, "SELECT status = 'retry' AND error_code = '53400' FROM jobq.jobs WHERE id = '$run'", 'a run whose steps exceed a quota waits');
is(one("SELECT count(*) FROM jobq.jobs WHERE workflow_id = '$run'"), '0', 'and has no task');
one(q{SELECT jobq.set_tenant_quota('small', max_live => 6)});
one("SELECT jobq.retry_job('$run')");
run_is($run, 'completed', 'with room it starts');
workflow('many', '[{"key": "m", "job_type": "act", "map": "$.input"}]');
$run = start_run('many', '[' . join(', ', ('{}') x 20) . ']', q{tenant => 'small'});
one(<<'END');
CREATE FUNCTION note_most() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.most SELECT count(*) FROM jobq.queue WHERE tenant = 'small';
  RETURN NULL;
END $$;
CREATE TABLE most (n int);
CREATE CONSTRAINT TRIGGER most AFTER INSERT ON jobq.queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.tenant = 'small') EXECUTE FUNCTION note_most();
END
run_is($run, 'completed', 'a map over more elements than the quota admits at once');
is(one("SELECT count(*) FROM ran WHERE run = '$run'"), '20', 'each of them ran');
cmp_ok(one('SELECT coalesce(max(n), 0) FROM most'), '<=', 6, 'and the quota was kept');
one('DROP TRIGGER most ON jobq.queue');
one(q{CREATE FUNCTION adds(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.add_tasks(p); END $$; SELECT jobq.create_job_type('adds', 'adds(jsonb)', max_attempts => 1)});
workflow('adding', '[{"key": "p", "job_type": "adds", "payload": {"$": "$.input"}}]');
$run = start_run('adding', '[' . join(', ', map { qq({"key": "t$_", "job_type": "act"}) } 1 .. 6) . ']', q{tenant => 'small'});
run_is($run, 'error', 'add_tasks beyond the quota');
is(one("SELECT error_code FROM jobq.jobs WHERE workflow_id = '$run'"), '53400', 'is an error of its caller');
workflow('reverts', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "act"}}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]', q{on_failure => 'compensate'});
break_again();
one(q{SELECT jobq.pause_job_type('act')});
$run = start_run('reverts', '{}', q{tenant => 'small'});
wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.queue WHERE workflow_id = '$run'", 'a run has begun');
one(q{SELECT jobq.set_tenant_quota('small', max_live => 1)});
one(q{SELECT jobq.resume_job_type('act')});
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue q WHERE q.workflow_id = '$run')", 'its task fails');
run_is(start_run('same'), 'completed', 'the conductor has tried to compensate it');
is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), 'running', 'that waits for room');
one(q{SELECT jobq.set_tenant_quota('small', max_live => 10)});
run_is($run, 'error');
is(tasks_of($run), 'a:completed a.undo:completed b:error', 'and runs then');
one(q{SELECT jobq.set_tenant_quota('small')});
one(q{SELECT jobq.create_job_type('shallow', 'act(jsonb)', options => '{"max_depth": 1}')});
workflow('flat', '[{"key": "a", "job_type": "shallow"}]');
workflow('deep', '[{"key": "s", "job_type": "flat"}]');
run_is(start_run('flat'), 'completed', 'a task within max_depth');
$run = start_run('deep');
wait_for_sql($node, "SELECT error_code = '54000' FROM jobq.jobs WHERE workflow_id = '$run'", 'a deeper one is refused');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');

# ---------- rules that some parents have met ----------

workflow('either', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "pulled"}, {"key": "z", "job_type": "act", "after": ["a", "b"], "rule": "any"}]');
$run = start_run('either');
my $has_run = "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'z'";
($id, $token) = claim_one();
wait_for_sql($node, $has_run, 'a step of rule any runs after the first of its parents');
one("SELECT jobq.fail('$id', '$token', 'no')");
run_is($run, 'error');
one("SELECT jobq.retry_workflow('$run')");
($id, $token) = claim_one();
wait_for_sql($node, $has_run, 'and again in a retry: that parent has completed before');
complete_one($id, $token);
run_is($run, 'completed');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.dependencies', 'no edge is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by/, 'no process failed');
done_testing();
