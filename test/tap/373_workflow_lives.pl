# Random graphs of plain jobs against a model: every job ends as the rules want, and no job runs
# before the parents that it needs.  Sessions cancel, retry and purge meanwhile.
#
# JOBQ_SEED repeats a run, JOBQ_GRAPHS is the number of graphs.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $seed = seed();
my $graphs = $ENV{JOBQ_GRAPHS} // 12;

my $node = jobq_server('dags', 'jobq.max_sql_workers = 4', 'fsync = off', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (id uuid, seq int GENERATED ALWAYS AS IDENTITY, seen jsonb);
CREATE TABLE node (graph int, n int, id uuid, ends text, rule text, parents int[], PRIMARY KEY (graph, n));
-- Notes the states of the parents that it sees, and ends as the payload wants.
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  job jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO public.ran (id, seen) SELECT job.id, coalesce(jsonb_agg(j.status), '[]') FROM jobq.jobs j WHERE j.id = ANY (job.after);
  IF p->>'ends' = 'skipped' THEN
    PERFORM jobq.skip('no');
  ELSIF p->>'ends' = 'dead' OR (p->>'ends' = 'retried' AND job.runs < 2) THEN
    RAISE 'dead';
  END IF;
END $$;
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1, options => '{"alert": false}');
SELECT jobq.create_job_type('stays', 'work(jsonb)', max_attempts => 1), jobq.pause_job_type('stays');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }
sub pick { return $_[ int(rand(@_)) ]; }

# The status that a job gets in the end; ends: of a job that runs.  Dead letters are purged when
# nothing else happens; retried ones complete.
sub status_in_model
{
	my ($job, @parents) = @_;
	my $completed = grep { $_ eq 'completed' } @parents;
	my $cancelled = grep { $_ eq 'cancelled' } @parents;
	my $died = grep { /^(?:dead|retried)$/ } @parents;
	my $failed = $cancelled + $died;
	my $purged = grep { $_ eq 'dead' } @parents;
	my $good = $completed + grep { $_ eq 'retried' } @parents;
	my $rule = $job->{rule};

	return $job->{ends} if !@parents || $rule eq 'done';
	return $cancelled + $purged ? 'cancelled' : $good ? $job->{ends} : 'skipped' if $rule eq 'success';
	return $completed ? $job->{ends} : 'skipped' if $rule eq 'any';
	return $failed ? $job->{ends} : 'skipped';
}

sub sql_array { return "'{" . join(',', @_) . "}'"; }

# Makes a graph: some parents are in the same transaction, others have ended or run meanwhile.
sub make_graph
{
	my ($graph) = @_;
	my $size = 20 + int(rand(40));
	my @jobs;
	my $sql = '';

	foreach my $n (0 .. $size - 1)
	{
		my %parents = map { $_ => 1 } $n ? map { int(rand($n)) } 1 .. pick(0, 1, 1, 2, 3, 6) : ();
		my $job = { ends => pick(qw(completed completed completed completed skipped dead retried cancelled)),
			rule => pick(qw(success success done any failed)), parents => [ sort { $a <=> $b } keys %parents ] };

		push @jobs, $job;
		$sql .= sprintf "INSERT INTO node SELECT %d, %d, jobq.enqueue('%s', '{\"ends\": \"%s\"}', after => (SELECT array_agg(id) FROM node WHERE graph = %d AND n = ANY (%s)), after_rule => '%s'), '%s', '%s', %s;\n",
		  $graph, $n, $job->{ends} eq 'cancelled' ? 'stays' : 'work', $job->{ends}, $graph, sql_array(@{ $job->{parents} }), $job->{rule},
		  $job->{ends}, $job->{rule}, sql_array(@{ $job->{parents} });
		next if rand() < 0.7;
		one("BEGIN; $sql COMMIT");
		$sql = '';
	}
	one("BEGIN; $sql COMMIT");
	return @jobs;
}

# Does what a session does with jobs that do not end by themselves; returns whether there were any.
sub act
{
	my ($graph) = @_;

	return one(qq{
SELECT coalesce(sum(CASE n.ends WHEN 'retried' THEN jobq.retry_job(n.id)::int WHEN 'cancelled' THEN jobq.cancel_job(n.id)::int END), 0)
  FROM node n JOIN jobq.jobs j USING (id) WHERE n.graph = $graph AND ((n.ends = 'retried' AND j.status = 'error') OR (n.ends = 'cancelled' AND j.status = 'pending'))});
}

# Waits until nothing of the graph can go on by itself.
sub settle
{
	my ($graph) = @_;

	return $node->poll_query_until('postgres', qq{
SELECT NOT EXISTS (SELECT FROM node n JOIN jobq.queue q USING (id) WHERE n.graph = $graph AND (q.status <> 'blocked' AND n.ends <> 'cancelled'))
   AND NOT EXISTS (SELECT FROM jobq.dependencies d JOIN node n ON n.id = d.child_id AND n.graph = $graph LEFT JOIN jobq.queue p ON p.id = d.parent_id
                     LEFT JOIN jobq.dead_letters l ON l.id = d.parent_id WHERE p.id IS NULL AND (l.id IS NULL OR n.rule <> 'success' OR EXISTS (SELECT FROM jobq.queue c WHERE c.id = n.id AND c.status <> 'blocked')))});
}

foreach my $graph (1 .. $graphs)
{
	my @jobs = make_graph($graph);
	my (@model, @wrong);

	# what can go on by itself does, before what a session does; in the end the dead letters go
	for (1 .. 200)
	{
		ok(0, "graph $graph settles"), last if !settle($graph);
		next if act($graph);
		last if one("SELECT count(*) FROM node n JOIN jobq.queue q USING (id) WHERE n.graph = $graph") eq '0';
		one(qq{DELETE FROM jobq.dead_letters WHERE id = (SELECT n.id FROM node n JOIN jobq.dead_letters d USING (id) JOIN jobq.dependencies e ON e.parent_id = n.id
		  WHERE n.graph = $graph AND n.ends = 'dead' ORDER BY n.n LIMIT 1)});
	}
	foreach my $n (0 .. $#jobs)
	{
		my $ends = status_in_model($jobs[$n], map { $model[$_] } @{ $jobs[$n]{parents} });
		my $status = one("SELECT coalesce(min(j.status::text), 'dead') FROM node n LEFT JOIN jobq.jobs j USING (id) WHERE graph = $graph AND n = $n");
		my $wanted = $ends eq 'retried' ? 'completed' : $ends;

		$model[$n] = $ends;
		$status = 'dead' if $status eq 'error';
		push @wrong, "$n ($jobs[$n]{rule} of @{$jobs[$n]{parents}}, $jobs[$n]{ends}): $status, not $wanted" if $status ne $wanted;
	}
	is(join("\n", @wrong), '', "graph $graph of " . @jobs . ' jobs');
	is(one(qq{SELECT count(*) FROM ran r JOIN node n USING (id) WHERE n.graph = $graph AND n.rule IN ('success', 'done') AND r.seen::text ~ 'pending|running|blocked|retry'
	  AND NOT EXISTS (SELECT FROM jobq.jobs j JOIN node p ON p.id = j.id AND p.graph = $graph AND p.n = ANY (n.parents) AND j.runs > 1)}), '0',
		'no job runs before its parents');
	is(one(qq{SELECT count(*) FROM (SELECT FROM ran r JOIN node n USING (id) WHERE n.graph = $graph GROUP BY n.id, n.ends HAVING count(*) > CASE n.ends WHEN 'retried' THEN 2 ELSE 1 END) x}), '0',
		'none runs twice');
}
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.dependencies', 'no edge is left');
$node->stop;
done_testing();
