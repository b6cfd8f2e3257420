# Compaction, identity and jobs where transaction ids pass 2^32.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_server('epoch', 'autovacuum = off', 'fsync = off', 'log_min_messages = debug1');
start_with_paused_type($node);
$node->safe_psql('postgres', <<'END');
SELECT jobq.create_job_type('nothing', 'nothing(jsonb)');
ALTER DATABASE template0 ALLOW_CONNECTIONS true;
END

sub value { return $node->safe_psql('postgres', $_[0]); }

sub next_xid { return value('SELECT pg_snapshot_xmax(pg_current_snapshot())'); }

sub jobs_run
{
	my ($what, $db) = @_;
	my $id = $node->safe_psql($db // 'postgres', "SELECT jobq.enqueue('nothing')");

	return wait_status($node, $db // 'postgres', $id, 'completed', "$what: a job runs");
}

# The number of dead rows removed since that position in the log.
sub removed
{
	my ($from) = @_;
	my $n = 0;

	$n += $_ foreach slurp_file($node->logfile, $from) =~ /swept, (\d+) dead/g;
	return $n;
}

jobs_run('at first');
advance_to($node, 2_000_000_000);
advance_to($node, 4_000_000_000);
jobs_run('after half of the ids');
advance_to($node, 2**32 - 3000);
jobs_run('before 2^32');

# A holder of the server's horizon, a snapshot, an overflow, and rows deleted on both sides of 2^32
value("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'held'");
my $overflow = session($node, 'BEGIN; SELECT subtransactions(100)');
value("SELECT count(jobq.enqueue('waits', tenant => (i % 3)::text)) FROM generate_series(1, 900) i");
value("SELECT jobq.cancel_jobs('waits', '0')");
my $offset = -s $node->logfile;
value('SELECT jobq.compact()');
cmp_ok(removed($offset), '>=', 300, 'before 2^32: dead rows go');
my $deleter = session($node, 'BEGIN; SELECT pg_current_xact_id()');
my $reader = session($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue');
cmp_ok(next_xid(), '<', 2**32, 'all of them have ids before 2^32');

value('SELECT subtransactions(4000)');
cmp_ok(next_xid(), '>', 2**32, 'the ids pass 2^32');
$deleter->query("DELETE FROM jobq.queue WHERE tenant = '1'; COMMIT");
$deleter->quit;
value('SELECT jobq.compact()');
is($reader->query('SELECT count(*) FROM jobq.queue'), 600, 'an old snapshot sees the rows that were deleted after it');
is(value('SELECT count(*) FROM jobq.queue'), 300, 'a new one does not');
$reader->quit;
$offset = -s $node->logfile;
value('SELECT jobq.compact()');
cmp_ok(removed($offset), '>=', 300, 'when it has ended they go, beside transactions from before 2^32');
value("SELECT jobq.cancel_jobs('waits', '2')");
$offset = -s $node->logfile;
value('SELECT jobq.compact()');
cmp_ok(removed($offset), '>=', 300, 'and so do rows that were deleted after 2^32');
sound($node, 'after 2^32');
jobs_run('after 2^32');
$overflow->query('COMMIT');
$overflow->quit;
value("ROLLBACK PREPARED 'held'");

# Identity: homes from both sides
is(value("SELECT jobq.health() #>> '{checks,identity,status}'"), 'healthy', 'the home from before 2^32 is known');
value('CREATE DATABASE later');
$node->safe_psql('later', 'CREATE EXTENSION jobq;'
	  . " CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS ''; SELECT jobq.create_job_type('nothing', 'nothing(jsonb)')");
wait_dispatcher($node, 'later', 'a dispatcher in a database from after 2^32');
jobs_run('there', 'later');
cmp_ok($node->safe_psql('later', 'SELECT max(self_xid::text::bigint) FROM jobq.home'), '>', 2**32, 'and its home row is from after 2^32');
$node->restart;
wait_dispatcher($node, $_, "$_: the dispatcher runs again") foreach qw(postgres later);
jobs_run('after a restart');
jobs_run('after a restart there', 'later');
is($node->safe_psql('later', "SELECT jobq.health() #>> '{checks,identity,status}'"), 'healthy', 'both homes are known');
value('SELECT jobq.compact()');
sound($node, 'after a restart');

no_own_errors($node);
$node->stop;
done_testing();
