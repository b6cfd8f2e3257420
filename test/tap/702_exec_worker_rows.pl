# A tool's result finds its row, after any change of the row, the tables, or the type meanwhile.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $node = jobq_node('exec_rows');
my $dir = tools();

# Ends when its file exists, with the file's contents as its output.
my $wait = tool('wait', <<'END');
#!/bin/sh
touch "$1/begun.$JOBQ_JOB_ID"
while [ ! -e "$1/$2" ]; do sleep 0.05; done
cat "$1/$2"
END
define_tool($node, 'wait', [ $wait, $dir, '{gate}' ], max_attempts => 2, backoff_base => "'1ms'",
	timeout => "'10min'");

sub begin
{
	my ($gate) = @_;
	my $id = enqueue($node, 'wait', qq({"gate": "$gate"}));

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if -e "$dir/begun.$id";
		select undef, undef, undef, 0.1;
	}
	return $id;
}

# ---------- the row moves, is locked, is changed ----------

my $id = begin('moved');
$node->safe_psql('postgres', 'VACUUM FULL jobq.queue');
tool('moved', '1');
is(finished($node, $id)->{status}, 'completed', 'the row was moved by VACUUM FULL');

$id = begin('changed');
$node->safe_psql('postgres', "UPDATE jobq.queue SET metadata = '{\"by\": \"hand\"}' WHERE id = '$id'");
tool('changed', '2');
my $done = finished($node, $id);
is("$done->{status} $done->{result} $done->{metadata}{by}", 'completed 2 hand', 'the row was changed by hand');

$id = begin('locked');
my $session = $node->background_psql('postgres', on_error_stop => 1) if $node->can('background_psql');
SKIP:
{
	skip 'no background_psql', 2 unless $session && $session->can('query_safe');
	$session->query_safe("BEGIN; SELECT id FROM jobq.queue WHERE id = '$id' FOR UPDATE");
	tool('locked', '3');
	is(run_job($node, 'wait', '{"gate": "moved"}')->{status}, 'completed', 'a locked row blocks no other job');
	is(job($node, $id)->{status}, 'running', 'its job still runs');
	$session->query_safe('COMMIT');
	$session->quit;
}
tool('locked', '3');
is(finished($node, $id)->{result}, 3, 'and is completed when the lock is gone');

$id = begin('deleted');
$node->safe_psql('postgres', "DELETE FROM jobq.queue WHERE id = '$id'");
tool('deleted', '4');
is(run_job($node, 'wait', '{"gate": "moved"}')->{status}, 'completed', 'a row deleted by hand disturbs nobody');
is(job($node, $id), undef, 'and stays deleted');

# ---------- no partition for the result ----------

$id = begin('homeless');
$node->safe_psql('postgres', <<'END');
DO $$
DECLARE p regclass;
BEGIN
  FOR p IN SELECT partition FROM unnest('{jobq.history,jobq.events,jobq.alerts}'::regclass[]) t, jobq_internal._partitions(t) LOOP
    EXECUTE format('DROP TABLE %s', p);
  END LOOP;
END $$;
END
tool('homeless', '5');
is(finished($node, $id)->{result}, 5, 'a result needs no partition');

# ---------- the type changes ----------

define_tool($node, 'absent', ["$dir/absent"], options => q('{"output": "none", "events": "all"}'));
$id = enqueue($node, 'absent');
$node->poll_query_until('postgres', "SELECT count(*) >= 2 FROM jobq.events WHERE job_id = '$id' AND type = 'claimed'");
$node->safe_psql('postgres', q{SELECT jobq.alter_job_type('absent', command => '{true}')});
is(finished($node, $id)->{attempts}, 1, 'a repaired command is tried at once, and the failed starts cost nothing');
ok($node->poll_query_until('postgres', q{SELECT jobq.health()->'checks'->'helper'->>'status' = 'healthy'}),
	'health is content again');

define_tool($node, 'unfit', [ 'true' ], options => q('{"output": "none"}'), max_attempts => 3, backoff_base => "'1ms'");
$node->safe_psql('postgres', q(UPDATE jobq.job_types SET options = options || '{"env": {"LD_PRELOAD": "x.so"}}' WHERE name = 'unfit'));
$done = run_job($node, 'unfit');
is("$done->{error_code} $done->{attempts}", '22023 3', 'an environment that was written by hand is checked');
like($done->{error_msg}, qr/LD_PRELOAD/, 'and the message names the variable');

$node->safe_psql('postgres', "ALTER SYSTEM SET jobq.tool_env_file = '$dir/nowhere'");
$node->reload;
$node->poll_query_until('postgres', "SELECT current_setting('jobq.tool_env_file') = '$dir/nowhere'");
define_tool($node, 'secret', [ 'true' ], options => q('{"output": "none", "pass_env": ["TOKEN"]}'));
like(run_job($node, 'secret')->{error_msg}, qr/could not read jobq.tool_env_file .*No such file/, 'a missing jobq.tool_env_file fails the attempt');
append_to_file("$dir/nowhere", "TOKEN=1\n\0\nOTHER=2\n");
like(run_job($node, 'secret')->{error_msg}, qr/jobq.tool_env_file .* has a NUL byte/, 'so does one with a NUL byte, whose rest would not be read');

# ---------- many, with all kinds of outcomes ----------

define_tool($node, 'mix', [ 'sh', '-c', '[ $(( $(od -An -N1 -tu1 /dev/urandom) % 4 )) = 0 ] && exit 1; echo null' ],
	max_attempts => 20, backoff_base => "'1ms'", backoff_max => "'2ms'");
$node->safe_psql('postgres', q(SELECT count(*) FROM jobq.enqueue_many('mix', array_fill('{}'::jsonb, ARRAY[300]))));
ok($node->poll_query_until('postgres', q(SELECT count(*) = 300 FROM jobq.jobs WHERE job_type = 'mix' AND status = 'completed')),
	'300 jobs with failures end');
is($node->safe_psql('postgres', q(SELECT sum(attempts - 1) = (SELECT count(*) FROM jobq.events
	WHERE job_type = 'mix' AND type = 'failed'), bool_and(attempts = runs) FROM jobq.jobs WHERE job_type = 'mix')), 't|t',
	'every failed attempt is charged and has its event');

# ---------- other encodings ----------

foreach my $encoding (qw(LATIN1 SQL_ASCII))
{
	my $db = lc $encoding;

	$node->safe_psql('postgres', "CREATE DATABASE $db ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql($db, q(CREATE EXTENSION jobq;
		SELECT jobq.create_job_type('echo', command => '{cat}', max_attempts => 1);
		SELECT jobq.create_job_type('arg', command => ARRAY['printf', '%s', '{x}'], options => '{"output": "text"}', max_attempts => 1);
		SELECT jobq.create_job_type('sh', command => ARRAY['sh', '-c', '{x}'], max_attempts => 1);
		SELECT jobq.create_job_type('sht', command => ARRAY['sh', '-c', '{x}'], options => '{"output": "text"}', max_attempts => 1)));
	my $run = sub {
		my ($type, $payload, $want) = @_;
		my $id = $node->safe_psql($db, "SET client_encoding = 'UTF8'; SELECT jobq.enqueue('$type', '$payload')");

		$node->poll_query_until($db, "SELECT status IN ('completed', 'error') FROM jobq.jobs WHERE id = '$id'");
		return $node->safe_psql($db, "SET client_encoding = 'UTF8'; SELECT $want FROM jobq.jobs WHERE id = '$id'");
	};
	is($run->('echo', '{"x": "caf' . "\xc3\xa9" . '"}', "result->>'x'"), "caf\xc3\xa9", "$encoding: JSON there and back");
	is($run->('arg', '{"x": "caf' . "\xc3\xa9" . '"}', "result#>>'{}'"), "caf\xc3\xa9", "$encoding: argument and text");
	next if $encoding eq 'SQL_ASCII';
	is($run->('sht', q({"x": "printf ''a\\\\342\\\\202\\\\254b''"}), "result#>>'{}'"), 'a?b',
		"$encoding: a character that it lacks in text");
	is($run->('sh', q({"x": "printf ''\\"\\\\342\\\\202\\\\254\\"''"}), 'error_code'), 'bad_output',
		"$encoding: and in JSON");
	$node->safe_psql($db, q(SELECT jobq.alter_job_type('sht', options => '{"output": "text", "max_output": "100MB"}')));
	is($run->('sht', q({"x": "head -c 95000000 /dev/zero | tr ''\\\\000'' ''\\\\377''"}), 'error_code'), '54000',
		"$encoding: text that is too long to convert");
}

$node->stop;

# ---------- the postmaster is process 1 ----------

my $unshare;

SKIP:
{
	my @unshare = qw(unshare --user --map-current-user --pid --fork --kill-child --mount-proc);
	my $bin = $node->config_data('--bindir');

	skip 'no PID namespaces for this user', 3 if system("@unshare true 2>/dev/null") != 0;
	$unshare = open my $server, '-|', @unshare, "$bin/postgres", '-D', $node->data_dir;
	# not by psql: one that cannot connect has closed the pipe that its query is written to
	my $tries = 10 * $PostgreSQL::Test::Utils::timeout_default;
	Time::HiRes::usleep(100_000)
	  while $tries-- > 0 && system("$bin/pg_isready", '-q', '-h', $node->host, '-p', $node->port) != 0;
	my $job = $node->safe_psql('postgres', q(SELECT jobq.enqueue('absent')));
	ok($node->poll_query_until('postgres', q(SELECT jobq.health()::text LIKE '%process 1%')),
		'tools are refused where the postmaster is process 1, and health says so');
	is($node->safe_psql('postgres', "SELECT status, attempts FROM jobq.jobs WHERE id = '$job'"), 'pending|0', 'the job waits');
	$node->safe_psql('postgres', 'ALTER SYSTEM SET jobq.allow_exec_under_pid1 = on');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');	# pg_ctl would signal process 1 outside
	ok($node->poll_query_until('postgres', "SELECT status = 'completed' FROM jobq.jobs WHERE id = '$job'"),
		'jobq.allow_exec_under_pid1 lets it run');
	# its PID outside of the namespace: postmaster.pid has the one inside
	kill 'INT', split ' ', slurp_file("/proc/$unshare/task/$unshare/children");
	close $server;
	$unshare = undef;
}

done_testing();

END { kill 'KILL', $unshare if $unshare }
