# A table or partition of jobq that has other columns than jobq knows is neither read nor written:
# hand-out stops, health() and the log name table and column, an enqueue fails with 55000, and no
# process crashes.  With jobq preloaded the server refuses such changes (sql/security.sql): here
# they are made in the catalog, or without the library.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('shape', 'jobq.max_sql_workers = 2', 'autovacuum = off', 'jobq.sweep_interval = 100ms');
$node->start;

sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sql('CREATE EXTENSION jobq', q{CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS ''}, q{SELECT jobq.create_job_type('t', 'work(jsonb)')});
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

my $message = q{SELECT h->>'status' = 'unhealthy' AND h->'checks'->'dispatcher'->>'status' = 'healthy' AND h->'checks'->'queues'->>'message' LIKE 'no job runs: %s' FROM (SELECT jobq.health() h) s};

# Makes a change, looks for the message, undoes the change: jobs run.
sub differs
{
	my ($what, $do, $undo, $text) = @_;

	$do->();
	wait_for_sql($node, sprintf($message, $text), "$what: health() says so");
	$undo->();
	wait_for_sql($node, "SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'", 'and nothing when it is undone');
	return;
}

# ---------- a column of each table ----------

my @tables = split /\n/, sql(q{SELECT relname FROM pg_class WHERE relnamespace = 'jobq'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND relname NOT IN ('audit', 'before_drops', 'counted_types', 'disk_log', 'run_timers', 'runs', 'workflows') ORDER BY 1});
cmp_ok(scalar @tables, '>=', 21, 'tables that C code reads');
foreach my $table (@tables)
{
	my $column = sql("SELECT attname FROM pg_attribute WHERE attrelid = 'jobq.$table'::regclass ORDER BY attnum DESC LIMIT 1");
	my $rename = sub { sql("UPDATE pg_attribute SET attname = '$_[1]' WHERE attrelid = 'jobq.$table'::regclass AND attname = '$_[0]'") };

	differs($table, sub { $rename->($column, 'old') }, sub { $rename->('old', $column) }, qq(column "old" of jobq.$table is in the place of "$column"));
}

# ---------- what the dispatcher and clients do then ----------

my $set = q{UPDATE pg_attribute SET attnotnull = %s WHERE attrelid = 'jobq.queue'::regclass AND attname = 'successor'};
my $job = sql(q{SELECT jobq.enqueue('t', delay => '100ms')});
sql(sprintf $set, 'false');
sqlstate_is($node, 'postgres', $_, '55000', $_)
  foreach q{SELECT jobq.enqueue('t')}, "SELECT jobq.cancel_job('$job')", 'UPDATE jobq.queue SET priority = 1';
wait_for_sql($node, "SELECT clock_timestamp() > scheduled_for FROM jobq.queue WHERE id = '$job'", 'a job is due');
like(sql('SELECT jobq.health(), jobq.health()'), qr/column \\"successor\\" of jobq\.queue is not NOT NULL/, 'the dispatcher has looked');
is(sql("SELECT runs, status FROM jobq.queue WHERE id = '$job'"), '0|pending', 'and has not handed it out');
sql(sprintf $set, 'true');
wait_status($node, 'postgres', $job, 'completed', 'it runs when the change is undone');

# ---------- partitions ----------

my $bounds = q{FOR VALUES FROM ('2999-01-01') TO ('2999-01-02')};
sql('CREATE TABLE odd (LIKE jobq.history INCLUDING CONSTRAINTS, more int)', 'ALTER TABLE odd DROP more');
differs('a partition with a dropped column', sub { sql("ALTER TABLE jobq.history ATTACH PARTITION odd $bounds") }, sub { sql('ALTER TABLE jobq.history DETACH PARTITION odd') },
	'a column of public.odd was added and dropped');
my $columns = sql(q{SELECT string_agg(format('%I %s %s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' END), ', ' ORDER BY attnum DESC)
  FROM pg_attribute WHERE attrelid = 'jobq.events'::regclass AND attnum > 0});
sql("CREATE TABLE jobq.turned ($columns)", q{DO $$
DECLARE
  c record;
BEGIN
  FOR c IN SELECT conname, pg_get_constraintdef(oid) AS def FROM pg_constraint WHERE conrelid = 'jobq.events'::regclass AND contype = 'c' LOOP
    EXECUTE format('ALTER TABLE jobq.turned ADD CONSTRAINT %I %s', c.conname, c.def);
  END LOOP;
END $$});
differs('a partition with another order', sub { sql("ALTER TABLE jobq.events ATTACH PARTITION jobq.turned $bounds") }, sub { sql('ALTER TABLE jobq.events DETACH PARTITION jobq.turned') },
	'column "data" of jobq.turned is in the place of "id"');
sql('CREATE SCHEMA elsewhere', "CREATE TABLE elsewhere.fits PARTITION OF jobq.history $bounds");
wait_status($node, 'postgres', sql(q{SELECT jobq.enqueue('t')}), 'completed', 'a partition in another schema fits');

# ---------- tables that were altered without the library ----------

# [ change, message, undoing; none: a column was dropped for good ]
my %changes = (
	more => [ 'ALTER TABLE jobq.queue ADD COLUMN note text', q(column "note" of jobq.queue is not jobq's) ],
	typed => [ 'ALTER TABLE jobq.limits ALTER rate_limit TYPE bigint', 'column "rate_limit" of jobq.limits has another type', 'ALTER TABLE jobq.limits ALTER rate_limit TYPE int' ],
	again => [ 'ALTER TABLE jobq.stopped DROP COLUMN reason, ADD COLUMN reason text', 'a dropped column of jobq.stopped is in the place of "reason"' ],
	gone => [ 'ALTER TABLE jobq.artifacts RENAME TO artefacts', 'table jobq.artifacts is missing', 'ALTER TABLE jobq.artefacts RENAME TO artifacts' ]);

# Executes statements in databases of these names, while the server runs without jobq.
sub without_library
{
	my ($which) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->restart;
	defined $changes{$_}[$which] and $node->safe_psql($_, $changes{$_}[$which]) foreach sort keys %changes;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq'");
	$node->restart;
	return;
}

foreach my $db (sort keys %changes)
{
	sql("CREATE DATABASE $db");
	$node->safe_psql($db, q{CREATE EXTENSION jobq; CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS ''; SELECT jobq.create_job_type('t', 'work(jsonb)'), jobq.enqueue('t', delay => '10 years')});
}
without_library(0);
foreach my $db (sort keys %changes)
{
	ok($node->poll_query_until($db, sprintf($message, $changes{$db}[1] =~ s/'/''/gr)), "$db: $changes{$db}[0]: health() says so");
	sqlstate_is($node, $db, q{SELECT jobq.enqueue('t')}, '55000', 'an enqueue fails') if $db eq 'more';
}
without_library(2);
ok($node->poll_query_until($_, "SELECT jobq.health()->'checks'->'queues'->>'status' = 'healthy'"), "$_: a change that is undone the same way") foreach 'gone', 'typed';
$node->stop;
my $log = slurp_file($node->logfile);
unlike($log, qr/terminated by signal|PANIC|TRAP:|reinitializing/, 'no process has crashed');
like($log, qr/jobq: no job runs: column "rate_limit" of jobq\.limits has another type/, 'the log names the column');
done_testing();
