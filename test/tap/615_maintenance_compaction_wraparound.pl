# Compaction and a standby at the wraparound of 32-bit transaction ids: conflicts, the fence and
# the horizon compare full ones.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_primary('primary', "jobq.compact_beyond_horizon = 'on'");

sub value { return $node->safe_psql('postgres', $_[0]); }

# Consumes that many xids.
sub burn
{
	my ($n) = @_;

	return value("DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END \$\$");
}

value('ALTER DATABASE template0 ALLOW_CONNECTIONS true');
advance_to($node, $_) foreach 1_500_000_000, 3_000_000_000, 2**32 - 9000;
$node->safe_psql($_, 'VACUUM FREEZE') foreach qw(template0 template1 postgres);

hold_horizon($node);
my $standby = standby_of($node, 'standby', { has_streaming => 1 }, 'hot_standby_feedback = off');
foreach my $round ('before', 'across', 'after')
{
	my ($reader, $other);

	value('TRUNCATE ran');
	work_off($node, 1500, sub
		{
			caught_up($node, $standby);
			($reader, $other) = map { session($standby, $takes_snapshot) } 1 .. 2;
			burn(9000) if $round eq 'across';
		});
	caught_up($node, $standby);
	is(value('SELECT pg_current_xact_id()::text::numeric >= 2^32'), $round eq 'before' ? 'f' : 't', "$round: where we are");
	is(answer($reader, $every_job), '40001', "!$round: the fence stops an older snapshot");
	is(answer($other, 'SELECT n FROM unrelated'), '1 00000', "$round: and no other read");
	$_->quit foreach $reader, $other;
	is($standby->safe_psql('postgres', $every_job), 1500, "!$round: a new session has every job");
}

# --- without the fence: the conflict's xid

set_beyond($node, 'auto');
value("ROLLBACK PREPARED 'held'");
value('TRUNCATE ran');
my $reader = work_off($node, 1500, sub { caught_up($node, $standby); return session($standby, $takes_snapshot); });
caught_up($node, $standby);
is(answer($reader, $every_job), 'terminated', '!a conflict cancels an older snapshot');
$reader->{run}->kill_kill;
is($standby->safe_psql('postgres', $every_job), 1500, '!a new session has every job');
$_->stop foreach $standby, $node;
done_testing();
