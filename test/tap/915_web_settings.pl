# Settings of jobq-web: what --check refuses, file, environment and flags, sockets, TLS, a path
# prefix, forwarded addresses, the listener for metrics.

use strict;
use warnings;

use IO::Socket::UNIX;
use IPC::Run ();
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $program = $ENV{JOBQ_WEB} // 'jobq-web';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $short = PostgreSQL::Test::Utils::tempdir_short();

# ---------- --check ----------

my $good = qr/^the settings are valid$/;

sub check
{
	my ($what, $expected, @flags) = @_;
	my ($out, $err);
	my $valid = IPC::Run::run([ $program, '--check', @flags ], '>', \$out, '2>', \$err);

	like($out . $err, $expected, "$what: " . join ' ', @flags);
	is($valid ? 'valid' : 'refused', $expected eq $good ? 'valid' : 'refused', 'so does the exit code');
	return;
}
check('all defaults', $good);
check('a network without TLS', qr/is not on loopback/, '--listen=0.0.0.0:7432');
check('every address of IPv6', qr/is not on loopback/, '--listen=[::]:7432');
check('any host', qr/is not on loopback/, '--listen=*:7432');
check('with a proxy', $good, '--listen=0.0.0.0:7432', '--trusted-proxy=10.0.0.0/8');
check('with TLS', $good, '--listen=0.0.0.0:7432', '--tls-cert=/c', '--tls-key=/k');
check('a certificate without its key', qr/must be given together/, '--tls_cert=/c');
check('metrics on a network', qr/metrics_listen: .* is not an address on loopback/, '--metrics_listen=0.0.0.0:1');
check('metrics on loopback', $good, '--metrics_listen=[::1]:1');
check('a header without a proxy', qr/needs trusted_proxy and roles/, '--proxy_user_header=X-User');
check('roles without a header', qr/needs proxy_user_header/, '--roles=a=b');
check('a role without a user', qr/is not a list of name=value/, '--roles=a', '--trusted_proxy=unix', '--proxy_user_header=X');
check('an origin with a path', qr/is not scheme:/, '--origin=http://a/b');
check('a socket without an origin', qr/needs the setting origin/, '--listen=unix:/tmp/x');
check('a prefix without a slash', qr/is not a path/, '--base_path=queue');
check('no port', qr/is not host:port/, '--listen=localhost', '--origin=http://a');
check('a port out of range', qr/is not host:port/, '--listen=localhost:70000');
check('an unknown setting', qr/is not an option/, '--listenn=x');
check('no network', qr/is not a list of addresses/, '--trusted_proxy=10.0.0.0/33');
check('no connection string', qr/dsn: .*missing "="/, '--dsn=host');
check('an unknown log', qr/is neither errors nor requests/, '--log=all');

# File < environment < flags.
append_to_file("$dir/web.conf", "# a comment\n\nlisten = 0.0.0.0:1\nbase-path = /q\norigin = http://h\n");
check('a file', qr/is not on loopback/, "--config=$dir/web.conf");
{
	local $ENV{JOBQ_WEB_LISTEN} = '127.0.0.1:1';
	check('the environment', $good, "--config=$dir/web.conf");
	check('a flag', qr/is not host:port/, "--config=$dir/web.conf", '--listen=x');
	local $ENV{JOBQ_WEB_LISTENN} = 'x';
	check('an unknown variable', qr/JOBQ_WEB_LISTENN is not a setting/, "--config=$dir/web.conf");
}
append_to_file("$dir/bad.conf", "listen = 127.0.0.1:1\nlisten 127.0.0.1:1\n");
check('a line of a file', qr/bad.conf, line 2: "listen 127.0.0.1:1" is not a setting/, "--config=$dir/bad.conf");

# ---------- a socket, a prefix, a list of databases, metrics ----------

my $node = web_node('settings');
$node->safe_psql('postgres', <<'END');
CREATE DATABASE other;
CREATE ROLE anna LOGIN PASSWORD 'a';
CREATE ROLE watcher LOGIN PASSWORD 'w';
SELECT jobq.create_job_type('t');
SELECT jobq.grant_access('anna', 'read');
SELECT jobq.grant_access('watcher', 'read');
END
my $metrics_port = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$dir/passfile", "*:*:*:watcher:w\n");
chmod 0600, "$dir/passfile";
my $web = start_web($node, base_path => '/queue', databases => 'postgres, template1', metrics_listen => "127.0.0.1:$metrics_port",
	dsn => 'host=' . $node->host . ' port=' . $node->port . " user=watcher passfile=$dir/passfile",
	origin => 'https://jobs.example', trusted_proxy => '127.0.0.1');
is(status_of($web, 'GET', '/queue/livez'), 200, 'below the prefix');
is(status_of($web, 'GET', '/livez'), 404, 'not beside it');
is(status_of($web, 'GET', '/queuex/livez'), 404, 'nor behind a longer one');
my ($status, $body, $headers) = ask($web, 'POST', '/queue/api/v1/session', body => { user => 'anna', password => 'a', database => 'postgres' });
is("$status $body->{database}", '200 postgres', 'a database of the list');
like($headers->{'strict-transport-security'}, qr/max-age/, 'HSTS behind https');
is(status_of($web, 'POST', '/queue/api/v1/session', body => { user => 'anna', password => 'a', database => 'other' }), 400, 'another database');
is(status_of($web, 'POST', '/queue/api/v1/session', body => { user => 'anna', password => 'a', database => 'template1' }), 200,
	'a database without jobq');
is(status_of({ port => $metrics_port }, 'GET', '/queue/metrics'), 200, 'metrics without sign-in');
is(status_of({ port => $metrics_port }, 'GET', '/queue/health'), 200, 'health, too');
is(status_of({ port => $metrics_port }, 'GET', '/queue/api/v1/jobs'), 404, 'and nothing else');
is(status_of($web, 'GET', '/queue/metrics'), 401, 'the other listener asks for it');

# The address that a trusted proxy forwards counts for wrong passwords.
sub from { my ($address, $password) = @_; return status_of($web, 'GET', '/queue/api/v1/jobs', headers => { basic('anna', $password), 'X-Forwarded-For' => $address }); }
my $before;
my @wrong = in_a_second
{
	my ($n) = @_;
	my @found = map { from("1.2.3.4, 192.0.2.1$n", "x$_") } 1 .. 6;

	$before = from("5.6.7.8, 192.0.2.1$n", 'x');
	return @found;
};
is("@wrong", '401 401 401 401 401 429', 'the sixth wrong password of an address waits');
is($before, 429, 'what the client writes before it changes nothing');
is(from('192.0.2.2', 'a'), 200, 'another address signs in');
@wrong = in_a_second { my ($n) = @_; return map { from("2001:db8:$n:1::$_", "x$_") } 1 .. 6 };
is("@wrong", '401 401 401 401 401 429', 'addresses of a network of IPv6 are one');
is(from('2001:db8:0:2::1', 'a'), 200, 'another network signs in');
like(web_log($web), qr/jobq-web: 192\.0\.2\.2 GET/, 'and is in the log');
stop_web($web);

# A Unix socket: one that a dead server has left is replaced.
IO::Socket::UNIX->new(Local => "$short/web", Listen => 1) // die "$short/web: $!";
$web = start_web($node, listen => "unix:$short/web", origin => 'http://h');
my $socket = IO::Socket::UNIX->new(Peer => "$short/web") // die "connect: $!";
syswrite($socket, "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
like((read_all($socket))[0], qr/^HTTP\/1\.1 200 /, 'a Unix socket');
is(sprintf('%o', (stat "$short/web")[2] & 0777), '660', 'for its group');
stop_web($web);

# TLS.
SKIP:
{
	skip 'no openssl', 3 if system('openssl version >/dev/null 2>&1') != 0;
	system_or_bail("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout $dir/key -out $dir/cert 2>/dev/null");
	$web = start_web($node, tls_cert => "$dir/cert", tls_key => "$dir/key");
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'openssl', 's_client', '-quiet', '-connect', "127.0.0.1:$web->{port}" ],
		'<', \"GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", '>', \$out, '2>', \$err, IPC::Run::timeout(30));
	like($out, qr/^HTTP\/1\.1 200 .*Strict-Transport-Security/s, 'TLS');
	isnt(raw_status($web, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"), '200', 'nothing in clear');
	stop_web($web);
}

# Sockets of systemd: descriptors from 3 on, LISTEN_PID; NOTIFY_SOCKET is told.
my $notify = IO::Socket::UNIX->new(Local => "$short/notify", Type => Socket::SOCK_DGRAM()) // die "notify: $!";
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 5) // die "listen: $!";
my $pid = fork // die "fork: $!";
if ($pid == 0)
{
	open STDERR, '>>', "$dir/systemd.log";
	POSIX::dup2(fileno($listener), 3);
	@ENV{qw(LISTEN_PID LISTEN_FDS NOTIFY_SOCKET)} = ($$, 1, "$short/notify");
	exec $program, '--listen=systemd', '--origin=http://h' or POSIX::_exit(127);
}
close $listener;
recv($notify, my $told, 100, 0);
is($told, 'READY=1', 'systemd is told');
is(status_of({ port => $port }, 'GET', '/livez'), 200, 'its socket serves');
kill 'TERM', $pid;
waitpid $pid, 0;
is($?, 0, 'it ends');

done_testing();
