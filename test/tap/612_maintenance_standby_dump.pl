# Dumps of a standby while jobs run on the primary and VACUUM removes their rows: each has every job
# once, in the queue or, when it has run, in the table that it writes.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $jobs = 3000;
my $node = jobq_server('primary', 'autovacuum = off', 'fsync = off', 'wal_keep_size = 1GB', 'wal_receiver_status_interval = 1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (n int);
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.ran VALUES ((p->>'n')::int) $$;
SELECT jobq.create_job_type('note', 'note(jsonb)', keep_completed => '0');
END
# A new partition locks the default one for a moment, on the standby, too: that would end a dump.
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())', 'the partitions of today are there');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''\nhot_standby_feedback = on\nmax_standby_streaming_delay = 0\n");
$standby->start;
wait_for_sql($node, 'SELECT count(backend_xmin) = 1 FROM pg_stat_replication', 'the standby feeds back');

# Dumps the standby and restores the dump on the primary.
sub dumped
{
	my ($db) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$db.sql";

	$standby->command_ok([ 'pg_dump', "--file=$file", 'postgres' ], "$db: is made");
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->command_ok([ 'psql', '--no-psqlrc', '--quiet', '--set=ON_ERROR_STOP=1', '--output=/dev/null', "--file=$file", $db ], "$db: is restored");
	return $node->safe_psql($db, q{SELECT count(*), count(DISTINCT n) FROM (SELECT (payload->>'n')::int FROM jobq.queue UNION ALL SELECT n FROM ran) j(n)});
}

my $vacuum = PostgreSQL::Test::Utils::tempdir() . '/vacuum.sql';
append_to_file($vacuum, "VACUUM jobq.queue;\n");
my $cleaner = IPC::Run::start([ 'pgbench', '--no-vacuum', '--time=600', "--file=$vacuum", '--host', $node->host, '--port', $node->port, 'postgres' ],
	'>', \my $out, '2>', \my $err);
foreach my $i (1 .. 3)
{
	$node->safe_psql('postgres', 'TRUNCATE ran');
	$node->safe_psql('postgres', "SELECT count(jobq.enqueue('note', jsonb_build_object('n', i), delay => i * '1 ms'::interval)) FROM generate_series(1, $jobs) i");
	$node->wait_for_catchup($standby);
	is(dumped("dump$i"), "$jobs|$jobs", "!dump $i has every job once");
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'all have run');
}
$cleaner->signal('TERM');
$cleaner->finish;
$standby->stop;
$node->stop;
done_testing();
