/*
 * lane_reader.h
 *	  Reading lanes and handing out.
 */
#ifndef JOBQ_LANE_READER_H
#define JOBQ_LANE_READER_H

#include "lanes/queue_scan.h"

/* Forgets all lanes and reads every one there is. */
extern void full_scan(QueueScan *scan);
/* Every lane there is, or those whose types keep the order of a concurrency key, from `lo` on, besides what is known. */
extern void rescan(QueueScan *scan, TimestampTz lo, bool all);
/* A bounded look behind the cursors, resumed at each call. */
extern void sweep(QueueScan *scan);
extern void scan_due_lanes(QueueScan *scan);
/* Hands out in lane order until nobody has capacity; scan may be NULL. */
extern void hand_out_ready(QueueScan *scan, TimestampTz now);

#endif
