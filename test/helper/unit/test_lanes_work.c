/*
 * test_lanes_work.c
 *	  Thousands of tenants or types wait for one place: all take turns, and the
 *	  work at the end of a job does not grow with them.
 *
 * The work is counted as changes of heaps, so that no clock decides.
 */
#include "lane_jobs.h"

#define TENANTS		3000

/* The first tenant has many jobs before the others, which have two each. */
static void
add_tenants(int type, int tenants)
{
	add_many(200, type, 0, 0);
	for (int i = 1; i < tenants; i++)
		add_many(2, type, 0, i);
}

/* True if no tenant had a second turn before all others of its type had one. */
static bool
took_turns(int ntypes)
{
	int			turns[2][TENANTS] = {{0}};
	int			last[2] = {0};

	for (int i = 0; i < nhanded; i++)
	{
		const JobRef *ref = &handed[i];
		int			turn = ++turns[ref->type_id][ref->sublane];

		if (turn < last[ref->type_id])
			return false;
		last[ref->type_id] = turn;
	}
	return nhanded == ntypes * (200 + 2 * (TENANTS - 1));
}

static int64
log2_of(int64 n)
{
	int64		log = 0;

	while ((INT64CONST(1) << log) < n)
		log++;
	return log;
}

/* Thousands of tenants take turns, and the end of a job moves no more than with one. */
static void
check_turns(Cause cause)
{
	int			ntypes = cause == SHARED_LIMIT || cause == WORKER ? 2 : 1;
	char		name[100];
	Work		few;
	Work		many;

	start_with(cause, ntypes, true);
	for (int i = 0; i < ntypes; i++)
		add_tenants(i, 2);
	few = run_all();
	dispatcher_stop();

	start_with(cause, ntypes, true);
	for (int i = 0; i < ntypes; i++)
		add_tenants(i, TENANTS);
	many = run_all();
	snprintf(name, sizeof(name), "%s: no tenant has a second turn before all others had one",
			 cause_names[cause]);
	CHECK(took_turns(ntypes), name);
	snprintf(name, sizeof(name), "%s: the end of a job changes heaps as often beside 2 tenants and beside %d",
			 cause_names[cause], TENANTS);
	CHECK(many.most <= few.most, name);
	snprintf(name, sizeof(name), "%s: and compares as a heap of %d does", cause_names[cause], TENANTS);
	CHECK(many.comparisons <= 6 * nhanded * log2_of(TENANTS), name);
	printf("# %s: %lld and %lld changes, %.1f comparisons\n", cause_names[cause], (long long) few.most,
		   (long long) many.most,
		   (double) many.comparisons / nhanded);
	dispatcher_stop();
}

/* Thousands of types wait for the same; a paused type has the first job. */
static void
check_types(Cause cause)
{
	static const int counts[] = {20, TENANTS};
	Work		work[2];
	char		name[100];

	for (int c = 0; c < 2; c++)
	{
		start_with(cause, counts[c], false);
		types[0].paused = true;
		add_many(1, 0, 100, 0);
		for (int j = 0; j < 4; j++)
		{
			for (int i = 1; i < counts[c]; i++)
				add_many(1, i, -(j / 2), 0);
		}
		work[c] = run_all();
		snprintf(name, sizeof(name), "%s: all jobs of %d types run but the paused one", cause_names[cause],
				 counts[c]);
		CHECK(nhanded == 4 * (counts[c] - 1) && lanes_waiting() == 1, name);
		types[0].paused = false;
		reload();
		(void) run_all();
		snprintf(name, sizeof(name), "%s: then that one", cause_names[cause]);
		CHECK(lanes_waiting() == 0 && handed[nhanded - 1].priority == 100, name);
		dispatcher_stop();
	}
	snprintf(name, sizeof(name), "%s: the end of a job changes heaps as often beside 20 types and beside %d",
			 cause_names[cause], TENANTS);
	CHECK(work[1].most <= work[0].most, name);
	printf("# %s: %lld and %lld changes\n", cause_names[cause], (long long) work[0].most,
		   (long long) work[1].most);
}

/* ---------- many lanes ---------- */

/* Jobs of a thousand types with twenty priorities, highest first, then the oldest. */
static void
check_order(int jobs)
{
	bool		ok = true;

	start(1000, 0, 1, 1);
	for (int i = 0; i < jobs; i++)
	{
		JobRef		ref = job_of(below(1000), below(20), 0, clock_now - below(jobs));

		add_job(&ref, false);
	}
	(void) run_all();
	for (int i = 1; i < nhanded; i++)
		ok = ok &&
			(handed[i - 1].priority > handed[i].priority ||
			 (handed[i - 1].priority == handed[i].priority && compare_refs(&handed[i - 1], &handed[i]) < 0));
	CHECK(ok && nhanded == jobs && lanes_count() <= 20000,
		  "many lanes: the highest first, then the oldest, whatever the type");
	dispatcher_stop();
}

int
main(int argc, char **argv)
{
	int			jobs = random_start(argc, argv, 20000);

	for (Cause cause = 0; cause < NCAUSES; cause++)
		check_turns(cause);
	check_types(SHARED_LIMIT);
	check_types(WORKER);
	check_order(jobs);
	return done();
}
