# Thousands of tenants of a fair type wait, and a limit lets only one job start at a time: all take
# turns, and the work of the dispatcher at the end of a job does not grow with the number of waiting
# tenants.  The sweep is off.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $tenants = 3000;
my $node = jobq_server('fair', 'jobq.max_sql_workers = 2', "jobq.sweep_interval = '1h'", 'log_min_messages = debug2', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ledger (seq int GENERATED ALWAYS AS IDENTITY, id uuid, type text, tenant text);
CREATE FUNCTION note() RETURNS void LANGUAGE sql AS $$
  INSERT INTO public.ledger (id, type, tenant) SELECT id, job_type, tenant FROM jobq.current_job()
$$;
-- The first of a tenant's jobs blocks while another session holds the lock.
CREATE FUNCTION gated(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM public.note();
  IF p ? 'gate' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
END $$;
-- The lane of each turn: several tenants may share one.
CREATE VIEW turns AS
  SELECT seq, l.type, tenant, lane, row_number() OVER (PARTITION BY l.type, lane ORDER BY seq) AS turn
    FROM ledger l JOIN jobq.job_types t ON t.name = l.type, jobq_internal._sublane(t.id, tenant) lane;
SELECT jobq.set_limit('one', max_concurrent => 1);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub set_to
{
	my ($name, $value) = @_;

	sql("ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	wait_for_sql($node, "SELECT current_setting('$name') = '$value'", "$name is $value");
	sql('SELECT jobq.health()') for 1 .. 2;
	return;
}

# How often a type has joined a wait queue since then, in the server log.
sub parked_since
{
	my ($log_at) = @_;
	my $n = () = slurp_file($node->logfile, $log_at) =~ /DEBUG:  jobq: type \d+ waits/g;

	return $n;
}

# All at once: the first tenant has many jobs before the others, which have two each.
sub enqueue_all
{
	my ($type) = @_;

	sql("SELECT jobq.pause_job_type('$type')");
	sql("SELECT count(*) FROM jobq.enqueue_many('$type', array_fill('{}'::jsonb, '{200}'), tenant => 'tenant 1')");
	sql("SELECT count(jobq.enqueue('$type', tenant => 'tenant ' || i)) FROM generate_series(2, $tenants) i, generate_series(1, 2)");
	return;
}

# In a batch a run of more than 100 ms runs again, and so do the jobs handed out after it: returns
# true if there was one.  Each run takes a number.
sub was_disturbed
{
	return sql("SELECT max(seq) - min(seq) + 1 > count(*) OR bool_or(completed_at - started_at > '50 ms') FROM ledger JOIN jobq.history USING (id)") eq 't';
}

# Each type has jobs of all tenants; at most one may start at a time because of `what`.
sub all_take_turns
{
	my ($what, $args, @types) = @_;

	sql("SELECT jobq.create_job_type(t, 'note()', $args) FROM unnest('{" . join(',', @types) . "}'::text[]) t");
	for (1 .. 20)
	{
		my $again = take_turns($what, @types);

		if ($again == 0 || $args =~ /"batch": false/ || !was_disturbed())
		{
			is($again, 0, "$what: no tenant has a second turn before all others had one");
			return;
		}
		note("$what: the machine stood still, once more");
	}
	return fail("$what: never undisturbed");
}

# The number of tenants with a second turn before the first turn of another.
sub take_turns
{
	my ($what, @types) = @_;
	my $list = join ',', @types;
	my $jobs = @types * (200 + 2 * ($tenants - 1));

	sql('TRUNCATE ledger');
	enqueue_all($_) foreach @types;
	sql('SELECT jobq.health()') for 1 .. 2;
	my $log_at = -s $node->logfile;
	sql("SELECT jobq.resume_job_type(t) FROM unnest('{$list}'::text[]) t");
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', "$what: all have run");
	is(sql('SELECT count(*) || \' \' || count(DISTINCT id) FROM ledger'), "$jobs $jobs", "!$what: each once");
	my $parked = parked_since($log_at);
	cmp_ok($parked, '>=', 20, "$what: types had to wait");
	cmp_ok($parked, '<=', 2 * @types * $jobs, "$what: at the end of a job one thing a type is tried, whatever waits");
	return sql('SELECT count(*) FROM (SELECT turn < lag(turn) OVER (PARTITION BY type ORDER BY seq) AS again FROM turns) t WHERE again');
}

my $fair = '"fair_by": "tenant", "batch": false';
all_take_turns('max_concurrent', "max_concurrent => 1, options => '{$fair}'", 'own');
all_take_turns('a shared limit', "options => '{$fair, \"limits\": [\"one\"]}'", 'shared', 'with');
all_take_turns('batches', "max_concurrent => 1, options => '{\"fair_by\": \"tenant\"}'", 'batched');
set_to('jobq.max_weight', 1);
all_take_turns('weight', "options => '{$fair}'", 'heavy');
set_to('jobq.max_weight', 0);
# ---------- many types wait for the same ----------

sub workers
{
	my ($n) = @_;

	$node->append_conf('postgresql.conf', "jobq.max_sql_workers = $n");
	$node->restart;
	return wait_dispatcher($node, 'postgres', "the dispatcher of a server with $n workers");
}

# The dispatcher's processor time, in clock ticks.
sub ticks
{
	my @stat = split ' ', slurp_file('/proc/' . dispatcher($node, 'postgres') . '/stat') =~ s/.*\) //r;

	return $stat[11] + $stat[12];
}

# $types types with $each jobs and the same options, and a paused type with the job that would be
# the first.  $beside jobs of other types exist already.
sub many_types
{
	my ($what, $types, $each, $options, $beside) = @_;
	my $all = $types * $each;
	my $args = "'note()', options => '{\"batch\": false$options}'";

	sql('TRUNCATE ledger; DELETE FROM jobq.history');
	sql("SELECT jobq.create_job_type('paused', $args), jobq.pause_job_type('paused'), jobq.enqueue('paused', priority => 100)");
	sql("SELECT count(jobq.create_job_type('many' || i, $args)), count(jobq.pause_job_type('many' || i)) FROM generate_series(1, $types) i");
	sql("SELECT count(jobq.enqueue('many' || i, jsonb_build_object('n', j), priority => -j / 4))
	  FROM generate_series(1, $each) j, generate_series(1, $types) i");
	sql('SELECT jobq.health()') for 1 .. 2;
	my ($log_at, $ticks) = (-s $node->logfile, ticks());
	sql("SELECT count(jobq.resume_job_type('many' || i)) FROM generate_series(1, $types) i");
	wait_for_sql($node, 'SELECT count(*) = 1 FROM jobq.queue', "$what: all have run but the paused one");
	is(sql("SELECT count(*) || ' ' || count(DISTINCT id) FROM ledger WHERE type LIKE 'many%'"), "$all $all", "!$what: each once");
	my $put_aside = parked_since($log_at);
	note(sprintf '%s: %d jobs, %d times a type was put aside, %d ms of the dispatcher with its log', $what, $all, $put_aside, 10 * (ticks() - $ticks));
	cmp_ok($put_aside, '>=', $types, "$what: they had to wait");
	cmp_ok($put_aside, '<=', 4 * ($all + $types + ($beside // 0)), "$what: the end of a job moves one, not all");
	sql("SELECT jobq.resume_job_type('paused')");
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', "$what: then that one runs");
	sql("SELECT count(jobq.drop_job_type(t)) FROM (SELECT 'many' || i FROM generate_series(1, $types) i UNION ALL SELECT 'paused') x(t)");
	return;
}

sub in_order
{
	return is(sql("SELECT count(*) FROM (SELECT h.priority, h.id, lag(h.priority) OVER w AS before, lag(h.id) OVER w AS last
	   FROM ledger l JOIN jobq.history h USING (id) WHERE priority < 100 WINDOW w AS (ORDER BY l.seq)) o
	  WHERE priority > before OR priority = before AND id < last"), 0,
		"$_[0]: by priority, then as they were enqueued");
}

# The first waiting job gets a lower priority: the next one starts when the running job ends.
sub next_in_turn
{
	my ($what, $options) = @_;
	my $gate = $node->background_psql('postgres');

	sql('TRUNCATE ledger');
	sql("SELECT jobq.create_job_type('front', 'gated(jsonb)', options => '{\"batch\": false$options}')");
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	wait_status($node, 'postgres', sql(q{SELECT jobq.enqueue('front', '{"gate": 1}')}), 'running', "$what: one runs");
	my @ids = map { sql("SELECT jobq.enqueue('front', priority => $_)") } 10, 5, 3;
	sql('SELECT jobq.health()') for 1 .. 2;
	sql("SELECT jobq.alter_job('$ids[0]', priority => 1)");
	sql('SELECT jobq.health()') for 1 .. 2;
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	$gate->quit;
	wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', "$what: the others run");
	is(sql('SELECT string_agg(id::text, chr(32) ORDER BY seq) FROM ledger WHERE seq > (SELECT min(seq) FROM ledger)'), "@ids[1, 2, 0]", "$what: in their new order");
	sql("SELECT jobq.drop_job_type('front')");
	return;
}

workers(4);
next_in_turn('a shared limit', ', "limits": ["one"]');
sql('SELECT jobq.set_limit(\'two\', max_concurrent => 2), jobq.set_limit(\'roomy\', max_concurrent => 1000)');
many_types('types that share a limit', 1000, 4, ', "limits": ["two"]');
many_types('types that share a limit of one', 300, 8, ', "limits": ["roomy", "one"]');
in_order('types that share a limit of one');
workers(1);
all_take_turns('one worker', "options => '{$fair}'", 'busy', 'beside');
all_take_turns('a rate', "rate_limit => 2000, rate_window => '1s', options => '{$fair, \"burst\": 1}'", 'rated');
next_in_turn('one worker', '');
many_types('types that wait for one worker', 300, 8, '');
in_order('types that wait for one worker');

# Two limits and the workers are the bottleneck in turn.
workers(2);
sql(q{SELECT jobq.create_job_type('beside1', 'note()', options => '{"batch": false}'), jobq.create_job_type('beside2', 'note()', options => '{"batch": false, "limits": ["two"]}')});
sql('SELECT count(jobq.enqueue(t, priority => 1 - i % 9)) FROM unnest(ARRAY[\'beside1\', \'beside2\']) t, generate_series(1, 1000) i');
many_types('types that wait for a limit beside others', 300, 8, ', "limits": ["one", "two"]', 2000);

# ---------- jobs that arrive while others wait ----------

sql('TRUNCATE ledger');
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
sql("SELECT jobq.create_job_type('gated', 'gated(jsonb)', max_concurrent => 1, options => '{$fair}')");
my $first = sql("SELECT jobq.enqueue('gated', '{\"gate\": 1}', tenant => 'tenant 1')");
wait_status($node, 'postgres', $first, 'running', 'one runs');
sql("SELECT count(jobq.enqueue('gated', tenant => 'tenant ' || i)) FROM generate_series(1, $tenants) i, generate_series(1, 3)");
my $newcomers = "tenant LIKE 'new %' AND lane NOT IN (SELECT lane FROM turns WHERE tenant NOT LIKE 'new %')";
my $log_at = -s $node->logfile;
sql("SELECT jobq.enqueue('gated', tenant => 'new $_')") foreach 1 .. 50;
sql("SELECT jobq.cancel_jobs('gated', tenant => 'tenant 7')");
sql('SELECT jobq.health()') for 1 .. 2;
cmp_ok(parked_since($log_at), '<=', 100, 'a new job of a type at its limit moves no others');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
$gate->quit;
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'all have run');
is(sql('SELECT count(*) || \' \' || count(DISTINCT id) FROM ledger'), join(' ', (3 * $tenants + 1 - 3 + 50) x 2), '!each once, but for those that were cancelled');
cmp_ok(sql("SELECT count(*) FROM turns WHERE $newcomers"), '>', 0, 'some have a lane of their own');
is(sql("SELECT count(*) FROM turns n WHERE $newcomers AND EXISTS (SELECT FROM turns o WHERE o.seq < n.seq AND o.turn > 2)"),
	0, 'no tenant has a third turn before them');

$node->stop;
done_testing();
