/*
 * maintenance_tasks.c
 *	  What maintenance does, and when.
 *
 * All but conditions run as the owner of jobq's tables.  Every step is a
 * transaction of its own; a step that finds a table in use is left to the next
 * run.
 */
#include "jobq.h"

#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/act_as.h"
#include "base/relations.h"
#include "base/session.h"
#include "maintenance/disk_watch.h"
#include "maintenance/maintenance.h"
#include "maintenance/queue_space.h"
#include "pressure/signal_condition.h"
#include "settle/breaker_news.h"
#include "shared/breaker.h"
#include "shared/child_process.h"
#include "tables/live_counts.h"

#define PARTITIONS_US	(600 * USECS_PER_SEC)
#define SOON_US			(5 * USECS_PER_SEC)
#define RETAIN_MS		10000	/* of retention in one run */

/* ---------- steps ---------- */

typedef struct Step
{
	bool		(*what) (void *);
	void	   *arg;
} Step;

static bool
as_owner(void *arg)
{
	Step	   *step = arg;
	bool		answer = false;

	PushActiveSnapshot(GetTransactionSnapshot());
	if (OidIsValid(get_extension_oid("jobq", true)))
	{
		Caller		caller = act_as(jobq_owner(), SECURITY_RESTRICTED_OPERATION);

		answer = step->what(step->arg);
		act_as_caller(caller);
	}
	PopActiveSnapshot();
	return answer;
}

/*
 * Calls what(arg) as the owner of jobq's tables, in a transaction.  Returns
 * its result, or false if a table was in use.
 */
static bool
in_transaction(bool (*what) (void *), void *arg)
{
	Step		step = {what, arg};

	return try_transaction("maintenance", as_owner, &step);
}

/* Runs a query of one value, which becomes *value; false: it is NULL. */
static bool
query_value(const char *query, Datum *value)
{
	bool		isnull;

	pgstat_report_activity(STATE_RUNNING, query);
	SPI_connect();
	if (SPI_execute(query, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not execute \"%s\"", query);
	*value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	SPI_finish();
	return !isnull;
}

/* Returns the result of a query of one boolean; false for NULL. */
static bool
ask(void *query)
{
	Datum		answer;

	return query_value(query, &answer) && DatumGetBool(answer);
}

/* ---------- partitions ---------- */

static int64
partitions_every(void)
{
	return Min(PARTITIONS_US, (int64) jobq_partition_interval * USECS_PER_SEC / 2);
}

static bool
drop_partitions(void *unused)
{
	Datum		none;

	(void) query_value("SELECT jobq_internal._maintain(makes => false)", &none);
	return true;
}

/* Sets *missing to the number of partitions that are still missing. */
static bool
make_partitions(void *missing)
{
	Datum		n;

	*(int32 *) missing = query_value("SELECT jobq_internal._maintain(drops => false)", &n) ? DatumGetInt32(n) : 0;
	return true;
}

/* Drops partitions; makes them until none is missing, or a step has made none. */
static void
run_partitions(JobqDb *db)
{
	int32		before;
	int32		missing = PG_INT32_MAX;
	bool		dropped = in_transaction(drop_partitions, NULL);
	bool		done;

	do
	{
		before = missing;
		missing = 0;
		done = in_transaction(make_partitions, &missing);
	} while (done && missing > 0 && missing < before && !child_must_leave(db));
	if (dropped && done && missing == 0)
		pg_atomic_write_u32(&db->maintenance.failures, 0);
	else
		(void) pg_atomic_fetch_add_u32(&db->maintenance.failures, 1);
}

/* ---------- disks ---------- */

static int64
every_minute(void)
{
	return USECS_PER_MINUTE;
}

static bool
record(void *filesystems)
{
	pgstat_report_activity(STATE_RUNNING, "SELECT jobq_internal._log_disk($1, $2, $3, $4, $5)");
	disk_record(filesystems);
	return true;
}

/* Drops the expired partitions of all tables. */
static bool
expire_all(void *unused)
{
	return ask("SELECT bool_and(jobq_internal._expire_partitions(p.parent) IS NOT NULL)"
			   "  FROM (VALUES ('jobq.events'), ('jobq.alerts'), ('jobq.artifacts'), ('jobq.history'),"
			   "               ('jobq.audit')) n(name),"
			   "       LATERAL (SELECT to_regclass(n.name)) p(parent)"
			   " WHERE p.parent IS NOT NULL");
}

/* Measures the disks; drops expired partitions if one is nearly full. */
static void
run_disks(JobqDb *db)
{
	List	   *filesystems;

	pgstat_report_activity(STATE_RUNNING, "jobq: measuring disks");
	filesystems = disk_measure();
	if (in_transaction(record, filesystems) && disk_announce(db, filesystems) >= DISK_CRITICAL)
		(void) in_transaction(expire_all, NULL);
}

/* ---------- what is wanted now and then ---------- */

static int64
soon(void)
{
	return SOON_US;
}

static int64
at_once(void)
{
	return 0;
}

static bool
rows_are_to_be_counted(JobqDb *db)
{
	return db->stats.count_due || db->stats.phase == STAT_UNCOUNTED;
}

static bool
count_live(void *db)
{
	pgstat_report_activity(STATE_RUNNING, "jobq: counting rows");
	return live_counts_ensure(db);
}

static void
run_count_rows(JobqDb *db)
{
	(void) in_transaction(count_live, db);
}

/* ---------- every minute ---------- */

/*
 * Deletes surplus rows until RETAIN_MS after its first step in this process.
 * Other tasks go first: the rest is done behind them.
 */
static void
run_retention(JobqDb *db)
{
	static MonoTime first = 0;

	if (first == 0)
		first = mono_now();
	while (!mono_exceeds(first, mono_now(), RETAIN_MS) && in_transaction(ask, "SELECT jobq_internal._retain()"))
	{
		CHECK_FOR_INTERRUPTS();
		if (!maintenance_is_awaited(db))
			continue;
		(void) pg_atomic_fetch_or_u32(&db->maintenance.asked, 1 << TASK_RETENTION);
		return;
	}
}

static void
run_queue_space(JobqDb *db)
{
	pgstat_report_activity(STATE_RUNNING, "jobq: measuring the queue");
	(void) in_transaction(queue_space_measure, db);
}

static void
copy_gauge(StatGauge *gauge, HeapTuple row, TupleDesc desc)
{
	bool		isnull;

	strlcpy(gauge->family, TextDatumGetCString(SPI_getbinval(row, desc, 1, &isnull)), sizeof(gauge->family));
	strlcpy(gauge->label, TextDatumGetCString(SPI_getbinval(row, desc, 2, &isnull)), sizeof(gauge->label));
	gauge->value = DatumGetFloat8(SPI_getbinval(row, desc, 3, &isnull));
}

/*
 * Reads the values of metrics that tables have into shared memory: a scrape
 * reads only that.  metrics_database.c leaves them out when they are old.
 */
static bool
gauges_read(void *arg)
{
	JobqDb	   *db = arg;
	StatGauge  *gauges = palloc0(sizeof(StatGauge) * STAT_GAUGES);
	int			n = 0;

	SPI_connect();
	if (SPI_execute("SELECT g.family, g.label, g.value FROM jobq_internal._gauges() g", false, STAT_GAUGES) != SPI_OK_SELECT)
		elog(ERROR, "could not read the gauges");
	for (; n < (int) SPI_processed; n++)
		copy_gauge(&gauges[n], SPI_tuptable->vals[n], SPI_tuptable->tupdesc);
	SPI_finish();
	SpinLockAcquire(&db->mutex);
	memcpy(db->stats.gauges, gauges, sizeof(StatGauge) * n);
	db->stats.ngauges = n;
	db->stats.gauges_at = GetCurrentTimestamp();
	SpinLockRelease(&db->mutex);
	pfree(gauges);
	return true;
}

static void
run_gauges(JobqDb *db)
{
	pgstat_report_activity(STATE_RUNNING, "SELECT jobq_internal._gauges()");
	(void) in_transaction(gauges_read, db);
}

const Task maintenance_tasks[MAINTENANCE_TASKS] = {
	[TASK_PARTITIONS] = {"partitions", partitions_every, NULL, run_partitions},
	[TASK_DISKS] = {"disks", every_minute, NULL, run_disks},
	[TASK_BREAKERS] = {"breakers", soon, breakers_have_changes, breaker_tell_for_clients},
	[TASK_COUNT_ROWS] = {"count of rows", soon, rows_are_to_be_counted, run_count_rows},
	[TASK_RETENTION] = {"retention", every_minute, NULL, run_retention},
	[TASK_QUEUE_SPACE] = {"queue's space", every_minute, NULL, run_queue_space},
	[TASK_GAUGES] = {"gauges", every_minute, NULL, run_gauges},
	[TASK_CONDITION] = {"condition", at_once, conditions_are_asked, condition_run}
};
