/*
 * type_stats.h
 *	  The statistics of a database's job types as views and metrics show them.
 */
#ifndef JOBQ_TYPE_STATS_H
#define JOBQ_TYPE_STATS_H

#include "shared/stat_store.h"

typedef struct TypeStats
{
	int32		type_id;		/* 0: types that share an entry */
	char		name[64];		/* '': shared, or a type without a row */
	StatEntry  *entry;
	bool		counted;		/* the counters of rows are known */
	int64		n[STAT_COUNTERS];
	int64		due;
	bool		due_exact;
	TimestampTz oldest_due;		/* 0: no job is due */
	bool		paused;
	TimestampTz last_completed; /* 0: never */
	TimestampTz last_failed;
	TimestampTz reset_at;
} TypeStats;

/*
 * Reads the statistics of this database from shared memory, ordered by type
 * id, the shared ones last.  Types of the same name, of which all but one were
 * dropped, are one.  Returns their number.
 */
extern int	type_stats_read(JobqDb *db, TypeStats **stats);

/*
 * Returns the seconds until no job is due at the rate of the last minutes; -1:
 * there are ever more.
 */
extern double type_stats_drain_s(const TypeStats *stats, TimestampTz now);

/* Copies the name of an entry's type, '' if it is not known or shared. */
extern void type_stats_name(JobqDb *db, StatEntry *entry, char name[64]);

/* Raises 42501 unless the caller may read the statistics of all tenants. */
extern void type_stats_check_reader(const char *of);

#endif
