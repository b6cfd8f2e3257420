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

/* True if jobq.<parent> has a partition for ts; leaves no lock. */
extern bool partition_exists(const char *parent, TimestampTz ts);

/*
 * Opens the partition of jobq.<parent> for ts; false if there is none: then an
 * open one stays open.
 */
extern bool partition_open(Partition *p, const char *parent, TimestampTz ts);
extern void partition_close(Partition *p);

/*
 * Has the partitions made for a row of history that expires at need (0: none),
 * and for events and alerts of now.  For sessions that may wait; jobq's own
 * processes ask the dispatcher.  Returns false if the tables were in use for
 * 30 seconds, or no worker slot was free for two.
 */
extern bool partitions_make(TimestampTz need);
/* The same for an artifact that expires at need. */
extern bool partitions_make_artifacts(TimestampTz need);

/*
 * The same in this transaction, as the owner of the tables, which is the
 * current user.
 */
extern void partitions_ensure(TimestampTz need);

/*
 * Starts a process that makes partitions and waits until it has ended; false:
 * there is no worker slot (maintenance.h).
 */
typedef bool (*PartitionProcess) (TimestampTz need);
/* Sets it, once, when the library is loaded. */
extern void partitions_set_process(PartitionProcess start);

#endif
