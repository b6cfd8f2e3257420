/*
 * xact_changes.c
 *	  Collects the unpublished changes of the open transaction.
 *
 * All memory that the end of the transaction needs is allocated here: a few
 * exact positions per lane, beyond them one interval; beyond MAX_LANES lanes
 * the smallest position of all.  Up to MAX_KEYS concurrency keys are named,
 * too; beyond that one entry stands for any key, and lanes whose types keep
 * the order of a key are read again (concurrency_keys.c).
 */
#include "jobq.h"

#include "mb/pg_wchar.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "shared/unpublished.h"
#include "shared/xact_changes.h"

#define MAX_LANES	1024		/* beyond: read everything from the smallest
								 * position on */
#define MAX_KEYS	1024		/* beyond: any key */
#define MAX_NOTED	4096		/* wait_for looks the rest up by visibility */
#define MAX_KEPT_LEASES	1024	/* beyond: freed at the end */
#define LOOK_BACK	16			/* lanes to compare a new position with */

Unpublished unpublished = {.drained_by = InvalidSubTransactionId};

/* Grows one of the arrays by doubling. */
static void *
grow(void *array, int *allocated, Size elem, int start)
{
	if (array == NULL)
	{
		*allocated = start;
		return MemoryContextAlloc(TopMemoryContext, elem * start);
	}
	*allocated *= 2;
	return repalloc(array, elem * *allocated);
}

static UnpublishedLane *
find_lane(int32 type_id, int16 priority, int16 sublane)
{
	for (int i = unpublished.nlanes - 1; i >= 0 && i >= unpublished.nlanes - LOOK_BACK; i--)
	{
		UnpublishedLane *lane = &unpublished.lanes[i];

		if (lane->type_id == type_id && lane->priority == priority && lane->sublane == sublane)
			return lane;
	}
	return NULL;
}

void
note_position(int32 type_id, int16 priority, int16 sublane, TimestampTz position)
{
	UnpublishedLane *lane;

	if (position == DT_NOEND)
		return;					/* a blocked job: no dispatcher reads it */
	if (unpublished.db == NULL)
		unpublished.db = my_db();
	if (unpublished.db == NULL)
		return;
	lane = find_lane(type_id, priority, sublane);
	if (lane == NULL)
	{
		if (unpublished.nlanes == MAX_LANES)
		{
			if (!unpublished.overflow || position < unpublished.overflow_lo)
				unpublished.overflow_lo = position;
			unpublished.overflow = true;
			return;
		}
		if (unpublished.nlanes == unpublished.lanes_size)
			unpublished.lanes = grow(unpublished.lanes, &unpublished.lanes_size, sizeof(UnpublishedLane), 8);
		lane = &unpublished.lanes[unpublished.nlanes++];
		lane->type_id = type_id;
		lane->priority = priority;
		lane->sublane = sublane;
		lane->nkeys = 0;
		lane->lo = lane->hi = position;
	}
	if (lane->nkeys < JOBQ_EXACT_KEYS)
		lane->keys[lane->nkeys] = position;
	if (lane->nkeys <= JOBQ_EXACT_KEYS)
		lane->nkeys++;
	lane->lo = Min(lane->lo, position);
	lane->hi = Max(lane->hi, position);
}

void
note_successor(TransactionId xid, const LaneKeys *keys)
{
	if (unpublished.db == NULL || unpublished.nsuccessors == JOBQ_SUCCESSORS)
		return;
	if (unpublished.nsuccessors == unpublished.successors_size)
		unpublished.successors = grow(unpublished.successors, &unpublished.successors_size, sizeof(XactKeys), 8);
	unpublished.successors[unpublished.nsuccessors++] = (XactKeys) {xid, *keys};
}

static UnpublishedKey *
find_concurrency_key(uint64 hash)
{
	for (int i = unpublished.nkeys - 1; i >= 0 && i >= unpublished.nkeys - LOOK_BACK; i--)
	{
		if (unpublished.keys[i].hash == hash)
			return &unpublished.keys[i];
	}
	if (unpublished.nkeys < MAX_KEYS)
		return NULL;
	unpublished.keys[0].hash = 0;
	return &unpublished.keys[0];
}

void
note_concurrency_key(uint64 hash, TimestampTz since, bool removed)
{
	UnpublishedKey *key;

	if (unpublished.db == NULL)
		unpublished.db = my_db();
	if (unpublished.db == NULL)
		return;
	key = find_concurrency_key(hash);
	if (key == NULL)
	{
		if (unpublished.nkeys == unpublished.keys_size)
			unpublished.keys = grow(unpublished.keys, &unpublished.keys_size, sizeof(UnpublishedKey), 8);
		key = &unpublished.keys[unpublished.nkeys++];
		key->hash = hash;
		key->since = since;
		key->removed = false;
	}
	key->since = Min(key->since, since);
	key->removed |= removed;
}

void
note_written_job(const pg_uuid_t *id)
{
	if (unpublished.nnoted == MAX_NOTED)
		return;
	if (unpublished.nnoted == unpublished.noted_size)
		unpublished.noted = grow(unpublished.noted, &unpublished.noted_size, sizeof(pg_uuid_t), 16);
	unpublished.noted[unpublished.nnoted++] = *id;
}

bool
has_written_job(const pg_uuid_t *id)
{
	for (int i = unpublished.nnoted - 1; i >= 0; i--)
	{
		if (memcmp(&unpublished.noted[i], id, sizeof(pg_uuid_t)) == 0)
			return true;
	}
	return false;
}

void
reserve_lease_notes(int n)
{
	while (unpublished.leases == NULL || unpublished.nleases + n > unpublished.leases_size)
		unpublished.leases = grow(unpublished.leases, &unpublished.leases_size, sizeof(UnpublishedLease), 16);
}

void
shrink_lease_notes(void)
{
	if (unpublished.leases_size <= MAX_KEPT_LEASES)
		return;
	pfree(unpublished.leases);
	unpublished.leases = NULL;
	unpublished.leases_size = 0;
}

void
note_lease(const pg_uuid_t *id)
{
	if (unpublished.db == NULL)
		unpublished.db = my_db();
	if (unpublished.db == NULL)
		return;
	reserve_lease_notes(1);
	memset(&unpublished.leases[unpublished.nleases], 0, sizeof(UnpublishedLease));
	unpublished.leases[unpublished.nleases].id = *id;
	unpublished.leases[unpublished.nleases++].subid = GetCurrentSubTransactionId();
}

void
note_attempt_end(const pg_uuid_t *id, int status, const BreakerNote *note, bool failed)
{
	UnpublishedLease *lease;

	note_lease(id);
	if (unpublished.db == NULL)
		return;
	lease = &unpublished.leases[unpublished.nleases - 1];
	lease->ended = true;
	lease->failed = failed;
	lease->status = status;
	lease->breaker = *note;
}

void
note_claim(const pg_uuid_t *id, MonoTime until)
{
	note_lease(id);
	if (unpublished.db != NULL)
		unpublished.leases[unpublished.nleases - 1].until = until;
}

/* Its entry is one of the last: entries after it have the same subid. */
void
note_no_claim(const pg_uuid_t *id)
{
	for (int i = unpublished.nleases - 1; i >= 0; i--)
	{
		if (memcmp(&unpublished.leases[i].id, id, sizeof(pg_uuid_t)) != 0)
			continue;
		unpublished.leases[i] = unpublished.leases[--unpublished.nleases];
		return;
	}
}

MonoTime
noted_claims_until(void)
{
	MonoTime	first = 0;

	for (int i = 0; i < unpublished.nleases; i++)
	{
		MonoTime	until = unpublished.leases[i].until;

		if (until != 0 && (first == 0 || until < first))
			first = until;
	}
	return first;
}

void
note_types_changed(void)
{
	unpublished.db = my_db();
	unpublished.types_changed = true;
}

void
note_drain(void)
{
	unpublished.db = my_db();
	if (unpublished.db == NULL || unpublished.drained_by != InvalidSubTransactionId)
		return;
	SpinLockAcquire(&unpublished.db->mutex);
	unpublished.db->kill_switch.ndrains++;
	SpinLockRelease(&unpublished.db->mutex);
	unpublished.drained_by = GetCurrentSubTransactionId();
	wake_dispatcher(unpublished.db);
}

void
note_signals_changed(void)
{
	unpublished.db = my_db();
	unpublished.signals_changed = true;
}

/* Reserves a place for a request to cancel, so that the commit has one. */
static bool
reserve_command(JobqDb *db)
{
	bool		ok;

	SpinLockAcquire(&db->mutex);
	ok = db->requests.ncancels + db->requests.nreserved < JOBQ_MAX_CANCELS;
	if (ok)
		db->requests.nreserved++;
	SpinLockRelease(&db->mutex);
	return ok;
}

void
note_cancel(const pg_uuid_t *id, const char *reason)
{
	CancelRequest *c;

	unpublished.db = my_db();
	if (unpublished.db == NULL)
		return;
	if (unpublished.ncancels == unpublished.cancels_size)
		unpublished.cancels = grow(unpublished.cancels, &unpublished.cancels_size, sizeof(UnpublishedCancel), 4);
	if (!reserve_command(unpublished.db))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many cancels of running jobs are under way"),
				 errhint("Commit and try again in a moment.")));
	unpublished.cancels[unpublished.ncancels].subid = GetCurrentSubTransactionId();
	c = &unpublished.cancels[unpublished.ncancels++].request;
	c->id = *id;
	c->has_reason = reason != NULL;
	c->reason[0] = '\0';
	if (reason)
	{
		int			len = pg_mbcliplen(reason, (int) strlen(reason), JOBQ_REASON_LEN - 1);

		memcpy(c->reason, reason, len);
		c->reason[len] = '\0';
	}
}
