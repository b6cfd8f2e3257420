# The language of comments and documents: processes, rows and roles are things, not people.  Counts
# words for people in comments of all languages, COMMENT ON and documents, per 1,000 words.

use strict;
use warnings;
use File::Find;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 0.5;    # words per 1,000
my $top = "$FindBin::Bin/../..";
my $people = qr/\b(?:who|whoever|whom|nobody|somebody|anybody|everybody|he|his|him|mend(?:s|ed|ing)?)\b(?!')/i;

# What is text for readers in a file of each kind.
sub text_of
{
	my ($path, $source) = @_;

	return join "\n", $source =~ m{/\*.*?\*/}gs if $path =~ /\.[ch]$/;
	return join "\n", $source =~ m{(?:^|\s)//.*}mg if $path =~ /\.mjs$/;
	return join "\n", $source =~ /(?:^|\s)--(?:\s.*)?$/mg, $source =~ /^\s*#.*/mg, $source =~ /^COMMENT ON.*?;$/msg if $path =~ /\.(?:sql|spec)$/;
	return $source =~ s/^```.*?^```//msgr if $path =~ /\.md$/;
	return join "\n", $source =~ /(?:^|\s)#[^!\{].*/mg, $path =~ /\.py$/ ? $source =~ /""".*?"""/gs : (),
	  $path =~ /\.(?:pl|pm|t)$/ ? $source =~ /^\s*--\s.*/mg : ();
}

# The numbers of words, and those for people.
sub counted
{
	my ($text) = @_;

	return (scalar(() = $text =~ /[A-Za-z']+/g), scalar(() = $text =~ /$people/g));
}

is_deeply([ counted(text_of('x.c', "/* Who waits\n * for him? */ int who;\n")) ], [ 4, 2 ], 'comments of C');
is_deeply([ counted(text_of('x.sql', "SELECT who; -- mended\nCOMMENT ON TABLE t IS 'his own';\n")) ], [ 8, 2 ], 'comments of SQL');
is_deeply([ counted(text_of('x.pl', "#!/usr/bin/perl\nsub whom { \$#he; }    # the one who\n-- somebody\n")) ], [ 4, 2 ], 'comments of Perl');
is_deeply([ counted(text_of('x.py', "def who():\n    \"\"\"Mends it.\"\"\"\n")) ], [ 2, 1 ], 'comments of Python');
is_deeply([ counted(text_of('x.md', "Everybody\n```\nwho\n```\nreads, when he can\n")) ], [ 5, 2 ], 'documents');

my @files;
find({ no_chdir => 1, wanted => sub {
	$File::Find::prune = 1 if m{/(?:build|expected|results|corpus|node_modules)$};
	push @files, $File::Find::name
	  if -f && (/\.(?:[ch]|sql|spec|md|pl|pm|t|sh|py|mjs|mk)$/ || m{/(?:Makefile|run|deps|format|archive|assert-server|cgroup-vm)$});
} }, grep { -e } map { "$top/$_" } qw(src clients docs test sql bench examples .ci README.md CONTRIBUTING.md CHANGELOG.md Makefile));

my (%words, %found);
my ($words, $found) = (0, 0);
foreach my $path (@files)
{
	my $name = $path =~ s{^\Q$top\E/}{}r;
	next if $name =~ m{^jobq--|/jobq--};    # generated
	my $source = slurp_file($path);

	($words{$name}, $found{$name}) = counted(text_of($path, $source));
	$words += $words{$name};
	$found += $found{$name};
}
cmp_ok($words, '>', 50_000, "$words words are read");
my @worst = grep { $found{$_} > 0 } sort { $found{$b} <=> $found{$a} || $a cmp $b } keys %found;
splice @worst, 20 if @worst > 20;
my $rate = 1000 * $found / $words;
note sprintf '%d of %d words are words for people: %.2f per 1,000', $found, $words, $rate;
cmp_ok($rate, '<=', $limit, 'words for people per 1,000 words')
  or diag join "\n", map { "$found{$_} of $words{$_} in $_" } @worst;

done_testing();
