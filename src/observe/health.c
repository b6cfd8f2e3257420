/*
 * health.c
 *	  jobq.health(): does the queue work, and if not, why.
 *
 * The function runs in the caller's session; no process maintains anything for
 * it.  It has three sources: shared memory, a few queries (health_facts.c),
 * and a ping that the dispatcher answers in its next turn.  The status of the
 * whole is the worst of the checks.  A check that is not healthy has the
 * reason in "message".  No tenant's name appears.
 */
#include "jobq.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "limits/kill_switch.h"
#include "maintenance/disk_watch.h"
#include "maintenance/queue_space.h"
#include "observe/health.h"
#include "registry/job_types.h"
#include "shared/commit_news.h"
#include "shared/worker_need.h"
#include "tables/home.h"
#include "tables/queue_table.h"
#include "tables/table_shape.h"

#define HORIZON_LIMIT_S		3600	/* a horizon held back for longer is degraded */
#define LATE_LIMIT_MS		600000	/* autovacuum that has not come for longer is degraded */
#define LARGE_BYTES			(INT64CONST(1) << 30)	/* files of the queue that are worth a note */
#define LARGE_FREE_PERCENT	90
#define SCHEDULES_DEGRADED_S	10
#define SCHEDULES_UNHEALTHY_S	60
#define NOTIFY_FULL			0.9

PG_FUNCTION_INFO_V1(jobq_health);

static const char *const level_names[] = {"healthy", "degraded", "unhealthy"};

/* The place of each one's time in HealthState.since. */
static const char *const check_names[] = {"dispatcher", "workers", "queues", "schedules", "retention", "partitions",
	"dead_letters", "breakers", "signals", "helper", "disk", "slots", "horizon", "notify_queue", "identity", "access"};

StaticAssertDecl(lengthof(check_names) <= JOBQ_CHECKS, "each check has a place for its time");

/* ---------- putting the answer together ---------- */

/*
 * Returns when the calls of health() that have found the check not healthy, in
 * a row, have begun; 0: unknown.
 */
static TimestampTz
noted_since(Report *report, const char *name)
{
	TimestampTz now = GetCurrentTimestamp();
	int			i = 0;
	uint64		first = 0;

	while (strcmp(check_names[i], name) != 0)
		i++;
	if (report->notes == NULL)
		return 0;
	report->bad |= UINT32_C(1) << i;
	return pg_atomic_compare_exchange_u64(&report->notes->health.since[i], &first, (uint64) now) ? now : (TimestampTz) first;
}

/* Forgets the times of checks that are healthy, or not there. */
static void
forget_times(const Report *report)
{
	for (int i = 0; report->notes != NULL && i < (int) lengthof(check_names); i++)
	{
		if ((report->bad & (UINT32_C(1) << i)) == 0)
			pg_atomic_write_u64(&report->notes->health.since[i], 0);
	}
}

void
add_check(Report *report, const char *name, Level level, const char *message, const char *extra)
{
	TimestampTz noted = level == HEALTHY ? 0 : noted_since(report, name);

	appendStringInfo(&report->checks, "%s\"%s\": {\"status\": \"%s\"%s%s",
					 report->checks.len > 0 ? ", " : "", name, level_names[level],
					 since_member(report->since != 0 ? report->since : noted), extra);
	report->since = 0;
	if (message != NULL && message[0] != '\0')
	{
		appendStringInfoString(&report->checks, ", \"message\": ");
		escape_json(&report->checks, message);
	}
	appendStringInfoChar(&report->checks, '}');
	report->worst = Max(report->worst, level);
}

const char *
since_member(TimestampTz since)
{
	char		text[MAXDATELEN + 1];

	if (since == 0)
		return "";
	return psprintf(", \"since\": \"%s\"", JsonEncodeDateTime(text, TimestampTzGetDatum(since), TIMESTAMPTZOID, NULL));
}

static TimestampTz
seconds_ago(double seconds)
{
	return GetCurrentTimestamp() - (int64) (seconds * USECS_PER_SEC);
}

static char *
json_string(const char *s)
{
	StringInfoData buf;

	if (s == NULL)
		return "null";
	initStringInfo(&buf);
	escape_json(&buf, s);
	return buf.data;
}

/* ---------- jobs ---------- */

/* Returns what keeps jobs that have run from ending; NULL: nothing does. */
static const char *
held_jobs(JobqDb *db, const HealthFacts *f)
{
	uint32		held = db != NULL ? pg_atomic_read_u32(&db->health.held) : 0;
	JobType    *type;

	if (held == 0)
		return NULL;
	if (!f->sees_all)
		return "something keeps jobs from being run";
	type = job_type_by_id((int32) held);
	return psprintf("jobs of type \"%s\" wait: the commit of their end has failed twice (see the server log)",
					type != NULL ? type->name : "?");
}

static void
add_message(StringInfo messages, const char *message)
{
	appendStringInfo(messages, "%s%s", messages->len > 0 ? "; " : "", message);
}

/* Adds what keeps some of the jobs from starting or from ending. */
static void
add_held(StringInfo messages, JobqDb *db, const HealthFacts *f, const char *trouble)
{
	const char *held = held_jobs(db, f);

	if (trouble[0] != '\0')
		add_message(messages, f->sees_all ? trouble : "something keeps jobs from being run");
	else if (held != NULL)
		add_message(messages, held);
	if (f->paused_waiting)
		add_message(messages, psprintf("jobs of paused types wait (%s): jobq.resume_job_type() lets them run", f->paused_waiting));
	if (f->unclaimed)
		add_message(messages, psprintf("due jobs of pull types wait that no worker has claimed for a minute%s",
									   f->sees_all ? psprintf(" (%s): start a worker that may work them", f->unclaimed) : ""));
	if (f->blocked_keys)
		add_message(messages, "jobs have waited for their concurrency_key for over an hour");
	if (f->holding)
		add_message(messages, "jobs have waited for over an hour for a dead letter: jobq.retry_job() or a purge of it lets them go on");
}

static void
check_queues(Report *report, JobqDb *db, const HealthFacts *f)
{
	StringInfoData messages;
	char		trouble[sizeof(db->health.trouble)] = "";
	char		seconds[32] = "null";
	char	   *reason;
	TimestampTz since = 0;
	bool		stopped = kill_switch_is_on(&reason, &since, AccessShareLock);
	bool		draining = false;	/* nothing starts, and no row says so yet */

	initStringInfo(&messages);
	if (db != NULL)
	{
		SpinLockAcquire(&db->mutex);
		strlcpy(trouble, db->health.trouble, sizeof(trouble));
		draining = db->kill_switch.ndrains > 0;
		SpinLockRelease(&db->mutex);
	}
	if (f->waiting)
		snprintf(seconds, sizeof(seconds), "%.3f", f->oldest_s);
	if (stopped)
		add_message(&messages, psprintf("all jobs are stopped: %s; jobq.start_all() lets them run", reason ? reason : "no reason given"));
	else if (draining)
		add_message(&messages, "jobq.drain() is under way: no job starts");
	else
	{
		add_held(&messages, db, f, trouble);
		since = f->paused_waiting ? f->paused_since : 0;
	}
	report->since = messages.len > 0 ? since : 0;
	add_check(report, "queues", messages.len > 0 ? DEGRADED : HEALTHY, messages.len > 0 ? messages.data : NULL,
			  psprintf(", \"oldest_waiting_s\": %s, \"stopped\": %s, \"paused\": " INT64_FORMAT "%s%s%s", seconds,
					   stopped || draining ? "true" : "false", f->paused_types,
					   f->paused_names ? psprintf(", \"paused_types\": %s", f->paused_names) : "",
					   f->blocked_keys ? psprintf(", \"blocked_keys\": %s", f->blocked_keys) : "",
					   f->holding ? psprintf(", \"dead_parents\": %s", f->holding) : ""));
}

static void
check_signals(Report *report, const HealthFacts *f)
{
	if (f->signals == NULL)
		return;
	add_check(report, "signals", f->signal_problem ? DEGRADED : HEALTHY,
			  f->signal_problem == NULL || f->sees_all ? f->signal_problem : "the condition of a signal has no answer",
			  psprintf(", \"active\": %s", f->signals));
}

/* Late ticks, and schedules that jobq has paused: for want of a right, say. */
static void
check_schedules(Report *report, JobqDb *db, const HealthFacts *f)
{
	bool		lacks = db != NULL && (pg_atomic_read_u32(&db->lacking) & WORKER_CONDUCTOR) != 0;
	Level		level = f->schedules_late_s > SCHEDULES_UNHEALTHY_S ? UNHEALTHY :
		f->schedules_late_s > SCHEDULES_DEGRADED_S || f->paused_schedules > 0 || lacks ? DEGRADED : HEALTHY;
	const char *members = ", \"active\": null, \"paused\": null, \"late_s\": null";

	if (f->sees_all)
		members = psprintf(", \"active\": " INT64_FORMAT ", \"paused\": " INT64_FORMAT ", \"late_s\": %.3f",
						   f->active_schedules, f->paused_schedules, f->schedules_late_s);
	if (!lacks && f->schedules_late_s > SCHEDULES_DEGRADED_S)
		report->since = seconds_ago(f->schedules_late_s);
	add_check(report, "schedules", level,
			  lacks ? "no background worker is free for the conductor: ticks wait" :
			  f->schedules_late_s > SCHEDULES_DEGRADED_S ? "ticks of schedules are late" :
			  f->paused_schedules > 0 ? "jobq has paused schedules: jobq.schedules has the reasons" : NULL,
			  members);
}

/*
 * Adds the check of jobq.before_drop_type, which exists only while rows stay
 * because a job of that type has failed.
 */
static void
check_retention(Report *report, const HealthFacts *f)
{
	if (f->stuck_drops > 0)
		add_check(report, "retention", DEGRADED,
				  f->drop_problem && f->sees_all ? psprintf("no job of jobq.before_drop_type can be enqueued: %s", f->drop_problem) :
				  "expired rows stay: a job of jobq.before_drop_type has failed, retry or purge it",
				  psprintf(", \"waiting\": " INT64_FORMAT, f->stuck_drops));
}

/*
 * Adds the check of default partitions, which exists only while they have
 * rows: those that came before their partition was made.
 */
static void
check_partitions(Report *report, const HealthFacts *f)
{
	const char *message = "these rows came before maintenance had made their partition; they stay until they expire";

	if (f->default_rows == 0)
		return;
	if (f->unmade != NULL)
		message = psprintf(f->too_large ? "rows go to the default partition of %s: it is too large for another one beside it" :
						   "rows go to the default partition of %s: maintenance does not run, has failed (see check \"slots\"), or a session keeps a lock on it",
						   f->unmade);
	add_check(report, "partitions", f->unmade != NULL ? DEGRADED : HEALTHY, message,
			  psprintf(", \"default_rows\": %s", f->sees_all ? psprintf(INT64_FORMAT, f->default_rows) : "null"));
}

static void
check_dead_letters(Report *report, const HealthFacts *f)
{
	Level		level = f->recent_dead_letters == 0 ? HEALTHY :
		f->recent_dead_letters < jobq_health_dead_letters ? DEGRADED : UNHEALTHY;

	report->since = level == HEALTHY ? 0 : f->dead_since;
	add_check(report, "dead_letters", level,
			  level == HEALTHY ? NULL : "jobs have failed for good: retry or purge them",
			  psprintf(", \"count\": " INT64_FORMAT, f->recent_dead_letters));
}

/* ---------- disk, horizon, signals, access ---------- */

/*
 * Reports what the disk watch has measured last: this session reads no file
 * system.
 */
static void
check_disk(Report *report, JobqDb *db)
{
	double		percent;
	DiskLevel	level = disk_level(db, &percent);

	if (level == DISK_UNKNOWN)
		add_check(report, "disk", HEALTHY, NULL, ", \"level\": null, \"percent\": null");
	else
		add_check(report, "disk", level == DISK_EMERGENCY ? UNHEALTHY : level == DISK_CRITICAL ? DEGRADED : HEALTHY,
				  level == DISK_OK ? NULL : "a file system is getting full: jobq.disk_log says which",
				  psprintf(", \"level\": \"%s\", \"percent\": %.1f", disk_level_name(level), percent));
}

/* The dead rows' share of what is not free, by the statistics' numbers of rows. */
static int64
dead_bytes(const HealthFacts *f, int64 free_bytes)
{
	return f->dead_rows <= 0 ? 0 :
		(int64) (Max(f->queue_bytes - free_bytes, 0) * ((double) f->dead_rows / (f->dead_rows + Max(f->live_rows, 0))));
}

static bool
held_for_long(const HealthFacts *f)
{
	return f->holder != NULL && f->holder_since && f->holder_s > HORIZON_LIMIT_S;
}

/* Returns why the queue's files are larger than they should be; NULL: they are not. */
static const char *
space_message(const QueueSpace *space, const HealthFacts *f)
{
	bool		late = space->late_since > 0 && mono_exceeds(space->late_since, mono_now(), LATE_LIMIT_MS);

	if (held_for_long(f) && f->holder_lever != NULL)
		return f->sees_all ? psprintf("%s %s", f->holder, f->holder_lever) : "a replication slot or a standby keeps dead rows";
	if (held_for_long(f))
		return "its snapshot keeps dead rows, also of jobq.queue";
	if (late && !space->autovacuum_on)
		return "autovacuum is off for jobq.queue, whose dead rows pile up";
	if (late)
		return f->holder != NULL ? "dead rows of jobq.queue pile up: a snapshot keeps them, or autovacuum does not come" :
			"dead rows of jobq.queue pile up: autovacuum does not come (are all its workers busy?)";
	if (space->bytes > LARGE_BYTES && space->free_bytes > space->bytes / 100 * LARGE_FREE_PERCENT)
		return "jobq.queue has large files that are almost empty: VACUUM (TRUNCATE) jobq.queue and "
			"REINDEX INDEX CONCURRENTLY of its indexes give them back";
	return NULL;
}

/* What keeps dead rows, and the size of the queue's files. */
static void
check_horizon(Report *report, JobqDb *db, const HealthFacts *f)
{
	QueueSpace	space = {0};
	const char *message;
	const char *members = ", \"holder\": null, \"held_s\": null, \"xids\": null, \"queue_bytes\": null, "
		"\"free_bytes\": null, \"dead_bytes\": null";

	if (db != NULL)
		space = queue_space(db);
	message = space_message(&space, f);
	if (f->sees_all)
		members = psprintf(", \"holder\": %s, \"held_s\": %s, \"xids\": " INT64_FORMAT ", \"queue_bytes\": " INT64_FORMAT
						   ", \"free_bytes\": " INT64_FORMAT ", \"dead_bytes\": " INT64_FORMAT,
						   json_string(f->holder),
						   f->holder && f->holder_since ? psprintf("%.3f", f->holder_s) : "null",
						   f->holder_xids, f->queue_bytes, Min(space.free_bytes, f->queue_bytes),
						   dead_bytes(f, space.free_bytes));
	if (held_for_long(f))
		report->since = seconds_ago(f->holder_s);
	add_check(report, "horizon", message ? DEGRADED : HEALTHY, message, members);
}

static void
check_notify_queue(Report *report, const HealthFacts *f)
{
	Level		level = f->notify_usage >= NOTIFY_FULL ? UNHEALTHY :
		f->notify_usage >= NOTIFY_QUEUE_LIMIT ? DEGRADED : HEALTHY;

	add_check(report, "notify_queue", level,
			  level == HEALTHY ? NULL : "a session that listens does not read its notifications; jobq sends none meanwhile",
			  psprintf(", \"usage\": %.4f", f->notify_usage));
}

static void
check_identity(Report *report)
{
	int32		id;
	bool		ours = home_is_ours(&id);

	add_check(report, "identity", ours ? HEALTHY : UNHEALTHY, ours ? NULL :
			  "this database was restored from a dump, so its jobs don't run: "
			  "SELECT jobq.adopt() makes them its own", "");
}

/* Adds the check of access, which exists only when it has a message. */
static void
check_access(Report *report, const HealthFacts *f)
{
	if (f->strays)
		add_check(report, "access", DEGRADED,
				  psprintf("roles have privileges that jobq did not grant: %s; "
						   "SELECT jobq_internal._revoke_stray_grants() takes them back", f->strays), "");
}

/* Reports the dispatcher's state alone: no table can be read, or relied on. */
static Datum
report_unread(JobqDb *db, Level level, const char *trouble)
{
	HealthFacts f = {0};
	Report		report = {.worst = HEALTHY};

	initStringInfo(&report.checks);
	(void) check_dispatcher(&report, db, &f);
	add_check(&report, "queues", level, trouble, "");
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(
		psprintf("{\"status\": \"%s\", \"checks\": {%s}, \"details\": {}}", level_names[report.worst],
				 report.checks.data)));
}

Datum
jobq_health(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = RecoveryInProgress() ? NULL : my_db();
	const char *trouble = tables_trouble();
	HealthFacts f;
	Report		report = {.worst = HEALTHY};
	StringInfoData out;
	bool		dispatcher;
	int			workers;

	if (trouble[0] != '\0')
		PG_RETURN_DATUM(report_unread(db, UNHEALTHY, psprintf("no job runs: %s", trouble)));
	if (!health_facts(&f))
		PG_RETURN_DATUM(report_unread(db, DEGRADED, "a lock on a table or an index of jobq keeps health() from reading it"));
	initStringInfo(&report.checks);
	report.notes = f.sees_all ? db : NULL;	/* others see fewer causes */
	dispatcher = check_dispatcher(&report, db, &f);
	workers = check_workers(&report, db, &f, dispatcher);
	check_queues(&report, db, &f);
	check_schedules(&report, db, &f);
	check_retention(&report, &f);
	check_partitions(&report, &f);
	check_dead_letters(&report, &f);
	check_breakers(&report, db, &f);
	check_signals(&report, &f);
	check_helper(&report, db, &f);
	check_disk(&report, db);
	check_slots(&report, db, &f);
	check_horizon(&report, db, &f);
	check_notify_queue(&report, &f);
	check_identity(&report);
	check_access(&report, &f);
	forget_times(&report);

	initStringInfo(&out);
	appendStringInfo(&out, "{\"status\": \"%s\", \"checks\": {%s}, \"details\": {\"active_workers\": %d, "
					 "\"total_queues\": " INT64_FORMAT ", \"oldest_waiting_job\": %s, "
					 "\"dead_letter_count\": " INT64_FORMAT "}}",
					 level_names[report.worst], report.checks.data, workers, f.types,
					 json_string(f.oldest_id), f.dead_letters);
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(out.data)));
}
