# Jobs kept for any length of time need few partitions, and none waits for one: a row that no
# partition holds goes to the default one, and no client's transaction keeps maintenance from making
# partitions.

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
my $count = q{SELECT count(*) FROM jobq_internal._partitions('jobq.history')};
my $missing = 'SELECT NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())';
like($node->safe_psql('postgres', "BEGIN; $setup SELECT (jobq.run_inline(jobq.enqueue('job', keep_completed => '60 days'))).status; ROLLBACK"),
	qr/^completed$/m, 'in the transaction that creates the extension, too');
sql($setup);
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- transactions of clients ----------

my $session = $node->background_psql('postgres', on_error_stop => 1);
my @ids = split /\n/, sql(q{SELECT jobq.enqueue('job', keep_completed => k::interval, delay => '1h') FROM unnest('{90 days,3 years,30 years}'::text[]) k});
wait_for_sql($node, $missing, 'maintenance makes the partitions of the type');

# Runs the statement in an open transaction that has read all jobs: no settlement waits for that.
sub delays_nothing
{
	my ($keep, $statement, $what) = @_;

	$session->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.jobs; $statement");
	my $id = sql("SELECT jobq.enqueue('job', keep_completed => '$keep')");
	wait_status($node, 'postgres', $id, 'completed', "$what: meanwhile a job ends");
	is(sql("SELECT tableoid::regclass FROM jobq.history WHERE id = '$id'"), 'jobq.history_default', "$what: its row has no other partition");
	return;
}

delays_nothing('150 days', "SELECT jobq.cancel_job('$ids[0]')", 'cancel_job');
$session->query_safe('COMMIT');
delays_nothing('5 years', "SELECT (jobq.run_inline('$ids[1]')).status", 'run_inline');
is($session->query_safe("SELECT status FROM jobq.jobs WHERE id = '$ids[1]'"), 'completed', 'run_inline: its own transaction sees the job');
$session->query_safe('ROLLBACK');
is(sql("SELECT status FROM jobq.jobs WHERE id = '$ids[1]'"), 'pending', 'run_inline: and can take it back');
delays_nothing('200 days', "SELECT jobq.create_job_type('kept', 'ok(jsonb)', keep_completed => '400 years')", 'create_job_type');
$session->query_safe('COMMIT');
is(sql("SELECT count(*) FROM jobq.history WHERE id = '$ids[0]' AND expires_at = completed_at + interval '90 days'"), 1, 'a cancelled job is in history');
my $far = q{SELECT EXISTS (SELECT FROM jobq_internal._partitions('jobq.history') WHERE now() + interval '400 years' >= low AND now() + interval '400 years' < high)};
wait_for_sql($node, $far, 'a new type gets its partitions');
wait_for_sql($node, $missing, 'and so do the retention times of jobs');

# An open transaction that has read history holds the default partition: maintenance waits a moment
# only, makes the others, and tries again.
$session->query_safe('BEGIN; SELECT count(*) FROM jobq.jobs');
sql(q{SELECT jobq.create_job_type('longer', 'ok(jsonb)', keep_completed => '700 years')});
my $id = sql(q{SELECT jobq.enqueue('longer')});
wait_status($node, 'postgres', $id, 'completed', 'a job of a new type ends while a report runs');
is(sql("SELECT tableoid::regclass FROM jobq.history WHERE id = '$id'"), 'jobq.history_default', 'in the default partition');
is($session->query_safe('SELECT count(*) > 0 FROM jobq.jobs'), 't', 'the report goes on');
$session->query_safe('COMMIT');
$far =~ s/400/700/g;
wait_for_sql($node, $far, 'after the report its partition is made');
$session->quit;

# ---------- many different retention times ----------

sql(q{SELECT jobq.enqueue('job', '{"bomb": true}', keep_completed => n * interval '1 day') FROM generate_series(1, 900) n});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE scheduled_for <= now())', '900 jobs end, each kept for another number of days');
is(sql(q{SELECT count(*) || ' ' || bool_and(expires_at = completed_at + keep_completed) FROM jobq.history WHERE payload ? 'bomb'}), '900 true', 'history says exactly until when');
sql(q{UPDATE jobq.job_types SET paused = paused WHERE false});    # starts maintenance
wait_for_sql($node, $missing, 'maintenance makes their partitions');
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
$id = $node->safe_psql('restored', q{SELECT jobq.enqueue('job', keep_completed => '700 days')});
wait_status($node, 'restored', $id, 'completed', 'and uses them');

# Without a dispatcher, and without jobq in shared memory, a client ends jobs, too.
foreach my $settings ("jobq.databases = '-'", "shared_preload_libraries = ''", "max_worker_processes = 0")
{
	$node->append_conf('postgresql.conf', $settings);
	$node->restart;
	is(sql("SELECT jobq.cancel_job(jobq.enqueue('job', keep_completed => k::interval, delay => '1h')) FROM (VALUES ('40 years'), ('1500 years')) v(k)"),
		"t\nt", "$settings: cancel_job");
}
is(sql(q{SELECT count(*) FROM jobq.history_default WHERE keep_completed = '1500 years'}), 3, 'their rows are in the default partition');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminating any other active|out of shared memory/, 'no process was hurt');
$node->stop;
done_testing();
