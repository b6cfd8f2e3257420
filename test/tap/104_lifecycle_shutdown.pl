# Stopping the server while jobs run: a fast stop is fast and charges no attempt, a
# smart stop lets handlers finish.

use strict;
use warnings;

use ExecTest qw(alive);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('shutdown', 'jobq.max_sql_workers = 4', q{jobq.shutdown_grace = '1s'});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# One tool obeys TERM, the other does not; both end when a file appears.
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/$_->[0]", "$_->[1] echo $_->[0] \$1 \$\$ >>$dir/pids; while [ ! -e $dir/\$1 ]; do sleep 0.05; done\n")
  foreach [ 'polite', '' ], [ 'deaf', q{trap '' TERM;} ];
$node->safe_psql('postgres', <<"END");
CREATE TABLE gate (name text);
CREATE TABLE done (job uuid);
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    BEGIN
      PERFORM pg_sleep(0.01);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  INSERT INTO public.done SELECT id FROM jobq.current_job();
END \$\$;
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', max_attempts => 1);
SELECT jobq.create_job_type(name, command => ARRAY['/bin/sh', '$dir/' || name, '{gate}'], max_attempts => 1,
  options => '{"output": "none"}') FROM unnest('{polite,deaf}'::text[]) name;
END

sub enqueue
{
	my ($type, $gate) = @_;

	return $node->safe_psql('postgres', qq(SELECT jobq.enqueue('$type', '{"gate": "$gate"}')));
}

sub in_flight
{
	my ($gate) = @_;
	my @ids = map { enqueue($_, $gate) } qw(waiter waiter polite deaf);

	wait_for_sql($node, "SELECT count(*) = 4 FROM jobq.jobs WHERE status = 'running'", "$gate: two SQL jobs and two tools run");
	wait_for_text("$dir/pids", qr/^$_ $gate \d+$/m) foreach qw(polite deaf);
	return @ids;
}

sub open_gate
{
	my ($gate) = @_;

	append_to_file("$dir/$gate", '');
	return $node->safe_psql('postgres', "SET synchronous_commit = local; INSERT INTO gate VALUES ('$gate')");
}

sub fates
{
	my (@ids) = @_;
	my $list = join ', ', map { "'$_'" } @ids;

	return $node->safe_psql('postgres', "SELECT string_agg(concat_ws(' ', job_type, status, attempts, error_code), ', '"
		  . " ORDER BY job_type, id) FROM jobq.jobs WHERE id IN ($list)");
}

sub tools_alive
{
	return scalar alive(slurp_file("$dir/pids") =~ /(\d+)$/mg);
}

# Stops the server fast; tests its duration and that no tool is left.
sub stop_fast
{
	my ($what) = @_;
	my $seconds = seconds_of { $node->stop('fast') };

	cmp_ok($seconds, '<', 30, "$what: stopped in time");
	is(tools_alive(), 0, "$what: no tool is left");
	return;
}

# ---------- fast ----------

my @jobs = in_flight('fast');
stop_fast('fast');
$node->start;
wait_for_sql($node, "SELECT count(*) = 4 FROM jobq.jobs WHERE status = 'running'", 'fast: all run again after the start');
open_gate('fast');
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'fast: and complete');
is(fates(@jobs), 'deaf completed 1, polite completed 1, waiter completed 1, waiter completed 1', 'fast: with one attempt each');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job) FROM done'), '2|2', '!fast: effects are there once');

# jobs that became due while the server was down start at once
my $later = $node->safe_psql('postgres', q{SELECT jobq.enqueue('waiter', '{"gate": "fast"}', delay => '500ms')});
$node->restart;
wait_status($node, 'postgres', $later, 'completed', 'a delayed job runs after a restart');

# ---------- fast, with a synchronous standby that is dead ----------

@jobs = in_flight('absent');
$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'absent'});
$node->reload;
wait_for_sql($node, q{SELECT current_setting('synchronous_standby_names') = 'absent'}, 'the standby is dead');
$node->safe_psql('postgres', 'CHECKPOINT');    # commits wait for it once the checkpointer has read the setting
my $client = $node->background_psql('postgres', on_error_stop => 0);
$client->query_safe('SET synchronous_commit = local');
my ($more) = $client->query_safe(q{SELECT jobq.enqueue('waiter', '{"gate": "absent"}')}) =~ /([0-9a-f-]{36})/;
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'healthy', 'the dispatcher answers');
open_gate('absent');
wait_for_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'SyncRep'",
	'a SQL worker waits for the standby');
wait_for_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'jobq exec worker' AND wait_event = 'SyncRep'",
	'the exec worker, too');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'healthy', 'the dispatcher still answers');
stop_fast('absent');
$client->quit;
$node->append_conf('postgresql.auto.conf', q{synchronous_standby_names = ''});
$node->start;
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', 'absent: all complete after the start');
like(fates(@jobs), qr/^deaf completed 1, polite completed 1, waiter completed 1, waiter completed 1$/, 'absent: at no charge');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT job) FROM done"), '6|6', '!absent: effects are there once');
is($node->safe_psql('postgres', "SELECT status FROM jobq.jobs WHERE id = '$more'"), 'completed', 'absent: the late one too');

# ---------- an exec worker that waits for the standby is terminated; nothing else wakes it -------

my ($alone) = $node->safe_psql('postgres', q{SELECT jobq.enqueue('polite', '{"gate": "alone"}')});
wait_status($node, 'postgres', $alone, 'running', 'alone: a tool runs');
$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'absent'});
$node->reload;
wait_for_sql($node, q{SELECT current_setting('synchronous_standby_names') = 'absent'}, 'alone: the standby is dead');
$node->safe_psql('postgres', 'CHECKPOINT');
append_to_file("$dir/alone", '');
wait_for_sql($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'jobq exec worker' AND wait_event = 'SyncRep'",
	'alone: the exec worker waits for the standby');
is($node->safe_psql('postgres', "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE backend_type = 'jobq exec worker'"), 't',
	'alone: the exec worker leaves at once');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
$node->reload;
wait_status($node, 'postgres', $alone, 'completed', 'alone: the job has ended');

# ---------- smart ----------

@jobs = in_flight('smart');
$client = $node->background_psql('postgres', on_error_stop => 0);
my $offset = -s $node->logfile;
KeptPsql::fresh_sessions($node);
command_ok([ 'pg_ctl', '-D', $node->data_dir, '-m', 'smart', '-W', 'stop' ], 'smart stop begins');
$node->wait_for_log(qr/received smart shutdown request/, $offset);
append_to_file("$dir/smart", '');
$client->query_safe(q{INSERT INTO gate VALUES ('smart')});
my $left = '';
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$left = $client->query_safe('SELECT count(*) FROM jobq.queue');
	last if $left eq '0';
	select undef, undef, undef, 0.1;
}
is($left, '0', 'smart: all that runs finishes');
$client->quit;
$node->wait_for_log(qr/database system is shut down/, $offset);
$node->stop('fast', fail_ok => 1);
is(tools_alive(), 0, 'smart: no tool is left');
$node->start;
is(fates(@jobs), 'deaf completed 1, polite completed 1, waiter completed 1, waiter completed 1', 'smart: with one attempt each');

# ---------- fast, after a cancel that the exec worker has not passed on ----------

my $unwanted = enqueue('polite', 'unwanted');
wait_for_text("$dir/pids", qr/^polite unwanted \d+$/m);
wait_status($node, 'postgres', $unwanted, 'running', 'cancel: a tool runs');
my ($worker) = jobq_pids($node, 'exec worker');
kill 'STOP', $worker;
is($node->safe_psql('postgres', "SELECT jobq.cancel_job('$unwanted', 'not wanted')"), 't', 'cancel: it is cancelled');
is($node->safe_psql('postgres', q{SELECT jobq.health()->'checks'->'dispatcher'->>'status'}), 'healthy', 'cancel: the dispatcher has taken it') foreach 1, 2;
$offset = -s $node->logfile;
command_ok([ 'pg_ctl', '-D', $node->data_dir, '-m', 'fast', '-W', 'stop' ], 'cancel: fast stop begins');
ok(wait_for_text("/proc/$worker/status", qr/^ShdPnd:\s*[0-9a-f]*[4-7c-f][0-9a-f]{3}$/m), 'cancel: the exec worker is terminated');
kill 'CONT', $worker;
$node->wait_for_log(qr/database system is shut down/, $offset);
$node->stop('fast', fail_ok => 1);
$node->start;
wait_for_sql($node, "SELECT status IN ('cancelled', 'running') FROM jobq.jobs WHERE id = '$unwanted'", 'cancel: after the start');
is($node->safe_psql('postgres', "SELECT status, error_msg FROM jobq.jobs WHERE id = '$unwanted'"), 'cancelled|not wanted', 'cancel: it is cancelled, and does not run again');
append_to_file("$dir/unwanted", '');

# ---------- the log ----------

my $log = slurp_file($node->logfile);
unlike($log, qr/terminating any other active server processes|PANIC|TRAP:/, 'no process crashed');
unlike($log, qr/exited with exit code ([2-9]|\d\d)/, 'ours leave with 0 or 1');

$node->stop;
done_testing();
