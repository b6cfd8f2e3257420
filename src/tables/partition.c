/*
 * partition.c
 *	  The partition that holds a moment: finding it, opening it past the parent.
 *
 * Maintenance makes partitions ahead of need; the default one takes the rows
 * that no other holds (src/sql/20_partitions.sql).
 *
 * The parent is locked for the look-up only as any reader locks it.  The lock
 * of an open partition keeps its bounds until the transaction ends, so they
 * are cached.  For the default partition they are those of the gap around the
 * moment.  A partition that another session has attached before that lock may
 * hold the moment now, or a part of the gap, so the look-up is repeated.
 */
#include "jobq.h"

#include "access/table.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "tables/partition.h"

typedef struct Place
{
	Oid			oid;
	bool		is_default;
	TimestampTz from;
	TimestampTz to;
} Place;

/* Returns a bound of a table partitioned by one timestamptz range. */
static TimestampTz
bound_at(PartitionBoundInfo bounds, int i)
{
	if (i < 0)
		return DT_NOBEGIN;
	if (i >= bounds->ndatums || bounds->kind[i][0] == PARTITION_RANGE_DATUM_MAXVALUE)
		return DT_NOEND;
	return bounds->kind[i][0] == PARTITION_RANGE_DATUM_MINVALUE ? DT_NOBEGIN :
		DatumGetTimestampTz(bounds->datums[i][0]);
}

/* Finds the partition that holds ts, and the times that it or the gap holds. */
static Place
find_place(const char *parent, TimestampTz ts)
{
	Relation	rel = table_open(jobq_relid(parent), AccessShareLock);
	PartitionDesc desc = RelationGetPartitionDesc(rel, true);
	PartitionKey key = RelationGetPartitionKey(rel);
	PartitionBoundInfo bounds = desc->boundinfo;
	Place		place = {0};

	if (desc->nparts > 0)
	{
		Datum		value = TimestampTzGetDatum(ts);
		bool		equal;
		int			bound = partition_range_datum_bsearch(key->partsupfunc, key->partcollation,
														  bounds, 1, &value, &equal);
		int			part = bounds->indexes[bound + 1];

		place.is_default = part < 0;
		if (place.is_default)
			part = bounds->default_index;
		if (part >= 0)
			place.oid = desc->oids[part];
		place.from = bound_at(bounds, bound);
		place.to = bound_at(bounds, bound + 1);
	}
	table_close(rel, AccessShareLock);
	if (!OidIsValid(place.oid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.%s has no partition for %s", parent, timestamptz_to_str(ts)),
				 errhint("Attach jobq.%s_default as its default partition.", parent)));
	return place;
}

void
partition_open(Partition *p, const char *parent, TimestampTz ts)
{
	Place		place;

	if (partition_holds(p, ts))
		return;
	partition_close(p);
	place = find_place(parent, ts);
	for (;;)
	{
		Oid			open = place.oid;

		table_open_for_write(&p->table, open);
		p->open = true;
		if (!place.is_default)
			break;
		place = find_place(parent, ts);
		if (place.oid == open)
			break;
		partition_close(p);
	}
	p->from = place.from;
	p->to = place.to;
}

void
partition_close(Partition *p)
{
	if (p->open)
		table_close_after_write(&p->table);
	p->open = false;
}
