# The README's tutorial: runs every sql block of "Five minutes" in one session and compares what it prints with
# the text block that follows it.

use strict;
use warnings;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $readme = slurp_file("$FindBin::Bin/../README.md");
my ($tutorial) = $readme =~ /^## Five minutes\n(.*?)^## /ms or die "README.md has no tutorial";

my @blocks;
while ($tutorial =~ /^```(\w*)\n(.*?)^```$/msg)
{
	my ($language, $text) = ($1, $2);
	if ($language eq 'sql') { push @blocks, { sql => $text, expected => '' }; }
	elsif ($language eq 'text' && @blocks) { $blocks[-1]{expected} = $text; }
	else { die "a block of the tutorial is neither sql nor its output: $text"; }
}
ok(@blocks > 5, 'the tutorial has blocks');

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq'\nmax_worker_processes = 20");
$node->start;

my $script = "\\pset footer off\n" . join('', map { "\\echo == block $_\n$blocks[$_]{sql}" } 0 .. $#blocks);
my ($stdout, $stderr) = ('', '');
my $ok = IPC::Run::run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ],
	'<', \$script, '>', \$stdout, '2>', \$stderr);
ok($ok, 'every command runs');
is($stderr, '', 'without a warning');

sub tidy
{
	my $text = shift;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

my %printed = $stdout =~ /^== block (\d+)\n(.*?)(?=^== block |\z)/msg;
for my $i (0 .. $#blocks)
{
	my ($first) = $blocks[$i]{sql} =~ /\A(.*)/;
	is(tidy($printed{$i} // 'it did not run'), tidy($blocks[$i]{expected}), $first);
}

$node->stop;
done_testing();
