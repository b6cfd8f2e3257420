/*
 * enqueue.h
 *	  What follows the storing of a job or schedule.
 */
#ifndef JOBQ_ENQUEUE_H
#define JOBQ_ENQUEUE_H

/*
 * Asks for a dispatcher if there is none, and warns once a session when nothing
 * will run jobs.  stored: "the job".
 */
extern void see_that_jobs_run(const char *stored);

#endif
