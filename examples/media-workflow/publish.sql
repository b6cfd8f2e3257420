-- The second version of the workflow: a third task, which waits for both.
SELECT 'media, version ' || jobq.create_workflow('media', '[
  {"key": "render", "job_type": "render", "payload": {"source": {"$": "$.input.source"}}},
  {"key": "caption", "job_type": "caption", "after": ["render"], "payload": {"image": {"$": "$.tasks.render.result.image"}}},
  {"key": "publish", "job_type": "publish", "after": ["render", "caption"],
   "payload": {"keys": {"$[]": "$.tasks.*.artifacts[*].key"}}}]',
  options => '{"timeout": "1 day", "keep_completed": "90 days"}');
