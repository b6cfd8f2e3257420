# Retention by the processes, and the number of dead letters after every
# possible end of a transaction.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('retention');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN IF p ? 'fail' THEN RAISE EXCEPTION 'no'; END IF; END $$;
SELECT jobq.create_job_type('few', 'work(jsonb)', max_attempts => 1, options => '{"keep_completed_count": 5, "keep_dead_count": 3}');
SELECT jobq.create_job_type('all', 'work(jsonb)', max_attempts => 1);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Maintenance runs once a minute, and after a reload.
sub maintain
{
	$node->reload;
	return;
}

my $payloads = q{ARRAY(SELECT CASE WHEN n % 2 = 0 THEN jsonb_build_object('n', n) ELSE jsonb_build_object('n', n, 'fail', true) END FROM generate_series(1, 200) n)};
$node->safe_psql('postgres', "SELECT count(*) FROM jobq.enqueue_many('$_', $payloads)") foreach qw(few all);
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'all have run');
maintain();
my $kept = q{SELECT string_agg(concat_ws(' ', job_type, status, n), ', ') FROM
  (SELECT job_type, status, count(*) AS n FROM jobq.jobs GROUP BY 1, 2 ORDER BY 1, 2) s};
wait_for_sql($node, "SELECT ($kept) = 'all completed 100, all error 100, few completed 5, few error 3'", 'a number of them stay');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT FROM jobq.history h JOIN jobq.job_types t ON t.id = type_id WHERE counted <> (name = 'few')) h}),
	0, 'only rows of types with a number are marked');

# the outcome of a type that keeps no jobs comes from memory
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('none', 'work(jsonb)', max_attempts => 1, options => '{"keep_completed_count": 0, "keep_dead_count": 0}')});
my $none = $node->safe_psql('postgres', q{SELECT jobq.enqueue('none')});
wait_for_sql($node, "SELECT status = 'completed' AND result IS NULL FROM jobq.wait_for('$none')", 'how a job ended that was not kept');
$none = $node->safe_psql('postgres', q{SELECT jobq.enqueue('none', '{"fail": true}')});
wait_for_sql($node, "SELECT status = 'error' FROM jobq.wait_for('$none')", 'also one that failed');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.jobs WHERE job_type = 'none'"), 0, 'neither is there');

# an option that is set later, over several partitions
$node->safe_psql('postgres', q{SELECT jobq.enqueue('all', keep_completed => (n || ' days')::interval) FROM generate_series(1, 20) n});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'more have run');
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('all', options => '{"keep_completed_count": 7}')});
maintain();
wait_for_sql($node, "SELECT ($kept) = 'all completed 7, all error 100, few completed 5, few error 3'", 'older ones count as well');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'all' AND completed_at IS NOT NULL AND payload = '{}'}), 7, 'the newest have stayed');

# the option is off while jobs end
is($node->safe_psql('postgres', q{BEGIN; DO $$ BEGIN PERFORM jobq.alter_job_type('all', options => '{"keep_completed_count": null}');
  PERFORM jobq.alter_job_type('all', options => '{"keep_completed_count": 7}'); END $$;
  SELECT count(*) FROM jobq.counted_types c JOIN jobq.job_types j ON j.id = c.type_id WHERE j.name = 'all' AND c.done; COMMIT}), 0,
	'set again, it counts rows from before');

# a table in use is skipped: maintenance ends all the same
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE jobq.dead_letters IN SHARE MODE');
my $held = $node->safe_psql('postgres', q{SELECT jobq.enqueue('all')});
measure($node);
pass('maintenance does not wait for a table in use');
wait_status($node, 'postgres', $held, 'completed', 'nor do jobs');
$holder->query_safe('COMMIT');
$holder->quit;

# ---------- the number of dead letters ----------

my $off = 'SELECT coalesce(sum(change), 0) - (SELECT count(*) FROM jobq.dead_letters) FROM jobq.dead_letter_count';
my $health = q{SELECT (jobq.health()->'checks'->'dead_letters'->>'count')::int - count(*) FROM jobq.dead_letters};
is($node->safe_psql('postgres', $off), 0, 'it is right');
is($node->safe_psql('postgres', $health), 0, 'and health() reports it');

$node->safe_psql('postgres', q{BEGIN; SELECT jobq.purge_dead_letters('all', max_jobs => 10); PREPARE TRANSACTION 'purge'});
is($node->safe_psql('postgres', $off), 0, 'a prepared transaction counts nothing');
$node->safe_psql('postgres', q{BEGIN; SELECT jobq.retry_dead_letters('all', max_jobs => 10); PREPARE TRANSACTION 'retry'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'purge'});
is($node->safe_psql('postgres', $off), 0, 'until it is committed');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'retry'});
is($node->safe_psql('postgres', $off), 0, 'or rolled back');

# a TRUNCATE whose snapshot does not see the last ones
my $truncates = $node->background_psql('postgres');
$truncates->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.dead_letters');
wait_status($node, 'postgres', $node->safe_psql('postgres', q{SELECT jobq.enqueue('all', '{"fail": true}')}), 'error', 'another one');
$truncates->query_safe('TRUNCATE jobq.dead_letters; COMMIT');
is($node->safe_psql('postgres', $off), 0, 'a TRUNCATE under REPEATABLE READ counts all');
# and one that waits for a session that folds the number
$node->safe_psql('postgres', q{SELECT count(*) FROM jobq.enqueue_many('all', array_fill('{"fail": true}'::jsonb, ARRAY[150]))});
wait_for_sql($node, 'SELECT count(*) = 150 FROM jobq.dead_letters', 'more');
my $folds = $node->background_psql('postgres');
$folds->query_safe('INSERT INTO jobq.dead_letter_count SELECT 0 FROM generate_series(1, 100); BEGIN; SELECT jobq_internal._fold_dead_letter_count()');
$node->safe_psql('postgres', q{SET lock_timeout = '1min'; SELECT jobq_internal._fold_dead_letter_count()});
is($node->safe_psql('postgres', 'SELECT count(*) >= 100 FROM jobq.dead_letter_count'), 't', 'another session that folds waits for nobody');
$truncates->query_until(qr/begun/, "\\echo begun\nTRUNCATE jobq.dead_letters;\n\\echo ended\n");
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query ~ '^TRUNCATE' AND wait_event_type = 'Lock')}, 'it waits');
$folds->query_safe('COMMIT');
$truncates->query_until(qr/ended/, '');
is($node->safe_psql('postgres', $off), 0, 'nor is a sum left that is written meanwhile');
$_->quit foreach $truncates, $folds;

# many sessions at once, while the sum is folded; every snapshot must agree
my @sessions = map { $node->background_psql('postgres') } 1 .. 4;
$_->query_until(qr/started/, <<'END') foreach @sessions;
\echo started
DO $$
BEGIN
  FOR i IN 1 .. 40 LOOP
    PERFORM jobq.enqueue_many('all', array_fill('{"fail": true}'::jsonb, ARRAY[10]));
    COMMIT;
    PERFORM jobq.retry_dead_letters('all', max_jobs => 5);
    IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
    PERFORM jobq.purge_dead_letters('all', max_jobs => 3);
    COMMIT;
    PERFORM jobq_internal._retain();
    COMMIT;
  END LOOP;
END $$;
\echo finished
END
my ($looks, $wrong) = (0, 0);
my $ended = q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%_retain()%' AND state = 'idle' AND pid <> pg_backend_pid()};
while ($node->safe_psql('postgres', $ended) < @sessions)
{
	$looks++;
	$wrong++ if $node->safe_psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; $off; COMMIT") ne '0';
}
cmp_ok($looks, '>', 0, 'looks meanwhile');
is("$wrong of $looks", "0 of $looks", 'every snapshot has the right number');
$_->query_until(qr/finished/, '') foreach @sessions;
$_->quit foreach @sessions;
is($node->safe_psql('postgres', $off), 0, 'also when they have ended');

# a crash in the middle
$node->safe_psql('postgres', q{SELECT count(*) FROM jobq.enqueue_many('all', array_fill('{"fail": true}'::jsonb, ARRAY[500]))});
wait_for_sql($node, q{SELECT count(*) > 50 FROM jobq.dead_letters}, 'jobs die');
$node->stop('immediate');
$node->start;
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'after a crash the rest do, too');
is($node->safe_psql('postgres', $off), 0, 'it is right after a crash');
is($node->safe_psql('postgres', $health), 0, 'for health(), too');

# a restored dump
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
is($node->safe_psql('restored', $off), 0, 'it is right in a restored dump');
cmp_ok($node->safe_psql('restored', 'SELECT count(*) FROM jobq.dead_letters'), '>', 500, 'which has them');

# No row of it expires before adopt(), nor while it is being restored: its home row comes after
# others.
$node->safe_psql('restored', <<'END');
SELECT jobq_internal._ensure_partition(p, '2001-01-01 12:00+00', '2001-01-01') FROM unnest('{jobq.history,jobq.events}'::regclass[]) p;
UPDATE jobq.dead_letters SET expires_at = '2001-01-01';
UPDATE jobq.history SET expires_at = '2001-01-01 12:00+00' WHERE id = (SELECT id FROM jobq.history LIMIT 1);
INSERT INTO jobq.events (ts, type, source, level) VALUES ('2001-01-01 12:00+00', 'completed', 'dispatcher', 'info');
CREATE TABLE home AS TABLE jobq.home;
CREATE ROLE mover;
UPDATE jobq.job_types SET owner = 'mover', run_as = 'mover' WHERE name = 'all';
ALTER ROLE mover RENAME TO moved;
END
my $old = q{SELECT (SELECT count(*) FROM jobq.dead_letters WHERE expires_at < now()) > 500, (SELECT count(*) FROM jobq.history WHERE expires_at = '2001-01-01 12:00+00'),
  (SELECT count(*) FROM jobq.events WHERE ts = '2001-01-01 12:00+00'), (SELECT count(*) FROM pg_class WHERE relname ~ '^(history|events)_20010101$')};
foreach my $step ([ 'INSERT INTO jobq.home TABLE home', 'before adopt()' ], [ '', 'while it is restored' ])
{
	$node->safe_psql('restored', "DELETE FROM jobq.home; $step->[0]");
	is($node->safe_psql('restored', 'SELECT jobq_internal._retain()'), 'f', "$step->[1]: retention");
	$node->safe_psql('restored', 'SELECT jobq_internal._maintain()');
	is($node->safe_psql('restored', $old), 't|1|1|2', 'removes nothing');
	is($node->safe_psql('restored', q{SELECT owner FROM jobq.job_types WHERE name = 'all'}), 'mover', 'nor takes oids for those of roles here');
}
$node->safe_psql('restored', 'INSERT INTO jobq.home TABLE home; SELECT jobq.adopt()');
ok($node->poll_query_until('restored', q{SELECT NOT EXISTS (SELECT FROM pg_class WHERE relname ~ '^(history|events)_20010101$')}), 'adopt() starts maintenance');
maintain();
ok($node->poll_query_until('restored', $old, 'f|0|0|0'), 'after it they go');

$node->stop;
done_testing();
