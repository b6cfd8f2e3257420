# A misbehaving worker, and load: broken frames (T31), frames in single bytes, a worker
# that does not read, many tools.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp qw(tempdir);
use HelperTest;
use POSIX ();
use Test::More;
use Time::HiRes qw(time);

my $null = '/dev/null';

# Starts a helper, sends bytes, and returns its exit status.
sub status_after
{
	my ($bytes, %o) = @_;
	my $h = HelperTest->new(log => $null, hello => $o{hello} // 1);
	$h->start(1, argv => [ $TOOL, 'hold', "broken-$$" ]) if $o{running};
	$h->event(1) if $o{running};
	$h->send_raw($bytes);
	my $status = $h->reap // 99 << 8;
	return $status >> 8 if ($status & 127) == 0;
	return "signal $status";
}

sub frame { my ($type, $body, $version) = @_; return pack('L<CC', length($body) + 2, $version // $HelperTest::VERSION, $type) . $body; }

is(status_after("\xff" x 100), 1, 'rubbish: exits 1');
is(status_after("\xff" x 100, running => 1), 1, 'rubbish while a tool runs');
is(join(' ', processes_with("broken-$$")), '', 'which does not survive it');
is(status_after(pack('L<', 0)), 1, 'a frame of no length');
is(status_after(pack('L<', 0x7fffffff)), 1, 'a frame of 2 GB');
is(status_after(frame(4, pack('Q<', 0), $_)), 1, "version $_") for $HelperTest::VERSION - 1, $HelperTest::VERSION + 1;
is(status_after(frame(99, '')), 1, 'an unknown type');
is(status_after(frame(7, 'x')), 1, "one of the helper's own types");
is(status_after(frame(5, pack('Q<L<', 1, 2))), 1, 'also a sound one');
is(status_after(frame(4, 'short')), 1, 'cut short');
is(status_after(frame(4, pack('Q<', 0) . 'x')), 1, 'too long');
is(status_after(frame(3, pack('Q<Q<C', 1, 0, $_))), 1, "a reason that no worker has: $_") for 4, 9;
is(status_after(frame(9, '')), 1, 'a PONG');
is(status_after(frame(4, pack('Q<', 0)), hello => 0), 1, 'no HELLO first');
is(status_after(frame(1, pack('L<L<L<', 0, 0, 0) . HelperTest::text('relative/dir')), hello => 0), 1, 'a relative work directory');
is(status_after(frame(1, pack('L<L<L<', 0, 0, 0) . HelperTest::text('/nonexistent/dir')), hello => 0), 1, 'one that can not be made');
{
	my $dir = tempdir(CLEANUP => 1);
	chmod 0777, $dir;
	is(status_after(frame(1, pack('L<L<L<', 0, 0, 0) . HelperTest::text($dir)), hello => 0), 1, 'one that others may write to');
	symlink '/tmp', "$dir/link";
	is(status_after(frame(1, pack('L<L<L<', 0, 0, 0) . HelperTest::text("$dir/link")), hello => 0), 1, 'a link');
}
{
	my $h = HelperTest->new(log => $null);
	$h->start(1, argv => [ $TOOL, 'hold', "twice-$$" ]);
	$h->start(1, argv => [ $TOOL, 'hold', "twice-$$" ]);
	is(($h->reap // 0) >> 8, 1, 'the number of a job that runs');
	is(join(' ', processes_with("twice-$$")), '', 'its tool is gone');
}

sub summary { my ($e) = @_; return $e ? "$e->{kind} $e->{value}" : 'nothing'; }

# not a socket
{
	my $status = system("'$HELPER' --parent-pid=$$ 3</dev/null 2>/dev/null");
	is($status >> 8, 1, 'descriptor 3 is a file');
	$status = system("'$HELPER' --parent-pid=$$ 3<&- 2>/dev/null");
	is($status >> 8, 1, 'descriptor 3 is not there');
	like(`'$HELPER' --version`, qr/^jobq-helper \d+\.\d+/, 'its version');
}

# one byte at a time
{
	my $h = HelperTest->new;
	my @bytes;
	{
		no warnings 'redefine';
		local *HelperTest::send_raw = sub { push @bytes, split //, $_[1]; };
		$h->start(5, argv => [ 'cat' ], stdin => 'piecemeal');
	}
	for my $byte (@bytes) { $h->send_raw($byte); }
	is($h->exit_of(5)->{output}, 'piecemeal', 'a START in single bytes');
}

# limits of frames: HELLO raises them
{
	my $h = HelperTest->new(max_frame => 20_000_000);
	is($h->run(argv => [ 'wc', '-c' ], stdin => 'x' x 15_000_000)->{output}, "15000000\n", '15 MB of stdin after a HELLO that allows it');
	my $e = $h->run(argv => ['cat'], stdin => 'x' x 15_000_000, max_output => 16_000_000);
	is(length $e->{output}, 15_000_000, 'and back');
	$h = HelperTest->new;
	$e = $h->run(argv => [ $TOOL, 'stdout', 6_000_000 ], max_output => 8_000_000);
	is("$e->{verdict} " . length $e->{output}, 'truncated 4096', 'an output that fits no frame is refused, not the worker lost');
	is($h->{max_frame} // 0, 0, 'without asking for more');
}

# a worker that does not read: other tools continue, memory stays bounded, nothing is lost
{
	my $h = HelperTest->new;
	my $lines = scale(200_000);
	$h->start(1, argv => [ $TOOL, 'notes', $lines ]);
	$h->start(2, argv => [ $TOOL, 'stdout', 100_000_000 ], output => 'none');
	$h->started($_) for 1, 2;
	my $tools = sub { scalar processes_with("$TOOL\0stdout") };
	ok(wait_until(sub { $tools->() == 0 }), 'a worker that does not read holds up no other tool');
	open(my $f, '<', "/proc/$h->{helper_pid}/status");
	my ($peak) = do { local $/; <$f> =~ /VmHWM:\s+(\d+)/ };
	ok(HelperTest::is_sanitized() || $peak < 16384, "the helper's memory is bounded") or diag($peak);
	my $e = $h->exit_of(1, 120);
	is($e->{value}, 0, 'then the tool ends well');
	my @got = grep { $_->{type} eq 'EVENT' && $_->{job} == 1 } @{ $h->{frames} };
	is(scalar @got, $lines, 'and no event is lost');
	is($got[-1]{text}, '{"log":"line ' . ($lines - 1) . ' of many that the worker reads later"}', 'in order');
}

# fifty at once, and more than max_jobs
{
	my $h = HelperTest->new;
	my $begin = time();
	my $there = tempdir(CLEANUP => 1);
	# each waits for all others
	$h->start($_, argv => [ '/bin/sh', '-c', "cat; : >$there/$_; until [ \$(ls $there | wc -l) = 50 ]; do sleep 0.1; done; echo $_; exit $_" ], stdin => "in $_ ") for 1 .. 50;
	my @wrong = grep { my $e = $h->exit_of($_); "$e->{kind} $e->{value} $e->{output}" ne "exited $_ in $_ $_\n" } 1 .. 50;
	is("@wrong", '', '50 tools at once, each with its own result');
	note(sprintf 'they took %.1f s', time() - $begin);
	$h->start($_, argv => [ $TOOL, 'hold', "crowd-$$" ]) for 1 .. 257;
	my $e = $h->exit_of(257);
	is("$e->{kind} $e->{value}", 'start_failed ' . POSIX::EAGAIN(), 'the 257th is refused, not forgotten');
	like($e->{message}, qr/too many tools at once/, 'and says why');
	$h->started(256);
	$h->cancel($_, 'cancel', 0) for 1 .. 256;
	my @left = grep { my $x = $h->exit_of($_); $x->{kind} ne 'cancelled' } 1 .. 256;
	is("@left", '', '256 cancelled at once');
	is(join(' ', processes_with("crowd-$$")), '', 'all are gone');
	is($h->run(argv => ['true'])->{value}, 0, 'the helper goes on');
}

# tools that are cancelled right after START: they get TERM, or a start
# that took seconds is given up
{
	my $h = HelperTest->new;
	my @jobs = 1 .. 32;
	for my $n (@jobs)
	{
		$h->start($n, argv => [ $TOOL, 'hold' ]);
		$h->cancel($n, 'cancel', 600);
	}
	my @ends = map { summary($h->exit_of($_, 120)) } @jobs;
	is("@{[ grep { $_ !~ /^cancelled (143|137)$/ } @ends ]}", '', 'CANCEL right behind START ends all');
}

# few descriptors: fewer tools at once, and still no process is left
{
	local $HelperTest::HELPER = tempdir(CLEANUP => 1) . '/helper';
	open(my $f, '>', $HelperTest::HELPER) or die $!;
	print $f "#!/bin/sh\nulimit -n 64\nexec $HELPER \"\$@\"\n";
	close $f;
	chmod 0755, $HelperTest::HELPER;
	my $h = HelperTest->new(log => $null);
	is($h->{answer}{max_jobs}, 3, 'HELLO says how many tools may run');
	$h->start($_, argv => [ $TOOL, 'daemon', "few-$$" ]) for 1 .. 3;
	$h->start(4, argv => ['true']);
	my %seen = map { my $e = $h->exit_of($_); ("$e->{kind} $e->{value} $e->{left}" => 1) } 1 .. 3;
	is(join(',', keys %seen), 'exited 0 1', 'their daemons are found');
	is(join(' ', processes_with("few-$$")), '', 'and killed');
	is($h->exit_of(4)->{value}, POSIX::EAGAIN(), 'one more is refused');
}

# nothing grows: descriptors (visible to root only), memory, children
{
	my $h = HelperTest->new;
	my $count = sub { my @f = glob "/proc/$h->{helper_pid}/fd/*"; scalar @f };
	my $rss = sub { open(my $f, '<', "/proc/$h->{helper_pid}/status"); local $/; return <$f> =~ /VmRSS:\s+(\d+)/ ? $1 : 0; };
	$h->run(argv => [ '/bin/sh', '-c', 'echo x > file; sleep 600 & echo y; echo z >&2' ], stdin => 'x' x 100_000) for 1 .. 20;
	$h->run(argv => ['nonexistent']);	# its work directory, unused, is kept for another
	my ($fds, $memory) = ($count->(), $rss->());
	for (1 .. scale(300))
	{
		$h->run(argv => [ '/bin/sh', '-c', 'echo x > file; (sleep 600 >/dev/null 2>&1 3>&1 &) ; echo y; echo z >&2' ], stdin => 'x' x 100_000);
		$h->run(argv => ['nonexistent']);
		$h->{frames} = [];
	}
	is($count->(), $fds, 'descriptors do not grow');
	ok(HelperTest::is_sanitized() || $rss->() - $memory < 512, 'memory does not') or diag($rss->() - $memory);
	ok(wait_until(sub { open(my $f, '<', "/proc/$h->{helper_pid}/task/$h->{helper_pid}/children"); my $l = <$f> // '';
			join(' ', map { open(my $c, '<', "/proc/$_/comm"); <$c> // '' } split ' ', $l) eq "jobq-helper\n" }), 'no child is left but a starter');
}

# the work directory: removed, and made again; when it can't be made, a fault
# of the node; the helper lives
{
	my $h = HelperTest->new(log => $null);
	my ($run) = glob "$h->{workdir}/run-*";
	ok(rmdir $run, 'its directory is removed') or diag($!);
	is($h->run(argv => ['pwd'])->{verdict}, 'ok', 'it makes another');
	ok(rename($h->{workdir}, "$h->{workdir}-moved"), 'the base directory is moved');
	is($h->run(argv => ['true'])->{value}, 0, 'which does no harm');
	system("rm -rf '$h->{workdir}-moved'") == 0 or die;
	open(my $f, '>', $h->{workdir}) or die;
	my $e = $h->run(argv => ['true']);
	like("$e->{kind} $e->{message}", qr/^start_failed .*could not make its work directory/, 'where there can be none the start fails') or diag("$e->{kind} $e->{value} $e->{message}");
	unlink $h->{workdir};
	is($h->run(argv => ['true'])->{value}, 0, 'until there can');
	$h->shutdown(0);
	is($h->reap, 0, 'and it leaves in order');
}

# S20: a full disk is a failure of the tool, or a fault of the node; the helper lives
SKIP:
{
	my $base = tempdir(CLEANUP => 1);
	skip 'no user namespaces', 4 if system("unshare -Urm mount -t tmpfs tmpfs '$base' 2>/dev/null") != 0;
	local $HelperTest::HELPER = "$base.sh";
	open(my $f, '>', $HelperTest::HELPER) or die $!;
	print $f "#!/bin/sh\nexec unshare -Urm sh -c 'mount -t tmpfs -o size=64k,nr_inodes=6,mode=700 tmpfs $base && exec $HELPER \"\$\@\"' jobq-helper \"\$\@\"\n";
	close $f;
	chmod 0755, $HelperTest::HELPER;
	my $h = HelperTest->new(workdir => "$base/work", log => $null);
	my $e = $h->run(argv => [ '/bin/sh', '-c', 'head -c 200000 /dev/zero > big' ]);
	is("$e->{kind} $e->{value}", 'exited 1', 'a disk that is full fails the tool');
	like($e->{stderr}, qr/No space left/, 'which says so');
	# which of them find space depends on the removal of the first directory; three do
	$h->start($_, argv => [ $TOOL, 'hold' ]) for 1 .. 12;
	my @failed = map { $h->expect(sub { $_[0]{type} eq 'EXIT' }) } 1 .. 9;
	my @other = grep { "$_->{kind} $_->{value}" ne 'start_failed ' . POSIX::ENOSPC() } @failed;
	is_deeply(\@other, [], 'no room for a work directory');
	my %over = map { $_->{job} => 1 } @failed;
	my @held = grep { !$over{$_} } 1 .. 12;
	$h->cancel($_, 'cancel', 0) for @held;
	$h->exit_of($_) for @held;
	is($h->run(argv => ['true'])->{value}, 0, 'the helper goes on when there is room');
	unlink $HelperTest::HELPER;
}

done_testing();
