# jobq.reload(): ALTER DATABASE ... SET and RESET count for jobs that start afterwards,
# with an idle or a busy executor.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('reload', 'jobq.max_sql_workers = 1');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE FUNCTION setting(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF p ? 'gate' THEN PERFORM pg_advisory_lock((p->>'gate')::int); END IF;
  RETURN to_jsonb(current_setting('jobq.long_handler'));
END $$;
SELECT jobq.create_job_type('setting', 'setting(jsonb)', max_attempts => 3, backoff => 'fixed', backoff_base => '1ms');
SELECT jobq.create_job_type('tool', command => '{which}', options => '{"output": "text"}');
SELECT jobq.create_job_type('absent', command => '{absent}', options => '{"output": "none"}');
SELECT jobq.create_job_type('gated', command => '{which,gated}', backoff => 'fixed', backoff_base => '1ms', options => '{"output": "text"}');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub value { return $node->safe_psql('postgres', $_[0]); }

sub started
{
	my ($type, $payload) = @_;
	my $id = value("SELECT jobq.enqueue('$type', '$payload')");
	wait_for_sql($node, "SELECT status = 'running' FROM jobq.jobs WHERE id = '$id'", "$type $payload runs");
	return $id;
}

sub result_is
{
	my ($id, $result, $what) = @_;
	wait_status($node, 'postgres', $id, 'completed', "$what: completed");
	return is(value("SELECT result #>> '{}' FROM jobq.jobs WHERE id = '$id'"), $result, $what);
}

sub reload_with
{
	my ($command) = @_;
	my $former = dispatcher($node, 'postgres');
	value("$command; SELECT jobq.reload()");
	wait_dispatcher($node, 'postgres', "$command: a new dispatcher", $former);
	return;
}

# ---------- SQL workers ----------

result_is(value("SELECT jobq.enqueue('setting')"), '1min', 'a SQL worker has the default');
reload_with("ALTER DATABASE postgres SET jobq.long_handler = '2min'");
result_is(value("SELECT jobq.enqueue('setting')"), '2min', 'SET: an idle worker is replaced');
reload_with('ALTER DATABASE postgres RESET jobq.long_handler');
result_is(value("SELECT jobq.enqueue('setting')"), '1min', 'RESET: so it is');

my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $busy = started('setting', '{"gate": 1}');
my $behind = value("SELECT jobq.enqueue('setting', '{}')");
reload_with("ALTER DATABASE postgres SET jobq.long_handler = '3min'");
$gate->query_safe('SELECT pg_advisory_unlock(1)');
result_is($busy, '1min', 'a job that runs ends in its worker');
result_is($behind, '3min', 'the next one has the new setting');
is(value("SELECT attempts || ' ' || runs FROM jobq.jobs WHERE id = '$busy'"), '1 1', '!and nothing ran twice');

# a worker that must leave is killed in its handler
$gate->query_safe('SELECT pg_advisory_lock(1)');
$busy = started('setting', '{"gate": 1}');
reload_with("ALTER DATABASE postgres SET jobq.long_handler = '4min'");
value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'");
wait_for_sql($node, "SELECT status = 'running' AND runs = 2 FROM jobq.jobs WHERE id = '$busy'", 'a job runs again after its worker was terminated');
value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'jobq sql worker'");
wait_for_sql($node, "SELECT runs = 3 AND attempts = 2 FROM jobq.jobs WHERE id = '$busy'", 'the second time it is charged');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
result_is($busy, '4min', 'and then it ends');

# ---------- tools ----------

my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0755, $dir;
foreach my $version ('first', 'second')
{
	mkdir "$dir/$version" or die $!;
	append_to_file("$dir/$version/which", "#!/bin/sh\n[ \"\$1\" != gated ] || while [ ! -e $dir/open ]; do sleep 0.05; done\nprintf $version\n");
	chmod 0755, "$dir/$version/which";
}
reload_with("ALTER DATABASE postgres SET jobq.tool_path = '$dir/first'");
result_is(value("SELECT jobq.enqueue('tool')"), 'first', 'the exec worker has the path');
my $running = started('gated', '{}');
reload_with("ALTER DATABASE postgres SET jobq.tool_path = '$dir/second'");
result_is(value("SELECT jobq.enqueue('tool')"), 'second', 'while a tool runs others start with the new path');
value("SELECT jobq.enqueue('absent')");
wait_for_sql($node, "SELECT jobq.health()::text LIKE '%absent%'", 'health() has the tool that the new exec worker cannot start');
append_to_file("$dir/open", '');
result_is($running, 'first', 'the tool that runs is not disturbed');
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'", 'its exec worker leaves');
like(value('SELECT jobq.health()'), qr/absent/, 'health() keeps what the new one has reported');

# the helper of an exec worker that is to end is killed
unlink "$dir/open" or die $!;
$running = started('gated', '{}');
my ($former) = jobq_pids($node, 'exec worker');
reload_with("ALTER DATABASE postgres SET jobq.tool_path = '$dir/first'");
result_is(value("SELECT jobq.enqueue('tool')"), 'first', 'another exec worker has come');
my ($helper) = grep { slurp_file("/proc/$_/comm") =~ /^jobq-helper/ } split ' ', slurp_file("/proc/$former/task/$former/children");
is(kill('KILL', $helper), 1, 'the helper of the former one is killed');
append_to_file("$dir/open", '');
wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $former)", 'its exec worker leaves');
unlike(value('SELECT jobq.health()'), qr/helper was lost/, 'health() has no trouble of it');
wait_status($node, 'postgres', $running, 'completed', 'its job: completed');
is(value("SELECT count(*) FROM jobq.dead_letters"), 0, 'nothing failed');
$gate->quit;

# ---------- the conductor ----------

sub conductor_runs { return wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq conductor' AND $_[0]", $_[1]); }

my $log = -s $node->logfile;
value("SELECT jobq.schedule('often', '* * * * *', 'setting')");
conductor_runs("datname = 'postgres'", 'a conductor runs');
my ($conductor) = jobq_pids($node, 'conductor');
reload_with("ALTER DATABASE postgres SET jobq.long_handler = '5min'");
conductor_runs("pid <> $conductor", 'another one follows');
value('CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION jobq; SELECT jobq.create_job_type('pulled'), jobq.schedule('often', '* * * * *', 'pulled')");
conductor_runs("datname = 'other'", 'one runs in a second database');
value('DROP DATABASE other');
unlike(substr(slurp_file($node->logfile), $log), qr/FATAL/, 'what jobq ends leaves no FATAL in the log');
$node->stop;

done_testing();
