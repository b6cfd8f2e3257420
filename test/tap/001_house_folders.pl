# The folders of src/ include and call only folders before them, in the order of the table in src/README.md.  Checked by
# the #include lines of each file and by the symbols of its object file.

use strict;
use warnings;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $src = "$FindBin::Bin/../../src";

# Arrows that still run back up, as "folder/file -> folder/file", by their reasons.  The list only gets shorter.
my @known = (
	'base uses constants and helpers of later folders' => [
		'base/errors -> registry/job_types',
		'base/guc -> maintenance/beyond_horizon',
		'base/job_id -> tables/queue_table',
		'base/job_status -> tables/queue_table',
		'base/relations -> registry/job_types',
		'base/texts -> settle/settle',
	],
	'hooks of the executor notify handlers and run_inline' => [
		'lifecycle/statement_hooks -> sql_worker/handler',
		'lifecycle/statement_hooks -> sql_worker/handler_api',
		'lifecycle/statement_hooks -> sql_worker/inline_session',
		'lifecycle/statement_hooks -> sql_worker/inline_triggers',
	],
	'not separated yet' => [
		'enqueue/ceilings -> settle/backoff',
		'enqueue/enqueue_request -> maintenance/disk_watch',
		'enqueue/enqueue_request -> sql_worker/handler',
		'enqueue/enqueue_request -> sql_worker/handler_api',
		'enqueue/quota -> maintenance/disk_watch',
		'lifecycle/ddl_hook -> registry/job_types',
		'lifecycle/release -> registry/job_types',
		'registry/job_types -> tables/row_map',
		'security/grants -> tables/database_identity',
		'security/grants -> tables/queue_table',
		'security/grants -> tables/row_map',
		'security/tenant_check -> tables/row_map',
		'shared/breaker -> settle/breaker_news',
		'shared/breaker -> settle/settle',
		'shared/dispatcher_request -> lifecycle/launcher',
		'tables/partition -> maintenance/maintenance',
	],
	'parts of the dispatcher, not separated yet' => [
		'lanes/lanes -> limits/concurrency_keys',
		'lanes/lanes -> limits/tenant_limit',
		'lanes/queue_scan -> limits/concurrency_keys',
		'lanes/queue_scan -> limits/tenant_limit',
		'lanes/ready_queue -> limits/type_state',
		'lanes/wait_queues -> limits/type_state',
		'limits/concurrency_keys -> workers/executor_pool',
		'limits/kill_switch -> sql_worker/handler',
		'limits/rate_window -> workers/executor_pool',
		'limits/tenant_limit -> workers/executor_pool',
		'limits/type_state -> maintenance/maintenance_schedule',
		'limits/weight -> workers/executor_pool',
		'pressure/pressure_rules -> dispatch/admission',
		'workers/executor_pool -> dispatch/inbox',
		'workers/executor_results -> dispatch/inbox',
		'workers/worker_pool -> dispatch/inbox',
	],
	'the list of checked table shapes names the shape of each table' => [
		'tables/row_map -> enqueue/quota',
		'tables/row_map -> enqueue/quota_rows',
		'tables/row_map -> limits/job_limit',
		'tables/row_map -> limits/kill_switch',
		'tables/row_map -> pressure/pressure_rules',
		'tables/row_map -> settle/alerts',
		'tables/row_map -> settle/hook_references',
		'tables/row_map -> settle/settle_writes',
	],
	'the size of shared memory includes parts of later folders' => [
		'shared/shmem -> enqueue/quota',
		'shared/shmem -> limits/rate_window',
	],
);
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
