/*
 * kill_switch.c
 *	  The kill switch, and the wait until nothing runs.
 *
 * jobq.stop_all() writes the row of jobq.stopped; the trigger there notifies
 * the dispatcher at commit, as for job types.  The dispatcher takes back jobs
 * that have not begun and hands out nothing but cancels; running jobs go on.
 * The row survives restarts and dumps.
 *
 * jobq.drain() must see its effect before it commits.  So it counts itself
 * into KillSwitch.ndrains.  publish_jobs.c takes that back when the
 * transaction ends, after the row has been published, or when the savepoint is
 * rolled back.  Then drain waits until the dispatcher has set
 * KillSwitch.draining and no slot has a job; the dispatcher wakes it after
 * each end of a job that it reads.  It writes the row last, so that no session
 * waits for the lock of one that waits.
 */
#include "jobq.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "base/relations.h"
#include "limits/kill_switch.h"
#include "shared/current_job.h"
#include "shared/slots.h"
#include "shared/xact_changes.h"
#include "tables/table_shape.h"

#define LOOK_AGAIN_MS	1000	/* a dispatcher that dies wakes no session */

/* attribute numbers of jobq.stopped: src/sql/00_schema.sql */
enum
{
	S_one = 1, S_reason, S_since
};
#define S_NATTS S_since

static const ShapeColumn stopped_columns[] = {
	{"one", BOOLOID, FILLED}, {"reason", TEXTOID, NULLABLE}, {"since", TIMESTAMPTZOID, FILLED}
};
const Shape stopped_shape = SHAPE("stopped", stopped_columns);

StaticAssertDecl(lengthof(stopped_columns) == S_NATTS, "stopped's columns");

PG_FUNCTION_INFO_V1(jobq_wait_until_idle);

bool
kill_switch_is_on(char **reason, TimestampTz *since, LOCKMODE lock)
{
	Oid			relid = jobq_relid("stopped");
	Relation	rel;
	Snapshot	snapshot;
	TableScanDesc scan;
	HeapTuple	tuple;

	*reason = NULL;
	if (!OidIsValid(relid))
		return false;
	rel = shape_open("stopped", lock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = table_beginscan(rel, snapshot, 0, NULL, SO_NONE);
	tuple = heap_getnext(scan, ForwardScanDirection);
	if (tuple != NULL)
	{
		Datum		values[S_NATTS];
		bool		nulls[S_NATTS];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		if (!nulls[S_reason - 1])
			*reason = TextDatumGetCString(values[S_reason - 1]);
		if (since != NULL)
			*since = DatumGetTimestampTz(values[S_since - 1]);
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, lock);
	return tuple != NULL;
}

/*
 * True if no executor of this database has a job that it has begun, or may
 * begin.
 */
static bool
is_idle(JobqDb *db)
{
	bool		idle = true;

	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots && idle; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];

		if (!slot->in_use || slot->dboid != MyDatabaseId)
			continue;
		for (int c = 0; c < JOBQ_CELLS && idle; c++)
		{
			uint32		state = pg_atomic_read_u32(&slot->cells[c].state);

			idle = state != CELL_ASSIGNED && state != CELL_BEGUN;
		}
	}
	LWLockRelease(JobqShmem->lock);
	return idle && pg_atomic_read_u32(&db->health.leases) == 0;
}

/*
 * Implements jobq_internal._wait_until_idle(timeout): true when nothing runs,
 * false at the timeout.
 */
Datum
jobq_wait_until_idle(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = my_db();
	MonoTime	deadline = mono_now() + interval_to_us(PG_GETARG_INTERVAL_P(0));
	bool		idle;

	if (current_job() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("jobq.drain cannot be called inside a handler")));
	if (db == NULL)
		PG_RETURN_BOOL(true);	/* nothing runs here */
	note_drain();
	want_dispatcher(db);		/* it reads the leases */
	ConditionVariablePrepareToSleep(&db->kill_switch.idle);
	while (!(idle = (db->kill_switch.draining || db->dispatcher.proc == NULL) && is_idle(db)))
	{
		MonoTime	now = mono_now();

		if (now >= deadline)
			break;
		(void) ConditionVariableTimedSleep(&db->kill_switch.idle,
										   (long) Min((deadline - now + 999) / 1000, LOOK_AGAIN_MS),
										   PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	PG_RETURN_BOOL(idle);
}
