# What is wrong with one type, or one table's index, stops that type or waits for that index: not the dispatcher.

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

# A window that grows beyond the room keeps what it has seen.
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

# ---------- a row of the registry that cannot be read ----------

sql(q{SELECT jobq.create_job_type('odd', 'work(jsonb)')}, q{SELECT jobq.pause_job_type('odd')});
my $odd = sql(q{SELECT jobq.enqueue('odd')});
sub set_filled
{
	return "UPDATE pg_attribute SET attnotnull = $_[0] WHERE attrelid = 'jobq.job_types'::regclass AND attname = 'backoff'";
}
sql('BEGIN', set_filled('false'), "UPDATE jobq.job_types SET backoff = NULL, paused = false WHERE name = 'odd'", set_filled('true'), 'COMMIT');
wait_true('SELECT ' . queues() . q{ ~ 'jobs of type [0-9]+ wait: column "backoff" of jobq.job_types is NULL'}, 'health says why its jobs wait');
runs('plain', 'the others go on');
is(dispatcher($node, 'postgres'), $dispatcher, 'in the same dispatcher');
sql(q{UPDATE jobq.job_types SET backoff = 'fixed' WHERE name = 'odd'});
wait_status($node, 'postgres', $odd, 'completed', 'and it runs when it can be read');

$node->stop;
my ($log) = slurp_file($node->logfile) =~ /\A(.*)received fast shutdown request/s;
unlike($log, qr/terminated by signal|PANIC|TRAP:|jobq dispatcher.*exited with exit code/, 'no process has crashed');
done_testing();
