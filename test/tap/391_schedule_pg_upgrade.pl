# pg_upgrade keeps schedules, their state and their owners; the new server continues by itself, as
# after a standstill: it is the same database, and needs no jobq.adopt().

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my @settings = ('jobq.max_sql_workers = 2', 'fsync = off');
my $old = jobq_server('before', @settings);
my $new = jobq_server('after', @settings);

# Starts a server with other libraries: without jobq no schedule ticks.
sub start_with
{
	my ($node, $libraries) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	return $node->start;
}

sub wait_in_app
{
	my ($node, $query, $what) = @_;

	return ok($node->poll_query_until('app', $query), $what);
}

# ---------- the old server ----------

$old->start;
# pg_upgrade keeps the oids of roles: here they are none that a new server would give
$old->safe_psql('postgres', <<'END');
SELECT format('CREATE ROLE gap%s', n) FROM generate_series(1, 5) n \gexec
CREATE ROLE reporter;
DROP ROLE gap1, gap2, gap3, gap4, gap5;
CREATE DATABASE app;
END
$old->safe_psql('app', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type('work', 'work(jsonb)', options => '{"min_interval": "1 s", "events": "all"}');
CREATE VIEW ticks AS
  SELECT j.metadata->>'schedule' AS name, (j.metadata->>'tick')::timestamptz AS tick
    FROM jobq.jobs j WHERE j.metadata ? 'tick';
SELECT jobq.grant_access('reporter', 'enqueue', job_types => '{work}');
SELECT jobq.schedule('all', 'every 1s', 'work', catch_up => 'all', catch_up_limit => 10000, overlap => 'allow');
SELECT jobq.schedule('one', 'every 1s', 'work', overlap => 'allow');
SELECT jobq.schedule('rests', 'after 1s', 'work');
SELECT jobq.schedule('yearly', '@yearly', 'work', timezone => 'Europe/Berlin', tenant => 'acme');
SELECT jobq.run_schedule('yearly', tenant => 'acme');
BEGIN;  -- no tick between the two
SELECT jobq.schedule('paused', 'every 1s', 'work');
SELECT jobq.pause_schedule('paused', 'for the upgrade');
COMMIT;
SET ROLE reporter;
SELECT jobq.schedule('of a role', 'every 1s', 'work', catch_up => 'all', catch_up_limit => 10000, overlap => 'allow');
END
wait_in_app($old, "SELECT count(*) = 4 FROM jobq.schedules WHERE name IN ('all', 'one', 'rests', 'of a role') AND runs >= 2", 'schedules tick');
$old->stop;

my $rows = 'SELECT s FROM jobq.schedules s ORDER BY s.id';
my $jobs = 'SELECT count(*) FROM ticks';
start_with($old, '');
my $before = $old->safe_psql('app', $rows);
my $count = $old->safe_psql('app', $jobs);
my $rested = $old->safe_psql('app', q{SELECT last_tick FROM jobq.schedules WHERE name = 'rests'});
$old->stop;
$old->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq'");

# ---------- pg_upgrade ----------

chdir $PostgreSQL::Test::Utils::tmp_check or BAIL_OUT("chdir: $!");
my $bin = $old->config_data('--bindir');
command_ok(
	[
		'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin, '-s', $new->host,
		'-p', $old->port, '-P', $new->port
	],
	'pg_upgrade, with jobq in both servers');

start_with($new, '');
is($new->safe_psql('app', $rows), $before, 'all rows of schedules are as they were');
is($new->safe_psql('app', $jobs), $count, 'nothing has ticked meanwhile');
is($new->safe_psql('app', q{SELECT owner, owner_oid = 'reporter'::regrole FROM jobq.schedules WHERE name = 'of a role'}), 'reporter|t',
	'the role owns its schedule');
my $yearly = q{SELECT runs, last_tick, next_tick FROM jobq.schedules WHERE name = 'yearly'};
my $year = $new->safe_psql('app', $yearly);

# ---------- the new server ----------

# a standstill of more than 5 seconds: ticks before it are missed
my $after = "(SELECT ticks_after FROM jobq.schedules WHERE name = 'one')";
wait_in_app($new, "SELECT clock_timestamp() > $after + interval '8 s'", 'seconds later');
$new->stop;

start_with($new, 'jobq');
my $started = $new->safe_psql('app', 'SELECT clock_timestamp()');
wait_in_app($new, "SELECT bool_and(last_tick > timestamptz '$started' + interval '2 s') FROM jobq.schedules WHERE name IN ('all', 'one', 'rests', 'of a role')",
	'schedules tick again without jobq.adopt()');
wait_in_app($new, q{SELECT jobq.health()->'checks'->'identity'->>'status' = 'healthy'}, 'it is the same database');
foreach my $name ('all', 'of a role')
{
	is($new->safe_psql('app', <<"END"), 't|t|t', "$name: each tick since its creation has one job");
SELECT count(*) = count(DISTINCT t.tick), count(*) = extract(epoch FROM s.ticks_after - date_trunc('second', s.created_at))::int,
       count(*) = s.runs AND s.skipped = 0
  FROM ticks t, jobq.schedules s WHERE t.name = s.name AND s.name = '$name' GROUP BY s.id
END
}
is($new->safe_psql('app', <<'END'), 't|t|t', 'one: each tick has one job or is skipped');
SELECT count(*) = count(DISTINCT t.tick), s.skipped > 0,
       count(*) + s.skipped = extract(epoch FROM s.ticks_after - date_trunc('second', s.created_at))::int
  FROM ticks t, jobq.schedules s WHERE t.name = s.name AND s.name = 'one' GROUP BY s.id
END
is($new->safe_psql('app', q{SELECT data->>'reason' FROM jobq.events WHERE type = 'tick_skipped' AND data->>'schedule' = 'one'}), 'missed',
	'one: the standstill is one event');
cmp_ok($new->safe_psql('app', "SELECT count(*) FROM ticks WHERE name = 'rests' AND tick > '$rested' AND tick <= '$started'"), '<=', 1,
	'rests: at most one tick for the standstill');
is($new->safe_psql('app', $yearly), $year, 'a later tick stays');
is($new->safe_psql('app', q{SELECT status, reason, runs FROM jobq.schedules WHERE name = 'paused'}), 'paused|for the upgrade|0', 'a pause stays');
is($new->safe_psql('app', q{SELECT DISTINCT enqueued_by = 'reporter'::regrole::oid || ':reporter' FROM jobq.history
  WHERE metadata->>'schedule' = 'of a role'}), 't', 'ticks have the identity of the owner');
$new->safe_psql('app', q{SELECT jobq.revoke_access('reporter', 'enqueue')});
wait_in_app($new, q{SELECT status = 'paused' AND paused_by_jobq FROM jobq.schedules WHERE name = 'of a role'}, 'and its rights');
$new->stop;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP:|could not take its turn/, 'no process failed') foreach $old, $new;
done_testing();
