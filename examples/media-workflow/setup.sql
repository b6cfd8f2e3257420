-- The services as job types, the workflow's first version, retention and archive.  psql variable
-- backoff: the wait before the second attempt.
\set ON_ERROR_STOP 1

-- A service is a pull type.  max_concurrent holds over all its processes; a process that dies
-- ends its leases, one that is silent loses them at their end.
SELECT jobq.create_job_type(name, max_attempts => 3, backoff_base => :'backoff', timeout => '10 min', max_concurrent => at_once,
                            options => '{"events": "all", "permanent_codes": ["NoSuchSource"], "lease_follows_connection": true}')
  FROM (VALUES ('render', 2), ('caption', 1), ('publish', 1)) service(name, at_once) \g /dev/null

-- A job is a run of this workflow, a task is a step.  A run keeps the version that it began with.
SELECT 'media, version ' || jobq.create_workflow('media', '[
  {"key": "render", "job_type": "render", "payload": {"source": {"$": "$.input.source"}}},
  {"key": "caption", "job_type": "caption", "after": ["render"], "payload": {"image": {"$": "$.tasks.render.result.image"}}}]',
  options => '{"timeout": "1 day", "keep_completed": "90 days"}');

-- Before events expire, a job of type archive gets each day of them.
SELECT jobq.create_job_type('archive', max_attempts => 10, backoff_base => :'backoff') \g /dev/null
ALTER DATABASE :"DBNAME" SET jobq.before_drop_type = 'archive';
ALTER DATABASE :"DBNAME" SET jobq.keep_events = '30d';
SELECT jobq.reload() \g /dev/null
