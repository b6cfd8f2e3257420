# prometheus/jobq.rules.yml and grafana/jobq.json: the unit tests of the rules pass, and fail when a
# rule always or never fires.  A Prometheus with the text of jobq.metrics() evaluates every
# expression of both files, and has data for each.

use strict;
use warnings;

use FindBin;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $top = "$FindBin::Bin/../..";
my $prometheus;
foreach my $program (qw(promtool prometheus))
{
	plan skip_all => "$program is not installed" if !$ENV{JOBQ_FULL} && !grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

# ---------- the rules ----------

my ($rules, $tests) = map { slurp_file("$top/prometheus/$_") } qw(jobq.rules.yml jobq.rules.test.yml);
my @alerts = $rules =~ /^\s+- alert: (\w+)$/mg;
my $dir = PostgreSQL::Test::Utils::tempdir();

# Runs promtool; returns whether it succeeds, and its output.
sub promtool
{
	my $out = '';
	my $ok = IPC::Run::run([ 'promtool', @_ ], '<', '/dev/null', '>&', \$out);

	return ($ok, $out);
}

sub write_rules
{
	unlink "$dir/jobq.rules.yml";
	append_to_file("$dir/jobq.rules.yml", $_[0]);
}

# Runs the unit tests with this text of the rules.
sub test_rules
{
	write_rules($_[0]);
	return promtool('test', 'rules', "$dir/jobq.rules.test.yml");
}

my ($ok, $out) = promtool('check', 'rules', "$top/prometheus/jobq.rules.yml");
ok($ok, 'promtool check rules') or diag $out;
append_to_file("$dir/jobq.rules.test.yml", $tests);
($ok, $out) = test_rules($rules);
ok($ok, 'promtool test rules') or diag $out;
cmp_ok(scalar(@alerts), '>=', 9, 'alerts');
foreach my $alert (@alerts)
{
	foreach my $expr ('vector(1)', 'vector(0) > 1')
	{
		my $other = $rules =~ s/(- alert: $alert\n\s+expr: ).*?(?=\n        (?:for|labels):)/$1$expr/sr;

		($ok, $out) = test_rules($other);
		ok($other ne $rules && !$ok && $out =~ /expr: "ALERTS\{alertname=\\"$alert\\"/, "the unit tests notice $alert as $expr") or diag $out;
	}
}

# ---------- a server with everything ----------

my $node = jobq_server('prometheus', 'jobq.max_sql_workers = 2', 'fsync = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION noop(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
SELECT jobq.create_job_type('works', 'noop(jsonb)'), jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 2, backoff_base => '1ms'),
       jobq.create_job_type('held', 'noop(jsonb)', max_concurrent => 3);
SELECT jobq.pause_job_type('held', 'test');
SELECT jobq.enqueue(t) FROM unnest('{works,fails,held}'::text[]) t;
END

sub scalar_of { return $node->safe_psql('postgres', $_[0]); }

# Returns the metrics when so many jobs have ended and the values that are read at times are there.
sub scrape
{
	my ($ended) = @_;

	wait_for_sql($node, "SELECT sum(completed + died) = $ended AND max(due) > 0 FROM jobq.stat_job_types", "$ended jobs have ended");
	wait_for_sql($node, q{SELECT jobq.metrics() ~ 'jobq_health\{'}, 'maintenance has read its values');
	return scalar_of(q{SELECT jobq.metrics('openmetrics')});
}

my $before = scrape(2);
scalar_of(q{SELECT jobq.enqueue(t) FROM unnest('{works,fails,held}'::text[]) t, generate_series(1, 20)});
my $after = scrape(42);

# The names in annotations are those of the extension.
my %names = map { $_ => 1 } $rules =~ s/^\s*#.*//mgr =~ /\bjobq\.(\w+)/g;
my %known = map { $_ => 1 } split /\n/, scalar_of(<<'END');
SELECT proname FROM pg_proc WHERE pronamespace = 'jobq'::regnamespace
UNION SELECT relname FROM pg_class WHERE relnamespace = 'jobq'::regnamespace
UNION SELECT split_part(name, '.', 2) FROM pg_settings WHERE name LIKE 'jobq.%'
UNION SELECT 'keep_' FROM pg_settings WHERE name LIKE 'jobq.keep\_%'
END
is(join(' ', grep { !$known{$_} } sort keys %names), '', 'annotations name what there is');
cmp_ok(scalar(keys %names), '>', 10, scalar(keys %names) . ' names');

# ---------- a Prometheus with its text ----------

my $now = time;

# Returns the samples of a text for each of these minutes before now.
sub stamped
{
	my ($text, $from, $to) = @_;
	my $samples = $text =~ s/^# EOF\n*//mr =~ s/\n*\z/\n/r;

	return map { my $at = $now - 60 * $_; $samples =~ s/^([^#\n].*)$/$1 $at/mgr } reverse $to .. $from;
}

append_to_file("$dir/history", join('', stamped($before, 90, 5), stamped($after, 4, 0), "# EOF\n"));
($ok, $out) = promtool('tsdb', 'create-blocks-from', 'openmetrics', "$dir/history", "$dir/data");
ok($ok, 'the text of jobq.metrics() is a history') or diag $out;

write_rules($rules);
append_to_file("$dir/prometheus.yml", "global: {evaluation_interval: 1s}\nrule_files: [jobq.rules.yml]\n");
my $port = PostgreSQL::Test::Cluster::get_free_port();
$prometheus = IPC::Run::start([ 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data",
	"--web.listen-address=127.0.0.1:$port" ], '<', '/dev/null', '>', "$dir/log", '2>&1');
my $http = HTTP::Tiny->new(timeout => 30);

# Calls the API of Prometheus; returns the data of its answer.
sub api
{
	my ($path, $form) = @_;
	my $url = "http://127.0.0.1:$port/api/v1/$path";
	my $answer = $form ? $http->post_form($url, $form) : $http->get($url);

	diag "$path: $answer->{content}" if $answer->{status} =~ /^4/;
	return $answer->{success} ? decode_json($answer->{content})->{data} : {};
}

# Returns the samples of an expression that are numbers.
sub samples
{
	my ($expr) = @_;
	my $data = api('query', { query => $expr, time => $now });

	return grep { $_->{value}[1] ne 'NaN' } @{ $data->{result} // [] };
}

# Waits until each rule has been evaluated; returns them.
sub evaluated_rules
{
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my @found = map { @{ $_->{rules} } } @{ api('rules')->{groups} // [] };

		return @found if @found && !grep { $_->{health} eq 'unknown' } @found;
		select undef, undef, undef, 0.1;
	}
	diag slurp_file("$dir/log");
	return ();
}

my @rules = evaluated_rules();
is_deeply([ map { $_->{name} } @rules ], \@alerts, 'Prometheus has the rules');
is(join(' ', map { $_->{lastError} // () } @rules), '', 'and can evaluate them');
foreach my $rule (@rules)
{
	like($rule->{labels}{severity}, qr/^(?:critical|warning|info)$/, "$rule->{name}: severity");
	is(join(' ', sort keys %{ $rule->{annotations} }), 'action description summary', 'annotations');
}

# ---------- the dashboard ----------

my $board = decode_json(slurp_file("$top/grafana/jobq.json"));
my @panels = grep { $_->{type} ne 'row' } @{ $board->{panels} };
my %variables = map { $_->{name} => $_ } @{ $board->{templating}{list} };
is(join(' ', sort keys %variables), 'datasource instance job_type', 'variables');
my (%ids, %cells, @overlaps);
foreach my $panel (@{ $board->{panels} })
{
	my $place = $panel->{gridPos};

	$ids{ $panel->{id} }++;
	foreach my $x ($place->{x} .. $place->{x} + $place->{w} - 1)
	{
		push @overlaps, "$x,$_" foreach grep { $x > 23 || $cells{"$x $_"}++ } $place->{y} .. $place->{y} + $place->{h} - 1;
	}
}
is(scalar(keys %ids), scalar(@{ $board->{panels} }), 'each panel has an id of its own');
is("@overlaps", '', 'panels do not overlap');
is(join(' ', grep { $_ ne '${datasource}' } map { $_->{uid} } map { ($_->{datasource}, map { $_->{datasource} } @{ $_->{targets} }) } @panels),
	'', 'all read the chosen data source');
my ($expr, $label) = $variables{job_type}{query}{query} =~ /^label_values\((.*), (\w+)\)$/;
is(join(' ', sort map { $_->{metric}{$label} } samples($expr =~ s/\$instance/.*/r)), 'fails held works', 'values of $job_type');
is($variables{instance}{query}{query}, 'label_values(jobq_dispatcher_up, instance)', 'the query of $instance');

# ---------- data ----------

# What a rule compares, without the comparisons with numbers and a family that is to be absent.
my %expressions = map { ("alert $_->{name}" => $_->{query} =~ s/\s*(?:[<>]=?|==|!=)\s*[\d.]+//gr =~ s/ unless \w+$//r) } @rules;
foreach my $panel (@panels)
{
	my $n = 0;

	$expressions{ "panel $panel->{title} " . ++$n } = $_->{expr} =~ s/\$__rate_interval/10m/gr =~ s/\$\w+/.*/gr foreach @{ $panel->{targets} };
}
cmp_ok(scalar(keys %expressions), '>', 40, scalar(keys %expressions) . ' expressions');
my %selectors;
foreach my $name (sort keys %expressions)
{
	ok(scalar(samples($expressions{$name})), "data for $name") or diag $expressions{$name};
	$selectors{$_} = 1 foreach $expressions{$name} =~ /\bjobq_\w+(?:\{[^}]*\})?/g;
}
is(join("\n", grep { !samples($_) } sort keys %selectors), '', scalar(keys %selectors) . ' selectors have data');
my %families = map { s/_bucket$//r => 1 } map { /^(\w+)/ } keys %selectors;
is(join(' ', grep { !$families{$_} } scalar_of('SELECT jobq.metrics()') =~ /^# TYPE (\w+)/mg), '', 'the files use every family');
is(scalar(() = samples('jobq_no_such_family')), 0, 'no data for another name');

# JobqDispatcherDown tells a primary without a dispatcher from a standby by its series of workers.
$node->append_conf('postgresql.conf', "jobq.databases = '-'");
$node->reload;
wait_for_sql($node, q{SELECT jobq.metrics() ~ '\njobq_dispatcher_up 0\n'}, 'the dispatcher has gone');
like(scalar_of('SELECT jobq.metrics()'), qr/^jobq_workers\{kind="pull",state="busy"\} 0$/m, 'and the series that shows it are there');

$prometheus->signal('TERM');
$prometheus->finish;
$prometheus = undef;
$node->stop;
done_testing();

END
{
	my $rc = $?;

	$prometheus->kill_kill if $prometheus;
	$? = $rc;
}
