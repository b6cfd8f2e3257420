/*
 * reclaim.c
 *	  A small VACUUM with a horizon of our own (horizon.h).
 *
 * The three steps are VACUUM's, and so are locks and WAL records: (1) each page, under a cleanup lock that is
 * only taken when it is free, loses its dead rows, whose line pointers stay dead; (2) the indexes lose their
 * entries for dead line pointers; (3) these become unused.  Only step 1 differs: a row is dead when
 * the deleter precedes the server's own horizon or ours covers it.  A step that isn't reached is
 * done by the next run, ours or VACUUM's.
 *
 * HOT chains: one that is dead from root to end goes, its root becoming a dead line pointer, its other members
 * unused.  Of another the members before the first one that stays go, and the root is redirected to that.
 *
 * TOAST.  Who copies the table by the server's horizon (VACUUM FULL, CLUSTER, rewrite.c) reads what dead rows point at.
 * So TOAST's rows stay as long as a dead row does that needs them: one on a page whose lock was not free, or after
 * a member of its chain that stays.  sum->needs_toast says it.
 *
 * Standbys.  What the server's horizon covers goes as VACUUM logs it: a snapshot there that is too old is a conflict.
 * What only ours covers would be a conflict with every snapshot, young or old, of every table of this database, as the xmin that
 * holds back the server's horizon is theirs, too.  So instead a lock of the table is logged first: sessions there that have
 * read it in their transaction are waited for and cancelled as max_standby_streaming_delay says, all others go on; it is free again
 * when the removal has been replayed.  That leaves one that has an older snapshot and reads the table for the first
 * time afterwards: it lacks the rows that were deleted since (their jobs had ended).
 *
 * ShareUpdateExclusiveLock keeps VACUUM and DDL away, and nobody else.  Freezing, the visibility map and
 * truncation are left to VACUUM.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "storage/standby.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "reclaim.h"

#define MAX_DEAD	(8 * 1024 * 1024 / (int) sizeof(ItemPointerData))	/* then the indexes are cleaned and it goes on */

typedef struct Sweep
{
	Relation	rel;
	const Horizon *horizon;
	TransactionId oldest;		/* the server's horizon */
	BufferAccessStrategy strategy;
	Oid			locked;			/* on standbys, before what only our horizon covers goes */
	Reclaimed  *sum;
	ItemPointerData *dead;		/* dead line pointers, ascending */
	int			ndead;
	double		rows;			/* seen and kept */
	double		dead_rows;		/* of them, those that somebody may still see */
} Sweep;

/* What is to be done to one page. */
typedef struct PagePlan
{
	OffsetNumber redirected[MaxHeapTuplesPerPage * 2];	/* from, to */
	int			nredirected;
	OffsetNumber dead[MaxHeapTuplesPerPage];
	int			ndead;
	OffsetNumber unused[MaxHeapTuplesPerPage];
	int			nunused;
	TransactionId newest;		/* deleter of what goes by the server's horizon: a standby's older snapshots conflict */
	bool		beyond;			/* something goes by ours */
	bool		goes[MaxHeapTuplesPerPage + 1];
} PagePlan;

/* ---------- step 1: rows ---------- */

/* What the server's own horizon says of it; *deleter: who has deleted it, if it is recently dead. */
static HTSV_Result
row_state(Sweep *sweep, Buffer buffer, OffsetNumber offset, HeapTuple tuple, TransactionId *deleter)
{
	ItemId		lp = PageGetItemId(BufferGetPage(buffer), offset);

	tuple->t_data = (HeapTupleHeader) PageGetItem(BufferGetPage(buffer), lp);
	tuple->t_len = ItemIdGetLength(lp);
	tuple->t_tableOid = RelationGetRelid(sweep->rel);
	ItemPointerSet(&tuple->t_self, BufferGetBlockNumber(buffer), offset);
	*deleter = InvalidTransactionId;
	return HeapTupleSatisfiesVacuumHorizon(tuple, buffer, deleter);
}

/* Can nobody see it any more?  Then the plan notes whom that concerns on a standby. */
static bool
row_is_dead(Sweep *sweep, Buffer buffer, OffsetNumber offset, PagePlan *plan)
{
	HeapTupleData tuple;
	TransactionId deleter;

	switch (row_state(sweep, buffer, offset, &tuple, &deleter))
	{
		case HEAPTUPLE_DEAD:
			return true;		/* never was: its insertion was rolled back */
		case HEAPTUPLE_RECENTLY_DEAD:
			if (TransactionIdPrecedes(deleter, sweep->oldest))
			{
				if (!TransactionIdIsValid(plan->newest) || TransactionIdFollows(deleter, plan->newest))
					plan->newest = deleter;
				return true;
			}
			if (horizon_covers(sweep->horizon, deleter))
				return plan->beyond = true;
			sweep->dead_rows++;
			return false;
		default:
			return false;
	}
}

/*
 * Does a dead row that stays point at TOAST rows that a horizon lets go of?  A version that was updated may share
 * them with a later one; only a coarse horizon can cover who has deleted that and not who has updated this.
 */
static bool
row_needs_toast(Sweep *sweep, Buffer buffer, OffsetNumber offset)
{
	HeapTupleData tuple;
	TransactionId deleter;

	if (!ItemIdIsNormal(PageGetItemId(BufferGetPage(buffer), offset)) ||
		row_state(sweep, buffer, offset, &tuple, &deleter) != HEAPTUPLE_RECENTLY_DEAD ||
		!HeapTupleHasExternal(&tuple))
		return false;
	return TransactionIdPrecedes(deleter, sweep->oldest) || horizon_covers(sweep->horizon, deleter) ||
		(sweep->horizon->coarse && !ItemPointerEquals(&tuple.t_self, &tuple.t_data->t_ctid));
}

/* Of those that do not go; there may be no plan. */
static void
note_toast(Sweep *sweep, Buffer buffer, const PagePlan *plan)
{
	OffsetNumber max = PageGetMaxOffsetNumber(BufferGetPage(buffer));

	for (OffsetNumber offset = FirstOffsetNumber; offset <= max && !sweep->sum->needs_toast; offset++)
		sweep->sum->needs_toast = (plan == NULL || !plan->goes[offset]) && row_needs_toast(sweep, buffer, offset);
}

/* The next member of a HOT chain, or 0.  *xmin is what it must have been inserted by. */
static OffsetNumber
next_in_chain(Page page, OffsetNumber offset, TransactionId *xmin)
{
	HeapTupleHeader row = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, offset));

	if (!HeapTupleHeaderIsHotUpdated(row))
		return InvalidOffsetNumber;
	*xmin = HeapTupleHeaderGetUpdateXid(row);
	return ItemPointerGetOffsetNumber(&row->t_ctid);
}

/* Is offset a row on this page, and does it belong to the chain? */
static bool
is_member(Page page, OffsetNumber offset, TransactionId xmin)
{
	ItemId		lp;

	if (offset < FirstOffsetNumber || offset > PageGetMaxOffsetNumber(page))
		return false;
	lp = PageGetItemId(page, offset);
	if (!ItemIdIsNormal(lp))
		return false;
	return !TransactionIdIsValid(xmin) ||
		TransactionIdEquals(HeapTupleHeaderGetXmin((HeapTupleHeader) PageGetItem(page, lp)), xmin);
}

/* Adds a row, or what is dead of a HOT chain up to its first member that is not, to the plan. */
static void
plan_chain(Sweep *sweep, Buffer buffer, OffsetNumber root, PagePlan *plan)
{
	Page		page = BufferGetPage(buffer);
	ItemId		lp = PageGetItemId(page, root);
	OffsetNumber offset = ItemIdIsRedirected(lp) ? ItemIdGetRedirect(lp) : root;
	OffsetNumber members[MaxHeapTuplesPerPage];
	int			n = 0;
	TransactionId xmin = InvalidTransactionId;
	bool		alive = false;

	while (is_member(page, offset, xmin) && n < MaxHeapTuplesPerPage && !plan->goes[offset])
	{
		if ((alive = !row_is_dead(sweep, buffer, offset, plan)))
			break;
		members[n++] = offset;
		offset = next_in_chain(page, offset, &xmin);
	}
	if (n == 0)
		return;
	if (alive)
	{
		plan->redirected[plan->nredirected * 2] = root;
		plan->redirected[plan->nredirected++ * 2 + 1] = offset;
	}
	else
		plan->dead[plan->ndead++] = root;
	for (int i = 0; i < n; i++)
	{
		plan->goes[members[i]] = true;
		if (members[i] != root)
			plan->unused[plan->nunused++] = members[i];
	}
}

static void
plan_page(Sweep *sweep, Buffer buffer, PagePlan *plan)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	memset(plan, 0, sizeof(PagePlan));
	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);

		if (ItemIdIsRedirected(lp) ||
			(ItemIdIsNormal(lp) &&
			 !HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp))))
			plan_chain(sweep, buffer, offset, plan);
	}
}

/* Counts rows before they go, and remembers line pointers that are dead already or will be. */
static void
note_page(Sweep *sweep, Buffer buffer, const PagePlan *plan)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			planned = 0;

	note_toast(sweep, buffer, plan);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);
		bool		dies = planned < plan->ndead && plan->dead[planned] == offset;

		planned += dies;
		if (dies || ItemIdIsDead(lp))
		{
			ItemPointerSet(&sweep->dead[sweep->ndead], BufferGetBlockNumber(buffer), offset);
			sweep->ndead++;
		}
		if (!ItemIdIsNormal(lp))
			continue;
		if (plan->goes[offset])
		{
			sweep->sum->removed_rows++;
			sweep->sum->removed_bytes += ItemIdGetLength(lp);
		}
		else
		{
			sweep->rows++;
			sweep->sum->kept_bytes += ItemIdGetLength(lp);
		}
	}
}

/* Sessions of a standby that have read the table are in the way of what follows, until our transaction ends. */
static void
lock_on_standbys(Sweep *sweep)
{
	if (!sweep->sum->locked_on_standbys && XLogStandbyInfoActive())
		LogAccessExclusiveLock(MyDatabaseId, sweep->locked);
	sweep->sum->locked_on_standbys = true;
}

static void
apply_plan(Sweep *sweep, Buffer buffer, PagePlan *plan)
{
	if (plan->beyond)
		lock_on_standbys(sweep);
	START_CRIT_SECTION();
	heap_page_prune_execute(buffer, false, plan->redirected, plan->nredirected, plan->dead, plan->ndead, plan->unused, plan->nunused);
	PageClearFull(BufferGetPage(buffer));
	MarkBufferDirty(buffer);
	if (RelationNeedsWAL(sweep->rel))
		log_pruned_page(sweep->rel, buffer, plan->newest, plan->redirected, plan->nredirected,
						plan->dead, plan->ndead, plan->unused, plan->nunused);
	END_CRIT_SECTION();
}

static void
sweep_page(Sweep *sweep, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(sweep->rel, MAIN_FORKNUM, block, RBM_NORMAL, sweep->strategy);
	PagePlan	plan;
	Size		room = 0;

	if (!ConditionalLockBufferForCleanup(buffer))
	{
		sweep->sum->kept_bytes += BLCKSZ - GetRecordedFreeSpace(sweep->rel, block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		note_toast(sweep, buffer, NULL);
		UnlockReleaseBuffer(buffer);
		return;					/* somebody reads it: next time */
	}
	if (!PageIsNew(BufferGetPage(buffer)) && !PageIsEmpty(BufferGetPage(buffer)))
	{
		plan_page(sweep, buffer, &plan);
		note_page(sweep, buffer, &plan);
		if (plan.ndead + plan.nredirected > 0)
			apply_plan(sweep, buffer, &plan);
		if (plan.nredirected > 0)
			room = PageGetHeapFreeSpace(BufferGetPage(buffer));
	}
	UnlockReleaseBuffer(buffer);
	if (room > 0)
		RecordPageWithFreeSpace(sweep->rel, block, room);
}

/* ---------- step 2: index entries ---------- */

static int
compare_tids(const void *a, const void *b)
{
	return ItemPointerCompare((ItemPointer) a, (ItemPointer) b);
}

static bool
entry_is_dead(ItemPointer tid, void *state)
{
	Sweep	   *sweep = state;

	return bsearch(tid, sweep->dead, sweep->ndead, sizeof(ItemPointerData), compare_tids) != NULL;
}

static void
clean_index(Sweep *sweep, Oid indexid)
{
	Relation	index = index_open(indexid, RowExclusiveLock);
	IndexVacuumInfo info = {.index = index, .estimated_count = true, .message_level = DEBUG2};
	IndexBulkDeleteResult *result;

	if (index->rd_index->indisready)
	{
		index_vacuum_heap(&info, sweep->rel);
		info.num_heap_tuples = sweep->rows;
		info.strategy = sweep->strategy;
		result = index_bulk_delete(&info, NULL, entry_is_dead, sweep);
		result = index_vacuum_cleanup(&info, result);
		if (result)
			pfree(result);
	}
	index_close(index, NoLock);
}

static void
clean_indexes(Sweep *sweep)
{
	List	   *indexes = RelationGetIndexList(sweep->rel);
	ListCell   *lc;

	foreach(lc, indexes)
		clean_index(sweep, lfirst_oid(lc));
	list_free(indexes);
}

/* ---------- step 3: line pointers ---------- */

/* Those of one page, from dead[first] on; the first one that is not. */
static int
free_line_pointers(Sweep *sweep, int first)
{
	BlockNumber block = ItemPointerGetBlockNumber(&sweep->dead[first]);
	Buffer		buffer = ReadBufferExtended(sweep->rel, MAIN_FORKNUM, block, RBM_NORMAL, sweep->strategy);
	Page		page = BufferGetPage(buffer);
	OffsetNumber unused[MaxHeapTuplesPerPage];
	int			n = 0;
	int			next = first;
	Size		room;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	for (; next < sweep->ndead && ItemPointerGetBlockNumber(&sweep->dead[next]) == block; next++)
	{
		ItemId		lp = PageGetItemId(page, ItemPointerGetOffsetNumber(&sweep->dead[next]));

		if (ItemIdIsDead(lp) && !ItemIdHasStorage(lp))
			unused[n++] = ItemPointerGetOffsetNumber(&sweep->dead[next]);
	}
	if (n > 0)
	{
		START_CRIT_SECTION();
		for (int i = 0; i < n; i++)
			ItemIdSetUnused(PageGetItemId(page, unused[i]));
		PageTruncateLinePointerArray(page);
		MarkBufferDirty(buffer);
		if (RelationNeedsWAL(sweep->rel))
			log_freed_line_pointers(sweep->rel, buffer, unused, n);
		END_CRIT_SECTION();
	}
	room = PageGetHeapFreeSpace(page);
	UnlockReleaseBuffer(buffer);
	RecordPageWithFreeSpace(sweep->rel, block, room);
	return next;
}

static void
finish_dead(Sweep *sweep)
{
	if (sweep->ndead == 0)
		return;
	clean_indexes(sweep);
	for (int next = 0; next < sweep->ndead;)
	{
		CHECK_FOR_INTERRUPTS();
		next = free_line_pointers(sweep, next);
	}
	sweep->ndead = 0;
}

/* ---------- a table ---------- */

/* A page that VACUUM has found all visible has nothing dead. */
static bool
is_all_visible(Sweep *sweep, BlockNumber block, Buffer *map)
{
	if (!VM_ALL_VISIBLE(sweep->rel, block, map))
		return false;
	sweep->sum->kept_bytes += BLCKSZ - GetRecordedFreeSpace(sweep->rel, block);
	return true;
}

void
reclaim_table(Relation rel, Oid locked, const Horizon *horizon, Reclaimed *sum)
{
	Sweep		sweep = {.rel = rel, .locked = locked, .horizon = horizon, .sum = sum};
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	Buffer		map = InvalidBuffer;
	TimestampTz started = GetCurrentTimestamp();

	if (XLogStandbyInfoActive())
		LogAccessExclusiveLockPrepare();	/* here, as it may not be done where a page is locked */
	sweep.oldest = GetOldestNonRemovableTransactionId(rel);
	sweep.strategy = GetAccessStrategy(BAS_VACUUM);
	sweep.dead = palloc(sizeof(ItemPointerData) * MAX_DEAD);
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_all_visible(&sweep, block, &map))
			continue;
		sweep_page(&sweep, block);
		if (sweep.ndead > MAX_DEAD - MaxHeapTuplesPerPage)
			finish_dead(&sweep);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	finish_dead(&sweep);
	FreeSpaceMapVacuum(rel);
	report_vacuum(rel, sweep.rows - sweep.dead_rows, sweep.dead_rows, started);
	pfree(sweep.dead);
	FreeAccessStrategy(sweep.strategy);
}
