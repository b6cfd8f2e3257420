# A tool that can't be started is reported once, and retried on its own schedule.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = jobq_node('exec_missing');
my $path = tools() . '/missing';

# Returns psql's messages with SQLSTATEs.
sub messages
{
	my ($sql) = @_;
	my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");

	return $stderr;
}

sub one { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub alerts { my ($type) = @_; return one("SELECT count(*) FROM jobq.alerts WHERE job_type = '$type'"); }
sub tries { my ($id) = @_; return one("SELECT count(*) FROM jobq.events WHERE job_id = '$id' AND type = 'claimed'"); }

# ---------- when it is defined ----------

my $define = "SELECT jobq.create_job_type('missing', command => '{$path}', options => '{\"output\": \"none\", \"events\": \"all\"}')";
like(messages($define), qr/WARNING:  58P01: the tool of job type "missing" cannot be started on this server now: could not run "\Q$path\E": No such file or directory/,
	'create_job_type warns of a program that is not there');
like(messages("SELECT jobq.alter_job_type('missing', max_attempts => 2)"), qr/WARNING:  58P01: the tool of job type "missing"/, 'and so does alter_job_type');
like(messages("SELECT jobq.create_job_type('unknown', command => '{jobq-no-such-tool}')"), qr/WARNING:  58P01: .*"jobq-no-such-tool": No such file/, 'a name that jobq.tool_path does not lead to');
like(messages("SELECT jobq.create_job_type('not a program', command => '{/etc/passwd}')"), qr/WARNING:  58P01: .*Permission denied/, 'one that is not executable');
my $open = tool('open', "#!/bin/sh\n");
chmod 0777, $open;
like(messages("SELECT jobq.create_job_type('open', command => '{$open}')"), qr/WARNING:  58P01: .*may change it/, 'one that others may change');
like(messages("SELECT jobq.create_job_type('no interpreter', command => '{" . tool('no-interpreter', "#!/no/such/shell\n") . "}')"),
	qr/WARNING:  58P01: .*the interpreter in its first line does not exist/, 'one with a missing interpreter');
unlike(messages("SELECT jobq.create_job_type('there', command => '{sh,-c,true}', options => '{\"output\": \"none\"}')"), qr/WARNING/, 'none of one that is there');

# ---------- while it is missing ----------

my $id = enqueue($node, 'missing');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM jobq.alerts WHERE job_type = 'missing'"), 'an alert');
my $others = one("SELECT count(*) FROM jobq.enqueue_many('missing', array_fill('{}'::jsonb, ARRAY[20]))");
is($others, 20, 'more jobs wait behind it');
ok($node->poll_query_until('postgres', "SELECT status = 'pending' AND error_msg = 'could not run \"$path\": No such file or directory' AND error_code IS NULL
	AND attempts = 0 AND runs = 0 FROM jobq.jobs WHERE id = '$id'"), 'its row has the reason; no attempt and no run is counted')
  or diag explain job($node, $id);
like(one('SELECT jobq.health()'), qr/missing/, 'health() has the type');

one('CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION jobq');
my $tries = tries($id);
my $begin = time;
for (1 .. 30)
{
	one("CREATE ROLE jobq_test_$_");
	one('SELECT pg_reload_conf()');
	one("SELECT jobq.alter_job_type('there', max_attempts => $_)");
	$node->safe_psql('other', "SELECT jobq.create_job_type('t$_', command => '{true}')");
	run_job($node, 'there');
}
my $took = time - $begin;
my $now = tries($id);
cmp_ok($now - $tries, '<=', 2 + log(1 + $took) / log(2), "roles, reloads and other types do not make it try again ($took s)");
is(one("SELECT max(runs) || ' ' || max(attempts) FROM jobq.jobs WHERE job_type = 'missing' AND status = 'pending'"), '0 0', 'tries are no runs');
is(alerts('missing'), 1, 'and there is one alert');
is(one("SELECT count(*) FROM jobq.events WHERE type = 'paused' AND job_type = 'missing'"), 1, 'one event');
is(one("SELECT count(DISTINCT job_id) FROM jobq.events WHERE type = 'claimed' AND job_type = 'missing'"), 1, 'only one of its jobs tries');

# ---------- an exec worker that is new ----------

my $worker = one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq exec worker' AND datname = 'postgres'");
$tries = tries($id);
one("SELECT pg_terminate_backend($worker)");
ok($node->poll_query_until('postgres', "SELECT count(*) > $tries FROM jobq.events WHERE job_id = '$id' AND type = 'claimed'"), 'the next exec worker tries it');
ok($node->poll_query_until('postgres', "SELECT jobq.health()::text LIKE '%missing%'"), 'health() has it again');
is(alerts('missing'), 1, 'there is no other alert');

# ---------- another definition ----------

one("SELECT jobq.alter_job_type('missing', command => '{$path-2}')");
ok($node->poll_query_until('postgres', "SELECT error_msg = 'could not run \"$path-2\": No such file or directory' FROM jobq.jobs WHERE id = '$id'"), 'another command is tried at once')
  or diag explain job($node, $id);
ok($node->poll_query_until('postgres', "SELECT count(*) = 2 FROM jobq.alerts WHERE job_type = 'missing'"), 'and is another fault');
one("SELECT jobq.alter_job_type('missing', command => '{sh,-c,true}')");
my $end = finished($node, $id);
is("$end->{status} $end->{attempts} $end->{runs} " . ($end->{error_msg} // ''), 'completed 1 1 ', 'one that is there runs');
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM jobq.queue"), 'with all others');
unlike(one('SELECT jobq.health()'), qr/missing/, 'health() is content');
is(alerts('missing'), 2, 'there were two alerts in all') or diag one("SELECT string_agg(ts || ' ' || job_id || ' ' || error_msg, E'\n' ORDER BY ts) FROM jobq.alerts");

# ---------- a tool that is installed, and removed again ----------

my $short = tool('short', "#!/bin/sh\n");
define_tool($node, 'comes', [$short], options => q('{"output": "none"}'));
is(run_job($node, 'comes')->{status}, 'completed', 'it is there');
unlink $short;
$id = enqueue($node, 'comes');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM jobq.alerts WHERE job_type = 'comes'"), 'it is gone: an alert');
tool('short', "#!/bin/sh\n");
is(finished($node, $id)->{runs}, 1, 'it is back, and is tried without any change');
unlink $short;
$id = enqueue($node, 'comes');
ok($node->poll_query_until('postgres', "SELECT count(*) = 2 FROM jobq.alerts WHERE job_type = 'comes'"), 'gone again: another fault');

# ---------- a job that has failed before ----------

define_tool($node, 'fails', [ tool('fails', "#!/bin/sh\nrm \"\$0\"\nexit 3\n") ], options => q('{"output": "none"}'), max_attempts => 3, backoff_base => "'1ms'");
$id = enqueue($node, 'fails');
ok($node->poll_query_until('postgres', "SELECT status = 'retry' AND error_msg LIKE 'could not run %' AND error_code IS NULL AND error_details IS NULL
	AND attempts = 1 AND runs = 1 FROM jobq.jobs WHERE id = '$id'"), 'the reason stands in place of its last error') or diag explain job($node, $id);
$node->safe_psql('postgres', "SELECT jobq.cancel_job('$id')");
is(finished($node, $id)->{status}, 'cancelled', 'it can be cancelled');
one("SELECT jobq.drop_job_type('fails')");
ok($node->poll_query_until('postgres', "SELECT jobq.health()::text NOT LIKE '%fails%'"), 'a type that is dropped leaves health()');

$node->stop;
done_testing();
