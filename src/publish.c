/*
 * publish.c
 *	  From a committed transaction to the dispatcher, without a lock that anybody could wait for.
 *
 * Each backend collects what its transaction touched (a few exact keys a lane, beyond them one
 * interval) in memory that was allocated before the commit; the callback copies it to the
 * database's ring.  Concurrency keys are named, too, up to MAX_PENDING_KEYS of them; beyond, or when the ring has no
 * room for all, one entry says "any", and lanes whose types keep the order of a key are read again (keys.c).  A savepoint's rollback takes back cancels and a drain, but not keys: a key too many is a probe
 * that finds nothing.
 */
#include "jobq.h"

#include "access/transam.h"
#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "job_types.h"
#include "publish.h"

#define MAX_PENDING_LANES	1024	/* beyond: "look at everything from the smallest key on" */
#define LOOK_BACK			16		/* how many lanes a new key is compared with */

typedef struct PendingLane
{
	int32		type_id;
	int16		priority;
	int16		sublane;
	int			nkeys;			/* > JOBQ_EXACT_KEYS: only lo and hi count */
	TimestampTz keys[JOBQ_EXACT_KEYS];
	TimestampTz lo;
	TimestampTz hi;
} PendingLane;

#define MAX_PENDING_KEYS	1024	/* beyond: "of any key" */
typedef struct PendingKey
{
	uint64		hash;
	TimestampTz created_at;		/* the earliest */
	bool		removed;
} PendingKey;

static JobqDb *pending_db = NULL;
static PendingLane *lanes = NULL;
static int	nlanes = 0;
static int	lanes_allocated = 0;
static PendingKey *concurrency_keys = NULL;
static int	nkeys = 0;
static int	keys_allocated = 0;
static bool pending_overflow = false;
static TimestampTz pending_overflow_lo;
static bool types_changed = false;
static SubTransactionId drained_by = InvalidSubTransactionId;	/* is counted in ndrains */
static bool signals_changed = false;

typedef struct PendingCommand
{
	Command		command;
	SubTransactionId subid;		/* that asked for it */
} PendingCommand;

static PendingCommand *cancels = NULL;
static int	ncancels = 0;
static int	cancels_allocated = 0;

static pg_uuid_t *noted = NULL;
static int	nnoted = 0;
static int	noted_allocated = 0;
#define MAX_NOTED 4096			/* wait_for looks the rest up by visibility */


/* Grows one of the arrays above by doubling; they live as long as the backend and are kept small. */
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
	for (int i = nlanes - 1; i >= 0 && i >= nlanes - LOOK_BACK; i--)
	{
		PendingLane *lane = &lanes[i];

		if (lane->type_id == type_id && lane->priority == priority && lane->sublane == sublane)
			return lane;
	}
	return NULL;
}

void
publish_key(int32 type_id, int16 priority, int16 sublane, TimestampTz position)
{
	PendingLane *lane;

	if (pending_db == NULL)
		pending_db = my_db();
	if (pending_db == NULL)
		return;
	lane = find_lane(type_id, priority, sublane);
	if (lane == NULL)
	{
		if (nlanes == MAX_PENDING_LANES)
		{
			if (!pending_overflow || position < pending_overflow_lo)
				pending_overflow_lo = position;
			pending_overflow = true;
			return;
		}
		if (nlanes == lanes_allocated)
			lanes = grow(lanes, &lanes_allocated, sizeof(PendingLane), 8);
		lane = &lanes[nlanes++];
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
	for (int i = nkeys - 1; i >= 0 && i >= nkeys - LOOK_BACK; i--)
	{
		if (concurrency_keys[i].hash == hash)
			return &concurrency_keys[i];
	}
	if (nkeys < MAX_PENDING_KEYS)
		return NULL;
	concurrency_keys[0].hash = 0;
	return &concurrency_keys[0];
}

void
publish_concurrency_key(uint64 hash, TimestampTz created_at, bool removed)
{
	PendingKey *key;

	if (pending_db == NULL)
		pending_db = my_db();
	if (pending_db == NULL)
		return;
	key = find_concurrency_key(hash);
	if (key == NULL)
	{
		if (nkeys == keys_allocated)
			concurrency_keys = grow(concurrency_keys, &keys_allocated, sizeof(PendingKey), 8);
		key = &concurrency_keys[nkeys++];
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
	if (nnoted == MAX_NOTED)
		return;
	if (nnoted == noted_allocated)
		noted = grow(noted, &noted_allocated, sizeof(pg_uuid_t), 16);
	noted[nnoted++] = *id;
}

bool
publish_wrote_job(const pg_uuid_t *id)
{
	for (int i = nnoted - 1; i >= 0; i--)
	{
		if (memcmp(&noted[i], id, sizeof(pg_uuid_t)) == 0)
			return true;
	}
	return false;
}

void
publish_types_changed(void)
{
	pending_db = my_db();
	types_changed = true;
}

void
publish_drain(void)
{
	pending_db = my_db();
	if (pending_db == NULL || drained_by != InvalidSubTransactionId)
		return;
	SpinLockAcquire(&pending_db->mutex);
	pending_db->ndrains++;
	SpinLockRelease(&pending_db->mutex);
	drained_by = GetCurrentSubTransactionId();
	wake_dispatcher(pending_db);
}

void
publish_signals_changed(void)
{
	pending_db = my_db();
	signals_changed = true;
}

/* Promises a place among the database's commands, so that the commit cannot find them full. */
static bool
reserve_command(JobqDb *db)
{
	bool		ok;

	SpinLockAcquire(&db->mutex);
	ok = db->ncommands + db->reserved_commands < JOBQ_MAX_COMMANDS;
	if (ok)
		db->reserved_commands++;
	SpinLockRelease(&db->mutex);
	return ok;
}

void
publish_cancel(const pg_uuid_t *id, const char *reason)
{
	Command    *c;

	pending_db = my_db();
	if (pending_db == NULL)
		return;
	if (ncancels == cancels_allocated)
		cancels = grow(cancels, &cancels_allocated, sizeof(PendingCommand), 4);
	if (!reserve_command(pending_db))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many cancels of running jobs are under way"),
				 errhint("Commit and try again in a moment.")));
	cancels[ncancels].subid = GetCurrentSubTransactionId();
	c = &cancels[ncancels++].command;
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

/* ---------- the end of the transaction: nothing here may fail ---------- */

static void
note_overflow(JobqDb *db, TimestampTz lo)
{
	if (!db->overflow || lo < db->overflow_lo)
		db->overflow_lo = lo;
	db->overflow = true;
}

static bool
push_entry(JobqDb *db, LaneKeys entry)
{
	if (db->ring_tail - db->ring_head >= (uint32) jobq_max_lanes)
		return false;
	db->ring[db->ring_tail % jobq_max_lanes] = entry;
	db->ring_tail++;
	return true;
}

static void
push(JobqDb *db, PendingLane *lane, TimestampTz lo, TimestampTz hi)
{
	LaneKeys	entry = {lane->type_id, lane->priority, lane->sublane, lo, hi};

	if (!push_entry(db, entry))
		note_overflow(db, lo);
}

/* One entry for all keys: "any". */
static void
merge_keys(void)
{
	PendingKey *any = &concurrency_keys[0];

	any->hash = 0;
	for (int i = 1; i < nkeys; i++)
	{
		any->created_at = Min(any->created_at, concurrency_keys[i].created_at);
		any->removed |= concurrency_keys[i].removed;
	}
	nkeys = 1;
}

static void
push_keys(JobqDb *db)
{
	if (nkeys > 1 && (uint32) nkeys > jobq_max_lanes - (db->ring_tail - db->ring_head))
		merge_keys();
	for (int i = 0; i < nkeys; i++)
	{
		PendingKey *key = &concurrency_keys[i];
		LaneKeys	entry = {KEY_NEWS, key->removed, 0, (TimestampTz) key->hash, key->created_at};

		if (!push_entry(db, entry))
			note_overflow(db, key->removed ? DT_NOBEGIN : key->created_at);
	}
}

static void
push_lanes(JobqDb *db)
{
	for (int i = 0; i < nlanes; i++)
	{
		PendingLane *lane = &lanes[i];

		if (lane->nkeys > JOBQ_EXACT_KEYS)
			push(db, lane, lane->lo, lane->hi);
		else
			for (int k = 0; k < lane->nkeys; k++)
				push(db, lane, lane->keys[k], lane->keys[k]);
	}
	push_keys(db);
	if (pending_overflow)
		note_overflow(db, pending_overflow_lo);
}

static bool
is_quiet(JobqDb *db, int32 type_id)
{
	for (int i = 0; i < db->nquiet; i++)
	{
		if (db->quiet[i] == type_id)
			return true;
	}
	return false;
}

/* Is there something that the dispatcher could act on at once?  mutex is held. */
static bool
is_news(JobqDb *db)
{
	if (types_changed || signals_changed || drained_by != InvalidSubTransactionId || ncancels > 0 || pending_overflow || db->overflow ||
		db->ring_tail - db->ring_head > (uint32) jobq_max_lanes / 2)
		return true;
	for (int i = 0; i < nlanes; i++)
	{
		if (!is_quiet(db, lanes[i].type_id))
			return true;
	}
	for (int i = 0; i < nkeys; i++)
	{
		if (concurrency_keys[i].removed)
			return true;		/* jobs of other types may wait for it */
	}
	return nlanes == 0;
}

static void
publish_at_end(bool committed)
{
	JobqDb	   *db = pending_db;
	bool		wake;

	if (db->dboid == MyDatabaseId)
	{
		SpinLockAcquire(&db->mutex);
		push_lanes(db);
		db->reserved_commands -= ncancels;
		if (committed)
		{
			for (int i = 0; i < ncancels; i++)
				db->commands[db->ncommands++] = cancels[i].command;
		}
		if (types_changed)
			db->types_changed = true;
		if (drained_by != InvalidSubTransactionId)
			db->ndrains--;
		if (signals_changed)
			db->signals_changed = true;
		wake = is_news(db);
		SpinLockRelease(&db->mutex);
		if (wake)
			wake_dispatcher(db);
	}
}

/* What PREPARE leaves behind: one interval a lane, beside the xid; too many: look at everything. */
static void
publish_at_prepare(TransactionId xid)
{
	JobqDb	   *db = pending_db;

	SpinLockAcquire(&db->mutex);
	db->types_prepared |= types_changed || signals_changed;
	db->prepared_overflow |= nkeys > 0;
	for (int i = 0; i < nlanes; i++)
	{
		if (pending_overflow || db->nprepared >= JOBQ_MAX_PREPARED)
		{
			db->prepared_overflow = true;
			break;
		}
		db->prepared[db->nprepared].xid = xid;
		db->prepared[db->nprepared].pub.type_id = lanes[i].type_id;
		db->prepared[db->nprepared].pub.priority = lanes[i].priority;
		db->prepared[db->nprepared].pub.sublane = lanes[i].sublane;
		db->prepared[db->nprepared].pub.lo = lanes[i].lo;
		db->prepared[db->nprepared].pub.hi = lanes[i].hi;
		db->nprepared++;
	}
	SpinLockRelease(&db->mutex);
	wake_dispatcher(db);
}

static void
forget_pending(void)
{
	pending_db = NULL;
	nlanes = 0;
	nkeys = 0;
	pending_overflow = false;
	types_changed = false;
	drained_by = InvalidSubTransactionId;
	signals_changed = false;
	ncancels = 0;
	nnoted = 0;
}

void
publish_xact_callback(XactEvent event, void *arg)
{
	static TransactionId preparing = InvalidTransactionId;

	if (pending_db == NULL && nnoted == 0)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (ncancels > 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that cancels a running job")));
			if (drained_by != InvalidSubTransactionId)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has called jobq.drain()")));
			preparing = GetTopTransactionIdIfAny();
			break;
		case XACT_EVENT_PREPARE:
			if (pending_db && TransactionIdIsValid(preparing))
				publish_at_prepare(preparing);
			forget_pending();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			if (pending_db)
				publish_at_end(event == XACT_EVENT_COMMIT);
			forget_pending();
			break;
		default:
			break;
	}
}

/* Ids rise, and what is younger than a subtransaction at its end is part of it.  Cannot fail either. */
void
publish_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int			dropped = 0;
	bool		undrained = false;

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (drained_by >= subid)
	{
		drained_by = InvalidSubTransactionId;
		undrained = true;
	}
	while (ncancels > 0 && cancels[ncancels - 1].subid >= subid)
	{
		ncancels--;
		dropped++;
	}
	if ((dropped == 0 && !undrained) || pending_db->dboid != MyDatabaseId)
		return;
	SpinLockAcquire(&pending_db->mutex);
	pending_db->reserved_commands -= dropped;
	pending_db->ndrains -= undrained ? 1 : 0;
	SpinLockRelease(&pending_db->mutex);
	if (undrained)
		wake_dispatcher(pending_db);
}
