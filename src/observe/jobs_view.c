/*
 * jobs_view.c
 *	  The view jobq.jobs beyond the tables: names of job types, and the jobs
 *	  that run right now.
 *
 * A SQL job is not claimed by a write, so its row says pending (or retry)
 * while its handler runs.  The slot of its worker (or of this session:
 * run_inline) records that it runs.  The view therefore calls a function per
 * column and queue row, which looks the job up in a copy of the slots.  It
 * never joins, because a join would sort the queue.
 *
 * The copy is taken at the first call in a query and shared by all calls of
 * that query, so that the columns of a row agree.  It lives in the query's
 * memory context; a reset callback forgets it.
 *
 * The query's snapshot may be older than the copy.  A row of that snapshot
 * with the very rev that was handed out was not settled then, so a cell that
 * has settled it since still says "running": no job flickers back to pending
 * just before it is done.
 *
 * A role that reads the view may also call the functions, with any id.  So to
 * a role that is held to grants (access.h) a job is live only if the role may
 * see its row, which is looked up once per live job and query.
 */
#include "jobq.h"

#include <math.h>

#include "access/genam.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/job_status.h"
#include "base/relations.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "shared/claims.h"
#include "shared/slots.h"
#include "sql_worker/handler.h"
#include "tables/queue_table.h"
#include "tables/table_shape.h"

PG_FUNCTION_INFO_V1(jobq_type_name);
PG_FUNCTION_INFO_V1(jobq_live_status);
PG_FUNCTION_INFO_V1(jobq_live_attempts);
PG_FUNCTION_INFO_V1(jobq_live_runs);
PG_FUNCTION_INFO_V1(jobq_live_started_at);
PG_FUNCTION_INFO_V1(jobq_live_worker);
PG_FUNCTION_INFO_V1(jobq_live_progress);
PG_FUNCTION_INFO_V1(jobq_live_progress_data);
PG_FUNCTION_INFO_V1(jobq_running_ids);

/* One cell whose job has begun. */
typedef struct Live
{
	pg_uuid_t	id;
	int32		rev;
	bool		runs;			/* now; else it has been settled meanwhile */
	bool		starting;		/* a tool that has been claimed and is not known to have started */
	TimestampTz started_at;
	double		progress;
	char	   *progress_data;	/* JSON text or NULL */
	char	   *worker;
	bool		asked;			/* whether the role sees it */
	bool		seen;
} Live;

typedef struct LiveCopy
{
	MemoryContext cxt;
	MemoryContextCallback forget;
	Oid			role;			/* that asks */
	bool		free;			/* it sees every job */
	int			n;
	int			size;
	Live	   *live;			/* ordered by id */
} LiveCopy;

static LiveCopy *last_copy = NULL;

static void
forget_copy(void *arg)
{
	if (last_copy == arg)
		last_copy = NULL;
}

static int
compare_live(const void *a, const void *b)
{
	return memcmp(&((const Live *) a)->id, &((const Live *) b)->id, sizeof(pg_uuid_t));
}

static Live *
next_live(LiveCopy *copy)
{
	if (copy->n == copy->size)
	{
		copy->size = copy->size ? copy->size * 2 : 64;
		copy->live = copy->live ? repalloc(copy->live, copy->size * sizeof(Live)) :
			palloc(copy->size * sizeof(Live));
	}
	return &copy->live[copy->n];
}

/* True if this cell has begun a job, as far as the view is concerned. */
static bool
cell_counts(Cell *cell, uint32 state)
{
	if (cell->starting && state != CELL_ASSIGNED)
		return true;			/* also when it is over: for snapshots that show the claim */
	if (cell->started_at == 0)
		return false;
	return state == CELL_BEGUN ||
		((state == CELL_DONE || state == CELL_FREE) && cell->report == REPORT_SETTLED);
}

/* Copies a cell that counts; one that changes hands meanwhile does not. */
static void
copy_cell(LiveCopy *copy, Slot *slot, Cell *cell, char *worker)
{
	uint32		state = pg_atomic_read_u32(&cell->state);
	char		data[JOBQ_PROGRESS_LEN];
	Live	   *live;

	if (!cell_counts(cell, state))
		return;
	live = next_live(copy);
	live->asked = false;
	pg_read_barrier();
	live->id = cell->ref.id;
	live->rev = cell->ref.rev;
	live->runs = state == CELL_BEGUN;
	live->starting = cell->starting;
	live->started_at = cell->started_at;
	live->worker = worker;
	SpinLockAcquire(&slot->mutex);
	live->progress = cell->progress;
	strlcpy(data, cell->progress_data, sizeof(data));
	SpinLockRelease(&slot->mutex);
	pg_read_barrier();
	if (pg_atomic_read_u32(&cell->state) != state || (live->started_at == 0 && !live->starting) ||
		memcmp(&live->id, &cell->ref.id, sizeof(pg_uuid_t)) != 0)
		return;
	live->progress_data = data[0] ? pstrdup(data) : NULL;
	copy->n++;
}

static void
copy_inline_run(LiveCopy *copy)
{
	const Run  *run = handler_inline_run();
	Live	   *live;

	if (run == NULL)
		return;
	live = next_live(copy);
	live->asked = false;
	live->id = *JOB_ID(run->job);
	live->rev = JOB_INT(run->job, Q_rev);
	live->runs = true;
	live->starting = false;
	live->started_at = run->outcome.started_at;
	live->progress = run->progress;
	live->progress_data = run->progress_data ? pstrdup(run->progress_data) : NULL;
	live->worker = pstrdup(run->outcome.worker ? run->outcome.worker : "inline");
	copy->n++;
}

static void
copy_slots(LiveCopy *copy)
{
	if (JobqShmem == NULL || RecoveryInProgress())
		return;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];
		char	   *worker;

		if (!slot->in_use || slot->dboid != MyDatabaseId)
			continue;
		worker = pstrdup(slot->name);
		for (int c = 0; c < JOBQ_CELLS; c++)
			copy_cell(copy, slot, &slot->cells[c], worker);
	}
	LWLockRelease(JobqShmem->lock);
}

/* Returns the copy of the query that this call belongs to. */
static LiveCopy *
get_copy(FmgrInfo *flinfo)
{
	LiveCopy   *copy;
	MemoryContext old;

	if (flinfo->fn_extra)
		return flinfo->fn_extra;
	if (last_copy == NULL || last_copy->cxt != flinfo->fn_mcxt)
	{
		/*
		 * a later partition: no lock of this session delivers its invalidation
		 * in this transaction
		 */
		AcceptInvalidationMessages();
		old = MemoryContextSwitchTo(flinfo->fn_mcxt);
		copy = palloc0(sizeof(LiveCopy));
		copy->cxt = flinfo->fn_mcxt;
		copy->role = GetUserId();
		copy->free = access_is_free(copy->role);
		copy_inline_run(copy);
		copy_slots(copy);
		if (copy->n > 1)
			qsort(copy->live, copy->n, sizeof(Live), compare_live);
		copy->forget.func = forget_copy;
		copy->forget.arg = copy;
		MemoryContextRegisterResetCallback(flinfo->fn_mcxt, &copy->forget);
		last_copy = copy;
		MemoryContextSwitchTo(old);
	}
	flinfo->fn_extra = last_copy;
	return last_copy;
}

static bool
claimed(FunctionCallInfo fcinfo)
{
	return PG_GETARG_OID(2) == status_oid(JOB_RUNNING);
}

static text *
text_of(HeapTuple tuple, TupleDesc desc, int att)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, att, desc, &isnull);

	return isnull ? NULL : DatumGetTextPCopy(value);
}

/*
 * True if the policy of jobq.queue shows the row that the query's snapshot
 * sees.
 */
static bool
sees_row(Oid role, const pg_uuid_t *id)
{
	Relation	queue = shape_open("queue", AccessShareLock);
	Oid			index = jobq_relid("queue_id");
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	text	   *tenant = NULL;
	text	   *enqueued_by = NULL;
	int32		type_id = 0;
	JobType    *type;

	ScanKeyInit(&key, Q_id, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(id));
	scan = systable_beginscan(queue, index, OidIsValid(index) && get_index_isvalid(index), GetActiveSnapshot(), 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		TupleDesc	desc = RelationGetDescr(queue);
		bool		isnull;

		type_id = DatumGetInt32(heap_getattr(tuple, Q_type_id, desc, &isnull));
		tenant = text_of(tuple, desc, Q_tenant);
		enqueued_by = text_of(tuple, desc, Q_enqueued_by);
	}
	systable_endscan(scan);
	table_close(queue, AccessShareLock);
	type = job_type_by_id(type_id);
	return type != NULL && access_sees(role, tenant, type->name, enqueued_by);
}

static bool
sees_live(LiveCopy *copy, Live *live)
{
	if (copy->free)
		return true;
	if (!live->asked)
	{
		live->seen = sees_row(copy->role, &live->id);
		live->asked = true;
	}
	return live->seen;
}

/*
 * True if that cell holds the run that the row (id, rev, status), the first
 * three arguments, is about.
 */
typedef bool (*LiveTest) (const Live *live, int32 rev);

static bool
is_run(const Live *live, int32 rev)
{
	return live->rev == rev && !live->starting;
}

/*
 * True for an exec job: its row says that it runs, and was written after the
 * hand-out.
 */
static bool
is_claimed_run(const Live *live, int32 rev)
{
	return live->runs;
}

static bool
is_start(const Live *live, int32 rev)
{
	return live->starting && live->rev + 1 == rev;
}

/*
 * Returns the job's cell; NULL: there is none, or the role does not see the
 * job.
 */
static Live *
find_cell(FunctionCallInfo fcinfo, LiveTest test)
{
	LiveCopy   *copy = get_copy(fcinfo->flinfo);
	Live		key;
	Live	   *live;
	Live	   *end = copy->live + copy->n;

	if (copy->n == 0)
		return NULL;
	key.id = *PG_GETARG_UUID_P(0);
	live = bsearch(&key, copy->live, copy->n, sizeof(Live), compare_live);
	if (live == NULL)
		return NULL;
	/* a job that was handed out again may still stand in its former cell */
	while (live > copy->live && compare_live(live - 1, &key) == 0)
		live--;
	for (; live < end && compare_live(live, &key) == 0; live++)
		if (test(live, PG_GETARG_INT32(1)))
			return sees_live(copy, live) ? live : NULL;
	return NULL;
}

static Live *
find_live(FunctionCallInfo fcinfo)
{
	return find_cell(fcinfo, claimed(fcinfo) ? is_claimed_run : is_run);
}

/* The value that the row stores, the fourth argument. */
#define RETURN_STORED() \
	do { \
		if (PG_ARGISNULL(3)) \
			PG_RETURN_NULL(); \
		PG_RETURN_DATUM(PG_GETARG_DATUM(3)); \
	} while (0)

/* jobq_internal._live_status(id, rev, status) */
Datum
jobq_live_status(PG_FUNCTION_ARGS)
{
	if (find_live(fcinfo) == NULL)
		PG_RETURN_OID(PG_GETARG_OID(2));
	PG_RETURN_OID(status_oid(JOB_RUNNING));
}

/* jobq_internal._live_attempts(id, rev, status, stored) */
Datum
jobq_live_attempts(PG_FUNCTION_ARGS)
{
	if (claimed(fcinfo) || find_live(fcinfo) == NULL)
		RETURN_STORED();
	PG_RETURN_INT32(PG_GETARG_INT32(3) + 1);
}

/*
 * jobq_internal._live_runs(id, rev, status, stored): the claim of a tool has
 * counted a run, which is taken back when the tool cannot start.
 */
Datum
jobq_live_runs(PG_FUNCTION_ARGS)
{
	if (claimed(fcinfo) && find_cell(fcinfo, is_start) != NULL)
		PG_RETURN_INT32(PG_GETARG_INT32(3) - 1);
	return jobq_live_attempts(fcinfo);
}

/* jobq_internal._live_started_at(id, rev, status, stored) */
Datum
jobq_live_started_at(PG_FUNCTION_ARGS)
{
	Live	   *live = find_live(fcinfo);

	if (claimed(fcinfo) || live == NULL)
		RETURN_STORED();
	PG_RETURN_TIMESTAMPTZ(live->started_at);
}

/* jobq_internal._live_worker(id, rev, status, stored) */
Datum
jobq_live_worker(PG_FUNCTION_ARGS)
{
	Live	   *live = find_live(fcinfo);

	if (claimed(fcinfo) || live == NULL)
		RETURN_STORED();
	PG_RETURN_TEXT_P(cstring_to_text(live->worker));
}

/*
 * jobq_internal._live_progress(id, rev, status, stored): of the attempt that
 * runs, else of the last one
 */
Datum
jobq_live_progress(PG_FUNCTION_ARGS)
{
	Live	   *live = find_live(fcinfo);

	if (live == NULL || (claimed(fcinfo) && isnan(live->progress)))
		RETURN_STORED();
	if (isnan(live->progress))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(DirectFunctionCall1(float8_numeric, Float8GetDatum(live->progress)));
}

/* jobq_internal._live_progress_data(id, rev, status, stored) */
Datum
jobq_live_progress_data(PG_FUNCTION_ARGS)
{
	Live	   *live = find_live(fcinfo);

	if (live == NULL || (claimed(fcinfo) && live->progress_data == NULL))
		RETURN_STORED();
	if (live->progress_data == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(live->progress_data)));
}

/*
 * jobq_internal._type_name(type_id): also of dropped types; NULL for an id
 * that was never one, or that the role has no grant of.
 */
Datum
jobq_type_name(PG_FUNCTION_ARGS)
{
	JobType    *type = job_type_by_id(PG_GETARG_INT32(0));

	if (type == NULL || !access_knows_type(GetUserId(), type->name))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(type->name));
}

/*
 * jobq_internal._running_ids(): of the jobs that executors or clients have, those
 * that the caller sees.
 */
Datum
jobq_running_ids(PG_FUNCTION_ARGS)
{
	LiveCopy   *copy = get_copy(fcinfo->flinfo);
	pg_uuid_t  *claimed = palloc(sizeof(pg_uuid_t) * JOBQ_CLAIMED);
	JobqDb	   *db = RecoveryInProgress() ? NULL : my_db();
	int			nclaimed = db == NULL ? -1 : claimed_ids(db, claimed);
	Datum	   *ids = palloc(sizeof(Datum) * (copy->n + Max(nclaimed, 0) + 1));
	int			n = 0;
	Datum		values[2];
	bool		nulls[2] = {false, false};
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "a row is expected");
	for (int i = 0; i < copy->n; i++)
	{
		if (sees_live(copy, &copy->live[i]))
			ids[n++] = UUIDPGetDatum(&copy->live[i].id);
	}
	for (int i = 0; i < nclaimed; i++)
	{
		if (copy->free || sees_row(copy->role, &claimed[i]))
			ids[n++] = UUIDPGetDatum(&claimed[i]);
	}
	values[0] = BoolGetDatum(nclaimed >= 0);
	values[1] = PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
