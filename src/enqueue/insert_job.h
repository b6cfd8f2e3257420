/*
 * insert_job.h
 *	  Putting a checked request into jobq.queue.
 */
#ifndef JOBQ_INSERT_JOB_H
#define JOBQ_INSERT_JOB_H

#include "enqueue/enqueue_request.h"
#include "tables/event_log.h"

/* One call of enqueue, enqueue_many or enqueue_jobs, or a hook. */
typedef struct Enqueuer
{
	Table		queue;
	int32		home_id;
	TimestampTz future;			/* scheduled_for of the last job that is not due yet */
	int64		nfuture;		/* how many before it had the same */
	EventLog	events;
} Enqueuer;

extern void enqueuer_begin(Enqueuer *e);
extern void enqueuer_end(Enqueuer *e);
/* Stores a job.  False: *id is the job that has its unique key already. */
extern bool store_job(Enqueuer *e, Request *request, pg_uuid_t *id);

#endif
