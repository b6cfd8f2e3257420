/*
 * test_lanes.c
 *	  Turns of tenants and places of waiting, case by case, by the real hand-out;
 *	  test_lanes_model.c has random cases.
 */
#include "lane_jobs.h"

/* ---------- turns ---------- */

/* A tenant without waiting jobs joins the next round. */
static void
check_newcomers(void)
{
	JobRef		order[7];
	int64		changes;

	start_with(OWN_LIMIT, 1, true);
	order[0] = add(0, 0, 0);
	hand_out();
	for (int i = 0; i < 2; i++)
	{
		order[1 + i] = add(0, 0, 1 + i);
		order[4 + i] = add(0, 0, 1 + i);
	}
	(void) end_run(0);
	hand_out();					/* the round is that of order[1] now */
	changes = heap_changes;
	order[6] = add(0, 0, 3);
	hand_out();
	changes = heap_changes - changes;
	CHECK(nhanded == 2 && changes <= 8, "a new job of a type at its limit changes heaps a few times");
	(void) end_run(0);
	hand_out();
	order[3] = add(0, 0, 0);	/* has had the first turn */
	(void) run_all();
	/* of the second round: by position, as the newcomer came later than the jobs of it */
	{
		JobRef		expected[7] = {order[0], order[1], order[2], order[4], order[5], order[6], order[3]};

		CHECK(were_handed(0, 7, expected), "newcomers join the next round, where positions decide");
	}
	dispatcher_stop();
}

/* No tenant has a second turn before one that came in the round before. */
static void
check_late_newcomers(void)
{
	int			third = 0;
	bool		ok = true;

	start_with(OWN_LIMIT, 1, true);
	for (int i = 0; i < 1000; i++)
		add_many(3, 0, 0, i);
	hand_out();
	for (int i = 0; i < 50; i++)
		add_many(1, 0, 0, 1000 + i);
	(void) run_all();
	for (int i = 0; i < nhanded; i++)
	{
		int			turn = 0;

		for (int j = 0; j <= i; j++)
			turn += handed[j].sublane == handed[i].sublane;
		third += turn == 3;
		ok = ok && (handed[i].sublane < 1000 || third == 0);
	}
	CHECK(ok && nhanded == 3050, "no tenant has a third turn before those that came in the first round");
	dispatcher_stop();
}

/* A job that is only to be settled goes first, and its lane keeps its turn. */
static void
check_settled(void)
{
	JobRef		order[4];
	char		name[100];

	start_with(OWN_LIMIT, 1, true);
	types[0].own.max_concurrent = 2;
	order[0] = add(0, 0, 5);
	hand_out();
	(void) end_run(0);			/* so that rounds count */
	order[2] = add(0, 0, 1);
	order[3] = add(0, 0, 2);
	order[1] = add_settled(0, 1);
	hand_out();
	CHECK(were_handed(0, 4, order), "a job to be settled goes first and takes no turn of its lane");
	dispatcher_stop();

	for (int blocked = 0; blocked < 4; blocked++)
	{
		static const char *const by[] = {"a pause", "a limit", "a rate", "weight"};
		JobRef		ref;
		int			before;

		start(1, 0, 8, 1);
		weight_budget = blocked == 3;
		types[0].weight = types[0].own.rate.limit = 1;
		types[0].rated = blocked == 2;
		types[0].own.max_concurrent = blocked == 1;
		add_many(1, 0, 0, 0);
		hand_out();
		types[0].paused = blocked == 0;
		add_many(2, 0, 0, 0);
		hand_out();
		before = nhanded;
		ref = add_settled(0, 0);
		hand_out();
		snprintf(name, sizeof(name), "%s does not block a job that is only to be settled", by[blocked]);
		CHECK(before == 1 && were_handed(1, 1, &ref) && lanes_waiting() == 2, name);
		dispatcher_stop();
	}
}

/* A job that comes back as it was gives its tenant the turn back. */
static void
check_given_back(void)
{
	JobRef		order[6];

	start_with(OWN_LIMIT, 1, true);
	order[0] = order[1] = add(0, 0, 0);
	order[3] = add(0, 0, 0);
	order[2] = add(0, 0, 1);
	hand_out();
	give_back(0);
	(void) run_all();
	CHECK(were_handed(0, 4, order), "a job that comes back has its turn again, before others");
	dispatcher_stop();

	start_with(OWN_LIMIT, 1, false);
	order[0] = order[1] = add(0, 0, 0);
	order[2] = add(0, 0, 1);
	hand_out();
	give_back(0);
	(void) run_all();
	CHECK(were_handed(0, 3, order), "the same without turns");
	dispatcher_stop();
}

/* ---------- the first waiting job changes ---------- */

static void
check_change_of_first(Cause cause)
{
	char		name[100];
	JobRef		order[4];

	start_with(cause, 1, false);
	order[0] = add(0, 0, 0);
	hand_out();
	order[3] = add(0, 10, 0);
	order[1] = add(0, 5, 0);
	order[2] = add(0, 3, 0);
	hand_out();
	change_priority(&order[3], 1);
	hand_out();
	(void) end_run(0);
	hand_out();
	snprintf(name, sizeof(name),
			 "%s: the first job gets a lower priority, and the next one starts when the running one ends",
				 cause_names[cause]);
	CHECK(were_handed(0, 2, order), name);
	(void) run_all();
	snprintf(name, sizeof(name), "%s: all in their new order", cause_names[cause]);
	CHECK(were_handed(0, 4, order) && lanes_waiting() == 0, name);
	dispatcher_stop();
}

/* Older versions are dropped, wherever they wait, and their keys are free. */
static void
check_versions(void)
{
	JobRef		order[2];
	JobRef		ref;
	JobRef		old;

	start(1, 0, 2, 1);
	types[0].paused = true;
	order[0] = add(0, 7, 0);	/* before the second version */
	ref = later_job(0, 0, 0);
	ref.key = 1;
	ref.tenant_limit = 1;
	CHECK(add_job(&ref, true) && !add_job(&ref, false), "a row that is read twice waits once");
	old = ref;
	ref.rev++;
	CHECK(add_job(&ref, false) && keys_in_lanes == 1, "a newer version takes the place of the first job");
	change_priority(&ref, 7);
	change_priority(&ref, -7);
	CHECK(keys_in_lanes == 3 && lanes_waiting() == 4, "or waits beside older ones");
	order[1] = ref;
	types[0].paused = false;
	reload();
	hand_out();
	CHECK(were_handed(0, 2, order) && keys_in_lanes == 0 && lanes_waiting() == 0,
		  "the newest one runs, once");
	CHECK(keys_lost == 6, "the key and the tenant of each older one hear of it");
	ref.rev++;
	CHECK(!add_job(&ref, false) && !add_job(&old, false),
		  "a version that is read while the job runs does not wait");
	CHECK(end_run(1), "it is read again after the run");
	CHECK(add_job(&ref, false), "and then waits");
	dispatcher_stop();
}

/* ---------- aging ---------- */

/* A job has aged by a step at the very moment of it, and by no more than the maximum. */
static void
check_aging(void)
{
	JobRef		low;
	JobRef		high;

	start(2, 0, 1, 1);
	types[0].lanes.aging_per = 100;
	types[0].lanes.aging_max = 10;
	add_many(1, 1, 10, 0);
	hand_out();
	low = job_of(0, 0, 0, clock_now);
	add_job(&low, true);
	clock_now++;
	high = job_of(1, 10, 0, clock_now);
	add_job(&high, true);
	hand_out();					/* both wait for the worker */
	clock_now += 998;
	hand_out();
	(void) end_run(0);
	hand_out();
	CHECK(were_handed(1, 1, &high), "a job that has aged by nine does not pass one of priority 10");
	high = job_of(1, 10, 0, clock_now);
	add_job(&high, true);
	clock_now++;
	(void) end_run(0);
	hand_out();
	CHECK(were_handed(2, 1, &low), "aged by ten it goes, because it is older");
	low = job_of(0, 0, 0, clock_now - HOUR);
	add_job(&low, true);
	high = job_of(1, 11, 0, clock_now);
	add_job(&high, true);
	(void) end_run(0);
	hand_out();
	CHECK(were_handed(3, 1, &high), "it ages no further");
	dispatcher_stop();
}

/* ---------- wait queues ---------- */

/*
 * Groups that wait together wait for what blocks their first one, also when
 * that one came last.
 */
static void
check_first_of_waiting(void)
{
	JobRef		alone;
	JobRef		first;

	dispatcher_start(2, 1, 2, 1, 3);
	next_position = clock_now - HOUR;
	limits[0].max_concurrent = 2;
	type_shares(0, 0);
	type_shares(1, 0);
	type_role(1, 1);			/* two roles, one worker each, share the limit */
	add_many(1, 0, 0, 0);
	hand_out();
	alone = later_job(0, 0, 0);
	alone.flags = REF_ALONE;
	add_job(&alone, true);
	hand_out();
	add_many(1, 1, 0, 0);
	hand_out();
	CHECK(nhanded == 2 && handed[1].type_id == 1,
		  "a job waits for an empty worker of its role, then their limit is full");
	first = add(0, 9, 0);
	hand_out();
	CHECK(nhanded == 2, "one that ranks before it waits for the limit");
	(void) end_run(1);			/* of the other role */
	hand_out();
	CHECK(were_handed(2, 1, &first), "and starts when that opens");
	dispatcher_stop();
}

/* Without room for a settlement the job waits for nothing else. */
static void
check_settled_waits(void)
{
	JobRef		order[3];

	start(1, 0, 1, 1);
	types[0].own.max_concurrent = 1;
	settling_room = 1;
	order[0] = add(0, 0, 0);
	hand_out();
	add_many(1, 0, 0, 0);		/* the limit is full */
	order[1] = add_settled(0, 0);
	order[2] = add_settled(0, 0);
	hand_out();
	CHECK(were_handed(0, 2, order), "one job at a time can be settled");
	(void) end_run(1);
	hand_out();
	CHECK(were_handed(0, 3, order), "the other is settled after it, while the limit is full");
	dispatcher_stop();

	start(2, 0, 1, 2);
	add_many(1, 0, 0, 0);
	hand_out();
	settling_room = 0;
	order[0] = later_job(0, 9, 0);
	order[0].flags = REF_ALONE;
	add_job(&order[0], true);
	(void) add_settled(0, 0);
	hand_out();
	add_many(1, 1, 5, 0);
	hand_out();
	CHECK(nhanded == 1, "its wait does not let jobs pass that wait behind a higher rank");
	dispatcher_stop();
}

/* ---------- ranks, timers, ranges ---------- */

/* A job for itself waits for an empty worker; no job of its role that ranks lower passes it. */
static void
check_role(void)
{
	JobRef		alone;

	start(2, 0, 2, 2);
	add_many(2, 0, 0, 0);
	hand_out();
	alone = later_job(0, 0, 0);
	alone.flags = REF_ALONE;
	add_many(2, 0, 0, 0);
	hand_out();
	add_job(&alone, true);
	hand_out();
	CHECK(nhanded == 4, "two workers are full");
	(void) end_run(3);
	add_many(1, 1, 0, 0);
	hand_out();
	CHECK(nhanded == 4, "a job that could share a worker does not pass one that needs its own");
	add_many(1, 1, 1, 0);
	hand_out();
	CHECK(nhanded == 5 && handed[4].priority == 1, "a higher rank does");
	while (nhanded == 5 && nruns > 0)
	{
		(void) end_run(0);
		hand_out();
	}
	CHECK(is_job(&handed[5], &alone), "it starts as soon as a worker is empty");
	dispatcher_stop();
}

/* Due keys in the order of their times; a clock set back makes heads future again. */
static void
check_timers(void)
{
	TimestampTz last = DT_NOBEGIN;
	TimestampTz now = clock_now;
	bool		ok = true;
	JobRef		ref;

	start(200, 0, 1, 1);
	CHECK(lanes_next_timer() == DT_NOEND && lanes_pop_due(now) == NULL, "no timer without keys");
	for (int i = 0; i < 200; i++)
	{
		Lane	   *lane = (ref = job_of(i, 0, 0, 0), lane_of(&ref));
		TimestampTz due = now + 1 + below(1000);

		lane_publish(lane, due, due);
		lane_place(lane, now);
	}
	for (int i = 0; i < 200; i++)
	{
		TimestampTz due = lanes_next_timer();
		Lane	   *lane = lanes_pop_due(due);

		ok = ok && due >= last && lanes_pop_due(due - 1) == NULL && lane->next_due == due &&
			lane_wants_scan(lane, due) && !lane_wants_scan(lane, due - 1);
		last = due;
	}
	CHECK(ok && lanes_next_timer() == DT_NOEND, "lanes come due in the order of their next keys");
	ref = job_of(0, 0, 0, now);
	lane_of(&ref)->next_due = DT_NOEND;
	add_job(&ref, true);
	clock_now -= HOUR;
	hand_out();
	CHECK(nhanded == 0 && lanes_next_timer() == now,
		  "a clock that was set back makes a job wait for its time");
	clock_now = now;
	dispatcher_stop();
}

/* Keys at or below the cursor are in few ranges that have all of them. */
static void
check_ranges(void)
{
	JobRef		ref = job_of(0, 0, 0, 0);
	TimestampTz keys[300];
	bool		ok = true;
	Lane	   *lane;

	start(1, 0, 1, 1);
	lane = lane_of(&ref);
	lane->cursor.pos = clock_now;
	for (int i = 0; i < 300; i++)
	{
		keys[i] = clock_now - below(1000000);
		lane_publish(lane, keys[i], keys[i]);
	}
	for (int i = 0; i < 300; i++)
	{
		bool		found = false;

		for (int r = 0; r < list_length(lane->ranges); r++)
		{
			Range	   *range = list_nth(lane->ranges, r);

			found = found || (range->pos <= keys[i] && keys[i] <= range->hi);
		}
		ok = ok && found;
	}
	CHECK(ok && list_length(lane->ranges) <= 64, "300 keys below the cursor are in 64 ranges");
	lane_publish(lane, clock_now - 5, clock_now + 5);
	CHECK(lane->next_due == clock_now && lane_wants_scan(lane, clock_now),
		  "an interval around the cursor is read from it, too");
	dispatcher_stop();
}

int
main(int argc, char **argv)
{
	(void) random_start(argc, argv, 0);
	check_newcomers();
	check_late_newcomers();
	check_settled();
	check_given_back();
	for (Cause cause = 0; cause < NCAUSES; cause++)
		check_change_of_first(cause);
	check_versions();
	check_aging();
	check_first_of_waiting();
	check_settled_waits();
	check_role();
	check_timers();
	check_ranges();
	return done();
}
