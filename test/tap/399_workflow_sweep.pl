# Runs whose news were lost: the sweep finds them, and takes no others.  Tasks that a turn has left.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('sweep');

workflow('marker', '[{"key": "x"}]');
sub is_up_to_date { return run_is(start_run('marker'), 'completed', $_[0]); }

# ---------- what a sweep takes ----------

workflow('wait', '[{"key": "e", "event": "go"}, {"key": "p", "job_type": "pulled"}]');
workflow('map', '[{"key": "m", "job_type": "pulled", "map": "$.input"}]');
one(q{SELECT jobq.pause_job_type('pulled')});
my @runs = map { start_run('wait') } 1 .. 3;
my $map = start_run('map', '[1, 2]');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.queue WHERE after_state = 4}, 'runs wait');
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.queue WHERE task_key LIKE 'm.%'}, 'members wait');
is_up_to_date('the conductor has nothing to do');

# Tests the ids that a sweep takes after a change that no news tell.
sub takes
{
	my ($change, $ids, $what) = @_;

	return is(one("BEGIN; $change; SELECT coalesce(string_agg(s.id::text, ' ' ORDER BY s.id), '') FROM jobq_internal._sweep('00000000-0000-0000-0000-000000000000') s; ROLLBACK"), $ids, $what);
}

my $task = "jobq.queue WHERE workflow_id = '$runs[1]'";
is(one(q{SELECT count(DISTINCT run) FILTER (WHERE live), bool_or(NOT live) FROM jobq_internal._sweep('00000000-0000-0000-0000-000000000000')}), '4|t', 'a sweep reads live runs and others');
takes('SELECT 1 WHERE false', '', 'runs that wait are not looked at');
takes("UPDATE jobq.queue SET cancel_requested = true WHERE id = '$runs[1]'", $runs[1], 'but a cancelled one');
takes("UPDATE jobq.runs SET deadline = now() - interval '1 s' WHERE id = '$runs[1]'", $runs[1], 'one past its deadline');
takes(q{UPDATE jobq.runs SET events = '{"go": 1}' WHERE id = } . "'$runs[1]'", $runs[1], 'one that has got an event');
takes("DELETE FROM $task", $runs[1], 'one without tasks');
takes("UPDATE jobq.queue SET after_state = 0, waiting_for = 0 WHERE workflow_id = '$runs[1]' AND task_key = 'e'", $runs[1], 'one with a task that a turn has left');
my $m = one("SELECT id FROM jobq.queue WHERE workflow_id = '$map' AND task_key = 'm'");
takes("DELETE FROM jobq.queue WHERE parent_id = '$m'", $m, 'a map without members');
takes("UPDATE jobq.queue SET waiting_for = 1 WHERE id = '$m'", $m, 'a map with elements that have no members');

# The news of these changes are lost: another conductor finds them.
one(q{UPDATE jobq.runs SET events = '{"go": 1}' WHERE id = } . "'$runs[0]'");
one("UPDATE jobq.runs SET deadline = now() - interval '1 s' WHERE id = '$runs[1]'");
one(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});
run_is($runs[1], 'error', 'a sweep ends a run');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.history WHERE workflow_id = '$runs[0]' AND task_key = 'e')", 'and completes a step');
one(q{SELECT jobq.cancel_job(id) FROM jobq.queue WHERE workflow_id IS NULL; SELECT jobq.resume_job_type('pulled')});
run_is($_, 'cancelled') foreach @runs[0, 2], $map;

# ---------- tasks that a turn has left ----------

# Sessions have no turn to the conductor's end: here it is over after the first task.
workflow('fan', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["a"]}, {"key": "c", "job_type": "act", "after": ["a"]}, {"key": "d", "job_type": "act", "after": ["a"]}]');
one(q{SELECT jobq.pause_job_type('act')});
my $run = start_run('fan');
my ($id, $token) = claim_one();
my @behind = split /\n/, one("SELECT id FROM jobq.queue WHERE workflow_id = '$run' AND status = 'blocked' ORDER BY id");
is(scalar @behind, 3, 'tasks wait for one');
one(<<"END");
BEGIN;
ALTER FUNCTION jobq_internal._turn_is_over() RENAME TO _turn_is_over_before;
CREATE FUNCTION jobq_internal._turn_is_over() RETURNS boolean LANGUAGE sql AS 'SELECT true';
UPDATE jobq.queue SET waiting_for = 0, after_state = 1 WHERE id = ANY ('{$behind[0],$behind[1],$behind[2]}');
DELETE FROM jobq.dependencies WHERE child_id = ANY ('{$behind[0],$behind[1],$behind[2]}');
SELECT jobq_internal._ready('{$behind[0],$behind[1],$behind[2]}');
SELECT jobq.cancel_job('$behind[1]');
DROP FUNCTION jobq_internal._turn_is_over();
ALTER FUNCTION jobq_internal._turn_is_over_before() RENAME TO _turn_is_over;
COMMIT;
END
is_up_to_date('the first one of those that a turn has left was cancelled meanwhile');
is(one("SELECT status FROM jobq.jobs WHERE id = '$behind[2]'"), 'pending', 'the other one starts');
one(q{SELECT jobq.resume_job_type('act')});
complete_one($id, $token);
run_is($run, 'completed');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');

# ---------- news that are lost again and again ----------

# Three parts of edges, the last one with a job whose end is lost.  Each look at a run with an event
# waits for a row of the table open, and meanwhile news are lost.
one(q{SELECT jobq.pause_job_type('act'), jobq.pause_job_type('pulled')});
my $held = start_run('wait');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$held' AND after_state = 4)", 'a run waits');
one(q{SELECT count(*) FROM jobq.enqueue_many('act', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 25000)))});
one(q{INSERT INTO jobq.dependencies SELECT id, gen_random_uuid() FROM jobq.queue WHERE workflow_id IS NULL AND status = 'pending'});
my $parent = one(q{SELECT jobq.enqueue('act')});
my $child = one("SELECT jobq.enqueue('act', after => '{$parent}')");
one(<<'END');
CREATE TABLE open ();
ALTER FUNCTION jobq_internal._settle_answered(jobq.runs, boolean) RENAME TO _settle_answered_before;
CREATE FUNCTION jobq_internal._settle_answered(r jobq.runs, free_ones boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE (SELECT backend_type = 'jobq conductor' FROM pg_stat_activity WHERE pid = pg_backend_pid()) LOOP
    DELETE FROM public.open;
    EXIT WHEN FOUND;
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$
END
my $waits = q{SELECT NOT EXISTS (SELECT FROM open) AND EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND wait_event = 'PgSleep')};
# More news than a transaction keeps.  The same again and again are kept once.
my $lose = q{SELECT count(jobq_internal._look_again(f.id)) FROM (SELECT q.id FROM generate_series(1, 500) i,
  (SELECT id FROM jobq.queue WHERE workflow_id IS NULL AND status = 'pending' ORDER BY id LIMIT 10) q ORDER BY i, q.id) f};
one("SELECT jobq.send_event('$held', 'other')");
wait_for_sql($node, $waits, 'the conductor looks at a run');
one("BEGIN; $lose; SELECT jobq.cancel_job('$parent'); COMMIT");
is(one("SELECT status FROM jobq.jobs WHERE id = '$child'"), 'blocked', 'what waits for a job whose end is lost');
foreach (1 .. 12)
{
	one($lose);
	one("SELECT jobq_internal._look_again('$held')");
	one('INSERT INTO open DEFAULT VALUES');
	$node->poll_query_until('postgres', $waits) or die 'the conductor does not look';
}
is(one("SELECT status FROM jobq.jobs WHERE id = '$child'"), 'cancelled', 'a pass over the edges ends, though news are lost at each turn');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
