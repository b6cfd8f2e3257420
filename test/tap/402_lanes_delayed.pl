# Start times and order: delays end by timer, equal times, priorities, and limits of
# concurrent jobs.  The sweep is off.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('delayed', 'max_connections = 30', 'jobq.max_sql_workers = 4', "jobq.sweep_interval = '1h'",
	'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (seq int GENERATED ALWAYS AS IDENTITY, n int, began timestamptz, ended timestamptz);
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger (n, began) VALUES ((p->>'n')::int, clock_timestamp())
$$;
CREATE FUNCTION span(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  began timestamptz := clock_timestamp();
BEGIN
  PERFORM pg_sleep(0.005);
  INSERT INTO public.ledger (n, began, ended) VALUES ((p->>'n')::int, began, clock_timestamp());
END $$;
CREATE FUNCTION gated(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock_shared(1)';
CREATE FUNCTION fails_once(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT attempts = 1 FROM jobq.current_job()) THEN RAISE 'not yet'; END IF;
  INSERT INTO public.ledger (n) VALUES ((p->>'n')::int);
END $$;
SELECT jobq.create_job_type('note', 'note(jsonb)'), jobq.create_job_type('other', 'note(jsonb)'),
  jobq.create_job_type('span', 'span(jsonb)', max_concurrent => 2),
  jobq.create_job_type('gated', 'gated(jsonb)'), jobq.create_job_type('capped', 'gated(jsonb)', max_concurrent => 2),
  jobq.create_job_type('again', 'fails_once(jsonb)', backoff => 'fixed', backoff_base => '0.4s', backoff_jitter => 0);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub all_done
{
	my ($what) = @_;

	return wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', $what);
}

sub set_to
{
	my ($name, $value) = @_;

	scalar_of("ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	# sessions have it, too
	wait_for_sql($node, "SELECT setting = '$value' FROM pg_settings WHERE name = '$name'", "$name is $value");
	return;
}

# ---------- delays ----------

scalar_of("SELECT jobq.enqueue('note', '{\"n\": 0}', delay => '1 day')");
scalar_of("SELECT count(jobq.enqueue('note', jsonb_build_object('n', n), delay => make_interval(secs => 0.3 + n * 37 % 200 * 0.01)))
  FROM generate_series(1, 200) n");
my $later = scalar_of("SELECT jobq.enqueue('note', '{\"n\": 201}', delay => '1 hour')");
scalar_of("SELECT jobq.alter_job('$later', scheduled_for => clock_timestamp() + '0.5s')");
scalar_of("SELECT jobq.enqueue('again', '{\"n\": 202}', delay => '0.4s')");
wait_for_sql($node, 'SELECT count(*) = 202 FROM ledger', 'all have run but the one of tomorrow');
is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE started_at < scheduled_for"), 0, 'none before its time');
my ($median, $max) = split /\|/, scalar_of(
	"SELECT round(extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY late)) * 1000, 1), round(extract(epoch FROM max(late)) * 1000, 1)
	   FROM (SELECT started_at - scheduled_for AS late FROM jobq.jobs WHERE status = 'completed') x");
cmp_ok($max, '<', 30_000, "late by $median ms (median), $max ms (largest)");
is(scalar_of("SELECT status || ' ' || attempts FROM jobq.jobs WHERE job_type = 'again'"), 'completed 2', 'a retry comes by timer, too');
is(scalar_of("SELECT count(*) || ' ' || min(payload->>'n') FROM jobq.jobs WHERE status = 'pending'"), '1 0', 'tomorrow is not yet');
scalar_of('SELECT jobq.cancel_job(id) FROM jobq.queue; TRUNCATE ledger');

# ---------- equal moments ----------

is(scalar_of("BEGIN; SELECT count(*) FROM jobq.enqueue_many('note', (SELECT array_agg(jsonb_build_object('n', n) ORDER BY n)
  FROM generate_series(1, 1000) n), scheduled_for => now() + '1s');
  SELECT count(DISTINCT scheduled_for) || ' ' || count(*) FROM jobq.queue; COMMIT"), "1000\n1 1000", 'a thousand jobs of one moment');
all_done('all have run');
is(scalar_of('SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger'), '1000 1000', '!once');
scalar_of('TRUNCATE ledger');
# the very same key of the index: more than are read at once
scalar_of("INSERT INTO jobq.queue (id, position, scheduled_for, type_id, home_id, max_attempts, payload)
  SELECT gen_random_uuid(), now(), now(), (SELECT id FROM jobq.job_types WHERE name = 'note'), jobq_internal._home_id(), 1,
         jsonb_build_object('n', n) FROM generate_series(1, 5000) n");
all_done('five thousand of the very same position');
is(scalar_of('SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger'), '5000 5000', '!once');
scalar_of('TRUNCATE ledger');

# ---------- order ----------

set_to('jobq.max_sql_workers', 1);
scalar_of("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'");
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq sql worker')", 'no worker');
my $wrong;
# on a stalled machine a run may take longer than a batch allows, and run
# again later: then repeat all
foreach (1 .. 5)
{
	scalar_of("TRUNCATE ledger; SELECT jobq.pause_job_type('note'), jobq.pause_job_type('other')");
	scalar_of("SELECT count(jobq.enqueue(CASE WHEN n % 2 = 0 THEN 'note' ELSE 'other' END, jsonb_build_object('n', n),
	  priority => (n * 7919 % 201 - 100) / 20 * 20)) FROM generate_series(1, 600) n");
	scalar_of("SELECT jobq.resume_job_type('note'), jobq.resume_job_type('other')");
	all_done('jobs of two types with priorities from -100 to 100');
	is(scalar_of('SELECT count(*) FROM ledger'), 600, 'all of them');
	$wrong = scalar_of("SELECT count(*) FROM (SELECT n, lag(n) OVER (ORDER BY seq) AS before FROM ledger) x
	  WHERE ((n * 7919 % 201 - 100) / 20 * 20, -n) > ((before * 7919 % 201 - 100) / 20 * 20, -before)");
	last if $wrong == 0;
	diag "$wrong of 600 jobs were out of their turn";
}
is($wrong, 0, 'the highest first, then the oldest, whatever the type');
scalar_of('TRUNCATE ledger');

# ---------- what runs at once ----------

my $at_gate = "FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
my $gate = $node->background_psql('postgres');

set_to('jobq.max_sql_workers', 4);
scalar_of("SELECT count(*) FROM jobq.enqueue_many('span', (SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series(1, 400) n))");
all_done('four hundred jobs of a type that may run twice at once');
my $at_once = scalar_of("SELECT max(running) FROM (SELECT sum(step) OVER (ORDER BY at, step) AS running
  FROM (SELECT began AS at, 1 AS step FROM ledger UNION ALL SELECT ended, -1 FROM ledger) e) x");
cmp_ok($at_once, '<=', 2, "$at_once did, never three");

$gate->query_safe('SELECT pg_advisory_lock(1)');
scalar_of("SELECT count(*) FROM jobq.enqueue_many('capped', array_fill('{}'::jsonb, '{6}'))");
wait_for_sql($node, "SELECT count(*) = 2 $at_gate", 'two block');
my $id = scalar_of("SELECT jobq.enqueue('note')");
wait_status($node, 'postgres', $id, 'completed', 'another type passes them');
is(scalar_of("SELECT count(*) $at_gate"), 2, 'they are still two');
scalar_of("SELECT jobq.alter_job_type('capped', max_concurrent => 3)");
wait_for_sql($node, "SELECT count(*) = 3 $at_gate", 'three, when it may');
scalar_of("SELECT count(*) FROM jobq.enqueue_many('gated', array_fill('{}'::jsonb, '{6}'))");
wait_for_sql($node, "SELECT count(*) = 4 $at_gate", 'four workers');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
all_done('the gate is open');

set_to('jobq.max_concurrent', 3);
$gate->query_safe('SELECT pg_advisory_lock(1)');
scalar_of("SELECT count(*) FROM jobq.enqueue_many('gated', array_fill('{}'::jsonb, '{6}'))");
wait_for_sql($node, "SELECT count(*) = 3 $at_gate", 'jobq.max_concurrent lets three run');
$id = scalar_of("SELECT jobq.enqueue('note', priority => 100)");
my $health = scalar_of("SELECT jobq.health()->'checks'->'dispatcher'->>'status'");
is($health, 'healthy', 'the dispatcher has had its turn');
is(scalar_of("SELECT count(*) || ' ' || (SELECT status FROM jobq.jobs WHERE id = '$id') $at_gate"), '3 pending', 'and no fourth, whatever its type');
set_to('jobq.max_concurrent', 50);
wait_status($node, 'postgres', $id, 'completed', 'until the limit is raised');
wait_for_sql($node, "SELECT count(*) = 4 $at_gate", 'then all workers run');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
all_done('the gate is open');
is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE attempts <> 1 AND job_type <> 'again' AND status <> 'cancelled'"), 0, 'one attempt each');
$gate->quit;
$node->stop;
done_testing();
