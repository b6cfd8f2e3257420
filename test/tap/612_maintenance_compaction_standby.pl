# Compaction and standbys, by default: a session there sees all rows of
# its snapshot, or gets an error.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_primary('primary');

sub value { return $node->safe_psql('postgres', $_[0]); }

hold_horizon($node);

# --- no standby: the held horizon keeps no dead row

my $from = -s $node->logfile;
work_off($node, 3000, sub { });
like(slurp_file($node->logfile, $from), $rows_removed, 'a server by itself removes rows beyond its own horizon');

# --- a standby with feedback: no row that its sessions need is removed

my $standby = standby_of($node, 'feedback', { has_streaming => 1 }, 'hot_standby_feedback = on');
wait_for_sql($node, 'SELECT count(backend_xmin) = 1 FROM pg_stat_replication', 'it feeds back');
value('TRUNCATE ran');
my ($reader, $saver, $exporter, $exported) = work_off($node, 3000, sub
	{
		caught_up($node, $standby);
		my @sessions = map { session($standby, $takes_snapshot) } 1 .. 3;

		$sessions[1]->query('SAVEPOINT s; SELECT count(*) FROM jobq.queue; ROLLBACK TO s');
		return (@sessions, $sessions[2]->query_safe('SELECT pg_export_snapshot()'));
	});
caught_up($node, $standby);
is(dumped($standby, $node, 'dump', "--snapshot=$exported"), '3000|3000', '!feedback: a dump has every job');
is(answer($reader, $every_job), '3000 00000', '!feedback: so has the first read after the sweep');
is(answer($saver, $every_job), '3000 00000', '!feedback: and one after a savepoint was rolled back');
$_->quit foreach $reader, $saver, $exporter;

# Dumps while jobs run.  The lock of a rewrite cancels a dump there after that wait.
sub delay_conflicts
{
	my ($value) = @_;

	$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = $value");
	$standby->reload;
	return wait_for_sql($standby, "SELECT current_setting('max_standby_streaming_delay') = '$value'", "conflicts wait for $value");
}

delay_conflicts('-1');
my $compactor = compacts_all_the_time($node);
foreach my $i (1 .. 4)
{
	delay_conflicts(0) if $i == 4;
	value('TRUNCATE ran');
	value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i), delay => i * '1 ms'::interval)) FROM generate_series(1, 3000) i");
	$node->wait_for_catchup($standby);
	like(dumped($standby, $node, "dump$i"), $i == 4 ? qr/^(3000\|3000|failed)$/ : qr/^3000\|3000$/,
		"feedback: dump $i while jobs run has every job once" . ($i == 4 ? ', or fails' : ''));
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'all have run');
}
$compactor->signal('TERM');
$compactor->finish;

# --- without feedback, while it is connected: the same

$standby->append_conf('postgresql.conf', 'hot_standby_feedback = off');
$standby->reload;
wait_for_sql($node, 'SELECT count(backend_xmin) = 0 FROM pg_stat_replication', 'no feedback any more');
value('TRUNCATE ran');
$reader = work_off($node, 3000, sub { caught_up($node, $standby); return session($standby, $takes_snapshot); });
caught_up($node, $standby);
is(answer($reader, $every_job), '3000 00000', '!no feedback: the first read after the sweep has every job');
$reader->quit;

# --- the primary doesn't know of it, and jobq isn't preloaded there: an error

$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$standby->restart;
caught_up($node, $standby);
foreach my $how ('the first read', 'a cursor', 'after a savepoint', 'a dump')
{
	value('TRUNCATE ran');
	$from = -s $node->logfile;
	($reader, $exported) = work_off($node, 3000, sub
		{
			caught_up($node, $standby);
			my $session = session($standby, $takes_snapshot);

			my $name = $session->query_safe('SELECT pg_export_snapshot()');
			$session->query('DECLARE c CURSOR FOR SELECT * FROM jobq.queue ORDER BY id; FETCH 1 FROM c') if $how eq 'a cursor';
			$session->query('SAVEPOINT s; SELECT count(*) FROM jobq.queue; ROLLBACK TO s') if $how eq 'after a savepoint';
			disconnect_standby($node, $standby);
			return ($session, $name);
		});
	like(slurp_file($node->logfile, $from), $rows_removed, "$how: the primary has removed rows beyond its own horizon");
	my $offset = -s $standby->logfile;
	connect_standby($standby);
	caught_up($node, $standby);
	is($how eq 'a dump' ? dumped($standby, $node, 'unknown', "--snapshot=$exported")
		: answer($reader, $how eq 'a cursor' ? 'FETCH ALL FROM c' : $every_job), $how eq 'a dump' ? 'failed' : 'terminated',
		"$how: fails, when the standby comes back");
	like(slurp_file($standby->logfile, $offset), qr/due to conflict with recovery/, "$how: for that reason");
	$reader->{run}->kill_kill;
	is($standby->safe_psql('postgres', $every_job), 3000, "!$how: a new session has every job");
}

# --- jobq.compact_beyond_horizon = off: never, also without a standby

$standby->stop;
set_beyond($node, 'off');
value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i))) FROM generate_series(1, 3000) i");
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'jobs run');
my $size = value("SELECT pg_relation_size('jobq.queue')");
value('SELECT jobq.compact()');
is(value("SELECT pg_relation_size('jobq.queue')"), $size, 'off: dead rows stay while the horizon is held');
value("ROLLBACK PREPARED 'held'");
wait_for_sql($node, 'SELECT pg_total_relation_size($$jobq.queue$$) < 1000000', 'and go by themselves when it is free');

no_own_errors($node);
$node->stop;
done_testing();
