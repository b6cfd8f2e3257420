# Timeouts of SQL handlers: a handler is cancelled; one that ignores the cancel is terminated with
# its process; the next jobs run.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('timeout', 'jobq.max_sql_workers = 1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE done (what text, pid int DEFAULT pg_backend_pid());
CREATE SEQUENCE begun;
CREATE FUNCTION sleeper(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM nextval('public.begun');
  INSERT INTO public.done VALUES (p->>'what');
  PERFORM pg_sleep((p->>'seconds')::float8);
END $$;
CREATE FUNCTION spinner(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.done VALUES (p->>'what');
  LOOP
  END LOOP;
END $$;
CREATE FUNCTION stubborn(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    BEGIN
      PERFORM pg_sleep(600);
    EXCEPTION WHEN query_canceled THEN NULL;
    END;
  END LOOP;
END $$;
CREATE FUNCTION catcher(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(600);
  RETURN '"slept"';
EXCEPTION WHEN query_canceled THEN
  RETURN '"caught"';
END $$;
-- Catches three cancels, and returns when each came.
CREATE SEQUENCE caught;
CREATE FUNCTION counter(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  times float8[];
BEGIN
  WHILE coalesce(cardinality(times), 0) < 3 LOOP
    BEGIN
      PERFORM pg_sleep(600);
    EXCEPTION WHEN query_canceled THEN
      times := times || extract(epoch FROM clock_timestamp())::float8;
      PERFORM nextval('public.caught');
    END;
  END LOOP;
  RETURN to_jsonb(times);
END $$;
SELECT jobq.create_job_type(f, (f || '(jsonb)')::regprocedure, timeout => '300ms', max_attempts => 2, backoff => 'fixed',
  backoff_base => '10ms', options => CASE f WHEN 'stubborn' THEN jsonb '{"permanent_codes": ["timeout"]}' ELSE '{}' END)
  FROM unnest('{sleeper,spinner,stubborn,catcher}'::text[]) f;
SELECT jobq.create_job_type('quick', 'sleeper(jsonb)');
SELECT jobq.create_job_type('counter', 'counter(jsonb)', timeout => '2s', max_attempts => 1);
SELECT jobq.create_job_type('patient', 'sleeper(jsonb)', timeout => '1 min');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub enqueue
{
	my ($type, $payload, $args) = @_;

	return $node->safe_psql('postgres', "SELECT jobq.enqueue('$type', '$payload'" . ($args // '') . ')');
}

sub ends
{
	my ($id, $expected, $what) = @_;

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'cancelled', 'error') FROM jobq.jobs WHERE id = '$id'");
	return is($node->safe_psql('postgres', "SELECT concat_ws(' ', status, attempts, error_code) FROM jobq.jobs WHERE id = '$id'"),
		$expected, $what);
}

sub message
{
	my ($id) = @_;

	return $node->safe_psql('postgres', "SELECT error_msg FROM jobq.jobs WHERE id = '$id'");
}

my $slow = enqueue('sleeper', '{"what": "slow", "seconds": 600}');
ends($slow, 'error 2 timeout', 'a handler over its timeout fails');
like(message($slow), qr/^timeout after 00:00:00.3/, 'its message says after how long');
is($node->safe_psql('postgres', q{SELECT count(*) FROM done}), '0', 'its writes are gone');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_id = '$slow' AND type = 'failed' AND data->>'code' = 'timeout'"
		  . q{ AND (data->>'duration_ms')::float8 BETWEEN 290 AND 20000}), '2', 'each attempt has its event');
ends(enqueue('spinner', '{"what": "spinner"}'), 'error 2 timeout', 'so does one that computes');
ends(enqueue('patient', '{"what": "in time", "seconds": 1.5}'), 'completed 1', 'one within its timeout does not');
# on a slow machine it may lose an attempt
my $brief = enqueue('sleeper', '{"what": "brief", "seconds": 0.01}', q{, max_attempts => 100});
wait_status($node, 'postgres', $brief, 'completed', 'nor one within a short one');
ends(enqueue('sleeper', '{"what": "own", "seconds": 0.5}', q{, timeout => '1 min'}), 'completed 1', 'the job has its own timeout');
ends(enqueue('sleeper', '{"what": "none", "seconds": 0.5}', q{, timeout => '0'}), 'completed 1', '0 is none');
ends(enqueue('quick', '{"what": "short", "seconds": 600}', q{, timeout => '200ms', max_attempts => 1}), 'error 1 timeout', 'or a shorter one');

# a handler that catches its cancel and returns keeps its outcome; the cancel reaches no other job
my $caught = enqueue('catcher', '{}');
ends($caught, 'completed 1', 'a handler that catches the cancel and returns completes');
ends(enqueue('quick', '{"what": "after catcher", "seconds": 0.3}'), 'completed 1', 'the next job is not hit');

# a handler that continues is terminated with its process
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('stubborn', max_attempts => 1)});
my $pid = $node->safe_psql('postgres', q{SELECT pid FROM done WHERE what = 'after catcher'});
my $began = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
my $stubborn = enqueue('stubborn', '{}');
my $behind = enqueue('quick', '{"what": "behind", "seconds": 0}');
ends($stubborn, 'error 1 timeout', 'one that goes on is ended and charged');
like(message($stubborn), qr/^timeout after 00:00:00.3/, 'its message reports it');
ends($behind, 'completed 1', 'the job behind it runs');
isnt($node->safe_psql('postgres', q{SELECT pid FROM done WHERE what = 'behind'}), $pid, 'in another process');
is($node->safe_psql('postgres', "SELECT clock_timestamp() - '$began' < interval '60 s'"), 't', 'all that in time');

# Asserts that so many counters have ended, each with three cancels that came one after the other.
sub counted
{
	my ($jobs, $what) = @_;

	wait_for_sql($node, "SELECT count(*) = $jobs FROM jobq.jobs WHERE job_type = 'counter' AND status IN ('completed', 'error')",
		"$what have ended");
	is($node->safe_psql('postgres', q{SELECT concat_ws(' ', status, attempts, error_code), count(*) FROM jobq.jobs
		  WHERE job_type = 'counter' GROUP BY 1}), "completed 1|$jobs", 'none was hit while it handled a cancel');
	return cmp_ok($node->safe_psql('postgres', q{SELECT min(least(b - a, c - b)) FROM jobq.jobs,
		LATERAL (SELECT (result->>0)::float8 AS a, (result->>1)::float8 AS b, (result->>2)::float8 AS c) t WHERE job_type = 'counter'}),
		'>', 0.5, 'no two cancels came within half a second');
}

# The worker and the dispatcher both watch the timeout, and one of them cancels: first the
# dispatcher comes late, when the handler has just caught its second cancel; then many handlers are
# beside a dispatcher that is awake.
my $counter = enqueue('counter', '{}');
wait_status($node, 'postgres', $counter, 'running', 'a handler that counts its cancels runs');
my $late = dispatcher($node, 'postgres');
kill 'STOP', $late;
wait_for_sql($node, 'SELECT is_called AND last_value > 1 FROM caught', 'it has caught two while the dispatcher stands still');
kill 'CONT', $late;
counted(1, 'a late dispatcher:');
$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.max_sql_workers = 10');
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
$node->safe_psql('postgres', q{SELECT jobq.enqueue('counter', '{}') FROM generate_series(1, 30)});
counted(31, 'many');

# a cancel by its user
my $running = enqueue('sleeper', '{"what": "cancelled", "seconds": 600}', q{, timeout => '0'});
wait_status($node, 'postgres', $running, 'running', 'a job runs');
is($node->safe_psql('postgres', "SELECT jobq.cancel_job('$running', 'enough')"), 't', 'cancel_job');
ends($running, 'cancelled 1', 'it is cancelled');
is(message($running), 'enough', 'for the reason given');

# a cancel signal from outside: the first time the job runs again at no charge
my $begun = $node->safe_psql('postgres', 'SELECT last_value FROM begun');
$running = enqueue('sleeper', '{"what": "stray", "seconds": 3}', q{, timeout => '0'});
wait_for_sql($node, q{SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'PgSleep'}, 'its handler is cancelled');
ends($running, 'completed 1', 'a stray cancel costs no attempt');
is($node->safe_psql('postgres', 'SELECT last_value FROM begun') - $begun, 2, 'though its handler has run twice');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
