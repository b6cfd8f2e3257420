# Jobs, hooks, tools and conditions belong to roles, not to their names: roles that are renamed,
# dropped, re-created under an old name, restored elsewhere, or no member of run_as any more.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('identity_roles', 'jobq.max_sql_workers = 4');
$node->start;

my ($rc, $out, $err);

sub sql { return $node->safe_psql('postgres', $_[0]) }

# Without LOGIN no worker can connect before PostgreSQL 17.
my $types = <<'END';
CREATE EXTENSION jobq;
CREATE TABLE ledger (job_type text, who text);
CREATE TABLE marks ();
GRANT SELECT ON marks TO PUBLIC;
GRANT INSERT ON ledger TO PUBLIC;
CREATE FUNCTION note(p jsonb) RETURNS void LANGUAGE sql AS
  'INSERT INTO public.ledger SELECT (jobq.current_job()).job_type, current_user';
GRANT EXECUTE ON FUNCTION jobq.create_job_type, jobq.alter_job_type, jobq.create_signal, jobq.enqueue TO definer, runner, toolsmith;
END
sql('CREATE ROLE definer LOGIN; CREATE ROLE runner LOGIN; CREATE ROLE toolsmith LOGIN; GRANT runner TO definer; GRANT pg_execute_server_program TO toolsmith');
sql($types);
sql(<<'END');
SET ROLE definer;
SELECT jobq.create_job_type('own', 'note(jsonb)', max_attempts => 1, options => '{"on_complete": "hook"}');
SELECT jobq.create_job_type('hook', 'note(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type('other', 'note(jsonb)', max_attempts => 1, run_as => 'runner');
SELECT jobq.create_signal('super', 'SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user', '1s'),
  jobq.create_signal('beside', 'SELECT count(*) = 1 FROM public.marks', '1s');
SET ROLE toolsmith;
SELECT jobq.create_job_type('tool', command => '{/bin/true}', max_attempts => 1, options => '{"output": "none"}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub ends
{
	my ($type, $expected, $what) = @_;
	my $id = sql("SELECT jobq.enqueue('$type')");

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$id'");
	return is(sql("SELECT concat_ws(' ', status, error_code) FROM jobq.jobs WHERE id = '$id'"), $expected, $what);
}

ends($_, 'completed', "$_ runs") foreach qw(own other tool);
wait_for_sql($node, "SELECT count(*) = 1 FROM ledger WHERE job_type = 'hook'", 'a hook, too');

# ---------- renamed; a superuser takes the name ----------

sql('DELETE FROM ledger');
sql("ALTER ROLE $_ RENAME TO was_$_; CREATE ROLE $_ SUPERUSER LOGIN") foreach qw(definer runner toolsmith);
ends($_, 'completed', "$_ runs when its roles have other names") foreach qw(own other tool);
wait_for_sql($node, "SELECT count(*) = 3 FROM ledger", 'and so does the hook');
is(sql("SELECT string_agg(job_type || ' as ' || who, ', ' ORDER BY job_type) FROM ledger"),
	'hook as was_definer, other as was_runner, own as was_definer', 'all run as the roles they belong to');
is(sql(q{BEGIN; SELECT (jobq.run_inline(jobq.enqueue('other', delay => '1h'))).status; COMMIT; SELECT who FROM ledger ORDER BY ctid DESC LIMIT 1}),
	"completed\nwas_runner", 'run_inline, too');
wait_for_sql($node, q{SELECT array_agg(DISTINCT owner || ' ' || run_as ORDER BY owner || ' ' || run_as) =
  '{was_definer was_definer,was_definer was_runner,was_toolsmith was_toolsmith}' FROM jobq.job_types}, 'the stored names follow');
wait_for_sql($node, q{SELECT bool_and(definer = 'was_definer') FROM jobq.signals}, 'also of a signal');
foreach (1, 2)
{
	sql('INSERT INTO marks DEFAULT VALUES');
	wait_for_sql($node, "SELECT active = ($_ = 1) FROM jobq.signals WHERE name = 'beside'", "conditions are run, $_");
}
is(sql(q{SELECT count(*) FROM jobq.signals WHERE active}), 0, 'its condition is not run as the superuser');
sql('ALTER ROLE definer NOSUPERUSER; GRANT EXECUTE ON FUNCTION jobq.alter_job_type TO definer');
sqlstate_is($node, 'postgres', q{SET ROLE definer; SELECT jobq.alter_job_type('own', max_attempts => 2)}, '42501', 'a role of the old name does not own the type');
sqlstate_is($node, 'postgres', q{SET ROLE was_definer; SELECT jobq.alter_job_type('own', max_attempts => 1)}, '00000', 'the renamed one does');
sql(q{SET ROLE was_definer; SELECT jobq.alter_job_type('other', reset => '{run_as}')});
is(sql(q{SELECT run_as_oid = owner_oid AND run_as = owner FROM jobq.job_types WHERE name = 'other'}), 't', 'reset puts back the owner');
sql(q{SET ROLE was_definer; SELECT jobq.alter_job_type('other', run_as => 'was_runner')});
ends('other', 'completed', 'and run_as can be set again');

# ---------- the owner is no member of run_as any more ----------

sql('REVOKE was_runner FROM was_definer; DELETE FROM ledger');
ends('other', 'error 42501', 'a job does not run when its owner is no member of run_as');
is(sql('SELECT count(*) FROM ledger'), 0, 'its handler was not called');
like(sql(q{SELECT error_msg FROM jobq.jobs WHERE status = 'error'}), qr/"was_definer".*"other".*"was_runner"/, 'the message names the roles and the type');
sqlstate_is($node, 'postgres', q{DO $$ BEGIN IF (jobq.run_inline(jobq.enqueue('other', delay => '1h'))).error_code = '42501' THEN
  RAISE SQLSTATE '42501'; END IF; END $$}, '42501', 'nor by run_inline');
sql(q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'});
ends('other', 'error 42501', 'nor in a new worker');
sql('GRANT was_runner TO was_definer');
ends('other', 'completed', 'it runs when the owner is a member again');
sql(q{GRANT was_runner TO was_toolsmith; SET ROLE was_toolsmith; SELECT jobq.alter_job_type('tool', run_as => 'was_runner')});
ends('tool', 'completed', 'a tool of another role');
sql('REVOKE was_runner FROM was_toolsmith');
ends('tool', 'error 42501', 'does not run when its owner may not become that role');
sql('GRANT was_runner TO was_toolsmith');
ends('tool', 'completed', 'until it may');

# ---------- dropped; another role takes the name ----------

sql('DROP OWNED BY was_runner; DROP ROLE was_runner; CREATE ROLE was_runner SUPERUSER LOGIN; DELETE FROM ledger');
my $waits = sql("SELECT jobq.enqueue('other')");
ends('own', 'completed', 'jobs of others run');
is(sql("SELECT status, attempts FROM jobq.jobs WHERE id = '$waits'"), 'pending|0', 'a job of a role that is gone waits');
is(sql("SELECT count(*) FROM ledger WHERE who = 'was_runner'"), 0, 'the new role of that name does not run it');
($rc, $out, $err) = $node->psql('postgres', q{BEGIN; SELECT jobq.alter_job_type('other', run_as => 'was_runner'); GRANT was_runner TO was_definer; COMMIT});
like($err, qr/WARNING: .* its owner "was_definer" may not become role "was_runner"/, 'a warning while the owner is no member');
wait_status($node, 'postgres', $waits, 'completed', 'until its type gets that role');

# ---------- restored on a server with other oids ----------

sql('ALTER ROLE was_runner NOSUPERUSER; GRANT was_runner TO was_definer; GRANT EXECUTE ON FUNCTION jobq.current_job TO was_runner');
wait_for_sql($node, q{SELECT count(*) = 0 FROM jobq.queue}, 'nothing waits');
sql(q{SELECT jobq.pause_job_type('other')});
my $id = sql("SELECT jobq.enqueue('other')");
my $swap = sql(q{SELECT 'was_definer'::regrole::oid || ' ' || 'was_runner'::regrole::oid});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
sql('CREATE DATABASE restored');
# The roles swap names between dump and restore.
sql('ALTER ROLE was_definer RENAME TO x; ALTER ROLE was_runner RENAME TO was_definer; ALTER ROLE x RENAME TO was_runner');
sql('REVOKE was_definer FROM was_runner');
sql('ALTER ROLE was_toolsmith RENAME TO nobody_here');
$node->run_log([ 'pg_restore', '-d', $node->connstr('restored'), $dump ]);    # no GRANT to a role that is not there
is($node->safe_psql('restored', "SELECT owner_oid || ' ' || run_as_oid FROM jobq.job_types WHERE name = 'other'"),
	join(' ', reverse split / /, $swap), 'rows that arrive get the oids of their names here');
sqlstate_is($node, 'restored', "SELECT jobq.run_inline('$id')", '55000', 'nothing runs before adopt()');
# As a restore without triggers leaves them: the oids of the dump.
$node->safe_psql('restored', "ALTER TABLE jobq.job_types DISABLE TRIGGER USER; UPDATE jobq.job_types SET owner_oid = run_as_oid, run_as_oid = owner_oid WHERE name = 'other';"
	  . 'ALTER TABLE jobq.job_types ENABLE ALWAYS TRIGGER find_roles, ENABLE ALWAYS TRIGGER types_changed');
$node->safe_psql('restored', 'GRANT EXECUTE ON FUNCTION jobq.alter_job_type TO was_definer, was_runner');
sqlstate_is($node, 'restored', q{SET ROLE was_runner; SELECT jobq.alter_job_type('other', max_attempts => 1)}, '42501', 'before adopt() no oid of the dump is trusted');
sqlstate_is($node, 'restored', q{SET ROLE was_definer; SELECT jobq.alter_job_type('other', max_attempts => 1)}, '00000', 'the name is');
$node->safe_psql('restored', 'REVOKE EXECUTE ON FUNCTION jobq.alter_job_type FROM was_definer, was_runner');
($rc, $out, $err) = $node->psql('restored', 'SELECT jobq.adopt()');
like($err, qr/WARNING: .*"was_toolsmith"$/m, 'adopt() lists names that no role has');
is($node->safe_psql('restored', "SELECT owner_oid || ' ' || run_as_oid FROM jobq.job_types WHERE name = 'other'"),
	join(' ', reverse split / /, $swap), 'and rewrites the oids');
is($node->safe_psql('restored', "SELECT owner, owner_oid FROM jobq.job_types WHERE name = 'tool'"), 'was_toolsmith|0', 'or none');
$node->safe_psql('restored', 'DELETE FROM ledger; GRANT was_runner TO was_definer; GRANT EXECUTE ON FUNCTION jobq.current_job TO was_runner');
$node->safe_psql('restored', q{SELECT jobq.resume_job_type('other')});
wait_status($node, 'restored', $id, 'completed', 'the restored job runs');
is($node->safe_psql('restored', 'SELECT who FROM ledger'), 'was_runner', 'as the role of that name');
sql('CREATE ROLE was_toolsmith LOGIN; GRANT pg_execute_server_program, was_runner TO was_toolsmith');
($rc, $out, $err) = $node->psql('restored', 'SELECT jobq.adopt()');
is($err, '', 'adopt() again finds a role that was created');
is($node->safe_psql('restored', "SELECT owner_oid = 'was_toolsmith'::regrole FROM jobq.job_types WHERE name = 'tool'"), 't', 'which owns its type');

# A copy of the database has the same roles: the oids stay, even with other names.
my $owner = $node->safe_psql('restored', "SELECT owner_oid FROM jobq.job_types WHERE name = 'own'");
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE restored');
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND datname = 'copied'}, 'a copy has a dispatcher');
sql('ALTER ROLE was_definer RENAME TO later; CREATE ROLE was_definer SUPERUSER LOGIN');
$node->safe_psql('copied', 'SELECT jobq.adopt()');
is($node->safe_psql('copied', "SELECT owner_oid = $owner AND owner_oid = 'later'::regrole FROM jobq.job_types WHERE name = 'own'"), 't', 'adopt() of a copy keeps the oids');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
