/*
 * release_children.h
 *	  Jobs that a transaction releases because it ends all that they wait for.
 */
#ifndef JOBQ_RELEASE_CHILDREN_H
#define JOBQ_RELEASE_CHILDREN_H

#include "shared/shmem.h"
#include "tables/queue_table.h"

/* The jobs that the transaction has ended and that others may wait for. */
typedef struct EndedParents
{
	int			n;
	int			size;
	JobEnd	   *ends;			/* NULL: no room yet */
} EndedParents;

/*
 * Adds a job that the transaction has settled with that status, if it has
 * ended and its bit is set.  Tasks of runs are the conductor's.
 */
extern void parents_add(EndedParents *parents, Job *job, JobStatus status);

/*
 * Releases the children, as far as it can without waiting; the conductor does
 * the rest.  To be called once, at the end of the transaction, with no tables
 * of jobq open.  An error in it is logged and rolls back its own writes only.
 */
extern void parents_release_children(EndedParents *parents);

#endif
