# Lists of a status: the job that each way of waiting or running makes is among them, for every role
# that may see it; blocked, failed and running jobs are found behind many others without reading
# those.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $others = 20000;
my $node = run_server('lists', 'jobq.max_sql_workers = 4');
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock_shared(1); END $$;
CREATE FUNCTION snoozes(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.snooze('1h', 'not yet'); END $$;
CREATE ROLE ann LOGIN;
SELECT jobq.create_job_type('waits', 'waits(jsonb)'), jobq.create_job_type('snoozes', 'snoozes(jsonb)'),
       jobq.create_job_type('broken', 'act(jsonb)', backoff_base => '1h', backoff_max => '1h'),
       jobq.create_job_type('tool', command => '{sleep,600}', options => '{"output": "none"}'),
       jobq.create_job_type('fails', command => '{false}', backoff_base => '1h', backoff_max => '1h'),
       jobq.create_job_type('crowd');
SELECT jobq.grant_access('ann', 'read', tenant => 'ann');
END
workflow('mapped', q{[{"key": "each", "map": "$.input.all", "job_type": "pulled"}, {"key": "last", "job_type": "act", "after": ["each"]}]});
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');

# One of each for two tenants, in front of the others.
foreach my $tenant (qw(ann bob))
{
	one(qq{SELECT jobq.enqueue(t, tenant => '$tenant') FROM unnest('{waits,snoozes,tool,fails}'::text[]) t;
		SELECT jobq.enqueue('broken', '{"end": "fail"}', tenant => '$tenant');
		SELECT jobq.enqueue('crowd', tenant => '$tenant', after => ARRAY[jobq.enqueue('crowd', tenant => '$tenant')]);
		SELECT jobq.enqueue('mapped', '{"all": [1, 2]}', tenant => '$tenant')});
}
one(q{SELECT count(*) FROM jobq.claim('{crowd}', max_jobs => 2)});
wait_for_sql($node, q{SELECT count(*) FILTER (WHERE status = 'running') = 2 * 5 AND count(*) FILTER (WHERE status = 'retry') = 2 * 2
	AND count(*) FILTER (WHERE status = 'blocked') = 2 * 2 AND count(*) FILTER (WHERE scheduled_for > now() AND job_type = 'snoozes') = 2 FROM jobq.jobs}, 'all are where they belong')
  or diag one('SELECT job_type, status, count(*) FROM jobq.jobs GROUP BY 1, 2 ORDER BY 1, 2');
my $first = one('SELECT id FROM jobq.jobs ORDER BY id DESC LIMIT 1');
one(qq{SELECT jobq.pause_job_type('crowd'); SELECT count(*) FROM jobq.enqueue_many('crowd', array_fill('{}'::jsonb, ARRAY[$others]))});
is(one(q{SELECT string_agg(job_type, ' ' ORDER BY job_type) FROM jobq.jobs WHERE status = 'running' AND tenant = 'ann'}), 'crowd mapped pulled tool waits',
	'executors, a client, a run and its map run');

# The columns of a list beside the view, for both roles.
foreach my $role (qw(postgres ann))
{
	foreach my $status (qw(blocked retry running pending completed error))
	{
		my $view = "SELECT array_agg(j.id ORDER BY j.id DESC) FROM jobq.jobs j WHERE j.status = '$status'";
		my $as = "SET ROLE $role";

		is(one("$as; SELECT array_agg(l.id) IS NOT DISTINCT FROM ($view) FROM jobq.list_jobs('$status', max_rows => 100000) l"), 't', "$role lists $status jobs");
		is(one("$as; SELECT array_agg(s.id) IS NOT DISTINCT FROM ($view) FROM jobq_internal._search_jobs('$status', NULL, NULL, NULL, NULL, NULL, NULL, 100000, '1h') s"),
			't', "and finds them");
	}
	# the oldest of its jobs, at most so many rows read
	foreach my $status (qw(blocked retry running))
	{
		foreach my $list ("jobq.list_jobs('$status', tenant => 'ann')", "jobq_internal._search_jobs('$status', NULL, 'ann', NULL, NULL, NULL, NULL, 50, '0')")
		{
			my $read = one(qq{SET ROLE $role; BEGIN; SELECT count(*) > 0 FROM $list l WHERE l.id <= '$first'; RESET ROLE;
				SELECT pg_stat_get_xact_tuples_returned(c) + pg_stat_get_xact_tuples_fetched(c) < 500
				  FROM (SELECT 'jobq.queue'::regclass) q(c); COMMIT});

			is($read, "t\nt", "$role: $list reads few rows") or diag one(qq{SET ROLE $role; EXPLAIN ANALYZE SELECT * FROM $list l});
		}
	}
}
is(one(q{SELECT count(*) = 2 FROM jobq.error_groups()}), 't', 'groups of errors');

# Filters, pages.
is(one(q{SELECT string_agg(l.job_type, ' ' ORDER BY l.id) FROM jobq.list_jobs('retry', tenant => 'bob') l}), 'fails broken', 'a tenant');
is(one(q{SELECT string_agg(l.job_type || l.tenant, ' ') FROM jobq.list_jobs('retry', 'broken') l}), 'brokenbob brokenann', 'a type');
is(one(q{SELECT l.id FROM jobq.list_jobs('running', max_rows => 1, skip_rows => 1) l}),
	one(q{SELECT id FROM jobq.jobs WHERE status = 'running' ORDER BY id DESC OFFSET 1 LIMIT 1}), 'skipped rows');
is(one(q{SELECT count(*) FROM jobq.list_jobs('running') a, LATERAL jobq.list_jobs('running', before => a.id)}), 10 * 9 / 2, 'before');

# Rows that a claim, a release and a new attempt have written are found by the same indexes.
one(q{SELECT jobq.resume_job_type('crowd')});
my ($id, $token) = split /\|/, one(q{SELECT id, lease_token FROM jobq.claim('{crowd}')});
is(one("SELECT jobq.fail('$id', '$token', 'again')"), 'retry', 'a client fails');
is(one("SELECT count(*) FROM jobq.list_jobs('retry', 'crowd') WHERE id = '$id'"), 1, 'its job waits');
is(one(q{CREATE EXTENSION amcheck; SELECT count(bt_index_check(i::regclass, true)) FROM unnest('{jobq.queue_blocked,jobq.queue_failed,jobq.runs_live}'::text[]) i}),
	3, '!the indexes have all their rows');

# After a restart the ids of clients' jobs are not in memory: the list reads the queue.
my $running = q{SELECT array_agg(l.id) FROM jobq.list_jobs('running', 'crowd') l};
my $before = one($running);
isnt($before, '', 'claimed jobs are listed');
$node->restart;
wait_dispatcher($node, 'postgres', 'the dispatcher runs again');
is(one($running), $before, 'also after a restart');
$gate->quit;
$node->stop;
done_testing();
