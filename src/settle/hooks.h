/*
 * hooks.h
 *	  Jobs that follow from a job: options.on_complete, on_failure and on_dead
 *	  of its type, and the job of an alert.
 *
 * They are enqueued in the transaction that settles the job, each in a
 * subtransaction of its own.  A failure writes an event hook_failed, and does
 * not change how the job ends.
 */
#ifndef JOBQ_HOOKS_H
#define JOBQ_HOOKS_H

#include "settle/settle.h"

typedef struct Hook
{
	const char *name;			/* on_complete, on_failure, on_dead, alert */
	const char *job_type;		/* to be enqueued */
	const JobType *owned;		/* its owner's right to enqueue counts; NULL: ours */
	const char *source;			/* of its event, when it fails */
	Jsonb	   *payload;
	bool		refers;			/* to the row of its parent, which has to stay for it */
} Hook;

/*
 * Enqueues the job of a hook; its parent is the job whose columns (of
 * jobq.queue) these are.
 */
extern void hook_enqueue(Ledger *ledger, const Datum *values, const bool *nulls, JobType *type, int attempt,
						 const Hook *hook);
/*
 * True if a job of a hook, of this end or of a former attempt's, needs the row
 * of the job.
 */
extern bool hooks_refer(Job *job, JobType *type, Outcome *o, int attempt, JobStatus status);

/*
 * Enqueues the hooks of an attempt's end, after which the job has that status.
 */
extern void hooks_fire(Ledger *ledger, Job *job, JobType *type, Outcome *o, int attempt, JobStatus status);

/* The checked columns of jobq.hook_references: see table_shape.h. */
extern const struct Shape hook_references_shape;

#endif
