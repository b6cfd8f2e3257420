# A primary with jobs, standbys of it, and the question of each scene: does a session on a standby lose a job silently?
package StandbyTest;

use strict;
use warnings;

use Exporter 'import';
use Patience;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

our @EXPORT = qw(jobq_primary hold_horizon standby_of session answer work_off caught_up dumped set_beyond wal_position);

my $backups = 0;

# Each job's number is in jobq.queue or, once it has run, in public.ran: one of both in every snapshot.
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

# What keeps back the server's horizon, and each standby's snapshots, but reads nothing.
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

# Fed as %$how says; else by a restore_command among the settings.
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

sub session
{
	my ($node, $sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query($sql);
	return $session;
}

# A statement's result and SQLSTATE; 'terminated' when the server has ended the session.
sub answer
{
	my ($session, $sql) = @_;
	my $result = eval { $session->query("$sql;\n\\echo :SQLSTATE") };

	return 'terminated' unless defined $result && $result =~ /\d/;
	$result =~ s/\n/ /g;
	return $result;
}

# Enqueues that many jobs, calls what looks at them while they wait, lets them run and removes their rows.
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

sub wal_position { return $_[0]->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()'); }

sub caught_up
{
	my ($node, $standby) = @_;
	my $lsn = wal_position($node);

	return wait_for_sql($standby, "SELECT pg_last_wal_replay_lsn() >= '$lsn'", 'the standby has replayed it');
}

# Dumps a server: 'failed', or "queue and ran" of what the dump restores to in that database of $into.
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

1;
