# Compaction and standbys fed from files: the primary's archive, which the primary knows, or copies
# of its WAL, which it does not.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $archive = PostgreSQL::Test::Utils::tempdir();

# --- an archive: rows stay by default

my $node = jobq_primary('archiving', 'archive_mode = on', "archive_command = 'cp %p $archive/%f'");

sub archived
{
	my ($standby) = @_;
	my $lsn = $node->safe_psql('postgres', 'SELECT pg_create_restore_point($$here$$)');

	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
	return wait_for_sql($standby, "SELECT pg_last_wal_replay_lsn() >= '$lsn'", 'the archive is replayed');
}

hold_horizon($node);
my $standby = standby_of($node, 'archived', {}, "restore_command = 'cp $archive/%f %p'", 'wal_retrieve_retry_interval = 100ms');
my $from = -s $node->logfile;
my $reader = work_off($node, 3000, sub { archived($standby); return session($standby, $takes_snapshot); });
unlike(slurp_file($node->logfile, $from), $rows_removed, 'archive_mode = on: no row goes beyond the horizon');
archived($standby);
is(answer($reader, $every_job), '3000 00000', '!archive, auto: the first read after the sweep has every job');
$reader->quit;

# --- with the administrator's setting they are removed, and the fence is written

set_beyond($node, 'on');
$node->safe_psql('postgres', 'TRUNCATE ran');
$from = -s $node->logfile;
$reader = work_off($node, 3000, sub { archived($standby); return session($standby, $takes_snapshot); });
my $other = session($standby, $takes_snapshot);
like(slurp_file($node->logfile, $from), $rows_removed, 'on: rows go');
archived($standby);
is(answer($reader, $every_job), '40001', '!archive, on: the first read after the sweep is an error');
is(answer($other, 'SELECT n FROM unrelated'), '1 00000', 'a session that reads another table goes on');
$_->quit foreach $reader, $other;
is($standby->safe_psql('postgres', $every_job), 3000, '!a new session has every job');
$_->stop foreach $standby, $node;

# --- copies of WAL files, jobq not preloaded: the removal's record cancels older snapshots

$node = jobq_primary('copied', 'bgwriter_lru_maxpages = 0');
$standby = standby_of($node, 'copies', {}, 'restore_command = ' . "'cp " . $node->data_dir . "/pg_wal/%f %p'",
	'wal_retrieve_retry_interval = 100ms', "shared_preload_libraries = ''", 'hot_standby_feedback = on');
hold_horizon($node);
$from = -s $node->logfile;
$reader = work_off($node, 3000, sub { caught_up($node, $standby); return session($standby, $takes_snapshot); });
like(slurp_file($node->logfile, $from), $rows_removed, 'copied files: rows go beyond the horizon');
caught_up($node, $standby);
is(answer($reader, $every_job), 'terminated', '!copied files: the session is cancelled');
$reader->{run}->kill_kill;
is($standby->safe_psql('postgres', $every_job), 3000, '!copied files: a new session has every job');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'held'");

# --- rows that only the rewrite leaves behind

$node->safe_psql('postgres', "SELECT jobq.pause_job_type('note')");
$node->safe_psql('postgres', "SELECT count(jobq.enqueue('note', jsonb_build_object('n', i))) FROM generate_series(1, 300) i");
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE jobq.queue IN ACCESS SHARE MODE');
my $compactor = $node->background_psql('postgres', on_error_stop => 0);
my $caller = $compactor->query_safe('SELECT pg_backend_pid()');
my $file = $node->safe_psql('postgres', "SELECT pg_relation_filenode('jobq.queue')");
$compactor->query_until(qr/started/, "\\echo started\nSELECT jobq.compact();\n");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'jobq: rewriting jobq.queue'", 'a rewrite waits for the table');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($caller, 60000)");	# its snapshot would keep the rows
caught_up($node, $standby);
$reader = session($standby, $takes_snapshot);
$node->safe_psql('postgres', "SELECT jobq.cancel_jobs('note')");
$holder->query_safe('COMMIT');
wait_for_sql($node, "SELECT pg_relation_filenode('jobq.queue') <> $file", 'the table is rewritten');
caught_up($node, $standby);
is(answer($reader, $every_job), 'terminated', '!a session is cancelled when the rewrite dropped rows of its snapshot');
$reader->{run}->kill_kill;
is($standby->safe_psql('postgres', $every_job), 3000, '!a new session has every job');

$holder->quit;
$compactor->{run}->kill_kill;
$_->stop foreach $standby, $node;
done_testing();
