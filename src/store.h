/*
 * store.h
 *	  Putting a checked request into jobq.queue.
 */
#ifndef JOBQ_STORE_H
#define JOBQ_STORE_H

#include "queue.h"
#include "request.h"

/* One call of enqueue, enqueue_many or enqueue_jobs. */
typedef struct Enqueuer
{
	Table		queue;
	int32		home_id;
	TimestampTz future;			/* scheduled_for of the last job that is not due yet */
	int64		nfuture;		/* how many before it had the same */
} Enqueuer;

/* Stores a job.  False: *id is the job that has its unique key already. */
extern bool store_job(Enqueuer *e, Request *request, pg_uuid_t *id);

#endif
