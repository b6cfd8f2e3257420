/*
 * insert_job.h
 *	  Putting a checked request into jobq.queue.
 */
#ifndef JOBQ_INSERT_JOB_H
#define JOBQ_INSERT_JOB_H

#include "enqueue/job_row.h"

extern void enqueuer_begin(Enqueuer *e);
extern void enqueuer_end(Enqueuer *e);
/* Stores a job.  False: *id is the job that has its unique key already. */
extern bool store_job(Enqueuer *e, Request *request, pg_uuid_t *id);

#endif
