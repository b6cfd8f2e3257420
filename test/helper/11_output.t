# More stdout than max_output stops a tool, as a timeout does; and the helper answers a PING.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use HelperTest;
use Test::More;
use Time::HiRes qw(time);

my $h = HelperTest->new;
my $mark = "output-$$";

sub summary { my ($e) = @_; return "$e->{kind} $e->{value} $e->{verdict}"; }
sub left { return join ' ', processes_with($mark); }

# ---- without a timeout ----
for my $kind (qw(json text))
{
	my $e = $h->run(argv => [ '/bin/sh', '-c', 'yes', $mark ], output => $kind, max_output => 10_000);
	is(summary($e), 'output_limit 0 truncated', "$kind: a tool that writes for ever is stopped");
	is($e->{message}, 'stdout is longer than the limit of 10000 bytes (max_output)', "$kind: why");
	is(length $e->{output}, 4096, "$kind: the beginning is kept");
	is(left(), '', "$kind: nothing of it is left");
}

# ---- TERM, the grace, KILL of the whole tree ----
my $e = $h->run(argv => [ '/bin/sh', '-c', 'trap "echo cleaned up >&2; exit 3" TERM; while :; do echo 0123456789; done', $mark ],
	max_output => 1000, grace => 3600);
is(summary($e) . " $e->{stderr}", "output_limit 0 truncated cleaned up\n", 'TERM lets it clean up');
my $begin = time();
$e = $h->run(argv => [ '/bin/sh', '-c', 'trap "" TERM; setsid yes >&2 & exec yes', $mark ], max_output => 1000, grace => 0.5);
is(summary($e), 'output_limit 0 truncated', 'one that ignores TERM');
cmp_ok(time() - $begin, '>=', 0.5, 'is killed after the grace');
is(left(), '', 'with all that it has started');
$e = $h->run(argv => [ $TOOL, 'stdout', 0 ], max_output => 1000, timeout => 3600);
is($e->{kind}, 'output_limit', 'its timeout has nothing to do with it');

# ---- a tool that has ended by itself ----
$e = $h->run(argv => [ '/bin/sh', '-c', 'printf %2000d 0; exit 7' ], max_output => 1000);
is(summary($e), 'output_limit 0 truncated', 'too much is too much, whatever the exit code is');
$e = $h->run(argv => [ '/bin/sh', '-c', 'printf %1000d 0; exit 7' ], max_output => 1000);
is(summary($e), 'exited 7 ok', 'not one byte less');

# ---- no limit ----
$e = $h->run(argv => [ $TOOL, 'stdout', 5_000_000 ], output => 'none', max_output => 1000);
is(summary($e) . " $e->{stdout_bytes}", 'exited 0 ok 5000000', 'stdout that is no result has none');
$e = $h->run(argv => [ $TOOL, 'stderr', 5_000_000 ], max_output => 1000);
is(summary($e) . " $e->{stderr_bytes}", 'exited 0 ok 5000000', 'nor has stderr');

# ---- warm ----
sub ask
{
	my ($job, $what, %o) = @_;
	$h->start($job, argv => [ $TOOL, 'warm', $mark ], warm => 1, id => "job-$job", max_output => 50_000,
		stdin => qq({"id":"job-$job","payload":{"do":"$what"}}), %o);
	return $h->exit_of($job);
}
ask(1, 'work');
$e = ask(2, 'endless');
is(summary($e), 'output_limit 0 truncated', 'an answer without an end stops its instance');
is($e->{message}, 'the answer is longer than the limit of 50000 bytes (max_output)', 'why');
is(substr($e->{output}, 0, 8) . length $e->{output}, 'yes yes 4096', 'its beginning is kept');
is(left(), '', 'it is gone when that is told');
is(summary(ask(3, 'work')), 'answered 0 ok', 'the next job has another');
is(summary(ask(4, 'work')), 'answered 0 ok', 'which stays');

# ---- PING ----
$h->start(5, argv => [ $TOOL, 'hold', $mark ]);
$h->started(5);
$h->ping;
ok($h->pong, 'a PING is answered while a tool runs');
kill 'STOP', $h->{helper_pid};
$h->ping;
ok(!$h->pong(0.3), 'not by a helper that is stopped');
kill 'CONT', $h->{helper_pid};
ok($h->pong, 'but when it goes on');
$h->cancel(5);
is($h->exit_of(5)->{kind}, 'cancelled', 'and so does all else');

done_testing();
