/*
 * conductor_sweep.h
 *	  Finds runs of workflows whose news were lost.
 */
#ifndef JOBQ_CONDUCTOR_SWEEP_H
#define JOBQ_CONDUCTOR_SWEEP_H

#include "base/clock.h"

/* Notes that runs exist: one sweep a minute until there is none. */
extern void sweep_has_runs(void);
/*
 * Begins a sweep at once, or when the one that goes on is over: news were lost,
 * or the clock was set back.
 */
extern void sweep_again(bool clock);
/* Runs one transaction, if there is work; returns true if a sweep begins or is over. */
extern bool sweep_turn(void);
/* Returns when there is work; 0: now, DT_NOEND: never. */
extern MonoTime sweep_next(void);
/* True if no run exists. */
extern bool sweep_is_idle(void);

#endif
