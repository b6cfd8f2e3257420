
# Tools of a server in cgroups: where they are, which memory limit an error names, and that
# the server's end leaves none.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $base = $ENV{JOBQ_TEST_CGROUP}
  or plan skip_all => 'no cgroup of version 2 is ours: root must run the tests, and that hierarchy be mounted and writable';
my $node = jobq_node('cgroup', "jobq.tool_cgroup = '$base'");

my $sysid = $node->safe_psql('postgres', 'SELECT to_hex(system_identifier) FROM pg_control_system()');
define_tool($node, 'where', [ 'sed', '-n', 's/^0:://p', '/proc/self/cgroup' ], options => q('{"output": "text"}'));
my $where = run_job($node, 'where')->{result};
like($where, qr{/jobq-$sysid-run-\d+-\w+/\d+\n$}, q(a tool is in a cgroup with the server's name));
$node->wait_for_log(qr/jobq-helper: tools run in cgroups below "\Q$base\E"/);

SKIP:
{
	skip 'this hierarchy has no memory controller', 4 unless slurp_file("$base/cgroup.controllers") =~ /\bmemory\b/;
	my $error = sub {
		my ($type, $script) = @_;
		define_tool($node, $type, [ '/usr/bin/perl', '-e', $script ], options => q('{"memory_max": "64MB", "output": "none"}'));
		my $e = run_job($node, $type);
		return join ' ', $e->{status}, grep { defined } @$e{qw(error_code error_msg)};
	};
	my $hit = 'error signal:KILL terminated by signal KILL: memory limit of 64 MB exceeded';
	is($error->('one', 'my @x; push @x, "y" x 100_000 while 1'), $hit, 'memory_max');
	is($error->('all', 'my $n = 40e6; fork; my $x = "y" x $n; sleep 60'), $hit, 'memory_max of all of its processes');
	is($error->('fails', 'exit 4'), 'error exit:4 exited with code 4', 'not hit');
	is($error->('fits', 'my $n = 40e6; my $x = "y" x $n'), 'completed', 'enough');
}

$node->stop;
my $tries = 10 * $PostgreSQL::Test::Utils::timeout_default;
my @left;
Time::HiRes::usleep(100_000) while (@left = glob "$base/jobq-$sysid-*") && $tries-- > 0;	# the helper ends slightly later
is_deeply(\@left, [], 'the end of the server leaves none');
done_testing();
