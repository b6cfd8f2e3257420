/*
 * held_lanes.h
 *	  What the dispatcher tells views of lanes and limits.
 */
#ifndef JOBQ_HELD_LANES_H
#define JOBQ_HELD_LANES_H

#include "shared/shmem.h"

extern void held_lanes_init(MemoryContext context, JobqDb *db);
/* Writes lanes and limits to shared memory; after a hand-out, in a transaction. */
extern void held_lanes_turn(TimestampTz now, MonoTime mono);

#endif
