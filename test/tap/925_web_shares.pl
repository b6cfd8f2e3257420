# What one client or role may take of jobq-web leaves enough for the others: descriptors, sessions,
# places in the queue for connections to PostgreSQL.

use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('shares');
$node->safe_psql('postgres', <<'END');
CREATE ROLE anna LOGIN PASSWORD 'a';
CREATE ROLE berta LOGIN PASSWORD 'b';
SELECT jobq.grant_access('anna', 'read'), jobq.grant_access('berta', 'read');
END
my %anna = (headers => { basic('anna', 'a') });
my %berta = (headers => { basic('berta', 'b') });

# Connects from another address of the loopback.
sub connect_from
{
	my ($web, $address) = @_;

	return IO::Socket::INET->new(LocalAddr => $address, PeerAddr => '127.0.0.1', PeerPort => $web->{port}, Timeout => 30) // die "connect: $!";
}

sub request_of
{
	my ($path, %headers) = @_;

	return "GET $path HTTP/1.1\r\nHost: a\r\n" . join('', map { "$_: $headers{$_}\r\n" } keys %headers) . "\r\n";
}

# ---------- descriptors ----------

my $dir = PostgreSQL::Test::Utils::tempdir();
my $program = $ENV{JOBQ_WEB} // 'jobq-web';
append_to_file("$dir/few", "#!/bin/sh\nulimit -n 128\nexec $program \"\$@\"\n");
chmod 0755, "$dir/few";
my $web = do { local $ENV{JOBQ_WEB} = "$dir/few"; start_web($node) };
my $first = connect_web($web);
syswrite($first, request_of('/livez'));
sysread($first, my $alive, 4096);
like($alive, qr/^HTTP\/1.1 200/, 'a connection');
my @many = map { connect_from($web, $_) } map { ("127.0.0.$_") x 60 } 2 .. 4;
syswrite($first, request_of('/api/v1/jobs', %{ $anna{headers} }, Connection => 'close'));
like((read_all($first))[0], qr/^HTTP\/1\.1 200/, 'connections leave descriptors for PostgreSQL');
like(web_log($web), qr/the limit of 128 open files allows \d+ connections/, 'the log says how many there may be');
@many = ();
stop_web($web);

# ---------- sessions ----------

$web = start_web($node);

sub sign_in
{
	my ($user, $password) = @_;
	my ($status, undef, $headers) = ask($web, 'POST', '/api/v1/session', body => { user => $user, password => $password });
	my ($cookie) = ($headers->{'set-cookie'} // '') =~ /^([^;]+)/;

	return $status == 200 ? $cookie : die "sign-in: $status";
}
my @cookies = (sign_in('berta', 'b'), map { sign_in('anna', 'a') } 1 .. 32);
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => $cookies[1] }), 200, 'a role has 32 sessions');
push @cookies, sign_in('anna', 'a');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => $cookies[1] }), 200, 'one more does not end that which was used last');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => $cookies[2] }), 401, 'but the one that was not used for longest');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => $cookies[$_] }), 200, 'others stay') foreach 0, 33;

# ---------- large rows ----------

# A page ends after 4 MB: the server does not go on making the rest of 30 MB.
$node->safe_psql('postgres', q{CREATE ROLE clara LOGIN PASSWORD 'c'; SELECT jobq.create_job_type('large'), jobq.grant_access('clara', 'read', tenant => 'l');
	SELECT count(jobq.enqueue('large', jsonb_build_object('x', repeat('x', 900000)), tenant => 'l')) FROM generate_series(1, 35)});
my %clara = (headers => { basic('clara', 'c') });
my $backend = q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE usename = 'clara'};
is(status_of($web, 'GET', '/api/v1/jobs?limit=1', %clara), 200, 'a page of one job');
my $before = $node->safe_psql('postgres', $backend);
my ($status, $page) = ask($web, 'GET', '/api/v1/jobs?limit=200', %clara);
is("$status " . scalar @{ $page->{items} }, '200 5', 'a page of large jobs');
is((ask($web, 'GET', "/api/v1/jobs?limit=1&cursor=$page->{next}", %clara))[0], 200, 'the next one');
my $after = $node->safe_psql('postgres', $backend);
ok($before ne '' && $after ne '' && $before ne $after, 'has another connection') or diag "$before, $after";

# ---------- the queue ----------

my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE jobq.queue IN ACCESS EXCLUSIVE MODE');
my @waiting = map { connect_from($web, "127.0.0.$_") } map { ($_) x 40 } 2 .. 4;
syswrite($_, request_of('/api/v1/jobs', %{ $anna{headers} }, Connection => 'close')) foreach @waiting;
is(status_of($web, 'GET', '/api/v1/openapi.json', %berta), 200, 'many waiting requests of a role leave room for another one');
$locker->query_safe('COMMIT');
$locker->quit;
my %statuses;
$statuses{ /^HTTP\/1\.1 (\d+)/ ? $1 : 'none' }++ foreach map { (read_all($_))[0] } @waiting;
is_deeply([ sort keys %statuses ], [ 200, 503 ], 'they are served, or refused') or diag join ' ', %statuses;

# ---------- bodies ----------

# Declared bodies count before it is known whose they are: a share for each address.
my $large = "POST /api/v1/session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2097152\r\n\r\n{";
my @large = map { connect_from($web, '127.0.0.5') } 1 .. 40;
syswrite($_, $large) foreach @large;
my $refused = '';
vec($refused, fileno($_), 1) = 1 foreach @large;
select($refused, undef, undef, 30);
like((read_all((grep { vec($refused, fileno($_), 1) } @large)[0]))[0], qr{^HTTP/1.1 503 }, 'large bodies of an address beyond its share are refused');
is(sign_in('anna', 'a') ne '', 1, 'those of others are read');
my $other = connect_from($web, '127.0.0.6');
syswrite($other, $large);
is(unpack('b*', do { my $r = ''; vec($r, fileno($other), 1) = 1; select($r, undef, undef, 0.5); $r }) =~ /1/ ? 1 : 0, 0, 'large ones, too');
close $_ foreach @large, $other;

# ---------- a limit of the role's connections ----------

$node->safe_psql('postgres', q{CREATE ROLE dora LOGIN PASSWORD 'd' CONNECTION LIMIT 2; SELECT jobq.grant_access('dora', 'read')});
my %dora = basic('dora', 'd');
is(status_of($web, 'GET', '/api/v1/types', headers => \%dora), 200, 'a role with two connections');
my @asked = map { connect_web($web) } 1 .. 12;
syswrite($_, request_of('/api/v1/jobs', %dora, Connection => 'close')) foreach @asked;
my @answers = map { (read_all($_))[0] } @asked;
is(join("; ", map { /^HTTP\/1\.1 200/ ? () : $_ } @answers), "", "many requests at once are served by those");
is(sign_in('dora', 'd') ne '', 1, 'and a sign-in takes the place of an idle one');

is(stop_web($web), 0, 'it ends');
done_testing();
