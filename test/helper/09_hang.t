# When the start or end of a tool hangs in the kernel, as on a file system that does not
# answer, other jobs continue.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp qw(tempdir);
use HelperTest;
use IPC::Open3;
use POSIX ();
use Test::More;

my $dir = tempdir(CLEANUP => 1);
my $id = 0;

sub touch { open(my $f, '>', "$dir/$_[0]") or die "$dir/$_[0]: $!"; close $f; return; }
sub summary { my ($e) = @_; return $e ? "$e->{kind} $e->{value}" : 'nothing'; }

sub children_of
{
	my ($h) = @_;
	open(my $f, '<', "/proc/$h->{helper_pid}/task/$h->{helper_pid}/children") or return;
	return grep { alive($_) } split ' ', <$f> // '';
}

# Starts hang.c with these arguments: [pid, first line]
sub begin_hang
{
	my ($out, $err);
	my $pid = open3(my $in, $out, undef, $HANG, @_);
	return [ $pid, scalar(<$out>) // 'nothing' ];
}
sub end_hang { my ($hang) = @_; kill 'KILL', $hang->[0]; waitpid($hang->[0], 0); return; }

# Makes the next start hang in execve, and returns its job.
sub hang_start
{
	my ($h, %o) = @_;
	my $job = ++$id;
	unlink "$dir/held";
	touch('hold');
	$h->start($job, argv => [ $TOOL, 'exit', '3' ], %o);
	ok(wait_until(sub { -e "$dir/held" }, 60), "job $job hangs");
	return $job;
}

SKIP:
{
	my $try = system("'$HANG' exec '$dir' /bin/true 2>/dev/null");
	skip 'no seccomp listeners here', 1 if $try != 0;
	my $h = HelperTest->new(under => [ $HANG, 'exec', $dir ]);

	my $runs = ++$id;
	$h->start($runs, argv => [ 'sleep', '600' ]);
	ok($h->started($runs, 60), 'a tool runs');
	my $job = hang_start($h, timeout => 6);
	is(summary($h->run(argv => [ $TOOL, 'exit', '4' ], wait => 60)), 'exited 4', 'another tool starts meanwhile');
	$h->cancel($runs);
	is($h->exit_of($runs, 60)->{kind}, 'cancelled', 'and the one that runs is cancelled');
	is(summary($h->exit_of($job, 60)), 'timeout 137', 'the one that hangs is timed out');
	ok(!$h->started($job, 0), 'and never was STARTED');

	$job = hang_start($h);
	$h->cancel($job);
	is(summary($h->exit_of($job, 60)), 'cancelled 137', 'or cancelled');
	my @hanging = map { hang_start($h) } 1 .. 6;
	is(summary($h->run(argv => [ $TOOL, 'exit', '4' ], wait => 60)), 'exited 4', 'more hang than start at once: another starts meanwhile');
	$h->cancel($_) for @hanging;
	is(scalar(grep { summary($h->exit_of($_, 60)) eq 'cancelled 137' } @hanging), 6, 'all can be cancelled');
	ok(wait_until(sub { children_of($h) <= 1 }, 60), 'nothing is left but a starter') or diag(children_of($h));

	$job = hang_start($h);
	touch('free');
	ok($h->started($job, 60), 'a start that goes on is STARTED');
	is(summary($h->exit_of($job, 60)), 'exited 3', 'and the tool runs as any other');

	# cancelled during its start; a busy machine may need some tries to
	# free it within the two seconds
	my $end = '';
	for (1 .. 10)
	{
		$job = hang_start($h, argv => [ $TOOL, 'hold' ]);
		$h->cancel($job, 'cancel', 600);
		touch('free');
		$end = summary($h->exit_of($job, 60));
		last if $end ne 'cancelled 137';
	}
	is($end, 'cancelled 143', 'a start that goes on is asked to leave');

	# the tool writes before its starter, which is stopped, reports that it runs
	$job = hang_start($h, argv => [ $TOOL, 'hold' ]);
	{
		open(my $f, '<', "$dir/held") or die $!;
		my $tool = <$f>;
		my ($starter) = grep { $_ != $tool } children_of($h);
		my $says = sub { return $h->expect(sub { $_[0]{type} =~ /^(STARTED|EVENT)$/ && $_[0]{job} == $job }, $_[0]); };
		kill 'STOP', $starter;
		touch('free');
		my $first = $says->(1);
		kill 'CONT', $starter;
		$first //= $says->();
		is($first->{type}, 'STARTED', 'nothing is told of a tool before its start');
		is($says->()->{type}, 'EVENT', 'but after it');
		$h->cancel($job);
		is($h->exit_of($job)->{kind}, 'cancelled', 'it is ended');
	}

	# the same, and the start is given up: the tool's children are ended too
	$job = hang_start($h, argv => [ '/bin/sh', '-c', "setsid sh -c 'sleep 600; :' given-up-$$ & wait" ]);
	{
		open(my $f, '<', "$dir/held") or die $!;
		my $tool = <$f>;
		my ($starter) = grep { $_ != $tool } children_of($h);
		kill 'STOP', $starter;
		touch('free');
		ok(wait_until(sub { processes_with("given-up-$$") > 1 }), 'its child runs');
		$h->cancel($job);
		$h->exit_of($job, 60);
		ok(wait_until(sub { !processes_with("given-up-$$") }), 'a start that is given up leaves no process');
	}

	$job = hang_start($h);
	{
		open(my $f, '<', "$dir/held") or die $!;
		my $pid = <$f>;
		ok(kill('KILL', $pid), 'killed') or diag("$pid: $!");
	}
	is(summary($h->exit_of($job, 60)), 'start_failed ' . POSIX::EINTR(), 'a process killed before it executes the tool is no tool');

	$job = hang_start($h);
	{
		open(my $f, '<', "$dir/held") or die $!;
		my $tool = <$f>;
		my @starters = grep { $_ != $tool } children_of($h);
		is(scalar(@starters), 1, 'one starter');
		kill 'KILL', $starters[0];
		is(summary($h->exit_of($job, 60)), 'start_failed ' . POSIX::EIO(), 'a starter is killed while it starts a tool');
		ok(wait_until(sub { !alive($tool) }, 60), 'then there is no tool');
		ok(wait_until(sub { !children_of($h) }, 60), 'and nothing is left');
		is(summary($h->run(argv => [ $TOOL, 'exit', '4' ], wait => 60)), 'exited 4', 'the next one starts a tool');
	}

	my @slow = map { my $n = ++$id; $h->start($n, argv => [ $TOOL, 'exit', '5' ]); $n } 1 .. 50;
	is(scalar(grep { summary($h->exit_of($_, 60)) eq 'exited 5' } @slow), 50, 'many more');

	$job = hang_start($h, argv => [ $TOOL, 'warm' ], warm => 1, timeout => 6, id => "job-$id", stdin => '{}');
	is(summary($h->exit_of($job, 60)), 'timeout 137', 'an instance that hangs is timed out');
	$job = ++$id;
	$h->start($job, argv => [ $TOOL, 'warm' ], warm => 1, id => "job-$job", stdin => qq({"id":"job-$job","payload":{"do":"work"}}));
	is($h->exit_of($job, 60)->{kind}, 'answered', 'and replaced');

	$job = hang_start($h);
	$h->shutdown(0);
	is(summary($h->exit_of($job, 60)), 'shutdown 137', 'SHUTDOWN ends a start that hangs');
	is($h->reap, 0, 'and the helper leaves');

	$h = HelperTest->new(under => [ $HANG, 'exec', $dir ]);
	hang_start($h);
	$h->hang_up;
	is($h->reap, 0, 'so it does at end of file');
	ok(wait_until(sub { !processes_with("--parent-pid=$$") }, 60),
		'with its starters');
}

# A tool that KILL does not end: a tracer holds it.
SKIP:
{
	my $h = HelperTest->new;
	my $job = ++$id;
	$h->start($job, argv => [ 'sleep', '600' ], timeout => 6, grace => 0);
	my $hang = begin_hang('exit', $h->started($job, 60)->{pid});
	skip 'no process may trace here', 4 if $hang->[1] ne "ready\n";
	my $e = $h->exit_of($job, 60);
	is(summary($e), 'timeout 137', 'a tool that can\'t be killed is timed out');
	is($e->{left}, 1, 'and counted as left');
	is(summary($h->run(argv => [ $TOOL, 'exit', '4' ], wait => 60)), 'exited 4', 'the helper goes on');
	$h->shutdown(0);
	is($h->reap, 0, 'and leaves without it');
	end_hang($hang);
}

# A file system that never answers: neither an access to the program nor KILL returns.
SKIP:
{
	my $disk = tempdir(CLEANUP => 0);
	my $hang = begin_hang('disk', $disk);
	skip 'no file system may be mounted here', 5 if $hang->[1] ne "ready\n";
	my $h = HelperTest->new;
	my $job = ++$id;
	$h->start($job, argv => ["$disk/tool"], timeout => 1);
	is(summary($h->run(argv => [ $TOOL, 'exit', '4' ], wait => 60)), 'exited 4', 'a tool starts beside one on a dead file system');
	is(summary($h->exit_of($job, 60)), 'timeout 137', 'which is timed out');
	my $e;
	wait_until(sub { $e = $h->run(argv => ["$disk/tool"], timeout => 1, wait => 60); $e->{kind} eq 'start_failed' }, 60);
	is(summary($e), 'start_failed ' . POSIX::EBUSY(), 'and not tried for ever');
	like($e->{message}, qr/an earlier start of it hangs/, 'which is said');
	end_hang($hang);	# the file system is gone: its callers get an error
	ok(wait_until(sub { $e = $h->run(argv => ["$disk/tool"], timeout => 5, wait => 60); $e->{value} == POSIX::ENOTCONN() }, 60),
		'until the file system says something') or diag(summary($e));
	$h->hang_up;
	is($h->reap, 0, 'the helper leaves');
	system('umount', '-l', $disk);
	rmdir $disk;
}

done_testing();
