# jobq-web behind nginx and Caddy, as in examples/web: a path prefix, bodies, a header that clients
# may not set; behind nginx and HAProxy requests whose end two programs may see at different places.
# Each is skipped where it is not installed; a full run needs nginx and HAProxy (JOBQ_FULL).

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

local $ENV{PATH} = "$ENV{PATH}:/usr/sbin";
my $examples = "$FindBin::Bin/../../examples/web";
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = web_node('proxy');
$node->safe_psql('postgres', <<'END');
CREATE ROLE anna LOGIN PASSWORD 'a';
CREATE ROLE guests LOGIN PASSWORD 'g';
SELECT jobq.create_job_type('t');
SELECT jobq.grant_access('anna', 'read'), jobq.grant_access('anna', 'enqueue'), jobq.grant_access('guests', 'read', tenant => 'x');
END
append_to_file("$dir/passfile", "*:*:*:guests:g\n");
chmod 0600, "$dir/passfile";
my $web = start_web($node, base_path => '/queue', trusted_proxy => '127.0.0.1', origin => "http://127.0.0.1:$port",
	proxy_user_header => 'X-User', roles => '*=guests',
	dsn => 'host=' . $node->host . ' port=' . $node->port . " dbname=postgres passfile=$dir/passfile");
my $proxy = { port => $port };
my %anna = basic('anna', 'a');

# The example with the ports of this test.
sub example
{
	my ($file) = @_;
	my $text = slurp_file("$examples/$file");

	$text =~ s/127\.0\.0\.1:8080/127.0.0.1:$port/g;
	$text =~ s/127\.0\.0\.1:7432/127.0.0.1:$web->{port}/g;
	return $text;
}

# Requests with another one hidden behind or inside.  The log of the proxy names those that it has
# sent on, as does that of jobq-web: both must be the same ones.
sub smuggle
{
	my ($name, $log) = @_;
	my $post = "POST /queue/api/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: $anna{Authorization}\r\n";
	my $get = "GET /queue/livez HTTP/1.1\r\nHost: a\r\n";
	my $hidden = "GET /queue/api/v1/types/smuggled HTTP/1.1\r\nHost: a\r\nAuthorization: $anna{Authorization}\r\n\r\n";
	my $n = length $hidden;
	my $size = sprintf '%x', $n;
	my @corpus = (
		"${post}Content-Length: 2\r\nContent-Length: " . (2 + $n) . "\r\n\r\n{}$hidden",
		"${post}Content-Length: " . (2 + $n) . "\r\nContent-Length: 2\r\n\r\n{}$hidden",
		"${post}Content-Length: 2, " . (2 + $n) . "\r\n\r\n{}$hidden",
		"${post}Content-Length: +2\r\n\r\n{}$hidden",
		"${post}Content-Length : 2\r\n\r\n{}$hidden",
		"${post}Content-Length:\r\n 2\r\n\r\n{}$hidden",
		"${post}Content-Length: 2\r\nX: a\r\n b\r\n\r\n{}$hidden",
		(map { ("${post}Content-Length: " . (5 + $n) . "\r\n$_\r\n\r\n0\r\n\r\n$hidden", "${post}$_\r\nContent-Length: 5\r\n\r\n0\r\n\r\n$hidden",
			"${post}$_\r\nContent-Length: 4\r\n\r\n$size\r\n$hidden\r\n0\r\n\r\n") }
			'Transfer-Encoding: chunked', 'Transfer-Encoding : chunked', "Transfer-Encoding:\tchunked", 'Transfer-Encoding: xchunked', 'Transfer-Encoding: chunked, identity',
			'Transfer-Encoding: identity, chunked', "Transfer-Encoding:\r\n chunked", "X: y\r\n Transfer-Encoding: chunked", 'Transfer-Encoding: "chunked"', 'Transfer_Encoding: chunked',
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "X: y\rTransfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked"),
		"${get}Host: b\r\n\r\n$hidden", "${get}Content-Length: $n\r\n\r\n$hidden", "${get}Transfer-Encoding: chunked\r\n\r\n$size\r\n$hidden\r\n0\r\n\r\n",
		"${get}Expect: 100-continue\r\nContent-Length: $n\r\n\r\n$hidden", "${get}Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n$hidden",
		"GET /queue/livez HTTP/1.1 \r\nHost: a\r\n\r\n$hidden", "GET /queue/livez HTTP/1.0\r\nHost: a\r\nContent-Length: $n\r\n\r\n$hidden",
		"GET /queue/livez%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n$hidden", "GET http://b/queue/livez HTTP/1.1\r\nHost: a\r\n\r\n$hidden");
	# a request is logged after its answer: those before are when this one is
	status_of($proxy, 'GET', "/queue/first-$name");
	ok(wait_for_text($log, qr/first-$name/) && wait_for_text($web->{log}, qr/first-$name/), "$name: both have logged what came before");
	my ($from, $web_from) = (-s $log, -s $web->{log});
	# a last request ends each connection: a client that left earlier would be logged late or never
	my $last = "GET /queue/livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
	my @answered = map { raw_status($proxy, "$_$last", $PostgreSQL::Test::Utils::timeout_default) } @corpus;

	note "$name: @answered";
	is(scalar(grep { /\+/ } @answered), 0, "$name: each connection was closed");
	is(status_of($proxy, 'GET', "/queue/last-$name"), 404, "$name: serves after all of them");
	ok(wait_for_text($log, qr/last-$name/) && wait_for_text($web->{log}, qr/last-$name/), 'both have logged all');
	my @sent_on = map { s{http://b}{}r } substr(slurp_file($log), $from) =~ m{^sent on: (\S+ \S+)}mg;
	my @served = substr(slurp_file($web->{log}), $web_from) =~ m{^jobq-web: \S+ (\S+ \S+) \d+ }mg;
	cmp_ok(scalar @sent_on, '>', 15, "$name: has sent on some");
	is_deeply(\@served, \@sent_on, "$name: jobq-web serves exactly the requests that it has sent on");
	return;
}

sub try_proxy
{
	my ($name, @command) = @_;
	my $log = "$PostgreSQL::Test::Utils::log_path/$name.log";
	my $run = IPC::Run::start(\@command, '<', '/dev/null', '>>', $log, '2>&1');
	my $status = 0;

	foreach (1 .. 300)
	{
		$status = status_of($proxy, 'GET', '/queue/livez');
		last if $status == 200;
		select undef, undef, undef, 0.1;
	}
	is($status, 200, "$name: livez below the prefix") or diag slurp_file($log);
	is(status_of($proxy, 'GET', '/queue/api/v1/jobs', headers => {%anna}), 200, "$name: a request");
	is(status_of($proxy, 'POST', '/queue/api/v1/jobs', headers => {%anna}, body => { job_type => 't' }), 200, "$name: a body");
	is(status_of($proxy, 'POST', '/queue/api/v1/jobs', headers => {%anna}, body => '{"job_type": "t"' . ' ' x 1_100_000 . '}'), 200, "$name: one of 1.1 MB");
	is(status_of($proxy, 'POST', '/queue/api/v1/jobs', headers => { %anna, Origin => "http://127.0.0.1:$port" }, body => { job_type => 't' }),
		200, "$name: the origin is that of the proxy");
	is(status_of($proxy, 'GET', '/queue/api/v1/jobs', headers => { 'X-User' => 'eve' }), 401, "$name: a client names no user");
	my $all = join ' ', map { status_of($proxy, 'GET', '/queue/livez') } 1 .. 20;
	is($all, join(' ', (200) x 20), "$name: kept connections");
	smuggle($name, $log) if $name ne 'caddy';
	$run->signal('TERM');
	$run->finish;
	return;
}

SKIP:
{
	skip 'no nginx', 7 if !$ENV{JOBQ_FULL} && system('nginx -v 2>/dev/null') != 0;
	append_to_file("$dir/nginx.conf", "daemon off;\npid $dir/nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\nmap \$upstream_status \$sent_on { default 1; '' 0; }\nlog_format sent_on 'sent on: \$request_method \$request_uri';\n"
		  . "access_log /dev/stderr sent_on if=\$sent_on;\n"
		  . join('', map { "${_}_temp_path $dir/$_;\n" } qw(client_body proxy fastcgi uwsgi scgi)) . example('nginx.conf') . "}\n");
	try_proxy('nginx', 'nginx', '-p', $dir, '-e', 'stderr', '-c', "$dir/nginx.conf");
}
SKIP:
{
	skip 'no caddy', 7 if system('caddy version >/dev/null 2>&1') != 0;
	append_to_file("$dir/Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n" . example('Caddyfile'));
	local $ENV{XDG_DATA_HOME} = $dir;
	local $ENV{XDG_CONFIG_HOME} = $dir;
	try_proxy('caddy', 'caddy', 'run', '--config', "$dir/Caddyfile", '--adapter', 'caddyfile');
}

SKIP:
{
	skip 'no haproxy', 7 if !$ENV{JOBQ_FULL} && system('haproxy -v >/dev/null 2>&1') != 0;
	append_to_file("$dir/haproxy.cfg", <<"END");
global
    log stdout format raw local0
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend all
    bind 127.0.0.1:$port
    log global
    log-format "%[var(txn.sent)]%HM %HP"
    http-request del-header X-User
    http-request set-var(txn.sent) str("sent on: ")
    option forwardfor
    default_backend web
backend web
    server web 127.0.0.1:$web->{port}
END
	try_proxy('haproxy', 'haproxy', '-db', '-f', "$dir/haproxy.cfg");
}

is(stop_web($web), 0, 'jobq-web ends');

# ---------- the examples of docs/web-operations.md ----------

my $page = slurp_file("$FindBin::Bin/../../docs/web-operations.md");
$node->safe_psql('postgres', q{SELECT jobq.create_job_type('mail')});
$web = start_web($node);
$proxy = $web;
my @lines = map { split /(?<!\\)\n/ } $page =~ /^```\n(.*?)^```$/msg;
cmp_ok(scalar(grep { /^curl / } @lines), '>=', 2, 'lines of curl');
SKIP:
{
	skip 'no curl', 1 if system('curl --version >/dev/null 2>&1') != 0;
	foreach my $line (@lines)
	{
		my $run = $line =~ s/-u anna/--fail -sS -u anna:a/r =~ s/127\.0\.0\.1:7432/127.0.0.1:$web->{port}/r;

		$run = $run =~ s/\s+#.*//r . ' --check' if $run =~ s/^jobq-web/$ENV{JOBQ_WEB} \/\/ 'jobq-web'/e;
		is(system("sh", "-c", "{ $run; } </dev/null >>$PostgreSQL::Test::Utils::log_path/examples 2>&1"), 0, $line);
	}
}
is($node->safe_psql('postgres', q{SELECT payload FROM jobq.jobs WHERE job_type = 'mail'}), '{"to": "x"}', 'the job of the example');
my ($action) = $page =~ m{`POST /api/v1/bulk (\{.*?\})`}s;
my ($status, $preview) = ask($web, 'POST', '/api/v1/bulk', headers => {%anna}, body => $action);
is("$status $preview->{n}", '200 1', 'the bulk action of the example');
is(stop_web($web), 0, 'it ends');
done_testing();
