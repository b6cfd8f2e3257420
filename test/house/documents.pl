# The size of documents: a README.md in each folder of src/, a short architecture; lines of
# documents and of comments that fit an editor.

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
} }, grep { -e } map { "$top/$_" } qw(src clients docs test bench examples README.md CONTRIBUTING.md CHANGELOG.md));
is(join("\n", @long), '', "lines of documents have at most $columns columns");

# Comments of the source.  A comment of C behind code counts with its line, which may be longer.
my $code_columns = 110;

# The columns of a line, with tabs of four.
sub columns { my $line = shift; 1 while $line =~ s/^([^\t]*)\t/$1 . ' ' x (4 - length($1) % 4)/e; return length $line; }

# The numbers of the lines whose comment is too long.
sub long_comments
{
	my ($path, @lines) = @_;
	my $stars = $path =~ /\.(?:[ch]|m?[jt]s)$/;
	my ($n, $inside, @found) = (0, 0);

	foreach (@lines)
	{
		$n++;
		my $whole = $stars ? $inside || m{^\s*(?:/\*|//)} : $path =~ /\.sql$/ ? /^\s*--/ : /^\s*#/ || $path =~ /\.(?:pl|t)$/ && /^\s*--\s/;
		my $code = s/"(?:[^"\\]|\\.)*"//gr;

		push @found, $n if columns($_) > ($whole ? $columns : $stars && $code =~ m{/\*.*\*/\s*$} ? $code_columns : 1_000);
		$inside = $inside ? $code !~ m{\*/} : $code =~ m{/\*(?!.*\*/)} if $stars;
	}
	return @found;
}
my ($fits, $over) = ('x' x ($columns - 8), 'x' x ($columns - 1));
is_deeply([ long_comments('a.c', "/* $fits */", "/* $fits 234 */", '/*', " * $over", " */", "int\tx; /* $fits */", "int x;\t\t/* $fits 15 */") ],
	[ 2, 4, 7 ], 'long comments of C');
is_deeply([ long_comments('a.sql', "-- $over", "SELECT '$over'; -- x") ], [ 1 ], 'of SQL');
is_deeply([ long_comments('a.pl', "# $over", "\t# $fits 2345", "-- $over", "say '$over'; # x") ], [ 1, 2, 3 ], 'of Perl');

my ($files, @long_comments) = (0);
find({ no_chdir => 1, wanted => sub {
	$File::Find::prune = 1 if m{/(?:build|expected|results|corpus|node_modules|__pycache__)$} || m{/jobq--[^/]*$};
	return unless -f && (/\.(?:[ch]|sql|spec|pl|pm|t|sh|py|mjs|mts|mk)$/ || m{/(?:Makefile|jobq-worker)$} || -x && slurp_file($_) =~ /^#!/);
	return if /\.(?:o|so)$/;
	$files++;
	push @long_comments, map { ($File::Find::name =~ s{^\Q$top\E/}{}r) . ":$_" } long_comments($_, lines_of($_));
} }, grep { -e } map { "$top/$_" } qw(src clients docs sql test bench examples .ci Makefile));
cmp_ok($files, '>', 500, "$files files have comments");
is(join("\n", @long_comments), '', "lines of comments have at most $columns columns, those with code before $code_columns");

done_testing();
