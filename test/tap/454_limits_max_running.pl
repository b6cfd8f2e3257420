# set_tenant_quota(max_running): never do more jobs of a tenant and those below it run at once, by
# the times in the events, with any types and executors; other tenants pass; jobs start as soon as
# there is room.  There is no sweep: a job that starts late was found by a commit or by the end of
# another one.

use strict;
use warnings;

use ExecTest qw(tool tools);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('max_running', 'jobq.max_sql_workers = 6', "jobq.sweep_interval = '1h'", 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(coalesce((p->>'seconds')::float8, 0));
  IF p ? 'fail' AND (SELECT runs <= 1 FROM jobq.current_job()) THEN RAISE 'told to'; END IF;
END $$;
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
-- The highest number of concurrent attempts of a tenant and those below it.
CREATE FUNCTION most(of text) RETURNS bigint LANGUAGE sql AS $$
  SELECT max(n) FROM (
    SELECT sum(d) OVER (ORDER BY e.ts, d)
      FROM jobq.events e, LATERAL (SELECT CASE e.type WHEN 'started' THEN 1 ELSE -1 END) x(d)
     WHERE e.type IN ('started', 'completed', 'failed') AND (e.tenant = of OR e.tenant LIKE of || '/%')) m(n)
$$;
CREATE FUNCTION forget() RETURNS void LANGUAGE sql AS 'DELETE FROM jobq.history; DELETE FROM jobq.dead_letters; DELETE FROM jobq.events';
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub all_done { return wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', $_[0]); }

# Returns when the dispatcher has read everything committed before.
sub settled { sql('SELECT jobq.health()') for 1 .. 2; return; }

sub running_is
{
	my ($tenant, $n, $what) = @_;
	my $query = "SELECT count(*) FROM jobq.jobs WHERE status = 'running' AND (tenant = '$tenant' OR tenant LIKE '$tenant/%')";

	wait_for_sql($node, "SELECT ($query) = $n", $what);
	settled();
	return is(sql($query), $n, "$what, and stay so");
}

my $all = '"events": "all"';
sql(<<END);
SELECT jobq.create_job_type('sql', 'work(jsonb)', backoff_base => '20 ms', options => '{$all}'),
  jobq.create_job_type('fair', 'work(jsonb)', backoff_base => '20 ms', options => '{$all, "fair_by": "tenant"}'),
  jobq.create_job_type('fifo', 'work(jsonb)', backoff_base => '20 ms', options => '{$all, "key_order": "fifo"}'),
  jobq.create_job_type('tool', command => ARRAY['/bin/sleep', '{seconds}'], options => '{$all, "output": "none"}'),
  jobq.create_job_type('gated', 'waiter(jsonb)'),
  jobq.create_job_type('long', command => ARRAY['/bin/sleep', '600'], options => '{"output": "none"}');
END

# ---------- arguments ----------

sqlstate_is($node, 'postgres', "SELECT jobq.set_tenant_quota('acme', max_running => -1)", '22003');
sql("SELECT jobq.set_tenant_quota('acme', max_running => 3)");
is(sql("SELECT max_running, max_live IS NULL FROM jobq.tenant_quotas"), '3|t', 'it is stored');
sql("SELECT jobq.set_tenant_quota('acme')");
is(sql('SELECT count(*) FROM jobq.tenant_quotas'), '0', 'without any limit the quota is removed');

# ---------- many jobs, of all kinds ----------

sql(<<'END');
SELECT jobq.set_tenant_quota('acme', max_running => 3), jobq.set_tenant_quota('acme/eu', max_running => 1), jobq.set_tenant_quota('beta', max_running => 2);
END
sql(<<'END');
SELECT count(jobq.enqueue((ARRAY['sql', 'sql', 'fair', 'fifo', 'tool'])[1 + i % 5], jsonb_build_object('seconds', i % 7 / 1000.0) || CASE WHEN i % 11 = 0 THEN '{"fail": 1}'::jsonb ELSE '{}' END,
    priority => i % 3, tenant => (ARRAY['acme', 'acme/eu', 'acme/us', 'acme/eu/de', 'beta', 'other', NULL])[1 + i % 7],
    concurrency_key => CASE WHEN i % 4 = 0 THEN 'k' || i % 3 END))
  FROM generate_series(1, 1500) i;
END
restart_dispatcher($node);
all_done('all kinds of jobs end');
cmp_ok(sql("SELECT most('acme')"), '<=', 3, 'acme never had more than 3');
cmp_ok(sql("SELECT most('acme/eu')"), '<=', 1, 'acme/eu never had more than 1');
cmp_ok(sql("SELECT most('beta')"), '<=', 2, 'beta never had more than 2');
cmp_ok(sql("SELECT most('other')"), '>', 2, 'a tenant without a quota had more');
is(sql('SELECT count(*) FROM jobq.jobs'), 1500, '!none is lost');
sql('SELECT forget()');

# ---------- others pass; a change counts at once; a new dispatcher counts what runs ----------

sql("SELECT jobq.set_tenant_quota('acme/eu'), jobq.set_tenant_quota('acme', max_running => 2)");
sql(<<'END');
SELECT jobq.enqueue('gated', '{"gate": "a"}', tenant => 'acme/' || i) FROM generate_series(1, 6) i;
SELECT jobq.enqueue('gated', '{"gate": "b"}', tenant => 'other') FROM generate_series(1, 2) i;
END
running_is('other', 2, 'jobs behind those of a full tenant run');
running_is('acme', 2, 'two of acme run');
restart_dispatcher($node);
running_is('acme', 2, 'after a new dispatcher, too, two of acme run');
sql("SELECT jobq.set_tenant_quota('acme', max_running => 3)");
running_is('acme', 3, 'raised to 3: three of acme run');
sql("SELECT jobq.set_tenant_quota('acme', max_running => 1)");
settled();
sql("SELECT jobq.cancel_job(id) FROM jobq.jobs WHERE status = 'running' AND tenant = 'acme/1'");
running_is('acme', 2, 'lowered to 1 and one ended: none takes its place');
sql("SELECT jobq.set_tenant_quota('acme', max_live => 100)");
running_is('acme', 4, 'without max_running as many as there are workers');
sql("SELECT jobq.set_tenant_quota('acme', max_running => 2)");
sql("INSERT INTO gate VALUES ('a'), ('b')");
all_done('all end');
sql('DELETE FROM gate');

# ---------- tools and SQL jobs count together ----------

sql("SELECT jobq.enqueue('long', tenant => 'acme'), jobq.enqueue('gated', '{\"gate\": \"c\"}', tenant => 'acme')");
running_is('acme', 2, 'a tool and a SQL job');
sql("SELECT jobq.enqueue('long', tenant => 'acme'), jobq.enqueue('gated', '{\"gate\": \"c\"}', tenant => 'acme')");
running_is('acme', 2, 'no third of either kind');
sql("SELECT jobq.cancel_jobs('long', 'acme', include_running => true)");
running_is('acme', 2, 'a SQL job takes the place of the tool');

# ---------- 0: none runs ----------

sql("SELECT jobq.set_tenant_quota('closed', max_running => 0), jobq.enqueue('sql', tenant => 'closed')");
sql("INSERT INTO gate VALUES ('c')");
wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.queue", 'all others end');
settled();
is(sql("SELECT string_agg(status || ' ' || tenant, ',') FROM jobq.jobs WHERE tenant = 'closed'"), 'pending closed', 'max_running 0: none runs');
sql("SELECT jobq.set_tenant_quota('closed')");
all_done('it runs when the quota is gone');
sql('SELECT forget()');

# ---------- a lock on the quotas delays no job for longer than itself ----------

my $due = sql("SELECT jobq.enqueue('sql', delay => '3s')");
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.tenant_quotas IN ACCESS EXCLUSIVE MODE');
sql("SELECT jobq.pause_job_type('gated'), jobq.resume_job_type('gated')");
settled();
$locker->query_safe('COMMIT');
$locker->quit;
wait_status($node, 'postgres', $due, 'completed', 'a delayed job runs after it');
sql('SELECT forget()');

# ---------- a crowd of a full tenant does not block other tenants ----------

sql(<<'END');
SELECT jobq.set_tenant_quota('crowd', max_running => 1);
SELECT count(*) FROM jobq.enqueue_many('sql', array_fill('{}'::jsonb, '{5000}'), tenant => 'crowd');
SELECT count(*) FROM jobq.enqueue_many('sql', array_fill('{"seconds": 0.001}'::jsonb, '{200}'), tenant => 'guest');
END
all_done('a crowd ends');
cmp_ok(sql("SELECT most('crowd')"), '<=', 1, 'one at a time');
is(sql('SELECT count(*) FROM jobq.jobs'), 5200, '!none is lost');

$node->stop;
done_testing();
