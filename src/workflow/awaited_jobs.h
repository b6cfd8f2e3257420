/*
 * awaited_jobs.h
 *	  The sets of job ids that others wait for: when they are complete, and how
 *	  they forget.
 */
#ifndef JOBQ_AWAITED_JOBS_H
#define JOBQ_AWAITED_JOBS_H

#include "shared/shmem.h"

/* The dispatcher has started.  In a transaction. */
extern void awaited_start(JobqDb *db);
/* Every edge that a transaction can see has its bit.  In a transaction. */
extern void awaited_complete(JobqDb *db);

/* Changes the sets when it is time; true: a pass shall begin that ends the change. */
extern bool awaited_turn(JobqDb *db);
/* True if the sets are being changed. */
extern bool awaited_change(JobqDb *db);
/* A pass over all edges begins, and has marked all parents.  In a transaction. */
extern void awaited_pass_begins(JobqDb *db);
extern void awaited_pass_ends(JobqDb *db);

#endif
