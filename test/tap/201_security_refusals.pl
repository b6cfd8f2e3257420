# Attacks by roles with some grants: each is refused with its SQLSTATE, and the same call by a
# role with the right succeeds.

use strict;
use warnings;

use ExecTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use ServerTest qw(errors_of);
use Test::More;

my $node = jobq_node('hostile', 'jobq.max_sql_workers = 2', 'log_min_messages = debug1');
my $dir = ExecTest::tools();

sub sql
{
	my ($text) = @_;

	return $node->safe_psql('postgres', $text);
}

# As that role, the statement is refused; as the other one it is not.
sub refused
{
	my ($what, $role, $state, $statement, $may, $same) = @_;

	is(errors_of($node, 'postgres', "SET SESSION AUTHORIZATION $role; $statement"), $state, "$what: $state");
	is(errors_of($node, 'postgres', "SET SESSION AUTHORIZATION $may; " . ($same // $statement)), '00000', "$what: $may may");
	return;
}

sql(<<'END');
CREATE ROLE owner LOGIN;
CREATE ROLE mallory LOGIN;
CREATE ROLE app LOGIN;
CREATE ROLE runner LOGIN;
GRANT runner TO owner;
CREATE SCHEMA handlers AUTHORIZATION owner;
GRANT USAGE ON SCHEMA handlers TO PUBLIC;
GRANT EXECUTE ON FUNCTION jobq.create_job_type, jobq.alter_job_type, jobq.drop_job_type, jobq.pause_job_type TO owner, mallory;
SET SESSION AUTHORIZATION owner;
CREATE FUNCTION handlers.ok(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
-- runs the statement of the payload, and returns its result and the current role
CREATE FUNCTION handlers.tries(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  said text := '00000';
BEGIN
  BEGIN
    EXECUTE p->>'sql';
  EXCEPTION WHEN OTHERS THEN
    said := SQLSTATE;
  END;
  RETURN jsonb_build_array(said, current_user, session_user);
END $$;
SELECT jobq.create_job_type('tries', 'handlers.tries(jsonb)', run_as => 'runner', max_attempts => 1);
SELECT jobq.create_job_type('mine', 'handlers.ok(jsonb)', max_attempts => 1);
RESET SESSION AUTHORIZATION;
SELECT jobq.create_job_type('own', 'handlers.tries(jsonb)', run_as => 'owner', max_attempts => 1);
SELECT jobq.grant_access('app', 'enqueue', 'acme', '{tries,own,mine}');
END

# ---------- handlers ----------

foreach (
	[ 'SET SESSION AUTHORIZATION postgres', '42501' ], [ 'SET ROLE postgres', '42501' ], [ 'SET ROLE owner', '42501' ],
	[ 'RESET ROLE', '00000' ], [ 'RESET SESSION AUTHORIZATION', '00000' ],
	[ "CREATE OR REPLACE FUNCTION handlers.tries(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p'", '42501' ],
	[ "ALTER FUNCTION handlers.tries SECURITY DEFINER", '42501' ],
	[ "SELECT jobq.grant_access('runner', 'admin')", '42501' ], [ "SELECT jobq_internal._grant_access(10, 'runner', 'admin', NULL, NULL)", '42501' ],
	[ "INSERT INTO jobq.access VALUES ('runner', 'admin', NULL, NULL, 0)", '42501' ],
	[ "SELECT jobq.enqueue('tries')", '42501' ], [ "SELECT jobq.alter_job_type('tries', run_as => 'owner')", '42501' ],
	[ "LOCK TABLE jobq.queue", '42501' ], [ 'SET jobq.allow_superuser_handlers = on', '42501' ])
{
	my ($statement, $state) = @$_;
	my $done = run_job($node, 'tries', '{"sql": ' . JSON::PP->new->allow_nonref->encode($statement) . '}');

	is_deeply([ $done->{status}, $done->{result} ], [ 'completed', [ $state, 'runner', 'runner' ] ], "a handler: " . substr($statement, 0, 60));
}
# the owner of the function redefines it, and its next job runs the new definition
my $own = run_job($node, 'own', q({"sql": "CREATE OR REPLACE FUNCTION handlers.ok(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT ''\"new\"''::jsonb'"}));
is($own->{result}[0], '00000', 'a handler that owns a function redefines it');
is(run_job($node, 'mine', '{}')->{result}, 'new', 'and the new definition runs next');

# ---------- types ----------

refused('a type redefined', 'mallory', '42501', q{SELECT jobq.create_job_type('mine', 'handlers.ok(jsonb)', on_conflict => 'replace')}, 'owner');
refused('a type altered', 'mallory', '42501', q{SELECT jobq.alter_job_type('mine', max_attempts => 1)}, 'owner');
refused('a type paused', 'mallory', '42501', q{SELECT jobq.pause_job_type('mine')}, 'owner');
refused('a type that runs as another role', 'mallory', '42501', q{SELECT jobq.create_job_type('as', 'handlers.ok(jsonb)', run_as => 'runner')}, 'owner');
refused('a tool', 'mallory', '42501', q{SELECT jobq.create_job_type('tool', command => '{true}')}, 'postgres');
refused('a type dropped', 'mallory', '42501', q{SELECT jobq.drop_job_type('mine')}, 'owner');
is(errors_of($node, 'postgres', q{SET SESSION AUTHORIZATION mallory; SELECT jobq.create_job_type('mine', 'handlers.ok(jsonb)')}), '00000', 'its name is free then');
sql(q{GRANT mallory TO owner; SELECT jobq.alter_job_type('mine', keep_completed => '1 day')});

# ---------- tenants ----------

refused('another tenant\'s job', 'app', '42501', q{SELECT jobq.enqueue('own', tenant => 'beta')}, 'app', q{SELECT jobq.enqueue('own', tenant => 'acme')});
refused('a default tenant', 'app', '42501', q{SET jobq.tenant = 'beta'; SELECT jobq.enqueue('own')}, 'app', q{SET jobq.tenant = 'acme'; SELECT jobq.enqueue('own')});
refused('a tenant that only begins alike', 'app', '42501', q{SELECT jobq.enqueue('own', tenant => 'acmecorp')}, 'app', q{SELECT jobq.enqueue('own', tenant => 'acme/corp')});
refused('no tenant by an empty name', 'app', '42501', q{SELECT jobq.enqueue('own', tenant => '')}, 'postgres');
refused('a type that is not granted', 'app', '42501', q{SELECT jobq.enqueue('tool', tenant => 'acme')}, 'postgres');
refused('a policy taken off', 'app', '42501', q{DROP POLICY readers ON jobq.queue}, 'postgres', 'SELECT count(*) FROM jobq.queue');
refused('row_security off', 'app', '42501', q{SET row_security = off; SELECT count(*) FROM jobq.jobs}, 'postgres');

# ---------- payloads ----------

my $deep = sub { '[' x $_[0] . ']' x $_[0] };
foreach (
	[ 'a huge payload', '54000', q{to_jsonb(repeat('x', 1048576))}, q{to_jsonb(repeat('x', 1000000))} ],
	[ 'one that grows when it is rendered', '54000', q{'[1e131071,1e131071,1e131071,1e131071,1e131071,1e131071,1e131071,1e131071,1e131071]'}, q{'[1e1000]'} ],
	[ 'one that is deep', '54000', "'" . $deep->(5000) . "'", "'" . $deep->(20) . "'" ])
{
	my ($what, $state, $bad, $good) = @$_;

	refused($what, 'app', $state, "SELECT jobq.enqueue('own', $bad, tenant => 'acme')", 'app', "SELECT jobq.enqueue('own', $good, tenant => 'acme')");
}

# ---------- tools ----------

my $echo = tool('echo_args', "#!/bin/sh\nprintf '%s|' \"\$@\"\nenv | grep -c -e EVIL -e LD_PRELOAD\nexit 0\n");
define_tool($node, 'args', [ $echo, '--to={to}', '{name}' ], options => q('{"output": "text"}'));
sql(q{SELECT jobq.grant_access('app', 'enqueue', 'acme', '{args}')});
refused('an option in the payload', 'app', '22023', q{SELECT jobq.enqueue('args', '{"to": "x", "name": "--output=/etc/passwd"}', tenant => 'acme')},
	'app', q{SELECT jobq.enqueue('args', '{"to": "--x", "name": "x"}', tenant => 'acme')});
my $hostile = q(a b; rm -rf / $(id) `id` | cat > x && "quoted" 'too' *);
is(run_job($node, 'args', JSON::PP->new->encode({ to => $hostile, name => $hostile, LD_PRELOAD => '/evil.so', EVIL => 1 }))->{result},
	"--to=$hostile|$hostile|0\n", 'no shell, and no payload, reaches arguments or environment');
refused('LD_PRELOAD in options.env', 'postgres', '22023', q{SELECT jobq.alter_job_type('args', options => '{"env": {"LD_PRELOAD": "/evil.so"}}')},
	'postgres', q{SELECT jobq.alter_job_type('args', options => '{"env": {"GREETING": "hello"}}')});

# a tool that other users may replace, by a link or in its directory
my $good = tool('good', "#!/bin/sh\necho '\"good\"'\n");
chmod 0755, $dir;
mkdir "$dir/open";
chmod 0777, "$dir/open";
symlink $good, "$dir/open/link" or die $!;
symlink $good, "$dir/link" or die $!;
define_tool($node, 'opened', [ "$dir/open/link" ]);
define_tool($node, 'linked', [ "$dir/link" ]);
is(run_job($node, 'linked', '{}')->{result}, 'good', 'a link that no other user can change is followed');
my $waits = enqueue($node, 'opened', '{}');
ok($node->poll_query_until('postgres', "SELECT status = 'error' OR error_msg IS NOT NULL OR jobq.health()::text LIKE '%opened%' FROM jobq.jobs WHERE id = '$waits'"),
	'one that others can change');
is(sql("SELECT count(*) FROM jobq.jobs WHERE id = '$waits' AND status = 'completed'"), '0', 'is not run');

# descriptors, also those that the server leaks
my $fds = tool('fds', "#!/bin/sh\nls -l /proc/self/fd | grep -c -e base/ -e global/ -e pg_ -e postmaster\nls /proc/self/fd | sort -n | tail -1\n");
define_tool($node, 'fds', [ $fds ], options => q('{"output": "text"}'));
like(run_job($node, 'fds', '{}')->{result}, qr/^0\n[34]\n$/, 'a tool inherits nothing of the server');

# ---------- log lines ----------

my $forged = "\\nFORGED LINE";
foreach (
	[ 'a unique key', "SELECT jobq.enqueue('own', unique_key => E'a$forged', tenant => 'acme')", "SELECT jobq.enqueue('own', unique_key => 'a', tenant => 'acme')" ],
	[ 'a tenant', "SELECT jobq.enqueue('own', tenant => E'acme/$forged')", "SELECT jobq.enqueue('own', tenant => 'acme/a')" ])
{
	my ($what, $bad, $good_one) = @$_;

	refused("$what of two lines", 'app', '22023', $bad, 'app', $good_one);
}
is(errors_of($node, 'postgres', "SELECT jobq.create_job_type(E'a$forged', 'handlers.ok(jsonb)')"), '22023', 'a type\'s name of two lines');
my $noisy = tool('noisy', "#!/bin/sh\nprintf 'x\\r\\033[2J\\nFORGED LINE\\n' >&2\nexit 1\n");
define_tool($node, 'noisy', [ $noisy ], options => q('{"log_stderr": "log"}'));
is(run_job($node, 'noisy', '{}')->{status}, 'error', 'a tool that writes what looks like a log');
unlike(slurp_file($node->logfile), qr/^FORGED LINE/m, 'no line of the log is forged');
unlike(slurp_file($node->logfile), qr/\x1b\[2J/, 'nor has it control characters');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|exited with exit code ([2-9]|\d\d)|terminating any other active/, 'no process was hurt');
$node->stop;
done_testing();
