/*
 * shmem.h
 *	  jobq's shared memory: one entry a database, one slot an executor.
 *
 * Allocated in the postmaster when the library is preloaded; JobqShmem is NULL otherwise, and then
 * nothing runs.  Locks:
 *	 JobqShmem->lock (LWLock)	which entries and slots are in use, by whom.  Never held while waiting.
 *	 JobqDb.mutex (spinlock)	the publication ring, commands, waiters: a few loads and stores, no calls
 *								that can fail (it is taken in commit callbacks, where an error is a PANIC).
 *	 Breakers.mutex (spinlock)	the breakers of job types (breaker.c)
 *	 Slot.mutex (spinlock)		which job the executor runs now and in which phase (slots.h).
 */
#ifndef JOBQ_SHMEM_H
#define JOBQ_SHMEM_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "shared/snapshot_horizon.h"

#define JOBQ_MAX_COMMANDS	256
#define JOBQ_KEPT_COMMANDS	(2 * JOBQ_MAX_COMMANDS)	/* of a dispatcher that ends */
#define JOBQ_MAX_MARKS		192		/* twice the executors */
#define JOBQ_MAX_WAITERS	64
#define JOBQ_REASON_LEN		128
#define JOBQ_TROUBLE_LEN	1024

/*
 * One publication.  For a lane: the positions of the rows that a transaction
 * has written there; lo == hi is one exact position.  With the type id
 * KEY_NEWS, for a concurrency key: lo is its hash (0: any), hi its created_at,
 * and priority 1 means that a row was removed.
 */
typedef struct LaneKeys
{
	int32		type_id;
	int16		priority;
	int16		sublane;
	TimestampTz lo;
	TimestampTz hi;
} LaneKeys;

#define KEY_NEWS	0

/*
 * Publications of transactions that have ended, for the dispatcher
 * (publish_jobs.c, inbox.c).  Under JobqDb.mutex.
 */
typedef struct PublicationRing
{
	uint64		head;			/* next to read; the dispatcher's */
	uint64		tail;			/* next to write; both modulo jobq_max_lanes,
								 * so they must not wrap */
	bool		overflow;		/* publications were lost: every lane from
								 * overflow_lo on is suspect */
	TimestampTz overflow_lo;
	LaneKeys   *keys;			/* jobq_max_lanes entries; set at server start */
	pg_atomic_uint32 imminent;	/* type of a job that a commit under way will
								 * publish, 0: none; without the mutex */
} PublicationRing;

/*
 * Types whose publications need not wake the dispatcher (wakeup_filter.c
 * writes, publish_jobs.c reads).  Under JobqDb.mutex.
 */
#define JOBQ_QUIET_TYPES	16
typedef struct WakeupFilter
{
	int			ntypes;
	int32		types[JOBQ_QUIET_TYPES];
} WakeupFilter;

/* A committed management call's request to cancel a running attempt. */
typedef struct Command
{
	pg_uuid_t	id;
	char		reason[JOBQ_REASON_LEN];
	bool		has_reason;
} Command;

/*
 * Requests of committed transactions to the dispatcher (publish_jobs.c and
 * dispatcher_request.c write, inbox.c reads).  Under JobqDb.mutex.
 */
typedef struct Requests
{
	bool		types_changed;
	bool		signals_changed;	/* signals or rules */
	bool		reload;
	int			ncancels;
	int			nreserved;		/* cancels that open transactions may still add */
	Command		cancels[JOBQ_MAX_COMMANDS + JOBQ_KEPT_COMMANDS];
} Requests;

/*
 * Prepared transactions whose publications wait for COMMIT or ROLLBACK
 * PREPARED (publish_jobs.c and statement_hooks.c write, inbox.c reads).  Under
 * JobqDb.mutex.
 */
#define JOBQ_MAX_PREPARED 32
typedef struct PreparedXacts
{
	int			nxacts;
	bool		types_changed;	/* one has changed the registry: read it again
								 * when any ends */
	bool		overflow;		/* there were more than fit */
	uint32		ended;			/* COMMIT and ROLLBACK PREPARED so far; also
								 * read plainly */
	struct
	{
		TransactionId xid;
		LaneKeys	pub;
	}			xacts[JOBQ_MAX_PREPARED];
} PreparedXacts;

/* jobq.stop_all() and jobq.drain() (kill_switch.c). */
typedef struct KillSwitch
{
	int			ndrains;		/* transactions in jobq.drain(): nothing is
								 * handed out; under JobqDb.mutex */
	bool		stopped;		/* stop_all() is on, as the dispatcher knows it;
								 * plain reads */
	bool		draining;		/* the dispatcher has seen ndrains; plain reads */
	ConditionVariable idle;		/* broadcast after a turn of the dispatcher
								 * while one of the two is set */
} KillSwitch;

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

/*
 * Outcomes of jobs that have ended and whose rows were not kept, for wait_for
 * (recent_results.c).  Under JobqDb.mutex.
 */
#define ENQUEUER_SIZE	(NAMEDATALEN + 11)	/* access_enqueuer()'s */
#define JOBQ_ENDINGS	512
typedef struct Ending
{
	pg_uuid_t	id;
	int32		type_id;
	int			status;			/* JobStatus */
	TransactionId xid;			/* of the settlement, which is about to commit;
								 * Invalid: it has committed */
	char		tenant[64];		/* decides who may see the result: grants.h */
	char		enqueued_by[ENQUEUER_SIZE];
} Ending;

typedef struct RecentResults
{
	uint32		count;			/* ever; the last JOBQ_ENDINGS of them are kept */
	Ending		results[JOBQ_ENDINGS];
} RecentResults;

/* The last measurement of the disk (disk_watch.c).  Under JobqDb.mutex. */
typedef struct DiskState
{
	int			level;			/* DiskLevel */
	double		percent;		/* of the fullest file system */
	MonoTime	measured;		/* 0: never */
} DiskState;

/* What handlers of a type have enqueued in each of the last seconds (spawn_limit.c). */
#define JOBQ_CHILD_TYPES	64
#define JOBQ_CHILD_SECONDS	61	/* a minute, and the second that has begun */
typedef struct ChildCount
{
	int32		type_id;		/* 0: free */
	int64		second;			/* the latest */
	uint32		sum;
	uint32		counts[JOBQ_CHILD_SECONDS];	/* by second modulo that */
} ChildCount;

/*
 * Exec types whose tool cannot be started on this node; the row of the job has
 * the reason.  exec_unstartable_types.c writes them, under JobqShmem->lock.
 */
#define JOBQ_MAX_UNSTARTABLE	1024
typedef struct UnstartableTypes
{
	int			ntypes;			/* those beyond the array included */
	struct
	{
		int32		type_id;
		pg_uuid_t	job;		/* the last one that tried to start */
	}			types[JOBQ_MAX_UNSTARTABLE];
} UnstartableTypes;

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

typedef struct Breakers
{
	slock_t		mutex;			/* covers this struct */
	int			ntypes;			/* also read plainly */
	Breaker		types[JOBQ_BREAKERS];
} Breakers;

#define JOBQ_ROW_BYTES	500		/* until a run has measured it */

/* Keeping the queue's files small (compaction.c).  Under JobqShmem->lock, but for atomics. */
typedef struct Compaction
{
	Horizon		horizon;		/* what is dead besides what the server's horizon says; holds for ever */
	uint32		asked;			/* calls of jobq.compact() */
	uint32		answered;		/* those that a run has served */
	uint32		serving;		/* those that the run under way serves */
	uint32		ended;			/* runs */
	bool		swept;			/* the last one got the table */
	bool		may_rewrite;	/* the next one may also try to write it anew */
	bool		rewrite_due;	/* the last one should have, and found no moment */
	bool		clean_due;		/* dead line pointers may be left, a cursor pinned an index page say */
	int64		kept_bytes;		/* of rows that it left */
	int64		rewrite_bytes;	/* of rows that a rewrite can copy without a stall, by the last measurement */
	TimestampTz rewrite_measured_at;	/* 0: never */
	int64		row_bytes;		/* a dead row's share of the files */
	pg_atomic_uint32 imports;		/* of snapshots, begun in this database's sessions */
	pg_atomic_uint64 pause_until;	/* MonoTime; until then no executor begins a job. 0: no pause */
} Compaction;

/* Signs of life and trouble, for health().  Plain reads but for the texts. */
typedef struct HealthState
{
	pg_atomic_uint64 beat;		/* MonoTime of the dispatcher's last turn */
	pg_atomic_uint64 ping;		/* health() and DDL increment it; the
								 * dispatcher copies it to pong */
	pg_atomic_uint64 pong;
	char		trouble[JOBQ_TROUBLE_LEN];	/* why nothing runs, '' when all is
											 * well; the dispatcher writes it,
											 * under JobqDb.mutex */
	char		helper_trouble[256];	/* the same for tools; the exec worker
										 * writes it, under JobqDb.mutex */
	bool		paused_identity;	/* the row of jobq.home has another identity:
									 * restored dump */
	bool		unfit;			/* no job may run with this version or these
								 * tables: `trouble` has the reason */
} HealthState;

/* Since server start. */
typedef struct Counters
{
	pg_atomic_uint64 handed_out;
	pg_atomic_uint64 settled;
	pg_atomic_uint64 failed_attempts;
	pg_atomic_uint64 fallbacks; /* "not mine" answers */
} Counters;

/* The chain of rate windows (rate_window.c).  The dispatcher's; JobqShmem->lock covers changes of the chain. */
typedef struct RateWindows
{
	Oid			dboid;			/* the database that the windows belong to */
	int32		first;			/* 0: none */
} RateWindows;

/* The maintenance process (maintenance.h).  Under JobqShmem->lock. */
typedef struct MaintenanceProcess
{
	bool		busy;			/* started and not ended */
	pid_t		pid;			/* 0: not attached */
	MonoTime	started;
	bool		compacts;		/* it was started to compact the queue */
	TimestampTz need;			/* expires_at of a row without a partition, 0:
								 * none */
	uint32		done;			/* runs that did all of their work */
	uint32		failed;			/* runs that did not: try again later */
} MaintenanceProcess;

/* The housekeeping process (housekeeping.h).  Under JobqShmem->lock. */
typedef struct HousekeepingProcess
{
	bool		busy;			/* started and not ended */
	pid_t		pid;			/* 0: not attached */
	MonoTime	started;
} HousekeepingProcess;

/* Why a database's last dispatcher has ended. */
typedef enum DispatcherEnd
{
	ENDED_OTHERWISE,			/* terminated, asked for a successor, or still
								 * runs */
	ENDED_ABSENT,				/* found no extension */
	ENDED_GAVE_WAY				/* db_must_leave */
} DispatcherEnd;

/*
 * Flags that start and stop the processes of a database (lifecycle/).  Under
 * JobqShmem->lock; plain reads are allowed.
 *
 *	 field		set by				cleared by			while it is set
 *	 wanted		a jobq call without	the launcher, with	the launcher starts a
 *				a dispatcher, the	the start of a		dispatcher as soon as no
 *				end of DDL, reload	dispatcher			delay and no DDL forbids it
 *	 suspended	DDL, before its		the end of that		nothing is handed out or
 *				locks (counts		transaction			read; SQL handlers are
 *				statements)								cancelled
 *	 leaving	DDL that needs the	the end of that		all processes leave the
 *				database to itself	transaction			database, none is started
 *				(counts statements)
 *	 restart	the commit of DROP	the launcher, when	all processes leave the
 *				EXTENSION			all processes have	database, none is started
 *									left
 *	 ended		the dispatcher, as	the next start		the launcher waits for
 *				it exits								`wanted` (ENDED_ABSENT), or
 *														starts the next dispatcher
 *														without delay
 */
typedef struct Lifecycle
{
	bool		wanted;
	uint8		ended;			/* DispatcherEnd */
	int			suspended;
	int			leaving;
	bool		restart;
	MonoTime	suspended_at;
} Lifecycle;

/* The dispatcher process.  Under JobqShmem->lock. */
typedef struct DispatcherProcess
{
	PGPROC	   *proc;			/* NULL: none; also read plainly */
	pid_t		pid;
	TimestampTz started;
	int			starts;			/* since server start */
	int			sql_workers;	/* its jobq.max_sql_workers; plain reads.
								 * SQL_WORKERS_UNKNOWN: the database is not
								 * known to have the extension */
} DispatcherProcess;

/* One database.  Found by dboid; never moves; freed when its dispatcher finds no extension. */
typedef struct JobqDb
{
	/* under JobqShmem->lock */
	Oid			dboid;			/* InvalidOid: free */
	Lifecycle	lifecycle;
	DispatcherProcess dispatcher;
	MaintenanceProcess maintenance;
	HousekeepingProcess housekeeping;
	Compaction	compaction;
	UnstartableTypes unstartable;

	/* under mutex */
	slock_t		mutex;
	PublicationRing ring;
	WakeupFilter wakeup_filter;
	Requests	requests;
	PreparedXacts prepared;
	KillSwitch	kill_switch;
	RecentResults recent_results;
	DiskState	disk;
	ChildCount	children[JOBQ_CHILD_TYPES];
	WaitFor		wait_for;

	Breakers	breakers;

	JobMarks	marks;

	HealthState health;
	Counters	counters;
	pg_atomic_uint32 builtin_signals;	/* active ones, a bit each (pressure_signals.h) */
	pg_atomic_uint32 news;		/* NEWS_*: listeners are to be notified of (commit_notices.h) */
	pg_atomic_uint32 lacking;	/* WORKER_*: wanted, and max_worker_processes is used up (worker_need.h) */
	RateWindows rates;
} JobqDb;

struct Slot;

typedef struct JobqShared
{
	LWLock	   *lock;
	Latch	   *launcher;		/* NULL: not running */
	pid_t		launcher_pid;
	TimestampTz started_at;		/* when this memory was new */
	int			registered_workers; /* background workers that are registered at server start, ours included */
	struct RatePool *rates;		/* rate_window.c */
	int			ndbs;
	int			nslots;
	struct Slot *slots;
	struct QuotaEntry *quotas;	/* JOBQ_MAX_QUOTAS; found under lock */
	JobqDb		dbs[FLEXIBLE_ARRAY_MEMBER];
} JobqShared;

extern JobqShared *JobqShmem;

/* True if all processes of jobq must leave the database. */
static inline bool
db_must_leave(const JobqDb *db)
{
	return db->lifecycle.restart || db->lifecycle.leaving > 0;
}

extern void shmem_install_hooks(void);

/* This database's entry, made when it is new; NULL without preload or when jobq.max_databases are in use. */
extern JobqDb *my_db(void);
/* Any database's entry, made when it is new. */
extern JobqDb *make_db(Oid dboid);
/* Finds it without making it. */
extern JobqDb *find_db(Oid dboid);
/* Tells the launcher to see to this database; cheap when its dispatcher runs. */
extern void want_dispatcher(JobqDb *db);
/* Sets the latch of db's dispatcher, if it has one. */
extern void wake_dispatcher(JobqDb *db);

/* Compaction asks for a few milliseconds in which nobody uses the queue. */
static inline bool
db_is_paused(JobqDb *db)
{
	uint64		until = pg_atomic_read_u64(&db->compaction.pause_until);

	return until != 0 && mono_now() < (MonoTime) until;
}

#endif
