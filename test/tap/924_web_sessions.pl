# Sessions of jobq-web: requests that browsers send for other sites, tokens, sign-ins side by side,
# roles that lose rights, name or existence while they are signed in.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $node = web_node('sessions', 'max_connections = 60');
$node->safe_psql('postgres', <<'END');
CREATE ROLE anna LOGIN PASSWORD 'a';
CREATE ROLE berta LOGIN PASSWORD 'b';
CREATE ROLE clara LOGIN PASSWORD 'c';
CREATE ROLE dora LOGIN PASSWORD 'd';
SELECT jobq.create_job_type('t');
SELECT jobq.grant_access(r::regrole, a) FROM unnest('{anna,berta,clara,dora}'::text[]) r, unnest('{admin,enqueue}'::text[]) a;
END
my $web = start_web($node);
my $origin = "http://127.0.0.1:$web->{port}";

# Signs in; returns the headers of the session's requests.
sub sign_in
{
	my ($role, $password, %headers) = @_;
	my ($status, $body, $headers) = ask($web, 'POST', '/api/v1/session', body => { user => $role, password => $password }, headers => { Origin => $origin, %headers });

	is($status, 200, "$role signs in");
	my ($cookie) = $headers->{'set-cookie'} =~ /^(__Host-jobq=[\w-]{43});/;
	return { Cookie => $cookie, Origin => $origin, 'X-Csrf-Token' => $body->{csrf} };
}

sub jobs_of { return status_of($web, 'GET', '/api/v1/jobs', headers => $_[0]); }
sub user_of { return (ask($web, 'GET', '/api/v1/session', headers => $_[0]))[1]{user}; }

# ---------- Sec-Fetch-Site ----------

my $anna = sign_in('anna', 'a');
my %navigate = ('Sec-Fetch-Mode' => 'navigate', 'Sec-Fetch-Dest' => 'document');
my @sites = (
	[ 'our page', 'same-origin', {}, 200 ], [ 'the user', 'none', {}, 200 ], [ 'another site', 'cross-site', {}, 403 ],
	[ 'a neighbour', 'same-site', {}, 403 ], [ 'an unknown word', 'x', {}, 403 ], [ 'a link of another site', 'cross-site', \%navigate, 200 ],
);
foreach (@sites)
{
	my ($what, $site, $more, $expected) = @$_;
	my %sent = ('Sec-Fetch-Site' => $site, 'Sec-Fetch-Mode' => 'cors', %$more);

	is(jobs_of({ %$anna, %sent }), $expected, "a GET for $what: $expected");
	is(jobs_of({ basic('anna', 'a'), %sent }), $expected, "by Basic: $expected");
	is(status_of($web, 'POST', '/api/v1/jobs', body => { job_type => 't' }, headers => { %$anna, %sent }), $site eq 'same-origin' || $site eq 'none' ? 200 : 403, 'a POST');
	is(status_of($web, 'GET', '/', headers => { %sent, Accept => 'text/html' }), $expected, 'the page');
}
is(status_of($web, 'POST', '/api/v1/session', body => { user => 'anna', password => 'a' }, headers => { 'Sec-Fetch-Site' => 'cross-site' }), 403, 'a sign-in for another site');
is(jobs_of({ basic('anna', "wrong $_"), 'Sec-Fetch-Site' => 'cross-site' }), 403, 'a wrong password for another site') foreach 1 .. 8;
is(jobs_of({ basic('anna', 'a') }), 200, 'locks no role');

# ---------- all of it together ----------

# Each kind of Origin, Sec-Fetch-Site, sign-in, token and content type, by what is allowed: all in a
# full run, else each seventh.
my @kinds = map { my $k = $_; map { [ @$k, $_ ] } 'application/json', 'application/json; charset=utf-8', 'text/plain', '' }
	map { my $k = $_; map { [ @$k, $_ ] } 'right', 'wrong', '' } map { my $k = $_; map { [ @$k, $_ ] } 'session', 'basic', 'unknown', '' }
	map { my $k = $_; map { [ @$k, $_ ] } 'same-origin', 'none', 'same-site', 'cross-site', '' } map { [$_] } $origin, 'https://evil.example', 'null', '';
my %calls = (POST => [ '/api/v1/jobs', '{"job_type":"t"}' ], PUT => [ '/api/v1/limits/l', '{"max_concurrent":1}' ], PATCH => [ '/api/v1/types/t', '{"base_priority":0}' ],
	DELETE => [ '/api/v1/limits/l', '' ]);
my ($n, $allowed, @unexpected) = (0, 0);

sub send_to
{
	my ($method, $path, $body, $sent) = @_;
	my $status = '429';
	while ($status eq '429' && select(undef, undef, undef, 0.02) == 0)
	{
		$status = raw_status($web, "$method $path HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" . join('', map { "$_: $sent->{$_}\r\n" } sort keys %$sent)
			  . 'Content-Length: ' . length($body) . "\r\n\r\n$body");
	}
	return $status;
}
foreach my $kind (@kinds)
{
	my ($from, $site, $as, $csrf, $type) = @$kind;

	next if $n++ % ($ENV{JOBQ_FULL} ? 1 : 7);
	my %sent = ($from ? (Origin => $from) : (), $site ? ('Sec-Fetch-Site' => $site) : (), $type ? ('Content-Type' => $type) : (),
		$as eq 'session' ? (Cookie => $anna->{Cookie}) : $as eq 'unknown' ? (Cookie => '__Host-jobq=' . 'y' x 43) : $as ? basic('anna', 'a') : (),
		$csrf ? ('X-Csrf-Token' => $csrf eq 'right' ? $anna->{'X-Csrf-Token'} : 'z' x 43) : ());
	my $signed = $as eq 'session' || $as eq 'basic';
	my $ours = $site !~ /site$/;
	my $meant = $signed && $ours && ($as eq 'basic' ? $from eq $origin || $from eq '' : $from eq $origin && $csrf eq 'right');
	$allowed += $meant && $type =~ /json/;
	foreach my $method (qw(POST PUT PATCH DELETE))
	{
		my $status = send_to($method, @{ $calls{$method} }, \%sent);
		my $served = $meant && ($type =~ /json/ || $method eq 'DELETE');

		# the limit is there, or was not set
		push @unexpected, "@$kind: $method $status" if ($status eq '200' || ($method eq 'DELETE' && $status eq '404')) != $served || $status !~ /^(200|401|403|404|415)$/;
		next if $method eq 'POST';
		$status = send_to($method, '/api/v1/jobs', '', \%sent);
		push @unexpected, "@$kind: $method of jobs $status" if $status ne '405';
	}
	my $get = status_of($web, 'GET', '/api/v1/jobs?limit=1', headers => \%sent);
	push @unexpected, "@$kind: GET $get" if ($get == 200) != ($signed && $ours) || $get !~ /^(200|401|403)$/;
}
is_deeply(\@unexpected, [], 'requests are served or refused as their headers say');
cmp_ok($allowed, '>', 2, "$allowed of them are served");

# ---------- tokens ----------

# A token that was there before a sign-in, its own or made up, is never that of the new session.
my $fixed = '__Host-jobq=' . 'x' x 43;
my $berta = sign_in('berta', 'b', Cookie => $fixed);
isnt($berta->{Cookie}, $fixed, 'a sign-in makes a new token');
is(jobs_of({ Cookie => $fixed }), 401, 'a made-up one stays unknown');
is(status_of($web, 'POST', '/api/v1/session', body => { user => 'anna', password => 'mistyped' }, headers => { Cookie => $anna->{Cookie}, Origin => $origin }), 401,
	'a mistyped password');
is(user_of($anna), 'anna', 'ends no session');
my $other = sign_in('berta', 'b', Cookie => $anna->{Cookie});
is(user_of($anna), undef, 'a sign-in with the cookie of another session ends that');
is(user_of($other), 'berta', 'and is one of its own');
$anna = sign_in('anna', 'a');
isnt($other->{$_}, $berta->{$_}, "with another $_") foreach 'Cookie', 'X-Csrf-Token';
is(status_of($web, 'POST', '/api/v1/jobs', body => { job_type => 't' }, headers => { %$berta, 'X-Csrf-Token' => $other->{'X-Csrf-Token'} }), 403,
	'the token of one session does not serve another of the same role');
is(status_of($web, 'POST', '/api/v1/jobs', body => { job_type => 't' }, headers => { %$berta, 'X-Csrf-Token' => substr($berta->{Cookie}, 12) }), 403, 'nor does the cookie');
is(jobs_of({ Cookie => "__Host-jobq=$berta->{'X-Csrf-Token'}" }), 401, 'nor that token as a cookie');
my $token = substr $berta->{Cookie}, 12;
my $wrong = 0;
foreach my $place (0 .. 42)
{
	my $guess = $token;

	substr($guess, $place, 1, substr($guess, $place, 1) eq 'A' ? 'B' : 'A');
	$wrong += jobs_of({ Cookie => "__Host-jobq=$guess" }) == 401;
}
is($wrong, 43, 'a token with one other character is none');
is(jobs_of({ Cookie => $_ }), 401, "no session: $_") foreach "jobq=$token", "__host-jobq=$token", '__Host-jobq=', "__Host-jobq=\"$token\"", '__Host-jobq=' . uc $token;
is(jobs_of($berta), 200, 'guesses end no session');

# ---------- side by side ----------

# Sends all requests before it reads the first reply; returns the statuses and cookies.
sub at_once
{
	my @bodies = map { encode_json({ user => $_->[0], password => $_->[1] }) } @_;
	my @sockets = map { connect_web($web) } @bodies;
	my (@statuses, %cookies);

	syswrite($sockets[$_], "POST /api/v1/session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " . length($bodies[$_]) . "\r\n\r\n$bodies[$_]") foreach 0 .. $#bodies;
	foreach (@sockets)
	{
		my ($answer) = read_all($_);

		push @statuses, $answer =~ m{^HTTP/1.1 (\d+)};
		$cookies{$1} = 1 if $answer =~ /__Host-jobq=([\w-]{43});/;
	}
	return (join(' ', @statuses), scalar keys %cookies);
}
is_deeply([ at_once(map { [ 'clara', 'c' ] } 1 .. 20) ], [ join(' ', ('200') x 20), 20 ], 'sign-ins side by side: a session for each');
my ($guesses) = in_a_second { my ($n) = @_; return at_once(map { [ "guessed$n", "g$_" ] } 1 .. 20) };
is(join(' ', sort split / /, $guesses), join(' ', ('401') x 5, ('429') x 15), 'guesses side by side count as one after the other');
is_deeply([ at_once((map { [ 'dora', "g$_" ] } 1 .. 3), [ 'dora', 'd' ]) ], [ '401 401 401 200', 1 ], 'the right password among wrong ones');

# ---------- roles ----------

my $dora = sign_in('dora', 'd');
is(jobs_of($dora), 200, 'a role with rights');
$node->safe_psql('postgres', q{SELECT jobq.revoke_access('dora', a) FROM unnest('{admin,enqueue}'::text[]) a});
is(jobs_of($dora), 403, 'without them');
is((ask($web, 'GET', '/api/v1/session', headers => $dora))[1]{can}{admin}, JSON::PP::false, 'the session says so');
is(status_of($web, 'POST', '/api/v1/stop', body => { reason => 'x' }, headers => $dora), 403, 'and changes nothing');
$node->safe_psql('postgres', q{SELECT jobq.grant_access('dora', 'read')});
is(jobs_of($dora), 200, 'with other ones');

sub lose_connections
{
	my ($role) = @_;

	$node->safe_psql('postgres', "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.usename = '$role'");
	wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.usename = '$role')", "no connection of $role is left");
}

# A renamed role is the same role on its connections; the name alone lets nothing in.
$node->safe_psql('postgres', q{ALTER ROLE dora RENAME TO dora2; CREATE ROLE dora LOGIN PASSWORD 'other'; SELECT jobq.grant_access('dora', 'admin')});
is(user_of($dora), 'dora2', 'a renamed role goes on with its session');
lose_connections('dora2');
is(jobs_of($dora), 401, 'until it needs a connection: the new role of its name has another password');
is(jobs_of($dora), 401, 'and the session has ended');
is(jobs_of({ basic('dora2', 'd') }), 200, 'its new name signs in');

# A role that was dropped sees nothing, also on connections that are open.
my $clara = sign_in('clara', 'c');
is(jobs_of($clara), 200, 'a role');
$node->safe_psql('postgres', q{SELECT jobq.revoke_access('clara', a) FROM unnest('{admin,enqueue}'::text[]) a; DROP OWNED BY clara; DROP ROLE clara});
my ($status, $body) = ask($web, 'GET', '/api/v1/jobs', headers => $clara);
ok($status == 401 || $status == 403, 'that was dropped sees no job') or diag "$status " . encode_json($body);
$node->safe_psql('postgres', q{CREATE ROLE clara LOGIN PASSWORD 'other'; SELECT jobq.grant_access('clara', 'admin')});
($status, $body) = ask($web, 'GET', '/api/v1/jobs', headers => $clara);
ok($status == 401 || $status == 403, 'nor does its session see those of a new role of its name') or diag "$status " . encode_json($body);

# NOLOGIN, a password that has expired.
foreach ([ 'berta', 'NOLOGIN', 'LOGIN', $berta ], [ 'anna', "VALID UNTIL '2001-01-01'", "VALID UNTIL 'infinity'", $anna ])
{
	my ($role, $lose, $regain, $session) = @$_;

	$node->safe_psql('postgres', "ALTER ROLE $role $lose");
	lose_connections($role);
	is(jobs_of($session), 401, "$role $lose");
	$node->safe_psql('postgres', "ALTER ROLE $role $regain");
	is(jobs_of($session), 401, 'its session has ended');
}
is(jobs_of({ basic('anna', 'a') }), 200, 'the role itself is let in again');

is(stop_web($web), 0, 'it ends');
done_testing();
