/*
 * clock_step.h
 *	  Steps of the wall clock.
 */
#ifndef JOBQ_CLOCK_STEP_H
#define JOBQ_CLOCK_STEP_H

#include "base/clock.h"

/* True if the wall clock was set, forward or back, since the last call. */
extern bool clock_was_set(TimestampTz now, MonoTime mono);

#endif
