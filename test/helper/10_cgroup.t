# Tools in cgroups: where the helper may make them, each tool has its own. It is killed as a whole
# and leaves nothing. With a memory controller it limits memory.
# JOBQ_TEST_CGROUP is a directory that this user may write; this process is in its
# subdirectory server (test/run).

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use HelperTest;
use POSIX ();
use Test::More;

my $base = $ENV{JOBQ_TEST_CGROUP}
  or plan skip_all => 'no cgroup of version 2 is ours: root must run the tests, and that hierarchy be mounted and writable';
my $mark = "grouped-$$";
my $dir = tempdir(CLEANUP => 1);

sub slurp { my ($path) = @_; open(my $f, '<', $path) or return ''; local $/; return <$f> // ''; }
sub cgroup_of { my ($pid) = @_; return slurp("/proc/$pid/cgroup") =~ /^0::(.*)$/m ? $1 : ''; }
sub put { my ($path, $value) = @_; open(my $f, '>', $path) or return 0; return defined syswrite($f, $value); }

my $own = cgroup_of($$);
my $mount = substr($base, 0, length($base) - length(dirname($own)));
is("$mount$own", "$base/server", 'this process is in a cgroup beside those of tools');

sub helper
{
	my (%o) = @_;
	return known(HelperTest->new(log => "$dir/log", args => [ "--parent-pid=$$", '--cgroup=' . ($o{base} // $base) ], %o));
}

# While the base is marked as delegated, the helpers of tests that run beside this one use it, too.
my %ours;
sub known { my ($h) = @_; $ours{ $h->{helper_pid} } = 1 if $h->{helper_pid}; return $h; }
sub groups { return grep { -d && /-run-(\d+)-[^\/]*$/ && $ours{$1} } glob "$base/*-run-*"; }
sub group_of { my ($h) = @_; my ($d) = glob "$base/*-run-$h->{helper_pid}-*"; return $d; }
sub groups_in { my ($h) = @_; my $d = group_of($h); return grep { -d } glob "$d/*"; }

# each tool has its own, below the helper's
my $h = helper();
my $limits_memory = slurp("$base/cgroup.controllers") =~ /\bmemory\b/;
my $name = substr(group_of($h), length $mount);
like($name, qr{^\Q@{[dirname($own)]}\E/work-run-$h->{helper_pid}-[0-9a-f]+$}, q(the helper's bears the name of the server's work directory));
is(cgroup_of($h->{helper_pid}), $own, 'it stays where it was');
my @seen = map { $h->run(argv => [ 'sed', '-n', 's/^0:://p', '/proc/self/cgroup' ])->{output} } 1, 2;
like($_, qr{^\Q$name\E/\d+\n$}, 'a tool is in one of its own') for @seen;
isnt($seen[0], $seen[1], 'the next in another');
is($h->run(argv => [ $TOOL, 'fds' ])->{output}, '0 1 2 3 ', 'it gets no further descriptors');
is($h->run(argv => ['/nonexistent'])->{kind}, 'start_failed', 'one that can not be started');
is($h->run(argv => [ $TOOL, 'exit', 5 ])->{value}, 5, 'an exit code');
is_deeply([ groups_in($h) ], [], 'all are removed with the end of the tool');
like(slurp("$dir/log"), qr/^jobq-helper: tools run in cgroups below "\Q$base\E"$/m, 'the log says so');
is(slurp("$dir/log") =~ /no memory controller for cgroup "work-run-/ ? 0 : 1, $limits_memory ? 1 : 0, 'also when they can not limit memory');

# the end of the job ends all its processes
{
	my $e = $h->run(argv => [ $TOOL, 'daemon', $mark ]);
	is("$e->{value} $e->{left}", '0 1', 'a daemon that is left is killed, and counted once');
	$e = $h->run(argv => [ $TOOL, 'run-away', $mark ]);
	is($e->{value}, 0, 'so is one that forks all the time');
	$h->start(1, argv => [ $TOOL, 'tree', $mark ]);
	$h->event(1);
	$h->cancel(1, 'cancel', 0.1);
	is($h->exit_of(1)->{kind}, 'cancelled', 'a tree that does not obey');
	$h->start(2, argv => [ $TOOL, 'hold', $mark ]);
	$h->event(2);
	my ($d) = groups_in($h);
	my $stranger = fork() // die;
	if ($stranger == 0) { $0 = "stranger-$mark"; sleep 60; POSIX::_exit(0); }
	ok(put("$d/cgroup.procs", "$stranger\n"), 'a process that is no child of the tool joins its cgroup');
	$h->cancel(2, 'cancel', 0);
	$h->exit_of(2);
	waitpid $stranger, 0;
	is($? & 127, 9, 'and ends with it');
	is_deeply([ processes_with($mark) ], [], 'nothing is left');
	is_deeply([ groups_in($h) ], [], 'nor are cgroups');
}

# a tool that makes cgroups of its own in its own
{
	my $script = 'd=$1$(sed -n "s/^0:://p" /proc/self/cgroup); mkdir -p $d/a/b $d/c
		sh -c "echo \$\$ >$d/a/b/cgroup.procs; exec sleep 60" >/dev/null 2>&1 3>&1 &
		until grep -q . $d/a/b/cgroup.procs; do :; done';
	my $e = $h->run(argv => [ '/bin/sh', '-c', $script, $mark, $mount ]);
	is("$e->{kind} $e->{value} $e->{left}", 'exited 0 1', 'a cgroup in its own: what is in it is killed') or diag($e->{stderr});
	is_deeply([ groups_in($h) ], [], 'and it is removed too');
}

# the helper's cgroup was removed
{
	ok(rmdir group_of($h), q(the helper's cgroup is removed));
	like($h->run(argv => [ 'cat', '/proc/self/cgroup' ])->{output}, qr/work-run-$h->{helper_pid}-/, 'another is made');
}

# a warm instance
{
	$h->start(3, argv => [ $TOOL, 'warm' ], warm => 1, output => 'json', id => 'x', stdin => '{"id":"x","do":"work"}');
	is($h->exit_of(3)->{kind}, 'answered', 'a warm instance answers');
	is(scalar(my @living = groups_in($h)), 1, 'and keeps its cgroup');
}

# a helper that exits by itself leaves nothing; after KILL the next one kills and
# removes its cgroup, and no other
{
	$h->hang_up;
	is($h->reap, 0, 'the helper leaves');
	is_deeply([ groups() ], [], 'with its cgroup');
	my $work = tempdir(CLEANUP => 1) . '/work';
	my $dead = helper(workdir => $work);
	$dead->start(1, argv => [ '/bin/sh', '-c', "$TOOL daemon $mark; echo '{\"log\":\"ready\"}' >&3; sleep 60", $mark ]);
	$dead->event(1);
	my $left = group_of($dead);
	kill 'KILL', $dead->{helper_pid};
	$dead->reap;
	is(scalar processes_with("daemon\0$mark"), 1, 'the helper is killed: a daemon without its environment and directory lives');
	my $living = helper(workdir => "$dir/other");
	my $others = group_of($living);
	mkdir "$base/else-run-1-1" or die;
	my $next = helper(workdir => $work);
	ok(wait_until(sub { !processes_with($mark) }), 'until the next helper comes');
	ok(wait_until(sub { !-d $left }), 'its cgroup is removed');
	ok(-d $others && -d "$base/else-run-1-1", q(those of other servers stay));
	my $third = helper(workdir => $work);
	is($next->run(argv => [ $TOOL, 'exit', 0 ])->{value}, 0, 'and that of a helper that lives');
	rmdir "$base/else-run-1-1";
}

# the base directory
{
	my $look = sub { my $p = known(HelperTest->new(log => "$dir/log")); return $p->run(argv => [ 'sed', '-n', 's/^0:://p', '/proc/self/cgroup' ])->{output}; };
	is($look->(), "$own\n", 'none is named, and the parent of our own is not marked as delegated');
	is(system($TOOL, 'delegate', $base, '1'), 0, 'it is marked');
	like($look->(), qr{^\Q@{[dirname($own)]}\E/work-run-}, 'and is used');
	system($TOOL, 'delegate', $base, '0');
	my %wrong = ($dir => 'Operation not supported', $mount => 'Permission denied', "$base/none" => 'No such file or directory');
	for my $place (sort keys %wrong)
	{
		unlink "$dir/log";
		my $p = helper(base => $place);
		is($p->run(argv => [ 'sed', '-n', 's/^0:://p', '/proc/self/cgroup' ])->{output}, "$own\n", "$wrong{$place}: tools run without");
		like(slurp("$dir/log"), qr/^jobq-helper: tools can't have cgroups below "\Q$place\E": $wrong{$place}$/m, 'and the log says so');
	}
	is((helper(hello => 0, base => 'relative')->reap // 0) >> 8, 1, 'a relative path is refused');
}

# memory
$h = helper();
SKIP:
{
	my $mb = 1 << 20;
	unless ($limits_memory)
	{
		my $e = $h->run(argv => [ $TOOL, 'process' ], memory_max => 64 * $mb);
		like($e->{output}, qr/^memory: @{[64 * $mb]}$/m, 'without a memory controller the address space is limited');
		skip 'this hierarchy has no memory controller', 11;
	}
	my $outcome = sub { my $e = $h->run(memory_max => 64 * $mb, @_); return "$e->{kind} $e->{value} $e->{limit}"; };
	my $unlimited = $h->run(argv => [ $TOOL, 'process' ])->{output} =~ /^memory: (\d+)$/m ? $1 : '';
	my $e = $h->run(argv => [ $TOOL, 'process' ], memory_max => 64 * $mb);
	like($e->{output}, qr/^memory: $unlimited$/m, 'the address space has no limit');
	is($outcome->(argv => [ $TOOL, 'reserve', 10_000 * $mb ]), 'exited 0 ', 'and can be used');
	is($outcome->(argv => [ $TOOL, 'allocate', 40 * $mb ]), 'exited 0 ', 'memory below the limit');
	is($outcome->(argv => [ $TOOL, 'allocate', 90 * $mb ]), 'signalled 9 memory', 'over it');
	my $half = 'my $n = shift; fork; my $x = "y" x $n; sleep 60';
	is($outcome->(argv => [ 'perl', '-e', $half, 40 * $mb ]), 'signalled 9 memory', 'its processes together');
	my $child = 'my $n = shift; if (fork == 0) { my $x = "y" x $n; exit 0 } wait; sleep 60';
	is($outcome->(argv => [ 'perl', '-e', $child, 90 * $mb ]), 'signalled 9 memory', 'a child that is over it ends the tool');
	is($outcome->(argv => [ $TOOL, 'exit', 4 ]), 'exited 4 ', 'a failure of another kind');
	is($outcome->(argv => [ 'perl', '-e', 'my $x = "y" x shift; exit 4', 52 * $mb ]), 'exited 4 ', 'also of one that was near the limit');
	is($outcome->(argv => [ $TOOL, 'signal', 9 ]), 'signalled 9 ', 'KILL from elsewhere');
	is($outcome->(argv => [ $TOOL, 'allocate', 90 * $mb ], memory_max => 0), 'exited 0 ', 'no limit');
	$h->start(9, argv => [ $TOOL, 'warm' ], warm => 1, output => 'json', id => 'x', stdin => '{"id":"x","do":"grow"}', memory_max => 20 * $mb);
	$e = $h->exit_of(9);
	is("$e->{kind} $e->{value} $e->{limit}", 'signalled 9 memory', 'a warm instance');
}
is_deeply([ groups_in($h) ], [], 'nothing is left in the cgroup');
$h->hang_up;
$h->reap;
is_deeply([ groups() ], [], 'nor is it itself');

done_testing();
