# Work that a handler defers to the commit runs inside its attempt: as its role, within its timeout,
# open to a cancel.  Session state of a handler reaches not the next job, and of run_inline's caller
# what PostgreSQL lets it leave there: nothing that would be executed with other rights.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('leftovers', 'jobq.max_sql_workers = 1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE tenant LOGIN;
CREATE SCHEMA app AUTHORIZATION tenant;
GRANT CREATE, TEMPORARY ON DATABASE postgres TO tenant;
SET ROLE tenant;
CREATE TABLE app.ledger (what text, who name DEFAULT current_user);
GRANT ALL ON app.ledger TO PUBLIC;
-- executes each statement of the payload
CREATE FUNCTION app.does(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN SELECT * FROM jsonb_array_elements_text(p) LOOP
    EXECUTE statement;
  END LOOP;
  RETURN to_jsonb(current_setting('search_path'));
END $$;
CREATE FUNCTION app.note(what text) RETURNS text LANGUAGE sql VOLATILE AS
  'INSERT INTO app.ledger VALUES (what) RETURNING what';
CREATE FUNCTION app.seize() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  ALTER ROLE tenant SUPERUSER;
  RETURN app.note('seized');
END $$;
CREATE TABLE app.deferred (n int);
-- DECLARE by itself is a keyword of PL/pgSQL
CREATE FUNCTION app.declares() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT pg_sleep(600)';
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.deferred DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION app.declares();
RESET ROLE;
SELECT jobq.create_job_type('does', 'app.does(jsonb)', run_as => 'tenant', timeout => '0', max_attempts => 1);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub quoted
{
	return join ', ', map { my $s = $_; $s =~ s/'/''/g; "'$s'" } @_;
}

# Returns the statements as a payload.
sub enqueued
{
	my ($args, @statements) = @_;

	return "jobq.enqueue('does', to_jsonb(ARRAY[" . quoted(@statements) . "]::text[])$args)";
}

sub fate
{
	my ($id) = @_;

	return sql("SELECT concat_ws(' ', status, attempts, error_code) FROM jobq.jobs WHERE id = '$id'");
}

sub ends
{
	my ($id, $expected, $what) = @_;

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'cancelled', 'error') FROM jobq.jobs WHERE id = '$id'");
	return is(fate($id), $expected, $what);
}

# ---------- a SQL worker ----------

my $sleeps = 'DECLARE c CURSOR WITH HOLD FOR SELECT pg_sleep(600)';
my $asleep = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'PgSleep'";

ends(sql('SELECT ' . enqueued(", timeout => '300ms'", $sleeps)), 'error 1 timeout', 'a held cursor is bound to the timeout');
ends(sql('SELECT ' . enqueued(", timeout => '300ms', max_attempts => 2, backoff => '{\"base\": \"10ms\"}'", $sleeps)), 'error 2 timeout',
	'each attempt is charged');
ends(sql('SELECT ' . enqueued(", timeout => '300ms'", 'INSERT INTO app.deferred VALUES (1)')), 'error 1 timeout',
	'so is one that a deferred trigger declares');

my $job = sql('SELECT ' . enqueued('', $sleeps));
wait_for_sql($node, $asleep, 'without a timeout it sleeps');
is(sql("SELECT jobq.cancel_job('$job', 'enough')"), 't', 'cancel_job');
ends($job, 'cancelled 1', 'cancels it');
$job = sql('SELECT ' . enqueued('', $sleeps));
wait_for_sql($node, "SELECT count(pg_cancel_backend(pid)) > 1 OR (SELECT status = 'error' FROM jobq.jobs WHERE id = '$job')"
	  . q{ FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'PgSleep'}, 'so does pg_cancel_backend');
is(fate($job), 'error 1 57014', 'which fails it the second time');

$job = sql('SELECT ' . enqueued('', q{DECLARE c CURSOR WITH HOLD FOR SELECT app.note('held ' || n) FROM generate_series(1, 3) n},
		'FETCH 1 FROM c'));
ends($job, 'completed 1', 'a held cursor ...');
is(sql('SELECT count(*), count(DISTINCT what), min(who) FROM app.ledger'), '3|3|tenant', '!... is read to its end, once, as the role');
ends(sql('SELECT ' . enqueued('', 'DECLARE c CURSOR WITH HOLD FOR SELECT app.seize()')), 'error 1 42501', 'its failure is the attempt\'s');
ends(sql('SELECT ' . enqueued('', 'DECLARE c CURSOR WITH HOLD FOR SELECT 1/n FROM generate_series(0, 0) n', 'CLOSE c')), 'completed 1', 'one that is closed is not run');
ends(sql('SELECT ' . enqueued('', "DO \$\$ BEGIN EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1/n FROM generate_series(0, 0) n'; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END \$\$")),
	'completed 1', 'nor one that is rolled back');
ends(sql('SELECT ' . enqueued('', 'DECLARE d CURSOR WITH HOLD FOR SELECT app.does(\'["DECLARE c CURSOR WITH HOLD FOR SELECT app.seize()"]\')')),
	'error 1 42501', 'a cursor that a cursor declares is run, too');

# many in one batch: each finds the session in the same state as the first
sql('TRUNCATE app.ledger');
sql("SELECT jobq.enqueue_many('does', array_agg(to_jsonb(ARRAY[" . quoted('DECLARE c CURSOR FOR SELECT 1', 'DECLARE h CURSOR WITH HOLD FOR SELECT app.note(\'x\')')
	  . "]::text[]))) FROM generate_series(1, 200)");
wait_for_sql($node, 'SELECT NOT EXISTS (SELECT FROM jobq.queue)', 'jobs that leave cursors open');
is(sql(q{SELECT count(*) FROM app.ledger}), '200', 'run');
is(sql(q{SELECT string_agg(DISTINCT concat_ws(' ', error_code, error_msg), ', ') FROM jobq.jobs WHERE status = 'error' AND error_code LIKE '42P%'}), '',
	'and none meets the cursor of another');

# ---------- run_inline ----------

# A session of a superuser: its own objects and settings, then handlers that would change them.
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe(q{LISTEN mine; PREPARE mine AS SELECT 1; CREATE TEMP TABLE mine (n int); GRANT ALL ON mine TO PUBLIC});

sub inline
{
	my ($expected, $what, @statements) = @_;
	my $result = $session->query(q{SELECT concat_ws(' ', status, error_code) FROM jobq.run_inline(} . enqueued('', @statements) . ')');

	return is($result, $expected, "run_inline: $what");
}

sub session_is
{
	my ($query, $expected, $what) = @_;

	return is($session->query($query), $expected, $what);
}

# what would be executed later, with the caller's rights, is refused
sub restricted
{
	inline('error 42501', "$_ is refused", $_)
	  foreach 'DECLARE c CURSOR WITH HOLD FOR SELECT app.seize()', 'LISTEN theirs', 'UNLISTEN *', 'DISCARD TEMP',
	  'PREPARE theirs AS SELECT app.seize()', 'DEALLOCATE mine', 'CREATE TEMP TABLE theirs (n int)', 'INSERT INTO app.deferred VALUES (1)', 'SET ROLE postgres';
	return;
}

restricted();
like($session->query(q{SELECT error_details->>'hint' FROM jobq.run_inline(} . enqueued('', 'LISTEN theirs') . ')'), qr/call it in a session of "tenant"/, 'with a hint');
session_is(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'tenant'}, 'f', 'the role is no superuser');
session_is(q{SELECT status FROM jobq.run_inline(} . enqueued(", timeout => '200ms'", 'SELECT pg_sleep(600)') . ')', 'error', 'a handler is bound to the timeout');
session_is('BEGIN; SELECT status FROM jobq.run_inline(' . enqueued('', 'INSERT INTO app.ledger VALUES (1)') . '); COMMIT', 'completed', 'in a transaction block');
session_is(q{BEGIN; DECLARE mine CURSOR FOR SELECT 7; SELECT status FROM jobq.run_inline(}
	  . enqueued('', 'DECLARE c CURSOR FOR SELECT app.seize()') . q{); FETCH mine; SELECT string_agg(name, ' ') FROM pg_cursors; COMMIT},
	"completed\n7\nmine", 'no cursor of the handler stays open, the caller keeps its own');
session_is(q{SELECT string_agg(name, ' ') || pg_listening_channels() FROM pg_prepared_statements}, 'minemine', 'the caller has its statements and listens');
session_is(q{SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = pg_my_temp_schema()}, 'mine', 'no temporary object is added');

inline('completed', 'SET', q{SET work_mem = '1234kB'}, q{SET LOCAL work_mem = '1235kB'});
session_is('SHOW work_mem', '4MB', 'the caller has its settings');

# what the documentation says that stays
session_is(q{BEGIN; SELECT status FROM jobq.run_inline(} . enqueued('', 'SELECT pg_advisory_lock(99)') . q{); SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid(); SELECT pg_advisory_unlock_all(); COMMIT},
	"completed\n1\n", 'a session-level advisory lock of the handler stays');

# the role itself is not restricted: what its handler defers is its own
$session->query_safe('GRANT EXECUTE ON FUNCTION jobq.run_inline TO tenant; GRANT USAGE ON SCHEMA jobq TO tenant');
my ($prepares, $defers) = map { sql('SELECT ' . enqueued(", delay => '1h'", $_)) } 'PREPARE theirs AS SELECT 7', 'INSERT INTO app.deferred VALUES (1)';
my $own = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '--username', 'tenant' ]);
is($own->query("SELECT status FROM jobq.run_inline('$prepares'); EXECUTE theirs"), "completed\n7", 'the role keeps a prepared statement');
like($own->query("BEGIN; SELECT status FROM jobq.run_inline('$defers'); SELECT count(*) FROM pg_cursors; ROLLBACK"), qr/^completed\n0$/, 'a deferred trigger waits for its commit');

# All that a handler of the session's user can leave there: [ query, its answer before, after
# success, after an error ].
my @state = (
	[ 'SELECT count(*) FROM pg_cursors', 0, 0, 0 ],
	[ q{SELECT concat(current_setting('work_mem'), current_setting('jobq.tenant'), current_setting('mine.own', true))}, '4MB', '4MB', '4MB' ],
	[ 'SELECT current_user || session_user', 'tenanttenant', 'tenanttenant', 'tenanttenant' ],
	[ q{SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()}, 0, 1, 0 ],
	[ q{SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'left%'}, 0, 1, 1 ],
	[ 'SELECT count(*) FROM pg_listening_channels()', 0, 1, 0 ],
	[ q{SELECT string_agg(objid::text, ' ' ORDER BY objid) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()}, 7, '8 9', '8 9' ]);
my @leaves = (
	q{SET work_mem = '1234kB'}, q{SET LOCAL work_mem = '1235kB'}, q{SELECT set_config('work_mem', '1236kB', false)}, q{SET jobq.tenant = 'x'}, q{SET mine.own = 'x'},
	'DECLARE open CURSOR FOR SELECT 1', 'DECLARE held CURSOR WITH HOLD FOR SELECT 1/n FROM generate_series(0, 0) n',
	'CREATE TEMP TABLE left_table (n int)', 'PREPARE left_statement AS SELECT 7', 'LISTEN left_channel', 'SELECT pg_advisory_xact_lock(6)',
	'SELECT pg_advisory_lock(8), pg_advisory_lock_shared(9), pg_advisory_unlock(7)');
foreach my $end ([ 'completed', 2 ], [ 'error', 3, 'SELECT 1/0' ])
{
	my ($status, $place, @last) = @$end;
	my $id = sql('SELECT ' . enqueued(", delay => '1h', tenant => 'acme'", @leaves, @last));

	$own->query("DISCARD ALL; SELECT pg_advisory_lock(7)");
	is($own->query($_->[0]), $_->[1], "before: $_->[0]") foreach @state;
	is($own->query("SELECT status FROM jobq.run_inline('$id')"), $status, "a handler of the session's user: $status");
	is($own->query($_->[0]), $_->[$place], "after: $_->[0]") foreach @state;
}
is($own->query("DISCARD ALL; $state[6][0]"), '', 'DISCARD ALL takes the rest');
is($own->query("BEGIN; SELECT status FROM jobq.run_inline('" . sql('SELECT ' . enqueued(", delay => '1h'", @leaves)) . "'); ROLLBACK; " . join '; ', map { $_->[0] } @state[3 .. 5]),
	"completed\n0\n1\n0", 'a rollback takes what is bound to the transaction');
$own->quit;

# after SET ROLE the session's end is still the session user's
my $deferred = sql('SELECT ' . enqueued(", delay => '1h'", 'INSERT INTO app.deferred VALUES (1)'));
session_is("SET ROLE tenant; SELECT status, error_code FROM jobq.run_inline('$deferred'); RESET ROLE", 'error|42501', 'SET ROLE does not lift the restriction');

# the search_path for names
sub path_is
{
	my ($expected, $what) = @_;

	return session_is('SELECT result #>> \'{}\' FROM jobq.run_inline(' . enqueued('', 'SELECT 1') . ')', $expected, $what);
}
$session->query_safe(q{CREATE SCHEMA trap; CREATE TABLE trap.bait (n int); GRANT ALL ON SCHEMA trap TO PUBLIC;
  GRANT ALL ON trap.bait TO PUBLIC; SET search_path = trap, pg_catalog});
path_is('"$user", public, pg_temp', 'search_path is not the caller\'s');
inline('error 42P01', 'the caller\'s path leads nowhere', 'INSERT INTO bait VALUES (1)');
sql('ALTER DATABASE postgres SET search_path = one');
path_is('one, pg_temp', 'it is the database\'s');
sql('ALTER ROLE tenant SET search_path = two, public');
path_is('two, public, pg_temp', 'the role\'s before that');
sql('ALTER ROLE tenant IN DATABASE postgres SET search_path = pg_temp, app');
path_is('pg_temp, app', 'that of both before all');
sql('ALTER ROLE tenant IN DATABASE postgres SET search_path = app');
inline('completed', 'a temporary table of the caller', 'CREATE TABLE app.mine (n int)', 'INSERT INTO mine VALUES (1)');
session_is('SELECT (SELECT count(*) FROM app.mine), (SELECT count(*) FROM pg_temp.mine)', '1|0', 'does not stand before one of the path');
session_is('SHOW search_path', 'trap, pg_catalog', 'the caller\'s path is as it was');
$session->quit;

# a client's own default does not become the handler's
sql('ALTER ROLE tenant IN DATABASE postgres RESET search_path; ALTER ROLE tenant RESET search_path; ALTER DATABASE postgres RESET search_path');
$ENV{PGOPTIONS} = '-c search_path=trap';
is(sql('SELECT result #>> \'{}\' FROM jobq.run_inline(' . enqueued('', 'SELECT 1') . ')'), '"$user", public, pg_temp', 'nor a path from PGOPTIONS');

# a server that does not preload jobq
delete $ENV{PGOPTIONS};
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('PREPARE mine AS SELECT 1');
restricted();
$session->quit;

$node->stop;
done_testing();
