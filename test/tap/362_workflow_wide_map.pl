# A map over many elements: it completes, the conductor and the dispatcher need little memory, and
# other jobs are picked up meanwhile.  JOBQ_MAP is the number of elements.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;
use Time::HiRes ();

my $width = $ENV{JOBQ_MAP} // 100000;
my $bound = 64;		# MB more than before the run
my $node = run_server('wide', "jobq.max_payload = '32MB'", "jobq.max_tasks = $width", 'synchronous_commit = off', "shared_buffers = '256MB'");

one(q{CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS ''; CREATE FUNCTION list(p jsonb) RETURNS jsonb LANGUAGE sql AS $$
SELECT jsonb_agg(i) FROM generate_series(1, (p->>'n')::int) i $$;
SELECT jobq.create_job_type('nothing', 'nothing(jsonb)'), jobq.create_job_type('list', 'list(jsonb)'), jobq.create_job_type('other', 'nothing(jsonb)')});
workflow('wide', '[{"key": "list", "job_type": "list", "payload": {"n": {"$": "$.input.n"}}},
  {"key": "m", "job_type": "nothing", "after": ["list"], "map": "$.tasks.list.result", "payload": {"of": {"$": "$.item"}}}]', q{output => '{"n": {"$": "$.tasks.m.result.size()"}}'});

# Returns the private memory of a process in MB: shared buffers are none of it.
sub memory_of
{
	my ($type) = @_;
	my ($pid) = jobq_pids($node, $type);
	my ($kb) = ($pid && -e "/proc/$pid/status" ? slurp_file("/proc/$pid/status") : '') =~ /^RssAnon:\s+(\d+)/m;

	return ($kb // 0) / 1024;
}

is(ended(start_run('wide', '{"n": 10}')), 'completed', 'a small one first');
my %before = map { $_ => memory_of($_) } qw(conductor dispatcher);
my %most = %before;
cmp_ok($before{$_}, '>', 0, "the memory of the $_ is known") foreach sort keys %before;

my $began = Time::HiRes::time();
my $run = start_run('wide', qq({"n": $width}));
my @waits;
until (one("SELECT status IN ('completed', 'error', 'cancelled') FROM jobq.jobs WHERE id = '$run'") eq 't')
{
	push @waits, seconds_of { one("SELECT status FROM jobq.wait_for('" . start_run('other') . "')") };
	foreach my $type (keys %most)
	{
		my $now = memory_of($type);

		$most{$type} = $now if $now > $most{$type};
	}
	last if Time::HiRes::time() - $began > 3 * $PostgreSQL::Test::Utils::timeout_default;
}
note sprintf '%d elements in %.1f s', $width, Time::HiRes::time() - $began;
is(one("SELECT status, result FROM jobq.jobs WHERE id = '$run'"), qq(completed|{"n": $width}), "a map over $width elements");
is(one("SELECT tasks FROM jobq.workflow_runs WHERE id = '$run'"), sprintf('{"completed": %d}', $width + 2), 'each has its task');
is(one("SELECT count(DISTINCT payload->>'of') FROM jobq.jobs WHERE workflow_id = '$run' AND task_key LIKE 'm.%'"), $width, 'with its element');
foreach my $type (sort keys %most)
{
	note sprintf '%s: %.1f MB, %.1f MB at most', $type, $before{$type}, $most{$type};
	cmp_ok($most{$type} - $before{$type}, '<', $bound, "the $type needs less than $bound MB more");
}
my ($longest) = sort { $b <=> $a } @waits;
note sprintf '%d other jobs meanwhile, the longest wait %.2f s', scalar @waits, $longest;
cmp_ok(scalar @waits, '>', 5, 'other jobs run meanwhile');
cmp_ok($longest, '<', 10, 'none waits for the map');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
