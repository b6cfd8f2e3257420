# options.breaker: consecutive failures pause a type, and one job at a time probes it.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('breaker', 'jobq.max_sql_workers = 4', 'jobq.sweep_interval = 100ms', 'fsync = off');
$node->start;
my $tool = $node->basedir . '/tool';
append_to_file($tool, "#!/bin/sh\nsleep 0.02\n[ ! -e \$0.broken ]\n");
chmod 0755, $tool or die "chmod: $!";
$node->safe_psql('postgres', <<"END");
CREATE EXTENSION jobq;
CREATE TABLE api (state text);
INSERT INTO api VALUES ('up');
CREATE FUNCTION call(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
  state text := coalesce(p->>'state', (SELECT state FROM public.api));
BEGIN
  IF p ? 's' THEN PERFORM pg_sleep((p->>'s')::float8); END IF;
  CASE state
    WHEN 'down' THEN RAISE EXCEPTION 'down' USING ERRCODE = 'AP503';
    WHEN 'busy' THEN PERFORM jobq.snooze('1 hour');
    ELSE NULL;
  END CASE;
END \$\$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub query { return $node->safe_psql('postgres', $_[0]); }

sub make_type
{
	my ($name, $breaker, $args) = @_;

	query("SELECT jobq.create_job_type('$name', 'call(jsonb)', max_attempts => 1, options => '{\"breaker\": $breaker, \"events\": \"all\"}'" . ($args // '') . ')');
	return;
}

sub api
{
	query("UPDATE api SET state = '$_[0]'");
	return;
}

# count attempts of a type: jobs that have begun
sub begun { return query("SELECT count(*) FROM jobq.jobs WHERE job_type = '$_[0]' AND runs > 0"); }

sub opened { return wait_for_sql($node, "SELECT count(*) >= $_[1] FROM jobq.events WHERE job_type = '$_[0]' AND type = 'paused'", "the breaker of $_[0] has opened ($_[1])"); }

sub pause
{
	query("SELECT jobq.alter_job_type('$_[0]', options => '{\"breaker\": {\"failures\": $_[1], \"pause\": \"$_[2]\"}}')");
	return;
}

# The highest number of attempts of the type that ran at once since a time.
sub most_at_once
{
	return query("SELECT max(n) FROM (SELECT sum(CASE type WHEN 'started' THEN 1 ELSE -1 END) OVER (ORDER BY ts, id) AS n FROM jobq.events "
		  . "WHERE job_type = '$_[0]' AND type IN ('started', 'failed', 'completed', 'snoozed') AND ts >= '$_[1]') e");
}

# --- failures in a row, one after another, also in batches of short jobs ---

make_type('api', '{"failures": 3, "pause": "1 hour"}', ', max_concurrent => 1');
query(q{SELECT count(jobq.enqueue('api')) FROM generate_series(1, 500)});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'short jobs that go well');
query(q{SELECT count(jobq.enqueue('api', jsonb_build_object('n', n, 'state', CASE WHEN n IN (1, 2, 4, 5) THEN 'down' ELSE 'up' END))) FROM generate_series(1, 6) n});
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'two failures in a row, twice');
is(query(q{SELECT count(*) FROM jobq.events WHERE type = 'paused'}), '0', 'a success between them keeps the breaker closed');
api('down');
query(q{SELECT count(jobq.enqueue('api', '{"batch": 1}')) FROM generate_series(1, 300)});
opened('api', 1);
is(query(q{SELECT count(*) FROM jobq.jobs WHERE payload ? 'batch' AND runs > 0}), '3', 'exactly three of a batch have begun');
is(query(q{SELECT string_agg(DISTINCT concat_ws(' ', status, attempts), ', ') FROM jobq.jobs WHERE payload ? 'batch' AND runs = 0}),
	'pending 0', 'the others wait with all their attempts');
is(query(q{SELECT string_agg(DISTINCT concat_ws(' ', status, attempts, error_code), ', ') FROM jobq.jobs WHERE payload ? 'batch' AND runs > 0}),
	'error 1 AP503', 'those that failed are charged as ever');
is(query(q{SELECT concat_ws('|', source, level, message, data->>'failures', (data->>'until')::timestamptz > now() + interval '50 min', (SELECT runs FROM jobq.jobs j WHERE j.id = job_id)) FROM jobq.events WHERE type = 'paused'}),
	'dispatcher|error|the breaker of job type "api" is open for 01:00:00: 3 attempts in a row have failed|3|t|1', 'the event');
like(query(q{SELECT jobq.health()->'checks'->'breakers'}), qr/"status": "degraded".*breaker of job type \\"api\\" is open until 20/, 'health() names the type');
is(query(q{SELECT jobq.health()->>'status'}), 'degraded', 'and is degraded');
is(query(q{SELECT b->>'job_type', b->>'failures', b->>'probing', (b->>'until')::timestamptz > now() + interval '50 min', (b->>'until')::timestamptz - (b->>'since')::timestamptz BETWEEN '59 min 59 s' AND '1 h 1 s' FROM jsonb_array_elements(jobq.health()->'checks'->'breakers'->'open') b}),
	'api|3|false|t|t', 'in numbers, too');

# --- another dispatcher, a pause by a user, another type ---

my $before = dispatcher($node, 'postgres');
query('SELECT pg_terminate_backend(' . $before . ')');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND pid <> $before)", 'another dispatcher');
make_type('other', '{"failures": 3, "pause": "1 hour"}');
query(q{SELECT jobq.enqueue('other', '{"state": "up"}')});
wait_for_sql($node, q{SELECT bool_and(status = 'completed') FROM jobq.jobs WHERE job_type = 'other'}, 'another type runs');
is(begun('api') - 506, 3, 'the new dispatcher knows that the breaker is open');
query(q{SELECT jobq.pause_job_type('api')});
pause('api', 3, '1 ms');
query(q{SELECT jobq.enqueue('other', '{"state": "up", "n": 2}')});
wait_for_sql($node, q{SELECT bool_and(status = 'completed') FROM jobq.jobs WHERE job_type = 'other'}, 'another job of another type');
is(begun('api') - 506, 3, 'the end of its pause does not end that of a user');
pause('api', 3, '1 hour');
query(q{SELECT jobq.resume_job_type('api')});
opened('api', 2);
is(begun('api') - 506, 6, 'resume_job_type() closes the breaker: three more have to fail');

# --- half-open: one at a time ---

query(q{SELECT jobq.alter_job_type('api', max_concurrent => 0)});
my $since = query('SELECT clock_timestamp()');
pause('api', 3, '150 ms');
opened('api', 6);
pause('api', 3, '1 hour');
is(most_at_once('api', $since), '1', 'one at a time probes');
is(query("SELECT count(*) FROM (SELECT ts - lag(ts) OVER (ORDER BY ts) AS d FROM jobq.events WHERE job_type = 'api' AND type = 'started' AND ts >= '$since') s WHERE d < '150 ms'"),
	'0', 'no sooner than the pause after the one before');
my $paused = query(q{SELECT count(*) FROM jobq.events WHERE job_type = 'api' AND type = 'paused'});
is(begun('api') - 506, 6 + $paused - 2, 'each failure of a probe opens it again');
api('busy');
pause('api', 3, '1 ms');
wait_for_sql($node, q{SELECT count(*) >= 5 FROM jobq.events WHERE job_type = 'api' AND type = 'snoozed'}, 'a probe that says nothing is followed by another');
api('up');
query(q{SELECT jobq.enqueue('api')});	# the others may all have been probes by now
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.events WHERE job_type = 'api' AND type = 'resumed'}, 'a success closes the breaker');
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE scheduled_for < now() + interval '10 min')}, 'and the rest runs');
is(query("SELECT coalesce(max(n), 1) FROM (SELECT sum(CASE type WHEN 'started' THEN 1 ELSE -1 END) OVER (ORDER BY ts, id) AS n FROM jobq.events "
	  . "WHERE job_type = 'api' AND type IN ('started', 'failed', 'completed', 'snoozed') AND ts >= '$since' "
	  . "AND ts < (SELECT max(ts) FROM jobq.events WHERE job_type = 'api' AND type = 'completed' AND job_id = (SELECT job_id FROM jobq.events WHERE type = 'resumed'))) e"),
	'1', 'until then one at a time ran');
is(query(q{SELECT concat_ws('|', source, level, message) FROM jobq.events WHERE type = 'resumed'}),
	'dispatcher|info|the breaker of job type "api" is closed: its jobs start again', 'the event');
is(query(q{SELECT jobq.health()->'checks' ? 'breakers'}), 'f', 'health() has nothing to say');

# --- a probe that does not end ---

api('down');
make_type('lost', '{"failures": 2, "pause": "1 hour"}');
query(q{SELECT count(jobq.enqueue('lost', '{"s": 0.01}')) FROM generate_series(1, 4)});
opened('lost', 1);
api('up');
query(q{SELECT count(jobq.enqueue('lost', '{"s": 600}', priority => 50)) FROM generate_series(1, 3)});
pause('lost', 2, '1 ms');
my $running = q{SELECT count(*) = 1 FROM jobq.jobs WHERE job_type = 'lost' AND status = 'running'};
wait_for_sql($node, $running, 'a probe that takes long');
my $probe = query(q{SELECT id FROM jobq.jobs WHERE job_type = 'lost' AND status = 'running'});
is(query(q{SELECT b->>'probing' FROM jsonb_array_elements(jobq.health()->'checks'->'breakers'->'open') b}), 'true', 'health() says that one probes');
query("SELECT jobq.cancel_job('$probe')");
wait_for_sql($node, "SELECT count(*) = 1 AND bool_and(id <> '$probe') FROM jobq.jobs WHERE job_type = 'lost' AND status = 'running'", 'another one when it is cancelled');
$probe = query(q{SELECT worker FROM jobq.jobs WHERE job_type = 'lost' AND status = 'running'}) =~ s/sql\///r;
query("SELECT pg_terminate_backend($probe)");
wait_for_sql($node, "SELECT count(*) = 1 AND bool_and(worker <> 'sql/$probe') FROM jobq.jobs WHERE job_type = 'lost' AND status = 'running'", 'or its worker is terminated');
$before = dispatcher($node, 'postgres');
query('SELECT pg_terminate_backend(' . $before . ')');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND pid <> $before)", 'another dispatcher');
query(q{SELECT jobq.enqueue('other', '{"state": "up", "n": 3}')});
wait_for_sql($node, q{SELECT bool_and(status = 'completed') FROM jobq.jobs WHERE job_type = 'other'}, 'has read the queue');
ok(query($running) eq 't', 'it finds the probe');
query(q{SELECT jobq.alter_job_type('lost', options => '{"breaker": null}')});
wait_for_sql($node, q{SELECT count(*) FILTER (WHERE status = 'running') = 2 AND bool_and(status IN ('completed', 'running', 'cancelled', 'error')) FROM jobq.jobs WHERE job_type = 'lost'},
	'without the option all run');
query(q{SELECT jobq.cancel_jobs('lost', include_running => true)});

# --- tools ---

append_to_file("$tool.broken", '');
query(qq{SELECT jobq.create_job_type('tool', command => '{$tool}', max_attempts => 1, max_concurrent => 1, options => '{"output": "none", "breaker": {"failures": 2, "pause": "1 hour"}, "events": "all"}')});
query(q{SELECT count(jobq.enqueue('tool')) FROM generate_series(1, 30)});
opened('tool', 1);
is(begun('tool'), '2', 'exactly two tools have begun');
query(q{SELECT jobq.alter_job_type('tool', max_concurrent => 0)});
$since = query('SELECT clock_timestamp()');
pause('tool', 2, '50 ms');
opened('tool', 4);
is(most_at_once('tool', $since), '1', 'one tool at a time probes');
unlink "$tool.broken";
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.jobs WHERE job_type = 'tool' AND status NOT IN ('completed', 'error'))}, 'the rest runs when one succeeds');
is(query(q{SELECT count(*) FROM jobq.events WHERE job_type = 'tool' AND type = 'resumed'}), '1', 'which is an event');

# --- a type that is dropped; a restart of the server ---

api('down');
make_type('gone', '{"failures": 1, "pause": "1 hour"}');
query(q{SELECT jobq.enqueue('gone')});
opened('gone', 1);
query(q{SELECT jobq.drop_job_type('gone', force => true)});
is(query(q{SELECT jobq.health()->'checks' ? 'breakers'}), 'f', 'a dropped type has no breaker');
make_type('gone', '{"failures": 1, "pause": "1 hour"}');
query(q{SELECT jobq.enqueue('gone')});
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.events WHERE job_type = 'gone' AND type = 'paused'}, 'a new type of that name has one of its own');
query(q{SELECT jobq.enqueue('gone', '{"state": "up"}')});
$node->restart;
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.jobs WHERE job_type = 'gone' AND status = 'completed'}, 'a restart of the server closes all');

# --- another extension, with a type of the same id ---

query(q{SELECT jobq.enqueue('gone')});
opened('gone', 3);
my $number = query(q{SELECT id FROM jobq.job_types WHERE name = 'gone' AND dropped_at IS NULL});
query("BEGIN; DROP EXTENSION jobq; CREATE EXTENSION jobq; SELECT setval('jobq.job_type_id_seq', $number, false); COMMIT");
make_type('first', '{"failures": 1, "pause": "1 hour"}');
is(query('SELECT id FROM jobq.job_types'), $number, 'a type of the next extension has the same id');
query(q{SELECT jobq.enqueue('first', '{"state": "up"}')});
wait_for_sql($node, q{SELECT count(*) = 1 FROM jobq.jobs WHERE status = 'completed'}, 'its jobs start');
$node->stop;
done_testing();
