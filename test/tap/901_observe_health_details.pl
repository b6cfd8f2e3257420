# health(): which dead letters count, that counting them is cheap, jobs that can't end, and that it
# names every paused type in full.

use strict;
use warnings;

use ExecTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $json = JSON::PP->new;
my $node = jobq_node('health_details', 'jobq.health_dead_letters = 3', "jobq.health_latency = '10s'");

sub one { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub health { my ($check) = @_; return $json->decode(one("SELECT jobq.health()->'checks'->'$check'")); }

# ---------- dead letters by age ----------

# While maintenance attaches a partition health() reads no table, and says so.
ok($node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())'), 'the first partitions are made');
one(<<'SQL');
CREATE FUNCTION broken(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
SELECT jobq.create_job_type(t, 'broken(jsonb)', max_attempts => 1) FROM unnest('{broken,other}'::text[]) t;
SQL
foreach my $type (qw(broken broken other))
{
	my $id = one("SELECT jobq.enqueue('$type')");
	ok($node->poll_query_until('postgres', "SELECT status = 'error' FROM jobq.jobs WHERE id = '$id'"), 'a dead letter');
}

sub dead { my $c = health('dead_letters'); return "$c->{status} $c->{count} of " . one(q{SELECT jobq.health()->'details'->>'dead_letter_count'}); }

is(dead(), 'unhealthy 3 of 3', 'three of jobq.health_dead_letters (3)');
one("UPDATE jobq.dead_letters SET completed_at = completed_at - interval '25 hours' WHERE type_id = (SELECT id FROM jobq.job_types WHERE name = 'other')");
is(dead(), 'degraded 2 of 3', 'one is more than a day old');
one("UPDATE jobq.dead_letters SET completed_at = completed_at - interval '25 hours' WHERE completed_at > now() - interval '1 day'");
is(dead(), 'healthy 0 of 3', 'all are');
ok(!exists health('dead_letters')->{message}, 'which needs no message');
one("ALTER SYSTEM SET jobq.health_dead_age = '2d'; SELECT pg_reload_conf()");
ok($node->poll_query_until('postgres', "SELECT current_setting('jobq.health_dead_age') = '2d'"), 'jobq.health_dead_age can be reloaded');
is(dead(), 'unhealthy 3 of 3', 'they count again');
one("ALTER SYSTEM RESET jobq.health_dead_age; SELECT pg_reload_conf()");
ok($node->poll_query_until('postgres', "SELECT current_setting('jobq.health_dead_age') = '1d'"), 'and is one day again');
one('CREATE ROLE reader LOGIN');
one("SELECT jobq.grant_access('reader', 'read', tenant => 'theirs')");
is(one(q{SET SESSION AUTHORIZATION reader; SELECT jobq.health()->'checks'->'dead_letters'->>'count'}), 0, "others' do not count");

# ---------- many ----------

# $n dead letters of that age
sub bury
{
	my ($n, $age) = @_;

	one(<<"SQL");
INSERT INTO jobq.dead_letters
SELECT (jsonb_populate_record(d, jsonb_build_object('id', gen_random_uuid(), 'completed_at', clock_timestamp() - interval '$age'))).*
  FROM (SELECT * FROM jobq.dead_letters LIMIT 1) one, LATERAL jsonb_populate_record(NULL::jobq.dead_letters, to_jsonb(one)) d, generate_series(1, $n)
SQL
	return;
}

sub read_rows
{
	return one(q{SELECT (seq_tup_read + idx_tup_fetch) || ' ' || seq_scan FROM pg_stat_all_tables WHERE relid = 'jobq.dead_letters'::regclass});
}

bury(20000, '3 days');
bury(12000, '1 hour');
one('VACUUM ANALYZE jobq.dead_letters');
one('SELECT pg_stat_force_next_flush()');
my ($rows, $scans) = split / /, read_rows();
is(dead(), 'unhealthy 10000 of 32003', 'at most 10,000 are counted');
one('SELECT pg_stat_force_next_flush()');
# health() twice, each at most 10,000, and the planner looks at the ends of an index
my ($rows_now, $scans_now) = split / /, read_rows();
cmp_ok($rows_now - $rows, '<', 21_000, 'and not many more are read');
is($scans_now, $scans, 'by an index');
is(one(q{SET jobq.health_dead_letters = 11000; SELECT jobq.health()->'checks'->'dead_letters'->>'count'}), 11000, 'or jobq.health_dead_letters');
is(one(q{SET jobq.health_dead_letters = 20000; SELECT concat_ws(' ', c->>'status', c->>'count') FROM (SELECT jobq.health()->'checks'->'dead_letters') h(c)}),
	'degraded 12000', 'below that, all');

# ---------- its cost ----------

# Blocks that a call reads.
one(<<'SQL');
CREATE FUNCTION blocks(call text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  plan json;
BEGIN
  EXECUTE call;  -- fills the caches
  EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || call INTO plan;
  RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::int + (plan->0->'Plan'->>'Shared Read Blocks')::int;
END $$;
SQL
sub blocks { return one("SELECT blocks('SELECT $_[0]')"); }

my $few = blocks('jobq.health()');
one(q{SELECT count(jobq.create_job_type('t' || n)) FROM generate_series(0, 999) n});
one(q{SELECT count(jobq.enqueue('t' || n % 1000, delay => '1 day')) FROM generate_series(1, 200000) n});
one('INSERT INTO jobq.run_timers SELECT now() + interval $$1 day$$, gen_random_uuid() FROM generate_series(1, 20000)');
one("UPDATE jobq.dead_letters SET expires_at = now() + interval '1 year'");
foreach my $known ('', ', analysed')
{
	one('ANALYZE') if $known;
	my $many = blocks('jobq.health()');
	note "$few, then $many blocks";
	cmp_ok($many, '<', $few + 50_000, "200,000 jobs of 1,000 types$known: health() looks at the first of each lane");
	cmp_ok(blocks('jobq_internal._run_due_timers()'), '<', 100, "timers that are not due$known");
	cmp_ok(blocks('jobq_internal._retain()'), '<', 10_000, "32,000 dead letters that have not expired$known");
}
one('TRUNCATE jobq.dead_letters');

# ---------- paused types ----------

one(q{SELECT jobq.create_job_type(rpad('paused ' || i, 63, 'x'), 'broken(jsonb)') FROM generate_series(1, 30) i});
one(q{SELECT jobq.pause_job_type(name) FROM jobq.job_types WHERE name LIKE 'paused%'});
my @names = split /\n/, one(q{SELECT name FROM jobq.job_types WHERE name LIKE 'paused%' ORDER BY name COLLATE "C"});
my $queues = health('queues');
is("$queues->{status} $queues->{paused}", 'healthy 30', 'thirty types are paused');
is_deeply($queues->{paused_types}, \@names, 'all are named');
one(qq{SELECT jobq.enqueue(name) FROM jobq.job_types WHERE name LIKE 'paused 2%'});
$queues = health('queues');
is($queues->{status}, 'degraded', 'jobs of some wait');
is_deeply([ $queues->{message} =~ /"([^"]+)"/g ], [ grep { /^paused 2/ } @names ], 'the message names those');
one('CREATE ROLE narrow LOGIN');
one(q{SELECT jobq.grant_access('narrow', 'read', job_types => '{broken}')});
unlike(one(q{SET SESSION AUTHORIZATION narrow; SELECT jobq.health()}), qr/paused \d/, 'not for a role that may not know them');
one(q{SELECT jobq.drop_job_type(name, force => true) FROM jobq.job_types WHERE name LIKE 'paused%'});

# ---------- types with tools that can't be started ----------

my $long = tools() . '/' . ('d' x 200) . '/' . ('t' x 100);
one("SELECT jobq.create_job_type(rpad('missing ' || i, 36, chr(228)), command => ARRAY['$long' || i], options => '{\"output\": \"none\"}') FROM generate_series(10, 21) i");
one(q{SELECT jobq.enqueue(name) FROM jobq.job_types WHERE name LIKE 'missing%'});
ok($node->poll_query_until('postgres', q{SELECT jobq.health()->'checks'->'helper'->>'message' LIKE '12 job types %'}), 'twelve types wait for their tools');
my $said = health('helper')->{message};
foreach my $i (10 .. 21)
{
	like($said, qr/"missing $i(?:\xc3\xa4){26}": could not run "\Q$long$i\E": No such file or directory/, "with the whole of number $i");
}
one(q{SELECT jobq.alter_job_type(name, command => '{true}') FROM jobq.job_types WHERE name LIKE 'missing%'});
ok($node->poll_query_until('postgres', q{SELECT jobq.health()->'checks'->'helper'->>'status' = 'healthy'}), 'none, once they have one');

# ---------- jobs that can't end ----------

# Neither the handler's commit nor that of its failure: both write the dead letter.
one(<<'SQL');
CREATE FUNCTION no_row(uuid) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'no row'; END $$;
CREATE INDEX no_row ON jobq.dead_letters (no_row(id));
SQL
my $held = one(q{SELECT jobq.enqueue('broken')});
ok($node->poll_query_until('postgres', q{SELECT jobq.health()->'checks'->'queues'->>'message' = 'jobs of type "broken" wait: the commit of their end has failed twice (see the server log)'}),
	'jobs whose end can not be committed are named') or diag explain health('queues');
is(health('queues')->{status}, 'degraded', 'and are not healthy');
is(one(q{SET SESSION AUTHORIZATION narrow; SELECT jobq.health()->'checks'->'queues'->>'message'}), 'something keeps jobs from being run', 'not for a role that may not know the type');
one('DROP INDEX jobq.no_row');
ok(wait_status($node, $held, 'error'), 'it ends when it can');
ok($node->poll_query_until('postgres', q{SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'}), 'and is healthy then');

# ---------- an error in health() ----------

# It ends the subtransaction of health(), and no more: the transaction of the
# caller goes on, and commits.
one(<<'SQL');
DO $$
BEGIN
  ALTER SCHEMA jobq_internal RENAME TO elsewhere;
  BEGIN
    PERFORM jobq.health();
  EXCEPTION WHEN object_not_in_prerequisite_state THEN
    CREATE TABLE handled ();
  END;
  ALTER SCHEMA elsewhere RENAME TO jobq_internal;
END $$;
SQL
is(one(q{SELECT to_regclass('handled')}), 'handled', 'an error of health() can be caught');

$node->stop;
done_testing();
