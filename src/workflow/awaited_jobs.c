/*
 * awaited_jobs.c
 *	  Keeps AwaitedJobs complete and sparse.
 *
 * After a start of the server no bit is set, while jobq.dependencies has edges.
 * Until a pass of the conductor has marked all parents, every job counts as
 * awaited (AwaitedJobs.complete).  The edges of a transaction that was prepared
 * before the start are not visible to the pass, so the sets are not complete
 * before it has ended.
 *
 * A set can't forget a job.  So there are two: bits are set in the current one,
 * and tested in both.  When many bits were added since the last change, the
 * other set, which is empty, becomes the current one.  Transactions that ran
 * then may have set bits in the old set.  When all of them have ended, a pass
 * marks the parents of all edges in the current set, and the old one is
 * cleared.  An enqueue has an xid before it sets a bit.
 *
 * When a conductor dies, the next one goes on from AwaitedJobs.  Where many
 * edges exist, the sets change after twice the bits that a pass has set.
 */
#include "jobq.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "shared/publish_ends.h"
#include "workflow/awaited_jobs.h"

static uint32 limit = JOBQ_AWAITED_FULL;
static bool clears = false;		/* the pass began after all transactions of before the change */

void
awaited_start(JobqDb *db)
{
	if (!TransactionIdIsValid(db->awaited.first_xid))
		db->awaited.first_xid = XidFromFullTransactionId(ReadNextFullTransactionId());
}

/* True if this database has a prepared transaction, older than `before` if that is valid. */
static bool
prepared_exist(TransactionId before)
{
	bool		found = false;

	if (max_prepared_xacts == 0)
		return false;
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute(psprintf("SELECT transaction FROM pg_catalog.pg_prepared_xact() WHERE dbid = %u", MyDatabaseId),
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list prepared transactions");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		xid = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

		found |= !TransactionIdIsValid(before) || TransactionIdPrecedes(DatumGetTransactionId(xid), before);
	}
	PopActiveSnapshot();
	SPI_finish();
	return found;
}

void
awaited_complete(JobqDb *db)
{
	if (pg_atomic_read_u32(&db->awaited.complete) == 0 && TransactionIdIsValid(db->awaited.first_xid) &&
		!prepared_exist(db->awaited.first_xid))
		pg_atomic_write_u32(&db->awaited.complete, 1);
}

/* Notes whether a prepared transaction may have edges or ends. */
static void
note_prepared(JobqDb *db)
{
	SpinLockAcquire(&db->mutex);
	db->ends.prepared = false;
	SpinLockRelease(&db->mutex);
	if (!prepared_exist(InvalidTransactionId))
		return;
	SpinLockAcquire(&db->mutex);
	db->ends.prepared = true;
	SpinLockRelease(&db->mutex);
}

/* ---------- the change ---------- */

bool
awaited_change(JobqDb *db)
{
	return pg_atomic_read_u32(&db->awaited.old_has_bits) != 0;
}

static void
change(AwaitedJobs *set)
{
	pg_atomic_write_u32(&set->old_has_bits, 1);
	set->switch_xid = InvalidTransactionId;
	pg_atomic_write_u32(&set->added, 0);
	pg_atomic_write_u32(&set->current, 1 - pg_atomic_read_u32(&set->current));
	pg_memory_barrier();		/* transactions with later xids set bits in the new one */
	set->switch_xid = XidFromFullTransactionId(ReadNextFullTransactionId());
}

bool
awaited_turn(JobqDb *db)
{
	AwaitedJobs *set = &db->awaited;

	if (!awaited_change(db) && pg_atomic_read_u32(&set->added) >= limit)
		change(set);
	return awaited_change(db);
}

void
awaited_pass_begins(JobqDb *db)
{
	Snapshot	snapshot;

	note_prepared(db);
	clears = false;
	if (!awaited_change(db) || !TransactionIdIsValid(db->awaited.switch_xid))
		return;
	snapshot = GetLatestSnapshot();
	clears = TransactionIdFollowsOrEquals(snapshot->xmin, db->awaited.switch_xid);
}

static void
clear_old(AwaitedJobs *set)
{
	pg_atomic_uint32 *words = set->words[1 - pg_atomic_read_u32(&set->current)];

	for (int i = 0; i < JOBQ_AWAITED_WORDS; i++)
		pg_atomic_write_u32(&words[i], 0);
	limit = Max(JOBQ_AWAITED_FULL, 2 * pg_atomic_read_u32(&set->added));
	pg_atomic_write_u32(&set->old_has_bits, 0);
	elog(DEBUG1, "jobq: cleared a set of awaited jobs, %u bits are set in the other one", pg_atomic_read_u32(&set->added));
}

void
awaited_pass_ends(JobqDb *db)
{
	if (clears)
		clear_old(&db->awaited);
	clears = false;
	awaited_complete(db);
}
