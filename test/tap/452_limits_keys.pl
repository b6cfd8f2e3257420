# Concurrency keys: never do more jobs of a key and tenant run at once than the types allow, by the
# times in the events; key_order = fifo keeps the order; a blocked key does not block other jobs,
# and no job is lost when processes die.  There is no sweep: only commits and reports of executors
# start waiting jobs.

use strict;
use warnings;

use ExecTest qw(tool tools);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('keys', 'jobq.max_sql_workers = 5', "jobq.sweep_interval = '1h'", 'fsync = off', 'restart_after_crash = on', 'log_min_messages = debug1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
-- fails, or snoozes, in its first attempt, as the payload says
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  first boolean := (SELECT runs <= 1 FROM jobq.current_job());
BEGIN
  PERFORM pg_sleep(coalesce((p->>'seconds')::float8, 0));
  IF first AND p ? 'fail' THEN RAISE 'told to'; END IF;
  IF first AND p ? 'snooze' THEN PERFORM jobq.snooze('20 ms'); END IF;
END $$;
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- a job that runs beside another one of its key reports it
  IF p ? 'alone' AND NOT pg_try_advisory_xact_lock((p->>'alone')::int) THEN
    RAISE 'two at once' USING ERRCODE = 'XX777';
  END IF;
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
-- The most attempts of each key and tenant at one moment.
CREATE FUNCTION most() RETURNS TABLE (key text, tenant text, n bigint) LANGUAGE sql AS $$
  SELECT m.key, m.tenant, max(m.n) FROM (
    SELECT j.concurrency_key, j.tenant, sum(d) OVER (PARTITION BY j.concurrency_key, j.tenant ORDER BY e.ts, d)
      FROM jobq.events e JOIN jobq.jobs j ON j.id = e.job_id,
           LATERAL (SELECT CASE e.type WHEN 'started' THEN 1 ELSE -1 END) x(d)
     WHERE e.type IN ('started', 'completed', 'failed', 'snoozed') AND j.concurrency_key IS NOT NULL) m(key, tenant, n)
   GROUP BY 1, 2
$$;
-- Jobs that began before an earlier one of their key had ended.
CREATE FUNCTION out_of_order() RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM (
    SELECT (SELECT min(e.ts) FROM jobq.events e WHERE e.job_id = j.id AND e.type = 'started') AS began,
           max(completed_at) OVER (PARTITION BY j.concurrency_key, j.tenant ORDER BY j.created_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM jobq.jobs j WHERE j.concurrency_key LIKE 'order%') o
   WHERE began < before
$$;
CREATE FUNCTION forget() RETURNS void LANGUAGE sql AS 'DELETE FROM jobq.history; DELETE FROM jobq.dead_letters; DELETE FROM jobq.events';
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub all_done { return wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', $_[0]); }

sub settled { sql('SELECT jobq.health()') for 1 .. 2; return; }

sub running { return sql("SELECT count(*) FROM jobq.jobs WHERE status = 'running' AND concurrency_key = '$_[0]'"); }

sub runs { return wait_for_sql($node, "SELECT count(*) = $_[1] FROM jobq.jobs WHERE status = 'running' AND concurrency_key = '$_[0]'", $_[2]); }

# ---------- many lives ----------

my $lives = 1200;
my $all = '"events": "all"';
sql(<<END);
SELECT jobq.create_job_type('a', 'work(jsonb)', backoff_base => '20 ms', options => '{$all}'),
  jobq.create_job_type('b', 'work(jsonb)', backoff_base => '20 ms', max_concurrent => 2, options => '{$all, "fair_by": "tenant"}'),
  jobq.create_job_type('t', command => ARRAY['/bin/sleep', '{seconds}'], options => '{$all, "output": "none"}'),
  jobq.create_job_type('m', 'work(jsonb)', backoff_base => '20 ms', options => '{$all, "concurrency_per_key": 3}'),
  jobq.create_job_type('f', 'work(jsonb)', backoff_base => '20 ms', options => '{$all, "key_order": "fifo"}'),
  jobq.create_job_type('g', command => ARRAY['/bin/sleep', '{seconds}'], options => '{$all, "output": "none", "key_order": "fifo"}'),
  jobq.create_job_type('plain', 'work(jsonb)');
END
my $some = <<'END';
SELECT setseed(%f);
SELECT jobq.enqueue(type, jsonb_strip_nulls(jsonb_build_object('seconds', CASE WHEN random() < 0.3 THEN random() * 0.02 ELSE 0 END,
    'fail', CASE WHEN random() < 0.1 THEN 1 END, 'snooze', CASE WHEN random() < 0.1 THEN 1 END)),
  priority => (random() * 2)::int, delay => CASE WHEN random() < 0.1 THEN random() * interval '100 ms' END,
  tenant => (ARRAY[NULL, 'x', 'y'])[1 + (random() * 2)::int],
  concurrency_key => CASE WHEN type IN ('f', 'g') THEN 'order ' || (random() * 5)::int WHEN type = 'm' THEN 'three ' || (random() * 3)::int
                          WHEN random() < 0.9 THEN 'one ' || (random() * 6)::int END)
  FROM (SELECT (ARRAY['a', 'a', 'b', 't', 'm', 'm', 'f', 'f', 'g'])[1 + (random() * 8)::int] AS type FROM generate_series(1, %d) OFFSET 0) r
END
sql(sprintf $some, 0.1, $lives / 2);
sql("SELECT jobq.enqueue_many('plain', array_fill('{}'::jsonb, ARRAY[500]))");
sql(sprintf $some, 0.2, $lives / 2);
all_done('all have ended');
is(sql("SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FROM jobq.jobs WHERE job_type <> 'plain'"), "$lives|$lives", 'and well');
is(sql("SELECT max(n) FROM most() WHERE key LIKE 'one%'"), 1, 'one at a time of a key, whatever the type');
cmp_ok(sql("SELECT max(n) FROM most() WHERE key LIKE 'three%'"), '<=', 3, 'concurrency_per_key is kept');
is(sql("SELECT max(n) FROM most() WHERE key LIKE 'order%'"), 1, 'one at a time in order');
is(sql('SELECT out_of_order()'), 0, 'fifo: in the order of enqueue, retries first');
cmp_ok(sql(q{SELECT count(*) FROM jobq.jobs x, jobq.jobs y WHERE x.concurrency_key LIKE 'one%' AND x.concurrency_key = y.concurrency_key
  AND x.tenant = 'x' AND y.tenant = 'y' AND x.started_at < y.completed_at AND y.started_at < x.completed_at}),
	'>', 0, "another tenant's key is another key");
sql('SELECT forget()');

# ---------- processes that die ----------

sql(q{SELECT jobq.create_job_type('w', 'waiter(jsonb)', backoff_base => '10 ms', max_attempts => 10, options => '{"permanent_codes": ["XX777"]}')});
sql(q{SELECT jobq.enqueue('w', '{"gate": "open", "alone": 1}', concurrency_key => 'k') FROM generate_series(1, 6)});
runs('k', 1, 'one holds the key');
restart_dispatcher($node);
is(running('k'), 1, 'another dispatcher counts it');
sql(q{SELECT jobq.enqueue('w', '{"gate": "open", "alone": 1}', concurrency_key => 'k') FROM generate_series(1, 2)});
settled();
is(running('k'), 1, 'those that come wait, too');
my ($worker) = sql("SELECT worker FROM jobq.jobs WHERE status = 'running'") =~ /(\d+)/;
sql("SELECT pg_terminate_backend($worker)");
wait_for_sql($node, "SELECT count(*) >= 1 FROM jobq.jobs WHERE error_code = '57P01'", 'its worker is terminated');
runs('k', 1, 'one holds the key');
($worker) = sql("SELECT worker FROM jobq.jobs WHERE status = 'running'") =~ /(\d+)/;
my $log_at = -s $node->logfile;
kill 'KILL', $worker;
$node->wait_for_log(qr/reinitializing.*database system is ready to accept connections/s, $log_at);
$node->poll_query_until('postgres', "SELECT count(*) >= 1 FROM jobq.jobs WHERE error_code = 'server_crash'") or diag 'no crash';
wait_dispatcher($node, 'postgres', 'the server has crashed and is back');
runs('k', 1, 'one holds the key after a crash');
sql("INSERT INTO gate VALUES ('open')");
all_done('the rest runs');
is(sql("SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FROM jobq.jobs WHERE job_type = 'w'"), '8|8', '!all of them, never two at once');
sql('SELECT forget(); TRUNCATE gate');

# tools: a lock that ends with the process shows whether they ran alone
my $locker = tool('locker', <<'END');
#!/bin/sh
exec 9>>"$1"
flock -n 9 || echo two >&9
echo ran >&9
sleep "$2"
END
my $file = tools() . '/key';
sql("SELECT jobq.create_job_type('lock', command => ARRAY['$locker', '$file', '{seconds}'], max_attempts => 10, backoff_base => '10 ms', options => '{\"output\": \"none\"}')");
sql(q{SELECT jobq.enqueue('lock', '{"seconds": 300}', concurrency_key => 'k', priority => 10)});
sql(q{SELECT jobq.enqueue('lock', '{"seconds": 0.01}', concurrency_key => 'k') FROM generate_series(1, 8)});
runs('k', 1, 'a tool holds the key');
restart_dispatcher($node);
is(running('k'), 1, 'another dispatcher counts it');
my ($exec) = jobq_pids($node, 'exec worker', 'postgres');
$log_at = -s $node->logfile;
kill 'KILL', $exec;
$node->wait_for_log(qr/reinitializing.*database system is ready to accept connections/s, $log_at);
wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.jobs WHERE error_code = 'server_crash'", 'its exec worker is killed');
sql(q{SELECT jobq.cancel_jobs(job_type => 'lock', payload_contains => '{"seconds": 300}', include_running => true)});
all_done('the others run');
my @lines = split /\n/, slurp_file($file);
is(scalar(grep { $_ eq 'two' } @lines), 0, 'one tool at a time');
is(sql("SELECT count(*) FROM jobq.jobs WHERE status = 'completed'"), 8, 'all of them');
sql('SELECT forget()');

# ---------- a crowd behind one key ----------

my $crowd = 20000;
sql(q{SELECT jobq.create_job_type('crowd', 'waiter(jsonb)', options => '{"concurrency_per_key": 2}')});

sub kilobytes { return (slurp_file('/proc/' . dispatcher($node, 'postgres') . '/status') =~ /RssAnon:\s+(\d+)/)[0]; }
sql(qq{SELECT jobq.enqueue('crowd', '{"gate": "$_"}', concurrency_key => 'big')}) foreach 'first', 'other';
runs('big', 2, 'two hold a key');
my $before = kilobytes();
sql("SELECT count(*) FROM jobq.enqueue_many('crowd', array_fill('{\"gate\": \"first\"}'::jsonb, ARRAY[$crowd]), concurrency_key => 'big')");
my $other = sql(q{SELECT jobq.enqueue('crowd', '{"gate": "other"}', concurrency_key => 'small')});
my $last = sql(q{SELECT jobq.enqueue('crowd', '{"gate": "other"}')});
my $first = sql(q{SELECT jobq.enqueue('crowd', '{"gate": "first"}', concurrency_key => 'big', priority => 1)});
wait_status($node, 'postgres', $_, 'running', 'jobs behind the blocked ones start') foreach $other, $last;
is(running('big'), 2, 'still two of the crowd');
cmp_ok(kilobytes() - $before, '<', 2048, 'the crowd is not in memory');
sql("SELECT jobq.pause_job_type('crowd')");
sql("ALTER SYSTEM SET jobq.sweep_interval = '10ms'");
$node->reload;
wait_for_sql($node, "SELECT current_setting('jobq.sweep_interval') = '10ms'", 'sweeps');
settled() foreach 1 .. 30;
cmp_ok(kilobytes() - $before, '<', 2048, 'nor do sweeps bring it there, when its type is paused');
sql("ALTER SYSTEM SET jobq.sweep_interval = '1h'");
$node->reload;
sql("SELECT jobq.resume_job_type('crowd')");
sql("INSERT INTO gate VALUES ('first')");
wait_for_sql($node, 'SELECT count(*) > 500 FROM jobq.history', 'one after the other goes');
is(sql("SELECT count(*) FROM jobq.jobs WHERE job_type = 'crowd' AND created_at > (SELECT created_at FROM jobq.jobs WHERE id = '$first')"), 0, 'the last one');
# one place was free, the other holder keeps its own
is(sql("SELECT count(*) FROM jobq.history h WHERE h.started_at < (SELECT started_at FROM jobq.jobs WHERE id = '$first')"), 1, 'went first, for its priority');
sql("INSERT INTO gate VALUES ('other')");
all_done('all have gone');
is(sql("SELECT count(*) FROM jobq.history WHERE status = 'completed'"), $crowd + 5, 'and well');
sql('SELECT forget(); TRUNCATE gate');

# ---------- handed ahead, taken back ----------

sql(q{SELECT jobq.create_job_type('quick', 'work(jsonb)', options => '{"events": "all"}')});
sql("SELECT count(*) FROM jobq.enqueue_many('quick', array_fill('{}'::jsonb, ARRAY[200]))");
all_done('a type with quick jobs');
sql(q{SELECT count(*) FROM jobq.enqueue_jobs((SELECT jsonb_agg(jsonb_build_object('job_type', 'quick', 'concurrency_key', 'q' || i % 20,
  'payload', jsonb_build_object('seconds', CASE WHEN i % 40 = 1 THEN 0.5 ELSE 0 END))) FROM generate_series(1, 200) i))});
all_done('batches with some slow jobs');
is(sql("SELECT max(n) FROM most()"), 1, 'one at a time of a key, in batches, too');
is(sql("SELECT count(*) FROM jobq.jobs WHERE status = 'completed' AND attempts = 1"), 400, '!each once');
sql('SELECT forget()');

# ---------- changed live ----------

sql(q{SELECT jobq.enqueue('w', '{"gate": "open"}', concurrency_key => 'k') FROM generate_series(1, 6)});
runs('k', 1, 'one runs');
sql(q{SELECT jobq.alter_job_type('w', options => '{"concurrency_per_key": 3}')});
runs('k', 3, 'three run when the limit is raised');
sql(q{SELECT jobq.alter_job_type('w', options => '{"concurrency_per_key": 1}')});
sql(q{SELECT jobq.enqueue('w', '{"gate": "other"}', concurrency_key => 'k', priority => 5)});
sql(q{SELECT jobq.cancel_job(id) FROM (SELECT id FROM jobq.jobs WHERE status = 'running' LIMIT 2) r});
runs('k', 1, 'two have gone');
settled();
is(running('k'), 1, 'no other job starts when the limit is lowered');
sql("INSERT INTO gate VALUES ('open'), ('other')");
all_done('the rest');
sql('SELECT forget(); TRUNCATE gate');

# types that differ: the smallest limit of those that run counts, and the candidate's
sql(q{SELECT jobq.create_job_type('w3', 'waiter(jsonb)', options => '{"concurrency_per_key": 3}')});
my $narrow = sql(q{SELECT jobq.enqueue('w', '{"gate": "narrow"}', concurrency_key => 'k')});
runs('k', 1, 'one of a type that allows one');
sql(q{SELECT jobq.enqueue('w3', '{"gate": "wide"}', concurrency_key => 'k') FROM generate_series(1, 4)});
settled();
is(running('k'), 1, 'stays alone');
sql("INSERT INTO gate VALUES ('narrow')");
runs('k', 3, 'then three of a type that allows three');
$narrow = sql(q{SELECT jobq.enqueue('w', '{"gate": "narrow"}', concurrency_key => 'k', priority => 5)});
settled();
is(sql("SELECT status FROM jobq.jobs WHERE id = '$narrow'"), 'pending', 'which keep one of the first out');
sql("INSERT INTO gate VALUES ('wide')");
all_done('all have ended');
sql('SELECT forget(); TRUNCATE gate');

# ---------- fifo: which jobs wait ----------

sql(<<'END');
SELECT jobq.create_job_type('o', 'waiter(jsonb)', max_attempts => 1, options => '{"key_order": "fifo"}'),
  jobq.create_job_type('o2', 'work(jsonb)', backoff_base => '1 day', max_attempts => 2, options => '{"key_order": "fifo"}'),
  jobq.create_job_type('free', 'work(jsonb)', backoff_base => '1 day');
END

# A job that waits for a day, one behind it, and one of another key; the
# one behind starts after $ends.
sub goes_on
{
	my ($what, $type, $ends) = @_;
	my $front = sql("SELECT jobq.enqueue('$type', '{\"fail\": 1}', concurrency_key => 'o')");
	wait_status($node, 'postgres', $front, 'retry', "$what: the first of a key waits for its retry");
	my $behind = sql(q{SELECT jobq.enqueue('o2', concurrency_key => 'o', priority => 10)});
	my $else = sql(q{SELECT jobq.enqueue('o2', concurrency_key => 'else')});
	wait_status($node, 'postgres', $else, 'completed', "$what: another key goes on");
	is(sql("SELECT status FROM jobq.jobs WHERE id = '$behind'"), 'pending', "$what: the next one waits behind it");
	$ends->($front, $behind) if $ends;
	wait_status($node, 'postgres', $behind, 'completed', "$what: then it goes");
	return all_done($what);
}
goes_on('cancel', 'o2', sub { sql("SELECT jobq.cancel_job('$_[0]')") });
goes_on('delete', 'o2', sub { sql("DELETE FROM jobq.queue WHERE id = '$_[0]'") });
goes_on('another key', 'o2', sub { sql("UPDATE jobq.queue SET concurrency_key = 'p' WHERE id = '$_[0]'"); sql("SELECT jobq.cancel_job('$_[0]')") });
goes_on('its retry', 'o2', sub { sql("SELECT jobq.retry_job('$_[0]')") });
goes_on('inline', 'o2', sub { sql("SELECT jobq.run_inline('$_[0]')") });
goes_on('of a type without order', 'free', sub { sql("SELECT jobq.cancel_job('$_[0]')") });
goes_on('after the dispatcher has died', 'o2', sub { restart_dispatcher($node); sql("SELECT jobq.cancel_job('$_[0]')") });
goes_on('prepared', 'o2', sub {
	sql("BEGIN; SELECT jobq.cancel_job('$_[0]'); PREPARE TRANSACTION 'p'");
	sql("COMMIT PREPARED 'p'");
});
goes_on('no order any more', 'o2', sub {
	sql(q{SELECT jobq.alter_job_type('o2', options => '{"key_order": null}')});
	wait_status($node, 'postgres', $_[1], 'completed', 'a type that loses its order does not wait');
	sql(q{SELECT jobq.alter_job_type('o2', options => '{"key_order": "fifo"}')});
	sql("SELECT jobq.cancel_job('$_[0]')");
});

# The keys of a commit that removes many jobs are named, up to a thousand; beyond that the lanes in
# order are read again, and no others.
sub many_at_once
{
	my ($n, $first) = @_;
	my $log_at = -s $node->logfile;

	sql(qq{SELECT count(jobq.enqueue('o2', '{"fail": 1}', concurrency_key => 'x' || i)) FROM generate_series(1, $n) i});
	sql(q{SELECT count(jobq.enqueue('free', delay => '1 day', priority => i)) FROM generate_series(1, 50) i});
	wait_for_sql($node, "SELECT count(*) = $n + 1 FROM jobq.jobs WHERE status = 'retry'", "$n others wait for a retry");
	sql("SELECT count(jobq.cancel_job(id)) FROM (SELECT id FROM jobq.queue WHERE status = 'retry' ORDER BY id = '$first', id DESC) q");
	settled();
	sql("DELETE FROM jobq.queue WHERE scheduled_for > now() + '1 hour'");
	return slurp_file($node->logfile, $log_at) =~ /jobq: (\d+) lanes are read again/g;
}
my @lanes;
goes_on('many at once', 'o2', sub { @lanes = many_at_once(900, $_[0]) });
is(scalar(@lanes), 0, 'nothing is read again');
goes_on('very many at once', 'o2', sub { @lanes = many_at_once(1500, $_[0]) });
is(scalar(@lanes), 1, 'lanes are read again once');
cmp_ok($lanes[0], '<', 50, 'only those in order');

# a dead letter does not block; retried it is the first again
my $dead = sql(q{SELECT jobq.enqueue('o', '{"alone": "no number", "gate": "open"}', concurrency_key => 'o')});
wait_status($node, 'postgres', $dead, 'error', 'a dead letter');
my $next = sql(q{SELECT jobq.enqueue('o', '{"gate": "open"}', concurrency_key => 'o')});
wait_status($node, 'postgres', $next, 'running', 'does not block');
my $third = sql(q{SELECT jobq.enqueue('o', '{"gate": "open"}', concurrency_key => 'o', priority => 10)});
sql("SELECT jobq.retry_job('$dead')");
settled();
is(running('o'), 1, 'retried, it waits for the running job');
sql("INSERT INTO gate VALUES ('open')");
all_done('all have ended');
is(sql("SELECT string_agg(CASE id WHEN '$dead' THEN 'dead' WHEN '$next' THEN 'next' ELSE 'third' END, ' ' ORDER BY started_at) FROM jobq.jobs WHERE id IN ('$dead', '$next', '$third')"),
	'next dead third', 'and is before those that came later');
sql('SELECT forget(); TRUNCATE gate');

# delayed: the job enqueued first goes first
my $later = sql(q{SELECT jobq.enqueue('o2', delay => '1 day', concurrency_key => 'o')});
my $now = sql(q{SELECT jobq.enqueue('o2', concurrency_key => 'o')});
settled();
is(sql("SELECT status FROM jobq.jobs WHERE id = '$now'"), 'pending', 'one that is to run tomorrow keeps the next waiting');
unlike(sql('SELECT jobq.health()'), qr/"blocked_keys": \["o"/, 'health does not mind yet');
sql("UPDATE jobq.queue SET position = position - interval '2 hours' WHERE id = '$now'");
like(sql("SELECT jobq.health() -> 'checks' -> 'queues'"), qr/"blocked_keys": \["o"\]/, 'after an hour health names the key');
like(sql("SELECT jobq.health() -> 'checks' -> 'queues'"), qr/"degraded"/, 'and is degraded');
sql("SELECT jobq.alter_job('$later', scheduled_for => now())");
all_done('due, it goes, and the next');
sql(q{SELECT jobq.enqueue('w', '{"gate": "open"}', concurrency_key => 'held') FROM generate_series(1, 2)});
runs('held', 1, 'one holds its key');
sql("UPDATE jobq.queue SET position = position - interval '2 hours' WHERE id = (SELECT id FROM jobq.jobs WHERE concurrency_key = 'held' AND status = 'pending')");
like(sql("SELECT jobq.health() -> 'checks' -> 'queues'"), qr/"blocked_keys": \["held"\]/, 'also when it is full');
sql("INSERT INTO gate VALUES ('open')");
all_done('the end');

# ---------- a waiting job that is changed loses its place to a job of another lane ----------

sql('SELECT forget(); TRUNCATE gate');
sql("SELECT jobq.create_job_type('one', 'waiter(jsonb)'), jobq.create_job_type('other', 'waiter(jsonb)')");
sql(q{SELECT jobq.enqueue('one', '{"gate": "first"}', concurrency_key => 'changed')});
runs('changed', 1, 'the first of three runs');
my $before = sql(q{SELECT jobq.enqueue('one', '{"gate": "second"}', priority => 5, concurrency_key => 'changed')});
my $changed = sql(q{SELECT jobq.enqueue('other', '{"gate": "second"}', concurrency_key => 'changed')});
settled();
sql(qq{SELECT jobq.alter_job('$changed', payload => '{"gate": "second", "new": 1}')});
settled();
sql("INSERT INTO gate VALUES ('first')");
wait_status($node, 'postgres', $before, 'running', 'then the one of higher priority');
settled();
sql("INSERT INTO gate VALUES ('second')");
wait_status($node, 'postgres', $changed, 'completed', 'and the one that was changed');

# ---------- a dead job frees its key at once ----------

# Also with a paused type, a full limit, or another job of its lane before it.

sql('SELECT forget(); TRUNCATE gate');
sql(<<'END');
SELECT jobq.set_limit('one', max_concurrent => 1);
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sleep', '{seconds}'], options => '{"output": "none", "limits": ["one"]}', backoff_base => '1 day');
SELECT jobq.create_job_type('sql', 'waiter(jsonb)', options => '{"limits": ["one"]}', backoff_base => '1 day');
SELECT jobq.create_job_type('rival', 'waiter(jsonb)', options => '{"limits": ["one"]}');
END

# $left: the job's status and code then; $ends: the end of the attempt; $rival: before the
# settlement another job takes the limit's only place
sub settled_at_once
{
	my ($what, $type, $left, $ends, $rival) = @_;
	my $died = sql("SELECT jobq.enqueue('$type', '{\"seconds\": 300, \"gate\": \"never\"}', concurrency_key => 'died')");
	wait_status($node, 'postgres', $died, 'running', "$what: one has the key");
	$rival = sql(q{SELECT jobq.enqueue('rival', '{"gate": "rival"}', priority => 10)}) if $rival;
	sql("SELECT jobq.pause_job_type('$type')");
	my $before = sql("SELECT jobq.enqueue('$type', '{\"seconds\": 0, \"gate\": \"never\"}')");
	sql("UPDATE jobq.queue SET position = position - interval '1 hour' WHERE id = '$before'");
	settled();
	$ends->($died);
	wait_status($node, 'postgres', $rival, 'running', "$what: another takes the limit's place") if $rival;
	my $heir = sql(q{SELECT jobq.enqueue('plain', concurrency_key => 'died')});
	wait_status($node, 'postgres', $heir, 'completed', "$what: another type's job gets the key");
	is(sql("SELECT status || ' ' || error_code FROM jobq.jobs WHERE id = '$died'"), $left, "$what: the attempt has been settled");
	is(sql("SELECT status FROM jobq.jobs WHERE id = '$before'"), 'pending', "$what: the job before it still waits");
	sql("INSERT INTO gate VALUES ('rival')");
	sql("SELECT jobq.cancel_job(id) FROM jobq.queue WHERE id IN ('$died', '$before')");
	all_done("$what: the rest");
	sql("SELECT jobq.resume_job_type('$type'); TRUNCATE gate");
	return;
}

sub crash { $node->stop('immediate'); return $node->start; }
sub end_worker { return sql("SELECT pg_terminate_backend(substring(worker FROM '\\d+')::int) FROM jobq.jobs WHERE id = '$_[0]'"); }
settled_at_once('a tool, its server crashes', 'tool', 'retry server_crash', \&crash);
settled_at_once('a handler, its worker is terminated', 'sql', 'pending 57P01', \&end_worker);
settled_at_once('a tool beside a rival', 'tool', 'retry server_crash', \&crash, 1);

$node->stop;
done_testing();
