/*
 * flow_sets.h
 *	  The sets of job ids that others wait for: when they are complete, and how
 *	  they forget.
 */
#ifndef JOBQ_FLOW_SETS_H
#define JOBQ_FLOW_SETS_H

#include "shared/shmem.h"

/* The dispatcher has started.  In a transaction. */
extern void sets_start(JobqDb *db);
/* Every edge that a transaction can see has its bit.  In a transaction. */
extern void sets_complete(JobqDb *db);

/* Changes the sets when it is time; true: a pass shall begin that ends the change. */
extern bool sets_turn(JobqDb *db);
/* True if the sets are being changed. */
extern bool sets_change(JobqDb *db);
/* A pass over all edges begins, and has marked all parents.  In a transaction. */
extern void sets_pass_begins(JobqDb *db);
extern void sets_pass_ends(JobqDb *db);

#endif
