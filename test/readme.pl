# The examples of README.md and docs/: runs every sql block of a page in one session, in a database of the page's own,
# and compares what it prints with the text block that follows it.

use strict;
use warnings;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/..";
my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
# A slow machine is not what makes a queue unhealthy.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq'\nmax_worker_processes = 40\njobq.health_latency = '10s'");
$node->start;

# [{sql, expected}, ...]; blocks in other languages are not for this test
sub blocks_of
{
	my ($page) = @_;
	my @blocks;

	while ($page =~ /^```(\w*)\n(.*?)^```$/msg)
	{
		my ($language, $text) = ($1, $2);
		if ($language eq 'sql') { push @blocks, { sql => $text, expected => '' }; }
		elsif ($language eq 'text' && @blocks) { $blocks[-1]{expected} = $text; }
	}
	return @blocks;
}

sub tidy
{
	my $text = shift;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

sub check_page
{
	my ($name, $database, @blocks) = @_;
	my $script = "\\pset footer off\n" . join('', map { "\\echo == block $_\n$blocks[$_]{sql}" } 0 .. $#blocks);
	my ($stdout, $stderr) = ('', '');

	my $ok = IPC::Run::run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', '-' ],
		'<', \$script, '>', \$stdout, '2>', \$stderr);
	ok($ok, "$name: every command runs");
	is($stderr, '', "$name: without a warning");
	my %printed = $stdout =~ /^== block (\d+)\n(.*?)(?=^== block |\z)/msg;
	for my $i (0 .. $#blocks)
	{
		my ($first) = $blocks[$i]{sql} =~ /\A(.*)/;
		is(tidy($printed{$i} // 'it did not run'), tidy($blocks[$i]{expected}), "$name: $first");
	}
	return;
}

my ($tutorial) = slurp_file("$top/README.md") =~ /^## Five minutes\n(.*?)^## /ms or die "README.md has no tutorial";
my @tutorial = blocks_of($tutorial);
ok(@tutorial > 5, 'the tutorial has blocks');
check_page('README.md', 'postgres', @tutorial);

for my $file (sort glob("$top/docs/*.md"))
{
	my ($name) = $file =~ m{([^/]+)\.md$};
	my @blocks = blocks_of(slurp_file($file)) or next;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, 'CREATE EXTENSION jobq');
	check_page("docs/$name.md", $name, @blocks);
}

$node->stop;
done_testing();
