# The kill switch: no job starts while it is on, also after restarts; drain waits for running jobs,
# and no longer than its timeout.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('stop', 'jobq.max_sql_workers = 2');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION short(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('short', 'short(jsonb)');
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sleep', '{seconds}'], options => '{"output": "none"}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub count { return $node->safe_psql('postgres', "SELECT count(*) FROM jobq.jobs WHERE status = '$_[0]'"); }

sub queues { return $node->safe_psql('postgres', "SELECT jobq.health() -> 'checks' -> 'queues' ->> '$_[0]'"); }

sub handed_out { return $node->safe_psql('postgres', 'SELECT handed_out FROM jobq.stat_dispatcher'); }

# Enqueues jobs and tests that none starts: once the dispatcher has answered
# health() twice, it has handled them.
sub nothing_starts
{
	my ($what) = @_;
	my $n = 5;
	my $before = handed_out();

	$node->safe_psql('postgres', "SELECT jobq.enqueue('short') FROM generate_series(1, $n)");
	$node->safe_psql('postgres', 'SELECT jobq.health()') for 1 .. 2;
	is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.jobs WHERE job_type = 'short' AND started_at IS NULL"),
		$n, "$what: nothing starts");
	is(handed_out(), $before, "$what: nor is a job handed out");
	$node->safe_psql('postgres', "SELECT jobq.cancel_jobs('short')");
	$node->safe_psql('postgres', "DELETE FROM jobq.history");
	return;
}

# ---------- stop_all, start_all ----------

is(queues('stopped'), 'false', 'not stopped');
my $running = $node->safe_psql('postgres', "SELECT jobq.enqueue('waiter')");
wait_status($node, 'postgres', $running, 'running', 'a handler runs');
$node->safe_psql('postgres', "BEGIN; SELECT jobq.stop_all('never'); ROLLBACK");
my $done = $node->safe_psql('postgres', "SELECT jobq.enqueue('short')");
wait_status($node, 'postgres', $done, 'completed', 'a rolled back stop stops nothing');
$node->safe_psql('postgres', 'DELETE FROM jobq.history');

$node->safe_psql('postgres', "SELECT jobq.stop_all('the disk is on fire')");
nothing_starts('stopped');
is(queues('stopped'), 'true', 'health says stopped');
like(queues('message'), qr/the disk is on fire/, 'and why');
is(queues('status'), 'degraded', 'which is no good health');
wait_status($node, 'postgres', $running, 'running', 'running jobs continue');
my $id = $node->safe_psql('postgres', "SELECT jobq.enqueue('short')");
sqlstate_is($node, 'postgres', "SELECT jobq.run_inline('$id')", '55000', 'run_inline while stopped');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$id', 'not needed')");
is($node->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$id'"), 'cancelled', 'a cancel is settled');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$running', 'not needed')");
wait_status($node, 'postgres', $running, 'cancelled', 'so is one of a running job');
$node->safe_psql('postgres', 'DELETE FROM jobq.history');

my $pid = dispatcher($node, 'postgres');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $pid);
nothing_starts('after the dispatcher died');
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher after a restart');
nothing_starts('after a restart');
like(queues('message'), qr/the disk is on fire/, 'the reason is kept');

$node->safe_psql('postgres', "SELECT jobq.stop_all('still')");
like(queues('message'), qr/stopped: still/, 'another reason');
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('short')");
$node->safe_psql('postgres', 'SELECT jobq.start_all()');
wait_status($node, 'postgres', $id, 'completed', 'start_all lets the waiting run');
is(queues('stopped'), 'false', 'health() reports it');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');

# ---------- drain ----------

is($node->safe_psql('postgres', 'SELECT jobq.drain()'), 't', 'drain of an idle queue');
nothing_starts('drained');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');

my @ids = split /\n/, $node->safe_psql('postgres', "SELECT jobq.enqueue('waiter') UNION ALL SELECT jobq.enqueue('tool', '{\"seconds\": 600}')");
wait_status($node, 'postgres', $_, 'running', 'a job runs') foreach @ids;
my $seconds = seconds_of { is($node->safe_psql('postgres', "SELECT jobq.drain('300ms')"), 'f', 'drain gives up') };
cmp_ok($seconds, '>=', 0.3, 'not before its time');
cmp_ok($seconds, '<', 120, 'nor when the tool ends, after ten minutes');
note(sprintf 'drain(300 ms): %.2f s', $seconds);
is(queues('stopped'), 'true', 'the queue stays stopped');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ('open')");
wait_status($node, 'postgres', $ids[0], 'completed', 'the handler ends');
is($node->safe_psql('postgres', "SELECT jobq.drain('0')"), 'f', 'the tool still runs');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');
my $drain = $node->background_psql('postgres');
$drain->query_until(qr/began/, "\\echo began\nSELECT jobq.drain('15min') AS drained;\n");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%AS drained%' AND pid <> pg_backend_pid() AND wait_event = 'Extension'", 'drain waits');

# drain calls do not wait for each other, and drain returns the state at its end
is($node->safe_psql('postgres', "SET lock_timeout = '60s'; SELECT jobq.stop_all('meanwhile')"), '', 'stop_all does not wait for a drain');
like(queues('message'), qr/stopped: meanwhile/, 'health() reports it');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');
is($node->safe_psql('postgres', "SELECT jobq.drain('0')"), 'f', 'another drain');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');
is(queues('stopped'), 'true', 'health says that nothing starts, though no row does');
like(queues('message'), qr/drain/, 'and why');
nothing_starts('beside a drain');
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$ids[1]')");
like($drain->query('SELECT 1'), qr/^t$/m, 'drain is notified of the last end');
is(queues('stopped'), 'true', 'and stops all');
$drain->quit;
$node->safe_psql('postgres', 'SELECT jobq.start_all()');

# stopped at once, not at commit; and not stopped at all when it is rolled back
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
is($session->query_safe('SELECT jobq.drain()'), 't', 'drain in a transaction');
nothing_starts('in an open drain');
$session->query_safe('ROLLBACK');
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('short')");
wait_status($node, 'postgres', $id, 'completed', 'its rollback starts all again');
$session->query_safe('BEGIN');
$session->query_safe('SAVEPOINT a');
$session->query_safe('SELECT jobq.drain()');
$session->query_safe('SAVEPOINT b');
$session->query_safe('SELECT jobq.drain()');
$session->query_safe('ROLLBACK TO b');
nothing_starts('a drain in a drain is rolled back');
$session->query_safe('ROLLBACK TO a');
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('short')");
wait_status($node, 'postgres', $id, 'completed', 'the savepoint\'s rollback starts all again');
$session->query_safe('SELECT jobq.drain()');
nothing_starts('and it can be drained again');
$session->query_safe('ROLLBACK');
$session->query_safe('BEGIN');
$session->query_safe('SELECT jobq.drain()');
$session->query_safe('COMMIT');
nothing_starts('after its commit');
$node->safe_psql('postgres', 'SELECT jobq.start_all()');

# Jobs that a worker has not begun are taken back while a job of higher rank waits for their end.
# The sweep would find that job.
$session->quit;
$node->append_conf('postgresql.conf', "jobq.sweep_interval = '1h'");
$node->restart;
wait_dispatcher($node, 'postgres', 'a dispatcher that does not sweep');
$session = $node->background_psql('postgres');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('single', 'short(jsonb)', options => '{"batch": false}'); TRUNCATE gate});
@ids = split /\n/, $node->safe_psql('postgres', "SELECT jobq.enqueue('waiter') FROM generate_series(1, 2)");
wait_status($node, 'postgres', $_, 'running', 'a worker is there') foreach @ids;
$node->safe_psql('postgres', "INSERT INTO gate VALUES ('open')");
wait_status($node, 'postgres', $_, 'completed', 'and free') foreach @ids;
my @workers = jobq_pids($node, 'sql worker');
is(scalar(@workers), 2, 'all workers there may be');
kill 'STOP', @workers;
@ids = split /\n/, $node->safe_psql('postgres', "SELECT jobq.enqueue('single') FROM generate_series(1, 2)");
$node->safe_psql('postgres', 'SELECT jobq.health()') for 1 .. 2;
push @ids, $node->safe_psql('postgres', "SELECT jobq.enqueue('single', priority => 5)");
$node->safe_psql('postgres', 'SELECT jobq.health()') for 1 .. 2;
$session->query_safe('BEGIN');
$session->query_safe('SAVEPOINT a');
is($session->query_safe('SELECT jobq.drain()'), 't', 'nothing runs');
kill 'CONT', @workers;
$session->query_safe('ROLLBACK TO a');
wait_status($node, 'postgres', $_, 'completed', 'they go on') foreach @ids;
is(join(' ', jobq_pids($node, 'sql worker')), "@workers", 'at once, not when an idle worker leaves');
$session->query_safe('ROLLBACK');
$session->quit;

$node->safe_psql('postgres', <<'END');
CREATE FUNCTION drains(p jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM jobq.drain(); END';
SELECT jobq.create_job_type('drains', 'drains(jsonb)', max_attempts => 1);
END
$id = $node->safe_psql('postgres', "SELECT jobq.enqueue('drains')");
wait_status($node, 'postgres', $id, 'error', 'a handler cannot drain');
is($node->safe_psql('postgres', "SELECT error_code FROM jobq.jobs WHERE id = '$id'"), '55000', 'and gets the error code');
sqlstate_is($node, 'postgres', "BEGIN; SELECT jobq.drain(); PREPARE TRANSACTION 'x'", '0A000', 'a drain cannot be prepared');
is(queues('stopped'), 'false', 'and does not last then');

$node->stop;
done_testing();
