/*
 * unknown_prepared.h
 *	  Prepared transactions of which nothing was published.
 */
#ifndef JOBQ_UNKNOWN_PREPARED_H
#define JOBQ_UNKNOWN_PREPARED_H

#include "shared/shmem.h"

extern void prepared_init(MemoryContext context, JobqDb *db);
/* Starts to watch the prepared transactions that exist now. */
extern void expect_unknown_prepared(void);

/*
 * Cheap check: true if any prepared transaction has ended since the last call
 * of unknown_prepared_ended, while some were listed.
 */
extern bool prepared_may_have_ended(void);
/* True if a listed one has ended: its rows may be anywhere in the queue. */
extern bool unknown_prepared_ended(void);

#endif
