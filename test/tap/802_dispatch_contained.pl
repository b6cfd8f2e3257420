# An error in one type stops that type, a lock of one index delays its
# readers: the dispatcher continues.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('contained', 'jobq.max_sql_workers = 2', 'autovacuum = off', 'jobq.sweep_interval = 100ms',
	'jobq.max_databases = 1', 'dynamic_shared_memory_type = mmap');
$node->start;
sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sub wait_true
{
	my ($query, $what) = @_;

	return ok($node->poll_query_until('postgres', $query), $what);
}

sql('CREATE EXTENSION jobq', 'CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$',
	q{SELECT jobq.create_job_type('plain', 'work(jsonb)')});
my $dispatcher = wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub runs
{
	my ($type, $what) = @_;
	my $job = sql("SELECT jobq.enqueue('$type')");

	return wait_status($node, 'postgres', $job, 'completed', $what);
}

sub queues { return "jobq.health()->'checks'->'queues'->>'message'"; }

# ---------- rates take no dynamic shared memory ----------

my $dynamic = $node->data_dir . '/pg_dynshmem';
chmod 0500, $dynamic;
sql(q{SELECT jobq.create_job_type('rated', 'work(jsonb)', rate_limit => 1000)});
runs('rated', 'a type with a rate runs where no dynamic shared memory can be had');
runs('plain', 'and so do others');
is(dispatcher($node, 'postgres'), $dispatcher, 'in the same dispatcher');
chmod 0700, $dynamic;

# ---------- the memory for rates is used up ----------

# 512 blocks of 64: three windows of 10,000
sql(map { "SELECT jobq.create_job_type('large$_', 'work(jsonb)', rate_limit => 10000, rate_window => '1h')" } 1 .. 3);
runs("large$_", "large type $_ has its window") foreach 1 .. 3;
sql(q{SELECT jobq.create_job_type('large4', 'work(jsonb)', rate_limit => 10000, rate_window => '1h')},
	q{SELECT jobq.create_job_type('bucket', 'work(jsonb)', rate_limit => 10000, options => '{"burst": 10}')});
my $fourth = sql(q{SELECT jobq.enqueue('large4')});
wait_true('SELECT ' . queues() . q{ ~ 'jobs of type "large4" wait: the memory for rate windows is used up'}, 'health names the fourth');
runs('large1', 'the first goes on');
runs('bucket', 'a bucket takes little');
runs('plain', 'and types without a rate take none');
sql(q{SELECT jobq.drop_job_type('large2')});
wait_status($node, 'postgres', $fourth, 'completed', 'the fourth has its window when another type is dropped');
sql(q{SELECT jobq.set_limit('shared', rate_limit => 10000)},
	q{SELECT jobq.create_job_type('sharing', 'work(jsonb)', options => '{"limits": ["shared"]}')});
my $sharing = sql(q{SELECT jobq.enqueue('sharing')});
wait_true('SELECT ' . queues() . q{ ~ 'jobs of type "sharing" wait: the memory for rate'}, 'a shared limit has none: its type waits');
is(sql("SELECT status FROM jobq.jobs WHERE id = '$sharing'"), 'pending', 'and runs nothing');
sql(q{SELECT jobq.alter_job_type('large3', rate_limit => 100)});
wait_status($node, 'postgres', $sharing, 'completed', 'until there is room for it');
wait_true('SELECT ' . queues() . ' IS NULL', 'and health finds nothing');
is(dispatcher($node, 'postgres'), $dispatcher, 'in the same dispatcher');

# A window that grows beyond the memory keeps its starts.
sql(q{SELECT jobq.create_job_type('grows', 'work(jsonb)', rate_limit => 3, rate_window => '1h')});
runs('grows', 'a small window') foreach 1 .. 3;
sql(q{SELECT jobq.create_job_type('large5', 'work(jsonb)', rate_limit => 1000, rate_window => '1h')});
runs('large5', 'most of the rest is taken');
sql(q{SELECT jobq.alter_job_type('grows', rate_limit => 10000)});
my $grown = sql(q{SELECT jobq.enqueue('grows')});
wait_true('SELECT ' . queues() . q{ ~ 'jobs of type "grows" wait: the memory'}, 'it cannot grow');
sql(q{SELECT jobq.alter_job_type('grows', rate_limit => 3)});
wait_true('SELECT ' . queues() . ' IS NULL', 'it is small again');
is(sql("SELECT status FROM jobq.jobs WHERE id = '$grown'"), 'pending', 'and full, as before');
sql(q{SELECT jobq.drop_job_type('large1')}, q{SELECT jobq.alter_job_type('grows', rate_limit => 10000)});
wait_status($node, 'postgres', $grown, 'completed', 'and grows when there is room');

# ---------- locks on indexes ----------

my $patience = 150;
sql(<<'END');
CREATE ROLE manager LOGIN;
CREATE FUNCTION sleeps(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$;
SELECT jobq.create_job_type('sleeps', 'sleeps(jsonb)');
SELECT jobq.create_job_type('keyed', 'work(jsonb)', options => '{"key_order": "fifo"}');
SELECT jobq.set_limit('shared', 5);
END
my @indexes = split /\n/, sql(<<'END');
SELECT i.indexrelid::regclass FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind = 'r' AND NOT c.relispartition ORDER BY i.indrelid, 1
END
cmp_ok(scalar @indexes, '>=', 12, "indexes: @indexes");

# jobq's processes that wait for a lock
my $blocked = "SELECT string_agg(backend_type, ',') FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND wait_event_type = 'Lock'";
foreach my $index (@indexes)
{
	my $reindex = $node->background_psql('postgres', on_error_stop => 1);
	# its transaction has a lock of the queue; a cancel writes to that and reads dead letters
	my $sleeper = $index =~ /^jobq\.(queue|dead_letters)/ ? undef : sql("SELECT jobq.enqueue('sleeps')");
	wait_status($node, 'postgres', $sleeper, 'running', "$index: a handler runs") if $sleeper;
	my $keyed = sql("SELECT jobq.enqueue('keyed', concurrency_key => 'k', delay => '100ms')");
	$reindex->query_safe("BEGIN; REINDEX INDEX $index");
	$node->reload;				# so that the registry is read again
	my $health;
	my $seconds = seconds_of { $health = sql("SELECT jobq.health()->'checks'->'dispatcher'->>'status'") };
	is($health, 'healthy', 'the dispatcher answers while it is being rebuilt');
	cmp_ok($seconds, '<', $patience, sprintf 'in time (%.1f s)', $seconds);
	if ($sleeper)
	{
		is(sql("SELECT jobq.cancel_job('$sleeper')"), 't', 'a cancel is taken');
		wait_status($node, 'postgres', $sleeper, 'cancelled', 'and the handler ends');
		wait_status($node, 'postgres', $keyed, 'completed', 'a delayed job runs');
	}
	is(sql($blocked), '', 'the dispatcher waits for no lock');
	is(sql("SELECT jobq.health()->'checks'->'dispatcher'->>'status'"), 'healthy', 'and still answers');
	$reindex->query_safe('ROLLBACK');
	$reindex->quit;
	wait_status($node, 'postgres', $keyed, 'completed', 'a job with a key runs');
	runs('plain', 'and so do others');
}
is(dispatcher($node, 'postgres'), $dispatcher, 'in the same dispatcher');

# A cancel that has read the queue, and a REINDEX that waits for it, do not wait for each other.
sql(<<'END');
CREATE FUNCTION serves(tenant text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(42);
  RETURN true;
END $$;
SELECT jobq.set_tenant_check('serves(text)');
SELECT jobq.grant_access('manager', 'admin', tenant => 'a');
END
my $theirs = sql("SELECT jobq.enqueue('plain', tenant => 'b', delay => '1 day')");
my $gate = $node->background_psql('postgres', on_error_stop => 1);
$gate->query_safe('BEGIN; SELECT pg_advisory_xact_lock(42)');
my $manager = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'manager' ]);
$manager->query_until(qr/begun/, "\\echo begun\nSELECT 'answer: ' || jobq.cancel_job('$theirs');\n\\echo ended\n");
wait_true("SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'manager' AND wait_event = 'advisory'", 'a cancel reads the queue');
my $reindex = $node->background_psql('postgres', on_error_stop => 0);
$reindex->query_until(qr/begun/, "\\echo begun\nREINDEX INDEX jobq.queue_id;\n\\echo rebuilt\n");
wait_true("SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^REINDEX' AND wait_event_type = 'Lock'", 'REINDEX waits for it');
$gate->query_safe('COMMIT');
like($manager->query_until(qr/ended/, ''), qr/answer: true/, 'the job is cancelled');
$reindex->query_until(qr/rebuilt/, '');
is($manager->{stderr} . $reindex->{stderr}, '', 'and the index rebuilt: no deadlock');
$_->quit foreach $gate, $manager, $reindex;

# A REINDEX CONCURRENTLY comes between a handler's start and its enqueue: its own row keeps
# all indexes.
sql('CREATE TABLE seen (n int)', q{CREATE FUNCTION child_then_fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(43);
  INSERT INTO public.seen VALUES (1);
  PERFORM jobq.enqueue('plain', delay => '1 day');
  RAISE 'told to';
END $$}, q{SELECT jobq.create_job_type('childs', 'child_then_fails(jsonb)', backoff_base => '1h')});
my ($holder, $rebuild) = map { $node->background_psql('postgres') } 1 .. 2;
$holder->query_safe('SELECT pg_advisory_lock(43)');
my $child = sql(q{SELECT jobq.enqueue('childs')});
wait_true("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'advisory'", 'a handler waits');
$rebuild->query_until(qr/begun/, "\\echo begun\nREINDEX INDEX CONCURRENTLY jobq.queue_failed;\n\\echo rebuilt\n");
wait_true("SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^REINDEX' AND wait_event_type = 'Lock'", 'REINDEX CONCURRENTLY waits for it');
$holder->query_safe('SELECT pg_advisory_unlock(43)');
wait_status($node, 'postgres', $child, 'retry', 'it has enqueued, and failed');
$rebuild->query_until(qr/rebuilt/, '');
is(sql("SELECT error_msg FROM jobq.jobs WHERE id = '$child'"), 'told to', 'by its own error');
is(sql("SET enable_seqscan = off; SELECT count(*) FROM jobq.queue WHERE error_msg IS NOT NULL"), 1, 'and the index has its row');
$_->quit foreach $holder, $rebuild;

$node->stop;
my ($log) = slurp_file($node->logfile) =~ /\A(.*)received fast shutdown request/s;
unlike($log, qr/terminated by signal|PANIC|TRAP:|jobq dispatcher.*exited with exit code/, 'no process has crashed');
done_testing();
