/*
 * wait_snapshot.h
 *	  A wait without a snapshot: VACUUM removes dead rows meanwhile.
 */
#ifndef JOBQ_WAIT_SNAPSHOT_H
#define JOBQ_WAIT_SNAPSHOT_H

/*
 * Releases the snapshot of the statement that waits; false: it reads more than
 * jobq.claim, and keeps its snapshot.  25001 if the transaction has an earlier
 * snapshot.
 */
extern bool wait_snapshot_release(FunctionCallInfo fcinfo);

/* Gives the statement a new snapshot after that. */
extern void wait_snapshot_renew(void);

#endif
