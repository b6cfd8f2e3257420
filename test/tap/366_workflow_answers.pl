# What a run answers to: an event that comes while its step begins, an event of a failing run, the
# end of a parent that no longer counts, a lock that is held for a moment, a compensation without
# its data.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('answers');
my $session = $node->background_psql('postgres');

sub task { my ($run, $key) = @_; return "workflow_id = '$run' AND task_key = '$key'"; }
sub parked { my ($run, $key) = @_; return wait_for_sql($node, 'SELECT started_at IS NOT NULL FROM jobq.queue WHERE ' . task($run, $key), "$key waits for an answer"); }
sub fail_one { my ($id, $token) = @_; return one("SELECT jobq.fail('$id', '$token', 'told to')"); }

# ---------- an event while its step begins ----------

# The conductor is held between its look at the events and its commit, by a timer that it writes.
one(q{CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1);
  RETURN NEW;
END $$});
workflow('asks', '[{"key": "a", "job_type": "pulled"}, {"key": "e", "event": "go", "after": ["a"], "timeout": "1 day"}]');
my $run = start_run('asks');
my ($id, $token) = claim_one();
one('CREATE TRIGGER gate BEFORE INSERT ON jobq.run_timers FOR EACH ROW EXECUTE FUNCTION gate()');
$session->query_safe('SELECT pg_advisory_lock(1)');
complete_one($id, $token);
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)}, 'the step begins');
is(one("SELECT jobq.send_event('$run', 'go', '7')"), 't', 'send_event does not see it');
$session->query_safe('SELECT pg_advisory_unlock(1)');
run_is($run, 'completed', 'the event is not lost');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"e": 7}', 'nor its data');
$run = start_run('asks');
complete_one((claim_one())[0, 1]);
parked($run, 'e');
one(qq{BEGIN; UPDATE jobq.runs SET events = '{"go": 7}' WHERE id = '$run';
  SELECT jobq_internal._act_on_timers(ARRAY(SELECT id FROM jobq.queue WHERE }. task($run, 'e') . ')); COMMIT');
run_is($run, 'completed', 'an event that was accepted comes before the time limit');
one('DROP TRIGGER gate ON jobq.run_timers');

# ---------- an event of a failing run ----------

workflow('fails', '[{"key": "a", "job_type": "pulled"}, {"key": "s", "event": "start"}, {"key": "b", "job_type": "act", "payload": {"end": "fail"}, "after": ["s"]},
  {"key": "e", "event": "go", "after": ["a"], "rule": "done"}]');
$run = start_run('fails');
($id, $token) = claim_one();
one("SELECT jobq.send_event('$run', 'start')");
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$run'", 'a run fails');
complete_one($id, $token);
parked($run, 'e');
is(one("SELECT jobq.send_event('$run', 'go')"), 't', 'send_event to a failing run');
run_is($run, 'error', 'it ends');
is(tasks_of($run), 'a:completed b:error e:completed s:completed', 'with its event');
is(one("SELECT jobq.send_event('$run', 'other')"), 'f', 'a run that has ended takes none');

# ---------- a lock for a moment ----------

workflow('locked', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["a"]}]');
$run = start_run('locked');
($id, $token) = claim_one();
$session->query_safe('BEGIN; LOCK jobq.workflows');
complete_one($id, $token);
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'jobq conductor' AND NOT l.granted)
  OR EXISTS (SELECT FROM jobq.dead_letters WHERE task_key = 'b' AND error_code = '55P03')}, 'the conductor meets a lock');
is(one('SELECT status FROM jobq.queue WHERE ' . task($run, 'b')), 'blocked', 'a task whose decision meets a lock waits');
$session->query_safe('COMMIT');
run_is($run, 'completed', 'and starts then');

# ---------- the end of a parent that no longer counts ----------

# Returns a run whose step p has completed, and the id and token of the attempt of its step q.
sub run_any
{
	my ($steps, $type) = @_;
	my $any = '"after": ["p", "q"], "rule": "any"';

	workflow('any', '[{"key": "p", "event": "p"}, {"key": "q", "job_type": "pulled", "on_failure": "continue"},
  {"key": "z", "job_type": "act", "after": ["q"], "rule": "done"}, ' . ($steps =~ s/ANY/$any/gr) . ']');
	my $any_run = start_run('any');
	return ($any_run, (claim_one())[0, 1]);
}

# Fails q; then its edges have been applied.
sub fail_q
{
	my ($any_run, @attempt) = @_;

	fail_one(@attempt);
	return wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.jobs WHERE " . task($any_run, 'z') . " AND status = 'completed')", 'the other parent fails');
}

my @q;
($run, @q) = run_any('{"key": "e", "event": "go", ANY}, {"key": "d", "delay": "1 day", ANY}');
one("SELECT jobq.send_event('$run', 'p')");
parked($run, $_) foreach qw(e d);
fail_q($run, @q);
is(tasks_of($run), 'd:blocked e:blocked p:completed q:error z:completed', 'a step that waits for an event or a delay goes on waiting');
is(one("SELECT jobq.send_event('$run', 'go')"), 't', 'for its event');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');
is(tasks_of($run), 'd:cancelled e:completed p:completed q:error z:completed', 'which has completed it');

# nor does it begin again
($run, @q) = run_any('{"key": "e", "event": "go", ANY, "timeout": "1 day"}');
one("SELECT jobq.send_event('$run', 'p')");
parked($run, 'e');
complete_one(@q);
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.jobs WHERE " . task($run, 'z') . " AND status = 'completed')", 'the other parent completes');
is(one("SELECT count(*) FROM jobq.run_timers t JOIN jobq.queue q USING (id) WHERE q.task_key = 'e'"), '1', 'a step begins to wait once');
one("SELECT jobq.send_event('$run', 'go')");
run_is($run, 'completed');

# pauses: of a step before it is released, and after
($run, @q) = run_any('{"key": "w", "job_type": "act", ANY}');
one("SELECT jobq.pause_workflow('$run'), jobq.send_event('$run', 'p')");
wait_for_sql($node, 'SELECT after_state = 16 FROM jobq.queue WHERE ' . task($run, 'w'), 'a paused step waits');
fail_one(@q);
wait_for_sql($node, 'SELECT waiting_for = 0 FROM jobq.queue WHERE ' . task($run, 'z'), 'the other parent fails');
is(one('SELECT status FROM jobq.jobs WHERE ' . task($run, 'w')), 'blocked', 'it goes on waiting');
one("SELECT jobq.resume_workflow('$run')");
run_is($run, 'completed');
is(tasks_of($run), 'p:completed q:error w:completed z:completed', 'and starts with resume_workflow');
($run, @q) = run_any('{"key": "w", "job_type": "pulled", ANY}');
one(q{SELECT jobq.pause_job_type('pulled')});
one("SELECT jobq.send_event('$run', 'p')");
wait_for_sql($node, q{SELECT status = 'pending' FROM jobq.queue WHERE } . task($run, 'w'), 'a step waits for a worker');
one("SELECT jobq.pause_workflow('$run')");
is(one('SELECT after_state FROM jobq.queue WHERE ' . task($run, 'w')), '32', 'a pause takes it back');
fail_one(@q);
wait_for_sql($node, 'SELECT waiting_for = 0 FROM jobq.queue WHERE ' . task($run, 'z'), 'the other parent fails');
one("SELECT jobq.resume_workflow('$run'), jobq.resume_job_type('pulled')");
complete_one((claim_one())[0, 1]);
run_is($run, 'completed');
is(tasks_of($run), 'p:completed q:error w:completed z:completed', 'and it runs');

# ---------- a compensation without its data ----------

workflow('undone', '[{"key": "a", "job_type": "act", "payload": {"result": {"id": 1}}, "compensate": {"job_type": "act", "payload": {"undo": {"$": "$.tasks.a.result.id"}}}},
  {"key": "b", "job_type": "act", "after": ["a"], "compensate": {"job_type": "act", "payload": {"undo": {"$": "$.tasks.b.result.id"}}}},
  {"key": "c", "job_type": "act", "after": ["b"], "payload": {"result": {"id": {"$": "$.input.id", "default": null}}}, "compensate": {"job_type": "act", "payload": {"undo": {"$": "$.tasks.c.result.id"}}}},
  {"key": "x", "job_type": "act", "after": ["c"], "payload": {"end": "fail"}}]', q{on_failure => 'compensate'});
$run = tasks_are('undone', '{"id": 3}', 'error', 'a:completed a.undo:completed b:completed b.undo:error c:completed c.undo:completed x:error', 'a compensation that lacks its data is a dead letter');
is(one('SELECT error_code FROM jobq.dead_letters WHERE ' . task($run, 'b.undo')), 'bad_input', 'of bad_input');
is(one("SELECT string_agg(key || ' ' || (payload ->> 'undo'), ', ' ORDER BY seq) FROM ran WHERE run = '$run' AND key LIKE '%.undo'"), 'c.undo 3, a.undo 1', 'the others run');
is(one("SELECT error_code FROM jobq.dead_letters WHERE id = '$run'"), 'task_failed', 'the run has its own error');
workflow('undo_one', '[{"key": "b", "job_type": "act", "compensate": {"job_type": "act", "payload": {"undo": {"$": "$.tasks.b.result.id"}}}}, {"key": "w", "job_type": "pulled", "after": ["b"]}]', q{on_failure => 'compensate'});
$run = start_run('undo_one');
wait_for_sql($node, "SELECT status = 'pending' FROM jobq.queue WHERE " . task($run, 'w'), 'a run is to be cancelled');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');
is(tasks_of($run), 'b:completed b.undo:error w:cancelled', 'without any compensation that can run');

done_testing();
