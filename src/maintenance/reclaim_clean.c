/*
 * reclaim_clean.c
 *	  Index entries and dead line pointers of removed rows.
 *
 * Steps 2 and 3 of reclaim.c, whose head comment has the design.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "catalog/pg_index.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/proc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/session.h"
#include "maintenance/reclaim.h"

/* so many dead line pointers are collected before the indexes are cleaned */
#define MAX_DEAD	(8 * 1024 * 1024 / (int) sizeof(ItemPointerData))
#define PIN_WAIT_MS		200		/* of waits for cleanup locks, in all */

/* Steps 2 and 3. */
typedef struct Cleaning
{
	Relation	rel;
	const Bitmapset *blocks;
	BufferAccessStrategy strategy;
	double		live;
	ItemPointerData *dead;		/* dead line pointers, ascending */
	int			ndead;
	double		freed;
} Cleaning;

/* ---------- step 2: index entries ---------- */

static int
compare_tids(const void *a, const void *b)
{
	return ItemPointerCompare((ItemPointer) a, (ItemPointer) b);
}

static bool
entry_is_dead(ItemPointer tid, void *state)
{
	Cleaning   *c = state;

	return bsearch(tid, c->dead, c->ndead, sizeof(ItemPointerData), compare_tids) != NULL;
}

/* Cleans one index.  An index that is not ready gets no entries yet. */
static void
clean_index(Cleaning *c, Oid indexid)
{
	Relation	index = index_open(indexid, RowExclusiveLock);
	IndexVacuumInfo info = {.index = index, .estimated_count = true, .message_level = DEBUG2};
	IndexBulkDeleteResult *result;

	if (index->rd_index->indisready)
	{
		index_vacuum_heap(&info, c->rel);
		info.num_heap_tuples = c->live;
		info.strategy = c->strategy;
		InvalidateCatalogSnapshot();	/* no xmin while we wait */
		result = index_bulk_delete(&info, NULL, entry_is_dead, c);
		result = index_vacuum_cleanup(&info, result);
		if (result)
			pfree(result);
	}
	index_close(index, NoLock);
}

static void
clean_indexes(Cleaning *c)
{
	List	   *indexes = RelationGetIndexList(c->rel);
	ListCell   *lc;

	foreach(lc, indexes)
		clean_index(c, lfirst_oid(lc));
	list_free(indexes);
}

/* ---------- step 3: line pointers ---------- */

/*
 * Frees the line pointers of one page, from dead[first] on.  Returns the first
 * index that belongs to another page.
 */
static int
free_line_pointers(Cleaning *c, int first)
{
	BlockNumber block = ItemPointerGetBlockNumber(&c->dead[first]);
	Buffer		buffer = ReadBufferExtended(c->rel, MAIN_FORKNUM, block, RBM_NORMAL, c->strategy);
	Page		page = BufferGetPage(buffer);
	OffsetNumber unused[MaxHeapTuplesPerPage];
	int			n = 0;
	int			next = first;
	Size		room;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	for (; next < c->ndead && ItemPointerGetBlockNumber(&c->dead[next]) == block; next++)
	{
		ItemId		lp = PageGetItemId(page, ItemPointerGetOffsetNumber(&c->dead[next]));

		if (ItemIdIsDead(lp) && !ItemIdHasStorage(lp))
			unused[n++] = ItemPointerGetOffsetNumber(&c->dead[next]);
	}
	if (n > 0)
	{
		START_CRIT_SECTION();
		for (int i = 0; i < n; i++)
			ItemIdSetUnused(PageGetItemId(page, unused[i]));
		PageTruncateLinePointerArray(page);
		MarkBufferDirty(buffer);
		if (RelationNeedsWAL(c->rel))
			log_freed_line_pointers(c->rel, buffer, unused, n);
		END_CRIT_SECTION();
	}
	room = PageGetHeapFreeSpace(page);
	UnlockReleaseBuffer(buffer);
	RecordPageWithFreeSpace(c->rel, block, room);
	return next;
}

/* Runs steps 2 and 3 for the collected line pointers. */
static void
finish_dead(Cleaning *c)
{
	if (c->ndead == 0)
		return;
	clean_indexes(c);
	for (int next = 0; next < c->ndead;)
	{
		CHECK_FOR_INTERRUPTS();
		next = free_line_pointers(c, next);
	}
	c->freed += c->ndead;
	c->ndead = 0;
}

/* ---------- steps 2 and 3 of a table ---------- */

/* Adds the dead line pointers of a page. */
static void
collect_dead(Cleaning *c, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(c->rel, MAIN_FORKNUM, block, RBM_NORMAL, c->strategy);
	Page		page = BufferGetPage(buffer);
	OffsetNumber max;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	max = PageIsNew(page) ? 0 : PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		if (!ItemIdIsDead(PageGetItemId(page, offset)))
			continue;
		ItemPointerSet(&c->dead[c->ndead], block, offset);
		c->ndead++;
	}
	UnlockReleaseBuffer(buffer);
}

static void
clean_pages(void *arg)
{
	Cleaning   *c = arg;
	int			nblocks = (int) Min(RelationGetNumberOfBlocks(c->rel), PG_INT32_MAX);
	int			block = -1;

	while ((block = bms_next_member(c->blocks, block)) >= 0 && block < nblocks)
	{
		CHECK_FOR_INTERRUPTS();
		collect_dead(c, block);
		if (c->ndead > MAX_DEAD - MaxHeapTuplesPerPage)
			finish_dead(c);
	}
	finish_dead(c);
}

static bool
waiting_for_cleanup_lock(void)
{
	return waits_for_cleanup_lock(MyProc->wait_event_info);
}

void
reclaim_clean(Relation rel, const DeadPages *pages)
{
	Cleaning	c = {.rel = rel, .blocks = pages->blocks, .live = pages->live};
	TimestampTz started = GetCurrentTimestamp();

	if (bms_is_empty(pages->blocks) || pages->relid != RelationGetRelid(rel))
		return;
	c.strategy = GetAccessStrategy(BAS_VACUUM);
	c.dead = palloc(sizeof(ItemPointerData) * MAX_DEAD);
	run_limited(clean_pages, &c, waiting_for_cleanup_lock, PIN_WAIT_MS,
				"a page of an index of jobq.queue is in use");
	FreeSpaceMapVacuum(rel);
	report_vacuum(rel, pages->live, Max(pages->dead - c.freed, 0), started);
	pfree(c.dead);
	FreeAccessStrategy(c.strategy);
}
