# The clock and the time zone files of the server: jumps wake the conductor, late ticks show in
# health() and metrics, jobq.reload() reads new zone files.  The schedule 'session-cleanup' ticks at
# a quarter of an hour.

use strict;
use warnings;

use File::Copy qw(copy);
use File::Path qw(make_path);
use FindBin;
use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

my $dir = PostgreSQL::Test::Utils::tempdir();
my ($tokyo) = grep { -e } map { "$_/Asia/Tokyo" } '/usr/share/zoneinfo', `$ENV{JOBQ_PG_CONFIG} --sharedir` =~ s/\s+$//r . '/timezone';

my %faked = fake_clock();
system_or_bail('gcc', '-shared', '-fPIC', '-O2', '-o', "$dir/fake_zones.so", "$FindBin::Bin/../lib/fake_zones.c");

my $node = jobq_server('clock', 'jobq.max_sql_workers = 2', 'fsync = off', "timezone = 'Asia/Kolkata'", "log_timezone = 'UTC'");
my $offset = 0;

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# The server's time in epoch seconds, without asking it.
sub server_time { return Time::HiRes::time() + $offset; }

# Moves the server's clock by so many seconds, at once.
sub step_clock
{
	my ($seconds) = @_;

	$offset += $seconds;
	set_clock($offset);
	return;
}

sub start_server
{
	local %ENV = (%ENV, %faked, LD_PRELOAD => "$faked{LD_PRELOAD} $dir/fake_zones.so", FAKE_ZONES => "$dir/zones");

	return $node->start;
}

start_server();
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE session (id int, expires_at timestamptz);
CREATE FUNCTION session_cleanup(payload jsonb) RETURNS jsonb LANGUAGE sql AS $$
  WITH gone AS (DELETE FROM public.session WHERE expires_at < now() RETURNING id)
  SELECT jsonb_build_object('deleted', count(*)) FROM gone
$$;
SELECT jobq.create_job_type('session-cleanup', 'session_cleanup(jsonb)');
INSERT INTO session VALUES (1, now() - interval '1 h'), (2, now() + interval '10 years');
SELECT jobq.schedule('session-cleanup', '0 */15 * * * *', 'session-cleanup');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# ---------- session-cleanup ----------

my $job = scalar_of(q{SELECT jobq.run_schedule('session-cleanup')});
wait_status($node, 'postgres', $job, 'completed', 'run_schedule runs the handler');
is(scalar_of("SELECT result FROM jobq.jobs WHERE id = '$job'"), '{"deleted": 1}', 'with its result');
scalar_of(q{INSERT INTO session VALUES (3, now() - interval '1 h')});
wait_for_sql($node, q{SELECT next_tick > now() FROM jobq.schedules}, 'the next tick is to come');
my ($next, $tick) = split /\|/, scalar_of(q{SELECT extract(epoch FROM next_tick), next_tick FROM jobq.schedules});
is($next % 900, 0, 'at a quarter of an hour');
step_clock($next - int(server_time()) - 2) if $next - server_time() > 2;
wait_for_sql($node, q{SELECT runs = 2 FROM jobq.schedules}, 'which comes');
is(scalar_of(q{SELECT last_tick FROM jobq.schedules}), $tick, 'it was that tick');
$job = scalar_of(q{SELECT last_job_id FROM jobq.schedules});
wait_status($node, 'postgres', $job, 'completed', 'its job runs');
is(scalar_of("SELECT result, scheduled_for FROM jobq.jobs WHERE id = '$job'"), qq({"deleted": 1}|$tick), 'and was due then');
is(scalar_of('SELECT string_agg(id::text, $$ $$) FROM session'), '2', 'only the session that lives is left');
is(scalar_of(q{SELECT next_tick - last_tick FROM jobq.schedules}), '00:15:00', 'the next tick is a quarter later');

# ---------- a jump wakes the conductor ----------

foreach my $run (3, 4)
{
	$next = scalar_of(q{SELECT extract(epoch FROM next_tick) FROM jobq.schedules});
	step_clock(int($next - server_time()) + 2);
	my $jumped = server_time();
	wait_for_sql($node, "SELECT runs = $run FROM jobq.schedules", 'the clock jumps over a tick');
	my $seconds = scalar_of(q{SELECT extract(epoch FROM created_at) FROM jobq.jobs ORDER BY created_at DESC LIMIT 1}) - $jumped;
	cmp_ok($seconds, '<', 5, sprintf('it has its job soon: %.2f s after the jump', $seconds));
	is(scalar_of(q{SELECT extract(epoch FROM last_tick) FROM jobq.schedules}), $next, 'once');
	# a tick during its run is skipped
	wait_for_sql($node, q{SELECT j.status = 'completed' FROM jobq.jobs j, jobq.schedules s WHERE j.id = s.last_job_id}, 'which runs');
}

# ---------- late ticks ----------

# Returns status and message of the check in health(), whose seconds are those of the metric, in a
# range.
sub late
{
	my ($from, $to) = @_;
	my ($status, $message, $late) =
	  split /\|/, scalar_of(q{SELECT c->>'status', c->>'message', round((c->>'late_s')::numeric) FROM (SELECT jobq.health()->'checks'->'schedules') h(c)});
	my ($metric) = scalar_of('SELECT jobq.metrics()') =~ /^jobq_schedule_late_seconds ([\d.]+)$/m;

	ok($late >= $from && $late <= $to, "late by $from to $to s: $late");
	ok(($metric // -1) >= $from && $metric <= $to, 'so says the metric: ' . ($metric // 'none'));
	return "$status $message";
}

scalar_of(q{SELECT jobq.schedule('beat', 'every 1s', 'session-cleanup', overlap => 'allow')});
wait_for_sql($node, q{SELECT runs > 0 FROM jobq.schedules WHERE name = 'beat'}, 'a schedule of each second');
is(late(0, 9), 'healthy ', 'on time');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE jobq.schedules IN ACCESS EXCLUSIVE MODE');
step_clock(20);
wait_for_sql($node, q{SELECT (jobq.health()->'checks'->'schedules'->>'late_s')::float8 > 10}, 'a tick is late');
is(late(15, 60), 'degraded ticks of schedules are late', 'over 10 s: degraded');
step_clock(70);
is(late(61, 180), 'unhealthy ticks of schedules are late', 'over 60 s: unhealthy');
is(scalar_of(q{SELECT jobq.health()->>'status'}), 'unhealthy', 'and so is the whole');
$holder->query_safe('COMMIT');
$holder->quit;
wait_for_sql($node, q{SELECT jobq.health()->'checks'->'schedules'->>'status' = 'healthy'}, 'healthy again when it has caught up');
is(late(0, 9), 'healthy ', 'on time again');
scalar_of(q{SELECT jobq.unschedule('beat')});

# ---------- new time zone files ----------

$node->safe_psql('postgres', <<'END');
SELECT jobq.schedule('read anew', '0 9 * * *', 'session-cleanup', timezone => 'Europe/Berlin'),
       jobq.schedule('read by the server', '0 9 * * *', 'session-cleanup', timezone => 'Asia/Kolkata'),
       jobq.schedule('the same', '0 9 * * *', 'session-cleanup', timezone => 'Asia/Tokyo');
END

# True if the schedule has the ticks of Tokyo.
sub is_tokyo
{
	my ($name) = @_;

	return qq{SELECT s.next_tick = t.next_tick FROM jobq.schedules s, jobq.schedules t WHERE s.name = '$name' AND t.name = 'the same'};
}

is(scalar_of(is_tokyo($_)), 'f', "$_: a zone with other ticks") foreach 'read anew', 'read by the server';
make_path("$dir/zones/Europe", "$dir/zones/Asia");
copy($tokyo, "$dir/zones/$_") or die "$tokyo: $!" foreach qw(Europe/Berlin Asia/Kolkata);
scalar_of('SELECT jobq.reload()');
wait_for_sql($node, is_tokyo('read anew'), 'jobq.reload() reads new files of time zones');
is(scalar_of(is_tokyo('read by the server')), 'f', 'but not those of the setting timezone');
$node->stop;
start_server();
wait_for_sql($node, is_tokyo('read by the server'), 'which a restart reads');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|could not take its turn/, 'no process failed');
$node->stop;
done_testing();
