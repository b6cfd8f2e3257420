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
#include "executor/spi.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/concurrency_key_hash.h"
#include "base/job_status.h"
#include "base/relations.h"
#include "shared/publish_ends.h"
#include "shared/publish_schedules.h"
#include "shared/stat_changes.h"
#include "shared/xact_changes.h"
#include "tables/finished_keys.h"
#include "tables/queue_table.h"
#include "tables/queue_triggers.h"
#include "tables/run_level.h"
#include "tables/table_shape.h"

PG_FUNCTION_INFO_V1(jobq_queue_trigger);
PG_FUNCTION_INFO_V1(jobq_queue_count_trigger);
PG_FUNCTION_INFO_V1(jobq_dead_letter_trigger);
PG_FUNCTION_INFO_V1(jobq_dead_letter_count_trigger);
PG_FUNCTION_INFO_V1(jobq_truncate_trigger);
PG_FUNCTION_INFO_V1(jobq_dead_letters_truncated);
PG_FUNCTION_INFO_V1(jobq_types_trigger);
PG_FUNCTION_INFO_V1(jobq_signals_trigger);
PG_FUNCTION_INFO_V1(jobq_schedules_trigger);

static bool (*type_is_workflow) (int32 type_id) = NULL;

void
triggers_set_run_types(bool (*is_run_type) (int32 type_id))
{
	type_is_workflow = is_run_type;
}

static bool
is_blocked(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	return status_from_oid(DatumGetObjectId(heap_getattr(tuple, Q_status, desc, &isnull))) == JOB_BLOCKED;
}

/* Returns the hash of the key that a job waits for or has; 0: none. */
static uint64
hash_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		key = heap_getattr(tuple, Q_concurrency_key, desc, &isnull);
	Datum		tenant;
	Datum		type_id;
	bool		type_isnull;
	Datum		run;
	bool		run_isnull;

	if (isnull || is_blocked(tuple, desc))
		return 0;
	tenant = heap_getattr(tuple, Q_tenant, desc, &isnull);
	type_id = heap_getattr(tuple, Q_type_id, desc, &type_isnull);
	run = heap_getattr(tuple, Q_workflow_id, desc, &run_isnull);
	return key_hash(isnull ? NULL : DatumGetTextPP(tenant), DatumGetTextPP(key),
					run_level(!type_isnull && type_is_workflow(DatumGetInt32(type_id)), run_isnull ? NULL : DatumGetUUIDP(run)));
}

static void
note_tuple(HeapTuple tuple, TupleDesc desc, bool removed)
{
	bool		isnull;
	uint64		hash = hash_of(tuple, desc);

	if (hash != 0)
		note_concurrency_key(hash, DatumGetTimestampTz(heap_getattr(tuple, Q_key_since, desc, &isnull)), removed);
	note_position(DatumGetInt32(heap_getattr(tuple, Q_type_id, desc, &isnull)),
				  DatumGetInt16(heap_getattr(tuple, Q_priority, desc, &isnull)),
				  DatumGetInt16(heap_getattr(tuple, Q_sublane, desc, &isnull)),
				  DatumGetTimestampTz(heap_getattr(tuple, Q_position, desc, &isnull)));
}

/* Publishes the removal of a job to the conductor: of a tick, or awaited by others. */
static void
note_deleted(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	pg_uuid_t  *id = DatumGetUUIDP(heap_getattr(tuple, Q_id, desc, &isnull));
	Datum		schedule = heap_getattr(tuple, Q_schedule_id, desc, &isnull);

	note_removal(id);
	if (!isnull)
		note_scheduled_end(DatumGetInt32(schedule), id, JOB_CANCELLED, GetCurrentTimestamp());
}

/* Makes the conductor read all edges when jobs that wait become those of this database. */
static void
note_adopted(HeapTuple old, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	if (is_blocked(tuple, desc) &&
		heap_getattr(old, Q_home_id, desc, &isnull) != heap_getattr(tuple, Q_home_id, desc, &isnull))
		note_unknown_edges();
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

/* Fills the place in the order of the key: statements need not know the column. */
static HeapTuple
set_key_since(HeapTuple tuple, TupleDesc desc)
{
	int			att = Q_key_since;
	bool		isnull = false;
	Datum		value;

	if (heap_attisnull(tuple, Q_key_hash, desc) || !heap_attisnull(tuple, att, desc))
		return tuple;
	value = heap_getattr(tuple, Q_created_at, desc, &isnull);
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

static int32
type_of(HeapTuple tuple, TupleDesc desc, int att)
{
	bool		isnull;

	return DatumGetInt32(heap_getattr(tuple, att, desc, &isnull));
}

/*
 * BEFORE ROW on jobq.queue, ENABLE ALWAYS: publishes rows written by plain
 * SQL, COPY and logical apply, and bumps rev, which fences every hand-out made
 * from the older version.  It also writes the hash of the concurrency key and
 * key_since, and notes types that use unique_for.
 */
Datum
jobq_queue_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	tuple;

	check_trigger(fcinfo, "jobq_internal._queue_changed");
	shape_require(data->tg_relation);
	desc = RelationGetDescr(data->tg_relation);
	tuple = data->tg_trigtuple;
	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event))
		note_tuple(tuple, desc, true);
	if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
	{
		note_deleted(tuple, desc);
		return PointerGetDatum(tuple);
	}
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
	{
		note_adopted(tuple, data->tg_newtuple, desc);
		tuple = set_rev(data->tg_newtuple, desc, rev_of(tuple, desc) + 1);
	}
	tuple = set_key_since(set_hash(tuple, desc), desc);
	note_tuple(tuple, desc, false);
	if (!heap_attisnull(tuple, Q_unique_for, desc))
		finished_key_note_type(type_of(tuple, desc, Q_type_id));
	return PointerGetDatum(tuple);
}

static JobStatus
status_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	return status_from_oid(DatumGetObjectId(heap_getattr(tuple, Q_status, desc, &isnull)));
}

/*
 * AFTER ROW on jobq.queue, ENABLE ALWAYS: counts the rows that were written.
 * A row of the trigger before may still be dropped, by ON CONFLICT DO NOTHING
 * say.
 */
Datum
jobq_queue_count_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	tuple;

	check_trigger(fcinfo, "jobq_internal._queue_counted");
	shape_require(data->tg_relation);
	desc = RelationGetDescr(data->tg_relation);
	tuple = data->tg_trigtuple;
	if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
		stat_enqueued(type_of(tuple, desc, Q_type_id), status_of(tuple, desc));
	else if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
		stat_row_removed(type_of(tuple, desc, Q_type_id), status_of(tuple, desc));
	else
		stat_row_changed(type_of(tuple, desc, Q_type_id), status_of(tuple, desc),
						 type_of(data->tg_newtuple, desc, Q_type_id), status_of(data->tg_newtuple, desc));
	return PointerGetDatum(NULL);
}

/* The same on jobq.dead_letters. */
Datum
jobq_dead_letter_count_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;

	check_trigger(fcinfo, "jobq_internal._dead_letter_counted");
	shape_require(data->tg_relation);
	desc = RelationGetDescr(data->tg_relation);
	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event))
		stat_dead_letters(type_of(data->tg_trigtuple, desc, H_type_id), -1);
	if (!TRIGGER_FIRED_BY_DELETE(data->tg_event))
		stat_dead_letters(type_of(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple,
								  desc, H_type_id), 1);
	return PointerGetDatum(NULL);
}

/*
 * BEFORE ROW DELETE on jobq.dead_letters, ENABLE ALWAYS: a dead letter that is
 * purged or has expired no longer holds the jobs that wait for it; one that is
 * retried is found in the queue.
 */
Datum
jobq_dead_letter_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	bool		isnull;

	check_trigger(fcinfo, "jobq_internal._dead_letter_removed");
	shape_require(data->tg_relation);
	note_removal(DatumGetUUIDP(heap_getattr(data->tg_trigtuple, H_id, RelationGetDescr(data->tg_relation), &isnull)));
	return PointerGetDatum(data->tg_trigtuple);
}

/* AFTER TRUNCATE on jobq.queue and jobq.dead_letters, ENABLE ALWAYS. */
Datum
jobq_truncate_trigger(PG_FUNCTION_ARGS)
{
	check_trigger(fcinfo, "jobq_internal._jobs_truncated");
	note_look_at_all();
	stat_recount();
	return PointerGetDatum(NULL);
}

/*
 * The same on jobq.dead_letters: removes their number.  The transaction's own
 * snapshot may not see all of it, nor a sum that is written meanwhile; no
 * session writes a dead letter now.
 */
Datum
jobq_dead_letters_truncated(PG_FUNCTION_ARGS)
{
	SPIPlanPtr	plan;
	Snapshot	snapshot;

	check_trigger(fcinfo, "jobq_internal._dead_letters_truncated");
	LockRelationOid(jobq_relid("dead_letter_count"), ExclusiveLock);
	SPI_connect();
	plan = SPI_prepare("DELETE FROM jobq.dead_letter_count", 0, NULL);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	if (plan == NULL || SPI_execute_snapshot(plan, NULL, NULL, snapshot, InvalidSnapshot, false, true, 0) != SPI_OK_DELETE)
		elog(ERROR, "could not remove the number of dead letters");
	UnregisterSnapshot(snapshot);
	SPI_finish();
	return PointerGetDatum(NULL);
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
	note_types_changed();
	return PointerGetDatum(NULL);
}

/* AFTER STATEMENT on jobq.signals and jobq.pressure_rules, ENABLE ALWAYS. */
Datum
jobq_signals_trigger(PG_FUNCTION_ARGS)
{
	check_trigger(fcinfo, "jobq_internal._signals_changed");
	note_signals_changed();
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
	note_schedule(isnull ? 0 : DatumGetInt32(id));
	return PointerGetDatum(NULL);
}
