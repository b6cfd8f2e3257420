/*
 * reclaim.c
 *	  A small VACUUM with a horizon of jobq's own (snapshot_horizon.h).
 *
 * The three steps are VACUUM's, and so are locks and WAL records.  (1) Dead
 * rows are removed from each page, and their line pointers stay dead; this
 * needs a cleanup lock, which is taken only when it is free.  (2) Index
 * entries for dead line pointers are removed.  (3) The line pointers become
 * unused.  Only step 1 differs: a row is dead when its deleter precedes the
 * server's own horizon or jobq's horizon covers the deleter.
 *
 * Step 1 (reclaim_mark) is a transaction of its own, steps 2 and 3
 * (reclaim_clean.c) are another, because only step 2 waits.  It waits for
 * cleanup locks of index pages, and a cursor on an index-only scan keeps a
 * page pinned for as long as it is open.  So step 2 has neither xid nor
 * snapshot, and ends with an error after PIN_WAIT_MS of such waits.  A
 * half-done run leaves the state of a VACUUM that was cancelled: dead line
 * pointers, which index scans skip and which no insertion uses again.
 *
 * Step 1 hands over numbers of pages, never line pointers: VACUUM may have
 * freed those between the transactions, and a new row may have taken them.
 * Step 2 collects them again under the table's lock, which keeps other
 * processes from freeing them, and only then lists the indexes.  An index that
 * was built meanwhile has no entry for them, and REINDEX CONCURRENTLY holds a
 * lock that conflicts with this one while it builds an index.
 *
 * HOT chains.  A chain that is dead from root to end is removed: its root
 * becomes a dead line pointer, its other members unused.  Of another chain the
 * members before the first one that stays are removed, and the root is
 * redirected to that one.
 *
 * TOAST.  A copy of the table by the server's horizon (VACUUM FULL, CLUSTER,
 * rewrite.c) reads the TOAST rows of dead rows.  So TOAST rows stay as long as
 * a dead row does that needs them: a row on a page that was not locked, or
 * behind a member of its chain that stays.  sum->needs_toast notes this case.
 *
 * Standbys.  Each removal names its newest deleter, as VACUUM's do; a snapshot
 * of a standby that is too old is a conflict.  With a fence, a removal that
 * only jobq's horizon covers names none.  beyond_horizon.c decides about the
 * horizon and the fence.
 *
 * ShareUpdateExclusiveLock keeps VACUUM and DDL away, and blocks no other
 * statement.  Freezing, the visibility map and truncation are left to VACUUM.
 */
#include "jobq.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "maintenance/reclaim.h"
#include "maintenance/standby_fence.h"

/* Step 1. */
typedef struct Sweep
{
	Relation	rel;
	const Horizon *horizon;
	TransactionId oldest;		/* the server's horizon */
	BufferAccessStrategy strategy;
	bool		fenced;			/* the fence is up for rows that only jobq's
								 * horizon covers */
	Reclaimed  *sum;
	DeadPages  *pages;
	BlockNumber skipped;		/* all-visible pages */
	double		live;			/* rows of the others */
	double		dead;			/* rows and line pointers that stay, unseen by
								 * new snapshots */
} Sweep;

/* The state of one row.  DEAD: no snapshot can see it. */
typedef enum RowState
{
	ROW_NONE, ROW_ARRIVING, ROW_LIVE, ROW_RECENTLY_DEAD, ROW_DEAD
} RowState;

/* The changes of one page. */
typedef struct PagePlan
{
	OffsetNumber redirected[MaxHeapTuplesPerPage * 2];	/* from, to */
	int			nredirected;
	OffsetNumber dead[MaxHeapTuplesPerPage];
	int			ndead;
	OffsetNumber unused[MaxHeapTuplesPerPage];
	int			nunused;
	TransactionId newest;		/* deleter of rows that the fence does not
								 * cover: a standby's older snapshots conflict */
	uint8		state[MaxHeapTuplesPerPage + 1];	/* RowState */
	/* the deleter of a dead row; invalid: its insertion was rolled back */
	TransactionId deleter[MaxHeapTuplesPerPage + 1];
	bool		goes[MaxHeapTuplesPerPage + 1];
} PagePlan;

/* ---------- step 1: rows ---------- */

/*
 * Returns the state of a row by the server's own horizon, and its deleter if
 * it is recently dead.
 */
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

/* Sets the state of one row by both horizons. */
static void
judge_row(Sweep *sweep, Buffer buffer, OffsetNumber offset, PagePlan *plan)
{
	HeapTupleData tuple;
	uint8	   *state = &plan->state[offset];
	TransactionId deleter;

	switch (row_state(sweep, buffer, offset, &tuple, &deleter))
	{
		case HEAPTUPLE_DEAD:
			*state = ROW_DEAD;
			break;
		case HEAPTUPLE_RECENTLY_DEAD:
			*state = TransactionIdPrecedes(deleter, sweep->oldest) ||
				horizon_covers(sweep->horizon, deleter) ? ROW_DEAD : ROW_RECENTLY_DEAD;
			break;
		case HEAPTUPLE_INSERT_IN_PROGRESS:
			*state = ROW_ARRIVING;	/* its commit counts it */
			break;
		default:
			*state = ROW_LIVE;
	}
	plan->deleter[offset] = deleter;
}

static void
judge_page(Sweep *sweep, Buffer buffer, PagePlan *plan)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	memset(plan, 0, sizeof(PagePlan));
	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		if (ItemIdIsNormal(PageGetItemId(page, offset)))
			judge_row(sweep, buffer, offset, plan);
	}
}

/*
 * True if a dead row that stays points at TOAST rows that a horizon does not
 * keep.  A version that was updated may share them with a later one; only a
 * coarse horizon can cover the deleter of the later one and not the updater of
 * this one.
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

/* Sets needs_toast if a row that stays needs TOAST rows. */
static void
note_toast(Sweep *sweep, Buffer buffer, const PagePlan *plan)
{
	OffsetNumber max = PageGetMaxOffsetNumber(BufferGetPage(buffer));

	for (OffsetNumber offset = FirstOffsetNumber; offset <= max && !sweep->sum->needs_toast; offset++)
		sweep->sum->needs_toast = !plan->goes[offset] && row_needs_toast(sweep, buffer, offset);
}

/*
 * Returns the next member of a HOT chain, or 0.  *xmin: the transaction that
 * must have inserted it.
 */
static OffsetNumber
next_in_chain(Page page, OffsetNumber offset, TransactionId *xmin)
{
	HeapTupleHeader row = (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, offset));

	if (!HeapTupleHeaderIsHotUpdated(row))
		return InvalidOffsetNumber;
	*xmin = HeapTupleHeaderGetUpdateXid(row);
	return ItemPointerGetOffsetNumber(&row->t_ctid);
}

/* True if offset is a row of this page that belongs to the chain. */
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

/* Adds a row that goes to the plan, and its deleter for standbys. */
static void
plan_removal(Sweep *sweep, OffsetNumber offset, PagePlan *plan)
{
	TransactionId deleter = plan->deleter[offset];

	plan->goes[offset] = true;
	if (!TransactionIdIsValid(deleter) || (sweep->fenced && !TransactionIdPrecedes(deleter, sweep->oldest)))
		return;
	if (!TransactionIdIsValid(plan->newest) || TransactionIdFollows(deleter, plan->newest))
		plan->newest = deleter;
}

/*
 * Adds a dead row, or the dead members of a HOT chain before the first one
 * that stays, to the plan.
 */
static void
plan_chain(Sweep *sweep, Page page, OffsetNumber root, PagePlan *plan)
{
	ItemId		lp = PageGetItemId(page, root);
	OffsetNumber offset = ItemIdIsRedirected(lp) ? ItemIdGetRedirect(lp) : root;
	OffsetNumber members[MaxHeapTuplesPerPage];
	int			n = 0;
	TransactionId xmin = InvalidTransactionId;
	bool		alive = false;

	while (is_member(page, offset, xmin) && n < MaxHeapTuplesPerPage && !plan->goes[offset])
	{
		if ((alive = plan->state[offset] != ROW_DEAD))
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
		plan_removal(sweep, members[i], plan);
		if (members[i] != root)
			plan->unused[plan->nunused++] = members[i];
	}
}

static void
plan_page(Sweep *sweep, Page page, PagePlan *plan)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);

		if (ItemIdIsRedirected(lp) ||
			(ItemIdIsNormal(lp) &&
			 !HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp))))
			plan_chain(sweep, page, offset, plan);
	}
}

/* Counts one row before it goes. */
static void
count_row(Sweep *sweep, OffsetNumber offset, Size length, const PagePlan *plan)
{
	if (plan->goes[offset])
	{
		sweep->sum->removed_rows++;
		sweep->sum->removed_bytes += length;
		return;
	}
	sweep->sum->kept_bytes += length;
	sweep->live += plan->state[offset] == ROW_LIVE;
	sweep->dead += plan->state[offset] >= ROW_RECENTLY_DEAD;
}

static void
note_dead_page(DeadPages *pages, BlockNumber block)
{
	MemoryContext old = MemoryContextSwitchTo(pages->context);

	if (block <= PG_INT32_MAX)	/* the limit of a Bitmapset; VACUUM does the
								 * other pages */
		pages->blocks = bms_add_member(pages->blocks, (int) block);
	MemoryContextSwitchTo(old);
}

/*
 * Counts the rows of a page, and notes the page if it has dead line pointers
 * or will have some.
 */
static void
note_page(Sweep *sweep, Buffer buffer, const PagePlan *plan)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			ndead = plan->ndead;

	note_toast(sweep, buffer, plan);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);

		if (ItemIdIsNormal(lp))
			count_row(sweep, offset, ItemIdGetLength(lp), plan);
		ndead += ItemIdIsDead(lp);
	}
	sweep->dead += ndead;
	if (ndead > 0)
		note_dead_page(sweep->pages, BufferGetBlockNumber(buffer));
}

static void
apply_plan(Sweep *sweep, Buffer buffer, PagePlan *plan)
{
	START_CRIT_SECTION();
	heap_page_prune_execute(buffer, false, plan->redirected, plan->nredirected,
							plan->dead, plan->ndead, plan->unused, plan->nunused);
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
	Page		page = BufferGetPage(buffer);
	bool		mine = ConditionalLockBufferForCleanup(buffer);
	PagePlan	plan;
	Size		room = 0;

	if (!mine)
		LockBuffer(buffer, BUFFER_LOCK_SHARE);	/* a process reads the page: its
												 * rows go in the next run */
	if (!PageIsNew(page) && !PageIsEmpty(page))
	{
		judge_page(sweep, buffer, &plan);
		if (mine)
			plan_page(sweep, page, &plan);
		note_page(sweep, buffer, &plan);
		if (plan.ndead + plan.nredirected > 0)
			apply_plan(sweep, buffer, &plan);
		if (plan.nredirected > 0)
			room = PageGetHeapFreeSpace(page);
	}
	UnlockReleaseBuffer(buffer);
	if (room > 0)
		RecordPageWithFreeSpace(sweep->rel, block, room);
}

/* True for a page that VACUUM has marked: it has no dead rows. */
static bool
is_all_visible(Sweep *sweep, BlockNumber block, Buffer *map)
{
	if (!VM_ALL_VISIBLE(sweep->rel, block, map))
		return false;
	sweep->skipped++;
	sweep->sum->kept_bytes += BLCKSZ - GetRecordedFreeSpace(sweep->rel, block);
	return true;
}

static void
sweep_pages(Sweep *sweep, BlockNumber nblocks)
{
	Buffer		map = InvalidBuffer;

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!is_all_visible(sweep, block, &map))
			sweep_page(sweep, block);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
}

/*
 * Raises the fence, unless the server's horizon covers all that jobq's does.
 */
static void
raise_fence(Sweep *sweep, FullTransactionId fence)
{
	sweep->fenced = FullTransactionIdIsValid(fence);
	if (sweep->fenced && TransactionIdIsNormal(sweep->horizon->xmax) &&
		TransactionIdPrecedes(sweep->oldest, sweep->horizon->xmax))
		fence_raise(fence);
}

void
reclaim_mark(Relation rel, const Horizon *horizon, FullTransactionId fence, Reclaimed *sum, DeadPages *pages)
{
	Sweep		sweep = {.rel = rel, .horizon = horizon, .sum = sum, .pages = pages};
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	TimestampTz started = GetCurrentTimestamp();

	sweep.oldest = GetOldestNonRemovableTransactionId(rel);
	raise_fence(&sweep, fence);
	sweep.strategy = GetAccessStrategy(BAS_VACUUM);
	sweep_pages(&sweep, nblocks);
	FreeAccessStrategy(sweep.strategy);
	pages->relid = RelationGetRelid(rel);
	pages->live = vac_estimate_reltuples(rel, nblocks, nblocks - sweep.skipped, sweep.live);
	pages->dead = sweep.dead;
	report_vacuum(rel, pages->live, pages->dead, started);
}
