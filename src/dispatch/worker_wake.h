/*
 * worker_wake.h
 *	  Wakes the worker of an idle queue's first job before that job is there:
 *	  worker_wake.c.
 */
#ifndef JOBQ_WORKER_WAKE_H
#define JOBQ_WORKER_WAKE_H

#include "shared/shmem.h"

extern void worker_wake_init(MemoryContext context, JobqDb *db);

/*
 * Wakes, at the beginning of a turn, the worker of the job that is about to be
 * found or committed.
 */
extern void worker_wake(TimestampTz now, bool may_hand_out);

#endif
