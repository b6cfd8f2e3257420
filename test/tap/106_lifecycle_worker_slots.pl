# Background workers run out: jobs wait at no charge, health() and one warning report it, and the
# jobs run when workers are free; two roles share one worker.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

# Launcher and dispatchers of two databases take three of four slots; both
# databases compete for the fourth.
my $node = jobq_server('slots', 'max_worker_processes = 4', 'max_logical_replication_workers = 0', 'jobq.max_sql_workers = 4');
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE rival');
foreach my $db (qw(postgres rival))
{
	$node->safe_psql($db, <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('tool', command => '{true}', max_attempts => 1, options => '{"output": "none"}');
END
	wait_dispatcher($node, $db, "the dispatcher of $db runs");
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance'}),
		'no other process needs a worker');
}

my $hog = $node->safe_psql('rival', q{SELECT jobq.enqueue('waiter', '{"gate": "open"}')});
wait_status($node, 'rival', $hog, 'running', 'one database has the only worker');
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('open')});
my @jobs = map { $node->safe_psql('postgres', "SELECT jobq.enqueue('$_', '{\"gate\": \"open\"}')") } qw(waiter waiter tool);
my $list = join ', ', map { "'$_'" } @jobs;
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'status' = 'degraded'}, 'health() knows that workers have run out');
like($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'slots'->>'message'}), qr/max_worker_processes/, 'and what to do');
isnt($node->safe_psql('postgres', q{SELECT jobq.health()->>'status'}), 'healthy', 'it is not healthy');
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT concat_ws(' ', status, attempts, runs, error_code), ', ') FROM jobq.jobs WHERE id IN ($list)"),
	'pending 0 0', 'jobs wait, nothing is charged');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_id IN ($list)"), '0', 'no attempt has failed');

# it tries again every second
wait_for_sql($node, "SELECT clock_timestamp() - created_at > interval '5 s' FROM jobq.jobs WHERE id = '$jobs[0]'", 'five seconds later');
# the rival's job may have waited for the only worker, too
my $dispatcher = dispatcher($node, 'postgres');
my $warnings = () = slurp_file($node->logfile) =~ /\[$dispatcher\] .*WARNING:.*out of background worker slots/g;
my $minutes = $node->safe_psql('postgres', "SELECT 1 + extract(epoch FROM clock_timestamp() - created_at)::int / 60 FROM jobq.jobs WHERE id = '$jobs[0]'");
ok($warnings >= 1 && $warnings <= $minutes, "one warning a minute in the log: $warnings");
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.jobs WHERE id IN ($list) AND status = 'pending' AND attempts = 0"), '3', 'all still wait');

# the rival's worker leaves
$node->safe_psql('rival', q{INSERT INTO gate VALUES ('open')});
wait_status($node, 'rival', $hog, 'completed', 'the other database is done');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
  WHERE backend_type = 'jobq sql worker' AND datname = 'rival'});
wait_for_sql($node, "SELECT count(*) >= 1 FROM jobq.jobs WHERE id IN ($list) AND status = 'completed'", 'with a free worker jobs run');
$node->safe_psql('postgres', q{ALTER SYSTEM SET max_worker_processes = 20});
$node->restart;
wait_for_sql($node, "SELECT count(*) = 3 FROM jobq.jobs WHERE id IN ($list) AND status = 'completed' AND attempts = 1",
	'with enough all complete, with one attempt');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'slots'->>'status' = 'healthy'}, 'health() has recovered');

# ---------- two roles, one worker ----------

$node->safe_psql('postgres', <<'END');
ALTER SYSTEM SET jobq.max_sql_workers = 1;
SELECT pg_reload_conf();
CREATE ROLE one LOGIN;
CREATE ROLE two LOGIN;
CREATE TABLE ledger (who text DEFAULT current_user, at timestamptz DEFAULT clock_timestamp(), pid int DEFAULT pg_backend_pid());
GRANT INSERT ON ledger TO one, two;
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(0.02);
  INSERT INTO public.ledger DEFAULT VALUES;
END $$;
SELECT jobq.create_job_type(r, 'note(jsonb)', run_as => r::regrole, max_attempts => 1, options => '{"batch": false}') FROM unnest('{one,two}'::text[]) r;
END
wait_for_sql($node, q{SELECT current_setting('jobq.max_sql_workers') = '1'}, 'one worker for two roles');
$node->restart;
$node->safe_psql('postgres', q{SELECT jobq.enqueue(r) FROM generate_series(1, 50), unnest('{one,two}'::text[]) r});
# only workers with a slot: a worker without one may not have exited yet
my ($left, $now, $most) = (100, 0, 0);
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	($left, $now) = split /\|/, $node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM jobq.queue), jobq.health()->'checks'->'workers'->'count'});
	$most = $now if $now > $most;
	last if $left == 0;
}
is($left, 0, 'jobs run');
is($most, 1, 'never more than one worker at a time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT pid, min(at) AS came, max(at) AS went FROM ledger GROUP BY pid) a,
  (SELECT pid, min(at) AS came, max(at) AS went FROM ledger GROUP BY pid) b WHERE a.pid < b.pid AND a.came < b.went AND b.came < a.went}), '0', 'the two workers run one after the other');
is($node->safe_psql('postgres', q{SELECT string_agg(who || ' ' || n, ', ' ORDER BY who) FROM (SELECT who, count(*) n FROM ledger GROUP BY who) x}),
	'one 50, two 50', 'every job has run as its role');
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT pid) FROM ledger'), '>', 2, 'they take turns');
cmp_ok($node->safe_psql('postgres', q{SELECT extract(epoch FROM max(at) - min(at))::int FROM ledger}), '<', 60, 'in time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.jobs WHERE job_type IN ('one', 'two') AND (status <> 'completed' OR attempts <> 1)}), '0',
	'with one attempt each');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
