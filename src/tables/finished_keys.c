/*
 * finished_keys.c
 *	  Unique keys of finished jobs: unique_for.
 *
 * Such a job is in any partition of history, or a dead letter.  Most types
 * never use unique_for, so an enqueue opens the partitions only if the table
 * jobq.unique_for_types names the type.  The transaction that enqueues a job
 * with unique_for writes the row, so it is visible before the job can end.
 * No unique index: sessions that write the first row of a type at the same
 * moment do not wait for each other, and several rows do no harm.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "partitioning/partdesc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "tables/finished_keys.h"
#include "tables/table_shape.h"

static const ShapeColumn unique_for_types_columns[] = {{"type_id", INT4OID, FILLED}};
const Shape unique_for_types_shape = SHAPE("unique_for_types", unique_for_types_columns);

/* True if jobs of the type may have unique_for. */
static bool
is_noted(int32 type_id, Snapshot snapshot)
{
	Oid			index = jobq_relid("unique_for_types_type_id");
	Relation	rel = shape_open("unique_for_types", AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(type_id));
	scan = systable_beginscan(rel, index, OidIsValid(index) && get_index_isvalid(index), snapshot, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

static bool
finished_counts(TupleTableSlot *slot, const UniqueKey *key, TimestampTz now)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, H_unique_until, &isnull);

	if (isnull || DatumGetTimestampTz(value) <= now)
		return false;
	value = slot_getattr(slot, H_tenant, &isnull);
	if (isnull || key->tenant == NULL)
		return isnull && key->tenant == NULL;
	return DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID, value,
												PointerGetDatum(key->tenant)));
}

/* True if the job in the slot is newer: ids rise. */
static bool
is_newer(TupleTableSlot *slot, const pg_uuid_t *than)
{
	bool		isnull;

	return memcmp(DatumGetUUIDP(slot_getattr(slot, H_id, &isnull)), than, UUID_LEN) > 0;
}

/* Sets *id when the key has a job here that is newer; true if so. */
static bool
scan_finished(Relation rel, Relation index, Snapshot snapshot, const UniqueKey *key, pg_uuid_t *id)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TimestampTz now = GetCurrentTimestamp();
	bool		found = false;
	ScanKeyData keys[2];
	IndexScanDesc scan;
	bool		isnull;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(key->type_id));
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid,
						   DEFAULT_COLLATION_OID, F_TEXTEQ, PointerGetDatum(key->key));
	scan = index_beginscan(rel, index, snapshot, NULL, 2, 0, SO_NONE);
	index_rescan(scan, keys, 2, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		if (!finished_counts(slot, key, now) || !is_newer(slot, id))
			continue;
		*id = *DatumGetUUIDP(slot_getattr(slot, H_id, &isnull));
		found = true;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

static bool
find_finished_in(Oid relid, Snapshot snapshot, const UniqueKey *key, pg_uuid_t *id)
{
	Relation	rel = table_open(relid, AccessShareLock);
	List	   *indexes = RelationGetIndexList(rel);
	bool		found = false;
	ListCell   *lc;

	shape_require(rel);
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;
		bool		usable = form->indisvalid && form->indnkeyatts == 2 &&
			form->indkey.values[0] == H_type_id && form->indkey.values[1] == H_unique_key;

		if (usable)
			found = scan_finished(rel, index, snapshot, key, id);
		index_close(index, AccessShareLock);
		if (usable)
			break;
	}
	table_close(rel, AccessShareLock);
	return found;
}

bool
finished_key_look(const UniqueKey *key, pg_uuid_t *id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		found = false;

	memset(id, 0, sizeof(*id));
	if (is_noted(key->type_id, snapshot))
	{
		Relation	history = table_open(jobq_relid("history"), AccessShareLock);
		PartitionDesc parts = RelationGetPartitionDesc(history, true);

		found = find_finished_in(jobq_relid("dead_letters"), snapshot, key, id);
		for (int i = 0; i < parts->nparts; i++)
			found |= find_finished_in(parts->oids[i], snapshot, key, id);
		table_close(history, AccessShareLock);
	}
	UnregisterSnapshot(snapshot);
	return found;
}


void
finished_key_note_type(int32 type_id)
{
	Snapshot	snapshot;
	Datum		values[] = {Int32GetDatum(type_id)};
	bool		nulls[] = {false};
	Table		t;
	bool		noted;

	CommandCounterIncrement();	/* the row may be our own */
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	noted = is_noted(type_id, snapshot);
	UnregisterSnapshot(snapshot);
	if (noted)
		return;
	table_open_for_write(&t, jobq_relid("unique_for_types"));
	table_insert_row(&t, values, nulls);
	table_close_after_write(&t);
}
