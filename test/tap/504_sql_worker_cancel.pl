# Cancels of running and waiting jobs beside 2,000 short ones: a cancel
# reaches the named job, or none.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

use constant { JOBS => 2000, CANCELLERS => 3 };

my $node = jobq_server('cancel', 'max_connections = 30', 'jobq.max_sql_workers = 4', 'fsync = off');
$node->start;
# Most handlers take no time and share commits; some take some, so that a cancel finds them running.
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (n int);
CREATE TABLE asked (id uuid, said boolean);
CREATE FUNCTION short(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.ledger VALUES ((p->>'n')::int);
  IF p ? 'ms' THEN PERFORM pg_sleep((p->>'ms')::float8 / 1000); END IF;
END $$;
CREATE FUNCTION obstinate(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.ledger VALUES ((p->>'n')::int);
  BEGIN
    PERFORM pg_sleep(0.02);
  EXCEPTION WHEN query_canceled THEN NULL;
  END;
END $$;
SELECT jobq.create_job_type('short', 'short(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('obstinate', 'obstinate(jsonb)', max_attempts => 1);
-- Cancels the running jobs that may be cancelled, and every second time a waiting one, until told
-- to stop.
CREATE PROCEDURE cancel_around(worker int) LANGUAGE plpgsql AS $$
DECLARE
  victim uuid;
BEGIN
  WHILE EXISTS (SELECT FROM jobq.queue) LOOP
    FOR victim IN
      (SELECT id FROM jobq.jobs j WHERE status = 'running' AND payload ? 'victim'
          AND NOT EXISTS (SELECT FROM asked a WHERE a.id = j.id) ORDER BY random() LIMIT 1)
      UNION ALL
      (SELECT id FROM jobq.jobs j WHERE status = 'pending' AND payload ? 'victim' AND random() < 0.3
          AND NOT EXISTS (SELECT FROM asked a WHERE a.id = j.id) ORDER BY random() LIMIT 1)
    LOOP
      INSERT INTO asked VALUES (victim, jobq.cancel_job(victim, 'by ' || worker));
      COMMIT;
    END LOOP;
    COMMIT;
  END LOOP;
END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# every sixth may be cancelled; every fourth of all takes 1 to 8 ms, victims often do.  Two victims
# run, and three wait, until they are cancelled.
scalar_of(sprintf q{
  SELECT jobq.pause_job_type('short'), jobq.pause_job_type('obstinate');
  SELECT count(jobq.enqueue(CASE WHEN n %% 40 = 0 THEN 'obstinate' ELSE 'short' END, jsonb_strip_nulls(jsonb_build_object(
    'n', n, 'victim', CASE WHEN n %% 6 = 0 THEN true END,
    'ms', CASE WHEN n <= 12 AND n %% 6 = 0 THEN 1e7 WHEN n %% 4 = 0 OR n %% 6 = 0 THEN n %% 8 + 1 END)),
    delay => CASE WHEN n BETWEEN 18 AND 30 AND n %% 6 = 0 THEN '1 day' ELSE '0' END::interval))
    FROM generate_series(1, %d) n;
  SELECT jobq.resume_job_type('short'), jobq.resume_job_type('obstinate')}, JOBS);
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs WHERE payload->>'n' IN ('6', '12') AND status = 'running'}, 'two run for long');

my $seed = seed();
my $dir = PostgreSQL::Test::Utils::tempdir();
my @psql = map {
	IPC::Run::start([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'), '-c', setseed($seed, $_), '-c', "CALL cancel_around($_)" ],
		'2>', "$dir/$_.err")
} 1 .. CANCELLERS;
ok($_->finish, 'a canceller has done its part') or diag map { slurp_file($_) } glob "$dir/*.err" foreach @psql;
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'every job has ended');

my $asked = scalar_of('SELECT count(*) FROM asked');
my ($waiting, $running) = split /\|/, scalar_of(
	q{SELECT count(*) FILTER (WHERE started_at IS NULL), count(*) FILTER (WHERE started_at IS NOT NULL)
	    FROM jobq.jobs WHERE status = 'cancelled'});
note "$asked asked for, cancelled: $waiting waiting, $running running";
cmp_ok($waiting, '>=', 3, 'some were cancelled while they waited');
cmp_ok($running, '>=', 2, 'and some while they ran');
is(scalar_of(q{SELECT count(*) FROM jobq.jobs j WHERE status = 'cancelled' AND NOT EXISTS (SELECT FROM asked a WHERE a.id = j.id AND said)}),
	0, 'no job was cancelled for another one');
is(scalar_of(q{SELECT count(*) FROM jobq.jobs j WHERE NOT EXISTS (SELECT FROM asked a WHERE a.id = j.id)
	AND (status <> 'completed' OR attempts <> 1)}), 0, 'all other jobs are completed, in one attempt');
is(scalar_of(q{SELECT string_agg(DISTINCT status::text, ' ') FROM jobq.jobs WHERE status NOT IN ('completed', 'cancelled')}),
	'', 'and no job ended otherwise');
is(scalar_of(q{SELECT count(*) FROM jobq.events WHERE type IN ('failed', 'dead', 'retry_scheduled')}), 0, 'no attempt failed');
is(scalar_of(q{SELECT count(*) FROM asked a LEFT JOIN jobq.jobs j USING (id)
	WHERE j.status = 'cancelled' AND (j.error_msg IS NULL OR j.error_msg NOT LIKE 'by %')}), 0, 'each has the reason that was given');
is(scalar_of(q{SELECT count(*) FROM ledger l JOIN jobq.jobs j ON (j.payload->>'n')::int = l.n WHERE j.status = 'cancelled'}),
	0, 'writes of cancelled jobs are undone');
is(scalar_of('SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger'),
	scalar_of(q{SELECT count(*) || ' ' || count(*) FROM jobq.jobs WHERE status = 'completed'}), '!completed ones did their work once');
is(scalar_of('SELECT count(*) FROM jobq.jobs'), JOBS, 'and none is missing');
$node->stop;

# ---------- a cancel that arrives when its job waits again; the only worker is busy ----------

my $lone = jobq_server('lone', 'jobq.max_sql_workers = 1');
$lone->start;
$lone->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE go (i int);
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN WHILE NOT EXISTS (SELECT FROM public.go) LOOP PERFORM pg_sleep(0.01); END LOOP; RAISE EXCEPTION 'no'; END $$;
CREATE TABLE free (i int);
CREATE FUNCTION busy() RETURNS void LANGUAGE plpgsql AS $$
BEGIN WHILE NOT EXISTS (SELECT FROM public.free) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT jobq.create_job_type('fails', 'fails()', backoff_base => '1 h'), jobq.create_job_type('busy', 'busy()');
END
my $late = $lone->safe_psql('postgres', q{SELECT jobq.enqueue('fails')});
wait_status($lone, 'postgres', $late, 'running', 'a job runs');
my $canceller = $lone->background_psql('postgres');
$canceller->query_safe("BEGIN; SELECT jobq.cancel_job('$late', 'late')");
$lone->safe_psql('postgres', 'INSERT INTO go VALUES (1)');
wait_status($lone, 'postgres', $late, 'retry', 'it fails before the cancel is committed');
my $busy = $lone->safe_psql('postgres', q{SELECT jobq.enqueue('busy')});
wait_status($lone, 'postgres', $busy, 'running', 'the worker is busy with another');
$canceller->query_safe('COMMIT');
$canceller->quit;
$lone->safe_psql('postgres', 'INSERT INTO free VALUES (1)');
wait_status($lone, 'postgres', $late, 'cancelled', 'the cancel is not lost');

# The same, and another session has the row locked when the cancel is to be settled.
$lone->safe_psql('postgres', 'DELETE FROM go; DELETE FROM free');
$late = $lone->safe_psql('postgres', q{SELECT jobq.enqueue('fails')});
wait_status($lone, 'postgres', $late, 'running', 'another job runs');
($canceller, my $changer) = map { $lone->background_psql('postgres') } 1 .. 2;
$canceller->query_safe("BEGIN; SELECT jobq.cancel_job('$late', 'late')");
$lone->safe_psql('postgres', 'INSERT INTO go VALUES (1)');
wait_status($lone, 'postgres', $late, 'retry', 'it fails, too');
$changer->query_safe("BEGIN; SELECT jobq.alter_job('$late', priority => 5)");
my $found = $lone->safe_psql('postgres', 'SELECT fallbacks FROM jobq.stat_dispatcher');
$canceller->query_safe('COMMIT');
wait_for_sql($lone, "SELECT fallbacks > $found FROM jobq.stat_dispatcher", 'the worker finds it locked');
$changer->query_safe('COMMIT');
$_->quit foreach $canceller, $changer;
wait_status($lone, 'postgres', $late, 'cancelled', 'this cancel is not lost, either');
$lone->safe_psql('postgres', 'INSERT INTO free VALUES (1)');

# ---------- jobs of an open transaction, which ends while the call cancels others ----------

$lone->safe_psql('postgres', q{SELECT jobq.pause_job_type('busy'); SELECT jobq.enqueue('busy') FROM generate_series(1, 2)});
my ($holder, $history, $dropper) = map { $lone->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
$holder->query_safe('BEGIN; SELECT FROM jobq.queue WHERE id = (SELECT max(id::text)::uuid FROM jobq.queue) FOR UPDATE');
$history->query_safe('BEGIN; LOCK TABLE jobq.history');
$dropper->{stdin} .= "SELECT jobq.drop_job_type('busy', force => true);\n\\echo over\n";
$dropper->{run}->pump_nb;
wait_for_sql($lone, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%drop_job_type%' AND pid <> pg_backend_pid()
	AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '1.5 s'}, 'the first of its turns takes more than a second');
$holder->query_safe('COMMIT');
$history->query_safe('COMMIT');
$dropper->query_until(qr/over/, '');
is($lone->safe_psql('postgres', q{SELECT dropped_at IS NOT NULL FROM jobq.job_types WHERE name = 'busy'}), 't', 'it looks again')
  or note $dropper->{stderr};
$_->quit foreach $holder, $history, $dropper;
$lone->stop;
done_testing();
