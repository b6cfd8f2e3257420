/*
 * reclaim.h
 *	  Makes the space of dead rows of one table usable again, as VACUUM does,
 *	  by a horizon of jobq's own.
 */
#ifndef JOBQ_RECLAIM_H
#define JOBQ_RECLAIM_H

#include "access/transam.h"
#include "shared/snapshot_horizon.h"
#include "nodes/bitmapset.h"
#include "utils/relcache.h"

typedef struct Reclaimed
{
	int64		removed_rows;
	int64		removed_bytes;
	int64		kept_bytes;		/* of rows that stay, alive or visible to a
								 * snapshot */
	bool		needs_toast;	/* a dead row stays that points at TOAST rows
								 * which the horizon does not keep */
} Reclaimed;

/* The result of step 1, for steps 2 and 3 in another transaction. */
typedef struct DeadPages
{
	MemoryContext context;		/* of blocks; lasts longer than a transaction */
	Oid			relid;
	Bitmapset  *blocks;			/* pages that may have dead line pointers */
	double		live;			/* rows of the table */
	double		dead;			/* rows and line pointers that step 1 left */
} DeadPages;

/*
 * Removes dead rows, leaves their line pointers dead, and notes their pages.
 * Adds to *sum.  The caller holds ShareUpdateExclusiveLock on rel.  Raises a
 * valid fence first, if a row may go beyond the server's horizon.
 */
extern void reclaim_mark(Relation rel, const Horizon *horizon, FullTransactionId fence, Reclaimed *sum,
						 DeadPages *pages);

/*
 * Makes dead line pointers of these pages usable again.  The caller holds the
 * same lock.  Raises ERRCODE_LOCK_NOT_AVAILABLE if a page of an index stays
 * pinned; then a later run does this work.
 */
extern void reclaim_clean(Relation rel, const DeadPages *pages);

#endif
