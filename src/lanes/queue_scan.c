/*
 * queue_scan.c
 *	  The dispatcher's reads of the queue.
 *
 * The order is fixed: take the publications, then the snapshot (scan_open in
 * queue_open.c), then scan.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/job_status.h"
#include "lanes/lane_callbacks.h"
#include "lanes/queue_scan.h"

#define TIE_CHUNK	65536		/* rows of one position that may be read at once */

static JobqDb *db;				/* has the marks: jobs beyond their number are not charged */

StaticAssertDecl(JOBQ_MAX_MARKS == 2 * JOBQ_MAX_SLOTS, "a mark or two for each executor");

void
scan_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
}

/* ---------- rows ---------- */

static int64
slot_int(TupleTableSlot *slot, int att)
{
	bool		isnull;

	return (int64) slot_getattr(slot, att, &isnull);
}

/* Adds the flags and the charge that an earlier attempt has left. */
static void
apply_mark(JobRef *ref)
{
	for (int i = 0; i < db->marks.njobs; i++)
	{
		const JobMark *mark = &db->marks.jobs[i];

		if (memcmp(&mark->id, &ref->id, sizeof(pg_uuid_t)) != 0 ||
			(mark->rev != ref->rev && mark->rev != ANY_REV))
			continue;
		ref->flags |= mark->flags;
		if (mark->charge != CHARGE_NONE)
			ref->charge = mark->charge;
	}
}

static void
drop_mark(int i)
{
	db->marks.njobs--;
	memmove(&db->marks.jobs[i], &db->marks.jobs[i + 1], sizeof(JobMark) * (db->marks.njobs - i));
}

void
scan_unmark(const pg_uuid_t *id)
{
	for (int i = db->marks.njobs - 1; i >= 0; i--)
	{
		if (memcmp(&db->marks.jobs[i].id, id, sizeof(pg_uuid_t)) == 0)
			drop_mark(i);
	}
}

void
scan_mark(const pg_uuid_t *id, int32 rev, uint8 flags, Charge charge)
{
	scan_unmark(id);
	if (db->marks.njobs == JOBQ_MAX_MARKS)
		drop_mark(0);			/* the oldest: its job may have been removed by a client */
	db->marks.jobs[db->marks.njobs].id = *id;
	db->marks.jobs[db->marks.njobs].rev = rev;
	db->marks.jobs[db->marks.njobs].flags = flags;
	db->marks.jobs[db->marks.njobs++].charge = charge;
}

/*
 * Returns the hash of the row's concurrency key without deforming the columns
 * before it: many rows have no key.
 */
static uint64
key_of(TupleTableSlot *slot, HeapTuple tuple)
{
	return heap_attisnull(tuple, Q_key_hash, slot->tts_tupleDescriptor) ? 0 : (uint64) slot_int(slot, Q_key_hash);
}

/*
 * True if the worker of the row's last attempt was terminated; for a row that
 * has not failed this costs the test of a bit.
 */
static bool
was_terminated(TupleTableSlot *slot, HeapTuple tuple)
{
	bool		isnull;
	struct varlena *code;

	if (heap_attisnull(tuple, Q_error_code, slot->tts_tupleDescriptor))
		return false;
	code = (struct varlena *) DatumGetPointer(slot_getattr(slot, Q_error_code, &isnull));
	return !VARATT_IS_EXTERNAL(code) && !VARATT_IS_COMPRESSED(code) &&	/* longer than this one */
		VARSIZE_ANY_EXHDR(code) == strlen(CODE_TERMINATED) &&
		memcmp(VARDATA_ANY(code), CODE_TERMINATED, strlen(CODE_TERMINATED)) == 0;
}

JobStatus
scan_ref(QueueScan *scan, JobRef *ref)
{
	TupleTableSlot *slot = scan->slot;
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	bool		isnull;

	slot_getsomeattrs(slot, Q_sublane);
	ref->id = *DatumGetUUIDP(slot_getattr(slot, Q_id, &isnull));
	ref->tid = slot->tts_tid;
	ref->flags = 0;
	ref->charge = CHARGE_NONE;
	ref->rev = (int32) slot_int(slot, Q_rev);
	ref->type_id = (int32) slot_int(slot, Q_type_id);
	ref->attempts = (int32) slot_int(slot, Q_attempts);
	ref->runs = (int32) slot_int(slot, Q_runs);
	ref->position = slot_int(slot, Q_position);
	ref->priority = (int16) slot_int(slot, Q_priority);
	ref->sublane = (int16) slot_int(slot, Q_sublane);
	if (slot_int(slot, Q_crashes) > 0 || was_terminated(slot, tuple))
		ref->flags |= REF_ALONE;
	ref->tenant_limit = tenant_callbacks.limit_of(slot);
	ref->key = key_of(slot, tuple);
	return status_from_oid((Oid) slot_int(slot, Q_status));
}

bool
scan_row_is_ours(QueueScan *scan)
{
	return (int32) slot_int(scan->slot, Q_home_id) == scan->home;
}

/*
 * Takes the row into the lane if it may be handed out.  A row that says
 * running and is not in flight has lost its executor: it is handed out, too,
 * to be settled.
 */
bool
scan_take(QueueScan *scan, Lane *lane, bool from_cursor)
{
	JobRef		ref;
	JobStatus	status = scan_ref(scan, &ref);

	if (!scan_row_is_ours(scan) || status == JOB_BLOCKED)
		return false;
	if (status == JOB_RUNNING)
	{
		if (known_lookup(known_jobs, ref.id) != NULL || lease_callbacks.adopt(scan, &ref))
			return false;
		ref.charge = CHARGE_CRASHED;
	}
	apply_mark(&ref);
	if (ref.key != 0 && known_lookup(known_jobs, ref.id) == NULL && !key_callbacks.admits(scan, lane, &ref))
	{
		lane_note_passed(lane, ref.position, WHY_KEY);
		return false;
	}
	return lane_add(lane, &ref, from_cursor);
}

/* ---------- scans ---------- */

static void
start_scan(QueueScan *scan, const LaneId *id, StrategyNumber strategy, RegProcedure from_proc,
		   TimestampTz from, TimestampTz to)
{
	ScanKeyData keys[5];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->type_id));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id->priority));
	ScanKeyInit(&keys[2], 3, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id->sublane));
	ScanKeyInit(&keys[3], 4, strategy, from_proc, TimestampTzGetDatum(from));
	ScanKeyInit(&keys[4], 4, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(to));
	scan->desc->xs_want_itup = true;
	index_rescan(scan->desc, keys, 5, NULL, 0);
}

static TimestampTz
entry_position(QueueScan *scan)
{
	bool		isnull;

	return DatumGetTimestampTz(index_getattr(scan->desc->xs_itup, 4,
											 RelationGetDescr(scan->lane_index), &isnull));
}

/*
 * Moves *at to the next index entry up to hi; false: none.  Entries of at's
 * own position and before its TID have been read (equal keys are in TID
 * order); *skipped counts them.
 */
static bool
next_entry(QueueScan *scan, Range *at, int *skipped)
{
	ItemPointer tid;

	while ((tid = index_getnext_tid(scan->desc, ForwardScanDirection)) != NULL)
	{
		TimestampTz pos = entry_position(scan);

		CHECK_FOR_INTERRUPTS();	/* there may be millions of dead entries */
		if (pos == at->pos && ItemPointerCompare(tid, &at->tid) <= 0)
		{
			(*skipped)++;
			continue;
		}
		at->pos = pos;
		at->tid = *tid;
		return true;
	}
	return false;
}

/* Reads up to limit live rows from *at on; true: there may be more. */
static bool
read_rows(QueueScan *scan, Lane *lane, Range *at, TimestampTz hi, int limit, bool from_cursor)
{
	int			n = 0;
	int			skipped = 0;

	start_scan(scan, &lane->id, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, at->pos, hi);
	while (next_entry(scan, at, &skipped))
	{
		if (skipped > limit * 2 && limit < TIE_CHUNK)
			limit = Min(skipped / 2, TIE_CHUNK);	/* many equal keys: keep the rereading linear */
		if (!index_fetch_heap(scan->desc, scan->slot))
			continue;
		(void) scan_take(scan, lane, from_cursor);
		if (++n >= limit)
			return true;
	}
	return false;
}

/*
 * Returns the smallest live key after now: the one walk over dead future keys.
 * Blocked jobs lie beyond, at infinity.
 */
static TimestampTz
look_ahead(QueueScan *scan, Lane *lane)
{
	Range		at = {.pos = DT_NOBEGIN};
	int			skipped = 0;

	start_scan(scan, &lane->id, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT, scan->now, END_TIMESTAMP - 1);
	while (next_entry(scan, &at, &skipped))
	{
		if (index_fetch_heap(scan->desc, scan->slot))
			return at.pos;
	}
	return DT_NOEND;
}

bool
scan_leases(QueueScan *scan, const LaneId *id, Range *at, int *budget)
{
	TimestampTz last = at->pos;
	int			skipped = 0;

	start_scan(scan, id, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, at->pos, at->hi);
	while (next_entry(scan, at, &skipped))
	{
		JobRef		ref;

		if (*budget <= 0 && at->pos != last)
		{
			/* a heartbeat may move a row of the position before the ones read */
			memset(&at->tid, 0, sizeof(at->tid));
			return false;
		}
		last = at->pos;
		(*budget)--;
		if (index_fetch_heap(scan->desc, scan->slot) && scan_ref(scan, &ref) == JOB_RUNNING &&
			scan_row_is_ours(scan) && known_lookup(known_jobs, ref.id) == NULL)
			(void) lease_callbacks.adopt(scan, &ref);
	}
	return true;
}

static void
scan_ranges(QueueScan *scan, Lane *lane)
{
	ListCell   *lc;

	foreach(lc, lane->ranges)
	{
		Range	   *range = lfirst(lc);

		if (read_rows(scan, lane, range, range->hi, lane->chunk, false))
			return;				/* the rest is read when these have been handed out */
		pfree(range);
		lane->ranges = foreach_delete_current(lane->ranges, lc);
	}
}

static void
scan_cursor(QueueScan *scan, Lane *lane)
{
	if (read_rows(scan, lane, &lane->cursor, scan->now, lane->chunk, true))
	{
		lane->next_due = lane->cursor.pos;
		lane->chunk = Min(lane->chunk * 2, lane->id.sublane == 0 ? MAX_CHUNK : MAX_FAIR_CHUNK);
		return;
	}
	/*
	 * all keys that are due have been read: a key up to now that commits later
	 * is published as a late one
	 */
	if (lane->cursor.pos < scan->now)
	{
		lane->cursor.pos = scan->now;
		ItemPointerSetInvalid(&lane->cursor.tid);
	}
	if (lane->future <= scan->now)
		lane->future = look_ahead(scan, lane);
	lane->next_due = lane->future;
}

void
scan_lane(QueueScan *scan, Lane *lane)
{
	if (lane->ranges != NIL && lane->nextra < lane->chunk)
		scan_ranges(scan, lane);
	if (lane->bufpos == lane->nbuf && lane->next_due <= scan->now)
		scan_cursor(scan, lane);
}

bool
scan_behind(QueueScan *scan, Lane *lane, Range *at, int *budget)
{
	int			skipped = 0;

	start_scan(scan, &lane->id, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, at->pos,
			   lane->cursor.pos);
	while (next_entry(scan, at, &skipped))
	{
		if (index_fetch_heap(scan->desc, scan->slot))
			(void) scan_take(scan, lane, false);
		if (--*budget <= 0)
			return false;
	}
	return true;
}

int64
scan_count_due(QueueScan *scan, Lane *lane, MonoTime until, bool *exact)
{
	Range		at = lane->cursor;
	int			skipped = 0;
	int			entries = 0;
	int64		n = 0;

	start_scan(scan, &lane->id, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, at.pos, scan->now);
	while (next_entry(scan, &at, &skipped))
	{
		if (index_fetch_heap(scan->desc, scan->slot))
			n++;
		if (++entries % 64 == 0 && mono_now() > until)
		{
			*exact = false;
			break;
		}
	}
	return n;
}

/* True if the entry's row waits and is in no memory. */
static bool
entry_was_passed(QueueScan *scan)
{
	JobStatus	status;
	bool		isnull;

	if (!index_fetch_heap(scan->desc, scan->slot) || !scan_row_is_ours(scan))
		return false;
	status = status_from_oid((Oid) slot_int(scan->slot, Q_status));
	return (status == JOB_PENDING || status == JOB_RETRY) &&
		known_lookup(known_jobs, *DatumGetUUIDP(slot_getattr(scan->slot, Q_id, &isnull))) == NULL;
}

int64
scan_count_passed(QueueScan *scan, Lane *lane, MonoTime until, bool *exact)
{
	Range		at = {.pos = lane->passed_from};
	TimestampTz first = DT_NOEND;
	int			skipped = 0;
	int			entries = 0;
	int64		n = 0;

	start_scan(scan, &lane->id, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, at.pos, lane->cursor.pos);
	while (next_entry(scan, &at, &skipped))
	{
		if (entry_was_passed(scan) && n++ == 0)
			first = at.pos;
		if (++entries % 64 == 0 && mono_now() > until)
		{
			*exact = false;
			first = Min(first, at.pos);
			break;
		}
	}
	lane->passed_from = first;
	lane->oldest_passed = first;
	return lane->npassed = n;
}

bool
scan_passed(QueueScan *scan, Lane *lane, Range *at, WantsRow wanted, const void *arg, int n, int *budget)
{
	int			skipped = 0;

	start_scan(scan, &lane->id, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, at->pos,
			   Min(lane->cursor.pos, scan->now));
	while (n > 0 && *budget > 0)
	{
		if (!next_entry(scan, at, &skipped))
			return false;
		(*budget)--;
		if (index_fetch_heap(scan->desc, scan->slot) && wanted(scan->slot, arg) && scan_take(scan, lane, false))
			n--;
	}
	return true;
}

/* ---------- finding lanes ---------- */

/*
 * Finds the first index entry that satisfies the keys, dead or alive; fills
 * *id.
 */
static bool
first_entry(QueueScan *scan, ScanKey keys, int nkeys, LaneId *id)
{
	IndexScanDesc desc = index_beginscan(scan->queue, scan->lane_index, scan->snapshot, NULL,
										 nkeys, 0, SO_NONE);
	TupleDesc	tupdesc = RelationGetDescr(scan->lane_index);
	bool		found;
	bool		isnull;

	desc->xs_want_itup = true;
	index_rescan(desc, keys, nkeys, NULL, 0);
	found = index_getnext_tid(desc, ForwardScanDirection) != NULL;
	if (found)
	{
		id->type_id = DatumGetInt32(index_getattr(desc->xs_itup, 1, tupdesc, &isnull));
		id->priority = DatumGetInt16(index_getattr(desc->xs_itup, 2, tupdesc, &isnull));
		id->sublane = DatumGetInt16(index_getattr(desc->xs_itup, 3, tupdesc, &isnull));
	}
	index_endscan(desc);
	return found;
}

bool
scan_next_lane(QueueScan *scan, LaneId *id)
{
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->type_id));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id->priority));
	ScanKeyInit(&keys[2], 3, BTGreaterStrategyNumber, F_INT2GT, Int16GetDatum(id->sublane));
	if (first_entry(scan, keys, 3, id))
		return true;
	/*
	 * priority is a descending column: the next one is the largest that is
	 * less
	 */
	ScanKeyInit(&keys[1], 2, BTLessStrategyNumber, F_INT2LT, Int16GetDatum(id->priority));
	if (first_entry(scan, keys, 2, id))
		return true;
	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT4GT, Int32GetDatum(id->type_id));
	return first_entry(scan, keys, 1, id);
}

bool
scan_find(QueueScan *scan, const pg_uuid_t *id, JobRef *ref, JobStatus *status)
{
	IndexScanDesc desc = index_beginscan(scan->queue, scan->id_index, scan->snapshot, NULL, 1, 0, SO_NONE);
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	index_rescan(desc, &key, 1, NULL, 0);
	found = index_getnext_slot(desc, ForwardScanDirection, scan->slot);
	if (found)
		*status = scan_ref(scan, ref);
	index_endscan(desc);
	return found;
}
