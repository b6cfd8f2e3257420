/*
 * partition.h
 *	  The partition of jobq.history, jobq.artifacts, jobq.events or jobq.alerts
 *	  that holds a moment, open for writing.
 */
#ifndef JOBQ_PARTITION_H
#define JOBQ_PARTITION_H

#include "tables/queue_table.h"

typedef struct Partition
{
	Table		table;
	TimestampTz from;			/* what the open one holds */
	TimestampTz to;
	bool		open;
} Partition;

#define partition_holds(p, ts)	((p)->open && (ts) >= (p)->from && (ts) < (p)->to)

/* Opens the partition of jobq.<parent> for ts: the default one if no other holds it. */
extern void partition_open(Partition *p, const char *parent, TimestampTz ts);
extern void partition_close(Partition *p);

#endif
