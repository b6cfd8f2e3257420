# A tool that is silent for longer than stall is stopped as at a timeout; a standstill
# of the helper is no silence.

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

# Runs a part of the test that returns arguments of is(), and once more, with times five times as
# long, if the machine may have stood still for one of its times.
my $job = 1000;
sub in_time
{
	my ($part) = @_;
	for my $scale (1, 5)
	{
		note('once more, with longer times') if $scale > 1;
		my @results = $part->($scale);
		next if $scale == 1 && grep { $_->[0] ne $_->[1] } @results;
		is($_->[0], $_->[1], $_->[2]) for @results;
		return;
	}
}

# ---- what counts, all at the same time ----
my %lives = (stdout => 'printf .', stderr => 'printf . >&2', progress => q(echo '{"progress": 5}' >&3), heartbeat => 'echo {} >&3', 'a bad line' => 'printf x >&3',
	'a child' => '(printf .)');
my %silent = (nothing => ':', 'a file' => 'echo x >>file', 'reading stdin' => 'head -c 1000 >/dev/null', 'processor time' => 'i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done');
my @all = ((sort keys %lives), sort keys %silent);
in_time(sub {
	my $stall = 4 * $_[0];
	my %job = map { $_ => $job++ } @all;
	$h->start($job{$_}, argv => script($lives{$_} // $silent{$_}, $stall), stall => $stall, stdin => 'x' x 1_000_000) for @all;
	my %end = map { $_ => $h->exit_of($job{$_}) } @all;
	return ((map { [ summary($end{$_}), 'exited 0', "$_ is a sign of life" ] } sort keys %lives),
		(map { [ summary($end{$_}), 'stalled 143', "$_ is none" ],
			[ $end{$_}{duration} >= $stall * 1e6 ? 1 : 0, 1, "... not before its time: $end{$_}{duration} us" ] } sort keys %silent));
});
is(left(), '', 'nothing of them is left');

# ---- how it is stopped ----
my $e = $h->run(argv => [ '/bin/sh', '-c', 'trap "" TERM; setsid sleep 600 >/dev/null & while :; do sleep 0.1; done', $mark ], stall => 2, grace => 0.5);
is(summary($e), 'stalled 137', 'one that ignores TERM is killed');
cmp_ok($e->{duration}, '>=', 2_500_000, 'after the grace');
is(left(), '', 'with all that it has started');
$e = $h->run(argv => [ '/bin/sh', '-c', 'trap "echo cleaned up; exit 3" TERM; while :; do sleep 0.1; done' ], stall => 2, grace => 3600);
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
in_time(sub {
	my ($scale) = @_;
	my $id = $job++;
	my @results;
	$h->start($id, argv => [ '/bin/sh', '-c', "echo {} >&3; until [ -e $dir/gate-$scale ]; do sleep 0.1; done", $mark ], stall => 4 * $scale);
	$h->started($id);
	push @results, [ stand_still(5 * $scale) ? 1 : 0, 1, 'a helper stands still for longer than stall' ];
	push @results, [ $h->exit_of($id, 0.5) ? 1 : 0, 0, 'its tool is not stalled' ];
	for my $turn (1 .. 2)
	{
		sleep 0.8 * $scale;
		stand_still(2 * $scale);	# half of it each
	}
	push @results, [ $h->exit_of($id, 0.5) ? 1 : 0, 0, 'nor when it does so again and again' ];
	open(my $gate, '>', "$dir/gate-$scale") or die $!;
	return @results if grep { $_->[0] ne $_->[1] } @results;
	return @results, [ summary($h->exit_of($id)), 'exited 0', 'and it ends well' ];
});
$h->start(201, argv => [ $TOOL, 'hold' ], stall => 1);
$h->started(201);
stand_still(2);
is(summary($h->exit_of(201)), 'stalled 143', 'one that stays silent afterwards is stalled');

# ---- a worker that takes no events: descriptor 3 is not read, which is not the tool's fault ----
in_time(sub {
	my ($scale) = @_;
	my $slow = HelperTest->new;
	$slow->start(1, argv => [ $TOOL, 'notes', 200_000 ], stall => $scale);
	$slow->start(2, argv => script('echo {} >&3', 2 * $scale), stall => $scale);
	sleep 5 * $scale;
	return [ summary($slow->exit_of(2)), 'exited 0', 'a worker that does not read makes no tool look silent' ],
	  [ summary($slow->exit_of(1)), 'exited 0', 'nor one that waits to write' ];
});

# ---- warm ----
my $pool = 0;
sub give
{
	my ($stall, $what, %o) = @_;
	my $id = $job++;
	$h->start($id, argv => [ $TOOL, 'warm' ], warm => 1, pool => $pool, id => "job-$id", stall => $stall, stdin => qq({"id":"job-$id","payload":{"do":"$what"}}), %o);
	return $h->exit_of($id);
}
sub pid_of { my ($end) = @_; return $end->{output} =~ /"pid":(\d+)/ ? $1 : "none: $end->{output}"; }
in_time(sub {
	my ($scale) = @_;
	$pool++;
	my $first = pid_of(give($scale, 'work'));
	sleep 2 * $scale;
	my $again = pid_of(give($scale, 'work'));
	my $hang = summary(give($scale, 'hang'));
	my $second = give($scale, 'work');
	return [ $again, $first, 'an instance without a job may be silent' ], [ $hang, 'stalled 143', 'one with a job may not' ],
	  [ summary($second), 'answered 0', 'the next job' ], [ pid_of($second) ne $first ? 1 : 0, 1, 'has another instance' ];
});

done_testing();
