/*
 * stat_views.c
 *	  The functions of the views jobq.stat_job_types, stat_workers, stat_lanes,
 *	  stat_limits and stat_dispatcher; stat_series().
 *
 * Each view is a SELECT of one of these functions, so the rights on both are
 * granted together; the functions check the caller, too.  On a standby nothing
 * runs, and the views are empty.
 */
#include "jobq.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/errors.h"
#include "base/interval.h"
#include "base/json_build.h"
#include "observe/type_stats.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "shared/claims.h"
#include "shared/slots.h"
#include "tables/live_counts.h"

PG_FUNCTION_INFO_V1(jobq_stat_job_types);
PG_FUNCTION_INFO_V1(jobq_stat_workers);
PG_FUNCTION_INFO_V1(jobq_stat_claimed);
PG_FUNCTION_INFO_V1(jobq_stat_dispatcher);
PG_FUNCTION_INFO_V1(jobq_stat_lanes);
PG_FUNCTION_INFO_V1(jobq_stat_limits);
PG_FUNCTION_INFO_V1(jobq_stat_series);

/* A row that is filled from left to right. */
#define MAX_COLUMNS	32
typedef struct Row
{
	int			n;
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
} Row;

static void
put(Row *row, Datum value)
{
	row->nulls[row->n] = false;
	row->values[row->n++] = value;
}

static void
put_null(Row *row)
{
	row->values[row->n] = (Datum) 0;
	row->nulls[row->n++] = true;
}

static void
put_int8(Row *row, int64 value)
{
	put(row, Int64GetDatum(value));
}

static void
put_float8(Row *row, double value)
{
	put(row, Float8GetDatum(value));
}

static void
put_text(Row *row, const char *value)
{
	if (value == NULL || value[0] == '\0')
		put_null(row);
	else
		put(row, CStringGetTextDatum(value));
}

/* 0: NULL */
static void
put_time(Row *row, TimestampTz value)
{
	if (value == 0)
		put_null(row);
	else
		put(row, TimestampTzGetDatum(value));
}

static void
put_buckets(Row *row, const int64 *n, int nbuckets)
{
	Datum		values[STAT_TIME_BUCKETS];

	for (int i = 0; i < nbuckets; i++)
		values[i] = Int64GetDatum(n[i]);
	put(row, PointerGetDatum(construct_array(values, nbuckets, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
}

static void
put_row(ReturnSetInfo *result, Row *row)
{
	tuplestore_putvalues(result->setResult, result->setDesc, row->values, row->nulls);
	row->n = 0;
}

/* Begins a view; returns the database, NULL: there is nothing to show. */
static JobqDb *
begin(FunctionCallInfo fcinfo, const char *name)
{
	type_stats_check_reader(name);
	InitMaterializedSRF(fcinfo, 0);
	return RecoveryInProgress() ? NULL : my_db();
}

/* ---------- jobq.stat_job_types ---------- */

static void
put_failures(Row *row, const TypeStats *s)
{
	JsonBuild	b;

	json_begin_object(&b);
	for (int i = 0; i < STAT_FAILURES; i++)
		json_add_integer(&b, stat_failure_names[i], s->n[STAT_FAILED + i]);
	put(row, JsonbPGetDatum(json_end_object(&b)));
}

static void
put_live(Row *row, const TypeStats *s, int counter)
{
	if (s->counted)
		put_int8(row, s->n[counter]);
	else
		put_null(row);
}

/* True if no job of the type may start because it is paused. */
static bool
is_paused(const TypeStats *s)
{
	JobType    *type = s->type_id == 0 ? NULL : job_type_by_id(s->type_id);

	return type != NULL && type->paused && type->paused_until > GetCurrentTimestamp();
}

static void
put_durations(Row *row, const TypeStats *s)
{
	put_float8(row, s->n[STAT_WAIT_US] / 1e6);
	put_buckets(row, &s->n[STAT_WAIT], STAT_TIME_BUCKETS);
	put_float8(row, s->n[STAT_RUN_US] / 1e6);
	put_buckets(row, &s->n[STAT_RUN], STAT_TIME_BUCKETS);
	put_buckets(row, &s->n[STAT_ATTEMPTS], STAT_ATTEMPT_BUCKETS);
}

static void
put_type(Row *row, const TypeStats *s, TimestampTz now)
{
	double		drain = type_stats_drain_s(s, now);

	put_text(row, s->name);
	put_live(row, s, STAT_PENDING);
	put_int8(row, s->due);
	put(row, BoolGetDatum(s->due_exact));
	put_live(row, s, STAT_BLOCKED);
	put_live(row, s, STAT_RETRY);
	put_live(row, s, STAT_RUNNING);
	put_live(row, s, STAT_DEAD);
	for (int c = STAT_ENQUEUED; c <= STAT_RETRIED; c++)
		put_int8(row, s->n[c]);
	put_failures(row, s);
	put_durations(row, s);
	if (s->oldest_due == 0)
		put_null(row);
	else
		put_float8(row, Max(now - s->oldest_due, 0) / 1e6);
	if (drain < 0)
		put_null(row);
	else
		put_float8(row, drain);
	put(row, BoolGetDatum(is_paused(s)));
	put_time(row, s->last_completed);
	put_time(row, s->last_failed);
	put_time(row, s->reset_at);
}

/* Reserves entries for types of which no job has come yet; the caller may name any ids. */
static void
reserve_types(ArrayType *ids)
{
	Datum	   *values;
	int			n;

	deconstruct_array(ids, INT4OID, sizeof(int32), true, TYPALIGN_INT, &values, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		if (!job_type_is_dropped(DatumGetInt32(values[i])))
			(void) stat_entry(DatumGetInt32(values[i]));
	}
}

/* jobq_internal._stat_job_types(type_ids) */
Datum
jobq_stat_job_types(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_job_types");
	TypeStats  *stats;
	int			n;
	Row			row = {0};

	if (db == NULL)
		return (Datum) 0;
	reserve_types(PG_GETARG_ARRAYTYPE_P(0));
	stat_prepared_ended(db);
	(void) live_counts_ensure(db);
	n = type_stats_read(db, &stats);
	for (int i = 0; i < n; i++)
	{
		put_type(&row, &stats[i], GetCurrentTimestamp());
		put_row(result, &row);
	}
	return (Datum) 0;
}

/* ---------- jobq.stat_workers ---------- */

/* Copies a cell with a job that runs; false: there is none, or it changes. */
static bool
copy_running(Cell *cell, Cell *copy)
{
	if (pg_atomic_read_u32(&cell->state) != CELL_BEGUN || cell->started_at == 0)
		return false;
	pg_read_barrier();
	copy->ref = cell->ref;
	copy->started_at = cell->started_at;
	copy->begun_at = cell->begun_at;
	copy->deadline = cell->deadline;
	pg_read_barrier();
	return pg_atomic_read_u32(&cell->state) == CELL_BEGUN && memcmp(&copy->ref.id, &cell->ref.id, sizeof(pg_uuid_t)) == 0;
}

/* Adds the columns of the job that runs; NULL: none does. */
static void
put_cell(Row *row, const Cell *cell)
{
	JobType    *type = cell == NULL ? NULL : job_type_by_id(cell->ref.type_id);

	put_text(row, cell == NULL ? "idle" : "busy");
	if (cell == NULL)
	{
		while (row->n < 12)
			put_null(row);
		return;
	}
	put(row, UUIDPGetDatum(&cell->ref.id));
	put_text(row, type == NULL ? NULL : type->name);
	put(row, Int32GetDatum(cell->ref.attempts + 1));
	put_time(row, cell->started_at);
	put_time(row, cell->deadline == 0 ? 0 : cell->started_at + (cell->deadline - cell->begun_at));
	put_null(row);
}

static void
put_worker(Row *row, const Slot *slot, const Cell *cell)
{
	char	   *role = slot->kind == SLOT_SQL ? GetUserNameFromId(slot->roleid, true) : NULL;

	put_text(row, slot->kind == SLOT_SQL ? "sql" : "exec");
	if (slot->pid == 0)
		put_null(row);
	else
		put(row, Int32GetDatum(slot->pid));
	put_text(row, slot->name);
	put_null(row);				/* node: here */
	put_text(row, role);
	put_cell(row, cell);
}

/*
 * Adds a row for each running job of a slot, or one for a slot without any.  Of
 * a batch it is the current job: the others have ended.
 */
static void
put_slot(ReturnSetInfo *result, const Slot *slot, Cell *cells, int current)
{
	Row			row = {0};
	bool		busy = false;

	for (int i = 0; i < JOBQ_CELLS; i++)
	{
		Cell		copy;

		if (!copy_running(&cells[(Max(current, 0) + i) % JOBQ_CELLS], &copy))
			continue;
		put_worker(&row, slot, &copy);
		put_row(result, &row);
		busy = true;
		if (slot->kind == SLOT_SQL)
			return;
	}
	if (busy)
		return;
	put_worker(&row, slot, NULL);
	put_row(result, &row);
}

/* jobq_internal._stat_workers() */
Datum
jobq_stat_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_workers");
	Slot	   *head = palloc(sizeof(Slot));

	for (int i = 0; db != NULL && i < JobqShmem->nslots; i++)
	{
		Slot	   *slot = &JobqShmem->slots[i];
		bool		ours;

		LWLockAcquire(JobqShmem->lock, LW_SHARED);
		ours = slot->in_use && !slot->dead && slot->proc != NULL && slot->dboid == db->dboid;
		memcpy(head, slot, offsetof(Slot, mutex));
		LWLockRelease(JobqShmem->lock);
		if (ours)
			put_slot(result, head, slot->cells, slot->current);
	}
	pfree(head);
	return (Datum) 0;
}

/*
 * jobq_internal._stat_claimed(): the ids of claimed jobs; complete is false, and
 * there are none, if the dispatcher does not know all of them.  The view then
 * reads the queue.
 */
Datum
jobq_stat_claimed(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_workers");
	pg_uuid_t  *ids = palloc(sizeof(pg_uuid_t) * JOBQ_CLAIMED);
	Datum	   *values;
	int			n = db == NULL ? -1 : claimed_ids(db, ids);
	bool		complete = n >= 0 || RecoveryInProgress();	/* a standby's claims are its primary's */
	Row			row = {0};

	values = palloc(sizeof(Datum) * Max(n, 1));
	for (int i = 0; i < n; i++)
		values[i] = UUIDPGetDatum(&ids[i]);
	put(&row, BoolGetDatum(complete));
	put(&row, PointerGetDatum(construct_array(values, Max(n, 0), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR)));
	put_row(result, &row);
	return (Datum) 0;
}

/* ---------- jobq.stat_lanes, jobq.stat_limits ---------- */

static void
put_lane(Row *row, const StatLane *lane)
{
	JobType    *type = job_type_by_id(lane->type_id);

	put_text(row, type == NULL ? NULL : type->name);
	put(row, Int32GetDatum(lane->priority));
	put(row, Int32GetDatum(lane->effective));
	put_time(row, lane->oldest_due);
	put_text(row, lane->held_by == WHY_NCODES ? NULL : why_code_names[lane->held_by]);
}

static void
put_rest_of_lanes(Row *row, const StatLane *lane)
{
	put_text(row, STAT_REST);
	put_null(row);
	put_null(row);
	put_time(row, lane->oldest_due);
	put_null(row);
}

/* jobq_internal._stat_lanes() */
Datum
jobq_stat_lanes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_lanes");
	StatLane   *lanes = palloc(sizeof(StatLane) * STAT_LANES);
	int			n = 0;
	Row			row = {0};

	if (db == NULL)
		return (Datum) 0;
	SpinLockAcquire(&db->mutex);
	n = db->stats.nlanes;
	memcpy(lanes, db->stats.lanes, sizeof(StatLane) * n);
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		if (lanes[i].type_id == 0)
			put_rest_of_lanes(&row, &lanes[i]);
		else
			put_lane(&row, &lanes[i]);
		put_row(result, &row);
	}
	return (Datum) 0;
}

/* jobq_internal._stat_limits() */
Datum
jobq_stat_limits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_limits");
	StatLimit  *limits = palloc(sizeof(StatLimit) * STAT_LIMITS);
	TimestampTz now = GetCurrentTimestamp();
	int			n = 0;
	Row			row = {0};

	if (db == NULL)
		return (Datum) 0;
	SpinLockAcquire(&db->mutex);
	n = db->stats.nlimits;
	memcpy(limits, db->stats.limits, sizeof(StatLimit) * n);
	SpinLockRelease(&db->mutex);
	for (int i = 0; i < n; i++)
	{
		put_text(&row, stat_limit_kinds[limits[i].kind]);
		put_text(&row, limits[i].name);
		put_int8(&row, limits[i].used);
		if (limits[i].kind == LIMIT_REST)
			put_null(&row);
		else
			put_int8(&row, limits[i].max);
		if (limits[i].held_since == 0)
			put_null(&row);
		else
			put_float8(&row, Max(now - limits[i].held_since, 0) / 1e6);
		put_row(result, &row);
	}
	return (Datum) 0;
}

/* ---------- jobq.stat_dispatcher ---------- */

static void
put_wakeups(Row *row, const DbStats *stats)
{
	JsonBuild	b;

	json_begin_object(&b);
	for (int i = 0; i < STAT_WAKEUPS; i++)
		json_add_integer(&b, stat_wakeup_names[i], (int64) stats->wakeups[i]);
	put(row, JsonbPGetDatum(json_end_object(&b)));
}

/* jobq_internal._stat_dispatcher() */
Datum
jobq_stat_dispatcher(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_dispatcher");
	Row			row = {0};
	bool		runs;

	if (db == NULL)
		return (Datum) 0;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	runs = db->dispatcher.proc != NULL;
	if (runs)
		put(&row, Int32GetDatum(db->dispatcher.pid));
	else
		put_null(&row);
	put_time(&row, runs ? db->dispatcher.started : 0);
	LWLockRelease(JobqShmem->lock);
	put_int8(&row, (int64) db->stats.loops);
	put_wakeups(&row, &db->stats);
	put_int8(&row, (int64) (pg_atomic_read_u64(&db->counters.handed_out) - db->stats.handed_out_before));
	put_int8(&row, (int64) (pg_atomic_read_u64(&db->counters.fallbacks) - db->stats.fallbacks_before));
	put_int8(&row, (int64) db->stats.sweep_finds);
	put_int8(&row, (int64) db->stats.publications_lost);
	put_time(&row, db->stats.reset_at != 0 ? db->stats.reset_at : JobqShmem->started_at);
	put_row(result, &row);
	return (Datum) 0;
}

/* ---------- jobq.stat_series ---------- */

static void
put_samples(ReturnSetInfo *result, const StatSample *samples, int nsamples, uint64 next, TimestampTz from)
{
	Row			row = {0};

	for (int i = 0; i < nsamples; i++)
	{
		StatSample	sample = samples[(next + i) % nsamples];
		int64		wait[STAT_TIME_BUCKETS];

		if (sample.until == 0 || sample.until < from)
			continue;
		for (int b = 0; b < STAT_TIME_BUCKETS; b++)
			wait[b] = sample.wait[b];
		put_time(&row, sample.since);
		put_time(&row, sample.until);
		put_null(&row);
		for (int c = 0; c < STAT_TOTALS; c++)
			put_int8(&row, sample.n[c]);
		put_buckets(&row, wait, STAT_TIME_BUCKETS);
		put_row(result, &row);
	}
}

/* Adds the last 60 minutes of a type, without those in which nothing happened. */
static void
put_minutes(ReturnSetInfo *result, const TypeStats *s, TimestampTz now)
{
	uint32		last = (uint32) (now / USECS_PER_MINUTE);
	Row			row = {0};

	for (uint32 minute = last - STAT_MINUTES + 1; minute <= last; minute++)
	{
		StatMinute	m = s->entry->minutes[minute % STAT_MINUTES];

		if (m.minute != minute || m.enqueued + m.ended + m.failed == 0)
			continue;
		put_time(&row, (TimestampTz) minute * USECS_PER_MINUTE);
		put_time(&row, (TimestampTz) (minute + 1) * USECS_PER_MINUTE);
		put_text(&row, s->type_id == 0 ? "_other" : s->name);
		put_int8(&row, m.enqueued);
		put_null(&row);
		put_int8(&row, m.ended);
		put_int8(&row, m.failed);
		put_null(&row);
		put_null(&row);
		put_row(result, &row);
	}
}

/* jobq.stat_series(step) */
Datum
jobq_stat_series(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	JobqDb	   *db = begin(fcinfo, "jobq.stat_series");
	TimestampTz now = GetCurrentTimestamp();
	int64		step;
	TypeStats  *stats;
	int			n;

	if (PG_ARGISNULL(0))
		argument_is_null("step");
	step = interval_to_us(PG_GETARG_INTERVAL_P(0));
	if (step != STAT_SAMPLE_S * USECS_PER_SEC && step != STAT_COARSE_S * USECS_PER_SEC && step != USECS_PER_MINUTE)
		argument_no_choice("step", DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(0))),
						   "\"10 seconds\", \"1 minute\", \"2 minutes\"");
	if (db == NULL)
		return (Datum) 0;
	if (step == STAT_SAMPLE_S * USECS_PER_SEC)
		put_samples(result, db->stats.fine, STAT_SAMPLES, db->stats.nfine, now - USECS_PER_HOUR);
	else if (step == STAT_COARSE_S * USECS_PER_SEC)
		put_samples(result, db->stats.coarse, STAT_COARSES, db->stats.ncoarse + 1, now - USECS_PER_DAY);
	else
	{
		n = type_stats_read(db, &stats);
		for (int i = 0; i < n; i++)
			put_minutes(result, &stats[i], now);
	}
	return (Datum) 0;
}
