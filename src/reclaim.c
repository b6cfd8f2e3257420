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
 * unused.  A chain with a live end stays as it is, which costs at most a page a live row; what VACUUM's own horizon
 * lets go of it, any later update of the page prunes.
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
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
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
	Reclaimed  *sum;
	ItemPointerData *dead;		/* dead line pointers, ascending */
	int			ndead;
	double		rows;			/* seen and kept */
	double		dead_rows;		/* of them, those that somebody may still see */
} Sweep;

/* What is to be done to one page. */
typedef struct PagePlan
{
	OffsetNumber dead[MaxHeapTuplesPerPage];
	int			ndead;
	OffsetNumber unused[MaxHeapTuplesPerPage];
	int			nunused;
	TransactionId newest;		/* deleter of what goes: a standby's older snapshots conflict */
	bool		goes[MaxHeapTuplesPerPage + 1];
} PagePlan;

/* ---------- step 1: rows ---------- */

/* Can nobody see it any more? */
static bool
row_is_dead(Sweep *sweep, Buffer buffer, OffsetNumber offset, TransactionId *newest)
{
	Page		page = BufferGetPage(buffer);
	ItemId		lp = PageGetItemId(page, offset);
	HeapTupleData tuple;
	TransactionId deleter = InvalidTransactionId;

	tuple.t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple.t_len = ItemIdGetLength(lp);
	tuple.t_tableOid = RelationGetRelid(sweep->rel);
	ItemPointerSet(&tuple.t_self, BufferGetBlockNumber(buffer), offset);
	switch (HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter))
	{
		case HEAPTUPLE_DEAD:
			return true;		/* never was: its insertion was rolled back */
		case HEAPTUPLE_RECENTLY_DEAD:
			if (!TransactionIdPrecedes(deleter, sweep->oldest) &&
				!horizon_covers(sweep->horizon, deleter))
			{
				sweep->dead_rows++;
				return false;
			}
			if (!TransactionIdIsValid(*newest) || TransactionIdFollows(deleter, *newest))
				*newest = deleter;
			return true;
		default:
			return false;
	}
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

/* Adds a row, or a HOT chain, to the plan if all of it is dead. */
static void
plan_chain(Sweep *sweep, Buffer buffer, OffsetNumber root, PagePlan *plan)
{
	Page		page = BufferGetPage(buffer);
	ItemId		lp = PageGetItemId(page, root);
	bool		redirected = ItemIdIsRedirected(lp);
	OffsetNumber offset = redirected ? ItemIdGetRedirect(lp) : root;
	OffsetNumber members[MaxHeapTuplesPerPage];
	int			n = 0;
	TransactionId xmin = InvalidTransactionId;
	TransactionId newest = plan->newest;

	while (is_member(page, offset, xmin) && n < MaxHeapTuplesPerPage && !plan->goes[offset])
	{
		if (!row_is_dead(sweep, buffer, offset, &newest))
			return;
		members[n++] = offset;
		offset = next_in_chain(page, offset, &xmin);
	}
	if (n == 0)
		return;
	plan->newest = newest;
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

static void
apply_plan(Sweep *sweep, Buffer buffer, PagePlan *plan)
{
	START_CRIT_SECTION();
	heap_page_prune_execute(buffer, false, NULL, 0, plan->dead, plan->ndead, plan->unused, plan->nunused);
	PageClearFull(BufferGetPage(buffer));
	MarkBufferDirty(buffer);
	if (RelationNeedsWAL(sweep->rel))
		log_pruned_page(sweep->rel, buffer, plan->newest, plan->dead, plan->ndead, plan->unused, plan->nunused);
	END_CRIT_SECTION();
}

static void
sweep_page(Sweep *sweep, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(sweep->rel, MAIN_FORKNUM, block, RBM_NORMAL, sweep->strategy);
	PagePlan	plan;

	if (!ConditionalLockBufferForCleanup(buffer))
	{
		sweep->sum->kept_bytes += BLCKSZ - GetRecordedFreeSpace(sweep->rel, block);
		ReleaseBuffer(buffer);
		return;					/* somebody reads it: next time */
	}
	if (!PageIsNew(BufferGetPage(buffer)) && !PageIsEmpty(BufferGetPage(buffer)))
	{
		plan_page(sweep, buffer, &plan);
		note_page(sweep, buffer, &plan);
		if (plan.ndead > 0)
			apply_plan(sweep, buffer, &plan);
	}
	UnlockReleaseBuffer(buffer);
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
reclaim_table(Relation rel, const Horizon *horizon, Reclaimed *sum)
{
	Sweep		sweep = {.rel = rel, .horizon = horizon, .sum = sum};
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	Buffer		map = InvalidBuffer;
	TimestampTz started = GetCurrentTimestamp();

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
