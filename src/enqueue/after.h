/*
 * after.h
 *	  The argument after of enqueue: jobs that wait for other jobs.
 *
 * What the end of a parent does to the job, by after_rule:
 *
 *	 rule		completed	skipped		dead letter		cancelled	gone
 *	 success	counts		counts		waits for its	job is		job is
 *							as ended	retry			cancelled	cancelled
 *	 done		counts		counts		counts			counts		counts
 *	 any		releases	no more		no more			no more		no more
 *	 failed		no more		no more		releases		releases	no more
 *
 * "No more" counts, too, but a job all of whose parents have ended so is
 * skipped; so is one of rule success without any completed parent.
 * src/workflow/edges.c applies the ends, src/workflow/release_children.c those
 * that are all that a job waits for.
 */
#ifndef JOBQ_AFTER_H
#define JOBQ_AFTER_H

#include "enqueue/job_row.h"

#define JOBQ_MAX_AFTER	10000

/* Bits of queue.after_state: parents that have ended so. */
#define AFTER_COMPLETED_BIT	1
#define AFTER_FAILED_BIT	2

extern const char *const after_rule_names[AFTER_FAILED + 1];

/* Reads and checks the two arguments, without a look at the parents. */
extern void after_read(Request *request, const NullableDatum *after, const NullableDatum *rule);
/* Returns the number of parents. */
extern int	after_count(const Request *request);
/*
 * Looks at the parents: sets request->blocked, and which of them count already:
 * their rows may expire before this transaction commits.  P0002 for one that
 * does not exist or that the caller does not see.
 */
extern void after_resolve(Enqueuer *e, Request *request);
/* Writes the edges of a blocked job that has been stored: those that don't count. */
extern void after_store(Enqueuer *e, Request *request, const pg_uuid_t *id);
/*
 * 22023 if the parents wait for the job that gets them, or are that job.  Until the
 * transaction ends no other one gives parents to a stored job.
 */
extern void after_check_cycle(Request *request, const pg_uuid_t *id);
/*
 * Deletes the edges that a job's row names, before it gets others.  A job that is
 * released has some, too: those of parents that its rule did not wait for.
 */
extern void after_forget(Enqueuer *e, Job *job);

#endif
