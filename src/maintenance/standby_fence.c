/*
 * standby_fence.c
 *	  Stops readers of jobq.queue on a standby with a snapshot from before a
 *	  sweep beyond the horizon.
 *
 * Used with jobq.compact_beyond_horizon = on only (beyond_horizon.c): there,
 * removals name no deleter by which replay could cancel sessions.
 *
 * The primary.  A sweep's horizon lists the transactions that had ended at a
 * moment T.  After T a transaction F gets an xid and commits.  Then the sweep
 * raises the fence, sequence jobq.fence, to F, and then removes rows.  So the
 * WAL has, in this order: T, the commit of F, the fence, the removals.  The
 * fence is a sequence, because a sequence is written in place at once, even if
 * the sweep is rolled back, and has no dead rows.
 *
 * The standby.  A snapshot that sees F as ended was taken after the replay of
 * T, and needs no row that the sweep removes.  With any other snapshot, a read
 * of the queue is an error once the fence is up.  The fence is checked before
 * rows are read and after: a read that met the effect of a removal meets the
 * fence afterwards, because replay applied the fence first.  A fence that is
 * up before its removals are replayed may cause a needless error, and never
 * hides a row.
 *
 * Reads are: each run of PostgreSQL's executor (each FETCH of a cursor, each
 * step of a function's query) whose plan has the queue among its relations,
 * through any views; COPY of the table.  jobq's own functions read the queue
 * on a standby through the executor only, except jobs_view.c, inside of such a
 * query.
 *
 * Only snapshots taken during recovery count.  After a promotion a session may
 * still have one, and is still stopped.  In a server that never was a standby
 * the cost is the test of a flag.
 */
#include "jobq.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/relations.h"
#include "maintenance/standby_fence.h"

static ExecutorRun_hook_type prev_executor_run = NULL;
static ProcessUtility_hook_type prev_process_utility = NULL;

bool
fence_exists(void)
{
	return OidIsValid(jobq_relid("fence"));
}

void
fence_raise(FullTransactionId xid)
{
	DirectFunctionCall2(setval_oid, ObjectIdGetDatum(jobq_relid("fence")),
						Int64GetDatum((int64) U64FromFullTransactionId(xid)));
}

/* Returns the last F, the value of the fence; 0: none. */
static uint64
last_fence(void)
{
	Oid			relid = jobq_relid("fence");
	Relation	rel = OidIsValid(relid) ? try_table_open(relid, AccessShareLock) : NULL;
	TableScanDesc scan;
	HeapTuple	tuple;
	bool		isnull;
	uint64		xid = 0;

	if (rel == NULL)
		return 0;
	scan = table_beginscan(rel, SnapshotAny, 0, NULL, SO_NONE);
	tuple = heap_getnext(scan, ForwardScanDirection);
	if (HeapTupleIsValid(tuple))
		xid = (uint64) DatumGetInt64(heap_getattr(tuple, SEQ_COL_LASTVAL, RelationGetDescr(rel), &isnull));
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return xid;
}

/*
 * True if the snapshot sees the transaction as ended.  Compares full xids
 * first: the fence may be any number of transactions old.
 */
static bool
sees_ended(Snapshot snapshot, uint64 xid)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());
	uint64		xmax = next + (int32) (snapshot->xmax - (TransactionId) next);

	if (xid >= xmax)
		return false;
	return xmax - xid > PG_INT32_MAX || !XidInMVCCSnapshot((TransactionId) xid, snapshot);
}

/* Raises an error if the snapshot is older than the fence. */
static void
check_fence(Snapshot snapshot)
{
	uint64		xid = last_fence();

	if (xid != 0 && !sees_ended(snapshot, xid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("snapshot is too old to read jobq.queue"),
				 errdetail("Rows that it should see were removed on the primary since it was taken."),
				 errhint("Begin another transaction. jobq.compact_beyond_horizon is \"on\" on the primary: with \"auto\", "
						 "compaction leaves rows that a known standby may need.")));
}

/* True for a snapshot that was taken during recovery. */
static bool
is_fenced(Snapshot snapshot)
{
	return snapshot != NULL && snapshot->snapshot_type == SNAPSHOT_MVCC && snapshot->takenDuringRecovery;
}

static bool
plan_reads_queue(PlannedStmt *plan)
{
	Oid			relid = jobq_relid("queue");
	ListCell   *lc;

	if (!OidIsValid(relid))
		return false;
	foreach(lc, plan->rtable)
	{
		if (lfirst_node(RangeTblEntry, lc)->relid == relid)
			return true;
	}
	return false;
}

static void
fence_executor_run(QueryDesc *query, ScanDirection direction, uint64 count EXECUTOR_RUN_ONCE)
{
	bool		fenced = is_fenced(query->snapshot) && plan_reads_queue(query->plannedstmt);

	if (fenced)
		check_fence(query->snapshot);
	if (prev_executor_run)
		prev_executor_run(query, direction, count EXECUTOR_RUN_ONCE_GIVEN);
	else
		standard_ExecutorRun(query, direction, count EXECUTOR_RUN_ONCE_GIVEN);
	if (fenced)
		check_fence(query->snapshot);
}

static bool
copies_queue(Node *stmt)
{
	CopyStmt   *copy = (CopyStmt *) stmt;

	return IsA(stmt, CopyStmt) && !copy->is_from && copy->relation != NULL &&
		ActiveSnapshotSet() && is_fenced(GetActiveSnapshot()) &&
		OidIsValid(jobq_relid("queue")) &&
		RangeVarGetRelid(copy->relation, NoLock, true) == jobq_relid("queue");
}

static void
fence_process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
					  ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
					  DestReceiver *dest, QueryCompletion *qc)
{
	bool		fenced = copies_queue(pstmt->utilityStmt);

	if (fenced)
		check_fence(GetActiveSnapshot());
	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	if (fenced)
		check_fence(GetActiveSnapshot());
}

void
fence_install_hooks(void)
{
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = fence_executor_run;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = fence_process_utility;
}
