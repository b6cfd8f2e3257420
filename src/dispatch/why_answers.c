/*
 * why_answers.c
 *	  Why a job does not start: the dispatcher's answers to jobq.why.
 *
 * An answer lists what hand_out.c would find if the job were the head of its
 * lane and first in order.  It asks the same functions: hand_out_stops,
 * type_bars, key_asks, hand_out_closed_rates, weight_is_reserved, assign_bars,
 * wait_queues_block.  They are asked one by one, so the answer has every
 * reason, where hand-out stops at the first.  When all of them have ended, the
 * job starts.
 *
 * Nothing is kept for an answer, and a turn without a request pays the look at
 * a counter.  A turn answers MAX_ANSWERS requests; one costs a look at the
 * job's row, at its concurrency key, and at each group of lanes.  The count of
 * the jobs that go before is the session's work: the answer names their lanes.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "access/multixact.h"
#include "executor/tuptable.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "dispatch/hand_out.h"
#include "dispatch/hand_out_stop.h"
#include "dispatch/lane_reader.h"
#include "dispatch/why_answers.h"
#include "lanes/ready_queue.h"
#include "limits/concurrency_keys.h"
#include "limits/job_bars.h"
#include "pressure/pressure_rules.h"
#include "registry/job_types.h"
#include "shared/worker_need.h"
#include "workers/assign_job.h"
#include "workers/executor_pool.h"
#include "workers/leases.h"
#include "workers/worker_pool.h"

#define MAX_ANSWERS		4		/* a turn */

static JobqDb *db;
static MonoTime next_answers = 0;

/* The request that is answered. */
typedef struct Why
{
	QueueScan  *scan;
	TimestampTz now;
	JobRef		ref;
	Lane	   *lane;
	TypeState  *type;
	const char *type_name;
	Rank		rank;			/* that it would have at the head of its lane */
	WhyAnswer  *answer;
} Why;

void
why_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	next_answers = 0;
}

/* ---------- reasons ---------- */

/* Adds a reason; until: 0 or DT_NOEND, it does not end by itself. */
static WhyReason *
add_reason(WhyAnswer *a, WhyCode code, TimestampTz until, const char *message)
{
	static WhyReason surplus;
	WhyReason  *r = a->nreasons < WHY_REASONS ? &a->reasons[a->nreasons++] : &surplus;

	memset(r, 0, sizeof(WhyReason));
	r->code = code;
	r->until = until == DT_NOEND ? 0 : until;
	strlcpy(r->message, message, sizeof(r->message));
	return r;
}

static void
set_job(WhyReason *r, const pg_uuid_t *id)
{
	r->has_job = true;
	r->job = *id;
}

/* Returns the time of the wall clock at which the monotonic clock shows t. */
static TimestampTz
wall_time(TimestampTz now, MonoTime t)
{
	return now + Max(t - mono_now(), 0);
}

static void
add_stops(WhyAnswer *a)
{
	uint32		stops = hand_out_stops();

	if (stops & STOP_IDENTITY)
		add_reason(a, WHY_IDENTITY, 0, "this database was restored or copied from another one: jobq.adopt() makes its jobs run here");
	if (stops & STOP_SWITCH)
		add_reason(a, WHY_STOPPED, 0, "all jobs are stopped: jobq.start_all() ends that");
	if (stops & STOP_DRAIN)
		add_reason(a, WHY_STOPPED, 0, "jobq.drain() waits until no job runs");
	if (stops & STOP_RELOAD)
		add_reason(a, WHY_DISPATCHER, 0, "the dispatcher is about to start anew with other settings: jobq.reload()");
	if (stops & STOP_LEASES)
		add_reason(a, WHY_DISPATCHER, 0, "the dispatcher has started anew, and reads which jobs clients have");
}

static void
add_blocking_signal(Why *w)
{
	const char *signal = pressure_blocking_signal(w->type->id);
	WhyReason  *r = add_reason(w->answer, WHY_SIGNAL, 0,
							   psprintf("signal \"%s\" blocks job type \"%s\"", signal ? signal : "", w->type_name));

	strlcpy(r->holder, signal ? signal : "", sizeof(r->holder));
}

static bool
lacks_window(TypeState *t)
{
	for (int i = 0; i <= t->nlimits; i++)
	{
		if (type_limit(t, i)->rate.no_window != NULL)
			return true;
	}
	return false;
}

static TimestampTz
pause_end(TypeState *t, TimestampTz now)
{
	if (t->paused_until == DT_NOEND)
		return 0;
	return Min(t->paused_until, wall_time(now, t->pause_ends));
}

static void
add_type_bars(Why *w)
{
	TypeState  *t = w->type;
	WhyAnswer  *a = w->answer;
	uint32		bars = type_bars(t, w->now);

	if (bars & TYPE_PAUSED)
		add_reason(a, WHY_TYPE_PAUSED, pause_end(t, w->now), psprintf("job type \"%s\" is paused", w->type_name));
	if (bars & TYPE_BREAKER)
		add_reason(a, WHY_BREAKER, t->breaker.state == BREAKER_OPEN ? wall_time(w->now, t->breaker.until) : 0,
				   t->breaker.state == BREAKER_OPEN ?
				   psprintf("the breaker of job type \"%s\" is open after failures in a row", w->type_name) :
				   psprintf("one job of type \"%s\" probes its breaker", w->type_name));
	if (bars & TYPE_BLOCKED)
		add_blocking_signal(w);
	if (bars & TYPE_FILTERED)
		add_reason(a, WHY_FILTER, 0, psprintf("jobq.job_type_filter excludes job type \"%s\"", w->type_name));
	if (bars & TYPE_NO_ROLE)
		add_reason(a, WHY_ROLE, 0, psprintf("the role that job type \"%s\" runs as is missing", w->type_name));
	if (bars & TYPE_HELD)
		add_reason(a, WHY_NODE, wall_time(w->now, t->held_until),
				   psprintf("the tool of job type \"%s\" cannot be started on this node", w->type_name));
	if (bars & TYPE_UNKNOWN)
		add_reason(a, WHY_TYPE_PAUSED, 0, "its job type is not in the registry");
	else if (bars & TYPE_TROUBLE)
		add_reason(a, lacks_window(t) ? WHY_RATE : WHY_TYPE_PAUSED, 0, t->trouble);
}

/* ---------- limits ---------- */

static void
add_rates(Why *w)
{
	TypeState  *t = w->type;
	uint32		closed = hand_out_closed_rates(t, w->now);

	for (int i = 0; i <= t->nlimits; i++)
	{
		JobLimit   *l = type_limit(t, i);
		double		rate = l->rate.limit * (double) USECS_PER_SEC / Max(l->rate.window_us, 1);
		WhyReason  *r;

		if (l->rate.limit > 0 && (w->answer->rate == 0 || rate < w->answer->rate))
			w->answer->rate = rate;
		if ((closed & ((uint32) 1 << i)) == 0)
			continue;
		r = add_reason(w->answer, WHY_RATE, l->rate.next_free,
					   i == 0 ? psprintf("rate_limit of job type \"%s\" is used up", w->type_name) :
					   psprintf("rate_limit of limit \"%s\" is used up", shared_limit_name(l)));
		strlcpy(r->holder, i == 0 ? "" : shared_limit_name(l), sizeof(r->holder));
	}
}

static void
add_full_limits(Why *w, uint32 bars)
{
	for (int i = 0; i <= w->type->nlimits; i++)
	{
		JobLimit   *l = type_limit(w->type, i);
		WhyReason  *r;

		if ((bars & ((uint32) 1 << i)) == 0)
			continue;
		if (i == 0)
		{
			add_reason(w->answer, WHY_LIMIT, 0,
					   psprintf("%d of max_concurrent %d of job type \"%s\" run", l->running, l->max_concurrent, w->type_name));
			continue;
		}
		r = add_reason(w->answer, WHY_SHARED_LIMIT, 0,
					   psprintf("%d of max_concurrent %d of limit \"%s\" run", l->running, l->max_concurrent, shared_limit_name(l)));
		strlcpy(r->holder, shared_limit_name(l), sizeof(r->holder));
	}
}

/*
 * Returns the first job of the key, which key_asks has just read for a type
 * that keeps the order; false: it is not another job.
 */
static bool
first_of_key(Why *w, pg_uuid_t *id)
{
	bool		isnull;

	if (!w->type->keeps_order || TTS_EMPTY(w->scan->slot))
		return false;
	*id = *DatumGetUUIDP(slot_getattr(w->scan->slot, Q_id, &isnull));
	return memcmp(id, &w->ref.id, sizeof(pg_uuid_t)) != 0;
}

static void
add_key(Why *w)
{
	WhyReason  *r;
	pg_uuid_t	holder;

	if (w->ref.key == 0)
		return;
	switch (key_asks(w->scan, w->lane, &w->ref))
	{
		case KEY_MAY_START:
			return;
		case KEY_UNKNOWN:
			add_reason(w->answer, WHY_DISPATCHER, 0, "a lock on an index keeps the dispatcher from reading the jobs of its concurrency key");
			return;
		case KEY_PASS:
			break;
	}
	r = add_reason(w->answer, WHY_KEY, 0, "another job has its concurrency key");
	if (executors_key_holder(w->ref.key, &holder) || leases_key_holder(w->ref.key, &holder) || first_of_key(w, &holder))
		set_job(r, &holder);
}

/* ---------- executors ---------- */

static bool
helper_trouble(char *text, Size size)
{
	SpinLockAcquire(&db->mutex);
	strlcpy(text, db->health.helper_trouble, size);
	SpinLockRelease(&db->mutex);
	return text[0] != '\0';
}

static void
add_pull_capacity(Why *w, uint32 bars)
{
	if (bars & BAR_CLAIM)
		add_reason(w->answer, WHY_NO_WORKER, 0, "no claim that waits may work its tenant");
	else if (w->type->workflow)
		add_reason(w->answer, WHY_SLOTS, 0, "the conductor starts other runs first");
	else
		add_reason(w->answer, WHY_NO_WORKER, 0, psprintf("no claim waits for a job of type \"%s\"", w->type_name));
}

/* Adds why no executor of the role has room. */
static void
add_capacity(Why *w)
{
	RoleState  *role = ref_settles(&w->ref) ? settling_role(w->type, &w->ref) : w->type->role;
	bool		exec;
	char		trouble[256];

	if (role == NULL)
		return;					/* it is missing: a reason of the type */
	exec = role->roleid == EXEC_ROLE;
	if (exec && helper_trouble(trouble, sizeof(trouble)))
		add_reason(w->answer, WHY_HELPER, 0, trouble);
	else if (exec && role->failures > 0)
		add_reason(w->answer, WHY_HELPER, 0, "the exec worker does not start: see the server log");
	else if (exec && role->nworkers > 0)
		add_reason(w->answer, WHY_SLOTS, 0, "the exec worker has no room for another tool");
	else if (!exec && role->failures > 0)
		add_reason(w->answer, WHY_ROLE, role->next_start > mono_now() ? wall_time(w->now, role->next_start) : 0,
				   psprintf("no worker can connect as role \"%s\": see the server log", role->name));
	else if (pg_atomic_read_u32(&db->lacking) & WORKER_EXECUTOR)
		add_reason(w->answer, WHY_SLOTS, 0, "there is no free background worker: increase max_worker_processes");
	else if (!exec && !worker_may_come(role))
		add_reason(w->answer, WHY_SLOTS, 0,
				   sql_workers_allowed(db) < db->dispatcher.sql_workers ?
				   psprintf("all workers are busy: max_worker_processes leaves %d of %d SQL workers",
							sql_workers_allowed(db), db->dispatcher.sql_workers) :
				   psprintf("all workers are busy: jobq.max_sql_workers is %d", jobq_max_sql_workers));
	else if (w->answer->nreasons == 0)	/* else none starts before they have ended */
		add_reason(w->answer, WHY_SLOTS, 0, "a worker is about to start");
}

static void
add_assign_bars(Why *w)
{
	WhyAnswer  *a = w->answer;
	uint32		bars = assign_bars(w->type, &w->ref);

	add_full_limits(w, bars);
	if (bars & BAR_TENANT)
		add_reason(a, WHY_LIMIT, 0, "its tenant, or one above it, runs as many jobs as max_running allows");
	if ((bars & BAR_WEIGHT) || (weight_budget > 0 && !ref_settles(&w->ref) && weight_is_reserved(w->type, &w->rank)))
		add_reason(a, WHY_WEIGHT, 0,
				   psprintf("cpu_weight %d of job type \"%s\" does not fit into the budget of %d", w->type->weight,
							w->type_name, weight_budget));
	if (!hand_out_has_room())
		add_reason(a, WHY_SLOTS, 0, psprintf("jobq.max_concurrent is %d, and so many jobs run", jobq_max_concurrent));
	if (bars & BAR_BATCH)
		add_reason(a, WHY_SLOTS, w->type->batch.until,
				   psprintf("options.min_batch of job type \"%s\" waits for %d jobs", w->type_name, w->type->batch.jobs));
	if ((bars & (BAR_CAPACITY | BAR_CLAIM)) == 0)
		return;
	if (w->type->pull && !ref_settles(&w->ref))
		add_pull_capacity(w, bars);
	else
		add_capacity(w);
}

/* ---------- the order ---------- */

/*
 * True if jobs of the group may go before this one: groups of its type, and
 * those that wait for the same executors and not for a limit of their own.
 */
static bool
competes(const Why *w, const LaneGroup *group)
{
	const LaneType *own = &w->type->lanes;

	if (group->type == own)
		return true;
	if (group->place != GROUP_READY && group->place != GROUP_WAITS)
		return false;
	if (group->place == GROUP_WAITS && group->waiting->queue == group->type->own)
		return false;
	return group->type->role == own->role || !hand_out_has_room();
}

static void
look_at_group(LaneGroup *group, const Rank *rank, void *arg)
{
	Why		   *w = arg;
	WhyAnswer  *a = w->answer;
	bool		own = group == w->lane->group;

	if (own || !competes(w, group) || !outranks(rank, &w->rank))
		return;
	a->behind = true;
	if (a->ngroups == WHY_GROUPS)
	{
		a->more_groups = true;
		return;
	}
	a->groups[a->ngroups++] = (WhyGroup) {
		.type_id = group->id.type_id, .priority = (int16) group->id.priority,
		.older = rank->priority == w->rank.priority, .fair = group->type->fair
	};
}

/* True if jobs of its own lane go before the job. */
static bool
lane_goes_before(const Why *w)
{
	const JobRef *head = lane_head(w->lane);

	return head != NULL && compare_refs(head, &w->ref) < 0;
}

/* Fills in the place in the order; adds the reasons that lie in it. */
static void
add_order(Why *w, bool soft)
{
	WhyAnswer  *a = w->answer;
	bool		lane_before = lane_goes_before(w);
	bool		turn = w->type->lanes.fair && !lane_before && w->lane->place == LANE_READY && !ready_is_next(w->lane);

	a->placed = true;
	a->type_id = w->ref.type_id;
	a->priority = w->ref.priority;
	a->sublane = w->ref.sublane;
	a->fair = w->type->lanes.fair;
	a->position = w->ref.position;
	a->behind = lane_before;
	ready_each_group(look_at_group, w);
	if (!soft)
		return;
	if (turn)
		add_reason(a, WHY_TENANT_TURN, 0, "other tenants are served before it");
	if (a->behind || (!turn && w->type->role != NULL && wait_queues_block(&w->type->lanes, &w->rank)))
		add_reason(a, WHY_BEHIND, 0, "other jobs go before it");
	a->behind |= turn;
}

/* ---------- one answer ---------- */

/*
 * True if an open transaction has locked or changed the row in the scan's
 * slot.
 */
static bool
row_is_locked(QueueScan *scan)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(scan->slot, false, NULL);
	HeapTupleHeader t = tuple->t_data;
	TransactionId xmax = HeapTupleHeaderGetRawXmax(t);

	if ((t->t_infomask & HEAP_XMAX_INVALID) || !TransactionIdIsValid(xmax))
		return false;
	if (t->t_infomask & HEAP_XMAX_IS_MULTI)
		return MultiXactIdIsRunning(xmax, HEAP_XMAX_IS_LOCKED_ONLY(t->t_infomask));
	return TransactionIdIsInProgress(xmax);
}

/* Adds the state of a job that is in no lane; true: there is nothing to add. */
static bool
add_whereabouts(Why *w, bool locked)
{
	Known	   *known = known_lookup(known_jobs, w->ref.id);
	WhyAnswer  *a = w->answer;
	char		trouble[256];

	if (known != NULL && known->where == IN_FLIGHT)
	{
		a->handed_out = true;
		if (w->type->exec && helper_trouble(trouble, sizeof(trouble)))
			add_reason(a, WHY_HELPER, 0, trouble);
		else
			add_reason(a, WHY_BEHIND, 0, "it has been handed out and begins after the jobs before it in its worker");
		return false;
	}
	if (known != NULL && known->where == HELD)
		add_reason(a, WHY_DISPATCHER, 0, "its last hand-out could not be settled: it is tried again in a moment");
	else if (locked)
		add_reason(a, WHY_DISPATCHER, 0, "an open transaction of another session has locked its row");
	return true;
}

static void
add_reasons(Why *w, JobStatus status, bool locked)
{
	WhyAnswer  *a = w->answer;
	bool		settles = ref_settles(&w->ref);
	bool		due = settles || w->ref.position <= w->now;
	bool		soft;

	if (!due)
		add_reason(a, status == JOB_RETRY ? WHY_RETRY : WHY_SCHEDULED, w->ref.position,
				   status == JOB_RETRY ? "it waits for its next attempt" : "it is scheduled for later");
	if (!add_whereabouts(w, locked))
		return;
	if (!settles)
		add_type_bars(w);
	if (due && !settles)
		add_key(w);
	soft = a->nreasons == 0;	/* no reason so far that others do not share */
	if (due && !settles)
		add_rates(w);
	if (due)
		add_assign_bars(w);		/* before, room and turns of now decide nothing */
	add_order(w, soft);
}

static void
answer_one(QueueScan *scan, const pg_uuid_t *id, TimestampTz now, WhyAnswer *a)
{
	Why			w = {.scan = scan, .now = now, .answer = a};
	JobStatus	status;
	JobType    *jt;
	bool		locked;

	memset(a, 0, sizeof(WhyAnswer));
	add_stops(a);
	if (scan == NULL)
	{
		a->found = true;
		add_reason(a, WHY_DISPATCHER, 0, "a session holds a lock of jobq's tables: the dispatcher can't read the queue");
		return;
	}
	if (!scan_find(scan, id, &w.ref, &status) || (status != JOB_PENDING && status != JOB_RETRY))
		return;
	a->found = true;
	locked = row_is_locked(scan);
	w.lane = type_lane(&(LaneId) {w.ref.type_id, w.ref.priority, w.ref.sublane});
	lane_drop_gone(scan, w.lane);
	w.type = type_of(w.lane->type);
	jt = job_type_by_id(w.ref.type_id);
	w.type_name = jt != NULL ? jt->name : "";
	w.rank = ready_rank(w.lane, &w.ref);
	add_reasons(&w, status, locked);
}

/* ---------- turns ---------- */

bool
why_pending(MonoTime now)
{
	return db->whys.nasked > 0 && now >= next_answers;
}

MonoTime
why_next_timer(MonoTime now)
{
	return db->whys.nasked > 0 ? next_answers : DT_NOEND;
}

void
why_turn(QueueScan *scan, TimestampTz now)
{
	WhyAnswer  *answer;
	uint32		taken = 0;
	uint32		number;
	pg_uuid_t	id;
	int			place;

	if (!why_pending(mono_now()))
		return;
	answer = palloc(sizeof(WhyAnswer));
	for (int i = 0; i < MAX_ANSWERS && (place = why_take(db, &taken, &id, &number)) >= 0; i++)
	{
		answer_one(scan, &id, now, answer);
		why_answered(db, place, number, answer);
	}
	pfree(answer);
	next_answers = mono_now() + WHY_INTERVAL_US;
}
