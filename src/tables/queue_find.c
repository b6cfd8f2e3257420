/*
 * queue_find.c
 *	  Finding live jobs by id, and locking one for a management call.
 *
 * A management call may wait for another transaction that holds the job's row,
 * but never for a handler.  A job runs when its row says so or when an
 * executor has begun it (its slot says so before it locks the row).  Then the
 * answer is LOCK_BUSY.  A handler can lock the earlier jobs of its own batch:
 * the settlement of a job that it has changed raises 40001, and each of them
 * runs again alone.
 */
#include "jobq.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "shared/current_job.h"
#include "shared/xact_changes.h"
#include "tables/queue_find.h"
#include "tables/queue_table.h"

/*
 * Returns a valid index of t on exactly these columns; NULL: none.  That of
 * unique keys is partial; another partial one may lack the row.
 */
Relation
table_index(Table *t, const AttrNumber *columns, int ncolumns)
{
	int			i;

	for (i = 0; i < t->rri->ri_NumIndices; i++)
	{
		Relation	rel = t->rri->ri_IndexRelationDescs[i];
		Form_pg_index index = rel->rd_index;
		int			k;

		if (!index->indisvalid || index->indnkeyatts != ncolumns ||
			(!heap_attisnull(rel->rd_indextuple, Anum_pg_index_indpred, NULL) && !(index->indisunique && ncolumns > 1)))
			continue;
		for (k = 0; k < ncolumns; k++)
			if (index->indkey.values[k] != columns[k])
				break;
		if (k == ncolumns)
			return rel;
	}
	return NULL;
}

/* Finds a job without the index, which was dropped or is being rebuilt. */
static bool
find_by_heap_scan(Table *queue, const pg_uuid_t *id, Snapshot snapshot)
{
	ScanKeyData key;
	TableScanDesc scan;
	bool		found;

	ScanKeyInit(&key, Q_id, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	scan = table_beginscan(queue->rel, snapshot, 1, &key, SO_NONE);
	found = table_scan_getnextslot(scan, ForwardScanDirection, queue->slot);
	table_endscan(scan);
	return found;
}

static bool
find_by_index_scan(Table *queue, Relation index, const pg_uuid_t *id, Snapshot snapshot)
{
	ScanKeyData key;
	IndexScanDesc scan;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	scan = index_beginscan(queue->rel, index, snapshot, NULL, 1, 0, SO_NONE);
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, queue->slot);
	index_endscan(scan);
	return found;
}

bool
queue_find_by_id(Table *queue, const pg_uuid_t *id, Snapshot snapshot, Job *job)
{
	static const AttrNumber columns[] = {Q_id};
	Relation	index = table_index(queue, columns, lengthof(columns));
	bool		found;

	if (index != NULL)
		found = find_by_index_scan(queue, index, id, snapshot);
	else
		found = find_by_heap_scan(queue, id, snapshot);
	if (found)
		job_from_slot(queue, job);
	ExecClearTuple(queue->slot);
	return found;
}

/* True if its handler has called us: also that of jobq.run_inline, which no slot knows of. */
static bool
job_runs_here(Job *job)
{
	const CurrentJob *current = current_job();

	return current != NULL && memcmp(&current->id, JOB_ID(job), UUID_LEN) == 0;
}

/*
 * True if this very version has begun: an executor may have committed a newer
 * one and not reported it yet.
 */
bool
job_has_begun(Job *job)
{
	Slot	   *slot;
	int			cell;

	if (job_runs_here(job))
		return true;
	if (JobqShmem == NULL)
		return false;
	slot = slot_find_job(MyDatabaseId, JOB_ID(job), &cell);
	return slot != NULL && pg_atomic_read_u32(&slot->cells[cell].state) == CELL_BEGUN &&
		slot->cells[cell].ref.rev == JOB_INT(job, Q_rev);
}

bool
job_is_running(Job *job)
{
	return job->status == JOB_RUNNING || job_has_begun(job);
}

/* --- waiting for the holder of a row --- */

static void
wait_for_xid(TransactionId xid)
{
	if (!TransactionIdIsCurrentTransactionId(xid) && TransactionIdIsInProgress(xid))
		XactLockTableWait(xid, NULL, NULL, XLTW_None);
}

/* Returns the transaction that locks or changes the row in the slot. */
static TransactionId
slot_locker(TupleTableSlot *slot, uint16 *infomask)
{
	BufferHeapTupleTableSlot *held = (BufferHeapTupleTableSlot *) slot;
	HeapTupleHeader header = held->base.tuple->t_data;
	TransactionId xid;

	LockBuffer(held->buffer, BUFFER_LOCK_SHARE);
	xid = HeapTupleHeaderGetRawXmax(header);
	*infomask = header->t_infomask;
	LockBuffer(held->buffer, BUFFER_LOCK_UNLOCK);
	return (*infomask & HEAP_XMAX_INVALID) ? InvalidTransactionId : xid;
}

bool
slot_is_locked(TupleTableSlot *slot)
{
	uint16		infomask;
	TransactionId xid = slot_locker(slot, &infomask);

	if (!TransactionIdIsValid(xid))
		return false;
	if (infomask & HEAP_XMAX_IS_MULTI)
		return MultiXactIdIsRunning(xid, HEAP_XMAX_IS_LOCKED_ONLY(infomask));
	return !TransactionIdIsCurrentTransactionId(xid) && TransactionIdIsInProgress(xid);
}

TransactionId
slot_changer(TupleTableSlot *slot)
{
	BufferHeapTupleTableSlot *held = (BufferHeapTupleTableSlot *) slot;
	HeapTupleHeader header = held->base.tuple->t_data;
	TransactionId xid = InvalidTransactionId;

	LockBuffer(held->buffer, BUFFER_LOCK_SHARE);
	if ((header->t_infomask & HEAP_XMAX_INVALID) == 0 && !HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask))
		xid = HeapTupleHeaderGetUpdateXid(header);
	LockBuffer(held->buffer, BUFFER_LOCK_UNLOCK);
	if (!TransactionIdIsValid(xid))
		return InvalidTransactionId;
	if (TransactionIdIsInProgress(xid))
		return SubTransGetTopmostTransaction(xid);
	return TransactionIdDidCommit(xid) ? xid : InvalidTransactionId;
}

/* Waits until all lockers have ended; then the caller reads the row again. */
static void
wait_for_locker(TupleTableSlot *slot)
{
	uint16		infomask;
	TransactionId xid = slot_locker(slot, &infomask);
	MultiXactMember *members;
	int			nmembers;
	int			i;

	ExecClearTuple(slot);		/* no page stays pinned during the wait */
	if (!TransactionIdIsValid(xid))
		return;
	if (!(infomask & HEAP_XMAX_IS_MULTI))
	{
		wait_for_xid(xid);
		return;
	}
	nmembers = GetMultiXactIdMembers(xid, &members, false, HEAP_XMAX_IS_LOCKED_ONLY(infomask));
	for (i = 0; i < nmembers; i++)
		wait_for_xid(members[i].xid);
}

/* --- locking --- */

/*
 * Tries to lock the row.  *held: another transaction, no handler, has it; then
 * it is left in the slot.
 */
static LockResult
try_lock(Table *queue, Job *seen, Job *job, bool *held)
{
	ItemPointerData tid = seen->tid;
	LockResult	result = LOCK_GONE;
	TM_Result	locked;

	*held = false;
	if (seen->status == JOB_RUNNING || job_runs_here(seen))
		return LOCK_BUSY;
	if (queue_fetch_version(queue, &tid))
	{
		job_from_slot(queue, job);
		if (memcmp(JOB_ID(job), JOB_ID(seen), UUID_LEN) == 0)
		{
			locked = queue_lock_version(queue);
			if (locked == TM_Ok)
				result = LOCK_OK;
			else if (locked == TM_WouldBlock && job_has_begun(seen))
				result = LOCK_BUSY;
			else if (locked == TM_WouldBlock)
				*held = true;
		}
	}
	if (!*held)
		ExecClearTuple(queue->slot);
	return result;
}

bool
queue_lock_seen(Table *queue, const Job *seen)
{
	ItemPointerData tid = seen->tid;
	bool		isnull;
	bool		locked;

	locked = queue_fetch_version(queue, &tid) &&
		memcmp(DatumGetUUIDP(slot_getattr(queue->slot, Q_id, &isnull)), JOB_ID(seen), UUID_LEN) == 0 &&
		DatumGetInt32(slot_getattr(queue->slot, Q_rev, &isnull)) == JOB_INT(seen, Q_rev) &&
		queue_lock_version(queue) == TM_Ok;
	ExecClearTuple(queue->slot);
	return locked;
}

bool
queue_lock_leased(Table *queue, Job *seen, Job *job, bool *held)
{
	ItemPointerData tid = seen->tid;
	TM_FailureData failure;
	TM_Result	result = TM_Deleted;
	bool		isnull;
	bool		locked;

	if (queue_fetch_version(queue, &tid) &&
		memcmp(DatumGetUUIDP(slot_getattr(queue->slot, Q_id, &isnull)), JOB_ID(seen), UUID_LEN) == 0)
		result = table_tuple_lock(queue->rel, &tid, InvalidSnapshot, queue->slot, GetCurrentCommandId(false),
								  LockTupleExclusive, held ? LockWaitSkip : LockWaitBlock, 0, &failure);
	if (held)
		*held = result == TM_WouldBlock;
	locked = result == TM_Ok;
	if (locked)
		job_from_slot(queue, job);
	ExecClearTuple(queue->slot);
	return locked;
}

LockResult
queue_lock_or_wait(Table *queue, Job *seen, Job *job)
{
	bool		held;
	LockResult	result = try_lock(queue, seen, job, &held);

	if (held)
		wait_for_locker(queue->slot);
	return result;
}

/*
 * Publishes the concurrency key of a waiting job that was locked: if the job
 * ends, the next ones may start.
 */
static void
note_key_of(Job *job)
{
	if (!JOB_NULL(job, Q_key_hash))
		note_concurrency_key(DatumGetUInt64(JOB_ATT(job, Q_key_hash)),
								DatumGetTimestampTz(JOB_ATT(job, Q_key_since)), true);
}

static LockResult
lock_by_id(Table *queue, const pg_uuid_t *id, Job *job, bool wait, bool *held)
{
	*held = false;
	for (;;)
	{
		Job			seen;
		Snapshot	snapshot;
		bool		found;
		LockResult	result;

		CHECK_FOR_INTERRUPTS();
		CommandCounterIncrement();	/* our own writes count */
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		found = queue_find_by_id(queue, id, snapshot, &seen);
		UnregisterSnapshot(snapshot);
		if (!found)
			return LOCK_GONE;
		*job = seen;
		result = try_lock(queue, &seen, job, held);
		if (*held && !wait)
		{
			ExecClearTuple(queue->slot);
			return LOCK_GONE;
		}
		if (*held)
			wait_for_locker(queue->slot);
		if (result == LOCK_OK)
			note_key_of(job);
		if (result != LOCK_GONE)
			return result;
	}
}

LockResult
queue_lock_by_id(Table *queue, const pg_uuid_t *id, Job *job)
{
	bool		held;

	return lock_by_id(queue, id, job, true, &held);
}

LockResult
queue_lock_unless_held(Table *queue, const pg_uuid_t *id, Job *job, bool *held)
{
	return lock_by_id(queue, id, job, false, held);
}
