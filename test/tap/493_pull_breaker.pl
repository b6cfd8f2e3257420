# options.breaker of a pull type: failures of clients open it, one claim probes, a completion
# closes it; events and health.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('breaker', 'max_connections = 40', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('api', max_attempts => 9, backoff_base => '0', options => '{"breaker": {"failures": 3, "pause": "1 hour"}}');
CREATE TABLE held (id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

sub claims { return one("SELECT count(*) FROM jobq.claim('{api}', $_[0], wait => '" . ($_[1] // '0') . "')"); }

sub pause { return one(qq{SELECT jobq.alter_job_type('api', options => '{"breaker": {"failures": 3, "pause": "$_[0]"}}')}); }

my $events = q{FROM jobq.events WHERE job_type = 'api' AND type};
my $fail = q{SELECT count(jobq.fail(id, lease_token, 'down', error_code => 'AP503')) FROM jobq.queue WHERE status = 'running'};

# ---------- it opens ----------

one(q{SELECT jobq.enqueue('api') FROM generate_series(1, 20)});
is(claims(2), 2, 'two jobs are claimed');
is(one($fail), 2, 'and fail');
is(claims(2), 2, 'two others');
one("BEGIN; $fail; ROLLBACK");
is(one(q{SELECT jobq.health()->'checks' ? 'breakers'}), 'f', 'failures that are rolled back do not count');
one(q{SELECT jobq.snooze_job(id, lease_token, '1h') FROM jobq.queue WHERE status = 'running' LIMIT 1});
is(one($fail), 1, 'the third failure');
is(claims(9, '1s'), 0, 'no claim gets a job while the breaker is open');
is(one(q{SELECT count(*), sum(attempts) FROM jobq.queue WHERE status IN ('pending', 'retry')}), '20|3', 'the jobs wait; only failures are charged');
wait_for_sql($node, "SELECT count(*) = 1 $events = 'paused'", 'the event');
is(one(qq{SELECT source, level, message, data->>'failures', (data->>'until')::timestamptz > now() + interval '50 min',
  (SELECT error_code FROM jobq.jobs j WHERE j.id = job_id) $events = 'paused'}),
	'dispatcher|error|the breaker of job type "api" is open for 01:00:00: 3 attempts in a row have failed|3|t|AP503', 'names an attempt that failed');
is(one(q{SELECT jobq.health()->>'status', b->>'job_type', b->>'failures', b->>'probing' FROM jsonb_array_elements(jobq.health()->'checks'->'breakers'->'open') b}),
	'degraded|api|3|false', 'health() names the type');
like(slurp_file($node->logfile), qr/the breaker of job type "api" is open/, 'so does the log');

# ---------- one claim probes ----------

my $s = $node->background_psql('postgres', on_error_stop => 0);
pause('1 ms');
is($s->query(q{BEGIN; SELECT count(*) FROM jobq.claim('{api}', 9, wait => '10s')}), 1, 'half-open: a claim of nine gets one job');
is(claims(9, '1s'), 0, 'another claim gets none');
is(one(q{SELECT b->>'probing' FROM jsonb_array_elements(jobq.health()->'checks'->'breakers'->'open') b}), 'true', 'health() says that one probes');
$s->query_safe('ROLLBACK');
is(claims(9, '10s'), 1, 'after a rollback the next claim probes');
pause('1 hour');
is(one($fail), 1, 'the probe fails');
wait_for_sql($node, "SELECT count(*) = 2 $events = 'paused'", 'the breaker is open again');
is(claims(9, '1s'), 0, 'no job starts');
pause('1 ms');
is(one(q{SELECT count(*) FROM jobq.claim('{api}', 9, lease => '5s', wait => '10s')}), 1, 'a probe with a short lease');
pause('1 hour');
wait_for_sql($node, "SELECT count(*) = 3 $events = 'paused'", 'its end opens the breaker again');
is(claims(9, '1s'), 0, 'no job starts then');
pause('1 ms');
one(q{INSERT INTO held SELECT id, lease_token FROM jobq.claim('{api}', 9, wait => '10s')});
is(one('SELECT count(*) FROM held'), 1, 'the next probe');
pause('1 hour');
is(one('SELECT jobq.complete(id, token) FROM held'), 't', 'completes');
is(claims(9, '10s'), 9, 'the breaker is closed');
wait_for_sql($node, "SELECT count(*) = 1 $events = 'resumed'", 'which is an event');
is(one("SELECT source, level, message, job_id = (SELECT id FROM held) $events = 'resumed'"),
	'dispatcher|info|the breaker of job type "api" is closed: its jobs start again|t', 'of the job that completed');
is(one(q{SELECT jobq.health()->'checks' ? 'breakers'}), 'f', 'health() has no such check');
is(one(q{SELECT sum(attempts) FROM jobq.jobs WHERE status IN ('pending', 'retry')}) + one(q{SELECT count(*) FROM jobq.events WHERE type = 'snoozed'}),
	one(q{SELECT count(*) FROM jobq.jobs j JOIN jobq.events e ON e.job_id = j.id WHERE e.type = 'failed' AND j.status IN ('pending', 'retry')}),
	'no job is charged for the breaker');
one(q{SELECT jobq.create_job_type('theirs', max_attempts => 9, options => '{"breaker": {"failures": 1, "pause": "1 hour"}}'), jobq.enqueue('theirs')});
one(q{SELECT jobq.fail(id, lease_token, 'x', error_code => 'helper_lost') FROM jobq.claim('{theirs}', wait => '10s')});
wait_for_sql($node, q{SELECT jobq.health()->'checks' ? 'breakers'}, 'a failure counts whatever code a client gives');
$s->quit;
done_testing();
