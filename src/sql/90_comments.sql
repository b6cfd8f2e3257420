
-- The manual that \df+ and \d+ show, and the source of docs/reference: `make docs` copies it there.
-- A function's comment has a summary, then a line for each argument ("name: text",
-- or "a, b: text"), then a line "Errors:".  A line that begins with two spaces continues the line
-- before.
-- Rules that all functions share (NULL, ranges, rights) stand in docs/reference/errors.md only.

COMMENT ON FUNCTION jobq.create_job_type IS
$$Creates a job type, the definition that its jobs share: handler or command, retries, limits, retention.
The caller becomes its owner. The owner, members of the owner and superusers change and drop it. A NULL
argument is not given: a new type has the default, a replaced type keeps its value.
name: of the type: 1 to 63 bytes, no control characters, no space at either end. Letters, digits and _ - . :
  / need no quoting anywhere in jobq.
handler: a SQL function f(jsonb) or f() that returns jsonb, json or void, written with its argument types.
  Stored by name and looked up when a job runs. The role run_as needs EXECUTE on it.
command: an external program and its arguments, instead of a handler. The first element is an absolute path
  or a file name that is looked up in jobq.tool_path. {field} in the other elements is replaced by that
  field of the payload. Needs membership in pg_execute_server_program.
max_attempts: attempts until a failing job becomes a dead letter, 1 to 1,000,000.
backoff: how the wait before the next attempt grows: 'exponential' doubles it, 'fixed' does not.
backoff_base: wait after the first failure, an interval.
backoff_max: longest wait between two attempts, an interval.
backoff_jitter: share of the wait that is added or subtracted at random, 0 to 1.
timeout: longest duration of one attempt, an interval; '0' is no limit.
base_priority: priority of jobs enqueued without one, -100 to 100. Higher priorities run first.
max_concurrent: jobs of the type that run at once, 0 to 1,000,000; 0 is no limit.
cpu_weight: share of jobq.max_weight that a running job takes, 0 to 1,000,000. A job with more than
  jobq.max_weight runs when no other job with a weight does.
rate_limit: starts per rate_window, 0 to 10,000 (with options.burst to 1,000,000,000); 0 is no limit.
rate_window: length of the window of rate_limit, an interval above zero.
keep_completed: time that completed, skipped and cancelled jobs stay in jobq.jobs; '0' keeps none.
keep_dead: time that dead letters stay; NULL keeps them until they are purged, '0' keeps none.
critical: true gives alerts of the type the severity "high".
run_as: role that the handlers run as; default the owner. The caller must be able to SET ROLE to it. It is
  granted the functions that handlers call.
options: further settings of the type, an object; the keys are in jobq.option_keys.
on_conflict: if the name is taken: 'error' raises 42710; 'replace' changes the arguments that are given, as
  alter_job_type does, and keeps owner, pause and jobs; 'ignore' changes nothing.
Errors: 42710 the type exists. 22023 handler and command are both given, the handler has the
  wrong signature, or an option key is unknown. 42704 no such role, or no such limit in options.limits.
  42501 the caller lacks the rights of run_as or of pg_execute_server_program, or run_as lacks EXECUTE on
  the handler or CONNECT. 0A000 an option needs a later release. 54000 a name or an option is too large.$$;

COMMENT ON FUNCTION jobq.alter_job_type IS
$$Changes a job type. A NULL argument changes nothing. Jobs that wait follow the new definition; jobs that
run continue with the old one.
name: of the type. A role with access 'admin' to all tenants may also change types of other roles, but only
  timeout, base_priority, max_concurrent, cpu_weight, rate_limit, rate_window and the options limits, burst,
  concurrency_per_key, max_skip, aging, fair_by, fair_depth, max_depth and stall.
handler, command: replaces the handler or command of the type.
max_attempts, base_priority: for jobs enqueued from now on.
backoff, backoff_base, backoff_max, backoff_jitter, timeout: for attempts that begin or end from now on.
max_concurrent, cpu_weight, rate_limit, rate_window: take effect at commit.
keep_completed, keep_dead: for jobs that end from now on. Jobs that have ended keep their date.
critical, run_as: take effect at commit.
options: merged key by key; a JSON null removes a key.
reset: names of arguments that go back to the defaults of create_job_type, for example {keep_dead,run_as}.
  All but name, handler and command.
Errors: 42704 no such type. 42501 the caller does not own the type. 22023 reset names an argument that is
  also given or has no default. Otherwise those of create_job_type.$$;

COMMENT ON FUNCTION jobq.drop_job_type IS
$$Drops a job type. History and dead letters keep its name; a new type may have the name at once. A job whose
enqueue commits later runs as it was defined; that of a pull type is cancelled, within a minute or so, and a
run of a workflow fails. Runs that force cancels are compensated, if their workflow says so.
name: of the type.
force: false refuses a type with live jobs. true cancels waiting jobs and stops running attempts.
Errors: 42704 no such type. 42501 the caller does not own the type. 55006 the type has live jobs, or with
  force: open transactions of other sessions hold some of them.$$;

COMMENT ON FUNCTION jobq.pause_job_type IS
$$Pauses a job type: none of its jobs starts. Running jobs continue, enqueues are accepted. A second call
replaces reason and duration.
name: of the type.
reason: any text; jobq.job_types.pause_reason shows it.
duration: an interval above zero after which the pause ends by itself; NULL: until resume_job_type.
Errors: 42704 no such type. 42501 the caller does not own the type and lacks access 'admin' to all tenants.$$;

COMMENT ON FUNCTION jobq.resume_job_type IS
$$Ends the pause of a job type and closes its breaker (options.breaker).
name: of the type.
Errors: 42704 no such type. 42501 the caller does not own the type and lacks access 'admin' to all tenants.$$;

COMMENT ON FUNCTION jobq.set_limit IS
$$Creates or changes a limit that job types share by naming it in options.limits. Takes effect at commit.
name: of the limit: 1 to 63 bytes, no control characters, no space at either end.
max_concurrent: jobs of these types that run at once, 0 to 1,000,000; 0 is no limit.
rate_limit: starts of these types per rate_window, 0 to 10,000; 0 is no limit.
rate_window: length of the window of rate_limit, an interval above zero.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.drop_limit IS
$$Drops a shared limit.
name: of the limit.
Errors: 42704 no such limit. 55006 a job type names it.$$;

COMMENT ON FUNCTION jobq.stop_all IS
$$The kill switch: after the commit no job of this database starts. Running jobs continue, enqueues are
accepted. The stop survives restarts; jobq.health() reports it. A second call replaces the reason.
reason: any text; jobq.health() shows it. NULL is allowed.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.start_all IS
$$Ends the stop that jobq.stop_all() or jobq.drain() began; jobs start after the commit.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.drain IS
$$Stops all jobs as jobq.stop_all() does, at once instead of at commit, and waits for the running ones,
also for those that clients have claimed. Returns true if none runs, false if the timeout passed first. In both cases the stop remains until
jobq.start_all(), unless this transaction rolls back.
timeout: longest wait, an interval; '0' does not wait.
Errors: 0A000 at PREPARE TRANSACTION of a transaction that called it.$$;

COMMENT ON FUNCTION jobq.enqueue IS
$$Stores a job in the caller's transaction; it can run after the commit. Returns the id of the job, or of
the existing job with its unique_key. Note: with the default on_conflict an enqueue with a unique_key that belongs
to a running job stores nothing, and that job may not see the changes of this transaction. Use on_conflict
=> 'replace' to queue one job behind it.
job_type: name of a job type.
payload: JSON that the handler or tool gets, at most jobq.max_payload bytes as text. For a command: an
  object that has all fields that the placeholders of the command name.
priority: -100 to 100, higher runs first; NULL: base_priority of the type.
delay: time until the job is due, an interval of zero or more. Not together with scheduled_for.
scheduled_for: time at which the job is due; a time in the past is now. Not together with delay.
max_attempts: attempts until the job becomes a dead letter, 1 to 1,000,000; NULL: as the type.
timeout: longest duration of one attempt, an interval; '0' is no limit; NULL: as the type.
backoff: object with some of the keys "type", "base", "max", "jitter"; missing keys are as the type.
unique_key: 1 to 1,024 bytes. At most one live job per job type, tenant and unique_key.
on_conflict: if the unique_key is taken: 'ignore' returns the id of that job, 'replace' changes the waiting
  job or queues one behind the running job, 'error' raises 23505.
unique_for: interval for which the unique_key also covers the finished job. Needs unique_key.
concurrency_key: 1 to 1,024 bytes. At most options.concurrency_per_key (1) jobs with the same key and tenant
  run at once, whatever their types.
keep_completed: time that the completed, skipped or cancelled job stays; '0' keeps nothing; NULL: as the
  type.
tenant: up to 255 bytes, a path such as acme/eu; NULL or '': the setting jobq.tenant, and no tenant if that
  is empty, too.
metadata: any JSON up to jobq.max_payload bytes; jobq stores it and shows it in jobq.jobs.
keep_dead: time that the job stays as a dead letter; '0' keeps nothing; NULL: as the type.
after: up to 10,000 ids of jobs that have to end first, live or kept; NULL: none. The job is blocked until
  after_rule is met. on_conflict => 'replace' keeps the jobs that it waits for unless after is given.
after_rule: 'success': all have ended and one has completed; a dead letter holds the job until it is retried,
  a cancelled or purged one cancels it. 'done': all have ended. 'any': one has completed. 'failed': one is a
  dead letter or cancelled. A job whose rule can't be met any more is skipped.
Errors: 42704 no such job type. 42501 no access to the job type or tenant, a value above the ceiling of the
  type, or 'replace' of a job that another role enqueued. 22023 delay and scheduled_for together, a time
  that is not finite, payload NULL or without a field of the command, no tenant although
  options.require_tenant is set, or a malformed tenant path. 23505 the unique_key is taken and on_conflict
  is 'error'. 54000 payload, metadata or a key is too large, or options.max_depth is
  reached. 53400 a quota of the tenant is used up. 53100 the disk is nearly full and
  options.refuse_on_disk_emergency is set. 40001 above READ COMMITTED: a newer job has the key. 55006 two
  jobs with the key are running. P0002 a job in after does not exist, is not kept, or is not one that the
  caller may see.$$;

COMMENT ON FUNCTION jobq.enqueue_many IS
$$Stores one job per payload, all or none, and returns their ids in the order of payloads. It has no
unique_key; enqueue_jobs has.
job_type: name of a job type.
payloads: array of payloads without NULL; '{}' stores nothing.
priority, delay, scheduled_for, max_attempts, timeout, backoff: for all of the jobs, as in enqueue.
concurrency_key, keep_completed, tenant, metadata, keep_dead, after, after_rule: likewise.
Errors: those of enqueue; the message of an error in a payload begins with its position: "job 2: ...".$$;

COMMENT ON FUNCTION jobq.enqueue_jobs IS
$$Stores jobs of several types, all or none. Returns for each its ordinal (from 1), its id and is_new: false
if an existing job with the unique_key stands for it.
jobs: JSON array of objects. The keys of an object are argument names of enqueue; job_type is required.
Errors: those of enqueue; the message begins with the position of the job: "job 2: ...". 22023 jobs is not
  an array of objects, or a key is unknown.$$;

COMMENT ON FUNCTION jobq.cancel_job IS
$$Cancels a live job. Returns true if the job was live, false if it has ended or does not exist. A running
attempt is stopped when this transaction commits, and its changes are rolled back. The call waits for an
open transaction that holds the job.
id: of the job.
reason: becomes error_msg of the job.
Errors: 53400 too many cancels of running jobs are in progress. 0A000 at PREPARE TRANSACTION of a
  transaction that cancelled a running job.$$;

COMMENT ON FUNCTION jobq.cancel_jobs IS
$$Cancels the waiting jobs that match all given filters and returns their number. Jobs that open
transactions of other sessions hold are skipped after a second in which none becomes free; a NOTICE has
their number.
job_type: name of a job type, also of a dropped one.
tenant: exactly this tenant; '': jobs without a tenant.
payload_contains: jobs with payload @> this value.
include_running: true also stops running attempts when this transaction commits.
reason: becomes error_msg of the jobs.
Errors: 22023 job_type, tenant and payload_contains are all NULL. 42704 no such job type. 53400 too many
  cancels of running jobs are in progress.$$;

COMMENT ON FUNCTION jobq.retry_job IS
$$Makes a job with status retry, error, cancelled or skipped pending and due now. The id and runs stay,
attempts start at 0, and the event 'retried' has the former error. Returns false if the job has another
status or does not exist. Of a task whose run has ended it retries the run (jobq.retry_workflow), in which
the task is a new job: wait for the run.
id: of the job.
max_attempts: new limit of attempts, 1 to 1,000,000; NULL: as before.
Errors: 23505 a newer live job has its unique_key. 42704 its job type was dropped. 42501 max_attempts is
  above the ceiling of the type.$$;

COMMENT ON FUNCTION jobq.rerun_job IS
$$Enqueues a new job like a finished one and returns its id. parent_id of the new job is the old id. Returns
NULL if the job has not ended or does not exist.
id: of the finished job.
payload: replaces the old payload; the rules are those of enqueue.
Errors: 23505 a live job has its unique_key. 42704 its job type was dropped. 53400 a quota of the tenant is
  used up. 53100 the disk is nearly full and options.refuse_on_disk_emergency is set.$$;

COMMENT ON FUNCTION jobq.alter_job IS
$$Changes a waiting job. A NULL argument changes nothing. Returns false if the job runs, has ended or does
not exist.
id: of the job.
payload: new payload; the rules are those of enqueue.
priority: -100 to 100, higher runs first.
scheduled_for: time at which the job is due; a time in the past is now.
max_attempts: attempts until the job becomes a dead letter, 1 to 1,000,000.
timeout: longest duration of one attempt, an interval; '0' is no limit.
Errors: 42501 a value above the ceiling of the job type. 22023 scheduled_for is not finite, or the payload
  lacks a field of the command.$$;

COMMENT ON FUNCTION jobq.retry_dead_letters IS
$$Makes dead letters pending again as retry_job does, oldest first, and returns their number. A dead letter
stays if a newer job has its unique_key or its job type was dropped; a NOTICE has the number of these. Dead
letters that other transactions have locked are skipped. Tasks of ended runs stay: name their workflow as
job_type to retry its runs.
job_type: name of a job type.
max_jobs: at most this many; NULL: all.
tenant: exactly this tenant; '': jobs without a tenant.
error_like: LIKE pattern on error_msg.
dead_before: dead letters that ended before this time.
max_attempts: new limit of attempts, 1 to 1,000,000; NULL: as before.
Errors: 42704 no such job type. 42501 max_attempts is above the ceiling of a type.$$;

COMMENT ON FUNCTION jobq.purge_dead_letters IS
$$Deletes the dead letters that match all given filters, oldest first, and returns their number. Dead
letters that other transactions have locked are skipped, and tasks of live runs, which end by them.
job_type: name of a job type, also of a dropped one.
older_than: dead letters that ended at least this interval ago; '0' matches all.
max_jobs: at most this many; NULL: all. Not a filter.
tenant: exactly this tenant; '': jobs without a tenant.
error_like: LIKE pattern on error_msg.
Errors: 22023 job_type, older_than, tenant and error_like are all NULL. 42704 no such job type.$$;

COMMENT ON FUNCTION jobq.list_jobs IS
$$Returns rows of jobq.jobs, newest id first. NULL filters match every job.
status: jobs with this status.
job_type: name of a job type, also of a dropped one.
tenant: exactly this tenant; '': jobs without a tenant.
max_rows: number of rows at most.
skip_rows: number of rows to skip first. The cost grows with it; before costs the same on every page.
before: only ids smaller than this one. The last id of a page gives the next page.
payload_contains: jobs with payload @> this value.
error_like: LIKE pattern on error_msg.
Errors: 42704 no such job type.$$;

COMMENT ON FUNCTION jobq.count_by_status IS
$$Returns one row per status with the number of jobs, zeros included. It counts rows: the cost grows with
them.
job_type: only jobs of this type, also of a dropped one; NULL: all.
tenant: exactly this tenant; '': jobs without a tenant; NULL: all.
Errors: 42704 no such job type.$$;

COMMENT ON FUNCTION jobq.distinct_job_types IS
$$Returns the names of the job types in alphabetical order; dropped types only while a job of them exists.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.archive IS
$$Returns old rows of jobq.history, jobq.events, jobq.artifacts or jobq.audit as JSON, one line per row, as far
as the caller may read them. jsonb_populate_record(NULL::jobq.history, line::jsonb) makes the row again. The
key json_nulls names jsonb columns that hold a JSON null.
before: jobs that ended, events or rows of the audit that were written, or artifacts that were recorded, before
  this time; may be NULL when expires_from and expires_to are given.
after_id: continue behind this job: the id of the last history line, or the job_id of the last event or
  artifact line. Of the audit: the id of the last line as a uuid, 32 hexadecimal digits.
what: 'history', ordered by id; 'events', ordered by job_id, ts, id; 'artifacts', ordered by job_id, created_at,
  id; 'audit', ordered by id.
max_rows: number of rows at most; NULL: all. The events or artifacts of one job are returned together: fewer
  rows may come, and more if the first job alone has more.
expires_from, expires_to: only rows whose expires_at (of events and the audit: ts) is in this range, the end
  excluded. With the bounds that a job of jobq.before_drop_type gets, the call reads exactly the rows that are
  about to go.
Errors: 22023 expires_from is after expires_to; after_id is no id of the audit.$$;

COMMENT ON FUNCTION jobq.job_timeline IS
$$Returns the events of a job, oldest first, as far as jobq.keep_events reaches back. Events may outlive the
row of the job.
id: of the job.
Errors: P0002 the job has neither a row nor events, or the caller may not see it.$$;

COMMENT ON FUNCTION jobq.error_groups IS
$$Groups the errors of the 10,000 newest dead letters and waiting retries that the caller may read: by job
type, error code and pattern, the message with texts in quotes, ids and numbers replaced. Returns the number
of jobs, the first and the last time, and the newest job of each group; the largest group comes first. The
time of a retry is the start of its last attempt. The search takes a second at most: it ends with the newest
jobs of a long queue.
since: only errors since then; NULL: all.
job_type: only of this type.
tenant: only of this tenant; '': jobs without a tenant.
max_rows: at most so many groups.
Errors: 42704 unknown job type. 22003 max_rows is below 0.$$;

COMMENT ON FUNCTION jobq.purge_tenant IS
$$Removes all jobs and schedules of a tenant: cancels live jobs, deletes history, dead letters, events,
artifacts and alerts. Returns the number of jobs. A running job is stopped, and its row is deleted by the next call. Jobs that open
transactions of other sessions hold are skipped after a second in which none becomes free; a NOTICE has
their number. Jobs whose enqueue commits later are not seen: call it again when those transactions have ended.
tenant: exactly this tenant, not those below it.
Errors: 22023 tenant is ''. 42501 the caller lacks access 'admin' to this tenant and all job types.$$;

COMMENT ON FUNCTION jobq.grant_access IS
$$Grants a role, and the roles that inherit from it, access to jobq; grants add up. Also grants the
privileges that the access needs: EXECUTE on functions, SELECT on tables. From the first grant on, the role
is held to its grants in every function. Warning: a role with access 'enqueue' chooses the payload that
run_as of the type processes; name the job types.
role: the role.
access: 'enqueue': enqueue jobs and see them. 'work': claim jobs of pull types and end
  them. 'read': see jobs, events, alerts, counts and health. 'admin': read, cancel, retry, alter and
  purge; enqueue the types that job_types names and those that it owns; without a tenant also create and pause job types, set limits and signals, stop and drain.
tenant: NULL: all tenants and jobs without one. '': jobs without a tenant. 'acme': acme and acme/...
job_types: names of job types; NULL: all.
Errors: 42704 no such role or job type.$$;

COMMENT ON FUNCTION jobq.revoke_access IS
$$Revokes grants that grant_access made to this role, and the privileges that no remaining grant needs. A
wider grant is not narrowed: revoke that one.
role: the role.
access: 'enqueue', 'work', 'read' or 'admin'.
tenant: NULL: the grants of every tenant. 'acme': those of acme and acme/...
job_types: removes these names from grants that list job types; NULL: revokes the whole grant.
Errors: 42704 no such role.$$;

COMMENT ON FUNCTION jobq.set_tenant_check IS
$$Sets a function that admits roles to tenants that no grant covers. A role that has an access for some
tenant then has that access for each tenant for which the function returns true. The function runs as that
role, which needs EXECUTE on it. Its search_path is pg_catalog, its own schema, pg_temp, unless the function
sets one.
f: a function f(tenant text) that returns boolean; NULL removes the check.
Errors: 22023 f does not exist or has another signature.$$;

COMMENT ON FUNCTION jobq.channel IS
$$Returns the name of the channel on which jobq notifies LISTEN clients of jobs of a type. Payloads are
empty.
job_type: name of 1 to 63 bytes; the type need not exist. The channel is jobq.notify_prefix and this name; a
  name too long for a channel ends in a hash.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.schedule IS
$$Creates a schedule: at each tick of a cron expression it enqueues a job of a type. The caller becomes its
owner; its jobs are enqueued with the owner's rights by grants (a tenant check does not count).
name: of the schedule, unique per tenant: 1 to 63 bytes, no control characters, no space at either end.
cron: an expression of five fields, or six with seconds first; a name such as @daily; 'every 90s', multiples
  since starts_at, else 1970; 'after 90s', since the end of the last job. ; joins all but 'after'. At most
  1,024 bytes.
job_type: type of the jobs.
payload: of the jobs. In it {"$": "$.tick"} and {"$": "$.last_tick"} become times.
timezone: of the fields of cron, a name of pg_timezone_names.
starts_at: first time that may be a tick; NULL: any.
ends_at: last time that may be a tick; NULL: any.
max_runs: jobs after which the schedule is finished, 1 or more; NULL: no limit.
catch_up: of ticks that were missed (the server was down): 'skip' drops those more than a minute late, 'one'
  runs the newest, 'all' the newest catch_up_limit.
catch_up_limit: 1 to 10,000.
overlap: while the last job is live, a tick is dropped ('skip'), waits ('queue', one tick), gets its job
  ('allow'), or gets its job and cancels the last one ('cancel').
jitter: longest delay of a job after its tick, 0 to 1 day; the same for the same tick.
pause_after_failures: dead letters in a row that pause the schedule, 1 or more; NULL: none.
options: further arguments of enqueue by name, an object; not job_type, payload, tenant, delay,
  scheduled_for, after, after_rule.
tenant: of the schedule and its jobs; NULL or '': the setting jobq.tenant, and no tenant if that is empty, too.
on_conflict: if the tenant has a schedule of that name: 'error' raises 42710; 'replace' changes its whole
  definition and its owner, keeps runs, last_tick and a pause, and writes nothing if the definition is the
  same; 'ignore' changes nothing.
Errors: 42710 the schedule exists. 42704 no such job type. 42501 the caller may not enqueue the type for that
  tenant by its grants, an option is above the ceiling of the type, ticks follow each other faster than
  options.min_interval of the type, or 'replace' of another role's schedule. 22023 the cron expression, the
  time zone or an option is not valid, the type refuses the payload, or there is no tick before ends_at.
  53400 jobq.max_schedules or the quota of a tenant is reached. 54000 an argument is too long.$$;

COMMENT ON FUNCTION jobq.alter_schedule IS
$$Changes a schedule. A NULL argument changes nothing. Ticks begin now if cron, timezone or starts_at changes;
a finished schedule that has a tick again is active.
name, tenant: of the schedule. A role with access 'admin' to all tenants changes other roles' schedules, but
  not job_type, payload and options.
cron, job_type, payload, timezone, starts_at, ends_at, max_runs, catch_up, catch_up_limit, overlap, jitter: as
  in jobq.schedule.
pause_after_failures: a change begins the count of dead letters again.
options: merged key by key; a JSON null removes a key.
reset: names of arguments that go back to the defaults of jobq.schedule, for example {ends_at,max_runs}. All
  but name, cron, job_type and tenant.
Errors: 42704 no such schedule, or no such job type. 42501 the caller is not the owner, or the owner lacks a
  right. 22023 reset names an argument that is also given or has no default. Otherwise those of schedule.$$;

COMMENT ON FUNCTION jobq.unschedule IS
$$Drops a schedule; its jobs stay. Returns false if there is no such schedule.
name: of the schedule.
tenant: of the schedule; NULL or '': the setting jobq.tenant, and no tenant if that is empty, too.
Errors: 42501 the caller is not the owner and lacks access 'admin' to all tenants.$$;

COMMENT ON FUNCTION jobq.pause_schedule IS
$$Pauses a schedule: its ticks get no jobs and are gone. Its live jobs run. A second call replaces reason and
duration.
name: of the schedule; NULL: all schedules that the caller owns and that are not finished.
reason: at most 8,192 bytes; jobq.schedules.reason shows it.
duration: an interval above zero after which the pause ends by itself; NULL: until resume_schedule.
tenant: of the schedule; NULL or '': the setting jobq.tenant, and no tenant if that is empty, too. With name
  NULL: exactly this tenant, '' is none, NULL all.
Errors: 42704 no such schedule. 42501 the caller is not the owner and lacks access 'admin' to all tenants.
  54000 reason is too long.$$;

COMMENT ON FUNCTION jobq.resume_schedule IS
$$Ends the pause of a schedule. Ticks begin now, and the count of dead letters begins again.
name: of the schedule; NULL: all schedules that the caller owns; a WARNING names those that cannot tick.
tenant: of the schedule; NULL or '': the setting jobq.tenant, and no tenant if that is empty, too. With name
  NULL: exactly this tenant, '' is none, NULL all.
Errors: 42704 no such schedule, or its job type was dropped. 42501 the caller is not the owner and lacks
  access 'admin' to all tenants, or the owner may not enqueue the type.$$;

COMMENT ON FUNCTION jobq.run_schedule IS
$$Enqueues a job of a schedule as for a tick, with the rights of the owner, and returns its id. Pauses,
overlap, max_runs and other policies do not count. The job counts in runs and is the last one; last_tick stays.
name: of the schedule.
tick: the tick in payload and metadata; the job is due then, plus jitter.
tenant: of the schedule; NULL or '': the setting jobq.tenant, and no tenant if that is empty, too.
Errors: 42704 no such schedule, or its job type was dropped. 42501 the caller is not the owner and lacks
  access 'admin' to all tenants, or the owner may not enqueue the type. Otherwise those of enqueue.$$;

COMMENT ON FUNCTION jobq.backfill_schedule IS
$$Enqueues a job for each tick of a schedule between two times, as jobq.run_schedule does, the oldest first.
Returns the number of ticks. Ticks that have had a job get another one.
name: of the schedule; its cron expression is not 'after'.
since: first time that may be a tick.
until: last time that may be a tick.
max_runs: largest number of ticks, 1 to 10,000; if there are more, no job is enqueued.
tenant: of the schedule; NULL or '': the setting jobq.tenant, and no tenant if that is empty, too.
Errors: 54000 there are more ticks than max_runs. 42704 no such schedule, or its job type was dropped. 42501
  the caller is not the owner and lacks access 'admin' to all tenants, or the owner may not enqueue the type.
  22023 until is before since, or the expression is 'after'. Otherwise those of enqueue.$$;

COMMENT ON FUNCTION jobq.create_workflow IS
$$Creates a workflow, a job type whose jobs are runs: each run has a task for every step. For a workflow that
exists it makes a new version, which becomes active, and returns its number; if the caller has defined
exactly the same before, that version becomes active again. Runs keep their version. The caller becomes the
definer of the version: tasks are enqueued with its rights. The workflow's owner, members of the owner and
superusers make new versions.
name: of the workflow, a name of a job type: 1 to 63 bytes, no control characters, no space at either end.
steps: an array of 1 to 1,000 objects. Keys: key, job_type, after, rule, if, payload, map, max_parallel,
  delay, event, on_failure, compensate, priority, max_attempts, timeout, backoff, concurrency_key. JSON null
  counts as not given.
output: template of the run's result; NULL: an object of the results of the last steps.
on_failure: after the failure of a task: 'stop' starts only steps with the rules 'done' and 'failed';
  'continue' lets the rules decide; 'compensate' also runs the compensate jobs of completed steps.
options: an object: timeout (1 day, above zero), base_priority, max_concurrent, rate_limit, rate_window,
  keep_completed, keep_dead and critical, as in jobq.create_job_type, and keys of jobq.option_keys of kind
  'all'. What a new version does not give stays; JSON null is the default.
Errors: 22023 a step, a path, an option or an unknown option key; DETAIL lists all problems, one a line. 42704
  or 42501 if all problems are unknown job types, or types that the caller may not enqueue. 42710 the name is
  that of a job type that is no workflow. 42501 the caller is not the owner. 54000 over 1,000 steps, 10,000
  keys in after, or a definition larger than jobq.max_payload.$$;

COMMENT ON FUNCTION jobq.check_workflow IS
$$Checks the steps of a workflow as jobq.create_workflow does, without creating it. Returns a row for each
step, in the order of waves, and one for each further problem. Wave 1 has no after; each other step is one
wave behind the last step that it waits for. NULL: it is in a cycle of steps or behind one.
steps: as in jobq.create_workflow. A bad definition is no error: column problem has the reason; task_key is
  NULL if it belongs to no step with a key.
payload: of a run. Column payload has that of each task, filled as far as it depends on $.input only; NULL: a
  template is shown as it is. Conditions and maps over $.input are tried, too.
Errors: 54000 steps or payload are larger than jobq.max_payload.$$;

COMMENT ON FUNCTION jobq.graph IS
$$Returns a workflow, or a run with the statuses of its tasks, as a flowchart of Mermaid. A node for each step
has its key and job type; dotted edges lead to compensate jobs. For a run, each node has its task's status as
a class.
workflow: name of a workflow; not together with id.
version: of the workflow; NULL: the active one.
id: of a run.
Errors: 42704 no such workflow or version. P0002 no such job. 22004 workflow and id are both NULL. 22023 both
  are given, or the job is no run.$$;

COMMENT ON FUNCTION jobq.retry_workflow IS
$$Takes up an ended run again: its dead and cancelled tasks, and what ended behind them. Completed tasks, and
completed elements of a map, keep their results. The run has a new deadline. With another version it does the same to a live run, whose tasks
that have not begun start by that version; tasks that run go on, or are cancelled if the version lacks them,
and the deadline stays.
Returns false if there is no such run, nothing is to be done again, or it is live and version is NULL or its
own, from_task is given, or it is being cancelled or compensated. Steps that had got their event and are done
again wait for it again.
id: of the run.
from_task: key of a step that is done again with all behind it; NULL: none.
version: of the workflow, for this run from now on; NULL: it keeps its version.
Errors: 42704 the workflow has no such version. 22023 it has no step from_task, or the version lacks a step
  that has completed or was skipped, or does not fit the steps that tasks have added. 55000 the run has been
  compensated, its row or that of a task that would not run again has expired, it is a task of a run that has
  ended or ends, or a task has begun that was added by one that is to run again.$$;

COMMENT ON FUNCTION jobq.pause_workflow IS
$$Pauses a run: no further task starts, nor one of the runs among its tasks. Tasks that wait for a worker are
taken back; tasks that run go on. Delays and the deadline go on, too. A run that has not begun begins paused.
Returns false if there is no such live run, or it is paused already.
id: of the run.
reason: shown in jobq.workflow_runs.
Errors: 22004 id is NULL.$$;

COMMENT ON FUNCTION jobq.resume_workflow IS
$$Resumes a paused run, with the runs among its tasks. Returns false if there is no such run, or it is not
paused.
id: of the run.
Errors: 22004 id is NULL.$$;

COMMENT ON FUNCTION jobq.send_event IS
$$Sends an event to a run: steps with that event complete, with data as their result. A step that is not
there yet finds the event when its turn comes. Returns false if there is no such live run, or the event was
sent before. The caller needs access 'enqueue' to the workflow and the tenant of the run.
id: of the run.
event: name of the event, 1 to 63 bytes, no control characters.
data: the result of the steps.
Errors: 22023 event is no name. 54000 data, or all data that were sent to the run together, are larger than
  jobq.max_payload; or the run has had 1,000 events.$$;

COMMENT ON FUNCTION jobq.add_tasks IS
$$Adds steps to the run that the calling task belongs to, and returns the ids of their tasks. What waits for
the calling task waits for them, too. To be called in a SQL handler, or with id and lease_token of a claimed
job. If the attempt of a handler fails, the tasks are gone with its other changes.
steps: as in jobq.create_workflow, with new keys; after may name steps of the run.
id: of the claimed job.
lease_token: of its attempt.
Errors: 22023 a step or a path; DETAIL lists all problems. 42704 an unknown job type. 42501 the caller lacks
  access 'enqueue' to a job type for the tenant of the run. 54000 the run would have over 1,000 steps. 55000
  outside a task of a run, or the run ends already.$$;

COMMENT ON FUNCTION jobq.next_runs IS
$$Returns the next ticks of a cron expression, in order, each once. A tick is a whole second after since,
never since itself. The set ends early only with the range of timestamptz.
cron: minute hour day month weekday, or six fields, seconds first; @daily and the like; or every 90s, which
  counts from 1970. A semicolon joins expressions. At most 1,024 bytes.
timezone: a name of pg_timezone_names; the fields are local times of this zone.
n: number of ticks, 1 to 10,000.
since: time before the first tick; finite.
Errors: 22023 cron has no tick within 100 years, or is after 90s, which has no ticks of its own. 54000 n is over
  10,000.$$;

COMMENT ON FUNCTION jobq.set_tenant_quota IS
$$Limits the jobs and schedules of a tenant and the tenants below it. An enqueue above max_live, max_bytes or
enqueues_per_minute fails with 53400, and so does jobq.schedule above max_schedules. Existing jobs and
schedules count and stay; retried jobs count and are not refused.
All limits NULL: removes the quota.
tenant: 'acme' covers acme and acme/...
max_live: live jobs.
max_bytes: bytes of payload and metadata of the live jobs, as text.
enqueues_per_minute: enqueues in any minute, rolled back ones included. A restart of the server starts the
  count again.
max_running: jobs that run at once, SQL handlers and tools of all types; a SQL worker with a batch counts as
  one. Further jobs wait, and jobs of other tenants pass them. Jobs that run already count.
max_schedules: schedules, also paused and finished ones.
Errors: 53400 1,024 tenants of the server have a quota already. 22023 tenant is ''.$$;

COMMENT ON FUNCTION jobq.wait_for IS
$$Waits until a job has ended and returns it; returns NULL at the timeout. For a job type that keeps nothing
the status comes from memory, without a result: memory has the last 512 such jobs of a database until the
server restarts.
id: of the job.
timeout: longest wait, an interval, at most 20 s; a longer one counts as 20 s, with a NOTICE, because a
  waiting session holds a snapshot.
Errors: P0002, at once: the job does not exist, the caller may not see it, or memory no longer has it. 25001
  the transaction is REPEATABLE READ or SERIALIZABLE, or enqueued the job itself. 55000 called in a handler.$$;

COMMENT ON FUNCTION jobq.current_job IS
$$Returns the job of the running SQL handler; elsewhere NULL.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.set_progress IS
$$Sets the progress of the running SQL handler's job, visible to other sessions at once. With options.events
= "all" the first call writes an event, later calls at most one a second.
progress: 0 to 100.
data: JSON; stored up to 8 kB, shown up to 512 bytes while the handler runs.
Errors: 55000 called outside a SQL handler.$$;

COMMENT ON FUNCTION jobq.log_event IS
$$Writes an event of the running handler's job; the event stays if the attempt rolls back. At most 10,000
events of one attempt are kept. Outside a handler id and lease_token name the attempt, and the event is part
of the caller's transaction.
message: text of at most jobq.max_payload bytes.
level: 'debug', 'info', 'warning' or 'error'.
type: type of the event, 1 to 63 bytes; not one that jobq writes itself, except 'log' and 'artifact'.
data: any JSON.
id: of the job, outside a handler.
lease_token: of its running attempt, outside a handler.
Errors: 55000 called outside a handler without id and lease_token, or lease_token is not of a running
  attempt. 22004 only one of id and lease_token is given.$$;

COMMENT ON FUNCTION jobq.record_artifact IS
$$Records an object that the running attempt has made or read: adds a row to jobq.artifacts, in the caller's
transaction, and returns its id. jobq stores no object and reads none. With options.events = "all" it also
writes an event. Outside a handler id and lease_token name the attempt.
key: key of the object: one to nine elements of 1 to 128 ASCII letters, digits, '.', '_' and '-', separated by
  '/', at most 1,024 bytes; no element is '.' or '..'. jobq.build_key makes one.
kind: 'input', 'output' or 'log'.
bucket: where the key is valid, up to 255 bytes.
size_bytes: 0 or more.
content_type: up to 255 bytes.
checksum: 'sha256:' and 64 hexadecimal digits; stored in lower case.
data: any JSON of at most jobq.max_payload.
id: of the job, outside a handler.
lease_token: of its running attempt, outside a handler.
Errors: 55000 called outside a handler without id and lease_token, or lease_token is not of a running
  attempt. 22004 key or kind is NULL, or only one of id and lease_token is given. 22023 key, kind, bucket,
  content_type or checksum is malformed. 22003 size_bytes is negative. 54000 key, bucket, content_type or data
  is too large. 25006 in a READ ONLY transaction and on a standby.$$;

COMMENT ON FUNCTION jobq.build_key IS
$$Returns an artifact key, outputs/JOB/TASK/NAME.EXT. Each text is one element of the
key: 1 to 128 ASCII letters, digits, '.', '_' and '-', neither '.' nor '..'.
job_id: id of the job.
task_key: key of the task; NULL: the key has no such element.
kind: 'input', 'output' or 'log'; the key begins with inputs, outputs or logs.
ext: extension, without its dot; NULL: none.
name: name of the object.
Errors: 22004 job_id, kind or name is NULL. 22023 a text is no element, kind is unknown, or ext begins with a
  dot. 54000 a text is too long.$$;

COMMENT ON FUNCTION jobq.claim IS
$$Claims jobs of types without handler and command, for the calling program to work. The dispatcher chooses
them by priority, limits, rates and keys, as for other types. The claim counts when the transaction commits; a
rollback or a lost connection gives the jobs back at once, uncharged. Up to 1,000 jobs. deadline is the start
plus the timeout; heartbeats do not move it. progress_data is a checkpoint: the last attempt's. A role with
access 'work' to some tenants gets jobs of those tenants; jobq.set_tenant_check is not asked. Jobs of a type
with options.min_batch come as a batch, or when their wait is over.
job_types: names, at most 256; NULL: every pull type that the role may work and whose options.max_lease is not
  below lease.
max_jobs: 1 to 1000. jobq.max_concurrent counts claimed jobs, too.
worker: name of the worker, for jobq.jobs and events; NULL: client/ and the process id.
lease: time without a heartbeat after which the job is another worker's; 1 second to options.max_lease.
wait: time to wait for a first job, up to 20 s. A SELECT that reads nothing else holds no snapshot meanwhile.
node: name of the machine, for jobq.jobs and events.
Errors: 42704 unknown type, or one that was dropped during the wait. 22023 the type has a handler or a
  command. 22003 max_jobs, lease or wait is out of range. 25001 the transaction is REPEATABLE READ or
  SERIALIZABLE, or wait meets an earlier snapshot: an open cursor, a statement that calls the function which
  calls claim, INSERT with RETURNING, a WITH that writes. 40001 the lease is over at COMMIT. 42501 the caller
  lacks access 'work' to the type, or lost it while the call waited. 0A000 node is given for a type with a
  command. 54000 too many types, a name is too long, or the tenants of the caller's grants are over 2,048
  bytes. 55000 no dispatcher runs here, it has not answered for 10 seconds, or DROP or ALTER EXTENSION has
  ended the wait. 25006 in a READ ONLY transaction and on a standby.$$;

COMMENT ON FUNCTION jobq.heartbeat IS
$$Renews the lease of a claimed job for its length. Returns 'ok'; 'cancel': its cancel was requested, stop and
fail or skip it; 'lost': the token is not valid any more, stop at once.
id: of the job.
lease_token: that jobq.claim returned.
progress: 0 to 100; NULL leaves it as it is.
data: any JSON: a checkpoint, which jobq.claim returns for the next attempt; NULL leaves it as it is.
Errors: 22003 progress is outside 0..100. 54000 data is too large.$$;

COMMENT ON FUNCTION jobq.complete IS
$$Ends a claimed job as completed, in the caller's transaction. Returns false if the lease is lost.
id: of the job.
lease_token: that jobq.claim returned.
result: stored with the job.
Errors: 54000 result is larger than jobq.max_output; the job stays claimed.$$;

COMMENT ON FUNCTION jobq.complete_many IS
$$Ends claimed jobs as completed, up to 1,000 in one call. Returns the ids that were completed; the others are
lost.
ids: of the jobs.
lease_tokens: as many, in the same order.
results: NULL, or as many in the same order.
Errors: 22023 arrays of different length. 22003 more than 1,000 ids. 54000 a result is larger than
  jobq.max_output; then no job ends.$$;

COMMENT ON FUNCTION jobq.fail IS
$$Ends the attempt of a claimed job as failed. Returns 'retry', 'error' (no attempt follows) or 'lost'. A job
whose cancel was requested becomes cancelled: 'error'.
id: of the job.
lease_token: that jobq.claim returned.
error: message.
retryable: true: an attempt follows while there are any left; false: none; NULL: options.permanent_codes and
  options.retry_codes decide.
error_code: code of the error, 1 to 255 bytes.
retry_after: delay of the next attempt, in place of the backoff.
details: any JSON; more than 32 kB is dropped.
Errors: 22023 error_code is empty. 54000 error_code is too long.$$;

COMMENT ON FUNCTION jobq.fail_many IS
$$Ends the attempts of claimed jobs as failed with one error, up to 1,000 in one call: a batch that fails whole.
Returns the ids whose tokens were valid; the others are lost. Each job is retried, or becomes a dead letter or
cancelled, as jobq.fail decides.
ids: of the jobs.
lease_tokens: as many, in the same order.
error: message.
retryable: true: an attempt follows while there are any left; false: none; NULL: options.permanent_codes and
  options.retry_codes decide.
error_code: code of the error, 1 to 255 bytes.
retry_after: delay of the next attempts, in place of the backoff.
Errors: 22023 arrays of different length, or error_code is empty. 22003 more than 1,000 ids. 54000 error_code is
  too long.$$;

COMMENT ON FUNCTION jobq.skip_job IS
$$Ends a claimed job as skipped. Returns false if the lease is lost.
id: of the job.
lease_token: that jobq.claim returned.
reason: becomes error_msg.
result: stored with the job.
Errors: 54000 result is larger than jobq.max_output.$$;

COMMENT ON FUNCTION jobq.snooze_job IS
$$Puts a claimed job back to wait, at no charge. Returns false if the lease is lost.
id: of the job.
lease_token: that jobq.claim returned.
delay: until the job is due again; '0': now.
reason: becomes error_msg.
Errors: 22023 delay is below zero.$$;

COMMENT ON FUNCTION jobq.skip IS
$$Ends the job as skipped when the running SQL handler returns; the changes of the handler are committed.
The last call of skip, discard and snooze counts. An error after the call makes the attempt a failure.
reason: becomes error_msg of the job.
Errors: 55000 called outside a SQL handler.$$;

COMMENT ON FUNCTION jobq.discard IS
$$Makes the job a dead letter without a further attempt when the running SQL handler returns; the changes of
the handler are committed. The last call of skip, discard and snooze counts.
reason: becomes error_msg of the job; required.
Errors: 55000 called outside a SQL handler.$$;

COMMENT ON FUNCTION jobq.snooze IS
$$Lets the job wait again when the running SQL handler returns; the attempt is not charged, and the changes
of the handler are committed. The last call of skip, discard and snooze counts.
delay: time until the job is due again, an interval of zero or more.
reason: becomes error_msg until the next attempt.
Errors: 55000 called outside a SQL handler.$$;

COMMENT ON FUNCTION jobq.set_signal IS
$$Sets or clears a signal that pressure rules name; creates a new one. Takes effect at commit.
name: of the signal, 1 to 63 bytes; not load, disk or replication_lag, which jobq sets itself.
active: true or false.
ttl: interval above zero after which an active signal ends by itself; NULL: it stays active.
Errors: 22023 the name is one of a signal that jobq sets itself.$$;

COMMENT ON FUNCTION jobq.create_signal IS
$$Creates a signal that a SQL condition sets. A background process evaluates the condition repeatedly in a
read-only transaction, as the role that called this function, for at most 5 seconds. If it fails or is NULL,
the signal stays as it is; an event and jobq.health() have the reason.
name: of the signal, 1 to 63 bytes; not load, disk or replication_lag.
condition: a boolean expression, or a SELECT of one. Names are looked up in the search_path of this call.
every: interval above zero between two evaluations; at least one second passes.
on_conflict: if the name is taken: 'error' raises 42710; 'replace' changes condition, every, role and
  search_path, keeps the rules, and evaluates at once; 'ignore' changes nothing.
Errors: 42710 the signal exists. 42601, 42703 and others: the condition is not a valid expression. 22023 it
  is not boolean, or the name is one of a signal that jobq sets itself.$$;

COMMENT ON FUNCTION jobq.drop_signal IS
$$Drops a signal.
name: of the signal.
force: false refuses a signal that pressure rules name; true drops these rules, too.
Errors: 42704 no such signal. 55006 pressure rules name it. 22023 jobq sets the signal itself.$$;

COMMENT ON FUNCTION jobq.set_pressure_rule IS
$$Sets what a job type does while a signal is active. The rules of several active signals add up. A rule in
which all arguments have their defaults is removed.
job_type: name of a job type; NULL: every type.
signal: name of a signal, also load, disk or replication_lag.
priority_adj: -1000 to 1000, added to the priority of the jobs.
block: true: the jobs do not start. Running jobs continue.
max_weight: 1 to 1,000,000, lowers jobq.max_weight; only with job_type NULL.
Errors: 42704 no such job type or signal. 22023 max_weight together with a job type.$$;

COMMENT ON FUNCTION jobq.run_inline IS
$$Runs a waiting SQL job in this transaction as a worker would, with the role, timeout and outcome of its
type, and returns the job. For tests that never commit, such as those of pgTAP. Concurrency keys, limits and
breakers are not checked. A handler of another role than the caller's fails with 42501 where it would leave
something in the session: a held cursor, a deferred trigger, a temporary object, PREPARE, LISTEN. Of a run,
it runs all tasks, one at a time in the order in which they are released; one that fails is retried at once.
id: of the job.
Errors: 22023 the job does not wait, or is not of a SQL type. 42704 its role does not exist. 55000 called in
  a handler, all jobs are stopped, or the database is a restored dump. 0A000 a step of the run waits for an
  event or a later time, or is not of a SQL type.$$;

COMMENT ON FUNCTION jobq.health IS
$$Returns the state of the queue as JSON: status (healthy, degraded or unhealthy), checks and details. The
settings jobq.health_* have the limits.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.why IS
$$Tells why a job does not start, as the dispatcher decides it: {status, reasons, ahead, start_in_s}. Each
of reasons has a code, a message, until (the reason ends then by itself) and holder (a job, limit or signal
that it waits for, if the caller may see it). When all reasons have ended, the job starts. A job that has
started or ended has none. ahead is the number of jobs that go before it, {n, exact}, counted to 10,000.
start_in_s is NULL if it cannot be foreseen. A dispatcher that does not run or does not answer within a
second is the reason 'dispatcher'.
id: of the job.
Errors: P0002 there is no such job, or the caller may not see it.$$;

COMMENT ON FUNCTION jobq.resources IS
$$Returns {disk, signals, weight, rules, running}: how full the disks are, with their paths for readers of
all tenants; the signals; cpu_weight of the running jobs and jobq.max_weight, NULL without; priorities,
limits and pressure rules of each job type; the jobs that workers of the server run now, the longest first.
Types and jobs that the caller may not see are left out, and so are jobs of pull types.
Errors: 42501 the caller lacks access 'read'.$$;

COMMENT ON FUNCTION jobq.metrics IS
$$Returns counters and gauges of this database as text for a monitoring system. It reads no table. Ticks are
counted since the start of the server.
format: 'prometheus' or 'openmetrics'.
Errors: 22023 another format. 42501 the caller may not read the jobs of all tenants and types, and is no
  member of pg_monitor.$$;

COMMENT ON FUNCTION jobq.stat_series IS
$$Returns what happened in steps of time: of the database every 10 seconds for an hour and every 2 minutes for
a day, of each job type every minute for an hour. Steps in which the dispatcher did not run are in the next
one. A type's row has no columns started, died and wait_buckets; its completed counts jobs however they ended.
step: '10 seconds', '1 minute' or '2 minutes'.
Errors: 22023 another step. 42501 the caller may not read the jobs of all tenants and types, and is no
  member of pg_monitor.$$;

COMMENT ON FUNCTION jobq.stat_reset IS
$$Sets counters of jobq.stat_job_types back to 0, for all types also those of jobq.stat_dispatcher and
jobq.stat_series. Counts of rows stay. It takes effect at the commit; a transaction with it cannot be prepared.
job_type: of which; NULL: of all.
Errors: 42704 no such job type. 55000 the job type shares its statistics with others: jobq.max_stat_types.
  42501 the caller has no access "admin" for all tenants and types.$$;

COMMENT ON FUNCTION jobq.version IS
$$Returns the version of the extension in this database.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.adopt IS
$$Lets the jobs and schedules of this database run here. A restored dump or a copy of a database runs no job
before this call, because the original may still run them. Ticks of schedules before the call have no jobs.
Attempts of clients that the original had end as lease_expired; their tokens are lost.
Waits for open and prepared transactions that have written jobs or schedules.
Errors: only those of every function.$$;

COMMENT ON FUNCTION jobq.reload IS
$$Applies settings of ALTER DATABASE when this transaction commits: the dispatcher restarts, jobs that start
afterwards run in new processes, running jobs end in theirs.
Errors: only those of every function.$$;

COMMENT ON VIEW jobq.jobs IS 'Every job: live, finished as long as it is kept, and dead letters';
COMMENT ON COLUMN jobq.jobs.id IS 'UUIDv7: newer jobs have greater ids; it shows the time of creation and nothing else';
COMMENT ON COLUMN jobq.jobs.job_type IS 'name of its job type, also when that was dropped';
COMMENT ON COLUMN jobq.jobs.status IS 'pending (due or in the future), blocked, retry, running; completed, skipped, cancelled, error (dead letter)';
COMMENT ON COLUMN jobq.jobs.priority IS '-100 to 100, higher runs first';
COMMENT ON COLUMN jobq.jobs.payload IS 'input of the handler or tool';
COMMENT ON COLUMN jobq.jobs.result IS 'return value of the handler, or stdout of the tool';
COMMENT ON COLUMN jobq.jobs.error_msg IS 'error of the last failed attempt, or reason of a cancel, skip or snooze';
COMMENT ON COLUMN jobq.jobs.error_code IS 'SQLSTATE, exit:N, signal:NAME, timeout, stalled, bad_output, helper_lost, server_crash, or the code that a tool reports';
COMMENT ON COLUMN jobq.jobs.error_details IS 'detail, hint and context of a SQL error, or the last 8 kB of stderr';
COMMENT ON COLUMN jobq.jobs.attempts IS 'attempts charged, the running one included';
COMMENT ON COLUMN jobq.jobs.max_attempts IS 'failures until it becomes a dead letter';
COMMENT ON COLUMN jobq.jobs.runs IS 'starts; never falls, unlike attempts';
COMMENT ON COLUMN jobq.jobs.created_at IS 'time of the enqueue';
COMMENT ON COLUMN jobq.jobs.scheduled_for IS 'time at which the job is or was due';
COMMENT ON COLUMN jobq.jobs.started_at IS 'start of the current or last attempt';
COMMENT ON COLUMN jobq.jobs.completed_at IS 'end of the job; NULL: live';
COMMENT ON COLUMN jobq.jobs.updated_at IS 'last known change, computed from the other times';
COMMENT ON COLUMN jobq.jobs.progress IS '0 to 100, set by the handler or tool';
COMMENT ON COLUMN jobq.jobs.progress_data IS 'JSON that the handler or tool set with the progress';
COMMENT ON COLUMN jobq.jobs.tenant IS 'tenant of the job; NULL: none';
COMMENT ON COLUMN jobq.jobs.unique_key IS 'one live job per job type, tenant and key';
COMMENT ON COLUMN jobq.jobs.concurrency_key IS 'at most options.concurrency_per_key (1) jobs with the same key and tenant run at once';
COMMENT ON COLUMN jobq.jobs.timeout IS 'longest duration of one attempt; NULL: as the type';
COMMENT ON COLUMN jobq.jobs.worker IS 'process of the current or last attempt';
COMMENT ON COLUMN jobq.jobs.node IS 'machine of the current or last attempt; NULL: the server';
COMMENT ON COLUMN jobq.jobs.lease_expires_at IS 'end of the lease of a claimed job';
COMMENT ON COLUMN jobq.jobs.parent_id IS 'job that enqueued it in its handler, or the job that was rerun';
COMMENT ON COLUMN jobq.jobs.depth IS 'number of jobs in the chain of enqueues above this one';
COMMENT ON COLUMN jobq.jobs.workflow_id IS 'run that the job is a task of';
COMMENT ON COLUMN jobq.jobs.task_key IS 'its step in that run; of a map with the number of the element: page.7';
COMMENT ON COLUMN jobq.jobs.metadata IS 'metadata given at the enqueue';
COMMENT ON COLUMN jobq.jobs.after IS 'jobs that had to end before this one, or have to';
COMMENT ON COLUMN jobq.jobs.after_rule IS 'how they have to end: success, done, any, failed';

COMMENT ON VIEW jobq.option_keys IS 'Keys that the options of a job type may have';
COMMENT ON COLUMN jobq.option_keys.key IS 'key in options';
COMMENT ON COLUMN jobq.option_keys.kind IS 'job types that accept the key: exec, sql, pull, all';
COMMENT ON COLUMN jobq.option_keys.type IS 'type of its value';
COMMENT ON COLUMN jobq.option_keys.default_value IS 'value without the key; NULL: none';
COMMENT ON COLUMN jobq.option_keys.meaning IS 'effect of the key';

COMMENT ON TYPE jobq.job_status IS 'The states of a job';
COMMENT ON TABLE jobq.home IS 'Identity of the database: valid while xmin of the row is the transaction it names, which a restored dump does not keep';
COMMENT ON COLUMN jobq.home.home_id IS 'queue rows with another one are inert';
COMMENT ON COLUMN jobq.home.self_xid IS 'the transaction that wrote this row';
COMMENT ON COLUMN jobq.home.database IS 'the oid of the database it was written in; a copy has another';
COMMENT ON TABLE jobq.job_types IS 'The registry of job types, the dropped ones included. Columns that are not described here are create_job_type''s arguments';
COMMENT ON COLUMN jobq.job_types.id IS 'type_id in queue, history and dead letters';
COMMENT ON COLUMN jobq.job_types.owner IS 'name of the role that may change it; owner_oid decides';
COMMENT ON COLUMN jobq.job_types.run_as IS 'name of the role that its handlers run as; run_as_oid decides';
COMMENT ON COLUMN jobq.job_types.owner_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.job_types.run_as_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.job_types.handler IS 'schema.function(argument types), looked up when a job runs';
COMMENT ON COLUMN jobq.job_types.command IS 'program and arguments, instead of a handler';
COMMENT ON COLUMN jobq.job_types.options IS 'options; env is in jobq.job_type_env';
COMMENT ON COLUMN jobq.job_types.paused IS 'hands out no jobs';
COMMENT ON COLUMN jobq.job_types.pause_reason IS 'reason of the pause';
COMMENT ON COLUMN jobq.job_types.resumed_at IS 'last call of jobq.resume_job_type; NULL: never';
COMMENT ON COLUMN jobq.job_types.paused_until IS 'end of the pause; NULL: until jobq.resume_job_type';
COMMENT ON COLUMN jobq.job_types.kind IS 'sql: a handler, exec: a command, workflow: steps, pull: none of them';
COMMENT ON COLUMN jobq.job_types.is_workflow IS 'jobq.create_workflow made it: its jobs are runs';
COMMENT ON COLUMN jobq.job_types.paused_at IS 'start of the pause; NULL: none, or an older release started it';
COMMENT ON COLUMN jobq.job_types.dropped_at IS 'time of the drop; NULL: the type exists';
COMMENT ON TABLE jobq.job_type_env IS 'options.env of job types; only the owner of this table may read it';
COMMENT ON COLUMN jobq.job_type_env.type_id IS 'id of jobq.job_types';
COMMENT ON COLUMN jobq.job_type_env.env IS 'environment variables with their values';
COMMENT ON TABLE jobq.limits IS 'Limits that job types share';
COMMENT ON COLUMN jobq.limits.name IS 'name in options.limits';
COMMENT ON COLUMN jobq.limits.max_concurrent IS 'jobs of these types that run at once; 0: no limit';
COMMENT ON COLUMN jobq.limits.rate_limit IS 'starts of these types in any rate_window; 0: no limit';
COMMENT ON COLUMN jobq.limits.rate_window IS 'length of the window of rate_limit';
COMMENT ON TABLE jobq.stopped IS 'The kill switch: with a row in it no job starts';
COMMENT ON COLUMN jobq.stopped.one IS 'true: the table has at most one row';
COMMENT ON COLUMN jobq.stopped.reason IS 'reason given to jobq.stop_all()';
COMMENT ON COLUMN jobq.stopped.since IS 'time of the stop';
COMMENT ON TABLE jobq.queue IS 'Live jobs only: pending, blocked, retry, running. Columns that are not described here are those of jobq.jobs';
COMMENT ON COLUMN jobq.queue.position IS 'place in its lane: scheduled_for, but never before the moment it was set; infinity of a blocked job';
COMMENT ON COLUMN jobq.queue.type_id IS 'jobq.job_types.id; no foreign key: its row lock would be contended';
COMMENT ON COLUMN jobq.queue.rev IS 'rises with every write; an executor with an older rev gives the job up';
COMMENT ON COLUMN jobq.queue.home_id IS 'jobq.home.home_id; a row of another home is inert';
COMMENT ON COLUMN jobq.queue.status IS 'a running SQL job is still pending or retry here; jobq.jobs shows running';
COMMENT ON COLUMN jobq.queue.crashes IS 'server crashes in its attempts';
COMMENT ON COLUMN jobq.queue.sublane IS 'zero, or its tenant''s lane';
COMMENT ON COLUMN jobq.queue.successor IS 'shares its unique_key with a running job';
COMMENT ON COLUMN jobq.queue.timeout IS 'NULL: its type''s';
COMMENT ON COLUMN jobq.queue.backoff IS 'keys that differ from its type''s';
COMMENT ON COLUMN jobq.queue.unique_for IS 'how long unique_key also covers the finished job';
COMMENT ON COLUMN jobq.queue.keep_completed IS 'NULL: its type''s';
COMMENT ON COLUMN jobq.queue.keep_dead IS 'NULL: its type''s';
COMMENT ON COLUMN jobq.queue.lease_token IS 'identifies the attempt; never shown by jobq.jobs';
COMMENT ON TABLE jobq.history IS 'Jobs that ended as completed, skipped or cancelled, partitioned by expires_at. Columns that are not described here are those of jobq.jobs';
COMMENT ON COLUMN jobq.history.expires_at IS 'end plus keep_completed; whole partitions are dropped';
COMMENT ON COLUMN jobq.history.unique_until IS 'end of the time for which unique_key covers the finished job';
COMMENT ON TABLE jobq.dead_letters IS 'Jobs without further attempts, until retried or purged; columns as in jobq.history';
COMMENT ON COLUMN jobq.dead_letters.expires_at IS 'end plus keep_dead; infinity: until purged';
COMMENT ON COLUMN jobq.history.counted IS 'true: counts for keep_completed_count of its type';
COMMENT ON TABLE jobq.unique_for_types IS 'Job types of which a job with unique_for was enqueued';
COMMENT ON COLUMN jobq.unique_for_types.type_id IS 'jobq.job_types.id; several rows of a type count as one';
COMMENT ON TABLE jobq.hook_references IS 'Jobs of hooks that need the row of another job; the row stays until they have ended';
COMMENT ON COLUMN jobq.hook_references.hook_job IS 'the job of the hook';
COMMENT ON COLUMN jobq.hook_references.job_id IS 'the job that must keep its row (job_id of the payload of hook_job)';
COMMENT ON TABLE jobq.counted_types IS 'Types with keep_completed_count, and how far their older history is marked as counted';
COMMENT ON COLUMN jobq.counted_types.type_id IS 'jobq.job_types.id';
COMMENT ON COLUMN jobq.counted_types.done IS 'true: all of it is marked';
COMMENT ON COLUMN jobq.counted_types.partition IS 'else: the partition to continue with';
COMMENT ON COLUMN jobq.counted_types.block IS 'and the block in that partition';
COMMENT ON TABLE jobq.disk_log IS 'Use of the server''s file systems: the last 1,000 readings of each, one a minute';
COMMENT ON COLUMN jobq.disk_log.ts IS 'time of the reading';
COMMENT ON COLUMN jobq.disk_log.path IS 'a directory of the server in that file system';
COMMENT ON COLUMN jobq.disk_log.total_bytes IS 'bytes that the server may use, used or free';
COMMENT ON COLUMN jobq.disk_log.used_bytes IS 'bytes in use';
COMMENT ON COLUMN jobq.disk_log.percent IS 'used_bytes as a percentage of total_bytes';
COMMENT ON COLUMN jobq.disk_log.level IS 'ok, warning, critical or emergency: jobq.disk_warning, disk_critical, disk_emergency';
COMMENT ON TABLE jobq.dead_letter_count IS 'Number of dead letters: the sum of change over all rows';
COMMENT ON COLUMN jobq.dead_letter_count.change IS 'dead letters that a transaction added or, negative, removed';
COMMENT ON TABLE jobq.signals IS 'Pressure signals that jobq.set_signal or a condition sets';
COMMENT ON COLUMN jobq.signals.id IS 'number of the signal in shared memory';
COMMENT ON COLUMN jobq.signals.name IS 'name in pressure rules';
COMMENT ON COLUMN jobq.signals.active IS 'value that was set last';
COMMENT ON COLUMN jobq.signals.active_until IS 'time at which an active signal ends by itself; NULL: it does not';
COMMENT ON COLUMN jobq.signals.condition IS 'SQL condition that sets it; NULL: jobq.set_signal does';
COMMENT ON COLUMN jobq.signals.definer IS 'name of the role that the condition runs as; definer_oid decides';
COMMENT ON COLUMN jobq.signals.definer_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.signals.search_path IS 'search_path of the condition';
COMMENT ON COLUMN jobq.signals.every IS 'interval between two evaluations of the condition';
COMMENT ON COLUMN jobq.signals.problem IS 'error of the last evaluation; NULL: it had a value';
COMMENT ON COLUMN jobq.signals.changed_at IS 'time of the last change';
COMMENT ON TABLE jobq.pressure_rules IS 'Effect of an active signal on job types';
COMMENT ON COLUMN jobq.pressure_rules.type_id IS 'jobq.job_types.id; 0: every type';
COMMENT ON COLUMN jobq.pressure_rules.signal IS 'name of a signal, also of a built-in one';
COMMENT ON COLUMN jobq.pressure_rules.priority_adj IS 'added to the priority of its jobs';
COMMENT ON COLUMN jobq.pressure_rules.block IS 'true: the jobs do not start';
COMMENT ON COLUMN jobq.pressure_rules.max_weight IS 'lowers jobq.max_weight; NULL: no effect';
COMMENT ON TABLE jobq.events IS 'Events of jobs, partitioned by time, kept for jobq.keep_events';
COMMENT ON COLUMN jobq.events.id IS 'unique; orders events with the same ts';
COMMENT ON COLUMN jobq.events.ts IS 'time of the event';
COMMENT ON COLUMN jobq.events.job_id IS 'the job; its row may be deleted';
COMMENT ON COLUMN jobq.events.job_type IS 'name of its job type';
COMMENT ON COLUMN jobq.events.tenant IS 'tenant of the job';
COMMENT ON COLUMN jobq.events.attempt IS 'the attempt it belongs to; 0: before the first';
COMMENT ON COLUMN jobq.events.type IS 'event type (docs/reference/events.md), or the type given to log_event';
COMMENT ON COLUMN jobq.events.source IS 'client, dispatcher, sql, helper, worker:NAME';
COMMENT ON COLUMN jobq.events.level IS 'debug, info, warning or error';
COMMENT ON COLUMN jobq.events.message IS 'text of the event';
COMMENT ON COLUMN jobq.events.data IS 'further facts as JSON (docs/reference/events.md)';
COMMENT ON COLUMN jobq.queue.key_hash IS 'hash of concurrency_key and tenant, indexed; NULL: no key, or blocked';
COMMENT ON COLUMN jobq.queue.key_since IS 'place in the order of concurrency_key: created_at, or when the blocked job was released';
COMMENT ON COLUMN jobq.queue.keep_until IS 'when the finished job expires, over all other rules; NULL: they decide';
COMMENT ON TABLE jobq.dependencies IS 'Edges from jobs to the blocked jobs that wait for them; an edge goes when the end of its parent has counted';
COMMENT ON COLUMN jobq.dependencies.parent_id IS 'job that has to end';
COMMENT ON COLUMN jobq.dependencies.child_id IS 'job that waits';
COMMENT ON COLUMN jobq.queue.schedule_id IS 'jobq.schedules.id, if a tick enqueued the job';
COMMENT ON COLUMN jobq.queue.lease IS 'length of the lease of a claimed job';
COMMENT ON COLUMN jobq.queue.cancel_requested IS 'true: heartbeat answers cancel; error_msg has the reason';
COMMENT ON COLUMN jobq.queue.enqueued_by IS 'oid and name of the enqueuing role if it is held to grants; the name is for restored dumps';
COMMENT ON DOMAIN jobq.access_kind IS 'Kinds of access of jobq.grant_access; USAGE on it marks the roles that are held to their grants';
COMMENT ON TABLE jobq.access IS 'Grants of jobq.grant_access';
COMMENT ON COLUMN jobq.access.role IS 'name of the role when the grant was made, for dumps';
COMMENT ON COLUMN jobq.access.access IS 'enqueue, work, read or admin';
COMMENT ON COLUMN jobq.access.tenant IS 'this one and those below it; NULL: every one; '''': jobs without one';
COMMENT ON COLUMN jobq.access.job_types IS 'names; NULL: every type';
COMMENT ON COLUMN jobq.access.role_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON TABLE jobq.tenant_check IS 'The function of jobq.set_tenant_check: one row or none';
COMMENT ON COLUMN jobq.tenant_check.signature IS 'schema.function(pg_catalog.text)';
COMMENT ON TABLE jobq.audit IS 'Management calls, partitioned by time, kept for jobq.keep_audit; rows are never changed';
COMMENT ON COLUMN jobq.audit.id IS 'unique';
COMMENT ON COLUMN jobq.audit.ts IS 'time of the call';
COMMENT ON COLUMN jobq.audit.by IS 'user of the session; after SET ROLE "user as role"';
COMMENT ON COLUMN jobq.audit.action IS 'the function that was called';
COMMENT ON COLUMN jobq.audit.object_type IS 'job_type, workflow, limit, signal, rule, role, tenant, schedule, database, job, run, jobs';
COMMENT ON COLUMN jobq.audit.object IS 'name or id; NULL: many, see new.filter';
COMMENT ON COLUMN jobq.audit.tenant IS 'tenant of the object; NULL: it has none, or the call is about all tenants';
COMMENT ON COLUMN jobq.audit.old IS 'state before the call, without payloads and options.env; NULL: it did not exist';
COMMENT ON COLUMN jobq.audit.new IS 'state after it; of bulk calls filter and count';
COMMENT ON COLUMN jobq.audit.client_addr IS 'address of the client; NULL: a local socket';

COMMENT ON TABLE jobq.alerts IS 'Alerts: dead letters and tools that cannot be started; partitioned by time, kept for jobq.keep_events';
COMMENT ON COLUMN jobq.alerts.ts IS 'time of the alert';
COMMENT ON COLUMN jobq.alerts.severity IS 'high for a critical job type, else warning';
COMMENT ON COLUMN jobq.alerts.title IS 'kind of the alert';
COMMENT ON COLUMN jobq.alerts.message IS 'text with the job; also the line in the server log';
COMMENT ON COLUMN jobq.alerts.job_id IS 'the job; its row may be deleted';
COMMENT ON COLUMN jobq.alerts.job_type IS 'name of its job type';
COMMENT ON COLUMN jobq.alerts.tenant IS 'tenant of the job';
COMMENT ON COLUMN jobq.alerts.attempts IS 'attempts charged';
COMMENT ON COLUMN jobq.alerts.error_msg IS 'error of the last attempt';
COMMENT ON TABLE jobq.artifacts IS 'Artifacts: objects that attempts have made, one row for each call of jobq.record_artifact or line of a tool; partitioned by expires_at';
COMMENT ON COLUMN jobq.artifacts.id IS 'unique';
COMMENT ON COLUMN jobq.artifacts.created_at IS 'when it was recorded';
COMMENT ON COLUMN jobq.artifacts.job_id IS 'the job; its row may be deleted';
COMMENT ON COLUMN jobq.artifacts.workflow_id IS 'the run that the job is a task of';
COMMENT ON COLUMN jobq.artifacts.task_key IS 'the step of that run';
COMMENT ON COLUMN jobq.artifacts.tenant IS 'tenant of the job';
COMMENT ON COLUMN jobq.artifacts.attempt IS 'the attempt that recorded it, also a failed one';
COMMENT ON COLUMN jobq.artifacts.key IS 'key of the object';
COMMENT ON COLUMN jobq.artifacts.kind IS 'input, output or log';
COMMENT ON COLUMN jobq.artifacts.bucket IS 'where the key is valid';
COMMENT ON COLUMN jobq.artifacts.size_bytes IS 'size of the object';
COMMENT ON COLUMN jobq.artifacts.content_type IS 'media type of the object';
COMMENT ON COLUMN jobq.artifacts.checksum IS 'sha256: and 64 hexadecimal digits in lower case';
COMMENT ON COLUMN jobq.artifacts.data IS 'further facts as JSON';
COMMENT ON COLUMN jobq.artifacts.job_type IS 'name of the job''s type';
COMMENT ON COLUMN jobq.artifacts.expires_at IS 'time at which the row is removed';

COMMENT ON TABLE jobq.before_drops IS 'Ranges of history, events and artifacts that stay until a job of jobq.before_drop_type has completed';
COMMENT ON COLUMN jobq.before_drops.what IS 'history, events or artifacts';
COMMENT ON COLUMN jobq.before_drops.low IS 'start of the range: of expires_at, of events ts';
COMMENT ON COLUMN jobq.before_drops.high IS 'its end, which it does not include';
COMMENT ON COLUMN jobq.before_drops.job_id IS 'the job; NULL: it could not be enqueued';
COMMENT ON COLUMN jobq.before_drops.problem IS 'why it could not';

COMMENT ON TABLE jobq.tenant_quotas IS 'Quotas: jobq.set_tenant_quota';
COMMENT ON COLUMN jobq.tenant_quotas.tenant IS 'this one and those below it';
COMMENT ON COLUMN jobq.tenant_quotas.max_live IS 'live jobs; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.max_bytes IS 'bytes of payload and metadata of live jobs; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.enqueues_per_minute IS 'enqueues in any minute; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.max_running IS 'jobs that run at once; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.max_schedules IS 'schedules; NULL: not limited';
COMMENT ON TABLE jobq.quota_jobs IS 'Jobs that count for a quota of max_live or max_bytes; some of them have ended';
COMMENT ON COLUMN jobq.quota_jobs.tenant IS 'tenant of the quota';
COMMENT ON COLUMN jobq.quota_jobs.job_id IS 'the job';
COMMENT ON COLUMN jobq.quota_jobs.bytes IS 'bytes of payload and metadata, as text';
COMMENT ON TABLE jobq.schedules IS 'Schedules: a job at each tick of a cron expression';
COMMENT ON COLUMN jobq.schedules.name IS 'unique among the schedules of its tenant';
COMMENT ON COLUMN jobq.schedules.cron IS 'cron expression or interval';
COMMENT ON COLUMN jobq.schedules.job_type IS 'type of the jobs';
COMMENT ON COLUMN jobq.schedules.payload IS 'payload of the jobs, with placeholders';
COMMENT ON COLUMN jobq.schedules.timezone IS 'time zone of the fields of cron';
COMMENT ON COLUMN jobq.schedules.starts_at IS 'first time that may be a tick; NULL: any';
COMMENT ON COLUMN jobq.schedules.ends_at IS 'last time that may be a tick; NULL: any';
COMMENT ON COLUMN jobq.schedules.max_runs IS 'jobs after which it is finished; NULL: no limit';
COMMENT ON COLUMN jobq.schedules.catch_up IS 'missed ticks that get a job: skip, one, all';
COMMENT ON COLUMN jobq.schedules.catch_up_limit IS 'catch_up = all: at most this many';
COMMENT ON COLUMN jobq.schedules.overlap IS 'action of a tick while the last job is live: skip, queue, allow, cancel';
COMMENT ON COLUMN jobq.schedules.jitter IS 'longest delay of a job after its tick';
COMMENT ON COLUMN jobq.schedules.pause_after_failures IS 'dead letters in a row that pause it; NULL: none';
COMMENT ON COLUMN jobq.schedules.options IS 'further arguments of jobq.enqueue';
COMMENT ON COLUMN jobq.schedules.tenant IS 'its tenant and that of its jobs; NULL: none';
COMMENT ON COLUMN jobq.schedules.owner IS 'name of the role whose rights its jobs are enqueued with; owner_oid decides';
COMMENT ON COLUMN jobq.schedules.status IS 'active; paused; finished: no further tick, or max_runs jobs';
COMMENT ON COLUMN jobq.schedules.reason IS 'reason of the pause';
COMMENT ON COLUMN jobq.schedules.paused_until IS 'end of the pause; NULL: until jobq.resume_schedule';
COMMENT ON COLUMN jobq.schedules.runs IS 'jobs that it has enqueued';
COMMENT ON COLUMN jobq.schedules.skipped IS 'ticks without a job: by overlap, catch_up, a unique key or an error of enqueue';
COMMENT ON COLUMN jobq.schedules.last_tick IS 'last tick with a job, not by jobq.run_schedule or jobq.backfill_schedule';
COMMENT ON COLUMN jobq.schedules.last_job_id IS 'id of the last job';
COMMENT ON COLUMN jobq.schedules.next_tick IS 'next tick; NULL: none, or the end of the last job decides';
COMMENT ON COLUMN jobq.schedules.created_at IS 'time of jobq.schedule';
COMMENT ON COLUMN jobq.schedules.updated_at IS 'time of the last change, ticks included';
COMMENT ON COLUMN jobq.schedules.id IS 'schedule_id in queue';
COMMENT ON COLUMN jobq.schedules.owner_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.schedules.ticks_after IS 'ticks up to this time are decided or gone';
COMMENT ON COLUMN jobq.schedules.waiting_tick IS 'overlap = queue: tick whose job waits for the end of the last one';
COMMENT ON COLUMN jobq.schedules.failures IS 'dead letters in a row, with pause_after_failures';
COMMENT ON COLUMN jobq.schedules.ended_job_id IS 'last job whose end is in failures';
COMMENT ON COLUMN jobq.schedules.home_id IS 'jobq.home.home_id; a schedule of another home has no ticks';
COMMENT ON COLUMN jobq.schedules.paused_by_jobq IS 'true: jobq has paused it, for the reason';

COMMENT ON TABLE jobq.workflows IS 'Workflows: a row for each version of a definition';
COMMENT ON COLUMN jobq.workflows.name IS 'name of the workflow, which is a job type';
COMMENT ON COLUMN jobq.workflows.version IS 'from 1 up';
COMMENT ON COLUMN jobq.workflows.is_active IS 'new runs have this version';
COMMENT ON COLUMN jobq.workflows.steps IS 'as in jobq.create_workflow';
COMMENT ON COLUMN jobq.workflows.output IS 'template of the result of a run; NULL: results of the last steps';
COMMENT ON COLUMN jobq.workflows.on_failure IS 'after the failure of a task: stop, continue, compensate';
COMMENT ON COLUMN jobq.workflows.created_at IS 'time of jobq.create_workflow';
COMMENT ON COLUMN jobq.workflows.created_by IS 'name of the role whose rights tasks have; definer_oid decides';
COMMENT ON COLUMN jobq.workflows.type_id IS 'jobq.job_types.id';
COMMENT ON COLUMN jobq.workflows.definer_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.workflows.reads IS 'the tasks that paths of each step read';

COMMENT ON TABLE jobq.runs IS 'Runs of workflows: what jobq.jobs does not have of them';
COMMENT ON COLUMN jobq.runs.id IS 'the job';
COMMENT ON COLUMN jobq.runs.type_id IS 'jobq.job_types.id of the workflow';
COMMENT ON COLUMN jobq.runs.version IS 'version of the workflow; 0: it has not started';
COMMENT ON COLUMN jobq.runs.deadline IS 'time at which its live tasks are cancelled';
COMMENT ON COLUMN jobq.runs.keep_until IS 'time until which rows of its tasks stay';
COMMENT ON COLUMN jobq.runs.phase IS 'running, failing, cancelling, compensating, restarting or ended';
COMMENT ON COLUMN jobq.runs.failure IS 'code and message of a run that does not complete';
COMMENT ON COLUMN jobq.runs.paused IS 'no task of it starts';
COMMENT ON COLUMN jobq.runs.paused_reason IS 'reason given to jobq.pause_workflow, "" without one';
COMMENT ON COLUMN jobq.runs.added IS 'steps of jobq.add_tasks';
COMMENT ON COLUMN jobq.runs.events IS 'data of the events sent so far, by name';
COMMENT ON COLUMN jobq.runs.compensated IS 'its completed steps were undone: it is not retried';
COMMENT ON COLUMN jobq.runs.again IS 'steps that start again when it restarts';
COMMENT ON TABLE jobq.run_timers IS 'Times of the conductor: deadlines of runs, ends of delays and of waits for events';
COMMENT ON COLUMN jobq.run_timers.due IS 'the time';
COMMENT ON COLUMN jobq.run_timers.id IS 'the run or the task';
COMMENT ON COLUMN jobq.queue.waiting_for IS 'blocked: jobs that it still waits for; a map: members so far';
COMMENT ON COLUMN jobq.queue.after_state IS 'blocked: 1 a parent has completed, 2 one has failed; of a task 4 event, 8 delay, 16 and 32 pause';

COMMENT ON VIEW jobq.workflow_runs IS 'Runs of workflows that have started, or wait in the queue';
COMMENT ON COLUMN jobq.workflow_runs.id IS 'the job';
COMMENT ON COLUMN jobq.workflow_runs.workflow IS 'name of the workflow';
COMMENT ON COLUMN jobq.workflow_runs.version IS 'version of the workflow; NULL before the start';
COMMENT ON COLUMN jobq.workflow_runs.status IS 'status of the job';
COMMENT ON COLUMN jobq.workflow_runs.progress IS 'mean of its tasks, 0 to 100; of a map, that of its elements';
COMMENT ON COLUMN jobq.workflow_runs.current_task_key IS 'first task that has not ended, a running one before others';
COMMENT ON COLUMN jobq.workflow_runs.tasks IS 'number of tasks by status';
COMMENT ON COLUMN jobq.workflow_runs.priority IS 'priority of the job';
COMMENT ON COLUMN jobq.workflow_runs."position" IS 'time by which it and its tasks are ordered among other jobs';
COMMENT ON COLUMN jobq.workflow_runs.payload IS 'input of the run';
COMMENT ON COLUMN jobq.workflow_runs.result IS 'output of the run';
COMMENT ON COLUMN jobq.workflow_runs.error_code IS 'task_failed, timeout, bad_input or a SQLSTATE';
COMMENT ON COLUMN jobq.workflow_runs.error_msg IS 'message of the failure or reason of the cancel';
COMMENT ON COLUMN jobq.workflow_runs.tenant IS 'tenant of the run and its tasks';
COMMENT ON COLUMN jobq.workflow_runs.paused_reason IS 'reason given to jobq.pause_workflow, "" without one; NULL: the run is not paused';
COMMENT ON COLUMN jobq.workflow_runs.scheduled_for IS 'time at which it was due';
COMMENT ON COLUMN jobq.workflow_runs.deadline IS 'time at which its live tasks are cancelled';
COMMENT ON COLUMN jobq.workflow_runs.created_at IS 'time of the enqueue';
COMMENT ON COLUMN jobq.workflow_runs.started_at IS 'time of its start';
COMMENT ON COLUMN jobq.workflow_runs.completed_at IS 'time of its end';
COMMENT ON COLUMN jobq.workflow_runs.updated_at IS 'last known change';

COMMENT ON VIEW jobq.stat_job_types IS 'Statistics of job types since stats_reset, from shared memory';
COMMENT ON COLUMN jobq.stat_job_types.job_type IS 'name of the job type; NULL: types beyond jobq.max_stat_types';
COMMENT ON COLUMN jobq.stat_job_types.pending IS 'jobs that wait for their first attempt; NULL: not counted yet';
COMMENT ON COLUMN jobq.stat_job_types.due IS 'jobs that could start now, as last counted: every 10 seconds';
COMMENT ON COLUMN jobq.stat_job_types.due_exact IS 'false: there may be more, or fewer';
COMMENT ON COLUMN jobq.stat_job_types.blocked IS 'jobs that wait for other jobs';
COMMENT ON COLUMN jobq.stat_job_types.retry IS 'jobs that wait for another attempt';
COMMENT ON COLUMN jobq.stat_job_types.running IS 'jobs that run';
COMMENT ON COLUMN jobq.stat_job_types.dead IS 'dead letters';
COMMENT ON COLUMN jobq.stat_job_types.enqueued IS 'jobs that came into the queue, dead letters that were retried included';
COMMENT ON COLUMN jobq.stat_job_types.started IS 'attempts that began; of a SQL job, counted when the attempt has ended';
COMMENT ON COLUMN jobq.stat_job_types.completed IS 'jobs that completed';
COMMENT ON COLUMN jobq.stat_job_types.skipped IS 'jobs that were skipped';
COMMENT ON COLUMN jobq.stat_job_types.cancelled IS 'jobs that were cancelled';
COMMENT ON COLUMN jobq.stat_job_types.died IS 'jobs that became dead letters';
COMMENT ON COLUMN jobq.stat_job_types.retried IS 'attempts that failed and are followed by another';
COMMENT ON COLUMN jobq.stat_job_types.failures IS 'failed attempts by kind: error, timeout, exit, signal, crash, lease, output, other';
COMMENT ON COLUMN jobq.stat_job_types.wait_sum IS 'seconds between due and start, of all attempts';
COMMENT ON COLUMN jobq.stat_job_types.wait_buckets IS 'attempts by that time: up to .001 .01 .1 .5 1 5 10 30 60 300 1800 7200 seconds, longer';
COMMENT ON COLUMN jobq.stat_job_types.run_sum IS 'seconds between start and end, of all attempts';
COMMENT ON COLUMN jobq.stat_job_types.run_buckets IS 'attempts by that time, with the bounds of wait_buckets';
COMMENT ON COLUMN jobq.stat_job_types.attempts_buckets IS 'ended jobs by their number of attempts: up to 1 2 3 5 10, more';
COMMENT ON COLUMN jobq.stat_job_types.oldest_due_s IS 'seconds for which the oldest job that could start has been due; NULL: none is';
COMMENT ON COLUMN jobq.stat_job_types.drain_s IS 'seconds until no job is due at the rates of the last 5 minutes; NULL: never';
COMMENT ON COLUMN jobq.stat_job_types.paused IS 'whether the type is paused';
COMMENT ON COLUMN jobq.stat_job_types.last_completed IS 'when a job last completed';
COMMENT ON COLUMN jobq.stat_job_types.last_failed IS 'when an attempt last failed';
COMMENT ON COLUMN jobq.stat_job_types.stats_reset IS 'since when the counters count';

COMMENT ON VIEW jobq.stat_workers IS 'Processes that run jobs, and jobs that clients have claimed: a row per running job, or idle process';
COMMENT ON COLUMN jobq.stat_workers.kind IS 'sql, exec, or pull: a client';
COMMENT ON COLUMN jobq.stat_workers.pid IS 'process of the server; NULL: a client';
COMMENT ON COLUMN jobq.stat_workers.worker IS 'name, as in jobq.jobs';
COMMENT ON COLUMN jobq.stat_workers.node IS 'node that the client named';
COMMENT ON COLUMN jobq.stat_workers.role IS 'role that a SQL worker is connected as';
COMMENT ON COLUMN jobq.stat_workers.state IS 'idle or busy';
COMMENT ON COLUMN jobq.stat_workers.job_id IS 'job that runs';
COMMENT ON COLUMN jobq.stat_workers.job_type IS 'its type';
COMMENT ON COLUMN jobq.stat_workers.attempt IS 'number of its attempt';
COMMENT ON COLUMN jobq.stat_workers.started_at IS 'when the attempt began';
COMMENT ON COLUMN jobq.stat_workers.deadline IS 'when its timeout is over';
COMMENT ON COLUMN jobq.stat_workers.lease_expires_at IS 'when the lease of the client ends';

COMMENT ON VIEW jobq.stat_lanes IS 'Lanes with a job that is due, as the dispatcher last saw them, every second; beyond 255 the others are one row, job type _other';
COMMENT ON COLUMN jobq.stat_lanes.job_type IS 'job type of the lane';
COMMENT ON COLUMN jobq.stat_lanes.priority IS 'priority of its jobs';
COMMENT ON COLUMN jobq.stat_lanes.effective IS 'the same with pressure and aging';
COMMENT ON COLUMN jobq.stat_lanes.oldest_due IS 'since when its oldest job has been due';
COMMENT ON COLUMN jobq.stat_lanes.held_by IS 'why no job of it starts: stopped, identity, dispatcher, filter, role, node, signal, type_paused, breaker, limit, shared_limit, rate, weight, key, slots, no_worker, as in jobq.why; NULL: one starts next';

COMMENT ON VIEW jobq.stat_limits IS 'Limits of running jobs and of starts, as the dispatcher last saw them, every second; at most 127, those that jobs wait for first, and one row that counts the others';
COMMENT ON COLUMN jobq.stat_limits.kind IS 'jobs (jobq.max_concurrent), weight (jobq.max_weight), job_type (max_concurrent), type_rate (rate_limit), limit and limit_rate (the same of jobq.limits), run_limit and run_limit_rate (the same for runs of workflows), tenant (max_running, of tenants with running or waiting jobs), _other (used is the number of further limits)';
COMMENT ON COLUMN jobq.stat_limits.name IS 'job type, limit or tenant; NULL: of the database';
COMMENT ON COLUMN jobq.stat_limits.used IS 'jobs, their weight, or starts in the window that count for it';
COMMENT ON COLUMN jobq.stat_limits.max IS 'maximum; of a rate with options.burst the burst';
COMMENT ON COLUMN jobq.stat_limits.held_s IS 'seconds for which jobs have waited for it; NULL: none does';

COMMENT ON VIEW jobq.stat_dispatcher IS 'Work of the dispatcher of this database since stats_reset';
COMMENT ON COLUMN jobq.stat_dispatcher.pid IS 'its process; NULL: none runs';
COMMENT ON COLUMN jobq.stat_dispatcher.started_at IS 'when that started';
COMMENT ON COLUMN jobq.stat_dispatcher.loops IS 'turns of its loop';
COMMENT ON COLUMN jobq.stat_dispatcher.wakeups IS 'turns by what woke it: commit (jobs were written), report (of a worker), timer, other';
COMMENT ON COLUMN jobq.stat_dispatcher.handed_out IS 'jobs that were given to a worker or client';
COMMENT ON COLUMN jobq.stat_dispatcher.fallbacks IS 'those whose row had changed meanwhile';
COMMENT ON COLUMN jobq.stat_dispatcher.sweep_finds IS 'jobs that only the sweep found: no commit had announced them';
COMMENT ON COLUMN jobq.stat_dispatcher.publications_lost IS 'times that commits announced more than fits: jobq.max_lanes';
COMMENT ON COLUMN jobq.stat_dispatcher.stats_reset IS 'since when the counters count';
