/*
 * wakeup_filter.h
 *	  Types with new jobs that could not start anyway: their commits need not
 *	  wake the dispatcher.  And the worker that is woken before its job is there.
 */
#ifndef JOBQ_WAKEUP_FILTER_H
#define JOBQ_WAKEUP_FILTER_H

#include "shared/shmem.h"

/* Clears the filter: a new dispatcher needs every wake-up. */
extern void wakeup_filter_init(MemoryContext context, JobqDb *db);
/* Notes that a publication of this type was taken. */
extern void wakeup_filter_note(int32 type_id);

/*
 * Sets the filter before going to sleep; true if a publication arrived without
 * a wake-up: poll again.
 */
extern bool wakeup_filter_settle(void);

/*
 * Wakes, at the beginning of a turn, the worker of an idle queue's first job,
 * which is about to be found or committed.
 */
extern void worker_wake(TimestampTz now, bool may_hand_out);

#endif
