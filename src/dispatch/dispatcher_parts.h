/*
 * dispatcher_parts.h
 *	  The parts of the dispatcher that have memory or timers of their own.
 */
#ifndef JOBQ_DISPATCHER_PARTS_H
#define JOBQ_DISPATCHER_PARTS_H

#include "shared/shmem.h"

/* Prepares all parts; what they keep is in the context. */
extern void parts_init(MemoryContext lasting, JobqDb *db);

/* Finds what a former dispatcher left; in a transaction. */
extern void parts_recover(void);

/* Lets parts do what needs no transaction of the dispatcher. */
extern void parts_turn(MonoTime now);

/* Returns the first time at which a part has something to do; DT_NOEND: none. */
extern MonoTime parts_next_timer(MonoTime now);

#endif
