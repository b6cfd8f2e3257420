/*
 * lanes_model.h
 *	  A naive model of the order of jobs, for test_lanes_model.c.
 *
 * The model is a flat list of the jobs that wait.  For each hand-out it ranks
 * all groups again and walks them from the highest: a limit or role that
 * refuses a group blocks those that rank lower, until it opens.  It keeps only
 * what no list of jobs can show: the turns of lanes, refusals, and how often a
 * heavy job was passed.
 */
#ifndef UNIT_LANES_MODEL_H
#define UNIT_LANES_MODEL_H

#include "fake_dispatcher.h"

#define MAX_TYPES	5
#define PRIORITIES	3
#define SUBLANES	5
#define MAX_LIMITS	3
#define ROLES		2
#define MAX_JOBS	100

typedef struct ModelLane
{
	uint64		turn;
	bool		waits;			/* has waited since it got that turn */
	bool		read;			/* rows have been read from its cursor, */
	JobRef		last_read;		/* this one last */
	int			passed_by[SUBLANES];	/* since its own last turn */
} ModelLane;

typedef struct ModelGroup
{
	uint64		round;
	int			passed;			/* jobs that started although this one's came first */
	ModelLane	lanes[SUBLANES];
} ModelGroup;

static ModelGroup model[MAX_TYPES][PRIORITIES];
static JobRef waiting[MAX_JOBS];
static int	nwaiting;
static int	ntypes;
static bool steady;				/* nothing but hand-outs and new jobs has changed turns */
static bool correct;

/* ---------- the order of the model ---------- */

static ModelGroup *
group_of(const JobRef *ref)
{
	return &model[ref->type_id][ref->priority];
}

static ModelLane *
model_lane_of(const JobRef *ref)
{
	return &group_of(ref)->lanes[ref->sublane];
}

static bool
same_lane(const JobRef *a, const JobRef *b)
{
	return a->type_id == b->type_id && a->priority == b->priority && a->sublane == b->sublane;
}

static bool
goes_first(const JobRef *a, const JobRef *b)
{
	if (a->position != b->position)
		return a->position < b->position;
	return memcmp(&a->id, &b->id, UUID_LEN) < 0;
}

static bool
is_head(const JobRef *job)
{
	for (int i = 0; i < nwaiting; i++)
	{
		if (!same_lane(&waiting[i], job) || &waiting[i] == job)
			continue;
		if (ref_settles(&waiting[i]) != ref_settles(job) ? ref_settles(&waiting[i]) : goes_first(&waiting[i],
																								 job))
			return false;
	}
	return true;
}

static bool
has_jobs(const JobRef *lane)
{
	for (int i = 0; i < nwaiting; i++)
	{
		if (same_lane(&waiting[i], lane))
			return true;
	}
	return false;
}

/* A group that has a job, with the priority and the job that it goes by. */
typedef struct Candidate
{
	int			effective;
	const JobRef *oldest;
	const JobRef *next;			/* the job that is tried */
} Candidate;

static bool
has_earlier_turn(const JobRef *a, const JobRef *b)
{
	if (ref_settles(a) != ref_settles(b))
		return ref_settles(a);
	if (model_lane_of(a)->turn != model_lane_of(b)->turn)
		return model_lane_of(a)->turn < model_lane_of(b)->turn;
	return goes_first(a, b);
}

static int
effective_priority(const JobRef *oldest)
{
	const LaneType *t = &types[oldest->type_id].lanes;
	int64		aged = t->aging_per == 0 ? 0 : (clock_now - oldest->position) / t->aging_per;

	return oldest->priority + t->pressure + (int) Min(aged, t->aging_max);
}

static int
compare_candidates(const void *a, const void *b)
{
	const Candidate *x = a;
	const Candidate *y = b;

	if (x->effective != y->effective)
		return y->effective - x->effective;
	return goes_first(x->oldest, y->oldest) ? -1 : 1;
}

static int
rank_groups(Candidate *groups)
{
	int			n = 0;

	for (int i = 0; i < nwaiting; i++)
	{
		const JobRef *job = &waiting[i];
		int			g = 0;

		if (!is_head(job))
			continue;
		while (g < n && group_of(groups[g].next) != group_of(job))
			g++;
		if (g == n)
			groups[n++] = (Candidate) {0, job, job};
		if (goes_first(job, groups[g].oldest))
			groups[g].oldest = job;
		if (has_earlier_turn(job, groups[g].next))
			groups[g].next = job;
	}
	for (int g = 0; g < n; g++)
		groups[g].effective = effective_priority(groups[g].oldest);
	qsort(groups, n, sizeof(Candidate), compare_candidates);
	return n;
}

/* ---------- the choice of the model ---------- */

/* A limit or a role that has refused a group, and the best of these groups. */
typedef struct Shut
{
	const void *queue;
	Candidate	refused;
	JobRef		oldest;			/* what its pointers had then */
	uint64		turn;
} Shut;

static Shut shut[MAX_TYPES + MAX_LIMITS + ROLES];
static int	nshut;

/* Jobs that wait for weight, in one walk through the groups. */
typedef struct Walk
{
	JobRef		heavy[MAX_TYPES * PRIORITIES];
	int			nheavy;
	bool		reserved;		/* for one of them */
} Walk;

/* True if the group ranks before the one that was refused; 0: the same, -1: after it. */
static int
compare_with_refused(const Candidate *c, const Shut *refused)
{
	uint64		turn = model_lane_of(c->next)->turn;

	if (c->effective != refused->refused.effective)
		return c->effective > refused->refused.effective ? 1 : -1;
	if (group_of(c->next) == group_of(&refused->oldest) && turn != refused->turn)
		return turn < refused->turn ? 1 : -1;
	if (memcmp(&c->oldest->id, &refused->oldest.id, UUID_LEN) == 0 &&
		c->oldest->position == refused->oldest.position)
		return 0;
	return goes_first(c->oldest, &refused->oldest) ? 1 : -1;
}

static bool
uses(const JobRef *job, const void *queue)
{
	TypeState  *t = &types[job->type_id];
	bool		found = queue == t->role;

	for (int i = 0; i <= t->nlimits; i++)
		found = found || queue == type_limit(t, i);
	return found;
}

static bool
is_blocked(const Candidate *c)
{
	for (int i = 0; i < nshut; i++)
	{
		if (uses(c->next, shut[i].queue) && compare_with_refused(c, &shut[i]) < 0)
			return true;
	}
	return false;
}

static void
refuse(const Candidate *c, const void *queue)
{
	int			i = 0;

	while (i < nshut && shut[i].queue != queue)
		i++;
	if (i < nshut && compare_with_refused(c, &shut[i]) <= 0)
		return;
	nshut = Max(nshut, i + 1);
	shut[i] = (Shut) {queue, *c, *c->oldest, model_lane_of(c->next)->turn};
}

static void
open_queue(const void *queue)
{
	for (int i = 0; i < nshut; i++)
	{
		if (shut[i].queue == queue)
			shut[i--] = shut[--nshut];
	}
}

/* Opens all that the job uses: it has ended. */
static void
open_for(const JobRef *job)
{
	TypeState  *t = &types[job->type_id];

	open_queue(t->role);
	for (int i = 0; i <= t->nlimits; i++)
		open_queue(type_limit(t, i));
}

static void
waits_for_weight(Walk *walk, const JobRef *job)
{
	walk->heavy[walk->nheavy++] = *job;
	walk->reserved = walk->reserved || group_of(job)->passed >= types[job->type_id].max_skip;
}

/* True if the group's job may start; if not, what refuses it is shut. */
static bool
may_start(Walk *walk, const Candidate *c)
{
	TypeState  *t = &types[c->next->type_id];
	JobLimit   *full;

	if (t->paused || is_blocked(c))
		return false;
	if (t->rated && t->own.rate.pending >= t->own.rate.limit)
		refuse(c, &t->own);
	else if (walk->reserved && t->weight > 0)
		waits_for_weight(walk, c->next);
	else
	{
		switch (refusal_of(t, c->next, &full))
		{
			case HANDED_OUT:
				return true;
			case LIMIT_FULL:
				refuse(c, full);
				break;
			case TOO_HEAVY:
				waits_for_weight(walk, c->next);
				break;
			default:
				refuse(c, t->role);
				break;
		}
	}
	return false;
}

/*
 * Returns the job that is to be handed out now; NULL: none.  Jobs that are only
 * to be settled are never refused here, and come alone: nothing else may start.
 */
static JobRef *
choose(Walk *walk)
{
	Candidate	groups[MAX_TYPES * PRIORITIES];
	int			n = rank_groups(groups);
	bool		settles = false;

	*walk = (Walk) {.nheavy = 0};
	for (int g = 0; g < n; g++)
		settles = settles || ref_settles(groups[g].next);
	for (int g = 0; g < n; g++)
	{
		if (settles ? !ref_settles(groups[g].next) : !may_start(walk, &groups[g]))
			continue;
		for (int i = 0; !settles && i < nshut; i++)
		{
			if (uses(groups[g].next, shut[i].queue) && compare_with_refused(&groups[g], &shut[i]) <= 0)
				shut[i--] = shut[--nshut];	/* what was refused has started */
		}
		return (JobRef *) groups[g].next;
	}
	return NULL;
}

/* ---------- changes of the model ---------- */

/* Gives the lane a turn if it has begun to wait. */
static void
place(const JobRef *ref)
{
	ModelLane  *lane = model_lane_of(ref);
	bool		fair = types[ref->type_id].lanes.fair;

	if (!has_jobs(ref))
	{
		lane->waits = false;
		memset(lane->passed_by, 0, sizeof(lane->passed_by));
		return;
	}
	if (!fair)
		lane->turn = 0;
	else if (!lane->waits)
		lane->turn = Max(lane->turn, group_of(ref)->round + 1);
	lane->waits = fair;
}

static void
place_all(void)
{
	for (int i = 0; i < nwaiting; i++)
		place(&waiting[i]);
}

/* No other lane has passed one that waits more than twice. */
static void
check_passes(const JobRef *ref)
{
	ModelGroup *group = group_of(ref);

	memset(group->lanes[ref->sublane].passed_by, 0, sizeof(group->lanes[0].passed_by));
	for (int i = 0; i < SUBLANES; i++)
	{
		if (i != ref->sublane && group->lanes[i].waits && ++group->lanes[i].passed_by[ref->sublane] > 2 &&
			steady)
		{
			printf("# lane %d was passed by lane %d three times\n", i, ref->sublane);
			correct = false;
		}
	}
}

static void
take(JobRef *job, const Walk *walk)
{
	JobRef		ref = *job;
	ModelGroup *group = group_of(&ref);
	ModelLane  *lane = model_lane_of(&ref);
	int			weight = types[ref.type_id].weight;

	*job = waiting[--nwaiting];
	if (!ref_settles(&ref))
	{
		for (int i = 0; i < walk->nheavy; i++)
		{
			if (weight > 0 && types[walk->heavy[i].type_id].weight > weight)
				group_of(&walk->heavy[i])->passed++;
		}
		group->passed = 0;
		if (types[ref.type_id].lanes.fair)
		{
			check_passes(&ref);
			group->round = Max(group->round, lane->turn);
			lane->turn = group->round + 1;
		}
	}
	place(&ref);
}

#endif
