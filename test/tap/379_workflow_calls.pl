# Calls about runs and their tasks: jobq.add_tasks, and what the calls about jobs
# in general do to runs: retry, rerun, purge, cancel, drop.

use strict;
use warnings;

use ServerTest;
use Test::More;

my $node = jobq_server('calls', 'jobq.max_sql_workers = 3');
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION jobq;
CREATE ROLE adder LOGIN;
CREATE TABLE broken (key text);
GRANT SELECT ON broken TO adder;
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF (jobq.current_job()).task_key IN (SELECT key FROM broken) THEN RAISE 'broken'; END IF;
  RETURN p;
END $$;
CREATE FUNCTION adds(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT to_jsonb(count(*)) FROM jobq.add_tasks(p -> 'steps'));
END $$;
SELECT jobq.create_job_type('work', 'work(jsonb)', max_attempts => 1), jobq.create_job_type('adds', 'adds(jsonb)', max_attempts => 1),
       jobq.create_job_type('lesser', 'adds(jsonb)', max_attempts => 1, run_as => 'adder'), jobq.create_job_type('pulled', max_attempts => 1);
SELECT jobq.create_workflow('adding', '[{"key": "first", "job_type": "work"},
  {"key": "add", "job_type": "adds", "after": ["first"], "payload": {"$": "$.input"}},
  {"key": "last", "job_type": "work", "after": ["add"]}]');
SELECT jobq.create_workflow('pulling', '[{"key": "p", "job_type": "pulled"}, {"key": "last", "job_type": "work", "after": ["p"]}]');
SELECT jobq.create_workflow('lessens', '[{"key": "add", "job_type": "lesser", "payload": {"$": "$.input"}}]');
SELECT jobq.create_workflow('two', '[{"key": "a", "job_type": "work", "payload": {"n": 1}}, {"key": "b", "job_type": "work", "after": ["a"]}]');
SELECT jobq.create_workflow('maps', '[{"key": "m", "job_type": "pulled", "map": "$.input", "max_parallel": 2},
  {"key": "n", "job_type": "work", "after": ["m"], "rule": "done"}]', on_failure => 'continue');
SELECT jobq.create_workflow('waits', '[{"key": "e", "event": "go"}]');
SELECT jobq.create_workflow('beside', '[{"key": "add", "job_type": "adds", "payload": {"$": "$.input"}}, {"key": "q", "job_type": "pulled"}]');
END
wait_dispatcher($node, 'postgres', 'the dispatcher runs');

sub sql { return $node->safe_psql('postgres', join ";\n", @_) }

sub tasks
{
	my ($run) = @_;

	return sql("SELECT string_agg(task_key || ' ' || status, ', ' ORDER BY task_key) FROM jobq.jobs WHERE workflow_id = '$run'");
}

sub ends
{
	my ($run, $status, $what) = @_;

	return wait_status($node, 'postgres', $run, $status, $what);
}

# Starts a run that adds these steps.
sub adding
{
	my ($steps, $workflow) = @_;

	return sql("SELECT jobq.enqueue('" . ($workflow // 'adding') . "', jsonb_build_object('steps', '$steps'::jsonb))");
}

# ---------- add_tasks ----------

my $run = adding('[{"key": "x", "job_type": "work", "after": ["first"], "payload": {"$": "$.tasks.first.result"}}, {"key": "y", "after": ["x", "add"]}]');
ends($run, 'completed', 'a run with added tasks completes');
is(tasks($run), 'add completed, first completed, last completed, x completed, y completed', 'with all of them');
is(sql("SELECT max(completed_at) FILTER (WHERE task_key IN ('x', 'y')) < min(started_at) FILTER (WHERE task_key = 'last') FROM jobq.jobs WHERE workflow_id = '$run'"),
	't', 'what waits for the task waits for them');

sql("SELECT jobq.pause_job_type('pulled')");
$run = adding('[{"key": "x", "job_type": "work", "after": ["q"], "payload": {"$": "$.tasks.q.result"}}]', 'beside');
ok($node->poll_query_until('postgres', "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'add'"), 'a step is added behind a live one');
is(tasks($run), 'add completed, q pending, x blocked', 'and waits for it');
sql("SELECT jobq.resume_job_type('pulled')");
sql(q{SELECT jobq.complete(c.id, c.lease_token, '7') FROM jobq.claim('{pulled}', wait => '20s') c});
ends($run, 'completed', 'then it runs');
is(sql("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'x'"), '7', 'with the result of that one');

foreach my $case (
	[ '[{"key": "first", "job_type": "work"}]', '22023', 'a key that the run has' ],
	[ '[{"key": "x", "job_type": "nosuch"}]', '42704', 'an unknown type' ],
	[ '[{"key": "x", "after": ["last"]}]', '22023', 'a cycle through what waits for the task' ],
	[ '[{"key": "x", "job_type": "work", "payload": {"$": "$.tasks.last.result"}}]', '22023', 'a path to a later step' ])
{
	$run = adding($case->[0]);
	ends($run, 'error', "$case->[2]: the run fails");
	is(sql("SELECT error_code FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'add'"), $case->[1], $case->[2]);
	is(tasks($run), 'add error, first completed, last cancelled', 'and nothing is added');
}
$run = adding('[{"key": "x", "job_type": "work"}]', 'lessens');
ends($run, 'error', 'a role without the right to enqueue');
is(sql("SELECT error_code FROM jobq.jobs WHERE workflow_id = '$run'"), '42501', 'may not add');
sql("SELECT jobq.grant_access('adder', 'enqueue', job_types => '{work}')");
is(sql("SELECT jobq.retry_job('$run')"), 't', 'retry_job takes the run up again');
ends($run, 'completed', 'now it may');
is(tasks($run), 'add completed, x completed', 'and its task has run');
my ($rc, $out, $err) = $node->psql('postgres', q{SELECT jobq.add_tasks('[{"key": "x"}]')}, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($err, qr/55000: jobq.add_tasks can only be called inside a SQL handler/, 'outside of a handler');
my $plain = sql(q{SELECT jobq.enqueue('adds', '{"steps": [{"key": "x"}]}')});
ends($plain, 'error', 'in a job that is no task');
is(sql("SELECT error_code, error_msg ~ 'no task of a run' FROM jobq.jobs WHERE id = '$plain'"), '55000|t', 'it is 55000');

# ---------- and by a client ----------

$run = sql("SELECT jobq.enqueue('pulling')");
my ($id, $token) = split /\|/, sql("SELECT id, lease_token FROM jobq.claim('{pulled}', wait => '20s')");
is(sql("SELECT count(*) FROM jobq.add_tasks('[{\"key\": \"more\", \"job_type\": \"work\"}]', '$id', '$token')"), 1, 'the holder of a lease adds a task');
sqlstate_is($node, 'postgres', "SELECT jobq.add_tasks('[{\"key\": \"more2\"}]', '$id', gen_random_uuid())", '55000', 'another token does not');
sqlstate_is($node, 'postgres', "SELECT jobq.add_tasks('[{\"key\": \"more\"}]', '$id', '$token')", '22023', 'not twice');
is(sql("SELECT jobq.complete('$id', '$token', '1')"), 't', 'it completes');
ends($run, 'completed', 'so does the run');
is(tasks($run), 'last completed, more completed, p completed', 'with the added task');

# An added task fails: the retry runs it and what waits for it.
sql("INSERT INTO broken VALUES ('x')");
$run = adding('[{"key": "x", "job_type": "work"}]');
ends($run, 'error', 'an added task fails');
is(tasks($run), 'add completed, first completed, last cancelled, x error', 'what waits for it is cancelled');
sql('DELETE FROM broken');
is(sql("SELECT jobq.retry_workflow('$run')"), 't', 'the run is taken up again');
ends($run, 'completed', 'and completes');
is(sql("SELECT a.completed_at <= b.started_at FROM jobq.jobs a, jobq.jobs b WHERE a.workflow_id = '$run' AND b.workflow_id = '$run' AND a.task_key = 'x' AND b.task_key = 'last'"),
	't', 'the last step has waited for the added one');
is(sql("SELECT jobq.retry_workflow('$run', 'add')"), 't', 'from the task that added it');
ends($run, 'completed', 'it adds it again');
is(tasks($run), 'add completed, first completed, last completed, x completed', 'once');

# ---------- retry, rerun ----------

sql("INSERT INTO broken VALUES ('b')");
my @runs = map { sql("SELECT jobq.enqueue('two', tenant => 'acme')") } 1 .. 3;
ends($_, 'error', 'a run fails') foreach @runs;
sql('DELETE FROM broken');
is(sql("SELECT jobq.retry_job(id) FROM jobq.jobs WHERE workflow_id = '$runs[0]' AND task_key = 'b'"), 't', 'retry_job of a dead task');
ends($runs[0], 'completed', 'takes up its run');
is(sql("SELECT attempts FROM jobq.jobs WHERE workflow_id = '$runs[0]' AND task_key = 'a'"), 1, 'the completed task is not run again');
is(sql("SELECT jobq.retry_dead_letters(tenant => 'acme')"), 2, 'retry_dead_letters takes up runs, each once');
ends($_, 'completed', 'they complete') foreach @runs[1, 2];
is(tasks($runs[1]), 'a completed, b completed', 'with their tasks');
my $again = sql("SELECT jobq.rerun_job('$runs[1]')");
ends($again, 'completed', 'rerun_job starts a fresh run');
is(tasks($again), 'a completed, b completed', 'with tasks of its own');
my $alone = sql("SELECT jobq.rerun_job(id) FROM jobq.jobs WHERE workflow_id = '$again' AND task_key = 'a'");
ends($alone, 'completed', 'a task is run again');
is(sql("SELECT workflow_id IS NULL, result FROM jobq.jobs WHERE id = '$alone'"), 't|{"n": 1}', 'outside of the run');

# ---------- purges ----------

sql("INSERT INTO broken VALUES ('b')");
$run = sql("SELECT jobq.enqueue('two', tenant => 'beta')");
ends($run, 'error', 'one more run fails');
is(sql("SELECT jobq.purge_dead_letters('two', tenant => 'beta')"), 1, 'the dead letter of the run is purged');
is(sql("SELECT count(*) FROM jobq.dead_letters WHERE tenant = 'beta'"), 0, 'with those of its tasks');
is(sql("SELECT count(*) FROM jobq.runs WHERE id = '$run'"), 0, 'and the run');
@runs = (sql("SELECT jobq.enqueue('two', tenant => 'beta')"), sql("SELECT jobq.enqueue('waits', tenant => 'beta')"));
ends($runs[0], 'error', 'a failed run');
wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.queue WHERE workflow_id = '$runs[1]' AND after_state = 4", 'a live run');
sql("SELECT jobq.purge_tenant('beta')");
wait_for_sql($node, "SELECT jobq.purge_tenant('beta') IS NOT NULL AND NOT EXISTS (SELECT FROM jobq.jobs WHERE tenant = 'beta')", 'purge_tenant removes all jobs');
sql("SELECT jobq.purge_tenant('beta')");
is(sql("SELECT count(*) FROM jobq.runs WHERE id IN ('$runs[0]', '$runs[1]')"), 0, 'and the runs');
is(sql("SELECT count(*) FROM jobq.run_timers WHERE id IN ('$runs[0]', '$runs[1]')"), 0, 'and their timers');
sql('DELETE FROM broken');

# ---------- a map ----------

$run = sql("SELECT jobq.enqueue('maps', '[1, 2, 3, 4]')");
wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.jobs WHERE workflow_id = '$run' AND task_key LIKE 'm.%'", 'two members');
is(sql("SELECT jobq.cancel_job(id, 'why') FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'm'"), 't', 'the mapped task is cancelled');
ends($run, 'completed', 'the run goes on');
is(tasks($run), 'm cancelled, m.0 cancelled, m.1 cancelled, n completed', 'its members are cancelled, and no other comes');

# ---------- a member of a map adds steps ----------

sql(q{SELECT jobq.create_workflow('spread', '[{"key": "m", "job_type": "pulled", "map": "$.input"}, {"key": "last", "job_type": "work", "after": ["m"]}]')});
$run = sql(q{SELECT jobq.enqueue('spread', '[1]')});
my ($member, $members_token) = split /\|/, sql(q{SELECT id, lease_token FROM jobq.claim('{pulled}', wait => '20s')});
sql(qq{SELECT jobq.add_tasks('[{"key": "x", "event": "go"}]', '$member', '$members_token')}, "SELECT jobq.complete('$member', '$members_token')");
wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'm'", 'a map ends');
is(tasks($run), 'last blocked, m completed, m.0 completed, x blocked', 'what waits for it waits for the step of a member');
sql("SELECT jobq.send_event('$run', 'go')");
ends($run, 'completed', 'then it runs');

# ---------- events, drop ----------

sql("SELECT jobq.pause_job_type('waits')");
$run = sql("SELECT jobq.enqueue('waits')");
is(sql("SELECT jobq.send_event('$run', 'go', '7'), jobq.send_event('$run', 'go')"), 't|f', 'an event before the start is kept');
is(sql("SELECT status, version IS NULL FROM jobq.workflow_runs WHERE id = '$run'"), 'pending|t', 'the run has not started');
sql("SELECT jobq.resume_job_type('waits')");
ends($run, 'completed', 'it completes');
is(sql("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"e": 7}', 'with the data');
$run = sql("SELECT jobq.enqueue('waits')");
wait_for_sql($node, "SELECT count(*) = 1 FROM jobq.queue WHERE workflow_id = '$run' AND after_state = 4", 'another waits');
sqlstate_is($node, 'postgres', q{SELECT jobq.drop_job_type('waits')}, '55006', 'a workflow with a live run stays');
sql(q{SELECT jobq.drop_job_type('waits', force => true)});
ends($run, 'cancelled', 'or its run is cancelled');
is(tasks($run), 'e cancelled', 'with its tasks');

is(sql("SELECT jobq.health()->'checks'->'dispatcher'->>'status'"), 'healthy', 'the dispatcher is well');
$node->stop;
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/a run could not|terminated by signal|PANIC/, 'no run was given up');
done_testing();
