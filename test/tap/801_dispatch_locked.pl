# A session locks the registry, the home row or the queue exclusively: the dispatcher
# continues and waits for no lock.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('locked', 'jobq.sweep_interval = 20ms', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION quick(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('quick', 'quick(jsonb)');
END
my $first = $node->safe_psql('postgres', q{SELECT jobq.enqueue('quick')});
wait_status($node, 'postgres', $first, 'completed', 'before');

my $turns = q{SELECT state_change > '%s' FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'};
my $loops = q{SELECT loops FROM jobq.stat_dispatcher};
my $waits = q{SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE a.backend_type = 'jobq dispatcher' AND NOT l.granted};
foreach my $table (qw(job_types job_type_env home queue))
{
	my $job = $node->safe_psql('postgres', q{SELECT jobq.enqueue('quick', delay => '1s')});
	my $holder = $node->background_psql('postgres');

	$holder->query_safe("BEGIN; LOCK TABLE jobq.$table IN ACCESS EXCLUSIVE MODE;");
	foreach my $round (1 .. 3)
	{
		my $now = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
		ok($node->poll_query_until('postgres', sprintf($turns, $now)), "$table is locked: the dispatcher goes on, $round");
		is($node->safe_psql('postgres', $waits), '0', 'and waits for no lock');
	}
	$holder->query_safe('COMMIT;');
	$holder->quit;
	wait_status($node, 'postgres', $job, 'completed', "$table is free again: the job runs");
}

# Nothing notifies the dispatcher of a freed lock, nor does the sweep: it polls by itself.
$node->safe_psql('postgres', "ALTER SYSTEM SET jobq.sweep_interval = '1h'");
$node->restart;
wait_dispatcher($node, 'postgres', 'a dispatcher that does not sweep');
foreach my $table (qw(limits stopped queue))
{
	my $holder = $node->background_psql('postgres');

	$node->safe_psql('postgres', "SELECT jobq.pause_job_type('quick')");
	my $job = $node->safe_psql('postgres', q{SELECT jobq.enqueue('quick')});
	$holder->query_safe("BEGIN; LOCK TABLE jobq.$table IN ACCESS EXCLUSIVE MODE;");
	if ($table eq 'queue')
	{
		my $former = dispatcher($node, 'postgres');

		$node->safe_psql('postgres', "SELECT pg_terminate_backend($former)");
		wait_dispatcher($node, 'postgres', 'another dispatcher, which has read nothing', $former);
	}
	$node->safe_psql('postgres', "SELECT jobq.resume_job_type('quick')");
	my $turns = $node->safe_psql('postgres', $loops);
	wait_for_sql($node, "SELECT ($loops) > $turns + 50", "$table is locked: the dispatcher polls");
	is($node->safe_psql('postgres', $waits), '0', 'and waits for no lock');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'}, 'no process is about to wake it');
	$holder->query_safe('COMMIT;');
	$holder->quit;
	my $seconds = seconds_of { wait_status($node, 'postgres', $job, 'completed', "$table is free again: the job runs") };
	cmp_ok($seconds, '<', 100, 'soon');
}

# It polls also when reading the limits has taken longer than its pause between two polls.
$node->safe_psql('postgres', "SELECT jobq.pause_job_type('quick')");
my $behind = $node->safe_psql('postgres', q{SELECT jobq.enqueue('quick')});
my $queue_holder = $node->background_psql('postgres');
$queue_holder->query_safe('BEGIN; LOCK TABLE jobq.queue IN ACCESS EXCLUSIVE MODE;');
$node->safe_psql('postgres', "INSERT INTO jobq.limits SELECT 'l' || n, 1, 0, '1s' FROM generate_series(1, 300000) n");
my $before = dispatcher($node, 'postgres');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($before)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $before);
wait_for_sql($node, q{SELECT max(ts) > (SELECT backend_start FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher') FROM jobq.disk_log},
	'its first maintenance is done');
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'}, 'they have gone');
$node->safe_psql('postgres', "SELECT jobq.resume_job_type('quick')");
wait_for_sql($node, q{SELECT jobq.health() #>> '{checks,dispatcher,latency_ms}' IS NOT NULL}, 'it has ended a turn, in which it read the limits');
$queue_holder->query_safe('COMMIT;');
$queue_holder->quit;
my $took = seconds_of { wait_status($node, 'postgres', $behind, 'completed', 'the queue is free again: the job runs') };
cmp_ok($took, '<', 100, sprintf 'soon (%.1f s)', $took);
$node->safe_psql('postgres', 'TRUNCATE jobq.limits');

# A change while the limits can't be read may be the kill switch.
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.limits IN ACCESS EXCLUSIVE MODE;');
$node->safe_psql('postgres', "SELECT jobq.stop_all('a test')");
my $stopped = $node->safe_psql('postgres', q{SELECT jobq.enqueue('quick')});
$node->safe_psql('postgres', 'SELECT jobq.health()') for 1 .. 3;
is($node->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$stopped'"), 'pending', 'limits is locked: stop_all() stops');
$locker->query_safe('COMMIT;');
$locker->quit;
$node->safe_psql('postgres', 'SELECT jobq.start_all()');
wait_status($node, 'postgres', $stopped, 'completed', 'until start_all()');

$node->stop;
done_testing();
