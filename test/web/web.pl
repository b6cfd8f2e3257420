# The contract of jobq-web: openapi.json passes the linter, every documented status of every
# operation is produced and valid, and arguments made from the schemas find no other.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

my $modules = $ENV{JOBQ_NODE_WEB};
my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = web_node('web', 'max_connections = 100');
my @fuzzers = map { "fuzz$_" } 1 .. 7;
$node->safe_psql('postgres', <<'END' . join "\n", map { "CREATE ROLE $_ LOGIN PASSWORD 'p'; SELECT jobq.grant_access('$_', a) FROM unnest('{admin,work,enqueue}'::text[]) a;" } 'boss', 'anna', @fuzzers);
CREATE ROLE guests LOGIN PASSWORD 'g';
SELECT jobq.create_job_type('pull', max_attempts => 2), jobq.create_job_type('lease'), jobq.create_job_type('never');
SELECT jobq.enqueue('lease', '{"n": 1}', tenant => 'acme') FROM generate_series(1, 5);
INSERT INTO jobq.alerts (severity, title, message) VALUES ('high', 't', 'm');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

my $fake = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$dir/passfile", "*:*:*:guests:g\n");
chmod 0600, "$dir/passfile";
my %web = (
	main => start_web($node),
	crowded => start_web($node),
	proxied => start_web($node, trusted_proxy => '127.0.0.1', proxy_user_header => 'X-User', roles => 'eve=guests',
		dsn => 'host=' . $node->host . ' port=' . $node->port . " dbname=postgres passfile=$dir/passfile"),
	refused => start_web(undef, dsn => "host=127.0.0.1 port=$fake dbname=x sslmode=disable gssencmode=disable"));
my %config = (user => 'boss', password => 'p', second => [ 'anna', 'p' ], fake => $fake, fuzzers => \@fuzzers, map { $_ => $web{$_}{port} } keys %web);

# ---------- the linter ----------

my ($status, $document) = ask($web{main}, 'GET', '/api/v1/openapi.json', headers => { basic('boss', 'p') });
is($status, 200, 'openapi.json');
append_to_file("$dir/openapi.json", JSON::PP->new->canonical->pretty->encode($document));
like(run_node(\%config, "$modules/\@redocly/cli/bin/cli.js", 'lint', '--config', "$FindBin::Bin/redocly.yaml", "$dir/openapi.json"),
	qr/Your API description is valid/, 'redocly has no objection');

# ---------- the programs ----------

run_node(\%config, "$FindBin::Bin/statuses.mjs");
$config{names} = {
	jobs => [ split /\n/, $node->safe_psql('postgres', 'SELECT id FROM jobq.jobs LIMIT 100') ],
	texts => [ split /\n/, $node->safe_psql('postgres', "SELECT name FROM jobq.job_types UNION SELECT unnest('{acme,f1,f2,f3}'::text[])") ] };
$config{seed} = seed();
run_node(\%config, "$FindBin::Bin/fuzz.mjs");
$config{answers} = delete $ENV{JOBQ_ANSWERS};
run_node(\%config, "$FindBin::Bin/answers.mjs") if $config{answers} && glob "$config{answers}/*";
is(stop_web($_), 0, 'jobq-web ends') foreach values %web;
done_testing();
