/*
 * lanes.c
 *	  Lanes and their timers.  lanes.h has the design and the invariant,
 *	  ready_queue.c the order of ready lanes.
 */
#include "jobq.h"

#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "lanes/lane_callbacks.h"
#include "lanes/ready_queue.h"

#define SH_PREFIX known
#define SH_ELEMENT_TYPE Known
#define SH_KEY_TYPE pg_uuid_t
#define SH_KEY id
#define SH_HASH_KEY(tb, key) hash_bytes((const unsigned char *) &(key), sizeof(pg_uuid_t))
#define SH_EQUAL(tb, a, b) (memcmp(&(a), &(b), sizeof(pg_uuid_t)) == 0)
#define SH_SCOPE extern
#define SH_DEFINE
#include "lib/simplehash.h"

#define MIN_CHUNK	16
#define MAX_RANGES	64

known_hash *known_jobs = NULL;
KeyCallbacks key_callbacks;
TenantCallbacks tenant_callbacks;
LeaseCallbacks lease_callbacks;

static MemoryContext lanes_context = NULL;
static HTAB *lanes = NULL;
static pairingheap *timers = NULL;
static int	waiting = 0;

/* ---------- order ---------- */

int
compare_refs(const JobRef *a, const JobRef *b)
{
	if (a->position != b->position)
		return a->position < b->position ? -1 : 1;
	return memcmp(&a->id, &b->id, sizeof(pg_uuid_t));
}

/*
 * Compares two jobs of a lane: jobs that are only to be settled go first,
 * since nothing that blocks the others blocks them.
 */
static int
compare_in_lane(const JobRef *a, const JobRef *b)
{
	bool		settles = ref_settles(a);

	if (settles != ref_settles(b))
		return settles ? -1 : 1;
	return compare_refs(a, b);
}

/* A pairingheap has the larger node on top. */
static int
compare_timers(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	Lane	   *x = pairingheap_container(Lane, node, unconstify(pairingheap_node *, a));
	Lane	   *y = pairingheap_container(Lane, node, unconstify(pairingheap_node *, b));

	if (x->next_due == y->next_due)
		return 0;
	return x->next_due < y->next_due ? 1 : -1;
}

/* ---------- the extra heap ---------- */

static void
extra_push(Lane *lane, const JobRef *ref)
{
	int			i;

	if (lane->nextra == lane->extrasize)
	{
		lane->extrasize = lane->extrasize ? lane->extrasize * 2 : 8;
		lane->extra = lane->extra ?
			repalloc(lane->extra, lane->extrasize * sizeof(JobRef)) :
			MemoryContextAlloc(lanes_context, lane->extrasize * sizeof(JobRef));
	}
	i = lane->nextra++;
	while (i > 0 && compare_in_lane(ref, &lane->extra[(i - 1) / 2]) < 0)
	{
		lane->extra[i] = lane->extra[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	lane->extra[i] = *ref;
}

static void
free_extra(Lane *lane)
{
	pfree(lane->extra);
	lane->extra = NULL;
	lane->extrasize = 0;
}

static void
extra_pop(Lane *lane)
{
	JobRef		last = lane->extra[--lane->nextra];
	int			i = 0;

	for (;;)
	{
		int			child = 2 * i + 1;

		if (child >= lane->nextra)
			break;
		if (child + 1 < lane->nextra &&
			compare_in_lane(&lane->extra[child + 1], &lane->extra[child]) < 0)
			child++;
		if (compare_in_lane(&last, &lane->extra[child]) <= 0)
			break;
		lane->extra[i] = lane->extra[child];
		i = child;
	}
	lane->extra[i] = last;
	if (lane->nextra == 0 && lane->extrasize > MAX_CHUNK)
		free_extra(lane);
}

/* ---------- lanes ---------- */

void
lanes_init(MemoryContext context, JobqDb *db)
{
	HASHCTL		ctl;

	lanes_context = AllocSetContextCreate(context, "jobq lanes", ALLOCSET_DEFAULT_SIZES);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(LaneId);
	ctl.entrysize = sizeof(Lane);
	ctl.hcxt = lanes_context;
	lanes = hash_create("jobq lanes", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	{
		MemoryContext old = MemoryContextSwitchTo(lanes_context);

		timers = pairingheap_allocate(compare_timers, NULL);
		MemoryContextSwitchTo(old);
	}
	ready_init(lanes_context);
	if (known_jobs == NULL)
		known_jobs = known_create(context, 1024, NULL);
	waiting = 0;
}

void
lanes_reset(void)
{
	MemoryContext parent = MemoryContextGetParent(lanes_context);
	known_iterator it;
	Known	   *k;

	MemoryContextDelete(lanes_context);
	/*
	 * the jobs that wait in lanes are read again; deleting while iterating is
	 * safe for the current entry
	 */
	known_start_iterate(known_jobs, &it);
	while ((k = known_iterate(known_jobs, &it)) != NULL)
	{
		if (k->where == IN_LANE)
			known_delete_item(known_jobs, k);
	}
	lanes_init(parent, NULL);
}

void
lanes_visit(void (*visit) (Lane *lane, void *arg), void *arg)
{
	HASH_SEQ_STATUS seq;
	Lane	   *lane;

	hash_seq_init(&seq, lanes);
	while ((lane = hash_seq_search(&seq)) != NULL)
		visit(lane, arg);
}

int
lanes_count(void)
{
	return (int) hash_get_num_entries(lanes);
}

int
lanes_waiting(void)
{
	return waiting;
}

Lane *
lane_get(const LaneId *id, LaneType *(*lane_type) (int32))
{
	bool		found;
	Lane	   *lane = hash_search(lanes, id, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) lane + sizeof(LaneId), 0, sizeof(Lane) - sizeof(LaneId));
		lane->type = lane_type(id->type_id);
		lane->group = ready_group(id, lane->type);
		lane->cursor.pos = DT_NOBEGIN;
		lane->next_due = DT_NOEND;
		lane->future = DT_NOBEGIN;
		lane->passed_from = DT_NOEND;
		lane->chunk = MIN_CHUNK;
	}
	return lane;
}

/*
 * Adds a range.  In a lane that nothing leaves (of a paused type) ranges would
 * pile up: from MAX_RANGES on they become one.
 */
static void
add_range(Lane *lane, TimestampTz lo, TimestampTz hi)
{
	MemoryContext old = MemoryContextSwitchTo(lanes_context);
	Range	   *range;

	if (list_length(lane->ranges) < MAX_RANGES)
	{
		range = palloc0(sizeof(Range));
		range->pos = lo;
		range->hi = hi;
		lane->ranges = lappend(lane->ranges, range);
	}
	else
	{
		range = llast(lane->ranges);
		range->hi = Max(range->hi, hi);
		range->pos = Min(range->pos, lo);
		memset(&range->tid, 0, sizeof(range->tid));	/* from the first row of that position on */
	}
	MemoryContextSwitchTo(old);
}

void
lane_publish(Lane *lane, TimestampTz lo, TimestampTz hi)
{
	lane->type->published += lo == hi ? 1 : PUBLISHED_MANY;
	if (lo <= lane->cursor.pos)
		add_range(lane, lo, Min(hi, lane->cursor.pos));
	if (hi > lane->cursor.pos)
		lane->next_due = Min(lane->next_due, Max(lo, lane->cursor.pos));
	if (lo != hi)
		lane->future = DT_NOBEGIN;	/* the keys between are not known: look ahead again */
	else
		lane->future = Min(lane->future, Max(lo, lane->cursor.pos));
}

/* Makes room for one more row read from the cursor. */
static void
buf_push(Lane *lane, const JobRef *ref)
{
	if (lane->bufpos == lane->nbuf)
		lane->bufpos = lane->nbuf = 0;
	if (lane->nbuf == lane->bufsize)
	{
		lane->bufsize = lane->bufsize ? lane->bufsize * 2 : MIN_CHUNK;
		lane->buf = lane->buf ?
			repalloc(lane->buf, lane->bufsize * sizeof(JobRef)) :
			MemoryContextAlloc(lanes_context, lane->bufsize * sizeof(JobRef));
	}
	lane->buf[lane->nbuf++] = *ref;
}

bool
lane_add(Lane *lane, const JobRef *ref, bool from_cursor)
{
	bool		found;
	Known	   *k = known_insert(known_jobs, ref->id, &found);

	if (found)
	{
		if (k->rev == ref->rev && k->where != IN_FLIGHT)
			return false;
		if (k->where != IN_LANE)
		{
			/*
			 * its executor may have found this very version locked, and have
			 * skipped it
			 */
			k->again = true;
			k->newer.type_id = ref->type_id;
			k->newer.priority = ref->priority;
			k->newer.sublane = ref->sublane;
			k->newer.lo = k->newer.hi = ref->position;
			return false;
		}
	}
	/*
	 * an older version that still waits in a lane is dropped when it is met
	 * (prune_head)
	 */
	k->where = IN_LANE;
	k->again = false;
	k->rev = ref->rev;
	if (from_cursor && !ref_settles(ref))
		buf_push(lane, ref);
	else
		extra_push(lane, ref);
	if (ref->key != 0)
		key_callbacks.enter(lane, ref);
	waiting++;
	return true;
}

void
lane_return(Lane *lane, const JobRef *ref)
{
	Known	   *k = known_lookup(known_jobs, ref->id);

	if (k)
		k->where = IN_LANE;
	if (!ref_settles(ref))
		ready_refund(lane);
	extra_push(lane, ref);
	if (ref->key != 0)
		key_callbacks.enter(lane, ref);
	waiting++;
}

bool
ref_is_stale(const JobRef *ref)
{
	Known	   *k = known_lookup(known_jobs, ref->id);

	return k == NULL || k->where != IN_LANE || k->rev != ref->rev;
}

/* Returns the head, stale or not. */
static JobRef *
raw_head(Lane *lane)
{
	JobRef	   *a = lane->bufpos < lane->nbuf ? &lane->buf[lane->bufpos] : NULL;
	JobRef	   *b = lane->nextra > 0 ? &lane->extra[0] : NULL;

	if (a == NULL || (b != NULL && compare_in_lane(b, a) < 0))
		return b;
	return a;
}

static void
drop_head(Lane *lane, JobRef *head)
{
	waiting--;
	if (head->key != 0)
		key_callbacks.leave(lane, head);
	if (lane->nextra > 0 && head == &lane->extra[0])
		extra_pop(lane);
	else
		lane->bufpos++;
}

/* Drops versions at the head that were replaced while they waited. */
static void
prune_head(Lane *lane)
{
	JobRef	   *head;

	while ((head = raw_head(lane)) != NULL && ref_is_stale(head))
	{
		JobRef		ref = *head;

		drop_head(lane, head);
		if (ref.key != 0)
			key_callbacks.lost(&ref);
		if (ref.tenant_limit != 0)
			tenant_callbacks.lost(&ref);
	}
}

JobRef *
lane_head(Lane *lane)
{
	return raw_head(lane);
}

void
lane_pop(Lane *lane, JobRef *ref)
{
	JobRef	   *head = raw_head(lane);

	*ref = *head;
	drop_head(lane, head);
}

bool
lane_wants_scan(Lane *lane, TimestampTz now)
{
	if (lane->ranges != NIL && lane->nextra < MIN_CHUNK)
		return true;
	return lane->bufpos == lane->nbuf && lane->next_due <= now;
}

/* Frees the buffers of an empty lane; small ones stay. */
static void
release_buffers(Lane *lane)
{
	if (lane->bufsize > MIN_CHUNK)
	{
		pfree(lane->buf);
		lane->buf = NULL;
		lane->bufpos = lane->nbuf = lane->bufsize = 0;
	}
	if (lane->extrasize > MIN_CHUNK)
		free_extra(lane);
}

/* ---------- places of lanes ---------- */

void
lane_unplace(Lane *lane)
{
	switch (lane->place)
	{
		case LANE_READY:
			ready_remove(lane);
			break;
		case LANE_TIMER:
			pairingheap_remove(timers, &lane->node);
			break;
		case LANE_NOWHERE:
			break;
	}
	lane->place = LANE_NOWHERE;
}

void
lane_place(Lane *lane, TimestampTz now)
{
	JobRef	   *head;

	lane_unplace(lane);
	prune_head(lane);
	head = raw_head(lane);
	if (head != NULL && (head->position <= now || ref_settles(head)))
	{
		lane->place = LANE_READY;
		ready_add(lane);
	}
	else
		lane->in_turn = false;
	if (head == NULL && lane->ranges == NIL && lane->next_due > now)
		release_buffers(lane);
	if (lane->place == LANE_NOWHERE && head != NULL)
		lane->next_due = Min(lane->next_due, head->position);	/* the clock was set back since it was read */
	if (lane->place == LANE_NOWHERE && (lane->next_due != DT_NOEND || lane->ranges != NIL))
	{
		if (lane->ranges != NIL)
			lane->next_due = Min(lane->next_due, now);
		lane->place = LANE_TIMER;
		pairingheap_add(timers, &lane->node);
	}
}

Lane *
lanes_first_ready(void)
{
	Lane	   *lane;

	while ((lane = ready_first()) != NULL && ref_is_stale(raw_head(lane)))
		lane_place(lane, GetCurrentTimestamp());
	return lane;
}

void
lanes_rerank(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	Lane	   *lane;

	hash_seq_init(&status, lanes);
	while ((lane = hash_seq_search(&status)) != NULL)
	{
		if (lane->place == LANE_READY)
			lane_place(lane, now);
	}
}

TimestampTz
lanes_next_timer(void)
{
	if (pairingheap_is_empty(timers))
		return DT_NOEND;
	return pairingheap_container(Lane, node, pairingheap_first(timers))->next_due;
}

Lane *
lanes_pop_due(TimestampTz now)
{
	Lane	   *lane;

	if (lanes_next_timer() > now)
		return NULL;
	lane = pairingheap_container(Lane, node, pairingheap_first(timers));
	lane->type->published += PUBLISHED_MANY;	/* as many as are due */
	lane_unplace(lane);
	return lane;
}
