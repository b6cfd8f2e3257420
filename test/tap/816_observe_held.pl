# Jobs that others pass are due, those that have gone are not; stat_lanes names why jobs wait,
# stat_limits has limits of every kind; and what has no place in a list is its last row.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('held', 'jobq.max_sql_workers = 6', 'jobq.max_weight = 4', 'fsync = off');
$node->start;
# One transaction: maintenance, which reads signals once a minute, finds all of them.
$node->safe_psql('postgres', <<'END');
BEGIN;
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION ok(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.set_signal('signal ' || i, i = 40) FROM generate_series(1, 40) i;
SELECT jobq.create_job_type('holder', 'waits(jsonb)', options => '{"batch": false}'), jobq.create_job_type('keyed', 'ok(jsonb)'),
       jobq.create_job_type('fifo', 'ok(jsonb)', options => '{"key_order": "fifo"}'), jobq.create_job_type('tenants', 'ok(jsonb)');
SELECT jobq.set_tenant_quota('full', max_running => 1);
COMMIT;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# ---------- signals beyond their places ----------

wait_for_sql($node, q{SELECT jobq.metrics() ~ 'signal_active\{signal="_other"\} 0'}, 'signals without a place are one');
like(one('SELECT jobq.metrics()'), qr/signal_active\{signal="signal 40"\} 1/, 'one that is on has a place');

# ---------- jobs that others pass ----------

one(q{SELECT jobq.enqueue('holder', '{"gate": "jobs"}', concurrency_key => 'k'), jobq.enqueue('holder', '{"gate": "jobs"}', tenant => 'full')});
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.jobs WHERE job_type = 'holder' AND status = 'running'}, 'key and tenant are full');
one(q{SELECT jobq.enqueue('keyed', concurrency_key => 'k') FROM generate_series(1, 700)});
one(q{SELECT jobq.enqueue('fifo', concurrency_key => 'k') FROM generate_series(1, 3)});
one(q{SELECT jobq.enqueue('tenants', tenant => 'full') FROM generate_series(1, 4)});
one(q{SELECT jobq.enqueue('tenants', tenant => 'full', delay => '1h'), jobq.enqueue('tenants', tenant => 'free')});
# others are held with their lane
one(<<'END');
SELECT jobq.create_job_type(t, 'ok(jsonb)') FROM unnest('{gone,some,later,many}'::text[]) t;
SELECT jobq.create_job_type('pulled');
SELECT jobq.pause_job_type(t) FROM unnest('{gone,some,later,many}'::text[]) t;
END
one(q{SELECT jobq.enqueue(t) FROM unnest('{gone,some,later,pulled}'::text[]) t, generate_series(1, 4)});
one(q{SELECT jobq.enqueue(t, delay => '1h') FROM unnest('{gone,some,later}'::text[]) t});
one(q{SELECT jobq.enqueue('many') FROM generate_series(1, 300); SELECT jobq.enqueue('many', delay => '1h') FROM generate_series(1, 300)});
my $due_of = q{SELECT string_agg(concat_ws(' ', job_type, due, due_exact, pending, oldest_due_s > 0), ', ' ORDER BY job_type) FROM jobq.stat_job_types WHERE job_type};
my $due = "$due_of IN ('fifo', 'keyed', 'tenants')";
my $due_held = "$due_of IN ('gone', 'some', 'later', 'many', 'pulled')";
wait_for_sql($node, "SELECT ($due) = 'fifo 3 t 3 t, keyed 700 t 700 t, tenants 4 t 5 t'", 'they are due') or note one($due);
my $lanes_of = q{SELECT string_agg(job_type || ' ' || held_by, ', ' ORDER BY job_type) FROM jobq.stat_lanes WHERE job_type};
my $lanes = "$lanes_of IN ('fifo', 'keyed', 'tenants')";
wait_for_sql($node, "SELECT ($due_held) = 'gone 4 t 5 t, later 4 t 5 t, many 300 t 600 t, pulled 4 t 4 t, some 4 t 5 t'", 'and those of a held lane') or note one($due_held);
wait_for_sql($node, "SELECT ($lanes) = 'fifo key, keyed key, tenants limit'", 'stat_lanes names what they wait for') or note one($lanes);
like(one('SELECT jobq.metrics()'), qr/queue_depth\{type="keyed",state="waiting"\} 700\n.*state="delayed"\} 0\n/, 'and in metrics they are not delayed');
one(q{SELECT jobq.cancel_job(id) FROM (SELECT q.id FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name = 'keyed' ORDER BY position LIMIT 100) j});

# ---------- jobs that a lane has read, and that don't wait any more ----------

my $jobs_of = q{SELECT array_agg(q.id ORDER BY q.position) FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name};
my $last = one("SELECT ($jobs_of = 'pulled')[4]");
one("DELETE FROM jobq.queue WHERE id = ANY (($jobs_of IN ('gone', 'pulled') AND scheduled_for <= now())::uuid[]) AND id <> '$last'");
is(one("SELECT jsonb_build_array(r->'ahead'->'n', jsonb_path_query_array(r, '\$.reasons[*].code')) FROM jobq.why('$last') r"),
	'[0, ["no_worker"]]', 'why: the deleted ones do not go before');
one("DELETE FROM jobq.queue WHERE id = ANY (($jobs_of = 'many')[151:250])");
one("SELECT jobq.cancel_job('$last'), jobq.cancel_job(j[2]), jobq.cancel_job(j[3]), jobq.alter_job(k[1], scheduled_for => now() + interval '1h'),"
	. " jobq.alter_job(k[4], scheduled_for => now() + interval '1h'), jobq.alter_job(k[2], priority => 7)"
	. " FROM ($jobs_of = 'some') s(j), ($jobs_of = 'later') l(k)");
wait_for_sql($node, "SELECT ($due) ~ 'keyed 600 t 600 t'", 'those that are cancelled are not');
wait_for_sql($node, "SELECT ($due_held) = 'gone 0 t 1, later 2 t 5 t, many 200 t 500 t, pulled 0 t 0, some 2 t 3 t'", 'nor those that are deleted or postponed') or note one($due_held);
my $lanes_held = "$lanes_of IN ('gone', 'some', 'later', 'pulled')";
wait_for_sql($node, "SELECT ($lanes_held) = 'later type_paused, later type_paused, some type_paused'", 'and their lanes are not held') or note one($lanes_held);
like(one('SELECT jobq.metrics()'), qr/queue_oldest_seconds\{type="gone"\} 0\n/, 'in metrics');
one(q{SELECT jobq.resume_job_type(t) FROM unnest('{gone,some,later}'::text[]) t});
wait_for_sql($node, "SELECT ($due_held) ~ 'gone 0 . 1, later 0 . 3, many 200 t 500 t, pulled 0 t 0, some 0 . 1'", 'the others run') or note one($due_held);
one("SELECT jobq.alter_job(i, scheduled_for => now()) FROM unnest(($jobs_of IN ('gone', 'some', 'later'))::uuid[]) i");
wait_for_sql($node, "SELECT ($due_held) = 'gone 0 t 0, later 0 t 0, many 200 t 500 t, pulled 0 t 0, some 0 t 0'", 'and those that were postponed') or note one($due_held);

# ---------- limits of every kind ----------

my $limits = q{SELECT coalesce(string_agg(concat_ws(' ', kind, name, used, max, CASE WHEN held_s IS NOT NULL THEN 'held' END), ', ' ORDER BY kind COLLATE "C", name), '')
  FROM jobq.stat_limits WHERE kind NOT IN ('jobs', '_other')};
wait_for_sql($node, "SELECT ($limits) = 'tenant full 1 1 held, weight 2 4'", 'a tenant') or note one($limits);
one(q{INSERT INTO gate VALUES ('jobs')});
wait_for_sql($node, "SELECT ($limits) = 'weight 0 4' AND ($due) = 'fifo 0 t 0, keyed 0 t 0, tenants 0 t 1' AND ($lanes) IS NULL", 'all have run') or note one($due);

one(<<'END');
SELECT jobq.set_limit('lim', 7), jobq.set_limit('lim (runs)', 8), jobq.create_job_type('pulled task');
SELECT jobq.create_workflow('flow', '[{"key": "a", "job_type": "pulled task"}]', options => '{"limits": ["lim"]}');
SELECT jobq.enqueue('flow');
END
wait_for_sql($node, "SELECT ($limits) = 'limit lim 0 7, limit lim (runs) 0 8, run_limit lim 1 7, weight 0 4'", 'runs of workflows, under a kind of their own')
	or note one($limits);
one(q{SELECT jobq.cancel_jobs('flow', include_running => true)});
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.runs) OR NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'flow' AND status = 'running')}, 'the run ends');
one(q{SELECT jobq.drop_job_type('flow'), jobq.drop_job_type('pulled task'); SELECT jobq.drop_limit('lim'), jobq.drop_limit('lim (runs)')});
one(<<'END');
SELECT jobq.set_limit('both', 5, rate_limit => 1, rate_window => '1h'), jobq.set_limit('only', rate_limit => 1, rate_window => '1h');
SELECT jobq.create_job_type('rated', 'ok(jsonb)', rate_limit => 2, rate_window => '1h'),
       jobq.create_job_type('bucket', 'ok(jsonb)', rate_limit => 1, rate_window => '10h', options => '{"burst": 3}'),
       jobq.create_job_type('of both', 'ok(jsonb)', options => '{"limits": ["both"]}'), jobq.create_job_type('of only', 'ok(jsonb)', options => '{"limits": ["only"]}'),
       jobq.create_job_type('heavy', 'waits(jsonb)', cpu_weight => 3);
END
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.stat_limits WHERE name = 'both'}, 'the limits are read');
one(q{SELECT jobq.enqueue(t) FROM unnest('{rated,rated,rated,of both,of both,of only,of only}'::text[]) t; SELECT jobq.enqueue('heavy', '{"gate": "heavy"}') FROM generate_series(1, 2)});
# a bucket of tokens begins empty, with a window longer than the server has run
my $all = 'limit both 0 5, limit_rate both 1 1 held, limit_rate only 1 1 held, type_rate bucket 3 3 held, type_rate rated 2 2 held, weight 3 4 held';
one(q{SELECT jobq.enqueue('bucket')});
wait_for_sql($node, "SELECT ($limits) = '$all'", 'each limit, and those that jobs wait for') or note one($limits);
like(one('SELECT jobq.metrics()'), qr/limit_used\{kind="type_rate",limit="rated"\} 2\n.*limit_max\{kind="type_rate",limit="rated"\} 2\n/s, 'in metrics');

# ---------- more than there are places ----------

one(q{SELECT jobq.set_limit('limit ' || i, 1) FROM generate_series(1, 150) i});
wait_for_sql($node, q{SELECT count(*) = 128 AND sum(used) FILTER (WHERE kind = '_other') = 157 - 127 FROM jobq.stat_limits}, 'limits without a place are counted');
is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM jobq.stat_limits WHERE held_s IS NOT NULL AND name IS NOT NULL}), 'both bucket only rated', 'those that jobs wait for have one');
is(one(q{SELECT max IS NULL FROM jobq.stat_limits WHERE kind = '_other'}), 't', 'the row of others has no maximum');
like(one('SELECT jobq.metrics()'), qr/limit_used\{kind="_other",limit=""\} 30\n/, 'in metrics, too');
one(q{SELECT jobq.pause_job_type(t, 'test') FROM unnest('{keyed,fifo}'::text[]) t});
one(q{SELECT jobq.enqueue(t, priority => p) FROM unnest('{keyed,fifo}'::text[]) t, generate_series(-70, 70) p});
wait_for_sql($node, q{SELECT count(*) = 256 AND count(priority) = 255 FROM jobq.stat_lanes}, 'lanes without a place are one');
is(one(q{SELECT oldest_due < clock_timestamp() AND held_by IS NULL FROM jobq.stat_lanes WHERE job_type = '_other'}), 't', 'with the oldest of them');

one(q{INSERT INTO gate VALUES ('heavy')});
$node->stop;
done_testing();
