/*
 * concurrency_key_scan.c
 *	  Reads the jobs of one concurrency key, by the two indexes that begin with
 *	  it.
 *
 * Both scans go on where the last one stopped.  Index entries of jobs that
 * have ended stay as long as a transaction holds the horizon; so they are read
 * once.
 */
#include "jobq.h"

#include "access/genam.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "limits/concurrency_keys.h"

/* ---------- in the order of the key ---------- */

static bool
row_is_ours(QueueScan *scan)
{
	bool		isnull;

	return DatumGetInt32(slot_getattr(scan->slot, Q_home_id, &isnull)) == scan->home;
}

/* Reads the first live row of the key into scan->slot. */
static bool
find_first(QueueScan *scan, Key *key)
{
	Relation	index = scan_key_order_index(scan);
	IndexScanDesc desc;
	ScanKeyData keys[2];
	bool		found = false;
	bool		isnull;

	if (index == NULL)
		return false;
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, UInt64GetDatum(key->hash));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(key->first_from));
	desc = index_beginscan(scan->queue, index, scan->snapshot, NULL, 2, 0, SO_NONE);
	desc->xs_want_itup = true;
	index_rescan(desc, keys, 2, NULL, 0);
	while (!found && index_getnext_tid(desc, ForwardScanDirection) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		key->first_from = DatumGetTimestampTz(index_getattr(desc->xs_itup, 2, RelationGetDescr(index), &isnull));
		found = index_fetch_heap(desc, scan->slot) && row_is_ours(scan);
	}
	index_endscan(desc);
	return found;
}

bool
key_scan_is_first(QueueScan *scan, Key *key, const JobRef *ref)
{
	bool		isnull;

	return find_first(scan, key) &&
		memcmp(DatumGetUUIDP(slot_getattr(scan->slot, Q_id, &isnull)), &ref->id, UUID_LEN) == 0;
}

/* Returns the lane of the row in scan->slot. */
static Lane *
lane_of_row(QueueScan *scan, TimestampTz *position)
{
	JobRef		ref;
	LaneId		id;

	(void) scan_ref(scan, &ref);
	id.type_id = ref.type_id;
	id.priority = ref.priority;
	id.sublane = ref.sublane;
	*position = ref.position;
	return type_lane(&id);
}

void
key_scan_first(QueueScan *scan, Key *key)
{
	Lane	   *lane;
	TimestampTz position;
	bool		isnull;

	if (!find_first(scan, key) || key_is_busy(key, DatumGetUUIDP(slot_getattr(scan->slot, Q_id, &isnull))))
		return;
	lane = lane_of_row(scan, &position);
	if (!type_of(lane->type)->keeps_order || position > scan->now)
		return;					/* a read of its lane finds it */
	lane_unplace(lane);
	(void) scan_take(scan, lane, false);
	lane_place(lane, scan->now);
}

/* ---------- in the order of a lane ---------- */

static IndexScanDesc
begin_passed(QueueScan *scan, Relation index, uint64 hash, const KeyLane *kl)
{
	const LaneId *id = &kl->lane->id;
	ScanKeyData keys[6];
	IndexScanDesc desc;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, UInt64GetDatum(hash));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->type_id));
	ScanKeyInit(&keys[2], 3, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id->priority));
	ScanKeyInit(&keys[3], 4, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id->sublane));
	ScanKeyInit(&keys[4], 5, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(kl->from.pos));
	ScanKeyInit(&keys[5], 5, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
				TimestampTzGetDatum(Min(kl->lane->cursor.pos, scan->now)));
	desc = index_beginscan(scan->queue, index, scan->snapshot, NULL, 6, 0, SO_NONE);
	desc->xs_want_itup = true;
	index_rescan(desc, keys, 6, NULL, 0);
	return desc;
}

/*
 * Reads jobs of a lane that were passed over.  The lane's memory is about to
 * change, so it must be in no heap.
 */
static bool
read_passed(QueueScan *scan, Relation index, uint64 hash, KeyLane *kl, int n)
{
	IndexScanDesc desc = begin_passed(scan, index, hash, kl);
	int			enough = kl->waiting + n;
	ItemPointer tid;
	bool		isnull;

	while (kl->waiting < enough && (tid = index_getnext_tid(desc, ForwardScanDirection)) != NULL)
	{
		TimestampTz pos = DatumGetTimestampTz(index_getattr(desc->xs_itup, 5, RelationGetDescr(index), &isnull));

		CHECK_FOR_INTERRUPTS();
		if (pos == kl->from.pos && ItemPointerCompare(tid, &kl->from.tid) <= 0)
			continue;			/* has been read: equal keys are in TID order */
		kl->from.pos = pos;
		kl->from.tid = *tid;
		if (index_fetch_heap(desc, scan->slot))
			(void) scan_take(scan, kl->lane, false);
	}
	index_endscan(desc);
	return kl->waiting >= enough;
}

bool
key_scan_passed(QueueScan *scan, Key *key, KeyLane *kl, int n)
{
	Relation	index = scan_key_lane_index(scan);
	Lane	   *lane = kl->lane;
	bool		more;

	if (index == NULL)
		return true;
	lane_unplace(lane);
	more = read_passed(scan, index, key->hash, kl, n);
	lane_place(lane, scan->now);
	return more;
}
