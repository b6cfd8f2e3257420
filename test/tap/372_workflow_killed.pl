# kill -9 of the conductor, the dispatcher, workers and the server between the commits of a fan-out
# and fan-in: each job's effect is there once, and the join's, too.
#
# JOBQ_SEED repeats a test, JOBQ_ROUNDS is the number of kills.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $rounds = $ENV{JOBQ_ROUNDS} // 8;
seed();
my $node = jobq_server('killed', 'jobq.max_sql_workers = 2', 'restart_after_crash = on');
$node->append_conf('postgresql.conf', "log_min_messages = warning\n");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (run int, what int);
CREATE TABLE gate (what int);
-- The job that the gate names waits as long as it does.
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (SELECT FROM public.gate g WHERE g.what = (p->>'what')::int) LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
  INSERT INTO public.ran VALUES ((p->>'run')::int, (p->>'what')::int);
END $$;
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1000, backoff_base => '10ms', backoff_max => '10ms', options => '{"max_crashes": 100}');
-- One job, then 300 that wait for it, then one that waits for these.
CREATE FUNCTION fan(run int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM jobq.enqueue_jobs((
    SELECT jsonb_agg(jsonb_build_object('job_type', 'work', 'payload', jsonb_build_object('run', run, 'what', n), 'after',
      CASE n WHEN 1 THEN '[]' WHEN 302 THEN (SELECT jsonb_agg(a) FROM generate_series(2, 301) a) ELSE '[1]' END) ORDER BY n)
      FROM generate_series(1, 302) n));
END $$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

# Runs a statement as soon as the server takes it.
sub patient
{
	my ($sql) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($rc, $out) = $node->psql('postgres', $sql);

		return $out if $rc == 0;
		select undef, undef, undef, 0.1;
	}
	die "no answer to $sql";
}

# Starts a fan, and waits until the worker whose pid it returns runs the job at the gate.
sub fan_to_gate
{
	my ($run, $what) = @_;
	my $pid = '';

	patient("INSERT INTO gate VALUES ($what)");
	patient("SELECT fan($run)");
	for (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		# between two of its naps it is not there
		$pid = patient("SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq sql worker' AND wait_event = 'PgSleep' LIMIT 1");
		last if $pid ne '';
	}
	isnt($pid, '', "run $run: job $what is in its handler");
	return $pid;
}

# Returns the pid of a process that is there, or will be.
sub pid_of
{
	my ($type) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'jobq $type'");
	return (jobq_pids($node, $type))[0];
}

# Opens the gate and waits for the end of all jobs.
sub finish
{
	patient('DELETE FROM gate');
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if patient("SELECT count(*) = 0 FROM jobq.queue") eq 't';
		select undef, undef, undef, 0.1;
	}
	return;
}

my @victims = ('conductor', 'dispatcher', 'sql worker', 'server');
my (%planned, %killed);
foreach my $run (1 .. $rounds)
{
	my $victim = $victims[ $run % 4 ];
	my $worker = fan_to_gate($run, 1 + int(rand(302)));
	my $since = patient('SELECT pg_postmaster_start_time()');
	my $dispatcher = pid_of('dispatcher');

	$planned{$victim}++;
	if ($victim eq 'server')
	{
		$node->stop('immediate');
		$node->start;
		$killed{$victim}++ if patient('SELECT pg_postmaster_start_time()') ne $since;
	}
	else
	{
		$killed{$victim}++ if kill 'KILL', $victim eq 'sql worker' ? $worker : pid_of($victim);
	}
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)	# all processes are new
	{
		my $now = patient(q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'});

		last if $now ne '' && $now ne $dispatcher;
		select undef, undef, undef, 0.1;
	}
	cmp_ok(patient('SELECT count(*) FROM jobq.queue'), '>', 0, "the kill of a $victim comes before the end of the fan");
	finish();
	is(patient("SELECT count(*), count(DISTINCT what) FROM ran WHERE run = $run"), '302|302', "!each job has run once ($victim)")
	  or diag(patient("SELECT status, count(*) FROM jobq.jobs WHERE payload->>'run' = '$run' GROUP BY 1"));
}
is_deeply(\%killed, \%planned, 'each kill was one');
is(patient('SELECT count(*) FROM jobq.dependencies'), '0', 'no edge is left');

# SIGTERM: the next process goes on
foreach my $victim ('conductor', 'dispatcher')
{
	my $terminated = 0;

	patient('TRUNCATE ran');
	fan_to_gate(100, 150);
	foreach (1 .. 5)
	{
		my $pid = pid_of($victim);

		$terminated++ if patient("SELECT pg_terminate_backend($pid)") eq 't';
		$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	}
	is($terminated, 5, "the $victim was terminated several times");
	finish();
	is(patient('SELECT count(*) FROM jobq.queue'), '0', 'all have ended');
	is(patient('SELECT count(*), count(DISTINCT what) FROM ran'), '302|302', '!each has run once');
}

$node->stop;
done_testing();
