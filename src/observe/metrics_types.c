/*
 * metrics_types.c
 *	  The families of job types.
 *
 * Types beyond the oldest jobq.metrics_types, and those that share an entry of
 * the statistics, are added up as type="_other".  When there are so many, so
 * are dropped types: only then the registry is read.
 */
#include "jobq.h"

#include "utils/timestamp.h"

#include "observe/metrics_text.h"
#include "registry/job_types.h"

#define OTHER	"_other"

typedef struct TypeList
{
	TypeStats  *types;
	int			n;
} TypeList;

static void
add_up(TypeStats *into, const TypeStats *s)
{
	for (int c = 0; c < STAT_COUNTERS; c++)
		into->n[c] += s->n[c];
	into->due += s->due;
	into->counted = s->counted;
	if (s->oldest_due != 0 && (into->oldest_due == 0 || s->oldest_due < into->oldest_due))
		into->oldest_due = s->oldest_due;
}

/* True if the type may have series of its own. */
static bool
has_series(const TypeStats *s, bool crowded)
{
	return s->name[0] != '\0' && strcmp(s->name, OTHER) != 0 && !(crowded && job_type_is_dropped(s->type_id));
}

/* Reads the types that have series of their own, and behind them the others as one. */
static TypeList
read_types(JobqDb *db)
{
	TypeStats  *all;
	int			n = type_stats_read(db, &all);
	TypeStats	other = {.name = OTHER};
	TypeList	list = {.types = palloc(sizeof(TypeStats) * (n + 1))};
	bool		any = false;

	for (int i = 0; i < n; i++)
	{
		if (list.n < jobq_metrics_types && has_series(&all[i], n > jobq_metrics_types))
		{
			list.types[list.n++] = all[i];
			continue;
		}
		add_up(&other, &all[i]);
		any = true;
	}
	if (any)
		list.types[list.n++] = other;
	return list;
}

/* Adds a family with one sample per type. */
static void
add_counters(Metrics *m, const TypeList *list, const char *family, int counter, const char *help)
{
	metrics_family(m, family, FAMILY_COUNTER, help);
	for (int i = 0; i < list->n; i++)
		metrics_sample(m, (double) list->types[i].n[counter], "type", list->types[i].name, NULL);
}

static void
add_ends(Metrics *m, const TypeList *list)
{
	static const struct
	{
		const char *status;
		int			counter;
	}			ends[] = {
		{"completed", STAT_COMPLETED}, {"skipped", STAT_SKIPPED}, {"cancelled", STAT_CANCELLED}, {"error", STAT_DIED}
	};

	metrics_family(m, "jobs", FAMILY_COUNTER, "Jobs that have ended, by status; error: dead letters.");
	for (int i = 0; i < list->n; i++)
	{
		for (int k = 0; k < (int) lengthof(ends); k++)
			metrics_sample(m, (double) list->types[i].n[ends[k].counter], "type", list->types[i].name,
						   "status", ends[k].status, NULL);
	}
}

static void
add_failures(Metrics *m, const TypeList *list)
{
	metrics_family(m, "job_failures", FAMILY_COUNTER, "Attempts that have failed, by kind.");
	for (int i = 0; i < list->n; i++)
	{
		for (int k = 0; k < STAT_FAILURES; k++)
			metrics_sample(m, (double) list->types[i].n[STAT_FAILED + k], "type", list->types[i].name,
						   "kind", stat_failure_names[k], NULL);
	}
}

static void
add_depth(Metrics *m, const TypeStats *s, const char *state, int64 n)
{
	metrics_sample(m, (double) n, "type", s->name, "state", state, NULL);
}

static void
add_gauges(Metrics *m, const TypeList *list)
{
	TimestampTz now = GetCurrentTimestamp();

	metrics_family(m, "jobs_active", FAMILY_GAUGE, "Jobs that run.");
	for (int i = 0; i < list->n && list->types[i].counted; i++)
		metrics_sample(m, (double) list->types[i].n[STAT_RUNNING], "type", list->types[i].name, NULL);
	metrics_family(m, "job_type_paused", FAMILY_GAUGE, "1: the job type is paused.");
	for (int i = 0; i < list->n; i++)
		metrics_sample(m, list->types[i].paused, "type", list->types[i].name, NULL);
	metrics_family(m, "queue_oldest_seconds", FAMILY_GAUGE, "For how long the oldest job that could start has been due.");
	for (int i = 0; i < list->n; i++)
		metrics_sample(m, list->types[i].oldest_due == 0 ? 0 : Max(now - list->types[i].oldest_due, 0) / 1e6,
					   "type", list->types[i].name, NULL);
	metrics_family(m, "queue_depth", FAMILY_GAUGE, "Jobs that have not ended, and dead letters; waiting: due now.");
	for (int i = 0; i < list->n && list->types[i].counted; i++)
	{
		const TypeStats *s = &list->types[i];
		int64		waiting = Min(s->due, s->n[STAT_PENDING] + s->n[STAT_RETRY]);

		add_depth(m, s, "waiting", waiting);
		add_depth(m, s, "delayed", s->n[STAT_PENDING] + s->n[STAT_RETRY] - waiting);
		add_depth(m, s, "blocked", s->n[STAT_BLOCKED]);
		add_depth(m, s, "active", s->n[STAT_RUNNING]);
		add_depth(m, s, "dead", s->n[STAT_DEAD]);
	}
}

static void
add_histograms(Metrics *m, const TypeList *list, const char *family, int first, int nbuckets, const int64 *limits,
			   int sum, double unit, const char *help)
{
	char	   *bounds[STAT_TIME_BUCKETS];

	for (int b = 0; b < nbuckets - 1; b++)
		bounds[b] = metrics_bound(m, limits[b] / unit);
	metrics_family(m, family, FAMILY_HISTOGRAM, help);
	for (int i = 0; i < list->n; i++)
	{
		const int64 *n = &list->types[i].n[first];
		int64		total = 0;

		for (int b = 0; b < nbuckets; b++)
			total += n[b];
		if (total > 0)
			metrics_histogram(m, list->types[i].name, n, bounds, nbuckets - 1, list->types[i].n[sum] / unit);
	}
}

void
metrics_add_types(Metrics *m, JobqDb *db)
{
	TypeList	list = {0};

	if (db != NULL)
		list = read_types(db);
	add_ends(m, &list);
	add_counters(m, &list, "jobs_enqueued", STAT_ENQUEUED, "Jobs that have come into the queue.");
	add_counters(m, &list, "jobs_started", STAT_STARTED, "Attempts that have begun.");
	add_counters(m, &list, "jobs_retried", STAT_RETRIED, "Attempts that have failed and are followed by another.");
	add_failures(m, &list);
	add_gauges(m, &list);
	if (!jobq_metrics_histograms)
		return;
	add_histograms(m, &list, "job_duration_seconds", STAT_RUN, STAT_TIME_BUCKETS, stat_time_bounds, STAT_RUN_US, 1e6,
				   "Time between the start and the end of attempts.");
	add_histograms(m, &list, "queue_wait_seconds", STAT_WAIT, STAT_TIME_BUCKETS, stat_time_bounds, STAT_WAIT_US, 1e6,
				   "Time between due and start of attempts.");
	add_histograms(m, &list, "job_attempts", STAT_ATTEMPTS, STAT_ATTEMPT_BUCKETS, stat_attempt_bounds, STAT_ATTEMPTS_SUM, 1,
				   "Attempts of jobs that have ended.");
}
