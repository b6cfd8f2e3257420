# The clock of the server is set during runs: delays, time limits of events and deadlines are times
# of the wall clock.  Set forward, those that it passes come at once; set back, they come when the
# clock is there again, and later ones do not wait for them.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $offset = 0;

system_or_bail('gcc', '-shared', '-fPIC', '-O2', '-o', "$dir/fake_clock.so", "$FindBin::Bin/../lib/fake_clock.c");

# Moves the server's clock by so many seconds, at once.
sub step_clock
{
	my ($seconds) = @_;

	$offset += $seconds;
	open my $file, -e "$dir/clock" ? '+<' : '>', "$dir/clock" or die "$dir/clock: $!";
	syswrite $file, pack('q', $offset);
	close $file;
	return;
}

step_clock(0);
my $node = do
{
	local %ENV = (%ENV, LD_PRELOAD => "$dir/fake_clock.so", FAKE_CLOCK_FILE => "$dir/clock");
	run_server('clock');
};

sub task_is
{
	my ($run, $key, $status, $what) = @_;

	return wait_for_sql($node, "SELECT status = '$status' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = '$key'", $what);
}

# Waits until the conductor has done all that is due: a run of two sleeps has ended.
workflow('marker', '[{"key": "d", "delay": "1 s"}]');
sub is_up_to_date { return run_is(start_run('marker'), 'completed', $_[0]); }

workflow('sleep', '[{"key": "d", "delay": "1 hour"}, {"key": "z", "job_type": "act", "after": ["d"]}]', q{options => '{"timeout": "10 days"}'});
workflow('late', '[{"key": "l", "job_type": "act", "delay": "1 hour"}]', q{options => '{"timeout": "10 days"}'});
workflow('event', '[{"key": "e", "event": "go", "timeout": "1 hour", "on_failure": "continue"}, {"key": "z", "job_type": "act", "after": ["e"], "rule": "done"},
  {"key": "m", "job_type": "act", "map": "$.input.list", "after": ["e"], "rule": "done"}]', q{options => '{"timeout": "10 days"}'});
workflow('short', '[{"key": "e", "event": "go"}]', q{options => '{"timeout": "1 hour"}'});
workflow('pull', '[{"key": "p", "job_type": "pulled", "max_attempts": 2, "backoff": {"type": "fixed", "base": "0s"}}, {"key": "z", "job_type": "act", "after": ["p"]}]', q{options => '{"timeout": "1 hour"}'});

# Starts a run of each, which waits; returns them by their workflows.
sub waiting_runs
{
	my %run = map { $_ => start_run($_, '{"list": [{}, {}]}') } qw(sleep late event short pull);

	@run{ 'id', 'token' } = claim_one(q{, lease => '1 hour'});
	task_is($run{sleep}, 'd', 'blocked', 'a delay');
	task_is($run{late}, 'l', 'pending', 'a job with a delay');
	wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.queue WHERE workflow_id IN ('$run{event}', '$run{short}') AND after_state = 4", 'events are waited for');
	return %run;
}

sub effects_of { my (%run) = @_; return one("SELECT count(*), count(DISTINCT run) FROM ran WHERE run IN ('" . join("','", @run{qw(sleep late event short pull)}) . "')"); }

# ---------- forward ----------

my %run = waiting_runs();
step_clock(3540);
is_up_to_date('the clock is set forward, not far enough');
is(one("SELECT count(*) FROM jobq.jobs WHERE id IN ('" . join("','", @run{qw(sleep late event short pull)}) . "') AND status = 'running'"), '5', 'all runs wait');
step_clock(80);
my $seconds = seconds_of
{
	run_is($run{$_}, 'completed', "past its time: $_") foreach qw(sleep late event);
	run_is($run{short}, 'error', 'past its deadline');
};
cmp_ok($seconds, '<', 20, sprintf('soon: %.1f s', $seconds));
is(one("SELECT error_code, error_msg FROM jobq.jobs WHERE workflow_id = '$run{event}' AND task_key = 'e'"), 'timeout|timeout after 01:00:00', 'the time limit of an event');
is(one("SELECT error_code, error_msg FROM jobq.jobs WHERE id = '$run{short}'"), 'timeout|timeout after 01:00:00', 'a deadline');
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$run{id}'", 'a claimed task is told of the deadline');
one("SELECT jobq.fail('$run{id}', '$run{token}', 'stopped', false)");
run_is($run{pull}, 'error', 'and its run ends');
is(effects_of(%run), '5|3', 'each task once');

# ---------- back ----------

%run = waiting_runs();
step_clock(-86400);
is_up_to_date('the clock is set back by a day: new delays do not wait for older ones');
is(one("SELECT count(*) FROM jobq.jobs WHERE id IN ('" . join("','", @run{qw(sleep late event short pull)}) . "') AND status = 'running'"), '5', 'none has come early');
my $new = start_run('event', '{"list": [{}]}');
task_is($new, 'e', 'blocked', 'a new run waits');
is(one("SELECT jobq.send_event('$new', 'go', '1'), jobq.send_event('$run{event}', 'go', '2')"), 't|t', 'events are taken');
run_is($_, 'completed') foreach $new, $run{event};
one("SELECT jobq.fail('$run{id}', '$run{token}', 'once')");
is(complete_one((claim_one())[0, 1]), 't', 'a claimed task fails, is claimed again and completes');
run_is($run{pull}, 'completed', 'its run goes on');
step_clock(86400 + 3600);
run_is($run{$_}, 'completed', "the clock is there again: $_") foreach qw(sleep late);
run_is($run{short}, 'error', 'the deadline, too');
is(effects_of(%run), '6|4', 'each task once');
is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.run_timers WHERE due < clock_timestamp()', 'no timer is due');

# ---------- back, while a session holds a task of a run that ends ----------

# The conductor tries again every 200 ms, also by the clock that was set back.
one(q{SELECT jobq.create_job_type('held', max_attempts => 1)});
workflow('holds', '[{"key": "x", "job_type": "pulled"}, {"key": "b", "job_type": "held"}]');
my $run = start_run('holds');
my ($id, $token) = claim_one();
my $holder = $node->background_psql('postgres');
$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'b' FOR UPDATE");
one("SELECT jobq.fail('$id', '$token', 'no')");
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.run_timers t JOIN jobq.queue q USING (id) WHERE q.workflow_id = '$run' AND q.task_key = 'b')", 'a task is to end, and a session holds it');
step_clock(-86400);
is_up_to_date('the clock is set back by a day');
$holder->query_safe('COMMIT');
$seconds = seconds_of { run_is($run, 'error', 'the run ends'); };
cmp_ok($seconds, '<', 20, sprintf('soon after the COMMIT: %.1f s', $seconds));
$holder->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
