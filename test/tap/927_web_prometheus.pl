# A Prometheus scrapes jobq-web: by Basic, by Basic over TLS, and at metrics_listen; a target with a
# wrong password is not up.  Of a full run: JOBQ_FULL.

use strict;
use warnings;

use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use WebTest;

plan skip_all => 'JOBQ_FULL is not set' unless $ENV{JOBQ_FULL};

my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = web_node('scraped');
$node->safe_psql('postgres', <<'END');
CREATE ROLE scraper LOGIN PASSWORD 's';
GRANT pg_monitor TO scraper;
SELECT jobq.grant_access('scraper', 'read');
SELECT jobq.create_job_type('mail');
SELECT jobq.enqueue('mail') FROM generate_series(1, 3);
END
append_to_file("$dir/passfile", "*:*:*:scraper:s\n");
chmod 0600, "$dir/passfile";
is(system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout $dir/key -out $dir/cert 2>/dev/null"), 0, 'a certificate');

my ($port, $metrics) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
my $dsn = 'host=' . $node->host . ' port=' . $node->port . " dbname=postgres user=scraper passfile=$dir/passfile";
my $plain = start_web($node, dsn => $dsn, metrics_listen => "127.0.0.1:$metrics");
my $tls = start_web($node, tls_cert => "$dir/cert", tls_key => "$dir/key");
append_to_file("$dir/prometheus.yml", <<"END");
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: basic
    basic_auth: {username: scraper, password: s}
    static_configs: [{targets: ['127.0.0.1:$plain->{port}']}]
  - job_name: tls
    scheme: https
    basic_auth: {username: scraper, password: s}
    tls_config: {ca_file: $dir/cert}
    static_configs: [{targets: ['127.0.0.1:$tls->{port}']}]
  - job_name: listen
    static_configs: [{targets: ['127.0.0.1:$metrics']}]
  - job_name: wrong
    basic_auth: {username: unknown, password: wrong}
    static_configs: [{targets: ['127.0.0.1:$tls->{port}']}]
    scheme: https
    tls_config: {ca_file: $dir/cert}
END
my $prometheus = IPC::Run::start([ 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data", "--web.listen-address=127.0.0.1:$port" ],
	'<', '/dev/null', '>', "$PostgreSQL::Test::Utils::log_path/prometheus.log", '2>&1');
END { local $?; $prometheus->kill_kill if $prometheus; }

# The values of an expression by job.
sub values_of
{
	my ($expression) = @_;
	my $answer = HTTP::Tiny->new(timeout => 30)->post_form("http://127.0.0.1:$port/api/v1/query", { query => $expression });
	my $data = $answer->{success} ? decode_json($answer->{content})->{data} : { result => [] };

	return { map { $_->{metric}{job} => $_->{value}[1] } @{ $data->{result} } };
}

# Waits until Prometheus gives these values for an expression.
sub becomes
{
	my ($expression, $expected, $what) = @_;
	my $found;

	foreach (1 .. 900)
	{
		$found = values_of($expression);
		last if join(' ', %$found{sort keys %$found}) eq join(' ', %$expected{sort keys %$expected});
		select undef, undef, undef, 0.1;
	}
	return is_deeply($found, $expected, $what);
}

becomes('up', { basic => 1, tls => 1, listen => 1, wrong => 0 }, 'targets with the right password are up');
becomes('jobq_jobs_enqueued_total{type="mail"}', { map { $_ => 3 } qw(basic tls listen) }, 'with the numbers of jobs');
$node->safe_psql('postgres', q{SELECT jobq.enqueue('mail')});
becomes('jobq_jobs_enqueued_total{type="mail"}', { map { $_ => 4 } qw(basic tls listen) }, 'which follow');
is_deeply(values_of('count by (job) ({__name__=~"jobq_.+"}) > 50'), values_of('count by (job) ({__name__=~"jobq_.+",job!="wrong"})'), 'all of jobq.metrics()');
my $targets = decode_json(HTTP::Tiny->new->get("http://127.0.0.1:$port/api/v1/targets")->{content})->{data}{activeTargets};
is(join(' ', map { $_->{lastError} } grep { $_->{scrapePool} ne 'wrong' } @$targets), '  ', 'no scrape has an error');
like((grep { $_->{scrapePool} eq 'wrong' } @$targets)[0]{lastError}, qr/401|429/, 'but that with a wrong password');

# The server restarts: the targets come back without help.
$node->restart;
becomes('up', { basic => 1, tls => 1, listen => 1, wrong => 0 }, 'they are up again after a restart of the server');

$prometheus->signal('TERM');
$prometheus->finish;
undef $prometheus;
is(stop_web($_), 0, 'jobq-web ends') foreach $plain, $tls;
done_testing();
