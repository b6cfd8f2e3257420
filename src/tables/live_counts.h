/*
 * live_counts.h
 *	  Counts the rows of jobq.queue and jobq.dead_letters once, for the statistics.
 */
#ifndef JOBQ_LIVE_COUNTS_H
#define JOBQ_LIVE_COUNTS_H

#include "shared/stat_changes.h"

/*
 * Counts the rows by job type and status, unless they are counted; waits for
 * another process that does.  From then on commits keep the counts right.
 * False: there is nothing to count, on a standby say, or this transaction may
 * not count.
 */
extern bool live_counts_ensure(JobqDb *db);

#endif
