# Unique keys under load: no session waits for a handler, no two jobs of a key run at once, and a
# waiting job that a transaction has found by its key sees the writes of that transaction.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

my $node = jobq_server('unique', 'max_connections = 50');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- a job that runs for minutes ----------

my $enqueue = q{jobq.enqueue('sleeper', '{"seconds": 600}', unique_key => 'k'};
my $long = $node->safe_psql('postgres', "SELECT $enqueue)");
wait_status($node, 'postgres', $long, 'running');
my $quick = q{SET statement_timeout = '1min'; };
is($node->safe_psql('postgres', "$quick SELECT $enqueue)"), $long, 'ignore returns it');
sqlstate_is($node, 'postgres', "$quick SELECT $enqueue, on_conflict => 'error')", '23505', 'error refuses');
my $next = $node->safe_psql('postgres', "$quick SELECT $enqueue, on_conflict => 'replace')");
isnt($next, $long, 'replace queues a successor');
is($node->safe_psql('postgres', "$quick SELECT $enqueue, on_conflict => 'replace')"), $next, 'which is replaced in turn');
is($node->safe_psql('postgres', "$quick BEGIN; SELECT $enqueue); SELECT $enqueue, on_conflict => 'replace'); COMMIT"), "$next\n$next",
	'a waiting one comes before a running one');
is($node->safe_psql('postgres', "$quick SELECT jobq.cancel_job('$next')"), 't', 'the successor is cancelled at once');
# also while a worker finds that it must wait: up to a millisecond after the enqueue
$node->safe_psql('postgres', <<'END');
CREATE TABLE lingers (ord int);
CREATE PROCEDURE cancel_successors(rounds int) LANGUAGE plpgsql AS $$
DECLARE
  next uuid;
  until timestamptz;
BEGIN
  FOR i IN 1 .. rounds LOOP
    next := jobq.enqueue('sleeper', '{"seconds": 600}', unique_key => 'k', on_conflict => 'replace');
    COMMIT;
    until := clock_timestamp() + (i % 100) * interval '10 us';
    WHILE clock_timestamp() < until LOOP END LOOP;
    PERFORM jobq.cancel_job(next);
    COMMIT;
    IF EXISTS (SELECT FROM jobq.queue q WHERE q.id = next) THEN INSERT INTO lingers VALUES (i); END IF;
  END LOOP;
END $$;
END
$node->safe_psql('postgres', 'CALL cancel_successors(1000)');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lingers'), 0, 'no successor that waits is taken for one that runs');
$next = $node->safe_psql('postgres', "$quick SELECT $enqueue, on_conflict => 'replace')");
is($node->safe_psql('postgres', "$quick SELECT count(*) FROM (SELECT $enqueue, tenant => 't' || n) FROM generate_series(1, 100) n) s"), 100,
	'other tenants have keys of their own');
is($node->safe_psql('postgres', q{SELECT status FROM jobq.jobs WHERE id = '} . $long . q{'}), 'running', 'it has run all the while');
$node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('sleeper', include_running => true)});
wait_status($node, 'postgres', $long, 'cancelled', 'until it is cancelled');
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'so are all others');

# ---------- many sessions, few keys ----------

# A handler that counts the rows that it sees; a second one of its key at the same
# time would not get the lock.
$node->safe_psql('postgres', <<'END');
CREATE TABLE written (key int, n int);
CREATE TABLE seen (seq int GENERATED ALWAYS AS IDENTITY, key int, n bigint, alone boolean);
CREATE FUNCTION count_written(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  k int := p->>'key';
  only_one boolean := pg_try_advisory_lock(77, k);
BEGIN
  INSERT INTO public.seen (key, n, alone) SELECT k, count(*), only_one FROM public.written WHERE key = k;
  PERFORM pg_sleep(random() * 0.003);
  IF only_one THEN PERFORM pg_advisory_unlock(77, k); END IF;
END $$;
SELECT jobq.create_job_type('counts', 'count_written(jsonb)', max_attempts => 1, options => '{"batch": false}');
-- writes a row and enqueues a job of its key, in one transaction that may be rolled back
CREATE PROCEDURE write_many(rounds int) LANGUAGE plpgsql AS $$
DECLARE
  k int;
BEGIN
  FOR i IN 1 .. rounds LOOP
    k := 1 + floor(random() * 3);
    INSERT INTO written VALUES (k, i);
    PERFORM jobq.enqueue('counts', jsonb_build_object('key', k), unique_key => k::text, on_conflict => 'replace');
    IF random() < 0.1 THEN
      ROLLBACK;
    ELSE
      COMMIT;
    END IF;
    -- these do not wait for a handler
    BEGIN
      PERFORM jobq.enqueue('counts', jsonb_build_object('key', k), unique_key => k::text, on_conflict => CASE WHEN random() < 0.5 THEN 'ignore' ELSE 'error' END);
    EXCEPTION WHEN unique_violation THEN NULL;
    END;
    COMMIT;
  END LOOP;
END $$;
END
my $seen = 0;
my $seed = seed();
# workers on a stalled machine find only a few jobs, each replaced repeatedly
for (my $round = 0; $seen <= 20 && $round < 10; $round++)
{
	my @sessions = map { $node->background_psql('postgres') } 1 .. 6;

	$sessions[$_]->query_safe(setseed($seed, 6 * $round + $_)) foreach 0 .. $#sessions;
	$_->query_until(qr/started/, "\\echo started\nCALL write_many(150);\n\\echo finished\n") foreach @sessions;
	$_->query_until(qr/finished/, '') foreach @sessions;
	$_->quit foreach @sessions;
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'all jobs have run');
	$seen = $node->safe_psql('postgres', 'SELECT count(*) FROM seen');
}
cmp_ok($seen, '>', 20, 'there were some');
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen WHERE NOT alone'), 0, 'never two of one key at a time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.dead_letters}), 0, 'none failed');
is($node->safe_psql('postgres', q{SELECT string_agg(key::text, ' ') FROM (SELECT w.key, count(*) AS n FROM written w GROUP BY 1) w
  WHERE n IS DISTINCT FROM (SELECT s.n FROM seen s WHERE s.key = w.key ORDER BY s.seq DESC LIMIT 1)}), '', 'the last job of each key has seen every row');

# A retry gives no key a second waiting job.
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('pulled', max_attempts => 1)});
my $first = $node->safe_psql('postgres', q{SELECT jobq.enqueue('pulled', unique_key => 'k')});
my ($token) = $node->safe_psql('postgres', q{SELECT lease_token FROM jobq.claim('{pulled}')});
my $second = $node->safe_psql('postgres', q{SELECT jobq.enqueue('pulled', unique_key => 'k', on_conflict => 'replace')});
isnt($second, $first, 'a job is queued behind the running one of its key');
$node->safe_psql('postgres', "SELECT jobq.fail('$first', '$token', 'no')");
sqlstate_is($node, 'postgres', "SELECT jobq.$_", '23505', "$_: the key has a live job") foreach "retry_job('$first')", "rerun_job('$first')";
is($node->safe_psql('postgres', q{SELECT jobq.retry_dead_letters('pulled')}), '0', 'nor are they retried with others');
is($node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ') FROM jobq.queue}), $second, 'one job of the key lives');
$node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('pulled')});
is($node->safe_psql('postgres', "SELECT jobq.retry_job('$first')"), 't', 'then it is retried');
$node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('pulled')});

# cancel_jobs does not wait for a session that has a claimed job.
my $held = $node->safe_psql('postgres', q{SELECT jobq.enqueue('pulled')});
$token = $node->safe_psql('postgres', q{SELECT lease_token FROM jobq.claim('{pulled}')});
my $open = $node->background_psql('postgres');
$open->query_safe("BEGIN; SELECT jobq.heartbeat('$held', '$token', progress => 0.5)");
my ($rc, $out, $err) = $node->psql('postgres', q{SET statement_timeout = '60s'; SELECT jobq.cancel_jobs('pulled', include_running => true)});
is($out, '0', 'cancel_jobs leaves a claimed job that a session holds');
like($err, qr/1 job\(s\) stay/, 'and says so');
$open->query_safe('COMMIT');
is($node->safe_psql('postgres', q{SELECT jobq.cancel_jobs('pulled', include_running => true)}), '1', 'then it tells it');
is($node->safe_psql('postgres', "SELECT jobq.heartbeat('$held', '$token')"), 'cancel', 'by its heartbeat');
$node->safe_psql('postgres', "SELECT jobq.fail('$held', '$token', 'stopped')");
$open->quit;

# ---------- a predecessor that ends in an open transaction ----------

# Its successor starts with its COMMIT.  No sweep finds it.
$node->append_conf('postgresql.conf', q{jobq.sweep_interval = '1h'});
$node->reload;
wait_for_sql($node, q{SELECT current_setting('jobq.sweep_interval') = '1h'}, 'no more sweeps');
$node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"seconds": 1.5}')});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'nothing waits');
my ($ends, $queues) = map { $node->background_psql('postgres') } 1, 2;
my $queue = q{SELECT jobq.enqueue('pulled', unique_key => 'k', on_conflict => 'replace')};
foreach my $case ('enqueued after that end', 'enqueued before it, and committed after it', 'enqueued before it by a transaction that commits last')
{
	my $id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('pulled', unique_key => 'k')});
	my $lease = $node->safe_psql('postgres', q{SELECT lease_token FROM jobq.claim('{pulled}', wait => '20s')});

	$ends->query_safe('BEGIN');
	$queues->query_safe("BEGIN; $queue") if $case =~ /before/;
	$ends->query_safe("SELECT jobq.complete('$id', '$lease')");
	$node->safe_psql('postgres', $queue) if $case !~ /before/;
	$queues->query_safe('COMMIT') if $case =~ /committed after/;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.claim('{pulled}')}), '0', "a successor $case: it waits");
	$ends->query_safe('COMMIT');
	$queues->query_safe('COMMIT') if $case =~ /last/;
	my $began = time;
	my $next = $node->safe_psql('postgres', q{SELECT id, lease_token FROM jobq.claim('{pulled}', wait => '10s')});
	like($next, qr/^[0-9a-f-]{36}\|/, 'then it is claimed');
	cmp_ok(time - $began, '<', 5, sprintf('at once: after %.1f s', time - $began));
	$node->safe_psql('postgres', $next ? sprintf("SELECT jobq.complete('%s', '%s')", split /\|/, $next) : q{SELECT jobq.cancel_jobs('pulled')});
}
$_->quit foreach $ends, $queues;

# ---------- a job that run_inline has held ----------

$node->safe_psql('postgres', q{SELECT jobq.pause_job_type('sleeper')});
my $skipped = $node->safe_psql('postgres', q{SELECT jobq.enqueue('sleeper', '{"seconds": 0}')});
my $inline = $node->background_psql('postgres');
$inline->query_safe("BEGIN; SELECT status FROM jobq.run_inline('$skipped')");
my $behind = $node->safe_psql('postgres', q{SELECT jobq.resume_job_type('sleeper') \g /dev/null
SELECT jobq.enqueue('sleeper', '{"seconds": 0}')});
wait_status($node, 'postgres', $behind, 'completed', 'a job that comes later runs');
$inline->query_safe('ROLLBACK');
$inline->quit;
wait_status($node, 'postgres', $skipped, 'completed', 'then the one that was held');

$node->stop;
done_testing();
