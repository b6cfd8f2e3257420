/*
 * wait_events.h
 *	  Wait events.
 */
#ifndef JOBQ_WAIT_EVENTS_H
#define JOBQ_WAIT_EVENTS_H

typedef enum JobqWait
{
	WAIT_LAUNCHER,
	WAIT_DISPATCHER,
	WAIT_SQL_WORKER,
	WAIT_EXEC_WORKER,
	WAIT_HELPER_LEAVES,
	WAIT_DDL,
	WAIT_UNIQUE_KEY,
	WAIT_JOB,
	WAIT_HEALTH,
	WAIT_CONDUCTOR,
	WAIT_CLAIM,
	WAIT_STATISTICS,
	WAIT_WHY,
	JOBQ_NWAITS
} JobqWait;

/* Returns the wait_event_info of a wait, for WaitLatch. */
extern uint32 jobq_wait(JobqWait wait);

#endif
