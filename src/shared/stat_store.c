/*
 * stat_store.c
 *	  The entries of statistics in shared memory: reservation, lookup, reset.
 *
 * Entries never move.  Each process remembers where it found those of its
 * job types, and checks that they still are (DROP EXTENSION frees them).
 * JobqShmem->lock is taken for an entry that is not remembered.
 *
 * stat_changes.c adds to the counters, live_counts.c sets those of rows.
 */
#include "jobq.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "shared/stat_store.h"

#define REMEMBERED	4096		/* entries that a process finds without a lock: ids of types are dense */

StaticAssertDecl(sizeof(StatEntry) <= 2048, "jobq.max_stat_types is documented with 2 kB each");
StaticAssertDecl(STAT_COUNTERS <= 64, "a transaction has a bit for each");
StaticAssertDecl((int) STAT_RUNNING == (int) JOB_RUNNING, "counters of rows are in the order of JobStatus");

const int64 stat_time_bounds[STAT_TIME_BUCKETS - 1] = {
	1000, 10000, 100000, 500000, 1000000, 5000000, 10000000, 30000000, 60000000, 300000000,
	INT64CONST(1800000000), INT64CONST(7200000000)
};
const int64 stat_attempt_bounds[STAT_ATTEMPT_BUCKETS - 1] = {1, 2, 3, 5, 10};
const char *const stat_failure_names[STAT_FAILURES] = {
	"error", "timeout", "exit", "signal", "crash", "lease", "output", "other"
};
const char *const stat_wakeup_names[STAT_WAKEUPS] = {"commit", "report", "timer", "other"};
const char *const stat_limit_kinds[LIMIT_KINDS] = {
	"jobs", "weight", "job_type", "type_rate", "limit", "limit_rate", "run_limit", "run_limit_rate", "tenant", STAT_REST
};

static bool (*type_has_left) (int32 type_id) = NULL;

/* Where this process has found the entries of some types. */
static struct
{
	int32		type_id;
	StatEntry  *entry;
}			remembered[REMEMBERED];

static int
bucket(const int64 *bounds, int nbounds, int64 value)
{
	int			i = 0;

	while (i < nbounds && value > bounds[i])
		i++;
	return i;
}

int
stat_time_bucket(int64 us)
{
	return bucket(stat_time_bounds, STAT_TIME_BUCKETS - 1, us);
}

int
stat_attempt_bucket(int attempts)
{
	return bucket(stat_attempt_bounds, STAT_ATTEMPT_BUCKETS - 1, attempts);
}

/* ---------- memory ---------- */

/* Returns the number of entries: after those of types, one per JobqDb. */
static int
nall(void)
{
	return jobq_max_stat_types + jobq_max_databases;
}

static Size
entries_size(void)
{
	return MAXALIGN(mul_size(nall(), sizeof(StatEntry)));
}

/* Returns the memory of a database for prepared transactions. */
static Size
prepared_size(void)
{
	return MAXALIGN(add_size(mul_size(STAT_PREPARED, sizeof(StatPrepared)), mul_size(max_prepared_xacts, sizeof(TransactionId))));
}

Size
stat_store_size(void)
{
	return add_size(entries_size(), mul_size(jobq_max_databases, prepared_size()));
}

void
stat_store_init(void *memory)
{
	JobqShmem->stats = memory;
	for (int i = 0; i < nall(); i++)
	{
		StatEntry  *entry = &JobqShmem->stats[i];

		for (int c = 0; c < STAT_COUNTERS; c++)
			pg_atomic_init_u64(&entry->n[c], 0);
		pg_atomic_init_u64(&entry->last_completed, 0);
		pg_atomic_init_u64(&entry->last_failed, 0);
	}
	for (int i = 0; i < jobq_max_databases; i++)
	{
		DbStats    *stats = &JobqShmem->dbs[i].stats;

		stats->prepared = (StatPrepared *) ((char *) memory + entries_size() + i * prepared_size());
		stats->unknown = (TransactionId *) (stats->prepared + STAT_PREPARED);
	}
}

void
stat_db_init(DbStats *stats)
{
	ConditionVariableInit(&stats->counted);
}

StatEntry *
stat_all_entries(int *n)
{
	*n = nall();
	return JobqShmem->stats;
}

static StatEntry *
shared_entry(const JobqDb *db)
{
	return &JobqShmem->stats[jobq_max_stat_types + (db - JobqShmem->dbs)];
}

/* ---------- reset ---------- */

/* Sets the counters of events back to 0, and what is computed from them. */
static void
stat_reset_entry(StatEntry *entry, TimestampTz now)
{
	for (int c = STAT_LIVE; c < STAT_COUNTERS; c++)
		pg_atomic_write_u64(&entry->n[c], 0);
	pg_atomic_write_u64(&entry->last_completed, 0);
	pg_atomic_write_u64(&entry->last_failed, 0);
	memset(entry->seen, 0, sizeof(entry->seen));
	memset(entry->minutes, 0, sizeof(entry->minutes));
	entry->reset_at = now;
}

/* Takes the counters of an entry out of what the next sample is compared with. */
static void
leave_samples(JobqDb *db, StatEntry *entry)
{
	StatTotals *sampled = &db->stats.sampled;
	StatTotals	gone = {0};

	stat_add_totals(&gone, entry);
	for (int i = 0; i < STAT_TOTALS; i++)
		sampled->n[i] -= gone.n[i];
	for (int i = 0; i < STAT_TIME_BUCKETS; i++)
		sampled->wait[i] -= gone.wait[i];
}

void
stat_reset_type(JobqDb *db, StatEntry *entry, TimestampTz now)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	leave_samples(db, entry);
	stat_reset_entry(entry, now);
	LWLockRelease(JobqShmem->lock);
}

/* Sets back what the database has once. */
static void
reset_totals(JobqDb *db, TimestampTz now)
{
	DbStats    *stats = &db->stats;

	memset(stats->fine, 0, sizeof(stats->fine));
	memset(stats->coarse, 0, sizeof(stats->coarse));
	memset(&stats->sampled, 0, sizeof(stats->sampled));
	stats->nfine = stats->ncoarse = 0;
	stats->loops = stats->sweep_finds = stats->publications_lost = 0;
	memset(stats->wakeups, 0, sizeof(stats->wakeups));
	stats->handed_out_before = pg_atomic_read_u64(&db->counters.handed_out);
	stats->fallbacks_before = pg_atomic_read_u64(&db->counters.fallbacks);
	stats->reset_at = now;
}

void
stat_reset_db(JobqDb *db, TimestampTz now)
{
	int			n;
	StatEntry  *entries = stat_all_entries(&n);

	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < n; i++)
	{
		if (stat_entry_is_of(&entries[i], db))
			stat_reset_entry(&entries[i], now);
	}
	reset_totals(db, now);
	LWLockRelease(JobqShmem->lock);
}

void
stat_forget(JobqDb *db)
{
	DbStats    *stats = &db->stats;
	int			n;
	StatEntry  *entries = stat_all_entries(&n);

	for (int i = 0; i < n; i++)
	{
		if (!stat_entry_is_of(&entries[i], db))
			continue;
		entries[i].dboid = InvalidOid;
		entries[i].type_id = 0;
	}
	SpinLockAcquire(&db->mutex);
	stats->phase = STAT_UNCOUNTED;
	stats->nlogged = stats->nprepared = stats->nunknown = 0;
	stats->ngauges = stats->nlimits = stats->nlanes = stats->nunclaimed = 0;
	stats->count_due = false;
	stats->count_spoilt = true;
	SpinLockRelease(&db->mutex);
	stats->has_other = false;
	reset_totals(db, 0);
}

/* ---------- lookup ---------- */

/* Gives a free entry to a type.  JobqShmem->lock is held. */
static void
take(StatEntry *entry, JobqDb *db, int32 type_id)
{
	for (int c = 0; c < STAT_LIVE; c++)
		pg_atomic_write_u64(&entry->n[c], 0);
	stat_reset_entry(entry, GetCurrentTimestamp());
	entry->name[0] = '\0';
	entry->oldest_due = 0;
	entry->due = 0;
	entry->due_exact = entry->paused = false;
	entry->type_id = type_id;
	entry->dboid = db->dboid;
}

static StatEntry *
find_free(void)
{
	for (int i = 0; i < jobq_max_stat_types; i++)
	{
		if (!OidIsValid(JobqShmem->stats[i].dboid))
			return &JobqShmem->stats[i];
	}
	return NULL;
}

/*
 * Returns the type's entry; the shared one, if there are no more.
 * JobqShmem->lock is held; without `reserve`, NULL if the type has none yet.
 */
static StatEntry *
find(JobqDb *db, int32 type_id, bool reserve)
{
	StatEntry  *shared = shared_entry(db);
	StatEntry  *free;

	for (int i = 0; i < jobq_max_stat_types; i++)
	{
		StatEntry  *entry = &JobqShmem->stats[i];

		if (entry->dboid == db->dboid && entry->type_id == type_id)
			return entry;
	}
	if (db->stats.has_other)
		return shared;
	if (!reserve)
		return NULL;
	free = find_free();
	if (free != NULL)
	{
		take(free, db, type_id);
		return free;
	}
	take(shared, db, 0);
	db->stats.has_other = true;
	return shared;
}

void
stat_set_type_has_left(bool (*has_left) (int32 type_id))
{
	type_has_left = has_left;
}

/*
 * True if the entry counts no row, and no prepared transaction changes it.  As
 * long as rows are not counted, the count will find a place for them; while
 * they are, it is not known.  JobqDb.mutex is held.
 */
static bool
has_no_rows(const DbStats *stats, StatEntry *entry)
{
	bool		none = stats->phase != STAT_COUNTING;

	for (int c = 0; c < STAT_LIVE && stats->phase == STAT_COUNTED; c++)
		none &= stat_value(entry, c) == 0;
	for (int i = 0; i < stats->nprepared; i++)
		none &= stats->prepared[i].entry != entry;
	return none;
}

/* Frees the entry of a dropped type, unless there are rows of it. */
static void
free_dropped(JobqDb *db, StatEntry *entry, int32 type_id)
{
	LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
	SpinLockAcquire(&db->mutex);
	if (stat_entry_is_of(entry, db) && entry->type_id == type_id && has_no_rows(&db->stats, entry))
	{
		leave_samples(db, entry);
		entry->dboid = InvalidOid;
		entry->type_id = 0;
	}
	SpinLockRelease(&db->mutex);
	LWLockRelease(JobqShmem->lock);
}

/* Frees the entries of dropped types.  No lock is held: the registry is read. */
static void
make_room(JobqDb *db)
{
	StatEntry **entries;
	int			n = stat_entries(db, &entries);

	for (int i = 0; i < n; i++)
	{
		int32		type_id = entries[i]->type_id;

		if (type_id != 0 && type_has_left(type_id))
			free_dropped(db, entries[i], type_id);
	}
	pfree(entries);
}

/* True if the entry still counts the type. */
static bool
still_counts(const StatEntry *entry, const JobqDb *db, int32 type_id)
{
	return entry != NULL && stat_entry_is_of(entry, db) && (entry->type_id == type_id || entry->type_id == 0);
}

StatEntry *
stat_entry(int32 type_id)
{
	JobqDb	   *db = my_db();
	int			place = (uint32) type_id % REMEMBERED;
	StatEntry  *entry;
	bool		full;

	if (db == NULL)
		return NULL;
	if (remembered[place].type_id == type_id && still_counts(remembered[place].entry, db, type_id))
		return remembered[place].entry;
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	entry = find(db, type_id, false);
	full = entry == NULL && find_free() == NULL;
	LWLockRelease(JobqShmem->lock);
	if (full && IsTransactionState())
		make_room(db);
	if (entry == NULL)
	{
		LWLockAcquire(JobqShmem->lock, LW_EXCLUSIVE);
		entry = find(db, type_id, true);
		LWLockRelease(JobqShmem->lock);
	}
	remembered[place].type_id = type_id;
	remembered[place].entry = entry;
	return entry;
}

StatEntry *
stat_adopt_entry(JobqDb *db, int32 type_id)
{
	StatEntry  *entry = type_id == 0 ? shared_entry(db) : find_free();

	if (entry != NULL)
		take(entry, db, type_id);
	return entry;
}

int
stat_entries(JobqDb *db, StatEntry ***entries)
{
	int			n;
	int			found = 0;
	StatEntry  *some = stat_all_entries(&n);

	*entries = palloc(sizeof(StatEntry *) * n);
	LWLockAcquire(JobqShmem->lock, LW_SHARED);
	for (int i = 0; i < n; i++)
	{
		if (stat_entry_is_of(&some[i], db))
			(*entries)[found++] = &some[i];
	}
	LWLockRelease(JobqShmem->lock);
	return found;
}

void
stat_set_name(JobqDb *db, StatEntry *entry, const char *name)
{
	SpinLockAcquire(&db->mutex);
	strlcpy(entry->name, name, sizeof(entry->name));
	SpinLockRelease(&db->mutex);
}

/* ---------- sums ---------- */

uint64
stat_ended(StatEntry *entry)
{
	return stat_value(entry, STAT_COMPLETED) + stat_value(entry, STAT_SKIPPED) +
		stat_value(entry, STAT_CANCELLED) + stat_value(entry, STAT_DIED);
}

uint64
stat_failed(StatEntry *entry)
{
	uint64		n = 0;

	for (int i = 0; i < STAT_FAILURES; i++)
		n += stat_value(entry, STAT_FAILED + i);
	return n;
}

void
stat_add_totals(StatTotals *totals, StatEntry *entry)
{
	totals->n[TOTAL_ENQUEUED] += stat_value(entry, STAT_ENQUEUED);
	totals->n[TOTAL_STARTED] += stat_value(entry, STAT_STARTED);
	totals->n[TOTAL_COMPLETED] += stat_value(entry, STAT_COMPLETED);
	totals->n[TOTAL_FAILED] += stat_failed(entry);
	totals->n[TOTAL_DIED] += stat_value(entry, STAT_DIED);
	for (int i = 0; i < STAT_TIME_BUCKETS; i++)
		totals->wait[i] += stat_value(entry, STAT_WAIT + i);
}
