/*
 * db_jobs.h
 *	  Parts of JobqDb about single jobs, job types and the disk; shmem.h has
 *	  the table.
 */
#ifndef JOBQ_DB_JOBS_H
#define JOBQ_DB_JOBS_H

#include "storage/proc.h"
#include "storage/spin.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"

/*
 * Outcomes of jobs that have ended without a row in history, for wait_for
 * (recent_ends.c).  Under JobqDb.mutex.
 */
#define ENQUEUER_SIZE	(NAMEDATALEN + 11)	/* access_enqueuer()'s */
#define JOBQ_RECENT_ENDS	512
typedef struct RecentEnd
{
	pg_uuid_t	id;
	int32		type_id;
	int			status;			/* JobStatus */
	TransactionId xid;			/* of the settlement, which is about to commit;
								 * Invalid: it has committed */
	char		tenant[64];		/* for the right to see the result: access.h */
	char		enqueued_by[ENQUEUER_SIZE];
} RecentEnd;

typedef struct RecentEnds
{
	uint32		count;			/* ever; the last JOBQ_RECENT_ENDS of them are
								 * kept */
	RecentEnd ends[JOBQ_RECENT_ENDS];
} RecentEnds;

#define JOBQ_MAX_WAITERS	64

/* Sessions in jobq.wait_for (wait_for.c).  Under JobqDb.mutex. */
typedef struct Waiter
{
	bool		in_use;
	bool		done;
	pg_uuid_t	id;
	int			status;			/* JobStatus, once done */
	PGPROC	   *proc;
} Waiter;

typedef struct WaitFor
{
	int			nwaiters;		/* in use; also read plainly */
	Waiter		waiters[JOBQ_MAX_WAITERS];
} WaitFor;

#define JOBQ_MAX_MARKS		192 /* twice the executors */

/*
 * Facts about the last attempt of a job that its row does not have, for the
 * next dispatcher (queue_scan.c).  Only the dispatcher reads and writes them.
 */
typedef struct JobMark
{
	pg_uuid_t	id;
	int32		rev;
	uint8		flags;
	uint8		charge;
} JobMark;

typedef struct JobMarks
{
	int			njobs;
	JobMark		jobs[JOBQ_MAX_MARKS];
} JobMarks;

/* Jobs that clients have, or are about to have: no index finds their rows. */
#define JOBQ_CLAIMED 4096		/* places */
typedef struct ClaimedJobs
{
	int			n;
	int			unlisted;		/* others, which have no place */
	pg_uuid_t	ids[JOBQ_CLAIMED];
} ClaimedJobs;

/* Breakers of job types (breaker.h). */
#define JOBQ_BREAKERS		256
typedef enum BreakerState
{
	BREAKER_CLOSED,
	BREAKER_OPEN,
	BREAKER_PROBING
} BreakerState;

typedef struct Breaker
{
	int32		type_id;
	int			failures;		/* in a row */
	BreakerState state;
	MonoTime	opened_at;
	TimestampTz resumed_at;		/* of the type, when it opened */
	pg_uuid_t	probe;			/* the job that probes */
} Breaker;

typedef enum BreakerNews
{
	BREAKER_NO_NEWS,
	BREAKER_OPENED,
	BREAKER_HAS_CLOSED
} BreakerNews;

/* A breaker has opened or closed; the event is not yet written. */
typedef struct BreakerChange
{
	int32		type_id;
	pg_uuid_t	id;				/* of the job whose attempt opened or closed it */
	BreakerNews news;
	int			failures;
	int64		pause_us;
	TimestampTz at;
} BreakerChange;

#define JOBQ_BREAKER_CHANGES	64

typedef struct Breakers
{
	slock_t		mutex;			/* covers this struct */
	int			ntypes;			/* also read plainly */
	Breaker		types[JOBQ_BREAKERS];
	int			nchanges;		/* by clients; also read plainly */
	BreakerChange changes[JOBQ_BREAKER_CHANGES];
} Breakers;

/*
 * The chain of rate windows (rate_window.c).  The dispatcher's; changes of the
 * chain are made under JobqShmem->lock.
 */
typedef struct RateWindows
{
	Oid			dboid;			/* the database that the windows belong to */
	int32		first;			/* 0: none */
} RateWindows;

/* The last measurement of the disk (disk_watch.c).  Under JobqDb.mutex. */
typedef struct DiskState
{
	int			level;			/* DiskLevel */
	double		percent;		/* of the fullest file system */
	MonoTime	measured;		/* 0: never */
} DiskState;

/* The oldest xmin whose rows stay, and since when it stands still. */
typedef struct Horizon
{
	TransactionId xmin;
	MonoTime	since;			/* 0: not noted yet */
} Horizon;

/* The last measurement of the queue's files (queue_space.c).  Under JobqDb.mutex. */
typedef struct QueueSpace
{
	MonoTime	measured;		/* 0: never */
	int64		bytes;			/* with TOAST and indexes */
	int64		free_bytes;		/* of them */
	int64		died;			/* rows updated and deleted since the statistics began */
	MonoTime	late_since;		/* autovacuum should have come; 0: no */
	bool		autovacuum_on;
	Horizon		horizon;		/* of tables */
	Horizon		catalog_horizon;	/* of system catalogs: logical slots hold it, too */
} QueueSpace;

#endif
