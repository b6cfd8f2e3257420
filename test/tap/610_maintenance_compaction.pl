# The queue's files stay small under any holder of the horizon; no snapshot
# loses a row, and no job is lost.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(usleep);

my $mb = 1024 * 1024;
my $node = jobq_server('compaction', "jobq.compact_threshold = '1MB'", 'log_min_messages = debug1', 'autovacuum = off',
	'wal_sender_timeout = 0', 'fsync = off');	# the duration of disk writes under the table's lock is not tested here
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE EXTENSION amcheck;
CREATE FUNCTION nothing(p jsonb) RETURNS void LANGUAGE sql AS '';
SELECT jobq.create_job_type('nothing', 'nothing(jsonb)', keep_completed => '0');
SELECT jobq.create_job_type('waits', 'nothing(jsonb)');
CREATE TABLE ran (n int, hash text);
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS
  $$ INSERT INTO public.ran VALUES ((p->>'n')::int, md5(p->>'text')) $$;
SELECT jobq.create_job_type('note', 'note(jsonb)', keep_completed => '0');
SELECT jobq.pause_job_type('waits');
CREATE FUNCTION size() RETURNS bigint LANGUAGE sql AS $$ SELECT pg_total_relation_size('jobq.queue') $$;
CREATE FUNCTION noise(bytes int) RETURNS text LANGUAGE sql AS
  $$ SELECT string_agg(md5(random()::text), '') FROM generate_series(1, bytes / 32) $$;
END
sleeper_types($node, 'postgres');

# Jobs that wait all the time, beside jobs that end
$node->safe_psql('postgres', "SELECT count(jobq.enqueue('waits', jsonb_build_object('n', i, 'text',"
	  . " noise(CASE WHEN i % 10 = 0 THEN 8000 ELSE 32 END)), concurrency_key => CASE WHEN i % 2 = 0 THEN 'k' || i % 7 END))"
	  . ' FROM generate_series(1, 200) i');

sub value { return $node->safe_psql('postgres', $_[0]); }

# Enqueues that many jobs, in transactions of 2,000.
sub run_jobs
{
	my ($n) = @_;

	value("SELECT count(jobq.enqueue('nothing')) FROM generate_series(1, 2000)") foreach 1 .. $n / 2000;
	return $node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name = 'nothing'");
}

sub sound
{
	my ($what) = @_;

	value('VACUUM jobq.queue');		# so that no dead row is left that VACUUM could remove
	is(value("SELECT count(*) FROM verify_heapam('jobq.queue') UNION ALL"
			  . " SELECT count(bt_index_check(indexrelid, true)) - 6 FROM pg_index WHERE indrelid = 'jobq.queue'::regclass"),
		"0\n0", "$what: table and indexes are sound");
	return is(value("SELECT count(DISTINCT payload->>'n') FROM jobq.queue WHERE payload ? 'n'"), 200, "$what: the waiting jobs are there");
}

# Returns a session that runs the statements and stays open.
sub holds
{
	my ($sql, $db) = @_;
	my $session = $node->background_psql($db // 'postgres');

	$session->query_safe($sql);
	return $session;
}

# Reads the rows of a snapshot without keeping the table's lock.
sub rows_of
{
	my ($snapshot) = @_;

	return sort split /\n/, value("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot';"
		  . ' COPY jobq.queue TO STDOUT; COMMIT');
}

# True once the query is true, before a deadline.  A run comes when enough jobs have been handed out
# since the last one; else 600 s later.  So from time to time some more jobs run: the bounds hold
# for a queue in use.
sub true_beside_jobs
{
	my ($query) = @_;
	my $now = time;
	my $end = $now + 4 * $PostgreSQL::Test::Utils::timeout_default;
	my $more = $now + 20;

	while (value($query) ne 't')
	{
		return 0 if ($now = time) > $end;
		if ($now > $more)
		{
			# health() counts by the server's statistics.  A worker may add its dead rows to these
			# after the run that has removed them, and no further run corrects the number.
			value('ANALYZE jobq.queue');
			return 1 if value($query) eq 't';
			note 'more jobs run';
			run_jobs(2000);
			$more = time + 5;
		}
		usleep(100_000);
	}
	return 1;
}

# Runs jobs for twice the bound and more; each round may reuse the space of the last, and the
# size never exceeds the bound.
sub stays_small
{
	my ($holder, $relation) = @_;
	my ($size, $bound) = defined $relation ? ("pg_relation_size('$relation')", 2.5 * $mb) : ('size()', 4 * $mb);

	foreach my $round (1 .. 4)
	{
		run_jobs(8000);
		ok(true_beside_jobs("SELECT (jobq.health() #>> '{checks,horizon,dead_bytes}')::bigint <= $mb"),
			"$holder: what $round times 8,000 jobs leave is free again");
	}
	ok(true_beside_jobs("SELECT $size < $bound"), "$holder: small");
	return sound($holder);
}

# A holder of exactly that duration does not count.
sub holder_is
{
	my ($pattern) = @_;

	return wait_for_sql($node, "SELECT jobq.health() #>> '{checks,horizon,holder}' LIKE '$pattern'", 'health names it');
}

# --- holders of the horizon that can't read the dead rows

my $holder = holds('BEGIN; SELECT pg_current_xact_id()');
stays_small('an idle transaction');
holder_is('%idle in transaction%');
$holder->quit;

$holder = holds("BEGIN; SELECT jobq.enqueue('waits')");
stays_small('an idle transaction that has enqueued', 'jobq.queue');
$holder->quit;

value("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'held'");
stays_small('a prepared transaction');
holder_is('prepared transaction "held"');
value("COMMIT PREPARED 'held'");

value('CREATE DATABASE other');
$holder = holds('BEGIN; SELECT pg_current_xact_id()', 'other');
stays_small("another database's transaction");
$holder->quit;

value("SELECT pg_create_physical_replication_slot('standby')");
value("ALTER SYSTEM SET jobq.compact_beyond_horizon = 'on'; SELECT pg_reload_conf(); SELECT jobq.reload()");	# auto would keep rows that the standby needs
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('compaction_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "primary_slot_name = 'standby'\nhot_standby_feedback = on\n"
	  . "wal_receiver_status_interval = 1\nautovacuum = off\n");
$standby->start;
my $reader = $standby->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue');
wait_for_sql($node, "SELECT xmin IS NOT NULL FROM pg_replication_slots WHERE slot_name = 'standby'", 'the slot has an xmin');
$standby->stop('immediate');
$reader->{run}->kill_kill;
stays_small('the slot of a standby that has gone');
holder_is('replication slot standby');
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT count(*), min(id::text) FROM jobq.queue'),
	value('SELECT count(*), min(id::text) FROM jobq.queue'), 'the standby has the same rows');
is($standby->safe_psql('postgres', "SELECT count(*) FROM (SELECT bt_index_check(indexrelid, true) FROM pg_index"
		  . " WHERE indrelid = 'jobq.queue'::regclass) i"), 6, 'and sound indexes');
# Also a running one: a session there that has read the queue gets an error before it misses a
# row, with or without feedback.
value("SELECT count(jobq.enqueue('waits', tenant => 's')) FROM generate_series(1, 100)");
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 0');
$standby->reload;
$node->wait_for_catchup($standby);
$reader = $standby->background_psql('postgres', on_error_stop => 0);
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue');
value("SELECT jobq.cancel_jobs('waits', 's')");
value('SELECT jobq.compact()');
$node->wait_for_catchup($standby);
eval { $reader->query('SELECT count(*) FROM jobq.queue') };
like(slurp_file($standby->logfile), qr/due to conflict with recovery|snapshot is too old to read jobq\.queue/,
	'a standby never reads what lacks a row');
$reader->{run}->kill_kill;
$standby->stop;
value("SELECT pg_drop_replication_slot('standby')");
value('ALTER SYSTEM RESET jobq.compact_beyond_horizon; SELECT pg_reload_conf(); SELECT jobq.reload()');

# --- a handler always runs: no process gets an exclusive lock of the table

foreach my $i (0 .. 5)
{
	value(sprintf(q{SELECT jobq.enqueue('sleeper', '{"seconds": 4}', delay => '%d s')}, 2 * $i));
}
stays_small('handlers that overlap', 'jobq.queue');

# --- holders that may read the dead rows: the queue grows, and shrinks afterwards

$holder = holds('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobq.queue');
my $before = value('SELECT size()');
run_jobs(30000);
my $held = value('SELECT size()');
cmp_ok($held, '>', 5 * $mb, sprintf('a snapshot of this database: %d bytes a job while it is held', ($held - $before) / 30000));
$holder->quit;
my $took = seconds_of { ok(true_beside_jobs("SELECT size() < 3 * $mb"), 'given back when it has ended') };
diag sprintf('given back after %.1f s', $took);
sound('after that');

# --- a transaction that was running when the horizon was taken deletes later

value("SELECT count(jobq.enqueue('waits', tenant => 't')) FROM generate_series(1, 100)");
my $waiting = value('SELECT count(*) FROM jobq.queue');
my $deleter = holds('BEGIN; SELECT pg_current_xact_id()');
value('SELECT pg_current_xact_id()');	# a younger one that has ended
value('SELECT jobq.compact()');
$holder = holds('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($holder->query_safe('SELECT count(*) FROM jobq.queue'), $waiting, 'an old snapshot sees the waiting jobs');
$deleter->query_safe("DELETE FROM jobq.queue WHERE tenant = 't'; COMMIT");	# in that very transaction, no subtransaction
$deleter->quit;
value('SELECT jobq.compact()');
is(value('SELECT count(*) FROM jobq.queue'), $waiting - 100, 'of which a part is deleted');
is($holder->query_safe('SELECT count(*) FROM jobq.queue'), $waiting, 'and still does, after compaction');
$holder->quit;

# --- dumps beside compaction and load restore what their snapshot saw, row-exact

value("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'held'");	# so that the server's horizon does not protect the rows
my @here = ('--host', $node->host, '--port', $node->port);
my $script = PostgreSQL::Test::Utils::tempdir() . '/load.sql';
append_to_file($script, "SET lock_timeout = '60s';\nSELECT count(jobq.enqueue('nothing')) FROM generate_series(1, 20);\n"
	  . "SELECT jobq.enqueue('waits', unique_key => 'k' || (random() * 20)::int, on_conflict => 'replace');\n");
my ($load_out, $load_err) = ('', '');
my @pgbench = ('pgbench', '--no-vacuum', '--client=2', '--rate=100', '--time=600', "--file=$script", @here, 'postgres');
my $load = IPC::Run::start(\@pgbench, '>', \$load_out, '2>', \$load_err);
my $compactor_script = PostgreSQL::Test::Utils::tempdir() . '/compact.sql';
append_to_file($compactor_script, "SELECT jobq.compact();\n");
my ($compact_out, $compact_err) = ('', '');
my @compact = ('pgbench', '--no-vacuum', '--time=600', "--file=$compactor_script", @here, 'postgres');
my $compactor = IPC::Run::start(\@compact, '>', \$compact_out, '2>', \$compact_err);
my $rewrites = "SELECT pg_relation_filenode('jobq.queue')";

foreach my $i (1 .. 4)
{
	$holder = holds('BEGIN ISOLATION LEVEL REPEATABLE READ');
	my $snapshot = $holder->query_safe('SELECT pg_export_snapshot()');
	my @rows = rows_of($snapshot);
	my $file = value($rewrites);
	my $dump = PostgreSQL::Test::Utils::tempdir() . "/dump$i.sql";

	wait_for_sql($node, "SELECT pg_relation_filenode('jobq.queue') <> $file", "dump $i: the table is rewritten");
	command_ok([ 'pg_dump', @here, "--snapshot=$snapshot", "--file=$dump", 'postgres' ], "dump $i: is taken");
	is_deeply([ rows_of($snapshot) ], \@rows, "dump $i: another session sees what it saw before");
	is(value("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"), 0,
		"dump $i: no process waits for a lock that would block others");
	$holder->quit;
	value("CREATE DATABASE copy$i");
	command_ok([ 'psql', '--no-psqlrc', '--quiet', '--set=ON_ERROR_STOP=1', '--output=/dev/null', @here, "--file=$dump", "copy$i" ],
		"dump $i: is restored");
	is_deeply([ sort split /\n/, $node->safe_psql("copy$i", 'COPY jobq.queue TO STDOUT') ], \@rows,
		sprintf('dump %d: with the %d rows that its snapshot saw', $i, scalar @rows));
}

# --- jobs that run meanwhile run once each, with keys and large payloads

value("SELECT count(jobq.enqueue('note', jsonb_build_object('n', i, 'text', noise(CASE WHEN i % 5 = 0 THEN 8000 ELSE 64 END)),"
	  . " unique_key => CASE WHEN i % 3 = 0 THEN 'n' || i END)) FROM generate_series(${_}000 + 1, ${_}000 + 1000) i")
  foreach 1 .. 6;
wait_for_sql($node, 'SELECT count(*) >= 6000 FROM ran', 'jobs beside compaction run');
wait_for_sql($node, "SELECT count(*) = 0 FROM jobq.queue q JOIN jobq.job_types t ON t.id = q.type_id WHERE t.name = 'note'",
	'all of them');
is(value('SELECT count(*), count(DISTINCT n), min(n), max(n) FROM ran'), '6000|6000|1001|7000', '!once each');
$load->signal('TERM');
$load->finish;
$compactor->signal('TERM');
$compactor->finish;
unlike($load_err, qr/error/i, 'no enqueue has failed');
unlike($compact_err, qr/error/i, 'compact() has always answered');
value("ROLLBACK PREPARED 'held'");
run_jobs(2000);
sound('after all that');

# --- and after a crash

run_jobs(10000);
value('SELECT jobq.compact()');
$node->stop('immediate');
$node->start;
wait_dispatcher($node, 'postgres', 'after a crash');
sound('after a crash');
run_jobs(2000);

sqlstate_is($node, 'postgres', 'SELECT jobq.compact(1)', '42883', 'compact() has no argument');
value("ALTER SYSTEM SET jobq.databases = '-'");
$node->restart;
sqlstate_is($node, 'postgres', 'SELECT jobq.compact()', '55000', 'compact() needs a dispatcher');
unlike(slurp_file($node->logfile), qr/jobq \w+ (ERROR|FATAL|PANIC):  (?!terminating)/, 'no errors of our own');

$node->stop;
done_testing();
