# The maintenance process: it creates partitions when they are needed, and never waits for a lock holder.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('maintenance', 'log_min_messages = debug1');
$node->start;
my $partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'jobq.history'::regclass";
is($node->safe_psql('postgres', "BEGIN; CREATE EXTENSION jobq; $partitions; ROLLBACK"), 0,
	'the install script makes no partition');
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
my $id = $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper')");
wait_status($node, 'postgres', $id, 'completed', 'the first job finds one');
cmp_ok($node->safe_psql('postgres', $partitions), '>', 0, 'there it is');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'",
	'its creator has left');
is($node->safe_psql('postgres', "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class"
		  . " WHERE oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'jobq.history'::regclass)"),
	$node->safe_psql('postgres', "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'jobq.queue'::regclass"),
	'it belongs to the owner of the tables');

# A session locks the parent: jobs without need of a new partition run, others run once the lock is free.
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE jobq.history IN SHARE UPDATE EXCLUSIVE MODE');
my $rare = $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper', keep_completed => '1000 days')");
$node->wait_for_log(qr/jobq maintenance found a table in use/);
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper')");
wait_status($node, 'postgres', $id, 'completed', 'other jobs run');
isnt($node->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$rare'"), 'completed', 'one waits for its partition');
$holder->query_safe('COMMIT');
$holder->quit;
wait_status($node, 'postgres', $rare, 'completed', 'and ends when the lock is gone');
is($node->safe_psql('postgres', "SELECT attempts, error_msg IS NULL FROM jobq.jobs WHERE id = '$rare'"), '1|t', 'uncharged');
unlike(slurp_file($node->logfile), qr/jobq maintenance (ERROR|FATAL)/, 'a lock that is taken is no error');

# Settings of the database and of the role don't reach it.
$node->safe_psql('postgres', <<'END');
ALTER DATABASE postgres SET default_transaction_read_only = on;
ALTER DATABASE postgres SET statement_timeout = '1ms';
ALTER DATABASE postgres SET search_path = 'nowhere';
ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
END
$ENV{PGOPTIONS} = '-c statement_timeout=0 -c default_transaction_read_only=off';
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('sleeper', keep_completed => '2000 days')");
wait_status($node, 'postgres', $id, 'completed', 'odd settings of the database are no obstacle');

$node->stop;
done_testing();
