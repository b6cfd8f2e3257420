# Subjects of commits: at most 72 columns.  test/run lists the commits since this test; without a
# repository, as in a release archive, there are none.

use strict;
use warnings;
use FindBin;
use Test::More;

my $list = "$FindBin::Bin/../../commits";
my @commits;
if (open my $file, '<:encoding(UTF-8)', $list)
{
	chomp(@commits = readline($file));
	close $file;
}
is(join("\n", grep { /^\w+ .{73,}/ } @commits), '', scalar(@commits) . ' commits: each subject has at most 72 columns');
done_testing();
