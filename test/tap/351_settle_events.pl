# Events and alerts when processes die and partitions are missing, and their notifications.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();

my $node = jobq_server('events', 'jobq.max_sql_workers = 2', 'restart_after_crash = on', 'jobq.notify_interval = 100ms',
	"jobq.alert_job_type = 'alarm'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE gate (name text);
CREATE FUNCTION waits(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM jobq.set_progress(10), jobq.log_event('before');
  WHILE p ? 'gate' AND NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  IF p ? 'fail' THEN RAISE EXCEPTION 'failed at %', p->>'fail'; END IF;
END $$;
CREATE FUNCTION slow_progress(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 0..24 LOOP
    PERFORM jobq.set_progress(i, jsonb_build_object('i', i)), pg_sleep(0.1);
  END LOOP;
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = 'slow') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
SELECT jobq.create_job_type('all', 'waits(jsonb)', backoff_base => '0', options => '{"events": "all"}');
SELECT jobq.create_job_type('slow', 'slow_progress(jsonb)', options => '{"events": "all"}');
SELECT jobq.create_job_type('alarm', 'waits(jsonb)');
SELECT jobq.create_job_type('plain', 'waits(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('critical', 'waits(jsonb)', max_attempts => 1, critical => true, options => '{"log_fields": ["order", "who", "absent"]}');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '-c', $$
  echo heard >&2; i=0; while [ $i -lt 30 ]; do echo "{\"progress\": $i}" >&3; i=$((i + 1)); sleep 0.1; done
  echo '{"log": "said"}' >&3; [ "$JOBQ_ATTEMPT" = 1 ] && sleep 600; echo 1 $$], backoff_base => '0',
  options => '{"events": "all", "log_stderr": "log", "log_fields": ["order"]}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

sub enqueue
{
	my ($type, $payload) = @_;

	return scalar_of("SELECT jobq.enqueue('$type', '" . ($payload // '{}') . "')");
}

sub story
{
	my ($id) = @_;

	return scalar_of("SELECT string_agg(type || ' ' || attempt, ', ' ORDER BY ts, id) FROM jobq.events WHERE job_id = '$id'");
}

# ---------- progress: visible at once, at most one event a second, the last value kept ----------

my $slow = enqueue('slow');
my $tool = enqueue('tool', '{"order": 7}');
ok($node->poll_query_until('postgres', "SELECT progress > 0 FROM jobq.jobs WHERE id = '$slow' AND status = 'running'"),
	'progress of a handler is visible while it runs');
scalar_of(q{INSERT INTO gate VALUES ('slow')});
wait_status($node, 'postgres', $slow, 'completed');
is(scalar_of("SELECT progress, progress_data->>'i' FROM jobq.jobs WHERE id = '$slow'"), '24|24', 'the last value is kept');
my $close = q{SELECT count(*) BETWEEN 2 AND 100, coalesce(bool_or(ts - before < '0.99 s'), false) FROM
	(SELECT ts, lag(ts) OVER (ORDER BY ts) AS before FROM jobq.events WHERE job_id = '%s' AND type = 'progress') e};
is(scalar_of(sprintf $close, $slow), 't|f', 'its events are a second apart');

# ---------- the server crashes while events of a tool and of a handler wait ----------

my $sql = enqueue('all', '{"gate": "crash"}');
wait_status($node, 'postgres', $sql, 'running');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM jobq.events WHERE job_id = '$tool' AND message = 'said'"),
	'a tool has said something');
is(scalar_of(sprintf $close, $tool), 't|f', 'its events of progress are a second apart, too');
is(scalar_of("SELECT progress FROM jobq.jobs WHERE id = '$tool'"), '29', 'while it runs the last value is seen');
my $offset = -s $node->logfile;
kill 'KILL', jobq_pids($node, 'sql worker');
$node->wait_for_log(qr/reinitializing.*database system is ready to accept connections/s, $offset);
$node->poll_query_until('postgres', 'SELECT true');
scalar_of(q{INSERT INTO gate VALUES ('crash')});
wait_status($node, 'postgres', $sql, 'completed', 'the job runs again');
is(story($sql), 'enqueued 0, started 1, failed 1, retry_scheduled 1, started 2, progress 2, log 2, completed 2',
	'its events have the crash, and nothing uncommitted');
is(scalar_of("SELECT data->>'code' FROM jobq.events WHERE job_id = '$sql' AND type = 'failed'"), 'server_crash', 'with its code');
wait_status($node, 'postgres', $tool, 'completed', 'so does the tool');
like(story($tool), qr/^enqueued 0, claimed 1, started 1, (progress 1, )+log 1, failed 1, retry_scheduled 1, claimed 2, started 2, (progress 2, )+log 2, completed 2$/,
	'with events committed during the run');

# ---------- no partition for now ----------

sub drop_partitions
{
	scalar_of(q{DO $$ DECLARE p regclass; BEGIN
	FOR p IN SELECT partition FROM jobq_internal._partitions('jobq.events') UNION SELECT partition FROM jobq_internal._partitions('jobq.alerts') LOOP
		EXECUTE format('DROP TABLE %s', p);
	END LOOP; END $$});
	return;
}

scalar_of(q{SELECT jobq.pause_job_type('all')});
my $homeless = enqueue('all');
drop_partitions();
scalar_of(q{SELECT jobq.resume_job_type('all')});
wait_status($node, 'postgres', $homeless, 'completed', 'a job without a partition for its events ends');
is(story($homeless), 'started 1, progress 1, log 1, completed 1', 'with all its events');
is(scalar_of("SELECT attempts, runs FROM jobq.jobs WHERE id = '$homeless'"), '1|1', 'uncharged');
drop_partitions();
$homeless = enqueue('all');
is(story($homeless) =~ s/,.*//r, 'enqueued 0', 'enqueue needs none either');
scalar_of(q{SELECT jobq.pause_job_type('plain')});
$homeless = enqueue('plain', '{"fail": "home"}');
drop_partitions();
scalar_of(q{SELECT jobq.resume_job_type('plain')});
wait_status($node, 'postgres', $homeless, 'error', 'so does a dead letter');
is(story($homeless), 'log 1, failed 1, dead 1', 'with its events');
is(scalar_of("SELECT count(*) FROM jobq.alerts WHERE job_id = '$homeless'"), 1, 'and its alert');

# ---------- alerts: the log, the job ----------

$offset = -s $node->logfile;
my $critical = enqueue('critical', '{"fail": "x\\ny", "order": 42, "who": "a\\nb"}');
$node->wait_for_log(qr/WARNING:  job $critical of type "critical" failed for good after 1 attempt\(s\): failed at x\\ny/, $offset);
pass('of a critical job the log warns');
like(slurp_file($node->logfile, $offset), qr/DETAIL:  \{"who": "a\\nb", "order": 42\}|DETAIL:  \{"order": 42, "who": "a\\nb"\}/,
	'with the fields of its payload that it may show, on one line');
my $plain = enqueue('plain', '{"fail": "z"}');
$node->wait_for_log(qr/LOG:  job $plain of type "plain" failed for good/, $offset);
pass('others are named in the log');
ok($node->poll_query_until('postgres', "SELECT count(*) = 2 FROM jobq.jobs j JOIN jobq.alerts a ON a.job_id = j.parent_id
	WHERE j.job_type = 'alarm' AND j.payload = to_jsonb(a) AND j.status = 'completed' AND a.job_id IN ('$critical', '$plain')"),
	'each has a job with the row as payload');
like(slurp_file($node->logfile), qr{jobq exec worker\S* LOG:  job $tool of type "tool": heard}, 'lines of stderr are forwarded');

# ---------- listeners ----------

my $listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN jobq_events; LISTEN jobq_alerts');
my %notified;	# all of each channel
# The number of notifications of a channel since the last call.
sub heard
{
	my $out = $listener->query('SELECT 1');
	my %n = (jobq_events => 0, jobq_alerts => 0);

	$n{$1}++, $notified{$1}++ while $out =~ /Asynchronous notification "(\w+)" received/g;
	return \%n;
}

sub hear_of
{
	my ($channel, $what) = @_;
	my $n = 0;

	for (1 .. 600)
	{
		last if ($n = heard()->{$channel}) > 0;
		scalar_of('SELECT pg_sleep(0.1)');
	}
	return ok($n > 0, $what);
}

enqueue('plain', '{"fail": "a"}');
hear_of('jobq_alerts', 'an alert is notified of');
is(scalar_of('SHOW jobq.notify_events'), 'off', 'events are not, by default');
wait_status($node, 'postgres', enqueue('all'), 'completed');
enqueue('plain', '{"fail": "b"}');
hear_of('jobq_alerts', 'a later alert is');
is($notified{jobq_events}, undef, 'no event was notified before it');
$node->append_conf('postgresql.conf', 'jobq.notify_events = on');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('jobq.notify_events') = 'on'});
# workers read the setting when they next wait
for (1 .. 600)
{
	wait_status($node, 'postgres', enqueue('all'), 'completed', 'a job at level all') if $_ == 1;
	last if heard()->{jobq_events} > 0;
	enqueue('all');
	scalar_of('SELECT pg_sleep(0.1)');
}
$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq.queue)');
scalar_of('SELECT pg_sleep(1)');
heard();
my $began = Time::HiRes::time();
scalar_of(q{SELECT jobq.enqueue('all') FROM generate_series(1, 500)}) for 1 .. 4;
$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq.queue)');
my $notified = heard()->{jobq_events};
my $seconds = Time::HiRes::time() - $began;
ok($notified > 0 && $notified <= $seconds / 0.1 + 2, "some 8000 events are $notified notifications in $seconds s");

# The dispatcher is terminated with pending notifications: the next one sends them.
my $dispatcher = dispatcher($node, 'postgres');
freeze($node, $dispatcher);
scalar_of('SELECT pg_sleep(0.2)');
heard();
enqueue('all', '{"gate": "never"}');
kill 'TERM', $dispatcher;
kill 'CONT', $dispatcher;
wait_dispatcher($node, 'postgres', 'the dispatcher is another one', $dispatcher);
hear_of('jobq_events', 'notifications that the former had not sent are sent');

# A session's NOTIFY waits for a standby and holds its lock: the dispatcher does not wait for it.
scalar_of(q{INSERT INTO gate VALUES ('never')});
$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM jobq.queue)');
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
$node->reload;
$ENV{PGOPTIONS} = '-c synchronous_commit=local';
# A commit before the checkpointer has read the setting does not wait: then try another one.
my ($stuck, $through, $waits) = (undef, 0, 0);
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$stuck //= IPC::Run::start([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'), '-c', q{SET synchronous_commit = on},
			'-c', q{INSERT INTO gate VALUES ('nobody'); NOTIFY elsewhere} ]);
	$waits = scalar_of(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%NOTIFY elsewhere'});
	last if $waits;
	if (scalar_of(q{SELECT count(*) FROM gate WHERE name = 'nobody'}) > $through)
	{
		$stuck->finish;
		($stuck, $through) = (undef, $through + 1);
	}
	select undef, undef, undef, 0.1;
}
is($waits, 1, 'a notification waits for a standby');
heard();
enqueue('all', '{"gate": "standby"}');
wait_status($node, 'postgres', scalar_of(q{SELECT id FROM jobq.jobs WHERE status = 'running' OR status = 'pending' LIMIT 1}), 'running',
	'the dispatcher hands out');
scalar_of(q{INSERT INTO gate VALUES ('standby')});
ok($node->poll_query_until('postgres', q{SELECT jobq.health()->'checks'->'workers'->>'message' LIKE '% at commit for a synchronous standby that is not there%'}),
	'health() says what the workers wait for');
is(scalar_of(q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'healthy', 'and the dispatcher answers');
is(heard()->{jobq_events}, 0, 'it has not notified anybody');
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->reload;
$stuck->finish;
delete $ENV{PGOPTIONS};
hear_of('jobq_events', 'it does when the lock is free');
$listener->quit;

# A rolled-back transaction leaves neither a line nor a row.
$offset = -s $node->logfile;
$node->safe_psql('postgres', q{BEGIN; SELECT jobq.run_inline(jobq.enqueue('critical', '{"fail": "rolled back"}')); ROLLBACK;
	BEGIN; SAVEPOINT a; SELECT jobq.run_inline(jobq.enqueue('critical', '{"fail": "undone"}')); ROLLBACK TO a; COMMIT;
	BEGIN; SELECT jobq.run_inline(jobq.enqueue('critical', '{"fail": "kept"}')); COMMIT});
my $log = slurp_file($node->logfile, $offset);
like($log, qr/WARNING:  job \S+ of type "critical" failed for good after 1 attempt\(s\): failed at kept/, 'a line comes with the commit');
unlike($log, qr/failed at (rolled back|undone)/, 'and not without one');
is(scalar_of(q{SELECT count(*) FROM jobq.alerts WHERE error_msg IN ('failed at rolled back', 'failed at undone')}), 0, 'nor a row');

# A line with characters that the client's encoding lacks: it goes to the
# log, and the commit succeeds.
$offset = -s $node->logfile;
is(scalar_of(qq{SET client_encoding = 'latin1'; BEGIN;
	SELECT jobq.run_inline(jobq.enqueue('critical', convert_from('\\x7b226661696c223a2022e6bca2e5ad97227d', 'utf8')::jsonb)) IS NULL;
	COMMIT; SELECT 'alive'}), "f\nalive", 'an alert in characters that the client lacks');
like(slurp_file($node->logfile, $offset), qr/WARNING:  job \S+ of type "critical" failed for good/, 'is in the log');

$node->stop;
done_testing();
