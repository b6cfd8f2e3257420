/*
 * reclaim.h
 *	  Makes the space of dead rows of one table usable again, as VACUUM does, by a horizon of our own.
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
	int64		kept_bytes;		/* rows that stay, alive or still visible to somebody */
	bool		needs_toast;	/* so does a dead one that points at TOAST rows which the horizon lets go of */
} Reclaimed;

/* What step 1 hands on to steps 2 and 3, in another transaction. */
typedef struct DeadPages
{
	MemoryContext context;		/* of blocks; lasts longer than a transaction */
	Oid			relid;
	Bitmapset  *blocks;			/* pages that may have dead line pointers */
	double		live;			/* rows of the table */
	double		dead;			/* rows and line pointers that step 1 left */
} DeadPages;

/*
 * Removes dead rows, whose line pointers stay dead, and notes their pages.  Adds to *sum.  ShareUpdateExclusiveLock on
 * rel is held.  A valid fence is raised first, if a row may go beyond the server's horizon.
 */
extern void reclaim_mark(Relation rel, const Horizon *horizon, FullTransactionId fence, Reclaimed *sum, DeadPages *pages);

/*
 * Makes dead line pointers of these pages usable again.  The same lock is held.  An error
 * (ERRCODE_LOCK_NOT_AVAILABLE): a page of an index stayed pinned; a later run does it.
 */
extern void reclaim_clean(Relation rel, const DeadPages *pages);

#endif
