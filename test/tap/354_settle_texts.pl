# Texts of handlers and tools: the stored length, the part written to the server's log, and the
# events and levels reserved for jobq.

use strict;
use warnings;

use ExecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = jobq_node('texts', 'jobq.max_sql_workers = 1', "jobq.alert_job_type = 'alerted'", "log_line_prefix = '%m [%p] %b '",
	'log_statement = none');
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION fails(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  size int := p->>'size';
BEGIN
  RAISE EXCEPTION '%', repeat('ä', size) USING DETAIL = repeat('ä', size), HINT = repeat('h', size);
END $$;
CREATE FUNCTION descends(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF n = 0 THEN
    RAISE EXCEPTION 'at the bottom';
  END IF;
  PERFORM descends(n - 1);
END $$;
CREATE FUNCTION deep(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT public.descends(300)';
CREATE FUNCTION skips(p jsonb) RETURNS void LANGUAGE sql AS $$SELECT jobq.skip(repeat('s', 100000))$$;
CREATE FUNCTION says(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', p->>'text';
END $$;
CREATE FUNCTION keeps(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT p';
CREATE FUNCTION logs(p jsonb) RETURNS void LANGUAGE sql AS
  $$SELECT jobq.log_event('m', coalesce(p->>'level', 'info'), coalesce(p->>'type', 'log'))$$;
SELECT jobq.create_job_type('fails', 'fails(jsonb)', max_attempts => 1, options => '{"on_dead": "hooked", "events": "all"}'),
  jobq.create_job_type('retried', 'fails(jsonb)', max_attempts => 2, backoff => 'fixed', backoff_base => '1 hour'),
  jobq.create_job_type('deep', 'deep(jsonb)', max_attempts => 1), jobq.create_job_type('skips', 'skips(jsonb)'),
  jobq.create_job_type('says', 'says(jsonb)', max_attempts => 1),
  jobq.create_job_type('logs', 'logs(jsonb)', max_attempts => 1),
  jobq.create_job_type('hooked', 'keeps(jsonb)'), jobq.create_job_type('alerted', 'keeps(jsonb)');
END

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub logged { return slurp_file($node->logfile); }

# A line about a job is written after the commit that ends the job.
sub logs
{
	my ($pattern, $what, $offset) = @_;

	return ok($node->wait_for_log($pattern, $offset // 0), $what);
}

# ---------- sizes ----------

my $job = run_job($node, 'fails', '{"size": 5000000}');
my $id = $job->{id};
is(sql("SELECT octet_length(error_msg) BETWEEN 8000 AND 8192 FROM jobq.jobs WHERE id = '$id'"), 't', 'error_msg has 8 kB');
is(sql("SELECT regexp_replace(error_msg, '^ä+', '') FROM jobq.jobs WHERE id = '$id'"), ' [cut: 10000000 bytes in all]',
	'whole characters and a note');
is_deeply([ sort keys %{ $job->{error_details} } ], [ 'context', 'hint' ], 'a detail that repeats the message is left out');
is(sql("SELECT octet_length(error_details->>'hint') BETWEEN 8000 AND 8192 FROM jobq.jobs WHERE id = '$id'"), 't', 'a hint has 8 kB');
is(sql("SELECT max(octet_length(message)) <= 8192 AND max(octet_length(data::text)) < 20000 FROM jobq.events WHERE job_id = '$id'"),
	't', 'so have its events');
is(sql("SELECT octet_length(error_msg) <= 8192 AND octet_length(message) < 9000 FROM jobq.alerts WHERE job_id = '$id'"), 't', 'and its alert');
$node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM jobq.jobs WHERE job_type IN ('hooked', 'alerted') AND status = 'completed'});
is(sql(q{SELECT count(*) FROM jobq.jobs WHERE job_type IN ('hooked', 'alerted') AND octet_length(payload->>'error_msg') <= 8192}), '2',
	'and the jobs of its hook and alert');
cmp_ok(-s $node->logfile, '<', 100_000, 'nor is the log larger');

$job = enqueue($node, 'retried', '{"size": 100000}');
wait_status($node, $job, 'retry');
is(sql("SELECT octet_length(error_msg) <= 8192 FROM jobq.jobs WHERE id = '$job'"), 't', 'a job that will be retried has 8 kB, too');
$job = run_job($node, 'fails', '{"size": 4000}');
is($job->{error_msg}, "\x{e4}" x 4000, 'what fits is whole');
$job = run_job($node, 'deep');
my @lines = split /\n/, $job->{error_details}{context};
my %seen;
is(scalar(grep { $seen{$_}++ } @lines), 0, 'no line of the context is there twice');
like($job->{error_details}{context}, qr/descends\(integer\) line 4 at RAISE.*descends\(integer\) line 6 at PERFORM/s, 'each is there once');
$job = run_job($node, 'skips');
is($job->{status} . ' ' . length($job->{error_msg}), 'skipped 8192', 'a reason has 8 kB');

my $noise = tool('noise', "#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' x\nhead -c 20000 /dev/zero | tr '\\0' e >&2\n");
define_tool($node, 'noise', [$noise]);
$job = run_job($node, 'noise');
is($job->{error_code}, 'bad_output', 'a tool with output that is no JSON');
cmp_ok(length($job->{error_details}{stdout}), '<=', 8192, 'leaves 8 kB of it');
cmp_ok(length($job->{error_details}{stderr}), '<=', 8192, 'and of stderr');
my $warm = tool('warm', <<'END');
#!/usr/bin/perl
use strict;
$| = 1;
while (my $line = readline) {
  my ($id) = $line =~ /"id": ?"([^"]+)"/;
  print qq({"id": "$id", "error": "), 'w' x 100_000, qq(", "code": "), 'c' x 100_000, qq("}\n);
}
END
define_tool($node, 'warm', [$warm], options => q('{"warm": 1}'));
$job = run_job($node, 'warm');
is(length($job->{error_msg}) . ' ' . length($job->{error_code}), '8192 255', 'the error of a warm tool has 8 kB, its code 255 bytes');

# ---------- the log ----------

my $forged = "first\\n2026-01-01 00:00:00.000 UTC [1] postmaster LOG:  forged\\r\\u001b[31mred\\u007f\\u009b32m";
run_job($node, 'says', qq({"text": "$forged"}));
logs(qr/failed for good after 1 attempt\(s\): first\\n2026-01-01 00:00:00\.000 UTC \[1\] postmaster LOG:  forged\\r\\x1b\[31mred\\x7f\\x9b32m$/m,
	'control characters in the log are escaped');
unlike(logged(), qr/[\x00-\x08\x0b-\x1f\x7f]|\xc2\x9b/, 'none is there');
is(sql(q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'says' AND error_msg LIKE E'first\n2026%'}), '1', 'the job has its text as it was');
my $loud = tool('loud', qq(#!/bin/sh\nprintf 'to stderr\\033[31m\\r\\n' >&2\n));
define_tool($node, 'loud', [$loud], options => q('{"log_stderr": "log", "output": "none"}'));
run_job($node, 'loud');
logs(qr/of type "loud": to stderr\\x1b\[31m/, 'those of a tool, too');
unlike(logged(), qr/[\x00-\x08\x0b-\x1f\x7f]/, 'none is there');

is(sql('SHOW jobq.log_error_text'), 'on', 'texts are logged by default');
$node->append_conf('postgresql.conf', 'jobq.log_error_text = off');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('jobq.log_error_text') = 'off'});
sql(q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type ~ 'jobq (sql|exec) worker'});
my $offset = -s $node->logfile;
run_job($node, 'loud');
run_job($node, 'says', '{"text": "a secret"}');
logs(qr/job \S+ of type "says" failed for good after 1 attempt\(s\)$/m, 'off: a dead letter is logged', $offset);
my $tail = slurp_file($node->logfile, $offset);
unlike($tail, qr/a secret|to stderr/, 'without a text of handlers or tools');
is(sql(q{SELECT count(*) FROM jobq.alerts WHERE message LIKE '%a secret'}), '1', 'its alert has it');

# ---------- log_event ----------

foreach my $type (qw(enqueued claimed started progress heartbeat retry_scheduled snoozed completed failed dead cancelled skipped
	retried paused released hook_failed))
{
	$job = run_job($node, 'logs', qq({"type": "$type"}));
	is("$job->{status} $job->{error_code}", 'error 22023', "event type $type is jobq's own");
}
like($job->{error_msg}, qr/argument "type": "hook_failed"/, 'the message names argument and value');
foreach my $type (qw(log artifact shipped Failed))
{
	is(run_job($node, 'logs', qq({"type": "$type"}))->{status}, 'completed', "event type $type is not");
}
foreach my $level (qw(debug info warning error))
{
	is(run_job($node, 'logs', qq({"level": "$level"}))->{status}, 'completed', "level $level");
}
$job = run_job($node, 'logs', '{"level": "fatal"}');
is("$job->{status} $job->{error_code}", 'error 22023', 'no other level');
like($job->{error_msg}, qr/argument "level": "fatal"/, 'the message names argument and value');
# More events than an attempt has take no memory.
sql(<<'END');
CREATE FUNCTION chats(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  before numeric;
BEGIN
  PERFORM jobq.log_event('x') FROM generate_series(1, 10001);
  SELECT sum(total_bytes) INTO before FROM pg_backend_memory_contexts;
  PERFORM jobq.log_event(repeat('x', 1000)) FROM generate_series(1, 20000);
  RETURN (SELECT to_jsonb(sum(total_bytes) - before < 5000000) FROM pg_backend_memory_contexts);
END $$;
SELECT jobq.create_job_type('chats', 'chats(jsonb)', max_attempts => 1)
END
is(sql(sprintf q{SELECT result FROM jobq.jobs WHERE id = '%s'}, run_job($node, 'chats')->{id}), 'true', 'events beyond the 10,000th');

# ---------- handlers of superusers ----------

sub warns
{
	my ($call, $pattern, $what) = @_;
	my (undef, undef, $err) = $node->psql('postgres', "SELECT $call");

	return like($err, $pattern, $what);
}

sql(<<'END');
CREATE ROLE lesser;
CREATE ROLE chief SUPERUSER LOGIN;
CREATE SCHEMA safe;
CREATE SCHEMA theirs AUTHORIZATION lesser;
CREATE SCHEMA open;
GRANT USAGE, CREATE ON SCHEMA open TO lesser;
CREATE SCHEMA everybodys;
GRANT USAGE, CREATE ON SCHEMA everybodys TO PUBLIC;
CREATE FUNCTION safe.ok(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION safe.lessers(p jsonb) RETURNS void LANGUAGE sql AS '';
ALTER FUNCTION safe.lessers OWNER TO lesser;
CREATE FUNCTION safe.chiefs(p jsonb) RETURNS void LANGUAGE sql AS '';
ALTER FUNCTION safe.chiefs OWNER TO chief;
CREATE FUNCTION theirs.f(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION open.f(p jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION everybodys.f(p jsonb) RETURNS void LANGUAGE sql AS '';
ALTER ROLE lesser LOGIN;
END
warns(q{jobq.create_job_type('ok', 'safe.ok(jsonb)')}, qr/^$/, 'a handler of a superuser');
warns(q{jobq.create_job_type('chiefs', 'safe.chiefs(jsonb)')}, qr/^$/, 'of another superuser');
warns(q{jobq.create_job_type('in_public', 'keeps(jsonb)')}, qr/^$/, 'in public, which belongs to the owner of the database');
warns(q{jobq.create_job_type('lessers', 'safe.lessers(jsonb)')}, qr/WARNING:.*"lessers".*superuser.*belongs to role "lesser"/s, 'of a lesser role');
warns(q{jobq.create_job_type('theirs', 'theirs.f(jsonb)')}, qr/WARNING:.*"theirs".*schema "theirs".*"lesser"/s, 'in the schema of a lesser role');
warns(q{jobq.create_job_type('open', 'open.f(jsonb)')}, qr/WARNING:.*"open".*schema "open".*"lesser"/s, 'in a schema that one can write');
warns(q{jobq.create_job_type('everybodys', 'everybodys.f(jsonb)')}, qr/WARNING:.*schema "everybodys".*PUBLIC/s, 'or all can');
warns(q{jobq.create_job_type('as_lesser', 'theirs.f(jsonb)', run_as => 'lesser')}, qr/^$/, 'run as the lesser role');
warns(q{jobq.alter_job_type('as_lesser', run_as => 'chief')}, qr/WARNING:.*"as_lesser".*superuser/s, 'altered to run as a superuser');
warns(q{jobq.alter_job_type('ok', max_attempts => 2)}, qr/^$/, 'nothing to warn of');

$node->stop;
done_testing();
