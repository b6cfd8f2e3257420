/*
 * test_weight.c
 *	  Weight: what fits, jobs that are passed, reservations for them.
 *
 *	  test_weight [STEPS [SEED]]
 */
#include "lane_jobs.h"

static void
check_reservation(void)
{
	JobRef		heavy;
	JobRef		last;

	start(4, 0, 20, 1);
	weight_budget = 4;
	types[0].weight = 4;
	types[0].max_skip = 3;
	types[1].weight = types[2].weight = 1;
	types[1].max_skip = types[2].max_skip = 1000;
	add_many(2, 1, 0, 0);
	hand_out();					/* a weight of 2 */
	heavy = add(0, 0, 0);
	add_many(10, 1, 0, 0);
	hand_out();
	CHECK(nhanded == 4, "lighter jobs pass one that is too heavy, as long as they fit");
	(void) end_run(0);
	hand_out();
	CHECK(nhanded == 5, "the third of them");
	(void) end_run(0);
	hand_out();
	CHECK(nhanded == 5, "after max_skip of them weight is reserved");
	add_many(1, 3, 0, 0);
	hand_out();
	CHECK(nhanded == 6 && handed[5].type_id == 3, "a job without weight passes all the same");
	add_many(1, 2, 1, 0);
	hand_out();
	CHECK(nhanded == 7 && handed[6].type_id == 2, "and one that ranks before the heavy one");
	while (nhanded == 7 && nruns > 0)
	{
		(void) end_run(0);
		hand_out();
	}
	CHECK(were_handed(7, 1, &heavy) && nruns == 1, "the heavy one is the next, alone");
	(void) end_run(0);
	hand_out();
	CHECK(nruns == 4, "then lighter ones again");
	last = add(0, 0, 0);
	(void) run_all();
	CHECK(is_job(&handed[nhanded - 1], &last) && weight_used() == 0, "the next heavy one is passed anew");
	dispatcher_stop();

	start(1, 0, 2, 1);
	weight_budget = 4;
	types[0].weight = 9;
	add_many(2, 0, 0, 0);
	hand_out();
	CHECK(nruns == 1, "a job that is heavier than the budget runs alone");
	dispatcher_stop();
}

/* The weight of executors beside sums of their cells. */
static void
check_held_weight(int steps)
{
	static HeldWeight held[2];
	bool		ok = true;

	weight_budget = 50;
	weight_restart();
	weight_clear(&held[0], false);
	weight_clear(&held[1], true);
	for (int i = 0; ok && i < steps; i++)
	{
		HeldWeight *h = &held[below(2)];
		int			cell = below(8) * 73;
		int			more = below(30);
		int			largest = 0;
		int			sum = 0;

		if (h->cells[cell] != 0)
			weight_vacate(h, cell);
		else
			weight_occupy(h, cell, 1 + below(20));
		for (int c = 0; c < JOBQ_CELLS; c++)
		{
			largest = Max(largest, held[0].cells[c]);
			sum += held[1].cells[c];
		}
		ok = weight_used() == largest + sum && held[0].total == largest && held[1].total == sum &&
			weight_fits(&held[0], more) == (more <= largest || largest + sum == 0 || more + sum <= 50) &&
			weight_fits(&held[1], more) == (more == 0 || largest + sum == 0 || more + largest + sum <= 50) &&
			weight_fits(NULL, more) == weight_fits(&held[1], more);
	}
	CHECK(ok, "a SQL worker weighs as its heaviest job, tools weigh as their sum");
	weight_budget = 0;
}

int
main(int argc, char **argv)
{
	int			steps = random_start(argc, argv, 20000);

	check_reservation();
	check_held_weight(steps);
	return done();
}
