/*
 * queue_open.c
 *	  Opens jobq.queue and its indexes for the dispatcher's reads.
 *
 * Locks are requested without waiting: a session that holds the table
 * exclusively stops the reading, not the dispatcher.  An index is found by its
 * columns, since REINDEX CONCURRENTLY gives it a new oid.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/conditional_lock.h"
#include "base/relations.h"
#include "lanes/queue_scan.h"
#include "tables/home.h"
#include "tables/table_shape.h"

static bool
has_columns(Relation index, const AttrNumber *columns, int n)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || form->indnkeyatts != n ||
		(columns[0] != Q_key_hash && RelationGetIndexPredicate(index) != NIL))
		return false;
	for (int i = 0; i < n; i++)
	{
		if (form->indkey.values[i] != columns[i])
			return false;
	}
	return true;
}

/* Returns the index with these columns; all indexes are locked. */
static Relation
find_index(Relation queue, const AttrNumber *columns, int n)
{
	List	   *indexes = RelationGetIndexList(queue);
	ListCell   *lc;
	Relation	found = NULL;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), NoLock);

		if (has_columns(index, columns, n))
		{
			found = index;
			break;
		}
		index_close(index, NoLock);
	}
	list_free(indexes);
	return found;
}

/*
 * Logs that an index is missing: at most once a minute, since the index is
 * looked up ten times a second.
 */
static void
say_missing(void)
{
	static MonoTime said_at = 0;
	MonoTime	now = mono_now();

	if (!mono_exceeds(said_at, now, 60000))
		return;
	said_at = now;
	ereport(LOG,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("jobq: an index of jobq.queue is missing or not valid"),
			 errhint("REINDEX TABLE jobq.queue")));
}

bool
scan_open(QueueScan *scan, TimestampTz now)
{
	static const AttrNumber lane_columns[] = {Q_type_id, Q_priority, Q_sublane, Q_position};
	static const AttrNumber id_columns[] = {Q_id};
	static Oid	last_file = InvalidOid;
	Oid			relid = jobq_relid("queue");

	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	scan->queue = try_table_open(relid, NoLock);
	if (scan->queue == NULL)
		return false;
	/* a table that does not fit is found in the next turn (tables_trouble) */
	if (shape_trouble(scan->queue)[0] != '\0' || !lock_indexes_if_free(scan->queue))
	{
		table_close(scan->queue, AccessShareLock);
		return false;
	}
	scan->lane_index = find_index(scan->queue, lane_columns, lengthof(lane_columns));
	scan->id_index = find_index(scan->queue, id_columns, lengthof(id_columns));
	if (scan->lane_index == NULL || scan->id_index == NULL)
	{
		say_missing();
		if (scan->lane_index)
			index_close(scan->lane_index, NoLock);
		if (scan->id_index)
			index_close(scan->id_index, NoLock);
		table_close(scan->queue, AccessShareLock);
		return false;
	}
	scan->key_lane_index = scan->key_order_index = NULL;
	(void) home_is_ours(&scan->home);
	scan->rewritten = OidIsValid(last_file) && last_file != scan->queue->rd_rel->relfilenode;
	last_file = scan->queue->rd_rel->relfilenode;
	scan->now = now;
	scan->snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan->slot = table_slot_create(scan->queue, NULL);
	scan->desc = index_beginscan(scan->queue, scan->lane_index, scan->snapshot, NULL, 5, 0, SO_NONE);
	return true;
}

void
scan_close(QueueScan *scan)
{
	index_endscan(scan->desc);
	ExecDropSingleTupleTableSlot(scan->slot);
	UnregisterSnapshot(scan->snapshot);
	if (scan->key_lane_index)
		index_close(scan->key_lane_index, NoLock);
	if (scan->key_order_index)
		index_close(scan->key_order_index, NoLock);
	index_close(scan->id_index, NoLock);
	index_close(scan->lane_index, NoLock);
	table_close(scan->queue, AccessShareLock);
}

Relation
scan_key_lane_index(QueueScan *scan)
{
	static const AttrNumber columns[] = {Q_key_hash, Q_type_id, Q_priority, Q_sublane, Q_position};

	if (scan->key_lane_index == NULL &&
		(scan->key_lane_index = find_index(scan->queue, columns, lengthof(columns))) == NULL)
		say_missing();
	return scan->key_lane_index;
}

Relation
scan_key_order_index(QueueScan *scan)
{
	static const AttrNumber columns[] = {Q_key_hash, Q_key_since};

	if (scan->key_order_index == NULL &&
		(scan->key_order_index = find_index(scan->queue, columns, lengthof(columns))) == NULL)
		say_missing();
	return scan->key_order_index;
}
