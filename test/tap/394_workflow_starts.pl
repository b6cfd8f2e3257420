# Runs that were handed out and have not begun: a row that is held, a conductor that stands still,
# another dispatcher.  Their places go to others, their types are paused, all is stopped: they begin
# when they are handed out again, not before.

use strict;
use warnings;

use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('starts');
my $holder = $node->background_psql('postgres', on_error_stop => 1);

workflow('one', '[{"key": "e", "event": "go"}]', q{options => '{"max_concurrent": 1}'});
workflow('fence', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"]}]');
workflow('late', '[{"key": "d", "delay": "3 s"}]');    # longer than the conductor's pauses

sub conductor { return one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'}); }

sub status_is { my ($run, $status, $what) = @_; return is(one("SELECT status FROM jobq.jobs WHERE id = '$run'"), $status, $what); }

sub runs { my ($run, $what) = @_; return wait_for_sql($node, "SELECT status = 'running' FROM jobq.jobs WHERE id = '$run'", $what); }

# Returns when the dispatcher has acted on all that was committed before.
sub handed_out { one('SELECT jobq.health()') foreach 1, 2; return; }

# Ends the runs, one after the other.
sub all_end
{
	one("SELECT jobq.send_event('$_', 'go')") foreach @_;
	run_is($_, 'completed') foreach @_;
	return;
}

# Returns a run whose start has met a transaction that holds it.
sub held_run
{
	one(q{SELECT jobq.pause_job_type('one')});
	my $run = start_run('one');
	$holder->query_safe("BEGIN; SELECT jobq.send_event('$run', 'go')");
	one(q{SELECT jobq.resume_job_type('one')});
	wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'jobq conductor' AND NOT l.granted)},
		'the conductor meets a run that is held');
	return $run;
}

# Returns when the conductor has tried it again after the COMMIT.  What was committed before counts:
# the dispatcher has acted on it, and no start is under way that waits for the row.
sub let_go
{
	my ($late) = @_;

	handed_out();
	wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'jobq conductor' AND NOT l.granted)},
		'the conductor has put it aside');
	$holder->query_safe('COMMIT');
	run_is($late // start_run('late'), 'completed', 'the conductor goes on');
	return;
}

# ---------- a row that is held ----------

my $held = held_run();
my $urgent = start_run('one', '{}', 'priority => 50');
runs($urgent, 'another run takes the place of one that is held');
let_go();
status_is($held, 'pending', 'which waits for its place after the COMMIT');
all_end($urgent);
run_is($held, 'completed');

$held = held_run();
one(q{SELECT jobq.pause_job_type('one')});
let_go();
status_is($held, 'pending', 'its type was paused: it waits');
one(q{SELECT jobq.resume_job_type('one')});
run_is($held, 'completed');

my $late = start_run('late');
runs($late, 'a run with a delay');
$held = held_run();
one(q{SELECT jobq.stop_all('test')});
let_go($late);
status_is($held, 'pending', 'all is stopped: it waits');
one(q{SELECT jobq.start_all()});
run_is($held, 'completed');

# Starts a run that it has not begun, and runs something meanwhile.
sub while_stopped
{
	my ($act) = @_;

	run_is(start_run('fence'), 'completed');
	my $pid = conductor();
	freeze($node, $pid);
	my $run = start_run('one');
	handed_out();
	my @all = ($run, $act->($run));
	handed_out();
	kill 'CONT', $pid;
	run_is(start_run('fence'), 'completed') if one('SELECT count(*) FROM jobq.stopped') eq '0';
	return @all;
}

# ---------- a run that begins and ends between two looks of the dispatcher ----------

workflow('rare', '[{"key": "e", "job_type": "act", "if": "1 == 2"}]', q{options => '{"rate_limit": 1, "rate_window": "1 day"}'});
run_is(start_run('fence'), 'completed');
my @pids = (conductor(), one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND datname = current_database()}));
freeze($node, $pids[0]);
my $short = start_run('rare');
handed_out();
freeze($node, $pids[1]);
kill 'CONT', $pids[0];
run_is($short, 'completed', 'the conductor begins and ends it');
kill 'CONT', $pids[1];
my $further = start_run('rare');
run_is(start_run('fence'), 'completed');
status_is($further, 'pending', 'it counts in the rate of its workflow');
one("SELECT jobq.cancel_job('$further')");

# ---------- a conductor that stands still ----------

my ($run) = while_stopped(sub { one(q{SELECT jobq.pause_job_type('one')}); return; });
status_is($run, 'pending', 'the type of a run is paused while the conductor stands still');
one(q{SELECT jobq.resume_job_type('one')});
all_end($run);

$late = start_run('late');
runs($late, 'a run with a delay');
($run) = while_stopped(sub { one(q{SELECT jobq.stop_all('test')}); return; });
run_is($late, 'completed');
status_is($run, 'pending', 'all is stopped meanwhile');
one(q{SELECT jobq.start_all()});
all_end($run);

# The dispatcher gives the place to another run after a while.
($run, $urgent) = while_stopped(sub {
	my $other = start_run('one', '{}', 'priority => 50');
	wait_for_sql($node, "SELECT jobq.why('$_[0]') -> 'reasons' \@> '[{\"code\": \"limit\"}]'", 'the place of a run that has not begun goes to another one');
	return $other;
});
runs($urgent, 'that one runs');
status_is($run, 'pending', 'the first one waits');
all_end($urgent, $run);

($run, $urgent) = while_stopped(sub {
	my $pid = dispatcher($node, 'postgres');
	my $other = start_run('one', '{}', 'priority => 50');
	one("SELECT pg_terminate_backend($pid)");
	wait_dispatcher($node, 'postgres', 'another dispatcher', $pid);
	return $other;
});
runs($urgent, 'the new dispatcher chooses again');
status_is($run, 'pending', 'the run that the former one had chosen waits');
all_end($urgent, $run);

is(one(q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'one' AND runs > 1}), '0', 'each run has begun once');
$holder->quit;
$node->stop;
done_testing();
