# A primary with jobs and standbys, for tests of compaction: no session on a
# standby may lose a job silently.
package StandbyTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use Patience;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

our @EXPORT = qw($every_job $takes_snapshot $rows_removed jobq_primary start_with_paused_type hold_horizon standby_of connect_standby disconnect_standby
  session reader_with_xmin answer work_off compacts_all_the_time caught_up dumped set_beyond wal_position advance_to sound no_own_errors);

our $every_job = 'SELECT (SELECT count(*) FROM jobq.queue) + (SELECT count(*) FROM ran)';	# of jobq_primary
our $takes_snapshot = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT n FROM unrelated';
our $rows_removed = qr/swept, [1-9]\d* dead rows removed/;	# in the primary's log

my $backups = 0;

# Starts a primary.  Each job's number is in jobq.queue or, once it has run, in public.ran: in
# exactly one of both in every snapshot.
sub jobq_primary
{
	my ($name, @settings) = @_;
	my $node = jobq_server($name, 'autovacuum = off', 'fsync = off', 'log_min_messages = debug1', "jobq.compact_threshold = '1MB'",
		'max_connections = 40', 'wal_keep_size = 1GB', 'max_standby_streaming_delay = 0', 'max_standby_archive_delay = 0', 'wal_receiver_status_interval = 1',
		@settings);

	$node->start;
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION jobq;
CREATE EXTENSION amcheck;
CREATE TABLE ran (n int);
CREATE TABLE unrelated AS SELECT 1 AS n;
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.ran VALUES ((p->>'n')::int) $$;
SELECT jobq.create_job_type('note', 'note(jsonb)', keep_completed => '0');
SQL
	wait_dispatcher($node, 'postgres', 'the dispatcher runs');
	return $node;
}

# Starts a server with a paused type; subtransactions(n) gives a transaction
# n subtransactions with xids.
sub start_with_paused_type
{
	my ($node) = @_;

	$node->start;
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION jobq;
CREATE EXTENSION amcheck;
CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('waits', 'nothing(jsonb)');
SELECT jobq.pause_job_type('waits');
CREATE TABLE other (n int);
CREATE FUNCTION subtransactions(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. n LOOP
    BEGIN
      INSERT INTO public.other VALUES (i);
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
  END LOOP;
END $$;
SQL
	return wait_dispatcher($node, 'postgres', 'the dispatcher runs');
}

# Prepares a transaction that holds back the server's horizon, and each standby's
# snapshots, but reads nothing.
sub hold_horizon
{
	my ($node) = @_;

	return $node->safe_psql('postgres', "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'held'");
}

sub set_beyond
{
	my ($node, $value) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET jobq.compact_beyond_horizon = $value");
	$node->reload;
	return $node->safe_psql('postgres', 'SELECT jobq.reload()');
}

# Starts a standby, fed as in %$how; else by a restore_command among the settings.
sub standby_of
{
	my ($node, $name, $how, @settings) = @_;
	my $backup = 'backup' . ++$backups;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$node->backup($backup);
	$standby->init_from_backup($node, $backup, %$how);
	$standby->set_standby_mode unless $how->{has_streaming};
	$standby->append_conf('postgresql.conf', join("\n", @settings, ''));
	$standby->start;
	return $standby;
}

# Disconnects the standby, so that the primary does not know it any more.
sub disconnect_standby
{
	my ($node, $standby) = @_;

	$standby->safe_psql('postgres', "ALTER SYSTEM SET primary_conninfo = ''");
	$standby->reload;
	return wait_for_sql($node, 'SELECT count(*) = 0 FROM pg_stat_replication', 'the standby is disconnected');
}

sub connect_standby
{
	my ($standby) = @_;

	$standby->safe_psql('postgres', 'ALTER SYSTEM RESET primary_conninfo');
	return $standby->reload;
}

sub session
{
	my ($node, $sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query($sql);
	return $session;
}

# Returns a session of a standby with the standby's only snapshot, and its xmin.
sub reader_with_xmin
{
	my ($standby) = @_;
	my $reader = session($standby, $takes_snapshot);

	return ($reader, $standby->safe_psql('postgres',
		"SELECT min(backend_xmin::text::bigint) FROM pg_stat_activity WHERE state = 'idle in transaction'"));
}

# Returns a statement's result and SQLSTATE; 'terminated' when the server has ended the session.
sub answer
{
	my ($session, $sql) = @_;
	my $result = eval { $session->query("$sql;\n\\echo :SQLSTATE") };

	return 'terminated' unless defined $result && $result =~ /\d/;
	$result =~ s/\n/ /g;
	return $result;
}

# Enqueues that many jobs, calls $look while they wait, lets them run and removes their rows.
sub work_off
{
	my ($node, $n, $look) = @_;

	$node->safe_psql('postgres', "SELECT jobq.pause_job_type('note')");
	$node->safe_psql('postgres', "SELECT count(jobq.enqueue('note', jsonb_build_object('n', i, 'text', repeat(md5(i::text), 8))))"
		  . " FROM generate_series(1, $n) i");
	my @looked = $look->();
	$node->safe_psql('postgres', "SELECT jobq.resume_job_type('note')");
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', "$n jobs run");
	$node->safe_psql('postgres', 'SELECT jobq.compact()') foreach 1 .. 2;
	return wantarray ? @looked : $looked[0];
}

# Starts a process that compacts until it gets a TERM and is finished.
sub compacts_all_the_time
{
	my ($node) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/compact.sql';

	append_to_file($file, "SELECT jobq.compact();\n");
	return IPC::Run::start([ 'pgbench', '--no-vacuum', '--time=600', "--file=$file", '--host', $node->host,
			'--port', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err);
}

sub wal_position { return $_[0]->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()'); }

sub caught_up
{
	my ($node, $standby) = @_;
	my $lsn = wal_position($node);

	return wait_for_sql($standby, "SELECT pg_last_wal_replay_lsn() >= '$lsn'", 'the standby has replayed it');
}

# Dumps a server and restores the dump to a database of $into; returns its counts, or 'failed'.
sub dumped
{
	my ($node, $into, $db, @options) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$db.sql";
	my $rc = system_log('pg_dump', '--host', $node->host, '--port', $node->port, "--file=$file", @options, 'postgres');

	return 'failed' if $rc != 0;
	$into->safe_psql('postgres', "CREATE DATABASE $db");
	$into->command_ok([ 'psql', '--no-psqlrc', '--quiet', '--set=ON_ERROR_STOP=1', '--output=/dev/null', "--file=$file", $db ],
		"$db: is restored");
	return $into->safe_psql($db, "SELECT count(*), count(DISTINCT n) FROM"
		  . " (SELECT (payload->>'n')::int FROM jobq.queue UNION ALL SELECT n FROM ran) j(n)");
}

# Freezes all rows, then sets the server's next xid and creates its page of the commit log.
sub advance_to
{
	my ($node, $xid) = @_;
	my $segment = sprintf '%s/pg_xact/%04X', $node->data_dir, $xid / (32 * 8192 * 4);

	$node->safe_psql($_, 'VACUUM FREEZE') foreach qw(template0 template1 postgres);
	$node->stop;
	append_to_file($segment, "\0" x (32 * 8192)) unless -e $segment;
	command_ok([ 'pg_resetwal', "--next-transaction-id=$xid", '--pgdata=' . $node->data_dir ], "the next xid is $xid");
	$node->start;
	return wait_dispatcher($node, 'postgres', "at $xid the dispatcher runs");
}

# Checks the queue with amcheck; with $of, a standby, its indexes there.
sub sound
{
	my ($node, $what, $of) = @_;

	cmp_ok(($of // $node)->safe_psql('postgres', 'SELECT count(*) FROM (SELECT bt_index_check(indexrelid, true) FROM pg_index i'
			  . " JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = 'jobq.queue'::regclass AND indisready"
			  . " AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree')) i"), '>=', 5, "!$what: each index has every row");
	return is($node->safe_psql('postgres', "SELECT count(*) FROM verify_heapam('jobq.queue')"), 0, "!$what: the table is sound");
}

sub no_own_errors
{
	my ($node) = @_;

	return unlike(slurp_file($node->logfile), qr/jobq \w+ (ERROR|FATAL|PANIC):  (?!terminating)/, 'no errors of our own');
}

1;
