# Jobs kept for any length of time need few partitions, and no client's transaction creates one: it
# would block the maintenance process while it is open.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('partition_bomb', 'jobq.max_sql_workers = 2', "jobq.sweep_interval = '100ms'");
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]) }

my $setup = <<'END';
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
SELECT jobq.create_job_type('job', 'ok(jsonb)', options => '{"events": "all"}');
END
my $count = q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'jobq.history'::regclass};
like($node->safe_psql('postgres', "BEGIN; $setup SELECT (jobq.run_inline(jobq.enqueue('job', keep_completed => '60 days'))).status; ROLLBACK"),
	qr/^completed$/m, 'in the transaction that creates the extension a client makes its own');
sql($setup);
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- transactions of clients ----------

my $session = $node->background_psql('postgres', on_error_stop => 1);
my $pid = $session->query_safe('SELECT pg_backend_pid()');
my $locks = qq{SELECT count(*) FROM pg_locks WHERE pid = $pid AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
  AND relation IN (SELECT oid FROM pg_class WHERE relname ~ '^(history|events|alerts)')};

# Runs the statement in an open transaction, on a job with that retention; it must need a partition.
sub holds_nothing
{
	my ($keep, $statement, $what) = @_;
	my $before = sql($count);

	$session->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.jobs; $statement");
	cmp_ok(sql($count), '>', $before, "$what: another session sees the new partition");
	is(sql($locks), 0, "$what: it holds no lock that keeps others from making one");
	# maintenance may have the lock for a moment
	sql("SET lock_timeout = '20s'; BEGIN; LOCK TABLE ONLY jobq.history, jobq.events, jobq.alerts IN SHARE UPDATE EXCLUSIVE MODE; COMMIT");
	my $id = sql("SELECT jobq.enqueue('job', keep_completed => '$keep')");
	wait_status($node, 'postgres', $id, 'completed', "$what: meanwhile a job gets its partition");
	return;
}

my @ids = split /\n/, sql(q{SELECT jobq.enqueue('job', keep_completed => k::interval, delay => '1h') FROM unnest('{90 days,3 years,30 years}'::text[]) k});
holds_nothing('150 days', "SELECT jobq.cancel_job('$ids[0]')", 'cancel_job');
$session->query_safe('COMMIT');
holds_nothing('5 years', "SELECT (jobq.run_inline('$ids[1]')).status", 'run_inline');
is($session->query_safe("SELECT status FROM jobq.jobs WHERE id = '$ids[1]'"), 'completed', 'run_inline: its own transaction sees the job');
$session->query_safe('ROLLBACK');
is(sql("SELECT status FROM jobq.jobs WHERE id = '$ids[1]'"), 'pending', 'run_inline: and can take it back');
holds_nothing('200 days', "SELECT jobq.create_job_type('kept', 'ok(jsonb)', keep_completed => '400 years')", 'create_job_type');
$session->query_safe('COMMIT');
is(sql("SELECT count(*) FROM jobq.history WHERE id = '$ids[0]' AND expires_at = completed_at + interval '90 days'"), 1, 'a cancelled job is in history');

# The table is locked: the client waits, and can be cancelled.
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE ONLY jobq.history IN SHARE UPDATE EXCLUSIVE MODE');
sqlstate_is($node, 'postgres', "SET statement_timeout = '300ms'; SELECT jobq.cancel_job('$ids[2]')", '57014', 'a client that waits for a partition can be cancelled');
$session->query_until(qr/started/, "\\echo started\nSELECT 'ended: ' || jobq.cancel_job('$ids[2]');\n");
wait_for_sql($node, "SELECT state = 'active' AND wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $pid", 'it waits');
$holder->query_safe('COMMIT');
is($session->query_safe("SELECT status FROM jobq.jobs WHERE id = '$ids[2]'") =~ /cancelled/, 1, 'until the table is free');
$session->quit;
# ... but not for a lock of its own.
is(sql(q{BEGIN; LOCK TABLE jobq.history IN SHARE ROW EXCLUSIVE MODE; SELECT jobq.cancel_job(jobq.enqueue('job', keep_completed => '5000 years', delay => '1h')); COMMIT}),
	't', 'a client that has locked the table itself makes the partition');
$holder->quit;

# ---------- many different retention times ----------

sql(q{SELECT jobq.enqueue('job', '{"bomb": true}', keep_completed => n * interval '1 day') FROM generate_series(1, 900) n});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE scheduled_for <= now())', '900 jobs end, each kept for another number of days');
is(sql(q{SELECT count(*) || ' ' || bool_and(expires_at = completed_at + keep_completed) FROM jobq.history WHERE payload ? 'bomb'}), '900 true', 'history says exactly until when');
my $partitions = sql($count);
cmp_ok($partitions, '<=', 100, "they need few partitions ($partitions)");
is(sql(q{SELECT count(*) FROM jobq_internal._partitions('jobq.history') a JOIN jobq_internal._partitions('jobq.history') b ON a.low < b.high AND b.low < a.high AND a.partition <> b.partition}),
	0, 'which do not overlap');
sql(q{SELECT jobq.enqueue('job', keep_completed => n * interval '1 day', delay => '1h') FROM generate_series(1, 900) n});
cmp_ok(sql(q{SELECT jobq.cancel_jobs('job')}), '>=', 900, 'an administrator cancels as many in one transaction');
cmp_ok(sql($count), '<=', 100, 'which need no more');

# A dump contains partitions of all widths.
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
is($node->safe_psql('restored', $count), sql($count), 'a restored dump has them all');
$node->safe_psql('restored', 'SELECT jobq.adopt()');
my $id = $node->safe_psql('restored', q{SELECT jobq.enqueue('job', keep_completed => '700 days')});
wait_status($node, 'restored', $id, 'completed', 'and uses them');

# Without a dispatcher, and without jobq in shared memory, a client gets its partition, too.
foreach my $settings ("jobq.databases = '-'", "shared_preload_libraries = ''", "max_worker_processes = 0")
{
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
	my $before = sql($count);
	is(sql("SELECT jobq.cancel_job(jobq.enqueue('job', keep_completed => k::interval, delay => '1h')) FROM (VALUES ('40 years'), ('150 years')) v(k)"),
		"t\nt", "$settings: cancel_job has a partition");
	cmp_ok(sql($count), '>', $before, "$settings: a new one");
	sql(q{DO $$ DECLARE p regclass; BEGIN FOR p IN SELECT partition FROM jobq_internal._partitions('jobq.history') WHERE low > now() + interval '30 years' LOOP
	  EXECUTE format('DROP TABLE %s', p); END LOOP; END $$});
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminating any other active|out of shared memory/, 'no process was hurt');
$node->stop;
done_testing();
