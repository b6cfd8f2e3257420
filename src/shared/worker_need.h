/*
 * worker_need.h
 *	  The number of background workers that the server needs, and those of jobq
 *	  that could not be started.
 */
#ifndef JOBQ_WORKER_NEED_H
#define JOBQ_WORKER_NEED_H

#include "shared/shmem.h"

/*
 * Bits of JobqDb.lacking: processes that are wanted and found no free
 * background worker.
 */
#define WORKER_DISPATCHER	(1 << 0)
#define WORKER_EXECUTOR		(1 << 1)
#define WORKER_MAINTENANCE	(1 << 2)
#define WORKER_CONDUCTOR	(1 << 3)

/*
 * Of DispatcherProcess.sql_workers: the database is not known to have the
 * extension.
 */
#define SQL_WORKERS_UNKNOWN (-1)

typedef struct WorkerNeed
{
	int			databases;
	int			jobq;			/* its processes at the same time, at most */
	int			least;			/* with one SQL worker a database */
	int			others;			/* of the server and other extensions */
	int			advised;		/* both, parallel workers and those of logical
								 * replication */
} WorkerNeed;

/*
 * Returns the sum for the databases that are known to have the extension, and
 * for dboid; InvalidOid: no further one.
 */
extern WorkerNeed worker_need(Oid dboid);
/* Warns if not even the least of them fit into max_worker_processes. */
extern void warn_of_worker_need(Oid dboid);
/*
 * Returns how many SQL workers the database may have: its jobq.max_sql_workers,
 * or the fewer that leave every other process of jobq its place.
 */
extern int	sql_workers_allowed(const JobqDb *db);
/* Returns a hint for a process of that database that could not be started. */
extern const char *worker_hint(Oid dboid);

/* Notes whether a process of this kind could be started. */
extern void note_worker(JobqDb *db, uint32 kind, bool started);

/*
 * Returns the names of the kinds in JobqDb.lacking, separated by commas; NULL:
 * none.
 */
extern char *lacking_workers(JobqDb *db);

#endif
