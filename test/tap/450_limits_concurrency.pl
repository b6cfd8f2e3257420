# Concurrency limits: no type and no shared limit ever has more running jobs than allowed, nor the
# running jobs more weight than jobq.max_weight, by the times in history; a heavy job waits for its
# place and is not passed endlessly.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('limits', 'jobq.max_sql_workers = 6');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION naps(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE p ? 'gate' AND NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  PERFORM pg_sleep(coalesce((p->>'seconds')::float8, 0));
END $$;
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
-- The highest weight of jobs of these types that ran at one time.
CREATE FUNCTION most(types text[], weights int[] DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
  SELECT max(n) FROM (
    SELECT sum(d) OVER (ORDER BY at, d) FROM jobq.jobs j
      JOIN unnest(types, coalesce(weights, array_fill(1, ARRAY[cardinality(types)]))) t(name, weight) ON t.name = j.job_type,
      LATERAL (VALUES (j.started_at, weight), (j.completed_at, -weight)) e(at, d)
     WHERE j.started_at IS NOT NULL) m(n)
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub all_done { return wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', $_[0]); }

sub forget { return sql('DELETE FROM jobq.history'); }

# Enqueues $n jobs of each type that run until the gate opens (tools: until they are cancelled): so
# many run at once, no more, and the rest waits.
sub fills
{
	my ($n, $types, $most, $what) = @_;
	my $running = "SELECT count(*) FROM jobq.jobs WHERE job_type = ANY ('{$types}') AND status = 'running'";

	sql('TRUNCATE gate');
	sql("SELECT count(jobq.enqueue(t, '{\"gate\": \"open\", \"seconds\": 0}'))"
		  . " FROM generate_series(1, $n), unnest('{$types}'::text[]) t JOIN jobq.job_types y ON y.name = t WHERE y.command IS NULL");
	sql("SELECT count(jobq.enqueue(t, '{\"seconds\": 600}'))"
		  . " FROM generate_series(1, $n), unnest('{$types}'::text[]) t JOIN jobq.job_types y ON y.name = t WHERE y.command IS NOT NULL");
	wait_for_sql($node, "SELECT ($running) = $most", "$what: so many run at once");
	sql('SELECT jobq.health()') for 1 .. 2;
	is(sql($running), $most, "$what: and no more");
	sql("INSERT INTO gate VALUES ('open')");
	sql("SELECT jobq.cancel_jobs(name, include_running => true) FROM jobq.job_types WHERE command IS NOT NULL AND name = ANY ('{$types}')");
	all_done($what);
	return sql('TRUNCATE gate');
}

# The dispatcher knows it, too: it answers twice.
sub set_to
{
	my ($name, $value) = @_;

	$node->append_conf('postgresql.conf', "$name = '$value'");
	$node->reload;
	wait_for_sql($node, "SELECT current_setting('$name') = '$value'", "$name is '$value'");
	sql('SELECT jobq.health()') for 1 .. 2;
	return;
}

# ---------- max_concurrent of a type, of several, live ----------

sql(<<'END');
SELECT jobq.set_limit('two', max_concurrent => 2), jobq.set_limit('three', max_concurrent => 3);
SELECT jobq.create_job_type('own', 'naps(jsonb)', max_concurrent => 2);
SELECT jobq.create_job_type('a', 'naps(jsonb)', options => '{"limits": ["two", "three"]}');
SELECT jobq.create_job_type('b', 'naps(jsonb)', options => '{"limits": ["three"]}');
SELECT jobq.create_job_type('t', command => ARRAY['/bin/sleep', '{seconds}'], options => '{"output": "none", "limits": ["three"]}');
SELECT jobq.create_job_type('free', 'naps(jsonb)');
END
fills(4, 'own', 2, 'a type');
fills(4, 'a', 2, 'a shared limit');
fills(4, 'b,t', 3, 'another one, with tools');
my $some = q{SELECT jobq.enqueue(t, jsonb_build_object('seconds', (i %% 3) * 0.02)) FROM generate_series(1, %d) i, unnest('{%s}'::text[]) t};
sql(sprintf $some, 40, 'own,a,b,t,free');
all_done('types with limits');
is(sql("SELECT most('{own}')"), 2, 'max_concurrent of a type');
is(sql("SELECT most('{a}')"), 2, 'the smaller of two shared limits');
is(sql("SELECT most('{a,b,t}')"), 3, 'a limit shared by SQL types and tools');
cmp_ok(sql("SELECT most('{free}')"), '>=', 1, 'the others run as well');
forget();

# A limit that a type names twice counts once.
sql(q{SELECT jobq.create_job_type('twice', command => ARRAY['/bin/sleep', '{seconds}'], options => '{"output": "none", "limits": ["three", "three"]}')});
fills(4, 'twice', 3, 'a limit that is named twice');
sql(sprintf $some, 12, 'twice');
all_done('a limit that is named twice');
is(sql("SELECT most('{twice}')"), 3, 'counts once');
forget();

# Short jobs handed out in batches: a worker counts as one, and runs one at a time.
sql(sprintf($some, 3000, 'b') =~ s/0\.02/0/r);
sql("SELECT jobq.alter_job_type('b', options => '{\"limits\": [\"two\"]}')");
sql("SELECT jobq.enqueue_many('b', array_fill('{}'::jsonb, ARRAY[3000]))");
sql("SELECT jobq.enqueue_many('a', array_fill('{}'::jsonb, ARRAY[1000]))");
all_done('batches under a limit');
cmp_ok(sql("SELECT most('{b}')"), '<=', 3, 'batches: no more than the larger limit before and after');
forget();

# changed while jobs run and wait
sql("INSERT INTO gate VALUES ('closed')");
sql(<<'END');
SELECT jobq.set_limit('live', max_concurrent => 1);
SELECT jobq.create_job_type('w', 'waiter(jsonb)', options => '{"limits": ["live"]}');
SELECT jobq.enqueue('w', '{"gate": "open"}') FROM generate_series(1, 6);
END
my $running = "(SELECT count(*) FROM jobq.jobs WHERE job_type = 'w' AND status = 'running')";
wait_for_sql($node, "SELECT $running = 1", 'one runs');
sql("SELECT jobq.set_limit('live', max_concurrent => 3)");
wait_for_sql($node, "SELECT $running = 3", 'three run when the limit is raised');
my $pid = dispatcher($node, 'postgres');
sql("SELECT pg_terminate_backend($pid)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $pid);
sql('SELECT jobq.health()') for 1 .. 2;
is(sql("SELECT $running"), 3, 'which still counts three');
sql("SELECT jobq.alter_job_type('w', options => '{\"limits\": []}')");
wait_for_sql($node, "SELECT $running = 6", 'without the limit all run');
sql("SELECT jobq.alter_job_type('w', options => '{\"limits\": [\"live\"]}')");
sql("SELECT jobq.enqueue('w', '{\"gate\": \"open\"}') FROM generate_series(1, 4)");
sql("SELECT jobq.health()") for 1 .. 2;
is(sql("SELECT $running"), 6, 'under it again those that run count');
sql("INSERT INTO gate VALUES ('open')");
all_done('the rest');
is(sql("SELECT most('{w}')"), 6, 'never more than at the most');
forget();

# ---------- weight ----------

sql(<<'END');
SELECT jobq.create_job_type('w1', 'naps(jsonb)', cpu_weight => 1);
SELECT jobq.create_job_type('w2', 'naps(jsonb)', cpu_weight => 2);
SELECT jobq.create_job_type('w3', command => ARRAY['/bin/sleep', '{seconds}'], cpu_weight => 3, options => '{"output": "none"}');
SELECT jobq.create_job_type('w9', 'naps(jsonb)', cpu_weight => 9);
SELECT jobq.create_job_type('w0', 'waiter(jsonb)', cpu_weight => 0);
SELECT jobq.create_job_type('hold', 'waiter(jsonb)', cpu_weight => 1);
END
set_to('jobq.max_weight', 5);
fills(1, 'w2,w3', 2, 'the whole budget');
sql(sprintf $some, 40, 'w1,w2,w3');
sql(sprintf $some, 5, 'w9');
all_done('types with weights');
is(sql("SELECT most('{w1,w2,w3}', '{1,2,3}')"), 5, 'no more weight than the budget, and all of it');
is(sql("SELECT most('{w1,w2,w3,w9}', '{1,2,3,9}')"), 9, 'a job of more weight than that runs alone');
forget();

# A heavy job waits while lighter ones pass it, 100 by default, then its place is kept.
sub passed
{
	my ($what, $options, $passes) = @_;

	sql("SELECT jobq.alter_job_type('w9', options => '$options')");
	sql('TRUNCATE gate');
	my $holder = sql("SELECT jobq.enqueue('hold', '{\"gate\": \"open\"}')");
	wait_status($node, 'postgres', $holder, 'running', "$what: a light one runs");
	sql("SELECT jobq.enqueue('w9')");
	sql("SELECT jobq.enqueue_many('w1', array_fill('{\"seconds\": 0.001}'::jsonb, ARRAY[400]))");
	wait_for_sql($node, "SELECT count(*) >= $passes FROM jobq.history WHERE type_id = (SELECT id FROM jobq.job_types WHERE name = 'w1')", "$what: others pass a heavy one");
	sql('SELECT jobq.health()') for 1 .. 2;
	sql("INSERT INTO gate VALUES ('open')");
	all_done($what);
	my $n = sql("SELECT count(*) FROM jobq.jobs l, jobq.jobs h WHERE h.job_type = 'w9' AND l.job_type = 'w1' AND l.started_at < h.started_at AND l.created_at > h.created_at");
	is($n, $passes, "$what: so many pass it, and no more");
	is(sql("SELECT most('{w1,w9}', '{1,9}')"), 9, "$what: it runs alone");
	forget();
	return;
}
# A run of more than 100 ms returns the other jobs of its batch, which count again at the next
# hand-out: here each is handed out once.
sql(q{SELECT jobq.alter_job_type('w1', options => '{"batch": false}')});
passed('by default', '{}', 100);
passed('max_skip', '{"max_skip": 10}', 10);
passed('max_skip 0', '{"max_skip": 0}', 0);

# A job of weight 0 neither waits nor counts.
sql('TRUNCATE gate');
my $id = sql("SELECT jobq.enqueue('w9', '{\"seconds\": 600}')");
wait_status($node, 'postgres', $id, 'running', 'a heavy one runs');
my $zero = sql("SELECT jobq.enqueue('w0', '{\"gate\": \"open\"}')");
wait_status($node, 'postgres', $zero, 'running', 'one without weight beside it');
my $one = sql("SELECT jobq.enqueue('w1')");
sql('SELECT jobq.health()') for 1 .. 2;
is(sql("SELECT status FROM jobq.jobs WHERE id = '$one'"), 'pending', 'one with weight waits');
$pid = dispatcher($node, 'postgres');
sql("SELECT pg_terminate_backend($pid)");
wait_dispatcher($node, 'postgres', 'another dispatcher', $pid);
sql('SELECT jobq.health()') for 1 .. 2;
is(sql("SELECT status FROM jobq.jobs WHERE id = '$one'"), 'pending', 'also for another dispatcher');
set_to('jobq.max_weight', 0);
wait_status($node, 'postgres', $one, 'completed', 'it runs when the budget is off');
set_to('jobq.max_weight', 10);
$one = sql("SELECT jobq.enqueue('w1')");
wait_status($node, 'postgres', $one, 'completed', 'and fits when the budget is 10');
$one = sql("SELECT jobq.enqueue('w2')");
sql('SELECT jobq.health()') for 1 .. 2;
is(sql("SELECT status FROM jobq.jobs WHERE id = '$one'"), 'pending', 'what does not fit waits');
sql("SELECT jobq.cancel_job('$id')");
wait_status($node, 'postgres', $one, 'completed', 'until there is room');
sql("INSERT INTO gate VALUES ('open')");
wait_status($node, 'postgres', $zero, 'completed', 'the weightless one ends');

# ---------- jobq.max_concurrent, jobq.job_type_filter ----------

set_to('jobq.max_weight', 0);
set_to('jobq.max_concurrent', 3);
forget();
fills(2, 'free,t,w1', 3, 'jobq.max_concurrent');
sql(sprintf $some, 30, 'free,t,w1');
all_done('a few at once');
is(sql("SELECT most('{free,t,w1}')"), 3, 'jobq.max_concurrent counts all types');

sub waits_and_runs
{
	my ($filter, $waits, $runs) = @_;

	set_to('jobq.job_type_filter', $filter);
	my %ids = map { $_ => sql("SELECT jobq.enqueue('$_', '{\"seconds\": 0}')") } @$waits, @$runs;
	wait_status($node, 'postgres', $ids{$_}, 'completed', "'$filter': $_ runs") foreach @$runs;
	sql('SELECT jobq.health()') for 1 .. 2;
	is(sql("SELECT status FROM jobq.jobs WHERE id = '$ids{$_}'"), 'pending', "'$filter': $_ waits") foreach @$waits;
	return;
}
waits_and_runs('free', [qw(w1 t)], [qw(free)]);
sub excluded { return like(sql("SELECT jobq.health() -> 'checks' -> 'queues' ->> 'message'"), qr/^jobs of $_[0] wait: .*job_type_filter/, "health says why: $_[0]"); }
excluded('2 types');
waits_and_runs('w1, t', [qw(free)], [qw(w1 t)]);
excluded('1 type');
waits_and_runs('-t', [qw(t)], [qw(w1 free)]);
sql("SELECT jobq.create_job_type('send mail', 'naps(jsonb)')");
waits_and_runs('"send mail", free', [qw(w1)], [ 'send mail', 'free' ]);
waits_and_runs('"-send mail", -t', [ 'send mail', 't' ], [qw(free)]);
waits_and_runs('', [], [qw(w1 free t)]);
all_done('without a filter everything runs');

# ---------- a type takes a limit that an older snapshot drops ----------

state_function($node);
sql(<<'END');
SELECT jobq.set_limit('taken', 1), jobq.set_limit('free', 1);
END
my $old = $node->background_psql('postgres');
foreach my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	$old->query_safe("BEGIN ISOLATION LEVEL $level; SELECT 1");
	sql(q{SELECT jobq.create_job_type('taker', 'naps(jsonb)', options => '{"limits": ["taken"]}')});
	is($old->query_safe(q{SELECT state_of($$SELECT jobq.drop_limit('taken')$$)}), '40001', "$level: a limit that a newer type has is not dropped");
	$old->query_safe("ROLLBACK; BEGIN ISOLATION LEVEL $level; SELECT 1");
	is($old->query_safe(q{SELECT state_of($$SELECT jobq.drop_limit('taken')$$)}), '55006', 'nor with a new snapshot');
	sql(q{SELECT jobq.drop_job_type('taker')});
	$old->query_safe("ROLLBACK; BEGIN ISOLATION LEVEL $level");
	is($old->query_safe(q{SELECT state_of($$SELECT jobq.drop_limit('free')$$)}), 'done', 'one without types is');
	$old->query_safe('ROLLBACK');
}
$old->quit;

$node->stop;
done_testing();
