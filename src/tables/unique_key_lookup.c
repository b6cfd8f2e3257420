/*
 * unique_key_lookup.c
 *	  Unique keys.
 *
 * The index (type, tenant, key, successor) admits two live rows of a key: one,
 * and one more that was queued while the first was running.  `successor` only
 * tells the two apart; a new row takes the value that is free.  They never run
 * at the same time: a job that is handed out while the other runs is put back,
 * and published again when the other has ended.
 *
 * A claim writes that its job runs, but others see that when its transaction
 * has ended.  So it locks the key, if two rows have it, until then; one that
 * can't leaves the job: the end of the other publishes it.
 *
 * An enqueue looks at committed rows with the latest snapshot, locks a waiting
 * one, and inserts when there is none.  Another open transaction with the key
 * is met at the row's lock, at the unique index, or, if it queues a successor of
 * a job that has ended since, by a look for such a row.  In each case the
 * enqueue waits for that transaction and looks again.  A successor whose
 * predecessor has ended before its row was there is taken back, for that look
 * may have missed it.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "shared/xact_changes.h"
#include "tables/queue_find.h"
#include "tables/unique_key_lookup.h"

#define UNIQUE_KEY_LOCK	8		/* keeps our locks apart from others with LOCKTAG_ADVISORY */

static const AttrNumber key_columns[] = {Q_type_id, Q_tenant, Q_unique_key, Q_successor};

/* Keys for the first n columns of the index; n = 4: that successor only. */
static void
init_scan_keys(ScanKeyData *keys, const UniqueKey *key, bool successor)
{
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(key->type_id));
	if (key->tenant == NULL)
		ScanKeyEntryInitialize(&keys[1], SK_ISNULL | SK_SEARCHNULL, 2, InvalidStrategy, InvalidOid,
							   InvalidOid, InvalidOid, (Datum) 0);
	else
		ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid,
							   DEFAULT_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key->tenant));
	ScanKeyEntryInitialize(&keys[2], 0, 3, BTEqualStrategyNumber, InvalidOid,
						   DEFAULT_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key->key));
	ScanKeyInit(&keys[3], 4, BTEqualStrategyNumber, F_BOOLEQ, BoolGetDatum(successor));
}

static IndexScanDesc
begin_scan(Table *queue, Snapshot snapshot, ScanKeyData *keys, int nkeys)
{
	Relation	index = table_index(queue, key_columns, lengthof(key_columns));
	IndexScanDesc scan;

	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the unique index on jobq.queue (type_id, tenant, unique_key, successor) is missing or invalid"),
				 errhint("Run REINDEX TABLE jobq.queue.")));
	scan = index_beginscan(queue->rel, index, snapshot, NULL, nkeys, 0, SO_NONE);
	index_rescan(scan, keys, nkeys, NULL, 0);
	return scan;
}

/*
 * Finds the live rows of a key, committed or our own, at this moment: none,
 * one or two.
 */
static int
find_live(Table *queue, const UniqueKey *key, Job *found)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData keys[4];
	IndexScanDesc scan;
	int			n = 0;

	init_scan_keys(keys, key, false);
	scan = begin_scan(queue, snapshot, keys, 3);
	while (n < 2 && index_getnext_slot(scan, ForwardScanDirection, queue->slot))
		job_from_slot(queue, &found[n++]);
	index_endscan(scan);
	ExecClearTuple(queue->slot);
	UnregisterSnapshot(snapshot);
	return n;
}

/* --- the live job of a key --- */

/*
 * Raises 40001 if, above READ COMMITTED, our snapshot does not show the row:
 * it must not decide.  Our own rows do, which are newer than the snapshot,
 * too.
 */
static void
check_isolation(Table *queue, Job *job)
{
	bool		visible;

	if (!IsolationUsesXactSnapshot() ||
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(job->tuple->t_data)))
		return;
	visible = queue_fetch_version(queue, &job->tid) &&
		table_tuple_satisfies_snapshot(queue->rel, queue->slot, GetTransactionSnapshot());
	ExecClearTuple(queue->slot);
	if (!visible)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a concurrent job with the same unique_key")));
}

static KeyState
lock_waiting(Table *queue, Job *seen, Job *job)
{
	switch (queue_lock_or_wait(queue, seen, job))
	{
		case LOCK_OK:
			return KEY_WAITING;
		case LOCK_BUSY:
		case LOCK_GONE:
			break;
	}
	return KEY_CHANGED;
}

KeyState
unique_look(Table *queue, const UniqueKey *key, Job *job)
{
	Job			live[2];
	int			n;
	int			i;

	CommandCounterIncrement();	/* our own earlier writes count */
	n = find_live(queue, key, live);
	for (i = 0; i < n; i++)
		check_isolation(queue, &live[i]);
	for (i = n - 1; i >= 0; i--)
	{
		if (!job_is_running(&live[i]))
			return lock_waiting(queue, &live[i], job);
	}
	if (n == 0)
		return KEY_FREE;
	*job = live[n - 1];
	return n == 1 ? KEY_RUNNING : KEY_FULL;
}

bool
unique_wait(Table *queue, const UniqueKey *key, bool successor)
{
	SnapshotData dirty;
	ScanKeyData keys[4];
	IndexScanDesc scan;
	TransactionId xid = InvalidTransactionId;
	uint32		token = 0;

	InitDirtySnapshot(dirty);
	init_scan_keys(keys, key, successor);
	scan = begin_scan(queue, &dirty, keys, 4);
	while (!TransactionIdIsValid(xid) &&
		   index_getnext_slot(scan, ForwardScanDirection, queue->slot))
	{
		token = TransactionIdIsValid(dirty.xmin) ? dirty.speculativeToken : 0;
		xid = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
	}
	index_endscan(scan);
	ExecClearTuple(queue->slot);
	if (token != 0)
		SpeculativeInsertionWait(xid, token);
	else if (TransactionIdIsValid(xid))
		XactLockTableWait(xid, NULL, NULL, XLTW_None);
	return TransactionIdIsValid(xid);
}

bool
unique_keep_successor(Table *queue, const UniqueKey *key, const pg_uuid_t *predecessor, const pg_uuid_t *id)
{
	Job			live[2];
	int			n;

	CommandCounterIncrement();	/* our own row counts */
	n = find_live(queue, key, live);
	for (int i = 0; i < n; i++)
		if (memcmp(JOB_ID(&live[i]), predecessor, UUID_LEN) == 0)
			return true;
	for (int i = 0; i < n; i++)
		if (memcmp(JOB_ID(&live[i]), id, UUID_LEN) == 0)
			table_delete_row(queue, &live[i].tid);
	return false;
}

/* --- the two jobs of a key --- */

static UniqueKey
key_of(Job *job)
{
	return (UniqueKey) {
		.type_id = JOB_INT(job, Q_type_id),
		.tenant = JOB_NULL(job, Q_tenant) ? NULL : DatumGetTextPP(JOB_ATT(job, Q_tenant)),
		.key = DatumGetTextPP(JOB_ATT(job, Q_unique_key))
	};
}

/* Finds the other live job of the key. */
static bool
find_sibling(Table *queue, const UniqueKey *key, const pg_uuid_t *id, Job *sibling)
{
	Job			live[2];
	int			n = find_live(queue, key, live);

	for (int i = 0; i < n; i++)
	{
		if (memcmp(JOB_ID(&live[i]), id, UUID_LEN) == 0)
			continue;
		*sibling = live[i];
		return true;
	}
	return false;
}

/*
 * True if this job must yield to its sibling: both may have been begun at the
 * same moment.  The younger yields as soon as the other has begun; the older
 * only when the other has locked its row.
 */
bool
unique_must_yield(Table *queue, Job *job)
{
	UniqueKey	key;
	Job			other;
	bool		locked;

	if (job->status == JOB_RUNNING || JOB_NULL(job, Q_unique_key))
		return false;
	CommandCounterIncrement();	/* the other may have ended in this very transaction */
	key = key_of(job);
	if (!find_sibling(queue, &key, JOB_ID(job), &other))
		return false;
	if (other.status == JOB_RUNNING)
		return true;
	if (!job_has_begun(&other))
		return false;
	if (memcmp(JOB_ID(&other), JOB_ID(job), UUID_LEN) < 0)
		return true;
	locked = queue_fetch_version(queue, &other.tid) && slot_is_locked(queue->slot);
	ExecClearTuple(queue->slot);
	return locked;
}

static uint64
hash_of(const UniqueKey *key)
{
	uint64		hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(key->key), VARSIZE_ANY_EXHDR(key->key),
										   (uint64) key->type_id);

	if (key->tenant != NULL)
		hash ^= hash_bytes_extended((unsigned char *) VARDATA_ANY(key->tenant), VARSIZE_ANY_EXHDR(key->tenant), 1);
	return hash;
}

bool
unique_claim(Table *queue, Job *job)
{
	UniqueKey	key;
	LOCKTAG		tag;
	Job			other;
	uint64		hash;

	if (JOB_NULL(job, Q_unique_key))
		return true;
	key = key_of(job);
	if (!find_sibling(queue, &key, JOB_ID(job), &other))
		return true;
	hash = hash_of(&key);
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash, UNIQUE_KEY_LOCK);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (!unique_must_yield(queue, job))
		return true;
	(void) LockRelease(&tag, ExclusiveLock, false);
	return false;
}

static LaneKeys
keys_of(Datum *values)
{
	TimestampTz position = DatumGetTimestampTz(values[Q_position - 1]);

	return (LaneKeys) {
		.type_id = DatumGetInt32(values[Q_type_id - 1]),
		.priority = DatumGetInt16(values[Q_priority - 1]),
		.sublane = DatumGetInt16(values[Q_sublane - 1]), .lo = position, .hi = position
	};
}

/*
 * The end of an attempt writes its row, and then looks up the key with rows of
 * open transactions.  An enqueue inserts the successor, and then looks at its
 * predecessor's row.  So one of the two sees the other.
 */
void
unique_publish_sibling(Table *queue, Job *job)
{
	SnapshotData dirty;
	ScanKeyData keys[4];
	IndexScanDesc scan;
	UniqueKey	key;

	if (JOB_NULL(job, Q_unique_key))
		return;
	key = key_of(job);
	InitDirtySnapshot(dirty);
	init_scan_keys(keys, &key, false);
	scan = begin_scan(queue, &dirty, keys, 3);
	while (index_getnext_slot(scan, ForwardScanDirection, queue->slot))
	{
		LaneKeys	lane;
		Job			other;

		job_from_slot(queue, &other);
		lane = keys_of(other.values);
		if (memcmp(JOB_ID(&other), JOB_ID(job), UUID_LEN) != 0)
			note_position(lane.type_id, lane.priority, lane.sublane, lane.lo);
	}
	index_endscan(scan);
	ExecClearTuple(queue->slot);
}

void
unique_publish_successor(Table *queue, const UniqueKey *key, const pg_uuid_t *id, Datum *values)
{
	LaneKeys	lane = keys_of(values);
	TransactionId changer = InvalidTransactionId;
	Job			other;
	bool		found;

	do
	{
		CHECK_FOR_INTERRUPTS();
		CommandCounterIncrement();
		if (!find_sibling(queue, key, id, &other))
			return;				/* it has ended */
		found = queue_fetch_version(queue, &other.tid);
		if (found)
			changer = slot_changer(queue->slot);
		ExecClearTuple(queue->slot);
	} while (!found);			/* its row was changed meanwhile */
	if (TransactionIdIsValid(changer) && !TransactionIdIsCurrentTransactionId(changer))
		note_successor(changer, &lane);
}
