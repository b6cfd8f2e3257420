/*
 * conductor_timers.h
 *	  Timers of runs that can't be acted on together.
 */
#ifndef JOBQ_CONDUCTOR_TIMERS_H
#define JOBQ_CONDUCTOR_TIMERS_H

#include "utils/elog.h"

/* Acts on timers that are due, one by one; returns an error that concerns all of them. */
extern ErrorData *timers_one_by_one(void);

#endif
