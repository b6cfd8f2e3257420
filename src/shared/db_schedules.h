/*
 * db_schedules.h
 *	  Part of JobqDb about schedules; shmem.h has the table.
 */
#ifndef JOBQ_DB_SCHEDULES_H
#define JOBQ_DB_SCHEDULES_H

#include "port/atomics.h"
#include "storage/proc.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/clock.h"
#include "shared/db_processes.h"

/* The conductor process (conductor.c).  Under JobqShmem->lock. */
typedef struct ConductorProcess
{
	ChildProcess child;
	bool		restart;		/* it is to end; the next one reads all again */
} ConductorProcess;

/* A job of a tick that has left the queue. */
typedef struct ScheduledEnd
{
	int32		schedule_id;
	int			status;			/* JobStatus */
	pg_uuid_t	job_id;
	TimestampTz ended_at;
} ScheduledEnd;

#define JOBQ_CHANGED_SCHEDULES	256
#define JOBQ_SCHEDULED_ENDS		256

/*
 * News of committed transactions for the conductor (publish_schedules.c
 * writes, conductor.c reads).  Under JobqDb.mutex.
 */
typedef struct ScheduleNews
{
	bool		wanted;			/* a conductor is needed; also read plainly */
	bool		hears;			/* some schedule acts on the ends of its jobs, or
								 * there is news: ends are kept */
	bool		changed_all;	/* more schedules have changed than fit */
	bool		ends_lost;		/* more jobs have ended than fit */
	bool		prepared;		/* a prepared transaction may contain news */
	int			nchanged;
	int32		changed[JOBQ_CHANGED_SCHEDULES];
	int			nends;
	ScheduledEnd ends[JOBQ_SCHEDULED_ENDS];
} ScheduleNews;

typedef enum TickOutcome
{
	TICK_ENQUEUED,
	TICK_SKIPPED,				/* by overlap, catch_up, or its unique key */
	TICK_REFUSED				/* by an error of enqueue */
} TickOutcome;
#define TICK_OUTCOMES (TICK_REFUSED + 1)

/* Counts for health() and metrics; the conductor's, plain reads. */
typedef struct ScheduleCounts
{
	pg_atomic_uint64 ticks[TICK_OUTCOMES];	/* since server start */
	pg_atomic_uint64 due;		/* TimestampTz of the next tick; 0: none */
	pg_atomic_uint32 active;
	pg_atomic_uint32 paused;	/* by jobq */
} ScheduleCounts;

#endif
