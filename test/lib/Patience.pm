# Changes PostgreSQL's test modules for machines that stall at times.  Theirs count the time of a
# session from its start, idle time included; their query_until loses the output behind the awaited
# text; and a query that psql could not take, because the server had refused the connection, ends
# the test.  Ordinary SQL goes through KeptPsql.  A file has JOBQ_FILE_LIMIT seconds, 900 without
# that variable; 0 is no limit.
package Patience;

use strict;
use warnings;

use KeptPsql;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More ();
use Time::HiRes ();

my %theirs = (
	background_psql => \&PostgreSQL::Test::Cluster::background_psql,
	poll_query_until => \&PostgreSQL::Test::Cluster::poll_query_until,
	quit => \&PostgreSQL::Test::BackgroundPsql::quit);

# Each query, and quit, has the full timeout.
sub background_psql
{
	my $session = $theirs{background_psql}->(@_);

	$session->set_query_timer_restart;
	return $session;
}

sub quit
{
	my ($session) = @_;

	$session->{timeout}->start;
	return $theirs{quit}->($session);
}

# As theirs, but output behind that line stays for later reads, and an ended psql is an error at
# once.
sub query_until
{
	my ($session, $until, $query) = @_;

	$session->{timeout}->start;
	$session->{stdin} .= $query;
	pump_until($session->{run}, $session->{timeout}, \$session->{stdout}, $until);
	$session->{stdout} =~ s/\A(.*?$until[^\n]*\n?)//s
	  or die "psql has not said $until: $session->{stdout}$session->{stderr}";
	return $1;
}

sub poll_query_until
{
	my @args = @_;
	my ($node, undef, $query) = @args;
	my $found;

	return KeptPsql::poll_query_until(@args) unless KeptPsql::own_psql($node, $query);

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $found if eval { $found = $theirs{poll_query_until}->(@args); 1 };
		die $@ unless $@ =~ /Broken pipe/;
		Time::HiRes::usleep(100_000);
	}
	return 0;
}

# Ends a file that lasts too long; its nodes stop as at each end.
sub limit_file
{
	my ($seconds) = @_;

	$SIG{ALRM} = sub {
		Test::More::diag("$0 has lasted for $seconds s, the limit of a file (JOBQ_FILE_LIMIT)");
		$SIG{ALRM} = 'DEFAULT';
		alarm 300;
		exit 1;
	};
	alarm $seconds;
	return;
}

limit_file($ENV{JOBQ_FILE_LIMIT} // 900);

{
	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::background_psql = \&background_psql;
	*PostgreSQL::Test::Cluster::poll_query_until = \&poll_query_until;
	*PostgreSQL::Test::BackgroundPsql::quit = \&quit;
	*PostgreSQL::Test::BackgroundPsql::query_until = \&query_until;
}

1;
