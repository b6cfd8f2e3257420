# The default partitions: empty on an ordinary day; a net while maintenance does not run, whose rows
# are found, dumped, handed to jobq.before_drop_type and deleted when they expire.

use strict;
use warnings;

use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my %clock = fake_clock();
# Noon: late in a day, the gap beside rows of the default partition is not worth one.
my $noon = 43200 - time % 86400;
set_clock($noon);
my $node = jobq_server('default_partition', "autovacuum = off", "jobq.keep_events = '20d'");
{
	local @ENV{ keys %clock } = values %clock;
	$node->start;
}
sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(<<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION act(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN IF p ? 'fail' THEN RAISE 'failed'; END IF; RETURN p; END $$;
SELECT jobq.create_job_type('day', 'act(jsonb)', keep_completed => '3 days', max_attempts => 1, options => '{"events": "all"}');
CREATE TABLE archived (id uuid);
CREATE FUNCTION archives(p jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.archived SELECT (line->>'id')::uuid FROM jobq.archive(NULL, what => p->>'what',
    expires_from => (p->>'from')::timestamptz, expires_to => (p->>'to')::timestamptz) a(text), LATERAL (SELECT text::jsonb) l(line) WHERE p->>'what' = 'history';
$$;
SELECT jobq.create_job_type('archiver', 'archives(jsonb)', keep_completed => '15 days');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '-c', $$echo '{"artifact": {"key": "a"}}' >&3$$], options => '{"output": "none"}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $missing = 'SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())';
my $rows = join ', ', map { "(SELECT count(*) FROM jobq.${_}_default)" } qw(history events alerts artifacts);
my $check = q{SELECT jobq.health()->'checks'->'partitions'};

# ---------- an ordinary day ----------

wait_for_sql($node, $missing, 'maintenance makes the partitions of the types');
sql(q{SELECT count(jobq.enqueue('day', '{}')) FROM generate_series(1, 200)});
sql(q{SELECT jobq.enqueue('day', '{"fail": 1}'), jobq.enqueue('tool'), jobq.cancel_job(jobq.enqueue('day', delay => '1h'))});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'jobs of all kinds end');
is(sql("SELECT count(*) FROM jobq.history"), 202, 'in history');
is(sql('SELECT count(*) FROM jobq.alerts') . sql('SELECT count(*) FROM jobq.artifacts'), '11', 'with an alert and an artifact');
is(sql("SELECT $rows"), '0|0|0|0', 'an ordinary day leaves the default partitions empty');
is(sql("SELECT pg_relation_size('jobq.history_default') + pg_relation_size('jobq.events_default')"), 0, 'without a block');
is(sql($check), '', 'and health() has no check of them');

# ---------- ten days without a dispatcher ----------

$node->append_conf('postgresql.conf', "jobq.databases = '-'");
sub restart { local @ENV{ keys %clock } = values %clock; $node->restart; return }
restart();
for my $day (1 .. 10)
{
	set_clock($noon + $day * 86400);
	sql(q{SELECT jobq.cancel_job(jobq.enqueue('day', delay => '1h'))});
}
my ($history, $events) = map { sql("SELECT count(*) FROM jobq.${_}_default") } qw(history events);
cmp_ok($history, '>=', 1, "without a dispatcher rows go to the default partition ($history)");
cmp_ok($events, '>=', 3, "so do events ($events)");
is(sql(q{SELECT count(*) FROM jobq.jobs WHERE status = 'cancelled' AND created_at > now() - interval '7 days'}) > 0, 1, 'jobq.jobs shows them');
like(sql($check), qr/"status": "degraded", "message": "rows go to the default partition of jobq.alerts, jobq.artifacts, jobq.events, jobq.history: maintenance does not run,/,
	'health() says it');
my ($oldest) = sql('SELECT id FROM jobq.history_default ORDER BY expires_at LIMIT 1');
is(sql("SELECT status FROM jobq.wait_for('$oldest')"), 'cancelled', 'wait_for finds one');

# ---------- dump and restore ----------

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
is($node->safe_psql('restored', "SELECT $rows"), sql("SELECT $rows"), 'a dump has the rows of default partitions');
is($node->safe_psql('restored', q{SELECT count(*) FROM jobq.history_default WHERE expires_at IS NULL}), 0, 'where they were');
sql('DROP DATABASE restored WITH (FORCE)');

# ---------- expiry, after the jobs of jobq.before_drop_type ----------

$node->append_conf('postgresql.conf', "jobq.databases = ''\njobq.before_drop_type = 'archiver'");
restart();
wait_dispatcher($node, 'postgres', 'the dispatcher is back');
wait_for_sql($node, $missing, 'and makes partitions beside the rows');
my $id = sql(q{SELECT jobq.enqueue('day')});
wait_status($node, 'postgres', $id, 'completed', 'a job ends');
isnt(sql("SELECT tableoid::regclass FROM jobq.history WHERE id = '$id'"), 'jobq.history_default', 'in a partition of its own');
set_clock($noon + 15 * 86400);
my $due = sql('SELECT count(*) FROM jobq.history_default WHERE expires_at < now()');
cmp_ok($due, '>', 0, "rows expire ($due)");
sql(q{CREATE TABLE expired AS SELECT id FROM jobq.history_default WHERE expires_at < date_trunc('day', now(), 'UTC')});
wait_for_sql($node, q{SELECT jobq_internal._retain() IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.history_default WHERE expires_at < date_trunc('day', now(), 'UTC'))}, 'they go by day');
is(sql(q{SELECT count(*) > 0 AND bool_and(j.status = 'completed' AND (payload->>'to')::timestamptz - (payload->>'from')::timestamptz <= interval '24 hours')
  FROM jobq.jobs j WHERE job_type = 'archiver' AND payload->>'what' = 'history'}), 't', 'each after a job of its own');
is(sql('SELECT count(*) > 0 AND count(*) = (SELECT count(*) FROM archived JOIN expired USING (id)) FROM expired'), 't', 'which jobq.archive gave each row once');
$node->append_conf('postgresql.conf', "jobq.before_drop_type = ''");
$node->reload;
set_clock($noon + 40 * 86400);
wait_for_sql($node, q{SELECT jobq_internal._retain() IS NOT NULL AND pg_relation_size('jobq.history_default') + pg_relation_size('jobq.events_default') = 0},
	'when all are gone, so is their space');

$node->stop;
done_testing();
