# Where and when schedules tick: on a primary, once a second, through locks, crashes, DDL and
# prepared transactions; not on a standby, and in a copy of the database only after jobq.adopt().

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('places', 'jobq.max_sql_workers = 2', 'fsync = off', 'restart_after_crash = on', 'hot_standby_feedback = on');

sub define_types
{
	my ($server, $db) = @_;

	return $server->safe_psql($db, <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('work', 'work(jsonb)', options => '{"events": "all"}');
CREATE VIEW ticks AS
  SELECT j.metadata->>'schedule' AS name, (j.metadata->>'tick')::timestamptz AS tick FROM jobq.jobs j WHERE j.metadata ? 'tick';
END
}

# Creates a schedule that ticks each second and catches up all ticks.
sub schedule
{
	my ($server, $db, $name) = @_;

	return $server->safe_psql($db,
		"SELECT jobq.schedule('$name', 'every 1s', 'work', catch_up => 'all', catch_up_limit => 10000, overlap => 'allow')");
}

sub wait_in
{
	my ($server, $db, $query, $what) = @_;

	return ok($server->poll_query_until($db, $query), $what);
}

# Waits until the schedule has decided so many more ticks.
sub wait_ticks
{
	my ($server, $db, $name, $n, $what) = @_;
	my $since = $server->safe_psql($db, "SELECT ticks_after FROM jobq.schedules WHERE name = '$name'");

	return wait_in($server, $db, "SELECT ticks_after >= timestamptz '$since' + $n * interval '1 s' FROM jobq.schedules WHERE name = '$name'",
		$what);
}

# Each tick since the creation of the schedule has one job; runs counts them.
sub no_tick_lost
{
	my ($server, $db, $name, $what) = @_;

	return is($server->safe_psql($db, <<"END"), 't|t|t', "$what: each tick has one job");
SELECT count(*) = count(DISTINCT t.tick), count(*) = extract(epoch FROM s.ticks_after - date_trunc('second', s.created_at))::int,
       count(*) = s.runs AND s.skipped = 0
  FROM ticks t, jobq.schedules s WHERE t.name = s.name AND s.name = '$name' GROUP BY s.id
END
}

sub count_ticks { my ($server, $db) = @_; return $server->safe_psql($db, 'SELECT count(*) FROM ticks'); }

$node->start;
define_types($node, 'postgres');
schedule($node, 'postgres', 'beat');
wait_ticks($node, 'postgres', 'beat', 2, 'a schedule ticks');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

# ---------- a lock of the table ----------

my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; LOCK TABLE jobq.schedules IN ACCESS EXCLUSIVE MODE');
my $locked = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
my $job = $node->safe_psql('postgres', q{SELECT jobq.enqueue('work')});
wait_status($node, 'postgres', $job, 'completed', 'other jobs run while a session holds jobq.schedules');
wait_for_sql($node, "SELECT clock_timestamp() > timestamptz '$locked' + interval '3 s'", 'three seconds later');
is($node->safe_psql('postgres', "SELECT count(*) FROM ticks WHERE tick > timestamptz '$locked' + interval '1 s'"), 0, 'ticks wait');
my ($conductor) = jobq_pids($node, 'conductor');
$session->query_safe('COMMIT');
$session->quit;
wait_ticks($node, 'postgres', 'beat', 4, 'they come after its end');
no_tick_lost($node, 'postgres', 'beat', 'a locked table');

# ---------- jobq.reload(), a crash ----------

$node->safe_psql('postgres', 'SELECT jobq.reload()');
wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $conductor FROM pg_stat_activity WHERE backend_type = 'jobq conductor'",
	'jobq.reload() replaces the conductor');
($conductor) = jobq_pids($node, 'conductor');
kill 'KILL', $conductor;
wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $conductor FROM pg_stat_activity WHERE backend_type = 'jobq conductor'",
	'so does a crash');
wait_ticks($node, 'postgres', 'beat', 2, 'which ticks');
no_tick_lost($node, 'postgres', 'beat', 'reload and crash');

# ---------- prepared transactions ----------

$node->safe_psql('postgres', <<'END');
BEGIN;
SELECT jobq.schedule('prepared', 'every 1s', 'work', catch_up => 'all', overlap => 'allow');
PREPARE TRANSACTION 'creates';
END
wait_ticks($node, 'postgres', 'beat', 2, 'others tick while a transaction is prepared');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ticks WHERE name = 'prepared'}), 0, 'its schedule does not');
$node->safe_psql('postgres', q{COMMIT PREPARED 'creates'});
wait_ticks($node, 'postgres', 'prepared', 3, 'after COMMIT PREPARED it does');
$node->safe_psql('postgres', q{BEGIN; SELECT jobq.unschedule('prepared'); PREPARE TRANSACTION 'drops'});
my $held = $node->safe_psql('postgres', q{SELECT ticks_after FROM jobq.schedules WHERE name = 'prepared'});
wait_ticks($node, 'postgres', 'beat', 2, 'others tick while a row is locked');
is($node->safe_psql('postgres', q{SELECT ticks_after FROM jobq.schedules WHERE name = 'prepared'}), $held, 'the locked one waits');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'drops'});
wait_ticks($node, 'postgres', 'prepared', 3, 'and goes on after ROLLBACK PREPARED');
no_tick_lost($node, 'postgres', $_, 'prepared transactions') foreach qw(prepared beat);
$node->safe_psql('postgres', q{SELECT jobq.unschedule('prepared')});

# ---------- copies ----------

$node->safe_psql('postgres', 'CREATE DATABASE source');
define_types($node, 'source');
schedule($node, 'source', 'beat');
wait_ticks($node, 'source', 'beat', 2, 'another database ticks');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE source');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('source') ], 'a dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-qXv', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-f', $dump, '-d', $node->connstr('restored') ], 'is restored');
my %state = map { $_ => $node->safe_psql($_, 'SELECT runs, last_tick, ticks_after FROM jobq.schedules') } qw(copy restored);
my %count = map { $_ => count_ticks($node, $_) } qw(copy restored);

wait_ticks($node, 'source', 'beat', 3, 'the original goes on');
foreach my $db (qw(copy restored))
{
	wait_in($node, $db, q{SELECT jobq.health()->'checks'->'identity'->>'status' <> 'healthy'}, "$db is known as a copy");
	is(count_ticks($node, $db), $count{$db}, "$db does not tick");
	is($node->safe_psql($db, 'SELECT runs, last_tick, ticks_after FROM jobq.schedules'), $state{$db}, "$db keeps its state");
	my ($runs, $last) = split /\|/, $state{$db};
	cmp_ok($runs, '>=', 2, "$db has runs");
	my $adopted = $node->safe_psql($db, 'SELECT jobq.adopt(), clock_timestamp()') =~ s/^\|//r;
	wait_ticks($node, $db, 'beat', 2, "$db ticks after adopt()");
	is($node->safe_psql($db, "SELECT count(*) FROM ticks WHERE tick > '$last' AND tick <= timestamptz '$adopted' - interval '1 s'"), 0,
		"$db: ticks before that are gone");
	is($node->safe_psql($db, 'SELECT count(*) = count(DISTINCT tick), count(*) = max(s.runs), max(s.skipped) = 0 FROM ticks, jobq.schedules s'),
		't|t|t', "$db: each later tick has one job, runs go on");
	is($node->safe_psql($db, "SELECT (j.metadata->>'last_tick')::timestamptz FROM jobq.jobs j"
			. " WHERE (j.metadata->>'tick')::timestamptz > '$last' ORDER BY j.metadata->>'tick' LIMIT 1"), $last,
		"$db: the first of them knows the last tick");
}
no_tick_lost($node, 'source', 'beat', 'the original');

# ---------- DROP EXTENSION ----------

my $seconds = seconds_of { $node->safe_psql('source', 'DROP EXTENSION jobq CASCADE') };
cmp_ok($seconds, '<', 60, 'DROP EXTENSION does not wait for ticks');
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND datname = 'source'},
	'the conductor leaves');
$node->safe_psql('source', 'DROP FUNCTION work(jsonb)');
define_types($node, 'source');
schedule($node, 'source', 'beat');
wait_ticks($node, 'source', 'beat', 2, 'a new extension ticks');
no_tick_lost($node, 'source', 'beat', 'a new extension');
$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(source copy restored);

# ---------- promotion ----------

no_tick_lost($node, 'postgres', 'beat', 'to the end of the primary');
$node->wait_for_catchup($standby, 'replay');
is(join(' ', map { jobq_pids($standby, $_) } qw(conductor dispatcher)), '', 'nothing ticks on a standby');
cmp_ok(count_ticks($standby, 'postgres'), '>', 10, 'which has the ticks of its primary');
$node->stop('immediate');
$standby->promote;
wait_ticks($standby, 'postgres', 'beat', 3, 'promotion starts the conductor');
no_tick_lost($standby, 'postgres', 'beat', 'promotion');
$standby->stop;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP:|could not take its turn/, 'no process failed') foreach $node, $standby;

# ---------- no free worker ----------

# Launcher, dispatcher and one more.
my $small = jobq_server('small', 'max_worker_processes = 3', 'max_logical_replication_workers = 0', 'jobq.max_sql_workers = 1');
$small->start;
define_types($small, 'postgres');
$small->safe_psql('postgres', <<'END');
CREATE FUNCTION held(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock(1)';
SELECT jobq.create_job_type('held', 'held(jsonb)');
SELECT jobq.pause_job_type('work');
END
my $gate = $small->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $hog = $small->safe_psql('postgres', q{SELECT jobq.enqueue('held')});
wait_status($small, 'postgres', $hog, 'running', 'a handler has the last worker');
schedule($small, 'postgres', 'beat');
wait_for_sql($small, q{SELECT jobq.health()->'checks'->'schedules'->>'status' = 'degraded'}, 'health() is degraded without a conductor');
like($small->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'schedules'->>'message'}), qr/background worker/, 'and says why');
wait_for_sql($small, q{SELECT next_tick < clock_timestamp() - interval '3 s' FROM jobq.schedules}, 'ticks are late');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_status($small, 'postgres', $hog, 'completed', 'the handler ends');
$small->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'});
wait_ticks($small, 'postgres', 'beat', 5, 'the conductor takes the free worker');
no_tick_lost($small, 'postgres', 'beat', 'a lack of workers');
wait_for_sql($small, q{SELECT jobq.health()->'checks'->'schedules'->>'status' = 'healthy'}, 'health() is content');
$gate->quit;
$small->stop;
done_testing();
