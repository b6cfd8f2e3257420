/*
 * health_facts.c
 *	  What jobq.health() reads from tables, by the functions of
 *	  src/sql/81_health.sql.
 *
 * They run as the owner of jobq's tables, because the right to call health()
 * includes no right to read them.  Search path and planner settings are fixed:
 * the caller's do not count.
 */
#include "jobq.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/act_as.h"
#include "base/errors.h"
#include "base/relations.h"
#include "base/subtransaction.h"
#include "maintenance/queue_space.h"
#include "observe/health_facts.h"
#include "security/access.h"
#include "shared/slots.h"

#define MAX_BLOCKED_KEYS	10		/* listed by name */
#define LOCK_LIMIT			"500ms"
#define RECENT_DEAD_LIMIT	10000
#define MAX_OLD_JOBS		1000	/* read for the oldest: each is looked up in all slots */

static Datum lanes[3];			/* types, priorities and sublanes of the lanes that have jobs */

/*
 * Runs a query.  $1: true if the caller sees every job.  $2: the caller.  $3:
 * the moment after which a dead letter counts, $4: how many are counted at
 * most.  $5 to $7: `lanes`.
 */
static void
run_query(const char *query, Oid caller, int nrows)
{
	Oid			types[7] = {BOOLOID, OIDOID, TIMESTAMPTZOID, INT4OID, INT4ARRAYOID, INT2ARRAYOID, INT2ARRAYOID};
	Datum		args[7];

	args[0] = BoolGetDatum(access_may_everywhere(caller, ACCESS_READ, NULL));
	args[1] = ObjectIdGetDatum(caller);
	args[2] = TimestampTzGetDatum(GetCurrentTimestamp() - (int64) jobq_health_dead_age * USECS_PER_SEC);
	args[3] = Int32GetDatum(Max(jobq_health_dead_letters, RECENT_DEAD_LIMIT));
	memcpy(&args[4], lanes, sizeof(lanes));
	if (SPI_execute_with_args(query, 7, types, args, NULL, true, nrows) != SPI_OK_SELECT)
		elog(ERROR, "health could not query the server");
}

static Datum
value_of(int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, isnull);
}

static int64
count_of(int column)
{
	bool		isnull;

	return DatumGetInt64(value_of(column, &isnull));
}

/* Returns 0 for NULL. */
static TimestampTz
time_of(int column)
{
	bool		isnull;
	Datum		value = value_of(column, &isnull);

	return isnull ? 0 : DatumGetTimestampTz(value);
}

/* Ends a JSON array and returns it; NULL: it is empty. */
static char *
close_array(StringInfo names)
{
	if (names->len == 0)
		return NULL;
	appendStringInfoChar(names, ']');
	return names->data;
}

static void
add_name(StringInfo names, const char *name)
{
	appendStringInfoString(names, names->len == 0 ? "[" : ", ");
	escape_json(names, name);
}

/* Reads `lanes`: to find them is most of the work where there are many types. */
static void
read_lanes(Oid caller)
{
	bool		isnull;

	for (int i = 0; i < 3; i++)
		lanes[i] = PointerGetDatum(construct_empty_array(i == 0 ? INT4OID : INT2OID));
	run_query("SELECT coalesce(array_agg(l.type_id), '{}'), coalesce(array_agg(l.priority), '{}'), coalesce(array_agg(l.sublane), '{}')"
			  " FROM jobq_internal._lane_heads() l", caller, 1);
	for (int i = 0; i < 3; i++)
		lanes[i] = value_of(i + 1, &isnull);
}

/* Returns an array of names, or NULL. */
static char *
blocked_keys(Oid caller)
{
	StringInfoData names;
	int			n = 0;

	initStringInfo(&names);
	run_query("SELECT * FROM jobq_internal._health_keys($1, $2, $5, $6, $7)", caller, MAX_OLD_JOBS);
	for (uint64 i = 0; i < SPI_processed && n < MAX_BLOCKED_KEYS; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		uint64		hash = DatumGetUInt64(SPI_getbinval(row, desc, 1, &isnull));

		if (!DatumGetBool(SPI_getbinval(row, desc, 4, &isnull)) &&
			slots_of_key(MyDatabaseId, hash) < DatumGetInt32(SPI_getbinval(row, desc, 3, &isnull)))
			continue;
		add_name(&names, SPI_getvalue(row, desc, 2));
		n++;
	}
	return close_array(&names);
}

/* Returns an array of dead letters that hold jobs, or NULL. */
static char *
holding_dead_letters(Oid caller)
{
	StringInfoData ids;

	initStringInfo(&ids);
	run_query("SELECT * FROM jobq_internal._health_holding($1, $2)", caller, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		add_name(&ids, SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
	return close_array(&ids);
}

/*
 * Reads the types whose tool cannot be started here, as the exec worker
 * reports.
 */
static void
read_unstartable(HealthFacts *f)
{
	JobqDb	   *db = my_db();
	Datum	   *types = palloc(sizeof(Datum) * JOBQ_MAX_UNSTARTABLE);
	Datum	   *jobs = palloc(sizeof(Datum) * JOBQ_MAX_UNSTARTABLE);
	Oid			argtypes[2] = {INT4ARRAYOID, UUIDARRAYOID};
	Datum		args[2];
	int			n;
	bool		isnull;

	if (db == NULL || db->unstartable.ntypes == 0)
		return;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	f->nunstartable = db->unstartable.ntypes;
	n = Min(f->nunstartable, JOBQ_MAX_UNSTARTABLE);
	for (int i = 0; i < n; i++)
	{
		pg_uuid_t  *job = palloc(sizeof(pg_uuid_t));

		*job = db->unstartable.types[i].job;
		types[i] = Int32GetDatum(db->unstartable.types[i].type_id);
		jobs[i] = UUIDPGetDatum(job);
	}
	LWLockRelease(JobqShmem->lock);
	args[0] = PointerGetDatum(construct_array(types, n, INT4OID, sizeof(int32), true, TYPALIGN_INT));
	args[1] = PointerGetDatum(construct_array(jobs, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	if (SPI_execute_with_args("SELECT * FROM jobq_internal._health_unstartable($1, $2)", 2, argtypes, args, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "health could not query the server");
	f->unstartable = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->nunstartable -= n - (int) DatumGetInt64(value_of(2, &isnull));
}

/*
 * Reads the pull types that no worker claims jobs of, as the dispatcher found
 * with its last sweep, if they have due jobs: it does not know of those that
 * were cancelled meanwhile.
 */
static void
read_unclaimed(HealthFacts *f)
{
	JobqDb	   *db = my_db();
	int32		ids[STAT_UNCLAIMED];
	Datum		types[STAT_UNCLAIMED];
	Oid			argtypes[5] = {INT4ARRAYOID, INT4OID, INT4ARRAYOID, INT2ARRAYOID, INT2ARRAYOID};
	Datum		args[5];
	int			total;
	int			n;

	if (db == NULL || db->stats.nunclaimed == 0)
		return;
	SpinLockAcquire(&db->mutex);
	total = db->stats.nunclaimed;
	memcpy(ids, db->stats.unclaimed, sizeof(ids));
	SpinLockRelease(&db->mutex);
	n = Min(total, STAT_UNCLAIMED);
	for (int i = 0; i < n; i++)
		types[i] = Int32GetDatum(ids[i]);
	args[0] = PointerGetDatum(construct_array(types, n, INT4OID, sizeof(int32), true, TYPALIGN_INT));
	args[1] = Int32GetDatum(total - n);
	memcpy(&args[2], lanes, sizeof(lanes));
	if (SPI_execute_with_args("SELECT jobq_internal._health_unclaimed($1, $2, $3, $4, $5)", 5, argtypes, args, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "health could not query the server");
	f->unclaimed = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/* Counts the types that the caller may know. */
static void
count_types(HealthFacts *f, Oid caller)
{
	StringInfoData paused;

	initStringInfo(&paused);
	run_query("SELECT * FROM jobq_internal._health_types()", caller, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;

		if (!f->sees_all && !access_knows_type(caller, SPI_getvalue(row, desc, 1)))
			continue;
		f->types++;
		f->exec_types += DatumGetBool(SPI_getbinval(row, desc, 2, &isnull));
		if (!DatumGetBool(SPI_getbinval(row, desc, 3, &isnull)))
			continue;
		f->paused_types++;
		if (f->sees_all)
			add_name(&paused, SPI_getvalue(row, desc, 1));
	}
	f->paused_names = close_array(&paused);
}

/*
 * Reads the conductor's counts, or the rows when it does not run: then they
 * are few, or it could not be started.
 */
static void
read_schedules(HealthFacts *f, Oid caller)
{
	JobqDb	   *db = my_db();
	TimestampTz due;
	bool		isnull;

	if (db != NULL && db->conductor.child.proc != NULL)
	{
		due = (TimestampTz) pg_atomic_read_u64(&db->schedules.due);
		f->active_schedules = pg_atomic_read_u32(&db->schedules.active);
		f->paused_schedules = pg_atomic_read_u32(&db->schedules.paused);
		f->schedules_late_s = due == 0 ? 0 : Max(GetCurrentTimestamp() - due, 0) / 1e6;
		return;
	}
	run_query("SELECT * FROM jobq_internal._health_schedules()", caller, 1);
	f->active_schedules = count_of(1);
	f->paused_schedules = count_of(2);
	f->schedules_late_s = DatumGetFloat8(value_of(3, &isnull));
}

static void
read_before_drops(HealthFacts *f, Oid caller)
{
	run_query("SELECT * FROM jobq_internal._health_before_drops()", caller, 1);
	f->stuck_drops = count_of(1);
	f->drop_problem = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
}

static void
read_default_partitions(HealthFacts *f, Oid caller)
{
	bool		isnull;

	run_query("SELECT * FROM jobq_internal._health_default_rows()", caller, 1);
	f->default_rows = count_of(1);
	f->unmade = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
	f->too_large = DatumGetBool(value_of(3, &isnull));
}

static void
read_strays(HealthFacts *f, Oid caller)
{
	run_query("SELECT * FROM jobq_internal._health_strays()", caller, 1);
	f->strays = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/*
 * Reads the holder of the horizon.  That of a slot or a standby has held it
 * since the horizon stands still, as maintenance has noted.
 */
static void
read_holder(HealthFacts *f)
{
	JobqDb	   *db = my_db();
	QueueSpace	space = {0};
	MonoTime	now = mono_now();
	Oid			types[4] = {XIDOID, FLOAT8OID, XIDOID, FLOAT8OID};
	Datum		args[4];
	char		nulls[4];
	bool		isnull;

	if (db != NULL && !RecoveryInProgress())
		space = queue_space(db);
	for (int i = 0; i < 2; i++)
	{
		const Horizon *horizon = i == 0 ? &space.horizon : &space.catalog_horizon;

		args[2 * i] = TransactionIdGetDatum(horizon->xmin);
		args[2 * i + 1] = Float8GetDatum((now - horizon->since) / 1e6);
		nulls[2 * i] = nulls[2 * i + 1] = horizon->since ? ' ' : 'n';
	}
	if (SPI_execute_with_args("SELECT * FROM jobq_internal._health_holder($1, $2, $3, $4)", 4, types, args, nulls, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "health could not query the server");
	if (SPI_processed == 0)
		return;
	f->holder = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->holder_s = DatumGetFloat8(value_of(2, &isnull));
	f->holder_since = !isnull;
	f->holder_xids = count_of(3);
	f->holder_lever = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 4);
}

static void
read_facts(HealthFacts *f, Oid caller)
{
	bool		isnull;

	f->sees_all = access_may_everywhere(caller, ACCESS_READ, NULL);
	read_lanes(caller);
	count_types(f, caller);
	run_query("SELECT * FROM jobq_internal._health_waiting($1, $2, $5, $6, $7)", caller, 1);
	f->oldest_id = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->waiting = f->oldest_id != NULL;
	if (f->waiting)
		f->oldest_s = Max(DatumGetFloat8(value_of(2, &isnull)), 0);
	f->paused_waiting = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 3);
	f->paused_since = time_of(4);
	run_query("SELECT * FROM jobq_internal._health_server()", caller, 1);
	f->background_workers = count_of(1);
	f->notify_usage = DatumGetFloat8(value_of(2, &isnull));
	f->queue_bytes = count_of(3);
	f->dead_rows = count_of(4);
	f->live_rows = count_of(5);
	run_query("SELECT * FROM jobq_internal._health_dead_letters($1, $2)", caller, 1);
	f->dead_letters = count_of(1);
	if (f->dead_letters > 0)
	{
		run_query("SELECT * FROM jobq_internal._health_recent_dead_letters($1, $2, $3, $4)", caller, 1);
		f->recent_dead_letters = count_of(1);
		f->dead_since = time_of(2);
	}

	run_query("SELECT * FROM jobq_internal._health_signals()", caller, 1);
	f->signals = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->signal_problem = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

	read_schedules(f, caller);
	read_before_drops(f, caller);
	read_default_partitions(f, caller);
	f->blocked_keys = blocked_keys(caller);
	if (f->dead_letters > 0)	/* else their lock does not matter */
		f->holding = holding_dead_letters(caller);
	if (f->exec_types > 0)
		read_unstartable(f);
	read_unclaimed(f);

	if (f->sees_all)
		read_strays(f, caller);

	read_holder(f);
}

static void
set_for_query(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* Copies the strings out of SPI's memory. */
static void
copy_strings(HealthFacts *f, MemoryContext context)
{
	char	  **strings[] = {&f->oldest_id, &f->signals, &f->signal_problem, &f->blocked_keys, &f->holding, &f->holder, &f->holder_lever, &f->strays,
	&f->paused_names, &f->paused_waiting, &f->unstartable, &f->unclaimed, &f->drop_problem, &f->unmade};

	for (int i = 0; i < (int) lengthof(strings); i++)
	{
		if (*strings[i] != NULL)
			*strings[i] = MemoryContextStrdup(context, *strings[i]);
	}
}

typedef struct Reading
{
	HealthFacts *facts;
	Oid			caller;
	MemoryContext context;		/* of the strings */
} Reading;

static void
read_all(void *arg)
{
	Reading    *reading = arg;

	SPI_connect();
	read_facts(reading->facts, reading->caller);
	copy_strings(reading->facts, reading->context);
	SPI_finish();
}

/* Returns false if a table or an index has been locked for LOCK_LIMIT. */
static bool
try_to_read(HealthFacts *f, Oid caller)
{
	Reading		reading = {f, caller, CurrentMemoryContext};
	ErrorData  *error = try_subtransaction(read_all, &reading);

	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return error == NULL;
}

bool
health_facts(HealthFacts *f)
{
	int			nest = NewGUCNestLevel();
	Caller		caller = act_as_owner();
	bool		done;

	memset(f, 0, sizeof(HealthFacts));
	(void) jobq_internal_schema();	/* or an error about it */
	set_for_query("search_path", "pg_catalog, pg_temp");
	set_for_query("enable_seqscan", "off");
	set_for_query("enable_bitmapscan", "off");
	set_for_query("enable_incremental_sort", "off");
	set_for_query("jit", "off");
	set_for_query("max_parallel_workers_per_gather", "0");
	set_for_query("lock_timeout", LOCK_LIMIT);
	done = try_to_read(f, caller.role);
	act_as_caller(caller);
	AtEOXact_GUC(false, nest);
	return done;
}
