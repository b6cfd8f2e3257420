# Rights are checked when a job runs: a right revoked, or a role dropped or renamed since, fails the
# job or makes it wait, as documented, without effect on other jobs.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('rights', 'jobq.max_sql_workers = 2', 'restart_after_crash = off');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE tenant LOGIN;
CREATE ROLE toolsmith LOGIN;
GRANT pg_execute_server_program TO toolsmith;
GRANT EXECUTE ON FUNCTION jobq.current_job() TO tenant;
GRANT EXECUTE ON FUNCTION jobq.create_job_type TO toolsmith;
CREATE TABLE ledger (job uuid, who text);
GRANT INSERT ON ledger TO PUBLIC;
CREATE SCHEMA handlers;
GRANT USAGE ON SCHEMA handlers TO PUBLIC;
CREATE FUNCTION handlers.note(p jsonb) RETURNS void LANGUAGE sql AS
  'INSERT INTO public.ledger SELECT id, current_user FROM jobq.current_job()';
SELECT jobq.create_job_type('note', 'handlers.note(jsonb)', run_as => 'tenant', max_attempts => 1);
SELECT jobq.create_job_type('other', 'handlers.note(jsonb)', max_attempts => 1);
SET SESSION AUTHORIZATION toolsmith;
SELECT jobq.create_job_type('tool', command => '{true}', max_attempts => 1, options => '{"output": "none"}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $dispatcher = dispatcher($node, 'postgres');
my $login_needed = $node->safe_psql('postgres', "SELECT current_setting('server_version_num')::int < 170000") eq 't';

sub sql
{
	my ($text) = @_;

	return $node->safe_psql('postgres', $text);
}

sub enqueue
{
	my ($type) = @_;

	return sql("SELECT jobq.enqueue('$type')");
}

sub fate
{
	my ($id) = @_;

	return sql("SELECT concat_ws(' ', status, attempts, error_code) FROM jobq.jobs WHERE id = '$id'");
}

sub ends
{
	my ($id, $expected, $what) = @_;

	$node->poll_query_until('postgres', "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$id'");
	return is(fate($id), $expected, $what);
}

# The job waits, and health() reports it; jobs of others run meanwhile.
sub waits
{
	my ($id, $pattern, $what) = @_;
	my $other = enqueue('other');

	wait_for_sql($node, "SELECT jobq.health()->'checks'->'queues'->>'message' ~ '$pattern'", "$what: health() reports it");
	ends($other, 'completed 1', "$what: another job runs");
	like(fate($id), qr/^(pending|retry) 0/, "$what: the job waits, at no charge");
	is(sql("SELECT count(*) FROM ledger WHERE job = '$id'"), '0', "$what: it has not run");
	return;
}

# Forbidden while the tenant is a superuser.
sub allow_superusers
{
	my ($allow) = @_;

	sql('ALTER ROLE tenant ' . ($allow eq 'off' ? 'SUPERUSER' : 'NOSUPERUSER'));
	sql("ALTER SYSTEM SET jobq.allow_superuser_handlers = $allow");
	$node->reload;
	return wait_for_sql($node, "SELECT current_setting('jobq.allow_superuser_handlers') = '$allow'", "superuser handlers: $allow");
}

# Each case with a worker that has run jobs of the type before, and with a new one.
sub in_both_cases
{
	my ($what, $spoil, $check, $mend) = @_;

	foreach my $case ('a worker that knows the type', 'a new worker')
	{
		sql(q{SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'})
		  if $case eq 'a new worker';
		ends(enqueue('note'), 'completed 1', "$what: runs before") if $case ne 'a new worker';
		ref $spoil ? $spoil->() : sql($spoil);
		my $id = enqueue('note');
		$check->($id, "$what, $case");
		ref $mend ? $mend->() : sql($mend);
		ends(enqueue('note'), 'completed 1', "$what, $case: runs after");
	}
	return;
}

# ---------- the handler ----------

in_both_cases('EXECUTE revoked', 'REVOKE EXECUTE ON FUNCTION handlers.note FROM PUBLIC',
	sub { ends($_[0], 'error 1 42501', $_[1]) }, 'GRANT EXECUTE ON FUNCTION handlers.note TO PUBLIC');
in_both_cases('USAGE on its schema revoked', 'REVOKE USAGE ON SCHEMA handlers FROM PUBLIC',
	sub { ends($_[0], 'error 1 42501', $_[1]) }, 'GRANT USAGE ON SCHEMA handlers TO PUBLIC');
in_both_cases('handler renamed', 'ALTER FUNCTION handlers.note RENAME TO was_note',
	sub { ends($_[0], 'error 1 42883', $_[1]) }, 'ALTER FUNCTION handlers.was_note RENAME TO note');
my $no_schema = $node->pg_version >= 16 ? '42883' : '3F000';
in_both_cases('schema renamed', 'ALTER SCHEMA handlers RENAME TO gone',
	sub { ends($_[0], "error 1 $no_schema", $_[1]) }, 'ALTER SCHEMA gone RENAME TO handlers');
in_both_cases('handler dropped', 'DROP FUNCTION handlers.note',
	sub { ends($_[0], 'error 1 42883', $_[1]) }, q{CREATE FUNCTION handlers.note(p jsonb) RETURNS void LANGUAGE sql AS
  'INSERT INTO public.ledger SELECT id, current_user FROM jobq.current_job()'});
in_both_cases('handler replaced by a procedure', 'DROP FUNCTION handlers.note;
	CREATE PROCEDURE handlers.note(p jsonb) LANGUAGE sql AS $$$$',
	sub { ends($_[0], 'error 1 42809', $_[1]) }, q{DROP PROCEDURE handlers.note; CREATE FUNCTION handlers.note(p jsonb) RETURNS void LANGUAGE sql AS
  'INSERT INTO public.ledger SELECT id, current_user FROM jobq.current_job()'});
# a new session has the setting once the postmaster has reloaded it
in_both_cases('superuser handlers forbidden', sub { allow_superusers('off') }, sub { ends($_[0], 'error 1 42501', $_[1]) }, sub { allow_superusers('on') });
sql('ALTER ROLE tenant SUPERUSER');
ends(enqueue('note'), 'completed 1', 'a superuser handler runs');
sql('ALTER SYSTEM SET jobq.allow_superuser_handlers = off');
$node->reload;
wait_for_sql($node, q{SELECT current_setting('jobq.allow_superuser_handlers') = 'off'}, 'they are forbidden');
ends(enqueue('note'), 'error 1 42501', 'a worker that has run one refuses it');
allow_superusers('on');

# ---------- the role ----------

sub role_waits
{
	my ($pattern) = @_;

	return sub {
		my ($id, $what) = @_;

		waits($id, $pattern, $what);
		$main::waiting = $id;
	};
}

if ($login_needed)
{
	in_both_cases('NOLOGIN', 'ALTER ROLE tenant NOLOGIN', role_waits('tenant'), 'ALTER ROLE tenant LOGIN');
	ends($main::waiting, 'completed 1', 'NOLOGIN: the job that waited runs');
}
in_both_cases('no CONNECT', 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC', role_waits('tenant'),
	'GRANT CONNECT ON DATABASE postgres TO PUBLIC') if $login_needed;
in_both_cases('role renamed', 'ALTER ROLE tenant RENAME TO lodger', sub { ends($_[0], 'completed 1', "$_[1]: runs as the same role") },
	'ALTER ROLE lodger RENAME TO tenant');

in_both_cases('role dropped', 'DROP OWNED BY tenant; DROP ROLE tenant', role_waits('role'),
	q{CREATE ROLE tenant LOGIN; SELECT jobq.alter_job_type('note', run_as => 'tenant')});
ends($main::waiting, 'completed 1', 'role dropped: the job that waited runs');

# ---------- the definer of a tool ----------

ends(enqueue('tool'), 'completed 1', 'a tool runs');
sql('REVOKE pg_execute_server_program FROM toolsmith');
ends(enqueue('tool'), 'error 1 42501', 'pg_execute_server_program revoked');
sql('GRANT pg_execute_server_program TO toolsmith');
ends(enqueue('tool'), 'completed 1', 'granted again');
sql('REVOKE EXECUTE ON FUNCTION jobq.create_job_type FROM toolsmith; DROP OWNED BY toolsmith; DROP ROLE toolsmith');
my $orphan = enqueue('tool');
$node->poll_query_until('postgres', "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$orphan'");
like(fate($orphan), qr/^error 1 (42704|42501)$/, 'a tool does not run after its definer was dropped');

# ---------- no other role ----------

is(dispatcher($node, 'postgres'), $dispatcher, 'the dispatcher is the same');
is(sql(q{SELECT string_agg(DISTINCT who, ' ' ORDER BY who) FROM ledger}), 'lodger postgres tenant', 'jobs have run as their roles only');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');

$node->stop;
done_testing();
