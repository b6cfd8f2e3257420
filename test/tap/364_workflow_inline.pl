# jobq.run_inline of a run: all its tasks run in the caller's transaction, which nothing else sees.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('inline');

# Runs a new run in a transaction that is rolled back; returns its status, its error code and its
# result, its tasks, and what they have done in that order.
sub inline
{
	my ($workflow, $payload, $before) = @_;
	my $sql = 'BEGIN; ' . ($before // '') . "SELECT jobq.enqueue('$workflow', '" . ($payload // '{}') . "') AS run \\gset\n"
	  . q{SELECT concat_ws(' ', status, error_code, result::text) FROM jobq.run_inline(:'run');
SELECT coalesce(string_agg(task_key || ':' || status, ' ' ORDER BY task_key COLLATE "C"), '') FROM jobq.jobs WHERE workflow_id = :'run';
SELECT coalesce(string_agg(key, ' ' ORDER BY seq), '') FROM ran;
SELECT count(*) FROM jobq.queue; SELECT count(*) FROM jobq.dependencies;
ROLLBACK};

	return join('|', split /\n/, one($sql));
}

sub refused_inline
{
	my ($workflow, $payload, $what) = @_;

	return sqlstate_is($node, 'postgres', "SELECT jobq.run_inline(jobq.enqueue('$workflow', '$payload'))", '0A000', $what);
}

# ---------- steps in order ----------

workflow('line', '[{"key": "c", "job_type": "act", "after": ["b"], "payload": {"result": {"$": "$.tasks.b.result"}}}, {"key": "b", "job_type": "act", "after": ["a"],
  "payload": {"result": {"$": "$.tasks.a.result"}}}, {"key": "a", "job_type": "act", "payload": {"result": {"$": "$.input.n"}}}]');
is(inline('line', '{"n": 5}'), 'completed {"c": 5}|a:completed b:completed c:completed|a b c|0|0', 'a row of steps');
workflow('wide', '[{"key": "a", "job_type": "act"}, {"key": "m", "job_type": "act", "map": "$.input.list", "after": ["a"], "max_parallel": 2}, {"key": "no", "job_type": "act", "if": "$.input.no == 1"},
  {"key": "j", "after": ["m", "no"]}, {"key": "z", "job_type": "act", "after": ["j"], "payload": {"result": {"$": "$.tasks.m.result"}}}]');
# the first map of this session: its functions are read now
workflow('mapped', '[{"key": "m", "job_type": "act", "map": "$.input.list", "payload": {"result": {"$": "$.item"}}}]');
my $standard = $node->safe_psql('postgres', 'SHOW server_version_num') >= 190000;   # only standard strings
like(inline('mapped', '{"list": [4]}', $standard ? '' : 'SET LOCAL standard_conforming_strings = off; '),
	qr/^completed [{]"m": .4/, 'in a session with backslashes in strings');
is(inline('wide', '{"list": [{"result": 1}, {"result": 2}, {"result": 3}]}'),
	'completed {"z": [1, 2, 3]}|a:completed j:completed m:completed m.0:completed m.1:completed m.2:completed no:skipped z:completed|a m.0 m.1 m.2 z|0|0',
	'a map, a condition, a join');
is(inline('wide', '{"list": []}'), 'completed {"z": []}|a:completed j:completed m:completed no:skipped z:completed|a z|0|0', 'an empty map');
workflow('outer', '[{"key": "s", "job_type": "line", "payload": {"n": 7}}, {"key": "t", "job_type": "act", "after": ["s"], "payload": {"result": {"$": "$.tasks.s.result.c"}}}]');
is(inline('outer'), 'completed {"t": 7}|s:completed t:completed|a b c t|0|0', 'a workflow as step');
my $big = '[' . join(',', map { '{}' } 1 .. 300) . ']';
like(inline('wide', qq({"list": $big})), qr/^completed /, 'a map of 300');

# ---------- failures ----------

workflow('fails', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": {"$": "$.input.end"}}, "max_attempts": 2, "backoff": {"type": "fixed", "base": "0s"}}, {"key": "c", "job_type": "act", "after": ["b"]},
  {"key": "d", "job_type": "act", "after": ["b"], "rule": "failed"}]');
is(inline('fails', '{"end": "fail"}'), 'error task_failed|a:completed b:error c:cancelled d:completed|a d|0|0', 'a task fails for good');
is(inline('fails', '{"end": "once"}'), 'completed {"c": null}|a:completed b:completed c:completed d:skipped|a b c|0|0', 'one that fails is retried at once');
is(inline('fails', '{"end": "skip"}'), 'completed {}|a:completed b:skipped c:skipped d:skipped|a b|0|0', 'one skips itself');
is(inline('fails', '{}'), 'error task_failed|a:completed b:error c:cancelled d:completed|a d|0|0', 'bad data');
workflow('saga', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "act", "payload": {"result": "undone"}}}, {"key": "b", "job_type": "act", "after": ["a"], "payload": {"end": "fail"}}]', q{on_failure => 'compensate'});
is(inline('saga'), 'error task_failed|a:completed a.undo:completed b:error|a a.undo|0|0', 'a compensation');

# ---------- tasks that add tasks ----------

one(q{CREATE FUNCTION adds(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM jobq.add_tasks(p -> 'steps'); END $$;
SELECT jobq.create_job_type('adds', 'adds(jsonb)', max_attempts => 1)});
workflow('grows', '[{"key": "a", "job_type": "adds", "payload": {"steps": {"$": "$.input.steps"}}}, {"key": "z", "job_type": "act", "after": ["a"]}]');
is(inline('grows', '{"steps": [{"key": "x", "job_type": "act"}, {"key": "y", "job_type": "act", "after": ["x"]}]}'),
	'completed {"z": null}|a:completed x:completed y:completed z:completed|x y z|0|0', 'added tasks run, too');
refused_inline('grows', '{"steps": [{"key": "x", "job_type": "pulled"}]}', 'an added task for a client');
refused_inline('grows', '{"steps": [{"key": "x", "event": "go"}]}', 'an added step that waits for an event');

# ---------- tasks that act on themselves and on their run ----------

one(q{CREATE FUNCTION acts(p jsonb) RETURNS void LANGUAGE plpgsql AS $$ DECLARE j jobq.jobs := jobq.current_job(); BEGIN EXECUTE p ->> 'sql' USING j.id, j.workflow_id; END $$;
SELECT jobq.create_job_type('acts', 'acts(jsonb)', max_attempts => 1)});
workflow('self', '[{"key": "a", "job_type": "acts", "payload": {"sql": {"$": "$.input.sql"}}}, {"key": "b", "job_type": "act", "after": ["a"]}]');
is(inline('self', q({"sql": "SELECT jobq.cancel_job($2, ''enough'')"})), 'cancelled|a:completed b:cancelled||0|0', 'a task cancels its run');
is(inline('self', q({"sql": "SELECT jobq.cancel_job($1)"})), 'completed {"b": null}|a:completed b:completed|b|0|0', 'a cancel of itself comes too late');
refused_inline('self', q({"sql": "SELECT jobq.pause_workflow($2)"}), 'a task that pauses its run');
is(one(q{BEGIN; SELECT status FROM jobq.run_inline(jobq.enqueue('acts', '{"sql": "SELECT jobq.enqueue(''acts'', unique_key => ''k'', on_conflict => ''replace'')"}', unique_key => 'k')); ROLLBACK}),
	'completed', 'one that enqueues its unique key again');

# ---------- refusals ----------

workflow('pulls', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "pulled", "after": ["a"]}]');
one(q{SELECT jobq.create_job_type('tool', command => '{cat}')});
workflow('tools', '[{"key": "a", "job_type": "tool"}]');
workflow('waits', '[{"key": "e", "event": "go"}]');
workflow('sleeps', '[{"key": "d", "delay": "1 s"}]');
workflow('late', '[{"key": "d", "job_type": "act", "delay": "1 s"}]');
workflow('undoes', '[{"key": "a", "job_type": "act", "compensate": {"job_type": "pulled"}}]', q{on_failure => 'compensate'});
workflow('deep', '[{"key": "s", "job_type": "pulls"}]');
refused_inline($_, '{}', "workflow $_") foreach qw(pulls tools waits sleeps late undoes deep);
is(one('SELECT count(*) FROM ran'), '0', 'nothing of them stays');
one(q{CREATE FUNCTION dozes(p jsonb) RETURNS void LANGUAGE sql AS $$ SELECT jobq.snooze('1 s') $$; SELECT jobq.create_job_type('dozes', 'dozes(jsonb)')});
workflow('doze', '[{"key": "a", "job_type": "dozes"}]');
refused_inline('doze', '{}', 'a task that snoozes');
my ($blocked) = one(q{WITH a AS (SELECT jobq.enqueue('act', delay => '1 day') AS id) SELECT jobq.enqueue('line', '{"n": 1}', after => ARRAY[id]) FROM a});
sqlstate_is($node, 'postgres', "SELECT jobq.run_inline('$blocked')", '55000', 'a run that waits for a job');
is(one(q{DO $$ BEGIN PERFORM jobq.run_inline(jobq.enqueue('waits')); EXCEPTION WHEN feature_not_supported THEN NULL; END $$;
SELECT current_user = session_user, current_setting('search_path')}), 't|"$user", public', 'an error leaves the caller its role and settings');

# ---------- a committed run ----------

one(q{SELECT jobq.pause_job_type('line')});
my $run = start_run('line', '{"n": 3}');
is(one(qq{BEGIN; SELECT status FROM jobq.run_inline('$run'); COMMIT}), 'completed', 'a run that was committed before');
is(one("SELECT status, result FROM jobq.jobs WHERE id = '$run'"), 'completed|{"c": 3}', 'has ended');
is(tasks_of($run), 'a:completed b:completed c:completed', 'with its tasks');
is(one("SELECT version, progress, tasks FROM jobq.workflow_runs WHERE id = '$run'"), '1|100.0000000000000000|{"completed": 3}', 'as jobq.workflow_runs shows');
is(one("SELECT string_agg(worker, ' ') FROM jobq.jobs WHERE workflow_id = '$run'"), 'inline inline inline', 'in this session');
$run = start_run('line', '{"n": 4}');
is(one(qq{BEGIN; SELECT status FROM jobq.run_inline('$run'); ROLLBACK; SELECT status FROM jobq.jobs WHERE id = '$run'}), "completed\npending", 'and can be taken back');
one(q{SELECT jobq.resume_job_type('line')});
run_is($run, 'completed', 'then the conductor runs it');
is(one("SELECT count(*), count(DISTINCT key) FROM ran WHERE run = '$run'"), '3|3', '!each task once');
my $child = one(qq{BEGIN; SELECT jobq.enqueue('line', '{"n": 1}') AS run \\gset
SELECT jobq.enqueue('act', '{"result": 9}', after => ARRAY[:'run'::uuid]) AS child \\gset
SELECT FROM jobq.run_inline(:'run'); COMMIT; SELECT :'child'});
is(ended((split /\n/, $child)[-1]), 'completed', 'a job behind the run is released when it has committed');

# A failed run is retried in a transaction, too.
$run = tasks_are('fails', '{"end": "fail"}', 'error', 'a:completed b:error c:cancelled d:completed', 'a run fails');
workflow('fails', '[{"key": "a", "job_type": "act"}, {"key": "b", "job_type": "act", "after": ["a"]}, {"key": "c", "job_type": "act", "after": ["b"]},
  {"key": "d", "job_type": "act", "after": ["b"], "rule": "failed"}]');
is(one("BEGIN; SELECT jobq.retry_workflow('$run', version => 2); SELECT status FROM jobq.run_inline('$run'); COMMIT"), "t\ncompleted", 'a retry by another version');
is(tasks_of($run), 'a:completed b:completed c:completed d:skipped', 'its tasks');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING:  jobq/, 'no process failed');
done_testing();
