# Sessions that hold locks for long, or take unrelated locks, block no administrator.  And the
# content of health() for a tenant's administrator.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('held_locks', 'jobq.max_sql_workers = 2');
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]) }

sql(<<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION ok(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN IF p ? 'fail' THEN RAISE 'no'; END IF; RETURN p; END $$;
SELECT jobq.create_job_type(t, 'ok(jsonb)', max_attempts => 1) FROM unnest('{mail,report,run}'::text[]) t;
SELECT jobq.pause_job_type(t) FROM unnest('{mail,report}'::text[]) t;
CREATE ROLE stranger LOGIN;
CREATE ROLE acme LOGIN;
CREATE ROLE runner LOGIN;
SELECT jobq.grant_access('acme', 'enqueue', tenant => 'acme'), jobq.grant_access('acme', 'admin', tenant => 'acme');
END

# ---------- locks that any role may take ----------

my $session = $node->background_psql('postgres', on_error_stop => 1);
$session->query_safe(q{SET SESSION AUTHORIZATION stranger; SELECT count(pg_advisory_lock(c.oid::bigint)), count(pg_advisory_lock(0, c.oid::int))
  FROM pg_class c WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'jobq')});
sql(q{SET statement_timeout = '100s'; SELECT jobq.grant_access('stranger', 'read', tenant => 'beta'); SELECT jobq.revoke_access('stranger', 'read')});
pass('grant_access waits for no advisory lock');
sql(q{SET statement_timeout = '100s'; SELECT jobq.create_job_type('new', 'ok(jsonb)', run_as => 'runner')});
pass('nor does create_job_type, which grants to a new role');
$session->query_safe('RESET SESSION AUTHORIZATION');
sqlstate_is($node, 'postgres', "BEGIN; SET LOCAL ROLE acme; LOCK TABLE jobq.access IN $_ MODE", '42501', "a tenant may not lock the table in $_ mode")
  foreach 'ACCESS SHARE', 'SHARE', 'ACCESS EXCLUSIVE';

# ---------- a tenant that is idle in its transaction ----------

sub enqueue_all
{
	sql(q{SELECT jobq.enqueue(t, tenant => 'acme', unique_key => k) FROM unnest('{mail,report}'::text[]) t, unnest('{a,b,c}'::text[]) k});
	sql(q{SELECT jobq.enqueue('run', '{"fail": true}', tenant => 'acme')});
	wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'run' AND status <> 'error')}, 'a job has died');
	return;
}

# Calls the function after the tenant has locked its own jobs again, and
# returns the text of a NOTICE.
sub beside_tenant
{
	my ($statement) = @_;
	my ($rc, $out, $err);

	$session->query_safe(q{BEGIN; SET LOCAL ROLE acme; SELECT jobq.enqueue(t, tenant => 'acme', unique_key => 'b') FROM unnest('{mail,report}'::text[]) t});
	($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '100s'; $statement", on_error_stop => 1, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	$session->query_safe('COMMIT');
	return ($out, $err);
}

enqueue_all();
my ($out, $err) = beside_tenant(q{SELECT jobq.cancel_jobs('mail')});
is($out, 2, 'cancel_jobs cancels the unlocked jobs');
like($err, qr/NOTICE:  \w+: 1 job\(s\) stay/, 'and says how many are not');
is(sql(q{SELECT string_agg(unique_key, ' ') FROM jobq.jobs WHERE job_type = 'mail' AND status = 'pending'}), 'b', 'the tenant has kept its job');
($out, $err) = beside_tenant(q{SELECT jobq.cancel_jobs('mail', include_running => true)});
is($out, 0, 'also with those that run');
is(sql(q{SELECT jobq.cancel_jobs('mail')}), 1, 'the next call cancels the rest');

($out, $err) = beside_tenant(q{SELECT jobq.drop_job_type('report', force => true)});
like($err, qr/ERROR:  55006: open transactions hold 1 job\(s\) of job type "report"/, 'drop_job_type(force) says what keeps it');
is(sql(q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'report' AND status = 'pending'}), 3, 'and has done nothing');

sql(q{SELECT jobq.enqueue('mail', tenant => 'acme', unique_key => 'b')});
$session->query_safe(q{BEGIN; SET LOCAL ROLE acme; SELECT jobq.retry_dead_letters(tenant => 'acme')});
($out, $err) = $node->psql('postgres', q{SET statement_timeout = '100s'; SELECT jobq.purge_tenant('acme') > 0}, on_error_stop => 1);
$session->query_safe('ROLLBACK');
is($out, 0, 'purge_tenant does not wait for a dead letter that is being retried');
is(sql('SELECT count(*) FROM jobq.dead_letters'), 1, 'which stays');
enqueue_all();
($out, $err) = beside_tenant(q{SELECT jobq.purge_tenant('acme')});
like($err, qr/NOTICE:  \w+: 2 job\(s\) stay/, 'purge_tenant skips locked jobs, with a notice');
is(sql(q{SELECT string_agg(job_type || ' ' || unique_key, ', ' ORDER BY job_type) FROM jobq.jobs WHERE tenant = 'acme'}), 'mail b, report b', 'nothing else');
is(sql(q{SELECT jobq.purge_tenant('acme')}), 2, 'the next call takes it');
is(sql(q{SELECT jobq.drop_job_type('report', force => true); SELECT count(*) FROM jobq.job_types WHERE name = 'report' AND dropped_at IS NULL}), "\n0", 'the type can be dropped');

# A short transaction is waited for: here one that ends when it sees the waiter.
sql(q{SELECT jobq.enqueue('mail', tenant => 'acme', unique_key => 'b')});
$session->query_safe(q{BEGIN; SELECT jobq.enqueue('mail', tenant => 'acme', unique_key => 'b')});
$session->query_until(qr/started/, <<'END');
\echo started
DO $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE query ~ '^SELECT jobq.cancel_jobs' AND wait_event = 'PgSleep') LOOP
    PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
  END LOOP;
END $$;
COMMIT;
END
is(sql(q{SELECT jobq.cancel_jobs('mail')}), 1, 'a short transaction is waited for');

# One after the other, as long as each ends within a second of the one before.
my $other = $node->background_psql('postgres');
my $tries = 0;
my $left;
do
{
	sql(q{SELECT jobq.enqueue('mail', tenant => 'acme', unique_key => k) FROM unnest('{a,b}'::text[]) k});
	foreach ([ $session, 'a', '0.8' ], [ $other, 'b', '1.1' ])
	{
		my ($holder, $key, $seconds) = @$_;

		$holder->query_safe("BEGIN; SELECT FROM jobq.queue WHERE unique_key = '$key' FOR UPDATE");
		$holder->query_until(qr/started/, <<"END");
\\echo started
DO \$\$
BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE query ~ '^SELECT jobq.purge_tenant') LOOP
    PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
  END LOOP;
  PERFORM pg_sleep($seconds);
END \$\$;
COMMIT;
END
	}
	sql(q{SELECT jobq.purge_tenant('acme')});
	$left = sql(q{SELECT count(*) FROM jobq.queue WHERE tenant = 'acme'});
	$_->query_safe('SELECT') foreach $session, $other;
	sql(q{SELECT jobq.cancel_jobs('mail')});
} while ($left && ++$tries < 5);    # where the machine stood still for a second
is($left, 0, 'purge_tenant waits while one more is free each second');
$_->quit foreach $session, $other;

# ---------- roles ----------

my ($rc, $notice);
($rc, $out, $notice) = $node->psql('postgres', q{SELECT jobq.grant_access('stranger', 'work')});
is($notice, '', 'access "work" is granted without a notice');
sql(q{SELECT jobq.grant_access('stranger', 'enqueue', 'acme', '{mail}'), jobq.grant_access('stranger', 'admin')});
sqlstate_is($node, 'postgres', 'DROP ROLE stranger', '2BP01', 'a role with grants is not dropped');
sql(q{SELECT jobq.revoke_access('stranger', a) FROM unnest('{work,enqueue,admin}'::text[]) a; DROP ROLE stranger});
sql(q{DROP OWNED BY acme; DROP ROLE acme; CREATE ROLE acme LOGIN; SELECT jobq.grant_access('acme', 'admin', tenant => 'acme')});
is(sql(q{SELECT count(*) FROM jobq.access}), 1, 'revoke_access or DROP OWNED BY lets it be dropped');

# ---------- health() of a tenant ----------

sql(q{SELECT jobq.create_job_type('tool', command => '{/bin/true}'), jobq.create_job_type('secret', 'ok(jsonb)'), jobq.pause_job_type('secret')});
sql(q{SELECT jobq.enqueue('run', '{"fail": true}', tenant => 'beta') FROM generate_series(1, 3); SELECT jobq.enqueue('secret', tenant => 'beta');
  SELECT jobq.alter_job_type('tool', command => '{/nowhere/hidden-program}'); SELECT jobq.enqueue('tool', tenant => 'beta')});
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'helper'->>'message' ~ 'hidden-program'}, 'health() names the program to a role that may read all');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.dead_letters}, 'others have dead letters');
sql(q{SELECT jobq.create_job_type('pulled'); SELECT jobq.enqueue('pulled', tenant => 'beta') FROM generate_series(1, 9)});
is(sql(q{SELECT count(*) FROM jobq.claim('{pulled}', 9)}), 9, 'others have claimed jobs');
sql(q{SELECT jobq.schedule(n, 'every 1h', 'run', tenant => 'beta') FROM unnest('{a,b}'::text[]) n;
  SELECT jobq.create_job_type('short-lived', 'ok(jsonb)'); SELECT jobq.schedule('orphan', 'every 1s', 'short-lived', tenant => 'beta');
  SELECT jobq.drop_job_type('short-lived', force => true)});
wait_for_sql($node, q{SELECT h->'workers' @> '{"claimed": 9}' AND h->'schedules' @> '{"status": "degraded", "active": 2, "paused": 1}' FROM CAST(jobq.health()->'checks' AS jsonb) h},
	'health() counts the claimed jobs and the schedules for a role that may read all');
my $health = sql(q{SET ROLE acme; SELECT jobq.health()});
unlike($health, qr/hidden|secret|beta|nowhere/, 'a tenant does not see names of others');
is(sql(q{SET ROLE acme; SELECT concat_ws(' ', h->'details'->>'dead_letter_count', h->'checks'->'dead_letters'->>'count', coalesce(h->'details'->>'oldest_waiting_job', 'none'),
  coalesce(h->'checks'->'queues'->>'oldest_waiting_s', 'none'), coalesce(h->'checks'->'horizon'->>'queue_bytes', 'none'), coalesce(h->'checks'->'horizon'->>'holder', 'none'))
  FROM jobq.health() h}), '0 0 none none none none', 'nor any total of theirs');
is(sql(q{SET ROLE acme; SELECT concat_ws(' ', coalesce(h->'checks'->'workers'->>'claimed', 'none'), coalesce(h->'checks'->'schedules'->>'active', 'none'),
  coalesce(h->'checks'->'schedules'->>'paused', 'none'), coalesce(h->'checks'->'schedules'->>'late_s', 'none')) FROM jobq.health() h}), 'none none none none', 'nor one of their claimed jobs and schedules');
cmp_ok(sql(q{SET ROLE acme; SELECT greatest((h->'checks'->'workers'->>'count')::int, (h->'details'->>'active_workers')::int) FROM jobq.health() h}), '<', 9, 'also not in a sum');
is(sql(q{SET ROLE acme; SELECT h->'workers'->>'status' || ' ' || (h->'schedules'->>'status') FROM CAST(jobq.health()->'checks' AS jsonb) h}), 'healthy degraded', 'the statuses are the same for it');
is(sql(q{SET ROLE acme; SELECT jobq.health()->'checks'->'helper'->>'status'}), 'degraded', 'it sees that tools have trouble');
my $own = sql(q{SELECT jobq.enqueue('run', '{"fail": true}', tenant => 'acme')});
wait_status($node, 'postgres', $own, 'error', 'a job of its own dies');
is(sql(q{SET ROLE acme; SELECT jobq.health()->'details'->>'dead_letter_count'}), 1, 'which it sees');

$node->stop;
done_testing();
