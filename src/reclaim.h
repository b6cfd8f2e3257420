/*
 * reclaim.h
 *	  Makes the space of dead rows of one table usable again, as VACUUM does, by a horizon of our own.
 */
#ifndef JOBQ_RECLAIM_H
#define JOBQ_RECLAIM_H

#include "horizon.h"
#include "utils/relcache.h"

typedef struct Reclaimed
{
	int64		removed_rows;
	int64		removed_bytes;
	int64		kept_bytes;		/* rows that stay, alive or still visible to somebody */
	bool		needs_toast;	/* so does a dead one that points at TOAST rows which the horizon lets go of */
	bool		locked_on_standbys;
} Reclaimed;

/* ShareUpdateExclusiveLock on rel is held.  Adds to *sum.  On standbys readers of the table `locked` are in its way. */
extern void reclaim_table(Relation rel, Oid locked, const Horizon *horizon, Reclaimed *sum);

#endif
