/*
 * quota_rows.c
 *	  The rows of jobq.quota_jobs, one for each job and quota that counts it:
 *	  written, counted, removed.
 *
 * quota.c calls these.  The end of a job leaves its row, which the next count
 * deletes.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "enqueue/quota.h"
#include "tables/queue_find.h"
#include "tables/table_shape.h"

PG_FUNCTION_INFO_V1(jobq_count_queue);
PG_FUNCTION_INFO_V1(jobq_quota_set);

/* attribute numbers of jobq.quota_jobs: src/sql/13_quotas.sql */
enum
{
	QJ_tenant = 1, QJ_job_id, QJ_bytes
};
#define QJ_NATTS QJ_bytes

static const ShapeColumn quota_jobs_columns[] = {
	{"tenant", TEXTOID, FILLED}, {"job_id", UUIDOID, FILLED}, {"bytes", INT8OID, FILLED}
};
const Shape quota_jobs_shape = SHAPE("quota_jobs", quota_jobs_columns);

StaticAssertDecl(lengthof(quota_jobs_columns) == QJ_NATTS, "quota_jobs' columns");

/* --- counting --- */

/*
 * True if the job is live, for this transaction or for another open one.  A
 * dirty scan misses a row whose update commits between the visits of its two
 * versions; a snapshot does not.
 */
static bool
is_live(Table *queue, const pg_uuid_t *id, MemoryContext per_row)
{
	MemoryContext old = MemoryContextSwitchTo(per_row);
	SnapshotData dirty;
	Job			job;
	bool		found;

	InitDirtySnapshot(dirty);
	found = queue_find_by_id(queue, id, &dirty, &job);
	if (!found)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		found = queue_find_by_id(queue, id, snapshot, &job);
		UnregisterSnapshot(snapshot);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(per_row);
	return found;
}

/* Scans the rows of a quota, or only that of one job. */
static IndexScanDesc
begin_scan(Table *rows, const char *tenant, const pg_uuid_t *id, Snapshot snapshot)
{
	static const AttrNumber columns[] = {QJ_tenant, QJ_job_id};
	Relation	index = table_index(rows, columns, lengthof(columns));
	ScanKeyData keys[2];
	int			nkeys = id ? 2 : 1;
	IndexScanDesc scan;

	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the index on jobq.quota_jobs (tenant, job_id) is missing or invalid"),
				 errhint("Run REINDEX TABLE jobq.quota_jobs.")));
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid, DEFAULT_COLLATION_OID,
						   F_TEXTEQ, CStringGetTextDatum(tenant));
	if (id)
		ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	scan = index_beginscan(rows->rel, index, snapshot, NULL, nkeys, 0, SO_NONE);
	index_rescan(scan, keys, nkeys, NULL, 0);
	return scan;
}

/* Deletes a row, unless another transaction deletes it, too: then it does not wait. */
static void
delete_row(Table *rows)
{
	ItemPointerData tid = rows->slot->tts_tid;
	TM_FailureData failure;

	(void) table_tuple_delete(rows->rel, &tid, GetCurrentCommandId(true), 0, InvalidSnapshot, InvalidSnapshot,
							  false, &failure);
}

/*
 * Returns the number of rows read.  Deletes those of jobs that are gone,
 * unless another transaction holds them.
 */
int64
quota_count_rows(Table *rows, Table *queue, const char *tenant, int64 *live, int64 *bytes)
{
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "jobq quota", ALLOCSET_DEFAULT_SIZES);
	SnapshotData dirty;
	IndexScanDesc scan;
	int64		read = 0;
	pg_uuid_t	last = {{0}};	/* that was live */
	int64		last_size = 0;

	InitDirtySnapshot(dirty);
	scan = begin_scan(rows, tenant, NULL, &dirty);
	*live = *bytes = 0;
	while (index_getnext_slot(scan, ForwardScanDirection, rows->slot))
	{
		bool		isnull;
		bool		is_free = !TransactionIdIsValid(dirty.xmin) && !TransactionIdIsValid(dirty.xmax);
		pg_uuid_t	id = *DatumGetUUIDP(slot_getattr(rows->slot, QJ_job_id, &isnull));
		int64		size = DatumGetInt64(slot_getattr(rows->slot, QJ_bytes, &isnull));

		CHECK_FOR_INTERRUPTS();
		read++;
		if (memcmp(&id, &last, UUID_LEN) == 0)
		{
			/* an open transaction replaces the payload: the larger one counts */
			*bytes += Max(size - last_size, 0);
			last_size = Max(size, last_size);
		}
		else if (is_live(queue, &id, per_row))
		{
			*live += 1;
			*bytes += size;
			last = id;
			last_size = size;
		}
		else if (is_free)
			delete_row(rows);
	}
	MemoryContextDelete(per_row);
	index_endscan(scan);
	ExecClearTuple(rows->slot);
	return read;
}

/* --- writing --- */

static void
fill_row(Datum *values, const char *tenant, const pg_uuid_t *id, int64 bytes)
{
	values[QJ_tenant - 1] = CStringGetTextDatum(tenant);
	values[QJ_job_id - 1] = UUIDPGetDatum(id);
	values[QJ_bytes - 1] = Int64GetDatum(bytes);
}

/* Inserts a job's row, unless it has one. */
void
quota_insert_row(Table *rows, const char *tenant, const pg_uuid_t *id, int64 bytes, bool is_new)
{
	Datum		values[QJ_NATTS];
	bool		nulls[QJ_NATTS] = {false, false, false};

	fill_row(values, tenant, id, bytes);
	if (is_new)
		table_insert_row(rows, values, nulls);
	else
		(void) table_insert_unless_conflict(rows, values, nulls);
}

/* Updates the row of a job that this transaction holds, or inserts a missing one. */
void
quota_update_row(Table *rows, const char *tenant, const pg_uuid_t *id, int64 bytes)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = begin_scan(rows, tenant, id, snapshot);
	bool		found = index_getnext_slot(scan, ForwardScanDirection, rows->slot);
	ItemPointerData tid = rows->slot->tts_tid;
	Datum		values[QJ_NATTS];
	bool		nulls[QJ_NATTS] = {false, false, false};

	index_endscan(scan);
	ExecClearTuple(rows->slot);
	UnregisterSnapshot(snapshot);
	fill_row(values, tenant, id, bytes);
	if (found)
		table_update_row(rows, &tid, values, nulls);
	else
		quota_insert_row(rows, tenant, id, bytes, false);
}

/* --- a quota is set --- */

static void
count_if_of_tenant(const Quota *quota, TupleTableSlot *slot, Table *rows)
{
	uint64		key = quota_key(quota->tenant);
	bool		isnull;
	bool		no_payload;
	Datum		tenant = slot_getattr(slot, Q_tenant, &isnull);
	Datum		metadata;
	int64		bytes;

	if (isnull || !quota_counts(quota, DatumGetTextPP(tenant)))
		return;
	metadata = slot_getattr(slot, Q_metadata, &isnull);
	bytes = quota_bytes(DatumGetJsonbP(slot_getattr(slot, Q_payload, &no_payload)), isnull ? NULL : DatumGetJsonbP(metadata));
	quota_lock(key);
	quota_insert_row(rows, quota->tenant, DatumGetUUIDP(slot_getattr(slot, Q_id, &isnull)), bytes, false);
	quota_unlock(key);
}

/*
 * Writes rows for the jobs of a quota that have none, because it is new or they
 * came from a dump.  Jobs of open transactions count, too: their sessions knew
 * of no quota.  False: too many tenants have one.
 */
static bool
count_queue(char *tenant)
{
	Quota		quota = {.tenant = tenant};
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "jobq quota", ALLOCSET_DEFAULT_SIZES);
	Relation	queue = shape_open("queue", AccessShareLock);
	TupleTableSlot *slot = table_slot_create(queue, NULL);
	SnapshotData dirty;
	TableScanDesc scan;
	Table		rows;

	InitDirtySnapshot(dirty);
	scan = table_beginscan(queue, &dirty, 0, NULL, SO_NONE);
	table_open_for_write(&rows, jobq_relid("quota_jobs"));
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(per_row);

		CHECK_FOR_INTERRUPTS();
		count_if_of_tenant(&quota, slot, &rows);
		MemoryContextSwitchTo(old);
		MemoryContextReset(per_row);
	}
	table_close_after_write(&rows);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(queue, AccessShareLock);
	return quota_forget(tenant, false);
}

/* jobq_internal._count_queue(tenant) */
Datum
jobq_count_queue(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(count_queue(text_to_cstring(PG_GETARG_TEXT_PP(0))) || JobqShmem == NULL);
}

/* AFTER INSERT on jobq.tenant_quotas, deferred */
Datum
jobq_quota_set(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Datum		values[TQ_NATTS];
	bool		nulls[TQ_NATTS];

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("jobq_quota_set is a trigger function")));
	shape_require(trigger->tg_relation);
	heap_deform_tuple(trigger->tg_trigtuple, RelationGetDescr(trigger->tg_relation), values, nulls);
	(void) count_queue(TextDatumGetCString(values[TQ_tenant - 1]));
	return PointerGetDatum(NULL);
}
