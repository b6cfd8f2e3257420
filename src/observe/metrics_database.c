/*
 * metrics_database.c
 *	  The families of the database: dispatcher, workers, limits, and what
 *	  maintenance has read from tables.
 */
#include "jobq.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "observe/metrics_text.h"
#include "pressure/pressure_signals.h"
#include "shared/slots.h"

#define GAUGES_MAX_AGE	(5 * USECS_PER_MINUTE)	/* maintenance comes each minute */

static void
add_dispatcher(Metrics *m, JobqDb *db)
{
	static const DbStats none;
	const DbStats *stats = db == NULL ? &none : &db->stats;

	metrics_family(m, "dispatcher_up", FAMILY_GAUGE, "1: the dispatcher of this database runs.");
	metrics_sample(m, db != NULL && db->dispatcher.proc != NULL, NULL);
	metrics_family(m, "dispatcher_loops", FAMILY_COUNTER, "Turns of the dispatcher.");
	metrics_sample(m, (double) stats->loops, NULL);
	metrics_family(m, "dispatcher_wakeups", FAMILY_COUNTER, "Turns of the dispatcher by what woke it.");
	for (int i = 0; i < STAT_WAKEUPS; i++)
		metrics_sample(m, (double) stats->wakeups[i], "source", stat_wakeup_names[i], NULL);
	metrics_family(m, "handed_out", FAMILY_COUNTER, "Jobs that were given to a worker or client.");
	metrics_sample(m, db == NULL ? 0 : (double) (pg_atomic_read_u64(&db->counters.handed_out) - stats->handed_out_before), NULL);
}

/* ---------- workers ---------- */

/* Counts the jobs of a slot that run. */
static int
running_in(Slot *slot)
{
	int			n = 0;

	for (int c = 0; c < JOBQ_CELLS; c++)
		n += pg_atomic_read_u32(&slot->cells[c].state) == CELL_BEGUN && slot->cells[c].started_at != 0;
	return n;
}

/* Counts the database's processes by kind, and whether they are idle or busy. */
static void
count_workers(JobqDb *db, int n[2][2])
{
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (slot->in_use && !slot->dead && slot->proc != NULL && slot->dboid == db->dboid)
			n[slot->kind == SLOT_EXEC][running_in(slot) > 0]++;
	}
	LWLockRelease(JobqShmem->lock);
}

/* Only a standby has no samples: the rules know one by that. */
static void
add_workers(Metrics *m, JobqDb *db)
{
	static const char *const kinds[] = {"sql", "exec"};
	int			n[2][2] = {{0}};
	uint32		claims = 0;

	metrics_family(m, "workers", FAMILY_GAUGE, "Processes that run jobs, by kind and state; pull: jobs that clients have claimed.");
	if (RecoveryInProgress())
		return;
	if (db != NULL)
	{
		count_workers(db, n);
		claims = pg_atomic_read_u32(&db->health.leases) & ~LEASES_UNKNOWN;
	}
	for (int k = 0; k < (int) lengthof(kinds); k++)
	{
		metrics_sample(m, n[k][0], "kind", kinds[k], "state", "idle", NULL);
		metrics_sample(m, n[k][1], "kind", kinds[k], "state", "busy", NULL);
	}
	metrics_sample(m, claims, "kind", "pull", "state", "busy", NULL);
}

/* ---------- limits ---------- */

static void
add_limit(Metrics *m, const StatLimit *limit, int32 value)
{
	if (limit->kind != LIMIT_TENANT)	/* no label has a tenant */
		metrics_sample(m, value, "kind", stat_limit_kinds[limit->kind], "limit", limit->name, NULL);
}

static void
add_limits(Metrics *m, JobqDb *db)
{
	StatLimit  *limits = palloc(sizeof(StatLimit) * STAT_LIMITS);
	int			n = 0;

	if (db != NULL)
	{
		SpinLockAcquire(&db->mutex);
		n = db->stats.nlimits;
		memcpy(limits, db->stats.limits, sizeof(StatLimit) * n);
		SpinLockRelease(&db->mutex);
	}
	metrics_family(m, "limit_used", FAMILY_GAUGE, "Jobs, their weight or starts that count for a limit; _other: limits that are left out.");
	for (int i = 0; i < n; i++)
		add_limit(m, &limits[i], limits[i].used);
	metrics_family(m, "limit_max", FAMILY_GAUGE, "Its maximum.");
	for (int i = 0; i < n; i++)
	{
		if (limits[i].kind != LIMIT_REST)
			add_limit(m, &limits[i], limits[i].max);
	}
	pfree(limits);
}

/* ---------- values of tables ---------- */

/* Copies the gauges; none if they are old. */
static int
copy_gauges(JobqDb *db, StatGauge *gauges)
{
	int			n = 0;

	if (db == NULL)
		return 0;
	SpinLockAcquire(&db->mutex);
	if (db->stats.gauges_at + GAUGES_MAX_AGE > GetCurrentTimestamp())
		n = db->stats.ngauges;
	memcpy(gauges, db->stats.gauges, sizeof(StatGauge) * n);
	SpinLockRelease(&db->mutex);
	return n;
}

static void
add_gauges(Metrics *m, JobqDb *db)
{
	static const struct
	{
		const char *family;
		const char *label;		/* NULL: none */
		const char *help;
	}			families[] = {
		{"health", "check", "Checks of jobq.health(); 0 healthy, 1 degraded, 2 unhealthy."},
		{"disk_used_ratio", "path", "How full the file systems are."},
		{"queue_bytes", NULL, "Size of jobq.queue with its indexes."},
		{"dead_row_bytes", NULL, "Bytes of its dead rows, which a snapshot may still see or VACUUM has not removed."},
		{"horizon_held_seconds", NULL, "For how long the oldest snapshot of the server has been held."},
		{"signal_active", "signal", "1: the pressure signal is active."}
	};
	StatGauge  *gauges = palloc(sizeof(StatGauge) * STAT_GAUGES);
	int			n = copy_gauges(db, gauges);

	for (int f = 0; f < (int) lengthof(families); f++)
	{
		metrics_family(m, families[f].family, FAMILY_GAUGE, families[f].help);
		for (int i = 0; i < n; i++)
		{
			if (strcmp(gauges[i].family, families[f].family) == 0)
				metrics_sample(m, gauges[i].value, families[f].label, gauges[i].label, NULL);
		}
	}
	/* the last family's are not of a table */
	for (int i = 0; db != NULL && i < JOBQ_BUILTIN_SIGNALS; i++)
		metrics_sample(m, signal_is_set(db, i), "signal", builtin_signal_names[i], NULL);
	pfree(gauges);
}

static void
add_alerts(Metrics *m, JobqDb *db)
{
	StatEntry **entries;
	int			n = db == NULL ? 0 : stat_entries(db, &entries);
	uint64		high = 0;
	uint64		warning = 0;

	for (int i = 0; i < n; i++)
	{
		high += stat_value(entries[i], STAT_ALERTS_HIGH);
		warning += stat_value(entries[i], STAT_ALERTS_WARNING);
	}
	metrics_family(m, "alerts", FAMILY_COUNTER, "Alerts by severity.");
	metrics_sample(m, (double) high, "severity", "high", NULL);
	metrics_sample(m, (double) warning, "severity", "warning", NULL);
}

void
metrics_add_database(Metrics *m, JobqDb *db)
{
	add_workers(m, db);
	add_dispatcher(m, db);
	add_limits(m, db);
	add_gauges(m, db);
	add_alerts(m, db);
	metrics_family(m, "build_info", FAMILY_GAUGE, "1; the label has the version of the library.");
	metrics_sample(m, 1, "version", JOBQ_VERSION, NULL);
}
