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
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.ran VALUES ((p->>'run')::int, (p->>'what')::int) $$;
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

my @victims = ('conductor', 'dispatcher', 'sql worker', 'server');
foreach my $run (1 .. $rounds)
{
	my $victim = $victims[ $run % 4 ];
	my $after = int(rand(290));

	patient("SELECT fan($run) WHERE NOT EXISTS (SELECT FROM jobq.jobs WHERE payload->>'run' = '$run')");
	ok($node->poll_query_until('postgres', "SELECT count(*) >= $after FROM ran WHERE run = $run"), "run $run: $after jobs have run");
	if ($victim eq 'server')
	{
		$node->stop('immediate');
		$node->start;
	}
	else
	{
		my ($pid) = jobq_pids($node, $victim);
		kill 'KILL', $pid if $pid;
	}
	patient("SELECT 1");
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if patient("SELECT count(*) = 0 FROM jobq.queue") eq 't';
		select undef, undef, undef, 0.1;
	}
	is(patient("SELECT count(*), count(DISTINCT what) FROM ran WHERE run = $run"), '302|302', "!each job has run once ($victim)")
	  or diag(patient("SELECT status, count(*) FROM jobq.jobs WHERE payload->>'run' = '$run' GROUP BY 1"));
}
is(patient('SELECT count(*) FROM jobq.dependencies'), '0', 'no edge is left');

# SIGTERM: the next process goes on
foreach my $victim ('conductor', 'dispatcher')
{
	patient('TRUNCATE ran');
	patient('SELECT fan(100)');
	foreach (1 .. 5)
	{
		my ($pid) = jobq_pids($node, $victim);
		patient("SELECT pg_terminate_backend($pid)") if $pid;
		select undef, undef, undef, 0.05;
	}
	wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.queue', "the $victim was terminated several times: all have ended");
	is(patient('SELECT count(*), count(DISTINCT what) FROM ran'), '302|302', '!each has run once');
}

$node->stop;
done_testing();
