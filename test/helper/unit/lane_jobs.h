/*
 * lane_jobs.h
 *	  Jobs of directed cases of lanes: in the order of their positions, run one
 *	  after the other.
 */
#ifndef UNIT_LANE_JOBS_H
#define UNIT_LANE_JOBS_H

#include "fake_dispatcher.h"

#define HOUR		INT64CONST(3600000000)

static TimestampTz next_position;

/* ---------- jobs ---------- */

static inline void
start(int ntypes, int nlimits, int executors, int cells)
{
	dispatcher_start(ntypes, nlimits, 1, executors, cells);
	next_position = clock_now - HOUR;
}

static inline JobRef
later_job(int type, int priority, int sublane)
{
	return job_of(type, priority, sublane, next_position++);
}

static inline JobRef
add(int type, int priority, int sublane)
{
	JobRef		ref = later_job(type, priority, sublane);

	add_job(&ref, true);
	return ref;
}

static inline void
add_many(int n, int type, int priority, int sublane)
{
	while (n-- > 0)
		(void) add(type, priority, sublane);
}

/* Adds a job that is only to be settled. */
static inline JobRef
add_settled(int type, int sublane)
{
	JobRef		ref = later_job(type, 0, sublane);

	ref.flags = REF_CANCEL;
	add_job(&ref, false);
	return ref;
}

/* Adds a newer version of the job, with another priority. */
static inline void
change_priority(JobRef *ref, int priority)
{
	ref->rev++;
	ref->priority = priority;
	add_job(ref, false);
}

static inline bool
is_job(const JobRef *a, const JobRef *b)
{
	return memcmp(&a->id, &b->id, sizeof(pg_uuid_t)) == 0 && a->rev == b->rev;
}

/* Most changes of heaps at the end of a job and the hand-out after it. */
typedef struct Work
{
	int64		most;
	int64		comparisons;	/* of all of them */
} Work;

static inline Work
end_and_go_on(Work work)
{
	int64		changes = heap_changes;
	int64		comparisons = heap_comparisons;

	(void) end_run(0);
	hand_out();
	work.most = Max(work.most, heap_changes - changes);
	work.comparisons += heap_comparisons - comparisons;
	return work;
}

/* Runs all jobs, one after the other. */
static inline Work
run_all(void)
{
	Work		work = {0};

	hand_out();
	while (nruns > 0)
		work = end_and_go_on(work);
	return work;
}

/* True if the jobs were handed out in this order, after the first `before`. */
static inline bool
were_handed(int before, int n, const JobRef *order)
{
	bool		ok = nhanded == before + n;

	for (int i = 0; ok && i < n; i++)
		ok = is_job(&handed[before + i], &order[i]);
	return ok;
}

/* ---------- what lets one job start at a time ---------- */

typedef enum Cause
{
	OWN_LIMIT,
	SHARED_LIMIT,
	WORKER,
	WEIGHT,
	NCAUSES
} Cause;

static const char *const cause_names[] = {"a limit of the type", "a shared limit", "one worker", "weight"};

/* Starts with types of which one job at a time may run, each or all together. */
static inline void
start_with(Cause cause, int ntypes, bool fair)
{
	start(ntypes, 1, cause == WORKER ? 1 : 8, 1);
	limits[0].max_concurrent = 1;
	weight_budget = cause == WEIGHT ? 1 : 0;
	for (int i = 0; i < ntypes; i++)
	{
		types[i].lanes.fair = fair;
		types[i].own.max_concurrent = cause == OWN_LIMIT ? 1 : 0;
		types[i].weight = 1;
		types[i].max_skip = INT_MAX;
		if (cause == SHARED_LIMIT)
			type_shares(i, 0);
	}
}

#endif
