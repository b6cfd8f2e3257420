# A helper that stops responding is replaced, and results of tools until then count.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = tools();
my $node = jobq_node('helper_watch', "jobq.shutdown_grace = '5s'");
my $machine = jobq_node('machine_stops');
my %common = (timeout => "'10min'", options => q('{"output": "none", "kill_grace": "1s"}'));

sub exec_worker
{
	my ($at) = @_;

	return $at->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'");
}

sub helper_of
{
	my ($worker) = @_;
	my ($pid) = grep {
		my $stat = eval { slurp_file("/proc/$_/stat") } // '';	# any process may end meanwhile
		$stat =~ /^\d+ \(jobq-helper\) [^Z] $worker /;
	} map { m{/proc/(\d+)} } glob '/proc/[0-9]*';

	return $pid;
}

sub wait_for_file
{
	my ($file) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 if -s "$dir/$file";
		select undef, undef, undef, 0.1;
	}
	return 0;
}

# ---------- all processes stop, as in a suspended virtual machine: nothing is killed ----------

define_tool($machine, 'wait', [ 'sh', '-c', 'echo $$ > "$0/wait.pid"; while [ ! -e "$0/gate" ]; do sleep 0.05; done', $dir ], %common);
my $waits = enqueue($machine, 'wait');
ok(wait_for_file('wait.pid'), 'a tool runs');
my @still = (exec_worker($machine));
push @still, helper_of(@still);
is(scalar @still, 2, 'its exec worker and its helper');
kill 'STOP', @still;

# ---------- a tool stops its helper ----------

define_tool($node, 'stopper', [ 'sh', '-c', <<'END', $dir ], %common, timeout => "'10s'");
setsid sleep 600 >/dev/null 2>&1 &
echo $$ $! $PPID > "$0/stopper.new" && mv "$0/stopper.new" "$0/stopper.pids"
[ ! -e "$0/calm" ] || exit 0
kill -STOP $PPID
exec sleep 600
END
define_tool($node, 'beside', [ 'sh', '-c', 'echo $$ >> "$0/beside.pids"; [ -e "$0/again" ] || exec sleep 600', $dir ], %common,
	max_attempts => 2, backoff_base => "'1ms'");
my $beside = enqueue($node, 'beside');
ok(wait_for_file('beside.pids'), 'another tool runs beside it');
tool('again', '');
my $stopper = enqueue($node, 'stopper');
my $end = finished($node, $stopper);
is("$end->{status} $end->{error_code} $end->{attempts}", 'error helper_lost 1', 'it ends, though its helper no longer sees its time limit');
ok(wait_gone(pids_in("$dir/stopper.pids")), 'it is gone, with what had left its session, and with its helper');
$end = finished($node, $beside);
is("$end->{status} $end->{attempts}", 'completed 2', 'the tool beside it runs again');
like(slurp_file($node->logfile), qr/jobq-helper with PID \d+ is killed: it has not answered for 30 s/, 'the log has the reason');

kill 'CONT', @still;
tool('gate', '');
$end = finished($machine, $waits);
is("$end->{status} $end->{attempts} $end->{runs}", 'completed 1 1', '!nothing is lost when worker and helper have stood still as long');
unlike(slurp_file($machine->logfile), qr/jobq-helper with PID \d+ is/, 'no helper was killed');
$machine->stop;

# ---------- the server is stopped, and the helper does not respond ----------

unlink "$dir/stopper.pids";
$stopper = enqueue($node, 'stopper');
ok(wait_for_file('stopper.pids'), 'the helper is stopped once more');
my ($tool, undef, $helper) = pids_in("$dir/stopper.pids");
$node->stop('fast');
ok(wait_gone($tool, $helper), 'a fast stop of the server leaves neither tool nor helper');
tool('calm', '');
$node->start;
$end = finished($node, $stopper);
is("$end->{status} $end->{attempts} $end->{runs}", 'completed 1 2', 'its job runs again, uncharged');

# ---------- worker and helper stop responding while the worker stops its tools ----------

# Ends while a child still writes to its stdout, so the helper reports its end two seconds later.
define_tool($node, 'large', [ 'perl', '-e', <<'END', $dir ], timeout => "'10min'", options => q('{"output": "text"}'));
$| = 1;
open my $f, '>', "$ARGV[0]/large.pid"; print $f $$; close $f;
print 'x' x 900_000;
select undef, undef, undef, 0.05 until -e "$ARGV[0]/large.go";
if (!fork) { for (1 .. 100) { print 'y'; select undef, undef, undef, 0.1; } }
END
define_tool($node, 'stubborn', [ 'sh', '-c', <<'END', $dir ], %common);
trap 'echo term > "$0/stubborn.term"' TERM
echo $$ > "$0/stubborn.pid"
while [ ! -e "$0/stubborn.gate" ]; do sleep 0.05; done
END
my $large = enqueue($node, 'large');
my $stubborn = enqueue($node, 'stubborn');
ok(wait_for_file('large.pid') && wait_for_file('stubborn.pid'), 'two tools run');
my $worker = exec_worker($node);
# How often it has gone to sleep.
sub looks { return slurp_file("/proc/$worker/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : die 'it has ended'; }
my @first = pids_in("$dir/stubborn.pid");
@still = ($worker, helper_of($worker));
tool('large.go', '');
wait_gone(pids_in("$dir/large.pid"));
kill 'TERM', $worker;
ok(wait_for_file('stubborn.term'), 'the worker stops its tools');
kill 'STOP', @still;
select undef, undef, undef, 8;	# longer than shutdown_grace and the two seconds that the helper may take
my $looks = looks();
kill 'CONT', $worker;
# the helper continues later, but before the worker has waited so long
select undef, undef, undef, 0.01 until looks() > $looks;
kill 'CONT', @still;
ok(wait_gone(@first), 'remaining tools are killed');
tool('stubborn.gate', '');
$end = finished($node, $large);
is("$end->{status} $end->{attempts} $end->{runs}", 'completed 1 1', '!a tool that had ended by itself does not run again');
$end = finished($node, $stubborn);
is("$end->{status} $end->{attempts} $end->{runs}", 'completed 1 2', 'the other does, uncharged');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|1[0-9])/, 'exits are 0 or 1 only');
done_testing();
