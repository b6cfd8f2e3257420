# The owner of jobq's tables changes them.  Columns may be added to any of them, and dropped again:
# jobs continue, the columns get their defaults.  A change of one of jobq's own columns stops the
# hand-out, with a clear message, until it is undone.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('owner_columns', 'jobq.max_sql_workers = 2', 'autovacuum = off', 'jobq.sweep_interval = 100ms');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'fail' THEN RAISE 'told to'; END IF;
  PERFORM jobq.log_event('seen');
  RETURN p;
END $$;
CREATE ROLE shop LOGIN;
CREATE ROLE lister LOGIN;
GRANT CREATE ON SCHEMA public TO lister;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

my @tables = split /\n/, $node->safe_psql('postgres', <<'END');
SELECT c.relname FROM pg_class c
 WHERE c.relnamespace = 'jobq'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
END
cmp_ok(scalar @tables, '>=', 18, "tables: @tables");

sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sub alter
{
	my ($action) = @_;

	sql(map { "ALTER TABLE jobq.$_ $action" } @tables);
	return;
}

sub wait_true
{
	my ($query, $what) = @_;

	return ok($node->poll_query_until('postgres', $query), $what);
}

# Every path that reads or writes one of the tables.  $note: the column's value in
# rows that jobq writes, in SQL.
sub use_everything
{
	my ($round, $note) = @_;
	my $t = "t$round";

	sql("SELECT jobq.create_job_type('$t', 'work(jsonb)', max_attempts => 1, options => '{\"events\": \"all\"}')",
		"SELECT jobq.create_job_type('$t.tool', command => ARRAY['/bin/sh', '-c', 'echo {}; echo ''{\"artifact\": {\"key\": \"a\"}}'' >&3'], options => '{\"events\": \"all\"}')",
		"SELECT jobq.create_job_type('$t.again', 'work(jsonb)', backoff_base => '1ms', max_attempts => 2)",
		"SELECT jobq.set_limit('$t', 2, rate_limit => 1000)",
		"SELECT jobq.alter_job_type('$t', options => '{\"limits\": [\"$t\"], \"keep_completed_count\": 100}')",
		"SELECT jobq.set_signal('$t', true), jobq.set_pressure_rule('$t', '$t', priority_adj => 3)",
		"SELECT jobq.set_tenant_quota('q$round', max_live => 100)",
		"SELECT jobq.grant_access('shop', 'admin', tenant => 'q$round')",
		"SELECT jobq.set_tenant_check(NULL)");
	my $done = sql("SELECT jobq.enqueue('$t', '{\"n\": 1}', tenant => 'q$round')");
	my $dead = sql("SELECT jobq.enqueue('$t', '{\"fail\": 1}')");
	my $tool = sql("SELECT jobq.enqueue('$t.tool')");
	my $again = sql("SELECT jobq.enqueue('$t.again', '{\"fail\": 1}')");
	my $later = sql("SELECT jobq.enqueue('$t', '{\"n\": 2}', delay => '1h', unique_key => 'u', concurrency_key => 'c')");

	wait_status($node, 'postgres', $done, 'completed', "round $round: a job is completed");
	wait_status($node, 'postgres', $dead, 'error', 'one fails');
	wait_status($node, 'postgres', $tool, 'completed', 'a tool runs');
	wait_status($node, 'postgres', $again, 'error', 'one fails twice');
	is(sql("SELECT result FROM jobq.jobs WHERE id = '$done'"), '{"n": 1}', 'its result is there');
	is(sql("SELECT string_agg(type, ' ' ORDER BY id) FROM jobq.events WHERE job_id = '$done'"),
		'enqueued started log completed', 'its events are there');
	is(sql("SELECT jobq.enqueue('$t', '{\"n\": 3}', delay => '1h', unique_key => 'u', on_conflict => 'replace') = '$later'"),
		't', 'one is replaced');
	is(sql("SELECT payload FROM jobq.queue WHERE id = '$later'"), '{"n": 3}', 'and has the payload');
	is(sql("SELECT jobq.alter_job('$later', priority => 5)"), 't', 'and is altered');
	is(sql("SELECT jobq.cancel_job('$later', 'why')"), 't', 'and cancelled');
	is(sql("SELECT status, error_msg FROM jobq.jobs WHERE id = '$later'"), 'cancelled|why', 'and stands in history');
	is(sql("SELECT jobq.retry_job('$later')"), 't', 'and is retried');
	wait_status($node, 'postgres', $later, 'completed', 'and completed');
	is(sql("SELECT payload, unique_key, concurrency_key FROM jobq.jobs WHERE id = '$later'"), '{"n": 3}|u|c', 'as it was');
	is(sql("SELECT jobq.retry_job('$dead', max_attempts => 1)"), 't', 'a dead letter is retried');
	wait_status($node, 'postgres', $dead, 'error', 'and fails again');
	is(sql("SELECT jobq.retry_dead_letters('$t')"), 1, 'and with others');
	wait_status($node, 'postgres', $dead, 'error', 'and fails again');
	is(sql(q{SELECT jobq.stop_all('why'); SELECT jobq.start_all()}) =~ tr/\n//, 1, 'all stops and starts');
	is(sql("SELECT count(*) > 0 FROM jobq.archive('infinity')"), 't', 'history is archived');
	is(sql("SELECT array_agg(name) FROM (SELECT name FROM jobq.signals WHERE name = '$t' UNION ALL"
		  . " SELECT signal FROM jobq.pressure_rules WHERE signal = '$t') s"), "{$t,$t}", 'signal and rule are there');
	is(sql("SELECT count(*) FROM jobq.quota_jobs WHERE tenant = 'q$round'"), 1, 'the quota has counted');
	is(sql("SELECT count(*) FROM jobq.alerts WHERE job_id = '$dead'"), 3, 'an alert for each time');
	is(sql('SELECT sum(change) = (SELECT count(*) FROM jobq.dead_letters) FROM jobq.dead_letter_count'), 't',
		'the dead letters are counted');
	my $child = sql("SELECT id FROM jobq.enqueue_jobs('[{\"job_type\": \"$t\"}, {\"job_type\": \"$t\", \"after\": [1]}]') WHERE ordinal = 2");
	wait_status($node, 'postgres', $child, 'completed', 'a job waits for another one');
	wait_true('SELECT count(*) = 0 FROM jobq.dependencies', 'its edge is gone');
	sql("SELECT jobq.schedule('$t', '\@yearly', '$t')");
	is(sql("SELECT jobq.backfill_schedule('$t', '2024-01-01', '2025-01-01')"), 2, 'a schedule enqueues jobs');
	is(sql("SELECT runs FROM jobq.schedules WHERE name = '$t'"), 2, 'and counts them');
	my $ticked = sql("SELECT jobq.run_schedule('$t')");
	wait_status($node, 'postgres', $ticked, 'completed', 'which run');
	wait_true("SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'", 'health finds nothing');
	return unless defined $note;
	is(sql("SELECT DISTINCT note FROM jobq.$_->[0] WHERE $_->[1]"), $note, "the column of $_->[0] has its default")
	  foreach [ 'history', "id IN ('$done', '$later', '$tool')" ], [ 'dead_letters', "id = '$dead'" ],
	  [ 'events', "job_id = '$done'" ], [ 'alerts', "job_id = '$dead'" ], [ 'artifacts', "job_id = '$tool'" ], [ 'job_types', "name LIKE '$t%'" ],
	  [ 'quota_jobs', "tenant = 'q$round'" ], [ 'limits', "name = '$t'" ], [ 'signals', "name = '$t'" ], [ 'home', 'true' ],
	  [ 'schedules', "name = '$t'" ];
	return;
}

use_everything(0, undef);

# ---------- columns are added ----------

my $held = sql("SELECT jobq.enqueue('t0', '{\"held\": 1}', delay => '1 day', unique_key => 'held')");
alter(q{ADD COLUMN note text DEFAULT 'x'});
use_everything(1, 'x');
is(sql("SELECT note FROM jobq.queue WHERE id = '$held'"), 'x', 'a row from before has the default');

# A value set by the owner stays with the job's row through all changes by jobq.
sql("UPDATE jobq.queue SET note = 'mine' WHERE id = '$held'");
is(sql("SELECT jobq.enqueue('t0', '{\"held\": 2}', delay => '1 day', unique_key => 'held', on_conflict => 'replace')"),
	$held, 'the job is replaced');
is(sql("SELECT note, payload FROM jobq.queue WHERE id = '$held'"), 'mine|{"held": 2}', 'and keeps the value');

# ---------- and more, of every kind, and one is dropped ----------

alter('ADD COLUMN gone int DEFAULT 7');
alter('ADD COLUMN twice text GENERATED ALWAYS AS (note || note) STORED');
alter('ADD COLUMN empty numeric');
alter(q{ADD COLUMN strict text NOT NULL DEFAULT current_setting('server_version_num')});
alter('DROP COLUMN gone');
wait_true("SELECT jobq.health()->'checks'->'identity'->>'status' = 'unhealthy'", 'a command that rewrites jobq.home makes it a copy');
sql('SELECT jobq.adopt()');
use_everything(2, 'x');
is(sql("SELECT DISTINCT twice, empty, strict = current_setting('server_version_num') FROM jobq.$_"), 'xx||t', "all columns of $_")
  foreach qw(history events alerts home);
is(sql("SELECT note, twice FROM jobq.queue WHERE payload ? 'held'"), 'mine|minemine', 'the held job has its own');

# partitions that are made now lack the dropped column, so their columns have other numbers
sql("SELECT jobq.create_job_type('far', 'work(jsonb)', keep_completed => '400 days', max_attempts => 1)");
my $far = sql("SELECT jobq.enqueue('far', '{\"far\": 1}')");
wait_status($node, 'postgres', $far, 'completed', 'a job goes to a new partition');
is(sql("SELECT note, twice, empty, worker IS NOT NULL FROM jobq.history WHERE id = '$far'"), 'x|xx||t', 'with all columns');
isnt(sql("SELECT a.attnum = b.attnum FROM jobq.history h, pg_attribute a, pg_attribute b WHERE h.id = '$far'"
	  . " AND a.attrelid = h.tableoid AND b.attrelid = 'jobq.history'::regclass AND (a.attname, b.attname) = ('strict', 'strict')"),
	't', 'and has other column numbers');

# A default runs as the owner of the table, not as the process that writes the row,
# and cannot change its rights.
sql(q{CREATE FUNCTION whoami() RETURNS text LANGUAGE sql AS 'SELECT current_user::text'},
	'CREATE TABLE saved (owner regrole)', "INSERT INTO saved SELECT relowner::regrole FROM pg_class WHERE oid = 'jobq.dead_letters'::regclass",
	'ALTER TABLE jobq.dead_letters ADD COLUMN who text DEFAULT whoami()', 'ALTER TABLE jobq.dead_letters OWNER TO lister');
my $dead = sql("SELECT jobq.enqueue('t0', '{\"fail\": 1}')");
wait_status($node, 'postgres', $dead, 'error', 'one more fails');
like(sql("SELECT who FROM jobq.dead_letters WHERE id = '$dead'"), qr/^lister$/, 'the default ran as the owner');
sql('ALTER TABLE jobq.dead_letters OWNER TO CURRENT_USER', 'ALTER TABLE jobq.dead_letters DROP COLUMN who');

# A NOT NULL column without default stops writers of the table, with a message.
sql('ALTER TABLE jobq.queue ADD COLUMN must int', 'UPDATE jobq.queue SET must = 1', 'ALTER TABLE jobq.queue ALTER must SET NOT NULL');
sqlstate_is($node, 'postgres', "SELECT jobq.enqueue('t0')", '23502', 'no row without it');
sql('ALTER TABLE jobq.queue DROP COLUMN must');

alter("DROP COLUMN twice, DROP COLUMN empty, DROP COLUMN strict");
use_everything(3, 'x');
alter('DROP COLUMN note');
use_everything(4, undef);

# ---------- jobq's own columns are changed ----------

# A change, its undoing, the message of health().  Views and policies prevent a type change of most
# columns, but not a rename; so one column of each table is also renamed.
my @changes = (
	[ 'home', 'RENAME COLUMN home_id TO h', 'RENAME COLUMN h TO home_id', 'column "home_id" of jobq.home is missing' ],
	[ 'home', 'ALTER self_xid DROP NOT NULL', 'ALTER self_xid SET NOT NULL', 'self_xid.* is not NOT NULL' ],
	[ 'limits', 'ALTER rate_limit TYPE bigint', 'ALTER rate_limit TYPE int', 'column "rate_limit" of jobq.limits has another type' ],
	[ 'stopped', 'ALTER reason TYPE varchar(10)', 'ALTER reason TYPE text', '"reason" of jobq.stopped has another type' ],
	[ 'signals', 'ALTER active DROP NOT NULL', 'ALTER active SET NOT NULL', 'active.* is not NOT NULL' ],
	[ 'pressure_rules', 'ALTER priority_adj TYPE int8', 'ALTER priority_adj TYPE int4', 'another type' ],
	[ 'queue', 'ALTER home_id TYPE int8', 'ALTER home_id TYPE int4', 'column "home_id" of jobq.queue has another type' ],
	[ 'queue', 'ALTER successor DROP NOT NULL', 'ALTER successor SET NOT NULL', 'successor.* is not NOT NULL' ],
	[ 'quota_jobs', 'ALTER bytes TYPE numeric', 'ALTER bytes TYPE int8', 'another type' ],
	[ 'dead_letter_count', 'ALTER change TYPE int4', 'ALTER change TYPE int8', 'another type' ]);
push @changes, map { [ $_->[0], "RENAME COLUMN $_->[1] TO old", "RENAME COLUMN old TO $_->[1]", qq(column "$_->[1]" of jobq.$_->[0] is missing) ] }
  ([ 'job_types', 'run_as' ], [ 'job_type_env', 'env' ], [ 'limits', 'name' ], [ 'stopped', 'since' ], [ 'queue', 'rev' ], [ 'history', 'counted' ],
	[ 'dead_letters', 'depth' ], [ 'events', 'level' ], [ 'alerts', 'title' ], [ 'access', 'role' ], [ 'tenant_check', 'signature' ],
	[ 'tenant_quotas', 'max_live' ], [ 'quota_jobs', 'bytes' ], [ 'dead_letter_count', 'change' ], [ 'signals', 'name' ],
	[ 'pressure_rules', 'block' ], [ 'hook_references', 'job_id' ], [ 'schedules', 'skipped' ], [ 'artifacts', 'bucket' ],
	[ 'dependencies', 'child_id' ]);
my %covered = map { $_->[0] => 1 } @changes;
is(join(' ', grep { !$covered{$_} } @tables), 'audit before_drops counted_types disk_log run_timers runs unique_for_types workflows', 'but for those that only SQL reads, all are changed');

foreach my $change (@changes)
{
	my ($table, $do, $undo, $text) = @$change;

	sql("ALTER TABLE jobq.$table $do");
	wait_true("SELECT h->>'status' = 'unhealthy' AND h->'checks'->'queues'->>'message' ~ 'no job runs: .*"
		  . ($text =~ s/"/"/gr) . "' AND h->'checks'->'dispatcher'->>'status' = 'healthy' FROM (SELECT jobq.health() h) a",
		"$table: $do: health says so");
	sql("ALTER TABLE jobq.$table $undo");
	wait_true("SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'", 'and nothing when it is undone');
}

# An enqueue reports it, too.
sql('ALTER TABLE jobq.queue RENAME COLUMN depth TO d');
sqlstate_is($node, 'postgres', "SELECT jobq.enqueue('t0')", '55000', 'an enqueue over a changed table: 55000');
# dropped like that, and restored by hand: the column is behind the others now
sql('ALTER TABLE jobq.queue RENAME COLUMN d TO depth');
sql('ALTER TABLE jobq.stopped DROP COLUMN reason', 'ALTER TABLE jobq.stopped ADD COLUMN reason text');
wait_true("SELECT jobq.health()->'checks'->'queues'->>'message' ~ '\"reason\" of jobq.stopped is not in its place'",
	'a column that was dropped and added again is not in its place');
is(sql('SELECT pg_postmaster_start_time()'), $postmaster, 'the server is the same');
$node->stop;
my $log = slurp_file($node->logfile);
unlike($log, qr/terminated by signal|PANIC|TRAP:|reinitializing/, 'and no process has crashed');
like($log, qr/jobq: no job runs: column "rate_limit" of jobq\.limits has another type/, 'the log names the column');
done_testing();
