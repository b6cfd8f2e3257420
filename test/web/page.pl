# The page of jobq-web in a browser: page.mjs says what is tested.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my ($chromium) = grep { -x } map { "$_/chromium" } split /:/, $ENV{PATH};
plan skip_all => 'chromium is not installed' unless $chromium || $ENV{JOBQ_FULL};
-e "$ENV{JOBQ_NODE_WEB}/playwright-core" or BAIL_OUT('test/deps has not installed playwright-core: make deps');

my $node = web_node('page', 'max_connections = 100');
$node->safe_psql('postgres', slurp_file("$FindBin::Bin/page.sql"));
$node->safe_psql('postgres', "CREATE ROLE $_ LOGIN PASSWORD 'p'; SELECT jobq.grant_access('$_', a) FROM unnest('{admin,work,enqueue}'::text[]) a")
  foreach qw(ann ben eve);
$node->safe_psql('postgres', "CREATE ROLE tim LOGIN PASSWORD 'p'; SELECT jobq.grant_access('tim', a, tenant => 'acme') FROM unnest('{admin,enqueue}'::text[]) a");
$node->safe_psql('postgres', "CREATE ROLE guest LOGIN PASSWORD 'p'; SELECT jobq.grant_access('guest', 'read', tenant => 'acme')");
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $psql = [ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-h', $node->host, '-p', $node->port, '-d', 'postgres' ];
my %gate = (in => "SELECT pg_advisory_lock(77), 'closed';\n", out => '');
$gate{run} = IPC::Run::start($psql, '<', \$gate{in}, '>', \$gate{out});
$gate{run}->pump until $gate{out} =~ /closed/;
$node->safe_psql('postgres', q{SELECT jobq.enqueue('transcode', '{"file": "a.mov"}', tenant => 'acme') FROM generate_series(1, 3)});
foreach (
	[ 7, "jobs WHERE job_type = 'invoice' AND status = 'error'" ], [ 2, "jobs WHERE job_type = 'sync' AND status = 'retry'" ],
	[ 1, "jobs WHERE job_type = 'transcode' AND status = 'running'" ], [ 1, "workflow_runs WHERE status = 'error'" ],
	[ 2, "jobs WHERE task_key = 'approval' AND status = 'blocked'" ])
{
	wait_for_sql($node, "SELECT count(*) = $_->[0] FROM jobq.$_->[1]", "$_->[0] $_->[1]");
}

my $web = start_web($node);
run_node(
	{   url => "http://127.0.0.1:$web->{port}/", chromium => $chromium, pictures => "$PostgreSQL::Test::Utils::log_path/page", psql => $psql,
		pg_ctl => [ 'pg_ctl', '-D', $node->data_dir, '-l', $node->logfile, '-w' ] },
	"$FindBin::Bin/page.mjs");
$gate{in} .= "\\q\n";
$gate{run}->finish;
is(stop_web($web), 0, 'jobq-web ends');
done_testing();
