/*
 * rewrite.c
 *	  Writes the queue anew, into files of the size of what is in it.
 *
 * As VACUUM FULL and CLUSTER do it, with their horizon: each row keeps its xmin and xmax, and what an older
 * snapshot may still see is copied, so a snapshot that a dump has taken before sees the same rows after.  (A TRUNCATE and
 * an INSERT would empty it.)
 *
 * Two things differ.  No lock is waited for: a waiting AccessExclusiveLock would queue every enqueue behind it.  All
 * that are needed (table, indexes, TOAST) are asked for at once, and let go when one is not free.  And the
 * rows are reached through an index, so that the lock lasts as long as the rows take and not as the empty file takes
 * to be read; the index has been cleaned a moment ago (reclaim.c).
 *
 * Rows that the server's horizon covers are left behind, and a standby may have a snapshot that still sees one.  VACUUM would name
 * their deleters in the WAL; here a conflict is logged with all that is older than the horizon.  The lock alone is no such
 * conflict: a session there that has a snapshot, but has not read the table yet, would wait for it and then read on.
 * An index that was built concurrently lacks rows which had died before.  CREATE INDEX CONCURRENTLY waits for the
 * snapshots of this server that see them, not for those of a standby, with feedback or without.  So an index serves
 * when the server's horizon has passed the transaction that made it valid.  The conflict names that, too.
 * Entries that are marked as killed are copied as well, while the horizon needs them: copy_by_index.
 *
 * It runs as the owner of the table, as restricted as VACUUM FULL.  TIDs change: who remembers one finds another
 * file or another row there (queue_lock), and the dispatcher reads its lanes anew (scan.c).
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relscan.h"
#include "access/rewriteheap.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "queue.h"
#include "rewrite.h"
#include "session.h"

static TransactionId
valid_since(Relation index)
{
	return HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);
}

/* True for a btree on id that has every row which a snapshot of that horizon sees. */
static bool
is_plain_on_id(Relation index, TransactionId oldest)
{
	Form_pg_index form = index->rd_index;

	return index->rd_rel->relam == BTREE_AM_OID && form->indisvalid && form->indnkeyatts == 1 &&
		form->indkey.values[0] == Q_id && RelationGetIndexPredicate(index) == NIL &&
		TransactionIdPrecedes(valid_since(index), oldest);
}

/* Returns an index that the rows can be read through, or InvalidOid. */
static Oid
index_of_ids(Relation rel)
{
	TransactionId oldest = GetOldestNonRemovableTransactionId(rel);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;
	Oid			found = InvalidOid;

	foreach(lc, indexes)
	{
		Relation	index;

		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			continue;
		index = index_open(lfirst_oid(lc), NoLock);
		if (!OidIsValid(found) && is_plain_on_id(index, oldest))
			found = RelationGetRelid(index);
		index_close(index, NoLock);
	}
	list_free(indexes);
	return found;
}

/* All that the rewrite needs, or false. */
static bool
lock_all(Relation rel)
{
	List	   *indexes;
	ListCell   *lc;

	if (OidIsValid(rel->rd_rel->reltoastrelid) &&
		!ConditionalLockRelationOid(rel->rd_rel->reltoastrelid, AccessExclusiveLock))
		return false;
	indexes = RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessExclusiveLock))
			return false;
	}
	list_free(indexes);
	return true;
}

/*
 * Returns the newest transaction that a snapshot must see as ended to miss no
 * row, where rows are copied by that horizon through that index.
 */
static TransactionId
newest_conflict(TransactionId oldest, Relation index)
{
	TransactionIdRetreat(oldest);	/* the newest that it covers */
	return TransactionIdFollows(valid_since(index), oldest) ? valid_since(index) : oldest;
}

/* True if no snapshot of that horizon sees the row in the slot. */
static bool
is_dead(TupleTableSlot *slot, HeapTuple tuple, TransactionId oldest)
{
	Buffer		buffer = ((BufferHeapTupleTableSlot *) slot)->buffer;
	bool		dead;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	dead = HeapTupleSatisfiesVacuum(tuple, oldest, buffer) == HEAPTUPLE_DEAD;
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return dead;
}

/* Returns the row without the values of columns that were dropped. */
static HeapTuple
without_dropped_columns(HeapTuple tuple, TupleDesc desc, Datum *values, bool *nulls)
{
	heap_deform_tuple(tuple, desc, values, nulls);
	for (int i = 0; i < desc->natts; i++)
		nulls[i] |= TupleDescAttr(desc, i)->attisdropped;
	return heap_form_tuple(desc, values, nulls);
}

/*
 * Copies the rows as CLUSTER does, but for one thing: index entries that
 * scans have marked as killed are followed, too.  Such marks are made without
 * WAL, so no standby's snapshot has conflicted with them, and the horizon may
 * have moved back since, when a standby came back.
 */
static void
copy_by_index(Relation old, Relation new, Relation index, RewriteState rewrite, TransactionId oldest)
{
	TupleDesc	desc = RelationGetDescr(old);
	Datum	   *values = palloc(sizeof(Datum) * desc->natts);
	bool	   *nulls = palloc(sizeof(bool) * desc->natts);
	TupleTableSlot *slot = table_slot_create(old, NULL);
	IndexScanDesc scan = index_beginscan(old, index, SnapshotAny, NULL, 0, 0, SO_NONE);

	scan->ignore_killed_tuples = false;
	index_rescan(scan, NULL, 0, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
		HeapTuple	copy;

		CHECK_FOR_INTERRUPTS();
		if (is_dead(slot, tuple, oldest))
		{
			(void) rewrite_heap_dead_tuple(rewrite, tuple);
			continue;
		}
		copy = without_dropped_columns(tuple, desc, values, nulls);
		rewrite_heap_tuple(rewrite, tuple, copy);
		heap_freetuple(copy);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	end_heap_rewrite(rewrite);
	pfree(values);
	pfree(nulls);
}

/* Copies old's rows into new and sets the new one's relfrozenxid and relminmxid.  Returns its newest_conflict(). */
static TransactionId
copy_rows(Relation old, Oid newid, Oid indexid, TransactionId *freeze, MultiXactId *multi)
{
	Relation	new = table_open(newid, AccessExclusiveLock);
	Relation	index = index_open(indexid, AccessExclusiveLock);
	TransactionId oldest;
	TransactionId conflict;

	if (OidIsValid(old->rd_rel->reltoastrelid))
		new->rd_toastoid = old->rd_rel->reltoastrelid;	/* TOAST is swapped by content: pointers name the old one */
	rewrite_cutoffs(old, &oldest, freeze, multi);
	if (TransactionIdPrecedes(*freeze, old->rd_rel->relfrozenxid))
		*freeze = old->rd_rel->relfrozenxid;
	if (MultiXactIdPrecedes(*multi, old->rd_rel->relminmxid))
		*multi = old->rd_rel->relminmxid;
	copy_by_index(old, new, index, begin_heap_rewrite(old, new, oldest, *freeze, *multi), oldest);
	new->rd_toastoid = InvalidOid;
	conflict = newest_conflict(oldest, index);
	index_close(index, NoLock);
	table_close(new, NoLock);
	return conflict;
}

/* Before the new file can be seen on a standby: its snapshots to which xid may be running end. */
static void
log_conflict(Relation rel, TransactionId xid)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (!XLogStandbyInfoActive() || !RelationNeedsWAL(rel))
		return;
	log_snapshot_conflict(rel, FullTransactionIdFromU64(next + (int32) (xid - (TransactionId) next)));
}

static void
rewrite_locked(Relation rel, Oid indexid)
{
	Oid			relid = RelationGetRelid(rel);
	bool		toast = OidIsValid(rel->rd_rel->reltoastrelid);
	char		persistence = rel->rd_rel->relpersistence;
	TransactionId freeze;
	MultiXactId multi;
	Oid			newid;

	CheckTableNotInUse(rel, "compact");
	TransferPredicateLocksToHeapRelation(rel);
	newid = make_new_heap(relid, rel->rd_rel->reltablespace, rel->rd_rel->relam, persistence,
						  AccessExclusiveLock);
	log_conflict(rel, copy_rows(rel, newid, indexid, &freeze, &multi));
	table_close(rel, NoLock);
	CommandCounterIncrement();
	finish_heap_swap(relid, newid, false, toast, false, true, true, freeze, multi, persistence);
}

typedef struct Rewrite
{
	Relation	rel;
	Oid			indexid;
} Rewrite;

/* As the table's owner.  An error is the end of the transaction, which restores the user. */
static void
rewrite_as_owner(void *arg)
{
	Rewrite    *r = arg;
	Oid			save_user;
	int			save_context;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(r->rel->rd_rel->relowner,
						   save_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	PushActiveSnapshot(GetTransactionSnapshot());
	rewrite_locked(r->rel, r->indexid);
	PopActiveSnapshot();
	SetUserIdAndSecContext(save_user, save_context);
}

bool
rewrite_has_index(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		found = OidIsValid(index_of_ids(rel));

	table_close(rel, NoLock);
	return found;
}

bool
rewrite_table(Oid relid, int limit_ms, TimestampTz *began)
{
	Rewrite		r;

	*began = 0;
	if (!ConditionalLockRelationOid(relid, AccessExclusiveLock))
		return false;
	r.rel = try_table_open(relid, NoLock);
	if (r.rel == NULL)
		return false;
	if (r.rel->rd_rel->relam != HEAP_TABLE_AM_OID || !lock_all(r.rel) || !OidIsValid(r.indexid = index_of_ids(r.rel)))
	{
		table_close(r.rel, NoLock);
		return false;
	}
	*began = GetCurrentTimestamp();
	if (limit_ms > 0)
		run_limited(rewrite_as_owner, &r, NULL, limit_ms, "a rewrite of jobq.queue took too long");
	else
		rewrite_as_owner(&r);
	return true;
}
