# Claims whose transactions are open: a new dispatcher, a savepoint, a cancel that meets the answer,
# a locked row; and a lease that is over while a heartbeat of it is not committed.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('open', 'max_connections = 60', 'fsync = off', 'jobq.max_concurrent = 5000', 'max_prepared_transactions = 3');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $early = $node->background_psql('postgres', on_error_stop => 0);
$early->{stdin} .= "SELECT count(*) FROM jobq.claim(NULL, wait => '2s');\n\\echo over\n";
$early->{run}->pump_nb;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%claim(NULL%' AND pid <> pg_backend_pid() AND wait_event_type = 'Extension'},
	'a claim waits though there is no type to work');
like($early->query_until(qr/over/, ''), qr/^0$/m, 'and gets no job');
$early->quit;
$node->safe_psql('postgres', <<'END');
SELECT jobq.create_job_type('mail'), jobq.create_job_type('bulk', max_concurrent => 200), jobq.create_job_type('two', max_concurrent => 2),
	jobq.create_job_type('one', max_concurrent => 1, max_attempts => 5);
END

sub one { return $node->safe_psql('postgres', $_[0]); }
sub session { return $node->background_psql('postgres', on_error_stop => 0); }

sub new_dispatcher
{
	my ($pid) = jobq_pids($node, 'dispatcher');

	one("SELECT pg_terminate_backend($pid)");
	return wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $pid FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'", 'another dispatcher');
}

# --- a cancel meets the answer

my $a = session();
$a->query('SELECT 1');
my $pid = $a->query('SELECT pg_backend_pid()');
$a->{stdin} .= "SELECT 'a' FROM jobq.claim('{mail}', wait => '20s', lease => '5s');\n\\echo over\n";
$a->{run}->pump_nb;
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Extension'", 'a claim waits');
kill 'STOP', $pid;
one("SELECT jobq.enqueue('mail')");
is(one("SELECT count(*) FROM jobq.claim('{mail}')"), 0, 'it has an answer');
one("SELECT pg_cancel_backend($pid)");
kill 'CONT', $pid;
unlike($a->query_until(qr/over/, ''), qr/^a/m, 'its statement is cancelled');
$a->{stderr} = '';
new_dispatcher();
is(one("SELECT count(*) FROM jobq.claim('{mail}', wait => '10s')"), 1, 'the job goes to the next claim, with a new dispatcher too');
is($a->query('SELECT pg_sleep(6), pg_backend_pid()') =~ s/^\|//r, $pid, 'the session lives on beyond that lease');

# --- a savepoint

one("SELECT jobq.enqueue('mail')");
$a->query_safe("BEGIN; SAVEPOINT s; SELECT FROM jobq.claim('{mail}'); ROLLBACK TO s");
is(one("SELECT count(*) FROM jobq.claim('{mail}', wait => '10s')"), 1, 'a claim that a savepoint takes back is free at once');
$a->query_safe('COMMIT');
one("SELECT jobq.enqueue('mail')");
$a->query_safe("BEGIN; SAVEPOINT s; SELECT FROM jobq.claim('{mail}', lease => '30s')");
new_dispatcher();
$a->query_safe('ROLLBACK TO s');
is(one("SELECT count(*) FROM jobq.claim('{mail}', wait => '10s')"), 1, 'with a new dispatcher, too');
$a->query_safe('COMMIT');
one("SELECT jobq.enqueue('one') FROM generate_series(1, 2)");
$a->query_safe("BEGIN; CREATE TEMP TABLE mine ON COMMIT DROP AS SELECT * FROM jobq.claim('{one}')");
foreach my $call ('jobq.complete(id, lease_token)', q{jobq.fail(id, lease_token, 'e')}, q{jobq.snooze_job(id, lease_token, '1 h')})
{
	$a->query_safe("SAVEPOINT s; SELECT $call FROM mine; ROLLBACK TO s");
	one('SELECT jobq.health()') foreach 1, 2;
	is(one("SELECT count(*) FROM jobq.claim('{one}')"), 0, "$call that a savepoint takes back leaves the job claimed");
}
$a->query_safe('SELECT jobq.complete(id, lease_token) FROM mine; COMMIT');
is(one("SELECT count(jobq.complete(id, lease_token)) FROM jobq.claim('{one}', wait => '10s')"), 1, 'the next one is free when it is completed');

# --- a transaction with more claims than one answer holds

one("SELECT jobq.enqueue('bulk') FROM generate_series(1, 300)");
is($a->query("BEGIN; SELECT count(*) FROM jobq.claim('{bulk}', 200)"), 200, 'a claim of 200 jobs is open');
new_dispatcher();
is(one("SELECT count(*) FROM jobq.claim('{bulk}', 200)"), 0, 'a new dispatcher counts all of them');
one("SELECT jobq.enqueue('two')");
is(one("SELECT jobq.complete(id, lease_token) FROM jobq.claim('{two}', wait => '10s')"), 't', 'and goes on with other types');
one("SELECT jobq.enqueue('mail', concurrency_key => 'k')");
my $b = session();
$b->{stdin} .= "SELECT 'b' FROM jobq.claim('{mail}', wait => '20s');\n\\echo over\n";
$b->{run}->pump_nb;
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT ''b''%' AND wait_event_type = 'Extension'", 'a claim of a job with a key waits');
$a->query_safe('COMMIT');
like($b->query_until(qr/over/, ''), qr/^b/m, 'and gets it when that transaction ends');
is(one("SELECT count(*) FROM jobq.claim('{bulk}', 200)"), 0, 'the limit holds');
one("SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM jobq.queue WHERE status = 'running'");
is(one("SELECT count(*) FROM jobq.claim('{bulk}', 200, wait => '10s')"), 100, 'until they have ended');

# --- a locked row

my ($x) = one("SELECT jobq.enqueue('two')");
one("SELECT jobq.enqueue('two')");
my $admin = session();
$admin->query_safe("BEGIN; SELECT FROM jobq.queue WHERE id = '$x' FOR UPDATE");
is($a->query("BEGIN; SELECT count(*) FROM jobq.claim('{two}', 2)"), 1, 'a claim passes a locked row');
$admin->query_safe('ROLLBACK');
is($b->query("BEGIN; SELECT id FROM jobq.claim('{two}', wait => '10s')"), $x, 'which another one claims');
one("SELECT jobq.enqueue('two')");
$a->query_safe('COMMIT');
is(one("SELECT count(*) FROM jobq.claim('{two}')"), 0, 'the limit counts both');
$b->query_safe('COMMIT');

# --- a lease that is over while its heartbeat is not committed

one("SELECT jobq.enqueue('one') FROM generate_series(1, 2)");
my ($id, $token) = split /\|/, one("SELECT id, lease_token FROM jobq.claim('{one}', lease => '1s')");
is($a->query("BEGIN; SELECT jobq.heartbeat('$id', '$token')"), 'ok', 'a heartbeat that is not committed');
is(one("SELECT count(*) FROM jobq.claim('{one}', wait => '5s')"), 0, 'beyond the lease the limit still counts the job');
is(one("SELECT count(*) FROM jobq.queue WHERE id = '$id' AND status = 'running'"), 1, 'its row is running');
$a->query_safe('COMMIT');
is(one("SELECT count(*) FROM jobq.claim('{one}', wait => '20s')"), 1, 'the next job starts when the attempt has ended');
is(one("SELECT status, error_code FROM jobq.jobs WHERE id = '$id'"), 'retry|lease_expired', 'which is settled');
is(one('SELECT count(*) FROM jobq.queue WHERE status = $$running$$ AND type_id = (SELECT id FROM jobq.job_types WHERE name = $$one$$)'), 1,
	'one job of the type runs');

# --- complete_many locks in the order of the ids

one("SELECT jobq.enqueue('mail') FROM generate_series(1, 2)");
my ($x_id, $x_token, $y_id, $y_token) = split /[|\n]/, one("SELECT id, lease_token FROM jobq.claim('{mail}', 2) ORDER BY id");
is($a->query("BEGIN; SELECT jobq.complete('$x_id', '$x_token')"), 't', 'one job is completed, not committed');
$b->{stdin} .= "SELECT count(*) FROM jobq.complete_many('{$y_id,$x_id}', '{$y_token,$x_token}');\n\\echo over\n";
$b->{run}->pump_nb;
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%jobq.complete_many%' AND wait_event_type = 'Lock'", 'complete_many waits for it');
is($a->query("SELECT jobq.complete('$y_id', '$y_token')"), 't', 'the other job is not locked meanwhile');
$a->query_safe('COMMIT');
like($b->query_until(qr/over/, ''), qr/^0$/m, 'both were completed already');

# --- a prepared transaction with more ends than shared memory keeps

one("SELECT jobq.create_job_type('prepared', max_concurrent => 40)");
one("SELECT jobq.enqueue('prepared') FROM generate_series(1, 80)");
is($a->query("CREATE TEMP TABLE c AS SELECT * FROM jobq.claim('{prepared}', 100); SELECT count(*) FROM c") =~ s/^\|//r, 40, 'forty jobs are claimed');
one("BEGIN; SELECT count(*) FROM jobq.complete_many((SELECT array_agg(id) FROM jobq.queue WHERE type_id = (SELECT max(id) FROM jobq.job_types) AND status = 'running'),
  (SELECT array_agg(lease_token) FROM jobq.queue WHERE type_id = (SELECT max(id) FROM jobq.job_types) AND status = 'running')); PREPARE TRANSACTION 'ends'");
is(one("SELECT count(*) FROM jobq.claim('{prepared}', 100)"), 0, 'before COMMIT PREPARED they count');
one("COMMIT PREPARED 'ends'");
is(one("SELECT count(*) FROM jobq.claim('{prepared}', 100, wait => '15s')"), 40, 'then the next forty are claimed');

# --- a session gives back the memory of a huge transaction

my $size = q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'TopMemoryContext'};
my $huge = q{DO $$ BEGIN FOR i IN 1 .. %d LOOP
  WITH c AS MATERIALIZED (SELECT array_agg(id) AS ids, array_agg(lease_token) AS tokens FROM jobq.claim('{mail}', 100))
  SELECT jobq.complete_many(ids, tokens) FROM c WHERE ids IS NOT NULL; END LOOP; END $$};
$huge =~ s/  SELECT jobq.complete_many/  , d AS MATERIALIZED (SELECT jobq.complete_many/;
$huge =~ s/NOT NULL;/NOT NULL) UPDATE done SET n = n + (SELECT count(*) FROM d);/;
one("CREATE TABLE done (n bigint); INSERT INTO done VALUES (0); SELECT count(jobq.enqueue('mail')) FROM generate_series(1, 3000)");
$b->query(sprintf $huge, 1);
my $before = $b->query($size);
$b->query(sprintf $huge, 29);
is(one('SELECT n FROM done'), 3000, 'one transaction completes 2,900 jobs');
cmp_ok($b->query($size) - $before, '<', 100_000, 'and leaves no memory behind');
$_->quit foreach $a, $b, $admin;
done_testing();
