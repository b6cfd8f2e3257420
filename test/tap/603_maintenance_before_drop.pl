# jobq.before_drop_type: each range of history, events and artifacts has its job before it goes.

use strict;
use warnings;

use JSON::PP ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('before_drop', map { "jobq.disk_$_ = 100" } qw(warning critical emergency));
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
$node->safe_psql('postgres', <<'END');
CREATE TABLE archived (what text, low timestamptz, high timestamptz, line jsonb);
CREATE TABLE gate (open boolean);
INSERT INTO gate VALUES (true);
CREATE FUNCTION archiver(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (SELECT open FROM gate) THEN RAISE EXCEPTION 'no room in the archive'; END IF;
  INSERT INTO archived SELECT p->>'what', (p->>'from')::timestamptz, (p->>'to')::timestamptz, l::jsonb
    FROM jobq.archive(NULL, what => p->>'what', expires_from => (p->>'from')::timestamptz, expires_to => (p->>'to')::timestamptz) l;
END $$;
SELECT jobq.create_job_type('archiver', 'archiver(jsonb)', max_attempts => 1, keep_completed => '0', keep_dead => '0', options => '{"alert": false}');
-- Makes partitions of one day with n rows each.
CREATE FUNCTION fill(day timestamptz, n int) RETURNS void LANGUAGE sql AS $$
  SELECT jobq_internal._ensure_partition(p, day) FROM unnest('{jobq.history,jobq.artifacts,jobq.events,jobq.alerts}'::regclass[]) p;
  INSERT INTO jobq.history (id, expires_at, scheduled_for, created_at, completed_at, type_id, status, attempts, max_attempts, runs, depth, priority, payload)
  SELECT gen_random_uuid(), day + '12h', day, day, day, 1, 'completed', 1, 1, 1, 0, 0, jsonb_build_object('day', day) FROM generate_series(1, n);
  INSERT INTO jobq.events (ts, job_id, type, source) SELECT day + '12h', gen_random_uuid(), 'log', 'client' FROM generate_series(1, n);
  INSERT INTO jobq.artifacts (created_at, job_id, attempt, key, kind, expires_at) SELECT day, gen_random_uuid(), 1, 'a', 'output', day + '12h' FROM generate_series(1, n);
$$;
SELECT jobq_internal._home_id();	-- as the first enqueue does: without it no row goes
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub set
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET $_[0]");
	$node->reload;
	my ($name, $value) = $_[0] =~ /^(\S+) = '?(.*?)'?$/;
	wait_for_sql($node, "SELECT current_setting('$name') = '$value'", "$name is $value");
	return;
}

# Runs the maintenance, as its process does every ten minutes.
sub maintain
{
	wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq maintenance')}, 'no maintenance process runs');
	$node->safe_psql('postgres', 'SELECT jobq_internal._maintain()');
	return;
}

# Runs it until the condition holds: a partition in use is left to the next run.
sub maintain_until
{
	my ($condition, $name) = @_;

	foreach (1 .. 10)
	{
		maintain();
		last if $node->safe_psql('postgres', "SELECT $condition") eq 't';
	}
	return wait_for_sql($node, "SELECT $condition", $name);
}

my $old = q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text COLLATE "C") FROM pg_inherits WHERE inhrelid::regclass::text ~ '_2001'};
my $waiting = q{SELECT string_agg(what || ' ' || to_char(low, 'YYYY-MM-DD') || ' ' || to_char(high, 'YYYY-MM-DD'), ', ' ORDER BY what, low) FROM jobq.before_drops};
my $jobs_left = q{SELECT NOT EXISTS (SELECT FROM jobq.queue q JOIN jobq.before_drops b ON b.job_id = q.id)};
my $retention = q{SELECT coalesce(jobq.health()->'checks'->'retention'->>'status', 'none')};

# ---------- no job without the setting ----------

$node->safe_psql('postgres', q{SELECT fill('2001-01-05 00:00+00', 1)});
maintain_until("($old) IS NULL", 'without the setting expired partitions go');
is($node->safe_psql('postgres', 'SELECT count(*) FROM archived'), 0, 'and no job runs');

# ---------- a job for each partition ----------

set(q{jobq.before_drop_type = 'archiver'});
$node->safe_psql('postgres', q{SELECT fill('2001-01-01 00:00+00', 3), fill('2001-01-02 00:00+00', 2), fill('2001-01-03 00:00+00', 0), jobq.pause_job_type('archiver')});
my $kept = 'jobq.artifacts_20010101 jobq.artifacts_20010102 jobq.events_20010101 jobq.events_20010102 jobq.history_20010101 jobq.history_20010102';
maintain_until("($old) = '$kept'", 'partitions with rows stay; empty ones are gone');
is($node->safe_psql('postgres', "SET timezone = 'UTC'; $waiting"),
	join(', ', map { ("$_ 2001-01-01 2001-01-02", "$_ 2001-01-02 2001-01-03") } qw(artifacts events history)), 'a row for each partition with rows');
$node->safe_psql('postgres', q{SELECT jobq.resume_job_type('archiver')});
wait_for_sql($node, $jobs_left, 'their jobs run');
is($node->safe_psql('postgres', q{SET timezone = 'UTC'; SELECT what, to_char(low, 'DD'), to_char(high, 'DD'), count(*) FROM archived GROUP BY 1, 2, 3 ORDER BY 1, 2}),
	join("\n", map { ("$_|01|02|3", "$_|02|03|2") } qw(artifacts events history)), 'each gets the rows of its partition');
is($node->safe_psql('postgres', q{SELECT count(*) FROM archived WHERE what = 'history' AND line->'payload'->>'day' !~ ('^2001-01-0' || extract(day FROM low AT TIME ZONE 'UTC'))}), 0, 'and no other');
maintain_until("($old) IS NULL", 'then the partitions go');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'and their rows');
is($node->safe_psql('postgres', $retention), 'none', 'health() is content');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.history WHERE payload ? 'what'}), 6, 'the jobs stay in history, whatever their type keeps');

# ---------- a row that is not committed yet ----------

$node->safe_psql('postgres', q{TRUNCATE archived; SELECT fill('2001-05-01 00:00+00', 1)});
$node->safe_psql('postgres', q{DROP TABLE jobq.events_20010501; DROP TABLE jobq.artifacts_20010501});
my $writer = $node->background_psql('postgres');
$writer->query_safe(<<'END');
BEGIN;
INSERT INTO jobq.history (id, expires_at, scheduled_for, created_at, completed_at, type_id, status, attempts, max_attempts, runs, depth, priority, payload)
VALUES (gen_random_uuid(), '2001-05-01 13:00+00', '2001-05-01', '2001-05-01', '2001-05-01', 1, 'completed', 1, 1, 1, 0, 0, '{}')
END
maintain();
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'a partition that a transaction writes to has no job yet');
$writer->query_safe('COMMIT');
$writer->quit;
maintain();
wait_for_sql($node, "$jobs_left AND EXISTS (SELECT FROM jobq.before_drops)", 'then it has');
is($node->safe_psql('postgres', 'SELECT count(*) FROM archived'), 2, 'with the row of that transaction');
maintain_until("($old) IS NULL", 'and goes');

# ---------- a dead letter ----------

$node->safe_psql('postgres', q{UPDATE gate SET open = false; SELECT fill('2001-02-01 00:00+00', 1)});
$node->safe_psql('postgres', q{DROP TABLE jobq.events_20010201; DROP TABLE jobq.artifacts_20010201});
maintain();
wait_for_sql($node, $jobs_left, 'a job that fails');
maintain() foreach 1 .. 2;
is($node->safe_psql('postgres', $old), 'jobq.history_20010201', 'the partition stays');
is($node->safe_psql('postgres', q{SELECT count(*), min(error_msg) FROM jobq.dead_letters}), '1|no room in the archive', 'one dead letter, kept whatever its type keeps');
is($node->safe_psql('postgres', $retention), 'degraded', 'health() is degraded');
is($node->safe_psql('postgres', q{SELECT (jobq.health()->'checks'->'retention') - 'since'}),
	'{"status": "degraded", "message": "expired rows stay: a job of jobq.before_drop_type has failed, retry or purge it", "waiting": 1}', 'and names the cause');
$node->safe_psql('postgres', q{SELECT jobq.purge_dead_letters('archiver')});
maintain();
wait_for_sql($node, "$jobs_left AND EXISTS (SELECT FROM jobq.dead_letters)", 'a purged dead letter is followed by another job');

# ---------- a crash between the steps ----------

$node->stop('immediate');
$node->start;
wait_dispatcher($node, 'postgres', 'after a crash');
maintain();
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops b JOIN jobq.dead_letters d ON d.id = b.job_id'), 1, 'the range has its job');
$node->safe_psql('postgres', q{UPDATE gate SET open = true; SELECT jobq.retry_dead_letters('archiver')});
wait_for_sql($node, "$jobs_left AND NOT EXISTS (SELECT FROM jobq.dead_letters)", 'it is retried');
is($node->safe_psql('postgres', $retention), 'none', 'health() is content again');
maintain_until("($old) IS NULL", 'the partition goes');

# ---------- a type that does not exist, a job that was cancelled ----------

set(q{jobq.before_drop_type = 'nosuch'});
$node->safe_psql('postgres', q{SELECT fill('2001-03-01 00:00+00', 1); DROP TABLE jobq.events_20010301; DROP TABLE jobq.history_20010301});
maintain();
is($node->safe_psql('postgres', $old), 'jobq.artifacts_20010301', 'without the type the partition stays');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'retention'->>'message'}),
	'no job of jobq.before_drop_type can be enqueued: job type "nosuch" does not exist', 'health() has the reason');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('nosuch', 'archiver(jsonb)', options => '{"alert": false}'); SELECT jobq.pause_job_type('nosuch')});
maintain();
is($node->safe_psql('postgres', $retention), 'none', 'with the type a job is enqueued');
my $first = $node->safe_psql('postgres', 'SELECT job_id FROM jobq.before_drops');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$first')");
wait_status($node, 'postgres', $first, 'cancelled', 'it is cancelled');
maintain();
is($node->safe_psql('postgres', "SELECT job_id <> '$first' FROM jobq.before_drops b JOIN jobq.queue q ON q.id = b.job_id"), 't', 'another one is enqueued');
is($node->safe_psql('postgres', $old), 'jobq.artifacts_20010301', 'the partition stays');

# ---------- disk level critical ----------

$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.disk_critical = 0');
$node->reload;
wait_for_sql($node, "SELECT ($old) IS NULL", 'at disk level critical the partition goes all the same');
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM jobq.events WHERE type = 'partition_dropped' AND level = 'warning' AND data->>'what' = 'artifacts'
	AND (data->>'from')::timestamptz = '2001-03-01 00:00+00' AND (data->>'to')::timestamptz = '2001-03-02 00:00+00')}, 'with an event');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'no row is left');
$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.disk_critical = 100');
$node->reload;
wait_for_sql($node, 'SELECT NOT jobq_internal._disk_is_critical()', 'the disk is fine again');

# ---------- two sessions at once ----------

set(q{jobq.before_drop_type = 'archiver'});
$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('archiver')});
my $ask = q{SELECT jobq_internal._ask_before_drop('events', '2001-03-05 00:00+00', '2001-03-06 00:00+00')};
my ($one, $other) = map { $node->background_psql('postgres') } 1 .. 2;
$one->query_safe("BEGIN; $ask");
$other->query_until(qr/begun/, "\\echo begun\n$ask;\n\\echo ended\n");
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query ~ '^SELECT jobq_internal._ask' AND wait_event_type = 'Lock')}, 'another session waits');
$one->query_safe('COMMIT');
$other->query_until(qr/ended/, '');
$_->quit foreach $one, $other;
is($node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('archiver')}), 1, 'a range has one job, however many ask for it');
$node->safe_psql('postgres', 'DELETE FROM jobq.before_drops');

# ---------- a partition of more than a day ----------

$node->safe_psql('postgres', <<'END');
TRUNCATE archived;
BEGIN;  -- maintenance makes no partition meanwhile
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT partition::text FROM jobq_internal._partitions('jobq.artifacts') LOOP
    EXECUTE 'DROP TABLE ' || name;
  END LOOP;
END $$;
SELECT jobq_internal._ensure_partition('jobq.artifacts', clock_timestamp(), clock_timestamp() - interval '100 years');
INSERT INTO jobq.artifacts (job_id, attempt, key, kind, expires_at)
SELECT gen_random_uuid(), 1, n, 'output', date_trunc('day', clock_timestamp(), 'UTC') + make_interval(days => n / 10, hours => 0, secs => n % 10 * 1e-6) FROM unnest('{-21,-11,-10,0,10,11}'::int[]) n;
COMMIT;
END
my $keys = q{SELECT string_agg(key, ' ' ORDER BY key::int) FROM jobq.artifacts};
$node->safe_psql('postgres', 'SELECT jobq_internal._retain()');
is($node->safe_psql('postgres', $keys), '-21 -11 -10 0 10 11', 'rows of a long partition stay at first');
is($node->safe_psql('postgres', q{SELECT what, high = date_trunc('day', clock_timestamp(), 'UTC') FROM jobq.before_drops}), 'artifacts|t', 'a job gets those of the days before today');
$node->safe_psql('postgres', q{SELECT jobq.resume_job_type('archiver')});
wait_for_sql($node, $jobs_left, 'it runs');
is($node->safe_psql('postgres', q{SELECT string_agg(line->>'key', ' ' ORDER BY (line->>'key')::int) FROM archived}), '-21 -11 -10', 'with these rows only');
$node->safe_psql('postgres', 'SELECT jobq_internal._retain()');
is($node->safe_psql('postgres', $keys), '0 10 11', 'then they go');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'and the range');
$node->safe_psql('postgres', 'SELECT jobq_internal._retain()');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'nothing else is due');
# a row that a live run needs
$node->safe_psql('postgres', q{INSERT INTO jobq.artifacts (job_id, workflow_id, attempt, key, kind, expires_at)
	SELECT gen_random_uuid(), jobq.enqueue('archiver', delay => '1 day'), 1, '-5', 'output', date_trunc('day', clock_timestamp(), 'UTC') - interval '1 hour'});
$node->safe_psql('postgres', 'SELECT jobq_internal._retain()');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'nor is a row that a live run needs');
$node->safe_psql('postgres', q{WITH gone AS (DELETE FROM jobq.artifacts WHERE key = '-5' RETURNING workflow_id) SELECT jobq.cancel_job(workflow_id) FROM gone});

# ---------- jobs of a type that keeps none by number ----------

$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('archiver', options => '{"keep_completed_count": 0}')});
$node->safe_psql('postgres', q{TRUNCATE archived; SELECT fill('2001-01-08 00:00+00', 1)});
maintain();
wait_for_sql($node, "$jobs_left AND (SELECT count(*) > 2 FROM archived)", 'jobs of a type with keep_completed_count');
$node->safe_psql('postgres', 'SELECT jobq_internal._retain()') foreach 1 .. 3;
maintain_until("($old) IS NULL", 'the partitions go');
is($node->safe_psql('postgres', 'SELECT count(*) FROM archived'), 3, 'after one job each: it has stayed as long as its range');

# ---------- the setting is taken back ----------

$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('archiver'), fill('2001-04-01 00:00+00', 1)});
maintain();
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM jobq.before_drops'), 't', 'ranges wait');
set(q{jobq.before_drop_type = ''});
maintain_until("($old) IS NULL", 'without the setting they go');
is($node->safe_psql('postgres', 'SELECT count(*) FROM jobq.before_drops'), 0, 'no row is left');

# ---------- a task that fails ----------

my $slots = q{SELECT coalesce(jobq.health()->'checks'->'slots'->>'message', 'none')};
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no row goes'; END $$;
CREATE TRIGGER keep BEFORE DELETE ON jobq.dead_letters FOR EACH STATEMENT EXECUTE FUNCTION keep();
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
SELECT jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 1, options => '{"alert": false}'), jobq.enqueue('fails');
END
wait_for_sql($node, 'SELECT EXISTS (SELECT FROM jobq.dead_letters)', 'a dead letter');
$node->safe_psql('postgres', q{UPDATE jobq.dead_letters SET expires_at = '2001-01-01'});
restart_dispatcher($node);
wait_for_sql($node, qq{SELECT ($slots) = 'maintenance fails at its task "retention": no row goes'}, 'health() names the task and the error');
$node->safe_psql('postgres', 'DROP TRIGGER keep ON jobq.dead_letters');
restart_dispatcher($node);
wait_for_sql($node, qq{SELECT ($slots) = 'none'}, 'until it succeeds');

$node->stop;
done_testing();
