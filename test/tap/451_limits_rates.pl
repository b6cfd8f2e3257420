# Rates: in no window of that length, at any beginning, do more jobs start than the limit allows, by
# the times in history, also when processes die in between; and no fewer when none dies.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('rates', 'jobq.max_sql_workers = 3');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION naps(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(coalesce((p->>'seconds')::float8, 0));
  IF p ? 'fail' AND (SELECT attempts FROM jobq.current_job()) = 1 THEN RAISE 'told to'; END IF;
END $$;
-- The most starts of these types in any window: some window with the most begins with a start.
CREATE FUNCTION most(types text[], width interval) RETURNS bigint LANGUAGE sql AS $$
  SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY started_at RANGE BETWEEN CURRENT ROW AND width FOLLOWING)
                        FROM jobq.jobs WHERE job_type = ANY (types) AND started_at IS NOT NULL) w(n)
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub all_done { return wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', $_[0]); }

sub handed_out { return sql('SELECT handed_out FROM jobq.stat_dispatcher'); }

sub spread { return sql("SELECT extract(epoch FROM max(started_at) - min(started_at)) FROM jobq.jobs WHERE job_type = '$_[0]'"); }

# Waits until so many jobs of these types have started; no more do.  For a window that does not end.
sub starts
{
	my ($types, $n, $what) = @_;
	my $started = "SELECT count(*) FROM jobq.jobs WHERE job_type = ANY ('{$types}') AND started_at IS NOT NULL";

	wait_for_sql($node, "SELECT ($started) = $n", $what);
	sql('SELECT jobq.health()') for 1 .. 2;
	return is(sql($started), $n, "$what: and no more");
}

# ---------- exact, and no slower than necessary ----------

sql(<<'END');
SELECT jobq.create_job_type('r', 'naps(jsonb)', rate_limit => 20, rate_window => '1h');
SELECT jobq.create_job_type('slow', 'naps(jsonb)', rate_limit => 2, rate_window => '1h');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sleep', '{seconds}'], options => '{"output": "none"}',
  rate_limit => 5, rate_window => '1h');
SELECT jobq.create_job_type('free', 'naps(jsonb)');
SELECT jobq.enqueue_many('r', array_fill('{}'::jsonb, ARRAY[120]));
SELECT jobq.enqueue_many('free', array_fill('{}'::jsonb, ARRAY[500]));
SELECT jobq.enqueue('slow', '{"seconds": 0.5}') FROM generate_series(1, 10);
SELECT jobq.enqueue('tool', jsonb_build_object('seconds', (i % 3) * 0.3)) FROM generate_series(1, 25) i;
END
starts('r', 20, 'as many start as the limit allows: batches');
starts('slow', 2, 'long runs');
starts('tool', 5, 'tools');
sql(<<'END');
SELECT jobq.alter_job_type('r', rate_window => '500ms'), jobq.alter_job_type('slow', rate_window => '300ms'),
  jobq.alter_job_type('tool', rate_window => '400ms');
END
all_done('types with rates');
cmp_ok(sql("SELECT most('{r}', '500ms')"), '<=', 20, 'no window has more starts: batches');
cmp_ok(sql("SELECT most('{slow}', '300ms')"), '<=', 2, 'runs longer than the window');
cmp_ok(sql("SELECT most('{tool}', '400ms')"), '<=', 5, 'tools');
cmp_ok(spread('r'), '>=', 2.5, 'so it takes at least so long');
sql('DELETE FROM jobq.history');

# a burst of a token bucket, then its rate
sql(<<'END');
SELECT jobq.create_job_type('bucket', 'naps(jsonb)', rate_limit => 20, rate_window => '1s', options => '{"burst": 30}');
SELECT jobq.enqueue_many('bucket', array_fill('{}'::jsonb, ARRAY[50]));
END
all_done('a token bucket');
cmp_ok(spread('bucket'), '>=', 0.9, 'what exceeds the burst takes its time');
sql('DELETE FROM jobq.history');
# ---------- shared, changed live ----------

sql(<<'END');
SELECT jobq.set_limit('api', rate_limit => 6, rate_window => '1h');
SELECT jobq.create_job_type('a', 'naps(jsonb)', options => '{"limits": ["api"]}', rate_limit => 4, rate_window => '400ms');
SELECT jobq.create_job_type('b', command => '{true}', options => '{"output": "none", "limits": ["api"]}');
SELECT jobq.enqueue(t) FROM generate_series(1, 30), unnest('{a,b}'::text[]) t;
END
starts('a,b', 6, 'a shared rate');
sql("SELECT jobq.set_limit('api', rate_limit => 6, rate_window => '400ms')");
all_done('a shared rate');
cmp_ok(sql("SELECT most('{a,b}', '400ms')"), '<=', 6, 'a rate shared by a SQL type and a tool');
cmp_ok(sql("SELECT most('{a}', '400ms')"), '<=', 4, 'beside one of its own');
sql('DELETE FROM jobq.history');

sql("SELECT jobq.set_limit('api', rate_limit => 100, rate_window => '1h'); SELECT jobq.alter_job_type('a', reset => '{rate_limit}')");
sql("SELECT jobq.enqueue('a') FROM generate_series(1, 5)");
all_done('starts within the hour, whatever the time they took before');
sql('DELETE FROM jobq.history');
sql("SELECT jobq.set_limit('api', rate_limit => 3, rate_window => '1h')");
my $handed = handed_out();
sql("SELECT jobq.enqueue('a') FROM generate_series(1, 20)");
sql('SELECT jobq.health()') for 1 .. 2;
is(handed_out(), $handed, 'a narrower rate counts at once, with earlier starts');
sql("SELECT jobq.set_limit('api')");
all_done('without one the rest runs');
sql('DELETE FROM jobq.history');

# ---------- attempts count, jobs that did not start don't ----------

$handed = handed_out();
sql(<<'END');
SELECT jobq.create_job_type('retries', 'naps(jsonb)', rate_limit => 4, rate_window => '1h', backoff_base => '0', options => '{"events": "all"}');
SELECT jobq.enqueue('retries', '{"fail": 1}') FROM generate_series(1, 4);
END
wait_for_sql($node, "SELECT count(*) = 4 FROM jobq.jobs WHERE status = 'retry'", 'four attempts fail');
sql('SELECT jobq.health()') for 1 .. 2;
is(handed_out() - $handed, 4, 'and no other begins');

restart_dispatcher($node);
is(handed_out() - $handed, 4, 'nor after the dispatcher died');
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher after a restart');
sql('SELECT jobq.health()') for 1 .. 2;
is(handed_out() - $handed, 4, 'nor after a restart of the server');
sql("SELECT jobq.alter_job_type('retries', rate_limit => 6)");
wait_for_sql($node, "SELECT sum(runs) = 6 FROM jobq.jobs WHERE job_type = 'retries'", 'two more with a higher limit');
sql('SELECT jobq.health()') for 1 .. 2;
is(handed_out() - $handed, 6, 'and no third');
sql("SELECT jobq.drop_job_type('retries', true)");
sql('DELETE FROM jobq.history');

# ---------- a restart: starts in history, and starts missing there ----------

sql(<<'END');
SELECT jobq.create_job_type('kept', 'naps(jsonb)', rate_limit => 5, rate_window => '1h');
SELECT jobq.create_job_type('gone', 'naps(jsonb)', rate_limit => 5, rate_window => '1h', keep_completed => '0');
SELECT jobq.create_job_type('few', 'naps(jsonb)', rate_limit => 5, rate_window => '1h', options => '{"keep_completed_count": 1}');
SELECT jobq.create_job_type('dead', 'naps(jsonb)', rate_limit => 5, rate_window => '1h', max_attempts => 1, keep_dead => '0');
SELECT jobq.create_job_type('few_dead', 'naps(jsonb)', rate_limit => 5, rate_window => '1h', max_attempts => 1, options => '{"keep_dead_count": 0}');
SELECT jobq.set_limit('both', rate_limit => 7, rate_window => '1h');
SELECT jobq.create_job_type('c', 'naps(jsonb)', options => '{"limits": ["both"]}');
SELECT jobq.create_job_type('d', command => '{true}', options => '{"output": "none", "limits": ["both"]}');
SELECT jobq.enqueue(t, '{"fail": 1}') FROM generate_series(1, 2), unnest('{dead,few_dead}'::text[]) t;
SELECT jobq.enqueue(t) FROM generate_series(1, 2), unnest('{kept,c,d,gone,few}'::text[]) t;
END
all_done('two of each');
restart_dispatcher($node);
sql("SELECT jobq.enqueue(t) FROM unnest('{kept,c,gone}'::text[]) t");
all_done('a third after the dispatcher died');
$node->stop('immediate');
$node->start;
wait_dispatcher($node, 'postgres', 'the dispatcher after a crash');
sql("SELECT jobq.enqueue(t) FROM generate_series(1, 10), unnest('{kept,c,gone,few,dead,few_dead}'::text[]) t");
wait_for_sql($node, "SELECT count(*) = 5 FROM jobq.history WHERE type_id = (SELECT id FROM jobq.job_types WHERE name = 'kept')", 'the window goes on');
wait_for_sql($node, "SELECT count(*) = 7 FROM jobq.history WHERE type_id IN (SELECT id FROM jobq.job_types WHERE name IN ('c', 'd'))", 'a shared one, too');
sql('SELECT jobq.health()') for 1 .. 2;
is(sql("SELECT string_agg(job_type || ' ' || n, ', ' ORDER BY job_type) FROM (SELECT job_type, count(*) FROM jobq.jobs WHERE status = 'pending' GROUP BY 1) j(job_type, n)"),
	'c 8, dead 10, few 10, few_dead 10, gone 10, kept 8', 'unknown windows count as full');
sql("SELECT jobq.cancel_jobs(t) FROM unnest('{kept,c,gone,few,dead,few_dead}'::text[]) t");
sql('DELETE FROM jobq.history');

# A short window is full only until it has passed.
sql("SELECT jobq.alter_job_type('gone', rate_window => '2s')");
$node->restart;
my $id = sql("SELECT jobq.enqueue('gone', keep_completed => '1h')");
wait_status($node, 'postgres', $id, 'completed', 'it runs when the window is over');
cmp_ok(sql("SELECT extract(epoch FROM started_at - pg_postmaster_start_time()) FROM jobq.jobs WHERE id = '$id'"), '>=', 1.9, 'and not before');
sql('DELETE FROM jobq.history');

# ---------- while processes are killed ----------

sql("SELECT jobq.alter_job_type('r', rate_limit => 10, rate_window => '300ms')");
sql("SELECT jobq.enqueue_many('r', array_fill('{\"seconds\": 0.001}'::jsonb, ARRAY[250]))");
for my $n (1 .. 6)
{
	my $done = 20 * $n;

	wait_for_sql($node, "SELECT count(*) >= $done FROM jobq.history", "$done are done");
	my $type = $n % 2 ? 'dispatcher' : 'sql worker';
	wait_for_sql($node, "SELECT count(*) > 0 FROM (SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity WHERE backend_type = 'jobq $type') t WHERE done",
		"a $type is terminated");
	cmp_ok(sql('SELECT count(*) FROM jobq.queue'), '>', 0, 'before all are done');
}
all_done('all the same all are done');
cmp_ok(sql("SELECT most('{r}', '300ms')"), '<=', 10, 'and no window had more starts');
is(sql("SELECT count(*) FROM jobq.history WHERE status = 'completed'"), 250, '!each once');

# ---------- a limit that is lowered with starts in an open claim, and raised again ----------

sql("SELECT jobq.create_job_type('claimed', rate_limit => 100, rate_window => '1h')");
sql("SELECT jobq.enqueue_many('claimed', array_fill('{}'::jsonb, ARRAY[200]))");
my $claimer = $node->background_psql('postgres');
is($claimer->query_safe("BEGIN; SELECT count(*) FROM jobq.claim('{claimed}', 20)"), 20, '20 in an open claim');
sql("SELECT jobq.alter_job_type('claimed', rate_limit => 1)");
wait_status($node, 'postgres', sql(q{SELECT jobq.enqueue('free', '{"seconds": 0}')}), 'completed', 'another type goes on');
$claimer->query_safe('COMMIT');
$claimer->quit;
is(sql("SELECT count(*) FROM jobq.claim('{claimed}', 100)"), 0, 'lowered, it is used up');
sql("SELECT jobq.alter_job_type('claimed', rate_limit => 30)");
is(sql("SELECT count(*) FROM jobq.claim('{claimed}', 100)"), 10, 'raised, it knows them');

$node->stop;
done_testing();
