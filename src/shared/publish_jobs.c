/*
 * publish_jobs.c
 *	  From a committed transaction to the dispatcher, without waiting for a
 *	  lock.
 *
 * The unpublished changes are in memory that was allocated before the commit
 * (xact_changes.c); the callback copies them to the database's ring, which
 * cannot fail.  If the ring has no room for all concurrency keys, one entry
 * stands for any key.  A savepoint's rollback takes back cancels and a drain,
 * but not positions: a needless position costs a read that finds nothing.
 */
#include "jobq.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"

#include "shared/claims.h"
#include "shared/publish_ends.h"
#include "shared/publish_jobs.h"
#include "shared/publish_schedules.h"
#include "shared/stat_changes.h"
#include "shared/unpublished.h"
#include "shared/xact_changes.h"

#define ASLEEP_US	10000		/* when the dispatcher has been idle for so
								 * long, an early wake-up costs little */

static void
note_overflow(JobqDb *db, TimestampTz lo)
{
	if (!db->ring.overflow || lo < db->ring.overflow_lo)
		db->ring.overflow_lo = lo;
	db->ring.overflow = true;
}

static bool
push_entry(JobqDb *db, LaneKeys entry)
{
	if (db->ring.tail - db->ring.head >= (uint64) jobq_max_lanes)
		return false;
	db->ring.keys[db->ring.tail % jobq_max_lanes] = entry;
	db->ring.tail++;
	return true;
}

static void
push(JobqDb *db, UnpublishedLane *lane, TimestampTz lo, TimestampTz hi)
{
	LaneKeys	entry = {lane->type_id, lane->priority, lane->sublane, lo, hi};

	if (!push_entry(db, entry))
		note_overflow(db, lo);
}

/* Replaces all keys by one entry for any key. */
static void
merge_keys(void)
{
	UnpublishedKey *any = &unpublished.keys[0];

	any->hash = 0;
	for (int i = 1; i < unpublished.nkeys; i++)
	{
		any->since = Min(any->since, unpublished.keys[i].since);
		any->removed |= unpublished.keys[i].removed;
	}
	unpublished.nkeys = 1;
}

static LaneKeys
key_entry(const UnpublishedKey *key)
{
	LaneKeys	entry = {KEY_NEWS, key->removed, 0, (TimestampTz) key->hash, key->since};

	return entry;
}

static void
push_keys(JobqDb *db)
{
	if (unpublished.nkeys > 1 && (uint64) unpublished.nkeys > jobq_max_lanes - (db->ring.tail - db->ring.head))
		merge_keys();
	for (int i = 0; i < unpublished.nkeys; i++)
	{
		UnpublishedKey *key = &unpublished.keys[i];

		if (!push_entry(db, key_entry(key)))
			note_overflow(db, key->removed ? DT_NOBEGIN : key->since);
	}
}

LaneKeys
lease_entry(const pg_uuid_t *id, int news)
{
	LaneKeys	entry = {.type_id = LEASE_NEWS, .priority = (int16) news};

	memcpy(&entry.lo, id->data, sizeof(entry.lo));
	memcpy(&entry.hi, id->data + sizeof(entry.lo), sizeof(entry.hi));
	return entry;
}

void
publish_entry(JobqDb *db, LaneKeys entry)
{
	if (!push_entry(db, entry))
		db->ring.leases_lost = true;
}

static void
push_successors(JobqDb *db)
{
	Successors *all = &db->successors;

	for (int i = 0; i < unpublished.nsuccessors && all->n < JOBQ_SUCCESSORS; i++)
		all->keys[all->n++] = unpublished.successors[i];
}

static void
push_leases(JobqDb *db, bool committed)
{
	for (int i = 0; i < unpublished.nleases; i++)
	{
		UnpublishedLease *lease = &unpublished.leases[i];
		bool		gone = committed && lease->ended && lease->status >= JOB_COMPLETED;

		publish_entry(db, lease_entry(&lease->id, gone ? LEASE_ENDED : LEASE_LOOK));
	}
}

static void
push_lanes(JobqDb *db, bool committed)
{
	for (int i = 0; i < unpublished.nlanes; i++)
	{
		UnpublishedLane *lane = &unpublished.lanes[i];

		if (lane->nkeys > JOBQ_EXACT_KEYS)
			push(db, lane, lane->lo, lane->hi);
		else
			for (int k = 0; k < lane->nkeys; k++)
				push(db, lane, lane->keys[k], lane->keys[k]);
	}
	push_keys(db);
	push_successors(db);
	push_leases(db, committed);
	if (unpublished.overflow)
		note_overflow(db, unpublished.overflow_lo);
}

static bool
is_quiet(JobqDb *db, int32 type_id)
{
	for (int i = 0; i < db->wakeup_filter.ntypes; i++)
	{
		if (db->wakeup_filter.types[i] == type_id)
			return true;
	}
	return false;
}

/*
 * True if the dispatcher could act on the leases at once: a claim's rollback
 * gives jobs back, jobs or successors may wait for the end of an attempt, a
 * cancel is notified.  A committed claim changes nothing but its timer.
 */
static bool
leases_are_news(JobqDb *db, bool committed)
{
	bool		ends_are = db->wakeup_filter.ends_count || db->kill_switch.ndrains > 0 || db->successors.n > 0;

	for (int i = 0; i < unpublished.nleases; i++)
	{
		UnpublishedLease *lease = &unpublished.leases[i];

		if (!committed || (lease->ended ? ends_are : lease->until == 0))
			return true;
	}
	return false;
}

/*
 * True if the dispatcher could act on a publication at once.  The mutex is
 * held.
 */
static bool
is_news(JobqDb *db, bool committed)
{
	if (unpublished.types_changed || unpublished.signals_changed || unpublished.drained_by != InvalidSubTransactionId ||
		unpublished.ncancels > 0 || leases_are_news(db, committed) || unpublished.overflow || db->ring.overflow ||
		db->ring.tail - db->ring.head > (uint64) jobq_max_lanes / 2)
		return true;
	for (int i = 0; i < unpublished.nlanes; i++)
	{
		if (!is_quiet(db, unpublished.lanes[i].type_id))
			return true;
	}
	for (int i = 0; i < unpublished.nkeys; i++)
	{
		if (unpublished.keys[i].removed)
			return true;		/* jobs of other types may wait for it */
	}
	return unpublished.nlanes == 0 && unpublished.nleases == 0;
}

/*
 * Wakes a sleeping dispatcher before the commit is flushed, so that it is
 * awake when the publication comes.
 */
static void
announce_commit(void)
{
	JobqDb	   *db = unpublished.db;
	TimestampTz now = GetCurrentTimestamp();
	bool		quiet;

	if (unpublished.nlanes == 0 || db->dboid != MyDatabaseId || unpublished.lanes[0].lo > now ||
		mono_now() - (MonoTime) pg_atomic_read_u64(&db->health.beat) < ASLEEP_US)
		return;
	SpinLockAcquire(&db->mutex);
	quiet = is_quiet(db, unpublished.lanes[0].type_id);
	SpinLockRelease(&db->mutex);
	if (quiet)
		return;
	pg_atomic_write_u32(&db->ring.imminent, (uint32) unpublished.lanes[0].type_id);
	wake_dispatcher(db);
}

/* Counts the attempts that clients have ended, before the dispatcher reads it. */
static void
note_ends(JobqDb *db)
{
	for (int i = 0; i < unpublished.nleases; i++)
	{
		UnpublishedLease *lease = &unpublished.leases[i];

		if (!lease->ended)
			continue;
		if (lease->breaker.type_id != 0)
			breaker_apply_client_note(&lease->breaker, &lease->id);
		pg_atomic_fetch_add_u64(&db->counters.settled, 1);
		if (lease->failed)
			pg_atomic_fetch_add_u64(&db->counters.failed_attempts, 1);
		if (lease->status >= JOB_COMPLETED)
			wake_waiters(db, &lease->id, lease->status);
	}
}

static void
publish_at_end(bool committed)
{
	JobqDb	   *db = unpublished.db;
	bool		wake;
	bool		scheduled = false;

	if (committed && db->dboid == MyDatabaseId)
		note_ends(db);

	if (db->dboid == MyDatabaseId)
	{
		SpinLockAcquire(&db->mutex);
		push_lanes(db, committed);
		db->requests.nreserved -= unpublished.ncancels;
		if (committed)
		{
			for (int i = 0; i < unpublished.ncancels; i++)
				db->requests.cancels[db->requests.ncancels++] = unpublished.cancels[i].request;
			scheduled = schedule_news_publish(db);
		}
		if (unpublished.types_changed)
			db->requests.types_changed = true;
		if (unpublished.drained_by != InvalidSubTransactionId)
			db->kill_switch.ndrains--;
		if (unpublished.signals_changed)
			db->requests.signals_changed = true;
		wake = is_news(db, committed);
		SpinLockRelease(&db->mutex);
		if (wake)
			wake_dispatcher(db);
		if (scheduled)
			wake_conductor(db);
	}
}

/* Keeps one publication of a prepared transaction; false: there is no room. */
static bool
keep_prepared(JobqDb *db, TransactionId xid, LaneKeys entry)
{
	if (db->prepared.nxacts >= JOBQ_MAX_PREPARED)
		return false;
	db->prepared.xacts[db->prepared.nxacts].xid = xid;
	db->prepared.xacts[db->prepared.nxacts++].pub = entry;
	return true;
}

/* Keeps one interval per lane, and the keys; false: there is no room. */
static bool
keep_all_prepared(JobqDb *db, TransactionId xid)
{
	if (unpublished.overflow)
		return false;
	for (int i = 0; i < unpublished.nlanes; i++)
	{
		UnpublishedLane *lane = &unpublished.lanes[i];
		LaneKeys	entry = {lane->type_id, lane->priority, lane->sublane, lane->lo, lane->hi};

		if (!keep_prepared(db, xid, entry))
			return false;
	}
	for (int i = 0; i < unpublished.nkeys; i++)
	{
		if (!keep_prepared(db, xid, key_entry(&unpublished.keys[i])))
			return false;
	}
	push_successors(db);
	for (int i = 0; i < unpublished.nleases; i++)
	{
		if (!keep_prepared(db, xid, lease_entry(&unpublished.leases[i].id, LEASE_LOOK)))
			return false;
	}
	return true;
}

/*
 * Keeps the publications with the xid.  If they do not fit, the dispatcher
 * reads everything at the end of the prepared transaction.
 */
static void
publish_at_prepare(TransactionId xid)
{
	JobqDb	   *db = unpublished.db;

	SpinLockAcquire(&db->mutex);
	db->prepared.types_changed |= unpublished.types_changed || unpublished.signals_changed;
	db->prepared.overflow |= !keep_all_prepared(db, xid);
	schedule_news_prepare(db);
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
}

static void
forget_pending(void)
{
	unpublished.db = NULL;
	unpublished.nlanes = 0;
	unpublished.nkeys = 0;
	unpublished.nsuccessors = 0;
	unpublished.overflow = false;
	unpublished.types_changed = false;
	unpublished.drained_by = InvalidSubTransactionId;
	unpublished.signals_changed = false;
	unpublished.ncancels = 0;
	unpublished.nleases = 0;
	shrink_lease_notes();
	unpublished.nnoted = 0;
	schedule_news_forget();
}

/* Raises 40001 if the lease of a claimed job is over before its claim is. */
static void
check_leases(void)
{
	MonoTime	first = noted_claims_until();

	if (first != 0 && first <= mono_now())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the lease of a job that this transaction has claimed is over"),
				 errhint("Commit right after jobq.claim, or ask for a longer lease.")));
}

/* Publishes ended jobs by themselves: they concern no dispatcher. */
static void
finish_ends(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT)
		ends_publish();
	if (event == XACT_EVENT_PREPARE)
		ends_prepare();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		ends_forget();
}

void
publish_xact_callback(XactEvent event, void *arg)
{
	static TransactionId preparing = InvalidTransactionId;

	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		claims_end();
	finish_ends(event);
	stat_at_end(event);
	if (event == XACT_EVENT_PRE_COMMIT)
	{
		check_leases();
		claim_commits();
	}
	if (unpublished.db == NULL && unpublished.nnoted == 0)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (unpublished.ncancels > 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that cancels a running job")));
			if (unpublished.drained_by != InvalidSubTransactionId)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has called jobq.drain()")));
			if (noted_claims_until() != 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has claimed jobs")));
			preparing = GetTopTransactionIdIfAny();
			break;
		case XACT_EVENT_PRE_COMMIT:
			if (unpublished.db)
				announce_commit();
			break;
		case XACT_EVENT_PREPARE:
			if (unpublished.db && TransactionIdIsValid(preparing))
				publish_at_prepare(preparing);
			forget_pending();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			if (unpublished.db)
				publish_at_end(event == XACT_EVENT_COMMIT);
			forget_pending();
			break;
		default:
			break;
	}
}

/*
 * Tells the dispatcher of jobs that were claimed in a subtransaction which is
 * rolled back.  A job whose end alone it takes back stays claimed.
 */
static void
give_leases_back(SubTransactionId subid)
{
	bool		any = false;

	while (unpublished.nleases > 0 && unpublished.leases[unpublished.nleases - 1].subid >= subid)
	{
		UnpublishedLease *lease = &unpublished.leases[--unpublished.nleases];

		if (unpublished.db->dboid != MyDatabaseId)
			continue;
		SpinLockAcquire(&unpublished.db->mutex);
		publish_entry(unpublished.db, lease_entry(&lease->id, lease->until != 0 ? LEASE_BACK : LEASE_LOOK));
		SpinLockRelease(&unpublished.db->mutex);
		any = true;
	}
	if (any)
		wake_dispatcher(unpublished.db);
}

/*
 * Takes back cancels and a drain at a savepoint's rollback.  Ids rise, and all
 * younger subtransactions are part of the one that ends.  Cannot fail either.
 */
void
publish_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int			dropped = 0;
	bool		undrained = false;

	stat_at_sub_end(event, subid, parent);
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	schedule_news_abort_sub(subid);
	ends_abort_sub(subid);
	claim_withdraw();
	give_leases_back(subid);
	if (unpublished.drained_by >= subid)
	{
		unpublished.drained_by = InvalidSubTransactionId;
		undrained = true;
	}
	while (unpublished.ncancels > 0 && unpublished.cancels[unpublished.ncancels - 1].subid >= subid)
	{
		unpublished.ncancels--;
		dropped++;
	}
	if ((dropped == 0 && !undrained) || unpublished.db->dboid != MyDatabaseId)
		return;
	SpinLockAcquire(&unpublished.db->mutex);
	unpublished.db->requests.nreserved -= dropped;
	unpublished.db->kill_switch.ndrains -= undrained ? 1 : 0;
	SpinLockRelease(&unpublished.db->mutex);
	if (undrained)
		wake_dispatcher(unpublished.db);
}
