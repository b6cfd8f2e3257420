-- The publishing pipeline: ingest, audio normalisation, render, a thumbnail for each chapter,
-- upload.
\echo
\echo '== publish: a recording becomes a video with thumbnails in an object store'
CREATE TABLE site.videos (title text, seconds numeric, key text, checksum text, thumbnails text[], run uuid);
CREATE FUNCTION site.list_video(payload jsonb) RETURNS jsonb LANGUAGE sql AS $$
  INSERT INTO site.videos
  SELECT payload ->> 'title', (payload ->> 'seconds')::numeric, payload #>> '{video,key}', payload #>> '{video,checksum}',
         ARRAY(SELECT jsonb_array_elements_text(payload -> 'thumbnails')), (jobq.current_job()).workflow_id
  RETURNING jsonb_build_object('video', key, 'thumbnails', cardinality(thumbnails))
$$;
SELECT jobq.create_job_type('list_video', 'site.list_video(jsonb)') \g /dev/null

SELECT jobq.create_workflow('publish', '[
  {"key": "ingest", "job_type": "ingest", "payload": {"source": {"$": "$.input.source"}}},
  {"key": "audio", "job_type": "audio-norm", "after": ["ingest"],
   "payload": {"file": {"$": "$.tasks.ingest.result.file"}, "loudness": {"$": "$.tasks.ingest.result.loudness"}}},
  {"key": "render", "job_type": "renderer", "after": ["audio"],
   "payload": {"file": {"$": "$.tasks.audio.result.file"}, "seconds": {"$": "$.tasks.ingest.result.seconds"}}},
  {"key": "thumbnail", "job_type": "thumbnail", "after": ["render"], "map": "$.tasks.ingest.result.chapters", "max_parallel": 2,
   "payload": {"file": {"$": "$.tasks.render.result.file"}, "at": {"$": "$.item.start"}, "name": {"$": "$.item.name"}}},
  {"key": "upload", "job_type": "upload", "after": ["render", "thumbnail"],
   "payload": {"bucket": "videos", "files": [{"file": {"$": "$.tasks.render.result.file"}, "name": "video"}, {"$": "$.tasks.thumbnail.result"}]}},
  {"key": "list", "job_type": "list_video", "after": ["upload"],
   "payload": {"title": {"$": "$.input.title"}, "seconds": {"$": "$.tasks.ingest.result.seconds"},
               "video": {"$": "$.tasks.upload.artifacts[*] ? (@.content_type == \"video/mp4\")"},
               "thumbnails": {"$[]": "$.tasks.upload.artifacts[*] ? (@.content_type == \"image/jpeg\").key"}}}]') \g /dev/null
SELECT tell.graph('publish');
\echo

SELECT jobq.enqueue('publish', jsonb_build_object('source', :'dir' || '/in/talk.mka', 'title', 'A talk')) AS run, '' AS line \gset
\ir follow.sql
SELECT tell.ended(:'run', 'completed');
SELECT tell.equal(tell.tasks(:'run'), 'audio:completed ingest:completed list:completed render:completed thumbnail:completed '
                  'thumbnail.0:completed thumbnail.1:completed thumbnail.2:completed upload:completed', 'the tasks of publish') \g /dev/null

-- What is in the store is ingested once more: its length, streams and loudness.
SELECT format('%s/store/videos/%s', :'dir', key) AS stored FROM site.videos WHERE run = :'run' \gset
SELECT jobq.enqueue('ingest', jsonb_build_object('source', :'stored')) AS check_job \gset
SELECT tell.equal(status::text, 'completed', 'ingest of ' || :'stored') FROM jobq.wait_for(:'check_job', '2 min') \g /dev/null
SELECT format('   loudness: %s LUFS recorded, %s LUFS in the store: -16, give or take 1: %s', r.lufs, s.lufs, tell.check(r.lufs < -25 AND abs(s.lufs + 16) <= 1, 'loudness'))
  FROM (SELECT (result #>> '{loudness,input_i}')::numeric FROM jobq.jobs WHERE workflow_id = :'run' AND task_key = 'ingest') r(lufs),
       (SELECT (result #>> '{loudness,input_i}')::numeric FROM jobq.jobs WHERE id = :'check_job') s(lufs);
SELECT format('   the video: %s s, %s: %s', result ->> 'seconds', result ->> 'streams',
              tell.check(abs((result ->> 'seconds')::numeric - 6) < 0.5 AND result -> 'streams' @> '["video", "audio"]', 'video'))
  FROM jobq.jobs WHERE id = :'check_job';
SELECT format('   %s objects in the store, with the size and the checksum of their artifacts: %s', n, tell.equal(n::text, '4', 'objects'))
  FROM tell.objects(ARRAY[:'run'::uuid], :'dir' || '/store') n;
SELECT format('   listed: %s, video %s, thumbnails %s: %s', title, right(key, 9), cardinality(thumbnails),
              tell.check(cardinality(thumbnails) = 3 AND thumbnails = ARRAY(SELECT replace(key, 'video.mp4', format('0%s.jpg', i)) FROM generate_series(1, 3) i)
                         AND checksum = (SELECT checksum FROM jobq.artifacts a WHERE a.workflow_id = :'run' AND a.key = v.key), 'list'))
  FROM site.videos v WHERE run = :'run';
