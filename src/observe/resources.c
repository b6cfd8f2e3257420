/*
 * resources.c
 *	  What jobq.resources reads from shared memory.
 *
 * The functions are behind the gate (security/owner_call.c): its SQL leaves out
 * what the caller may not see.
 */
#include "jobq.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "shared/disk_level.h"
#include "shared/slots.h"

PG_FUNCTION_INFO_V1(jobq_running_jobs);
PG_FUNCTION_INFO_V1(jobq_disk_level);
PG_FUNCTION_INFO_V1(jobq_weight);

/* Returns this database's entry; NULL: nothing runs here. */
static JobqDb *
running_db(void)
{
	return RecoveryInProgress() ? NULL : my_db();
}

static Datum
row_of(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "a row is expected");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* jobq_internal._running_jobs(): the jobs that executors have begun. */
Datum
jobq_running_jobs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * JOBQ_CELLS);

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (running_db() == NULL)
		return (Datum) 0;
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];
		int			n = 0;

		LWLockAcquire(JobqShmem->lock, LW_SHARED);
		for (int c = 0; slot->in_use && slot->dboid == MyDatabaseId && c < JOBQ_CELLS; c++)
		{
			if (pg_atomic_read_u32(&slot->cells[c].state) == CELL_BEGUN)
				ids[n++] = slot->cells[c].ref.id;
		}
		LWLockRelease(JobqShmem->lock);
		for (int k = 0; k < n; k++)
		{
			Datum		value = UUIDPGetDatum(&ids[k]);
			bool		isnull = false;

			tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
		}
	}
	return (Datum) 0;
}

/* jobq_internal._disk_level(): NULLs before the first measurement. */
Datum
jobq_disk_level(PG_FUNCTION_ARGS)
{
	Datum		values[2] = {0};
	bool		nulls[2] = {true, true};
	double		percent;
	DiskLevel	level = disk_level(running_db(), &percent);

	if (level != DISK_UNKNOWN)
	{
		values[0] = CStringGetTextDatum(disk_level_name(level));
		values[1] = Float8GetDatum(percent);
		nulls[0] = nulls[1] = false;
	}
	return row_of(fcinfo, values, nulls);
}

/* jobq_internal._weight(): NULLs without jobq.max_weight. */
Datum
jobq_weight(PG_FUNCTION_ARGS)
{
	JobqDb	   *db = running_db();
	uint32		max = db != NULL ? pg_atomic_read_u32(&db->health.max_weight) : 0;
	Datum		values[2] = {0};
	bool		nulls[2] = {max == 0, max == 0};

	if (max > 0)
	{
		values[0] = Int32GetDatum((int32) pg_atomic_read_u32(&db->health.weight));
		values[1] = Int32GetDatum((int32) max);
	}
	return row_of(fcinfo, values, nulls);
}
