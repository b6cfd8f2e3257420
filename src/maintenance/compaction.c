/*
 * compaction.c
 *	  Keeps the queue's files small.
 *
 * Two steps, each sound by itself.
 *
 * (1) Dead rows are removed in place (reclaim.c), by a horizon that only
 * snapshots of this database hold back (snapshot_horizon.c).  Where the server
 * has a known standby, the server's horizon must have passed, too
 * (beyond_horizon.c).  The step waits for no process and blocks none, not even
 * a handler that runs for hours.  With it the table is as large as its rows
 * and those that have died since the horizon.
 *
 * (2) The table is rewritten (rewrite.c) when its content would fit into a
 * quarter of the files.  A snapshot of this database that has ended may have
 * made them large, or index pages that only the server's horizon frees.  The
 * rewrite takes a lock on the table only when that is free at once.
 *
 * Processes.  At each sweep the dispatcher checks whether the files are above
 * jobq.compact_threshold and whether enough jobs have run.  It waits for the
 * horizon and starts the maintenance process, which does both steps.  For the
 * second step that process makes pauses of some milliseconds: the dispatcher
 * takes back the jobs that have not begun, and workers begin none.  In a pause
 * it tries for the lock; if the lock is not free, it tries again a little
 * later.  While a long handler runs, a pause cannot help, so then it only
 * tries.
 *
 * Size.  When a run has left `kept` bytes, the next one comes when about
 * max(threshold, kept) / 2 bytes have died; the size of a row is taken from
 * the last run.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_am.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "maintenance/beyond_horizon.h"
#include "maintenance/compaction.h"
#include "maintenance/maintenance.h"
#include "shared/slots.h"

#define GRACE_POLL_US		INT64CONST(200000)
#define BUSY_RETRY_US		INT64CONST(500000)
#define MAX_RETRY_SHIFT		5
#define QUIET_US			(3 * USECS_PER_SEC)
#define LOOK_ANYWAY_US		(600 * USECS_PER_SEC)	/* rows also die without a
													 * hand-out */

#define ASKED_GRACE_MS		5000
#define ASKED_LIMIT_MS		60000

PG_FUNCTION_INFO_V1(jobq_compact);

/* ---------- sizes ---------- */

/*
 * Returns the size of a relation with its indexes.  Waits for no lock: an
 * index that REINDEX has locked counts as empty.
 */
static int64
relation_bytes(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;
	int64		blocks = RelationGetNumberOfBlocks(rel);

	foreach(lc, indexes)
	{
		Relation	index;

		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			continue;
		index = index_open(lfirst_oid(lc), NoLock);
		blocks += RelationGetNumberOfBlocks(index);
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return blocks * BLCKSZ;
}

int64
queue_bytes(void)
{
	Oid			relid = jobq_relid("queue");
	Relation	rel;
	int64		bytes;

	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		return -1;
	rel = try_table_open(relid, NoLock);
	if (rel == NULL)
		return -1;
	if (rel->rd_rel->relam != HEAP_TABLE_AM_OID)
	{
		table_close(rel, AccessShareLock);
		return -1;
	}
	bytes = relation_bytes(rel);
	if (OidIsValid(rel->rd_rel->reltoastrelid) &&
		ConditionalLockRelationOid(rel->rd_rel->reltoastrelid, AccessShareLock))
	{
		Relation	toast = table_open(rel->rd_rel->reltoastrelid, NoLock);

		bytes += relation_bytes(toast);
		table_close(toast, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
	return bytes;
}

int64
compaction_threshold(void)
{
	return (int64) jobq_compact_threshold * 1024;
}

/* ---------- the dispatcher's side ---------- */

static JobqDb *db;
static Grace grace;
static bool waiting = false;	/* for the end of the grace period */
static bool ready = false;		/* it has ended; no run has used the horizon */
static bool running = false;	/* a run was started */
static bool measured = false;	/* a run has set Compaction.kept_bytes */
static uint32 ended_seen;
static uint64 handed_at = 0;	/* hand-outs when the horizon was taken */
static MonoTime begun_at = 0;
static MonoTime retry_at = 0;	/* the table was in use */
static int	busy = 0;			/* runs in a row that found it in use */
static MonoTime rewrite_at = 0;	/* no moment was found for the rewrite */
static int	failures = 0;		/* rewrites in a row without a moment */
static MonoTime clean_at = 0;	/* dead line pointers were left */
static int	clean_failures = 0; /* runs in a row that left some */
static MonoTime next_timer = DT_NOEND;

void
compaction_init(MemoryContext context, JobqDb *mine)
{
	db = mine;
	grace_init(&grace, context, &db->compaction.imports);
	ended_seen = db->compaction.ended;
}

MonoTime
compaction_next_timer(void)
{
	return next_timer;
}

/*
 * True if enough rows have died since the last run, or if hand-out has become
 * quiet and the files have more room than is needed soon.
 */
static bool
worthwhile(MonoTime now)
{
	static uint64 seen = 0;
	static MonoTime seen_at = 0;
	uint64		total = pg_atomic_read_u64(&db->counters.handed_out);
	int64		handed = (int64) (total - handed_at);
	bool		long_ago = now > begun_at + LOOK_ANYWAY_US;
	bool		quiet;
	int64		bytes;
	int64		enough = Max(compaction_threshold(), db->compaction.kept_bytes) / 2;

	if (total != seen)
	{
		seen = total;
		seen_at = now;
	}
	quiet = now > seen_at + QUIET_US;
	if (measured && !long_ago && handed == 0)
		return false;
	bytes = queue_bytes();
	if (bytes <= compaction_threshold())
		return false;
	if (!measured || handed * db->compaction.row_bytes >= enough)
		return true;
	if (quiet && 4 * handed * db->compaction.row_bytes >= bytes)
		return true;			/* died behind the last horizon: kept_bytes counts them */
	return (long_ago || quiet) && bytes > Max(compaction_threshold(), 4 * db->compaction.kept_bytes);
}

static void
begin_waiting(MonoTime now)
{
	handed_at = pg_atomic_read_u64(&db->counters.handed_out);
	begun_at = now;
	grace_begin(&grace, GetLatestSnapshot());
	waiting = true;
}

/*
 * True if the server's horizon has passed the given one.  False while a
 * session locks the queue exclusively: the next turn asks again.
 */
static bool
server_agrees(const Horizon *horizon)
{
	Oid			relid = jobq_relid("queue");
	Relation	rel;
	bool		agrees;

	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	rel = try_table_open(relid, NoLock);
	if (rel == NULL)
		return false;
	agrees = server_horizon_passed(rel, horizon->xmax);
	table_close(rel, AccessShareLock);
	return agrees;
}

/* True if the horizon that was taken last may be used. */
static bool
horizon_is_due(void)
{
	return grace_over(&grace) && (beyond_horizon() != BEYOND_NOT || server_agrees(&grace.horizon));
}

static void
use_horizon(const Horizon *horizon)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	db->compaction.horizon = *horizon;
	LWLockRelease(JobqShmem->lock);
}

/* Sets the time of a run for dead line pointers that the last one has left. */
static void
plan_cleaning(MonoTime now)
{
	if (!db->compaction.clean_due)
		clean_failures = 0;
	else
		clean_at = now + (BUSY_RETRY_US << Min(clean_failures++, MAX_RETRY_SHIFT));
}

/* Notices the end of a run and plans the next one. */
static void
hear_run(MonoTime now)
{
	bool		ended = db->compaction.ended != ended_seen;

	if (!running || (!ended && db->maintenance.busy))
		return;
	running = false;
	ended_seen = db->compaction.ended;
	plan_cleaning(now);
	if (!ended || !db->compaction.swept)
	{
		retry_at = now + (BUSY_RETRY_US << Min(busy++, MAX_RETRY_SHIFT));
		return;
	}
	busy = 0;
	ready = false;
	measured = true;
	if (!db->compaction.rewrite_due)
		failures = 0;
	else if (db->compaction.may_rewrite)
		rewrite_at = now + (BUSY_RETRY_US << Min(failures++, MAX_RETRY_SHIFT));
}

static bool
run_is_due(MonoTime now)
{
	if (now < retry_at)
		return false;
	if (db->compaction.asked != db->compaction.answered)
		return true;
	if (db->compaction.clean_due && now >= clean_at)
		return true;
	return jobq_compact_threshold > 0 && (ready || (db->compaction.rewrite_due && now >= rewrite_at));
}

void
compaction_turn(MonoTime now, bool tick)
{
	bool		asked = db->compaction.asked != db->compaction.answered;

	if (!tick && !asked && now < next_timer && db->compaction.ended == ended_seen)
		return;
	hear_run(now);
	if (jobq_compact_threshold == 0)
		waiting = ready = false;
	else if (waiting && horizon_is_due())
	{
		waiting = false;
		ready = true;
		use_horizon(&grace.horizon);
	}
	else if (!waiting && !ready && !running && worthwhile(now))
		begin_waiting(now);
	if (!running && run_is_due(now))
	{
		db->compaction.may_rewrite = asked || now >= rewrite_at;
		running = maintenance_start(db, 0, true);
	}
	next_timer = waiting || ready || running || asked ? now + GRACE_POLL_US : DT_NOEND;
	if (db->compaction.rewrite_due && !running)
		next_timer = Min(next_timer, Max(rewrite_at, now + GRACE_POLL_US));
	if (db->compaction.clean_due && !running)
		next_timer = Min(next_timer, Max(clean_at, now + GRACE_POLL_US));
}

/* ---------- jobq.compact() ---------- */

/*
 * Returns the snapshot of the statement, if this session surely has no older
 * one; else NULL.  Rows may go if that snapshot sees their deleter as ended,
 * and this session need not end first.  A portal that a pipeline has bound or
 * suspended has an older snapshot.
 */
static Snapshot
statement_snapshot(void)
{
	if (IsInTransactionBlock(true) || IsolationUsesXactSnapshot() || IsInParallelMode() ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return NULL;
	if (ActivePortal == NULL || ActivePortal->name[0] != '\0' || ActivePortal->queryDesc == NULL ||
		!ThereAreNoReadyPortals())
		return NULL;
	return ActivePortal->queryDesc->snapshot;
}

/*
 * Stores a horizon as young as the call, if other sessions' snapshots end
 * soon.
 */
static void
renew_horizon(JobqDb *of)
{
	Snapshot	snapshot = statement_snapshot();
	MonoTime	start = mono_now();
	Grace		mine;
	bool		over;

	if (snapshot == NULL)
		return;
	grace_init(&mine, CurrentMemoryContext, &of->compaction.imports);
	grace_begin(&mine, snapshot);
	while (!(over = grace_over(&mine)) &&
		   !mono_exceeds(start, mono_now(), ASKED_GRACE_MS))
		compaction_nap(10);
	pfree(mine.older);
	if (!over)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	of->compaction.horizon = mine.horizon;
	LWLockRelease(JobqShmem->lock);
}

/* Returns this database's entry; an error if its dispatcher does not run. */
static JobqDb *
db_that_runs(void)
{
	JobqDb	   *of = RecoveryInProgress() ? NULL : my_db();

	if (of == NULL || of->dispatcher.proc == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.compact() needs jobq's dispatcher, which does not run in this database"),
				 errhint("SELECT jobq.health() says why.")));
	if (MySlot != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.compact() cannot be called by a handler")));
	return of;
}

/* Requests a run and waits for its end, ASKED_LIMIT_MS at most. */
static void
ask_and_wait(JobqDb *of)
{
	MonoTime	start = mono_now();
	uint32		mine;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	mine = ++of->compaction.asked;
	LWLockRelease(JobqShmem->lock);
	while ((int32) (of->compaction.answered - mine) < 0 && of->dispatcher.proc != NULL &&
		   !mono_exceeds(start, mono_now(), ASKED_LIMIT_MS))
	{
		wake_dispatcher(of);
		compaction_nap(20);
	}
}

/*
 * jobq.compact(): makes one attempt now, whatever the sizes.  Returns the
 * bytes given back.
 */
Datum
jobq_compact(PG_FUNCTION_ARGS)
{
	JobqDb	   *of = db_that_runs();
	int64		before = queue_bytes();
	int64		after;

	renew_horizon(of);
	ask_and_wait(of);
	after = queue_bytes();
	PG_RETURN_INT64(before > after && after >= 0 ? before - after : 0);
}
