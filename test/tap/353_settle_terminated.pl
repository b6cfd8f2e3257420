# The first termination of a worker from outside is not charged to its job: the job waits again at
# once and runs alone.  Later terminations are charged, so that a handler that terminates its own
# process ends in an error.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('terminated', 'jobq.max_sql_workers = 3', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE shared LOGIN;
CREATE TABLE gate (name text);
CREATE TABLE ledger (job uuid, xid xid8 DEFAULT pg_current_xact_id());
CREATE SEQUENCE first;
GRANT ALL ON gate, ledger TO PUBLIC;
GRANT ALL ON SEQUENCE first TO PUBLIC;
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  INSERT INTO public.ledger SELECT id FROM jobq.current_job();
END $$;
CREATE FUNCTION attacks(p jsonb) RETURNS void LANGUAGE sql AS $$
  SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()
$$;
CREATE FUNCTION ends_itself(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_terminate_backend(pg_backend_pid())';
CREATE FUNCTION ends_once(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.ledger SELECT id FROM jobq.current_job();
  IF p ? 'ends' AND nextval('public.first') = 1 THEN
    PERFORM pg_terminate_backend(pg_backend_pid());
  END IF;
END $$;
SELECT jobq.create_job_type(f, (f || '(jsonb)')::regprocedure, run_as => 'shared', max_attempts => 1, options => '{"events": "all"}')
  FROM unnest('{waits,attacks,ends_once}'::text[]) f;
SELECT jobq.create_job_type('ends_itself', 'ends_itself(jsonb)', backoff => 'fixed', backoff_base => '10ms');
SELECT jobq.create_job_type('retried', 'waits(jsonb)', backoff => 'fixed', backoff_base => '1 hour', backoff_jitter => 0);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub enqueue
{
	my ($type, $gate) = @_;

	return sql("SELECT jobq.enqueue('$type', '{\"gate\": \"$gate\"}')");
}

sub fate
{
	my ($id) = @_;

	return sql("SELECT concat_ws(' ', status, attempts, runs, error_code) FROM jobq.jobs WHERE id = '$id'");
}

sub ends
{
	my ($id, $expected, $what) = @_;

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$id'");
	return is(fate($id), $expected, $what);
}

# The process that runs the job, if it is not the given one.
sub runs
{
	my ($id, $former) = @_;
	my $other = defined $former ? " AND worker <> 'sql/$former'" : '';

	wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.jobs WHERE id = '$id' AND status = 'running'$other", 'it runs');
	return sql("SELECT split_part(worker, '/', 2) FROM jobq.jobs WHERE id = '$id'");
}

sub events
{
	my ($id) = @_;

	return sql("SELECT string_agg(type, ' ' ORDER BY id) FROM jobq.events WHERE job_id = '$id'");
}

sub open_gate { return sql("INSERT INTO gate VALUES ('$_[0]')"); }

# ---------- once ----------

my $job = enqueue('waits', 'once');
my $pid = runs($job);
sql("SELECT pg_terminate_backend($pid)");
runs($job, $pid);
open_gate('once');
ends($job, 'completed 1 2', 'its only attempt is not used up');
is(events($job), 'enqueued started released started completed', 'its events say that it was released');
is(sql("SELECT max(ts) FILTER (WHERE type = 'started') - max(ts) FILTER (WHERE type = 'released') < interval '20 s' FROM jobq.events WHERE job_id = '$job'"), 't',
	'and ran again at once');
like(sql("SELECT message FROM jobq.events WHERE job_id = '$job' AND type = 'released'"), qr/worker process was terminated/, 'and why');

$job = enqueue('waits', 'signal');
$pid = runs($job);
kill 'TERM', $pid;
runs($job, $pid);
open_gate('signal');
ends($job, 'completed 1 2', 'so with a SIGTERM from outside');

# ---------- twice ----------

$job = enqueue('waits', 'twice');
$pid = runs($job);
sql("SELECT pg_terminate_backend($pid)");
$pid = runs($job, $pid);
sql("SELECT pg_terminate_backend($pid)");
ends($job, 'error 1 2 57P01', 'the second time costs an attempt');

$job = enqueue('retried', 'later');
$pid = runs($job);
sql("SELECT pg_terminate_backend($pid)");
$pid = runs($job, $pid);
my $former = dispatcher($node, 'postgres');
sql("SELECT pg_terminate_backend($former)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
sql("SELECT pg_terminate_backend($pid)");
wait_status($node, 'postgres', $job, 'retry', 'and makes it wait, as the row remembers');
is(sql("SELECT error_code || (scheduled_for > now() + interval '50 min') FROM jobq.jobs WHERE id = '$job'"), '57P01true', 'for its backoff');
sql("SELECT jobq.retry_job('$job')");
$pid = runs($job);
sql("SELECT pg_terminate_backend($pid)");
runs($job, $pid);
open_gate('later');
ends($job, 'completed 1 4', 'retry_job resets the count');

$job = sql("SELECT jobq.enqueue('ends_itself')");
ends($job, 'error 3 4 57P01', 'a handler that always ends its own process ends as a dead letter');
is(sql("SELECT count(*) FROM jobq.events WHERE job_id = '$job' AND type = 'failed'"), '3', 'after three charged attempts');

# ---------- a handler that terminates workers of other tenants ----------

my $victim = enqueue('waits', 'victim');
$pid = runs($victim);
my $attacker = enqueue('attacks', '');
runs($victim, $pid);
open_gate('victim');
ends($victim, 'completed 1 2', 'a job with one attempt outlives an attack by its role');
ends($attacker, 'completed 1 1', 'which completes');

# ---------- alone ----------

sql('TRUNCATE ledger');
sql("SELECT jobq.enqueue_many('ends_once', array_agg('{}'::jsonb)) FROM generate_series(1, 300)");
$job = sql(q{SELECT jobq.enqueue('ends_once', '{"ends": true}')});
sql("SELECT jobq.enqueue_many('ends_once', array_agg('{}'::jsonb)) FROM generate_series(1, 300)");
ends($job, 'completed 1 2', 'one of many short jobs with a terminated worker');
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.queue)}, 'all of them run');
is(sql('SELECT count(*), count(DISTINCT job) FROM ledger'), '601|601', '!once');
is(sql("SELECT count(*) FROM ledger WHERE xid = (SELECT xid FROM ledger WHERE job = '$job')"), '1', 'it has run alone');
is(sql('SELECT max(attempts) FROM jobq.jobs WHERE job_type = \'ends_once\''), '1', 'and no other was charged');

$node->stop;
done_testing();
