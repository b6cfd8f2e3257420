/*
 * fake_quotas.c
 *	  Quotas of tenants and rows of the queue: see fake_quotas.h.
 */
#include "fake_quotas.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "enqueue/quota.h"

const char *const tenants[NTENANTS] = {"a", "a/x", "a/x/1", "a/y", "b", "c"};
int			quotas[NTENANTS];
bool		tables_locked;

/* ---------- the table ---------- */

static RelationData quota_table;
static int	quota_read;
static HeapTupleData quota_tuple;

Oid
jobq_relid(const char *name)
{
	return 1;
}

bool
lock_rows_if_free(Oid relid)
{
	return !tables_locked;
}

static TableScanDesc
begin_scan(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key, ParallelTableScanDesc pscan, uint32 flags)
{
	static TableScanDescData scan;

	scan.rs_rd = rel;
	quota_read = 0;
	return &scan;
}

static void
end_scan(TableScanDesc scan)
{
}

Relation
table_open(Oid relid, LOCKMODE mode)
{
	static TableAmRoutine am;

	am.scan_begin = begin_scan;
	am.scan_end = end_scan;
	quota_table.rd_tableam = &am;
	return &quota_table;
}

void
table_close(Relation rel, LOCKMODE mode)
{
}

Snapshot
GetLatestSnapshot(void)
{
	return NULL;
}

Snapshot
RegisterSnapshot(Snapshot snapshot)
{
	return NULL;
}

void
UnregisterSnapshot(Snapshot snapshot)
{
}

HeapTuple
heap_getnext(TableScanDesc scan, ScanDirection direction)
{
	return quota_read++ < NTENANTS ? &quota_tuple : NULL;
}

void
heap_deform_tuple(HeapTuple tuple, TupleDesc desc, Datum *values, bool *nulls)
{
	memset(nulls, 0, sizeof(bool) * TQ_NATTS);
	values[TQ_tenant - 1] = CStringGetDatum(tenants[quota_read - 1]);
	values[TQ_max_running - 1] = Int32GetDatum(quotas[quota_read - 1]);
	nulls[TQ_max_running - 1] = quotas[quota_read - 1] < 0;
}

char *
text_to_cstring(const text *t)
{
	return pstrdup((const char *) t);
}

/* ---------- a row of the queue in a slot ---------- */

static Datum slot_values[Q_NATTS];
static bool slot_nulls[Q_NATTS];
static TupleTableSlot slot = {.tts_nvalid = Q_NATTS, .tts_values = slot_values, .tts_isnull = slot_nulls};

TupleTableSlot *
slot_of(int type_id, int tenant)
{
	slot_values[Q_type_id - 1] = Int32GetDatum(type_id);
	slot_nulls[Q_tenant - 1] = tenant < 0;
	if (tenant >= 0)
		slot_values[Q_tenant - 1] = CStringGetDatum(tenants[tenant]);
	return &slot;
}

void
slot_getsomeattrs_int(TupleTableSlot *s, int attnum)
{
	abort();
}

HeapTuple
ExecFetchSlotHeapTuple(TupleTableSlot *s, bool materialize, bool *should_free)
{
	return &quota_tuple;
}

bool
heap_attisnull(HeapTuple tuple, int att, TupleDesc desc)
{
	return slot_nulls[att - 1];
}

struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	return datum;
}

void
text_to_cstring_buffer(const text *t, char *buffer, size_t size)
{
	snprintf(buffer, size, "%s", (const char *) t);
}
