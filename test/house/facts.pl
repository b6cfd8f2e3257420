# Facts that are written in several places agree: versions, names of files,
# rules of the install script.

use strict;
use warnings;
use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::Bin/../..";
my $meta = decode_json(slurp_file("$top/META.json"));

# PGXN Meta Spec 1.0.0
ok(defined $meta->{$_}, "META.json has $_")
  for qw(name abstract version maintainer license provides meta-spec);
like($meta->{version}, qr/^\d+\.\d+\.\d+$/, 'its version is a semantic one');
is($meta->{'meta-spec'}{version}, '1.0.0', 'its meta-spec is 1.0.0');
is($meta->{license}, 'postgresql', 'its license is a known one');
like($meta->{release_status}, qr/^(stable|testing|unstable)$/, 'its release_status is a known one');
is_deeply([ keys %{ $meta->{provides} } ], ['jobq'], 'it provides jobq');
my $provided = $meta->{provides}{jobq};
is($provided->{version}, $meta->{version}, 'at its version');
ok(-f "$top/$provided->{$_}", "its $_ exists") for qw(file docfile);
is(scalar(grep { $_ ne 'requires' && $_ ne 'recommends' && $_ ne 'suggests' && $_ ne 'conflicts' }
		map { keys %$_ } values %{ $meta->{prereqs} }), 0, 'its prereqs are of known kinds');

like(slurp_file("$top/jobq.control"), qr/^default_version = '\Q$meta->{version}\E'$/m, 'jobq.control has that version');
like(slurp_file("$top/src/jobq.h"), qr/^#define JOBQ_VERSION\s+"\Q$meta->{version}\E"$/m, 'and jobq.h');
like(slurp_file("$top/CHANGELOG.md"), qr/^## \Q$meta->{version}\E\b/m, 'and CHANGELOG.md');

# Links: the files exist, and so do the headings.
sub headings
{
	my ($file) = @_;

	return map { my $h = lc; $h =~ s/[^\w\s-]//g; $h =~ tr/ /-/; $h => 1 } slurp_file($file) =~ /^#+ (.*)$/mg;
}

for my $path ("$top/README.md", "$top/CONTRIBUTING.md", "$top/src/README.md", "$top/bench/README.md", "$top/test/README.md",
	sort glob("$top/docs/*.md $top/docs/reference/*.md $top/src/*/README.md $top/examples/*/README.md $top/clients/*/README.md $top/test/clients/README.md"))
{
	my ($dir, $file) = $path =~ m{^(\Q$top\E/(?:.*/)?)(.*)$};
	my $text = slurp_file($path);
	my @missing;

	while ($text =~ /\]\(([^)#]*)(?:#([^)]*))?\)/g)
	{
		my ($file, $heading) = ($1, $2);
		my $to = $file eq '' ? $path : "$dir$file";

		next if $file =~ m{^https?:};
		push @missing, $file . (defined $heading ? "#$heading" : '')
		  if !-e $to || (defined $heading && !{ headings($to) }->{$heading});
	}
	is("@missing", '', ($path =~ s{^\Q$top\E/}{}r) . ' links to existing files and headings');
	ok($file eq 'README.md' || $path !~ m{/docs/[^/]+$} || slurp_file("$top/README.md") =~ m{\(docs/\Q$file\E\)}, "README.md links to $file");
}

# Files that docs/architecture.md and the READMEs of src/ name exist, and a function named with its
# file is in it.  A file without its folder is one of src/.
my %source;
push @{ $source{ (m{([^/]+)$})[0] } }, $_ foreach grep { -f && /\.(?:c|h|sql|js|awk|md)$/ } glob("$top/src/* $top/src/*/* $top/src/*/*/*");
my @wrong;
for my $path ("$top/docs/architecture.md", "$top/src/README.md", sort glob("$top/src/*/README.md $top/src/*/*/README.md"))
{
	my ($dir) = $path =~ m{^(.*)/};

	foreach my $name (map { s/\s+/ /gr } slurp_file($path) =~ /(?<!`)`([^`]+)`/g)
	{
		push @wrong, ($path =~ s{^\Q$top\E/}{}r) . ": $_" foreach grep {
			!/OLD|NEW|VERSION/ && !($source{$_} || grep { -e } "$top/$_", "$top/src/$_", "$top/docs/$_", "$dir/$_")
		} $name =~ m{([\w./-]+\.(?:c|h|sql|js|awk))\b}g;
		my ($file, $function) = $name =~ m{^(?:[\w/]+/)?(\w+\.c): (\w+)$} or next;
		push @wrong, ($path =~ s{^\Q$top\E/}{}r) . ": $name" if !grep { slurp_file($_) =~ /^\Q$function\E\(/m } @{ $source{$file} // [] };
	}
}
cmp_ok(scalar(keys %source), '>', 300, 'files of src/ are known');
is(join("\n", @wrong), '', 'the files and functions that docs/architecture.md and the READMEs of src/ name exist');

# The page that the reference links for an option of job types describes it
# (test/reference.pl compares the rest).
my ($known) = slurp_file("$top/src/registry/option_keys.c") =~ /^static const OptionKey option_keys\[\] = \{(.*?)^\};/ms;
my ($options) = slurp_file("$top/docs/reference/job-types.md") =~ /^## Options\n(.*)/ms;
my %page_of = $options =~ /^- `(\w+)` \((?:(?!^- ).)*\]\(([\w.\/]+)(?:#[\w-]*)?\)$/msg;
is(join(' ', sort keys %page_of), join(' ', sort $known =~ /^\t\{"(\w+)"/mg), 'the reference links a page for each option');
foreach my $key (sort keys %page_of)
{
	ok(slurp_file("$top/docs/reference/$page_of{$key}") =~ /`(?:options\.)?$key\b|"$key"/, "option $key: is on its page");
}

for my $part (sort glob("$top/src/sql/*.sql"))
{
	my $sql = slurp_file($part);
	$sql =~ s/--.*$//mg;
	my ($name) = $part =~ m{([^/]+)$};
	my @bad = $sql =~ /(CREATE\s+OR\s+REPLACE[^(]*|CREATE\s[\w\s]*\bIF\s+NOT\s+EXISTS[^(]*)/gi;
	is("@bad", '', "$name never adopts an existing object");
}

# Each function that the documentation calls exists (jobq_internal._name stands for any);
# columns of tables look alike.
my %created = map { map { $_ => 1 } slurp_file($_) =~ /^CREATE (?:FUNCTION|TABLE|VIEW) (jobq(?:_internal)?\.\w+)/mg } glob("$top/src/sql/*.sql");
my %functions = map { /^jobq\.(\w+)$/ ? ($1 => 1) : () } keys %created;
cmp_ok(scalar keys %created, '>', 150, 'the install script creates functions and tables');
is(join(' ', grep { /^jobq\._|^jobq_internal\.[^_]/ } sort keys %created), '', 'those with an underscore in schema jobq_internal');
for my $path ("$top/README.md", "$top/CHANGELOG.md", sort glob("$top/docs/*.md $top/docs/reference/*.md"))
{
	my @unknown = grep { !$created{$_} && $_ ne 'jobq_internal._name' } slurp_file($path) =~ /\b(jobq(?:_internal)?\.\w+)\(/g;

	is("@unknown", '', ($path =~ s{^\Q$top\E/}{}r) . ' calls functions that exist');
}
# The table of accesses names functions without their schema.
my ($accesses) = slurp_file("$top/docs/security.md") =~ /^\| access \| may call.*?\n\n/ms ? $& : '';
my @named = map { s/\(s\)//r } $accesses =~ /`(\w+(?:\(s\))?)`/g;
cmp_ok(scalar @named, '>', 20, 'docs/security.md has a table of accesses');
is(join(' ', grep { !$functions{$_} && !/^(?:enqueue|work|read|admin)$/ } @named), '', 'which names functions that exist');

# Test files are named after the folder that they test, so that a change of a folder names its
# tests.
my @folders = (map { m{([^/]+)$} } grep { -d } glob("$top/src/*"));
my %numbers;
for my $path (glob("$top/test/tap/*.pl"))
{
	my ($number, $name) = $path =~ m{/(\d{3})_(\w+)\.pl$};

	ok(defined $name && !$numbers{$number}++, "$path has a number of its own");
	ok(scalar(grep { $name =~ /^\Q$_\E_./ } @folders), "$path is named after a folder of src/");
}
for my $path (glob("$top/test/isolation/specs/*.spec"))
{
	my ($name) = $path =~ m{([^/]+)$};

	ok(scalar(grep { my $folder = tr/_/-/r; $name =~ /^\Q$folder\E-[^_]+$/ } @folders), "$name is named after a folder of src/, with dashes");
}
# test/README.md lists the libraries with their subs.
my $tests = slurp_file("$top/test/README.md");
for my $path (sort glob("$top/test/lib/*.pm"))
{
	my ($library) = $path =~ m{([^/]+)$};
	my ($row) = $tests =~ /^\| `\Q$library\E` \|(.*)$/m;
	my ($exports) = slurp_file($path) =~ /^our \@EXPORT = qw\((.*?)\)/ms;

	is(join(' ', grep { !/^\$/ && ($row // '') !~ /`$_`/ } split ' ', $exports // ''), '', "test/README.md lists the subs of $library");
}
cmp_ok(scalar(split(/\n/, $tests)), '<=', 60, 'test/README.md has at most 60 lines');

# Bodies of functions are read with the session's standard_conforming_strings: a backslash is
# always the same in E'' only.
my @strings;
for my $path (glob("$top/src/sql/*.sql"), glob("$top/src/sql/upgrade/*.sql"))
{
	my $n = 0;

	foreach (split /\n/, slurp_file($path))
	{
		$n++;
		next if /^\s*(?:--|\\)/;
		while (/(E?)'((?:[^']|'')*)'/g) { push @strings, "$path:$n" if !$1 && $2 =~ /\\/; }
	}
}
is(join("\n", @strings), '', "a backslash in the install script stands in E''");

# clock_timestamp() is volatile: a condition on it finds nothing by index, unless it is a
# subquery.  Statements of PL/pgSQL compare variables.
my @conditions;
for my $path (glob("$top/src/sql/*.sql"), glob("$top/src/*/*.c"))
{
	my $n = 0;

	foreach (split /\n/, slurp_file($path))
	{
		$n++;
		next if /^\s*(?:--|\*|IF\b|ELSIF\b|EXIT\b)/;
		push @conditions, "$path:$n" if /[<>]=?\s*(?:pg_catalog\.)?clock_timestamp\(\)|(?<!SELECT )(?:pg_catalog\.)?\bclock_timestamp\(\)\s*[<>]/;
	}
}
is(join("\n", @conditions), '', 'conditions on the clock are (SELECT clock_timestamp())');

done_testing();
