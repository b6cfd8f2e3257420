/*
 * home.c
 *	  The identity of a database, which its jobs store.
 *
 * A row of jobq.home stores the id of the very transaction that wrote it.
 * pg_upgrade, VACUUM FREEZE and a physical copy keep the row's raw xmin, so
 * the two still agree; a restored dump inserts the row again and they do not.
 * A copy of the database made with TEMPLATE keeps xmin as well, but has
 * another oid.  The database is the jobs' own as long as every row agrees with
 * both.
 *
 * The first process that needs the row writes it, and no other process waits:
 * the id is computed from facts that make this installation unique, so two
 * processes that write it at the same time write the same.  Only adopt()
 * chooses another id.
 */
#include "jobq.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

#include "base/relations.h"
#include "tables/home.h"
#include "tables/queue_table.h"
#include "tables/table_shape.h"

enum
{
	HOME_home_id = 1, HOME_self_xid, HOME_database
};
#define HOME_NATTS HOME_database

static const ShapeColumn home_columns[] = {
	{"home_id", INT4OID, FILLED}, {"self_xid", XID8OID, FILLED}, {"database", OIDOID, FILLED}
};
const Shape home_shape = SHAPE("home", home_columns);

StaticAssertDecl(lengthof(home_columns) == HOME_NATTS, "home's columns");

typedef struct Home
{
	int32		id;				/* 0: no row */
	bool		ours;
} Home;

/*
 * Reads all rows; the newest has the id.  SnapshotSelf shows rows that are
 * committed now, and our own.
 */
static Home
read_home(Relation rel, Snapshot snapshot)
{
	Home		home = {0, true};
	uint64		newest = 0;
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Datum		values[HOME_NATTS];
		bool		nulls[HOME_NATTS];
		uint64		xid;

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		xid = U64FromFullTransactionId(DatumGetFullTransactionId(values[HOME_self_xid - 1]));
		if (HeapTupleHeaderGetRawXmin(tuple->t_data) != (TransactionId) xid ||
			DatumGetObjectId(values[HOME_database - 1]) != MyDatabaseId)
			home.ours = false;
		if (home.id == 0 || xid > newest)
			home.id = DatumGetInt32(values[HOME_home_id - 1]);
		newest = Max(newest, xid);
	}
	table_endscan(scan);
	return home;
}

static int32
compute_home_id(Oid relid)
{
	uint64		system = GetSystemIdentifier();
	uint32		hash = hash_combine((uint32) system, (uint32) (system >> 32));

	hash = hash_combine(hash_combine(hash, murmurhash32(MyDatabaseId)), murmurhash32(relid));
	hash = murmurhash32(hash) & PG_INT32_MAX;
	return hash == 0 ? 1 : (int32) hash;
}

/*
 * Writes the row, in the current (sub)transaction: the row must name its xmin.
 */
static int32
create_home(Oid relid)
{
	Table		table;
	Datum		values[HOME_NATTS];
	bool		nulls[HOME_NATTS] = {false};
	int32		id = compute_home_id(relid);

	values[HOME_home_id - 1] = Int32GetDatum(id);
	values[HOME_self_xid - 1] = FullTransactionIdGetDatum(GetCurrentFullTransactionId());
	values[HOME_database - 1] = ObjectIdGetDatum(MyDatabaseId);
	table_open_for_write(&table, relid);
	table_insert_row(&table, values, nulls);
	table_close_after_write(&table);
	return id;
}

/*
 * Returns the content of jobq.home, cached for the rest of the transaction
 * only: adopt() is plain SQL.  again: it is stored in a row, and adopt() may
 * have changed it before this transaction got the lock of that row's table.
 */
static Home
current_home(Oid relid, bool again)
{
	static Home known;
	static LocalTransactionId known_in = InvalidLocalTransactionId;
	static Oid	known_relid = InvalidOid;
	Relation	rel;

	if (!again && known_in == my_lxid() && known_relid == relid && LocalTransactionIdIsValid(known_in))
		return known;
	rel = table_open(relid, AccessShareLock);
	shape_require(rel);
	known_in = InvalidLocalTransactionId;
	known = read_home(rel, SnapshotSelf);
	if (known.id == 0)
	{
		/*
		 * a row replaced while we read: one moment of time shows the old or
		 * the new
		 */
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

		known = read_home(rel, snapshot);
		UnregisterSnapshot(snapshot);
	}
	table_close(rel, AccessShareLock);
	if (known.id != 0)
	{
		known_in = my_lxid();
		known_relid = relid;
	}
	return known;
}

int32
home_id(bool create)
{
	Oid			relid = jobq_relid("home");
	Home		home;

	if (!OidIsValid(relid))
		return 0;
	home = current_home(relid, true);
	if (home.id == 0 && create)
		return create_home(relid);
	return home.id;
}

bool
home_is_ours(int32 *id)
{
	Oid			relid = jobq_relid("home");
	Home		home = {0, true};

	if (OidIsValid(relid))
		home = current_home(relid, false);
	*id = home.id;
	return home.ours;
}
