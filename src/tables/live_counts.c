/*
 * live_counts.c
 *	  The rows of jobq.queue and jobq.dead_letters by job type and status: how
 *	  shared memory gets them after a start, a promotion or a TRUNCATE.
 *
 * One process counts, with one snapshot, in this order:
 *
 *	 lock the tables (no TRUNCATE between snapshot and scan)
 *	 phase COUNTING: commits log their changes of rows, see stat_changes.c
 *	 take the snapshot, and publish its xmax: later transactions are invisible
 *	 to it, so from here on their commits add to the counters at once
 *	 wait for transactions that are visible to it and have yet to log their changes
 *	 scan both tables
 *	 add the counts, and the logged changes that the snapshot does not see
 *	 phase COUNTED
 *
 * When the log was too small, or a TRUNCATE has been committed meanwhile, the
 * next one of a few tries follows.  The housekeeping process counts soon after
 * the start of a dispatcher; a session that reads the statistics earlier does
 * it itself.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/job_status.h"
#include "base/relations.h"
#include "lifecycle/release.h"
#include "shared/wait_events.h"
#include "tables/live_counts.h"
#include "tables/queue_table.h"
#include "tables/table_shape.h"

#define TRIES	10

typedef struct EntryCounts
{
	StatEntry  *entry;			/* hash key */
	int64		n[STAT_LIVE];
} EntryCounts;

/* ---------- scans ---------- */

static EntryCounts *
counts_of(HTAB *entries, StatEntry *entry)
{
	bool		found;
	EntryCounts *counts = hash_search(entries, &entry, HASH_ENTER, &found);

	if (!found)
		memset(counts->n, 0, sizeof(counts->n));
	return counts;
}

/* Counts the rows that the snapshot sees; dead: of jobq.dead_letters. */
static void
scan(Relation rel, Snapshot snapshot, HTAB *entries, bool dead)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc desc = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	int			type_att = dead ? H_type_id : Q_type_id;
	EntryCounts *counts = NULL;
	int32		last_type = 0;

	shape_require(rel);
	while (table_scan_getnextslot(desc, ForwardScanDirection, slot))
	{
		bool		isnull;
		int32		type_id = DatumGetInt32(slot_getattr(slot, type_att, &isnull));
		int			status = STAT_DEAD;

		CHECK_FOR_INTERRUPTS();
		if (counts == NULL || type_id != last_type)
			counts = counts_of(entries, stat_entry(type_id));
		last_type = type_id;
		if (!dead)
			status = (int) status_from_oid(DatumGetObjectId(slot_getattr(slot, Q_status, &isnull)));
		if (status < STAT_LIVE)
			counts->n[status]++;
	}
	table_endscan(desc);
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Notes the prepared transactions of this database that may have changed rows,
 * as their locks tell, and whose changes are not in shared memory: they were
 * prepared before the last start.
 */
static void
note_unknown_prepared(JobqDb *db)
{
	static const char query[] =
		"SELECT p.transaction FROM pg_catalog.pg_prepared_xact() p"
		" WHERE EXISTS (SELECT FROM pg_catalog.pg_lock_status() x, pg_catalog.pg_lock_status() r"
		"   WHERE x.pid IS NULL AND x.transactionid OPERATOR(pg_catalog.=) p.transaction"
		"     AND r.pid IS NULL AND r.virtualtransaction OPERATOR(pg_catalog.=) x.virtualtransaction"
		"     AND r.database OPERATOR(pg_catalog.=) %u AND r.mode OPERATOR(pg_catalog.<>) 'AccessShareLock'"
		"     AND r.relation OPERATOR(pg_catalog.=) ANY ('{%u,%u}'::pg_catalog.oid[]))";

	if (max_prepared_xacts == 0)
		return;
	SPI_connect();
	if (SPI_execute(psprintf(query, MyDatabaseId, jobq_relid("queue"), jobq_relid("dead_letters")), true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list prepared transactions");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		TransactionId xid = DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
		bool		known = false;

		SpinLockAcquire(&db->mutex);
		for (int k = 0; k < db->stats.nprepared; k++)
			known |= db->stats.prepared[k].xid == xid;
		if (!known)
			stat_note_unknown(&db->stats, xid);
		SpinLockRelease(&db->mutex);
	}
	SPI_finish();
}

/* ---------- one count ---------- */

/* Begins to count; false: another process does, or it has been done. */
static bool
begin(JobqDb *db)
{
	DbStats    *stats = &db->stats;
	bool		mine;

	SpinLockAcquire(&db->mutex);
	mine = stats->phase == STAT_UNCOUNTED;
	if (mine)
	{
		stats->phase = STAT_COUNTING;
		stats->counter = MyProcPid;
		stats->count_spoilt = stats->count_due = false;
		stats->nunknown = 0;
		stats->counted_from = InvalidTransactionId;
		stats->nlogged = 0;
	}
	SpinLockRelease(&db->mutex);
	return mine;
}

/* Sets the counters of rows to 0: from the snapshot on commits add to them. */
static void
clear(JobqDb *db)
{
	StatEntry **entries;
	int			n = stat_entries(db, &entries);

	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		for (int c = 0; c < STAT_LIVE; c++)
			pg_atomic_write_u64(&entries[i]->n[c], 0);
	}
	SpinLockRelease(&db->mutex);
}

/*
 * Takes the count's snapshot.  It does not see what this transaction itself has
 * written, which is added when it commits.
 */
static Snapshot
take_snapshot(JobqDb *db)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	snapshot->curcid = FirstCommandId;
	SpinLockAcquire(&db->mutex);
	db->stats.counted_from = snapshot->xmax;
	SpinLockRelease(&db->mutex);
	return snapshot;
}

/*
 * Waits for transactions that the snapshot sees and whose changes are not in
 * shared memory yet: after the count they would be added to it.  They hold the
 * lock of their id meanwhile.
 */
static void
wait_for_changes(JobqDb *db, Snapshot snapshot)
{
	LockData   *locks = GetLockStatusData();

	for (int i = 0; i < locks->nelements; i++)
	{
		const LOCKTAG *tag = &locks->locks[i].locktag;
		TransactionId xid = tag->locktag_field1;

		if (tag->locktag_type == LOCKTAG_TRANSACTION && (locks->locks[i].holdMask & LOCKBIT_ON(ExclusiveLock)) != 0 &&
			!TransactionIdIsCurrentTransactionId(xid) && !XidInMVCCSnapshot(xid, snapshot))
			XactLockTableWait(xid, NULL, NULL, XLTW_None);
	}
	stat_prepared_ended(db);
}

/* Ends the count: its result counts, or has to be made again. */
static void
end(JobqDb *db, StatPhase phase)
{
	SpinLockAcquire(&db->mutex);
	if (db->stats.phase == STAT_COUNTING && db->stats.counter == MyProcPid)
		db->stats.phase = phase;
	SpinLockRelease(&db->mutex);
	ConditionVariableBroadcast(&db->stats.counted);
}

/* Adds the changes that the snapshot does not see. */
static void
add_unseen(HTAB *entries, Snapshot snapshot, const StatLogged *logged, int n)
{
	for (int i = 0; i < n; i++)
	{
		EntryCounts *counts;

		if (!XidInMVCCSnapshot(logged[i].xid, snapshot))
			continue;
		counts = counts_of(entries, logged[i].entry);
		for (int c = 0; c < STAT_LIVE; c++)
			counts->n[c] += logged[i].n[c];
	}
}

static EntryCounts **
list_counts(HTAB *entries, int *n)
{
	EntryCounts **list = palloc(sizeof(EntryCounts *) * hash_get_num_entries(entries));
	EntryCounts *counts;
	HASH_SEQ_STATUS seq;

	*n = 0;
	hash_seq_init(&seq, entries);
	while ((counts = hash_seq_search(&seq)) != NULL)
		list[(*n)++] = counts;
	return list;
}

/*
 * Adds the result to the counters; false: it is spoilt, or the log has grown
 * beyond the `seen` changes that were looked at.
 */
static bool
publish(JobqDb *db, HTAB *entries, int seen)
{
	int			n;
	EntryCounts **list = list_counts(entries, &n);
	bool		complete;

	SpinLockAcquire(&db->mutex);
	complete = db->stats.nlogged == seen && !db->stats.count_spoilt;
	for (int i = 0; i < n && complete; i++)
	{
		for (int c = 0; c < STAT_LIVE && stat_entry_is_of(list[i]->entry, db); c++)
			stat_add_live(list[i]->entry, c, list[i]->n[c]);
	}
	if (complete)
		db->stats.phase = STAT_COUNTED;
	SpinLockRelease(&db->mutex);
	pfree(list);
	return complete;
}

/* Looks at what was logged until nothing is added, and publishes the result. */
static bool
finish(JobqDb *db, HTAB *entries, Snapshot snapshot)
{
	StatLogged *logged = palloc(sizeof(StatLogged) * STAT_LOGGED);
	int			seen = 0;
	bool		done = false;

	while (!done && !db->stats.count_spoilt)
	{
		int			n;

		SpinLockAcquire(&db->mutex);
		n = db->stats.nlogged;
		memcpy(logged, db->stats.logged, sizeof(StatLogged) * n);
		SpinLockRelease(&db->mutex);
		add_unseen(entries, snapshot, logged + seen, n - seen);
		seen = n;
		done = publish(db, entries, seen);
	}
	pfree(logged);
	return done;
}

/* Counts once; false: try again.  The tables are locked. */
static bool
count_rows(JobqDb *db, Relation queue, Relation dead)
{
	HASHCTL		ctl = {.keysize = sizeof(StatEntry *), .entrysize = sizeof(EntryCounts), .hcxt = CurrentMemoryContext};
	HTAB	   *entries = hash_create("jobq counts", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	bool		done;
	Snapshot	snapshot;

	clear(db);
	note_unknown_prepared(db);	/* before the snapshot: it sees those that end meanwhile */
	snapshot = take_snapshot(db);
	wait_for_changes(db, snapshot);
	scan(queue, snapshot, entries, false);
	scan(dead, snapshot, entries, true);
	done = finish(db, entries, snapshot);
	UnregisterSnapshot(snapshot);
	hash_destroy(entries);
	return done;
}

static void
give_up(int code, Datum arg)
{
	end((JobqDb *) DatumGetPointer(arg), STAT_UNCOUNTED);
}

static void
count(JobqDb *db)
{
	Relation	queue = table_open(jobq_relid("queue"), AccessShareLock);
	Relation	dead = table_open(jobq_relid("dead_letters"), AccessShareLock);

	for (int i = 0; i < TRIES && begin(db); i++)
	{
		bool		done;

		PG_ENSURE_ERROR_CLEANUP(give_up, PointerGetDatum(db));
		{
			done = count_rows(db, queue, dead);
		}
		PG_END_ENSURE_ERROR_CLEANUP(give_up, PointerGetDatum(db));
		end(db, done ? STAT_COUNTED : STAT_UNCOUNTED);
	}
	table_close(dead, AccessShareLock);
	table_close(queue, AccessShareLock);
}

/* ---------- when ---------- */

static void
wait_for_counter(JobqDb *db)
{
	ConditionVariablePrepareToSleep(&db->stats.counted);
	while (db->stats.phase == STAT_COUNTING)
		ConditionVariableSleep(&db->stats.counted, jobq_wait(WAIT_STATISTICS));
	ConditionVariableCancelSleep();
}

bool
live_counts_ensure(JobqDb *db)
{
	if (db == NULL || RecoveryInProgress() || !OidIsValid(jobq_relid("queue")) || release_trouble() != NULL)
		return false;
	if (stat_recount_due())		/* a count for others cannot rest on this transaction's changes */
		return db->stats.phase == STAT_COUNTED;
	for (int i = 0; i < TRIES && db->stats.phase != STAT_COUNTED; i++)
	{
		if (db->stats.phase == STAT_COUNTING)
			wait_for_counter(db);
		else
			count(db);
	}
	return db->stats.phase == STAT_COUNTED;
}
