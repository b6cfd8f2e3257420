/*
 * stat_store.h
 *	  Statistics of job types, in shared memory.
 *
 * There is one entry per database and job type, jobq.max_stat_types in the
 * server.  When all are taken, those of dropped types without rows are given
 * to others.  Without such, further types of a database share one entry for
 * good, so that a row is always counted in the same place.  An entry is
 * reserved by the first change of a job of its type, never in a commit.
 */
#ifndef JOBQ_STAT_STORE_H
#define JOBQ_STAT_STORE_H

#include "access/twophase.h"
#include "shared/shmem.h"

#define STAT_MINUTES	60
#define STAT_PREPARED	(2 * max_prepared_xacts)	/* places of a database, one per transaction and type */

/* What happened to the jobs of a type in a minute. */
typedef struct StatMinute
{
	uint32		minute;			/* since 2000-01-01 */
	uint32		enqueued;
	uint32		ended;			/* jobs, however they ended */
	uint32		failed;			/* attempts */
} StatMinute;

typedef struct StatEntry
{
	Oid			dboid;			/* InvalidOid: free; under JobqShmem->lock */
	int32		type_id;		/* 0: shared by types without an entry */
	char		name[64];		/* of the type; '': not known yet (under JobqDb.mutex) */
	pg_atomic_uint64 n[STAT_COUNTERS];	/* those of rows are changed under JobqDb.mutex */
	pg_atomic_uint64 last_completed;	/* TimestampTz; 0: never */
	pg_atomic_uint64 last_failed;
	TimestampTz reset_at;

	/* the dispatcher's; plain reads */
	TimestampTz oldest_due;		/* 0: no job is due */
	int64		due;
	bool		due_exact;
	bool		paused;
	uint64		seen[3];		/* enqueued, ended, failed when the minute was written */
	StatMinute	minutes[STAT_MINUTES];
} StatEntry;

/* Upper bounds of the buckets but the last, in us and attempts. */
extern const int64 stat_time_bounds[STAT_TIME_BUCKETS - 1];
extern const int64 stat_attempt_bounds[STAT_ATTEMPT_BUCKETS - 1];
/* Labels of StatFailure and StatWakeup. */
extern const char *const stat_failure_names[STAT_FAILURES];
extern const char *const stat_wakeup_names[STAT_WAKEUPS];
/* Names of StatLimitKind. */
extern const char *const stat_limit_kinds[LIMIT_KINDS];

/* Returns the bucket of a value. */
extern int	stat_time_bucket(int64 us);
extern int	stat_attempt_bucket(int attempts);

/* Says how to ask the registry; it is asked in transactions only. */
extern void stat_set_type_has_left(bool (*has_left) (int32 type_id));

/* Sets the name of an entry's type. */
extern void stat_set_name(JobqDb *db, StatEntry *entry, const char *name);

/* Return the memory that the store takes; set it up; used by shmem.c. */
extern Size stat_store_size(void);
extern void stat_store_init(void *memory);
extern void stat_db_init(DbStats *stats);
/*
 * Frees the entries of a database without the extension.  JobqShmem->lock is
 * held.
 */
extern void stat_forget(JobqDb *db);

/*
 * Returns the entry of a job type of this database, reserved if it is new;
 * NULL without shared memory.
 */
extern StatEntry *stat_entry(int32 type_id);

/*
 * Returns the entries of a database, in the order of their reservation, the
 * shared one last.
 */
extern int	stat_entries(JobqDb *db, StatEntry ***entries);

/* True if the entry is this database's. */
static inline bool
stat_entry_is_of(const StatEntry *entry, const JobqDb *db)
{
	return entry->dboid == db->dboid && OidIsValid(db->dboid);
}

static inline uint64
stat_value(StatEntry *entry, int counter)
{
	return pg_atomic_read_u64(&entry->n[counter]);
}

/* Returns how many jobs of the type have ended; how many attempts have failed. */
extern uint64 stat_ended(StatEntry *entry);
extern uint64 stat_failed(StatEntry *entry);

/*
 * Adds the counters of an entry to those of the database.  As long as
 * JobqShmem->lock is held, none of its entries is reset or given away.
 */
extern void stat_add_totals(StatTotals *totals, StatEntry *entry);

/*
 * The same for one of the entries in use: the database's samples go on; for
 * all of a database.  A commit may call both: they raise no error.
 */
extern void stat_reset_type(JobqDb *db, StatEntry *entry, TimestampTz now);
extern void stat_reset_db(JobqDb *db, TimestampTz now);

/*
 * Loads and removes the file of the last clean shutdown, and has the next one
 * write it (stat_file.c); in the postmaster.
 */
extern void stat_file_load(void);
/* For this: all entries, those that are free included. */
extern StatEntry *stat_all_entries(int *n);
/* Reserves an entry for a type, 0: the shared one; NULL: there is none left. */
extern StatEntry *stat_adopt_entry(JobqDb *db, int32 type_id);

#endif
