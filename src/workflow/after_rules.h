/*
 * after_rules.h
 *	  What ends of parents amount to for a job that waits for them: the table
 *	  of after.h as a function.
 */
#ifndef JOBQ_AFTER_RULES_H
#define JOBQ_AFTER_RULES_H

#include "enqueue/after.h"

/* How a parent has ended, beside JobStatus. */
#define PARENT_GONE		(-3)	/* neither in the queue nor ended with a row */
#define PARENT_LIVES	(-4)
#define PARENT_DIED		(-5)	/* as a dead letter, which is gone */

typedef enum Verdict
{
	WAITS,
	RELEASED,
	SKIPPED,
	CANCELLED
} Verdict;

/* What the ends of some parents amount to. */
typedef struct Ends
{
	int			n;				/* that count */
	int			completed;
	int			dead;
	int			cancelled;
	int			gone;
	int			passed;			/* dead tasks after which their run goes on */
} Ends;

extern AfterRule after_rule_of(Job *job);

/*
 * Decides on a blocked job.  *left: parents that it still waits for; *state:
 * its after_state with these ends.
 */
extern Verdict after_decide(Job *job, const Ends *sum, int *left, int *state);

#endif
