/*
 * queue_triggers.c
 *	  Publishes writes of plain SQL, COPY and logical apply to jobq's tables, as
 *	  jobq's own functions publish theirs.
 *
 * All are ENABLE ALWAYS, so that session_replication_role does not silence
 * them.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/concurrency_key_hash.h"
#include "base/relations.h"
#include "shared/publish_jobs.h"
#include "shared/publish_schedules.h"
#include "tables/queue_table.h"
#include "tables/row_map.h"

PG_FUNCTION_INFO_V1(jobq_queue_trigger);
PG_FUNCTION_INFO_V1(jobq_types_trigger);
PG_FUNCTION_INFO_V1(jobq_signals_trigger);
PG_FUNCTION_INFO_V1(jobq_schedules_trigger);

static uint64
hash_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		key = heap_getattr(tuple, Q_concurrency_key, desc, &isnull);
	Datum		tenant;

	if (isnull)
		return 0;
	tenant = heap_getattr(tuple, Q_tenant, desc, &isnull);
	return key_hash(isnull ? NULL : DatumGetTextPP(tenant), DatumGetTextPP(key));
}

static void
publish_tuple(HeapTuple tuple, TupleDesc desc, bool removed)
{
	bool		isnull;
	uint64		hash = hash_of(tuple, desc);

	if (hash != 0)
		publish_concurrency_key(hash, DatumGetTimestampTz(heap_getattr(tuple, Q_created_at, desc, &isnull)),
								removed);

	publish_key(DatumGetInt32(heap_getattr(tuple, Q_type_id, desc, &isnull)),
				DatumGetInt16(heap_getattr(tuple, Q_priority, desc, &isnull)),
				DatumGetInt16(heap_getattr(tuple, Q_sublane, desc, &isnull)),
				DatumGetTimestampTz(heap_getattr(tuple, Q_position, desc, &isnull)));
}

/*
 * Publishes the end of a tick's job.  The column is newer than the first
 * release, so that its place differs between databases.
 */
static void
publish_end(const RowMap *map, HeapTuple tuple, TupleDesc desc)
{
	AttrNumber	att = map->atts[Q_schedule_id - 1];
	bool		isnull = true;
	Datum		schedule = att == 0 ? (Datum) 0 : heap_getattr(tuple, att, desc, &isnull);

	if (!isnull)
		publish_scheduled_end(DatumGetInt32(schedule), DatumGetUUIDP(heap_getattr(tuple, Q_id, desc, &isnull)),
							  JOB_CANCELLED, GetCurrentTimestamp());
}

static int32
rev_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	return DatumGetInt32(heap_getattr(tuple, Q_rev, desc, &isnull));
}

static HeapTuple
set_rev(HeapTuple tuple, TupleDesc desc, int32 rev)
{
	int			att = Q_rev;
	bool		isnull = false;
	Datum		value = Int32GetDatum(rev);

	return heap_modify_tuple_by_cols(tuple, desc, 1, &att, &value, &isnull);
}

static HeapTuple
set_hash(HeapTuple tuple, TupleDesc desc)
{
	int			att = Q_key_hash;
	uint64		hash = hash_of(tuple, desc);
	bool		isnull = hash == 0;
	Datum		value = UInt64GetDatum(hash);

	if (isnull && heap_attisnull(tuple, Q_key_hash, desc))
		return tuple;
	return heap_modify_tuple_by_cols(tuple, desc, 1, &att, &value, &isnull);
}

static void
check_trigger(FunctionCallInfo fcinfo, const char *name)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function %s must be called as a trigger", name)));
}

/*
 * BEFORE ROW on jobq.queue, ENABLE ALWAYS: publishes rows written by plain
 * SQL, COPY and logical apply, and bumps rev, which fences every hand-out made
 * from the older version.  It also writes the hash of the concurrency key.
 */
Datum
jobq_queue_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	const RowMap *map;
	TupleDesc	desc;
	HeapTuple	tuple;

	check_trigger(fcinfo, "jobq_internal._queue_changed");
	map = row_map(data->tg_relation);
	desc = RelationGetDescr(data->tg_relation);
	tuple = data->tg_trigtuple;
	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event))
		publish_tuple(tuple, desc, true);
	if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
	{
		publish_end(map, tuple, desc);
		return PointerGetDatum(tuple);
	}
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		tuple = set_rev(data->tg_newtuple, desc, rev_of(tuple, desc) + 1);
	tuple = set_hash(tuple, desc);
	publish_tuple(tuple, desc, false);
	return PointerGetDatum(tuple);
}

/*
 * AFTER STATEMENT on jobq.job_types, job_type_env, limits and stopped, ENABLE
 * ALWAYS: every process drops its copy of the registry.
 */
Datum
jobq_types_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	check_trigger(fcinfo, "jobq_internal._types_changed");
	CacheInvalidateRelcache(data->tg_relation);
	CacheInvalidateRelcacheByRelid(jobq_relid("job_types"));	/* whose cache holds the environments, too */
	publish_types_changed();
	return PointerGetDatum(NULL);
}

/* AFTER STATEMENT on jobq.signals and jobq.pressure_rules, ENABLE ALWAYS. */
Datum
jobq_signals_trigger(PG_FUNCTION_ARGS)
{
	check_trigger(fcinfo, "jobq_internal._signals_changed");
	publish_signals_changed();
	return PointerGetDatum(NULL);
}

/*
 * AFTER ROW, and after TRUNCATE, on jobq.schedules, ENABLE ALWAYS: the
 * conductor reads the rows again at commit.
 */
Datum
jobq_schedules_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	AttrNumber	att;
	bool		isnull = true;
	Datum		id = (Datum) 0;

	check_trigger(fcinfo, "jobq_internal._schedules_changed");
	att = get_attnum(RelationGetRelid(data->tg_relation), "id");
	if (TRIGGER_FIRED_FOR_ROW(data->tg_event) && att > 0)
		id = heap_getattr(data->tg_trigtuple, att, RelationGetDescr(data->tg_relation), &isnull);
	publish_schedule(isnull ? 0 : DatumGetInt32(id));
	return PointerGetDatum(NULL);
}
