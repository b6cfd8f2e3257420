# The dispatcher waits for no lock: not of indexes that it reads for rate limits, of the system
# catalogs of roles and databases, nor of TOAST.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('locks', 'max_prepared_transactions = 40', 'autovacuum = off', 'jobq.max_sql_workers = 1');
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(<<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('plain', 'nothing(jsonb)', keep_completed => '0');
CREATE FUNCTION runs(id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  began timestamptz := clock_timestamp();
BEGIN
  WHILE EXISTS (SELECT FROM jobq.queue q WHERE q.id = runs.id) AND clock_timestamp() < began + interval '20 s' LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN NOT EXISTS (SELECT FROM jobq.queue q WHERE q.id = runs.id);
END $$;
END
my $plain = sql("SELECT id FROM jobq.job_types WHERE name = 'plain'");
my $dispatcher = wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $session = $node->background_psql('postgres', on_error_stop => 1);
my $locker = $node->background_psql('postgres', on_error_stop => 1);

# A job runs while a lock is held; an existing session, which needs no lock, tests it.
sub runs
{
	my ($what, $type) = @_;
	my $id = $session->query_safe("SELECT jobq.enqueue('" . ($type // 'plain') . "')");

	is($session->query_safe("SELECT runs('$id')"), 't', "$what: a job runs");
	return is($session->query_safe("SELECT count(*) FROM pg_locks WHERE pid = $dispatcher AND NOT granted"), 0,
		"$what: the dispatcher waits for no lock");
}

runs('at first');

# --- rate limits: earlier starts are read from all tables of jobs, when the lock is free

sub limited_types
{
	my ($prefix) = @_;

	return sql("SELECT count(jobq.create_job_type('$prefix' || i, 'nothing(jsonb)', rate_limit => 5, rate_window => '1 day')) FROM generate_series(1, 30) i");
}

sql("SELECT jobq.create_job_type('kept', 'nothing(jsonb)')");
wait_for_sql($node, "SELECT count(*) > 0 FROM pg_inherits WHERE inhparent = 'jobq.history'::regclass", 'history has partitions');
my $partition = sql("SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'jobq.history'::regclass");
foreach my $what ('INDEX jobq.dead_letters_pkey', "TABLE $partition")
{
	my ($prefix) = $what =~ /\.(\w+)/;
	my $offset = -s $node->logfile;

	$locker->query_safe("BEGIN; REINDEX $what");
	limited_types($prefix);
	sql("SELECT count(jobq.enqueue('$prefix' || i)) FROM generate_series(1, 30) i");
	runs($what);
	is(sql("SELECT count(*) FROM jobq.queue WHERE type_id <> $plain"), 30, "$what: jobs with a rate limit wait");
	like(sql("SELECT jobq.health()"), qr/jobs of type \W+$prefix\d+\W+ wait: a locked table or index/, "$what: health() says why");
	unlike(slurp_file($node->logfile, $offset), qr/lock timeout/, "$what: no wait was ended by a timeout");
	$locker->query_safe('ROLLBACK');
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', "$what: they run when the lock is free");
}

# --- the registry, with a row so large that the dispatcher reads TOAST

sql("SELECT jobq.create_job_type('wide', command => ARRAY['/bin/true', string_agg(md5(i::text), '')]) FROM generate_series(1, 200) i");
cmp_ok(sql("SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'jobq.job_types'::regclass"), '>', 0, 'a row of job_types is in TOAST');
sql("SELECT jobq.enqueue('wide', delay => '1 day')");
runs('beside it');
$locker->query_safe('BEGIN; REINDEX TABLE jobq.job_types');
$node->reload;						# so that the registry is read again
is($session->query_safe("SELECT jobq.health()->'checks'->'dispatcher'->>'status'"), 'healthy', 'REINDEX TABLE job_types: the dispatcher answers');
is($session->query_safe("SELECT count(*) FROM pg_locks WHERE pid = $dispatcher AND NOT granted"), 0, 'and waits for no lock');
$locker->query_safe('ROLLBACK');
runs('after it');

# --- prepared transactions, more than are kept, while the table of roles is locked

$session->query_safe("BEGIN; SELECT jobq.enqueue('plain'); PREPARE TRANSACTION 'p$_'") foreach 1 .. 32;
$locker->query_safe('BEGIN; LOCK TABLE pg_authid, pg_database IN ACCESS EXCLUSIVE MODE');
$session->query_safe("BEGIN; SELECT jobq.enqueue('plain'); PREPARE TRANSACTION 'p33'");
runs('pg_authid');
$locker->query_safe('ROLLBACK');
$session->query_safe("COMMIT PREPARED 'p$_'") foreach 1 .. 33;
wait_for_sql($node, 'SELECT count(*) = 1 FROM jobq.queue', 'jobs of prepared transactions run');

is(dispatcher($node, 'postgres'), $dispatcher, 'all in the same dispatcher');
$_->quit foreach $session, $locker;
$node->stop;
done_testing();
