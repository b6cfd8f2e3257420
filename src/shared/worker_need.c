/*
 * worker_need.c
 *	  The sum of the background workers that the server needs: see
 *	  worker_need.h.
 *
 * All background workers come out of max_worker_processes.  jobq's sum is the
 * number that can run at the same time: the launcher, and for each database a
 * dispatcher, its SQL workers, an exec worker, a conductor and maintenance.
 * The number of SQL workers is the setting that the dispatcher of the database
 * has read (ALTER DATABASE ... SET).
 *
 * Where the sum does not fit, SQL workers leave the others a place each: the
 * databases get as many as fit, the same number each, and at least one
 * (sql_workers_allowed).  Only what one SQL worker a database does not leave
 * is a warning.
 *
 * Workers that are registered at server start always run, so they belong to
 * the sum that has to fit.  Parallel queries and logical replication use free
 * workers, and a query that finds no parallel worker runs without.  They are
 * in the number that the hint advises, and alone cause no warning.
 */
#include "jobq.h"

#include <limits.h>

#include "miscadmin.h"
#include "replication/logicallauncher.h"

#include "shared/slots.h"
#include "shared/worker_need.h"

#define LAUNCHERS		1
#define EXEC_WORKERS	1
#define CHILDREN		2		/* maintenance, conductor */

static int
sum(int a, int b)
{
	return a > INT_MAX - b ? INT_MAX : a + b;
}

/* Returns the setting of a database that may have workers; else SQL_WORKERS_UNKNOWN. */
static int
sql_workers_of(const JobqDb *db)
{
	return OidIsValid(db->dboid) && !db->lifecycle.refused ? db->dispatcher.sql_workers : SQL_WORKERS_UNKNOWN;
}

WorkerNeed
worker_need(Oid dboid)
{
	WorkerNeed	need = {0};
	int			executors = 0;
	int			least = 0;
	bool		counted = !OidIsValid(dboid);

	for (int i = 0; JobqShmem != NULL && i < JobqShmem->ndbs; i++)
	{
		JobqDb	   *db = &JobqShmem->dbs[i];
		int			sql_workers = sql_workers_of(db);

		if (sql_workers == SQL_WORKERS_UNKNOWN)
			continue;
		counted |= db->dboid == dboid;
		executors += sql_workers + EXEC_WORKERS;
		least += Min(sql_workers, 1) + EXEC_WORKERS;
		need.databases++;
	}
	if (!counted)
	{
		executors += jobq_max_sql_workers + EXEC_WORKERS;
		least += Min(jobq_max_sql_workers, 1) + EXEC_WORKERS;
		need.databases++;
	}
	need.jobq = LAUNCHERS + need.databases * (1 + CHILDREN) + Min(executors, JOBQ_MAX_SLOTS);
	need.least = LAUNCHERS + need.databases * (1 + CHILDREN) + Min(least, JOBQ_MAX_SLOTS);
	if (JobqShmem != NULL)
		need.others = JobqShmem->registered_workers - LAUNCHERS;
	else
		need.others = max_logical_replication_workers > 0 ? 1 : 0;
	need.advised = sum(sum(need.jobq + need.others, max_parallel_workers), max_logical_replication_workers);
	return need;
}

/*
 * Sets *databases to the number of databases, and returns how many SQL workers
 * they want, at most `most` each.
 */
static int
sql_workers_wanted(int most, int *databases)
{
	int			n = 0;

	*databases = 0;
	for (int i = 0; i < JobqShmem->ndbs; i++)
	{
		int			wanted = sql_workers_of(&JobqShmem->dbs[i]);

		if (wanted == SQL_WORKERS_UNKNOWN)
			continue;
		n += Min(wanted, most);
		(*databases)++;
	}
	return n;
}

int
sql_workers_allowed(const JobqDb *db)
{
	int			most = db->dispatcher.sql_workers;
	int			databases;
	int			room;

	(void) sql_workers_wanted(most, &databases);
	room = max_worker_processes - JobqShmem->registered_workers - databases * (1 + EXEC_WORKERS + CHILDREN);
	while (most > 1 && sql_workers_wanted(most, &databases) > room)
		most--;
	return most;
}

void
warn_of_worker_need(Oid dboid)
{
	WorkerNeed	need = worker_need(dboid);

	if (need.least + need.others <= max_worker_processes)
		return;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("max_worker_processes (%d) is too small: the background workers of this server add up to %d, or %d with one SQL worker a database",
					max_worker_processes, need.jobq + need.others, need.least + need.others),
			 errdetail("jobq's are %d: a launcher, and for each database (%d) a dispatcher, jobq.max_sql_workers, an exec worker"
					   " and two for maintenance and schedules. Others are %d.",
					   need.jobq, need.databases, need.others),
			 errhint("Set max_worker_processes = %d and restart the server. This number includes max_parallel_workers (%d)"
					 " and max_logical_replication_workers (%d).",
					 need.advised, max_parallel_workers, max_logical_replication_workers)));
}

const char *
worker_hint(Oid dboid)
{
	WorkerNeed	need = worker_need(dboid);

	if (need.advised <= max_worker_processes)
		return "Increase max_worker_processes and restart the server.";
	return psprintf("Set max_worker_processes = %d and restart the server.", need.advised);
}

void
note_worker(JobqDb *db, uint32 kind, bool started)
{
	bool		lacking = (pg_atomic_read_u32(&db->lacking) & kind) != 0;

	if (started && lacking)
		(void) pg_atomic_fetch_and_u32(&db->lacking, ~kind);
	else if (!started && !lacking)
		(void) pg_atomic_fetch_or_u32(&db->lacking, kind);
}

char *
lacking_workers(JobqDb *db)
{
	static const char *const names[] = {"dispatcher", "executor", "maintenance", "conductor"};
	uint32		lacking = pg_atomic_read_u32(&db->lacking);
	StringInfoData list;

	if (lacking == 0)
		return NULL;
	initStringInfo(&list);
	for (int i = 0; i < (int) lengthof(names); i++)
	{
		if (lacking & (1 << i))
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", names[i]);
	}
	return list.data;
}
