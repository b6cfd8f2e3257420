# Each kind of process, terminated and killed: it comes back, its work continues, and a process that
# ended by itself has not restarted the server.

use strict;
use warnings;

use List::Util qw(min);
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = jobq_server('processes', 'restart_after_crash = on', 'jobq.max_sql_workers = 2', 'log_min_messages = debug1');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION jobq');
wait_dispatcher($node, 'postgres', 'the dispatcher runs');
my $named = $node->safe_psql('postgres', "SELECT current_setting('server_version_num')::int >= 170000") eq 't';
ok($node->poll_query_until('postgres', "SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'",
		$named ? 'JobqDispatcherMain' : 'Extension'), 'its wait event has a name, from 17 on');

my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/tool", "echo \$1 \$\$ >>$dir/runs; while [ ! -e $dir/\$1 ]; do sleep 0.05; done\n");
$node->safe_psql('postgres', <<"END");
CREATE TABLE gate (name text);
CREATE TABLE done (job uuid);
CREATE FUNCTION waiter(p jsonb) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate WHERE name = p->>'gate') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  INSERT INTO public.done SELECT id FROM jobq.current_job();
END \$\$;
CREATE FUNCTION suicide(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_terminate_backend(pg_backend_pid())';
SELECT jobq.create_job_type('waiter', 'waiter(jsonb)', backoff => 'fixed', backoff_base => '10ms');
SELECT jobq.create_job_type('suicide', 'suicide(jsonb)', max_attempts => 3, backoff => 'fixed', backoff_base => '10ms');
SELECT jobq.create_job_type('tool', command => ARRAY['/bin/sh', '$dir/tool', '{gate}'], backoff => 'fixed',
  backoff_base => '10ms', options => '{"output": "none"}');
END

sub enqueue
{
	my ($type, $payload) = @_;

	return $node->safe_psql('postgres', "SELECT jobq.enqueue('$type', '$payload')");
}

sub fate
{
	my ($id) = @_;

	return $node->safe_psql('postgres',
		"SELECT concat_ws(' ', status, attempts, error_code) FROM jobq.jobs WHERE id = '$id'");
}

sub failures
{
	my ($id) = @_;

	return $node->safe_psql('postgres',
		"SELECT coalesce(string_agg(data->>'code', ' ' ORDER BY id), 'none') FROM jobq.events WHERE job_id = '$id' AND type = 'failed'");
}

sub running
{
	my ($id, $former) = @_;
	my $other = defined $former ? " AND worker <> '$former'" : '';

	return wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.jobs WHERE id = '$id' AND status = 'running'$other",
		'it runs');
}

sub open_gate
{
	my ($gate) = @_;

	return $node->safe_psql('postgres', "INSERT INTO gate VALUES ('$gate')");
}

sub worker_pid
{
	my ($id) = @_;

	return $node->safe_psql('postgres', "SELECT split_part(worker, '/', 2) FROM jobq.jobs WHERE id = '$id'");
}

sub terminate
{
	my ($pid) = @_;

	return $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 90000)");
}

sub restarts
{
	return scalar(() = slurp_file($node->logfile) =~ /terminating any other active server processes/g);
}

sub kill_process
{
	my ($pid, $what) = @_;
	my $offset = -s $node->logfile;

	like($pid, qr/^\d+$/, "$what runs") or return;
	kill 'KILL', $pid;
	$node->wait_for_log(qr/reinitializing.*database system is ready to accept connections/s, $offset);
	return wait_dispatcher($node, 'postgres', "the server is back after $what was killed", $pid);
}

# A running job of each kind, and the pid of the tool.
sub two_running
{
	my ($gate) = @_;
	my $sql = enqueue('waiter', qq({"gate": "$gate"}));
	my $tool = enqueue('tool', qq({"gate": "$gate"}));

	running($sql);
	running($tool);
	return ($sql, $tool, wait_for_text("$dir/runs", qr/^$gate (\d+)$/m));
}

sub both_complete
{
	my ($gate, $sql, $sql_fate, $tool, $tool_fate) = @_;

	open_gate($gate);
	append_to_file("$dir/$gate", '');
	wait_status($node, 'postgres', $_, 'completed', "$gate: a job in flight completes") foreach $sql, $tool;
	is(fate($sql), $sql_fate, "$gate: what that cost the SQL job");
	is(fate($tool), $tool_fate, "$gate: what that cost the tool");
	is($node->safe_psql('postgres', "SELECT count(*) FROM done WHERE job = '$sql'"), '1', "!$gate: its effects are there once");
	return;
}

# ---------- terminated ----------

my ($sql, $tool) = two_running('dispatcher');
my $pid = dispatcher($node, 'postgres');
my $worker = worker_pid($sql);
terminate($pid);
wait_dispatcher($node, 'postgres', 'a terminated dispatcher is replaced', $pid);
is(worker_pid($sql), $worker, 'its workers go on');
is($node->safe_psql('postgres', "SELECT count(*) FROM jobq.jobs WHERE status = 'running'"), '2', 'with their jobs');
both_complete('dispatcher', $sql, 'completed 1', $tool, 'completed 1');

($sql, $tool) = two_running('launcher');
($pid) = jobq_pids($node, 'launcher');
terminate($pid);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq launcher' AND pid <> $pid",
	'a terminated launcher is replaced');
both_complete('launcher', $sql, 'completed 1', $tool, 'completed 1');

($sql, $tool) = two_running('sql_worker');
$pid = worker_pid($sql);
terminate($pid);
running($sql, "sql/$pid");
both_complete('sql_worker', $sql, 'completed 1', $tool, 'completed 1');
is(failures($sql), 'none', 'a SQL worker that is terminated costs its job nothing the first time');

($pid) = jobq_pids($node, 'sql worker');
terminate($pid);
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), '0', 'an idle worker is terminated');
($sql, $tool) = two_running('idle_worker');
both_complete('idle_worker', $sql, 'completed 1', $tool, 'completed 1');

my $tool_pid;
($sql, $tool, $tool_pid) = two_running('exec_worker');
($pid) = jobq_pids($node, 'exec worker');
terminate($pid);
wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq exec worker' AND pid <> $pid",
	'a terminated exec worker is replaced');
ok(wait_for_text("$dir/runs", qr/^exec_worker $tool_pid\nexec_worker \d+\n\z/m), 'its tool has started again');
ok(!kill(0, $tool_pid), 'and the one before is gone');
like(fate($tool), qr/^running/, 'it runs');
append_to_file("$dir/exec_worker", '');
open_gate('exec_worker');
wait_status($node, 'postgres', $_, 'completed', 'exec_worker: a job in flight completes') foreach $sql, $tool;
is(fate($sql), 'completed 1', 'the SQL job was not charged');
is(fate($tool), 'completed 1', 'nor was the tool');
is($node->safe_psql('postgres', "SELECT runs FROM jobq.jobs WHERE id = '$tool'"), '2', 'which has started twice');

# The maintenance process makes a partition; an event trigger holds it while it does.
my $maintenance = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'jobq maintenance' AND wait_event = 'PgSleep'";
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION hold_maintenance() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_type = 'jobq maintenance')
    AND NOT EXISTS (SELECT FROM public.gate WHERE name = 'maintenance') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
CREATE EVENT TRIGGER hold_maintenance ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION hold_maintenance();
SELECT jobq.create_job_type('long_kept', 'waiter(jsonb)', keep_completed => '3 years');
END
open_gate('done');
my $kept = $node->safe_psql('postgres',
	q{SELECT jobq.enqueue('long_kept', '{"gate": "done"}')});
wait_for_sql($node, $maintenance, 'maintenance makes a partition');
($pid) = jobq_pids($node, 'maintenance');
terminate($pid);
wait_for_sql($node, "$maintenance AND pid <> $pid", 'when it is terminated, another one does');
wait_status($node, 'postgres', $kept, 'completed', 'the job whose partition is missing completes');

# ---------- a handler that ends its own process ----------

my $suicide = enqueue('suicide', '{}');
wait_status($node, 'postgres', $suicide, 'error', 'a handler that terminates its own process ends as a dead letter');
is(fate($suicide), 'error 3 57P01', 'after its attempts');
is(failures($suicide), '57P01 57P01 57P01', 'each of them charged');
is($node->safe_psql('postgres', "SELECT runs FROM jobq.jobs WHERE id = '$suicide'"), '4', 'but the first of four starts');

# ---------- all of them, repeatedly ----------

$node->safe_psql('postgres', <<'END');
CREATE FUNCTION short(p jsonb) RETURNS void LANGUAGE sql AS 'INSERT INTO public.done SELECT id FROM jobq.current_job()';
SELECT jobq.create_job_type('short', 'short(jsonb)', max_attempts => 100, backoff => 'fixed', backoff_base => '10ms');
SELECT jobq.create_job_type('true', command => ARRAY['/bin/true'], max_attempts => 100, options => '{"output": "none"}');
TRUNCATE done;
END
foreach (1 .. 15)
{
	$node->safe_psql('postgres', <<'END');
SELECT count(jobq.enqueue('short')), count(jobq.enqueue('true', delay => i * interval '1ms')) FROM generate_series(1, 100) i;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'jobq %' AND backend_type <> 'jobq maintenance';
END
}
wait_for_sql($node, q{SELECT count(*) = 3000 FROM jobq.jobs WHERE job_type IN ('short', 'true') AND status = 'completed'},
	'all jobs complete while every process is terminated repeatedly');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT job) FROM done'), '1500|1500', '!with their effects once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM jobq.jobs WHERE job_type = 'true' AND attempts > 1}), '0',
	'no tool was charged for it');

# the launcher does not count a working dispatcher as a failing one
my @delays;
foreach my $round (1 .. 8)
{
	$pid = dispatcher($node, 'postgres') // 0;
	my $asked = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	terminate($pid);
	wait_dispatcher($node, 'postgres', "dispatcher terminated, round $round", $pid);
	wait_for_sql($node, q{SELECT jobq.health()->'checks'->'dispatcher'->>'status' = 'healthy'}, 'the next one works');
	push @delays, $node->safe_psql('postgres',
		"SELECT round(extract(epoch FROM backend_start - '$asked'), 1) FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'");
}
cmp_ok(min(@delays[ -2, -1 ]), '<', 30, "each time it is back within some seconds, no delay doubles up to a minute: @delays");

is(restarts(), 0, 'none of this has restarted the server');

# ---------- killed ----------

($sql, $tool) = two_running('kill_dispatcher');
kill_process(dispatcher($node, 'postgres'), 'the dispatcher');
running($sql);
both_complete('kill_dispatcher', $sql, 'completed 1', $tool, 'completed 2');

($sql, $tool) = two_running('kill_launcher');
kill_process((jobq_pids($node, 'launcher'))[0], 'the launcher');
both_complete('kill_launcher', $sql, 'completed 1', $tool, 'completed 2');

($sql, $tool) = two_running('kill_sql_worker');
kill_process(worker_pid($sql), 'a SQL worker');
both_complete('kill_sql_worker', $sql, 'completed 2', $tool, 'completed 2');
is(failures($sql), 'server_crash', 'a SQL worker that is killed: server_crash');

($sql, $tool) = two_running('kill_exec_worker');
kill_process((jobq_pids($node, 'exec worker'))[0], 'the exec worker');
both_complete('kill_exec_worker', $sql, 'completed 1', $tool, 'completed 2');
is(failures($tool), 'server_crash', 'so for its tool');

# it still waits in the event trigger, or does so again
wait_for_sql($node, $maintenance, 'maintenance still waits');
kill_process((jobq_pids($node, 'maintenance'))[0], 'maintenance');
open_gate('maintenance');
is(fate($kept), 'completed 1', 'the job has had one attempt');
wait_for_sql($node, q{SELECT EXISTS (SELECT FROM jobq_internal._partitions('jobq.history') WHERE now() + interval '3 years' >= low AND now() + interval '3 years' < high)},
	'the next one makes the partition');
is(restarts(), 5, 'the server has restarted as often as we killed something');

# ---------- exit codes ----------

my $log = slurp_file($node->logfile);
unlike($log, qr/background worker "jobq[^"]*" \(PID \d+\) exited with exit code ([2-9]|\d\d)/, 'ours leave with 0 or 1');
is(scalar(() = $log =~ /background worker "jobq[^"]*" \(PID \d+\) was terminated by signal/g), 5, 'only by a signal of ours');
unlike($log, qr/PANIC|TRAP:/, 'no panic');

$node->stop;
done_testing();
