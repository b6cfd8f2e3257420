# Twelve hostile tools: each ends in time with the right result and leaves no process and no file;
# the helper lives (S8-S11, S21, S24, T27).

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use HelperTest;
use Test::More;
use Time::HiRes qw(time);

my $h = HelperTest->new;
my $mark = "hostile-$$";

# Runs the tool with the mark in its arguments, and returns the time.
# Checks that no process is left.
sub hostile
{
	my ($name, %o) = @_;
	my $begin = time();
	$o{argv} = [ @{ $o{argv} }, $mark ];
	my $e = $h->run(wait => 120, %o) or BAIL_OUT("$name: no EXIT");
	$e->{took} = time() - $begin;
	is(join(' ', processes_with($mark)), '', "$name: nothing is left");
	return $e;
}

# Runs a tool that begins before its timeout; otherwise repeats with a longer one.
sub in_time
{
	my ($begun, $name, %o) = @_;

	for (1 .. 4)
	{
		my $e = hostile($name, %o);
		$e->{least} = $o{timeout} + $o{grace};
		return $e if $begun->($e);
		note("$name: $o{timeout} s was not enough to begin");
		$o{timeout} *= 5;
	}
	BAIL_OUT("$name: does not begin");
}
sub says_ready { my ($e) = @_; return $h->event($e->{job}, 0); }

# The fastest of several runs: a tool that must wait is never fast; one that need not wait
# sometimes is, also on a busy machine.
sub fastest
{
	my ($name, $limit, %o) = @_;
	my $fastest;

	for (1 .. 10)
	{
		my $e = hostile($name, %o);
		$fastest = $e if !$fastest || $e->{took} < $fastest->{took};
		last if $fastest->{took} < $limit;
	}
	note(sprintf '%s: %.2f s', $name, $fastest->{took});
	return $fastest;
}

sub summary { my ($e) = @_; return "$e->{kind} $e->{value}"; }

# 1. ignores TERM
my $e = in_time(\&says_ready, 'ignores TERM', argv => [ $TOOL, 'ignore-term' ], timeout => 0.3, grace => 0.3);
is(summary($e), 'timeout 137', 'ignores TERM: killed after the grace');
cmp_ok($e->{took}, '>=', $e->{least}, 'ignores TERM: not before');
note(sprintf '%.1f s and the grace: %.2f s', $e->{least} - 0.3, $e->{took});
$e = in_time(\&says_ready, 'obeys TERM', argv => [ $TOOL, 'obey-term' ], timeout => 0.3, grace => 3600);
is(summary($e) . " $e->{output}", "timeout 0 cleaned up\n", 'obeys TERM: may clean up, and is a timeout all the same');
cmp_ok($e->{took}, '<', 3600, 'obeys TERM: ends before the grace is over');
$h->start(9000, argv => [ $TOOL, 'tree', $mark ]);
$h->event(9000);
$h->cancel(9000, 'cancel', 3600);
$e = $h->exit_of(9000);
is(summary($e), 'cancelled 143', 'a tree of sessions that ignore TERM: its head obeys');
is($e->{left}, 6, 'the rest is killed and counted');
is(join(' ', processes_with($mark)), '', 'nothing of it is left');

# 2. daemon: left the session, double fork, ignores TERM, empty environment, holds stdout
$e = fastest('daemon', 1, argv => [ $TOOL, 'daemon' ]);
is(summary($e) . " $e->{output}", "exited 0 ok\n", 'daemon: the tool has ended well');
is($e->{left}, 1, 'daemon: killed and counted');
ok($e->{took} < 1, 'daemon: the job does not wait for it') or diag($e->{took});

# 3. holds stdout open in the background
$e = fastest('background', 1, argv => [ '/bin/sh', '-c', 'sleep 600 & echo ok' ]);
is(summary($e) . " $e->{output}", "exited 0 ok\n", 'background: output is complete');
ok($e->{took} < 1, 'background: done at once') or diag($e->{took});
is($e->{left}, 1, 'background: killed and counted');
# ... while nothing delays it
for (1 .. 10)
{
	$e = hostile('busy background', argv => [ '/bin/sh', '-c', 'while :; do echo x; sleep 0.01; done & echo ok' ]);
	note(sprintf 'busy background: %.2f s', $e->{took});
	last if $e->{took} > 1.5;
}
ok($e->{took} > 1.5 && $e->{took} < 30, 'one that goes on writing is waited for two seconds') or diag($e->{took});

# 4. closes stdin at once, with a payload to come
$e = hostile('closes stdin', argv => [ $TOOL, 'close-stdin' ], stdin => 'x' x 1_000_000);
is(summary($e) . " $e->{output}", "exited 0 ok\n", 'closes stdin: is no failure');

# 5. writes only to stderr
$e = hostile('only stderr', argv => [ $TOOL, 'stderr', scale(100_000_000) ], output => 'json');
is(summary($e) . " $e->{verdict} $e->{stderr_bytes}", 'exited 0 empty ' . scale(100_000_000), 'only stderr: all is read, nothing is a result');
is(length $e->{stderr}, 8192, 'only stderr: its end is kept');

# 6. stdout never ends
$e = hostile('endless stdout', argv => [ $TOOL, 'stdout', 0 ], grace => 3600);
is(summary($e) . " $e->{verdict}", 'output_limit 0 truncated', 'endless stdout: stopped by max_output');
$e = in_time(sub { $_[0]{stdout_bytes} > 0 }, 'endless stdout that is no result', argv => [ $TOOL, 'stdout', 0 ], output => 'none', timeout => 0.5, grace => 3600);
is(summary($e) . " $e->{verdict}", 'timeout 143 ok', 'endless stdout that is no result: stopped by its timeout');

# 7. a flood of stdout that ends
my $rss = sub { open(my $f, '<', "/proc/$h->{helper_pid}/status"); local $/; return <$f> =~ /VmHWM:\s+(\d+)/ ? $1 : 0; };
$e = hostile('flood', argv => [ $TOOL, 'stdout', scale(1_000_000_000) ], output => 'none', wait => 120);
is(summary($e) . " $e->{verdict} $e->{stdout_bytes}", 'exited 0 ok ' . scale(1_000_000_000), 'flood: read to its end, but not kept');
ok(HelperTest::is_sanitized() || $rss->() < 16384, 'flood: the helper stays small') or diag($rss->());

# 8. never reads 1 MB of stdin
$e = $h->run(argv => [ 'sleep', '0.2' ], stdin => 'x' x 1_000_000);
is(summary($e), 'exited 0', 'never reads stdin: is no failure');
$e = $h->run(argv => [ '/bin/sh', '-c', 'sleep 0.1; head -c 10; sleep 0.1; head -c 10' ], stdin => 'x' x 300_000);
is($e->{output}, 'x' x 20, 'reads slowly, and not all');

# 9. stops itself
$e = in_time(\&says_ready, 'stops itself', argv => [ $TOOL, 'stop' ], timeout => 0.3, grace => 3600);
is(summary($e), 'timeout 143', 'stops itself: TERM reaches it');
cmp_ok($e->{took}, '<', 3600, 'stops itself: because it is continued');

# 10. each generation forks and exits
$e = hostile('runs away', argv => [ $TOOL, 'run-away' ]);
is(summary($e) . " $e->{output}", "exited 0 ok\n", 'runs away: the tool has ended well');
ok($e->{left} >= 1, 'runs away: caught');

# 11. leaves links to / and thousands of files
my $files = scale(5_000);
$e = hostile('litters', argv => [ $TOOL, 'litter', $files ]);
is(summary($e) . " $e->{output}", "exited 0 ok\n", "litters: leaves $files files, links to /, a locked directory");
ok(wait_until(sub { my @left = grep { !m{/\d+$} || glob "$_/*" } glob "$h->{workdir}/run-*/*"; !@left }, 30), 'litters: all is removed');
ok(-d '/etc' && -f '/etc/passwd', 'litters: and nothing else');

# beside a removal that takes long: a tool that reads late gets the end of its input
sub children { my ($pid) = @_; my @found; for (glob '/proc/[0-9]*/stat') { open(my $f, '<', $_) or next; push @found, $1 if (<$f> // '') =~ /^(\d+) \(.*\) [^ZX] $pid /; } return @found; }
my $gate = "$h->{workdir}/gate";
$h->start(8001, argv => [ '/bin/sh', '-c', 'until [ -e "$0" ]; do sleep 0.05; done; wc -c', $gate ], stdin => 'x' x 300_000);
$h->started(8001);
my %known = map { $_ => 1 } children($h->{helper_pid});
is(summary($h->run(argv => [ $TOOL, 'litter', 100_000 ])), 'exited 0', 'long removal: a tool leaves many files');
my ($cleaner) = @{ wait_until(sub { my @new = grep { !$known{$_} } children($h->{helper_pid}); @new ? \@new : undef }, 30) // [] };
# once it has used some processor time: right after its fork it has the helper's descriptors still
sub ticks { open(my $f, '<', "/proc/$_[0]/stat") or return 0; return (<$f> // '') =~ /\) (?:\S+ ){11}(\d+) (\d+)/ ? $1 + $2 : 0; }
wait_until(sub { ticks($cleaner) > 0 }, 30) if defined $cleaner;
ok(defined $cleaner && kill('STOP', $cleaner), 'long removal: the cleaner stands still');
open(my $opened, '>', $gate) or die "$gate: $!";
$e = $h->exit_of(8001, 30);
is($e ? summary($e) . " $e->{output}" : 'nothing', "exited 0 300000\n", 'long removal: the input ends');
ok(defined $cleaner && (grep { $_ == $cleaner } children($h->{helper_pid})), 'long removal: before the cleaner');
kill 'CONT', $cleaner if defined $cleaner;
$h->exit_of(8001) unless $e;
unlink $gate;

# 12. exits with every code, dies by every signal: 03_result.t.  Here:
# crashes while its children live
$e = hostile('crashes', argv => [ '/bin/sh', '-c', 'sleep 600 & setsid sleep 600 & kill -SEGV $$' ]);
is(summary($e), 'signalled 11', 'crashes: told as it is');
is($e->{left}, 2, 'crashes: its children are killed');

# cancel, while it runs and while it starts
$h->start(9001, argv => [ $TOOL, 'ignore-term', $mark ]);
ok($h->event(9001), 'runs');
$h->cancel(9001, 'cancel', 0.2);
$e = $h->exit_of(9001);
is(summary($e), 'cancelled 137', 'cancelled, killed after the grace');
$h->start(9002, argv => [ $TOOL, 'hold', $mark ]);
$h->started(9002);
$h->cancel(9002, 'timeout', 3600);
$e = $h->exit_of(9002);
is(summary($e), 'timeout 143', 'stopped for another reason, right after its start');
$h->start(9003, argv => [ $TOOL, 'ignore-term', $mark ]);
$h->event(9003);
$h->cancel(9003, 'cancel', 3600);
$h->cancel(9003, 'shutdown', 0);
$e = $h->exit_of(9003);
is(summary($e), 'cancelled 137', 'a second stop can make it sooner, but the reason stays');
$h->cancel(9003, 'cancel', 1);
$h->cancel(424242, 'cancel', 1);
is($h->run(argv => ['true'])->{value}, 0, 'cancels of jobs that are not there are ignored');

is(join(' ', processes_with($mark)), '', 'nothing at all is left');
$h->hang_up;
is($h->reap, 0, 'the helper lives until the end and exits 0');

done_testing();
