/*
 * shmem.h
 *	  The shared memory of jobq: one entry per database, one slot per executor.
 *
 * Allocated in the postmaster when the library is preloaded.  Otherwise
 * JobqShmem is NULL, and jobq runs nothing.  Locks:
 *
 *	 JobqShmem->lock (LWLock)	which entries and slots are in use, and by
 *								which processes.  Never held while waiting.
 *	 JobqDb.mutex (spinlock)	the parts that the table below names.  Held
 *								for a few loads and stores, with no call that
 *								can fail: commit callbacks take it, where an
 *								error is a PANIC.
 *	 Breakers.mutex (spinlock)	the breakers of job types (breaker.h)
 *	 Slot.mutex (spinlock)		the executor's current job and phase (slots.h)
 */
#ifndef JOBQ_SHMEM_H
#define JOBQ_SHMEM_H

#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "shared/db_ends.h"
#include "shared/db_inbox.h"
#include "shared/db_jobs.h"
#include "shared/db_processes.h"
#include "shared/db_schedules.h"
#include "shared/db_stats.h"
#include "shared/why_requests.h"

/*
 * One database.  Found by dboid; never moves; freed by the launcher after its
 * dispatcher has found no extension, and after DROP DATABASE (ddl_barrier.c).
 * Seven headers declare its parts:
 *
 *	 part				owner				writers				readers
 *
 *	 db_processes.h, under JobqShmem->lock:
 *	 lifecycle			ddl_barrier.c		DDL, launcher,		all processes,
 *											dispatcher,			also plainly
 *											commits
 *	 dispatcher			dispatcher.c		dispatcher,			all processes,
 *											launcher			also plainly
 *	 maintenance		maintenance.c		dispatcher, the		launcher, DDL
 *											process itself
 *	 conductor			conductor.c			dispatcher, the		commits, DDL,
 *											process itself		health
 *	 unstartable		exec_unstartable_	exec worker			health
 *						types.c
 *
 *	 db_inbox.h, under mutex:
 *	 ring				publish_jobs.c		ends of				dispatcher
 *											transactions
 *	 wakeup_filter		wakeup_filter.c		dispatcher			ends of
 *																transactions
 *	 requests			inbox.c				ends of				dispatcher
 *											transactions
 *	 prepared			inbox.c				PREPARE, COMMIT		dispatcher
 *											PREPARED
 *	 successors			inbox.c				ends of				dispatcher
 *											transactions
 *	 claims				claims.c			jobq.claim()		dispatcher
 *	 kill_switch		kill_switch.c		drain(),			dispatcher,
 *											dispatcher			drain(), health
 *
 *	 db_jobs.h, under mutex:
 *	 recent_ends		recent_ends.c	settlements			wait_for()
 *	 wait_for			wait_for.c			wait_for(),			wait_for()
 *											settlements
 *	 disk				disk_watch.c		maintenance			enqueue, health
 *	 space				queue_space.c		maintenance			health
 *	 claimed			lease_table.c		dispatcher			stat_workers
 *
 *	 db_schedules.h, under mutex:
 *	 schedule_news		publish_schedules.c	ends of				conductor,
 *											transactions,		dispatcher
 *											conductor
 *
 *	 db_ends.h, under mutex:
 *	 ends				publish_ends.c		ends of				conductor
 *											transactions
 *	 run_starts			run_hand_outs.c		dispatcher,			conductor,
 *											conductor			dispatcher
 *
 *	 why_requests.h, under mutex:
 *	 whys				why_requests.c		why(),				the same
 *											dispatcher
 *
 *	 db_jobs.h, under other locks:
 *	 breakers			breaker.c			settlements,		executors,
 *											dispatcher			dispatcher,
 *																health
 *	 marks				queue_scan.c		dispatcher			dispatcher
 *	 rates				rate_window.c		dispatcher			dispatcher
 *
 *	 db_processes.h, the dispatcher's:
 *	 clock_steps		clock_steps.c		dispatcher			dispatcher
 *
 *	 db_processes.h, atomics and plain reads:
 *	 health				dispatcher.c		dispatcher, exec	health, DDL,
 *											worker				commits,
 *																launcher
 *	 counters			executor_pool.c		dispatcher,			statistics
 *											executors
 *
 *	 db_schedules.h, atomics:
 *	 schedules			conductor.c			conductor			health
 *
 *	 db_stats.h, under mutex, JobqShmem->lock, or the dispatcher's:
 *	 stats				stat_changes.c		ends of				views,
 *											transactions,		metrics
 *											live_counts.c,
 *											dispatcher
 *
 *	 db_ends.h, atomics:
 *	 awaited			publish_ends.c		enqueue, conductor	ends of
 *																transactions
 *
 *	 here, atomics:
 *	 builtin_signals	pressure_signals.c	dispatcher, disk	dispatcher,
 *											watch				health
 *	 news				commit_news.c	commits				dispatcher
 *	 lacking			worker_need.c		launcher,			health, enqueue
 *											dispatcher
 */
typedef struct JobqDb
{
	Oid			dboid;			/* InvalidOid: free; under JobqShmem->lock */

	/* under JobqShmem->lock */
	Lifecycle	lifecycle;
	DispatcherProcess dispatcher;
	MaintenanceProcess maintenance;
	ConductorProcess conductor;
	UnstartableTypes unstartable;

	/* under mutex */
	slock_t		mutex;
	PublicationRing ring;
	WakeupFilter wakeup_filter;
	Requests	requests;
	PreparedXacts prepared;
	Successors	successors;
	KillSwitch	kill_switch;
	ClaimList	claims;
	RecentEnds recent_ends;
	DiskState	disk;
	QueueSpace	space;
	WaitFor		wait_for;
	ClaimedJobs claimed;
	ScheduleNews schedule_news;
	EndNews		ends;
	RunStarts	run_starts;
	DbStats		stats;
	WhyRequests whys;

	/* under their own mutex */
	Breakers	breakers;

	/* the dispatcher's, for the next one */
	JobMarks	marks;
	RateWindows rates;
	ClockSteps	clock_steps;

	/* atomics, plain reads */
	HealthState health;
	Counters	counters;
	ScheduleCounts schedules;
	AwaitedJobs awaited;
	pg_atomic_uint32 builtin_signals;	/* active ones, a bit each
										 * (pressure_signals.h) */
	pg_atomic_uint32 news;		/* NEWS_*: listeners to notify
								 * (commit_news.h) */
	pg_atomic_uint32 lacking;	/* WORKER_*: wanted, and max_worker_processes
								 * is used up (worker_need.h) */
} JobqDb;

struct Slot;

typedef struct JobqShared
{
	LWLock	   *lock;
	Latch	   *launcher;		/* NULL: not running */
	pg_atomic_uint32 launcher_woken;	/* wakeups.h */
	pid_t		launcher_pid;
	bool		databases_changed;	/* the launcher is to read pg_database again */
	TimestampTz started_at;		/* when this memory was new */
	int			registered_workers; /* background workers registered at server
									 * start, those of jobq included */
	struct RatePool *rates;		/* rate_window.c */
	int			ndbs;
	int			nslots;
	struct Slot *slots;
	struct ClaimPlace *claims;	/* one for each process of the server */
	int			nclaims;
	pg_atomic_uint32 last_session;	/* claim_session.h */
	struct QuotaEntry *quotas;	/* JOBQ_MAX_QUOTAS; found under lock */
	struct StatEntry *stats;	/* stat_store.h */
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

/*
 * Returns this database's entry, and makes it if it is new; NULL without
 * preload or when jobq.max_databases are in use.
 */
extern JobqDb *my_db(void);
/* The same for any database. */
extern JobqDb *make_db(Oid dboid);
/* Frees a database's entry, with the lock held: it has no extension. */
extern void release_db(JobqDb *db);
/* Returns a database's entry; NULL: there is none. */
extern JobqDb *find_db(Oid dboid);
/* The same two in the postmaster, which has no locks. */
extern JobqDb *make_db_at_start(Oid dboid);
extern JobqDb *find_db_at_start(Oid dboid);
/* Asks the launcher for a dispatcher; cheap when one runs. */
extern void want_dispatcher(JobqDb *db);
/* Wakes the database's dispatcher, if it has one. */
extern void wake_dispatcher(JobqDb *db);
extern void wake_launcher(void);

#endif
