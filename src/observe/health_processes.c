/*
 * health_processes.c
 *	  jobq.health(): the dispatcher, the workers and what starts them.
 *
 * The facts are those of shared memory.  The dispatcher is asked for an
 * answer, since a process that exists may stand still.
 */
#include "jobq.h"

#include <unistd.h>

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/syncrep.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "maintenance/maintenance.h"
#include "observe/health.h"
#include "registry/job_types.h"
#include "shared/breaker.h"
#include "shared/commit_news.h"
#include "shared/slots.h"
#include "shared/wait_events.h"
#include "shared/worker_need.h"

#define PING_LIMIT_MS		1000	/* or jobq.health_latency, if that is longer */
#define MAINTENANCE_LIMIT_S	300	/* of one task */

/* ---------- the dispatcher ---------- */

/* Pings the dispatcher.  Returns the time until its answer in ms, or -1. */
static double
ping(JobqDb *db)
{
	MonoTime	start = mono_now();
	uint64		mine = pg_atomic_fetch_add_u64(&db->health.ping, 1) + 1;

	while (db->dispatcher.proc != NULL)
	{
		MonoTime	now;

		wake_dispatcher(db);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
						 jobq_wait(WAIT_HEALTH));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		now = mono_now();
		if ((int64) (pg_atomic_read_u64(&db->health.pong) - mine) >= 0)
			return (now - start) / 1000.0;
		if (mono_exceeds(start, now, Max(PING_LIMIT_MS, jobq_health_latency)))
			break;
	}
	return -1;
}

const char *
why_no_dispatcher(JobqDb *db, bool workers_used_up)
{
	if (JobqShmem == NULL)
		return "jobq is not in shared_preload_libraries: jobs are stored and nothing runs them";
	if (RecoveryInProgress())
		return "this server is a standby: jobs run on the primary";
	if (!database_is_admitted(get_database_name(MyDatabaseId)))
		return "jobq.databases leaves this database out";
	if (db == NULL)
		return "jobq.max_databases are in use";
	if (db->lifecycle.suspended > 0)
		return "a command that needs the database or the queue to itself is under way";
	if (JobqShmem->launcher == NULL)
		return "the launcher is not running: the server restarts it in a few seconds";
	if (workers_used_up || (pg_atomic_read_u32(&db->lacking) & WORKER_DISPATCHER))
		return "there is no free background worker: increase max_worker_processes";
	return "the dispatcher is not running: the launcher starts it again, see the server log";
}

bool
check_dispatcher(Report *report, JobqDb *db, const HealthFacts *f)
{
	double		ms = db && db->dispatcher.proc ? ping(db) : -1;
	const char *message = NULL;
	Level		level = HEALTHY;
	bool		running = db && db->dispatcher.proc;

	if (!running)
	{
		level = UNHEALTHY;
		message = why_no_dispatcher(db, f->background_workers >= max_worker_processes);
		want_dispatcher(db);
	}
	else if (ms < 0)
	{
		level = UNHEALTHY;
		message = "the dispatcher does not answer";
	}
	else if (ms >= jobq_health_latency)
	{
		level = DEGRADED;
		message = "the dispatcher is slower than jobq.health_latency";
	}
	add_check(report, "dispatcher", level, message,
			  ms < 0 ? ", \"latency_ms\": null" : psprintf(", \"latency_ms\": %.3f", ms));
	return running;
}

/* ---------- workers ---------- */

/* True if a SQL handler has run in the slot for longer than jobq.long_handler. */
static bool
has_long_handler(Slot *slot)
{
	MonoTime	begun = 0;

	if (slot->kind != SLOT_SQL || jobq_long_handler == 0)
		return false;
	SpinLockAcquire(&slot->mutex);
	if (slot->current >= 0 && slot->phase == PHASE_HANDLER)
		begun = slot->cells[slot->current].begun_at;
	SpinLockRelease(&slot->mutex);
	return begun != 0 && mono_exceeds(begun, mono_now(), jobq_long_handler);
}

/*
 * Counts the workers, those whose commit waits for a synchronous standby, and
 * long handlers.
 */
static void
count_workers(int *sql, int *exec, int *stuck, int *long_handlers)
{
	*sql = *exec = *stuck = *long_handlers = 0;
	if (JobqShmem == NULL)
		return;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dead || slot->dboid != MyDatabaseId)
			continue;
		(*(slot->kind == SLOT_SQL ? sql : exec))++;
		if (slot->proc != NULL && slot->proc->syncRepState == SYNC_REP_WAITING)
			(*stuck)++;
		*long_handlers += has_long_handler(slot);
	}
	LWLockRelease(JobqShmem->lock);
}

/* True if fewer synchronous standbys are connected than a commit waits for. */
static bool
lacks_standbys(void)
{
	SyncRepStandbyData *standbys;

	return SyncRepConfig != NULL && SyncRepGetCandidateStandbys(&standbys) < SyncRepConfig->num_sync;
}

int
check_workers(Report *report, JobqDb *db, const HealthFacts *f, bool dispatcher)
{
	int			sql,
				exec,
				stuck,
				long_handlers,
				count,
				shown,
				claimed = 0,	/* each is worked by a client */
				can_start = 0;
	int			free_workers = Max(max_worker_processes - (int) f->background_workers, 0);
	Level		level;
	char	   *message = NULL;

	count_workers(&sql, &exec, &stuck, &long_handlers);
	if (db != NULL)
		claimed = (int) (pg_atomic_read_u32(&db->health.leases) & ~LEASES_UNKNOWN);
	count = sql + exec + claimed;
	shown = f->sees_all ? count : sql + exec;
	if (dispatcher)
	{
		can_start = Max(sql_workers_allowed(db) - sql, 0);
		if (f->exec_types > 0 && exec == 0)
			can_start++;
		can_start = Min(can_start, free_workers);
	}
	level = count + can_start >= jobq_health_min_workers ? HEALTHY :
		count + can_start > 0 ? DEGRADED : UNHEALTHY;
	if (level != HEALTHY)
		message = dispatcher ? "fewer workers run or can start than jobq.health_min_workers" :
			"without a dispatcher no worker starts";
	else if (stuck > 0 && lacks_standbys())
	{
		level = DEGRADED;
		message = psprintf("%d workers wait at commit for a synchronous standby that is not there (synchronous_standby_names)", stuck);
	}
	add_check(report, "workers", level, message,
			  psprintf(", \"count\": %d, \"claimed\": %s, \"can_start\": %d, \"long_handlers\": %s", shown,
					   f->sees_all ? psprintf("%d", claimed) : "null", can_start,
					   f->sees_all ? psprintf("%d", long_handlers) : "null"));
	return shown;
}

/* Returns the SQL workers that fit, of those that the setting allows: "2 of 4". */
static const char *
allowed_sql_workers(JobqDb *db)
{
	if (db == NULL || db->dispatcher.sql_workers == SQL_WORKERS_UNKNOWN)
		return "null";
	return psprintf("\"%d of %d\"", sql_workers_allowed(db), db->dispatcher.sql_workers);
}

void
check_slots(Report *report, JobqDb *db, const HealthFacts *f)
{
	char	   *lacking = db != NULL ? lacking_workers(db) : NULL;
	WorkerNeed	need = worker_need(InvalidOid);
	char		error[sizeof(db->maintenance.trouble[0])];
	const char *failed = db != NULL ? maintenance_trouble(db, error, sizeof(error)) : NULL;
	char	   *message = NULL;

	if (lacking != NULL)
		message = psprintf("a worker could not be started (%s): increase max_worker_processes%s", lacking,
						   need.advised > max_worker_processes ? psprintf(" to %d", need.advised) : "");
	else if (db != NULL && maintenance_task_seconds(db) > MAINTENANCE_LIMIT_S)
		message = psprintf("maintenance has been at one task for " INT64_FORMAT " s: see its query in pg_stat_activity",
						   maintenance_task_seconds(db));
	else if (failed != NULL)
		message = psprintf("maintenance fails at its task \"%s\": %s", failed, f->sees_all ? error : "see the server log");
	add_check(report, "slots", message != NULL ? DEGRADED : HEALTHY, message,
			  psprintf(", \"used\": " INT64_FORMAT ", \"max\": %d, \"needed\": %d, \"sql_workers\": %s", f->background_workers,
					   max_worker_processes, need.jobq + need.others, allowed_sql_workers(db)));
}

static const char *
unstartable_types(const HealthFacts *f)
{
	return psprintf("%d job %s paused on this node: %s", f->nunstartable, f->nunstartable == 1 ? "type is" : "types are",
					f->unstartable ? f->unstartable : "");
}

void
check_helper(Report *report, JobqDb *db, const HealthFacts *f)
{
	char		path[MAXPGPATH];
	char		trouble[sizeof(db->health.helper_trouble)] = "";
	const char *message = NULL;

	if (db != NULL)
	{
		SpinLockAcquire(&db->mutex);
		strlcpy(trouble, db->health.helper_trouble, sizeof(trouble));
		SpinLockRelease(&db->mutex);
	}
	snprintf(path, sizeof(path), "%s/jobq-helper", pkglib_path);
	if (f->exec_types == 0)
		message = NULL;
	else if (access(path, X_OK) != 0)
		message = "jobq-helper is not installed: no tool can be run";
	else if (PostmasterPid == 1 && !jobq_allow_exec_under_pid1)
		message = "the postmaster is process 1: run the container with an init process, "
			"or set jobq.allow_exec_under_pid1";
	else if (trouble[0] != '\0')
		message = f->sees_all ? trouble : "a tool can't be started";
	else if (f->nunstartable > 0)
		message = f->sees_all ? unstartable_types(f) : "a tool can't be started";
	add_check(report, "helper", message ? DEGRADED : HEALTHY, message, "");
}

/* ---------- breakers ---------- */

/* Adds a breaker to the array, and to the sentence that names all. */
static void
add_breaker(const Breaker *b, const JobType *type, StringInfo array, StringInfo message)
{
	MonoTime	open_us = mono_now() - b->opened_at;
	MonoTime	left = type->breaker_pause_us - open_us;
	char		until[MAXDATELEN + 1];

	(void) JsonEncodeDateTime(until, TimestampTzGetDatum(GetCurrentTimestamp() + Max(left, 0)), TIMESTAMPTZOID, NULL);
	appendStringInfo(array, "%s{\"job_type\": ", array->len > 1 ? ", " : "");
	escape_json(array, type->name);
	appendStringInfo(array, "%s, \"failures\": %d, \"probing\": %s, \"until\": \"%s\"}",
					 since_member(GetCurrentTimestamp() - open_us), b->failures, b->state == BREAKER_PROBING ? "true" : "false", until);
	appendStringInfo(message, "%sthe breaker of job type \"%s\" is open", message->len > 0 ? "; " : "", type->name);
	if (left > 0 && b->state == BREAKER_OPEN)
		appendStringInfo(message, " until %s", until);
	else
		appendStringInfoString(message, ", one job may start");
}

/*
 * Returns a JSON array of the open breakers, a sentence that names them, and
 * when the first was opened; NULL: none is open.
 */
static char *
open_breakers(JobqDb *db, char **message, MonoTime *first)
{
	Breaker    *open;
	int			n;
	StringInfoData array;
	StringInfoData text;

	if (db == NULL || db->breakers.ntypes == 0)
		return NULL;
	open = palloc(sizeof(Breaker) * JOBQ_BREAKERS);
	n = breakers_open(db, open);
	initStringInfo(&array);
	initStringInfo(&text);
	appendStringInfoChar(&array, '[');
	for (int i = 0; i < n; i++)
	{
		JobType    *type = job_type_by_id(open[i].type_id);

		if (type != NULL && !type->dropped && type->breaker_failures > 0)
		{
			add_breaker(&open[i], type, &array, &text);
			*first = Min(*first, open[i].opened_at);
		}
	}
	appendStringInfoChar(&array, ']');
	*message = text.data;
	return text.len > 0 ? array.data : NULL;
}

void
check_breakers(Report *report, JobqDb *db, const HealthFacts *f)
{
	char	   *message;
	MonoTime	first = mono_now();
	char	   *open = open_breakers(db, &message, &first);

	if (open == NULL)
		return;
	report->since = GetCurrentTimestamp() - (mono_now() - first);
	add_check(report, "breakers", DEGRADED, f->sees_all ? message : "the breaker of a job type is open",
			  f->sees_all ? psprintf(", \"open\": %s", open) : "");
}
