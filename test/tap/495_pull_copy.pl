# Copies of a database with claimed jobs (a restored dump, CREATE DATABASE ... TEMPLATE): tokens of
# the original are lost in them, and their jobs run again after adopt(); DROP EXTENSION with a
# claimed job.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('copy', 'fsync = off', "jobq.databases = 'postgres,copy,twin'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('mail', max_attempts => 3, backoff_base => '0'),
  jobq.create_job_type('bound', max_attempts => 3, backoff_base => '0', options => '{"lease_follows_connection": true}');
SELECT jobq.enqueue(t) FROM unnest('{mail,bound}'::text[]) t;
CREATE TABLE held (id uuid, token uuid);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

my $client = $node->background_psql('postgres');
$client->query_safe(q{INSERT INTO held SELECT id, lease_token FROM jobq.claim('{mail,bound}', 2, lease => '30min', wait => '10s')});
my $heartbeats = q{SELECT string_agg(jobq.heartbeat(id, token), ',') FROM held};
my $dump = $node->basedir . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'a dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'pg_restore', '-d', $node->connstr('copy'), $dump ], 'is restored');
is_a_copy('copy', 2);
$node->safe_psql('postgres', 'CREATE DATABASE unserved');
$node->command_ok([ 'pg_restore', '-d', $node->connstr('unserved'), $dump ], 'is restored where no dispatcher runs');
is($node->safe_psql('unserved', $heartbeats), 'lost,lost', 'unserved: tokens of the original are lost, too');
is($node->safe_psql('unserved', q{SELECT string_agg(jobq.complete(id, token)::text, ',') FROM held}), 'false,false', 'unserved: for complete, too');
sqlstate_is($node, 'unserved', q{SELECT FROM jobq.claim('{mail}')}, '55000', 'unserved: no dispatcher answers a claim');
is($node->safe_psql('postgres', $heartbeats), 'ok,ok', 'the leases of the original go on');
$client->quit;

# A template has no other sessions: the job that follows its connection is free again.
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM jobq.jobs WHERE status = 'running'}), 'one job stays claimed');
$node->safe_psql('template1', 'CREATE DATABASE twin TEMPLATE postgres');
$node->safe_psql('postgres', q{DELETE FROM held WHERE id NOT IN (SELECT id FROM jobq.jobs WHERE status = 'running')});
$node->safe_psql('twin', q{DELETE FROM held WHERE id NOT IN (SELECT id FROM jobq.jobs WHERE status = 'running')});
is_a_copy('twin', 1);
is($node->safe_psql('postgres', $heartbeats), 'ok', 'the lease of the original goes on');

my $job = $node->safe_psql('postgres', 'SELECT id, token FROM held');
my ($id, $token) = split /\|/, $job;
$node->safe_psql('postgres', 'DROP EXTENSION jobq CASCADE; CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher of a new extension runs');
is($node->safe_psql('postgres', "SELECT jobq.heartbeat('$id', '$token'), jobq.complete('$id', '$token')"), 'lost|f',
	'a token of the dropped extension is lost');
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('mail'), jobq.enqueue('mail')});
is($node->safe_psql('postgres', q{SELECT count(jobq.complete(id, lease_token)) FROM jobq.claim('{mail}', 2, wait => '10s')}), 1, 'a new job runs');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11/, 'no crash');
done_testing();

# Tests a copy with so many claimed jobs, those of table held.
sub is_a_copy
{
	my ($db, $jobs) = @_;
	my ($lost, $false) = map { join ',', ($_) x $jobs } qw(lost false);
	my $waiting = $node->safe_psql($db, q{SELECT count(*) FROM jobq.jobs WHERE status <> 'running'});

	ok($node->poll_query_until($db, q{SELECT jobq.health()->'checks'->'identity'->>'status' = 'unhealthy'}), "$db: known as a copy");
	is($node->safe_psql($db, $heartbeats), $lost, "$db: tokens of the original are lost");
	is($node->safe_psql($db, q{SELECT string_agg(jobq.complete(id, token)::text, ',') FROM held}), $false, "$db: for complete, too");
	is($node->safe_psql($db, "SELECT count(*) FROM jobq.queue WHERE id IN (SELECT id FROM held) AND attempts = 1 AND started_at IS NOT NULL"),
		$jobs, "$db: nothing has changed");
	$node->safe_psql($db, 'SELECT jobq.adopt()');
	is($node->safe_psql($db, $heartbeats), $lost, "$db: they stay lost after adopt()");
	ok($node->poll_query_until($db, "SELECT count(*) = $jobs FROM jobq.jobs WHERE id IN (SELECT id FROM held) AND status = 'retry' AND error_code = 'lease_expired' AND attempts = 1"),
		"$db: the attempts have ended");
	is($node->safe_psql($db, q{SELECT count(*) FROM jobq.claim(NULL, 9, wait => '10s')}), $jobs + $waiting, "$db: the jobs are claimed again");
	return;
}
