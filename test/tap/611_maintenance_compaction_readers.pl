# Readers of the queue beside compaction: commands that copy it by the server's horizon,
# imported snapshots, a standby.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('readers', 'autovacuum = off', 'fsync = off', 'log_min_messages = debug1', "jobq.compact_threshold = '1MB'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE EXTENSION amcheck;
CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('nothing', 'nothing(jsonb)', keep_completed => '0');
SELECT jobq.create_job_type('waits', 'nothing(jsonb)');
SELECT jobq.pause_job_type('waits');
CREATE TABLE unrelated AS SELECT 1 AS n;
CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS
  $$ SELECT string_agg(md5(random()::text), '') FROM generate_series(1, bytes / 32) $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub value { return $node->safe_psql('postgres', $_[0]); }

# Returns a session that runs the statements and stays open.
sub holds
{
	my ($sql, $of) = @_;
	my $session = ($of // $node)->background_psql('postgres', on_error_stop => 0);

	$session->query($sql);
	return $session;
}

sub sound
{
	my ($what) = @_;

	return is(value("SELECT count(*) FROM verify_heapam('jobq.queue') UNION ALL"
			  . " SELECT count(bt_index_check(indexrelid, true)) - 6 FROM pg_index WHERE indrelid = 'jobq.queue'::regclass"),
		"0\n0", "$what: table and indexes are sound");
}

# --- dead versions of large payloads under a held horizon: no remaining row points at removed ones

my $toast = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'jobq.queue'::regclass";
value("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'hold'");
value("SELECT count(jobq.enqueue('waits', jsonb_build_object('n', i, 'text', noise(32000)))) FROM generate_series(1, 20) i");
foreach my $round (1 .. 3)
{
	value("SELECT count(jobq.alter_job(id, payload => jsonb_build_object('n', payload->'n', 'text', noise(32000)))) FROM jobq.jobs");
	my $rows = value("SELECT md5(string_agg(payload::text, ',' ORDER BY id)) FROM jobq.jobs");
	value('SELECT jobq.compact()');
	is(errors_of($node, 'postgres', 'VACUUM FULL jobq.queue'), '00000', "round $round: VACUUM FULL copies the table");
	value('SELECT jobq.compact()');
	is(value("SELECT md5(string_agg(payload::text, ',' ORDER BY id)) FROM jobq.jobs"), $rows, "round $round: the jobs have their payloads");
	sound("round $round");
}
cmp_ok(value($toast), '<', 2_500_000, 'what earlier payloads took is used again');

# A page pinned by a reader is skipped, and so are the TOAST values of its dead rows.
my $cursor = holds("BEGIN; DECLARE c CURSOR FOR SELECT id FROM jobq.queue; FETCH 1 FROM c");
value("SELECT count(jobq.alter_job(id, payload => jsonb_build_object('n', payload->'n', 'text', noise(32000)))) FROM jobq.jobs");
$cursor->quit;
my $pin = holds('BEGIN');
$pin->query('DECLARE c CURSOR FOR SELECT id FROM jobq.queue; FETCH 1 FROM c');
value('SELECT jobq.compact()');
$pin->quit;
is(errors_of($node, 'postgres', 'VACUUM FULL jobq.queue'), '00000', 'beside a cursor: VACUUM FULL copies the table');
sound('beside a cursor');

# --- a snapshot that is handed on from session to session

my $first = holds('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $count = $first->query_safe('SELECT count(*) FROM jobq.queue');
my $snapshot = $first->query_safe('SELECT pg_export_snapshot()');
value("SELECT jobq.cancel_jobs('waits')");
my $compactor = $node->background_psql('postgres');
$compactor->query_until(qr/started/, "\\echo started\nSELECT jobq.compact();\n\\echo finished\n");
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT jobq.compact()%'"
	  . " AND (state = 'idle' OR backend_xmin IS NOT NULL)", 'compact() waits for older snapshots');
my $compacting = value("SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT jobq.compact()%' AND pid <> pg_backend_pid()");
sub slept { return "(regexp_match(pg_read_file('/proc/$compacting/status'), 'voluntary_ctxt_switches:\\s+(\\d+)'))[1]::bigint"; }
foreach my $hand (1 .. 5)
{
	my $next = holds("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");

	$snapshot = $next->query_safe('SELECT pg_export_snapshot()');
	$first->quit;
	$first = $next;
	# it sleeps between two checks of the snapshots, until its time limit
	wait_for_sql($node, sprintf('SELECT %s > 3 + %s OR state <> \'active\' FROM pg_stat_activity WHERE pid = %s',
			slept(), value('SELECT ' . slept()), $compacting), "compact() looks again while hand $hand has it");
}
$compactor->query_until(qr/finished/, '');
$compactor->quit;
value('SELECT jobq.compact()');
is($first->query_safe('SELECT count(*) FROM jobq.queue'), $count, "the fifth session to have it sees the first one's $count rows");
$first->quit;
value('SELECT jobq.compact()');
like(slurp_file($node->logfile), qr/jobq compaction: swept, [1-9]\d* dead rows removed/, 'and then they go');

# --- a standby with feedback, while the primary's horizon is held: readers of other tables there
# are not cancelled

value("ALTER SYSTEM SET jobq.compact_beyond_horizon = 'on'; SELECT pg_reload_conf(); SELECT jobq.reload()");
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('readers_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1\n"
	  . "max_standby_streaming_delay = 0\n");
$standby->start;
$node->wait_for_catchup($standby);
my $unrelated = holds('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT n FROM unrelated', $standby);
value("SELECT count(jobq.enqueue('waits')) FROM generate_series(1, 100)");
$node->wait_for_catchup($standby);
my $concerned = holds('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue', $standby);
wait_for_sql($node, 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication', 'the standby feeds back');
value("SELECT jobq.cancel_jobs('waits')");
foreach my $round (1 .. 4)
{
	value("SELECT count(jobq.enqueue('nothing', jsonb_build_object('text', noise(100)))) FROM generate_series(1, 2000)") foreach 1 .. 4;
	wait_for_sql($node, "SELECT count(*) = 0 FROM jobq.queue", "round $round: jobs run");
	value('SELECT jobq.compact()');
}
$node->wait_for_catchup($standby);
is(value("SELECT pg_relation_size('jobq.queue') < 4000000"), 't', 'the queue stays small');
is($unrelated->query_safe('SELECT n FROM unrelated'), 1, 'a session that reads another table goes on');
eval { $concerned->query('SELECT count(*) FROM jobq.queue') };
like(slurp_file($standby->logfile), qr/due to conflict with recovery|snapshot is too old to read jobq\.queue/, 'one that has read the queue never reads what lacks a row');
# it may coincide with the next sweep, which waits for no lock
ok($standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM jobq.queue'), 'a new one reads it: the lock was released');
$unrelated->quit;
$concerned->{run}->kill_kill;
value("ROLLBACK PREPARED 'hold'");
$standby->stop;
unlike(slurp_file($node->logfile), qr/missing chunk|jobq \w+ (ERROR|FATAL|PANIC):  (?!terminating)/, '!no errors of our own');
$node->stop;
done_testing();
