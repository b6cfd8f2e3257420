-- A fan-out per chapter: each chapter of a recording is a run of another workflow, which cuts it
-- out and uploads it; a feed joins them.
\echo
\echo '== chapters: a run for each chapter of a recording, and a feed of them all'
CREATE TABLE site.feeds (key text, body jsonb);
CREATE FUNCTION site.write_feed(feed jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  job jobq.jobs := jobq.current_job();
  feed_key text := jobq.build_key(job.id, job.task_key, 'output', 'json', 'feed');
  bytes bytea := convert_to(feed::text, 'UTF8');
BEGIN
  INSERT INTO site.feeds VALUES (feed_key, feed);
  PERFORM jobq.record_artifact(feed_key, size_bytes => length(bytes), content_type => 'application/json',
    checksum => 'sha256:' || encode(sha256(bytes), 'hex'), data => '{"table": "site.feeds"}');
  RETURN jsonb_build_object('feed', feed_key, 'items', jsonb_array_length(feed -> 'items'));
END $$;
SELECT jobq.create_job_type('write_feed', 'site.write_feed(jsonb)') \g /dev/null

SELECT jobq.create_workflow('chapter', '[
  {"key": "cut", "job_type": "cut", "payload": {"$": "$.input"}},
  {"key": "upload", "job_type": "upload", "after": ["cut"],
   "payload": {"bucket": "chapters", "files": [{"file": {"$": "$.tasks.cut.result.file"}, "name": {"$": "$.input.name"}}]}}]',
  output => '{"title": {"$": "$.input.title"}, "seconds": {"$": "$.tasks.cut.result.seconds"}, "key": {"$": "$.tasks.upload.artifacts[0].key"}}') \g /dev/null
SELECT jobq.create_workflow('chapters', '[
  {"key": "ingest", "job_type": "ingest", "payload": {"source": {"$": "$.input.source"}}},
  {"key": "audio", "job_type": "audio-norm", "after": ["ingest"],
   "payload": {"file": {"$": "$.tasks.ingest.result.file"}, "loudness": {"$": "$.tasks.ingest.result.loudness"}}},
  {"key": "chapter", "job_type": "chapter", "after": ["audio"], "map": "$.tasks.ingest.result.chapters", "max_parallel": 2,
   "payload": {"file": {"$": "$.tasks.audio.result.file"}, "title": {"$": "$.item.title"}, "name": {"$": "$.item.name"},
               "start": {"$": "$.item.start"}, "end": {"$": "$.item.end"}}},
  {"key": "feed", "job_type": "write_feed", "after": ["chapter"],
   "payload": {"title": {"$": "$.input.title"}, "items": {"$": "$.tasks.chapter.result"}}}]') \g /dev/null
SELECT tell.graph('chapters');
\echo '   each chapter:'
SELECT tell.graph('chapter');
\echo

SELECT jobq.enqueue('chapters', jsonb_build_object('source', :'dir' || '/in/talk.mka', 'title', 'A talk in chapters')) AS run, '' AS line \gset
\ir follow.sql
SELECT tell.ended(:'run', 'completed');
SELECT tell.equal(tell.tasks(:'run'), 'audio:completed chapter:completed chapter.0:completed chapter.1:completed chapter.2:completed '
                  'feed:completed ingest:completed', 'the tasks of chapters') \g /dev/null
SELECT array_agg(id) AS chapter_runs FROM jobq.jobs WHERE workflow_id = :'run' AND job_type = 'chapter' AND task_key LIKE '%.%' \gset
SELECT tell.equal(string_agg(DISTINCT tell.tasks(r), ', '), 'cut:completed upload:completed', 'the tasks of a chapter')
  FROM unnest(:'chapter_runs'::uuid[]) r \g /dev/null
SELECT format('   %s objects in the store, with the size and the checksum of their artifacts: %s', n, tell.equal(n::text, '3', 'objects'))
  FROM tell.objects(:'chapter_runs', :'dir' || '/store') n;
SELECT format('   the feed: %s, %s s: %s', string_agg(i.title, ', ' ORDER BY i.n), sum(i.seconds),
              tell.check(string_agg(i.title, ', ' ORDER BY i.n) = 'Chapter 1, Chapter 2, Chapter 3' AND abs(sum(i.seconds) - 6) < 0.5
                         AND bool_and(EXISTS (SELECT FROM jobq.artifacts a WHERE a.key = i.key AND a.workflow_id = ANY (:'chapter_runs'))), 'the feed'))
  FROM site.feeds f, ROWS FROM (jsonb_to_recordset(f.body -> 'items') AS (title text, seconds numeric, key text)) WITH ORDINALITY i(title, seconds, key, n);
SELECT format('   an artifact of its own: %s', tell.equal(string_agg(format('%s %s', a.content_type, a.size_bytes - octet_length(f.body::text)), ', '), 'application/json 0',
              'type of the feed and the difference of its sizes'))
  FROM jobq.artifacts a JOIN site.feeds f USING (key) WHERE a.workflow_id = :'run' AND a.task_key = 'feed';
