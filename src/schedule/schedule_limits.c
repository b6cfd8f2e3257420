/*
 * schedule_limits.c
 *	  jobq.max_schedules, and the quota max_schedules of tenants.
 *
 * A new row is in the table before it is counted.  A count includes the rows
 * that open transactions have inserted, as the quotas of jobs do (quota.c): no
 * order of commits exceeds a limit, and no count waits for a transaction.  The
 * snapshot is a new one in every isolation level.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/relations.h"
#include "enqueue/quota.h"
#include "schedule/schedule_row.h"
#include "tables/table_shape.h"

PG_FUNCTION_INFO_V1(jobq_check_schedule_limits);

/* ---------- counting ---------- */

/*
 * True if another transaction was open at the snapshot and has inserted this
 * version, rather than updated a row: then the version before it counts.  The
 * snapshot shows the rows of this transaction.
 */
static bool
is_open_insert(HeapTupleHeader header, Snapshot snapshot)
{
	TransactionId xmin = HeapTupleHeaderGetRawXmin(header);

	return (header->t_infomask & HEAP_UPDATED) == 0 && !HeapTupleHeaderXminFrozen(header) &&
		!HeapTupleHeaderXminInvalid(header) && !TransactionIdIsCurrentTransactionId(xmin) &&
		XidInMVCCSnapshot(xmin, snapshot) && !TransactionIdDidAbort(xmin);
}

/* True if the version in the slot counts as a row. */
static bool
is_row(TupleTableSlot *slot, Snapshot snapshot)
{
	BufferHeapTupleTableSlot *held = (BufferHeapTupleTableSlot *) slot;
	HeapTuple	tuple = held->base.tuple;
	bool		counts;

	LockBuffer(held->buffer, BUFFER_LOCK_SHARE);
	counts = HeapTupleSatisfiesVisibility(tuple, snapshot, held->buffer) || is_open_insert(tuple->t_data, snapshot);
	LockBuffer(held->buffer, BUFFER_LOCK_UNLOCK);
	return counts;
}

static bool
is_counted(const Quota *quota, TupleTableSlot *slot)
{
	bool		isnull;
	Datum		tenant;

	if (quota == NULL)
		return true;
	tenant = slot_getattr(slot, S_tenant, &isnull);
	return !isnull && quota_counts(quota, DatumGetTextPP(tenant));
}

/* True if there are more than max schedules; quota NULL: of all tenants. */
static bool
are_more(const Quota *quota, int max)
{
	Relation	rel = shape_open("schedules", AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, SnapshotAny, 0, NULL, SO_NONE);
	int			n = 0;

	while (n <= max && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (is_row(slot, snapshot) && is_counted(quota, slot))
			n++;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	return n > max;
}

/* ---------- limits ---------- */

static void
check_quota(Relation rel, HeapTuple row, text *tenant)
{
	Datum		values[TQ_NATTS];
	bool		nulls[TQ_NATTS];
	Quota		quota = {0};
	int			max;

	heap_deform_tuple(row, RelationGetDescr(rel), values, nulls);
	if (nulls[TQ_max_schedules - 1])
		return;
	quota.tenant = TextDatumGetCString(values[TQ_tenant - 1]);
	max = DatumGetInt32(values[TQ_max_schedules - 1]);
	if (quota_counts(&quota, tenant) && are_more(&quota, max))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("quota of tenant \"%s\" is used up: max_schedules is %d", quota.tenant, max)));
}

static void
check_quotas(text *tenant)
{
	Relation	rel = shape_open("tenant_quotas", AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	row;

	while (HeapTupleIsValid(row = systable_getnext(scan)))
		check_quota(rel, row, tenant);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
}

/*
 * jobq_internal._check_schedule_limits(id, tenant): refuses a new schedule
 * above a limit.  Ids come from a sequence: up to jobq.max_schedules, the id
 * shows that there are not too many rows.
 */
Datum
jobq_check_schedule_limits(PG_FUNCTION_ARGS)
{
	if (PG_GETARG_INT32(0) > jobq_max_schedules && are_more(NULL, jobq_max_schedules))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("this database has %d schedules, as many as jobq.max_schedules allows", jobq_max_schedules)));
	if (!PG_ARGISNULL(1))
		check_quotas(PG_GETARG_TEXT_PP(1));
	PG_RETURN_VOID();
}
