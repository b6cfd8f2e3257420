/*
 * job_types.c
 *	  The registry as this process sees it.
 *
 * Rows of jobq.job_types are read one by one, by a direct scan with the latest
 * snapshot, and kept in a hash table of their own memory context.  No lookup
 * uses SPI, because enqueue and the dispatcher call one for each job.  A
 * relcache invalidation of jobq.job_types only marks the cache as stale; the
 * next lookup hands its memory to the running transaction and begins a new
 * one.  So a pointer to a JobType stays valid until the transaction ends,
 * although a handler may alter its own type meanwhile.
 *
 * The cache never remembers that a type does not exist: the error path may be
 * slow.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/interval.h"
#include "base/relations.h"
#include "registry/job_types.h"
#include "registry/options.h"
#include "tables/table_shape.h"

/* attribute numbers of jobq.job_types: src/sql/00_schema.sql */
enum
{
	T_id = 1, T_name, T_owner, T_run_as, T_handler, T_command, T_max_attempts, T_backoff,
	T_backoff_base, T_backoff_max, T_backoff_jitter, T_timeout, T_base_priority, T_max_concurrent,
	T_cpu_weight, T_rate_limit, T_rate_window, T_keep_completed, T_keep_dead, T_critical,
	T_options, T_paused, T_pause_reason, T_paused_until, T_created_at, T_dropped_at,
	T_owner_oid, T_run_as_oid, T_resumed_at, T_paused_at, T_is_workflow, T_kind
};
#define T_NATTS T_kind

static const ShapeColumn job_types_columns[] = {
	{"id", INT4OID, FILLED},
	{"name", TEXTOID, FILLED},
	{"owner", TEXTOID, FILLED},
	{"run_as", TEXTOID, FILLED},
	{"handler", TEXTOID, NULLABLE},
	{"command", TEXTARRAYOID, NULLABLE},
	{"max_attempts", INT4OID, FILLED},
	{"backoff", TEXTOID, FILLED},
	{"backoff_base", INTERVALOID, FILLED},
	{"backoff_max", INTERVALOID, FILLED},
	{"backoff_jitter", FLOAT4OID, FILLED},
	{"timeout", INTERVALOID, FILLED},
	{"base_priority", INT4OID, FILLED},
	{"max_concurrent", INT4OID, FILLED},
	{"cpu_weight", INT4OID, FILLED},
	{"rate_limit", INT4OID, FILLED},
	{"rate_window", INTERVALOID, FILLED},
	{"keep_completed", INTERVALOID, FILLED},
	{"keep_dead", INTERVALOID, NULLABLE},
	{"critical", BOOLOID, FILLED},
	{"options", JSONBOID, FILLED},
	{"paused", BOOLOID, FILLED},
	{"pause_reason", TEXTOID, NULLABLE},
	{"paused_until", TIMESTAMPTZOID, NULLABLE},
	{"created_at", TIMESTAMPTZOID, FILLED},
	{"dropped_at", TIMESTAMPTZOID, NULLABLE},
	{"owner_oid", OIDOID, NULLABLE},
	{"run_as_oid", OIDOID, NULLABLE},
	{"resumed_at", TIMESTAMPTZOID, NULLABLE},
	{"paused_at", TIMESTAMPTZOID, NULLABLE},
	{"is_workflow", BOOLOID, FILLED},
	{"kind", TEXTOID, NULLABLE}
};
const Shape job_types_shape = SHAPE("job_types", job_types_columns);

StaticAssertDecl(lengthof(job_types_columns) == T_NATTS, "job_types' columns");

/* of jobq.job_type_env */
enum
{
	E_type_id = 1, E_env
};
#define E_NATTS E_env

static const ShapeColumn job_type_env_columns[] = {{"type_id", INT4OID, FILLED}, {"env", JSONBOID, FILLED}};
const Shape job_type_env_shape = SHAPE("job_type_env", job_type_env_columns);

#define ATT(att)	(values[(att) - 1])
#define ISNULL(att)	(nulls[(att) - 1])

typedef struct NamedType
{
	char		name[NAMEDATALEN];	/* hash key */
	JobType    *type;
} NamedType;

static MemoryContext types_context = NULL;
static HTAB *types_by_id = NULL;
static HTAB *types_by_name = NULL;
static Oid	types_relid = InvalidOid;	/* table the cache was filled from */
static uint64 types_generation = 1;
static uint64 types_filled_at = 0;	/* generation the cache is of; 0: there is none */

static void
relation_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == types_relid)
		types_generation++;
}

static void
schema_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	types_generation++;
}

/* --- reading a row --- */

/*
 * True if the index can be locked at once: while REINDEX has it, the table is
 * read without it.
 */
static bool
index_is_free(Oid index)
{
	return OidIsValid(index) && ConditionalLockRelationOid(index, AccessShareLock);
}

static void
copy_text(char *to, Size size, Datum value)
{
	char	   *from = TextDatumGetCString(value);

	strlcpy(to, from, size);
	pfree(from);
}

static void
read_command(JobType *type, Datum array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			i;

	deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &type->ncommand);
	type->command = palloc0(sizeof(char *) * (type->ncommand + 1));
	for (i = 0; i < type->ncommand; i++)
		type->command[i] = nulls[i] ? pstrdup("") : TextDatumGetCString(elements[i]);
}

static void
read_retries(JobType *type, Datum *values)
{
	type->max_attempts = DatumGetInt32(ATT(T_max_attempts));
	type->backoff.exponential = strcmp(TextDatumGetCString(ATT(T_backoff)), "fixed") != 0;
	type->backoff.base_us = interval_to_us(DatumGetIntervalP(ATT(T_backoff_base)));
	type->backoff.max_us = interval_to_us(DatumGetIntervalP(ATT(T_backoff_max)));
	type->backoff.jitter = DatumGetFloat4(ATT(T_backoff_jitter));
	type->timeout_us = interval_to_us(DatumGetIntervalP(ATT(T_timeout)));
}

static void
read_retention(JobType *type, Datum *values, bool *nulls)
{
	type->keep_completed = *DatumGetIntervalP(ATT(T_keep_completed));
	type->keeps_nothing = interval_to_us(&type->keep_completed) <= 0;
	type->keep_dead_forever = ISNULL(T_keep_dead);
	if (!type->keep_dead_forever)
	{
		type->keep_dead = *DatumGetIntervalP(ATT(T_keep_dead));
		type->buries_nothing = interval_to_us(&type->keep_dead) <= 0;
	}
}

static void
read_options(JobType *type, Datum options)
{
	Jsonb	   *json = DatumGetJsonbPCopy(options);

	type->options = json;
	type->batch = option_bool(json, "batch", true);
	type->require_tenant = option_bool(json, "require_tenant", false);
	option_aging(json, &type->aging_per_us, &type->aging_max);
	type->fair = option_is(json, "fair_by", "tenant");
	type->fair_depth = option_int(json, "fair_depth", 1);
	type->max_crashes = option_int(json, "max_crashes", 2);
	type->burst = option_int(json, "burst", 0);
	type->output = option_output(json);
	type->allow_dash = option_bool(json, "allow_dash", false);
	type->max_output = option_size(json, "max_output", 0);
	type->events = option_events(json);
	type->on_complete = option_text(json, "on_complete");
	type->on_failure = option_text(json, "on_failure");
	type->on_dead = option_text(json, "on_dead");
	type->has_hooks = type->on_complete || type->on_failure || type->on_dead;
	type->alert = option_bool(json, "alert", true);
	option_breaker(json, &type->breaker_failures, &type->breaker_pause_us);
	type->kill_grace_us = option_interval(json, "kill_grace", 5 * USECS_PER_SEC);
	type->refuse_on_disk_emergency = option_bool(json, "refuse_on_disk_emergency", false);
	option_min_batch(json, &type->min_batch_jobs, &type->min_batch_wait_us);
	type->stall_us = option_interval(json, "stall", 0);
	type->max_lease_us = option_interval(json, "max_lease", USECS_PER_HOUR);
	type->lease_follows_connection = option_bool(json, "lease_follows_connection", false);
	type->keep_completed_count = option_int(json, "keep_completed_count", -1);
	type->keeps_nothing |= type->keep_completed_count == 0;
	type->buries_nothing |= option_int(json, "keep_dead_count", -1) == 0;
}

/*
 * Returns options.env of the type, as of the snapshot that its row was read
 * with.
 */
static Jsonb *
read_env(const JobType *type, Snapshot snapshot)
{
	Oid			index = jobq_relid("job_type_env_pkey");
	Jsonb	   *env = NULL;
	bool		by_index;
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	rel = shape_open("job_type_env", AccessShareLock);
	by_index = index_is_free(index);
	ScanKeyInit(&key, E_type_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(type->id));
	scan = systable_beginscan(rel, index, by_index, snapshot, 1, &key);
	if (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[E_NATTS];
		bool		nulls[E_NATTS];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		env = DatumGetJsonbPCopy(ATT(E_env));
	}
	systable_endscan(scan);
	if (by_index)
		UnlockRelationOid(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return env;
}

/* Fills type, whose id is set already. */
static void
read_type(JobType *type, Datum *values, bool *nulls, Snapshot snapshot)
{
	copy_text(type->name, sizeof(type->name), ATT(T_name));
	copy_text(type->owner, sizeof(type->owner), ATT(T_owner));
	copy_text(type->run_as, sizeof(type->run_as), ATT(T_run_as));
	if (!ISNULL(T_handler))
		type->handler = TextDatumGetCString(ATT(T_handler));
	if (!ISNULL(T_command))
		read_command(type, ATT(T_command));
	read_retries(type, values);
	read_retention(type, values, nulls);
	type->base_priority = DatumGetInt32(ATT(T_base_priority));
	type->max_concurrent = DatumGetInt32(ATT(T_max_concurrent));
	type->cpu_weight = DatumGetInt32(ATT(T_cpu_weight));
	type->rate_limit = DatumGetInt32(ATT(T_rate_limit));
	type->rate_window_us = interval_to_us(DatumGetIntervalP(ATT(T_rate_window)));
	type->critical = DatumGetBool(ATT(T_critical));
	type->paused = DatumGetBool(ATT(T_paused));
	type->paused_until = ISNULL(T_paused_until) ? DT_NOEND : DatumGetTimestampTz(ATT(T_paused_until));
	type->resumed_at = ISNULL(T_resumed_at) ? DT_NOBEGIN : DatumGetTimestampTz(ATT(T_resumed_at));
	type->paused_at = ISNULL(T_paused_at) ? DT_NOBEGIN : DatumGetTimestampTz(ATT(T_paused_at));
	type->dropped = !ISNULL(T_dropped_at);
	type->workflow = !ISNULL(T_is_workflow) && DatumGetBool(ATT(T_is_workflow));
	type->owner_oid = ISNULL(T_owner_oid) ? InvalidOid : DatumGetObjectId(ATT(T_owner_oid));
	type->run_as_oid = ISNULL(T_run_as_oid) ? InvalidOid : DatumGetObjectId(ATT(T_run_as_oid));
	read_options(type, ATT(T_options));
	if (type->command != NULL)
		type->env = read_env(type, snapshot);
}

/* --- roles --- */

static Oid
existing_role(Oid role)
{
	return SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)) ? role : InvalidOid;
}

Oid
job_type_owner(const JobType *type)
{
	return existing_role(type->owner_oid);
}

Oid
job_type_run_as(const JobType *type)
{
	return existing_role(type->run_as_oid);
}

void
job_type_check_owner(const JobType *type, Oid run_as)
{
	Oid			owner = job_type_owner(type);

	if (!OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\", the owner of job type \"%s\", does not exist any more", type->owner, type->name)));
	if (!member_can_set_role(owner, run_as))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: owner \"%s\" of job type \"%s\" may not become role \"%s\"",
						GetUserNameFromId(owner, false), type->name, GetUserNameFromId(run_as, false))));
}

static bool
is_stale(Oid role, const char *name)
{
	char	   *now = GetUserNameFromId(role, true);

	return now != NULL && strcmp(now, name) != 0;
}

bool
job_type_names_stale(const JobType *type)
{
	return is_stale(type->owner_oid, type->owner) || is_stale(type->run_as_oid, type->run_as);
}

/* --- the cache --- */

/*
 * Begins an empty cache.  Old entries stay valid until the transaction ends.
 */
static void
cache_begin(void)
{
	static bool registered = false;
	HASHCTL		ctl;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, schema_changed, (Datum) 0);
		registered = true;
	}
	if (types_filled_at == types_generation)
		return;
	types_filled_at = 0;
	if (types_context != NULL)
		MemoryContextSetParent(types_context, TopTransactionContext);
	types_context = NULL;
	types_context = AllocSetContextCreate(CacheMemoryContext, "jobq job types",
										  ALLOCSET_SMALL_SIZES);
	ctl.keysize = sizeof(int32);
	ctl.entrysize = sizeof(JobType);
	ctl.hcxt = types_context;
	types_by_id = hash_create("jobq types", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.keysize = NAMEDATALEN;
	ctl.entrysize = sizeof(NamedType);
	types_by_name = hash_create("jobq type names", 64, &ctl,
								HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	types_filled_at = types_generation;
}

/*
 * Puts a row into the cache.  The entry is made last: an error leaves no
 * half-filled one.
 */
static JobType *
cache_add(Datum *values, bool *nulls, Snapshot snapshot)
{
	JobType		draft;
	JobType    *type;
	MemoryContext old = MemoryContextSwitchTo(types_context);

	memset(&draft, 0, sizeof(draft));
	draft.id = DatumGetInt32(ATT(T_id));
	read_type(&draft, values, nulls, snapshot);
	type = hash_search(types_by_id, &draft.id, HASH_ENTER, NULL);
	*type = draft;
	if (!type->dropped)
	{
		NamedType  *named = hash_search(types_by_name, type->name, HASH_ENTER, NULL);

		named->type = type;
	}
	MemoryContextSwitchTo(old);
	return type;
}

/* Reads the row that key finds; with live only one that is not dropped. */
static JobType *
load_type(const char *index_name, ScanKey key, bool live)
{
	Oid			relid = jobq_relid("job_types");
	Oid			index = jobq_relid(index_name);
	JobType    *type = NULL;
	bool		by_index;
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(relid))
		return NULL;
	rel = shape_open("job_types", AccessShareLock);
	cache_begin();				/* the lock may have brought invalidations */
	types_relid = relid;
	snapshot = RegisterSnapshot(IsInParallelMode() ? GetActiveSnapshot() : GetLatestSnapshot());
	by_index = index_is_free(index);
	scan = systable_beginscan(rel, index, by_index, snapshot, 1, key);
	while (type == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[T_NATTS];
		bool		nulls[T_NATTS];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		if (!live || ISNULL(T_dropped_at))
			type = cache_add(values, nulls, snapshot);
	}
	systable_endscan(scan);
	if (by_index)
		UnlockRelationOid(index, AccessShareLock);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return type;
}

/* Ends a pause that has run out, before the registry's row says so. */
static JobType *
as_of_now(JobType *type)
{
	if (type != NULL && type->paused && type->paused_until <= GetCurrentTimestamp())
		type->paused = false;
	return type;
}

JobType *
job_type_by_name(const char *name)
{
	NamedType  *named;
	ScanKeyData key;

	if (strlen(name) >= NAMEDATALEN)
		return NULL;
	AcceptInvalidationMessages();
	cache_begin();
	named = hash_search(types_by_name, name, HASH_FIND, NULL);
	if (named != NULL)
		return as_of_now(named->type);
	ScanKeyEntryInitialize(&key, 0, T_name, BTEqualStrategyNumber, InvalidOid,
						   DEFAULT_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(name));
	return as_of_now(load_type("job_types_name", &key, true));
}

JobType *
job_type_by_id(int32 id)
{
	JobType    *type;
	ScanKeyData key;

	cache_begin();
	type = hash_search(types_by_id, &id, HASH_FIND, NULL);
	if (type != NULL)
		return as_of_now(type);
	ScanKeyInit(&key, T_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id));
	return as_of_now(load_type("job_types_pkey", &key, false));
}

List *
job_type_pull_ids(void)
{
	Oid			relid = jobq_relid("job_types");
	List	   *ids = NIL;
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(relid))
		return NIL;
	rel = shape_open("job_types", AccessShareLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum		values[T_NATTS];
		bool		nulls[T_NATTS];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		if (ISNULL(T_dropped_at) && ISNULL(T_handler) && ISNULL(T_command) && !DatumGetBool(ATT(T_is_workflow)))
			ids = lappend_int(ids, DatumGetInt32(ATT(T_id)));
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	list_sort(ids, list_int_cmp);
	return ids;
}

bool
job_type_is_dropped(int32 id)
{
	JobType    *type = job_type_by_id(id);

	return type == NULL || type->dropped;
}

bool
job_type_has_left(int32 id)
{
	Oid			index = jobq_relid("job_types_pkey");
	bool		left = true;
	bool		by_index;
	SnapshotData dirty;
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(jobq_relid("job_types")))
		return false;			/* DROP EXTENSION */
	InitDirtySnapshot(dirty);
	rel = shape_open("job_types", AccessShareLock);
	ScanKeyInit(&key, T_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id));
	by_index = index_is_free(index);
	scan = systable_beginscan(rel, index, by_index, &dirty, 1, &key);
	while (left && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		left = !heap_attisnull(tuple, T_dropped_at, RelationGetDescr(rel)) &&
			!TransactionIdIsValid(dirty.xmin) && !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	}
	systable_endscan(scan);
	if (by_index)
		UnlockRelationOid(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return left;
}

bool
job_type_is_workflow(int32 id)
{
	JobType    *type = job_type_by_id(id);

	return type != NULL && type->workflow;
}

uint64
job_types_generation(void)
{
	return types_generation;
}

void
job_types_forget(void)
{
	types_generation++;
}

uint32
job_type_tool_hash(const JobType *type)
{
	uint32		hash;

	if (type->command == NULL)
		return 0;
	hash = hash_bytes((const unsigned char *) type->options, VARSIZE(type->options));
	if (type->env != NULL)
		hash = hash_combine(hash, hash_bytes((const unsigned char *) type->env, VARSIZE(type->env)));
	hash = hash_combine(hash, (uint32) jobq_allow_exec_under_pid1);
	hash = hash_combine(hash, hash_bytes((const unsigned char *) jobq_tool_path, (int) strlen(jobq_tool_path)));
	for (int i = 0; i < type->ncommand; i++)
		hash = hash_combine(hash, hash_bytes((const unsigned char *) type->command[i], (int) strlen(type->command[i])));
	return hash;
}
