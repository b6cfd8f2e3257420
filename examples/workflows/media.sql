-- Job types of publish and chapters.  A tool keeps its files in dir/media, named after its job, so
-- another attempt writes the same file; dir/store stands for an object store.
CREATE SCHEMA site;
SELECT jobq.create_job_type(name, command => ARRAY[:'dir' || '/tools/' || name], timeout => '2 min', max_attempts => 2, backoff_base => '1s',
                            options => jsonb_build_object('env', jsonb_build_object('MEDIA_DIR', :'dir' || '/media', 'STORE_DIR', :'dir' || '/store')))
  FROM unnest('{ingest,audio-norm,renderer,thumbnail,cut,upload}'::text[]) name \g /dev/null

-- Returns the number of objects that the tasks of runs have recorded; ends the story unless each of
-- them is in the store, with the size and the checksum of its artifact.
CREATE FUNCTION tell.objects(runs uuid[], store text) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(tell.check(length(o.bytes) = a.size_bytes AND 'sha256:' || encode(sha256(o.bytes), 'hex') = a.checksum, 'object ' || a.key)) FILTER (WHERE
         tell.check(a.key = jobq.build_key(a.job_id, a.task_key, 'output', substring(a.key FROM '[^.]*$'), substring(a.key FROM '([^/]*)[.]')), 'key ' || a.key) = 'yes')
    FROM jobq.artifacts a, LATERAL pg_read_binary_file(format('%s/%s/%s', store, a.bucket, a.key)) o(bytes)
   WHERE a.workflow_id = ANY (runs) AND a.bucket IS NOT NULL
$$;
