# Ticks that meet on another: each has one job or one reason, in their order.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('decisions', 'jobq.max_sql_workers = 2', 'fsync = off', 'restart_after_crash = on');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'fail' THEN RAISE 'no'; END IF;
END $$;
SELECT jobq.create_job_type(t, 'work(jsonb)', max_attempts => 1, options => '{"events": "all"}')
  FROM unnest('{free,held}'::text[]) t;
SELECT jobq.pause_job_type('held');
CREATE VIEW skips AS
  SELECT e.data->>'schedule' AS name, e.data->>'reason' AS reason, (e.data->>'count')::int AS count,
         (e.data->>'tick')::timestamptz AS tick
    FROM jobq.events e WHERE e.type = 'tick_skipped';
CREATE VIEW ran AS
  SELECT j.metadata->>'schedule' AS name, (j.metadata->>'tick')::timestamptz AS tick, j.created_at FROM jobq.jobs j;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Makes a schedule that has missed the ticks of the last so many seconds.
sub missed_schedule
{
	my ($name, $cron, $type, $seconds, $args) = @_;

	return $node->safe_psql('postgres', <<"END");
BEGIN;
SELECT jobq.schedule('$name', '$cron', '$type'$args);
UPDATE jobq.schedules SET ticks_after = ticks_after - interval '$seconds s' WHERE name = '$name';
COMMIT;
END
}

# ---------- max_runs ends the life of a schedule ----------

missed_schedule('three', 'every 1s', 'free', 20, q(, max_runs => 3, catch_up => 'all'));
wait_for_sql($node, q{SELECT status = 'finished' FROM jobq.schedules WHERE name = 'three'}, 'max_runs');
is(scalar_of(q{SELECT runs, skipped FROM jobq.schedules WHERE name = 'three'}), '3|0', 'ticks after the last run are none');
is(scalar_of(q{SELECT max(tick) - min(tick) FROM ran WHERE name = 'three'}), '00:00:02', 'the first three have run');

# ---------- very many missed ticks ----------

# max_runs: they miss no more ticks afterwards
missed_schedule('interval', 'every 1s', 'free', 5_000_000, ', max_runs => 1');
missed_schedule('calendar', '* * * * * *', 'free', 150_000, ', max_runs => 1');
missed_schedule('catches up', '* * * * * *', 'free', 150_000, q(, catch_up => 'all', catch_up_limit => 3, max_runs => 3));
missed_schedule('few', '* * * * * *', 'free', 99_000, ', max_runs => 1');
wait_for_sql($node, q{SELECT count(*) = 4 FROM skips WHERE reason = 'missed' AND name IN ('interval', 'calendar', 'catches up', 'few')},
	'ticks of a long time are missed');
is(scalar_of(<<'END'), "false\nfalse\ntrue\ntrue", 'the number of missed ticks is exact, or says that there are more');
SELECT coalesce(data->'at_least', 'false') FROM jobq.events
 WHERE data->>'reason' = 'missed' AND data->>'schedule' IN ('interval', 'calendar', 'catches up', 'few')
 ORDER BY array_position('{interval,few,calendar,"catches up"}', data->>'schedule')
END
is(scalar_of(q{SELECT count FROM skips WHERE reason = 'missed' AND name IN ('calendar', 'catches up')}), "100000\n100000", 'no more are counted');
is(scalar_of(<<'END'), "t\nt", 'each tick of the others has a job or is counted');
SELECT k.count = extract(epoch FROM k.tick - date_trunc('second', s.created_at))::int + CASE s.name WHEN 'few' THEN 99000 ELSE 5000000 END - 1
  FROM skips k JOIN jobq.schedules s USING (name) WHERE k.reason = 'missed' AND name IN ('interval', 'few')
END

# ---------- a turn with several ticks is refused ----------

scalar_of(q{SELECT jobq.set_tenant_quota('acme', max_live => 2)});
missed_schedule('refused', 'every 1h', 'held', 5 * 3600, q(, catch_up => 'all', tenant => 'acme'));
wait_for_sql($node, q{SELECT runs + skipped >= 5 FROM jobq.schedules WHERE name = 'refused'}, 'a quota refuses jobs');
is(scalar_of(q{SELECT count(*) FROM ran WHERE name = 'refused'}) + scalar_of(q{SELECT sum(count) FROM skips WHERE name = 'refused'}), 5,
	'each tick has a job or a reason');
is(scalar_of(q{SELECT skipped FROM jobq.schedules WHERE name = 'refused'}),
	scalar_of(q{SELECT sum(count) FROM skips WHERE name = 'refused'}), 'so says its row');

# ---------- the end of a pause ----------

$node->safe_psql('postgres', <<'END');
BEGIN;
SELECT jobq.schedule('after_pause', 'every 1s', 'held', catch_up => 'all', tenant => 'acme');
SELECT jobq.pause_schedule('after_pause', duration => '1h', tenant => 'acme');
UPDATE jobq.schedules SET ticks_after = ticks_after - interval '1 h', paused_until = clock_timestamp() - interval '20 s'
 WHERE name = 'after_pause';
COMMIT;
BEGIN;
SELECT jobq.schedule('ahead', 'every 1s', 'free');
UPDATE jobq.schedules SET ticks_after = clock_timestamp() + interval '1 h' WHERE name = 'ahead';
SELECT jobq.pause_schedule('ahead', duration => '10ms');
COMMIT;
END
wait_for_sql($node, q{SELECT skipped > 0 FROM jobq.schedules WHERE name = 'after_pause'}, 'ticks after a pause are refused');
is(scalar_of(q{SELECT status, skipped BETWEEN 19 AND 600 FROM jobq.schedules WHERE name = 'after_pause'}), 'active|t',
	'those of the pause do not count');
wait_for_sql($node, q{SELECT status = 'active' FROM jobq.schedules WHERE name = 'ahead'}, 'a pause ends');
is(scalar_of(q{SELECT next_tick > clock_timestamp() + interval '50 min' FROM jobq.schedules WHERE name = 'ahead'}), 't',
	'after the clock was set back it repeats no tick');
scalar_of(q{SELECT jobq.unschedule('after_pause', 'acme')});

# ---------- a tick that waits for the end of a job ----------

# Makes a schedule with a waiting tick; returns the id of its live job and the tick.
sub waiting_schedule
{
	my ($name, $args) = @_;

	scalar_of("SELECT jobq.schedule('$name', 'every 1s', 'held', overlap => 'queue'$args)");
	wait_for_sql($node, "SELECT waiting_tick IS NOT NULL FROM jobq.schedules WHERE name = '$name'", "a tick of $name waits");
	return split /\|/, scalar_of("SELECT last_job_id, waiting_tick FROM jobq.schedules WHERE name = '$name'");
}

sub end_of_job
{
	my ($id) = @_;

	return scalar_of("SELECT jobq.cancel_job('$id')");
}

# its schedule gets another rule for overlap
my ($job) = waiting_schedule('other_rule', '');
scalar_of(q{SELECT jobq.alter_schedule('other_rule', cron => '@yearly', overlap => 'skip')});
my $tick = scalar_of(q{SELECT waiting_tick FROM jobq.schedules WHERE name = 'other_rule'});
end_of_job($job);
wait_for_sql($node, "SELECT count(*) = 1 FROM ran WHERE name = 'other_rule' AND tick = '$tick'", 'with another rule it still runs');
is(scalar_of(q{SELECT waiting_tick IS NULL FROM jobq.schedules WHERE name = 'other_rule'}), 't', 'and waits no longer');

# the server crashes before the end of the job is heard, and goes on when the next tick is due
($job) = waiting_schedule('unheard', '');
my $conductor = (jobq_pids($node, 'conductor'))[0];
my $dispatcher = dispatcher($node, 'postgres');
freeze($node, $conductor);
end_of_job($job);
$tick = scalar_of(q{SELECT waiting_tick FROM jobq.schedules WHERE name = 'unheard'});
wait_for_sql($node, "SELECT clock_timestamp() > timestamptz '$tick' + interval '2 s'", 'the next tick is due');
kill 'KILL', $conductor;
wait_dispatcher($node, 'postgres', 'the server restarts', $dispatcher);
wait_for_sql($node, "SELECT count(*) = 2 FROM ran WHERE name = 'unheard'", 'another conductor starts a job');
is(scalar_of(q{SELECT tick FROM ran WHERE name = 'unheard' ORDER BY created_at DESC LIMIT 1}), $tick, 'that of the tick that has waited');

# dead letters pause the schedule
waiting_schedule('paused', q(, pause_after_failures => 1, payload => '{"fail": 1}'));
scalar_of(q{SELECT jobq.resume_job_type('held')});
wait_for_sql($node, q{SELECT status = 'paused' FROM jobq.schedules WHERE name = 'paused'}, 'a dead letter pauses a schedule');
is(scalar_of(q{SELECT count FROM skips WHERE name = 'paused' AND reason = 'paused'}), 1, 'the tick that waits has a reason');
is(scalar_of(q{SELECT s.skipped = (SELECT sum(count) FROM skips x WHERE x.name = s.name) FROM jobq.schedules s WHERE s.name = 'paused'}),
	't', 'so says the row');

# ---------- no room for a cancel ----------

# jobs that run until this session lets them
my $latch = $node->background_psql('postgres');
$latch->query_safe('SELECT pg_advisory_lock(388)');
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION blocked(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_lock_shared(388), pg_advisory_unlock_shared(388)';
SELECT jobq.create_job_type('blocked', 'blocked(jsonb)', options => '{"events": "all"}');
SELECT jobq.schedule('cancels', '@yearly', 'blocked', overlap => 'cancel');
SELECT jobq.run_schedule('cancels');
END
wait_for_sql($node, q{SELECT j.status = 'running' FROM jobq.jobs j JOIN jobq.schedules s ON s.last_job_id = j.id WHERE s.name = 'cancels'},
	'the last job of a schedule runs');
my $canceller = $node->background_psql('postgres');
$canceller->query_safe('BEGIN');
$canceller->query_safe(q{SELECT count(jobq.cancel_job(s.last_job_id)) FROM jobq.schedules s, generate_series(1, 256) WHERE s.name = 'cancels'});
sqlstate_is($node, 'postgres', q{SELECT jobq.cancel_job(last_job_id) FROM jobq.schedules WHERE name = 'cancels'}, '53400', 'no other cancel fits');
scalar_of(q{SELECT jobq.alter_schedule('cancels', cron => 'every 1s')});
wait_for_sql($node, q{SELECT next_tick < clock_timestamp() - interval '1 s' OR skipped > 0 FROM jobq.schedules WHERE name = 'cancels'},
	'a tick of overlap = cancel is due');
is(scalar_of(q{SELECT runs, skipped FROM jobq.schedules WHERE name = 'cancels'}), '1|0', 'it waits for room');
$canceller->query_safe('ROLLBACK');
$canceller->quit;
wait_for_sql($node, q{SELECT runs > 1 FROM jobq.schedules WHERE name = 'cancels'}, 'then it has a job');
is(scalar_of(q{SELECT count(*) FROM skips WHERE name = 'cancels' AND reason = 'refused'}), 0, 'and no tick was refused');
scalar_of(q{SELECT jobq.unschedule('cancels')});
$latch->quit;

# ---------- a definition that is no longer valid ----------

scalar_of(q{SELECT jobq.schedule('zone', 'every 1s', 'free')});
wait_for_sql($node, q{SELECT runs > 0 FROM jobq.schedules WHERE name = 'zone'}, 'a schedule ticks');
scalar_of(q{UPDATE jobq.schedules SET timezone = 'Gone/Zone' WHERE name = 'zone'});
wait_for_sql($node, q{SELECT status = 'paused' FROM jobq.schedules WHERE name = 'zone'}, 'its zone is gone');
is(scalar_of(q{SELECT string_agg(e.type || ' ' || (e.data->>'reason'), ', ' ORDER BY e.id) FROM jobq.events e
	WHERE e.type IN ('schedule_paused', 'schedule_failed') AND e.data->>'schedule' = 'zone'}),
	'schedule_failed time zone "Gone/Zone" does not exist, schedule_paused time zone "Gone/Zone" does not exist', 'two events say so');
is(scalar_of(q{SELECT bool_and((e.data->>'tick')::timestamptz = s.last_tick) FROM jobq.events e JOIN jobq.schedules s ON s.name = e.data->>'schedule'
	WHERE e.type IN ('schedule_paused', 'schedule_failed') AND s.name = 'zone'}), 't', 'with the last tick');

# ---------- a row that has an unknown word ----------

$node->safe_psql('postgres', <<'END');
BEGIN;
SELECT jobq.schedule(n, 'every 1s', 'free') FROM unnest('{odd,even}'::text[]) n;
ALTER TABLE jobq.schedules DROP CONSTRAINT schedules_overlap_check;
UPDATE jobq.schedules SET overlap = 'never' WHERE name = 'odd';
COMMIT;
END
my $log_from = -s $node->logfile;
my $old = (jobq_pids($node, 'conductor'))[0];
scalar_of('SELECT jobq.reload()');
wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $old FROM pg_stat_activity WHERE backend_type = 'jobq conductor'", 'another conductor');
my $new = (jobq_pids($node, 'conductor'))[0];
my $runs = scalar_of(q{SELECT runs FROM jobq.schedules WHERE name = 'even'});
wait_for_sql($node, "SELECT runs >= $runs + 3 FROM jobq.schedules WHERE name = 'even'", 'a row with an unknown word stops no other');
# the old one may have read the row, too
my @warnings = substr(slurp_file($node->logfile), $log_from) =~ /\[$new\] [^\n]*WARNING: .*left out: .*"never" is no value of column overlap/g;
is(scalar @warnings, 1, 'one warning names it');
is((jobq_pids($node, 'conductor'))[0], $new, 'the conductor goes on');
my $odd = scalar_of(q{UPDATE jobq.schedules SET overlap = 'allow' WHERE name = 'odd' RETURNING runs});
wait_for_sql($node, "SELECT runs > $odd FROM jobq.schedules WHERE name = 'odd'", 'with a known word it ticks');
$node->stop;
done_testing();
