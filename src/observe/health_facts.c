/*
 * health_facts.c
 *	  The queries behind jobq.health().
 *
 * They run as the owner of jobq's tables, because the right to call health()
 * includes no right to read them.  Search path and planner settings are fixed:
 * the caller's do not count.
 */
#include "jobq.h"

#include "access/xact.h"
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
#include "observe/health_facts.h"
#include "security/access.h"
#include "shared/slots.h"

#define MAX_BLOCKED_KEYS	10		/* listed by name */
#define LOCK_LIMIT			"500ms"
#define RECENT_DEAD_LIMIT	10000
#define MAX_OLD_JOBS		1000	/* read for the oldest: each is looked up in all slots */

/*
 * The first waiting job of each lane, by the lane index: ORDER BY ... LIMIT 1
 * reads one entry, however many jobs wait.
 */
#define LANES \
	"WITH RECURSIVE lane(type_id, at) AS (" \
	"  SELECT t.id, (SELECT ARRAY[q.priority, q.sublane] FROM jobq.queue q WHERE q.type_id = t.id" \
	"                 ORDER BY q.priority DESC, q.sublane LIMIT 1)" \
	"    FROM jobq.job_types t" \
	"  UNION ALL" \
	"  SELECT l.type_id, coalesce(" \
	"    (SELECT ARRAY[q.priority, q.sublane] FROM jobq.queue q" \
	"      WHERE q.type_id = l.type_id AND q.priority = l.at[1] AND q.sublane > l.at[2]" \
	"      ORDER BY q.sublane LIMIT 1)," \
	"    (SELECT ARRAY[q.priority, q.sublane] FROM jobq.queue q" \
	"      WHERE q.type_id = l.type_id AND q.priority < l.at[1]" \
	"      ORDER BY q.priority DESC, q.sublane LIMIT 1))" \
	"    FROM lane l WHERE l.at IS NOT NULL),"

static const char facts_query[] =
	LANES
	" head AS ("
	"  SELECT h.id, h.position,"
	"         CASE WHEN t.paused AND (t.paused_until IS NULL OR t.paused_until > clock_timestamp()) THEN t.name END AS paused"
	"    FROM lane l JOIN jobq.job_types t ON t.id = l.type_id"
	"   CROSS JOIN LATERAL (SELECT q.id, q.position FROM jobq.queue q"
	"                        WHERE q.type_id = l.type_id AND q.priority = l.at[1]"
	"                          AND q.sublane = l.at[2]"
	"                          AND jobq_internal._live_status(q.id, q.rev, q.status) IN ('pending', 'retry')"
	"                          AND q.position <= clock_timestamp()"
	"                          AND ($1 OR jobq_internal._sees($2, q.tenant, q.type_id, q.enqueued_by))"
	"                        ORDER BY q.position LIMIT 1) h"
	"   WHERE l.at IS NOT NULL),"
	" oldest AS (SELECT id, position FROM head WHERE paused IS NULL ORDER BY position LIMIT 1) "
	"SELECT CASE WHEN $1 THEN (SELECT coalesce(sum(change), 0)::int8 FROM jobq.dead_letter_count)"
	"            ELSE (SELECT count(*) FROM jobq.dead_letters d"
	"                   WHERE jobq_internal._sees($2, d.tenant, d.type_id, d.enqueued_by)) END,"
	"       (SELECT id::text FROM oldest),"
	"       (SELECT extract(epoch FROM clock_timestamp() - position)::float8 FROM oldest),"
	"       (SELECT string_agg(DISTINCT format('\"%s\"', paused) COLLATE \"C\", ', ') FROM head WHERE paused IS NOT NULL),"
	"       (SELECT count(*) FROM pg_stat_activity WHERE backend_type NOT IN ('client backend',"
	"          'autovacuum launcher', 'autovacuum worker', 'background writer', 'checkpointer',"
	"          'walwriter', 'walsender', 'walreceiver', 'archiver', 'startup', 'logger',"
	"          'walsummarizer', 'slotsync worker', 'io worker', 'standalone backend')),"
	"       pg_notification_queue_usage(),"
	"       pg_total_relation_size('jobq.queue'),"
	"       pg_stat_get_dead_tuples('jobq.queue'::regclass), pg_stat_get_live_tuples('jobq.queue'::regclass)";

/*
 * $3: the moment after which a dead letter counts, $4: how many are counted at
 * most.
 */
static const char recent_dead_query[] =
	"WITH RECURSIVE t(id) AS ("	/* the types that have some, an index entry each */
	"  SELECT min(type_id) FROM jobq.dead_letters"
	"  UNION ALL SELECT (SELECT min(d.type_id) FROM jobq.dead_letters d WHERE d.type_id > t.id) FROM t WHERE t.id IS NOT NULL) "
	"SELECT count(*) FROM ("
	"  SELECT FROM t CROSS JOIN LATERAL (SELECT FROM jobq.dead_letters d"
	"    WHERE d.type_id = t.id AND d.completed_at > $3 AND ($1 OR jobq_internal._sees($2, d.tenant, d.type_id, d.enqueued_by))"
	"    ORDER BY d.completed_at DESC LIMIT $4) d"
	"  LIMIT $4) r";

/* All types that are not dropped. */
static const char types_query[] =
	"SELECT name, command IS NOT NULL, paused AND (paused_until IS NULL OR paused_until > clock_timestamp())"
	"  FROM jobq.job_types WHERE dropped_at IS NULL ORDER BY name COLLATE \"C\"";

/* $1: ids of types whose tool cannot be started, $2: the jobs that tried. */
static const char unstartable_query[] =
	"SELECT string_agg(format('\"%s\"%s', t.name, ': ' || q.error_msg), '; ' ORDER BY t.name COLLATE \"C\"), count(*)"
	"  FROM unnest($1, $2) u(type_id, job) JOIN jobq.job_types t ON t.id = u.type_id AND t.dropped_at IS NULL"
	"  LEFT JOIN jobq.queue q ON q.id = u.job AND q.error_code IS NULL";

/*
 * Concurrency keys that due jobs have waited for too long.  Other jobs pass a
 * job that waits for its key, so it is among the first of its lane.
 */
static const char keys_query[] =
	LANES
	" old AS ("
	"  SELECT o.key_hash, o.concurrency_key,"
	"         min(coalesce((t.options ->> 'concurrency_per_key')::int, 1)) AS per_key,"
	"         bool_or(t.options ->> 'key_order' = 'fifo' AND EXISTS ("
	"           SELECT FROM jobq.queue r WHERE r.key_hash = o.key_hash AND r.key_since < o.key_since)) AS behind"
	"    FROM lane l JOIN jobq.job_types t ON t.id = l.type_id"
	"   CROSS JOIN LATERAL (SELECT q.* FROM jobq.queue q"
	"                        WHERE q.type_id = l.type_id AND q.priority = l.at[1] AND q.sublane = l.at[2]"
	"                          AND q.position < clock_timestamp() - interval '1 hour'"
	"                        ORDER BY q.position LIMIT 20) o"
	"   WHERE l.at IS NOT NULL AND o.key_hash IS NOT NULL"
	"     AND NOT (t.paused AND (t.paused_until IS NULL OR t.paused_until > clock_timestamp()))"
	"     AND jobq_internal._live_status(o.id, o.rev, o.status) IN ('pending', 'retry')"
	"     AND ($1 OR jobq_internal._sees($2, o.tenant, o.type_id, o.enqueued_by))"
	"   GROUP BY 1, 2)"
	"SELECT key_hash, concurrency_key, per_key, coalesce(behind, false) FROM old ORDER BY 2";

/*
 * Dead letters that jobs have waited for too long, among the newest of each
 * type.
 */
static const char held_query[] =
	"WITH RECURSIVE t(id) AS ("
	"  SELECT min(type_id) FROM jobq.dead_letters"
	"  UNION ALL SELECT (SELECT min(d.type_id) FROM jobq.dead_letters d WHERE d.type_id > t.id) FROM t WHERE t.id IS NOT NULL) "
	"SELECT r.id FROM ("
	"  SELECT d.id, d.tenant, d.type_id, d.enqueued_by FROM t CROSS JOIN LATERAL ("
	"    SELECT * FROM jobq.dead_letters l WHERE l.type_id = t.id AND l.completed_at < clock_timestamp() - interval '1 hour'"
	"     ORDER BY l.completed_at DESC LIMIT 1000) d LIMIT 1000) r"
	" WHERE EXISTS (SELECT FROM jobq.dependencies e JOIN jobq.queue q ON q.id = e.child_id"
	"                WHERE e.parent_id = r.id AND q.status = 'blocked' AND q.after_rule = 'success')"
	"   AND ($1 OR jobq_internal._sees($2, r.tenant, r.type_id, r.enqueued_by))"
	" ORDER BY 1 DESC LIMIT 10";

static const char holder_query[] =
	"SELECT holder, since_s::float8, xids::int8 FROM ("
	"  SELECT format('%s with PID %s (%s)%s', backend_type, pid, coalesce(state, 'no state'),"
	"                ', application ' || nullif(application_name, '')),"
	"         extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start)),"
	"         greatest(age(backend_xmin), age(backend_xid))"
	"    FROM pg_stat_activity"
	"   WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()"
	"     AND (datid IS NULL OR datid = (SELECT oid FROM pg_database WHERE datname = current_database()))"
	"  UNION ALL"
	"  SELECT format('replication slot %s', slot_name), NULL, age(xmin)"
	"    FROM pg_replication_slots WHERE xmin IS NOT NULL"
	"  UNION ALL"
	"  SELECT format('prepared transaction \"%s\"', gid),"
	"         extract(epoch FROM clock_timestamp() - prepared), age(transaction)"
	"    FROM pg_prepared_xacts WHERE database = current_database()"
	") AS held(holder, since_s, xids) ORDER BY xids DESC, since_s DESC NULLS LAST LIMIT 1";

static const char signals_query[] =
	"SELECT (SELECT coalesce(json_agg(a.name ORDER BY a.name)::text, CASE WHEN EXISTS (SELECT FROM jobq.signals) THEN '[]' END) FROM ("
	"          SELECT s.name FROM jobq.signals s"
	"           WHERE s.active AND (s.active_until IS NULL OR s.active_until > clock_timestamp())"
	"          UNION ALL SELECT b FROM jobq_internal._builtin_signals() b) a(name)),"
	"       (SELECT string_agg(format('the condition of signal \"%s\": %s', s.name, s.problem), '; ' ORDER BY s.name)"
	"          FROM jobq.signals s WHERE s.problem IS NOT NULL)";

static const char schedules_query[] =
	"SELECT count(*) FILTER (WHERE s.status = 'active'), count(*) FILTER (WHERE s.paused_by_jobq),"
	"       greatest(extract(epoch FROM clock_timestamp() - min(s.next_tick) FILTER (WHERE s.status = 'active')), 0)::float8"
	"  FROM jobq.schedules s WHERE s.home_id = jobq_internal._home_id()";

static const char some_before_drops_query[] = "SELECT 1 FROM jobq.before_drops";

/* The ranges that wait for a job which has failed, or could not be enqueued. */
static const char before_drops_query[] =
	"SELECT count(*), min(b.problem)"
	"  FROM jobq.before_drops b"
	" WHERE b.problem IS NOT NULL OR EXISTS (SELECT FROM jobq.dead_letters d WHERE d.id = b.job_id)";

static const char strays_query[] =
	"SELECT string_agg(DISTINCT CASE s.grantee WHEN 0 THEN 'PUBLIC' ELSE format('\"%s\"', pg_get_userbyid(s.grantee)) END, ', ')"
	"  FROM jobq_internal._stray_grants() s";

/*
 * Runs a query.  $1: true if the caller sees every job.  $2: the caller.  $3,
 * $4: see recent_dead_query.
 */
static void
run_query(const char *query, Oid caller, int nrows)
{
	Oid			types[4] = {BOOLOID, OIDOID, TIMESTAMPTZOID, INT4OID};
	Datum		args[4];

	args[0] = BoolGetDatum(access_may_everywhere(caller, ACCESS_READ, NULL));
	args[1] = ObjectIdGetDatum(caller);
	args[2] = TimestampTzGetDatum(GetCurrentTimestamp() - (int64) jobq_health_dead_age * USECS_PER_SEC);
	args[3] = Int32GetDatum(Max(jobq_health_dead_letters, RECENT_DEAD_LIMIT));
	if (SPI_execute_with_args(query, 4, types, args, NULL, true, nrows) != SPI_OK_SELECT)
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

/* Returns an array of names, or NULL. */
static char *
blocked_keys(Oid caller)
{
	StringInfoData names;
	int			n = 0;

	initStringInfo(&names);
	run_query(keys_query, caller, MAX_OLD_JOBS);
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
	run_query(held_query, caller, 0);
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
	if (SPI_execute_with_args(unstartable_query, 2, argtypes, args, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "health could not query the server");
	f->unstartable = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->nunstartable -= n - (int) DatumGetInt64(value_of(2, &isnull));
}

/* Counts the types that the caller may know. */
static void
count_types(HealthFacts *f, Oid caller)
{
	StringInfoData paused;

	initStringInfo(&paused);
	run_query(types_query, caller, 0);
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

	if (db != NULL && db->conductor.proc != NULL)
	{
		due = (TimestampTz) pg_atomic_read_u64(&db->schedules.due);
		f->active_schedules = pg_atomic_read_u32(&db->schedules.active);
		f->paused_schedules = pg_atomic_read_u32(&db->schedules.paused);
		f->schedules_late_s = due == 0 ? 0 : Max(GetCurrentTimestamp() - due, 0) / 1e6;
		return;
	}
	run_query(schedules_query, caller, 1);
	f->active_schedules = count_of(1);
	f->paused_schedules = count_of(2);
	f->schedules_late_s = DatumGetFloat8(value_of(3, &isnull));
	if (isnull)
		f->schedules_late_s = 0;
}

/* Where nothing is to be dropped, a lock of the dead letters does not matter. */
static void
read_before_drops(HealthFacts *f, Oid caller)
{
	run_query(some_before_drops_query, caller, 1);
	if (SPI_processed == 0)
		return;
	run_query(before_drops_query, caller, 1);
	f->stuck_drops = count_of(1);
	f->drop_problem = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
}

static void
read_strays(HealthFacts *f, Oid caller)
{
	run_query(strays_query, caller, 1);
	f->strays = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

static void
read_facts(HealthFacts *f, Oid caller)
{
	bool		isnull;

	f->sees_all = access_may_everywhere(caller, ACCESS_READ, NULL);
	count_types(f, caller);
	run_query(facts_query, caller, 1);
	f->dead_letters = count_of(1);
	f->oldest_id = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
	f->waiting = f->oldest_id != NULL;
	if (f->waiting)
		f->oldest_s = Max(DatumGetFloat8(value_of(3, &isnull)), 0);
	f->paused_waiting = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 4);
	f->background_workers = count_of(5);
	f->notify_usage = DatumGetFloat8(value_of(6, &isnull));
	f->queue_bytes = count_of(7);
	f->dead_rows = count_of(8);
	f->live_rows = count_of(9);

	if (f->dead_letters > 0)
	{
		run_query(recent_dead_query, caller, 1);
		f->recent_dead_letters = count_of(1);
	}

	run_query(signals_query, caller, 1);
	f->signals = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->signal_problem = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

	read_schedules(f, caller);
	read_before_drops(f, caller);
	f->blocked_keys = blocked_keys(caller);
	if (f->dead_letters > 0)	/* else their lock does not matter */
		f->holding = holding_dead_letters(caller);
	if (f->exec_types > 0)
		read_unstartable(f);

	if (f->sees_all)
		read_strays(f, caller);

	run_query(holder_query, caller, 1);
	if (SPI_processed == 0)
		return;
	f->holder = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	f->holder_s = DatumGetFloat8(value_of(2, &isnull));
	f->holder_since = !isnull;
	f->holder_xids = count_of(3);
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
	char	  **strings[] = {&f->oldest_id, &f->signals, &f->signal_problem, &f->blocked_keys, &f->holding, &f->holder, &f->strays,
	&f->paused_names, &f->paused_waiting, &f->unstartable, &f->drop_problem};

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
	set_for_query("jit", "off");
	set_for_query("max_parallel_workers_per_gather", "0");
	set_for_query("lock_timeout", LOCK_LIMIT);
	done = try_to_read(f, caller.role);
	act_as_caller(caller);
	AtEOXact_GUC(false, nest);
	return done;
}
