# jobq-web and a server that stops, restarts, hangs or fails over: never an empty answer, sessions
# stay, and it is back soon.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();
use WebTest;

my $node = web_node('lost', "wal_level = replica");
$node->safe_psql('postgres', <<'END');
CREATE ROLE anna LOGIN PASSWORD 'a';
SELECT jobq.create_job_type('t');
SELECT jobq.grant_access('anna', 'admin'), jobq.grant_access('anna', 'enqueue');
CREATE FUNCTION slow(tenant text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN false; END $$;
GRANT EXECUTE ON FUNCTION slow TO anna;
END
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;

my $dsn = sprintf 'host=%s,%s port=%s,%s dbname=postgres target_session_attrs=read-write', $node->host, $standby->host, $node->port, $standby->port;
my $web = start_web($node, dsn => $dsn);
my ($status, $body, $headers) = ask($web, 'POST', '/api/v1/session', body => { user => 'anna', password => 'a' });
my ($cookie) = $headers->{'set-cookie'} =~ /^([^;]+)/;
my %session = (headers => { Cookie => $cookie });
my %change = (headers => { basic('anna', 'a') }, body => { job_type => 't' });

is(status_of($web, 'GET', '/api/v1/jobs', %session), 200, 'a request');

# Idle connections that have gone are not noticed by the client.
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'anna'");
is(status_of($web, 'GET', '/api/v1/jobs', %session), 200, 'one after its connections were ended');
is(status_of($web, 'POST', '/api/v1/jobs', %change), 200, 'and a change');

# Seconds until a request succeeds; all others say 503.
sub back_after
{
	my $began = Time::HiRes::time();
	my %statuses;

	for (;;)
	{
		my ($found) = ask($web, 'GET', '/api/v1/jobs', %session);

		$statuses{$found}++;
		last if $found == 200 || Time::HiRes::time() - $began > 60;
		select undef, undef, undef, 0.05;
	}
	return (Time::HiRes::time() - $began, join ' ', sort keys %statuses);
}

$node->stop('immediate');
$standby->stop('immediate');
($status, $body, $headers) = ask($web, 'GET', '/api/v1/jobs', %session);
is($status, 503, 'without a server');
is($headers->{'retry-after'}, 1, 'try again later');
like($body->{detail}, qr/stale/, 'what was shown is stale');
unlike($body->{detail} . web_log($web), qr/password/, 'no password is told');
is(status_of($web, 'POST', '/api/v1/session', body => { user => 'anna', password => 'a' }), 503, 'a sign-in') for 1 .. 7;
is(status_of($web, 'GET', '/livez'), 200, 'livez says that jobq-web lives');

$node->start;
$standby->start;
my ($seconds, $statuses) = back_after();
cmp_ok($seconds, '<', 2, 'it is back within 2 s');
like($statuses, qr/^200( 503)?$/, 'and the session is the same');
is(status_of($web, 'POST', '/api/v1/session', body => { user => 'anna', password => 'a' }), 200, 'sign-ins that failed without a server are not counted');

# A failover: the standby is promoted.
$node->wait_for_catchup($standby);
$node->stop('immediate');
is(status_of($web, 'POST', '/api/v1/jobs', %change), 503, 'no change while only a standby is there');
$standby->promote;
($seconds, $statuses) = back_after();
cmp_ok($seconds, '<', 2, 'it is back within 2 s of the promotion');
like($statuses, qr/^200( 503)?$/, 'with the session');
is(status_of($web, 'POST', '/api/v1/jobs', %change), 200, 'and changes');

# A statement that takes too long.
$standby->safe_psql('postgres', "SELECT jobq.set_tenant_check('slow(text)')");
$standby->safe_psql('postgres', "CREATE ROLE eve LOGIN PASSWORD 'e'; SELECT jobq.grant_access('eve', 'read', tenant => 'x'); GRANT EXECUTE ON FUNCTION slow TO eve;
	SELECT jobq.enqueue('t', tenant => 'y')");
($status, $body) = ask($web, 'GET', '/api/v1/jobs', headers => { basic('eve', 'e') });
is("$status $body->{sqlstate}", '504 57014', 'a statement over 5 s');
my $locker = $standby->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.limits');
($status, $body) = ask($web, 'GET', '/api/v1/limits', headers => { basic('anna', 'a') });
is("$status $body->{sqlstate}", '504 55P03', 'one that waits for a lock');
$locker->quit;

# A server that hangs: the request ends, and does not hold others up for ever.
my @pids = split /\n/, $standby->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE usename = 'anna'");
kill 'STOP', @pids;
$seconds = seconds_of { is(status_of($web, 'POST', '/api/v1/jobs', %change), 503, 'a change on a hung connection') };
cmp_ok($seconds, '<', 20, 'ends');
kill 'CONT', @pids;

stop_web($web);
done_testing();
