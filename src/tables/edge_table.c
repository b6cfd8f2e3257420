/*
 * edge_table.c
 *	  Reads and writes rows of jobq.dependencies past the executor.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "base/relations.h"
#include "tables/edge_table.h"
#include "tables/queue_find.h"
#include "tables/table_shape.h"

#define AT_ONCE		1000

static const ShapeColumn dependencies_columns[] = {{"parent_id", UUIDOID, FILLED}, {"child_id", UUIDOID, FILLED}};
const Shape dependencies_shape = SHAPE("dependencies", dependencies_columns);

void
edges_open(Table *t)
{
	table_open_for_write(t, jobq_relid("dependencies"));
}

void
edge_insert(Table *t, const pg_uuid_t *parent, const pg_uuid_t *child)
{
	Datum		values[D_NATTS] = {UUIDPGetDatum(parent), UUIDPGetDatum(child)};
	bool		nulls[D_NATTS] = {false, false};

	table_insert_row(t, values, nulls);
}

/* Takes the edge in the slot. */
static void
take_edge(Table *t, Edge *edge)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(t->slot, false, NULL);
	Datum		values[D_NATTS];
	bool		nulls[D_NATTS];

	heap_deform_tuple(tuple, RelationGetDescr(t->rel), values, nulls);
	edge->child = *DatumGetUUIDP(values[D_child_id - 1]);
	edge->tid = t->slot->tts_tid;
}

/* Without the index, which was dropped or is being rebuilt. */
static int
edges_by_heap_scan(Table *t, ScanKey key, Snapshot snapshot, int skip, Edge *edges, int max)
{
	TableScanDesc scan = table_beginscan(t->rel, snapshot, 1, key, SO_NONE);
	int			n = 0;

	while (n < max && table_scan_getnextslot(scan, ForwardScanDirection, t->slot))
	{
		if (skip-- <= 0)
			take_edge(t, &edges[n++]);
	}
	table_endscan(scan);
	return n;
}

static Relation
edges_index(Table *t)
{
	static const AttrNumber columns[] = {D_parent_id};

	return table_index(t, columns, lengthof(columns));
}

int
edges_of(Table *t, const pg_uuid_t *parent, Snapshot snapshot, int skip, Edge *edges, int max)
{
	Relation	index = edges_index(t);
	ScanKeyData key;
	IndexScanDesc scan;
	int			n = 0;

	ScanKeyInit(&key, D_parent_id, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(parent));
	if (index == NULL)
		n = edges_by_heap_scan(t, &key, snapshot, skip, edges, max);
	else
	{
		scan = index_beginscan(t->rel, index, snapshot, NULL, 1, 0, SO_NONE);
		index_rescan(scan, &key, 1, NULL, 0);
		while (n < max && index_getnext_slot(scan, ForwardScanDirection, t->slot))
		{
			if (skip-- <= 0)
				take_edge(t, &edges[n++]);
		}
		index_endscan(scan);
	}
	ExecClearTuple(t->slot);
	return n;
}

void
edge_delete(Table *t, Edge *edge)
{
	TM_FailureData failure;

	(void) table_tuple_delete(t->rel, &edge->tid, GetCurrentCommandId(true), 0, InvalidSnapshot, InvalidSnapshot,
							  false, &failure);
}

void
edges_delete(Table *t, const pg_uuid_t *parent, const pg_uuid_t *child)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Edge	   *edges = palloc(sizeof(Edge) * AT_ONCE);
	int			n;

	for (int read = 0; (n = edges_of(t, parent, snapshot, read, edges, AT_ONCE)) > 0; read += n)
	{
		for (int i = 0; i < n; i++)
		{
			if (memcmp(&edges[i].child, child, UUID_LEN) == 0)
				edge_delete(t, &edges[i]);
		}
	}
	UnregisterSnapshot(snapshot);
	pfree(edges);
}

/* ---------- all parents ---------- */

typedef struct Parents
{
	pg_uuid_t  *ids;
	int			n;
	int			size;
} Parents;

/* Adds the parent of the edge in the slot, unless it is the last one. */
static void
add_parent(Table *t, Parents *parents)
{
	bool		isnull;
	pg_uuid_t  *id = DatumGetUUIDP(slot_getattr(t->slot, D_parent_id, &isnull));

	if (parents->n > 0 && memcmp(&parents->ids[parents->n - 1], id, UUID_LEN) == 0)
		return;
	if (parents->n == parents->size)
	{
		parents->size *= 2;
		parents->ids = repalloc(parents->ids, sizeof(pg_uuid_t) * parents->size);
	}
	parents->ids[parents->n++] = *id;
}

static int
compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, UUID_LEN);
}

/* Without the index: of all edges. */
static void
parents_by_heap_scan(Table *t, ScanKey key, Snapshot snapshot, Parents *parents)
{
	TableScanDesc scan = table_beginscan(t->rel, snapshot, 1, key, SO_NONE);
	int			kept = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, t->slot))
	{
		CHECK_FOR_INTERRUPTS();
		add_parent(t, parents);
	}
	table_endscan(scan);
	qsort(parents->ids, parents->n, sizeof(pg_uuid_t), compare_ids);
	for (int i = 0; i < parents->n; i++)
	{
		if (kept == 0 || compare_ids(&parents->ids[kept - 1], &parents->ids[i]) != 0)
			parents->ids[kept++] = parents->ids[i];
	}
	parents->n = kept;
}

int
edge_parents(Table *t, const pg_uuid_t *behind, Snapshot snapshot, int max, pg_uuid_t **ids, bool *more)
{
	Parents		parents = {.size = 64};
	Relation	index = edges_index(t);
	ScanKeyData key;
	int			n = 0;

	parents.ids = palloc(sizeof(pg_uuid_t) * parents.size);
	ScanKeyInit(&key, D_parent_id, BTGreaterStrategyNumber, F_UUID_GT, UUIDPGetDatum(behind));
	if (index == NULL)
		parents_by_heap_scan(t, &key, snapshot, &parents);
	else
	{
		IndexScanDesc scan = index_beginscan(t->rel, index, snapshot, NULL, 1, 0, SO_NONE);

		index_rescan(scan, &key, 1, NULL, 0);
		while (n < max && index_getnext_slot(scan, ForwardScanDirection, t->slot))
		{
			CHECK_FOR_INTERRUPTS();
			add_parent(t, &parents);
			n++;
		}
		index_endscan(scan);
	}
	ExecClearTuple(t->slot);
	*ids = parents.ids;
	*more = n == max;
	return parents.n;
}
