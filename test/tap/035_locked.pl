# Somebody locks the registry, the home row or the queue exclusively: the dispatcher goes on and waits for no lock.

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
my $waits = q{SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE a.backend_type = 'jobq dispatcher' AND NOT l.granted};
foreach my $table (qw(job_types home queue))
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
$node->stop;
done_testing();
