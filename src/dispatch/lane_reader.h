/*
 * lane_reader.h
 *	  Reading lanes.
 */
#ifndef JOBQ_LANE_READER_H
#define JOBQ_LANE_READER_H

#include "lanes/queue_scan.h"

/* Forgets all lanes and reads every lane of the queue. */
extern void read_all_lanes(QueueScan *scan);

/*
 * Reads, in a few turns, the leases that a former dispatcher knew: all rows of
 * pull types, of which lanes read ahead only some.
 */
extern void read_leases(QueueScan *scan);

/*
 * Reads from `lo` on every lane, or those of types that keep the order of a
 * concurrency key; known jobs stay.
 */
extern void reread_lanes(QueueScan *scan, TimestampTz lo, bool all);

/*
 * Reads a bounded number of entries behind the cursors, from where the last
 * call stopped.
 */
extern void sweep(QueueScan *scan);
/* Reads a chunk of each lane with a timer that is due. */
extern void read_due_lanes(QueueScan *scan);

/*
 * Takes jobs off the lane's head as long as their rows have gone or changed:
 * cancelled, deleted or postponed while they waited.
 */
extern void lane_drop_gone(QueueScan *scan, Lane *lane);
/*
 * Returns how many refs in the lane's memory are of such jobs; stops at
 * `until`, then *exact becomes false.
 */
extern int	lane_count_gone(QueueScan *scan, Lane *lane, MonoTime until, bool *exact);

#endif
