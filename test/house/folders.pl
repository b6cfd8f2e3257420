# The folders of src/ include and call only folders before them, in the order of the table in
# src/README.md, and few files of a folder call each other in a circle.  Checked by the #include
# lines of each file and by the symbols of its object file.

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $src = "$FindBin::Bin/../../src";

# Arrows that still run back up, as "folder/file -> folder/file", by their
# reasons.  The list only gets shorter.
my @known = ();
my %known = map { map { $_ => 1 } @$_ } grep { ref } @known;

# The folders in their order.  Files of src/ itself, except jobq.h, are the
# last: they may use everything.
my ($table) = slurp_file("$src/README.md") =~ /^## Folders\n(.*?)(?=^## |\z)/ms;
my @order = ($table // '') =~ m{^\| `(\w+)/` }mg;
my %rank = ((map { $order[$_] => $_ } 0 .. $#order), '.' => scalar @order);
my %apart = (helper => 1, web => 1, top => 1, sql => 1);
my %programs = (helper => 1, web => 1, top => 1);
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
		next if $header eq 'jobq.h' && !$programs{ folder($from) };
		my $own = folder($from) . "/$header";
		my $to = -e "$src/$header" ? module($header) : $programs{ folder($from) } && -e "$src/$own" ? module($own) : undef;

		if (folder($from) eq 'helper')
		{
			push @wrong, "$from includes $header" unless defined $to && folder($to) eq 'helper';
		}
		elsif (folder($from) eq 'web')
		{
			push @wrong, "$from includes $header" unless defined $to && $to =~ m{^web/|^helper/(?:json|utf8)$};
		}
		elsif (folder($from) eq 'top')
		{
			push @wrong, "$from includes $header" unless defined $to && $to =~ m{^top/|^helper/utf8$};
		}
		elsif (defined $to && folder($to) =~ /^(?:web|top)$/)
		{
			push @wrong, "$from includes $header";
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
is(join("\n", @wrong), '', 'helper/, web/ and top/ include nothing of the server, the server only helper/frame.h and helper/program.h');
is(join(' ', grep { -e "$src/$_" } slurp_file("$src/jobq.h") =~ /^#\s*include "([^"]+)"/mg), 'base/compat.h', 'jobq.h includes base/compat.h only');
cmp_ok(scalar(keys %uses), '>', 100, 'files include headers of other files');

# ---------- symbols ----------

# Files of the programs and of the library use symbols of the same name.
sub program { return $programs{ folder($_[0]) } ? folder($_[0]) : 'library'; }

# make leaves jobq-web out where libmicrohttpd is missing, and jobq-top without libpq.
my %left_out = map { $_ => !-e "$src/../build/src/$_/main.o" } qw(web top);

my (%defined_by, %undefined, %calls);    # %calls: module -> modules that it calls
my $calls = 0;
my @missing;
foreach my $path (sort glob("$src/*.c $src/*/*.c"))
{
	my $from = module($path);
	my $object = $path =~ s/\.c$/.o/r;

	next if $left_out{ folder($from) };
	$object =~ s{^\Q$src\E}{$src/../build/src} if $programs{ folder($from) };
	if (!-e $object)
	{
		push @missing, $from;
		next;
	}
	my ($symbols) = run_command([ 'nm', $object ]);
	foreach (split /\n/, $symbols)
	{
		$defined_by{ program($from) }{$1} = $from if /^[0-9a-f]+ [A-TV-Z] (\w+)$/;
		push @{ $undefined{$from} }, $1 if /^\s+U (\w+)$/;
	}
}
is("@missing", '', 'each file has its object file');
foreach my $from (keys %undefined)
{
	foreach my $to (grep { defined && $_ ne $from } map { $defined_by{ program($from) }{$_} } @{ $undefined{$from} })
	{
		$uses{$from}{$to} = $calls{$from}{$to} = 1;
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

# The nodes that a node reaches.
sub reached
{
	my ($graph, $node) = @_;
	my %seen;
	my @next = keys %{ $graph->{$node} };

	while (defined(my $to = shift @next))
	{
		push @next, keys %{ $graph->{$to} } unless $seen{$to}++;
	}
	return \%seen;
}
my @circle = sort grep { reached(\%arrows, $_)->{$_} } keys %arrows;
is("@circle", '', 'no folders form a circle');

# The circles of a graph: sets of nodes that reach each other, the largest first, each as a line.
sub circles
{
	my ($graph) = @_;
	my %reached = map { $_ => reached($graph, $_) } keys %$graph;
	my %circle;

	foreach my $node (grep { $reached{$_}{$_} } keys %reached)
	{
		my @members = sort grep { $reached{$_} && $reached{$_}{$node} } keys %{ $reached{$node} };
		$circle{"@members"} = @members;
	}
	return sort { $circle{$b} <=> $circle{$a} || $a cmp $b } keys %circle;
}
is_deeply([ circles({ a => { b => 1 }, b => { c => 1, d => 1 }, c => { a => 1 }, d => { e => 1 }, e => { d => 1 }, f => { a => 1 } }) ],
	[ 'a b c', 'd e' ], 'circles of a graph');

# Files that call each other in a circle can be understood only together: four at most.  A file that
# includes the header of another for its types calls nothing.
my $most = 4;
my %inside;
foreach my $from (keys %calls)
{
	$inside{$from}{$_} = 1 foreach grep { folder($_) eq folder($from) } keys %{ $calls{$from} };
}
cmp_ok(scalar(grep { m{^helper/} } keys %inside), '>', 10, 'files of helper/ call each other');
my @circles = circles(\%inside);
note "circle: $_" foreach @circles;
is(join("\n", grep { split(' ') > $most } @circles), '', "no more than $most files of a folder form a circle");

done_testing();
