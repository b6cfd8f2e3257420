# Claims of jobq-web that wait: they hold no connection, and a notification wakes one.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes ();
use WebTest;

my $node = web_node('claim', 'max_connections = 60');
$node->safe_psql('postgres', <<'END');
CREATE ROLE worker LOGIN PASSWORD 'w';
SELECT jobq.create_job_type('a'), jobq.create_job_type('b');
SELECT jobq.grant_access('worker', 'work');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $web = start_web($node);
my %basic = basic('worker', 'w');

# Sends a claim; returns its socket.
sub send_claim
{
	my (%arguments) = @_;
	my $as = delete $arguments{as} // \%basic;
	my $body = encode_json({ lease => '1 min', %arguments });
	my $socket = connect_web($web);

	syswrite($socket, "POST /api/v1/claim HTTP/1.1\r\nHost: a\r\nAuthorization: $as->{Authorization}\r\n"
		  . "Content-Type: application/json\r\nContent-Length: " . length($body) . "\r\n\r\n$body");
	return $socket;
}

# The items of its reply.
sub items_of
{
	my ($socket, $seconds) = @_;
	my ($all) = read_all($socket, $seconds);

	return $all =~ /\r\n\r\n(.*)/s ? decode_json($1)->{items} : [];
}

sub enqueue { return $node->safe_psql('postgres', "SELECT jobq.enqueue('$_[0]')"); }

# A claim that asks for its channels waits for the advisory lock 7.
sub slow_channels
{
	$node->safe_psql('postgres', q{ALTER FUNCTION jobq.channel(text) RENAME TO channel_of;
		CREATE FUNCTION jobq.channel(job_type text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(7); RETURN jobq.channel_of(job_type); END $$;
		GRANT EXECUTE ON FUNCTION jobq.channel(text) TO worker});
	return;
}

my $idle = "SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'worker' AND state = 'idle' AND query LIKE 'LISTEN%'";

# Without a job: at once, or after the wait.
is_deeply(items_of(send_claim(job_types => ['a'])), [], 'a claim without wait');
my $seconds = seconds_of { is_deeply(items_of(send_claim(job_types => ['a'], wait => '1.5 s')), [], 'a claim that waits in vain') };
ok($seconds >= 1.4 && $seconds < 10, 'for its time') or diag $seconds;

# A claim of all types has no channels: it looks each second.
$seconds = seconds_of { is_deeply(items_of(send_claim(wait => '1.5 s')), [], 'a claim of all types waits in vain') };
ok($seconds >= 1.4 && $seconds < 10, 'for its time') or diag $seconds;
my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
my $of_all = send_claim(job_types => undef, wait => '20 s');
wait_for_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'worker' AND state = 'idle' AND query_start > '$before'", 'another one finds no job');
my $of_any = enqueue('a');
is(items_of($of_all)->[0]{id}, $of_any, 'and gets the next one');

# A waiting claim listens; the commit of a job wakes it.
my $socket = send_claim(job_types => ['a'], wait => '20 s');
wait_for_sql($node, $idle, 'a waiting claim listens');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'worker' AND state <> 'idle'", 'and runs no statement');
my $id = enqueue('a');
my $began = Time::HiRes::time();
is(items_of($socket)->[0]{id}, $id, 'it gets the job');
$seconds = Time::HiRes::time() - $began;
ok($seconds < 3, 'soon') or diag $seconds;

# Many wait: each job goes to one of them, and no connection of the pool is held.
my @sockets = map { send_claim(job_types => [ 'a', 'b' ], wait => '20 s') } 1 .. 40;
is(status_of($web, 'POST', '/api/v1/claim', body => { job_types => ['a'] }, headers => {%basic}), 200, '40 waiting claims leave room for another one');
my $connections = $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename = 'worker'");
cmp_ok($connections, '<=', 5, '40 waiting claims use four connections and one that listens');
my %ids = map { enqueue($_ % 2 ? 'a' : 'b') => 1 } 1 .. 40;
my %got;
$got{ $_->{id} }++ foreach map { @{ items_of($_) } } @sockets;
is_deeply(\%got, \%ids, 'each of 40 claims gets one of 40 jobs');

# Claims of several roles: a notification that wakes one whose role does not see the job goes on to
# the others.  Each would look by itself 5 s after it has begun to wait.
$node->safe_psql('postgres', q{CREATE ROLE acme LOGIN PASSWORD 'a'; CREATE ROLE beta LOGIN PASSWORD 'b'; SELECT jobq.create_job_type('d') \g /dev/null
	SELECT jobq.grant_access('acme', 'work', tenant => 'acme'), jobq.grant_access('beta', 'work', tenant => 'beta')});
my @of_acme = map { send_claim(as => { basic('acme', 'a') }, job_types => ['d'], wait => '20 s') } 1 .. 2;
wait_for_sql($node, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'acme' AND state = 'idle' AND query LIKE '%jobq.claim(%'}, 'claims of a role wait');
my $of_beta = send_claim(as => { basic('beta', 'b') }, job_types => ['d'], wait => '4 s');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'beta' AND state = 'idle' AND query LIKE '%jobq.claim(%'}, 'one of another role waits, too');
$id = $node->safe_psql('postgres', q{SELECT jobq.enqueue('d', tenant => 'beta')});
is(items_of($of_beta)->[0]{id}, $id, 'it gets the job that it alone sees');
my @of_both = map { $node->safe_psql('postgres', q{SELECT jobq.enqueue('d', tenant => 'acme')}) } 1 .. 2;
is_deeply([ sort map { $_->{id} } map { @{ items_of($_) } } @of_acme ], [ sort @of_both ], 'the others get theirs');

# A client that has left: the next job is for another one.
$socket = send_claim(job_types => ['a'], wait => '20 s');
wait_for_sql($node, $idle, 'it listens again');
close $socket;
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'", 'its claim has ended, and nothing listens');
$id = enqueue('a');
is(items_of(send_claim(job_types => ['a'], wait => '20 s'))->[0]{id}, $id, 'the job is for another client');

# It leaves while its claim asks for the channels: the claim ends then, and takes no job.
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('c', options => '{"events": "all"}')});
slow_channels();
my $gate = $node->background_psql('postgres');
my $first = send_claim(job_types => ['c'], max_jobs => 1, wait => '20 s');
wait_for_sql($node, $idle, 'a claim listens');
$gate->query_safe('SELECT pg_advisory_lock(7)');
$socket = send_claim(job_types => ['c'], max_jobs => 1, wait => '20 s');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'worker' AND wait_event = 'advisory'}, 'another one asks for its channels');
close $socket;
is(status_of($web, 'GET', '/livez'), 200, 'its client leaves');
$gate->query_safe('SELECT pg_advisory_unlock(7)');
wait_for_sql($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'worker' AND state <> 'idle'}, 'it knows them');
my $last = send_claim(job_types => ['c'], max_jobs => 1, wait => '20 s');
$node->safe_psql('postgres', q{SELECT jobq.enqueue('c'), jobq.enqueue('c')});
is(scalar(@{ items_of($first) }), 1, 'the claim before it gets a job');
is(scalar(@{ items_of($last) }), 1, 'so does the one after it');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.events WHERE job_type = 'c' AND type = 'claimed'"), 2, 'no other claim had them');
$node->safe_psql('postgres', q{DROP FUNCTION jobq.channel(text); ALTER FUNCTION jobq.channel_of(text) RENAME TO channel});

# The client of a claim leaves when all connections of its role are in use: its jobs are given
# back when one is free.
$node->safe_psql('postgres', q{SELECT jobq.grant_access('worker', 'enqueue') \g /dev/null
	CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(8); RETURN NEW; END $$;
	CREATE TRIGGER waits BEFORE INSERT ON jobq.schedules FOR EACH ROW EXECUTE FUNCTION waits()});
$gate->query_safe('SELECT pg_advisory_lock(8)');
$id = enqueue('b');
my $lock = $node->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE jobq.queue IN SHARE MODE');
$socket = send_claim(job_types => ['b']);
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'worker' AND wait_event_type = 'Lock'}, 'a claim waits for the queue');
my @busy;
foreach my $n (1 .. 6)
{
	my $text = encode_json({ name => "s$n", cron => '0 0 1 1 *', job_type => 'a' });

	push @busy, connect_web($web);
	syswrite($busy[-1], "POST /api/v1/schedules HTTP/1.1\r\nHost: a\r\nAuthorization: $basic{Authorization}\r\n"
		  . "Content-Type: application/json\r\nContent-Length: " . length($text) . "\r\n\r\n$text");
}
wait_for_sql($node, q{SELECT count(*) = 3 FROM pg_stat_activity WHERE usename = 'worker' AND wait_event = 'advisory'}, 'other requests of the role use the other connections');
close $socket;
is(status_of($web, 'GET', '/livez'), 200, 'the client of the claim leaves');
$lock->query_safe('COMMIT');
$lock->quit;
wait_for_sql($node, "SELECT status = 'running' FROM jobq.jobs WHERE id = '$id'", 'its claim gets the job');
like((read_all(shift @busy))[0], qr{^HTTP/1.1 504 }, 'the first of the others waits for too long');
$gate->query_safe('SELECT pg_advisory_unlock(8)');
$gate->quit;
like((read_all($_))[0], qr{^HTTP/1.1 \d}, 'a reply') foreach @busy;
wait_for_sql($node, "SELECT status = 'pending' FROM jobq.jobs WHERE id = '$id'", 'and gives it back');
unlike(web_log($web), qr/wait for the end of their leases/, 'no claim was lost');
$node->safe_psql('postgres', "DROP TRIGGER waits ON jobq.schedules; SELECT jobq.cancel_job('$id')");

# The connection that listens is lost: another one takes its place.
$socket = send_claim(job_types => ['b'], wait => '20 s');
wait_for_sql($node, $idle, 'it listens');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker'");
$id = enqueue('b');
is(items_of($socket)->[0]{id}, $id, 'a claim whose connections were lost gets its job');

# Errors of the first statement and of the wait.
is(status_of($web, 'POST', '/api/v1/claim', body => { job_types => ['none'], wait => '5 s' }, headers => {%basic}), 404, 'an unknown type');
is(status_of($web, 'POST', '/api/v1/claim', body => { job_types => ['a'], wait => 'long' }, headers => {%basic}), 400, 'a bad wait');

# The end of jobq-web ends the waits.
$socket = send_claim(job_types => ['a'], wait => '20 s');
wait_for_sql($node, $idle, 'a claim waits');
$seconds = seconds_of { is(stop_web($web), 0, 'jobq-web ends') };
cmp_ok($seconds, '<', 4, 'at once');
like((read_all($socket))[0], qr/^HTTP\/1\.1 200 .*"items":\[\]/s, 'and its claim has an answer');

# So does one that asks for its channels then.
$web = start_web($node);
slow_channels();
$gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(7)');
$socket = send_claim(job_types => ['a'], wait => '20 s');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'worker' AND wait_event = 'advisory'}, 'a claim asks for its channels');
$web->{run}->signal('TERM');
select undef, undef, undef, 0.02 while IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $web->{port});
$gate->query_safe('SELECT pg_advisory_unlock(7)');
$gate->quit;
like((read_all($socket))[0], qr/^HTTP\/1\.1 200 .*"items":\[\]/s, 'and knows them after SIGTERM: it waits no longer');
is(stop_web($web), 0, 'jobq-web ends');
done_testing();
