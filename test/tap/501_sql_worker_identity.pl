# The identity of a handler: the role of its job type and no other, in spite of all attempts; and
# none of its state reaches the next job.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('identity', 'jobq.max_sql_workers = 1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE tenant LOGIN;
CREATE ROLE stranger LOGIN;
CREATE ROLE team;
GRANT team TO tenant;
CREATE SCHEMA own AUTHORIZATION tenant;
GRANT CREATE ON DATABASE postgres TO tenant;
GRANT EXECUTE ON FUNCTION jobq.current_job(), jobq.enqueue TO tenant;
CREATE TABLE ledger (what text, who text DEFAULT current_user, session text DEFAULT session_user, pid int DEFAULT pg_backend_pid());
GRANT INSERT ON ledger TO PUBLIC;
CREATE TABLE secret (a int);
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $dispatcher = dispatcher($node, 'postgres');

# Creates a handler of the tenant with that body, as a job type of the same name.
sub handler
{
	my ($name, $body) = @_;

	$node->safe_psql('postgres', <<"END");
SET SESSION AUTHORIZATION tenant;
CREATE FUNCTION own.$name(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
$body
END \$\$;
RESET SESSION AUTHORIZATION;
SELECT jobq.create_job_type('$name', 'own.$name(jsonb)', run_as => 'tenant', max_attempts => 1);
END
	return $name;
}

# Runs a job to its end; returns its status and code.
sub run
{
	my ($type) = @_;
	my $id = $node->safe_psql('postgres', "SELECT jobq.enqueue('$type')");

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$id'")
	  or diag "$type has not ended";
	return $node->safe_psql('postgres', "SELECT concat_ws(' ', status, error_code) FROM jobq.jobs WHERE id = '$id'");
}

sub who_wrote
{
	my ($what) = @_;

	return $node->safe_psql('postgres', "SELECT string_agg(DISTINCT who || '/' || session, ', ') FROM ledger WHERE what = '$what'");
}

# ---------- escapes ----------

# a statement with one of these codes had no effect; a successful one has run as the tenant
my %escapes = (
	plain => [ q{INSERT INTO public.ledger VALUES ('plain');}, 'completed' ],
	secret => [ q{PERFORM * FROM public.secret;}, 'error 42501' ],
	reset_role => [ q{RESET ROLE; INSERT INTO public.ledger VALUES ('reset_role'); PERFORM * FROM public.secret;}, 'error 42501' ],
	reset_role_only => [ q{RESET ROLE; INSERT INTO public.ledger VALUES ('reset_role_only');}, 'completed' ],
	reset_all => [ q{RESET ALL; INSERT INTO public.ledger VALUES ('reset_all');}, 'completed' ],
	set_role => [ q{SET ROLE postgres; INSERT INTO public.ledger VALUES ('set_role');}, 'error 42501' ],
	set_role_stranger => [ q{SET ROLE stranger; INSERT INTO public.ledger VALUES ('set_role_stranger');}, 'error 42501' ],
	set_local_role => [ q{PERFORM set_config('role', 'postgres', true); INSERT INTO public.ledger VALUES ('set_local_role');}, 'error 42501' ],
	set_authorization => [ q{SET SESSION AUTHORIZATION postgres; INSERT INTO public.ledger VALUES ('set_authorization');}, 'error 42501' ],
	set_authorization_stranger => [ q{SET SESSION AUTHORIZATION stranger;}, 'error 42501' ],
	reset_authorization => [ q{RESET SESSION AUTHORIZATION; INSERT INTO public.ledger VALUES ('reset_authorization');}, 'completed' ],
	deferred => [ q{INSERT INTO own.watched VALUES ('deferred');}, 'completed' ],
	deferred_failure => [ q{INSERT INTO own.watched VALUES ('fail');}, 'error P0001' ],
	deferred_reset => [ q{INSERT INTO own.watched VALUES ('reset');}, 'error 42501' ],
	hold => [ q{EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT own.note(''hold'')';}, undef ],
	hold_secret => [ q{EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT own.note(''hold_secret''), a FROM public.secret';}, 'error 42501' ],
	commit => [ q{COMMIT; INSERT INTO public.ledger VALUES ('commit');}, 'error 2D000' ],
	rollback => [ q{ROLLBACK;}, 'error 2D000' ],
	listen => [ q{LISTEN anything;}, undef ],
	program => [ q{COPY public.ledger TO PROGRAM 'true';}, 'error 42501' ],
	read_queue => [ q{PERFORM * FROM jobq.queue;}, 'error 42501' ],
	write_queue => [ q{DELETE FROM jobq.queue;}, 'error 42501' ],
	internals => [ q{PERFORM jobq_internal._adopt(10);}, 'error 42501' ],
	superuser_type => [ q{PERFORM jobq.create_job_type('mine', 'own.plain(jsonb)', run_as => 'postgres');}, 'error 42501' ],
);
$node->safe_psql('postgres', <<'END');
SET SESSION AUTHORIZATION tenant;
CREATE TABLE own.watched (what text);
CREATE FUNCTION own.note(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.ledger VALUES (what);
  RETURN what;
END $$;
CREATE FUNCTION own.watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.ledger VALUES ('trigger ' || NEW.what);
  IF NEW.what = 'fail' THEN RAISE 'deferred'; END IF;
  IF NEW.what = 'reset' THEN RESET ROLE; PERFORM * FROM public.secret; END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch AFTER INSERT ON own.watched DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION own.watch();
END
foreach my $name (sort keys %escapes)
{
	my ($body, $expected) = @{ $escapes{$name} };
	my $fate = run(handler($name, $body));

	if (defined $expected) { is($fate, $expected, "$name: $expected"); }
	else { like($fate, qr/^(completed|error \w{5})$/, "$name: $fate"); }
}
is(who_wrote('plain'), 'tenant/tenant', 'a handler runs as its role, and the session is that of its role');
is(who_wrote('trigger deferred'), 'tenant/tenant', 'a deferred trigger runs as it');
like(who_wrote('hold'), qr{^(|tenant/tenant)$}, 'the query of a WITH HOLD cursor runs as it, or not at all');
is($node->safe_psql('postgres', q{SELECT count(*) FROM ledger WHERE who <> 'tenant' OR session <> 'tenant'}), '0',
	'nothing has run as another role');
is($node->safe_psql('postgres', q{SELECT string_agg(what, ' ' ORDER BY what) FROM ledger WHERE what LIKE 'set\_%' OR what IN ('reset_role', 'commit', 'hold_secret')}),
	'', 'and nothing after an escape that failed');

# ---------- settings of the role ----------

$node->safe_psql('postgres', <<'END');
CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
ALTER ROLE tenant SET role = 'team';
SET SESSION AUTHORIZATION tenant;
ALTER ROLE tenant SET search_path = trap, pg_catalog;
ALTER ROLE tenant SET client_min_messages = 'error';
ALTER ROLE tenant SET jobq.tenant = 'acme';
END
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'});
is(run(handler('after_alter', q{INSERT INTO public.ledger VALUES ('after_alter');})), 'completed',
	'ALTER ROLE SET role, search_path and others do no harm');
is(who_wrote('after_alter'), 'tenant/tenant', 'the role setting is not followed');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.jobs WHERE tenant IS NOT NULL}), '0', 'the job has no tenant of it');
$node->safe_psql('postgres', q{ALTER ROLE tenant RESET ALL});
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'});

# ---------- state left behind ----------

$node->safe_psql('postgres', 'CREATE TABLE state (what text, pid int, fingerprint text); GRANT INSERT ON state TO tenant;');
$node->safe_psql('postgres', 'SET SESSION AUTHORIZATION tenant; CREATE SEQUENCE own.numbers');
handler('probe', <<'END');
  INSERT INTO public.state SELECT p->>'what', pg_backend_pid(), concat_ws(E'\n',
    current_user, session_user, current_setting('role'),
    (SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings
      WHERE name <> ALL ('{transaction_isolation,in_hot_standby}')),
    'my.var=' || coalesce(current_setting('my.var', true), ''), 'jobq.tenant=' || current_setting('jobq.tenant', true),
    'locks=' || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
    'prepared=' || (SELECT count(*) FROM pg_prepared_statements), 'cursors=' || (SELECT count(*) FROM pg_cursors),
    'temp=' || (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
    'channels=' || (SELECT count(*) FROM pg_listening_channels()));
  BEGIN
    PERFORM currval('own.numbers');
    INSERT INTO public.state VALUES (p->>'what', 0, 'sequence cache');
  EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL;
  END;
END

sub probe
{
	my ($what) = @_;
	my $id = $node->safe_psql('postgres', qq(SELECT jobq.enqueue('probe', '{"what": "$what"}')));

	$node->poll_query_until('postgres', "SELECT status = 'completed' FROM jobq.jobs WHERE id = '$id'")
	  or diag $node->safe_psql('postgres', "SELECT error_msg FROM jobq.jobs WHERE id = '$id'");
	return $node->safe_psql('postgres', "SELECT pid, fingerprint FROM state WHERE what = '$what'");
}

my $clean = probe('clean');
like($clean, qr/locks=0\nprepared=0\ncursors=0\ntemp=0\nchannels=0\z/, 'a fresh worker has no state');
my %leavings = (
	settings => q{PERFORM set_config('search_path', 'trap', false), set_config('work_mem', '1GB', false), set_config('statement_timeout', '0', false),
		set_config('lock_timeout', '1', false), set_config('my.var', 'left', false), set_config('jobq.tenant', 'acme', false),
		set_config('timezone', 'Asia/Tokyo', false), set_config('datestyle', 'SQL, DMY', false), set_config('role', 'team', false),
		set_config('default_transaction_isolation', 'serializable', false), set_config('default_transaction_read_only', 'on', false),
		set_config('row_security', 'off', false);},
	read_only => q{SET TRANSACTION READ ONLY;},
	temp_table => q{CREATE TEMP TABLE pg_class (a int); CREATE TEMP TABLE queue AS SELECT 1; CREATE TEMP VIEW job_types AS SELECT 1;},
	temp_function => q{CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';},
	advisory => q{PERFORM pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_xact_lock(3), pg_try_advisory_lock(4, 4);},
	prepared => q{EXECUTE 'PREPARE p AS SELECT 1'; EXECUTE 'PREPARE q(int) AS SELECT $1';},
	cursor => q{EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1'; EXECUTE 'DECLARE d CURSOR FOR SELECT 2';},
	sequence => q{PERFORM nextval('own.numbers');},
	constraints => q{SET CONSTRAINTS ALL IMMEDIATE;},
	large_object => q{PERFORM lo_open(lo_create(0), 131072);},
	notify => q{NOTIFY anything; PERFORM pg_notify('anything', 'again');},
	timeouts => q{SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 1; SET lock_timeout = 1;},
);
foreach my $name (sort keys %leavings)
{
	foreach my $how ('', '_and_fail')
	{
		my $type = handler("leave_$name$how", $leavings{$name} . ($how ? q{ RAISE 'told to';} : ''));

		my $fate = run($type);
		$how || $name eq 'read_only' || is($fate, 'completed', "$type runs");
		is(probe("after $type"), $clean, "$type: the next job finds nothing");
	}
}
is($node->safe_psql('postgres', q{SELECT count(DISTINCT pid), count(*) FILTER (WHERE fingerprint = 'sequence cache') FROM state}), '1|0',
	'all that in one process');
is(dispatcher($node, 'postgres'), $dispatcher, 'the dispatcher is the same');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');

$node->stop;
done_testing();
