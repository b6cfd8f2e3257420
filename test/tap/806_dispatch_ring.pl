# The ring of publications passes 32 bits of its counters after 32 of them, with a
# length that is no power of two.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

use constant { LENGTH => 67, ROUNDS => 5 };

my $node = jobq_server('ring', 'jobq.max_lanes = ' . LENGTH, "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('noop', 'noop(jsonb)');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# The very first job makes the dispatcher read the whole queue.
my $id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('noop', '{}')});
wait_status($node, 'postgres', $id, 'completed', 'a first job runs');

# One lane and one transaction per job, nearly as many as the ring holds,
# while the dispatcher takes none.
my $lost = $node->safe_psql('postgres', 'SELECT publications_lost FROM jobq.stat_dispatcher');
foreach my $round (1 .. ROUNDS)
{
	my $n = LENGTH - 8;
	my $pid = dispatcher($node, 'postgres');

	freeze($node, $pid);
	$node->safe_psql('postgres', "DO \$\$
BEGIN
  FOR n IN 1 .. $n LOOP
    PERFORM jobq.enqueue('noop', '{}', priority => n);
    COMMIT;
  END LOOP;
END \$\$");
	kill 'CONT', $pid;
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', "all $n jobs of round $round run");
}
is($node->safe_psql('postgres', 'SELECT publications_lost FROM jobq.stat_dispatcher'), $lost, 'the ring had all of them');
$node->stop;
done_testing();
