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

/*
 * enqueue.c: asks for a dispatcher if there is none, and warns once a session
 * when nothing will run jobs.  stored: "the job".
 */
extern void see_that_jobs_run(const char *stored);

#endif
