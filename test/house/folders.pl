# The folders of src/ include and call only folders before them, in the order of the table in src/README.md.  Checked by
# the #include lines of each file and by the symbols of its object file.

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $src = "$FindBin::Bin/../../src";

# Arrows that still run back up, as "folder/file -> folder/file", by their reasons.  The list only gets shorter.
my @known = ();
my %known = map { map { $_ => 1 } @$_ } grep { ref } @known;

# The folders in their order.  Files of src/ itself, except jobq.h, are the last: they may use everything.
my ($table) = slurp_file("$src/README.md") =~ /^## Folders\n(.*?)(?=^## |\z)/ms;
my @order = ($table // '') =~ m{^\| `(\w+)/` }mg;
my %rank = ((map { $order[$_] => $_ } 0 .. $#order), '.' => scalar @order);
my %apart = (helper => 1, sql => 1);
my %exists = map { m{([^/]+)$} ? ($1 => 1) : () } grep { -d } glob("$src/*");

is_deeply([ sort @order ], [ sort grep { !$apart{$_} } keys %exists ], 'src/README.md lists every folder of src/');

# "folder/file" of a path without its extension; folder "." for a file of src/ itself.
sub module
{
	my ($path) = @_;
	my ($folder, $file) = $path =~ m{^(?:\Q$src\E/)?(?:(\w+)/)?(\w+)\.\w+$};

	return ($folder // '.') . "/$file";
}

sub folder { return $_[0] =~ m{^([^/]+)/} ? $1 : die $_[0]; }

# ---------- includes ----------

my %uses;    # module -> modules that it includes or calls
my @wrong;
foreach my $path (sort glob("$src/*.[ch] $src/*/*.[ch]"))
{
	my $from = module($path);

	foreach my $header (slurp_file($path) =~ /^#\s*include "([^"]+)"/mg)
	{
		next if $header eq 'jobq.h' && folder($from) ne 'helper';
		my $to = -e "$src/$header" ? module($header) : -e "$src/helper/$header" && folder($from) eq 'helper' ? module("helper/$header") : undef;

		if (folder($from) eq 'helper')
		{
			push @wrong, "$from includes $header" unless defined $to && folder($to) eq 'helper';
		}
		elsif (defined $to && folder($to) eq 'helper')
		{
			push @wrong, "$from includes $header" unless $to =~ m{/(?:frame|program)$};
		}
		elsif (defined $to)
		{
			$uses{$from}{$to} = 1;
		}
	}
}
is(join("\n", @wrong), '', 'helper/ includes nothing of the server, the server only helper/frame.h and helper/program.h');
is(join(' ', grep { -e "$src/$_" } slurp_file("$src/jobq.h") =~ /^#\s*include "([^"]+)"/mg), 'base/compat.h', 'jobq.h includes base/compat.h only');
cmp_ok(scalar(keys %uses), '>', 100, 'files include headers of other files');

# ---------- symbols ----------

my (%defined_by, %undefined);
my $calls = 0;
my @missing;
foreach my $path (sort glob("$src/*.c $src/*/*.c"))
{
	my $from = module($path);
	my $object = $path =~ s/\.c$/.o/r;

	next if folder($from) eq 'helper';
	if (!-e $object)
	{
		push @missing, $from;
		next;
	}
	my ($symbols) = run_command([ 'nm', $object ]);
	foreach (split /\n/, $symbols)
	{
		$defined_by{$1} = $from if /^[0-9a-f]+ [A-TV-Z] (\w+)$/;
		push @{ $undefined{$from} }, $1 if /^\s+U (\w+)$/;
	}
}
is("@missing", '', 'each file has its object file');
foreach my $from (keys %undefined)
{
	foreach my $to (grep { defined && $_ ne $from } map { $defined_by{$_} } @{ $undefined{$from} })
	{
		$uses{$from}{$to} = 1;
		$calls++;
	}
}
cmp_ok($calls, '>', 1000, 'object files use symbols of other files');

# ---------- arrows that run back up ----------

my (%up, %arrows);
foreach my $from (keys %uses)
{
	foreach my $to (keys %{ $uses{$from} })
	{
		my ($a, $b) = (folder($from), folder($to));

		next if $a eq $b || !defined $rank{$a} || !defined $rank{$b};
		$up{"$from -> $to"} = 1 if $rank{$b} > $rank{$a};
		$arrows{$a}{$b} = 1 unless $known{"$from -> $to"};
	}
}
is(join("\n", sort grep { !$known{$_} } keys %up), '', 'no file uses a folder after its own');
is(join("\n", sort grep { !$up{$_} } keys %known), '', 'each known arrow still occurs');

# ---------- circles ----------

# The folders that a folder reaches.
sub reached
{
	my ($folder) = @_;
	my %seen;
	my @next = keys %{ $arrows{$folder} };

	while (defined(my $to = shift @next))
	{
		push @next, keys %{ $arrows{$to} } unless $seen{$to}++;
	}
	return \%seen;
}
my @circle = sort grep { reached($_)->{$_} } keys %arrows;
is("@circle", '', 'no folders form a circle');

done_testing();
