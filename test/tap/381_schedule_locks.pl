# Locks, ends that are not heard, refused ticks: each schedule ticks on
# afterwards, and no other one is late.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('locks', 'max_connections = 30', 'jobq.max_sql_workers = 4', 'fsync = off', "timezone = 'UTC'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION gated(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock_shared(1)';
CREATE FUNCTION broken(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
SELECT jobq.create_job_type('note', 'note(jsonb)'), jobq.create_job_type('gated', 'gated(jsonb)'),
  jobq.create_job_type('broken', 'broken(jsonb)', max_attempts => 1, options => '{"alert": false}'),
  jobq.create_job_type('waits', 'note(jsonb)');
SELECT jobq.pause_job_type('waits');
CREATE VIEW ticked AS SELECT j.metadata->>'schedule' AS schedule, (j.metadata->>'tick')::timestamptz AS tick, j.* FROM jobq.jobs j
  WHERE j.metadata ? 'tick';
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub runs_on
{
	my ($name, $what) = @_;
	my $runs = one("SELECT runs FROM jobq.schedules WHERE name = '$name'");

	return wait_for_sql($node, "SELECT runs > $runs FROM jobq.schedules WHERE name = '$name'", $what);
}

my $gate = $node->background_psql('postgres');
my $holder = $node->background_psql('postgres');

# ---------- a job that ends while the row of its schedule is locked ----------

$gate->query_safe('SELECT pg_advisory_lock(1)');
one(q{SELECT jobq.schedule('after', 'after 1s', 'gated'), jobq.schedule('queue', '* * * * * *', 'gated', overlap => 'queue')});
wait_for_sql($node, q{SELECT bool_and(runs = 1) AND bool_or(waiting_tick IS NOT NULL) FROM jobq.schedules}, 'both have a job');
$holder->query_safe(q{BEGIN; SELECT FROM jobq.schedules FOR UPDATE});
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_for_sql($node, q{SELECT count(*) = 2 FROM ticked WHERE status = 'completed'}, 'their jobs end behind a lock');
$holder->query_safe('COMMIT');
runs_on($_, "$_ goes on when the lock is released") foreach qw(after queue);

# ---------- a schedule that is created while the table is locked ----------

$holder->query_safe(q{BEGIN; LOCK TABLE jobq.queue IN SHARE MODE});
one(q{SELECT jobq.schedule('new', '* * * * * *', 'note', catch_up => 'all', overlap => 'allow')});	# each tick, also after a stall
wait_for_sql($node, q{SELECT (jobq.health()->'checks'->'schedules'->>'late_s')::float8 > 0.5}, 'the conductor has met the lock');
$holder->query_safe('COMMIT');
runs_on('new', 'the new schedule ticks');
$holder->query_safe(q{BEGIN; LOCK TABLE jobq.schedules IN ACCESS EXCLUSIVE MODE});
my ($pid) = jobq_pids($node, 'conductor');
one("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, "SELECT count(*) = 1 AND min(pid) <> $pid FROM pg_stat_activity WHERE backend_type = 'jobq conductor'", 'a conductor starts while the table is locked');
$holder->query_safe('COMMIT');
runs_on('new', 'and ticks afterwards');

# ---------- jobs that are not the schedule's, or whose end no one has noted ----------

one(q{SELECT jobq.enqueue('waits', unique_key => 'k')});
one(q{SELECT jobq.schedule('key', 'after 1s', 'waits', options => '{"unique_key": "k"}')});
wait_for_sql($node, q{SELECT skipped >= 2 FROM jobq.schedules WHERE name = 'key'}, 'a tick that meets another job with its key is no end of the schedule');
one(q{SELECT jobq.cancel_jobs('waits')});
wait_for_sql($node, q{SELECT runs = 1 FROM jobq.schedules WHERE name = 'key'}, 'it has a job when the key is free');
one(q{UPDATE jobq.schedules SET next_tick = NULL WHERE name = 'after'});
runs_on('after', 'a row without a next tick gets one');

# The owner of a schedule gets no right on the job that has its unique key.
my $foreign = one(q{SELECT jobq.enqueue('waits', unique_key => 'theirs')});
one(q{SELECT jobq.schedule('attack', '* * * * * *', 'waits', overlap => 'cancel', options => '{"unique_key": "theirs"}')});
wait_for_sql($node, q{SELECT skipped >= 3 FROM jobq.schedules WHERE name = 'attack'}, 'ticks that meet a job of others with their unique key');
is(one("SELECT status FROM jobq.jobs WHERE id = '$foreign'"), 'pending', 'do not cancel it');
is(one(q{SELECT last_job_id IS NULL FROM jobq.schedules WHERE name = 'attack'}), 't', 'it is no job of the schedule');
one(q{SELECT jobq.unschedule('attack')});

# An alteration that is committed between the cancel of a job and its commit.
one(q{SELECT jobq.schedule('race', '@yearly', 'waits')});
my $job = one(q{SELECT jobq.run_schedule('race')});
$holder->query_safe(qq{BEGIN; SELECT jobq.cancel_job('$job')});
one(q{SELECT jobq.alter_schedule('race', cron => 'after 1s')});
$holder->query_safe('COMMIT');
runs_on('race', 'an end is noted by the schedule as it is at commit');

# ---------- a job type that allows less than before ----------

one(q{CREATE ROLE held LOGIN; SELECT jobq.grant_access('held', 'enqueue', NULL, '{note}'), jobq.alter_job_type('note', options => '{"min_interval": "1s"}')});
one(q{SET ROLE held; SELECT jobq.schedule('often', '* * * * * *', 'note', catch_up => 'all', overlap => 'allow')});
runs_on('often', 'a role held to its grants has a tick each second');
one(q{SELECT jobq.alter_job_type('note', options => '{"min_interval": "3s"}')});
wait_for_sql($node, q{SELECT skipped >= 4 FROM jobq.schedules WHERE name = 'often'}, 'until the type allows less');
is(one(q{SELECT string_agg(DISTINCT data->>'reason', ' ') FROM jobq.events WHERE type = 'tick_skipped' AND data->>'schedule' = 'often'}), 'min_interval',
	'with that reason');
is(one(q{SELECT min(gap) FROM (SELECT tick - lag(tick) OVER (ORDER BY tick DESC) AS gap FROM ticked WHERE schedule = 'often' ORDER BY tick DESC LIMIT 2) g}), '-00:00:03',
	'the last two ticks are so far apart');
one(q{SELECT jobq.unschedule('often')});

# ---------- many rows that are locked ----------

one(q{SELECT count(jobq.schedule('many ' || i, '* * * * * *', 'note', catch_up => 'skip')) FROM generate_series(1, 200) i});
wait_for_sql($node, q{SELECT count(*) = 200 FROM jobq.schedules WHERE name LIKE 'many %' AND runs >= 1}, '200 schedules tick');
my $from = one(q{SELECT max(tick) FROM ticked WHERE schedule = 'new'});
$holder->query_safe(q{BEGIN; SELECT jobq.pause_schedule(NULL) FROM (VALUES (1)) v; SELECT 1});
$holder->query_safe('ROLLBACK');
$holder->query_safe(q{BEGIN; SELECT count(*) FROM (SELECT FROM jobq.schedules WHERE name LIKE 'many %' FOR UPDATE) x});
wait_for_sql($node, qq{SELECT max(tick) >= '$from'::timestamptz + interval '5 s' FROM ticked WHERE schedule = 'new'}, 'another schedule ticks beside them');
is(one(qq{SELECT count(*) = extract(epoch FROM max(tick) - '$from') FROM ticked WHERE schedule = 'new' AND tick > '$from'}), 't', 'and misses none');
$holder->query_safe('COMMIT');
one(q{DELETE FROM jobq.schedules WHERE name LIKE 'many %' OR name = 'new'});

# ---------- ticks of one turn ----------

$gate->query_safe('SELECT pg_advisory_lock(1)');
one(q{SELECT jobq.schedule('single', '@yearly', 'gated', catch_up => 'all')});
one(q{SELECT jobq.run_schedule('single')});
one(q{UPDATE jobq.schedules SET cron = extract(minute FROM now() + interval '30 min') || ' * * * *', ticks_after = now() - interval '1 hour' WHERE name = 'single'});
wait_for_sql($node, q{SELECT runs = 2 AND skipped = 0 FROM jobq.schedules WHERE name = 'single'}, 'catch_up = all runs one missed tick, too, beside a live job');
$gate->query_safe('SELECT pg_advisory_unlock(1)');

one(q{SELECT jobq.set_tenant_quota('acme', max_live => 4), jobq.schedule('quota', '@yearly', 'waits', catch_up => 'all', catch_up_limit => 10, tenant => 'acme')});
one(q{UPDATE jobq.schedules SET cron = '* * * * * *', ends_at = date_trunc('second', now()) - interval '1 s', ticks_after = date_trunc('second', now()) - interval '31 s' WHERE name = 'quota'});
wait_for_sql($node, q{SELECT status = 'finished' FROM jobq.schedules WHERE name = 'quota'}, 'thirty missed ticks, ten of them to run, four of them within the quota');
is(one(q{SELECT runs || ' ' || skipped FROM jobq.schedules WHERE name = 'quota'}), '4 26', 'four have jobs');
is(one(q{SELECT string_agg(reason || ' ' || n, ', ' ORDER BY reason) FROM (SELECT data->>'reason' AS reason, sum((data->>'count')::int) AS n
	FROM jobq.events WHERE type = 'tick_skipped' AND data->>'schedule' = 'quota' GROUP BY 1) e}), 'missed 20, refused 6', 'the others have reasons');

# ---------- a last job that is retried while the conductor looks for it ----------

# It was a dead letter for the queue, and must not be gone for the dead letters: it counts as one.
one(q{SELECT jobq.create_job_type('pulled', max_attempts => 1, options => '{"alert": false}'), jobq.schedule('retried', '@yearly', 'pulled')});
my $last = one(q{SELECT jobq.run_schedule('retried')});
my $token = one(q{SELECT lease_token FROM jobq.claim('{pulled}', wait => '20s')});
one("SELECT jobq.fail('$last', '$token', 'no')");
one(q{SELECT jobq.schedule('fence', '* * * * * *', 'note')});
runs_on('fence', 'its end is not noted: no number of failures is given');
one(q{SELECT jobq.unschedule('fence'), jobq.alter_schedule('retried', pause_after_failures => 1)});
$holder->query_until(qr/begun/, <<"END");
\\echo begun
DO \$\$
BEGIN
  LOCK TABLE jobq.dead_letters IN ACCESS EXCLUSIVE MODE;
  PERFORM jobq.retry_job('$last');
  WHILE NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'jobq.dead_letters'::regclass AND NOT granted) LOOP END LOOP;
  COMMIT;
END \$\$;
SELECT 'committed';
END
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'jobq.dead_letters'::regclass AND mode = 'AccessExclusiveLock' AND granted)}, 'it is being retried');
($pid) = jobq_pids($node, 'conductor');
one("SELECT pg_terminate_backend($pid)");
wait_for_sql($node, q{SELECT ended_job_id IS NOT NULL FROM jobq.schedules WHERE name = 'retried'}, 'another conductor has looked for it');
is(one(q{SELECT failures || ' ' || status FROM jobq.schedules WHERE name = 'retried'}), '1 paused', 'it counts as a dead letter');
is(one("SELECT status FROM jobq.jobs WHERE id = '$last'"), 'pending', 'and waits again');
one(q{SELECT jobq.unschedule('retried'), jobq.cancel_jobs('pulled')});

# ---------- the database turns into a copy while work waits for a lock ----------

$gate->query_safe('SELECT pg_advisory_lock(1)');
one(q{SELECT jobq.schedule('held', 'after 1s', 'gated'), jobq.schedule('beside', '* * * * * *', 'note')});
wait_for_sql($node, q{SELECT status = 'running' FROM ticked WHERE schedule = 'held'}, 'its job runs');
$holder->query_safe(q{BEGIN; SELECT FROM jobq.schedules WHERE name = 'held' FOR UPDATE});
$gate->query_safe('SELECT pg_advisory_unlock(1)');
wait_for_sql($node, q{SELECT status = 'completed' FROM ticked WHERE schedule = 'held'}, 'and ends behind a lock');
runs_on('beside', 'the conductor has met the lock');
one(q{BEGIN; SELECT jobq.pause_schedule('beside'); UPDATE jobq.home SET database = database; COMMIT});
my $since = one('SELECT clock_timestamp()');
wait_for_sql($node, "SELECT wait_event_type = 'Extension' AND state_change > '$since'::timestamptz + interval '1 s' FROM pg_stat_activity WHERE backend_type = 'jobq conductor'",
	'it sleeps between its looks at a copy');
$holder->query_safe('COMMIT');
one('SELECT jobq.adopt()');
runs_on('held', 'and goes on after adopt()');

$gate->quit;
$holder->quit;
unlike(slurp_file($node->logfile), qr/could not take its turn/, 'each turn was taken');
$node->stop;
done_testing();
