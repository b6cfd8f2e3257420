/*
 * fake_dispatcher.c
 *	  Stubs of limits/, workers/ and dispatch/ around lanes and hand-out: see
 *	  fake_dispatcher.h.
 */
#include "fake_dispatcher.h"

#include "utils/memutils.h"

#include "lanes/lane_callbacks.h"
#include "limits/concurrency_keys.h"
#include "limits/job_bars.h"
#include "limits/tenant_limit.h"
#include "limits/type_rates.h"
#include "pressure/pressure_rules.h"
#include "workers/claim_scopes.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"

TypeState  *types;
RoleState  *roles;
JobLimit   *limits;
Run		   *runs;
int			nruns;
int			settling_room;
void		(*before_hand_out) (const JobRef *ref);
JobRef	   *handed;
int			nhanded;
int			jobq_max_concurrent = INT_MAX;

static int	ntypes;
static int	nlimits;
static int	nroles;
static int	nexecutors;
static int	ncells;
static int	handed_size;
static int	nsettling;			/* jobs only to be settled, among those that were handed out */
static FakeExecutor *fake_executors;
static MemoryContext context;

/* ---------- parts of the dispatcher that nothing here uses ---------- */

KeyAnswer
key_asks(QueueScan *scan, Lane *lane, const JobRef *ref)
{
	return KEY_MAY_START;
}

void
key_pass(Lane *lane)
{
	abort();
}

void
tenant_limit_pass(Lane *lane)
{
	abort();
}

void
claim_scopes_pass(Lane *lane)
{
	abort();
}

void
scan_lane(QueueScan *scan, Lane *lane)
{
	abort();
}

void
executors_note_starts(void)
{
}

int
leases_running(void)
{
	return 0;
}

int
pressure_max_weight(void)
{
	return weight_budget;
}

/* ---------- concurrency keys ---------- */

int			keys_in_lanes;
int			keys_lost;

static void
key_enters(Lane *lane, const JobRef *ref)
{
	keys_in_lanes++;
}

static void
key_leaves(Lane *lane, const JobRef *ref)
{
	keys_in_lanes--;
}

static void
key_is_lost(const JobRef *ref)
{
	keys_lost++;
}

/* ---------- types ---------- */

bool
type_may_start(TypeState *t, TimestampTz now)
{
	return !t->paused;
}

bool
type_needs_starts(TypeState *t, TimestampTz now)
{
	return false;
}

uint32
type_closed_rates(TypeState *t, TimestampTz now)
{
	return t->own.rate.pending >= t->own.rate.limit ? 1 : 0;
}

JobLimit *
first_full_limit(TypeState *t, uint32 bars)
{
	return &t->own;
}

void
type_shares(int type, int limit)
{
	TypeState  *t = &types[type];

	t->limits[t->nlimits++] = &limits[limit];
	t->lanes.limits[t->lanes.nlimits++] = &limits[limit].wait_queue;
}

void
type_role(int type, int role)
{
	types[type].role = &roles[role];
	types[type].lanes.role = &roles[role].wait_queue;
}

static LaneType *
lane_type(int32 id)
{
	return &types[id].lanes;
}

static void
open_type(TypeState *t)
{
	wait_queue_open(&t->own.wait_queue);
	for (int i = 0; i < t->nlimits; i++)
		wait_queue_open(&t->limits[i]->wait_queue);
	if (weight_budget > 0)
		weight_unpark();
}

void
rate_opens(TypeState *t)
{
	t->own.rate.pending = 0;
	wait_queue_open(&t->own.wait_queue);
}

static void
init_wait_queues(void)
{
	for (int i = 0; i < ntypes; i++)
		wait_queue_init(&types[i].own.wait_queue);
	for (int i = 0; i < nlimits; i++)
		wait_queue_init(&limits[i].wait_queue);
	for (int i = 0; i < nroles; i++)
		wait_queue_init(&roles[i].wait_queue);
}

void
reload(void)
{
	lanes_rerank(clock_now);
	wait_queues_release();
	init_wait_queues();
	for (int i = 0; i < ntypes; i++)
		groups_unpark(&types[i].parked);
	weight_unpark();
}

void
forget_lanes(void)
{
	lanes_reset();
	init_wait_queues();
	for (int i = 0; i < ntypes; i++)
		dlist_init(&types[i].parked);
	weight_forget_lanes();
}

void
dispatcher_start(int types_wanted, int limits_wanted, int roles_wanted, int executors_each, int cells)
{
	ntypes = types_wanted;
	nlimits = limits_wanted;
	nroles = roles_wanted;
	ncells = cells;
	nexecutors = nroles * executors_each;
	types = calloc(ntypes, sizeof(TypeState));
	limits = calloc(nlimits + 1, sizeof(JobLimit));
	roles = calloc(nroles, sizeof(RoleState));
	fake_executors = calloc(nexecutors, sizeof(FakeExecutor));
	runs = NULL;
	handed = NULL;
	nruns = nhanded = handed_size = nsettling = 0;
	settling_room = INT_MAX;
	for (int i = 0; i < nexecutors; i++)
		fake_executors[i].role = &roles[i / executors_each];
	for (int i = 0; i < ntypes; i++)
	{
		types[i].id = i;
		types[i].lanes.own = &types[i].own.wait_queue;
		dlist_init(&types[i].parked);
		type_role(i, 0);
	}
	weight_budget = 0;
	weight_restart();
	weight_forget_lanes();
	key_callbacks = (KeyCallbacks) {.enter = key_enters, .leave = key_leaves, .lost = key_is_lost};
	tenant_callbacks.lost = key_is_lost;
	keys_in_lanes = keys_lost = 0;
	context = AllocSetContextCreate(CurrentMemoryContext, "dispatcher", ALLOCSET_DEFAULT_SIZES);
	lanes_init(context, NULL);
	init_wait_queues();
}

void
dispatcher_stop(void)
{
	MemoryContextDelete(context);
	known_jobs = NULL;
	free(types);
	free(limits);
	free(roles);
	free(fake_executors);
	free(runs);
	free(handed);
}

/* ---------- executors ---------- */

int
executors_running(void)
{
	return nruns;
}

static FakeExecutor *
free_executor(const RoleState *role, bool alone)
{
	for (int i = 0; i < nexecutors; i++)
	{
		FakeExecutor *e = &fake_executors[i];

		if (e->role == role && !e->alone && e->njobs < (alone ? 1 : ncells))
			return e;
	}
	return NULL;
}

HandOut
refusal_of(TypeState *t, const JobRef *ref, JobLimit **full)
{
	bool		settles = ref_settles(ref);

	for (int i = 0; !settles && i <= t->nlimits; i++)
	{
		*full = type_limit(t, i);
		if ((*full)->max_concurrent > 0 && (*full)->running >= (*full)->max_concurrent)
			return LIMIT_FULL;
	}
	if (settles)
		return nsettling < settling_room ? HANDED_OUT : NO_CAPACITY;
	if (free_executor(t->role, (ref->flags & REF_ALONE) != 0) == NULL)
		return NO_CAPACITY;
	return weight_budget > 0 && !weight_fits(NULL, t->weight) ? TOO_HEAVY : HANDED_OUT;
}

/* Counts one job more or less. */
static void
count(const Run *run, int change)
{
	TypeState  *t = &types[run->ref.type_id];

	if (ref_settles(&run->ref))
	{
		nsettling += change;
		return;
	}
	run->executor->njobs += change;
	run->executor->alone = change > 0 && (run->ref.flags & REF_ALONE) != 0;
	for (int i = 0; i <= t->nlimits; i++)
		type_limit(t, i)->running += change;
	weight_add(change * t->weight);
}

HandOut
assign_job(TypeState *t, const JobRef *ref, const char *cancel_reason, MonoTime now)
{
	HandOut		refusal = refusal_of(t, ref, &t->closed);
	bool		settles = ref_settles(ref);
	Run		   *run;

	if (refusal != HANDED_OUT)
		return refusal;
	if (before_hand_out != NULL)
		before_hand_out(ref);
	runs = realloc(runs, (nruns + 1) * sizeof(Run));
	run = &runs[nruns++];
	*run = (Run) {*ref, settles ? NULL : free_executor(t->role, (ref->flags & REF_ALONE) != 0)};
	count(run, 1);
	t->own.rate.pending += !settles;
	if (nhanded == handed_size)
		handed = realloc(handed, (handed_size = 2 * handed_size + 1) * sizeof(JobRef));
	handed[nhanded++] = *ref;
	return HANDED_OUT;
}

static void
leave_executor(int i)
{
	Run			run = runs[i];

	count(&run, -1);
	runs[i] = runs[--nruns];
	open_type(&types[run.ref.type_id]);
	wait_queue_open(&types[run.ref.type_id].role->wait_queue);
}

bool
end_run(int i)
{
	Known	   *k = known_lookup(known_jobs, runs[i].ref.id);
	bool		again = k->again;

	known_delete_item(known_jobs, k);
	leave_executor(i);
	return again;
}

void
give_back(int i)
{
	JobRef		ref = runs[i].ref;
	Lane	   *lane = lane_of(&ref);

	if (!ref_settles(&ref))
		types[ref.type_id].own.rate.pending--;
	leave_executor(i);
	lane_unplace(lane);
	lane_return(lane, &ref);
	lane_place(lane, clock_now);
}

/* ---------- jobs ---------- */

JobRef
job_of(int type, int priority, int sublane, TimestampTz position)
{
	JobRef		ref = {.type_id = type, .priority = priority, .sublane = sublane, .position = position};

	for (int i = 0; i < UUID_LEN; i++)
		ref.id.data[i] = below(256);
	return ref;
}

Lane *
lane_of(const JobRef *ref)
{
	LaneId		id = {ref->type_id, ref->priority, ref->sublane};

	return lane_get(&id, lane_type);
}

bool
add_job(const JobRef *ref, bool from_cursor)
{
	Lane	   *lane = lane_of(ref);
	bool		added;

	lane_unplace(lane);
	added = lane_add(lane, ref, from_cursor);
	lane_place(lane, clock_now);
	return added;
}

void
hand_out(void)
{
	hand_out_ready(NULL, clock_now);
}
