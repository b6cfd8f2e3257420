/*
 * snapshot_horizon.h
 *	  Which row versions no snapshot of this database can see any more,
 *	  whatever else holds back the server's horizon.
 */
#ifndef JOBQ_SNAPSHOT_HORIZON_H
#define JOBQ_SNAPSHOT_HORIZON_H

#include "port/atomics.h"
#include "storage/lock.h"
#include "utils/snapshot.h"

/*
 * Transactions that had ended at some moment: those below xmax, except for
 * those that were running.
 */
#define JOBQ_MAX_RUNNING	512
typedef struct Horizon
{
	TransactionId xmin;			/* all that precede it had ended */
	TransactionId xmax;			/* InvalidTransactionId: none had ended */
	uint64		taken_at;		/* next full xid */
	bool		coarse;			/* covers fewer than had ended: the list of
								 * those that were running is incomplete */
	bool		tops_only;		/* only top-level transactions are listed */
	int			nrunning;
	TransactionId running[JOBQ_MAX_RUNNING];	/* ascending */
} Horizon;

/*
 * Waits until every snapshot of this database is younger than the moment of
 * its horizon.
 */
typedef struct Grace
{
	Horizon		horizon;
	int			round;			/* from 1 on; 0: not begun */
	int			nolder;
	VirtualTransactionId *older;	/* may have an older snapshot */
	pg_atomic_uint32 *imports;	/* begun in this database, ever */
	uint32		seen;			/* of them, when this round began */
	uint32		seen_before;	/* and the one before it */
} Grace;

/* Clears a horizon that is too old for a comparison of xids. */
extern void horizon_check_age(Horizon *h);

/*
 * Makes the horizon coarse when pg_subtrans may lack the parents of its
 * subtransactions.  The caller has a snapshot, from before this call until
 * after the last call of horizon_covers().
 */
extern void horizon_check_tops(Horizon *h);

/*
 * True if the transaction had ended: then every snapshot sees a deletion by
 * xid as done, or as rolled back.
 */
extern bool horizon_covers(const Horizon *h, TransactionId xid);

/* Allocates the list in that context. */
extern void grace_init(Grace *grace, MemoryContext context, pg_atomic_uint32 *imports);

/*
 * Takes the horizon of the snapshot.  The caller's own snapshots are not
 * waited for.
 */
extern void grace_begin(Grace *grace, Snapshot snapshot);

/*
 * True if no older snapshot is left; then grace->horizon stays valid.  Call
 * repeatedly.
 */
extern bool grace_over(Grace *grace);

#endif
