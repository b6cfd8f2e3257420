/*
 * unknown_prepared.h
 *	  Prepared transactions of which nothing was published.
 */
#ifndef JOBQ_UNKNOWN_PREPARED_H
#define JOBQ_UNKNOWN_PREPARED_H

#include "shared/shmem.h"

extern void prepared_init(JobqDb *db);
/* From now on those that are there count. */
extern void expect_unknown_prepared(void);
/* Cheap: has any prepared transaction ended since the last look, while some of those were left? */
extern bool prepared_may_have_ended(void);
/* True: one has ended, and what it did may be anywhere in the queue. */
extern bool unknown_prepared_ended(void);

#endif
