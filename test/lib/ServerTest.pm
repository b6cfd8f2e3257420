# A server with jobq for the tests of its processes: running processes,
# waits for conditions, durations.
package ServerTest;

use strict;
use warnings;

use Digest::SHA ();
use Exporter 'import';
use File::Basename qw(dirname);
use File::Find ();
use Patience;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(jobq_server wait_for_sql wait_for_text wait_dispatcher wait_partitions restart_dispatcher dispatcher jobq_pids freeze measure wait_status seconds_of
  sleeper_types sqlstate_is errors_of seed setseed state_function);

# Returns a server that is not started and has no extension.
sub jobq_server
{
	my ($name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 1);
	# A slow machine must not make the queue unhealthy.
	$node->append_conf('postgresql.conf',
		join("\n", "shared_preload_libraries = 'jobq'", 'max_worker_processes = 20', "jobq.health_latency = '10s'",
			'max_prepared_transactions = 5', "log_line_prefix = '%m [%p] %b '", @settings, ''));
	return $node;
}

# Polls until the query of one boolean is true, in database postgres.
sub wait_for_sql
{
	my ($node, $query, $what) = @_;

	return ok($node->poll_query_until('postgres', $query), $what // $query);
}

# Waits until the file exists and matches the pattern; returns its first group, or 1.
sub wait_for_text
{
	my ($file, $pattern) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $1 // 1 if -e $file && slurp_file($file) =~ $pattern;
		select undef, undef, undef, 0.1;
	}
	return 0;
}

# Stops a process of jobq at rest: in the middle of its work it may hold locks that others need.
sub freeze
{
	my ($node, $pid) = @_;
	my $rests = "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Extension'";

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$node->poll_query_until('postgres', $rests) or last;
		kill 'STOP', $pid;
		select undef, undef, undef, 0.001 until slurp_file("/proc/$pid/stat") =~ /\) T/;
		return if $node->safe_psql('postgres', $rests) eq 't';
		kill 'CONT', $pid;
	}
	die "process $pid is never at rest";
}

sub jobq_pids
{
	my ($node, $type, $db) = @_;
	my $where = defined $db ? " AND datname = '$db'" : '';

	return split /\n/, $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq $type'$where ORDER BY backend_start");
}

sub dispatcher
{
	my ($node, $db) = @_;

	return (jobq_pids($node, 'dispatcher', $db))[0];
}

# Waits until the database has one dispatcher, other than that pid; returns its pid.
sub wait_dispatcher
{
	my ($node, $db, $what, $former) = @_;

	wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> " . ($former // 0) .
		  " FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND datname = '$db'", $what);
	return dispatcher($node, $db);
}

# Waits until maintenance has made the partitions of database postgres and has left: meanwhile it
# holds locks and commits.
sub wait_partitions
{
	my ($node) = @_;

	return wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())
	  AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq maintenance')}, 'maintenance has made its partitions');
}

# Ends the dispatcher of database postgres, and returns when the next one has made two turns.  That
# one has all tasks of maintenance done within a second.
sub restart_dispatcher
{
	my ($node) = @_;
	my $pid = dispatcher($node, 'postgres');

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_dispatcher($node, 'postgres', 'another dispatcher', $pid);
	$node->safe_psql('postgres', 'SELECT jobq.health()') for 1 .. 2;
	return;
}

# Waits for two runs of maintenance: the first may have begun before.
sub measure
{
	my ($node) = @_;

	foreach (1 .. 2)
	{
		my $before = $node->safe_psql('postgres', q{SELECT coalesce(max(ts), '-infinity') FROM jobq.disk_log});

		$node->safe_psql('postgres', 'SELECT jobq.reload()');
		$node->poll_query_until('postgres', "SELECT coalesce(max(ts) > '$before', false) FROM jobq.disk_log") or die 'no measurement';
		$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq maintenance')") or die 'it stays';
	}
	return;
}

sub wait_status
{
	my ($node, $db, $id, $status, $what) = @_;

	return ok($node->poll_query_until($db, "SELECT status = '$status' FROM jobq.jobs WHERE id = '$id'"), $what // "job is $status");
}

sub seconds_of(&)
{
	my ($what) = @_;
	my $began = Time::HiRes::time();

	$what->();
	return Time::HiRes::time() - $began;
}

# The SQLSTATE of a statement's error, '00000' when it has none.
sub errors_of
{
	my ($node, $db, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, $sql, on_error_stop => 1, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);

	return $rc == 0 ? '00000' : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}

sub sqlstate_is
{
	my ($node, $db, $sql, $state, $what) = @_;

	return is(errors_of($node, $db, $sql), $state, $what);
}

# Creates the function state_of: runs a command in the transaction; 'done' or its SQLSTATE.
sub state_function
{
	my ($node) = @_;

	$node->safe_psql('postgres', <<'END');
CREATE FUNCTION state_of(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE command;
  RETURN 'done';
EXCEPTION WHEN OTHERS THEN
  RETURN sqlstate;
END $$;
END
	return;
}

# Returns a number that the sources of jobq and of its tests determine.
sub seed_of_tree
{
	my $top = dirname(__FILE__) . '/../..';
	my $sha = Digest::SHA->new(1);
	my @files;

	File::Find::find({ no_chdir => 1, wanted => sub { push @files, $_ if /\.(c|h|sql|pl|pm)$/ } }, "$top/src", "$top/test/tap", "$top/test/lib");
	$sha->addfile($_) foreach sort @files;
	return hex(substr $sha->hexdigest, 0, 7);
}

# Begins the random numbers of a test, prints and returns their seed: that of JOBQ_SEED, a new one
# if it is "random", else that of the tree.  The same sources have the same test.
sub seed
{
	my $seed = $ENV{JOBQ_SEED} || seed_of_tree();    # .ci/run passes an empty one

	$seed = int(rand(2**28)) if $seed eq 'random';
	srand($seed);
	diag("JOBQ_SEED=$seed");
	return $seed;
}

# A statement that begins the random numbers of the session of that number.
sub setseed
{
	my ($seed, $session) = @_;

	return sprintf 'SELECT setseed(%.6f)', ($seed + 7919 * $session) % 1_000_003 / 1_000_003;
}

# Creates job types with slow handlers: sleeper obeys a cancel, stubborn does not, tool is a
# program.
sub sleeper_types
{
	my ($node, $db) = @_;

	$node->safe_psql($db, <<'END');
CREATE TABLE done (what text);
CREATE FUNCTION sleeper(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(coalesce((p->>'seconds')::float8, 0));
  INSERT INTO public.done VALUES (p->>'what');
END $$;
CREATE FUNCTION stubborn(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    BEGIN
      PERFORM pg_sleep(600);
    EXCEPTION WHEN query_canceled THEN NULL;
    END;
  END LOOP;
END $$;
SELECT jobq.create_job_type('sleeper', 'sleeper(jsonb)');
SELECT jobq.create_job_type('stubborn', 'stubborn(jsonb)');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sleep', '{seconds}'], options => '{"output": "none"}');
END
	return;
}

1;
