/*
 * dispatcher_wait.h
 *	  Wakes the worker of an idle queue's first job before that job is there:
 *	  dispatcher_wait.c.
 */
#ifndef JOBQ_DISPATCHER_WAIT_H
#define JOBQ_DISPATCHER_WAIT_H

#include "shared/shmem.h"

extern void wake_init(MemoryContext context, JobqDb *db);

/*
 * Wakes, at the beginning of a turn, the worker of the job that is about to be
 * found or committed.
 */
extern void wake_worker(TimestampTz now, bool may_hand_out);

#endif
