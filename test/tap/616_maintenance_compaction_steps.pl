# Compaction's transactions: a cursor that pins an index page, DDL between the steps, terminate and
# kill -9 between them.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_server('steps', 'restart_after_crash = on', 'autovacuum = off', 'fsync = off', 'log_min_messages = debug1',
	'wal_sender_timeout = 0', "wal_consistency_checking = 'all'");
start_with_paused_type($node);
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION pageinspect;
CREATE FUNCTION dead_pointers(OUT n bigint) LANGUAGE sql AS $$
  SELECT count(*) FROM generate_series(0, pg_relation_size('jobq.queue') / 8192 - 1) b,
    LATERAL heap_page_items(get_raw_page('jobq.queue', b::int)) WHERE lp_flags = 3 $$;
-- The maintenance process while it waits for a cleanup lock.
CREATE FUNCTION waiting_for_pin(OUT pid int, OUT xid xid, OUT xmin xid) LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM pg_stat_clear_snapshot();
    SELECT a.pid, a.backend_xid, a.backend_xmin INTO pid, xid, xmin FROM pg_stat_activity a
      WHERE backend_type = 'jobq maintenance' AND wait_event IN ('BufferPin', 'BufferCleanup');	-- the latter since 19
    EXIT WHEN FOUND;
    PERFORM pg_sleep(0.002);
  END LOOP;
END $$;
END

sub value { return $node->safe_psql('postgres', $_[0]); }

sub cancelled_jobs
{
	my ($n) = @_;

	value("SELECT count(jobq.enqueue('waits', tenant => CASE WHEN i % 2 = 0 THEN 't' END)) FROM generate_series(1, 2 * $n) i");
	return value("SELECT jobq.cancel_jobs('waits', 't')");
}

# A cursor in the index on ids that pins a page.
sub index_cursor
{
	return session($node, "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;"
		  . ' DECLARE c CURSOR FOR SELECT id FROM jobq.queue ORDER BY id; FETCH 1 FROM c');
}

# Cancels jobs and opens the cursor; no run of compaction sweeps between the two.
sub cursor_beside_cancelled
{
	my ($n) = @_;
	my $locker = session($node, 'BEGIN; LOCK TABLE jobq.queue IN SHARE UPDATE EXCLUSIVE MODE');

	cancelled_jobs($n);
	my $cursor = index_cursor();
	$locker->quit;
	return $cursor;
}

sub cleaned
{
	my ($what) = @_;

	wait_for_sql($node, 'SELECT dead_pointers() = 0', "$what: line pointers are free again without a call");
	return sound($node, $what);
}

# --- a cursor on an index-only scan

my $cursor = cursor_beside_cancelled(500);
my $watcher = $node->background_psql('postgres');
$watcher->query_until(qr/started/, "\\echo started\nSELECT 'seen', xid IS NULL, xmin IS NULL FROM waiting_for_pin();\n");
my $took = seconds_of { value('SELECT jobq.compact()') };
cmp_ok($took, '<', 40, "compact() returns beside the cursor, after $took s");
$watcher->query_until(qr/seen\|t\|t/, '');
pass('a wait for a cleanup lock holds neither xid nor xmin');
$watcher->quit;
is(value("SELECT count(*) FROM pg_stat_user_tables WHERE relid = 'jobq.queue'::regclass AND n_dead_tup >= 500"), 1,
	'the statistics count dead line pointers');
cmp_ok(value('SELECT dead_pointers()'), '>', 400, 'rows are gone, their line pointers stay; one page is being read');
is(errors_of($node, 'postgres', "SET lock_timeout = '20s'; CREATE INDEX owner_early ON jobq.queue (tenant, id);"
	  . ' ALTER TABLE jobq.queue ALTER COLUMN tenant SET STATISTICS 50'), '00000', 'DDL gets the table beside the cursor');
value("SELECT count(jobq.enqueue('waits')) FROM generate_series(1, 300)");
sound($node, 'between the steps');
$cursor->quit;
cleaned('when the cursor is closed');
value('DROP INDEX jobq.owner_early');

# --- actions of other sessions between the steps

my %between = (
	'a concurrent index' => 'CREATE INDEX CONCURRENTLY owner_late ON jobq.queue (id, priority)',
	'REINDEX CONCURRENTLY' => 'REINDEX TABLE CONCURRENTLY jobq.queue',
	'VACUUM' => 'VACUUM jobq.queue',
	'VACUUM FULL' => 'VACUUM FULL jobq.queue');
foreach my $what (sort keys %between)
{
	$cursor = cursor_beside_cancelled(300);
	value('SELECT jobq.compact()');
	cmp_ok(value('SELECT dead_pointers()'), '>', 200, "$what: beside dead line pointers");
	my $other = $node->background_psql('postgres', on_error_stop => 0);
	$other->query_until(qr/begun/, "\\echo begun\n$between{$what};\n\\echo done\n");
	value("SELECT count(jobq.enqueue('waits')) FROM generate_series(1, 10)") if $what eq 'VACUUM';
	$cursor->quit;
	$other->query_until(qr/done/, '');
	$other->quit;
	value("SELECT count(jobq.enqueue('waits')) FROM generate_series(1, 700)");	# in the space of removed rows, if there is any
	cleaned($what);
}

# --- terminate at the wait

$cursor = cursor_beside_cancelled(300);
my $killer = session($node, 'SELECT 1');
$killer->query_until(qr/started/, "\\echo started\nSELECT 'ended', pg_terminate_backend(pid, 60000) FROM waiting_for_pin();\n");
value('SELECT jobq.compact()');
$killer->query_until(qr/ended\|t/, '');
$killer->quit;
cmp_ok(value('SELECT dead_pointers()'), '>', 200, 'terminate: line pointers stay');
is(errors_of($node, 'postgres', "SET lock_timeout = '20s'; BEGIN; LOCK TABLE jobq.queue IN SHARE UPDATE EXCLUSIVE MODE; COMMIT"),
	'00000', 'terminate: no lock is left');
$cursor->quit;
cleaned('terminate');

# --- kill -9 at the wait beside a prepared transaction: no lock stays on the standby

value("ALTER SYSTEM SET jobq.compact_beyond_horizon = 'on'; SELECT pg_reload_conf(); SELECT jobq.reload()");	# auto removes nothing then
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('steps_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
value("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'held'");
my $locker = session($node, 'BEGIN; LOCK TABLE jobq.queue IN SHARE UPDATE EXCLUSIVE MODE');	# no run gets the table
cancelled_jobs(300);
value('SELECT jobq.compact()');
$cursor = index_cursor();
$locker->quit;
$killer = session($node, 'SELECT 1');
my $asker = session($node, 'SELECT 1');
$asker->query_until(qr/started/, "\\echo started\nSELECT jobq.compact();\n");
$killer->query("SELECT pid FROM waiting_for_pin()");
value('SELECT pg_current_xact_id()');	# its commit writes all WAL before it
$node->wait_for_catchup($standby);
# a wait lasts 200 ms at most: the process that is killed is stopped at one
my $pid;
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$pid = $killer->query('SELECT pid FROM waiting_for_pin()');
	kill 'STOP', $pid;
	last if value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND backend_type = 'jobq maintenance' AND wait_event IN ('BufferPin', 'BufferCleanup')") == 1;
	kill 'CONT', $pid;
}
my $offset = -s $node->logfile;
kill 'KILL', $pid;
$node->wait_for_log(qr/reinitializing.*database system is ready to accept connections/s, $offset);
$_->{run}->kill_kill foreach $killer, $asker, $cursor;
wait_dispatcher($node, 'postgres', 'kill: the dispatcher runs again');
value("SELECT count(jobq.enqueue('waits')) FROM generate_series(1, 10)");
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND relation = 'jobq.queue'::regclass"
	  . " AND mode = 'AccessExclusiveLock'"), 0, 'kill: no lock of the table on the standby');
is($standby->safe_psql('postgres', "SET lock_timeout = '20s'; SELECT count(*) > 0 FROM jobq.queue"), 't', 'kill: which can be read there');
value('SELECT jobq.compact()');
is(value('SELECT dead_pointers()'), 0, 'kill: a later run frees the line pointers');
sound($node, 'kill');
$node->wait_for_catchup($standby);
sound($node, 'kill, on the standby', $standby);
value("ROLLBACK PREPARED 'held'");

unlike(slurp_file($node->logfile), qr/jobq \w+ (ERROR|PANIC):/, 'no errors of our own');
$standby->stop;
$node->stop;
done_testing();
