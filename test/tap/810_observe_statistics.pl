# Statistics of job types: what each way to write a job counts, and that aborts count nothing.  The
# rows are counted anew after a start, a crash and a TRUNCATE; counters of events survive a clean
# restart and the dispatcher, not a crash.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

my $node = jobq_server('stats', 'jobq.max_sql_workers = 2', 'max_prepared_transactions = 10', 'restart_after_crash = on', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (open boolean);
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.01); END LOOP;
END $$;
CREATE FUNCTION last_waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p = '"last"' THEN PERFORM public.waits(p); END IF;
END $$;
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = p->>'code'; END $$;
SELECT jobq.create_job_type('noop', 'noop(jsonb)'), jobq.create_job_type('waits', 'waits(jsonb)'),
       jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 3, backoff => 'fixed', backoff_base => '1ms'),
       jobq.create_job_type('held', 'noop(jsonb)'), jobq.create_job_type('pulled');
SELECT jobq.pause_job_type('held', 'test');
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# Returns columns of a type's row.
sub stats
{
	my ($type, $columns) = @_;

	return scalar_of("SELECT $columns FROM jobq.stat_job_types WHERE job_type = '$type'");
}

# The same for what another process has done: its transaction is visible before its counters are.
sub stats_become
{
	my ($type, $columns, $expected, $what) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if stats($type, $columns) eq $expected;
		Time::HiRes::usleep(100_000);
	}
	return is(stats($type, $columns), $expected, $what);
}

# The counted rows of all types are those of jobq.count_by_status.
my $agree = q{
  SELECT (SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM (
            SELECT job_type || ' ' || s.status, s.n FROM jobq.stat_job_types t,
                   LATERAL (VALUES ('pending', t.pending), ('blocked', t.blocked), ('retry', t.retry), ('running', t.running),
                                   ('error', t.dead)) s(status, n) WHERE s.n <> 0) c(key, value))
       = (SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM (
            SELECT t.name || ' ' || c.status, c.count FROM jobq.job_types t, LATERAL jobq.count_by_status(t.name) c
             WHERE c.count > 0 AND t.dropped_at IS NULL AND c.status IN ('pending', 'blocked', 'retry', 'running', 'error')) d(key, value))};

wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- ways to write ----------

is(stats('held', 'pending, enqueued, paused'), '0|0|t', 'a type without jobs');
scalar_of(q{SELECT jobq.enqueue('held') FROM generate_series(1, 3)});
is(stats('held', 'pending, enqueued'), '3|3', 'jobq.enqueue');
scalar_of(q{SELECT count(*) FROM jobq.enqueue_many('held', ARRAY['{}', '{}']::jsonb[])});
is(stats('held', 'pending, enqueued'), '5|5', 'jobq.enqueue_many');
scalar_of(q{BEGIN; SELECT jobq.enqueue('held'); ROLLBACK});
is(stats('held', 'pending, enqueued'), '5|5', 'an abort counts nothing');
scalar_of(<<'END');
BEGIN;
SELECT jobq.enqueue('held');
SAVEPOINT a; SELECT jobq.enqueue('held'); SAVEPOINT b; SELECT jobq.enqueue('held'); RELEASE b; ROLLBACK TO a;
SELECT jobq.enqueue('held'); RELEASE a;
SAVEPOINT c; SELECT jobq.enqueue('held'); RELEASE c;
COMMIT
END
is(stats('held', 'pending, enqueued'), '8|8', 'a savepoint counts unless it is rolled back');
scalar_of(q{DO $$ BEGIN FOR i IN 1..200 LOOP BEGIN PERFORM jobq.enqueue('held');
  IF i % 2 = 0 THEN RAISE 'x'; END IF; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$});
is(stats('held', 'pending, enqueued'), '108|108', 'so does a block of PL/pgSQL');
scalar_of(q{BEGIN; SELECT jobq.enqueue('held'); PREPARE TRANSACTION 'p'});
is(stats('held', 'pending, enqueued'), '108|108', 'a prepared transaction is not counted');
scalar_of(q{COMMIT PREPARED 'p'});
is(stats('held', 'pending, enqueued'), '109|109', 'until it is committed');
scalar_of(q{BEGIN; SELECT jobq.enqueue('held'); PREPARE TRANSACTION 'p'});
scalar_of(q{ROLLBACK PREPARED 'p'});
is(stats('held', 'pending, enqueued'), '109|109', 'or rolled back');
my $held = scalar_of(q{SELECT id FROM jobq.queue LIMIT 1});
scalar_of("SELECT jobq.cancel_job('$held')");
is(stats('held', 'pending, cancelled'), '108|1', 'jobq.cancel_job');
scalar_of(q{SELECT jobq.enqueue('held', unique_key => 'k'), jobq.enqueue('held', unique_key => 'k')});
is(stats('held', 'pending, enqueued'), '109|110', 'a unique key');

# ---------- plain SQL ----------

my $columns = scalar_of(q{SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
  WHERE attrelid = 'jobq.queue'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id', 'unique_key', 'key_hash')});
scalar_of("INSERT INTO jobq.queue (id, $columns) SELECT gen_random_uuid(), $columns FROM jobq.queue LIMIT 10");
is(stats('held', 'pending, enqueued'), '119|120', 'INSERT');
scalar_of("INSERT INTO jobq.queue SELECT * FROM jobq.queue LIMIT 5 ON CONFLICT DO NOTHING");
is(stats('held', 'pending, enqueued'), '119|120', 'INSERT ... ON CONFLICT DO NOTHING of rows that are there');
my $file = PostgreSQL::Test::Utils::tempdir() . '/rows';
scalar_of("COPY (SELECT gen_random_uuid() AS id, $columns FROM jobq.queue LIMIT 20) TO '$file'");
scalar_of("COPY jobq.queue (id, $columns) FROM '$file'");
is(stats('held', 'pending, enqueued'), '139|140', 'COPY');
scalar_of(q{UPDATE jobq.queue SET status = 'retry' WHERE id IN (SELECT id FROM jobq.queue LIMIT 7)});
is(stats('held', 'pending, retry'), '132|7', 'UPDATE of the status');
scalar_of(q{UPDATE jobq.queue SET type_id = (SELECT id FROM jobq.job_types WHERE name = 'waits'), position = 'infinity', status = 'blocked'
  WHERE status = 'retry'});
is(stats('held', 'pending, retry') . ' ' . stats('waits', 'blocked, enqueued'), '132|0 7|0', 'UPDATE of the type');
scalar_of(q{DELETE FROM jobq.queue WHERE status = 'blocked' OR id IN (SELECT id FROM jobq.queue WHERE status = 'pending' LIMIT 30)});
is(stats('held', 'pending') . ' ' . stats('waits', 'blocked'), '102 0', 'DELETE');
is(scalar_of($agree), 't', 'the rows are those of count_by_status');

# ---------- runs ----------

scalar_of(q{SELECT jobq.enqueue('noop') FROM generate_series(1, 500)});
wait_for_sql($node, q{SELECT count(*) = 500 FROM jobq.history WHERE status = 'completed'}, '500 jobs run');
stats_become('noop', 'pending, running, enqueued, started, completed', '0|0|500|500|500', 'each is counted once');
stats_become('noop', '(SELECT sum(n) FROM unnest(wait_buckets) n), (SELECT sum(n) FROM unnest(run_buckets) n), attempts_buckets[1]',
	'500|500|500', 'in one bucket each');
stats_become('noop', q{last_completed = (SELECT max(completed_at) FROM jobq.history WHERE status = 'completed')}, 't', 'with the time of the last one');
scalar_of(q{SELECT jobq.create_job_type('batched', 'last_waits(jsonb)')});
scalar_of(q{SELECT jobq.enqueue('batched') FROM generate_series(1, 200)});
wait_for_sql($node, q{SELECT completed = 200 FROM jobq.stat_job_types WHERE job_type = 'batched'}, 'short jobs share a transaction');
my $last = scalar_of(q{SELECT (array_agg(jobq.enqueue('batched', p)))[10] FROM (SELECT CASE i WHEN 10 THEN '"last"' ELSE '{}' END::jsonb FROM generate_series(1, 10) i) j(p)});
wait_status($node, 'postgres', $last, 'running', 'the last of a batch runs');
is(scalar_of(q{SELECT string_agg(job_id::text, ' ') FROM jobq.stat_workers WHERE job_type = 'batched'}), $last, 'stat_workers shows it, and no job before it in its batch');
scalar_of(q{INSERT INTO gate VALUES (true)});
wait_status($node, 'postgres', $last, 'completed', 'the batch ends');
scalar_of(q{DELETE FROM gate});
my $waiting = scalar_of(q{SELECT jobq.enqueue('waits')});
wait_status($node, 'postgres', $waiting, 'running', 'a job runs');
stats_become('waits', 'pending, running, started', '0|1|0', 'it runs, though its row does not say so');
is(scalar_of(q{SELECT kind, state, job_type, attempt, deadline > started_at FROM jobq.stat_workers WHERE job_id IS NOT NULL}), 'sql|busy|waits|1|t',
	'stat_workers shows it');
is(scalar_of($agree), 't', 'as count_by_status says');
scalar_of(q{INSERT INTO gate VALUES (true)});
wait_status($node, 'postgres', $waiting, 'completed', 'it ends');
my $dead = scalar_of(q{SELECT jobq.enqueue('fails', '{"code": "22012"}')});
wait_status($node, 'postgres', $dead, 'error', 'a job fails three times');
stats_become('fails', q{started, retried, died, dead, failures->>'error', attempts_buckets::text, completed}, '3|2|1|1|3|{0,0,1,0,0,0}|0', 'failures');
scalar_of("SELECT jobq.retry_job('$dead')");
wait_status($node, 'postgres', $dead, 'error', 'and again');
stats_become('fails', 'enqueued, died, dead, retried', '2|2|1|4', 'a dead letter that is retried comes into the queue again');
scalar_of(q{SELECT jobq.purge_dead_letters('fails')});
stats_become('fails', 'dead', '0', 'and is purged');
my $claimed = scalar_of(q{SELECT jobq.enqueue('pulled'); SELECT id || ' ' || lease_token FROM jobq.claim('{pulled}', worker => 'w')});
my (undef, $job, $token) = split /\s+/, $claimed;
is(stats('pulled', 'pending, running, started'), '0|1|1', 'a claim');
is(scalar_of(q{SELECT kind, worker, state FROM jobq.stat_workers WHERE job_type = 'pulled'}), 'pull|w|busy', 'is in stat_workers');
scalar_of(q{SELECT jobq.create_job_type('endless', timeout => '0'), jobq.enqueue('endless')});
is(scalar_of(q{SELECT count(*) FROM jobq.claim('{endless}', wait => '10s'); SELECT deadline IS NULL FROM jobq.stat_workers WHERE job_type = 'endless';
  SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE lease_token IS NOT NULL AND timeout IS NULL AND type_id = (SELECT id FROM jobq.job_types WHERE name = 'endless')}),
	"1\nt\nt", 'a job without a timeout has no deadline');
scalar_of(q{SELECT jobq.enqueue('pulled', delay => '1h') FROM generate_series(1, 5)});
is(scalar_of(<<'END'), "1\n1", 'which reads no other row of the queue: it may have millions');
BEGIN;
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM jobq.stat_workers WHERE job_type = 'pulled';
SELECT x.seq_tup_read + x.idx_tup_fetch FROM pg_stat_xact_all_tables x WHERE x.relid = 'jobq.queue'::regclass;
ROLLBACK;
END
scalar_of(q{SELECT jobq.cancel_job(q.id) FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name = 'pulled' AND q.status = 'pending'});
my $former = dispatcher($node, 'postgres');
scalar_of("SELECT pg_terminate_backend($former)");
is(scalar_of(q{SELECT count(*) FROM jobq.stat_workers WHERE job_type = 'pulled'}), '1', 'it is while the dispatcher dies, too');
wait_dispatcher($node, 'postgres', 'the next dispatcher runs', $former);
is(scalar_of(q{SELECT count(*) FROM jobq.stat_workers WHERE job_type = 'pulled'}), '1', 'and when the next one has begun');
my @claimed = map { scalar_of(q{SELECT jobq.enqueue('pulled')}) } 1 .. 3;
scalar_of(q{SELECT count(*) FROM jobq.claim('{pulled}', max_jobs => 3)});
scalar_of(qq{SELECT jobq.cancel_job('$claimed[0]'); SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE id = '$claimed[0]'});
is(scalar_of(q{SELECT count(*), bool_and(w.job_id IS NOT NULL) FROM jobq.stat_workers w JOIN jobq.queue q ON q.id = w.job_id WHERE w.kind = 'pull'}), '3|t', 'each claimed job is, and none that has ended');
scalar_of(qq{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE id IN ('$claimed[1]', '$claimed[2]')});
is(scalar_of($agree), 't', 'the rows are those of count_by_status');
# more claimed jobs than have places: one that has none gets that of one that ends
scalar_of(q{ALTER SYSTEM SET jobq.max_concurrent = 10000; SELECT pg_reload_conf()});
scalar_of(q{SELECT count(*) FROM jobq.enqueue_many('pulled', array_fill('{}'::jsonb, '{4100}'))});
my $all = 0;
$all += scalar_of(q{SELECT count(*) FROM jobq.claim('{pulled}', 1000, lease => '1h', wait => '10s')}) foreach 1 .. 5;
is($all, 4100, 'many jobs are claimed');
is(scalar_of('SELECT complete FROM jobq_internal._stat_claimed()'), 'f', 'more than the dispatcher lists');
is(scalar_of(qq{SELECT cardinality(ARRAY(SELECT jobq.complete_many(array_agg(id), array_agg(lease_token))))
  FROM (SELECT id, lease_token FROM jobq.queue WHERE status = 'running' AND lease_token <> '$token' ORDER BY started_at, id LIMIT 10) q}), '10', 'some of them end');
wait_for_sql($node, 'SELECT complete AND cardinality(ids) = 4091 FROM jobq_internal._stat_claimed()', 'it lists all again');
scalar_of(qq{SELECT count(jobq.skip_job(id, lease_token)) FROM jobq.queue WHERE status = 'running' AND lease_token <> '$token'});
scalar_of(q{ALTER SYSTEM RESET jobq.max_concurrent; SELECT pg_reload_conf()});
scalar_of("SELECT jobq.fail('$job', '$token', 'no', retryable => false, error_code => 'timeout')");
is(stats('pulled', q{running, died, dead, failures->>'error', failures->>'timeout'}), '0|1|1|1|0', q{a client's own code is an error});

# ---------- TRUNCATE, restart, crash, dispatcher ----------

scalar_of(q{BEGIN; TRUNCATE jobq.queue CASCADE; SELECT jobq.enqueue('held'); ROLLBACK});
is(stats('held', 'pending, enqueued'), '102|140', 'a TRUNCATE that is rolled back');
scalar_of(q{BEGIN; SELECT jobq.enqueue('held'); TRUNCATE jobq.queue CASCADE; SELECT jobq.enqueue('held') FROM generate_series(1, 2); COMMIT});
is(stats('held', 'pending, enqueued'), '2|143', 'TRUNCATE');
my $counters = q{SELECT jsonb_agg(to_jsonb(t) - '{due,due_exact,oldest_due_s,drain_s}'::text[] ORDER BY job_type) FROM jobq.stat_job_types t};
my $before = scalar_of($counters);
my $dispatcher = dispatcher($node, 'postgres');
scalar_of("SELECT pg_terminate_backend($dispatcher)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $dispatcher);
is(scalar_of($counters), $before, 'the death of a dispatcher changes nothing');
scalar_of(q{BEGIN; SELECT jobq.enqueue('held'); PREPARE TRANSACTION 'old'});
$node->restart;
is(scalar_of($counters), $before, 'a restart keeps them');
ok(!-e $node->data_dir . '/pg_stat/jobq.stat', 'the file is gone');
scalar_of(q{COMMIT PREPARED 'old'});
is(stats('held', 'pending'), '3', 'a transaction prepared before the start: its rows are counted');
is(scalar_of($agree), 't', 'the rows are those of count_by_status');
my $backend = $node->background_psql('postgres', on_error_stop => 0);
my ($pid) = $backend->query_safe('SELECT pg_backend_pid()') =~ /(\d+)/;
my $log = -s $node->logfile;
kill 'KILL', $pid;
ok($node->wait_for_log(qr/database system is ready to accept connections/, $log), 'the server starts again after a crash');
eval { $backend->quit };
wait_for_sql($node, q{SELECT count(*) > 0 FROM jobq.stat_job_types}, 'the server has crashed');
is(stats('held', 'pending, enqueued'), '3|0', 'a crash: counters begin anew, rows are counted');
is(stats('fails', q{died, failures->>'error'}), '0|0', 'for each type');
scalar_of(q{SELECT jobq.enqueue('held') FROM generate_series(1, 4)});
$node->stop('immediate');
$node->start;
is(stats('held', 'pending, enqueued'), '7|0', 'an immediate shutdown is a crash, too');
scalar_of(q{SELECT jobq.enqueue('held')});
$node->stop;
append_to_file($node->data_dir . '/pg_stat/jobq.stat', 'x');
open my $damaged, '+<', $node->data_dir . '/pg_stat/jobq.stat' or die $!;
seek $damaged, 300, 0;
print $damaged 'damage';
close $damaged;
$node->start;
is(stats('held', 'pending, enqueued'), '8|0', 'a damaged file is not read');

# ---------- reset ----------

scalar_of(q{SELECT jobq.enqueue('held'), jobq.enqueue('pulled')});
scalar_of(q{SELECT jobq.stat_reset('held')});
is(stats('held', 'pending, enqueued') . ' ' . stats('pulled', 'enqueued'), '9|0 1', 'stat_reset of a type');
scalar_of(q{SELECT jobq.stat_reset()});
is(stats('pulled', 'pending, enqueued'), '1|0', 'and of all');
sqlstate_is($node, 'postgres', q{SELECT jobq.stat_reset('none')}, '42704', 'an unknown type');
sqlstate_is($node, 'postgres', q{SELECT * FROM jobq.stat_series('7 s')}, '22023', 'an unknown step');
wait_for_sql($node, q{SELECT pid IS NOT NULL AND loops > 0 AND (wakeups->>'timer')::int > 0 FROM jobq.stat_dispatcher}, 'stat_dispatcher');
scalar_of(q{DROP EXTENSION jobq CASCADE});
scalar_of(q{CREATE EXTENSION jobq});
is(scalar_of(q{SELECT count(*) FROM jobq.stat_job_types}), '0', 'DROP EXTENSION forgets them');
$node->stop;
done_testing();
