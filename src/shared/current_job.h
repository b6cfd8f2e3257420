/*
 * current_job.h
 *	  The job whose SQL handler runs in this process.
 *
 * The runner of handlers (sql_worker/handler.c) sets it; functions that a
 * handler may call, or must not call, read it.
 */
#ifndef JOBQ_CURRENT_JOB_H
#define JOBQ_CURRENT_JOB_H

typedef struct CurrentJob
{
	pg_uuid_t	id;
	int			depth;
} CurrentJob;

/* Returns the job whose handler runs now; NULL outside a handler. */
extern const CurrentJob *current_job(void);
/* Sets it around the call of a handler; NULL: no handler runs. */
extern void current_job_set(const CurrentJob *job);

#endif
