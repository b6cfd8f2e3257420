/*
 * db_processes.h
 *	  Parts of JobqDb about a database's processes; shmem.h has the table.
 */
#ifndef JOBQ_DB_PROCESSES_H
#define JOBQ_DB_PROCESSES_H

#include "port/atomics.h"
#include "storage/proc.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"

/* Why a database's last dispatcher has ended. */
typedef enum DispatcherEnd
{
	ENDED_OTHERWISE,			/* terminated, asked for a successor, or still
								 * runs */
	ENDED_ABSENT,				/* found no extension */
	ENDED_GAVE_WAY				/* db_must_leave, or refused */
} DispatcherEnd;

/*
 * Flags that start and stop the processes of a database (lifecycle/).  Under
 * JobqShmem->lock; plain reads are allowed.
 *
 *	 field		set by				cleared by			effect while set
 *	 wanted		a jobq call without	the launcher, with	the launcher starts a
 *				a dispatcher, the	the start of a		dispatcher; a delay or
 *				end of DDL, reload	dispatcher			DDL defers that
 *	 suspended	DDL, before its		the end of that		no hand-out, no reads;
 *				locks (counts		transaction			SQL handlers are
 *				commands)								cancelled
 *	 leaving	DDL that needs the	the end of that		all processes leave the
 *				database to itself	transaction			database, none starts
 *				(counts commands)
 *	 restart	the commit of DROP	the launcher, when	the same
 *				EXTENSION			all processes have
 *									left
 *	 refused	the launcher: the	the launcher, when	the dispatcher and its
 *				database is closed,	it is admitted		children leave, none
 *				or left out by		again				starts; executors end
 *				jobq.databases								what they run
 *	 ended		the dispatcher, as	the next start		the launcher waits for
 *				it exits								`wanted`, if it is
 *														ENDED_ABSENT; else it
 *														starts the next one
 *														without delay
 */
typedef struct Lifecycle
{
	bool		wanted;
	uint8		ended;			/* DispatcherEnd */
	int			suspended;
	int			leaving;
	bool		restart;
	bool		refused;
	MonoTime	suspended_at;	/* the last DDL began, or DROP EXTENSION
								 * committed */
	uint32		changes;		/* rises when DDL on the extension begins and
								 * when it commits: a claim that waits then
								 * ends */
} Lifecycle;

/* The dispatcher process.  Under JobqShmem->lock. */
typedef struct DispatcherProcess
{
	PGPROC	   *proc;			/* NULL: none; also read plainly */
	pid_t		pid;
	pg_atomic_uint32 woken;		/* wakeups.h */
	TimestampTz started;
	int			starts;			/* since server start */
	int			sql_workers;	/* its jobq.max_sql_workers; plain reads.
								 * SQL_WORKERS_UNKNOWN: the database is not
								 * known to have the extension */
} DispatcherProcess;

#define JOBQ_TROUBLE_LEN	1024
#define LEASES_UNKNOWN		0x80000000	/* a bit, until the dispatcher has read them */

#define JOBQ_CHECKS		32			/* of health() */

/* Signs of life and trouble, for health().  Plain reads but for the texts. */
typedef struct HealthState
{
	pg_atomic_uint64 beat;		/* MonoTime of the dispatcher's last turn */
	pg_atomic_uint64 ping;		/* health() and DDL increment it; the
								 * dispatcher copies it to pong */
	pg_atomic_uint64 pong;
	pg_atomic_uint32 leases;	/* jobs that clients have, at the end of the
								 * dispatcher's last turn */
	pg_atomic_uint32 weight;	/* cpu_weight of the running jobs, then too; */
	pg_atomic_uint32 max_weight;	/* 0: it is not counted */
	char		trouble[JOBQ_TROUBLE_LEN];	/* why nothing runs, '' when all is
											 * well; the dispatcher writes it,
											 * under JobqDb.mutex */
	char		helper_trouble[256];	/* the same for tools; the exec worker
										 * writes it, under JobqDb.mutex */
	pg_atomic_uint32 held;		/* type of a job that can't end: its commit
								 * has failed twice; 0: none */
	pg_atomic_uint64 since[JOBQ_CHECKS];	/* TimestampTz of the first health() in a row
											 * that found the check not healthy; 0: healthy */
	bool		paused_identity;	/* the row of jobq.home is not ours: a
									 * restored dump */
	bool		unfit;			/* no job may run with this version or these
								 * tables: `trouble` has the reason */
} HealthState;

/*
 * The differences between wall clock and monotonic clock since the server's
 * start, the last ones, and when each of them held (clock_steps.c).  The
 * dispatcher's, for the next one.
 */
#define JOBQ_CLOCK_SPANS	16
typedef struct ClockSpan
{
	int64		difference;
	MonoTime	from;
	MonoTime	until;
} ClockSpan;

typedef struct ClockSteps
{
	int			nspans;
	MonoTime	seen;			/* when the clocks were last compared */
	ClockSpan	spans[JOBQ_CLOCK_SPANS];
} ClockSteps;

/*
 * A process of which the database has at most one (child_process.h).  Under
 * JobqShmem->lock.
 */
typedef struct ChildProcess
{
	bool		busy;			/* started and not ended */
	pid_t		pid;			/* 0: not attached */
	PGPROC	   *proc;			/* NULL: not attached; also read plainly */
	MonoTime	started;
	pg_atomic_uint32 woken;		/* wakeups.h */
} ChildProcess;

/* What maintenance does, in this order (maintenance_tasks.c). */
typedef enum MaintenanceTask
{
	TASK_PARTITIONS,
	TASK_DISKS,
	TASK_BREAKERS,				/* events of those that clients opened or closed */
	TASK_COUNT_ROWS,			/* for the statistics */
	TASK_RETENTION,
	TASK_QUEUE_SPACE,
	TASK_GAUGES,
	TASK_CONDITION				/* of a signal; the process ends after it */
} MaintenanceTask;
#define MAINTENANCE_TASKS (TASK_CONDITION + 1)

#define JOBQ_ASKED_CONDITIONS	16

/*
 * The maintenance process (maintenance.c).  The dispatcher asks for tasks;
 * what a process did not do is left for the next one.
 */
typedef struct MaintenanceProcess
{
	ChildProcess child;
	pg_atomic_uint32 asked;		/* 1 << MaintenanceTask: to be taken */
	pg_atomic_uint32 failures;	/* runs of TASK_PARTITIONS in a row that left something to do */
	pg_atomic_uint64 since;		/* MonoTime of the beginning of the task that runs; 0: none */
	/* under JobqDb.mutex: */
	int			nconditions;
	int32		conditions[JOBQ_ASKED_CONDITIONS];	/* signals, to be evaluated in this order */
	int32		evaluated;		/* the signal whose condition is evaluated; 0: none */
	MonoTime	must_end;		/* then its process is terminated */
	int32		overrun;		/* the signal whose process had to be; 0: none */
	char		trouble[MAINTENANCE_TASKS][128];	/* the error that has ended a task's last run; '': none */
} MaintenanceProcess;

/*
 * Exec types with a tool that cannot be started on this node; the row of the
 * job has the reason.  exec_unstartable_types.c writes them, under
 * JobqShmem->lock.
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

/* Totals since server start. */
typedef struct Counters
{
	pg_atomic_uint64 handed_out;
	pg_atomic_uint64 settled;
	pg_atomic_uint64 failed_attempts;
	pg_atomic_uint64 fallbacks; /* "not mine" answers */
} Counters;

#endif
