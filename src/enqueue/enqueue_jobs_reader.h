/*
 * enqueue_jobs_reader.h
 *	  The argument of jobq.enqueue_jobs: an array of objects whose keys
 *	  are enqueue's argument names.
 */
#ifndef JOBQ_ENQUEUE_JOBS_READER_H
#define JOBQ_ENQUEUE_JOBS_READER_H

#include "enqueue/enqueue_request.h"
#include "utils/uuid.h"

typedef struct JobList
{
	Jsonb	   *jobs;
	int			count;
	int			ordinal;		/* of the job last read, from 1 */
	MemoryContext per_job;
	MemoryContext caller;
	const char *converting;		/* the argument whose value an input function reads; NULL: none */
	pg_uuid_t  *ids;			/* of the jobs before it: the caller writes them */
} JobList;

extern void job_list_begin(JobList *list, Jsonb *jobs);
/* Reads and checks the next job, which lives until the following one is read. */
extern bool job_list_next(JobList *list, Request *request);
extern void job_list_end(JobList *list);
/* Returns the prefix of errors raised meanwhile: the job's number, from 1. */
extern const char *job_list_prefix(const JobList *list);

/*
 * Reads the arguments of one job from an object over those in args.
 * *converting is the name of the argument whose value an input function reads,
 * else NULL.  Numbers in `after` name the earlier jobs.
 */
extern void job_arguments_read(JsonbContainer *object, NullableDatum *args, const char **converting,
							   const pg_uuid_t *earlier, int nearlier);

#endif
