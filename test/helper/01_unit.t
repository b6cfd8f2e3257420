# The unit tests (unit/*.c): each program is one subtest here.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use HelperTest;
use Test::More;

for my $program (HelperTest::unit_tests())
{
	my ($name) = $program =~ m{([^/]+)$};
	my $output = `'$program' 2>&1`;
	my $status = $?;
	my $failed = () = $output =~ /^not ok/mg;
	ok($status == 0 && $output =~ /^1\.\.\d+$/m, $name) or diag($output =~ s/^ok .*\n//mgr, "wait status $status, $failed failed");
}

# The imported symbols show that it uses no server, no shell, and no clock that can be set.
SKIP:
{
	my $symbols = `nm -D '$HELPER' 2>/dev/null`;
	skip 'no nm, or built with sanitizers', 1 if $? != 0 || $symbols eq '' || HelperTest::is_sanitized();
	my @unwanted = $symbols =~ /\bU ((?:PQ\w+|system|popen|time|gettimeofday|sleep|usleep|pthread_create|execvp|execlp|getenv|tmpnam))(?:@|$)/mg;
	is("@unwanted", '', 'needs no shell, no wall clock, no thread, no environment');
}

done_testing();
