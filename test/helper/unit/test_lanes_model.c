/*
 * test_lanes_model.c
 *	  Random events of lanes and executors; each hand-out beside a naive model.
 *
 *	  test_lanes_model [CASES [SEED]]
 *
 * A case has either limits, rates and roles, or weight: a group that waits for
 * weight keeps the rank that it had, so with both, and with aging, the model
 * would have to repeat the history of the case.
 */
#include "lanes_model.h"

#define STEPS		120

static JobRef newer[MAX_JOBS];	/* versions that were read while the job ran */
static int	nnewer;
static int	added;
static int	finished;
static int64 compared;

/* ---------- comparison ---------- */

static void
compare_choice(const JobRef *ref)
{
	Walk		walk;
	JobRef	   *job = choose(&walk);
	int			found = 0;

	compared++;
	if (job == NULL || memcmp(&job->id, &ref->id, UUID_LEN) != 0 || job->rev != ref->rev)
	{
		printf("# a job of type %d, priority %d, lane %d goes; the model has %d, %d, %d\n", ref->type_id,
			   ref->priority, ref->sublane,
			   job ? job->type_id : -1, job ? job->priority : -1, job ? job->sublane : -1);
		correct = false;
		for (job = waiting; found < nwaiting && memcmp(&job->id, &ref->id, UUID_LEN) != 0; job++)
			found++;
		if (found == nwaiting)
			return;
	}
	take(job, &walk);
}

static void
look_at_group(LaneGroup *group, const Rank *rank, void *arg)
{
	Candidate  *groups = arg;

	for (int i = 0; i < MAX_TYPES * PRIORITIES && groups[i].oldest != NULL; i++)
	{
		if (groups[i].oldest->type_id != group->id.type_id ||
			groups[i].oldest->priority != group->id.priority)
			continue;
		correct = correct && groups[i].effective == rank->priority &&
			memcmp(&groups[i].oldest->id, &rank->id, UUID_LEN) == 0 &&
			ready_is_next(lane_of(groups[i].next));
		groups[i].effective = INT_MAX;	/* seen */
	}
}

/* Hands out, and compares what goes and what does not. */
static void
hand_out_both(void)
{
	Candidate	groups[MAX_TYPES * PRIORITIES + 1] = {{0}};
	Walk		walk;
	int			n;

	hand_out();
	if (choose(&walk) != NULL)
	{
		printf("# the model has one more job to go\n");
		correct = false;
	}
	n = rank_groups(groups);
	ready_each_group(look_at_group, groups);
	for (int i = 0; i < n; i++)
		correct = correct && groups[i].effective == INT_MAX;
}

/* ---------- events ---------- */

static void
add_waiting(const JobRef *ref)
{
	ModelLane  *lane = model_lane_of(ref);
	bool		from_cursor = !ref_settles(ref) && (!lane->read || goes_first(&lane->last_read, ref)) &&
		below(3);

	if (from_cursor)
	{
		lane->read = true;
		lane->last_read = *ref;
	}
	correct = correct && add_job(ref, from_cursor) && !add_job(ref, false);
	waiting[nwaiting++] = *ref;
	place(ref);
}

static void
add_jobs(int n, bool settled)
{
	while (n-- > 0 && nwaiting + nruns < MAX_JOBS - 1)
	{
		JobRef		ref = job_of(below(ntypes), below(PRIORITIES), below(SUBLANES),
								 clock_now - below(below(2) ? 20 : 3000));

		ref.flags = below(4) == 0 ? REF_ALONE : 0;
		if (settled && below(2))
			ref.flags |= REF_CANCEL;
		else if (settled)
			ref.charge = CHARGE_DIED;
		ref.key = below(5) == 0;
		ref.rev = 1;
		add_waiting(&ref);
		added++;
	}
}

/* Forgets all refusals, as after news of any kind. */
static void
open_all(void)
{
	for (int i = 0; i < ntypes; i++)
	{
		TypeState  *t = &types[i];

		for (int l = 0; l <= t->nlimits; l++)
			wait_queue_open(&type_limit(t, l)->wait_queue);
		wait_queue_open(&t->role->wait_queue);
	}
	weight_unpark();
	nshut = 0;
}

/* Reads a newer version of a job that waits. */
static void
replace_waiting(void)
{
	JobRef		old;
	JobRef		ref;
	int			i;

	if (nwaiting == 0)
		return;
	i = below(nwaiting);
	ref = old = waiting[i];
	waiting[i] = waiting[--nwaiting];
	ref.rev++;
	ref.priority = below(PRIORITIES);
	ref.sublane = below(SUBLANES);
	ref.position = below(2) ? ref.position : clock_now - below(100);
	ref.flags = below(4) == 0 ? REF_ALONE : 0;
	add_waiting(&ref);
	lane_place(lane_of(&old), clock_now);	/* meets the older version, if it is the first */
	place(&old);
	open_all();
	steady = false;
}

/* Reads a newer version of a job that runs. */
static void
replace_running(int i)
{
	JobRef		ref = runs[i].ref;

	for (int n = 0; n < nnewer; n++)
	{
		if (memcmp(&newer[n].id, &ref.id, UUID_LEN) == 0)
			return;
	}
	ref.flags = ref.charge = 0;
	ref.rev++;
	ref.sublane = below(SUBLANES);
	correct = correct && !add_job(&ref, false);
	newer[nnewer++] = ref;
}

static void
end_one(int i)
{
	pg_uuid_t	id = runs[i].ref.id;
	bool		again;

	open_for(&runs[i].ref);
	again = end_run(i);

	for (int n = 0; n < nnewer; n++)
	{
		JobRef		ref = newer[n];

		if (memcmp(&ref.id, &id, UUID_LEN) != 0)
			continue;
		correct = correct && again;
		newer[n] = newer[--nnewer];
		add_waiting(&ref);
		return;
	}
	correct = correct && !again;
	finished++;
}

static void
give_back_one(int i)
{
	JobRef		ref = runs[i].ref;
	ModelLane  *lane = model_lane_of(&ref);

	for (int n = 0; n < nnewer; n++)
	{
		if (memcmp(&newer[n].id, &ref.id, UUID_LEN) == 0)
			return;
	}
	if (ref_settles(&ref))
		return;
	give_back(i);
	open_for(&ref);
	waiting[nwaiting++] = ref;
	if (types[ref.type_id].lanes.fair && lane->turn > 0)
	{
		lane->turn--;
		lane->waits = true;
	}
	place(&ref);
	steady = false;
}

static void
change_type(int type)
{
	TypeState  *t = &types[type];

	switch (below(4))
	{
		case 0:
			t->lanes.fair = !t->lanes.fair;
			steady = false;
			break;
		case 1:
			t->lanes.pressure = below(4);
			break;
		default:
			t->paused = !t->paused;
			break;
	}
	reload();
	nshut = 0;
	place_all();
}

/* Forgets all lanes and reads the queue again, in any order. */
static void
forget_and_read(void)
{
	JobRef		jobs[MAX_JOBS];
	int			n = nwaiting;

	memcpy(jobs, waiting, n * sizeof(JobRef));
	forget_lanes();
	correct = correct && lanes_waiting() == 0 && lanes_count() == 0;
	keys_in_lanes = 0;			/* keys_forget_lanes() */
	memset(model, 0, sizeof(model));
	nwaiting = nshut = 0;
	while (n > 0)
	{
		int			i = below(n);

		add_waiting(&jobs[i]);
		jobs[i] = jobs[--n];
	}
}

static void
open_rate(TypeState *t)
{
	rate_opens(t);
	open_queue(&t->own);
}

static void
any_event(void)
{
	int			event = below(20);

	if (event < 6)
		add_jobs(1 + below(6), false);
	else if (event < 7)
		add_jobs(1 + below(3), true);
	else if (event < 8)
		clock_now += below(400);
	else if (event < 9)
		change_type(below(ntypes));
	else if (event < 10)
		replace_waiting();
	else if (event < 11)
		open_rate(&types[below(ntypes)]);
	else if (event < 12 && below(6) == 0)
		forget_and_read();
	else if (nruns > 0 && event < 18)
		end_one(below(nruns));
	else if (nruns > 0 && event < 19)
		give_back_one(below(nruns));
	else if (nruns > 0)
		replace_running(below(nruns));
	hand_out_both();
}

/* ---------- cases ---------- */

static void
start_limits(void)
{
	int			nlimits = below(MAX_LIMITS + 1);

	dispatcher_start(ntypes, nlimits, ROLES, 1 + below(3), 1 + below(3));
	for (int i = 0; i < nlimits; i++)
		limits[i].max_concurrent = 1 + below(3);
	for (int i = 0; i < ntypes; i++)
	{
		TypeState  *t = &types[i];

		type_role(i, below(ROLES));
		t->own.max_concurrent = below(3);
		t->rated = below(4) == 0;
		t->own.rate.limit = 1 + below(4);
		t->lanes.aging_per = below(2) * (1 + below(300));
		t->lanes.aging_max = below(5);
		for (int l = 0; l < nlimits; l++)
		{
			if (below(2))
				type_shares(i, l);
		}
	}
}

static void
start_weights(void)
{
	dispatcher_start(ntypes, 0, 1, MAX_JOBS, 1);
	weight_budget = 2 + below(6);
	for (int i = 0; i < ntypes; i++)
	{
		types[i].weight = below(weight_budget + 2);
		types[i].max_skip = below(6);
	}
}

/* Lets all jobs run; true if each ran to its end. */
static bool
finish_all(void)
{
	for (int i = 0; i < ntypes; i++)
		types[i].paused = types[i].rated = false;
	reload();
	nshut = 0;
	place_all();
	hand_out_both();
	while (nruns > 0)
	{
		end_one(below(nruns));
		hand_out_both();
	}
	return nwaiting == 0 && finished == added && lanes_waiting() == 0 && keys_in_lanes == 0 &&
		!wait_queues_limits_shut();
}

static bool
run_case(bool weights)
{
	ntypes = 1 + below(MAX_TYPES);
	memset(model, 0, sizeof(model));
	nwaiting = nshut = nnewer = added = finished = 0;
	steady = correct = true;
	if (weights)
		start_weights();
	else
		start_limits();
	for (int i = 0; i < ntypes; i++)
	{
		types[i].lanes.fair = below(2);
		types[i].lanes.pressure = below(3);
	}
	before_hand_out = compare_choice;
	for (int step = 0; correct && step < STEPS; step++)
		any_event();
	correct = correct && finish_all();
	dispatcher_stop();
	return correct;
}

static void
check_cases(int cases, bool weights, const char *name)
{
	bool		ok = true;

	compared = 0;
	for (int i = 0; ok && i < cases; i++)
	{
		ok = run_case(weights);
		if (!ok)
			printf("# case %d of these\n", i);
	}
	CHECK(ok, name);
	CHECK(!ok || compared > 20 * cases, "jobs were handed out");
	printf("# %lld hand-outs compared\n", (long long) compared);
}

int
main(int argc, char **argv)
{
	int			cases = random_start(argc, argv, 400);

	check_cases(cases, false, "limits, rates, roles, aging: each job goes as the model has it");
	check_cases(cases, true, "weight: each job goes as the model has it");
	return done();
}
