# A rewrite of the queue names the snapshots of standbys that it conflicts with before it locks the
# table.  Behind the lock, a session with such a snapshot that asks for the table, and the replay
# that waits for this snapshot, would wait for each other: with max_standby_streaming_delay = -1
# forever.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $file = "SELECT pg_relation_filenode('jobq.queue')";
my $node = jobq_primary('primary');
my $standby = standby_of($node, 'standby', { has_streaming => 1 }, 'max_standby_streaming_delay = -1', 'hot_standby_feedback = off');

sub value { return $node->safe_psql('postgres', $_[0]); }

# A session of the standby with a snapshot that is older than the primary's
# horizon, but sees no removed row.
sub reader_before_horizon
{
	caught_up($node, $standby);
	my $reader = session($standby, "SET lock_timeout = '30s'; $takes_snapshot");

	value('SELECT pg_current_xact_id()');
	return $reader;
}

value("SELECT jobq.pause_job_type('note')");
value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i))) FROM generate_series(1, 300) i");
value('VACUUM jobq.queue');

# --- the rewrite gets the table

my $reader = reader_before_horizon();
my $before = value($file);
value('SELECT jobq.compact()');
isnt(value($file), $before, 'the table is rewritten');
wait_for_sql($standby, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'startup'"
	  . " AND wait_event = 'RecoveryConflictSnapshot'", 'the replay waits for the snapshot');
is(answer($reader, $every_job), '300 00000', 'its session reads the queue meanwhile');
is($standby->safe_psql('postgres', "SET lock_timeout = '30s'; $every_job"), 300, 'and so does another one');
$reader->quit;
caught_up($node, $standby);
is($standby->safe_psql('postgres', $file), value($file), 'when it has ended the new files are there');
is($standby->safe_psql('postgres', $every_job), 300, 'with every job');

# --- the rewrite doesn't: no session is cancelled needlessly

$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 0');
$standby->reload;
wait_for_sql($standby, "SELECT current_setting('max_standby_streaming_delay') = '0'", 'conflicts do not wait any more');
my $holder = session($node, 'BEGIN; LOCK TABLE jobq.queue IN ACCESS SHARE MODE');
$reader = reader_before_horizon();
$before = value($file);
my $offset = -s $node->logfile;
value('SELECT jobq.compact()');
is(value($file), $before, 'the table is in use: it stays');
like(slurp_file($node->logfile, $offset), qr/jobq compaction: swept.*, not rewritten/, 'after tries');
caught_up($node, $standby);
is(answer($reader, $every_job), '300 00000', 'no session of the standby is cancelled');
$_->quit foreach $reader, $holder;

no_own_errors($node);
$_->stop foreach $standby, $node;
done_testing();
