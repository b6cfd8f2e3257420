/*
 * stat_changes.c
 *	  Gathers the statistics of the open transaction and adds them at its end.
 *
 * The changes are a stack by subtransaction: the blocks of the open one are on
 * top, one per job type.  Its rollback cuts the stack; its commit merges them
 * into those of the parent.
 *
 * At COMMIT counters of events are added with atomics, those of rows under
 * JobqDb.mutex, which most commits take anyway.  While the rows are being
 * counted (live_counts.c), changes of rows by a transaction that the count's
 * snapshot may see are not added but logged, with the transaction's id: the
 * count decides.  The callback comes after the transaction has become visible,
 * so a snapshot taken before the callback cannot miss it and have it logged
 * nowhere.
 */
#include "jobq.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

#include "shared/stat_changes.h"

#define MAX_KEPT	64			/* blocks that stay allocated */

static JobqDb *db = NULL;		/* set while there are changes */
static StatChanges *stack = NULL;
static int	depth = 0;
static int	size = 0;
static SubTransactionId recount_by = InvalidSubTransactionId;
static SubTransactionId reset_by = InvalidSubTransactionId; /* of all */

/* ---------- gathering ---------- */

/* An entry may have counted another type before, which this transaction dropped. */
static StatChanges *
find(const StatEntry *entry, int32 type_id, SubTransactionId subid)
{
	for (int i = depth - 1; i >= 0 && stack[i].subid == subid; i--)
	{
		if (stack[i].entry == entry && stack[i].type_id == type_id)
			return &stack[i];
	}
	return NULL;
}

static void
reserve(void)
{
	int			larger = size == 0 ? 4 : size * 2;

	if (depth < size)
		return;
	stack = stack == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(StatChanges) * larger) :
		repalloc_huge(stack, sizeof(StatChanges) * larger);
	size = larger;				/* not if there was no memory */
}

static StatChanges *
changes_of(StatEntry *entry)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	StatChanges *changes = find(entry, entry->type_id, subid);

	if (changes != NULL)
		return changes;
	db = my_db();
	reserve();
	changes = &stack[depth++];
	changes->entry = entry;
	changes->type_id = entry->type_id;
	changes->subid = subid;
	changes->reset = false;
	changes->touched = 0;
	changes->completed = changes->failed = 0;
	return changes;
}

StatChanges *
stat_changes(int32 type_id)
{
	StatEntry  *entry = stat_entry(type_id);

	return entry == NULL ? NULL : changes_of(entry);
}

static void
change(int32 type_id, int counter, int n)
{
	StatChanges *changes = stat_changes(type_id);

	if (changes != NULL)
		stat_add(changes, counter, n);
}

void
stat_row_removed(int32 type_id, JobStatus status)
{
	if (status <= JOB_RUNNING)
		change(type_id, (int) status, -1);
}

void
stat_row_changed(int32 old_type, JobStatus from, int32 type_id, JobStatus to)
{
	stat_row_removed(old_type, from);
	if (to <= JOB_RUNNING)
		change(type_id, (int) to, 1);
}

void
stat_row_moved(int32 type_id, JobStatus from, JobStatus to)
{
	if (from != to)
		stat_row_changed(type_id, from, type_id, to);
}

void
stat_dead_letters(int32 type_id, int n)
{
	change(type_id, STAT_DEAD, n);
}

void
stat_enqueued(int32 type_id, JobStatus status)
{
	StatChanges *changes = stat_changes(type_id);

	if (changes == NULL)
		return;
	stat_add(changes, STAT_ENQUEUED, 1);
	if (status <= JOB_RUNNING)
		stat_add(changes, (int) status, 1);
}

void
stat_add_start(StatChanges *changes, TimestampTz due, TimestampTz started_at)
{
	int64		wait = Max(started_at - due, 0);

	stat_add(changes, STAT_STARTED, 1);
	stat_add(changes, STAT_WAIT_US, wait);
	stat_add(changes, STAT_WAIT + stat_time_bucket(wait), 1);
}

void
stat_started(int32 type_id, TimestampTz due, TimestampTz started_at)
{
	StatChanges *changes = stat_changes(type_id);

	if (changes != NULL)
		stat_add_start(changes, due, started_at);
}

void
stat_alert(int32 type_id, bool high)
{
	change(type_id, high ? STAT_ALERTS_HIGH : STAT_ALERTS_WARNING, 1);
}

void
stat_recount(void)
{
	if (recount_by != InvalidSubTransactionId || my_db() == NULL)
		return;
	db = my_db();
	recount_by = GetCurrentSubTransactionId();
}

bool
stat_recount_due(void)
{
	return recount_by != InvalidSubTransactionId;
}

void
stat_reset_at_commit(StatEntry *entry)
{
	if (entry != NULL)
		changes_of(entry)->reset = true;
	else if (reset_by == InvalidSubTransactionId && my_db() != NULL)
	{
		db = my_db();
		reset_by = GetCurrentSubTransactionId();
	}
}

/* ---------- the end of a subtransaction ---------- */

static void
merge(StatChanges *into, const StatChanges *from)
{
	uint64		left = from->touched;

	while (left != 0)
	{
		int			counter = pg_rightmost_one_pos64(left);

		left &= left - 1;
		stat_add(into, counter, from->n[counter]);
	}
	into->reset |= from->reset;
	into->completed = Max(into->completed, from->completed);
	into->failed = Max(into->failed, from->failed);
}

/* Gives the blocks of a subtransaction to its parent. */
static void
give_to_parent(SubTransactionId subid, SubTransactionId parent)
{
	int			first = depth;
	int			kept;

	while (first > 0 && stack[first - 1].subid >= subid)
		first--;
	kept = depth;
	depth = first;
	for (int i = first; i < kept; i++)
	{
		StatChanges *changes = find(stack[i].entry, stack[i].type_id, parent);

		if (changes != NULL)
		{
			merge(changes, &stack[i]);
			continue;
		}
		stack[i].subid = parent;
		stack[depth++] = stack[i];
	}
}

void
stat_at_sub_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		give_to_parent(subid, parent);
		recount_by = Min(recount_by, parent);
		reset_by = Min(reset_by, parent);
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (depth > 0 && stack[depth - 1].subid >= subid)
			depth--;
		if (recount_by >= subid)
			recount_by = InvalidSubTransactionId;
		if (reset_by >= subid)
			reset_by = InvalidSubTransactionId;
	}
}

/* ---------- the end of the transaction ---------- */

/*
 * Adds a change of rows, or logs it for the count that is under way.  The
 * mutex is held.
 */
static void
apply_rows(DbStats *stats, StatEntry *entry, const int64 *n, TransactionId xid)
{
	StatLogged *logged;

	if (stats->phase != STAT_COUNTING ||
		(TransactionIdIsValid(stats->counted_from) && TransactionIdFollowsOrEquals(xid, stats->counted_from)))
	{
		for (int c = 0; c < STAT_LIVE; c++)
			stat_add_live(entry, c, n[c]);
		return;
	}
	if (stats->nlogged == STAT_LOGGED)
	{
		stats->count_spoilt = true;
		return;
	}
	logged = &stats->logged[stats->nlogged++];
	logged->xid = xid;
	logged->entry = entry;
	for (int c = 0; c < STAT_LIVE; c++)
		logged->n[c] = (int32) n[c];
}

/* Sets n to the changes of rows; false: there are none. */
static bool
rows_of(const StatChanges *changes, int64 *n)
{
	bool		any = false;

	for (int c = 0; c < STAT_LIVE; c++)
	{
		n[c] = (changes->touched & (UINT64CONST(1) << c)) ? changes->n[c] : 0;
		any |= n[c] != 0;
	}
	return any;
}

/* True if the entry has not been freed since. */
static bool
is_valid(const StatChanges *changes)
{
	return stat_entry_is_of(changes->entry, db) && changes->entry->type_id == changes->type_id;
}

/* Has the rows counted anew.  The mutex is held. */
static void
spoil(DbStats *stats)
{
	stats->count_spoilt = stats->count_due = true;
	if (stats->phase == STAT_COUNTED)
		stats->phase = STAT_UNCOUNTED;
}

static void
apply_all_rows(TransactionId xid)
{
	int64		n[STAT_LIVE];

	SpinLockAcquire(&db->mutex);
	for (int i = 0; i < depth; i++)
	{
		if (!rows_of(&stack[i], n))
			continue;
		if (is_valid(&stack[i]))
			apply_rows(&db->stats, stack[i].entry, n, xid);
		else
			spoil(&db->stats);	/* of a type that was dropped meanwhile */
	}
	if (recount_by != InvalidSubTransactionId)
		spoil(&db->stats);
	SpinLockRelease(&db->mutex);
}

/* Sets a time that may be earlier. */
static void
set_later(pg_atomic_uint64 *time, TimestampTz to)
{
	uint64		was = pg_atomic_read_u64(time);

	while ((TimestampTz) was < to && !pg_atomic_compare_exchange_u64(time, &was, (uint64) to))
		;
}

/* Adds the changes of counters of events. */
static void
apply_events(const StatChanges *changes)
{
	StatEntry  *entry = changes->entry;
	uint64		left = changes->touched >> STAT_LIVE << STAT_LIVE;

	while (left != 0)
	{
		int			counter = pg_rightmost_one_pos64(left);

		left &= left - 1;
		pg_atomic_fetch_add_u64(&entry->n[counter], changes->n[counter]);
	}
	set_later(&entry->last_completed, changes->completed);
	set_later(&entry->last_failed, changes->failed);
}

static void
apply(void)
{
	if (reset_by != InvalidSubTransactionId)
		stat_reset_db(db, GetCurrentTimestamp());
	for (int i = 0; i < depth; i++)
	{
		if (!is_valid(&stack[i]))
			continue;
		if (stack[i].reset)
			stat_reset_type(db, stack[i].entry, GetCurrentTimestamp());
		apply_events(&stack[i]);
	}
	apply_all_rows(GetTopTransactionIdIfAny());
}

void
stat_note_unknown(DbStats *stats, TransactionId xid)
{
	for (int i = 0; i < Min(stats->nunknown, max_prepared_xacts); i++)
	{
		if (stats->unknown[i] == xid)
			return;
	}
	if (stats->nunknown < max_prepared_xacts)
		stats->unknown[stats->nunknown] = xid;
	stats->nunknown++;
}

/* True if all changes have a place, and tell the whole effect on rows. */
static bool
can_keep(const DbStats *stats)
{
	bool		can = recount_by == InvalidSubTransactionId && stats->nprepared + depth <= STAT_PREPARED;

	for (int i = 0; i < depth; i++)
		can &= is_valid(&stack[i]);
	return can;
}

/* Keeps the changes of a prepared transaction, or notes that they are lost. */
static void
keep(TransactionId xid)
{
	DbStats    *stats = &db->stats;

	SpinLockAcquire(&db->mutex);
	if (!can_keep(stats))
		stat_note_unknown(stats, xid);
	else
	{
		for (int i = 0; i < depth; i++)
		{
			StatPrepared *kept = &stats->prepared[stats->nprepared++];

			kept->xid = xid;
			kept->entry = stack[i].entry;
			kept->completed = stack[i].completed;
			kept->failed = stack[i].failed;
			for (int c = 0; c < STAT_COUNTERS; c++)
				kept->n[c] = (stack[i].touched & (UINT64CONST(1) << c)) ? stack[i].n[c] : 0;
		}
	}
	SpinLockRelease(&db->mutex);
}

static void
refuse_reset(void)
{
	bool		reset = reset_by != InvalidSubTransactionId;

	for (int i = 0; i < depth; i++)
		reset |= stack[i].reset;
	if (reset)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has called jobq.stat_reset()")));
}

static void
forget(void)
{
	depth = 0;
	recount_by = reset_by = InvalidSubTransactionId;
	if (size <= MAX_KEPT)
		return;
	pfree(stack);
	stack = NULL;
	size = 0;
}

void
stat_at_end(XactEvent event)
{
	static TransactionId preparing = InvalidTransactionId;

	if (depth == 0 && recount_by == InvalidSubTransactionId && reset_by == InvalidSubTransactionId)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			refuse_reset();
			preparing = GetTopTransactionIdIfAny();
			break;
		case XACT_EVENT_PREPARE:
			keep(preparing);
			forget();
			break;
		case XACT_EVENT_COMMIT:
			apply();
			forget();
			break;
		case XACT_EVENT_ABORT:
			forget();
			break;
		default:
			break;
	}
}

/* ---------- prepared transactions ---------- */

/*
 * Takes the changes of a transaction and applies those of rows if it has
 * committed; returns their number.
 */
static int
take_prepared(JobqDb *of, TransactionId xid, bool committed, StatPrepared *taken)
{
	DbStats    *stats = &of->stats;
	int			n = 0;
	int			i = 0;

	SpinLockAcquire(&of->mutex);
	while (i < stats->nprepared)
	{
		StatPrepared *changes = &stats->prepared[i];

		if (changes->xid != xid)
		{
			i++;
			continue;
		}
		if (committed && stat_entry_is_of(changes->entry, of))
			apply_rows(stats, changes->entry, changes->n, xid);
		taken[n++] = *changes;
		*changes = stats->prepared[--stats->nprepared];
	}
	SpinLockRelease(&of->mutex);
	return n;
}

static void
apply_prepared_events(JobqDb *of, const StatPrepared *changes, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (!stat_entry_is_of(changes[i].entry, of))
			continue;
		for (int c = STAT_LIVE; c < STAT_COUNTERS; c++)
		{
			if (changes[i].n[c] != 0)
				pg_atomic_fetch_add_u64(&changes[i].entry->n[c], changes[i].n[c]);
		}
		set_later(&changes[i].entry->last_completed, changes[i].completed);
		set_later(&changes[i].entry->last_failed, changes[i].failed);
	}
}

/* Has the rows counted anew if one with unknown changes has ended, or may have. */
static void
doubt_counts(JobqDb *of)
{
	TransactionId *unknown = palloc(sizeof(TransactionId) * max_prepared_xacts);
	int			n;
	bool		ended;

	SpinLockAcquire(&of->mutex);
	n = of->stats.nunknown;
	memcpy(unknown, of->stats.unknown, sizeof(TransactionId) * max_prepared_xacts);
	SpinLockRelease(&of->mutex);
	ended = n > max_prepared_xacts;
	for (int i = 0; i < n && !ended; i++)
		ended = !TransactionIdIsInProgress(unknown[i]);
	pfree(unknown);
	if (!ended)
		return;
	SpinLockAcquire(&of->mutex);
	spoil(&of->stats);
	SpinLockRelease(&of->mutex);
}

void
stat_prepared_ended(JobqDb *of)
{
	TransactionId *xids;
	StatPrepared *taken;
	int			nxids;

	if (max_prepared_xacts == 0)
		return;
	xids = palloc(sizeof(TransactionId) * STAT_PREPARED);
	taken = palloc(sizeof(StatPrepared) * STAT_PREPARED);
	doubt_counts(of);
	SpinLockAcquire(&of->mutex);
	nxids = of->stats.nprepared;
	for (int i = 0; i < nxids; i++)
		xids[i] = of->stats.prepared[i].xid;
	SpinLockRelease(&of->mutex);
	for (int i = 0; i < nxids; i++)
	{
		bool		committed;
		int			n;

		if (TransactionIdIsInProgress(xids[i]))
			continue;
		committed = TransactionIdDidCommit(xids[i]);
		n = take_prepared(of, xids[i], committed, taken);
		if (committed)
			apply_prepared_events(of, taken, n);
	}
	pfree(taken);
	pfree(xids);
}
