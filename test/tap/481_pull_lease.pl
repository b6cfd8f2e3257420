# Leases: heartbeats, expiry, deadlines, cancels, and what a restart of the dispatcher
# or the server leaves of them.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('leases', 'max_connections = 30', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail', max_attempts => 2, backoff_base => '0', options => '{"events": "all", "alert": false}'),
  jobq.create_job_type('one', max_concurrent => 1, max_attempts => 2, backoff_base => '0', options => '{"alert": false}'),
  jobq.create_job_type('short', timeout => '1s', max_attempts => 1, options => '{"alert": false}');
CREATE TABLE held (name text PRIMARY KEY, id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# Claims a job and keeps its token under a name; returns the checkpoint and the attempt.
sub take
{
	my ($name, $type, $lease) = @_;

	$lease //= '1min';
	return one(<<"END");
SELECT id AS job, lease_token AS token, coalesce(progress_data::text, 'none') || ' ' || attempts AS seen
  FROM jobq.claim('{$type}', lease => '$lease', wait => '10s') \\gset
INSERT INTO held VALUES ('$name', :'job', :'token') ON CONFLICT (name) DO UPDATE SET id = excluded.id, token = excluded.token;
SELECT :'seen';
END
}

sub job { return one("SELECT status, attempts, error_code FROM jobq.jobs JOIN held USING (id) WHERE name = '$_[0]'"); }

sub call
{
	my ($function, $name, $more) = @_;

	return one("SELECT jobq.$function(id, token" . ($more // '') . ") FROM held WHERE name = '$name'");
}

# ---------- heartbeat, checkpoint, expiry ----------

one(q{SELECT jobq.enqueue('mail')});
is(take('a', 'mail', '4s'), 'none 1', 'claimed with a lease of 4 s');
is(call('heartbeat', 'a', q{, 40, '{"page": 7}'}), 'ok', 'heartbeat');
is(one(q{SELECT progress, progress_data FROM jobq.jobs}), '40|{"page": 7}', 'its progress is seen');
for (1 .. 6)
{
	one('SELECT pg_sleep(0.8)');
	is(call('heartbeat', 'a'), 'ok', 'the lease is renewed');
}
is(job('a'), 'running|1|', 'the job runs on beyond its first lease');
one(q{INSERT INTO held SELECT 'former', id, token FROM held});
wait_for_sql($node, q{SELECT error_code = 'lease_expired' FROM jobq.jobs}, 'without heartbeats the lease expires');
is(call('heartbeat', 'former'), 'lost', 'its token is not valid any more');
is(call('complete', 'former'), 'f', 'complete: lost');
is(call('fail', 'former', q{, 'x'}), 'lost', 'fail: lost');
is(take('a', 'mail', '1s'), '{"page": 7} 2', 'the next attempt gets the checkpoint');
is(call('heartbeat', 'former'), 'lost', 'the former token is not that of the next attempt');
wait_for_sql($node, q{SELECT status = 'error' FROM jobq.jobs}, 'the last attempt expires');
is(job('a'), 'error|2|lease_expired', 'a dead letter');
is(one(q{SELECT progress_data FROM jobq.dead_letters}), '{"page": 7}', 'which keeps the checkpoint');
is(one(q{SELECT string_agg(type, ' ' ORDER BY ts, id) FROM jobq.events WHERE type NOT IN ('heartbeat', 'enqueued')}),
	'claimed progress failed retry_scheduled claimed failed dead', 'the timeline');
is(one(q{SELECT jobq.retry_dead_letters('mail')}), 1, 'it is retried');
is(take('a', 'mail', '1h'), '{"page": 7} 1', 'also then it gets the checkpoint');
is(call('fail', 'a', q{, 'x', retryable => false}), 'error', 'and is a dead letter again');
is(one(q{SELECT jobq.rerun_job(id) IS NOT NULL FROM jobq.dead_letters}), 't', 'a new job does the same work');
is(take('a', 'mail', '1h'), 'none 1', 'from the start');
is(call('complete', 'a'), 't', 'and is done');

# ---------- the limit counts a lease until it is settled ----------

one(q{SELECT jobq.enqueue('one') FROM generate_series(1, 2)});
take('b', 'one', '5s');
is(one(q{SELECT count(*) FROM jobq.claim('{one}')}), 0, 'max_concurrent 1');
is(take('c', 'one'), 'none 1', 'the expired lease frees the limit');
isnt(one(q{SELECT id FROM held WHERE name = 'c'}), one(q{SELECT id FROM held WHERE name = 'b'}), 'for the other job');

# ---------- deadline ----------

one(q{SELECT jobq.enqueue('short')});
take('d', 'short');
wait_for_sql($node, q{SELECT jobq.heartbeat(id, token) <> 'ok' FROM held WHERE name = 'd'}, 'heartbeats do not move the deadline');
wait_for_sql($node, q{SELECT status = 'error' FROM jobq.jobs WHERE job_type = 'short'}, 'the attempt ends');
is(one(q{SELECT error_code, error_msg FROM jobq.jobs WHERE job_type = 'short'}), 'timeout|timeout after 00:00:01', 'timeout');

# ---------- cancel ----------

is(one(q{SELECT jobq.cancel_job(id, 'not wanted') FROM held WHERE name = 'c'}), 't', 'cancel of a claimed job');
is(job('c'), 'running|1|', 'it runs until its worker stops');
is(call('heartbeat', 'c'), 'cancel', 'heartbeat says so');
is(call('fail', 'c', q{, 'stopped'}), 'error', 'the worker stops');
is(one(q{SELECT status, error_msg FROM jobq.jobs JOIN held USING (id) WHERE name = 'c'}), 'cancelled|not wanted', 'cancelled');
take('e', 'one', '1s');
one(q{SELECT jobq.cancel_job(id, 'late') FROM held WHERE name = 'e'});
wait_for_sql($node, q{SELECT status = 'cancelled' FROM jobq.jobs JOIN held USING (id) WHERE name = 'e'}, 'an expired lease with a cancel: cancelled');

# ---------- dispatcher and server ----------

one(q{SELECT jobq.enqueue('one') FROM generate_series(1, 2)});
take('f', 'one');
restart_dispatcher($node);
is(one(q{SELECT count(*) FROM jobq.claim('{one}', wait => '1s')}), 0, 'it counts the lease');
is(call('heartbeat', 'f'), 'ok', 'the lease goes on');
$node->restart;
is(one(q{SELECT jobq.drain('100ms')}), 'f', 'drain knows of it after a restart, before the dispatcher runs');
one('SELECT jobq.start_all()');
wait_dispatcher($node, 'postgres', 'the dispatcher runs after the restart');
is(one(q{SELECT count(*) FROM jobq.claim('{one}', wait => '1s')}), 0, 'the lease is counted after a restart');
is(call('heartbeat', 'f'), 'ok', 'and goes on');
is(call('complete', 'f', q{, '{"done": 1}'}), 't', 'and ends');
is(job('f'), 'completed|1|', 'completed');
is(take('g', 'one', '1s'), 'none 1', 'the next one is claimed');
$node->restart;
wait_for_sql($node, q{SELECT status = 'retry' OR error_code = 'lease_expired' FROM jobq.jobs JOIN held USING (id) WHERE name = 'g'},
	'a lease that ended while the server was down expires');

# ---------- crash of the server ----------

is(take('g', 'one'), 'none 2', 'claimed again');
$node->stop('immediate');
$node->start;
wait_dispatcher($node, 'postgres', 'the dispatcher runs after the crash');
is(call('heartbeat', 'g'), 'ok', 'a committed claim survives a crash');

# ---------- stop_all and pause ----------

one(q{SELECT jobq.enqueue('mail')});
one(q{SELECT jobq.stop_all('test')});
is(one(q{SELECT count(*) FROM jobq.claim('{mail}', wait => '1s')}), 0, 'stop_all: nothing is handed out');
is(call('complete', 'g'), 't', 'what is claimed ends');
one(q{SELECT jobq.start_all()});
one(q{SELECT jobq.pause_job_type('mail')});
is(one(q{SELECT count(*) FROM jobq.claim('{mail}', wait => '1s')}), 0, 'pause: nothing is handed out');
one(q{SELECT jobq.resume_job_type('mail')});
is(take('h', 'mail'), 'none 1', 'resumed');

# ---------- complete and the client's own writes are one ----------

one(q{CREATE TABLE effect (n int)});
one(q{BEGIN; INSERT INTO effect VALUES (1); SELECT jobq.complete(id, token) FROM held WHERE name = 'h'; ROLLBACK});
is(job('h'), 'running|1|', 'rolled back, the job runs on');
is(call('heartbeat', 'h'), 'ok', 'with its lease');
one(q{BEGIN; INSERT INTO effect VALUES (1); SELECT jobq.complete(id, token) FROM held WHERE name = 'h'; COMMIT});
is(job('h') . one('SELECT count(*) FROM effect'), 'completed|1|1', 'committed together');

# ---------- results ----------

one(q{SELECT jobq.enqueue('mail')});
take('i', 'mail');
sqlstate_is($node, 'postgres', q{SELECT jobq.complete(id, token, to_jsonb(repeat('x', 1100000))) FROM held WHERE name = 'i'}, '54000', 'a result that is too large');
is(call('complete', 'i'), 't', 'nothing is lost by it');

# ---------- options.stall ----------

one(q{SELECT jobq.create_job_type('silent', max_attempts => 1, options => '{"stall": "4s", "alert": false}')});
one(q{SELECT jobq.enqueue('silent') FROM generate_series(1, 2)});
take('s', 'silent');
take('t', 'silent', '4s');
for (1 .. 6)
{
	one('SELECT pg_sleep(0.8)');
	call('heartbeat', 's');
	call('heartbeat', 't');
}
is(job('s'), 'running|1|', 'heartbeats keep a job from being stalled');
wait_for_sql($node, q{SELECT error_code IS NOT NULL FROM jobq.jobs JOIN held USING (id) WHERE name = 's'}, 'without them it ends before its lease');
is(one(q{SELECT error_code, error_msg FROM jobq.jobs JOIN held USING (id) WHERE name = 's'}), 'stalled|stalled: no heartbeat for 00:00:04', 'as stalled');
wait_for_sql($node, q{SELECT error_code = 'lease_expired' FROM jobq.jobs JOIN held USING (id) WHERE name = 't'}, 'a lease that is no longer than that expires');

# ---------- drain and health ----------

one(q{SELECT jobq.complete(id, lease_token) FROM jobq.queue WHERE status = 'running'});
one(q{SELECT jobq.enqueue('mail')});
take('d', 'mail', '10min');
is(one(q{SELECT h->>'status', h->>'claimed' FROM CAST(jobq.health()->'checks'->'workers' AS jsonb) h}), 'healthy|1', 'health counts the claimed job');
is(one(q{SELECT jobq.drain('0')}), 'f', 'jobq.drain: a claimed job runs');
my $drain = $node->background_psql('postgres', on_error_stop => 0);
$drain->{stdin} .= "SELECT 'drained ' || jobq.drain('60s');\n";
$drain->{run}->pump_nb;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%jobq.drain%' AND state = 'active' AND pid <> pg_backend_pid()}, 'jobq.drain waits for it');
call('complete', 'd');
like($drain->query_until(qr/drained \w+/, ''), qr/drained true/, 'until it is completed');
$drain->quit;
one('SELECT jobq.start_all()');
done_testing();
