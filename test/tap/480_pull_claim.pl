# Claims: hand-out by the dispatcher's rules, a claim that is not committed costs
# nothing, limits hold exactly.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('claims', 'max_connections = 40', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail', max_attempts => 3, backoff_base => '0'),
  jobq.create_job_type('five', max_concurrent => 5);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

# ---------- one job ----------

one(q{SELECT jobq.enqueue('mail', '{"n": 1}')});
my $claimed = one(q{SELECT payload->>'n', attempts, max_attempts, lease_token IS NOT NULL, lease_expires_at > now() + '110s',
  deadline > now() + '4min' FROM jobq.claim('{mail}', worker => 'w1')});
is($claimed, '1|1|3|t|t|t', 'a claim returns the job');
is(one(q{SELECT status, attempts, runs, worker, lease_expires_at IS NOT NULL FROM jobq.jobs}), 'running|1|1|w1|t', 'the row says so');
is(one(q{SELECT count(*) FROM jobq.claim('{mail}')}), 0, 'the job is claimed once');
is(one(q{SELECT jobq.complete(id, lease_token, '{"ok": true}') FROM jobq.queue}), 't', 'complete');
is(one(q{SELECT status, attempts, result, worker FROM jobq.jobs}), 'completed|1|{"ok": true}|w1', 'the job is completed');

# ---------- order, several jobs ----------

one(q{SELECT jobq.enqueue('mail', jsonb_build_object('n', n), priority => n % 3) FROM generate_series(1, 300) n});
is(one(q{SELECT count(*), count(DISTINCT id), min(payload->>'n') FROM jobq.claim('{mail}', max_jobs => 2)}), '2|2|2', 'two at once');
is(one(q{SELECT string_agg(payload->>'n', ',') FROM jobq.claim('{mail}', 3)}), '8,11,14', 'in the order of priority and time');
one(q{SELECT jobq.fail(id, lease_token, 'away', retryable => false) FROM jobq.queue WHERE status = 'running'});
is(one(q{SELECT count(*) FROM jobq.dead_letters WHERE error_msg = 'away'}), 5, 'fail without retry makes dead letters');
is(one(q{SELECT count(*), count(DISTINCT id) FROM jobq.claim('{mail}', 1000)}), '50|50', 'no more than jobq.max_concurrent');
one(q{SELECT count(*) FROM (SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM jobq.queue WHERE status = 'running') c});
one(q{ALTER SYSTEM SET jobq.max_concurrent = 1000});
one(q{SELECT pg_reload_conf()});
wait_for_sql($node, q{SELECT current_setting('jobq.max_concurrent') = '1000'}, 'the setting is read');
one(q{SELECT jobq.health()});
is(one(q{SELECT count(*), count(DISTINCT id) FROM jobq.claim('{mail}', 1000)}), '245|245', 'a claim takes several rounds');
is(one(q{SELECT count(*) FROM (SELECT jobq.complete_many(array_agg(id), array_agg(lease_token)) FROM jobq.queue) c}), 245,
	'complete_many ends them all');

# ---------- claims that are not committed ----------

one(q{SELECT jobq.enqueue('mail', '{"n": "back"}')});
my $session = $node->background_psql('postgres', on_error_stop => 0);

sub returns_at_once
{
	my ($how) = @_;

	wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'}, "$how: no open transaction");
	is(one(q{SELECT payload->>'n', attempts FROM jobq.claim('{mail}', wait => '10s')}), 'back|1', "$how: the job is claimed by another one, uncharged");
	one(q{SELECT jobq.snooze_job(id, lease_token) FROM jobq.queue});
	return is(one(q{SELECT status, attempts FROM jobq.jobs WHERE payload->>'n' = 'back'}), 'pending|0', "$how: snoozed, uncharged");
}

is($session->query_safe(q{BEGIN; SELECT payload->>'n' FROM jobq.claim('{mail}')}), 'back', 'claimed in an open transaction');
is(one(q{SELECT count(*) FROM jobq.claim('{mail}')}), 0, 'no other claim gets it');
is(one(q{SELECT status, attempts FROM jobq.jobs WHERE payload->>'n' = 'back'}), 'pending|0', 'and it waits for other sessions');
$session->query_safe('ROLLBACK');
returns_at_once('rollback');
is($session->query_safe(q{BEGIN; SAVEPOINT a; SELECT payload->>'n' FROM jobq.claim('{mail}')}), 'back', 'claimed in a savepoint');
$session->query_safe('ROLLBACK TO a');
is(one(q{SELECT payload->>'n' FROM jobq.claim('{mail}', wait => '10s')}), 'back', 'the rollback of a savepoint gives it back');
$session->query_safe('COMMIT');
one(q{SELECT jobq.snooze_job(id, lease_token) FROM jobq.queue});
$session->query_safe(q{BEGIN; SELECT payload->>'n' FROM jobq.claim('{mail}')});
my $pid = one(q{SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'});
one("SELECT pg_terminate_backend($pid)");
returns_at_once('termination');
eval { $session->quit };

my $client = $node->background_psql('postgres', on_error_stop => 0);
$client->query_safe(q{BEGIN; SELECT payload->>'n' FROM jobq.claim('{mail}')});
$client->{run}->kill_kill;
returns_at_once('kill -9 of the client');

$client = $node->background_psql('postgres', on_error_stop => 0);
$client->query(q{BEGIN; SELECT FROM jobq.claim('{mail}'); PREPARE TRANSACTION 'p'});
like($client->{stderr}, qr/cannot PREPARE a transaction that has claimed jobs/, 'no PREPARE of a claim');
$client->{stderr} = '';
$client->query('ROLLBACK');

# ---------- claim and end in one transaction ----------

is(one(q{BEGIN; SELECT id AS job, lease_token AS token FROM jobq.claim('{mail}', wait => '10s') \gset
SELECT jobq.complete(:'job', :'token'); COMMIT}), 't', 'claim and complete in one transaction');
is(one(q{SELECT count(*) FROM jobq.queue}), 0, 'the job has ended');

# ---------- limits ----------

one(q{SELECT jobq.enqueue('five', '{}') FROM generate_series(1, 400)});
is(one(q{SELECT count(*) FROM jobq.claim('{five}', 1000)}), 5, 'max_concurrent holds within a claim');
is(one(q{SELECT count(*) FROM jobq.claim('{five}')}), 0, 'and for the next one');
is(one(q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.queue WHERE status = 'running'}), 5, 'they end');
is(one(q{SELECT count(*) FROM jobq.claim('{five}', 3, wait => '5s')}), 3, 'a long poll gets the next ones');
one(q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.queue WHERE status = 'running'});
one(q{CREATE TABLE worked (id uuid, n int);
CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
DECLARE j record; running int;
BEGIN
  LOOP
    SELECT * INTO j FROM jobq.claim('{five}', wait => '1s');
    EXIT WHEN NOT FOUND AND NOT EXISTS (SELECT FROM jobq.queue);
    COMMIT;
    CONTINUE WHEN j.id IS NULL;
    SELECT count(*) INTO running FROM jobq.queue WHERE status = 'running';
    INSERT INTO worked VALUES (j.id, running);
    PERFORM pg_sleep(0.01);  -- the work
    PERFORM jobq.complete(j.id, j.lease_token);
    COMMIT;
  END LOOP;
END $$});
my @workers = map { $node->background_psql('postgres') } 1 .. 8;
foreach (@workers)
{
	$_->{stdin} .= "CALL work();\n\\echo done\n";
	$_->{run}->pump_nb;
}
$_->query_until(qr/done/, '') foreach @workers;
is(one(q{SELECT count(*), count(DISTINCT id), max(n) FROM worked}), '392|392|5', '!eight clients: each job once, never more than five at once');
$_->quit foreach @workers;

# ---------- rights ----------

one(q{CREATE ROLE w1 LOGIN; CREATE ROLE w2 LOGIN; CREATE ROLE w3 LOGIN; CREATE ROLE w4 LOGIN;
SELECT jobq.grant_access('w1', 'work', job_types => '{mail}'), jobq.grant_access('w2', 'work', job_types => '{mail}'),
  jobq.grant_access('w3', 'work', job_types => '{five}'), jobq.grant_access('w4', 'work', 'acme', '{mail}'), jobq.enqueue('mail', '{"n": "mine"}')});

# Runs SQL as a role; returns the output, or the SQLSTATE.
sub as
{
	my ($role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ], on_error_stop => 1);

	return $rc == 0 ? $out : $err =~ /ERROR:\s+(\w{5})/ ? $1 : $err;
}
is(as('w3', q{SELECT FROM jobq.claim('{mail}')}), '42501', 'no claim of a type without a grant');
is(as('w3', q{SELECT count(*) FROM jobq.claim(NULL)}), 0, 'NULL leaves it out');
is(as('w4', q{SELECT count(*) FROM jobq.claim('{mail}')}), 0, 'a role of another tenant gets none');
is(as('w1', q{SELECT payload->>'n' FROM jobq.claim(NULL)}), 'mine', 'a role with access "work" claims');
is(as('w1', q{SELECT FROM jobq.jobs}), '42501', 'and sees no other job');
my $fence = one(q{SELECT format('%L, %L', id, lease_token) FROM jobq.queue WHERE payload->>'n' = 'mine'});
is(as('w2', "SELECT jobq.heartbeat($fence)"), 'lost', 'another role cannot use its token');
is(as('w2', "SELECT jobq.complete($fence)"), 'f', 'nor end the job');
is(as('w3', "SELECT jobq.log_event('x', id => i, lease_token => t) FROM (VALUES ($fence)) v(a, b), LATERAL (SELECT a::uuid AS i, b::uuid AS t) c"), '55000',
	'nor write its events');
is(as('w1', "SELECT jobq.complete($fence)"), 't', 'it ends its job');

# ---------- arguments ----------

sqlstate_is($node, 'postgres', @$_) foreach (
	[q{SELECT FROM jobq.claim('{nope}')}, '42704', 'unknown type'],
	[q{SELECT FROM jobq.claim('{}')}, '22023', 'no types'],
	[q{SELECT FROM jobq.claim('{mail}', 0)}, '22003', 'max_jobs 0'],
	[q{SELECT FROM jobq.claim('{mail}', 1001)}, '22003', 'max_jobs 1001'],
	[q{SELECT FROM jobq.claim('{mail}', wait => '21s')}, '22003', 'wait over 20 s'],
	[q{SELECT FROM jobq.claim('{mail}', lease => '2h')}, '22003', 'lease over max_lease'],
	[q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM jobq.claim('{mail}')}, '25001', 'REPEATABLE READ'],
	[q{BEGIN READ ONLY; SELECT FROM jobq.claim('{mail}')}, '25006', 'READ ONLY']);
done_testing();
