/*
 * quota.c
 *	  Quotas of tenants: see quota.h.
 *
 * Each job of a tenant with a quota of max_live or max_bytes has a row in
 * jobq.quota_jobs (quota_rows.c), written with the job, or when the quota is
 * set, and not deleted with it: a row whose job has left the queue counts for
 * nothing, and the next count deletes it.  A count includes jobs of open
 * transactions: their inserts count, and jobs that they have deleted count
 * until they commit.  So no order of commits exceeds a quota.  A count misses
 * jobs that other sessions enqueue, without knowledge of the quota, between
 * the last look at the queue and the commit that sets it, and jobs whose row was
 * written only by a set_tenant_quota that is rolled back.
 *
 * A number in shared memory, which rises with each job and never falls, saves
 * most counts: it is at least the true one.  Only when it reaches the quota are
 * the rows counted, and the number becomes their count.  A count of many rows is
 * not repeated for some ten times as long as it takes, so that enqueues against
 * a full quota cost little.
 *
 * Between the check and the insertion the tenant is locked (a lock of its own,
 * released at once, not at the end of the transaction): enqueues of one tenant
 * wait for an insertion, never for a transaction.
 *
 * Enqueues per minute are counted in shared memory by the second.  A second
 * counts until it is wholly over a minute old, so that no minute, wherever it
 * begins, has more than the quota.  Enqueues that are rolled back count, too.  A
 * restart of the server resets the counts.
 */
#include "jobq.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/relations.h"
#include "enqueue/quota.h"
#include "registry/job_types.h"
#include "security/access.h"
#include "shared/disk_level.h"
#include "shared/quota_entries.h"
#include "tables/queue_find.h"
#include "tables/table_shape.h"

#define REMOVED			OID_MAX	/* QuotaEntry.dboid: free, and later entries may follow it */
#define QUOTA_LOCK		7		/* keeps our locks apart from advisory ones, which have 1 and 2 */
#define MANY_ROWS		1000
#define PAUSE_US_PER_ROW 30		/* a row takes some 3 us */

PG_FUNCTION_INFO_V1(jobq_admit);
PG_FUNCTION_INFO_V1(jobq_forget_quota);

static const ShapeColumn tenant_quotas_columns[] = {
	{"tenant", TEXTOID, FILLED}, {"max_live", INT8OID, NULLABLE}, {"max_bytes", INT8OID, NULLABLE},
	{"enqueues_per_minute", INT4OID, NULLABLE}, {"max_running", INT4OID, NULLABLE},
	{"max_schedules", INT4OID, NULLABLE}
};
const Shape tenant_quotas_shape = SHAPE("tenant_quotas", tenant_quotas_columns);

StaticAssertDecl(lengthof(tenant_quotas_columns) == TQ_NATTS, "tenant_quotas' columns");

static MemoryContext quotas_context = NULL;
static List *quotas = NIL;
static uint64 read_at = 0;		/* access_generation() that they were read at */

/* --- reading them --- */

static int64
limit(Datum *values, bool *nulls, int att)
{
	if (nulls[att - 1])
		return -1;
	return att == TQ_enqueues_per_minute ? DatumGetInt32(values[att - 1]) : DatumGetInt64(values[att - 1]);
}

static void
add_quota(Relation rel, HeapTuple tuple)
{
	MemoryContext old;
	Quota	   *quota;
	Datum		values[TQ_NATTS];
	bool		nulls[TQ_NATTS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	old = MemoryContextSwitchTo(quotas_context);
	quota = palloc(sizeof(Quota));
	quota->tenant = TextDatumGetCString(values[TQ_tenant - 1]);
	quota->max_live = limit(values, nulls, TQ_max_live);
	quota->max_bytes = limit(values, nulls, TQ_max_bytes);
	quota->per_minute = limit(values, nulls, TQ_enqueues_per_minute);
	if (quota->max_live >= 0 || quota->max_bytes >= 0 || quota->per_minute >= 0)
		quotas = lappend(quotas, quota);	/* the others: tenant_limit.c, schedule_limits.c */
	MemoryContextSwitchTo(old);
}

static int
outermost_first(const ListCell *a, const ListCell *b)
{
	return (int) strlen(((Quota *) lfirst(a))->tenant) - (int) strlen(((Quota *) lfirst(b))->tenant);
}

static void
read_quotas(uint64 generation)
{
	Relation	rel = shape_open("tenant_quotas", AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple;

	if (quotas_context == NULL)
		quotas_context = AllocSetContextCreate(CacheMemoryContext, "jobq quotas", ALLOCSET_SMALL_SIZES);
	read_at = 0;
	quotas = NIL;
	MemoryContextReset(quotas_context);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		add_quota(rel, tuple);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	list_sort(quotas, outermost_first);
	read_at = generation;
}

bool
quota_counts(const Quota *quota, text *tenant)
{
	int			n = strlen(quota->tenant);
	int			len = VARSIZE_ANY_EXHDR(tenant);

	return len >= n && memcmp(VARDATA_ANY(tenant), quota->tenant, n) == 0 &&
		(len == n || VARDATA_ANY(tenant)[n] == '/');
}

List *
quotas_of(text *tenant)
{
	uint64		generation = access_generation();
	List	   *found = NIL;
	ListCell   *lc;

	if (read_at != generation)
		read_quotas(generation);
	if (quotas == NIL || tenant == NULL)
		return NIL;
	foreach(lc, quotas)
	{
		Quota	   *copy;

		if (!quota_counts(lfirst(lc), tenant))
			continue;
		copy = palloc(sizeof(Quota));
		*copy = *(Quota *) lfirst(lc);
		copy->tenant = pstrdup(copy->tenant);
		found = lappend(found, copy);
	}
	return found;
}

/* --- their entries in shared memory --- */

uint64
quota_key(const char *tenant)
{
	return hash_bytes_extended((const unsigned char *) tenant, strlen(tenant), 0);
}

/* Returns the quota's entry, or a place for one: a removed entry may be used again. */
static QuotaEntry *
find_entry(uint64 key)
{
	QuotaEntry *unused = NULL;

	for (int i = 0; i < JOBQ_MAX_QUOTAS; i++)
	{
		QuotaEntry *entry = &JobqShmem->quotas[(key + i) % JOBQ_MAX_QUOTAS];

		if (entry->dboid == MyDatabaseId && entry->key == key)
			return entry;
		if ((entry->dboid == InvalidOid || entry->dboid == REMOVED) && unused == NULL)
			unused = entry;
		if (entry->dboid == InvalidOid)
			break;
	}
	return unused;
}

/*
 * Returns the tenant's entry, made when there is none; NULL: jobq is not
 * preloaded, or too many have one.
 */
static QuotaEntry *
entry_of(uint64 key)
{
	QuotaEntry *entry;

	if (JobqShmem == NULL)
		return NULL;
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	entry = find_entry(key);
	if (entry != NULL && (entry->dboid != MyDatabaseId || entry->key != key))
	{
		memset(entry, 0, sizeof(QuotaEntry));
		entry->dboid = MyDatabaseId;
		entry->key = key;
	}
	LWLockRelease(JobqShmem->lock);
	return entry;
}

/* Removes an entry; the tenant is locked. */
static void
remove_entry(QuotaEntry *entry)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	entry->dboid = REMOVED;
	LWLockRelease(JobqShmem->lock);
}

static void
set_tag(LOCKTAG *tag, uint64 key)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, QUOTA_LOCK);
}

void
quota_lock(uint64 key)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

void
quota_unlock(uint64 key)
{
	LOCKTAG		tag;

	set_tag(&tag, key);
	(void) LockRelease(&tag, ExclusiveLock, false);
}

/* --- counting --- */

static void
count_again(const Quota *quota, QuotaEntry *entry, Table *queue)
{
	Table		rows;
	int64		live;
	int64		bytes;
	int64		read;

	table_open_for_write(&rows, jobq_relid("quota_jobs"));
	read = quota_count_rows(&rows, queue, quota->tenant, &live, &bytes);
	table_close_after_write(&rows);
	entry->live = live;			/* not before: an error leaves what was known */
	entry->bytes = bytes;
	entry->known = true;
	entry->count_again = read > MANY_ROWS ? mono_now() + read * PAUSE_US_PER_ROW : 0;
}

/* --- admitting --- */

static int64
rendered_bytes(Jsonb *json)
{
	return json ? (int64) strlen(JsonbToCString(NULL, &json->root, VARSIZE(json))) : 0;
}

int64
quota_bytes(Jsonb *payload, Jsonb *metadata)
{
	return rendered_bytes(payload) + rendered_bytes(metadata);
}

static int64
job_bytes(Job *job)
{
	return quota_bytes(DatumGetJsonbP(JOB_ATT(job, Q_payload)),
					   JOB_NULL(job, Q_metadata) ? NULL : DatumGetJsonbP(JOB_ATT(job, Q_metadata)));
}

/* True if the quota has room for one job more, or for more bytes of a waiting one. */
static bool
has_place(const Quota *quota, const QuotaEntry *entry, bool one_more)
{
	return !one_more || quota->max_live < 0 || entry->live + 1 <= quota->max_live;
}

static bool
has_room(const Quota *quota, const QuotaEntry *entry, bool one_more, int64 bytes)
{
	return has_place(quota, entry, one_more) &&
		(quota->max_bytes < 0 || entry->bytes + bytes <= quota->max_bytes);
}

static void
refuse(const Quota *quota, const char *which, int64 limit)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("quota of tenant \"%s\" is used up: %s is %lld", quota->tenant, which, (long long) limit)));
}

/* True if the quota's jobs have rows: no count deletes those of others. */
static bool
counts_jobs(const Quota *quota)
{
	return quota->max_live >= 0 || quota->max_bytes >= 0;
}

static void
check_room(const Quota *quota, QuotaEntry *entry, Table *queue, bool one_more, int64 bytes)
{
	if (!counts_jobs(quota))
		return;
	if (!entry->known || (!has_room(quota, entry, one_more, bytes) && mono_now() >= entry->count_again))
		count_again(quota, entry, queue);
	if (has_room(quota, entry, one_more, bytes))
		return;
	if (!has_place(quota, entry, one_more))
		refuse(quota, "max_live", quota->max_live);
	refuse(quota, "max_bytes", quota->max_bytes);
}

/* Forgets the seconds that are over. */
static void
roll_to(QuotaEntry *entry, int64 second)
{
	if (second - entry->second >= QUOTA_SECONDS)
	{
		memset(entry->enqueued, 0, sizeof(entry->enqueued));
		entry->second = second;
	}
	while (entry->second < second)
		entry->enqueued[++entry->second % QUOTA_SECONDS] = 0;
}

static void
check_rate(const Quota *quota, QuotaEntry *entry)
{
	int64		sum = 0;

	if (quota->per_minute < 0)
		return;
	roll_to(entry, mono_now() / USECS_PER_SEC);
	for (int i = 0; i < QUOTA_SECONDS; i++)
		sum += entry->enqueued[i];
	if (sum + 1 > quota->per_minute)
		refuse(quota, "enqueues_per_minute", quota->per_minute);
}

/*
 * Refuses jobs of a tenant without an entry, as set_tenant_quota did: after a
 * restore, or with many databases.
 */
static void
refuse_uncounted(const Quota *quota)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("enqueues_per_minute of tenant \"%s\" cannot be counted", quota->tenant),
			 errhint("At most %d tenants of a server can have a quota; remove some and restart the server.", JOBQ_MAX_QUOTAS)));
}

void
quota_admit(List *of_tenant, Table *queue, int64 bytes)
{
	ListCell   *lc;

	foreach(lc, of_tenant)
	{
		Quota	   *quota = lfirst(lc);
		uint64		key = quota_key(quota->tenant);
		QuotaEntry	forgotten = {0};
		QuotaEntry *entry;

		quota_lock(key);
		entry = entry_of(key);
		if (entry != NULL)
			check_rate(quota, entry);
		else if (quota->per_minute >= 0 && JobqShmem != NULL)
			refuse_uncounted(quota);
		check_room(quota, entry ? entry : &forgotten, queue, true, bytes);
	}
}

static void
note_job(const Quota *quota, const pg_uuid_t *id, int64 bytes, bool is_new, Table *rows)
{
	QuotaEntry *entry = entry_of(quota_key(quota->tenant));

	if (counts_jobs(quota))
		quota_insert_row(rows, quota->tenant, id, bytes, is_new);
	if (entry == NULL)
		return;
	entry->live++;
	entry->bytes += bytes;
	roll_to(entry, mono_now() / USECS_PER_SEC);
	entry->enqueued[entry->second % QUOTA_SECONDS]++;
}

static void
unlock_tenants(List *of_tenant)
{
	ListCell   *lc;

	foreach(lc, of_tenant)
		quota_unlock(quota_key(((Quota *) lfirst(lc))->tenant));
}

void
quota_done(List *of_tenant, int64 bytes, const pg_uuid_t *id, bool is_new)
{
	ListCell   *lc;

	if (id != NULL)
	{
		Table		rows;

		table_open_for_write(&rows, jobq_relid("quota_jobs"));
		foreach(lc, of_tenant)
			note_job(lfirst(lc), id, bytes, is_new, &rows);
		table_close_after_write(&rows);
	}
	unlock_tenants(of_tenant);
}

/* Admits an enqueue that adds no job: max_live and enqueues_per_minute do not apply. */
void
quota_replace(List *of_tenant, Table *queue, Job *job, int64 bytes)
{
	int64		more = bytes - job_bytes(job);
	Table		rows;
	ListCell   *lc;

	foreach(lc, of_tenant)
	{
		Quota	   *quota = lfirst(lc);
		uint64		key = quota_key(quota->tenant);
		QuotaEntry	forgotten = {0};
		QuotaEntry *entry;

		quota_lock(key);
		entry = entry_of(key);
		if (more <= 0)
			continue;
		check_room(quota, entry ? entry : &forgotten, queue, false, more);
		if (entry != NULL)
			entry->bytes += more;
	}
	table_open_for_write(&rows, jobq_relid("quota_jobs"));
	foreach(lc, of_tenant)
	{
		Quota	   *quota = lfirst(lc);

		if (counts_jobs(quota))
			quota_update_row(&rows, quota->tenant, JOB_ID(job), bytes);
	}
	table_close_after_write(&rows);
	unlock_tenants(of_tenant);
}

/*
 * jobq_internal._admit(id): a job that this transaction has put into the queue without
 * enqueue passes the checks of enqueue that count jobs.  It is in the queue
 * before it is counted, so no other enqueue can count past it.
 */
Datum
jobq_admit(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = PG_GETARG_UUID_P(0);
	Table		queue;
	Job			job;
	JobType    *type;
	List	   *of_tenant;
	int64		bytes;

	table_open_for_write(&queue, jobq_relid("queue"));
	if (!queue_find_by_id(&queue, id, GetActiveSnapshot(), &job))
		elog(ERROR, "job is not in the queue");
	type = job_type_by_id(JOB_INT(&job, Q_type_id));	/* NULL: a step of a run without a job */
	if (type != NULL && type->refuse_on_disk_emergency)
		disk_refuse_at_emergency(type->name);
	of_tenant = quotas_of(JOB_NULL(&job, Q_tenant) ? NULL : DatumGetTextPP(JOB_ATT(&job, Q_tenant)));
	bytes = job_bytes(&job);
	if (of_tenant != NIL)
	{
		quota_admit(of_tenant, &queue, bytes);
		quota_done(of_tenant, bytes, id, false);
	}
	table_close_after_write(&queue);
	PG_RETURN_VOID();
}

/*
 * Makes the next enqueue count the tenant's rows, which quota_done has not
 * written; removed: the quota is gone.  False: it has no entry.
 */
bool
quota_forget(const char *tenant, bool removed)
{
	uint64		key = quota_key(tenant);
	QuotaEntry *entry;

	quota_lock(key);
	entry = entry_of(key);
	if (entry != NULL)
	{
		entry->known = false;
		entry->count_again = 0;
		if (removed)
			remove_entry(entry);
	}
	quota_unlock(key);
	return entry != NULL;
}

/* jobq_internal._forget_quota(tenant, removed) */
Datum
jobq_forget_quota(PG_FUNCTION_ARGS)
{
	(void) quota_forget(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_BOOL(1));
	PG_RETURN_VOID();
}

/* Under the tenant's lock: else an enqueue between its two rows would wait for this transaction. */
