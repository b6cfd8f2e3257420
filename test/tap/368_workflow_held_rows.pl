# Rows that another transaction holds: a run that is to start, runs that are to be looked at, whose
# timers are due, and children of ended jobs.  The other runs start, go on and end, timers fire, the
# conductor does not try all the time, and what was held goes on after the COMMIT.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

use constant HELD => 20;    # runs, at once

my $node = run_server('held');
my $holder = $node->background_psql('postgres', on_error_stop => 1);

# Transactions that the server has rolled back: tries that met the lock.
sub rollbacks { return one(q{SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'}); }

# Seconds of a processor that the conductor has used.
sub seconds_used
{
	my $pid = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/.*\) //sr;

	return ($stat[11] + $stat[12]) / 100;
}

workflow('plain', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"]}]');
workflow('fails', '[{"key": "a", "job_type": "act", "payload": {"end": "fail"}}, {"key": "b", "job_type": "act", "after": ["a"]}]');
workflow('late', '[{"key": "d", "delay": "4 s"}, {"key": "b", "job_type": "act", "after": ["d"]}]');
workflow('event', '[{"key": "e", "event": "go", "timeout": "5 s"}]');
workflow('row', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "act", "after": ["a"]}]');
workflow('first', '[{"key": "e", "event": "go"}]');

# Tests that all but the held goes on, and how much the conductor does meanwhile.  Four seconds of
# the delay are the time in which nothing but the held is to be done.
sub others_go_on
{
	my ($what, $bound) = @_;

	run_is(start_run('plain'), 'completed', "$what: another run ends");
	run_is(start_run('fails'), 'error', "$what: another run fails");
	my $after = one(q{WITH p AS (SELECT jobq.enqueue('act') AS id) SELECT jobq.enqueue('act', after => ARRAY[id]) FROM p});
	is(ended($after), 'completed', "$what: a job that waits for another one runs");
	my $late = start_run('late');
	my ($began, $tries, $used) = (time, rollbacks(), seconds_used());
	run_is($late, 'completed', "$what: a delay ends");
	my $seconds = time - $began;
	my $share = (seconds_used() - $used) / $seconds;

	$tries = (rollbacks() - $tries) / $seconds;
	note(sprintf '%s: %.1f tries a second, %.1f %% of a processor, during %.1f s', $what, $tries, 100 * $share, $seconds);
	cmp_ok($tries, '<=', $bound, sprintf('%s: %.1f tries a second, at most %d', $what, $tries, $bound));
	cmp_ok($share, '<', 0.1, sprintf('%s: the conductor uses %.1f %% of a processor', $what, 100 * $share));
	return;
}

# Ends the transaction that holds rows; tests how soon the jobs end.
sub let_go
{
	my ($what, $status, @ids) = @_;
	my $began = time;

	$holder->query_safe('COMMIT');
	is(join(' ', map { ended($_) } @ids), join(' ', map { $status } @ids), "$what: what was held ends after the COMMIT");
	my $seconds = time - $began;
	cmp_ok($seconds, '<', 15, sprintf('%s: %.1f s after it', $what, $seconds));
	return;
}

sub hold { $holder->query_safe("BEGIN; $_[0]"); return; }

# ---------- a start ----------

one(q{SELECT jobq.pause_job_type('first')});
my $first = start_run('first');
hold("SELECT jobq.send_event('$first', 'go')");
one(q{SELECT jobq.resume_job_type('first')});
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'jobq conductor' AND NOT l.granted)},
	'the conductor meets a run that is held');
others_go_on('a start', 5);
let_go('a start', 'completed', $first);

one(q{SELECT jobq.pause_job_type('first')});
my @firsts = map { start_run('first') } 1 .. HELD;
hold(join ';', map { "SELECT jobq.send_event('$_', 'go')" } @firsts);
one(q{SELECT jobq.resume_job_type('first')});
others_go_on('many starts', 25);
let_go('many starts', 'completed', @firsts);

# ---------- looks ----------

my @runs = map { start_run('row') } 1 .. HELD;
my @claimed = map { [ claim_one() ] } 1 .. HELD;
hold(join ';', map { "SELECT jobq.pause_workflow('$_')" } @runs);
one("SELECT jobq.fail('$_->[0]', '$_->[1]', 'no')") foreach @claimed;
others_go_on('looks', 25);
is(join(' ', map { one("SELECT status FROM jobq.jobs WHERE id = '$_'") } @runs), join(' ', ('running') x HELD), 'the held runs wait');
let_go('looks', 'error', @runs);

# ---------- a task of a run that ends ----------

one(q{SELECT jobq.create_job_type('second', max_attempts => 1)});
workflow('two', '[{"key": "a", "job_type": "pulled"}, {"key": "b", "job_type": "second"}]');
my $ends = start_run('two');
my @failing = claim_one();
hold("SELECT FROM jobq.queue WHERE workflow_id = '$ends' AND task_key = 'b' FOR UPDATE");
one("SELECT jobq.fail('$failing[0]', '$failing[1]', 'no')");
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$ends'", 'a run fails');
others_go_on('a task of a run that ends', 25);
is(one("SELECT count(*) FROM jobq.run_timers WHERE id = (SELECT id FROM jobq.queue WHERE workflow_id = '$ends')"), '1', 'it has one timer');
let_go('a task of a run that ends', 'error', $ends);

# ---------- timers ----------

# The deadline of a run, the time limit of an event.
my $run = start_run('row', '{}', q{timeout => '5 s'});
my @claim = claim_one();
my $event = start_run('event');
wait_for_sql($node, "SELECT after_state = 4 FROM jobq.queue WHERE workflow_id = '$event'", 'a run waits for its event');
hold("SELECT jobq.pause_workflow('$run'); SELECT FROM jobq.queue WHERE workflow_id = '$event' FOR UPDATE");
wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.runs r LEFT JOIN jobq.queue q ON q.workflow_id = r.id WHERE r.id IN ('$run', '$event')"
	  . ' AND coalesce(q.started_at, now()) < clock_timestamp() - interval \'5 s\' AND q.task_key <> \'b\'', 'timers are due');
others_go_on('timers', 25);
let_go('timers', 'error', $event);
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$claim[0]'", 'the deadline is heard of');
one("SELECT jobq.fail('$claim[0]', '$claim[1]', 'stopped')");
run_is($run, 'error');

# ---------- children ----------

my $parent = one(q{SELECT jobq.enqueue('pulled')});
my $child = one("SELECT jobq.enqueue('act', after => ARRAY['$parent'::uuid])");
my @lease = claim_one();
hold("SELECT FROM jobq.queue WHERE id = '$child' FOR UPDATE");
complete_one($lease[0], $lease[1]);
others_go_on('a child', 5);
is(one("SELECT status FROM jobq.queue WHERE id = '$child'"), 'blocked', 'the held child waits');
let_go('a child', 'completed', $child);

# ---------- a new conductor ----------

# Its pass over all runs skips what is held and is old.
my $old = start_run('plain');
run_is($old, 'completed');
one("UPDATE jobq.runs SET keep_until = now() - interval '1 day' WHERE id = '$old'");
$run = start_run('row');
@claim = claim_one();
hold("SELECT FROM jobq.runs WHERE id = '$old' FOR UPDATE");
my $conductor = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});
freeze($node, $conductor);
one("SELECT jobq.cancel_job('$run')");
one("SELECT jobq.fail('$claim[0]', '$claim[1]', 'no')");
one("SELECT pg_terminate_backend($conductor)");
kill 'CONT', $conductor;
run_is($run, 'cancelled', 'a new conductor goes on with runs while an old one is held');
$holder->query_safe('COMMIT');

$holder->quit;
unlike(slurp_file($node->logfile), qr/WARNING:  jobq|PANIC|TRAP/, 'no warnings');

done_testing();
