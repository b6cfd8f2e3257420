/*
 * wait_snapshot.c
 *	  A wait without a snapshot: see wait_snapshot.h.
 *
 * The session's xmin is what keeps dead rows, and the statement's snapshot is
 * what says which rows it sees.  Where jobq.claim is all that a client's
 * statement reads from, nothing has been read before the wait, and nothing is
 * read during it: the xmin is withdrawn.  Afterwards a new snapshot is written
 * into the statement's, which its portal, its plan and the stack of active
 * snapshots share.
 *
 * A statement that reads a table or calls another function in FROM may have
 * rows of its snapshot in hand, and values that point to TOAST.  Such a
 * statement keeps its snapshot while it waits.
 */
#include "jobq.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "pull/wait_snapshot.h"

/* Returns the number of relations, functions and the like that the plan reads. */
static int
sources_of(const PlannedStmt *stmt)
{
	ListCell   *lc;
	int			n = 0;

	foreach(lc, stmt->rtable)
		n += !rte_is_group(lfirst_node(RangeTblEntry, lc));
	return n;
}

/* True if the plan reads nothing but one call of the function, in FROM. */
static bool
reads_only(const PlannedStmt *stmt, Oid function)
{
	Plan	   *plan = stmt->planTree;
	Node	   *call;

	if (stmt->relationOids != NIL || stmt->subplans != NIL || sources_of(stmt) != 1)
		return false;
	while (plan != NULL && !IsA(plan, FunctionScan))
		plan = plan->righttree == NULL ? plan->lefttree : NULL;
	if (plan == NULL || list_length(((FunctionScan *) plan)->functions) != 1)
		return false;
	call = linitial_node(RangeTblFunction, ((FunctionScan *) plan)->functions)->funcexpr;
	return IsA(call, FuncExpr) && ((FuncExpr *) call)->funcid == function;
}

/*
 * True if the active snapshot is the only active one.  The caller has it
 * registered, so that it outlives the look.
 */
static bool
is_only_active(Snapshot snapshot)
{
	bool		only;

	PopActiveSnapshot();
	only = !ActiveSnapshotSet();
	PushActiveSnapshot(snapshot);
	return only;
}

bool
wait_snapshot_release(FunctionCallInfo fcinfo)
{
	EState	   *estate = ((ReturnSetInfo *) fcinfo->resultinfo)->econtext->ecxt_estate;
	QueryDesc  *query = ActivePortal ? ActivePortal->queryDesc : NULL;

	InvalidateCatalogSnapshot();
	if (!ThereAreNoPriorRegisteredSnapshots())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("jobq.claim cannot wait where its transaction has an earlier snapshot"),
				 errhint("Call it as a statement of its own, without an open cursor, or with wait => '0'.")));
	if (query == NULL || query->estate != estate || !ActiveSnapshotSet() ||
		GetActiveSnapshot() != query->snapshot || !is_only_active(query->snapshot) ||
		!reads_only(query->plannedstmt, fcinfo->flinfo->fn_oid))
		return false;
	MyProc->xmin = InvalidTransactionId;
	return true;
}

static TransactionId *
copy_xids(const TransactionId *xids, int n)
{
	TransactionId *copy = MemoryContextAlloc(TopTransactionContext, sizeof(TransactionId) * Max(n, 1));

	memcpy(copy, xids, sizeof(TransactionId) * n);
	return copy;
}

void
wait_snapshot_renew(void)
{
	Snapshot	latest = GetLatestSnapshot();
	Snapshot	ours = GetActiveSnapshot();

	ours->xmin = latest->xmin;
	ours->xmax = latest->xmax;
	ours->xip = copy_xids(latest->xip, latest->xcnt);
	ours->xcnt = latest->xcnt;
	ours->subxip = copy_xids(latest->subxip, latest->subxcnt);
	ours->subxcnt = latest->subxcnt;
	ours->suboverflowed = latest->suboverflowed;
	ours->takenDuringRecovery = latest->takenDuringRecovery;
	ours->curcid = latest->curcid;
	ours->snapXactCompletionCount = latest->snapXactCompletionCount;
}
