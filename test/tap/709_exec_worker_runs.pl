# jobq.jobs.runs counts starts of tools and never falls: a tool that is yet to
# start, or cannot be, is no run.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = jobq_node('exec_runs', "jobq.sweep_interval = '100ms'");
sub one { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub state_of { my ($id) = @_; return one("SELECT concat_ws(' ', status, runs) FROM jobq.jobs WHERE id = '$id'"); }
sub reaches { my ($id, $state, $what) = @_; return ok($node->poll_query_until('postgres', "SELECT concat_ws(' ', status, runs) = '$state' FROM jobq.jobs WHERE id = '$id'"), $what); }

my $gate = tools() . '/gate';
my $missing = tools() . '/missing';
define_tool($node, 'waits', [ '/bin/sh', '-c', "while [ ! -e $gate ]; do sleep 0.05; done" ], options => q{'{"output": "none"}'});
define_tool($node, 'missing', [$missing], options => q{'{"output": "none"}'}, max_attempts => 5);
define_tool($node, 'warm', [ '/bin/sh', '-c', q{while read line; do id=${line#*\"id\": \"}; id=${id#*\"id\":\"}; id=${id%%\"*}; echo "{\"id\": \"$id\", \"result\": 1}"; done} ],
	options => q{'{"warm": 1}'});
system('touch', $gate);
is(run_job($node, 'waits')->{runs}, 1, 'a tool that has run');
unlink $gate;

# The helper is stopped: rows are claimed, no tool starts.
my $worker = one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'");
my ($helper) = grep { (eval { slurp_file("/proc/$_/stat") } // '') =~ /^\d+ \(jobq-helper.*\) \S $worker / }	# any process may end meanwhile
  map { m{/proc/(\d+)/} } grep { -r } glob '/proc/[0-9]*/stat';
ok($helper, 'the helper');
kill 'STOP', $helper;
my %id = map { $_ => enqueue($node, $_) } qw(waits missing);
reaches($id{$_}, 'running 0', "$_: claimed, and no run before its tool starts") foreach sort keys %id;
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.jobs');
my $seen = "SELECT concat_ws(' ', status, runs) FROM jobq.jobs WHERE id = '%s'";
kill 'CONT', $helper;
reaches($id{waits}, 'running 1', 'a run when it has started');
reaches($id{missing}, 'pending 0', 'none when it cannot start');
is($reader->query_safe(sprintf $seen, $id{missing}), 'running 0', 'nor for a snapshot of before');
$reader->quit;
system('touch', $gate);
reaches($id{waits}, 'completed 1', 'nor more when it has ended');
tool('missing', "#!/bin/sh\n");
reaches($id{missing}, 'completed 1', 'one that can start at last has run once');

# A warm tool's instance takes its next job without a message.
is(run_job($node, 'warm')->{runs}, 1, 'a warm tool') foreach 1, 2;

$node->stop;
done_testing();
