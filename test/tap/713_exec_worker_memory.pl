# One allocation of the exec worker fails: no job is lost, no process crashes, and the jobs that
# come later run as before.

use strict;
use warnings;

use ExecTest;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $plan = "$dir/plan";

# The next allocation of that size fails in the exec worker, after some that do not.
sub fail_alloc
{
	my ($pid, $size, $after) = @_;

	open my $file, -e $plan ? '+<' : '>', $plan or die "$plan: $!";
	syswrite $file, pack('q3', $pid, $size, $after);
	close $file;
	return;
}

# True if it has failed.
sub has_failed { return (unpack 'q', slurp_file($plan))[0] == 0; }

system_or_bail('gcc', '-shared', '-fPIC', '-O2', '-o', "$dir/fail_alloc.so", "$FindBin::Bin/../lib/fail_alloc.c");
fail_alloc(0, 0, 0);
my $node;
{
	local %ENV = (%ENV, LD_PRELOAD => "$dir/fail_alloc.so", FAIL_ALLOC_FILE => $plan);
	$node = jobq_node('memory', 'fsync = off', "jobq.max_payload = '4MB'");
}
define_tool($node, 'echo', ['cat'], max_attempts => 2, backoff_base => "'1ms'");
define_tool($node, 'sink', [ 'sh', '-c', 'cat >/dev/null' ], options => q('{"output": "none"}'), max_attempts => 2, backoff_base => "'1ms'");
is(run_job($node, 'echo', '{}')->{status}, 'completed', 'the exec worker runs');
my $worker = $node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'));

# the memory context of a job that is taken from the slot
fail_alloc($worker, 1024, 3);
my $ids = join ',', map { "'$_'" } split /\n/,
  $node->safe_psql('postgres', q(SELECT jobq.enqueue_many('echo', array_fill('{}'::jsonb, ARRAY[60]))));
ok($node->poll_query_until('postgres', "SELECT count(*) = 60 FROM jobq.jobs WHERE id IN ($ids) AND status = 'completed'"),
	'all jobs complete when one cannot be taken from the slot');
ok(has_failed(), 'which was so');
is($node->safe_psql('postgres', "SELECT DISTINCT attempts FROM jobq.jobs WHERE id IN ($ids)"), 1, 'with one attempt each');
unlike(slurp_file($node->logfile), qr/terminated by signal/, 'and no process crashes');

# the queue of frames
fail_alloc($worker, 4 * 1024 * 1024, 0);
my $big = $node->safe_psql('postgres',
	q(SELECT jobq.enqueue('sink', jsonb_build_object('x', repeat('x', 3000000)))));
ok($node->poll_query_until('postgres', "SELECT error_msg = 'out of memory' OR status = 'completed' FROM jobq.jobs WHERE id = '$big'"),
	'a payload for which the queue of frames has no memory');
ok(has_failed(), 'once');
my $small = run_job($node, 'echo', '{}');
is("$small->{status} $small->{attempts}", 'completed 1', 'the next job runs');
$big = finished($node, $big);
is("$big->{status} $big->{attempts}", 'completed 1', 'and this one is tried again, uncharged');
is($node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker')), $worker,
	'in the same exec worker');

$node->stop;
done_testing();
