# The size of documents: a README.md in each folder of src/, a short architecture.

use strict;
use warnings;
use Encode qw(decode);
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/../..";

sub lines_of { return split /\n/, decode('UTF-8', slurp_file($_[0])); }

foreach my $folder (sort grep { -d } glob("$top/src/*"))
{
	my ($name) = $folder =~ m{([^/]+)$};
	my $readme = "$folder/README.md";

	ok(-e $readme && lines_of($readme) <= 40, "src/$name has a README.md of at most 40 lines");
}
cmp_ok(scalar(lines_of("$top/docs/architecture.md")), '<=', 200, 'docs/architecture.md has at most 200 lines');

done_testing();
