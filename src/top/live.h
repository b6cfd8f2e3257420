/*
 * live.h
 *	  The screen that refreshes itself.
 */
#ifndef JOBQ_TOP_LIVE_H
#define JOBQ_TOP_LIVE_H

#include <stdint.h>

/* Runs until a key or a signal ends it; returns that signal, 0: the key q; -1: no terminal. */
extern int	live_run(int64_t interval_ms);

#endif
