/*
 * snapshot_horizon.h
 *	  Which row versions nobody in this database can see any more, whoever else holds back the horizon.
 */
#ifndef JOBQ_SNAPSHOT_HORIZON_H
#define JOBQ_SNAPSHOT_HORIZON_H

#include "port/atomics.h"
#include "storage/lock.h"
#include "utils/snapshot.h"

/* Transactions that had ended at some moment: those below xmax, but for those that were running. */
#define JOBQ_MAX_RUNNING	512
typedef struct Horizon
{
	TransactionId xmin;			/* all that precede it had */
	TransactionId xmax;			/* InvalidTransactionId: none had */
	uint64		taken_at;		/* next full xid */
	bool		coarse;			/* less than had ended: not all that were running fit, or are known */
	bool		tops_only;		/* of those that were running only the top-level ones are listed */
	int			nrunning;
	TransactionId running[JOBQ_MAX_RUNNING];	/* ascending */
} Horizon;

/* Waits until every snapshot of this database is younger than the moment of its horizon. */
typedef struct Grace
{
	Horizon		horizon;
	int			round;			/* from 1 on; 0: not begun */
	int			nolder;
	VirtualTransactionId *older;	/* who may have an older one */
	pg_atomic_uint32 *imports;	/* begun in this database, ever */
	uint32		seen;			/* of them, when this round began */
	uint32		seen_before;	/* and the one before it */
} Grace;

/* Forgets it when so many transactions have begun since that xids can't be compared with it. */
extern void horizon_check_age(Horizon *h);

/*
 * Forgets subtransactions' ends when it can't be asked any more whose they are.  The caller has a snapshot, from before
 * this call until after the last one of horizon_covers().
 */
extern void horizon_check_tops(Horizon *h);

/* Had it ended?  Then who deletes a row as xid is seen to have done so, or to have failed, by all. */
extern bool horizon_covers(const Horizon *h, TransactionId xid);

extern void grace_init(Grace *grace, MemoryContext context, pg_atomic_uint32 *imports);
/* The moment is the snapshot's.  The caller's own snapshots are not waited for. */
extern void grace_begin(Grace *grace, Snapshot snapshot);
/* Call now and then; true: grace->horizon holds for ever. */
extern bool grace_over(Grace *grace);

#endif
