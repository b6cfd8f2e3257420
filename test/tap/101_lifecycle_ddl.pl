# Commands that need the queue's locks or an empty database: jobs never block them, and after a
# rollback the jobs continue without a trace.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $limit = 30;					# seconds: 2 for jobq, the rest for a stalled machine; the jobs that could block last 600

# without superuser rights a role may not end an autovacuum worker, nor a superuser's session
my $node = jobq_server('ddl', 'autovacuum = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub enqueue
{
	my ($db, $type, $payload) = @_;

	return $node->safe_psql($db, "SELECT jobq.enqueue('$type', '$payload')");
}

sub start_sleeper
{
	my ($db) = @_;
	my $id = enqueue($db, 'sleeper', '{"seconds": 600}');

	wait_status($node, $db, $id, 'running', "a handler runs in $db");
	return $id;
}

sub quick
{
	my ($db, $sql, $what) = @_;
	my ($rc, $err);
	my $seconds = seconds_of { ($rc, undef, $err) = $node->psql($db, $sql, on_error_stop => 1) };

	is($rc, 0, "$what works") or diag $err;
	cmp_ok($seconds, '<', $limit, sprintf 'and is not blocked (%.1f s)', $seconds);
	return;
}

sub works
{
	my ($db, $what) = @_;
	my $id = enqueue($db, 'sleeper', '{}');

	wait_status($node, $db, $id, 'completed', $what);
	return;
}

# attempts, runs of a job that runs again
sub runs_again
{
	my ($db, $id, $runs, $what) = @_;

	return ok($node->poll_query_until($db, "SELECT status = 'running' AND (attempts, runs) = (1, $runs)"
			  . " FROM jobq.jobs WHERE id = '$id'"), $what);
}

# ---------- rolled back: all jobs continue, no attempt is charged ----------

my $sleeper = start_sleeper('postgres');
my $stubborn = enqueue('postgres', 'stubborn', '{}');
wait_status($node, 'postgres', $stubborn, 'running', 'so does one that swallows its cancel');
my $tool = enqueue('postgres', 'tool', '{"seconds": "600"}');
wait_status($node, 'postgres', $tool, 'running', 'and a tool');

my $dispatcher = dispatcher($node, 'postgres');
quick('postgres', 'BEGIN; DROP EXTENSION jobq; ROLLBACK', 'DROP EXTENSION');
# a handler's start is rolled back with it, a tool's is not
runs_again('postgres', $_->[0], $_->[2], "$_->[1] runs again, not charged")
  foreach [ $sleeper, 'the handler', 1 ], [ $stubborn, 'the stubborn one', 1 ], [ $tool, 'the tool', 2 ];
is(dispatcher($node, 'postgres'), $dispatcher, 'the dispatcher has stayed');

# A session stopped while it waits for the locks still ends the stubborn job.
my $halted = $node->background_psql('postgres', on_error_stop => 0);
my $halts = $node->background_psql('postgres');
my $halted_pid = $halted->query_safe("SET statement_timeout = '40s'; SELECT pg_backend_pid()");
my $drops = "FROM pg_stat_activity WHERE pid = $halted_pid AND query LIKE 'DROP%'";
$halts->query_until(qr/watching/, <<"END");
\\echo watching
DO \$\$
BEGIN
  WHILE NOT EXISTS (SELECT $drops AND (state <> 'active' OR wait_event_type = 'Extension')) LOOP
    PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
  END LOOP;
  COPY (SELECT WHERE false) TO PROGRAM 'kill -STOP $halted_pid';
END \$\$;
\\echo stopped
END
$halted->query_until(qr/begun/, "BEGIN;\n\\echo begun\nDROP EXTENSION jobq;\n\\echo :SQLSTATE ended\n");
$halts->query_until(qr/stopped/, '');
$halts->quit;
wait_for_sql($node, "SELECT clock_timestamp() > query_start + '2.5s' $drops", 'it is stopped');
kill 'CONT', $halted_pid;
like($halted->query_until(qr/ended/, ''), qr/00000 ended/, 'it is not blocked');
$halted->query_safe('ROLLBACK');
$halted->quit;
runs_again('postgres', $stubborn, 1, 'the stubborn one runs again, not charged');
runs_again('postgres', $sleeper, 1, 'and so does the handler');

my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
$session->query_safe('SAVEPOINT s');
$session->query_safe('DROP EXTENSION jobq');
$session->query_safe('ROLLBACK TO s');
runs_again('postgres', $sleeper, 1, 'ROLLBACK TO SAVEPOINT ends it: the handler runs');
$session->query_safe('SAVEPOINT t');
$session->query_safe('DROP EXTENSION jobq');
$session->query_safe('RELEASE t');
$session->query_safe('ROLLBACK');
$session->quit;
works('postgres', 'a released savepoint ends with its transaction');
runs_again('postgres', $sleeper, 1, 'and the handler runs');

# DROP EXTENSION in a savepoint after another command that stops handlers
my $since = dispatcher($node, 'postgres');
quick('postgres', 'BEGIN; DROP INDEX IF EXISTS jobq.none; CREATE INDEX mine ON jobq.queue (type_id) WHERE false; SAVEPOINT s; DROP EXTENSION jobq; ROLLBACK TO s; DROP INDEX jobq.mine; COMMIT',
	'DROP EXTENSION that is undone');
runs_again('postgres', $sleeper, 1, 'the handler runs again');
is(dispatcher($node, 'postgres'), $since, 'the dispatcher has stayed: the extension is there');

sqlstate_is($node, 'postgres', 'DROP EXTENSION jobq, no_such_extension', '42704', 'an error is the usual one');
runs_again('postgres', $sleeper, 1, 'and ends it, too');

$node->safe_psql('postgres', "BEGIN; DROP EXTENSION jobq; PREPARE TRANSACTION 'drop'");
$node->safe_psql('postgres', "ROLLBACK PREPARED 'drop'");
works('postgres', 'so do PREPARE and ROLLBACK PREPARED');
runs_again('postgres', $sleeper, 1, 'the handler runs');

wait_status($node, 'postgres', $tool, 'running', 'the tool, too');
my $runs = $node->safe_psql('postgres', "SELECT runs FROM jobq.jobs WHERE id = '$tool'");
quick('postgres', 'ALTER EXTENSION jobq UPDATE', 'ALTER EXTENSION UPDATE');
works('postgres', 'jobs run after it');
is($node->safe_psql('postgres', "SELECT status, runs FROM jobq.jobs WHERE id = '$tool'"), "running|$runs",
	'the tool was not disturbed');

# Those that change the queue need its locks, too; a handler holds one from its start to its end.
# The first rows are those of pg_restore --clean.
$node->safe_psql('postgres', 'CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$');
foreach my $change (
	'CREATE POLICY p ON jobq.queue USING (true)', 'ALTER POLICY p ON jobq.queue USING (false)', 'ALTER POLICY p ON jobq.queue RENAME TO q',
	'DROP POLICY q ON jobq.queue',
	'CREATE TRIGGER t AFTER DELETE ON jobq.queue FOR EACH STATEMENT EXECUTE FUNCTION nothing()',
	'ALTER TABLE jobq.queue DISABLE TRIGGER t', 'ALTER TRIGGER t ON jobq.queue RENAME TO u', 'DROP TRIGGER u ON jobq.queue',
	'CREATE INDEX mine ON jobq.queue (type_id) WHERE false', 'REINDEX INDEX jobq.mine', 'CREATE INDEX other ON done (what)', 'DROP INDEX other, jobq.mine', 'REINDEX TABLE jobq.queue',
	'ALTER TABLE jobq.queue NO FORCE ROW LEVEL SECURITY')
{
	runs_again('postgres', $sleeper, 1, 'a handler runs');
	quick('postgres', $change, $change);
}
is($node->safe_psql('postgres', "SELECT status, runs FROM jobq.jobs WHERE id = '$tool'"), "running|$runs", 'the tool was not disturbed');
runs_again('postgres', $sleeper, 1, 'a handler runs');
my $at = $node->safe_psql('postgres', "SELECT worker, started_at FROM jobq.jobs WHERE id = '$sleeper'");
quick('postgres', $_, $_) foreach 'ALTER TABLE jobq.queue SET (toast.autovacuum_enabled = true)', 'ALTER TABLE jobq.queue RESET (toast.autovacuum_enabled)',
  'CREATE INDEX mine ON jobq.dead_letters (type_id)', 'DROP INDEX jobq.mine', 'CREATE TABLE own (i int); DROP TABLE own', 'CREATE INDEX mine ON jobq.dead_letters (type_id)', 'ALTER INDEX jobq.mine RENAME TO ours', 'DROP INDEX jobq.ours',
  'ALTER INDEX jobq.queue_id RENAME TO renamed', 'ALTER INDEX jobq.renamed RENAME TO queue_id';
sqlstate_is($node, 'postgres', "SET statement_timeout = '1s'; CREATE INDEX CONCURRENTLY later ON jobq.queue (type_id)", '57014',
	'CREATE INDEX CONCURRENTLY waits for handlers, as for other transactions');
is($node->safe_psql('postgres', "SELECT worker, started_at FROM jobq.jobs WHERE id = '$sleeper'"), $at,
	'a handler runs on beside what needs no such lock, or is of another table');
quick('postgres', 'DROP INDEX IF EXISTS public.no_index, jobq.later', 'DROP INDEX of what it has left');

# ---------- commands without the right have no effect on jobs ----------

$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN CREATEDB');
runs_again('postgres', $sleeper, 1, 'a handler runs');
my $worker = "SELECT worker FROM jobq.jobs WHERE id = '$sleeper'";
my $before = $node->safe_psql('postgres', $worker);
sqlstate_is($node, 'postgres', "SET ROLE stranger; $_->[0]", $_->[1], "$_->[0] by a stranger")
  foreach [ 'DROP EXTENSION jobq', 42501 ], [ 'DROP OWNED BY postgres', 42501 ],
  [ 'ALTER EXTENSION jobq UPDATE', 42501 ], [ 'CREATE INDEX ON jobq.queue (type_id)', 42501 ], [ 'ALTER TABLE jobq.queue OWNER TO stranger', 42501 ];
sqlstate_is($node, 'postgres', "DROP SCHEMA $_ CASCADE", '2BP01', "DROP SCHEMA $_ is an error") foreach 'jobq', 'jobq_internal';
sqlstate_is($node, 'postgres', 'DROP EXTENSION IF EXISTS no_such_extension', '00000', 'IF EXISTS works as ever');
$node->safe_psql('template1', 'SET ROLE stranger; ' . $_) foreach 'CREATE DATABASE mine';
sqlstate_is($node, 'template1', "SET ROLE stranger; $_", '42501', "$_ by a stranger")
  foreach 'DROP DATABASE postgres', 'ALTER DATABASE postgres RENAME TO other', 'CREATE DATABASE mine2 TEMPLATE postgres';
is($node->safe_psql('postgres', $worker), $before, 'the handler has not been disturbed');
sqlstate_is($node, 'template1', 'BEGIN; DROP DATABASE postgres', '25001', 'DROP DATABASE in a transaction block');
is($node->safe_psql('postgres', $worker), $before, 'neither by that');

# ---------- commands on a database ----------

# jobq.databases goes by name
sub unattended { return wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'named' AND backend_type LIKE 'jobq%'", $_[0]); }

$node->safe_psql('postgres', 'CREATE DATABASE named');
$node->safe_psql('named', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'named', 'a database has its dispatcher');
$node->append_conf('postgresql.conf', "jobq.databases = 'postgres, renamed'");
$node->reload;
unattended('none where jobq.databases leaves it out');
$node->safe_psql('postgres', 'ALTER DATABASE named RENAME TO renamed');
wait_dispatcher($node, 'renamed', 'one with the name that is listed');
$node->safe_psql('postgres', 'ALTER DATABASE renamed RENAME TO named');
unattended('none with the former name');
$node->append_conf('postgresql.conf', "jobq.databases = ''");
$node->reload;
$node->safe_psql('postgres', 'DROP DATABASE named');

sub busy_database
{
	my ($db) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, 'CREATE EXTENSION jobq');
	sleeper_types($node, $db);
	return start_sleeper($db);
}

my $in_one = busy_database('one');
quick('postgres', 'CREATE DATABASE copy TEMPLATE one', 'CREATE DATABASE ... TEMPLATE');
runs_again('one', $in_one, 1, 'the handler in the template runs again');
quick('postgres', 'ALTER DATABASE one RENAME TO uno', 'RENAME');
runs_again('uno', $in_one, 1, 'and after RENAME');
my $space = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$space'");
quick('postgres', 'ALTER DATABASE uno SET TABLESPACE space', 'SET TABLESPACE');
runs_again('uno', $in_one, 1, 'and after SET TABLESPACE');
quick('postgres', "ALTER DATABASE uno SET jobq.max_concurrent = 3; ALTER DATABASE uno CONNECTION LIMIT 50",
	'ALTER DATABASE of other kinds');

my $guest = $node->background_psql('uno');
$guest->query_safe('SELECT 1');
sqlstate_is($node, 'postgres', 'DROP DATABASE uno', '55006', 'DROP DATABASE with another session in it');
runs_again('uno', $in_one, 1, 'fails, and the handler runs again');
$guest->quit;
my $stuck = enqueue('uno', 'stubborn', '{}');
wait_status($node, 'uno', $stuck, 'running', 'a stubborn handler');
my $in_tool = enqueue('uno', 'tool', '{"seconds": "600"}');
wait_status($node, 'uno', $in_tool, 'running', 'and a tool');
my $uno = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'uno'});
quick('postgres', 'DROP DATABASE uno', 'DROP DATABASE');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'jobq%' AND datid = $uno"),
	0, 'no process is left');
busy_database('two');
quick('postgres', 'DROP DATABASE two WITH (FORCE)', 'DROP DATABASE ... FORCE');
quick('postgres', 'DROP DATABASE IF EXISTS two', 'DROP DATABASE IF EXISTS');
sqlstate_is($node, 'postgres', 'DROP DATABASE two', '3D000', 'DROP DATABASE of none');
runs_again('postgres', $sleeper, 1, 'the other database was not disturbed');

# its owner need not be a superuser
$node->safe_psql('postgres', 'ALTER ROLE stranger SUPERUSER');
busy_database('three');
$node->safe_psql('postgres', 'ALTER ROLE stranger NOSUPERUSER; ALTER DATABASE three OWNER TO stranger');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'three' AND backend_type NOT LIKE 'jobq%'",
	'our sessions have left');
quick('postgres', 'SET ROLE stranger; DROP DATABASE three WITH (FORCE)', 'DROP DATABASE by its owner');

# ---------- an owner's belongings ----------

$node->safe_psql('postgres', 'CREATE ROLE boss SUPERUSER; CREATE DATABASE four');
$node->safe_psql('four', 'SET ROLE boss; CREATE EXTENSION jobq');
sleeper_types($node, 'four');
start_sleeper('four');
quick('four', 'REASSIGN OWNED BY boss TO postgres; REASSIGN OWNED BY stranger TO postgres', 'REASSIGN OWNED');
works('four', 'jobs run after it');
$node->safe_psql('postgres', 'DROP DATABASE four');
$node->safe_psql('postgres', 'CREATE DATABASE four');
$node->safe_psql('four', 'SET ROLE boss; CREATE EXTENSION jobq; RESET ROLE');
sleeper_types($node, 'four');
start_sleeper('four');
quick('four', 'DROP OWNED BY boss CASCADE', 'DROP OWNED');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity"
	  . " WHERE backend_type = 'jobq dispatcher' AND datname = 'four'", 'takes the dispatcher away');

# ---------- DROP EXTENSION for good, under load ----------

my $load = $node->background_psql('postgres', on_error_stop => 0);
$load->query_until(qr/started/, <<'END');
\echo started
DO $$ BEGIN LOOP PERFORM jobq.enqueue('sleeper', '{"seconds": 0.01}'); COMMIT; END LOOP; END $$;
END
wait_for_sql($node, "SELECT count(*) > 5 FROM jobq.jobs WHERE status = 'completed' AND job_type = 'sleeper'",
	'a session enqueues without end');
quick('postgres', 'DROP EXTENSION jobq', 'DROP EXTENSION');
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'"
	  . " AND datname = 'postgres'",
	'its dispatcher leaves');
$load->quit;
$node->safe_psql('postgres', 'DROP TABLE done; DROP FUNCTION sleeper, stubborn; CREATE EXTENSION jobq');
sleeper_types($node, 'postgres');
works('postgres', 'a new extension works at once');

# A dispatcher that left on request does not delay the next one.  The quickest of some tries; a
# failed start's delay is 1 s.
my $quickest = 1e9;
foreach (1 .. 10)
{
	my $seconds = $node->safe_psql('postgres', q{
DROP EXTENSION jobq;
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('sleeper', 'sleeper(jsonb)') \gset
SELECT jobq.enqueue('sleeper', '{}') AS id \gset
SELECT status FROM jobq.wait_for(:'id') \gset
SELECT extract(epoch FROM started_at - created_at) FROM jobq.jobs WHERE id = :'id'});

	$quickest = $seconds if $seconds < $quickest;
	last if $quickest < 0.9;
}
cmp_ok($quickest, '<', 0.9, 'the first job after DROP EXTENSION and CREATE EXTENSION runs at once');

# So when it has come and gone within a second: with a delay, the next one would come a second after
# its start.  Two renames follow each other so quickly.
$node->safe_psql('postgres', <<'END');
CREATE DATABASE broken;
-- The start of the dispatcher that has come since then, when it works.
CREATE FUNCTION dispatcher_since(since timestamptz, OUT start timestamptz) LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM pg_stat_clear_snapshot();
    SELECT backend_start INTO start FROM pg_stat_activity
      WHERE backend_type = 'jobq dispatcher' AND datname LIKE 'broken%' AND backend_start > since AND state = 'idle';
    EXIT WHEN FOUND;
    PERFORM pg_sleep(0.002);
  END LOOP;
END $$;
END
$node->safe_psql('broken', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'broken', 'a database that is renamed');
my ($proof, $in_time) = ('f', 0);
foreach (1 .. 10)
{
	($proof, my $quick, my @times) = split /\|/, $node->safe_psql('postgres', <<'END');
SET statement_timeout = '180s';
SELECT clock_timestamp() AS began \gset
ALTER DATABASE broken RENAME TO broken1;
SELECT dispatcher_since(:'began') AS former \gset
SELECT clock_timestamp() AS began \gset
ALTER DATABASE broken1 RENAME TO broken;
SELECT clock_timestamp() AS renamed \gset
SELECT start - :'former' < interval '0.9 s', :'renamed' - timestamptz :'former' < interval '0.5 s', :'renamed' - timestamptz :'former', start - :'former'
  FROM dispatcher_since(:'began');
END
	note "renamed and started so long after the start of the former dispatcher: @times";
	$in_time++ if $quick eq 't';
	last if $proof eq 't';
}
SKIP:
{
	skip 'the machine is too slow to tell', 1 unless $proof eq 't' || $in_time;
	is($proof, 't', 'also when it has come and gone within a second');
}

# A dispatcher that can't connect after it has left on request is restarted with delays: 1 s, 2 s,
# ... between tries.
my $version = $node->data_dir . '/base/' . $node->safe_psql('broken', 'SELECT oid FROM pg_database WHERE datname = current_database()') . '/PG_VERSION';
rename $version, "$version.away" or die $!;

# The times of the failed tries, in seconds; each line is written before the next try.
sub failures
{
	return map { 3600 * $_->[0] + 60 * $_->[1] + $_->[2] }
	  map { /^\S+ (\d+):(\d+):([\d.]+) .*jobq dispatcher FATAL:  .*is not a valid data directory/ ? [ $1, $2, $3 ] : () } split /\n/, slurp_file($node->logfile);
}

$node->safe_psql('postgres', 'ALTER DATABASE broken RENAME TO broken2');
$node->wait_for_log(qr/(jobq dispatcher FATAL:  \S+ is not a valid data directory.*){3}/s);
my ($first, undef, $third) = failures();
my $apart = $third - $first + ($third < $first ? 86_400 : 0);
cmp_ok($apart, '>=', 2.9, sprintf 'it is tried again, but not at once (%.1f s for two more tries)', $apart);
rename "$version.away", $version or die $!;
wait_dispatcher($node, 'broken2', 'and comes when it can');

my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|TRAP|exited with exit code [2-9]|terminated by signal/, 'nothing has crashed');
$node->stop;

done_testing();
