# Each key of a step, as the contract words it: rules, conditions, payloads, maps, delays, events,
# joins, workflows as steps, on_failure, compensation.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('steps');

# ---------- rules ----------

my $children = join ', ', map { qq({"key": "$_", "job_type": "act", "after": ["p"], "rule": "$_"}) } qw(success done any failed);
workflow('rules', qq([{"key": "p", "job_type": "act", "if": "\$.input.if == true", "payload": {"end": {"\$": "\$.input.end", "default": null}}}, $children]), "on_failure => 'continue'");
workflow('rules_stop', qq([{"key": "p", "job_type": "act", "payload": {"end": {"\$": "\$.input.end", "default": null}}}, $children]));

tasks_are('rules', '{"if": true}', 'completed', 'any:completed done:completed failed:skipped p:completed success:completed', 'a step completes');
tasks_are('rules', '{"if": false}', 'completed', 'any:skipped done:completed failed:skipped p:skipped success:skipped', 'a step is skipped by its condition');
tasks_are('rules', '{"if": true, "end": "skip"}', 'completed', 'any:skipped done:completed failed:skipped p:skipped success:skipped', 'a step is skipped by its handler');
tasks_are('rules', '{"if": true, "end": "fail"}', 'completed', 'any:skipped done:completed failed:completed p:error success:skipped', 'a step fails, continue');
my $run = start_run('rules_stop', '{"end": "fail"}');
run_is($run, 'error', 'a step fails, stop');
# the run may be looked at before the step any
like(tasks_of($run), qr/^any:(skipped|cancelled) done:completed failed:completed p:error success:cancelled$/, 'only the rules done and failed start');
is(one("SELECT error_code, error_msg FROM jobq.jobs WHERE id = '$run'"), 'task_failed|task "p": told to', 'the run is a dead letter');

workflow('both', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "if": "false == true"}, {"key": "c", "job_type": "act", "after": ["a", "b"]},
  {"key": "d", "job_type": "act", "after": ["b", "c"], "rule": "any"}]');
tasks_are('both', '{}', 'completed', 'a:completed b:skipped c:completed d:completed', 'one parent of two is skipped');

# ---------- conditions ----------

workflow('cond', '[{"key": "a", "job_type": "act", "if": "$.input.x > 1"}]');
tasks_are('cond', '{"x": 2}', 'completed', 'a:completed', 'if: true');
tasks_are('cond', '{"x": 1}', 'completed', 'a:skipped', 'if: false');
tasks_are('cond', '{"x": "a"}', 'completed', 'a:skipped', 'if: null');
workflow('cond_bad', '[{"key": "a", "job_type": "act", "if": "$.input.x"}]');
$run = tasks_are('cond_bad', '{"x": 7}', 'error', 'a:error', 'if: not a predicate');
is(one("SELECT error_code, attempts FROM jobq.jobs WHERE workflow_id = '$run'"), 'bad_input|0', 'is bad_input, without an attempt');

# ---------- payloads ----------

workflow('data', '[{"key": "a", "job_type": "act", "payload": {"result": {"x": {"$": "$.input.x"}, "all": {"$[]": "$.input.list[*]"}, "d": {"$": "$.input.none", "default": 5}}}},
  {"key": "b", "job_type": "act", "after": ["a"], "payload": {"result": {"from": {"$": "$.tasks.a.result.x"}, "status": {"$": "$.tasks.a.status"}, "run": {"$": "$.run.workflow"}}}},
  {"key": "c", "job_type": "act", "after": ["b"]}]');
$run = tasks_are('data', '{"x": 3, "list": [1, 2]}', 'completed', 'a:completed b:completed c:completed', 'payloads');
is(one("SELECT string_agg(payload::text, ' ' ORDER BY key) FROM ran WHERE run = '$run'"),
	'{"result": {"d": 5, "x": 3, "all": [1, 2]}} {"result": {"run": "data", "from": 3, "status": "completed"}} {}', 'are filled; without one it is {}');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"c": null}', 'the result is that of the last steps');
$run = tasks_are('data', '{"list": []}', 'error', 'a:error b:cancelled c:cancelled', 'a path without item');
is(one("SELECT error_code, attempts FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'a'"), 'bad_input|0', 'is bad_input, without an attempt');
workflow('out', '[{"key": "a", "job_type": "act", "payload": {"result": 7}}, {"key": "b", "job_type": "act"}]', q{output => '{"sum": {"$": "$.tasks.a.result + 1"}}'});
$run = start_run('out');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"sum": 8}', 'output');

# A path that reads $.tasks as a whole, or $, finds the steps before, each once and no other; one
# that names a task whose key is in another one's does, too.
workflow('wholes', '[{"key": "aa", "job_type": "act", "payload": {"result": 1}}, {"key": "a", "job_type": "act", "after": ["aa"], "payload": {"result": 2}},
  {"key": "side", "job_type": "act", "payload": {"result": "side"}},
  {"key": "all", "job_type": "act", "after": ["a"], "payload": {"result": {"stars": {"$[]": "$.tasks.*.result"}, "keys": {"$[]": "$.tasks.keyvalue().key"},
    "root": {"$[]": "$.keyvalue().key"}, "one": {"$": "$.tasks.a"}, "if": {"$[]": "$ ? (exists(@.tasks.aa)).tasks.a.result"}}}},
  {"key": "none", "job_type": "act", "after": ["side"], "payload": {"result": {"$": "$"}}},
  {"key": "members", "job_type": "act", "after": ["a"], "map": "$.input.list", "payload": {"result": {"$[]": "$.tasks.*.result"}}},
  {"key": "picked", "job_type": "act", "after": ["all"], "if": "exists($.tasks.* ? (@.result == 1))"}]',
  q{output => '{"stars": {"$[]": "$.tasks.*.status"}}'});
$run = tasks_are('wholes', '{"list": [0]}', 'completed', 'a:completed aa:completed all:completed members:completed members.0:completed none:completed picked:completed side:completed', 'paths over all tasks');
is(one("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'all'"),
	'{"if": [2], "one": {"error": null, "result": 2, "status": "completed", "artifacts": []}, "keys": ["a", "aa"], "root": ["run", "input", "tasks"], "stars": [2, 1]}', 'read the steps before');
is(one("SELECT result - 'run' FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'none'"),
	'{"input": {"list": [0]}, "tasks": {"side": {"error": null, "result": "side", "status": "completed", "artifacts": []}}}', '$ is the whole context');
is(one("SELECT t.result -> 'run' = jsonb_build_object('id', j.id, 'workflow', 'wholes', 'version', 1, 'created_at', j.created_at, 'tenant', j.tenant, 'metadata', j.metadata)
  FROM jobq.jobs j, LATERAL (SELECT t.result FROM jobq.jobs t WHERE t.workflow_id = j.id AND t.task_key = 'none') t WHERE j.id = '$run'"), 't', 'with the run');
is(one("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'members'"), '[[2, 1]]', 'of a map, too');
is(one("SELECT jsonb_array_length(result -> 'stars') FROM jobq.jobs WHERE id = '$run'"), '7', 'and of the output');
one(q{CREATE FUNCTION adds_reader(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
  PERFORM jobq.add_tasks('[{"key": "more", "job_type": "act", "payload": {"result": 3}},
    {"key": "reader", "job_type": "act", "after": ["more"], "payload": {"result": {"$[]": "$.tasks.*.result"}}}]'); RETURN '1'; END $$;
  SELECT jobq.create_job_type('adds_reader', 'adds_reader(jsonb)')});
workflow('reader', '[{"key": "p", "job_type": "adds_reader"}, {"key": "z", "job_type": "act", "after": ["p"], "payload": {"result": {"$[]": "$.tasks.*.result"}}}]');
$run = start_run('reader');
run_is($run, 'completed', 'steps that a task adds');
is(one("SELECT string_agg(task_key || ' ' || result, ', ' ORDER BY task_key) FROM jobq.jobs WHERE workflow_id = '$run' AND task_key IN ('reader', 'z')"), 'reader [3], z [1, 3, [3]]', 'read what is before them, and are read');
my $graph = one("SELECT jobq.graph(id => '$run')");
like($graph, qr/"more<br>act"\].*"reader<br>act"\]/s, 'the graph of the run has them');
like($graph, qr/class s3 completed/, 'with their statuses');
unlike(one(q{SELECT jobq.graph('reader')}), qr/more/, 'that of the workflow has not');

# ---------- maps ----------

workflow('map', '[{"key": "m", "job_type": "act", "map": "$.input.list"}, {"key": "j", "after": ["m"]},
  {"key": "r", "job_type": "act", "after": ["j"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
$run = tasks_are('map', '{"list": [{"result": "x"}, {"result": 2}, {"result": null}]}', 'completed',
	'j:completed m:completed m.0:completed m.1:completed m.2:completed r:completed', 'a map');
is(one("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'r'"), '["x", 2, null]', 'its results in order');
$run = tasks_are('map', '{"list": []}', 'completed', 'j:completed m:completed r:completed', 'a map of nothing');
is(one("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'm'"), '[]', 'its result');
$run = tasks_are('map', '{"list": {"a": 1}}', 'error', 'j:cancelled m:error r:cancelled', 'a map of no array');
is(one("SELECT error_code, attempts FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'm'"), 'bad_input|0', 'is bad_input');
$run = tasks_are('map', '{"list": [{"result": 1}, {"end": "fail"}, {"result": 3}]}', 'error',
	'j:cancelled m:error m.0:completed m.1:error m.2:completed r:cancelled', 'a member fails, stop');
workflow('map_on', '[{"key": "m", "job_type": "act", "map": "$.input.list", "on_failure": "continue", "payload": {"result": {"$": "$.item.v"}, "end": {"$": "$.item.e", "default": null}, "i": {"$": "$.index"}}},
  {"key": "r", "job_type": "act", "after": ["m"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
$run = tasks_are('map_on', '{"list": [{"v": 1}, {"v": 2, "e": "fail"}, {"v": 3, "e": "skip"}, {"v": 4}]}', 'completed',
	'm:completed m.0:completed m.1:error m.2:skipped m.3:completed r:completed', 'a member fails, continue');
is(one("SELECT result FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'r'"), '[1, null, 3, 4]', 'null where it failed');
is(one("SELECT string_agg(payload ->> 'i', ',' ORDER BY key) FROM ran WHERE run = '$run' AND key LIKE 'm.%'"), '0,2,3', 'index');

# The payload of an element reads the input by whatever path.
foreach my $path ('$.input.x', '$."input".x', '$."\\\\u0069nput".x', '$."in\\\\u0070ut".x', '$.*.x', '$[*].input.x')
{
	workflow('reads_input', qq([{"key": "m", "job_type": "act", "map": "\$.input.list", "payload": {"result": {"\$": "@{[ $path =~ s/"/\\"/gr ]}"}}}]));
	$run = start_run('reads_input', '{"x": 7, "list": [1, 2]}');
	run_is($run, 'completed', "elements read $path");
	is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [7, 7]}', 'of the input');
}

workflow('window', '[{"key": "m", "job_type": "pulled", "map": "$.input.list", "max_parallel": 2}]');
$run = start_run('window', '{"list": [0, 1, 2, 3, 4]}');
my $most = 0;
for my $i (0 .. 4)
{
	my ($id, $token, $item) = claim_one();
	my $live = one("SELECT count(*) FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm._'");

	$most = $live if $live > $most;
	wait_for_sql($node, "SELECT count(*) = 2 FROM jobq.queue WHERE workflow_id = '$run' AND task_key LIKE 'm._'", "two of them are there, $i have ended") if $i < 4;
	complete_one($id, $token, $item);
}
run_is($run, 'completed', 'a window');
is($most, 2, 'max_parallel is kept');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [0, 1, 2, 3, 4]}', 'in order');

# ---------- artifacts ----------

$node->safe_psql('postgres', <<'END');
CREATE FUNCTION make(p jsonb) RETURNS jsonb LANGUAGE sql AS
  $$ SELECT to_jsonb(count(jobq.record_artifact(n, 'log', 'b', 3, 'text/plain', 'sha256:' || repeat('a', 64), '{"x": 1}'))) FROM jsonb_array_elements_text(p) n $$;
SELECT jobq.create_job_type('make', 'make(jsonb)'),
  jobq.create_job_type('tool', max_attempts => 2, backoff_base => '0', options => '{"output": "none"}', command => ARRAY['sh', '-c', 'read list; for key in $(echo "$list" | tr -dc "a-z "); do
    echo "{\"artifact\": {\"key\": \"$key$JOBQ_ATTEMPT\"}}" >&3; done; test $JOBQ_ATTEMPT = 2']);
END
my $made = '{"result": {"$": "$.tasks.m.artifacts"}}';
workflow('made', qq([{"key": "m", "job_type": "make", "payload": ["x", "y"]}, {"key": "p", "job_type": "act", "after": ["m"], "payload": $made}]));
$run = start_run('made');
run_is($run, 'completed', 'artifacts in a payload');
is(one("SELECT result -> 'p' FROM jobq.jobs WHERE id = '$run'"),
	'[' . join(', ', map { qq({"key": "$_", "data": {"x": 1}, "kind": "log", "bucket": "b", "checksum": "sha256:) . 'a' x 64 . '", "size_bytes": 3, "content_type": "text/plain"}' } qw(x y)) . ']',
	'have the arguments of record_artifact');
workflow('made_twice', qq([{"key": "m", "job_type": "tool", "payload": ["a", "b"]}, {"key": "n", "job_type": "act"}, {"key": "p", "job_type": "act", "after": ["m", "n"],
  "payload": {"result": {"keys": {"\$[]": "\$.tasks.m.artifacts[*].key"}, "none": {"\$": "\$.tasks.n.artifacts"}}}}]));
$run = start_run('made_twice');
run_is($run, 'completed', 'of a tool whose first attempt failed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"p": {"keys": ["a2", "b2"], "none": []}}', 'are those of its last attempt');
workflow('made_map', qq([{"key": "m", "job_type": "make", "map": "\$.input"}, {"key": "m-2", "job_type": "make", "payload": ["other"]},
  {"key": "p", "job_type": "act", "after": ["m", "m-2"], "payload": {"result": {"\$[]": "\$.tasks.m.artifacts[*].key"}}}]));
$run = start_run('made_map', '[' . join(', ', map { "[\"k$_\"]" } 0 .. 11) . ']');
run_is($run, 'completed', 'of a map');
is(one("SELECT result ->> 'p' FROM jobq.jobs WHERE id = '$run'"), '[' . join(', ', map { "\"k$_\"" } 0 .. 11) . ']', 'are those of its tasks, in order');

# ---------- delays, events, joins ----------

workflow('sleep', '[{"key": "a", "job_type": "act"}, {"key": "s", "after": ["a"], "delay": "1s"}, {"key": "b", "job_type": "act", "after": ["s"]},
  {"key": "c", "job_type": "act", "after": ["a"], "delay": "1s"}]');
$run = tasks_are('sleep', '{}', 'completed', 'a:completed b:completed c:completed s:completed', 'delays');
is(one("SELECT bool_and(r.at >= a.at + interval '1s') FROM ran r, ran a WHERE r.run = '$run' AND r.key IN ('b', 'c') AND a.run = '$run' AND a.key = 'a'"), 't', 'last as long');

workflow('event', '[{"key": "e", "event": "approved", "timeout": "1h"}, {"key": "b", "job_type": "act", "after": ["e"], "payload": {"result": {"$": "$.tasks.e.result"}}}]');
$run = start_run('event');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'e' AND started_at IS NOT NULL)", 'the run waits for its event');
is(one("SELECT jobq.send_event('$run', 'other'), jobq.send_event('$run', 'approved', '{\"by\": 1}'), jobq.send_event('$run', 'approved', '{\"by\": 2}')"), 't|t|f', 'send_event, twice');
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"b": {"by": 1}}', 'its data');
is(one("SELECT jobq.send_event('$run', 'late')"), 'f', 'an event after the end');
is(one("SELECT count(*) FROM jobq.events WHERE job_id = '$run' AND type = 'event_received'"), '2', 'events of events');
workflow('event_later', '[{"key": "p", "job_type": "pulled"}, {"key": "e", "event": "go", "after": ["p"]}, {"key": "b", "job_type": "act", "after": ["e"], "payload": {"result": {"$": "$.tasks.e.result"}}}]');
$run = start_run('event_later');
my ($id, $token) = claim_one();
is(one("SELECT jobq.send_event('$run', 'go', '\"early\"')"), 't', 'an event before its step');
complete_one($id, $token);
run_is($run, 'completed');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"b": "early"}', 'is kept');
workflow('event_timeout', '[{"key": "e", "event": "never", "timeout": "1s"}, {"key": "b", "job_type": "act", "after": ["e"]}]');
$run = tasks_are('event_timeout', '{}', 'error', 'b:cancelled e:error', 'no event in time');
is(one("SELECT error_code FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 'e'"), 'timeout', 'error_code');

workflow('join', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act"}, {"key": "j", "after": ["a", "b"]}]');
tasks_are('join', '{}', 'completed', 'a:completed b:completed j:completed', 'a join');

# ---------- backoff, snooze ----------

# Tasks wait as other jobs do.
workflow('later', '[{"key": "a", "job_type": "act", "payload": {"end": "once"}, "max_attempts": 2, "backoff": {"type": "fixed", "base": "1h"}}, {"key": "p", "job_type": "pulled", "max_attempts": 2}]');
$run = start_run('later');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run' AND task_key = 'a' AND runs > 0)", 'a task has failed');
($id, $token) = claim_one();
is(one("SELECT jobq.snooze_job('$id', '$token', '1h')"), 't', 'a task is snoozed');
my @markers = (one(q{SELECT jobq.enqueue('act')}), one(q{SELECT jobq.enqueue('pulled')}));
is(ended($markers[0]), 'completed', 'another job ends');
my @next = claim_one();
is($next[0], $markers[1], 'another job is claimed');
complete_one(@next[0, 1]);
is(one("SELECT string_agg(format('%s %s %s %s', task_key, status, attempts, scheduled_for > now() + interval '50 min'), ', ' ORDER BY task_key) FROM jobq.jobs WHERE workflow_id = '$run'"),
	'a retry 1 t, p pending 0 t', 'both wait');
one("SELECT jobq.cancel_job('$run')");
run_is($run, 'cancelled');

# ---------- workflows as steps ----------

workflow('inner', '[{"key": "x", "job_type": "act", "payload": {"end": {"$": "$.input.end", "default": null}, "result": {"$": "$.input.v", "default": 1}}}]');
workflow('outer', '[{"key": "s", "job_type": "inner", "payload": {"end": {"$": "$.input.end", "default": null}, "v": 5}},
  {"key": "b", "job_type": "act", "after": ["s"], "payload": {"result": {"$": "$.tasks.s.result"}}}]');
$run = tasks_are('outer', '{}', 'completed', 'b:completed s:completed', 'a workflow as a step');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"b": {"x": 5}}', 'its result');
$run = tasks_are('outer', '{"end": "fail"}', 'error', 'b:cancelled s:error', 'it fails');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'task_failed', 'with its run');
workflow('inner_map', '[{"key": "m", "job_type": "inner", "map": "$.input.list"}]');
$run = tasks_are('inner_map', '{"list": [{"v": 1}, {"v": 2}, {"v": 3}]}', 'completed', 'm:completed m.0:completed m.1:completed m.2:completed', 'a map of workflows');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"m": [{"x": 1}, {"x": 2}, {"x": 3}]}', 'its result');

# One alert for a run that fails, none for the runs, maps and tasks in it.
sub alerts { return one("SELECT coalesce(string_agg(job_type || ' ' || severity, ', ' ORDER BY ts), 'none') FROM jobq.alerts"); }
one(q{SELECT jobq.alter_job_type('inner', critical => true), jobq.alter_job_type('outer', options => '{"alert": false}')});
my $alerts = alerts();
$run = tasks_are('inner_map', '{"list": [{"v": 1}, {"end": "fail"}, {"end": "fail"}]}', 'error', 'm:error m.0:completed m.1:error m.2:error', 'a map of runs, two of which fail');
is(alerts(), "$alerts, inner_map warning", 'the outer run alone raises an alert');
run_is(start_run('outer', '{"end": "fail"}'), 'error', 'a run whose type raises no alerts');
is(alerts(), "$alerts, inner_map warning", 'nor does the run in it');
run_is(start_run('inner', '{"end": "fail"}'), 'error', 'a run of the inner workflow by itself');
is(alerts(), "$alerts, inner_map warning, inner high", 'raises its own');

# ---------- on_failure ----------

workflow('step_on', '[{"key": "a", "job_type": "act", "payload": {"end": "fail"}, "on_failure": "continue"}, {"key": "b", "job_type": "act", "after": ["a"]},
  {"key": "c", "job_type": "act", "after": ["a"], "rule": "done"}, {"key": "d", "job_type": "act", "after": ["b", "c"]}]');
tasks_are('step_on', '{}', 'completed', 'a:error b:skipped c:completed d:completed', 'continue at a step');
workflow('step_stop', '[{"key": "a", "job_type": "act", "payload": {"end": "fail"}, "on_failure": "stop"}, {"key": "b", "job_type": "act", "after": ["a"]}]', q{on_failure => 'continue'});
tasks_are('step_stop', '{}', 'error', 'a:error b:cancelled', 'stop at a step');
workflow('stops', '[{"key": "a", "job_type": "pulled", "payload": "a"}, {"key": "p", "job_type": "pulled"}, {"key": "q", "job_type": "act", "after": ["p"], "rule": "failed"}, {"key": "b", "job_type": "act", "after": ["p"]},
  {"key": "d", "job_type": "act", "after": ["p"], "rule": "done"}]');
$run = start_run('stops');
my @claimed = ([ claim_one() ], [ claim_one() ]);
my ($first, $other) = sort { ($b->[2] eq '"a"') <=> ($a->[2] eq '"a"') } @claimed;
one("SELECT jobq.fail('$first->[0]', '$first->[1]', 'told to')");
($id, $token) = @$other;
wait_for_sql($node, "SELECT phase = 'failing' FROM jobq.runs WHERE id = '$run'", 'the run fails while a task runs');
is(one("SELECT status, cancel_requested IS NOT DISTINCT FROM true FROM jobq.queue WHERE id = '$id'"), 'running|f', 'which may end');
complete_one($id, $token);
run_is($run, 'error');
is(tasks_of($run), 'a:error b:cancelled d:completed p:completed q:skipped', 'only done and failed tasks still start');

# ---------- compensation ----------

workflow('saga', '[{"key": "a", "job_type": "act", "payload": {"result": "A"}, "compensate": {"job_type": "act", "payload": {"undo": {"$": "$.tasks.a.result"}}}},
  {"key": "b", "job_type": "act", "after": ["a"], "payload": {"result": "B"}, "compensate": {"job_type": "act", "payload": {"undo": {"$": "$.tasks.b.result"}}}},
  {"key": "c", "job_type": "act", "after": ["b"], "payload": {"end": {"$": "$.input.end", "default": null}}, "compensate": {"job_type": "act"}},
  {"key": "w", "job_type": "pulled", "after": ["c"]}]', q{on_failure => 'compensate'});
$run = tasks_are('saga', '{"end": "fail"}', 'error', 'a:completed a.undo:completed b:completed b.undo:completed c:error w:cancelled', 'compensation');
is(one("SELECT string_agg(key || (payload ->> 'undo'), ' ' ORDER BY seq) FROM ran WHERE run = '$run' AND key LIKE '%.undo'"), 'b.undoB a.undoA', 'the newest first');
is(one("SELECT error_code FROM jobq.jobs WHERE id = '$run'"), 'task_failed', 'the error stays');
sqlstate_is($node, 'postgres', "SELECT jobq.retry_workflow('$run')", '55000', 'it can not be retried');
$run = start_run('saga');
($id, $token) = claim_one();
is(one("SELECT jobq.cancel_job('$run')"), 't', 'cancel of such a run');
wait_for_sql($node, "SELECT cancel_requested FROM jobq.queue WHERE id = '$id'", 'its task is told');
is(one("SELECT phase FROM jobq.runs WHERE id = '$run'"), 'cancelling', 'compensation waits for it');
one("SELECT jobq.fail('$id', '$token', 'gives up')");
run_is($run, 'cancelled');
is(one("SELECT string_agg(key, ' ' ORDER BY seq) FROM ran WHERE run = '$run' AND key LIKE '%.undo'"), 'c.undo b.undo a.undo', 'a cancel compensates');
workflow('chain', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "pulled"}}, {"key": "b", "job_type": "act", "after": ["a"], "compensate": {"job_type": "pulled"}},
  {"key": "c", "job_type": "act", "after": ["b"], "compensate": {"job_type": "pulled"}}, {"key": "e", "event": "never", "after": ["c"]}]', q{on_failure => 'compensate'});
$run = start_run('chain');
wait_for_sql($node, "SELECT EXISTS (SELECT FROM jobq.queue WHERE workflow_id = '$run' AND after_state = 4)", 'a run waits');
one("SELECT jobq.cancel_job('$run')");
my @undone;
foreach my $call ('fail', 'complete', 'complete')
{
	($id, $token) = claim_one();
	push @undone, one("SELECT task_key FROM jobq.jobs WHERE id = '$id'");
	is(one("SELECT string_agg(DISTINCT status::text, ' ') FROM jobq.jobs WHERE workflow_id = '$run' AND task_key LIKE '%.undo' AND id <> '$id' AND completed_at IS NULL"),
		@undone < 3 ? 'blocked' : '', 'one compensation at a time');
	is(one("SELECT phase FROM jobq.runs WHERE id = '$run'"), 'compensating', 'the run waits for it');
	one("SELECT jobq.$call('$id', '$token'" . ($call eq 'fail' ? q{, 'no')} : ')'));
}
is("@undone", 'c.undo b.undo a.undo', 'each behind the one before it, also behind one that failed');
run_is($run, 'cancelled', 'a run that was cancelled, after its compensations');
is(tasks_of($run), 'a:completed a.undo:completed b:completed b.undo:completed c:completed c.undo:error e:cancelled', 'what they did');

# ---------- the timeout of a step that is a workflow ----------

workflow('hangs', '[{"key": "e", "event": "never"}]');
workflow('bounds', '[{"key": "s", "job_type": "hangs", "timeout": "1s", "on_failure": "continue"}, {"key": "z", "job_type": "act", "after": ["s"], "rule": "failed"}]');
$run = tasks_are('bounds', '{}', 'completed', 's:error z:completed', 'is the deadline of its run');
is(one("SELECT error_code FROM jobq.jobs WHERE workflow_id = '$run' AND task_key = 's'"), 'timeout', 'its code');

is(one("SELECT count(*) FROM jobq.runs WHERE phase <> 'ended'"), '0', 'all runs have ended');
is(one('SELECT count(*) FROM jobq.dependencies'), '0', 'no edge is left');
is(one('SELECT count(*) FROM jobq.queue'), '0', 'no row is left');
unlike(slurp_file($node->logfile), qr/WARNING:  jobq|terminated by|PANIC|TRAP/, 'no warnings');

done_testing();
