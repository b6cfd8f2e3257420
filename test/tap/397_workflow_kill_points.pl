# kill -9 of the conductor, the dispatcher, a worker and the server after the n-th commit of the
# conductor or of the SQL workers, before what it has changed is published: in a fan of 1,000 jobs
# with a join, and in a run with a map over 1,000 elements and a join.  Each job's effect is there
# once, and all end.  This test crashes its server.
#
# Some points by chance; in full all of them.  JOBQ_SEED repeats a test.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $width = 1000;
my $seed = seed();
my $library = PostgreSQL::Test::Utils::tempdir() . '/kill_at.so';
system_or_bail('sh', '-c', "gcc -shared -fPIC -O2 -I\$($ENV{JOBQ_PG_CONFIG} --includedir-server) -o $library $FindBin::Bin/../lib/kill_at.c");

my $node = jobq_server('points', 'jobq.max_sql_workers = 2', 'fsync = off', 'restart_after_crash = on', 'log_min_messages = warning', 'log_statement = none');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'jobq, $library'\n");
my $point = $node->data_dir . '/kill_at';
append_to_file($point, pack 'Z32 L l', '', 0, 0);
$node->start;
$node->safe_psql('postgres', <<"END");
CREATE EXTENSION jobq;
CREATE TABLE ran (run int, what int);
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE sql AS \$\$ INSERT INTO public.ran VALUES ((p->>'run')::int, (p->>'what')::int) \$\$;
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1000, backoff_base => '10ms', backoff_max => '10ms', options => '{"max_crashes": 100}');
SELECT jobq.create_workflow('run', '[{"key": "first", "job_type": "work", "payload": {"run": {"\$": "\$.input.run"}, "what": 0}},
  {"key": "m", "job_type": "work", "after": ["first"], "map": "\$.input.list", "payload": {"run": {"\$": "\$.input.run"}, "what": {"\$": "\$.item"}}},
  {"key": "last", "job_type": "work", "after": ["m"], "payload": {"run": {"\$": "\$.input.run"}, "what": ${\($width + 1)}}}]');
CREATE FUNCTION run(run int) RETURNS void LANGUAGE sql AS \$\$
  SELECT jobq.enqueue('run', jsonb_build_object('run', run, 'list', (SELECT jsonb_agg(i) FROM generate_series(1, $width) i)), unique_key => run::text, unique_for => '1 day') \$\$;
-- One job, then many that wait for it, then one that waits for these.
CREATE FUNCTION fan(run int) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
  IF NOT EXISTS (SELECT FROM jobq.jobs j WHERE (j.payload->>'run')::int = run) THEN
    PERFORM FROM jobq.enqueue_jobs((
      SELECT jsonb_agg(jsonb_build_object('job_type', 'work', 'payload', jsonb_build_object('run', run, 'what', n), 'after',
        CASE n WHEN 0 THEN '[]' WHEN $width + 1 THEN (SELECT jsonb_agg(a) FROM generate_series(2, $width + 1) a) ELSE '[1]' END) ORDER BY n)
        FROM generate_series(0, $width + 1) n));
  END IF;
END \$\$;
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub is_alive { my ($pid) = @_; return defined $pid && kill(0, $pid); }

# Runs a statement as soon as the server takes it; starts a server that was killed, when its
# processes have ended.
sub patient
{
	my ($sql) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		if (!is_alive($node->{_pid}))
		{
			$node->{_pid} = undef;
			$node->start(fail_ok => 1);
		}
		my ($rc, $out) = is_alive($node->{_pid}) ? $node->psql('postgres', $sql) : (1);

		return $out if $rc == 0;
		select undef, undef, undef, 0.1;
	}
	die "no answer to $sql";
}

sub write_point
{
	open my $file, '+<', $point or die "$point: $!";
	syswrite $file, pack 'Z32 L l', @_;
	close $file;
	return;
}

my $run = 0;
my %fired;  # of each victim

# Kills at one point; returns whether there was so late a commit.
sub kill_at
{
	my ($what, $kind, $victim, $n) = @_;
	my $dispatcher = '';

	for (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$dispatcher = patient(q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher'});
		last if $dispatcher ne '';
		select undef, undef, undef, 0.05;
	}
	$run++;
	write_point("jobq $kind", $n, $victim eq 'itself' ? 0 : $victim eq 'server' ? $node->{_pid} : $dispatcher);
	patient("SELECT $what($run)");
	for (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if patient('SELECT NOT EXISTS (SELECT FROM jobq.queue)') eq 't';
		select undef, undef, undef, 0.05;
	}
	# each kill ends all processes of the server
	my $killed = (unpack 'Z32 L l', slurp_file($point))[1] == 0 && !is_alive($dispatcher);

	write_point('', 0, 0);
	is(patient("SELECT count(*), count(DISTINCT what) FROM ran WHERE run = $run"), join('|', ($width + 2) x 2),
		"$what: commit $n of the $kind" . ($killed ? " kills $victim" : ', there is none') . ': each job has run once')
	  or diag(patient("SELECT string_agg(format('%s %s', status, n), ', ') FROM (SELECT status, count(*) AS n FROM jobq.jobs WHERE (payload->>'run')::int = $run GROUP BY 1) s"));
	$fired{$victim} += $killed;
	return $killed;
}

foreach my $what ('fan', 'run')
{
	foreach my $kind ('conductor', 'sql worker')
	{
		foreach my $victim ('itself', 'dispatcher', 'server')
		{
			my $all = $ENV{JOBQ_FULL};

			next if !$all && rand() < 0.5;
			for (my $n = $all ? 1 : 1 + int(rand(5)); kill_at($what, $kind, $victim, $n) && $all; $n++) { }
		}
	}
}
foreach my $victim ('itself', 'dispatcher', 'server')
{
	for (1 .. 5)
	{
		last if $fired{$victim};
		kill_at('run', 'conductor', $victim, 1);  # its start, which is always there
	}
	cmp_ok($fired{$victim}, '>', 0, "$fired{$victim} kills of $victim");
}
is(patient('SELECT count(*) FROM jobq.dependencies'), '0', 'no edge is left');
is(patient(q{SELECT count(*) FROM jobq.runs WHERE phase <> 'ended'}), '0', 'all runs have ended');
$node->stop;
done_testing();
