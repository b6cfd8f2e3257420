/*
 * standby_fence.h
 *	  Stops readers of jobq.queue on a standby with a snapshot from before a
 *	  sweep beyond the horizon.
 */
#ifndef JOBQ_STANDBY_FENCE_H
#define JOBQ_STANDBY_FENCE_H

#include "access/transam.h"

/* True unless the installed SQL is of a release without the fence. */
extern bool fence_exists(void);

/*
 * Raises the fence before a sweep beyond the horizon.  xid: of a transaction
 * that has begun after the sweep's horizon was taken, and has committed; the
 * sweep's own is another one.
 */
extern void fence_raise(FullTransactionId xid);

extern void fence_install_hooks(void);

#endif
