# Workflows, jobs after jobs and schedules as their users write them: a publishing pipeline, a
# transcription with its analysis, a clean-up every 15 minutes, documents once a day.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use RunTest;
use ServerTest;
use Test::More;

my $node = run_server('seeds');

# Each job writes its payload down; its result is the row of its type in table answers.
$node->safe_psql('postgres', <<'END');
CREATE TABLE answers (type text PRIMARY KEY, result jsonb);
INSERT INTO answers VALUES ('ingest', '{"file": "/in/a.wav"}'), ('yt-upload', '{"video": "xyz"}'), ('list_docs', '["a", {"doc": "b"}, 3]'), ('sync.source_doc', '"done"');
CREATE FUNCTION work(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  j jobq.jobs := jobq.current_job();
BEGIN
  INSERT INTO public.ran (run, key, payload) VALUES (coalesce(j.workflow_id, j.id), coalesce(j.task_key, j.job_type), p);
  RETURN (SELECT result FROM public.answers WHERE type = j.job_type);
END $$;
SELECT jobq.create_job_type(t, 'work(jsonb)') FROM unnest('{ingest,audio-norm,renderer,yt-upload,session-cleanup,whisper_transcribe,openrouter_analyze,suggest_edges,list_docs,sync.source_doc}'::text[]) t;
END

# Returns "key payload, ..." of jobs in the order in which they ran.
sub ran { return one("SELECT string_agg(key || ' ' || payload, ', ' ORDER BY seq) FROM ran WHERE run = ANY ('{" . join(',', @_) . "}')"); }

# ---------- 002: a pipeline ----------

is(one(<<'END'), '1', 'the pipeline is defined');
SELECT jobq.create_workflow('publish', '[{"key":"ingest","job_type":"ingest","payload":{"source":{"$":"$.input.source"}}},
  {"key":"audio","job_type":"audio-norm","after":["ingest"],"payload":{"in":{"$":"$.tasks.ingest.result.file"}}},
  {"key":"render","job_type":"renderer","after":["audio"]},
  {"key":"upload","job_type":"yt-upload","after":["render"]}]');
END
my $run = one(q{SELECT jobq.enqueue('publish', '{"source":"s3://in/a.wav"}');});
run_is($run, 'completed', 'its run ends');
is(ran($run), 'ingest {"source": "s3://in/a.wav"}, audio {"in": "/in/a.wav"}, render {}, upload {}', 'one step after the other, with their payloads');
is(one("SELECT result FROM jobq.wait_for('$run')"), '{"upload": {"video": "xyz"}}', 'its result is that of the last step');
is(one("SELECT version, progress::int, current_task_key IS NULL, tasks FROM jobq.workflow_runs WHERE id = '$run'"), '1|100|t|{"completed": 4}', 'the row of the run');
my @lines = split /\n/, one(q{SELECT jobq.graph('publish')});
is(scalar(grep { /-->/ } @lines), 3, 'its graph has three edges');

# ---------- 001: a schedule ----------

one(q{SELECT jobq.schedule('session-cleanup', '0 */15 * * * *', 'session-cleanup');});
is(one(q{SELECT extract(epoch FROM next_tick)::bigint % 900, next_tick - now() <= '15 min' FROM jobq.schedules}), '0|t', 'a clean-up every 15 minutes');
my $job = one(q{SELECT jobq.run_schedule('session-cleanup')});
is(ended($job), 'completed', 'its job ends');
is(ran($job), 'session-cleanup {}', 'without a payload');

# ---------- 000: jobs after jobs ----------

one(q{SELECT jobq.pause_job_type('whisper_transcribe')});
my @jobs = map { (split /,/)[1] } split /\n/, one(<<'END');
SELECT jobq.enqueue_jobs('[{"job_type":"whisper_transcribe","payload":{"file":"a.wav"}},
  {"job_type":"openrouter_analyze","after":[1]}, {"job_type":"suggest_edges","after":[1,2]}]');
END
is(scalar(@jobs), 3, 'three jobs in one call');
is(one("SELECT string_agg(status::text, ' ' ORDER BY created_at, id) FROM jobq.jobs WHERE id = ANY ('{" . join(',', @jobs) . "}')"), 'pending blocked blocked', 'two of them wait');
is(one("SELECT after = '{$jobs[0],$jobs[1]}', after_rule FROM jobq.jobs WHERE id = '$jobs[2]'"), 't|success', 'for the jobs that they name by number');
one(q{SELECT jobq.resume_job_type('whisper_transcribe')});
is(ended($jobs[2]), 'completed', 'the last one ends');
is(ran(@jobs), 'whisper_transcribe {"file": "a.wav"}, openrouter_analyze {}, suggest_edges {}', 'after the others');

# ---------- 003: a workflow with a schedule ----------

is((split /\n/, one(<<'END'))[0], '1', 'the synchronisation is defined');
SELECT jobq.create_workflow('sync', '[{"key":"list","job_type":"list_docs"},
  {"key":"doc","job_type":"sync.source_doc","after":["list"],"map":"$.tasks.list.result"}]');
SELECT jobq.schedule('sync', '@daily', 'sync');
END
is(one(q{SELECT job_type, extract(epoch FROM next_tick)::bigint % 86400 FROM jobq.schedules WHERE name = 'sync'}), 'sync|0', 'and scheduled');
$run = one(q{SELECT jobq.run_schedule('sync')});
run_is($run, 'completed', 'its schedule starts a run');
is(one("SELECT string_agg(key || ' ' || payload, ', ' ORDER BY key) FROM ran WHERE run = '$run' AND key LIKE 'doc%'"), 'doc.0 "a", doc.1 {"doc": "b"}, doc.2 3', 'with a task for each document');
is(one("SELECT result FROM jobq.jobs WHERE id = '$run'"), '{"doc": ["done", "done", "done"]}', 'whose results are that of the run');
is(one("SELECT metadata ->> 'schedule' FROM jobq.jobs WHERE id = '$run'"), 'sync', 'which names its schedule');
is(one(q{SELECT jobq.backfill_schedule('sync', date_trunc('day', now()) - interval '1 day', date_trunc('day', now()))}), '2', 'ticks of two days are made up for');
wait_for_sql($node, q{SELECT count(*) = 3 FROM jobq.workflow_runs WHERE workflow = 'sync' AND status = 'completed' AND tasks = '{"completed": 5}'}, 'their runs end');
one(q{UPDATE answers SET result = '[]' WHERE type = 'list_docs'});
$run = one(q{SELECT jobq.run_schedule('sync')});
run_is($run, 'completed', 'a day without documents');
is(tasks_of($run), 'doc:completed list:completed', 'has no task for one');
unlike(slurp_file($node->logfile), qr/WARNING:  jobq|terminated by|PANIC|TRAP/, 'no warnings');

done_testing();
