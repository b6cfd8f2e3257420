# What is written in more than one place says the same: versions, files that are named, rules of the install script.

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

for my $file (qw(README.md CONTRIBUTING.md src/README.md docs/architecture.md docs/performance.md docs/pressure.md docs/retention.md docs/health.md docs/events.md docs/outcomes.md bench/README.md))
{
	my ($dir) = $file =~ m{^(.*/)};
	$dir //= '';
	my @missing = grep { !m{^https?:} && !-e "$top/$dir$_" } slurp_file("$top/$file") =~ /\]\(([^)#]+)(?:#[^)]*)?\)/g;
	is("@missing", '', "what $file links to exists");
}

for my $part (sort glob("$top/src/sql/*.sql"))
{
	my $sql = slurp_file($part);
	$sql =~ s/--.*$//mg;
	my ($name) = $part =~ m{([^/]+)$};
	my @bad = $sql =~ /(CREATE\s+OR\s+REPLACE[^(]*|CREATE\s[\w\s]*\bIF\s+NOT\s+EXISTS[^(]*)/gi;
	is("@bad", '', "$name adopts nobody's object");
}

done_testing();
