/*
 * lane_reader.h
 *	  Reading lanes.
 */
#ifndef JOBQ_LANE_READER_H
#define JOBQ_LANE_READER_H

#include "lanes/queue_scan.h"

/* Forgets all lanes and reads every lane of the queue. */
extern void full_scan(QueueScan *scan);
/* Reads from `lo` on every lane, or those whose types keep the order of a concurrency key; what is known stays. */
extern void rescan(QueueScan *scan, TimestampTz lo, bool all);
/* Reads a bounded number of entries behind the cursors, from where the last call stopped. */
extern void sweep(QueueScan *scan);
/* Reads a chunk of each lane whose timer is due. */
extern void scan_due_lanes(QueueScan *scan);

#endif
