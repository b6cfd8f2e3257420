/*
 * compaction_worker.c
 *	  Compaction in the maintenance process; compaction.c has the design.
 *
 * The first transaction removes dead rows, the second one their index entries
 * and line pointers (reclaim.c).  When a cursor blocks the second one, or this
 * process is terminated between the two, clean_due stays set and the
 * dispatcher starts another run.  Then, if it pays, the table is rewritten,
 * provided that the locks are free within some tries.  Each try is a
 * transaction, and a few tries are made in one pause.  The end of the process
 * ends the pause in any case.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "maintenance/beyond_horizon.h"
#include "maintenance/compaction.h"
#include "maintenance/maintenance.h"
#include "maintenance/reclaim.h"
#include "maintenance/rewrite.h"
#include "shared/slots.h"

#define REWRITE_MAX_BYTES	(64 * 1024 * 1024)	/* of rows, under the lock;
												 * jobq.compact(): no limit */
#define REWRITE_SMALL_BYTES	(1024 * 1024)	/* up to that, a rewrite has no
											 * time limit */
#define REWRITE_STALL_MS	100
#define REWRITE_LIMIT_MS	80		/* then it gives up; the rest is for the
									 * commit */
#define REWRITE_TRUST_US	(600 * USECS_PER_SEC)	/* then it tries a size again
													 * that took too long */
#define REWRITE_TRY_MS		1000
#define REWRITE_ASKED_MS	10000
#define PAUSE_MS			30
#define BETWEEN_PAUSES_MS	220
#define TRY_EVERY_MS		2
#define LONG_RUN_MS			100

/* ---------- removing dead rows ---------- */

typedef struct Run
{
	JobqDb	   *db;
	Horizon		horizon;
	FullTransactionId fence;	/* valid: rows beyond the server's horizon are
								 * fenced (standby_fence.c) */
	bool		forced;			/* by jobq.compact() */
	bool		swept;			/* dead rows are removed */
	bool		cleaned;		/* so are their index entries and line
								 * pointers */
	bool		rewritable;		/* there is an index for it */
	bool		rewritten;
	TimestampTz rewrite_began;	/* it had all locks; 0: it did not get them */
	Reclaimed	sum;
	DeadPages	queue;
	DeadPages	toast;
	int64		bytes;			/* of the files, after it */
} Run;

/*
 * Opens a table for the steps of reclaim.c; NULL if the table is in use or
 * does not exist.
 */
static Relation
open_for_reclaim(Oid relid)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(relid, ShareUpdateExclusiveLock))
		return NULL;
	rel = try_table_open(relid, NoLock);
	if (rel != NULL && rel->rd_rel->relam != HEAP_TABLE_AM_OID)
	{
		table_close(rel, NoLock);
		rel = NULL;
	}
	return rel;
}

static bool
mark_table(Oid relid, Run *run, DeadPages *pages)
{
	Relation	rel;

	if (!OidIsValid(relid))
		return true;
	rel = open_for_reclaim(relid);
	if (rel == NULL)
		return false;
	reclaim_mark(rel, &run->horizon, run->fence, &run->sum, pages);
	table_close(rel, NoLock);
	return true;
}

static bool
clean_table(Oid relid, const DeadPages *pages)
{
	Relation	rel;

	if (!OidIsValid(relid))
		return true;
	rel = open_for_reclaim(relid);
	if (rel == NULL)
		return false;
	reclaim_clean(rel, pages);
	table_close(rel, NoLock);
	return true;
}

static Oid
toast_of(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	Oid			toastid = rel->rd_rel->reltoastrelid;

	table_close(rel, NoLock);
	return toastid;
}

static int64
bytes_of(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	int64		bytes = (int64) RelationGetNumberOfBlocks(rel) * BLCKSZ;

	table_close(rel, NoLock);
	return bytes;
}

/*
 * Sets the horizon of the sweep.  A fence is the xid of this transaction: it
 * makes the commit a record in the WAL.
 */
static bool
choose_horizon(void *arg)
{
	Run		   *run = arg;

	horizon_check_age(&run->horizon);
	switch (beyond_horizon())
	{
		case BEYOND_NOT:
			run->horizon.xmax = InvalidTransactionId;
			break;
		case BEYOND_AS_CONFLICT:
			break;
		case BEYOND_FENCED:
			run->fence = GetTopFullTransactionId();
			break;
	}
	return true;
}

/*
 * Removes dead rows of table and TOAST table.  The table's lock keeps its
 * TOAST table in place.
 */
static bool
mark_both(Run *run, Oid relid)
{
	Oid			toastid;

	if (!mark_table(relid, run, &run->queue))
		return false;
	toastid = toast_of(relid);
	if (run->sum.needs_toast)
		run->sum.kept_bytes += bytes_of(toastid);
	else if (!mark_table(toastid, run, &run->toast))
		return false;
	run->bytes = queue_bytes();
	return true;
}

/* Runs the first transaction: dead rows. */
static bool
mark_queue(void *arg)
{
	Run		   *run = arg;
	Oid			relid = jobq_relid("queue");
	bool		done;

	pgstat_report_activity(STATE_RUNNING, "jobq: removing dead rows from jobq.queue");
	PushActiveSnapshot(GetTransactionSnapshot());	/* for horizon_check_tops */
	horizon_check_tops(&run->horizon);
	done = OidIsValid(relid) && mark_both(run, relid);
	PopActiveSnapshot();
	return done;
}

/*
 * Runs the second transaction: index entries and line pointers.  The table may
 * have changed since the first, or have a new TOAST table.
 */
static bool
clean_queue(void *arg)
{
	Run		   *run = arg;
	Oid			relid = jobq_relid("queue");

	pgstat_report_activity(STATE_RUNNING, "jobq: removing index entries from jobq.queue");
	if (!OidIsValid(relid) || !clean_table(relid, &run->queue) || !clean_table(toast_of(relid), &run->toast))
		return false;
	run->rewritable = rewrite_has_index(relid);
	return true;
}

/* ---------- rewriting the table ---------- */

static bool
rewrite_queue(void *arg)
{
	Run		   *run = arg;
	Oid			relid = jobq_relid("queue");
	bool		limited = !run->forced && run->sum.kept_bytes > REWRITE_SMALL_BYTES;

	pgstat_report_activity(STATE_RUNNING, "jobq: rewriting jobq.queue");
	run->rewrite_began = 0;
	return OidIsValid(relid) && rewrite_table(relid, limited ? REWRITE_LIMIT_MS : 0, &run->rewrite_began);
}

/*
 * Computes from a rewrite, done or given up, how many bytes one can copy in
 * time.
 */
static void
measure_rewrite(Run *run, bool done)
{
	Compaction *c = &run->db->compaction;
	TimestampTz now = GetCurrentTimestamp();
	int64		kept = run->sum.kept_bytes;

	if (kept <= REWRITE_SMALL_BYTES)
		return;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	c->rewrite_bytes = done ?
		kept * (REWRITE_STALL_MS * INT64CONST(1000)) / Max(now - run->rewrite_began, 1) : kept / 2;
	c->rewrite_measured_at = now;
	LWLockRelease(JobqShmem->lock);
	ereport(DEBUG1,
			(errmsg_internal("jobq rewrite: " INT64_FORMAT " bytes %s after " INT64_FORMAT " us", kept,
							 done ? "done" : "given up", (int64) (now - run->rewrite_began))));
}

/*
 * True if a rewrite will block nothing for longer than REWRITE_STALL_MS, or if
 * its duration is unknown.
 */
static bool
rewrite_is_short(Run *run)
{
	Compaction *c = &run->db->compaction;
	TimestampTz now = GetCurrentTimestamp();

	return run->sum.kept_bytes <= Max(REWRITE_SMALL_BYTES, c->rewrite_bytes) ||
		now > c->rewrite_measured_at + REWRITE_TRUST_US || now < c->rewrite_measured_at;
}

static void
set_pause(JobqDb *of, MonoTime until)
{
	pg_atomic_write_u64(&of->compaction.pause_until, (uint64) until);
	wake_dispatcher(of);
}

/*
 * True if a handler has been running for long: it holds the table's lock, so a
 * pause would block the other jobs for nothing.
 */
static bool
long_handler_runs(Oid dboid)
{
	MonoTime	now = mono_now();
	bool		found = false;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots && !found; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dboid != dboid || slot->kind != SLOT_SQL)
			continue;
		SpinLockAcquire(&slot->mutex);
		found = slot->current >= 0 && slot->phase == PHASE_HANDLER &&
			mono_exceeds(slot->cells[slot->current].begun_at, now, LONG_RUN_MS);
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(JobqShmem->lock);
	return found;
}

void
compaction_nap(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Tries to rewrite the table until `end`.  True if the rewrite is done or
 * given up, and no further try makes sense.
 */
static bool
try_until(MonoTime end, Run *run)
{
	while (mono_now() < end && !db_must_leave(run->db) && !run->db->lifecycle.suspended)
	{
		run->rewritten = maintenance_transaction(rewrite_queue, run);
		if (run->rewrite_began != 0)
		{
			measure_rewrite(run, run->rewritten);
			return true;
		}
		compaction_nap(TRY_EVERY_MS);
	}
	return false;
}

/* Tries in some pauses.  True if the rewrite is done or given up. */
static bool
rewrite_in_a_pause(Run *run)
{
	MonoTime	end = mono_now() + (run->forced ? REWRITE_ASKED_MS : REWRITE_TRY_MS) * INT64CONST(1000);
	bool		done = false;

	while (!done && mono_now() < end && !db_must_leave(run->db) && !run->db->lifecycle.suspended)
	{
		MonoTime	until = mono_now() + PAUSE_MS * INT64CONST(1000);

		if (!long_handler_runs(run->db->dboid))
			set_pause(run->db, until);
		done = try_until(until, run);
		set_pause(run->db, 0);
		if (!done)
			compaction_nap(BETWEEN_PAUSES_MS);
	}
	return done;
}

static bool
rewrite_pays(Run *run)
{
	if (run->forced)
		return true;
	return jobq_compact_threshold > 0 && run->bytes > compaction_threshold() &&
		run->sum.kept_bytes < run->bytes / 4 && run->sum.kept_bytes < REWRITE_MAX_BYTES &&
		rewrite_is_short(run);
}

static void
begin_run(Run *run)
{
	Compaction *c = &run->db->compaction;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	run->horizon = c->horizon;
	run->forced = c->asked != c->answered;
	c->serving = c->asked;
	c->swept = false;
	LWLockRelease(JobqShmem->lock);
}

static void
set_clean_due(Run *run, bool due)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	run->db->compaction.clean_due = due;
	LWLockRelease(JobqShmem->lock);
}

/*
 * Runs both transactions.  Sets clean_due before the second one, which may end
 * early.
 */
static void
sweep(Run *run)
{
	run->queue.context = run->toast.context = CurrentMemoryContext;
	run->swept = maintenance_transaction(choose_horizon, run) && maintenance_transaction(mark_queue, run);
	if (!run->swept)
		return;
	set_clean_due(run, true);
	run->cleaned = maintenance_transaction(clean_queue, run);
	if (run->cleaned)
		set_clean_due(run, false);
}

static void
end_run(Run *run, bool rewrite_due)
{
	Compaction *c = &run->db->compaction;

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	c->swept = run->swept;
	c->rewrite_due = rewrite_due;
	if (run->swept)
	{
		c->kept_bytes = run->sum.kept_bytes;
		if (run->sum.removed_rows > 0)	/* with index entries and line
										 * pointers */
			c->row_bytes = 100 + run->sum.removed_bytes / run->sum.removed_rows;
	}
	LWLockRelease(JobqShmem->lock);
}

static void
report_run(const Run *run, bool left)
{
	ereport(DEBUG1,
			(errmsg_internal("jobq compaction: %s, " INT64_FORMAT " dead rows removed, " INT64_FORMAT
							 " bytes kept of " INT64_FORMAT "%s%s%s", run->swept ? "swept" : "found the queue in use",
							 run->sum.removed_rows, run->sum.kept_bytes, run->bytes,
							 run->sum.needs_toast ? ", TOAST kept" : "",
							 run->swept && !run->cleaned ? ", index entries kept" : "",
							 left ? ", not rewritten" : "")));
}

void
compaction_run(JobqDb *of)
{
	Run		   *run = palloc0(sizeof(Run));
	bool		pays;
	bool		over;

	run->db = of;
	begin_run(run);
	sweep(run);
	pays = run->cleaned && rewrite_pays(run);
	over = pays && run->rewritable && of->compaction.may_rewrite && rewrite_in_a_pause(run);
	end_run(run, pays && !over && !run->forced);
	report_run(run, pays && !run->rewritten);
}

void
compaction_ended(JobqDb *of)
{
	of->compaction.ended++;
	of->compaction.answered = of->compaction.serving;
	pg_atomic_write_u64(&of->compaction.pause_until, 0);
}
