# Ticks become jobs: once each, by catch_up, overlap, limits of runs, failures and pauses.  Missed
# ticks are made by setting ticks_after back, which is the row that a standstill leaves.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('ticks', 'max_connections = 30', 'jobq.max_sql_workers = 4', 'fsync = off', "timezone = 'UTC'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION note(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
CREATE FUNCTION gated(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock_shared(1)';
CREATE FUNCTION broken(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
SELECT jobq.create_job_type('note', 'note(jsonb)', options => '{"events": "all"}'),
  jobq.create_job_type('gated', 'gated(jsonb)', options => '{"events": "all"}'),
  jobq.create_job_type('broken', 'broken(jsonb)', max_attempts => 1, options => '{"alert": false}');
-- the jobs of a schedule, and the reasons of its ticks without one
CREATE VIEW ticked AS SELECT j.metadata->>'schedule' AS schedule, (j.metadata->>'tick')::timestamptz AS tick, j.* FROM jobq.jobs j
  WHERE j.metadata ? 'tick';
CREATE VIEW dropped AS SELECT e.data->>'schedule' AS schedule, e.data->>'reason' AS reason, (e.data->>'count')::int AS n, e.*
  FROM jobq.events e WHERE e.type = 'tick_skipped';
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# The columns of a schedule.
sub row
{
	my ($name, $columns) = @_;

	return one("SELECT $columns FROM jobq.schedules WHERE name = '$name'");
}

# Gives a schedule the row that a standstill of that length leaves.
sub missed
{
	my ($name, $interval) = @_;

	one("UPDATE jobq.schedules SET ticks_after = now() - interval '$interval' WHERE name = '$name'");
	return;
}

# ---------- a tick ----------

is(join(' ', jobq_pids($node, 'conductor')), '', 'no conductor without a schedule');
# A standstill of 5 s would be missed ticks (catch_up), one of 1 s would meet the job before
# (overlap).
my $each_tick = q{catch_up => 'all', overlap => 'allow'};
one(qq{SELECT jobq.schedule('second', '* * * * * *', 'note', '{"a": [{"\$": "\$.tick"}, {"b": {"\$": "\$.last_tick"}}]}', $each_tick,
	options => '{"priority": 7, "metadata": {"mine": 1}}')});
wait_for_sql($node, q{SELECT count(*) >= 3 FROM ticked WHERE schedule = 'second' AND status = 'completed'}, 'three ticks');
is(scalar(jobq_pids($node, 'conductor')), 1, 'one conductor');
is(one(q{SELECT count(*) - count(DISTINCT tick) FROM ticked WHERE schedule = 'second'}), 0, '!none twice');
is(one(q{SELECT bool_and(scheduled_for = tick AND extract(microseconds FROM tick)::int % 1000000 = 0 AND priority = 7) FROM ticked}), 't',
	'jobs are scheduled for the tick, with the options');
is(one(q{SELECT DISTINCT string_agg(k, ' ' ORDER BY k) FROM (SELECT id, jsonb_object_keys(metadata) k FROM ticked) m GROUP BY id}),
	'last_tick mine schedule tick', 'metadata is that of the options and of the tick');
is(one(q{SELECT bool_and((result->'a'->>0)::timestamptz = tick AND
	(result->'a'->1->>'b')::timestamptz IS NOT DISTINCT FROM (metadata->>'last_tick')::timestamptz)
	FROM ticked WHERE status = 'completed'}), 't', 'placeholders of the payload are filled');
is(one(q{SELECT bool_and((metadata->>'last_tick')::timestamptz = previous) FROM
	(SELECT metadata, lag(tick) OVER (ORDER BY tick) AS previous FROM ticked WHERE schedule = 'second') t WHERE previous IS NOT NULL}), 't',
	'last_tick is the tick before');
is(one(q{SELECT count(*) FROM jobq.events e WHERE e.type = 'ticked'
	AND NOT EXISTS (SELECT FROM ticked t WHERE t.id::text = e.data->>'job_id' AND t.tick = (e.data->>'tick')::timestamptz)}), 0,
	'an event for each');
one(q{SELECT jobq.pause_schedule('second', 'enough', duration => '2 seconds')});
is(row('second', q{concat_ws(' ', status, reason, next_tick IS NULL)}), 'paused enough t', 'paused');
wait_for_sql($node, q{SELECT status = 'active' FROM jobq.schedules WHERE name = 'second'}, 'the pause ends by itself');
wait_for_sql($node, q{SELECT s.last_tick > s.ticks_after - interval '1 s' AND s.last_tick = max(t.tick) AND s.runs = count(*)
	FROM jobq.schedules s JOIN ticked t ON t.schedule = s.name WHERE s.name = 'second' GROUP BY s.id HAVING max(t.tick) - min(t.tick) > interval '4 s'},
	'ticks go on');
is(one(q{SELECT count(*) FROM dropped}), 0, 'ticks of a pause are gone, not dropped');
is(one(q{SELECT jobq.unschedule('second')}), 't', 'unscheduled');

# ---------- a conductor that is killed ----------

one(qq{SELECT jobq.schedule('steady', '* * * * * *', 'note', $each_tick)});
wait_for_sql($node, q{SELECT runs >= 1 FROM jobq.schedules WHERE name = 'steady'}, 'it ticks');
foreach (1 .. 3)
{
	my ($pid) = jobq_pids($node, 'conductor');

	one("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'",
		'another conductor follows');
}
my $seen = row('steady', 'runs');
wait_for_sql($node, "SELECT runs > $seen + 1 FROM jobq.schedules WHERE name = 'steady'", 'and ticks');
one(q{SELECT jobq.pause_schedule('steady')});
is(one(q{SELECT count(*) = count(DISTINCT tick) AND max(tick) - min(tick) = (count(*) - 1) * interval '1 s' FROM ticked WHERE schedule = 'steady'}),
	't', 'each second has one job');

# ---------- missed ticks ----------

# ticks of each hour, half an hour from now
my $minute = one(q{SELECT extract(minute FROM now() + interval '30 min')});
one(qq{SELECT jobq.schedule('miss $_', '$minute * * * *', 'note', catch_up => '$_', catch_up_limit => 4)}) foreach qw(skip one all);
wait_for_sql($node, q{SELECT bool_and(next_tick > now()) FROM jobq.schedules WHERE name LIKE 'miss %'}, 'none is due');
missed("miss $_", '12 hours') foreach qw(skip one all);
wait_for_sql($node, q{SELECT bool_and(ticks_after > now() - interval '1 hour') FROM jobq.schedules WHERE name LIKE 'miss %'}, 'they catch up');
my $newest = one(q{SELECT last_tick FROM jobq.schedules WHERE name = 'miss one'});
is(one("SELECT extract(minute FROM timestamptz '$newest') = $minute AND now() - '$newest' BETWEEN '25 min' AND '55 min'"), 't', 'the newest tick');
is(row('miss skip', 'runs || $$ $$ || skipped'), '0 12', 'skip runs none that is late');
is(row('miss one', 'runs || $$ $$ || skipped'), '1 11', 'one runs the newest');
is(one(q{SELECT string_agg(tick::text, ' ') FROM ticked WHERE schedule = 'miss one'}), $newest, 'which is the newest');
is(row('miss all', 'runs || $$ $$ || skipped'), '4 8', 'all runs as many as its limit');
is(one(qq{SELECT string_agg((('$newest' - tick) / 3600)::text, ' ' ORDER BY id) FROM ticked WHERE schedule = 'miss all'}),
	'00:00:03 00:00:02 00:00:01 00:00:00', 'the newest, in their order');
is(one(q{SELECT string_agg(schedule || ' ' || reason || ' ' || n, ', ' ORDER BY schedule) FROM dropped WHERE schedule IN ('miss one', 'miss all')}),
	'miss all missed 8, miss one missed 11', 'and reasons for the rest');
one(q{SELECT jobq.unschedule(name) FROM jobq.schedules WHERE name LIKE 'miss %'});

# ---------- overlap ----------

my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
one(qq{SELECT jobq.schedule('over $_', '* * * * * *', 'gated', overlap => '$_')}) foreach qw(skip queue cancel);
one(qq{SELECT jobq.schedule('over allow', '* * * * * *', 'gated', $each_tick)});
wait_for_sql($node, q{SELECT runs = 1 AND skipped >= 2 FROM jobq.schedules WHERE name = 'over skip'}, 'skip drops ticks while the job lives');
wait_for_sql($node, q{SELECT runs = 1 AND skipped >= 2 AND waiting_tick > last_tick FROM jobq.schedules WHERE name = 'over queue'}, 'queue keeps the newest');
wait_for_sql($node, q{SELECT runs >= 3 AND skipped = 0 FROM jobq.schedules WHERE name = 'over allow'}, 'allow starts all');
wait_for_sql($node, q{SELECT count(*) FILTER (WHERE status = 'cancelled') >= 2 AND count(*) FILTER (WHERE status NOT IN ('cancelled')) BETWEEN 1 AND 2
	FROM ticked WHERE schedule = 'over cancel'}, 'cancel ends the job before');
is(one(q{SELECT DISTINCT reason FROM dropped WHERE schedule LIKE 'over %' AND reason <> 'missed'}), 'overlap', 'with that reason');
one(q{SELECT jobq.alter_schedule('over queue', cron => '0 0 1 1 *')});
is(row('over queue', 'waiting_tick IS NOT NULL'), 't', 'a tick that waits stays when the expression changes');
one(q{SELECT jobq.pause_schedule(name) FROM jobq.schedules WHERE name IN ('over skip', 'over allow', 'over cancel')});
one(q{SELECT jobq.alter_schedule('over queue', max_runs => 2)});
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_for_sql($node, q{SELECT status = 'finished' AND runs = 2 AND waiting_tick IS NULL FROM jobq.schedules WHERE name = 'over queue'},
	'the tick that waited runs when the job has ended');
is(one(q{SELECT count(*) FROM ticked WHERE schedule = 'over queue'}), 2, 'that is all');
is(row('over queue', 'next_tick IS NULL'), 't', 'a finished schedule has no next tick');
$gate->quit;

# ---------- after ----------

one(q{SELECT jobq.schedule('after', 'after 1s', 'note', max_runs => 3)});
wait_for_sql($node, q{SELECT status = 'finished' FROM jobq.schedules WHERE name = 'after'}, 'after: three runs');
is(one(q{SELECT bool_and(tick - ended = interval '1 s') FROM (SELECT tick, lag(completed_at) OVER (ORDER BY tick) AS ended FROM ticked
	WHERE schedule = 'after') t WHERE ended IS NOT NULL}), 't', 'an interval after the end of the job before');
one(q{SELECT jobq.alter_schedule('after', max_runs => 4)});
wait_for_sql($node, q{SELECT runs = 4 AND status = 'finished' FROM jobq.schedules WHERE name = 'after'}, 'a later max_runs makes it active again');

# ---------- dead letters in a row ----------

one(q{SELECT jobq.schedule('fails', '0 0 1 1 *', 'broken', pause_after_failures => 2)});
one(q{SELECT jobq.run_schedule('fails')});
wait_for_sql($node, q{SELECT failures = 1 FROM jobq.schedules WHERE name = 'fails'}, 'a dead letter is counted');
is(row('fails', 'status'), 'active', 'one is not enough');
one(q{SELECT jobq.run_schedule('fails')});
wait_for_sql($node, q{SELECT status = 'paused' AND reason = '2 dead letters in a row' FROM jobq.schedules WHERE name = 'fails'}, 'two pause it');
is(one(q{SELECT level || ' ' || message FROM jobq.events WHERE type = 'schedule_paused' AND data->>'schedule' = 'fails'}),
	'warning 2 dead letters in a row', 'with an event');
is(one(q{SELECT data FROM jobq.events WHERE type = 'schedule_paused' AND data->>'schedule' = 'fails'}),
	'{"reason": "2 dead letters in a row", "schedule": "fails"}', 'which has no tick, as none was due');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'schedules' @> '{"status": "degraded", "paused": 1}'}, 'and in health()');
one(q{SELECT jobq.resume_schedule('fails')});
is(row('fails', q{concat_ws(' ', status, failures, reason IS NULL)}), 'active 0 t', 'resumed, with a new count');
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'schedules' @> '{"status": "healthy", "paused": 0}'}, 'healthy again');

# Each job counts once, in whatever order they end.
one(q{SELECT jobq.create_job_type('pulled', max_attempts => 1)});
one(q{SELECT jobq.schedule('reversed', '0 0 1 1 *', 'pulled', pause_after_failures => 3)});
one(q{SELECT jobq.run_schedule('reversed') FROM generate_series(1, 2)});
my @claimed = split /\n/, one(q{SELECT format('%L, %L', id, lease_token) FROM jobq.claim('{pulled}', 2) ORDER BY id DESC});
is(scalar @claimed, 2, 'two jobs of a schedule');
foreach my $n (1, 2)
{
	one("SELECT jobq.fail($claimed[$n - 1], 'no')");
	wait_for_sql($node, "SELECT failures = $n FROM jobq.schedules WHERE name = 'reversed'", "$n failed, the newest first");
}
my $former = one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'});
one("SELECT pg_terminate_backend($former)");
wait_for_sql($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND pid <> $former)", 'another conductor');
one(q{SELECT jobq.schedule('after that', '@yearly', 'note'), jobq.run_schedule('after that')});
wait_for_sql($node, q{SELECT j.status = 'completed' FROM jobq.jobs j JOIN jobq.schedules s ON s.last_job_id = j.id WHERE s.name = 'after that'}, 'it works');
is(row('reversed', q{status || ' ' || failures}), 'active 2', 'it counts none again');
one(q{SELECT jobq.unschedule('reversed'), jobq.unschedule('after that')});

# ---------- a row that is locked ----------

my $holder = $node->background_psql('postgres');
one(q{SELECT jobq.schedule('locked', '* * * * * *', 'note')});
one(q{SELECT jobq.schedule('free', '* * * * * *', 'note')});
$holder->query_safe(q{BEGIN; SELECT FROM jobq.schedules WHERE name = 'locked' FOR UPDATE});
my $locked = row('locked', 'runs');
my $free = row('free', 'runs');
wait_for_sql($node, "SELECT runs >= $free + 3 FROM jobq.schedules WHERE name = 'free'", 'other schedules tick on');
is(row('locked', 'runs'), $locked, 'not that of the row');
wait_for_sql($node, q{SELECT (jobq.health()->'checks'->'schedules'->>'late_s')::float8 > 1.5}, 'health() shows the delay');
$holder->query_safe('COMMIT');
wait_for_sql($node, q{SELECT l.last_tick >= f.last_tick - interval '1 s' AND l.runs + l.skipped >= 3 FROM jobq.schedules l, jobq.schedules f
	WHERE l.name = 'locked' AND f.name = 'free'}, 'it catches up when the lock is released');
$holder->quit;
one(q{SELECT jobq.pause_schedule(NULL)});
is(one(q{SELECT count(*) - count(DISTINCT (schedule, tick)) FROM ticked WHERE schedule NOT IN ('fails', 'reversed')}), 0, 'no tick has two jobs');

# ---------- metrics ----------

my $metrics = one('SELECT jobq.metrics()');
my $counts = sub { my ($outcome) = @_; return $metrics =~ /^jobq_schedule_ticks_total\{outcome="$outcome"\} (\d+)$/m ? $1 : undef };
is(one(q{SELECT count(*) FROM jobq.events WHERE type = 'ticked'}), $counts->('enqueued'), 'ticks with a job are counted');
is(one(q{SELECT sum(n) FROM dropped}), $counts->('skipped'), 'and those without');
like($metrics, qr/^# TYPE jobq_schedule_ticks_total counter$/m, 'with the type of the counter');
like(one(q{SELECT jobq.metrics('openmetrics')}), qr/^# TYPE jobq_schedule_ticks counter\n.*^# EOF\s*\z/ms, 'and in the other format');
sqlstate_is($node, 'postgres', q{SELECT jobq.metrics('json')}, '22023', 'another one is refused');

# ---------- no schedule, no conductor ----------

one('DELETE FROM jobq.schedules');
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq conductor'}, 'it leaves after a minute without a schedule');
one(q{SELECT jobq.schedule('again', '* * * * * *', 'note', max_runs => 1)});
wait_for_sql($node, q{SELECT status = 'finished' FROM jobq.schedules WHERE name = 'again'}, 'and comes back for the next one');

is(one(q{SELECT count(*) FROM jobq.events WHERE type = 'schedule_failed'}), 0, 'no schedule has failed');
unlike(slurp_file($node->logfile), qr/could not take its turn|ERROR:.*conductor/, 'and no turn');
$node->stop;
done_testing();
