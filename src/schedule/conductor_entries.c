/*
 * conductor_entries.c
 *	  The conductor's memory: see conductor_entries.h.
 *
 * The time at which a schedule is due is calculated again from its row, and
 * not taken from next_tick: time zones may have changed.  A row with another
 * next_tick is due at once, so that it is written again.  One that waits for
 * the end of a job looks at that job each minute: the end may not be heard, of
 * a job that was retried, say.
 */
#include "jobq.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "schedule/conductor_entries.h"
#include "schedule/schedule_ticks.h"

#define BUSY_US			INT64CONST(200000)	/* doubled by each try */
#define MAX_BUSY_SHIFT	4
#define HOPELESS_US		USECS_PER_MINUTE
#define LOOK_US			USECS_PER_MINUTE	/* between looks at a job that is
											 * awaited */

EntryCounts entry_counts;

static MemoryContext lasting;
static HTAB *entries = NULL;
static pairingheap heap;

/* The first of the heap is the greatest: the earliest. */
static int
compare_due(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(ScheduleEntry, node, a)->due;
	TimestampTz right = pairingheap_const_container(ScheduleEntry, node, b)->due;

	return left < right ? 1 : left > right ? -1 : 0;
}

static void
make_table(void)
{
	HASHCTL		info = {.keysize = sizeof(int32), .entrysize = sizeof(ScheduleEntry), .hcxt = lasting};

	entries = hash_create("jobq schedules", 1024, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	heap.ph_compare = compare_due;
	heap.ph_arg = NULL;
	heap.ph_root = NULL;
	memset(&entry_counts, 0, sizeof(entry_counts));
}

void
entries_init(MemoryContext context)
{
	lasting = context;
	make_table();
}

void
entries_clear(void)
{
	hash_destroy(entries);
	make_table();
}

ScheduleEntry *
entry_find(int32 id)
{
	return hash_search(entries, &id, HASH_FIND, NULL);
}

static void
count(const ScheduleEntry *e, int change)
{
	entry_counts.all += change;
	if (e->status == SCHEDULE_ACTIVE)
		entry_counts.active += change;
	if (e->paused_by_jobq)
		entry_counts.paused_by_jobq += change;
	if (e->hears)
		entry_counts.hearing += change;
	if (e->deferred)
		entry_counts.deferred += change;
}

static void
leave_heap(ScheduleEntry *e)
{
	if (e->in_heap)
		pairingheap_remove(&heap, &e->node);
	e->in_heap = false;
}

static void
enter_heap(ScheduleEntry *e, TimestampTz due)
{
	leave_heap(e);
	e->due = due;
	if (due == DT_NOEND)
		return;
	pairingheap_add(&heap, &e->node);
	e->in_heap = true;
}

static TimestampTz
due_of(Schedule *s)
{
	TimestampTz stored = S_NULL(s, S_next_tick) ? DT_NOEND : S_TIME(s, S_next_tick);
	TimestampTz tick;

	if (s->status == SCHEDULE_PAUSED)
		return S_NULL(s, S_paused_until) ? DT_NOEND : S_TIME(s, S_paused_until);
	if (s->status == SCHEDULE_FINISHED)
		return DT_NOEND;
	if (schedule_trouble(s) != NULL)
		return DT_NOBEGIN;
	tick = schedule_first_tick(s);
	if (tick == DT_NOEND && (!schedule_is_after(s) || S_NULL(s, S_last_job_id)))
		return DT_NOBEGIN;		/* its turn ends it, or sets the first tick */
	return tick == stored ? tick : DT_NOBEGIN;
}

void
entry_set(Schedule *s)
{
	int32		id = S_INT(s, S_id);
	ScheduleEntry *e;
	bool		found;

	if (s->status == SCHEDULE_FINISHED && S_NULL(s, S_waiting_tick))
	{
		entry_remove(id);
		return;
	}
	e = hash_search(entries, &id, HASH_ENTER, &found);
	if (found)
		count(e, -1);
	else
	{
		e->in_heap = false;
		e->missed_until = DT_NOBEGIN;
	}
	e->tid = s->tid;
	e->status = s->status;
	e->paused_by_jobq = DatumGetBool(S_ATT(s, S_paused_by_jobq));
	e->hears = schedule_trouble(s) == NULL && schedule_hears(s);
	e->deferred = false;
	e->tries = 0;
	count(e, 1);
	e->tick = due_of(s);
	if (e->tick > e->missed_until)
		e->missed_until = DT_NOBEGIN;
	enter_heap(e, schedule_trouble(s) == NULL && schedule_waits(s) ? Min(e->tick, GetCurrentTimestamp() + LOOK_US) : e->tick);
}

void
entry_remove(int32 id)
{
	ScheduleEntry *e = entry_find(id);

	if (e == NULL)
		return;
	count(e, -1);
	leave_heap(e);
	(void) hash_search(entries, &id, HASH_REMOVE, NULL);
}

/* Puts an entry off; its tick counts as late until it is read again. */
static void
defer(ScheduleEntry *e, TimestampTz until)
{
	count(e, -1);
	e->deferred = true;
	entry_counts.late_since = entry_counts.deferred == 0 ? e->tick : Min(entry_counts.late_since, e->tick);
	count(e, 1);
	enter_heap(e, until);
}

void
entry_defer(int32 id, bool hopeless)
{
	ScheduleEntry *e = entry_find(id);
	TimestampTz now = GetCurrentTimestamp();

	if (e == NULL)
		return;
	if (e->tick == DT_NOBEGIN)
		e->tick = now;
	defer(e, now + (hopeless ? HOPELESS_US : BUSY_US << Min(e->tries, MAX_BUSY_SHIFT)));
	if (e->tries < MAX_BUSY_SHIFT)
		e->tries++;
}

void
entry_go_on(int32 id, TimestampTz missed_until)
{
	ScheduleEntry *e = entry_find(id);

	if (e == NULL)
		return;
	e->missed_until = missed_until;
	defer(e, GetCurrentTimestamp());
}

static ScheduleEntry *
first_entry(void)
{
	return pairingheap_is_empty(&heap) ? NULL : pairingheap_container(ScheduleEntry, node, pairingheap_first(&heap));
}

TimestampTz
entries_due(void)
{
	ScheduleEntry *e = first_entry();

	return e == NULL ? DT_NOEND : e->due;
}

TimestampTz
entries_tick(void)
{
	TimestampTz due = entries_due();

	if (due == DT_NOBEGIN)
		due = DT_NOEND;			/* its row is written again */
	return entry_counts.deferred > 0 ? Min(due, entry_counts.late_since) : due;
}

ScheduleEntry *
entries_take(TimestampTz now)
{
	ScheduleEntry *e = first_entry();

	if (e == NULL || e->due > now)
		return NULL;
	leave_heap(e);
	return e;
}

int32 *
entries_that_hear(int *n)
{
	int32	   *ids = palloc(sizeof(int32) * Max(entry_counts.hearing, 1));
	HASH_SEQ_STATUS seq;
	ScheduleEntry *e;

	*n = 0;
	hash_seq_init(&seq, entries);
	while ((e = hash_seq_search(&seq)) != NULL)
	{
		if (e->hears)
			ids[(*n)++] = e->id;
	}
	return ids;
}
