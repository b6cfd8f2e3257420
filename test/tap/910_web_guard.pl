# jobq-web's guard: requests that two programs in a row may read differently, limits of headers and
# bodies, slow clients, and connections.  It needs no server.

use strict;
use warnings;

use IO::Socket::INET;
use List::Util qw(max);
use PostgreSQL::Test::Utils;
use ServerTest;
use Socket qw(MSG_DONTWAIT MSG_PEEK SOL_SOCKET SO_RCVBUF);
use Test::More;
use Time::HiRes ();
use WebTest;

my $web = start_web(undef, dsn => 'host=/nowhere');
my $get = "GET /livez HTTP/1.1\r\nHost: a\r\n";
my $post = "POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";

# ---------- the corpus ----------

my @corpus = (
	[ 'a request', "$get\r\n", '200+' ],
	[ 'two requests on one connection', "$get\r\n$get\r\n", '200 200+' ],
	[ 'HTTP/1.0 without Host', "GET /livez HTTP/1.0\r\n\r\n", '200' ],
	[ 'no Host', "GET /livez HTTP/1.1\r\n\r\n", '400' ],
	[ 'two Hosts', "${get}Host: b\r\n\r\n", '400' ],
	[ 'two equal Hosts', "${get}Host: a\r\n\r\n", '400' ],
	[ 'Transfer-Encoding', "${post}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", '400' ],
	[ 'Transfer-Encoding with a body on GET', "${get}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n$get\r\n", '400' ],
	[ 'Content-Length and Transfer-Encoding', "${post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n$get\r\n", '400' ],
	[ 'Transfer-Encoding : with a space', "${post}Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n$get\r\n", '400' ],
	[ 'Transfer-Encoding: identity', "${post}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", '400' ],
	[ 'two Content-Lengths', "${post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}$get\r\n", '400' ],
	[ 'two equal Content-Lengths', "${post}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", '400' ],
	[ 'Content-Length: +2', "${post}Content-Length: +2\r\n\r\n{}", '400' ],
	[ 'Content-Length: 2, 2', "${post}Content-Length: 2, 2\r\n\r\n{}", '400' ],
	[ 'Content-Length: 0x2', "${post}Content-Length: 0x2\r\n\r\n{}", '400' ],
	[ 'Content-Length: -1', "${post}Content-Length: -1\r\n\r\n{}", '400' ],
	[ 'a body on GET', "${get}Content-Length: 2\r\n\r\n{}", '400' ],
	[ 'a body on DELETE', "DELETE /api/v1/session HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", '400' ],
	[ 'a name with a space', "${get}X Y: 1\r\n\r\n", '400' ],
	[ 'a name with a bracket', "${get}X(Y: 1\r\n\r\n", '400' ],
	[ 'a value with a control character', "${get}X: a\x01b\r\n\r\n", '400' ],
	[ 'two Authorizations', "${get}Authorization: Basic YTpi\r\nAuthorization: Basic YTpj\r\n\r\n", '400' ],
	[ 'two Origins', "${get}Origin: http://a\r\nOrigin: http://b\r\n\r\n", '400' ],
	[ 'two Cookies', "${get}Cookie: a=1\r\nCookie: b=2\r\n\r\n", '400' ],
	[ 'the form of a proxy', "GET http://a/livez HTTP/1.1\r\nHost: a\r\n\r\n", '400' ],
	[ 'HTTP/1.2', "GET /livez HTTP/1.2\r\nHost: a\r\n\r\n", '505' ],
	[ 'a target of 9 kB', 'GET /livez?' . ('x' x 9000) . " HTTP/1.1\r\nHost: a\r\n\r\n", '414' ],
	[ 'headers of 17 kB', $get . ("X-Y: " . ('x' x 1000) . "\r\n") x 17 . "\r\n", '431' ],
	[ '101 headers', $get . "X: 1\r\n" x 100 . "\r\n", '431' ],
	[ 'a body of 3 MB', "${post}Content-Length: 3000000\r\n\r\n", '413' ],
	[ 'a body of 20 digits', "${post}Content-Length: 99999999999999999999\r\n\r\n", '413' ],
	[ 'Expect: x', "${get}Expect: x\r\n\r\n", '417' ],
	[ 'a folded Content-Length', "${post}Content-Length:\r\n 2\r\n\r\n{}", '400' ],
	[ 'a Content-Length that is folded behind a digit', "${post}Content-Length: 2\r\n 0\r\n\r\n{}", '400' ],
	[ 'a request behind a folded Content-Length', "${post}Content-Length:\r\n 100\r\n\r\n$get\r\n", '400' ],
	[ 'a folded Transfer-Encoding', "${post}Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", '400' ],
	[ 'a header before the first one is folded', "GET /livez HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n", '400' ],
	[ 'Content-Length : with a space', "${post}Content-Length : 2\r\n\r\n{}", '400' ],
	[ 'a line that ends with CR alone', "${post}X: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", '400' ],
	[ 'a request behind a body', "${post}Content-Length: 2\r\n\r\n{}$get\r\n", '401' ],
	[ 'another path', "GET /api/v1/jobsx HTTP/1.1\r\nHost: a\r\n\r\n", '404+' ],
	[ 'another method', "PUT /livez HTTP/1.1\r\nHost: a\r\n\r\n", '405+' ],
	[ 'a zero byte in a path', "GET /api/v1/types/%00 HTTP/1.1\r\nHost: a\r\n\r\n", '404+' ],
);
foreach (@corpus)
{
	my ($what, $bytes, $expected) = @$_;

	# libmicrohttpd refuses some of these itself, with another status, since 1.0; 501 is its answer
	# to a transfer coding that it does not know
	my $found = raw_status($web, $bytes);
	ok($found eq $expected || ($expected =~ /^4\d\d$/ && $found =~ /^4\d\d$/) || ($what =~ /^Transfer-Encoding/ && $found eq '501'), "$what: $expected") or diag "found: $found";
}

# ---------- time ----------

# A byte a second holds no connection: 10 s for the headers.
sub seconds_open
{
	my ($first, $byte) = @_;
	my $socket = connect_web($web);
	my $began = Time::HiRes::time();

	syswrite($socket, $first);
	for (my $n = 0; $n < 40; $n++)
	{
		my ($got, $closed) = read_all($socket, 1);

		return Time::HiRes::time() - $began if $closed;
		local $SIG{PIPE} = 'IGNORE';
		syswrite($socket, $byte) if length $byte;
	}
	return 1_000;
}
# Where a machine stood still another try counts.
sub ends_within
{
	my ($least, $most, $first, $byte, $what) = @_;
	my $seconds;

	foreach (1 .. 3)
	{
		$seconds = seconds_open($first, $byte);
		last if $seconds < $most;
	}
	return ok($seconds > $least && $seconds < $most, $what) || diag $seconds;
}
ends_within(8, 20, "GET /livez HTTP/1.1\r\nX-", 'x', 'slow headers end after 10 s');
ends_within(8, 20, "$get\r\n", 'G', 'so do those of a second request');
ends_within(25, 40, "${post}Content-Length: 100\r\n\r\n", ' ', 'a slow body ends after 30 s');

# ---------- connections ----------

my @open = map { connect_web($web) } 1 .. 64;
is(raw_status($web, "$get\r\n"), '503', 'the 65th connection of an address is refused');
close pop @open;
my $again = '';
foreach (1 .. 100)
{
	$again = raw_status($web, "${get}Connection: close\r\n\r\n");
	last if $again eq '200';
}
is($again, '200', 'after one was closed the next is served');
@open = ();

# ---------- slow clients ----------

# 960 clients that send slowly or do not read, 60 of an address, leave the answers to others as
# they are: 50 ms are usual, or what an answer takes without them.  In a full run 1,000 of each
# kind do so, too, one kind after the other, since 1,024 connections are allowed.  Headers may
# take 10 s: where a machine stood still another try counts.
my @slow_parts = ("GET /livez HTTP/1.1\r\nX-", "${post}Content-Length: 100\r\n\r\n{", "GET /assets/vendor/uplot.js HTTP/1.1\r\nHost: a\r\n\r\n" x 100);

sub slow_client
{
	my ($i, $part) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $web->{port}, LocalAddr => '127.0.0.' . (2 + int $i / 60), Proto => 'tcp')
	  // die "connect: $!";

	$socket->setsockopt(SOL_SOCKET, SO_RCVBUF, 4096) if $part eq $slow_parts[2];
	syswrite($socket, $part);
	return $socket;
}

# Numbers of those with bytes to read, and of those that were closed.
sub states_of
{
	my ($readable, $closed) = (0, 0);

	foreach (@_)
	{
		my $n = recv($_, my $bytes, 1, MSG_PEEK | MSG_DONTWAIT);

		$readable++ if defined $n && length $bytes;
		$closed++ if (defined $n && !length $bytes) || (!defined $n && !$!{EAGAIN});
	}
	return ($readable, $closed);
}

# The longest time of an answer.
sub slowest_answer
{
	my ($answers) = @_;
	my $slowest = 0;

	foreach (1 .. 50)
	{
		my $began = Time::HiRes::time();

		$$answers .= raw_status($web, "${get}Connection: close\r\n\r\n") . ' ';
		my $took = Time::HiRes::time() - $began;
		$slowest = $took if $took > $slowest;
	}
	return $slowest;
}

sub try_slow
{
	my ($n, @parts) = @_;
	my ($tries, $answers, $closed, $slowest, $limit) = (0, '', $n, 0, 0);

	while (($closed > 0 || $slowest >= $limit) && ++$tries <= 10)
	{
		$limit = max(0.25, 5 * slowest_answer(\$answers));
		my @slow = map { slow_client($_, $parts[ $_ % @parts ]) } 0 .. $n - 1;
		my @readers = @slow[ grep { $parts[ $_ % @parts ] eq $slow_parts[2] } 0 .. $#slow ];
		my $end = Time::HiRes::time() + 8;

		select(undef, undef, undef, 0.01) while (states_of(@readers))[0] < @readers && Time::HiRes::time() < $end;
		$answers = '';
		$slowest = slowest_answer(\$answers);
		$closed = (states_of(@slow))[1];
		is((states_of(@readers))[0], scalar @readers, 'clients that do not read have replies to read') unless $closed;
	}
	is($answers, '200 ' x 50, "others are answered while $n slow clients wait");
	is($closed, 0, 'all of these are still there') or diag "$tries tries";
	ok($slowest < $limit, sprintf 'the slowest answer took %.1f ms', 1000 * $slowest);
	return;
}

try_slow(960, @slow_parts);
if ($ENV{JOBQ_FULL}) { try_slow(1000, $_) foreach @slow_parts; }

# ---------- headers of replies ----------

my (undef, undef, $headers) = ask($web, 'GET', '/livez');
is($headers->{'x-content-type-options'}, 'nosniff', 'nosniff');
is($headers->{'cache-control'}, 'no-store', 'no-store');
is($headers->{'referrer-policy'}, 'no-referrer', 'no-referrer');
like($headers->{'content-security-policy'}, qr/default-src 'none'.*frame-ancestors 'none'/, 'a content security policy');
is($headers->{'strict-transport-security'}, undef, 'HSTS is not sent over HTTP');
my ($status, $body);
($status, $body, $headers) = ask($web, 'GET', '/api/v1/jobs');
is($status, 401, 'no sign-in');
is($headers->{'content-type'}, 'application/problem+json', 'RFC 9457');
like($headers->{'www-authenticate'}, qr/^Basic /, 'programs are asked for Basic');
(undef, undef, $headers) = ask($web, 'GET', '/api/v1/jobs', headers => { 'Sec-Fetch-Mode' => 'cors' });
is($headers->{'www-authenticate'}, undef, 'scripts of browsers are not');

is(stop_web($web), 0, 'it ends with status 0');
done_testing();
