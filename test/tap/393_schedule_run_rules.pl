# What the documents promise of runs beside their steps: the version at the start, pauses, arguments
# of tasks, what the rows of a run show, hooks, weights, rates, deadlines with compensations, events
# of other roles, the kill switch.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('promises', 'jobq.max_weight = 1');

sub parked { my ($run, $key) = @_; return wait_for_sql($node, "SELECT after_state >= 4 FROM jobq.queue WHERE workflow_id = '$run' AND task_key = '$key'", "$key waits"); }
sub events_of { my ($id) = @_; return one("SELECT string_agg(type, ' ' ORDER BY ts, id) FROM jobq.events WHERE job_id = '$id'"); }

# ---------- versions ----------

workflow('v', '[{"key": "one", "job_type": "act"}]');
one(q{SELECT jobq.pause_job_type('v')});
my $run = start_run('v');
workflow('v', '[{"key": "two", "event": "go"}, {"key": "then", "job_type": "act", "after": ["two"]}]');
one(q{SELECT jobq.resume_job_type('v')});
parked($run, 'two');
is(one("SELECT version FROM jobq.workflow_runs WHERE id = '$run'"), '2', 'a run starts with the version that is active then');
workflow('v', '[{"key": "three", "job_type": "act"}]');
my $other = start_run('v');
run_is($other, 'completed');
is(tasks_of($other), 'three:completed', 'later runs have a later version');
one("SELECT jobq.send_event('$run', 'go')");
run_is($run, 'completed');
is(tasks_of($run), 'then:completed two:completed', 'it keeps its own');

# ---------- what a run shows ----------

workflow('shows', '[{"key": "a", "job_type": "act"}, {"key": "p", "job_type": "pulled", "after": ["a"]}, {"key": "no", "job_type": "act", "after": ["a"], "if": "1 == 2"},
  {"key": "z", "job_type": "act", "after": ["p"], "payload": {"result": 1}}]');
$run = start_run('shows', '{"x": 1}', q{tenant => 't', priority => 5, metadata => '{"m": 1}'});
my ($id, $token) = claim_one();
is(one("SELECT jobq.heartbeat('$id', '$token', progress => 40)"), 'ok', 'a task reports progress');
is(one("SELECT workflow, version, status, progress::float, current_task_key, tasks, priority, payload, result IS NULL, tenant, paused_reason IS NULL, position = scheduled_for, deadline > now() + interval '23 hours',
  started_at IS NOT NULL, completed_at IS NULL FROM jobq.workflow_runs WHERE id = '$run'"),
	'shows|1|running|60|p|{"blocked": 1, "running": 1, "skipped": 1, "completed": 1}|5|{"x": 1}|t|t|t|t|t|t|t', 'the columns of jobq.workflow_runs');
is(one("SELECT string_agg(DISTINCT tenant, ',') FROM jobq.jobs WHERE workflow_id = '$run'"), 't', 'its tasks have its tenant');
complete_one($id, $token);
run_is($run, 'completed');
is(one("SELECT progress::float, current_task_key IS NULL, result, completed_at IS NOT NULL FROM jobq.workflow_runs WHERE id = '$run'"), '100|t|{"z": 1}|t', 'after its end');
is(events_of($run), 'run_started run_finished', 'its events');
is(one("SELECT string_agg(DISTINCT source, ' ') FROM jobq.events e JOIN jobq.jobs j ON j.id = e.job_id
  WHERE j.id = '$run' OR (j.workflow_id = '$run' AND e.type IN ('enqueued', 'blocked', 'released'))"), 'dispatcher', 'which jobq itself writes');
like(events_of(one("SELECT id FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'z'")), qr/^enqueued blocked released started completed$/, 'those of a task that waited');
is(events_of(one("SELECT id FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'a'")), 'enqueued released started completed', 'those of a first one');
is(one("SELECT data FROM jobq.events e JOIN jobq.jobs j ON j.id = e.job_id WHERE j.workflow_id = '$run' AND j.task_key = 'z' AND e.type = 'blocked'"), '{"after": 1, "after_rule": "success"}', 'with what it waits for');
is(one("SELECT e.data - 'scheduled_for' = jsonb_build_object('priority', j.priority, 'parent_id', '$run') FROM jobq.events e JOIN jobq.jobs j ON j.id = e.job_id
  WHERE j.workflow_id = '$run' AND j.task_key = 'z' AND e.type = 'enqueued'"), 't', 'and with its place');

is(events_of(one("SELECT id FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'p'")), '', 'none of a type that writes failures only');

# A run that waits, for its turn or for a job, has a position and no task yet.
one(q{SELECT jobq.pause_job_type('shows')});
$run = start_run('shows', '{"x": 2}', q{tenant => 't', priority => 5, scheduled_for => now() - interval '1 day'});
my $late = start_run('shows', '{}', q{delay => '1 hour'});
my $behind = start_run('shows', '{}', "after => ARRAY['$run'::uuid]");
is(one("SELECT workflow, version IS NULL, status, progress, current_task_key IS NULL, tasks, priority, payload, tenant, position - created_at < '1 min', position >= created_at,
  scheduled_for < position, deadline IS NULL, started_at IS NULL FROM jobq.workflow_runs WHERE id = '$run'"),
	'shows|t|pending|0|t|{}|5|{"x": 2}|t|t|t|t|t|t', 'a run that has not begun');
is(one("SELECT status, position = scheduled_for FROM jobq.workflow_runs WHERE id = '$late'"), 'pending|t', 'one with a delay');
is(one("SELECT status, version IS NULL, tasks FROM jobq.workflow_runs WHERE id = '$behind'"), 'blocked|t|{}', 'one that waits for a job');
is(one(q{SELECT array_agg(id ORDER BY position) FROM jobq.workflow_runs WHERE workflow = 'shows' AND status = 'pending'}), "{$run,$late}", 'in their order');
is(one("SELECT jobq.cancel_job(id) FROM jobq.workflow_runs WHERE version IS NULL AND workflow = 'shows' ORDER BY id LIMIT 1"), 't', 'one is cancelled');
is(one("SELECT count(*) FROM jobq.workflow_runs WHERE id = '$run'"), 0, 'it waits no longer, and has never begun');
one("SELECT jobq.cancel_job('$late'); SELECT jobq.resume_job_type('shows')");

# A map counts with its elements: those that have ended, those that run, those to come.
workflow('counts', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 2}, {"key": "z", "job_type": "act", "after": ["m"]}]');
$run = start_run('counts', '{"list": [1, 2, 3, 4]}');
sub progress_is { my ($is, $what) = @_; return is(one("SELECT progress::float FROM jobq.workflow_runs WHERE id = '$run'"), $is, $what); }
($id, $token) = claim_one();
progress_is(0, 'none of four elements has ended');
complete_one($id, $token);
progress_is(12.5, 'one of them');
($id, $token) = claim_one();
is(one("SELECT jobq.heartbeat('$id', '$token', progress => 50)"), 'ok', 'one is half done');
progress_is(18.75, 'it counts so');
complete_one($id, $token);
complete_one((claim_one())[0, 1]) foreach 1, 2;
run_is($run, 'completed');
progress_is(100, 'all of them');

# ---------- arguments of tasks ----------

my $arguments = '"priority": -7, "max_attempts": 4, "timeout": "90 s", "backoff": {"type": "fixed", "base": "1 h"}, "concurrency_key": "k"';
workflow('given', qq([{"key": "a", "job_type": "pulled", $arguments}, {"key": "m", "job_type": "pulled", "map": "\$.input", $arguments}, {"key": "d", "job_type": "pulled"}]));
one(q{SELECT jobq.pause_job_type('pulled')});
$run = start_run('given', '[1, 2]');
wait_for_sql($node, "SELECT count(*) = 5 FROM jobq.jobs WHERE workflow_id = '$run'", 'a run of tasks with arguments');
is(one("SELECT string_agg(DISTINCT format('%s %s %s %s %s', q.priority, q.max_attempts, q.timeout, q.backoff, q.concurrency_key), ',') FROM jobq.queue q WHERE q.workflow_id = '$run' AND q.task_key <> 'd' AND q.task_key <> 'm'"),
	'-7 4 00:01:30 {"base": "1 h", "type": "fixed"} k', 'a task and the members of a map have those of their step');
is(one("SELECT priority, max_attempts, timeout IS NULL, concurrency_key IS NULL FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'd'"), '0|1|t|t', 'others those of their type');
one(q{SELECT jobq.resume_job_type('pulled')});
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');
one(q{CREATE FUNCTION sleeps(p jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(600)'; SELECT jobq.create_job_type('sleeps', 'sleeps(jsonb)', max_attempts => 1)});
workflow('slow', '[{"key": "s", "job_type": "sleeps", "timeout": "500 ms"}]');
$run = tasks_are('slow', '{}', 'error', 's:error', 'a task that exceeds the timeout of its step');
is(one("SELECT error_code FROM jobq.jobs WHERE workflow_id = '$run'"), 'timeout', 'fails of it');

# ---------- pauses ----------

workflow('paused', '[{"key": "d", "delay": "4 s"}, {"key": "z", "job_type": "act", "after": ["d"]}]', q{options => '{"timeout": "12 s"}'});
$run = start_run('paused');
parked($run, 'd');
is(one("SELECT jobq.pause_workflow('$run')"), 't', 'a run is paused');
wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'd'", 'a delay goes on');
wait_for_sql($node, "SELECT after_state = 16 FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'z'", 'what is behind it waits');
run_is($run, 'error', 'so does the deadline');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'timeout', 'its error code');
is(tasks_of($run), 'd:completed z:cancelled', 'the task that waited is cancelled');

# ---------- deadlines and compensations ----------

workflow('undoes', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "act", "payload": {"id": {"$": "$.run.id"}}}}, {"key": "e", "event": "never", "after": ["a"]}]',
	q{on_failure => 'compensate', options => '{"timeout": "4 s"}'});
$run = tasks_are('undoes', '{}', 'error', 'a:completed a.undo:completed e:cancelled', 'a deadline is a failure: the run is compensated');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'timeout', 'its error code stays');
is(one("SELECT payload ->> 'id' = '$run' FROM ran WHERE run = '$run' AND key = 'a.undo'"), 't', 'the payload of the compensation');
is(events_of($run), 'run_started compensating run_finished failed dead', 'its events');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run')", '55000', 'it is not retried');
my $again = one("SELECT jobq.rerun_job('$run')");
run_is($again, 'error', 'jobq.rerun_job starts a new one');
is(tasks_of($again), 'a:completed a.undo:completed e:cancelled', 'from its beginning');

# ---------- hooks ----------

one(q{CREATE FUNCTION told(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('hook', p->'hook', 'of', p->'job_type', 'result', p->'result', 'code', p->'error_code') $$;
SELECT jobq.create_job_type('told', 'told(jsonb)')});
workflow('hooked', '[{"key": "a", "job_type": "act", "payload": {"end": {"$": "$.input.end", "default": null}, "result": 3}}]', q{options => '{"on_complete": "told", "on_dead": "told"}'});
foreach my $case ([ '{}', 'completed', '{"of": "hooked", "code": null, "hook": "on_complete", "result": {"a": 3}}' ],
	[ '{"end": "fail"}', 'error', '{"of": "hooked", "code": "task_failed", "hook": "on_dead", "result": null}' ])
{
	$run = start_run('hooked', $case->[0]);
	run_is($run, $case->[1]);
	wait_for_sql($node, "SELECT status = 'completed' FROM jobq.jobs WHERE parent_id = '$run' AND job_type = 'told'", "a run that is $case->[1] has its hook");
	is(one("SELECT result FROM jobq.jobs WHERE parent_id = '$run' AND job_type = 'told'"), $case->[2], 'with its data');
	is(one("SELECT count(*) FROM jobq.jobs WHERE workflow_id = '$run'"), '1', 'which is no task');
}

# ---------- weights and rates ----------

workflow('waits', '[{"key": "e", "event": "go"}]');
my @runs = map { start_run('waits') } 1 .. 5;
parked($_, 'e') foreach @runs;
is(ended(start_run('act')), 'completed', 'live runs have no weight');
one("SELECT jobq.send_event('$_', 'go')") foreach @runs;
run_is($_, 'completed') foreach @runs;
workflow('rare', '[{"key": "e", "job_type": "act"}]', q{options => '{"rate_limit": 1, "rate_window": "1 day"}'});
@runs = map { start_run('rare') } 1 .. 2;
run_is($runs[0], 'completed', 'the rate of a workflow admits one run');
is(ended(start_run('act')), 'completed', 'other jobs run');
is(one("SELECT status FROM jobq.jobs WHERE id = '$runs[1]'"), 'pending', 'and no further one');
one("SELECT jobq.cancel_job('$runs[1]')");

# ---------- events of other roles ----------

one(q{CREATE ROLE sender LOGIN; SELECT jobq.grant_access('sender', 'enqueue', tenant => 'acme', job_types => '{waits}')});
workflow('waits-too', '[{"key": "e", "event": "go"}]');
my ($own, $foreign, $tenant) = (start_run('waits', '{}', q{tenant => 'acme'}), start_run('waits-too', '{}', q{tenant => 'acme'}), start_run('waits', '{}', q{tenant => 'beta'}));
parked($_, 'e') foreach $own, $foreign, $tenant;
is(one("SET ROLE sender; SELECT jobq.send_event('$foreign', 'go'), jobq.send_event('$tenant', 'go'), jobq.send_event('$own', 'go')"), 'f|f|t',
	'send_event needs access enqueue to the workflow and the tenant of the run');
run_is($own, 'completed');
is(one("SELECT string_agg(status::text, ' ') FROM jobq.jobs WHERE id IN ('$foreign', '$tenant')"), 'running running', 'the others wait');
one("SELECT jobq.send_event('$_', 'go')") foreach $foreign, $tenant;
run_is($_, 'completed') foreach $foreign, $tenant;

# ---------- the kill switch ----------

workflow('stopped', '[{"key": "e", "event": "go"}, {"key": "z", "job_type": "act", "after": ["e"]}]');
$run = start_run('stopped');
parked($run, 'e');
one(q{SELECT jobq.stop_all('test')});
my $late = start_run('stopped');
one("SELECT jobq.send_event('$run', 'go')");
wait_for_sql($node, "SELECT status = 'pending' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'z'", 'a stop: a task is released');
is(one("SELECT count(*) FROM ran WHERE run = '$run'"), '0', 'and does not run');
like(one("SELECT jobq.why('$late')"), qr/"stopped"/, 'the dispatcher knows another run');
is(one("SELECT status FROM jobq.jobs WHERE id = '$late'"), 'pending', 'which does not start');
one('SELECT jobq.start_all()');
run_is($run, 'completed', 'until all is started again');
one("SELECT jobq.send_event('$late', 'go')");
run_is($late, 'completed');

is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
