# What PostgreSQL's test modules lack on a machine that may stand still for a while: they count the time of a session from
# its start, however long it is idle; query_until forgets what came behind the text it waited for; and a query that psql was
# not given because the server had turned it away ends the test.
package Patience;

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes ();

my %theirs = (
	background_psql => \&PostgreSQL::Test::Cluster::background_psql,
	poll_query_until => \&PostgreSQL::Test::Cluster::poll_query_until,
	quit => \&PostgreSQL::Test::BackgroundPsql::quit);

# Each query, and the end, has all the time.
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

# As theirs, but what comes behind that line is left to who reads on, and a psql that ends is not waited for.
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
	my $found;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $found if eval { $found = $theirs{poll_query_until}->(@args); 1 };
		die $@ unless $@ =~ /Broken pipe/;
		Time::HiRes::usleep(100_000);
	}
	return 0;
}

{
	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::background_psql = \&background_psql;
	*PostgreSQL::Test::Cluster::poll_query_until = \&poll_query_until;
	*PostgreSQL::Test::BackgroundPsql::quit = \&quit;
	*PostgreSQL::Test::BackgroundPsql::query_until = \&query_until;
}

1;
