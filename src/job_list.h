/*
 * job_list.h
 *	  The argument of jobq.enqueue_jobs: an array of objects whose keys are enqueue's argument names.
 */
#ifndef JOBQ_JOB_LIST_H
#define JOBQ_JOB_LIST_H

#include "request.h"

typedef struct JobList
{
	Jsonb	   *jobs;
	int			count;
	int			ordinal;		/* of the job last read, from 1 */
	MemoryContext per_job;
	MemoryContext caller;
	ErrorContextCallback context;
} JobList;

/* From begin to end every error says which job it is about. */
extern void job_list_begin(JobList *list, Jsonb *jobs);
/* Reads and checks the next job, which lives until the following one is read. */
extern bool job_list_next(JobList *list, Request *request);
extern void job_list_end(JobList *list);

#endif
