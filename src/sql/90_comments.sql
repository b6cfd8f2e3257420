
-- The manual that \df+ and \d+ show.  Each function's comment names every argument; rules that come from
-- elsewhere say from where.

COMMENT ON FUNCTION jobq.create_job_type IS
$$Defines a job type. Its owner is the caller; owner's members and superusers change and drop it. An argument that is NULL is not given: a new type has the default, a replaced one keeps what it has.
name: 1 to 63 bytes, no control characters, no space at either end (22023, too long 54000); 42710 when it exists.
handler: a function f(jsonb) or f() that returns jsonb, json or void (22023); stored by name, looked up when a job runs; run_as needs EXECUTE on it (42501).
command: an external program and its arguments instead of a handler (both or neither: 22023). The first element is an absolute path or a file name that jobq.tool_path leads to; {field} in the others is replaced by the payload's field. Takes the rights of pg_execute_server_program (42501).
max_attempts: 1 to 1000000 (22003) before a failing job becomes a dead letter; default 3.
backoff: "exponential" (default) or "fixed".  backoff_base: wait after the first failure, an interval of zero or more, default 30s.  backoff_max: longest wait, default 1h.  backoff_jitter: share of the wait that varies at random, 0 to 1, default 0.1.
timeout: how long an attempt may run, default 5min; '0': for ever. Negative or infinite intervals are 22023.
base_priority: -100 to 100 (22003), default 0, higher runs first.
max_concurrent: jobs of this type that run at once, 0 (default): no cap of its own.
cpu_weight: share of jobq.max_weight that a running job takes, default 1.
rate_limit: starts per rate_window, 0 (default): no limit.  rate_window: an interval of more than zero, default 1s.
keep_completed: how long finished jobs stay visible, default 7 days; '0': not at all.  keep_dead: the same for dead letters, default until purged.
critical: its dead letters raise alerts of severity high; default false.
run_as: the role that handlers run as, default the caller, who must be able to become it (42501); it is granted what a handler may call.
options: see jobq.option_keys; an unknown key is 22023.
on_conflict: with a type of that name: "error" (42710, default) | "replace" (changes what is given, exactly as alter_job_type does; all else, live jobs, owner and pause stay) | "ignore" (leaves it as it is).$$;

COMMENT ON FUNCTION jobq.alter_job_type IS
$$Changes a job type; arguments that are NULL change nothing. The rules are those of create_job_type; waiting jobs follow.
name: of a job type (42704) that the caller owns (42501). With access "admin" to all tenants also one of another role, but then only timeout, base_priority, max_concurrent, cpu_weight, rate_limit, rate_window and the options limits, burst, concurrency_per_key, max_skip, aging, fair_by, fair_depth, max_depth, max_children_per_minute, stall.
handler, command: one of them replaces whichever the type had.
max_attempts: of jobs enqueued from now on.  backoff, backoff_base, backoff_max, backoff_jitter, timeout: of attempts that begin or end from now on.
base_priority: of jobs enqueued from now on.  max_concurrent, cpu_weight, rate_limit, rate_window: at once.
keep_completed, keep_dead: of jobs that finish from now on; what is kept already keeps its date.
critical, run_as: at once.  options: merged key by key; a JSON null removes a key.
reset: names of arguments to put back to create_job_type's defaults, for instance {keep_dead,run_as} (22023 for other names).$$;

COMMENT ON FUNCTION jobq.drop_job_type IS
$$Drops a job type. History and dead letters keep its name; the name is free again.
name: of a job type (42704) that the caller owns (42501).
force: with live jobs the drop fails (55006), unless force cancels those that wait and tells those that run.$$;

COMMENT ON FUNCTION jobq.pause_job_type IS
$$Stops handing out jobs of a type; running ones go on, new ones may be enqueued.
name: of a job type (42704) that the caller owns (42501).
reason: text for whoever looks.
duration: an interval of more than zero (22023), after which it resumes by itself; NULL: until resume_job_type.$$;

COMMENT ON FUNCTION jobq.resume_job_type IS
$$Ends the pause of a job type, and closes its breaker (options.breaker).
name: of a job type (42704) that the caller owns (42501).$$;

COMMENT ON FUNCTION jobq.set_limit IS
$$Makes or changes a limit that job types share by naming it in options.limits; it counts at once. 0: none of that kind.
name: 1 to 63 bytes without control characters or space at either end (54000, 22023).
max_concurrent: how many of their jobs run at once (22003).
rate_limit, rate_window: how many of their jobs start in any window of that length, at most 10,000 (22003, 22023).$$;

COMMENT ON FUNCTION jobq.drop_limit IS
$$Drops a limit.
name: 42704 when there is none, 55006 while a job type names it.$$;

COMMENT ON FUNCTION jobq.stop_all IS
$$The kill switch: from this transaction's commit on no job starts, whatever its type; what runs goes on, jobs may be enqueued. It outlives restarts. jobq.health() says so.
reason: text for whoever looks.$$;

COMMENT ON FUNCTION jobq.start_all IS
$$Ends what jobq.stop_all() or jobq.drain() began.$$;

COMMENT ON FUNCTION jobq.drain IS
$$Stops all jobs at once, as jobq.stop_all() does, and waits for those that run: true when none does, false when the time is up. Either way they stay stopped, unless this transaction is rolled back.
timeout: zero or more (22023).$$;

COMMENT ON FUNCTION jobq.enqueue IS
$$Stores a job, which can run as soon as this transaction commits. Returns its id, or that of the job that has its unique_key.
Mind: by default (on_conflict "ignore") an enqueue whose unique_key meets a running job stores nothing, and that job may have begun before this transaction's changes. on_conflict => 'replace' queues one job behind it.
job_type: 42704 when there is none.
payload: what the handler or tool gets; at most jobq.max_payload bytes written out (54000), an object with all fields that the command's placeholders name (22023).
priority: -100 to 100 (22003), default the type's base_priority.
delay: a finite interval of zero or more until the job is due.  scheduled_for: when it is due; in the past means now. Both: 22023. In a handler, a job that is due a second or more ahead is as deep as its parent (options.max_depth).
max_attempts: 1 to 1000000 (22003).  timeout: interval, '0': none.  backoff: {"type", "base", "max", "jitter"}. Defaults are the type's.
unique_key: one live job per job type, tenant and key.
on_conflict: with a job of that key: "ignore" returns its id, also when it runs or has finished | "replace" gives a waiting job this payload, this enqueuer and of priority, delay or scheduled_for, max_attempts, timeout, backoff, unique_for, concurrency_key, keep_completed, keep_dead and metadata those that are given (another enqueuer's metadata goes; its attempts start again, after a failed one at once); with a running or finished one it stores a new job | "error" raises 23505. 42501 when a role that is held to its grants replaces another's waiting job.
unique_for: an interval; the key also covers the finished job for that long, however it ended.
concurrency_key: at most options.concurrency_per_key jobs with the same key and tenant run at once.
keep_completed: how long the finished job stays, an interval; default the type's.
tenant: NULL or '': the setting jobq.tenant; that empty too: no tenant.
metadata: anything; jobq carries it along.
keep_dead: how long the job stays as a dead letter, an interval; '0': not at all; default the type's.
after: jobs that end before this one starts; after_rule: "success" | "done" | "any" | "failed". Not there yet: 0A000 when given.$$;

COMMENT ON FUNCTION jobq.enqueue_many IS
$$Stores a job per payload, all or none, without unique keys (enqueue_jobs has them). Returns their ids in the order of payloads.
job_type: 42704 when there is none.
payloads: an array of payloads, none of them NULL (22023).
priority, delay, scheduled_for, max_attempts, timeout, backoff, concurrency_key, keep_completed, tenant, metadata, keep_dead, after, after_rule: for all of them, as for enqueue.$$;

COMMENT ON FUNCTION jobq.enqueue_jobs IS
$$Stores jobs of several types, all or none. Returns ordinal (from 1), id and whether the job is_new.
jobs: a JSON array of objects whose keys are enqueue's argument names; an unknown key is an error (22023) that names its index.$$;

COMMENT ON FUNCTION jobq.cancel_job IS
$$Cancels a live job. True: it was live; a running attempt is told to stop when this transaction commits, and rolls back.
id: of a job; false when it is finished or unknown.
reason: becomes error_msg.$$;

COMMENT ON FUNCTION jobq.cancel_jobs IS
$$Cancels the waiting jobs that all given filters take; returns how many. Without any filter: 22023.
job_type: 42704 when there never was one.  tenant: exactly this one; '': jobs without a tenant.  payload_contains: as the operator @>.
include_running: also tells running attempts to stop, when this transaction commits.
reason: becomes error_msg.$$;

COMMENT ON FUNCTION jobq.retry_job IS
$$Makes a job that waits for its retry, or ended as error, cancelled or skipped, pending and due now: same id, attempts 0, runs kept; event "retried" has the former error. False: it is in another state or unknown. 23505 when a newer live job has its unique_key.
id: of the job.
max_attempts: 1 to 1000000 (22003); NULL: as before.$$;

COMMENT ON FUNCTION jobq.rerun_job IS
$$Enqueues a new job like a finished one; returns its id, whose parent_id is the old one. NULL when the job is not finished or unknown. 23505 when a live job has its unique_key.
id: of the finished job.
payload: instead of the old payload; the rules are enqueue's.$$;

COMMENT ON FUNCTION jobq.alter_job IS
$$Changes a waiting job; NULL changes nothing. False: it runs, is finished, or unknown.
id: of the job.
payload: the rules are enqueue's.  priority: -100 to 100 (22003).  scheduled_for: finite (22023).  max_attempts: 1 to 1000000 (22003).  timeout: an interval, '0': none (22023 below).$$;

COMMENT ON FUNCTION jobq.retry_dead_letters IS
$$Makes dead letters pending again, oldest first, as retry_job does; returns how many. Those whose unique_key a newer job has, or whose type was dropped, stay and are counted in a NOTICE.
job_type: 42704 when there never was one.  max_jobs: at most so many (22003 below 0).  tenant: exactly this one; '': none.  error_like: LIKE pattern for error_msg.  dead_before: dead since earlier than that.
max_attempts: 1 to 1000000 (22003); NULL: as before.$$;

COMMENT ON FUNCTION jobq.purge_dead_letters IS
$$Deletes dead letters that all given filters take, oldest first; returns how many. Without any filter: 22023.
job_type: 42704 when there never was one.  older_than: dead for longer than this interval (22023 below zero).  max_jobs: at most so many (22003 below 0), no filter.  tenant: exactly this one; '': none.  error_like: LIKE pattern for error_msg.$$;

COMMENT ON FUNCTION jobq.list_jobs IS
$$Rows of jobq.jobs, newest id first. Filters that are NULL take every job.
status: equal.  job_type: 42704 when there never was one.  tenant: exactly this one; '': none.
max_rows: at most so many rows.  skip_rows: leaves out so many first. Both zero or more (22003, NULL 22004).
before: only ids before this one; the last id of a page gives the next page at constant cost.
payload_contains: as the operator @>.  error_like: LIKE pattern for error_msg.$$;

COMMENT ON FUNCTION jobq.count_by_status IS
$$How many jobs are in each status: one row per status, zeros included.
job_type: only of this type; 42704 when there never was one.  tenant: exactly this one; '': none.  NULL: of all.$$;

COMMENT ON FUNCTION jobq.distinct_job_types IS
$$Names of the job types, in order; of dropped ones those that some job still names.$$;

COMMENT ON FUNCTION jobq.archive IS
$$Hands out old history, or events, as lines of JSON, one a row, with the rights of the caller. jsonb_populate_record(NULL::jobq.history, line::jsonb), or jobq.events, makes the row again; json_nulls names jsonb columns that hold a JSON null.
before: jobs that ended, or events that were written, before that time (NULL: 22004).
after_id: goes on behind this job: id of the last line of history, job_id of the last event.
what: "history" or "events" (22004, 22023); in the order of id, or of job_id, ts and id.
max_rows: how many at most (22003); NULL: all. Events of one job are not torn apart, so fewer may come, and more when the first job alone has more.$$;

COMMENT ON FUNCTION jobq.job_timeline IS
$$The events of a job, oldest first, as far as jobq.keep_events goes back; they may outlive the job's row.
id: of the job. P0002 for a job that has neither row nor events, or that the caller may not see; NULL 22004.$$;

COMMENT ON FUNCTION jobq.purge_tenant IS
$$Removes what is known of a tenant's jobs: live ones are cancelled, history, dead letters and events deleted; says how many jobs it were. A running job is told to stop, and the row it leaves goes with the next call. For whoever has access "admin" to that tenant and all job types.
tenant: exactly this one, not those below it; NULL 22004, '' 22023.$$;

COMMENT ON FUNCTION jobq.grant_access IS
$$Lets a role, and those who have its rights, use jobq; grants add up. It is also granted what that takes, EXECUTE on the functions and SELECT on the tables, and from then on is held to its grants in everything it calls. For superusers and the extension's owner.
role: who; 42704 when there is none.
access: "enqueue" (enqueue jobs, and see those it enqueued itself), "work" (claim and finish jobs of other processes), "read" (see jobs, events, alerts, counts, health), "admin" (read, cancel, retry, alter, purge; without a tenant also create and pause job types, limits, signals, stop and drain). Else 22023.
tenant: NULL: every tenant, and jobs without one. '': jobs without one. 'acme': acme and acme/...
job_types: names (42704), NULL: every type. Whoever may enqueue a type makes its run_as work on a payload of his choice.$$;

COMMENT ON FUNCTION jobq.revoke_access IS
$$Takes back what grant_access gave to that very role, and what it was granted with it when no grant needs it any more. A wider grant is not narrowed: revoke that one.
role: 42704 when there is none.
access: as in grant_access.
tenant: NULL: the grants for any tenant. 'acme': those for acme and acme/...
job_types: these names are taken out of the grants that name them; NULL: all grants.$$;

COMMENT ON FUNCTION jobq.set_tenant_check IS
$$Sets a function that admits roles to tenants which no grant covers: who has an access for some tenant has it for each one that the function says true of. It runs as the role in question, which needs EXECUTE on it, and with search_path pg_catalog, its own schema, pg_temp unless it has its own. For superusers and the extension's owner.
f: a function f(tenant text) that returns boolean (22023); NULL: none.$$;

COMMENT ON FUNCTION jobq.channel IS
$$The channel on which those who LISTEN hear that there are jobs of a type; payloads are empty.
job_type: a name of 1 to 63 bytes (22023, longer 54000, NULL 22004). jobq.notify_prefix and the name; what is longer than a channel's name may be ends in a hash.$$;

COMMENT ON FUNCTION jobq.set_tenant_quota IS
$$Limits what a tenant, with those below it, may have in the queue, enqueue and run at once; more of the first two is 53400. Jobs that are there already count and stay; retried ones count and are not refused. All NULL: no quota.
tenant: 'acme': acme and acme/...; NULL 22004, '' 22023.
max_live: live jobs.  max_bytes: of their payloads and metadata together, rendered as text.  enqueues_per_minute: in any minute, those rolled back included; forgotten when the server restarts.
max_running: jobs that run at once, of all types together, SQL handlers and tools; a SQL worker with a batch counts as one. Others wait, and jobs of other tenants pass them. Jobs that run when it is set go on and count.
Each zero or more (22003), NULL: not limited.$$;

COMMENT ON FUNCTION jobq.wait_for IS
$$Waits until a job has ended and returns it; NULL when the time is up. 25001 above READ COMMITTED, and for a job that this transaction enqueued. A job whose type keeps nothing is answered from memory, with its status and no result; memory holds the last 512 of a database until the server restarts.
id: of the job. P0002 at once for a job that does not exist, that the caller may not see, or that memory has forgotten; NULL 22004.
timeout: an interval, zero or more (22023, NULL 22004), at most 20 s; more counts as 20 s, with a NOTICE, because a waiting session holds a snapshot back.$$;

COMMENT ON FUNCTION jobq.current_job IS
$$Inside a SQL handler: its job. Elsewhere NULL.$$;

COMMENT ON FUNCTION jobq.set_progress IS
$$Inside a SQL handler: says how far it is, visible to others at once. Elsewhere 55000.
progress: 0 to 100 (22003).
data: JSON; kept up to 8 kB, shown up to 512 bytes while the handler runs.
At level all an event for the first call and then at most one a second.$$;

COMMENT ON FUNCTION jobq.log_event IS
$$Writes an event of the job whose handler runs; it survives the attempt's rollback. Outside a handler 55000, unless id and lease_token name an attempt.
message: text (NULL 22004, longer than jobq.max_payload 54000).  level: for instance info, warning, error.  type: the event's type; both of 1 to 63 bytes (22023, 54000).  data: JSON.
Of one attempt 10000 are kept.
id: of the job, outside a handler.  lease_token: of its running attempt (55000 when it is not).  Both or neither (22004).$$;

COMMENT ON FUNCTION jobq.skip IS
$$Inside a SQL handler: when it returns, the job ends as skipped and what it wrote is committed. The last call of skip, discard and snooze wins. Elsewhere 55000.
reason: becomes error_msg.$$;

COMMENT ON FUNCTION jobq.discard IS
$$Inside a SQL handler: when it returns, the job becomes a dead letter without a further attempt, and what it wrote is committed. Elsewhere 55000.
reason: becomes error_msg.$$;

COMMENT ON FUNCTION jobq.snooze IS
$$Inside a SQL handler: when it returns, the job waits again and the attempt is not charged; what it wrote is committed. Elsewhere 55000.
delay: an interval of zero or more until it is due again (22023).
reason: becomes error_msg until then.$$;

COMMENT ON FUNCTION jobq.set_signal IS
$$Sets or clears a signal, which pressure rules refer to; makes it when it is new. Counts when the transaction commits.
name: 1 to 63 bytes; not load, disk or replication_lag, which jobq sets itself (22023).
active: true or false.
ttl: an interval above zero, after which an active signal is over by itself; NULL: it stays.$$;

COMMENT ON FUNCTION jobq.create_signal IS
$$Makes a signal that a SQL condition decides. It is asked again and again, read only, as the role that calls this function, for at most 5 seconds. When it fails or is NULL the signal stays as it is, and an event and health() say why.
name: of the signal; not load, disk or replication_lag (22023).
condition: a boolean expression, or a SELECT of one; its names are looked up in the search_path of this call.
every: an interval above zero; no condition is asked more than once a second.
on_conflict: with a signal of that name: "error" (42710) | "replace" (gives it condition, every, this role and search_path; it stays active or not until it is asked, at once; its rules stay) | "ignore" (leaves it as it is).$$;

COMMENT ON FUNCTION jobq.drop_signal IS
$$Removes a signal; 42704 when there is none.
name: of the signal.
force: with pressure rules that name it the drop fails (55006), unless force removes them, too.$$;

COMMENT ON FUNCTION jobq.set_pressure_rule IS
$$Says what a job type gives way by while a signal is active. What several active signals say adds up. All defaults: removes the rule.
job_type: name; NULL: every type.
signal: name of a signal, or load, disk, replication_lag; 42704 when there is none.
priority_adj: -1000 to 1000, added to the priority of its jobs.
block: its jobs do not start.
max_weight: 1 to 1000000, lowers jobq.max_weight; only with job_type NULL (22023).$$;

COMMENT ON FUNCTION jobq.run_inline IS
$$Runs a waiting SQL job in this transaction, as a worker would: role, timeout, outcome. Returns the job. For tests that never commit, such as pgTAP's.
Deferred triggers of the caller fire before the handler; 55000 when they cannot: after SET CONSTRAINTS that named constraints or was rolled back.
id: of the job.$$;

COMMENT ON FUNCTION jobq.health IS
$$The state of the system as JSON: status (healthy, degraded, unhealthy), checks, details. The settings jobq.health_* have the limits.$$;

COMMENT ON FUNCTION jobq.version IS
$$The version of the extension in this database.$$;

COMMENT ON FUNCTION jobq.adopt IS
$$Says that the jobs of this database are to run here: a restored dump stays paused until then.$$;

COMMENT ON FUNCTION jobq.reload IS
$$Makes settings of ALTER DATABASE count, when this transaction commits: the dispatcher starts anew, jobs that start afterwards run in new processes, jobs that run end in theirs.$$;

COMMENT ON FUNCTION jobq.compact IS
$$Removes finished jobs' dead rows from jobq.queue and gives its files back to the system, now and whatever jobq.compact_threshold says; the bytes given back. Waits for no lock: while somebody always has one on the table, a transaction that has enqueued say, its space is only used again. When it gets the table, it has it for as long as the rows that are left take to be copied.$$;

COMMENT ON VIEW jobq.jobs IS 'Every job: live, finished as long as it is kept, and dead letters';
COMMENT ON COLUMN jobq.jobs.id IS 'UUIDv7: newer jobs have greater ids; it shows the time of creation and nothing else';
COMMENT ON COLUMN jobq.jobs.job_type IS 'name of its job type, also when that was dropped';
COMMENT ON COLUMN jobq.jobs.status IS 'pending (due or in the future), blocked, retry, running; completed, skipped, cancelled, error (dead letter)';
COMMENT ON COLUMN jobq.jobs.priority IS '-100 to 100, higher runs first';
COMMENT ON COLUMN jobq.jobs.payload IS 'what the handler or tool gets';
COMMENT ON COLUMN jobq.jobs.result IS 'what the handler returned, or stdout of the tool';
COMMENT ON COLUMN jobq.jobs.error_msg IS 'of the last failed attempt; the reason of a cancel, skip or snooze';
COMMENT ON COLUMN jobq.jobs.error_code IS 'SQLSTATE, exit:N, signal:NAME, timeout, lease_expired, server_crash, bad_output, or a worker''s own';
COMMENT ON COLUMN jobq.jobs.error_details IS 'stack of a SQL error, or the last 8 kB of stderr';
COMMENT ON COLUMN jobq.jobs.attempts IS 'attempts charged, the running one included';
COMMENT ON COLUMN jobq.jobs.max_attempts IS 'failures until it becomes a dead letter';
COMMENT ON COLUMN jobq.jobs.runs IS 'starts; never falls, unlike attempts';
COMMENT ON COLUMN jobq.jobs.created_at IS 'when it was enqueued';
COMMENT ON COLUMN jobq.jobs.scheduled_for IS 'when it is due, or was';
COMMENT ON COLUMN jobq.jobs.started_at IS 'when its current or last attempt began';
COMMENT ON COLUMN jobq.jobs.completed_at IS 'when it ended';
COMMENT ON COLUMN jobq.jobs.updated_at IS 'last known change; computed from the other times';
COMMENT ON COLUMN jobq.jobs.progress IS '0 to 100, as the handler or tool says';
COMMENT ON COLUMN jobq.jobs.progress_data IS 'what it said with its progress';
COMMENT ON COLUMN jobq.jobs.tenant IS 'whose job it is';
COMMENT ON COLUMN jobq.jobs.unique_key IS 'one live job per job type, tenant and key';
COMMENT ON COLUMN jobq.jobs.concurrency_key IS 'jobs with one key and tenant run one after the other, or as many as their type says';
COMMENT ON COLUMN jobq.jobs.timeout IS 'of an attempt; NULL: its type''s';
COMMENT ON COLUMN jobq.jobs.worker IS 'process of the current or last attempt';
COMMENT ON COLUMN jobq.jobs.node IS 'machine of the current or last attempt, when it was not the server''s';
COMMENT ON COLUMN jobq.jobs.lease_expires_at IS 'until when a pulled job belongs to its worker';
COMMENT ON COLUMN jobq.jobs.parent_id IS 'the job that enqueued it, or that it is a rerun of';
COMMENT ON COLUMN jobq.jobs.depth IS 'how many jobs enqueued each other down to this one';
COMMENT ON COLUMN jobq.jobs.workflow_id IS 'workflow it is a task of';
COMMENT ON COLUMN jobq.jobs.task_key IS 'which task of its workflow';
COMMENT ON COLUMN jobq.jobs.metadata IS 'the enqueuer''s own';

COMMENT ON VIEW jobq.option_keys IS 'What the options of a job type may hold';
COMMENT ON COLUMN jobq.option_keys.key IS 'key in options';
COMMENT ON COLUMN jobq.option_keys.kind IS 'job types that have use for it: exec, sql, pull, all';
COMMENT ON COLUMN jobq.option_keys.type IS 'type of its value';
COMMENT ON COLUMN jobq.option_keys.default_value IS 'what counts without it; NULL: nothing';
COMMENT ON COLUMN jobq.option_keys.meaning IS 'what it does';

COMMENT ON TYPE jobq.job_status IS 'The states of a job';
COMMENT ON TABLE jobq.home IS 'Who we are: true while the row''s xmin is the transaction it names, which no restored dump keeps';
COMMENT ON COLUMN jobq.home.home_id IS 'queue rows with another one are inert';
COMMENT ON COLUMN jobq.home.self_xid IS 'the transaction that wrote this row';
COMMENT ON COLUMN jobq.home.database IS 'the oid of the database it was written in; a copy has another';
COMMENT ON TABLE jobq.job_types IS 'The registry of job types, the dropped ones included. Columns that are not described here are create_job_type''s arguments';
COMMENT ON COLUMN jobq.job_types.id IS 'what queue and history call it';
COMMENT ON COLUMN jobq.job_types.owner IS 'name of the role that may change it; owner_oid decides';
COMMENT ON COLUMN jobq.job_types.run_as IS 'name of the role that its handlers run as; run_as_oid decides';
COMMENT ON COLUMN jobq.job_types.owner_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.job_types.run_as_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.job_types.handler IS 'schema.function(argument types), looked up when a job runs';
COMMENT ON COLUMN jobq.job_types.command IS 'program and arguments, instead of a handler';
COMMENT ON COLUMN jobq.job_types.options IS 'options; env is in jobq.job_type_env';
COMMENT ON COLUMN jobq.job_types.paused IS 'hands out no jobs';
COMMENT ON COLUMN jobq.job_types.pause_reason IS 'why it is paused';
COMMENT ON COLUMN jobq.job_types.resumed_at IS 'when jobq.resume_job_type was last called; NULL: never';
COMMENT ON COLUMN jobq.job_types.paused_until IS 'when the pause ends by itself; NULL: it does not';
COMMENT ON COLUMN jobq.job_types.paused_at IS 'when the pause began; NULL: there is none, or an older release began it';
COMMENT ON COLUMN jobq.job_types.dropped_at IS 'when it was dropped; NULL: it was not';
COMMENT ON TABLE jobq.job_type_env IS 'options.env of job types, which only the owner of this table may read';
COMMENT ON COLUMN jobq.job_type_env.type_id IS 'id of jobq.job_types';
COMMENT ON COLUMN jobq.job_type_env.env IS 'environment variables with their values';
COMMENT ON TABLE jobq.limits IS 'Limits that job types share';
COMMENT ON COLUMN jobq.limits.name IS 'what options.limits calls it';
COMMENT ON COLUMN jobq.limits.max_concurrent IS 'how many of their jobs run at once; 0: no limit';
COMMENT ON COLUMN jobq.limits.rate_limit IS 'how many of their jobs start in any rate_window; 0: no limit';
COMMENT ON COLUMN jobq.limits.rate_window IS 'how long the window of rate_limit is';
COMMENT ON TABLE jobq.stopped IS 'The kill switch: with a row in it no job starts';
COMMENT ON COLUMN jobq.stopped.one IS 'there is one row at most';
COMMENT ON COLUMN jobq.stopped.reason IS 'what jobq.stop_all() was given';
COMMENT ON COLUMN jobq.stopped.since IS 'when that was';
COMMENT ON TABLE jobq.queue IS 'Live jobs only: pending, blocked, retry, running. Columns that are not described here are those of jobq.jobs';
COMMENT ON COLUMN jobq.queue.position IS 'place in its lane: scheduled_for, but never before the moment it was set';
COMMENT ON COLUMN jobq.queue.type_id IS 'jobq.job_types.id; no foreign key, whose row lock would be hot';
COMMENT ON COLUMN jobq.queue.rev IS 'rises with every write; whoever was handed an older one lets go';
COMMENT ON COLUMN jobq.queue.home_id IS 'jobq.home.home_id; a row of another home is inert';
COMMENT ON COLUMN jobq.queue.status IS 'a SQL job that runs is still pending or retry here; jobq.jobs knows';
COMMENT ON COLUMN jobq.queue.crashes IS 'server crashes in its attempts';
COMMENT ON COLUMN jobq.queue.sublane IS 'zero, or its tenant''s lane';
COMMENT ON COLUMN jobq.queue.successor IS 'shares its unique_key with a running job';
COMMENT ON COLUMN jobq.queue.timeout IS 'NULL: its type''s';
COMMENT ON COLUMN jobq.queue.backoff IS 'keys that differ from its type''s';
COMMENT ON COLUMN jobq.queue.unique_for IS 'how long unique_key also covers the finished job';
COMMENT ON COLUMN jobq.queue.keep_completed IS 'NULL: its type''s';
COMMENT ON COLUMN jobq.queue.keep_dead IS 'NULL: its type''s';
COMMENT ON COLUMN jobq.queue.lease_token IS 'names the attempt; never shown by jobq.jobs';
COMMENT ON TABLE jobq.history IS 'Jobs that ended as completed, skipped or cancelled, partitioned by when they go. Columns that are not described here are those of jobq.jobs';
COMMENT ON COLUMN jobq.history.expires_at IS 'end plus keep_completed; partitions are dropped whole';
COMMENT ON COLUMN jobq.history.unique_until IS 'until when unique_key covers the finished job';
COMMENT ON TABLE jobq.dead_letters IS 'Jobs that used up their attempts or failed for good, until retried or purged; columns as in jobq.history';
COMMENT ON COLUMN jobq.dead_letters.expires_at IS 'end plus keep_dead; infinity: until purged';
COMMENT ON COLUMN jobq.history.counted IS 'its type has keep_completed_count, so it is one of those that are counted';
COMMENT ON TABLE jobq.hook_references IS 'Jobs of hooks that need the row of another job: it stays until they have ended';
COMMENT ON COLUMN jobq.hook_references.hook_job IS 'the job of the hook';
COMMENT ON COLUMN jobq.hook_references.job_id IS 'the job whose row it names (job_id of its payload)';
COMMENT ON TABLE jobq.counted_types IS 'Types with keep_completed_count: has their older history been marked as counted?';
COMMENT ON COLUMN jobq.counted_types.type_id IS 'jobq.job_types.id';
COMMENT ON COLUMN jobq.counted_types.done IS 'all of it has';
COMMENT ON COLUMN jobq.counted_types.partition IS 'else: the partition where it goes on';
COMMENT ON COLUMN jobq.counted_types.block IS 'and the block there';
COMMENT ON TABLE jobq.disk_log IS 'How full the server''s file systems were: the last 1,000 readings of each, one a minute';
COMMENT ON COLUMN jobq.disk_log.ts IS 'when it was measured';
COMMENT ON COLUMN jobq.disk_log.path IS 'a directory of ours in that file system';
COMMENT ON COLUMN jobq.disk_log.total_bytes IS 'what the server may use, used or not';
COMMENT ON COLUMN jobq.disk_log.used_bytes IS 'what is used';
COMMENT ON COLUMN jobq.disk_log.percent IS 'used_bytes of total_bytes';
COMMENT ON COLUMN jobq.disk_log.level IS 'ok, or what it has reached: jobq.disk_warning, disk_critical, disk_emergency';
COMMENT ON TABLE jobq.dead_letter_count IS 'How many dead letters there are: the sum of its rows';
COMMENT ON COLUMN jobq.dead_letter_count.change IS 'how many a transaction added, or took away';
COMMENT ON TABLE jobq.signals IS 'Signals that jobq.set_signal sets or a condition decides';
COMMENT ON COLUMN jobq.signals.id IS 'what processes call it';
COMMENT ON COLUMN jobq.signals.name IS 'what pressure rules call it';
COMMENT ON COLUMN jobq.signals.active IS 'as it was last set';
COMMENT ON COLUMN jobq.signals.active_until IS 'when an active one is over by itself; NULL: it is not';
COMMENT ON COLUMN jobq.signals.condition IS 'decides it; NULL: jobq.set_signal does';
COMMENT ON COLUMN jobq.signals.definer IS 'name of the role that the condition runs as; definer_oid decides';
COMMENT ON COLUMN jobq.signals.definer_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON COLUMN jobq.signals.search_path IS 'the condition''s';
COMMENT ON COLUMN jobq.signals.every IS 'how often the condition is asked';
COMMENT ON COLUMN jobq.signals.problem IS 'why the condition said nothing when it was last asked; NULL: it did';
COMMENT ON COLUMN jobq.signals.changed_at IS 'when it was last set or changed';
COMMENT ON TABLE jobq.pressure_rules IS 'What job types do while a signal is active';
COMMENT ON COLUMN jobq.pressure_rules.type_id IS 'jobq.job_types.id; 0: every type';
COMMENT ON COLUMN jobq.pressure_rules.signal IS 'name of a signal, also of a built-in one';
COMMENT ON COLUMN jobq.pressure_rules.priority_adj IS 'added to the priority of its jobs';
COMMENT ON COLUMN jobq.pressure_rules.block IS 'its jobs do not start';
COMMENT ON COLUMN jobq.pressure_rules.max_weight IS 'lowers jobq.max_weight; NULL: does not';
COMMENT ON TABLE jobq.events IS 'What happened to jobs, partitioned by time, kept for jobq.keep_events';
COMMENT ON COLUMN jobq.events.id IS 'unique; events of one moment are in its order';
COMMENT ON COLUMN jobq.events.ts IS 'when it happened';
COMMENT ON COLUMN jobq.events.job_id IS 'the job; it may be gone';
COMMENT ON COLUMN jobq.events.job_type IS 'name of its job type';
COMMENT ON COLUMN jobq.events.tenant IS 'tenant of the job';
COMMENT ON COLUMN jobq.events.attempt IS 'the attempt it belongs to; 0: before the first';
COMMENT ON COLUMN jobq.events.type IS 'enqueued, claimed, started, completed, failed, dead, ... (docs/events.md) and what log_event is given';
COMMENT ON COLUMN jobq.events.source IS 'client, dispatcher, sql, helper, agent:NODE, worker:NAME';
COMMENT ON COLUMN jobq.events.level IS 'info, warning, error, ...';
COMMENT ON COLUMN jobq.events.message IS 'for people';
COMMENT ON COLUMN jobq.events.data IS 'for programs: of failed the error, code, stderr tail, duration, worker';
COMMENT ON COLUMN jobq.queue.key_hash IS 'of concurrency_key and tenant, by which jobs of a key are found; NULL: no key';
COMMENT ON COLUMN jobq.queue.enqueued_by IS 'oid and name of the role that enqueued it, if it is held to grants; the name serves restored dumps';
COMMENT ON DOMAIN jobq.access_kind IS 'What jobq.grant_access grants; USAGE on it marks the roles that are held to their grants';
COMMENT ON TABLE jobq.access IS 'Who may do what: jobq.grant_access';
COMMENT ON COLUMN jobq.access.role IS 'its name when the grant was made, for dumps';
COMMENT ON COLUMN jobq.access.access IS 'enqueue, work, read or admin';
COMMENT ON COLUMN jobq.access.tenant IS 'this one and those below it; NULL: every one; '''': jobs without one';
COMMENT ON COLUMN jobq.access.job_types IS 'names; NULL: every type';
COMMENT ON COLUMN jobq.access.role_oid IS 'the role; 0 when the row was restored where there is none of that name';
COMMENT ON TABLE jobq.tenant_check IS 'The function of jobq.set_tenant_check: one row or none';
COMMENT ON COLUMN jobq.tenant_check.signature IS 'schema.function(pg_catalog.text)';
COMMENT ON TABLE jobq.alerts IS 'What somebody should look at: dead letters, tools that can''t be started; partitioned by time, kept for jobq.keep_events';
COMMENT ON COLUMN jobq.alerts.ts IS 'when it was raised';
COMMENT ON COLUMN jobq.alerts.severity IS 'high: of a critical job type; warning';
COMMENT ON COLUMN jobq.alerts.title IS 'what happened, without the particulars';
COMMENT ON COLUMN jobq.alerts.message IS 'what happened, and to which job; also the line in the server''s log';
COMMENT ON COLUMN jobq.alerts.job_id IS 'the job; it may be gone';
COMMENT ON COLUMN jobq.alerts.job_type IS 'name of its job type';
COMMENT ON COLUMN jobq.alerts.tenant IS 'tenant of the job';
COMMENT ON COLUMN jobq.alerts.attempts IS 'attempts charged';
COMMENT ON COLUMN jobq.alerts.error_msg IS 'error of the last attempt';
COMMENT ON TABLE jobq.tenant_quotas IS 'Quotas: jobq.set_tenant_quota';
COMMENT ON COLUMN jobq.tenant_quotas.tenant IS 'this one and those below it';
COMMENT ON COLUMN jobq.tenant_quotas.max_live IS 'live jobs; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.max_bytes IS 'bytes of their payloads; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.enqueues_per_minute IS 'in any minute; NULL: not limited';
COMMENT ON COLUMN jobq.tenant_quotas.max_running IS 'jobs that run at once; NULL: no limit';
COMMENT ON TABLE jobq.quota_jobs IS 'Jobs that count for a quota, some of which have ended';
COMMENT ON COLUMN jobq.quota_jobs.tenant IS 'whose quota';
COMMENT ON COLUMN jobq.quota_jobs.job_id IS 'the job';
COMMENT ON COLUMN jobq.quota_jobs.bytes IS 'of its payload';
