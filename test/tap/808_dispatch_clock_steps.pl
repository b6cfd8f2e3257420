# The wall clock steps by two hours, back and forth: no job runs early,
# and no interval lasts longer.

use strict;
use warnings;

use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

my %faked = fake_clock();

use constant STEP => 7200;

my $node = jobq_server('clock', 'jobq.max_sql_workers = 4', "jobq.sweep_interval = '1s'", 'fsync = off');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# Runs a job without delay of that type: afterwards the dispatcher has read
# everything committed before.
sub run_one
{
	my ($type, $what) = @_;
	my $id = scalar_of("SELECT jobq.enqueue('$type', '{}')");

	return wait_status($node, 'postgres', $id, 'completed', $what);
}

# status and attempts of a job
sub state_of
{
	my ($id) = @_;

	return scalar_of("SELECT status || ' ' || attempts FROM jobq.jobs WHERE id = '$id'");
}

{
	local %ENV = (%ENV, %faked);
	$node->start;
}
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION plain(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'fail' THEN RAISE 'no'; END IF;
END $$;
CREATE SEQUENCE caught;
CREATE FUNCTION stubborn(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    BEGIN
      PERFORM pg_sleep(600);
    EXCEPTION WHEN query_canceled THEN PERFORM nextval('public.caught');
    END;
  END LOOP;
END $$;
CREATE FUNCTION sleeps(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)';
SELECT jobq.create_job_type(t, 'plain(jsonb)') FROM unnest('{plain,paused,held,swept,unseen}'::text[]) t;
SELECT jobq.create_job_type('kept', 'plain(jsonb)', options => '{"keep_completed_count": 3}');
SELECT jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 5, backoff => 'fixed', backoff_base => '10min');
SELECT jobq.create_job_type('rated', 'plain(jsonb)', rate_limit => 2, rate_window => '2s');
SELECT jobq.create_job_type('bucket', 'plain(jsonb)', rate_limit => 2, rate_window => '2s', options => '{"burst": 2}');
SELECT jobq.create_job_type('sleeps', 'sleeps(jsonb)', max_attempts => 1, timeout => '15s');
SELECT jobq.create_job_type('stubborn', 'stubborn(jsonb)', max_attempts => 1, timeout => '300ms');
SELECT jobq.create_job_type('tool', command => '{/bin/true}', options => '{"output": "none"}');
SELECT jobq.create_job_type('toolfails', command => '{/bin/false}', max_attempts => 5, backoff => 'fixed', backoff_base => '10min',
                            options => '{"output": "none"}');
SELECT jobq.create_job_type('tooltime', command => '{/bin/sleep,600}', max_attempts => 1, timeout => '15s',
                            options => '{"output": "none"}');
SELECT jobq.set_tenant_quota('acme', enqueues_per_minute => 2);
SELECT jobq.set_signal('busy', false);
SELECT jobq.set_pressure_rule('held', 'busy', block => true);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
cmp_ok(abs(scalar_of('SELECT extract(epoch FROM clock_timestamp())') - Time::HiRes::time()), '<', 600, 'the clock is right');

# ---------- before the step ----------

run_one($_, "a job of type $_") foreach qw(plain paused fails tool rated rated bucket bucket kept kept kept);
is(scalar_of(q{SELECT count(jobq.enqueue('plain', '{}', tenant => 'acme')) FROM generate_series(1, 2)}), 2, 'a quota used up');
my $used = Time::HiRes::time();
my $early = scalar_of(q{SELECT jobq.enqueue('plain', '{}', delay => '1h')});
my @standing = map { scalar_of("SELECT jobq.enqueue('$_', '{}')") } qw(sleeps tooltime);
wait_status($node, 'postgres', $_, 'running', 'a job with a timeout runs') foreach @standing;
my $stubborn = scalar_of(q{SELECT jobq.enqueue('stubborn', '{}')});
wait_for_sql($node, 'SELECT is_called FROM caught', 'a handler ignores the first cancel for its timeout');
scalar_of(q{SELECT jobq.pause_job_type('paused', duration => '4s'), jobq.set_signal('busy', true, ttl => '4s')});

# ---------- two hours back ----------

set_clock(-STEP);
cmp_ok(abs(scalar_of('SELECT extract(epoch FROM clock_timestamp())') + STEP - Time::HiRes::time()), '<', 600,
	'the clock has been set back');
my @waiting = map { scalar_of("SELECT jobq.enqueue('$_', '{}')") } qw(paused held);
my $delayed = scalar_of(q{SELECT jobq.enqueue('plain', '{}', delay => '1h')});
my $late = scalar_of(q{SELECT jobq.enqueue('tool', '{}', delay => '1h')});
my @failing = map { scalar_of("SELECT jobq.enqueue('$_', '{\"fail\": true}')") } qw(fails toolfails);
run_one('plain', 'a job enqueued now runs now');
run_one('tool', 'a tool, too');
wait_for_sql($node, "SELECT attempts > 0 AND status <> 'running' FROM jobq.jobs WHERE id = '$_'", 'a job fails') foreach @failing;
run_one($_, "others of type $_ run") foreach qw(fails tool plain);
is(state_of($delayed), 'pending 0', 'one with a delay does not');
is(state_of($late), 'pending 0', 'nor does a tool with one');
is(state_of($early), 'pending 0', 'nor one that was enqueued before the step');
is(state_of($_), 'retry 1', 'the second attempt waits for its time') foreach @failing;
run_one($_, "others of type $_ run") foreach qw(rated bucket rated bucket);
wait_status($node, 'postgres', $_, 'completed', 'a pause or block of some seconds is over') foreach @waiting;
wait_status($node, 'postgres', $_, 'error', 'a timeout is not put off') foreach @standing;
is(scalar_of("SELECT string_agg(error_code, ' ') FROM jobq.jobs WHERE id IN ('$standing[0]', '$standing[1]')"), 'timeout timeout',
	'that it was');
wait_status($node, 'postgres', $stubborn, 'error', 'one that was ignored before the step ends its process');
like(scalar_of("SELECT error_msg FROM jobq.jobs WHERE id = '$stubborn'"), qr/^timeout after .*its process was ended$/, 'for its timeout');
cmp_ok(scalar_of('SELECT last_value FROM caught'), '>', 2, 'after more cancels');

# a dispatcher started after a step continues the windows of the former one
my $former = dispatcher($node, 'postgres');
freeze($node, $former);
scalar_of(q{SELECT jobq.pause_job_type('unseen', duration => '4s')});
set_clock(-2 * STEP);
scalar_of("SELECT pg_terminate_backend($former)");
kill 'CONT', $former;
wait_dispatcher($node, 'postgres', 'another dispatcher', $former);
run_one($_, "jobs of type $_ run") foreach qw(rated bucket rated bucket);
run_one('unseen', 'a pause that it saw first after the step lasts no longer than it was to');
set_clock(-STEP);
run_one('plain', 'the clock goes forward again');

# the sweep finds unpublished changes
scalar_of(q{
ALTER TABLE jobq.queue DISABLE TRIGGER USER;
INSERT INTO jobq.queue SELECT (jsonb_populate_record(q, jsonb_build_object('id', gen_random_uuid(), 'position', clock_timestamp(),
    'scheduled_for', clock_timestamp(), 'type_id', t.id))).* FROM jobq.queue q, jobq.job_types t
  WHERE q.id = '} . $delayed . q{' AND t.name = 'swept';
DO $$
DECLARE t name;
BEGIN
  FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'jobq.queue'::regclass AND NOT tgisinternal LOOP
    EXECUTE format('ALTER TABLE jobq.queue ENABLE ALWAYS TRIGGER %I', t);
  END LOOP;
END $$});
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.jobs WHERE job_type = 'swept' AND status = 'completed'}, 'the sweep goes on');

# ---------- forward again ----------

set_clock(-3000);
wait_status($node, 'postgres', $delayed, 'completed', 'jobs that have become due run');
wait_status($node, 'postgres', $late, 'completed', 'as a tool, too');
is(state_of($early), 'pending 0', 'others do not');
wait_for_sql($node, "SELECT attempts > 1 FROM jobq.jobs WHERE id = '$_'", 'a retry comes') foreach @failing;
set_clock(3700);
wait_status($node, 'postgres', $early, 'completed', 'an hour and more after it was enqueued, it runs');
run_one($_, "and so does a job of type $_") foreach qw(plain tool rated bucket fails);

# ---------- a minute is a minute ----------

run_one('kept', 'one more than is kept');
my $asked = Time::HiRes::time();
wait_for_sql($node, q{SELECT jobq.enqueue('plain', '{}', tenant => 'acme') IS NOT NULL}, 'the quota of a minute is free again');
my $over = $asked > $used + 60 ? $asked : $used + 60;
cmp_ok(Time::HiRes::time() - $over, '<', 200, 'after a minute, not after the hours of the steps');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.jobs WHERE job_type = 'kept'}, 'maintenance is done');
is(scalar_of("SELECT jobq.health()->'checks'->'dispatcher'->>'status'"), 'healthy', 'health() is content');
$node->stop;
done_testing();
