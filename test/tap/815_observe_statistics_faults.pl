# Statistics when something unusual happens: a count in a transaction that has written, the reset of
# one type, a step of the clock, transactions that were prepared before the start, many of them,
# types that were dropped.

use strict;
use warnings;

use FindBin;
use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
my %faked = fake_clock();

my $node = jobq_server('faults', 'jobq.max_sql_workers = 2', 'max_prepared_transactions = 40', 'jobq.max_stat_types = 8', 'fsync = off',
	'autovacuum = off');
{
	local %ENV = (%ENV, %faked);
	$node->start;
}
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE other (n int);
SELECT jobq.create_job_type('a'), jobq.create_job_type('b');
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- a count ----------

# A TRUNCATE has the rows counted anew: here by a session that has enqueued a job.
my $session = $node->background_psql('postgres');
foreach (1 .. 5)
{
	$session->query_safe(q{BEGIN; SELECT jobq.enqueue('a')});
	scalar_of('TRUNCATE jobq.dead_letters');
	$session->query_safe(q{SELECT pending FROM jobq.stat_job_types WHERE job_type = 'a'});
	$session->query_safe('COMMIT');
}
$session->quit;
is(scalar_of(q{SELECT pending FROM jobq.stat_job_types WHERE job_type = 'a'}), '5', 'a count leaves out the rows of its own transaction');

# The same by a session that has truncated the queue, and takes it back.
foreach (1 .. 5)
{
	scalar_of('BEGIN; TRUNCATE jobq.dead_letters; COMMIT; BEGIN; TRUNCATE jobq.queue CASCADE; SELECT count(pending) FROM jobq.stat_job_types; ROLLBACK');
}
is(scalar_of(q{SELECT pending FROM jobq.stat_job_types WHERE job_type = 'a'}), '5', 'a count does not rest on a TRUNCATE that is rolled back');

# A transaction that the count sees has its changes still with it: the count waits for it.
system_or_bail('sh', '-c', "gcc -shared -fPIC -O2 -I\$($ENV{JOBQ_PG_CONFIG} --includedir-server) -o $dir/late_commit.so $FindBin::Bin/../lib/late_commit.c");
my $late = $node->background_psql('postgres');
$late->query_safe("LOAD '$dir/late_commit.so'; SELECT jobq.enqueue('b')");
append_to_file($node->data_dir . '/late_commit', '');
$late->query_until(qr/late/, "\\echo late\nSELECT jobq.enqueue('b');\n");
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs WHERE job_type = 'b'}, 'its job is visible');
scalar_of('BEGIN; TRUNCATE jobq.dead_letters; COMMIT');
my $reader = $node->background_psql('postgres');
$reader->query_until(qr/reads/, "\\echo reads\nSELECT pending FROM jobq.stat_job_types WHERE job_type = 'b';\n\\echo has read\n");
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pending%' AND (state = 'idle' OR wait_event = 'transactionid')},
	'a session reads the statistics');
unlink $node->data_dir . '/late_commit';
like($reader->query_until(qr/has read/, ''), qr/^2$/m, 'it sees both jobs');
is($late->query(q{SELECT pending FROM jobq.stat_job_types WHERE job_type = 'b'}) =~ s/.*\n//sr, '2', 'each is counted once');
$_->quit foreach $late, $reader;

# ---------- totals over time ----------

my $total = q{SELECT coalesce(sum(enqueued), 0) FROM jobq.stat_series('10 seconds')};
scalar_of(q{SELECT count(*) FROM jobq.enqueue_many('a', array_fill('{}'::jsonb, ARRAY[995]))});
scalar_of(q{SELECT count(*) FROM jobq.enqueue_many('b', array_fill('{}'::jsonb, ARRAY[8]))});
wait_for_sql($node, "SELECT ($total) >= 1010", 'jobs are in the series');
is(scalar_of($total), '1010', 'each once');
scalar_of(q{SELECT jobq.stat_reset('b'), jobq.enqueue('b')});
wait_for_sql($node, "SELECT ($total) > 1010", 'so is one after the reset of a type');
is(scalar_of($total), '1011', 'which counts no others again');

set_clock(-7200);
scalar_of(q{SELECT jobq.enqueue('a')});
wait_for_sql($node, "SELECT ($total) > 1011", 'samples go on when the clock was set back');
is(scalar_of("SELECT count(*) FROM jobq.stat_series('$_') WHERE since >= until OR until > clock_timestamp() + interval '3 h'"), '0',
	"$_: each ends after its begin") foreach '10 seconds', '2 minutes';
is(scalar_of(q{SELECT max(until) - min(since) < '1 h' FROM jobq.stat_series('2 minutes') WHERE until < clock_timestamp() + interval '1 min'}), 't',
	'those from before are not mixed with those from after');
set_clock(0);

# ---------- prepared transactions ----------

# After a start the changes of prepared transactions are unknown, and their end has the rows counted
# anew: of those that may have changed rows, once.
scalar_of(q{BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'other'});
scalar_of(q{BEGIN; SELECT jobq.enqueue('a'); PREPARE TRANSACTION 'ours'});
scalar_of(q{SELECT count(*) FROM jobq.claim('{b}', max_jobs => 3)});
my $dispatcher = q{SELECT stats_reset, loops, wakeups->'timer', handed_out FROM jobq.stat_dispatcher};
my ($reset, @before) = split /\|/, scalar_of($dispatcher);
$node->restart;
my ($reset_after, @after) = split /\|/, scalar_of($dispatcher);
is($reset_after, $reset, 'a clean restart keeps the time of the last reset');
is(join(' ', map { $after[$_] >= $before[$_] && $before[$_] > 0 } 0 .. $#before), '1 1 1', "and the dispatcher's counters since then") or diag "@before, @after";
my $pending = q{SELECT pending FROM jobq.stat_job_types WHERE job_type = 'a'};
is(scalar_of($pending), '1001', 'rows are counted after a start');
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.dead_letters IN ACCESS EXCLUSIVE MODE');
is(scalar_of("SET lock_timeout = '5s'; $pending"), '1001', 'and not again for each reader');
scalar_of(q{COMMIT PREPARED 'other'});
is(scalar_of("SET lock_timeout = '5s'; $pending"), '1001', 'nor for a transaction of other tables');
$locker->query_safe('COMMIT');
$locker->quit;
scalar_of(q{COMMIT PREPARED 'ours'});
is(scalar_of($pending), '1002', 'the rows of one with a job count when it ends');

# as many as the server allows
my $both = q{SELECT pending || ' ' || enqueued FROM jobq.stat_job_types WHERE job_type = 'a'};

sub prepare_many
{
	scalar_of("BEGIN; SELECT jobq.enqueue('a'); PREPARE TRANSACTION 'many $_'") foreach 1 .. 40;
	return;
}

sub commit_many
{
	scalar_of("COMMIT PREPARED 'many $_'") foreach 1 .. 40;
	return;
}

my (undef, $enqueued) = split / /, scalar_of($both);
prepare_many();
commit_many();
is(scalar_of($both), join(' ', 1042, $enqueued + 40), '40 prepared transactions count');
prepare_many();
$node->restart;
is(scalar_of($both), join(' ', 1042, $enqueued + 40), 'the rows are counted after a start with 40 in doubt');
$locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.dead_letters IN ACCESS EXCLUSIVE MODE');
is(scalar_of("SET lock_timeout = '5s'; $pending"), '1042', 'and not again for each reader');
$locker->query_safe('COMMIT');
$locker->quit;
commit_many();
is(scalar_of($both), join(' ', 1082, $enqueued + 40), 'their rows count when they end');

my ($claimed, $token) = split /\|/, scalar_of(q{SELECT id, lease_token FROM jobq.claim('{a}')});
scalar_of("BEGIN; SELECT jobq.complete('$claimed', '$token'); PREPARE TRANSACTION 'ends'");
scalar_of(q{COMMIT PREPARED 'ends'});
is(scalar_of(q{SELECT completed, last_completed IS NOT NULL FROM jobq.stat_job_types WHERE job_type = 'a'}), '1|t', 'the end of a job by one has its time');

# ---------- a reset and its transaction ----------

$enqueued = scalar_of(q{SELECT enqueued FROM jobq.stat_job_types WHERE job_type = 'a'});
my $since = scalar_of('SELECT stats_reset FROM jobq.stat_dispatcher');
my $audits = q{SELECT count(*) FROM jobq.audit WHERE action = 'stat_reset'};
my $audited = scalar_of($audits);
scalar_of(q{BEGIN; SELECT jobq.stat_reset(); ROLLBACK});
scalar_of(q{BEGIN; SAVEPOINT a; SELECT jobq.stat_reset('a'), jobq.stat_reset(); ROLLBACK TO a; COMMIT});
sqlstate_is($node, 'postgres', "BEGIN; SELECT jobq.stat_reset($_); PREPARE TRANSACTION 'reset'", '0A000', "stat_reset($_) and PREPARE") foreach '', q{'a'};
is(scalar_of(q{SELECT enqueued FROM jobq.stat_job_types WHERE job_type = 'a'}), $enqueued, 'a reset of a type is rolled back');
is(scalar_of('SELECT stats_reset FROM jobq.stat_dispatcher'), $since, 'a reset of all, too');
is(scalar_of($audits), $audited, 'as their rows of the audit');
scalar_of(q{BEGIN; SAVEPOINT a; SELECT jobq.stat_reset('a'), jobq.enqueue('a'); RELEASE a; COMMIT});
is(scalar_of(q{SELECT enqueued, last_completed FROM jobq.stat_job_types WHERE job_type = 'a'}), '1|', 'it takes effect at the commit, with the jobs that this enqueues');
scalar_of(q{SELECT jobq.stat_reset()});
is(scalar_of("SELECT stats_reset > '$since' FROM jobq.stat_dispatcher"), 't', 'so does a reset of all');
is(scalar_of($audits), $audited + 2, 'with rows of the audit');

# ---------- types that are none, or were dropped ----------

# Makes a type with a job, and drops both.
sub pass_by
{
	scalar_of("SELECT jobq.create_job_type('$_[0]'); SELECT jobq.enqueue('$_[0]'); SELECT jobq.drop_job_type('$_[0]', force => true)");
	return;
}

# Returns the types that jobq.stat_job_types has, each with `enqueued`.
sub types
{
	return scalar_of(q{SELECT string_agg(coalesce(job_type, '-') || ' ' || enqueued, ', ' ORDER BY job_type) FROM jobq.stat_job_types});
}

scalar_of(q{CREATE ROLE watcher LOGIN IN ROLE pg_monitor});
is(scalar_of(q{SET ROLE watcher; SELECT count(*) FROM jobq_internal._stat_job_types(ARRAY(SELECT generate_series(100000, 100100)) || 0)}), '2',
	'an id that no type has takes no entry');
pass_by("gone$_") foreach 1 .. 4;
pass_by('x');
scalar_of(q{SELECT jobq.create_job_type('x'); SELECT jobq.enqueue('x')});
is(types(), 'a 0, b 0, gone1 1, gone2 1, gone3 1, gone4 1, x 2', 'all entries are taken; a type is one with an earlier one of its name');
is(scalar_of(q{SET jobq.metrics_types = 3;
  SELECT string_agg(m[1], ' ') FROM regexp_matches(jobq.metrics(), 'jobs_enqueued_total\{type="([^"]*)"', 'g') m}), 'a b x _other',
	'metrics have series of dropped types where others leave room');
scalar_of(q{SELECT jobq.stat_reset('x')});
is(types(), 'a 0, b 0, gone1 1, gone2 1, gone3 1, gone4 1, x 0', 'a reset by name, too');
scalar_of(q{BEGIN; SELECT jobq.create_job_type('y'); SELECT jobq.enqueue('y'); COMMIT});
is(types(), 'a 0, b 0, x 0, y 1', 'a type gets the entry of a dropped one');
pass_by("more$_") foreach 1 .. 9;
scalar_of("SELECT jobq.create_job_type('$_'); SELECT jobq.enqueue('$_')") foreach qw(c d);
scalar_of(<<'END');
BEGIN;
SELECT jobq.create_job_type('f'); SELECT jobq.enqueue('f'); SELECT jobq.drop_job_type('f', force => true);
SELECT jobq.create_job_type('z'); SELECT jobq.enqueue('z');
COMMIT
END
is(types(), 'a 0, b 0, c 1, d 1, f 1, x 0, y 1, z 1', 'as often as types come and go, also in one transaction');
is(scalar_of(q{SELECT string_agg(job_type || ' ' || pending, ', ' ORDER BY job_type) FROM jobq.stat_job_types WHERE job_type > 'b'}),
	'c 1, d 1, f 0, x 1, y 1, z 1', 'with their rows');

# All entries are taken, one by a dropped type.  A type keeps its entry that an open transaction
# creates or drops.
scalar_of(q{BEGIN; SELECT jobq.drop_job_type('d', force => true); SELECT jobq.create_job_type('v'); SELECT jobq.enqueue('v'); ROLLBACK});
is(types(), 'a 0, b 0, c 1, d 1, x 0, y 1, z 1, - 0', 'as one does whose drop is rolled back');
my $creator = $node->background_psql('postgres');
$creator->query_safe(q{BEGIN; SELECT jobq.create_job_type('n'); SELECT jobq.enqueue('n') FROM generate_series(1, 10)});
scalar_of(q{SELECT jobq.drop_job_type('c', force => true); SELECT jobq.create_job_type('w'); SELECT jobq.enqueue('w')});
$creator->query_safe('COMMIT');
$creator->quit;
is(types(), 'a 0, b 0, d 1, n 10, w 1, x 0, y 1, z 1', 'and one that is not committed yet');
is(scalar_of(q{SELECT pending FROM jobq.stat_job_types WHERE job_type = 'n'}), '10', 'with its rows');

# A transaction whose type is dropped and gives its entry away meanwhile.
scalar_of(q{SELECT jobq.drop_job_type(t, force => true) FROM unnest('{d,n,w}'::text[]) t});
foreach my $end ('COMMIT', q{PREPARE TRANSACTION 'late'; COMMIT PREPARED 'late'})
{
	my $late_one = $node->background_psql('postgres');

	scalar_of(q{SELECT jobq.create_job_type('late')});
	$late_one->query_safe(q{BEGIN; SELECT jobq.enqueue('late')});
	scalar_of(q{SELECT jobq.drop_job_type('late')});
	pass_by('other') foreach 1 .. 7;
	scalar_of(q{SELECT jobq.stat_reset()});
	$late_one->query_safe($_) foreach split /; /, $end;
	$late_one->quit;
	is(scalar_of(q{SELECT string_agg(job_type || ' ' || pending || ' ' || enqueued, ', ' ORDER BY job_type) FROM jobq.stat_job_types
	  WHERE pending + enqueued > 0 AND job_type > 'b'}), 'late 1 0, x 1 0, y 1 0, z 1 0', "changes its entry no more: $end");
	scalar_of(q{DELETE FROM jobq.queue q USING jobq.job_types t WHERE t.id = q.type_id AND t.name = 'late'});
}

# ---------- the time to drain, of statistics that have just begun ----------

scalar_of(q{SELECT count(jobq.enqueue('x')) FROM generate_series(1, 30)});
scalar_of(q{SELECT jobq.stat_reset('x')});
is(scalar_of(q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.claim('{x}', 20)}), '20', 'two thirds are done');
wait_for_sql($node, q{SELECT due = 11 AND drain_s BETWEEN 0 AND 150 FROM jobq.stat_job_types WHERE job_type = 'x'}, 'the rate is that of the time since the reset');

$node->stop;
done_testing();
