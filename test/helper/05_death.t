# The death of the worker, and of the helper at any moment, ends the tools
# (S7, S16-S18); orderly ends.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp qw(tempdir);
use HelperTest;
use POSIX ();
use Socket;
use Test::More;
use Time::HiRes qw(time);

my $mark = "mortal-$$";

# True if it has ended or has a pending KILL.
sub is_doomed
{
	my ($pid) = @_;
	open(my $f, '<', "/proc/$pid/status") or return 1;
	local $/;
	my ($pending) = (<$f> // '') =~ /^SigPnd:\s*([0-9a-f]+)/m;
	return !alive($pid) || (hex($pending // 0) & 0x100) != 0;
}

sub gone { my ($m) = @_; return wait_until(sub { my @left = processes_with($m); !@left }); }

# Starts tools of three kinds with an unlimited grace, and waits until all have begun.
sub start_three
{
	my ($h) = @_;
	$h->start(1, argv => [ $TOOL, 'hold', $mark ], grace => 3600);
	$h->start(2, argv => [ $TOOL, 'ignore-term', $mark ], grace => 3600);
	$h->start(3, argv => [ $TOOL, 'tree', $mark ], grace => 3600);
	$h->event($_) or die "job $_ did not begin" for 1 .. 3;
	return;
}

# Starts a process in place of the exec worker, and its helper, which runs three tools.
sub start_worker
{
	my ($base, $first) = @_;
	socketpair(my $says, my $hears, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
	my $worker = fork() // die;
	if ($worker == 0)
	{
		my $h = HelperTest->new(workdir => $base);
		$first->() if $first;
		start_three($h);
		syswrite $says, "$h->{helper_pid}\n";
		sleep 600;
		POSIX::_exit(0);
	}
	close $says;
	chomp(my $helper = <$hears>);
	return ($worker, $helper);
}

# the socket closes
{
	my $h = HelperTest->new;
	start_three($h);
	is(scalar processes_with($mark), 9, 'nine processes run');
	my $begin = time();
	$h->hang_up;
	is($h->reap, 0, 'end of file: the helper exits 0');
	note(sprintf 'it left after %.3f s', time() - $begin);
	ok(gone($mark), 'and nothing is left');
	is_deeply([ glob "$h->{workdir}/*" ], [], 'no directory either');
}

# TERM, the signal of its parent's death; other signals do nothing
{
	my $h = HelperTest->new;
	start_three($h);
	kill $_, $h->{helper_pid} for qw(INT HUP QUIT USR1 USR2 PIPE ALRM URG CONT);
	is($h->run(argv => ['true'])->{value}, 0, 'INT, HUP, QUIT, USR1 ... do nothing to the helper');
	kill 'TERM', $h->{helper_pid};
	is($h->reap, 0, 'TERM: it exits 0');
	ok(gone($mark), 'and nothing is left');
}

# SHUTDOWN: TERM, grace, KILL, an EXIT for each, no more starts
{
	my $h = HelperTest->new;
	start_three($h);
	$h->shutdown(3600);
	$h->start(4, argv => ['true']);
	my $told = sub { my $e = $h->exit_of($_[0]); return "$e->{kind} $e->{value}" };
	my %kind = map { $_ => $told->($_) } 1, 3, 4;
	$h->cancel(2, 'cancel', 0);	# sooner
	$kind{2} = $told->(2);
	is_deeply(\%kind, { 1 => 'shutdown 143', 2 => 'shutdown 137', 3 => 'shutdown 143', 4 => 'shutdown 0' }, 'SHUTDOWN: every job is told');
	is($h->reap, 0, 'then it exits 0');
	ok(gone($mark), 'nothing is left');
	is_deeply([ glob "$h->{workdir}/*" ], [], 'no directory either');
	$h = HelperTest->new;
	$h->start(1, argv => [ $TOOL, 'ignore-term', $mark ]);
	$h->event(1);
	$h->shutdown(0.3);
	is($told->(1), 'shutdown 137', 'a tool that ignores it is killed after the grace');
	is($h->reap, 0, 'also then it exits 0');
	$h = HelperTest->new;
	$h->shutdown(3600);
	is($h->reap, 0, 'SHUTDOWN of an idle helper');
}

# the worker is killed: the socket alone is not enough, since another process may hold it open
{
	my $base = tempdir(CLEANUP => 1) . '/work';
	# a forgotten copy of the worker's end
	my ($worker, $helper) = start_worker($base, sub { if (fork() == 0) { setpgrp(); $0 = "copy-$mark"; sleep 600; POSIX::_exit(0); } });
	kill 'KILL', $worker;
	waitpid $worker, 0;
	ok(wait_until(sub { !alive($helper) }), 'the worker is killed: the helper leaves, though the socket is still open elsewhere');
	my @copies = processes_with("copy-$mark");
	kill 'KILL', @copies;
	ok(gone($mark), 'and nothing is left');
	is_deeply([ glob "$base/*" ], [], 'no directory either');
}

# the helper is killed: the tools die at once; the next helper kills what has left them
{
	my $base = tempdir(CLEANUP => 1) . '/work';
	my $h = HelperTest->new(workdir => $base);
	$h->start(1, argv => [ $TOOL, 'hold', $mark ]);
	# found by its environment alone, which is long
	$h->start(2, argv => [ '/bin/sh', '-c', "cd /; setsid sleep 1$$ & echo '{\"log\":\"ready\"}' >&3; wait", $mark ],
		env => [ 'PATH=/usr/bin:/bin', 'A=' . 'x' x 70_000 ]);
	$h->event($_) for 1, 2;
	ok(wait_until(sub { scalar processes_with("1$$") > 0 }), 'a child in a session of its own runs');
	kill 'KILL', $h->{helper_pid};
	$h->reap;
	ok(gone($mark), 'the helper is killed: its tools die');
	is(scalar(my @left = glob "$base/run-*"), 1, 'its directory is still there');
	my $next = HelperTest->new(workdir => $base);
	is(join(' ', grep { !is_doomed($_) } processes_with("1$$")), '', 'the next helper kills what its tools left before it says hello');
	ok(gone("1$$"), 'and it dies');
	ok(wait_until(sub { my @runs = glob "$base/run-*"; @runs == 1 && $runs[0] =~ /run-$next->{helper_pid}-/ }), 'and removes the directory');
	my $third = HelperTest->new(workdir => $base);
	is($next->run(argv => ['true'])->{value}, 0, "a third one does not touch the second one's");
	is($third->run(argv => ['true'])->{value}, 0, 'two helpers share the base directory');
}

# the worker is killed while its helper stands still: the next helper, which may get
# the same job, ends both first
{
	my $base = tempdir(CLEANUP => 1) . '/work';
	my ($worker, $helper) = start_worker($base);
	kill 'STOP', $helper;
	kill 'KILL', $worker;
	waitpid $worker, 0;
	my $living = HelperTest->new(workdir => $base);
	kill 'STOP', $living->{pid};
	my $next = HelperTest->new(workdir => $base);
	is($next->run(argv => [ $TOOL, 'exit', 3 ])->{value}, 3, 'the helper of a worker that was killed stands still: another one runs a tool');
	ok(!alive($helper), 'when that helper has ended');
	kill 'CONT', $living->{pid};
	is($living->run(argv => [ $TOOL, 'exit', 4 ])->{value}, 4, 'one whose worker lives has not');
	ok(gone($mark), 'nothing is left');
}

# killed at any moment: no tool survives (a new directory each time, so
# that no sweep hides a survivor)
{
	my $base = tempdir(CLEANUP => 1);
	my $times = scale(300);
	my $survived = 0;
	for my $i (1 .. $times)
	{
		my $h = HelperTest->new(workdir => "$base/$i");
		$h->start($_, argv => [ $TOOL, 'hold', "race-$mark" ]) for 1 .. 2;
		select(undef, undef, undef, rand() * 0.002) if $i % 4;
		kill 'KILL', $h->{helper_pid};
		$h->reap;
		$h->hang_up;
	}
	ok(gone("race-$mark"), "helper killed at $times random moments after START: no tool survives") or diag(processes_with("race-$mark"));
}

# a parent that is gone before the helper checks it
{
	my $h = HelperTest->new(hello => 0, args => ['--parent-pid=1']);
	is(($h->reap // 0) >> 8, 1, 'a parent that is another one: it exits 1');
	for my $args ([ '--parent-pid=x' ], [ '--parent-pid=0' ], ['--what'], ['x'])
	{
		my $bad = HelperTest->new(hello => 0, args => $args, log => '/dev/null');
		is(($bad->reap // 0) >> 8, 1, "bad argument: @$args");
	}
}

is(join(' ', processes_with($mark)), '', 'nothing at all is left');
done_testing();
