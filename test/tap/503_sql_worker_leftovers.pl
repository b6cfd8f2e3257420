# Work that a handler defers to the commit runs inside its attempt: as its role, within its timeout,
# open to a cancel.  Session state of a handler reaches neither the next job nor the caller of
# run_inline.

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
-- a result that is stored out of line, in a table of the handler
CREATE FUNCTION app.returns(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  CREATE TEMP TABLE theirs AS SELECT to_jsonb(string_agg(md5(n::text), '')) AS j FROM generate_series(1, 1000) n;
  RETURN (SELECT j FROM theirs);
END $$;
RESET ROLE;
SELECT jobq.create_job_type('returns', 'app.returns(jsonb)', run_as => 'tenant', max_attempts => 1);
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

# A session of a superuser: its own objects and settings, then handlers that change them.
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe(q{LISTEN mine; PREPARE mine AS SELECT 1; CREATE TEMP TABLE mine (n int);
  CREATE TEMP TABLE note (n int); GRANT ALL ON mine TO PUBLIC;
  SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2)});

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

inline('error 42501', 'a held cursor runs as the role', 'DECLARE c CURSOR WITH HOLD FOR SELECT app.seize()');
session_is(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'tenant'}, 'f', 'its role is no superuser');
session_is(q{SELECT status FROM jobq.run_inline(} . enqueued(", timeout => '200ms'", $sleeps) . ')', 'error', 'it is bound to the timeout');
session_is('BEGIN; SELECT status FROM jobq.run_inline(' . enqueued('', 'INSERT INTO app.ledger VALUES (1)') . '); COMMIT', 'completed', 'in a transaction block');
inline('completed', 'a held cursor', q{DECLARE c CURSOR WITH HOLD FOR SELECT app.note('inline')});
session_is(q{SELECT who FROM app.ledger WHERE what = 'inline'}, 'tenant', 'has run as the role');
session_is(q{BEGIN; DECLARE mine CURSOR FOR SELECT 7; SELECT status FROM jobq.run_inline(}
	  . enqueued('', 'DECLARE c CURSOR FOR SELECT app.seize()', 'CLOSE mine', 'DECLARE mine CURSOR FOR SELECT app.seize()') . q{);
	SELECT count(*) FROM pg_cursors; COMMIT}, "completed\n0", 'no cursor of the handler stays open');
session_is(q{BEGIN; DECLARE mine CURSOR FOR SELECT 7; SELECT status FROM jobq.run_inline(}
	  . enqueued('', 'DECLARE c CURSOR FOR SELECT 1') . q{); FETCH mine; SELECT string_agg(name, ' ') FROM pg_cursors; COMMIT},
	"completed\n7\nmine", 'the caller keeps its own');

inline('error 0A000', 'LISTEN is refused, as in a worker', 'LISTEN theirs');
inline('error 0A000', 'UNLISTEN is refused', 'UNLISTEN *');
inline('error 0A000', 'DISCARD is refused', 'DISCARD TEMP');
session_is('SELECT pg_listening_channels()', 'mine', 'the caller listens as before');

inline('completed', 'PREPARE', 'PREPARE theirs AS SELECT app.seize()', 'PREPARE gone AS SELECT 1', 'EXECUTE gone', 'DEALLOCATE gone');
inline('error 22012', 'PREPARE in a handler that fails', 'PREPARE theirs AS SELECT app.seize()', 'SELECT 1/0');
inline('error 26000', 'DEALLOCATE of a statement of the caller', 'DEALLOCATE mine');
inline('completed', 'DEALLOCATE ALL', 'PREPARE theirs AS SELECT 1', 'DEALLOCATE ALL');
session_is('SELECT string_agg(name, \' \') FROM pg_prepared_statements', 'mine', 'the caller has its own statements');

my $temp = q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind IN ('r', 'v', 'S')};
inline('completed', 'temporary objects', 'CREATE TEMP TABLE theirs (n serial PRIMARY KEY, t text)', 'INSERT INTO theirs (t) VALUES (1)',
	'CREATE TEMP VIEW seen AS SELECT app.seize() FROM theirs', 'CREATE TEMP TABLE brief (n int) ON COMMIT DROP',
	'CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS $$SELECT 1$$', 'CREATE DOMAIN pg_temp.d AS int');
session_is($temp, 'mine note', 'are gone when it returns');
session_is(q{SELECT concat_ws(' ', status, error_msg, length(result #>> '{}')) FROM jobq.run_inline(jobq.enqueue('returns'))}, 'completed 32000',
	'a result that one of them had is there');
session_is(q{SELECT count(*) FROM pg_proc WHERE pronamespace = pg_my_temp_schema()}, '0', 'functions, too');
session_is(q{SELECT count(*) FROM pg_type WHERE typnamespace = pg_my_temp_schema() AND typtype = 'd'}, '0', 'and types');
is(sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), '2', 'two advisory locks are held');

my $locks = q{SELECT string_agg(objid || mode, ' ' ORDER BY objid) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()};
inline('completed', 'advisory locks', 'SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(3), pg_advisory_lock(3), pg_advisory_lock(4, 4)');
inline('error 22012', 'advisory locks of a handler that fails', 'SELECT pg_advisory_lock(1)', 'SELECT pg_advisory_lock(3)', 'SELECT 1/0');
session_is($locks, '1ExclusiveLock 2ShareLock', 'the caller holds its own');
inline('completed', 'unlocks all', 'SELECT pg_advisory_unlock_all()');
session_is($locks, '1ExclusiveLock 2ShareLock', 'the caller still holds its own');
session_is('SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(2)', 't|t|t', 'as often as it has taken them');
session_is($locks, '', 'and no more often');

inline('completed', 'SET', q{SET work_mem = '1234kB'}, q{SET LOCAL work_mem = '1235kB'});
session_is('SHOW work_mem', '4MB', 'the caller has its settings');
inline('error 42501', 'SET ROLE is refused', 'SET ROLE postgres');

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
inline('error 0A000', 'LISTEN is refused without preload', 'LISTEN theirs');
inline('completed', 'PREPARE without preload', 'PREPARE theirs AS SELECT app.seize()');
session_is('SELECT count(*) FROM pg_prepared_statements', '0', 'leaves nothing');
session_is('SELECT status FROM jobq.run_inline(' . enqueued('', q{DECLARE c CURSOR WITH HOLD FOR SELECT app.note('unloaded')}) . ')', 'completed', 'a held cursor');
session_is(q{SELECT who FROM app.ledger WHERE what = 'unloaded'}, 'tenant', 'is read to its end without preload');
$session->quit;

$node->stop;
done_testing();
