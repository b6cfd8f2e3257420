# Warm tools: instances that run one job after another, and when one is replaced.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use HelperTest;
use Test::More;

my $h = HelperTest->new;
my $pool = 0;
my $id = 0;

# Sends a job to the pool, and returns its number.
sub give
{
	my ($what, %o) = @_;
	my $job = ++$id;
	$h->start($job, argv => [ $TOOL, 'warm' ], warm => 1, pool => $pool, id => "job-$job",
		stdin => qq({"id":"job-$job","payload":{"do":"$what"}}), %o);
	return $job;
}
sub end_of { my ($job) = @_; return $h->exit_of($job) // die "no end of $job"; }
sub ask { return end_of(give(@_)); }
sub pid_of { my ($e) = @_; return $e->{output} =~ /"pid":(\d+)/ ? $1 : "none: $e->{output}"; }
sub served { my ($e) = @_; return $e->{output} =~ /"served":(\d+)/ ? $1 : -1; }
sub summary { my ($e) = @_; return "$e->{kind} $e->{value} $e->{verdict}"; }

# ---- one after another ----
$pool++;
my $first = ask('work');
is(summary($first), 'answered 0 ok', 'a line in, a line out');
is($first->{output}, qq({"id":"job-1","result":{"pid":) . pid_of($first) . q(,"served":1,"what":"work"}}), 'the whole answer is handed on');
is($h->started(1, 0)->{pid}, pid_of($first), 'STARTED by its first job');
my $second = ask('work');
is(pid_of($second) . ' ' . served($second), pid_of($first) . ' 2', 'the next job runs in the same process');
ok(!$h->started(2, 0), 'which is not STARTED again');
my @jobs = map { give('work') } 1 .. 500;
my @ends = map { end_of($_) } @jobs;
is(scalar(grep { pid_of($_) == pid_of($first) } @ends), 500, 'jobs that come together wait for it');
is_deeply([ map { served($_) } @ends ], [ 3 .. 502 ], 'in order');

# ---- several ----
$pool++;
my @hung = map { give('hang', warm => 3) } 1 .. 3;
my %pids = map { $h->started($_)->{pid} => 1 } @hung;
is(scalar keys %pids, 3, 'as many instances as allowed');
my $waits = give('work', warm => 3);
ok(!$h->exit_of($waits, 0.2), 'more jobs wait');
my $never = give('work', warm => 3);
$h->cancel($never);
is(summary(end_of($never)), 'cancelled 0 ok', 'one that waits is cancelled at once');
$h->cancel($hung[1], 'cancel', 0.1);
is(end_of($hung[1])->{kind}, 'cancelled', 'a cancel ends its instance');
my $e = end_of($waits);
is(summary($e), 'answered 0 ok', 'and the next job gets a new one');
ok(!$pids{ pid_of($e) }, 'another process');
$h->cancel($_, 'cancel', 0.1), end_of($_) for @hung[ 0, 2 ];

# ---- a process that fails its job ----
$pool++;
for my $row ([ exit => 'exited 3 ok' ], [ leave => 'exited 0 ok' ], [ crash => 'signalled 9 ok' ],
	[ garbage => 'answered 0 bad_json' ], [ other => 'answered 0 no_answer' ], [ empty => 'answered 0 no_answer' ],
	[ long => 'output_limit 0 truncated', max_output => 50000 ])
{
	my ($what, $want, %o) = @$row;
	my $before = pid_of(ask('work', %o));
	my $bad = ask($what, %o);
	is(summary($bad), $want, "$what: how it ends");
	is($bad->{message} ne '', $want =~ /^(answered|output_limit)/ ? 1 : '', "$what: why it was refused");
	ok(length $bad->{output} <= 4096, "$what: the beginning is kept");
	my $after = ask('work', %o);
	is(summary($after) . ' ' . served($after), 'answered 0 ok 1', "$what: the next job has a new instance");
	ok(wait_until(sub { !alive($before) }), "$what: the old one is gone");
}
{
	my @early = map {
		give('work', argv => [ $TOOL, 'warm-early' ], timeout => 20, stdin => sprintf('{"id":"job-%d","x":"%s"}', $id + 1, 'x' x 200_000))
	} 1 .. 3;
	is(summary(end_of($_)), 'answered 0 ok', 'an answer before the whole line is read') for @early;
	$pool++;
}
$e = ask('fail');
is(summary($e), 'answered 0 ok', 'an error is an answer');
is(served(ask('work')), 2, 'and its instance stays');
my $twice = ask('twice');
is(summary($twice), 'answered 0 ok', 'one that writes more than it was asked has answered');
my $after = ask('work');
ok(pid_of($after) != pid_of($twice), 'but is replaced');
is(summary(ask('deaf')), 'answered 0 ok', 'one that closes its stdin');
is(summary(ask('work')), 'answered 0 ok', 'is replaced') for 1 .. 2;

# ---- time limit ----
$pool++;
ask('work', grace => 3600);
$e = ask('hang', timeout => 0.3, grace => 3600);
is(summary($e), 'timeout 143 ok', 'a job that takes too long');
is(summary(ask('work', grace => 3600)), 'answered 0 ok', 'the next is served');

# ---- worn out ----
$pool++;
my @worn = map { ask('work', warm_max_jobs => 2) } 1 .. 5;
is_deeply([ map { served($_) } @worn ], [ 1, 2, 1, 2, 1 ], 'replaced after warm_max_jobs');
ok(wait_until(sub { !alive(pid_of($worn[0])) }), 'its stdin ends, and it leaves');
$pool++;
my $small = ask('work', warm_memory => 20_000_000);
is(pid_of(ask('work', warm_memory => 20_000_000)), pid_of($small), 'it stays while it is small');
is(pid_of(ask('grow', warm_memory => 20_000_000)), pid_of($small), 'it grows');
ok(pid_of(ask('work', warm_memory => 20_000_000)) != pid_of($small), 'and is replaced');
$pool++;
my $old = ask('work', env => ['X=1']);
my $new = ask('work', env => ['X=2']);
ok(pid_of($old) != pid_of($new), 'another configuration, another instance');
ok(wait_until(sub { !alive(pid_of($old)) }), 'and the old one leaves at once');
is(served(ask('work', env => ['X=2'])), 2, 'it stays');

# ---- idle ----
$pool++;
$e = ask('work', warm_idle => 0.2);
ok(wait_until(sub { !alive(pid_of($e)) }), 'it leaves when it has been idle');
is(served(ask('work', warm_idle => 0.2)), 1, 'a later job starts another');

# ---- other output ----
$pool++;
ask('work');
$e = ask('note');
is(summary($e) . " $e->{bad_lines}", 'answered 0 ok 2', 'lines of descriptor 3 without its id are bad');
is($h->event($id)->{text}, qq({"id":"job-$id","log":"mine"}), 'those with it are events');
is($e->{stderr}, "about job-$id\n", 'stderr since the job began');
is(ask('work')->{stderr}, '', 'is the job\'s');

# ---- can't be started ----
$pool++;
$e = ask('work', argv => ['/nonesuch/tool']);
is($e->{kind}, 'start_failed', 'not there');
is($h->{helper_pid} && alive($h->{helper_pid}), 1, 'the helper goes on');

# ---- the end ----
$pool++;
my $last = ask('work');
my $hangs = give('hang', grace => 0.2);
my $queued = give('work', grace => 0.2);
$h->shutdown(0.2);
is(end_of($queued)->{kind}, 'shutdown', 'shutdown: one that waits');
is(end_of($hangs)->{kind}, 'shutdown', 'shutdown: one that runs');
is($h->reap, 0, 'the helper leaves');
ok(wait_until(sub { !alive(pid_of($last)) }), 'and no instance stays');
$h = HelperTest->new;
$last = ask('work');
$h->hang_up;
is($h->reap, 0, 'the worker is gone');
ok(wait_until(sub { !alive(pid_of($last)) }), 'no instance stays');

done_testing;
