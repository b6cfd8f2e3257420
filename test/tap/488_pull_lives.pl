# Random lives of pulled jobs: clients call at random beside cancels, pauses, retries, kills and
# leases that run out.  Then each job has ended once, each token has at most one end, attempts are
# charged as the calls say, and no limit counts a job.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes 'time';

my $seed = seed();
my $seconds = 20;

my $node = jobq_server('lives', 'max_connections = 40', 'fsync = off', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.set_limit('shared', max_concurrent => 12),
  jobq.create_job_type('life', max_concurrent => 8, max_attempts => 4, backoff_base => '0', options => '{"events": "all", "alert": false, "limits": ["shared"]}'),
  jobq.create_job_type('key', max_attempts => 4, backoff_base => '0', options => '{"events": "all", "alert": false, "limits": ["shared"]}');
-- What the clients know: one row for each claim that was committed, with the answer to its end.
CREATE TABLE claims (token uuid PRIMARY KEY, id uuid, attempts int, client int, ended text);
CREATE TABLE effects (token uuid, id uuid);
CREATE TABLE ids (id uuid PRIMARY KEY);
CREATE TABLE retried (id uuid);
CREATE PROCEDURE enqueue_some(n int) LANGUAGE sql AS $$
  INSERT INTO ids SELECT jobq.enqueue(CASE i % 3 WHEN 0 THEN 'key' ELSE 'life' END, concurrency_key => CASE i % 3 WHEN 0 THEN 'k' || i % 2 END, priority => i % 4)
    FROM generate_series(1, n) i
$$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

one('CALL enqueue_some(150)');
my $nclients = 6;
my @clients;
my $sessions = 0;
renew($_) foreach 0 .. $nclients - 1;
my %did;

sub one_of { return $_[rand @_]; }

# Rows at random, in the order of ids: two statements lock jobs in the same order.
sub some
{
	my ($columns, $from, $n) = @_;

	return "(SELECT * FROM (SELECT $columns FROM $from ORDER BY random() LIMIT $n) s ORDER BY id)";
}

# Claims of the client that have no end yet; their ends are one statement with their effects.
sub mine { return some('token, id', "claims WHERE client = $_[0] AND ended IS NULL", 1 + int rand 3); }

sub ends
{
	my ($n, $call) = @_;

	return "WITH m AS MATERIALIZED " . mine($n) . ", e AS MATERIALIZED (SELECT token, id, ($call)::text AS answer FROM m),
  f AS (INSERT INTO effects SELECT token, id FROM e WHERE answer NOT IN ('false', 'lost'))
  UPDATE claims c SET ended = e.answer FROM e WHERE c.token = e.token";
}

my %step = (
	claim => sub {
		my $lease = one_of('1s', '2s', '1min');
		return "INSERT INTO claims SELECT lease_token, id, attempts, $_[0] FROM jobq.claim('{life,key}', " . (1 + int rand 4) . ", lease => '$lease')";
	},
	wait => sub { return "INSERT INTO claims SELECT lease_token, id, attempts, $_[0] FROM jobq.claim(NULL, 2, lease => '5s', wait => '0.2s')" },
	undone => sub { return "BEGIN; SELECT count(*) FROM jobq.claim(NULL, 5); ROLLBACK" },
	heartbeat => sub { return 'SELECT jobq.heartbeat(id, token, 10) FROM ' . mine($_[0]) . ' m' },
	complete => sub { return ends($_[0], q{jobq.complete(id, token, '1')}) },
	rolled_back => sub { return 'BEGIN; ' . ends($_[0], q{jobq.complete(id, token)}) . '; ROLLBACK' },
	fail => sub { return ends($_[0], q{jobq.fail(id, token, 'x')}) },
	dead => sub { return ends($_[0], q{jobq.fail(id, token, 'x', retryable => false)}) },
	snooze => sub { return ends($_[0], q{jobq.snooze_job(id, token)}) },
	skip => sub { return ends($_[0], q{jobq.skip_job(id, token)}) },
	replay => sub { return "DO \$\$ BEGIN IF (SELECT bool_or(jobq.complete(id, token)) FROM claims WHERE ended IS NOT NULL) THEN RAISE 'replayed'; END IF; END \$\$" },
	cancel => sub { return 'SELECT jobq.cancel_job(id) FROM ' . some('id', 'ids', 2) . ' i' },
	retry => sub { return 'INSERT INTO retried SELECT id FROM ' . some('id', 'jobq.dead_letters', 2) . ' i WHERE jobq.retry_job(id)' },
	pause => sub { return "SELECT jobq.pause_job_type('life'); SELECT jobq.resume_job_type('life')" });
my @dice = (('claim') x 6, ('wait') x 2, 'undone', ('heartbeat') x 2, ('complete') x 5, 'rolled_back', ('fail') x 2, 'dead', ('snooze') x 2, 'skip',
	'replay', 'cancel', 'retry', 'pause', 'kill', 'terminate');

# Begins a session of the client.
sub renew
{
	my ($n) = @_;

	$clients[$n] = $node->background_psql('postgres', on_error_stop => 0);
	$clients[$n]->query(setseed($seed, ++$sessions));
	return $clients[$n];
}

# Ends a client that has an open claim, from outside.
sub lose
{
	my ($n, $how) = @_;
	my ($pid) = $clients[$n]->query('SELECT pg_backend_pid()') =~ /(\d+)/;

	$clients[$n]->{stdin} .= "BEGIN; SELECT count(*) AS open FROM jobq.claim(NULL, 3); SELECT 'claimed';\n";
	$clients[$n]->{run}->pump_nb;
	$clients[$n]->query_until(qr/claimed/, '') if rand() < 0.5;
	if ($how eq 'kill')
	{
		$clients[$n]->{run}->kill_kill;
	}
	else
	{
		one("SELECT pg_terminate_backend($pid)");
		eval { $clients[$n]->quit };
	}
	return renew($n);
}

my $until = time + $seconds;
my @busy = (0) x $nclients;
my $call = 0;
while (time < $until)
{
	foreach my $n (0 .. $nclients - 1)
	{
		my $what = one_of(@dice);

		$clients[$n]->query_until(qr/over $busy[$n]\b/, '') if $busy[$n];
		$busy[$n] = 0;
		$did{$what}++;
		if ($what eq 'kill' || $what eq 'terminate')
		{
			lose($n, $what);
			next;
		}
		$busy[$n] = ++$call;
		$clients[$n]->{stdin} .= $step{$what}->($n) . ";\n\\echo over $busy[$n]\n";
		$clients[$n]->{run}->pump_nb;
	}
	one('CALL enqueue_some(6)');
}
$clients[$_]->query_until(qr/over $busy[$_]\b/, '') foreach grep { $busy[$_] } 0 .. $nclients - 1;
note join ', ', map { "$_ $did{$_}" } sort keys %did;
cmp_ok($call, '>', 100, "$call calls");
eval { $_->quit } foreach @clients;

# ---------- all of them end ----------

one(q{CREATE PROCEDURE drain() LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    INSERT INTO claims SELECT lease_token, id, attempts, -1 FROM jobq.claim(NULL, 100);
    COMMIT;
    WITH e AS MATERIALIZED (SELECT token, id, jobq.complete(id, token)::text AS answer FROM claims WHERE client = -1 AND ended IS NULL),
      f AS (INSERT INTO effects SELECT token, id FROM e WHERE answer = 'true')
      UPDATE claims c SET ended = e.answer FROM e WHERE c.token = e.token;
    COMMIT;
    -- leases of clients that are gone
    WITH e AS MATERIALIZED (SELECT token, id, jobq.fail(id, token, 'x') AS answer FROM claims WHERE client >= 0 AND ended IS NULL),
      f AS (INSERT INTO effects SELECT token, id FROM e WHERE answer <> 'lost')
      UPDATE claims c SET ended = e.answer FROM e WHERE c.token = e.token;
    COMMIT;
    EXIT WHEN NOT EXISTS (SELECT FROM jobq.queue);
  END LOOP;
END $$});
one('CALL drain()');
is(one('SELECT count(*) FROM jobq.queue'), 0, 'no job is left');
is(one(q{SELECT count(*) FROM (SELECT id FROM ids EXCEPT SELECT id FROM jobq.jobs) x}), 0, '!no job is lost');
is(one(q{SELECT count(*) FROM (SELECT id FROM jobq.jobs GROUP BY id HAVING count(*) > 1) x}), 0, 'each job has one row');
is(one(q{SELECT count(*) FROM (SELECT token FROM effects GROUP BY token HAVING count(*) > 1) x}), 0, 'at most one end with each token');
is(one(q{SELECT count(*) FROM effects e JOIN claims c USING (token) WHERE c.ended IN ('false', 'lost')}), 0, '!none with a token that was lost');
is(one(q{SELECT count(*) FROM jobq.jobs WHERE status = 'completed' AND id NOT IN (SELECT id FROM effects)}), 0, 'each completed job has its effect');
is(one(q{SELECT count(*) FROM jobq.jobs WHERE status NOT IN ('completed', 'skipped', 'cancelled', 'error')}), 0, 'each job has ended');
is(one(q{SELECT count(*) FROM jobq.jobs j WHERE runs <> (SELECT count(*) FROM claims c WHERE c.id = j.id)}), 0, 'runs are the committed claims');
is(one(q{SELECT count(*) FROM jobq.jobs j WHERE runs <> (SELECT count(*) FROM jobq.events e WHERE e.job_id = j.id AND e.type = 'claimed')}), 0, 'and the events "claimed"');
is(one(q{SELECT count(*) FROM jobq.jobs j WHERE id NOT IN (SELECT id FROM retried)
  AND attempts <> runs - (SELECT count(*) FROM jobq.events e WHERE e.job_id = j.id AND e.type = 'snoozed')}), 0, 'attempts are the claims without the snoozed ones');
is(one(q{SELECT count(*) FROM jobq.jobs WHERE attempts > max_attempts}), 0, 'never more than max_attempts');
is(one(q{SELECT count(*) FROM jobq.jobs j WHERE (SELECT count(*) FROM jobq.events e WHERE e.job_id = j.id AND e.type IN ('completed', 'skipped', 'cancelled', 'dead'))
  <> 1 + (SELECT count(*) FROM retried r WHERE r.id = j.id)}), 0, 'one end for each life');
is(one(q{SELECT count(*) FROM jobq.events WHERE type = 'claimed'}), one('SELECT count(*) FROM claims'), 'each claim is known to its client');

unlike(slurp_file($node->logfile), qr/ERROR:  replayed/, 'no token is used again');

# ---------- counters ----------

one('CALL enqueue_some(60)');
is(one(q{SELECT count(*) FROM jobq.claim('{life}', 100, lease => '1s')}), 8, 'max_concurrent counts from zero');
is(one(q{SELECT count(*) FROM jobq.claim('{key}', 100, lease => '1s')}), 2, 'so do concurrency keys');
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue WHERE status = 'running'}, 'their leases run out');
one('SELECT jobq.health()') foreach 1 .. 2;	# the dispatcher knows it
is(one(q{SELECT count(*) FROM jobq.claim(NULL, 100)}), 10, 'and leave nothing behind');
done_testing();
