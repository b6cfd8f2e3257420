/*
 * hand_out.h
 *	  Hands out jobs in order.
 */
#ifndef JOBQ_HAND_OUT_H
#define JOBQ_HAND_OUT_H

#include "lanes/queue_scan.h"

/*
 * Hands out in lane order until no executor can take more; scan may be NULL.
 */
extern void hand_out_ready(QueueScan *scan, TimestampTz now);

#endif
