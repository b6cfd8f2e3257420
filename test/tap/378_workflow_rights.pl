# Whose rights a run has, what roles of a tenant see of runs, and runs of extreme sizes: names with
# quotes, 1,000 steps, more elements than jobq.max_tasks.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('rights', 'jobq.max_tasks = 3000');

# ---------- edges ----------

# Roles of tenants read no edge, not even with a GRANT of the owner's: an edge has no tenant.
one(<<'END');
CREATE ROLE edges LOGIN;
SELECT jobq.grant_access('edges', a, tenant => 'acme') FROM unnest('{read,enqueue}'::text[]) a;
SELECT jobq.enqueue('pulled', tenant => 'acme') AS parent \gset
SELECT jobq.enqueue('act', tenant => 'acme', after => ARRAY[:'parent'::uuid]);
END
is(one('SELECT count(*) FROM jobq.dependencies'), '1', 'there is an edge');
sqlstate_is($node, 'postgres', q{SET ROLE edges; SELECT count(*) FROM jobq.dependencies}, '42501', 'a reader may not read edges');
one('GRANT SELECT, DELETE ON jobq.dependencies TO edges');
is(one(q{SET ROLE edges; SELECT count(*) FROM jobq.dependencies}), '0', 'with a GRANT it sees none');
is(one(q{SET ROLE edges; WITH gone AS (DELETE FROM jobq.dependencies RETURNING 1) SELECT count(*) FROM gone}), '0', 'nor deletes it');
is(one(q{SET ROLE edges; SELECT cardinality(after) FROM jobq.jobs WHERE job_type = 'act'}), '1', 'it sees what its own job waits for');
one('REVOKE SELECT, DELETE ON jobq.dependencies FROM edges; SELECT jobq.cancel_job(id) FROM jobq.jobs');

# ---------- the definer ----------

one(<<'END');
CREATE ROLE definer LOGIN;
CREATE ROLE starter LOGIN;
CREATE ROLE acme LOGIN;
CREATE ROLE beta LOGIN;
SELECT jobq.create_job_type('secret', 'act(jsonb)', max_attempts => 1),
  jobq.grant_access('definer', 'admin'), jobq.grant_access('definer', 'enqueue', job_types => '{act,secret,pulled}'),
  jobq.grant_access('acme', 'read', tenant => 'acme'), jobq.grant_access('beta', 'read', tenant => 'beta');
END
one(q{SET ROLE definer; SELECT jobq.create_workflow('owned', '[{"key": "p", "job_type": "pulled"}, {"key": "a", "job_type": "secret", "after": ["p"]},
  {"key": "b", "job_type": "act", "after": ["a"]}, {"key": "m", "job_type": "secret", "map": "$.input.list", "after": ["p"]}]')});
one(q{SELECT jobq.revoke_access('definer', 'admin'), jobq.grant_access('starter', 'enqueue', job_types => '{owned}')});
my $run = one(q{SET ROLE starter; SELECT jobq.enqueue('owned', '{"list": [{}]}')});
my ($id, $token) = claim_one();
sqlstate_is($node, 'postgres', q{SET ROLE starter; SELECT jobq.enqueue('secret')}, '42501', 'the caller may not enqueue the type of a task');
complete_one($id, $token);
run_is($run, 'completed', 'the run may');
$run = one(q{SET ROLE starter; SELECT jobq.enqueue('owned', '{"list": [{}]}')});
($id, $token) = claim_one();
one(q{SELECT jobq.revoke_access('definer', 'enqueue', job_types => '{act,secret,pulled}'), jobq.grant_access('definer', 'enqueue', job_types => '{act,pulled}')});
complete_one($id, $token);
run_is($run, 'error', 'the right is revoked during a run');
is(one("SELECT string_agg(task_key || ' ' || error_code || ' ' || attempts, ',' ORDER BY task_key) FROM jobq.dead_letters WHERE workflow_id = '$run' AND error_code = '42501'") =~ /^(a|m) 42501 0/, 1,
	'its tasks are dead letters of 42501, without an attempt');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'task_failed', 'and the run fails');
one(q{SELECT jobq.grant_access('definer', 'enqueue', job_types => '{secret}')});
is(one("SELECT jobq.retry_workflow('$run')"), 't', 'it is retried with the right');
run_is($run, 'completed');

# A step that a task has added has the rights of that task, and so what undoes it.
one(q{SELECT jobq.create_workflow('owned2', '[{"key": "p", "job_type": "pulled"}]', on_failure => 'compensate')});
one(q{UPDATE jobq.workflows SET created_by = 'definer', definer_oid = 'definer'::regrole WHERE type_id = (SELECT id FROM jobq.job_types WHERE name = 'owned2')});
one(q{SELECT jobq.revoke_access('definer', 'enqueue', job_types => '{secret}')});
$run = start_run('owned2');
($id, $token) = claim_one();
one(qq{SELECT jobq.add_tasks('[{"key": "n", "job_type": "secret", "compensate": {"job_type": "secret"}}, {"key": "f", "job_type": "act", "after": ["n"], "payload": {"end": "fail"}}]', '$id', '$token')});
complete_one($id, $token);
run_is($run, 'error', 'an added step fails');
is(tasks_of($run), 'f:error n:completed n.undo:completed p:completed', 'another one is undone by a job that the definer may not enqueue');
one(q{SELECT jobq.grant_access('definer', 'enqueue', job_types => '{secret}')});
one(q{SELECT jobq.grant_access('definer', 'admin')});
one(q{SET ROLE definer; SELECT jobq.create_workflow('undone', '[{"key": "p", "job_type": "act", "compensate": {"job_type": "secret"}}, {"key": "q", "job_type": "pulled", "after": ["p"]}]',
  on_failure => 'compensate')});
one(q{SELECT jobq.revoke_access('definer', 'admin'), jobq.grant_access('starter', 'enqueue', job_types => '{undone}')});
my $undone = one(q{SET ROLE starter; SELECT jobq.enqueue('undone')});
($id, $token) = claim_one();
one(q{SELECT jobq.revoke_access('definer', 'enqueue', job_types => '{secret}')});
one("SELECT jobq.fail('$id', '$token', 'told to', false)");
run_is($undone, 'error', 'a compensation whose right is revoked');
is(one("SELECT error_code || ' ' || attempts FROM jobq.dead_letters WHERE workflow_id = '$undone' AND task_key = 'p.undo'"), '42501 0', 'is a dead letter without an attempt');
sqlstate_is($node, 'postgres', "SET ROLE acme; SELECT jobq.$_", '42501', "a reader may not call $_") foreach "retry_workflow('$run')", "pause_workflow('$run')", "send_event('$run', 'e')";

# ---------- readers ----------

workflow('shared', '[{"key": "a", "job_type": "act"}, {"key": "e", "event": "go", "after": ["a"]}]');
my ($acme, $beta) = map { start_run('shared', '{}', "tenant => '$_'") } qw(acme beta);
wait_for_sql($node, q{SELECT count(*) = 2 FROM jobq.queue WHERE task_key = 'e' AND started_at IS NOT NULL}, 'two tenants have runs');
foreach my $role (qw(acme beta))
{
	my ($own) = $role eq 'acme' ? $acme : $beta;

	is(one("SET ROLE $role; SELECT string_agg(id::text, ' ') FROM jobq.workflow_runs"), $own, "$role sees its run");
	is(one("SET ROLE $role; SELECT string_agg(id::text, ' ') FROM jobq.runs"), $own, 'and no other row of jobq.runs');
	is(one("SET ROLE $role; SELECT string_agg(DISTINCT workflow_id::text, ' ') FROM jobq.jobs WHERE workflow_id IS NOT NULL"), $own, 'and only its tasks');
}
one("SELECT jobq.send_event(id, 'go') FROM jobq.runs WHERE phase = 'running'");
run_is($_, 'completed') foreach $acme, $beta;
is(one('SET ROLE acme; SELECT string_agg(id::text, \' \') FROM jobq.workflow_runs'), $acme, 'after its end, too');

# Runs that wait for their turn, their timers, events of their tasks.
one(q{SELECT jobq.pause_job_type('shared')});
my %waits = map { $_ => start_run('shared', '{}', "tenant => '$_'") } qw(acme beta);
foreach my $role (qw(acme beta))
{
	is(one("SET ROLE $role; SELECT string_agg(id::text, ' ') FROM jobq.workflow_runs WHERE version IS NULL"), $waits{$role}, "$role sees its run that waits");
	is(one("SET ROLE $role; SELECT string_agg(DISTINCT tenant, ' ') FROM jobq.events WHERE type IN ('enqueued', 'blocked', 'run_started')"), $role, 'and events of its own tasks');
	sqlstate_is($node, 'postgres', "SET ROLE $role; SELECT count(*) FROM jobq.run_timers", '42501', 'and no timer');
}
one("SELECT jobq.cancel_job('$_')") foreach values %waits;
one(q{SELECT jobq.resume_job_type('shared')});

# ---------- quotes ----------

workflow('quotes', q([{"key": "a", "job_type": "act", "payload": {"result": {"it's \"x\"": {"$": "$.input.\"o'clock\""}}}},
  {"key": "e", "event": "it's \"time\"", "after": ["a"]},
  {"key": "b", "job_type": "act", "after": ["e"], "if": "$.tasks.a.result.\"it's \\\\\"x\\\\\"\" == \"\\\\\"'\"", "payload": {"result": {"$": "$.tasks.e.result.\"'\""}}}]));
$run = start_run('quotes', q({"o'clock": "\"'"}));
is(one(qq{SELECT jobq.send_event('$run', 'it''s "time"', '{"''": "'';--"}')}), 't', 'an event with quotes');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), q({"b": "';--"}), 'paths with quotes')
  or diag(one("SELECT string_agg(format('%s %s %s %s %s', task_key, status, error_code, error_msg, result), E'\\n') FROM jobq.jobs WHERE '$run' IN (id, workflow_id)"));

# ---------- sizes ----------

workflow('long', '[' . join(',', map { qq({"key": "s$_", "job_type": "act", "payload": {"result": $_}) . ($_ > 10 ? ', "after": ["s' . ($_ - 10) . '"]' : '') . '}' } 1 .. 1000) . ']');
my $seconds = seconds_of { $run = start_run('long'); run_is($run, 'completed', 'a run of 1,000 steps') };
note "1,000 steps: $seconds s";
is(one("SELECT count(*) FROM jobq.jobs WHERE workflow_id = '$run' AND status = 'completed'"), '1000', 'all tasks');

workflow('big', '[{"key": "m", "job_type": "act", "map": "$.input.list"}, {"key": "b", "job_type": "act", "after": ["m"]}]');
$run = one(q{SELECT jobq.enqueue('big', jsonb_build_object('list', (SELECT jsonb_agg(i) FROM generate_series(1, 100000) i)))});
run_is($run, 'error', 'more elements than jobq.max_tasks');
is(one("SELECT error_code, attempts FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'm'"), '54000|0', 'is 54000, without an attempt');
$run = one(q{SELECT jobq.enqueue('big', jsonb_build_object('list', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 3000) i)))});
run_is($run, 'completed', '3,000 elements');
is(one("SELECT count(*) FROM jobq.jobs WHERE workflow_id = '$run' AND status = 'completed'"), '3002', 'all tasks');
workflow('two_maps', '[{"key": "m", "job_type": "act", "map": "$.input.list"}, {"key": "n", "job_type": "act", "after": ["m"], "map": "$.input.list"}]');
foreach my $case ([ 1500, 'completed' ], [ 1501, 'error' ])
{
	my ($n, $status) = @$case;

	$run = one("SELECT jobq.enqueue('two_maps', jsonb_build_object('list', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, $n) i)))");
	run_is($run, $status, "two maps of $n elements: $status");
}
is(one("SELECT string_agg(task_key || ' ' || error_code, ', ') FROM jobq.dead_letters WHERE workflow_id = '$run'"), 'n 54000', 'together they have too many');
is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/WARNING:  jobq|terminated by|PANIC|TRAP/, 'no warnings');

done_testing();
