/*
 * inbox.c
 *	  Publications of committed transactions.
 *
 * They are taken from shared memory under the database's spinlock, a few
 * hundred at a time, and kept here until the lanes have been read.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/grow_array.h"
#include "dispatch/inbox.h"
#include "dispatch/wakeup_filter.h"
#include "limits/concurrency_keys.h"
#include "workers/leases.h"
#include "workers/returned_jobs.h"

#define TAKE_AT_ONCE		256		/* publications copied under the spinlock */

static JobqDb *db;
static MemoryContext lasting;

static LaneKeys *pubs;			/* taken, not scanned */
static int	npubs = 0;
static int	pubs_size = 0;
static List *touched = NIL;		/* lanes to read, of inbox_apply */

void
inbox_init(MemoryContext context, JobqDb *mine)
{
	lasting = context;
	db = mine;
}

bool
inbox_pending(void)
{
	return npubs > 0 || rereads_pending();
}

static void
add_publication(const LaneKeys *keys)
{
	if (npubs == pubs_size)
		pubs = grow_array(lasting, pubs, &pubs_size, sizeof(LaneKeys));
	pubs[npubs++] = *keys;
}

/* Takes the publications of those transactions that have ended. */
static void
take_ended(XactKeys *keys, int *nkeys)
{
	XactKeys	copy[Max(JOBQ_MAX_PREPARED, JOBQ_SUCCESSORS)];
	int			n;
	int			kept = 0;

	SpinLockAcquire(&db->mutex);
	n = *nkeys;
	memcpy(copy, keys, sizeof(XactKeys) * n);
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		if (!TransactionIdIsInProgress(copy[i].xid))
			add_publication(&copy[i].pub);
		else
			copy[kept++] = copy[i];
	}
	if (kept == n)
		return;
	SpinLockAcquire(&db->mutex);
	/* others may have been added behind the n that were copied */
	memmove(&keys[kept], &keys[n], sizeof(XactKeys) * (*nkeys - n));
	memcpy(keys, copy, sizeof(XactKeys) * kept);
	*nkeys -= n - kept;
	SpinLockRelease(&db->mutex);
}

void
inbox_take(News *news)
{
	LaneKeys	some[TAKE_AT_ONCE];
	bool		more = true;
	bool		leases_lost = false;

	while (more)
	{
		int			n = 0;

		SpinLockAcquire(&db->mutex);
		while (n < TAKE_AT_ONCE && db->ring.head != db->ring.tail)
			some[n++] = db->ring.keys[db->ring.head++ % jobq_max_lanes];
		more = db->ring.head != db->ring.tail;
		if (db->ring.overflow)
		{
			news->lost_from = Min(news->lost_from, db->ring.overflow_lo);
			db->stats.publications_lost++;
		}
		db->ring.overflow = false;
		leases_lost |= db->ring.leases_lost;
		db->ring.leases_lost = false;
		news->types_changed |= db->requests.types_changed;
		db->requests.types_changed = false;
		news->signals_changed |= db->requests.signals_changed;
		db->requests.signals_changed = false;
		news->prepared_lost |= db->prepared.overflow;
		db->prepared.overflow = false;
		SpinLockRelease(&db->mutex);
		for (int i = 0; i < n; i++)
		{
			add_publication(&some[i]);
			if (some[i].type_id != KEY_NEWS && some[i].type_id != LEASE_NEWS)
				wakeup_filter_note(some[i].type_id);
		}
	}
	if (leases_lost)
		leases_suspect();
	if (db->prepared.nxacts > 0)
		take_ended(db->prepared.xacts, &db->prepared.nxacts);
	if (db->successors.n > 0)
		take_ended(db->successors.keys, &db->successors.n);
}

static void
apply_publication(const LaneKeys *pub, TimestampTz now)
{
	LaneId		id = {pub->type_id, pub->priority, pub->sublane};
	Lane	   *lane;

	if (id.type_id == LEASE_NEWS)
	{
		lease_publication(pub);
		return;
	}
	if (id.type_id == KEY_NEWS)
	{
		keys_published((uint64) pub->lo, pub->hi, pub->priority != 0);
		return;
	}
	lane = type_lane(&id);
	lane_unplace(lane);
	lane_publish(lane, pub->lo, pub->hi);
	lane_place(lane, now);
	if (lane->ranges != NIL && !lane->touched)
	{
		lane->touched = true;
		touched = lappend(touched, lane);
	}
}

/*
 * Gives the publications to their lanes, which then have keys to read besides
 * the cursor.
 */
void
inbox_apply(TimestampTz now)
{
	MemoryContext old = MemoryContextSwitchTo(lasting);
	int			n;
	const LaneKeys *rereads = take_rereads(&n);

	for (int i = 0; i < n; i++)
		apply_publication(&rereads[i], now);
	for (int i = 0; i < npubs; i++)
		apply_publication(&pubs[i], now);
	npubs = 0;
	MemoryContextSwitchTo(old);
}

/*
 * Reads late committers into their place in the order, whatever the lane waits
 * for.
 */
void
inbox_read_lanes(QueueScan *scan)
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
	inbox_forget_lanes();
}

void
inbox_forget_lanes(void)
{
	list_free(touched);
	touched = NIL;
}
