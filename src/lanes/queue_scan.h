/*
 * queue_scan.h
 *	  The dispatcher's reads of jobq.queue: direct scans of the lane index,
 *	  never a plan.
 */
#ifndef JOBQ_QUEUE_SCAN_H
#define JOBQ_QUEUE_SCAN_H

#include "access/relscan.h"
#include "lanes/lanes.h"
#include "tables/queue_table.h"
#include "utils/snapshot.h"

typedef struct QueueScan
{
	Relation	queue;
	Relation	lane_index;
	Relation	id_index;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	IndexScanDesc desc;			/* on lane_index, five keys */
	TimestampTz now;
	int32		home;
	Relation	key_lane_index; /* opened when needed */
	Relation	key_order_index;
	bool		rewritten;		/* the table has another file since the last time: TIDs are stale */
} QueueScan;

/*
 * Sets a mark: facts of an attempt that its job's row does not have.  Refs to
 * that version of the job carry the mark whenever the row is read, until the
 * job is settled.
 */
#define ANY_REV (-1)
/* Sets where the marks are: shared memory, so the next dispatcher has them. */
extern void scan_init(MemoryContext context, JobqDb *db);
extern void scan_mark(const pg_uuid_t *id, int32 rev, uint8 flags, Charge charge);
extern void scan_unmark(const pg_uuid_t *id);

/*
 * Opens the queue; false: the table or an index can't be locked without
 * waiting, or is missing.
 */
extern bool scan_open(QueueScan *scan, TimestampTz now);
extern void scan_close(QueueScan *scan);
/* Reads for the lane: its ranges, then a chunk from the cursor. */
extern void scan_lane(QueueScan *scan, Lane *lane);
/*
 * Adopts leases of rows of the lane from *at up to its hi: about *budget index
 * entries, and all of one position; false: there may be more.
 */
extern bool scan_leases(QueueScan *scan, const LaneId *id, Range *at, int *budget);
/* True if the row in the scan's slot is this database's. */
extern bool scan_row_is_ours(QueueScan *scan);
/* Finds the lane after *id in index order; start with the smallest type id. */
extern bool scan_next_lane(QueueScan *scan, LaneId *id);

/*
 * Reads at most budget index entries of one lane behind its cursor, from *at
 * on; true: lane is done.
 */
extern bool scan_behind(QueueScan *scan, Lane *lane, Range *at, int *budget);
/*
 * Counts the rows beyond the lane's cursor that are due; stops at
 * `until`, then *exact becomes false.
 */
extern int64 scan_count_due(QueueScan *scan, Lane *lane, MonoTime until, bool *exact);
/*
 * Counts the jobs that were passed over: live rows behind the cursor that are
 * not known.  The same stop; moves the lane's passed_from up.
 */
extern int64 scan_count_passed(QueueScan *scan, Lane *lane, MonoTime until, bool *exact);
/* Return the indexes that begin with the concurrency key; NULL: missing. */
extern Relation scan_key_lane_index(QueueScan *scan);
extern Relation scan_key_order_index(QueueScan *scan);

/*
 * Read the row in scan->slot: into ref; into the lane, if it may wait there.
 */
extern JobStatus scan_ref(QueueScan *scan, JobRef *ref);
extern bool scan_take(QueueScan *scan, Lane *lane, bool from_cursor);

/*
 * Reads jobs that were passed over into the lane, from *at on, up to its
 * cursor: at most n whose row is `wanted`, and *budget index entries.  True:
 * there may be more.
 */
typedef bool (*WantsRow) (TupleTableSlot *slot, const void *arg);
extern bool scan_passed(QueueScan *scan, Lane *lane, Range *at, WantsRow wanted, const void *arg, int n, int *budget);
extern bool scan_find(QueueScan *scan, const pg_uuid_t *id, JobRef *ref, JobStatus *status);

#endif
