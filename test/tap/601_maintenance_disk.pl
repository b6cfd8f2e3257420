# The disk watch: every level and its effects.  The test moves the limits, so each level
# can be reached on any machine.

use strict;
use warnings;

use JSON::PP ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my @none = map { "jobq.disk_$_ = 100" } qw(warning critical emergency);
my $node = jobq_server('disk', @none, 'log_error_verbosity = verbose');
my $tmp = PostgreSQL::Test::Utils::tempdir();
$ENV{TMPDIR} = -w '/dev/shm' ? '/dev/shm' : $tmp;    # another file system than the data directory's, where there is one
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
$node->safe_psql('postgres', <<'END');
SELECT jobq.alter_job_type('sleeper', options => '{"refuse_on_disk_emergency": true}');
SELECT jobq.create_job_type('other', 'sleeper(jsonb)');
END
my $data = $node->data_dir;

sub disk
{
	return JSON::PP->new->decode($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'disk'}));
}

# Moves a limit, or all back; returns when the data directory has been
# measured again and has that level.
sub wait_level
{
	my ($level, @settings) = @_;
	my $before = $node->safe_psql('postgres', 'SELECT max(ts) FROM jobq.disk_log');
	my $offset = -s $node->logfile;

	$node->safe_psql('postgres', "ALTER SYSTEM SET jobq.disk_$_") foreach @settings;
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL') unless @settings;
	$node->reload;
	wait_for_sql($node, "SELECT level = '$level' FROM jobq.disk_log WHERE path = '$data' AND ts > '$before' ORDER BY ts DESC LIMIT 1",
		"level $level");
	wait_for_sql($node, "SELECT jobq.health()->'checks'->'disk'->>'level' = '$level'", 'which health() knows');
	return $offset;
}

# ---------- readings ----------

wait_for_sql($node, 'SELECT count(*) > 0 FROM jobq.disk_log', 'the disks are measured soon after the start');
is($node->safe_psql('postgres', 'SELECT DISTINCT level FROM jobq.disk_log'), 'ok', 'nothing reaches 100 %');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.disk_log WHERE total_bytes < used_bytes OR used_bytes <= 0'
		  . ' OR abs(percent - 100.0 * used_bytes / total_bytes) > 0.01'), 0, 'percent is used of total');
my (undef, $used, $available) = (split /\s+/, (`df -P -B1 '$data'`)[1])[ 1, 2, 3 ];
cmp_ok(abs($node->safe_psql('postgres', "SELECT used_bytes FROM jobq.disk_log WHERE path = '$data' ORDER BY ts DESC LIMIT 1") - $used),
	'<', 0.05 * ($used + $available), 'as df has it');

mkdir "$tmp/space" or die $!;
$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$tmp/space'");
wait_level('ok');
my (%seen, @expected);
foreach my $path ($data, "$data/pg_wal", "$tmp/space", $ENV{TMPDIR})
{
	push @expected, $path unless $seen{ (stat $path)[0] }++;
}
is_deeply([ split /\n/, $node->safe_psql('postgres', 'SELECT DISTINCT path FROM jobq.disk_log ORDER BY 1') ], [ sort @expected ],
	'each file system once');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT ts) = count(*) / count(DISTINCT path) FROM jobq.disk_log'), 't', 'at the same time');
is_deeply([ sort keys %{ disk() } ], [qw(level percent status)], 'members of the check');
is(disk()->{status}, 'healthy', 'ok is healthy');

# ---------- levels ----------

# without the other task of maintenance that drops partitions
my $maintain = $node->safe_psql('postgres', q{SELECT pg_get_functiondef('jobq_internal._maintain'::regproc)});
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION jobq_internal._maintain(drops boolean DEFAULT true, makes boolean DEFAULT true) RETURNS int LANGUAGE sql AS 'SELECT 0'});
# the database has had a job: rows of one without may be those of a restore under way
$node->safe_psql('postgres', <<'END');
SELECT jobq_internal._home_id();
SELECT jobq_internal._ensure_partition(p, '2001-01-01 12:00+00') FROM unnest('{jobq.history,jobq.artifacts,jobq.events,jobq.alerts}'::regclass[]) p;
INSERT INTO jobq.events (ts, job_id, job_type, type, source) VALUES ('2001-01-01 12:00+00', gen_random_uuid(), 'x', 'log', 'client');
END
my $expired = q{SELECT count(*) FROM pg_inherits WHERE inhrelid::regclass::text ~ '2001'};

my $signals = q{SELECT (jobq.health()->'checks'->'signals'->'active')::text};
my $offset = wait_level('warning', 'warning = 0');
like(slurp_file($node->logfile, $offset), qr/LOG: .*the file system of "\Q$data\E" is [\d.]+ % full, level warning after ok/, 'is logged');
is(disk()->{status}, 'healthy', 'and still healthy');
is($node->safe_psql('postgres', $expired), 4, 'partitions past their time stay');
is($node->safe_psql('postgres', $signals), '', 'no signal is there');

$offset = wait_level('critical', 'critical = 0');
like(slurp_file($node->logfile, $offset), qr/WARNING:  53100: .*the file system of "\Q$data\E" .* level critical after warning/, 'is a warning');
is(disk()->{status}, 'degraded', 'degraded');
wait_for_sql($node, qq{SELECT ($signals) = '["disk"]'}, 'signal disk is active');
wait_for_sql($node, "SELECT ($expired) = 0", 'partitions past their time go at once');
$node->safe_psql('postgres', $maintain);
wait_status($node, 'postgres', $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper')}), 'completed', 'jobs are taken');

$offset = wait_level('emergency', 'emergency = 0');
like(slurp_file($node->logfile, $offset), qr/WARNING:  53100: .*level emergency after critical/, 'is a warning, too');
is(disk()->{status}, 'unhealthy', 'unhealthy');
is($node->safe_psql('postgres', q{SELECT jobq.health()->>'status'}), 'unhealthy', 'so is the whole');
sqlstate_is($node, 'postgres', "SELECT $_", '53100', "$_ is refused")
  foreach q{jobq.enqueue('sleeper')}, q{jobq.enqueue_many('sleeper', ARRAY['{}'::jsonb])},
  q{jobq.enqueue_jobs('[{"job_type": "sleeper"}]')};
my (undef, undef, $error) = $node->psql('postgres', q{SELECT jobq.enqueue('sleeper')});
like($error, qr/job type "sleeper" takes no jobs: a disk of the server is [\d.]+ % full/, 'with a message that says why');
sqlstate_is($node, 'postgres', q{SELECT jobq.enqueue('sleeper', priority => 1000)}, '22003', 'errors in arguments are reported first');
wait_status($node, 'postgres', $node->safe_psql('postgres', q{SELECT jobq.enqueue('other')}), 'completed', 'other types are not');

$offset = wait_level('ok');
like(slurp_file($node->logfile, $offset), qr/LOG: .*level ok after emergency/, 'the end of it is logged');
wait_status($node, 'postgres', $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper')}), 'completed', 'jobs are taken again');
$offset = wait_level('ok');
unlike(slurp_file($node->logfile, $offset), qr/file system/, 'no change, no message');

# ---------- the last 1,000 ----------

$node->safe_psql('postgres', <<"END");
INSERT INTO jobq.disk_log SELECT now() - n * interval '1 min', path, 100, 50, 50, 'ok' FROM generate_series(1, 1500) n, (VALUES ('$data'), ('elsewhere')) v(path);
END
wait_level('ok');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.disk_log WHERE path = '$data'"), 1000, '1,000 readings are kept');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.disk_log WHERE path = '$data' AND ts < now() - interval '1000 min'"), 0, 'the last ones');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.disk_log WHERE path = 'elsewhere'"), 1500, 'of each file system for itself');

# ---------- a process that hangs ----------

$node->safe_psql('postgres', <<'END');
CREATE TABLE gate (open boolean);
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.01); END LOOP;
  RETURN NEW;
END $$;
CREATE TRIGGER hold BEFORE INSERT ON jobq.disk_log FOR EACH ROW EXECUTE FUNCTION hold();
END
$node->reload;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance' AND wait_event = 'PgSleep'}, 'one hangs');
my ($hangs) = jobq_pids($node, 'maintenance');
kill 'STOP', $hangs;
my $id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', keep_completed => '1000 days')});
wait_status($node, 'postgres', $id, 'completed', 'jobs run');
$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.disk_warning = 0');
$node->reload;
$node->safe_psql('postgres', 'SELECT jobq.reload()');
$node->safe_psql('postgres', 'SELECT jobq.health()');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'disk'->>'level'}), 'ok', 'health() does not wait for it');
is_deeply([ jobq_pids($node, 'maintenance') ], [$hangs], 'no other one comes');
kill 'CONT', $hangs;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($hangs); INSERT INTO gate VALUES (true)");
wait_for_sql($node, "SELECT level = 'warning' FROM jobq.disk_log WHERE path = '$data' ORDER BY ts DESC LIMIT 1", 'when it is gone, another one does');
unlike(slurp_file($node->logfile), qr/PANIC|exit code ([2-9]|1\d)/, 'nothing worse has happened');

# ---------- settings ----------

sqlstate_is($node, 'postgres', 'SET jobq.disk_warning = 101', '22023', 'more than 100 % is no limit');
sqlstate_is($node, 'postgres', 'SET jobq.disk_emergency = -1', '22023', 'nor is less than nothing');

$node->stop;
done_testing();
