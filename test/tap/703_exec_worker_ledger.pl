# Processes die while tools run: each job ends once with its own result, each start was charged or
# returned, and no start is without its committed attempt.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $jobs = 600;
my $node = jobq_node('exec_ledger', "jobq.shutdown_grace = '200ms'");
my $ledger = tools() . '/ledger';

define_tool($node, 'ledger', [ 'sh', '-c', 'echo $JOBQ_JOB_ID $JOBQ_ATTEMPT >> "$0"; sleep 0.1; echo "\"$JOBQ_JOB_ID\""', $ledger ],
	max_attempts => 1000, backoff_base => "'1ms'", backoff_max => "'5ms'");
$node->safe_psql('postgres', "SELECT count(*) FROM jobq.enqueue_many('ledger', array_fill('{}'::jsonb, ARRAY[$jobs]))");

sub completed
{
	return $node->safe_psql('postgres', q(SELECT count(*) FROM jobq.jobs WHERE job_type = 'ledger' AND status = 'completed'));
}

sub pid_of
{
	# a leaving process may still be there
	return $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = '$_[0]' ORDER BY backend_start DESC LIMIT 1");
}

# Returns the number of killed helpers.
sub kill_helper
{
	my $worker = pid_of('jobq exec worker') or return 0;
	my $killed = 0;

	foreach my $pid (map { m{/proc/(\d+)} } glob '/proc/[0-9]*')
	{
		open my $stat, '<', "/proc/$pid/stat" or next;
		$killed += kill 'KILL', $pid if (readline($stat) // '') =~ /^\d+ \(jobq-helper\) [^Z] $worker /;
	}
	return $killed;
}

sub terminate
{
	my $pid = pid_of($_[0]) or return 0;

	return $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)::int");
}

# Each blow hits when there is a process for it; more jobs follow until each kind has hit.
my @blows = (\&kill_helper, sub { terminate('jobq exec worker') }, sub { terminate('jobq dispatcher') });
my @hits = (0, 0, 0);
for (my $blow = 0; (my $done = completed()) < $jobs || grep { !$_ } @hits;)
{
	if ($done == $jobs)
	{
		$jobs += 100;
		$node->safe_psql('postgres', q(SELECT count(*) FROM jobq.enqueue_many('ledger', array_fill('{}'::jsonb, ARRAY[100]))));
	}
	my $aim = $done + 40 < $jobs ? $done + 40 : $jobs;
	my $hit = $blows[ $blow % 3 ]->() or next;

	$hits[ $blow++ % 3 ] += $hit;
	$node->poll_query_until('postgres', "SELECT count(*) >= $aim FROM jobq.jobs WHERE job_type = 'ledger'
		AND status = 'completed'") or last;
}
note "@hits blows, $jobs jobs";
is(scalar(grep { $_ > 0 } @hits), 3, 'helpers, exec workers and dispatchers were hit');

is(completed(), $jobs, '!every job ended');
is($node->safe_psql('postgres', q(SELECT count(*), count(DISTINCT id), bool_and(result = to_jsonb(id::text)), bool_and(attempts <= runs)
	FROM jobq.jobs WHERE job_type = 'ledger')), "$jobs|$jobs|t|t", 'once, with its own result');
is($node->safe_psql('postgres', q(SELECT sum(attempts) - count(*) = (SELECT count(*) FROM jobq.events
	WHERE job_type = 'ledger' AND type = 'failed' AND data->>'code' IN ('helper_lost', 'server_crash')) FROM jobq.jobs
	WHERE job_type = 'ledger')), 't', 'every attempt that was lost is charged, and no other');

my (%starts, $bad);
$starts{$_}++ foreach split /\n/, slurp_file($ledger);
my %runs = map { split /\|/ } split /\n/, $node->safe_psql('postgres', 'SELECT id, runs FROM jobq.jobs');
my %per_job;
$per_job{ (split / /)[0] } += $starts{$_} foreach keys %starts;
$bad = grep { $per_job{$_} > $runs{$_} } keys %per_job;
is($bad, 0, '!no tool was started without a run in its row');
is(scalar(keys %per_job), $jobs, 'and every job was started');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|1[0-9])/, 'exits are 0 or 1 only');
done_testing();
