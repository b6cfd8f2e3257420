/*
 * conductor_start.h
 *	  When the dispatcher starts the conductor.
 */
#ifndef JOBQ_CONDUCTOR_START_H
#define JOBQ_CONDUCTOR_START_H

#include "shared/shmem.h"

extern void conductor_start_init(MemoryContext context, JobqDb *db);
/* Looks once whether a schedule exists; needs a transaction. */
extern void conductor_start_look(void);
/* Starts the conductor if it is wanted and does not run. */
extern void conductor_start_turn(MonoTime now);
/* Returns when the next attempt to start it is due. */
extern MonoTime conductor_start_next_timer(MonoTime now);
/* Ends it: another one reads settings and time zones again. */
extern void conductor_restart(void);

#endif
