/*
 * snapshot_horizon.c
 *	  Which row versions no snapshot of this database can see any more.
 *
 * VACUUM's horizon is one xid: the oldest that is running, or that a snapshot,
 * a replication slot or a standby's feedback names.  One idle or prepared
 * transaction, an unused slot, or another database's transaction (each
 * snapshot's xmin counts it) keeps every later dead row as long as it exists.
 * None of them reads jobq's rows: only snapshots of this database do.  For the
 * tables of one program there is a sharper rule:
 *
 *	 At moment T the deleting transaction had ended, and every snapshot taken
 *	 in this database before T is gone.  A later snapshot sees that transaction
 *	 as ended, whatever else is running.  So no snapshot can see the row.
 *
 * A snapshot decides "had ended": below its xmax and not among its running
 * transactions.  The horizon must be that set and not one xid as a limit: a
 * transaction that was running at T may delete later, and commit while a
 * snapshot still sees the row.  A snapshot knows no subtransactions when one
 * transaction had more than 64 of them.  Then an xid is looked up in
 * pg_subtrans and its top-level transaction is compared, as PostgreSQL does
 * it.  pg_subtrans begins with the oldest transaction that runs now.  When
 * that one follows the horizon's xmin, only transactions that precede all
 * running ones count.
 *
 * The wait for "is gone" works as in CREATE INDEX CONCURRENTLY: list the
 * virtual transactions of this database that have an xmin, and poll until each
 * has ended, has none any more, or has a newer one.
 *
 * A snapshot can be handed on: exported, imported by a session that is not in
 * the list, exported again.  So sessions count the imports that they begin
 * (statement_hooks.c), and rounds of such waiting go on until no import has
 * begun during the last two.  Two rounds are needed, because a session that
 * had begun an import before them may get its xmin during the first.  Then the
 * exporter was in the first list, or had gone.  So at the end of the first
 * round the importer has its xmin, and is in the second list.
 *
 * A slot that builds a snapshot of this database for logical decoding has a
 * snapshot that belongs to no process yet.  When it is complete the process
 * has it as its xmin.  So a list is the last one only if no slot was building
 * one before it.
 *
 * A standby's sessions are not in this database's list: beyond_horizon.c.
 */
#include "jobq.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/twophase.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "shared/snapshot_horizon.h"

static int
compare_xids(const void *a, const void *b)
{
	TransactionId x = *(const TransactionId *) a;
	TransactionId y = *(const TransactionId *) b;

	return x == y ? 0 : TransactionIdPrecedes(x, y) ? -1 : 1;
}

/*
 * Stores the running transactions.  If there are too many, all xids above the
 * last one that fits count as running.
 */
static void
keep_running(Horizon *h, TransactionId *xids, int n)
{
	qsort(xids, n, sizeof(TransactionId), compare_xids);
	if (n > JOBQ_MAX_RUNNING)
	{
		h->xmax = xids[JOBQ_MAX_RUNNING];
		n = JOBQ_MAX_RUNNING;
		h->coarse = true;
	}
	memcpy(h->running, xids, sizeof(TransactionId) * n);
	h->nrunning = n;
}

static void
horizon_take(Horizon *h, Snapshot snapshot)
{
	int			nsub = snapshot->suboverflowed ? 0 : Max(snapshot->subxcnt, 0);
	int			n = snapshot->xcnt + nsub;
	TransactionId *xids;

	h->nrunning = 0;
	h->coarse = false;
	h->tops_only = snapshot->suboverflowed;
	h->taken_at = U64FromFullTransactionId(ReadNextFullTransactionId());
	h->xmin = snapshot->xmin;
	h->xmax = snapshot->xmax;
	if (n == 0)
		return;
	xids = palloc(sizeof(TransactionId) * n);
	memcpy(xids, snapshot->xip, sizeof(TransactionId) * snapshot->xcnt);
	if (nsub > 0)
		memcpy(xids + snapshot->xcnt, snapshot->subxip, sizeof(TransactionId) * nsub);
	keep_running(h, xids, n);
	pfree(xids);
}

void
horizon_check_age(Horizon *h)
{
	if (U64FromFullTransactionId(ReadNextFullTransactionId()) - h->taken_at > PG_INT32_MAX / 2)
		h->xmax = InvalidTransactionId;
}

void
horizon_check_tops(Horizon *h)
{
	Assert(TransactionIdIsNormal(TransactionXmin));
	if (!h->tops_only || !TransactionIdIsNormal(h->xmax) || !TransactionIdPrecedes(h->xmin, TransactionXmin))
		return;
	h->xmax = h->xmin;
	h->nrunning = 0;
	h->coarse = true;
}

bool
horizon_covers(const Horizon *h, TransactionId xid)
{
	if (!TransactionIdIsNormal(h->xmax) || !TransactionIdPrecedes(xid, h->xmax))
		return false;
	if (TransactionIdPrecedes(xid, h->xmin))
		return true;
	if (h->tops_only)
		xid = SubTransGetTopmostTransaction(xid);
	return h->nrunning == 0 ||
		bsearch(&xid, h->running, h->nrunning, sizeof(TransactionId), compare_xids) == NULL;
}

/* ---------- waiting for older snapshots ---------- */

/*
 * Lists the transactions with a snapshot that may be older than h: their xmin
 * precedes h->xmax.
 */
static VirtualTransactionId *
list_older(const Horizon *h, int *n)
{
	TransactionId limit = h->xmax;

	TransactionIdRetreat(limit);
	return GetCurrentVirtualXIDs(limit, true, false, PROC_IN_VACUUM, n);
}

static bool
is_listed(VirtualTransactionId vxid, const VirtualTransactionId *list, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (VirtualTransactionIdEquals(vxid, list[i]))
			return true;
	}
	return false;
}

/* True if a slot builds a snapshot of this database. */
static bool
slot_builds_snapshot(void)
{
	bool		found = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !found; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		found = SlotIsLogical(slot) && slot->data.database == MyDatabaseId &&
			TransactionIdIsValid(slot->effective_xmin);
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return found;
}

static void
begin_round(Grace *grace)
{
	VirtualTransactionId *now;

	grace->seen_before = grace->seen;
	grace->seen = pg_atomic_read_u32(grace->imports);	/* before the list */
	now = list_older(&grace->horizon, &grace->nolder);
	memcpy(grace->older, now, sizeof(VirtualTransactionId) * grace->nolder);
	pfree(now);
	grace->round++;
}

void
grace_init(Grace *grace, MemoryContext context, pg_atomic_uint32 *imports)
{
	grace->imports = imports;
	grace->older = MemoryContextAlloc(context,
									  sizeof(VirtualTransactionId) * (MaxBackends + max_prepared_xacts));
	grace->nolder = grace->round = 0;
}

void
grace_begin(Grace *grace, Snapshot snapshot)
{
	horizon_take(&grace->horizon, snapshot);
	grace->round = 0;
	begin_round(grace);
}

/* Drops listed transactions that have ended; true if none is left. */
static bool
older_are_gone(Grace *grace)
{
	int			n;
	int			kept = 0;
	VirtualTransactionId *now = list_older(&grace->horizon, &n);

	for (int i = 0; i < grace->nolder; i++)
	{
		if (is_listed(grace->older[i], now, n))
			grace->older[kept++] = grace->older[i];
	}
	grace->nolder = kept;
	pfree(now);
	return kept == 0;
}

bool
grace_over(Grace *grace)
{
	while (older_are_gone(grace))
	{
		if (grace->round > 1 && pg_atomic_read_u32(grace->imports) == grace->seen_before)
			return true;
		if (slot_builds_snapshot())
			return false;
		begin_round(grace);
	}
	return false;
}
