# Dispatchers and SQL workers are terminated while jobs run: no job is lost or runs twice, and an
# attempt is charged only when the handler's worker was terminated for the second time.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

use constant { ROUNDS => 30, JOBS => 20_000 };

my $node = jobq_server('death', 'max_connections = 30', 'jobq.max_sql_workers = 4', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (n int);
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger VALUES ((p->>'n')::int)
$$;
CREATE FUNCTION gated(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1);
  INSERT INTO public.ledger VALUES ((p->>'n')::int);
END $$;
SELECT jobq.create_job_type('flow', 'note(jsonb)', max_attempts => 100, backoff => 'fixed', backoff_base => '10ms');
SELECT jobq.create_job_type('gated', 'gated(jsonb)', max_attempts => 3, backoff => 'fixed', backoff_base => '10ms',
                            max_concurrent => 3);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub terminate
{
	my ($pid) = @_;

	return scalar_of("SELECT pg_terminate_backend($pid)");
}

# ---------- one at a time, with handlers that block ----------

my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
scalar_of("SELECT count(*) FROM jobq.enqueue_many('gated',
  (SELECT array_agg(jsonb_build_object('n', -n)) FROM generate_series(1, 6) n))");
my $at_gate = "SELECT count(*) = 3 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
wait_for_sql($node, $at_gate, 'three handlers wait');
my @workers = jobq_pids($node, 'sql worker');
my $victim = dispatcher($node, 'postgres');
terminate($victim);
wait_dispatcher($node, 'postgres', 'a new dispatcher comes', $victim);
my $id = scalar_of(q{SELECT jobq.enqueue('flow', '{"n": 0}')});
wait_status($node, 'postgres', $id, 'completed', 'and hands out');
is(scalar_of("SELECT string_agg(status || ' ' || count, ', ') FROM jobq.count_by_status('gated') WHERE count > 0"),
	'pending 3, running 3', 'what its predecessor had handed out still runs, and no more than max_concurrent');
is_deeply([ grep { my $p = $_; grep { $_ == $p } jobq_pids($node, 'sql worker') } @workers ], \@workers,
	'in the same workers');

my ($worker, $job) = split /\|/, scalar_of(
	"SELECT substr(worker, 5), id FROM jobq.jobs WHERE job_type = 'gated' AND status = 'running' ORDER BY id LIMIT 1");
terminate($worker);
wait_for_sql($node, "SELECT runs > 1 OR error_code = '57P01' FROM jobq.jobs WHERE id = '$job'",
	'the job of a terminated worker ...');
wait_for_sql($node, $at_gate, 'another takes its place');

# a cancel that commits while there is no dispatcher
my $cancelled = scalar_of(
	"SELECT id FROM jobq.jobs WHERE job_type = 'gated' AND status = 'running' AND id <> '$job' ORDER BY id LIMIT 1");
$victim = dispatcher($node, 'postgres');
terminate($victim);
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $victim)", 'no dispatcher');
is(scalar_of("SELECT jobq.cancel_job('$cancelled')"), 't', 'a cancel meanwhile');
wait_status($node, 'postgres', $cancelled, 'cancelled', 'reaches the next one');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'all of them run');
is(scalar_of("SELECT string_agg(attempts::text, ' ' ORDER BY attempts) FROM jobq.jobs WHERE job_type = 'gated'"),
	'1 1 1 1 1 1', '... was not charged an attempt, nor was another');
is(scalar_of("SELECT runs || status::text FROM jobq.jobs WHERE id = '$job'"), '2completed', 'it has started twice');
is(scalar_of('SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger WHERE n < 0'), '5 5', '!each but the cancelled one did its work once');

# ---------- while jobs flow ----------

my $client = $node->background_psql('postgres');
my $killed_workers = 0;
my $per_round = int(JOBS / ROUNDS) + 1;
my $sent = 0;
foreach my $round (1 .. ROUNDS)
{
	my ($low, $high) = ($sent + 1, $sent + $per_round);

	$victim = dispatcher($node, 'postgres');
	# no waiting for the jobs: they are in all stages when it dies
	$client->query_safe("SELECT count(*) FROM jobq.enqueue_many('flow',
	  (SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series($low, $high) n))");
	$sent = $high;
	terminate($victim);
	terminate(jobq_pids($node, 'launcher')) if $round == 10;
	$killed_workers += terminate($_) eq 't' foreach $round % 3 ? () : jobq_pids($node, 'sql worker');
	# a call of jobq requests a dispatcher; the launcher alone would wait longer each time
	$node->poll_query_until('postgres', "SELECT jobq.health() IS NOT NULL AND count(*) = 1 AND min(pid) <> $victim"
		  . " FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'") or fail("dispatcher $round did not come back");
}
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'every job has run');

is(scalar_of('SELECT count(*) || \' \' || count(DISTINCT n) FROM ledger WHERE n > 0'), "$sent $sent",
	"$sent jobs, each did its work once");
is(scalar_of("SELECT count FROM jobq.count_by_status('flow') WHERE status = 'completed'"), $sent + 1,
	'jobq says so, too');
my $charged = scalar_of("SELECT coalesce(sum(attempts - 1), 0) FROM jobq.jobs WHERE job_type = 'flow'");
cmp_ok($charged, '<=', $killed_workers, "$killed_workers workers were terminated, at most as many attempts charged");
is(scalar_of("SELECT count(*) FROM jobq.jobs WHERE runs < attempts"), 0, 'runs count what attempts do');
like(scalar_of("SELECT string_agg(DISTINCT data->>'code', ' ') FROM jobq.events WHERE type = 'failed'"), qr/^(57P01)?$/,
	'and nothing else failed');
# a terminated process may not have exited yet
wait_for_sql($node, "SELECT count(*) <= 4 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'", 'no worker too many');
is(scalar_of("SELECT jobq.health()->'checks'->'dispatcher'->>'status'"), 'healthy', 'health() is content');
$gate->quit;
$client->quit;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|reinitializing/, 'nothing has shaken the server');
done_testing();
