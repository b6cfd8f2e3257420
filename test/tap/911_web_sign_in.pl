# Sign-in of jobq-web: sessions, Basic, wrong passwords, requests of other sites, roles of a proxy.

use strict;
use warnings;

use ClockTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('sign_in');
$node->safe_psql('postgres', <<'END');
CREATE ROLE anna LOGIN PASSWORD 'secret: "1"';
CREATE ROLE trusted LOGIN PASSWORD 'x';
CREATE ROLE proxied LOGIN PASSWORD 'of the proxy';
SELECT jobq.create_job_type('t');
SELECT jobq.grant_access('anna', 'admin');
SELECT jobq.grant_access('anna', 'enqueue', job_types => '{t}');
SELECT jobq.grant_access('proxied', 'read', tenant => 'nobody');
CREATE FUNCTION tenants_of_user(tenant text) RETURNS boolean LANGUAGE sql STABLE AS
  $$ SELECT session_user = 'proxied' AND tenant = current_setting('jobq.web_user', true) $$;
GRANT EXECUTE ON FUNCTION tenants_of_user TO proxied;
SELECT jobq.set_tenant_check('tenants_of_user(text)');
SELECT jobq.enqueue('t', tenant => 'bob'), jobq.enqueue('t', tenant => 'eve');
END
my $web = start_web($node);
my $origin = "http://127.0.0.1:$web->{port}";
my $password = 'secret: "1"';

# ---------- a session ----------

my ($status, $body, $headers) = ask($web, 'POST', '/api/v1/session', body => { user => 'anna', password => $password },
	headers => { Origin => $origin });
is($status, 200, 'a sign-in');
is($body->{user}, 'anna', 'names the role');
is_deeply([ map { $body->{can}{$_} ? 1 : 0 } qw(read enqueue work admin) ], [ 1, 1, 0, 1 ], 'and its rights');
my $csrf = $body->{csrf};
like($csrf, qr/^[\w-]{43}$/, 'and has a token');
my ($cookie) = $headers->{'set-cookie'} =~ /^(__Host-jobq=[\w-]{43}); Path=\/; Secure; HttpOnly; SameSite=Strict$/;
ok($cookie, 'and a cookie') or diag $headers->{'set-cookie'};
my %session = (Cookie => $cookie);

($status, $body) = ask($web, 'GET', '/api/v1/session', headers => {%session});
is($status, 200, 'the session is known');
is($body->{csrf}, $csrf, 'with its token');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => "a=b; $cookie; c=d" }), 200, 'among other cookies');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => substr($cookie, 0, -1) }), 401, 'a shorter cookie is none');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => $cookie . 'x' }), 401, 'nor is a longer one');

# ---------- what another site may send ----------

my %job = (body => { job_type => 't' });
my %good = (%session, Origin => $origin, 'X-Csrf-Token' => $csrf);
my @matrix = (
	[ 'cookie, Origin and token', {%good}, 200 ],
	[ 'no Origin', { %good, Origin => undef }, 403 ],
	[ 'another Origin', { %good, Origin => 'http://evil.example' }, 403 ],
	[ 'Origin null', { %good, Origin => 'null' }, 403 ],
	[ 'Origin with another port', { %good, Origin => 'http://127.0.0.1:1' }, 403 ],
	[ 'an Origin that begins with ours', { %good, Origin => "$origin.evil.example" }, 403 ],
	[ 'no token', { %good, 'X-Csrf-Token' => undef }, 403 ],
	[ 'another token', { %good, 'X-Csrf-Token' => 'x' x 43 }, 403 ],
	[ 'a form', { %good, 'Content-Type' => 'application/x-www-form-urlencoded' }, 415 ],
	[ 'text', { %good, 'Content-Type' => 'text/plain' }, 415 ],
	[ 'JSON with a charset', { %good, 'Content-Type' => 'application/json; charset=utf-8' }, 200 ],
	[ 'Basic without Origin', { basic('anna', $password) }, 200 ],
	[ 'Basic with our Origin', { basic('anna', $password), Origin => $origin }, 200 ],
	[ 'Basic with another Origin', { basic('anna', $password), Origin => 'http://evil.example' }, 403 ],
	[ 'Basic in a form', { basic('anna', $password), 'Content-Type' => 'text/plain' }, 415 ],
);
foreach (@matrix)
{
	my ($what, $sent, $expected) = @$_;

	delete $sent->{$_} foreach grep { !defined $sent->{$_} } keys %$sent;
	is(status_of($web, 'POST', '/api/v1/jobs', %job, headers => $sent), $expected, "$what: $expected");
}
is(status_of($web, 'POST', '/api/v1/session', body => { user => 'anna', password => $password },
		headers => { Origin => 'http://evil.example' }), 403, 'another site can not sign in');
is(status_of($web, 'DELETE', '/api/v1/session', headers => {%session}), 403, 'nor sign out');

($status, $body, $headers) = ask($web, 'DELETE', '/api/v1/session', headers => {%good});
is($status, 200, 'sign-out');
like($headers->{'set-cookie'}, qr/Max-Age=0/, 'takes the cookie');
is(status_of($web, 'GET', '/api/v1/jobs', headers => {%session}), 401, 'and ends the session');

# ---------- passwords ----------

my @refused = (
	[ 'a wrong password', 'anna', 'wrong', 401 ], [ 'no such role', 'nobody_here', 'x', 401 ],
	[ 'an empty password', 'anna', '', 401 ], [ 'a password of 600 bytes', 'anna', 'x' x 600, 401 ],
	[ 'a name of 64 bytes', 'x' x 64, 'x', 401 ], [ 'a name as a connection string', 'dbname=postgres user=anna', 'x', 401 ],
	[ 'a role that the server lets in without a password', 'trusted', 'anything', 401 ],
);
foreach (@refused)
{
	my ($what, $role, $given, $expected) = @$_;

	is(status_of($web, 'POST', '/api/v1/session', body => { user => $role, password => $given }), $expected, "$what: $expected");
	is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic($role, $given) }), $expected, "$what, as Basic");
}
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Authorization => $_ }), 401, "Authorization: $_")
  foreach 'Basic', 'Basic !!!', 'Basic YQ==', 'Bearer x', 'Basic OnA=';

# Five wrong ones are free; then the time without an answer doubles.
my @statuses = in_a_second
{
	my ($n) = @_;
	my @found = map { status_of($web, 'POST', '/api/v1/session', body => { user => "guessed$n", password => "p$_" }) } 1 .. 7;

	($status, undef, $headers) = ask($web, 'GET', '/api/v1/jobs', headers => { basic("guessed$n", 'p') });
	return @found;
};
is("@statuses", '401 401 401 401 401 429 429', 'the sixth wrong password within a minute waits');
is($status, 429, 'also as Basic');
like($headers->{'retry-after'}, qr/^\d+$/, 'and says for how long');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna', $password) }), 200, 'other roles do not');

# Meanwhile the right password of a role that is signed in waits as a wrong one does: else one could
# go on guessing.
@statuses = in_a_second
{
	my $role = "berta$_[0]";

	$node->safe_psql('postgres', qq{CREATE ROLE $role LOGIN PASSWORD 'right'; SELECT jobq.grant_access('$role', 'read')});
	return ((map { status_of($web, 'GET', '/api/v1/jobs', headers => { basic($role, $_) }) } 'right', (map { "p$_" } 1 .. 5), 'right'),
		status_of($web, 'POST', '/api/v1/session', body => { user => $role, password => 'right' }));
};
is("@statuses", '200 401 401 401 401 401 429 429', 'the right password of a role that is signed in waits, too, also to sign in');

# Nor does the limit of requests tell them apart: it is one for all passwords of a role.
sub burst
{
	my ($role, $given, $n) = @_;
	my $one = "GET /api/v1/jobs?limit=x HTTP/1.1\r\nHost: a\r\nAuthorization: " . { basic($role, $given) }->{Authorization} . "\r\n\r\n";

	return raw_status($web, $one x $n);
}
$node->safe_psql('postgres', q{CREATE ROLE clara LOGIN PASSWORD 'right'; SELECT jobq.grant_access('clara', 'read')});
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('clara', 'right') }), 200, 'another role is signed in');
like(burst('clara', 'wrong', 150), qr/^(?:400 ){40,140}429/, 'many requests with a wrong password');

# Made-up roles do not push a role with wrong passwords out of the table.
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('dora', "p$_") }), 401, "wrong password $_ of another one") foreach 1 .. 4;
my @made_up = map { "GET /api/v1/jobs?limit=x HTTP/1.1\r\nHost: a\r\nAuthorization: " . { basic("made_up_$_", 'x') }->{Authorization} } 1 .. 1100;
my ($answers) = raw($web, join('', map { "$_\r\n\r\n" } @made_up[ 0 .. $#made_up - 1 ]) . "$made_up[-1]\r\nConnection: close\r\n\r\n");
is(scalar(() = $answers =~ /^HTTP\/1.1 400/mg), 1100, 'requests of made-up roles');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('dora', 'p5') }), 401, 'its fifth one');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('dora', 'p6') }), 429, 'its sixth one waits');

# Requests that reach no statement check no password, and count for none.
is(status_of($web, 'GET', '/api/v1/openapi.json', headers => { basic('anna', 'x') }), 401, 'a wrong password, without a statement of its own');
@statuses = map { status_of($web, 'GET', '/api/v1/jobs?limit=x', headers => { basic('anna2', "x$_") }) } 1 .. 8;
is("@statuses", join(' ', (400) x 8), 'errors in arguments come first');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna2', 'y') }), 401, 'and lock nothing');

# 50 requests a second for a person: more at once are refused.
my $many = join '', map { "GET /api/v1/jobs?limit=x HTTP/1.1\r\nHost: a\r\nAuthorization: " . { basic('anna', $password) }->{Authorization} . "\r\n\r\n" } 1 .. 150;
my $replies = raw_status($web, $many);
like($replies, qr/^(?:400 ){40,140}429/, 'the rest of 150 requests at once is refused') or diag $replies;

# A role that loses its login loses its session, when a connection is opened anew.
($status, $body, $headers) = ask($web, 'POST', '/api/v1/session', body => { user => 'anna', password => $password });
($cookie) = $headers->{'set-cookie'} =~ /^([^;]+)/;
$node->safe_psql('postgres', "ALTER ROLE anna PASSWORD 'new'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'anna'");
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'anna'", 'its connections are gone');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { Cookie => $cookie }), 401, 'a session whose password was changed ends');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna', $password) }), 401, 'the old password is refused');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna', 'new') }), 200, 'the new one is not');
unlike(web_log($web), qr/secret|password="/, 'no password is in the log');
is(stop_web($web), 0, 'it ends');

# ---------- a connection that is always in use ----------

my %faked = fake_clock('-DFAKE_MONOTONIC');
{
	local %ENV = (%ENV, %faked);
	$web = start_web($node);
}
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna', 'new') }), 200, 'a password');
$node->safe_psql('postgres', "ALTER ROLE anna PASSWORD 'newer'");
@statuses = map { set_clock(20 * $_); status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna', 'new') }) } 1 .. 15;
is("@statuses", join(' ', (200) x 14, 401), 'is checked anew after five minutes');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('anna', 'newer') }), 200, 'and the new one is not refused');
stop_web($web);

# ---------- users of a proxy ----------

my $passfile = PostgreSQL::Test::Utils::tempdir() . '/passfile';
append_to_file($passfile, "*:*:*:proxied:of the proxy\n");
chmod 0600, $passfile;
my $dsn = 'host=' . $node->host . ' port=' . $node->port . " dbname=postgres passfile=$passfile";
$web = start_web($node, dsn => $dsn, trusted_proxy => '127.0.0.1', proxy_user_header => 'X-User', roles => 'bob=proxied, eve=proxied');
$origin = "http://127.0.0.1:$web->{port}";
foreach my $user (qw(bob eve))
{
	(undef, $body) = ask($web, 'GET', '/api/v1/jobs', headers => { 'X-User' => $user });
	is(join(' ', map { $_->{tenant} } @{ $body->{items} }), $user, "$user sees the jobs of its tenant");
}
is(status_of($web, 'GET', '/api/v1/jobs', headers => { 'X-User' => 'mallory' }), 403, 'a user without a role');
is(status_of($web, 'POST', '/api/v1/stop', body => { reason => 'x' }, headers => { 'X-User' => 'bob' }), 403, 'changes need an Origin');
is(status_of($web, 'POST', '/api/v1/stop', body => { reason => 'x' }, headers => { 'X-User' => 'bob', Origin => $origin }), 403,
	'and rights');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { basic('proxied', 'of the proxy') }), 403, 'the role itself has no other login');
is(status_of($web, 'POST', '/api/v1/session', body => { user => 'proxied', password => 'of the proxy' }), 403, 'nor a session');
stop_web($web);

$web = start_web($node, dsn => $dsn, trusted_proxy => '192.0.2.1', proxy_user_header => 'X-User', roles => '*=proxied');
is(status_of($web, 'GET', '/api/v1/jobs', headers => { 'X-User' => 'bob' }), 401, 'the header of another address counts for nothing');
stop_web($web);

done_testing();
