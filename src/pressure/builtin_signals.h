/*
 * builtin_signals.h
 *	  The built-in signals that the dispatcher sets itself.
 */
#ifndef JOBQ_BUILTIN_SIGNALS_H
#define JOBQ_BUILTIN_SIGNALS_H

#include "shared/shmem.h"

/* Sets load and replication lag, at each sweep. */
extern void watch_machine(JobqDb *db, MonoTime now);

#endif
