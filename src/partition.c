/*
 * partition.c
 *	  The partition that holds a moment: finding it, opening it past the parent, making it.
 *
 * The parent is locked for the look-up only as any reader locks it; our lock keeps the open partition what it
 * is until the transaction ends, so its bounds are remembered.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "job_types.h"
#include "partition.h"

/*
 * The partition of a table partitioned by one timestamptz range that holds ts, and its bounds; InvalidOid:
 * none.
 */
static Oid
partition_for(const char *parent, TimestampTz ts, TimestampTz *from, TimestampTz *to)
{
	Relation	rel = table_open(jobq_relid(parent), AccessShareLock);
	PartitionDesc desc = RelationGetPartitionDesc(rel, true);
	PartitionKey key = RelationGetPartitionKey(rel);
	PartitionBoundInfo bounds = desc->boundinfo;
	Oid			result = InvalidOid;

	if (desc->nparts > 0)
	{
		Datum		value = TimestampTzGetDatum(ts);
		bool		equal;
		int			bound = partition_range_datum_bsearch(key->partsupfunc, key->partcollation,
														  bounds, 1, &value, &equal);
		int			part = bounds->indexes[bound + 1];

		if (part >= 0)
		{
			result = desc->oids[part];
			*from = *to = ts;	/* open-ended bounds: look again for any other key */
			if (bounds->kind[bound][0] == PARTITION_RANGE_DATUM_VALUE &&
				bounds->kind[bound + 1][0] == PARTITION_RANGE_DATUM_VALUE)
			{
				*from = DatumGetTimestampTz(bounds->datums[bound][0]);
				*to = DatumGetTimestampTz(bounds->datums[bound + 1][0]);
			}
		}
	}
	table_close(rel, AccessShareLock);
	return result;
}

bool
partition_open(Partition *p, const char *parent, TimestampTz ts)
{
	Oid			oid;

	if (partition_holds(p, ts))
		return true;
	oid = partition_for(parent, ts, &p->from, &p->to);
	if (!OidIsValid(oid))
		return false;
	partition_close(p);
	table_open_for_write(&p->table, oid);
	p->open = true;
	return true;
}

void
partition_close(Partition *p)
{
	if (p->open)
		table_close_after_write(&p->table);
	p->open = false;
}

void
partitions_make(TimestampTz need)
{
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(need);
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(jobq_owner(), context | SECURITY_LOCAL_USERID_CHANGE);
	SPI_connect();
	SPI_execute_with_args("SELECT jobq._ensure_history_partition($1),"
						  " jobq._ensure_events_partition(pg_catalog.clock_timestamp())",
						  1, &type, &value, NULL, false, 0);
	SPI_finish();
	SetUserIdAndSecContext(user, context);
	CommandCounterIncrement();
}
