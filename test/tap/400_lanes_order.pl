# The order of ready jobs beyond plain priorities: aging lets a job pass an endless stream of higher
# ones, fairness lets tenants take turns.  One worker, and the sweep is off.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('order', 'jobq.max_sql_workers = 1', "jobq.sweep_interval = '1h'", 'synchronous_commit = off', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ended (stream boolean);
CREATE FUNCTION stream(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM public.ended) THEN
    PERFORM jobq.enqueue('stream', priority => 10);
  END IF;
END $$;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('stream', 'stream(jsonb)', options => '{"max_depth": 1000000000}'),
  jobq.create_job_type('low', 'noop(jsonb)');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub status_of { return scalar_of("SELECT status FROM jobq.jobs WHERE id = '$_[0]'"); }

# Waits until that many more jobs of the stream have run.
sub stream_goes_on
{
	my ($jobs, $what) = @_;
	my $done = scalar_of("SELECT count(*) FROM jobq.history");

	return wait_for_sql($node, "SELECT count(*) >= $done + $jobs FROM jobq.history", $what);
}

# ---------- aging ----------

# a thousand jobs that each enqueue another: more than are handed to a worker in advance
scalar_of("SELECT count(*) FROM jobq.enqueue_many('stream', array_fill('{}'::jsonb, '{1000}'), priority => 10)");
stream_goes_on(1000, 'a stream of jobs of priority 10');
my $low = scalar_of("SELECT jobq.enqueue('low')");
stream_goes_on(3000, 'it goes on');
is(status_of($low), 'pending', 'the lower priority does not run');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": {"per": "1ms", "max": 9}}')});
stream_goes_on(3000, 'it goes on');
is(status_of($low), 'pending', 'nor has a job that has aged by nine and no further');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": {"per": "1ms", "max": 10}}')});
wait_status($node, 'postgres', $low, 'completed', 'aged by ten it goes, because it is older');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": {"per": "100ms", "max": 20}}')});
$low = scalar_of("SELECT jobq.enqueue('low')");
wait_status($node, 'postgres', $low, 'completed', 'a new one goes once it has aged');
cmp_ok(scalar_of("SELECT started_at - created_at >= '1s' FROM jobq.jobs WHERE id = '$low'"), 'eq', 't', 'not before');

scalar_of(q{SELECT jobq.alter_job_type('low', options => '{"aging": null}')});
$low = scalar_of("SELECT jobq.enqueue('low')");
stream_goes_on(3000, 'the stream goes on');
is(status_of($low), 'pending', 'without the option it waits');
scalar_of('INSERT INTO ended VALUES (true)');
wait_status($node, 'postgres', $low, 'completed', 'until the stream has ended');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'nothing is left');
is(scalar_of('SELECT count(*) FROM jobq.jobs WHERE attempts <> 1'), 0, 'no job was tried twice');

# ---------- fairness ----------

scalar_of(q{
CREATE TABLE ledger (seq int GENERATED ALWAYS AS IDENTITY, who text);
CREATE FUNCTION note() RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger (who) SELECT coalesce(tenant, job_type) FROM jobq.current_job()
$$;
SELECT jobq.create_job_type('shared', 'note()', options => '{"fair_by": "tenant"}'), jobq.create_job_type('other', 'note()');
});

sub enqueue
{
	my ($type, $tenant, $jobs, $priority) = @_;

	return scalar_of("SELECT count(*) FROM jobq.enqueue_many('$type', array_fill('{}'::jsonb, '{$jobs}'), tenant => '$tenant', priority => "
		  . ($priority // 0) . ')');
}

sub paused { return scalar_of("SELECT jobq.pause_job_type('$_[0]'), jobq.pause_job_type('other')"); }

# Lets all run, and returns the order of the first of them.
sub order_of
{
	my ($type, $first) = @_;

	scalar_of("BEGIN; TRUNCATE ledger; SELECT jobq.resume_job_type('$type'), jobq.resume_job_type('other'); COMMIT");
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'all have run');
	return scalar_of("SELECT string_agg(who, ' ' ORDER BY seq) FROM (SELECT * FROM ledger ORDER BY seq LIMIT $first) l");
}

paused('shared');
enqueue('shared', 'big', 5_000);
enqueue('shared', 'small', 1);
is(order_of('shared', 3), 'big small big', 'the first job of another tenant takes the second turn, in front of 4,999');
is(scalar_of('SELECT count(*) FROM ledger'), 5_001, 'and all run');

# From here each job's order counts: a run of more than 100 ms in a batch runs again, behind others.
scalar_of(q{SELECT jobq.alter_job_type(t, options => '{"batch": false}') FROM unnest('{shared,other}'::text[]) t});

paused('shared');
enqueue('shared', 'a', 4);
enqueue('shared', 'b', 2);
enqueue('other', '', 2);
enqueue('shared', 'c', 3);
is(order_of('shared', 20), 'a b c a b c a c a other other', 'turn by turn; its share beside another type is as without turns');

paused('shared');
enqueue('shared', 'a', 2);
enqueue('shared', 'b', 2);
enqueue('shared', 'a', 1, 5);
is(order_of('shared', 20), 'a a b a b', 'priority comes first, and each has its own turns');

paused('shared');
enqueue('shared', 'a', 3);
enqueue('shared', '', 2);
enqueue('shared', 'b', 1);
is(order_of('shared', 20), 'a shared b a shared a', 'jobs without a tenant are one more tenant');

# the option is set and removed while jobs wait
scalar_of(q{SELECT jobq.alter_job_type('shared', options => '{"fair_by": null}')});
paused('shared');
enqueue('shared', 'a', 3);
enqueue('shared', 'b', 1);
scalar_of(q{SELECT jobq.alter_job_type('shared', options => '{"fair_by": "tenant"}')});
enqueue('shared', 'c', 2);
is(order_of('shared', 20), 'a c a c a b', 'those that waited already take turns with the new ones as one');

paused('shared');
enqueue('shared', 'a', 3);
enqueue('shared', 'b', 2);
scalar_of(q{SELECT jobq.alter_job_type('shared', options => '{"fair_by": null}')});
enqueue('shared', 'c', 1);
is(order_of('shared', 20), 'a a a b b c', 'without the option all go by position, whatever their lane');

# dead letters come back to their tenant's lane
scalar_of(q{
CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT runs = 1 FROM jobq.current_job()) THEN RAISE 'not yet'; END IF;
  PERFORM public.note();
END $$;
SELECT jobq.create_job_type('mended', 'fails()', max_attempts => 1, options => '{"batch": false}');
});
enqueue('mended', 'a', 3);
enqueue('mended', 'b', 3);
wait_for_sql($node, 'SELECT count(*) = 6 FROM jobq.dead_letters', 'six dead letters');
scalar_of(q{SELECT jobq.alter_job_type('mended', options => '{"fair_by": "tenant"}')});
paused('mended');
is(scalar_of("SELECT jobq.retry_dead_letters('mended')"), 6, 'retried');
is(order_of('mended', 20), 'a b a b a b', 'they take turns, too');

is(scalar_of('SELECT count(DISTINCT jobq_internal._sublane(t.id, n::text)) BETWEEN 3000 AND 4096 FROM jobq.job_types t, generate_series(1, 20000) n' .
			" WHERE t.name = 'mended'"), 't', 'tenants are spread over all lanes and no more');

# ---------- memory ----------

# The memory of the dispatcher's lanes, by its own counters.
sub lanes_memory
{
	my $offset = -s $node->logfile;

	scalar_of('SELECT pg_log_backend_memory_contexts(' . dispatcher($node, 'postgres') . ')');
	$node->wait_for_log(qr/jobq lanes: .* used/, $offset);
	return slurp_file($node->logfile, $offset) =~ /jobq lanes: (\d+) total/ ? $1 : die 'no account';
}

scalar_of("SELECT jobq.create_job_type('crowd', 'noop(jsonb)', keep_completed => '0')");
my $empty = lanes_memory();
scalar_of("SELECT count(*) FROM generate_series(1, 60) p, jobq.enqueue_many('crowd', array_fill('{}'::jsonb, '{1100}'), priority => p)");
wait_for_sql($node, "SELECT count(*) = 0 FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name = 'crowd'",
	'sixty lanes of 1,100 jobs are drained');
my $drained = lanes_memory();
cmp_ok($drained - $empty, '<', 60 * 8192, "a lane that was drained keeps no buffer: $empty bytes before, $drained after");

$node->stop;
done_testing();
