/*
 * inbox.c
 *	  What reaches the dispatcher: publications and commands of committed transactions, jobs that come back.
 *
 * Taken from shared memory under the database's spinlock, a few hundred at a time, and kept here until the
 * lanes have been read.  Jobs that cannot go back to their lane at once (no partition, a commit
 * that failed twice) are held; cancels of jobs that wait again are handed to an executor to be settled.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "dispatch/inbox.h"
#include "dispatch/wakeup_filter.h"
#include "limits/concurrency_keys.h"
#include "workers/executor_pool.h"

#define TAKE_AT_ONCE		256		/* publications copied under the spinlock */

typedef struct Held
{
	JobRef		ref;
	MonoTime	until;
	bool		for_partition;
} Held;

typedef struct PendingCancel
{
	JobRef		ref;
	Command		command;
	RoleState  *waits_for;		/* counted in its cancels; NULL: not yet */
} PendingCancel;

static JobqDb *db;
static MemoryContext lasting;

static LaneKeys *pubs;			/* taken, not scanned */
static int	npubs = 0;
static int	pubs_size = 0;
static List *touched = NIL;		/* lanes to read, of apply_publications */
static Held *held;
static int	nheld = 0;
static int	held_size = 0;
static PendingCancel *pending_cancels;
static int	npending = 0;
static int	pending_size = 0;
static Command *commands;		/* to be run */
static int	ncommands = 0;
static int	commands_size = 0;

void
intake_init(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
}

bool
intake_pending(void)
{
	return npubs > 0 || npending > 0 || ncommands > 0;
}

bool
intake_cancels_pending(void)
{
	return npending > 0 || ncommands > 0;
}

/* ---------- jobs that come back ---------- */

static void *
grow_array(void *array, int *size, Size elem)
{
	*size = *size ? *size * 2 : 64;
	return array ? repalloc(array, elem * *size) : MemoryContextAlloc(lasting, elem * *size);
}

void
probe_again(const LaneKeys *keys)
{
	if (npubs == pubs_size)
		pubs = grow_array(pubs, &pubs_size, sizeof(LaneKeys));
	pubs[npubs++] = *keys;
}

static Lane *
lane_of(const JobRef *ref)
{
	LaneId		id = {ref->type_id, ref->priority, ref->sublane};

	return type_lane(&id);
}

void
return_job(const JobRef *ref)
{
	Lane	   *lane;

	if (known_lookup(known_jobs, ref->id) == NULL)
		return;
	lane = lane_of(ref);
	lane_unplace(lane);
	lane_return(lane, ref);
	lane_place(lane, GetCurrentTimestamp());
}

void
hold_job(const JobRef *ref, MonoTime until, bool for_partition)
{
	Known	   *k = known_lookup(known_jobs, ref->id);

	if (k == NULL)
		return;
	k->where = HELD;
	if (nheld == held_size)
		held = grow_array(held, &held_size, sizeof(Held));
	held[nheld].ref = *ref;
	held[nheld].until = until;
	held[nheld].for_partition = for_partition;
	nheld++;
}

void
release_held(MonoTime now, bool partitions_made)
{
	for (int i = 0; i < nheld;)
	{
		Held		h = held[i];

		if (h.until > now && !(h.for_partition && partitions_made))
		{
			i++;
			continue;
		}
		held[i] = held[--nheld];
		return_job(&h.ref);
	}
}

/* Something else is done with the job now. */
static void
drop_held(const pg_uuid_t *id)
{
	for (int i = 0; i < nheld; i++)
	{
		if (memcmp(&held[i].ref.id, id, sizeof(pg_uuid_t)) == 0)
		{
			held[i] = held[--nheld];
			return;
		}
	}
}

MonoTime
held_next_timer(void)
{
	MonoTime	next = DT_NOEND;

	for (int i = 0; i < nheld; i++)
		next = Min(next, held[i].until);
	return next;
}

void
forget_held(void)
{
	for (int i = 0; i < nheld; i++)
	{
		Known	   *k = known_lookup(known_jobs, held[i].ref.id);

		if (k)
			known_delete_item(known_jobs, k);
	}
	nheld = 0;
}

/* ---------- publications ---------- */

/* Prepared transactions that have ended since: what they touched is news. */
static int
take_prepared(LaneKeys *out)
{
	struct
	{
		TransactionId xid;
		LaneKeys	pub;
	}			copy[JOBQ_MAX_PREPARED];
	int			n;
	int			taken = 0;
	int			kept = 0;

	SpinLockAcquire(&db->mutex);
	n = db->prepared.nxacts;
	memcpy(copy, db->prepared.xacts, sizeof(copy[0]) * n);
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		if (!TransactionIdIsInProgress(copy[i].xid))
			out[taken++] = copy[i].pub;
		else
			copy[kept++] = copy[i];
	}
	if (taken > 0)
	{
		SpinLockAcquire(&db->mutex);
		/* others may have been added behind the n we looked at */
		memmove(&db->prepared.xacts[kept], &db->prepared.xacts[n],
				sizeof(copy[0]) * (db->prepared.nxacts - n));
		memcpy(db->prepared.xacts, copy, sizeof(copy[0]) * kept);
		db->prepared.nxacts -= taken;
		SpinLockRelease(&db->mutex);
	}
	return taken;
}

void
take_publications(News *news)
{
	LaneKeys	some[TAKE_AT_ONCE];
	bool		more = true;

	while (more)
	{
		int			n = 0;

		SpinLockAcquire(&db->mutex);
		while (n < TAKE_AT_ONCE && db->ring.head != db->ring.tail)
			some[n++] = db->ring.keys[db->ring.head++ % jobq_max_lanes];
		more = db->ring.head != db->ring.tail;
		if (db->ring.overflow)
			news->lost_from = Min(news->lost_from, db->ring.overflow_lo);
		db->ring.overflow = false;
		news->types_changed |= db->requests.types_changed;
		db->requests.types_changed = false;
		news->signals_changed |= db->requests.signals_changed;
		db->requests.signals_changed = false;
		news->prepared_lost |= db->prepared.overflow;
		db->prepared.overflow = false;
		SpinLockRelease(&db->mutex);
		for (int i = 0; i < n; i++)
		{
			probe_again(&some[i]);
			if (some[i].type_id != KEY_NEWS)
				quiet_note(some[i].type_id);
		}
	}
	if (db->prepared.nxacts > 0)
	{
		int			n = take_prepared(some);

		for (int i = 0; i < n; i++)
			probe_again(&some[i]);
	}
}

/* Gives each publication to its lane; remembers which lanes have something to read besides the cursor. */
void
apply_publications(TimestampTz now)
{
	MemoryContext old = MemoryContextSwitchTo(lasting);

	for (int i = 0; i < npubs; i++)
	{
		LaneId		id = {pubs[i].type_id, pubs[i].priority, pubs[i].sublane};
		Lane	   *lane;

		if (id.type_id == KEY_NEWS)
		{
			keys_published((uint64) pubs[i].lo, pubs[i].hi, pubs[i].priority != 0);
			continue;
		}
		lane = type_lane(&id);
		lane_unplace(lane);
		lane_publish(lane, pubs[i].lo, pubs[i].hi);
		lane_place(lane, now);
		if (lane->ranges != NIL && !lane->touched)
		{
			lane->touched = true;
			touched = lappend(touched, lane);
		}
	}
	npubs = 0;
	MemoryContextSwitchTo(old);
}

/* Late committers go to their place in the order, whatever the lane waits for. */
void
read_touched_lanes(QueueScan *scan)
{
	ListCell   *lc;

	foreach(lc, touched)
	{
		Lane	   *lane = lfirst(lc);

		lane->touched = false;
		if (!lane_wants_scan(lane, scan->now))
			continue;
		lane_unplace(lane);
		scan_lane(scan, lane);
		lane_place(lane, scan->now);
	}
	forget_touched_lanes();
}

void
forget_touched_lanes(void)
{
	list_free(touched);
	touched = NIL;
}

/* ---------- commands ---------- */

static void
add_pending_cancel(const JobRef *ref, const Command *c)
{
	PendingCancel *p;
	bool		found;
	Known	   *k = known_insert(known_jobs, ref->id, &found);

	drop_held(&ref->id);
	k->where = HELD;			/* whatever waits in a lane of it is stale now */
	k->rev = ref->rev;
	if (!found)
		k->again = false;
	if (npending == pending_size)
		pending_cancels = grow_array(pending_cancels, &pending_size, sizeof(PendingCancel));
	p = &pending_cancels[npending++];
	p->ref = *ref;
	p->ref.flags |= REF_CANCEL;
	p->command = *c;
	p->waits_for = NULL;
}

static void
add_command(const Command *c)
{
	if (ncommands == commands_size)
		commands = grow_array(commands, &commands_size, sizeof(Command));
	commands[ncommands++] = *c;
}

/* A cancel met an attempt that had ended otherwise, perhaps to wait for the next one. */
void
cancel_after_all(const pg_uuid_t *id, const char *reason)
{
	Command		c;

	memset(&c, 0, sizeof(c));
	c.id = *id;
	c.has_reason = reason != NULL;
	if (reason)
		strlcpy(c.reason, reason, sizeof(c.reason));
	add_command(&c);
}

/*
 * A running job is told; one that has come back to wait meanwhile is settled by an executor.  False: to be tried again,
 * since the queue can't be read now, or the job's executor is done and has not been heard.
 */
static bool
run_command(QueueScan *scan, const Command *c)
{
	JobRef		ref;
	JobStatus	status;
	Known	   *k;

	if (executors_cancel(&c->id, CANCEL_USER, c->has_reason ? c->reason : NULL))
		return true;
	k = known_lookup(known_jobs, c->id);
	if (scan == NULL || (k != NULL && k->where == IN_FLIGHT))
		return false;
	if (scan_find(scan, &c->id, &ref, &status) && status != JOB_RUNNING)
		add_pending_cancel(&ref, c);
	return true;
}

/* A command leaves the array when it is done, so that one under way is given back if the process ends. */
void
run_commands(QueueScan *scan)
{
	int			kept = 0;
	int			n = ncommands;

	for (int i = 0; i < n; i++)
	{
		Command		c = commands[i];

		if (!run_command(scan, &c))
			commands[kept++] = c;
	}
	memmove(&commands[kept], &commands[n], sizeof(Command) * (ncommands - n));
	ncommands -= n - kept;
}

void
take_commands(void)
{
	int			n;

	if (db->requests.ncancels == 0)
		return;
	while (commands_size < ncommands + JOBQ_MAX_COMMANDS + JOBQ_KEPT_COMMANDS)
		commands = grow_array(commands, &commands_size, sizeof(Command));
	SpinLockAcquire(&db->mutex);
	n = Min(db->requests.ncancels, Max(JOBQ_KEPT_COMMANDS - ncommands - npending, 0));
	memcpy(&commands[ncommands], db->requests.cancels, sizeof(Command) * n);
	db->requests.ncancels -= n;
	memmove(db->requests.cancels, &db->requests.cancels[n], sizeof(Command) * db->requests.ncancels);
	SpinLockRelease(&db->mutex);
	ncommands += n;
}

/* mutex is held; false: there is no room. */
static bool
give_back(const Command *c)
{
	if (db->requests.ncancels + db->requests.nreserved >= (int) lengthof(db->requests.cancels))
		return false;
	db->requests.cancels[db->requests.ncancels++] = *c;
	return true;
}

void
intake_leave(void)
{
	int			lost = 0;

	if (db == NULL)
		return;
	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < ncommands; i++)
		lost += !give_back(&commands[i]);
	for (int i = 0; i < npending; i++)
		lost += !give_back(&pending_cancels[i].command);
	SpinLockRelease(&db->mutex);
	if (lost > 0)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("jobq: %d cancels are lost with the dispatcher", lost)));
}

/* NULL: waits no longer. */
static void
wait_for_role(PendingCancel *p, RoleState *role)
{
	if (p->waits_for == role)
		return;
	if (p->waits_for)
		p->waits_for->cancels--;
	if (role)
		role->cancels++;
	p->waits_for = role;
}

void
hand_out_cancels(MonoTime now)
{
	for (int i = 0; i < npending;)
	{
		PendingCancel *p = &pending_cancels[i];
		TypeState  *t = type_state(p->ref.type_id);
		Known	   *k;

		if (hand_out(t, &p->ref, p->command.has_reason ? p->command.reason : NULL, now) != HANDED_OUT)
		{
			wait_for_role(p, t->role);
			i++;
			continue;
		}
		wait_for_role(p, NULL);
		if ((k = known_lookup(known_jobs, p->ref.id)) != NULL)
			k->where = IN_FLIGHT;
		pending_cancels[i] = pending_cancels[--npending];
	}
}

void
reread_cancels(void)
{
	for (int i = 0; i < npending; i++)
	{
		PendingCancel *p = &pending_cancels[i];

		wait_for_role(p, NULL);
		add_command(&p->command);
	}
	npending = 0;
}
