# The start of a tool: its surroundings (S1, S3-S7, S14, T2, T4, T31), and the report of a failed
# start (S23).

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp qw(tempdir);
use HelperTest;
use POSIX ();
use Test::More;

my $dir = tempdir(CLEANUP => 1);

# Surroundings like those that a background worker of PostgreSQL 15 passes to its children.
my $h = HelperTest->new(
	prepare => sub {
		POSIX::dup2(POSIX::open('/etc/passwd', POSIX::O_RDONLY()), $_) for 10, 50, 200;
		$SIG{$_} = 'IGNORE' for qw(PIPE HUP USR2 TTIN TTOU URG XFSZ);
		POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new(POSIX::SIGUSR1(), POSIX::SIGTERM(), POSIX::SIGINT()));
		umask 0;
		$ENV{LD_PRELOAD_TEST} = $ENV{PGDATA} = $ENV{SECRET} = 'seen';
		if (open(my $f, '>', '/proc/self/oom_score_adj')) { print $f $> == 0 ? '-900' : '0'; close $f; }
	});

# S1, T2: arguments arrive byte for byte
{
	my @table = ('a b', '$(id)', '`id`', ';', '--', "\n", '', "'", '"', '\\', '*', '~', '|| true', '> x', "\xff\xfe", "\x01\x1b[0m", '%s%n', '-rf', "a\tb", '${HOME}');
	push @table, map { chr($_) . $table[ $_ % @table ] } 1 .. 255;
	my $e = $h->run(argv => [ $TOOL, 'argv', @table ], output => 'json');
	my $want = join '', map { length($_) . ":$_," } @table;
	is($e->{stdout_bytes}, length $want, '275 hostile arguments: as many bytes');
	$e = $h->run(argv => [ $TOOL, 'argv', @table[ 0 .. 19 ] ]);
	$want = join '', map { length($_) . ":$_," } @table[ 0 .. 19 ];
	$want =~ s/[\xfe\xff]/\xEF\xBF\xBD/g;
	is($e->{output}, $want, 'byte for byte');
	is($h->run(argv => [ $TOOL, 'argv' ])->{output}, '', 'no arguments');
}

# S3: the environment is the given one, and the work directory
{
	my $e = $h->run(argv => [ $TOOL, 'env' ], env => [ 'PATH=/x', 'LANG=C', 'A=1=2', 'B=', 'HOME=/root', 'TMPDIR=/', 'JOBQ_WORKDIR=/' ]);
	my @lines = split /\n/, $e->{output};
	my ($workdir) = map { /^JOBQ_WORKDIR=(.*)/ } @lines;
	like($workdir, qr{^\Q$h->{workdir}\E/run-[^/]+/\d+$}, 'JOBQ_WORKDIR is below the base');
	is_deeply([ sort @lines ], [ sort 'PATH=/x', 'LANG=C', 'A=1=2', 'B=', map { "$_=$workdir" } qw(HOME TMPDIR JOBQ_WORKDIR) ],
		'nothing else, nothing of the server');
	ok(!-e $workdir, 'the directory is gone afterwards');
}

# S4, T31
is($h->run(argv => [ $TOOL, 'fds' ])->{output}, '0 1 2 3 ', 'a tool sees descriptors 0 to 3');

# S5, S6, S7, S14
{
	my $e = $h->run(argv => [ $TOOL, 'process' ], nofile => 100, memory_max => 1 << 30);
	my %seen;
	push @{ $seen{$1} }, $2 while $e->{output} =~ /^([^:\n]+):\s*(.*)$/mg;
	my $is = sub { my ($key, $want, $name) = @_; is(join(',', @{ $seen{$key} // [] }), $want, $name); };
	$is->($_, '0000000000000000', "$_ is empty") for qw(SigPnd ShdPnd SigBlk SigIgn SigCgt);
	$is->('disposition', '', 'every signal has its default disposition');
	$is->('NoNewPrivs', 1, 'no new privileges');
	$is->('leads session', 1, 'leads its own session');
	$is->('terminal', 0, 'without a terminal');
	$is->('umask', '077', 'umask');
	$is->('cwd mode', 700, 'the current directory is private');
	like($seen{cwd}[0], qr{^\Q$h->{workdir}\E/run-}, 'and its own');
	$is->('death signal', 9, 'KILL when the helper dies');
	$is->('subreaper', 0, 'is no subreaper');
	$is->('core', 0, 'no core file');
	$is->('nofile', 100, 'descriptors are limited');
	$is->('memory', 1 << 30, 'memory too');
	$is->('oom', 500, 'the first to go when memory runs out');
}

# the helper itself
{
	my ($status, $oom, $stat) = map { my $p = $_; local (@ARGV, $/) = "/proc/$h->{helper_pid}/$p"; <> // '' } qw(status oom_score_adj stat);
	like($status, qr/^NoNewPrivs:\s+1$/m, 'the helper can gain no privileges');
	is($oom + 0, 0, "the server's OOM protection is undone");
	my (undef, undef, undef, $session) = split ' ', $stat =~ s/^.*\) //sr;
	is($session, $h->{helper_pid}, 'it leads its own session');
	my @owner = stat "/proc/$h->{helper_pid}/environ";
	is($owner[4], 0, 'it is not dumpable') if $> != 0;
	is(HelperTest::alive($h->{helper_pid}), 1, 'it lives');
}

# stdin
is($h->run(argv => ['cat'], stdin => "payload \0 bytes", output => 'text')->{verdict}, 'nul', 'stdin arrives');
is($h->run(argv => ['cat'], stdin => '')->{output}, '', 'empty stdin is at its end');
is($h->run(argv => [ 'wc', '-c' ], stdin => 'x' x 3_000_000)->{output}, "3000000\n", '3 MB of it');

# looking up plain names, at each start
{
	my $e = $h->run(argv => ['jobq-test-tool'], tool_path => "relative::$dir:/bin");
	is($e->{kind}, 'start_failed', 'not there yet');
	is($e->{value}, POSIX::ENOENT(), 'ENOENT');
	symlink $TOOL, "$dir/jobq-test-tool" or die $!;
	$e = $h->run(argv => [ 'jobq-test-tool', 'exit', '3' ], tool_path => "relative::$dir:/bin");
	is("$e->{kind} $e->{value}", 'exited 3', 'found now');
	for my $name ('./tool', 'a/b', '../bin/true', '', '.', '..')
	{
		$e = $h->run(argv => [$name]);
		is("$e->{kind} $e->{value}", 'start_failed ' . POSIX::EINVAL(), "refused: \"$name\"");
	}
}

# S23
{
	my $make = sub {
		my ($name, $text, $mode) = @_;
		open(my $f, '>', "$dir/$name") or die $!;
		print $f $text;
		close $f;
		chmod $mode, "$dir/$name";
		return "$dir/$name";
	};
	my @table = (
		[ [ "$dir/missing" ], POSIX::ENOENT(), qr/^could not run ".*missing": No such file or directory$/, 'missing file' ],
		[ [ $make->('plain', "#!/bin/sh\n", 0644) ], POSIX::EACCES(), qr/Permission denied/, 'no x bit' ],
		[ [ $make->('interp', "#!/nonexistent/sh\n", 0755) ], POSIX::ENOENT(), qr/interpreter/, 'bad interpreter' ],
		[ [ $make->('noshebang', "exit 0\n", 0755) ], POSIX::ENOEXEC(), qr/first line/, 'no interpreter' ],
		[ [ $make->('empty', '', 0755) ], POSIX::ENOEXEC(), qr/no program/, 'empty file' ],
		[ [$dir], POSIX::EACCES(), qr/Permission denied/, 'a directory' ],
		[ [ $TOOL, 'x' x 200_000 ], POSIX::E2BIG(), qr/Argument list too long/, 'an argument too long' ],
		[ [ $TOOL, ('y' x 100_000) x 40 ], POSIX::E2BIG(), qr/Argument list too long/, 'too many bytes of arguments' ]);
	for my $row (@table)
	{
		my ($argv, $errno, $message, $name) = @$row;
		my $e = $h->run(argv => $argv);
		is("$e->{kind} $e->{value}", "start_failed $errno", $name);
		like($e->{message}, $message, "$name: says why");
	}
	for my $code (126, 127)
	{
		my $e = $h->run(argv => [ $TOOL, 'exit', $code ]);
		is("$e->{kind} $e->{value}", "exited $code", "a tool that exits $code did start");
	}
}

is_deeply([ grep { !m{/\d+$} || glob "$_/*" } glob "$h->{workdir}/run-*/*" ], [], 'no work directory is left, but empty ones to use again');
$h->hang_up;
is($h->reap, 0, 'the helper exits 0');
is_deeply([ glob "$h->{workdir}/*" ], [], 'and removes its own directory');

done_testing();
