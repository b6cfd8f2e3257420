/*
 * wake.h
 *	  When the dispatcher wakes up, and whom it wakes before there is a job: wake.c.
 */
#ifndef JOBQ_WAKE_H
#define JOBQ_WAKE_H

#include "shmem.h"

extern void wake_init(JobqDb *db);
/* At the beginning of a turn: the worker of the job that is about to be found, or committed, wakes up. */
extern void wake_worker(TimestampTz now, bool may_hand_out);
/* Sleeps on the latch, as a rule; timeout in ms. */
extern void wake_wait(long timeout);

#endif
