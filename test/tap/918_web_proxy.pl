# jobq-web behind nginx and Caddy, as in examples/web: a path prefix, bodies, a header that clients
# may not set.  Each is skipped where it is not installed.

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
	is(status_of($proxy, 'POST', '/queue/api/v1/jobs', headers => { %anna, Origin => "http://127.0.0.1:$port" }, body => { job_type => 't' }),
		200, "$name: the origin is that of the proxy");
	is(status_of($proxy, 'GET', '/queue/api/v1/jobs', headers => { 'X-User' => 'eve' }), 401, "$name: a client names no user");
	my $all = join ' ', map { status_of($proxy, 'GET', '/queue/livez') } 1 .. 20;
	is($all, join(' ', (200) x 20), "$name: kept connections");
	$run->signal('TERM');
	$run->finish;
	return;
}

SKIP:
{
	skip 'no nginx', 6 if system('nginx -v 2>/dev/null') != 0;
	append_to_file("$dir/nginx.conf", "daemon off;\npid $dir/nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
		  . join('', map { "${_}_temp_path $dir/$_;\n" } qw(client_body proxy fastcgi uwsgi scgi)) . example('nginx.conf') . "}\n");
	try_proxy('nginx', 'nginx', '-p', $dir, '-e', 'stderr', '-c', "$dir/nginx.conf");
}
SKIP:
{
	skip 'no caddy', 6 if system('caddy version >/dev/null 2>&1') != 0;
	append_to_file("$dir/Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n" . example('Caddyfile'));
	local $ENV{XDG_DATA_HOME} = $dir;
	local $ENV{XDG_CONFIG_HOME} = $dir;
	try_proxy('caddy', 'caddy', 'run', '--config', "$dir/Caddyfile", '--adapter', 'caddyfile');
}

is(stop_web($web), 0, 'jobq-web ends');
done_testing();
