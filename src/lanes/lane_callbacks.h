/*
 * lane_callbacks.h
 *	  Functions of the limits that lanes and scans of the queue call.
 *
 * concurrency_keys.c and tenant_limit.c register them at the dispatcher's
 * start, so that lanes/ includes nothing of limits/.
 */
#ifndef JOBQ_LANE_CALLBACKS_H
#define JOBQ_LANE_CALLBACKS_H

#include "lanes/queue_scan.h"

/* Called for refs with a concurrency key. */
typedef struct KeyCallbacks
{
	/* The ref has come into a lane's memory. */
	void		(*enter) (Lane *lane, const JobRef *ref);
	/* The ref is leaving the lane's memory. */
	void		(*leave) (Lane *lane, const JobRef *ref);
	/* The ref has left without a hand-out: others of its key may start instead. */
	void		(*lost) (const JobRef *ref);
	/* True if the row, just read, may wait in the lane's memory.  If not, it is found again when it may. */
	bool		(*admits) (QueueScan *scan, Lane *lane, const JobRef *ref);
} KeyCallbacks;

typedef struct TenantCallbacks
{
	/* Returns the number of the limit that counts the row in the slot; 0: none. */
	int32		(*limit_of) (TupleTableSlot *slot);
	/* True if the limit `number`, or one above it, is `outer`. */
	bool		(*is_below) (int32 number, int32 outer);
	/* A ref that a limit counts has left a lane's memory without a hand-out. */
	void		(*lost) (const JobRef *ref);
} TenantCallbacks;

extern KeyCallbacks key_callbacks;
extern TenantCallbacks tenant_callbacks;

#endif
