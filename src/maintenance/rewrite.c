/*
 * rewrite.c
 *	  Rewrites the queue into new files, as large as its rows.
 *
 * It works as VACUUM FULL and CLUSTER do, with their horizon.  Each row keeps
 * its xmin and xmax, and rows that an older snapshot may still see are copied.
 * So a snapshot that a dump has taken before sees the same rows afterwards.
 * (A TRUNCATE and an INSERT would empty the table for it.)
 *
 * Two things differ.  The rewrite waits for no lock, because a waiting
 * AccessExclusiveLock would queue every enqueue behind it.  It requests all
 * locks at once (table, indexes, TOAST), and releases them if one is not free.
 * And it reads the rows through an index, so the duration of the lock depends
 * on the rows and not on the size of the empty file; reclaim.c has just
 * cleaned that index.
 *
 * Standbys.  Rows that the server's horizon covers are left behind, and a
 * snapshot of a standby may still see one.  VACUUM names their deleters in the
 * WAL; the rewrite logs a conflict with every snapshot older than the horizon.
 * The lock alone is no such conflict: a session with a snapshot that has not
 * read the table yet waits for the lock, and then reads on.
 *
 * The conflict precedes the lock in the WAL.  In the other order, such a
 * session could wait for the lock that replay holds, and replay for the
 * session's snapshot.  With max_standby_streaming_delay = -1 that wait has no
 * end, since deadlock detection there knows locks only.  So one horizon is
 * taken before both, and all decisions under the lock use it, even if the
 * server's horizon has moved meanwhile.  The transactions that precede the
 * horizon had ended, and their ends precede the conflict in the WAL.  So each
 * snapshot that a standby takes after the conflict sees them as ended, and
 * needs no row that the rewrite leaves behind; rows that have died since are
 * copied.  The conflict is logged only while no other transaction has a
 * conflicting lock: a transaction that keeps the rewrite from the table causes
 * no cancellations on standbys.
 *
 * An index that was built concurrently lacks rows which had died before.
 * CREATE INDEX CONCURRENTLY waits for the snapshots of this server that see
 * them, not for those of a standby, with feedback or without.  So an index
 * serves when the horizon has passed the transaction that made it valid; then
 * the conflict covers that transaction, too.  Entries that are marked as
 * killed are copied as well, while the horizon needs them: copy_by_index.
 *
 * It runs as the owner of the table, as restricted as VACUUM FULL.  TIDs
 * change: a remembered TID leads to another file or another row (queue_lock),
 * and the dispatcher reads its lanes again (queue_scan.c).
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

#include "base/session.h"
#include "maintenance/rewrite.h"
#include "tables/queue_table.h"

typedef struct Rewrite
{
	Relation	rel;
	Oid			indexid;
	TransactionId oldest;		/* the horizon of all decisions */
	TransactionId freeze;
	MultiXactId multi;
} Rewrite;

/* Returns the transaction that last changed the index's row in pg_index. */
static TransactionId
valid_since(Relation index)
{
	return HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);
}

/*
 * True for a btree on id that has every row which a snapshot of that horizon
 * sees.
 */
static bool
is_plain_on_id(Relation index, TransactionId oldest)
{
	Form_pg_index form = index->rd_index;

	return index->rd_rel->relam == BTREE_AM_OID && form->indisvalid && form->indnkeyatts == 1 &&
		form->indkey.values[0] == Q_id && RelationGetIndexPredicate(index) == NIL &&
		TransactionIdPrecedes(valid_since(index), oldest);
}

/* Returns an index that has all rows of that horizon, or InvalidOid. */
static Oid
index_of_ids(Relation rel, TransactionId oldest)
{
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

/* Returns the relations that the rewrite replaces beside the table. */
static List *
parts_of(Relation rel)
{
	List	   *parts = list_copy(RelationGetIndexList(rel));

	if (OidIsValid(rel->rd_rel->reltoastrelid))
		parts = lcons_oid(rel->rd_rel->reltoastrelid, parts);
	return parts;
}

/* True if no other transaction has a lock on the relation. */
static bool
is_unlocked(Oid relid)
{
	LOCKTAG		tag;
	int			nholders;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	pfree(GetLockConflicts(&tag, AccessExclusiveLock, &nholders));
	return nholders == 0;
}

static bool
all_unlocked(Relation rel)
{
	ListCell   *lc;

	if (!is_unlocked(RelationGetRelid(rel)))
		return false;
	foreach(lc, parts_of(rel))
	{
		if (!is_unlocked(lfirst_oid(lc)))
			return false;
	}
	return true;
}

/* Takes all locks that the rewrite needs, or returns false. */
static bool
lock_all(Relation rel)
{
	ListCell   *lc;

	if (!ConditionalLockRelationOid(RelationGetRelid(rel), AccessExclusiveLock))
		return false;
	foreach(lc, parts_of(rel))
	{
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessExclusiveLock))
			return false;
	}
	return true;
}

/*
 * Ends the snapshots on standbys that may need rows which a rewrite by that
 * horizon leaves behind.
 */
static void
log_conflict(Relation rel, TransactionId oldest)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (!XLogStandbyInfoActive() || !RelationNeedsWAL(rel))
		return;
	TransactionIdRetreat(oldest);	/* the newest that it covers */
	log_snapshot_conflict(rel, FullTransactionIdFromU64(next + (int32) (oldest - (TransactionId) next)));
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
 * Copies the rows as CLUSTER does, with one difference: it also follows index
 * entries that scans have marked as killed.  Such marks are made without
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

/* Copies the rows into a new table. */
static void
copy_rows(const Rewrite *r, Oid newid)
{
	Relation	old = r->rel;
	Relation	new = table_open(newid, AccessExclusiveLock);
	Relation	index = index_open(r->indexid, AccessExclusiveLock);

	/* TOAST is swapped by content: pointers name the old table */
	if (OidIsValid(old->rd_rel->reltoastrelid))
		new->rd_toastoid = old->rd_rel->reltoastrelid;
	copy_by_index(old, new, index, begin_heap_rewrite(old, new, r->oldest, r->freeze, r->multi), r->oldest);
	new->rd_toastoid = InvalidOid;
	index_close(index, NoLock);
	table_close(new, NoLock);
}

/*
 * Keeps the table's relfrozenxid and relminmxid where the horizon's are older.
 */
static void
advance_cutoffs(Rewrite *r)
{
	if (TransactionIdPrecedes(r->freeze, r->rel->rd_rel->relfrozenxid))
		r->freeze = r->rel->rd_rel->relfrozenxid;
	if (MultiXactIdPrecedes(r->multi, r->rel->rd_rel->relminmxid))
		r->multi = r->rel->rd_rel->relminmxid;
}

static void
rewrite_locked(Rewrite *r)
{
	Oid			relid = RelationGetRelid(r->rel);
	bool		toast = OidIsValid(r->rel->rd_rel->reltoastrelid);
	char		persistence = r->rel->rd_rel->relpersistence;
	Oid			newid;

	CheckTableNotInUse(r->rel, "compact");
	TransferPredicateLocksToHeapRelation(r->rel);
	newid = make_new_heap(relid, r->rel->rd_rel->reltablespace, r->rel->rd_rel->relam, persistence,
						  AccessExclusiveLock);
	advance_cutoffs(r);
	copy_rows(r, newid);
	table_close(r->rel, NoLock);
	CommandCounterIncrement();
	finish_heap_swap(relid, newid, false, toast, false, true, true, r->freeze, r->multi, persistence);
}

/*
 * Rewrites the locked table as its owner.  An error ends the transaction,
 * which restores the user.
 */
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
	rewrite_locked(r);
	PopActiveSnapshot();
	SetUserIdAndSecContext(save_user, save_context);
}

bool
rewrite_has_index(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		found = OidIsValid(index_of_ids(rel, GetOldestNonRemovableTransactionId(rel)));

	table_close(rel, NoLock);
	return found;
}

/*
 * True if rows of the TOAST table may have been removed by a younger horizon,
 * before it was locked, that rows need which the rewrite would copy.
 */
static bool
toast_may_lack_rows(const Rewrite *r)
{
	return TransactionIdPrecedes(r->oldest, GetOldestNonRemovableTransactionId(r->rel));
}

/*
 * Takes the horizon, logs the conflict and takes the locks, in this order.
 * Returns false if a lock is not free, or no index serves.
 */
static bool
prepare(Rewrite *r)
{
	if (r->rel->rd_rel->relam != HEAP_TABLE_AM_OID || !all_unlocked(r->rel))
		return false;
	rewrite_cutoffs(r->rel, &r->oldest, &r->freeze, &r->multi);
	log_conflict(r->rel, r->oldest);
	if (!lock_all(r->rel) || toast_may_lack_rows(r))
		return false;
	r->indexid = index_of_ids(r->rel, r->oldest);
	return OidIsValid(r->indexid);
}

bool
rewrite_table(Oid relid, int limit_ms, TimestampTz *began)
{
	Rewrite		r;

	*began = 0;
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	r.rel = try_table_open(relid, NoLock);
	if (r.rel == NULL)
		return false;
	if (!prepare(&r))
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
