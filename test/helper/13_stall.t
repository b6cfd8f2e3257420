# A tool that is silent for longer than stall is stopped as at a timeout; a standstill of the helper is no
# silence.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp qw(tempdir);
use HelperTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $h = HelperTest->new;
my $mark = "stall-$$";
my $dir = tempdir(CLEANUP => 1);

sub summary { my ($e) = @_; return $e ? "$e->{kind} $e->{value}" : 'nothing'; }
sub left { return join ' ', processes_with($mark); }
# Shell code that repeats a command every tenth of the stall, for twice the stall.
sub script { my ($do, $stall) = @_; return [ '/bin/sh', '-c', "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do $do; sleep @{[ $stall / 10 ]}; done", $mark ]; }

# ---- what counts, all at the same time ----
my $stall = 4;
my %lives = (stdout => 'printf .', stderr => 'printf . >&2', progress => q(echo '{"progress": 5}' >&3), heartbeat => 'echo {} >&3', 'a bad line' => 'printf x >&3',
	'a child' => '(printf .)');
my %silent = (nothing => ':', 'a file' => 'echo x >>file', 'reading stdin' => 'head -c 1000 >/dev/null', 'processor time' => 'i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done');
my @all = ((sort keys %lives), sort keys %silent);
my $begin = time();
$h->start($_ + 1, argv => script($lives{ $all[$_] } // $silent{ $all[$_] }, $stall), stall => $stall, stdin => 'x' x 1_000_000) for 0 .. $#all;
my %end = map { $all[$_] => $h->exit_of($_ + 1) } 0 .. $#all;
is(summary($end{$_}), 'exited 0', "$_ is a sign of life") for sort keys %lives;
for (sort keys %silent)
{
	is(summary($end{$_}), 'stalled 143', "$_ is none");
	cmp_ok($end{$_}{duration}, '>=', $stall * 1e6, '... not before its time');
}
is(left(), '', 'nothing of them is left');

# ---- how it is stopped ----
my $e = $h->run(argv => [ '/bin/sh', '-c', 'trap "" TERM; setsid sleep 600 >/dev/null & while :; do sleep 0.1; done', $mark ], stall => 0.3, grace => 0.5);
is(summary($e), 'stalled 137', 'one that ignores TERM is killed');
cmp_ok($e->{duration}, '>=', 800_000, 'after the grace');
is(left(), '', 'with all that it has started');
$e = $h->run(argv => [ '/bin/sh', '-c', 'trap "echo cleaned up; exit 3" TERM; while :; do sleep 0.1; done' ], stall => 0.3, grace => 3600);
is(summary($e) . " $e->{output}", "stalled 3 cleaned up\n", 'TERM lets it clean up');
is(summary($h->run(argv => [ $TOOL, 'hold' ], stall => 3600, timeout => 0.3)), 'timeout 143', 'the timeout may come first');
is(summary($h->run(argv => [ $TOOL, 'hold' ], stall => 0.3, timeout => 3600)), 'stalled 143', 'or not');
is(summary($h->run(argv => [ 'sleep', 0.5 ])), 'exited 0', 'without it a tool may be silent');
$h->start(100, argv => [ $TOOL, 'hold' ], stall => 0.001);
is(summary($h->exit_of(100)), 'stalled 143', 'a very short one');

# ---- a helper that stands still, mostly with its tools ----
sub stand_still
{
	my ($seconds) = @_;
	kill 'STOP', $h->{helper_pid};
	sleep $seconds;
	kill 'CONT', $h->{helper_pid};
	$h->ping;
	return $h->pong;
}
$h->start(200, argv => [ '/bin/sh', '-c', "echo {} >&3; until [ -e $dir/gate ]; do sleep 0.1; done", $mark ], stall => 4);
$h->started(200);
ok(stand_still(5), 'a helper stands still for longer than stall');
ok(!$h->exit_of(200, 0.5), 'its tool is not stalled');
for my $turn (1 .. 2)
{
	sleep 0.8;
	stand_still(2);				# half of it each
}
ok(!$h->exit_of(200, 0.5), 'nor when it does so again and again');
open(my $gate, '>', "$dir/gate") or die $!;
is(summary($h->exit_of(200)), 'exited 0', 'and it ends well');
$h->start(201, argv => [ $TOOL, 'hold' ], stall => 1);
$h->started(201);
stand_still(2);
is(summary($h->exit_of(201)), 'stalled 143', 'one that stays silent afterwards is stalled');

# ---- a worker that takes no events: descriptor 3 is not read, which is not the tool's fault ----
{
	my $slow = HelperTest->new;
	my $quick = 1;
	$slow->start(1, argv => [ $TOOL, 'notes', 200_000 ], stall => $quick);
	$slow->start(2, argv => script('echo {} >&3', 2), stall => $quick);
	sleep 5;
	is(summary($slow->exit_of(2)), 'exited 0', 'a worker that does not read makes no tool look silent');
	is(summary($slow->exit_of(1)), 'exited 0', 'nor one that waits to write');
}

# ---- warm ----
my $pool = 0;
sub give
{
	my ($job, $what, %o) = @_;
	$h->start($job, argv => [ $TOOL, 'warm' ], warm => 1, pool => $pool, id => "job-$job", stall => 1, stdin => qq({"id":"job-$job","payload":{"do":"$what"}}), %o);
	return $h->exit_of($job);
}
sub pid_of { my ($end) = @_; return $end->{output} =~ /"pid":(\d+)/ ? $1 : "none: $end->{output}"; }
$pool++;
my $first = pid_of(give(300, 'work'));
sleep 2;
is(pid_of(give(301, 'work')), $first, 'an instance without a job may be silent');
is(summary(give(302, 'hang')), 'stalled 143', 'one with a job may not');
my $second = give(303, 'work');
is(summary($second), 'answered 0', 'the next job');
isnt(pid_of($second), $first, 'has another instance');

# ---- a worker of the previous release ----
{
	local $HelperTest::VERSION = 1;
	my $old = HelperTest->new;
	is(summary($old->run(argv => [ 'sleep', 0.3 ], stall => 0.1)), 'exited 0', 'version 1 has no stall');
}

done_testing();
