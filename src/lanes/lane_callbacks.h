/*
 * lane_callbacks.h
 *	  Functions of the limits that lanes and scans of the queue call.
 *
 * concurrency_keys.c, tenant_limit.c and leases.c register them at the dispatcher's
 * start, so that lanes/ includes nothing of limits/ and workers/.
 */
#ifndef JOBQ_LANE_CALLBACKS_H
#define JOBQ_LANE_CALLBACKS_H

#include "lanes/queue_scan.h"

/* Called for refs with a concurrency key. */
typedef struct KeyCallbacks
{
	/* Notes that the ref has come into a lane's memory. */
	void		(*enter) (Lane *lane, const JobRef *ref);
	/* Notes that the ref is leaving the lane's memory. */
	void		(*leave) (Lane *lane, const JobRef *ref);
	/*
	 * Notes that the ref left without a hand-out: other jobs of its key may
	 * start.
	 */
	void		(*lost) (const JobRef *ref);
	/*
	 * True if the row, just read, may wait in the lane's memory.  A row that
	 * may not is found again when it may.
	 */
	bool		(*admits) (QueueScan *scan, Lane *lane, const JobRef *ref);
} KeyCallbacks;

typedef struct TenantCallbacks
{
	/*
	 * Returns the number of the limit that counts the row in the slot; 0:
	 * none.
	 */
	int32		(*limit_of) (TupleTableSlot *slot);
	/*
	 * Notes that a ref that a limit counts left a lane's memory without a
	 * hand-out.
	 */
	void		(*lost) (const JobRef *ref);
} TenantCallbacks;

typedef struct LeaseCallbacks
{
	/*
	 * True if the row in the scan's slot, which says running, has a lease: it
	 * is counted from now on, and does not wait in a lane.
	 */
	bool		(*adopt) (QueueScan *scan, const JobRef *ref);
} LeaseCallbacks;

extern LeaseCallbacks lease_callbacks;
extern KeyCallbacks key_callbacks;
extern TenantCallbacks tenant_callbacks;

#endif
