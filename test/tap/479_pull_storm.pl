# A storm: clients are killed in every phase of a job, in turn, and the server is restarted twice.
# A third of the jobs wait for others.  Then each job is done, behind those that it waits for, each
# effect is there once, under its token, and no lease is left.
# JOBQ_FULL: 10,000 jobs and 50 clients; else a twentieth of them.
#
# A client is a pgbench of one connection. Its transactions: a claim that waits; then the effect and
# the completion in one. It pauses at random between the steps.

use strict;
use warnings;

use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my ($jobs, $nclients, $turns) = $ENV{JOBQ_FULL} ? (10_000, 50, 250) : (500, 10, 50);
my $portion = $jobs / $turns;

my $seed = seed();
my $node = jobq_server('storm', 'max_connections = 120', 'fsync = off', 'jobq.max_concurrent = 500');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('storm', max_attempts => 1000, backoff => 'fixed', backoff_base => '10ms', options => '{"alert": false, "events": "none"}');
CREATE TABLE effects (id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }

my $script = PostgreSQL::Test::Utils::tempdir() . '/client.sql';
append_to_file($script, <<'END');
\set written random(0, 40)
\set work random(0, 40)
\set open random(0, 40)
BEGIN;
SELECT count(*) AS got, max(id::text) AS id, max(lease_token::text) AS token FROM jobq.claim('{storm}', lease => '2s', wait => '20s') \gset
\sleep :written ms
COMMIT;
\if :got
\sleep :work ms
BEGIN;
INSERT INTO effects VALUES (':id', ':token');
SELECT jobq.complete(':id', ':token')::int AS done \gset
\sleep :open ms
\if :done
COMMIT;
\else
ROLLBACK;
\endif
\endif
END

my @clients;

sub start_client
{
	my ($n) = @_;
	my @command = ('pgbench', '--no-vacuum', '--transactions=1000000', '--random-seed=' . ($seed + $n), "--file=$script", '-h', $node->host,
		'-p', $node->port, 'postgres');

	$clients[$n] = fork;
	return if $clients[$n];
	$ENV{PGAPPNAME} = "client $n";
	open STDIN, '<', '/dev/null';
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	exec @command or POSIX::_exit(1);
}

sub kill_client
{
	my ($n) = @_;

	kill 'KILL', $clients[$n];
	waitpid $clients[$n], 0;
	$clients[$n] = 0;
	return;
}

# Starts the clients that have ended anew.
sub renew
{
	foreach my $n (0 .. $nclients - 1)
	{
		start_client($n) if !$clients[$n] || waitpid($clients[$n], WNOHANG) != 0;
	}
	return;
}

# Each third job waits for one or more of those before it.
sub enqueue
{
	return one(qq{SELECT count(*) FROM jobq.enqueue_jobs((SELECT jsonb_agg('{"job_type": "storm"}'::jsonb
	  || CASE WHEN i % 9 = 0 THEN jsonb_build_object('after', jsonb_build_array(i - 1, i - 3, i / 2)) WHEN i % 3 = 0 THEN jsonb_build_object('after', jsonb_build_array(i - 2)) ELSE '{}' END
	  ORDER BY i) FROM generate_series(1, $_[0]) i))});
}

my %phase = (
	asked => q{state = 'active' AND wait_event_type = 'Extension'},
	written => q{state = 'idle in transaction' AND query LIKE '%jobq.claim(%'},
	work => q{state = 'idle' AND query LIKE 'COMMIT%'},
	open => q{state = 'idle in transaction' AND query LIKE '%jobq.complete(%'});

# Returns a client in that phase, and its server process; nothing if there is none for long.
sub find
{
	my ($phase) = @_;

	foreach (1 .. 200)
	{
		my $found = one("SELECT substr(application_name, 8), pid FROM pg_stat_activity WHERE application_name LIKE 'client %' AND $phase{$phase} ORDER BY random() LIMIT 1");

		return split /\|/, $found if $found ne '';
		next if $phase eq 'asked';
		$jobs++;
		enqueue(1);
	}
	return;
}

my @phases = ('asked', 'handed', 'written', 'work', 'open');
my %killed = map { $_ => 0 } @phases;
my $left = $jobs;
foreach my $turn (1 .. $turns)
{
	my $want = $phases[ $turn % @phases ];

	renew();
	if ($turn == int($turns / 3))
	{
		$node->stop('immediate');
		$node->start;
		next;
	}
	if ($turn == int(2 * $turns / 3))
	{
		$node->restart;
		next;
	}
	my $n = $turn == $turns ? $left : $portion;
	$left -= $n;
	enqueue($n) if $want ne 'handed';
	my ($client, $pid) = find($want eq 'handed' ? 'asked' : $want);
	# A session that stands still is handed a job, and its client is killed then.
	kill 'STOP', $pid if defined $client && $want eq 'handed';
	enqueue($n) if $want eq 'handed';
	one('SELECT jobq.health()') if $want eq 'handed';
	next if !defined $client;
	kill_client($client);
	$killed{$want}++;
	kill 'CONT', $pid if $want eq 'handed';
}
enqueue($left) if $left > 0;
note join ', ', map { "$_ $killed{$_}" } @phases;
cmp_ok($killed{$_}, '>=', $turns / @phases / 3, "clients killed: $_") foreach @phases;
my $until = time + 10 * $PostgreSQL::Test::Utils::timeout_default;
renew() while one('SELECT count(*) FROM jobq.queue') > 0 && time < $until;
is(one('SELECT count(*) FROM jobq.queue'), 0, '!all jobs end');
kill_client($_) foreach 0 .. $nclients - 1;

is(one(q{SELECT count(*), count(DISTINCT id), min(status::text), max(status::text) FROM jobq.jobs}), "$jobs|$jobs|completed|completed", '!each job is done');
is(one(q{SELECT count(*), count(DISTINCT id), count(DISTINCT token) FROM effects}), "$jobs|$jobs|$jobs", '!each effect is there once, under its token');
is(one(q{SELECT count(*) FROM jobq.jobs c, unnest(c.after) a(id) JOIN jobq.jobs p USING (id) WHERE c.started_at < p.completed_at}), 0, '!none begins before those that it waits for have ended');
cmp_ok(one(q{SELECT count(*) FROM jobq.jobs WHERE after IS NOT NULL}), '>', $turns, 'which many do');
wait_for_sql($node, q{SELECT NOT EXISTS (SELECT FROM jobq.dependencies)}, 'no edge is left');
is(one(q{SELECT count(*) FROM effects WHERE id NOT IN (SELECT id FROM jobq.jobs)}), 0, 'of a job');
cmp_ok(one(q{SELECT count(*) FROM jobq.jobs WHERE runs > 1}), '>', 0, 'some ran again');
wait_for_sql($node, q{SELECT (jobq.health() #>> '{checks,workers,claimed}')::int = 0}, 'no lease is left');
is(one(q{SELECT string_agg(DISTINCT status::text, ' ') FROM jobq.jobs WHERE attempts > runs}), '', 'no attempt without a run');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11/, 'no crash');
done_testing();
