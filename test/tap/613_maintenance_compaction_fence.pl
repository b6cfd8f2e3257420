# jobq.compact_beyond_horizon = on: on standbys, a read of the queue with a snapshot
# older than a sweep is an error.

use strict;
use warnings;

use IPC::Run ();
use POSIX ();
use PostgreSQL::Test::Utils;
use ServerTest;
use StandbyTest;
use Test::More;

my $node = jobq_primary('primary', "jobq.compact_beyond_horizon = 'on'", 'wal_consistency_checking = all');
my $too_old = qr/snapshot is too old to read jobq\.queue/;
my @indexes = (6, 'SELECT count(bt_index_check(indexrelid, true)) FROM pg_index WHERE indrelid = $$jobq.queue$$::regclass');

sub value { return $node->safe_psql('postgres', $_[0]); }

hold_horizon($node);
my $standby = standby_of($node, 'streaming', { has_streaming => 1 }, 'hot_standby_feedback = on');
my $cascaded = standby_of($standby, 'cascaded', { has_streaming => 1 }, 'hot_standby_feedback = off');
wait_for_sql($node, 'SELECT count(backend_xmin) = 1 FROM pg_stat_replication', 'a standby with feedback');

# --- each way to read, with a snapshot from before the sweep

my %reads = (
	'the first read' => $every_job,
	'after a savepoint' => $every_job,
	'a cursor' => 'FETCH 1 FROM c',
	'a view' => 'SELECT count(*) FROM jobq.jobs',
	'COPY' => 'COPY jobq.queue TO STDOUT',
	'COPY of a query' => 'COPY (SELECT id FROM jobq.queue) TO STDOUT',
	'one of our functions' => 'SELECT jobq.count_by_status()',
	'a PL/pgSQL block' => 'DO $$ BEGIN PERFORM count(*) FROM jobq.queue; END $$',
	'EXPLAIN ANALYZE' => 'EXPLAIN (ANALYZE) SELECT id FROM jobq.queue');
my %readers;
my ($exporter, $exported, $other, $running, $copying, $gate, $far);
my $pipe = PostgreSQL::Test::Utils::tempdir() . '/pipe';
POSIX::mkfifo($pipe, 0600) or die "$pipe: $!";

# A rewrite would cancel sessions that have a lock of the table on the standby.
my $holder = session($node, 'BEGIN; LOCK TABLE jobq.queue IN ACCESS SHARE MODE');

work_off($node, 3000, sub
	{
		caught_up($node, $_) foreach $standby, $cascaded;
		$readers{$_} = session($standby, $takes_snapshot) foreach keys %reads;
		$readers{'after a savepoint'}->query('SAVEPOINT s; SELECT count(*) FROM jobq.queue; ROLLBACK TO s');
		$readers{'a cursor'}->query('DECLARE c CURSOR FOR SELECT id FROM jobq.queue ORDER BY id');
		$exporter = session($standby, $takes_snapshot);
		$exported = $exporter->query_safe('SELECT pg_export_snapshot()');
		$other = session($standby, $takes_snapshot);
		$far = session($cascaded, $takes_snapshot);
		$gate = session($standby, 'SELECT pg_advisory_lock(7)');
		$running = $standby->background_psql('postgres', on_error_stop => 0);
		$running->query_until(qr/started/, "\\echo started\nSELECT count(q.id) FROM (SELECT pg_advisory_lock_shared(7) OFFSET 0) l"
			  . " LEFT JOIN LATERAL (SELECT id FROM jobq.queue) q ON true;\n\\echo state :SQLSTATE\n");
		wait_for_sql($standby, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'a query is running');
		$copying = $standby->background_psql('postgres', on_error_stop => 0);
		$copying->query_until(qr/started/, "\\echo started\nCOPY jobq.queue TO '$pipe';\n\\echo state :SQLSTATE\n");
		wait_for_sql($standby, "SELECT count(*) = 1 FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE a.state = 'active'"
			  . " AND a.query LIKE 'COPY jobq.queue TO %' AND l.relation = 'jobq.queue'::regclass AND a.backend_xmin IS NOT NULL",
			'a COPY has its snapshot, and waits for the reader of its file');
	});
caught_up($node, $_) foreach $standby, $cascaded;
like(slurp_file($node->logfile), qr/swept, [1-9]\d* dead rows removed/, 'the primary has removed rows beyond its horizon');

foreach my $how (sort keys %reads)
{
	my $offset = -s $standby->logfile;

	# psql keeps no SQLSTATE of a COPY that has begun
	my $state = answer($readers{$how}, $reads{$how});
	like($state, qr/\b40001$/, "$how: is an error") unless $how eq 'COPY of a query';
	like(slurp_file($standby->logfile, $offset), $too_old, "$how: that says why");
	$readers{$how}->quit;
}
is(answer($far, $every_job), '40001', 'on a cascaded standby, too');
$far->quit;
$gate->quit;
like($running->query_until(qr/state \w+/, ''), qr/state 40001/, 'and a query that was running when rows were removed');
open my $read_end, '<', $pipe or die "$pipe: $!";
my @lines = <$read_end>;
like($copying->query_until(qr/state \w+/, ''), qr/state 40001/, 'and a COPY, of which ' . @lines . ' rows had been written');
$_->quit foreach $running, $copying;
my ($rc, $err) = (0, '');
IPC::Run::run([ 'pg_dump', '--host', $standby->host, '--port', $standby->port, "--snapshot=$exported", '--file=/dev/null', 'postgres' ],
	'2>', \$err) or $rc = $? >> 8;
is($rc, 1, 'pg_dump with such a snapshot fails');
like($err, $too_old, 'and says why');
is(answer($other, 'SELECT n FROM unrelated'), '1 00000', 'a session that reads another table goes on');
$_->quit foreach $exporter, $other, $holder;

# --- with a snapshot from after it

# Without its lock the table is rewritten now: else maintenance would do it at
# its next turn, beside the dump.
value('SELECT jobq.compact()');
caught_up($node, $_) foreach $standby, $cascaded;
is(answer(session($standby, $takes_snapshot), $every_job), '3000 00000', 'a new session has every job');
is(dumped($standby, $node, 'dump'), '3000|3000', 'so has a new dump');

# --- dumps while jobs run and rows are removed: complete, or failed

my $compactor = compacts_all_the_time($node);
foreach my $i (1 .. 4)
{
	value('TRUNCATE ran');
	value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i), delay => i * '1 ms'::interval)) FROM generate_series(1, 3000) i");
	caught_up($node, $standby);
	like(dumped($standby, $node, "dump$i"), qr/^(3000\|3000|failed)$/, "!dump $i while jobs run has every job once, or fails");
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'all have run');
}
$compactor->signal('TERM');
$compactor->finish;

# --- both sides are sound, and every record replays to the same pages

value("SELECT jobq.pause_job_type('note')");
value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i))) FROM generate_series(1, 500) i");
value('SELECT jobq.compact()');
caught_up($node, $standby);
is($_->safe_psql('postgres', $indexes[1]), $indexes[0], '!' . $_->name . ': indexes are sound') foreach $node, $standby;
is(value("SELECT count(*) FROM verify_heapam('jobq.queue')"), 0, 'and the table is');
unlike(slurp_file($_->logfile), qr/inconsistent page|PANIC|FATAL:  (?!terminating|could not|the database system is )/,
	$_->name . ': replay agrees')
  foreach $standby, $cascaded;

# --- a session that has its snapshot from before, when its standby is promoted

value('TRUNCATE ran');
value("SELECT jobq.cancel_jobs('note')");
my $survivor = work_off($node, 3000, sub { caught_up($node, $cascaded); return session($cascaded, $takes_snapshot); });
caught_up($node, $cascaded);
$cascaded->promote;
wait_dispatcher($cascaded, 'postgres', 'a promoted standby has its dispatcher');
is(answer($survivor, $every_job), '40001', 'a snapshot from before the promotion: is an error');
$survivor->quit;
is($cascaded->safe_psql('postgres', $every_job), 3000, 'a new session has every job');

# --- a restored dump, and a server that never was a standby

is($node->safe_psql('dump', 'SELECT last_value FROM jobq.fence'), 0, 'a fence is not dumped');
isnt(value('SELECT last_value FROM jobq.fence'), 0, 'where it was raised');
my $reader = session($node, $takes_snapshot);
value('SELECT jobq.compact()');
like(answer($reader, $every_job), qr/ 00000$/, 'and blocks no session on the primary itself');
$reader->quit;

value("ROLLBACK PREPARED 'held'");
no_own_errors($node);
$_->stop foreach $standby, $cascaded, $node;
done_testing();
