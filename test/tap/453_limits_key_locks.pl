# Concurrency keys and locks: a transaction that holds the row of the first job of a key causes no
# busy loop, and no tenant can choose a key that collides with another tenant's.  There is no sweep.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('keyothers', 'jobq.max_sql_workers = 2', "jobq.sweep_interval = '1h'", 'max_prepared_transactions = 5',
	'log_min_messages = debug1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('f', 'work(jsonb)', options => '{"key_order": "fifo"}'),
  jobq.create_job_type('w', 'waiter(jsonb)', options => '{"key_order": "fifo"}'),
  jobq.create_job_type('free', 'work(jsonb)');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub settled { sql('SELECT jobq.health()') for 1 .. 2; return; }

sub enqueue { return sql("SELECT jobq.enqueue('$_[0]', $_[1])"); }

sub status { return sql("SELECT status FROM jobq.jobs WHERE id = '$_[0]'"); }

# The times at which each worker last began or ended a job.
sub at_rest { return sql(q{SELECT string_agg(pid || ' ' || state || ' ' || state_change, ', ' ORDER BY pid) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'}); }

sub nobody_is_busy
{
	my ($what, $running) = @_;

	# by then the first one has been handed out and returned
	wait_status($node, 'postgres', enqueue('free', "'{}'"), 'completed', "$what: others run");
	# a worker marks itself as idle shortly after its commit
	for (1 .. 600)
	{
		my $then = at_rest();
		settled() for 1 .. 5;
		my @active = $then =~ /active/g;
		return pass("$what: the workers rest") if $then =~ /idle/ && @active == ($running // 0) && at_rest() eq $then;
	}
	return fail("$what: the workers rest");
}

# ---------- the row of the first one is held ----------

# $hold: statement of an open transaction on the first; $end: its end; $becomes:
# the final state of the first
sub held
{
	my ($what, $hold, $end, $becomes) = @_;
	my $open = $node->background_psql('postgres', on_error_stop => 1);

	sql("SELECT jobq.pause_job_type('f')");
	my $first = enqueue('f', "concurrency_key => 'k'");
	my $second = enqueue('f', "concurrency_key => 'k', priority => 10");
	$open->query_safe("BEGIN; " . sprintf($hold, $first));
	sql("SELECT jobq.resume_job_type('f')");
	nobody_is_busy($what);
	is(status($first), 'pending', "$what: it waits");
	is(status($second), 'pending', "$what: and so does the next of its key");
	$open->query_safe($end);
	wait_status($node, 'postgres', $first, $becomes, "$what: in the end it is $becomes");
	wait_status($node, 'postgres', $second, 'completed', "$what: and the next one runs");
	$open->quit;
	return;
}
held('changed', q{SELECT jobq.alter_job('%s', max_attempts => 7)}, 'COMMIT', 'completed');
held('not changed after all', q{SELECT jobq.alter_job('%s', max_attempts => 7)}, 'ROLLBACK', 'completed');
held('cancelled', q{SELECT jobq.cancel_job('%s')}, 'COMMIT', 'cancelled');
held('not cancelled after all', q{SELECT jobq.cancel_job('%s')}, 'ROLLBACK', 'completed');

# a dead letter retried meanwhile is before it
sub comes_back
{
	my $open = $node->background_psql('postgres', on_error_stop => 1);
	my $older = enqueue('w', q{'{"gate": "open"}', concurrency_key => 'o', delay => '1 day'});
	sql("SELECT jobq.cancel_job('$older')");
	sql("SELECT jobq.pause_job_type('f')");
	my $first = enqueue('f', "concurrency_key => 'o'");
	$open->query_safe("BEGIN; SELECT jobq.alter_job('$first', max_attempts => 7)");
	sql("SELECT jobq.resume_job_type('f')");
	nobody_is_busy('an older one comes back');
	sql("SELECT jobq.retry_job('$older')");
	wait_status($node, 'postgres', $older, 'running', 'an older one comes back: it runs');
	$open->query_safe('COMMIT');
	settled();
	is(status($first), 'pending', 'the one that was held waits behind it');
	sql("INSERT INTO gate VALUES ('open')");
	wait_status($node, 'postgres', $first, 'completed', 'and runs when it has ended');
	$open->quit;
	return;
}
comes_back();

# a job that waits for the other one of its unique key, which has another concurrency key
sql('TRUNCATE gate');
my $runs = enqueue('w', q{'{"gate": "open"}', unique_key => 'u', concurrency_key => 'a'});
wait_status($node, 'postgres', $runs, 'running', 'one of a unique key runs');
my $next = enqueue('w', q{'{"gate": "open"}', unique_key => 'u', concurrency_key => 'b', on_conflict => 'replace'});
nobody_is_busy('the other waits for it', 1) if isnt($next, $runs, 'and another waits');
sql("INSERT INTO gate VALUES ('open')");
wait_status($node, 'postgres', $next, 'completed', 'which runs when it has ended');

# ---------- another tenant's key ----------

# Both have the same value of the hash function of PostgreSQL's hash tables:
# finding such keys takes a second.
my $theirs = enqueue('f', q{tenant => 'mallory', concurrency_key => ';OSjVWOV6Co;', delay => '1 day'});
my $mine = enqueue('f', q{tenant => 'victim', concurrency_key => 'account 7'});
wait_status($node, 'postgres', $mine, 'completed', "no tenant's key is in another tenant's way, whatever it is");
is(status($theirs), 'pending', 'which waits itself');

# ---------- prepared transactions ----------

my $offset = -s $node->logfile;
sql(q{SELECT jobq.pause_job_type('f')});
my @jobs = map { enqueue('f', "concurrency_key => 'p'") } 1 .. 2;
sql("BEGIN; SELECT jobq.cancel_job('$jobs[0]'); PREPARE TRANSACTION 'cancel'");
sql("BEGIN; SELECT jobq.enqueue('f', concurrency_key => 'p'); PREPARE TRANSACTION 'enqueue'");
sql(q{SELECT jobq.resume_job_type('f')});
nobody_is_busy('prepared');
is(status($jobs[1]), 'pending', 'a prepared transaction that ends a job keeps the next of its key waiting');
sql("COMMIT PREPARED 'cancel'");
wait_status($node, 'postgres', $jobs[1], 'completed', 'until it has committed');
sql("COMMIT PREPARED 'enqueue'");
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.queue}, 'a job that was prepared runs');	# mallory's is left
unlike(slurp_file($node->logfile, $offset), qr/lanes are read again/, 'all that without reading every lane');

$node->stop;
done_testing();
