/*
 * stale_snapshot.c
 *	  Decisions above READ COMMITTED that rest on all rows of a table.
 *
 * jobq.create_workflow looks for cycles in the active versions that its
 * snapshot shows, jobq.drop_limit and jobq.drop_signal for types and rules that
 * use what they drop.  A lock makes them wait for writers of open transactions,
 * but an old snapshot does not show rows that have been committed since.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(jobq_check_snapshot);

/* True if a row is visible now and was not at the snapshot. */
static bool
has_newer_row(Relation rel, Snapshot seen)
{
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, latest, 0, NULL, SO_NONE);
	bool		newer = false;

	while (!newer && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		newer = !table_tuple_satisfies_snapshot(rel, slot, seen);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(latest);
	return newer;
}

/*
 * jobq_internal._check_snapshot(rows): 40001 if another transaction has written
 * a row of the table since this one's snapshot.  The caller holds a lock that
 * such a transaction needs.
 */
Datum
jobq_check_snapshot(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);

	if (IsolationUsesXactSnapshot() && has_newer_row(rel, GetTransactionSnapshot()))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update"),
				 errdetail("Another transaction has changed \"%s\".", RelationGetRelationName(rel))));
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}
