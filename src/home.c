/*
 * home.c
 *	  Who this database is to its jobs, the oids of the statuses, and new ids.
 *
 * A row of jobq.home stores the id of the very transaction that wrote it.  pg_upgrade, VACUUM FREEZE and
 * a physical copy keep the row's raw xmin, so the two still agree; a restored dump writes the row anew
 * and they do not.  The database is itself as long as every row agrees.
 *
 * The row is written by whoever needs it first, and nobody waits for him: the id is computed from what
 * makes this installation unique, so two who write it at the same time write the same.  Only adopt()
 * chooses another.
 */
#include "jobq.h"

#include <time.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/xid8.h"

#include "job_types.h"
#include "queue.h"

enum
{
	HOME_home_id = 1, HOME_self_xid
};
#define HOME_NATTS HOME_self_xid

/* --- home --- */

typedef struct Home
{
	int32		id;				/* 0: no row */
	bool		ours;
} Home;

/* Reads all rows; the newest names us.  By SnapshotSelf: what is committed now, and our own. */
static Home
read_home(Relation rel, Snapshot snapshot)
{
	Home		home = {0, true};
	uint64		newest = 0;
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Datum		values[HOME_NATTS];
		bool		nulls[HOME_NATTS];
		uint64		xid;

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		xid = U64FromFullTransactionId(DatumGetFullTransactionId(values[HOME_self_xid - 1]));
		if (HeapTupleHeaderGetRawXmin(tuple->t_data) != (TransactionId) xid)
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

/* Writes the row, in the current (sub)transaction: its xmin is what the row must say. */
static int32
create_home(Oid relid)
{
	Table		table;
	Datum		values[HOME_NATTS];
	bool		nulls[HOME_NATTS] = {false, false};
	int32		id = compute_home_id(relid);

	values[HOME_home_id - 1] = Int32GetDatum(id);
	values[HOME_self_xid - 1] = FullTransactionIdGetDatum(GetCurrentFullTransactionId());
	table_open_for_write(&table, relid);
	table_insert_row(&table, values, nulls);
	table_close_after_write(&table);
	return id;
}

/* What jobq.home says.  Remembered for the rest of the transaction only: adopt() is plain SQL. */
static Home
current_home(Oid relid)
{
	static Home known;
	static LocalTransactionId known_in = InvalidLocalTransactionId;
	static Oid	known_relid = InvalidOid;
	Relation	rel;

	if (known_in == my_lxid() && known_relid == relid && LocalTransactionIdIsValid(known_in))
		return known;
	rel = table_open(relid, AccessShareLock);
	known_in = InvalidLocalTransactionId;
	known = read_home(rel, SnapshotSelf);
	if (known.id == 0)
	{
		/* a row replaced while we read: one moment of time shows the old or the new */
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
	home = current_home(relid);
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
		home = current_home(relid);
	*id = home.id;
	return home.ours;
}

/* --- statuses --- */

static const char *const status_labels[JOB_NSTATUS] = {
	"pending", "blocked", "retry", "running", "completed", "skipped", "cancelled", "error"
};
static Oid	status_oids[JOB_NSTATUS];
static bool status_known = false;
static uint32 status_hash = 0;

static void
status_type_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	if (hashvalue == 0 || hashvalue == status_hash)
		status_known = false;
}

static void
load_statuses(void)
{
	static bool registered = false;
	Oid			schema = get_namespace_oid("jobq", false);
	Oid			type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
									   CStringGetDatum("job_status"), ObjectIdGetDatum(schema));
	int			i;

	if (!registered)
		CacheRegisterSyscacheCallback(TYPEOID, status_type_changed, (Datum) 0);
	registered = true;
	for (i = 0; i < JOB_NSTATUS; i++)
	{
		status_oids[i] = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid,
										 ObjectIdGetDatum(type), CStringGetDatum(status_labels[i]));
		if (!OidIsValid(status_oids[i]))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("type jobq.job_status has no label \"%s\"", status_labels[i])));
	}
	status_hash = GetSysCacheHashValue1(TYPEOID, ObjectIdGetDatum(type));
	status_known = true;
}

Oid
status_oid(JobStatus status)
{
	if (!status_known)
		load_statuses();
	return status_oids[status];
}

JobStatus
status_from_oid(Oid oid)
{
	int			i;

	if (!status_known)
		load_statuses();
	for (i = 0; i < JOB_NSTATUS; i++)
		if (status_oids[i] == oid)
			return (JobStatus) i;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%u is no label of type jobq.job_status", oid)));
}

/* --- ids --- */

/* Eight random bytes, from a buffer that is never shared over a fork. */
static void
random_bytes(unsigned char *to)
{
	static unsigned char buffer[512];
	static int	used = sizeof(buffer);
	static int	pid = 0;

	if (pid != MyProcPid || used + 8 > (int) sizeof(buffer))
	{
		if (!pg_strong_random(buffer, sizeof(buffer)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		pid = MyProcPid;
		used = 0;
	}
	memcpy(to, buffer + used, 8);
	used += 8;
}

void
make_job_id(pg_uuid_t *id)
{
	static uint64 last = 0;		/* milliseconds << 12 | 4096ths of one */
	struct timespec now;
	uint64		stamp;
	int			i;

	clock_gettime(CLOCK_REALTIME, &now);
	stamp = ((uint64) now.tv_sec * 1000 + now.tv_nsec / 1000000) << 12 |
		(uint64) (now.tv_nsec % 1000000) * 4096 / 1000000;
	if (stamp <= last)
		stamp = last + 1;		/* the clock stood still or went back */
	last = stamp;

	for (i = 0; i < 6; i++)
		id->data[i] = (unsigned char) (stamp >> (52 - 8 * i));
	id->data[6] = (unsigned char) (0x70 | ((stamp >> 8) & 0x0f));
	id->data[7] = (unsigned char) stamp;
	random_bytes(id->data + 8);
	id->data[8] = (id->data[8] & 0x3f) | 0x80;
}
