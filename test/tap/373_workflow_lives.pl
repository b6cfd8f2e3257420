# Random graphs of jobs against a model: every job ends as the rules want, and no job runs before
# the parents that it needs.  The jobs are SQL jobs, tools and pulled jobs, some with keys; sessions
# claim, replace, cancel, retry and purge meanwhile, also jobs that run.
#
# JOBQ_SEED repeats a run, JOBQ_GRAPHS is the number of graphs: 12, in full 100.

use strict;
use warnings;

use ExecTest ();
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $seed = seed();
my $graphs = $ENV{JOBQ_GRAPHS} // ($ENV{JOBQ_FULL} ? 100 : 12);

my $node = jobq_server('dags', 'jobq.max_sql_workers = 4', 'fsync = off', "jobq.sweep_interval = '1h'");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE TABLE ran (id uuid, seq int GENERATED ALWAYS AS IDENTITY, seen jsonb);
CREATE TABLE node (graph int, n int, id uuid, kind text, ends text, rule text, parents int[], PRIMARY KEY (graph, n));
CREATE INDEX ON node (id);
-- Notes the states of the parents that it sees, and ends as the payload wants.
CREATE FUNCTION work(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  job jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO public.ran (id, seen) SELECT job.id, coalesce(jsonb_agg(j.status), '[]') FROM jobq.jobs j WHERE j.id = ANY (job.after);
  IF p->>'ends' = 'stopped' THEN
    PERFORM pg_sleep(3600);
  ELSIF p->>'ends' = 'skipped' THEN
    PERFORM jobq.skip('no');
  ELSIF p->>'ends' = 'dead' OR (p->>'ends' = 'retried' AND job.runs < 2) THEN
    RAISE 'dead';
  END IF;
END $$;
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1, options => '{"alert": false}');
SELECT jobq.create_job_type('stays', 'work(jsonb)', max_attempts => 1), jobq.pause_job_type('stays');
SELECT jobq.create_job_type('pull', max_attempts => 1, options => '{"alert": false}');

-- Cancels the jobs of a graph that run until then, and ends those that wait for a client.
CREATE FUNCTION end_running(of int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  c record;
BEGIN
  PERFORM jobq.cancel_job(j.id) FROM public.node n JOIN jobq.jobs j USING (id) WHERE n.graph = of AND n.ends = 'stopped' AND j.status = 'running';
  FOR c IN SELECT l.id, l.lease_token, n.ends, j.runs, j.after  -- runs: before the claim
      FROM jobq.claim('{pull}', 5) l JOIN public.node n USING (id) JOIN jobq.jobs j USING (id) LOOP
    INSERT INTO public.ran (id, seen) SELECT c.id, coalesce(jsonb_agg(j.status), '[]') FROM jobq.jobs j WHERE j.id = ANY (c.after);
    CASE
      WHEN c.ends = 'skipped' THEN PERFORM jobq.skip_job(c.id, c.lease_token);
      WHEN c.ends = 'dead' OR (c.ends = 'retried' AND c.runs < 1) THEN PERFORM jobq.fail(c.id, c.lease_token, 'dead');
      WHEN c.ends = 'stopped' THEN PERFORM jobq.cancel_job(c.id), jobq.fail(c.id, c.lease_token, 'stopped');
      ELSE PERFORM jobq.complete(c.id, c.lease_token);
    END CASE;
  END LOOP;
  RETURN true;
END $$;

-- Gives a job that waits for others other parents, another rule and another end; false: none waits,
-- or a parent has been purged.
CREATE FUNCTION replace_waiting(of int, of_n int, new_parents int[], new_rule text, new_ends text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  job record;
BEGIN
  SELECT q.id, q.unique_key, n.kind INTO job FROM jobq.queue q JOIN public.node n ON n.id = q.id AND n.graph = of AND n.n = of_n
   WHERE q.status = 'blocked' AND q.unique_key IS NOT NULL FOR UPDATE OF q;
  IF NOT FOUND OR EXISTS (SELECT FROM public.node p WHERE p.graph = of AND p.n = ANY (new_parents) AND NOT EXISTS (SELECT FROM jobq.jobs j WHERE j.id = p.id)) THEN
    RETURN false;
  END IF;
  IF job.id <> jobq.enqueue(job.kind, jsonb_build_object('ends', new_ends), unique_key => job.unique_key, on_conflict => 'replace',
       after => ARRAY(SELECT p.id FROM public.node p WHERE p.graph = of AND p.n = ANY (new_parents)), after_rule => new_rule) THEN
    RAISE 'another job replaces %', job.id;
  END IF;
  UPDATE public.node SET parents = new_parents, rule = new_rule, ends = new_ends WHERE graph = of AND n = of_n;
  RETURN true;
END $$;
END

my $notes = ExecTest::tools() . '/notes';
mkdir $notes;
my $tool = ExecTest::tool('act', <<"END");
#!/bin/sh
echo "\$JOBQ_JOB_ID" >>$notes/ran
case \$1 in
  skipped) exit 9 ;;
  dead) exit 1 ;;
  retried) mkdir $notes/\$JOBQ_JOB_ID 2>/dev/null && exit 1; exit 0 ;;
  stopped) exec sleep 3600 ;;
esac
END
one(qq{SELECT jobq.create_job_type('tool', command => ARRAY['$tool', '{ends}'], max_attempts => 1, options => '{"output": "none", "skip_exit_codes": [9], "alert": false}')});
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub one { return $node->safe_psql('postgres', $_[0]); }
sub pick { return $_[ int(rand(@_)) ]; }

# Returns how a job ends that runs; as_cancelled: for the jobs behind it.
sub random_end { return pick(qw(completed completed completed completed skipped dead retried), @_); }
sub as_cancelled { return $_[0] eq 'stopped' ? 'cancelled' : $_[0]; }

# Returns numbers of jobs before the n-th one, each once.
sub random_parents
{
	my ($n) = @_;
	my %parents = map { $_ => 1 } $n ? map { int(rand($n)) } 1 .. pick(0, 1, 1, 2, 3, 6) : ();

	return [ sort { $a <=> $b } keys %parents ];
}

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

	my $ends = as_cancelled($job->{ends});

	return $ends if !@parents || $rule eq 'done';
	return $cancelled + $purged ? 'cancelled' : $good ? $ends : 'skipped' if $rule eq 'success';
	return $completed ? $ends : 'skipped' if $rule eq 'any';
	return $failed ? $ends : 'skipped';
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
		my $job = { kind => pick(qw(work work tool pull)), ends => random_end(qw(cancelled stopped)),
			rule => pick(qw(success success done any failed)), parents => random_parents($n) };
		my $more = (rand() < 0.3 ? sprintf(", concurrency_key => 'c%d'", int(rand(3))) : '') . (rand() < 0.4 ? ", unique_key => 'g${graph}n$n'" : '');

		$job->{kind} = 'stays' if $job->{ends} eq 'cancelled';
		push @jobs, $job;
		$sql .= sprintf "INSERT INTO node SELECT %d, %d, jobq.enqueue('%s', '{\"ends\": \"%s\"}', after => (SELECT array_agg(id) FROM node WHERE graph = %d AND n = ANY (%s)), after_rule => '%s'%s), '%s', '%s', '%s', %s;\n",
		  $graph, $n, $job->{kind}, $job->{ends}, $graph, sql_array(@{ $job->{parents} }), $job->{rule}, $more,
		  $job->{kind}, $job->{ends}, $job->{rule}, sql_array(@{ $job->{parents} });
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

# Gives some jobs that wait other parents.
sub replace_some
{
	my ($graph, @jobs) = @_;

	foreach my $n (grep { rand() < 0.1 } 1 .. $#jobs)
	{
		my $job = $jobs[$n];
		my %other = (parents => random_parents($n), rule => pick(qw(success done any failed)), ends => $job->{kind} eq 'stays' ? 'cancelled' : random_end('stopped'));

		next if one(sprintf "SELECT replace_waiting(%d, %d, %s, '%s', '%s')", $graph, $n, sql_array(@{ $other{parents} }), $other{rule}, $other{ends}) ne 't';
		@$job{ keys %other } = values %other;
		# a retried one no more counts as dead
		$job->{completed} = { map { $_ => 1 } split /\n/, one("SELECT p.n FROM node n JOIN node p ON p.graph = $graph AND p.n = ANY (n.parents) JOIN jobq.history h ON h.id = p.id
		  WHERE n.graph = $graph AND n.n = $n AND h.status = 'completed'") };
	}
	return;
}

# Waits until nothing of the graph can go on by itself, or when a client claims and sessions cancel
# what runs until then.
sub settle
{
	my ($graph) = @_;

	return $node->poll_query_until('postgres', qq{
SELECT end_running($graph) AND NOT EXISTS (SELECT FROM node n JOIN jobq.queue q USING (id) WHERE n.graph = $graph AND (q.status <> 'blocked' AND n.ends <> 'cancelled'))
   AND NOT EXISTS (SELECT FROM jobq.dependencies d JOIN node n ON n.id = d.child_id AND n.graph = $graph LEFT JOIN jobq.queue p ON p.id = d.parent_id
                     LEFT JOIN jobq.dead_letters l ON l.id = d.parent_id WHERE p.id IS NULL AND (l.id IS NULL OR n.rule <> 'success' OR EXISTS (SELECT FROM jobq.queue c WHERE c.id = n.id AND c.status <> 'blocked')))});
}

foreach my $graph (1 .. $graphs)
{
	my @jobs = make_graph($graph);
	my (@model, @wrong);

	replace_some($graph, @jobs);
	# what can go on by itself does, before what a session does; in the end the dead letters go
	for (1 .. 200)
	{
		ok(0, "graph $graph settles"), last if !settle($graph);
		replace_some($graph, @jobs) if rand() < 0.3;
		next if act($graph);
		last if one("SELECT count(*) FROM node n JOIN jobq.queue q USING (id) WHERE n.graph = $graph") eq '0';
		one(qq{DELETE FROM jobq.dead_letters WHERE id = (SELECT n.id FROM node n JOIN jobq.dead_letters d USING (id) JOIN jobq.dependencies e ON e.parent_id = n.id
		  WHERE n.graph = $graph AND n.ends = 'dead' ORDER BY n.n LIMIT 1)});
	}
	foreach my $n (0 .. $#jobs)
	{
		my $ends = status_in_model($jobs[$n], map { $jobs[$n]{completed}{$_} ? 'completed' : $model[$_] } @{ $jobs[$n]{parents} });
		my $status = one("SELECT coalesce(min(j.status::text), 'dead') FROM node n LEFT JOIN jobq.jobs j USING (id) WHERE graph = $graph AND n = $n");
		my $wanted = $ends eq 'retried' ? 'completed' : $ends;

		$model[$n] = $ends;
		$status = 'dead' if $status eq 'error';
		push @wrong, "$n ($jobs[$n]{kind}, $jobs[$n]{rule} of @{$jobs[$n]{parents}}, $jobs[$n]{ends}): $status, not $wanted" if $status ne $wanted;
	}
	is(join("\n", @wrong), '', "graph $graph of " . @jobs . ' jobs');
	is(one(qq{SELECT count(*) FROM ran r JOIN node n USING (id) WHERE n.graph = $graph AND n.rule IN ('success', 'done') AND r.seen::text ~ 'pending|running|blocked|retry'
	  AND NOT EXISTS (SELECT FROM jobq.jobs j JOIN node p ON p.id = j.id AND p.graph = $graph AND p.n = ANY (n.parents) AND j.runs > 1)}), '0',
		'no job runs before its parents');
	is(one(qq{SELECT string_agg(concat_ws(' ', x.n, kind, ends), ', ') FROM (SELECT n.n, n.kind, n.ends FROM ran r JOIN node n USING (id) WHERE n.graph = $graph
  GROUP BY n.n, n.kind, n.ends HAVING count(*) > CASE n.ends WHEN 'retried' THEN 2 ELSE 1 END) x}), '',
		'!none runs twice');
}
my %times;
$times{$_}++ foreach split /\n/, slurp_file("$notes/ran");
cmp_ok(scalar keys %times, '>', $graphs, 'tools have run');
is(join(' ', grep { $times{$_} > 2 || ($times{$_} > 1 && one("SELECT ends FROM node WHERE id = '$_'") ne 'retried') } sort keys %times), '', '!none twice');
one('DELETE FROM jobq.dead_letters');    # those that a job has waited for which was cancelled
wait_for_sql($node, 'SELECT count(*) = 0 FROM jobq.dependencies', 'no edge is left');
$node->stop;
done_testing();
