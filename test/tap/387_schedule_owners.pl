# What stops one schedule stops no other: an owner without its right or gone, a type that is
# dropped, a quota, a unique key of an open transaction.  Pauses of types and jobq.stop_all() stop
# no tick.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('owners', 'jobq.max_sql_workers = 2', 'fsync = off');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT jobq.create_job_type(t, 'work(jsonb)', options => '{"events": "all", "min_interval": "1 s"}')
  FROM unnest('{work,doomed,held}'::text[]) t;
CREATE ROLE revoked;
CREATE ROLE disowned;
CREATE ROLE dropped;
CREATE ROLE reassigned;
CREATE ROLE renamed;
CREATE ROLE heir;
SELECT jobq.grant_access(r, 'enqueue') FROM unnest('{revoked,disowned,dropped,reassigned,renamed}'::regrole[]) r;
CREATE VIEW ticks AS
  SELECT j.metadata->>'schedule' AS name, (j.metadata->>'tick')::timestamptz AS tick, j.created_at, j.status FROM jobq.jobs j
   WHERE j.metadata ? 'tick';
CREATE VIEW skips AS
  SELECT e.data->>'schedule' AS name, (e.data->>'tick')::timestamptz AS tick, (e.data->>'count')::int AS count,
         e.data->>'reason' AS reason, e.data->>'code' AS code
    FROM jobq.events e WHERE e.type = 'tick_skipped';
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Creates a schedule that ticks each second, as that role.
sub schedule
{
	my ($name, $role, $type, $args) = @_;

	return $node->safe_psql('postgres', <<"END");
SET SESSION AUTHORIZATION $role;
SELECT jobq.schedule('$name', 'every 1s', '$type', overlap => 'allow', catch_up => 'all'$args);
END
}

# Waits until the schedule has decided so many more ticks.
sub wait_ticks
{
	my ($name, $n, $what) = @_;
	my $since = scalar_of("SELECT ticks_after FROM jobq.schedules WHERE name = '$name'");

	return wait_for_sql($node, "SELECT ticks_after >= timestamptz '$since' + $n * interval '1 s' FROM jobq.schedules WHERE name = '$name'",
		$what);
}

# Each tick of the schedule since its creation has one job or one reason.
sub no_tick_lost
{
	my ($name, $what) = @_;

	return is(scalar_of(<<"END"), 't|t|t', "$name: $what: each tick has one job or one reason");
SELECT t.n = t.ticks, t.n + s.skipped = extract(epoch FROM s.ticks_after - date_trunc('second', s.created_at))::int,
       s.skipped = coalesce((SELECT sum(k.count) FROM skips k WHERE k.name = s.name), 0)
  FROM jobq.schedules s, (SELECT count(*) AS n, count(DISTINCT tick) AS ticks FROM ticks WHERE name = '$name') t WHERE s.name = '$name'
END
}

sub wait_paused
{
	my ($name, $pattern, $what) = @_;

	wait_for_sql($node, "SELECT status = 'paused' FROM jobq.schedules WHERE name = '$name'", "$what: the schedule pauses");
	like(scalar_of("SELECT reason FROM jobq.schedules WHERE name = '$name' AND paused_by_jobq"), $pattern, "$what: with a reason");
	is(scalar_of("SELECT count(*) FROM jobq.events WHERE type = 'schedule_paused' AND data->>'schedule' = '$name'"), 1,
		"$what: and an event");
	is(scalar_of("SELECT (data->>'tick')::timestamptz FROM jobq.events WHERE type = 'schedule_paused' AND data->>'schedule' = '$name'"),
		scalar_of("SELECT max(tick) FROM skips WHERE name = '$name' AND reason = 'refused'"), "$what: with the refused tick");
	return no_tick_lost($name, $what);
}

schedule('beat', 'postgres', 'work', '');
schedule($_, $_, 'work', '') foreach qw(revoked disowned dropped reassigned renamed);
schedule('doomed', 'postgres', 'doomed', '');
wait_ticks($_, 2, "$_ ticks") foreach qw(beat revoked disowned dropped reassigned renamed doomed);

# ---------- right, role, type ----------

scalar_of(q{SELECT jobq.revoke_access('revoked', 'enqueue')});
wait_paused('revoked', qr/^permission denied/, 'a right is revoked');
scalar_of('DROP OWNED BY disowned');
wait_paused('disowned', qr/^permission denied/, 'DROP OWNED');
scalar_of('BEGIN; DROP OWNED BY dropped; DROP ROLE dropped; COMMIT');
wait_paused('dropped', qr/dropped/, 'DROP ROLE');
scalar_of(q{SELECT jobq.drop_job_type('doomed', force => true)});
wait_paused('doomed', qr/^job type "doomed" does not exist/, 'a type is dropped');
scalar_of('REASSIGN OWNED BY reassigned TO heir; ALTER ROLE renamed RENAME TO other_name');
wait_ticks($_, 2, "$_ ticks on") foreach qw(reassigned renamed);
no_tick_lost($_, 'a change of its role') foreach qw(reassigned renamed);
is(scalar_of(q{SELECT jobq.health()->'checks'->'schedules'->>'paused'}), 4, 'health() counts the paused ones');
is(scalar_of(q{SELECT jobq.health()->'checks'->'schedules'->>'status'}), 'degraded', 'and is degraded');

scalar_of(q{SELECT jobq.grant_access('revoked', 'enqueue')});
scalar_of(q{SELECT jobq.resume_schedule('revoked')});
wait_ticks('revoked', 2, 'with its right again it ticks');
is(scalar_of(q{SELECT count(*) = count(DISTINCT tick) FROM ticks WHERE name = 'revoked'}), 't', '!no tick twice');
sqlstate_is($node, 'postgres', q{SELECT jobq.resume_schedule('dropped')}, '42704', 'no role, no resume');
scalar_of(q{SELECT jobq.unschedule(n) FROM unnest('{revoked,disowned,dropped,reassigned,renamed,doomed}'::text[]) n});
no_tick_lost('beat', 'faults of others');

# ---------- a tenant check that refuses the owner ----------

$node->safe_psql('postgres', <<'END');
CREATE ROLE checked;
SELECT jobq.grant_access('checked', 'enqueue', 'acme');
CREATE SEQUENCE checks;
CREATE FUNCTION refuses(tenant text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM nextval('public.checks');
  RETURN false;
END $$;
END
schedule('checked', 'checked', 'work', q{, tenant => 'acme'});
wait_ticks('checked', 2, 'checked ticks');
scalar_of(q{SELECT jobq.set_tenant_check('refuses(text)')});
sqlstate_is($node, 'postgres', q{SET ROLE checked; SELECT jobq.enqueue('work', tenant => 'beta')}, '42501', 'a tenant check refuses a role');
my $checks = scalar_of('SELECT last_value FROM checks WHERE is_called');
cmp_ok($checks, '>', 0, 'which was asked');
wait_ticks('checked', 3, 'ticks of its schedule go on');
is(scalar_of('SELECT last_value FROM checks'), $checks, 'they do not ask it');
is(scalar_of(q{SELECT status, skipped FROM jobq.schedules WHERE name = 'checked'}), 'active|0', 'none is refused');
no_tick_lost($_, 'a tenant check') foreach qw(checked beat);
scalar_of(q{SELECT jobq.set_tenant_check(NULL), jobq.unschedule('checked', tenant => 'acme')});

# ---------- pauses of types ----------

scalar_of(q{SELECT jobq.pause_job_type('held'), jobq.stop_all('maintenance')});
schedule('held', 'postgres', 'held', '');
wait_ticks($_, 3, "$_: ticks do not stop") foreach qw(held beat);
is(scalar_of(q{SELECT count(*) >= 3 AND bool_and(status = 'pending') FROM ticks WHERE name = 'held'}), 't', 'their jobs wait');
no_tick_lost($_, 'stopped') foreach qw(held beat);
scalar_of(q{SELECT jobq.start_all(), jobq.resume_job_type('held')});
wait_for_sql($node, q{SELECT count(*) >= 3 FROM ticks WHERE name = 'held' AND status = 'completed'}, 'and run later');
scalar_of(q{SELECT jobq.unschedule('held')});

# ---------- a quota ----------

scalar_of(q{SELECT jobq.set_tenant_quota('acme', enqueues_per_minute => 2)});
schedule('quota', 'postgres', 'work', q{, tenant => 'acme'});
wait_for_sql($node, q{SELECT skipped >= 2 FROM jobq.schedules WHERE name = 'quota'}, 'a quota refuses ticks');
is(scalar_of(q{SELECT DISTINCT reason || ' ' || code || ' ' || count FROM skips WHERE name = 'quota'}), 'refused 53400 1', 'with a reason');
is(scalar_of(q{SELECT status, runs >= 2 FROM jobq.schedules WHERE name = 'quota'}), 'active|t', 'and the schedule stays active');
no_tick_lost($_, 'a quota') foreach qw(quota beat);
scalar_of(q{SELECT jobq.unschedule('quota', tenant => 'acme')});

# ---------- a unique key of an open transaction ----------

my $session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT count(jobq.enqueue('work', unique_key => k)) FROM (SELECT 'k' UNION ALL
  SELECT 'k' || i FROM generate_series(1, 150) i) a(k)});
schedule('keyed', 'postgres', 'work', q{, options => '{"unique_key": "k"}'});
wait_ticks('beat', 4, 'a schedule waits for a key, others tick');
scalar_of(q{SELECT count(jobq.schedule('keyed' || i, 'every 1s', 'work', overlap => 'allow',
  options => jsonb_build_object('unique_key', 'k' || i))) FROM generate_series(1, 150) i});
wait_ticks('beat', 5, 'so they do when many schedules wait');
is(scalar_of(q{SELECT runs, skipped FROM jobq.schedules WHERE name = 'keyed'}), '0|0', 'it has no job yet');
is(scalar_of(q{SELECT extract(epoch FROM clock_timestamp() - next_tick) > 1 FROM jobq.schedules WHERE name = 'keyed'}), 't', 'it is late');
wait_for_sql($node, q{SELECT (jobq.health()->'checks'->'schedules'->>'late_s')::float8 > 1}, 'health() says how late');
$session->query_safe('ROLLBACK');
$session->quit;
my $freed = scalar_of('SELECT clock_timestamp()');
wait_for_sql($node, qq{SELECT bool_and(ticks_after > '$freed') FROM jobq.schedules WHERE name LIKE 'keyed_%'}, 'all of them catch up');
scalar_of(q{SELECT count(jobq.unschedule('keyed' || i)) FROM generate_series(1, 150) i});
wait_ticks('keyed', 5, 'then it catches up');
no_tick_lost($_, 'a key') foreach qw(keyed beat);
is(scalar_of(q{SELECT count(*) FROM skips WHERE name = 'keyed' AND reason <> 'unique_key'}), 0, 'by the rule of unique keys');

# all but the ticks of a moment in which the machine stood still
cmp_ok(scalar_of(q{SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY extract(epoch FROM created_at - tick)) FROM ticks WHERE name = 'beat'}),
	'<', 5, 'beat was on time');
is(scalar_of(q{SELECT skipped FROM jobq.schedules WHERE name = 'beat'}), 0, 'at each tick');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|could not take its turn/, 'no process failed');
$node->stop;
done_testing();
