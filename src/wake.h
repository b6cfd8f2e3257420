/*
 * wake.h
 *	  The worker of an idle queue's first job wakes up before there is one: wake.c.
 */
#ifndef JOBQ_WAKE_H
#define JOBQ_WAKE_H

#include "shmem.h"

extern void wake_init(JobqDb *db);
/* At the beginning of a turn: the worker of the job that is about to be found, or committed, wakes up. */
extern void wake_worker(TimestampTz now, bool may_hand_out);

#endif
