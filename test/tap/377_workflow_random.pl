# Random workflows beside a model: rules, conditions, maps, workflows as steps, events, delays,
# added tasks, failures, pauses, cancels, deadlines, compensations, other versions, retries.
# JOBQ_SEED repeats a test, RUNS is the number of its runs: 100, in full 1,000.

use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $seed = seed();
my $runs = $ENV{RUNS} || ($ENV{JOBQ_FULL} ? 1000 : 100);
my $json = JSON::PP->new->canonical->allow_nonref;

my $node = run_server('random');
one(q{CREATE TABLE repaired (); CREATE FUNCTION rnd(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  j jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO public.ran (run, key, payload) VALUES (j.workflow_id, j.task_key, p);
  IF p ->> 'end' = 'fail' AND NOT EXISTS (SELECT FROM public.repaired) THEN RAISE 'told to'; END IF;
  IF p ->> 'end' = 'skip' THEN PERFORM jobq.skip('no'); END IF;
  PERFORM jobq.add_tasks(p -> 'adds') WHERE p ? 'adds';
  RETURN p -> 'result';
END $$; SELECT jobq.create_job_type('rnd', 'rnd(jsonb)', max_attempts => 1, options => '{"events": "all"}');
-- Gives a live run another version; false: it has ended, or an added task has begun.
CREATE FUNCTION other_version(run uuid, other int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN jobq.retry_workflow(run, version => other);
EXCEPTION WHEN object_not_in_prerequisite_state THEN
  RETURN false;
END $$});
workflow('sub', '[{"key": "x", "job_type": "rnd", "payload": {"end": {"$": "$.input.end"}, "result": {"$": "$.input.result"}}}]');

sub one_of { return $_[ rand @_ ]; }

# ---------- the model ----------

# Returns a random step; what the model needs is in its key "model", which is not the server's.
sub random_step
{
	my ($i, $kind) = @_;
	my @after = grep { rand() < ($i < 4 ? 0.5 : 0.3) } map { "s$_" } 0 .. $i - 1;
	my %step = (key => "s$i", %{ { after => \@after } });
	my %model = (condition => one_of(qw(none none none true true false), $kind eq 'go' ? 'bad' : 'none'), end => one_of(qw(ok ok ok ok skip), $kind eq 'late' ? 'ok' : 'fail'));

	delete $step{after} if !@after;
	$step{rule} = @after ? one_of(qw(success success success done any failed)) : one_of(qw(success done)) if rand() < 0.8;
	$step{if} = { true => '$.input.t == true', false => '$.input.t == false', bad => '$.input.lists' }->{ $model{condition} } if $model{condition} ne 'none';
	$model{what} = one_of(qw(job job job job map sub join event delay adds));
	$step{compensate} = { job_type => 'rnd', payload => { undoes => $i } } if $kind eq 'undo' && rand() < 0.7;
	if ($model{what} eq 'job')
	{
		@step{ 'job_type', 'payload' } = ('rnd', { end => $model{end}, result => $i });
	}
	elsif ($model{what} eq 'map')
	{
		$model{ends} = [ map { one_of(qw(ok ok ok skip), $kind =~ /^(?:stop|late)$/ ? 'ok' : 'fail') } 1 .. rand 5 ];
		@step{ 'job_type', 'map', 'payload' } = ('rnd', "\$.input.lists.s$i", { end => { '$' => '$.item' }, result => { '$' => '$.index' } });
		$step{max_parallel} = 1 + int rand 3 if rand() < 0.5;
	}
	elsif ($model{what} eq 'sub')
	{
		$model{end} = 'ok' if $model{end} eq 'skip';
		@step{ 'job_type', 'payload' } = ('sub', { end => $model{end}, result => $i });
	}
	else
	{
		$model{end} = 'ok';
		$step{event} = "e$i" if $model{what} eq 'event';
		$step{delay} = int(rand(100)) . ' ms' if $model{what} eq 'delay';
		@step{ 'job_type', 'payload' } = ('rnd', { result => $i, adds => [ { key => "x$i", job_type => 'rnd', payload => { result => "x$i" } } ] }) if $model{what} eq 'adds';
	}
	$step{delay} = '50 ms' if $model{what} eq 'job' && rand() < 0.1;
	return (\%step, \%model);
}

# Returns the status and the result of a task that has started.
sub model_start
{
	my ($i, $m, $repaired) = @_;

	return ('skipped') if $m->{condition} eq 'false';
	return ('error') if $m->{condition} eq 'bad';
	return ('completed', undef) if $m->{what} =~ /^(?:join|delay)$/;
	return ('completed', "data of e$i") if $m->{what} eq 'event';
	return ('completed', [ map { $m->{ends}[$_] =~ /^(?:ok|skip)$/ || ($m->{ends}[$_] eq 'fail' && $repaired) ? $_ : undef } 0 .. $#{ $m->{ends} } ]) if $m->{what} eq 'map';
	return ('error') if $m->{end} eq 'fail' && !$repaired;
	return ('skipped') if $m->{end} eq 'skip';
	return ('completed', $m->{what} eq 'sub' ? { x => $i } : $i);
}

# Returns how the tasks of a run end after whose failures it goes on: {key: [status, result]}.
sub model_run
{
	my ($steps, $models, $repaired) = @_;
	my %ends;

	foreach my $i (0 .. $#$steps)
	{
		my $rule = $steps->[$i]{rule} // 'success';
		my @parents = map { $ends{$_}[0] } @{ $steps->[$i]{after} // [] };
		my %n = map { my $s = $_; $s => scalar grep { $_ eq $s } @parents } qw(completed skipped error);
		my $starts = !@parents || $rule eq 'done' || ($rule eq 'any' && $n{completed}) || ($rule eq 'failed' && $n{error})
		  || ($rule eq 'success' && !$n{error} && $n{completed});

		$ends{"s$i"} = $starts ? [ model_start($i, $models->[$i], $repaired) ] : ['skipped'];
		# an added task completes, and what waits for the task that has added it waits for both
		$ends{"x$i"} = [ 'completed', "x$i" ] if $models->[$i]{what} eq 'adds' && $ends{"s$i"}[0] eq 'completed';
	}
	return \%ends;
}

# ---------- runs ----------

my (@all, $taken);

# Sends all events that steps of a run wait for.
sub send_events
{
	my ($run) = @_;

	one("SELECT jobq.send_event('$run->{id}', '$_->{event}', to_jsonb('data of $_->{event}'::text))") foreach grep { ($_->{event} // 'never') ne 'never' } @{ $run->{steps} };
	return;
}

# Gives a run a version with one more step, if it is live.
sub take_version
{
	my ($run) = @_;
	my $last = scalar @{ $run->{steps} };

	# one that begins later has the version that is active then
	return if one("SELECT version > 0 FROM jobq.runs WHERE id = '$run->{id}'") ne 't';
	my @steps = (@{ $run->{steps} }, { key => "s$last", job_type => 'rnd', after => [ 's' . int(rand($last)) ], rule => 'done', payload => { result => $last } });
	my $name = one("SELECT job_type FROM jobq.jobs WHERE id = '$run->{id}'");
	my $version = workflow($name, $json->encode(\@steps), q{on_failure => 'continue'});

	return if one("SELECT other_version('$run->{id}', $version)") ne 't';
	$run->{steps} = \@steps;
	$taken++;
	push @{ $run->{models} }, { condition => 'none', end => 'ok', what => 'job' };
	return;
}

foreach my $n (1 .. $runs)
{
	my $kind = one_of(qw(go go go go stop stop cancel undo undo late));
	my (@steps, @models, %lists);

	foreach my $i (0 .. 2 + rand 7)
	{
		my ($step, $model) = random_step($i, $kind);

		push @steps, $step;
		push @models, $model;
		$lists{"s$i"} = $model->{ends} if $model->{ends};
	}
	push @steps, { key => 'never', event => 'never' } if $kind eq 'late';
	my %options = (go => q{on_failure => 'continue'}, undo => q{on_failure => 'compensate'}, late => q{options => '{"timeout": "1 s"}'});
	workflow("r$n", $json->encode(\@steps), $options{$kind});
	push @all, { kind => $kind, steps => \@steps, models => \@models, id => start_run("r$n", $json->encode({ t => JSON::PP::true, lists => \%lists })) };
	one("SELECT jobq.pause_workflow('$all[-1]{id}')") if $kind ne 'late' && rand() < 0.2;
	send_events($all[-1]) if rand() < 0.5;
	take_version(one_of(grep { $_->{kind} eq 'go' } @all)) if rand() < 0.2 && grep { $_->{kind} eq 'go' } @all;
	one("SELECT jobq.cancel_job('$_')") foreach map { $_->{id} } grep { $_->{kind} eq 'cancel' && !$_->{told}++ } rand() < 0.5 ? @all : ();
}
one("SELECT jobq.cancel_job('$_')") foreach map { $_->{id} } grep { $_->{kind} eq 'cancel' && !$_->{told} } @all;
one('SELECT jobq.resume_workflow(id) FROM jobq.runs WHERE paused');
send_events($_) foreach @all;

my $ids = join ',', map { $_->{id} } @all;
sub all_end
{
	wait_for_sql($node, "SELECT NOT EXISTS (SELECT FROM jobq.queue WHERE id = ANY ('{$ids}'))", $_[0])
	  or diag(one("SELECT string_agg(format('%s %s %s %s %s %s', coalesce(workflow_id, id), task_key, status, waiting_for, after_state, after_rule), E'\\n') FROM jobq.queue"));
	return;
}
all_end("all runs end, seed $seed");

# Compares the tasks of a run with the model.
sub compare
{
	my ($run, $repaired) = @_;
	my $model = model_run($run->{steps}, $run->{models}, $repaired);
	my %parents = map { $_ => 1, s/s/x/r => 1 } map { @{ $_->{after} // [] } } @{ $run->{steps} };
	my $expected = join ' ', map { "$_:$model->{$_}[0]" } sort keys %$model;
	my $result = $json->encode({ map { $_ => $model->{$_}[1] } grep { $model->{$_}[0] eq 'completed' && !$parents{$_} } keys %$model });
	my $is = one("SELECT string_agg(task_key || ':' || status, ' ' ORDER BY task_key) FROM jobq.jobs WHERE workflow_id = '$run->{id}' AND parent_id = '$run->{id}'");

	return if is($is, $expected, "$run->{kind}: tasks") & is($json->encode($json->decode(one("SELECT result FROM jobq.jobs WHERE id = '$run->{id}'") || '"none"')), $result, "$run->{kind}: result");
	diag("JOBQ_SEED=$seed run $run->{id} " . $json->encode($run->{steps}) . ' ' . $json->encode($run->{models}));
	diag(one("SELECT string_agg(format('%s %s %s %s', task_key, status, error_code, error_msg), E'\\n') FROM jobq.jobs WHERE '$run->{id}' IN (id, workflow_id)"));
	return;
}
compare($_, 0) foreach grep { $_->{kind} eq 'go' } @all;

# ---------- retries ----------

one('INSERT INTO repaired DEFAULT VALUES');
foreach my $run (grep { $_->{kind} eq 'stop' } @all)
{
	my $status = one("SELECT status FROM jobq.jobs WHERE id = '$run->{id}'");

	my $tasks = one("SELECT string_agg(task_key || ':' || status, ' ' ORDER BY task_key) FROM jobq.jobs WHERE workflow_id = '$run->{id}'");
	is(one("SELECT jobq.retry_workflow('$run->{id}')"), $status eq 'error' ? 't' : 'f', "retry of a run that is $status") or diag("$run->{id} $tasks");
}
send_events($_) foreach @all;    # a run that had ended takes none
all_end("all retried runs end, seed $seed");
compare($_, 1) foreach grep { $_->{kind} eq 'stop' } @all;

# ---------- deadlines, compensations ----------

my %of = map { my $kind = $_; $kind => "'{" . join(',', map { $_->{id} } grep { $_->{kind} eq $kind } @all) . "}'" } qw(late undo);
is(one("SELECT count(*) FROM jobq.jobs WHERE id = ANY ($of{late}) AND NOT (status = 'error' AND error_code IN ('timeout', 'task_failed'))"), '0',
	'runs that wait for ever end at their deadlines, if no task fails before');
is(one("SELECT string_agg(id::text, ' ') FROM jobq.jobs r WHERE id = ANY ($of{undo})
  AND (SELECT coalesce(array_agg(t.task_key || '.undo' ORDER BY t.completed_at DESC, t.id DESC), '{}') FROM jobq.jobs t, jsonb_array_elements((SELECT w.steps FROM jobq.workflows w WHERE w.name = r.job_type)) s
        WHERE t.workflow_id = r.id AND t.status = 'completed' AND s ->> 'key' = t.task_key AND s ? 'compensate' AND r.status = 'error')
   <> (SELECT coalesce(array_agg(u.task_key ORDER BY u.completed_at, u.id), '{}') FROM jobq.jobs u WHERE u.workflow_id = r.id AND u.task_key LIKE '%.undo' AND u.status = 'completed')"), '',
	'the completed steps of a failed run are undone, the newest first');

# ---------- every run ----------

note $taken // 0, ' runs have taken another version, ', one(q{SELECT count(*) FROM jobq.jobs WHERE task_key LIKE '%.undo'}), ' steps were undone';
cmp_ok(one("SELECT count(*) FROM jobq.jobs WHERE $_"), '>', 0, $_) foreach q{task_key LIKE 'x%'}, q{task_key LIKE '%.undo'}, q{status = 'cancelled' AND workflow_id IS NULL}, q{error_code = 'timeout'};
cmp_ok($taken // 0, '>', 0, 'versions were taken');

is(one("SELECT count(*) FROM jobq.jobs WHERE id = ANY ('{" . join(',', map { $_->{id} } grep { $_->{kind} eq 'cancel' } @all) . "}') AND status = 'error' AND error_code <> 'task_failed'"), '0',
	'cancelled runs are cancelled, or had ended');
is(one(q{SELECT count(*) FROM jobq.queue}), '0', 'no row is left');
is(one(q{SELECT count(*) FROM jobq.dependencies}), '0', 'no edge is left');
is(one(q{SELECT count(*) FROM (SELECT FROM jobq.jobs WHERE workflow_id IS NOT NULL GROUP BY workflow_id, task_key HAVING count(*) > 1) x}), '0', 'each task has one row');
is(one(q{SELECT count(*) FROM jobq.jobs WHERE workflow_id IS NOT NULL AND runs > 1}), '0', '!no task was run twice');
is(one(q{SELECT string_agg(DISTINCT c.id::text, ' ') FROM jobq.jobs c, unnest(c.after) a(id), jobq.jobs p
  WHERE c.workflow_id IS NOT NULL AND p.id = a.id AND c.after_rule IN ('success', 'done') AND c.status = 'completed' AND c.started_at < p.completed_at}), '', 'no task begins before its parents have ended');
# that of a run which was cancelled before it began goes with the conductor's next pass
is(one(q{SELECT string_agg(to_jsonb(r)::text, ' ') FROM jobq.runs r WHERE phase <> 'ended' AND version > 0}), '', 'all runs have ended');
is(one(q{SELECT count(*) FROM (SELECT job_id FROM jobq.events WHERE type IN ('run_started', 'run_finished') GROUP BY job_id
  HAVING count(*) FILTER (WHERE type = 'run_started') <> count(*) FILTER (WHERE type = 'run_finished')) x}), '0', 'each start of a run has an end');
is(one(q{SELECT string_agg(concat_ws(' ', t.id, t.task_key, t.status, t.runs, e.types), ', ') FROM jobq.jobs t,
  LATERAL (SELECT string_agg(type, ' ' ORDER BY ts, id) AS types FROM jobq.events WHERE job_id = t.id AND type IN ('enqueued', 'started', 'completed', 'skipped', 'cancelled', 'dead')) e
  WHERE t.job_type = 'rnd' AND t.workflow_id IS NOT NULL AND e.types IS DISTINCT FROM concat_ws(' ', 'enqueued', CASE WHEN t.runs > 0 THEN 'started' END,
    CASE t.status WHEN 'error' THEN 'dead' ELSE t.status::text END)}), '', 'the events of each task are its life');
unlike(slurp_file($node->logfile), qr/WARNING:  jobq|terminated by|PANIC|TRAP/, 'no warnings');

done_testing();
