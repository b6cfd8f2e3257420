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

#include "shared/xact_changes.h"

#define MAX_LANES	1024		/* beyond: read everything from the smallest
								 * position on */
#define MAX_KEYS	1024		/* beyond: any key */
#define MAX_NOTED	4096		/* wait_for looks the rest up by visibility */
#define LOOK_BACK	16			/* lanes to compare a new position with */

Pending		pending = {.drained_by = InvalidSubTransactionId};

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

static PendingLane *
find_lane(int32 type_id, int16 priority, int16 sublane)
{
	for (int i = pending.nlanes - 1; i >= 0 && i >= pending.nlanes - LOOK_BACK; i--)
	{
		PendingLane *lane = &pending.lanes[i];

		if (lane->type_id == type_id && lane->priority == priority && lane->sublane == sublane)
			return lane;
	}
	return NULL;
}

void
publish_key(int32 type_id, int16 priority, int16 sublane, TimestampTz position)
{
	PendingLane *lane;

	if (pending.db == NULL)
		pending.db = my_db();
	if (pending.db == NULL)
		return;
	lane = find_lane(type_id, priority, sublane);
	if (lane == NULL)
	{
		if (pending.nlanes == MAX_LANES)
		{
			if (!pending.overflow || position < pending.overflow_lo)
				pending.overflow_lo = position;
			pending.overflow = true;
			return;
		}
		if (pending.nlanes == pending.lanes_size)
			pending.lanes = grow(pending.lanes, &pending.lanes_size, sizeof(PendingLane), 8);
		lane = &pending.lanes[pending.nlanes++];
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

static PendingKey *
find_concurrency_key(uint64 hash)
{
	for (int i = pending.nkeys - 1; i >= 0 && i >= pending.nkeys - LOOK_BACK; i--)
	{
		if (pending.keys[i].hash == hash)
			return &pending.keys[i];
	}
	if (pending.nkeys < MAX_KEYS)
		return NULL;
	pending.keys[0].hash = 0;
	return &pending.keys[0];
}

void
publish_concurrency_key(uint64 hash, TimestampTz created_at, bool removed)
{
	PendingKey *key;

	if (pending.db == NULL)
		pending.db = my_db();
	if (pending.db == NULL)
		return;
	key = find_concurrency_key(hash);
	if (key == NULL)
	{
		if (pending.nkeys == pending.keys_size)
			pending.keys = grow(pending.keys, &pending.keys_size, sizeof(PendingKey), 8);
		key = &pending.keys[pending.nkeys++];
		key->hash = hash;
		key->created_at = created_at;
		key->removed = false;
	}
	key->created_at = Min(key->created_at, created_at);
	key->removed |= removed;
}

void
publish_note_job(const pg_uuid_t *id)
{
	if (pending.nnoted == MAX_NOTED)
		return;
	if (pending.nnoted == pending.noted_size)
		pending.noted = grow(pending.noted, &pending.noted_size, sizeof(pg_uuid_t), 16);
	pending.noted[pending.nnoted++] = *id;
}

bool
publish_wrote_job(const pg_uuid_t *id)
{
	for (int i = pending.nnoted - 1; i >= 0; i--)
	{
		if (memcmp(&pending.noted[i], id, sizeof(pg_uuid_t)) == 0)
			return true;
	}
	return false;
}

void
publish_types_changed(void)
{
	pending.db = my_db();
	pending.types_changed = true;
}

void
publish_drain(void)
{
	pending.db = my_db();
	if (pending.db == NULL || pending.drained_by != InvalidSubTransactionId)
		return;
	SpinLockAcquire(&pending.db->mutex);
	pending.db->kill_switch.ndrains++;
	SpinLockRelease(&pending.db->mutex);
	pending.drained_by = GetCurrentSubTransactionId();
	wake_dispatcher(pending.db);
}

void
publish_signals_changed(void)
{
	pending.db = my_db();
	pending.signals_changed = true;
}

/* Reserves a place for a request to cancel, so that the commit has one. */
static bool
reserve_command(JobqDb *db)
{
	bool		ok;

	SpinLockAcquire(&db->mutex);
	ok = db->requests.ncancels + db->requests.nreserved < JOBQ_MAX_COMMANDS;
	if (ok)
		db->requests.nreserved++;
	SpinLockRelease(&db->mutex);
	return ok;
}

void
publish_cancel(const pg_uuid_t *id, const char *reason)
{
	Command    *c;

	pending.db = my_db();
	if (pending.db == NULL)
		return;
	if (pending.ncancels == pending.cancels_size)
		pending.cancels = grow(pending.cancels, &pending.cancels_size, sizeof(PendingCommand), 4);
	if (!reserve_command(pending.db))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many cancels of running jobs are under way"),
				 errhint("Commit and try again in a moment.")));
	pending.cancels[pending.ncancels].subid = GetCurrentSubTransactionId();
	c = &pending.cancels[pending.ncancels++].command;
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
