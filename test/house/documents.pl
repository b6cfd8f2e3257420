# The size of documents: a README.md in each folder of src/, a short architecture, lines that fit an editor.

use strict;
use warnings;
use Encode qw(decode);
use File::Find;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/../..";
my $columns = 100;

sub lines_of { return split /\n/, decode('UTF-8', slurp_file($_[0])); }

foreach my $folder (sort grep { -d } glob("$top/src/*"))
{
	my ($name) = $folder =~ m{([^/]+)$};
	my $readme = "$folder/README.md";

	ok(-e $readme && lines_of($readme) <= 40, "src/$name has a README.md of at most 40 lines");
}
cmp_ok(scalar(lines_of("$top/docs/architecture.md")), '<=', 200, 'docs/architecture.md has at most 200 lines');

# Code blocks and rows of tables can't be wrapped.
my @long;
find({ no_chdir => 1, wanted => sub {
	$File::Find::prune = 1 if m{/(?:build|expected|results|node_modules)$};
	return unless -f && /\.md$/;
	my ($name, $n, $code) = ($File::Find::name =~ s{^\Q$top\E/}{}r, 0, 0);
	foreach (lines_of($File::Find::name))
	{
		$n++;
		$code = !$code if /^\s*```/;
		push @long, "$name:$n" if !$code && !/^(?:    |\t|\|)/ && length > $columns;
	}
} }, grep { -e } map { "$top/$_" } qw(src docs test bench examples README.md CONTRIBUTING.md CHANGELOG.md));
is(join("\n", @long), '', "lines of documents have at most $columns columns");

done_testing();
