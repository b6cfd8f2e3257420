/*
 * held_lanes.c
 *	  Lanes with jobs that are due, and why these do not start; use of limits.
 *
 * With each sweep the dispatcher writes both to shared memory, after it has
 * handed out: then each group of lanes is where it waits.  A lane whose due
 * jobs were all passed over is known from the last count (statistics.c).  Each
 * list has a fixed number of places: the last one is for all that have none,
 * and limits that jobs wait for come before others.  A pull type whose
 * jobs wait for nothing but a claim, and get none for a minute, is listed for
 * jobq.health(): the commonest trouble is that no worker runs.
 */
#include "jobq.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "dispatch/hand_out_stop.h"
#include "dispatch/held_lanes.h"
#include "lanes/ready_queue.h"
#include "limits/tenant_limit.h"
#include "limits/type_state.h"
#include "limits/weight.h"
#include "registry/job_types.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"

#define UNCLAIMED_MS	60000	/* jobs that wait so long for a claim: no worker runs */

static JobqDb *db;
static TimestampTz turn_at;

static StatLane lanes[STAT_LANES];
static int	nlanes;
static StatLimit limits[STAT_LIMITS];
static int	nlimits;
static int	replaceable;		/* limits after this one are held, or the rest */
static bool no_room;			/* jobq.max_concurrent jobs run */
static bool is_full;			/* ... and others could start */
static int32 unclaimed[STAT_UNCLAIMED];
static int	nunclaimed;

void
held_lanes_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
}

/* ---------- lanes ---------- */

static WhyCode
hold_of_limit(const JobLimit *limit, WhyCode otherwise)
{
	return limit->rate.limit > 0 && limit->rate.next_free > turn_at ? WHY_RATE : otherwise;
}

/* Returns why a group waits in a wait queue. */
static WhyCode
hold_of_queue(const TypeState *t, const WaitQueue *queue)
{
	if (queue == NULL)
		return WHY_NCODES;	/* it is tried next */
	if (queue == &t->own.wait_queue)
		return hold_of_limit(&t->own, WHY_LIMIT);
	for (int i = 0; i < t->nlimits; i++)
	{
		if (queue == &t->limits[i]->wait_queue)
			return hold_of_limit(t->limits[i], WHY_SHARED_LIMIT);
	}
	return t->pull && !t->workflow && queue == &t->pullers.wait_queue ? WHY_NO_WORKER : WHY_SLOTS;
}

/* Returns why a group is parked. */
static WhyCode
hold_of_type(TypeState *t)
{
	uint32		bars = type_bars(t, turn_at);

	if (bars & TYPE_FILTERED)
		return WHY_FILTER;
	if (bars & TYPE_NO_ROLE)
		return WHY_ROLE;
	if (bars & TYPE_BLOCKED)
		return WHY_SIGNAL;
	if (bars & TYPE_HELD)
		return WHY_NODE;
	if (bars & TYPE_BREAKER)
		return WHY_BREAKER;
	if (bars != 0)
		return WHY_TYPE_PAUSED;
	return weight_budget > 0 && t->weight > 0 ? WHY_WEIGHT : WHY_SLOTS;
}

static WhyCode
hold_of_database(void)
{
	uint32		stops = hand_out_stops();

	if (stops & STOP_IDENTITY)
		return WHY_IDENTITY;
	if (stops & (STOP_SWITCH | STOP_DRAIN))
		return WHY_STOPPED;
	return stops == 0 ? WHY_NCODES : WHY_DISPATCHER;
}

static WhyCode
hold_of_group(const LaneGroup *group)
{
	WhyCode	hold = hold_of_database();

	if (hold != WHY_NCODES)
		return hold;
	switch (group->place)
	{
		case GROUP_WAITS:
			return hold_of_queue(type_of(group->type), group->waiting->queue);
		case GROUP_PARKED:
			return hold_of_type(type_of(group->type));
		default:
			return is_full ? WHY_SLOTS : WHY_NCODES;
	}
}

/* Returns the place of the lane's type and priority, or that of the rest. */
static StatLane *
place_of(const Lane *lane)
{
	for (int i = 0; i < nlanes; i++)
	{
		if (lanes[i].type_id == lane->id.type_id && lanes[i].priority == lane->id.priority)
			return &lanes[i];
	}
	if (nlanes == STAT_LANES)
		return &lanes[STAT_LANES - 1];
	lanes[nlanes] = (StatLane) {.type_id = lane->id.type_id, .priority = lane->id.priority};
	if (nlanes == STAT_LANES - 1)
		lanes[nlanes].type_id = 0;
	return &lanes[nlanes++];
}

/* True if jobs of the group could start, and nothing but a claim is missing. */
static bool
lacks_claim(const LaneGroup *group)
{
	const TypeState *t = type_of(group->type);

	return t->pull && !t->workflow && group->place == GROUP_WAITS && group->waiting->queue == &t->pullers.wait_queue &&
		!no_room && hold_of_database() == WHY_NCODES;
}

/* Returns why a lane without a head has jobs that are due. */
static WhyCode
hold_of_passed(const Lane *lane)
{
	WhyCode		hold = hold_of_database();

	return hold != WHY_NCODES ? hold : lane->passed_for;
}

/* Adds a lane with a job that is due; those of tenants are one. */
static void
add_lane(Lane *lane, void *arg)
{
	TypeState  *t = type_of(lane->group->type);
	JobRef	   *head = lane_head(lane);
	bool		is_due = head != NULL && head->position <= turn_at;
	TimestampTz oldest = is_due ? head->position : lane->oldest_passed;
	StatLane   *place;

	if (hold_of_database() == WHY_NCODES && t->unworked != 0 &&
		(lane->passed_from <= t->unworked || (is_due && head->position == t->unworked)))
		t->unworked_waits = true;
	if (!is_due && lane->npassed == 0)
		return;
	if (is_due && lacks_claim(lane->group))
		t->unclaimed = true;
	place = place_of(lane);
	if (place->oldest_due != 0 && place->oldest_due <= oldest)
		return;
	place->oldest_due = oldest;
	place->effective = lane->group->effective;
	place->held_by = (uint8) (is_due ? hold_of_group(lane->group) : hold_of_passed(lane));
}

/* True if due jobs have waited for a claim for too long. */
static bool
is_unclaimed(TypeState *t, MonoTime mono)
{
	t->unclaimed_since = !t->unclaimed ? 0 : t->unclaimed_since == 0 ? mono : t->unclaimed_since;
	t->unclaimed = false;
	return t->unclaimed_since != 0 && mono_exceeds(t->unclaimed_since, mono, UNCLAIMED_MS);
}

/* True if one has waited so long for a claim that may work its tenant. */
static bool
is_unworked(TypeState *t, MonoTime mono)
{
	bool		waits = t->unworked_waits;

	t->unworked_waits = false;
	if (!waits)
		t->unworked = 0;
	return waits && mono_exceeds(t->unworked_since, mono, UNCLAIMED_MS);
}

/* Lists the pull types with due jobs that no claim has asked for, or could get. */
static void
add_unclaimed(MonoTime mono)
{
	HASH_SEQ_STATUS seq;
	TypeState  *t;

	hash_seq_init(&seq, all_types);
	while ((t = hash_seq_search(&seq)) != NULL)
	{
		bool		no_claim = is_unclaimed(t, mono);

		if ((is_unworked(t, mono) || no_claim) && nunclaimed++ < STAT_UNCLAIMED)
			unclaimed[nunclaimed - 1] = t->id;
	}
}

/* ---------- limits ---------- */

/* Returns since when jobs have waited for a limit that they wait for now, too. */
static TimestampTz
held_since(StatLimitKind kind, const char *name)
{
	for (int i = 0; i < db->stats.nlimits; i++)
	{
		const StatLimit *before = &db->stats.limits[i];

		if (before->kind == kind && before->held_since != 0 && strcmp(before->name, name) == 0)
			return before->held_since;
	}
	return turn_at;
}

/* Counts a limit that has no place. */
static void
count_rest(void)
{
	if (nlimits < STAT_LIMITS)
		limits[nlimits++] = (StatLimit) {.kind = LIMIT_REST};
	limits[STAT_LIMITS - 1].used++;
}

/*
 * Returns a place for a limit; NULL: there is none.  One that is held takes
 * that of another which is not.
 */
static StatLimit *
place_for(bool held)
{
	if (nlimits < STAT_LIMITS - 1)
		return &limits[nlimits++];
	count_rest();
	while (held && replaceable > 0)
	{
		StatLimit  *limit = &limits[replaceable--];

		if (limit->held_since == 0)
			return limit;
	}
	return NULL;
}

static void
add_limit(StatLimitKind kind, const char *name, int64 used, int max, bool held)
{
	StatLimit  *limit = place_for(held);

	if (limit == NULL)
		return;
	limit->kind = (uint8) kind;
	strlcpy(limit->name, name, pg_mbcliplen(name, (int) strlen(name), sizeof(limit->name) - 1) + 1);
	limit->used = (int32) used;
	limit->max = max;
	limit->held_since = held ? held_since(kind, limit->name) : 0;
}

/* Adds how many jobs run, and how many start in a window, as far as each is limited. */
static void
add_job_limit(StatLimitKind kind, StatLimitKind kind_of_rate, const char *name, JobLimit *l)
{
	bool		waits = wait_queue_has_groups(&l->wait_queue);

	if (l->max_concurrent > 0)
		add_limit(kind, name, l->running, l->max_concurrent, waits && l->running >= l->max_concurrent);
	if (l->rate.limit > 0)
		add_limit(kind_of_rate, name, rate_used(&l->rate, turn_at), l->rate.burst > 0 ? l->rate.burst : l->rate.limit,
				  waits && l->rate.next_free > turn_at);
}

static void
add_shared(const char *name, JobLimit *limit, bool of_runs)
{
	/* a limit that no run uses has one line */
	if (of_runs && limit->running == 0 && !wait_queue_has_groups(&limit->wait_queue))
		return;
	if (of_runs)
		add_job_limit(LIMIT_RUNS, LIMIT_RUNS_RATE, name, limit);
	else
		add_job_limit(LIMIT_SHARED, LIMIT_SHARED_RATE, name, limit);
}

static void
add_types(void)
{
	HASH_SEQ_STATUS seq;
	TypeState  *t;

	hash_seq_init(&seq, all_types);
	while ((t = hash_seq_search(&seq)) != NULL)
	{
		JobType    *type = t->known ? job_type_by_id(t->id) : NULL;

		if (type != NULL && !type->dropped)
			add_job_limit(LIMIT_TYPE, LIMIT_TYPE_RATE, type->name, &t->own);
	}
}

/* Adds a tenant that has jobs. */
static void
add_tenant(const char *tenant, const JobLimit *limit, bool waits)
{
	bool		held = waits && limit->running >= limit->max_concurrent;

	if (held || limit->running > 0)
		add_limit(LIMIT_TENANT, tenant, limit->running, limit->max_concurrent, held);
}

static void
add_database(void)
{
	int			running = executors_running() + leases_running();

	no_room = running >= jobq_max_concurrent;
	is_full = no_room && lanes_first_ready() != NULL;
	add_limit(LIMIT_JOBS, "", running, jobq_max_concurrent, is_full);
	if (weight_budget > 0)
		add_limit(LIMIT_WEIGHT, "", weight_used(), weight_budget, weight_has_groups());
}

void
held_lanes_turn(TimestampTz now, MonoTime mono)
{
	turn_at = now;
	nlanes = nlimits = nunclaimed = 0;
	replaceable = STAT_LIMITS - 2;
	add_database();
	limits_visit(add_shared);
	add_types();
	tenant_limits_visit(add_tenant);
	lanes_visit(add_lane, NULL);
	add_unclaimed(mono);
	SpinLockAcquire(&db->mutex);
	memcpy(db->stats.lanes, lanes, sizeof(StatLane) * nlanes);
	db->stats.nlanes = nlanes;
	memcpy(db->stats.limits, limits, sizeof(StatLimit) * nlimits);
	db->stats.nlimits = nlimits;
	memcpy(db->stats.unclaimed, unclaimed, sizeof(unclaimed));
	db->stats.nunclaimed = nunclaimed;
	SpinLockRelease(&db->mutex);
}
