/*
 * partition.c
 *	  The partition that holds a moment: finding it, opening it past the parent, making it.
 *
 * The parent is locked for the look-up only as any reader locks it.  The lock
 * of an open partition keeps its bounds until the transaction ends, so they
 * are cached.
 *
 * A client that needs a partition has it made by a process with a transaction
 * of its own, and waits.  In the client's transaction the parents would stay
 * locked against the maintenance process for as long as it is open.
 */
#include "jobq.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "base/relations.h"
#include "tables/partition.h"

#define AGAIN_MS		100
#define WAIT_LIMIT_MS	30000
#define SLOT_LIMIT_MS	2000	/* a free worker slot may come; health() names the lack of one */

PG_FUNCTION_INFO_V1(jobq_want_partitions);
PG_FUNCTION_INFO_V1(jobq_have_partitions);

static PartitionProcess start_process = NULL;

/*
 * Returns the partition of a table partitioned by one timestamptz range that
 * holds ts, and its bounds; InvalidOid: none.
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

bool
partition_exists(const char *parent, TimestampTz ts)
{
	TimestampTz from;
	TimestampTz to;

	return OidIsValid(partition_for(parent, ts, &from, &to));
}

/* ---------- making them ---------- */

static bool
all_exist(const char *parent, TimestampTz need)
{
	TimestampTz now = GetCurrentTimestamp();

	AcceptInvalidationMessages();
	return (need == 0 || partition_exists(parent, need)) && partition_exists("events", now) &&
		partition_exists("alerts", now);
}

/*
 * True if no other process can: it does not see the table, or would wait for a
 * lock of this transaction.
 */
static bool
only_we_can(const char *parent)
{
	Relation	rel = table_open(jobq_relid(parent), AccessShareLock);
	bool		result = rel->rd_createSubid != InvalidSubTransactionId ||
		CheckRelationLockedByMe(rel, ShareUpdateExclusiveLock, true);

	table_close(rel, AccessShareLock);
	return result;
}

static void
make_here(TimestampTz need)
{
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(jobq_owner(), context | SECURITY_LOCAL_USERID_CHANGE);
	partitions_ensure(need);
	SetUserIdAndSecContext(user, context);
	CommandCounterIncrement();
}

void
partitions_ensure(TimestampTz need)
{
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(need);
	char		nulls[1] = {need == 0 ? 'n' : ' '};

	SPI_connect();
	SPI_execute_with_args("SELECT CASE WHEN $1 IS NOT NULL"
						  " THEN jobq_internal._ensure_history_partition($1) END,"
						  " jobq_internal._ensure_events_partition(pg_catalog.clock_timestamp())",
						  1, &type, &value, nulls, false, 0);
	SPI_finish();
}

void
partitions_set_process(PartitionProcess start)
{
	start_process = start;
}

static bool
make_for(const char *parent, TimestampTz need)
{
	MonoTime	start = mono_now();

	if (all_exist(parent, need))
		return true;
	if (only_we_can(parent) || only_we_can("events") || only_we_can("alerts"))
	{
		make_here(need);
		return true;
	}
	for (;;)
	{
		bool		started = start_process(need);

		if (!started && JobqShmem == NULL)
			make_here(need);	/* jobq is not preloaded, so there is no maintenance process to block */
		if (all_exist(parent, need))
			return true;
		if (mono_exceeds(start, mono_now(), started ? WAIT_LIMIT_MS : SLOT_LIMIT_MS))
			return false;
		/* the table is in use, or there is no worker slot */
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, AGAIN_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

bool
partitions_make(TimestampTz need)
{
	return make_for("history", need);
}

bool
partitions_make_artifacts(TimestampTz need)
{
	return make_for("artifacts", need);
}

/*
 * jobq_internal._want_partitions(keep_completed): asks for the partitions of a
 * job that ends now; without them its end waits.
 */
Datum
jobq_want_partitions(PG_FUNCTION_ARGS)
{
	Interval   *keep = PG_GETARG_INTERVAL_P(0);
	TimestampTz need = 0;

	if (interval_to_us(keep) > 0)
		need = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
													   TimestampTzGetDatum(GetCurrentTimestamp()),
													   IntervalPGetDatum(keep)));
	(void) partitions_make(need);
	PG_RETURN_VOID();
}

/*
 * jobq_internal._have_partitions(expires_at): makes the partitions for rows that
 * expire then.
 */
Datum
jobq_have_partitions(PG_FUNCTION_ARGS)
{
	TimestampTz need = PG_GETARG_TIMESTAMPTZ(0);

	if (MyBackendType == B_BG_WORKER)
		partitions_ensure(need);
	else
	{
		(void) partitions_make(need);
		(void) partitions_make_artifacts(need);
	}
	PG_RETURN_VOID();
}
