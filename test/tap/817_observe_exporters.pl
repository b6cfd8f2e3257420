# How jobq.metrics() gets to Prometheus: prometheus-postgres-exporter with
# prometheus/postgres_exporter.yml has the same samples; a Prometheus that scrapes both formats
# sees a dispatcher's death, and no counter that falls.

use strict;
use warnings;

use FindBin;
use HTTP::Tiny;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my @started;
my $http = HTTP::Tiny->new(timeout => 30);
my $node = jobq_server('exporters', 'jobq.max_sql_workers = 2', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE scraper LOGIN IN ROLE pg_monitor;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
SELECT jobq.create_job_type('works', 'noop(jsonb)'), jobq.create_job_type('fails "\', 'fails(jsonb)', max_attempts => 2, backoff_base => '1ms'),
       jobq.create_job_type('held', 'noop(jsonb)', max_concurrent => 3, rate_limit => 5);
SELECT jobq.pause_job_type('held', 'test'), jobq.set_limit('api', 5), jobq.set_tenant_quota('acme', max_running => 1);
SELECT jobq.enqueue(t) FROM unnest('{works,held}'::text[]) t;
SELECT jobq.enqueue('fails "\'), jobq.enqueue('held', delay => '1h');
END
wait_for_sql($node, q{SELECT sum(completed + died) = 2 AND max(due) = 1 FROM jobq.stat_job_types}, 'jobs have ended and wait');
wait_for_sql($node, q{SELECT jobq.metrics() ~ 'jobq_disk_used_ratio\{'}, 'maintenance has read its values');

sub one { return $node->safe_psql('postgres', $_[0]); }

# True if the program is there; without it the test is skipped, but fails in the full run.
sub have { return $ENV{JOBQ_FULL} || grep { -x "$_/$_[0]" } split /:/, $ENV{PATH}; }

# Returns the content of a URL when it is there.
sub content
{
	my ($url) = @_;
	my $answer;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$answer = $http->get($url);
		return $answer->{content} if $answer->{success};
		select undef, undef, undef, 0.1;
	}
	die "$url: $answer->{content}";
}

# Returns the samples of the families as a hash; those of queries without the label of the exporter.
sub samples_of
{
	my ($text) = @_;

	return { map { s/,?server="[^"]*"//r =~ s/\{\}//r =~ /^(jobq_\S.*\}|jobq_\S+) (\S+)$/ ? (normal($1) => $2 + 0) : () } grep { !/^#/ } split /\n/, $text };
}

# A sample's name with its labels in order.
sub normal
{
	my ($family, $labels) = $_[0] =~ /^(\w+)(?:\{(.*)\})?$/;

	return join ' ', $family, sort(($labels // '') =~ /\w+="(?:[^"\\]|\\.)*"/g);
}

# ---------- custom queries ----------

SKIP:
{
	skip 'prometheus-postgres-exporter is not installed', 1 if !have('prometheus-postgres-exporter');
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $file = "$FindBin::Bin/../../prometheus/postgres_exporter.yml";
	local $ENV{DATA_SOURCE_NAME} = 'host=' . $node->host . ' port=' . $node->port . ' user=scraper dbname=postgres sslmode=disable';
	push @started, IPC::Run::start([ 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port", "--extend.query-path=$file",
		'--disable-default-metrics', '--disable-settings-metrics' ],
		'<', '/dev/null', '>', \my $log, '2>&1');
	my $found = samples_of(content("http://127.0.0.1:$port/metrics"));
	my %families = map { s/ .*//r => 1 } keys %$found;
	my $expected = samples_of(one('SELECT jobq.metrics()'));
	my %wanted = map { $_ => $expected->{$_} } grep { $families{s/ .*//r} } keys %$expected;

	# what grows between the two reads
	delete @$_{ grep { /^jobq_(?:queue_oldest_seconds|dispatcher_loops_total|horizon_held_seconds)/ } keys %$_ } foreach $found, \%wanted;
	is_deeply($found, \%wanted, 'the samples of the exporter are those of jobq.metrics()') or diag $log;
	my $rules = slurp_file("$FindBin::Bin/../../prometheus/jobq.rules.yml") =~ s/^\s*#.*//mgr;
	my %needed = map { $_ => 1 } $rules =~ /\b(jobq_\w+)/g;
	is(join(' ', grep { !$families{$_} } sort keys %needed), '', 'the families of the rules are among them');
}

# ---------- a Prometheus across a dispatcher's death ----------

# Serves both formats, each by its path, in a process of its own; returns its port.
sub serve
{
	my $server = IO::Socket::INET->new(Listen => 10, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die $!;
	my $pid = fork // die $!;
	my %types = (prometheus => 'text/plain; version=0.0.4', openmetrics => 'application/openmetrics-text; version=1.0.0; charset=utf-8');

	if ($pid != 0)
	{
		push @started, $pid;
		return $server->sockport;
	}
	while (my $client = $server->accept)
	{
		my ($format) = (<$client> // '') =~ m{^GET /(\w+) };
		while (defined(my $line = <$client>)) { last if $line =~ /^\r?\n$/; }
		my $ok = IPC::Run::run([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' user=scraper', '-c', "SELECT jobq.metrics('$format')" ],
			'<', '/dev/null', '>', \my $text, '2>', \my $error);
		$text =~ s/\n\n\z/\n/;	# psql's own end of line: nothing may follow # EOF
		print $client "HTTP/1.0 ", $ok ? '200 OK' : '500 Error', "\r\nContent-Type: $types{$format}\r\n\r\n", $ok ? "$text" : $error;
		close $client;
	}
	exit 0;
}

my $prometheus;

# Returns the value of an expression for each format, in the order of their names.
sub values_of
{
	my ($expr) = @_;
	my $answer = $http->post_form("http://127.0.0.1:$prometheus/api/v1/query", { query => "sort_desc(sum by (job) ($expr))" });
	my %found = $answer->{success} ? map { $_->{metric}{job} => $_->{value}[1] } @{ decode_json($answer->{content})->{data}{result} } : ();

	return join ' ', map { "$_ $found{$_}" } sort keys %found;
}

sub reaches
{
	my ($expr, $n, $what) = @_;
	my $found = '';

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$found = values_of($expr);
		last if $found eq "openmetrics $n prometheus $n";
		select undef, undef, undef, 0.1;
	}
	return is($found, "openmetrics $n prometheus $n", $what);
}

SKIP:
{
	skip 'prometheus is not installed', 1 if !have('prometheus');
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $port = serve();
	$prometheus = PostgreSQL::Test::Cluster::get_free_port();
	append_to_file("$dir/prometheus.yml", "global: {scrape_interval: 1s}\nscrape_configs:\n" . join '',
		map { "- {job_name: $_, metrics_path: /$_, static_configs: [{targets: ['127.0.0.1:$port']}]}\n" } qw(openmetrics prometheus));
	push @started, IPC::Run::start([ 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data",
		"--web.listen-address=127.0.0.1:$prometheus" ], '<', '/dev/null', '>', \my $log, '2>&1');
	reaches('jobq_dispatcher_up', 1, 'both formats are scraped') or diag $log;
	reaches('jobq_jobs_total{type="works",status="completed"}', 1, 'with a counter');
	one(q{ALTER SYSTEM SET jobq.databases = '-'});
	kill 'TERM', wait_dispatcher($node, 'postgres', 'the dispatcher');
	$node->reload;
	reaches('jobq_dispatcher_up', 0, 'its death is seen');
	one(q{SELECT jobq.enqueue('works')});
	reaches('jobq_queue_depth{type="works",state=~"waiting|delayed"}', 1, 'a job waits');
	one(q{ALTER SYSTEM RESET jobq.databases});
	$node->reload;
	reaches('jobq_dispatcher_up', 1, 'the next dispatcher is seen');
	reaches('jobq_jobs_total{type="works",status="completed"}', 2, 'the counter goes on');
	my @counters = one('SELECT jobq.metrics()') =~ /^# TYPE (jobq_\w+) counter$/mg;
	is(values_of("resets($_\[1h])"), 'openmetrics 0 prometheus 0', "$_ has not fallen") foreach grep { !/schedule/ } @counters;
	is(values_of('min_over_time(up[1h])'), 'openmetrics 1 prometheus 1', 'and no scrape has failed');
}

foreach my $process (@started)
{
	ref $process ? $process->kill_kill : kill 'KILL', $process;
}
$node->stop;
done_testing();
